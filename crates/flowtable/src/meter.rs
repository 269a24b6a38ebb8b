//! Meters: what a flow may send (OpenFlow 1.3.5 §5.7).
//!
//! Each band is a token bucket, kept as the time at which it will be full again (the generic cell rate algorithm, ITU-T I.371,
//! which gives the same answers): a packet conforms if that time is at most the burst ahead, and moves it on by what the
//! packet costs. Each band measures by itself. Of the bands that a packet exceeds, that with the highest rate is carried out. Time
//! is the packet's, so a capture gives the same answers each time.
//!
//! Without a burst size a band lets a tenth of a second's traffic through at once, and a packet of 1,518 bytes always.
//!
//! Threads: any number; each band is one atomic word.

use std::sync::atomic::{AtomicU64, Ordering};

use openflow::group::{Band, BandKind, MeterFlags};

/// A meter with its state.
#[derive(Debug)]
pub struct Meter {
    /// Its number.
    pub number: u32,
    /// How it measures.
    pub flags: MeterFlags,
    /// Its bands, as they were given.
    pub bands: Vec<Band>,
    /// When it was made, nanoseconds since 1970.
    pub created_ns: u64,
    /// Packets and bytes that came to it.
    pub packets: AtomicU64,
    /// See [`Meter::packets`].
    pub bytes: AtomicU64,
    buckets: Vec<Bucket>,
}

#[derive(Debug)]
struct Bucket {
    /// When the bucket is full again, nanoseconds since 1970.
    full_ns: AtomicU64,
    /// How far ahead that may be.
    ahead_ns: u64,
    /// The cost of a packet is a part that does not depend on its length, and one that does, in units of 2^-16 ns.
    packet_cost: u64,
    byte_cost: u64,
    packets: AtomicU64,
    bytes: AtomicU64,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metered {
    /// It passes.
    Passes,
    /// It is dropped.
    Drops,
    /// Its drop precedence rises by so many levels.
    Remarks(u8),
}

const FRACTION: u32 = 16;

impl Meter {
    /// A meter with full buckets.
    pub fn new(number: u32, flags: MeterFlags, bands: Vec<Band>, created_ns: u64) -> Self {
        let by_packets = flags.contains(MeterFlags::PKTPS);
        let buckets = bands.iter().map(|band| Bucket::new(band, flags, by_packets)).collect();
        let zero = AtomicU64::default;
        Self { number, flags, bands, created_ns, packets: zero(), bytes: zero(), buckets }
    }

    /// Measures a packet of `len` bytes at `now_ns`.
    pub fn measure(&self, len: usize, now_ns: u64) -> Metered {
        self.packets.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(len as u64, Ordering::Relaxed);
        let mut exceeded: Option<usize> = None;
        for (at, bucket) in self.buckets.iter().enumerate() {
            let higher = exceeded.is_none_or(|other| self.bands[at].rate > self.bands[other].rate);
            if !bucket.conforms(len, now_ns) && higher {
                exceeded = Some(at);
            }
        }
        let Some(at) = exceeded else { return Metered::Passes };
        self.buckets[at].packets.fetch_add(1, Ordering::Relaxed);
        self.buckets[at].bytes.fetch_add(len as u64, Ordering::Relaxed);
        match self.bands[at].kind {
            BandKind::Drop => Metered::Drops,
            BandKind::DscpRemark { prec_level } => Metered::Remarks(prec_level),
            BandKind::Experimenter { .. } => Metered::Passes,
        }
    }

    /// Packets and bytes that band number `band` was carried out on.
    pub fn exceeded(&self, band: usize) -> (u64, u64) {
        self.buckets.get(band).map_or((0, 0), |bucket| {
            (bucket.packets.load(Ordering::Relaxed), bucket.bytes.load(Ordering::Relaxed))
        })
    }
}

impl Bucket {
    fn new(band: &Band, flags: MeterFlags, by_packets: bool) -> Self {
        let second = 1_000_000_000u64 << FRACTION;
        let rate = u64::from(band.rate.max(1));
        let (packet_cost, byte_cost) =
            if by_packets { (second / rate, 0) } else { (0, second * 8 / (rate * 1000)) };
        // Burst and rate are in the same units, but for the second.
        let ahead_ns = if flags.contains(MeterFlags::BURST) && band.burst > 0 {
            (u64::from(band.burst) * 1_000_000_000) / rate
        } else {
            100_000_000
        };
        let frame = (packet_cost + 1518 * byte_cost) >> FRACTION;
        let zero = AtomicU64::default;
        let full_ns = zero();
        let ahead_ns = ahead_ns.max(frame);
        Self { full_ns, ahead_ns, packet_cost, byte_cost, packets: zero(), bytes: zero() }
    }

    fn conforms(&self, len: usize, now_ns: u64) -> bool {
        let cost = (self.packet_cost + self.byte_cost * len as u64) >> FRACTION;
        let next = |full: u64| {
            let next = full.max(now_ns) + cost;
            (next <= now_ns.saturating_add(self.ahead_ns)).then_some(next)
        };
        self.full_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }
}

/// A code point with a higher drop precedence (RFC 2597 §6): of the assured forwarding classes 1 to 4 alone, others are
/// left alone.
pub fn remark(dscp: u8, levels: u8) -> u8 {
    let (class, precedence) = (dscp >> 3, (dscp >> 1) & 3);
    if dscp & 1 != 0 || !(1..=4).contains(&class) || precedence == 0 {
        return dscp;
    }
    class << 3 | precedence.saturating_add(levels).min(3) << 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meter(flags: MeterFlags, rate: u32, burst: u32) -> Meter {
        Meter::new(1, flags, vec![Band { kind: BandKind::Drop, rate, burst }], 0)
    }

    #[test]
    fn the_rate_and_the_burst_pass() {
        let meter = meter(MeterFlags::PKTPS | MeterFlags::BURST, 100, 20);
        let start = 1_000_000_000_000;
        // 1,000 packets in a second: the burst, and the rate.
        let passed = (0..1000u64)
            .filter(|n| meter.measure(64, start + n * 1_000_000) == Metered::Passes)
            .count();
        assert!((119..=121).contains(&passed), "{passed}");
        assert_eq!(meter.exceeded(0), (1000 - passed as u64, 64 * (1000 - passed as u64)));
    }

    #[test]
    fn kilobits_are_of_the_frames() {
        let meter = meter(MeterFlags::KBPS, 8_000, 0);
        // 2,000 frames of 1,000 bytes in a second are 16 Mbit/s: half of them, and a tenth of a second.
        let passed = (0..2000u64)
            .filter(|n| meter.measure(1000, 5_000_000_000 + n * 500_000) == Metered::Passes)
            .count();
        assert!((1098..=1102).contains(&passed), "{passed}");
    }

    #[test]
    fn the_band_of_the_highest_rate_is_carried_out() {
        let band = |kind, rate| Band { kind, rate, burst: 1 };
        let bands =
            vec![band(BandKind::DscpRemark { prec_level: 1 }, 10), band(BandKind::Drop, 20)];
        let meter = Meter::new(1, MeterFlags::PKTPS | MeterFlags::BURST, bands, 0);
        let now = 1_000_000_000_000;
        assert_eq!(meter.measure(64, now), Metered::Passes);
        assert_eq!(meter.measure(64, now), Metered::Drops, "both are exceeded");
        assert_eq!(meter.measure(64, now + 50_000_000), Metered::Remarks(1));
    }

    #[test]
    fn drop_precedence_rises_within_its_class() {
        assert_eq!((remark(10, 1), remark(10, 2), remark(14, 3)), (12, 14, 14));
        assert_eq!((remark(18, 1), remark(0, 1), remark(46, 1), remark(8, 1)), (20, 0, 46, 8));
    }
}
