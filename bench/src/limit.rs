//! `bench limit`: how many cache lines a second this machine reads at random, the bound of every lookup.
//!
//! Each of `A` cursors reads a line and goes on to a line that it could not know before: where to is a hash
//! of what it read. So exactly `A` reads are under way, however far the processor looks ahead. The lines
//! hold zeros; only their latency counts.

use std::hint::black_box;
use std::time::Instant;

use lookup::Blob;
use lookup::blob::Pages;

use crate::report::median;
use crate::{Args, Report, Row};

/// Words of 8 bytes in a cache line.
const LINE_WORDS: usize = 8;

/// Reads of one measurement.
const READS: usize = 1 << 22;

/// Table sizes of the report, in MiB.
const SIZES_MIB: [usize; 6] = [1, 8, 64, 256, 1024, 4096];

/// Reads in flight, of the report.
const FLIGHTS: [usize; 8] = [1, 2, 4, 8, 16, 24, 32, 48];

/// Reads in flight that a limit is taken over: more add nothing on today's cores, fewer starve.
const ENOUGH: [usize; 3] = [16, 24, 32];

/// Memory to read from at random.
pub(crate) struct Memory(Blob);

impl Memory {
    /// `bytes` of it, all mapped.
    pub(crate) fn new(bytes: usize, pages: Pages) -> Result<Self, String> {
        let mut blob = Blob::zeroed_on(pages, bytes / 4, 0).map_err(|error| error.to_string())?;
        // Pages that were never written are all the same page of zeros.
        blob.words_mut().iter_mut().step_by(16).for_each(|word| *word = black_box(0));
        Ok(Self(blob))
    }

    /// Million lines a second with `flight` reads under way.
    pub(crate) fn rate(&self, flight: usize, reads: usize) -> f64 {
        let run = match flight {
            0 | 1 => read::<1>,
            2 => read::<2>,
            3..=4 => read::<4>,
            5..=8 => read::<8>,
            9..=16 => read::<16>,
            17..=24 => read::<24>,
            25..=32 => read::<32>,
            _ => read::<48>,
        };
        let (lines, _) = self.0.words64().as_chunks::<LINE_WORDS>();
        let start = Instant::now();
        black_box(run(lines, reads));
        reads as f64 / start.elapsed().as_secs_f64() / 1e6
    }
}

/// The limit for a table of `bytes` on `pages`, in million lines a second: the median of `rounds` of the best
/// number of reads in flight. To be measured beside the lookups that are compared with it.
pub(crate) fn lines_per_second(bytes: usize, pages: Pages, rounds: usize) -> Result<f64, String> {
    let memory = Memory::new(bytes, pages)?;
    let best = |_| ENOUGH.map(|flight| memory.rate(flight, READS)).into_iter().fold(0.0, f64::max);
    Ok(median(&(0..rounds.max(1)).map(best).collect::<Vec<_>>()))
}

/// Reads about `reads` lines with `A` cursors in turn; a number that depends on all of them.
fn read<const A: usize>(lines: &[[u64; LINE_WORDS]], reads: usize) -> u64 {
    let mut cursors: [u64; A] = std::array::from_fn(|at| hash(at as u64 + 1));
    let count = lines.len() as u64;
    for turn in 0..(reads / A) as u64 {
        for cursor in &mut cursors {
            let line = (u128::from(*cursor) * u128::from(count)) >> 64;
            let read = lines[line as usize][0];
            *cursor = hash(*cursor ^ read ^ turn);
        }
    }
    cursors.into_iter().fold(0, |sum, cursor| sum ^ cursor)
}

/// One multiplication and two shifts: short against any miss.
fn hash(value: u64) -> u64 {
    let value = (value ^ value >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    value ^ value >> 29
}

pub(crate) fn run(args: &Args) -> Result<Report, String> {
    let mut report =
        Report::new("limit", "random cache lines, each address known only by the read before");
    let sizes: Vec<_> = SIZES_MIB.into_iter().filter(|mib| *mib as u64 <= free_mib() / 3).collect();
    for pages in [Pages::Huge, Pages::Small] {
        let name = match pages {
            Pages::Huge => "2 MB pages",
            Pages::Small => "4 KB pages",
        };
        for mib in &sizes {
            let memory = Memory::new(mib << 20, pages)?;
            let mut rounds = vec![Vec::new(); FLIGHTS.len()];
            for _ in 0..args.rounds.max(1) {
                for (flight, rates) in FLIGHTS.into_iter().zip(&mut rounds) {
                    // A single read under way waits for each line; it needs fewer of them.
                    rates.push(memory.rate(flight, READS.min(READS / 8 * flight)));
                }
            }
            for (flight, rates) in FLIGHTS.into_iter().zip(rounds) {
                let name = format!("{name}, {mib} MiB, {flight} in flight");
                report.rows.push(Row::new(name, "Mlines/s", rates));
            }
        }
    }
    Ok(report)
}

/// Memory that the system could give.
fn free_mib() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    line.and_then(|line| line.trim().split(' ').next()?.parse::<u64>().ok()).unwrap_or(0) >> 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_in_flight_reads_other_lines() {
        let memory = Memory::new(1 << 20, Pages::Huge).unwrap();
        let (lines, rest) = memory.0.words64().as_chunks::<LINE_WORDS>();
        assert!(lines.len() == 1 << 14 && rest.is_empty());
        // What is read decides: other content, another walk.
        let other = vec![[3; LINE_WORDS]; lines.len()];
        assert_ne!(read::<4>(lines, 1000), read::<4>(&other, 1000));
        assert_ne!(read::<1>(lines, 1000), read::<4>(lines, 1000));
        for flight in FLIGHTS {
            assert!(memory.rate(flight, 1000) > 0.0);
        }
    }
}
