//! What control does for a named-data forwarder: faces, and the routes that lead to them.
//!
//! ```text
//!  file, `ctl name` ───▶ Routes ┐
//!  file ───────────────▶ faces  ├─▶ Named::take_patches ─▶ Plane::publish
//!  links, neighbours ──▶ faces  ┘
//! ```
//!
//! A face keeps its number while the program runs, also when the configuration has it no more: those who wait in the
//! table of pending Interests are known by it.
//!
//! Threads: the steward's.

mod files;
mod routes;

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use apps::ndn::{FACES_MAX, Face, NdnPatch, NdnPort, NdnTables, UdpEnds};
use control::api::{FaceRow, NameRow, NdnTotals, NeighbourRow, RouteSource};
use control::config::{self, Config, FaceLink};
use lookup::fib::Interface;
use lookup::names::NameRouteError;
use packet::MacAddr;
use packet::ndn::{MULTICAST_MAC, NameBuf};

use crate::failure::Failure;
use crate::names;
use crate::wiring::{self, Interfaces};

pub(crate) use files::{FileRoutes, without_room};
use routes::Routes;
pub(crate) use routes::Source;

/// Linux is asked for a neighbour that it does not know this often, and for one that it knows, so that it stays
/// confirmed.
const ASK_UNKNOWN_NS: u64 = 1_000_000_000;
const ASK_KNOWN_NS: u64 = 15_000_000_000;

/// Lines of a routes file that are told.
const SHOWN: usize = 5;

/// The forwarder as control sees it.
pub(crate) struct Named {
    routes: Routes,
    /// By number.
    faces: Vec<Known>,
    /// By number, with what only faces need of them.
    ports: Vec<(NdnPort, u16)>,
    neighbours: HashMap<(u16, IpAddr), Neighbour>,
    /// Over captures: a neighbour's MAC is made up from its address.
    derives: bool,
    pending_max: u64,
    changed: Vec<NdnPatch>,
}

/// Faces and ports before a change of many things.
pub(crate) struct Before {
    faces: Vec<Known>,
    ports: Vec<(NdnPort, u16)>,
    changed: usize,
}

/// A face, or one that was.
#[derive(Debug, Clone)]
struct Known {
    name: String,
    configured: Option<config::Face>,
    published: Option<Face>,
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

impl Named {
    /// The forwarder of a configuration, and the first version of its tables. `interface` gives a port's record;
    /// `live`: there is a Linux to ask for neighbours.
    ///
    /// # Errors
    /// A file cannot be read, there are more prefixes than room, or no memory.
    pub(crate) fn new<'i>(
        config: &Config,
        interfaces: &Interfaces,
        interface: impl Fn(u16) -> Option<&'i Interface>,
        live: bool,
    ) -> Result<(Self, NdnTables), Failure> {
        let mut named = Self {
            routes: Routes::new(config.ndn.names),
            faces: Vec::new(),
            ports: Vec::new(),
            neighbours: HashMap::new(),
            derives: !live,
            pending_max: u64::from(config.ndn.pit_entries) * config.system.workers.max(1) as u64,
            changed: Vec::new(),
        };
        for neighbour in &config.neighbours {
            if let Some(port) = interfaces.number(&neighbour.port) {
                named.neighbour_mut(port, neighbour.address).fixed = Some(neighbour.mac.0);
            }
        }
        named.set_faces(config).map_err(Failure::other)?;
        for number in 0..interfaces.physical() as u16 {
            named.interface(number, interface(number).unwrap_or(&Interface::default()), interfaces);
        }
        let statics = named.statics(config);
        let files = named.files(config)?;
        if let Some(place) = files::without_room(config, &files) {
            return Err(Failure::other(place));
        }
        let files = named.numbered(config, files);
        let blob = named.routes.build(statics, files).map_err(|error| {
            Failure::other(match error {
                NameRouteError::Table(error) => {
                    format!("routes for names: {error} (`names` of [ndn])")
                }
                error => format!("routes for names: {error}"),
            })
        })?;
        Ok((named, NdnTables::new(blob)))
    }

    /// Applies what differs in a configuration with the same ports. On an error part of it may have been applied:
    /// see [`Named::begin`].
    pub(crate) fn apply(&mut self, config: &Config, interfaces: &Interfaces) -> Result<(), String> {
        let files = self.files(config).map_err(|failure| failure.message())?;
        let full = files::without_room(config, &files);
        self.set_faces(config)?;
        let files = self.numbered(config, files);
        self.refresh(interfaces, |_| true);
        let statics = self.statics(config);
        self.routes.sync(Source::Static, statics)?;
        let done = self.routes.sync(Source::File, files);
        done.map_err(|error| full.map_or(error, |place| place.to_string()))
    }

    /// Notes from now on what changes, so that all of it can be taken back.
    pub(crate) fn begin(&mut self) -> Before {
        self.routes.begin();
        let (faces, ports) = (self.faces.clone(), self.ports.clone());
        Before { faces, ports, changed: self.changed.len() }
    }

    /// What changed since [`Named::begin`] stays.
    pub(crate) fn keep(&mut self) {
        self.routes.keep();
    }

    /// Takes everything back since [`Named::begin`]; nothing of it may have been published.
    pub(crate) fn go_back(&mut self, before: Before) {
        (self.faces, self.ports) = (before.faces, before.ports);
        self.changed.truncate(before.changed);
        if let Err(error) = self.routes.go_back() {
            tracing::error!("failed to restore the previous name routes: {error}");
        }
    }

    /// Makes the faces those of the configuration.
    fn set_faces(&mut self, config: &Config) -> Result<(), String> {
        let new = config.faces.iter().filter(|face| self.number(&face.name).is_none()).count();
        if self.faces.len() + new > FACES_MAX {
            return Err(format!(
                "{} faces since the start, more than {FACES_MAX}: restart the forwarder",
                self.faces.len() + new
            ));
        }
        for known in &mut self.faces {
            known.configured = config.face(&known.name).cloned();
        }
        for face in &config.faces {
            if self.number(&face.name).is_none() {
                let configured = Some(face.clone());
                self.faces.push(Known { name: face.name.clone(), configured, published: None });
            }
        }
        Ok(())
    }

    /// A face's number, also of one that is gone.
    fn number(&self, name: &str) -> Option<u16> {
        self.faces.iter().position(|face| face.name == name).map(|at| at as u16)
    }

    fn statics(&self, config: &Config) -> Vec<(NameBuf, Vec<u16>)> {
        let numbers =
            |faces: &[String]| faces.iter().filter_map(|face| self.number(face)).collect();
        config.names.iter().map(|route| (route.prefix.clone(), numbers(&route.faces))).collect()
    }

    /// What the files of `[[names]]` say, told.
    fn files(&self, config: &Config) -> Result<Vec<FileRoutes>, Failure> {
        let read = |path: &PathBuf| {
            let file = FileRoutes::read(config, path)?;
            tell_problems(path, &file.problems);
            tracing::info!("{}: {} routes for names", path.display(), file.routes.len());
            Ok(file)
        };
        config.name_files.iter().map(read).collect()
    }

    /// Routes of files by the numbers of faces; of two with one prefix the later stands.
    fn numbered(&self, config: &Config, files: Vec<FileRoutes>) -> Vec<(NameBuf, Vec<u16>)> {
        let numbers: Vec<_> = config.faces.iter().map(|face| self.number(&face.name)).collect();
        let way = |faces: &[usize]| faces.iter().filter_map(|face| numbers[*face]).collect();
        let routes = files.into_iter().flat_map(|file| file.routes);
        routes.map(|route| (route.prefix, way(&route.faces))).collect()
    }

    /// A port is as `record` says now.
    pub(crate) fn interface(&mut self, number: u16, record: &Interface, interfaces: &Interfaces) {
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
        };
        if self.ports[at].0 != port {
            self.changed.push(NdnPatch::Port(number, Some(port.clone())));
        }
        self.ports[at] = (port, record.mtu);
        self.refresh(interfaces, |port| port == number);
    }

    /// Linux knows a neighbour, or knows it no more.
    pub(crate) fn seen(
        &mut self,
        port: u16,
        address: IpAddr,
        seen: Option<([u8; 6], &'static str)>,
        interfaces: &Interfaces,
    ) {
        self.neighbour_mut(port, address).seen = seen;
        self.neighbour_changed(port, address, interfaces);
    }

    /// The configuration has a static neighbour, or has it no more.
    pub(crate) fn fixed(
        &mut self,
        port: u16,
        address: IpAddr,
        mac: Option<[u8; 6]>,
        interfaces: &Interfaces,
    ) {
        self.neighbour_mut(port, address).fixed = mac;
        self.neighbour_changed(port, address, interfaces);
    }

    fn neighbour_mut(&mut self, port: u16, address: IpAddr) -> &mut Neighbour {
        self.neighbours.entry((port, address)).or_default()
    }

    fn neighbour_changed(&mut self, port: u16, address: IpAddr, interfaces: &Interfaces) {
        if self
            .neighbours
            .get(&(port, address))
            .is_some_and(|n| n.mac().is_none() && n.asked_ns.is_none())
        {
            self.neighbours.remove(&(port, address));
        }
        self.refresh(interfaces, |number| number == port);
    }

    /// Publishes the faces anew that changed, of the ports that are asked for.
    fn refresh(&mut self, interfaces: &Interfaces, which: impl Fn(u16) -> bool) {
        for number in 0..self.faces.len() {
            let known = &self.faces[number];
            let port = known.configured.as_ref().and_then(|face| interfaces.number(&face.port));
            if port.is_some_and(|port| !which(port)) {
                continue;
            }
            let face =
                known.configured.as_ref().zip(port).and_then(|(face, port)| self.face(face, port));
            if known.published != face {
                self.changed.push(NdnPatch::Face(number as u16, face.clone()));
                self.faces[number].published = face;
            }
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
        })
    }

    /// Neighbours that Linux is to be asked for now: port and address.
    pub(crate) fn due_questions(
        &mut self,
        now_ns: u64,
        interfaces: &Interfaces,
    ) -> Vec<(u16, IpAddr)> {
        let mut asked = Vec::new();
        for known in &self.faces {
            let Some(face) = &known.configured else { continue };
            let Some(number) = interfaces.number(&face.port) else { continue };
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

    /// What is to be published.
    pub(crate) fn take_patches(&mut self) -> Vec<NdnPatch> {
        let mut patches = std::mem::take(&mut self.changed);
        patches.append(&mut self.routes.changed);
        patches
    }

    /// Adds a route over the control socket.
    ///
    /// # Errors
    /// The table is full.
    pub(crate) fn add(&mut self, prefix: &NameBuf, faces: &[u16]) -> Result<(), NameRouteError> {
        self.routes.set(prefix, Source::Api, Some(faces))
    }

    /// Takes a route away that was added over the control socket; whether there was one.
    pub(crate) fn remove(&mut self, prefix: &NameBuf) -> bool {
        self.has(prefix) && self.routes.set(prefix, Source::Api, None).is_ok()
    }

    /// Whether a route was added over the control socket.
    pub(crate) fn has(&self, prefix: &NameBuf) -> bool {
        self.routes.has(prefix, Source::Api)
    }

    /// Numbers of faces.
    ///
    /// # Errors
    /// The first name that no face has.
    pub(crate) fn numbers<'f>(&self, faces: &'f [String]) -> Result<Vec<u16>, &'f str> {
        let number = |name: &'f String| {
            let there = self.faces.iter().position(|f| f.name == *name && f.configured.is_some());
            there.map(|at| at as u16).ok_or(name.as_str())
        };
        faces.iter().map(number).collect()
    }

    /// The names of all faces.
    pub(crate) fn face_names(&self) -> impl Iterator<Item = &str> {
        self.faces.iter().filter(|face| face.configured.is_some()).map(|face| face.name.as_str())
    }

    /// All routes by prefix, those in use first.
    pub(crate) fn name_rows(&self) -> Vec<NameRow> {
        let mut all: Vec<_> = self.routes.all().collect();
        all.sort_unstable_by_key(|(prefix, source, ..)| (*prefix, *source));
        all.into_iter()
            .map(|(prefix, source, faces, is_best)| self.name_row(prefix, source, faces, is_best))
            .collect()
    }

    /// The route that Interests for a name take.
    pub(crate) fn name_get(&self, name: &NameBuf) -> Option<NameRow> {
        let (prefix, source, faces) = self.routes.longest(name)?;
        Some(self.name_row(&prefix, source, faces, true))
    }

    fn name_row(&self, prefix: &NameBuf, source: Source, faces: &[u16], active: bool) -> NameRow {
        let name = |number: &u16| self.faces[usize::from(*number)].name.clone();
        let source = match source {
            Source::Api => RouteSource::Api,
            Source::Static => RouteSource::Static,
            Source::File => RouteSource::File,
        };
        NameRow {
            prefix: prefix.to_string(),
            faces: faces.iter().map(name).collect(),
            source,
            active,
        }
    }

    /// All faces in the order of the file's first, without counters; with their numbers.
    pub(crate) fn face_rows(&self, interfaces: &Interfaces) -> Vec<(u16, FaceRow)> {
        let row = |(number, known): (usize, &Known)| {
            let face = known.published.as_ref()?;
            let ends =
                face.udp.map(|ends| [0, 1].map(|i| (ends.addresses[i], ends.ports[i]).into()));
            let is_group = face.neighbour_mac == Some(MULTICAST_MAC.0);
            let row = FaceRow {
                name: face.name.clone(),
                kind: if ends.is_some() {
                    "udp"
                } else if is_group {
                    "group"
                } else {
                    "ethernet"
                }
                .into(),
                port: interfaces.name(face.port).to_owned(),
                ends,
                mac: face.neighbour_mac.map(wiring::mac_text),
                state: match face.neighbour_mac {
                    _ if !face.up => "down",
                    None => "unresolved",
                    Some(_) => "up",
                }
                .into(),
                ..FaceRow::default()
            };
            Some((number as u16, row))
        };
        self.faces.iter().enumerate().filter_map(row).collect()
    }

    /// The neighbours that faces may use.
    pub(crate) fn neighbour_rows(&self, interfaces: &Interfaces) -> Vec<NeighbourRow> {
        let mut all: Vec<_> = self.neighbours.iter().collect();
        all.sort_unstable_by_key(|(key, _)| **key);
        let row = |((port, address), neighbour): (&(u16, IpAddr), &Neighbour)| NeighbourRow {
            address: *address,
            port: interfaces.name(*port).to_owned(),
            mac: neighbour.mac().map(wiring::mac_text),
            state: match (neighbour.fixed, neighbour.seen) {
                (Some(_), _) => "static",
                (_, Some((_, state))) => state,
                _ => "incomplete",
            }
            .to_owned(),
            age_s: None,
        };
        all.into_iter().map(row).collect()
    }

    /// What there is; what the stages count is left at 0.
    pub(crate) fn totals(&self) -> NdnTotals {
        NdnTotals {
            names: self.routes.len() as u64,
            names_max: self.routes.max as u64,
            faces: self.face_names().count() as u64,
            pending_max: self.pending_max,
            ..NdnTotals::default()
        }
    }
}

/// Who takes a face's datagrams; `None` where there are none.
fn hop(link: &FaceLink) -> Option<IpAddr> {
    match link {
        FaceLink::Ethernet { .. } => None,
        FaceLink::Udp { remote, gateway, .. } => Some(gateway.unwrap_or(remote.ip())),
    }
}

fn tell_problems(path: &Path, problems: &names::Problems) {
    for (line, problem) in problems.first.iter().take(SHOWN) {
        tracing::warn!("{}: line {line}: {problem}", path.display());
    }
    match problems.count.saturating_sub(SHOWN as u64) {
        0 => {}
        more => tracing::warn!("{}: and {more} more", path.display()),
    }
    if let Some(text) = crate::lpm::repeats(problems.repeated) {
        tracing::warn!("{}: {text}", path.display());
    }
}
