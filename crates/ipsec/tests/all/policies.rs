//! Policies looked up by `classify` against the plain list.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use ipsec::policy::{ANY_PORT, reference};
use ipsec::{
    Action, Database, Direction, Policies, Policy, Room, Selector, Template, Tuple, words,
};
use packet::IpProtocol;
use packet::icmp_error::{Icmpv4Error, Icmpv6Error, build_icmpv4_error, build_icmpv6_error};
use packet::ipv4::Ipv4Header;
use packet::ipv6::Ipv6Header;
use proptest::prelude::*;

/// Addresses that are near each other, so that prefixes hold some of them.
fn address(is_v6: bool) -> impl Strategy<Value = IpAddr> {
    (0u8..4, 0u8..3, any::<u8>()).prop_map(move |(a, b, c)| match is_v6 {
        false => IpAddr::from([10, a, b, c]),
        true => IpAddr::from([0xfd00, a.into(), b.into(), 0, 0, 0, 0, c.into()]),
    })
}

fn net(is_v6: bool) -> impl Strategy<Value = Option<IpNet>> {
    let lens = if is_v6 { vec![0, 16, 32, 48, 127, 128] } else { vec![0, 8, 16, 24, 31, 32] };
    let net = (address(is_v6), prop::sample::select(lens))
        .prop_map(|(address, len)| IpNet::new(address, len).unwrap().trunc());
    prop::option::of(net)
}

fn ports() -> impl Strategy<Value = std::ops::RangeInclusive<u16>> {
    prop_oneof![
        3 => Just(ANY_PORT),
        1 => Just(80..=80),
        1 => Just(1024..=u16::MAX),
        1 => (0u16..100, 0u16..100).prop_map(|(a, b)| a.min(b)..=a.max(b)),
    ]
}

fn policy() -> impl Strategy<Value = Policy> {
    let selector = any::<bool>().prop_flat_map(|is_v6| {
        let protocol = prop::option::of(prop::sample::select(vec![6u8, 17, 1, 50]));
        (net(is_v6), net(is_v6), protocol, ports(), ports())
    });
    let action = prop_oneof![
        Just(Action::Bypass),
        Just(Action::Discard),
        (1u32..9).prop_map(|reqid| Action::Protect(Template { reqid, tunnel: None })),
    ];
    (selector, action, 0u32..4).prop_map(|(selector, action, priority)| {
        let (source, destination, protocol, source_ports, destination_ports) = selector;
        let selector = Selector { source, destination, protocol, source_ports, destination_ports };
        Policy { direction: Direction::Out, priority, if_id: 0, selector, action }
    })
}

fn tuple() -> impl Strategy<Value = Tuple> {
    any::<bool>().prop_flat_map(|is_v6| {
        let port = || prop_oneof![Just(80u16), 0u16..120, any::<u16>()];
        let ports = prop::option::of((port(), port()));
        let protocol = prop::sample::select(vec![6u8, 17, 1, 50, 47]);
        (address(is_v6), address(is_v6), protocol, ports).prop_map(|(src, dst, protocol, ports)| {
            let ((family, src), (_, dst)) = (words(src), words(dst));
            Tuple { family, protocol, src, dst, ports }
        })
    })
}

proptest! {
    #[test]
    fn the_lookup_is_that_of_the_list(
        policies in prop::collection::vec(policy(), 0..200),
        tuples in prop::collection::vec(tuple(), 1..40),
    ) {
        let found = Policies::new(policies.iter()).unwrap();
        for tuple in &tuples {
            prop_assert_eq!(found.find(tuple), reference::find(policies.iter(), tuple), "{:?}", tuple);
        }
        // All at once, twice in the same room.
        let mut room = Room::default();
        for part in [&tuples[..], &tuples[tuples.len() / 2..]] {
            room.clear();
            part.iter().for_each(|tuple| room.put(tuple));
            found.find_in(&mut room);
            for (at, tuple) in part.iter().enumerate() {
                prop_assert_eq!(found.answer(room.number(at)).copied(), found.find(tuple));
            }
        }
    }

    /// The first one of the lowest priority decides, whatever the order in which they were added, replaced and deleted.
    #[test]
    fn the_database_keeps_the_order(
        policies in prop::collection::vec(policy(), 0..40),
        deleted in prop::collection::vec(any::<prop::sample::Index>(), 0..10),
        tuples in prop::collection::vec(tuple(), 1..20),
    ) {
        let mut database = Database::new();
        let mut plain: Vec<Policy> = Vec::new();
        for policy in &policies {
            database.replace_policy(policy.clone()).unwrap();
            let same = |own: &&mut Policy| {
                (own.priority, &own.selector) == (policy.priority, &policy.selector)
            };
            match plain.iter_mut().find(same) {
                Some(own) => own.action = policy.action,
                None => plain.push(policy.clone()),
            }
            prop_assert!(database.add_policy(policy.clone()).is_err());
        }
        plain.sort_by_key(|own| own.priority);
        for index in &deleted {
            if plain.is_empty() {
                break;
            }
            let selector = plain[index.index(plain.len())].selector.clone();
            prop_assert!(database.delete_policy(Direction::Out, &selector));
            prop_assert!(!database.delete_policy(Direction::In, &selector));
            let at = plain.iter().position(|own| own.selector == selector).unwrap();
            plain.remove(at);
        }
        let view = database.view().unwrap();
        for tuple in &tuples {
            prop_assert_eq!(view.outgoing().find(tuple), reference::find(plain.iter(), tuple));
            prop_assert_eq!(view.incoming.find(tuple), None);
        }
    }
}

#[test]
fn fragments_do_not_pass_by_policies_with_ports() {
    let selector = Selector { protocol: Some(17), destination_ports: 5000..=5001, ..Selector::ANY };
    let policy = |action| Policy {
        direction: Direction::Out,
        priority: 1,
        if_id: 0,
        selector: selector.clone(),
        action,
    };
    let packet = |protocol, ports| Tuple { family: 4, protocol, ports, ..Tuple::default() };
    let protect = Action::Protect(Template { reqid: 1, tunnel: None });
    for action in [protect, Action::Discard, Action::Bypass] {
        let all = Policies::new([policy(action)].iter()).unwrap();
        assert_eq!(all.find(&packet(17, Some((9, 5000)))), Some(action));
        assert_eq!(all.find(&packet(17, Some((9, 80)))), None);
        let hidden = (action != Action::Bypass).then_some(Action::Discard);
        assert_eq!(all.find(&packet(17, None)), hidden);
        assert_eq!(all.find(&packet(6, None)), None);
    }
}

#[test]
fn what_contradicts_itself_is_refused() {
    let mut database = Database::new();
    let selector = Selector {
        source: Some("10.0.0.0/8".parse().unwrap()),
        destination: Some("fd00::/16".parse().unwrap()),
        ..Selector::ANY
    };
    let (direction, priority, action) = (Direction::In, 0, Action::Discard);
    assert!(
        database.add_policy(Policy { direction, priority, if_id: 0, selector, action }).is_err()
    );
    #[allow(clippy::reversed_empty_ranges)]
    let selector = Selector { source_ports: 9..=8, ..Selector::ANY };
    assert!(
        database.add_policy(Policy { direction, priority, if_id: 0, selector, action }).is_err()
    );
    assert!(database.policies().is_empty());
}

/// A UDP packet behind an Ethernet header, with the ends of a tuple.
fn udp_frame(own: &Tuple, ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let mut datagram = Vec::new();
    for word in [ports.0, ports.1, 8 + payload.len() as u16, 0] {
        datagram.extend(word.to_be_bytes());
    }
    datagram.extend(payload);
    let mut header = [0; 40];
    let (len, kind) = match own.family {
        4 => {
            let [src, dst] = [own.src, own.dst].map(|own| Ipv4Addr::from(own[1] as u32));
            let ip = Ipv4Header::new(src, dst, IpProtocol::UDP);
            (ip.emit(datagram.len(), &mut header).unwrap(), [0x08, 0x00])
        }
        _ => {
            let address =
                |own: [u64; 2]| Ipv6Addr::from(u128::from(own[0]) << 64 | u128::from(own[1]));
            let ip = Ipv6Header::new(address(own.src), address(own.dst), IpProtocol::UDP);
            (ip.emit(datagram.len(), &mut header).unwrap(), [0x86, 0xdd])
        }
    };
    [&[0; 12], &kind[..], &header[..len], &datagram].concat()
}

proptest! {
    /// An error is looked up as a packet in answer to the one that it quotes; other packets, and what is cut off, are not.
    #[test]
    fn errors_go_by_what_would_be_answered(
        own in tuple(),
        ports in any::<(u16, u16)>(),
        payload in prop::collection::vec(any::<u8>(), 0..1500),
        cut in any::<prop::sample::Index>(),
    ) {
        let frame = udp_frame(&own, ports, &payload);
        let decoded = |frame: &[u8]| packet::decode(frame, frame.len());
        let d = decoded(&frame);
        prop_assert_eq!(Tuple::answering(&frame, &d), None);
        let mut out = vec![0; 1400];
        let len = match own.family {
            4 => {
                let error = Icmpv4Error::FragmentationNeeded { mtu: 1300 };
                build_icmpv4_error(&frame[14..], error, Ipv4Addr::LOCALHOST, &mut out[14..])
            }
            _ => {
                let error = Icmpv6Error::PacketTooBig { mtu: 1300 };
                build_icmpv6_error(&frame[14..], error, Ipv6Addr::LOCALHOST, &mut out[14..])
            }
        };
        out.truncate(14 + len.unwrap());
        out[12..14].copy_from_slice(&frame[12..14]);
        let Tuple { family, src, dst, .. } = own;
        let answer = Tuple { family, protocol: 17, src: dst, dst: src, ports: Some((ports.1, ports.0)) };
        prop_assert_eq!(Tuple::answering(&out, &decoded(&out)), Some(answer));
        // A redirect says nothing of the packet's way back.
        if family == 4 {
            let mut redirect = out.clone();
            redirect[34] = 5;
            prop_assert_eq!(Tuple::answering(&redirect, &decoded(&redirect)), None);
        }
        let part = &out[..cut.index(out.len())];
        let found = Tuple::answering(part, &decoded(part));
        prop_assert!(found.is_none_or(|found| found == answer), "{:?}", found);
    }
}
