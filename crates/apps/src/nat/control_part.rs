//! The part of the control plane: makes the translators of workers, reads them, and gives them new rules.

use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use chunk::Packet;
use control::api::ErrorKind;
use control::api::table::thousands;
use control::config::{Config, NatRule};
use control::metrics::Metrics;
use controlplane::memory::{self, Need};
use controlplane::{
    Ahead, Built, Call, ControlPart, Environment, Outcome, Refusal, Rows, Save, Section, Setup,
    Tables, WorkerSetup,
};
use engine::Stage;
use lookup::fib::Interface;
use nat::rules::{Action, Own};
use nat::translator::{Counts, Options, PoolUse, Session};
use nat::{Rules, Translator};
use serde::Serialize;
use serde_json::{Map, Value};

use super::ahead::Burst;
use super::commands::{NatAdd, NatDel, ShowNat, ShowSubscribers};
use super::destination::{Destination, seconds};
use super::origin::Restored;
use super::proxy::{Outside, announcements};
use super::rows::{NatRow, PoolRow, RuleRow, SubscriberRow, address};
use super::source::SourceStage;
use super::{Current, SOURCE_STAGE, STAGE, Shared, lock, rows, rule_list};
use crate::router::{Origin, Proxy};

/// Entries that control reads under the lock of a worker before it lets the worker go on.
const PIECE: usize = 4096;

struct NatControl {
    options: Options,
    own: Arc<Own>,
    current: Current,
    workers: usize,
    /// By pipeline and worker.
    translators: Vec<(String, usize, Shared)>,
    burst: Burst,
    /// The rules in use, as the configuration or `ctl` says them.
    listed: Vec<NatRule>,
    /// The rules of a configuration that is being applied.
    next: Option<Arc<Rules>>,
    /// Outside addresses that the router answers for, if it does.
    proxy: Option<Arc<dyn Proxy>>,
    /// Links on which outside addresses are to be announced, by interface.
    silent: Vec<bool>,
    /// The time of the latest packet over captures is not known here: idle times are then 0.
    is_live: bool,
}

/// Starts it.
pub(super) fn start(
    setup: &Setup<'_>,
    _tables: &mut Tables,
) -> Result<Box<dyn ControlPart>, String> {
    let config = setup.config;
    super::one_pipeline(config)?;
    // Room for interfaces that a reload adds.
    let own = Arc::new(Own::new(setup.interfaces.count() + 256));
    for number in 0..setup.interfaces.count() as u16 {
        own.set(number, first(&setup.record(number)));
    }
    let workers = if setup.is_live { config.system.workers.max(1) } else { 1 };
    let ftp_ports: &'static [u16] = Vec::leak(config.translation.ftp_ports.clone());
    let has_ftp = !ftp_ports.is_empty();
    let rules = super::rules::rules(&config.nat, setup.interfaces, workers, &own, has_ftp, &[])?;
    let options = super::rules::options(config, ftp_ports, setup.seed());
    let count = workers * config.in_use().flat_map(|own| own.named(STAGE)).count();
    let bytes = (count * Translator::memory_bytes(&options, &rules)) as u64;
    memory::ask_for(
        Need { bytes, reserved_bytes: 0 },
        "address translation (`sessions` and outside addresses)",
    )?;
    let current = Arc::new(RwLock::new(Arc::new(rules)));
    let proxy = config.translation.proxy_arp;
    let proxy = proxy.then(|| Arc::new(Outside(current.clone())) as Arc<dyn Proxy>);
    Ok(Box::new(NatControl {
        options,
        own,
        current,
        proxy,
        listed: config.nat.clone(),
        silent: vec![true; setup.interfaces.count()],
        workers,
        translators: Vec::new(),
        burst: Burst::default(),
        next: None,
        is_live: setup.is_live,
    }))
}

/// Whether the stage at a place of a pipeline may write sources: none between it and `nat_source` reads packets.
fn sources_may_be_early(kinds: &[String], at: usize) -> bool {
    let behind = kinds.get(at + 1..).unwrap_or_default();
    let end = behind.iter().position(|kind| kind == SOURCE_STAGE);
    let reads_columns = |kind: &String| matches!(kind.as_str(), "rpf" | "route");
    end.is_some_and(|end| behind[..end].iter().all(reads_columns))
}

/// Whether IPv6 packets become IPv4 at once: where no stage before `nat_source` reads packets, and where one encrypts, which
/// `nat_source` is behind.
fn turns_are_early(kinds: &[String], at: usize) -> bool {
    sources_may_be_early(kinds, at) || kinds.iter().any(|kind| kind == crate::ipsec::OUT)
}

fn first(record: &Interface) -> Option<u32> {
    record.addresses4.first().map(|own| own.0)
}

/// Counts of all workers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(super) struct NatTotals {
    /// Sessions now.
    pub sessions: u64,
    /// Sessions that began.
    pub started: u64,
    /// Sessions that were idle.
    pub expired: u64,
    /// Sessions that made room for new ones.
    pub given_up: u64,
    /// Packets of sessions.
    pub packets: u64,
    /// TCP resets that their receivers would not accept.
    pub resets_ignored: u64,
    /// ICMP errors translated.
    pub errors: u64,
    /// Packets for which there was no free port.
    pub ports_exhausted: u64,
    /// Packets for which there was no room for a session.
    pub sessions_exhausted: u64,
    /// Packets of hosts with too many bindings.
    pub host_limit: u64,
    /// Packets whose ends behind the translator another session has.
    pub conflicts: u64,
    /// Data connections of FTP that were announced.
    pub ftp_announced: u64,
    /// Those that came.
    pub ftp_related: u64,
    /// Announcements of another host's address, or of a port below 1024.
    pub ftp_refused: u64,
    /// Announcements that could not be translated.
    pub ftp_left: u64,
}

impl NatControl {
    fn has_ftp(&self) -> bool {
        !self.options.ftp_ports.is_empty()
    }

    fn rules(&self) -> Arc<Rules> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn totals(&self) -> NatTotals {
        let mut all = NatTotals::default();
        for (.., translator) in &self.translators {
            let translator = lock(translator);
            let Counts {
                sessions,
                expired,
                given_up,
                packets,
                resets_ignored,
                errors,
                ports_exhausted,
                sessions_exhausted,
                host_limit,
                conflicts,
                ftp_announced,
                ftp_related,
                ftp_refused,
                ftp_left,
            } = translator.counts();
            all.sessions += translator.len() as u64;
            all.started += sessions;
            all.expired += expired;
            all.given_up += given_up;
            all.packets += packets;
            all.resets_ignored += resets_ignored;
            all.errors += errors;
            all.ports_exhausted += ports_exhausted;
            all.sessions_exhausted += sessions_exhausted;
            all.host_limit += host_limit;
            all.conflicts += conflicts;
            all.ftp_announced += ftp_announced;
            all.ftp_related += ftp_related;
            all.ftp_refused += ftp_refused;
            all.ftp_left += ftp_left;
        }
        all
    }

    fn sessions(&self, wanted: &ShowNat, now_s: u32) -> Vec<NatRow> {
        let rules = self.rules();
        let is_wanted = |session: &Session| {
            let ends = [session.original, session.translated]
                .into_iter()
                .flat_map(|tuple| [(tuple.family, tuple.src), (tuple.family, tuple.dst)]);
            let mut ends = ends.collect::<Vec<_>>().into_iter();
            let has_address = wanted.address.is_none_or(|net| {
                ends.clone().any(|(family, end)| net.contains(&address(family, end.0)))
            });
            has_address && wanted.port.is_none_or(|port| ends.any(|(_, end)| end.1 == port))
        };
        let mut found: Vec<Session> = Vec::new();
        for (.., translator) in &self.translators {
            let mut next = Some(0);
            while let Some(from) = next {
                next = lock(translator).visit(from, PIECE, now_s, &mut |session| {
                    if is_wanted(&session) {
                        found.push(session);
                    }
                });
            }
        }
        found.sort_by_key(|session| session.original);
        found.iter().map(|own| NatRow::of(own, rows::place(&rules, own.rule))).collect()
    }

    fn pools(&self) -> Vec<PoolRow> {
        let rules = self.rules();
        let mut all: Vec<PoolUse> = Vec::new();
        for (.., translator) in &self.translators {
            for pool in lock(translator).pools() {
                let same =
                    |own: &&mut PoolUse| (own.rule, own.address) == (pool.rule, pool.address);
                match all.iter_mut().find(same) {
                    Some(own) => own.used += pool.used,
                    None => all.push(pool),
                }
            }
        }
        all.iter().map(|own| PoolRow::of(own, rows::place(&rules, own.rule))).collect()
    }

    /// Gives all workers other rules; what there is to say about it.
    fn use_rules(&mut self, rules: Arc<Rules>) -> String {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = rules.clone();
        self.silent.fill(true);
        let sets = self.translators.iter().map(|(.., own)| lock(own).set_rules(rules.clone()));
        match sets.sum::<usize>() {
            0 => String::new(),
            1 => "1 session of address translation ended\n".to_owned(),
            ended => format!("{} sessions of address translation ended\n", thousands(ended as u64)),
        }
    }

    /// Where the rule of a number is.
    fn place_of(&self, number: usize) -> Result<usize, Refusal> {
        let count = self.listed.len();
        let at = number.checked_sub(1).filter(|at| *at < count);
        at.ok_or_else(|| {
            let message = format!("there is no rule {number}: expected 1 to {count}");
            Refusal::new(ErrorKind::NotFound, message)
        })
    }

    fn rule_rows(&self) -> Vec<RuleRow> {
        let rules = self.rules();
        let mut sessions = vec![0; self.listed.len()];
        for (.., translator) in &self.translators {
            let mut next = Some(0);
            while let Some(from) = next {
                next = lock(translator).visit(from, PIECE, 0, &mut |session| {
                    let place = rows::place(&rules, session.rule).checked_sub(1);
                    if let Some(own) = place.and_then(|at| sessions.get_mut(at)) {
                        *own += 1;
                    }
                });
            }
        }
        let all = self.listed.iter().zip(sessions).enumerate();
        let row = |(at, (rule, sessions)): (usize, (&NatRule, u64))| RuleRow {
            number: at + 1,
            rule: rule.to_string(),
            sessions,
        };
        all.map(row).collect()
    }

    /// Says on links that outside addresses are here, where that was not said yet.
    fn announce(&mut self, env: &mut Environment<'_>) {
        if self.proxy.is_none() || !self.is_live {
            return;
        }
        let rules = self.rules();
        for number in 0..self.silent.len() {
            let record = env.records.get(number).filter(|record| record.up);
            let Some(record) = record.filter(|_| self.silent[number]) else { continue };
            self.silent[number] = false;
            for frame in announcements(&rules, number as u16, record) {
                env.send(number as u16, &frame);
            }
        }
    }

    fn subscribers(&self, wanted: &ShowSubscribers) -> Vec<SubscriberRow> {
        let address = wanted.address.to_bits();
        let mut rows = Vec::new();
        for (at, rule) in self.rules().all.iter().enumerate() {
            let Action::Deterministic { blocks, .. } = &rule.action else { continue };
            let own = wanted.port.is_none().then_some(address);
            let sharing = blocks.subscribers(address).filter(|own| {
                wanted.port.is_none_or(|port| blocks.subscriber(address, port) == Some(*own))
            });
            let all = own.into_iter().chain(sharing);
            rows.extend(all.filter_map(|own| SubscriberRow::of(blocks, own, at + 1)));
        }
        rows
    }

    fn translator(&mut self, worker: &WorkerSetup<'_>) -> Option<Shared> {
        let own = |(pipeline, number, _): &&(String, usize, Shared)| {
            *pipeline == worker.pipeline.name && *number == worker.worker
        };
        if let Some((.., known)) = self.translators.iter().find(own) {
            return Some(known.clone());
        }
        let made = Translator::new(self.options, self.rules());
        let made =
            made.inspect_err(|error| tracing::error!("address translation: {error}")).ok()?;
        let made = Arc::new(Mutex::new(made));
        self.translators.push((worker.pipeline.name.clone(), worker.worker, made.clone()));
        Some(made)
    }
}

impl ControlPart for NatControl {
    fn stage(&mut self, kind: &str, worker: &WorkerSetup<'_>) -> Option<Box<dyn Stage<Tables>>> {
        let translator = self.translator(worker)?;
        match kind {
            STAGE => {
                let origin: Arc<dyn Origin> = Arc::new(Restored(translator.clone()));
                worker.shared.put(origin);
                let with_headers = worker.pipeline.has(crate::firewall::STAGE);
                let (current, seed) = (self.current.clone(), self.options.seed);
                let open = (!self.is_live).then(|| self.burst.open());
                let stage = Destination::new(translator, current, with_headers, seed);
                let early = sources_may_be_early(&worker.pipeline.kinds, worker.at);
                let turns = turns_are_early(&worker.pipeline.kinds, worker.at);
                let shares = crate::records::are_shared(&worker.pipeline.kinds);
                let stage = stage.writing_sources(early).turning_early(turns);
                Some(Box::new(stage.counting(open).sharing(shares)))
            }
            SOURCE_STAGE => {
                let open = (!self.is_live).then(|| self.burst.open());
                let shares = crate::records::are_shared(&worker.pipeline.kinds);
                Some(Box::new(
                    SourceStage::new(translator, self.options.seed).counting(open).sharing(shares),
                ))
            }
            _ => None,
        }
    }

    fn offer(&self) -> Option<Box<dyn Any + Send + Sync>> {
        self.proxy.as_ref().map(|proxy| Box::new(proxy.clone()) as Box<dyn Any + Send + Sync>)
    }

    fn tick(&mut self, env: &mut Environment<'_>) {
        self.announce(env);
    }

    fn interface(&mut self, number: u16, env: &mut Environment<'_>) {
        let record = env.records.get(usize::from(number));
        self.own.set(number, record.and_then(first));
        let count = env.records.len().max(usize::from(number) + 1);
        self.silent.resize(count, true);
        self.silent[usize::from(number)] = true;
    }

    fn table(&self, mut call: Call<'_>, env: &Environment<'_>) -> Result<Rows, Refusal> {
        match call.name {
            "nat" => {
                let wanted: ShowNat = call.read()?;
                let now_s = if self.is_live { seconds(env.now_ns) } else { 0 };
                Ok(Rows::of("nat", call.as_text, self.sessions(&wanted, now_s)))
            }
            "nat-rules" => Ok(Rows::of("nat-rules", call.as_text, self.rule_rows())),
            "nat-subscribers" => {
                let wanted: ShowSubscribers = call.read()?;
                Ok(Rows::of("nat-subscribers", call.as_text, self.subscribers(&wanted)))
            }
            "nat-pools" => Ok(Rows::of("nat-pools", call.as_text, self.pools())),
            name => Err(Refusal::new(ErrorKind::Internal, format!("no table `{name}`"))),
        }
    }

    fn apply(
        &mut self,
        _old: &Config,
        _prepared: Option<Built>,
        env: &mut Environment<'_>,
    ) -> Result<(), String> {
        super::one_pipeline(env.config)?;
        let before = self.rules();
        let new = super::rules::rules(
            &env.config.nat,
            env.interfaces,
            self.workers,
            &self.own,
            self.has_ftp(),
            &before.all,
        )?;
        self.next = (new.all != before.all).then(|| Arc::new(new));
        Ok(())
    }

    fn roll_back(&mut self, _env: &mut Environment<'_>) {
        self.next = None;
    }

    fn commit(&mut self, old: &Config, _started: &Config, env: &mut Environment<'_>) -> String {
        let before = std::mem::replace(&mut self.listed, env.config.nat.clone());
        let of_ctl = |own: &&NatRule| !old.nat.contains(own) && !self.listed.contains(own);
        let gone = match before.iter().filter(of_ctl).count() {
            0 => String::new(),
            1 => "removed 1 rule of `ctl nat`\n".to_owned(),
            count => format!("removed {count} rules of `ctl nat`\n"),
        };
        match self.next.take() {
            Some(rules) => gone + &self.use_rules(rules),
            None => gone,
        }
    }

    fn save(&self, _env: &Environment<'_>) -> Option<Save> {
        let now = self.listed.clone();
        Some(Box::new(move |config, draft| {
            if config.nat != now {
                rule_list::save(&now, &config.nat, draft);
            }
            Vec::new()
        }))
    }

    fn call(&mut self, mut call: Call<'_>, env: &mut Environment<'_>) -> Result<Outcome, Refusal> {
        let listed = match call.name {
            "nat_add" => {
                let new: NatAdd = call.read()?;
                let at = match new.before {
                    Some(number) => self.place_of(number)?,
                    None => self.listed.len(),
                };
                let ports = env.interfaces.numbers().map(|own| env.interfaces.name(own).to_owned());
                let ports: Vec<String> = ports.collect();
                let listed = rule_list::added(&self.listed, at, new.keys(), &ports);
                listed.map_err(|error| Refusal::new(ErrorKind::BadRequest, error))?
            }
            "nat_del" => {
                let NatDel { rule } = call.read()?;
                let at = self.place_of(rule)?;
                let mut listed = self.listed.clone();
                listed.remove(at);
                listed
            }
            name => {
                return Err(Refusal::new(ErrorKind::Internal, format!("no request `{name}`")));
            }
        };
        let (before, interfaces) = (self.rules(), env.interfaces);
        let (workers, has_ftp) = (self.workers, self.has_ftp());
        let rules =
            super::rules::rules(&listed, interfaces, workers, &self.own, has_ftp, &before.all);
        let rules = rules.map_err(|error| Refusal::new(ErrorKind::BadRequest, error))?;
        self.listed = listed;
        let said = self.use_rules(Arc::new(rules));
        self.announce(env);
        Ok(Outcome::Done(said))
    }

    fn learns_ahead(&self) -> bool {
        true
    }

    fn ahead(&mut self, packet: &Packet, is_first: bool, _tables: &Tables, _passes: bool) -> Ahead {
        let rules = self.rules();
        self.burst.look(packet, is_first, &rules)
    }

    fn runtime(&self) -> (Map<String, Value>, Vec<[String; 2]>) {
        let t = self.totals();
        let value = serde_json::to_value(t).unwrap_or_default();
        let fields = Map::from_iter([("nat".to_owned(), value)]);
        let all = [t.sessions, t.started, t.expired, t.given_up].map(thousands);
        let [sessions, started, expired, given_up] = all;
        let refused = t.ports_exhausted + t.sessions_exhausted + t.host_limit + t.conflicts;
        let refused = thousands(refused);
        let text = format!(
            "{sessions}: {started} began, {expired} idle, {given_up} gave way; {refused} packets refused"
        );
        let mut rows = vec![["translated sessions".to_owned(), text]];
        if self.has_ftp() {
            let all = [t.ftp_announced, t.ftp_related, t.ftp_refused, t.ftp_left].map(thousands);
            let [announced, related, refused, left] = all;
            let text = format!(
                "{announced} announced, {related} came, {refused} refused, {left} not translated"
            );
            rows.push(["translated FTP data connections".to_owned(), text]);
        }
        (fields, rows)
    }

    fn metrics(&self, out: &mut Metrics) {
        let t = self.totals();
        out.gauge("nat_sessions", "Sessions of address translation.").sample(&[], t.sessions);
        let used: u64 = self.pools().iter().map(|pool| pool.used).sum();
        out.gauge("nat_ports", "Outside ports and identifiers in use.").sample(&[], used);
        let families = [
            ("nat_sessions_started_total", "Sessions that began.", t.started),
            ("nat_sessions_expired_total", "Sessions that ended after their idle time.", t.expired),
            ("nat_sessions_given_up_total", "Sessions that made room for new ones.", t.given_up),
            ("nat_packets_total", "Packets of sessions.", t.packets),
            ("nat_resets_ignored_total", "TCP resets that match no connection.", t.resets_ignored),
            ("nat_errors_total", "ICMP errors translated.", t.errors),
            ("nat_ports_exhausted_total", "Packets without a free port.", t.ports_exhausted),
            (
                "nat_sessions_exhausted_total",
                "Packets without room for a session.",
                t.sessions_exhausted,
            ),
            ("nat_host_limit_total", "Packets of hosts with too many bindings.", t.host_limit),
            ("nat_conflicts_total", "Packets whose translation another session has.", t.conflicts),
            (
                "nat_ftp_announced_total",
                "FTP data connections that were announced.",
                t.ftp_announced,
            ),
            ("nat_ftp_related_total", "Announced FTP data connections that came.", t.ftp_related),
            (
                "nat_ftp_refused_total",
                "FTP announcements of an address of another host, or of a port below 1024.",
                t.ftp_refused,
            ),
            ("nat_ftp_left_total", "FTP announcements that could not be translated.", t.ftp_left),
        ];
        for (name, help, value) in families {
            out.counter(name, help).sample(&[], value);
        }
    }

    fn report(&self) -> Vec<Section> {
        let t = self.totals();
        let ignored = match t.resets_ignored {
            0 => String::new(),
            count => format!(", {} TCP resets ignored", thousands(count)),
        };
        let text = format!(
            "address translation: {} sessions, {} packets, {} ICMP errors; {} packets refused{ignored}\n",
            thousands(t.started),
            thousands(t.packets),
            thousands(t.errors),
            thousands(t.ports_exhausted + t.sessions_exhausted + t.host_limit + t.conflicts)
        );
        vec![Section::new("nat", &t, text)]
    }
}

#[cfg(test)]
mod tests {
    use super::{sources_may_be_early, turns_are_early};

    #[test]
    fn sources_are_early_where_no_stage_between_reads_packets() {
        let early = |list: &str| {
            let kinds: Vec<String> = list.split(' ').map(str::to_owned).collect();
            sources_may_be_early(&kinds, 1)
        };
        assert!(early("decode nat route nat_source rewrite"));
        assert!(early("decode nat rpf route nat_source rewrite"));
        assert!(!early("decode nat firewall route nat_source rewrite"));
        assert!(!early("decode nat flow route nat_source rewrite"));
        assert!(!early("decode nat route"));
    }

    #[test]
    fn packets_become_ipv4_behind_stages_that_read_them_and_before_they_are_encrypted() {
        let early = |list: &str| {
            let kinds: Vec<String> = list.split(' ').map(str::to_owned).collect();
            turns_are_early(&kinds, 1)
        };
        assert!(early("decode nat rpf route nat_source rewrite"));
        assert!(!early("decode nat flow firewall route nat_source rewrite"));
        assert!(early("decode nat flow firewall route esp_out nat_source rewrite"));
    }
}
