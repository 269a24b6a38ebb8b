//! The toy hash table of the G-Opt slides ("Toy hash table") in its forms, and what each does on this machine:
//!
//! ```text
//! cargo run --release -p interleave --example toy [MEBIBYTES]
//! ```
//!
//! A key's hash is a slot, the slot holds the place of a value: two dependent accesses to memory.

use std::time::Instant;

use interleave::{
    Machine, Memory, Walk, map_direct, map_switched, prefetch, run_grouped, run_machine,
};

struct Toy {
    slots: Vec<u32>,
    values: Vec<u64>,
}

impl Toy {
    fn slot(&self, key: &u64) -> &u32 {
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        &self.slots[((hash * self.slots.len() as u64) >> 32) as usize]
    }

    /// Written once: plain with `Direct`, switched with `Switched`.
    async fn find<M: Memory>(&self, memory: M, key: &u64) -> u64 {
        let slot = self.slot(key);
        memory.touch(slot).await;
        let value = &self.values[*slot as usize];
        memory.touch(value).await;
        *value
    }
}

/// Group prefetching: the place of the value is all that a walk keeps.
impl Walk for Toy {
    type Key = u64;
    type Value = u64;
    type State = Option<u32>;

    fn begin(&self, key: &u64) -> Self::State {
        prefetch(self.slot(key));
        None
    }

    fn level(&self, key: &u64, state: &mut Self::State) -> bool {
        let place = *self.slot(key);
        prefetch(&self.values[place as usize]);
        *state = Some(place);
        false
    }

    fn end(&self, _: &u64, state: &Self::State) -> u64 {
        state.map_or(0, |place| self.values[place as usize])
    }
}

/// The same by hand, as the compiler does it for `find`.
impl Machine for Toy {
    type Key = u64;
    type Value = u64;
    type State = Option<u32>;

    fn begin(&self, key: &u64) -> Self::State {
        prefetch(self.slot(key));
        None
    }

    fn step(&self, key: &u64, state: &mut Self::State) -> std::task::Poll<u64> {
        if let Some(place) = *state {
            return std::task::Poll::Ready(self.values[place as usize]);
        }
        let place = *self.slot(key);
        prefetch(&self.values[place as usize]);
        *state = Some(place);
        std::task::Poll::Pending
    }
}

/// A form's name, its run over keys and results, and what it measured, in M/s.
type Form<'a> = (&'static str, &'a dyn Fn(&[u64], &mut [u64]), Vec<f64>);

fn main() {
    let mebibytes: usize = std::env::args().nth(1).map_or(512, |text| match text.parse() {
        Ok(mebibytes @ 1..=65_536) => mebibytes,
        _ => {
            eprintln!("toy: {text:?} is not a size; expected 1 to 65536 MiB");
            std::process::exit(2);
        }
    });
    let values = mebibytes << 20 >> 4;
    let mut random = 1;
    let mut toy = Toy { slots: with_huge_pages(values), values: with_huge_pages(values) };
    toy.slots.extend((0..values).map(|_| below(&mut random, values as u64) as u32));
    toy.values.extend((0..values as u64).map(|value| value * 3));
    let keys: Vec<u64> = (0..1 << 20).map(|_| below(&mut random, u64::MAX)).collect();

    let mut plain = vec![0; keys.len()];
    println!("{mebibytes} MiB, {} lookups a round, median of 7 rounds", keys.len());
    let mut forms: [Form<'_>; 4] = [
        ("plain", &|keys, out| map_direct(keys, out, |m, key| toy.find(m, key)), Vec::new()),
        ("group", &|keys, out| run_grouped::<64, _>(&toy, keys, out), Vec::new()),
        (
            "switched",
            &|keys, out| map_switched::<32, _, _, _, _>(keys, out, |m, key| toy.find(m, key)),
            Vec::new(),
        ),
        ("machine", &|keys, out| run_machine::<32, _>(&toy, keys, out), Vec::new()),
    ];
    forms[0].1(&keys, &mut plain);
    for _ in 0..7 {
        for (name, run, rates) in &mut forms {
            let mut out = vec![1; keys.len()];
            let start = Instant::now();
            run(&keys, &mut out);
            rates.push(keys.len() as f64 / start.elapsed().as_secs_f64() / 1e6);
            assert!(out == plain, "{name} gives other values");
        }
    }
    for (name, _, rates) in &mut forms {
        rates.sort_by(f64::total_cmp);
        println!("{name:>9} {:6.1} M/s", rates[rates.len() / 2]);
    }
}

/// An empty vector whose memory is on pages of 2 MB where the system has some: with pages of 4 KB, half of
/// the time goes into finding the page.
fn with_huge_pages<T>(capacity: usize) -> Vec<T> {
    let vec = Vec::<T>::with_capacity(capacity);
    let page = 1 << 21;
    let start = vec.as_ptr().addr().next_multiple_of(page);
    let end = vec.as_ptr().addr() + capacity * size_of::<T>();
    if start < end {
        // SAFETY: whole pages inside of the allocation; the advice changes how they are mapped, not what they
        // hold. A refusal (no such advice on this system) leaves them as they are.
        unsafe { libc::madvise(start as *mut libc::c_void, end - start, libc::MADV_HUGEPAGE) };
    }
    vec
}

/// A number below `limit`, by xorshift64*.
fn below(state: &mut u64, limit: u64) -> u64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    let random = state.wrapping_mul(0x2545_f491_4f6c_dd1d);
    ((u128::from(random) * u128::from(limit)) >> 64) as u64
}
