//! What a configuration file says, as plain owned values with every default filled in. The sections are declared in
//! `schema`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub use super::schema::{
    Backend, Bridging, Collector, Dump, Engine, EngineBackend, EventType, ExtraStations, Face,
    FaceLink, Faces, Fault, FileNextHops, Firewall, Flow, HostLimits, HugePages, Ids, IdsAction,
    IdsEvent, IdsOnLimit, Ipsec, L7, LogFormat, LogLevel, ModuleEntry, ModulePatterns,
    ModuleSource, NameRoute, NatFilter, NatKind, NatProtocol, NatRule, NatTarget, Ndn, Neighbour,
    Offload, OnFailure, Overlap, Physical, PolicyAction, PolicyDirection, PolicyEntry,
    PolicyProtocol, Port, PortKind, PortRange, Register, Route, RouteFile, Router, Rpf,
    SaAuthentication, SaDf, SaDirection, SaEncryption, SaEntry, SaMode, SaWorkers, Seccomp,
    SimCost, Station, Sureness, Switch, System, TableV4, TableV6, Translation, VlanTag, XdpMode,
    ZeroCopy, module_groups, modules_use_flows,
};
use super::section::SectionValue;
use super::stages::Application;
use crate::firewall::{Action, Conditions, Rule};

/// A checked configuration. Names resolve, ranges hold, defaults are filled in.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The pipeline that `mode` chose, a shipped one or one of `pipelines`: that of ports that name no other.
    pub pipeline: Pipeline,
    /// Further pipelines that ports name, in the order of the first such port.
    pub others: Vec<Pipeline>,
    /// `[system]`.
    pub system: System,
    /// `[port.NAME]`, physical ports and VLAN subinterfaces, in the file's order.
    pub ports: Vec<Port>,
    /// `[router]`.
    pub router: Router,
    /// `[[route]]`, in the file's order.
    pub routes: Vec<Route>,
    /// `[[routes]]`, in the file's order.
    pub route_files: Vec<RouteFile>,
    /// `[[neighbour]]`, in the file's order.
    pub neighbours: Vec<Neighbour>,
    /// `[switch]`.
    pub switch: Switch,
    /// `[[station]]`, in the file's order.
    pub stations: Vec<Station>,
    /// `[ndn]`.
    pub ndn: Ndn,
    /// `[ndn.face.NAME]`, in the file's order.
    pub faces: Vec<Face>,
    /// `[[name]]`, in the file's order.
    pub names: Vec<NameRoute>,
    /// `[[names]]`, in the file's order.
    pub name_files: Vec<PathBuf>,
    /// `[firewall]`.
    pub firewall: Firewall,
    /// `[flow]`.
    pub flow: Flow,
    /// `[l7]`.
    pub l7: L7,
    /// `[ids]`.
    pub ids: Ids,
    /// `[[module]]`, in the file's order, which is that in which they run.
    pub modules: Vec<ModuleEntry>,
    /// `[[nat]]`, in the file's order.
    pub nat: Vec<NatRule>,
    /// `[translation]`.
    pub translation: Translation,
    /// `[ipsec]`.
    pub ipsec: Ipsec,
    /// `[[sa]]`, in the file's order.
    pub associations: Vec<SaEntry>,
    /// `[[policy]]`, in the file's order.
    pub policies: Vec<PolicyEntry>,
    /// `[stage.NAME]`, in the file's order.
    pub stages: Vec<StageConfig>,
    /// `[dump.NAME]`, in the file's order.
    pub dumps: Vec<Dump>,
    /// `[engine]`.
    pub engine: Engine,
    /// `[pipeline.NAME]`, in the file's order, chosen or not.
    pub pipelines: Vec<Pipeline>,
    /// By pipeline in use and its stages: the line that puts a stage there, from 1; for a shipped pipeline that of
    /// `mode` or of a port that names it, for a firewall that was put in that of `[firewall]` or of the first
    /// `[[rule]]`. `None`: no line does, the pipeline is the default.
    pub stage_lines: Vec<Vec<Option<usize>>>,
}

impl Config {
    /// The pipelines of the program: that of `mode`, and those that ports name.
    pub fn in_use(&self) -> impl Iterator<Item = &Pipeline> {
        std::iter::once(&self.pipeline).chain(&self.others)
    }

    /// Whether a pipeline in use has a stage of this application.
    pub fn uses(&self, application: &str) -> bool {
        self.in_use().any(|pipeline| pipeline.uses(application))
    }

    /// The number among [`Config::in_use`] of the pipeline that packets of a port or subinterface enter.
    pub fn pipeline_number(&self, port: &str) -> usize {
        let name = match self.port(port).map(|port| &port.kind) {
            Some(PortKind::Physical(physical)) => physical.pipeline.as_deref(),
            Some(PortKind::Vlan { parent, .. }) => match self.port(parent).map(|p| &p.kind) {
                Some(PortKind::Physical(physical)) => physical.pipeline.as_deref(),
                _ => None,
            },
            None => None,
        };
        name.and_then(|name| self.in_use().position(|own| own.name == name)).unwrap_or(0)
    }

    /// The pipeline that packets of a port or subinterface enter.
    pub fn pipeline_of(&self, port: &str) -> &Pipeline {
        self.in_use().nth(self.pipeline_number(port)).unwrap_or(&self.pipeline)
    }

    /// The port of that name.
    pub fn port(&self, name: &str) -> Option<&Port> {
        self.ports.iter().find(|port| port.name == name)
    }

    /// The face of that name.
    pub fn face(&self, name: &str) -> Option<&Face> {
        self.faces.iter().find(|face| face.name == name)
    }

    /// The stage of that name in `[stage.NAME]`.
    pub fn stage(&self, name: &str) -> Option<&StageConfig> {
        self.stages.iter().find(|stage| stage.name == name)
    }

    /// The `[stage.NAME]` of a stage of a pipeline, or of the stage of which it is a part ([`Application::parts`]).
    pub fn section_of(&self, stage: &str) -> Option<&StageConfig> {
        let whole = || {
            let (whole, number) = stage.rsplit_once('.')?;
            number.bytes().all(|byte| byte.is_ascii_digit()).then_some(whole)
        };
        self.stage(stage).or_else(|| self.stage(whole()?))
    }

    /// The contexts that stages and modules see, by number; at most 32.
    pub fn contexts(&self) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        let modules = self.modules.iter().flat_map(|module| &module.context);
        for name in self.stages.iter().flat_map(|stage| &stage.context).chain(modules) {
            if !all.contains(name) {
                all.push(name.clone());
            }
        }
        all
    }

    /// The firewall of the stage of that name: that of `[stage.NAME]`, `[firewall]` for the stage `firewall` without
    /// such a section; `None` for any other name.
    pub fn firewall_of(&self, name: &str) -> Option<&Firewall> {
        match self.stage(name).and_then(|stage| stage.settings.as_deref()) {
            Some(settings) => settings.get(),
            None => (name == "firewall").then_some(&self.firewall),
        }
    }

    /// Whether the settings of a firewall are in `[stage.NAME]`, and not those of `[firewall]`.
    pub fn has_own_firewall(&self, name: &str) -> bool {
        self.stage(name).is_some_and(|stage| stage.settings.is_some())
    }

    /// All rules of `[[rule]]` in order, those of files among them.
    pub fn rule_list(&self) -> impl Iterator<Item = (RuleName<'_>, &Conditions, &Action)> {
        rule_list(&self.firewall.rules)
    }

    /// Ports with queues of their own, in the file's order; the first is the default input of
    /// captures.
    pub fn physical_ports(&self) -> impl Iterator<Item = (&Port, &Physical)> {
        self.ports.iter().filter_map(|port| match &port.kind {
            PortKind::Physical(physical) => Some((port, physical)),
            PortKind::Vlan { .. } => None,
        })
    }
}

/// Stages in order, under a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pipeline {
    /// What `mode` calls it.
    pub name: String,
    /// The applications of its stages, each once, that of the last stage first; none in one that was refused.
    pub applications: Vec<&'static Application>,
    /// Names of stages, at least one.
    pub stages: Vec<String>,
    /// By stage: its kind, which is its name unless the file gives it one of its own.
    pub kinds: Vec<String>,
    /// Where *through again* leads: place and stage. A place that is not here is the stage of its name.
    pub places: Vec<(String, String)>,
    /// How long a packet may be under way because chunks wait to fill; `None`: as `[engine]` says.
    pub max_delay: Option<Duration>,
}

impl Pipeline {
    /// The application of its last stage, which says what becomes of packets.
    ///
    /// # Panics
    /// In one that [`super::parse`] refused.
    pub fn main(&self) -> &'static Application {
        self.applications.first().expect("a pipeline that was taken")
    }

    /// Whether one of its stages belongs to this application.
    pub fn uses(&self, application: &str) -> bool {
        self.applications.iter().any(|own| own.name == application)
    }

    /// Whether it has a stage of this kind.
    pub fn has(&self, kind: &str) -> bool {
        self.kinds.iter().any(|own| own == kind)
    }

    /// The names of its stages of this kind.
    pub fn named(&self, kind: &str) -> impl Iterator<Item = &str> {
        let all = self.stages.iter().zip(&self.kinds);
        all.filter(move |(_, own)| *own == kind).map(|(name, _)| name.as_str())
    }
}

/// `[stage.NAME]`.
#[derive(Debug, Clone)]
pub struct StageConfig {
    /// Its name, as pipelines have it.
    pub name: String,
    /// The kind of stage that it is.
    pub kind: &'static str,
    /// The contexts of the packets that it sees; none: all packets.
    pub context: Vec<String>,
    /// What it has of its own; `None` for a kind without settings.
    pub settings: Option<Box<dyn SectionValue>>,
}

impl PartialEq for StageConfig {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
            && self.kind == other.kind
            && self.context == other.context
            && self.settings == other.settings
    }
}

/// `[[rule]]`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RuleEntry {
    /// A rule.
    One(Rule),
    /// Many of one action.
    File(RuleFile),
}

/// A ClassBench file in the place of a rule.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RuleFile {
    /// Its rules are called so, with `:` and their number from 0 behind it.
    pub name: String,
    /// Relative paths start at the configuration's folder once [`super::load`] read it.
    pub path: PathBuf,
    /// Of all its rules.
    pub action: Action,
    /// Its rules in order; none if the file was not read.
    pub rules: Arc<[Conditions]>,
}

impl RuleEntry {
    /// The name of the rule, or of the file.
    pub fn name(&self) -> &str {
        match self {
            Self::One(rule) => &rule.name,
            Self::File(file) => &file.name,
        }
    }

    /// What it does.
    pub fn action(&self) -> &Action {
        match self {
            Self::One(rule) => &rule.action,
            Self::File(file) => &file.action,
        }
    }

    /// Rules.
    pub fn len(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::File(file) => file.rules.len(),
        }
    }

    /// Whether there is no rule: an empty file.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The name of a rule, which for a rule of a file is made on request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RuleName<'a> {
    name: &'a str,
    number: Option<usize>,
}

impl std::fmt::Display for RuleName<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.number {
            None => f.write_str(self.name),
            Some(number) => write!(f, "{}:{number}", self.name),
        }
    }
}

/// All rules of entries, in order.
pub fn rule_list(
    entries: &[RuleEntry],
) -> impl Iterator<Item = (RuleName<'_>, &Conditions, &Action)> {
    entries.iter().flat_map(|entry| {
        let (rules, is_file) = match entry {
            RuleEntry::One(rule) => (std::slice::from_ref(&rule.conditions), false),
            RuleEntry::File(file) => (&file.rules[..], true),
        };
        rules.iter().enumerate().map(move |(number, conditions)| {
            let name = RuleName { name: entry.name(), number: is_file.then_some(number) };
            (name, conditions, entry.action())
        })
    })
}
