//! What an engine needs of the system, made before it starts.
//!
//! One engine follows another in a moment in which nothing may fail, for the one before has stopped ([`crate::Suspended`]).
//! So threads and descriptors are there before that moment: a thread waits for its work, and ends if none comes.
//!
//! ```text
//!  EngineSpec::reserve ─▶ Reserve (threads that wait, wakeups) ─▶ Engine::start_reserved ─▶ workers, masters
//!                            └─ dropped: the threads end
//! ```

use std::io;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};

use crate::engine::EngineSpec;
use crate::ring::Wakeup;
use crate::stage::Versions;
use crate::worker::Worker;

/// What runs on a thread.
type Work<R> = Box<dyn FnOnce() -> R + Send>;

/// A thread with what its work came to; nothing without work.
pub(crate) type Working<R> = JoinHandle<Option<R>>;

/// A thread that waits for its work.
pub(crate) struct Waiting<R> {
    work: SyncSender<Work<R>>,
    thread: Working<R>,
}

impl<R: Send + 'static> Waiting<R> {
    /// A thread of this name.
    ///
    /// # Errors
    /// The system gives none.
    pub(crate) fn new(name: String) -> io::Result<Self> {
        let (work, inbox) = sync_channel::<Work<R>>(1);
        let wait = move || inbox.recv().ok().map(|work| work());
        Ok(Self { work, thread: Builder::new().name(name).spawn(wait)? })
    }

    /// Gives it its work; what that comes to, from the thread.
    pub(crate) fn begin(self, work: impl FnOnce() -> R + Send + 'static) -> Working<R> {
        // It waits for nothing else, and there is room.
        let _ = self.work.send(Box::new(work));
        self.thread
    }
}

/// Threads and descriptors of an engine that is to start ([`Engine::start_reserved`](crate::Engine::start_reserved)). They
/// are given back if it is dropped.
pub struct Reserve<V: Versions> {
    pub(crate) workers: Vec<Waiting<Worker<V>>>,
    /// By worker.
    pub(crate) wakeups: Vec<Wakeup>,
    /// By device.
    pub(crate) masters: Vec<(Waiting<()>, Wakeup)>,
}

impl<V: Versions> EngineSpec<V> {
    /// Threads and descriptors for an engine of this spec.
    ///
    /// # Errors
    /// The system gives no thread or descriptor; nothing is left of those that it gave.
    pub fn reserve(&self) -> io::Result<Reserve<V>> {
        let worker = |i| Waiting::new(format!("worker-{i}"));
        let master = |i| Ok((Waiting::new(format!("master-{i}"))?, Wakeup::new()?));
        let workers = (0..self.workers.len()).map(worker).collect::<io::Result<_>>()?;
        let wakeups = self.workers.iter().map(|_| Wakeup::new()).collect::<io::Result<_>>()?;
        let masters = (0..self.devices.len()).map(master).collect::<io::Result<_>>()?;
        Ok(Reserve { workers, wakeups, masters })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_its_work_or_ends() {
        let waiting = Waiting::new("idle".into()).unwrap();
        let thread = waiting.begin(|| std::thread::current().name() == Some("idle"));
        assert_eq!(thread.join().unwrap(), Some(true));
        let Waiting::<u8> { work, thread } = Waiting::new("idle".into()).unwrap();
        drop(work);
        assert_eq!(thread.join().unwrap(), None);
    }
}
