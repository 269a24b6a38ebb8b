//! Rings between workers, and the bell that wakes one.
//!
//! A queue belongs to one worker. Where a port has fewer queues than there are workers, the owner
//! spreads what it receives over the others by a symmetric flow hash, so that a flow stays with one
//! worker; and a worker that wants to send by a port whose queue is another's hands the packet to
//! that one. Both ways are lock-free rings with one producer and one consumer.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chunk::Packet;
use rustix::event::{EventfdFlags, eventfd};

/// What travels between workers.
#[derive(Debug)]
pub(crate) enum Passed {
    /// A received packet, to be worked on there.
    Received(Packet),
    /// To be sent by the port.
    Transmit(Packet, u16),
    /// For the twin of the port.
    Host(Packet, u16),
    /// To enter the pipeline at a place.
    Again(Again),
}

/// A packet that enters the pipeline at a place.
#[derive(Debug)]
pub(crate) struct Again {
    pub(crate) packet: Packet,
    /// The segment.
    pub(crate) place: u16,
    /// How often it has entered one before, this time included.
    pub(crate) passes: u8,
}

impl Passed {
    /// The packet, whatever was to become of it.
    pub(crate) fn into_packet(self) -> Packet {
        match self {
            Passed::Received(packet)
            | Passed::Transmit(packet, _)
            | Passed::Host(packet, _)
            | Passed::Again(Again { packet, .. }) => packet,
        }
    }
}

/// Wakes a worker or a master that blocks. Ringing costs a system call only if it sleeps.
#[derive(Clone, Debug)]
pub(crate) struct Bell(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    asleep: AtomicBool,
    event: OwnedFd,
}

impl Bell {
    /// A bell nobody listens to yet.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub(crate) fn new() -> std::io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self(Arc::new(Inner { asleep: AtomicBool::new(false), event })))
    }

    /// Wakes the listener, if it sleeps.
    #[inline]
    pub(crate) fn ring(&self) {
        // Pairs with the fence in `about_to_sleep`: either the ringer sees that the listener
        // sleeps, or the listener sees what the ringer left before it looked for the last time.
        std::sync::atomic::fence(Ordering::SeqCst);
        if self.0.asleep.load(Ordering::Relaxed) {
            // A full counter is as good as a rung bell.
            let _ = rustix::io::write(&self.0.event, &1u64.to_ne_bytes());
        }
    }

    /// The listener says that it will block; it must look for work once more after this.
    pub(crate) fn about_to_sleep(&self) {
        self.0.asleep.store(true, Ordering::Relaxed);
        std::sync::atomic::fence(Ordering::SeqCst);
    }

    /// The listener is awake again.
    pub(crate) fn awake(&self) {
        self.0.asleep.store(false, Ordering::Relaxed);
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.0.event, &mut count);
    }

    /// Blocks until the bell is rung or `wait` has passed, but not where there is work.
    pub(crate) fn wait_unless(&self, wait: Duration, has_work: impl FnOnce() -> bool) {
        self.about_to_sleep();
        if !has_work() {
            crate::worker::poll_fds(&[self.fd()], Some(wait));
        }
        self.awake();
    }

    /// Becomes readable when the bell is rung.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.event.as_fd()
    }
}
