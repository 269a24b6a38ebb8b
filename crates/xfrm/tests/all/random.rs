//! Random messages: what is read is written as the same bytes, and nothing that is cut or spoiled is more than an error.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use xfrm::{Kind, Message};

/// A generator with a seed (SplitMix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.word() % n
    }

    pub(crate) fn chance(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.word() as u8).collect()
    }
}

pub(crate) fn fresh() -> u64 {
    RandomState::new().hash_one(0)
}

/// Lengths of structures, by the first that is long enough to be read.
fn head_len(kind: Kind) -> usize {
    let reads = |len: &usize| Message::decode(kind.number(), 0, &vec![0; *len]).is_ok();
    (0..300).find(reads).expect("a length")
}

fn attribute(random: &mut Random) -> Vec<u8> {
    let number = random.below(38) as u16;
    let key = random.below(40) as usize;
    let value = match number {
        1..=3 | 18 | 20 => {
            let mut value = random.bytes(64);
            value.extend((key as u32 * 8).to_ne_bytes());
            if matches!(number, 18 | 20) {
                value.extend(128u32.to_ne_bytes());
            }
            value.extend(random.bytes(key));
            value
        }
        23 => {
            let words = random.below(6) as usize;
            let mut value = (words as u32).to_ne_bytes().to_vec();
            value.extend(random.bytes(20 + words * 4));
            value
        }
        _ => {
            let lens = [0, 1, 2, 4, 6, 8, 12, 16, 24, 32, 36, 40, 64, 76, 128, 168, 224];
            let len = lens[random.below(lens.len() as u64) as usize];
            random.bytes(len)
        }
    };
    let mut bytes = (4 + value.len() as u16).to_ne_bytes().to_vec();
    bytes.extend(number.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Whether the message could be read.
fn check(seed: u64) -> bool {
    let mut random = Random(seed);
    let kind = Kind::ALL[random.below(Kind::ALL.len() as u64) as usize];
    let mut payload = random.bytes(head_len(kind));
    let flags = if random.chance(4) { 0x300 } else { 0 };
    if flags != 0 && matches!(kind, Kind::GetSa | Kind::GetPolicy) {
        payload.clear();
    }
    for _ in 0..random.below(4) {
        payload.resize(payload.len().next_multiple_of(4), 0);
        payload.extend(attribute(&mut random));
    }
    let read = Message::decode(kind.number(), flags, &payload);
    if let Ok(message) = &read {
        let written = message.encode();
        // But for padding inside of structures.
        assert_eq!(written.len(), payload.len().next_multiple_of(4), "seed {seed}: {message:?}");
        let again = Message::decode(kind.number(), flags, written.expose());
        let again = again.unwrap_or_else(|error| panic!("seed {seed}: {error}: {message:?}"));
        assert_eq!(again, *message, "seed {seed}");
        assert_eq!(again.encode().expose(), written.expose(), "seed {seed}");
    }
    for len in 0..payload.len() {
        if let Ok(cut) = Message::decode(kind.number(), flags, &payload[..len]) {
            assert!(cut.encode().len() <= len.next_multiple_of(4), "seed {seed}: {len}");
        }
    }
    for _ in 0..20 {
        let mut spoiled = payload.clone();
        if let Some(len) = std::num::NonZero::new(spoiled.len() as u64) {
            spoiled[random.below(len.get()) as usize] ^= 1 << random.below(8);
        }
        let _ = Message::decode(kind.number(), flags, &spoiled);
    }
    read.is_ok()
}

#[test]
fn what_is_read_is_written_as_the_same() {
    let read = (0..2_000).filter(|seed| check(*seed)).count();
    assert!(read > 500, "{read}");
}

/// Seeds that no run had before; a failure names its own.
#[test]
fn the_same_with_fresh_seeds() {
    let fresh = fresh();
    (0..500).for_each(|n| {
        check(fresh.wrapping_add(n));
    });
}
