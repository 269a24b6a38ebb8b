//! The twins of ports: made, taken up and given addresses in an order that routing daemons can follow.
//!
//! After a restart a twin is a new interface, with a new number. zebra of FRR 8 forgets an address that comes before it
//! has read about the interface ([`control::kernel::listeners`] has the whole story), and its BGP neighbours stay down. So:
//!
//! ```text
//!  all twins made ─ daemons have read that ─ all up ─ daemons have read that ─ addresses ─┬─ done
//!                                                                                         └─ a daemon had not read in
//!                                                                  time: addresses once more, as soon as it has
//! ```
//!
//! The twins go with the process, however it ends: nothing of this leaves anything behind.
//!
//! Threads: an [`Announcer`] waits for slow daemons on a thread of its own, so that the start need not.

use std::collections::BTreeSet;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use control::kernel::links;
use control::kernel::listeners::Unread;
use control::kernel::twin::{Advertisements, behave_as_router, leave_ipsec};
use control::netlink::Client;
use controlplane::Twin;
use controlplane::interfaces::addresses;
use io::tap::Tap;
use io::{RxQueue, TxQueue};
use ipnet::IpNet;
use lookup::fib::Interface;

use crate::wiring::Queue;

/// How long the start waits for daemons to read, twice. They need a millisecond or two.
const PATIENCE: Duration = Duration::from_millis(500);

/// How long the announcer waits for a daemon that did not read in time, and between two looks at most.
const LATE: Duration = Duration::from_secs(600);
const LOOK: Duration = Duration::from_secs(1);

/// What a twin is made of: its name, the record of its interface, and whose routes the kernel takes on it.
pub(crate) type Wanted<'a> = (&'a str, &'a Interface, Advertisements);

/// Twins that are up and have their addresses.
#[derive(Default)]
pub(crate) struct Opened {
    /// In the order in which they were wanted.
    pub(crate) twins: Vec<(Twin, Queue)>,
    /// To be kept as long as the twins.
    pub(crate) announcer: Option<Announcer>,
}

/// Makes twins. `leaves_ipsec`: the data path applies the kernel's IPsec policies.
///
/// # Errors
/// The index in `wanted` of the twin that cannot be made, and why.
pub(crate) fn open(wanted: &[Wanted<'_>], leaves_ipsec: bool) -> Result<Opened, (usize, String)> {
    if wanted.is_empty() {
        return Ok(Opened::default());
    }
    let mut taps = Vec::new();
    for (i, (name, record, advertisements)) in wanted.iter().enumerate() {
        let options = io::tap::Options {
            name: (*name).to_owned(),
            mac: Some(record.mac),
            mtu: Some(u32::from(record.mtu)),
            is_down: true,
        };
        let tap = Tap::open(&options).map_err(|e| (i, e.to_string()))?;
        // Before it is up: the kernel hears nothing until then.
        behave_as_router(&tap.name, *advertisements).map_err(|e| (i, e.to_string()))?;
        if leaves_ipsec {
            leave_ipsec(&tap.name).map_err(|e| (i, e.to_string()))?;
        }
        if record.if_id != 0 {
            tap.set_noarp().map_err(|e| (i, e.to_string()))?;
        }
        let ifindex = io::link::index_of(&tap.name).ok_or((i, "it vanished".to_owned()))?;
        taps.push((tap, ifindex));
    }
    let made = wait_for_readers();
    for (i, (tap, _)) in taps.iter().enumerate() {
        tap.set_up().map_err(|e| (i, e.to_string()))?;
    }
    let up = wait_for_readers();
    let mut given = Vec::new();
    let mut client = Client::route().map_err(|e| (0, e.to_string()))?;
    for (i, (_, ifindex)) in taps.iter().enumerate() {
        for address in addresses(wanted[i].1) {
            links::add_address(&mut client, *ifindex, address, false)
                .map_err(|e| (i, e.to_string()))?;
            given.push((*ifindex, address));
        }
    }
    let late = Unread::join([made, up].into_iter().flatten());
    let announcer =
        late.filter(|_| !given.is_empty()).and_then(|late| Announcer::start(late, given));
    let twins = taps.into_iter().zip(wanted).map(|((tap, ifindex), (.., advertisements))| {
        let (name, advertisements) = (tap.name.clone(), *advertisements);
        let twin = Twin { name, ifindex, advertisements };
        let tx: Box<dyn TxQueue> = Box::new(tap.tx());
        let rx: Box<dyn RxQueue> = Box::new(tap.into_rx());
        (twin, (Some(rx), Some(tx)))
    });
    Ok(Opened { twins: twins.collect(), announcer })
}

/// Gives daemons the time to read what the kernel announced until now; who has not read in that time.
fn wait_for_readers() -> Option<Unread> {
    let waited = Unread::now().and_then(|mut unread| Ok((unread.wait(PATIENCE)?, unread)));
    match waited {
        Ok((true, _)) => None,
        Ok((false, unread)) => Some(unread),
        Err(error) => {
            tracing::debug!("/proc/thread-self/net/netlink: {error}; waiting instead of looking");
            std::thread::sleep(PATIENCE);
            None
        }
    }
}

/// Announces addresses again when daemons that were busy or stopped have read about the twins.
pub(crate) struct Announcer {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Announcer {
    fn start(mut late: Unread, given: Vec<(u32, IpNet)>) -> Option<Self> {
        tracing::warn!(
            "processes that have not read about the twins yet: {}; the addresses of the twins will be \
             announced again when they have",
            late.names().join(", ")
        );
        let (stop, stopped) = mpsc::channel::<()>();
        let work = move || {
            let deadline = Instant::now() + LATE;
            let mut step = Duration::from_millis(10);
            while !late.is_read().unwrap_or(true) {
                if stopped.recv_timeout(step) != Err(RecvTimeoutError::Timeout)
                    || Instant::now() > deadline
                {
                    return;
                }
                step = LOOK.min(step * 2);
            }
            match announce(&given) {
                Ok(()) => tracing::info!("announced the addresses of the twins again"),
                Err(error) => tracing::warn!("announcing the addresses of the twins: {error}"),
            }
        };
        match std::thread::Builder::new().name("announcer".into()).spawn(work) {
            Ok(thread) => Some(Self { stop: Some(stop), thread: Some(thread) }),
            Err(error) => {
                tracing::warn!("the addresses of the twins are not announced again: {error}");
                None
            }
        }
    }
}

impl Drop for Announcer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a panic of it is in the log
        }
    }
}

fn announce(given: &[(u32, IpNet)]) -> Result<(), control::netlink::Error> {
    let mut client = Client::route()?;
    let mut all = given.to_vec();
    let twins: BTreeSet<u32> = given.iter().map(|(ifindex, _)| *ifindex).collect();
    for ifindex in twins {
        // BGP over IPv6 and OSPFv3 need the link-local address, which the kernel assigns.
        let automatic = links::addresses_of(&mut client, ifindex)?.into_iter();
        all.extend(automatic.filter(links::is_automatic).map(|address| (ifindex, address)));
    }
    for (ifindex, address) in all {
        links::announce_address(&mut client, ifindex, address)?;
    }
    Ok(())
}
