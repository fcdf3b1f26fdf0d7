//! Stories of what is read ahead: it is never read once it is not the truth any more, and never without proof.

use crate::rig::Rig;
use crate::world::{Scheduling, SimWorld};
use std::rc::Rc;
use weft_engine::geometry::{Layout, Resiliency};
use weft_engine::pool::OpenOptions;
use weft_engine::store::Tuning;
use weft_engine::units::{BLOCK, ByteCount, DiskOffset, VirtualOffset};
use weft_engine::vdisk::Vdisk;

/// Bytes of the virtual disk of a story, of a request, and of a client's first requests, with which reading ahead
/// begins.
const SIZE: usize = 4 << 20;
const REQUEST: usize = 64 << 10;
const BEGINNING: usize = 6 * REQUEST;
/// How often everything is changed: places are used again and again.
const ROUNDS: u64 = 12;
/// How often at least everything is written again in every fourth round before it is read on: even times, and odd ones,
/// lest all lie where they lay.
const AGAIN: u64 = 3;

fn opened(seed: u64, resiliency: Resiliency) -> (Rig, Rc<Vdisk>) {
    let world = SimWorld::new(seed, Scheduling::Random);
    let mut rng = world.rng("story");
    let layout = Layout::new(resiliency, resiliency.columns_min(), ByteCount::kib(16)).expect("the layout is valid");
    let mut rig = Rig::new(world, layout.slots(), ByteCount::mib(24));
    rig.options =
        OpenOptions { tuning: Tuning { ahead_memory: 8 << 20, ..Tuning::default() }, ..OpenOptions::default() };
    rig.create(ByteCount::mib(1)).expect("a pool can be made");
    let pool = rig.open(&mut rng).expect("it opens");
    rig.make_vdisk(layout, ByteCount(SIZE as u64), 4096, true).expect("there is room");
    let vdisk = pool.vdisk("vdisk").expect("it was just made");
    (rig, vdisk)
}

/// Bytes of the pool that were read ahead.
fn held(rig: &Rig) -> u64 {
    let memory = rig.pool().store().memory();
    memory.into_iter().find(|budget| budget.name == "read ahead").expect("it is listed").used
}

async fn read(vdisk: &Rc<Vdisk>, range: std::ops::Range<usize>) -> Vec<u8> {
    let mut all = Vec::new();
    for at in range.step_by(REQUEST) {
        let mut bytes = vec![0xAA; REQUEST];
        vdisk.read(VirtualOffset(at as u64), &mut bytes).await.expect("it can be read");
        all.extend(bytes);
    }
    all
}

/// How a part of a virtual disk is changed in `round`.
async fn change(vdisk: &Rc<Vdisk>, model: &mut [u8], round: u64, from: usize) {
    let (offset, len) = (VirtualOffset(from as u64), SIZE - from);
    match round % 4 {
        1 => {
            vdisk.discard(offset, len as u64, false).await.expect("it can be discarded");
            // The edges are kept: only whole stripes are forgotten.
            let stripe = vdisk.stripe_len().0 as usize;
            model[from.next_multiple_of(stripe)..].fill(0);
        }
        2 => {
            vdisk.write_zeroes(offset, len as u64, false, false).await.expect("it can be zeroed");
            model[from..].fill(0);
        }
        _ => {
            let words = (from..SIZE).step_by(8).flat_map(|at| ((round << 32) + at as u64).to_le_bytes());
            let bytes: Vec<u8> = words.collect();
            vdisk.write(offset, &bytes, false).await.expect("it can be written");
            model[from..].copy_from_slice(&bytes);
        }
    }
    vdisk.flush().await.expect("it can be flushed");
}

/// Changes every second request of the same part, each with a flush, so that others come to lie where that lay which
/// was read ahead. More at once would need room, and what was read ahead gives way to that; and a segment that loses
/// all its stripes goes as a whole.
async fn change_in_parts(vdisk: &Rc<Vdisk>, model: &mut [u8], mark: u64, from: usize) {
    for at in (from..SIZE).step_by(2 * REQUEST) {
        let part = at..(at + REQUEST).min(SIZE);
        let words = part.clone().step_by(8).flat_map(|at| ((mark << 32) + at as u64).to_le_bytes());
        let bytes: Vec<u8> = words.collect();
        vdisk.write(VirtualOffset(at as u64), &bytes, false).await.expect("it can be written");
        vdisk.flush().await.expect("it can be flushed");
        model[part].copy_from_slice(&bytes);
    }
}

/// A client reads in order, so that the rest is read ahead; that is changed, in every way there is, and read on. What
/// does not hold.
pub fn changes_beside_a_reader() -> Option<String> {
    let layouts = [Resiliency::Simple, Resiliency::Mirror { copies: 2 }, Resiliency::Parity { parity: 1 }];
    layouts.into_iter().enumerate().find_map(|(seed, resiliency)| {
        let (mut rig, vdisk) = opened(seed as u64 + 1, resiliency);
        let inner = vdisk.clone();
        let mut model = rig.run(async move {
            let mut model = vec![0; SIZE];
            change(&inner, &mut model, 0, 0).await;
            model
        });
        let mut ahead = 0;
        for round in 1..=ROUNDS {
            let inner = vdisk.clone();
            let seen = rig.run(async move { read(&inner, 0..BEGINNING).await });
            if seen != model[..BEGINNING] {
                return Some(format!("{resiliency}, round {round}: the beginning is not what was written"));
            }
            ahead = ahead.max(held(&rig));
            let inner = vdisk.clone();
            let (seen, changed) = rig.run(async move {
                // In odd rounds from within what was read ahead, in the others all of it.
                let from = if round % 2 == 1 { BEGINNING + 3 * 4096 } else { 0 };
                change(&inner, &mut model, round, from).await;
                if round % 4 == 3 {
                    for again in 0..AGAIN + round / 4 {
                        change_in_parts(&inner, &mut model, (again + 1) << 8, from).await;
                    }
                }
                (read(&inner, 0..SIZE).await, model)
            });
            model = changed;
            if let Some(at) = seen.iter().zip(&model).position(|(seen, written)| seen != written) {
                return Some(format!("{resiliency}, round {round}: byte {at} is not what was written last"));
            }
        }
        let pool = rig.pool();
        rig.run(async move { pool.vdisk_remove("vdisk").await.expect("it can be removed") });
        let left = held(&rig);
        drop(vdisk);
        rig.close().expect("the pool closes");
        match (ahead, left) {
            (0, _) => Some(format!("{resiliency}: nothing was read ahead")),
            (_, 0) => None,
            (_, left) => Some(format!("{resiliency}: {left} bytes of a virtual disk that was removed are held")),
        }
    })
}

/// A disk gives other bytes than were written: a client that reads in order gets what was written all the same, and the
/// disk is put right. What does not hold.
pub fn rot_before_a_reader() -> Option<String> {
    let (mut rig, vdisk) = opened(7, Resiliency::Mirror { copies: 2 });
    let written: Vec<u8> = vec![0x5A; SIZE];
    let (inner, bytes) = (vdisk.clone(), written.clone());
    rig.run(async move { inner.write(VirtualOffset(0), &bytes, true).await.expect("it can be written") });
    for (no, disk) in rig.disks.iter().enumerate() {
        let image = disk.image();
        // Every fourth block of one disk, the next one of the other.
        let mine = |at: &u64| at / BLOCK % 4 == no as u64;
        for at in (0..image.shape().capacity.0 / BLOCK * BLOCK).step_by(BLOCK as usize).filter(mine) {
            if image.read(DiskOffset(at), ByteCount(BLOCK)).is_ok_and(|block| block.iter().all(|byte| *byte == 0x5A)) {
                disk.rot(DiskOffset(at));
            }
        }
    }
    let inner = vdisk.clone();
    let seen = rig.run(async move { read(&inner, 0..SIZE).await });
    let healed = rig.pool().store().members.borrow().values().map(|member| member.counters.healed_blocks).sum::<u64>();
    drop(vdisk);
    rig.close().expect("the pool closes");
    if seen != written {
        return Some("what a disk made up was read".into());
    }
    (healed == 0).then(|| "no block was put right".into())
}
