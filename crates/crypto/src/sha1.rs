//! HMAC-SHA1 over many messages at once.
//!
//! A round of SHA-1 waits for the one before, so one stream of SHA instructions leaves the unit idle most of the time.
//! Three messages in turn fill it (26 million blocks a second with one stream, 58 with three, on Zen 3); more need more
//! registers than there are. Messages have different lengths: each **lane** runs through its message, its last block, and the
//! outer block of HMAC, and then takes the next message.
//!
//! ```text
//!  lane 0   body body body body last outer │ body last outer │ …
//!  lane 1   body last outer │ body body body body body last last outer │ …
//!  lane 2   last outer │ body body last outer │ …
//! ```
//!
//! Where the CPU has AVX-512 and there are enough messages of about one length, sixteen run in the lanes of vectors, which is
//! more than twice as quick again. What is left when there are no more messages, and every CPU without these instructions, runs
//! one stream by the crate `sha1`.

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod avx512;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod ni;

use sha1::block_api::compress;
use zeroize::{Zeroize, ZeroizeOnDrop};

const BLOCK: usize = 64;
const INITIAL: State = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];

type State = [u32; 5];
type Blocks = [[u8; BLOCK]];

/// A key of HMAC-SHA1: the states behind inner and outer pad.
pub(crate) struct HmacSha1 {
    inner: State,
    outer: State,
}

impl HmacSha1 {
    /// A key of any length (RFC 2104 §2).
    pub(crate) fn new(key: &[u8]) -> Self {
        let mut block = [0; BLOCK];
        if key.len() > BLOCK {
            use sha1::Digest;
            block[..20].copy_from_slice(&sha1::Sha1::digest(key));
        } else {
            block[..key.len()].copy_from_slice(key);
        }
        let state = |pad: u8| {
            let (mut state, mut block) = (INITIAL, block.map(|byte| byte ^ pad));
            compress(&mut state, &[block]);
            block.zeroize();
            state
        };
        let new = Self { inner: state(0x36), outer: state(0x5c) };
        block.zeroize();
        new
    }

    /// A message in two parts; the second has at most [`TAIL_MAX`] bytes.
    pub(crate) fn job<'m>(&'m self, message: &'m [u8], tail: &'m [u8]) -> Job<'m> {
        debug_assert!(tail.len() <= TAIL_MAX);
        Job { key: self, message, tail }
    }
}

impl Drop for HmacSha1 {
    fn drop(&mut self) {
        self.inner.zeroize();
        self.outer.zeroize();
    }
}

impl ZeroizeOnDrop for HmacSha1 {}

/// Bytes that may follow a message: the high half of a sequence number.
pub(crate) const TAIL_MAX: usize = 4;

/// A message and its key.
#[derive(Clone, Copy)]
pub(crate) struct Job<'m> {
    key: &'m HmacSha1,
    message: &'m [u8],
    tail: &'m [u8],
}

/// Digests of all jobs, at the same places of `out`.
pub(crate) fn digests(jobs: &[Job<'_>], out: &mut [[u8; 20]]) {
    #[cfg(target_arch = "x86_64")]
    if jobs.len() > ni::LANES && avx512::is_available() {
        let parts = jobs.chunks(ORDERED).zip(out.chunks_mut(ORDERED));
        parts.for_each(|(jobs, out)| digests_wide(jobs, out));
        return;
    }
    digests_narrow(jobs, out);
}

/// By three streams or one.
fn digests_narrow(jobs: &[Job<'_>], out: &mut [[u8; 20]]) {
    #[cfg(target_arch = "x86_64")]
    if jobs.len() >= ni::LANES && ni::is_available() {
        return run(jobs, out, ni::LANES - 1, ni::compress3);
    }
    run_plain(jobs, out);
}

/// Jobs in an order by their length, so that lanes end together; where most lanes would wait for a long one, in three streams.
#[cfg(target_arch = "x86_64")]
fn digests_wide(jobs: &[Job<'_>], out: &mut [[u8; 20]]) {
    let blocks = |at: u8| jobs[usize::from(at)].message.len() / BLOCK + 2; // about: the outer one among them
    let mut order = [0; ORDERED];
    let order = &mut order[..jobs.len()];
    order.iter_mut().zip(0..).for_each(|(own, at)| *own = at);
    if order.windows(2).any(|pair| blocks(pair[0]) != blocks(pair[1])) {
        order.sort_unstable_by_key(|at| std::cmp::Reverse(blocks(*at)));
    }
    for places in order.chunks(avx512::LANES) {
        let all: usize = places.iter().map(|at| blocks(*at)).sum();
        if all >= WIDE_MIN * blocks(places[0]) {
            avx512::macs(jobs, places, out);
            continue;
        }
        let mut own = [jobs[usize::from(places[0])]; avx512::LANES];
        own.iter_mut().zip(places).for_each(|(own, at)| *own = jobs[usize::from(*at)]);
        let mut found = [[0; 20]; avx512::LANES];
        digests_narrow(&own[..places.len()], &mut found);
        places.iter().zip(found).for_each(|(at, found)| out[usize::from(*at)] = found);
    }
}

/// Jobs that are put in order together.
#[cfg(target_arch = "x86_64")]
const ORDERED: usize = 64;

/// Lanes that work, on average, from which on vectors are quicker than three streams.
#[cfg(target_arch = "x86_64")]
const WIDE_MIN: usize = 8;

/// One message after another: the reference, and the way without SHA instructions.
fn run_plain(jobs: &[Job<'_>], out: &mut [[u8; 20]]) {
    for (job, out) in jobs.iter().zip(out) {
        let (mut lane, mut state) = Lane::begin(0, job);
        *out = lane.finish(&mut state, job);
    }
}

/// `N` messages at a time, with a function that brings as many states over as many blocks each. The last `alone` messages
/// or fewer run one after another.
fn run<const N: usize>(
    jobs: &[Job<'_>],
    out: &mut [[u8; 20]],
    alone: usize,
    compress_all: impl Fn(&mut [State; N], [&Blocks; N]),
) {
    let mut states = [INITIAL; N];
    let mut lanes = [const { None::<Lane<'_>> }; N];
    let mut more = jobs.iter().enumerate();
    let mut active = 0;
    for ((lane, state), (number, job)) in lanes.iter_mut().zip(&mut states).zip(&mut more) {
        let begun = Lane::begin(number, job);
        (*lane, *state) = (Some(begun.0), begun.1);
        active += 1;
    }
    while active > alone {
        let blocks = lanes.each_ref().map(|lane| lane.as_ref().map(Lane::current));
        let Some(any) = blocks.iter().flatten().min_by_key(|blocks| blocks.len()) else { return };
        let n = any.len();
        // A lane without a message does the work of another one, for nothing.
        compress_all(&mut states, blocks.map(|blocks| &blocks.unwrap_or(any)[..n]));
        for (place, state) in lanes.iter_mut().zip(&mut states) {
            let Some(lane) = place else { continue };
            if !lane.advance(n, state, &jobs[lane.job]) {
                continue;
            }
            out[lane.job] = bytes_of(state);
            if let Some((number, job)) = more.next() {
                (*lane, *state) = Lane::begin(number, job);
            } else {
                *place = None;
                active -= 1;
            }
        }
    }
    for (lane, state) in lanes.iter_mut().zip(&mut states) {
        if let Some(lane) = lane {
            out[lane.job] = lane.finish(state, &jobs[lane.job]);
        }
    }
}

/// Whole blocks of a message, and how many blocks are behind them, which are written: the rest, tail, padding and length.
#[inline]
fn last_blocks<'m>(job: &Job<'m>, last: &mut [[u8; BLOCK]; 2]) -> (&'m Blocks, usize) {
    let (body, rest) = job.message.as_chunks::<BLOCK>();
    let bytes = last.as_flattened_mut();
    let len = rest.len() + job.tail.len();
    // Copies of constant length, which are a few moves: the last block of the message, of which zeros are behind.
    match job.message.last_chunk::<BLOCK>() {
        Some(end) if !rest.is_empty() => {
            let mut shifted = [0; 2 * BLOCK];
            shifted[..BLOCK].copy_from_slice(end);
            let from = BLOCK - rest.len();
            bytes[..BLOCK].copy_from_slice(&shifted[from..from + BLOCK]);
        }
        _ => bytes[..rest.len()].copy_from_slice(rest),
    }
    bytes[rest.len()..len].copy_from_slice(job.tail);
    bytes[len] = 0x80;
    let count = (len + 1 + 8).div_ceil(BLOCK);
    let bits = 8 * (BLOCK + job.message.len() + job.tail.len()) as u64; // the inner pad is a block
    bytes[count * BLOCK - 8..count * BLOCK].copy_from_slice(&bits.to_be_bytes());
    (body, count)
}

/// A message on its way.
struct Lane<'m> {
    job: usize,
    /// Whole blocks of the message that remain.
    body: &'m Blocks,
    /// Behind them: the rest of the message, the tail, padding and length; then the inner digest, padded.
    last: [[u8; BLOCK]; 2],
    /// Which of `last` remain.
    from: usize,
    to: usize,
    /// `last` is the outer block.
    is_outer: bool,
}

impl<'m> Lane<'m> {
    fn begin(number: usize, job: &Job<'m>) -> (Self, State) {
        let mut last = [[0; BLOCK]; 2];
        let (body, to) = last_blocks(job, &mut last);
        (Self { job: number, body, last, from: 0, to, is_outer: false }, job.key.inner)
    }

    /// Blocks that can be taken now: never none.
    fn current(&self) -> &Blocks {
        match self.body.is_empty() {
            true => &self.last[self.from..self.to],
            false => self.body,
        }
    }

    /// Leaves `n` of the current blocks behind. Whether the digest is there.
    fn advance(&mut self, n: usize, state: &mut State, job: &Job<'_>) -> bool {
        if !self.body.is_empty() {
            self.body = &self.body[n..];
            return false;
        }
        self.from += n;
        if self.from < self.to {
            return false;
        }
        if self.is_outer {
            return true;
        }
        let mut outer = [0; BLOCK];
        outer[..20].copy_from_slice(&bytes_of(state));
        outer[20] = 0x80;
        outer[BLOCK - 8..].copy_from_slice(&(8 * (BLOCK + 20) as u64).to_be_bytes());
        self.last[0] = outer;
        (self.from, self.to, self.is_outer) = (0, 1, true);
        *state = job.key.outer;
        false
    }

    /// The rest of the message alone.
    fn finish(&mut self, state: &mut State, job: &Job<'_>) -> [u8; 20] {
        loop {
            let blocks = self.current();
            let n = blocks.len();
            compress(state, blocks);
            if self.advance(n, state, job) {
                return bytes_of(state);
            }
        }
    }
}

fn bytes_of(state: &State) -> [u8; 20] {
    let mut bytes = [0; 20];
    for (chunk, word) in bytes.chunks_exact_mut(4).zip(state) {
        chunk.copy_from_slice(&word.to_be_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use hmac::{Hmac, KeyInit, Mac};
    use proptest::prelude::*;

    use super::*;

    fn reference(key: &[u8], message: &[u8], tail: &[u8]) -> [u8; 20] {
        let mut mac = Hmac::<sha1::Sha1>::new_from_slice(key).unwrap();
        mac.update(message);
        mac.update(tail);
        mac.finalize().into_bytes().into()
    }

    /// All states, one after another.
    fn compress_plain<const N: usize>(states: &mut [State; N], blocks: [&Blocks; N]) {
        for (state, blocks) in states.iter_mut().zip(blocks) {
            compress(state, blocks);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: 150, ..ProptestConfig::default() })]

        /// Messages of all lengths around the borders of blocks, in batches that end in every way.
        #[test]
        fn lanes_agree_with_hmac(
            lens in prop::collection::vec((0usize..400, 0usize..=TAIL_MAX, 0usize..100), 0..40),
            seed in any::<u8>(),
        ) {
            let bytes: Vec<u8> = (0..600usize).map(|at| (at * 31 + at / 7) as u8 ^ seed).collect();
            let keys: Vec<_> = lens.iter().map(|(_, _, key)| HmacSha1::new(&bytes[..*key])).collect();
            let jobs: Vec<_> = lens
                .iter()
                .zip(&keys)
                .map(|((len, tail, _), key)| key.job(&bytes[3..3 + len], &bytes[500..500 + tail]))
                .collect();
            let expected: Vec<_> = lens
                .iter()
                .map(|(len, tail, key)| {
                    reference(&bytes[..*key], &bytes[3..3 + len], &bytes[500..500 + tail])
                })
                .collect();
            let mut out = vec![[0; 20]; jobs.len()];
            run_plain(&jobs, &mut out);
            prop_assert_eq!(&out, &expected);
            out.fill([0; 20]);
            run(&jobs, &mut out, 2, compress_plain::<3>);
            prop_assert_eq!(&out, &expected);
            out.fill([0; 20]);
            run(&jobs, &mut out, 0, compress_plain::<16>);
            prop_assert_eq!(&out, &expected);
            out.fill([0; 20]);
            digests_narrow(&jobs, &mut out);
            prop_assert_eq!(&out, &expected);
            #[cfg(target_arch = "x86_64")]
            if ni::is_available() {
                out.fill([0; 20]);
                run(&jobs, &mut out, 1, ni::compress3);
                prop_assert_eq!(&out, &expected);
            }
            out.fill([0; 20]);
            digests(&jobs, &mut out);
            prop_assert_eq!(&out, &expected);
        }
    }
}
