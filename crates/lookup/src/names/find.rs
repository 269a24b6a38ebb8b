//! The walk of one lookup, and the forms it runs in.
//!
//! A step reads a line and names the next one: the hint, then the bucket of the deepest depth that the hint
//! leaves possible, the name of an entry whose tag fits, the bucket of the next depth … One source, whether
//! each step waits for its line, or other lookups take their steps meanwhile.

use core::task::Poll;

use interleave::{Machine, Memory, map_direct, map_switched, run_machine, run_machine_direct};

use super::NameFib;
use super::hash::NameKey;
use super::layout::*;
use crate::NextHopId;

/// What a lookup keeps from one line to the next.
#[derive(Debug, Clone, Copy)]
pub(super) struct Walk {
    line: u32,  // that the next step reads
    count: u16, // lines from there on
    phase: Phase,
    depth: u8, // that is asked for
    depths: u32,
    bucket: u32,
    entry: u8, // of the bucket, to look at next
    next_hop: NextHopId,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Phase {
    Hint,
    Bucket,
    Name,
    /// Nothing to read.
    End,
}

/// Lines of a long name that are fetched at once; the rest comes by itself.
const NAME_LINES: usize = 4;

impl<'a> NameFib<'a> {
    #[inline(always)]
    pub(super) fn begin(&self, key: &NameKey<'_>) -> Walk {
        let depths = self.always & up_to(key.prefixes.len());
        let mut walk = Walk {
            line: 0,
            count: 1,
            phase: Phase::Hint,
            depth: 0,
            depths,
            bucket: 0,
            entry: 0,
            next_hop: 0,
        };
        match key.prefixes.get(self.hint_depth.wrapping_sub(1)) {
            Some(prefix) => walk.line = self.shape.hint_of(prefix.hash),
            None => self.next_depth(key, &mut walk),
        }
        walk
    }

    /// Turns to the deepest depth that is left.
    #[inline(always)]
    fn next_depth(&self, key: &NameKey<'_>, walk: &mut Walk) {
        if walk.depths == 0 {
            walk.phase = Phase::End;
            return;
        }
        walk.depth = 31 - walk.depths.leading_zeros() as u8;
        walk.depths ^= 1 << walk.depth;
        walk.bucket = self.shape.bucket_of(key.prefixes[walk.depth as usize - 1].hash);
        walk.entry = 0;
        (walk.phase, walk.line, walk.count) = (Phase::Bucket, walk.bucket, 1);
    }

    /// The lines that the next step reads.
    #[inline(always)]
    pub(super) fn place(&self, walk: &Walk) -> &'a [Line] {
        &self.lines[walk.line as usize..][..walk.count as usize]
    }

    #[inline(always)]
    pub(super) fn step(&self, key: &NameKey<'_>, walk: &mut Walk) -> Poll<NextHopId> {
        match walk.phase {
            Phase::Hint => {
                let line = &self.lines[walk.line as usize];
                let hash = key.prefixes[self.hint_depth - 1].hash;
                if let Some(index) = find_hint(line, hash) {
                    walk.depths |= hint_depths(line, index) & up_to(key.prefixes.len());
                } else if overflow(line) != 0 {
                    walk.line = self.shape.next_hint(walk.line);
                    return Poll::Pending;
                }
                self.next_depth(key, walk);
            }
            Phase::Bucket => self.ask_bucket(key, walk),
            Phase::Name => {
                let end = key.prefixes[walk.depth as usize - 1].end as usize;
                let bytes = key.bytes.get(..end).unwrap_or_default();
                let words = self.lines[walk.line as usize..].as_flattened();
                let skip = walk.entry as usize >> 4;
                if words
                    .get(skip..skip + end.div_ceil(8))
                    .is_some_and(|words| is_name(words, bytes))
                {
                    return Poll::Ready(walk.next_hop);
                }
                walk.entry &= 0xf;
                self.ask_bucket(key, walk); // its line was just here
            }
            Phase::End => {}
        }
        match walk.phase {
            Phase::End => Poll::Ready(self.default),
            _ => Poll::Pending,
        }
    }

    /// Looks for an entry that may be the one, from `walk.entry` of the bucket on.
    #[inline(always)]
    fn ask_bucket(&self, key: &NameKey<'_>, walk: &mut Walk) {
        let line = &self.lines[walk.bucket as usize];
        let prefix = &key.prefixes[walk.depth as usize - 1];
        for index in walk.entry as usize..ENTRIES {
            if tag(line, index) != prefix.hash as u32 {
                continue;
            }
            let found = entry(line, index);
            if found.next_hop == 0
                || u32::from(found.len) != prefix.end
                || found.depth != walk.depth
            {
                continue;
            }
            let units = u32::from(found.len).div_ceil(UNIT_BYTES as u32);
            let line = self.shape.name_line() + found.name / LINE_UNITS;
            let within = found.name % LINE_UNITS;
            walk.line = line;
            walk.count =
                ((within + units).div_ceil(LINE_UNITS) as usize).clamp(1, NAME_LINES) as u16;
            // Where to go on, and which word of the line the name begins at.
            walk.entry = (index as u8 + 1) | (within as u8 * 2) << 4;
            walk.next_hop = found.next_hop;
            walk.phase = Phase::Name;
            return;
        }
        if overflow(line) == 0 {
            return self.next_depth(key, walk);
        }
        walk.bucket = self.shape.next_bucket(walk.bucket);
        walk.entry = 0;
        (walk.phase, walk.line, walk.count) = (Phase::Bucket, walk.bucket, 1);
    }

    /// The lookup as it is written: one expensive access in a loop.
    #[allow(clippy::manual_async_fn)] // an `async fn` over references is slower here (crate `interleave`)
    #[inline(always)]
    pub(super) fn find<'k, M: Memory>(
        &'k self,
        memory: M,
        key: &'k NameKey<'k>,
    ) -> impl Future<Output = NextHopId> + use<'a, 'k, M> {
        async move {
            let mut walk = self.begin(key);
            loop {
                memory.touch(self.place(&walk)).await;
                if let Poll::Ready(next_hop) = self.step(key, &mut walk) {
                    return next_hop;
                }
            }
        }
    }

    /// One lookup after the other: the plain version.
    pub fn lookup_direct<'k>(&self, keys: &'k [NameKey<'k>], out: &mut [NextHopId]) {
        map_direct(keys, out, |memory, key| self.find(memory, key));
    }

    /// `B` lookups in turns.
    pub fn lookup_switched<'k, const B: usize>(
        &self,
        keys: &'k [NameKey<'k>],
        out: &mut [NextHopId],
    ) {
        map_switched::<B, _, _, _, _>(keys, out, |memory, key| self.find(memory, key));
    }

    /// `B` lookups in turns, as a machine.
    pub fn lookup_machine<'k, const B: usize>(
        &self,
        keys: &'k [NameKey<'k>],
        out: &mut [NextHopId],
    ) {
        run_machine::<B, _>(&NameMachine(*self, core::marker::PhantomData), keys, out);
    }

    /// The machine's plain version.
    pub fn lookup_machine_direct<'k>(&self, keys: &'k [NameKey<'k>], out: &mut [NextHopId]) {
        run_machine_direct(&NameMachine(*self, core::marker::PhantomData), keys, out);
    }

    /// How many cache lines a lookup reads, those of names counted once.
    pub fn lines_read(&self, key: &NameKey<'_>) -> u32 {
        let (mut walk, mut lines) = (self.begin(key), 0);
        loop {
            lines += u32::from(walk.phase != Phase::End);
            if self.step(key, &mut walk).is_ready() {
                return lines;
            }
        }
    }
}

/// The walk as a machine.
struct NameMachine<'a, 'k>(NameFib<'a>, core::marker::PhantomData<NameKey<'k>>);

impl<'k> Machine for NameMachine<'_, 'k> {
    type Key = NameKey<'k>;
    type Value = NextHopId;
    type State = Walk;

    #[inline(always)]
    fn begin(&self, key: &NameKey<'k>) -> Walk {
        let walk = self.0.begin(key);
        interleave::prefetch(self.0.place(&walk));
        walk
    }

    #[inline(always)]
    fn step(&self, key: &NameKey<'k>, walk: &mut Walk) -> Poll<NextHopId> {
        let result = self.0.step(key, walk);
        if result.is_pending() {
            interleave::prefetch(self.0.place(walk));
        }
        result
    }
}
