//! Random numbers for tests.

/// Splitmix64: keys by the million are drawn quicker than proptest draws them.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// Other numbers in each run; the test prints them where it fails.
    #[allow(dead_code)] // tests of other crates share this file
    pub(crate) fn from_time() -> Self {
        let since = std::time::UNIX_EPOCH.elapsed().expect("a clock behind 1970");
        Self(since.as_nanos() as u64)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}
