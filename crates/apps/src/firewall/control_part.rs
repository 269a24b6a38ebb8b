//! The firewall's part of the control plane: its rules, what `ctl rule` does with them, and their counters.

use std::ops::Range;
use std::sync::Arc;

use chunk::Packet;
use control::api::table::thousands;
use control::api::{ErrorKind, HotTable};
use control::config::{self, Config, Pipeline, RuleEntry};
use control::firewall::Rule;
use control::metrics::Metrics;
use controlplane::{
    Built, Call, ControlPart, Environment, Interfaces, Outcome, OverPart, PartId, Prepare, Refusal,
    Rows, Save, Section, Setup, Tables, TablesPatch, WorkerSetup,
};
use engine::{Gate, Stage};
use serde::Serialize;
use serde_json::{Map, Value};

use super::commands::{RuleAdd, RuleDel, RuleReplace, RuleReplaceAll, RuleShow};
use super::rows::{Counted, RuleRow, metrics};
use super::rule_list::{self, Basis, Changed, Gone, Rebuilt, RuleList};
use super::{Firewall, FirewallPart, FirewallTables, Instance, save};
use crate::ports::PortNames;
use crate::router::{ErrorGate, RouterCounters};

/// Rules whose counters the metrics show; more would be no metrics.
const SHOWN_MAX: usize = 1024;

/// Rules that people are shown at the end of a run; the file has all.
const REPORTED: usize = 40;

/// The firewall as control sees it.
struct FirewallControl {
    section: Place,
    instance: Instance,
    rules: RuleList,
    part: PartId<FirewallPart>,
    is_live: bool,
    /// It was logged that the rules are more than a device is sent.
    has_too_many: bool,
    /// For a reload: rules that were built, if they are others.
    prepared: Option<rule_list::Built>,
}

/// Where the settings of a firewall are in the file.
#[derive(Debug, Clone)]
struct Place {
    /// The name of its stage.
    name: String,
    /// Whether `[stage.NAME]` has them, and not `[firewall]`.
    is_own: bool,
}

impl Place {
    /// The settings; `None` where the file has them elsewhere by now, or no more: that is for a restart.
    fn of<'c>(&self, config: &'c Config) -> Option<&'c config::Firewall> {
        let is_own = config.has_own_firewall(&self.name);
        config.firewall_of(&self.name).filter(|_| is_own == self.is_own)
    }
}

/// The rules of a file, built, and what is odd about them.
type NewRules = Result<(rule_list::Built, Vec<String>), Refusal>;

/// What a rule counted, for the report of a run.
#[derive(Debug, Serialize)]
struct RuleTotals {
    rule: String,
    packets: u64,
    bytes: u64,
    /// Seconds since 1970, to the nanosecond.
    last_hit: Option<String>,
}

/// Starts it with the rules of the configuration.
pub(super) fn start(
    setup: &Setup<'_>,
    tables: &mut Tables,
) -> Result<Box<dyn ControlPart>, String> {
    let (rules, first) = RuleList::new(setup.name, setup.config, setup.interfaces)?;
    // Who opens a device says that of these.
    let has_too_many = !FirewallTables::is_for_device(&first);
    let part = tables.add::<FirewallPart>(first);
    let is_live = setup.is_live;
    let name = setup.name.to_owned();
    let is_own = setup.config.has_own_firewall(&name);
    // Whether it is the only one of each of its pipelines.
    let is_alone = setup.config.in_use().all(|own| own.named(super::STAGE).count() < 2);
    let instance = Instance::named(&name, is_alone);
    let prepared = None;
    let section = Place { name, is_own };
    Ok(Box::new(FirewallControl {
        section,
        instance,
        rules,
        part,
        is_live,
        has_too_many,
        prepared,
    }))
}

impl From<rule_list::Refusal> for Refusal {
    fn from(refusal: rule_list::Refusal) -> Self {
        let (kind, message) = match refusal {
            rule_list::Refusal::NotFound(message) => (ErrorKind::NotFound, message),
            rule_list::Refusal::Exists(message) => (ErrorKind::Exists, message),
            rule_list::Refusal::Bad(message) => (ErrorKind::BadRequest, message),
        };
        Refusal::new(kind, message)
    }
}

/// Whether a stage before this one fills the header columns of all packets.
fn has_headers(worker: &WorkerSetup<'_>) -> bool {
    let before = worker.pipeline.stages.iter().zip(&worker.pipeline.kinds).take(worker.at);
    let fills = |(name, kind): (&String, &String)| match kind.as_str() {
        "decode" | "bridge_in" => true,
        // One that sees some packets alone fills nothing for the others.
        super::STAGE => worker.config.stage(name).is_none_or(|own| own.context.is_empty()),
        _ => false,
    };
    before.into_iter().any(fills)
}

/// Reads the rules of a request and builds them, which for many takes longer than the control loop may be away.
fn read(basis: &Basis, rules: Value, interfaces: &Interfaces) -> NewRules {
    let bad = |why: String| Refusal::new(ErrorKind::BadRequest, why);
    let rules = serde_json::from_value::<Vec<Rule>>(rules);
    let rules = rules.map_err(|error| bad(format!("rules: {error}")))?;
    for rule in &rules {
        rule_list::check(rule)?;
    }
    let entries: Vec<_> = rules.into_iter().map(RuleEntry::One).collect();
    let odd = rule_list::odd(&entries, interfaces);
    Ok((basis.build(&entries, true).map_err(bad)?, odd))
}

/// What is odd about rules, for who changed them; the log has it, too.
fn warnings(odd: &[String]) -> String {
    odd.iter().for_each(|text| tracing::warn!("{text}"));
    odd.iter().map(|text| format!("warning: {text}")).collect::<Vec<_>>().join("\n")
}

impl FirewallControl {
    /// The name of its stage, where it has one of its own.
    fn own_name(&self) -> Option<&str> {
        (self.section.name != super::STAGE).then_some(&*self.section.name)
    }

    fn changed(changed: Result<Changed, rule_list::Refusal>) -> Result<Outcome, Refusal> {
        Ok(match changed? {
            Changed::Done(odd) => Outcome::Done(warnings(&odd)),
            Changed::Rebuild(rebuild) => Outcome::Later(Box::new(|| Box::new(rebuild.run()))),
        })
    }
}

impl ControlPart for FirewallControl {
    fn stage(&mut self, kind: &str, worker: &WorkerSetup<'_>) -> Option<Box<dyn Stage<Tables>>> {
        if kind != super::STAGE {
            return None;
        }
        let stage = match (has_headers(worker), is_answered(worker.pipeline)) {
            (false, _) => Firewall::of(self.instance).decoding(),
            (true, true) => Firewall::of(self.instance).in_router(),
            (true, false) => Firewall::of(self.instance),
        };
        let is_behind = |kind| super::is_behind(worker.pipeline, Some(worker.at), kind);
        let stage = match is_behind(crate::flow::STAGE) {
            true if is_behind(crate::l7::STAGE) => stage.behind_flow().behind_l7(),
            true => stage.behind_flow(),
            false => stage,
        };
        let stage = stage.telling(worker.shared.get());
        let is_held = is_behind(crate::flow::STAGE)
            && crate::flow::holds_fragments(worker.config, &worker.pipeline.kinds);
        let stage = stage.behind_held(is_held);
        let stage = stage.sharing(crate::records::are_shared(&worker.pipeline.kinds));
        let stage = stage.with_first_region(self.part.regions().start);
        let stage = stage.with_names(PortNames::of(worker.interfaces));
        let stage = if worker.has_device { stage } else { stage.on_cpu() };
        let stage = if worker.defers_limits { stage.deferring_answers() } else { stage };
        Some(OverPart::boxed(Box::new(stage), self.part))
    }

    fn regions(&self) -> Range<usize> {
        self.part.regions()
    }

    fn unfit(&self, tables: &Tables, memory_bytes: u64) -> Option<String> {
        let rules = tables.part(self.part);
        // There are two images, each with room to grow, and others than these.
        let bytes = rules.rules_bytes() as u64;
        let is_small = rules.is_for_device() && 4 * bytes <= memory_bytes;
        if !is_small {
            return Some(format!(
                "its rules need {} MiB, too much for a device with {} MiB",
                bytes >> 20,
                memory_bytes >> 20
            ));
        }
        (!rules.has_kernels()).then(|| "no kernel supports its structure".to_owned())
    }

    fn take_patches(&mut self) -> Option<TablesPatch> {
        let patches = self.rules.take_patches();
        (!patches.is_empty()).then(|| self.part.patch(patches))
    }

    fn published(&mut self, tables: &Tables) {
        if !self.has_too_many && !tables.part(self.part).is_for_device() {
            self.has_too_many = true;
            tracing::warn!(
                "{}: rule set exceeds the device limit; the CPU processes its segment, lookups included",
                self.section.name
            );
        }
    }

    fn call(&mut self, mut call: Call<'_>, env: &mut Environment<'_>) -> Result<Outcome, Refusal> {
        match call.name {
            "rule_add" => {
                let RuleAdd { rule, place, .. } = call.read()?;
                Self::changed(self.rules.add(rule, &place))
            }
            "rule_replace" => {
                let RuleReplace { rule, .. } = call.read()?;
                Self::changed(self.rules.replace(rule))
            }
            "rule_replace_all" => {
                // They may be many: another thread reads them.
                let rules = call.fields.insert("rules".to_owned(), Value::Array(Vec::new()));
                let RuleReplaceAll { .. } = call.read()?;
                let rules = rules.unwrap_or_default();
                let (basis, interfaces) = (self.rules.basis(), env.interfaces.clone());
                Ok(Outcome::Later(Box::new(move || Box::new(read(&basis, rules, &interfaces)))))
            }
            "rule_del" => {
                let RuleDel { name, .. } = call.read()?;
                self.rules.remove(&name)?;
                Ok(Outcome::Done(String::new()))
            }
            "rule_show" => {
                let RuleShow { name, .. } = call.read()?;
                let rows = self.rules.rows(name.as_deref())?;
                Ok(Outcome::Rows(Rows::of("rules", call.as_text, rows)))
            }
            name => Err(Refusal::new(ErrorKind::Internal, format!("no request `{name}`"))),
        }
    }

    fn table(&self, mut call: Call<'_>, _env: &Environment<'_>) -> Result<Rows, Refusal> {
        let RuleShow { name, .. } = call.read()?;
        Ok(Rows::of("rules", call.as_text, self.rules.rows(name.as_deref())?))
    }

    fn built(&mut self, built: Built, _env: &mut Environment<'_>) -> Result<String, Refusal> {
        let odd = match built.downcast::<Rebuilt>() {
            Ok(rebuilt) => self.rules.rebuilt(*rebuilt)?,
            Err(built) => {
                let new = built
                    .downcast::<NewRules>()
                    .map_err(|_| Refusal::new(ErrorKind::Internal, "something else was built"))?;
                let (built, odd) = (*new)?;
                self.rules.take(built);
                odd
            }
        };
        Ok(warnings(&odd))
    }

    fn build_failed(&mut self) {
        self.rules.rebuild_failed();
    }

    /// Rules are built aside, if they are others.
    fn prepare(&self) -> Option<Prepare> {
        let (basis, section) = (self.rules.basis(), self.section.clone());
        Some(Box::new(move |config, interfaces| {
            let basis = basis.of(config, interfaces);
            let own = section.of(config).map(|own| basis.of_config(own)).transpose()?;
            Ok(Box::new(own.flatten()) as Built)
        }))
    }

    fn apply(
        &mut self,
        _old: &Config,
        prepared: Option<Built>,
        _env: &mut Environment<'_>,
    ) -> Result<(), String> {
        let built = prepared.and_then(|built| built.downcast::<Option<rule_list::Built>>().ok());
        self.prepared = built.and_then(|built| *built);
        Ok(())
    }

    fn roll_back(&mut self, _env: &mut Environment<'_>) {
        self.prepared = None;
    }

    fn commit(&mut self, old: &Config, _started: &Config, env: &mut Environment<'_>) -> String {
        let built = self.prepared.take();
        let Some(own) = self.section.of(env.config) else { return String::new() };
        self.rules.renumber(env.config, env.interfaces);
        let Gone { rules, of_file } = self.rules.apply((self.section.of(old), own), built);
        let count = |n: usize| if n == 1 { "1 rule".to_owned() } else { format!("{n} rules") };
        let mut told = Vec::new();
        if rules > 0 {
            told.push(format!("removed {} of `ctl rule`", count(rules)));
        }
        if of_file > 0 {
            told.push(format!("restored {} of the configuration", count(of_file)));
        }
        match &told[..] {
            [] => String::new(),
            told => format!("`{}`: {}\n", self.section.name, told.join(", ")),
        }
    }

    fn save(&self, _env: &Environment<'_>) -> Option<Save> {
        let (now, section) = (self.rules.all(), self.section.clone());
        Some(Box::new(move |config, draft| {
            let Some(own) = section.of(config) else {
                return vec![format!("rules of `{}`: the file has no such firewall", section.name)];
            };
            let name = section.name.clone();
            let path: &[&str] = if section.is_own { &["stage", &name, "rule"] } else { &["rule"] };
            let changed = save::rules(&now, &own.rules, path, draft);
            // A firewall that is there for its rules stays without them.
            if changed && now.is_empty() && !section.is_own {
                draft.need_section("firewall");
            }
            Vec::new()
        }))
    }

    fn clear(&mut self) {
        self.rules.clear();
    }

    fn runtime(&self) -> (Map<String, Value>, Vec<[String; 2]>) {
        let totals = self.rules.totals();
        let mut fields = Map::new();
        // A dot keeps names of stages apart from other fields.
        let name = self.own_name().map_or("firewall".to_owned(), |own| format!("firewall.{own}"));
        fields.insert(name, serde_json::to_value(&totals).unwrap_or_default());
        let mut lines = totals.lines();
        if let Some(stage) = self.own_name() {
            lines.iter_mut().for_each(|[title, _]| *title = format!("{title} of {stage}"));
        }
        (fields, lines)
    }

    fn hottest(&self, most: usize) -> Vec<HotTable> {
        let title = self.own_name().map_or("rules".to_owned(), |own| format!("rules of {own}"));
        vec![self.rules.hottest(title, most)]
    }

    fn metrics(&self, out: &mut Metrics) {
        let (stage, totals) = (self.own_name(), &self.rules.totals());
        let rules: Vec<RuleRow> = self.rules.rows_of(SHOWN_MAX);
        metrics(&[Counted { stage, totals, rules: &rules }], out);
    }

    /// Over captures; live, `ctl` and the metrics have it.
    fn report(&self) -> Vec<Section> {
        if self.is_live {
            return Vec::new();
        }
        let time = |ns: u64| format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
        let totals = self.rules.counts(usize::MAX).map(|(name, hit)| RuleTotals {
            rule: name.to_owned(),
            packets: hit.packets,
            bytes: hit.bytes,
            last_hit: (hit.packets > 0).then(|| time(hit.last_ns)),
        });
        let totals: Vec<_> = totals.collect();
        let text = match self.own_name() {
            Some(stage) => format!("{stage}\n{}", text(&totals)),
            None => text(&totals),
        };
        let field = self.own_name().map_or("rules".to_owned(), |name| format!("rules_{name}"));
        vec![Section::new(&field, &totals, text)]
    }

    fn passes(&self, packet: &Packet, tables: &Tables) -> bool {
        super::stage::passes(packet, tables.part(self.part))
    }

    fn has_gate(&self, pipeline: &Pipeline) -> bool {
        let mut own = pipeline.named(super::STAGE);
        let is_there = own.any(|name| name == self.section.name);
        is_there && !is_answered(pipeline) && self.rules.rejects()
    }

    fn gate(&mut self, _config: &Config, interfaces: usize) -> Option<Box<dyn Gate>> {
        let options = self.rules.options();
        let own = Arc::new(RouterCounters::new(interfaces));
        Some(Box::new(ErrorGate::new(options.icmp_rate, options.icmp_burst, own)))
    }
}

/// Whether a router answers for the firewalls of this pipeline.
fn is_answered(pipeline: &Pipeline) -> bool {
    pipeline.has("rewrite")
}

/// The rules that had packets, for people.
fn text(rules: &[RuleTotals]) -> String {
    let mut out = format!("{:<28} {:>14} {:>16}\n", "rule", "packets", "bytes");
    let hit: Vec<_> = rules.iter().filter(|rule| rule.packets > 0).collect();
    for rule in hit.iter().take(REPORTED) {
        let (packets, bytes) = (thousands(rule.packets), thousands(rule.bytes));
        out += &format!("{:<28} {packets:>14} {bytes:>16}\n", rule.rule);
    }
    if let Some(more) = hit.len().checked_sub(REPORTED).filter(|n| *n > 0) {
        out += &format!("and {} more\n", thousands(more as u64));
    }
    out += &match rules.len() - hit.len() {
        0 => "all rules had packets\n".to_owned(),
        idle => format!(
            "without a packet: {} of {}\n",
            thousands(idle as u64),
            thousands(rules.len() as u64)
        ),
    };
    out
}
