//! Makes packets: the traffic of tests, benches and `gen packets`.
//!
//! The caller builds whole frames, with whatever library it likes ([`Template`]), and says which of
//! their bytes vary ([`Vary`]) and which checksums cover them. A packet is a copy of its template with
//! those bytes written and the checksums corrected by the difference (RFC 1624), so that no header is
//! ever parsed here.
//!
//! **Sizes.** A frame's length here is what lies in memory: from the destination address to the end
//! of the payload. Ethernet (and RFC 2544) counts the frame check sequence of 4 bytes too: its
//! 64-byte frames are 60 bytes long here; [`frame_len_of_wire`] converts. On the wire each frame
//! takes [`WIRE_OVERHEAD_BYTES`] more: check sequence, preamble and gap, and that is what
//! [`wire_bits`] counts, as PacketShader does (footnote 1). The paper's own sizes are those in
//! memory: its 64-byte packets take 88 bytes on the wire (58.4 Mpps are 41.1 Gb/s, §4.6).
//!
//! Threads: a generator belongs to one thread.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use chunk::{Packet, Pool};

use crate::random::Random;
use crate::{QueueStats, RxQueue, sys};

/// Bytes on the wire that a frame in memory has not: check sequence 4, preamble and start 8, gap 12.
pub const WIRE_OVERHEAD_BYTES: usize = 24;

/// The simple IMIX: frame lengths in memory and their weights (64, 594 and 1518 with check sequence).
pub const IMIX: [(usize, u32); 3] = [(60, 7), (590, 4), (1514, 1)];

/// Bits that a frame of `frame_len` bytes takes on the wire.
pub const fn wire_bits(frame_len: usize) -> u64 {
    (frame_len + WIRE_OVERHEAD_BYTES) as u64 * 8
}

/// The length in memory of what Ethernet calls a frame of `bytes` bytes.
pub const fn frame_len_of_wire(bytes: usize) -> usize {
    bytes.saturating_sub(4)
}

/// A frame to copy, and what varies in it.
#[derive(Clone, Debug, Default)]
pub struct Template {
    /// The frame, its checksums right (or a UDP one 0, which stays).
    pub frame: Vec<u8>,
    /// What varies, in order of writing; fields may overlap, the last wins.
    pub vary: Vec<Vary>,
    /// Where to write a [`Stamp`].
    pub stamp: Option<StampPlace>,
    /// How often this template comes, relative to the others; 0 is never.
    pub weight: u32,
}

/// A field that varies from packet to packet.
#[derive(Clone, Debug)]
pub struct Vary {
    /// Its first byte.
    pub offset: usize,
    /// What is written there.
    pub values: Values,
    /// The checksums that cover it. They must begin to count at an even offset of the frame.
    pub checksums: Vec<Checksum>,
}

/// What a varying field takes.
#[derive(Clone, Debug)]
pub enum Values {
    /// Random bits where the mask has ones; the others keep the template's.
    Random {
        /// As long as the field.
        mask: Vec<u8>,
    },
    /// One of several values of the same length, in turn or at random.
    List {
        /// The values.
        values: Vec<Vec<u8>>,
        /// Whether at random.
        random: bool,
    },
    /// A number in network order that goes up by one from `first` to `last` and begins again.
    Counter {
        /// Bytes of the field, 1 to 8.
        width: usize,
        /// The first number.
        first: u64,
        /// The last number.
        last: u64,
    },
}

/// A checksum of the Internet's kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checksum {
    /// Offset of its two bytes, even.
    pub offset: usize,
    /// Whether it is UDP's, where 0 means none.
    pub is_udp: bool,
}

/// Where a template has room for a [`Stamp`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StampPlace {
    /// First of [`Stamp::BYTES`] bytes.
    pub offset: usize,
    /// The checksum that covers it.
    pub checksum: Option<Checksum>,
}

/// Sequence number and time of sending, in the payload, for measuring loss and latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Number of the packet at its generator, from 0; 48 bits of it are sent.
    pub sequence: u64,
    /// [`monotonic_ns`] at sending.
    pub time_ns: u64,
}

impl Stamp {
    /// Bytes of a stamp: magic 4, sequence 6, time 8, so that it fits in the payload of a 64-byte
    /// frame with UDP and IPv4.
    pub const BYTES: usize = 18;
    const MAGIC: [u8; 4] = *b"SLst";

    /// The stamp that `bytes` begins with, if it does.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(&Self::MAGIC)?;
        let (&[a, b, c, d, e, f], rest) = rest.split_first_chunk()?;
        let sequence = u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
        let time_ns = u64::from_be_bytes(*rest.first_chunk()?);
        Some(Self { sequence, time_ns })
    }

    fn bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&Self::MAGIC);
        bytes[4..10].copy_from_slice(&self.sequence.to_be_bytes()[2..]);
        bytes[10..].copy_from_slice(&self.time_ns.to_be_bytes());
        bytes
    }
}

/// Nanoseconds of the machine's monotonic clock, the same for all processes.
pub fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is writable; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// How fast packets come.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Pace {
    /// As fast as they are asked for.
    #[default]
    Unlimited,
    /// At so many packets a second, in bursts of at most a millisecond's worth or 64.
    Live {
        /// Packets a second.
        pps: f64,
    },
    /// As fast as they are asked for, with times as if they came at a rate: for captures.
    Stamped {
        /// Time of the first packet, nanoseconds since 1970.
        start_ns: u64,
        /// Packets a second.
        pps: f64,
    },
}

/// What to generate.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The frames.
    pub templates: Vec<Template>,
    /// Seed of the random numbers.
    pub seed: u64,
    /// How many packets in all; `None` for no end.
    pub count: Option<u64>,
    /// How fast.
    pub pace: Pace,
}

/// Why a generator cannot be made.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum GeneratorError {
    /// There is no template, or all have weight 0.
    #[error("no template with a weight above 0")]
    NoTemplate,
    /// Something of a template does not lie within its frame, or contradicts itself.
    #[error("template {template}: {what}")]
    Template {
        /// Number of the template, from 0.
        template: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// A rate that is none.
    #[error("expected a rate above 0 packets per second")]
    Rate,
    /// The system gives no timer.
    #[error("no timer: {0}")]
    Timer(String),
}

/// A queue of made packets.
#[derive(Debug)]
pub struct Generator {
    templates: Vec<Template>,
    /// Next value of each template's fields: position in the list, or number.
    states: Vec<Vec<u64>>,
    /// Which template comes when, over and over.
    order: Vec<u16>,
    turn: usize,
    random: Random,
    left: Option<u64>,
    pace: Pace,
    started: Option<Instant>,
    /// Packets that are no longer owed because they were not requested in time.
    forgone: u64,
    timer: Option<OwnedFd>,
    is_timer_set: bool,
    sequence: u64,
    stats: QueueStats,
}

/// The longest cycle of templates.
const ORDER_MAX: usize = 1 << 16;

impl Generator {
    /// Makes a generator.
    ///
    /// # Errors
    /// If a template contradicts itself, or the rate is none.
    pub fn new(options: Options) -> Result<Self, GeneratorError> {
        for (template, t) in options.templates.iter().enumerate() {
            check(t).map_err(|what| GeneratorError::Template { template, what })?;
        }
        let order = order(&options.templates);
        if order.is_empty() {
            return Err(GeneratorError::NoTemplate);
        }
        let timer = match options.pace {
            Pace::Live { pps } | Pace::Stamped { pps, .. } if !(pps > 0.0 && pps.is_finite()) => {
                return Err(GeneratorError::Rate);
            }
            Pace::Live { .. } => Some(timer().map_err(|e| GeneratorError::Timer(e.to_string()))?),
            _ => None,
        };
        let first = |vary: &Vary| match vary.values {
            Values::Counter { first, .. } => first,
            _ => 0,
        };
        Ok(Self {
            states: options.templates.iter().map(|t| t.vary.iter().map(first).collect()).collect(),
            templates: options.templates,
            order,
            turn: 0,
            random: Random::new(options.seed),
            left: options.count,
            pace: options.pace,
            started: None,
            forgone: 0,
            timer,
            is_timer_set: false,
            sequence: 0,
            stats: QueueStats::default(),
        })
    }

    /// How many packets may go now, at most `max`.
    fn allowance(&mut self, max: u64) -> u64 {
        let max = max.min(self.left.unwrap_or(u64::MAX));
        let Pace::Live { pps } = self.pace else { return max };
        let now = Instant::now();
        let elapsed = now - *self.started.get_or_insert(now);
        let due = (elapsed.as_secs_f64() * pps) as u64 + 1;
        let owed = due.saturating_sub(self.sequence + self.forgone);
        // What a pause has piled up does not come as one flood.
        let burst = ((pps / 1000.0) as u64).max(64);
        self.forgone += owed.saturating_sub(burst);
        owed.min(burst).min(max)
    }

    /// Writes one packet into the frame that was copied from template `number`.
    fn write(&mut self, number: usize, frame: &mut [u8], now_ns: u64) {
        let template = &self.templates[number];
        for (vary, state) in template.vary.iter().zip(&mut self.states[number]) {
            let random = &mut self.random;
            let field = vary.offset..vary.offset + vary.values.width();
            change(frame, field, &vary.checksums, |field| match &vary.values {
                Values::Random { mask } => {
                    for (bytes, mask) in field.chunks_mut(8).zip(mask.chunks(8)) {
                        let bits = random.next().to_be_bytes();
                        for ((byte, mask), bits) in bytes.iter_mut().zip(mask).zip(bits) {
                            *byte = *byte & !mask | bits & mask;
                        }
                    }
                }
                Values::List { values, random: true } => {
                    field.copy_from_slice(&values[random.below(values.len() as u64) as usize]);
                }
                Values::List { values, random: false } => {
                    field.copy_from_slice(&values[*state as usize]);
                    *state = (*state + 1) % values.len() as u64;
                }
                Values::Counter { width, first, last } => {
                    field.copy_from_slice(&state.to_be_bytes()[8 - width..]);
                    *state = if *state >= *last { *first } else { *state + 1 };
                }
            });
        }
        if let Some(place) = template.stamp {
            let stamp = Stamp { sequence: self.sequence, time_ns: now_ns };
            let field = place.offset..place.offset + Stamp::BYTES;
            change(frame, field, place.checksum.as_slice(), |field| {
                field.copy_from_slice(&stamp.bytes());
            });
        }
    }
}

impl Values {
    /// Bytes of the field.
    fn width(&self) -> usize {
        match self {
            Values::Random { mask } => mask.len(),
            Values::List { values, .. } => values.first().map_or(0, Vec::len),
            Values::Counter { width, .. } => *width,
        }
    }
}

/// Sum of the 16-bit words that `field` touches; a byte beyond the frame counts as 0.
fn sum(frame: &[u8], field: &std::ops::Range<usize>) -> u32 {
    let words = frame.get(field.start & !1..field.end.next_multiple_of(2).min(frame.len()));
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
    words.unwrap_or_default().chunks(2).map(word).sum()
}

/// Lets `write` change the bytes of `field` and corrects the checksums: HC' = ~(~HC + ~m + m').
fn change(
    frame: &mut [u8],
    field: std::ops::Range<usize>,
    checksums: &[Checksum],
    write: impl FnOnce(&mut [u8]),
) {
    let before = sum(frame, &field);
    write(&mut frame[field.clone()]);
    let after = sum(frame, &field);
    let words = (field.end.next_multiple_of(2) - (field.start & !1)) as u32 / 2;
    for checksum in checksums {
        let at = checksum.offset;
        let old = u16::from_be_bytes([frame[at], frame[at + 1]]);
        if checksum.is_udp && old == 0 {
            continue;
        }
        let mut sum = u32::from(!old) + (words * 0xffff - before) + after;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        let new = match !(sum as u16) {
            0 if checksum.is_udp => 0xffff,
            new => new,
        };
        frame[at..at + 2].copy_from_slice(&new.to_be_bytes());
    }
}

/// Whether everything of a template lies within its frame.
fn check(template: &Template) -> Result<(), &'static str> {
    let len = template.frame.len();
    let is_within = |checksum: &Checksum| {
        checksum.offset.is_multiple_of(2) && checksum.offset.saturating_add(2) <= len
    };
    for vary in &template.vary {
        let width = vary.values.width();
        if width == 0 {
            return Err("a field of no bytes");
        }
        if vary.offset.saturating_add(width) > len {
            return Err("a field beyond the end of the frame");
        }
        if !vary.checksums.iter().all(is_within) {
            return Err("a checksum beyond the end of the frame, or at an odd offset");
        }
        match &vary.values {
            Values::List { values, .. } if values.iter().any(|v| v.len() != width) => {
                return Err("a list of values of different lengths");
            }
            Values::Counter { width, first, last } => {
                let most = 1u64.checked_shl(8 * *width as u32).map_or(u64::MAX, |n| n - 1);
                if *width > 8 || first > last || *last > most {
                    return Err("a counter that does not fit in its field");
                }
            }
            _ => {}
        }
    }
    match &template.stamp {
        Some(stamp) if stamp.offset.saturating_add(Stamp::BYTES) > len => {
            Err("a stamp beyond the end of the frame")
        }
        Some(stamp) if !stamp.checksum.iter().all(is_within) => {
            Err("a checksum beyond the end of the frame, or at an odd offset")
        }
        _ => Ok(()),
    }
}

/// The templates, each as often as its weight says and spread evenly.
fn order(templates: &[Template]) -> Vec<u16> {
    let total: u64 = templates.iter().map(|t| u64::from(t.weight)).sum();
    let cycle = total.min(ORDER_MAX as u64);
    if templates.iter().all(|template| template.weight == 1) {
        // In turn, as below, but at once: each step there looks at every template.
        return (0..cycle).map(|number| number as u16).collect();
    }
    let mut credits = vec![0i64; templates.len()];
    let mut order = Vec::with_capacity(cycle as usize);
    for _ in 0..cycle {
        // Smooth weighted round robin: everyone earns its weight, the richest pays the total.
        for (credit, template) in credits.iter_mut().zip(templates) {
            *credit += i64::from(template.weight);
        }
        let Some((richest, _)) =
            credits.iter().enumerate().max_by_key(|(i, c)| (**c, usize::MAX - i))
        else {
            break;
        };
        credits[richest] -= total as i64;
        order.push(richest as u16);
    }
    order
}

fn timer() -> std::io::Result<OwnedFd> {
    let flags = libc::TFD_NONBLOCK | libc::TFD_CLOEXEC;
    // SAFETY: takes no pointers.
    let fd = sys::check(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) })?;
    // SAFETY: the kernel just gave us this descriptor, and it has no other user.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sets the timer once, or with no time takes it back.
fn set_timer(timer: &OwnedFd, after: Duration) {
    let zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let value =
        libc::timespec { tv_sec: after.as_secs() as _, tv_nsec: after.subsec_nanos().into() };
    let setting = libc::itimerspec { it_interval: zero, it_value: value };
    // SAFETY: `setting` is alive; the old one is not asked for.
    unsafe { libc::timerfd_settime(timer.as_raw_fd(), 0, &setting, std::ptr::null_mut()) };
}

impl RxQueue for Generator {
    fn recv(&mut self, pool: &mut Pool, out: &mut Vec<Packet>, max: usize) -> usize {
        if let Some(timer) = self.timer.as_ref().filter(|_| self.is_timer_set) {
            set_timer(timer, Duration::ZERO);
            self.is_timer_set = false;
        }
        let n = self.allowance(max as u64) as usize;
        let now_ns = monotonic_ns();
        for done in 0..n {
            let number = usize::from(self.order[self.turn]);
            let Some(mut packet) = Packet::copy_from(pool, &self.templates[number].frame) else {
                return done;
            };
            if packet.cells() == 1 {
                self.write(number, packet.data_mut(), now_ns);
            } else {
                // Fields may lie anywhere in a chain: write them first and copy then.
                let mut frame = self.templates[number].frame.clone();
                packet.free(pool);
                self.write(number, &mut frame, now_ns);
                match Packet::copy_from(pool, &frame) {
                    Some(written) => packet = written,
                    None => return done,
                }
            }
            if let Pace::Stamped { start_ns, pps } = self.pace {
                packet.time_ns = start_ns + (self.sequence as f64 * 1e9 / pps) as u64;
            }
            self.turn = if self.turn + 1 == self.order.len() { 0 } else { self.turn + 1 };
            self.sequence += 1;
            self.left = self.left.map(|left| left - 1);
            self.stats.count(packet.frame_len() as u64);
            out.push(packet);
        }
        n
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.timer.as_ref().map(|timer| timer.as_fd())
    }

    fn arm(&mut self) -> bool {
        if self.left == Some(0) {
            return true;
        }
        let (Pace::Live { pps }, Some(started), Some(timer)) =
            (self.pace, self.started, &self.timer)
        else {
            return false;
        };
        let next = Duration::from_secs_f64((self.sequence + self.forgone) as f64 / pps);
        let wait = next.saturating_sub(started.elapsed());
        if wait.is_zero() {
            return false;
        }
        set_timer(timer, wait);
        self.is_timer_set = true;
        true
    }

    fn is_finished(&self) -> bool {
        self.left == Some(0)
    }

    fn progress(&self) -> Option<(u64, u64)> {
        self.left.map(|left| (self.sequence, self.sequence + left))
    }

    fn stats(&self) -> QueueStats {
        self.stats
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chunk::{HugePages, Region};
    use proptest::prelude::*;
    use testkit::frames::Frame;

    fn pool() -> Pool {
        Pool::new(Region::new(256, HugePages::Off).unwrap().1, 16)
    }

    /// The next `n` frames.
    fn frames(generator: &mut Generator, n: usize) -> Vec<(u64, Vec<u8>)> {
        let (mut pool, mut out, mut frames) = (pool(), Vec::new(), Vec::new());
        while frames.len() < n && !generator.is_finished() {
            generator.recv(&mut pool, &mut out, (n - frames.len()).min(32));
            for packet in out.drain(..) {
                let bytes = packet.segments().collect::<Vec<_>>().concat();
                frames.push((packet.time_ns, bytes));
                packet.free(&mut pool);
            }
        }
        frames
    }

    fn udp(payload: usize) -> Template {
        let ip = Checksum { offset: 24, is_udp: false };
        let l4 = Checksum { offset: 40, is_udp: true };
        let frame = Frame::new().ipv4("10.1.0.0", "198.18.0.0").udp(1000, 2000, &vec![0; payload]);
        Template {
            frame: frame.bytes(),
            vary: vec![
                Vary {
                    offset: 26,
                    values: Values::Random { mask: vec![0, 0, 0xff, 0xff] },
                    checksums: vec![ip, l4],
                },
                Vary {
                    offset: 30,
                    values: Values::List {
                        values: vec![vec![198, 18, 0, 1], vec![203, 0, 113, 254]],
                        random: false,
                    },
                    checksums: vec![ip, l4],
                },
                Vary {
                    offset: 35, // the low byte of the port alone: an odd offset
                    values: Values::Counter { width: 1, first: 7, last: 9 },
                    checksums: vec![l4],
                },
            ],
            stamp: Some(StampPlace { offset: 42, checksum: Some(l4) }),
            weight: 1,
        }
    }

    proptest! {
        #[test]
        fn checksums_stay_right(seed: u64, payload in 20usize..300) {
            let options = Options { templates: vec![udp(payload)], seed, ..Options::default() };
            let mut generator = Generator::new(options).unwrap();
            for (i, (_, frame)) in frames(&mut generator, 20).iter().enumerate() {
                let destination = ["198.18.0.1", "203.0.113.254"][i % 2];
                let source = format!("10.1.{}.{}", frame[28], frame[29]);
                let port = (1000 & 0xff00) + 7 + i as u16 % 3;
                let stamp = Stamp::read(&frame[42..]).unwrap();
                prop_assert_eq!(stamp.sequence, i as u64);
                // Built from nothing, by another library.
                let built = Frame::new().ipv4(&source, destination).udp(port, 2000, &frame[42..]);
                prop_assert_eq!(frame, &built.bytes());
            }
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_packets_and_another_others() {
        let run = |seed| {
            let mut template = udp(60);
            template.stamp = None;
            let options =
                Options { templates: vec![template], seed, count: Some(100), ..Options::default() };
            frames(&mut Generator::new(options).unwrap(), 1000)
        };
        assert_eq!(run(1).len(), 100);
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }

    #[test]
    fn a_disabled_udp_checksum_stays_so() {
        let mut template = udp(40);
        template.frame[40..42].fill(0);
        let options = Options { templates: vec![template], ..Options::default() };
        let made = frames(&mut Generator::new(options).unwrap(), 10);
        assert!(made.iter().all(|(_, frame)| frame[40..42] == [0, 0]));
    }

    #[test]
    fn templates_come_by_weight_and_evenly() {
        let template =
            |(len, weight)| Template { frame: vec![0; len], weight, ..Template::default() };
        let templates = IMIX.map(template).to_vec();
        let options = Options { templates, ..Options::default() };
        let made = frames(&mut Generator::new(options).unwrap(), 24);
        let lens: Vec<_> = made.iter().map(|(_, frame)| frame.len()).collect();
        assert_eq!(lens[..12], lens[12..]);
        for (len, weight) in IMIX {
            assert_eq!(lens[..12].iter().filter(|&&l| l == len).count(), weight as usize);
        }
        assert!(lens[..12].windows(4).all(|w| w.iter().any(|&l| l != 60)), "{lens:?}");
    }

    #[test]
    fn long_frames_vary_too() {
        let frame = Frame::new().udp(1, 2, &vec![0; 5000]).bytes();
        let stamp = Some(StampPlace { offset: 3000, checksum: None });
        let options = Options {
            templates: vec![Template { frame, stamp, weight: 1, ..Template::default() }],
            ..Options::default()
        };
        let made = frames(&mut Generator::new(options).unwrap(), 3);
        assert_eq!(Stamp::read(&made[2].1[3000..]).unwrap().sequence, 2);
    }

    #[test]
    fn times_follow_the_rate() {
        let pace = Pace::Stamped { start_ns: 1_000_000, pps: 1e6 };
        let options = Options { templates: vec![udp(40)], pace, ..Options::default() };
        let made = frames(&mut Generator::new(options).unwrap(), 3);
        assert_eq!(made.iter().map(|f| f.0).collect::<Vec<_>>(), [1_000_000, 1_001_000, 1_002_000]);
    }

    #[test]
    fn a_live_generator_waits_and_wakes() {
        let options = Options {
            templates: vec![udp(40)],
            pace: Pace::Live { pps: 1000.0 },
            count: Some(20),
            ..Options::default()
        };
        let mut generator = Generator::new(options).unwrap();
        let (mut pool, mut out) = (pool(), Vec::new());
        let start = Instant::now();
        while !generator.is_finished() {
            generator.recv(&mut pool, &mut out, 32);
            if !generator.is_finished() && generator.arm() {
                let fd = generator.fd().unwrap().as_raw_fd();
                let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
                // SAFETY: one `pollfd`, alive during the call.
                assert_eq!(unsafe { libc::poll(&mut poll, 1, 5000) }, 1, "not woken");
            }
        }
        // 20 packets, the first at once.
        assert!(start.elapsed() >= Duration::from_millis(18));
        assert_eq!((out.len(), generator.progress()), (20, Some((20, 20))));
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        let vary = |offset, values| Vary { offset, values, checksums: vec![] };
        let with = |vary: Vary| Template { vary: vec![vary], ..udp(40) };
        let random = |n| Values::Random { mask: vec![0xff; n] };
        let counter = |width, first, last| Values::Counter { width, first, last };
        let list = Values::List { values: vec![vec![1], vec![1, 2]], random: true };
        let mut far = udp(40);
        far.stamp = Some(StampPlace { offset: 70, checksum: None });
        let mut odd = udp(40);
        odd.vary[0].checksums[0].offset = 25;
        for (template, expected) in [
            (with(vary(80, random(4))), "template 0: a field beyond the end of the frame"),
            (with(vary(0, random(0))), "template 0: a field of no bytes"),
            (
                with(vary(0, counter(1, 0, 256))),
                "template 0: a counter that does not fit in its field",
            ),
            (
                with(vary(0, counter(9, 0, 1))),
                "template 0: a counter that does not fit in its field",
            ),
            (with(vary(0, list)), "template 0: a list of values of different lengths"),
            (far, "template 0: a stamp beyond the end of the frame"),
            (odd, "template 0: a checksum beyond the end of the frame, or at an odd offset"),
        ] {
            let options = Options { templates: vec![template], ..Options::default() };
            assert_eq!(Generator::new(options).unwrap_err().to_string(), expected);
        }
        let none = Options::default();
        assert_eq!(Generator::new(none).unwrap_err(), GeneratorError::NoTemplate);
        let pace = Pace::Live { pps: 0.0 };
        let options = Options { templates: vec![udp(40)], pace, ..Options::default() };
        assert_eq!(Generator::new(options).unwrap_err(), GeneratorError::Rate);
    }

    #[test]
    fn sizes_are_those_of_the_paper() {
        assert_eq!((frame_len_of_wire(64), wire_bits(frame_len_of_wire(64))), (60, 84 * 8));
        // 14.88 Mpps on 10 Gb/s.
        assert_eq!(10_000_000_000 / wire_bits(60), 14_880_952);
    }
}
