//! Bytes that nobody may see.

use std::fmt;

use zeroize::{Zeroize, ZeroizeOnDrop};

/// Key material. It is wiped when it is dropped, it has no `Clone`, and `Debug` shows its length only.
pub struct Secret {
    bytes: Vec<u8>,
}

impl Secret {
    /// Takes the bytes; no copy of them stays elsewhere.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self { bytes }
    }

    /// No bytes, for what has no key.
    pub fn none() -> Self {
        Self { bytes: Vec::new() }
    }

    /// Reads hexadecimal digits, with or without `0x` in front.
    ///
    /// # Errors
    ///
    /// The number of digits is odd, or a character is no digit. The error does not hold the text.
    pub fn from_hex(text: &str) -> Result<Self, NotHex> {
        let digits = text.strip_prefix("0x").unwrap_or(text).as_bytes();
        if !digits.len().is_multiple_of(2) {
            return Err(NotHex::Odd { digits: digits.len() });
        }
        // As many bytes as there will be: a vector that grows leaves copies behind.
        let mut secret = Self::new(Vec::with_capacity(digits.len() / 2));
        for (pair, at) in digits.chunks_exact(2).zip((0..).step_by(2)) {
            let digit = |i: usize| {
                let value = char::from(pair[i]).to_digit(16);
                value.ok_or(NotHex::Digit { column: at + i + 1 })
            };
            secret.bytes.push((digit(0)? << 4 | digit(1)?) as u8);
        }
        Ok(secret)
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The bytes themselves, for a cipher.
    pub fn expose(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.bytes.zeroize();
    }
}

impl ZeroizeOnDrop for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({} bytes)", self.bytes.len())
    }
}

/// Key material in words, as a device has it. It is wiped when it is dropped, it has no `Clone`, and `Debug` shows its length
/// only.
pub struct SecretWords {
    words: Box<[u32]>,
}

impl SecretWords {
    /// So many words of zero.
    pub fn zeros(count: usize) -> Self {
        Self { words: vec![0; count].into() }
    }

    /// Sets words from `at` on, and wipes where they come from.
    ///
    /// # Panics
    /// They are more than there is room for.
    pub fn take(&mut self, at: usize, words: &mut [u32]) {
        self.words[at..at + words.len()].copy_from_slice(words);
        words.zeroize();
    }

    /// Sets words from `at` on to bytes in their order, zeros behind the last.
    ///
    /// # Panics
    /// As [`SecretWords::take`].
    pub fn set_bytes(&mut self, at: usize, bytes: &[u8]) {
        for (word, bytes) in self.words[at..].iter_mut().zip(bytes.chunks(4)) {
            *word = bytes.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte));
        }
    }

    /// The words themselves.
    pub fn expose(&self) -> &[u32] {
        &self.words
    }
}

impl Drop for SecretWords {
    fn drop(&mut self) {
        self.words.zeroize();
    }
}

impl ZeroizeOnDrop for SecretWords {}

impl fmt::Debug for SecretWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretWords({} words)", self.words.len())
    }
}

/// Why a text is no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotHex {
    /// Two digits make a byte.
    Odd {
        /// How many there are.
        digits: usize,
    },
    /// Another character.
    Digit {
        /// Its place behind a `0x`, from 1.
        column: usize,
    },
}

impl fmt::Display for NotHex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Odd { digits } => {
                write!(f, "the key has an odd number of hexadecimal digits ({digits})")
            }
            Self::Digit { column } => {
                write!(f, "character {column} of the key is not a hexadecimal digit")
            }
        }
    }
}

impl std::error::Error for NotHex {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_become_bytes() {
        assert_eq!(Secret::from_hex("0x00fFa1").unwrap().expose(), [0, 0xff, 0xa1]);
        assert!(Secret::from_hex("").unwrap().is_empty());
        assert_eq!(Secret::from_hex("abc").unwrap_err(), NotHex::Odd { digits: 3 });
        let error = Secret::from_hex("0x12g4").unwrap_err();
        assert_eq!(error, NotHex::Digit { column: 3 });
        assert_eq!(error.to_string(), "character 3 of the key is not a hexadecimal digit");
        // Not at the border of a character, and not a digit of another script.
        assert!(Secret::from_hex("ää").is_err());
    }

    #[test]
    fn debug_shows_the_length_only() {
        let secret = Secret::from_hex("00112233").unwrap();
        assert_eq!(format!("{secret:?}"), "Secret(4 bytes)");
        assert_eq!(format!("{:?}", [secret]), "[Secret(4 bytes)]");
        let (mut words, mut from) = (SecretWords::zeros(4), [7, 8]);
        words.take(0, &mut from);
        words.set_bytes(2, &[1, 2, 3, 4, 5]);
        assert_eq!((words.expose(), from), (&[7, 8, 0x0403_0201, 5][..], [0, 0]));
        assert_eq!(format!("{words:?}"), "SecretWords(4 words)");
    }
}
