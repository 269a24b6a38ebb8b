//! TCP segments of all shapes, right and wrong, drawn quickly.

use packet::checksum::{finish, internet_checksum, partial_sum};

/// A frame with a TCP segment: up to two tags, IPv4 with options or IPv6, options of TCP, up to `most` bytes of data; often
/// padded, damaged, cut, or with a length that is none. `word` draws.
pub(crate) fn frame(word: &mut dyn FnMut() -> u64, most: usize) -> Vec<u8> {
    let mut below = |n: usize| (word() % n as u64) as usize;
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    for _ in 0..[0, 0, 0, 1, 2][below(5)] {
        frame.extend([0x81, 0, 0, 1 + below(9) as u8]);
    }
    let is_v6 = below(3) == 0;
    let options = 4 * [0, 0, 3, 10][below(4)];
    let len = [0, 1, below(20), below(most.min(1400) + 1), below(most + 1)][below(5)];
    let mut tcp = Vec::new();
    tcp.extend([0, 80 + below(3) as u8, 0x9c, 0x40 + below(9) as u8]);
    tcp.extend((0..8).map(|_| below(256) as u8));
    tcp.extend([(((20 + options) / 4) << 4) as u8 | below(2) as u8, below(256) as u8]);
    tcp.extend((0..2).map(|_| below(256) as u8));
    tcp.extend([0, 0]);
    tcp.extend((0..2 + options + len).map(|_| below(256) as u8));
    if below(12) == 0 {
        tcp[12] = below(256) as u8; // a header of another length
    }
    let (src, dst) = match is_v6 {
        false => (vec![192, 0, 2, below(9) as u8], vec![198, 51, 100, below(9) as u8]),
        true => {
            let address =
                |last: usize| [&[0x20, 1, 0xd, 0xb8][..], &[0; 11], &[last as u8]].concat();
            (address(1 + below(9)), address(11 + below(9)))
        }
    };
    let pseudo = partial_sum(&src) + partial_sum(&dst) + 6;
    let sum =
        finish(pseudo + (tcp.len() >> 16) as u32 + (tcp.len() & 0xffff) as u32 + partial_sum(&tcp));
    tcp[16..18].copy_from_slice(&sum.to_be_bytes());
    if is_v6 {
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        frame.extend((tcp.len() as u16).to_be_bytes());
        frame.extend([6, 64]);
        frame.extend(src.iter().chain(&dst));
    } else {
        let words = [5, 5, 5, 7][below(4)];
        let mut header = vec![0x40 | words as u8, 0];
        header.extend(((4 * words + tcp.len()) as u16).to_be_bytes());
        header.extend([0, 1, if below(9) == 0 { 0x20 } else { 0x40 }, 0, 64, 6, 0, 0]);
        header.extend(src.iter().chain(&dst));
        header.resize(4 * words, 1);
        let sum = internet_checksum(&header).to_be_bytes();
        header[10..12].copy_from_slice(&sum);
        frame.extend([8, 0]);
        frame.extend(header);
    }
    frame.extend(tcp);
    if below(3) == 0 {
        frame.extend((0..below(30)).map(|_| below(256) as u8));
    }
    if below(4) == 0 {
        let at = below(frame.len());
        frame[at] ^= 1 << below(8);
    }
    if below(10) == 0 {
        frame.truncate(below(frame.len() + 1));
    }
    frame
}
