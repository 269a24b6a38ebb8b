//! The part of the control plane: the database of associations and policies, and the requests that change it.

use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;

use control::api::ErrorKind;
use control::api::table::thousands;
use control::config::draft::{Draft, Keys};
use control::config::{
    Config, Diagnostic, EngineBackend, PolicyEntry, SaEntry, SaWorkers, Severity,
};
use control::metrics::Metrics;
use controlplane::interfaces::addresses;
use controlplane::{
    Built, Call, ControlPart, Environment, Findings, Interfaces, Outcome, Refusal, Rows, Save,
    Section, Setup, Source, Tables, TablesPatch, WorkerSetup, events,
};
use crypto::{Key, Marks};
use engine::{Stage, WorkerCounters};
use ipsec::{Association, Database};
use lookup::fib::Interface;
use serde_json::{Map, Value};

use super::commands::{PolicyAdd, PolicyDel, SaAdd, SaDel};
use super::current::{Asker, Counters, Current, Event, Reader, Refused, Why};
use super::device::keys::Places;
use super::events::Events;
use super::incoming::EspIn;
use super::keep_alive::KeepAlives;
use super::linux::Linux;
use super::load::{Loads, Work};
use super::outgoing::EspOut;
use super::policy_list;
use super::protection::Protection;
use super::rows::{PolicyRow, SaRow};
use super::settings::{HOP_LIMIT, key, needs_fresh_keys, parameters, policies};
use crate::router::{Guard, PipelineOptions};

/// How often lifetimes are looked at, nanoseconds.
const LOOK_NS: u64 = 1_000_000_000;

/// Associations that have metrics of their own: the newest ones.
const SERIES_MAX: usize = 1024;

/// What is counted: a name, and a sentence.
const COLUMNS: [(&str, &str); 8] = [
    ("opened", "ESP packets opened."),
    ("opened_bytes", "Bytes of what was inside."),
    ("sealed", "Packets sealed."),
    ("sealed_bytes", "Bytes of what is inside."),
    (
        "passed",
        "Decisions that a packet passes as it is, by a policy or because none matches: one for each direction that it takes.",
    ),
    ("wanted", "Packets that a policy protects, without an association."),
    ("path_mtu", "ICMP errors that a path MTU was learned from."),
    ("path_mtu_ignored", "ICMP errors about ESP packets that were not plausible."),
];

/// What a reload brings.
struct Next {
    /// New and changed entries with their keys.
    added: Vec<(SaEntry, Key)>,
    associations: Vec<SaEntry>,
    policies: Vec<PolicyEntry>,
    /// Files that cannot be read, and whose keys stay.
    said: String,
}

/// A metric of associations: its name, a sentence, its value.
type Count = (&'static str, &'static str, fn(&Association) -> u64);

struct IpsecControl {
    database: Database,
    current: Arc<Current>,
    /// The associations in use, as the configuration or `ctl` says them.
    listed: Vec<SaEntry>,
    /// Those of `ctl`, in the words of the file.
    added: Vec<(SaEntry, Keys)>,
    policies: Vec<PolicyEntry>,
    next: Option<Next>,
    counters: Vec<Arc<Counters>>,
    cleared: [u64; COLUMNS.len()],
    looked_ns: u64,
    is_live: bool,
    seed: u64,
    /// A live run with `linux = true`.
    linux: Option<Linux>,
    source: Option<Source>,
    events: Events,
    /// With `device`.
    places: Option<Places>,
    keep_alives: KeepAlives,
    loads: Loads,
}

fn text(own: &SaEntry) -> String {
    format!("association {:#x} to {}", own.spi, own.destination)
}

fn read_key(own: &SaEntry) -> Result<Key, String> {
    key(own).map_err(|error| format!("{}: {error}", text(own)))
}

fn add_policies(database: &mut Database, all: &[PolicyEntry]) -> Result<(), String> {
    database.clear_policies();
    for (own, number) in all.iter().zip(1..) {
        for policy in policies(own, number) {
            let added = database.add_policy(policy);
            added.map_err(|error| format!("policy {number}: {error}"))?;
        }
    }
    Ok(())
}

/// Those of Linux come behind `after` of the configuration.
fn add_policies_of(linux: &Linux, after: usize, database: &mut Database) {
    for own in linux.policies(after as u32) {
        if let Err(error) = database.add_policy(own) {
            tracing::warn!("IPsec: a policy of Linux is not used: {error}");
        }
    }
}

/// What is handed over, and what the router answers, must not enter behind the stages that look at it: it would leave unprotected.
fn check_places(config: &Config) -> Result<(), String> {
    for own in &config.pipelines {
        if !own.kinds.iter().any(|kind| kind == super::IN || kind == super::OUT) {
            continue;
        }
        for (place, stage) in &own.places {
            let kind = own.stages.iter().zip(&own.kinds).find(|(name, _)| *name == stage);
            let is_right = kind.is_none_or(|(_, kind)| kind == place);
            if !is_right && (place == super::PLACE || place == super::OUT) {
                return Err(format!(
                    "pipeline `{}`: with IPsec, place `{place}` must lead to the stage `{place}`, not to `{stage}`",
                    own.name
                ));
            }
        }
    }
    Ok(())
}

/// The addresses of the router.
fn local(config: &Config) -> Vec<IpAddr> {
    config.ports.iter().flat_map(|port| &port.addresses).map(ipnet::IpNet::addr).collect()
}

/// Starts it.
pub(super) fn start(
    setup: &Setup<'_>,
    tables: &mut Tables,
) -> Result<Box<dyn ControlPart>, String> {
    let config = setup.config;
    check_places(config)?;
    let seed = setup.seed();
    let mut database = Database::with_seed(seed);
    let now_ns = if setup.is_live { chunk_now_ns() } else { setup.beginning().now_ns };
    for own in &config.associations {
        let key = read_key(own)?;
        let added = database.add(parameters(own), key, now_ns);
        added.map_err(|error| format!("{}: {error}", text(own)))?;
    }
    if setup.is_live {
        let weak = weak_in_use(&database, &config.associations);
        weak.iter().for_each(|(_, text)| tracing::warn!("{text}"));
    }
    add_policies(&mut database, &config.policies)?;
    let (mut linux, mut source, mut asker, mut to_control) = (None, None, None, None);
    if setup.is_live {
        let (sender, carried) = events();
        asker = Some(Asker::new(sender.clone()));
        (source, to_control) = (Some(carried), Some(sender));
    }
    if let Some(sender) = to_control.clone().filter(|_| config.ipsec.linux) {
        let followed = Linux::follow(sender, local(config), HOP_LIMIT);
        let (mut own, first) = followed.map_err(|error| format!("[ipsec] linux: {error}"))?;
        own.take(first, &mut database, now_ns);
        add_policies_of(&own, config.policies.len(), &mut database);
        linux = Some(own);
    }
    let view = database.view().map_err(|error| error.to_string())?;
    let workers = if setup.is_live { config.ipsec.workers } else { SaWorkers::Any };
    let places = config.ipsec.device.then(|| Places::start(&database, tables));
    Ok(Box::new(IpsecControl {
        database,
        current: Arc::new(Current::new(view, to_control, asker).with_workers(workers)),
        listed: config.associations.clone(),
        added: Vec::new(),
        policies: config.policies.clone(),
        next: None,
        counters: Vec::new(),
        cleared: [0; COLUMNS.len()],
        looked_ns: 0,
        is_live: setup.is_live,
        seed,
        linux,
        source,
        events: Events::default(),
        places,
        keep_alives: KeepAlives::default(),
        loads: Loads::default(),
    }))
}

/// Nanoseconds since 1970.
fn chunk_now_ns() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |now| now.as_nanos() as u64)
}

/// `check`: keys that cannot be read, and what is weak.
pub(super) fn check_files(config: &Config, _: &Interfaces, findings: &mut Findings) {
    if let Err(error) = check_places(config) {
        findings.error_of_all(error);
    }
    let has_device = config.engine.may_use(|backend| backend != EngineBackend::Cpu);
    if config.ipsec.device && !has_device {
        findings.warn_of_all(
            "`device` of [ipsec] only costs time with this back end: choose auto, opencl or cuda"
                .to_owned(),
        );
    }
    if config.ipsec.device && has_device && config.ipsec.workers != SaWorkers::Any {
        findings.warn_of_all("`workers` of [ipsec] has no effect with `device`".to_owned());
    }
    let mut keys = Vec::new();
    for own in &config.associations {
        match read_key(own) {
            Ok(key) => keys.push((own, key.marks())),
            Err(error) => findings.error_of_all(error),
        }
    }
    weak(&keys).into_iter().for_each(|(_, text)| findings.warn_of_all(text));
}

/// The associations whose numbers may come again with the same key, each with a sentence.
fn weak<'a>(all: &[(&'a SaEntry, Marks)]) -> Vec<(&'a SaEntry, String)> {
    const REVEALED: &str = "two packets with one number and key reveal their text";
    let mut found = Vec::new();
    for (number, (own, marks)) in all.iter().enumerate() {
        if let Some((other, _)) = all[..number].iter().find(|own| own.1.share_numbers(marks)) {
            let (own_text, other) = (text(own), text(other));
            let said = format!(
                "{own_text}: it has the key of the {other}, and {REVEALED}: give each a key of its own"
            );
            found.push((*own, said));
        }
        if own.direction == control::config::SaDirection::Out && needs_fresh_keys(own) {
            let said = format!(
                "{}: its numbers begin with `first_number` after each start, and {REVEALED}: give it a new key, or AES-CBC \
                 with HMAC",
                text(own)
            );
            found.push((*own, said));
        }
    }
    found
}

/// The same of associations in use.
fn weak_in_use<'a>(database: &Database, all: &'a [SaEntry]) -> Vec<(&'a SaEntry, String)> {
    let marks = |own: &SaEntry| Some(database.get(own.spi, own.destination)?.marks());
    let keys: Vec<_> = all.iter().filter_map(|own| Some((own, marks(own)?))).collect();
    weak(&keys)
}

/// The entries that are new or have other keys than before, with their keys. A file that cannot be read any more changes nothing,
/// if its entry stays the same: some are removed once they have been read. `said`: a line for each.
fn to_add(
    database: &Database,
    listed: &[SaEntry],
    entries: &[SaEntry],
    said: &mut String,
) -> Result<Vec<(SaEntry, Key)>, String> {
    let mut added = Vec::new();
    for own in entries {
        let key = match read_key(own) {
            Ok(key) if listed.contains(own) => {
                let known = database.get(own.spi, own.destination);
                if known.is_none_or(|known| known.marks() == key.marks()) {
                    continue;
                }
                key
            }
            Err(error) if listed.contains(own) => {
                tracing::warn!("{error}: the keys stay");
                *said += &format!("{error}: the keys stay\n");
                continue;
            }
            key => key?,
        };
        added.push((own.clone(), key));
    }
    Ok(added)
}

/// A new association as an entry, beside those of `now`. The place of one that has ended is free.
fn with(now: &[SaEntry], database: &Database, new: Keys) -> Result<SaEntry, String> {
    let mut draft = Draft::parse("mode = \"router\"\n[port.a]\nbackend = \"memory\"\n")?;
    draft.list(&["sa"]).insert(0, new);
    let own = match control::config::parse(&draft.text(), &crate::known_stages()) {
        Ok((config, _)) => config.associations.into_iter().next(),
        Err(found) => {
            let mut errors = found.iter().filter(|own| own.severity == Severity::Error);
            let text = errors.next().map(Diagnostic::text);
            return Err(text.unwrap_or_else(|| "the association cannot be read".to_owned()));
        }
    };
    let own = own.ok_or("no association")?;
    let is_same = |other: &SaEntry| (other.spi, other.destination) == (own.spi, own.destination);
    match now.iter().any(is_same) && database.get(own.spi, own.destination).is_some() {
        true => Err(format!("there is an {}", text(&own))),
        false => Ok(own),
    }
}

/// Takes an association out of those that are said to be in use, whether it has ended or not; `false`: it was not there.
fn unlist(
    (listed, added): (&mut Vec<SaEntry>, &mut Vec<(SaEntry, Keys)>),
    (spi, destination): (u32, IpAddr),
) -> bool {
    let (before, stays) =
        (listed.len(), |own: &SaEntry| (own.spi, own.destination) != (spi, destination));
    listed.retain(stays);
    added.retain(|own| stays(&own.0));
    listed.len() < before
}

impl IpsecControl {
    fn publish(&mut self) -> Result<(), Refusal> {
        let view = self.database.view();
        let view = view.map_err(|error| Refusal::new(ErrorKind::BadRequest, error))?;
        self.current.set(view);
        if let Some(places) = &mut self.places {
            places.look(&self.database);
        }
        self.events.look(&self.database, chunk_now_ns());
        Ok(())
    }

    /// Other policies instead of those of the configuration; the ones before stay if these cannot be.
    fn set_policies(&mut self, all: Vec<PolicyEntry>) -> Result<(), Refusal> {
        let before = std::mem::replace(&mut self.policies, all);
        let put = self.put_policies().map_err(|error| Refusal::new(ErrorKind::BadRequest, error));
        put.and_then(|()| self.publish()).inspect_err(|_| {
            self.policies = before;
            let again =
                self.put_policies().map_err(|error| Refusal::new(ErrorKind::Internal, error));
            if again.and_then(|()| self.publish()).is_err() {
                tracing::error!("IPsec: the policies cannot be looked up");
            }
        })
    }

    /// Puts the policies of the configuration and those of Linux into the database.
    fn put_policies(&mut self) -> Result<(), String> {
        add_policies(&mut self.database, &self.policies)?;
        let Some(linux) = &self.linux else { return Ok(()) };
        add_policies_of(linux, self.policies.len(), &mut self.database);
        Ok(())
    }

    fn total(&self, column: usize) -> u64 {
        let of = |own: &Counters| match column {
            0 => own.opened.get(),
            1 => own.opened_bytes.get(),
            2 => own.sealed.get(),
            3 => own.sealed_bytes.get(),
            4 => own.passed.get(),
            5 => own.wanted.get(),
            6 => own.path_mtu.get(),
            _ => own.path_mtu_ignored.get(),
        };
        self.counters.iter().map(|own| of(own)).sum()
    }

    fn value(&self, column: usize) -> u64 {
        self.total(column).saturating_sub(self.cleared[column])
    }

    fn fields(&self) -> Map<String, Value> {
        (0..COLUMNS.len()).map(|at| (COLUMNS[at].0.to_owned(), self.value(at).into())).collect()
    }

    /// Sends what keeps translators between from forgetting peers.
    fn keep_alive(&mut self, env: &mut Environment<'_>) {
        let every_ns = u64::from(env.config.ipsec.keep_alive) * 1_000_000_000;
        if every_ns == 0 {
            return;
        }
        let database = &self.database;
        let own = self.listed.iter().filter_map(|own| database.get(own.spi, own.destination));
        for (source, frame) in self.keep_alives.due(own.map(|own| &**own), every_ns, env.now_ns) {
            let has = |record: &Interface| {
                record.up
                    && record.if_id == 0
                    && addresses(record).iter().any(|own| own.addr() == source)
            };
            // Without its address on a port the packet leaves all the same: the route decides by which.
            let is_up = |record: &Interface| record.up && record.if_id == 0;
            let port = env.records.iter().position(has);
            if let Some(port) = port.or_else(|| env.records.iter().position(is_up)) {
                env.send(port as u16, &frame);
            }
        }
    }

    /// Ends associations that have reached a hard limit, and says which reached one.
    fn expire(&mut self, now_ns: u64) {
        let expiries = self.database.expire(now_ns);
        for own in &expiries {
            let which = if own.is_hard { "hard" } else { "soft" };
            tracing::warn!(
                "IPsec: association {:#x} to {} has reached its {which} lifetime",
                own.spi,
                own.destination
            );
            if let Some(linux) = &self.linux {
                linux.expired(own);
            }
            self.events.expired(own, now_ns);
        }
        if expiries.iter().any(|own| own.is_hard) && self.publish().is_err() {
            tracing::error!("IPsec: the policies cannot be looked up");
        }
    }
}

impl ControlPart for IpsecControl {
    fn stage(&mut self, kind: &str, worker: &WorkerSetup<'_>) -> Option<Box<dyn Stage<Tables>>> {
        while self.counters.len() <= worker.worker {
            self.counters.push(Arc::default());
        }
        let counters = self.counters[worker.worker].clone();
        let reader = Reader::new(self.current.clone());
        match kind {
            super::IN => {
                let mut options: PipelineOptions = worker.shared.get().unwrap_or_default();
                if worker.packet_time {
                    options.seed = self.seed; // the same input gives the same bytes
                }
                let stages = &worker.pipeline.kinds;
                let own = EspIn::new(reader, &options, stages, counters);
                Some(match &self.places {
                    Some(places) => Box::new(own.with_device(places.part())),
                    None => Box::new(own),
                })
            }
            super::OUT => {
                if self.is_live && self.events.lines.is_none() {
                    self.events.lines = worker.shared.get();
                    self.events.look(&self.database, chunk_now_ns());
                }
                let guard: Arc<dyn Guard> = Arc::new(Protection(self.current.clone()));
                worker.shared.put(guard);
                let router: PipelineOptions = worker.shared.get().unwrap_or_default();
                let stages = &worker.pipeline.kinds;
                let own = EspOut::new(reader, &router, stages, counters);
                Some(match &self.places {
                    Some(places) => Box::new(own.with_device(places.part())),
                    None => Box::new(own),
                })
            }
            _ => None,
        }
    }

    fn regions(&self) -> Range<usize> {
        self.places.as_ref().map_or(0..0, |own| own.part().regions())
    }

    fn take_patches(&mut self) -> Option<TablesPatch> {
        self.places.as_mut()?.take_patches()
    }

    fn next_deadline_ns(&self) -> Option<u64> {
        self.is_live.then_some(self.looked_ns + LOOK_NS)
    }

    fn tick(&mut self, env: &mut Environment<'_>) {
        if self.is_live && env.now_ns >= self.looked_ns + LOOK_NS {
            self.looked_ns = env.now_ns;
            if let Some(linux) = &mut self.linux {
                linux.write_counts(&self.database, env.now_ns);
            }
            self.expire(env.now_ns);
            self.keep_alive(env);
            if self.current.take_untold_path() {
                self.database.share_path_mtus(env.now_ns);
            }
            if env.config.ipsec.workers == SaWorkers::Auto {
                let work = |own: &Arc<WorkerCounters>| Work {
                    packets: own.rx_packets.get(),
                    busy_ns: own.busy_ns.get(),
                };
                let workers: Vec<Work> = env.workers.iter().map(work).collect();
                self.loads.look(self.database.associations(), &workers, env.now_ns);
            }
        }
    }

    fn sources(&mut self) -> Vec<Source> {
        self.source.take().into_iter().collect()
    }

    fn event(&mut self, event: Built, env: &mut Environment<'_>) {
        let Ok(event) = event.downcast::<Event>() else { return };
        match (*event, &mut self.linux) {
            (Event::Linux(changes), Some(linux)) => {
                let has_policies = linux.take(changes, &mut self.database, env.now_ns);
                let result = if has_policies { self.put_policies() } else { Ok(()) };
                let published =
                    result.and_then(|()| self.publish().map_err(|refusal| refusal.message));
                if let Err(error) = published {
                    tracing::error!("IPsec: {error}");
                }
            }
            (Event::Wanted(wanted), linux) => {
                if let Some(linux) = linux {
                    linux.ask(&wanted);
                }
                self.events.missing(&wanted, env.now_ns);
            }
            (Event::Moved { spi, destination, address, port }, linux) => {
                tracing::info!(
                    "IPsec: the peer of association {spi:#x} to {destination} has moved to {address}, port {port}"
                );
                self.events.moved((spi, destination), (address, port), env.now_ns);
                if let Some(linux) = linux
                    && let Some(message) = linux.moved(spi, destination, &self.database)
                {
                    linux.announce(message);
                }
                // Fragments from there are looked at, too.
                let _ = self.publish();
            }
            (Event::Path { spi, destination, mtu }, _) => {
                tracing::info!(
                    "IPsec: the path MTU of association {spi:#x} to {destination} is {mtu} bytes, by an ICMP error"
                );
                self.database.share_path_mtu(spi, destination, env.now_ns);
            }
            (Event::Refused(refused), _) => {
                let Refused { why, spi, number, source, destination } = refused;
                let what = match why {
                    Why::UnknownSpi => "has an index that no association has",
                    Why::Replayed => "was received before, or is too old",
                    Why::Forged => "is not genuine",
                };
                tracing::warn!(
                    "IPsec: an ESP packet of {source} to {destination} {what}: SPI {spi:#x}, sequence number {number}"
                );
                self.events.refused(&refused, env.now_ns);
            }
            (Event::Reached, _) => self.expire(env.now_ns),
            (Event::Linux(_), None) => {}
        }
    }

    fn table(&self, call: Call<'_>, env: &Environment<'_>) -> Result<Rows, Refusal> {
        match call.name {
            "sa" => {
                let all = self.database.associations();
                let rows: Vec<_> = all.into_iter().map(|own| SaRow::of(own, env.now_ns)).collect();
                Ok(Rows::of("sa", call.as_text, rows))
            }
            "policies" => {
                let rows: Vec<_> = self.database.policies().iter().map(PolicyRow::of).collect();
                Ok(Rows::of("policies", call.as_text, rows))
            }
            name => Err(Refusal::new(ErrorKind::Internal, format!("no table `{name}`"))),
        }
    }

    fn call(&mut self, mut call: Call<'_>, env: &mut Environment<'_>) -> Result<Outcome, Refusal> {
        match call.name {
            "sa_add" => {
                let new: SaAdd = call.read()?;
                let refused = |error| Refusal::new(ErrorKind::BadRequest, error);
                let own = with(&self.listed, &self.database, new.keys()).map_err(refused)?;
                let keys = new.keys();
                let key = read_key(&own).map_err(refused)?;
                let parameters = parameters(&own);
                if let Some(other) = self.database.shares_numbers(&parameters, &key.marks()) {
                    return Err(refused(format!(
                        "association {other:#x} has this key, or had it, and two packets with one number and key reveal their \
                         text: give each a key of its own"
                    )));
                }
                let added = self.database.add(parameters, key, env.now_ns);
                added.map_err(|error| refused(error.to_string()))?;
                unlist((&mut self.listed, &mut self.added), (own.spi, own.destination));
                self.added.push((own.clone(), keys));
                self.listed.push(own);
            }
            "sa_del" => {
                let SaDel { spi, destination } = call.read()?;
                let gone = self.database.delete(spi, destination);
                let was_listed = unlist((&mut self.listed, &mut self.added), (spi, destination));
                if gone.is_none() && !was_listed {
                    let message = format!("there is no association {spi:#x} to {destination}");
                    return Err(Refusal::new(ErrorKind::NotFound, message));
                }
            }
            "policy_add" => {
                let new: PolicyAdd = call.read()?;
                let at = new.at.map_or(usize::MAX, |at| at.saturating_sub(1));
                let all = policy_list::added(&self.policies, at, new.keys());
                self.set_policies(
                    all.map_err(|error| Refusal::new(ErrorKind::BadRequest, error))?,
                )?;
            }
            "policy_del" => {
                let PolicyDel { number } = call.read()?;
                let mut all = self.policies.clone();
                if !(1..=all.len()).contains(&number) {
                    let message = format!("there is no policy {number} of [[policy]]");
                    return Err(Refusal::new(ErrorKind::NotFound, message));
                }
                all.remove(number - 1);
                self.set_policies(all)?;
            }
            name => {
                return Err(Refusal::new(ErrorKind::Internal, format!("no request `{name}`")));
            }
        }
        self.publish()?;
        Ok(Outcome::Done(String::new()))
    }

    /// Entries that stay the same go on with their numbers, unless their files have other keys.
    fn apply(
        &mut self,
        _: &Config,
        _: Option<Built>,
        env: &mut Environment<'_>,
    ) -> Result<(), String> {
        let associations = env.config.associations.clone();
        let policies = env.config.policies.clone();
        let mut said = String::new();
        let added = to_add(&self.database, &self.listed, &associations, &mut said)?;
        // A try of what `commit` does.
        add_policies(&mut Database::new(), &policies)?;
        self.next = Some(Next { added, associations, policies, said });
        Ok(())
    }

    fn roll_back(&mut self, _: &mut Environment<'_>) {
        self.next = None;
    }

    fn commit(&mut self, _: &Config, _: &Config, env: &mut Environment<'_>) -> String {
        let Some(Next { added, associations, policies, mut said }) = self.next.take() else {
            return String::new();
        };
        let place = |own: &SaEntry| (own.spi, own.destination);
        for own in &self.listed {
            if !associations.iter().any(|new| place(new) == place(own)) {
                self.database.delete(own.spi, own.destination);
            }
        }
        let new: Vec<SaEntry> = added.iter().map(|(own, _)| own.clone()).collect();
        for (own, key) in added {
            if self.listed.contains(&own) {
                said += &format!("{}: new keys\n", text(&own));
            }
            if let Err(error) = self.database.replace(parameters(&own), key, env.now_ns) {
                said += &format!("{}: {error}\n", text(&own));
            }
        }
        self.listed = associations;
        for (_, text) in
            weak_in_use(&self.database, &self.listed).iter().filter(|(own, _)| new.contains(own))
        {
            said += &format!("{text}\n");
        }
        if let Some(linux) = &mut self.linux {
            linux.set_local(local(env.config), &mut self.database, env.now_ns);
        }
        if self.policies != policies {
            self.policies = policies;
            if let Err(error) = self.put_policies() {
                said += &format!("{error}\n");
            }
        }
        self.added.clear();
        if let Err(refusal) = self.publish() {
            said += &format!("{}\n", refusal.message);
        }
        said
    }

    fn save(&self, _: &Environment<'_>) -> Option<Save> {
        let (now, added) = (self.listed.clone(), self.added.clone());
        let policies = self.policies.clone();
        Some(Box::new(move |config, draft| {
            let gone = |at: &usize| !now.contains(&config.associations[*at]);
            let numbers = (0..config.associations.len()).rev();
            let gone: Vec<usize> = numbers.filter(gone).collect();
            let mut count = config.associations.len() - gone.len();
            let mut list = draft.list(&["sa"]);
            gone.into_iter().for_each(|at| list.remove(at));
            for (own, keys) in added {
                if !config.associations.contains(&own) {
                    list.insert(count, keys);
                    count += 1;
                }
            }
            policy_list::save(&policies, &config.policies, draft);
            Vec::new()
        }))
    }

    fn clear(&mut self) {
        self.cleared = std::array::from_fn(|column| self.total(column));
    }

    fn metrics(&self, out: &mut Metrics) {
        for (column, (name, about)) in COLUMNS.iter().enumerate() {
            out.counter(&format!("ipsec_{name}_total"), about).sample(&[], self.value(column));
        }
        let mut all = self.database.associations();
        out.gauge("ipsec_associations", "Security associations.").sample(&[], all.len() as u64);
        // Who has more wants sums.
        all.drain(..all.len().saturating_sub(SERIES_MAX));
        let counts: [Count; 5] = [
            ("ipsec_sa_bytes_total", "Bytes of payload of an association.", |own| own.counts()[0]),
            ("ipsec_sa_packets_total", "Packets of an association.", |own| own.counts()[1]),
            ("ipsec_sa_forged_total", "Packets that were not genuine.", |own| own.counts()[2]),
            ("ipsec_sa_replayed_total", "Packets that the window refused.", |own| own.counts()[3]),
            (
                "ipsec_sa_malformed_total",
                "Packets with a wrong length or padding.",
                Association::malformed,
            ),
        ];
        for (name, about, value) in counts {
            let mut family = out.counter(name, about);
            for own in &all {
                let row = SaRow::of(own, 0);
                let (spi, reqid) = (format!("{:#x}", row.spi), row.reqid.to_string());
                let if_id = row.if_id.unwrap_or(0).to_string();
                let labels = [
                    ("spi", &*spi),
                    ("destination", &row.destination),
                    ("direction", &row.direction),
                    ("reqid", &reqid),
                    ("if_id", &if_id),
                ];
                family.sample(&labels, value(own));
            }
        }
    }

    fn report(&self) -> Vec<Section> {
        let [opened, opened_bytes, sealed, sealed_bytes, passed, wanted] =
            std::array::from_fn(|at| thousands(self.value(at)));
        let text = format!(
            "IPsec: {opened} packets opened ({opened_bytes} bytes), {sealed} sealed ({sealed_bytes} bytes), \
             {passed} passed, {wanted} without an association\n"
        );
        vec![Section::new("ipsec", &self.fields(), text)]
    }
}

#[cfg(test)]
mod tests {
    use crypto::Secret;

    use super::super::settings::suite;
    use super::*;

    fn request(encryption: Option<&str>) -> SaAdd {
        SaAdd {
            direction: "out".to_owned(),
            spi: 0x1000,
            source: "192.0.2.1".parse().unwrap(),
            destination: "198.51.100.1".parse().unwrap(),
            reqid: 7,
            if_id: None,
            key_file: "/etc/shadeline/a.key".into(),
            mode: Some("transport".to_owned()),
            encryption: encryption.map(str::to_owned),
            authentication: None,
            esn: true,
            udp: false,
            window: Some(128),
            first_number: Some(7),
            udp_port: None,
            pad_to: None,
            df: None,
            dscp: None,
            soft_bytes: Some(1),
            hard_bytes: Some(2),
            soft_packets: Some(3),
            hard_packets: Some(4),
            soft_seconds: Some(5),
            hard_seconds: Some(i64::MAX),
            no_ecn: false,
        }
    }

    #[test]
    fn a_reload_reads_files_with_keys_again() {
        use std::os::unix::fs::PermissionsExt;
        let folder = testkit::Scratch::new();
        let put = |bytes: &str, mode: u32| {
            let path = folder.write("key", bytes);
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            path
        };
        let own = SaEntry {
            spi: 0x1000,
            source: "192.0.2.1".parse().unwrap(),
            destination: "198.51.100.1".parse().unwrap(),
            reqid: 7,
            key_file: put(&"5a".repeat(20), 0o600),
            ..SaEntry::default()
        };
        let mut database = Database::new();
        database.add(parameters(&own), read_key(&own).unwrap(), 0).unwrap();
        let listed = [own.clone()];
        let said = std::cell::RefCell::new(String::new());
        let count = |entries: &[SaEntry]| {
            to_add(&database, &listed, entries, &mut said.borrow_mut()).map(|all| all.len())
        };
        assert_eq!(count(&listed), Ok(0));
        put(&"5b".repeat(20), 0o600);
        assert_eq!(count(&listed), Ok(1), "another key");
        put(&"5b".repeat(20), 0o644);
        assert_eq!(count(&listed), Ok(0), "nobody knows whose key that is");
        let text = said.take();
        assert!(text.contains("mode 644") && text.ends_with("the keys stay\n"), "{text}");
        assert!(count(&[SaEntry { reqid: 8, ..own }]).is_err(), "a new entry needs its keys");
    }

    #[test]
    fn a_request_is_an_entry_of_the_file() {
        let keys = request(None).keys();
        assert!(keys.iter().any(|(key, value)| key == "spi" && value.to_string() == "0x1000"));
        let with = |now: &[SaEntry], keys| super::with(now, &Database::new(), keys);
        let own = with(&[], keys).unwrap();
        assert_eq!((own.spi, own.reqid, own.window, own.esn), (0x1000, 7, 128, true));
        assert_eq!(own.mode, control::config::SaMode::Transport);
        assert_eq!((own.first_number, own.hard_packets), (7, Some(4)));
        let tunnel = SaAdd {
            mode: None,
            if_id: Some(9),
            udp: true,
            udp_port: Some(4501),
            pad_to: Some(200),
            df: Some("clear".to_owned()),
            dscp: Some(46),
            no_ecn: true,
            ..request(None)
        };
        let tunnel = with(&[], tunnel.keys()).unwrap();
        assert_eq!((tunnel.pad_to, tunnel.dscp, tunnel.ecn), (200, Some(46), false));
        assert_eq!((tunnel.udp_port, tunnel.if_id), (4501, Some(9)));
        let over = SaAdd { dscp: Some(64), mode: None, ..request(None) };
        assert!(with(&[], over.keys()).unwrap_err().contains("dscp"));
        let unknown = with(&[], request(Some("aes-129-gcm")).keys()).unwrap_err();
        assert!(unknown.contains("aes-129-gcm"), "{unknown}");
        let alone = with(&[], request(Some("aes-128-cbc")).keys()).unwrap_err();
        assert!(alone.contains("encryption without authentication"), "{alone}");
    }

    /// An association that has ended stays in the file. It can be added again, and removed.
    #[test]
    fn the_place_of_an_association_that_has_ended_is_free() {
        let own = with(&[], &Database::new(), request(None).keys()).unwrap();
        let (place, mut database) = ((own.spi, own.destination), Database::new());
        let key =
            Key::new(suite(&own).unwrap(), &Secret::new(vec![1; 20]), &Secret::new(Vec::new()));
        database.add(parameters(&own), key.unwrap(), 0).unwrap();
        let (mut listed, mut added) = (vec![own.clone()], vec![(own, request(None).keys())]);
        let twice = with(&listed, &database, request(None).keys()).unwrap_err();
        assert_eq!(twice, "there is an association 0x1000 to 198.51.100.1");
        database.delete(place.0, place.1);
        with(&listed, &database, request(None).keys()).unwrap();
        assert!(!unlist((&mut listed, &mut added), (place.0 + 1, place.1)));
        assert!(listed.len() == 1 && added.len() == 1);
        assert!(unlist((&mut listed, &mut added), place));
        assert!(listed.is_empty() && added.is_empty());
    }
}
