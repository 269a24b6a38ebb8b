//! What an application is for the program: a descriptor, and a part of the control plane.
//!
//! An application declares itself once, in a [`Descriptor`]: its stages, its sections of the configuration, its requests
//! and tables of `ctl`, and how its [`ControlPart`] starts. The program has one list of descriptors; wiring, the
//! publisher of tables, the control loop, reload, statistics, metrics and `ctl` are loops over that list.
//!
//! ```text
//!  Descriptor::start ─▶ ControlPart ┬─ stage ───────▶ the stages of each worker
//!                                   ├─ take_patches ▶ Publisher ─▶ one version of all tables
//!   workers' events, kernel, links ─┤
//!   requests of `ctl`, reload ──────┤
//!                                   └─ tables, lines, metrics, reports
//! ```
//!
//! Threads: a part belongs to the control loop's; over captures, to whoever runs the data path.

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use chunk::{Packet, ReasonBlock};
use control::api::table::Row;
use control::api::{ErrorKind, HotTable, Response};
use control::config::draft::Draft;
use control::config::section::SectionValue;
use control::config::{Application, Config, Pipeline, StageKind, kept};
use control::kernel;
use control::kernel::twin::Advertisements;
use control::metrics::Metrics;
use engine::{Gate, Stage, WorkerCounters};
use io::QueueStats;
use kernels::KernelFile;
use lookup::fib::Interface;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::findings::Findings;
use crate::inject::Injector;
use crate::interfaces::{Interfaces, PortFacts};
use crate::module::{Module, ModuleKind};
use crate::request::{GroupKind, NameKind, RequestKind, TableKind};
use crate::statistics::PortCounters;
use crate::tables::{Tables, TablesPatch};

/// An application, as it declares itself.
pub struct Descriptor {
    /// What it has in the configuration, with its name.
    pub application: &'static Application,
    /// Its stages.
    pub stages: &'static [StageKind],
    /// The stages that `mode = "NAME"` stands for; empty for one that only joins pipelines of others.
    pub pipeline: &'static [&'static str],
    /// Its files of kernels: devices answer for them before they are used, and a build brings their programs along. Text
    /// that a stage makes itself is no such file.
    pub kernels: &'static [&'static KernelFile],
    /// Changes of a configuration with which its stages have other device programs: a build brings those along, too.
    pub variants: &'static [fn(&mut Config)],
    /// The blocks of the reasons that its stages drop for.
    pub reasons: &'static [&'static ReasonBlock],
    /// Its requests of `ctl`.
    pub requests: &'static [RequestKind],
    /// Its tables of `ctl show`.
    pub tables: &'static [TableKind],
    /// The words under which its requests stand.
    pub groups: &'static [GroupKind],
    /// Where names come from that arguments of its requests and tables may be.
    pub names: &'static [NameKind],
    /// Rust modules that `[[module]] kind` may name.
    pub modules: &'static [ModuleKind],
    /// What a request gets where no pipeline has a stage of it; empty: that.
    pub absent: &'static str,
    /// `check`: adds what is wrong in the files that its sections name, and what does not fit into its tables, if a
    /// pipeline has a stage of it.
    pub check: CheckFiles,
    /// Where the file must have keys without which it cannot start ([`control::config::Settings::is_needed`]): starts it without
    /// them, to describe its stages and to compile their device programs. No packet passes.
    pub example: Option<StartPart>,
    /// Starts its part of the control plane for the stages of one name: adds the first version of its tables.
    ///
    /// # Errors
    /// Why it cannot start, in words.
    pub start: StartPart,
}

/// Constants of a module, so that they live as long as the program.
struct OfModule<M>(std::marker::PhantomData<M>);

impl<M: Module> OfModule<M> {
    const APPLICATION: &'static Application =
        &Application { name: M::NAME, title: M::NAME, ..Application::NONE };
    const KINDS: &'static [ModuleKind] = &[ModuleKind::of::<M>()];
}

/// See [`Descriptor::check`].
pub type CheckFiles = fn(&Config, &Interfaces, &mut Findings);

/// See [`Descriptor::start`].
pub type StartPart = fn(&Setup<'_>, &mut Tables) -> Result<Box<dyn ControlPart>, String>;

impl Descriptor {
    /// Nothing: what a declaration begins with.
    pub const NONE: Self = Self {
        application: &Application::NONE,
        stages: &[],
        pipeline: &[],
        kernels: &[],
        variants: &[],
        reasons: &[],
        requests: &[],
        tables: &[],
        groups: &[],
        names: &[],
        modules: &[],
        absent: "",
        check: |_, _, _| {},
        example: None,
        start: |_, _| Err("an application without a start".to_owned()),
    };

    /// An application that is one Rust module.
    pub const fn of_module<M: Module>() -> Self {
        Self {
            application: OfModule::<M>::APPLICATION,
            modules: OfModule::<M>::KINDS,
            ..Self::NONE
        }
    }
}

/// What a part starts with.
#[derive(Clone, Copy)]
pub struct Setup<'a> {
    /// The configuration.
    pub config: &'a Config,
    /// The name of its stages, where they have settings of their own (`[stage.NAME]`); else that of the application.
    pub name: &'a str,
    /// The interfaces.
    pub interfaces: &'a Interfaces,
    /// What the system says of each port.
    pub facts: &'a dyn Fn(u16) -> PortFacts,
    /// There are a clock, workers that tell of events, and Linux with its neighbours; otherwise captures.
    pub is_live: bool,
    /// The Rust modules of the program.
    pub modules: &'a [ModuleKind],
    /// What the program attaches for parts that know the type: see [`Setup::attached`].
    pub attachments: &'a [&'a (dyn Any + Sync)],
}

/// What a run over captures begins with; attached to its [`Setup`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Beginning {
    /// When it begins, nanoseconds since 1970; 0: with the first packet that each part sees.
    pub now_ns: u64,
    /// The seed of hashes and of what is drawn.
    pub seed: u64,
}

impl Setup<'_> {
    /// The seed of hashes and of what is drawn: at random in live runs; that of the [`Beginning`] over captures, so that the same
    /// input gives the same bytes.
    pub fn seed(&self) -> u64 {
        match self.is_live {
            true => chunk::hash::random_seed(),
            // Parts take some of its bits: small numbers differ in all. 0 stays 0.
            false => self.beginning().seed.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        }
    }

    /// What a run over captures begins with.
    pub fn beginning(&self) -> Beginning {
        self.attached().copied().unwrap_or_default()
    }

    /// What the program attached of this type: a listener of its own, for a command over the same pipeline.
    pub fn attached<A: 'static>(&self) -> Option<&A> {
        self.attachments.iter().find_map(|own| (*own as &dyn Any).downcast_ref())
    }

    /// The record of interface `number`.
    pub fn record(&self, number: u16) -> Interface {
        crate::interfaces::record(self.config, self.interfaces, number, self.facts, self.is_live)
    }
}

/// What a stage of one worker is made with.
#[derive(Clone, Copy)]
pub struct WorkerSetup<'a> {
    /// The worker, from 0.
    pub worker: usize,
    /// The configuration.
    pub config: &'a Config,
    /// The pipeline.
    pub pipeline: &'a Pipeline,
    /// The stage's place in the pipeline: its name and kind are there.
    pub at: usize,
    /// The interfaces.
    pub interfaces: &'a Interfaces,
    /// Time is the packets' own: captures.
    pub packet_time: bool,
    /// Limits that only the order of all packets decides are left to the gate behind the workers.
    pub defers_limits: bool,
    /// The devices have the part's tables.
    pub has_device: bool,
    /// What stages before it in the pipeline left for it.
    pub shared: &'a Shared,
}

/// What the stages of one worker and pipeline share beside columns, as they are made, in their order: a stage leaves
/// something of a type that a later one knows.
#[derive(Default)]
pub struct Shared(std::cell::RefCell<Vec<Box<dyn Any>>>);

impl Shared {
    /// Leaves something for later stages.
    pub fn put<T: 'static>(&self, what: T) {
        self.0.borrow_mut().push(Box::new(what));
    }

    /// What an earlier stage left of this type; the last one of several.
    pub fn get<T: Clone + 'static>(&self) -> Option<T> {
        self.0.borrow().iter().rev().find_map(|own| own.downcast_ref().cloned())
    }
}

impl WorkerSetup<'_> {
    /// The stage's name, kept as long as the program.
    pub fn name(&self) -> &'static str {
        kept(&self.pipeline.stages[self.at])
    }

    /// The bit of the context of that name in the column `context`; 0 where no stage sees it.
    pub fn context(&self, name: &str) -> u32 {
        let number = self.config.contexts().iter().position(|own| own == name);
        number.map_or(0, |number| 1 << number)
    }

    /// What `[stage.NAME]` has for the stage; defaults where the file has no such section.
    pub fn settings<S: SectionValue + Clone + Default>(&self) -> S {
        let own = self.config.stage(&self.pipeline.stages[self.at]);
        own.and_then(|stage| stage.settings.as_deref()?.get()).cloned().unwrap_or_default()
    }
}

/// What a part may use while the control loop lets it work.
pub struct Environment<'a> {
    /// The configuration, as last read.
    pub config: &'a Config,
    /// The interfaces,
    pub interfaces: &'a Interfaces,
    /// and their records by number.
    pub records: &'a [Interface],
    /// By interface: its side in Linux, where it has one.
    pub twins: &'a [Option<Twin>],
    /// Nanoseconds since 1970.
    pub now_ns: u64,
    /// Frames that leave by ports.
    pub injector: Option<&'a mut Injector>,
    /// What the queues of ports have counted.
    pub ports: &'a [PortCounters],
    /// What workers have counted, by their number.
    pub workers: &'a [Arc<WorkerCounters>],
}

/// The Linux side of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Twin {
    /// Its name in Linux.
    pub name: String,
    /// Its number there.
    pub ifindex: u32,
    /// What the kernel and its mirror do with Router Advertisements on it.
    pub advertisements: Advertisements,
}

impl Environment<'_> {
    /// Seconds since 1970.
    pub fn now_s(&self) -> u32 {
        (self.now_ns / 1_000_000_000) as u32
    }

    /// The interface whose Linux side has this number.
    pub fn interface_of(&self, ifindex: u32) -> Option<u16> {
        let is_it = |twin: &Option<Twin>| twin.as_ref().is_some_and(|t| t.ifindex == ifindex);
        self.twins.iter().position(is_it).map(|at| at as u16)
    }

    /// Sends a frame out of an interface.
    pub fn send(&mut self, interface: u16, frame: &[u8]) {
        let port = self.records.get(usize::from(interface)).map_or(interface, |r| r.port);
        if let Some(injector) = &mut self.injector {
            injector.send(port, frame);
        }
    }

    /// Lets the pipeline of a port take a frame as if the port had received it, with a mark of the pipeline's stages.
    pub fn receive(&mut self, port: u16, frame: &[u8], mark: u32) {
        if let Some(injector) = &mut self.injector {
            injector.put(port, frame, mark);
        }
    }

    /// The number of an interface that a request names.
    ///
    /// # Errors
    /// There is no such interface; the refusal names those that there are.
    pub fn number(&self, name: &str) -> Result<u16, Refusal> {
        self.interfaces.number(name).ok_or_else(|| {
            let ports = self.interfaces.list();
            Refusal::new(
                ErrorKind::NotFound,
                format!("there is no port `{name}`: expected one of {ports}"),
            )
        })
    }
}

/// Why a request was refused; nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// What is wrong.
    pub kind: ErrorKind,
    /// The same in words.
    pub message: String,
}

impl Refusal {
    /// A refusal.
    pub fn new(kind: ErrorKind, message: impl ToString) -> Self {
        Self { kind, message: message.to_string() }
    }
}

impl From<Refusal> for Response {
    fn from(refusal: Refusal) -> Self {
        Response::error(refusal.kind, refusal.message)
    }
}

/// The answer to a request.
pub enum Outcome {
    /// Done; the text may be empty.
    Done(String),
    /// A table.
    Rows(Rows),
    /// What takes long: built on a thread of its own, then given to [`ControlPart::built`], which answers.
    Later(Work),
}

/// Something built aside.
pub type Built = Box<dyn Any + Send>;

/// Builds something, on any thread.
pub type Work = Box<dyn FnOnce() -> Built + Send>;

/// Prepares what a part needs of a new configuration and what takes long to build, on any thread. An error is in words.
pub type Prepare = Box<dyn FnOnce(&Config, &Interfaces) -> Result<Built, String> + Send>;

/// Writes what a part has beside the configuration into a draft of its file, on any thread: the configuration is that of
/// the draft. What a file cannot say is the answer, in words.
pub type Save = Box<dyn FnOnce(&Config, &mut Draft) -> Vec<String> + Send>;

/// Rows of a table that `ctl` prints.
#[derive(Debug, Clone, PartialEq)]
pub struct Rows {
    /// The table's name in answers to programs.
    pub table: &'static str,
    columns: Vec<String>,
    empty: &'static str,
    as_text: bool,
    texts: Vec<Vec<String>>,
    values: Vec<Value>,
}

impl Rows {
    /// No rows yet; `as_text`: for people.
    pub fn new<R: Row>(table: &'static str, as_text: bool) -> Self {
        let columns = R::COLUMNS.iter().map(|column| (*column).to_owned()).collect();
        Self { empty: R::EMPTY, ..Self::with_columns(table, as_text, columns) }
    }

    /// No rows yet of columns that no type declares; their titles as in [`Row::COLUMNS`].
    pub fn with_columns(table: &'static str, as_text: bool, columns: Vec<String>) -> Self {
        Self { table, columns, empty: "", as_text, texts: Vec::new(), values: Vec::new() }
    }

    /// All of some rows.
    pub fn of<R: Row + Serialize>(
        table: &'static str,
        as_text: bool,
        rows: impl IntoIterator<Item = R>,
    ) -> Self {
        let mut all = Self::new::<R>(table, as_text);
        rows.into_iter().for_each(|row| all.push(&row));
        all
    }

    /// Adds a row.
    pub fn push<R: Row + Serialize>(&mut self, row: &R) {
        if self.as_text {
            self.texts.push(row.cells());
        } else {
            self.values.push(serde_json::to_value(row).unwrap_or_default());
        }
    }

    /// Adds a row: a text for each column, and the same as an object for programs.
    pub fn push_cells(&mut self, cells: Vec<String>, value: Value) {
        if self.as_text {
            self.texts.push(cells);
        } else {
            self.values.push(value);
        }
    }

    /// The rows as pieces of an answer, at least one.
    pub fn responses(self, rows_per_response: usize) -> Vec<Response> {
        fn pieces<T>(mut rows: Vec<T>, most: usize) -> Vec<Vec<T>> {
            let mut all = Vec::new();
            while rows.len() > most {
                let rest = rows.split_off(most);
                all.push(std::mem::replace(&mut rows, rest));
            }
            all.push(rows);
            all
        }
        if self.as_text {
            let (columns, empty) = (self.columns, self.empty.to_owned());
            let table =
                |rows| Response::Table { columns: columns.clone(), rows, empty: empty.clone() };
            pieces(self.texts, rows_per_response).into_iter().map(table).collect()
        } else {
            let rows = |rows| Response::Rows { table: self.table.to_owned(), rows };
            pieces(self.values, rows_per_response).into_iter().map(rows).collect()
        }
    }
}

/// A request for a part, or for a table of it.
pub struct Call<'a> {
    /// The words of its declaration joined by `_`: `route_add`. The table's name.
    pub name: &'a str,
    /// Its fields.
    pub fields: Map<String, Value>,
    /// Whether tables are for people.
    pub as_text: bool,
}

impl Call<'_> {
    /// The fields as the type that declares them.
    ///
    /// # Errors
    /// A field is missing, unknown or of another type.
    pub fn read<T: serde::de::DeserializeOwned>(&mut self) -> Result<T, Refusal> {
        let fields = Value::Object(std::mem::take(&mut self.fields));
        serde_json::from_value(fields)
            .map_err(|error| Refusal::new(ErrorKind::BadRequest, format!("{}: {error}", self.name)))
    }
}

/// What a frame of a capture tells a part before the pipeline sees it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ahead {
    /// It must begin a burst, so that those before it see the tables as they were: nothing was learned yet.
    pub begins: bool,
    /// Something was learned that the tables must show before the frame goes on.
    pub changed: bool,
}

/// What a part adds to the report of a run: a field of the file, and lines for people.
#[derive(Debug, Clone, Default)]
pub struct Section {
    /// The field's name.
    pub name: String,
    /// Its value.
    pub value: Value,
    /// What people read.
    pub text: String,
    /// What went wrong, a line each: the run is incomplete.
    pub errors: Vec<String>,
}

impl Section {
    /// A section with a value as it serialises.
    pub fn new(name: &str, value: &impl Serialize, text: String) -> Self {
        let value = serde_json::to_value(value).unwrap_or_default();
        Self { name: name.to_owned(), value, text, errors: Vec::new() }
    }
}

/// Where the events of workers come from: run on a thread of its own.
pub type Source = Box<dyn FnOnce(Carrier) + Send>;

/// Carries events into the control loop.
pub struct Carrier {
    send: Box<dyn Fn(Built) -> bool + Send>,
}

impl Carrier {
    /// Events go to `send`, which says whether there will be more.
    pub fn new(send: impl Fn(Built) -> bool + Send + 'static) -> Self {
        Self { send: Box::new(send) }
    }
}

/// Events that may wait for the control loop; more are repeated by later packets, or lost and counted.
const EVENTS: usize = 4096;

/// A queue of events from workers to [`ControlPart::event`].
pub fn events<E: Send + 'static>() -> (SyncSender<E>, Source) {
    let (sender, inbox): (_, Receiver<E>) = sync_channel(EVENTS);
    let carry = move |carrier: Carrier| {
        while let Ok(event) = inbox.recv() {
            if !(carrier.send)(Box::new(event)) {
                return; // the program ends
            }
        }
    };
    (sender, Box::new(carry))
}

/// An application's part of the control plane, for its stages of one name.
///
/// What it publishes comes from [`ControlPart::take_patches`], after each of the other calls.
pub trait ControlPart: Send {
    /// A stage of one more worker; `None` for a kind that is not of this application.
    fn stage(&mut self, kind: &str, worker: &WorkerSetup<'_>) -> Option<Box<dyn Stage<Tables>>>;

    /// What it offers to the parts of other applications, which know its type.
    fn offer(&self) -> Option<Box<dyn Any + Send + Sync>> {
        None
    }

    /// Another part offers something. It may do so again; a part passes over what it does not know.
    fn attach(&mut self, _offered: &(dyn Any + Send + Sync)) {}

    /// Threads that carry what workers tell.
    fn sources(&mut self) -> Vec<Source> {
        Vec::new()
    }

    /// Numbers of its regions in a device's image.
    fn regions(&self) -> Range<usize> {
        0..0
    }

    /// Why a device with this much memory cannot have its tables.
    fn unfit(&self, _tables: &Tables, _memory_bytes: u64) -> Option<String> {
        None
    }

    /// What is to be published.
    fn take_patches(&mut self) -> Option<TablesPatch> {
        None
    }

    /// A version with its patches is out.
    fn published(&mut self, _tables: &Tables) {}

    /// Whether the next [`ControlPart::take_patches`] has something to do at once.
    fn is_busy(&self) -> bool {
        false
    }

    /// When [`ControlPart::tick`] has something to do at the latest, nanoseconds since 1970.
    fn next_deadline_ns(&self) -> Option<u64> {
        None
    }

    /// Timers; called in each turn of the loop.
    fn tick(&mut self, _env: &mut Environment<'_>) {}

    /// A worker's stage tells of something: what was put into the queue of [`events`].
    fn event(&mut self, _event: Built, _env: &mut Environment<'_>) {}

    /// Linux tells of a neighbour, a route or a next hop.
    fn kernel(&mut self, _event: &kernel::Event, _env: &mut Environment<'_>) {}

    /// The record of an interface has changed: addresses, MTU, up or down.
    fn interface(&mut self, _number: u16, _env: &mut Environment<'_>) {}

    /// The link of a port came or went.
    fn link(&mut self, _port: u16, _is_up: bool) {}

    /// Whether Linux is to be mirrored for it: neighbours and routes of the twins.
    fn mirrors_kernel(&self, _config: &Config) -> bool {
        false
    }

    /// A request that its descriptor declares.
    ///
    /// # Errors
    /// Why nothing has changed.
    fn call(&mut self, call: Call<'_>, _env: &mut Environment<'_>) -> Result<Outcome, Refusal> {
        Err(Refusal::new(ErrorKind::Internal, format!("no request `{}`", call.name)))
    }

    /// A table that its descriptor declares, by the name of the call; its fields are the table's arguments.
    ///
    /// # Errors
    /// There is no such table, or no such row.
    fn table(&self, call: Call<'_>, _env: &Environment<'_>) -> Result<Rows, Refusal> {
        Err(Refusal::new(ErrorKind::Internal, format!("no table `{}`", call.name)))
    }

    /// What an [`Outcome::Later`] asked for is built.
    ///
    /// # Errors
    /// As [`ControlPart::call`].
    fn built(&mut self, _built: Built, _env: &mut Environment<'_>) -> Result<String, Refusal> {
        Ok(String::new())
    }

    /// What an [`Outcome::Later`] asked for could not be built.
    fn build_failed(&mut self) {}

    /// What a reload is to build aside before [`ControlPart::apply`].
    fn prepare(&self) -> Option<Prepare> {
        None
    }

    /// Notes from now on what changes, so that [`ControlPart::roll_back`] can take it back.
    fn begin(&mut self) {}

    /// Applies what may fail of a configuration with the same interfaces: `env.config`, after `old`. Addresses and MTU come by
    /// [`ControlPart::interface`]. `prepared` comes from [`ControlPart::prepare`].
    ///
    /// # Errors
    /// Why it cannot be; all parts are then rolled back.
    fn apply(
        &mut self,
        _old: &Config,
        _prepared: Option<Built>,
        _env: &mut Environment<'_>,
    ) -> Result<(), String> {
        Ok(())
    }

    /// Takes back what changed since [`ControlPart::begin`].
    fn roll_back(&mut self, _env: &mut Environment<'_>) {}

    /// Applies what cannot fail; what changed stays. The text, lines or nothing, comes before the differences of the file.
    fn commit(&mut self, _old: &Config, _started: &Config, _env: &mut Environment<'_>) -> String {
        String::new()
    }

    /// What `ctl` changed in it since the configuration was read, as changes of the file. A reload of the changed file must
    /// change nothing, and what `ctl` had added is then the configuration's.
    fn save(&self, _env: &Environment<'_>) -> Option<Save> {
        None
    }

    /// What it counts starts at zero.
    fn clear(&mut self) {}

    /// What it says of itself in `ctl show runtime`: fields for programs, lines for people.
    fn runtime(&self) -> (Map<String, Value>, Vec<[String; 2]>) {
        <_>::default()
    }

    /// What of it had the most packets, for dashboards: a table for each of its lists that count packets, of up to `most`
    /// rows ([`HotTable::of`]).
    fn hottest(&self, _most: usize) -> Vec<HotTable> {
        Vec::new()
    }

    /// Its metrics.
    fn metrics(&self, _out: &mut Metrics) {}

    /// What it adds to the report of a run.
    fn report(&self) -> Vec<Section> {
        Vec::new()
    }

    /// What its stages received and sent by a subinterface, which has no queues that count; since the start.
    fn tagged(&self, _interface: u16) -> (QueueStats, QueueStats) {
        <_>::default()
    }

    /// Over captures: whether it learns from frames before the pipeline sees them ([`ControlPart::ahead`]).
    fn learns_ahead(&self) -> bool {
        false
    }

    /// Over captures: learns from a frame that is about to enter the pipeline. Unless it is the `first` of a burst, it may ask
    /// for a new one. `passes` says whether the stages before its own let the frame go on.
    fn ahead(
        &mut self,
        _packet: &Packet,
        _is_first: bool,
        _tables: &Tables,
        _passes: bool,
    ) -> Ahead {
        Ahead::default()
    }

    /// The frame that was looked at last goes on now.
    fn went_on(&mut self) {}

    /// Whether its stage would let a frame go on: for those who must know before its turn.
    fn passes(&self, _packet: &Packet, _tables: &Tables) -> bool {
        true
    }

    /// Whether its stages in this pipeline leave limits to [`ControlPart::gate`].
    fn has_gate(&self, _pipeline: &Pipeline) -> bool {
        false
    }

    /// Over captures with several workers: the limit of errors of all of them together.
    fn gate(&mut self, _config: &Config, _interfaces: usize) -> Option<Box<dyn Gate>> {
        None
    }
}
