//! Associations in the database: which one serves, lifetimes, replacement.

use std::net::IpAddr;

use crypto::{Authentication, Encryption, Icv, Key, KeySize, Secret, Suite};
use ipsec::{
    Action, Database, DatabaseError, Direction, Exhausted, Limit, Mode, NotCarried, Parameters,
    Policy, Room, Selector, Tally, Template, Tuple, words,
};
use proptest::prelude::*;

fn key() -> Key {
    key_of(3)
}

fn key_of(byte: u8) -> Key {
    let encryption = Encryption::AesGcm(KeySize::Bits128, Icv::Bytes16);
    let suite = Suite::new(encryption, Authentication::None).unwrap();
    Key::new(suite, &Secret::new(vec![byte; 20]), &Secret::none()).unwrap()
}

fn ends() -> (IpAddr, IpAddr) {
    ("192.0.2.1".parse().unwrap(), "198.51.100.1".parse().unwrap())
}

fn out(spi: u32) -> Parameters {
    Parameters::new(Direction::Out, spi, ends(), 7)
}

#[test]
fn the_newest_association_serves() {
    let mut database = Database::new();
    let template = Template { reqid: 7, tunnel: None };
    let tuple = Tuple { family: 4, ..Tuple::default() };
    assert!(database.view().unwrap().outbound(&template, &tuple).is_none());
    database.add(out(256), key(), 0).unwrap();
    database.add(out(257), key(), 0).unwrap();
    let again = database.add(out(257), key(), 0).unwrap_err();
    assert_eq!(again, DatabaseError::Exists { spi: 257, destination: ends().1 });
    let spi = |database: &mut Database, template: &Template| {
        let view = database.view().unwrap();
        view.outbound(template, &tuple).map(|own| own.parameters().spi)
    };
    assert_eq!(spi(&mut database, &template), Some(257));
    let elsewhere = Template { reqid: 7, tunnel: Some((ends().1, ends().0)) };
    assert_eq!(spi(&mut database, &elsewhere), None);
    assert_eq!(spi(&mut database, &Template { reqid: 7, tunnel: Some(ends()) }), Some(257));
    // Other settings make none newer; another key does.
    database.replace(Parameters { pad_to: 100, ..out(256) }, key(), 0).unwrap();
    assert_eq!(spi(&mut database, &template), Some(257));
    assert_eq!(database.get(256, ends().1).unwrap().parameters().pad_to, 100);
    database.replace(out(256), key_of(4), 0).unwrap();
    assert_eq!(spi(&mut database, &template), Some(256));
    database.replace(out(257), key_of(5), 0).unwrap();
    assert_eq!(spi(&mut database, &template), Some(257));
    assert!(database.delete(257, ends().1).is_some());
    assert!(database.delete(257, ends().1).is_none());
    assert_eq!(spi(&mut database, &template), Some(256));
    assert!(database.add(out(255), key(), 0).is_err(), "a reserved index");
    let mixed = Parameters { source: "::1".parse().unwrap(), ..out(300) };
    assert_eq!(database.add(mixed, key(), 0).unwrap_err(), DatabaseError::Families);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 100, ..ProptestConfig::default() })]

    /// The association that a policy leads to straight away is the one that its template finds; and it is there if that is the
    /// newest of the template's.
    #[test]
    fn the_carrier_of_a_policy_is_that_of_its_template(
        associations in prop::collection::vec((1u32..4, any::<bool>(), any::<bool>(), any::<bool>()), 0..8),
        policies in prop::collection::vec((prop::option::of(1u32..5), prop::option::of(any::<bool>())), 0..8),
        tuples in prop::collection::vec((0u8..10, any::<bool>()), 1..12),
    ) {
        let (a, b) = ends();
        let both = |is_back: bool| if is_back { (b, a) } else { (a, b) };
        let mut database = Database::new();
        let mut newest = [0; 5];
        for (spi, (reqid, is_transport, is_back, has_ended)) in (256..).zip(associations) {
            let mode = if is_transport { Mode::Transport } else { Mode::Tunnel };
            let mut own = Parameters { mode, ..Parameters::new(Direction::Out, spi, both(is_back), reqid) };
            own.limits.packets.hard = has_ended.then_some(1);
            let added = database.add(own, key_of(spi as u8), 0).unwrap();
            if has_ended {
                // The second packet is one too many.
                for _ in 0..2 {
                    let _ = added.count(1, 1);
                }
            }
            newest[reqid as usize] = spi;
        }
        for (at, (reqid, ends)) in (0u8..).zip(policies) {
            let host = IpAddr::from([10, 0, 0, at]);
            let selector = Selector { destination: Some(host.into()), ..Selector::ANY };
            let template = |reqid| Template { reqid, tunnel: ends.map(both) };
            let action = reqid.map_or(Action::Discard, |reqid| Action::Protect(template(reqid)));
            database.add_policy(Policy { direction: Direction::Out, priority: 1, if_id: 0, selector, action }).unwrap();
        }
        let view = database.view().unwrap();
        let mut room = Room::default();
        let tuples: Vec<_> = tuples
            .into_iter()
            .map(|(at, is_back)| {
                let ((family, src), (_, dst)) = (words(both(is_back).0), words(IpAddr::from([10, 0, 0, at])));
                Tuple { family, src, dst, ..Tuple::default() }
            })
            .collect();
        tuples.iter().for_each(|tuple| room.put(tuple));
        view.outgoing().find_in(&mut room);
        for (at, tuple) in tuples.iter().enumerate() {
            let number = room.number(at);
            let carrier = view.carrier(number, tuple).map(|own| own.parameters().spi);
            let expected = match view.outgoing().answer(number) {
                Some(Action::Protect(template)) => {
                    let found = view.outbound(template, tuple).map(|own| own.parameters().spi);
                    found.filter(|spi| *spi == newest[template.reqid as usize])
                }
                _ => None,
            };
            prop_assert_eq!(carrier, expected);
        }
    }
}

#[test]
fn transport_mode_serves_its_ends() {
    let mut database = Database::new();
    database.add(Parameters { mode: Mode::Transport, ..out(256) }, key(), 0).unwrap();
    let view = database.view().unwrap();
    let template = Template { reqid: 7, tunnel: None };
    let ((family, src), (_, dst)) = (words(ends().0), words(ends().1));
    let tuple = Tuple { family, src, dst, ..Tuple::default() };
    assert!(view.outbound(&template, &tuple).is_some());
    assert!(view.outbound(&template, &Tuple { src: dst, ..tuple }).is_none());
}

#[test]
fn lifetimes_end_an_association_once() {
    let mut database = Database::new();
    let mut parameters = out(256);
    parameters.limits.packets = Limit { soft: Some(2), hard: Some(3) };
    let own = database.add(parameters, key(), 0).unwrap();
    assert_eq!(own.count(10, 1), Ok(()));
    assert!(database.expire(1).is_empty());
    assert_eq!(own.count(10, 1), Ok(()));
    let said = database.expire(1);
    assert_eq!((said.len(), said[0].is_hard, said[0].spi), (1, false, 256));
    assert!(database.expire(1).is_empty(), "said once");
    assert_eq!(own.count(10, 1), Ok(()));
    assert_eq!(own.count(10, 1), Err(Exhausted));
    assert_eq!(own.counts(), [30, 3, 0, 0]);
    let said = database.expire(1);
    assert_eq!((said.len(), said[0].is_hard), (1, true));
    assert!(database.associations().is_empty());
    // By bytes, and by time.
    let mut parameters = out(257);
    parameters.limits.bytes = Limit { soft: None, hard: Some(100) };
    let own = database.add(parameters, key(), 0).unwrap();
    assert_eq!((own.count(99, 1), own.count(99, 1)), (Ok(()), Ok(())));
    assert_eq!(own.count(1, 1), Err(Exhausted));
    let mut parameters = out(258);
    parameters.limits.seconds = Limit { soft: Some(5), hard: Some(10) };
    const SECOND: u64 = 1_000_000_000;
    let own = database.add(parameters, key(), 0).unwrap();
    assert_eq!(own.count(1, 1000 * SECOND), Ok(()), "its time begins with the first packet");
    assert_eq!(own.count(1, 1009 * SECOND), Ok(()));
    assert_eq!(own.reached(), (true, false));
    assert_eq!(own.count(1, 1010 * SECOND), Err(Exhausted));
}

/// A key has its limits once, whatever changes beside it.
/// An association without sequence numbers gives way to an older one, and its end is said as that of a hard limit.
#[test]
fn an_association_without_numbers_gives_way() {
    let mut database = Database::new();
    database.add(out(256), key(), 0).unwrap();
    let last = Parameters { first_number: u32::MAX.into(), ..out(257) };
    let last = database.add(last, key_of(4), 0).unwrap().clone();
    let view = database.view().unwrap();
    let template = Template { reqid: 7, tunnel: None };
    let tuple = Tuple { family: 4, ..Tuple::default() };
    let spi = || view.outbound(&template, &tuple).map(|own| own.parameters().spi);
    assert_eq!(spi(), Some(257));
    assert_eq!(last.sealer().unwrap().take(3).count(), 1);
    assert_eq!(last.sealer().unwrap().take(3).count(), 0);
    last.run_out();
    assert_eq!(spi(), Some(256));
    let said: Vec<_> = database.expire(1).iter().map(|own| (own.spi, own.is_hard)).collect();
    assert_eq!(said, [(257, true)]);
}

#[test]
fn limits_go_on_with_the_key() {
    const SECOND: u64 = 1_000_000_000;
    let mut database = Database::new();
    let mut parameters = out(256);
    parameters.limits.packets.hard = Some(4);
    parameters.limits.bytes.hard = Some(1000);
    parameters.limits.seconds.hard = Some(10);
    let own = database.add(parameters.clone(), key(), 0).unwrap();
    assert_eq!((own.count(10, SECOND), own.count(10, 2 * SECOND)), (Ok(()), Ok(())));
    // In its place, and back after it was removed.
    let own = database.replace(Parameters { pad_to: 100, ..parameters.clone() }, key(), 0).unwrap();
    assert_eq!((own.counts(), own.count(10, 3 * SECOND)), ([20, 2, 0, 0], Ok(())));
    database.delete(256, ends().1).unwrap();
    let own = database.add(parameters.clone(), key(), 4 * SECOND).unwrap();
    assert_eq!((own.count(10, 4 * SECOND), own.count(10, 4 * SECOND)), (Ok(()), Err(Exhausted)));
    // Its time began with the first packet of all.
    parameters.limits.packets.hard = None;
    let own = database.replace(parameters.clone(), key(), 5 * SECOND).unwrap();
    assert_eq!((own.count(10, 10 * SECOND), own.count(10, 11 * SECOND)), (Ok(()), Err(Exhausted)));
    // Another key begins anew.
    let own = database.replace(parameters, key_of(4), 20 * SECOND).unwrap();
    assert_eq!((own.counts(), own.count(10, 29 * SECOND)), ([0; 4], Ok(())));
}

/// The same index and key with other limits or another window: no number comes a second time.
#[test]
fn a_replaced_association_goes_on() {
    let mut database = Database::new();
    let own = database.add(out(256), key(), 0).unwrap();
    assert_eq!(own.sealer().unwrap().take(5).count(), 5);
    let next = database.replace(out(256), key(), 0).unwrap();
    assert_eq!(next.number(), 6);
    let mut inward = Parameters::new(Direction::In, 300, ends(), 7);
    let own = database.add(inward.clone(), key(), 0).unwrap();
    let opener = own.opener().unwrap();
    opener.accept(1000).unwrap();
    inward.window = 128;
    let next = database.replace(inward, key(), 0).unwrap();
    let opener = next.opener().unwrap();
    for number in [1000, 999, 990, 873, 872, 1] {
        assert!(opener.accept(number).is_err(), "{number}");
    }
    assert!(opener.accept(1001).is_ok());
}

/// A worker may send by an association that control has replaced or removed.
#[test]
fn no_number_is_sent_twice_when_an_association_is_replaced_or_comes_back() {
    let mut database = Database::new();
    let first = database.add(out(256), key(), 0).unwrap();
    let take = |own: &ipsec::Association| own.sealer().unwrap().sequence().take(3);
    assert_eq!(take(&first), 1..4);
    let second = database.replace(Parameters { pad_to: 100, ..out(256) }, key(), 0).unwrap();
    assert_eq!((take(&first), take(&second), take(&first)), (4..7, 7..10, 10..13));
    database.delete(256, ends().1).unwrap();
    let third = database.add(out(256), key(), 0).unwrap();
    assert_eq!((take(&second), take(&third)), (13..16, 16..19));
    let ahead = Parameters { first_number: 100, ..out(256) };
    assert_eq!(take(&database.replace(ahead, key(), 0).unwrap()), 100..103);
    assert_eq!(take(&third), 103..106);
    // One that has ended.
    let limits =
        ipsec::Limits { packets: Limit { soft: None, hard: Some(1) }, ..Default::default() };
    let ended = database.replace(Parameters { limits, ..out(256) }, key(), 0).unwrap();
    assert_eq!((ended.count(1, 0), ended.count(1, 0)), (Ok(()), Err(Exhausted)));
    assert!(database.expire(0)[0].is_hard);
    assert_eq!(take(&database.add(out(256), key(), 0).unwrap()), 106..109);
    // Another one, and one that receives.
    assert_eq!(take(&database.add(out(257), key(), 0).unwrap()), 1..4);
    let inbound = Parameters { direction: Direction::In, ..out(300) };
    let before = database.add(inbound.clone(), key(), 0).unwrap();
    let after = database.replace(inbound, key(), 0).unwrap();
    before.opener().unwrap().accept(5).unwrap();
    assert!(after.opener().unwrap().accept(5).is_err());
}

/// Numbers and windows belong to keys.
#[test]
fn an_index_with_another_key_begins_anew() {
    let mut database = Database::new();
    let take = |own: &ipsec::Association, count| own.sealer().unwrap().sequence().take(count);
    let own = database.add(out(256), key(), 0).unwrap();
    // All numbers are used.
    assert_eq!(take(&own, u64::MAX), 1..1 << 32);
    database.delete(256, ends().1).unwrap();
    assert!(take(&database.add(out(256), key(), 0).unwrap(), 1).is_empty());
    let own = database.replace(out(256), key_of(4), 0).unwrap();
    assert_eq!(take(&own, 3), 1..4);
    // Either key may come back, to another receiver too.
    let other = "198.51.100.9".parse().unwrap();
    assert!(take(&database.replace(out(256), key(), 0).unwrap(), 1).is_empty());
    database.delete(256, ends().1).unwrap();
    let moved = Parameters { destination: other, ..out(256) };
    assert!(database.remembers(&moved, &key_of(4).marks()));
    assert!(!database.remembers(&moved, &key_of(5).marks()));
    assert_eq!(take(&database.add(moved, key_of(4), 0).unwrap(), 3), 4..7);
}

/// Two receivers, one index, one key, both at a time.
#[test]
fn two_receivers_of_a_key_have_its_numbers_together() {
    let mut database = Database::new();
    let take = |own: &ipsec::Association, count| own.sealer().unwrap().sequence().take(count);
    let destination = "198.51.100.9".parse().unwrap();
    let own = database.add(out(256), key(), 0).unwrap();
    assert_eq!(take(&own, 3), 1..4);
    let moved = Parameters { destination, ..out(256) };
    assert!(database.remembers(&moved, &key().marks()));
    let other = database.add(moved, key(), 0).unwrap();
    assert_eq!((take(&other, 2), take(&own, 1), take(&other, 1)), (4..6, 6..7, 7..8));
    // A replacement of one stays with the numbers of both.
    let own = database.replace(out(256), key(), 0).unwrap();
    assert_eq!((take(&own, 1), take(&other, 1)), (8..9, 9..10));

    let inbound = |destination, window| {
        let own = Parameters { direction: Direction::In, window, ..out(300) };
        Parameters { destination, ..own }
    };
    let accept = |own: &ipsec::Association, number| own.opener().unwrap().accept(number).is_ok();
    let own = database.add(inbound(ends().1, 64), key_of(4), 0).unwrap();
    let error = database.add(inbound(destination, 128), key_of(4), 0).unwrap_err();
    assert_eq!(error, DatabaseError::Shared { spi: 300, destination: ends().1 });
    let other = database.add(inbound(destination, 64), key_of(4), 0).unwrap();
    assert!(accept(&own, 5) && !accept(&other, 5));
    // Numbers of 64 bits would go on beside those of 32.
    let long = Parameters { is_extended: true, ..out(400) };
    database.add(long.clone(), key_of(5), 0).unwrap();
    let short = Parameters { is_extended: false, destination, ..long };
    assert!(matches!(database.add(short, key_of(5), 0), Err(DatabaseError::Shared { .. })));
}

#[test]
fn a_window_does_not_open_again() {
    let mut database = Database::new();
    let inbound = |window| Parameters { direction: Direction::In, window, ..out(300) };
    let own = database.add(inbound(64), key(), 0).unwrap();
    let accept = |own: &ipsec::Association, number| own.opener().unwrap().accept(number).is_ok();
    assert!(accept(&own, 100) && accept(&own, 90));
    database.delete(300, ends().1).unwrap();
    let again = database.add(inbound(64), key(), 0).unwrap();
    assert_eq!([100, 90, 99, 101].map(|number| accept(&again, number)), [false, false, true, true]);
    // Of another length: none of those up to the highest.
    database.delete(300, ends().1).unwrap();
    let again = database.add(inbound(128), key(), 0).unwrap();
    assert_eq!([98, 101, 102].map(|number| accept(&again, number)), [false, false, true]);
    // What was sealed by another key is not genuine anyway.
    let other = database.replace(inbound(64), key_of(4), 0).unwrap();
    assert!(accept(&other, 1));
    database.delete(300, ends().1).unwrap();
    assert!(!accept(&database.add(inbound(128), key(), 0).unwrap(), 102));
}

#[test]
fn who_uses_the_numbers_of_a_key_is_known() {
    let mut database = Database::new();
    database.add(out(256), key(), 0).unwrap();
    let (own, other) = (key().marks(), key_of(4).marks());
    assert_eq!(database.shares_numbers(&out(257), &own), Some(256));
    assert_eq!(database.shares_numbers(&out(256), &own), None, "it goes on with its numbers");
    assert_eq!(database.shares_numbers(&out(257), &other), None);
    let back = Parameters { direction: Direction::In, ..out(256) };
    assert_eq!(database.shares_numbers(&back, &own), Some(256), "those of the peer");
    let elsewhere = Parameters { destination: "198.51.100.9".parse().unwrap(), ..out(256) };
    assert_eq!(database.shares_numbers(&elsewhere, &own), Some(256), "it is still there");
    database.delete(256, ends().1).unwrap();
    assert_eq!(database.shares_numbers(&out(257), &own), Some(256), "it has used them");
}

#[test]
fn a_soft_limit_is_said_also_if_the_hard_one_is_reached_at_once() {
    let mut database = Database::new();
    let mut parameters = out(256);
    parameters.limits.packets = Limit { soft: Some(1), hard: Some(1) };
    let own = database.add(parameters, key(), 0).unwrap();
    assert_eq!((own.count(1, 1), own.count(1, 1)), (Ok(()), Err(Exhausted)));
    let said: Vec<bool> = database.expire(1).iter().map(|own| own.is_hard).collect();
    assert_eq!(said, [false, true]);
}

/// Associations with an `if_id` carry the packets of their interface, by its policies where it has some, and nothing else.
#[test]
fn tunnel_interfaces_have_associations_and_policies_of_their_own() {
    let mut database = Database::new();
    let tuple = Tuple { family: 4, protocol: 6, ..Tuple::default() };
    let template = Template { reqid: 7, tunnel: None };
    let add = |database: &mut Database, spi: u32, if_id, reqid| {
        let own = Parameters { if_id, ..Parameters::new(Direction::Out, spi, ends(), reqid) };
        database.add(own, key_of(spi as u8), 0).unwrap();
    };
    let through = |database: &mut Database, if_id| {
        let view = database.view().unwrap();
        view.through(if_id, &tuple).map(|own| own.parameters().spi)
    };
    assert_eq!(through(&mut database, 3), Err(NotCarried::Missing(None)));
    add(&mut database, 256, 3, 7);
    add(&mut database, 257, 4, 7);
    add(&mut database, 258, 3, 7);
    assert_eq!((through(&mut database, 3), through(&mut database, 4)), (Ok(258), Ok(257)));
    assert!(database.view().unwrap().outbound(&template, &tuple).is_none());
    add(&mut database, 259, 0, 7);
    assert_eq!(database.view().unwrap().outbound(&template, &tuple).unwrap().parameters().spi, 259);
    assert!(database.view().unwrap().enters(3, 9, &tuple), "without policies all may");

    let policy = |direction, protocol, action| Policy {
        direction,
        priority: 1,
        if_id: 3,
        selector: Selector { protocol: Some(protocol), ..Selector::ANY },
        action,
    };
    database.add_policy(policy(Direction::Out, 17, Action::Protect(template))).unwrap();
    assert_eq!(through(&mut database, 3), Err(NotCarried::Discard));
    assert_eq!(through(&mut database, 4), Ok(257), "those of another interface");
    assert!(!database.view().unwrap().enters(3, 7, &tuple));
    database.add_policy(policy(Direction::Out, 6, Action::Protect(template))).unwrap();
    database.add_policy(policy(Direction::In, 6, Action::Protect(template))).unwrap();
    assert_eq!(through(&mut database, 3), Ok(258));
    let view = database.view().unwrap();
    assert!(view.enters(3, 7, &tuple) && !view.enters(3, 8, &tuple));
    assert_eq!(view.outgoing().find(&tuple), None, "no policy of all others");
    for spi in [256, 258] {
        database.delete(spi, ends().1);
    }
    assert_eq!(through(&mut database, 3), Err(NotCarried::Missing(Some(template))));
}

#[test]
fn a_tally_counts_what_each_packet_would() {
    let mut database = Database::new();
    let mut limited = out(258);
    limited.limits.packets = Limit { soft: None, hard: Some(2) };
    let parameters = [out(256), out(257), limited];
    let all = parameters.map(|own| database.add(own, key(), 0).unwrap());
    {
        let mut tally = Tally::default();
        let mut count = |at: usize| tally.count(&all[at], 10, 1);
        for at in [0, 0, 1, 2, 2, 0, 1] {
            assert_eq!(count(at), Ok(()));
        }
        assert_eq!(count(2), Err(Exhausted));
    }
    let counts = all.map(|own| (own.counts()[1], own.counts()[0]));
    assert_eq!(counts, [(3, 30), (2, 20), (2, 20)]);
}
