//! The sections of the configuration file and their keys, one file for each topic: what a key is called, its type, its
//! default, what it may be, and whether a reload applies it, is declared here and nowhere else.

mod engine;
pub(super) mod firewall;
mod flow;
mod ids;
mod ipsec;
mod l7;
mod module;
mod nat;
pub(super) mod ndn;
mod pipeline;
pub(super) mod port;
mod router;
pub(super) mod routes;
pub(super) mod switch;
mod system;

pub use engine::{Engine, EngineBackend, Offload, SimCost};
pub use firewall::Firewall;
pub(in crate::config) use flow::RENAMED;
pub use flow::{Collector, EventType, Flow, Overlap};
pub use ids::{Ids, IdsAction, IdsEvent, IdsOnLimit};
pub use ipsec::{
    Ipsec, PolicyAction, PolicyDirection, PolicyEntry, PolicyProtocol, SaAuthentication, SaDf,
    SaDirection, SaEncryption, SaEntry, SaMode, SaWorkers,
};
pub use l7::{L7, Sureness};
pub use module::{
    ModuleEntry, ModulePatterns, ModuleSource, OnFailure, module_groups, modules_use_flows,
};
pub use nat::{NatFilter, NatKind, NatProtocol, NatRule, NatTarget, PortRange, Translation};
pub use ndn::{Face, FaceLink, NameRoute, Ndn};
pub use pipeline::Dump;
pub(super) use pipeline::{StageKeys, places};
pub use port::{
    Backend, Faces, Fault, HostLimits, Physical, Port, PortKind, Register, Rpf, VlanTag, XdpMode,
    ZeroCopy,
};
pub use router::{Neighbour, Router, TableV4, TableV6};
pub use routes::{FileNextHops, Route, RouteFile};
pub(super) use switch::mode_text;
pub use switch::{Bridging, ExtraStations, Station, Switch};
pub use system::{HugePages, LogFormat, LogLevel, Seccomp, System};

use super::section::{Key, SectionValue};

/// A table of the documentation: a section of the file, or the part of one that goes together.
#[derive(Debug, Clone)]
pub struct SectionKeys {
    /// As in the file, `[router]` or `[[route]]`; of a part with what makes it one: `[port.NAME] of a switch`.
    pub title: &'static str,
    /// What it is for, one line of Markdown.
    pub text: String,
    /// Its keys.
    pub keys: Vec<&'static Key>,
}

/// All keys of the configuration file, in the order of the documentation.
pub fn keys() -> Vec<SectionKeys> {
    let tables = sections().into_iter().map(|(title, sections)| SectionKeys {
        title,
        text: sections[0].text(),
        keys: sections.iter().flat_map(|section| section.keys()).collect(),
    });
    tables.collect()
}

/// By table of the documentation: its sections, the first of which says what it is for.
pub(super) fn sections() -> Vec<(&'static str, Vec<Box<dyn SectionValue>>)> {
    fn of<S: SectionValue + Default>() -> Box<dyn SectionValue> {
        Box::new(S::default())
    }
    vec![
        ("Top level", vec![of::<pipeline::TopLevel>()]),
        ("[system]", vec![of::<System>()]),
        ("[port.NAME]", vec![of::<Port>(), of::<Physical>()]),
        ("[port.NAME.fault]", vec![of::<Fault>()]),
        ("[port.NAME.host]", vec![of::<HostLimits>()]),
        ("[port.NAME] of a VLAN", vec![of::<port::Subinterface>()]),
        ("[port.NAME] of a switch", vec![of::<switch::PortVlans>(), of::<Bridging>()]),
        ("[port.NAME.storm]", vec![of::<switch::Storm>()]),
        ("[router]", vec![of::<Router>()]),
        ("[[route]]", vec![of::<routes::RouteKeys>()]),
        ("member of `via`", vec![of::<routes::Member>()]),
        ("[[routes]]", vec![of::<routes::RouteFileKeys>()]),
        ("[[neighbour]]", vec![of::<Neighbour>()]),
        ("[switch]", vec![of::<Switch>()]),
        ("[[station]]", vec![of::<Station>()]),
        ("[firewall]", vec![of::<Firewall>()]),
        (
            "[[rule]]",
            vec![
                of::<firewall::RuleKeys>(),
                of::<firewall::ConditionKeys>(),
                of::<firewall::RuleFileKeys>(),
            ],
        ),
        ("[flow]", vec![of::<Flow>()]),
        ("[l7]", vec![of::<L7>()]),
        ("[ids]", vec![of::<Ids>()]),
        ("[[module]]", vec![of::<ModuleEntry>()]),
        ("[[nat]]", vec![of::<NatRule>()]),
        ("[translation]", vec![of::<Translation>()]),
        ("[ipsec]", vec![of::<Ipsec>()]),
        ("[[sa]]", vec![of::<SaEntry>()]),
        ("[[policy]]", vec![of::<PolicyEntry>()]),
        ("[ndn]", vec![of::<Ndn>()]),
        ("[ndn.face.NAME]", vec![of::<ndn::AnyFace>(), of::<ndn::EthernetFace>()]),
        ("[ndn.face.NAME] over UDP", vec![of::<ndn::UdpFace>()]),
        ("[[name]]", vec![of::<NameRoute>()]),
        ("[[names]]", vec![of::<ndn::NameFile>()]),
        ("[engine]", vec![of::<Engine>()]),
        ("[engine.sim]", vec![of::<SimCost>()]),
        ("[pipeline.NAME]", vec![of::<pipeline::PipelineKeys>()]),
        ("[stage.NAME]", vec![of::<pipeline::StageKeys>()]),
        ("[dump.NAME]", vec![of::<Dump>()]),
    ]
}
