//! AWS-LC in place of the crates of RustCrypto: the feature `aws-lc-rs`.
//!
//! AWS-LC has ciphers for one packet at a time, so a batch of it is a loop. It does all suites but AES-GCM with check values of 8
//! and 12 bytes, which its interface does not offer. It may have overwritten a text that is not genuine: such texts are kept in
//! memory of the thread meanwhile, and put back.
//!
//! Keys are wiped by AWS-LC when they are dropped.

use std::cell::RefCell;

use aws_lc_rs::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::cipher::{self, DecryptingKey, DecryptionContext, EncryptingKey, EncryptionContext};
use aws_lc_rs::hmac;
use aws_lc_rs::iv::FixedLength;

use crate::aes::{AesEnc, BLOCK, Block};
use crate::suite::{Authentication, Encryption, Icv};

/// Bytes of a check value that AWS-LC makes.
pub(crate) const TAG: usize = 16;

thread_local! {
    /// What a text was before it is opened, and bytes of several parts in one piece.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// That AWS-LC refuses what it got.
pub(crate) struct Refused;

impl From<aws_lc_rs::error::Unspecified> for Refused {
    fn from(_: aws_lc_rs::error::Unspecified) -> Self {
        Self
    }
}

/// A cipher with its key.
#[allow(clippy::large_enum_variant)] // as those of RustCrypto: a key is made once and not moved
pub(crate) enum AwsCipher {
    Ctr(EncryptingKey),
    /// The third key makes initialisation vectors.
    Cbc(EncryptingKey, DecryptingKey, AesEnc),
    /// Encrypts and authenticates.
    Aead(LessSafeKey),
    /// Authenticates all there is.
    Gmac(LessSafeKey),
}

impl AwsCipher {
    /// A key of the right length, without salt. `for_iv`: a key of CBC's initialisation vectors. `None` if AWS-LC does not have
    /// the cipher.
    pub(crate) fn new(
        encryption: Encryption,
        key: &[u8],
        for_iv: impl FnOnce() -> Option<AesEnc>,
    ) -> Option<Self> {
        let aead = |algorithm| UnboundKey::new(algorithm, key).ok().map(LessSafeKey::new);
        let gcm = || match key.len() {
            16 => aead(&aead::AES_128_GCM),
            24 => aead(&aead::AES_192_GCM),
            _ => aead(&aead::AES_256_GCM),
        };
        let aes = || {
            let algorithm = match key.len() {
                16 => &cipher::AES_128,
                24 => &cipher::AES_192,
                _ => &cipher::AES_256,
            };
            cipher::UnboundCipherKey::new(algorithm, key).ok()
        };
        match encryption {
            Encryption::AesCtr(_) => EncryptingKey::ctr(aes()?).ok().map(Self::Ctr),
            Encryption::AesCbc(_) => {
                let both = (EncryptingKey::cbc(aes()?).ok()?, DecryptingKey::cbc(aes()?).ok()?);
                Some(Self::Cbc(both.0, both.1, for_iv()?))
            }
            Encryption::AesGcm(_, Icv::Bytes16) => gcm().map(Self::Aead),
            Encryption::AesGmac(_) => gcm().map(Self::Gmac),
            Encryption::ChaCha20Poly1305 => aead(&aead::CHACHA20_POLY1305).map(Self::Aead),
            Encryption::AesGcm(..) | Encryption::Null => None,
        }
    }

    /// Adds the key stream to a text, whose first counter block this is.
    pub(crate) fn add_stream(&self, first: &Block, text: &mut [u8]) -> Result<(), Refused> {
        let Self::Ctr(key) = self else { return Ok(()) };
        key.less_safe_encrypt(text, EncryptionContext::Iv128(vector(first)))?;
        Ok(())
    }

    /// Encrypts a text of whole blocks by chaining.
    pub(crate) fn chain(&self, iv: &[u8; BLOCK], text: &mut [u8]) -> Result<(), Refused> {
        let Self::Cbc(key, ..) = self else { return Ok(()) };
        key.less_safe_encrypt(text, EncryptionContext::Iv128(FixedLength::from(iv)))?;
        Ok(())
    }

    /// Decrypts it.
    pub(crate) fn unchain(&self, iv: &[u8; BLOCK], text: &mut [u8]) -> Result<(), Refused> {
        let Self::Cbc(_, key, _) = self else { return Ok(()) };
        key.decrypt(text, DecryptionContext::Iv128(FixedLength::from(iv)))?;
        Ok(())
    }

    /// Encrypts a text; its check value.
    pub(crate) fn seal(
        &self,
        nonce: [u8; 12],
        aad: &[u8],
        text: &mut [u8],
    ) -> Result<[u8; TAG], Refused> {
        let (Self::Aead(key) | Self::Gmac(key)) = self else { return Err(Refused) };
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = key.seal_in_place_separate_tag(nonce, Aad::from(aad), text)?;
        tag.as_ref().try_into().map_err(|_| Refused)
    }

    /// Decrypts a text if its check value is right; otherwise it stays as it is.
    pub(crate) fn open(
        &self,
        nonce: [u8; 12],
        aad: &[u8],
        text: &mut [u8],
        tag: &[u8],
    ) -> Result<(), Refused> {
        let Self::Aead(key) = self else { return Err(Refused) };
        SCRATCH.with_borrow_mut(|before| {
            before.clear();
            before.extend_from_slice(text);
            let nonce = Nonce::assume_unique_for_key(nonce);
            let opened = key.open_in_place_separate_tag(nonce, Aad::from(aad), tag, text);
            let is_opened = opened.is_ok();
            if !is_opened {
                text.copy_from_slice(before);
            }
            if is_opened { Ok(()) } else { Err(Refused) }
        })
    }

    /// The check value of parts that are authenticated, one behind the other.
    pub(crate) fn tag(&self, nonce: [u8; 12], parts: &[&[u8]]) -> Result<[u8; TAG], Refused> {
        match parts {
            [one] => self.seal(nonce, one, &mut []),
            _ => SCRATCH.with_borrow_mut(|all| {
                all.clear();
                parts.iter().for_each(|part| all.extend_from_slice(part));
                self.seal(nonce, all, &mut [])
            }),
        }
    }
}

fn vector(block: &Block) -> FixedLength<BLOCK> {
    FixedLength::from(&<[u8; BLOCK]>::from(*block))
}

/// HMAC with a key; `None` where nothing authenticates beside the cipher.
pub(crate) fn hmac_key(authentication: Authentication, key: &[u8]) -> Option<hmac::Key> {
    let algorithm = match authentication {
        Authentication::None => return None,
        Authentication::HmacSha1_96 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
        Authentication::HmacSha256_128 => hmac::HMAC_SHA256,
        Authentication::HmacSha384_192 => hmac::HMAC_SHA384,
        Authentication::HmacSha512_256 => hmac::HMAC_SHA512,
    };
    Some(hmac::Key::new(algorithm, key))
}

/// A digest over two parts, in front of `out`.
pub(crate) fn digest(key: &hmac::Key, parts: [&[u8]; 2], out: &mut [u8]) {
    let mut context = hmac::Context::with_key(key);
    parts.iter().for_each(|part| context.update(part));
    let tag = context.sign();
    out[..tag.as_ref().len()].copy_from_slice(tag.as_ref());
}
