//! Initialisation vectors that nobody has to count.

use std::fmt;

use ghash::GHash;
use zeroize::Zeroize;

use crate::aes::{AesEnc, BLOCK, Block};
use crate::gcm::GcmKey;

/// Makes initialisation vectors from what they are for, so that there is no counter to keep and no random number to draw:
/// the same input has the same vector, another one another vector that nobody can foretell. It is AES of a universal hash
/// (GHASH), as AES-GCM-SIV makes its tag (RFC 8452 §4). Made of the text itself, equal texts become equal, and nothing else
/// of them shows. It is wiped when it is dropped, and `Debug` shows nothing of it.
pub struct VectorKey {
    aes: AesEnc,
    hash: GcmKey<AesEnc, GHash>,
}

impl fmt::Debug for VectorKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("VectorKey(AES-128)")
    }
}

impl VectorKey {
    /// Of 16 bytes for the cipher and 16 bytes for the hash.
    ///
    /// # Panics
    ///
    /// Never: AES has keys of 16 bytes.
    pub fn new(key: &[u8; 32]) -> Self {
        const LENGTH: &str = "AES has keys of 16 bytes";
        let (aes, hash) = key.split_at(BLOCK);
        Self { aes: AesEnc::new(aes).expect(LENGTH), hash: GcmKey::new(hash).expect(LENGTH) }
    }

    /// The vector of a text and of what is known beside it.
    pub fn of(&self, beside: &[u8], text: &[u8]) -> [u8; BLOCK] {
        let mut hash = self.hash.tag(&[beside], text, &Block::default());
        let mut block = Block::from(hash);
        hash.zeroize(); // under no mask, it would give its key away
        self.aes.encrypt_block(&mut block);
        block.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hash of a text under the mask of zeros is what the crate `aes-gcm` has under a mask that is known.
    #[test]
    fn vectors_are_aes_of_the_hash() {
        use crate::modes::{Mode, Padding, RawKey};
        use aes_gcm::aead::AeadInOut;
        use aes_gcm::{Aes128Gcm, KeyInit};

        let key: [u8; 32] = std::array::from_fn(|at| at as u8 * 7);
        let vector = VectorKey::new(&key);
        assert_eq!(format!("{vector:?}"), "VectorKey(AES-128)");
        let ecb = |key: &[u8], mut block: [u8; 16]| {
            let key = RawKey::from_bytes(Mode::Ecb(Padding::None), key).unwrap();
            key.encrypt(&[], &[], &mut block, 16).unwrap();
            block
        };
        for len in [0, 1, 15, 16, 17, 100] {
            let beside = vec![3; (len * 7) % 40];
            // A text whose encryption is known is the text under the key stream; its tag is hash and mask.
            let gcm = Aes128Gcm::new_from_slice(&key[16..]).unwrap();
            let mut text = vec![0; len];
            let tag = gcm
                .encrypt_inout_detached(&[0; 12].into(), &beside, text.as_mut_slice().into())
                .unwrap();
            let mut first = [0; 16];
            first[15] = 1;
            let mask = ecb(&key[16..], first);
            let hash: [u8; 16] = std::array::from_fn(|at| tag[at] ^ mask[at]);
            assert_eq!(vector.of(&beside, &text), ecb(&key[..16], hash), "{len}");
        }
    }
}
