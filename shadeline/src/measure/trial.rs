//! One trial: sends at a rate, receives what comes back, and counts.
//!
//! Two threads. The sender stamps each packet with its number and the monotonic clock when it is
//! made. The receiver takes the kernel's time of receipt, so that how long a packet lies in the
//! receive ring does not count; that clock is the real-time one, and the difference of the two
//! clocks is taken again and again. Latencies include what the sender needs from making a packet
//! to the wire, as those of PacketShader §6.4 do.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use chunk::{Packet, Pool};
use io::generator::{Pace, Stamp, monotonic_ns};
use io::{RxQueue, af_packet};
use serde::Serialize;

use super::arrivals::Arrivals;
use super::histogram::Histogram;
use crate::failure::Failure;
use crate::traffic::{Sent, Traffic, send, wire_bps};

/// Packets of one call of the sender: those behind the first wait for it with their stamps made.
const BURST: usize = 16;

/// Packets of one call of the receiver.
const RX_BURST: usize = 64;

/// How long the receiver waits for packets at a time.
const POLL: rustix::event::Timespec = rustix::event::Timespec { tv_sec: 0, tv_nsec: 5_000_000 };

/// How often the difference of the clocks is taken.
const CLOCKS_EVERY_NS: u64 = 10_000_000;

/// What one trial found.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Trial {
    /// Asked for; `None`: as fast as possible.
    pub(crate) rate_pps: Option<f64>,
    /// Really sent.
    pub(crate) offered_pps: f64,
    pub(crate) offered_gbps: f64,
    pub(crate) seconds: f64,
    pub(crate) sent_packets: u64,
    /// Each once.
    pub(crate) received_packets: u64,
    pub(crate) lost_packets: u64,
    pub(crate) loss_percent: f64,
    pub(crate) duplicated_packets: u64,
    pub(crate) reordered_packets: u64,
    /// Lost between the wire and this program, for want of time: no fault of the device under test.
    pub(crate) overrun_packets: u64,
    pub(crate) received_pps: f64,
    pub(crate) received_gbps: f64,
    pub(crate) latency_us: Latency,
    /// Longest time without a packet from the begin to the end of sending, by the kernel's time of receipt: an outage,
    /// or the pace itself.
    pub(crate) longest_gap_ms: f64,
}

/// Round-trip latency in microseconds.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Latency {
    pub(crate) min: f64,
    pub(crate) mean: f64,
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    #[serde(rename = "p99.9")]
    pub(crate) p99_9: f64,
    pub(crate) max: f64,
}

/// What all trials share.
pub(crate) struct Bench<'a> {
    pub(crate) traffic: &'a Traffic,
    pub(crate) tx: af_packet::Tx,
    pub(crate) rx: af_packet::Rx,
    pub(crate) tx_pool: Pool,
    pub(crate) rx_pool: Pool,
    /// How long to wait for late packets.
    pub(crate) wait: Duration,
    /// Set by a signal: end early.
    pub(crate) interrupted: &'a AtomicBool,
}

impl Bench<'_> {
    /// Sends for `duration` or `count` packets.
    pub(crate) fn trial(
        &mut self,
        pps: Option<f64>,
        duration: Duration,
        count: Option<u64>,
    ) -> Result<Trial, Failure> {
        let pace = pps.map_or(Pace::Unlimited, |pps| Pace::Live { pps });
        let mut generator = self.traffic.generator(pace, count)?;
        let overruns = self.rx.stats().dropped;
        let ended = AtomicBool::new(false);
        let (rx, rx_pool) = (&mut self.rx, &mut self.rx_pool);
        let (tx, tx_pool) = (&mut self.tx, &mut self.tx_pool);
        let (wait, interrupted) = (self.wait, self.interrupted);
        // What was sent before belongs to another trial.
        let begin_ns = monotonic_ns();
        let (sent, received) = std::thread::scope(|scope| {
            let receiver = scope.spawn(|| receive(rx, rx_pool, begin_ns, &ended));
            let begin = Instant::now();
            let sent = send(&mut generator, tx, tx_pool, pps, BURST, |_| {
                begin.elapsed() >= duration || interrupted.load(Ordering::Relaxed)
            });
            if sent.is_ok() {
                std::thread::sleep(wait);
            }
            ended.store(true, Ordering::Relaxed);
            (sent, receiver.join())
        });
        let mut received = received.map_err(|_| Failure::other("the receiver failed"))??;
        let overruns = self.rx.stats().dropped - overruns;
        let sent = sent?;
        let end_ns = begin_ns + (sent.seconds * 1e9) as u64;
        received.gap_ns = received.gap_ns.max(end_ns.saturating_sub(received.latest_ns));
        Ok(Trial::of(pps, &sent, &received, overruns))
    }
}

/// What the receiver saw.
struct Received {
    arrivals: Arrivals,
    latency: Histogram,
    /// Of packets that count, each once.
    bytes: u64,
    /// Times of the first and the last one.
    first_ns: u64,
    last_ns: u64,
    /// When the latest one came, at first the begin; and the longest time from one to the next.
    latest_ns: u64,
    gap_ns: u64,
}

fn receive(
    rx: &mut af_packet::Rx,
    pool: &mut Pool,
    begin_ns: u64,
    ended: &AtomicBool,
) -> Result<Received, Failure> {
    let mut received = Received {
        arrivals: Arrivals::new(),
        latency: Histogram::new(),
        bytes: 0,
        first_ns: u64::MAX,
        last_ns: 0,
        latest_ns: begin_ns,
        gap_ns: 0,
    };
    let (mut ahead_ns, mut taken_ns) = (real_time_ahead_ns(), begin_ns);
    let mut packets: Vec<Packet> = Vec::with_capacity(RX_BURST);
    loop {
        let n = rx.recv(pool, &mut packets, RX_BURST);
        let now_ns = monotonic_ns();
        if now_ns - taken_ns > CLOCKS_EVERY_NS {
            (ahead_ns, taken_ns) = (real_time_ahead_ns(), now_ns);
        }
        for packet in packets.drain(..) {
            if let Some(stamp) = stamp(&packet).filter(|stamp| stamp.time_ns >= begin_ns) {
                let arrival_ns = match packet.time_ns {
                    0 => now_ns,
                    time_ns => time_ns.saturating_add_signed(-ahead_ns),
                };
                received.count(&stamp, arrival_ns, packet.frame_len());
            }
            packet.free(pool);
        }
        if n > 0 {
            continue;
        }
        if let Some(error) = rx.take_error() {
            return Err(Failure::other(error));
        }
        if ended.load(Ordering::Relaxed) {
            return Ok(received);
        }
        if rx.arm()
            && let Some(fd) = rx.fd()
        {
            use rustix::event::{PollFd, PollFlags, poll};
            // An interrupted wait is looked into like one that ended.
            let _ = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&POLL));
        }
    }
}

impl Received {
    fn count(&mut self, stamp: &Stamp, arrival_ns: u64, frame_len: usize) {
        if !self.arrivals.count(stamp.sequence) {
            return;
        }
        // The clocks are compared to within some tens of nanoseconds.
        self.latency.record(arrival_ns.saturating_sub(stamp.time_ns));
        self.bytes += frame_len as u64;
        self.gap_ns = self.gap_ns.max(arrival_ns.saturating_sub(self.latest_ns));
        self.latest_ns = self.latest_ns.max(arrival_ns);
        self.first_ns = self.first_ns.min(arrival_ns);
        self.last_ns = self.last_ns.max(arrival_ns);
    }
}

/// The stamp of a packet, wherever its payload begins by now.
fn stamp(packet: &Packet) -> Option<Stamp> {
    let (frame, decoded) = (packet.data(), packet::decode(packet.data(), packet.frame_len()));
    let l4 = usize::from(decoded.l4_offset);
    let l4_len = match decoded.protocol {
        packet::IpProtocol::UDP => 8,
        packet::IpProtocol::TCP => usize::from(frame.get(l4 + 12)? >> 4) * 4,
        _ => return None,
    };
    Stamp::read(frame.get(l4 + l4_len..)?)
}

/// By how much the real-time clock is ahead of the monotonic one: the closest of some looks.
fn real_time_ahead_ns() -> i64 {
    let look = |_| {
        let before = monotonic_ns();
        let real = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let after = monotonic_ns();
        let middle = before + (after - before) / 2;
        (after - before, real.as_nanos() as i64 - middle as i64)
    };
    (0..5).map(look).min().map_or(0, |(_, ahead)| ahead)
}

impl Trial {
    fn of(rate_pps: Option<f64>, sent: &Sent, received: &Received, overruns: u64) -> Self {
        let unique = received.arrivals.unique;
        let lost = sent.packets.saturating_sub(unique);
        let percent =
            |n: u64| if sent.packets == 0 { 0.0 } else { n as f64 * 100.0 / sent.packets as f64 };
        let rate = |n: u64, seconds: f64| if seconds > 0.0 { n as f64 / seconds } else { 0.0 };
        // From the first to the last packet: one less than there are lie between.
        let span = received.last_ns.saturating_sub(received.first_ns) as f64 / 1e9;
        let received_pps = rate(unique.saturating_sub(1), span);
        let mean_bytes = received.bytes.checked_div(unique).unwrap_or(0);
        let latency = &received.latency;
        debug_assert_eq!(latency.count(), unique);
        let us = |percent| latency.percentile(percent) as f64 / 1e3;
        Self {
            rate_pps,
            offered_pps: rate(sent.packets, sent.seconds),
            offered_gbps: wire_bps(sent.packets, sent.bytes, sent.seconds) / 1e9,
            seconds: sent.seconds,
            sent_packets: sent.packets,
            received_packets: unique,
            lost_packets: lost,
            loss_percent: percent(lost),
            duplicated_packets: received.arrivals.duplicated,
            reordered_packets: received.arrivals.reordered,
            overrun_packets: overruns,
            received_pps,
            received_gbps: wire_bps(
                unique.saturating_sub(1),
                received.bytes.saturating_sub(mean_bytes),
                span,
            ) / 1e9,
            latency_us: Latency {
                min: latency.min() as f64 / 1e3,
                mean: latency.mean() / 1e3,
                p50: us(50.0),
                p90: us(90.0),
                p99: us(99.0),
                p99_9: us(99.9),
                max: latency.max() as f64 / 1e3,
            },
            longest_gap_ms: received.gap_ns as f64 / 1e6,
        }
    }
}
