//! Queues beside a plain twin, which keeps tokens as levels and moves from event to event; and what rates promise, over time of the
//! test's own.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use flowtable::queues::{PortConfig, PortShape, QueueConfig, Shaper};

use crate::random::{Random, seeds};

const SECOND: u64 = 1_000_000_000;
const BURST: i128 = 10_000_000;

/// Tokens in nanoseconds of the rate.
struct Level {
    rate: u64,
    level: i128,
    at: u64,
}

impl Level {
    fn new(rate: u64) -> Self {
        Self { rate, level: BURST, at: 0 }
    }

    fn cost(&self, len: usize) -> i128 {
        (len as i128 * 8 * i128::from(SECOND) + i128::from(self.rate) - 1) / i128::from(self.rate)
    }

    fn at(&self, now: u64) -> i128 {
        (self.level + i128::from(now.saturating_sub(self.at))).min(BURST)
    }

    /// Whether it is not in debt.
    fn pays(&self, now: u64) -> bool {
        self.at(now) >= 0
    }

    /// For how long from `now` on it is.
    fn debt(&self, now: u64) -> u64 {
        (-self.at(now)).max(0) as u64
    }

    fn take(&mut self, len: usize, now: u64) {
        (self.level, self.at) = (self.at(now) - self.cost(len), now);
    }
}

struct PlainQueue {
    min: Option<Level>,
    max: Option<Level>,
    packets: VecDeque<(u32, usize)>,
    most: usize,
    borrowed: u64,
}

/// One port, plainly.
struct Plain {
    port: Option<Level>,
    queues: Vec<PlainQueue>,
    borrowed: u64,
    now: u64,
}

impl Plain {
    fn new(config: &PortConfig) -> Self {
        let level = |rate: u64| (rate > 0).then(|| Level::new(rate));
        let queue = |own: &QueueConfig| PlainQueue {
            min: level(own.min_rate),
            max: level(own.max_rate),
            packets: VecDeque::new(),
            most: own.packets,
            borrowed: 0,
        };
        let queues = config.queues.iter().map(queue).collect();
        Self { port: level(config.rate), queues, borrowed: 0, now: 0 }
    }

    /// Lets packets go until `until`.
    fn go(&mut self, until: u64, out: &mut Vec<(u32, u64)>) {
        loop {
            // Who may go now: by its own rate first, then who has borrowed the least.
            let now = self.now;
            let may = |queue: &PlainQueue| {
                queue.packets.front()?;
                let pays = |level: &Option<Level>, none: bool| {
                    level.as_ref().map_or(none, |level| level.pays(now))
                };
                let (own, rest) = (pays(&queue.min, false), pays(&self.port, true));
                (pays(&queue.max, true) && (own || rest)).then_some(own)
            };
            let all = self.queues.iter().enumerate();
            let first = all.filter_map(|(at, queue)| {
                may(queue).map(|own| (!own, queue.borrowed.max(self.borrowed), at))
            });
            if let Some((borrows, _, at)) = first.min() {
                let queue = &mut self.queues[at];
                let (number, len) = queue.packets.pop_front().unwrap();
                queue.max.iter_mut().for_each(|level| level.take(len, now));
                match borrows {
                    false => queue.min.iter_mut().for_each(|level| level.take(len, now)),
                    true => {
                        self.borrowed = self.borrowed.max(queue.borrowed);
                        queue.borrowed = self.borrowed + len as u64;
                    }
                }
                self.port.iter_mut().for_each(|level| level.take(len, now));
                out.push((number, now));
                continue;
            }
            // Nobody: on to when the next bucket is out of debt.
            let steps = self.queues.iter().filter(|queue| !queue.packets.is_empty());
            let steps = steps.flat_map(|queue| {
                let levels = [&queue.min, &queue.max, &self.port];
                levels.into_iter().flatten().map(move |level| level.debt(now))
            });
            match steps.filter(|step| *step > 0).min() {
                Some(step) if now + step <= until => self.now = now + step,
                _ => {
                    self.now = self.now.max(until);
                    return;
                }
            }
        }
    }

    fn push(&mut self, queue: usize, number: u32, len: usize) -> bool {
        let own = &mut self.queues[queue];
        let fits = own.packets.len() < own.most;
        if fits {
            own.packets.push_back((number, len));
        }
        fits
    }
}

fn config(random: &mut Random) -> PortConfig {
    let count = 1 + random.below(4);
    let rate = random.of(&[0, 1_000_000, 10_000_000, 999_999_937]);
    let share = if rate == 0 { 10_000_000 } else { rate / count as u64 };
    let queue = |(id, random): (u32, &mut Random)| QueueConfig {
        id,
        min_rate: random.of(&[0, share, share / 3]),
        max_rate: random.of(&[0, share, share * 2, share / 7 + 1]),
        packets: random.of(&[1, 4, 100]),
    };
    let queues = (0..count as u32).map(|id| queue((id, random))).collect();
    PortConfig { rate, queues }
}

#[test]
fn queues_and_plain_queues_agree() {
    for seed in seeds() {
        let mut random = Random(seed);
        let config = config(&mut random);
        let mut plain = Plain::new(&config);
        let shape = Arc::new(PortShape::new(config.clone()));
        let mut shaper = Shaper::new(&[None, Some(shape.clone())]);
        let (mut own, mut wanted) = (Vec::new(), Vec::new());
        let (mut now, mut lost) = (1, 0);
        for number in 0..400u32 {
            now += random.of(&[0, 0, 1, 1_000, 100_000, 3_000_000, 40_000_000]);
            // Somebody looks, or nobody.
            if random.one_in(3) {
                shaper.leave(now, |port, number, at| own.push((port, number, at)));
            }
            // A packet that comes at the time of a departure comes behind it.
            shaper.leave(now, |port, number, at| own.push((port, number, at)));
            plain.go(now, &mut wanted);
            let queue = random.below(config.queues.len());
            let len = random.of(&[60, 1514, 64, 9000, 61_000]);
            let fits = plain.push(queue, number, len);
            assert_eq!(shaper.push(1, queue, number, len, now).is_ok(), fits, "seed {seed}");
            lost += u64::from(!fits);
        }
        now += 3_600 * SECOND;
        shaper.leave(now, |port, number, at| own.push((port, number, at)));
        plain.go(now, &mut wanted);
        let wanted: Vec<_> = wanted.iter().map(|(number, at)| (1, *number, *at)).collect();
        assert_eq!(own, wanted, "seed {seed}: {config:?}");
        assert!(shaper.is_empty() && shaper.next_ns().is_none());
        let sum = |of: fn(&flowtable::queues::QueueCounters) -> u64| {
            shape.counters().iter().map(of).sum::<u64>()
        };
        assert_eq!(sum(|own| own.packets.load(Ordering::Relaxed)), own.len() as u64);
        assert_eq!(sum(|own| own.dropped.load(Ordering::Relaxed)), lost);
    }
}

/// Who waits for the next departure and looks then sees all that were, at their time.
#[test]
fn the_next_departure_is_when_one_leaves() {
    for seed in seeds() {
        let mut random = Random(seed);
        let shape = Arc::new(PortShape::new(config(&mut random)));
        let queues = shape.config().queues.len();
        let mut shaper = Shaper::new(&[Some(shape)]);
        for number in 0..50 {
            let (queue, len) = (random.below(queues), random.of(&[60, 1514]));
            let _ = shaper.push(0, queue, number, len, 7);
        }
        while let Some(next) = shaper.next_ns() {
            let mut left = Vec::new();
            shaper.leave(next.saturating_sub(1), |_, _, at| left.push(at));
            assert!(left.is_empty(), "seed {seed}");
            shaper.leave(next, |_, _, at| left.push(at));
            assert!(!left.is_empty() && left.iter().all(|at| *at == next), "seed {seed}");
        }
    }
}

/// Bits a second that queues get which always have packets of these lengths.
fn rates(config: &PortConfig, lens: &[usize], looks_every: u64) -> Vec<u64> {
    let shape = Arc::new(PortShape::new(config.clone()));
    let mut shaper = Shaper::new(&[Some(shape.clone())]);
    for now in (1..=10 * SECOND).step_by(looks_every as usize) {
        for (queue, len) in lens.iter().enumerate().filter(|(_, len)| **len > 0) {
            while shaper.push(0, queue, (), *len, now).is_ok() {}
        }
        shaper.leave(now, |_, (), _| {});
    }
    shape.counters().iter().map(|own| own.bytes.load(Ordering::Relaxed) * 8 / 10).collect()
}

#[track_caller]
fn near(rate: u64, wanted: u64) {
    assert!(rate.abs_diff(wanted) <= wanted / 50, "{rate} bit/s, not {wanted}");
}

#[test]
fn rates_are_kept_and_borrowed() {
    let queue = |id, min_rate, max_rate| QueueConfig { id, min_rate, max_rate, packets: 100 };
    const M: u64 = 1_000_000;
    // Two that borrow beside one that has its least rate, and a port of 10 Mbit/s.
    let three = PortConfig {
        rate: 10 * M,
        queues: vec![queue(0, 0, 0), queue(1, 6 * M, 0), queue(2, 0, 0)],
    };
    let own = rates(&three, &[1500, 0, 0], 1_000_000);
    near(own[0], 10 * M);
    let own = rates(&three, &[1500, 1500, 0], 1_000_000);
    assert!(own[1] >= 6 * M * 98 / 100, "{own:?}");
    near(own[0] + own[1], 10 * M);
    // What is left is shared by bytes, not by packets.
    let own = rates(&three, &[1500, 0, 300], 1_000_000);
    near(own[0], 5 * M);
    near(own[2], 5 * M);
    // The highest rate holds, however late somebody looks.
    let limited = PortConfig { rate: 0, queues: vec![queue(0, M, 2 * M), queue(1, 0, 0)] };
    for every in [100_000, 10_000_000] {
        near(rates(&limited, &[1000, 0], every)[0], 2 * M);
    }
    // Packets that take no queue are the port's, too.
    let shape = Arc::new(PortShape::new(PortConfig { rate: 10 * M, queues: vec![queue(1, M, 0)] }));
    let mut shaper = Shaper::new(&[Some(shape.clone())]);
    for now in (1..=10 * SECOND).step_by(1_200_000) {
        shaper.passes(0, 1250, now); // 8.3 Mbit/s
        while shaper.push(0, 0, (), 1000, now).is_ok() {}
        shaper.leave(now, |_, (), _| {});
    }
    let bits = shape.counters()[0].bytes.load(Ordering::Relaxed) * 8 / 10;
    assert!((M..2 * M).contains(&bits), "{bits}");
}

/// Packets that do not wait may be more than the port's rate, for long: queues that borrow have their part soon after.
#[test]
fn a_debt_of_packets_that_do_not_wait_ends() {
    let queue = QueueConfig { id: 1, min_rate: 0, max_rate: 0, packets: 100 };
    let shape = PortShape::new(PortConfig { rate: 10_000_000, queues: vec![queue] });
    let mut shaper = Shaper::new(&[Some(Arc::new(shape))]);
    let end = SECOND + 60 * SECOND;
    for now in (SECOND..end).step_by(100_000) {
        shaper.passes(0, 1250, now); // 100 Mbit/s
    }
    assert!(shaper.push(0, 0, (), 1000, end).is_ok());
    let next = shaper.next_ns().unwrap();
    assert!((end + SECOND / 100..end + SECOND / 5).contains(&next), "{} ns later", next - end);
    // A slow port: each packet counts whole.
    let shape = PortShape::new(PortConfig { rate: 8_000, queues: vec![queue] });
    let mut shaper = Shaper::new(&[Some(Arc::new(shape))]);
    shaper.passes(0, 1000, SECOND);
    shaper.push(0, 0, (), 1000, SECOND).unwrap();
    assert_eq!(shaper.next_ns(), Some(2 * SECOND - 10_000_000));
}
