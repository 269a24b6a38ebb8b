//! What a service manager gets to know: ready, reloading, stopping, and that the program makes progress.
//!
//! The protocol is that of `sd_notify(3)`: datagrams of `KEY=VALUE` lines to the socket that `$NOTIFY_SOCKET` names.
//! Without that variable nothing is sent. The watchdog (`$WATCHDOG_USEC`) is fed by the control loop, and only while
//! every worker has taken a turn since the last time: a worker without packets wakes ten times a second, so one that
//! has not is stuck.
//!
//! ```text
//!  live::run ── READY=1 ─────────────▶ $NOTIFY_SOCKET
//!  control loop ─ WATCHDOG=1 ────────▶      (each turn: workers' turns ≠ those at the last WATCHDOG=1)
//!               ─ RELOADING=1, READY=1 ▶
//!  live::run ── STOPPING=1 ──────────▶
//! ```
//!
//! Threads: every message is one datagram, so any thread may send. A manager that does not read holds a thread for
//! [`PATIENCE`] at most, and the message is lost.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// How long a message may wait for room in the manager's queue.
const PATIENCE: Duration = Duration::from_secs(1);

/// The service manager, if there is one.
pub(crate) struct Service {
    socket: Option<UnixDatagram>,
    is_stopping: AtomicBool,
}

impl Service {
    /// The manager that the environment names.
    pub(crate) fn from_environment() -> Self {
        let socket = std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty());
        let socket = socket.and_then(|name| {
            let connected = connect(&name);
            let failed = |error| {
                tracing::warn!("NOTIFY_SOCKET {}: {error}", name.display());
            };
            connected.map_err(failed).ok()
        });
        Self { socket, is_stopping: AtomicBool::new(false) }
    }

    /// Everything runs; `status` says what that is.
    pub(crate) fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={status}"));
    }

    /// A reload begins; [`Service::reloaded`] ends it.
    pub(crate) fn reloading(&self) {
        if self.is_stopping.load(Ordering::Acquire) {
            return;
        }
        let now = clock_gettime(ClockId::Monotonic);
        let us = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1000;
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={us}\nSTATUS=reloading"));
    }

    /// A reload has ended; if it failed, the earlier configuration stays in use. `status` says what runs. Nothing is said
    /// once the end has begun: the manager would take it for a new start.
    pub(crate) fn reloaded(&self, status: &str, good: bool) {
        let note = if good { "" } else { "; the last reload failed: see the log" };
        if !self.is_stopping.load(Ordering::Acquire) {
            self.ready(&format!("{status}{note}"));
        }
    }

    /// The end begins.
    pub(crate) fn stopping(&self) {
        self.is_stopping.store(true, Ordering::Release);
        self.send("STOPPING=1\nSTATUS=draining");
    }

    fn alive(&self) {
        self.send("WATCHDOG=1");
    }

    /// What cannot be sent is not worth a failure: the manager sees it by its own time limits.
    fn send(&self, text: &str) {
        if let Some(socket) = &self.socket
            && let Err(error) = socket.send(text.as_bytes())
        {
            tracing::debug!("service manager: {error}");
        }
    }
}

/// A path, or with `@` in front an abstract name.
fn connect(name: &OsStr) -> io::Result<UnixDatagram> {
    let address = match name.as_bytes() {
        [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest)?,
        [b'/', ..] => SocketAddr::from_pathname(name)?,
        _ => {
            let message = "expected an absolute path, or `@` and an abstract name";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    socket.set_write_timeout(Some(PATIENCE))?;
    Ok(socket)
}

/// Tells the manager that the program is alive, as often as it wants to hear that.
pub(crate) struct Watchdog {
    every: Duration,
    last: Instant,
    /// The workers' turns when it was last told.
    turns: Vec<u64>,
}

impl Watchdog {
    /// The watchdog that the environment asks this process for.
    pub(crate) fn from_environment() -> Option<Self> {
        let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
        let own = std::process::id();
        let is_ours = std::env::var_os("WATCHDOG_PID").is_none()
            || number("WATCHDOG_PID") == Some(own.into());
        let limit = number("WATCHDOG_USEC").filter(|us| is_ours && *us > 0)?;
        Some(Self::new(Duration::from_micros(limit), Instant::now()))
    }

    /// A manager that acts after `limit` without a word hears one twice as often.
    fn new(limit: Duration, now: Instant) -> Self {
        Self { every: limit / 2, last: now, turns: Vec::new() }
    }

    /// A turn of the control loop; `turns` are the workers', which only grow.
    pub(crate) fn turn(&mut self, service: &Service, turns: impl Iterator<Item = u64>) {
        if self.is_due(Instant::now(), turns) {
            service.alive();
        }
    }

    /// Whether it is time, and every worker has moved. If one has not, the next turn asks again.
    fn is_due(&mut self, now: Instant, turns: impl Iterator<Item = u64>) -> bool {
        if now.duration_since(self.last) < self.every {
            return false;
        }
        let turns: Vec<u64> = turns.collect();
        let stuck = turns.iter().zip(&self.turns).any(|(now, then)| now == then);
        if stuck {
            return false;
        }
        (self.last, self.turns) = (now, turns);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_watchdog_is_fed_while_every_worker_moves() {
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        let mut watchdog = Watchdog::new(Duration::from_millis(200), begin);
        let mut due = |ms, turns: [u64; 2]| watchdog.is_due(at(ms), turns.into_iter());
        assert!(!due(99, [1, 1]), "too early");
        assert!(due(100, [1, 1]));
        assert!(!due(150, [2, 2]), "too early again");
        assert!(!due(200, [2, 1]), "the second worker is stuck");
        assert!(!due(250, [9, 1]));
        assert!(due(260, [9, 2]), "it moves again");
        assert!(!due(400, [9, 9]), "the first is stuck");
    }

    #[test]
    fn names_of_sockets() {
        let wrong = |name: &str| connect(OsStr::new(name)).expect_err(name).to_string();
        assert!(wrong("run/notify").starts_with("expected an absolute path"));
        assert!(wrong("vsock:2:1234").starts_with("expected an absolute path"));
        assert!(wrong(&format!("/{}", "x".repeat(200))).contains("path"));
        let name = format!("shadeline-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        let socket = connect(OsStr::new(&format!("@{name}"))).unwrap();
        let service = Service { socket: Some(socket), is_stopping: AtomicBool::new(false) };
        let mut bytes = [0; 200];
        let mut said = || {
            let length = manager.recv(&mut bytes).unwrap();
            String::from_utf8_lossy(&bytes[..length]).into_owned()
        };
        service.ready("2 ports, 1 worker");
        assert_eq!(said(), "READY=1\nSTATUS=2 ports, 1 worker");
        service.reloaded("3 ports, 1 worker", false);
        let failed = "READY=1\nSTATUS=3 ports, 1 worker; the last reload failed: see the log";
        assert_eq!(said(), failed);
        service.stopping();
        assert_eq!(said(), "STOPPING=1\nSTATUS=draining");
        service.reloading();
        service.reloaded("3 ports, 1 worker", true);
        manager.set_nonblocking(true).unwrap();
        assert!(manager.recv(&mut [0; 9]).is_err(), "the end has begun");
    }
}
