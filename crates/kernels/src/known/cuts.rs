//! Cut trees: one of two levels that looks at one bit of the destination, then at one of the ports, and one without
//! cuts; and trees of masks.

use super::classify::{Case, NONE};

/// Source and shift, destination and shift, ports from and lengths, protocol and mask, match.
type Rule = ([u32; 2], [u32; 2], [u32; 2], [u32; 2], u64);

const ANY: [u32; 2] = [0, 32];
const PORTS: [u32; 2] = [0, u32::MAX];

fn block(rules: &[Rule]) -> Vec<u32> {
    let mut block = vec![0; 64];
    for lane in 0..8 {
        let nothing = (ANY, ANY, PORTS, [0, 0], NONE);
        let (src, dst, ports, proto, found) = rules.get(lane).copied().unwrap_or(nothing);
        let misc = proto[0] << 24 | proto[1] << 16 | dst[1] << 8 | src[1];
        for (column, word) in [src[0], dst[0], ports[0], ports[1], misc].into_iter().enumerate() {
            block[8 * column + lane] = word;
        }
        block[48 + 2 * lane] = found as u32;
        block[49 + 2 * lane] = (found >> 32) as u32;
    }
    block
}

fn node(bits: [u64; 2], first: u32) -> [u32; 8] {
    let [a, b] = bits;
    [a as u32, (a >> 32) as u32, b as u32, (b >> 32) as u32, a.count_ones(), first, 0, 0]
}

/// Rules of cut trees over headers of four words.
pub fn cuts() -> Case {
    let mut image = vec![0_u32; 16 * 8];
    let mut put = |at: usize, words: &[u32]| {
        image.resize(image.len().max(at + words.len()), 0);
        image[at..at + words.len()].copy_from_slice(words);
    };
    put(0, &[0x6375_7401, 4, 2, 2, 64]);
    // The first tree: bit 0 of the destination; then, for the even ones, the highest bit of the destination's port.
    put(16, &node([1, 0], 64));
    put(64, &node([0, 0], 80));
    put(72, &node([0, 0], 88));
    put(80, &node([0, 1 << 47], 96));
    put(88, &node([0, 0], 98));
    // The second tree, for all headers.
    put(24, &node([0, 0], 104));
    put(104, &node([0, 0], 112));
    put(112, &node([0, 0], 99));
    put(96, &[8 << 8 | 1, 12 << 8 | 1, 16 << 8 | 2, 24 << 8 | 1]);
    let exact = |port: u32| [port, 0xffff_0000];
    let (tcp, udp) = ([6, 0xff], [17, 0xff]);
    put(8 * 16, &block(&[(ANY, [0x0a00_0000, 8], exact(80), tcp, 5)]));
    put(
        12 * 16,
        &block(&[([0xc0a8_0100, 8], [0x0a00_0000, 8], exact(0x8050), [1, 1], 2 << 32 | 3)]),
    );
    let odd: Vec<Rule> = (0..9)
        .map(|n| (ANY, [2 * n + 1, 0], [1000, 0xffff_0000 | n], udp, u64::from(n) << 32 | 77))
        .collect();
    put(16 * 16, &[block(&odd[..8]), block(&odd[8..])].concat());
    put(24 * 16, &block(&[(ANY, ANY, [0x0400_0000, 0x00ff_ffff], [0, 0], 3 << 32)]));

    let cases = [
        ([1, 0x0a00_0002, 80, 6 << 24], 5),
        ([1, 0x0a00_0002, 81, 6 << 24], NONE),
        ([1, 0x0a00_0002, 80, 17 << 24], NONE),
        ([1, 0x0a00_0102, 0x0400_0050, 6 << 24], 3 << 32),
        ([1, 0x0a00_0002, 0x0400_0050, 6 << 24], 5),
        ([0xc0a8_01ff, 0x0a00_0002, 0x8050, 17 << 24], 2 << 32 | 3),
        ([0xc0a8_01ff, 0x0a00_0002, 0x04ff_8050, 7 << 24], 2 << 32 | 3),
        ([0xc0a8_01ff, 0x0a00_0002, 0x04ff_8050, 2 << 24], 3 << 32),
        ([0xc0a8_02ff, 0x0a00_0002, 0x8050, 17 << 24], NONE),
        ([0, 1, 1000, 17 << 24], 77),
        ([0, 1, 1001, 17 << 24], NONE),
        ([0, 17, 1008, 17 << 24], 8 << 32 | 77),
        ([0, 17, 0x0500_03f0, 17 << 24], 8 << 32 | 77),
        ([0, 19, 1000, 17 << 24], NONE),
        ([0, 19, 0x0480_0000, 0], 3 << 32),
    ];
    let (headers, answers) =
        cases.into_iter().map(|(header, answer)| (header.to_vec(), answer)).unzip();
    Case { headers, answers, image }
}

/// Rules of values and masks over headers of `words` words, which look at the first and the last one: a tree that cuts at the lowest bit
/// of the last word, and one without cuts whose leaf has two blocks.
pub(crate) fn masks(words: usize) -> Case {
    let (last, block_words) = (words - 1, 16 * (1 + words));
    // First word and its mask, last word and its mask, match.
    let block = |rules: &[([u32; 2], [u32; 2], u64)]| {
        let mut block = vec![0_u32; block_words];
        for lane in 0..8 {
            let (first, second, found) = rules.get(lane).copied().unwrap_or(([0; 2], [0; 2], NONE));
            block[2 * lane] = found as u32;
            block[2 * lane + 1] = (found >> 32) as u32;
            for (word, [value, mask]) in [(0, first), (last, second)] {
                block[16 * (1 + word) + lane] = value;
                block[16 * (1 + word) + 8 + lane] = mask;
            }
        }
        block
    };
    let mut image = vec![0_u32; 16 * 8];
    let mut put = |at: usize, words: &[u32]| {
        image.resize(image.len().max(at + words.len()), 0);
        image[at..at + words.len()].copy_from_slice(words);
    };
    // Cut at the last word, then at the first; no others.
    let picked = 0xffff_0000 | last as u32;
    put(0, &[0x6375_7402, words as u32, 2, 1, block_words as u32, words as u32, picked]);
    // Leaves begin behind nodes and cells.
    let lines = 1 + words as u32;
    let leaf = |number: u32| 10 + number * lines;
    put(16, &node([1 << 32, 0], 64));
    put(24, &node([0, 0], 80));
    put(64, &node([0, 0], 96));
    put(72, &node([0, 0], 97));
    put(80, &node([0, 0], 98));
    put(96, &[leaf(0) << 8 | 1, leaf(1) << 8 | 1, leaf(2) << 8 | 2]);
    let exact = |value: u32| [value, u32::MAX];
    put(
        16 * leaf(0) as usize,
        &block(&[(exact(7), [0x10, 0xff], 1), ([0, 0], [0, 1], 5 << 32 | 2)]),
    );
    put(16 * leaf(1) as usize, &block(&[([0x700, 0xf00], exact(0x21), 2 << 32 | 3)]));
    let many: Vec<_> =
        (0..9).map(|n| (exact(100 + n), [0, 0], u64::from(n) << 32 | u64::from(40 + n))).collect();
    put(16 * leaf(2) as usize, &[block(&many[..8]), block(&many[8..])].concat());
    let cases = [
        ((7, 0xab10), 1),
        ((8, 0xab10), 5 << 32 | 2),
        ((7, 0xab12), 5 << 32 | 2),
        ((0x1720, 0x21), 2 << 32 | 3),
        ((0x1620, 0x21), NONE),
        ((0x1720, 0x23), NONE),
        ((100, 0x23), 40),
        ((102, 0x20), 2 << 32 | 42),
        ((107, 0x20), 5 << 32 | 2),
        ((108, 0x23), 8 << 32 | 48),
        ((109, 0x23), NONE),
    ];
    let header = |(first, second): (u32, u32)| {
        // What no rule looks at.
        let mut header = vec![0x5555_5555; words];
        (header[0], header[last]) = (first, second);
        header
    };
    let (headers, answers) = cases.into_iter().map(|(ends, answer)| (header(ends), answer)).unzip();
    Case { headers, answers, image }
}
