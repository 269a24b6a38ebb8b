//! Security associations (RFC 4301 §4.4.2): keys, counts, and lifetimes.
//!
//! An association is for one direction. All threads share it: sequence numbers and replay window are those of
//! `crypto::esp`, counts are atomic, and a soft or hard limit that is reached is seen once by whoever counts past it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use crypto::esp::{self, AssociationError};
use crypto::sequence::Sequence;
use crypto::window::ReplayWindow;
use crypto::{Key, Marks, Suite};

use crate::parameters::{Direction, Limit, Limits, Mode, Parameters};
use crate::path::PathMtu;
use crate::peer::{self, Peer};
use crate::policy::Tuple;
use crate::{Words, words};

/// Numbers that workers may still take from an association that was replaced.
const IN_FLIGHT: u64 = 1 << 24;

/// Counts of a worker's packets that follow one another in an association: written when another one's come, and at the end.
#[derive(Debug, Default)]
pub struct Tally<'a> {
    own: Option<&'a Association>,
    packets: u64,
    bytes: u64,
}

impl<'a> Tally<'a> {
    /// What [`Association::count`] does.
    ///
    /// # Errors
    /// A hard limit was reached before.
    #[inline]
    pub fn count(&mut self, of: &'a Association, len: usize, now_ns: u64) -> Result<(), Exhausted> {
        if !self.own.is_some_and(|own| std::ptr::eq(own, of)) {
            if of.is_limited() {
                return of.count(len, now_ns);
            }
            self.write();
            self.own = Some(of);
        }
        if of.has_ended() || of.is_over_time(now_ns) {
            return Err(Exhausted);
        }
        self.packets += 1;
        self.bytes += len as u64;
        Ok(())
    }

    fn write(&mut self) {
        if let Some(own) = self.own.take() {
            own.add(self.packets, self.bytes);
        }
        (self.packets, self.bytes) = (0, 0);
    }
}

impl Drop for Tally<'_> {
    fn drop(&mut self) {
        self.write();
    }
}

/// What an association leaves to one with its keys.
#[derive(Debug, Clone)]
pub(crate) enum Past {
    /// The numbers that it sends.
    Sent(Arc<Sequence>),
    /// The numbers that it has accepted, and whether they have 64 bits.
    Accepted(Arc<ReplayWindow>, bool),
}

impl Past {
    /// Which way its packets went.
    pub(crate) fn direction(&self) -> Direction {
        match self {
            Self::Sent(_) => Direction::Out,
            Self::Accepted(..) => Direction::In,
        }
    }
}

/// What of its limits is used.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Used {
    bytes: u64,
    packets: u64,
    /// When its time began; 0: with the first packet to come.
    began_ns: u64,
}

/// The half of ESP that it has.
#[derive(Debug)]
enum Esp {
    In(esp::Inbound),
    Out(esp::Outbound),
}

/// That an association has ended: packets are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exhausted;

/// A limit that was reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expiry {
    /// The association.
    pub spi: u32,
    /// Its receiver.
    pub destination: IpAddr,
    /// Which way.
    pub direction: Direction,
    /// The number by which policies name it.
    pub reqid: u32,
    /// The hard limit: the association is gone.
    pub is_hard: bool,
}

/// Bytes of a line of a cache.
const LINE: usize = interleave::LINE_BYTES;
/// Lines of an association, at most.
const LINES_MAX: usize = u64::BITS as usize;

const _: () = assert!(size_of::<Association>() <= LINES_MAX * LINE);

/// A security association. It begins with a line.
///
/// What a packet reads and writes is side by side, so that it is in few lines: with many associations each of them comes from memory.
/// The limits are in front of the parameters' other fields, and with those that are seldom written before them two lines.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Association {
    /// Nanoseconds since 1970 when its time began; 0: not yet.
    began_ns: AtomicU64,
    /// Packets that were not authentic.
    forged: AtomicU64,
    /// Packets that the window refused.
    replayed: AtomicU64,
    parameters: Parameters,
    family: u8,
    /// Bytes or packets have a limit, and so has time: what each packet asks of the parameters' limits.
    is_limited: bool,
    is_timed: bool,
    is_hard: AtomicBool,
    ends: (Words, Words),
    bytes: AtomicU64,
    packets: AtomicU64,
    esp: Esp,
    is_soft: AtomicBool,
    /// A limit of bytes or packets was reached, and nobody has asked since.
    has_news: AtomicBool,
    /// Packets with a wrong length or padding.
    malformed: AtomicU64,
    /// In, without a window: the highest number that was heard.
    newest: AtomicU64,
    /// In UDP: where the peer is, for all associations with it.
    peer: Arc<Peer>,
    /// Out: the hash of the place that the parameters say.
    peer_tag: u64,
    /// Out: what ICMP errors have said of the way.
    path: PathMtu,
    /// Out: the next identification of outer headers that may be fragmented. Over IPv4 only where several associations send between
    /// its ends.
    identification: OnceLock<Arc<AtomicU32>>,
    /// The place of the association among all, by when they were added.
    generation: u64,
    /// Where its keys are among those that devices have; `u32::MAX`: nowhere.
    place: AtomicU32,
    /// The worker that opens or seals its packets; `u32::MAX`: any.
    worker: AtomicU32,
    /// The worker that has opened or sealed the last ones, and how often that was another one than before.
    opened_last: AtomicU32,
    changes: AtomicU64,
}

impl Association {
    /// With a key.
    ///
    /// # Errors
    /// Parameters that ESP refuses.
    pub fn new(parameters: Parameters, key: Key, now_ns: u64) -> Result<Self, AssociationError> {
        let Parameters { direction, spi, is_extended, window, .. } = parameters;
        let first = parameters.first_number;
        let esp = match direction {
            Direction::In => Esp::In(esp::Inbound::new(key, spi, is_extended, window)?),
            Direction::Out => Esp::Out(esp::Outbound::resume(key, spi, is_extended, first)?),
        };
        let ((family, src), (_, dst)) = (words(parameters.source), words(parameters.destination));
        let peer_tag = peer::tag(dst, parameters.udp.map_or(0, |udp| udp.destination));
        let Limits { bytes, packets, seconds } = parameters.limits;
        let has_any = |limits: &[Limit]| limits.iter().any(|own| *own != Limit::default());
        Ok(Self {
            parameters,
            family,
            is_limited: has_any(&[bytes, packets]),
            is_timed: has_any(&[seconds]),
            ends: (src, dst),
            esp,
            began_ns: AtomicU64::new(now_ns),
            bytes: AtomicU64::new(0),
            packets: AtomicU64::new(0),
            is_soft: AtomicBool::new(false),
            is_hard: AtomicBool::new(false),
            has_news: AtomicBool::new(false),
            forged: AtomicU64::new(0),
            replayed: AtomicU64::new(0),
            malformed: AtomicU64::new(0),
            newest: AtomicU64::new(0),
            peer: Arc::default(),
            peer_tag,
            path: PathMtu::default(),
            identification: OnceLock::new(),
            generation: 0,
            place: AtomicU32::new(u32::MAX),
            worker: AtomicU32::new(u32::MAX),
            opened_last: AtomicU32::new(u32::MAX),
            changes: AtomicU64::new(0),
        })
    }

    /// What it is.
    #[inline]
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// How its packets are sealed.
    #[inline]
    pub fn suite(&self) -> Suite {
        match &self.esp {
            Esp::In(own) => own.suite(),
            Esp::Out(own) => own.suite(),
        }
    }

    /// Its keys.
    #[inline]
    pub fn key(&self) -> &Key {
        match &self.esp {
            Esp::In(own) => own.key(),
            Esp::Out(own) => own.key(),
        }
    }

    /// Which of its lines a packet of it reads and writes, a bit each from the first one on: parameters, key, counts.
    pub(crate) fn lines(&self) -> u64 {
        fn place_of<T>(value: &T) -> Range<usize> {
            let start = ptr::from_ref(value).addr();
            start..start + size_of::<T>()
        }
        let own = ptr::from_ref(self).addr();
        let mut lines = 0_u64;
        let mut see = |place: Range<usize>| {
            let (from, to) = (place.start.saturating_sub(own), place.end.saturating_sub(own));
            // What is elsewhere is not among them.
            let all = size_of::<Self>() / LINE;
            (from / LINE..to.div_ceil(LINE).min(all)).for_each(|line| lines |= 1 << line);
        };
        let Parameters { limits, .. } = &self.parameters;
        if self.is_limited || self.is_timed {
            see(place_of(limits));
        }
        let Parameters { spi, source, destination, mode, reqid, if_id, udp, .. } = &self.parameters;
        see(place_of(spi));
        see(place_of(source));
        see(place_of(destination));
        see(place_of(mode));
        see(place_of(reqid));
        see(place_of(if_id));
        see(place_of(udp));
        let Parameters { pad_to, dscp, dont_fragment, ecn, hop_limit, .. } = &self.parameters;
        see(place_of(pad_to));
        see(place_of(dscp));
        see(place_of(dont_fragment));
        see(place_of(ecn));
        see(place_of(hop_limit));
        see(place_of(&self.family));
        see(place_of(&self.is_limited));
        see(place_of(&self.is_timed));
        see(place_of(&self.ends));
        see(place_of(&self.bytes));
        see(place_of(&self.packets));
        see(place_of(&self.is_hard));
        see(place_of(&self.path));
        see(place_of(&self.identification));
        // The variant is somewhere in its first bytes or in those of its values.
        see(place_of(&self.esp).start..place_of(&self.esp).start + 1);
        match &self.esp {
            Esp::In(own) => own.read_by_packets(&mut see),
            Esp::Out(own) => own.read_by_packets(&mut see),
        }
        lines
    }

    /// Starts to load the first and the last of [lines](Self::lines) of it, which may be on different pages.
    #[inline]
    pub(crate) fn prefetch_ends(&self, lines: u64) {
        let Some(last) = lines.checked_ilog2() else { return };
        let first = ptr::from_ref(self).cast::<u8>();
        for line in [lines.trailing_zeros(), last] {
            interleave::prefetch_at(first.wrapping_add(line as usize * LINE));
        }
    }

    /// Starts to load [lines](Self::lines) of it, and reads none.
    #[inline]
    pub(crate) fn prefetch_lines(&self, mut lines: u64) {
        let first = ptr::from_ref(self).cast::<u8>();
        while lines != 0 {
            interleave::prefetch_at(first.wrapping_add(lines.trailing_zeros() as usize * LINE));
            lines &= lines - 1;
        }
    }

    /// Starts to load its number, or its window, and what of its key is elsewhere. Its own lines say where: those are to be there by
    /// now.
    #[inline]
    pub fn prefetch_numbers(&self) {
        self.key().prefetch();
        match &self.esp {
            Esp::In(own) => {
                if let Some(window) = own.window() {
                    interleave::prefetch(window);
                }
            }
            Esp::Out(own) => interleave::prefetch(&**own.sequence()),
        }
    }

    /// Starts to load the word of its window, whose place the window says.
    #[inline]
    pub fn prefetch_window(&self) {
        if let Esp::In(own) = &self.esp
            && let Some(window) = own.window()
        {
            window.prefetch();
        }
    }

    /// Where its keys are among those that devices have, if [`Association::set_place`] said so. Whether a version of tables has
    /// them there is for the reader to find out.
    pub fn place(&self) -> Option<usize> {
        match self.place.load(Relaxed) {
            u32::MAX => None,
            place => Some(place as usize),
        }
    }

    /// Says where that is.
    pub fn set_place(&self, place: u32) {
        self.place.store(place, Relaxed);
    }

    /// The worker that opens or seals its packets; `None`: whichever receives them. All is right with any: numbers and windows are atomic.
    #[inline]
    pub fn worker(&self) -> Option<u16> {
        u16::try_from(self.worker.load(Relaxed)).ok()
    }

    /// Has one worker open or seal its packets from now on, or all of them.
    pub fn set_worker(&self, worker: Option<u16>) {
        self.worker.store(worker.map_or(u32::MAX, u32::from), Relaxed);
    }

    /// The worker that opens or seals its packets: this one, if there was none.
    #[inline]
    pub fn claim(&self, worker: u16) -> u16 {
        self.worker().unwrap_or_else(|| {
            let _ = self.worker.compare_exchange(u32::MAX, worker.into(), Relaxed, Relaxed);
            self.worker().unwrap_or(worker)
        })
    }

    /// This worker opens or seals packets of it.
    #[inline]
    pub fn note_worker(&self, worker: u16) {
        let worker = u32::from(worker);
        if self.opened_last.load(Relaxed) != worker
            && self.opened_last.swap(worker, Relaxed) != u32::MAX
        {
            self.changes.fetch_add(1, Relaxed);
        }
    }

    /// The worker that was [noted](Association::note_worker) last, and how often it was another one than before.
    pub fn noted(&self) -> (Option<u16>, u64) {
        (u16::try_from(self.opened_last.load(Relaxed)).ok(), self.changes.load(Relaxed))
    }

    /// The family of its ends: 4 or 6.
    #[inline]
    pub fn family(&self) -> u8 {
        self.family
    }

    /// Source and destination.
    pub fn ends(&self) -> (Words, Words) {
        self.ends
    }

    /// The identification of an outer IPv4 header. Where several associations send between two addresses, packets that routers may
    /// fragment take theirs from one counter: receivers would join fragments of two packets with one identification (RFC 6864 §4.3).
    #[inline]
    pub(crate) fn identification(&self, number: u64, may_be_fragmented: bool) -> u16 {
        match self.identification.get() {
            Some(next) if may_be_fragmented => next.fetch_add(1, Relaxed) as u16,
            _ => number as u16,
        }
    }

    /// The identification of the fragments of an outer IPv6 packet: those between two addresses have one counter (RFC 8200 §4.5).
    #[cold]
    pub(crate) fn identification_v6(&self, number: u64) -> u32 {
        match self.identification.get() {
            Some(next) => next.fetch_add(1, Relaxed),
            None => number as u32,
        }
    }

    /// Takes identifications from this counter from now on.
    pub(crate) fn share_identifications(&self, next: &Arc<AtomicU32>) {
        let _ = self.identification.set(next.clone());
    }

    /// What packets are sealed by; `None` of one that receives.
    #[inline]
    pub fn sealer(&self) -> Option<&esp::Outbound> {
        match &self.esp {
            Esp::Out(own) => Some(own),
            Esp::In(_) => None,
        }
    }

    /// What packets are opened by; `None` of one that sends.
    #[inline]
    pub fn opener(&self) -> Option<&esp::Inbound> {
        match &self.esp {
            Esp::In(own) => Some(own),
            Esp::Out(_) => None,
        }
    }

    /// Whether it may protect a packet: in transport mode the packet is between its ends.
    #[inline]
    pub fn serves(&self, tuple: &Tuple) -> bool {
        let is_between = (self.family, self.ends) == (tuple.family, (tuple.src, tuple.dst));
        self.parameters.mode == Mode::Tunnel || is_between
    }

    /// Whether it has ended.
    #[inline]
    pub fn has_ended(&self) -> bool {
        self.is_hard.load(Relaxed)
    }

    /// Counts a packet with `len` bytes of payload.
    ///
    /// # Errors
    /// A hard limit was reached before: the packet is not to be sent or accepted.
    pub fn count(&self, len: usize, now_ns: u64) -> Result<(), Exhausted> {
        if self.has_ended() || self.is_over_time(now_ns) {
            return Err(Exhausted);
        }
        let Limits { bytes, packets, .. } = self.parameters.limits;
        let counts = [
            (self.bytes.fetch_add(len as u64, Relaxed), len as u64, bytes),
            (self.packets.fetch_add(1, Relaxed), 1, packets),
        ];
        let mut result = Ok(());
        for (before, added, limit) in counts {
            // The packet that reaches a limit is the last one.
            if limit.hard.is_some_and(|hard| before >= hard) {
                self.reach(&self.is_hard);
                result = Err(Exhausted);
            }
            if limit.soft.is_some_and(|soft| before.saturating_add(added) >= soft) {
                self.reach(&self.is_soft);
            }
        }
        if result.is_err() {
            self.bytes.fetch_sub(len as u64, Relaxed);
            self.packets.fetch_sub(1, Relaxed);
        }
        result
    }

    /// It has no sequence numbers left (RFC 4303 §3.3.3): no packet can be sent by it any more, as after a hard limit.
    #[cold]
    pub fn run_out(&self) {
        self.reach(&self.is_hard);
    }

    #[inline]
    fn reach(&self, limit: &AtomicBool) {
        if !limit.load(Relaxed) && !limit.swap(true, Relaxed) {
            self.has_news.store(true, Relaxed);
        }
    }

    /// Whether a limit of bytes or packets was reached since the last call: [`Database::expire`](crate::Database::expire) says which.
    #[inline]
    pub fn take_news(&self) -> bool {
        self.is_limited && self.has_news.load(Relaxed) && self.has_news.swap(false, Relaxed)
    }

    /// Whether bytes or packets have a limit: each packet is then counted by itself.
    #[inline]
    pub fn is_limited(&self) -> bool {
        self.is_limited
    }

    /// Adds packets and bytes of one that is not [limited](Self::is_limited).
    fn add(&self, packets: u64, bytes: u64) {
        self.bytes.fetch_add(bytes, Relaxed);
        self.packets.fetch_add(packets, Relaxed);
    }

    /// Looks at the clock: whether the hard limit of time is reached.
    #[inline]
    pub fn is_over_time(&self, now_ns: u64) -> bool {
        self.is_timed && self.looks_at_clock(now_ns)
    }

    fn looks_at_clock(&self, now_ns: u64) -> bool {
        let Limit { soft, hard } = self.parameters.limits.seconds;
        let began = match self.began_ns.compare_exchange(0, now_ns, Relaxed, Relaxed) {
            Ok(_) => now_ns,
            Err(began) => began,
        };
        let age = now_ns.saturating_sub(began) / 1_000_000_000;
        if soft.is_some_and(|soft| age >= soft) {
            self.is_soft.store(true, Relaxed);
        }
        let is_over = hard.is_some_and(|hard| age >= hard);
        if is_over {
            self.is_hard.store(true, Relaxed);
        }
        is_over
    }

    /// Counts a packet that was refused.
    pub fn count_refused(&self, error: esp::OpenError) {
        match error {
            esp::OpenError::Replay(_) => self.replayed.fetch_add(1, Relaxed),
            esp::OpenError::Authentication => self.forged.fetch_add(1, Relaxed),
            esp::OpenError::Truncated | esp::OpenError::Length | esp::OpenError::Padding => {
                self.malformed.fetch_add(1, Relaxed)
            }
            esp::OpenError::Spi => 0, // another association's
        };
    }

    /// Packets whose length or padding was wrong.
    pub fn malformed(&self) -> u64 {
        self.malformed.load(Relaxed)
    }

    /// Authentic packet `number` in UDP came from this address, of the family of the association, and port. `Some` if the last
    /// one did not: a translator between may have given the peer another one (RFC 3947 §4). True in it if the peer was known
    /// to be elsewhere. Only the newest packet says where the peer is: one that was late may have come another way.
    pub fn heard_from(&self, number: u64, address: Words, port: u16) -> Option<bool> {
        let is_late = match self.opener()?.window() {
            Some(window) => window.top() > number,
            // Nothing else stops a packet that somebody sends again from elsewhere.
            None => self.newest.fetch_max(number, Relaxed) >= number,
        };
        if self.peer.tag() == peer::tag(address, port) || is_late {
            return None;
        }
        let before = self.peer.heard((self.generation, number), self.address(address), port)?;
        Some(before.is_some() || address != self.ends.0)
    }

    /// An address of its family.
    fn address(&self, [high, low]: Words) -> IpAddr {
        match self.family {
            4 => Ipv4Addr::from_bits(low as u32).into(),
            _ => Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low)).into(),
        }
    }

    /// Where packets go: the receiver, and the port of those in UDP. In tunnel mode the address is the one that the peer was heard
    /// from, in transport mode that of the packets, and only the port is heard.
    #[inline]
    pub fn peer(&self) -> (IpAddr, Option<u16>) {
        let Parameters { destination, udp, mode, .. } = self.parameters;
        let known = (destination, udp.map(|udp| udp.destination));
        if udp.is_none() {
            return known;
        }
        let tag = self.peer.tag();
        if tag == 0 || tag == self.peer_tag {
            return known;
        }
        match (self.peer.place(), mode) {
            (Some((address, port)), Mode::Tunnel) => (address, Some(port)),
            (Some((_, port)), Mode::Transport) => (destination, Some(port)),
            (None, _) => known,
        }
    }

    /// Where authentic packets come from.
    pub fn source(&self) -> Words {
        self.peer.place().map_or(self.ends.0, |own| words(own.0).1)
    }

    /// In UDP: where authentic packets of the peer were heard from, address and port; `None` before the first.
    pub fn heard(&self) -> Option<(IpAddr, u16)> {
        self.peer.place()
    }

    /// Out: the path MTU in bytes that ICMP errors have named, if they have by this time and it was not too long ago.
    #[inline]
    pub fn path_mtu(&self, now_ns: u64) -> Option<u16> {
        self.path.at(now_ns)
    }

    /// The same by the time of a packet: one that has aged is forgotten, so that packets behind it need not ask.
    #[inline]
    pub fn aged_path_mtu(&self, now_ns: u64) -> Option<u16> {
        self.path.aged(now_ns)
    }

    /// Whether [`path_mtu`](Self::path_mtu) depends on the time.
    #[inline]
    pub fn knows_path(&self) -> bool {
        self.path.word() != 0
    }

    /// What is known of the way.
    #[inline]
    pub(crate) fn path(&self) -> &PathMtu {
        &self.path
    }

    /// Makes the peer the one of other associations with it.
    pub(crate) fn join(&mut self, peer: Arc<Peer>, generation: u64) {
        (self.peer, self.generation) = (peer, generation);
    }

    /// By which its keys are compared.
    pub fn marks(&self) -> Marks {
        match &self.esp {
            Esp::In(own) => own.marks(),
            Esp::Out(own) => own.marks(),
        }
    }

    /// What one with its keys has to go on with.
    pub(crate) fn past(&self) -> Option<Past> {
        match &self.esp {
            Esp::Out(own) => Some(Past::Sent(own.sequence().clone())),
            Esp::In(own) => {
                let window = own.shared_window()?.clone();
                Some(Past::Accepted(window, own.is_extended()))
            }
        }
    }

    /// What of its limits is used so far. Packets that workers have in hand come after.
    pub(crate) fn used(&self) -> Used {
        let [bytes, packets, began_ns] =
            [&self.bytes, &self.packets, &self.began_ns].map(|own| own.load(Relaxed));
        Used { bytes, packets, began_ns }
    }

    /// Counts go on where those of an association with its keys were: limits are those of keys.
    pub(crate) fn count_on(&mut self, used: Used) {
        *self.bytes.get_mut() = used.bytes;
        *self.packets.get_mut() = used.packets;
        if used.began_ns != 0 {
            *self.began_ns.get_mut() = used.began_ns;
        }
    }

    /// Whether it can take numbers from, or has the window of, an association that stays.
    pub(crate) fn can_share(&self, past: &Past) -> bool {
        match (&self.esp, past) {
            (Esp::Out(_), Past::Sent(numbers)) => {
                self.parameters.is_extended || !numbers.is_extended()
            }
            (Esp::In(own), Past::Accepted(window, is_extended)) => {
                own.is_extended() == *is_extended
                    && own.window().is_some_and(|own| own.len() == window.len())
            }
            _ => true,
        }
    }

    /// Goes on where an association with its keys was, or is: no number is sent again, and none is accepted again, although
    /// workers may still use that one.
    pub(crate) fn follow(&mut self, past: &Past) {
        match (&mut self.esp, past) {
            (Esp::Out(own), Past::Sent(before)) => {
                let is_shared = own.share(before).is_ok();
                if !is_shared {
                    // Longer ones: this association has none of those, and what is left of its own.
                    let next = before.next().saturating_add(IN_FLIGHT);
                    own.sequence().take(next.saturating_sub(own.sequence().next()));
                }
            }
            (Esp::In(own), Past::Accepted(before, is_extended)) => {
                if own.is_extended() == *is_extended && own.share(before) {
                    return;
                }
                let Some(window) = own.window() else { return };
                let top = before.top();
                for number in top.saturating_sub(window.len().into()) + 1..=top {
                    let _ = window.update(number);
                }
            }
            _ => {}
        }
    }

    /// Whether a limit was reached and which; the caller remembers what it has said.
    pub fn reached(&self) -> (bool, bool) {
        (self.is_soft.load(Relaxed), self.has_ended())
    }

    /// Bytes of payload, packets, packets that were not authentic, packets that the window refused.
    pub fn counts(&self) -> [u64; 4] {
        [&self.bytes, &self.packets, &self.forged, &self.replayed].map(|own| own.load(Relaxed))
    }

    /// The next number that is sent, or the highest that was accepted.
    pub fn number(&self) -> u64 {
        match &self.esp {
            Esp::Out(own) => own.sequence().next(),
            Esp::In(own) => own.window().map_or(0, |own| own.top()),
        }
    }
}

#[cfg(test)]
mod tests {
    use crypto::{Authentication, Encryption, KeySize, Secret};

    use super::*;

    /// Lines that are loaded ahead are those of the association, of every suite: some of them, and those of its counts among them.
    #[test]
    fn lines_are_those_that_packets_read() {
        for suite in Suite::all() {
            for direction in [Direction::In, Direction::Out] {
                let of = |len: usize| Secret::new(vec![7; len]);
                let (own, mac) = (suite.encryption_key_len(), suite.authentication_key_len());
                let key = Key::new(suite, &of(own), &of(mac)).unwrap();
                let ends = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
                let parameters = Parameters::new(direction, 0x1000, ends, 1);
                let made = Arc::new(Association::new(parameters, key, 0).unwrap());
                let start = ptr::from_ref(&*made).addr();
                assert!(start.is_multiple_of(LINE));
                let lines = made.lines();
                let all = size_of::<Association>().div_ceil(LINE) as u32;
                assert!(lines.count_ones() < all && u64::BITS - lines.leading_zeros() <= all);
                // Side by side: a packet of counter mode waits for no more than these.
                let is_counted = matches!(suite.encryption(), Encryption::AesCtr(KeySize::Bits128));
                if is_counted && suite.authentication() == Authentication::HmacSha1_96 {
                    assert!(lines.count_ones() <= 8, "{lines:b}");
                }
                let has = |place: usize| lines >> ((place - start) / LINE) & 1 == 1;
                assert!(has(ptr::from_ref(&made.parameters.mode).addr()), "{suite}");
                assert!(has(ptr::from_ref(&made.packets).addr()), "{suite}");
                made.prefetch_lines(lines);
                made.prefetch_numbers();
                made.prefetch_window();
            }
        }
    }
}
