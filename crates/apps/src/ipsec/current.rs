//! What the stages read, and what they count.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use engine::Counter;
use ipsec::View;

/// The view in use, which control replaces.
#[derive(Debug)]
pub struct Current {
    generation: AtomicU64,
    view: Mutex<Arc<View>>,
}

impl Current {
    /// The first one.
    pub fn new(view: Arc<View>) -> Self {
        Self { generation: AtomicU64::new(0), view: Mutex::new(view) }
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
