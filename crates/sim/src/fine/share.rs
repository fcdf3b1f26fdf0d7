//! Stories of the share of a virtual disk that may lie in packed stripes.

use super::{PARITY, Story};
use weft_engine::units::Nanos;

/// Small writes of a virtual disk with a share of zero are merged, what lay packed before goes by itself, and a crash
/// forgets none of that; with a share of its own they are packed again, whatever holds for all others.
pub fn a_share_of_its_own_holds_at_once_and_after_a_crash() {
    let mut story = Story::new(700, PARITY);
    story.fill(1);
    story.scatter(60, 1000);
    story.destage();
    assert!(story.packed() > 0);
    story.set_share(Some(0));
    let vdisk = story.vdisk();
    story.rig.world.run_until(Nanos::secs(60), move || vdisk.packed().0 == 0);
    assert_eq!((story.packed(), story.vdisk().packed().2), (0, 0), "what lay packed is moved");
    story.scatter(60, 2000);
    story.destage();
    assert_eq!(story.packed(), 0, "small writes are merged");
    story.prove();
    story.flush();
    story.crash();
    assert_eq!(story.vdisk().fine_share(), 0);
    story.prove();
    story.rig.close().unwrap();
    story.rig.options.tuning.fine_share = 0;
    story.rig.open(&mut story.rng).unwrap();
    story.set_share(Some(100));
    story.scatter(20, 3000);
    story.destage();
    assert!(story.packed() > 0, "it has a share of its own");
    story.set_share(None);
    let vdisk = story.vdisk();
    story.rig.world.run_until(Nanos::secs(60), move || vdisk.packed().0 == 0);
    assert_eq!((story.packed(), story.vdisk().fine_share()), (0, 0), "what holds for all is zero");
    story.flush();
    story.crash();
    story.prove();
    let pool = story.rig.pool();
    let refused = story.rig.run(async move { pool.vdisk_set_fine_share("vdisk", Some(501)).await });
    assert!(refused.is_err());
}
