//! The hash of Galois/counter mode (NIST SP 800-38D), over crates `aes` and `ghash`.
//!
//! The crate `aes-gcm` takes one packet at a time, has no check values of 8 bytes (RFC 4106 §6) and no GMAC (RFC 4543), so
//! the mode is composed here: `stream` makes the counter blocks of many packets, this file the check values. The tests
//! compare with `aes-gcm`.

use ghash::GHash;
use ghash::universal_hash::UniversalHash;
use zeroize::Zeroize;

use crate::aes::{AesEnc, BLOCK, Block};

/// A cipher, and the hash key that it makes.
pub(crate) struct GcmKey {
    pub(crate) aes: AesEnc,
    hash: GHash,
}

impl GcmKey {
    /// Of a key of 16, 24 or 32 bytes.
    pub(crate) fn new(key: &[u8]) -> Option<Self> {
        let aes = AesEnc::new(key)?;
        let mut h = Block::default();
        aes.encrypt_block(&mut h);
        let hash = GHash::new(&h);
        h.zeroize();
        Some(Self { aes, hash })
    }

    /// The check value: hash of `aad` (its parts one behind the other) and `text`, under `mask`, which is the encrypted
    /// counter block number 1.
    pub(crate) fn tag(&self, aad: &[&[u8]], text: &[u8], mask: &Block) -> [u8; BLOCK] {
        let mut hash = self.hash.clone();
        let aad_len = match aad {
            // ESP without extended sequence numbers: less than a block.
            [one] => {
                hash.update_padded(one);
                one.len()
            }
            parts => absorb(&mut hash, parts),
        };
        hash.update_padded(text);
        let mut lengths = Block::default();
        lengths[..8].copy_from_slice(&(aad_len as u64 * 8).to_be_bytes());
        lengths[8..].copy_from_slice(&(text.len() as u64 * 8).to_be_bytes());
        hash.update(&[lengths]);
        let mut tag = <[u8; BLOCK]>::from(hash.finalize());
        crate::aes::xor(&mut tag, mask);
        tag
    }
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
