//! How many packets go to the twins: a budget for each interface and class ([`HostClass`]).
//!
//! Packets for the machine itself cost the worker a system call each, and then the kernel's work. Whoever floods the
//! router's addresses, or the link with ARP, would take that time from the packets that are forwarded. So what goes to
//! twins is policed at the worker that decides it, before it crosses to the worker of the twin's queue (RFC 6192; as
//! the punt policers of VPP).
//!
//! A budget is one word that all workers share, the time at which it will be whole again (the generic cell rate
//! algorithm, ITU-T I.371 annex A):
//!
//! ```text
//!            now                 whole
//!  ───────────┼────────────────────┼──▶ time      a packet moves `whole` by 1/rate,
//!             └── at most `burst` ──┘              unless that takes it beyond now + burst
//! ```
//!
//! A packet that is dropped reads that word and writes nothing, so a flood costs no cache line.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use chunk::{DropReason, Packet};
use control::config::{Config, HostLimits};
use engine::HostGate;
use packet::host::HostClass;

use crate::interfaces::{INTERFACES_MAX, Interfaces};

/// The budgets of all twins; see the module.
pub struct HostPolice {
    started: Instant,
    /// By number of the interface.
    budgets: Box<[Budgets]>,
    interfaces: Mutex<Interfaces>,
}

/// Of one interface, by class.
#[derive(Default)]
#[repr(align(128))]
struct Budgets([Budget; HostClass::ALL.len()]);

/// One budget. Without a rate everything passes.
#[derive(Default)]
struct Budget {
    /// When it is whole again, ns since the police was made.
    whole_ns: AtomicU64,
    /// Nanoseconds for a packet; 0: no limit.
    packet_ns: AtomicU64,
    /// Packets that may come at once, as nanoseconds.
    burst_ns: AtomicU64,
}

impl Budget {
    /// `rate`: packets a second, 0 for no limit. A tenth of a second's packets may come at once, and at least 16.
    fn set(&self, rate: u32) {
        const SECOND_NS: u64 = 1_000_000_000;
        const BURST_NS: u64 = SECOND_NS / 10;
        const BURST_PACKETS_MIN: u64 = 16;
        let packet_ns = SECOND_NS.checked_div(rate.into()).unwrap_or(0);
        if packet_ns != self.packet_ns.load(Relaxed) {
            // What the old rate was owed is no debt of the new one.
            self.whole_ns.store(0, Relaxed);
        }
        self.burst_ns.store(BURST_NS.max(BURST_PACKETS_MIN * packet_ns), Relaxed);
        self.packet_ns.store(packet_ns, Relaxed);
    }

    /// Whether a packet may pass now.
    #[inline]
    fn take(&self, now_ns: u64) -> bool {
        let packet_ns = self.packet_ns.load(Relaxed);
        if packet_ns == 0 {
            return true;
        }
        let limit = now_ns + self.burst_ns.load(Relaxed);
        let mut whole = self.whole_ns.load(Relaxed);
        loop {
            let next = whole.max(now_ns) + packet_ns;
            if next > limit {
                return false;
            }
            match self.whole_ns.compare_exchange_weak(whole, next, Relaxed, Relaxed) {
                Ok(_) => return true,
                Err(other) => whole = other,
            }
        }
    }
}

impl Default for HostPolice {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            budgets: (0..INTERFACES_MAX).map(|_| Budgets::default()).collect(),
            interfaces: Mutex::new(Interfaces::none()),
        }
    }
}

impl HostPolice {
    /// The interfaces that configurations name from now on.
    pub fn follow(&self, interfaces: &Interfaces) {
        self.interfaces.lock().unwrap_or_else(PoisonError::into_inner).clone_from(interfaces);
    }

    /// Takes over the rates of a configuration.
    pub fn set(&self, config: &Config) {
        let interfaces = self.interfaces.lock().unwrap_or_else(PoisonError::into_inner);
        for number in interfaces.numbers() {
            let Some(port) = config.port(interfaces.name(number)) else { continue };
            let HostLimits { arp, nd, routing, other } = port.host;
            let Some(own) = self.budgets.get(usize::from(number)) else { continue };
            for (class, rate) in HostClass::ALL.into_iter().zip([arp, nd, routing, other]) {
                own.0[class as usize].set(rate);
            }
        }
    }
}

impl HostGate for HostPolice {
    fn admit(&self, packet: &Packet, interface: u16) -> Result<(), DropReason> {
        let Some(own) = self.budgets.get(usize::from(interface)) else { return Ok(()) };
        let class = HostClass::of(packet.data(), packet.frame_len());
        let now_ns = self.started.elapsed().as_nanos() as u64;
        match own.0[class as usize].take(now_ns) {
            true => Ok(()),
            false => Err(class.reason()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// In no span of time more than the burst and what the rate adds; and a sender that keeps to the rate loses
        /// nothing.
        #[test]
        fn a_budget_is_its_rate_and_burst(
            rate in 1..2_000_000u32,
            gaps in prop::collection::vec(0..2_000_000u64, 1..300),
        ) {
            let budget = Budget::default();
            budget.set(rate);
            let packet_ns = 1_000_000_000 / u64::from(rate);
            let burst = budget.burst_ns.load(Relaxed) / packet_ns;
            let (mut now, mut passed) = (0, Vec::new());
            for gap in gaps {
                now += gap;
                if budget.take(now) {
                    passed.push(now);
                }
            }
            for (i, first) in passed.iter().enumerate() {
                for (n, last) in passed[i..].iter().enumerate() {
                    prop_assert!(n as u64 <= burst + (last - first) / packet_ns);
                }
            }
            let patient = Budget::default();
            patient.set(rate);
            prop_assert!((0..1000).all(|n| patient.take(n * packet_ns)));
        }

        /// Workers at the same time take no more than one would.
        #[test]
        fn workers_share_a_budget(rate in 1..50_000u32, workers in 1..5usize) {
            let budget = Budget::default();
            budget.set(rate);
            let burst = budget.burst_ns.load(Relaxed) * u64::from(rate) / 1_000_000_000;
            let take = || (0..3 * burst).filter(|_| budget.take(1)).count() as u64;
            let taken: u64 = std::thread::scope(|scope| {
                let all: Vec<_> = (0..workers).map(|_| scope.spawn(take)).collect();
                all.into_iter().map(|one| one.join().unwrap()).sum()
            });
            prop_assert!(taken >= burst.saturating_sub(1) && taken <= burst + 1, "{taken} of {burst}");
        }
    }

    #[test]
    fn a_new_rate_applies_at_once() {
        let budget = Budget::default();
        budget.set(1);
        assert_eq!((0..100).filter(|_| budget.take(1)).count(), 16);
        budget.set(1000);
        assert_eq!((0..1000).filter(|_| budget.take(2)).count(), 100);
    }

    #[test]
    fn without_a_rate_everything_passes() {
        let budget = Budget::default();
        budget.set(0);
        assert!((0..100_000).all(|_| budget.take(7)));
    }
}
