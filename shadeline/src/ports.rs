//! Opening the ports of a live router: back ends, twins, and closing the kernel's door.
//!
//! Everything that is changed in the kernel goes away with the process, however it ends: twins, XDP
//! programs and the table that closes a port are owned by descriptors. Settings that have no owner
//! (offloads, IPv6 on the port) are put back when [`LivePorts`] is dropped.

use std::sync::Arc;
use std::time::{Duration, Instant};

use chunk::Depot;
use control::config::{Backend, Config, Physical, PortKind, XdpMode, ZeroCopy};
use control::kernel::close::Closed;
use control::kernel::links::{self, Ipv6Off};
use control::kernel::offloads::{Carried, OffloadsOff, set_offloads_off};
use control::netlink::Client;
use controlplane::{Interfaces, PortFacts, Twin};
use io::capture::{CaptureRx, CaptureTx, Format};
use io::fault::Fault;
use io::link::{Link, Promiscuous};
use io::tap::Tap;
use io::{RxQueue, TxQueue, af_packet, af_xdp};
use packet::checksum::Checksums;

use crate::failure::Failure;
use crate::twins::{self, Announcer};
use crate::wiring::{PortIo, Queue};

type Queues = Vec<Queue>;

/// The ports of a live router and what was changed for them.
pub(crate) struct LivePorts {
    /// By physical port.
    pub(crate) facts: Vec<PortFacts>,
    /// By interface: the back end as it runs.
    pub(crate) kinds: Vec<String>,
    /// By interface.
    pub(crate) twins: Vec<Option<Twin>>,
    /// By physical port: the name of its network interface, where it has one.
    pub(crate) links: Vec<Option<String>>,
    _closed: Option<Closed>,
    _offloads: Vec<OffloadsOff>,
    _ipv6: Vec<Ipv6Off>,
    _promiscuous: Vec<Promiscuous>,
    _announcer: Option<Announcer>,
}

/// Opens every port and twin of the configuration. `chosen`: the command line's word for all ports.
pub(crate) fn open(
    config: &Config,
    interfaces: &Interfaces,
    depot: &Arc<Depot>,
    workers: usize,
    chosen: Option<Checksums>,
) -> Result<(LivePorts, Vec<PortIo>), Failure> {
    let mut live = LivePorts {
        facts: Vec::new(),
        kinds: Vec::new(),
        twins: Vec::new(),
        links: Vec::new(),
        _closed: None,
        _offloads: Vec::new(),
        _ipv6: Vec::new(),
        _promiscuous: Vec::new(),
        _announcer: None,
    };
    let mut io = Vec::new();
    let mut to_close = Vec::new();
    for number in 0..interfaces.physical() {
        let name = interfaces.name(number as u16);
        let Some(port) = config.port(name) else { continue };
        let PortKind::Physical(physical) = &port.kind else { continue };
        let failed =
            |error: &dyn std::fmt::Display| Failure::other(format!("port {name}: {error}"));
        let on_wire =
            matches!(physical.backend, Backend::Auto | Backend::AfPacket | Backend::AfXdp);
        let mut facts = PortFacts::default();
        if on_wire {
            facts = prepare(physical, &mut live).map_err(|e| failed(&e))?;
        }
        let (queues, kind) = queues(physical, depot, workers, port.mac.map(|m| m.0), port.mtu)
            .map_err(|e| failed(&e))?;
        let is_xdp = kind.starts_with("af_xdp");
        if on_wire {
            let carried = if is_xdp { Carried::Finished } else { Carried::Marked };
            match set_offloads_off(&physical.interface, carried) {
                Ok(off) => live._offloads.push(off),
                Err(error) => tracing::warn!("{}: offloads stay on: {error}", physical.interface),
            }
        }
        if on_wire && !is_xdp {
            to_close.push(physical.interface.as_str());
        }
        if is_xdp
            && (physical.promiscuous == Some(true)
                || config.pipeline_of(name).main().is_promiscuous)
        {
            let all = Link::open(&physical.interface).and_then(|link| link.promiscuous());
            live._promiscuous.push(all.map_err(|e| failed(&e))?);
        }
        live.links.push(on_wire.then(|| physical.interface.clone()));
        live.facts.push(facts);
        tracing::info!("port {name}: {kind}");
        live.kinds.push(kind);
        let queues = queues.into_iter();
        let queues =
            queues.map(|(rx, tx)| (rx.map(|q| with_faults(config, name, q)), tx)).collect();
        let number = number as u16;
        let checksums = self::checksums(config, name, chosen);
        io.push(PortIo { checksums, ..PortIo::new(number, queues) });
    }
    if !to_close.is_empty() {
        let closed = Closed::with_table(&format!("shadeline-{}", std::process::id()), &to_close);
        live._closed = Some(closed.map_err(|e| {
            Failure::other(format!("closing the ports to the kernel (needs CAP_NET_ADMIN): {e}"))
        })?);
    }
    open_twins(config, interfaces, &mut live, &mut io)?;
    Ok((live, io))
}

fn open_twins(
    config: &Config,
    interfaces: &Interfaces,
    live: &mut LivePorts,
    io: &mut Vec<PortIo>,
) -> Result<(), Failure> {
    let mut wanted = Vec::new();
    for number in 0..interfaces.names().len() as u16 {
        let name = interfaces.name(number);
        if usize::from(number) >= interfaces.physical() {
            live.kinds.push(subinterface_kind(config, name));
        }
        let fact = |port| live.facts.get(usize::from(port)).copied().unwrap_or_default();
        let record = controlplane::interfaces::record(config, interfaces, number, fact, true);
        if let Some(twin) = config.port(name).and_then(|port| port.twin.as_deref()) {
            wanted.push((number, twin, record));
        }
    }
    let list: Vec<_> = wanted.iter().map(|(_, twin, record)| (*twin, record)).collect();
    let opened = twins::open(&list).map_err(|(i, error)| {
        let (number, twin, _) = &wanted[i];
        let name = interfaces.name(*number);
        Failure::other(format!("the twin of {name} (`{twin}`): {error}"))
    })?;
    live._announcer = opened.announcer;
    live.twins = vec![None; interfaces.names().len()];
    for ((number, ..), (twin, queue)) in wanted.iter().zip(opened.twins) {
        live.twins[usize::from(*number)] = Some(twin);
        io.push(PortIo { twin: true, ..PortIo::new(*number, vec![queue]) });
    }
    Ok(())
}

/// Makes a network interface fit to be a port, and says what it is.
fn prepare(physical: &Physical, live: &mut LivePorts) -> Result<PortFacts, String> {
    let text = |e: &dyn std::fmt::Display| e.to_string();
    let link = Link::open(&physical.interface).map_err(|e| text(&e))?;
    if !link.is_up().map_err(|e| text(&e))? {
        link.set_up(true).map_err(|e| text(&e))?;
    }
    let facts = PortFacts {
        mac: Some(link.mac().map_err(|e| text(&e))?),
        mtu: Some(link.mtu().map_err(|e| text(&e))?),
    };
    match Ipv6Off::on(&physical.interface) {
        Ok(off) => live._ipv6.push(off),
        Err(error) => tracing::warn!("{}: IPv6 stays on: {error}", physical.interface),
    }
    let mut client = Client::route().map_err(|e| text(&e))?;
    let index = link.index().map_err(|e| text(&e))?;
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
    Ok(facts)
}

fn queues(
    physical: &Physical,
    depot: &Arc<Depot>,
    workers: usize,
    mac: Option<[u8; 6]>,
    mtu: Option<u32>,
) -> Result<(Queues, String), String> {
    let text = |e: &dyn std::fmt::Display| e.to_string();
    match physical.backend {
        Backend::AfPacket => packet_queues(physical, workers),
        Backend::AfXdp => xdp_queues(physical, depot, None),
        // Without a copy it is the quickest there is; with one, AF_PACKET receives faster.
        Backend::Auto => match xdp_queues(physical, depot, Some(af_xdp::Copy::Zero)) {
            Ok(opened) => Ok(opened),
            Err(error) => {
                tracing::debug!("{}: no AF_XDP: {error}", physical.interface);
                packet_queues(physical, workers)
            }
        },
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
) -> Result<(Queues, String), String> {
    if let Some(n) = physical.queues {
        let link = Link::open(&physical.interface).map_err(|e| e.to_string())?;
        if link.rx_queues() as usize != n {
            link.set_queues(n as u32).map_err(|e| e.to_string())?;
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
    // After a crash the kernel takes the queues of the old process back a little later.
    let deadline = Instant::now() + Duration::from_secs(3);
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
