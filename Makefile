# What people and CI type. `make help` lists it; every verb does its own set-up.

CARGO ?= cargo

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

test: ## Run every test: units, stories, mutants, the simulator, real clients
	@scripts/need test
	@scripts/test

test-vm: ## Run the tests of mounted file systems in a virtual machine (LONG=1: all of them, an hour)
	@scripts/need test-vm
	$(CARGO) build --profile proof -p weft-host
	@scripts/test-vm $(if $(LONG),--long)

test-mount: ## The same on this machine, which may have to wait for them (root)
	@scripts/need test-mount
	$(CARGO) build --profile proof -p weft-host
	@WEFT=$(CURDIR)/target/proof/weft tests/mount/run

lint: ## Check format, clippy (warnings are errors), licences and advisories
	@scripts/need lint
	@scripts/lint

bench: ## Measure kernels and NBD beside raw files and beside nbdkit
	@scripts/need bench
	$(CARGO) build --release -p weft-host
	@scripts/bench

.PHONY: help build demo demo-clean demo-mount test test-vm test-mount lint bench
