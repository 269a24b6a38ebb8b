//! Random configurations and frames: mostly sound, often odd, sometimes broken.

use std::net::IpAddr;

use apps::router::reference::Reference;
use lookup::fib::{ReversePath, RouteTarget};
use testkit::frames::Frame;

use crate::bench::Input;
use crate::scenario::{add_interface, add_route, interface, unlimited, via};

/// A generator of random numbers from a seed.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// True once in `n`.
    pub fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    pub fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.next() as u8).collect()
    }
}

/// Three ports, two subinterfaces on the second, routes of every kind.
pub fn reference(random: &mut Random) -> Reference {
    let mut reference = Reference { options: unlimited(), ..Reference::default() };
    reference.options.derive_neighbours = random.once_in(2);
    reference.options.fragment = !random.once_in(4);
    reference.options.ttl = random.pick(&[64, 255]);
    let mtu = |random: &mut Random| random.pick(&[1500, 1500, 9000, 1280, 576, 100]);
    let mut interfaces = vec![
        interface(0, 0, mtu(random), &["10.0.1.1/24", "fd00:1::1/64", "fe80::1/64"]),
        interface(1, 1, mtu(random), &["10.0.2.1/24", "10.0.3.1/31", "fe80::2/64", "fd00:2::1/64"]),
        interface(2, 2, mtu(random), &[]),
        interface(3, 1, mtu(random), &["10.0.4.1/24", "fd00:4::1/64"]),
        interface(4, 1, mtu(random), &["169.254.7.1/24", "fd00:5::1/127"]),
    ];
    interfaces[3].tags = vec![(0x8100, 7)];
    interfaces[4].tags = vec![(0x88a8, 100), (0x8100, 200)];
    for (index, mut interface) in interfaces.into_iter().enumerate() {
        interface.twin = random.once_in(3);
        interface.any_mac = random.once_in(4);
        interface.up = !random.once_in(10);
        interface.reverse_path = random.pick(&[
            ReversePath::Off,
            ReversePath::Off,
            ReversePath::Strict,
            ReversePath::Loose,
        ]);
        let _ = index;
        add_interface(&mut reference, interface);
    }
    let targets4 = [
        via(&[(0, "10.0.1.2")]),
        via(&[(1, "10.0.2.2"), (3, "10.0.4.2")]),
        via(&[(3, "10.0.4.9")]),
        via(&[(1, "fd00:2::2")]), // RFC 8950
        RouteTarget::Blackhole,
        RouteTarget::Unreachable,
        RouteTarget::Paths(Vec::new()),
    ];
    let targets6 = [
        via(&[(0, "fe80::99")]),
        via(&[(1, "fd00:2::2"), (3, "fd00:4::2"), (4, "fe80::77")]),
        via(&[(4, "fd00:5::")]),
        RouteTarget::Blackhole,
        RouteTarget::Unreachable,
    ];
    for prefix in ["192.0.2.0/24", "198.51.100.0/25", "198.51.100.64/26", "203.0.113.7/32"] {
        let target = targets4[random.below(targets4.len())].clone();
        add_route(&mut reference, prefix, target);
    }
    for prefix in ["2001:db8::/32", "2001:db8:1::/48", "2001:db8:1:2::/64", "2001:db8:1:2::9/128"] {
        let target = targets6[random.below(targets6.len())].clone();
        add_route(&mut reference, prefix, target);
    }
    if random.once_in(2) {
        add_route(&mut reference, "0.0.0.0/0", targets4[random.below(4)].clone());
        add_route(&mut reference, "::/0", targets6[random.below(3)].clone());
    }
    // Sources of packets lie behind single paths: what is sent back to them has one right way.
    add_route(&mut reference, "100.64.0.0/16", targets4[random.below(7).max(2) % 7].clone());
    add_route(
        &mut reference,
        "2001:db8:ffff::/48",
        targets6[[0, 2, 3, 4][random.below(4)]].clone(),
    );
    let known = [
        (0, "10.0.1.2"),
        (1, "10.0.2.2"),
        (3, "10.0.4.2"),
        (3, "10.0.4.9"),
        (1, "fd00:2::2"),
        (0, "fe80::99"),
        (3, "fd00:4::2"),
        (4, "fe80::77"),
        (4, "fd00:5::"),
        (0, "10.0.1.77"),
        (1, "10.0.3.0"),
        (0, "fd00:1::77"),
    ];
    for (n, (interface, address)) in known.into_iter().enumerate() {
        if !random.once_in(4) {
            let address: IpAddr = address.parse().expect("an address");
            reference.neighbours.push((interface, address, [2, 0, 0, 9, 9, n as u8]));
        }
    }
    reference
}

const SOURCES4: &[&str] = &[
    "100.64.1.1",
    "100.64.1.1",
    "100.64.2.9",
    "10.0.1.2",
    "10.0.1.50",
    "10.0.4.2",
    "10.0.2.1",
    "192.168.5.5",
    "0.0.0.0",
    "127.0.0.1",
    "224.0.0.9",
    "240.1.1.1",
    "0.1.2.3",
    "169.254.7.7",
];
const TARGETS4: &[&str] = &[
    "192.0.2.1",
    "198.51.100.1",
    "198.51.100.99",
    "203.0.113.7",
    "203.0.113.8",
    "10.0.1.77",
    "10.0.1.78",
    "10.0.1.1",
    "10.0.2.1",
    "10.0.1.255",
    "10.0.2.255",
    "10.0.3.0",
    "10.0.3.1",
    "10.0.4.3",
    "169.254.7.1",
    "169.254.7.2",
    "224.0.0.5",
    "239.1.1.1",
    "255.255.255.255",
    "127.0.0.1",
    "0.0.0.0",
    "250.0.0.1",
    "8.8.8.8",
];
const SOURCES6: &[&str] = &[
    "2001:db8:ffff::1",
    "2001:db8:ffff::1",
    "2001:db8:ffff::2",
    "fd00:1::50",
    "fd00:4::2",
    "fe80::99",
    "::",
    "::1",
    "ff02::1",
    "2002::1",
    "::ffff:10.0.1.2",
];
const TARGETS6: &[&str] = &[
    "2001:db8::1",
    "2001:db8:1::1",
    "2001:db8:1:2::3",
    "2001:db8:1:2::9",
    "fd00:1::77",
    "fd00:1::78",
    "fd00:1::1",
    "fd00:2::1",
    "fd00:5::",
    "fe80::1",
    "fe80::2",
    "fe80::5",
    "ff02::1",
    "ff02::5",
    "ff02::1:ff00:1",
    "ff05::2",
    "ff01::1",
    "::1",
    "::",
    "2600::1",
    "::ffff:8.8.8.8",
    "::9",
];

/// A frame for some port of [`reference`].
pub fn input(random: &mut Random) -> Input {
    if random.once_in(40) {
        let len = random.pick(&[5, 14, 60, 200]);
        let port = random.below(7) as u16;
        return Input { from_host: true, ..Input::new(port, random.bytes(len)) };
    }
    let port = random.pick(&[0, 0, 0, 1, 1, 2, 7]);
    let tags: &[u16] = match random.below(12) {
        0..=7 => &[],
        8 => &[7],
        9 => &[0],
        10 => &[100, 200],
        _ => random.pick(&[&[9][..], &[0, 7], &[1, 2, 3], &[100]]),
    };
    let interface = match tags {
        [7] | [0, 7] => 3,
        [100, 200] => 4,
        _ => port as u8,
    };
    let to = match random.below(12) {
        0 => [0xff; 6],
        1 => [0x33, 0x33, 0, 0, 0, 1],
        2 => [2, 0, 0, 0, 0x77, 0x77],
        _ => [2, 0, 0, 0, 0x10, interface],
    };
    let from = if random.once_in(30) { [3, 0, 0, 0, 0, 1] } else { [2, 0, 0, 0, 0x55, 1] };
    let mut frame = match random.below(10) {
        0 => arp(random),
        1..=5 => v4(random),
        _ => v6(random),
    };
    frame[..6].copy_from_slice(&to);
    frame[6..12].copy_from_slice(&from);
    for (at, &tag) in tags.iter().rev().enumerate() {
        let outer = at + 1 == tags.len() && tags.len() > 1;
        let tpid: u16 = if outer { 0x88a8 } else { 0x8100 };
        let bytes = [tpid.to_be_bytes(), (tag | 0x6000).to_be_bytes()].concat();
        frame.splice(12..12, bytes);
    }
    if random.once_in(8) {
        let at = random.below(frame.len().min(90));
        frame[at] = random.next() as u8;
    }
    if random.once_in(15) {
        frame.truncate(random.below(frame.len().min(120)));
    }
    if random.once_in(4) {
        let extra = random.pick(&[1, 6, 46, 1600, 4000]);
        frame.extend(random.bytes(extra));
    }
    Input::new(port, frame)
}

fn payload(random: &mut Random) -> Vec<u8> {
    let len = random.pick(&[0, 1, 8, 18, 60, 400, 1200, 1472, 1473, 3000, 9000, 16_400, 40_000]);
    let len = if len > 2000 && !random.once_in(3) { 30 } else { len };
    random.bytes(len)
}

fn transport(random: &mut Random, frame: Frame) -> Frame {
    let payload = payload(random);
    match random.below(8) {
        0 | 1 => frame.echo_request(random.next() as u16, 5, &payload),
        2 => frame.echo_reply(1, 2, &payload),
        3 => frame.tcp(80, random.next() as u16, 7, &payload),
        4 => frame.raw(random.pick(&[1, 58, 2, 89, 50]), &payload),
        _ => frame.udp(random.next() as u16, 53, &payload),
    }
}

fn v4(random: &mut Random) -> Vec<u8> {
    let source = if random.once_in(3) { random.pick(SOURCES4) } else { SOURCES4[0] };
    let mut frame =
        Frame::new().ipv4(source, random.pick(TARGETS4)).ttl(random.pick(&[0, 1, 2, 64, 255]));
    frame = frame.traffic_class(random.pick(&[0, 0xb8, 0xff])).identification(random.next() as u16);
    if random.once_in(3) {
        frame = frame.dont_fragment();
    }
    if random.once_in(8) {
        frame = frame.fragment(random.pick(&[0, 1, 100, 8000, 8191]), random.once_in(2));
    }
    if random.once_in(6) {
        let options: [&[u8]; 7] = [
            &[148, 4, 0, 0],
            &[1, 1, 1, 0],
            &[7, 11, 4, 1, 2, 3, 4, 5, 6, 7, 8, 0],
            &[131, 7, 4, 10, 0, 0, 1, 0],
            &[137, 3, 4, 1],
            &[1, 7, 99, 0],
            &[0x86, 6, 1, 2, 3, 4, 68, 4, 5, 0, 1, 0],
        ];
        frame = frame.ipv4_options(random.pick(&options));
    }
    transport(random, frame).bytes()
}

fn v6(random: &mut Random) -> Vec<u8> {
    let source = if random.once_in(3) { random.pick(SOURCES6) } else { SOURCES6[0] };
    let target = random.pick(TARGETS6);
    let mut frame = Frame::new().ipv6(source, target).ttl(random.pick(&[0, 1, 2, 64, 255, 255]));
    if random.once_in(5) {
        for _ in 0..random.pick(&[1, 1, 2, 3, 9]) {
            let (number, body): (u8, &[u8]) = match random.below(7) {
                0 => (0, &[0, 1, 4, 0, 0, 0, 0]),
                1 => (43, &[0, 0, 0, 0, 0, 0, 0]),
                2 => (44, &[0, 0, 0, 0, 0, 0, 9]),
                3 => (44, random.pick(&[&[0, 0x05, 0xb9, 0, 0, 0, 9], &[0, 0, 1, 0, 0, 0, 9]])),
                4 => (51, &[1, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]),
                _ => (60, &[0, 1, 4, 0, 0, 0, 0]),
            };
            frame = frame.extension(number, body);
        }
    }
    if random.once_in(3) {
        let message = nd(random, source, target);
        return frame.raw(58, &message).bytes();
    }
    transport(random, frame).bytes()
}

/// A neighbour discovery message, with a correct checksum most of the time.
fn nd(random: &mut Random, source: &str, target: &str) -> Vec<u8> {
    let kind = random.pick(&[135, 135, 135, 136, 136, 133, 134, 137]);
    let mut message = vec![kind, 0, 0, 0, random.pick(&[0, 0x40, 0x60, 0xe0]), 0, 0, 0];
    if kind == 134 {
        message.extend(random.bytes(8));
    } else if kind != 133 {
        let asked = random.pick(&["fd00:1::1", "fe80::1", "fd00:1::9", "fd00:4::1", "ff02::1"]);
        message.extend(asked.parse::<std::net::Ipv6Addr>().expect("an address").octets());
    }
    match random.below(6) {
        0 => {}
        1 => message.extend([1, 0, 1, 2, 3, 4, 5, 6]),
        2 => message.extend([2, 1, 2, 0, 0, 0, 0x66, 6]),
        3 => message.extend([1, 1, 3, 0, 0, 0, 0x66, 6]),
        _ => message.extend([1, 1, 2, 0, 0, 0, 0x66, 6]),
    }
    let (source, target): (std::net::Ipv6Addr, std::net::Ipv6Addr) =
        (source.parse().expect("an address"), target.parse().expect("an address"));
    let mut pseudo = [source.octets(), target.octets()].concat();
    pseudo.extend((message.len() as u32).to_be_bytes());
    pseudo.extend([0, 0, 0, 58]);
    pseudo.extend(&message);
    let mut sum: u32 =
        pseudo.chunks(2).map(|w| u32::from(w[0]) << 8 | w.get(1).map_or(0, |&b| b.into())).sum();
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    let checksum = if random.once_in(12) { 0x1234 } else { !(sum as u16) };
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    message
}

fn arp(random: &mut Random) -> Vec<u8> {
    let mut frame = vec![0; 12];
    frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, random.pick(&[1, 1, 1, 2, 2, 3])]);
    frame.extend(random.pick(&[
        [2, 0, 0, 0, 0x66, 6],
        [2, 0, 0, 0, 0x66, 6],
        [3, 0, 0, 0, 0, 6],
        [0; 6],
    ]));
    frame.extend(random.pick(&[
        [10, 0, 1, 9],
        [10, 0, 1, 9],
        [0; 4],
        [10, 0, 1, 1],
        [224, 0, 0, 1],
    ]));
    frame.extend([0; 6]);
    frame.extend(random.pick(&[
        [10, 0, 1, 1],
        [10, 0, 1, 1],
        [10, 0, 4, 1],
        [10, 0, 1, 9],
        [10, 0, 1, 8],
    ]));
    frame
}
