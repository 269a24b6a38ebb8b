//! Where lines go: a file, a named pipe, a Unix socket, standard output.
//!
//! Whoever reports flows must not wait for a disk or for another program. So lines go into a bounded queue of bytes, and a
//! thread of the sink writes them. What finds no room, or nobody who takes it, is lost and counted, always in whole lines.
//!
//! ```text
//!  push ──▶ queue ──▶ thread ──▶ file ─────── a failed write: its lines are lost; the next ones are tried again
//!  reopen ─▶ mark ──────┘    ├─▶ Unix socket ─ nobody listens: lines are lost; connects again once a second
//!                            └─▶ named pipe ── nobody reads: lines wait in the queue, as many as it has room for
//! ```
//!
//! *Rotation*: a program renames the file and sends SIGHUP; [`Sink::reopen`] then opens the file again by its name. Lines
//! that were pushed before go to the old file. If the new file cannot be opened, the old one stays in use.
//!
//! Threads: [`Sink`] may be shared; it has one thread of its own.

mod outlet;

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::queue::{Queue, Turn};
use outlet::{FileOutlet, Outlet, PipeOutlet, UnixOutlet};

/// Where lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A file that is appended to, and made if it is missing; `-` is standard output. A named pipe may have no reader yet.
    File(PathBuf),
    /// A Unix socket (stream) on which another program listens.
    Unix(PathBuf),
}

/// Limits of a sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Room for lines that wait for the thread, in bytes. There is as much again for those that it writes.
    pub capacity: usize,
    /// Time between two attempts to connect.
    pub reconnect: Duration,
    /// How long the end of the sink waits for lines that are not written yet.
    pub linger: Duration,
}

impl Default for Options {
    /// 4 MiB, about 8,000 lines; 1 s; 2 s.
    fn default() -> Self {
        let (reconnect, linger) = (Duration::from_secs(1), Duration::from_secs(2));
        Self { capacity: 4 << 20, reconnect, linger }
    }
}

/// What became of lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Lines that the file or the socket took. A socket may take lines that its reader never reads.
    pub written: u64,
    /// Lines lost because the queue was full, or the sink was closed.
    pub lost_queue_full: u64,
    /// Lines lost because nobody listened on the socket, or read from the named pipe until the end.
    pub lost_not_connected: u64,
    /// Lines lost because a write failed, as on a full disk, or was not over at the end.
    pub lost_write: u64,
    /// Times that the file was opened again, and connections of the socket.
    pub opened: u64,
    /// Errors of writing, opening and connecting.
    pub errors: u64,
}

#[derive(Default)]
pub(crate) struct Tally {
    written: AtomicU64,
    lost_queue_full: AtomicU64,
    lost_not_connected: AtomicU64,
    lost_write: AtomicU64,
    opened: AtomicU64,
    errors: AtomicU64,
    last_error: Mutex<Option<String>>,
    waits: AtomicBool,
}

impl Tally {
    fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }

    fn failed(&self, what: &str, error: &io::Error) {
        Self::add(&self.errors, 1);
        let mut last = self.last_error.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Some(format!("{what}: {error}"));
    }
}

struct Shared {
    queue: Queue<u8>,
    tally: Tally,
    options: Options,
    /// Of the target, for the log.
    name: String,
}

/// Takes lines and writes them on a thread of its own. When it is dropped, it waits as [`Sink::close`] does.
pub struct Sink {
    shared: Arc<Shared>,
    /// Disconnected when the thread has ended.
    ended: Mutex<Receiver<()>>,
}

impl Sink {
    /// Opens the target and starts the thread. A socket and the reader of a named pipe need not be there yet.
    ///
    /// # Errors
    /// The file cannot be opened, or there is no further thread.
    pub fn start(target: Target, options: Options) -> io::Result<Sink> {
        let tally = Tally::default();
        let (Target::File(path) | Target::Unix(path)) = &target;
        let name = files::output::name(path).to_string();
        let mut outlet: Box<dyn Outlet + Send> = match target {
            Target::File(path) if PipeOutlet::is_pipe(&path) => {
                Box::new(PipeOutlet::open(path, &tally)?)
            }
            Target::File(path) => Box::new(FileOutlet::open(path)?),
            Target::Unix(path) => Box::new(UnixOutlet::new(path, options.reconnect)),
        };
        let queue = Queue::new(options.capacity);
        let shared = Arc::new(Shared { queue, tally, options, name });
        let (alive, ended) = sync_channel::<()>(0);
        let of_thread = Arc::clone(&shared);
        let body = move || {
            run(&of_thread, outlet.as_mut());
            drop(alive);
        };
        thread::Builder::new().name("flow log".into()).spawn(body)?;
        Ok(Sink { shared, ended: Mutex::new(ended) })
    }

    /// Hands over whole lines, each with its newline. Never waits; false if they are lost because there is no room.
    pub fn push(&self, lines: &[u8]) -> bool {
        let is_taken = self.shared.queue.push(lines);
        if !is_taken {
            Tally::add(&self.shared.tally.lost_queue_full, outlet::count_lines(lines));
        }
        is_taken
    }

    /// The same, and waits for room, as long as nothing has failed.
    pub fn push_in_time(&self, lines: &[u8]) -> bool {
        let has_failed = || self.last_error().is_some();
        let is_taken = self.shared.queue.push_in_time(lines, has_failed);
        if !is_taken {
            Tally::add(&self.shared.tally.lost_queue_full, outlet::count_lines(lines));
        }
        is_taken
    }

    /// Opens the file again by its name, or connects again. Never waits.
    pub fn reopen(&self) {
        self.shared.queue.mark();
    }

    /// What became of lines so far.
    pub fn counters(&self) -> Counters {
        let tally = &self.shared.tally;
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counters {
            written: value(&tally.written),
            lost_queue_full: value(&tally.lost_queue_full),
            lost_not_connected: value(&tally.lost_not_connected),
            lost_write: value(&tally.lost_write),
            opened: value(&tally.opened),
            errors: value(&tally.errors),
        }
    }

    /// The last error, for a log.
    pub fn last_error(&self) -> Option<String> {
        let last = self.shared.tally.last_error.lock();
        last.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether a named pipe has no reader: lines wait for one in the queue.
    pub fn is_waiting(&self) -> bool {
        self.shared.tally.waits.load(Ordering::Relaxed)
    }

    /// Takes no further lines, and waits up to [`Options::linger`] until those in the queue are written. A thread that is
    /// still in a system call then is left to itself.
    pub fn close(&self) -> Counters {
        self.shared.queue.close();
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = ended.recv_timeout(self.shared.options.linger);
        self.counters()
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.close();
    }
}

/// How long a write may go on after the end was asked for: half of the time that the end waits, so that what is given up
/// is counted before it looks.
pub(crate) struct Patience<'a> {
    closed_for: &'a dyn Fn() -> Option<Duration>,
    linger: Duration,
}

impl<'a> Patience<'a> {
    /// `closed_for`: how long the queue has been closed; `linger`: how long the end waits.
    pub(crate) fn new(closed_for: &'a dyn Fn() -> Option<Duration>, linger: Duration) -> Self {
        Self { closed_for, linger }
    }

    /// Whether what is left is given up.
    pub(crate) fn is_over(&self) -> bool {
        (self.closed_for)().is_some_and(|time| time >= self.linger / 2)
    }
}

/// When an output says that lines or records are lost, and that they are written again: the first of them, and at most once a
/// minute.
#[derive(Debug, Default)]
pub struct Losses {
    /// Those that went out when it looked last.
    written: u64,
    /// Those that were lost when it looked last, and before the first that was said.
    lost: u64,
    before: u64,
    is_losing: bool,
    said: Option<Instant>,
}

impl Losses {
    const PAUSE: Duration = Duration::from_secs(60);

    /// `written` and `lost`: of all lines (`what`) so far, those that went out and those that are lost. What there is to say.
    pub fn turn(
        &mut self,
        what: &str,
        (written, lost): (u64, u64),
        why: Option<&str>,
        now: Instant,
    ) -> Option<String> {
        let has_written = std::mem::replace(&mut self.written, written) < written;
        let before = std::mem::replace(&mut self.lost, lost);
        if lost > before {
            let is_due = self.said.is_none_or(|said| now.duration_since(said) >= Self::PAUSE);
            if self.is_losing || !is_due {
                return None;
            }
            (self.is_losing, self.before, self.said) = (true, before, Some(now));
            let why = why.unwrap_or("the output is too slow");
            return Some(format!("{what} are lost: {why}"));
        }
        if !self.is_losing || !has_written {
            return None;
        }
        self.is_losing = false;
        Some(format!("{what} are written again; {} were lost", lost - self.before))
    }
}

/// Time between two attempts to connect while there are no lines, if [`Options::reconnect`] is less.
const WAIT_MIN: Duration = Duration::from_millis(10);

fn run(shared: &Shared, outlet: &mut dyn Outlet) {
    let closed_for = || shared.queue.closed_for();
    let patience = Patience::new(&closed_for, shared.options.linger);
    let tally = &shared.tally;
    let mut lines = Vec::new();
    let wait = shared.options.reconnect.max(WAIT_MIN);
    outlet.idle(tally);
    let mut losses = Losses::default();
    loop {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let lost = [&tally.lost_write, &tally.lost_queue_full, &tally.lost_not_connected];
        let counts = (count(&tally.written), lost.into_iter().map(count).sum());
        let why = tally.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(said) = losses.turn("lines", counts, why.as_deref(), Instant::now()) {
            tracing::warn!("{}: {said}", shared.name);
        }
        match shared.queue.take(&mut lines, wait) {
            Turn::Nothing => outlet.idle(tally),
            Turn::End => return,
            Turn::Entries { mark: None } => outlet.write(&lines, &patience, tally),
            Turn::Entries { mark: Some(mark) } => {
                let (before, after) = lines.split_at(mark);
                outlet.write(before, &patience, tally);
                outlet.reopen(tally);
                outlet.write(after, &patience, tally);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first loss and the end of it are said, and no more than one pair a minute.
    #[test]
    fn losses_are_said_once() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let (mut losses, full) = (Losses::default(), Some("a: No space left on device"));
        let mut turn = |counts, why, at| losses.turn("lines", counts, why, at);
        assert_eq!(turn((1, 0), None, at(0)), None);
        let said = turn((2, 5), full, at(1)).unwrap();
        assert_eq!(said, "lines are lost: a: No space left on device");
        assert_eq!(turn((2, 9), full, at(2)), None);
        assert_eq!(turn((2, 9), full, at(3)), None);
        let said = turn((3, 9), full, at(4)).unwrap();
        assert_eq!(said, "lines are written again; 9 were lost");
        assert_eq!(turn((4, 10), full, at(5)), None);
        assert_eq!(turn((5, 10), full, at(6)), None);
        assert!(turn((6, 12), full, at(61)).is_some());
        let said = turn((7, 12), full, at(62)).unwrap();
        assert_eq!(said, "lines are written again; 2 were lost");
    }
}
