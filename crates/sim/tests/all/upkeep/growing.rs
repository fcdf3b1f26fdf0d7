//! Pools that grow and shrink.

use super::{job, pool, reads, settle, sound, write};
use std::rc::Rc;
use weft_engine::disk_set::DiskSet;
use weft_engine::format::Id;
use weft_engine::format::record::{Media, Usage};
use weft_engine::geometry::Resiliency;
use weft_engine::pool::NewDisk;
use weft_engine::pool::job::{JobKind, JobState};
use weft_engine::units::DiskNo;
use weft_sim::rig::Rig;

const MIRROR: Resiliency = Resiliency::Mirror { copies: 2 };

#[test]
fn a_pool_that_grew_outlives_the_disks_that_it_was_made_of() {
    assert_eq!(weft_sim::growth::first_disks_of_pools_that_grew_go(), None);
}

/// Disks that copies of each piece of metadata lie on.
fn homes(rig: &Rig) -> Vec<DiskSet> {
    rig.pool().store().metadata_homes().into_values().collect()
}

fn add(rig: &Rig, at: usize, usage: Usage) -> DiskNo {
    let (pool, disk) = (rig.pool(), Rc::new(rig.disks[at].clone()));
    let new = NewDisk { disk, id: Id([100 + at as u8; 16]), name: format!("new{at}"), media: Media::Ssd };
    rig.run(async move { pool.disk_add(new, usage).await.unwrap() })
}

#[test]
fn metadata_follows_a_pool_that_shrinks_and_grows() {
    let (mut rig, mut rng) = pool(3, 4, 3, MIRROR, 1);
    write(&rig, 0, 4 << 20, 5);
    assert!(
        !homes(&rig).is_empty() && homes(&rig).iter().all(|on| *on == DiskSet::from_words(&[0b111])),
        "{:?}",
        homes(&rig)
    );
    let shrinking = rig.pool();
    let ended = rig.run(async move {
        shrinking.plan_disk_remove(DiskNo(0), Default::default()).unwrap();
        let job = shrinking.disk_remove(DiskNo(0), None, 0).await.unwrap();
        shrinking.job_wait(job).await.unwrap()
    });
    assert_eq!(ended.state, JobState::Done, "{ended:?}");
    assert!(homes(&rig).iter().all(|on| *on == DiskSet::from_words(&[0b110])), "{:?}", homes(&rig));
    settle(&rig);
    let ended = job(&rig, JobKind::Repair);
    assert_eq!((ended.state, ended.note.as_str()), (JobState::Done, "0 slots are whole again"));
    sound(&rig);
    rig.power_cut(&mut rng);
    rig.open(&mut rng).unwrap();
    let spare = add(&rig, 3, Usage::HotSpare);
    settle(&rig);
    assert!(
        homes(&rig).iter().all(|on| *on == DiskSet::from_words(&[0b110])),
        "a hot spare is for what was lost: {:?}",
        homes(&rig)
    );
    assert_eq!(super::usage(&rig, spare), Usage::HotSpare);
    let pool = rig.pool();
    let change = weft_engine::pool::DiskChange { usage: Some(Usage::AutoSelect), ..Default::default() };
    rig.run(async move { pool.disk_set(spare, change).await }).unwrap();
    settle(&rig);
    assert!(homes(&rig).iter().all(|on| *on == DiskSet::from_words(&[0b110]).with(spare)), "{:?}", homes(&rig));
    reads(&rig, 0, 4 << 20, 5);
    sound(&rig);
    rig.close().unwrap();
}
