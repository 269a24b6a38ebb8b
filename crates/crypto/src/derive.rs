//! Keys made of another key: HKDF with SHA-256 (RFC 5869).
//!
//! What is made is a fixed array, so nothing is allocated: a stage derives a key when it meets a connection.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use zeroize::Zeroize;

use crate::secret::Secret;

/// Bytes of the hash.
pub const HASH: usize = 32;

/// The pseudorandom key of HKDF (the result of its first step), from which any number of keys are made. It is wiped when it
/// is dropped, and `Debug` shows nothing of it.
pub struct Derivation {
    key: Hmac<Sha256>,
}

/// Bytes made by a [`Derivation`]. They are wiped when they are dropped, and `Debug` shows their number.
pub struct Derived<const N: usize> {
    bytes: [u8; N],
}

impl fmt::Debug for Derivation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Derivation(HKDF-SHA-256)")
    }
}

impl<const N: usize> fmt::Debug for Derived<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Derived({N} bytes)")
    }
}

impl<const N: usize> Drop for Derived<N> {
    fn drop(&mut self) {
        self.bytes.zeroize();
    }
}

impl<const N: usize> Derived<N> {
    /// The bytes themselves, for a cipher.
    pub fn expose(&self) -> &[u8; N] {
        &self.bytes
    }
}

fn hmac(key: &[u8]) -> Hmac<Sha256> {
    KeyInit::new_from_slice(key).expect("HMAC takes keys of any length")
}

impl Derivation {
    /// Of a key of any length. `salt` need not be secret.
    pub fn new(salt: &[u8], key: &Secret) -> Self {
        Self::of(&Self::extract(salt, key))
    }

    /// HKDF-Extract (RFC 5869 §2.2): the pseudorandom key itself, for a device that derives keys.
    pub fn extract(salt: &[u8], key: &Secret) -> Derived<HASH> {
        let mut extract = hmac(salt);
        extract.update(key.expose());
        let mut pseudorandom = extract.finalize().into_bytes();
        let mut made = Derived { bytes: [0; HASH] };
        made.bytes.copy_from_slice(&pseudorandom);
        pseudorandom.zeroize();
        made
    }

    /// Of a pseudorandom key.
    pub fn of(pseudorandom: &Derived<HASH>) -> Self {
        Self { key: hmac(pseudorandom.expose()) }
    }

    /// HKDF-Expand (RFC 5869 §2.3) to `N` bytes, at most 8,160. `info` (its parts one behind the other) says what they are
    /// for: other bytes for each other `info`.
    pub fn expand<const N: usize>(&self, info: &[&[u8]]) -> Derived<N> {
        const { assert!(N <= 255 * HASH) }
        let mut made = Derived { bytes: [0; N] };
        let mut previous = [0; HASH];
        for (number, piece) in (1u8..=255).zip(made.bytes.chunks_mut(HASH)) {
            let mut block = self.key.clone();
            if number > 1 {
                block.update(&previous);
            }
            info.iter().for_each(|part| block.update(part));
            block.update(&[number]);
            let mut out = block.finalize().into_bytes();
            previous.copy_from_slice(&out);
            piece.copy_from_slice(&out[..piece.len()]);
            out.zeroize();
        }
        previous.zeroize();
        made
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        Secret::from_hex(text).unwrap().expose().to_vec()
    }

    /// RFC 5869, appendix A.1 to A.3.
    #[test]
    fn published_answers() {
        let of =
            |key: &str, salt: &str| Derivation::new(&hex(salt), &Secret::from_hex(key).unwrap());
        let first =
            of("0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b", "000102030405060708090a0b0c");
        let expected =
            "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865";
        let info = hex("f0f1f2f3f4f5f6f7f8f9");
        assert_eq!(first.expand::<42>(&[&info]).expose()[..], hex(expected));
        assert_eq!(first.expand::<42>(&[&info[..3], &info[3..]]).expose()[..], hex(expected));
        let bytes = |from: u8, to: u8| (from..=to).collect::<Vec<u8>>();
        let second = Derivation::new(&bytes(0x60, 0xaf), &Secret::new(bytes(0, 0x4f)));
        let expected = "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c59045a99cac7827271cb41c65e590e09\
                        da3275600c2f09b8367793a9aca3db71cc30c58179ec3e87c14c01d5c1f3434f1d87";
        assert_eq!(second.expand::<82>(&[&bytes(0xb0, 0xff)]).expose()[..], hex(expected));
        let third = of("0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b", "");
        let expected =
            "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8";
        assert_eq!(third.expand::<42>(&[]).expose()[..], hex(expected));
    }

    #[test]
    fn debug_shows_no_byte() {
        let derivation = Derivation::new(b"salt", &Secret::new(vec![7; 32]));
        assert_eq!(format!("{derivation:?}"), "Derivation(HKDF-SHA-256)");
        assert_eq!(format!("{:?}", derivation.expand::<5>(&[])), "Derived(5 bytes)");
    }
}
