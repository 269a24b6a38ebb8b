//! The table against a plain twin over random calls, and its bounds one by one.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

type Hot = [u64; 2];

fn key(number: u32) -> FlowKey {
    let ends = (([0, 0x0a00_0000 + u64::from(number)], 1000), ([0, 0xc0a8_0001], 443));
    FlowKey::new(ends.0, ends.1, 6, 4, 0).0
}

fn table(capacity: usize, half_open_max: usize) -> FlowTable<Hot> {
    FlowTable::new(Limits { capacity, half_open_max }, 1).unwrap()
}

fn none(_: Slot, _: &FlowKey, _: &Hot) {}

/// Looks keys up and admits all of them in a class.
fn admit(table: &mut FlowTable<Hot>, keys: &[FlowKey], now: u32, class: Class) -> Vec<Found> {
    let mut found = vec![Found::NONE; keys.len()];
    table.lookup(keys, now, &mut (|_| Some(class), none), &mut found);
    found
}

fn outcomes(found: &[Found]) -> Vec<Outcome> {
    found.iter().map(|found| found.outcome).collect()
}

// ── The twin ──

#[derive(Clone, Debug)]
struct TwinFlow {
    slot: Slot,
    class: Class,
    hot: Hot,
    seen: u32,
    handle: Handle,
}

/// The table as its documentation describes it, with a `HashMap` and a list. It takes the numbers of new slots and the
/// length of a sweep's piece from the table, and nothing else.
struct Twin {
    limits: Limits,
    flows: HashMap<FlowKey, TwinFlow>,
    lists: [Vec<FlowKey>; 3], // half-open, closed, yielding: oldest first
    statistics: Statistics,
    hand: usize,
    used: usize, // slots that were ever used
    ended: Vec<Handle>,
}

type Event = (Slot, FlowKey, Hot);

impl Twin {
    fn end(&mut self, key: &FlowKey) -> Event {
        let flow = self.flows.remove(key).unwrap();
        self.lists.iter_mut().for_each(|list| list.retain(|other| other != key));
        self.ended.push(flow.handle);
        (flow.slot, *key, flow.hot)
    }

    fn enter(&mut self, key: FlowKey, class: Class) {
        self.lists.iter_mut().for_each(|list| list.retain(|other| *other != key));
        match class {
            Class::HalfOpen => self.lists[0].push(key),
            Class::Closed => self.lists[1].push(key),
            Class::Yielding => self.lists[2].push(key),
            Class::Full => {}
        }
    }

    /// Which flow makes room.
    fn choose(&mut self, at_bound: bool, now: u32, pinned: &[FlowKey]) -> Option<FlowKey> {
        let order: &[usize] = if at_bound { &[0] } else { &[1, 0, 2] };
        for &number in order {
            let list = &mut self.lists[number];
            let Some(at) = list.iter().position(|key| !pinned.contains(key)) else { continue };
            // Those before it have a row in this batch, and become the newest.
            list.rotate_left(at);
            let first = list[0];
            if number < 2 {
                return Some(first);
            }
            let age = |key: &FlowKey| (now.wrapping_sub(self.flows[key].seen) as i32).max(0);
            let looked_at = list.iter().take(8).filter(|key| !pinned.contains(key));
            // Of those that are idle for the same time the first one.
            let idlest = *looked_at.rev().max_by_key(|key| age(key)).unwrap();
            if idlest != first {
                list.rotate_left(1);
            }
            return Some(idlest);
        }
        None
    }

    /// Outcomes of a batch, and what it evicts. `slots` are those that the table gave.
    fn lookup(
        &mut self,
        keys: &[FlowKey],
        now: u32,
        admissions: &[Option<Class>],
        table: &FlowTable<Hot>,
        slots: &[Found],
    ) -> (Vec<Outcome>, Vec<Event>) {
        let now = now.max(1);
        let mut pinned: Vec<FlowKey> = Vec::new();
        for key in keys {
            if let Some(flow) = self.flows.get_mut(key) {
                flow.seen = now;
                pinned.push(*key);
            }
        }
        let (mut outcomes, mut events) = (Vec::new(), Vec::new());
        for (row, key) in keys.iter().enumerate() {
            outcomes.push(if key.family == 0 {
                Outcome::Skipped
            } else if self.flows.contains_key(key) {
                Outcome::Known
            } else if let Some(class) = admissions[row] {
                let at_bound =
                    class == Class::HalfOpen && self.lists[0].len() >= self.limits.half_open_max;
                let mut has_room = !at_bound && self.flows.len() < self.limits.capacity;
                if !has_room && let Some(gone) = self.choose(at_bound, now, &pinned) {
                    events.push(self.end(&gone));
                    self.statistics.evicted += 1;
                    has_room = true;
                }
                if has_room {
                    let slot = slots[row].slot().unwrap();
                    let in_use = self.flows.values().any(|flow| flow.slot == slot);
                    assert!(!in_use && slot.index() < self.limits.capacity);
                    // Its handle is read below, when the batch is over.
                    let handle = Handle { slot, generation: 0 };
                    let flow = TwinFlow { slot, class, hot: [0; 2], seen: now, handle };
                    self.flows.insert(*key, flow);
                    self.enter(*key, class);
                    pinned.push(*key);
                    self.used = self.used.max(slot.index() + 1);
                    self.statistics.inserted += 1;
                    Outcome::New
                } else {
                    self.statistics.refused += 1;
                    Outcome::Refused
                }
            } else {
                Outcome::NotAdmitted
            });
        }
        for (key, outcome) in keys.iter().zip(&outcomes) {
            if *outcome == Outcome::New {
                let flow = self.flows.get_mut(key).unwrap();
                flow.handle = table.handle(flow.slot).unwrap();
            }
        }
        (outcomes, events)
    }

    fn sweep(
        &mut self,
        swept: Swept,
        now: u32,
        shortest: Timeouts,
        timeout_of: impl Fn(&FlowKey, &Hot) -> u32,
    ) -> Vec<Event> {
        let slots = self.hand..self.hand + swept.slots;
        let is_idle = |key: &FlowKey, flow: &TwinFlow| {
            let is_half_open = flow.class == Class::HalfOpen;
            let least = if is_half_open { shortest.half_open } else { shortest.full };
            let timeout = i64::from(least.max(timeout_of(key, &flow.hot)));
            slots.contains(&flow.slot.index())
                && i64::from(now.wrapping_sub(flow.seen) as i32) >= timeout
        };
        let mut idle: Vec<(Slot, FlowKey)> = self
            .flows
            .iter()
            .filter(|(key, flow)| is_idle(key, flow))
            .map(|(key, flow)| (flow.slot, *key))
            .collect();
        idle.sort();
        let events: Vec<Event> = idle.iter().map(|(_, key)| self.end(key)).collect();
        self.statistics.expired += events.len() as u64;
        assert_eq!((swept.ended, swept.is_round), (events.len(), slots.end == self.used));
        self.hand = if swept.is_round { 0 } else { slots.end };
        events
    }

    fn assert_same(&self, table: &FlowTable<Hot>) {
        let mut flows: Vec<_> = self.flows.iter().collect();
        flows.sort_by_key(|(_, flow)| flow.slot);
        assert_eq!(table.iter().count(), flows.len());
        for ((key, flow), shown) in flows.iter().zip(table.iter()) {
            let twin = (flow.slot, *key, &flow.hot, flow.class, flow.seen);
            assert_eq!((shown.slot, shown.key, shown.hot, shown.class, shown.seen), twin);
            assert_eq!(table.find(key), Some(flow.slot));
            assert_eq!(table.key(flow.slot), Some(*key));
            assert_eq!(table.get(flow.slot), Some(&flow.hot));
            assert_eq!(table.seen(flow.slot), Some(flow.seen));
            assert_eq!(table.resolve(flow.handle), Some(flow.slot));
        }
        let now = flows.iter().map(|(_, flow)| flow.seen).max().unwrap_or(1).wrapping_add(2);
        for timeout in [1, 3, 40] {
            let idle: Vec<Slot> = table.idle_from(Slot(1), 5, now, timeout).collect();
            let old = |flow: &TwinFlow| is_idle(now, flow.seen, timeout);
            let twin = flows.iter().map(|(_, flow)| flow);
            let twin = twin.filter(|flow| (1..6).contains(&flow.slot.0) && old(flow));
            assert_eq!(idle, twin.map(|flow| flow.slot).collect::<Vec<_>>());
        }
        assert!(flows.iter().all(|(_, flow)| flow.slot.index() < table.used()));
        for handle in &self.ended {
            assert_eq!(table.resolve(*handle), None);
        }
        let [half_open, closed, yielding] = [0, 1, 2].map(|list: usize| self.lists[list].len());
        let full = flows.len() - half_open - closed - yielding;
        assert_eq!(table.count(Class::HalfOpen), half_open);
        assert_eq!((table.count(Class::Full), table.len()), (full, flows.len()));
        assert_eq!((table.count(Class::Closed), table.count(Class::Yielding)), (closed, yielding));
        assert!(table.count(Class::HalfOpen) <= table.half_open_max());
        assert_eq!(table.statistics(), self.statistics);
        let (used, passed) = table.index.totals();
        assert!(used == flows.len() && (used > 0 || passed == 0), "{used} ways, {passed} passed");
        for (class, list) in
            [Class::HalfOpen, Class::Closed, Class::Yielding].iter().zip(&self.lists)
        {
            let all = std::iter::successors(table.oldest(*class), |slot| table.next_oldest(*slot));
            let order: Vec<FlowKey> = all.map(|slot| *table.key(slot).unwrap()).collect();
            assert_eq!(&order, list, "{class:?}");
        }
        assert_eq!(table.oldest(Class::Full), None);
    }
}

/// A call, with numbers of keys for keys: 0 is a row without one.
#[derive(Clone, Debug)]
enum Call {
    Lookup { rows: Vec<(u32, Option<Class>)>, direct: bool },
    Remove(u32),
    SetClass(u32, Class),
    SetHot(u32, u64),
    Sweep { records: usize, shortest: [u32; 2], more: u32 },
    Wait(u32),
}

fn class() -> impl Strategy<Value = Class> {
    prop_oneof![
        3 => Just(Class::HalfOpen),
        1 => Just(Class::Full),
        1 => Just(Class::Closed),
        1 => Just(Class::Yielding),
    ]
}

fn call(keys: u32) -> impl Strategy<Value = Call> {
    let row = (0..keys, prop::option::weighted(0.8, class()));
    let rows = prop::collection::vec(row, 0..90);
    let timeout = || prop_oneof![4 => 0u32..60, 1 => Just(u32::MAX), 1 => Just(i32::MAX as u32)];
    let wait = prop_oneof![6 => 0u32..40, 1 => Just(i32::MAX as u32), 1 => any::<u32>()];
    prop_oneof![
        6 => (rows, any::<bool>()).prop_map(|(rows, direct)| Call::Lookup { rows, direct }),
        3 => (0..keys).prop_map(Call::Remove),
        3 => (0..keys, class()).prop_map(|(key, class)| Call::SetClass(key, class)),
        2 => (0..keys, any::<u64>()).prop_map(|(key, hot)| Call::SetHot(key, hot)),
        3 => (0usize..200, [timeout(), timeout()], 0u32..30)
            .prop_map(|(records, shortest, more)| Call::Sweep { records, shortest, more }),
        3 => wait.prop_map(Call::Wait),
    ]
}

/// Runs calls on a table and its twin; what happened, to compare with another run.
fn run(limits: Limits, seed: u64, start: u32, calls: &[Call]) -> Vec<(Vec<Found>, Vec<Event>)> {
    let mut table = FlowTable::<Hot>::new(limits, seed).unwrap();
    let mut twin = Twin {
        limits: Limits { half_open_max: limits.half_open_max.min(limits.capacity), ..limits },
        flows: HashMap::new(),
        lists: Default::default(),
        statistics: Statistics::default(),
        hand: 0,
        used: 0,
        ended: Vec::new(),
    };
    let key_of = |number: u32| if number == 0 { FlowKey::default() } else { key(number) };
    let mut now = start;
    let mut log = Vec::new();
    for call in calls {
        match call {
            Call::Lookup { rows, direct } => {
                let keys: Vec<FlowKey> = rows.iter().map(|row| key_of(row.0)).collect();
                let admissions: Vec<Option<Class>> = rows.iter().map(|row| row.1).collect();
                let (mut found, mut events) = (vec![Found::NONE; keys.len()], Vec::new());
                let evicted = |slot, key: &FlowKey, hot: &Hot| events.push((slot, *key, *hot));
                let policy = &mut (|row: usize| admissions[row], evicted);
                if *direct {
                    table.lookup_direct(&keys, now, policy, &mut found);
                } else {
                    table.lookup(&keys, now, policy, &mut found);
                }
                let twins = twin.lookup(&keys, now, &admissions, &table, &found);
                assert_eq!((outcomes(&found), &events), (twins.0, &twins.1));
                for (key, found) in keys.iter().zip(&found) {
                    let has_flow = matches!(found.outcome, Outcome::Known | Outcome::New);
                    let slot = twin.flows.get(key).map(|flow| flow.slot).filter(|_| has_flow);
                    assert_eq!(found.slot(), slot);
                }
                // Guesses that are right, wrong, and none.
                let guess = |(row, found): (u32, &Found)| match row % 3 {
                    0 => found.slot().unwrap_or(Slot(NIL)),
                    1 => Slot(row % (2 + limits.capacity as u32)),
                    _ => Slot(NIL),
                };
                let guesses: Vec<Slot> = (0..).zip(&found).map(guess).collect();
                let mut plain = vec![Found::NONE; keys.len()];
                let mut guessed = plain.clone();
                table.search(&keys, &mut plain);
                table.search_guessed(&keys, &guesses, &mut guessed);
                assert_eq!(guessed, plain);
                log.push((found, events));
            }
            Call::Remove(number) => {
                if let Some(slot) = table.find(&key_of(*number)) {
                    let (key, hot) = table.remove(slot).unwrap();
                    assert_eq!(twin.end(&key), (slot, key_of(*number), hot));
                    twin.statistics.removed += 1;
                    assert!(table.remove(slot).is_none() && table.get(slot).is_none());
                    assert!(table.handle(slot).is_none() && table.seen(slot).is_none());
                }
            }
            Call::SetClass(number, class) => {
                let key = key_of(*number);
                if let Some(slot) = table.find(&key) {
                    let flow = twin.flows.get_mut(&key).unwrap();
                    let fits = twin.lists[0].len() < twin.limits.half_open_max;
                    let moves = flow.class != *class && (*class != Class::HalfOpen || fits);
                    let is_it = moves || flow.class == *class;
                    if moves {
                        flow.class = *class;
                        twin.enter(key, *class);
                    }
                    assert_eq!(table.set_class(slot, *class), is_it);
                    if *class == Class::Full {
                        table.renew(slot); // nothing to do
                    }
                }
            }
            Call::SetHot(number, hot) => {
                if let Some(slot) = table.find(&key_of(*number)) {
                    *table.get_mut(slot).unwrap() = [*hot, 1];
                    twin.flows.get_mut(&key_of(*number)).unwrap().hot = [*hot, 1];
                }
            }
            Call::Sweep { records, shortest, more } => {
                let shortest = Timeouts { half_open: shortest[0], full: shortest[1] };
                let timeout_of = |key: &FlowKey, hot: &Hot| {
                    key.addresses[0][1] as u32 % 4 * more + (hot[0] % 8) as u32
                };
                let mut events = Vec::new();
                let ended = |slot, key: &FlowKey, hot: &Hot| events.push((slot, *key, *hot));
                let swept = table.sweep(*records, now, shortest, timeout_of, ended);
                assert!(swept.slots <= *records);
                assert!(swept.slots > 0 || *records == 0 || twin.used == 0, "no progress");
                assert_eq!(events, twin.sweep(swept, now, shortest, timeout_of));
                log.push((Vec::new(), events));
            }
            Call::Wait(time) => now = now.wrapping_add(*time),
        }
        twin.assert_same(&table);
    }
    log
}

proptest! {
    #[test]
    fn table_and_twin_agree(
        capacity in prop_oneof![1usize..4, 4usize..40, 40usize..150],
        half_open in 0usize..100,
        keys in prop_oneof![2u32..12, 12u32..80, 80u32..300],
        seed in any::<u64>(),
        start in prop_oneof![0u32..3, u32::MAX - 60..=u32::MAX, any::<u32>()],
        calls in prop::collection::vec(call(300), 1..40),
    ) {
        // Few distinct keys: the numbers of the calls are folded.
        let fold = |number: &mut u32| *number %= keys;
        let calls: Vec<Call> = calls
            .into_iter()
            .map(|mut call| {
                match &mut call {
                    Call::Lookup { rows, .. } => rows.iter_mut().for_each(|row| fold(&mut row.0)),
                    Call::Remove(key) | Call::SetClass(key, _) | Call::SetHot(key, _) => fold(key),
                    Call::Sweep { .. } | Call::Wait(_) => {}
                }
                call
            })
            .collect();
        let limits = Limits { capacity, half_open_max: half_open };
        let first = run(limits, seed, start, &calls);
        prop_assert_eq!(first, run(limits, seed, start, &calls));
    }
}

// ── Bounds, one by one ──

#[test]
fn creation_reports_errors() {
    let create = |capacity| FlowTable::<Hot>::new(Limits { capacity, half_open_max: 1 }, 1).err();
    assert_eq!(create(0), Some(TableError::Zero));
    let capacity = CAPACITY_MAX + 1;
    assert_eq!(create(capacity), Some(TableError::TooLarge { capacity }));
    assert_eq!(create(usize::MAX), Some(TableError::TooLarge { capacity: usize::MAX }));
    assert_eq!(create(1), None);
    let text = TableError::Memory { bytes: 64 }.to_string();
    assert_eq!(text, "failed to allocate 64 bytes for the flow table");
    // What no machine has is an error, too, and nothing is aborted.
    assert!(matches!(zeroed::<u64>(1 << 60), Err(TableError::Memory { .. })));
}

#[test]
fn rows_of_one_batch_meet() {
    let mut table = table(8, 8);
    let keys = [key(1), FlowKey::default(), key(2), key(1), key(1)];
    let found = admit(&mut table, &keys, 5, Class::HalfOpen);
    let expected = [Outcome::New, Outcome::Skipped, Outcome::New, Outcome::Known, Outcome::Known];
    assert_eq!(outcomes(&found), expected);
    assert!(found[0].slot == found[3].slot && found[0].slot == found[4].slot);
    assert_ne!(found[0].slot, found[2].slot);
    assert_eq!((table.len(), found[1].slot()), (2, None));
    // The policy is asked for each row of a key that it does not admit, and in order.
    let (mut asked, mut found) = (Vec::new(), [Found::NONE; 4]);
    let keys = [key(3), key(1), key(3), key(4)];
    let refuse = |row| {
        asked.push(row);
        None
    };
    table.lookup(&keys, 6, &mut (refuse, none), &mut found);
    assert_eq!(asked, [0, 2, 3]);
    assert_eq!(found[1].outcome, Outcome::Known);
    assert_eq!((found[0].outcome, table.len()), (Outcome::NotAdmitted, 2));
}

#[test]
fn a_flood_evicts_no_established_flow_and_takes_no_memory() {
    const ESTABLISHED: u32 = 1_000;
    let mut table = table(4_096, 512);
    let memory = |table: &FlowTable<Hot>| {
        (table.lines.capacity() * size_of::<Line<Hot>>()
            + table.times.capacity() * size_of::<u32>()
            + table.metas.capacity() * size_of::<Meta>())
            + table.index.capacity_bytes()
            + table.order.capacity_bytes()
    };
    let before = memory(&table);
    assert_eq!(before, FlowTable::<Hot>::memory_bytes(4_096));
    let keys: Vec<FlowKey> = (0..ESTABLISHED).map(key).collect();
    for keys in keys.chunks(100) {
        for found in admit(&mut table, keys, 1, Class::HalfOpen) {
            assert!(table.set_class(found.slot().unwrap(), Class::Full));
        }
    }
    let mut found = [Found::NONE; 256];
    let (mut evicted, mut next) = (0u64, ESTABLISHED);
    for batch in 0..10_000_000 / 256 {
        let keys: [FlowKey; 256] = std::array::from_fn(|row| key(next + row as u32));
        next += 256;
        let count = |_, key: &FlowKey, _: &Hot| {
            assert!(key.addresses[0][1] >= 0x0a00_0000 + u64::from(ESTABLISHED));
            evicted += 1;
        };
        let policy = &mut (|_| Some(Class::HalfOpen), count);
        table.lookup(&keys, batch / 1_000, policy, &mut found);
    }
    assert_eq!((table.count(Class::Full), table.count(Class::HalfOpen)), (1_000, 512));
    assert_eq!(table.statistics().evicted, evicted);
    assert_eq!((evicted, table.statistics().refused), (u64::from(next - ESTABLISHED) - 512, 0));
    assert!(keys.iter().all(|key| table.find(key).is_some()));
    assert_eq!(memory(&table), before);
}

#[test]
fn established_flows_fill_a_table_and_stay() {
    let mut table = table(4, 2);
    let found = admit(&mut table, &[key(1), key(2), key(3)], 1, Class::HalfOpen);
    // The third would need the slot of a flow of its own batch.
    assert_eq!(outcomes(&found), [Outcome::New, Outcome::New, Outcome::Refused]);
    let keys: Vec<FlowKey> = (10..15).map(key).collect();
    let found = admit(&mut table, &keys, 2, Class::Full);
    assert_eq!(outcomes(&found)[..4], [Outcome::New; 4]);
    assert_eq!(found[4].outcome, Outcome::Refused);
    assert_eq!((table.count(Class::Full), table.statistics().evicted), (4, 2));
    assert_eq!(admit(&mut table, &[key(1)], 3, Class::HalfOpen)[0].outcome, Outcome::Refused);
    // A closed flow may be given up: it is half-open then, and makes room.
    let slot = table.find(&key(12)).unwrap();
    assert!(table.set_class(slot, Class::HalfOpen));
    let found = admit(&mut table, &[key(1)], 4, Class::Full);
    assert_eq!((found[0].outcome, found[0].slot()), (Outcome::New, Some(slot)));
}

/// Closed flows make room first, then half-open ones, then the yielding one that is idle longest; an established one never.
#[test]
fn classes_make_room_in_their_order() {
    let mut table = table(8, 8);
    let classes = [
        (1, Class::Full),
        (2, Class::Yielding),
        (3, Class::Yielding),
        (4, Class::HalfOpen),
        (5, Class::Closed),
        (6, Class::Closed),
        (7, Class::HalfOpen),
        (8, Class::Yielding),
    ];
    for (number, class) in classes {
        admit(&mut table, &[key(number)], number, class);
    }
    admit(&mut table, &[key(2)], 20, Class::Full); // seen again
    let mut gone = Vec::new();
    for number in 10..18 {
        let evicted = |_, own: &FlowKey, _: &Hot| gone.push(own.addresses[0][1] as u32 & 0xff);
        let mut found = [Found::NONE];
        table.lookup(&[key(number)], 30, &mut (|_| Some(Class::Full), evicted), &mut found);
        assert_eq!(found[0].outcome == Outcome::New, number < 17);
    }
    assert_eq!(gone, [5, 6, 4, 7, 3, 8, 2]);
    assert_eq!((table.count(Class::Full), table.statistics().refused), (8, 1));
    // At the bound of half-open flows a closed one does not help.
    let mut table = self::table(4, 1);
    admit(&mut table, &[key(1)], 1, Class::Closed);
    admit(&mut table, &[key(2)], 2, Class::HalfOpen);
    assert_eq!(admit(&mut table, &[key(3)], 3, Class::HalfOpen)[0].outcome, Outcome::New);
    assert!(table.find(&key(1)).is_some() && table.find(&key(2)).is_none());
}

#[test]
fn a_flow_of_the_batch_is_not_evicted() {
    let mut table = table(8, 3);
    for number in 1..4 {
        admit(&mut table, &[key(number)], number, Class::HalfOpen);
    }
    // The oldest has a row, behind the new ones: the second oldest goes, then the third; then there is none.
    let (mut evicted, mut found) = (Vec::new(), [Found::NONE; 4]);
    let keys = [key(10), key(11), key(12), key(1)];
    let list = |_, key: &FlowKey, _: &Hot| evicted.push(*key);
    table.lookup(&keys, 3, &mut (|_| Some(Class::HalfOpen), list), &mut found);
    assert_eq!(evicted, [key(2), key(3)]);
    let expected = [Outcome::New, Outcome::New, Outcome::Refused, Outcome::Known];
    assert_eq!(outcomes(&found), expected);
}

/// More keys of one home bucket than its ways, in the middle of the index and at its end.
#[test]
fn a_full_bucket_is_passed() {
    let mut table = table(60, 0);
    for home in [3, 10] {
        let in_home = |key: &FlowKey| table.index.place(table.hash.of(key)).bucket == home;
        let keys: Vec<FlowKey> = (0..).map(key).filter(in_home).take(36).collect();
        assert!(
            outcomes(&admit(&mut table, &keys, 1, Class::Full)).iter().all(|o| *o == Outcome::New)
        );
        // 26 pass the first bucket, 16 the second, 6 the third.
        assert_eq!(table.index.totals(), (36, 48));
        assert!(
            outcomes(&admit(&mut table, &keys, 1, Class::Full))
                .iter()
                .all(|o| *o == Outcome::Known)
        );
        // Those in front go first: those behind are found all the same.
        for (at, gone) in keys.iter().enumerate() {
            assert!(table.remove(table.find(gone).unwrap()).is_some());
            assert_eq!(table.find(gone), None);
            assert!(keys[at + 1..].iter().all(|key| table.find(key).is_some()));
        }
        assert_eq!(table.index.totals(), (0, 0));
    }
}

/// What the header of `index` says of a full table.
#[test]
fn a_full_table_has_short_searches() {
    let mut table = table(60_000, 0);
    let keys: Vec<FlowKey> = (0..60_000).map(key).collect();
    admit(&mut table, &keys, 1, Class::Full);
    let (used, passed) = table.index.totals();
    assert_eq!(used, 60_000);
    assert!(passed < 60_000 / 20, "{passed} further buckets for 60,000 flows");
}

#[test]
fn equal_tags_are_told_apart_by_the_key() {
    let mut table = table(6, 0);
    let place = |key: &FlowKey| {
        let place = table.index.place(table.hash.of(key));
        (place.bucket, place.tag)
    };
    let wanted = place(&key(0));
    let keys: Vec<FlowKey> = (0..).map(key).filter(|key| place(key) == wanted).take(4).collect();
    let found = admit(&mut table, &keys[..3], 1, Class::Full);
    assert_eq!(outcomes(&found), [Outcome::New; 3]);
    assert!(keys[..3].iter().zip(&found).all(|(key, found)| table.find(key) == found.slot()));
    assert_eq!(table.find(&keys[3]), None);
    table.remove(table.find(&keys[0]).unwrap());
    let outcomes = outcomes(&admit(&mut table, &keys, 2, Class::Full));
    assert_eq!(outcomes, [Outcome::New, Outcome::Known, Outcome::Known, Outcome::New]);
}

#[test]
fn idle_flows_end_also_where_time_wraps() {
    let mut table = table(200, 200);
    let keys: Vec<FlowKey> = (0..150).map(key).collect();
    let start = u32::MAX - 20;
    admit(&mut table, &keys, start, Class::Full);
    let shortest = Timeouts { half_open: 5, full: 50 };
    let mut sweep = |now: u32| {
        let mut slots = Vec::new();
        let ended = |slot: Slot, _: &FlowKey, _: &Hot| slots.push(slot.0);
        let swept = table.sweep(1 << 20, now, shortest, |_, _| 60, ended);
        assert!(swept.is_round && swept.ended == slots.len() && swept.slots == 150);
        slots
    };
    assert!(sweep(start).is_empty());
    assert!(sweep(start.wrapping_sub(1_000)).is_empty(), "seen later than now");
    assert!(sweep(start.wrapping_add(59)).is_empty());
    assert_eq!(sweep(start.wrapping_add(60)), (0..150).collect::<Vec<u32>>());
    assert!(table.is_empty());
    assert_eq!(table.statistics().expired, 150);
    // Time 0 is not that of a free slot.
    admit(&mut table, &keys[..1], 0, Class::HalfOpen);
    assert_eq!(table.seen(table.find(&keys[0]).unwrap()), Some(1));
}

/// A piece ends when its work is done, and all pieces are a round.
#[test]
fn pieces_of_a_sweep_are_bounded() {
    let mut table = table(100_000, 0);
    let keys: Vec<FlowKey> = (0..100_000).map(key).collect();
    admit(&mut table, &keys, 1, Class::Full);
    let shortest = Timeouts { half_open: 10, full: 10 };
    let mut sweep = |timeout: u32| {
        let (mut pieces, mut slots) = (0, 0);
        loop {
            let swept = table.sweep(4_096, 50, shortest, |_, _| timeout, none);
            assert!(swept.ended * 72 + swept.slots <= 4_096 + 2 * 96 * 72 + 64, "{swept:?}");
            (pieces, slots) = (pieces + 1, slots + swept.slots);
            if swept.is_round {
                return (pieces, slots);
            }
        }
    };
    assert_eq!(sweep(1_000).1, 100_000);
    let (pieces, slots) = sweep(20);
    assert!(pieces > 100_000 * 72 / (4_096 + 2 * 96 * 72) && slots == 100_000, "{pieces}");
    assert!(table.is_empty());
}

#[test]
fn a_slot_has_generations() {
    let mut table = table(1, 1);
    let first = admit(&mut table, &[key(1)], 1, Class::HalfOpen)[0].slot().unwrap();
    let handle = table.handle(first).unwrap();
    assert_eq!(table.resolve(handle), Some(first));
    assert!(table.set_class(first, Class::Full));
    assert_eq!(table.resolve(handle), Some(first));
    table.remove(first);
    assert_eq!(table.resolve(handle), None);
    let second = admit(&mut table, &[key(2)], 1, Class::HalfOpen)[0].slot().unwrap();
    assert_eq!((second, table.resolve(handle)), (first, None));
    assert_eq!(table.handle(Slot(7)), None);
    assert!(table.get(Slot(7)).is_none() && !table.set_class(Slot(7), Class::Full));
    assert!(table.remove(Slot(u32::MAX)).is_none() && table.key(Slot(u32::MAX)).is_none());
    // The generation wraps around within its 29 bits.
    assert_eq!(Meta(u32::MAX - 1).freed().0, 0);
}

/// Hashes of keys may meet; then each field tells them apart.
#[test]
fn keys_are_the_same_in_all_fields_alone() {
    let key = FlowKey::new(([1, 2], 3), ([4, 5], 6), 17, 6, 7).0;
    let key = FlowKey { tunnels: 8, tunnel_id: 9, ..key };
    assert!(same(&key, &key));
    let others = [
        FlowKey { addresses: [[0, 2], [4, 5]], ..key },
        FlowKey { addresses: [[1, 2], [4, 0]], ..key },
        FlowKey { ports: [3, 0], ..key },
        FlowKey { scope: 0, ..key },
        FlowKey { protocol: 6, ..key },
        FlowKey { family: 4, ..key },
        FlowKey { tunnels: 0, ..key },
        FlowKey { tunnel_id: 0, ..key },
    ];
    assert!(others.iter().all(|other| !same(&key, other)));
}
