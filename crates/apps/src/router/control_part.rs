//! The router's part of the control plane: routes, neighbours, and what `ctl` asks of them.
//!
//! ```text
//!  file, kernel, `ctl route` ───────────▶ RibManager ─▶ take_patches
//!  workers' events, kernel, timers ─▶ Resolver ─┘ └─ ARP and neighbour discovery, out by a port
//! ```

use std::net::IpAddr;
use std::ops::Range;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Weak};

use control::api::ErrorKind;
use control::config::{Config, Neighbour, NextHop, Pipeline};
use control::kernel::{self, Event as KernelEvent};
use control::metrics::Metrics;
use control::neighbour::{NeighbourRow, NeighbourView, Output, Permanent, Resolver, Settings};
use control::rib::{Leg, Loaded, RibChange, RibManager, RouteView, Source as RouteOf, Target};
use controlplane::interfaces::mac_text;
use controlplane::{
    Built, Call, ControlPart, Environment, Interfaces, Outcome, OverPart, PartId, Prepare, Refusal,
    Rows, Save, Setup, Source, Tables, TablesPatch, WorkerSetup, events, now_ns,
};
use engine::{Counter, Gate, Stage};
use io::QueueStats;
use ipnet::IpNet;
use lookup::fib::{Fib, NeighbourEvent, Options, RouteTarget};
use lookup::routes::RoutesFile;
use serde_json::{Map, Value};

use super::commands::{RouteDel, RouteGet, RouteSet, RoutesShown};
use super::rows::{RouteRow, RouterTotals};
use super::{
    ErrorGate, PipelineOptions, Proxy, RouterCounters, RouterPart, capacity, routes, save,
};
use crate::neighbours::Shown;
use crate::ports::PortNames;

/// The router as control sees it.
pub struct RouterControl {
    rib: RibManager,
    resolver: Resolver,
    output: Output,
    part: PartId<RouterPart>,
    events: Option<SyncSender<NeighbourEvent>>,
    source: Option<Source>,
    /// By worker, and that of the gate.
    /// By worker.
    counters: Vec<Vec<Arc<RouterCounters>>>,
    /// What was counted when counters were cleared.
    base: RouterTotals,
    /// The routes before a reload.
    before: Option<RibManager>,
    /// What the files of the reload changed.
    told: String,
    /// Routes of the kernel for which there was no room.
    held_back: usize,
    /// Addresses of another application that the router answers for.
    proxy: Option<Weak<dyn Proxy>>,
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

/// Starts it with the routes of the configuration.
pub(super) fn start(
    setup: &Setup<'_>,
    tables: &mut Tables,
) -> Result<Box<dyn ControlPart>, String> {
    RouterControl::start(setup, routes::rib(setup)?, tables)
}

impl RouterControl {
    /// Starts it with these routes.
    ///
    /// # Errors
    /// The tables have no room for them, or there is no memory.
    pub fn start(
        setup: &Setup<'_>,
        mut rib: RibManager,
        tables: &mut Tables,
    ) -> Result<Box<dyn ControlPart>, String> {
        let fib = rib.freeze().map_err(|error| capacity::failure(setup.config, &error))?;
        let (events, source) = setup.is_live.then(events).unzip();
        let mut router = Self {
            rib,
            resolver: Resolver::new(settings(setup.config)),
            output: Output::default(),
            part: tables.add::<RouterPart>(fib),
            events,
            source,
            counters: Vec::new(),
            base: RouterTotals::default(),
            before: None,
            told: String::new(),
            held_back: 0,
            proxy: None,
        };
        if setup.is_live {
            for number in setup.interfaces.numbers() {
                let record = setup.record(number);
                router.resolver.set_interface(number, Some(&record), &mut router.output);
            }
            router.set_neighbours(&[], setup.config, setup.interfaces, now_ns());
        }
        Ok(Box::new(router))
    }

    /// Sends what the resolver asks, and takes over what it found.
    fn flush(&mut self, env: &mut Environment<'_>) {
        let mut output = std::mem::take(&mut self.output);
        for (interface, frame) in output.frames.drain(..) {
            env.send(interface, &frame);
        }
        for change in output.changes.drain(..) {
            let (interface, address, mac) = (change.interface, change.address, change.mac);
            self.change(RibChange::Neighbour { interface, address, mac });
        }
        self.output = output;
    }

    fn change(&mut self, change: RibChange) {
        if let Err(error) = self.rib.apply(change) {
            tracing::debug!("route left out: {error}");
        }
    }

    /// The kernel has no such route any more.
    fn forget(&mut self, prefix: IpNet, source: RouteOf) {
        if self.rib.contains(prefix, source) {
            self.change(RibChange::RemoveRoute { prefix, source, metric: None });
        }
    }

    /// The mirror reports no more routes, or all of them again.
    fn hold_back(&mut self, routes: usize, max: usize) {
        let before = std::mem::replace(&mut self.held_back, routes);
        if before == 0 && routes > 0 {
            tracing::warn!(
                "the kernel has more than {max} routes; those that come now are not used \
                 (`kernel_routes_max` in [router])"
            );
        } else if before > 0 && routes == 0 {
            tracing::info!("all routes of the kernel are used again");
        }
    }

    /// Makes the static neighbours those of the configuration; `before` are those there were.
    fn set_neighbours(
        &mut self,
        before: &[Neighbour],
        config: &Config,
        interfaces: &Interfaces,
        now_ns: u64,
    ) {
        let now = &config.neighbours;
        let gone = before.iter().filter(|old| !now.contains(old)).map(|old| (old, None));
        let all = now.iter().map(|new| (new, Some(new.mac.0)));
        for (neighbour, mac) in gone.chain(all) {
            if let Some(i) = interfaces.number(&neighbour.port) {
                let (by, out) = (Permanent::Configuration, &mut self.output);
                self.resolver.set_permanent(i, neighbour.address, mac, by, now_ns, out);
            }
        }
    }

    fn legs(legs: &[kernel::Leg], env: &Environment<'_>) -> Target {
        let legs = legs.iter().filter_map(|leg| {
            let interface = env.interface_of(leg.ifindex)?;
            Some(Leg { gateway: leg.gateway, interface: Some(interface), weight: leg.weight })
        });
        Target::Legs(legs.collect())
    }

    /// The sums over the workers, since the start.
    fn since_start(&self) -> RouterTotals {
        let sum = |counter: fn(&RouterCounters) -> &Counter| {
            self.counters.iter().flatten().map(|own| counter(own).get()).sum()
        };
        RouterTotals {
            icmp_errors_sent: sum(|c| &c.icmp_errors_sent),
            icmp_errors_withheld: sum(|c| &c.icmp_errors_withheld),
            answers_sent: sum(|c| &c.answers_sent),
            fragmented: sum(|c| &c.fragmented),
            fragments_made: sum(|c| &c.fragments_made),
        }
    }

    /// The same, since the counters were cleared.
    fn totals(&self) -> RouterTotals {
        let (now, then) = (self.since_start(), self.base);
        RouterTotals {
            icmp_errors_sent: now.icmp_errors_sent - then.icmp_errors_sent,
            icmp_errors_withheld: now.icmp_errors_withheld - then.icmp_errors_withheld,
            answers_sent: now.answers_sent - then.answers_sent,
            fragmented: now.fragmented - then.fragmented,
            fragments_made: now.fragments_made - then.fragments_made,
        }
    }

    fn set_route(
        &mut self,
        RouteSet { prefix, next_hop, metric }: RouteSet,
        env: &Environment<'_>,
    ) -> Result<Outcome, Refusal> {
        let bad = |message| Err(Refusal::new(ErrorKind::BadRequest, message));
        if prefix != prefix.trunc() {
            let expected = prefix.trunc();
            return bad(format!("{prefix}: bits are set beyond the length, expected {expected}"));
        }
        for (member, _) in next_hop.members() {
            match member {
                NextHop::Address { address: IpAddr::V6(address), port: None }
                    if address.is_unicast_link_local() =>
                {
                    return bad(format!("{address} is link-local: expected {address}%PORT"));
                }
                NextHop::Address { port: Some(port), .. } | NextHop::Port(port) => {
                    env.number(port)?;
                }
                _ => {}
            }
        }
        let target = routes::target(&next_hop, env.interfaces);
        let metric = metric.unwrap_or(0);
        let change = RibChange::Route { prefix, source: RouteOf::Api, metric, target };
        if let Err(error) = self.rib.apply(change) {
            return Err(Refusal::new(ErrorKind::Full, capacity::refused(&error)));
        }
        // Whether it resolves is known when it is settled; the patches stay for the publisher.
        self.rib.settle();
        let added = self.rib.route(prefix, RouteOf::Api);
        let resolves = added.is_none_or(|view| view.resolved.is_some());
        let message = match resolves {
            true => "",
            false => "added, but inactive: no interface leads to its next hop",
        };
        Ok(Outcome::Done(message.to_owned()))
    }

    /// A route of `ctl` that the file has, too, is the file's from then on.
    fn leave_to_file(&mut self, prefixes: &[IpNet]) {
        for prefix in prefixes {
            let same = |own: &RouteView<'_>| {
                let mut all = self.rib.routes_of(*prefix);
                all.any(|other| {
                    other.source == RouteOf::Static
                        && (other.metric, other.target) == (own.metric, own.target)
                })
            };
            if self.rib.route(*prefix, RouteOf::Api).is_some_and(|own| same(&own)) {
                let (prefix, source) = (*prefix, RouteOf::Api);
                self.change(RibChange::RemoveRoute { prefix, source, metric: None });
            }
        }
    }

    /// Rows of the routes that are asked for; no others are made.
    fn routes_table(
        &self,
        shown: &RoutesShown,
        as_text: bool,
        env: &Environment<'_>,
    ) -> Result<Rows, Refusal> {
        let nothing = |what: String| Err(Refusal::new(ErrorKind::NotFound, what));
        let views: Box<dyn Iterator<Item = RouteView<'_>>> = match *shown {
            RoutesShown { prefix: Some(prefix), longer_prefixes: true, .. } => {
                Box::new(self.rib.routes_within(prefix))
            }
            RoutesShown { prefix: Some(prefix), .. } => {
                if self.rib.routes_of(prefix).next().is_none() {
                    return nothing(format!(
                        "no route of {prefix}: `longer-prefixes` shows those within it, `ctl route get` the one of an address"
                    ));
                }
                Box::new(self.rib.routes_of(prefix))
            }
            RoutesShown { address: Some(address), .. } => match self.rib.route_get(address) {
                Some(found) => Box::new(self.rib.routes_of(found.prefix)),
                None => return nothing(format!("no route to {address}")),
            },
            _ => Box::new(self.rib.routes(None)),
        };
        let is_meant = |view: &RouteView<'_>| {
            shown.sources.is_empty() || shown.sources.contains(&view.source.into())
        };
        let mut rows = Rows::new::<RouteRow>("routes", as_text);
        views.filter(is_meant).for_each(|view| rows.push(&self.route_row(&view, env)));
        Ok(rows)
    }

    fn route_row(&self, view: &RouteView<'_>, env: &Environment<'_>) -> RouteRow {
        let name = |i: u16| env.interfaces.name(i).to_owned();
        let ports = match view.resolved {
            Some(RouteTarget::Paths(paths)) => paths.iter().map(|p| name(p.interface)).collect(),
            Some(RouteTarget::Local(i) | RouteTarget::Broadcast(i)) => vec![name(*i)],
            _ => Vec::new(),
        };
        RouteRow {
            prefix: view.prefix,
            next_hop: next_hop(view.target, view.resolved, env),
            ports,
            source: view.source.into(),
            metric: view.metric,
            active: view.installed,
        }
    }
}

/// A target in the words of the configuration.
fn next_hop(target: &Target, resolved: Option<&RouteTarget>, env: &Environment<'_>) -> NextHop {
    let port = |i: u16| env.interfaces.name(i).to_owned();
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

impl ControlPart for RouterControl {
    fn stage(&mut self, kind: &str, worker: &WorkerSetup<'_>) -> Option<Box<dyn Stage<Tables>>> {
        while self.counters.len() <= worker.worker {
            self.counters.push(Vec::new());
        }
        let own = &mut self.counters[worker.worker];
        let interfaces = worker.interfaces.count();
        // Those of a worker are added up: what earlier stages counted stays.
        if own.last().is_none_or(|last| last.interfaces() < interfaces) {
            own.push(Arc::new(RouterCounters::new(interfaces.next_power_of_two())));
        }
        let options = PipelineOptions {
            events: self.events.clone(),
            counters: own[own.len() - 1].clone(),
            seed: chunk::hash::random_seed(),
            defers_errors: worker.defers_limits,
            first_region: self.part.regions().start,
            names: PortNames::of(worker.interfaces),
            origin: worker.shared.get(),
            guard: worker.shared.get(),
            proxy: self.proxy.clone(),
        };
        if kind == "decode" {
            // For a stage behind it that takes packets out of others.
            worker.shared.put(options.clone());
        }
        let stage = super::stage::<Fib>(kind, &worker.pipeline.kinds, &options).ok()?;
        Some(OverPart::boxed(stage, self.part))
    }

    fn attach(&mut self, offered: &(dyn std::any::Any + Send + Sync)) {
        if let Some(proxy) = offered.downcast_ref::<Arc<dyn Proxy>>() {
            self.proxy = Some(Arc::downgrade(proxy));
        }
    }

    fn sources(&mut self) -> Vec<Source> {
        self.source.take().into_iter().collect()
    }

    fn regions(&self) -> Range<usize> {
        self.part.regions()
    }

    fn take_patches(&mut self) -> Option<TablesPatch> {
        let patches = self.rib.take_patches();
        (!patches.is_empty()).then(|| self.part.patch(patches))
    }

    fn next_deadline_ns(&self) -> Option<u64> {
        self.resolver.next_deadline_ns()
    }

    fn tick(&mut self, env: &mut Environment<'_>) {
        self.resolver.tick(env.now_ns, &mut self.output);
        self.flush(env);
    }

    fn event(&mut self, event: Built, env: &mut Environment<'_>) {
        if let Ok(event) = event.downcast::<NeighbourEvent>() {
            self.resolver.event(*event, env.now_ns, &mut self.output);
        }
    }

    fn kernel(&mut self, event: &KernelEvent, env: &mut Environment<'_>) {
        let (now, out) = (env.now_ns, &mut self.output);
        match event {
            KernelEvent::NeighbourChanged { ifindex, ip, mac, state } => {
                let Some(i) = env.interface_of(*ifindex) else { return };
                if *state == kernel::NeighbourState::Permanent {
                    let by = Permanent::Kernel;
                    self.resolver.set_permanent(i, *ip, Some(*mac), by, now, out);
                } else {
                    self.resolver.hint(i, *ip, *mac, now, out);
                }
            }
            KernelEvent::NeighbourRemoved { ifindex, ip } => {
                let Some(i) = env.interface_of(*ifindex) else { return };
                self.resolver.set_permanent(i, *ip, None, Permanent::Kernel, now, out);
            }
            KernelEvent::NextHopReplaced { id, next_hop } => {
                let target = match next_hop {
                    kernel::NextHop::Legs(legs) => Self::legs(legs, env),
                    kernel::NextHop::Blackhole => Target::Blackhole,
                };
                self.change(RibChange::Object { id: *id, target: Some(target) });
            }
            KernelEvent::NextHopRemoved { id } => {
                self.change(RibChange::Object { id: *id, target: None });
            }
            KernelEvent::RouteReplaced { prefix, route } => {
                let target = match &route.target {
                    kernel::Target::Legs(legs) => Self::legs(legs, env),
                    kernel::Target::NextHop(id) => Target::Object(*id),
                    kernel::Target::Blackhole => Target::Blackhole,
                    kernel::Target::Unreachable | kernel::Target::Prohibit => Target::Unreachable,
                };
                let sources = [RouteOf::Kernel, RouteOf::Advertised];
                let [source, other] = match route.is_advertised() {
                    true => [sources[1], sources[0]],
                    false => sources,
                };
                let (prefix, metric) = (*prefix, route.metric);
                self.change(RibChange::Route { prefix, source, metric, target });
                self.forget(prefix, other);
            }
            KernelEvent::RouteRemoved { prefix } => {
                self.forget(*prefix, RouteOf::Kernel);
                self.forget(*prefix, RouteOf::Advertised);
            }
            KernelEvent::RoutesHeldBack { routes, max } => self.hold_back(*routes, *max),
            _ => {}
        }
    }

    fn interface(&mut self, number: u16, env: &mut Environment<'_>) {
        let Some(record) = env.records.get(usize::from(number)) else { return };
        // One that is gone takes its neighbours and its routes along.
        let record = env.interfaces.has(number).then_some(record);
        self.resolver.set_interface(number, record, &mut self.output);
        let interface = record.cloned();
        self.change(RibChange::Interface { index: number, interface });
    }

    fn mirrors_kernel(&self, config: &Config) -> bool {
        config.router.kernel
    }

    fn call(&mut self, mut call: Call<'_>, env: &mut Environment<'_>) -> Result<Outcome, Refusal> {
        match call.name {
            "route_add" => {
                let route: RouteSet = call.read()?;
                let exists = |source| self.rib.contains(route.prefix, source);
                let of = match (exists(RouteOf::Api), exists(RouteOf::Static)) {
                    (true, _) => Some(""),
                    (_, true) => Some(" in the configuration"),
                    _ => None,
                };
                if let Some(of) = of {
                    let message =
                        format!("{} exists already{of}: use `ctl route replace`", route.prefix);
                    return Err(Refusal::new(ErrorKind::Exists, message));
                }
                self.set_route(route, env)
            }
            "route_replace" => {
                let route = call.read()?;
                self.set_route(route, env)
            }
            "route_del" => {
                let RouteDel { prefix, next_hop, metric } = call.read()?;
                if let Some(own) = self.rib.route(prefix, RouteOf::Api) {
                    let wanted = next_hop.as_ref().map(|hop| routes::target(hop, env.interfaces));
                    let leads_there = wanted.is_none_or(|wanted| wanted == *own.target);
                    if !leads_there || metric.is_some_and(|metric| metric != own.metric) {
                        let hop = self::next_hop(own.target, own.resolved, env);
                        let message = format!(
                            "{prefix}: the route of `ctl` leads to {hop}, metric {}",
                            own.metric
                        );
                        return Err(Refusal::new(ErrorKind::NotFound, message));
                    }
                }
                let change = RibChange::RemoveRoute { prefix, source: RouteOf::Api, metric };
                let of_file = self.rib.contains(prefix, RouteOf::Static);
                self.rib.apply(change).map_err(|_| {
                    let message = match of_file {
                        true => format!(
                            "{prefix}: the route is in the configuration: remove it there, then `ctl reload`"
                        ),
                        false => format!("{prefix}: no such route was added with `ctl`"),
                    };
                    Refusal::new(ErrorKind::NotFound, message)
                })?;
                Ok(Outcome::Done(String::new()))
            }
            "route_get" => {
                let RouteGet { address } = call.read()?;
                let view = self.rib.route_get(address).ok_or_else(|| {
                    Refusal::new(ErrorKind::NotFound, format!("no route to {address}"))
                })?;
                Ok(Outcome::Rows(Rows::of("routes", call.as_text, [self.route_row(&view, env)])))
            }
            name => Err(Refusal::new(ErrorKind::Internal, format!("no request `{name}`"))),
        }
    }

    fn table(&self, mut call: Call<'_>, env: &Environment<'_>) -> Result<Rows, Refusal> {
        let as_text = call.as_text;
        if call.name == "routes" {
            return self.routes_table(&call.read()?, as_text, env);
        }
        let shown: Shown = call.read()?;
        let row = |view: NeighbourView| NeighbourRow {
            address: view.address,
            port: env.interfaces.name(view.interface).to_owned(),
            mac: view.mac.map(mac_text),
            state: view.state.name().to_owned(),
            age_s: view.confirmed_ns.map(|t| env.now_ns.saturating_sub(t) as f64 / 1e9),
        };
        shown.rows(as_text, self.resolver.neighbours().map(row), env)
    }

    /// Files of routes are read aside.
    fn prepare(&self) -> Option<Prepare> {
        let stats = self.rib.stats();
        let now = stats.installed_v4 + stats.installed_v6;
        Some(Box::new(move |config, _| {
            capacity::memory_to_read(config)?;
            let files = config.route_files.iter();
            let read = files.map(|file| routes::read_file(&file.file));
            let read: Vec<RoutesFile> = read.collect::<Result<_, _>>()?;
            capacity::memory_to_apply(now, config, &read)?;
            Ok(Box::new(read) as Built)
        }))
    }

    fn begin(&mut self) {
        self.before = Some(self.rib.clone());
    }

    fn apply(
        &mut self,
        old: &Config,
        prepared: Option<Built>,
        env: &mut Environment<'_>,
    ) -> Result<(), String> {
        let config = env.config;
        self.told.clear();
        let of_file = routes::static_routes(config, env.interfaces);
        let prefixes: Vec<IpNet> = of_file.iter().map(|(prefix, ..)| *prefix).collect();
        self.rib.sync_static(of_file).map_err(|error| capacity::refused(&error))?;
        self.leave_to_file(&prefixes);
        let read = prepared.and_then(|built| built.downcast::<Vec<RoutesFile>>().ok());
        let read = read.map(|read| *read).unwrap_or_default();
        for ((number, file), read) in config.route_files.iter().enumerate().zip(read) {
            let (rib, name) = (&mut self.rib, file.file.display());
            let Loaded { routes, changed, .. } =
                routes::load_file(rib, number as u16, file, read, env.interfaces)?;
            if changed > 0 {
                self.told +=
                    &format!("{name}: {routes} routes, {changed} added, removed or replaced\n");
            }
        }
        for number in config.route_files.len()..old.route_files.len() {
            let gone = self.rib.sync_file(number as u16, 0, Vec::new(), Vec::new(), |_, _| None);
            gone.map_err(|error| capacity::refused(&error))?;
        }
        Ok(())
    }

    fn roll_back(&mut self, _env: &mut Environment<'_>) {
        if let Some(before) = self.before.take() {
            self.rib = before;
        }
    }

    fn commit(&mut self, old: &Config, started: &Config, env: &mut Environment<'_>) -> String {
        self.before = None;
        self.set_neighbours(&old.neighbours, env.config, env.interfaces, env.now_ns);
        self.flush(env);
        let entries_max = started.router.neighbours_max;
        self.resolver.set_settings(Settings { entries_max, ..settings(env.config) });
        let before = routes::options(started, false);
        self.change(RibChange::Options(Options {
            neighbour_queue_packets: before.neighbour_queue_packets,
            neighbour_queue_total_packets: before.neighbour_queue_total_packets,
            ..routes::options(env.config, false)
        }));
        std::mem::take(&mut self.told)
    }

    fn save(&self, env: &Environment<'_>) -> Option<Save> {
        let own = self.rib.routes(None).filter(|view| view.source == RouteOf::Api);
        let own = own.map(|view| save::Own {
            prefix: view.prefix,
            metric: view.metric,
            next_hop: next_hop(view.target, view.resolved, env),
            is_active: view.installed || view.resolved.is_none(),
        });
        let own: Vec<_> = own.collect();
        Some(Box::new(move |config, draft| save::routes(&own, config, draft)))
    }

    fn clear(&mut self) {
        self.base = self.since_start();
    }

    fn runtime(&self) -> (Map<String, Value>, Vec<[String; 2]>) {
        let (stats, totals) = (self.rib.stats(), self.totals());
        let (v4, v6) = (stats.installed_v4 as u64, stats.installed_v6 as u64);
        let neighbours = self.resolver.len() as u64;
        let mut fields = Map::new();
        fields.insert("routes_v4".into(), v4.into());
        fields.insert("routes_v6".into(), v6.into());
        fields.insert("neighbours".into(), neighbours.into());
        fields.insert("kernel_routes_held_back".into(), self.held_back.into());
        fields.insert("router".into(), serde_json::to_value(totals).unwrap_or_default());
        let n = control::api::table::thousands;
        let mut lines = vec![
            ["routes".to_owned(), format!("{} v4, {} v6", n(v4), n(v6))],
            ["neighbours".to_owned(), n(neighbours)],
        ];
        lines.extend(totals.lines());
        (fields, lines)
    }

    fn metrics(&self, out: &mut Metrics) {
        let stats = self.rib.stats();
        let mut family = out.gauge("routes", "Known routes, by source.");
        for (source, routes) in [
            ("connected", stats.connected),
            ("static", stats.static_),
            ("api", stats.api),
            ("kernel", stats.kernel),
            ("file", stats.file),
            ("ra", stats.advertised),
        ] {
            family.sample(&[("source", source)], routes);
        }
        let mut family = out.gauge("table_routes", "Routes in the forwarding tables.");
        family.sample(&[("family", "ipv4")], stats.installed_v4);
        family.sample(&[("family", "ipv6")], stats.installed_v6);
        let help = "Routes of the kernel beyond kernel_routes_max, which are not used.";
        out.gauge("kernel_routes_held_back", help).sample(&[], self.held_back);
        out.gauge("neighbours", "Known neighbours.").sample(&[], self.resolver.len());
        self.totals().metrics(out);
    }

    fn tagged(&self, interface: u16) -> (QueueStats, QueueStats) {
        let mut sums = <(QueueStats, QueueStats)>::default();
        for tagged in self.counters.iter().flatten().filter_map(|own| own.tagged(interface)) {
            sums.0.packets += tagged.rx_packets.get();
            sums.0.bytes += tagged.rx_bytes.get();
            sums.1.packets += tagged.tx_packets.get();
            sums.1.bytes += tagged.tx_bytes.get();
        }
        sums
    }

    fn has_gate(&self, pipeline: &Pipeline) -> bool {
        pipeline.has("rewrite")
    }

    fn gate(&mut self, config: &Config, interfaces: usize) -> Option<Box<dyn Gate>> {
        let own = Arc::new(RouterCounters::new(interfaces));
        self.counters.push(vec![own.clone()]);
        Some(Box::new(ErrorGate::new(config.router.icmp_rate, config.router.icmp_burst, own)))
    }
}
