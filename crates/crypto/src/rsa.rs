//! RSA with 1,024 and 2,048 bits: signatures (PKCS#1 version 1.5 with SHA-256) and decryption (OAEP with SHA-256), RFC 8017.
//!
//! ```text
//!  der      keys as `openssl genrsa` writes them
//!   │
//!  number   raise (public), apply (private: blinding ─▶ p and q apart ─▶ joined ─▶ unblinded ─▶ looked at)
//!   │
//!  here     padding of signatures and texts
//! ```
//!
//! Why not a whole crate: RUSTSEC-2023-0071 names no version of `rsa` that is mended, and `ring` and `aws-lc-rs` neither sign
//! nor decrypt with 1,024 bits. The numbers are those of `crypto-bigint`, in constant time.
//!
//! There is no decryption of PKCS#1 version 1.5: whoever can ask whether a padding is right decrypts (Bleichenbacher). A key of
//! 1,024 bits is too short for anything new; it is there for the comparison with GASPP.
//!
//! ```no_run
//! use crypto::Secret;
//! use crypto::rsa::PrivateKey;
//!
//! let der = std::fs::read("key.der")?;
//! let key = PrivateKey::from_der(&Secret::new(der))?;
//! let mut signature = [0; 256];
//! let len = key.sign(b"message", &mut signature)?;
//! assert!(key.public().verify(b"message", &signature[..len]).is_ok());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod der;
mod number;

use std::fmt;

use sha2::{Digest, Sha256};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};
use zeroize::Zeroize;

use crate::secret::Secret;
use number::{Private, Public, write};

/// Bytes of the longest modulus.
pub const MODULUS_MAX: usize = 256;
/// Bytes of the hash.
const HASH: usize = 32;
/// What is in front of a SHA-256 in a signature (RFC 8017 §9.2).
const DIGEST_INFO: [u8; 19] =
    [0x30, 0x31, 0x30, 0x0d, 6, 9, 0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 1, 5, 0, 4, 0x20];

/// Why nothing was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RsaError {
    /// No key of RSA in DER, not of 1,024 or 2,048 bits, or its numbers do not belong together.
    Key,
    /// The buffer has no room for the result.
    NoRoom {
        /// Bytes that it must have.
        needed: usize,
    },
    /// Signature or text is not one of this key. It is not said why.
    NotGenuine,
    /// The system has no random numbers.
    NoRandom,
    /// The computation went wrong: hardware.
    Fault,
}

impl fmt::Display for RsaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key => f.write_str("not an RSA key of 1024 or 2048 bits in DER format"),
            Self::NoRoom { needed } => write!(f, "the buffer must have {needed} bytes"),
            Self::NotGenuine => f.write_str("the signature or the text does not belong to the key"),
            Self::NoRandom => f.write_str("the system provides no random numbers"),
            Self::Fault => f.write_str("the computation with the private key failed its check"),
        }
    }
}

impl std::error::Error for RsaError {}

/// A public key.
#[derive(Clone)]
pub struct PublicKey(PublicSize);

#[derive(Clone)]
#[allow(clippy::large_enum_variant)] // few, and not moved
enum PublicSize {
    Bits1024(Public<16>),
    Bits2048(Public<32>),
}

/// A private key. It is wiped when it is dropped, and `Debug` shows its size only.
pub struct PrivateKey(PrivateSize);

enum PrivateSize {
    Bits1024(Box<Private<16, 8>>),
    Bits2048(Box<Private<32, 16>>),
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey(RSA-{})", self.len() * 8)
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrivateKey(RSA-{})", self.len() * 8)
    }
}

impl PublicKey {
    /// Reads PKCS#1 or SubjectPublicKeyInfo in DER.
    ///
    /// # Errors
    ///
    /// [`RsaError::Key`].
    pub fn from_der(der: &[u8]) -> Result<Self, RsaError> {
        let fields = der::public(der).ok_or(RsaError::Key)?;
        let size = match fields[0].len() {
            128 => Public::new(fields).map(PublicSize::Bits1024),
            256 => Public::new(fields).map(PublicSize::Bits2048),
            _ => None,
        };
        size.map(Self).ok_or(RsaError::Key)
    }

    /// Bytes of the modulus, and of every signature: 128 or 256.
    #[allow(clippy::len_without_is_empty)] // none is empty
    pub fn len(&self) -> usize {
        match &self.0 {
            PublicSize::Bits1024(_) => 128,
            PublicSize::Bits2048(_) => 256,
        }
    }

    /// Whether a signature (PKCS#1 version 1.5, SHA-256) is that of a message.
    ///
    /// # Errors
    ///
    /// [`RsaError::NotGenuine`].
    pub fn verify(&self, message: &[u8], signature: &[u8]) -> Result<(), RsaError> {
        fn raised<const N: usize>(key: &Public<N>, signature: &[u8], out: &mut [u8]) -> Option<()> {
            write(&key.raise(&key.number(signature)?), out);
            Some(())
        }
        let len = self.len();
        let (mut found, mut expected) = ([0; MODULUS_MAX], [0; MODULUS_MAX]);
        let (found, expected) = (&mut found[..len], &mut expected[..len]);
        let is_number = match &self.0 {
            _ if signature.len() != len => None,
            PublicSize::Bits1024(key) => raised(key, signature, found),
            PublicSize::Bits2048(key) => raised(key, signature, found),
        };
        encode(message, expected);
        match is_number {
            // The whole text is compared, so nothing can hide in its padding.
            Some(()) if found == expected => Ok(()),
            _ => Err(RsaError::NotGenuine),
        }
    }
}

impl PrivateKey {
    /// Reads PKCS#1 or PKCS#8 in DER, not encrypted.
    ///
    /// # Errors
    ///
    /// [`RsaError::Key`].
    pub fn from_der(der: &Secret) -> Result<Self, RsaError> {
        let fields = der::private(der.expose()).ok_or(RsaError::Key)?;
        let size = match fields[0].len() {
            128 => Private::new(fields).map(Box::new).map(PrivateSize::Bits1024),
            256 => Private::new(fields).map(Box::new).map(PrivateSize::Bits2048),
            _ => None,
        };
        size.map(Self).ok_or(RsaError::Key)
    }

    /// Bytes of the modulus, and of every signature: 128 or 256.
    #[allow(clippy::len_without_is_empty)] // none is empty
    pub fn len(&self) -> usize {
        match &self.0 {
            PrivateSize::Bits1024(_) => 128,
            PrivateSize::Bits2048(_) => 256,
        }
    }

    /// Its public key.
    pub fn public(&self) -> PublicKey {
        PublicKey(match &self.0 {
            PrivateSize::Bits1024(key) => PublicSize::Bits1024(key.public.clone()),
            PrivateSize::Bits2048(key) => PublicSize::Bits2048(key.public.clone()),
        })
    }

    /// Signs a message (PKCS#1 version 1.5, SHA-256). Returns the length of the signature.
    ///
    /// # Errors
    ///
    /// The buffer is too short; there are no random numbers; the computation went wrong.
    pub fn sign(&self, message: &[u8], signature: &mut [u8]) -> Result<usize, RsaError> {
        let needed = self.len();
        let out = signature.get_mut(..needed).ok_or(RsaError::NoRoom { needed })?;
        encode(message, out);
        self.apply(out)?;
        Ok(needed)
    }

    /// Decrypts a text (OAEP with SHA-256 and MGF1 of it, without label). Returns its length.
    ///
    /// # Errors
    ///
    /// The text is not one of this key, whatever is wrong; the buffer has less room than the longest text; there are no random
    /// numbers; the computation went wrong.
    pub fn decrypt(&self, encrypted: &[u8], text: &mut [u8]) -> Result<usize, RsaError> {
        let len = self.len();
        let needed = len - 2 * HASH - 2;
        if text.len() < needed {
            return Err(RsaError::NoRoom { needed });
        }
        let mut whole = [0; MODULUS_MAX];
        let whole = &mut whole[..len];
        if encrypted.len() != len {
            return Err(RsaError::NotGenuine);
        }
        whole.copy_from_slice(encrypted);
        let result = self.apply(whole).and_then(|()| decode(whole, text));
        whole.zeroize();
        result
    }

    /// The private operation over a number of as many bytes as the modulus.
    fn apply(&self, bytes: &mut [u8]) -> Result<(), RsaError> {
        fn run<const N: usize, const H: usize>(
            key: &Private<N, H>,
            bytes: &mut [u8],
        ) -> Result<(), RsaError> {
            let own = key.public.number(bytes).ok_or(RsaError::NotGenuine)?;
            let mut made = key.apply(&own)?;
            write(&made, bytes);
            made.zeroize();
            Ok(())
        }
        match &self.0 {
            PrivateSize::Bits1024(key) => run(key, bytes),
            PrivateSize::Bits2048(key) => run(key, bytes),
        }
    }
}

/// EMSA-PKCS1-v1_5 (RFC 8017 §9.2): 0, 1, bytes of ones, 0, and the hash with its name.
fn encode(message: &[u8], out: &mut [u8]) {
    let text = out.len() - HASH - DIGEST_INFO.len();
    out.fill(0xff);
    (out[0], out[1], out[text - 1]) = (0, 1, 0);
    out[text..text + DIGEST_INFO.len()].copy_from_slice(&DIGEST_INFO);
    out[text + DIGEST_INFO.len()..].copy_from_slice(&Sha256::digest(message));
}

/// Adds MGF1 (RFC 8017, appendix B.2.1) of a seed to bytes.
fn mask(seed: &[u8], bytes: &mut [u8]) {
    for (chunk, number) in bytes.chunks_mut(HASH).zip(0u32..) {
        let mask = Sha256::new().chain_update(seed).chain_update(number.to_be_bytes()).finalize();
        chunk.iter_mut().zip(&mask).for_each(|(byte, mask)| *byte ^= mask);
    }
}

/// EME-OAEP (RFC 8017 §7.1.2): 0, seed and data, each under the mask of the other; data are the hash of the label, zeros, 1, and
/// the text. Which part is wrong takes no time (Manger).
fn decode(whole: &mut [u8], text: &mut [u8]) -> Result<usize, RsaError> {
    let (first, rest) = whole.split_at_mut(1);
    let (seed, data) = rest.split_at_mut(HASH);
    mask(data, seed);
    mask(seed, data);
    let (label, padded) = data.split_at(HASH);
    let mut is_right = first[0].ct_eq(&0) & label.ct_eq(&Sha256::digest(b""));
    let (mut is_before, mut begin) = (Choice::from(1), 0u32);
    for (byte, at) in padded.iter().zip(1u32..) {
        let is_one = byte.ct_eq(&1);
        begin.conditional_assign(&at, is_before & is_one);
        is_before &= !is_one;
        is_right &= !is_before | byte.ct_eq(&0);
    }
    is_right &= !is_before; // there is a 1
    if !bool::from(is_right) {
        return Err(RsaError::NotGenuine);
    }
    let own = &padded[begin as usize..];
    text[..own.len()].copy_from_slice(own);
    Ok(own.len())
}
