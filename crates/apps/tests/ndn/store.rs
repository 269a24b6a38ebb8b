//! The content store against a plain one: a map by name, and a list by use.

use std::collections::BTreeMap;

use apps::ndn::pit::PitKey;
use apps::ndn::store::{ContentStore, StoreLimits, StoreStats};
use lookup::names::NameHasher;
use packet::ndn::{self, Body, NameBuf, component_type};
use proptest::prelude::*;

use crate::pit::MS;

/// The plain store.
#[derive(Default)]
pub(crate) struct Plain {
    packets: usize,
    blocks: usize,
    by_name: BTreeMap<Vec<Vec<u8>>, (Vec<u8>, u64)>,
    /// Names, the one that was used least recently first.
    used: Vec<Vec<Vec<u8>>>,
    stats: StoreStats,
}

fn blocks(packet: &[u8]) -> usize {
    packet.len().div_ceil(256)
}

fn parts(name: &NameBuf) -> Vec<Vec<u8>> {
    name.name().encodings().map(<[u8]>::to_vec).collect()
}

impl Plain {
    pub(crate) fn new(packets: usize, blocks: usize) -> Self {
        Self { packets, blocks, ..Self::default() }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.packets > 0
    }

    fn room(&self) -> (usize, usize) {
        (self.by_name.len(), self.by_name.values().map(|(packet, _)| blocks(packet)).sum())
    }

    pub(crate) fn insert(&mut self, name: &NameBuf, packet: &[u8], fresh_ms: u64, now: u64) {
        if blocks(packet) > self.blocks || self.packets == 0 {
            return;
        }
        let name = parts(name);
        self.used.retain(|other| *other != name);
        self.by_name.remove(&name);
        while self.room().0 == self.packets || self.room().1 + blocks(packet) > self.blocks {
            self.by_name.remove(&self.used.remove(0));
            self.stats.evicted += 1;
        }
        self.by_name.insert(name.clone(), (packet.to_vec(), now + fresh_ms * MS));
        self.used.push(name);
        self.stats.inserted += 1;
    }

    pub(crate) fn lookup(
        &mut self,
        name: &NameBuf,
        prefix: bool,
        fresh: bool,
        now: u64,
    ) -> Option<Vec<u8>> {
        let mut asked = parts(name);
        let digest =
            name.name().components().last().filter(|c| c.kind == component_type::IMPLICIT_DIGEST);
        let digest = digest.map(|component| component.value.to_vec());
        if digest.is_some() {
            asked.pop();
        }
        let found = self.by_name.iter().find(|(name, (packet, until))| {
            let is_named = match (&digest, prefix) {
                (Some(digest), _) => **name == asked && ndn::digest(packet)[..] == digest[..],
                (None, true) => name.starts_with(&asked),
                (None, false) => **name == asked,
            };
            is_named && (!fresh || *until > now)
        });
        let found = found.map(|(name, (packet, _))| (name.clone(), packet.clone()));
        match found {
            Some((name, packet)) => {
                self.stats.hits += 1;
                self.used.retain(|other| *other != name);
                self.used.push(name);
                Some(packet)
            }
            None => {
                self.stats.misses += 1;
                None
            }
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    Insert { name: Vec<u8>, fresh_ms: u64, len: usize },
    Lookup { name: Vec<u8>, prefix: bool, fresh: bool },
    Digest { name: Vec<u8>, len: usize, fresh: bool },
    Wait(u64),
}

/// A name: each number is a component, short or long, so that lengths and types order names too.
fn name(numbers: &[u8]) -> NameBuf {
    let mut name = NameBuf::new();
    for number in numbers {
        match number {
            0..6 => name.push_generic(&[b'a' + number]),
            6 => name.push_generic(b"aa"),
            7 => name.push_generic(&[b'x'; 300]),
            8 => name.push(54, &[1]),
            _ => name.push(600, b""),
        }
    }
    name
}

fn any_name() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(0..10_u8, 1..5)
}

fn any_step() -> impl Strategy<Value = Step> {
    let lens = prop_oneof![Just(0), 1..900_usize];
    let fresh_ms = prop_oneof![Just(0), Just(50), 1..2000_u64];
    prop_oneof![
        4 => (any_name(), fresh_ms, lens.clone())
            .prop_map(|(name, fresh_ms, len)| Step::Insert { name, fresh_ms, len }),
        5 => (prop::collection::vec(0..10_u8, 1..4), any::<bool>(), any::<bool>())
            .prop_map(|(name, prefix, fresh)| Step::Lookup { name, prefix, fresh }),
        1 => (any_name(), lens, any::<bool>())
            .prop_map(|(name, len, fresh)| Step::Digest { name, len, fresh }),
        1 => (0..300 * MS).prop_map(Step::Wait),
    ]
}

fn packet(name: &NameBuf, fresh_ms: u64, len: usize) -> Vec<u8> {
    let mut out = Vec::new();
    ndn::emit_data(name.name().value(), fresh_ms, &vec![len as u8; len], &mut out).unwrap();
    out
}

fn insert(store: &mut ContentStore, bytes: &[u8], now: u64) {
    let read = ndn::Packet::new_checked(bytes).unwrap();
    let Body::Data(data) = &read.body else { panic!("{read:?}") };
    store.insert(data, now);
}

fn key(name: &NameBuf, can_be_prefix: bool, must_be_fresh: bool) -> PitKey<'_> {
    PitKey { name: name.name(), can_be_prefix, must_be_fresh }
}

proptest! {
    #[test]
    fn agrees_with_a_map(
        steps in prop::collection::vec(any_step(), 1..200),
        packets in 0..20_u32,
        blocks in 1..40_u64,
        seed in any::<u64>(),
    ) {
        let mut store = ContentStore::new(NameHasher::new(seed), StoreLimits { packets, bytes: blocks * 256 });
        let mut plain = Plain::new(packets as usize, blocks as usize);
        let (mut now, mut out) = (1_700_000_000_000 * MS, Vec::new());
        for step in steps {
            match step {
                Step::Wait(ns) => now += ns,
                Step::Insert { name: numbers, fresh_ms, len } => {
                    let name = name(&numbers);
                    let bytes = packet(&name, fresh_ms, len);
                    insert(&mut store, &bytes, now);
                    plain.insert(&name, &bytes, fresh_ms, now);
                }
                Step::Lookup { name: numbers, prefix, fresh } => {
                    let name = name(&numbers);
                    let found = store.lookup(&key(&name, prefix, fresh), now, &mut out);
                    if packets > 0 {
                        let expected = plain.lookup(&name, prefix, fresh, now);
                        prop_assert_eq!(found.then(|| out.clone()), expected);
                    } else {
                        prop_assert!(!found);
                    }
                }
                Step::Digest { name: numbers, len, fresh } => {
                    // Of a packet that may be there, or have been.
                    let mut name = name(&numbers);
                    let digest = ndn::digest(&packet(&name, 50, len));
                    name.push(component_type::IMPLICIT_DIGEST, &digest);
                    let found = store.lookup(&key(&name, true, fresh), now, &mut out);
                    if packets > 0 {
                        let expected = plain.lookup(&name, true, fresh, now);
                        prop_assert_eq!(found.then(|| out.clone()), expected);
                    }
                }
            }
            prop_assert_eq!(store.stats(), plain.stats);
            let (count, used) = plain.room();
            prop_assert_eq!((store.len(), store.len_bytes()), (count, used as u64 * 256));
        }
    }
}

/// The first fresh name is found behind many stale ones, and only within the prefix.
#[test]
fn the_first_fresh_name_of_a_prefix() {
    let limits = StoreLimits { packets: 1 << 14, bytes: 1 << 22 };
    let mut store = ContentStore::new(NameHasher::new(7), limits);
    let numbered = |number: u32| {
        let mut name = NameBuf::from_uri(b"/org").unwrap();
        name.push_generic(&number.to_be_bytes());
        name
    };
    for number in 0..10_000 {
        insert(&mut store, &packet(&numbered(number), u64::from(number == 9_000) * 1000, 1), MS);
    }
    insert(&mut store, &packet(&NameBuf::from_uri(b"/zoo").unwrap(), 1000, 1), MS);
    let (org, mut out) = (NameBuf::from_uri(b"/org").unwrap(), Vec::new());
    assert!(store.lookup(&key(&org, true, true), 2 * MS, &mut out));
    assert_eq!(out, packet(&numbered(9_000), 1000, 1));
    assert!(store.lookup(&key(&org, true, false), 2 * MS, &mut out));
    assert_eq!(out, packet(&numbered(0), 0, 1));
    assert!(!store.lookup(&key(&org, true, true), 1001 * MS, &mut out), "at the end it is stale");
    assert!(!store.lookup(&key(&org, false, false), 2 * MS, &mut out));
}

/// Nothing is allocated once the store is there.
#[test]
fn no_memory_is_taken_later() {
    let mut store =
        ContentStore::new(NameHasher::new(3), StoreLimits { packets: 64, bytes: 1 << 16 });
    let mut out = Vec::with_capacity(ndn::PACKET_MAX);
    let names: Vec<_> = (0..200_u32)
        .map(|number| {
            let mut name = NameBuf::from_uri(b"/org").unwrap();
            name.push_generic(&number.to_be_bytes());
            name
        })
        .collect();
    let packets: Vec<_> = names.iter().map(|name| packet(name, 1, 700)).collect();
    let info = allocation_counter::measure(|| {
        for (name, bytes) in names.iter().zip(&packets) {
            insert(&mut store, bytes, MS);
            store.lookup(&key(name, true, false), MS, &mut out);
        }
    });
    assert_eq!(info.count_total, 0);
    assert_eq!(store.stats().hits, 200);
}
