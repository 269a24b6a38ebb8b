//! Sessions and bindings of a worker.
//!
//! All of it is in one table ([`stream::FlowTable`]), which finds the sessions of a batch of packets at once:
//!
//! ```text
//!  kind         key                                      `other`
//!  original     both ends before the translator          the entry of kind translated
//!  translated   both ends behind it                      the entry of kind original
//!  inside       inside end of a binding, scope of rule   the entry of kind outside
//!  outside      outside end of a binding                 the entry of kind inside
//!  host         an inside host: how many bindings it has
//!  expected     remote address and outside end of FTP    the inside entry of its binding
//! ```
//!
//! A packet whose key is that of a session is translated to the ends of the other entry, forward or back
//! ([`Translator::step`]). What plain packets become that change nothing of their session's state is kept in a
//! [`cache`](crate::cache), too ([`Translator::known`]). A packet that another stage wants to quote is translated the other
//! way round, to what its sender sent ([`Translator::restore`]). Lines of [FTP](crate::ftp) that announce a data connection
//! get its outside end ([`Translator::announce`]).
//!
//! | requirement | here |
//! | --- | --- |
//! | RFC 4787 REQ-1, RFC 5382 REQ-1 | mapping independent of the remote end |
//! | RFC 4787 REQ-2 | all bindings of a host have one outside address |
//! | RFC 4787 REQ-3 | ports are not shared by bindings ("port overloading") |
//! | RFC 4787 REQ-5, RFC 5382 REQ-5, RFC 5508 REQ-2 | time-outs, [`Timeouts`] |
//! | RFC 4787 REQ-8, RFC 5382 REQ-3 | filtering, [`Options::filter_by_remote`] |
//! | RFC 6888 REQ-4 | a limit for each host, [`Options::bindings_per_host`] |
//!
//! Where all sessions are in use, a new one takes the place of the one that was closed first, else of the oldest without an answer, else
//! of one of UDP or ICMP that has been idle for long. An established TCP connection keeps its session.

mod bindings;
mod ftp;
mod idle;
mod kinds;
mod numbers;

use std::sync::Arc;

use packet::IpProtocol;
use stream::table::{Class as FlowClass, Found, Limits, Slot, TableError};
use stream::{FlowKey, FlowTable, Side};

use crate::cache::{Cache, Change, Place, Places, Plain, Stamp};
use crate::families::{Either, Keys, Pair, Plain6, Turn, Turns};
use crate::ports::Pool;
use crate::rewrite::Which;
use crate::rules::{Rule, Rules};
use crate::segment::Tcp;
use crate::tuple::{End, Tuple, has_ports};

use bindings::{Binding, Ends, Room};
pub use ftp::{CONTROLS_MAX, EXPECTED_S};
pub use kinds::{Counts, Options, PoolUse, Refusal, Refused, Session, Source, Timeouts, Way};

/// No entry.
const NIL: u32 = u32::MAX;

/// Scopes of keys that are no sessions: those of bindings have the number of their rule in the low half.
const SCOPE_INSIDE: u32 = 1 << 16;
const SCOPE_OUTSIDE: u32 = 2 << 16;
const SCOPE_HOST: u32 = 3 << 16;
const SCOPE_EXPECTED: u32 = 4 << 16;

/// Entries of the table for a session: its own two, a binding's two, and a host.
pub const ENTRIES_PER_SESSION: usize = 5;

/// Sessions that a piece of a sweep ends at most, and those that it marks as seen.
const IDLE: usize = 512;

/// What an entry is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    #[default]
    New,
    Original,
    Translated,
    Inside,
    Outside,
    Host,
    Expected,
}

/// Bits of [`Hot::flags`] of an original entry; the first one and the last two are of a translated one, too.
mod flags {
    /// The first end of the key is the tuple's destination.
    pub(super) const FROM_B: u8 = 1 << 0;
    /// An answer was seen.
    pub(super) const ANSWERED: u8 = 1 << 1;
    /// Its opener was heard again after the answer: for TCP, the handshake is finished.
    pub(super) const ESTABLISHED: u8 = 1 << 2;
    /// The opener sent FIN.
    pub(super) const FIN: u8 = 1 << 3;
    /// The other end sent FIN.
    pub(super) const FIN_BACK: u8 = 1 << 4;
    /// Reset.
    pub(super) const RESET: u8 = 1 << 5;
    /// A control connection of FTP.
    pub(super) const CONTROL: u8 = 1 << 6;
    /// The end that sends packets of this entry has acknowledged something: see [`numbers`](super::numbers). Of a translated one, too.
    pub(super) const ACKED: u8 = 1 << 7;
}

/// Flags of TCP that say something about a session.
mod tcp {
    pub(super) const FIN: u8 = 1;
    pub(super) const SYN: u8 = 2;
    pub(super) const RST: u8 = 4;
    pub(super) const ACK: u8 = 16;
}

/// What is beside the key of an entry.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Hot {
    other: u32,
    /// Of an original entry: the inside entry of its binding. Of a translated one: that of its destination, if that was
    /// expected. Of an inside entry: that of its host. Of what is expected: the original entry of the control connection.
    owner: u32,
    /// Of an inside entry: its sessions. Of a host: its bindings. Of a control connection: its number. Of another session: what the end
    /// has acknowledged that sends packets of the entry.
    count: u32,
    rule: u16,
    kind: Kind,
    flags: u8,
}

const _: () = assert!(size_of::<Hot>() == 16);

/// Translates the packets of a worker. See the module.
pub struct Translator {
    table: FlowTable<Hot>,
    cache: Cache,
    turns: Turns,
    rules: Arc<Rules>,
    /// Of each rule, by its number.
    pools: Vec<(u16, Pool)>,
    options: Options,
    counts: Counts,
    controls: ftp::Controls,
    sessions: usize,
    hand: u32,
    /// Sessions that a piece of a sweep ends.
    idle: Vec<Slot>,
    /// Sessions that were seen later than their entries say, and when.
    alive: Vec<(Slot, u32)>,
    /// The state of the generator of ports.
    random: u64,
    /// Sessions that have ended.
    ended: u64,
    /// What it is about if the last new binding was refused.
    refused: Option<Refused>,
}

impl Translator {
    /// No sessions. Takes all memory.
    ///
    /// # Errors
    /// The memory cannot be allocated.
    pub fn new(options: Options, rules: Arc<Rules>) -> Result<Self, TableError> {
        let capacity = Self::entries(&options);
        let table = FlowTable::new(Limits { capacity, half_open_max: capacity }, options.seed)?;
        let cache = Cache::new(options.sessions.max(1), options.seed)?;
        let turns = Self::turns(&options, &rules)?;
        let pools = rules.all.iter().map(|rule| (rule.number, Pool::new(rule.pool()))).collect();
        let (counts, random) = (Counts::default(), options.seed | 1);
        let controls = ftp::Controls::new(options.ftp_ports, options.sessions.max(1));
        let (idle, alive) = (Vec::with_capacity(IDLE), Vec::with_capacity(IDLE));
        Ok(Self {
            table,
            cache,
            turns,
            rules,
            pools,
            options,
            counts,
            controls,
            sessions: 0,
            hand: 0,
            idle,
            alive,
            random,
            ended: 0,
            refused: None,
        })
    }

    /// A cache of packets between families, where a rule is for such.
    fn turns(options: &Options, rules: &Rules) -> Result<Turns, TableError> {
        match rules.has_v6() {
            true => Turns::new(options.sessions.max(1), options.seed),
            false => Ok(Turns::off()),
        }
    }

    /// Entries of the table: those of a new session are there before another one makes room for it.
    fn entries(options: &Options) -> usize {
        (options.sessions.max(1) + 1) * ENTRIES_PER_SESSION
    }

    /// Bytes of memory of one translator.
    pub fn memory_bytes(options: &Options, rules: &Rules) -> usize {
        let pools = rules.all.iter().map(|rule| Pool::memory_bytes(rule.pool().len()));
        let entries = Self::entries(options);
        let cache = Cache::memory_bytes(options.sessions.max(1));
        let controls = ftp::Controls::memory_bytes(options.ftp_ports, options.sessions.max(1));
        let turns = if rules.has_v6() { Turns::memory_bytes(options.sessions.max(1)) } else { 0 };
        FlowTable::<Hot>::memory_bytes(entries) + cache + turns + controls + pools.sum::<usize>()
    }

    /// The rules.
    pub fn rules(&self) -> &Arc<Rules> {
        &self.rules
    }

    /// Events since the start.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The same, for packets that the caller translates.
    pub fn counts_mut(&mut self) -> &mut Counts {
        &mut self.counts
    }

    /// Sessions that have ended, for whatever reason. As long as it stays, the entries are there that [`find`](Self::find) has found.
    pub fn ended(&self) -> u64 {
        self.ended
    }

    /// What the last refusal for want of a port, of an address or of bindings of a host was about.
    pub fn refused(&self) -> Option<Refused> {
        self.refused
    }

    /// Sessions.
    pub fn len(&self) -> usize {
        self.sessions
    }

    /// Whether there is no session.
    pub fn is_empty(&self) -> bool {
        self.sessions == 0
    }

    /// Finds the entries of a batch of keys, and starts loading what [`step`](Self::step) reads. A key of family 0 has none.
    pub fn find(&mut self, keys: &[FlowKey], now_s: u32, found: &mut [Found]) {
        let mut nobody = (|_: usize| None, |_: Slot, _: &FlowKey, _: &Hot| {});
        self.table.lookup(keys, now_s, &mut nobody, found);
        // A packet becomes what the other entry of its session says.
        for slot in found.iter().filter_map(|found| found.slot()) {
            if let Some(hot) = self.table.get(slot) {
                self.table.prefetch(Slot(hot.other));
            }
        }
    }

    /// What a packet whose key was found becomes: its new ends, and its way. `None`: it is not translated. `tcp`: what is known
    /// of its TCP segment. A reset that its receiver would not take leaves the session as it is.
    #[inline]
    pub fn step(&mut self, slot: Slot, side: Side, tcp: Tcp) -> Option<(Tuple, Way)> {
        let stepped = self.follow_packet(slot, side, tcp)?;
        if tcp.acknowledges() {
            self.refresh(slot, side, tcp.acknowledgment);
        }
        Some(stepped)
    }

    /// The same, but the caches stay as they are.
    #[inline]
    fn follow_packet(&mut self, slot: Slot, side: Side, tcp: Tcp) -> Option<(Tuple, Way)> {
        let hot = *self.table.get(slot)?;
        let from = side_of(hot.flags);
        let (original, way) = match hot.kind {
            Kind::Original if side == from => (slot, Way::Forward),
            Kind::Translated if side != from => (Slot(hot.other), Way::Back),
            _ => return None,
        };
        let to = self.tuple(Slot(hot.other))?;
        self.counts.packets += 1;
        if tcp.flags & tcp::RST != 0 && !self.is_reset(original, way, tcp) {
            self.counts.resets_ignored += 1;
        } else if let Some(state) = self.table.get_mut(original) {
            let before = state.flags;
            state.flags = follow(before, way, tcp.flags);
            if before != state.flags {
                let after = state.flags;
                self.changed(original, before, after);
            }
            self.note_numbers(original, way, tcp);
        }
        Some(match way {
            Way::Forward => (to, way),
            Way::Back => (to.reversed(), way),
        })
    }

    /// A packet has changed the state of a session.
    #[inline(never)]
    fn changed(&mut self, original: Slot, before: u8, after: u8) {
        // Lines of the cache are of sessions whose plain packets change nothing.
        let is_other = (before ^ after) & (flags::RESET | flags::ESTABLISHED) != 0;
        if is_other && before & flags::ESTABLISHED != 0 {
            self.uncache(original);
        }
        let protocol = self.table.key(original).map_or(0, |key| key.protocol);
        self.table.set_class(original, class_of(protocol, after));
    }

    /// The entry of a key that [`find`](Self::find) has looked up, if sessions have ended since.
    pub fn find_again(&self, key: &FlowKey) -> Option<Slot> {
        self.table.find(key)
    }

    /// How the lines of plain packets in the cache are found.
    pub fn places(&self) -> Places {
        self.cache.places()
    }

    /// Starts loading what [`known`](Self::known) reads.
    #[inline(always)]
    pub fn prefetch(&self, place: Place) {
        self.cache.prefetch(place);
    }

    /// What of a plain packet of a session changes, if that is known without the table. `tcp`: of its segment. The caller counts
    /// it ([`counts_mut`](Self::counts_mut)).
    #[inline(always)]
    pub fn known(&mut self, place: Place, plain: Plain, tcp: Tcp, now_s: u32) -> Option<Change> {
        // A connection that opens or closes changes its session.
        if tcp.flags & (tcp::FIN | tcp::SYN | tcp::RST) != 0 {
            return None;
        }
        self.cache.get(place, plain, Stamp::new(now_s, tcp.acknowledgment))
    }

    /// The same where [`known`](Self::known) does not know it: it may have had no room in its first line.
    pub fn known_beside(
        &mut self,
        place: Place,
        plain: Plain,
        tcp: Tcp,
        now_s: u32,
    ) -> Option<Change> {
        if tcp.flags & (tcp::FIN | tcp::SYN | tcp::RST) != 0 {
            return None;
        }
        self.cache.get_beside(place, plain, Stamp::new(now_s, tcp.acknowledgment))
    }

    /// How the lines of plain packets are found that go from one family to the other.
    pub fn keys(&self) -> Keys {
        self.turns.keys()
    }

    /// Starts loading what [`turn4`](Self::turn4) and [`turn6`](Self::turn6) read.
    #[inline(always)]
    pub fn prefetch_turn(&self, pair: Pair) {
        self.turns.prefetch(pair);
    }

    /// What a plain IPv4 packet of a session becomes in IPv6, if that is known without the table; `tcp`: of its segment.
    #[inline(always)]
    pub fn turn4(&mut self, pair: Pair, plain: Plain, tcp: Tcp, now_s: u32) -> Option<&Turn> {
        if tcp.flags & (tcp::FIN | tcp::SYN | tcp::RST) != 0 {
            return None;
        }
        self.turns.get4(pair, plain, Stamp::new(now_s, tcp.acknowledgment))
    }

    /// The same of a plain IPv6 packet, which becomes one of IPv4.
    #[inline(always)]
    pub fn turn6(&mut self, pair: Pair, plain: &Plain6, tcp: Tcp, now_s: u32) -> Option<&Turn> {
        if tcp.flags & (tcp::FIN | tcp::SYN | tcp::RST) != 0 {
            return None;
        }
        self.turns.get6(pair, plain, Stamp::new(now_s, tcp.acknowledgment))
    }

    /// As [`step`](Self::step) for a plain packet with the ends `from`, whose translation is known afterwards if packets like it
    /// leave the state of their session as it is.
    #[inline]
    pub fn step_plain(
        &mut self,
        slot: Slot,
        side: Side,
        from: &Tuple,
        tcp: Tcp,
        now_s: u32,
    ) -> Option<(Tuple, Way)> {
        let (to, way) = self.follow_packet(slot, side, tcp)?;
        let hot = *self.table.get(slot)?;
        let original = if hot.kind == Kind::Original { slot } else { Slot(hot.other) };
        let bits = self.table.get(original)?.flags;
        let is_settled = to.protocol != IpProtocol::TCP.0
            || tcp.acknowledges()
                && bits & (flags::ESTABLISHED | flags::RESET) == flags::ESTABLISHED;
        // Whoever translates a packet of a control connection must see its session.
        if !is_settled || bits & flags::CONTROL != 0 {
            return Some((to, way));
        }
        let last = Stamp::new(now_s, tcp.acknowledgment);
        let gone = if to.family == from.family {
            let change = match (to.src == from.src, to.dst == from.dst) {
                (false, true) => Some((Which::Source, to.src)),
                (true, false) => Some((Which::Destination, to.dst)),
                _ => None,
            };
            let keep = |(which, end): (Which, End)| {
                let plain = Plain::of_tuple(from)?;
                let change = Change::new(plain, which, end.0[1] as u32, end.1);
                let gone = self.cache.put(plain, change, last);
                gone.map(|(plain, last)| (Either::V4(plain), last))
            };
            change.and_then(keep)
        } else {
            Turn::new(from, &to).and_then(|turn| self.turns.put(&turn, last))
        };
        if let Some((gone, last)) = gone {
            self.forgotten(&gone, last);
        }
        Some((to, way))
    }

    /// Brings to the table what was known of a plain packet that its cache forgets.
    fn forgotten(&mut self, plain: &Either, last: Stamp) {
        let tuple = plain.tuple();
        if let Some(slot) = self.table.find(&tuple.key().0) {
            self.bring(slot, tuple.protocol, last);
        }
    }

    /// The ends that the sender of a packet gave it, which was translated to `tuple`; `None` if it was not translated.
    pub fn restore(&self, tuple: &Tuple) -> Option<Tuple> {
        let (key, side) = tuple.key();
        let hot = *self.table.get(self.table.find(&key)?)?;
        let from = side_of(hot.flags);
        let other = self.tuple(Slot(hot.other))?;
        match hot.kind {
            Kind::Original if side != from => Some(other.reversed()),
            Kind::Translated if side == from => Some(other),
            _ => None,
        }
    }

    /// The tuple of a session's entry, in the direction of the session.
    #[inline]
    fn tuple(&self, slot: Slot) -> Option<Tuple> {
        let side = side_of(self.table.get(slot)?.flags);
        Some(Tuple::from_key(self.table.key(slot)?, side))
    }

    /// Whether a packet to an outside end may begin a session towards the inside, and to which inside end: that of a
    /// binding, where everybody may answer. `None` for that of an IPv6 host: NAT64 lets in whom the host has sent to. `None` for a query
    /// of ICMP, too: a binding lets in answers.
    pub fn inward(&self, tuple: &Tuple) -> Option<(u16, End)> {
        if self.options.filter_by_remote || !tuple.has_ports() || tuple.message.is_query() {
            return None;
        }
        let outside = self.table.find(&binding_key(tuple.dst, tuple.protocol, 4, SCOPE_OUTSIDE))?;
        let hot = self.table.get(outside)?;
        let inside = self.table.key(Slot(hot.other)).filter(|inside| inside.family == 4)?;
        Some((hot.rule, host_end(inside)))
    }

    /// The inside end of an IPv6 host that has this outside end for packets of an inside protocol.
    pub fn inward64(&self, protocol: u8, outside: End) -> Option<End> {
        let binding = self.inside64(protocol, outside)?;
        self.table.key(binding).map(host_end)
    }

    /// Its binding.
    fn inside64(&self, protocol: u8, outside: End) -> Option<Slot> {
        if !has_ports(protocol) {
            return None;
        }
        let key = binding_key(outside, outside_protocol(protocol), 4, SCOPE_OUTSIDE);
        let inside = Slot(self.table.get(self.table.find(&key)?)?.other);
        self.table.key(inside).is_some_and(|key| key.family == 6).then_some(inside)
    }

    /// Begins the session of a packet with the ends `original` whose destination becomes `dst`, of `family`. Returns its
    /// ends behind the translator. Where the packet's session is there already, those of it.
    ///
    /// # Errors
    /// Why it cannot be translated; counted.
    pub fn begin(
        &mut self,
        original: &Tuple,
        dst: End,
        family: u8,
        source: Source,
        now_s: u32,
    ) -> Result<Tuple, Refusal> {
        let made = self.try_begin(original, dst, family, source, now_s);
        match &made {
            // The packet is translated, as those behind it: the count does not depend on batches.
            Ok(_) => self.counts.packets += 1,
            Err(refusal) => self.counts.refuse(*refusal),
        }
        made
    }

    /// The same of a packet with these TCP flags; 0 for other protocols. A segment with RST begins no session, nor does one
    /// without SYN and ACK: its port would be taken for [`Timeouts::tcp_transitory`] without anybody who uses it.
    ///
    /// # Errors
    /// As those of [`begin`](Self::begin), and [`Refusal::Stray`], which drop reasons count.
    pub fn begin_by(
        &mut self,
        original: &Tuple,
        dst: End,
        family: u8,
        source: Source,
        (tcp, now_s): (Tcp, u32),
    ) -> Result<Tuple, Refusal> {
        let is_tcp = original.protocol == IpProtocol::TCP.0;
        let is_stray = tcp.flags & tcp::RST != 0 || tcp.flags & (tcp::SYN | tcp::ACK) == 0;
        // An earlier packet of the batch may have begun its session.
        if is_tcp && is_stray && self.table.find(&original.key().0).is_none() {
            return Err(Refusal::Stray);
        }
        let made = self.begin(original, dst, family, source, now_s)?;
        if is_tcp && let Some(slot) = self.table.find(&original.key().0) {
            self.note_numbers(slot, Way::Forward, tcp);
        }
        Ok(made)
    }

    fn try_begin(
        &mut self,
        original: &Tuple,
        dst: End,
        family: u8,
        source: Source,
        now_s: u32,
    ) -> Result<Tuple, Refusal> {
        let (key, side) = original.key();
        if let Some(slot) = self.table.find(&key) {
            // An earlier packet of the batch has begun it.
            let hot = *self.table.get(slot).ok_or(Refusal::Conflict)?;
            let is_own = hot.kind == Kind::Original && side_of(hot.flags) == side;
            let other = self.tuple(Slot(hot.other)).filter(|_| is_own);
            return other.ok_or(Refusal::Conflict);
        }
        let place = match source {
            Source::Rule(rule, interface) | Source::Hairpin(rule, interface) => {
                self.place(rule, interface)
            }
            Source::Keep(_) | Source::Hairpin64(_) => None,
        };
        // What is expected has the room of a session.
        let expected = self.controls.expected - usize::from(self.expected(original).is_some());
        let is_full = self.sessions + expected >= self.options.sessions;
        // It ends when nothing else is in the way: nobody loses a session for a packet that is refused.
        let least = match is_full {
            true => Some(self.least(now_s).ok_or(Refusal::Sessions)?),
            false => None,
        };
        let protocol = match (IpProtocol(original.protocol), family) {
            (IpProtocol::ICMPV6, 4) => IpProtocol::ICMP.0,
            _ => original.protocol,
        };
        let to = Tuple { dst, protocol, family, ..*original };
        let room = least.map_or(Room::Free, Room::Of);
        let ends = self.ends(original, &to, source, place, room)?;
        let (translated, rule) = (ends.tuple, ends.rule);
        let (behind, behind_side) = translated.key();
        let known = self.table.find(&behind).filter(|slot| !self.is_of(*slot, least));
        if behind == key || known.is_some() {
            if let Binding::Is(binding) = ends.binding {
                self.release_if_unused(binding);
            }
            // Nothing changes: no session is needed.
            return if behind == key && behind_side == side {
                Ok(translated)
            } else {
                Err(Refusal::Conflict)
            };
        }
        // Held before a session ends that may have the same.
        if let Binding::Is(binding) = ends.binding {
            self.hold(binding);
        }
        let of_destination = self.hold_destination(original, source);
        least.into_iter().for_each(|least| self.make_room(least));
        let binding = match ends.binding {
            Binding::None => NIL,
            Binding::Is(binding) => binding.0,
            Binding::Left(port) => {
                match self.ends(original, &to, source, place, Room::Left(port)) {
                    Ok(Ends { tuple, binding: Binding::Is(binding), .. })
                        if tuple == translated =>
                    {
                        self.hold(binding);
                        binding.0
                    }
                    _ => {
                        self.let_go(Slot(of_destination));
                        return Err(Refusal::Ports);
                    }
                }
            }
        };
        let made = [self.insert(&key, now_s), self.insert(&behind, now_s)];
        let [Some(first), Some(second)] = made else {
            made.into_iter().flatten().for_each(|slot| {
                self.table.remove(slot);
            });
            [binding, of_destination].into_iter().for_each(|own| self.let_go(Slot(own)));
            return Err(Refusal::Sessions);
        };
        self.set(first, Kind::Original, (second.0, binding), rule, bit_of(side));
        self.set(second, Kind::Translated, (first.0, of_destination), rule, bit_of(behind_side));
        self.table.set_class(first, FlowClass::HalfOpen);
        self.begin_control([first, second], original, &translated);
        self.sessions += 1;
        self.counts.sessions += 1;
        Ok(translated)
    }

    fn insert(&mut self, key: &FlowKey, now_s: u32) -> Option<Slot> {
        let mut found = [Found::NONE];
        // A session ends as a whole: the table never makes room for an entry.
        let has_room = self.table.len() < self.table.capacity();
        let admit = |_: usize| has_room.then_some(FlowClass::Full);
        let mut all = (admit, |_: Slot, _: &FlowKey, _: &Hot| {});
        self.table.lookup(std::slice::from_ref(key), now_s, &mut all, &mut found);
        found[0].slot()
    }

    /// Whether an entry is one of a session, by the original entry of that.
    fn is_of(&self, slot: Slot, session: Option<Slot>) -> bool {
        let is_it = |session: Slot| {
            session == slot || self.table.get(session).is_some_and(|hot| hot.other == slot.0)
        };
        session.is_some_and(is_it)
    }

    /// Holds the binding of the destination of a new session, which stays as long: that of an inside host, or of what was expected.
    fn hold_destination(&mut self, original: &Tuple, source: Source) -> u32 {
        let Source::Hairpin64(_) = source else { return self.came(original) };
        let outside = self.rules.embedded(original.dst.0);
        let end = outside.map(|(_, address)| ([0, address.into()], original.dst.1));
        let held = end.and_then(|end| self.inside64(original.protocol, end));
        held.into_iter().for_each(|binding| self.hold(binding));
        held.map_or(NIL, |binding| binding.0)
    }

    fn set(&mut self, slot: Slot, kind: Kind, (other, owner): (u32, u32), rule: u16, bits: u8) {
        if let Some(hot) = self.table.get_mut(slot) {
            *hot = Hot { other, owner, count: 0, rule, kind, flags: bits };
        }
    }

    /// The caches forget a session, by its original entry; the table knows then what they knew.
    #[cold]
    fn uncache(&mut self, slot: Slot) {
        let other = self.table.get(slot).map(|hot| Slot(hot.other));
        for (plain, entry) in self.plain(slot).into_iter().zip([Some(slot), other]) {
            let (last, protocol) = match plain {
                Some(Cached::Change(plain)) => (self.cache.remove(plain), plain.protocol()),
                Some(Cached::Turn(plain)) => (self.turns.remove(&plain), plain.tuple().protocol),
                None => continue,
            };
            if let (Some(last), Some(entry)) = (last, entry) {
                self.bring(entry, protocol, last);
            }
        }
    }

    /// Ends a session by its original entry, and its binding if no other session has it.
    fn end(&mut self, slot: Slot) {
        self.uncache(slot);
        let Some((_, hot)) = self.table.remove(slot) else { return };
        let other = self.table.remove(Slot(hot.other));
        self.sessions -= 1;
        self.ended += 1;
        if hot.flags & flags::CONTROL != 0 {
            self.end_control(hot.count);
        }
        for owner in [hot.owner, other.map_or(NIL, |(_, hot)| hot.owner)] {
            self.let_go(Slot(owner));
        }
    }

    /// The plain packets of a session by its original entry, forward and back.
    fn plain(&self, slot: Slot) -> [Option<Cached>; 2] {
        let other = self.table.get(slot).map(|hot| Slot(hot.other));
        let original = self.tuple(slot);
        let translated = other.and_then(|other| self.tuple(other)).map(Tuple::reversed);
        let family = |own: &Option<Tuple>| own.map(|own| own.family);
        let turns = family(&original) != family(&translated);
        [original, translated].map(|own| {
            let own = own?;
            match turns {
                true => Either::of_tuple(&own).map(Cached::Turn),
                false => Plain::of_tuple(&own).map(Cached::Change),
            }
        })
    }

    /// Ends all sessions that `is_it` names; how many.
    pub fn forget(&mut self, is_it: impl Fn(&Known) -> bool) -> usize {
        let mut ended = 0;
        for at in 0..self.table.capacity() as u32 {
            let slot = Slot(at);
            let Some(hot) = self.table.get(slot).copied() else { continue };
            if hot.kind != Kind::Original {
                continue;
            }
            let Some(translated) = self.tuple(Slot(hot.other)) else { continue };
            let behind = translated.src.0[1] as u32;
            if is_it(&Known { rule: hot.rule, behind, tuple: translated }) {
                self.end(slot);
                ended += 1;
            }
        }
        ended
    }

    /// Other rules: sessions of rules with the same number stay, those of others end. How many ended.
    pub fn set_rules(&mut self, rules: Arc<Rules>) -> usize {
        let ended = self.forget(|known| rules.rule(known.rule).is_none());
        let mut before = std::mem::take(&mut self.pools);
        let mut pool = |rule: &Rule| {
            let known = before.iter_mut().find(|(number, _)| *number == rule.number);
            known.map_or_else(|| Pool::new(rule.pool()), |(_, pool)| std::mem::take(pool))
        };
        self.pools = rules.all.iter().map(|rule| (rule.number, pool(rule))).collect();
        // Without memory for it each packet is looked up.
        if rules.has_v6() != self.turns.keys().is_on() {
            self.turns = Self::turns(&self.options, &rules).unwrap_or_else(|_| Turns::off());
        }
        self.rules = rules;
        ended
    }

    /// Sessions from entry `first` on, of `entries` entries: the next entry, `None` at the end.
    pub fn visit(
        &self,
        first: usize,
        entries: usize,
        now_s: u32,
        visit: &mut impl FnMut(Session),
    ) -> Option<usize> {
        let until = (first + entries).min(self.table.capacity());
        for at in first..until {
            let slot = Slot(at as u32);
            let Some(hot) = self.table.get(slot).copied() else { continue };
            if hot.kind != Kind::Original {
                continue;
            }
            let (Some(original), Some(translated)) =
                (self.tuple(slot), self.tuple(Slot(hot.other)))
            else {
                continue;
            };
            let idle_s = self.idle_s(slot, hot, now_s);
            let timeout = self.options.timeouts.of(original.protocol, hot.flags);
            visit(Session {
                original,
                translated,
                rule: hot.rule,
                is_answered: hot.flags & flags::ANSWERED != 0,
                idle_s,
                left_s: timeout.saturating_sub(idle_s),
            });
        }
        (until < self.table.capacity()).then_some(until)
    }

    /// All outside addresses with their use. Ports without an address are left out.
    pub fn pools(&self) -> impl Iterator<Item = PoolUse> {
        // A masquerade has the address of a port before a packet has needed it.
        let of_port = |rule: u16, at: usize| {
            let port = *self.rules.rule(rule)?.outside.get(at)?;
            self.rules.own.of(port)
        };
        self.pools.iter().flat_map(move |(rule, pool)| {
            let (rule, each) = (*rule, pool.addresses().iter().enumerate());
            each.filter_map(move |(at, address)| {
                let known = Some(*address).filter(|address| *address != 0);
                let address = known.or_else(|| of_port(rule, at))?;
                Some(PoolUse { rule, address, used: pool.used(at) })
            })
        })
    }
}

/// A plain packet, by the cache that may know it.
enum Cached {
    Change(Plain),
    Turn(Either),
}

/// A session as [`Translator::forget`] names it.
pub struct Known {
    /// Number of its rule.
    pub rule: u16,
    /// Address of its source behind the translator.
    pub behind: u32,
    /// Its ends behind the translator.
    pub tuple: Tuple,
}

fn side_of(bits: u8) -> Side {
    if bits & flags::FROM_B == 0 { Side::A } else { Side::B }
}

fn bit_of(side: Side) -> u8 {
    if side == Side::A { 0 } else { flags::FROM_B }
}

/// The protocol behind the translator of packets of an inside one: ICMPv6 behind a NAT64 is ICMP.
const fn outside_protocol(protocol: u8) -> u8 {
    match IpProtocol(protocol) {
        IpProtocol::ICMPV6 => IpProtocol::ICMP.0,
        _ => protocol,
    }
}

/// The key of a binding's end: the other end of the key is zero, and so the first one.
fn binding_key(end: End, protocol: u8, family: u8, scope: u32) -> FlowKey {
    FlowKey {
        addresses: [[0; 2], end.0],
        ports: [0, end.1],
        scope,
        protocol,
        family,
        tunnels: 0,
        tunnel_id: 0,
    }
}

fn host_end(key: &FlowKey) -> End {
    (key.addresses[1], key.ports[1])
}

/// How firmly a session in a state holds its place.
fn class_of(protocol: u8, bits: u8) -> FlowClass {
    const CLOSED: u8 = flags::FIN | flags::FIN_BACK;
    let is_answered = bits & flags::ANSWERED != 0;
    match IpProtocol(protocol) {
        IpProtocol::TCP if bits & flags::RESET != 0 || bits & CLOSED == CLOSED => FlowClass::Closed,
        IpProtocol::TCP if bits & flags::ESTABLISHED == 0 => FlowClass::HalfOpen,
        _ if !is_answered => FlowClass::HalfOpen,
        IpProtocol::UDP | IpProtocol::ICMP | IpProtocol::ICMPV6 => FlowClass::Yielding,
        _ => FlowClass::Full,
    }
}

/// The state of a session behind a packet. Ports may be used again at once, so a SYN of the opener begins anew where the
/// connection before was closed or reset; a reset that a host ignores has no effect, as traffic after it shows (RFC 7857 §2.2).
fn follow(bits: u8, way: Way, tcp: u8) -> u8 {
    const CLOSED: u8 = flags::FIN | flags::FIN_BACK;
    const ALL: u8 = flags::ANSWERED | flags::ESTABLISHED | CLOSED | flags::RESET;
    let mut bits = bits;
    if tcp & tcp::RST == 0 {
        let is_over = bits & flags::RESET != 0 || bits & CLOSED == CLOSED;
        if is_over && way == Way::Forward && tcp & tcp::SYN != 0 {
            bits &= !ALL;
        }
        bits &= !flags::RESET;
    } else {
        bits |= flags::RESET;
    }
    bits |= match way {
        Way::Back => flags::ANSWERED,
        Way::Forward if bits & flags::ANSWERED != 0 => flags::ESTABLISHED,
        Way::Forward => 0,
    };
    if tcp & tcp::FIN != 0 {
        bits |= if way == Way::Forward { flags::FIN } else { flags::FIN_BACK };
    }
    bits
}
