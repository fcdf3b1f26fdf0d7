//! A file or a block device under load: as many threads as requests are under way, past the page cache where possible.

use super::{Source, Target, filling};
use crate::api::error::{Answer, ApiError, Kind};
use crate::disk::{DiskOptions, OpenDisk};
use std::path::Path;
use weft_engine::error::ErrorKind;
use weft_engine::io::Buf;
use weft_engine::units::BLOCK;
use weft_lab::workload::Ask;

/// A disk that this program has claimed.
pub struct Direct {
    disk: OpenDisk,
}

impl Direct {
    /// Claims a file or a block device; one that somebody uses is refused.
    pub fn open(path: &Path, writes: bool) -> Answer<Direct> {
        let options = DiskOptions { read_only: !writes, ..DiskOptions::default() };
        let disk = OpenDisk::open(path, &options).map_err(|error| {
            let kind = match error.kind {
                ErrorKind::NotFound => Kind::NotFound,
                ErrorKind::InvalidInput => Kind::InvalidInput,
                _ => Kind::NotPossible,
            };
            ApiError::new(kind, error.context)
        })?;
        Ok(Direct { disk })
    }

    fn perform(&self, ask: Ask, buf: &mut Buf, data: &Buf) -> rustix::io::Result<()> {
        if ask == Ask::Flush {
            return rustix::fs::fdatasync(&self.disk);
        }
        let (mut done, len) = (0, ask.moves());
        while done < len {
            let span = done as usize..len as usize;
            let moved = match ask {
                Ask::Read(at, _) => rustix::io::pread(&self.disk, &mut buf[span], at + done),
                Ask::Write(at, _) | Ask::WriteThrough(at, _) => rustix::io::pwrite(&self.disk, &data[span], at + done),
                Ask::Flush | Ask::Forget(..) => break,
            };
            match moved {
                Ok(0) => return Err(rustix::io::Errno::NXIO),
                Ok(moved) => done += moved as u64,
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        if matches!(ask, Ask::WriteThrough(..)) { rustix::fs::fdatasync(&self.disk) } else { Ok(()) }
    }
}

impl Target for Direct {
    fn size(&self) -> u64 {
        self.disk.shape().capacity.0 / BLOCK * BLOCK
    }

    fn read_only(&self) -> bool {
        self.disk.is_read_only()
    }

    fn drive(&mut self, source: &Source, depth: usize) -> Answer<()> {
        let room = weft_lab::jobs::LEN_MAX as usize;
        let data = Buf::copy_of(&filling(room));
        let one = || -> Result<(), (Ask, rustix::io::Errno)> {
            let mut buf = Buf::zeroed(BLOCK as usize);
            while let Some((ask, then)) = source.next() {
                if let Ask::Read(_, len) = ask
                    && buf.len() < len as usize
                {
                    buf = Buf::zeroed((len as usize).next_multiple_of(BLOCK as usize));
                }
                self.perform(ask, &mut buf, &data).map_err(|errno| (ask, errno))?;
                source.note(ask, then);
            }
            Ok(())
        };
        let ended: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..depth).map(|_| scope.spawn(one)).collect();
            threads.into_iter().map(|thread| thread.join().expect("a client does not panic")).collect()
        });
        let failed = |(ask, errno)| ApiError::new(Kind::NotPossible, format!("{ask:?} failed: {errno}"));
        let _: Vec<()> = ended.into_iter().collect::<Result<_, _>>().map_err(failed)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::run;
    use super::*;
    use weft_engine::units::Nanos;
    use weft_lab::jobs::Job;

    #[test]
    fn a_job_is_run_on_a_file_and_everything_it_asks_for_is_done() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        std::fs::File::create(&path).unwrap().set_len(1 << 20).unwrap();
        let text = "[fill]\nrw=write\nbs=64k\nfsync=4\niodepth=3\n[read]\nstonewall\nrw=read\nbs=4k\nsync=1\nnumjobs=2";
        let jobs = Job::read(text).unwrap();
        let mut disk = Direct::open(&path, true).unwrap();
        let fill = run(&mut disk, &jobs[0]).unwrap();
        assert_eq!((fill.requests, fill.bytes), (16, 1 << 20));
        assert_eq!(fill.seconds.iter().sum::<u64>(), 1 << 20);
        assert_eq!(fill.latency.histogram.iter().map(|bucket| bucket.count).sum::<u64>(), 16);
        assert_eq!(run(&mut disk, &jobs[1]).unwrap().requests, 256);
        assert!(std::fs::read(&path).unwrap().chunks(64 << 10).all(|part| part == &filling(64 << 10)[..]));
        assert!(Direct::open(&path, true).is_err(), "it is claimed");
    }

    #[test]
    fn workloads_by_name_run_and_cameras_keep_their_rate() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        std::fs::File::create(&path).unwrap().set_len(32 << 20).unwrap();
        let mut disk = Direct::open(&path, true).unwrap();
        for named in weft_lab::named::NAMED {
            let mut job = named.jobs().remove(0);
            let span = if job.rate.is_some() { 1000 } else { 50 };
            // A machine with other things to do may end no request in so short a span.
            let mut for_longer = (0..8).map(|times| {
                job.line.span = Some(Nanos::millis(span << times));
                run(&mut disk, &job).unwrap()
            });
            let outcome = for_longer.find(|outcome| outcome.requests > 0).expect("some request ends");
            assert_eq!(outcome.job, named.name);
            if job.rate.is_some() {
                // However fast the disk, and however slow, no more than is due by then, and the request under way.
                let due = u128::from(outcome.nanos) * (16 << 20) / 1_000_000_000;
                assert!(u128::from(outcome.bytes) <= due + job.line.len as u128, "{outcome:?}");
            }
        }
    }

    #[test]
    fn a_job_that_writes_is_refused_where_nothing_can_be_written_and_one_that_does_not_fit_too() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        std::fs::File::create(&path).unwrap().set_len(8192).unwrap();
        let mut disk = Direct::open(&path, false).unwrap();
        let job = |text| Job::read(text).unwrap().remove(0);
        assert_eq!(run(&mut disk, &job("[a]\nrw=write\nbs=4k")).unwrap_err().kind, Kind::ReadOnly);
        assert!(run(&mut disk, &job("[a]\nrw=read\nbs=64k")).unwrap_err().message.contains("there are 8192"));
        assert_eq!(run(&mut disk, &job("[a]\nrw=randread\nbs=4k")).unwrap().requests, 2);
    }
}
