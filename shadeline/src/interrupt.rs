//! SIGINT and SIGTERM of commands that read captures or write them: the first one ends the work in order, so that files
//! are closed and totals printed; a second one ends the program at once. On a terminal of its own, SIGHUP is the same.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use chunk::{Packet, Pool};
use io::{Losses, QueueStats, RxQueue};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use crate::failure::Failure;

/// Whether a signal has come, and which.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupt {
    /// Set by a signal, or by what else makes it useless to go on.
    pub(crate) stop: Arc<AtomicBool>,
    signal: Arc<AtomicUsize>,
}

impl Interrupt {
    /// Takes both signals from here on.
    pub(crate) fn listen() -> Result<Self, Failure> {
        Self::of(&[SIGINT, SIGTERM])
    }

    /// Takes SIGHUP, too.
    pub(crate) fn listen_on_terminal() -> Result<Self, Failure> {
        Self::of(&[SIGINT, SIGTERM, SIGHUP])
    }

    fn of(signals: &[i32]) -> Result<Self, Failure> {
        let own = Self::default();
        let second = Arc::new(AtomicBool::new(false));
        for &signal in signals {
            // In this order: the first signal sets what the second one finds set.
            flag::register_conditional_shutdown(signal, 128 + signal, second.clone())
                .and_then(|_| flag::register(signal, second.clone()))
                .and_then(|_| flag::register_usize(signal, own.signal.clone(), signal as usize))
                .and_then(|_| flag::register(signal, own.stop.clone()))
                .map_err(Failure::other)?;
        }
        Ok(own)
    }

    /// The signal that came, with its name.
    pub(crate) fn caught(&self) -> Option<(i32, &'static str)> {
        match self.signal.load(Ordering::Relaxed) as i32 {
            0 => None,
            SIGINT => Some((SIGINT, "SIGINT")),
            SIGHUP => Some((SIGHUP, "SIGHUP")),
            signal => Some((signal, "SIGTERM")),
        }
    }

    /// Fails if a signal ended the work.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        self.caught().map_or(Ok(()), |(signal, _)| Err(Failure::interrupted(signal)))
    }
}

/// A queue that ends when it is to stop.
pub(crate) struct UntilStopped<Q> {
    pub(crate) inner: Q,
    pub(crate) stop: Arc<AtomicBool>,
}

impl<Q: RxQueue> RxQueue for UntilStopped<Q> {
    fn recv(&mut self, pool: &mut Pool, out: &mut Vec<Packet>, max: usize) -> usize {
        if self.stop.load(Ordering::Relaxed) {
            return 0;
        }
        self.inner.recv(pool, out, max)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.fd()
    }

    fn arm(&mut self) -> bool {
        self.inner.arm()
    }

    fn is_finished(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.inner.is_finished()
    }

    fn peek_time_ns(&mut self) -> Option<u64> {
        self.inner.peek_time_ns()
    }

    fn progress(&self) -> Option<(u64, u64)> {
        self.inner.progress()
    }

    fn take_error(&mut self) -> Option<String> {
        self.inner.take_error()
    }

    fn stats(&self) -> QueueStats {
        self.inner.stats()
    }

    fn losses(&self) -> Vec<Arc<Losses>> {
        self.inner.losses()
    }
}
