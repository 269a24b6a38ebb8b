//! AES over a buffer in the modes of NIST SP 800-38A and 800-38D, for the encryption of streams (GASPP §6).
//!
//! ECB, CTR, CFB and OFB without padding leave the length as it is; ECB and CBC with padding, and GCM with its tag, make
//! the text longer, for which the buffer has room behind it.
//!
//! [`RawKey`] is for one text, [`encrypt_batch`] and [`decrypt_batch`] are for texts of any keys, and [`VectorKey`] makes
//! initialisation vectors.

mod batch;
mod vector;

use std::fmt;

use cfb_mode::{Decryptor as CfbDecryptor, Encryptor as CfbEncryptor};
use cipher::{BlockCipherDecrypt, InnerIvInit, StreamCipherCore};
use ctr::{CtrCore, flavors};
use ghash::GHash;
use ofb::OfbCore;
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq, ConstantTimeGreater};

use crate::aes::{Aes, AesEnc, BLOCK, Block, with_cipher, xor};
use crate::chain;
use crate::gcm::GcmKey;
use crate::secret::Secret;
use crate::stream::CtrKey;

pub use batch::{Text, decrypt_batch, encrypt_batch};
pub use vector::VectorKey;

/// A mode of operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Electronic code book. Equal blocks stay equal: no more than a building block.
    Ecb(Padding),
    /// Cipher block chaining.
    Cbc(Padding),
    /// Counter: the whole block counts.
    Ctr,
    /// Cipher feedback of whole blocks (CFB-128).
    Cfb,
    /// Output feedback.
    Ofb,
    /// Galois/counter mode with a tag of 16 bytes behind the text.
    Gcm,
}

/// What makes a text a multiple of the block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Padding {
    /// Nothing: another length is an error.
    None,
    /// 1 to 16 bytes with their number (RFC 5652 §6.3).
    Pkcs7,
}

impl Mode {
    /// Each mode in each form.
    pub const ALL: [Self; 8] = [
        Self::Ecb(Padding::None),
        Self::Ecb(Padding::Pkcs7),
        Self::Cbc(Padding::None),
        Self::Cbc(Padding::Pkcs7),
        Self::Ctr,
        Self::Cfb,
        Self::Ofb,
        Self::Gcm,
    ];

    /// Length in bytes of the initialisation vector.
    pub const fn iv_len(self) -> usize {
        match self {
            Self::Ecb(_) => 0,
            Self::Gcm => 12,
            _ => BLOCK,
        }
    }

    /// Length in bytes of a text of `len` bytes when it is encrypted.
    pub const fn encrypted_len(self, len: usize) -> usize {
        match self {
            Self::Ecb(Padding::Pkcs7) | Self::Cbc(Padding::Pkcs7) => (len / BLOCK + 1) * BLOCK,
            Self::Gcm => len + BLOCK,
            _ => len,
        }
    }

    const fn needs_blocks(self) -> bool {
        matches!(self, Self::Ecb(_) | Self::Cbc(_))
    }

    const fn padding(self) -> Padding {
        match self {
            Self::Ecb(padding) | Self::Cbc(padding) => padding,
            _ => Padding::None,
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ecb(_) => "ECB",
            Self::Cbc(_) => "CBC",
            Self::Ctr => "CTR",
            Self::Cfb => "CFB",
            Self::Ofb => "OFB",
            Self::Gcm => "GCM",
        })
    }
}

/// Why a key or a buffer is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModeError {
    /// A key of AES has 16, 24 or 32 bytes.
    KeyLength {
        /// The mode it is for.
        mode: Mode,
        /// Its length in bytes.
        found: usize,
    },
    /// An initialisation vector has the mode's length.
    IvLength {
        /// The mode it is for.
        mode: Mode,
        /// Its length in bytes.
        found: usize,
    },
    /// The text is no multiple of the block, or longer than 2^30 bytes.
    TextLength {
        /// The mode that wants it.
        mode: Mode,
        /// Its length in bytes.
        found: usize,
    },
    /// The buffer ends before the text or what is added to it.
    NoRoom {
        /// Bytes that it must have.
        needed: usize,
        /// Bytes that it has.
        found: usize,
    },
    /// The tag or the padding is wrong.
    NotGenuine,
}

impl fmt::Display for ModeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KeyLength { mode, found } => {
                write!(f, "the key of AES in {mode} mode must have 16, 24 or 32 bytes, not {found}")
            }
            Self::IvLength { mode, found } => {
                let expected = mode.iv_len();
                write!(
                    f,
                    "the initialisation vector of AES in {mode} mode must have {expected} bytes, not {found}"
                )
            }
            Self::TextLength { mode, found } => {
                write!(
                    f,
                    "a text of {found} bytes cannot be processed by AES in {mode} mode without padding"
                )
            }
            Self::NoRoom { needed, found } => {
                write!(f, "the buffer must have {needed} bytes, not {found}")
            }
            Self::NotGenuine => f.write_str("the tag or the padding of the text is wrong"),
        }
    }
}

impl std::error::Error for ModeError {}

/// A key of AES for one mode. It is wiped when it is dropped, and `Debug` shows the mode only.
pub struct RawKey {
    mode: Mode,
    cipher: Cipher,
}

#[allow(clippy::large_enum_variant)] // one of a connection, not moved
enum Cipher {
    Aes(Aes),
    Ctr(CtrKey<AesEnc>),
    Gcm(GcmKey<AesEnc, GHash>),
}

impl fmt::Debug for RawKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RawKey(AES in {} mode)", self.mode)
    }
}

impl RawKey {
    /// Expands a key of 16, 24 or 32 bytes.
    ///
    /// # Errors
    ///
    /// Another length.
    pub fn new(mode: Mode, key: &Secret) -> Result<Self, ModeError> {
        Self::from_bytes(mode, key.expose())
    }

    /// The same of bytes that the caller wipes.
    ///
    /// # Errors
    ///
    /// As [`RawKey::new`].
    pub fn from_bytes(mode: Mode, key: &[u8]) -> Result<Self, ModeError> {
        let cipher = match mode {
            Mode::Gcm => GcmKey::new(key).map(Cipher::Gcm),
            Mode::Ctr => CtrKey::new(key).map(Cipher::Ctr),
            _ => Aes::new(key).map(Cipher::Aes),
        };
        let cipher = cipher.ok_or(ModeError::KeyLength { mode, found: key.len() })?;
        Ok(Self { mode, cipher })
    }

    /// The mode that it is for.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Encrypts the first `len` bytes of a buffer in place and returns how many they are now
    /// ([`Mode::encrypted_len`]). `aad` is authenticated by GCM; other modes authenticate nothing.
    ///
    /// # Errors
    ///
    /// A length is wrong; the buffer is as it was.
    pub fn encrypt(
        &self,
        iv: &[u8],
        aad: &[u8],
        buffer: &mut [u8],
        len: usize,
    ) -> Result<usize, ModeError> {
        let mode = self.mode;
        let whole = self.check(iv, buffer, len, mode.padding() == Padding::None)?;
        let (needed, found) = (mode.encrypted_len(len), buffer.len());
        if needed > found {
            return Err(ModeError::NoRoom { needed, found });
        }
        let buffer = &mut buffer[..needed];
        match &self.cipher {
            Cipher::Gcm(key) => {
                let (text, tag) = buffer.split_at_mut(len);
                let nonce = whole[..12].try_into().unwrap_or_default();
                let made = key.pass::<true>(&nonce, &[aad], text.as_ptr(), text);
                tag.copy_from_slice(&made.unwrap_or_else(|| {
                    let mask = gcm_stream(key, nonce, text);
                    key.tag(&[aad], text, &mask)
                }));
            }
            Cipher::Ctr(key) => ctr_stream(key, &whole, buffer),
            Cipher::Aes(aes) => {
                if mode.padding() == Padding::Pkcs7 {
                    let count = (needed - len) as u8; // 1 to 16
                    buffer[len..].fill(count);
                }
                run(mode, aes, &whole, buffer, true);
            }
        }
        Ok(needed)
    }

    /// Decrypts the first `len` bytes of a buffer in place and returns how many of them are text.
    ///
    /// # Errors
    ///
    /// A length is wrong, or GCM's tag is: the buffer is as it was. Or the padding is wrong.
    pub fn decrypt(
        &self,
        iv: &[u8],
        aad: &[u8],
        buffer: &mut [u8],
        len: usize,
    ) -> Result<usize, ModeError> {
        let mode = self.mode;
        let whole = self.check(iv, buffer, len, true)?;
        match &self.cipher {
            Cipher::Gcm(key) => {
                let text_len = len.checked_sub(BLOCK);
                let text_len = text_len.ok_or(ModeError::TextLength { mode, found: len })?;
                let (text, tag) = buffer[..len].split_at_mut(text_len);
                let nonce = whole[..12].try_into().unwrap_or_default();
                if let Some(made) = key.pass::<false>(&nonce, &[aad], text.as_ptr(), text) {
                    if !bool::from(made.ct_eq(tag)) {
                        // Nobody has seen it.
                        let _ = key.pass::<true>(&nonce, &[aad], text.as_ptr(), text);
                        return Err(ModeError::NotGenuine);
                    }
                    return Ok(text_len);
                }
                let mut mask = counter_block(nonce, 1);
                key.aes.encrypt_block(&mut mask);
                if !bool::from(key.tag(&[aad], text, &mask).ct_eq(tag)) {
                    return Err(ModeError::NotGenuine);
                }
                gcm_stream(key, nonce, text);
                Ok(text_len)
            }
            Cipher::Ctr(key) => {
                ctr_stream(key, &whole, &mut buffer[..len]);
                Ok(len)
            }
            Cipher::Aes(aes) => {
                if mode.padding() == Padding::Pkcs7 && len == 0 {
                    return Err(ModeError::TextLength { mode, found: len });
                }
                run(mode, aes, &whole, &mut buffer[..len], false);
                match mode.padding() {
                    Padding::None => Ok(len),
                    Padding::Pkcs7 => unpadded(&buffer[..len]).ok_or(ModeError::NotGenuine),
                }
            }
        }
    }

    /// The initialisation vector, with zeros behind it.
    fn check(
        &self,
        iv: &[u8],
        buffer: &[u8],
        len: usize,
        is_whole: bool,
    ) -> Result<[u8; BLOCK], ModeError> {
        let mode = self.mode;
        if iv.len() != mode.iv_len() {
            return Err(ModeError::IvLength { mode, found: iv.len() });
        }
        if len > buffer.len() {
            return Err(ModeError::NoRoom { needed: len, found: buffer.len() });
        }
        let fits = !mode.needs_blocks() || !is_whole || len.is_multiple_of(BLOCK);
        if !fits || len > crate::batch::TEXT_MAX {
            return Err(ModeError::TextLength { mode, found: len });
        }
        let mut whole = [0; BLOCK];
        whole[..iv.len()].copy_from_slice(iv);
        Ok(whole)
    }
}

/// The modes over a text, whose length fits.
fn run(mode: Mode, aes: &Aes, iv: &[u8; BLOCK], text: &mut [u8], is_encrypting: bool) {
    match (mode, is_encrypting) {
        (Mode::Ecb(_), true) => aes.encrypt_blocks(Block::slice_as_chunks_mut(text).0),
        (Mode::Ecb(_), false) => {
            let (blocks, _) = Block::slice_as_chunks_mut(text);
            with_cipher!(Aes, aes, cipher => cipher.decrypt_blocks(blocks));
        }
        (Mode::Cbc(_), true) => chain::encrypt_one(aes, iv, text),
        (Mode::Cbc(_), false) => chain::decrypt(aes, iv, text),
        (Mode::Cfb, true) => with_cipher!(Aes, aes, cipher => {
            CfbEncryptor::inner_iv_init(cipher, iv.into()).encrypt(text);
        }),
        (Mode::Cfb, false) => with_cipher!(Aes, aes, cipher => {
            CfbDecryptor::inner_iv_init(cipher, iv.into()).decrypt(text);
        }),
        (Mode::Ofb, _) => with_cipher!(Aes, aes, cipher => {
            OfbCore::inner_iv_init(cipher, iv.into()).apply_keystream_partial(text.into());
        }),
        // They have keys of other kinds.
        (Mode::Ctr | Mode::Gcm, _) => {}
    }
}

/// Adds the key stream to a text: by vectors where the CPU has them.
fn ctr_stream(key: &CtrKey<AesEnc>, iv: &[u8; BLOCK], text: &mut [u8]) {
    if key.add(iv, text) {
        return;
    }
    with_cipher!(AesEnc, &key.aes, cipher => {
        let stream: CtrCore<_, flavors::Ctr128BE> = CtrCore::inner_iv_init(cipher, iv.into());
        stream.apply_keystream_partial(text.into());
    });
}

fn counter_block(nonce: [u8; 12], number: u32) -> Block {
    let mut block = Block::default();
    block[..12].copy_from_slice(&nonce);
    block[12..].copy_from_slice(&number.to_be_bytes());
    block
}

/// Adds the key stream to a text; returns the encrypted counter block 1.
fn gcm_stream(key: &GcmKey<AesEnc, GHash>, nonce: [u8; 12], text: &mut [u8]) -> Block {
    const RUN: usize = 64;
    let mut mask = counter_block(nonce, 1);
    key.aes.encrypt_block(&mut mask);
    for (chunk, number) in text.chunks_mut(RUN * BLOCK).zip((2..).step_by(RUN)) {
        let used = chunk.len().div_ceil(BLOCK);
        let mut blocks = [Block::default(); RUN];
        for (block, counter) in blocks[..used].iter_mut().zip(number..) {
            *block = counter_block(nonce, counter);
        }
        key.aes.encrypt_blocks(&mut blocks[..used]);
        xor(chunk, Block::slice_as_flattened(&blocks));
    }
    mask
}

/// Length without padding. Which byte of the padding is wrong takes no time.
fn unpadded(text: &[u8]) -> Option<usize> {
    let (_, last) = text.split_last_chunk::<BLOCK>()?;
    let count = last[BLOCK - 1];
    let mut is_right = !count.ct_eq(&0) & !count.ct_gt(&(BLOCK as u8));
    for (byte, from_end) in last.iter().rev().zip(1u8..) {
        let is_outside = from_end.ct_gt(&count);
        is_right &= is_outside | byte.ct_eq(&count);
    }
    let taken = u8::conditional_select(&0, &count, is_right);
    bool::from(is_right & Choice::from(1)).then(|| text.len() - usize::from(taken))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_has_one_right_form() {
        for count in 1..=16u8 {
            let mut text = [0xaa; 32];
            text[32 - usize::from(count)..].fill(count);
            assert_eq!(unpadded(&text), Some(32 - usize::from(count)));
            for at in 32 - usize::from(count)..32 {
                let mut wrong = text;
                wrong[at] ^= 0x40;
                assert_eq!(unpadded(&wrong), None, "{count} {at}");
            }
        }
        for last in [0, 17, 32, 255] {
            assert_eq!(unpadded(&[last; 32]), None);
        }
        assert_eq!(unpadded(&[1; 15]), None);
    }

    #[test]
    fn lengths_are_checked() {
        let key = |mode, len| RawKey::new(mode, &Secret::new(vec![1; len]));
        let error = key(Mode::Cfb, 17).unwrap_err().to_string();
        assert_eq!(error, "the key of AES in CFB mode must have 16, 24 or 32 bytes, not 17");
        for mode in Mode::ALL {
            let key = key(mode, 24).unwrap();
            assert!(!format!("{key:?}").contains('1'));
            let iv = vec![3; mode.iv_len()];
            let mut buffer = [5; 40];
            let long = key.encrypt(&vec![3; mode.iv_len() + 1], &[], &mut buffer, 16);
            assert!(matches!(long, Err(ModeError::IvLength { .. })));
            assert!(matches!(
                key.encrypt(&iv, &[], &mut buffer, 41),
                Err(ModeError::NoRoom { .. })
            ));
            let odd = key.encrypt(&iv, &[], &mut buffer, 17);
            let needs_blocks = mode.needs_blocks() && mode.padding() == Padding::None;
            assert_eq!(odd.is_err(), needs_blocks, "{mode}");
            let full = key.encrypt(&iv, &[], &mut buffer, 32);
            assert_eq!(full.is_err(), mode.encrypted_len(32) > 40, "{mode}");
            assert!(key.decrypt(&iv, &[], &mut buffer, 41).is_err());
            let none = key.decrypt(&iv, &[], &mut buffer, 0);
            assert_eq!(none.is_err(), mode.encrypted_len(0) > 0, "{mode}");
        }
    }
}
