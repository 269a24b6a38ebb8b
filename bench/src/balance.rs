//! `bench balance`: which side shades, in simulated time against settable costs (PacketShader §7).
//!
//! One worker and one device, each with a clock: the worker takes a burst whenever it is free, of as many
//! packets as have arrived; a chunk that it shades itself keeps it busy for the shade, one that it hands
//! over does not. Nothing here depends on the machine.

use std::time::Duration;

use engine::{Auto, DeviceCost, Side};

use crate::{Report, Row};

/// Packets of a chunk at most.
const CHUNK: u64 = 256;

/// Nanoseconds of a turn of the worker's loop, however few packets it brings.
const TURN_NS: u64 = 500;

/// What a scenario costs and brings.
struct Scenario {
    name: &'static str,
    /// Nanoseconds between packets.
    gap_ns: u64,
    /// Nanoseconds a packet for what the worker always does.
    worker_ns: u64,
    /// Nanoseconds a packet to shade on the CPU.
    cpu_ns: u64,
    /// Nanoseconds a packet on the device, and for each job.
    device_ns: u64,
    launch_ns: u64,
    bound: Option<Duration>,
    /// The least and the most of the packets, in percent, that the device should get.
    expected: (f64, f64),
}

const fn scenario(name: &'static str, gap_ns: u64, expected: (f64, f64)) -> Scenario {
    Scenario {
        name,
        gap_ns,
        worker_ns: 40,
        cpu_ns: 200,
        device_ns: 20,
        launch_ns: 15_000,
        bound: None,
        expected,
    }
}

/// Result of a scenario.
struct Outcome {
    to_device_percent: f64,
    rate_mpps: f64,
    cpu_only_mpps: f64,
    latency_us: f64,
    turns: u64,
}

fn scenarios() -> [Scenario; 6] {
    [
        // A packet each 2 µs: bursts of one.
        scenario("light load", 2_000, (0.0, 1.0)),
        // A packet each 100 ns: the CPU alone would need 240.
        scenario("heavy load, a cheap device", 100, (90.0, 100.0)),
        // Single chunks cost 90 ns a packet there, the CPU 60, large jobs 14.
        Scenario {
            worker_ns: 20,
            cpu_ns: 60,
            device_ns: 12,
            launch_ns: 20_000,
            ..scenario("heavy load, a device with a dear launch", 40, (90.0, 100.0))
        },
        Scenario { device_ns: 400, ..scenario("heavy load, a dear device", 100, (0.0, 3.0)) },
        Scenario {
            bound: Some(Duration::from_micros(15)),
            ..scenario("heavy load, a device beyond the bound", 100, (0.0, 3.0))
        },
        Scenario {
            device_ns: 190,
            launch_ns: 0,
            ..scenario("heavy load, costs alike", 100, (0.0, 3.0))
        },
    ]
}

pub(crate) fn run(packets: u64) -> Result<Report, String> {
    let mut report =
        Report::new("balance", format!("{packets} packets a scenario, simulated time"));
    for scenario in scenarios() {
        let outcome = simulate(&scenario, packets, true);
        let plain = simulate(&scenario, packets, false);
        let outcome = Outcome { cpu_only_mpps: plain.rate_mpps, ..outcome };
        let (least, most) = scenario.expected;
        let part = outcome.to_device_percent;
        if !(least..=most).contains(&part) {
            report.wrong.push(format!(
                "{}: {part:.1} % to the device, not {least} to {most} %",
                scenario.name
            ));
        }
        let mut row = |what: &str, unit: &str, value: f64| {
            report.rows.push(Row::new(format!("{}: {what}", scenario.name), unit, vec![value]));
        };
        row("to the device", "%", part);
        row("rate", "Mpps", outcome.rate_mpps);
        row("rate by the CPU alone", "Mpps", outcome.cpu_only_mpps);
        row("mean time under way", "us", outcome.latency_us);
        row("turns from side to side", "turns", outcome.turns as f64);
    }
    Ok(report)
}

/// A device that takes all chunks that wait whenever it is free, as a master gathers them into jobs.
#[derive(Default)]
struct Device {
    /// When each was handed over, when its first packet came, and its rows.
    waiting: Vec<(u64, u64, u64)>,
    free_at: u64,
    latency_ns: u128,
}

impl Device {
    /// Launches whatever it could have launched by `now`.
    fn advance(&mut self, now: u64, scenario: &Scenario, cost: &DeviceCost) {
        while let Some(&(first, ..)) = self.waiting.first() {
            let begin = self.free_at.max(first);
            if begin > now {
                return;
            }
            let n = self.waiting.iter().take_while(|(handed, ..)| *handed <= begin).count();
            let job: Vec<_> = self.waiting.drain(..n).collect();
            let rows: u64 = job.iter().map(|(_, _, rows)| rows).sum();
            let busy = scenario.launch_ns + rows * scenario.device_ns;
            self.free_at = begin + busy;
            cost.job_ended(rows as usize, busy);
            for (handed, arrived, rows) in job {
                cost.chunk_was_away(self.free_at - handed);
                self.latency_ns += u128::from(self.free_at - arrived) * u128::from(rows);
            }
        }
    }
}

fn simulate(scenario: &Scenario, packets: u64, with_device: bool) -> Outcome {
    /// Packets that wait at most: what a queue holds before it drops.
    const QUEUE: u64 = 4096;
    let (mut auto, cost) = (Auto::new(scenario.bound), DeviceCost::default());
    let mut device = Device::default();
    let (mut now, mut taken, mut dropped, mut to_device) = (0u64, 0u64, 0u64, 0u64);
    let (mut latency_ns, mut turns, mut last) = (0u128, 0u64, Side::Cpu);
    while taken + dropped < packets {
        device.advance(now, scenario, &cost);
        let arrived = (now / scenario.gap_ns).min(packets);
        let waiting = arrived.saturating_sub(taken + dropped);
        let lost = waiting.saturating_sub(QUEUE);
        dropped += lost;
        let burst = (waiting - lost).min(CHUNK);
        auto.turn_ended(burst as usize, burst as f64 / CHUNK as f64, now);
        if burst == 0 {
            now = (taken + dropped + 1) * scenario.gap_ns;
            continue;
        }
        let first_arrived = (taken + dropped) * scenario.gap_ns;
        now += TURN_NS + burst * scenario.worker_ns;
        match if with_device { auto.choose(&cost) } else { Side::Cpu } {
            Side::Cpu => {
                let ns = burst * scenario.cpu_ns;
                auto.shaded(burst as usize, ns);
                now += ns;
                latency_ns += u128::from(now - first_arrived) * u128::from(burst);
            }
            Side::Device => {
                device.waiting.push((now, first_arrived, burst));
                to_device += burst;
            }
        }
        // Probes do not count as turns.
        if auto.side() != last {
            (last, turns) = (auto.side(), turns + 1);
        }
        taken += burst;
    }
    device.advance(u64::MAX, scenario, &cost);
    let end = now.max(device.free_at).max(1);
    Outcome {
        to_device_percent: 100.0 * to_device as f64 / taken.max(1) as f64,
        rate_mpps: taken as f64 / end as f64 * 1e3,
        cpu_only_mpps: 0.0,
        latency_us: (latency_ns + device.latency_ns) as f64 / taken.max(1) as f64 / 1e3,
        turns,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_goes_where_it_should() {
        let report = run(2_000_000).unwrap();
        assert!(report.wrong.is_empty(), "{:?}", report.wrong);
        let value = |name: &str| report.rows.iter().find(|row| row.name == name).unwrap().median;
        let heavy = "heavy load, a cheap device";
        let gain =
            value(&format!("{heavy}: rate")) / value(&format!("{heavy}: rate by the CPU alone"));
        assert!(gain > 2.0, "{gain}");
        for scenario in scenarios() {
            assert!(value(&format!("{}: turns from side to side", scenario.name)) <= 2.0);
        }
    }
}
