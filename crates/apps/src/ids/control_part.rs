//! The part of the control plane: reads rules, makes stages, writes `stats`, shows counters.

use std::any::Any;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use control::api::ErrorKind;
use control::api::table::{Row, thousands};
use control::config::{Config, IdsAction, IdsOnLimit};
use control::metrics::Metrics;
use controlplane::{
    Built, Call, ControlPart, Environment, PartId, Prepare, Refusal, Rows, Section, Setup, Tables,
    TablesPatch, WorkerSetup,
};
use detect::HostTables;
use engine::Stage;
use serde::Serialize;
use serde_json::{Map, Value};

use super::counters::{Counters, counted, get};
use super::inspect::{Parts, Places};
use super::outputs::Outputs;
use super::rules::{self, FURTHER, Loaded};
use super::stage::Ids;
use crate::flow::Attached;
use crate::flow::search::{LiteralPart, LiteralTables};

struct IdsControl {
    places: Arc<Places>,
    parts: Parts,
    loaded: Loaded,
    /// What the rules were before a reload that may be taken back.
    before: Option<Loaded>,
    /// What packets are searched for before the tracker, where the configuration asks for it, and the number of the rules whose
    /// literals were published last.
    part: Option<PartId<LiteralPart>>,
    published: u64,
    /// How often rules were read.
    generation: u64,
    stats: Duration,
    /// Where sets are saved.
    output: Option<PathBuf>,
    /// When `stats` is written next, in nanoseconds since 1970.
    stats_ns: u64,
}

/// Starts it.
pub(super) fn start(
    setup: &Setup<'_>,
    tables: &mut Tables,
) -> Result<Box<dyn ControlPart>, String> {
    let config = setup.config;
    super::without_context(config)?;
    let loaded = match setup.attached::<Arc<Loaded>>() {
        // A command has read them.
        Some(loaded) => (**loaded).clone(),
        None => rules::load(config, None)?,
    };
    say(&loaded);
    let ports: Vec<String> = setup.interfaces.names().to_vec();
    let ports: Arc<[String]> = if setup.is_live { ports.into() } else { Arc::default() };
    let seed = config.flow.community_id_seed;
    let parts = Parts {
        current: Arc::new(RwLock::new(loaded.rules.clone())),
        outputs: Arc::new(Outputs::open(&config.ids, seed, ports, setup.is_live)?),
        counters: setup.attached::<Arc<Counters>>().cloned().unwrap_or_default(),
        hosts: HostTables::default(),
        tags: Arc::default(),
        is_inline: Arc::new(AtomicBool::new(config.ids.action == IdsAction::Inline)),
        drops_invalid: Arc::new(AtomicBool::new(config.ids.drop_invalid)),
        session_memory: Arc::new(AtomicUsize::new(session_memory(config))),
        stream_memory: Arc::new(AtomicUsize::new(stream_memory(config))),
        on_limit: config.ids.on_limit,
        literals: config
            .ids
            .device
            .then(|| tables.add::<LiteralPart>(LiteralTables(loaded.literals.clone()))),
    };
    let part = parts.literals;
    Ok(Box::new(IdsControl {
        places: Arc::new(Places::new(parts.clone())),
        parts,
        part,
        published: loaded.rules.generation(),
        loaded,
        before: None,
        generation: 1,
        stats: config.ids.stats,
        output: config.ids.output.clone(),
        stats_ns: 0,
    }))
}

/// Bytes that the sessions of a worker may hold.
fn session_memory(config: &Config) -> usize {
    config.ids.session_kib as usize * 1024
}

/// Bytes that the rules of a worker may keep of streams and buffers.
fn stream_memory(config: &Config) -> usize {
    config.ids.stream_kib as usize * 1024
}

/// Logs what of the rules is not evaluated.
fn say(loaded: &Loaded) {
    const SAID_MAX: usize = 20;
    for warning in loaded.of_files.iter().chain(&loaded.warnings) {
        tracing::warn!("{warning}");
    }
    let is_own = |own: &&rules::Refusal| own.file != FURTHER;
    for problem in loaded.foremost().filter(is_own).take(SAID_MAX) {
        tracing::warn!("{problem}");
    }
    for own in &loaded.unused {
        tracing::warn!("ids.vars: {own}");
    }
    if let Some(first) = loaded.unset_bits.first() {
        tracing::warn!("{}: {first}", loaded.tested_bits());
    }
    let more = (loaded.problems.len().saturating_sub(SAID_MAX)) as u64 + loaded.problems_dropped;
    if more > 0 {
        tracing::warn!("{more} more; `shadeline ids -T` lists all");
    }
    tracing::info!("intrusion detection: {}", loaded.summary());
}

impl IdsControl {
    fn use_rules(&self, loaded: &Loaded) {
        *self.parts.current.write().unwrap_or_else(PoisonError::into_inner) = loaded.rules.clone();
    }

    fn named(&self) -> Vec<(String, u64)> {
        let failed = self.loaded.total - self.loaded.loaded;
        self.parts.counters.named(self.loaded.loaded, failed)
    }

    fn write_stats(&self, at_ns: u64) {
        let first_ns = get(&self.parts.counters.first_ns);
        let uptime_s = match first_ns {
            0 => 0,
            first_ns => at_ns.saturating_sub(first_ns) / 1_000_000_000,
        };
        self.parts.outputs.stats(at_ns, uptime_s, &self.named());
    }

    fn rows(&self) -> Vec<RuleRow> {
        let all = self.parts.counters.by_rule().into_iter();
        let mut rows: Vec<RuleRow> = all
            .map(|((gid, sid), own)| RuleRow {
                gid,
                sid,
                action: own.action,
                alerts: own.alerts,
                last_ns: own.last_ns,
                msg: own.msg,
            })
            .collect();
        rows.sort_by_key(|row| (std::cmp::Reverse(row.alerts), row.gid, row.sid));
        rows
    }

    fn fields(&self) -> Map<String, Value> {
        let c = &self.parts.counters;
        let numbers = [
            ("rules", self.loaded.loaded),
            ("rules_refused", self.loaded.total - self.loaded.loaded),
            ("generation", self.generation),
            ("packets", get(&c.packets)),
            ("flows_ended", get(&c.flows)),
            ("alerts", get(&c.alerts)),
            ("drops", get(&c.drops)),
            ("files", get(&c.files)),
            ("anomalies", get(&c.anomalies)),
            ("undecoded", get(&c.undecoded)),
            ("suppressed", get(&c.suppressed)),
            ("no_room", get(&c.no_room)),
            ("searches_given_up", get(&c.given_up)),
            ("passed_over", get(&c.passed)),
            ("session_bytes", get(&c.session_bytes)),
            ("sessions_refused", get(&c.sessions_refused)),
            ("sessions_given_up", get(&c.sessions_given_up)),
            ("stream_bytes", get(&c.stream_bytes)),
            ("streams_cut", get(&c.streams_cut)),
            ("flows_limited", get(&c.limited)),
            ("packets_refused", get(&c.refused)),
        ];
        let mut fields: Map<String, Value> =
            numbers.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())).collect();
        if self.part.is_some() {
            fields.insert("clean".to_owned(), get(&c.clean).into());
        }
        let transactions =
            c.transactions().into_iter().map(|(name, n)| (name.to_owned(), n.into()));
        let sets = self.loaded.datasets.all().into_iter();
        let sets = sets.map(|set| (set.name().to_owned(), set.len().into()));
        fields.insert("datasets".to_owned(), Value::Object(sets.collect()));
        fields.insert("transactions".to_owned(), Value::Object(transactions.collect()));
        fields
    }

    fn lines(&self) -> Vec<[String; 2]> {
        let c = &self.parts.counters;
        let mut lines = vec![[
            "intrusion detection".to_owned(),
            format!(
                "{}; {}, {} dropped",
                self.loaded.summary(),
                counted(get(&c.alerts), "alert"),
                counted(get(&c.drops), "packet")
            ),
        ]];
        if self.part.is_some() {
            let (clean, packets) = (thousands(get(&c.clean)), thousands(get(&c.packets)));
            let text = format!("{clean} of {packets} without any literal");
            lines.push(["packets searched before".to_owned(), text]);
        }
        if get(&c.passed) > 0 {
            let text = thousands(get(&c.passed));
            lines.push(["packets of encrypted streams passed over".to_owned(), text]);
        }
        let (sessions, streams) = (get(&c.session_bytes), get(&c.stream_bytes));
        if sessions + streams > 0 {
            let kib = |bytes: u64| thousands(bytes.div_ceil(1024));
            let text =
                format!("{} KiB of sessions, {} KiB of streams", kib(sessions), kib(streams));
            lines.push(["memory of flows".to_owned(), text]);
        }
        if get(&c.streams_cut) > 0 {
            let text = counted(get(&c.streams_cut), "flow");
            lines.push(["streams searched by segment without memory".to_owned(), text]);
        }
        let lost = [get(&c.sessions_refused), get(&c.sessions_given_up)];
        if lost != [0; 2] {
            let text = format!("{} not begun, {} given up", thousands(lost[0]), thousands(lost[1]));
            lines.push(["sessions of applications without memory".to_owned(), text]);
        }
        if get(&c.limited) > 0 {
            let how = match self.parts.on_limit {
                IdsOnLimit::Drop => "dropped",
                _ => "bypassed",
            };
            let text = format!("{} {how}", counted(get(&c.limited), "flow"));
            lines.push(["bounds exceeded".to_owned(), text]);
        }
        for set in self.loaded.datasets.all() {
            let refused = match set.refused() {
                0 => String::new(),
                n => format!(", no room for {}", thousands(n)),
            };
            let text = format!("{}{refused}", thousands(set.len() as u64));
            lines.push([format!("dataset {}", set.name()), text]);
        }
        let (suppressed, no_room, given_up) =
            (get(&c.suppressed), get(&c.no_room), get(&c.given_up));
        if suppressed + no_room + given_up > 0 {
            let text = format!(
                "{} suppressed; no room for {}; {} given up",
                counted(suppressed, "alert"),
                counted(no_room, "counter"),
                counted(given_up, "search")
            );
            lines.push(["rules".to_owned(), text]);
        }
        for (name, written, lost) in self.parts.outputs.counts() {
            let text = format!("{} written, {} lost", thousands(written), thousands(lost));
            lines.push([name.to_owned(), text]);
        }
        lines
    }
}

/// A rule with alerts.
#[derive(Debug, Clone, Serialize)]
struct RuleRow {
    gid: u32,
    sid: u32,
    action: &'static str,
    alerts: u64,
    /// Nanoseconds since 1970.
    last_ns: u64,
    msg: String,
}

impl Row for RuleRow {
    const COLUMNS: &'static [&'static str] = &[">gid", ">sid", ">alerts", "action", "msg"];
    const EMPTY: &'static str = "no alerts";

    fn cells(&self) -> Vec<String> {
        vec![
            self.gid.to_string(),
            self.sid.to_string(),
            thousands(self.alerts),
            self.action.to_owned(),
            self.msg.clone(),
        ]
    }
}

impl ControlPart for IdsControl {
    fn offer(&self) -> Option<Box<dyn Any + Send + Sync>> {
        Some(Box::new(Attached(self.places.clone())))
    }

    fn stage(&mut self, kind: &str, worker: &WorkerSetup<'_>) -> Option<Box<dyn Stage<Tables>>> {
        if kind != super::STAGE {
            return None;
        }
        let inspector = self.places.of(&worker.pipeline.name, worker.worker);
        let why = self.loaded.counts_hosts.then_some(
            "rules of intrusion detection count per host: thresholds, filters, bits of hosts, datasets",
        );
        let shares = crate::records::are_shared(&worker.pipeline.kinds);
        let stage = Ids::new(inspector, worker.config.ids.icmp_rate).sharing(shares);
        Some(Box::new(stage.needing_one_worker(why)))
    }

    fn table(&self, call: Call<'_>, _: &Environment<'_>) -> Result<Rows, Refusal> {
        match call.name {
            "ids" => Ok(Rows::of("ids", call.as_text, self.rows())),
            name => Err(Refusal::new(ErrorKind::Internal, format!("no table `{name}`"))),
        }
    }

    /// Rules are read and compiled aside.
    fn prepare(&self) -> Option<Prepare> {
        let (rules, datasets) = (self.loaded.rules.clone(), self.loaded.datasets.clone());
        Some(Box::new(move |config, _| {
            let loaded = rules::load(config, Some((&rules, &datasets)))?;
            Ok(Box::new(loaded) as Built)
        }))
    }

    fn apply(
        &mut self,
        _: &Config,
        prepared: Option<Built>,
        env: &mut Environment<'_>,
    ) -> Result<(), String> {
        super::without_context(env.config)?;
        let loaded = match prepared.and_then(|own| own.downcast::<Loaded>().ok()) {
            Some(loaded) => *loaded,
            None => rules::load(env.config, Some((&self.loaded.rules, &self.loaded.datasets)))?,
        };
        self.use_rules(&loaded);
        self.before = Some(std::mem::replace(&mut self.loaded, loaded));
        Ok(())
    }

    fn roll_back(&mut self, _: &mut Environment<'_>) {
        if let Some(before) = self.before.take() {
            self.use_rules(&before);
            self.loaded = before;
        }
    }

    /// Whoever rotates logs has moved the files away.
    fn commit(&mut self, _: &Config, _: &Config, env: &mut Environment<'_>) -> String {
        self.parts.outputs.reopen();
        let is_inline = env.config.ids.action == IdsAction::Inline;
        self.parts.is_inline.store(is_inline, Ordering::Relaxed);
        self.parts.drops_invalid.store(env.config.ids.drop_invalid, Ordering::Relaxed);
        self.parts.session_memory.store(session_memory(env.config), Ordering::Relaxed);
        self.parts.stream_memory.store(stream_memory(env.config), Ordering::Relaxed);
        if self.before.take().is_none() {
            return String::new();
        }
        self.generation += 1;
        say(&self.loaded);
        const SAID_MAX: usize = 3;
        let problems = &self.loaded.problems;
        let mut told = self.loaded.summary() + "\n";
        for problem in self.loaded.foremost().take(SAID_MAX) {
            told += &format!("warning: {problem}\n");
        }
        if problems.len() > SAID_MAX || self.loaded.problems_dropped > 0 {
            told += "warning: more rules are not loaded; `shadeline ids -T` lists all\n";
        }
        told
    }

    fn regions(&self) -> Range<usize> {
        self.part.map_or(0..0, PartId::regions)
    }

    /// Literals of other rules: workers may have these already, or not yet, and see by the number what a search was for.
    fn take_patches(&mut self) -> Option<TablesPatch> {
        let part = self.part?;
        let generation = self.loaded.rules.generation();
        let is_new = std::mem::replace(&mut self.published, generation) != generation;
        is_new.then(|| part.patch(vec![LiteralTables(self.loaded.literals.clone())]))
    }

    fn next_deadline_ns(&self) -> Option<u64> {
        self.parts.outputs.has_files().then_some(self.stats_ns)
    }

    fn tick(&mut self, env: &mut Environment<'_>) {
        if env.now_ns < self.stats_ns {
            return;
        }
        if self.stats_ns > 0 {
            self.write_stats(env.now_ns);
        }
        self.stats_ns = env.now_ns + self.stats.as_nanos() as u64;
    }

    fn clear(&mut self) {
        self.parts.counters.clear();
    }

    fn runtime(&self) -> (Map<String, Value>, Vec<[String; 2]>) {
        (Map::from_iter([("ids".to_owned(), Value::Object(self.fields()))]), self.lines())
    }

    fn metrics(&self, out: &mut Metrics) {
        let c = &self.parts.counters;
        out.gauge("ids_rules", "Rules of intrusion detection that are evaluated.")
            .sample(&[], self.loaded.loaded);
        out.gauge("ids_rules_refused", "Rules of intrusion detection that are not evaluated.")
            .sample(&[], self.loaded.total - self.loaded.loaded);
        let families = [
            ("ids_alerts_total", "Alerts of rules.", get(&c.alerts)),
            ("ids_drops_total", "Packets that rules dropped.", get(&c.drops)),
            (
                "ids_clean_total",
                "Packets of flows in which a search before the tracker found no literal of any rule.",
                get(&c.clean),
            ),
            (
                "ids_passed_over_total",
                "Packets of encrypted streams that were not looked at, as nothing can come of them.",
                get(&c.passed),
            ),
            ("ids_files_total", "Files in transactions.", get(&c.files)),
            ("ids_anomalies_total", "Anomalies of applications.", get(&c.anomalies)),
            (
                "ids_undecoded_total",
                "Packets that cannot be decoded, and datagrams whose fragments failed.",
                get(&c.undecoded),
            ),
            (
                "ids_suppressed_total",
                "Matches that were no alerts because of a threshold.",
                get(&c.suppressed),
            ),
            (
                "ids_no_room_total",
                "Counters of thresholds and bits of hosts for which there was no room.",
                get(&c.no_room),
            ),
            (
                "ids_sessions_refused_total",
                "Flows without a parser of their application, as there was no memory for it.",
                get(&c.sessions_refused),
            ),
            (
                "ids_sessions_given_up_total",
                "Parsers of applications that were given up, as there was no memory for more of them.",
                get(&c.sessions_given_up),
            ),
            (
                "ids_streams_cut_total",
                "Flows whose streams were searched by segment, as there was no memory for more of them.",
                get(&c.streams_cut),
            ),
            (
                "ids_packets_refused_total",
                "Packets of flows for which the flow table had no place.",
                get(&c.refused),
            ),
            (
                "ids_flows_limited_total",
                "Flows that were bypassed or dropped, as they exceeded a bound of their inspection.",
                get(&c.limited),
            ),
            (
                "ids_searches_given_up_total",
                "Searches of rules that were given up because they took too long.",
                get(&c.given_up),
            ),
        ];
        for (name, help, value) in families {
            out.counter(name, help).sample(&[], value);
        }
        out.gauge("ids_session_bytes", "Bytes that parsers of applications hold, of all workers.")
            .sample(&[], get(&c.session_bytes));
        out.gauge(
            "ids_stream_bytes",
            "Bytes that rules keep of streams and buffers, of all workers.",
        )
        .sample(&[], get(&c.stream_bytes));
        let mut family = out.counter("ids_transactions_total", "Transactions by application.");
        for (name, count) in c.transactions() {
            family.sample(&[("application", name)], count);
        }
        let mut family = out.counter("ids_log_lines_total", "Lines written, by file.");
        for (name, written, _) in self.parts.outputs.counts() {
            family.sample(&[("file", name)], written);
        }
        let mut family = out.counter("ids_log_lines_lost_total", "Lines lost, by file.");
        for (name, _, lost) in self.parts.outputs.counts() {
            family.sample(&[("file", name)], lost);
        }
    }

    fn report(&self) -> Vec<Section> {
        self.write_stats(get(&self.parts.counters.latest_ns));
        let mut errors = self.parts.outputs.close();
        if let Some(folder) = &self.output {
            errors.extend(rules::save_datasets(&self.loaded.datasets, folder).err());
        }
        let mut text = String::new();
        for [name, line] in self.lines() {
            text += &format!("{name}: {line}\n");
        }
        for row in self.rows() {
            text += &format!("  {} [{}:{}] {}\n", thousands(row.alerts), row.gid, row.sid, row.msg);
        }
        vec![Section { errors, ..Section::new("ids", &self.fields(), text) }]
    }
}
