//! What plain packets of sessions between IPv6 and IPv4 become, in one cache line: both headers, and what the checksum of
//! the upper layer grows by.
//!
//! ```text
//!  0                              32            40       44       48   49   50    56      60     64
//!  │ IPv6 source and destination  │ IPv4 ends   │ ports6 │ ports4 │ of │ by │ sum │ acked │ seen │    one entry a line
//! ```
//!
//! `of` is the protocol, `by` the family that comes: the entry of a packet from IPv6 is found by its IPv6 ends, that of a packet
//! from IPv4 by the others. A packet becomes what the entry says in a few words: its new header has fields of the old one
//! and these ends (RFC 7915 §4.1 and §5.1), and the checksum of the upper layer, which both pseudo headers and the ports are
//! in, grows by `sum` (RFC 1624): nothing of the packet is summed.
//!
//! As [`cache`](crate::cache), it only ever says what the table says. An entry is in one of two lines next to each other.

use interleave::prefetch;
use packet::checksum::finish;
use stream::table::TableError;

use crate::cache::{Plain, Stamp, TCP, UDP, be64};
use crate::nat64::{GROWTH, V4_LEN, V6_LEN, WHOLE_MAX, may_fragment_v4};
use crate::segment::Tcp;
use crate::tuple::Tuple;

/// Lines for each session: its two entries, in as many pairs of lines.
const LINES_PER_SESSION: usize = 4;

/// The ends of a plain IPv6 packet in its direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Plain6 {
    addresses: [u64; 4],
    ports: u32,
    protocol: u8,
}

impl Plain6 {
    /// The ends of a plain packet, and what is known of its TCP segment: IPv6 without extension headers, TCP or UDP whose fixed header is
    /// there, and which is short enough to leave in one piece whatever its link. `ip` begins with the IP header, whose length
    /// was found right. `None` for anything else.
    #[inline(always)]
    pub fn of(ip: &[u8]) -> Option<(Plain6, Tcp)> {
        let head = ip.first_chunk::<48>()?;
        let (len, protocol) = (usize::from(u16::from_be_bytes([head[4], head[5]])), head[6]);
        let is_tcp = protocol == TCP;
        let is_odd = (head[0] >> 4 != 6)
            | (!is_tcp & (protocol != UDP))
            | (len < if is_tcp { 20 } else { 8 })
            | !may_fragment_v4(len);
        if is_odd {
            return None;
        }
        let tcp = if is_tcp { Tcp::of(&ip.first_chunk::<60>()?[40..]) } else { Tcp::default() };
        let ports = u32::from_be_bytes([head[40], head[41], head[42], head[43]]);
        Some((
            Plain6 {
                addresses: [be64(head, 8), be64(head, 16), be64(head, 24), be64(head, 32)],
                ports,
                protocol,
            },
            tcp,
        ))
    }

    /// The same of a tuple; `None` for one that no plain packet has.
    pub fn of_tuple(tuple: &Tuple) -> Option<Plain6> {
        let is_plain = tuple.family == 6 && matches!(tuple.protocol, TCP | UDP);
        let [src, dst] = [tuple.src, tuple.dst];
        is_plain.then(|| Plain6 {
            addresses: [src.0[0], src.0[1], dst.0[0], dst.0[1]],
            ports: u32::from(src.1) << 16 | u32::from(dst.1),
            protocol: tuple.protocol,
        })
    }

    /// As a tuple.
    pub fn tuple(&self) -> Tuple {
        let ([a, b, c, d], [src, dst]) =
            (self.addresses, [(self.ports >> 16) as u16, self.ports as u16]);
        let (src, dst) = (([a, b], src), ([c, d], dst));
        Tuple { src, dst, protocol: self.protocol, family: 6, ..Tuple::default() }
    }
}

/// A plain packet of either family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Either {
    /// Of IPv4.
    V4(Plain),
    /// Of IPv6.
    V6(Plain6),
}

impl Either {
    /// Of a tuple; `None` for one that no plain packet has.
    pub fn of_tuple(tuple: &Tuple) -> Option<Either> {
        match tuple.family {
            4 => Plain::of_tuple(tuple).map(Either::V4),
            _ => Plain6::of_tuple(tuple).map(Either::V6),
        }
    }

    /// As a tuple.
    pub fn tuple(&self) -> Tuple {
        match self {
            Either::V4(plain) => plain.tuple(),
            Either::V6(plain) => plain.tuple(),
        }
    }
}

/// What a packet becomes in the other family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct Turn {
    v6: [u64; 4],
    v4: u64,
    ports6: u32,
    ports4: u32,
    protocol: u8,
    /// The family that comes; 0: no entry.
    by: u8,
    sum: u16,
    last: Stamp,
}

const _: () = assert!(size_of::<Turn>() == 64);

/// One's complement sum of the 16-bit words of a number, at most 2^18.
#[inline(always)]
fn words(of: u64) -> u32 {
    let halves = (of & 0x0000_ffff_0000_ffff) + (of >> 16 & 0x0000_ffff_0000_ffff);
    (halves as u32) + (halves >> 32) as u32
}

impl Turn {
    /// Of a packet with the ends `from`, which becomes one of the other family with the ends `to`; `None` if none of both is
    /// plain.
    pub fn new(from: &Tuple, to: &Tuple) -> Option<Turn> {
        let (six, four) = if from.family == 6 { (from, to) } else { (to, from) };
        let (v6, v4) = (Plain6::of_tuple(six)?, Plain::of_tuple(four)?);
        let [old, new] = [from, to].map(|own| {
            let ends = [own.src.0[0], own.src.0[1], own.dst.0[0], own.dst.0[1]];
            let addresses: u32 = ends.into_iter().map(words).sum();
            addresses + u32::from(own.src.1) + u32::from(own.dst.1)
        });
        // Folded, neither is 0, nor is the sum of the difference: a checksum has no two ways to say the same.
        let (old, new) = (!finish(old), !finish(new));
        let sum = !finish(u32::from(!old) + u32::from(new));
        let (v4, ports4) = v4.parts();
        let (v6, ports6, protocol, by) = (v6.addresses, v6.ports, from.protocol, from.family);
        Some(Turn { v6, v4, ports6, ports4, protocol, by, sum, last: Stamp::default() })
    }

    #[inline(always)]
    fn is_of4(&self, plain: Plain) -> bool {
        let is_odd = (self.by ^ 4) | (self.protocol ^ plain.protocol());
        let (v4, ports4) = plain.parts();
        (self.v4 ^ v4) | u64::from(self.ports4 ^ ports4) | u64::from(is_odd) == 0
    }

    #[inline(always)]
    fn is_of6(&self, plain: &Plain6) -> bool {
        let ([a, b, c, d], [p, q, r, s]) = (self.v6, plain.addresses);
        let is_odd = (self.by ^ 6) | (self.protocol ^ plain.protocol);
        let ends = (a ^ p) | (b ^ q) | (c ^ r) | (d ^ s) | u64::from(self.ports6 ^ plain.ports);
        ends | u64::from(is_odd) == 0
    }

    fn is_of(&self, plain: &Either) -> bool {
        match plain {
            Either::V4(plain) => self.is_of4(*plain),
            Either::V6(plain) => self.is_of6(plain),
        }
    }

    fn key(&self) -> Either {
        match self.by {
            4 => Either::V4(Plain::from_parts(self.v4, self.ports4, self.protocol)),
            _ => Either::V6(self.six()),
        }
    }

    /// Whether it is of packets that become IPv4.
    #[inline(always)]
    pub fn is_to_v4(&self) -> bool {
        self.by == 6
    }

    /// Whether it says all about a plain packet of it: not about UDP without a checksum, which is left as it is or computed, and
    /// not about an IPv4 packet that gets a fragment header.
    #[inline(always)]
    pub fn is_simple(&self, ip: &[u8]) -> bool {
        let l4 = if self.by == 6 { V6_LEN } else { V4_LEN };
        let is_long = |ip: &[u8]| match ip.first_chunk::<8>() {
            Some(head) => {
                let total = usize::from(u16::from_be_bytes([head[2], head[3]]));
                head[6] & 0x40 == 0 && total + GROWTH > WHOLE_MAX
            }
            None => true,
        };
        let is_bare =
            self.protocol == UDP && ip.get(l4 + 6..l4 + 8).is_none_or(|sum| *sum == [0, 0]);
        !is_bare && (self.by == 6 || !is_long(ip))
    }

    /// The ends that the packet gets.
    pub fn to(&self) -> Tuple {
        match self.by {
            6 => Plain::from_parts(self.v4, self.ports4, self.protocol).tuple(),
            _ => self.six().tuple(),
        }
    }

    fn six(&self) -> Plain6 {
        Plain6 { addresses: self.v6, ports: self.ports6, protocol: self.protocol }
    }

    /// IPv4 source and destination, host order.
    pub fn ends4(&self) -> (u32, u32) {
        ((self.v4 >> 32) as u32, self.v4 as u32)
    }

    /// IPv6 source and destination.
    pub fn ends6(&self) -> ([u64; 2], [u64; 2]) {
        let [a, b, c, d] = self.v6;
        ([a, b], [c, d])
    }

    /// The checksum of the upper layer after the change; `None` where it cannot be told so: UDP without one.
    #[inline(always)]
    fn checksum(&self, old: u16) -> Option<u16> {
        let new = finish(u32::from(!old) + u32::from(self.sum));
        match (self.protocol == UDP, old, new) {
            (true, 0, _) => None,
            (true, _, 0) => Some(0xffff),
            _ => Some(new),
        }
    }

    /// Writes ports and checksum of the upper layer, which begins with byte `l4`; whether that could be.
    #[inline(always)]
    fn upper_layer(&self, ip: &mut [u8], l4: usize, ports: u32) -> bool {
        let at = l4 + if self.protocol == TCP { 16 } else { 6 };
        let Some(field) = ip.get_mut(at..at + 2) else { return false };
        let Some(new) = self.checksum(u16::from_be_bytes([field[0], field[1]])) else {
            return false;
        };
        field.copy_from_slice(&new.to_be_bytes());
        let Some(place) = ip.get_mut(l4..l4 + 4) else { return false };
        place.copy_from_slice(&ports.to_be_bytes());
        true
    }

    /// Turns the plain IPv6 packet `ip`: writes its upper layer, and returns the header that replaces its own. `None`, and
    /// nothing was written, where that is not so simple.
    #[inline(always)]
    pub fn to_v4(&self, ip: &mut [u8], identification: u16) -> Option<[u8; V4_LEN]> {
        let head = ip.first_chunk::<8>()?;
        let first = u64::from_be_bytes(*head);
        let (traffic_class, len) = ((first >> 52) as u8, (first >> 16) as u16);
        let (protocol, ttl) = ((first >> 8) as u8, first as u8);
        if !self.upper_layer(ip, V6_LEN, self.ports4) {
            return None;
        }
        let total = len + V4_LEN as u16;
        let words_of_old = 0x4500 | u32::from(traffic_class);
        let ttl_protocol = u32::from(ttl) << 8 | u32::from(protocol);
        let sum = words_of_old + u32::from(total) + u32::from(identification) + ttl_protocol;
        let checksum = finish(sum + words(self.v4));
        let first = u64::from(words_of_old) << 48
            | u64::from(total) << 32
            | u64::from(identification) << 16;
        let second = ttl_protocol << 16 | u32::from(checksum);
        let mut bytes = [0; V4_LEN];
        bytes[..8].copy_from_slice(&first.to_be_bytes());
        bytes[8..12].copy_from_slice(&second.to_be_bytes());
        bytes[12..].copy_from_slice(&self.v4.to_be_bytes());
        Some(bytes)
    }

    /// The same of a plain IPv4 packet.
    #[inline(always)]
    pub fn to_v6(&self, ip: &mut [u8]) -> Option<[u8; V6_LEN]> {
        let head = ip.first_chunk::<12>()?;
        let total = usize::from(u16::from_be_bytes([head[2], head[3]]));
        let (is_whole, traffic_class, ttl) = (head[6] & 0x40 != 0, head[1], head[8]);
        let len = total.checked_sub(V4_LEN)?;
        if !is_whole && V6_LEN + len > WHOLE_MAX {
            return None;
        }
        if !self.upper_layer(ip, V4_LEN, self.ports6) {
            return None;
        }
        let first = 6 << 60 | u64::from(traffic_class) << 52 | (len as u64) << 16;
        let first = first | u64::from(self.protocol) << 8 | u64::from(ttl);
        let mut bytes = [0; V6_LEN];
        bytes[..8].copy_from_slice(&first.to_be_bytes());
        let [a, b, c, d] = self.v6;
        bytes[8..16].copy_from_slice(&a.to_be_bytes());
        bytes[16..24].copy_from_slice(&b.to_be_bytes());
        bytes[24..32].copy_from_slice(&c.to_be_bytes());
        bytes[32..].copy_from_slice(&d.to_be_bytes());
        Some(bytes)
    }
}

/// The cache of a worker.
#[derive(Debug)]
pub struct Turns {
    lines: Vec<Turn>,
    keys: Keys,
}

/// How the lines of a key are found: a copy for whoever does not hold the cache.
#[derive(Clone, Copy, Debug, Default)]
pub struct Keys {
    mask: u32,
    seed: [u64; 5],
}

/// The first line of a key; the second one is next to it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pair(u32);

impl Keys {
    /// Whether there is a cache.
    #[inline(always)]
    pub fn is_on(&self) -> bool {
        self.mask != 0
    }

    /// The lines of an IPv4 packet.
    #[inline(always)]
    pub fn of4(&self, plain: Plain) -> Pair {
        let (ends, ports) = plain.parts();
        let more = u64::from(ports) << 8 | u64::from(plain.protocol());
        Pair((chunk::hash::key128([ends, more], self.seed[4]) >> 32) as u32 & self.mask)
    }

    /// The lines of an IPv6 packet: a sum of products (NH, as the table's hash), mixed.
    #[inline(always)]
    pub fn of6(&self, plain: &Plain6) -> Pair {
        let ([a, b, c, d], seed) = (plain.addresses, self.seed);
        let product = |x: u64, y: u64| u128::from(x) * u128::from(y);
        let sum = product(a.wrapping_add(seed[0]), b.wrapping_add(seed[1]))
            .wrapping_add(product(c.wrapping_add(seed[2]), d.wrapping_add(seed[3])));
        let more = u64::from(plain.ports) << 8 | u64::from(plain.protocol);
        let key = [sum as u64 ^ more, (sum >> 64) as u64];
        Pair((chunk::hash::key128(key, self.seed[4]) >> 32) as u32 & self.mask)
    }

    fn of(&self, plain: &Either) -> Pair {
        match plain {
            Either::V4(plain) => self.of4(*plain),
            Either::V6(plain) => self.of6(plain),
        }
    }
}

impl Turns {
    /// Without lines: it knows nothing, and keeps nothing.
    pub fn off() -> Self {
        Self { lines: Vec::new(), keys: Keys::default() }
    }

    const fn lines(sessions: usize) -> usize {
        (sessions * LINES_PER_SESSION).next_power_of_two()
    }

    /// Bytes of memory for so many sessions.
    pub const fn memory_bytes(sessions: usize) -> usize {
        Self::lines(sessions) * size_of::<Turn>()
    }

    /// An empty cache, for the sessions of a table. `seed`: a number that nobody outside can know.
    ///
    /// # Errors
    /// The memory cannot be allocated.
    pub fn new(sessions: usize, seed: u64) -> Result<Self, TableError> {
        let count = Self::lines(sessions);
        let mut lines = Vec::new();
        let bytes = count * size_of::<Turn>();
        lines.try_reserve_exact(count).map_err(|_| TableError::Memory { bytes })?;
        chunk::prefer_huge_pages(lines.spare_capacity_mut());
        lines.resize(count, Turn::default());
        let seed = std::array::from_fn(|at| chunk::hash::parameter(seed, 8 + at as u32));
        Ok(Self { lines, keys: Keys { mask: count as u32 - 1, seed } })
    }

    /// How lines are found.
    pub fn keys(&self) -> Keys {
        self.keys
    }

    #[inline(always)]
    fn line(&self, at: u32) -> Option<&Turn> {
        self.lines.get(at as usize)
    }

    /// Starts loading the lines of a key.
    #[inline(always)]
    pub fn prefetch(&self, pair: Pair) {
        if let (Some(line), Some(next)) = (self.line(pair.0), self.line(pair.0 ^ 1)) {
            prefetch(line);
            prefetch(next);
        }
    }

    #[inline(always)]
    fn get(&mut self, pair: Pair, last: Stamp, is_it: impl Fn(&Turn) -> bool) -> Option<&Turn> {
        let is_second = u32::from(!is_it(self.line(pair.0)?));
        let line = self.lines.get_mut((pair.0 ^ is_second) as usize)?;
        if is_second == 1 && !is_it(line) {
            return None;
        }
        line.last.renew(last);
        Some(line)
    }

    /// What an IPv4 packet becomes, if that is known; it came at `last`.
    #[inline(always)]
    pub fn get4(&mut self, pair: Pair, plain: Plain, last: Stamp) -> Option<&Turn> {
        self.get(pair, last, |line| line.is_of4(plain))
    }

    /// The same of an IPv6 packet.
    #[inline(always)]
    pub fn get6(&mut self, pair: Pair, plain: &Plain6, last: Stamp) -> Option<&Turn> {
        self.get(pair, last, |line| line.is_of6(plain))
    }

    /// Keeps what a packet becomes that came at `last`. Returns the packet that made room for it, and its own.
    pub fn put(&mut self, turn: &Turn, last: Stamp) -> Option<(Either, Stamp)> {
        let plain = turn.key();
        let pair = self.keys.of(&plain);
        let own = |at: u32| self.lines.get(at as usize);
        let find = |is_it: &dyn Fn(&Turn) -> bool| {
            [pair.0, pair.0 ^ 1].into_iter().find(|at| own(*at).is_some_and(is_it))
        };
        let at = find(&|line| line.is_of(&plain))
            .or_else(|| find(&|line| line.by == 0))
            .or_else(|| find(&|line| line.last.seen_s() != last.seen_s()))?;
        let line = self.lines.get_mut(at as usize)?;
        let before = (line.by != 0 && !line.is_of(&plain)).then(|| (line.key(), line.last));
        *line = Turn { last, ..*turn };
        before
    }

    fn known(&self, plain: &Either) -> Option<u32> {
        let pair = self.keys.of(plain);
        let is_own = |at: &u32| self.lines.get(*at as usize).is_some_and(|line| line.is_of(plain));
        [pair.0, pair.0 ^ 1].into_iter().find(is_own)
    }

    /// The last of a packet; `None`: it is not known.
    pub fn last(&self, plain: &Either) -> Option<Stamp> {
        Some(self.lines.get(self.known(plain)? as usize)?.last)
    }

    /// Packets like this one acknowledge that now, if they are known.
    pub(crate) fn set_acked(&mut self, plain: &Either, acked: u32) {
        if let Some(line) = self.known(plain).and_then(|at| self.lines.get_mut(at as usize)) {
            line.last.set_acked(acked);
        }
    }

    /// Forgets a packet; its last.
    pub fn remove(&mut self, plain: &Either) -> Option<Stamp> {
        let at = self.known(plain)?;
        self.lines.get_mut(at as usize).map(|line| std::mem::take(line).last)
    }
}
