//! Frames of every kind, right and wrong, drawn quickly.

use crate::random::Random;
use packet::checksum::internet_checksum;

/// A frame: Ethernet, up to three tags, IPv4 with options, IPv6 with extension headers, ARP or anything;
/// often right, often damaged or cut.
pub(crate) fn frame(random: &mut Random) -> Vec<u8> {
    let mut frame: Vec<u8> = (0..12).map(|_| random.next() as u8).collect();
    match random.below(4) {
        0 => frame[..6].fill(0xff),
        1 => frame[0] |= 1,
        _ => frame[0] &= 0xfe,
    }
    for _ in 0..[0, 0, 0, 0, 1, 1, 2, 3][random.below(8)] {
        let tpid: u16 = [0x8100, 0x88a8, 0x9100][random.below(3)];
        frame.extend(tpid.to_be_bytes());
        frame.extend((random.next() as u16).to_be_bytes());
    }
    match random.below(16) {
        0 => arp(&mut frame, random),
        1 => {
            frame.extend((random.next() as u16).to_be_bytes());
            frame.extend((0..random.below(50)).map(|_| random.next() as u8));
        }
        2..9 => ipv4(&mut frame, random),
        _ => ipv6(&mut frame, random),
    }
    if random.below(4) == 0 {
        frame.extend((0..random.below(20)).map(|_| random.next() as u8)); // padding
    }
    if random.below(6) == 0 && !frame.is_empty() {
        let at = random.below(frame.len());
        frame[at] = random.next() as u8;
    }
    if random.below(8) == 0 {
        frame.truncate(random.below(frame.len() + 1));
    }
    frame
}

fn arp(frame: &mut Vec<u8>, random: &mut Random) {
    frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    frame.extend((0..[20, 20, 12][random.below(3)]).map(|_| random.next() as u8));
}

fn protocol(random: &mut Random) -> u8 {
    [1, 6, 6, 17, 17, 33, 50, 51, 58, 60, 89, 132, 136][random.below(13)]
}

fn payload(random: &mut Random) -> Vec<u8> {
    (0..[0, 2, 4, 7, 8, 20, 40][random.below(7)]).map(|_| random.next() as u8).collect()
}

fn ipv4(frame: &mut Vec<u8>, random: &mut Random) {
    frame.extend([8, 0]);
    let words = [5, 5, 5, 6, 8, 15][random.below(6)];
    let payload = payload(random);
    let mut header: Vec<u8> = (0..4 * words).map(|_| random.next() as u8).collect();
    header[0] = 0x40 | if random.below(16) == 0 { random.below(5) } else { words } as u8;
    let total = (header.len() + payload.len()) as u16;
    let total = if random.below(10) == 0 { random.below(80) as u16 } else { total };
    header[2..4].copy_from_slice(&total.to_be_bytes());
    let fragment = match random.below(6) {
        0 => random.next() as u16,
        1 => 0x2000,
        2 => 0x1fff,
        _ => (random.next() as u16) & 0x4000,
    };
    header[6..8].copy_from_slice(&fragment.to_be_bytes());
    header[9] = protocol(random);
    for at in [12, 16] {
        header[at] =
            [header[at], 10, 0, 127, 224, 255][[0, 0, 1, 1, 1, 1, 1, 2, 3, 4, 5][random.below(11)]];
        if random.below(20) == 0 {
            header[at..at + 4].fill([0, 0xff][random.below(2)]);
        }
    }
    header[10..12].fill(0);
    let sum = internet_checksum(&header).to_be_bytes();
    if random.below(12) > 0 {
        header[10..12].copy_from_slice(&sum);
    }
    frame.extend(header);
    frame.extend(payload);
}

fn ipv6(frame: &mut Vec<u8>, random: &mut Random) {
    frame.extend([0x86, 0xdd]);
    let mut body = Vec::new();
    let kinds = [0u8, 43, 44, 51, 60];
    let count = [0, 0, 0, 1, 2, 3, 9, 10][random.below(8)];
    let chain: Vec<u8> = (0..count)
        .map(|i| if i == 0 && random.below(3) == 0 { 0 } else { kinds[random.below(5)] })
        .collect();
    let last = protocol(random);
    for (i, kind) in chain.iter().enumerate() {
        let next = chain.get(i + 1).copied().unwrap_or(last);
        let units = [0, 0, 0, 1, 2][random.below(5)];
        let len = match kind {
            44 => 8,
            51 => (units + 2) * 4,
            _ => (units + 1) * 8,
        };
        let mut header: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
        header[..2].copy_from_slice(&[next, units as u8]);
        if *kind == 44 && random.below(2) == 0 {
            header[2..4].copy_from_slice(&[0, random.below(8) as u8]); // reserved bits too
        }
        body.extend(header);
    }
    body.extend(payload(random));
    let mut header: Vec<u8> = (0..40).map(|_| random.next() as u8).collect();
    header[0] = 0x60 | (header[0] & 15);
    let len = if random.below(10) == 0 { random.below(200) } else { body.len() };
    header[4..6].copy_from_slice(&(len as u16).to_be_bytes());
    header[6] = chain.first().copied().unwrap_or(last);
    for at in [8, 24] {
        match random.below(8) {
            0 => header[at..at + 16].fill(0),
            1 => {
                header[at..at + 16].fill(0);
                header[at + 15] = 1;
            }
            2 => header[at] = 0xff,
            _ => header[at] = 0x20,
        }
    }
    frame.extend(header);
    frame.extend(body);
}

/// Frames one behind the other, from any offset, as they lie in a payload; and where each lies.
pub(crate) fn pack(frames: &[Vec<u8>], random: &mut Random) -> (Vec<u8>, Vec<u32>) {
    let (mut payload, mut places) = (Vec::new(), Vec::new());
    for frame in frames {
        payload.resize(payload.len() + random.below(5), 0xee);
        places.push(payload.len() as u32);
        payload.extend(frame);
    }
    payload.resize(payload.len().next_multiple_of(4).max(64), 0xee);
    (payload, places)
}
