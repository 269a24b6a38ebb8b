//! `shadeline measure`: loss, throughput and latency through a device under test.
//!
//! ```text
//!   measure ──tx──▶ device under test ──▶ rx ── measure
//! ```
//!
//! As PacketShader §6.1 and §6.4 measure: this program is source and sink, and each packet carries
//! its number and the time of its sending. `--max-loss` searches the highest rate at which no more
//! is lost, by bisection (RFC 2544 §26.1).
//!
//! The device must send the packets to `rx`: its next hop for the destination addresses is an
//! address of that interface, or a configured neighbour. This program does not answer ARP; the
//! system does, where the interface has an address.

mod arrivals;
mod histogram;
mod trial;

use std::time::Duration;

use chunk::{HugePages, Pool, Region};
use control::api::table::thousands;
use io::af_packet;
use serde::Serialize;

use crate::cli::MeasureArgs;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::output::{self, note, say};
use crate::traffic::{Rate, source_mac};
use trial::{Bench, Trial};

/// Length of a trial where neither time nor count is given.
const DURATION: Duration = Duration::from_secs(10);

/// Rate of a single trial where none is given.
const RATE: Rate = Rate::Packets(1e4);

/// Cells for packets on their way out and in.
const CELLS: u32 = 16_384;

/// Trials of one search, more than any resolution needs.
const TRIALS_MAX: usize = 40;

/// The result of a search.
#[derive(Debug, Serialize)]
struct Search<'a> {
    max_loss_percent: f64,
    /// The fastest trial that lost no more, if one did not.
    best: Option<&'a Trial>,
    trials: &'a [Trial],
}

pub(crate) fn run(args: &MeasureArgs) -> Result<(), Failure> {
    let source = source_mac(args.traffic.src_mac, &args.tx)?;
    let traffic = args.traffic.traffic(source, true)?;
    let (_, depot) = Region::new(CELLS, HugePages::Advise)
        .map_err(|error| Failure::other(format!("no memory for cells: {error}")))?;
    let interrupt = Interrupt::listen()?;
    let open = |interface: &str| {
        let pair = af_packet::open(interface, 1, &af_packet::Options::default());
        let pair = pair.map_err(Failure::other)?.pop();
        pair.ok_or_else(|| Failure::other(format!("{interface}: no queue")))
    };
    let mut bench = Bench {
        traffic: &traffic,
        tx: open(&args.tx)?.1,
        rx: open(&args.rx)?.0,
        tx_pool: Pool::new(depot.clone(), 256),
        rx_pool: Pool::new(depot, 256),
        wait: args.wait,
        interrupted: &interrupt.stop,
    };
    let duration = match (args.traffic.duration, args.traffic.count) {
        (Some(duration), _) => duration,
        (None, Some(_)) => Duration::MAX,
        (None, None) => DURATION,
    };
    let Some(max_loss) = args.max_loss else {
        let pps = traffic.pps(args.traffic.rate.unwrap_or(RATE));
        let trial = bench.trial(pps, duration, args.traffic.count)?;
        print(&trial, args.json, || show(&trial))?;
        return interrupt.check();
    };
    let highest = traffic.pps(args.traffic.rate.unwrap_or(Rate::Max));
    let trials = search(highest, max_loss, args.resolution / 100.0, |pps| {
        let trial = bench.trial(pps, duration, args.traffic.count)?;
        note!(
            "offered {:>9.4} Mpps  received {:>9.4} Mpps  lost {:.4} %",
            trial.offered_pps / 1e6,
            trial.received_pps / 1e6,
            trial.loss_percent
        );
        interrupt.check()?;
        Ok(trial)
    })?;
    let best = best(&trials, max_loss);
    let result = Search { max_loss_percent: max_loss, best, trials: &trials };
    print(&result, args.json, || match best {
        Some(trial) => show(trial),
        None => say!("every trial lost more than {max_loss} %"),
    })?;
    if best.is_some() { Ok(()) } else { Err(Failure::reported()) }
}

/// Trials from the highest rate on, each between the fastest that kept the limit and the slowest
/// that did not, until these are `resolution` of the highest apart.
fn search(
    highest: Option<f64>,
    max_loss_percent: f64,
    resolution: f64,
    mut trial: impl FnMut(Option<f64>) -> Result<Trial, Failure>,
) -> Result<Vec<Trial>, Failure> {
    let first = trial(highest)?;
    // What the sender can do, where it cannot do what is asked.
    let top = first.offered_pps.min(highest.unwrap_or(f64::INFINITY));
    let (mut good, mut bad) = (0.0, top);
    let is_good = first.loss_percent <= max_loss_percent;
    let mut trials = vec![first];
    while !is_good && bad - good > top * resolution && trials.len() < TRIALS_MAX {
        let middle = (good + bad) / 2.0;
        let next = trial(Some(middle))?;
        let side = if next.loss_percent <= max_loss_percent { &mut good } else { &mut bad };
        *side = middle;
        trials.push(next);
    }
    Ok(trials)
}

/// The fastest trial that kept the limit.
fn best(trials: &[Trial], max_loss_percent: f64) -> Option<&Trial> {
    let kept = trials.iter().filter(|trial| trial.loss_percent <= max_loss_percent);
    kept.max_by(|a, b| a.offered_pps.total_cmp(&b.offered_pps))
}

fn print(
    result: &impl Serialize,
    json: bool,
    show: impl FnOnce() -> Result<(), Failure>,
) -> Result<(), Failure> {
    if json {
        return output::json(result);
    }
    show()
}

fn show(t: &Trial) -> Result<(), Failure> {
    let rate = |what: &str, packets: u64, pps: f64, gbps: f64| {
        say!(
            "{what:<12} {:>14} packets  {:>9.4} Mpps  {:>9.4} Gb/s",
            thousands(packets),
            pps / 1e6,
            gbps
        )
    };
    rate("sent", t.sent_packets, t.offered_pps, t.offered_gbps)?;
    rate("received", t.received_packets, t.received_pps, t.received_gbps)?;
    say!("{:<12} {:>14} packets  {:.4} %", "lost", thousands(t.lost_packets), t.loss_percent)?;
    say!("{:<12} {:>14} packets", "duplicated", thousands(t.duplicated_packets))?;
    say!("{:<12} {:>14} packets", "reordered", thousands(t.reordered_packets))?;
    let l = &t.latency_us;
    if t.received_packets == 0 {
        say!("latency (µs)  -")?;
    } else {
        say!(
            "latency (µs)  min {:.1}  mean {:.1}  50 % {:.1}  90 % {:.1}  99 % {:.1}  99.9 % {:.1}  max {:.1}",
            l.min,
            l.mean,
            l.p50,
            l.p90,
            l.p99,
            l.p99_9,
            l.max
        )?;
    }
    say!("longest time without a packet: {:.3} ms", t.longest_gap_ms)?;
    if let Some(rate) = t.rate_pps.filter(|rate| t.offered_pps < rate * 0.98) {
        say!("the sender could not keep up: {:.4} Mpps were requested", rate / 1e6)?;
    }
    if t.overrun_packets > 0 {
        say!(
            "{} packets were lost in this program's own receive queue",
            thousands(t.overrun_packets)
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use trial::Latency;

    /// A device that forwards `capacity` packets a second and loses the rest.
    fn device(capacity: f64, limit: f64) -> impl FnMut(Option<f64>) -> Result<Trial, Failure> {
        move |pps| {
            let offered = pps.unwrap_or(limit).min(limit);
            let loss_percent = (1.0 - capacity / offered).max(0.0) * 100.0;
            let latency_us =
                Latency { min: 0.0, mean: 0.0, p50: 0.0, p90: 0.0, p99: 0.0, p99_9: 0.0, max: 0.0 };
            Ok(Trial {
                rate_pps: pps,
                offered_pps: offered,
                offered_gbps: 0.0,
                seconds: 1.0,
                sent_packets: offered as u64,
                received_packets: 0,
                lost_packets: 0,
                loss_percent,
                duplicated_packets: 0,
                reordered_packets: 0,
                overrun_packets: 0,
                received_pps: 0.0,
                received_gbps: 0.0,
                latency_us,
                longest_gap_ms: 0.0,
            })
        }
    }

    #[test]
    fn the_search_finds_the_capacity() {
        for (capacity, max_loss, expected) in [(3.3e5, 0.0, 3.3e5), (3.3e5, 10.0, 3.3e5 / 0.9)] {
            let trials = search(None, max_loss, 0.01, device(capacity, 1e6)).unwrap();
            let found = best(&trials, max_loss).unwrap().offered_pps;
            assert!(found <= expected && found > expected - 1e4, "{found}");
            assert!(trials.len() <= 8, "{}", trials.len());
        }
    }

    #[test]
    fn a_device_faster_than_the_sender_takes_one_trial() {
        let trials = search(Some(2e6), 0.0, 0.01, device(1e7, 1e6)).unwrap();
        assert_eq!((trials.len(), best(&trials, 0.0).unwrap().offered_pps), (1, 1e6));
    }

    #[test]
    fn a_device_that_loses_all_has_no_rate() {
        let trials = search(None, 0.0, 0.01, device(0.0, 1e6)).unwrap();
        assert!(best(&trials, 0.0).is_none());
        let trials = search(None, 0.0, 0.0, device(0.0, 1e6)).unwrap();
        assert_eq!(trials.len(), TRIALS_MAX);
    }
}
