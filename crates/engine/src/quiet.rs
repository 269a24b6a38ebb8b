//! When may workers end? Once all have nothing left to do at the same time.
//!
//! A worker may get work as long as another has some, for it may be passed a packet. So the workers count
//! those that are *quiet*: they have received, worked on and sent everything, and the rings to them and
//! from them are empty. Three rules make the count reliable:
//!
//! 1. Before a worker takes a packet out of a ring, it leaves the quiet ones. So the sender, who is not
//!    quiet while it sees its ring in use, cannot become quiet in between.
//! 2. Before it puts a packet into a ring, it leaves them too: a timer may give a quiet worker a packet.
//! 3. Once all are quiet, no worker can leave any more. A worker that saw this has ended and takes no packet; one that
//!    comes too late is refused and keeps the packet.
//!
//! So when the count is complete, no packet is in any ring, and none ever will be. The model at the end
//! checks this in every order, with rings whose memory accesses are ordered like those of `rtrb`: each side
//! publishes its place by a release store and reads the other's by an acquire load.

#[cfg(loom)]
use loom::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
#[cfg(not(loom))]
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// One worker's part in the count. When it is dropped, its worker has gone, and counts as quiet.
#[derive(Debug)]
pub(crate) struct Quiet {
    quiet_workers: Arc<AtomicUsize>,
    workers: usize,
    is_quiet: bool,
}

impl Quiet {
    /// The parts of `workers` workers, none of them quiet.
    pub(crate) fn of_workers(workers: usize) -> Vec<Self> {
        let quiet_workers = Arc::new(AtomicUsize::new(0));
        let part = |_| Self { quiet_workers: quiet_workers.clone(), workers, is_quiet: false };
        (0..workers).map(part).collect()
    }

    /// Whether this worker counts as quiet.
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        self.is_quiet
    }

    /// This worker has nothing left to do, and the rings to it and from it are empty. Answers whether
    /// that is true of all; then they all end.
    pub(crate) fn enter(&mut self) -> bool {
        if !self.is_quiet {
            self.is_quiet = true;
            // Releases what was read of the rings, acquires what others did before they entered.
            self.quiet_workers.fetch_add(1, Ordering::AcqRel);
        }
        self.quiet_workers.load(Ordering::Acquire) == self.workers
    }

    /// This worker has something to do again, or is about to put a packet into a ring or take one out.
    /// `false` if all were quiet before: no ring may be used any more. It cannot be `false` for a worker
    /// that has found a packet in a ring.
    #[inline]
    pub(crate) fn leave(&mut self) -> bool {
        !self.is_quiet || self.leave_quiet()
    }

    #[cold]
    fn leave_quiet(&mut self) -> bool {
        let one_less = |quiet: usize| (quiet < self.workers).then(|| quiet - 1);
        let left =
            self.quiet_workers.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_less).is_ok();
        self.is_quiet = !left;
        left
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        self.enter();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn all_end_once_the_last_is_quiet() {
        let mut parts = Quiet::of_workers(3);
        assert!(!parts[0].enter() && !parts[0].enter() && parts[0].is_quiet());
        assert!(!parts[1].enter());
        assert!(parts[1].leave() && !parts[1].is_quiet());
        assert!(!parts[2].enter());
        assert!(parts[1].enter(), "the last one");
        assert!(parts[0].enter() && parts[2].enter());
        assert!(!parts[0].leave() && parts[0].is_quiet(), "it is too late to leave");
    }

    #[test]
    fn a_worker_that_is_gone_is_quiet() {
        let mut parts = Quiet::of_workers(2);
        let last = parts.pop().unwrap();
        assert!(!parts[0].enter() && parts[0].leave());
        drop(last);
        assert!(parts[0].enter());
        let mut alone = Quiet::of_workers(1);
        assert!(alone[0].leave() && alone[0].enter());
    }
}

/// `RUSTFLAGS="--cfg loom" cargo test -p engine --lib model::`
#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::thread;

    /// A ring of one producer and one consumer, with the orderings of `rtrb`. A packet is the number of
    /// times that it still has to be passed on, plus one.
    #[derive(Clone)]
    struct Ring(Arc<Places>);

    struct Places {
        slots: [AtomicUsize; 2],
        /// Packets ever pushed, packets ever popped.
        tail: AtomicUsize,
        head: AtomicUsize,
    }

    impl Ring {
        fn new() -> Self {
            let zero = || AtomicUsize::new(0);
            Self(Arc::new(Places { slots: [zero(), zero()], tail: zero(), head: zero() }))
        }

        fn push(&self, packet: usize) {
            let tail = self.0.tail.load(Ordering::Relaxed);
            assert!(tail - self.0.head.load(Ordering::Acquire) < 2, "the model passes few packets");
            self.0.slots[tail % 2].store(packet, Ordering::Relaxed);
            self.0.tail.store(tail + 1, Ordering::Release);
        }

        fn pop(&self) -> usize {
            let head = self.0.head.load(Ordering::Relaxed);
            let packet = self.0.slots[head % 2].load(Ordering::Relaxed);
            self.0.head.store(head + 1, Ordering::Release);
            packet
        }

        /// As the consumer sees it.
        fn is_empty(&self) -> bool {
            self.0.tail.load(Ordering::Acquire) == self.0.head.load(Ordering::Relaxed)
        }

        /// As the producer sees it.
        fn is_taken(&self) -> bool {
            self.0.head.load(Ordering::Acquire) == self.0.tail.load(Ordering::Relaxed)
        }
    }

    struct Worker {
        quiet: Quiet,
        from: Vec<Ring>,
        to: Option<Ring>,
        /// Packets that came from its queue, and one that a timer gives it when it is quiet.
        received: Vec<usize>,
        timer: Option<usize>,
        /// Packets that ended here, and that were refused at the end.
        ended: usize,
        refused: usize,
    }

    impl Worker {
        fn pass(&mut self, packet: usize) {
            match &self.to {
                Some(to) if packet > 1 => match self.quiet.leave() {
                    true => to.push(packet - 1),
                    false => self.refused += 1,
                },
                _ => self.ended += 1,
            }
        }

        fn run(mut self) -> Self {
            loop {
                if let Some(packet) = self.received.pop() {
                    self.pass(packet);
                }
                for i in 0..self.from.len() {
                    if !self.from[i].is_empty() {
                        assert!(self.quiet.leave(), "a packet was under way when all were quiet");
                        let packet = self.from[i].pop();
                        assert!(packet > 0, "a packet is seen whole");
                        self.pass(packet);
                    }
                }
                let is_idle = self.received.is_empty()
                    && self.from.iter().all(Ring::is_empty)
                    && self.to.iter().all(Ring::is_taken);
                if is_idle && self.quiet.enter() {
                    return self;
                }
                if self.quiet.is_quiet()
                    && let Some(packet) = self.timer.take()
                {
                    self.pass(packet);
                }
                thread::yield_now();
            }
        }
    }

    fn check(make: impl Fn(Vec<Quiet>) -> Vec<Worker> + Send + Sync + 'static, workers: usize) {
        let mut model = loom::model::Builder::new();
        // Three workers that look again and again have too many orders for more.
        model.preemption_bound = Some(if workers == 2 { 3 } else { 1 });
        model.max_branches = 100_000;
        model.max_duration = Some(std::time::Duration::from_secs(60));
        model.checkpoint_interval = 500; // when it looks at the clock
        model.check(move || {
            let mut workers = make(Quiet::of_workers(workers));
            let packets: usize =
                workers.iter().map(|w| w.received.len() + usize::from(w.timer.is_some())).sum();
            let own = workers.pop().unwrap();
            let threads: Vec<_> =
                workers.into_iter().map(|worker| thread::spawn(move || worker.run())).collect();
            let mut ended = vec![own.run()];
            ended.extend(threads.into_iter().map(|thread| thread.join().unwrap()));
            let fates: usize =
                ended.iter().map(|w| w.ended + w.refused + w.timer.iter().len()).sum();
            assert_eq!(fates, packets, "every packet has one fate");
            assert!(ended.iter().flat_map(|w| &w.from).all(Ring::is_empty));
        });
    }

    fn worker(quiet: Quiet, from: &[&Ring], to: Option<&Ring>, received: &[usize]) -> Worker {
        let from = from.iter().map(|ring| (*ring).clone()).collect();
        let (to, received) = (to.cloned(), received.to_vec());
        Worker { quiet, from, to, received, timer: None, ended: 0, refused: 0 }
    }

    /// A packet goes to the other worker and comes back.
    #[test]
    fn no_worker_ends_before_a_packet_that_comes_back() {
        check(
            |mut quiet| {
                let (there, back) = (Ring::new(), Ring::new());
                vec![
                    worker(quiet.pop().unwrap(), &[&back], Some(&there), &[3]),
                    worker(quiet.pop().unwrap(), &[&there], Some(&back), &[]),
                ]
            },
            2,
        );
    }

    /// A packet goes by way of a second worker to a third.
    #[test]
    fn no_worker_ends_before_a_packet_that_others_pass_on() {
        check(
            |mut quiet| {
                let (first, second) = (Ring::new(), Ring::new());
                vec![
                    worker(quiet.pop().unwrap(), &[], Some(&first), &[3]),
                    worker(quiet.pop().unwrap(), &[&first], Some(&second), &[]),
                    worker(quiet.pop().unwrap(), &[&second], None, &[]),
                ]
            },
            3,
        );
    }

    /// A timer gives a quiet worker a packet for the other.
    #[test]
    fn a_packet_that_comes_late_arrives_or_is_refused() {
        check(
            |mut quiet| {
                let (there, back) = (Ring::new(), Ring::new());
                let mut late = worker(quiet.pop().unwrap(), &[&back], Some(&there), &[]);
                late.timer = Some(2);
                vec![late, worker(quiet.pop().unwrap(), &[&there], Some(&back), &[])]
            },
            2,
        );
    }
}
