//! Pools of any size without the data.

use weft_engine::error::ErrorKind;
use weft_engine::geometry::{Layout, Resiliency};
use weft_engine::units::{ByteCount, VirtualOffset};
use weft_sim::mkpool::{Shape, make, measure, write_files};
use weft_sim::rng::Rng;

fn shape(capacity: ByteCount) -> Shape {
    let layout = Layout::new(Resiliency::Parity { parity: 1 }, 4, ByteCount::kib(64)).unwrap();
    Shape { disks: 5, capacity, slab: ByteCount::mib(16), layout }
}

#[test]
fn a_pool_without_its_data_opens_is_sound_and_reads_nothing_wrong() {
    let shape = shape(ByteCount::gib(4));
    let mut rig = make(&shape).unwrap();
    rig.open(&mut Rng::new(5)).unwrap();
    let vdisk = rig.pool().vdisk("vdisk").unwrap();
    let stripes = vdisk.size().0 / vdisk.stripe_len().0;
    assert!(stripes * vdisk.stripe_len().0 > shape.capacity.0 * 5 / 4 * 3 / 4, "most of it is mapped: {stripes}");
    let (first, last) = rig.run(async move {
        let (mut first, mut last) = ([0; 4096], [0; 4096]);
        let read = vdisk.read(VirtualOffset(0), &mut first).await;
        (read.map(|()| first), vdisk.read(VirtualOffset(vdisk.size().0 - 4096), &mut last).await)
    });
    assert!(first.unwrap().iter().all(|byte| *byte == 7), "the first stripe was written");
    assert_eq!(last.map_err(|error| error.kind), Err(ErrorKind::Lost), "no other was");
    rig.halt();
}

#[test]
fn a_checkpoint_writes_what_changed_and_not_what_there_is() {
    let costs = [4, 16].map(|gib| {
        let shape = shape(ByteCount::gib(gib));
        measure(&mut make(&shape).unwrap(), &shape).unwrap()
    });
    assert!(costs[1].stripes > 3 * costs[0].stripes);
    assert!(costs[1].metadata_share < 0.02, "{costs:?}");
    // Its table has eight bytes for each stripe.
    assert!(costs[1].memory.0 < costs[1].stripes * 2, "an open pool has little of its table in memory: {costs:?}");
}

#[test]
fn its_files_are_the_disks_that_were_simulated() {
    let shape = shape(ByteCount::gib(1));
    let rig = make(&shape).unwrap();
    let dir = std::env::temp_dir().join(format!("weft-mkpool-{}", std::process::id()));
    write_files(&rig, &dir).unwrap();
    for (no, disk) in rig.disks.iter().enumerate() {
        let file = std::fs::File::open(dir.join(format!("d{no}"))).unwrap();
        assert_eq!(file.metadata().unwrap().len(), shape.capacity.0);
        let image = disk.image();
        assert!(!image.written().is_empty());
        for (at, len) in image.written() {
            let mut bytes = vec![0; len.0 as usize];
            std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, at.0).unwrap();
            assert!(bytes == image.read(at, len).unwrap(), "disk {no} at {at:?}");
        }
    }
    std::fs::remove_dir_all(&dir).unwrap();
}
