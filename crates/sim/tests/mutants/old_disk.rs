//! An old disk that comes back where the metadata of the others is destroyed: its own is not believed.

use std::rc::Rc;
use weft_engine::error::ErrorKind;
use weft_engine::format::label::{DiskPlan, Label};
use weft_engine::format::page::{PAGE_MAGIC, PageKind};
use weft_engine::geometry::{Layout, Resiliency};
use weft_engine::units::{BLOCK, ByteCount, VirtualOffset};
use weft_engine::vdisk::Vdisk;
use weft_sim::disk::SimDisk;
use weft_sim::rig::Rig;
use weft_sim::world::{Scheduling, SimWorld};

/// What the story ends with.
#[derive(PartialEq, Eq, Debug)]
pub enum End {
    /// New data, or an error that says that it is lost.
    Honest,
    /// Old data as if nothing had happened.
    OldData,
}

/// A disk vanishes, writes go on without it. It comes back, and the metadata of the disk that went on is destroyed:
/// what the old disk says then must not be believed.
pub fn story() -> End {
    let world = SimWorld::new(5, Scheduling::Random);
    let mut rng = world.rng("story");
    let mut rig = Rig::new(world, 2, ByteCount::mib(8));
    let layout = Layout::new(Resiliency::Mirror { copies: 2 }, 1, ByteCount::kib(16)).unwrap();
    rig.create(ByteCount::mib(1)).unwrap();
    rig.open(&mut rng).unwrap();
    rig.make_vdisk(layout, ByteCount::mib(1), 4096, false).unwrap();
    write(&rig, 1);
    rig.close().unwrap();
    rig.open(&mut rng).unwrap();
    rig.disks[1].vanish();
    write(&rig, 2);
    rig.close().unwrap();
    rig.disks[1].come_back(&mut rng);
    destroy_table_pages(&rig.disks[0]);
    match rig.open(&mut rng) {
        Err(error) => {
            assert_eq!(error.kind, ErrorKind::Lost);
            rig.halt();
            End::Honest
        }
        Ok(pool) => {
            let vdisk = pool.vdisk("vdisk").unwrap();
            let read = rig.run(async move { read(&vdisk).await });
            drop(pool);
            rig.halt();
            match read {
                Ok(bytes) if bytes.iter().all(|byte| *byte == 2) => End::Honest,
                Ok(bytes) => {
                    assert!(bytes.iter().all(|byte| *byte == 1), "it is the old data");
                    End::OldData
                }
                Err(error) => {
                    assert_eq!(error.kind, ErrorKind::Lost);
                    End::Honest
                }
            }
        }
    }
}

fn write(rig: &Rig, byte: u8) {
    let vdisk = rig.pool().vdisk("vdisk").unwrap();
    rig.run(async move {
        vdisk.write(VirtualOffset(0), &vec![byte; 16 << 10], false).await.unwrap();
        vdisk.flush().await.unwrap();
    });
}

async fn read(vdisk: &Rc<Vdisk>) -> weft_engine::error::Result<Vec<u8>> {
    let mut bytes = vec![0xAA; 16 << 10];
    vdisk.read(VirtualOffset(0), &mut bytes).await.map(|()| bytes)
}

/// Rots every table page (kind `Table`) in the slabs of a disk.
fn destroy_table_pages(disk: &SimDisk) {
    let image = disk.image();
    let slots = DiskPlan::label_slots(image.shape().capacity);
    let label = slots.iter().find_map(|at| Label::decode(&image.read(*at, ByteCount(BLOCK)).unwrap()).unwrap());
    let plan = label.expect("a member has a label").plan;
    let mut at = plan.data_at;
    while at.0 < plan.disk_len.0 {
        if image.read(at, ByteCount(BLOCK)).is_ok_and(|block| is_table_page(&block)) {
            disk.rot(at);
        }
        at = at + ByteCount(BLOCK);
    }
}

fn is_table_page(block: &[u8]) -> bool {
    // Magic, CRC and pool come before the kind.
    block.starts_with(&PAGE_MAGIC) && block[24..26] == (PageKind::Table as u16).to_le_bytes()
}
