//! Changes that need other stages or other ports, while the packets of all other ports flow on.
//!
//! ```text
//!  ports that change close ─▶ new ports open ─▶ new parts start ─▶ all parts apply the configuration
//!       ─▶ stages and threads are made ─▶ the engine is held ─▶ (nothing fails from here on) ─▶ one engine stops, tables
//!       and ports change, the next starts
//! ```
//!
//! Whatever fails before the last step is taken back, and the program is as it was. A program that stops takes the engine:
//! if it comes before the engine is held, the change is taken back; if it comes later, the stop waits.

use std::collections::BTreeMap;

use control::config::{Backend, Config, Diff, Port, PortKind};
use control::kernel::links;
use control::netlink::Client;
use lookup::fib::Interface;

use super::ControlLoop;
use super::reload::{Fresh, NotApplied};
use crate::application::{Setup, Twin};
use crate::interfaces::{Interfaces, PortFacts};

/// What the loop knows of the interfaces, to be put back.
#[derive(Clone)]
struct Before {
    config: Config,
    interfaces: Interfaces,
    kinds: Vec<String>,
    facts: Vec<PortFacts>,
    twins: Vec<Option<Twin>>,
    links: Vec<Option<String>>,
    records: Vec<Interface>,
    twin_up: Vec<bool>,
    link_up: Vec<bool>,
    closed: Vec<bool>,
}

/// The pipelines of a configuration, for `ctl show runtime`.
pub(super) fn mode(config: &Config) -> String {
    config.in_use().map(|pipeline| pipeline.name.as_str()).collect::<Vec<_>>().join(", ")
}

impl ControlLoop {
    /// Applies a configuration with other stages or ports than the one in force, from which it differs by `diff`. What the
    /// parts say of it.
    pub(super) fn rebuild(&mut self, fresh: Fresh, diff: &Diff) -> Result<String, NotApplied> {
        let number = |name: &String| fresh.interfaces.number(name);
        let is_new = |n: &u16| !self.interfaces.has(*n);
        let reopened: Vec<u16> = diff.ports_reopened.iter().filter_map(number).collect();
        let added: Vec<u16> = fresh.interfaces.numbers().filter(is_new).collect();
        let gone: Vec<u16> =
            self.interfaces.numbers().filter(|n| !fresh.interfaces.has(*n)).collect();

        let wanted: Vec<u16> = added.iter().chain(&reopened).copied().collect();
        if !reopened.is_empty() {
            // What cannot be opened is to be known while all is open: a port that closes loses its twin, and with it what
            // others have in Linux by it.
            let leaves: Vec<u16> = reopened.iter().chain(&gone).copied().collect();
            self.may_open(&fresh, &wanted, &leaves)?;
            self.close(&reopened)?;
        }
        let before = self.before();
        match self.make(fresh, &wanted, &gone, &before) {
            Ok(told) => {
                self.exchange(&gone)?;
                (self.on_reload)(&self.config);
                for at in wanted.iter().map(|number| usize::from(*number)) {
                    // Without an interface of Linux, or over that of another port.
                    if self.links[at].is_none() {
                        self.set_link(at, true);
                    }
                }
                if !wanted.is_empty() {
                    self.refresh_links();
                }
                self.settle();
                Ok(told)
            }
            Err(error) => {
                self.put_back(&before);
                self.settle();
                if !reopened.is_empty() && !matches!(error, NotApplied::Stopping) {
                    for (port, error) in self.reopen(&reopened, true) {
                        self.log_closed(port, &error);
                    }
                }
                Err(error)
            }
        }
    }

    /// Whether the interfaces that ports need are there, and the names of those that they make are free once the ports
    /// `leaves` are closed. What cannot be asked is found when they open.
    fn may_open(&self, fresh: &Fresh, wanted: &[u16], leaves: &[u16]) -> Result<(), String> {
        let Ok(mut client) = Client::route() else { return Ok(()) };
        let Ok(links) = links::all(&mut client) else { return Ok(()) };
        let is_there = |name: &str| links.iter().any(|link| link.name == name);
        let ports = |config: &Config, interfaces: &Interfaces, numbers: &[u16]| {
            let is_one = |port: &&Port| {
                interfaces.number(&port.name).is_some_and(|number| numbers.contains(&number))
            };
            config.ports.iter().filter(is_one).cloned().collect::<Vec<_>>()
        };
        // Of a port, the interfaces that it makes.
        let made = |port: &Port| {
            let tap = match &port.kind {
                PortKind::Physical(own) if own.backend == Backend::Tap => Some(&own.interface),
                _ => None,
            };
            port.twin.iter().chain(tap).cloned().collect::<Vec<String>>()
        };
        let old = ports(&self.config, &self.interfaces, leaves);
        let freed: Vec<String> = old.iter().flat_map(made).collect();
        for port in ports(&fresh.config, &fresh.interfaces, wanted) {
            if let Some(name) =
                made(&port).iter().find(|name| is_there(name) && !freed.contains(name))
            {
                let Port { name: port, .. } = &port;
                return Err(format!("port {port}: `{name}`: an interface of this name exists"));
            }
            if let PortKind::Physical(own) = &port.kind
                && matches!(own.backend, Backend::Auto | Backend::AfPacket | Backend::AfXdp)
                && !is_there(&own.interface)
            {
                let (port, name) = (&port.name, &own.interface);
                return Err(format!("port {port}: this machine has no interface `{name}`"));
            }
        }
        Ok(())
    }

    /// All that may fail. After an error the loop's own fields are to be put back.
    fn make(
        &mut self,
        fresh: Fresh,
        wanted: &[u16],
        gone: &[u16],
        before: &Before,
    ) -> Result<String, NotApplied> {
        let Fresh { config, built, interfaces, .. } = fresh;
        self.open(&config, &interfaces, wanted, true)?;
        self.interfaces = interfaces;
        let old = std::mem::replace(&mut self.config, config);
        for &number in gone {
            let at = usize::from(number);
            (self.twins[at], self.links[at], self.facts[at]) = (None, None, PortFacts::default());
        }
        // Those that stay keep what Linux gave their twins.
        for number in wanted.iter().chain(gone) {
            let at = usize::from(*number);
            self.records[at] = self.fresh_record(at);
            (self.twin_up[at], self.closed[at]) = (true, false);
            // One that was closed has its link once it carries packets.
            self.link_up[at] = !before.closed.get(at).is_some_and(|closed| *closed);
        }

        let facts = |port: u16| self.facts.get(usize::from(port)).copied().unwrap_or_default();
        let setup = Setup {
            config: &self.config,
            name: "",
            interfaces: &self.interfaces,
            facts: &facts,
            is_live: true,
            modules: &[],
            attachments: &[],
        };
        let parts = self.publisher.start_new(self.descriptors, &setup)?;
        let parts = self.publisher.take_in(parts);
        // Who makes stages looks at their tables.
        self.publisher.publish();

        self.publisher.parts.iter_mut().for_each(|own| own.part.begin());
        let applied = self.apply(&old, built).and_then(|()| {
            let config = self.effective();
            self.path.prepare(&config, &self.interfaces, &mut self.publisher)?;
            let mut sources = parts.iter().map(|number| self.start_sources_of(*number));
            let started = sources.try_for_each(|started| started);
            started.map_err(|error| format!("no thread for events: {error}"))
        });
        if let Err(error) = applied.map_err(NotApplied::from).and_then(|()| self.hold()) {
            self.publisher.take_out(&parts);
            let stays = |at: usize| !wanted.iter().chain(gone).any(|n| usize::from(*n) == at);
            self.addresses_back(&before.records, stays);
            self.put_back(before);
            self.roll_back();
            return Err(error);
        }
        for number in 0..self.records.len() {
            self.publish_interface(number);
        }
        let told = self.commit(&old);
        for &number in wanted.iter().filter(|number| self.interfaces.is_port(**number)) {
            self.publisher.parts.iter_mut().for_each(|own| own.part.link(number, true));
        }
        if !parts.is_empty() {
            self.path.repeat_kernel();
        }
        Ok(told)
    }

    /// The configuration in force: sections that only a restart applies are those of the start.
    fn effective(&self) -> Config {
        let (system, engine) = (self.started.system.clone(), self.started.engine.clone());
        Config { system, engine, ..self.config.clone() }
    }

    /// Opens interfaces, and notes what they are.
    fn open(
        &mut self,
        config: &Config,
        interfaces: &Interfaces,
        wanted: &[u16],
        patient: bool,
    ) -> Result<(), String> {
        self.resize(interfaces.count().max(self.records.len()));
        if wanted.is_empty() {
            return Ok(());
        }
        for own in self.path.open(config, interfaces, wanted, patient)? {
            let at = usize::from(own.number);
            self.kinds[at] = own.kind;
            (self.facts[at], self.twins[at], self.links[at]) = (own.facts, own.twin, own.link);
        }
        Ok(())
    }

    /// From now on a stop waits for [`ControlLoop::exchange`], or for [`ControlLoop::put_back`].
    fn hold(&mut self) -> Result<(), NotApplied> {
        self.path.hold().then_some(()).ok_or(NotApplied::Stopping)
    }

    /// Puts the stages and ports that are ready to use. If that fails, no packet is carried any more: the program ends.
    fn exchange(&mut self, closes: &[u16]) -> Result<(), NotApplied> {
        self.watch.expect(&self.interfaces);
        let unused = self.publisher.unused(&self.config);
        let publisher = &mut self.publisher;
        // Stages of the engine before work on tables of parts that go.
        let mut publish = || {
            publisher.take_out(&unused);
            publisher.publish();
        };
        match self.path.exchange(closes, &mut publish) {
            Ok(seen) => {
                let kinds = self.kinds.clone();
                self.statistics.go_on(seen.clone(), kinds, mode(&self.config));
                self.watch.set(seen);
                Ok(())
            }
            Err(error) => {
                (self.on_stop)();
                let what = format!("no packets are carried any more: {error}; the instance ends");
                Err(NotApplied::Refused(what))
            }
        }
    }

    /// Closes ports that are to be opened anew: their interfaces are down until then.
    pub(super) fn close(&mut self, numbers: &[u16]) -> Result<(), NotApplied> {
        let config = self.effective();
        let prepared = self.path.prepare(&config, &self.interfaces, &mut self.publisher);
        if let Err(error) = prepared.map_err(NotApplied::from).and_then(|()| self.hold()) {
            self.path.forget();
            return Err(error);
        }
        for &number in numbers {
            let at = usize::from(number);
            self.twins[at] = None;
            self.closed[at] = true;
            self.set_link(at, false);
        }
        self.exchange(numbers)
    }

    /// Opens ports and subinterfaces again that are closed, each port with those over it: the ports that stay closed, and why.
    pub(super) fn reopen(&mut self, numbers: &[u16], patient: bool) -> Vec<(usize, String)> {
        let mut by_port: BTreeMap<usize, Vec<u16>> = BTreeMap::new();
        for &number in numbers {
            by_port.entry(self.port_under(number)).or_default().push(number);
        }
        let mut failed = Vec::new();
        for (port, numbers) in by_port {
            match self.reopen_port(&numbers, patient) {
                Ok(()) => {}
                Err(NotApplied::Stopping) => break,
                Err(NotApplied::Refused(error)) => failed.push((port, error)),
            }
        }
        failed
    }

    fn reopen_port(&mut self, numbers: &[u16], patient: bool) -> Result<(), NotApplied> {
        let (config, interfaces) = (self.config.clone(), self.interfaces.clone());
        let opened = self.open(&config, &interfaces, numbers, patient).and_then(|()| {
            let effective = self.effective();
            self.path.prepare(&effective, &interfaces, &mut self.publisher)
        });
        let held = opened.map_err(NotApplied::from).and_then(|()| self.hold());
        held.inspect_err(|_| {
            self.path.forget();
            for &number in numbers {
                let at = usize::from(number);
                (self.facts[at].index, self.twins[at]) = (None, None);
            }
        })?;
        for &number in numbers {
            let at = usize::from(number);
            self.records[at] = self.fresh_record(at);
            (self.twin_up[at], self.closed[at]) = (true, false);
            self.set_link(at, true);
            self.publish_interface(at);
        }
        match self.exchange(&[]) {
            // The program ends.
            Err(NotApplied::Refused(error)) => tracing::error!("{error}"),
            _ => self.settle(),
        }
        Ok(())
    }

    /// Opens what earlier changes left closed, after a reload. What is said of it.
    pub(super) fn open_closed(&mut self) -> String {
        let is_closed = |n: &u16| self.closed[usize::from(*n)];
        let numbers: Vec<u16> = self.interfaces.numbers().filter(is_closed).collect();
        if numbers.is_empty() {
            return String::new();
        }
        let failed = self.reopen(&numbers, false);
        self.refresh_links();
        let is_open = |n: &&u16| !self.closed[usize::from(**n)];
        let opened = numbers.iter().filter(is_open);
        let mut said: String =
            opened.map(|n| format!("opened port {}\n", self.interfaces.name(*n))).collect();
        for (port, error) in failed {
            said += &format!("warning: {error}; {}\n", self.stays_closed(port));
            self.try_again(port, error);
        }
        said
    }

    fn log_closed(&mut self, port: usize, error: &str) {
        tracing::error!("{error}; {}", self.stays_closed(port));
        self.try_again(port, error.to_owned());
    }

    /// The number of the port that an interface is over, or of itself.
    pub(super) fn port_under(&self, number: u16) -> usize {
        self.interfaces.tagged(number).map_or(number, |(port, _)| port).into()
    }

    fn before(&self) -> Before {
        Before {
            config: self.config.clone(),
            interfaces: self.interfaces.clone(),
            kinds: self.kinds.clone(),
            facts: self.facts.clone(),
            twins: self.twins.clone(),
            links: self.links.clone(),
            records: self.records.clone(),
            twin_up: self.twin_up.clone(),
            link_up: self.link_up.clone(),
            closed: self.closed.clone(),
        }
    }

    /// The loop knows what it knew; what was opened is closed.
    fn put_back(&mut self, before: &Before) {
        let before = before.clone();
        let Before { config, interfaces, kinds, facts, twins, links, records, .. } = before;
        self.path.forget();
        (self.config, self.interfaces, self.kinds) = (config, interfaces, kinds);
        (self.facts, self.twins, self.links) = (facts, twins, links);
        let n = self.records.len();
        (self.records, self.closed) = (records, before.closed);
        (self.twin_up, self.link_up) = (before.twin_up, before.link_up);
        // Parts hear that interfaces with numbers beyond are gone.
        self.resize(n);
    }

    fn resize(&mut self, n: usize) {
        self.kinds.resize(n, String::new());
        self.facts.resize(n, PortFacts::default());
        self.twins.resize(n, None);
        self.links.resize(n, None);
        self.records.resize(n, Interface::default());
        self.twin_up.resize(n, true);
        self.link_up.resize(n, true);
        self.closed.resize(n, false);
    }
}
