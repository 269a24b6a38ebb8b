//! An exact-match cache of plain packets of sessions: what changes of them, in one cache line.
//!
//! The session of a packet is four lines of the table away: bucket, entry, the entry of the other side, time. Most packets are
//! plain and of a session whose state they do not change, so what they become is kept under their own ends, one entry for each
//! direction:
//!
//! ```text
//!  0                             16      20     24            28     32
//!  │ source, destination, ports,  │ acked │ seen │ new address │ sums │   two entries a line
//!  │ protocol; new port, which    │       │      │             │      │
//! ```
//!
//! It only ever says what the table says: an entry is put in by a packet that the table translated, and goes with its session.
//! `seen` is when an entry was last used; a sweep brings it to the table before it calls a session idle. `acked` is about what
//! the sender has acknowledged last, by which resets are [judged](crate::segment). What has no room in its
//! line is in one of three lines beside it. Where all are full, an entry that was not used in this second makes room, and its `seen`
//! goes to the table.
//!
//! One line for each packet instead of four: as the exact-match cache of Open vSwitch before its classifier (Pfaff et al.,
//! NSDI 2015, §4.2).

use interleave::prefetch;
use packet::checksum::finish;
use stream::table::TableError;

use crate::rewrite::Which;
use crate::segment::{STEP, Tcp};
use crate::tuple::Tuple;

/// Lines for each session: on average two entries in four places.
const LINES_PER_SESSION: usize = 2;

/// Lines in which a packet may be. With one, of 10,000 sessions in 16,384 places 4 % of the packets have no room.
const SET: usize = 4;

pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;

/// Of the first eight bytes of IPv4: version, length of the header, more fragments and the offset; and what they are in a plain packet.
const PLAIN_BITS: u64 = 0xff00_0000_0000_3fff;
const PLAIN: u64 = 0x45 << 56;

/// The ends of a plain packet in its direction ([`Tuple::plain`]): `[source, destination; ports, protocol]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Plain([u64; 2]);

impl Plain {
    /// The ends of a plain packet, and what is known of its TCP segment: IPv4 without options, not a fragment, TCP or UDP whose fixed header is
    /// there. `ip` begins with the IP header, whose lengths were found right. `None` for anything else.
    #[inline(always)]
    pub fn of(ip: &[u8]) -> Option<(Plain, Tcp)> {
        // A datagram of less than 12 bytes ends within the longest headers.
        let Some(head) = ip.first_chunk::<40>() else { return Self::of_short(ip) };
        let (first, addresses) = (be64(head, 0), be64(head, 12));
        if first & PLAIN_BITS != PLAIN {
            return None;
        }
        let ports = u32::from_be_bytes([head[20], head[21], head[22], head[23]]);
        let protocol = head[9];
        let (least, tcp) = match protocol {
            TCP => (40, Tcp::of(&head[20..])),
            UDP => (28, Tcp::default()),
            _ => return None,
        };
        if first >> 32 & 0xffff < least {
            return None;
        }
        Some((Plain([addresses, u64::from(ports) << 8 | u64::from(protocol)]), tcp))
    }

    /// The same of less than 40 bytes, with others behind them.
    #[cold]
    fn of_short(ip: &[u8]) -> Option<(Plain, Tcp)> {
        let mut head = [0; 40];
        head.get_mut(..ip.len())?.copy_from_slice(ip);
        let is_udp = ip.len() >= 28 && head[9] == UDP;
        is_udp.then(|| Self::of(&head)).flatten()
    }

    /// The same of a tuple; `None` for one that no plain packet has.
    pub fn of_tuple(tuple: &Tuple) -> Option<Plain> {
        let is_plain = tuple.family == 4 && matches!(tuple.protocol, 6 | 17);
        is_plain.then(|| {
            let ports = u64::from(tuple.src.1) << 16 | u64::from(tuple.dst.1);
            Plain([tuple.src.0[1] << 32 | tuple.dst.0[1], ports << 8 | u64::from(tuple.protocol)])
        })
    }

    /// Who sent it: address in host order, and port.
    #[inline(always)]
    pub fn source(self) -> (u32, u16) {
        ((self.0[0] >> 32) as u32, (self.0[1] >> 24) as u16)
    }

    /// Addresses, source above destination; ports likewise.
    #[inline(always)]
    pub(crate) fn parts(self) -> (u64, u32) {
        (self.0[0], (self.0[1] >> 8) as u32)
    }

    #[inline(always)]
    pub(crate) fn protocol(self) -> u8 {
        self.0[1] as u8
    }

    pub(crate) fn from_parts(addresses: u64, ports: u32, protocol: u8) -> Self {
        Plain([addresses, u64::from(ports) << 8 | u64::from(protocol)])
    }

    /// As a tuple.
    #[inline]
    pub fn tuple(self) -> Tuple {
        let [addresses, more] = self.0;
        let (src, dst) = ([0, addresses >> 32], [0, addresses & 0xffff_ffff]);
        let (src_port, dst_port) = ((more >> 24) as u16, (more >> 8) as u16);
        let (src, dst) = ((src, src_port), (dst, dst_port));
        Tuple { src, dst, protocol: more as u8, family: 4, ..Tuple::default() }
    }
}

/// The eight bytes at `at`, as a number; 0 where they are not.
#[inline(always)]
pub(crate) fn be64(bytes: &[u8], at: usize) -> u64 {
    let own = bytes.get(at..).and_then(|rest| rest.first_chunk());
    own.map_or(0, |own| u64::from_be_bytes(*own))
}

/// What of a packet changes: one of its ends, and two checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Which end.
    pub which: Which,
    /// To this address, host order,
    pub address: u32,
    /// and port.
    pub port: u16,
    /// What the checksum of the header grows by, and that of the upper layer (RFC 1624).
    sums: [u16; 2],
}

impl Change {
    /// One end of packets with the ends `of` becomes this address and port.
    pub fn new(of: Plain, which: Which, address: u32, port: u16) -> Self {
        let from = of.tuple();
        let old = if which == Which::Source { from.src } else { from.dst };
        let (old, old_port) = (!(old.0[1] as u32), !old.1);
        let header = (old >> 16) + (old & 0xffff) + (address >> 16) + (address & 0xffff);
        let all = header + u32::from(old_port) + u32::from(port);
        Self { which, address, port, sums: [!finish(header), !finish(all)] }
    }

    /// Changes `ip`, a packet with the ends `of`, from its IP header on.
    #[inline(always)]
    pub fn write(&self, ip: &mut [u8], of: Plain) {
        let is_tcp = of.protocol() == TCP;
        // Which end it is nobody can predict, so that is no branch.
        let end = usize::from(self.which == Which::Destination);
        let Some(head) = ip.first_chunk_mut::<28>() else { return };
        let checksum = grow(u16::from_be_bytes([head[10], head[11]]), self.sums[0]);
        head[10..12].copy_from_slice(&checksum.to_be_bytes());
        head[12 + 4 * end..][..4].copy_from_slice(&self.address.to_be_bytes());
        head[20 + 2 * end..][..2].copy_from_slice(&self.port.to_be_bytes());
        if is_tcp {
            let Some(head) = ip.first_chunk_mut::<40>() else { return };
            let checksum = grow(u16::from_be_bytes([head[36], head[37]]), self.sums[1]);
            head[36..38].copy_from_slice(&checksum.to_be_bytes());
        } else {
            let new = match u16::from_be_bytes([head[26], head[27]]) {
                0 => 0,
                // 0 would say that there is none.
                old => match grow(old, self.sums[1]) {
                    0 => 0xffff,
                    new => new,
                },
            };
            head[26..28].copy_from_slice(&new.to_be_bytes());
        }
    }
}

/// A checksum whose words grew by a folded sum: [`packet::checksum::finish`] of both, of which one folding is enough.
#[inline(always)]
fn grow(checksum: u16, sum: u16) -> u16 {
    let all = u32::from(!checksum) + u32::from(sum);
    !(((all & 0xffff) + (all >> 16)) as u16)
}

/// An empty one has no protocol.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Entry {
    /// That of the plain packet; in the highest bits of the second word, which are free there, the new port, [`IS_SOURCE`] and
    /// [`SPILLS`].
    key: [u64; 2],
    last: Stamp,
    address: u32,
    sums: [u16; 2],
}

/// Bits of the key of a plain packet in its second word.
const KEY_BITS: u32 = 40;
const KEY: u64 = (1 << KEY_BITS) - 1;
const IS_SOURCE: u64 = 1 << 56;
/// Of the first entry of a line: packets of it are in the lines beside it, or were.
const SPILLS: u64 = 1 << 57;

impl Entry {
    #[inline(always)]
    fn is_of(&self, plain: Plain) -> bool {
        (self.key[0] ^ plain.0[0]) | ((self.key[1] ^ plain.0[1]) << (64 - KEY_BITS)) == 0
    }

    fn is_free(&self) -> bool {
        self.key[1] & KEY == 0
    }

    fn plain(&self) -> Plain {
        Plain([self.key[0], self.key[1] & KEY])
    }

    /// What it says; it was used at `last`.
    #[inline(always)]
    fn used(&mut self, last: Stamp) -> Change {
        self.last.renew(last);
        let which = if self.key[1] & IS_SOURCE != 0 { Which::Source } else { Which::Destination };
        let port = (self.key[1] >> KEY_BITS) as u16;
        Change { which, address: self.address, port, sums: self.sums }
    }
}

/// When the last packet with the same ends came, in seconds, and what it acknowledged, 0 for other protocols than TCP: in the upper and
/// the lower half. In a cache it is not always that of the last packet, but one of the same second and the same step of
/// acknowledgments, so that most packets write nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp(u64);

impl Stamp {
    /// Of a packet that came at this second, and acknowledged this.
    #[inline(always)]
    pub const fn new(seen_s: u32, acked: u32) -> Self {
        Self((seen_s as u64) << 32 | acked as u64)
    }

    /// When it came.
    #[inline(always)]
    pub const fn seen_s(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// What it acknowledged.
    pub const fn acked(self) -> u32 {
        self.0 as u32
    }

    #[inline(always)]
    pub(crate) fn renew(&mut self, last: Stamp) {
        if (self.0 ^ last.0) / u64::from(STEP) != 0 {
            *self = last;
        }
    }

    pub(crate) const fn set_acked(&mut self, acked: u32) {
        *self = Self::new(self.seen_s(), acked);
    }
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
struct Line([Entry; 2]);

const _: () = assert!(size_of::<Entry>() == 32 && size_of::<Line>() == 64);

/// The cache of a worker.
#[derive(Debug)]
pub struct Cache {
    lines: Vec<Line>,
    seed: u64,
}

/// The first line of a key.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place(u32);

impl Place {
    /// The lines next to it, for what has no room there.
    #[inline(always)]
    fn beside(self) -> [Self; SET - 1] {
        [1, 2, 3].map(|own| Self(self.0 ^ own))
    }
}

/// How the line of a key is found: a copy for whoever does not hold the cache.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    mask: u32,
    seed: u64,
}

impl Places {
    /// The line of a packet.
    #[inline(always)]
    pub fn of(self, plain: Plain) -> Place {
        Place((chunk::hash::key128(plain.0, self.seed) >> 32) as u32 & self.mask)
    }
}

impl Cache {
    /// Lines for so many sessions.
    const fn lines(sessions: usize) -> usize {
        let lines = (sessions * LINES_PER_SESSION).next_power_of_two();
        if lines < SET { SET } else { lines }
    }

    /// Bytes of memory for so many sessions.
    pub const fn memory_bytes(sessions: usize) -> usize {
        Self::lines(sessions) * size_of::<Line>()
    }

    /// An empty cache, for the sessions of a table. `seed`: a number that nobody outside can know.
    ///
    /// # Errors
    /// The memory cannot be allocated.
    pub fn new(sessions: usize, seed: u64) -> Result<Self, TableError> {
        let count = Self::lines(sessions);
        let mut lines = Vec::new();
        let bytes = count * size_of::<Line>();
        lines.try_reserve_exact(count).map_err(|_| TableError::Memory { bytes })?;
        chunk::prefer_huge_pages(lines.spare_capacity_mut());
        lines.resize(count, Line::default());
        Ok(Self { lines, seed: chunk::hash::parameter(seed, 7) })
    }

    /// How lines are found.
    pub fn places(&self) -> Places {
        Places { mask: self.lines.len() as u32 - 1, seed: self.seed }
    }

    /// Starts loading a line.
    #[inline(always)]
    pub fn prefetch(&self, place: Place) {
        if let Some(line) = self.lines.get(place.0 as usize) {
            prefetch(line);
        }
    }

    /// What of a packet changes, if its first line says so; it came at `last`.
    #[inline(always)]
    pub fn get(&mut self, place: Place, plain: Plain, last: Stamp) -> Option<Change> {
        let line = self.lines.get_mut(place.0 as usize)?;
        // Which of both it is nobody can predict, so that is no branch: asking one after the other would become two.
        let entry = &mut line.0[usize::from(!line.0[0].is_of(plain))];
        entry.is_of(plain).then(|| entry.used(last))
    }

    /// The same of a packet that had no room there.
    #[inline(never)]
    pub fn get_beside(&mut self, place: Place, plain: Plain, last: Stamp) -> Option<Change> {
        if self.lines.get(place.0 as usize)?.0[0].key[1] & SPILLS == 0 {
            return None;
        }
        place.beside().into_iter().find_map(|own| {
            let line = self.lines.get_mut(own.0 as usize)?;
            let entry = line.0.iter_mut().find(|entry| entry.is_of(plain))?;
            Some(entry.used(last))
        })
    }

    /// The entries where a packet may be, the first ones first.
    fn entries(&mut self, plain: Plain) -> Option<[&mut Entry; 2 * SET]> {
        let place = self.places().of(plain);
        let [p, q, r] = place.beside();
        let own = [place, p, q, r].map(|own| own.0 as usize);
        let [Line([a, b]), Line([c, d]), Line([e, f]), Line([g, h])] =
            self.lines.get_disjoint_mut(own).ok()?;
        Some([a, b, c, d, e, f, g, h])
    }

    /// Keeps what of a packet changes that came at `last`. Returns the packet that made room for it, and its own.
    pub fn put(&mut self, plain: Plain, change: Change, last: Stamp) -> Option<(Plain, Stamp)> {
        let mut entries = self.entries(plain)?;
        let is_older = |entry: &&mut Entry| entry.last.seen_s() != last.seen_s();
        let at = (entries.iter().position(|entry| entry.is_of(plain)))
            .or_else(|| entries.iter().position(|entry| entry.is_free()))
            .or_else(|| entries.iter().position(is_older))?;
        if at >= 2 {
            entries[0].key[1] |= SPILLS;
        }
        let entry = &mut entries[at];
        let before =
            (!entry.is_of(plain) && !entry.is_free()).then_some((entry.plain(), entry.last));
        let Change { which, address, port, sums } = change;
        let is_source = if which == Which::Source { IS_SOURCE } else { 0 };
        let more = u64::from(port) << KEY_BITS | is_source | entry.key[1] & SPILLS;
        let key = [plain.0[0], plain.0[1] | more];
        **entry = Entry { key, last, address, sums };
        before
    }

    /// The last of a packet; `None`: it is not known.
    pub fn last(&self, plain: Plain) -> Option<Stamp> {
        let place = self.places().of(plain);
        let [p, q, r] = place.beside();
        let lines = [place, p, q, r].into_iter().filter_map(|own| self.lines.get(own.0 as usize));
        lines.flat_map(|line| &line.0).find(|entry| entry.is_of(plain)).map(|entry| entry.last)
    }

    /// Packets like this one acknowledge that now; whether they are known.
    pub(crate) fn set_acked(&mut self, plain: Plain, acked: u32) -> bool {
        let known = self.entries(plain).into_iter().flatten().find(|entry| entry.is_of(plain));
        known.map(|entry| entry.last.set_acked(acked)).is_some()
    }

    /// Forgets a packet; its last.
    pub fn remove(&mut self, plain: Plain) -> Option<Stamp> {
        let entry = self.entries(plain)?.into_iter().find(|entry| entry.is_of(plain))?;
        let last = entry.last;
        *entry = Entry { key: [0, entry.key[1] & SPILLS], ..Entry::default() };
        Some(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn plain(number: u8) -> Plain {
        Plain([0x0a00_0001_0808_0800 + u64::from(number), 0x12_3400_5006])
    }

    fn number(plain: Plain) -> u8 {
        (plain.0[0] - 0x0a00_0001_0808_0800) as u8
    }

    proptest! {
        /// It has what was put in and not removed, but what it gave back for want of room.
        #[test]
        fn it_agrees_with_a_map(
            steps in prop::collection::vec((0u8..40, 0u8..4, any::<u16>(), 0u32..2), 1..300), sessions in 1usize..12,
        ) {
            let mut cache = Cache::new(sessions, 5).unwrap();
            let places = cache.places();
            let mut twin: HashMap<u8, (Change, Stamp)> = HashMap::new();
            let mut now_s = 1;
            for (which, what, port, pause) in steps {
                now_s += pause;
                let own = plain(which);
                match what {
                    0 | 1 => {
                        let end = if port % 2 == 0 { Which::Source } else { Which::Destination };
                        let change = Change::new(own, end, port.into(), port);
                        let last = Stamp::new(now_s, port.into());
                        if let Some((gone, last)) = cache.put(own, change, last) {
                            let seen = last.seen_s();
                            prop_assert!(seen != now_s && places.of(gone).0 / 4 == places.of(own).0 / 4);
                            prop_assert_eq!(twin.remove(&number(gone)).map(|known| known.1), Some(last));
                        }
                        if cache.last(own).is_some() {
                            twin.insert(which, (change, last));
                        } else {
                            // All others of its lines were used in this second.
                            let others = twin.iter().filter(|(other, known)| {
                                known.1.seen_s() == now_s && places.of(plain(**other)).0 / 4 == places.of(own).0 / 4
                            });
                            prop_assert_eq!(others.count(), 8);
                        }
                    }
                    2 => {
                        cache.remove(own);
                        twin.remove(&which);
                    }
                    _ => {
                        let known = twin.get_mut(&which);
                        let place = places.of(own);
                        let last = Stamp::new(now_s, u32::from(port) * 3);
                        let got = cache.get(place, own, last);
                        let got = got.or_else(|| cache.get_beside(place, own, last));
                        prop_assert_eq!(got, known.as_ref().map(|known| known.0));
                        let steps = |own: Stamp| (own.seen_s(), own.acked() / STEP);
                        if let Some((_, known)) = known.filter(|known| steps(known.1) != steps(last)) {
                            *known = last;
                        }
                    }
                }
                for which in 0..40 {
                    prop_assert_eq!(cache.last(plain(which)), twin.get(&which).map(|known| known.1));
                }
            }
        }
    }

    #[test]
    fn lines_keep_what_this_second_used() {
        // Four lines have room for eight, wherever their packets would be first.
        let mut cache = Cache::new(1, 5).unwrap();
        let change = Change::new(plain(0), Which::Source, 1, 2);
        let places = cache.places();
        assert!((0..40).all(|own| places.of(plain(own)).0 < 4));
        let all: Vec<Plain> = (0..9).map(plain).collect();
        for own in &all {
            assert_eq!(cache.put(*own, change, Stamp::new(9, 0)), None);
        }
        let seen = |cache: &Cache| {
            all.iter().map(|own| cache.last(*own).map(Stamp::seen_s)).collect::<Vec<_>>()
        };
        assert_eq!(seen(&cache), [vec![Some(9); 8], vec![None]].concat());
        for own in &all[1..8] {
            let place = places.of(*own);
            let last = Stamp::new(10, 0);
            let got = cache.get(place, *own, last);
            let got = got.or_else(|| cache.get_beside(place, *own, last));
            assert_eq!(got, Some(change));
        }
        assert_eq!(cache.put(all[8], change, Stamp::new(10, 0)), Some((all[0], Stamp::new(9, 0))));
        assert_eq!(seen(&cache), [vec![None], vec![Some(10); 8]].concat());
    }
}
