//! The control loop: the one thread that owns the configuration, the interfaces and the applications' control parts of a
//! live program.
//!
//! ```text
//!  kernel mirror ──┐                          ┌─▶ Publisher ─version─▶ workers
//!  workers' events ┼─▶ one queue ─▶ ControlLoop ─▶ ControlPart of each application ─frames─▶ worker 0
//!  control socket ─┤        ▲                 └─▶ answers
//!  signals ────────┘        └── what a builder thread has built
//! ```
//!
//! Whatever is in the queue at a time is applied together and seen as one version. What takes long to build (a reload's
//! files, a set of rules) is built on a thread of its own; requests that change the same tables wait until that is in use, in
//! their order, and everything else goes on.
//!
//! A panic in the loop ends the program ([`ControlLoop::run`]), and so does the end of a thread that the loop hears of the
//! world by ([`Vital`]): without them packets would go on while no neighbour is found and no request is answered.

mod builds;
mod links;
mod rebuild;
mod reload;
mod renew;
mod save;
mod vital;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use control::api::{Asked, ErrorKind, ROWS_PER_RESPONSE, Request, Response, table};
use control::config::{Config, KnownStages};
use control::kernel::Event as KernelEvent;
use lookup::fib::Interface;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::application::{
    Built, Call, Carrier, Descriptor, Environment, Outcome, Refusal, Rows, Twin, Work,
};
use crate::data_path::{DataPath, Watch};
use crate::inject::Injector;
use crate::interfaces::{self, Interfaces, PortFacts};
use crate::publisher::{Publisher, Running};
use crate::request::TableKind;
use crate::statistics::{Shown, Statistics};
use builds::{Builds, Target};
use reload::Read;
use renew::Replaced;
use save::Drafted;
pub use vital::Vital;

/// What the control loop is given.
pub enum Event {
    /// A worker's stage tells the part of this number.
    Part(usize, Built),
    /// By the kernel.
    Kernel(Vec<KernelEvent>),
    /// By a client; the answer goes in pieces through the sender.
    Request(Asked, Sender<Response>),
    /// The metrics, as text.
    Metrics(Sender<String>),
    /// A port failed or recovered; the text is for the log.
    PortError(u16, String),
    /// Something is built that a request asked a part for.
    Built(usize, Built, Sender<Response>),
    /// A configuration is read, and what the parts prepared of it is built.
    Read(Box<Read>),
    /// What changed since the configuration was read is known as a change of the file, and perhaps saved.
    Drafted(Box<Drafted>),
    /// A builder thread panicked that worked for a part, or for a reload.
    BuildFailed(Option<usize>, Sender<Response>),
    /// Read the configuration again (SIGHUP).
    Reload,
    /// A thread has panicked that the program cannot do without; its name.
    Died(String),
    /// End.
    Stop,
}

/// How many events are applied as one version when they pour in.
const GATHER: usize = 4096;

/// The longest time between two turns: rates are sampled then.
const TURN: Duration = Duration::from_millis(500);

/// What a control loop starts with.
pub struct Start {
    /// As read at the start.
    pub config: Config,
    /// Its file.
    pub file: PathBuf,
    /// What a configuration may name.
    pub known: KnownStages,
    /// All applications of the program, running or not.
    pub descriptors: &'static [&'static Descriptor],
    /// By interface: what the system says of a port.
    pub facts: Vec<PortFacts>,
    /// By interface.
    pub twins: Vec<Option<Twin>>,
    /// By interface: the name of a port's network interface, where it has one.
    pub links: Vec<Option<String>>,
    /// What carries the packets.
    pub path: Box<dyn DataPath>,
    /// Where others see what runs.
    pub watch: Watch,
    /// The parts and their tables.
    pub publisher: Publisher,
    /// Frames that leave by ports.
    pub injector: Injector,
    /// The data path.
    pub shown: Shown,
    /// The loop's own queue, for what builder threads send.
    pub events: SyncSender<Event>,
    /// Ends the program.
    pub on_stop: Box<dyn Fn() + Send>,
    /// A configuration is in force: what is not about the data path, such as the log's level.
    pub on_reload: Box<dyn Fn(&Config) + Send>,
    /// For whoever watches over the program.
    pub on_phase: Box<dyn FnMut(Phase) + Send>,
}

/// Where a control loop is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It begins a turn: at least twice a second.
    Turn,
    /// A reload begins.
    Reloading,
    /// A reload has ended: it is applied, or nothing of it is.
    Reloaded {
        /// Whether it is applied.
        good: bool,
    },
}

/// The control loop.
pub struct ControlLoop {
    /// As last read. What only a restart applies still has the values of `started`.
    config: Config,
    started: Config,
    file: PathBuf,
    /// The text of the file that `config` was read from.
    source: String,
    known: KnownStages,
    descriptors: &'static [&'static Descriptor],
    path: Box<dyn DataPath>,
    watch: Watch,
    interfaces: Interfaces,
    kinds: Vec<String>,
    facts: Vec<PortFacts>,
    twins: Vec<Option<Twin>>,
    links: Vec<Option<String>>,
    publisher: Publisher,
    injector: Injector,
    statistics: Statistics,
    events: SyncSender<Event>,
    on_stop: Box<dyn Fn() + Send>,
    on_reload: Box<dyn Fn(&Config) + Send>,
    on_phase: Box<dyn FnMut(Phase) + Send>,
    records: Vec<Interface>,
    /// By interface: the twin is up; the port's link is up.
    twin_up: Vec<bool>,
    link_up: Vec<bool>,
    /// By interface: its queues and its twin are closed, and opening them failed.
    closed: Vec<bool>,
    /// Ports that are to be opened anew, on other interfaces.
    replaced: Vec<Replaced>,
    /// The last failure of a port that was logged.
    logged: Option<(u16, String)>,
    /// When the links are looked at again, and how long after the time before.
    look: Option<(Instant, Duration)>,
    /// What is being built on other threads, and requests that wait for that.
    builds: Builds<(Asked, Sender<Response>)>,
}

/// The parts, and what they may use.
macro_rules! environment {
    ($own:expr) => {
        Environment {
            config: &$own.config,
            interfaces: &$own.interfaces,
            records: &$own.records,
            twins: &$own.twins,
            now_ns: now_ns(),
            injector: Some(&mut $own.injector),
            ports: $own.statistics.ports(),
            workers: &$own.statistics.view().workers,
        }
    };
}
use environment;

/// What a part answers to a request; a panic in it is the answer that there is a defect. The part goes on with what it
/// has changed until then.
fn unless_it_panics<R>(
    request: &str,
    ask: impl FnOnce() -> Result<R, Refusal>,
) -> Result<R, Refusal> {
    catch_unwind(AssertUnwindSafe(ask)).unwrap_or_else(|panic| {
        let text = engine::panic_text(&*panic);
        tracing::error!("`{request}` panicked: {text}; please report it");
        Err(Refusal::new(ErrorKind::Internal, format!("`{request}` panicked: {text}")))
    })
}

impl ControlLoop {
    /// The loop of parts that have started; interfaces are up until the kernel says otherwise.
    pub fn new(start: Start) -> Self {
        let facts = start.facts.clone();
        let fact = |port: u16| facts.get(usize::from(port)).copied().unwrap_or_default();
        let interfaces = start.shown.seen.interfaces.clone();
        let record = |n| interfaces::record(&start.config, &interfaces, n, fact, true);
        let records: Vec<_> = (0..interfaces.count() as u16).map(record).collect();
        let kinds = start.shown.kinds.clone();
        let mode = rebuild::mode(&start.config);
        let statistics = Statistics::new(start.shown, mode, &start.publisher.parts);
        let mut control = Self {
            twin_up: vec![true; records.len()],
            link_up: vec![true; records.len()],
            closed: vec![false; records.len()],
            records,
            started: start.config.clone(),
            config: start.config,
            source: std::fs::read_to_string(&start.file).unwrap_or_default(),
            file: start.file,
            known: start.known,
            descriptors: start.descriptors,
            path: start.path,
            watch: start.watch,
            interfaces,
            kinds,
            facts: start.facts,
            twins: start.twins,
            links: start.links,
            publisher: start.publisher,
            injector: start.injector,
            statistics,
            events: start.events,
            on_stop: start.on_stop,
            on_reload: start.on_reload,
            on_phase: start.on_phase,
            replaced: Vec::new(),
            logged: None,
            look: None,
            builds: Builds::default(),
        };
        for i in 0..control.records.len() {
            control.publish_interface(i);
        }
        control.settle();
        control
    }

    /// Starts the threads that carry what workers tell the parts into the loop's queue.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start_sources(&mut self) -> std::io::Result<()> {
        (0..self.publisher.parts.len()).try_for_each(|number| self.start_sources_of(number))
    }

    fn start_sources_of(&mut self, number: usize) -> std::io::Result<()> {
        let own = &mut self.publisher.parts[number];
        for source in own.part.sources() {
            let events = self.events.clone();
            let name = own.descriptor.application.name.to_owned();
            let vital = Vital::new(&name, &events);
            let carrier =
                Carrier::new(move |event| events.send(Event::Part(number, event)).is_ok());
            std::thread::Builder::new().name(name).spawn(move || {
                let _vital = vital;
                source(carrier);
            })?;
        }
        Ok(())
    }

    /// Works until it is to stop; the parts as they are then.
    ///
    /// # Errors
    /// A thread has died that the program cannot do without: in words.
    ///
    /// # Panics
    /// Where a part or the loop itself does: the one place where that is seen. In both cases the program has been asked
    /// to end, while ports, twins and engine are still there, so that it drains.
    pub fn run(mut self, events: Receiver<Event>) -> Result<Vec<Running>, String> {
        // What the loop holds is not used after a panic, only given up.
        let ended = catch_unwind(AssertUnwindSafe(|| self.turns(&events)));
        // Threads that are joined when the path goes may wait for room in the queue, which nobody reads any more.
        drop(events);
        if !matches!(ended, Ok(Ok(()))) {
            (self.on_stop)();
        }
        match ended {
            Ok(ended) => ended.map(|()| self.publisher.parts),
            Err(panic) => resume_unwind(panic),
        }
    }

    fn turns(&mut self, events: &Receiver<Event>) -> Result<(), String> {
        loop {
            (self.on_phase)(Phase::Turn);
            let now = now_ns();
            let parts = &self.publisher.parts;
            let deadline = parts.iter().filter_map(|own| own.part.next_deadline_ns()).min();
            let wait = deadline.map_or(TURN, |t| Duration::from_nanos(t.saturating_sub(now)));
            let is_busy = parts.iter().any(|own| own.part.is_busy());
            let wait = if is_busy {
                Duration::ZERO
            } else {
                wait.min(TURN).min(self.until_renewal()).min(self.until_look())
            };
            match events.recv_timeout(wait) {
                Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Ok(event) => {
                    let mut next = Some(event);
                    let mut more = events.try_iter().take(GATHER);
                    while let Some(event) = next {
                        match event {
                            Event::Stop => return Ok(()),
                            Event::Died(name) => {
                                return Err(format!("the thread `{name}` panicked"));
                            }
                            event => self.take(event),
                        }
                        next = more.next();
                    }
                }
                Err(RecvTimeoutError::Timeout) => self.statistics.sample(&self.publisher.parts),
            }
            self.tick();
            self.look_again();
            self.renew();
            self.settle();
        }
    }

    fn tick(&mut self) {
        let mut env = environment!(self);
        self.publisher.parts.iter_mut().for_each(|own| own.part.tick(&mut env));
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Part(number, event) => {
                let mut env = environment!(self);
                self.publisher.parts[number].part.event(event, &mut env);
            }
            Event::Kernel(events) => {
                for event in events {
                    self.kernel(event);
                }
            }
            Event::Request(asked, answer) => {
                // What came before the request is part of its answer.
                self.settle();
                self.answer(asked, answer);
            }
            Event::Metrics(answer) => {
                let version = self.publisher.version();
                let text = self.statistics.metrics(&self.records, version, &self.publisher.parts);
                // A scrape that is gone needs none.
                let _ = answer.send(text);
            }
            Event::PortError(port, error) => self.port_error(port, error),
            Event::Built(number, built, answer) => {
                let mut env = environment!(self);
                let done = self.publisher.parts[number].part.built(built, &mut env);
                self.settle();
                send_done(&answer, done);
                self.built(Target::Part(number));
            }
            Event::Read(read) => {
                self.apply_read(*read);
                self.built(Target::All);
            }
            Event::Drafted(drafted) => {
                self.drafted(*drafted);
                self.built(Target::All);
            }
            Event::BuildFailed(number, answer) => {
                self.build_failed(number, answer);
                self.built(number.map_or(Target::All, Target::Part));
            }
            // Without a client the answer is the log's.
            Event::Reload => {
                let asked = Asked { request: Request::Reload, text: true };
                self.answer(asked, mpsc::channel().0);
            }
            // Handled by the loop itself.
            Event::Stop | Event::Died(_) => {}
        }
    }

    /// Makes all changes visible as one version.
    fn settle(&mut self) {
        self.publisher.publish();
        self.publisher.settle();
    }

    /// A build has ended: requests that waited for it have their turn.
    fn built(&mut self, target: Target) {
        self.builds.end(target);
        while let Some((asked, answer)) = self.builds.next() {
            self.answer_now(asked, answer);
        }
    }

    /// Builds something on a thread of its own, for the part `number` or for a reload. If that fails, who asked gets an error,
    /// and requests go on.
    fn build(
        &mut self,
        number: Option<usize>,
        answer: Sender<Response>,
        work: impl FnOnce() -> Event + Send + 'static,
    ) {
        let events = self.events.clone();
        let name = number.map_or("reload", |number| &self.publisher.parts[number].name);
        let thread = std::thread::Builder::new().name(name.to_owned());
        let failed = answer.clone();
        let build = move || {
            // What the work holds is not seen again after a panic.
            let built = catch_unwind(AssertUnwindSafe(work));
            events.send(built.unwrap_or(Event::BuildFailed(number, failed)))
        };
        match thread.spawn(build) {
            Ok(_) => self.builds.begin(number.map_or(Target::All, Target::Part)),
            Err(error) => {
                tracing::error!("no thread to build on: {error}");
                self.build_failed(number, answer);
            }
        }
    }

    fn build_failed(&mut self, number: Option<usize>, answer: Sender<Response>) {
        let what = number.map_or("reload", |number| &self.publisher.parts[number].name);
        tracing::error!("{what}: failed; nothing has changed");
        match number {
            Some(number) => {
                self.publisher.parts[number].part.build_failed();
                self.settle();
            }
            None => (self.on_phase)(Phase::Reloaded { good: false }),
        }
        let failed =
            Response::error(ErrorKind::Internal, "failed, and nothing has changed: see the log");
        // A client that is gone needs no answer.
        drop(answer.send(failed));
    }

    /// Answers a request, at once or after the builds that it must wait for.
    fn answer(&mut self, asked: Asked, answer: Sender<Response>) {
        match self.changes(&asked.request) {
            Some(target) if self.builds.holds(target) => self.builds.wait(target, (asked, answer)),
            _ => self.answer_now(asked, answer),
        }
    }

    fn answer_now(&mut self, asked: Asked, answer: Sender<Response>) {
        let Asked { request, text } = asked;
        // A client that is gone needs no answer.
        let send = |response| drop(answer.send(response));
        match request {
            Request::Show { what, arguments } => match self.show(&what, arguments, text) {
                Ok(responses) => responses.into_iter().for_each(send),
                Err(refusal) => send(refusal.into()),
            },
            Request::ClearCounters => {
                self.statistics.clear(&mut self.publisher.parts);
                send(Response::Done { message: "counters reset".into() });
            }
            Request::Reload => self.reload(answer),
            Request::Diff => self.draft(None, text, answer),
            Request::Save { force } => self.draft(Some(save::Force(force)), text, answer),
            Request::Stop => {
                send(Response::Done { message: "draining".into() });
                (self.on_stop)();
            }
            Request::Trace { .. } | Request::Capture { .. } => {
                send(Response::error(ErrorKind::Internal, "answered elsewhere"));
            }
            #[cfg(debug_assertions)]
            Request::Call { name, .. } if name == "panic_control" => panic!("as requested"),
            Request::Call { name, fields } => self.call(&name, fields, text, answer),
        }
    }

    /// Whose tables a request changes; `None`: nobody's, or it is refused.
    fn changes(&self, request: &Request) -> Option<Target> {
        match request {
            Request::Reload | Request::Diff | Request::Save { .. } => Some(Target::All),
            Request::Call { name, fields } => {
                let all = self.descriptors.iter().flat_map(|own| own.requests);
                let changes = all.into_iter().any(|kind| kind.changes && kind.is_named(name));
                let part = changes.then(|| self.part_for(name, fields));
                part.and_then(Result::ok).map(Target::Part)
            }
            _ => None,
        }
    }

    fn call(
        &mut self,
        name: &str,
        mut fields: Map<String, Value>,
        as_text: bool,
        answer: Sender<Response>,
    ) {
        let number = match self.part_for(name, &fields) {
            Ok(number) => number,
            Err(refusal) => match self.beginning(name, &refusal) {
                Some(config) => {
                    let request = Request::Call { name: name.to_owned(), fields };
                    return self.begin(config, Asked { request, text: as_text }, answer);
                }
                None => return drop(answer.send(refusal.into())),
            },
        };
        fields.remove("stage");
        let mut env = environment!(self);
        let part = &mut self.publisher.parts[number].part;
        let outcome =
            unless_it_panics(name, || part.call(Call { name, fields, as_text }, &mut env));
        self.settle();
        match outcome {
            Ok(Outcome::Done(message)) => drop(answer.send(Response::Done { message })),
            Ok(Outcome::Rows(rows)) => {
                for response in rows.responses(ROWS_PER_RESPONSE) {
                    if answer.send(response).is_err() {
                        return;
                    }
                }
            }
            Ok(Outcome::Later(work)) => self.build_later(number, work, answer),
            Err(refusal) => drop(answer.send(refusal.into())),
        }
    }

    /// The configuration in which there is a part that answers a request, where there was none and the request is one to
    /// begin with.
    fn beginning(&self, name: &str, refusal: &Refusal) -> Option<Config> {
        let begins =
            |own: &&&Descriptor| own.requests.iter().any(|kind| kind.begins && kind.is_named(name));
        let own = self.descriptors.iter().find(begins);
        let own = own.filter(|_| refusal.kind == ErrorKind::Unsupported)?;
        self.known.with_joined(&self.config, own.application)
    }

    fn build_later(&mut self, number: usize, work: Work, answer: Sender<Response>) {
        let asks = answer.clone();
        self.build(Some(number), asks, move || Event::Built(number, work(), answer));
    }

    /// The part that answers a request: that of the stage that its field `stage` names, or the only one.
    fn part_for(&self, name: &str, fields: &Map<String, Value>) -> Result<usize, Refusal> {
        let declares =
            |own: &&&'static Descriptor| own.requests.iter().any(|kind| kind.is_named(name));
        let Some(descriptor) = self.descriptors.iter().find(declares) else {
            let all = self.descriptors.iter().flat_map(|own| own.requests);
            let all: Vec<_> = all.map(|kind| kind.name()).collect();
            let message = format!("unknown request `{name}`: expected one of {}", all.join(", "));
            return Err(Refusal::new(ErrorKind::BadRequest, message));
        };
        let application = descriptor.application.name;
        let own = self.publisher.parts.iter().enumerate();
        let own = own.filter(|(_, own)| own.descriptor.application.name == application);
        match part_named(own.collect(), fields)? {
            Some(number) => Ok(number),
            None => {
                let message = match descriptor.absent {
                    "" => format!("no pipeline has a stage of the application `{application}`"),
                    absent => absent.to_owned(),
                };
                Err(Refusal::new(ErrorKind::Unsupported, message))
            }
        }
    }

    fn show(
        &mut self,
        what: &str,
        arguments: Map<String, Value>,
        as_text: bool,
    ) -> Result<Vec<Response>, Refusal> {
        if CORE_TABLES.contains(&what)
            && let Some(name) = arguments.keys().next()
        {
            return Err(no_argument(what, name));
        }
        let parts = &self.publisher.parts;
        Ok(match what {
            "interfaces" => {
                let rows = self.statistics.interfaces(&self.records, parts);
                core_table(what, as_text, &rows, table::interfaces)
            }
            "queues" => core_table(what, as_text, &self.statistics.queues(), table::table),
            "stages" => core_table(what, as_text, &self.statistics.stages(), table::table),
            "drops" => core_table(what, as_text, &self.statistics.drops(), table::drops),
            "runtime" => {
                let runtime = self.statistics.runtime(self.publisher.version(), parts);
                vec![match as_text {
                    true => Response::Text { text: table::runtime(&runtime) },
                    false => object(what, &runtime),
                }]
            }
            "snapshot" => {
                let version = self.publisher.version();
                let snapshot = self.statistics.snapshot(&self.records, version, parts);
                match as_text {
                    true => vec![Response::Text { text: table::snapshot(&snapshot) }],
                    false => vec![object(what, &snapshot)],
                }
            }
            _ => self.show_of_parts(what, arguments, as_text)?,
        })
    }

    /// A table that applications declare: the rows of all that run, or of the one whose stage the arguments name, where
    /// the table has an argument for it.
    fn show_of_parts(
        &mut self,
        what: &str,
        arguments: Map<String, Value>,
        as_text: bool,
    ) -> Result<Vec<Response>, Refusal> {
        let has = |own: &Descriptor| own.tables.iter().any(|table| table.name == what);
        let env = environment!(self);
        let own = self.publisher.parts.iter().enumerate().filter(|(_, own)| has(own.descriptor));
        let mut own: Vec<(usize, &Running)> = own.collect();
        let kinds = own.iter().flat_map(|(_, own)| own.descriptor.tables);
        let kinds: Vec<&TableKind> = kinds.filter(|table| table.name == what).collect();
        if kinds.iter().any(|table| table.has_argument("stage"))
            && let Some(number) = part_named(own.clone(), &arguments)?
        {
            own.retain(|(own, _)| *own == number);
        }
        // A part that has arguments reads them itself.
        let has_none = !kinds.is_empty() && !kinds.iter().any(|table| table.has_arguments());
        if let Some(name) = arguments.keys().next().filter(|_| has_none) {
            return Err(no_argument(what, name));
        }
        let table = |own: &Running| {
            let mut fields = arguments.clone();
            fields.remove("stage");
            own.part.table(Call { name: what, fields, as_text }, &env)
        };
        let tables: Vec<Rows> = own
            .iter()
            .map(|(_, own)| unless_it_panics(what, || table(own)))
            .collect::<Result<_, _>>()?;
        if !tables.is_empty() {
            return Ok(tables
                .into_iter()
                .flat_map(|rows| rows.responses(ROWS_PER_RESPONSE))
                .collect());
        }
        let running = self.publisher.parts.iter().flat_map(|own| own.descriptor.tables);
        let mut names = CORE_TABLES.to_vec();
        for table in running {
            if !names.contains(&table.name) {
                names.push(table.name);
            }
        }
        let (kind, what) = match self.descriptors.iter().any(|own| has(own)) {
            true => (ErrorKind::Unsupported, format!("this instance has no table `{what}`")),
            false => (ErrorKind::NotFound, format!("unknown table `{what}`")),
        };
        Err(Refusal::new(kind, format!("{what}: expected one of {}", names.join(", "))))
    }
}

/// Of parts with the same requests, the one of the stage that the field `stage` names, or the only one; `None` where
/// there is no part at all.
fn part_named(
    own: Vec<(usize, &Running)>,
    fields: &Map<String, Value>,
) -> Result<Option<usize>, Refusal> {
    let names = || own.iter().map(|(_, own)| own.name.as_str()).collect::<Vec<_>>().join(", ");
    let wanted = match fields.get("stage") {
        None => None,
        Some(Value::String(stage)) => Some(stage),
        Some(_) => {
            let message = "`stage`: expected the name of a stage";
            return Err(Refusal::new(ErrorKind::BadRequest, message));
        }
    };
    match (wanted, own.as_slice()) {
        (_, []) => Ok(None),
        (Some(stage), all) => {
            let found = all.iter().find(|(_, own)| own.name == *stage);
            found.map(|(number, _)| Some(*number)).ok_or_else(|| {
                let message = format!("there is no stage `{stage}`: expected one of {}", names());
                Refusal::new(ErrorKind::NotFound, message)
            })
        }
        (None, [(number, _)]) => Ok(Some(*number)),
        (None, _) => {
            let choices: Vec<_> =
                own.iter().map(|(_, own)| format!("`--stage {}`", own.name)).collect();
            let message = format!("several stages: choose one with {}", choices.join(" or "));
            Err(Refusal::new(ErrorKind::BadRequest, message))
        }
    }
}

/// A table is asked for rows by something that it knows nothing of.
fn no_argument(table: &str, name: &str) -> Refusal {
    let message = format!("the table `{table}` has no argument `{name}`");
    Refusal::new(ErrorKind::BadRequest, message)
}

/// Tables that every program has.
pub const CORE_TABLES: &[&str] =
    &["interfaces", "queues", "stages", "drops", "runtime", "snapshot"];

/// One object of the program itself, for programs.
fn object(name: &str, value: &impl Serialize) -> Response {
    let fields = match serde_json::to_value(value) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    };
    Response::Object { table: name.to_owned(), fields }
}

/// A table of the program itself.
fn core_table<R: Serialize>(
    name: &str,
    as_text: bool,
    rows: &[R],
    text: impl Fn(&[R]) -> String,
) -> Vec<Response> {
    if as_text {
        let empty = rows.is_empty() && name == "drops";
        let text = if empty { "no drops\n".to_owned() } else { text(rows) };
        return vec![Response::Text { text }];
    }
    let rows = rows.iter().map(|row| serde_json::to_value(row).unwrap_or_default()).collect();
    vec![Response::Rows { table: name.to_owned(), rows }]
}

fn send_done(answer: &Sender<Response>, done: Result<String, Refusal>) {
    // A client that is gone needs no answer.
    let _ = answer.send(match done {
        Ok(message) => Response::Done { message },
        Err(refusal) => refusal.into(),
    });
}

/// The clock: nanoseconds since 1970.
pub fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_panics_is_refused() {
        assert!(matches!(unless_it_panics("odd_add", || Ok(7)), Ok(7)));
        let refused = unless_it_panics::<()>("odd_add", || panic!("no such line"));
        let Err(refusal) = refused else { panic!("it was not refused") };
        let response = Response::from(refusal);
        let Response::Error { kind, message } = response else { panic!("{response:?}") };
        assert_eq!((kind, &*message), (ErrorKind::Internal, "`odd_add` panicked: no such line"));
    }
}
