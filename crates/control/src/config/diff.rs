//! What a reload has to do: the difference between two configurations.

use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::hash::Hash;
use std::time::Duration;

use lookup::bridge::{PortMode, StormLimits, StormRate};

use super::Config;
use super::types::*;
use super::walk::Word;
use crate::firewall::Rule;

/// What a difference without any change says.
pub const NOTHING: &str = "nothing changed";

/// From an old configuration to a new one.
///
/// A routes file may change while its name stays: whoever reloads reads the files again.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Diff {
    /// Everything that differs and can be applied while packets flow.
    pub live: Vec<Change>,
    /// Everything that only a restart can apply; these keys keep their old values.
    pub restart: Vec<Change>,
    /// VLAN subinterfaces that are new.
    pub ports_added: Vec<String>,
    /// VLAN subinterfaces that are gone.
    pub ports_removed: Vec<String>,
    /// Ports of both whose MTU, addresses or reverse-path check differ.
    pub ports_changed: Vec<String>,
    /// Static routes that are new, or new in next hop or metric.
    pub routes_added: Vec<Route>,
    /// Static routes that are gone, or old in next hop or metric.
    pub routes_removed: Vec<Route>,
    /// `[[routes]]` differs.
    pub route_files_changed: bool,
    /// Static neighbours that are new or have a new MAC.
    pub neighbours_added: Vec<Neighbour>,
    /// Static neighbours that are gone or had another MAC.
    pub neighbours_removed: Vec<Neighbour>,
    /// Static stations that are new.
    pub stations_added: Vec<Station>,
    /// Static stations that are gone.
    pub stations_removed: Vec<Station>,
    /// Faces that are new, or new in port or neighbour.
    pub faces_added: Vec<Face>,
    /// Faces that are gone, or old in port or neighbour.
    pub faces_removed: Vec<Face>,
    /// Routes for names that are new, or new in faces.
    pub names_added: Vec<NameRoute>,
    /// Routes for names that are gone, or old in faces.
    pub names_removed: Vec<NameRoute>,
    /// Rules that are new, or new in what they ask or do.
    pub rules_added: Vec<Rule>,
    /// Rules that are gone, or old in what they ask or do.
    pub rules_removed: Vec<Rule>,
    /// A live key of `[router]` differs.
    pub router_changed: bool,
    /// `system.log` differs.
    pub log_changed: bool,
}

/// One key that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// As in the file: `port.lan.mtu`.
    pub key: String,
    /// Old value, `-` for none.
    pub old: String,
    /// New value, `-` for none.
    pub new: String,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} -> {}", self.key, self.old, self.new)
    }
}

/// The message of a reload: what was applied, then what waits for a restart.
impl fmt::Display for Diff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str(NOTHING);
        }
        for change in &self.live {
            writeln!(f, "changed {change}")?;
        }
        for (sign, routes) in [("-", &self.routes_removed), ("+", &self.routes_added)] {
            for route in routes {
                writeln!(
                    f,
                    "{sign} route {} via {} metric {}",
                    route.prefix, route.next_hop, route.metric
                )?;
            }
        }
        for (sign, neighbours) in [("-", &self.neighbours_removed), ("+", &self.neighbours_added)] {
            for n in neighbours {
                writeln!(f, "{sign} neighbour {} on {} is {}", n.address, n.port, n.mac)?;
            }
        }
        for (sign, stations) in [("-", &self.stations_removed), ("+", &self.stations_added)] {
            for Station { mac, port, vlan } in stations {
                let vlan = vlan.map_or_else(String::new, |vlan| format!(" in VLAN {vlan}"));
                writeln!(f, "{sign} station {mac} on {port}{vlan}")?;
            }
        }
        for (sign, faces) in [("-", &self.faces_removed), ("+", &self.faces_added)] {
            for Face { name, port, link } in faces {
                writeln!(f, "{sign} face {name} on {port}: {link}")?;
            }
        }
        for (sign, names) in [("-", &self.names_removed), ("+", &self.names_added)] {
            for NameRoute { prefix, faces } in names {
                writeln!(f, "{sign} name {prefix} to {}", faces.join(","))?;
            }
        }
        for (sign, rules) in [("-", &self.rules_removed), ("+", &self.rules_added)] {
            for rule in rules {
                writeln!(f, "{sign} rule {rule}")?;
            }
        }
        for change in &self.restart {
            writeln!(f, "needs a restart, not applied: {change}")?;
        }
        Ok(())
    }
}

impl Config {
    /// What changes from `old` to `new`.
    pub fn diff(old: &Config, new: &Config) -> Diff {
        Diff::between(old, new)
    }
}

impl Diff {
    /// Nothing differs.
    pub fn is_empty(&self) -> bool {
        *self == Diff::default()
    }

    fn between(old: &Config, new: &Config) -> Diff {
        let mut diff = Diff::default();
        diff.system(&old.system, &new.system);
        diff.engine(&old.engine, &new.engine);
        diff.router(&old.router, &new.router);
        let restart = &mut diff.restart;
        compare(restart, "mode", &old.pipeline.name, &new.pipeline.name);
        let stages = |pipeline: &Pipeline| pipeline.stages.join(" ");
        if old.pipeline.name == new.pipeline.name {
            let key = format!("pipeline.{}.stages", new.pipeline.name);
            compare(restart, &key, stages(&old.pipeline), stages(&new.pipeline));
            let delay = |p: &Pipeline| {
                p.max_delay.map_or("default".to_owned(), super::units::format_duration)
            };
            let key = format!("pipeline.{}.max_delay", new.pipeline.name);
            compare(restart, &key, delay(&old.pipeline), delay(&new.pipeline));
        }
        diff.ports(old, new);
        diff.routes(old, new);
        (diff.neighbours_removed, diff.neighbours_added) =
            set_difference(&old.neighbours, &new.neighbours);
        compare(&mut diff.restart, "switch.stations", old.switch.stations, new.switch.stations);
        let ageing = |switch: &Switch| match switch.ageing {
            Duration::ZERO => "off".to_owned(),
            ageing => super::units::format_duration(ageing),
        };
        compare(&mut diff.live, "switch.ageing", ageing(&old.switch), ageing(&new.switch));
        (diff.stations_removed, diff.stations_added) = set_difference(&old.stations, &new.stations);
        diff.ndn(old, new);
        diff.firewall(old, new);
        diff
    }

    fn firewall(&mut self, old: &Config, new: &Config) {
        let live = &mut self.live;
        let (before, after) = (&old.firewall, &new.firewall);
        compare(live, "firewall.default", &before.default, &after.default);
        compare(live, "firewall.algorithm", &before.algorithm, &after.algorithm);
        compare(live, "firewall.icmp_rate", before.icmp_rate, after.icmp_rate);
        compare(live, "firewall.icmp_burst", before.icmp_burst, after.icmp_burst);
        let rules = |config: &Config| -> Vec<Rule> {
            let rules = config.rules.iter().filter_map(|entry| match entry {
                RuleEntry::One(rule) => Some(rule.clone()),
                RuleEntry::File(_) => None,
            });
            rules.collect()
        };
        (self.rules_removed, self.rules_added) = set_difference(&rules(old), &rules(new));
        for file in new.rules.iter().chain(&old.rules) {
            let RuleEntry::File(RuleFile { name, .. }) = file else { continue };
            let of = |config: &Config| config.rules.iter().find(|e| e.name() == name).cloned();
            let text = |entry: &Option<RuleEntry>| match entry {
                Some(RuleEntry::File(file)) => {
                    format!(
                        "{} rules of {}: {}",
                        file.rules.len(),
                        file.path.display(),
                        file.action
                    )
                }
                _ => "-".to_owned(),
            };
            let (before, after) = (of(old), of(new));
            let key = format!("rule {name}");
            if before != after && !self.live.iter().any(|change| change.key == key) {
                let (old, new) = (text(&before), text(&after));
                self.live.push(Change { key, old, new });
            }
        }
        let order = |config: &Config| -> Vec<String> {
            config.rules.iter().map(|entry| entry.name().to_owned()).collect()
        };
        let (before, after) = (order(old), order(new));
        let same_set = before.len() == after.len() && before.iter().all(|n| after.contains(n));
        if same_set && before != after {
            self.live.push(Change {
                key: "order of rules".into(),
                old: before.join(" "),
                new: after.join(" "),
            });
        }
    }

    fn ndn(&mut self, old: &Config, new: &Config) {
        let restart = &mut self.restart;
        let (before, after) = (&old.ndn, &new.ndn);
        compare(restart, "ndn.names", before.names, after.names);
        compare(restart, "ndn.pit_entries", before.pit_entries, after.pit_entries);
        let lifetime = |ndn: &Ndn| super::units::format_duration(ndn.lifetime_max);
        compare(restart, "ndn.lifetime_max", lifetime(before), lifetime(after));
        compare(restart, "ndn.nack", before.nack, after.nack);
        (self.faces_removed, self.faces_added) = set_difference(&old.faces, &new.faces);
        (self.names_removed, self.names_added) = set_difference(&old.names, &new.names);
        let files = |config: &Config| {
            let files = config.name_files.iter().map(|file| file.display().to_string());
            files.collect::<Vec<_>>().join(" ")
        };
        compare(&mut self.live, "names", files(old), files(new));
    }

    fn system(&mut self, old: &System, new: &System) {
        let list = |cpus: &[usize]| format!("{cpus:?}");
        let metrics = |system: &System| {
            system.metrics.map_or_else(|| "off".to_owned(), |address| address.to_string())
        };
        let restart = &mut self.restart;
        compare(restart, "system.workers", old.workers, new.workers);
        compare(restart, "system.cpus", list(&old.cpus), list(&new.cpus));
        compare(restart, "system.cells", old.cells, new.cells);
        compare(restart, "system.huge_pages", old.huge_pages.word(), new.huge_pages.word());
        compare(restart, "system.log_format", old.log_format.word(), new.log_format.word());
        compare(restart, "system.socket", old.socket.display(), new.socket.display());
        compare(restart, "system.metrics", metrics(old), metrics(new));
        self.log_changed = compare(&mut self.live, "system.log", old.log.word(), new.log.word());
    }

    fn engine(&mut self, old: &Engine, new: &Engine) {
        let restart = &mut self.restart;
        let time = super::units::format_duration;
        let devices = |engine: &Engine| match engine.devices.as_slice() {
            [] => "none".to_owned(),
            devices => devices.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        };
        compare(restart, "engine.backend", old.backend, new.backend);
        compare(restart, "engine.devices", devices(old), devices(new));
        let offload = |engine: &Engine| engine.offload.map_or("default", |offload| offload.word());
        compare(restart, "engine.offload", offload(old), offload(new));
        compare(restart, "engine.chunk", old.chunk, new.chunk);
        compare(restart, "engine.max_delay", time(old.max_delay), time(new.max_delay));
        compare(restart, "engine.jobs_in_flight", old.jobs_in_flight, new.jobs_in_flight);
        let times = (time(old.device_timeout), time(new.device_timeout));
        compare(restart, "engine.device_timeout", times.0, times.1);
        compare(restart, "engine.sim.launch", time(old.sim.launch), time(new.sim.launch));
        compare(restart, "engine.sim.packet", time(old.sim.packet), time(new.sim.packet));
    }

    fn router(&mut self, old: &Router, new: &Router) {
        let time = super::units::format_duration;
        let restart = &mut self.restart;
        compare(restart, "router.kernel", old.kernel, new.kernel);
        // Queues and tables of a fixed size, allocated at start.
        compare(restart, "router.arp_queue_packets", old.arp_queue_packets, new.arp_queue_packets);
        compare(
            restart,
            "router.arp_queue_total_packets",
            old.arp_queue_total_packets,
            new.arp_queue_total_packets,
        );
        compare(restart, "router.table_v4", old.table_v4.word(), new.table_v4.word());
        compare(restart, "router.table_v6", old.table_v6.word(), new.table_v6.word());
        compare(restart, "router.neighbours_max", old.neighbours_max, new.neighbours_max);
        let live = &mut self.live;
        let before = live.len();
        compare(live, "router.ttl", old.ttl, new.ttl);
        compare(live, "router.fragment", old.fragment, new.fragment);
        compare(live, "router.icmp_rate", old.icmp_rate, new.icmp_rate);
        compare(live, "router.icmp_burst", old.icmp_burst, new.icmp_burst);
        let timers = |r: &Router| [r.neighbour_reachable, r.neighbour_retry].map(time);
        let ([old_reachable, old_retry], [new_reachable, new_retry]) = (timers(old), timers(new));
        compare(live, "router.neighbour_reachable", old_reachable, new_reachable);
        compare(live, "router.neighbour_retry", old_retry, new_retry);
        compare(live, "router.neighbour_attempts", old.neighbour_attempts, new.neighbour_attempts);
        self.router_changed = live.len() > before;
    }

    fn ports(&mut self, old: &Config, new: &Config) {
        for port in &old.ports {
            if new.port(&port.name).is_none() {
                self.whole_port(port, true);
            }
        }
        for port in &new.ports {
            match old.port(&port.name) {
                None => self.whole_port(port, false),
                Some(before) => self.port(before, port),
            }
        }
        let order = |config: &Config| {
            config.physical_ports().map(|(port, _)| port.name.clone()).collect::<Vec<_>>()
        };
        let (old, new) = (order(old), order(new));
        // Numbers of ports follow the file's order; added and removed ones are told above.
        let same_set = old.iter().collect::<BTreeSet<_>>() == new.iter().collect::<BTreeSet<_>>();
        if same_set {
            compare(&mut self.restart, "order of ports", old.join(" "), new.join(" "));
        }
    }

    fn whole_port(&mut self, port: &Port, gone: bool) {
        let (names, changes) = match (&port.kind, gone) {
            (PortKind::Physical(_), _) => (None, &mut self.restart),
            (PortKind::Vlan { .. }, true) => (Some(&mut self.ports_removed), &mut self.live),
            (PortKind::Vlan { .. }, false) => (Some(&mut self.ports_added), &mut self.live),
        };
        let (old, new) = if gone { ("present", "-") } else { ("-", "present") };
        compare(changes, &format!("port.{}", port.name), old, new);
        names.into_iter().for_each(|names| names.push(port.name.clone()));
    }

    fn port(&mut self, old: &Port, new: &Port) {
        let key = |field: &str| format!("port.{}.{field}", new.name);
        let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        let restart = &mut self.restart;
        compare(
            restart,
            &key("mac"),
            or_dash(old.mac.map(|mac| mac.to_string())),
            or_dash(new.mac.map(|mac| mac.to_string())),
        );
        compare(restart, &key("twin"), or_dash(old.twin.clone()), or_dash(new.twin.clone()));
        match (&old.kind, &new.kind) {
            (PortKind::Physical(old), PortKind::Physical(new)) => {
                physical(restart, &key, old, new);
            }
            (old, new) => {
                compare(restart, &key("vlan"), kind(old), kind(new));
            }
        }
        let list = |port: &Port| {
            port.addresses.iter().map(|a| a.to_string()).collect::<Vec<_>>().join(" ")
        };
        let live = &mut self.live;
        let before = live.len();
        let mtu = |port: &Port| or_dash(port.mtu.map(|mtu| mtu.to_string()));
        compare(live, &key("mtu"), mtu(old), mtu(new));
        compare(live, &key("addresses"), list(old), list(new));
        compare(live, &key("rpf"), old.rpf.word(), new.rpf.word());
        compare(live, &key("vlans"), vlans(&old.bridging.mode), vlans(&new.bridging.mode));
        compare(live, &key("learning"), old.bridging.learning, new.bridging.learning);
        compare(live, &key("storm"), storm(&old.bridging.storm), storm(&new.bridging.storm));
        if live.len() > before {
            self.ports_changed.push(new.name.clone());
        }
    }

    fn routes(&mut self, old: &Config, new: &Config) {
        (self.routes_removed, self.routes_added) = set_difference(&old.routes, &new.routes);
        self.route_files_changed = old.route_files != new.route_files;
        if self.route_files_changed {
            let list = |config: &Config| {
                let files = config.route_files.iter().map(|f| f.file.display().to_string());
                files.collect::<Vec<_>>().join(" ")
            };
            let (old, new) = (list(old), list(new));
            if !compare(&mut self.live, "routes", &old, &new) {
                self.live.push(Change { key: "routes".into(), old, new: "new next hops".into() });
            }
        }
    }
}

fn physical(
    restart: &mut Vec<Change>,
    key: &dyn Fn(&str) -> String,
    old: &Physical,
    new: &Physical,
) {
    let queues = |p: &Physical| p.queues.map_or_else(|| "auto".to_owned(), |n| n.to_string());
    let path = |path: &Option<std::path::PathBuf>| {
        path.as_ref().map_or_else(|| "-".to_owned(), |path| path.display().to_string())
    };
    let fault = |fault: &Option<Fault>| match fault {
        None => "-".to_owned(),
        Some(Fault { loss, duplicate, reorder, corrupt, seed }) => format!(
            "loss {loss} duplicate {duplicate} reorder {reorder} corrupt {corrupt} seed {seed}"
        ),
    };
    compare(restart, &key("interface"), &old.interface, &new.interface);
    compare(restart, &key("backend"), old.backend.word(), new.backend.word());
    compare(restart, &key("xdp"), old.xdp.word(), new.xdp.word());
    compare(restart, &key("zero_copy"), old.zero_copy.word(), new.zero_copy.word());
    compare(restart, &key("queues"), queues(old), queues(new));
    compare(restart, &key("promiscuous"), old.promiscuous, new.promiscuous);
    compare(restart, &key("read"), path(&old.read), path(&new.read));
    compare(restart, &key("write"), path(&old.write), path(&new.write));
    compare(restart, &key("fault"), fault(&old.fault), fault(&new.fault));
}

/// `access 10`, `trunk 10,20-29 native 1`.
fn vlans(mode: &PortMode) -> String {
    match mode {
        PortMode::Access(vlan) => format!("access {vlan}"),
        PortMode::Trunk { native, allowed } => {
            let native = native.map_or_else(String::new, |vlan| format!(" native {vlan}"));
            format!("trunk {allowed}{native}")
        }
    }
}

fn storm(limits: &StormLimits) -> String {
    let kinds = [limits.broadcast, limits.multicast, limits.unknown];
    let rates = kinds.map(|limit| match limit {
        None => "-".to_owned(),
        Some(StormRate { packets_per_s, burst }) => format!("{packets_per_s}/s burst {burst}"),
    });
    rates.join(", ")
}

fn kind(kind: &PortKind) -> String {
    match kind {
        PortKind::Physical(_) => "physical".to_owned(),
        PortKind::Vlan { parent, tag: VlanTag::Single(id) } => format!("{id} on {parent}"),
        PortKind::Vlan { parent, tag: VlanTag::Double(outer, inner) } => {
            format!("[{outer}, {inner}] on {parent}")
        }
    }
}

/// Notes the key if the values' texts differ; says whether they do.
fn compare<T: ToString>(changes: &mut Vec<Change>, key: &str, old: T, new: T) -> bool {
    let (old, new) = (old.to_string(), new.to_string());
    let differ = old != new;
    if differ {
        changes.push(Change { key: key.to_owned(), old, new });
    }
    differ
}

/// What only `old` and what only `new` has, each in its own order.
fn set_difference<T: Clone + Eq + Hash>(old: &[T], new: &[T]) -> (Vec<T>, Vec<T>) {
    let only = |a: &[T], b: &[T]| {
        let b: HashSet<&T> = b.iter().collect();
        a.iter().filter(|x| !b.contains(x)).cloned().collect()
    };
    (only(old, new), only(new, old))
}
