//! Every default of the configuration file, in one place.

use std::time::Duration;

use lookup::bridge::{PortMode, StormLimits};

use super::stages::Application;
use super::types::*;
use crate::firewall::{Action, Ending};

/// Where the control socket is unless the file says otherwise; `shadeline ctl` looks here.
pub const SOCKET: &str = "/run/shadeline.sock";

/// `[system]` on a machine with `cores` usable CPUs.
pub(super) fn system(cores: usize) -> System {
    System {
        workers: cores.max(1),
        has_workers: false,
        cpus: Vec::new(),
        cells: 16_384,
        huge_pages: HugePages::Auto,
        log: LogLevel::Info,
        log_format: LogFormat::Text,
        socket: SOCKET.into(),
        metrics: None,
    }
}

/// `[router]`. Rates as RFC 1812 §4.3.2.8 and RFC 4443 §2.4 ask for, timers as RFC 4861 §10.
pub(super) fn router() -> Router {
    Router {
        kernel: true,
        ttl: 64,
        fragment: true,
        icmp_rate: 100,
        icmp_burst: 20,
        arp_queue_packets: 32,
        arp_queue_total_packets: 4096,
        neighbours_max: 16_384,
        neighbour_reachable: Duration::from_secs(30),
        neighbour_retry: Duration::from_secs(1),
        neighbour_attempts: 3,
        table_v4: TableV4::Auto,
        table_v6: TableV6::Auto,
    }
}

/// `[switch]`: IEEE 802.1Q-2018 table 8-6 has the ageing time.
pub(super) fn switch() -> Switch {
    Switch { stations: 1 << 20, ageing: Duration::from_secs(300) }
}

/// `[ndn]`. Pending Interests take some 300 bytes each; a minute is longer than any that NDN's own programs ask for.
pub(super) fn ndn() -> Ndn {
    let lifetime_max = Duration::from_secs(60);
    Ndn { names: 1 << 16, pit_entries: 1 << 16, lifetime_max, nack: true }
}

/// `[firewall]`: what no rule forbids is allowed. Rates as those of the router.
pub(super) fn firewall() -> Firewall {
    let default = Action::of(Ending::Accept);
    Firewall { is_on: false, default, algorithm: "auto".to_owned(), icmp_rate: 100, icmp_burst: 20 }
}

/// A port of a switch: an access port of VLAN 1 (IEEE 802.1Q-2018 table 9-2).
pub(super) fn bridging() -> Bridging {
    let (mode, storm) = (PortMode::Access(1), StormLimits::default());
    Bridging { mode, learning: true, storm }
}

/// `[engine]`. 200 µs is about what PacketShader's batches add at low load (§6.4). A job takes far less than half a
/// second on anything that still works, and while one hangs, packets wait behind it.
pub(super) fn engine() -> Engine {
    Engine {
        backend: EngineBackend::Auto,
        devices: Vec::new(),
        offload: None,
        chunk: 256,
        max_delay: Duration::from_micros(200),
        jobs_in_flight: 4,
        device_timeout: Duration::from_millis(500),
        sim: SimCost { launch: Duration::from_micros(20), packet: Duration::from_nanos(10) },
    }
}

/// A physical port; `interface` is the port's name.
pub(super) fn physical(interface: &str) -> Physical {
    Physical {
        interface: interface.to_owned(),
        backend: Backend::Auto,
        xdp: XdpMode::Auto,
        zero_copy: ZeroCopy::Auto,
        queues: None,
        promiscuous: false,
        read: None,
        write: None,
        fault: None,
    }
}

/// No faults.
pub(super) fn fault() -> Fault {
    Fault { loss: 0.0, duplicate: 0.0, reorder: 0.0, corrupt: 0.0, seed: 1 }
}

/// The twin of a port is called so unless the file names it.
pub(super) fn twin(port: &str) -> String {
    format!("sl-{port}")
}

/// Whether a port with this back end has a twin unless the file says otherwise: where there is a
/// kernel interface to stand in for. A switch's and a wire's have none: their frames are not for this machine.
pub(super) fn has_twin(application: &Application, backend: Backend) -> bool {
    application.has_host && matches!(backend, Backend::Auto | Backend::AfPacket | Backend::AfXdp)
}
