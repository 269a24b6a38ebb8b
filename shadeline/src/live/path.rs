//! The data path of a live program as the control loop changes it: ports, twins, and one engine after another.
//!
//! Threads: [`LivePath`] belongs to the control loop's; the engine is shared with the thread that ends the program.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use chunk::{Depot, Pool};
use control::config::Config;
use control::kernel::twin::Advertisements;
use control::kernel::{Mirror, Options as MirrorOptions};
use controlplane::statistics::PortCounters;
use controlplane::{
    DataPath, Event, HostPolice, Interfaces, Newest, Opened, Publisher, Seen, Tables, Twin, Vital,
};
use engine::{Engine, ErrorSink, Hooks, UnderWay};
use lookup::versions::Reader;
use packet::checksum::Checksums;

use super::dumps::Dumps;
use super::running::Running;
use crate::backend::{self, Backends};
use crate::compilers;
use crate::failure::Failure;
use crate::live::Events;
use crate::ports::{LivePorts, Opening};
use crate::wiring::{self, Plan, PortIo, Prepared};

/// The engine of a live program.
pub(super) type LiveEngine = Engine<Newest<Tables>>;

/// How long the packets of a port that is full are waited for while an engine is replaced. Other ports wait, too.
const PATIENCE: Duration = Duration::from_millis(20);

/// What stays the same for all engines of a program.
pub(super) struct Fixed {
    pub(super) depot: Arc<Depot>,
    pub(super) reader: Reader<Tables>,
    pub(super) workers: usize,
    /// The command line's word on checksums, for all ports.
    pub(super) checksums: Option<Checksums>,
    pub(super) backends: Backends,
    /// The configuration's file, for messages.
    pub(super) file: String,
    pub(super) on_error: ErrorSink,
    pub(super) events: Events,
    /// Captures and traces.
    pub(super) hooks: Arc<Hooks>,
    /// The budgets of twins.
    pub(super) host_police: Arc<HostPolice>,
}

/// See the head of this file.
pub(super) struct LivePath {
    fixed: Fixed,
    engine: Running<LiveEngine>,
    /// To be replaced: the program does not end before.
    held: Option<LiveEngine>,
    ports: LivePorts,
    /// The queues that are in use, as they were placed, and those that were.
    counters: Vec<PortCounters>,
    closed: Vec<PortCounters>,
    /// Opened, and not in use yet.
    opened: Vec<PortIo>,
    opened_numbers: Vec<u16>,
    prepared: Option<(Prepared, Interfaces)>,
    dumps: Dumps,
    mirror: Option<Mirror>,
    /// It was started for what is prepared.
    is_new_mirror: bool,
    /// Applications want to hear of Linux's neighbours and routes; a port has an interface of Linux.
    mirrors: bool,
    has_links: bool,
    /// By interface.
    twins: BTreeMap<u16, OpenTwin>,
}

/// The Linux side of an interface.
struct OpenTwin {
    ifindex: u32,
    advertisements: Advertisements,
    is_watched: bool,
}

impl LivePath {
    /// The path of a program that starts, with ports that are open and the queues of an injector; no engine runs yet.
    pub(super) fn new(
        fixed: Fixed,
        interfaces: &Interfaces,
        ports: LivePorts,
        opened: &[Opened],
        io: Vec<PortIo>,
    ) -> Self {
        let mut path = Self {
            dumps: Dumps::new(fixed.hooks.clone(), interfaces.clone()),
            fixed,
            engine: Running::new(),
            held: None,
            ports,
            counters: Vec::new(),
            closed: Vec::new(),
            opened: io,
            opened_numbers: Vec::new(),
            prepared: None,
            mirror: None,
            is_new_mirror: false,
            mirrors: false,
            has_links: false,
            twins: BTreeMap::new(),
        };
        path.note(opened);
        path
    }

    fn note(&mut self, opened: &[Opened]) {
        for own in opened {
            self.has_links |= own.link.is_some() || own.facts.index.is_some();
            if let Some(twin) = &own.twin {
                let Twin { ifindex, advertisements, .. } = *twin;
                let twin = OpenTwin { ifindex, advertisements, is_watched: false };
                self.twins.insert(own.number, twin);
            }
        }
    }

    /// Where the engine is found.
    pub(super) fn engine(&self) -> Running<LiveEngine> {
        self.engine.clone()
    }

    /// Starts the first engine, over what is opened and prepared.
    pub(super) fn start(&mut self) -> Result<Seen, Failure> {
        let missing = || Failure::other("no stages are prepared");
        let (prepared, interfaces) = self.prepared.take().ok_or_else(missing)?;
        let prepared = prepared.with_hooks(self.fixed.hooks.clone());
        self.dumps.expect(&interfaces);
        let path = prepared.start(std::mem::take(&mut self.opened)).map_err(Failure::other)?;
        self.opened_numbers.clear();
        let seen = self.run(path, interfaces);
        self.dumps.exchange();
        self.watch_twins();
        Ok(seen)
    }

    fn run(&mut self, path: wiring::DataPath, interfaces: Interfaces) -> Seen {
        self.counters = path.ports;
        let view = path.engine.view().clone();
        self.engine.carry(path.engine);
        let (ports, closed) = (self.counters.clone(), self.closed.clone());
        Seen { view, ports, closed, interfaces }
    }

    /// The mirror of the kernel follows the twins, if an application wants that.
    fn watch_twins(&mut self) {
        self.is_new_mirror = false;
        let mirrors = self.mirrors;
        for twin in self.twins.values_mut().filter(|twin| mirrors && !twin.is_watched) {
            twin.is_watched = true;
            let (ifindex, advertisements) = (twin.ifindex, twin.advertisements);
            self.mirror.iter().for_each(|mirror| mirror.watch(ifindex, advertisements));
        }
    }

    /// Starts the mirror of the kernel, if there is none and an application wants it. Links are watched all the same: a
    /// port whose link goes down must lose its routes.
    fn start_mirror(&mut self, routes_max: usize) -> Result<(), String> {
        if self.mirror.is_some() || !self.mirrors && !self.has_links {
            return Ok(());
        }
        let (mut watch, mut advertised) = (Vec::new(), Vec::new());
        for twin in self.twins.values_mut().filter(|_| self.mirrors) {
            twin.is_watched = true;
            watch.push(twin.ifindex);
            if twin.advertisements != Advertisements::Ignored {
                advertised.push(twin.ifindex);
            }
        }
        let options = MirrorOptions { watch, advertised, routes_max, ..MirrorOptions::default() };
        let events = self.fixed.events.clone();
        let vital = Vital::new("kernel-mirror", &events);
        let sink = move |batch| {
            let _ = &vital; // the thread's: it goes with this closure
            events.send(Event::Kernel(batch)).is_ok()
        };
        let mirror = Mirror::start(options, sink);
        let mirror = mirror.map_err(|error| format!("mirroring the kernel: {error}"));
        if mirror.is_err() {
            self.forget_mirror();
        }
        (self.mirror, self.is_new_mirror) = (Some(mirror?), true);
        Ok(())
    }

    fn forget_mirror(&mut self) {
        (self.mirror, self.is_new_mirror) = (None, false);
        self.twins.values_mut().for_each(|twin| twin.is_watched = false);
    }

    /// Closes queues; their cells are free again.
    fn release(&self, ports: Vec<PortIo>) {
        let mut pool = Pool::new(self.fixed.depot.clone(), 64);
        for (rx, _) in ports.into_iter().flat_map(|port| port.queues) {
            rx.into_iter().for_each(|mut rx| rx.release(&mut pool));
        }
    }

    /// What was changed for an interface goes back.
    fn close(&mut self, number: u16) {
        let twin = self.twins.remove(&number).filter(|twin| twin.is_watched);
        if let (Some(twin), Some(mirror)) = (twin, &self.mirror) {
            mirror.unwatch(twin.ifindex);
        }
        self.ports.close(&[number]);
    }

    /// What counted for queues that are closed is kept, in one entry for each port and twin.
    fn keep(&mut self, closed: Vec<PortCounters>) {
        for new in closed {
            let is_same =
                |own: &&mut PortCounters| own.number == new.number && own.twin == new.twin;
            match self.closed.iter_mut().find(is_same) {
                Some(own) => own.absorb(&new),
                None => {
                    let mut own = PortCounters { queues: Vec::new(), losses: Vec::new(), ..new };
                    own.absorb(&new);
                    self.closed.push(own);
                }
            }
        }
    }
}

impl DataPath for LivePath {
    fn open(
        &mut self,
        config: &Config,
        interfaces: &Interfaces,
        wanted: &[u16],
        patient: bool,
    ) -> Result<Vec<Opened>, String> {
        let Fixed { depot, workers, checksums, .. } = &self.fixed;
        let (workers, checksums) = (*workers, *checksums);
        let opening = Opening { config, interfaces, depot, workers, checksums, patient };
        let (opened, mut io) = self.ports.open(&opening, wanted).map_err(Failure::into_message)?;
        self.opened.append(&mut io);
        self.opened_numbers.extend(wanted);
        self.note(&opened);
        Ok(opened)
    }

    fn prepare(
        &mut self,
        config: &Config,
        interfaces: &Interfaces,
        publisher: &mut Publisher,
    ) -> Result<(), String> {
        let fixed = &self.fixed;
        let mut plan = Plan {
            workers: fixed.workers,
            offline: false,
            under_way: UnderWay::default(),
            on_drop: None,
            on_dump: None,
            file: fixed.file.clone(),
            devices: Vec::new(),
            on_error: fixed.on_error.clone(),
        };
        // Packets flow while stages are prepared.
        let carries = self.engine.carries();
        // The log has a descriptor of its own: its lines do not wait for the end.
        let prepared = compilers::without_counts(|| {
            plan.devices = backend::open(config, &fixed.backends, || publisher.images())?;
            let (depot, parts) = (fixed.depot.clone(), &mut publisher.parts);
            let prepared = wiring::prepare(config, interfaces, depot, &fixed.reader, parts, plan)?;
            let mut prepared = prepared.with_host_gate(fixed.host_police.clone());
            if carries {
                let (devices, programs) = prepared.programs().map_err(Failure::other)?;
                compilers::apart(devices, &programs);
            }
            prepared.reserve().map_err(Failure::other)?;
            Ok::<_, Failure>(prepared)
        });
        let prepared = prepared.map_err(Failure::into_message)?;
        self.dumps.prepare(config).map_err(Failure::into_message)?;
        self.mirrors = publisher.parts.iter().any(|own| own.part.mirrors_kernel(config));
        self.start_mirror(config.router.kernel_routes_max)?;
        self.fixed.host_police.follow(interfaces);
        self.prepared = Some((prepared, interfaces.clone()));
        Ok(())
    }

    fn repeat_kernel(&mut self) {
        self.mirror.iter().for_each(Mirror::repeat);
    }

    fn hold(&mut self) -> bool {
        self.held = self.held.take().or_else(|| self.engine.hold());
        self.held.is_some()
    }

    fn forget(&mut self) {
        self.prepared = None;
        self.dumps.forget();
        if let Some(engine) = self.held.take() {
            self.engine.carry(engine);
        }
        if self.is_new_mirror {
            self.forget_mirror();
        }
        let opened = std::mem::take(&mut self.opened);
        self.release(opened);
        for number in std::mem::take(&mut self.opened_numbers) {
            self.close(number);
        }
    }

    fn exchange(&mut self, closes: &[u16], publish: &mut dyn FnMut()) -> Result<Seen, String> {
        let engine = self.held.take().ok_or("the engine is not held")?;
        let Some((prepared, interfaces)) = self.prepared.take() else {
            self.engine.carry(engine);
            return Err("no stages are prepared".into());
        };
        let opened = std::mem::take(&mut self.opened);
        self.opened_numbers.clear();
        self.dumps.expect(&interfaces);
        let is_closed = |number: u16| closes.contains(&number);
        let followed = match engine.suspend(PATIENCE) {
            Ok(before) => prepared
                .follow(before, &self.counters, is_closed, opened, publish)
                .map_err(|error| error.to_string()),
            Err(panic) => Err(format!("a worker died: {panic}")),
        };
        let (path, closed) = followed.inspect_err(|error| {
            self.engine.fail(format!("no packets are carried any more: {error}"));
        })?;
        let seen = self.run(path, interfaces);
        self.dumps.exchange();
        // Only now, for closing a queue takes time.
        let (queues, counters): (Vec<_>, Vec<_>) = closed.into_iter().unzip();
        self.release(queues);
        self.keep(counters);
        closes.iter().for_each(|number| self.close(*number));
        self.watch_twins();
        Ok(Seen { closed: self.closed.clone(), ..seen })
    }
}

impl Drop for LivePath {
    /// A control loop that ends while it holds the engine, by a panic, leaves it to the thread that ends the program.
    fn drop(&mut self) {
        match self.held.take() {
            Some(engine) => self.engine.carry(engine),
            None if std::thread::panicking() => self.engine.lose(),
            None => {}
        }
    }
}
