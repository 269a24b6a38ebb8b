//! The stages against a plain forwarder: the list of those who wait, and a map of prefixes.

use apps::ndn::pit::{InRecord, PitLimits};
use apps::ndn::reasons;
use apps::ndn::store::StoreLimits;
use chunk::DropReason;
use lookup::names::ReferenceNames;
use packet::ndn::InterestFields;
use proptest::prelude::*;

use crate::list::{Fate, List};
use crate::pit::MS;
use crate::stages::{Bench, data_fresh, frame, interest_with, sent, uri, with_token};
use crate::store::Plain as Store;

const NAMES: [&str; 8] = ["/a", "/a/x", "/a/b", "/a/b/c", "/a/b/c/d", "/m/1", "/n", "/n/1"];

#[derive(Debug, Clone)]
enum Event {
    Interest { from: u16, name: usize, fields: InterestFields, token: Vec<u8> },
    Data { from: u16, name: usize, fresh_ms: u64 },
}

fn any_event() -> impl Strategy<Value = Event> {
    let token = prop_oneof![Just(vec![]), prop::collection::vec(any::<u8>(), 1..33)];
    let fields = (any::<bool>(), any::<bool>(), 0..30_u32, 0..4_u8, 0..3000_u64).prop_map(
        |(can_be_prefix, must_be_fresh, nonce, hops, lifetime_ms)| InterestFields {
            can_be_prefix,
            must_be_fresh,
            nonce: Some(nonce),
            lifetime_ms,
            hop_limit: (hops < 3).then(|| hops * 100),
        },
    );
    prop_oneof![
        3 => (0..5_u16, 0..NAMES.len(), fields, token)
            .prop_map(|(from, name, fields, token)| Event::Interest { from, name, fields, token }),
        1 => (0..5_u16, 0..NAMES.len(), prop_oneof![Just(0), 0..900_u64])
            .prop_map(|(from, name, fresh_ms)| Event::Data { from, name, fresh_ms }),
    ]
}

/// What a packet leads to: where bytes go, in any order, or why it goes nowhere.
type Outcome = Result<Vec<(u16, Vec<u8>)>, DropReason>;

struct Plain {
    waiting: List,
    store: Store,
    prefixes: ReferenceNames,
}

impl Plain {
    /// The same prefixes and faces as the stages' tables have.
    fn new(limits: PitLimits, stored: usize) -> Self {
        let mut prefixes = ReferenceNames::default();
        for (text, hop) in [("/a", 1), ("/a/b", 2), ("/m", 3)] {
            prefixes.insert(uri(text).name().encodings(), hop);
        }
        let store = Store::new(stored, 8);
        Self { waiting: List::new(limits), store, prefixes }
    }

    fn event(&mut self, event: &Event, now: u64) -> Outcome {
        match event {
            Event::Interest { from, name, fields, token } => {
                if fields.hop_limit == Some(0) {
                    return Err(reasons::NDN_HOP_LIMIT);
                }
                let text = NAMES[*name];
                let flags = u8::from(fields.can_be_prefix) | u8::from(fields.must_be_fresh) << 1;
                let nonce = fields.nonce.unwrap();
                if self.store.is_on() && self.waiting.is_new(&uri(text), flags, nonce, now) {
                    let (prefix, fresh) = (fields.can_be_prefix, fields.must_be_fresh);
                    if let Some(packet) = self.store.lookup(&uri(text), prefix, fresh, now) {
                        return Ok(vec![(*from, with_token(token, &packet))]);
                    }
                }
                if fields.hop_limit == Some(1) {
                    return Err(reasons::NDN_HOP_LIMIT);
                }
                let ways: &[u16] = match self.prefixes.lookup(uri(text).name().encodings()) {
                    1 => &[1, 2],
                    2 => &[3],
                    3 => &[4],
                    _ => &[],
                };
                let way = ways.iter().find(|way| *way != from).ok_or(kernels::reasons::NO_ROUTE)?;
                let record = InRecord::new(*from, nonce, now, fields.lifetime_ms, token);
                match self.waiting.interest(&uri(text), flags, record, now) {
                    Fate::Loop => Err(reasons::NDN_LOOP),
                    Fate::Aggregated => Err(reasons::NDN_AGGREGATED),
                    Fate::Suppressed => Err(reasons::NDN_SUPPRESSED),
                    Fate::Refused => Err(reasons::NDN_PIT_SHARE),
                    Fate::Forward => {
                        let hop_limit = fields.hop_limit.map(|hops| hops - 1);
                        let out = interest_with(text, InterestFields { hop_limit, ..*fields });
                        Ok(vec![(*way, out)])
                    }
                }
            }
            Event::Data { from, name, fresh_ms } => {
                let bytes = data_fresh(NAMES[*name], *fresh_ms);
                let (solicited, records) = self.waiting.data(&uri(NAMES[*name]), *from, now);
                if !solicited {
                    return Err(reasons::NDN_UNSOLICITED);
                }
                self.store.insert(&uri(NAMES[*name]), &bytes, *fresh_ms, now);
                if records.is_empty() {
                    return Err(reasons::NDN_SATISFIED);
                }
                Ok(records.iter().map(|r| (r.face, with_token(r.token(), &bytes))).collect())
            }
        }
    }
}

fn packet(event: &Event) -> (u16, Vec<u8>) {
    let (from, bytes) = match event {
        Event::Interest { from, name, fields, token } => {
            (*from, with_token(token, &interest_with(NAMES[*name], *fields)))
        }
        Event::Data { from, name, fresh_ms } => (*from, data_fresh(NAMES[*name], *fresh_ms)),
    };
    (from, frame(from, &bytes))
}

proptest! {
    #[test]
    fn agrees_with_a_plain_forwarder(
        chunks in prop::collection::vec(
            (prop::collection::vec(any_event(), 1..12), 0..300 * MS), 1..10),
        stored in prop_oneof![Just(0), 1..5_u32],
    ) {
        let limits = PitLimits { dead_nonces: 1 << 16, ..PitLimits::of(256) };
        let store = StoreLimits { packets: stored, bytes: 8 * 256 };
        let mut bench = Bench::with_store(limits, false, store);
        let mut plain = Plain::new(limits, stored as usize);
        for (events, pause) in chunks {
            let inputs: Vec<_> = events.iter().map(packet).collect();
            let fates = bench.run(&inputs);
            for (event, fate) in events.iter().zip(fates) {
                let mut expected = plain.event(event, bench.now_ns);
                let mut found = fate.own.map(|own| {
                    let all = fate.copies.into_iter().chain([own]);
                    all.map(|(port, frame)| (port, sent(port, &frame).to_vec())).collect::<Vec<_>>()
                });
                expected.iter_mut().for_each(|all| all.sort());
                found.iter_mut().for_each(|all| all.sort());
                prop_assert_eq!(found, expected, "{:?}", event);
            }
            bench.now_ns += pause;
        }
    }
}
