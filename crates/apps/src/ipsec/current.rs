//! What the stages read, and what they count.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};

use engine::Counter;
use ipsec::{Template, Tuple, View};
use xfrm::Change;

/// What control hears of.
#[derive(Debug)]
pub enum Event {
    /// Associations and policies of Linux have changed.
    Linux(Vec<Change>),
    /// A packet has no association.
    Wanted(Tuple, Template),
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

    fn ask(&self, template: Template, tuple: Tuple, now_ns: u64) {
        let place = self.hash.hash_one(template) as usize % ASKED;
        let last = self.asked_ns[place].load(Ordering::Relaxed);
        let is_due = last == 0 || now_ns.saturating_sub(last) >= ASK_NS;
        let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
        let slot = &self.asked_ns[place];
        if is_due && slot.compare_exchange(last, now_ns.max(1), success, failure).is_ok() {
            // If control is behind, the next packet asks.
            let _ = self.sender.try_send(Event::Wanted(tuple, template));
        }
    }
}

/// The view in use, which control replaces.
#[derive(Debug)]
pub struct Current {
    generation: AtomicU64,
    view: Mutex<Arc<View>>,
    asker: Option<Asker>,
    /// Live runs.
    sender: Option<SyncSender<Event>>,
}

impl Current {
    /// The first one. `sender` leads to control; `asker` asks there for associations, if anybody makes them.
    pub fn new(view: Arc<View>, sender: Option<SyncSender<Event>>, asker: Option<Asker>) -> Self {
        Self { generation: AtomicU64::new(0), view: Mutex::new(view), asker, sender }
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

    fn get(&self) -> Arc<View> {
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

    /// Asks for an association that a packet lacks, if there is anybody who makes one.
    pub fn ask(&self, template: Template, tuple: Tuple, now_ns: u64) {
        if let Some(asker) = &self.current.asker {
            asker.ask(template, tuple, now_ns);
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
    /// Packets that passed by a policy, or because none matches.
    pub passed: Counter,
    /// Packets for which no association was there: what a daemon would be asked for.
    pub wanted: Counter,
}
