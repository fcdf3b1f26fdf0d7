//! Stories: one test per thing that must be true, told with the unchanged engine on simulated disks.

use weft_engine::stripe::geometry::Layout;
use weft_engine::units::{ByteCount, VirtualOffset};
use weft_sim::rig::{Rig, resiliencies};
use weft_sim::rng::Rng;
use weft_sim::world::{Scheduling, SimWorld};

fn rig(seed: u64, disks: usize) -> (Rig, Rng) {
    let world = SimWorld::new(seed, Scheduling::Random);
    let rng = world.rng("story");
    (Rig::new(world, disks, ByteCount::mib(16)), rng)
}

#[test]
fn what_was_written_and_flushed_is_read_back_after_a_power_cut_with_every_resiliency() {
    for resiliency in resiliencies() {
        let layout = Layout::new(resiliency, resiliency.columns_min(), ByteCount::kib(16)).unwrap();
        let (mut rig, mut rng) = rig(7, layout.slots());
        rig.create(ByteCount::mib(1)).unwrap();
        rig.open(&mut rng).unwrap();
        rig.make_vdisk(layout, ByteCount::mib(2), 4096, false).unwrap();
        let data: Vec<u8> = (0..300 * 1024u32).map(|at| (at / 7 * 13) as u8).collect();
        let vdisk = rig.pool().vdisk("vdisk").unwrap();
        let (wrote, written) = (vdisk.clone(), data.clone());
        rig.run(async move {
            wrote.write(VirtualOffset(20 * 1024), &written, false).await.unwrap();
            wrote.flush().await.unwrap();
        });
        drop(vdisk);
        rig.power_cut(&mut rng);
        rig.open(&mut rng).unwrap();
        let vdisk = rig.pool().vdisk("vdisk").unwrap();
        let mut back = vec![1; data.len() + 8192];
        let back = rig.run(async move {
            vdisk.read(VirtualOffset(16 * 1024), &mut back).await.unwrap();
            back
        });
        assert_eq!(back[..4096], [0; 4096], "{layout}: before it there are zeros");
        assert!(back[4096..][..data.len()] == data, "{layout}: the data is there");
        let pool = rig.pool();
        let report = rig.run(async move { pool.check(false).await.unwrap() });
        assert!(report.is_sound(), "{layout}: {report:?}");
        rig.close().unwrap();
    }
}
