//! The bench of the experiments: disks by name, the model of Storage Spaces and weft on them, and what was measured
//! already.
//!
//! Where a parameter comes from
//! 1. Disks: where the source states what one of its disks does, that; else what the collection proposes for silent
//!    sources (section 3): 7200 rpm, 150 MB/s outside, seeks of about 8.5 ms; SSDs of 500/450 MB/s, 40k/30k per second.
//!    Half of the rate inside, 48 MiB of write cache and 4 TB are usual in the class.
//! 2. A copy has one request of 1 MiB under way, which is what `CopyFile` is known for; the source's rate is not a
//!    limit unless the claim states one.
//! 3. A copy that is not aligned begins 20 KiB off every border.
//! 4. "Used" arrays are written to where they were written before.

use super::Course;
use crate::disks::Class;
use crate::spaces::array::Kind;
use crate::spaces::rows::Shape;
use crate::spaces::{Space, Spec};
use crate::volume::{Flash, OnWeft, Volume};
use crate::workload::{Trace, drive, in_order};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use weft_engine::geometry::{Layout, Resiliency};
use weft_engine::units::ByteCount;
use weft_sim::streams::LOG;
use weft_sim::timing::{HddClass, SsdClass};

/// One GiB.
pub const GIB: u64 = 1 << 30;
/// One MiB, and a request of a copy.
pub const MIB: u64 = 1 << 20;
/// What is copied before the cache ends that most spaces have.
pub const BEFORE: u64 = GIB - 16 * MIB;
/// How far from every border what is not aligned begins.
pub const OFF: u64 = 20 << 10;

/// Disks of the experiments.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Disk {
    /// 7200 rpm, so many MB/s.
    Hdd(u64),
    /// WD Red of 4 TB: 5400 rpm, 150 MB/s.
    Red,
    /// 10,000 rpm, 150 MB/s.
    Fast10k,
    /// 15,000 rpm, 200 MB/s.
    Fast15k,
    /// Without a write cache: 7200 rpm, 150 MB/s.
    Uncached,
    /// A solid-state disk of 500/450 MB/s.
    Ssd,
    /// Crucial M4: 170 MB/s of 4 KiB requests, as its owner measured (Q61).
    M4,
    /// One for servers: what it has taken survives a power cut, so that a flush costs a command.
    SasSsd,
}

impl Disk {
    /// Its model.
    pub fn kind(self) -> Kind {
        let hdd = |rate: u64| HddClass {
            capacity: ByteCount(4_000_787_030_016),
            outer_rate: rate * 1_000_000,
            inner_rate: rate * 500_000,
            write_cache: ByteCount::mib(48),
            ..HddClass::HDD_7200_8TB
        };
        let ssd = || SsdClass {
            read_rate: 500_000_000,
            write_rate: 450_000_000,
            program_rate: 450_000_000,
            command: 25_000,
            write_command: 33_300,
            ..SsdClass::SATA_SSD
        };
        // Faster spindles come with shorter strokes: average seeks of about 4.5 and 3.5 ms by their data sheets.
        let quick = |rate, revolution, part: f64| {
            let scaled = |nanos: u64| (nanos as f64 * part) as u64;
            let base = hdd(rate);
            Kind::Hdd(HddClass {
                capacity: ByteCount(600_127_266_816),
                revolution,
                seek_root: scaled(base.seek_root),
                seek_linear: scaled(base.seek_linear),
                ..base
            })
        };
        match self {
            Disk::Hdd(rate) => Kind::Hdd(hdd(rate)),
            Disk::Red => Kind::Hdd(Class::Hdd5400.hdd().expect("it is one of hard disks")),
            Disk::Fast10k => quick(150, 6_000_000, 0.55),
            Disk::Fast15k => quick(200, 4_000_000, 0.42),
            Disk::Uncached => Kind::Hdd(HddClass { write_cache: ByteCount(0), ..hdd(150) }),
            Disk::Ssd => Kind::Ssd(ssd()),
            Disk::M4 => Kind::Ssd(SsdClass { command: 24_000, write_command: 24_000, ..ssd() }),
            Disk::SasSsd => Kind::Ssd(SsdClass { flush: 0, flush_exclusive: false, ..ssd() }),
        }
    }

    /// A number of such disks.
    pub fn times(self, count: usize) -> Vec<Kind> {
        vec![self.kind(); count]
    }
}

/// An array of an experiment: disks, columns, of them parity, copies, interleave in KiB.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Case {
    /// Its disks.
    pub disk: Disk,
    /// How many.
    pub disks: usize,
    /// Columns, those of parity included.
    pub columns: u64,
    /// Columns of parity among them.
    pub parity: u64,
    /// Copies.
    pub copies: u64,
    /// KiB of a column in a stripe.
    pub interleave: u64,
}

impl Case {
    /// An array with parity on these disks.
    pub fn parity(disk: Disk, disks: usize, columns: u64, parity: u64, interleave: u64) -> Case {
        Case { disk, disks, columns, parity, copies: 1, interleave }
    }

    /// A simple space or a mirror.
    pub fn plain(disk: Disk, copies: u64, columns: u64) -> Case {
        Case { disk, disks: (copies * columns) as usize, columns, parity: 0, copies, interleave: 256 }
    }

    /// The array as the model takes it.
    pub fn spec(self) -> Spec {
        let Case { columns, parity, copies, interleave, .. } = self;
        Spec::on(self.disk.times(self.disks), Shape { columns, parity, copies, interleave: interleave << 10 })
    }

    /// The array as weft takes it.
    pub fn layout(self) -> Layout {
        let resiliency = match (self.parity, self.copies) {
            (0, 1) => Resiliency::Simple,
            (0, copies) => Resiliency::Mirror { copies: copies as u8 },
            (parity, _) => Resiliency::Parity { parity: parity as u8 },
        };
        let made = Layout::new(resiliency, self.columns as u8, ByteCount::kib(self.interleave));
        made.expect("the claims are about valid layouts")
    }

    /// A new space.
    pub fn space(self) -> Rc<dyn Volume> {
        Rc::new(Space::new(&self.spec()))
    }

    /// A space that has so many GiB of data already, which lie before what is written now.
    pub fn space_behind(self, gib: u64) -> Rc<dyn Volume> {
        let row = self.spec().shape.row();
        let used = (gib * GIB).div_ceil(row) * self.columns / self.disks as u64;
        Rc::new(Space::new(&Spec { used, ..self.spec() }))
    }

    /// A new virtual disk of weft.
    pub fn weft(self) -> Rc<dyn Volume> {
        self.weft_with(4096)
    }

    /// One with sectors of so many bytes.
    pub fn weft_with(self, sector: u32) -> Rc<dyn Volume> {
        Rc::new(self.on_weft(sector, LOG))
    }

    /// One behind such solid-state disks. The log, which bounds how many small writes a cache takes, is as long as a
    /// pool of such disks has it.
    pub fn weft_behind(self, disk: Disk, count: usize, flash: Flash) -> Rc<dyn Volume> {
        Rc::new(self.on_weft(4096, ByteCount::gib(1)).behind(&disk.times(count), flash))
    }

    fn on_weft(self, sector: u32, log: ByteCount) -> OnWeft {
        OnWeft::new(&self.disk.times(self.disks), self.layout(), 64 * GIB, sector, log)
    }
}

/// What is measured once and used by several claims.
#[derive(Default)]
pub struct Lab {
    known: RefCell<BTreeMap<String, Rc<Vec<Trace>>>>,
}

impl Lab {
    /// Measures, unless it was measured under this name.
    pub fn once(&self, name: impl Into<String>, measure: impl FnOnce() -> Vec<Trace>) -> Rc<Vec<Trace>> {
        let name = name.into();
        if let Some(known) = self.known.borrow().get(&name) {
            return known.clone();
        }
        let found = Rc::new(measure());
        self.known.borrow_mut().insert(name, found.clone());
        found
    }

    /// A copy of `gib` to a new space from `at` on, and once more to the same place.
    pub fn spaces(&self, case: Case, at: u64, gib: u64) -> Rc<Vec<Trace>> {
        self.once(format!("spaces {case:?} {at} {gib}"), || twice(&case.space(), at, gib * GIB))
    }

    /// An aligned copy to a new space, twice, behind so many GiB of other data.
    pub fn behind(&self, case: Case, before: u64, gib: u64) -> Rc<Vec<Trace>> {
        self.once(format!("behind {case:?} {before} {gib}"), || twice(&case.space_behind(before), 0, gib * GIB))
    }

    /// A copy of 1 GiB to a new virtual disk of weft, twice to the same place.
    pub fn weft(&self, case: Case) -> Rc<Vec<Trace>> {
        self.once(format!("weft {case:?}"), || twice(&case.weft(), OFF, GIB))
    }
}

/// Writes twice to one place, in order.
pub fn twice(volume: &Rc<dyn Volume>, at: u64, bytes: u64) -> Vec<Trace> {
    (0..2).map(|_| drive(volume, in_order(at, bytes, MIB), 1, None, true)).collect()
}

/// Parts of a trace that is drawn.
const PARTS: usize = 240;

/// A trace to be drawn.
pub fn course(of: &str, trace: &Trace) -> Course {
    Course { of: of.into(), rates: trace.spans(PARTS), seconds: trace.nanos as f64 / 1e9 }
}

/// MB per second.
pub fn mb(rate: f64) -> String {
    let mb = rate / 1e6;
    if mb < 9.95 { format!("{mb:.1} MB/s") } else { format!("{mb:.0} MB/s") }
}

/// GB.
pub fn gb(bytes: u64) -> String {
    format!("{:.2} GB", bytes as f64 / 1e9)
}
