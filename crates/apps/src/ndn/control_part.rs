//! The named-data forwarder's part of the control plane: faces, and the routes that lead to them.
//!
//! ```text
//!  file, `ctl name` ───▶ Routes ┐
//!  file ───────────────▶ faces  ├─▶ take_patches
//!  links, neighbours ──▶ faces  ┘
//! ```
//!
//! Faces on demand and registered prefixes come from workers' questions live, and from the packets themselves over
//! captures ([`controlplane::ahead`]).
//!
//! A face keeps its number while the program runs, also when the configuration has it no more: those who wait in the
//! table of pending Interests are known by it.

mod registrations;
mod shown;
mod strangers;

use std::collections::HashMap;
use std::net::IpAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use chunk::Packet;
use control::api::ErrorKind;
use control::config::{self, Config, FaceLink, Neighbour as Configured, parse_prefix};
use control::kernel::{Event as KernelEvent, NeighbourState, neighbours};
use control::metrics::Metrics;
use control::netlink::Client;
use controlplane::memory::{self, Need};
use controlplane::{
    Ahead, Built, Call, ControlPart, Environment, Interfaces, Outcome, OverPart, PartId, Prepare,
    Refusal, Rows, Save, Section, Setup, Source as Events, Tables, TablesPatch, WorkerSetup,
    events,
};
use engine::Stage;
use lookup::fib::Interface;
use lookup::names::{NameHasher, NameRouteError};
use packet::MacAddr;
use packet::ndn::NameBuf;
use serde_json::{Map, Value};

use super::commands::{NameAdd, NameDel, NameGet};
use super::name_files::{FileRoutes, over_capacity};
use super::name_lines::Problems;
use super::name_routes::{Routes, Source};
use super::pit::PitLimits;
use super::questions::{Ask, Question};
use super::rows::{NameRow, NdnTotals};
use super::save;
use super::store::StoreLimits;
use super::{
    FACES_MAX, Face, NdnCounters, NdnOptions, NdnPart, NdnPatch, NdnPort, NdnTables, UdpEnds,
};
use crate::neighbours::Shown;
use registrations::Registrations;
use strangers::{Demand, Policy, Strangers};

/// Linux is asked for a neighbour that it does not know this often, and for one that it knows, so that it stays
/// confirmed.
const ASK_UNKNOWN_NS: u64 = 1_000_000_000;
const ASK_KNOWN_NS: u64 = 15_000_000_000;

/// Lines of a routes file that are logged.
const SHOWN: usize = 5;

/// The forwarder as control sees it.
struct NdnControl {
    routes: Routes,
    /// By number.
    faces: Vec<Known>,
    /// By number, with what only faces need of them.
    ports: Vec<(NdnPort, u16)>,
    neighbours: HashMap<(u16, IpAddr), Neighbour>,
    /// Over captures: a neighbour's MAC is made up from its address.
    derives: bool,
    changed: Vec<NdnPatch>,
    interfaces: Interfaces,
    part: PartId<NdnPart>,
    /// By worker.
    options: Vec<NdnOptions>,
    /// What was counted when counters were cleared, and by face.
    base: (NdnTotals, Vec<FaceTotals>),
    /// To ask Linux for neighbours; opened at the first.
    client: Option<Client>,
    /// Before a reload.
    before: Option<Before>,
    /// Routes that the files of the reload changed.
    of_files: usize,
    strangers: Strangers,
    registrations: Registrations,
    /// By port: what the configuration lets neighbours do.
    policies: Vec<Policy>,
    /// Questions of workers.
    asked: Option<SyncSender<Question>>,
    source: Option<Events>,
}

/// Interests and Data that came in by a face, and those that went out.
type FaceTotals = [u64; 4];

/// Faces and ports before a change of many things.
struct Before {
    faces: Vec<Known>,
    ports: Vec<(NdnPort, u16)>,
    policies: Vec<Policy>,
    strangers: Strangers,
    registrations: Registrations,
    changed: usize,
}

/// A face, or one that was.
#[derive(Debug, Clone)]
struct Known {
    name: String,
    configured: Option<config::Face>,
    published: Option<Face>,
    /// Of one that was made for a stranger.
    demand: Option<Demand>,
}

/// What is known of a neighbour on a port.
#[derive(Debug, Clone, Copy, Default)]
struct Neighbour {
    /// By the configuration.
    fixed: Option<[u8; 6]>,
    /// By Linux, in its words.
    seen: Option<([u8; 6], &'static str)>,
    asked_ns: Option<u64>,
}

impl Neighbour {
    fn mac(&self) -> Option<[u8; 6]> {
        self.fixed.or(self.seen.map(|(mac, _)| mac))
    }
}

/// Starts it: faces and routes of the configuration.
pub(super) fn start(
    setup: &Setup<'_>,
    tables: &mut Tables,
) -> Result<Box<dyn ControlPart>, String> {
    let Setup { config, interfaces, is_live, .. } = *setup;
    let mut all = Known::all(&[], config)?;
    let files = read_files(config)?;
    if let Some(place) = over_capacity(config, &files) {
        return Err(place.to_string());
    }
    let mut routes = Routes::new(config.ndn.names);
    let blob = routes.build(statics(&all, config), numbered(&all, config, files));
    let blob = blob.map_err(|error| match error {
        NameRouteError::Table(error) => format!("routes for names: {error} (`names` of [ndn])"),
        error => format!("routes for names: {error}"),
    })?;
    let (asked, source) = is_live.then(events).unzip();
    let mut named = NdnControl {
        routes,
        faces: std::mem::take(&mut all),
        ports: Vec::new(),
        neighbours: HashMap::new(),
        derives: !is_live,
        changed: Vec::new(),
        interfaces: interfaces.clone(),
        part: tables.add::<NdnPart>(NdnTables::new(blob)),
        options: Vec::new(),
        base: <_>::default(),
        client: None,
        before: None,
        of_files: 0,
        strangers: Strangers::of(config),
        registrations: Registrations::default(),
        policies: Policy::all(config, interfaces),
        asked,
        source,
    };
    named.set_neighbours(&[], config);
    for number in interfaces.ports() {
        named.set_interface(number, &setup.record(number));
    }
    Ok(Box::new(named))
}

impl Known {
    /// The faces of a configuration behind those that there were, whose numbers stay.
    fn all(before: &[Known], config: &Config) -> Result<Vec<Known>, String> {
        let mut all = before.to_vec();
        for known in all.iter_mut().filter(|known| known.demand.is_none()) {
            known.configured = config.face(&known.name).cloned();
        }
        for face in &config.faces {
            if number(&all, &face.name).is_none() {
                let configured = Some(face.clone());
                all.push(Known {
                    name: face.name.clone(),
                    configured,
                    published: None,
                    demand: None,
                });
            }
        }
        let count = all.iter().filter(|known| known.demand.is_none()).count();
        if count > FACES_MAX {
            return Err(format!(
                "{count} faces since the start, more than {FACES_MAX}: restart the forwarder"
            ));
        }
        Ok(all)
    }
}

/// A face's number, also of one that is gone.
fn number(faces: &[Known], name: &str) -> Option<u16> {
    faces.iter().position(|face| face.name == name).map(|at| at as u16)
}

/// The routes of `[[name]]`.
fn statics(all: &[Known], config: &Config) -> Vec<(NameBuf, Vec<u16>)> {
    let numbers = |faces: &[String]| faces.iter().filter_map(|face| number(all, face)).collect();
    config.names.iter().map(|route| (route.prefix.clone(), numbers(&route.faces))).collect()
}

/// Memory of a reload for each byte of a file's text: twice the 15 that a start with 100,000 to 400,000 names took, because
/// the present routes are kept to go back to, and a third more.
const BYTES_PER_TEXT: u64 = 40;

/// What the files of `[[names]]` say. Their problems are logged.
fn read_files(config: &Config) -> Result<Vec<FileRoutes>, String> {
    let texts = config.name_files.iter().map(|file| files::input::text_bytes(file)).sum::<u64>();
    let need = Need { bytes: texts * BYTES_PER_TEXT, reserved_bytes: 0 };
    memory::ask_for(need, "the files of `[[names]]`")?;
    let read = |path: &PathBuf| {
        let file = FileRoutes::read(config, path)?;
        log_problems(path, &file.problems);
        tracing::info!("{}: {} routes for names", path.display(), file.routes.len());
        Ok(file)
    };
    config.name_files.iter().map(read).collect()
}

/// Routes of files by the numbers of faces; of two with one prefix the later applies.
fn numbered(all: &[Known], config: &Config, files: Vec<FileRoutes>) -> Vec<(NameBuf, Vec<u16>)> {
    let numbers: Vec<_> = config.faces.iter().map(|face| number(all, &face.name)).collect();
    let way = |faces: &[usize]| faces.iter().filter_map(|face| numbers[*face]).collect();
    let routes = files.into_iter().flat_map(|file| file.routes);
    routes.map(|route| (route.prefix, way(&route.faces))).collect()
}

impl NdnControl {
    /// A port is as `record` says now.
    fn set_interface(&mut self, number: u16, record: &Interface) {
        let at = usize::from(number);
        if self.ports.len() <= at {
            self.ports.resize(at + 1, Default::default());
        }
        let v4 = record.addresses4.iter().map(|(bits, _)| IpAddr::V4((*bits).into()));
        let v6 = record.addresses6.iter().map(|([high, low], _)| {
            IpAddr::V6((u128::from(*high) << 64 | u128::from(*low)).into())
        });
        let port = NdnPort {
            up: record.up,
            mac: record.mac,
            any_mac: record.any_mac,
            twin: record.twin,
            addresses: v4.chain(v6).collect(),
            on_demand: self.policy(number).on_demand,
        };
        if self.ports[at].0 != port {
            self.changed.push(NdnPatch::Port(number, Some(port.clone())));
        }
        self.ports[at] = (port, record.mtu);
        self.refresh(|port| port == number);
        self.dismiss(number);
    }

    fn policy(&self, port: u16) -> Policy {
        self.policies.get(usize::from(port)).copied().unwrap_or_default()
    }

    /// Makes the static neighbours those of the configuration; `before` are those there were.
    fn set_neighbours(&mut self, before: &[Configured], config: &Config) {
        let now = &config.neighbours;
        let gone = before.iter().filter(|old| !now.contains(old)).map(|old| (old, None));
        let all = now.iter().map(|new| (new, Some(new.mac.0)));
        for (neighbour, mac) in gone.chain(all) {
            if let Some(port) = self.interfaces.number(&neighbour.port) {
                self.neighbour_mut(port, neighbour.address).fixed = mac;
                self.neighbour_changed(port, neighbour.address);
            }
        }
    }

    /// Linux knows a neighbour, or knows it no more.
    fn seen(&mut self, port: u16, address: IpAddr, known: Option<([u8; 6], NeighbourState)>) {
        let word = |state| match state {
            NeighbourState::Permanent => Some("permanent"),
            NeighbourState::Reachable => Some("reachable"),
            NeighbourState::Stale => Some("stale"),
            NeighbourState::Delay => Some("delay"),
            NeighbourState::Probe => Some("probe"),
            // Groups need no resolution.
            NeighbourState::NoArp => None,
        };
        let seen = known.and_then(|(mac, state)| Some((mac, word(state)?)));
        self.neighbour_mut(port, address).seen = seen;
        self.neighbour_changed(port, address);
    }

    fn neighbour_mut(&mut self, port: u16, address: IpAddr) -> &mut Neighbour {
        self.neighbours.entry((port, address)).or_default()
    }

    fn neighbour_changed(&mut self, port: u16, address: IpAddr) {
        if self
            .neighbours
            .get(&(port, address))
            .is_some_and(|n| n.mac().is_none() && n.asked_ns.is_none())
        {
            self.neighbours.remove(&(port, address));
        }
        self.refresh(|number| number == port);
    }

    /// Publishes the faces anew that changed, of the ports that are asked for.
    fn refresh(&mut self, which: impl Fn(u16) -> bool) {
        for number in 0..self.faces.len() {
            let known = &self.faces[number];
            let port =
                known.configured.as_ref().and_then(|face| self.interfaces.number(&face.port));
            if port.is_none_or(&which) {
                self.refresh_face(number);
            }
        }
    }

    /// Publishes a face anew if it changed.
    fn refresh_face(&mut self, number: usize) {
        let known = &self.faces[number];
        let port = known.configured.as_ref().and_then(|face| self.interfaces.number(&face.port));
        let face = known.configured.as_ref().zip(port).and_then(|(face, port)| {
            let face = self.face(face, port)?;
            Some(Face { on_demand: known.demand.is_some(), ..face })
        });
        if known.published != face {
            self.changed.push(NdnPatch::Face(number as u16, face.clone()));
            self.faces[number].published = face;
        }
    }

    /// A face as it is published; `None` before its port is known.
    fn face(&self, face: &config::Face, number: u16) -> Option<Face> {
        let (port, mtu) = self.ports.get(usize::from(number))?;
        let (neighbour_mac, udp) = match &face.link {
            FaceLink::Ethernet { mac } => (Some(mac.0), None),
            FaceLink::Udp { local, remote, mac, .. } => {
                let ends = UdpEnds {
                    addresses: [local.ip(), remote.ip()],
                    ports: [local.port(), remote.port()],
                };
                let hop = hop(&face.link)?;
                let known = self.neighbours.get(&(number, hop)).and_then(Neighbour::mac);
                let made_up = self.derives.then(|| MacAddr::for_ip(hop).0);
                (mac.map(|mac| mac.0).or(known).or(made_up), Some(ends))
            }
        };
        Some(Face {
            name: face.name.clone(),
            up: port.up,
            port: number,
            mtu: *mtu,
            mac: port.mac,
            neighbour_mac,
            udp,
            on_demand: false,
        })
    }

    /// Neighbours that Linux is to be asked for now: port and address.
    fn due_questions(&mut self, now_ns: u64) -> Vec<(u16, IpAddr)> {
        let mut asked = Vec::new();
        for known in &self.faces {
            let Some(face) = &known.configured else { continue };
            let Some(number) = self.interfaces.number(&face.port) else { continue };
            let port = self.ports.get(usize::from(number)).map(|(port, _)| port);
            let FaceLink::Udp { mac: None, .. } = &face.link else { continue };
            let Some(hop) = hop(&face.link) else { continue };
            if !port.is_some_and(|port| port.up && port.twin) {
                continue;
            }
            let neighbour = self.neighbours.entry((number, hop)).or_default();
            let pause = if neighbour.seen.is_some() { ASK_KNOWN_NS } else { ASK_UNKNOWN_NS };
            let due = neighbour.asked_ns.is_none_or(|then| now_ns.saturating_sub(then) >= pause);
            if neighbour.fixed.is_none() && due {
                neighbour.asked_ns = Some(now_ns);
                asked.push((number, hop));
            }
        }
        asked
    }

    /// Asks Linux for the neighbours of faces, where it is time.
    fn ask_for_neighbours(&mut self, env: &Environment<'_>) {
        for (interface, address) in self.due_questions(env.now_ns) {
            let Some(Some(twin)) = env.twins.get(usize::from(interface)) else { continue };
            let client = match self.client.take() {
                Some(client) => Ok(client),
                None => Client::route(),
            };
            let asked = client.and_then(|mut client| {
                neighbours::use_neighbour(&mut client, twin.ifindex, address)?;
                Ok(client)
            });
            match asked {
                Ok(client) => self.client = Some(client),
                Err(error) => tracing::debug!("{error}"), // it is asked again
            }
        }
    }

    /// Whether a route was added over the control socket.
    fn has(&self, prefix: &NameBuf) -> bool {
        self.routes.has(prefix, Source::Api)
    }

    /// Numbers of faces.
    ///
    /// # Errors
    /// The first name that no face has.
    fn numbers<'f>(&self, faces: &'f [String]) -> Result<Vec<u16>, &'f str> {
        let number = |name: &'f String| {
            let is_it = |f: &Known| f.name == *name && f.configured.is_some() && f.demand.is_none();
            let there = self.faces.iter().position(is_it);
            there.map(|at| at as u16).ok_or(name.as_str())
        };
        faces.iter().map(number).collect()
    }

    /// The names of all faces.
    fn face_names(&self) -> impl Iterator<Item = &str> {
        let is_own = |face: &&Known| face.configured.is_some() && face.demand.is_none();
        self.faces.iter().filter(is_own).map(|face| face.name.as_str())
    }

    fn add(&mut self, prefix: &str, faces: &[String]) -> Result<(), Refusal> {
        let name = prefix_of(prefix)?;
        let bad = |message| Err(Refusal::new(ErrorKind::BadRequest, message));
        if faces.is_empty() {
            return bad(format!("{name}: expected at least one face"));
        }
        let numbers = self.numbers(faces).map_err(|unknown| {
            let names: Vec<_> = self.face_names().collect();
            let expected = match names.as_slice() {
                [] => "the configuration has none".to_owned(),
                names => format!("expected one of {}", names.join(", ")),
            };
            let message = format!("there is no face `{unknown}`: {expected}");
            Refusal::new(ErrorKind::NotFound, message)
        })?;
        if let Some(at) = (1..numbers.len()).find(|at| numbers[..*at].contains(&numbers[*at])) {
            return bad(format!("face `{}` is listed twice", faces[at]));
        }
        if self.has(&name) {
            let message = format!("{name} exists already: use `ctl name del` first");
            return Err(Refusal::new(ErrorKind::Exists, message));
        }
        let added = self.routes.set(&name, Source::Api, Some(&numbers));
        added.map_err(|error| Refusal::new(ErrorKind::Full, error))
    }

    fn get(&self, text: &str) -> Result<NameRow, Refusal> {
        let bad = |message| Refusal::new(ErrorKind::BadRequest, message);
        let name = NameBuf::from_uri(text.as_bytes())
            .map_err(|error| bad(format!("`{}`: {error}", cut(text))))?;
        if name.name().is_empty() {
            let message = "`/` cannot be the name of an Interest: expected at least one component";
            return Err(bad(message.to_owned()));
        }
        self.name_get(&name)
            .ok_or_else(|| Refusal::new(ErrorKind::NotFound, format!("no route for {}", cut(text))))
    }
}

fn prefix_of(text: &str) -> Result<NameBuf, Refusal> {
    parse_prefix(text)
        .map_err(|error| Refusal::new(ErrorKind::BadRequest, format!("`{}`: {error}", cut(text))))
}

/// The beginning of a text, for a message.
fn cut(text: &str) -> String {
    match text.char_indices().nth(48) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

impl ControlPart for NdnControl {
    fn stage(&mut self, kind: &str, worker: &WorkerSetup<'_>) -> Option<Box<dyn Stage<Tables>>> {
        let ndn = &worker.config.ndn;
        while self.options.len() <= worker.worker {
            let lifetime_max_ms = ndn.lifetime_max.as_millis() as u64;
            self.options.push(NdnOptions {
                hasher: NameHasher::random(),
                pit: PitLimits { lifetime_max_ms, ..PitLimits::of(ndn.pit_entries) },
                store: store_limits(ndn),
                nack: ndn.nack,
                packet_time: worker.packet_time,
                first_region: self.part.regions().start,
                control: self.asked.clone().filter(|_| !worker.packet_time),
                counters: Arc::new(NdnCounters::with_faces(self.strangers.numbers)),
            });
        }
        let stage = super::stage::<NdnTables>(kind, &self.options[worker.worker])?;
        Some(OverPart::boxed(stage, self.part))
    }

    fn sources(&mut self) -> Vec<Events> {
        self.source.take().into_iter().collect()
    }

    fn regions(&self) -> Range<usize> {
        self.part.regions()
    }

    fn take_patches(&mut self) -> Option<TablesPatch> {
        let mut patches = std::mem::take(&mut self.changed);
        patches.append(&mut self.routes.changed);
        (!patches.is_empty()).then(|| self.part.patch(patches))
    }

    fn tick(&mut self, env: &mut Environment<'_>) {
        self.ask_for_neighbours(env);
        self.sample(env.now_ns);
        self.expire(env.now_ns);
    }

    fn event(&mut self, event: Built, env: &mut Environment<'_>) {
        let Ok(question) = event.downcast::<Question>() else { return };
        let Question { worker, number, ask } = *question;
        match ask {
            Ask::Face(port, ends, mac) => {
                self.stranger(port, ends, mac, env.now_ns);
            }
            Ask::Mac(face, mac) => self.moved(face, mac),
            Ask::Command(face, packet) => self.command(face, &packet, env.now_ns),
        }
        self.changed.push(NdnPatch::Settled(worker, number));
    }

    fn kernel(&mut self, event: &KernelEvent, env: &mut Environment<'_>) {
        let (ifindex, ip, known) = match event {
            KernelEvent::NeighbourChanged { ifindex, ip, mac, state } => {
                (ifindex, ip, Some((*mac, *state)))
            }
            KernelEvent::NeighbourRemoved { ifindex, ip } => (ifindex, ip, None),
            _ => return,
        };
        if let Some(interface) = env.interface_of(*ifindex) {
            self.seen(interface, *ip, known);
        }
    }

    fn interface(&mut self, number: u16, env: &mut Environment<'_>) {
        if let Some(record) = env.records.get(usize::from(number)) {
            self.set_interface(number, record);
        }
    }

    /// Neighbours are those of Linux.
    fn mirrors_kernel(&self, _config: &Config) -> bool {
        true
    }

    fn call(&mut self, mut call: Call<'_>, _env: &mut Environment<'_>) -> Result<Outcome, Refusal> {
        match call.name {
            "name_add" => {
                let NameAdd { prefix, faces } = call.read()?;
                self.add(&prefix, &faces)?;
            }
            "name_del" => {
                let NameDel { prefix } = call.read()?;
                let name = prefix_of(&prefix)?;
                let is_done = self.has(&name) && self.routes.set(&name, Source::Api, None).is_ok();
                if !is_done {
                    let message = format!("{name}: no such route was added with `ctl`");
                    return Err(Refusal::new(ErrorKind::NotFound, message));
                }
            }
            "name_get" => {
                let NameGet { name } = call.read()?;
                let row = self.get(&name)?;
                return Ok(Outcome::Rows(Rows::of("names", call.as_text, [row])));
            }
            name => {
                return Err(Refusal::new(ErrorKind::Internal, format!("no request `{name}`")));
            }
        }
        Ok(Outcome::Done(String::new()))
    }

    fn table(&self, mut call: Call<'_>, env: &Environment<'_>) -> Result<Rows, Refusal> {
        Ok(match call.name {
            "faces" => Rows::of("faces", call.as_text, self.face_rows()),
            "names" => Rows::of("names", call.as_text, self.name_rows()),
            _ => call.read::<Shown>()?.rows(call.as_text, self.neighbour_rows(), env)?,
        })
    }

    /// Files of names are read aside.
    fn prepare(&self) -> Option<Prepare> {
        Some(Box::new(|config, _| Ok(Box::new(read_files(config)?) as Built)))
    }

    fn begin(&mut self) {
        self.routes.begin();
        let (faces, ports) = (self.faces.clone(), self.ports.clone());
        self.before = Some(Before {
            faces,
            ports,
            policies: self.policies.clone(),
            strangers: self.strangers.clone(),
            registrations: self.registrations.clone(),
            changed: self.changed.len(),
        });
    }

    fn apply(
        &mut self,
        _old: &Config,
        prepared: Option<Built>,
        env: &mut Environment<'_>,
    ) -> Result<(), String> {
        let config = env.config;
        let files = prepared.and_then(|built| built.downcast::<Vec<FileRoutes>>().ok());
        let files = files.map(|files| *files).unwrap_or_default();
        let full = over_capacity(config, &files);
        self.faces = Known::all(&self.faces, config)?;
        self.interfaces = env.interfaces.clone();
        let files = numbered(&self.faces, config, files);
        self.strangers.idle_ns = strangers::idle_ns(config);
        self.strangers.timer_ns = 0;
        self.policies = Policy::all(config, &self.interfaces);
        for number in 0..self.ports.len() {
            self.set_policy(number as u16);
        }
        self.refresh(|_| true);
        let statics = statics(&self.faces, config);
        let _ = self.routes.sync(Source::Static, statics.clone())?;
        // A route of `ctl` that the file has, too, is the file's from then on.
        for (prefix, faces) in statics {
            if self.routes.says(&prefix, Source::Api) == Some(&faces[..]) {
                self.routes.set(&prefix, Source::Api, None).map_err(|error| error.to_string())?;
            }
        }
        let done = self.routes.sync(Source::File, files);
        self.of_files = done.map_err(|error| full.map_or(error, |place| place.to_string()))?;
        Ok(())
    }

    fn roll_back(&mut self, env: &mut Environment<'_>) {
        let Some(before) = self.before.take() else { return };
        self.interfaces = env.interfaces.clone();
        (self.faces, self.ports) = (before.faces, before.ports);
        (self.policies, self.strangers) = (before.policies, before.strangers);
        self.registrations = before.registrations;
        self.changed.truncate(before.changed);
        if let Err(error) = self.routes.go_back() {
            tracing::error!("failed to restore the previous name routes: {error}");
        }
    }

    fn commit(&mut self, old: &Config, _started: &Config, env: &mut Environment<'_>) -> String {
        self.before = None;
        self.routes.keep();
        self.set_neighbours(&old.neighbours, env.config);
        match std::mem::take(&mut self.of_files) {
            0 => String::new(),
            n => format!("files of [[names]]: {n} routes added, removed or replaced\n"),
        }
    }

    fn save(&self, _env: &Environment<'_>) -> Option<Save> {
        let own = self.routes.all().filter(|(_, source, ..)| *source == Source::Api);
        let mut own: Vec<_> = own
            .map(|(prefix, source, faces, _)| self.name_row(prefix, source, faces, true))
            .collect();
        own.sort_unstable_by(|a, b| a.prefix.cmp(&b.prefix));
        Some(Box::new(move |config, draft| save::names(&own, config, draft)))
    }

    fn clear(&mut self) {
        self.base = (self.since_start(), self.faces_since_start());
    }

    fn runtime(&self) -> (Map<String, Value>, Vec<[String; 2]>) {
        let totals = self.totals();
        let mut fields = Map::new();
        fields.insert("ndn".into(), serde_json::to_value(totals).unwrap_or_default());
        (fields, totals.lines())
    }

    fn metrics(&self, out: &mut Metrics) {
        self.totals().metrics(out);
    }

    fn learns_ahead(&self) -> bool {
        self.derives && self.policies.iter().any(|policy| policy.on_demand || policy.register)
    }

    fn ahead(&mut self, packet: &Packet, is_first: bool, tables: &Tables, passes: bool) -> Ahead {
        let before = self.changed.len() + self.routes.changed.len();
        let begins = Ahead { begins: true, changed: false };
        let is_due = packet.time_ns >= self.strangers.timer_ns;
        if is_due && !is_first {
            return begins;
        }
        if is_due {
            self.expire(packet.time_ns);
        }
        if passes && !self.look_ahead(packet, is_first, tables.part(self.part)) {
            return begins;
        }
        Ahead { begins: false, changed: self.changed.len() + self.routes.changed.len() > before }
    }

    fn report(&self) -> Vec<Section> {
        if !self.derives {
            return Vec::new(); // live, `ctl` and the metrics have it
        }
        let totals = self.since_start();
        let lines = totals.lines().into_iter().map(|[title, text]| format!("{title:<13} {text}\n"));
        vec![Section::new("ndn", &totals, lines.collect())]
    }
}

/// The room of each worker's content store.
fn store_limits(ndn: &config::Ndn) -> StoreLimits {
    StoreLimits { packets: ndn.content_store, bytes: u64::from(ndn.content_store_mib) << 20 }
}

/// Who takes a face's datagrams; `None` where there are none.
fn hop(link: &FaceLink) -> Option<IpAddr> {
    match link {
        FaceLink::Ethernet { .. } => None,
        FaceLink::Udp { remote, gateway, .. } => Some(gateway.unwrap_or(remote.ip())),
    }
}

fn log_problems(path: &Path, problems: &Problems) {
    for (line, problem) in problems.first.iter().take(SHOWN) {
        tracing::warn!("{}: line {line}: {problem}", path.display());
    }
    match problems.count.saturating_sub(SHOWN as u64) {
        0 => {}
        more => tracing::warn!("{}: and {more} more", path.display()),
    }
    if let Some(text) = crate::router::routes::repeated(problems.repeated) {
        tracing::warn!("{}: {text}", path.display());
    }
}
