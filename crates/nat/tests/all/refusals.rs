//! What begins no session: packets to and from addresses that NAT64 does not translate, and stray segments.

use std::collections::HashSet;
use std::net::Ipv4Addr;
use std::sync::Arc;

use nat::nat64::{self, WELL_KNOWN};
use nat::rules::{Action, Own, Prefix, Rule, Rules};
use nat::translator::{Options, Refusal, Source, Timeouts};
use nat::tuple::{Message, Tuple};
use nat::{Tcp, Translator};
use packet::IpProtocol;
use proptest::prelude::*;

/// 203.0.113.1.
const OUTSIDE: u32 = 0xcb00_7101;

/// A rule of all ports from 5,000 to 5,009.
fn rule(number: u16, action: Action) -> Rule {
    Rule { number, outside: vec![], sources: vec![], protocol: None, ports: 5000..=5009, action }
}

/// Whether an address is an IPv4 host's, and whether a global one, by the words of the standard library; documentation counts as
/// global.
fn host_and_global(address: u32) -> (bool, bool) {
    let ip = Ipv4Addr::from(address);
    let [a, b, c, _] = ip.octets();
    let is_reserved = a >= 240;
    let is_none =
        a == 0 || ip.is_loopback() || ip.is_link_local() || ip.is_multicast() || is_reserved;
    let is_shared = a == 100 && (64..128).contains(&b);
    let is_benchmark = a == 198 && (b == 18 || b == 19);
    let is_assigned = (a, b, c) == (192, 0, 0);
    (!is_none, !(ip.is_private() || is_shared || is_benchmark || is_assigned))
}

/// Where everybody may answer, an IPv4 host gets what others send to its outside end, and an IPv6 host does not: the packet
/// would go to an IPv4 address of a piece of its own.
#[test]
fn strangers_do_not_reach_ipv6_hosts() {
    let nat64 = Action::Nat64 { prefix: WELL_KNOWN, to: vec![OUTSIDE] };
    let all = vec![rule(0, nat64), rule(1, Action::Source(vec![OUTSIDE + 1]))];
    let options = Options {
        sessions: 64,
        bindings_per_host: 64,
        filter_by_remote: false,
        timeouts: Timeouts::default(),
        ftp_ports: &[],
        seed: 5,
    };
    let rules = Arc::new(Rules::new(all, 1, Arc::new(Own::new(4))));
    let mut own = Translator::new(options, rules).unwrap();
    let server = ([0, 0x0808_0808], 53);
    let udp = |src, dst, family| Tuple {
        src,
        dst,
        protocol: IpProtocol::UDP.0,
        family,
        ..Tuple::default()
    };
    let hosts = [([0x2001_0db8_0001_0000, 7], 5000), ([0, 0xc0a8_0107], 5000)];
    let six = udp(hosts[0], (nat64::embed(&WELL_KNOWN, 0x0808_0808), 53), 6);
    let four = udp(hosts[1], server, 4);
    for (number, of, want) in [(0, six, None), (1, four, Some((1, hosts[1])))] {
        let made = own.begin(&of, server, 4, Source::Rule(number, 0), 100).unwrap();
        assert_eq!(own.inward(&udp(([0, 0x0808_0404], 99), made.src, 4)), want);
    }
}

proptest! {
    /// What NAT64 may translate, by the well-known prefix and by one of the network.
    #[test]
    fn nat64_reaches_hosts(
        first in prop::sample::select(vec![0u32, 9, 10, 11, 100, 126, 127, 128, 169, 172, 192, 198, 203, 223, 224, 239, 240, 255]),
        second in prop::sample::select(vec![0u32, 15, 16, 17, 18, 19, 20, 31, 32, 63, 64, 127, 128, 168, 253, 254, 255]),
        rest in prop_oneof![0u32..1024, any::<u16>().prop_map(u32::from)],
        host: u64, port: u16,
        from_prefix: bool,
    ) {
        const OWN_PREFIX: Prefix = Prefix { family: 6, address: [0x2001_0db8_0064_0000, 0], len: 96 };
        let address = first << 24 | second << 16 | rest;
        let nat64 = |prefix| Action::Nat64 { prefix, to: vec![OUTSIDE] };
        let own = Own::new(4);
        own.set(1, Some(OUTSIDE + 1));
        let rules = Rules::new(vec![rule(0, nat64(WELL_KNOWN)), rule(1, nat64(OWN_PREFIX))], 1, Arc::new(own));
        let (is_host, is_global) = host_and_global(address);
        for (number, prefix, want) in [(0, WELL_KNOWN, is_host && is_global), (1, OWN_PREFIX, is_host)] {
            let src = ([0x2001_0db8_0001_0000, host], port);
            let dst = (nat64::embed(&prefix, address), 53);
            let tuple = Tuple { src, dst, protocol: IpProtocol::UDP.0, family: 6, ..Tuple::default() };
            prop_assert_eq!(rules.nat64(&tuple), Some((number, address)));
            prop_assert_eq!(rules.may_turn(&tuple, address), want, "{}", Ipv4Addr::from(address));
            // Nor the translator's own, the router's, or back from a translated address.
            for taken in [OUTSIDE, OUTSIDE + 1] {
                prop_assert!(!rules.may_turn(&tuple, taken));
            }
            let like = if from_prefix { WELL_KNOWN } else { OWN_PREFIX };
            let looped = Tuple { src: (nat64::embed(&like, 0x0808_0808), 1), ..tuple };
            prop_assert!(!rules.may_turn(&looped, address));
        }
    }

    /// Segments with RST, and those without SYN and ACK, begin no session, and go on in one that there is.
    #[test]
    fn stray_segments_take_no_port(
        segments in prop::collection::vec((0u16..6, any::<u8>(), any::<bool>()), 1..60),
    ) {
        let options = Options {
            sessions: 64,
            bindings_per_host: 64,
            filter_by_remote: true,
            timeouts: Timeouts::default(),
            ftp_ports: &[],
            seed: 5,
        };
        let all = vec![rule(3, Action::Source(vec![OUTSIDE]))];
        let rules = Rules::new(all, 1, Arc::new(Own::new(4)));
        let mut own = Translator::new(options, Arc::new(rules)).unwrap();
        let mut begun = HashSet::new();
        for (port, tcp, is_tcp) in segments {
            let protocol = if is_tcp { IpProtocol::TCP.0 } else { IpProtocol::UDP.0 };
            let tcp = if is_tcp { tcp } else { 0 };
            let src = ([0, 0xc0a8_0101], 5000 + port % 3);
            let of = Tuple { src, dst: ([0, 0x0808_0808], 80), protocol, family: 4, ..Tuple::default() };
            let made = own.begin_by(&of, of.dst, 4, Source::Rule(3, 1), (Tcp::with(tcp), 100));
            let [is_syn, is_reset, is_ack] = [1, 2, 4].map(|bit| tcp >> bit & 1 == 1);
            if !is_tcp || begun.contains(&of) || !is_reset && (is_syn || is_ack) {
                prop_assert!(made.is_ok());
                begun.insert(of);
            } else {
                prop_assert_eq!(made, Err(Refusal::Stray));
            }
            prop_assert_eq!(own.len(), begun.len());
            let used: u32 = own.pools().map(|pool| pool.used).sum();
            prop_assert_eq!(used as usize, begun.len());
        }
    }
}

/// RFC 6146 §3.8: what an IPv6 host sends to the outside end of another one reaches that one, from its own outside end; both keep
/// their outside ends as long as the session.
#[test]
fn ipv6_hosts_reach_each_other_by_outside_ends() {
    let nat64 = Action::Nat64 { prefix: WELL_KNOWN, to: vec![OUTSIDE] };
    let options = Options {
        sessions: 64,
        bindings_per_host: 64,
        filter_by_remote: true,
        timeouts: Timeouts::default(),
        ftp_ports: &[],
        seed: 5,
    };
    let rules = Arc::new(Rules::new(vec![rule(0, nat64)], 1, Arc::new(Own::new(4))));
    let mut own = Translator::new(options, rules.clone()).unwrap();
    let udp = |src, dst, family| Tuple {
        src,
        dst,
        protocol: IpProtocol::UDP.0,
        family,
        ..Tuple::default()
    };
    let host = |last: u64, port: u16| ([0x2001_0db8_0001_0000, last], port);
    let embed = |address: u32, port: u16| (nat64::embed(&WELL_KNOWN, address), port);
    let (server, server64) = (([0, 0x0808_0808], 53), embed(0x0808_0808, 53));
    let (one, two) = (host(1, 5001), host(2, 5002));
    let to_server = own.begin(&udp(two, server64, 6), server, 4, Source::Rule(0, 0), 100).unwrap();
    let outside = to_server.src;
    assert_eq!(own.inward64(IpProtocol::UDP.0, outside), Some(two));
    assert_eq!(own.inward64(IpProtocol::TCP.0, outside), None);
    let sent = udp(one, embed(outside.0[1] as u32, outside.1), 6);
    assert!(rules.may_hairpin64(&sent, OUTSIDE) && !rules.may_hairpin64(&sent, OUTSIDE + 1));
    assert!(!rules.may_hairpin64(&sent.reversed(), OUTSIDE), "from a translated address");
    let got = own.begin(&sent, two, 6, Source::Hairpin64(0), 110).unwrap();
    assert_eq!((got.dst, got.family), (two, 6));
    assert_eq!(rules.embedded(got.src.0), Some((0, OUTSIDE)));
    assert_ne!(got.src.1, outside.1, "an outside end of its own");
    assert_eq!(own.inward64(IpProtocol::UDP.0, ([0, OUTSIDE.into()], got.src.1)), Some(one));
    // Errors of the other host are about the packet as its sender sent it.
    assert_eq!(own.restore(&got), Some(sent));
    // Nobody reaches himself.
    let self_sent = udp(two, sent.dst, 6);
    assert_eq!(own.begin(&self_sent, two, 6, Source::Hairpin64(0), 110), Err(Refusal::Conflict));
    // The session to the server ends, and the outside end stays until the other one ends.
    while !own.sweep(1 << 10, 402) {}
    assert_eq!((own.len(), own.inward64(IpProtocol::UDP.0, outside)), (1, Some(two)));
    while !own.sweep(1 << 10, 500) {}
    assert_eq!((own.len(), own.inward64(IpProtocol::UDP.0, outside)), (0, None));
    assert!(own.pools().all(|pool| pool.used == 0));
}

/// With several workers the port of an outside end says which one has it: both directions of a hairpin go there.
#[test]
fn hairpin_of_ipv6_hosts_meets_at_the_worker_of_the_port() {
    let nat64 = Action::Nat64 { prefix: WELL_KNOWN, to: vec![OUTSIDE] };
    let rules = Rules::new(vec![rule(0, nat64)], 4, Arc::new(Own::new(4)));
    let to = |host: u64, address: u32, port: u16| {
        let mut frame = vec![0; 14 + 48];
        (frame[12], frame[13], frame[14]) = (0x86, 0xdd, 0x60);
        (frame[19], frame[20], frame[21]) = (8, 17, 64);
        let dst = nat64::embed(&WELL_KNOWN, address);
        for (place, word) in
            frame[22..54].chunks_exact_mut(8).zip([0x2001_0db8_0001_0000, host, dst[0], dst[1]])
        {
            place.copy_from_slice(&word.to_be_bytes());
        }
        frame[56..58].copy_from_slice(&port.to_be_bytes());
        frame[59] = 8;
        rules.frame_hash(&frame)
    };
    for port in 5000..5064 {
        let class = u32::from(port) & 3;
        for host in 1..8 {
            assert_eq!(to(host, OUTSIDE, port), rules.hash_of(class), "{host} to {port}");
        }
    }
    // To the outside, the host decides.
    let hashes: HashSet<u32> = (1..64).map(|host| to(host, 0x0808_0808, 5000)).collect();
    assert_eq!(hashes.len(), 4);
    assert!((1..64).all(|host| to(host, 0x0808_0808, 5000) == to(host, 0x0808_0808, 5001)));
}

/// A masquerade shows the address of its port before a packet has needed it, and no port without one.
#[test]
fn pools_of_a_masquerade_have_the_addresses_of_its_ports() {
    let own = Own::new(4);
    own.set(1, Some(OUTSIDE));
    let masquerade = Rule { outside: vec![1, 2], ..rule(0, Action::Masquerade) };
    let options = Options {
        sessions: 64,
        bindings_per_host: 64,
        filter_by_remote: true,
        timeouts: Timeouts::default(),
        ftp_ports: &[],
        seed: 5,
    };
    let own =
        Translator::new(options, Arc::new(Rules::new(vec![masquerade], 1, Arc::new(own)))).unwrap();
    assert_eq!(
        own.pools().map(|pool| (pool.address, pool.used)).collect::<Vec<_>>(),
        [(OUTSIDE, 0)]
    );
}

/// A session of ICMP is one of a kind of query, in one direction: only the answer of that kind comes back through it, also from
/// other hosts where everybody may answer.
#[test]
fn only_answers_of_the_kind_come_back() {
    let rules = Rules::new(vec![rule(0, Action::Source(vec![OUTSIDE]))], 1, Arc::new(Own::new(4)));
    let options = Options {
        sessions: 64,
        bindings_per_host: 64,
        filter_by_remote: false,
        timeouts: Timeouts::default(),
        ftp_ports: &[],
        seed: 5,
    };
    let mut own = Translator::new(options, Arc::new(rules)).unwrap();
    let icmp = |src, dst, kind: u8| Tuple {
        src,
        dst,
        protocol: IpProtocol::ICMP.0,
        family: 4,
        message: Message::of(IpProtocol::ICMP.0, kind).unwrap(),
    };
    let (inside, server) = (([0, 0xc0a8_0107], 5), ([0, 0x0808_0808], 5));
    let (other, outside) = (([0, 0x0808_0404], 5), ([0, OUTSIDE.into()], 5));
    let known = |own: &mut Translator, of: &Tuple| {
        let (key, side) = of.key();
        let mut found = [stream::table::Found::NONE];
        own.find(&[key], 100, &mut found);
        found[0].slot().and_then(|slot| own.step(slot, side, Tcp::default())).map(|(to, _)| to)
    };
    let kinds = [(8, 0), (13, 14), (15, 16), (17, 18)];
    for asked in kinds {
        let sent = icmp(inside, server, asked.0);
        assert_eq!(known(&mut own, &sent), None);
        let made = own.begin(&sent, server, 4, Source::Rule(0, 0), 100).unwrap();
        assert_eq!(made, icmp(outside, server, asked.0), "one binding for all kinds");
        for (query, answer) in kinds {
            let is_own = answer <= asked.1;
            let back = known(&mut own, &icmp(server, outside, answer));
            assert_eq!(back, is_own.then(|| icmp(server, inside, answer)), "{asked:?}, {answer}");
            assert_eq!(known(&mut own, &icmp(server, outside, query)), None);
            assert_eq!(own.inward(&icmp(other, outside, query)), None);
            assert_eq!(own.inward(&icmp(other, outside, answer)), Some((0, inside)));
        }
    }
    assert_eq!(own.len(), 4);
}
