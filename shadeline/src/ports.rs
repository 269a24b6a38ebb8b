//! Opening the ports of a live router: back ends, twins, and closing the kernel's door.
//!
//! Everything that is changed in the kernel goes away with the process, however it ends: twins, XDP
//! programs and the table that closes a port are owned by descriptors. Settings that have no owner
//! (offloads, IPv6 and queues of the interface) are put back when [`LivePorts`] is dropped; after a program that was killed,
//! by the next one ([`Earlier`]).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chunk::Depot;
use control::config::{Backend, Config, Physical, PortKind, XdpMode, ZeroCopy};
use control::kernel::close::Closed;
use control::kernel::links::{self, Ipv6Off};
use control::kernel::offloads::{Carried, OffloadsOff, set_offloads_off_after};
use control::kernel::twin::Advertisements;
use control::netlink::Client;
use controlplane::{Interfaces, Opened, PortFacts};
use io::capture::{CaptureRx, CaptureTx, Format};
use io::fault::Fault;
use io::link::{Channels, Link, LinkError, Promiscuous};
use io::tap::Tap;
use io::{RxQueue, TxQueue, af_packet, af_xdp};
use packet::checksum::Checksums;

use crate::earlier::{Earlier, Settings};
use crate::failure::Failure;
use crate::twins::{self, Announcer};
use crate::wiring::{PortIo, Queue};

type Queues = Vec<Queue>;

/// What was changed in the kernel for the ports of a live program, by port, until it is closed.
#[derive(Default)]
pub(crate) struct LivePorts {
    ports: BTreeMap<u16, OpenPort>,
    announcers: Vec<Announcer>,
    /// Ports opened since the start, for names of tables.
    serial: u32,
}

/// An open port.
#[derive(Default)]
struct OpenPort {
    facts: PortFacts,
    _closed: Option<Closed>,
    _offloads: Option<OffloadsOff>,
    _ipv6: Option<Ipv6Off>,
    _promiscuous: Option<Promiscuous>,
    _channels: Option<ChannelsBack>,
    /// After all that is put back.
    earlier: Option<Earlier>,
}

/// Puts the number of queues of an interface back when it is dropped, after its sockets are closed.
struct ChannelsBack {
    interface: String,
    index: u32,
    before: Channels,
    set: Channels,
}

impl Drop for ChannelsBack {
    fn drop(&mut self) {
        // Not those of another interface that has its name, nor what somebody else has set since.
        let Ok(link) = Link::open(&self.interface) else { return };
        if link.index().ok() != Some(self.index) || link.channels() != self.set {
            return;
        }
        let set = || link.set_channels(self.before);
        if let Err(error) = when_free(Instant::now() + QUEUES_FREE, set) {
            tracing::warn!("{error}; it had other numbers of queues before: {:?}", self.before);
        }
    }
}

/// Bytes of one tag, and of two.
const TAG_LEN: u32 = 4;
const DOUBLE_TAG_LEN: u32 = 8;

/// How long the kernel may take to take queues back whose sockets are closed, or whose process has died.
const QUEUES_FREE: Duration = Duration::from_secs(3);

/// EBUSY, and EINVAL of the kernel: queues with AF_XDP sockets are not given up (`ethnl_set_channels`).
fn is_for_now(error: &std::io::Error) -> bool {
    let kinds = [std::io::ErrorKind::ResourceBusy, std::io::ErrorKind::InvalidInput];
    kinds.contains(&error.kind()) && error.raw_os_error().is_some()
}

/// Does what the kernel refuses as long as it has not taken back the queues of sockets that are closed.
fn when_free<T>(
    deadline: Instant,
    mut work: impl FnMut() -> Result<T, LinkError>,
) -> Result<T, LinkError> {
    loop {
        match work() {
            Err(error) if is_for_now(&error.source) && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(20));
            }
            done => return done,
        }
    }
}

/// How queues are opened.
pub(crate) struct Opening<'a> {
    /// The configuration.
    pub(crate) config: &'a Config,
    /// The interfaces.
    pub(crate) interfaces: &'a Interfaces,
    /// Where cells come from.
    pub(crate) depot: &'a Arc<Depot>,
    /// Workers that there are.
    pub(crate) workers: usize,
    /// The command line's word on checksums, for all ports.
    pub(crate) checksums: Option<Checksums>,
    /// Waits for queues that the kernel has not taken back yet.
    pub(crate) patient: bool,
}

impl LivePorts {
    /// Opens ports and twins: those of the interfaces `wanted`.
    pub(crate) fn open(
        &mut self,
        opening: &Opening<'_>,
        wanted: &[u16],
    ) -> Result<(Vec<Opened>, Vec<PortIo>), Failure> {
        let Opening { config, interfaces, .. } = *opening;
        let (mut all, mut io, mut ports) = (Vec::new(), Vec::new(), BTreeMap::new());
        for &number in wanted {
            let name = interfaces.name(number);
            let Some(port) = config.port(name) else { continue };
            let own = match &port.kind {
                PortKind::Physical(physical) => {
                    let (open, own, queues) = self
                        .open_port(opening, number, physical)
                        .map_err(|error| Failure::other(format!("port {name}: {error}")))?;
                    tracing::info!("port {name}: {}", own.kind);
                    ports.insert(number, open);
                    io.push(queues);
                    own
                }
                PortKind::Vlan { .. } => Opened {
                    number,
                    facts: PortFacts::default(),
                    kind: subinterface_kind(config, name),
                    link: None,
                    twin: None,
                },
            };
            all.push(own);
        }
        let facts = |port: u16| {
            let known = ports.get(&port).or_else(|| self.ports.get(&port));
            known.map(|port| port.facts).unwrap_or_default()
        };
        let mut twins = Vec::new();
        for (at, own) in all.iter().enumerate() {
            let record =
                controlplane::interfaces::record(config, interfaces, own.number, facts, true);
            let port = config.port(interfaces.name(own.number));
            let Some((port, twin)) = port.and_then(|port| Some((port, port.twin.as_deref()?)))
            else {
                continue;
            };
            let advertisements = match port.accept_ra && config.router.kernel {
                true if port.accept_ra_routes => Advertisements::Routes,
                true => Advertisements::Defaults,
                false => Advertisements::Ignored,
            };
            twins.push((at, twin, record, advertisements));
        }
        let list = twins.iter().map(|(_, twin, record, accept)| (*twin, record, *accept));
        let list: Vec<_> = list.collect();
        let opened = twins::open(&list, config.ipsec.linux).map_err(|(i, error)| {
            let (at, twin, ..) = &twins[i];
            let name = interfaces.name(all[*at].number);
            Failure::other(format!("the twin of {name} (`{twin}`): {error}"))
        })?;
        self.announcers.extend(opened.announcer);
        for ((at, ..), (twin, queue)) in twins.iter().zip(opened.twins) {
            let own = &mut all[*at];
            own.twin = Some(twin);
            io.push(PortIo { twin: true, ..PortIo::new(own.number, vec![queue]) });
        }
        for own in &all {
            let warning =
                controlplane::interfaces::mtu_warning(config, interfaces, own.number, facts);
            warning.iter().for_each(|text| tracing::warn!("{text}"));
        }
        self.ports.append(&mut ports);
        Ok((all, io))
    }

    /// Puts back what was changed for ports; their queues are closed before.
    pub(crate) fn close(&mut self, numbers: &[u16]) {
        numbers.iter().for_each(|number| drop(self.ports.remove(number)));
    }

    fn open_port(
        &mut self,
        opening: &Opening<'_>,
        number: u16,
        physical: &Physical,
    ) -> Result<(OpenPort, Opened, PortIo), String> {
        let Opening { config, interfaces, depot, workers, checksums, patient } = *opening;
        let name = interfaces.name(number);
        let port = config.port(name);
        let on_wire =
            matches!(physical.backend, Backend::Auto | Backend::AfPacket | Backend::AfXdp);
        let mut open = OpenPort::default();
        let patience = if patient { QUEUES_FREE } else { Duration::ZERO };
        if on_wire {
            prepare(physical, &mut open, patience)?;
        }
        let mac = port.and_then(|port| port.mac).map(|mac| mac.0);
        let mtu = port.and_then(|port| port.mtu);
        let own = (mac, mtu);
        let (queues, kind) = queues(physical, depot, workers, own, patience, &mut open._channels)?;
        let is_xdp = kind.starts_with("af_xdp");
        if physical.backend == Backend::Tap {
            open.facts.index = io::link::index_of(&physical.interface);
        }
        if on_wire {
            open.note_channels(&physical.interface);
        }
        if on_wire {
            open.facts.ungranted = if is_xdp { DOUBLE_TAG_LEN - TAG_LEN } else { DOUBLE_TAG_LEN };
            let carried = if is_xdp { Carried::Finished } else { Carried::Marked };
            let mut earlier = open.settings();
            match set_offloads_off_after(&physical.interface, carried, &earlier.offloads) {
                Ok(off) => {
                    earlier.offloads = off.changed().to_vec();
                    open.note(earlier);
                    open._offloads = Some(off);
                }
                Err(error) => tracing::warn!("{}: offloads stay on: {error}", physical.interface),
            }
        }
        if on_wire && !is_xdp {
            self.serial += 1;
            let table = format!("shadeline-{}-{}", std::process::id(), self.serial);
            let closed = Closed::with_table(&table, &[physical.interface.as_str()]);
            open._closed = Some(closed.map_err(|e| {
                format!("closing the port to the kernel (needs CAP_NET_ADMIN): {e}")
            })?);
        }
        if is_xdp
            && (physical.promiscuous == Some(true)
                || config.pipeline_of(name).main().is_promiscuous)
        {
            let all = Link::open(&physical.interface).and_then(|link| link.promiscuous());
            open._promiscuous = Some(all.map_err(|e| e.to_string())?);
        }
        let queues = queues.into_iter();
        let queues =
            queues.map(|(rx, tx)| (rx.map(|q| with_faults(config, name, q)), tx)).collect();
        let checksums = self::checksums(config, name, checksums);
        let own = Opened {
            number,
            facts: open.facts,
            kind,
            link: on_wire.then(|| physical.interface.clone()),
            twin: None,
        };
        Ok((open, own, PortIo { checksums, ..PortIo::new(number, queues) }))
    }
}

impl OpenPort {
    /// What the interface had before.
    fn settings(&self) -> Settings {
        self.earlier.as_ref().map(|earlier| earlier.settings().clone()).unwrap_or_default()
    }

    fn note(&mut self, settings: Settings) {
        self.earlier.iter_mut().for_each(|earlier| earlier.note(settings.clone()));
    }

    /// The numbers of queues from before a program that was killed count, also if they are right for this one.
    fn note_channels(&mut self, interface: &str) {
        let mut settings = self.settings();
        match (settings.channels, &mut self._channels) {
            (None, None) => return,
            (None, Some(own)) => {
                let Channels { rx, tx, combined } = own.before;
                settings.channels = Some([rx, tx, combined]);
            }
            (Some([rx, tx, combined]), own) => {
                let before = Channels { rx, tx, combined };
                let (Ok(link), Some(index)) = (Link::open(interface), self.facts.index) else {
                    return;
                };
                let set = link.channels();
                *own = Some(ChannelsBack { interface: interface.to_owned(), index, before, set });
            }
        }
        self.note(settings);
    }
}

/// Makes a network interface fit to be a port, and says what it is.
fn prepare(physical: &Physical, open: &mut OpenPort, patience: Duration) -> Result<(), String> {
    let text = |e: &dyn std::fmt::Display| e.to_string();
    let interface = &physical.interface;
    let link = Link::open(interface).map_err(|e| text(&e))?;
    let index = link.index().map_err(|e| text(&e))?;
    // Before anything is changed.
    let earlier = Earlier::of(interface, index, patience);
    open.earlier = Some(earlier.map_err(|error| format!("{interface}: {error}"))?);
    if !link.is_up().map_err(|e| text(&e))? {
        link.set_up(true).map_err(|e| text(&e))?;
    }
    open.facts = PortFacts {
        index: Some(index),
        mac: Some(link.mac().map_err(|e| text(&e))?),
        mtu: Some(link.mtu().map_err(|e| text(&e))?),
        ungranted: 0,
    };
    let mut earlier = open.settings();
    match Ipv6Off::on_after(&physical.interface, earlier.disable_ipv6.as_deref()) {
        Ok(off) => {
            earlier.disable_ipv6 = off.before().map(str::to_owned);
            open.note(earlier);
            open._ipv6 = Some(off);
        }
        Err(error) => tracing::warn!("{}: IPv6 stays on: {error}", physical.interface),
    }
    let mut client = Client::route().map_err(|e| text(&e))?;
    let addresses = links::addresses_of(&mut client, index).map_err(|e| text(&e))?;
    let addresses: Vec<_> = addresses.iter().filter(|a| !links::is_automatic(a)).collect();
    if !addresses.is_empty() {
        let list: Vec<_> = addresses.iter().map(ToString::to_string).collect();
        tracing::warn!(
            "{}: the kernel's addresses {} are unreachable while the program uses the interface; \
             list them in `addresses` of the port",
            physical.interface,
            list.join(", ")
        );
    }
    Ok(())
}

fn queues(
    physical: &Physical,
    depot: &Arc<Depot>,
    workers: usize,
    (mac, mtu): (Option<[u8; 6]>, Option<u32>),
    patience: Duration,
    changed: &mut Option<ChannelsBack>,
) -> Result<(Queues, String), String> {
    let text = |e: &dyn std::fmt::Display| e.to_string();
    match physical.backend {
        Backend::AfPacket => packet_queues(physical, workers),
        Backend::AfXdp => xdp_queues(physical, depot, None, patience, changed),
        // Without a copy it is the quickest there is; with one, AF_PACKET receives faster.
        Backend::Auto => {
            let zero = Some(af_xdp::Copy::Zero);
            xdp_queues(physical, depot, zero, patience, changed).or_else(|error| {
                tracing::debug!("{}: no AF_XDP: {error}", physical.interface);
                *changed = None;
                packet_queues(physical, workers)
            })
        }
        Backend::Tap => {
            let name = physical.interface.clone();
            let options = io::tap::Options { name, mac, mtu, is_down: false };
            let tap = Tap::open(&options).map_err(|e| text(&e))?;
            let tx = tap.tx();
            let rx: Box<dyn RxQueue> = Box::new(tap.into_rx());
            Ok((vec![(Some(rx), Some(Box::new(tx) as Box<dyn TxQueue>))], "tap".into()))
        }
        Backend::Pcap => {
            let rx = physical.read.as_ref().map(|path| CaptureRx::open([path])).transpose();
            let rx = rx.map_err(|e| text(&e))?.map(|rx| Box::new(rx) as Box<dyn RxQueue>);
            let tx = physical.write.as_ref().map(|path| CaptureTx::create(path, Format::PcapNg));
            let tx =
                tx.transpose().map_err(|e| text(&e))?.map(|tx| Box::new(tx) as Box<dyn TxQueue>);
            Ok((vec![(rx, tx)], "pcap".into()))
        }
        Backend::Memory => {
            let sink: Box<dyn TxQueue> = Box::new(io::memory::Sink::new());
            Ok((vec![(None, Some(sink))], "memory".into()))
        }
        // `esp_out` takes its packets before they come here, and `esp_in` brings those of the peer.
        Backend::Ipsec => {
            let sink: Box<dyn TxQueue> = Box::new(io::memory::Sink::new());
            let if_id = physical.if_id.unwrap_or_default();
            Ok((vec![(None, Some(sink))], format!("ipsec {if_id}")))
        }
    }
}

fn packet_queues(physical: &Physical, workers: usize) -> Result<(Queues, String), String> {
    // Promiscuous even for one's own frames: a twin may be given another MAC later.
    let options = af_packet::Options::default();
    let n = physical.queues.unwrap_or(workers).clamp(1, workers);
    let opened = af_packet::open(&physical.interface, n, &options).map_err(|e| e.to_string())?;
    let queues = opened.into_iter().map(|(rx, tx)| {
        (Some(Box::new(rx) as Box<dyn RxQueue>), Some(Box::new(tx) as Box<dyn TxQueue>))
    });
    Ok((queues.collect(), "af_packet".into()))
}

fn xdp_queues(
    physical: &Physical,
    depot: &Arc<Depot>,
    copy: Option<af_xdp::Copy>,
    patience: Duration,
    changed: &mut Option<ChannelsBack>,
) -> Result<(Queues, String), String> {
    // After a crash the kernel takes the queues of the old process back a little later, after a reload those of the port as
    // it was before.
    let deadline = Instant::now() + patience;
    if let Some(n) = physical.queues {
        let link = Link::open(&physical.interface).map_err(|e| e.to_string())?;
        if link.rx_queues() as usize != n {
            let before = link.channels();
            when_free(deadline, || link.set_queues(n as u32)).map_err(|e| e.to_string())?;
            *changed = Some(ChannelsBack {
                interface: physical.interface.clone(),
                index: link.index().map_err(|e| e.to_string())?,
                before,
                set: link.channels(),
            });
        }
    }
    let options = af_xdp::Options {
        mode: match physical.xdp {
            XdpMode::Auto => af_xdp::Mode::Auto,
            XdpMode::Native => af_xdp::Mode::Native,
            XdpMode::Skb => af_xdp::Mode::Skb,
        },
        copy: copy.unwrap_or(match physical.zero_copy {
            ZeroCopy::Auto => af_xdp::Copy::Auto,
            ZeroCopy::On => af_xdp::Copy::Zero,
            ZeroCopy::Off => af_xdp::Copy::Kernel,
        }),
        ..af_xdp::Options::default()
    };
    let opened = loop {
        match af_xdp::open(&physical.interface, depot, &options) {
            Err(e)
                if e.source.kind() == std::io::ErrorKind::ResourceBusy
                    && Instant::now() < deadline =>
            {
                std::thread::sleep(Duration::from_millis(20));
            }
            opened => break opened.map_err(|e| format!("{e}{}", xdp_hint(&e.source)))?,
        }
    };
    let kind = format!(
        "af_xdp {} {}",
        if opened.mode == af_xdp::Mode::Native { "native" } else { "skb" },
        if opened.is_zero_copy { "zero-copy" } else { "copy" }
    );
    let queues = opened.queues.into_iter().map(|(rx, tx)| {
        (Some(Box::new(rx) as Box<dyn RxQueue>), Some(Box::new(tx) as Box<dyn TxQueue>))
    });
    Ok((queues.collect(), kind))
}

/// What to do where the kernel refuses XDP to root of a user namespace, who seems to have every capability.
fn xdp_hint(error: &std::io::Error) -> &'static str {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    // That of the machine itself has all users as they are.
    let is_namespace = !map.is_empty() && map.split_whitespace().ne(["0", "0", "4294967295"]);
    match error.kind() {
        std::io::ErrorKind::PermissionDenied if is_namespace => {
            "; in a user namespace these capabilities are not those of the machine: use `backend = \"af_packet\"`"
        }
        _ => "",
    }
}

/// `queue` with the faults that the configuration asks for at this port.
pub(crate) fn with_faults(
    config: &Config,
    port: &str,
    queue: Box<dyn RxQueue>,
) -> Box<dyn RxQueue> {
    match config.port(port).map(|port| &port.kind) {
        Some(PortKind::Physical(Physical { fault: Some(fault), .. })) => faulty(queue, *fault),
        _ => queue,
    }
}

/// What is done about the checksums of a port's packets. `chosen`: the command line's word for all ports.
pub(crate) fn checksums(config: &Config, port: &str, chosen: Option<Checksums>) -> Checksums {
    let of_file = match config.port(port).map(|port| &port.kind) {
        Some(PortKind::Physical(physical)) => physical.checksums,
        _ => Checksums::Verify,
    };
    chosen.unwrap_or(of_file)
}

fn faulty(queue: Box<dyn RxQueue>, fault: control::config::Fault) -> Box<dyn RxQueue> {
    let options = io::fault::Options {
        seed: fault.seed,
        loss: fault.loss,
        duplication: fault.duplicate,
        reordering: fault.reorder,
        corruption: fault.corrupt,
        ..io::fault::Options::default()
    };
    Box::new(Fault::new(queue, options))
}

fn subinterface_kind(config: &Config, name: &str) -> String {
    use control::config::VlanTag;
    match config.port(name).map(|port| &port.kind) {
        Some(PortKind::Vlan { parent, tag: VlanTag::Single(id) }) => {
            format!("vlan {id} on {parent}")
        }
        Some(PortKind::Vlan { parent, tag: VlanTag::Double(outer, inner) }) => {
            format!("vlan {outer}.{inner} on {parent}")
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Error, ErrorKind};

    #[test]
    fn what_the_kernel_refuses_for_now_is_tried_again() {
        let error = |source| LinkError {
            interface: "eth0".to_owned(),
            what: "setting the number of queues",
            needs: None,
            source,
        };
        let (invalid, busy, denied) = (22, 16, 1);
        let run = |mut errors: Vec<Error>, wait: Duration| {
            let (left, mut tries) = (&mut errors, 0);
            let done = when_free(Instant::now() + wait, || {
                tries += 1;
                left.pop().map_or(Ok(()), |source| Err(error(source)))
            });
            (done.is_ok(), tries)
        };
        let refused = || vec![Error::from_raw_os_error(invalid), Error::from_raw_os_error(busy)];
        assert_eq!(run(refused(), QUEUES_FREE), (true, 3));
        assert_eq!(run(refused(), Duration::ZERO), (false, 1));
        for never in [Error::from_raw_os_error(denied), ErrorKind::InvalidInput.into()] {
            assert_eq!(run(vec![never], QUEUES_FREE), (false, 1));
        }
    }
}
