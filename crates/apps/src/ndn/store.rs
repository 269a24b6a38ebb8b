//! The content store: Data that has passed, for those who ask for it later.
//!
//! Data that somebody waited for is kept, whole, under its name; an Interest that it answers need not go on. What was
//! used least recently goes first when room is needed. Data is *fresh* for its FreshnessPeriod after it came; stale
//! Data still answers whoever does not ask for fresh Data. Of several packets with one name the last one is kept.
//!
//! ```text
//! name hash ─▶ bucket ─▶ entry ─▶ entry …       recently used ◀─▶ … ◀─▶ first to go
//!                          │ packet: block ─▶ block …
//!        tree by name ─────┘ each subtree knows the latest end of freshness in it
//! ```
//!
//! An Interest for exactly a name takes the hash. With CanBePrefix the answer is the first name, in canonical order,
//! that begins with the Interest's and is fresh enough: the concatenated encodings of components compare as their names
//! do (a type or length that is larger has an encoding that is larger), so all names with one prefix are neighbours in a
//! tree by bytes. The tree is a treap; the latest end of freshness of each subtree leads to the first fresh packet
//! without a look at the stale ones before it, however many there are.
//!
//! An Interest whose last component is an implicit digest is answered by the packet of the name before it whose SHA-256
//! that is.
//!
//! The room is bounded by packets and by bytes, in blocks of 256. Its memory is reserved at the start, and touched as
//! it is first used.
//!
//! Threads: one store a worker, beside its table of pending Interests: names reach both by their first components.

use std::cmp::Ordering;

use lookup::names::{NameHash, NameHasher};
use packet::ndn::{Data, Name, component_type, digest};

use super::pit::PitKey;

/// Nobody: the end of a list, no child.
const NONE: u32 = u32::MAX;

/// Bytes of a packet in one block.
const BLOCK: usize = 256;

/// How much a store may keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StoreLimits {
    /// Packets; 0: it keeps nothing.
    pub packets: u32,
    /// Bytes of them, each packet rounded up to a multiple of 256.
    pub bytes: u64,
}

/// What a store did since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Interests that it answered.
    pub hits: u64,
    /// Interests that it could not answer.
    pub misses: u64,
    /// Packets that were kept, new ones of a known name among them.
    pub inserted: u64,
    /// Packets that went to make room.
    pub evicted: u64,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    hash: u64,
    /// Not fresh from this time on.
    fresh_until_ns: u64,
    /// The latest of these in its subtree.
    fresh_max_ns: u64,
    next: u32, // of the bucket, or of the free entries
    block: u32,
    left: u32,
    right: u32,
    priority: u32,
    newer: u32,
    older: u32,
    len: u16,
    /// Where the components of its name are in the packet.
    name_at: u16,
    name_len: u16,
}

/// The store.
#[derive(Debug)]
pub struct ContentStore {
    hasher: NameHasher,
    limits: StoreLimits,
    buckets: Vec<u32>, // a power of two of them; none for a store without room
    entries: Vec<Entry>,
    free_entry: u32,
    count: usize,
    bytes: Vec<u8>,  // blocks
    after: Vec<u32>, // by block: the one behind it
    free_block: u32,
    /// Blocks from here on have never been used.
    untouched: u32,
    free_blocks: u32,
    newest: u32,
    oldest: u32,
    root: u32,
    stats: StoreStats,
}

impl ContentStore {
    /// An empty store.
    pub fn new(hasher: NameHasher, limits: StoreLimits) -> Self {
        let packets = limits.packets.min(1 << 30);
        let blocks = (limits.bytes / BLOCK as u64).min(1 << 30) as u32;
        let is_on = packets > 0 && blocks > 0;
        let (packets, blocks) = if is_on { (packets, blocks) } else { (0, 0) };
        let buckets = if is_on { packets.next_power_of_two() as usize } else { 0 };
        Self {
            hasher,
            limits: StoreLimits { packets, bytes: u64::from(blocks) * BLOCK as u64 },
            buckets: vec![NONE; buckets],
            entries: Vec::with_capacity(packets as usize),
            free_entry: NONE,
            count: 0,
            bytes: vec![0; blocks as usize * BLOCK],
            after: vec![0; blocks as usize],
            free_block: NONE,
            untouched: 0,
            free_blocks: blocks,
            newest: NONE,
            oldest: NONE,
            root: NONE,
            stats: StoreStats::default(),
        }
    }

    /// Whether it keeps anything.
    pub fn is_on(&self) -> bool {
        !self.buckets.is_empty()
    }

    /// Packets that it has.
    pub fn len(&self) -> usize {
        self.count
    }

    /// It has none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes of its packets, each rounded up to a multiple of 256.
    pub fn len_bytes(&self) -> u64 {
        self.limits.bytes - u64::from(self.free_blocks) * BLOCK as u64
    }

    /// What it did.
    pub fn stats(&self) -> StoreStats {
        self.stats
    }

    /// Keeps a packet that came at `now_ns`, in place of another one of its name; what was used least recently goes for it.
    pub fn insert(&mut self, data: &Data<'_>, now_ns: u64) {
        let (packet, name) = (data.bytes(), data.name());
        let blocks = packet.len().div_ceil(BLOCK) as u32;
        let fits = self.is_on()
            && u64::from(blocks) * BLOCK as u64 <= self.limits.bytes
            && packet.len() <= usize::from(u16::MAX)
            && !name.is_empty();
        if !fits {
            return;
        }
        let hash = self.hash(&name);
        if let Some(id) = self.find(hash, name.value()) {
            self.remove(id);
        }
        while self.count == self.limits.packets as usize || self.free_blocks < blocks {
            self.remove(self.oldest);
            self.stats.evicted += 1;
        }
        let freshness_ns = data.freshness_ms().saturating_mul(1_000_000);
        let fresh_until_ns = now_ns.saturating_add(freshness_ns);
        let bucket = self.bucket(hash);
        let name_at = name.value().as_ptr().addr() - packet.as_ptr().addr();
        let entry = Entry {
            hash,
            fresh_until_ns,
            fresh_max_ns: fresh_until_ns,
            next: self.buckets[bucket],
            block: self.put(packet),
            left: NONE,
            right: NONE,
            // The tree's form is nobody's choice: the hash is drawn at random.
            priority: (hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32,
            newer: NONE,
            older: self.newest,
            len: packet.len() as u16,
            name_at: name_at as u16,
            name_len: name.value().len() as u16,
        };
        let id = self.take_entry(entry);
        self.buckets[bucket] = id;
        self.link_newest(id);
        let (left, right) = self.split(self.root, name.value());
        let left = self.merge(left, id);
        self.root = self.merge(left, right);
        self.count += 1;
        self.stats.inserted += 1;
    }

    /// The packet that answers an Interest at `now_ns`, copied to `out`; `false` if there is none.
    pub fn lookup(&mut self, key: &PitKey<'_>, now_ns: u64, out: &mut Vec<u8>) -> bool {
        if !self.is_on() {
            return false;
        }
        let Some(id) = self.answer(key, now_ns, out) else {
            self.stats.misses += 1;
            return false;
        };
        self.unlink(id);
        self.link_newest(id);
        self.copy(id, out);
        self.stats.hits += 1;
        true
    }

    /// The entry that answers; `scratch` has no meaning before and after.
    fn answer(&self, key: &PitKey<'_>, now_ns: u64, scratch: &mut Vec<u8>) -> Option<u32> {
        let after_ns = if key.must_be_fresh { now_ns } else { 0 };
        let is_fresh =
            |id: &u32| !key.must_be_fresh || self.entries[*id as usize].fresh_until_ns > after_ns;
        let last = key.name.components().last()?;
        if last.kind == component_type::IMPLICIT_DIGEST {
            let before = key.name.value();
            let before = &before[..before.len() - last.encoded.len()];
            let before = Name::new_checked(before).ok()?;
            let id = self.find(self.hash(&before), before.value()).filter(is_fresh)?;
            self.copy(id, scratch);
            return (digest(scratch) == *last.value).then_some(id);
        }
        if key.can_be_prefix {
            let after_ns = key.must_be_fresh.then_some(now_ns);
            return self.first_below(self.root, key.name.value(), after_ns);
        }
        self.find(self.hash(&key.name), key.name.value()).filter(is_fresh)
    }

    /// The first entry of a subtree whose name begins with `prefix` and that is fresh after a time.
    fn first_below(&self, at: u32, prefix: &[u8], after_ns: Option<u64>) -> Option<u32> {
        let entry = self.entries.get(at as usize)?;
        if after_ns.is_some_and(|after_ns| entry.fresh_max_ns <= after_ns) {
            return None;
        }
        let len = prefix.len().min(usize::from(entry.name_len));
        match self.compare(entry, len, prefix) {
            Ordering::Less => self.first_below(entry.right, prefix, after_ns),
            Ordering::Greater => self.first_below(entry.left, prefix, after_ns),
            Ordering::Equal => self.first_below(entry.left, prefix, after_ns).or_else(|| {
                let is_fresh = after_ns.is_none_or(|after_ns| entry.fresh_until_ns > after_ns);
                match is_fresh {
                    true => Some(at),
                    false => self.first_below(entry.right, prefix, after_ns),
                }
            }),
        }
    }

    fn hash(&self, name: &Name<'_>) -> u64 {
        let absorb = |hash, component| self.hasher.absorb(hash, component);
        self.hasher.finish(name.encodings().fold(NameHash::new(), absorb))
    }

    fn bucket(&self, hash: u64) -> usize {
        hash as usize & (self.buckets.len() - 1)
    }

    fn find(&self, hash: u64, name: &[u8]) -> Option<u32> {
        let mut at = self.buckets[self.bucket(hash)];
        while let Some(entry) = self.entries.get(at as usize) {
            let is_it = entry.hash == hash
                && usize::from(entry.name_len) == name.len()
                && self.compare(entry, name.len(), name).is_eq();
            if is_it {
                return Some(at);
            }
            at = entry.next;
        }
        None
    }

    /// The first `len` bytes of an entry's name against `other`.
    fn compare(&self, entry: &Entry, len: usize, other: &[u8]) -> Ordering {
        let (mut block, mut at) = (entry.block, usize::from(entry.name_at));
        while at >= BLOCK {
            (block, at) = (self.after[block as usize], at - BLOCK);
        }
        let (mut rest, mut left) = (other, len);
        while left > 0 {
            let piece = left.min(BLOCK - at);
            let own = &self.bytes[block as usize * BLOCK + at..][..piece];
            let (theirs, behind) = rest.split_at(piece.min(rest.len()));
            match own.cmp(theirs) {
                Ordering::Equal => (rest, left) = (behind, left - piece),
                unequal => return unequal,
            }
            (block, at) = (self.after[block as usize], 0);
        }
        0.cmp(&rest.len())
    }

    /// Puts a packet into blocks, of which there are enough; the first.
    fn put(&mut self, packet: &[u8]) -> u32 {
        let (mut first, mut last) = (NONE, NONE);
        for piece in packet.chunks(BLOCK) {
            let block = match self.free_block {
                NONE => {
                    self.untouched += 1;
                    self.untouched - 1
                }
                free => {
                    self.free_block = self.after[free as usize];
                    free
                }
            };
            self.free_blocks -= 1;
            self.bytes[block as usize * BLOCK..][..piece.len()].copy_from_slice(piece);
            self.after[block as usize] = NONE;
            match last {
                NONE => first = block,
                last => self.after[last as usize] = block,
            }
            last = block;
        }
        first
    }

    fn copy(&self, id: u32, out: &mut Vec<u8>) {
        out.clear();
        let entry = &self.entries[id as usize];
        let (mut block, mut rest) = (entry.block, usize::from(entry.len));
        while rest > 0 {
            let piece = rest.min(BLOCK);
            out.extend_from_slice(&self.bytes[block as usize * BLOCK..][..piece]);
            (block, rest) = (self.after[block as usize], rest - piece);
        }
    }

    fn take_entry(&mut self, entry: Entry) -> u32 {
        match self.free_entry {
            NONE => {
                self.entries.push(entry); // within its capacity
                self.entries.len() as u32 - 1
            }
            free => {
                self.free_entry = self.entries[free as usize].next;
                self.entries[free as usize] = entry;
                free
            }
        }
    }

    fn remove(&mut self, id: u32) {
        let entry = self.entries[id as usize];
        self.unlink(id);
        let bucket = self.bucket(entry.hash);
        let mut at = self.buckets[bucket];
        if at == id {
            self.buckets[bucket] = entry.next;
        } else {
            while self.entries[at as usize].next != id {
                at = self.entries[at as usize].next;
            }
            self.entries[at as usize].next = entry.next;
        }
        self.root = self.without(self.root, id);
        let mut block = entry.block;
        while block != NONE {
            let after = std::mem::replace(&mut self.after[block as usize], self.free_block);
            (self.free_block, block) = (block, after);
            self.free_blocks += 1;
        }
        self.entries[id as usize].next = self.free_entry;
        self.free_entry = id;
        self.count -= 1;
    }

    // --- the order of use

    fn link_newest(&mut self, id: u32) {
        let before = std::mem::replace(&mut self.newest, id);
        let entry = &mut self.entries[id as usize];
        (entry.newer, entry.older) = (NONE, before);
        match self.entries.get_mut(before as usize) {
            Some(before) => before.newer = id,
            None => self.oldest = id,
        }
    }

    fn unlink(&mut self, id: u32) {
        let Entry { newer, older, .. } = self.entries[id as usize];
        match self.entries.get_mut(newer as usize) {
            Some(entry) => entry.older = older,
            None => self.newest = older,
        }
        match self.entries.get_mut(older as usize) {
            Some(entry) => entry.newer = newer,
            None => self.oldest = newer,
        }
    }

    // --- the tree

    /// A whole name against that of an entry.
    fn order(&self, entry: &Entry, name: &[u8]) -> Ordering {
        let len = usize::from(entry.name_len);
        match self.compare(entry, len.min(name.len()), &name[..len.min(name.len())]) {
            Ordering::Equal => len.cmp(&name.len()),
            unequal => unequal,
        }
    }

    fn refresh(&mut self, at: u32) {
        let entry = self.entries[at as usize];
        let below = |child: u32| self.entries.get(child as usize).map_or(0, |e| e.fresh_max_ns);
        let latest = entry.fresh_until_ns.max(below(entry.left)).max(below(entry.right));
        self.entries[at as usize].fresh_max_ns = latest;
    }

    /// The entries of a subtree whose names are before `name`, and the others.
    fn split(&mut self, at: u32, name: &[u8]) -> (u32, u32) {
        let Some(entry) = self.entries.get(at as usize).copied() else { return (NONE, NONE) };
        if self.order(&entry, name).is_lt() {
            let (left, right) = self.split(entry.right, name);
            self.entries[at as usize].right = left;
            self.refresh(at);
            (at, right)
        } else {
            let (left, right) = self.split(entry.left, name);
            self.entries[at as usize].left = right;
            self.refresh(at);
            (left, at)
        }
    }

    /// One tree of two, the names of the first before those of the second.
    fn merge(&mut self, left: u32, right: u32) -> u32 {
        if left == NONE || right == NONE {
            return if left == NONE { right } else { left };
        }
        let (l, r) = (self.entries[left as usize], self.entries[right as usize]);
        if l.priority >= r.priority {
            let below = self.merge(l.right, right);
            self.entries[left as usize].right = below;
            self.refresh(left);
            left
        } else {
            let below = self.merge(left, r.left);
            self.entries[right as usize].left = below;
            self.refresh(right);
            right
        }
    }

    /// A subtree without an entry that is in it.
    fn without(&mut self, at: u32, id: u32) -> u32 {
        let entry = self.entries[at as usize];
        if at == id {
            return self.merge(entry.left, entry.right);
        }
        if self.is_before(id, at) {
            let left = self.without(entry.left, id);
            self.entries[at as usize].left = left;
        } else {
            let right = self.without(entry.right, id);
            self.entries[at as usize].right = right;
        }
        self.refresh(at);
        at
    }

    /// Whether one entry's name is before the other's.
    fn is_before(&self, a: u32, b: u32) -> bool {
        let (a, b) = (&self.entries[a as usize], &self.entries[b as usize]);
        let (mut rest, mut at) = (usize::from(a.name_len), usize::from(a.name_at));
        let (mut block_a, mut done) = (a.block, 0);
        while at >= BLOCK {
            (block_a, at) = (self.after[block_a as usize], at - BLOCK);
        }
        while rest > 0 {
            let piece = rest.min(BLOCK - at);
            let own = &self.bytes[block_a as usize * BLOCK + at..][..piece];
            match self.compare_at(b, done, own) {
                Ordering::Equal => {}
                unequal => return unequal.is_gt(),
            }
            (block_a, at, rest, done) =
                (self.after[block_a as usize], 0, rest - piece, done + piece);
        }
        a.name_len < b.name_len
    }

    /// The bytes of an entry's name from `from` on, at most as many as `other` has, against `other`.
    fn compare_at(&self, entry: &Entry, from: usize, other: &[u8]) -> Ordering {
        let rest = usize::from(entry.name_len).saturating_sub(from);
        let moved = Entry { name_at: entry.name_at + from as u16, ..*entry };
        self.compare(&moved, rest.min(other.len()), other)
    }
}
