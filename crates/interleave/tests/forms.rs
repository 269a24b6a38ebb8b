//! Every form gives what a plain loop gives, whatever the lengths of batch and walk.

use std::task::Poll;

use interleave::{
    Machine, Memory, Walk, map_direct, map_switched, prefetch, run_grouped, run_machine,
    run_machine_direct,
};

/// Chains through an array: a key is a start and a length, the result the place it ends at.
struct Chains(Vec<u32>);

type Key = (u32, u32);

impl Chains {
    fn new(places: u32) -> Self {
        let mut next: Vec<u32> = (0..places).collect();
        let mut random = 7;
        for i in (1..next.len()).rev() {
            next.swap(i, below(&mut random, i as u64 + 1) as usize);
        }
        Self(next)
    }

    fn plain(&self, &(start, steps): &Key) -> u32 {
        (0..steps).fold(start, |at, _| self.0[at as usize])
    }

    async fn walk<M: Memory>(&self, memory: M, &(start, steps): &Key) -> u32 {
        let mut at = start;
        for _ in 0..steps {
            let place = &self.0[at as usize];
            memory.touch(place).await;
            at = *place;
        }
        at
    }
}

impl Machine for Chains {
    type Key = Key;
    type Value = u32;
    type State = Key;

    fn begin(&self, key: &Key) -> Key {
        prefetch(&self.0[key.0 as usize]);
        *key
    }

    fn step(&self, _: &Key, (at, left): &mut Key) -> Poll<u32> {
        if *left == 0 {
            return Poll::Ready(*at);
        }
        *at = self.0[*at as usize];
        *left -= 1;
        prefetch(&self.0[*at as usize]);
        Poll::Pending
    }
}

impl Walk for Chains {
    type Key = Key;
    type Value = u32;
    type State = Key;

    fn begin(&self, key: &Key) -> Key {
        Machine::begin(self, key)
    }

    fn level(&self, key: &Key, state: &mut Key) -> bool {
        self.step(key, state).is_pending()
    }

    fn end(&self, _: &Key, &(at, _): &Key) -> u32 {
        at
    }
}

fn keys(count: usize, places: u32, steps_max: u64) -> Vec<Key> {
    let mut random = count as u64 + 1;
    let key = |_| (below(&mut random, places.into()) as u32, below(&mut random, steps_max) as u32);
    (0..count).map(key).collect()
}

fn check<const B: usize>(chains: &Chains, keys: &[Key]) {
    let expected: Vec<u32> = keys.iter().map(|key| chains.plain(key)).collect();
    let run = |name: &str, run: &dyn Fn(&mut [u32])| {
        let mut out = vec![u32::MAX; keys.len()];
        run(&mut out);
        assert_eq!(out, expected, "{name}, {B} in flight, {} keys", keys.len());
    };
    run("direct", &|out| map_direct(keys, out, |m, key| chains.walk(m, key)));
    run("switched", &|out| {
        map_switched::<B, _, _, _, _>(keys, out, |m, key| chains.walk(m, key));
    });
    run("machine", &|out| run_machine::<B, _>(chains, keys, out));
    run("machine, plain", &|out| run_machine_direct(chains, keys, out));
    run("grouped", &|out| run_grouped::<B, _>(chains, keys, out));
}

#[test]
fn all_forms_agree() {
    let chains = Chains::new(1000);
    for count in [0, 1, 2, 7, 8, 9, 31, 32, 33, 64, 100, 1000] {
        for steps_max in [1, 2, 20] {
            let keys = keys(count, 1000, steps_max);
            check::<1>(&chains, &keys);
            check::<2>(&chains, &keys);
            check::<8>(&chains, &keys);
            check::<32>(&chains, &keys);
            check::<100>(&chains, &keys);
        }
    }
}

/// One long walk among short ones keeps its slot; the others go on through the rest.
#[test]
fn a_long_walk_holds_up_no_other() {
    let chains = Chains::new(1000);
    let mut keys = keys(200, 1000, 3);
    keys[3] = (5, 10_000);
    check::<4>(&chains, &keys);
}

#[test]
#[should_panic(expected = "one result for each key")]
fn lengths_must_agree() {
    let chains = Chains::new(10);
    map_switched::<4, _, _, _, _>(&[(1, 1)], &mut [], |m, key| chains.walk(m, key));
}

/// A number below `limit`, by xorshift64*.
fn below(state: &mut u64, limit: u64) -> u64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    let random = state.wrapping_mul(0x2545_f491_4f6c_dd1d);
    ((u128::from(random) * u128::from(limit)) >> 64) as u64
}
