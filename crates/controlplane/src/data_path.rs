//! What carries the packets of a live program, as the control loop changes it: ports are opened and closed, and another
//! engine with other stages takes over the queues of the one before.
//!
//! ```text
//!  open (ports, twins) ─▶ prepare (stages, threads; all that may fail) ─▶ hold (the program ends before, or not until
//!       this has its end) ─▶ exchange (one engine stops, the next starts)
//! ```
//!
//! Threads: it belongs to the control loop's. [`Watch`] shows others what runs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use control::config::Config;
use engine::EngineView;

use crate::application::Twin;
use crate::interfaces::{Interfaces, PortFacts};
use crate::publisher::Publisher;
use crate::statistics::PortCounters;

/// The data path of a live program.
pub trait DataPath: Send {
    /// Opens interfaces with the twins that they have; nothing is received yet. `patient`: queues that were closed a moment
    /// ago may take some time until they can be opened again.
    ///
    /// # Errors
    /// Why one of them cannot be opened, with its name; none is open then.
    fn open(
        &mut self,
        config: &Config,
        interfaces: &Interfaces,
        wanted: &[u16],
        patient: bool,
    ) -> Result<Vec<Opened>, String>;

    /// Makes the stages of a configuration, and has the threads that they will run on. Nothing is in use yet.
    ///
    /// # Errors
    /// The stages do not fit together, or a device or a thread cannot be had.
    fn prepare(
        &mut self,
        config: &Config,
        interfaces: &Interfaces,
        publisher: &mut Publisher,
    ) -> Result<(), String>;

    /// Has Linux's neighbours and routes told again, for parts that have not heard of them.
    fn repeat_kernel(&mut self);

    /// Keeps the engine from being stopped until [`DataPath::exchange`] or [`DataPath::forget`]. `false`: the program is
    /// stopping, and nothing may change any more.
    fn hold(&mut self) -> bool;

    /// Forgets what was prepared, and closes what was opened and is not in use.
    fn forget(&mut self);

    /// Puts what was opened and prepared to use, and closes interfaces with their twins. It is held. `publish` is called
    /// while no stage runs.
    ///
    /// # Errors
    /// The packets are not carried any more, because a worker had died; the program is to end.
    fn exchange(&mut self, closes: &[u16], publish: &mut dyn FnMut()) -> Result<Seen, String>;
}

/// An interface that was opened.
#[derive(Debug, Clone)]
pub struct Opened {
    /// Its number.
    pub number: u16,
    /// Of a port: what the system says of it.
    pub facts: PortFacts,
    /// The back end as it runs; for a subinterface its port and VLANs.
    pub kind: String,
    /// Of a port: the name of its network interface, where it has one.
    pub link: Option<String>,
    /// Its side in Linux, where it has one.
    pub twin: Option<Twin>,
}

/// What may be seen of a data path.
#[derive(Clone)]
pub struct Seen {
    /// Its engine.
    pub view: Arc<EngineView>,
    /// Counters of the queues, by port and twin.
    pub ports: Vec<PortCounters>,
    /// Counters of queues that are closed.
    pub closed: Vec<PortCounters>,
    /// The interfaces.
    pub interfaces: Interfaces,
}

/// Shows the newest [`Seen`] to other threads.
#[derive(Clone)]
pub struct Watch(Arc<Mutex<Seen>>);

impl Watch {
    /// Shows this.
    pub fn new(seen: Seen) -> Self {
        Self(Arc::new(Mutex::new(seen)))
    }

    /// Shows this from now on.
    pub fn set(&self, seen: Seen) {
        *self.lock() = seen;
    }

    /// Interfaces that there will be in a moment: packets of theirs may be seen before [`Watch::set`].
    pub fn expect(&self, interfaces: &Interfaces) {
        self.lock().interfaces = interfaces.clone();
    }

    /// The interfaces.
    pub fn interfaces(&self) -> Interfaces {
        self.lock().interfaces.clone()
    }

    /// The newest.
    pub fn get(&self) -> Seen {
        self.lock().clone()
    }

    /// The engine as it runs now.
    pub fn view(&self) -> Arc<EngineView> {
        self.lock().view.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seen {
    /// Counters of all queues since the start, of closed ones too.
    pub fn all_ports(&self) -> Vec<PortCounters> {
        self.ports.iter().chain(&self.closed).cloned().collect()
    }
}
