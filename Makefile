# What people and CI type. `make help` lists it; every verb does its own set-up.

CARGO ?= cargo
# Where cargo puts what it builds.
TARGET = $(or $(CARGO_TARGET_DIR),target)

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1 \2/p' $(MAKEFILE_LIST) | awk '{ verb = $$2; $$1 = $$2 = ""; printf "  make %-11s%s\n", verb, $$0 }'

build: ## Build target/release/weft
	@scripts/need build
	$(CARGO) build --release -p weft-host

demo: ## Four disks, a crash, a pulled disk: see weft work (a minute, no root)
	@scripts/need demo
	$(CARGO) build --release -p weft-host
	@demo/run

demo-clean: ## Stop what `make demo` left running, remove its files
	@demo/run --clean

demo-mount: ## A file system on a virtual disk, a pulled disk, the space back (root)
	@scripts/need demo-mount
	$(CARGO) build --release -p weft-host
	@demo/mount

test: ## Run every test: units, stories, storms, planted bugs, real clients, mounts (ALL=1: no samples)
	@scripts/need test
	@$(if $(ALL),WEFT_SAMPLE=) scripts/test

storm: ## Run the simulator for long: N=20000 storms, from SEED=1 on
	@scripts/need build
	$(CARGO) build --profile proof -p weft-sim
	@$(TARGET)/proof/weft-sim $(if $(PROFILE),--profile $(PROFILE)) --runs $(or $(N),20000) --seed $(or $(SEED),1)

hostile: ## Neighbours and disks that mean harm, by the thousands (some minutes)
	@scripts/need build
	WEFT_FORGED=2500 $(CARGO) test --profile proof -p weft-sim --test all forged:: -- --show-output
	$(CARGO) build --profile proof -p weft-host
	@WEFT=$(TARGET)/proof/weft tests/interop/run --long hostile

walks: ## Random walks through faults, changes of layout and jobs, on real files (a quarter of an hour)
	@scripts/need build
	$(CARGO) build --profile proof -p weft-host
	@WEFT=$(TARGET)/proof/weft tests/interop/run --long walk

streams: ## Hold streams to the disks' rate: each layout, interleave and request size
	@scripts/need build
	$(CARGO) build --profile proof -p weft-sim
	@$(TARGET)/proof/weft-sim streams --full

figures: ## Measure the tables of docs/evidence/speed.md anew, in virtual time (an hour; ONLY=flushes)
	@scripts/need build
	$(CARGO) build --profile proof -p weft-sim
	@scripts/figures $(ONLY)

lab: ## Write docs/evidence/lab.md, disks.md and raid.md: claims about Storage Spaces repeated, models (some minutes)
	@scripts/need build
	$(CARGO) build --profile proof -p weft-lab --example report
	$(TARGET)/proof/examples/report docs/evidence

ratios: ## Measure the table that plans stand on anew: each layout on each class of disks
	@scripts/need build
	$(CARGO) build --profile proof -p weft-lab --example ratios
	$(TARGET)/proof/examples/ratios >$(TARGET)/ratios.tsv
	mv $(TARGET)/ratios.tsv crates/lab/src/ratios.tsv

test-vm: ## Run the tests of mounted file systems in a virtual machine (LONG=1: all of them, an hour)
	@scripts/need test-vm
	$(CARGO) build --profile proof -p weft-host
	@WEFT=$(TARGET)/proof/weft scripts/test-vm $(if $(LONG),--long)

test-mount: ## The same on this machine, which may have to wait for them (root)
	@scripts/need test-mount
	$(CARGO) build --profile proof -p weft-host
	@WEFT=$(TARGET)/proof/weft tests/mount/run

lint: ## Check format, clippy (warnings are errors), licences and advisories
	@scripts/need lint
	@scripts/lint

bench: ## Measure kernels and NBD beside raw files and beside nbdkit
	@scripts/need bench
	$(CARGO) build --release -p weft-host
	@scripts/bench

.PHONY: help build demo demo-clean demo-mount test storm hostile walks streams figures lab ratios
.PHONY: test-vm test-mount lint bench
