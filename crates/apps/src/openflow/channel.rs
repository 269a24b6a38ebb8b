//! Controllers: their connections, packets for them and from them.
//!
//! ```text
//!   worker ── packet ──▶ ┐                 ┌─▶ Channels ─▶ controllers, ovs-ofctl
//!                        ├─▶ queue ─▶ Link ┤
//!   sockets' threads ──▶ ┘                 └─▶ PACKET_OUT ─▶ tables of its own ─▶ injector ─▶ port
//! ```
//!
//! Everything but the waiting for sockets is on the thread of control. Packets of PACKET_OUT go through a copy of the tables
//! that control has for them, which is as new as the flows; what they send leaves by the injector, or, in front of ports with
//! queues, by the stage.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use controlplane::{Environment, Source, events};
use flowtable::{Dropped, Egress, FlowPatch, FlowTables, Pipeline, Sent};
use lookup::versions::Patchable;
use openflow::agent::{ChannelKind, FailSafe, Forwarding, Settings as AgentSettings};
use openflow::flow::{InReason, PacketIn, PacketOut};
use openflow::serve::{Channels, ControllerState, News, SocketEvent, Tls, TlsFiles};
use openflow::{Field, Match, PortNo, Version};

use super::queues::Shapes;
use super::settings::{DatapathId, FailMode, Settings};
use super::stage::{MARK_NORMAL, MARK_OUT, PortNumbers};
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

/// What became of a packet for the controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offered {
    /// It waits for the thread of control.
    Taken,
    /// It exceeds the rate.
    TooFast,
    /// No controller wants it, or the queue is full.
    Nobody,
}

/// Which packets for the controllers are handed over. All workers share it.
#[derive(Debug, Default)]
struct Gate {
    /// Some controller wants packets.
    is_wanted: AtomicBool,
    /// Nanoseconds from packet to packet; 0: no limit.
    interval_ns: u64,
    /// How far ahead of time packets may come: the burst.
    ahead_ns: u64,
    /// When the next packet is due at this rate (the generic cell rate algorithm, ITU-T I.371).
    due_ns: AtomicU64,
}

impl Gate {
    fn new(rate: u32, burst: u32) -> Self {
        let interval_ns = 1_000_000_000_u64.checked_div(rate.into()).unwrap_or(0);
        let ahead_ns = interval_ns * u64::from(burst.max(1) - 1);
        Self { interval_ns, ahead_ns, ..Self::default() }
    }

    fn takes(&self, now_ns: u64) -> bool {
        let next = |due: u64| {
            let is_early = due > now_ns.saturating_add(self.ahead_ns);
            (!is_early).then(|| due.max(now_ns).saturating_add(self.interval_ns))
        };
        let order = Ordering::Relaxed;
        self.interval_ns == 0 || self.due_ns.fetch_update(order, order, next).is_ok()
    }
}

/// Where a worker puts packets for the controllers.
#[derive(Clone, Debug)]
pub struct ToControl {
    sender: SyncSender<Event>,
    gate: Arc<Gate>,
}

impl ToControl {
    /// Hands a packet over that is made only if it is wanted and within the rate.
    pub(super) fn offer(
        &self,
        now_ns: u64,
        packet: impl FnOnce() -> Option<ForController>,
    ) -> Offered {
        if !self.gate.is_wanted.load(Ordering::Relaxed) {
            return Offered::Nobody;
        }
        if !self.gate.takes(now_ns) {
            return Offered::TooFast;
        }
        match packet().map(|packet| self.sender.try_send(Event::Packet(packet))) {
            Some(Ok(())) => Offered::Taken,
            _ => Offered::Nobody,
        }
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
    ports: PortNumbers,
    /// What happens without a controller; `None`: the settings name none.
    fail: Option<FailSafe>,
    pub(super) is_standalone: bool,
}

/// How connections of an address are protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protection {
    Plain,
    Tls,
}

/// Whether the addresses and the files of TLS can be used. `addresses`: those of other switches of the program, and then its own.
pub(super) fn check(settings: &Settings, addresses: &mut Vec<SocketAddr>) -> Result<(), String> {
    let mut needs_tls = false;
    for text in settings.listen.iter().chain(&settings.snoop) {
        let (protection, address) = listener(text)?;
        needs_tls |= protection == Protection::Tls;
        if addresses.contains(&address) {
            return Err(format!("`{text}`: {address} is in `listen` or `snoop` already"));
        }
        addresses.push(address);
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
        crl: settings.crl.clone(),
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
    let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
    // Brackets are for addresses of IPv6.
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_host = match bare {
        Some(host) => host.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !host.is_empty() && !host.contains([':', '[', ']', '/', ' ']),
    };
    match (is_host, port.parse::<u16>()) {
        (_, Err(_) | Ok(0)) => Err(format!("`{text}` has no port, such as 6653")),
        (false, _) => Err(format!("`{text}` has no host: expected tcp:HOST:PORT or tls:HOST:PORT")),
        (true, Ok(_)) => Ok((protection, address)),
    }
}

impl Link {
    /// Listens, and keeps connections; `None`: the settings name none.
    pub(super) fn start(
        settings: &Settings,
        tables: &FlowTables,
        ports: PortNumbers,
        now: Duration,
    ) -> Result<Option<Self>, String> {
        let addresses = [&settings.listen, &settings.snoop, &settings.controllers];
        if addresses.iter().all(|own| own.is_empty()) {
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
            probe_interval: settings.inactivity_probe,
            // The workers limit it.
            packet_in_rate: 0,
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
        let tools = settings.listen.iter().map(|text| (ChannelKind::Service, text));
        let snoops = settings.snoop.iter().map(|text| (ChannelKind::Snoop, text));
        for (kind, text) in tools.chain(snoops) {
            let (protection, address) = listener(text)?;
            let listening = channels.listen_for(kind, address, tls_of(protection)?);
            listening.map_err(|error| format!("{text}: {error}"))?;
        }
        for text in &settings.controllers {
            let (protection, address) = controller(text)?;
            channels.add_controller_with(address, tls_of(protection)?);
        }
        let mode = match settings.fail_mode {
            FailMode::Secure => openflow::agent::FailMode::Secure,
            FailMode::Standalone => openflow::agent::FailMode::Standalone,
        };
        let has_controllers = !settings.controllers.is_empty();
        let fail = has_controllers.then(|| FailSafe::new(mode, settings.inactivity_probe * 3, now));
        let gate = Arc::new(Gate::new(settings.packet_in_rate, settings.packet_in_rate / 4));
        Ok(Some(Self {
            channels,
            workers: ToControl { sender, gate },
            source: Some(source),
            tables: tables.clone(),
            pipeline: Pipeline::new(),
            out: Vec::new(),
            since_ns: 0,
            datapath_id: settings.datapath_id.map_or(0, DatapathId::get),
            ports,
            fail,
            is_standalone: false,
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
        let fail = self.fail.as_ref().and_then(FailSafe::deadline);
        let at = self.channels.deadline().into_iter().chain(fail).min()?;
        u64::try_from(at.as_nanos()).ok()
    }

    pub(super) fn event(&mut self, event: Event, switch: &mut Facade<'_>, now: Duration) {
        match event {
            Event::Socket(event) => self.channels.event(event, switch, now),
            Event::Packet(packet) => self.packet_in(&packet, now),
        }
    }

    /// What has happened to connections: says so, and whether all packets go to NORMAL now. `true`: that has changed.
    pub(super) fn settle(&mut self, now: Duration) -> bool {
        for news in self.channels.take_news() {
            match news {
                News::Connected(..) => tracing::info!("OpenFlow: {news}"),
                _ => tracing::warn!("OpenFlow: {news}"),
            }
        }
        self.workers.gate.is_wanted.store(self.channels.wants_packets(), Ordering::Relaxed);
        let has_controller = self.channels.has_controller();
        let Some(fail) = &mut self.fail else { return false };
        let is_standalone = fail.update(has_controller, now) == Forwarding::Standalone;
        if is_standalone == self.is_standalone {
            return false;
        }
        self.is_standalone = is_standalone;
        match is_standalone {
            true => {
                tracing::warn!("OpenFlow: no controller can be reached: all packets go to NORMAL")
            }
            false => tracing::info!("OpenFlow: a controller is back: packets go by the flows"),
        }
        true
    }

    /// The controllers of the settings.
    pub(super) fn controllers(&self) -> Vec<ControllerState> {
        self.channels.controllers().collect()
    }

    /// Tools that are connected.
    pub(super) fn tools(&self) -> Vec<ControllerState> {
        self.channels.tools().collect()
    }

    fn packet_in(&mut self, packet: &ForController, now: Duration) {
        // What no flow took is cut as each controller wants it.
        let max_len = (packet.packet.reason != InReason::NoMatch).then_some(packet.max_len);
        self.channels.agent().packet_in(&packet.packet, max_len, now);
    }

    pub(super) fn apply(&mut self, patches: &[FlowPatch]) {
        patches.iter().for_each(|patch| self.tables.apply(patch));
    }

    /// Carries out what controllers sent. By ports with queues packets go through the stage, which has them.
    pub(super) fn send_out(&mut self, shapes: &Shapes, env: &mut Environment<'_>) {
        let now = Duration::from_nanos(env.now_ns);
        for packet in std::mem::take(&mut self.out) {
            let mut sent = Frames { numbers: self.ports, ..Frames::default() };
            let in_port = self.ports.port(packet.in_port);
            let frame = (packet.data, packet.in_port, env.now_ns);
            self.pipeline.act(&self.tables, &packet.actions, frame, &mut sent);
            for (port, queue, frame) in sent.ports {
                match shapes.get(usize::from(port)) {
                    Some(Some(shape)) => {
                        let place = queue.and_then(|id| shape.queue(id)).or_else(|| shape.queue(0));
                        let queue = place.map_or(0, |place| place as u32 + 1);
                        env.receive(port, &frame, MARK_OUT | queue);
                    }
                    _ => env.send(port, &frame),
                }
            }
            for (frame, port) in sent.normal.into_iter().zip(in_port.into_iter().cycle()) {
                env.receive(port, &frame, MARK_NORMAL);
            }
            for packet in &sent.controllers {
                if self.workers.gate.takes(env.now_ns) {
                    self.packet_in(packet, now);
                }
            }
        }
    }
}

/// What a packet of PACKET_OUT becomes.
#[derive(Default)]
struct Frames {
    numbers: PortNumbers,
    /// Port, number of the queue, frame.
    ports: Vec<(u16, Option<u32>, Vec<u8>)>,
    normal: Vec<Vec<u8>>,
    controllers: Vec<ForController>,
}

impl Egress for Frames {
    type Frame = Vec<u8>;

    fn copy(&mut self, frame: &Vec<u8>) -> Option<Vec<u8>> {
        Some(frame.clone())
    }

    fn send(&mut self, _: usize, frame: Vec<u8>, to: &Sent) {
        match (to.port, self.numbers.port(to.port)) {
            (PortNo::CONTROLLER, _) => self.controllers.extend(ForController::of(&frame, to)),
            (_, Some(port)) => self.ports.push((port, to.queue, frame)),
            (PortNo::NORMAL, _) => self.normal.push(frame),
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
        assert_eq!(check(&settings, &mut Vec::new()), Err(error.to_owned()));
        settings.listen = vec!["tcp:127.0.0.1:6653".into()];
        let mut addresses = Vec::new();
        assert_eq!(check(&settings, &mut addresses), Ok(()));
        // An address is there once, also where the program has another switch.
        assert!(check(&settings, &mut addresses).is_err());
        settings.snoop = vec!["ptcp:6653:127.0.0.1".into()];
        let error = check(&settings, &mut Vec::new()).unwrap_err();
        assert!(error.contains("is in `listen` or `snoop` already"), "{error}");
    }

    #[test]
    fn datapaths_have_64_bits() {
        let of = |text: &str| text.parse::<DatapathId>().map(|id| (id.get(), id.to_string()));
        assert_eq!(of("0x1f"), Ok((0x1f, "000000000000001f".to_owned())));
        assert_eq!(of("0000020000000001").map(|(id, _)| id), Ok(0x200_0000_0001));
        for bad in
            ["", "0x", "0x0", "1", "0000000000000000", "0x00000000000000001", "00:00:01", "0x+1"]
        {
            assert!(of(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn controllers_are_hosts_with_ports() {
        for good in ["tcp:192.0.2.1:6653", "tls:of.example:6653", "tcp:[2001:db8::1]:6653"] {
            assert_eq!(controller(good).map(|(_, address)| address), Ok(&good[4..]));
        }
        let bad = [
            "tcp::6653",
            "tls::6653",
            "tcp:a:",
            "tcp:a:0",
            "tcp:a:70000",
            "tcp:2001:db8::1:1",
            "tcp:[a]:1",
        ];
        for bad in bad {
            assert!(controller(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_gate_keeps_rate_and_burst() {
        let (second, start) = (1_000_000_000, 1_700_000_000_000_000_000);
        let gate = Gate::new(100, 25);
        let taken = |now| (0..1000).filter(|_| gate.takes(now)).count();
        assert_eq!(taken(start), 25);
        assert_eq!(taken(start + second / 10), 10);
        assert_eq!(taken(start + second / 10), 0);
        assert_eq!(
            taken(start + 5 * second),
            25,
            "what was not used is no credit beyond the burst"
        );
        let gate = Gate::new(0, 0);
        assert_eq!((0..1000).filter(|_| gate.takes(start)).count(), 1000);
    }

    #[test]
    fn packets_wait_only_for_those_who_want_them() {
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        let to = ToControl { sender, gate: Arc::new(Gate::new(2, 2)) };
        let packet = || {
            let packet = PacketIn {
                buffer_id: None,
                total_len: 0,
                reason: InReason::Action,
                table: 0,
                cookie: 0,
                matches: Match::new(),
                data: Vec::new(),
            };
            Some(ForController { packet, max_len: 0 })
        };
        assert_eq!(to.offer(1, packet), Offered::Nobody, "none is connected");
        to.gate.is_wanted.store(true, Ordering::Relaxed);
        assert_eq!(to.offer(1, packet), Offered::Taken);
        assert_eq!(to.offer(1, packet), Offered::Nobody, "the queue is full");
        assert_eq!(to.offer(1, packet), Offered::TooFast);
        assert_eq!(receiver.try_iter().count(), 1);
    }
}
