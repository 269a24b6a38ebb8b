//! The filter language: what matches, how it binds, and where its errors point.

use chunk::{HugePages, Packet, Pool, Region};
use packet::filter::Filter;
use packet::{arp::ArpPacket, decode};
use proptest::prelude::*;

/// Named frames, all of the same six addresses.
fn frames() -> Vec<(&'static str, Vec<u8>)> {
    let link = || etherparse::PacketBuilder::ethernet2([2; 6], [4; 6]);
    let v4 = || link().ipv4([10, 0, 0, 1], [192, 0, 2, 9], 64);
    let ip6 = |n: u128| (0x2001_0db8u128 << 96 | n).to_be_bytes();
    let id = |n| etherparse::VlanId::try_new(n).unwrap();
    let write = |step: etherparse::PacketBuilderStep<etherparse::UdpHeader>, len: usize| {
        let mut frame = Vec::new();
        step.write(&mut frame, &vec![0; len]).unwrap();
        frame
    };
    let mut tcp = Vec::new();
    v4().tcp(40_000, 80, 1, 1).write(&mut tcp, &[]).unwrap();
    let mut ping = Vec::new();
    v4().icmpv4_echo_request(1, 1).write(&mut ping, &[]).unwrap();
    let mut ping6 = Vec::new();
    link().ipv6(ip6(1), ip6(2), 64).icmpv6_echo_request(1, 1).write(&mut ping6, &[]).unwrap();
    let mut esp = Vec::new();
    v4().write(&mut esp, 50.into(), &[0; 20]).unwrap();
    let mut arp = [&[0xff; 6][..], &[2; 6], &[8, 6], &[0; 28]].concat();
    ArpPacket::request(packet::MacAddr([2; 6]), [10, 0, 0, 1].into(), [10, 0, 0, 7].into())
        .emit(&mut arp[14..])
        .unwrap();
    vec![
        ("tcp", tcp),
        ("udp", write(v4().udp(53, 5353), 100)),
        ("udp6", write(link().ipv6(ip6(1), ip6(2), 64).udp(53, 5353), 0)),
        (
            "vlan",
            write(link().single_vlan(id(10)).ipv4([10, 1, 0, 1], [10, 1, 0, 2], 9).udp(1, 2), 0),
        ),
        (
            "qinq",
            write(
                link().double_vlan(id(10), id(20)).ipv4([10, 1, 0, 1], [10, 1, 0, 2], 9).udp(1, 2),
                0,
            ),
        ),
        ("ping", ping),
        ("ping6", ping6),
        ("esp", esp),
        ("arp", arp),
        ("junk", vec![0; 60]),
    ]
}

#[test]
fn matches() {
    let all = "tcp udp udp6 vlan qinq ping ping6 esp arp junk";
    let cases = [
        ("", all),
        ("tcp", "tcp"),
        ("udp", "udp udp6 vlan qinq"),
        ("icmp", "ping"),
        ("icmp6", "ping6"),
        ("esp", "esp"),
        ("arp", "arp"),
        ("ip6", "udp6 ping6"),
        ("ip", "tcp udp vlan qinq ping esp"),
        ("host 10.0.0.1", "tcp udp ping esp arp"),
        ("10.0.0.1", "tcp udp ping esp arp"),
        ("src host 10.0.0.1", "tcp udp ping esp arp"),
        ("dst host 10.0.0.1", ""),
        ("dst 10.0.0.7", "arp"),
        ("ip host 10.0.0.1", "tcp udp ping esp"),
        ("host 2001:db8::2", "udp6 ping6"),
        ("src host 2001:db8::2", ""),
        ("net 10.0.0.0/8", "tcp udp vlan qinq ping esp arp"),
        ("dst net 10.0.0.0/8", "vlan qinq arp"),
        ("net 0.0.0.0/0", "tcp udp vlan qinq ping esp arp"),
        ("net ::/0", "udp6 ping6"),
        ("net 2001:db8::/127", "udp6 ping6"),
        ("src net 2001:db8::2/127", ""),
        ("net 192.0.2.9/32", "tcp udp ping esp"),
        ("port 53", "udp udp6"),
        ("src port 53", "udp udp6"),
        ("dst port 53", ""),
        ("dst port 80", "tcp"),
        ("tcp port 53", ""),
        ("udp src port 53", "udp udp6"),
        ("ip6 port 5353", "udp6"),
        ("vlan", "vlan qinq"),
        ("vlan 10", "vlan qinq"),
        ("vlan 20", "qinq"),
        ("vlan 30", ""),
        ("vlan and port 2", "vlan qinq"),
        ("greater 142", "udp"),
        ("greater 143", ""),
        ("less 42", "vlan-no ping arp"),
        ("less 41", ""),
        ("not ip and not ip6", "arp junk"),
        ("!ip&&!ip6", "arp junk"),
        ("not not tcp", "tcp"),
        ("tcp or udp and port 80", "tcp"), // from left to right: (tcp or udp) and port 80
        ("tcp or (udp and port 80)", "tcp"),
        ("tcp or arp and host 10.0.0.7", "arp"),
        ("tcp or (arp and host 10.0.0.7)", "tcp arp"),
        ("not (tcp or udp)", "ping ping6 esp arp junk"),
        ("not tcp or udp", "udp udp6 vlan qinq ping ping6 esp arp junk"),
        ("((((icmp))))", "ping"),
        ("10.0.0.7 or 10.1.0.1", "vlan qinq arp"),
        ("tcp and 10.0.0.1", "tcp"),
        ("port 80 and 10.0.0.1", "tcp"),
        ("net 10.1", "vlan qinq"),
        ("net 192/8", "tcp udp ping esp"),
        ("net 10.1.0.0 mask 255.255.0.0", "vlan qinq"),
        ("ether src 02:02:02:02:02:02 and tcp", "tcp"),
        ("ether dst 4:4:4:4:4:4 and tcp", "tcp"),
        ("vlan 10 and ether host 0404.0404.0404", "vlan qinq"),
        ("portrange 50-60", "udp udp6"),
        ("ip proto tcp", "tcp"),
        ("icmp[icmptype] == icmp-echo", "ping"),
        ("icmp6[icmp6type] = icmp6-echo", "ping6"),
        ("udp[0:2] = 53", "udp"),
        ("ip[8] = 9", "vlan qinq"), // behind tags, too
        ("ether proto arp", "arp"),
        ("broadcast", "arp"),
        ("len = 142", "udp"),
        ("ether[141] = 0", "udp"),
        ("not ether[141] = 1", "udp"), // the others have no such byte
        ("tcp or ether[141] = 0", "tcp udp"),
    ];
    for (text, expected) in cases {
        let filter = Filter::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let found: Vec<&str> = frames()
            .iter()
            .filter(|(_, frame)| filter.matches(&decode(frame, frame.len()), frame))
            .map(|(name, _)| *name)
            .collect();
        let expected: Vec<&str> =
            expected.split_whitespace().filter(|name| !name.contains('-')).collect();
        assert_eq!(found, expected, "{text}");
    }
}

/// The first cell of a frame, with the length of the whole.
#[test]
fn cells() {
    let frame = &frames()[1].1;
    let cell = &frame[..60];
    let d = decode(cell, frame.len());
    let greater = Filter::parse("udp greater 142").is_err();
    assert!(greater, "two tests need a word between them");
    let filter = Filter::parse("udp and greater 142").unwrap();
    assert!(filter.matches_cell(&d, cell, frame.len()));
    assert!(!filter.matches(&d, cell));
}

/// Length and bytes are those of the whole frame, however many cells it is in.
#[test]
fn chains_of_cells() {
    let (_, depot) = Region::new(16, HugePages::Off).unwrap();
    let mut pool = Pool::new(depot, 4);
    let mut frame = frames()[1].1.clone();
    frame.resize(9000, 0);
    frame[5000..5004].copy_from_slice(&[1, 2, 3, 4]);
    for (before, word) in [(0, 1), (1000, 2)] {
        // Once with the word in one cell, once across two.
        let mut packet = Packet::copy_from(&mut pool, &frame[..5000 - before]).unwrap();
        let rest = Packet::copy_from(&mut pool, &frame[5000 - before..]).unwrap();
        assert!(packet.append(rest).is_ok() && packet.cells() > 4, "{word}");
        let d = decode(packet.data(), packet.frame_len());
        let matches = |text: &str| Filter::parse(text).unwrap().matches_packet(&d, &packet);
        for text in [
            "udp and greater 9000",
            "not less 8999",
            "len = 9000",
            "ether[5000:4] = 0x01020304",
            "ether[8996:4] = 0",
        ] {
            assert!(matches(text), "{text}");
        }
        for text in ["greater 9001", "less 8999", "ether[5000] = 2", "ether[8997:4] = 0"] {
            assert!(!matches(text), "{text}");
        }
        packet.free(&mut pool);
    }
}

#[test]
fn errors() {
    let deep = "(".repeat(65);
    let minus = "-".repeat(65);
    let brackets = "ip[".repeat(65);
    let numbers = format!("1 = {}1{}", "len+(".repeat(17), ")".repeat(17));
    let cases = [
        ("tcpp", 1, "a test such as"),
        ("host", 5, "an IPv4 or IPv6 address"),
        ("host 10.0.0", 6, "an IPv4 or IPv6 address"),
        ("host 10.0.0.300", 6, "an IPv4 or IPv6 address"),
        ("src", 4, "`host`, `net`, `port` or an address"),
        ("src udp", 5, "`host`, `net`, `port` or an address"),
        ("net 10.0.0.300", 5, "a prefix"),
        ("net 10.0.0.0 mask", 5, "a prefix"),
        ("net 10.0.0.1 mask 255.0.0.0", 5, "a prefix without host bits"),
        ("net 10.0.0.0 mask 8", 5, "a prefix"),
        ("net 10.0.0.1/8", 5, "a prefix without host bits"),
        ("net 10.0.0.0/33", 5, "a prefix"),
        ("net 10.0.0.0/+8", 5, "a prefix"),
        ("port", 5, "a port from 0 to 65535"),
        ("port 65536", 6, "a port from 0 to 65535"),
        ("port htttp", 6, "a port from 0 to 65535, or the name of a service"),
        ("port 80 or 70000", 12, "a port from 0 to 65535"),
        ("port 80 or 10.0.0.1/8", 20, "before a prefix, `net`"),
        ("portrange 1-70000", 11, "two ports with a hyphen"),
        ("portrange a-b", 11, "two ports with a hyphen"),
        ("portrange", 10, "two ports with a hyphen"),
        ("host 10.0.0.0/8", 14, "before a prefix, `net`"),
        ("host 02:00:00:00:00:01", 6, "before a MAC address, `ether host`"),
        ("ether host 10.0.0.1", 12, "a MAC address"),
        ("ether host 02:00:00:00:00", 12, "a MAC address"),
        ("ether host 02:00:00:00:00:100", 12, "a MAC address"),
        ("ether", 6, "`host`, `src`, `dst`"),
        ("ether port 80", 7, "qualifiers that go together"),
        ("icmp port 80", 6, "qualifiers that go together"),
        ("tcp proto 6", 5, "qualifiers that go together"),
        ("ether proto 80", 13, "an EtherType"),
        ("ip proto 256", 10, "a protocol from 0 to 255"),
        ("ip proto x", 10, "a protocol from 0 to 255"),
        ("tcp broadcast", 5, "no `broadcast` after `tcp`"),
        ("80", 3, "a comparison"),
        ("tcp or 80", 10, "a comparison"),
        ("(port 80) or 443", 17, "a comparison"),
        ("icmp[0]", 8, "a comparison"),
        ("not icmp[0] and tcp", 13, "a comparison"),
        ("icmp[0] =", 10, "a number, its name"),
        ("icmp[0] = echo", 11, "a number, its name"),
        ("icmp[0] = 8 9", 13, "`and`, `or` or the end"),
        ("icmp[", 6, "a number, its name"),
        ("icmp[0 = 8", 8, "an operator, `:` and a size, or `]`"),
        ("icmp[0:3] = 8", 8, "a size of 1, 2 or 4"),
        ("esp[0] = 8", 4, "has none to count from"),
        ("tcp[0] = udp", 13, "`[` and an offset, such as udp[0]"),
        ("(tcp[0] + 1", 12, "a comparison"),
        ("1 = (2 + 3", 11, "an operator or `)`"),
        ("tcp[0] == 1 + ", 15, "a number, its name"),
        ("host a or b", 6, "an IPv4 or IPv6 address"),
        ("port (80 or)", 12, "a port"),
        ("port (80", 9, "`and`, `or` or `)`"),
        ("port +5", 6, "a port from 0 to 65535"),
        ("tcp \"", 5, "`and`, `or` or the end"),
        ("vlan 4096", 6, "a VLAN identifier"),
        ("less", 5, "a length in bytes"),
        ("greater -1", 9, "a length in bytes"),
        ("tcp udp", 5, "`and`, `or` or the end"),
        ("tcp and", 8, "a test such as"),
        ("and tcp", 1, "a test such as"),
        ("(tcp", 5, "`and`, `or` or `)`"),
        ("tcp)", 4, "`and`, `or` or the end"),
        ("()", 2, "a test such as"),
        ("not", 4, "a test such as"),
        ("tcp & udp", 5, "`and`, `or` or the end"),
        ("tcp | udp", 5, "`and`, `or` or the end"),
        ("é and tcp", 1, "a test such as"),
        ("tcp or  é", 9, "a test such as"),
        ("icmp[0] = 8 / 0", 15, "a divisor other than 0"),
        ("len % (3 - 2 - 1) = 0", 7, "a divisor other than 0"),
        ("-0 % -0 = 1", 6, "a divisor other than 0"),
        (&deep, 65, "at most 64 nested"),
        (&minus, 66, "at most 64 nested"),
        (&brackets, 195, "at most 64 nested"),
        (&numbers, 108, "at most 16 numbers at once"),
    ];
    for (text, column, expected) in cases {
        let error = Filter::parse(text).unwrap_err();
        assert_eq!(error.column, column, "{text}: {error}");
        assert!(error.expected.contains(expected), "{text}: {error}");
    }
}

/// docs/filters.md: the protocol of a fragment is that behind its header, which is found by its place.
#[test]
fn fragments_of_ipv6_are_found_by_the_byte_of_the_next_header() {
    let mut frame = [&[2; 12][..], &[0x86, 0xdd], &[0x60, 0, 0, 0, 0, 16, 44, 64]].concat();
    frame.extend([0xfd; 32]);
    // Fragment header: UDP, offset 0, more to come; then the header of UDP.
    frame.extend([17, 0, 0, 1, 0, 0, 0, 7, 0, 53, 0, 53, 0, 8, 0, 0]);
    let d = decode(&frame, frame.len());
    let matches = |text: &str| Filter::parse(text).unwrap().matches(&d, &frame);
    assert!(!matches("ip6 proto 44") && matches("ip6[6] = 44") && matches("ip6 proto 17"));
}

/// Long and deep programs stay within their stack of bits.
#[test]
fn bounds() {
    let frame = &frames()[0].1;
    let d = decode(frame, frame.len());
    let nested = format!("{}tcp{}", "udp or (".repeat(64), ")".repeat(64));
    assert!(Filter::parse(&nested).unwrap().matches(&d, frame));
    let nested = format!("{}udp{}", "tcp and (".repeat(64), ")".repeat(64));
    assert!(!Filter::parse(&nested).unwrap().matches(&d, frame));
    let long = format!("udp{}", " or tcp".repeat(10_000));
    assert!(Filter::parse(&long).unwrap().matches(&d, frame));
    let negated = format!("{}tcp", "not ".repeat(10_001));
    assert!(!Filter::parse(&negated).unwrap().matches(&d, frame));
}

proptest! {
    /// Random expressions against their value, computed beside the text.
    #[test]
    fn expressions(ops in prop::collection::vec((any::<bool>(), any::<bool>(), any::<bool>()), 1..40)) {
        let frame = &frames()[0].1;
        let d = decode(frame, frame.len());
        let (mut text, mut value) = (String::new(), false);
        for (n, (is_and, negate, truth)) in ops.into_iter().enumerate() {
            let term = format!("{}{}", if negate { "not " } else { "" }, if truth { "tcp" } else { "udp" });
            let operand = truth != negate;
            if n == 0 {
                (text, value) = (term, operand);
            } else if is_and {
                (text, value) = (format!("({text}) and {term}"), value && operand);
            } else {
                (text, value) = (format!("{term} or ({text})"), value || operand);
            }
        }
        prop_assert_eq!(Filter::parse(&text).unwrap().matches(&d, frame), value, "{}", text);
    }

    #[test]
    fn arbitrary_text(text in "\\PC{0,60}") {
        let _ = Filter::parse(&text);
    }

    #[test]
    fn arbitrary_words(words in prop::collection::vec(prop::sample::select(vec![
        "tcp", "ip", "host", "net", "port", "src", "dst", "10.0.0.1", "10.0.0.0/8", "80", "(", ")",
        "and", "or", "not", "!", "&&", "||", "vlan", "less", "greater", "::", "&", "é",
    ]), 0..12)) {
        let text = words.join(" ");
        if let Err(error) = Filter::parse(&text) {
            prop_assert!(error.column >= 1 && error.column <= text.chars().count() + 1);
            prop_assert!(!error.expected.is_empty());
        }
    }
}
