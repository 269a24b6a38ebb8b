//! Rings between workers, and what wakes one that blocks.
//!
//! A queue belongs to one worker. Where a port has fewer queues than there are workers, the owner
//! spreads what it receives over the others by a symmetric flow hash, so that a flow stays with one
//! worker; and a worker that wants to send by a port whose queue is another's hands the packet to
//! that one. Both ways are lock-free rings with one producer and one consumer.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use chunk::Packet;
use rustix::event::{EventfdFlags, eventfd};

use sync::{AtomicBool, Ordering, fence};

/// loom's twins of the std types, under the model checker.
mod sync {
    #[cfg(loom)]
    pub(super) use loom::sync::atomic::{AtomicBool, Ordering, fence};
    #[cfg(not(loom))]
    pub(super) use std::sync::atomic::{AtomicBool, Ordering, fence};
}

/// What travels between workers.
#[derive(Debug)]
pub(crate) enum Passed {
    /// A received packet, to be worked on there, in the pipeline with this number.
    Received(Packet, u16),
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
            Passed::Received(packet, _)
            | Passed::Transmit(packet, _)
            | Passed::Host(packet, _)
            | Passed::Again(Again { packet, .. }) => packet,
        }
    }
}

/// Whether a listener sleeps. The protocol of [`Wakeup`], apart from what makes the listener block.
#[derive(Debug)]
struct Sleep(AtomicBool);

impl Sleep {
    fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Whether the caller, who has left work, must wake the listener.
    #[inline]
    fn must_wake(&self) -> bool {
        // Pairs with the fence in `begin`: either the waker sees that the listener sleeps, or the
        // listener sees what the waker left before it looked for the last time.
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Relaxed)
    }

    /// The listener will block; it must look for work once more after this.
    fn begin(&self) {
        self.0.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// The listener is awake.
    fn end(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Wakes a worker or a master that blocks. Waking costs a system call only if it sleeps.
#[derive(Clone, Debug)]
pub(crate) struct Wakeup(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    sleep: Sleep,
    event: OwnedFd,
}

impl Wakeup {
    /// A wakeup without a waiter yet.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub(crate) fn new() -> std::io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self(Arc::new(Inner { sleep: Sleep::new(), event })))
    }

    /// Wakes the listener, if it sleeps.
    #[inline]
    pub(crate) fn wake(&self) {
        if self.0.sleep.must_wake() {
            // A full counter is as good as one more wakeup.
            let _ = rustix::io::write(&self.0.event, &1u64.to_ne_bytes());
        }
    }

    /// The listener says that it will block; it must look for work once more after this.
    pub(crate) fn about_to_sleep(&self) {
        self.0.sleep.begin();
    }

    /// The listener is awake again.
    pub(crate) fn awake(&self) {
        self.0.sleep.end();
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.0.event, &mut count);
    }

    /// Blocks until it is woken or `wait` has passed, but not if there is work.
    pub(crate) fn wait_unless(&self, wait: Duration, has_work: impl FnOnce() -> bool) {
        self.about_to_sleep();
        if !has_work() {
            crate::worker::poll_fds(&[self.fd()], Some(wait));
        }
        self.awake();
    }

    /// Becomes readable when the listener is woken.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.event.as_fd()
    }
}

/// `RUSTFLAGS="--cfg loom" cargo test -p engine --lib model::`
#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::sync::atomic::AtomicUsize;
    use loom::sync::{Arc, Notify};
    use loom::thread;

    struct Shared {
        sleep: Sleep,
        /// Stands for the descriptor: it stays signalled until a wait has seen it.
        event: Notify,
        /// Stands for the rings to the listener, one for each waker, each with room for what is sent:
        /// the number of packets in it, published as `rtrb` does it.
        rings: Vec<AtomicUsize>,
    }

    /// The listener takes `each` packets from each waker and sleeps in between. If a wake-up were lost, it
    /// would sleep for ever, which loom reports.
    fn check(wakers: usize, each: usize, preemptions: usize) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(preemptions);
        model.check(move || {
            let rings = (0..wakers).map(|_| AtomicUsize::new(0)).collect();
            let shared = Arc::new(Shared { sleep: Sleep::new(), event: Notify::new(), rings });
            let threads: Vec<_> = (0..wakers)
                .map(|i| {
                    let shared = shared.clone();
                    thread::spawn(move || {
                        for sent in 1..=each {
                            shared.rings[i].store(sent, Ordering::Release);
                            if shared.sleep.must_wake() {
                                shared.event.notify();
                            }
                        }
                    })
                })
                .collect();
            let mut taken = 0;
            while taken < wakers * each {
                let there =
                    || shared.rings.iter().map(|r| r.load(Ordering::Acquire)).sum::<usize>();
                taken = there();
                shared.sleep.begin();
                if there() == taken && taken < wakers * each {
                    shared.event.wait();
                }
                shared.sleep.end();
            }
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
    }

    #[test]
    fn no_wake_up_is_lost() {
        check(1, 2, 3);
    }

    #[test]
    fn no_wake_up_of_several_ringers_is_lost() {
        check(2, 1, 3);
    }
}
