//! Controllers: their connections, packets for them and from them.
//!
//! ```text
//!   worker ── packet ──▶ ┐                 ┌─▶ Channels ─▶ controllers, ovs-ofctl
//!                        ├─▶ queue ─▶ Link ┤
//!   sockets' threads ──▶ ┘                 └─▶ PACKET_OUT ─▶ tables of its own ─▶ injector ─▶ port
//! ```
//!
//! Everything but the waiting for sockets is on the thread of control. Packets of PACKET_OUT go through a copy of the tables
//! that control has for them, which is as new as the flows; what they send leaves by the injector.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use controlplane::{Environment, Source, events};
use flowtable::{Dropped, Egress, FlowPatch, FlowTables, Pipeline, Sent};
use lookup::versions::Patchable;
use openflow::agent::Settings as AgentSettings;
use openflow::flow::{InReason, PacketIn, PacketOut};
use openflow::serve::{Channels, SocketEvent, Tls, TlsFiles};
use openflow::{Field, Match, PortNo, Version};

use super::settings::Settings;
use super::stage::port_of;
use super::switch::Facade;

/// What the thread of control is told.
#[derive(Debug)]
pub(super) enum Event {
    Socket(SocketEvent),
    Packet(ForController),
}

/// A packet for the controllers; all of it.
#[derive(Debug)]
pub(super) struct ForController {
    packet: PacketIn,
    max_len: u16,
}

impl ForController {
    /// A frame that was sent to the controllers; `None`: to somewhere else.
    pub(super) fn of(frame: &[u8], to: &Sent) -> Option<Self> {
        let told = to.controller?;
        let mut matches = Match::new().with(Field::InPort, to.in_port.0);
        matches.set(Field::Metadata, u128::from(told.metadata), u128::MAX);
        matches.set(Field::TunnelId, u128::from(told.tunnel_id), u128::MAX);
        // What is zero need not be said.
        let matches = matches.fields().iter().filter(|f| f.field == Field::InPort || f.value != 0);
        let packet = PacketIn {
            buffer_id: None,
            total_len: u16::try_from(frame.len()).unwrap_or(u16::MAX),
            reason: told.reason,
            table: told.table,
            cookie: told.cookie,
            matches: matches.copied().collect(),
            data: frame.to_vec(),
        };
        Some(Self { packet, max_len: told.max_len })
    }
}

/// Where a worker puts packets for the controllers.
#[derive(Clone, Debug)]
pub struct ToControl(SyncSender<Event>);

impl ToControl {
    /// Hands a packet over; `false`: the queue is full.
    pub(super) fn send(&self, packet: ForController) -> bool {
        self.0.try_send(Event::Packet(packet)).is_ok()
    }
}

/// The connections of a switch, and what they need.
pub(super) struct Link {
    channels: Channels,
    workers: ToControl,
    source: Option<Source>,
    tables: FlowTables,
    pipeline: Pipeline<Vec<u8>>,
    /// Packets of PACKET_OUT that are to be carried out.
    pub(super) out: Vec<PacketOut>,
    /// When it began, nanoseconds since 1970.
    pub(super) since_ns: u64,
    /// Of FEATURES; 0: not known yet.
    pub(super) datapath_id: u64,
}

/// How connections of an address are protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protection {
    Plain,
    Tls,
}

/// Whether the addresses and the files of TLS can be used.
pub(super) fn check(settings: &Settings) -> Result<(), String> {
    let mut needs_tls = false;
    for text in &settings.listen {
        needs_tls |= listener(text)?.0 == Protection::Tls;
    }
    for text in &settings.controllers {
        needs_tls |= controller(text)?.0 == Protection::Tls;
    }
    if needs_tls { load_tls(settings).map(|_| ()) } else { Ok(()) }
}

/// What TLS needs of the settings.
fn load_tls(settings: &Settings) -> Result<Tls, String> {
    let file = |name: &str, path: &Option<PathBuf>| {
        path.clone().ok_or_else(|| format!("`tls:` needs `{name}` in [stage.openflow]"))
    };
    Tls::load(&TlsFiles {
        private_key: file("private_key", &settings.private_key)?,
        certificate: file("certificate", &settings.certificate)?,
        ca_certificate: file("ca_certificate", &settings.ca_certificate)?,
    })
}

/// `tcp:ADDRESS:PORT`, `tls:ADDRESS:PORT`, and as Open vSwitch has it: `ptcp:PORT[:ADDRESS]`, `pssl:PORT[:ADDRESS]`.
fn listener(text: &str) -> Result<(Protection, SocketAddr), String> {
    let wrong = || format!("`{text}` is not tcp:ADDRESS:PORT or tls:ADDRESS:PORT");
    let (kind, rest) = text.split_once(':').ok_or_else(wrong)?;
    let protection = match kind {
        "tcp" | "ptcp" => Protection::Plain,
        "tls" | "ssl" | "ptls" | "pssl" => Protection::Tls,
        _ => return Err(wrong()),
    };
    if let Ok(address) = rest.parse() {
        return Ok((protection, address));
    }
    let (port, address) = rest.split_once(':').unwrap_or((rest, "0.0.0.0"));
    let address = address.trim_matches(['[', ']']).parse::<IpAddr>();
    match (kind.starts_with('p'), port.parse(), address) {
        (true, Ok(port), Ok(address)) => Ok((protection, SocketAddr::new(address, port))),
        _ => Err(wrong()),
    }
}

/// `tcp:HOST:PORT`, `tls:HOST:PORT`, `ssl:HOST:PORT`.
fn controller(text: &str) -> Result<(Protection, &str), String> {
    let (protection, address) = match text.split_once(':') {
        Some(("tcp", address)) => (Protection::Plain, address),
        Some(("tls" | "ssl", address)) => (Protection::Tls, address),
        _ => return Err(format!("`{text}` is not tcp:HOST:PORT or tls:HOST:PORT")),
    };
    let port = address.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
    match port {
        Some(_) => Ok((protection, address)),
        None => Err(format!("`{text}` has no port, such as 6653")),
    }
}

impl Link {
    /// Listens, and keeps connections; `None`: the settings name none.
    pub(super) fn start(settings: &Settings, tables: &FlowTables) -> Result<Option<Self>, String> {
        if settings.listen.is_empty() && settings.controllers.is_empty() {
            return Ok(None);
        }
        let (sender, source) = events::<Event>();
        let sockets = sender.clone();
        let versions = match settings.protocol() {
            Version::V10 => vec![Version::V10],
            Version::V13 => vec![Version::V10, Version::V13],
        };
        let sink = move |event| sockets.send(Event::Socket(event)).is_ok();
        let agent = AgentSettings {
            versions,
            packet_in_rate: settings.packet_in_rate,
            packet_in_burst: settings.packet_in_rate / 4,
            ..AgentSettings::default()
        };
        let mut channels = Channels::new(agent, Arc::new(sink));
        let mut tls = None;
        let mut tls_of = |protection| match (protection, &tls) {
            (Protection::Plain, _) => Ok(None),
            (Protection::Tls, Some(_)) => Ok::<_, String>(tls.clone()),
            (Protection::Tls, None) => {
                tls = Some(load_tls(settings)?);
                Ok(tls.clone())
            }
        };
        for text in &settings.listen {
            let (protection, address) = listener(text)?;
            let listening = channels.listen_with(address, tls_of(protection)?);
            listening.map_err(|error| format!("{text}: {error}"))?;
        }
        for text in &settings.controllers {
            let (protection, address) = controller(text)?;
            channels.add_controller_with(address, tls_of(protection)?);
        }
        Ok(Some(Self {
            channels,
            workers: ToControl(sender),
            source: Some(source),
            tables: tables.clone(),
            pipeline: Pipeline::new(),
            out: Vec::new(),
            since_ns: 0,
            datapath_id: 0,
        }))
    }

    pub(super) fn workers(&self) -> ToControl {
        self.workers.clone()
    }

    pub(super) fn take_source(&mut self) -> Option<Source> {
        self.source.take()
    }

    pub(super) fn channels(&mut self) -> &mut Channels {
        &mut self.channels
    }

    pub(super) fn deadline_ns(&self) -> Option<u64> {
        let at = self.channels.deadline()?;
        u64::try_from(at.as_nanos()).ok()
    }

    pub(super) fn event(&mut self, event: Event, switch: &mut Facade<'_>, now: Duration) {
        match event {
            Event::Socket(event) => {
                self.channels.event(event, switch, now);
                for problem in self.channels.take_problems() {
                    tracing::warn!("OpenFlow: {problem}");
                }
            }
            Event::Packet(packet) => self.packet_in(&packet, now),
        }
    }

    fn packet_in(&mut self, packet: &ForController, now: Duration) {
        // What no flow took is cut as each controller wants it.
        let max_len = (packet.packet.reason != InReason::NoMatch).then_some(packet.max_len);
        self.channels.agent().packet_in(&packet.packet, max_len, now);
    }

    pub(super) fn apply(&mut self, patches: &[FlowPatch]) {
        patches.iter().for_each(|patch| self.tables.apply(patch));
    }

    /// Carries out what controllers sent.
    pub(super) fn send_out(&mut self, env: &mut Environment<'_>) {
        let now = Duration::from_nanos(env.now_ns);
        for packet in std::mem::take(&mut self.out) {
            let mut sent = Frames::default();
            let frame = (packet.data, packet.in_port, env.now_ns);
            self.pipeline.act(&self.tables, &packet.actions, frame, &mut sent);
            for (port, frame) in sent.ports {
                env.send(port, &frame);
            }
            sent.controllers.iter().for_each(|packet| self.packet_in(packet, now));
        }
    }
}

/// What a packet of PACKET_OUT becomes.
#[derive(Default)]
struct Frames {
    ports: Vec<(u16, Vec<u8>)>,
    controllers: Vec<ForController>,
}

impl Egress for Frames {
    type Frame = Vec<u8>;

    fn copy(&mut self, frame: &Vec<u8>) -> Option<Vec<u8>> {
        Some(frame.clone())
    }

    fn send(&mut self, _: usize, frame: Vec<u8>, to: &Sent) {
        match (to.port, port_of(to.port)) {
            (PortNo::CONTROLLER, _) => self.controllers.extend(ForController::of(&frame, to)),
            (_, Some(port)) => self.ports.push((port, frame)),
            // NORMAL and LOCAL, which this switch does not have.
            (_, None) => {}
        }
    }

    fn done(&mut self, _: usize, _: Option<Vec<u8>>, _: Option<Dropped>) {}

    fn free(&mut self, _: Vec<u8>) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_the_forms_of_ovs() {
        let cases = [
            ("tcp:127.0.0.1:6653", Some((Protection::Plain, "127.0.0.1:6653"))),
            ("ptcp:6653", Some((Protection::Plain, "0.0.0.0:6653"))),
            ("ptcp:6653:127.0.0.1", Some((Protection::Plain, "127.0.0.1:6653"))),
            ("tls:[::1]:6653", Some((Protection::Tls, "[::1]:6653"))),
            ("ptls:127.0.0.1:6653", Some((Protection::Tls, "127.0.0.1:6653"))),
            ("pssl:6653:[::1]", Some((Protection::Tls, "[::1]:6653"))),
            ("ssl:6653:127.0.0.1", None),
            ("tcp:6653", None),
            ("pssl:", None),
            ("6653", None),
            ("udp:127.0.0.1:6653", None),
        ];
        for (text, wanted) in cases {
            let wanted = wanted.map(|(how, address)| (how, address.parse().unwrap()));
            assert_eq!(listener(text).ok(), wanted, "{text}");
        }
        assert_eq!(controller("ssl:of.example:6653"), Ok((Protection::Tls, "of.example:6653")));
        assert_eq!(controller("tls:[::1]:6653"), Ok((Protection::Tls, "[::1]:6653")));
        assert!(controller("pssl:6653").is_err());
        assert!(controller("tls:of.example").is_err());
    }

    #[test]
    fn tls_needs_its_files() {
        let mut settings =
            Settings { listen: vec!["tls:127.0.0.1:6653".into()], ..Settings::default() };
        let error = "`tls:` needs `private_key` in [stage.openflow]";
        assert_eq!(check(&settings), Err(error.to_owned()));
        settings.listen = vec!["tcp:127.0.0.1:6653".into()];
        assert_eq!(check(&settings), Ok(()));
    }
}
