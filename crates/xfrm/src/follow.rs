//! A thread that follows the kernel and takes what is to be written back.
//!
//! ```text
//!  groups SA, POLICY, EXPIRE, MIGRATE ─▶ Listener ─▶ Mirror ─▶ Vec<Change> ─▶ sink
//!                                          │ ENOBUFS    ▲
//!                                          └─▶ read all, then dump (Client)
//!  Follower::send ─▶ requests ─▶ Client ─▶ kernel
//! ```
//!
//! Changes of a turn are one batch. The first batch after a dump is complete, so the consumer has all that was there when
//! [`Follower::start`] was called once it sees [`FollowerStats::is_in_step`].
//!
//! Requests are answered in turn; what is refused is counted, because the association may be gone already.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use control::netlink::{Client, Error, Listener, Received};
use rustix::event::{EventfdFlags, eventfd};

use crate::message::{Kind, Message, NETLINK_XFRM, group};
use crate::mirror::{Bounds, Change, Mirror, MirrorStats};

const GROUPS: [u32; 4] = [group::SA, group::POLICY, group::EXPIRE, group::MIGRATE];
/// Datagrams taken before the thread looks at its other duties.
const TAKE_MAX: usize = 4096;
/// Requests that wait at most; the newest ones are dropped.
const REQUESTS_MAX: usize = 1 << 14;
/// Time before a dump that failed is tried again.
const RETRY: Duration = Duration::from_millis(200);
/// Longest time without a look at the kernel.
const IDLE: Duration = Duration::from_secs(10);

/// How to follow.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Most entries.
    pub bounds: Bounds,
    /// Receive buffer for events, bytes.
    pub receive_buffer_bytes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { bounds: Bounds::default(), receive_buffer_bytes: 8 << 20 }
    }
}

/// What the thread has done.
#[derive(Debug, Clone, Default)]
pub struct FollowerStats {
    /// What the mirror has seen.
    pub mirror: MirrorStats,
    /// The consumer has what the kernel had at the last look.
    pub is_in_step: bool,
    /// Messages that could not be read.
    pub unread: u64,
    /// Requests that the kernel took, and announcements.
    pub written: u64,
    /// Requests that it refused.
    pub refused: u64,
    /// Requests that were dropped, because too many waited.
    pub dropped: u64,
    /// Failures to talk to the kernel; each is tried again.
    pub errors: u64,
    /// The last refusal, failure or message that could not be read, in words.
    pub last_error: Option<String>,
}

/// A running thread; dropping it ends it.
#[derive(Debug)]
pub struct Follower {
    requests: SyncSender<(Message, u16)>,
    wake: Arc<OwnedFd>,
    stop: Arc<AtomicBool>,
    stats: Arc<Mutex<FollowerStats>>,
    thread: Option<JoinHandle<()>>,
}

impl Follower {
    /// Follows the kernel of the calling thread's network namespace. `sink` gets each batch on the thread, in order; it
    /// returns `false` to end it.
    ///
    /// # Errors
    ///
    /// The sockets cannot be opened, or the kernel has no XFRM. Later failures are counted and tried again.
    pub fn start(
        options: Options,
        sink: impl FnMut(Vec<Change>) -> bool + Send + 'static,
    ) -> Result<Self, Error> {
        let failed = |source: std::io::Error| Error::Socket {
            what: "following the kernel's IPsec".to_owned(),
            source,
        };
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let wake = Arc::new(eventfd(0, flags).map_err(|error| failed(error.into()))?);
        let (requests, inbox) = mpsc::sync_channel(REQUESTS_MAX);
        let stop = Arc::new(AtomicBool::new(false));
        let stats = Arc::new(Mutex::new(FollowerStats::default()));
        let mut worker = Worker {
            // Opened here: a socket belongs to the namespace of the thread that opens it.
            listener: Listener::secret(NETLINK_XFRM, &GROUPS, options.receive_buffer_bytes)?,
            client: Client::secret(NETLINK_XFRM)?,
            mirror: Mirror::new(options.bounds),
            sink: Box::new(sink),
            inbox,
            wake: wake.clone(),
            stop: stop.clone(),
            shared: stats.clone(),
            stats: FollowerStats::default(),
            retry_at: None,
        };
        let thread = std::thread::Builder::new().name("xfrm".into());
        let thread = thread.spawn(move || worker.run()).map_err(failed)?;
        Ok(Self { requests, wake, stop, stats, thread: Some(thread) })
    }

    /// Announces where a peer is: what [`mapping`](crate::mapping) has made.
    pub fn announce(&self, message: Message) {
        self.send((message, 0));
    }

    /// Writes something back: what [`counters`](crate::counters) and its kin have made.
    pub fn send(&self, request: (Message, u16)) {
        if let Err(TrySendError::Full(_)) = self.requests.try_send(request) {
            self.stats.lock().unwrap_or_else(PoisonError::into_inner).dropped += 1;
        }
        self.wake();
    }

    /// What it has done so far.
    pub fn stats(&self) -> FollowerStats {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn wake(&self) {
        // A counter that is full wakes as well.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Worker {
    listener: Listener,
    client: Client,
    mirror: Mirror,
    sink: Box<dyn FnMut(Vec<Change>) -> bool + Send>,
    inbox: Receiver<(Message, u16)>,
    wake: Arc<OwnedFd>,
    stop: Arc<AtomicBool>,
    shared: Arc<Mutex<FollowerStats>>,
    stats: FollowerStats,
    retry_at: Option<Instant>,
}

impl Worker {
    fn run(&mut self) {
        while !self.stop.load(Ordering::Relaxed) {
            let is_empty = self.listen();
            let is_due = self.retry_at.is_none_or(|at| Instant::now() >= at);
            if is_empty && self.mirror.wants_dump() && is_due {
                self.dump();
            }
            let changes = self.mirror.take_changes();
            if !changes.is_empty() && !(self.sink)(changes) {
                break;
            }
            self.write();
            self.report();
            if is_empty && !self.rest() {
                break;
            }
        }
    }

    /// Takes events; whether there are no more.
    fn listen(&mut self) -> bool {
        for _ in 0..TAKE_MAX {
            match self.listener.take() {
                Ok(Received::Messages(messages)) => {
                    for own in messages {
                        match Message::decode(own.kind, own.flags, own.payload) {
                            Ok(message) => self.mirror.event(&message),
                            Err(error) => {
                                self.mirror.unread(own.kind);
                                self.stats.unread += 1;
                                self.stats.last_error = Some(error.to_string());
                            }
                        }
                    }
                }
                Ok(Received::Overrun) => self.mirror.overrun(),
                Ok(Received::Nothing) => return true,
                Err(error) => {
                    self.stats.errors += 1;
                    self.stats.last_error = Some(error.to_string());
                    self.mirror.overrun();
                    return true;
                }
            }
        }
        false
    }

    fn dump(&mut self) {
        self.mirror.begin();
        let mut is_torn = false;
        for (what, kind) in
            [("reading associations", Kind::GetSa), ("reading policies", Kind::GetPolicy)]
        {
            let (mirror, stats) = (&mut self.mirror, &mut self.stats);
            let each = |own: control::netlink::Message<'_>| match Message::decode(
                own.kind,
                own.flags,
                own.payload,
            ) {
                Ok(message) => mirror.dumped(&message),
                Err(error) => {
                    mirror.unread(own.kind);
                    stats.unread += 1;
                    stats.last_error = Some(error.to_string());
                }
            };
            match self.client.dump(what, kind.number(), &[], each) {
                Ok(end) => is_torn |= end.interrupted,
                Err(error) => {
                    is_torn = true;
                    self.stats.errors += 1;
                    self.stats.last_error = Some(error.to_string());
                }
            }
        }
        self.mirror.end(is_torn);
        self.retry_at = is_torn.then(|| Instant::now() + RETRY);
    }

    fn write(&mut self) {
        for (message, flags) in self.inbox.try_iter().take(TAKE_MAX) {
            let body = message.encode();
            let what = format!("writing back ({:?})", message.kind);
            let number = message.kind.number();
            let done = match message.kind {
                Kind::Mapping => self.client.announce(&what, number, group::MAPPING, body.expose()),
                _ => self.client.change(&what, number, flags, body.expose()),
            };
            match done {
                Ok(()) => self.stats.written += 1,
                Err(error) => {
                    self.stats.refused += 1;
                    self.stats.last_error = Some(error.to_string());
                }
            }
        }
    }

    fn report(&mut self) {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        self.stats.mirror = self.mirror.stats();
        self.stats.is_in_step = self.mirror.is_in_step();
        self.stats.dropped = shared.dropped;
        shared.clone_from(&self.stats);
    }

    /// Waits for something to do; `false` if that is impossible.
    fn rest(&mut self) -> bool {
        let limit = match (self.mirror.wants_dump(), self.retry_at) {
            (false, _) => IDLE,
            (true, at) => {
                at.map_or(Duration::ZERO, |at| at.saturating_duration_since(Instant::now()))
            }
        };
        if let Err(error) = self.listener.wait(self.wake.as_fd(), limit) {
            self.stats.errors += 1;
            self.stats.last_error = Some(error.to_string());
            self.report();
            return false;
        }
        let _ = rustix::io::read(&self.wake, &mut [0u8; 8]);
        true
    }
}
