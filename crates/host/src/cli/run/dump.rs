//! `weft pool dump`: reads what lies on disks, without a daemon and without claiming them. A daemon that runs is asked
//! only where the disks of a pool are.

use super::{Ran, Session};
use crate::api::error::{Answer, ApiError, Kind};
use crate::cli::text::Dumped;
use crate::daemon::find;
use crate::disk::onlooker::Onlooker;
use crate::ops::dump::PoolDump;
use crate::ops::pool::PoolShow;
use crate::ops::{Perform, absolute};
use crate::wire::client::Client;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use weft_engine::dump::{Wanted, dump};
use weft_engine::format::Id;
use weft_engine::io::Disk;
use weft_engine::pool::open::probe;

impl Session<'_, '_> {
    pub(super) fn dump(&mut self, told: &PoolDump) -> Ran {
        let (mut paths, mut pools) = (Vec::new(), Vec::new());
        for of in &told.of {
            let typed = Path::new(of);
            match typed.exists() || of.starts_with(['/', '.']) {
                true => paths.push(absolute(typed)?),
                false => pools.push(of.as_str()),
            }
        }
        let mut disks = paths.iter().map(|path| look_at(path)).collect::<Answer<Vec<_>>>()?;
        for pool in pools {
            for path in self.disks_of(pool, told)? {
                // One that went since it was found is told as one that is not there.
                disks.extend(look_at(&path));
                paths.push(path);
            }
        }
        let wanted = Wanted { records: told.records, keys: told.key };
        self.print(&Dumped { paths, told: now(dump(disks, &wanted)) })
    }

    /// Where the disks of `pool` are.
    fn disks_of(&self, pool: &str, told: &PoolDump) -> Answer<Vec<PathBuf>> {
        let places = (!told.disks.is_empty()).then_some(&told.disks[..]);
        if places.is_none()
            && let Ok(known) = Client::new(self.socket()?).perform(&PoolShow::of(pool))
        {
            return Ok(known.disks.into_iter().filter_map(|disk| disk.path).collect());
        }
        let scanned = find::scan(places, &[]);
        let found: Vec<(PathBuf, Id, bool)> = scanned
            .iter()
            .filter_map(|path| {
                let disk: Rc<dyn Disk> = Rc::new(Onlooker::open(path).ok()?);
                let (label, _) = now(async { probe(&disk).await }).ok()??;
                Some((path.clone(), label.pool_id, label.pool_name == pool))
            })
            .collect();
        // A disk that was away while the pool was renamed still tells its old name.
        let ids: Vec<Id> = found.iter().filter(|(_, _, named)| *named).map(|(_, id, _)| *id).collect();
        let own: Vec<PathBuf> =
            found.into_iter().filter(|(_, id, _)| ids.contains(id)).map(|(path, ..)| path).collect();
        match own.is_empty() {
            false => Ok(own),
            true => {
                let what = format!("none of the {} disks that were looked at carries a pool {pool}", scanned.len());
                let hint = format!("weft pool dump {pool} --disks DIR_OR_DEVICE");
                Err(ApiError::new(Kind::NotFound, what).hint(hint))
            }
        }
    }
}

fn look_at(path: &Path) -> Answer<Rc<dyn Disk>> {
    match Onlooker::open(path) {
        Ok(disk) => Ok(Rc::new(disk)),
        Err(errno) => {
            let (kind, why) = match errno {
                rustix::io::Errno::NOENT => (Kind::NotFound, "it does not exist".to_string()),
                rustix::io::Errno::INVAL => (Kind::InvalidInput, "it is neither a file nor a block device".to_string()),
                errno => (Kind::NotPossible, errno.to_string()),
            };
            Err(ApiError::new(kind, format!("cannot read {}: {why}", path.display())).hint("weft disk list"))
        }
    }
}

/// What a future comes to whose disks answer at once.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("disks that are only looked at answer at once"),
    }
}
