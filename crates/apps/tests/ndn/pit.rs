//! The pending-interest table against a list of entries, step by step, with little room and much of it.

use apps::ndn::pit::{Arrival, InRecord, Pit, PitKey, PitLimits};
use apps::ndn::worker_of;
use lookup::names::NameHasher;
use packet::ndn::{Name, NameBuf, component_type};
use proptest::prelude::*;

use crate::list::{Fate, List};

pub(crate) const MS: u64 = 1_000_000;

fn name(text: &str) -> NameBuf {
    NameBuf::from_uri(text.as_bytes()).unwrap()
}

fn key<'a>(name: Name<'a>, flags: u8) -> PitKey<'a> {
    PitKey { name, can_be_prefix: flags & 1 != 0, must_be_fresh: flags & 2 != 0 }
}

#[derive(Debug, Clone)]
enum Step {
    Interest { name: usize, flags: u8, face: u16, nonce: u32, lifetime: u64, out: u16 },
    Data { name: usize, from: u16 },
    Nack { name: usize, flags: u8, from: u16 },
    Wait(u64),
}

fn any_step() -> impl Strategy<Value = Step> {
    let lifetime = prop_oneof![Just(0), 1..100_u64, Just(4000), 8_000..30_000_u64];
    prop_oneof![
        6 => (0..NAMES.len(), 0..4_u8, 0..4_u16, 0..40_u32, lifetime, 0..4_u16).prop_map(
            |(name, flags, face, nonce, lifetime, out)| Step::Interest {
                name, flags, face, nonce, lifetime, out
            }
        ),
        2 => (0..NAMES.len(), 0..4_u16).prop_map(|(name, from)| Step::Data { name, from }),
        1 => (0..NAMES.len(), 0..4_u8, 0..4_u16)
            .prop_map(|(name, flags, from)| Step::Nack { name, flags, from }),
        // Less than the dead nonce list forgets in: the twin never does.
        2 => prop_oneof![0..20 * MS, 0..200 * MS].prop_map(Step::Wait),
    ]
}

const NAMES: [&str; 7] = [
    "/a",
    "/a/b",
    "/a/b/c",
    "/a/b/c/d",
    "/b",
    "/long/xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx/1",
    "/long/xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx/2",
];

pub(crate) fn sorted(mut records: Vec<InRecord>) -> Vec<InRecord> {
    records.sort_by_key(|r| (r.face, r.nonce, r.expires_ns));
    records
}

proptest! {
    #[test]
    fn agrees_with_a_list(
        steps in prop::collection::vec(any_step(), 1..120),
        room in prop_oneof![Just(64_u32), 1..12_u32],
        seed in any::<u64>(),
    ) {
        let names: Vec<NameBuf> = NAMES.iter().map(|text| name(text)).collect();
        let limits = PitLimits { dead_nonces: 1 << 16, lifetime_max_ms: 60_000, ..PitLimits::of(room) };
        let limits = PitLimits { in_records: 2 * room, name_blocks: 2 * room, ..limits };
        let mut pit = Pit::new(NameHasher::new(seed), limits);
        let mut list = List::new(limits);
        let start = 1_700_000_000_000 * MS;
        let mut now = start;
        for step in steps {
            match step {
                Step::Wait(ns) if now + ns < start + 5_000 * MS => now += ns,
                Step::Wait(_) => {}
                Step::Interest { name, flags, face, nonce, lifetime, out } => {
                    let record = InRecord::new(face, nonce, now, lifetime, &[face as u8; 3]).on_port(face / 2);
                    let key = key(names[name].name(), flags);
                    let expected = list.interest(&names[name], flags, record, now);
                    let found = pit.interest(&key, record, now);
                    match (found, expected) {
                        (Arrival::Forward(id), Fate::Forward) => {
                            pit.sent(id, out);
                            let entry = list.entries.iter_mut()
                                .find(|e| e.name == names[name] && e.flags == flags).unwrap();
                            entry.out_face = Some(out);
                        }
                        (Arrival::Aggregated, Fate::Aggregated)
                        | (Arrival::Suppressed, Fate::Suppressed)
                        | (Arrival::Loop, Fate::Loop)
                        | (Arrival::Full | Arrival::Share, Fate::Refused) => {}
                        other => prop_assert!(false, "{other:?}"),
                    }
                }
                Step::Data { name, from } => {
                    let mut sent = Vec::new();
                    let found = pit.data(&names[name].name(), || [0; 32], from, now, |r| sent.push(*r));
                    let (solicited, expected) = list.data(&names[name], from, now);
                    prop_assert_eq!(found, solicited);
                    prop_assert_eq!(sorted(sent), sorted(expected));
                }
                Step::Nack { name, flags, from } => {
                    let mut sent = Vec::new();
                    let key = key(names[name].name(), flags);
                    let found = pit.nack(&key, from, now, |r| sent.push(*r));
                    let expected = list.nack(&names[name], flags, from, now);
                    prop_assert_eq!(found.then_some(sorted(sent)), expected.map(sorted));
                }
            }
            prop_assert_eq!(pit.len(), list.entries.len());
        }
        pit.expire(now + 70_000 * MS);
        prop_assert!(pit.is_empty());
    }

    /// Whatever comes, a small table stays within its room, refuses what does not fit, and gives all of it back.
    #[test]
    fn a_full_table_refuses(numbers in prop::collection::vec((0..60_u32, 0..6_u16, 0..400_usize), 1..200)) {
        let limits = PitLimits { entries: 8, in_records: 12, name_blocks: 20, dead_nonces: 64, lifetime_max_ms: 1000 };
        let mut pit = Pit::new(NameHasher::new(5), limits);
        let mut refused = false;
        let names: std::collections::BTreeSet<_> = numbers.iter().map(|(number, _, len)| (number * (*len > 0) as u32, len)).collect();
        for (at, (number, face, len)) in numbers.iter().enumerate() {
            let mut name = NameBuf::new();
            name.push_generic(&vec![*number as u8; *len]);
            let record = InRecord::new(*face, at as u32, 9 * MS, 4000, &[]);
            let arrival = pit.interest(&key(name.name(), 0), record, 9 * MS);
            refused |= matches!(arrival, Arrival::Full | Arrival::Share);
            prop_assert!(pit.len() <= 8);
        }
        prop_assert!(refused || names.len() <= 8, "{} names", names.len());
        prop_assert!(pit.expire(2_000 * MS) <= 8, "no lifetime is longer than the limit");
        prop_assert!(pit.is_empty());
        // All the room is there again, for as many faces: eight names of two blocks.
        for number in 0..8_u32 {
            let mut name = NameBuf::new();
            name.push_generic(&[number as u8; 80]);
            let record = InRecord::new(number as u16, 1_000_000 + number, 3_000 * MS, 10, &[]);
            let arrival = pit.interest(&key(name.name(), 0), record, 3_000 * MS);
            prop_assert!(matches!(arrival, Arrival::Forward(_)), "{number}");
        }
    }
}

/// A face that asks for everything gets a third of the table, and leaves room for others of its port and of other ports. A
/// port gets half of the table however many faces it has.
#[test]
fn a_face_has_its_share() {
    let mut pit = Pit::new(NameHasher::new(1), PitLimits::of(1024));
    let start = 1_000_000 * MS;
    let mut nonce = 0;
    let mut ask = |pit: &mut Pit, face: u16, port: u16, now| {
        nonce += 1;
        let record = InRecord::new(face, nonce, now, 4000, &[]).on_port(port);
        pit.interest(&key(name(&format!("/{nonce}")).name(), 0), record, now)
    };
    let mut flood = |pit: &mut Pit, face, port, now| {
        let arrivals = (0..3000).map(|_| ask(pit, face, port, now));
        arrivals.filter(|arrival| matches!(arrival, Arrival::Forward(_))).count()
    };
    assert_eq!(flood(&mut pit, 1, 0, start), 342);
    // Of the 682 that are free the port may have 342 more, at last.
    assert_eq!(flood(&mut pit, 2, 0, start), 114);
    assert_eq!((3..40).map(|face| flood(&mut pit, face, 0, start)).sum::<usize>(), 56, "one port");
    assert_eq!(flood(&mut pit, 50, 1, start), 171, "a third of what is left");
    // Room comes back, and with it the share.
    assert_eq!(pit.expire(start + 5_000 * MS), 683);
    assert_eq!(flood(&mut pit, 60, 5, start + 5_000 * MS), 342);
    // Long names count, too: seven names of 1,800 bytes hold more than a third of the blocks.
    let mut pit = Pit::new(NameHasher::new(1), PitLimits::of(256));
    let long = |number: u32| {
        let mut name = NameBuf::new();
        name.push_generic(&[vec![7; 1800], number.to_be_bytes().to_vec()].concat());
        name
    };
    let asks = (0..100).map(|number| {
        let record = InRecord::new(1, number, start, 4000, &[]);
        pit.interest(&key(long(number).name(), 0), record, start)
    });
    assert_eq!(asks.filter(|arrival| matches!(arrival, Arrival::Forward(_))).count(), 6);
}

/// What a face holds belongs to the port that it was on when it asked first.
#[test]
fn a_face_that_moves_takes_no_share_with_it() {
    let mut pit = Pit::new(NameHasher::new(1), PitLimits::of(16));
    let start = 1_000_000 * MS;
    for round in 0..40 {
        let (a, now) = (name(&format!("/{round}")), start + round * 5_000 * MS);
        for port in [0, 1] {
            let record = InRecord::new(1, (2 * round) as u32 + u32::from(port), now, 4000, &[]);
            let arrival = pit.interest(&key(a.name(), 0), record.on_port(port), now);
            let expected = if port == 0 { "Forward" } else { "Suppressed" };
            assert!(format!("{arrival:?}").starts_with(expected), "{round}: {arrival:?}");
        }
        assert_eq!(pit.expire(now + 4_500 * MS), 1);
    }
}

/// A face that asks again is forwarded again after 10 ms, 20 ms, and so on up to 250 ms.
#[test]
fn who_asks_again_soon_is_suppressed() {
    let mut pit = Pit::new(NameHasher::new(1), PitLimits::of(16));
    let (a, start) = (name("/a"), 1_000_000 * MS);
    let mut forwarded = Vec::new();
    for ms in 0..1600_u64 {
        let record = InRecord::new(1, ms as u32, start + ms * MS, 4000, &[]);
        match pit.interest(&key(a.name(), 0), record, start + ms * MS) {
            Arrival::Forward(_) => forwarded.push(ms),
            other => assert_eq!(other, Arrival::Suppressed, "{ms}"),
        }
    }
    assert_eq!(forwarded, [0, 10, 30, 70, 150, 310, 560, 810, 1060, 1310, 1560]);
    // Data answers whoever waits, forwarded again or not.
    let mut nonces = Vec::new();
    assert!(pit.data(
        &a.name(),
        || [0; 32],
        9,
        start + 1600 * MS,
        |record| nonces.push(record.nonce)
    ));
    assert_eq!(nonces, [1599]);
}

#[test]
fn a_dead_nonce_is_forgotten_in_time() {
    let mut pit = Pit::new(NameHasher::new(1), PitLimits::of(16));
    let a = name("/a");
    let mut ask = |nonce, now| {
        let record = InRecord::new(1, nonce, now, 10, &[]);
        pit.interest(&key(a.name(), 0), record, now)
    };
    let start = 1_000_000 * MS;
    assert!(matches!(ask(7, start), Arrival::Forward(_)));
    assert_eq!(ask(7, start + 100 * MS), Arrival::Loop, "the entry is gone, the nonce is known");
    assert!(matches!(ask(8, start + 200 * MS), Arrival::Forward(_)));
    assert!(matches!(ask(7, start + 20_000 * MS), Arrival::Forward(_)));
}

#[test]
fn tokens_come_back() {
    let mut pit = Pit::new(NameHasher::new(1), PitLimits::of(16));
    let a = name("/a");
    for face in 0..3 {
        let record =
            InRecord::new(face, face.into(), 0, 4000, &vec![face as u8; 16 * face as usize]);
        pit.interest(&key(a.name(), 0), record, 0);
    }
    let mut tokens = Vec::new();
    assert!(pit.data(&a.name(), || [0; 32], 9, 0, |record| tokens.push(record.token().to_vec())));
    tokens.sort();
    assert_eq!(tokens, [vec![], vec![1; 16], vec![2; 32]]);
    assert!(!pit.data(&a.name(), || [0; 32], 9, 0, |_| panic!("no face waits")));
}

/// Who asks for a packet by its digest gets that packet, and no other one of its name.
#[test]
fn a_digest_waits_for_its_packet() {
    let mut pit = Pit::new(NameHasher::new(1), PitLimits::of(16));
    let a = name("/a");
    let mut asked = a.clone();
    asked.push(component_type::IMPLICIT_DIGEST, &[7; 32]);
    let record = |face| InRecord::new(face, face.into(), 0, 4000, &[]);
    let asks = |pit: &mut Pit, name: &NameBuf, face| {
        let arrival = pit.interest(&key(name.name(), 0), record(face), 0);
        assert!(matches!(arrival, Arrival::Forward(_)));
    };
    let given = |pit: &mut Pit, digest: u8| {
        let mut faces = Vec::new();
        let solicited =
            pit.data(&a.name(), || [digest; 32], 9, 0, |record| faces.push(record.face));
        (solicited, faces)
    };
    asks(&mut pit, &asked, 3);
    assert_eq!(given(&mut pit, 8), (false, vec![]));
    asks(&mut pit, &a, 4);
    assert_eq!(given(&mut pit, 8), (true, vec![4]));
    asks(&mut pit, &a, 5);
    assert_eq!(given(&mut pit, 7), (true, vec![5, 3]));
    assert!(pit.is_empty());
    // The digest of a packet is taken only for those who wait for one.
    asks(&mut pit, &a, 6);
    assert!(pit.data(&a.name(), || panic!("nobody asked"), 9, 0, |_| {}));
}

/// Odd names wait and are answered as others are; one of 4,390 components is found by Data one longer.
#[test]
fn odd_names_wait() {
    let limits = PitLimits { name_blocks: 1000, ..PitLimits::of(16) };
    let mut pit = Pit::new(NameHasher::new(1), limits);
    let mut huge = NameBuf::new();
    huge.push_generic(&[9; 8192]);
    let mut many = NameBuf::new();
    (0..4_390).for_each(|_| many.push_generic(b""));
    let mut more = many.clone();
    more.push_generic(b"");
    for (asked, flags, given) in [(&huge, 0, &huge), (&many, 1, &more)] {
        let record = InRecord::new(3, 1, 0, 4000, &[]);
        let arrival = pit.interest(&key(asked.name(), flags), record, 0);
        assert!(matches!(arrival, Arrival::Forward(_)));
        let mut faces = Vec::new();
        assert!(pit.data(&given.name(), || [0; 32], 9, 0, |record| faces.push(record.face)));
        assert_eq!(faces, [3]);
    }
    assert!(!pit.data(&NameBuf::new().name(), || [0; 32], 9, 0, |_| {}));
}

proptest! {
    /// An Interest and the Data that answers it are one worker's.
    #[test]
    fn a_name_and_what_is_longer_are_one_workers(parts in prop::collection::vec(any::<u8>(), 1..6), workers in 1..9_u32, seed in any::<u64>()) {
        let hasher = NameHasher::new(seed);
        let mut name = NameBuf::new();
        name.push_generic(&parts[..1]);
        let worker = worker_of(&hasher, &name.name(), workers);
        prop_assert!(worker < workers);
        for part in &parts[1..] {
            name.push_generic(&[*part]);
            prop_assert_eq!(worker_of(&hasher, &name.name(), workers), worker);
        }
    }
}
