//! What a reload has to do: the difference between two configurations.

use std::collections::HashSet;
use std::fmt;
use std::hash::Hash;

use super::Config;
use super::schema::mode_text;
use super::section::{Changes, SectionValue};
use super::types::*;
use crate::firewall::Rule;

/// What a difference without any change says.
pub const NOTHING: &str = "nothing changed";

/// From an old configuration to a new one.
///
/// A routes file may change while its name stays: a reload reads the files again.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Diff {
    /// Everything that differs and can be applied while packets flow.
    pub live: Vec<Change>,
    /// Everything that needs other stages, or ports that are opened anew.
    pub rebuild: Vec<Change>,
    /// Ports and subinterfaces that are to be opened anew, their twins with them.
    pub ports_reopened: Vec<String>,
    /// Everything that only a restart can apply; these keys keep their old values.
    pub restart: Vec<Change>,
    /// Ports and subinterfaces that are new.
    pub ports_added: Vec<String>,
    /// Ports and subinterfaces that are gone.
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

impl Change {
    /// The value of a section that is in one of the files only, such as `[port.lan]`.
    const THERE: &'static str = "present";

    /// What a reload did with it.
    fn applied(&self) -> String {
        match (&*self.old, &*self.new) {
            ("-", Self::THERE) => format!("added {}", self.key),
            (Self::THERE, "-") => format!("removed {}", self.key),
            _ => format!("changed {self}"),
        }
    }
}

/// The message of a reload: what was applied, then what waits for a restart.
impl fmt::Display for Diff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str(NOTHING);
        }
        for change in self.live.iter().chain(&self.rebuild) {
            writeln!(f, "{}", change.applied())?;
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
        diff.section(System::NAME, &old.system, &new.system);
        diff.section(Engine::NAME, &old.engine, &new.engine);
        diff.section(Router::NAME, &old.router, &new.router);
        diff.log_changed = diff.live.iter().any(|change| change.key == "system.log");
        diff.router_changed = diff.live.iter().any(|change| change.key.starts_with("router."));
        let rebuild = &mut diff.rebuild;
        compare(rebuild, "mode", &old.pipeline.name, &new.pipeline.name);
        let stages = |pipeline: &Pipeline| pipeline.stages.join(" ");
        for now in new.in_use() {
            let Some(before) = old.in_use().find(|before| before.name == now.name) else {
                continue;
            };
            let key = format!("pipeline.{}.stages", now.name);
            compare(rebuild, &key, stages(before), stages(now));
            let delay = |p: &Pipeline| {
                p.max_delay.map_or("default".to_owned(), super::units::format_duration)
            };
            let places = |p: &Pipeline| {
                let all = p.places.iter().map(|(place, stage)| format!("{place} = {stage}"));
                format!("{{{}}}", all.collect::<Vec<_>>().join(", "))
            };
            let key = format!("pipeline.{}.places", now.name);
            compare(rebuild, &key, places(before), places(now));
            let key = format!("pipeline.{}.max_delay", now.name);
            compare(rebuild, &key, delay(before), delay(now));
        }
        diff.ports(old, new);
        diff.routes(old, new);
        (diff.neighbours_removed, diff.neighbours_added) =
            set_difference(&old.neighbours, &new.neighbours);
        diff.section(Switch::NAME, &old.switch, &new.switch);
        (diff.stations_removed, diff.stations_added) = set_difference(&old.stations, &new.stations);
        diff.ndn(old, new);
        diff.firewall(Firewall::NAME, "", &old.firewall, &new.firewall);
        diff.section(Flow::NAME, &old.flow, &new.flow);
        diff.section(L7::NAME, &old.l7, &new.l7);
        diff.section(Ids::NAME, &old.ids, &new.ids);
        diff.modules(old, new);
        diff.section(Translation::NAME, &old.translation, &new.translation);
        let rules = |config: &Config| {
            let all: Vec<String> = config.nat.iter().map(NatRule::to_string).collect();
            if all.is_empty() { "-".to_owned() } else { all.join("; ") }
        };
        compare(&mut diff.live, "nat", rules(old), rules(new));
        diff.section(Ipsec::NAME, &old.ipsec, &new.ipsec);
        fn joined<T: ToString>(all: &[T]) -> String {
            let all: Vec<String> = all.iter().map(T::to_string).collect();
            if all.is_empty() { "-".to_owned() } else { all.join("; ") }
        }
        compare(&mut diff.live, "sa", joined(&old.associations), joined(&new.associations));
        compare(&mut diff.live, "policy", joined(&old.policies), joined(&new.policies));
        diff.stages(old, new);
        diff.dumps(old, new);
        diff
    }

    /// What changes in a section, key by key; `name` is before the keys.
    fn section(&mut self, name: &str, old: &dyn SectionValue, new: &dyn SectionValue) {
        let mut changes = Changes::default();
        old.diff(new, name, &mut changes);
        self.live.append(&mut changes.live);
        self.rebuild.append(&mut changes.rebuild);
        self.restart.append(&mut changes.restart);
    }

    /// `[stage.NAME]`, of stages that there were and are. Others come and go with their pipelines.
    fn stages(&mut self, old: &Config, new: &Config) {
        for now in &new.stages {
            let Some(before) = old.stage(&now.name).filter(|old| old.kind == now.kind) else {
                let (key, new) = (format!("stage.{}", now.name), now.kind.to_owned());
                self.rebuild.push(Change { key, old: "-".to_owned(), new });
                continue;
            };
            let key = format!("stage.{}.context", now.name);
            let contexts = |stage: &StageConfig| format!("[{}]", stage.context.join(", "));
            compare(&mut self.rebuild, &key, contexts(before), contexts(now));
            let (Some(before), Some(after)) = (&before.settings, &now.settings) else { continue };
            let key = format!("stage.{}", now.name);
            match (before.get::<Firewall>(), after.get::<Firewall>()) {
                (Some(before), Some(after)) => {
                    self.firewall(&key, &format!("{} ", now.name), before, after);
                }
                _ => self.section(&key, &**before, &**after),
            }
        }
        for gone in old.stages.iter().filter(|gone| new.stage(&gone.name).is_none()) {
            let (key, old) = (format!("stage.{}", gone.name), gone.kind.to_owned());
            self.rebuild.push(Change { key, old, new: "-".to_owned() });
        }
    }

    /// Modules of both by their keys; others come and go.
    fn modules(&mut self, old: &Config, new: &Config) {
        let find = |config: &Config, name: &str| {
            config.modules.iter().find(|module| module.name == name).cloned()
        };
        for module in &new.modules {
            let key = format!("module.{}", module.name);
            match find(old, &module.name) {
                Some(before) => self.section(&key, &before, module),
                None => {
                    compare(&mut self.rebuild, &key, "-", "new");
                }
            }
        }
        for gone in old.modules.iter().filter(|gone| find(new, &gone.name).is_none()) {
            let key = format!("module.{}", gone.name);
            compare(&mut self.rebuild, &key, "there", "-");
        }
        let order = |config: &Config| {
            let names = config.modules.iter().map(|module| module.name.clone());
            names
                .filter(|name| find(old, name).is_some() && find(new, name).is_some())
                .collect::<Vec<_>>()
                .join(" ")
        };
        let (before, after) = (order(old), order(new));
        compare(&mut self.rebuild, "order of modules", before, after);
    }

    fn dumps(&mut self, old: &Config, new: &Config) {
        let find = |config: &Config, name: &str| {
            config.dumps.iter().find(|dump| dump.name == name).map(|dump| {
                let filter = dump.filter.as_ref().map_or(String::new(), |own| format!(" ({own})"));
                format!("{}{filter}", dump.file.display())
            })
        };
        let gone = old.dumps.iter().filter(|gone| find(new, &gone.name).is_none());
        for dump in gone.chain(&new.dumps) {
            let [before, now] =
                [old, new].map(|own| find(own, &dump.name).unwrap_or_else(|| "-".to_owned()));
            compare(&mut self.rebuild, &format!("dump.{}", dump.name), before, now);
        }
    }

    /// `name` is before the keys; `what` before the names of rules.
    fn firewall(&mut self, name: &str, what: &str, old: &Firewall, new: &Firewall) {
        self.section(name, old, new);
        let rules = |config: &Firewall| -> Vec<Rule> {
            let rules = config.rules.iter().filter_map(|entry| match entry {
                RuleEntry::One(rule) => Some(rule.clone()),
                RuleEntry::File(_) => None,
            });
            rules.collect()
        };
        let (removed, added) = set_difference(&rules(old), &rules(new));
        let named = |rule: Rule| Rule { name: format!("{what}{}", rule.name), ..rule };
        self.rules_removed.extend(removed.into_iter().map(named));
        self.rules_added.extend(added.into_iter().map(named));
        for file in new.rules.iter().chain(&old.rules) {
            let RuleEntry::File(RuleFile { name, .. }) = file else { continue };
            let of = |config: &Firewall| config.rules.iter().find(|e| e.name() == name).cloned();
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
            let key = format!("rule {what}{name}");
            if before != after && !self.live.iter().any(|change| change.key == key) {
                let (old, new) = (text(&before), text(&after));
                self.live.push(Change { key, old, new });
            }
        }
        let order = |config: &Firewall| -> Vec<String> {
            config.rules.iter().map(|entry| entry.name().to_owned()).collect()
        };
        let (before, after) = (order(old), order(new));
        let same_set = before.len() == after.len() && before.iter().all(|n| after.contains(n));
        if same_set && before != after {
            self.live.push(Change {
                key: format!(
                    "order of rules{}{}",
                    if what.is_empty() { "" } else { " of " },
                    what.trim_end_matches(' ')
                ),
                old: before.join(" "),
                new: after.join(" "),
            });
        }
    }

    fn ndn(&mut self, old: &Config, new: &Config) {
        self.section(Ndn::NAME, &old.ndn, &new.ndn);
        (self.faces_removed, self.faces_added) = set_difference(&old.faces, &new.faces);
        (self.names_removed, self.names_added) = set_difference(&old.names, &new.names);
        let files = |config: &Config| {
            let files = config.name_files.iter().map(|file| file.display().to_string());
            files.collect::<Vec<_>>().join(" ")
        };
        compare(&mut self.live, "names", files(old), files(new));
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
        self.tagged_ports(old, new);
    }

    /// Subinterfaces that have the MAC of their port are opened anew when that changes.
    fn tagged_ports(&mut self, old: &Config, new: &Config) {
        for port in &new.ports {
            let PortKind::Vlan { parent, .. } = &port.kind else { continue };
            let mac = |config: &Config| config.port(parent).and_then(|parent| parent.mac);
            let is_other = old.port(&port.name).is_some() && mac(old) != mac(new);
            if is_other && port.mac.is_none() && !self.ports_reopened.contains(&port.name) {
                self.ports_reopened.push(port.name.clone());
            }
        }
    }

    fn whole_port(&mut self, port: &Port, gone: bool) {
        let names = if gone { &mut self.ports_removed } else { &mut self.ports_added };
        names.push(port.name.clone());
        let there = Change::THERE;
        let (old, new) = if gone { (there, "-") } else { ("-", there) };
        compare(&mut self.rebuild, &format!("port.{}", port.name), old, new);
    }

    fn port(&mut self, old: &Port, new: &Port) {
        let name = format!("port.{}", new.name);
        let (before, rebuilt) = (self.live.len(), self.rebuild.len());
        self.section(&name, old, new);
        match (&old.kind, &new.kind) {
            (PortKind::Physical(old), PortKind::Physical(new)) => self.section(&name, old, new),
            (old, new) => {
                compare(&mut self.rebuild, &format!("{name}.vlan"), old, new);
            }
        }
        // One text for `access`, `trunk` and `native`.
        let (old_vlans, new_vlans) = (mode_text(&old.bridging.mode), mode_text(&new.bridging.mode));
        compare(&mut self.live, &format!("{name}.vlans"), old_vlans, new_vlans);
        self.section(&name, &old.bridging, &new.bridging);
        // Where its packets go is no matter of the port itself.
        let pipeline = format!("{name}.pipeline");
        if self.rebuild[rebuilt..].iter().any(|change| change.key != pipeline) {
            self.ports_reopened.push(new.name.clone());
        }
        if self.live.len() > before {
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
