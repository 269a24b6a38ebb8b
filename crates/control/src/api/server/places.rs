//! The places of a server: how many connections it has at once, and who gives one up for whom.
//!
//! ```text
//!  ├──────── connections ─────────┤── reserved ──┤     root and the server's own user may use all of them
//! ```
//!
//! Where no place is free, the connection that has waited longest for the rest of its request, or for the next one,
//! gives up its own: one without any request so far first. One whose request is being answered keeps it. So clients that
//! connect and say nothing, or say it byte by byte, keep nobody out. A connection of root gives way to root only.
//!
//! A request that is longer than usual needs a place, too: there is one for everybody, and one more for root.

use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rustix::net::sockopt;

use super::Limits;

/// Whether the peer is root, or the user of this process.
pub(super) fn is_root(stream: &UnixStream) -> bool {
    let own = rustix::process::geteuid();
    sockopt::socket_peercred(stream).is_ok_and(|peer| peer.uid.is_root() || peer.uid == own)
}

/// What a connection does, for those that want its place.
#[derive(Debug)]
pub(super) struct State {
    begin: Instant,
    /// [`BUSY`], [`ENDED`], or since when it waits for a request: twice the milliseconds since `begin`, from 2 on, and 1 more
    /// if it had a request before.
    waits: AtomicU64,
}

/// A request is being answered.
const BUSY: u64 = 0;
/// Its place was taken.
const ENDED: u64 = 1;

impl State {
    fn new(begin: Instant) -> Self {
        Self { begin, waits: AtomicU64::new(Self::since(begin, false)) }
    }

    fn since(begin: Instant, was_asked: bool) -> u64 {
        2 * (begin.elapsed().as_millis() as u64 + 1) + u64::from(was_asked)
    }

    /// A request is whole and will be answered; `false` if the place is gone.
    pub(super) fn begin_answer(&self) -> bool {
        let to_busy = |waits| (waits != ENDED).then_some(BUSY);
        self.waits.fetch_update(Ordering::AcqRel, Ordering::Acquire, to_busy).is_ok()
    }

    /// It is answered.
    pub(super) fn end_answer(&self) {
        self.waits.store(Self::since(self.begin, true), Ordering::Release);
    }
}

#[derive(Debug)]
struct Open {
    id: u64,
    /// To hang it up.
    stream: UnixStream,
    is_root: bool,
    state: Arc<State>,
}

/// The connections of a server.
#[derive(Debug)]
pub(super) struct Places {
    limits: Limits,
    begin: Instant,
    open: Mutex<Vec<Open>>,
    /// Long requests, of everybody.
    long: AtomicUsize,
}

impl Places {
    pub(super) fn new(limits: Limits) -> Self {
        let (open, long) = (Mutex::default(), AtomicUsize::new(0));
        Self { limits, begin: Instant::now(), open, long }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place for a connection; `None` where none can be had.
    pub(super) fn take(&self, id: u64, stream: &UnixStream, is_root: bool) -> Option<Arc<State>> {
        let handle = stream.try_clone().ok()?;
        let mut open = self.lock();
        let Limits { connections, reserved, .. } = self.limits;
        let others = open.iter().filter(|own| !own.is_root).count();
        let is_free = match is_root {
            true => open.len() < connections + reserved,
            false => others < connections && open.len() < connections + reserved,
        };
        if !is_free {
            self.evict(&mut open, is_root)?;
        }
        let state = Arc::new(State::new(self.begin));
        open.push(Open { id, stream: handle, is_root, state: state.clone() });
        Some(state)
    }

    /// Ends the connection that has waited longest.
    fn evict(&self, open: &mut Vec<Open>, for_root: bool) -> Option<()> {
        let late = 2 * self.begin.elapsed().saturating_sub(self.limits.grace).as_millis() as u64;
        loop {
            let waiting = open.iter().enumerate().filter_map(|(at, own)| {
                let waits = own.state.waits.load(Ordering::Acquire);
                let may_go = (for_root || !own.is_root) && waits != BUSY && waits < late;
                may_go.then_some((waits & 1, waits, at))
            });
            let (_, waits, at) = waiting.min()?;
            let state = open[at].state.clone();
            let taken =
                state.waits.compare_exchange(waits, ENDED, Ordering::AcqRel, Ordering::Acquire);
            // Else its request has come at this moment.
            if taken.is_ok() {
                let _ = open.swap_remove(at).stream.shutdown(std::net::Shutdown::Both);
                return Some(());
            }
        }
    }

    /// Gives the place back when it is dropped, however the connection ends.
    pub(super) fn until_dropped(&self, id: u64) -> impl Drop + '_ {
        Place(self, id)
    }

    /// A connection has ended.
    pub(super) fn give_back(&self, id: u64) {
        self.lock().retain(|own| own.id != id);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Shuts all connections.
    pub(super) fn shutdown(&self, how: std::net::Shutdown) {
        for own in self.lock().iter() {
            let _ = own.stream.shutdown(how);
        }
    }

    /// A place for a long request, until it is dropped.
    pub(super) fn long(&self, is_root: bool) -> Option<Long<'_>> {
        let most = 1 + usize::from(is_root);
        let more = |now| (now < most).then_some(now + 1);
        let taken = self.long.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        taken.is_ok().then(|| Long(&self.long))
    }
}

struct Place<'a>(&'a Places, u64);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.give_back(self.1);
    }
}

/// The place of a long request.
pub(super) struct Long<'a>(&'a AtomicUsize);

impl Drop for Long<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
