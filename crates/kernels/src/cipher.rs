//! What the host makes for ciphers on a device: expanded keys, powers of GHASH's key, states of HMAC, keys of RSA.
//!
//! ```text
//!  key ─▶ FIPS 197 §5.2 ─▶ round keys ─▶ planes, two in a word ─▶ AES_KEY_WORDS words ─▶ a region of the table image
//!  key ─▶ RFC 2104 ─▶ states behind the key's blocks ────────────▶ SHA_KEY_WORDS words ─▶ a region
//! ```
//!
//! The layouts are those of `c/aes.h`, `c/ghash.h`, `c/sha.h` and `c/modexp.h`. Nothing here looks anything up by a byte of a key. All
//! results are key material: whoever holds them wipes them.
//!
//! Threads: plain functions, any thread.

/// Words of an expanded key of AES: the number of rounds, three of zero, fifteen round keys.
pub const AES_KEY_WORDS: usize = 64;
/// Words of a record of SHA-1 or SHA-256.
pub const SHA_KEY_WORDS: usize = 32;

/// Modes of the kernels of [`files::CIPHER`](crate::files::CIPHER), as their job number.
pub mod mode {
    /// Electronic code book: `aes_blocks`, `aes_blocks_back`.
    pub const ECB: u32 = 0;
    /// Counter of 128 bits: `aes_blocks`.
    pub const CTR: u32 = 1;
    /// Counter of 32 bits from the second block on, as GCM has it: `aes_blocks`.
    pub const GCM: u32 = 2;
    /// Cipher feedback: encrypted by `aes_rows`, decrypted by `aes_blocks` and `blocks_copy`.
    pub const CFB: u32 = 3;
    /// Cipher feedback decrypted by `aes_rows`.
    pub const CFB_BACK: u32 = 4;
    /// Cipher block chaining: encrypted by `aes_rows`, decrypted by `aes_blocks_back` and `blocks_copy`.
    pub const CBC: u32 = 5;
    /// Output feedback: `aes_rows`.
    pub const OFB: u32 = 6;
    /// Added to a mode or an area: GCM opens, and only rows whose tag was right are decrypted.
    pub const GENUINE: u32 = 0x100;
}

/// Where a round key begins in a record.
const ROUND_KEYS: usize = 4;

/// A key of 16, 24 or 32 bytes as the device has it; none for another length.
pub fn aes_record(key: &[u8]) -> Option<[u32; AES_KEY_WORDS]> {
    let key_words = match key.len() {
        16 => 4,
        24 => 6,
        32 => 8,
        _ => return None,
    };
    let rounds = key_words + 6;
    let mut words = [0u32; 60]; // lowest byte first
    for (word, bytes) in words.iter_mut().zip(key.chunks_exact(4)) {
        *word = bytes.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte));
    }
    let mut constant = 1u32;
    for i in key_words..4 * (rounds + 1) {
        let mut word = words[i - 1];
        if i % key_words == 0 {
            word = sub_word(word.rotate_right(8)) ^ constant;
            constant = double(constant);
        } else if key_words == 8 && i % 8 == 4 {
            word = sub_word(word);
        }
        words[i] = words[i - key_words] ^ word;
    }
    let mut record = [0; AES_KEY_WORDS];
    record[0] = rounds as u32;
    for (to, round_key) in record[ROUND_KEYS..].chunks_exact_mut(4).zip(words.chunks_exact(4)) {
        for (column, word) in round_key.iter().enumerate() {
            for bit in 0..32 {
                let (row, plane) = (bit / 8, bit % 8);
                to[plane % 4] |= (word >> bit & 1) << (8 * row + 2 * column + plane / 4);
            }
        }
    }
    Some(record)
}

/// SubWord: the S-box of four bytes, worked out.
fn sub_word(word: u32) -> u32 {
    // The 254th power: its factors are the powers of two from 2 to 128.
    let (mut power, mut inverse) = (multiply(word, word), 0x0101_0101);
    for _ in 0..7 {
        inverse = multiply(inverse, power);
        power = multiply(power, power);
    }
    let turn = |by: u32| {
        let low = 0x0101_0101 * (0xff >> (8 - by));
        (inverse << by & !low) | (inverse >> (8 - by) & low)
    };
    inverse ^ turn(1) ^ turn(2) ^ turn(3) ^ turn(4) ^ 0x6363_6363
}

/// Four bytes times 2 in the field of AES (FIPS 197 §4.2).
fn double(word: u32) -> u32 {
    ((word & 0x7f7f_7f7f) << 1) ^ ((word >> 7 & 0x0101_0101) * 0x1b)
}

/// Products of four pairs of bytes.
fn multiply(mut word: u32, by: u32) -> u32 {
    let mut product = 0;
    for bit in 0..8 {
        product ^= word & ((by >> bit & 0x0101_0101) * 0xff);
        word = double(word);
    }
    product
}

/// The first `count` powers of GHASH's key `h` (the encrypted block of zeros), four words each.
pub fn ghash_powers(h: [u8; 16], count: usize) -> Vec<u32> {
    let h = u128::from_be_bytes(h);
    let mut power = h;
    let mut words = Vec::with_capacity(4 * count);
    for _ in 0..count {
        let (high, low) = ((power >> 64) as u64, power as u64);
        for half in [high, low] {
            words.extend([half as u32, (half >> 32) as u32]);
        }
        power = ghash_multiply(power, h);
    }
    words
}

/// SP 800-38D §6.3, without branches.
pub(crate) fn ghash_multiply(x: u128, y: u128) -> u128 {
    let (mut sum, mut factor) = (0, y);
    for bit in (0..128).rev() {
        sum ^= factor & (x >> bit & 1).wrapping_neg();
        factor = factor >> 1 ^ 0xe1 << 120 & (factor & 1).wrapping_neg();
    }
    sum
}

/// The most words of a modulus: 2,048 bits.
pub const MODEXP_WORDS_MAX: usize = 64;
/// Numbers of scratch memory that `modexp_rows` takes for a row, each of as many words as its job says.
pub const MODEXP_NUMBERS: usize = 20;

/// The key of `modexp_rows`: an odd modulus above 1 and an exponent, lowest words first, as `c/modexp.h` has them. None for
/// another modulus, or more than [`MODEXP_WORDS_MAX`] words of either. The time depends on their lengths only.
pub fn modexp_key(modulus: &[u32], exponent: &[u32]) -> Option<Vec<u32>> {
    let words = modulus.len();
    let is_odd = modulus.first().is_some_and(|word| word & 1 == 1);
    let is_one = words == 1 && modulus[0] == 1 || modulus.last() == Some(&0);
    if !is_odd || is_one || words > MODEXP_WORDS_MAX || exponent.len() > MODEXP_WORDS_MAX {
        return None;
    }
    // Each turn doubles the bits that are right (Hensel).
    let inverse = (0..5).fold(1u32, |inverse, _| {
        inverse.wrapping_mul(2u32.wrapping_sub(modulus[0].wrapping_mul(inverse)))
    });
    let mut square = vec![0; words];
    square[0] = 1;
    for _ in 0..64 * words {
        double_modulo(&mut square, modulus);
    }
    let mut key = vec![words as u32, inverse.wrapping_neg(), exponent.len() as u32, 0];
    key.extend(modulus.iter().chain(&square).chain(exponent));
    Some(key)
}

/// A number below the modulus, times 2.
fn double_modulo(number: &mut [u32], modulus: &[u32]) {
    let mut carry = 0;
    for word in number.iter_mut() {
        (carry, *word) = (*word >> 31, *word << 1 | carry);
    }
    let less = |number: &mut [u32], mask: u32| {
        let mut borrow = 0u64;
        for (word, own) in number.iter_mut().zip(modulus) {
            let differ = u64::from(*word).wrapping_sub(u64::from(own & mask)).wrapping_sub(borrow);
            (*word, borrow) = (differ as u32, differ >> 63);
        }
        borrow as u32
    };
    let mut reduced = [0; MODEXP_WORDS_MAX];
    let reduced = &mut reduced[..number.len()];
    reduced.copy_from_slice(number);
    let borrow = less(reduced, u32::MAX);
    less(number, (carry | (borrow ^ 1)).wrapping_neg());
}

const SHA1_START: [u32; 8] =
    [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0, 0, 0, 0];
const SHA256_START: [u32; 8] = [
    0x6a09_e667,
    0xbb67_ae85,
    0x3c6e_f372,
    0xa54f_f53a,
    0x510e_527f,
    0x9b05_688c,
    0x1f83_d9ab,
    0x5be0_cd19,
];

/// The record of SHA-1, or of HMAC-SHA1 with a key of at most 64 bytes; none for a longer one, of which RFC 2104 takes the
/// hash.
pub fn sha1_record(key: Option<&[u8]>) -> Option<[u32; SHA_KEY_WORDS]> {
    record(key, SHA1_START, sha1_block)
}

/// The record of SHA-256, or of HMAC-SHA-256, as [`sha1_record`].
pub fn sha256_record(key: Option<&[u8]>) -> Option<[u32; SHA_KEY_WORDS]> {
    record(key, SHA256_START, sha256_block)
}

fn record(
    key: Option<&[u8]>,
    start: [u32; 8],
    block: fn([u32; 8], &[u8; 64]) -> [u32; 8],
) -> Option<[u32; SHA_KEY_WORDS]> {
    let mut record = [0; SHA_KEY_WORDS];
    record[..8].copy_from_slice(&start);
    if let Some(key) = key {
        let mut padded = [0; 64];
        padded.get_mut(..key.len())?.copy_from_slice(key);
        record[..8].copy_from_slice(&block(start, &padded.map(|byte| byte ^ 0x36)));
        record[8..16].copy_from_slice(&block(start, &padded.map(|byte| byte ^ 0x5c)));
        record[16] = 64;
        record[17] = 1;
    }
    Some(record)
}

fn words_of(block: &[u8; 64]) -> [u32; 16] {
    let word = |i: usize| block[4 * i..][..4].iter().fold(0, |word, b| word << 8 | u32::from(*b));
    std::array::from_fn(word)
}

/// FIPS 180-4 §6.1.2.
fn sha1_block(state: [u32; 8], block: &[u8; 64]) -> [u32; 8] {
    let mut w = [0; 80];
    w[..16].copy_from_slice(&words_of(block));
    for t in 16..80 {
        w[t] = (w[t - 3] ^ w[t - 8] ^ w[t - 14] ^ w[t - 16]).rotate_left(1);
    }
    let [mut a, mut b, mut c, mut d, mut e, ..] = state;
    for (t, word) in w.into_iter().enumerate() {
        let (f, k) = match t / 20 {
            0 => (b & c ^ !b & d, 0x5a82_7999),
            1 => (b ^ c ^ d, 0x6ed9_eba1),
            2 => (b & c ^ b & d ^ c & d, 0x8f1b_bcdc),
            _ => (b ^ c ^ d, 0xca62_c1d6),
        };
        let next =
            a.rotate_left(5).wrapping_add(f).wrapping_add(e).wrapping_add(k).wrapping_add(word);
        (e, d, c, b, a) = (d, c, b.rotate_left(30), a, next);
    }
    let mut end = state;
    for (sum, word) in end.iter_mut().zip([a, b, c, d, e]) {
        *sum = sum.wrapping_add(word);
    }
    end
}

/// FIPS 180-4 §6.2.2.
fn sha256_block(state: [u32; 8], block: &[u8; 64]) -> [u32; 8] {
    let mut w = [0u32; 64];
    w[..16].copy_from_slice(&words_of(block));
    for t in 16..64 {
        let (x, y) = (w[t - 15], w[t - 2]);
        let small0 = x.rotate_right(7) ^ x.rotate_right(18) ^ x >> 3;
        let small1 = y.rotate_right(17) ^ y.rotate_right(19) ^ y >> 10;
        w[t] = small1.wrapping_add(w[t - 7]).wrapping_add(small0).wrapping_add(w[t - 16]);
    }
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = state;
    for (word, k) in w.into_iter().zip(round_constants()) {
        let big1 = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
        let t1 =
            h.wrapping_add(big1).wrapping_add(e & f ^ !e & g).wrapping_add(k).wrapping_add(word);
        let big0 = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
        let t2 = big0.wrapping_add(a & b ^ a & c ^ b & c);
        (h, g, f, e, d, c, b, a) = (g, f, e, d.wrapping_add(t1), c, b, a, t1.wrapping_add(t2));
    }
    let mut end = state;
    for (sum, word) in end.iter_mut().zip([a, b, c, d, e, f, g, h]) {
        *sum = sum.wrapping_add(word);
    }
    end
}

/// The constants of SHA-256 (FIPS 180-4 §4.2.2): 32 bits behind the point of the cube roots of the first 64 primes.
fn round_constants() -> impl Iterator<Item = u32> {
    let is_prime = |n: &u128| (2..*n).take_while(|d| d * d <= *n).all(|d| !n.is_multiple_of(d));
    (2u128..).filter(is_prime).take(64).map(|prime| {
        // The root of prime * 2^96 is the prime's times 2^32.
        let (mut low, mut high) = (0u128, 1 << 36);
        while high - low > 1 {
            let middle = (low + high) / 2;
            match middle * middle * middle <= prime << 96 {
                true => low = middle,
                false => high = middle,
            }
        }
        low as u32
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The round keys of a record.
    fn round_keys(record: &[u32]) -> Vec<u32> {
        let mut words = Vec::new();
        for planes in record[ROUND_KEYS..][..4 * (record[0] as usize + 1)].chunks(4) {
            for column in 0..4 {
                words.push((0..32).fold(0, |word, bit| {
                    let (row, plane) = (bit / 8, bit % 8);
                    word | (planes[plane % 4] >> (8 * row + 2 * column + plane / 4) & 1) << bit
                }));
            }
        }
        words.into_iter().map(u32::swap_bytes).collect()
    }

    /// FIPS 197, appendix A: the last words of its three keys.
    #[test]
    fn keys_are_expanded() {
        let bytes = |words: &[u32]| words.iter().flat_map(|w| w.to_be_bytes()).collect::<Vec<_>>();
        let cases: [(&[u32], u32, u32); 3] = [
            (&[0x2b7e_1516, 0x28ae_d2a6, 0xabf7_1588, 0x09cf_4f3c], 0xa0fa_fe17, 0xb663_0ca6),
            (
                &[0x8e73_b0f7, 0xda0e_6452, 0xc810_f32b, 0x8090_79e5, 0x62f8_ead2, 0x522c_6b7b],
                0xfe0c_91f7,
                0x0100_2202,
            ),
            (
                &[
                    0x603d_eb10,
                    0x15ca_71be,
                    0x2b73_aef0,
                    0x857d_7781,
                    0x1f35_2c07,
                    0x3b61_08d7,
                    0x2d98_10a3,
                    0x0914_dff4,
                ],
                0x9ba3_5411,
                0x706c_631e,
            ),
        ];
        for (key, first, last) in cases {
            let words = round_keys(&aes_record(&bytes(key)).unwrap());
            assert_eq!(words[..key.len()], *key);
            assert_eq!((words[key.len()], words.last().copied()), (first, Some(last)));
            assert_eq!(words.len(), 4 * (key.len() + 7));
        }
        assert!(aes_record(&[0; 17]).is_none());
    }

    /// FIPS 180-4's example: the hash of `abc`, with a padded block of its own.
    #[test]
    fn states_follow_blocks() {
        let mut block = [0; 64];
        block[..4].copy_from_slice(b"abc\x80");
        block[63] = 24;
        assert_eq!(
            sha1_block(SHA1_START, &block)[..5],
            [0xa999_3e36, 0x4706_816a, 0xba3e_2571, 0x7850_c26c, 0x9cd0_d89d]
        );
        assert_eq!(sha256_block(SHA256_START, &block)[..2], [0xba78_16bf, 0x8f01_cfea]);
        assert!(sha1_record(Some(&[0; 65])).is_none());
    }

    /// One is the block whose first bit is set.
    #[test]
    fn powers_are_products() {
        let mut one = [0; 16];
        one[0] = 0x80;
        assert_eq!(ghash_powers(one, 3), [0, 0x8000_0000, 0, 0].repeat(3));
        let mut last = [0; 16];
        last[15] = 1; // the 127th power: times the first one it is 1 + x + x^2 + x^7
        let x = u128::from_be_bytes(last);
        assert_eq!(ghash_multiply(x, 1 << 126), 0xe1 << 120);
    }
}
