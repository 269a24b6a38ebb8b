//! `bench switching`: the toy hash table of the G-Opt slides in its forms, and two lookups in one pipeline.
//!
//! A key's hash is a slot; the slot holds the number of a record: two reads, the second's place known only
//! from the first. In the walking table the record may send on to another, up to eight times, so that the
//! lookups differ in length.

use std::task::Poll;

use interleave::{
    Machine, Memory, Walk, map_direct, map_switched, prefetch, run_grouped, run_machine,
};
use lookup::Blob;
use lookup::blob::Pages;

use crate::forms::{Form, rates, ratio, rows};
use crate::limit::lines_per_second;
use crate::limits::has_room;
use crate::tables::Random;
use crate::{Args, Report, Row};

/// Words of 8 bytes in a record: a cache line.
const RECORD_WORDS: usize = 8;

/// Records behind the first one at most: as many as a value has bytes to ask.
const HOPS_MAX: u32 = 8;

/// Packets whose lookups go together in a pipeline.
const STAGED: usize = 256;

/// Slots with the numbers of records; records with a value and, in the walking table, a next record.
struct Toy {
    slots: Blob,
    records: Blob,
    /// A record sends on as bits of its value say: this share of 256.
    goes_on: u64,
}

impl Toy {
    fn new(bytes: usize, pages: Pages, goes_on: u64) -> Result<Self, String> {
        let text = |error: std::io::Error| error.to_string();
        let count = bytes / 64;
        let mut random = Random(7);
        let mut slots = Blob::zeroed_on(pages, count, 0).map_err(text)?;
        slots.words_mut().iter_mut().for_each(|slot| *slot = random.below(count) as u32);
        let mut records = Blob::zeroed_on(pages, count * 16, 0).map_err(text)?;
        for record in records.words64_mut().as_chunks_mut::<RECORD_WORDS>().0 {
            record[0] = random.next();
            record[1] = random.below(count) as u64;
        }
        Ok(Self { slots, records, goes_on })
    }

    fn slot(&self, key: u64) -> &u32 {
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let slots = self.slots.words();
        &slots[((hash * slots.len() as u64) >> 32) as usize]
    }

    fn record(&self, number: u64) -> &[u64; RECORD_WORDS] {
        &self.records.words64().as_chunks().0[number as usize]
    }

    /// The record after this one, the `hop`-th, if the walk goes on: each hop asks other bits, so that a walk
    /// that comes back to a record ends all the same.
    fn next(&self, record: &[u64; RECORD_WORDS], hop: u32) -> Option<u64> {
        (hop < HOPS_MAX && record[0] >> (8 * hop) & 0xff < self.goes_on).then_some(record[1])
    }

    /// Written once: plain with `Direct`, switched with `Switched`.
    async fn find<M: Memory>(&self, memory: M, key: u64) -> u64 {
        let slot = self.slot(key);
        memory.touch(slot).await;
        let mut record = self.record((*slot).into());
        let mut hop = 0;
        loop {
            memory.touch(record).await;
            match self.next(record, hop) {
                Some(next) => record = self.record(next),
                None => return record[0],
            }
            hop += 1;
        }
    }
}

/// Where a lookup is: at its slot (no record yet), or at the record of a hop.
#[derive(Clone, Copy)]
struct At {
    record: u64,
    hop: u32,
}

/// The hop before the first record.
const SLOT: u32 = u32::MAX;

impl Machine for Toy {
    type Key = u64;
    type Value = u64;
    type State = At;

    fn begin(&self, key: &u64) -> At {
        prefetch(self.slot(*key));
        At { record: 0, hop: SLOT }
    }

    fn step(&self, key: &u64, at: &mut At) -> Poll<u64> {
        let next = if at.hop == SLOT {
            u64::from(*self.slot(*key))
        } else {
            let record = self.record(at.record);
            match self.next(record, at.hop) {
                Some(next) => next,
                None => return Poll::Ready(record[0]),
            }
        };
        prefetch(self.record(next));
        *at = At { record: next, hop: at.hop.wrapping_add(1) };
        Poll::Pending
    }
}

impl Walk for Toy {
    type Key = u64;
    type Value = u64;
    type State = At;

    fn begin(&self, key: &u64) -> At {
        Machine::begin(self, key)
    }

    fn level(&self, key: &u64, at: &mut At) -> bool {
        self.step(key, at).is_pending()
    }

    fn end(&self, _: &u64, at: &At) -> u64 {
        self.record(at.record)[0]
    }
}

fn forms<'a>(toy: &'a Toy, keys: &'a [u64], burst: usize) -> Vec<Form<'a, u64>> {
    macro_rules! bursts {
        ($name:expr, $run:expr) => {
            Form::new($name, move |out: &mut [u64]| {
                for (keys, out) in keys.chunks(burst).zip(out.chunks_mut(burst)) {
                    $run(keys, out);
                }
            })
        };
    }
    macro_rules! switched {
        ($b:literal) => {
            bursts!(concat!("switched, ", $b), |keys, out: &mut [u64]| {
                map_switched::<$b, _, _, _, _>(keys, out, |memory, key| toy.find(memory, *key));
            })
        };
    }
    vec![
        bursts!("plain", |keys, out: &mut [u64]| {
            map_direct(keys, out, |memory, key| toy.find(memory, *key));
        }),
        bursts!("group, 32", |keys, out: &mut [u64]| run_grouped::<32, _>(toy, keys, out)),
        bursts!("group, 128", |keys, out: &mut [u64]| run_grouped::<128, _>(toy, keys, out)),
        switched!(8),
        switched!(16),
        switched!(32),
        switched!(48),
        bursts!("machine, 32", |keys, out: &mut [u64]| run_machine::<32, _>(toy, keys, out)),
    ]
}

pub(crate) fn run(args: &Args, keys: usize, mebibytes: usize) -> Result<Report, String> {
    if keys == 0 || mebibytes == 0 {
        return Err("nothing to look up: keys and a table are needed".into());
    }
    has_room(&format!("{keys} keys"), keys.saturating_mul(32))?;
    has_room(&format!("tables of {mebibytes} MiB"), mebibytes.saturating_mul(2 << 20))?;
    let data = format!("the toy table of {mebibytes} MiB, {keys} random keys");
    let mut report = Report::new("switching", data);
    let mut random = Random(11);
    let keys: Vec<u64> = (0..keys).map(|_| random.next()).collect();
    let all = keys.len();
    // Table, page, share of 256 that goes on, keys of a call, threads.
    let (table, cache) = (mebibytes << 20, 1 << 19);
    let loads = [
        ("two reads", table, Pages::Huge, 0, all, 1),
        ("walks", table, Pages::Huge, 128, all, 1),
        ("walks, 2 threads", table, Pages::Huge, 128, all, 2),
        ("walks, bursts of 64", table, Pages::Huge, 128, 64, 1),
        ("walks, bursts of 32", table, Pages::Huge, 128, 32, 1),
        ("walks, 4 KB pages", table, Pages::Small, 128, all, 1),
        ("walks, in cache", cache, Pages::Huge, 128, all, 1),
    ];
    let limit = lines_per_second(table, Pages::Huge, args.rounds)?;
    report.rows.push(Row::new("random lines, 2 MB pages", "Mlines/s", vec![limit]));
    for (name, bytes, pages, goes_on, burst, threads) in loads {
        let toy = Toy::new(bytes, pages, goes_on)?;
        let forms = forms(&toy, &keys, burst);
        let rates = rates(&forms, all, args.rounds, threads, &mut report.wrong);
        let share = goes_on as f64 / 256.0;
        let lines = 2.0 + (1..=HOPS_MAX).map(|hop| share.powi(hop as i32)).sum::<f64>();
        // Of a table of this size on these pages.
        let limit = match pages {
            Pages::Huge if bytes == table => limit,
            _ => lines_per_second(bytes, pages, args.rounds)?,
        };
        let (prefix, limit) = (format!("{name}, "), limit * threads as f64);
        report.rows.extend(rows(&prefix, &forms, &rates, lines, limit));
        let best = format!("{name}, switched over plain");
        report.rows.push(ratio(best, &rates[5], &rates[0]));
    }
    staged(args, &keys, table, &mut report)?;
    Ok(report)
}

/// Two lookups for each packet, the second with what the first found.
fn staged(args: &Args, keys: &[u64], bytes: usize, report: &mut Report) -> Result<(), String> {
    let (first, second) =
        (Toy::new(bytes / 2, Pages::Huge, 128)?, Toy::new(bytes / 2, Pages::Huge, 64)?);
    let stage = |keys: &[u64], between: &mut [u64], out: &mut [u64]| {
        map_switched::<32, _, _, _, _>(keys, between, |m, key| first.find(m, *key));
        map_switched::<32, _, _, _, _>(between, out, |m, key| second.find(m, *key));
    };
    let forms = [
        Form::new("nested, plain", |out: &mut [u64]| {
            map_direct(keys, out, async |m, key: &u64| {
                second.find(m, first.find(m, *key).await).await
            });
        }),
        Form::new("nested in one future, switched", |out: &mut [u64]| {
            let nested = async |m, key: &u64| second.find(m, first.find(m, *key).await).await;
            for (keys, out) in keys.chunks(STAGED).zip(out.chunks_mut(STAGED)) {
                map_switched::<32, _, _, _, _>(keys, out, nested);
            }
        }),
        Form::new("staged over 256 packets, switched", |out: &mut [u64]| {
            let mut between = [0; STAGED];
            for (keys, out) in keys.chunks(STAGED).zip(out.chunks_mut(STAGED)) {
                stage(keys, &mut between[..keys.len()], out);
            }
        }),
    ];
    let rates = rates(&forms, keys.len(), args.rounds, 1, &mut report.wrong);
    for (form, rates) in forms.iter().zip(&rates) {
        report.rows.push(Row::new(
            format!("two lookups, {}", form.name),
            "Mpackets/s",
            rates.clone(),
        ));
    }
    report
        .rows
        .push(ratio("two lookups, staged over nested plain", &rates[2], &rates[0]).at_least(2.0));
    report.rows.push(ratio("two lookups, staged over nested in one future", &rates[2], &rates[1]));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_the_toy_agree() {
        let keys: Vec<u64> = (0..1000).map(|key| key * key).collect();
        for goes_on in [0, 128, 230] {
            let toy = Toy::new(1 << 16, Pages::Huge, goes_on).unwrap();
            let mut wrong = Vec::new();
            let forms = forms(&toy, &keys, 100);
            rates(&forms, keys.len(), 1, 2, &mut wrong);
            assert!(wrong.is_empty(), "{wrong:?}");
        }
    }
}
