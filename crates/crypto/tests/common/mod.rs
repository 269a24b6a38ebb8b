//! What the tests share.
#![allow(dead_code)] // each uses a part

use crypto::{Key, Secret, Suite};

pub(crate) fn bytes(hex: &str) -> Vec<u8> {
    Secret::from_hex(hex).unwrap_or_else(|error| panic!("{hex}: {error}")).expose().to_vec()
}

/// Values `NAME = HEX` of a file, in order.
pub(crate) fn values<'t>(text: &'t str, name: &str) -> Vec<&'t str> {
    let lines = text.lines().filter_map(|line| line.split_once('='));
    lines.filter(|(key, _)| key.trim() == name).map(|(_, value)| value.trim()).collect()
}

/// Bytes that differ by `seed`.
pub(crate) fn filled(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// Keys that differ by `seed`.
pub(crate) fn key(suite: Suite, seed: u64) -> Key {
    let encryption = Secret::new(filled(suite.encryption_key_len(), seed));
    let authentication = Secret::new(filled(suite.authentication_key_len(), seed + 1));
    Key::new(suite, &encryption, &authentication).unwrap()
}
