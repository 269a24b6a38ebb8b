//! The hash of Galois/counter mode (NIST SP 800-38D), over crates `aes` and `ghash`.
//!
//! The crate `aes-gcm` takes one packet at a time, has no check values of 8 bytes (RFC 4106 §6) and no GMAC (RFC 4543), so
//! the mode is composed here: `stream` makes the counter blocks of many packets, this file the check values. The tests
//! compare with `aes-gcm`. The crate `ghash` multiplies four blocks at a time; where the CPU has AVX-512, [`wide`] does thirty-six,
//! and [`fused`] encrypts or decrypts and hashes in one pass.

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod fused;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod wide;

use std::borrow::Borrow;
use std::ops::Range;

use ghash::GHash;
use ghash::universal_hash::UniversalHash;
use zeroize::Zeroize;

use crate::aes::{AesEnc, BLOCK, Block};
use crate::stream::CtrKey;
use crate::suite::place_of;

/// A cipher, and the hash key that it makes.
pub(crate) struct GcmKey<A = Box<AesEnc>, H = Box<GHash>> {
    pub(crate) aes: CtrKey<A>,
    /// Apart, likewise.
    hash: H,
    #[cfg(target_arch = "x86_64")]
    wide: Option<wide::Powers>,
}

impl<A, H> GcmKey<A, H>
where
    A: From<AesEnc> + Borrow<AesEnc>,
    H: From<GHash> + Borrow<GHash>,
{
    /// Of a key of 16, 24 or 32 bytes.
    pub(crate) fn new(key: &[u8]) -> Option<Self> {
        let aes = CtrKey::new(key)?;
        let mut h = Block::default();
        aes.encrypt_block(&mut h);
        let hash = GHash::new(&h).into();
        #[cfg(target_arch = "x86_64")]
        let wide = wide::Powers::new(&h.into());
        h.zeroize();
        Some(Self {
            aes,
            hash,
            #[cfg(target_arch = "x86_64")]
            wide,
        })
    }

    /// Where what is read of it is.
    pub(crate) fn read_by_packets(&self, see: &mut dyn FnMut(Range<usize>)) {
        self.aes.read_by_packets(see);
        #[cfg(target_arch = "x86_64")]
        if let Some(wide) = &self.wide {
            return see(place_of(wide));
        }
        see(place_of(self.hash.borrow()));
    }

    /// Starts to load what a short packet reads.
    #[inline]
    pub(crate) fn prefetch(&self) {
        #[cfg(target_arch = "x86_64")]
        if let (Some(keys), Some(powers)) = (&self.aes.wide, &self.wide) {
            keys.prefetch();
            powers.prefetch();
        }
    }

    /// The check value: hash of `aad` (its parts one behind the other) and `text`, under `mask`, which is the encrypted
    /// counter block number 1.
    pub(crate) fn tag(&self, aad: &[&[u8]], text: &[u8], mask: &Block) -> [u8; BLOCK] {
        #[cfg(target_arch = "x86_64")]
        if let Some(mut hash) = self.wide_hash(aad, text) {
            crate::aes::xor(&mut hash, mask);
            return hash;
        }
        let mut hash = self.hash.borrow().clone();
        let aad_len = match aad {
            // ESP without extended sequence numbers: less than a block.
            [one] => {
                hash.update_padded(one);
                one.len()
            }
            parts => absorb(&mut hash, parts),
        };
        hash.update_padded(text);
        hash.update(&[lengths(aad_len, text.len()).into()]);
        let mut tag = <[u8; BLOCK]>::from(hash.finalize());
        crate::aes::xor(&mut tag, mask);
        tag
    }

    /// Encrypts (`SEALS`) or decrypts a text and returns its check value, in one pass, where the CPU has vectors for it and `aad`,
    /// its parts one behind the other, is not longer than a block. Otherwise nothing is done. `ahead`: where a packet begins that is
    /// loaded meanwhile; nothing of it is read.
    #[inline]
    pub(crate) fn pass<const SEALS: bool>(
        &self,
        nonce: &[u8; 12],
        aad: &[&[u8]],
        ahead: *const u8,
        text: &mut [u8],
    ) -> Option<[u8; BLOCK]> {
        #[cfg(target_arch = "x86_64")]
        {
            let (keys, powers) = (self.aes.wide.as_ref()?, self.wide.as_ref()?);
            let len: usize = aad.iter().map(|part| part.len()).sum();
            if len > BLOCK {
                return None;
            }
            let front = match aad {
                // The header of ESP.
                [one] if len == 8 => {
                    let bytes = one.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
                    u128::from(bytes) << 64
                }
                parts => {
                    let (mut front, mut at) = ([0; BLOCK], 0);
                    for part in parts {
                        front[at..at + part.len()].copy_from_slice(part);
                        at += part.len();
                    }
                    u128::from_be_bytes(front)
                }
            };
            let front = (len > 0).then_some(front);
            let bits = |len: usize| len as u128 * 8;
            let lengths = bits(len) << 64 | bits(text.len());
            let frame = fused::Frame { nonce, front, lengths, ahead };
            Some(fused::run::<SEALS>(keys, powers, &frame, text))
        }
        #[cfg(not(target_arch = "x86_64"))]
        None
    }

    /// The hash where the CPU has vectors for it, and `aad` is a block at most or all there is: every packet of ESP but for
    /// those of GMAC with extended numbers.
    #[cfg(target_arch = "x86_64")]
    fn wide_hash(&self, aad: &[&[u8]], text: &[u8]) -> Option<[u8; BLOCK]> {
        let powers = self.wide.as_ref()?;
        let aad_len: usize = aad.iter().map(|part| part.len()).sum();
        let lengths = lengths(aad_len, text.len());
        match aad {
            [one] if text.is_empty() => Some(powers.hash(&None, one, &lengths)),
            _ if aad_len == 0 => Some(powers.hash(&None, text, &lengths)),
            _ if aad_len <= BLOCK => {
                let (mut front, mut at) = ([0; BLOCK], 0);
                for part in aad {
                    front[at..at + part.len()].copy_from_slice(part);
                    at += part.len();
                }
                Some(powers.hash(&Some(front), text, &lengths))
            }
            _ => None,
        }
    }
}

/// The last block of the hash, from lengths in bytes.
fn lengths(aad: usize, text: usize) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    block[..8].copy_from_slice(&(aad as u64 * 8).to_be_bytes());
    block[8..].copy_from_slice(&(text as u64 * 8).to_be_bytes());
    block
}

/// Parts whose borders are not those of blocks; zeros behind the last. Returns their length.
fn absorb(hash: &mut GHash, parts: &[&[u8]]) -> usize {
    let (mut carry, mut held) = (Block::default(), 0);
    for part in parts {
        let mut rest = *part;
        if held > 0 {
            let (now, behind) = rest.split_at(rest.len().min(BLOCK - held));
            carry[held..held + now.len()].copy_from_slice(now);
            (held, rest) = (held + now.len(), behind);
            if held < BLOCK {
                continue;
            }
            hash.update(&[carry]);
        }
        let whole = rest.len() / BLOCK * BLOCK;
        hash.update_padded(&rest[..whole]);
        held = rest.len() - whole;
        carry[..held].copy_from_slice(&rest[whole..]);
    }
    if held > 0 {
        hash.update_padded(&carry[..held]);
    }
    parts.iter().map(|part| part.len()).sum()
}
