//! MD5 (RFC 1321), for JA3: a name for a fingerprint, not a protection.

/// `floor(2^32 * |sin(i + 1)|)`, in steps of 64 (§3.4).
fn sines() -> [u32; 64] {
    std::array::from_fn(|i| (f64::sin((i + 1) as f64).abs() * 4_294_967_296.0) as u32)
}

const SHIFTS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];

/// The digest of a text.
pub(crate) fn md5(text: &[u8]) -> [u8; 16] {
    let sines = sines();
    let mut state = [0x6745_2301_u32, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    let bits = 8 * text.len() as u64;
    let mut padded = text.to_vec();
    padded.push(0x80);
    padded.resize((padded.len() + 8).next_multiple_of(64), 0);
    let end = padded.len() - 8;
    padded[end..].copy_from_slice(&bits.to_le_bytes());
    for block in padded.chunks_exact(64) {
        let word = |at: usize| {
            u32::from_le_bytes([
                block[4 * at],
                block[4 * at + 1],
                block[4 * at + 2],
                block[4 * at + 3],
            ])
        };
        let [mut a, mut b, mut c, mut d] = state;
        for i in 0..64 {
            let (mixed, at) = match i / 16 {
                0 => (b & c | !b & d, i),
                1 => (d & b | !d & c, 5 * i + 1),
                2 => (b ^ c ^ d, 3 * i + 5),
                _ => (c ^ (b | !d), 7 * i),
            };
            let sum = a.wrapping_add(mixed).wrapping_add(sines[i]).wrapping_add(word(at % 16));
            (a, d, c) = (d, c, b);
            b = b.wrapping_add(sum.rotate_left(SHIFTS[i / 16][i % 4]));
        }
        for (state, add) in state.iter_mut().zip([a, b, c, d]) {
            *state = state.wrapping_add(add);
        }
    }
    let mut digest = [0; 16];
    for (bytes, word) in digest.chunks_exact_mut(4).zip(state) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    digest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::hex;

    #[test]
    fn the_suite_of_rfc_1321_a_5() {
        let digits = "1234567890".repeat(8);
        let cases = [
            ("", "d41d8cd98f00b204e9800998ecf8427e"),
            ("a", "0cc175b9c0f1b6a831c399e269772661"),
            ("message digest", "f96b697d7cb7938d525a2f31aaf161d0"),
            ("abcdefghijklmnopqrstuvwxyz", "c3fcd3d76192e4007dfb496cca67e13b"),
            (digits.as_str(), "57edf4a22be3c955ac49da2e2107b67a"),
        ];
        for (text, digest) in cases {
            assert_eq!(hex(&md5(text.as_bytes())), digest, "{text}");
        }
    }

    #[test]
    fn every_length_of_the_last_block() {
        // Against the command of coreutils: `printf %0Nd 0 | md5sum`.
        let cases = [
            (55, "d7fe636bd28e2ee2ba4d6c5898318699"),
            (56, "ce992c2ad906967c63c3f9ab0c2294a9"),
            (63, "5703db92acb9d45e3975822c9206453f"),
            (64, "10eab6008d5642cf42abd2aa41f847cb"),
            (65, "f8c702aaa8c658413a4efb3a614d7707"),
        ];
        for (len, digest) in cases {
            assert_eq!(hex(&md5(&vec![b'0'; len])), digest, "{len}");
        }
    }
}
