//! What the stages read, and what they count.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};

use control::config::SaWorkers;
use engine::Counter;
use ipsec::{Association, Exhausted, Tally, Template, Tuple, View};
use xfrm::Change;

/// What control hears of.
#[derive(Debug)]
pub enum Event {
    /// Associations and policies of Linux have changed.
    Linux(Vec<Change>),
    /// A packet has no association.
    Wanted(Wanted),
    /// A packet was refused.
    Refused(Refused),
    /// An association has reached a limit of bytes or packets.
    Reached,
    /// An ICMP error has lowered the path MTU of an association.
    Path {
        /// Its index.
        spi: u32,
        /// Its receiver.
        destination: IpAddr,
        /// The path MTU in bytes.
        mtu: u16,
    },
    /// Authentic packets of an association come from elsewhere.
    Moved {
        /// Its index.
        spi: u32,
        /// Its receiver.
        destination: IpAddr,
        /// Where they come from.
        address: IpAddr,
        /// The port.
        port: u16,
    },
}

/// What an association is missing for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// The packet.
    pub tuple: Tuple,
    /// What its policy asks for.
    pub template: Template,
    /// The tunnel interface that it leaves by; 0: none.
    pub if_id: u32,
}

/// Why a packet was refused that others are to hear of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Why {
    /// No association has its index.
    UnknownSpi,
    /// The window refused it.
    Replayed,
    /// It is not genuine.
    Forged,
}

impl Why {
    /// As events have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::UnknownSpi => "unknown_spi",
            Self::Replayed => "replayed",
            Self::Forged => "forged",
        }
    }
}

/// An ESP packet that was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused {
    /// Why.
    pub why: Why,
    /// Security parameters index.
    pub spi: u32,
    /// Its sequence number: the lower 32 bits.
    pub number: u32,
    /// Who sent it, as it says.
    pub source: IpAddr,
    /// Where to.
    pub destination: IpAddr,
}

/// Refused packets of a kind that control hears of in a second.
const TOLD: u64 = 8;
/// Places of the time of the last one.
const TOLD_PLACES: usize = 128;

/// Which refused packets control hears of: one a second for a sender, an index and a reason, and `TOLD` in all; of those whose
/// index no association has as many again, since anybody can send them and would hide the others.
#[derive(Debug)]
struct Limit {
    hash: RandomState,
    unknown: Told,
    others: Told,
}

#[derive(Debug)]
struct Told {
    last_s: Vec<AtomicU64>,
    /// The second, and in the lowest byte how many.
    count: AtomicU64,
}

impl Told {
    fn new() -> Self {
        let last_s = (0..TOLD_PLACES).map(|_| AtomicU64::new(0)).collect();
        Self { last_s, count: AtomicU64::new(0) }
    }
}

impl Limit {
    fn new() -> Self {
        Self { hash: RandomState::new(), unknown: Told::new(), others: Told::new() }
    }

    fn allows(&self, own: &Refused, now_ns: u64) -> bool {
        let now_s = now_ns / 1_000_000_000 + 1; // 0: never
        let place = self.hash.hash_one((own.why, own.spi, own.source)) as usize % TOLD_PLACES;
        let told = if own.why == Why::UnknownSpi { &self.unknown } else { &self.others };
        if told.last_s[place].swap(now_s, Ordering::Relaxed) == now_s {
            return false;
        }
        let next = |told: u64| match (told >> 8 == now_s, told & 0xff) {
            (false, _) => Some(now_s << 8 | 1),
            (true, count) if count < TOLD => Some(told + 1),
            (true, _) => None,
        };
        told.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }
}

/// Time between two questions for the same, nanoseconds.
const ASK_NS: u64 = 1_000_000_000;
/// What may be asked for in that time.
const ASKED: usize = 256;

/// Asks for associations: at most one question a second for a template, and `ASKED` in all.
#[derive(Debug)]
pub struct Asker {
    sender: SyncSender<Event>,
    hash: RandomState,
    asked_ns: Vec<AtomicU64>,
}

impl Asker {
    /// By this channel.
    pub fn new(sender: SyncSender<Event>) -> Self {
        let asked_ns = (0..ASKED).map(|_| AtomicU64::new(0)).collect();
        Self { sender, hash: RandomState::new(), asked_ns }
    }

    fn ask(&self, wanted: Wanted, now_ns: u64) {
        let place = self.hash.hash_one((wanted.template, wanted.if_id)) as usize % ASKED;
        let last = self.asked_ns[place].load(Ordering::Relaxed);
        let is_due = last == 0 || now_ns.saturating_sub(last) >= ASK_NS;
        let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
        let slot = &self.asked_ns[place];
        if is_due && slot.compare_exchange(last, now_ns.max(1), success, failure).is_ok() {
            // If control is behind, the next packet asks.
            let _ = self.sender.try_send(Event::Wanted(wanted));
        }
    }
}

/// The view in use, which control replaces.
#[derive(Debug)]
pub struct Current {
    generation: AtomicU64,
    view: Mutex<Arc<View>>,
    asker: Option<Asker>,
    limit: Limit,
    /// Live runs.
    sender: Option<SyncSender<Event>>,
    /// A path MTU was learned that control does not know of.
    has_untold_path: AtomicBool,
    workers: SaWorkers,
}

impl Current {
    /// The first one. `sender` leads to control; `asker` asks there for associations, if anybody makes them.
    pub fn new(view: Arc<View>, sender: Option<SyncSender<Event>>, asker: Option<Asker>) -> Self {
        Self {
            generation: AtomicU64::new(0),
            view: Mutex::new(view),
            asker,
            limit: Limit::new(),
            sender,
            has_untold_path: AtomicBool::new(false),
            workers: SaWorkers::Any,
        }
    }

    /// With so many workers for the packets of an association.
    #[must_use]
    pub fn with_workers(self, workers: SaWorkers) -> Self {
        Self { workers, ..self }
    }

    /// Another one: packets of chunks that begin from now on are looked up in it.
    pub fn set(&self, view: Arc<View>) {
        let before = {
            let mut own = self.view.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *own, view)
        };
        self.generation.fetch_add(1, Ordering::Release);
        drop(before); // not under the lock
    }

    /// Whether a path MTU was learned, and control was behind, since this was asked.
    pub fn take_untold_path(&self) -> bool {
        self.has_untold_path.swap(false, Ordering::Relaxed)
    }

    /// The view in use.
    pub fn get(&self) -> Arc<View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A worker's copy of the view in use.
#[derive(Debug)]
pub struct Reader {
    current: Arc<Current>,
    generation: u64,
    view: Arc<View>,
}

impl Reader {
    /// Of this one.
    pub fn new(current: Arc<Current>) -> Self {
        let generation = current.generation.load(Ordering::Acquire);
        let view = current.get();
        Self { current, generation, view }
    }

    /// Which workers open or seal the packets of an association.
    pub fn workers(&self) -> SaWorkers {
        self.current.workers
    }

    /// Asks for an association that a packet lacks, if there is anybody who makes one.
    pub fn ask(&self, wanted: Wanted, now_ns: u64) {
        if let Some(asker) = &self.current.asker {
            asker.ask(wanted, now_ns);
        }
    }

    /// Tells control of a refused packet, within limits.
    pub fn refuse(&self, refused: impl FnOnce() -> Option<Refused>, now_ns: u64) {
        if self.current.sender.is_some()
            && let Some(own) = refused()
            && self.current.limit.allows(&own, now_ns)
        {
            self.tell(Event::Refused(own));
        }
    }

    /// Counts a packet of an association, and tells control if that reaches a limit: new keys take time, and the hard limit may
    /// be near.
    ///
    /// # Errors
    /// A hard limit was reached before.
    #[inline]
    pub fn count<'a>(
        &self,
        tally: &mut Tally<'a>,
        own: &'a Association,
        len: usize,
        now_ns: u64,
    ) -> Result<(), Exhausted> {
        let result = tally.count(own, len, now_ns);
        if own.take_news() {
            self.tell(Event::Reached);
        }
        result
    }

    /// Tells control of the path MTU of an association. If it is behind, it looks itself within a second: the error may not come again.
    pub fn tell_path(&self, spi: u32, destination: IpAddr, mtu: u16) {
        if let Some(sender) = &self.current.sender
            && sender.try_send(Event::Path { spi, destination, mtu }).is_err()
        {
            self.current.has_untold_path.store(true, Ordering::Relaxed);
        }
    }

    /// Tells control, unless it is behind.
    pub fn tell(&self, event: Event) {
        if let Some(sender) = &self.current.sender {
            let _ = sender.try_send(event);
        }
    }

    /// The view, for a chunk.
    pub fn get(&mut self) -> Arc<View> {
        let generation = self.current.generation.load(Ordering::Acquire);
        if generation != self.generation {
            self.generation = generation;
            self.view = self.current.get();
        }
        self.view.clone()
    }
}

/// What the stages of one worker count.
#[derive(Debug, Default)]
pub struct Counters {
    /// Packets that were opened.
    pub opened: Counter,
    /// Bytes of what was inside.
    pub opened_bytes: Counter,
    /// Packets that were sealed.
    pub sealed: Counter,
    /// Bytes of what is inside.
    pub sealed_bytes: Counter,
    /// Decisions that a packet passes as it is, by a policy or because none matches: one for each direction that it takes.
    pub passed: Counter,
    /// Packets for which no association was there: what a daemon would be asked for.
    pub wanted: Counter,
    /// ICMP errors that a path MTU was learned from.
    pub path_mtu: Counter,
    /// ICMP errors about ESP packets that were not plausible.
    pub path_mtu_ignored: Counter,
}

#[cfg(test)]
mod tests {
    use crypto::{Authentication, Encryption, Icv, Key, KeySize, Secret, Suite};
    use ipsec::{Database, Direction, Limit as Of, Limits, Parameters};

    use super::*;

    /// Before control looks by itself.
    #[test]
    fn limits_are_told_once_and_at_once() {
        let cipher = Encryption::AesGcm(KeySize::Bits128, Icv::Bytes16);
        let suite = Suite::new(cipher, Authentication::None).unwrap();
        let key = Key::new(suite, &Secret::new(vec![7; 20]), &Secret::none()).unwrap();
        let packets = Of { soft: Some(3), hard: Some(6) };
        let ends = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
        let limits = Limits { packets, ..Limits::default() };
        let own = Parameters { limits, ..Parameters::new(Direction::Out, 0x1000, ends, 1) };
        let mut database = Database::new();
        let own = database.add(own, key, 0).unwrap();
        let (sender, events) = std::sync::mpsc::sync_channel(8);
        let current = Current::new(database.view().unwrap(), Some(sender), None);
        let reader = Reader::new(Arc::new(current));
        let mut tally = Tally::default();
        let told = |packets: u32| {
            for _ in 0..packets {
                let _ = reader.count(&mut tally, &own, 100, 0);
            }
            events.try_iter().filter(|event| matches!(event, Event::Reached)).count()
        };
        assert_eq!([2, 1, 3, 1, 3].map(told), [0, 1, 0, 1, 0]);
        let said = database.expire(0);
        assert_eq!(said.iter().map(|own| own.is_hard).collect::<Vec<_>>(), [false, true]);
    }

    /// Control may be behind: a flood of other events came before.
    #[test]
    fn a_path_mtu_that_control_did_not_hear_of_is_looked_for() {
        let (sender, events) = std::sync::mpsc::sync_channel(1);
        let view = Database::new().view().unwrap();
        let current = Arc::new(Current::new(view, Some(sender), None));
        let reader = Reader::new(current.clone());
        let learn = || reader.tell_path(0x1001, [192, 0, 2, 2].into(), 1400);
        learn();
        assert!(!current.take_untold_path());
        learn();
        assert!(current.take_untold_path() && !current.take_untold_path());
        assert!(matches!(events.try_recv(), Ok(Event::Path { mtu: 1400, .. })));
        learn();
        assert!(!current.take_untold_path());
    }

    #[test]
    fn a_flood_of_refused_packets_is_told_of_in_part() {
        let limit = Limit::new();
        let second = 1_000_000_000;
        let refused = |spi: u32| Refused {
            why: Why::UnknownSpi,
            spi,
            number: 1,
            source: [192, 0, 2, 1].into(),
            destination: [192, 0, 2, 2].into(),
        };
        assert!(limit.allows(&refused(256), second));
        assert!(!limit.allows(&refused(256), second + 1));
        assert!(limit.allows(&refused(256), 2 * second));
        let told =
            |second: u64| (0..1000).filter(|spi| limit.allows(&refused(*spi), second)).count();
        assert_eq!(told(3 * second), TOLD as usize);
        assert_eq!(told(4 * second), TOLD as usize);
        // Who knows no association hides nothing that happens to one.
        let forged = |spi: u32| Refused { why: Why::Forged, ..refused(spi) };
        let forged = (0..1000).filter(|spi| limit.allows(&forged(*spi), 4 * second)).count();
        assert_eq!(forged, TOLD as usize);
    }
}
