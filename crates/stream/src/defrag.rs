//! IP defragmentation (RFC 791, RFC 815, RFC 8200 §4.5), bounded in memory and time.
//!
//! The problem: only the first fragment has ports, and a signature may lie over several of them, so that whoever inspects
//! packets must first reassemble them, in the way of the receiver. Fragments come in any order, twice, overlapping, or
//! never, and each incomplete datagram takes memory that its sender does not pay for (RFC 8900 §3.7).
//!
//! The idea: a datagram has a sparse space of bytes and a sorted list of the pieces that are there. It is whole when the
//! pieces reach from 0 to the end of the last fragment. Where fragments overlap, a [`Policy`] decides which bytes win.
//! Fragments are the caller's: each comes with a token, and each token comes back exactly once, with the whole datagram or
//! with the reason why there is none. A router in transit inspects the whole and sends the pieces as they came.
//!
//! ```text
//!  fragment ─▶ valid alone? ─▶ find datagram ─▶ ends agree? ─▶ room? ─▶ merge ─▶ whole? ─▶ frame + tokens
//!                 │                 │               │            │
//!                 ▼                 ▼               ▼            ▼
//!               Failed     failed before: Failed  Failed    evict from the pair with the most
//!
//!  space    ┊ header ┊▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓░░░░░░░░░▓▓▓▓▓▓▓▓▓┊
//!  pieces             [0,1480)                  [2960,3500) end
//! ```
//!
//! Bounds. All memory is taken by [`Defragmenter::new`]: datagrams, held fragments, and blocks of bytes. If one of the three
//! is exhausted, the pair of addresses that holds most of it loses its oldest datagram, so that a pair that floods cannot
//! evict those of others. A fragment costs a walk over the pieces of its datagram, at most twice
//! [`Config::fragments_per_datagram`]; what it evicts was brought by as many earlier fragments. Time-outs are checked when a
//! fragment comes and when the caller asks ([`Defragmenter::expire`]); they count from the first fragment to arrive and are
//! not extended.
//!
//! After an error that is the sender's (overlap under [`Policy::Drop`], contradicting ends, too many fragments), the
//! datagram is remembered without bytes until its time-out, and later fragments of it fail for the same reason.
//!
//! For one seed and one input the results are the same. Fragments may be given in calls of any size: time-outs that are
//! due come before the fragment that is later than they.
//!
//! Threads: none; an instance belongs to one worker. All fragments of a datagram must meet there, so packets are spread by
//! addresses, not by ports.

mod blocks;
mod config;
mod fragment;
mod outcome;
mod policy;
mod shares;

#[cfg(test)]
mod tests;

pub use blocks::HEADER_ROOM;
pub use config::{Config, TinyFirst};
pub use fragment::{DatagramKey, Fragment};
pub use outcome::{Notes, Outcome, Output, Reason, Stats};
pub use policy::Policy;

use blocks::{BLOCK, BLOCKS_MAX, Blocks, Space};
use chunk::hash::Polynomial61;
use fragment::finish_header;
use packet::Decoded;
use policy::merge;
use shares::{Index, Lists, NONE, Shares};

/// A range of bytes of a datagram that came from one fragment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Piece {
    start: u16,
    end: u16,
}

impl Piece {
    fn len(self) -> usize {
        usize::from(self.end - self.start)
    }
}

/// An incomplete datagram, or one that failed.
#[derive(Clone, Debug)]
struct Datagram {
    key: DatagramKey,
    hash: u64,
    pair: u32,
    start_ns: u64,
    deadline_ns: u64,
    policy: Policy,
    failed: Option<Reason>,
    notes: Notes,
    has_ce: bool,
    /// Of the first fragment, 0 before it came; and where its IP header starts.
    header_len: usize,
    ip_at: usize,
    /// Of the last fragment.
    end: Option<u16>,
    /// Bytes in pieces.
    held: usize,
    pieces: usize,
    fragments: usize,
    /// Held fragments in the order of arrival.
    first: u32,
    last: u32,
    space: Space,
}

impl Datagram {
    const EMPTY: Datagram = Datagram {
        key: DatagramKey {
            src: [0; 2],
            dst: [0; 2],
            identification: 0,
            scope: 0,
            tunnels: (0, 0),
            protocol: 0,
            family: 0,
        },
        hash: 0,
        pair: NONE,
        start_ns: 0,
        deadline_ns: 0,
        policy: Policy::Bsd,
        failed: None,
        notes: Notes { duplicates: 0, overlaps: 0, conflicts: 0, tiny_first: false },
        has_ce: false,
        header_len: 0,
        ip_at: 0,
        end: None,
        held: 0,
        pieces: 0,
        fragments: 0,
        first: NONE,
        last: NONE,
        space: [NONE; BLOCKS_MAX],
    };

    fn is_whole(&self) -> bool {
        self.header_len > 0 && self.end.is_some_and(|end| self.held == usize::from(end))
    }
}

/// A held fragment.
#[derive(Clone, Debug)]
struct Held<P> {
    token: Option<P>,
    next: u32,
}

/// What may be exhausted: places in [`Defragmenter::shares`].
const DATAGRAMS: usize = 0;
const FRAGMENTS: usize = 1;
const BLOCKS: usize = 2;

/// Reassembles datagrams. `P` is the caller's token of a fragment. See the module.
///
/// ```
/// use stream::defrag::{Config, Defragmenter, Outcome};
///
/// let mut defragmenter = Defragmenter::new(Config { seed: 7, ..Config::default() });
/// # let (frame, now_ns) = ([0; 60], 0);
/// let decoded = packet::decode(&frame, frame.len());
/// let token = "where the frame is";
/// let passed = defragmenter.push_frame(&decoded, &frame, token, now_ns, &mut |output| {
///     match output.outcome {
///         Outcome::Whole { frame, .. } => println!("{} bytes", frame.len()),
///         Outcome::Failed(reason) => println!("{}", reason.text()),
///     }
///     for token in output.tokens {
///         println!("{token}");
///     }
/// });
/// assert_eq!(passed, Some(token)); // not a fragment
/// ```
#[derive(Clone, Debug)]
pub struct Defragmenter<P> {
    config: Config,
    stats: Stats,
    now_ns: u64,
    hash: Polynomial61,

    datagrams: Vec<Datagram>,
    free_datagrams: Vec<u32>,
    index: Index,
    /// By datagram: room for twice as many pieces as it may have fragments.
    pieces: Vec<Piece>,
    /// Datagrams of IPv4 and of IPv6, in the order of their time-outs.
    due: Lists,

    pairs: Vec<DatagramKey>,
    free_pairs: Vec<u32>,
    pair_index: Index,
    /// Datagrams of each pair, oldest first.
    of_pair: Lists,
    shares: [Shares; 3],

    held: Vec<Held<P>>,
    free_held: Vec<u32>,
    blocks: Blocks,

    // Room for results.
    merged: Vec<Piece>,
    frame: Vec<u8>,
    tokens: Vec<P>,
}

impl<P> Defragmenter<P> {
    /// Takes all memory. Bounds that are too small for one datagram are raised.
    pub fn new(config: Config) -> Self {
        let blocks = config.bytes.div_ceil(BLOCK).clamp(BLOCKS_MAX, NONE as usize - 1);
        let datagrams = config.datagrams.clamp(1, NONE as usize - 1);
        let fragments_per_datagram = config.fragments_per_datagram.clamp(1, 8192);
        let fragments = config.fragments.clamp(fragments_per_datagram, NONE as usize - 1);
        let free = |items: usize| (0..items as u32).rev().collect::<Vec<_>>();
        Self {
            config: Config {
                datagrams,
                fragments,
                fragments_per_datagram,
                bytes: blocks * BLOCK,
                ..config
            },
            stats: Stats::default(),
            now_ns: 0,
            hash: Polynomial61::new(config.seed),
            datagrams: vec![Datagram::EMPTY; datagrams],
            free_datagrams: free(datagrams),
            index: Index::new(datagrams),
            pieces: vec![Piece::default(); datagrams * 2 * fragments_per_datagram],
            due: Lists::new(2, datagrams),
            pairs: vec![DatagramKey::default(); datagrams],
            free_pairs: free(datagrams),
            pair_index: Index::new(datagrams),
            of_pair: Lists::new(datagrams, datagrams),
            shares: [datagrams, fragments, blocks].map(|total| Shares::new(datagrams, total)),
            held: (0..fragments).map(|_| Held { token: None, next: NONE }).collect(),
            free_held: free(fragments),
            blocks: Blocks::new(blocks),
            merged: Vec::with_capacity(2 * fragments_per_datagram + 2),
            frame: Vec::with_capacity(HEADER_ROOM + 65_535),
            tokens: Vec::with_capacity(fragments_per_datagram + 1),
        }
    }

    /// The bounds in use.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Counts since creation.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Datagrams that are incomplete, or that failed and are remembered.
    pub fn datagrams(&self) -> usize {
        self.datagrams.len() - self.free_datagrams.len()
    }

    /// Fragments that are held.
    pub fn fragments(&self) -> usize {
        self.held.len() - self.free_held.len()
    }

    /// Bytes of the blocks that are taken.
    pub fn bytes(&self) -> usize {
        self.config.bytes - self.blocks.free() * BLOCK
    }

    /// Takes a frame, all bytes of which are in `frame`, as [`packet::decode()`] decoded it. Returns the token if the frame is
    /// not a fragment; otherwise the token comes back in an [`Output`], now or later.
    pub fn push_frame<F: FnMut(Output<'_, P>)>(
        &mut self,
        decoded: &Decoded,
        frame: &[u8],
        token: P,
        now_ns: u64,
        out: &mut F,
    ) -> Option<P> {
        match Fragment::from_frame(decoded, frame) {
            Ok(None) => return Some(token),
            Ok(Some(fragment)) => self.push(&fragment, token, now_ns, out),
            Err(reason) => {
                self.stats.fragments += 1;
                self.fail_alone(DatagramKey::new(decoded, 0), reason, token, now_ns, out);
            }
        }
        None
    }

    /// Takes a fragment that was received at `now_ns`. Its token comes back in an [`Output`], now or later. It ends its own
    /// datagram if that one's time-out was due before; those of others end by [`Defragmenter::expire`]. So what becomes of a
    /// datagram depends on its own fragments, even if those of others have much later or earlier times.
    pub fn push<F: FnMut(Output<'_, P>)>(
        &mut self,
        fragment: &Fragment<'_>,
        token: P,
        now_ns: u64,
        out: &mut F,
    ) {
        self.stats.fragments += 1;
        if let Err(reason) = fragment.check() {
            return self.fail_alone(fragment.key, reason, token, now_ns, out);
        }
        if fragment.is_atomic() {
            return self.finish_atomic(fragment, token, now_ns, out);
        }
        let hash = self.hash.hash(&fragment.key.words());
        let mut found = self.index.find(hash, |at| self.datagrams[at as usize].key == fragment.key);
        if let Some(at) = found.filter(|at| self.datagrams[*at as usize].deadline_ns <= now_ns) {
            self.fail(at, Reason::Timeout, None, out);
            found = None;
        }
        let at = match found {
            Some(at) => match self.datagrams[at as usize].failed {
                Some(reason) => return self.fail_alone(fragment.key, reason, token, now_ns, out),
                None => at,
            },
            None => self.open(fragment, hash, now_ns, out),
        };
        if let Err(reason) = self.examine(at, fragment) {
            return self.fail(at, reason, Some(token), out);
        }
        if !self.make_room(at, fragment, out) {
            return self.fail(at, Reason::Evicted, Some(token), out);
        }
        self.hold(at, token);
        self.insert(at, fragment);
        if self.datagrams[at as usize].is_whole() {
            self.finish(at, out);
        }
    }

    /// When the next time-out is due, in nanoseconds; `None` if nothing is held.
    pub fn next_timeout_ns(&self) -> Option<u64> {
        self.next_due().map(|at| self.datagrams[at as usize].deadline_ns)
    }

    /// Ends the datagrams whose time-outs are due at `now_ns`. Time does not go back: an earlier `now_ns` than the latest
    /// counts as that.
    pub fn expire<F: FnMut(Output<'_, P>)>(&mut self, now_ns: u64, out: &mut F) {
        self.now_ns = self.now_ns.max(now_ns);
        while let Some(at) = self.next_due() {
            if self.datagrams[at as usize].deadline_ns > self.now_ns {
                break;
            }
            self.fail(at, Reason::Timeout, None, out);
        }
    }

    /// Gives all tokens back, those of the oldest datagram first, and forgets everything but the counts.
    pub fn clear<F: FnMut(Output<'_, P>)>(&mut self, out: &mut F) {
        while let Some(at) = self.next_due() {
            self.fail(at, Reason::Shutdown, None, out);
        }
    }

    /// The datagram that is due next; of two at the same time the IPv4 one.
    fn next_due(&self) -> Option<u32> {
        let firsts = [0, 1].map(|family| self.due.first(family));
        firsts.into_iter().flatten().min_by_key(|at| self.datagrams[*at as usize].deadline_ns)
    }

    /// A place for a new datagram.
    fn open<F: FnMut(Output<'_, P>)>(
        &mut self,
        fragment: &Fragment<'_>,
        hash: u64,
        now_ns: u64,
        out: &mut F,
    ) -> u32 {
        while self.free_datagrams.is_empty() && self.evict(DATAGRAMS, None, out) {}
        let at = self.free_datagrams.pop().unwrap_or(0);
        let key = fragment.key;
        let is_v6 = key.family == 6;
        let policy = if is_v6 { self.config.policy_v6 } else { self.config.policy_v4 };
        let timeout_ns = self.config.timeout_ns(key.family);
        let pair = self.pair(key.pair());
        self.datagrams[at as usize] = Datagram {
            key,
            hash,
            pair,
            start_ns: now_ns,
            deadline_ns: now_ns.saturating_add(timeout_ns),
            policy: fragment.policy.unwrap_or(policy),
            ..Datagram::EMPTY
        };
        self.index.insert(hash, at);
        self.due.push(usize::from(is_v6), at);
        self.of_pair.push(pair as usize, at);
        self.add_share(DATAGRAMS, pair, 1);
        at
    }

    /// The number of an address pair, new or not. Each has a datagram, so there is a place for it.
    fn pair(&mut self, key: DatagramKey) -> u32 {
        let hash = self.hash.hash(&key.words());
        if let Some(pair) = self.pair_index.find(hash, |at| self.pairs[at as usize] == key) {
            return pair;
        }
        let pair = self.free_pairs.pop().unwrap_or(0);
        self.pairs[pair as usize] = key;
        self.pair_index.insert(hash, pair);
        pair
    }

    fn add_share(&mut self, resource: usize, pair: u32, added: usize) {
        let amount = self.shares[resource].amount(pair) + added as u32;
        self.shares[resource].set(pair, amount);
    }

    fn take_share(&mut self, resource: usize, pair: u32, taken: usize) {
        let amount = self.shares[resource].amount(pair) - taken as u32;
        self.shares[resource].set(pair, amount);
    }

    /// Ends the oldest datagram of the pair with the most of a resource; not `keep`. Returns whether there was one.
    fn evict<F: FnMut(Output<'_, P>)>(
        &mut self,
        resource: usize,
        keep: Option<u32>,
        out: &mut F,
    ) -> bool {
        let pair = self.shares[resource].largest();
        let oldest = pair.and_then(|pair| self.of_pair.first(pair as usize));
        match oldest.filter(|at| Some(*at) != keep) {
            Some(at) => {
                self.fail(at, Reason::Evicted, None, out);
                true
            }
            None => false,
        }
    }

    /// Frees what a fragment takes. Returns `false` if its own datagram is to give way.
    fn make_room<F: FnMut(Output<'_, P>)>(
        &mut self,
        at: u32,
        fragment: &Fragment<'_>,
        out: &mut F,
    ) -> bool {
        while self.free_held.is_empty() {
            if !self.evict(FRAGMENTS, Some(at), out) {
                return false;
            }
        }
        let (start, end) = span(fragment);
        let lacking = self.blocks.lacking(&self.datagrams[at as usize].space, start, end);
        while self.blocks.free() < lacking {
            if !self.evict(BLOCKS, Some(at), out) {
                return false;
            }
        }
        true
    }

    /// What is wrong with a fragment beside those of its datagram that came before. Notes and counts what is odd.
    fn examine(&mut self, at: u32, fragment: &Fragment<'_>) -> Result<(), Reason> {
        let held = self.pieces_of(at);
        let datagram = &self.datagrams[at as usize];
        if datagram.fragments >= self.config.fragments_per_datagram {
            return Err(Reason::TooMany);
        }
        let (end, held_end) = (fragment.end() as u16, held.last().map_or(0, |piece| piece.end));
        match datagram.end {
            Some(last) if !fragment.more && end != last => return Err(Reason::TwoEnds),
            Some(last) if end > last => return Err(Reason::BeyondEnd),
            None if !fragment.more && held_end > end => return Err(Reason::BeyondEnd),
            _ => {}
        }
        let new = Piece { start: fragment.offset, end };
        let (mut is_duplicate, mut is_overlap, mut is_conflict) = (false, false, false);
        for piece in held.iter().filter(|piece| piece.start < new.end && piece.end > new.start) {
            let (start, end) = (piece.start.max(new.start), piece.end.min(new.end));
            let bytes =
                &fragment.payload[usize::from(start - new.start)..usize::from(end - new.start)];
            is_overlap = true;
            is_conflict |=
                !self.blocks.equal(&datagram.space, HEADER_ROOM + usize::from(start), bytes);
            is_duplicate |= *piece == new && !is_conflict;
        }
        let (policy, is_tiny) = (datagram.policy, fragment.is_tiny());
        let notes = &mut self.datagrams[at as usize].notes;
        notes.duplicates += u32::from(is_duplicate);
        notes.overlaps += u32::from(is_overlap && !is_duplicate);
        notes.conflicts += u32::from(is_conflict);
        let is_first_tiny = is_tiny && !notes.tiny_first;
        notes.tiny_first |= is_tiny;
        self.stats.duplicates += u64::from(is_duplicate);
        self.stats.overlaps += u64::from(is_overlap && !is_duplicate);
        self.stats.conflicts += u64::from(is_conflict);
        self.stats.tiny_first += u64::from(is_first_tiny);
        if is_tiny && self.config.tiny_first == TinyFirst::Drop {
            return Err(Reason::TinyFirst);
        }
        if is_overlap && !is_duplicate && policy == Policy::Drop {
            return Err(Reason::Overlap);
        }
        Ok(())
    }

    fn pieces_of(&self, at: u32) -> &[Piece] {
        let start = at as usize * 2 * self.config.fragments_per_datagram;
        &self.pieces[start..start + self.datagrams[at as usize].pieces]
    }

    /// Keeps the token of a fragment.
    fn hold(&mut self, at: u32, token: P) {
        let Some(item) = self.free_held.pop() else { return };
        self.held[item as usize] = Held { token: Some(token), next: NONE };
        let datagram = &mut self.datagrams[at as usize];
        let last = std::mem::replace(&mut datagram.last, item);
        datagram.fragments += 1;
        match self.held.get_mut(last as usize) {
            Some(last) => last.next = item,
            None => datagram.first = item,
        }
        let pair = datagram.pair;
        self.add_share(FRAGMENTS, pair, 1);
    }

    /// Takes the bytes of a fragment for which there is room.
    fn insert(&mut self, at: u32, fragment: &Fragment<'_>) {
        let datagram = &mut self.datagrams[at as usize];
        let (start, end) = span(fragment);
        let taken = self.blocks.take(&mut datagram.space, start, end);
        datagram.has_ce |= fragment.has_ce;
        if !fragment.more {
            datagram.end = Some(fragment.end() as u16);
        }
        if fragment.offset == 0 && datagram.header_len == 0 {
            let (header, len) = fragment.whole_header();
            self.blocks.write(&datagram.space, HEADER_ROOM - len, &header[..len]);
            (datagram.header_len, datagram.ip_at) = (len, fragment.ip_at);
        }
        let new = Piece { start: fragment.offset, end: fragment.end() as u16 };
        let first = at as usize * 2 * self.config.fragments_per_datagram;
        let room = &mut self.pieces[first..first + 2 * self.config.fragments_per_datagram];
        self.merged.clear();
        merge(datagram.policy, &room[..datagram.pieces], new, &mut self.merged, |won| {
            let from = usize::from(won.start - new.start);
            let bytes = &fragment.payload[from..from + won.len()];
            self.blocks.write(&datagram.space, HEADER_ROOM + usize::from(won.start), bytes);
        });
        datagram.pieces = self.merged.len();
        datagram.held = self.merged.iter().map(|piece| piece.len()).sum();
        room[..self.merged.len()].copy_from_slice(&self.merged);
        let pair = datagram.pair;
        self.add_share(BLOCKS, pair, taken);
    }

    /// Gives out a datagram that is whole.
    fn finish<F: FnMut(Output<'_, P>)>(&mut self, at: u32, out: &mut F) {
        let datagram = &self.datagrams[at as usize];
        let (start, end) = (
            HEADER_ROOM - datagram.header_len,
            HEADER_ROOM + usize::from(datagram.end.unwrap_or_default()),
        );
        self.frame.clear();
        self.blocks.read(&datagram.space, start, end, &mut self.frame);
        let ip_at = datagram.ip_at;
        if finish_header(&mut self.frame, ip_at, datagram.has_ce).is_none() {
            return self.fail(at, Reason::TooLong, None, out);
        }
        let (key, notes, start_ns) = (datagram.key, datagram.notes, datagram.start_ns);
        self.stats.whole += 1;
        self.empty(at);
        self.release(at);
        let outcome = Outcome::Whole { frame: &self.frame, ip_at };
        let tokens = self.tokens.drain(..);
        out(Output { key, outcome, tokens, notes, has_first: true, start_ns });
    }

    /// Gives out a datagram of one fragment.
    fn finish_atomic<F: FnMut(Output<'_, P>)>(
        &mut self,
        fragment: &Fragment<'_>,
        token: P,
        now_ns: u64,
        out: &mut F,
    ) {
        let (header, len) = fragment.whole_header();
        self.frame.clear();
        self.frame.extend_from_slice(&header[..len]);
        self.frame.extend_from_slice(fragment.payload);
        if finish_header(&mut self.frame, fragment.ip_at, false).is_none() {
            return self.fail_alone(fragment.key, Reason::TooLong, token, now_ns, out);
        }
        self.stats.whole += 1;
        self.stats.atomic += 1;
        self.tokens.push(token);
        out(Output {
            key: fragment.key,
            outcome: Outcome::Whole { frame: &self.frame, ip_at: fragment.ip_at },
            tokens: self.tokens.drain(..),
            notes: Notes::default(),
            has_first: true,
            start_ns: now_ns,
        });
    }

    /// Gives a fragment back that does not become part of a datagram.
    fn fail_alone<F: FnMut(Output<'_, P>)>(
        &mut self,
        key: DatagramKey,
        reason: Reason,
        token: P,
        now_ns: u64,
        out: &mut F,
    ) {
        self.stats.failed[reason as usize] += 1;
        self.tokens.push(token);
        let outcome = Outcome::Failed(reason);
        let (tokens, notes, start_ns) = (self.tokens.drain(..), Notes::default(), now_ns);
        out(Output { key, outcome, tokens, notes, has_first: false, start_ns });
    }

    /// Ends a datagram, with the token of the fragment that caused it.
    fn fail<F: FnMut(Output<'_, P>)>(
        &mut self,
        at: u32,
        reason: Reason,
        token: Option<P>,
        out: &mut F,
    ) {
        self.empty(at);
        self.tokens.extend(token);
        let datagram = &mut self.datagrams[at as usize];
        datagram.failed = Some(reason);
        let (key, notes, start_ns) = (datagram.key, datagram.notes, datagram.start_ns);
        let has_first = datagram.header_len > 0;
        if !reason.is_remembered() {
            self.release(at);
        }
        if self.tokens.is_empty() {
            return; // it had failed before
        }
        self.stats.failed[reason as usize] += 1;
        let (outcome, tokens) = (Outcome::Failed(reason), self.tokens.drain(..));
        out(Output { key, outcome, tokens, notes, has_first, start_ns });
    }

    /// Moves the tokens of a datagram to where they are given out from, and frees its bytes.
    fn empty(&mut self, at: u32) {
        let datagram = &mut self.datagrams[at as usize];
        let (pair, fragments) = (datagram.pair, datagram.fragments);
        let mut item = datagram.first;
        while let Some(held) = self.held.get_mut(item as usize) {
            self.tokens.extend(held.token.take());
            self.free_held.push(item);
            item = held.next;
        }
        (datagram.first, datagram.last) = (NONE, NONE);
        (datagram.fragments, datagram.pieces) = (0, 0);
        let blocks = self.blocks.give_back(&mut datagram.space);
        self.take_share(FRAGMENTS, pair, fragments);
        self.take_share(BLOCKS, pair, blocks);
    }

    /// Forgets a datagram that is empty.
    fn release(&mut self, at: u32) {
        let Datagram { key, hash, pair, .. } = self.datagrams[at as usize];
        self.index.remove(hash, at);
        self.due.remove(usize::from(key.family == 6), at);
        self.of_pair.remove(pair as usize, at);
        self.free_datagrams.push(at);
        self.take_share(DATAGRAMS, pair, 1);
        if self.of_pair.first(pair as usize).is_none() {
            self.pair_index.remove(self.hash.hash(&key.pair().words()), pair);
            self.free_pairs.push(pair);
        }
    }
}

/// Where the bytes of a fragment are in the space of its datagram: those of a first one with the header in front.
fn span(fragment: &Fragment<'_>) -> (usize, usize) {
    let start = match fragment.offset {
        0 => HEADER_ROOM - fragment.header.len().min(HEADER_ROOM),
        offset => HEADER_ROOM + usize::from(offset),
    };
    (start, HEADER_ROOM + fragment.end())
}
