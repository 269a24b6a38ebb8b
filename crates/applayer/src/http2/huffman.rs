//! The code of HPACK's strings (RFC 7541 Appendix B). It is canonical: lengths of codes say all.

/// Bits of the code of each byte. The end of a string, which is in none, has 30.
#[rustfmt::skip]
const BITS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
     6, 10, 10, 12, 13,  6,  8, 11, 10, 10,  8, 11,  8,  6,  6,  6,
     5,  5,  5,  6,  6,  6,  6,  6,  6,  6,  7,  8, 15,  6, 12, 10,
    13,  6,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,
     7,  7,  7,  7,  7,  7,  7,  7,  8,  7,  8, 13, 19, 13, 14,  6,
    15,  5,  6,  5,  6,  5,  6,  6,  6,  5,  7,  7,  6,  6,  6,  5,
     6,  7,  6,  5,  5,  6,  7,  7,  7,  7,  7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
];

const BITS_MIN: usize = 5;
const BITS_MAX: usize = 30;

/// Codes in their order: by length, then by byte.
struct Codes {
    bytes: [u8; 256],
    /// By length: the code that follows the last one, and the place of its byte if there were one.
    end: [u32; BITS_MAX + 1],
    place: [u32; BITS_MAX + 1],
}

const CODES: Codes = {
    let mut codes = Codes { bytes: [0; 256], end: [0; BITS_MAX + 1], place: [0; BITS_MAX + 1] };
    let (mut code, mut place, mut bits) = (0, 0, 1);
    while bits <= BITS_MAX {
        code <<= 1;
        let mut byte = 0;
        while byte < 256 {
            if BITS[byte] as usize == bits {
                codes.bytes[place] = byte as u8;
                place += 1;
                code += 1;
            }
            byte += 1;
        }
        codes.end[bits] = code;
        codes.place[bits] = place as u32;
        bits += 1;
    }
    // The one code that is left is that of the end.
    assert!(code + 1 == 1 << BITS_MAX);
    codes
};

/// The bytes of a string; `None` if it has the code of the end, or does not end with its first bits, fewer than eight.
pub(super) fn decode(coded: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(coded.len() * 8 / BITS_MIN);
    let (mut window, mut bits, mut rest) = (0_u64, 0_usize, coded.iter());
    loop {
        while bits < BITS_MAX
            && let Some(byte) = rest.next()
        {
            (window, bits) = (window << 8 | u64::from(*byte), bits + 8);
        }
        let code = |len: usize| (window >> (bits - len) & ((1 << len) - 1)) as u32;
        let len = (BITS_MIN..=BITS_MAX.min(bits)).find(|len| code(*len) < CODES.end[*len]);
        let Some(len) = len else {
            // Less than a code is left, all ones.
            return (bits < 8 && code(bits) == (1 << bits) - 1).then_some(out);
        };
        let back = CODES.end[len] - code(len);
        out.push(CODES.bytes[(CODES.place[len] - back) as usize]);
        bits -= len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The twin: codes as the table of the RFC has them, one behind the other.
    fn encode(bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let (mut window, mut len) = (0_u64, 0);
        for byte in bytes {
            let bits = usize::from(BITS[usize::from(*byte)]);
            let before = |other: &usize| {
                let own = usize::from(BITS[*other]);
                own < bits || own == bits && *other < usize::from(*byte)
            };
            // Each code before it takes its share of all strings of bits.
            let code: u64 = (0..256)
                .filter(before)
                .map(|other| 1_u64 << (BITS_MAX - usize::from(BITS[other])))
                .sum();
            (window, len) = (window << bits | code >> (BITS_MAX - bits), len + bits);
            while len >= 8 {
                out.push((window >> (len - 8)) as u8);
                len -= 8;
            }
            window &= (1 << len) - 1;
        }
        if len > 0 {
            out.push((window << (8 - len)) as u8 | (0xff >> len));
        }
        out
    }

    #[test]
    fn codes_of_the_rfc() {
        assert_eq!(encode(b"0"), [0x07]);
        assert_eq!(encode(b"www.example.com")[..4], [0xf1, 0xe3, 0xc2, 0xe5]);
        let code = |byte: u8| {
            let coded = encode(&[byte; 4]);
            let bits = usize::from(BITS[usize::from(byte)]);
            let all = coded.iter().take(4).fold(0_u64, |all, byte| all << 8 | u64::from(*byte));
            all >> (32 - bits)
        };
        for (byte, expected) in
            [(0, 0x1ff8), (b'&', 0xf8), (b'\\', 0x7fff0), (127, 0xffffffc), (192, 0x3ffffe0)]
        {
            assert_eq!(code(byte), expected, "{byte}");
        }
        assert_eq!((code(255), code(22)), (0x3ffffee, 0x3ffffffe));
    }

    #[test]
    fn strings_come_back() {
        let mut state = u64::from(std::process::id());
        for len in 0..2000 {
            let bytes: Vec<u8> = (0..len % 97)
                .map(|_| {
                    state = next(state);
                    // Half of them are text.
                    if len % 2 == 0 { (state >> 32) as u8 & 0x7f } else { (state >> 32) as u8 }
                })
                .collect();
            assert_eq!(decode(&encode(&bytes)).as_deref(), Some(&bytes[..]), "{bytes:?}");
        }
    }

    fn next(state: u64) -> u64 {
        state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407)
    }

    #[test]
    fn ends_that_are_none() {
        // A whole byte of padding, padding of zeros, the code of the end.
        for coded in [&[0x07, 0xff][..], &[0x00], &[0xff; 4]] {
            assert_eq!(decode(coded), None, "{coded:x?}");
        }
        assert_eq!(decode(&[]), Some(Vec::new()));
    }
}
