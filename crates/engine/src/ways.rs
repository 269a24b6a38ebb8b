//! Which of several ways a job takes, by what jobs like it have cost.
//!
//! Some choices change nothing in what a job does, but what it costs: whether its rows are sorted before the kernels
//! that work on packets (GASPP §5.3), and who brings its frames to the device (GASPP §5.1). A fixed limit, such as a
//! third of the buffer in use, is right for one machine, one device and one set of kernels. So jobs are put into classes
//! by their rows and by the mean length of their frames, which is the paper's occupancy, and of each class the time a row
//! is kept for each way:
//!
//! ```text
//!  frames: 64  128  256  512  1024  2048 bytes          a class: ns a row by way 0, 1, …
//!  rows 256 │    │    │    │    │    │    │             each way is tried a few times, then the cheapest is taken;
//!      1024 │    │    │    │    │    │    │             one job of some tries another way, which may be cheaper by now
//!      4096 │    │    │    │    │    │    │
//! ```
//!
//! Any way is right, so a wrong choice costs time and nothing else. It depends on its inputs only. Threads: belongs to a
//! master.

/// Ways of a choice at most.
const WAYS_MAX: usize = 3;

/// Classes of rows, each four times the one before: the first one ends below this power of two.
const ROWS_FIRST: u32 = 8;
const ROWS_CLASSES: usize = 4;

/// Classes of mean lengths, each twice the one before.
const LENGTH_FIRST: u32 = 6;
const LENGTH_CLASSES: usize = 6;

/// Jobs by which a way is measured at first.
const TRIALS: u32 = 3;

/// Jobs that are sent for that at most: some may fail.
const TRIALS_MAX: u32 = 16 * TRIALS;

/// Of so many jobs, one takes another way than the best one.
const PROBE_EVERY: u32 = 64;

/// How much cheaper another way must be.
const MARGIN: f64 = 0.9;

/// What is known of jobs of a class.
#[derive(Clone, Debug, Default)]
struct Costs {
    /// By way: nanoseconds a row, a mean that the last jobs count most in; 0.0 while none is known.
    row_ns: [f64; WAYS_MAX],
    /// By way: jobs that have ended, up to [`TRIALS`], and jobs sent, up to [`TRIALS_MAX`].
    ended: [u32; WAYS_MAX],
    sent: [u32; WAYS_MAX],
    best: usize,
    since_probe: u32,
    probed: usize,
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Ways {
    ways: usize,
    classes: Vec<Costs>,
    /// The class of the last job that has ended.
    last: usize,
}

impl Ways {
    /// A choice among so many ways, at most three.
    pub(crate) fn new(ways: usize) -> Self {
        debug_assert!((1..=WAYS_MAX).contains(&ways));
        let classes = vec![Costs::default(); ROWS_CLASSES * LENGTH_CLASSES];
        Self { ways: ways.clamp(1, WAYS_MAX), classes, last: 0 }
    }

    /// The way of the next job, of `rows` rows whose frames have `bytes` bytes.
    pub(crate) fn choose(&mut self, rows: usize, bytes: usize) -> usize {
        self.choose_in(class_of(rows, bytes))
    }

    /// The way of a job of which nothing is known yet: it will be like the last one.
    pub(crate) fn choose_ahead(&mut self) -> usize {
        self.choose_in(self.last)
    }

    fn choose_in(&mut self, class: usize) -> usize {
        let ways = self.ways;
        let costs = &mut self.classes[class];
        let is_new = |way: &usize| costs.ended[*way] < TRIALS && costs.sent[*way] < TRIALS_MAX;
        let trial = (0..ways).filter(is_new).min_by_key(|way| costs.sent[*way]);
        let way = trial.unwrap_or_else(|| {
            costs.since_probe += 1;
            if costs.since_probe < PROBE_EVERY || ways == 1 {
                return costs.best;
            }
            costs.since_probe = 0;
            costs.probed = (costs.probed + 1) % ways;
            if costs.probed == costs.best {
                costs.probed = (costs.probed + 1) % ways;
            }
            costs.probed
        });
        costs.sent[way] = (costs.sent[way] + 1).min(TRIALS_MAX);
        way
    }

    /// A job has ended well, that took this way and `ns` nanoseconds.
    pub(crate) fn ended(&mut self, way: usize, rows: usize, bytes: usize, ns: u64) {
        if rows == 0 || way >= self.ways {
            return;
        }
        self.last = class_of(rows, bytes);
        let costs = &mut self.classes[self.last];
        let row_ns = (ns as f64 / rows as f64).max(f64::MIN_POSITIVE);
        // The first job may have compiled or grown something; one that was held up says little. Of a way that is seldom
        // taken, each job counts more.
        let weight = if way == costs.best { 8.0 } else { 2.0 };
        let mean = &mut costs.row_ns[way];
        *mean = match costs.ended[way] {
            0 | 1 => row_ns,
            _ => *mean + (row_ns.min(4.0 * *mean) - *mean) / weight,
        };
        costs.ended[way] = (costs.ended[way] + 1).min(TRIALS);
        let known = (0..self.ways).filter(|way| costs.ended[*way] > 0);
        let cheapest = known.min_by(|a, b| costs.row_ns[*a].total_cmp(&costs.row_ns[*b]));
        if let Some(cheapest) = cheapest {
            let is_unknown = costs.ended[costs.best] == 0;
            if is_unknown || costs.row_ns[cheapest] < MARGIN * costs.row_ns[costs.best] {
                costs.best = cheapest;
            }
        }
    }
}

fn class_of(rows: usize, bytes: usize) -> usize {
    let log = |value: usize, first: u32, step: u32, classes: usize| {
        let over = value.max(1).ilog2().saturating_sub(first) / step;
        (over as usize).min(classes - 1)
    };
    let rows_class = log(rows, ROWS_FIRST, 2, ROWS_CLASSES);
    let length_class = log(bytes / rows.max(1), LENGTH_FIRST, 1, LENGTH_CLASSES);
    rows_class * LENGTH_CLASSES + length_class
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `jobs` jobs of 2,048 rows of `len` bytes; how many took each way. `cost`: ns a row of a way.
    fn run(ways: &mut Ways, jobs: usize, len: usize, cost: impl Fn(usize) -> f64) -> [usize; 3] {
        let mut taken = [0; 3];
        for _ in 0..jobs {
            let way = ways.choose(2048, 2048 * len);
            taken[way] += 1;
            ways.ended(way, 2048, 2048 * len, (2048.0 * cost(way)) as u64);
        }
        taken
    }

    /// Copies of cells cost the same whatever is in them, packing costs by the byte: the limit between both follows from
    /// what they cost, on one machine here and on another there.
    #[test]
    fn the_limit_of_occupancy_follows_from_the_costs() {
        for (cell_ns, byte_ns) in [(100.0, 0.2), (400.0, 0.3), (30.0, 0.2)] {
            let mut ways = Ways::new(2);
            for len in [64, 128, 256, 512, 1024, 2048] {
                let cost = |way| if way == 0 { cell_ns } else { 20.0 + byte_ns * len as f64 };
                let taken = run(&mut ways, 1000, len, cost);
                let cheaper = usize::from(cost(1) < cost(0));
                let is_clear = (cost(0) - cost(1)).abs() > 0.2 * cost(0);
                assert!(!is_clear || taken[cheaper] > 950, "{cell_ns} {byte_ns} {len}: {taken:?}");
            }
        }
    }

    #[test]
    fn a_way_that_gets_cheaper_is_found_and_others_are_tried_seldom() {
        let mut ways = Ways::new(3);
        let before = run(&mut ways, 2000, 600, |way| [10.0, 20.0, 30.0][way]);
        assert!(before[0] > 1950 && before[1] > 3 && before[2] > 3, "{before:?}");
        let after = run(&mut ways, 4000, 600, |way| [10.0, 20.0, 2.0][way]);
        assert!(after[2] > 3500, "{after:?}");
        let dear = run(&mut ways, 4000, 600, |way| [10.0, 20.0, 40.0][way]);
        assert!(dear[0] > 3500, "{dear:?}");
    }

    #[test]
    fn ways_that_cost_alike_do_not_make_it_swing() {
        let mut ways = Ways::new(2);
        run(&mut ways, 100, 200, |_| 50.0);
        let before = ways.classes[class_of(2048, 2048 * 200)].best;
        for round in 0..2000 {
            let cost = |way: usize| 48.0 + ((round + 3 * way) % 5) as f64;
            run(&mut ways, 1, 200, cost);
            assert_eq!(ways.classes[class_of(2048, 2048 * 200)].best, before);
        }
    }

    /// A way whose jobs never end is not tried for ever.
    #[test]
    fn a_way_that_fails_is_given_up() {
        let mut ways = Ways::new(2);
        let mut failed = 0;
        for _ in 0..2000 {
            match ways.choose(300, 30_000) {
                0 => ways.ended(0, 300, 30_000, 1000),
                _ => failed += 1,
            }
        }
        assert!((1..120).contains(&failed), "{failed}");
    }

    #[test]
    fn classes_are_of_rows_and_lengths() {
        let mut ways = Ways::new(2);
        // Small jobs are dearer by the second way, large ones by the first.
        for _ in 0..500 {
            for (rows, costs) in [(100, [1000, 90_000]), (8000, [900_000, 10_000])] {
                let way = ways.choose(rows, rows * 100);
                ways.ended(way, rows, rows * 100, costs[way]);
            }
        }
        let small = (0..50).filter(|_| ways.choose(100, 10_000) == 0).count();
        let large = (0..50).filter(|_| ways.choose(8000, 800_000) == 1).count();
        assert!(small >= 48 && large >= 48, "{small} {large}");
        assert_eq!(class_of(0, 0), 0);
        assert_eq!(class_of(usize::MAX, usize::MAX), (ROWS_CLASSES - 1) * LENGTH_CLASSES);
        ways.ended(0, 0, 0, 5);
        ways.ended(0, 8000, 800_000, 5);
        assert!(ways.choose_ahead() < 2);
    }
}
