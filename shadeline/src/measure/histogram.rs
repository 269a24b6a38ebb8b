//! A histogram of latencies: exact below 256 ns, to within 1 % above.
//!
//! Values share a bucket with those that have the same first eight bits:
//!
//! ```text
//! bucket = 128 · (bits beyond the first 8) + the first 8 bits
//! ```

/// Leading bits of a value that select its bucket.
const BITS: u32 = 8;
const HALF: u64 = 1 << (BITS - 1);

/// Counts of values, in nanoseconds.
#[derive(Debug, Clone)]
pub(crate) struct Histogram {
    buckets: Vec<u64>,
    count: u64,
    sum: u128,
    min: u64,
    max: u64,
}

impl Histogram {
    pub(crate) fn new() -> Self {
        let buckets = vec![0; bucket(u64::MAX) + 1];
        Self { buckets, count: 0, sum: 0, min: u64::MAX, max: 0 }
    }

    pub(crate) fn record(&mut self, value: u64) {
        self.buckets[bucket(value)] += 1;
        self.count += 1;
        self.sum += u128::from(value);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// The least value; 0 without any.
    pub(crate) fn min(&self) -> u64 {
        if self.count == 0 { 0 } else { self.min }
    }

    /// The greatest value; 0 without any.
    pub(crate) fn max(&self) -> u64 {
        self.max
    }

    /// The mean; 0 without any value.
    pub(crate) fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 }
    }

    /// The value that `percent` of all do not exceed; 0 without any.
    pub(crate) fn percentile(&self, percent: f64) -> u64 {
        let rank = ((percent / 100.0 * self.count as f64).ceil() as u64).max(1);
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return last(bucket).clamp(self.min(), self.max);
            }
        }
        self.max
    }
}

fn bucket(value: u64) -> usize {
    let shift = (u64::BITS - value.leading_zeros()).saturating_sub(BITS);
    (u64::from(shift) * HALF + (value >> shift)) as usize
}

/// The greatest value of a bucket.
fn last(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < 2 * HALF {
        return bucket;
    }
    let shift = bucket / HALF - 1;
    let first = (bucket - shift * HALF) << shift;
    first + ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_narrow_and_in_order() {
        for value in (0..70_000).chain((0..64).map(|i| u64::MAX >> i)) {
            let last = last(bucket(value));
            assert!(last >= value && (last - value) as f64 <= value as f64 / 100.0, "{value}");
        }
        for value in 1..70_000 {
            assert!(bucket(value) - bucket(value - 1) <= 1, "{value}");
        }
        assert_eq!((bucket(255), bucket(256), bucket(257), bucket(258)), (255, 256, 256, 257));
    }

    #[test]
    fn percentiles_agree_with_a_sorted_list() {
        let mut state = 1u64;
        let mut values: Vec<u64> = (0..10_000)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 40) * (state >> 60)
            })
            .collect();
        let mut histogram = Histogram::new();
        assert_eq!((histogram.min(), histogram.max(), histogram.percentile(50.0)), (0, 0, 0));
        values.iter().for_each(|&v| histogram.record(v));
        values.sort_unstable();
        for percent in [0.01, 50.0, 90.0, 99.0, 99.9, 100.0] {
            let exact = values[((percent / 100.0 * 10_000.0_f64).ceil() as usize).max(1) - 1];
            let found = histogram.percentile(percent);
            assert!(found >= exact && (found - exact) as f64 <= exact as f64 / 100.0, "{percent}");
        }
        let mean = values.iter().sum::<u64>() as f64 / 10_000.0;
        assert!((histogram.mean() - mean).abs() < 1e-3);
        assert_eq!((histogram.min(), histogram.max()), (values[0], values[9_999]));
    }
}
