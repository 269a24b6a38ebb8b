//! AES with keys of any size behind one type. The crate `aes` chooses VAES, AES-NI or its bitsliced form at run time.

use aes::{Aes128, Aes128Enc, Aes192, Aes192Enc, Aes256, Aes256Enc};
use cipher::{BlockCipherEncrypt, KeyInit};

pub(crate) use aes::Block;

/// Bytes of a block.
pub(crate) const BLOCK: usize = 16;

/// A key that encrypts only, as the counter modes need: half the size.
pub(crate) enum AesEnc {
    Aes128(Aes128Enc),
    Aes192(Aes192Enc),
    Aes256(Aes256Enc),
}

/// A key that encrypts and decrypts.
pub(crate) enum Aes {
    Aes128(Aes128),
    Aes192(Aes192),
    Aes256(Aes256),
}

/// Runs an expression with the cipher of the key's size.
macro_rules! with_cipher {
    ($kind:ident, $key:expr, $cipher:ident => $body:expr) => {
        match $key {
            $kind::Aes128($cipher) => $body,
            $kind::Aes192($cipher) => $body,
            $kind::Aes256($cipher) => $body,
        }
    };
}
pub(crate) use with_cipher;

macro_rules! new_by_length {
    () => {
        /// By the length of the key: 16, 24 or 32 bytes.
        pub(crate) fn new(key: &[u8]) -> Option<Self> {
            match key.len() {
                16 => KeyInit::new_from_slice(key).ok().map(Self::Aes128),
                24 => KeyInit::new_from_slice(key).ok().map(Self::Aes192),
                32 => KeyInit::new_from_slice(key).ok().map(Self::Aes256),
                _ => None,
            }
        }
    };
}

impl AesEnc {
    new_by_length!();

    pub(crate) fn encrypt_blocks(&self, blocks: &mut [Block]) {
        with_cipher!(Self, self, cipher => cipher.encrypt_blocks(blocks));
    }

    pub(crate) fn encrypt_block(&self, block: &mut Block) {
        with_cipher!(Self, self, cipher => cipher.encrypt_block(block));
    }
}

impl Aes {
    new_by_length!();

    pub(crate) fn encrypt_blocks(&self, blocks: &mut [Block]) {
        with_cipher!(Self, self, cipher => cipher.encrypt_blocks(blocks));
    }

    pub(crate) fn encrypt_block(&self, block: &mut Block) {
        with_cipher!(Self, self, cipher => cipher.encrypt_block(block));
    }
}

/// `bytes ^= with`, as far as both reach.
pub(crate) fn xor(bytes: &mut [u8], with: &[u8]) {
    for (byte, with) in bytes.iter_mut().zip(with) {
        *byte ^= with;
    }
}
