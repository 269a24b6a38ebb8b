//! The defragmenter written in the most obvious way: a byte and the number of its fragment at each place, lists that are
//! searched from the start, shares that are counted anew.

use super::*;
use std::collections::{BTreeMap, BTreeSet};

struct TwinDatagram {
    key: DatagramKey,
    start_ns: u64,
    deadline_ns: u64,
    policy: Policy,
    failed: Option<Reason>,
    notes: Notes,
    has_ce: bool,
    header: Option<Vec<u8>>,
    end: Option<usize>,
    /// By offset: the byte, and the number of the fragment it came from.
    bytes: Vec<Option<(u8, usize)>>,
    numbers: usize,
    tokens: Vec<u32>,
    blocks: BTreeSet<usize>,
}

pub(super) struct Twin {
    config: Config,
    now_ns: u64,
    /// In the order in which they began.
    datagrams: Vec<TwinDatagram>,
    /// By resource and pair: amount, and since when the pair has this amount.
    shares: [BTreeMap<DatagramKey, (usize, u64)>; 3],
    changes: u64,
    events: Vec<Event>,
}

/// Where the run of bytes of one fragment that has the byte at `at` starts and ends.
fn run_at(bytes: &[Option<(u8, usize)>], at: usize) -> (usize, usize) {
    let number = |at: usize| bytes.get(at).copied().flatten().map(|(_, number)| number);
    let (mut start, mut end) = (at, at + 1);
    while start > 0 && number(start - 1) == number(at) {
        start -= 1;
    }
    while number(end) == number(at) {
        end += 1;
    }
    (start, end)
}

/// Which wins, in the words of the policies.
fn new_wins(policy: Policy, held: (usize, usize), new: (usize, usize)) -> bool {
    let held_wins = match policy {
        Policy::First | Policy::Drop => true,
        Policy::Last => false,
        Policy::Bsd => held.0 <= new.0,
        Policy::BsdRight => held.0 >= new.0 && held.1 > new.1,
        Policy::Linux => held.0 < new.0,
        Policy::Windows => !(new.0 < held.0 && new.1 > held.1),
        Policy::Solaris => !(new.0 < held.0 && new.1 >= held.1),
    };
    !held_wins
}

/// The header of the whole, with the payload behind it.
fn assemble(header: &[u8], family: u8, payload: &[u8], has_ce: bool) -> Option<Vec<u8>> {
    let mut frame = [header, payload].concat();
    let len = frame.len() - 14;
    if family == 6 {
        let len = u16::try_from(len - 40).ok()?.to_be_bytes();
        frame[18..20].copy_from_slice(&len);
        if has_ce && frame[15] >> 4 & 3 != 0 {
            frame[15] |= 0x30;
        }
    } else {
        let len = u16::try_from(len).ok()?.to_be_bytes();
        frame[16..18].copy_from_slice(&len);
        frame[20] &= 0xc0;
        frame[21] = 0;
        if has_ce && frame[15] & 3 != 0 {
            frame[15] |= 3;
        }
        frame[24..26].fill(0);
        let checksum = packet::checksum::internet_checksum(&frame[14..header.len()]);
        frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    }
    Some(frame)
}

impl Twin {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            config: *config,
            now_ns: 0,
            datagrams: Vec::new(),
            shares: Default::default(),
            changes: 0,
            events: Vec::new(),
        }
    }

    pub(super) fn events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    pub(super) fn next_timeout_ns(&self) -> Option<u64> {
        self.datagrams.iter().map(|datagram| datagram.deadline_ns).min()
    }

    pub(super) fn sizes(&self) -> (usize, usize, usize) {
        let held = self.datagrams.iter().map(|datagram| datagram.tokens.len()).sum();
        let blocks: usize = self.datagrams.iter().map(|datagram| datagram.blocks.len()).sum();
        (self.datagrams.len(), held, blocks * BLOCK)
    }

    fn share(&mut self, resource: usize, pair: DatagramKey, change: isize) {
        if change == 0 {
            return;
        }
        self.changes += 1;
        let amount = self.shares[resource].get(&pair).map_or(0, |share| share.0);
        let amount = amount.checked_add_signed(change).unwrap();
        self.shares[resource].insert(pair, (amount, self.changes));
        if amount == 0 {
            self.shares[resource].remove(&pair);
        }
    }

    pub(super) fn expire(&mut self, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns);
        while let Some(next_ns) = self.next_timeout_ns().filter(|next_ns| *next_ns <= self.now_ns) {
            let due = |family| {
                move |datagram: &TwinDatagram| {
                    datagram.deadline_ns == next_ns && datagram.key.family == family
                }
            };
            let at = self.datagrams.iter().position(due(4));
            let at = at.or_else(|| self.datagrams.iter().position(due(6))).unwrap();
            self.fail(at, Reason::Timeout, None);
        }
    }

    fn alone(&mut self, key: DatagramKey, reason: Reason, token: u32) {
        let (result, notes) = (Err(reason), Notes::default());
        let (tokens, start_ns) = (vec![token], self.now_ns);
        self.events.push(Event { key, result, tokens, notes, has_first: false, start_ns });
    }

    /// Empties a datagram, gives its tokens.
    fn empty(&mut self, at: usize) -> Vec<u32> {
        let datagram = &mut self.datagrams[at];
        let pair = datagram.key.pair();
        let tokens = std::mem::take(&mut datagram.tokens);
        let blocks = std::mem::take(&mut datagram.blocks).len();
        self.share(FRAGMENTS, pair, -(tokens.len() as isize));
        self.share(BLOCKS, pair, -(blocks as isize));
        tokens
    }

    fn fail(&mut self, at: usize, reason: Reason, token: Option<u32>) {
        let mut tokens = self.empty(at);
        tokens.extend(token);
        let datagram = &mut self.datagrams[at];
        datagram.failed = Some(reason);
        let event = Event {
            key: datagram.key,
            result: Err(reason),
            notes: datagram.notes,
            has_first: datagram.header.is_some(),
            start_ns: datagram.start_ns,
            tokens,
        };
        if matches!(reason, Reason::Timeout | Reason::Evicted | Reason::Shutdown) {
            self.datagrams.remove(at);
            self.share(DATAGRAMS, event.key.pair(), -1);
        }
        if !event.tokens.is_empty() {
            self.events.push(event);
        }
    }

    /// The oldest datagram of the pair with the most of a resource.
    fn victim(&self, resource: usize) -> usize {
        let shares = &self.shares[resource];
        let most = shares.values().map(|share| share.0).max().unwrap();
        let (pair, _) =
            shares.iter().filter(|(_, share)| share.0 == most).min_by_key(|(_, s)| s.1).unwrap();
        self.datagrams.iter().position(|datagram| datagram.key.pair() == *pair).unwrap()
    }

    pub(super) fn push(&mut self, fragment: &Fragment<'_>, token: u32, now_ns: u64) {
        self.expire(now_ns);
        let key = fragment.key;
        let offset = usize::from(fragment.offset);
        let (len, end) = (fragment.payload.len(), offset + fragment.payload.len());
        let is_v6 = key.family == 6;
        let header_len = fragment.header.len() - 14 - if is_v6 { 40 } else { 0 };
        let is_atomic = offset == 0 && !fragment.more;
        if len == 0 && !is_atomic {
            return self.alone(key, Reason::ZeroLength, token);
        }
        if fragment.more && len % 8 != 0 {
            return self.alone(key, Reason::Misaligned, token);
        }
        if header_len + end > 65_535 {
            return self.alone(key, Reason::TooLong, token);
        }
        let mut header = fragment.header.to_vec();
        if is_v6 {
            header[fragment.next_header_at] = fragment.next_header;
        }
        if is_atomic {
            let result = Ok(assemble(&header, key.family, fragment.payload, false).unwrap());
            let (tokens, notes, start_ns) = (vec![token], Notes::default(), self.now_ns);
            self.events.push(Event { key, result, tokens, notes, has_first: true, start_ns });
            return;
        }
        let find = |twin: &Self| twin.datagrams.iter().position(|datagram| datagram.key == key);
        if find(self).is_none() {
            while self.datagrams.len() == self.config.datagrams {
                self.fail(self.victim(DATAGRAMS), Reason::Evicted, None);
            }
            self.share(DATAGRAMS, key.pair(), 1);
            let (timeout_ns, policy) = match is_v6 {
                true => (self.config.timeout_v6_ns, self.config.policy_v6),
                false => (self.config.timeout_v4_ns, self.config.policy_v4),
            };
            self.datagrams.push(TwinDatagram {
                key,
                start_ns: self.now_ns,
                deadline_ns: self.now_ns + timeout_ns,
                policy,
                failed: None,
                notes: Notes::default(),
                has_ce: false,
                header: None,
                end: None,
                bytes: Vec::new(),
                numbers: 0,
                tokens: Vec::new(),
                blocks: BTreeSet::new(),
            });
        }
        let at = find(self).unwrap();
        if let Some(reason) = self.datagrams[at].failed {
            return self.alone(key, reason, token);
        }
        if let Err(reason) = self.examine(at, fragment) {
            return self.fail(at, reason, Some(token));
        }
        // Room.
        let first_byte = HEADER_ROOM + offset - if offset == 0 { header.len() } else { 0 };
        let blocks: BTreeSet<usize> =
            (first_byte..HEADER_ROOM + end).map(|byte| byte / BLOCK).collect();
        loop {
            let (_, held, bytes) = self.sizes();
            let at = find(self).unwrap();
            let lacking = blocks.difference(&self.datagrams[at].blocks).count();
            let resource = if held == self.config.fragments {
                FRAGMENTS
            } else if bytes / BLOCK + lacking > self.config.bytes / BLOCK {
                BLOCKS
            } else {
                break;
            };
            let victim = self.victim(resource);
            if victim == at {
                return self.fail(at, Reason::Evicted, Some(token));
            }
            self.fail(victim, Reason::Evicted, None);
        }
        let at = find(self).unwrap();
        self.share(FRAGMENTS, key.pair(), 1);
        let datagram = &mut self.datagrams[at];
        let lacking = blocks.difference(&datagram.blocks).count();
        datagram.tokens.push(token);
        datagram.blocks.extend(&blocks);
        datagram.numbers += 1;
        datagram.has_ce |= fragment.has_ce;
        if offset == 0 && datagram.header.is_none() {
            datagram.header = Some(header);
        }
        if !fragment.more {
            datagram.end = Some(end);
        }
        if datagram.bytes.len() < end {
            datagram.bytes.resize(end, None);
        }
        let before = datagram.bytes.clone();
        for (byte, at) in fragment.payload.iter().zip(offset..) {
            let takes = match before[at] {
                None => true,
                Some(_) => new_wins(datagram.policy, run_at(&before, at), (offset, end)),
            };
            if takes {
                datagram.bytes[at] = Some((*byte, datagram.numbers));
            }
        }
        let payload: Option<Vec<u8>> =
            datagram.bytes.iter().map(|byte| byte.map(|(byte, _)| byte)).collect();
        let payload = payload.filter(|payload| Some(payload.len()) == datagram.end);
        self.share(BLOCKS, key.pair(), lacking as isize);
        let Some(payload) = payload else { return };
        let datagram = &self.datagrams[at];
        let header = datagram.header.as_ref().unwrap();
        match assemble(header, key.family, &payload, datagram.has_ce) {
            None => self.fail(at, Reason::TooLong, None),
            Some(frame) => {
                let tokens = self.empty(at);
                let TwinDatagram { notes, start_ns, .. } = self.datagrams.remove(at);
                self.share(DATAGRAMS, key.pair(), -1);
                let result = Ok(frame);
                self.events.push(Event { key, result, tokens, notes, has_first: true, start_ns });
            }
        }
    }

    fn examine(&mut self, at: usize, fragment: &Fragment<'_>) -> Result<(), Reason> {
        let datagram = &mut self.datagrams[at];
        let offset = usize::from(fragment.offset);
        let end = offset + fragment.payload.len();
        if datagram.tokens.len() == self.config.fragments_per_datagram {
            return Err(Reason::TooMany);
        }
        match datagram.end {
            Some(last) if !fragment.more && end != last => return Err(Reason::TwoEnds),
            Some(last) if end > last => return Err(Reason::BeyondEnd),
            None if !fragment.more && datagram.bytes.len() > end => return Err(Reason::BeyondEnd),
            _ => {}
        }
        let held = |at: usize| datagram.bytes.get(at).copied().flatten();
        let is_overlap = (offset..end).any(|at| held(at).is_some());
        let is_conflict = (offset..end)
            .zip(fragment.payload)
            .any(|(at, byte)| held(at).is_some_and(|(held, _)| held != *byte));
        let is_duplicate = held(offset).is_some()
            && run_at(&datagram.bytes, offset) == (offset, end)
            && !is_conflict;
        let is_tiny = match (fragment.key.family, offset) {
            (6, 0) => fragment.next_header == 17 && fragment.payload.len() < 8,
            (4, 0) => fragment.key.protocol == 6 && fragment.payload.len() < 16,
            (4, 8) => fragment.key.protocol == 6,
            _ => false,
        };
        datagram.notes.duplicates += u32::from(is_duplicate);
        datagram.notes.overlaps += u32::from(is_overlap && !is_duplicate);
        datagram.notes.conflicts += u32::from(is_conflict);
        datagram.notes.tiny_first |= is_tiny;
        if is_tiny && self.config.tiny_first == TinyFirst::Drop {
            return Err(Reason::TinyFirst);
        }
        if is_overlap && !is_duplicate && datagram.policy == Policy::Drop {
            return Err(Reason::Overlap);
        }
        Ok(())
    }
}
