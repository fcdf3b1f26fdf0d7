//! The bytes of a disk: a sparse map of 4 KiB blocks that is cheap to copy.
//!
//! Invariants
//! 1. A block never written reads as zeros.
//! 2. A clone shares all blocks; writing to either copies at most the chunk (1 MiB of block references) written to.
//! 3. A block of one repeated 64-bit word is kept as that word: timing runs may move tens of GiB through little memory.
//!    Every other block keeps a reference to the bytes it was written from; they are copied only when few blocks of a
//!    slice need keeping, lest one block hold a large buffer.
//! 4. A block carries its harm with it: what a fault did to it, until it is written anew. So a rewrite that a power
//!    cut takes back brings the harm back, too.

use super::write::{Effect, Lands, Tear, Write};
use crate::rng::{Rng, fold, mix};
use std::collections::BTreeMap;
use std::sync::Arc;
use weft_engine::checksum::crc32c;
use weft_engine::io::{Buf, DiskError, IoSlice};
use weft_engine::units::{BLOCK, DiskOffset, SECTOR};

const BLOCK_LEN: usize = BLOCK as usize;
const SECTOR_LEN: usize = SECTOR as usize;
const SECTORS: u64 = BLOCK / SECTOR;
const CHUNK_BLOCKS: u64 = 256;

/// What a fault did to a block, until it is written anew.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Harm {
    /// It cannot be read.
    Unreadable,
    /// Its bytes changed by themselves.
    Rotten,
    /// A write meant for it went elsewhere, or nowhere: it has older bytes than it should.
    Missed,
    /// A write meant for another place went here.
    Overwritten,
    /// A write reported an error and left any mixture of old and new.
    Mixed,
}

/// All blocks of a disk.
#[derive(Clone, Default)]
pub(crate) struct Content {
    chunks: BTreeMap<u64, Arc<Chunk>>,
}

type Chunk = [Block; CHUNK_BLOCKS as usize];

#[derive(Clone)]
struct Block {
    data: Data,
    harm: Option<Harm>,
}

#[derive(Clone)]
enum Data {
    Word(u64),
    Bytes(IoSlice),
    Unreadable,
}

const ZEROS: Block = Block { data: Data::Word(0), harm: None };

impl Content {
    /// Fills `into` with the bytes from `at`; the medium's error if a block of them cannot be read.
    pub fn read(&self, at: DiskOffset, into: &mut [u8]) -> Result<(), DiskError> {
        let first = at.0 / BLOCK;
        for (no, target) in into.chunks_exact_mut(BLOCK_LEN).enumerate() {
            match &self.block(first + no as u64).data {
                Data::Word(0) => target.fill(0),
                Data::Word(word) => fill(target, *word),
                Data::Bytes(bytes) => target.copy_from_slice(bytes),
                Data::Unreadable => return Err(DiskError::Media),
            }
        }
        Ok(())
    }

    /// Does to the blocks what `write` does to them, or only to the sectors that `tear` keeps.
    pub fn apply(&mut self, write: &Write, tear: Option<Tear>) {
        match write.lands {
            Lands::There => self.put(write, write.at.0 / BLOCK, tear, None),
            Lands::Elsewhere(at) => {
                self.mark(write, Harm::Missed);
                self.put(write, at.0 / BLOCK, tear, Some(Harm::Overwritten));
            }
            Lands::Nowhere => self.mark(write, Harm::Missed),
        }
    }

    /// Makes a block unreadable.
    pub fn spoil(&mut self, block: u64) {
        *self.block_mut(block) = Block { data: Data::Unreadable, harm: Some(Harm::Unreadable) };
    }

    /// Leaves in each block of a write its old bytes, new ones, junk, or what cannot be read.
    pub fn ruin(&mut self, write: &Write, seed: u64) {
        let Lands::There = write.lands else { return self.apply(write, Some(Tear::Each(seed))) };
        self.apply(write, Some(Tear::Each(seed)));
        for no in write.blocks() {
            match mix(seed ^ mix(no)) % 4 {
                0 => self.spoil(no),
                1 => *self.block_mut(no) = Block { data: Data::Word(mix(seed ^ no)), harm: Some(Harm::Mixed) },
                _ => {}
            }
        }
    }

    /// Changes some bits of a block behind everyone's back. An unreadable one stays so.
    pub fn rot(&mut self, block: u64, rng: &mut Rng) {
        let mut bytes = Buf::zeroed(BLOCK_LEN);
        if self.read(DiskOffset(block * BLOCK), &mut bytes).is_err() {
            return;
        }
        let (place, flips) = (rng.below(BLOCK) as usize, rng.range(1..256) as u8);
        bytes[place] ^= flips;
        *self.block_mut(block) = Block { data: Data::Bytes(bytes.freeze()), harm: Some(Harm::Rotten) };
    }

    /// What a fault did to a block, if any did.
    pub fn harm(&self, block: u64) -> Option<Harm> {
        self.block(block).harm
    }

    /// Where anything was ever written: from which byte on, and how many bytes.
    pub fn written(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.chunks.keys().map(|chunk| (chunk * CHUNK_BLOCKS * BLOCK, CHUNK_BLOCKS * BLOCK))
    }

    /// Every harmed block, lowest first.
    pub fn harmed(&self) -> Vec<(DiskOffset, Harm)> {
        let blocks = self.chunks.iter().flat_map(|(no, chunk)| {
            chunk.iter().enumerate().map(move |(index, block)| (no * CHUNK_BLOCKS + index as u64, block.harm))
        });
        blocks.filter_map(|(no, harm)| Some((DiskOffset(no * BLOCK), harm?))).collect()
    }

    /// A hash of every byte.
    pub fn fingerprint(&self) -> u64 {
        let blocks = self.chunks.iter().flat_map(|(no, chunk)| chunk.iter().enumerate().map(move |at| (no, at)));
        blocks.fold(0, |hash, (chunk, (index, block))| {
            let sum = match &block.data {
                Data::Word(0) => return hash,
                Data::Word(word) => *word,
                Data::Bytes(bytes) => 1 << 63 | crc32c(bytes) as u64,
                Data::Unreadable => 1 << 62,
            };
            fold(fold(hash, chunk * CHUNK_BLOCKS + index as u64), sum)
        })
    }

    /// Takes one block as `other` has it.
    pub fn copy_block(&mut self, block: u64, other: &Content) {
        *self.block_mut(block) = other.block(block).clone();
    }

    fn put(&mut self, write: &Write, first: u64, tear: Option<Tear>, harm: Option<Harm>) {
        match &write.effect {
            Effect::Bytes(slices) => {
                let mut no = first;
                for slice in slices {
                    self.put_slice(slice, no, first, write.sectors(), tear, harm);
                    no += slice.len() as u64 / BLOCK;
                }
            }
            Effect::Discard { seed } => {
                for no in first..first + write.len.0 / BLOCK {
                    match mix(seed ^ no) % 4 {
                        0 | 1 => *self.block_mut(no) = ZEROS,
                        2 => *self.block_mut(no) = Block { data: Data::Word(mix(seed ^ !no)), harm: None },
                        _ => {} // it keeps its bytes
                    }
                }
            }
        }
    }

    /// Puts the blocks of one slice at block `no` and after; `start` is where the whole write starts.
    fn put_slice(
        &mut self,
        slice: &IoSlice,
        no: u64,
        start: u64,
        sectors: u64,
        tear: Option<Tear>,
        harm: Option<Harm>,
    ) {
        let words: Vec<Option<u64>> = slice.chunks_exact(BLOCK_LEN).map(one_word).collect();
        let by_reference = words.iter().filter(|word| word.is_none()).count() * 4 >= words.len();
        for (index, word) in words.into_iter().enumerate() {
            let bytes = index * BLOCK_LEN..(index + 1) * BLOCK_LEN;
            let target = no + index as u64;
            let kept = tear.map_or(SECTORS, |tear| tear.kept((target - start) * SECTORS, sectors).count() as u64);
            let data = match word {
                _ if kept == 0 => continue,
                _ if kept < SECTORS => {
                    let tear = tear.expect("a whole write keeps every sector");
                    self.mix_block(target, &slice[bytes], tear.kept((target - start) * SECTORS, sectors), harm);
                    continue;
                }
                Some(word) => Data::Word(word),
                None if by_reference => Data::Bytes(slice.slice(bytes)),
                None => Data::Bytes(Buf::copy_of(&slice[bytes]).freeze()),
            };
            *self.block_mut(target) = Block { data, harm };
        }
    }

    /// Overwrites only some sectors of a block. One that could not be read still cannot.
    fn mix_block(&mut self, block: u64, new: &[u8], kept: impl Iterator<Item = u64>, harm: Option<Harm>) {
        let mut bytes = Buf::zeroed(BLOCK_LEN);
        if self.read(DiskOffset(block * BLOCK), &mut bytes).is_err() {
            return;
        }
        for sector in kept {
            let place = (sector % SECTORS) as usize * SECTOR_LEN;
            bytes[place..place + SECTOR_LEN].copy_from_slice(&new[place..place + SECTOR_LEN]);
        }
        let mixed = self.block_mut(block);
        mixed.data = Data::Bytes(bytes.freeze());
        mixed.harm = harm.or(mixed.harm);
    }

    /// Notes `harm` for every block of the write's own range, leaving the bytes.
    pub fn mark(&mut self, write: &Write, harm: Harm) {
        for no in write.blocks() {
            self.block_mut(no).harm.get_or_insert(harm);
        }
    }

    fn block(&self, no: u64) -> &Block {
        self.chunks.get(&(no / CHUNK_BLOCKS)).map_or(&ZEROS, |chunk| &chunk[(no % CHUNK_BLOCKS) as usize])
    }

    fn block_mut(&mut self, no: u64) -> &mut Block {
        let chunk = self.chunks.entry(no / CHUNK_BLOCKS).or_insert_with(|| Arc::new([ZEROS; CHUNK_BLOCKS as usize]));
        &mut Arc::make_mut(chunk)[(no % CHUNK_BLOCKS) as usize]
    }
}

/// The 64-bit word the block consists of, if it is one repeated word.
fn one_word(block: &[u8]) -> Option<u64> {
    // Equal to itself shifted by one word; the early words usually tell.
    let (early, late) = (&block[..64], &block[64..]);
    let repeats = early[8..] == early[..56] && late == &block[56..BLOCK_LEN - 8];
    repeats.then(|| u64::from_le_bytes(early[..8].try_into().expect("eight bytes")))
}

fn fill(target: &mut [u8], word: u64) {
    for place in target.chunks_exact_mut(8) {
        place.copy_from_slice(&word.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_engine::units::ByteCount;

    /// One block: zeros, a repeated word, nearly a repeated word, or noise.
    fn block(rng: &mut Rng) -> Vec<u8> {
        let mut bytes = vec![0; BLOCK_LEN];
        match rng.below(4) {
            0 => {}
            1 => fill(&mut bytes, rng.next_u64()),
            2 => {
                fill(&mut bytes, rng.next_u64());
                bytes[rng.below(BLOCK) as usize] ^= 1;
            }
            _ => bytes.chunks_mut(8).for_each(|word| word.copy_from_slice(&rng.next_u64().to_le_bytes())),
        }
        bytes
    }

    #[test]
    fn content_agrees_with_plain_memory_and_copies_stay_as_they_were() {
        let mut rng = Rng::new(1);
        let (mut content, mut memory) = (Content::default(), vec![0u8; 600 * BLOCK_LEN]);
        for _ in 0..300 {
            let (copy, copied) = (content.clone(), memory.clone());
            let (start, count) = (rng.below(590) as usize, rng.range(1..11) as usize);
            let bytes: Vec<u8> = (0..count).flat_map(|_| block(&mut rng)).collect();
            let slices: Vec<IoSlice> = bytes.chunks(4 * BLOCK_LEN).map(|part| Buf::copy_of(part).freeze()).collect();
            let (at, len) = (DiskOffset(start as u64 * BLOCK), ByteCount(bytes.len() as u64));
            let write = Write { at, len, effect: Effect::Bytes(slices), lands: Lands::There };
            let tear = rng.chance(0.5).then(|| Tear::random(write.sectors(), &mut rng));
            content.apply(&write, tear);
            for first in (0..write.sectors()).step_by(SECTORS as usize) {
                let whole = first..first + SECTORS;
                let kept: Vec<u64> = tear.map_or(whole.collect(), |tear| tear.kept(first, write.sectors()).collect());
                for sector in kept {
                    let from = sector as usize * SECTOR_LEN;
                    let to = start * BLOCK_LEN + from;
                    memory[to..to + SECTOR_LEN].copy_from_slice(&bytes[from..from + SECTOR_LEN]);
                }
            }
            let mut found = vec![1; memory.len()];
            content.read(DiskOffset(0), &mut found).unwrap();
            assert!(found == memory);
            copy.read(DiskOffset(0), &mut found).unwrap();
            assert!(found == copied);
        }
    }

    #[test]
    fn only_blocks_of_one_repeated_word_are_kept_as_a_word() {
        let mut bytes = vec![0; BLOCK_LEN];
        fill(&mut bytes, 0x0102_0304_0506_0708);
        assert_eq!(one_word(&bytes), Some(0x0102_0304_0506_0708));
        for place in [0, 7, 8, 63, 64, 71, 72, 2048, BLOCK_LEN - 1] {
            bytes[place] ^= 1;
            assert_eq!(one_word(&bytes), None, "byte {place}");
            bytes[place] ^= 1;
        }
    }
}
