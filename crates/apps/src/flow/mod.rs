//! Flows: connections and their byte streams, followed by a stage; and a monitor, which does nothing else.
//!
//! ```text
//!  decode ─▶ flow ─▶ … ─▶ rewrite            a router, switch or wire with [flow]
//!            flow ─▶ monitor                 mode = "monitor": receives, forwards nothing
//!             │
//!             └▶ Tracker (crate `stream`) ─▶ followers: events, `shadeline streams`
//! ```
//!
//! - [`stage`] is the stage; [`decode`] is one before it that finds out headers and TCP segments, on a device if there is one,
//!   where the configuration asks for it. [`monitor`] ends the packets of a monitor.
//! - [`reassembly`] is the order of the segments of a job, as kernels and as their twin; [`connections`] is a table of connections that
//!   stays on a device from job to job.
//! - [`search`] lets that stage search packets for literals, of which followers say which.
//! - [`follow`] is who hears of flows: what the configuration asks for (events), and what the program attaches. [`calls`] is what
//!   followers leave for stages behind this one.
//! - [`outputs`] is where the configuration sends flows: [`events`], with `anomalies`; `export`, to a collector and into a
//!   table.
//! - [`order`] puts what several workers say of a capture into one order.
//!
//! The stage sees packets before the stages behind it decide about them, changes none, and settles none.
//!
//! | | |
//! | --- | --- |
//! | reads | frames, of rows that no stage before it has settled |
//! | writes | `flow_state`, `flow_slot` ([`columns`]) |
//! | spread | by hosts: both directions of a flow, and its fragments, meet at one worker; with `tunnels` by the hosts inside |
//!
//! With `tunnels` of `[flow]`, a packet in a tunnel is the packet that is inside: [`packet::tunnel`] decodes it by the same
//! pass. Where a stage behind this one asks what it found (`firewall`), or spreads packets by a hash of its own (`nat`),
//! tunnels stay flows of their own: rules, translation and states are of the packets that are forwarded.
//!
//! # Deliberately absent
//! - The decisions of the flow table, and buffers of segments, on a device: [`decode`] says where the border is. What crosses it is the
//!   same for a packet in whatever job, or a hint; flows and streams depend on what the worker decides about the packets before
//!   (fragments, helpers, a firewall's verdict, memory that is full), and a device would know that a job too late. Which connection a
//!   packet belongs to, and the order of the segments of one job, need none of that: [`connections`] and [`reassembly`] have their
//!   kernels, of which stages launch those of the table and those that find directions.
//! - What datagrams of tunnels carry that came in fragments: the flow inside may be another worker's. They are counted.
//!
//! Threads: one instance per worker. Control reads a worker's flows under its lock, a piece at a time.

pub(crate) mod anomalies;
pub mod by_worker;
pub mod calls;
pub mod columns;
pub mod commands;
pub mod connections;
mod control_part;
pub mod decode;
pub mod events;
mod export;
pub mod follow;
mod held;
pub mod kernels;
pub mod monitor;
pub mod order;
pub mod outputs;
pub mod reasons;
pub mod reassembly;
pub mod rows;
pub mod search;
pub mod stage;
mod timestamps;

use control::config::{
    Application, Config, EngineBackend, EventType, FRAMES, IdsAction, IdsOnLimit, Overlap,
    Pipeline, RAW, Settings, StageKind,
};
use controlplane::{Descriptor, Findings, Interfaces};
use stream::tracker::{IdleTimeouts, Options};
use stream::{defrag, helper, tcp};

pub use columns::{FlowColumns, FlowView};
pub use decode::FlowDecode;
pub use follow::{Attached, Follower, Listener};
pub use search::FlowSearch;
pub use stage::Flow;

/// The stage's name.
pub const STAGE: &str = "flow";

/// The name of the tracker's stage where [`FlowDecode`] has the other one.
pub const TRACKER: &str = "flow.2";

/// What the stage declares.
pub static DESCRIPTOR: Descriptor = Descriptor {
    application: &APPLICATION,
    stages: STAGES,
    kernels: kernels::FILES,
    reasons: &[reasons::HELD],
    variants: &[
        |config| config.flow.device = true,
        |config| (config.flow.device, config.flow.device_connections) = (true, 4096),
    ],
    tables: commands::TABLES,
    absent: "this instance follows no flows: add [flow] to the configuration and restart",
    start: control_part::start,
    check,
    ..Descriptor::NONE
};

/// Whether a stage in front of the tracker decodes packets, and perhaps searches them.
fn is_decoded(config: &Config) -> bool {
    config.flow.device || config.ids.is_on && config.ids.device
}

/// Whether the stage looks into tunnels in a pipeline of these stages.
fn looks_into_tunnels(kinds: &[String]) -> bool {
    let needs_outer = |kind: &String| kind == crate::firewall::STAGE || kind == crate::nat::STAGE;
    !kinds.iter().any(needs_outer)
}

/// Whether fragments are held back in a pipeline of these stages until their datagram is whole: a stage behind this one inspects
/// datagrams, and may drop them.
pub(crate) fn holds_fragments(config: &Config, kinds: &[String]) -> bool {
    let behind = || kinds.iter().skip_while(|kind| *kind != STAGE);
    let has = |name: &str| behind().any(|kind| kind == name);
    if has(crate::ids::STAGE) && config.ids.action == IdsAction::Inline {
        return true;
    }
    let drops_by_label = has(crate::l7::STAGE) && has(crate::firewall::STAGE);
    !has(monitor::STAGE) && (drops_by_label || has(crate::modules::STAGE))
}

/// Whether packets that rules of a firewall drop are events: `[flow]` asks for them, and a follower writes them.
fn refused_are_events(config: &Config, followers: &[Box<dyn Follower>]) -> bool {
    config.flow.event_types.contains(&EventType::Drop)
        && followers.iter().any(|follower| follower.asks_for_refused())
}

/// `check`: helpers that nobody asks, events that no packet has, tunnels that are not looked into, a device that is none.
fn check(config: &Config, _: &Interfaces, findings: &mut Findings) {
    let has_device = config.engine.may_use(|backend| backend != EngineBackend::Cpu);
    if config.flow.device && !has_device {
        findings.warn_of_all(
            "`device` of [flow] only costs time with this back end: choose auto, opencl or cuda"
                .to_owned(),
        );
    }
    if config.flow.device_connections > 0 && !is_decoded(config) {
        findings.warn_of_all(
            "`device_connections` of [flow] has no effect without `device`".to_owned(),
        );
    }
    let has_firewall = |pipeline: &Pipeline| {
        let behind = pipeline.kinds.iter().skip_while(|kind| *kind != STAGE);
        behind.into_iter().any(|kind| kind == crate::firewall::STAGE)
    };
    if !config.flow.ftp_ports.is_empty() && !config.in_use().any(has_firewall) {
        findings.warn_of_all(
            "`ftp_ports` of [flow] has no effect: no pipeline has a firewall after the stage `flow`".to_owned(),
        );
    }
    if config.flow.event_types.contains(&EventType::Drop) && !config.in_use().any(has_firewall) {
        findings.warn_of_all(
            "`drop` in `event_types` of [flow] has no effect: no pipeline has a firewall after the stage `flow`".to_owned(),
        );
    }
    let looks = |pipeline: &Pipeline| {
        pipeline.kinds.iter().any(|kind| kind == STAGE) && looks_into_tunnels(&pipeline.kinds)
    };
    if !config.flow.tunnels.is_empty() && !config.in_use().any(looks) {
        findings.warn_of_all(
            "`tunnels` of [flow] has no effect: with a firewall or address translation, a tunnel is one flow".to_owned(),
        );
    }
    check_of_halves(config, findings);
}

/// Why both ports of a wire need one pipeline.
const HALVES: &str = "each pipeline follows flows by itself, so it would see one direction of a connection: use one pipeline for both \
                      ports, and contexts to choose stages by port";

/// Each pipeline has flows of its own, so both directions of a connection have to come to the same one.
///
/// # Errors
/// They cannot: the ports of a wire have different ones that follow flows.
fn whole_connections(config: &Config) -> Result<(), String> {
    let follows = |pipeline: &Pipeline| pipeline.kinds.iter().any(|kind| kind == STAGE);
    let ports: Vec<_> = config.physical_ports().map(|(port, _)| port).collect();
    for pair in ports.chunks(2) {
        let [one, two] = pair else { continue };
        let [a, b] = [one, two].map(|port| config.pipeline_of(&port.name));
        if a.main().in_pairs && a.name != b.name && follows(a) && follows(b) {
            return Err(format!(
                "ports `{}` and `{}` are a wire with the pipelines `{}` and `{}`: {HALVES}",
                one.name, two.name, a.name, b.name
            ));
        }
    }
    Ok(())
}

/// Where they might.
fn check_of_halves(config: &Config, findings: &mut Findings) {
    if let Err(error) = whole_connections(config) {
        return findings.error_of_all(error);
    }
    let follows = |own: &&Pipeline| own.kinds.iter().any(|kind| kind == STAGE);
    let mut others = config.in_use().filter(|own| !own.main().in_pairs).filter(follows);
    if let (Some(one), Some(two)) = (others.next(), others.next()) {
        findings.warn_of_all(format!(
            "between ports of the pipelines `{}` and `{}`: {HALVES}",
            one.name, two.name
        ));
    }
}

/// What it has in the configuration.
pub static APPLICATION: Application = Application {
    name: "flow",
    title: "flow tracking",
    sections: &["flow"],
    joins: Some(STAGE),
    // Modules see the flows and streams that it follows; labels are those of flows, and rules look into streams.
    joins_for: &["module", "l7", "ids"],
    joins_when: Some(|config, known| {
        config.l7.is_on
            || config.ids.is_on
            || control::config::modules_use_flows(&config.modules, known)
    }),
    parts: Some(|config| if is_decoded(config) { 2 } else { 1 }),
    ..Application::NONE
};

/// Its stages.
pub const STAGES: &[StageKind] = &[StageKind {
    name: STAGE,
    about: "Follows flows: TCP connections with their byte streams, UDP, ICMP; puts fragments together.",
    application: &APPLICATION,
    needs: &[FRAMES],
    provides: &["flow_state"],
    is_first: false,
    is_last: false,
    places: &[],
    leads_to: &[],
    settings: Settings::None,
}];

/// What a monitor declares.
pub static MONITOR: Descriptor = Descriptor {
    application: &MONITOR_APPLICATION,
    stages: MONITOR_STAGES,
    pipeline: &[STAGE, monitor::STAGE],
    reasons: &[reasons::BLOCK],
    absent: "this instance is not a monitor",
    start: monitor::start,
    ..Descriptor::NONE
};

/// What it has in the configuration.
pub static MONITOR_APPLICATION: Application = Application {
    name: monitor::STAGE,
    title: "a monitor",
    is_promiscuous: true,
    ..Application::NONE
};

/// Its stage.
pub const MONITOR_STAGES: &[StageKind] = &[StageKind {
    name: monitor::STAGE,
    about: "Ends every packet: a monitor forwards nothing.",
    application: &MONITOR_APPLICATION,
    needs: &[RAW],
    provides: &[],
    is_first: false,
    is_last: true,
    places: &[],
    leads_to: &[],
    settings: Settings::None,
}];

/// How a system resolves overlaps of TCP segments and of fragments of IPv4 (Novak, Target-Based Fragmentation Reassembly, 2005,
/// for fragments). Those of IPv6 never overlap (RFC 5722).
fn policies(overlap: Overlap) -> (tcp::Policy, defrag::Policy) {
    match overlap {
        Overlap::Bsd => (tcp::Policy::Bsd, defrag::Policy::Bsd),
        Overlap::First => (tcp::Policy::First, defrag::Policy::First),
        Overlap::Last => (tcp::Policy::Last, defrag::Policy::Last),
        Overlap::Linux => (tcp::Policy::Linux, defrag::Policy::Linux),
        Overlap::OldLinux => (tcp::Policy::OldLinux, defrag::Policy::Linux),
        Overlap::Windows => (tcp::Policy::Windows, defrag::Policy::Windows),
        Overlap::Windows2003 => (tcp::Policy::Windows2003, defrag::Policy::Windows),
        Overlap::Vista => (tcp::Policy::Vista, defrag::Policy::Windows),
        Overlap::Solaris => (tcp::Policy::Solaris, defrag::Policy::Solaris),
        Overlap::Hpux10 => (tcp::Policy::Hpux10, defrag::Policy::Bsd),
        Overlap::Hpux11 => (tcp::Policy::Hpux11, defrag::Policy::First),
        Overlap::Irix => (tcp::Policy::Irix, defrag::Policy::Bsd),
        Overlap::Macos => (tcp::Policy::Macos, defrag::Policy::First),
    }
}

/// Which segments are not kept when memory for them is short: new ones, where packets that nothing inspects are dropped.
fn full(config: &Config) -> tcp::Full {
    let ids = &config.ids;
    match ids.is_on && ids.action == IdsAction::Inline && ids.on_limit == IdsOnLimit::Drop {
        true => tcp::Full::RefuseNew,
        false => tcp::Full::KeepNearest,
    }
}

/// The bounds and policies that a configuration has. `seed` is drawn at random for live traffic; over captures it is
/// always the same.
fn options(config: &Config, seed: u64) -> Options {
    let own = &config.flow;
    let ns = |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let depth = if own.depth == 0 { u64::MAX } else { own.depth };
    let (policy, policy_v4) = policies(own.overlap);
    let mut fragments = defrag::Config { policy_v4, ..defrag::Config::default() };
    if let Some(timeout) = own.frag {
        (fragments.timeout_v4_ns, fragments.timeout_v6_ns) = (ns(timeout), ns(timeout));
    }
    Options {
        flows: own.flows,
        half_open: own.half_open,
        timeouts: IdleTimeouts {
            tcp_syn_sent: ns(own.tcp_syn_sent),
            tcp_syn_recv: ns(own.tcp_syn_recv),
            tcp_established: ns(own.tcp_established),
            tcp_fin_wait: ns(own.tcp_fin_wait),
            tcp_close_wait: ns(own.tcp_close_wait),
            tcp_last_ack: ns(own.tcp_last_ack),
            tcp_time_wait: ns(own.tcp_time_wait),
            tcp_close: ns(own.tcp_close),
            tcp_unacknowledged: ns(own.tcp_unacknowledged),
            udp: ns(own.udp),
            udp_stream: ns(own.udp_stream),
            icmp: ns(own.icmp),
            icmpv6: ns(own.icmpv6),
            generic: ns(own.generic),
        },
        tcp: tcp::Options {
            policy,
            buffer_bytes: own.reassembly_mib << 20,
            buffer_bytes_per_flow: own.reassembly_kib_per_flow << 10,
            full: full(config),
            depth,
            midstream: own.midstream,
            ..tcp::Options::default()
        },
        defrag: defrag::Config { seed, ..fragments },
        helpers: helper::Options { ftp_ports: Vec::leak(own.ftp_ports.clone()) },
        confirms: false, // by pipeline
        active_ns: outputs::Outputs::want_active(config).then(|| ns(own.active)),
        by_vlan: own.by_vlan,
        tunnels: own.tunnels,
        seed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It writes events of such packets, or not.
    struct Writes(bool);

    impl Follower for Writes {
        fn asks_for_refused(&self) -> bool {
            self.0
        }
    }

    #[test]
    fn packets_that_rules_drop_are_events_where_both_want_it() {
        let is_one = |types: &str, writes: &[bool]| {
            let text = format!("mode = \"wire\"\n[port.a]\n[port.b]\n{types}");
            let (config, _) = control::config::parse(&text, &crate::known_stages()).unwrap();
            let all = writes.iter().map(|own| Box::new(Writes(*own)) as Box<dyn Follower>);
            refused_are_events(&config, &all.collect::<Vec<_>>())
        };
        let asks = "[flow]\nevent_types = [\"drop\"]\n";
        assert!(is_one(asks, &[false, true]));
        assert!(!is_one(asks, &[false]) && !is_one(asks, &[]), "nobody writes");
        for types in ["", "[flow]\n", "[flow]\nevent_types = [\"flow\"]\n", "[ids]\n"] {
            assert!(!is_one(types, &[true]), "{types}");
        }
    }

    #[test]
    fn overlap_sets_the_policies_of_segments_and_fragments() {
        let of = |name: &str| {
            let text = format!("mode = \"monitor\"\n[port.a]\n[flow]\noverlap = \"{name}\"\n");
            let (config, _) = control::config::parse(&text, &crate::known_stages()).unwrap();
            options(&config, 0)
        };
        for (name, policy) in tcp::Policy::NAMES {
            let own = of(name);
            assert_eq!(own.tcp.policy, policy, "{name}");
            assert_eq!(own.defrag.policy_v6, defrag::Policy::Drop, "{name}");
        }
        for policy in defrag::Policy::ALL {
            if !matches!(policy, defrag::Policy::BsdRight | defrag::Policy::Drop) {
                assert_eq!(of(policy.name()).defrag.policy_v4, policy);
            }
        }
    }

    #[test]
    fn events_of_drops_without_a_firewall_are_warned_of() {
        let said = |text: &str| {
            let text = format!("{text}[port.a]\n[port.b]\n[flow]\nevent_types = [\"drop\"]\n");
            let (config, _) = control::config::parse(&text, &crate::known_stages()).unwrap();
            let mut findings = Findings::default();
            check(&config, &Interfaces::of(&config), &mut findings);
            findings.0.len()
        };
        assert_eq!(said("mode = \"monitor\"\n"), 1);
        assert_eq!(said("mode = \"wire\"\n"), 0);
        assert_eq!(said("mode = \"router\"\n"), 1);
        assert_eq!(said("mode = \"router\"\n[firewall]\n"), 0);
    }
}
