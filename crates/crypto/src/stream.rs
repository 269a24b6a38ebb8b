//! Counter modes over packets of one key.
//!
//! The counter blocks of all packets follow each other in one run of [`RUN`] blocks, which is encrypted at once and then
//! taken apart: a packet of 64 bytes has 4 blocks, an instruction of VAES takes 4, and the crate `aes` is quickest with
//! 64. Where the CPU has AVX-512, [`wide`] makes the key stream of a packet in registers instead.

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
pub(crate) mod wide;

use std::borrow::Borrow;
use std::ops::Range;

use crate::aes::{AesEnc, BLOCK, Block, xor};
use crate::batch::{Carries, GROUP, Set, ahead_of};
use crate::suite::place_of;

/// Blocks encrypted at once: what the crate `aes` does in one go with AVX-512.
const RUN: usize = 64;

/// A key of a counter mode.
pub(crate) struct CtrKey<A = Box<AesEnc>> {
    /// Apart, where it matters what lies side by side: with vectors, the packets of a key read none of it.
    pub(crate) aes: A,
    #[cfg(target_arch = "x86_64")]
    pub(crate) wide: Option<wide::RoundKeys>,
}

impl<A: From<AesEnc> + Borrow<AesEnc>> CtrKey<A> {
    /// Of 16, 24 or 32 bytes.
    pub(crate) fn new(key: &[u8]) -> Option<Self> {
        Some(Self {
            aes: AesEnc::new(key)?.into(),
            #[cfg(target_arch = "x86_64")]
            wide: wide::RoundKeys::new(key),
        })
    }

    /// Where what is read of it is.
    pub(crate) fn read_by_packets(&self, see: &mut dyn FnMut(Range<usize>)) {
        #[cfg(target_arch = "x86_64")]
        if let Some(wide) = &self.wide {
            return wide.read_by_packets(see);
        }
        see(place_of(self.aes.borrow()));
    }

    /// Adds the key stream to a text by vectors: counter blocks from `first` on, all of whose bits count. False, and nothing is done,
    /// where there are no vectors or more than the last four bytes change.
    pub(crate) fn add(&self, first: &[u8; BLOCK], text: &mut [u8]) -> bool {
        #[cfg(target_arch = "x86_64")]
        if let Some(wide) = &self.wide
            && let [nonce @ .., a, b, c, d] = first
        {
            let number = u32::from_be_bytes([*a, *b, *c, *d]);
            let is_short = text.len().div_ceil(BLOCK) as u64 <= (1 << 32) - u64::from(number);
            if is_short {
                wide.add(nonce, number, text.as_ptr(), text);
            }
            return is_short;
        }
        false
    }

    /// Adds the key stream to a text by vectors: counter blocks of a nonce, from `number` on. `ahead`: where a text begins that comes
    /// soon, which is loaded meanwhile. False, and nothing is done, where there are no vectors.
    #[inline]
    pub(crate) fn add_numbered(
        &self,
        nonce: &[u8; 12],
        number: u32,
        ahead: *const u8,
        text: &mut [u8],
    ) -> bool {
        #[cfg(target_arch = "x86_64")]
        if let Some(wide) = &self.wide {
            wide.add(nonce, number, ahead, text);
            return true;
        }
        false
    }

    pub(crate) fn encrypt_block(&self, block: &mut Block) {
        self.aes.borrow().encrypt_block(block);
    }

    pub(crate) fn encrypt_blocks(&self, blocks: &mut [Block]) {
        self.aes.borrow().encrypt_blocks(blocks);
    }
}

/// Which counter blocks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// Number 1, for the check value.
    Mask,
    /// Those of the text.
    Text,
    /// Both.
    Both,
}

/// Blocks of one packet in the run.
#[derive(Clone, Copy, Default)]
struct Span {
    /// The packet.
    at: usize,
    /// Number of its first counter block.
    number: u32,
    blocks: usize,
}

/// Adds the key stream to the texts of a set, and finds its masks. `text_number` is the counter of the text's first block:
/// 1 in RFC 3686, 2 where block 1 is the mask.
pub(crate) fn run<'a, T: Carries<'a>>(
    group: &mut [T],
    set: Set,
    key: &CtrKey,
    part: Part,
    text_number: u32,
    masks: &mut [Block; GROUP],
) {
    #[cfg(target_arch = "x86_64")]
    if let Some(wide) = &key.wide {
        return run_wide(group, set, wide, part, text_number, masks);
    }
    let aes = &*key.aes;
    let mut blocks = [Block::default(); RUN];
    // Each span has a block at least.
    let mut spans = [Span::default(); RUN];
    let (mut used, mut count) = (0, 0);
    for at in set.iter() {
        let request = group[at].request();
        let text_end = text_number + request.text_len.div_ceil(BLOCK) as u32; // at most TEXT_MAX / 16 more
        let (mut number, end) = match part {
            Part::Mask => (1, 2),
            Part::Text => (text_number, text_end),
            Part::Both => (1, text_end),
        };
        while number < end {
            let take = (RUN - used).min((end - number) as usize);
            let request = group[at].request();
            let mut block = request.counter_block(0);
            for (counter, place) in (number..).zip(&mut blocks[used..used + take]) {
                block[12..].copy_from_slice(&counter.to_be_bytes());
                *place = block;
            }
            spans[count] = Span { at, number, blocks: take };
            (used, count, number) = (used + take, count + 1, number + take as u32);
            if used == RUN {
                apply(group, aes, &mut blocks, &spans[..count], text_number, masks);
                (used, count) = (0, 0);
            }
        }
    }
    apply(group, aes, &mut blocks[..used], &spans[..count], text_number, masks);
}

/// The same by vectors: the masks of all packets, then text by text.
#[cfg(target_arch = "x86_64")]
fn run_wide<'a, T: Carries<'a>>(
    group: &mut [T],
    set: Set,
    keys: &wide::RoundKeys,
    part: Part,
    text_number: u32,
    masks: &mut [Block; GROUP],
) {
    if part != Part::Text {
        let (mut blocks, mut count) = ([[0; BLOCK]; GROUP], 0);
        for (block, at) in blocks.iter_mut().zip(set.iter()) {
            *block = group[at].request().counter_block(1).into();
            count += 1;
        }
        keys.encrypt(&mut blocks[..count]);
        for (block, at) in blocks.iter().zip(set.iter()) {
            masks[at] = (*block).into();
        }
    }
    if part != Part::Mask {
        for at in set.iter() {
            let ahead = ahead_of(group, at);
            let request = group[at].request_mut();
            let nonce = request.key.nonce(&request.iv);
            keys.add(&nonce, text_number, ahead, request.text_mut());
        }
    }
}

fn apply<'a, T: Carries<'a>>(
    group: &mut [T],
    aes: &AesEnc,
    blocks: &mut [Block],
    spans: &[Span],
    text_number: u32,
    masks: &mut [Block; GROUP],
) {
    aes.encrypt_blocks(blocks);
    let mut rest = &*blocks;
    for span in spans {
        let (mut own, behind) = rest.split_at(span.blocks);
        rest = behind;
        let mut number = span.number;
        if number < text_number {
            masks[span.at] = own[0];
            (own, number) = (&own[1..], number + 1);
        }
        if !own.is_empty() {
            let from = (number - text_number) as usize * BLOCK;
            xor(&mut group[span.at].request_mut().text_mut()[from..], flat(own));
        }
    }
}

/// Blocks as bytes.
fn flat(blocks: &[Block]) -> &[u8] {
    Block::slice_as_flattened(blocks)
}
