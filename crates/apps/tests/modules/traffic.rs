//! TCP connections whose segments come in another order, twice, with overlaps, with holes that never close, and in fragments;
//! and datagrams between them, some in fragments.

use testkit::frames::Frame;
use teststages::harness::Random;

const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// Frames, in the order in which they come.
pub(crate) fn frames(random: &mut Random) -> Vec<Vec<u8>> {
    let mut lines: Vec<Vec<Vec<u8>>> =
        vec![(0..random.below(60)).flat_map(|i| datagram(random, i as u16)).collect()];
    for number in 0..random.between(2, 7) {
        lines.push(connection(random, number as u8 + 1));
    }
    let mut all = Vec::new();
    while lines.iter().any(|line| !line.is_empty()) {
        let at = random.below(lines.len());
        let burst = random.between(1, 4).min(lines[at].len());
        all.extend(lines[at].drain(..burst));
    }
    all
}

/// A datagram, whole or in two fragments.
fn datagram(random: &mut Random, number: u16) -> Vec<Vec<u8>> {
    let host = format!("192.0.2.{}", 1 + number % 7);
    let frame = Frame::new().ipv4(&host, "198.51.100.1");
    let mut payload = [number as u8; 48];
    payload[random.below(48)] = random.word() as u8;
    if random.one_in(3) {
        let whole = frame.udp(5000 + number % 3, 53, &payload).bytes();
        let mut parts = fragments(&whole, 8 * random.between(1, 6), number);
        random.shuffle(&mut parts);
        return parts;
    }
    vec![frame.udp(5000 + number % 3, 53, &payload[..20]).padded(60)]
}

/// A connection, and another one from the same port behind it.
fn connection(random: &mut Random, number: u8) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for _ in 0..random.between(1, 2) {
        let starts = [random.word() as u32, random.word() as u32];
        all.push(segment(number, false, SYN, starts[0], 0, &[]));
        if random.one_in(2) {
            all.push(segment(number, true, SYN | ACK, starts[1], starts[0].wrapping_add(1), &[]));
        }
        let sides = [false, true].map(|is_reply| {
            let len = random.below(if is_reply { 1500 } else { 4000 });
            side(random, number, is_reply, starts, len)
        });
        let [mut client, mut server] = sides;
        while !client.is_empty() || !server.is_empty() {
            let own = if random.one_in(3) { &mut server } else { &mut client };
            let burst = random.between(1, 5).min(own.len());
            all.extend(own.drain(..burst));
        }
        if random.one_in(3) {
            let next = starts[0].wrapping_add(1);
            all.push(segment(number, false, RST | ACK, next, starts[1], &[]));
        }
    }
    all
}

/// The segments of a side, mixed up.
fn side(
    random: &mut Random,
    number: u8,
    is_reply: bool,
    starts: [u32; 2],
    len: usize,
) -> Vec<Vec<u8>> {
    let [own, other] = if is_reply { [starts[1], starts[0]] } else { starts };
    let bytes: Vec<u8> = (0..len).map(|_| random.word() as u8).collect();
    let (mut pieces, mut at) = (Vec::new(), 0);
    while at < len {
        let end = (at + random.between(1, 700)).min(len);
        // Some begin before the last one ended.
        let begin = if random.one_in(6) { at.saturating_sub(random.below(90)) } else { at };
        pieces.push((begin, end));
        at = end;
    }
    for at in 0..pieces.len() {
        if random.one_in(3) {
            let other = (at + random.below(6)).min(pieces.len() - 1);
            pieces.swap(at, other);
        }
    }
    if random.one_in(3) && !pieces.is_empty() {
        let lost = random.below(pieces.len());
        pieces.remove(lost);
    }
    for _ in 0..random.below(3) {
        if !pieces.is_empty() {
            let again = pieces[random.below(pieces.len())];
            pieces.insert(random.below(pieces.len() + 1), again);
        }
    }
    let mut all = Vec::new();
    for (begin, end) in pieces {
        let sequence = own.wrapping_add(1).wrapping_add(begin as u32);
        let acknowledged = other.wrapping_add(1).wrapping_add(random.below(len.max(1)) as u32);
        let frame = segment(number, is_reply, ACK, sequence, acknowledged, &bytes[begin..end]);
        match random.one_in(8) && end - begin > 40 {
            true => {
                let mut parts = fragments(&frame, 8 * random.between(3, 4), random.word() as u16);
                random.shuffle(&mut parts);
                all.extend(parts);
            }
            false => all.push(frame),
        }
    }
    all
}

fn sum(bytes: &[u8], begin: u32) -> u16 {
    let words =
        bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let mut sum: u32 = begin + words.sum::<u32>();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

fn segment(
    number: u8,
    is_reply: bool,
    flags: u8,
    sequence: u32,
    acknowledged: u32,
    bytes: &[u8],
) -> Vec<u8> {
    let ends = [([192, 0, 2, number], 4000u16), ([198, 51, 100, 1], 80)];
    let [from, to] = if is_reply { [ends[1], ends[0]] } else { ends };
    let mut frame = vec![2, 0, 0, 0, 1, 1, 2, 0, 0, 0, 1, 2, 8, 0];
    let total = (40 + bytes.len()) as u16;
    frame.extend([0x45, 0]);
    frame.extend(total.to_be_bytes());
    frame.extend([0, 1, 0, 0, 64, 6, 0, 0]);
    frame.extend(from.0);
    frame.extend(to.0);
    let header = sum(&frame[14..34], 0);
    frame[24..26].copy_from_slice(&header.to_be_bytes());
    frame.extend(from.1.to_be_bytes());
    frame.extend(to.1.to_be_bytes());
    frame.extend(sequence.to_be_bytes());
    frame.extend(if flags & ACK == 0 { 0 } else { acknowledged }.to_be_bytes());
    frame.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    frame.extend(bytes);
    let pseudo = [&from.0[..], &to.0].concat();
    let begin =
        pseudo.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum::<u32>();
    let checksum = sum(&frame[34..], begin + 6 + u32::from(total) - 20);
    frame[50..52].copy_from_slice(&checksum.to_be_bytes());
    frame
}

/// Two fragments of a frame, the first of which has so many bytes of its payload.
fn fragments(frame: &[u8], first: usize, identification: u16) -> Vec<Vec<u8>> {
    let part = |from: usize, to: usize, field: u16| {
        let mut made = frame[..34].to_vec();
        made[16..18].copy_from_slice(&((20 + to - from) as u16).to_be_bytes());
        made[18..20].copy_from_slice(&identification.to_be_bytes());
        made[20..22].copy_from_slice(&field.to_be_bytes());
        made[24..26].fill(0);
        let header = sum(&made[14..34], 0);
        made[24..26].copy_from_slice(&header.to_be_bytes());
        made.extend(&frame[34 + from..34 + to]);
        made
    };
    let end = frame.len() - 34;
    vec![part(0, first, 0x2000), part(first, end, (first / 8) as u16)]
}
