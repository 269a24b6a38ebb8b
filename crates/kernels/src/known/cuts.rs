//! Cut trees: one of two levels that looks at one bit of the destination, then at one of the ports, and one without
//! cuts.

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
