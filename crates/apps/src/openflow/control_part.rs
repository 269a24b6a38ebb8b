//! The switch's part of the control plane: files of flows, `ctl`, time-outs, ports.

use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use chunk::Packet;
use control::api::ErrorKind;
use control::api::table::thousands;
use control::config::{Config, EngineBackend};
use control::metrics::Metrics;
use controlplane::{
    Ahead, Built, Call, ControlPart, Environment, Findings, Interfaces, Outcome, OverPart, PartId,
    Refusal, Rows, Section, Setup, Source, Tables, TablesPatch, WorkerSetup,
};
use engine::Stage;
use flowtable::pipeline::Dry;
use flowtable::trace::trace;
use flowtable::{Dropped, Egress, FlowControl, FlowPatch, FlowTables, Pipeline, Port, Sent};
use lookup::versions::Patchable;
use openflow::flow::FlowFilter;
use openflow::port::{PortConfig, PortReason};
use openflow::syntax::{FlowText, Syntax};
use openflow::{Action, ErrorCode, FlowCommand, PortNo, Version};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::channel::{Event, Link, check as check_channels};
use super::files::{
    Changed, difference, load, port_names, refused_in_words, replace, text_of, text_of_input,
};
use super::queues::{self, Shapes};
use super::settings::{FailMode, Protocol, Settings};
use super::stage::{Counters, OpenFlow, PortNumbers};
use super::switch::{Facade, datapath_id, precise};
use super::tables::OpenFlowPart;
use super::{FlowFiles, commands};

mod show;

struct OpenFlowControl {
    name: String,
    control: FlowControl,
    version: Version,
    part: PartId<OpenFlowPart>,
    interfaces: Interfaces,
    is_live: bool,
    /// By worker.
    workers: Vec<Arc<Counters>>,
    /// When something was asked last, nanoseconds since 1970.
    now_ns: u64,
    /// Flows that left because their time was over.
    expired: u64,
    flows_max: u32,
    /// Queues in front of ports.
    shapes: Shapes,
    /// Connections to controllers.
    link: Option<Link>,
    /// What the tables of the link have, and others have not.
    patches: Vec<FlowPatch>,
    /// Packets do not see yet what was taken of them.
    is_unpublished: bool,
    /// Ports whose state has changed since the controllers were told.
    changed_ports: Vec<PortNo>,
    ports: PortNumbers,
    /// The stages of a switch are behind this one.
    has_switch: bool,
    /// Over captures: what finds packets that go to NORMAL; `None`: no flow sends any there.
    normal: Option<RefCell<Pipeline<Vec<u8>>>>,
}

/// The settings of the stages of a name; defaults where the file has no such section.
fn settings(config: &Config, name: &str) -> Settings {
    let own = config.stage(name).and_then(|stage| stage.settings.as_deref()?.get::<Settings>());
    own.cloned().unwrap_or_default()
}

/// How ports are numbered.
fn numbers(settings: &Settings, interfaces: &Interfaces) -> Result<PortNumbers, String> {
    let local = settings.local.as_deref().map(|name| {
        let port = interfaces.number(name).filter(|port| interfaces.is_port(*port));
        port.ok_or_else(|| format!("`local`: there is no port `{name}`"))
    });
    Ok(PortNumbers { local: local.transpose()? })
}

/// The ports of the switch of a name: all but those whose packets enter another switch of the program.
fn own_ports(
    config: &Config,
    name: &str,
    interfaces: &Interfaces,
    ports: PortNumbers,
) -> Vec<PortNo> {
    let is_own = |port: &u16| {
        let mut switches =
            config.pipeline_of(interfaces.name(*port)).named(super::STAGE).peekable();
        switches.peek().is_none() || switches.any(|own| own == name)
    };
    interfaces.ports().filter(is_own).map(|port| ports.number(port)).collect()
}

/// Whether the stages of a switch are behind those of a name, in all pipelines that have them.
fn has_switch(config: &Config, name: &str) -> bool {
    let mut own = config.in_use().filter(|own| own.named(super::STAGE).any(|own| own == name));
    own.all(|pipeline| pipeline.has("bridge_in"))
}

/// What finds packets that go to NORMAL, unless no flow and no group sends any there.
fn normal(control: &FlowControl) -> Option<RefCell<Pipeline<Vec<u8>>>> {
    let is_it = |action: &Action| matches!(action, Action::Output { port: PortNo::NORMAL, .. });
    let of_flow =
        |flow: &Arc<flowtable::Flow>| flow.steps.apply.iter().chain(&flow.steps.write).any(is_it);
    let mut buckets = control.group_descs().into_iter().flat_map(|group| group.buckets);
    let is_used =
        control.flows().any(of_flow) || buckets.any(|bucket| bucket.actions.iter().any(is_it));
    is_used.then(|| RefCell::new(Pipeline::new()))
}

/// Whether a packet goes to NORMAL.
#[derive(Default)]
struct ToNormal(bool);

impl Egress for ToNormal {
    type Frame = Vec<u8>;

    fn copy(&mut self, frame: &Vec<u8>) -> Option<Vec<u8>> {
        Some(frame.clone())
    }

    fn send(&mut self, _: usize, _: Vec<u8>, to: &Sent) {
        self.0 |= to.port == PortNo::NORMAL;
    }

    fn done(&mut self, _: usize, _: Option<Vec<u8>>, _: Option<Dropped>) {}

    fn free(&mut self, _: Vec<u8>) {}
}

/// Control's side of the switch of a name, with the flows of the files.
fn begin(
    (config, name): (&Config, &str),
    settings: &Settings,
    more: &[PathBuf],
    interfaces: &Interfaces,
    now_ns: u64,
) -> Result<(FlowControl, FlowTables, Shapes), String> {
    let most = settings.flows_max as usize;
    let (mut control, tables) = FlowControl::new(settings.tables(), most, settings.algorithm());
    let ports = numbers(settings, interfaces)?;
    let shapes = queues::shapes(&settings.queues, interfaces)?;
    control.set_queues(queues::numbers(&shapes, ports));
    for number in own_ports(config, name, interfaces, ports) {
        set_port(&mut control, number, true);
    }
    let by_name = port_names(&control, interfaces, ports);
    let own = settings.flows.iter().map(|path| (path, text_of(path)));
    for (path, text) in own.chain(more.iter().map(|path| (path, text_of_input(path)))) {
        load(&mut control, (path, &text?), &by_name, settings.protocol(), now_ns)?;
    }
    Ok((control, tables, shapes))
}

fn set_port(control: &mut FlowControl, number: PortNo, live: bool) {
    control.set_port(number, Some(Port { number, config: PortConfig::empty(), live }));
}

/// Starts it.
pub(super) fn start(
    setup: &Setup<'_>,
    tables: &mut Tables,
) -> Result<Box<dyn ControlPart>, String> {
    let settings = settings(setup.config, setup.name);
    // Over captures time begins with the first packet.
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now_ns = since.map_or(0, |since| if setup.is_live { since.as_nanos() as u64 } else { 0 });
    let more = setup.attached::<FlowFiles>().map_or(&[][..], |own| &own.0);
    let (mut control, mut own, shapes) =
        begin((setup.config, setup.name), &settings, more, setup.interfaces, now_ns)?;
    control.take_patches().iter().for_each(|patch| own.apply(patch));
    let ports = numbers(&settings, setup.interfaces)?;
    let link = match setup.is_live {
        true => Link::start(&settings, &own, ports, Duration::from_nanos(now_ns))?,
        false => None,
    };
    let has_switch = has_switch(setup.config, setup.name);
    Ok(Box::new(OpenFlowControl {
        name: setup.name.to_owned(),
        version: settings.protocol(),
        part: tables.add::<OpenFlowPart>(own),
        interfaces: setup.interfaces.clone(),
        is_live: setup.is_live,
        normal: if setup.is_live { None } else { normal(&control) },
        ports,
        has_switch,
        control,
        workers: Vec::new(),
        now_ns: 0,
        expired: 0,
        flows_max: settings.flows_max,
        shapes,
        link,
        patches: Vec::new(),
        is_unpublished: false,
        changed_ports: Vec::new(),
    }))
}

/// `check`: files that cannot be read, and flows that are refused.
pub(super) fn check_files(config: &Config, interfaces: &Interfaces, findings: &mut Findings) {
    let mut names: Vec<&str> = config.in_use().flat_map(|own| own.named(super::STAGE)).collect();
    names.sort_unstable();
    names.dedup(); // pipelines may share a stage
    let has_device = config.engine.may_use(|backend| backend != EngineBackend::Cpu);
    let mut addresses = Vec::new();
    for name in names {
        let own = settings(config, name);
        if let Err(error) = check_channels(&own, &mut addresses) {
            findings.error_of_all(error);
        }
        if own.device && own.flows_max as usize > flowtable::device::FLOWS_MAX {
            let most = flowtable::device::FLOWS_MAX;
            findings.error_of_all(format!(
                "`device` of `{name}`: `flows_max` is at most {most} with it"
            ));
        }
        if own.device && !has_device {
            findings.warn_of_all(format!(
                "`device` of `{name}` only costs time with this back end: choose auto, opencl or cuda"
            ));
        }
        if own.version == Protocol::V10 && own.tables != Settings::default().tables {
            findings.warn_of_all(format!("`tables` of `{name}` does not count: 1.0 has one table"));
        }
        if own.fail_mode == FailMode::Standalone && own.controllers.is_empty() {
            findings.warn_of_all(format!(
                "`fail_mode` of `{name}` does not count: there are no `controllers`"
            ));
        }
        if own.fail_mode == FailMode::Standalone && !has_switch(config, name) {
            let stages = super::DEFAULT_STAGES[1..].join(", ");
            findings.error_of_all(format!(
                "`fail_mode = \"standalone\"` needs the stages of a switch after `{name}`: {stages}"
            ));
        }
        if let Err(error) = begin((config, name), &own, &[], interfaces, 0) {
            findings.error_of_all(error);
        }
    }
}

/// What it did, for the report.
#[derive(Debug, Default, Serialize)]
struct Totals {
    flows: u64,
    expired: u64,
    looked_up: u64,
    matched: u64,
    to_controller: u64,
    controller_rate: u64,
    to_normal: u64,
    copies: u64,
    copies_lost: u64,
}

impl OpenFlowControl {
    fn totals(&self) -> Totals {
        let mut sum =
            Totals { flows: self.control.len() as u64, expired: self.expired, ..Totals::default() };
        for worker in &self.workers {
            sum.to_controller += worker.to_controller.get();
            sum.controller_rate += worker.controller_rate.get();
            sum.to_normal += worker.to_normal.get();
            sum.copies += worker.copies.get();
            sum.copies_lost += worker.copies_lost.get();
            for [looked_up, matched] in &worker.tables {
                sum.looked_up += looked_up.get();
                sum.matched += matched.get();
            }
        }
        sum
    }

    /// Packets looked up in a table, and packets that a flow took.
    fn lookups(&self, table: u8) -> [u64; 2] {
        let of = |at: usize| {
            let tables = self.workers.iter().filter_map(|own| own.tables.get(usize::from(table)));
            tables.map(|own| own[at].get()).sum()
        };
        [of(0), of(1)]
    }

    /// Lets the connections work, and carries out what they have asked for.
    fn with_link(
        &mut self,
        env: &mut Environment<'_>,
        work: impl FnOnce(&mut Link, &mut Facade<'_>, Duration),
    ) {
        let Some(mut link) = self.link.take() else { return };
        let now = Duration::from_nanos(env.now_ns);
        if link.since_ns == 0 {
            link.since_ns = env.now_ns;
        }
        // The same as long as it runs, whichever ports come and leave.
        if link.datapath_id == 0 {
            let is_own = |(port, _): &(usize, _)| {
                self.control.port(self.ports.number(*port as u16)).is_some()
            };
            let own = env.records.iter().enumerate().filter(is_own);
            link.datapath_id = datapath_id(own.map(|(_, record)| record));
        }
        let mut out = std::mem::take(&mut link.out);
        let lookups = (0..self.control.settings().tables).map(|table| self.lookups(table));
        let (records, ports) = (env.records, env.ports);
        let totals = |port| controlplane::statistics::totals_of(ports, port);
        let mut switch = Facade {
            ports: self.ports,
            totals: &totals,
            has_switch: self.has_switch,
            lookups: lookups.collect(),
            control: &mut self.control,
            records,
            flows_max: self.flows_max,
            shapes: &self.shapes,
            version: self.version,
            out: &mut out,
            since_ns: link.since_ns,
            datapath_id: link.datapath_id,
            changed: &mut self.changed_ports,
        };
        // What has happened outside of requests comes first: time-outs, `ctl`.
        link.channels().agent().flow_changes(&mut switch);
        work(&mut link, &mut switch, now);
        let has_monitors = link.channels().agent().has_monitors();
        switch.control.watch(has_monitors);
        for number in std::mem::take(switch.changed) {
            if let Some(port) = switch.port_desc(number) {
                link.channels().agent().port_status(PortReason::Modify, &port);
            }
        }
        link.out = out;
        if link.settle(now) {
            self.patches.push(FlowPatch::Standalone(link.is_standalone));
        }
        self.link = Some(link);
        self.renew_link();
        if let Some(link) = &mut self.link {
            link.send_out(&self.shapes, env);
            for flow in self.control.take_removed() {
                link.channels().agent().flow_removed(&flow);
            }
        }
        self.answer(now);
    }

    /// Lets controllers have what waits for them, unless packets do not see yet what they have asked for: it leaves when the
    /// version is out. So whoever sends a packet after the answer to a BARRIER meets the new flows.
    fn answer(&mut self, now: Duration) {
        if let Some(link) = &mut self.link
            && self.patches.is_empty()
            && !self.is_unpublished
        {
            link.channels().flush(now);
        }
    }

    /// The tables of the link become those of the flows.
    fn renew_link(&mut self) {
        if let Some(link) = &mut self.link {
            let patches = self.control.take_patches();
            link.apply(&patches);
            self.patches.extend(patches);
        }
    }

    fn now_ns(&self, env: &Environment<'_>) -> u64 {
        if self.is_live { env.now_ns } else { self.now_ns }
    }

    fn change(
        &mut self,
        text: &str,
        command: FlowCommand,
        now_ns: u64,
    ) -> Result<Outcome, Refusal> {
        let request = self.parse(|syntax| syntax.flow(text, command))?;
        let before = self.control.len();
        let found = self.control.matching(&request, self.version).unwrap_or_default();
        self.control.flow_mod(&request, self.version, now_ns).map_err(|error| {
            let by_name = port_names(&self.control, &self.interfaces, self.ports);
            let syntax = Syntax::with_ports(&by_name).for_version(self.version);
            let own = (&self.control, self.version);
            Refusal::new(kind(error), refused_in_words(own, &syntax, text, command, error))
        })?;
        let after = self.control.len();
        Ok(Outcome::Done(match command {
            FlowCommand::Delete | FlowCommand::DeleteStrict => count(before - after, "removed"),
            FlowCommand::Modify | FlowCommand::ModifyStrict if after > before => {
                count(after - before, "added")
            }
            FlowCommand::Modify | FlowCommand::ModifyStrict => count(found, "changed"),
            FlowCommand::Add => String::new(),
        }))
    }

    /// A match or a filter of a request.
    fn parse<T>(
        &self,
        parse: impl FnOnce(Syntax<'_>) -> Result<T, openflow::syntax::SyntaxError>,
    ) -> Result<T, Refusal> {
        let by_name = port_names(&self.control, &self.interfaces, self.ports);
        let parsed = parse(Syntax::with_ports(&by_name).for_version(self.version));
        parsed.map_err(|error| {
            let text = format!("column {}: {}", error.at + 1, error.message);
            Refusal::new(ErrorKind::BadRequest, text)
        })
    }

    fn answered(
        &mut self,
        mut call: Call<'_>,
        env: &mut Environment<'_>,
    ) -> Result<Outcome, Refusal> {
        let now_ns = self.now_ns(env);
        match call.name {
            "flow_add" => {
                let commands::FlowAdd { flow, .. } = call.read()?;
                self.change(&flow, FlowCommand::Add, now_ns)
            }
            "flow_mod" => {
                let commands::FlowMod { flow, strict, .. } = call.read()?;
                let command = if strict { FlowCommand::ModifyStrict } else { FlowCommand::Modify };
                self.change(&flow, command, now_ns)
            }
            "flow_del" => {
                let commands::FlowDel { flow, strict, .. } = call.read()?;
                let command = if strict { FlowCommand::DeleteStrict } else { FlowCommand::Delete };
                self.change(&flow, command, now_ns)
            }
            "flow_replace" => {
                let commands::FlowReplace { file, flows, .. } = call.read()?;
                let by_name = port_names(&self.control, &self.interfaces, self.ports);
                let syntax = Syntax::with_ports(&by_name).for_version(self.version);
                let control = &mut self.control;
                let done = replace(control, &file, &flows, &syntax, self.version, now_ns);
                let Changed { added, changed, removed, kept } =
                    done.map_err(|error| Refusal::new(ErrorKind::BadRequest, error))?;
                let text = format!(
                    "{} added, {} changed, {} removed, {} kept",
                    thousands(added as u64),
                    thousands(changed as u64),
                    thousands(removed as u64),
                    thousands(kept as u64)
                );
                Ok(Outcome::Done(text))
            }
            "flow_diff" => {
                let commands::FlowReplace { file, flows, .. } = call.read()?;
                let by_name = port_names(&self.control, &self.interfaces, self.ports);
                let syntax = Syntax::with_ports(&by_name).for_version(self.version);
                let found = difference(&self.control, &file, &flows, &syntax, self.version);
                let found = found.map_err(|error| Refusal::new(ErrorKind::BadRequest, error))?;
                let title = if found.is_empty() { "# no differences" } else { "# diff" };
                Ok(Outcome::Rows(titled("diff", title, call.as_text, found)))
            }
            "flow_dump" => {
                let commands::FlowDump { flow, no_stats, .. } = call.read()?;
                let filter = self.parse(|syntax| syntax.filter(&flow))?;
                let flows = self.dump(&filter, now_ns)?;
                let text = |flow| FlowText { flow, with_stats: !no_stats }.to_string();
                Ok(Outcome::Rows(lines("flows", call.as_text, flows.iter().map(text))))
            }
            _ => {
                let commands::FlowTrace { packet, .. } = call.read()?;
                let (packet, ttl) = self.parse(|syntax| syntax.packet(&packet))?;
                packet.check().map_err(refusal)?;
                let mut traced = trace(&self.control, &packet, ttl);
                if self.has_switch && self.link.as_ref().is_some_and(|link| link.is_standalone) {
                    traced.truncate(1); // flows wait for a controller
                    traced.push("no controller is connected: all packets go to NORMAL".to_owned());
                    traced.push("sent to: NORMAL".to_owned());
                }
                Ok(Outcome::Rows(lines("steps", call.as_text, traced)))
            }
        }
    }

    fn dump(
        &self,
        filter: &FlowFilter,
        now_ns: u64,
    ) -> Result<Vec<openflow::flow::FlowStats>, Refusal> {
        let mut flows = self.control.flow_stats(filter, self.version, now_ns).map_err(refusal)?;
        flows.iter_mut().for_each(|flow| flow.duration = precise(flow.duration));
        flows.sort_by_key(|flow| (flow.table, u16::MAX - flow.priority));
        Ok(flows)
    }
}

/// Texts as a table of one column. Its title is a comment in a file of flows, so that what is printed can be read again.
fn lines(name: &'static str, as_text: bool, lines: impl IntoIterator<Item = String>) -> Rows {
    titled(name, &format!("# {name}"), as_text, lines)
}

fn titled(
    name: &'static str,
    title: &str,
    as_text: bool,
    lines: impl IntoIterator<Item = String>,
) -> Rows {
    debug_assert!(
        !control::api::CORE_RESPONSES.contains(&name),
        "`{name}` is not a name for a table"
    );
    let mut rows = Rows::with_columns(name, as_text, vec![title.to_owned()]);
    for line in lines {
        let value = json!({ name: line });
        rows.push_cells(vec![line], value);
    }
    rows
}

fn count(flows: usize, done: &str) -> String {
    match flows {
        1 => format!("1 flow {done}"),
        n => format!("{} flows {done}", thousands(n as u64)),
    }
}

fn kind(error: ErrorCode) -> ErrorKind {
    match error {
        ErrorCode::FlowModTableFull => ErrorKind::Full,
        ErrorCode::FlowModOverlap => ErrorKind::Exists,
        _ => ErrorKind::BadRequest,
    }
}

fn refusal(error: ErrorCode) -> Refusal {
    Refusal::new(kind(error), error.in_words())
}

impl ControlPart for OpenFlowControl {
    fn stage(&mut self, kind: &str, worker: &WorkerSetup<'_>) -> Option<Box<dyn Stage<Tables>>> {
        (kind == super::STAGE).then(|| {
            let tables = self.control.settings().tables;
            while self.workers.len() <= worker.worker {
                self.workers.push(Arc::new(Counters::new(tables)));
            }
            let counters = self.workers[worker.worker].clone();
            let controllers = self.link.as_ref().map(Link::workers);
            let stage = OpenFlow::new(worker.name(), counters, controllers, &self.shapes);
            let has_switch = worker.pipeline.has("bridge_in");
            let stage = stage.with_ports(self.ports, has_switch);
            let stage = match self.control.settings().device {
                true => stage.with_shade(self.part.regions().start),
                false => stage,
            };
            OverPart::boxed(Box::new(stage), self.part)
        })
    }

    fn regions(&self) -> std::ops::Range<usize> {
        self.part.regions()
    }

    fn sources(&mut self) -> Vec<Source> {
        self.link.as_mut().and_then(Link::take_source).into_iter().collect()
    }

    fn event(&mut self, event: Built, env: &mut Environment<'_>) {
        if let Ok(event) = event.downcast::<Event>() {
            self.with_link(env, |link, switch, now| link.event(*event, switch, now));
        }
    }

    fn take_patches(&mut self) -> Option<TablesPatch> {
        self.renew_link();
        let mut patches = std::mem::take(&mut self.patches);
        patches.extend(self.control.take_patches());
        self.is_unpublished |= !patches.is_empty();
        (!patches.is_empty()).then(|| self.part.patch(patches))
    }

    fn published(&mut self, _: &Tables) {
        if std::mem::take(&mut self.is_unpublished) {
            let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            self.answer(since.unwrap_or_default());
        }
    }

    fn next_deadline_ns(&self) -> Option<u64> {
        let of_link = self.link.as_ref().and_then(Link::deadline_ns);
        self.control.next_deadline().into_iter().chain(of_link).min()
    }

    fn tick(&mut self, env: &mut Environment<'_>) {
        if !self.is_live {
            return;
        }
        self.expired += self.control.expire(env.now_ns) as u64;
        self.with_link(env, |link, _, now| link.channels().tick(now));
        // Where there is no link nobody is told.
        self.control.take_removed();
    }

    fn link(&mut self, port: u16, is_up: bool) {
        let number = self.ports.number(port);
        if self.control.port(number).is_some_and(|own| own.live != is_up) {
            let config = self.control.port(number).map(|own| own.config).unwrap_or_default();
            self.control.set_port(number, Some(Port { number, config, live: is_up }));
            if self.link.is_some() {
                self.changed_ports.push(number);
            }
        }
    }

    fn call(&mut self, call: Call<'_>, env: &mut Environment<'_>) -> Result<Outcome, Refusal> {
        let outcome = self.answered(call, env);
        // Controllers hear of what it changed.
        self.with_link(env, |_, _, _| {});
        outcome
    }

    fn table(&self, mut call: Call<'_>, env: &Environment<'_>) -> Result<Rows, Refusal> {
        let commands::ShowSwitch { .. } = call.read()?;
        self.shown(&call, env)
    }

    fn commit(&mut self, _: &Config, _: &Config, env: &mut Environment<'_>) -> String {
        self.interfaces = env.interfaces.clone();
        let numbers = own_ports(env.config, &self.name, &self.interfaces, self.ports);
        let is_new = |number: &PortNo| self.control.port(*number).is_none();
        let new: Vec<PortNo> = numbers.iter().copied().filter(is_new).collect();
        let is_gone = |number: &PortNo| !numbers.contains(number);
        let gone: Vec<PortNo> =
            self.control.ports().map(|own| own.number).filter(is_gone).collect();
        new.iter().for_each(|number| set_port(&mut self.control, *number, true));
        let mut news: Vec<_> = gone.iter().map(|port| (PortReason::Delete, *port)).collect();
        news.extend(new.iter().map(|port| (PortReason::Add, *port)));
        self.with_link(env, |link, switch, _| {
            for (reason, number) in news {
                if let Some(port) = switch.port_desc(number) {
                    link.channels().agent().port_status(reason, &port);
                }
            }
        });
        gone.iter().for_each(|number| self.control.set_port(*number, None));
        String::new()
    }

    fn runtime(&self) -> (Map<String, Value>, Vec<[String; 2]>) {
        let totals = self.totals();
        let line = format!("{} in {} tables", thousands(totals.flows), self.control.tables().len());
        let mut fields = Map::new();
        fields.insert(self.name.clone(), serde_json::to_value(&totals).unwrap_or_default());
        let [made, lost] = [totals.copies, totals.copies_lost].map(thousands);
        let copies = format!("{made} made, {lost} lost");
        (fields, vec![["flows".to_owned(), line], ["copies".to_owned(), copies]])
    }

    fn metrics(&self, out: &mut Metrics) {
        let totals = self.totals();
        let stage = [("stage", self.name.as_str())];
        out.gauge("openflow_flows", "Flows of an OpenFlow switch.").sample(&stage, totals.flows);
        out.counter("openflow_expired_total", "Flows that left because their time was over.")
            .sample(&stage, totals.expired);
        out.counter("openflow_to_controller_total", "Packets for a controller.")
            .sample(&stage, totals.to_controller);
        out.counter("openflow_controller_rate_total", "Packets for a controller above the rate.")
            .sample(&stage, totals.controller_rate);
        out.counter("openflow_to_normal_total", "Packets that went to NORMAL.")
            .sample(&stage, totals.to_normal);
        out.counter("openflow_copies_total", "Copies of packets, beside the packet itself.")
            .sample(&stage, totals.copies);
        out.counter("openflow_copies_lost_total", "Copies lost for lack of a cell.")
            .sample(&stage, totals.copies_lost);
        if let Some(link) = &self.link {
            let mut family = out.gauge(
                "openflow_controller_connected",
                "Whether the controller is connected: 1 or 0.",
            );
            for own in link.controllers() {
                let labels = [stage[0], ("controller", own.address.as_str())];
                family.sample(&labels, u64::from(own.version.is_some()));
            }
            out.gauge("openflow_standalone", "Whether all packets go to NORMAL: 1 or 0.")
                .sample(&stage, u64::from(link.is_standalone));
        }
        let mut family = out.counter("openflow_lookups_total", "Packets looked up in a table.");
        for own in self.control.tables() {
            let table = own.table.to_string();
            let labels = [("stage", self.name.as_str()), ("table", table.as_str())];
            family.sample(&labels, self.lookups(own.table)[0]);
        }
    }

    fn report(&self) -> Vec<Section> {
        if self.is_live {
            return Vec::new(); // `ctl` and the metrics have it
        }
        let totals = self.totals();
        let mut text = format!(
            "{}: {} flows, {} lookups, {} matched, {} packets for a controller\n",
            self.name,
            thousands(totals.flows),
            thousands(totals.looked_up),
            thousands(totals.matched),
            thousands(totals.to_controller)
        );
        if totals.copies_lost > 0 {
            let lost = thousands(totals.copies_lost);
            text += &format!("{lost} copies lost for lack of a cell: raise `cells` of [system]\n");
        }
        vec![Section::new(&self.name, &totals, text)]
    }

    fn learns_ahead(&self) -> bool {
        true
    }

    /// Whether it goes to the switch that NORMAL is, which then learns its source.
    fn passes(&self, packet: &Packet, tables: &Tables) -> bool {
        let Some(normal) = &self.normal else { return false };
        let (mut normal, mut found) = (normal.borrow_mut(), ToNormal::default());
        let frame = packet.data().to_vec();
        normal.push(0, frame, self.ports.number(packet.port), packet.time_ns);
        normal.run(tables.part(self.part), &mut found, &mut Dry);
        found.0
    }

    /// Over captures flows leave before the first packet that comes after their time.
    fn ahead(&mut self, packet: &Packet, is_first: bool, _: &Tables, _: bool) -> Ahead {
        if self.now_ns == 0 {
            self.control.begin_time(packet.time_ns);
        }
        self.now_ns = packet.time_ns;
        if self.control.next_deadline().is_none_or(|at| at > packet.time_ns) {
            return Ahead::default();
        }
        if !is_first {
            return Ahead { begins: true, changed: false };
        }
        let left = self.control.expire(packet.time_ns);
        self.expired += left as u64;
        self.control.take_removed();
        Ahead { begins: false, changed: left > 0 }
    }
}
