//! The steward: the one thread that owns routes, neighbours and the configuration of a live router.
//!
//! ```text
//!  kernel mirror ─┐                     ┌─▶ Plane ─version─▶ workers
//!  workers' events ┼─▶ one queue ─▶ steward ─▶ Resolver ─frames─▶ worker 0
//!  control socket ─┤                     └─▶ answers
//!  signals ────────┘
//! ```
//!
//! Whatever is in the queue at a time is applied together and seen as one version.

mod names;
mod reload;
pub(crate) mod rules;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use control::api::{ErrorKind, NeighbourRow, ROWS_PER_RESPONSE, Request, Response, RouteRow, Show};
use control::config::{Config, NextHop};
use control::kernel::{self, Event as KernelEvent};
use control::neighbour::{Output, Permanent, Resolver, Settings};
use control::rib::{Leg, RibChange, RouteView, Source, Target};
use ipnet::IpNet;
use lookup::bridge::StationEvent;
use lookup::fib::{Interface, NeighbourEvent};

use crate::bridge::Bridge;
use crate::firewall::Firewall;
use crate::inject::Injector;
use crate::plane::{self, Plane};
use crate::ports::Twin;
use crate::room;
use crate::stats::Statistics;
use crate::wiring::{self, Interfaces, PortFacts};
use rules::NewRules;

/// What the steward is told.
pub(crate) enum Event {
    /// By the data path.
    Neighbour(NeighbourEvent),
    /// By the data path of a switch.
    Station(StationEvent),
    /// By the kernel.
    Kernel(Vec<KernelEvent>),
    /// By a client; the answer goes in pieces through the sender.
    Request(Request, Sender<Response>),
    /// All rules of the firewall, read for a client; the answer goes through the sender.
    Rules(NewRules, Sender<Response>),
    /// A port failed or recovered; the text is for the log.
    PortError(u16, String),
    /// Read the configuration again (SIGHUP).
    Reload,
    /// End.
    Stop,
}

/// What who asks anything but a router for routes is told.
const NO_ROUTER: &str = "this instance has no routes: its pipeline has no router stages";

/// What who asks a router for stations is told.
const NO_NEIGHBOURS: &str = "a switch has no neighbours: use `ctl show macs` for stations";
const NO_SWITCH: &str = "this instance has no stations: its pipeline has no switch stages";

/// How long a version may wait for more changes when they pour in.
const GATHER: usize = 4096;

pub(crate) struct Steward {
    /// As last read. What only a restart applies still has the values of `started`.
    pub(crate) config: Config,
    started: Config,
    pub(crate) path: PathBuf,
    pub(crate) interfaces: Interfaces,
    pub(crate) facts: Vec<PortFacts>,
    pub(crate) twins: Vec<Option<Twin>>,
    pub(crate) links: Vec<Option<String>>,
    pub(crate) plane: Plane,
    pub(crate) resolver: Resolver,
    pub(crate) injector: Injector,
    pub(crate) statistics: Arc<Statistics>,
    pub(crate) on_stop: Box<dyn Fn() + Send>,
    records: Vec<Interface>,
    /// By interface: the twin is up; by physical port: the link is up.
    twin_up: Vec<bool>,
    link_up: Vec<bool>,
    output: Output,
    dirty: bool,
    /// To ask Linux for the neighbours of faces; opened at the first.
    client: Option<control::netlink::Client>,
    /// The last failure of a port that was told.
    told: Option<(u16, String)>,
}

/// What a steward starts with.
pub(crate) struct Start {
    pub(crate) config: Config,
    pub(crate) path: PathBuf,
    pub(crate) interfaces: Interfaces,
    pub(crate) facts: Vec<PortFacts>,
    pub(crate) twins: Vec<Option<Twin>>,
    pub(crate) links: Vec<Option<String>>,
    pub(crate) plane: Plane,
    pub(crate) injector: Injector,
    pub(crate) statistics: Arc<Statistics>,
    pub(crate) on_stop: Box<dyn Fn() + Send>,
}

/// The resolver's times and bounds, of the configuration.
fn settings(config: &Config) -> Settings {
    let router = &config.router;
    Settings {
        entries_max: router.neighbours_max,
        reachable_ns: router.neighbour_reachable.as_nanos() as u64,
        retry_ns: router.neighbour_retry.as_nanos() as u64,
        attempts: router.neighbour_attempts,
        ..Settings::default()
    }
}

impl Steward {
    pub(crate) fn new(start: Start) -> Self {
        let facts = start.facts.clone();
        let records: Vec<_> = (0..start.interfaces.names().len() as u16)
            .map(|n| {
                let fact = |port: u16| facts.get(usize::from(port)).copied().unwrap_or_default();
                wiring::interface(&start.config, &start.interfaces, n, fact, true)
            })
            .collect();
        let mut steward = Self {
            resolver: Resolver::new(settings(&start.config)),
            twin_up: vec![true; records.len()],
            link_up: vec![true; start.interfaces.physical()],
            records,
            started: start.config.clone(),
            config: start.config,
            path: start.path,
            interfaces: start.interfaces,
            facts: start.facts,
            twins: start.twins,
            links: start.links,
            plane: start.plane,
            injector: start.injector,
            statistics: start.statistics,
            on_stop: start.on_stop,
            output: Output::default(),
            dirty: true, // the first version is to be told
            client: None,
            told: None,
        };
        for i in 0..steward.records.len() {
            let record = &steward.records[i];
            steward.resolver.set_interface(i as u16, Some(record), &mut steward.output);
        }
        steward.set_neighbours(&[]);
        steward.settle();
        steward
    }

    /// Works until told to stop.
    pub(crate) fn run(mut self, events: &Receiver<Event>) {
        loop {
            let now = now_ns();
            let wait = self
                .resolver
                .next_deadline_ns()
                .map_or(Duration::from_millis(500), |t| Duration::from_nanos(t.saturating_sub(now)))
                .min(Duration::from_millis(500));
            let busy = self.plane.bridge.as_ref().is_some_and(Bridge::is_busy);
            match events.recv_timeout(if busy { Duration::ZERO } else { wait }) {
                Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                Ok(event) => {
                    self.take(event);
                    for _ in 0..GATHER {
                        match events.try_recv() {
                            Ok(Event::Stop) => return,
                            Ok(event) => self.take(event),
                            Err(_) => break,
                        }
                    }
                }
                Err(RecvTimeoutError::Timeout) => self.statistics.sample(),
            }
            self.resolver.tick(now_ns(), &mut self.output);
            if let Some(bridge) = &mut self.plane.bridge {
                bridge.age(now_s());
                self.dirty = true;
            }
            self.ask_for_neighbours();
            self.settle();
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Neighbour(event) => self.resolver.event(event, now_ns(), &mut self.output),
            Event::Station(event) => {
                if let Some(bridge) = &mut self.plane.bridge {
                    bridge.learn(event, now_s());
                    self.dirty = true;
                }
            }
            Event::Kernel(events) => {
                for event in events {
                    self.kernel(event);
                }
            }
            Event::Request(request, answer) => {
                // What came before the request is part of its answer.
                self.settle();
                self.answer(request, &answer);
            }
            Event::Rules(set, answer) => drop(answer.send(self.replace_rules(set))),
            Event::PortError(port, error) => {
                // Both halves of a queue, and every queue of a port, say the same.
                let name = self.interfaces.name(port);
                if self.told.as_ref() == Some(&(port, error.clone())) {
                    tracing::debug!("port {name}: {error}");
                } else {
                    tracing::warn!("port {name}: {error}");
                    self.told = Some((port, error));
                }
                self.refresh_links();
            }
            // The log says how it went.
            Event::Reload => drop(self.reload()),
            Event::Stop => {}
        }
    }

    /// Sends what the resolver asks, and makes all changes visible as one version.
    fn settle(&mut self) {
        let mut output = std::mem::take(&mut self.output);
        for (interface, frame) in output.frames.drain(..) {
            let port = self.records.get(usize::from(interface)).map_or(interface, |r| r.port);
            self.injector.send(port, &frame);
        }
        for change in output.changes.drain(..) {
            if let Some(named) = &mut self.plane.named {
                named.fixed(change.interface, change.address, change.mac, &self.interfaces);
            }
            self.change(RibChange::Neighbour {
                interface: change.interface,
                address: change.address,
                mac: change.mac,
            });
        }
        self.output = output;
        if std::mem::take(&mut self.dirty) {
            let version = self.plane.publish();
            let stats = self.plane.rib.stats();
            self.statistics.tables(version, &stats, self.resolver.len());
            if let Some(bridge) = &self.plane.bridge {
                self.statistics.stations(bridge.totals());
            }
            if let Some(named) = &self.plane.named {
                self.statistics.named(named.totals());
            }
            if let Some(shown) = self.plane.firewall.as_mut().and_then(Firewall::shown) {
                self.statistics.rules(shown);
            }
            self.statistics.records(&self.records);
        }
        self.plane.tick();
    }

    fn change(&mut self, change: RibChange) {
        self.dirty = true;
        if let Err(error) = self.plane.rib.apply(change) {
            tracing::debug!("route left out: {error}");
        }
    }

    fn kernel(&mut self, event: KernelEvent) {
        match event {
            KernelEvent::LinkChanged(link) => {
                if let Some(i) = self.twin_of(link.ifindex) {
                    if self.twin_up[i] != link.up {
                        self.twin_up[i] = link.up;
                        self.publish_interface(i);
                    }
                } else if let Some(port) = self.port_named(&link.name) {
                    self.follow_mtu(port, link.mtu_bytes);
                    // A cable that is pulled is as good as an interface that is switched off.
                    let up = link.up && link.carrier;
                    if self.link_up[port] != up {
                        self.link_up[port] = up;
                        self.port_changed(port);
                    }
                }
            }
            KernelEvent::LinkRemoved { name, .. } => {
                if let Some(port) = self.port_named(&name) {
                    tracing::warn!("port {}: {name} is gone", self.interfaces.name(port as u16));
                    if std::mem::replace(&mut self.link_up[port], false) {
                        self.port_changed(port);
                    }
                }
            }
            KernelEvent::AddressAdded { ifindex, address } => self.address(ifindex, address, true),
            KernelEvent::AddressRemoved { ifindex, address } => {
                self.address(ifindex, address, false);
            }
            KernelEvent::NeighbourChanged { ifindex, ip, mac, state } => {
                let Some(i) = self.twin_of(ifindex) else { return };
                if self.face_neighbour(i, ip, Some((mac, state))) {
                    return;
                }
                if state == kernel::NeighbourState::Permanent {
                    self.set_permanent(i, ip, Some(mac), Permanent::Kernel);
                } else {
                    self.resolver.hint(i as u16, ip, mac, now_ns(), &mut self.output);
                }
            }
            KernelEvent::NeighbourRemoved { ifindex, ip } => {
                let Some(i) = self.twin_of(ifindex) else { return };
                if !self.face_neighbour(i, ip, None) {
                    self.set_permanent(i, ip, None, Permanent::Kernel);
                }
            }
            KernelEvent::NextHopReplaced { id, next_hop } => {
                let target = match next_hop {
                    kernel::NextHop::Legs(legs) => self.legs(&legs),
                    kernel::NextHop::Blackhole => Target::Blackhole,
                };
                self.change(RibChange::Object { id, target: Some(target) });
            }
            KernelEvent::NextHopRemoved { id } => {
                self.change(RibChange::Object { id, target: None });
            }
            KernelEvent::RouteReplaced { prefix, route } => {
                let target = match route.target {
                    kernel::Target::Legs(legs) => self.legs(&legs),
                    kernel::Target::NextHop(id) => Target::Object(id),
                    kernel::Target::Blackhole => Target::Blackhole,
                    kernel::Target::Unreachable | kernel::Target::Prohibit => Target::Unreachable,
                };
                let (source, metric) = (Source::Kernel, route.metric);
                self.change(RibChange::Route { prefix, source, metric, target });
            }
            KernelEvent::RouteRemoved { prefix } => {
                let source = Source::Kernel;
                self.change(RibChange::RemoveRoute { prefix, source, metric: None });
            }
            KernelEvent::Synced => tracing::info!("the kernel's view is mirrored"),
        }
    }

    fn legs(&self, legs: &[kernel::Leg]) -> Target {
        let legs = legs.iter().filter_map(|leg| {
            let interface = self.twin_of(leg.ifindex)? as u16;
            Some(Leg { gateway: leg.gateway, interface: Some(interface), weight: leg.weight })
        });
        Target::Legs(legs.collect())
    }

    fn twin_of(&self, ifindex: u32) -> Option<usize> {
        self.twins.iter().position(|t| t.as_ref().is_some_and(|t| t.ifindex == ifindex))
    }

    fn port_named(&self, link: &str) -> Option<usize> {
        self.links.iter().position(|name| name.as_deref() == Some(link))
    }

    fn address(&mut self, ifindex: u32, address: IpNet, added: bool) {
        let Some(i) = self.twin_of(ifindex) else { return };
        let record = &mut self.records[i];
        match address {
            IpNet::V4(net) => {
                let entry = (net.addr().to_bits(), net.prefix_len());
                set(&mut record.addresses4, entry, added);
            }
            IpNet::V6(net) => {
                let bits = net.addr().to_bits();
                let entry = ([(bits >> 64) as u64, bits as u64], net.prefix_len());
                set(&mut record.addresses6, entry, added);
                // Global addresses first: they are what ICMP errors come from.
                record.addresses6.sort_by_key(|([high, _], _)| high >> 54 == 0xfe80 >> 6);
            }
        }
        self.publish_interface(i);
    }

    /// Looks again which ports are up: a queue said that something is wrong.
    fn refresh_links(&mut self) {
        for port in 0..self.links.len() {
            let Some(name) = &self.links[port] else { continue };
            let up = io::link::Link::open(name).and_then(|l| l.is_running()).unwrap_or(false);
            if self.link_up[port] != up {
                self.link_up[port] = up;
                self.port_changed(port);
            }
        }
    }

    /// A port's link came or went, with all interfaces over it.
    fn port_changed(&mut self, port: usize) {
        let state = if self.link_up[port] { "up" } else { "down" };
        tracing::info!("port {}: {state}", self.interfaces.name(port as u16));
        self.told = None;
        if let Some(bridge) = &mut self.plane.bridge {
            bridge.link(port as u16, self.link_up[port]);
            self.dirty = true;
        }
        for i in 0..self.records.len() {
            if usize::from(self.records[i].port) == port {
                self.publish_interface(i);
            }
        }
    }

    /// The MTU of a port's network interface changed; interfaces whose MTU the configuration leaves
    /// open have it now.
    fn follow_mtu(&mut self, port: usize, mtu: u32) {
        match self.facts.get_mut(port) {
            Some(facts) if facts.mtu.is_some_and(|before| before != mtu) => facts.mtu = Some(mtu),
            _ => return,
        }
        for i in 0..self.records.len() {
            let fresh = self.fresh_record(i).mtu;
            if usize::from(self.records[i].port) == port && self.records[i].mtu != fresh {
                let name = self.interfaces.name(i as u16);
                tracing::info!("port {name}: MTU {fresh}");
                if let Err(error) = self.set_mtu(i, fresh) {
                    tracing::warn!("port {}: {error}", self.interfaces.name(i as u16));
                }
                self.publish_interface(i);
            }
        }
    }

    /// Sets the MTU of an interface and of its twin, whose kernel sends packets of that length.
    fn set_mtu(&mut self, i: usize, mtu: u16) -> Result<(), String> {
        if self.records[i].mtu == mtu {
            return Ok(());
        }
        self.records[i].mtu = mtu;
        let Some(twin) = &self.twins[i] else { return Ok(()) };
        let set = || {
            let mut client = control::netlink::Client::route()?;
            kernel::links::set_mtu(&mut client, twin.ifindex, mtu.into())
        };
        set().map_err(|error| format!("the twin {}: {error}", twin.name))
    }

    /// Interface `i` as configuration and system say, without what the kernel added to its twin.
    fn fresh_record(&self, i: usize) -> Interface {
        let fact = |port: u16| self.facts.get(usize::from(port)).copied().unwrap_or_default();
        wiring::interface(&self.config, &self.interfaces, i as u16, fact, true)
    }

    fn publish_interface(&mut self, i: usize) {
        let port = usize::from(self.records[i].port);
        self.records[i].up = self.twin_up[i] && self.link_up.get(port).copied().unwrap_or(true);
        let record = self.records[i].clone();
        self.resolver.set_interface(i as u16, Some(&record), &mut self.output);
        if let Some(named) = &mut self.plane.named {
            named.interface(i as u16, &record, &self.interfaces);
        }
        self.change(RibChange::Interface { index: i as u16, interface: Some(record) });
    }

    /// Makes the static neighbours those of the configuration; `before` are those there were.
    fn set_neighbours(&mut self, before: &[control::config::Neighbour]) {
        let own = Permanent::Configuration;
        let own_now = self.config.neighbours.clone();
        for old in before.iter().filter(|n| !own_now.contains(n)) {
            if let Some(i) = self.interfaces.number(&old.port) {
                self.set_permanent(usize::from(i), old.address, None, own);
            }
        }
        for new in own_now {
            if let Some(i) = self.interfaces.number(&new.port) {
                self.set_permanent(usize::from(i), new.address, Some(new.mac.0), own);
            }
        }
    }

    fn set_permanent(&mut self, i: usize, address: IpAddr, mac: Option<[u8; 6]>, by: Permanent) {
        let out = &mut self.output;
        self.resolver.set_permanent(i as u16, address, mac, by, now_ns(), out);
    }

    fn answer(&mut self, request: Request, answer: &Sender<Response>) {
        // A client that is gone needs no answer.
        let send = |response| drop(answer.send(response));
        let of_router = matches!(
            request,
            Request::RouteAdd { .. }
                | Request::RouteReplace { .. }
                | Request::RouteDel { .. }
                | Request::RouteGet { .. }
                | Request::Show { what: Show::Routes }
        );
        if of_router && !self.config.pipeline.uses("router") {
            return send(Response::error(ErrorKind::Unsupported, NO_ROUTER));
        }
        let done = |message: &str| Response::Done { message: message.to_owned() };
        match request {
            Request::Show { what } => self.show(what, answer),
            Request::RouteAdd { prefix, next_hop } => {
                if self.plane.rib.contains(prefix, Source::Api) {
                    let message = format!("{prefix} exists already: use `ctl route replace`");
                    return send(Response::error(ErrorKind::Exists, message));
                }
                send(self.route(prefix, &next_hop));
            }
            Request::RouteReplace { prefix, next_hop } => send(self.route(prefix, &next_hop)),
            Request::RouteDel { prefix } => {
                let change = RibChange::RemoveRoute { prefix, source: Source::Api, metric: None };
                send(match self.plane.rib.apply(change) {
                    Ok(()) => {
                        self.dirty = true;
                        self.settle();
                        done("")
                    }
                    Err(_) => Response::error(
                        ErrorKind::NotFound,
                        format!("{prefix}: no such route was added with `ctl`"),
                    ),
                });
            }
            Request::RouteGet { address } => {
                send(match self.plane.rib.route_get(address).map(|view| self.route_row(&view)) {
                    Some(row) => Response::Routes { rows: vec![row] },
                    None => Response::error(ErrorKind::NotFound, format!("no route to {address}")),
                });
            }
            Request::ClearMacs { port, vlan } => {
                let response = self.clear_macs(port.as_deref(), vlan);
                self.dirty = true;
                self.settle();
                send(response);
            }
            Request::NameAdd { prefix, faces } => send(self.name_add(&prefix, &faces)),
            Request::NameDel { prefix } => send(self.name_del(&prefix)),
            Request::NameGet { name } => send(self.name_get(&name)),
            Request::RuleAdd { .. }
            | Request::RuleReplace { .. }
            | Request::RuleDel { .. }
            | Request::RuleShow { .. } => self.rule(request, answer),
            Request::ClearCounters => {
                self.clear_rules();
                self.statistics.clear();
                send(done("counters reset"));
            }
            Request::Reload => send(match self.reload() {
                Ok(message) => Response::Done { message },
                Err(message) => Response::error(ErrorKind::Config, message),
            }),
            Request::Stop => {
                send(done("draining"));
                (self.on_stop)();
            }
            Request::Trace { .. } | Request::Capture { .. } | Request::RuleReplaceAll { .. } => {
                send(Response::error(ErrorKind::Internal, "answered elsewhere"));
            }
        }
    }

    fn route(&mut self, prefix: IpNet, next_hop: &NextHop) -> Response {
        let bad = |message| Response::error(ErrorKind::BadRequest, message);
        if prefix != prefix.trunc() {
            let expected = prefix.trunc();
            return bad(format!("{prefix}: bits are set beyond the length, expected {expected}"));
        }
        for (member, _) in next_hop.members() {
            if let NextHop::Address { address: IpAddr::V6(address), port: None } = member
                && address.is_unicast_link_local()
            {
                return bad(format!("{address} is link-local: expected {address}%PORT"));
            }
        }
        let unknown = next_hop.members().into_iter().find_map(|(member, _)| match member {
            NextHop::Address { port: Some(port), .. } | NextHop::Port(port) => {
                self.interfaces.number(port).is_none().then(|| port.clone())
            }
            _ => None,
        });
        if let Some(port) = unknown {
            let ports = self.interfaces.names().join(", ");
            let message = format!("there is no port `{port}`: expected one of {ports}");
            return Response::error(ErrorKind::NotFound, message);
        }
        let target = plane::target(next_hop, &self.interfaces);
        let change = RibChange::Route { prefix, source: Source::Api, metric: 0, target };
        if let Err(error) = self.plane.rib.apply(change) {
            return Response::error(ErrorKind::Full, room::refused(&error));
        }
        self.dirty = true;
        self.settle();
        let added = self.plane.rib.route(prefix, Source::Api);
        let resolves = added.is_none_or(|view| view.resolved.is_some());
        let message = if resolves {
            String::new()
        } else {
            "added, but inactive: no interface leads to its next hop".into()
        };
        Response::Done { message }
    }

    fn clear_macs(&mut self, port: Option<&str>, vlan: Option<u16>) -> Response {
        let Some(bridge) = &mut self.plane.bridge else {
            return Response::error(ErrorKind::Unsupported, NO_SWITCH);
        };
        let number = match port.map(|name| (name, self.interfaces.number(name))) {
            Some((name, None)) => {
                let ports = self.interfaces.names().join(", ");
                let message = format!("there is no port `{name}`: expected one of {ports}");
                return Response::error(ErrorKind::NotFound, message);
            }
            Some((_, number)) => number,
            None => None,
        };
        let message = match bridge.clear(number, vlan) {
            1 => "1 station forgotten".to_owned(),
            n => format!("{n} stations forgotten"),
        };
        Response::Done { message }
    }

    fn show(&mut self, what: Show, answer: &Sender<Response>) {
        let send = |response| answer.send(response).is_ok();
        match what {
            Show::Routes => {
                let mut rows = Vec::new();
                for view in self.plane.rib.routes(None) {
                    rows.push(self.route_row(&view));
                    if rows.len() == ROWS_PER_RESPONSE {
                        let rows = std::mem::take(&mut rows);
                        if !send(Response::Routes { rows }) {
                            return;
                        }
                    }
                }
                send(Response::Routes { rows });
            }
            Show::Faces => {
                send(self.show_faces());
            }
            Show::Names => self.show_names(answer),
            Show::Neighbours => {
                if self.plane.bridge.is_some() {
                    send(Response::error(ErrorKind::Unsupported, NO_NEIGHBOURS));
                    return;
                }
                let now = now_ns();
                let row = |view: control::neighbour::NeighbourView| NeighbourRow {
                    address: view.address,
                    port: self.interfaces.name(view.interface).to_owned(),
                    mac: view.mac.map(wiring::mac_text),
                    state: view.state.name().to_owned(),
                    age_s: view.confirmed_ns.map(|t| now.saturating_sub(t) as f64 / 1e9),
                };
                let rows: Vec<_> = match &self.plane.named {
                    None => self.resolver.neighbours().map(row).collect(),
                    Some(named) => named.neighbour_rows(&self.interfaces),
                };
                for rows in rows.chunks(ROWS_PER_RESPONSE) {
                    if !send(Response::Neighbours { rows: rows.to_vec() }) {
                        return;
                    }
                }
                if rows.is_empty() {
                    send(Response::Neighbours { rows: Vec::new() });
                }
            }
            Show::Macs => {
                let Some(bridge) = &self.plane.bridge else {
                    send(Response::error(ErrorKind::Unsupported, NO_SWITCH));
                    return;
                };
                let rows = bridge.rows(&self.interfaces, now_s());
                for rows in rows.chunks(ROWS_PER_RESPONSE) {
                    if !send(Response::Macs { rows: rows.to_vec() }) {
                        return;
                    }
                }
                if rows.is_empty() {
                    send(Response::Macs { rows: Vec::new() });
                }
            }
            Show::Interfaces => {
                let records = &self.records;
                send(Response::Interfaces { rows: self.statistics.interfaces(records) });
            }
            Show::Queues => {
                send(Response::Queues { rows: self.statistics.queues() });
            }
            Show::Stages => {
                send(Response::Stages { rows: self.statistics.stages() });
            }
            Show::Drops => {
                send(Response::Drops { rows: self.statistics.drops() });
            }
            Show::Runtime => {
                send(Response::Runtime(Box::new(self.statistics.runtime())));
            }
        }
    }

    fn route_row(&self, view: &RouteView<'_>) -> RouteRow {
        use lookup::fib::RouteTarget;
        let name = |i: u16| self.interfaces.name(i).to_owned();
        let ports = match view.resolved {
            Some(RouteTarget::Paths(paths)) => paths.iter().map(|p| name(p.interface)).collect(),
            Some(RouteTarget::Local(i) | RouteTarget::Broadcast(i)) => vec![name(*i)],
            _ => Vec::new(),
        };
        RouteRow {
            prefix: view.prefix,
            next_hop: self.next_hop(view.target, view.resolved),
            ports,
            source: view.source.into(),
            metric: view.metric,
            active: view.installed,
        }
    }

    /// A target in the words of the configuration.
    fn next_hop(&self, target: &Target, resolved: Option<&lookup::fib::RouteTarget>) -> NextHop {
        use lookup::fib::RouteTarget;
        let port = |i: u16| self.interfaces.name(i).to_owned();
        let hop = |gateway: Option<IpAddr>, interface: Option<u16>| match gateway {
            Some(address) => NextHop::Address { address, port: interface.map(port) },
            None => NextHop::Port(interface.map(port).unwrap_or_default()),
        };
        match target {
            Target::Legs(legs) => match legs.as_ref() {
                [leg] => hop(leg.gateway, leg.interface),
                legs => NextHop::Group(
                    legs.iter()
                        .map(|leg| {
                            let weight = leg.weight.clamp(1, u32::from(u16::MAX)) as u16;
                            (hop(leg.gateway, leg.interface), weight)
                        })
                        .collect(),
                ),
            },
            Target::Object(_) => match resolved {
                Some(RouteTarget::Paths(paths)) if paths.len() == 1 => {
                    hop(paths[0].gateway, Some(paths[0].interface))
                }
                Some(RouteTarget::Paths(paths)) => NextHop::Group(
                    paths.iter().map(|p| (hop(p.gateway, Some(p.interface)), 1)).collect(),
                ),
                _ => NextHop::Blackhole,
            },
            Target::Blackhole => NextHop::Blackhole,
            Target::Unreachable => NextHop::Unreachable,
            Target::Local(i) | Target::Broadcast(i) => NextHop::Port(port(*i)),
        }
    }
}

fn set<T: PartialEq>(list: &mut Vec<T>, entry: T, present: bool) {
    if !present {
        list.retain(|e| *e != entry);
    } else if !list.contains(&entry) {
        list.push(entry);
    }
}

fn now_s() -> u32 {
    (now_ns() / 1_000_000_000) as u32
}

pub(crate) fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64)
}

/// Carries the workers' events into the steward's queue.
pub(crate) fn forward<E>(from: Receiver<E>, wrap: fn(E) -> Event, to: SyncSender<Event>) {
    while let Ok(event) = from.recv() {
        if to.send(wrap(event)).is_err() {
            return; // the router ends
        }
    }
}
