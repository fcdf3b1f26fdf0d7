//! Arrays beside each other, on the same disks: models of those that write in place and of Storage Spaces, and weft.

use crate::claims::lab::{Case, Disk, GIB, MIB};
use crate::jobs::Job;
use crate::raid::Raid;
use crate::spaces::rows::Shape;
use crate::volume::Volume;
use crate::workload::{drive, in_order};
use serde::Serialize;
use std::rc::Rc;

/// The disks: 150 MB/s.
const DISK: Disk = Disk::Hdd(150);
/// What workloads are given of an array.
pub const ROOM: u64 = 4 * GIB;

/// An array by its name, and what makes a new one.
pub type Make = (&'static str, fn() -> Rc<dyn Volume>);

/// Every array: strips of 64 KiB, mirrors 256 KiB.
pub const ARRAYS: [Make; 8] = [
    ("RAID 5 in place, 5 disks", || raid(1, false)),
    ("the same with a journal on an SSD", || raid(1, true)),
    ("RAID 6 in place, 5 disks", || raid(2, false)),
    ("mirror, 4 disks (Storage Spaces)", || mirror().space()),
    ("Storage Spaces, parity, 5 disks", || parity().space()),
    ("weft, parity, 5 disks", || parity().weft()),
    ("weft, dual parity, 5 disks", || Case { parity: 2, ..parity() }.weft()),
    ("weft, mirror, 4 disks", || mirror().weft()),
];

fn raid(parity: u64, journal: bool) -> Rc<dyn Volume> {
    let shape = Shape { columns: 5, parity, copies: 1, interleave: 64 << 10 };
    let journal = journal.then(|| Disk::Ssd.kind());
    Rc::new(Raid::new(&DISK.times(5), shape, journal, 8 * GIB))
}

fn parity() -> Case {
    Case::parity(DISK, 5, 5, 1, 64)
}

fn mirror() -> Case {
    Case { disks: 4, ..Case::plain(DISK, 2, 2) }
}

/// What an array does of a job.
#[derive(Clone, PartialEq, Serialize, Debug)]
pub struct Rates {
    /// The array.
    pub array: &'static str,
    /// The job.
    pub job: String,
    /// MB per second where nothing was written before; none, if the workload reads.
    pub new_mb_s: Option<f64>,
    /// MB per second where everything was written before.
    pub used_mb_s: f64,
    /// Requests per second there.
    pub used_per_second: f64,
}

/// Runs jobs, one after the other, on each array. An error names the job that does not fit.
pub fn run(jobs: &[Job]) -> Result<Vec<Rates>, String> {
    run_on(&ARRAYS, jobs, ROOM)
}

fn run_on(arrays: &[Make], jobs: &[Job], room: u64) -> Result<Vec<Rates>, String> {
    let mut rates = Vec::new();
    let writes_only = jobs.iter().all(|job| job.line.writes >= 1.0);
    for (array, make) in arrays {
        let (new, used) = (make(), make());
        drive(&used, in_order(0, room, MIB), 4, None, true);
        for job in jobs {
            let on = |volume: &Rc<dyn Volume>| {
                let lacks = || format!("job `{}` needs {} bytes at least, and there are {room}", job.name, job.least());
                job.run(volume, room).ok_or_else(lacks)
            };
            let new_mb_s = if writes_only { Some(on(&new)?.rate() / 1e6) } else { None };
            let trace = on(&used)?;
            let (used_mb_s, used_per_second) = (trace.rate() / 1e6, trace.per_second());
            rates.push(Rates { array, job: job.name.clone(), new_mb_s, used_mb_s, used_per_second });
        }
    }
    Ok(rates)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::named::{NAMED, Named};
    use weft_engine::units::Nanos;

    /// Runs a workload for a second on RAID 5, on Storage Spaces and on weft.
    fn briefly(named: &Named) -> Vec<Rates> {
        let mut jobs = named.jobs();
        jobs.iter_mut().for_each(|job| job.line.span = Some(Nanos::secs(1)));
        run_on(&[ARRAYS[0], ARRAYS[4], ARRAYS[5]], &jobs, GIB / 2).unwrap()
    }

    #[test]
    fn workloads_by_name_run_on_models_and_on_weft_and_give_the_same_each_time() {
        for named in NAMED {
            let rates = briefly(named);
            assert!(rates.len() == 3 && rates.iter().all(|rates| rates.used_mb_s > 0.1), "{rates:#?}");
            assert_eq!(rates, briefly(named));
            if let ("camera", [raid, spaces, weft]) = (named.name, &rates[..]) {
                // Sixteen cameras of 1 MiB/s are little for weft, and nobody gets more than they give.
                assert!((16.0..17.5).contains(&weft.used_mb_s), "{weft:?}");
                assert!(raid.used_mb_s < 17.5 && spaces.used_mb_s < 17.5, "{rates:#?}");
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let mut job = Job::read("camera").unwrap().remove(0);
        job.size = Some(1 << 20);
        assert!(run(&[job]).unwrap_err().contains("job `camera` needs 4194304 bytes"));
    }
}
