//! Requests and tables of an OpenFlow switch for `ctl`.

use std::path::PathBuf;

use clap::Args;
use control::api::fields_of;
use controlplane::request::{Arguments, GroupKind, RequestKind, TableKind};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Its groups of requests.
pub const GROUPS: &[GroupKind] =
    &[GroupKind::new("flow", "Show, change or follow the flows of an OpenFlow switch")
        .shows("openflow-flows")];

/// Its requests.
pub const REQUESTS: &[RequestKind] = &[
    RequestKind::change::<FlowAdd>(
        &["flow", "add"],
        "Add a flow, or replace the one with its match and priority",
    ),
    RequestKind::change::<FlowMod>(&["flow", "mod"], "Change the actions of flows"),
    RequestKind::change::<FlowDel>(&["flow", "del"], "Remove flows"),
    RequestKind::change::<FileArgs>(
        &["flow", "replace"],
        "Make the flows of a file those of the switch; flows that are the same keep their counters",
    ),
    RequestKind::query::<FileArgs>(
        &["flow", "diff"],
        "Print flows of the switch that a file lacks (-), and those that it has beside (+)",
    ),
    RequestKind::query::<FlowDump>(&["flow", "dump"], "Print flows as ovs-ofctl dump-flows does"),
    RequestKind::query::<FlowTrace>(&["flow", "trace"], "Follow a packet through the tables"),
];

/// Its tables.
pub const TABLES: &[TableKind] = &[
    TableKind::with::<ShowSwitch>(
        "openflow-flows",
        "Flows of an OpenFlow switch with their counters",
    ),
    TableKind::with::<ShowSwitch>(
        "openflow-tables",
        "Tables of an OpenFlow switch with how they are searched",
    ),
    TableKind::with::<ShowSwitch>(
        "openflow-controllers",
        "Controllers of an OpenFlow switch with their connections, and tools that are connected",
    ),
    TableKind::with::<ShowSwitch>("openflow-groups", "Groups of an OpenFlow switch"),
    TableKind::with::<ShowSwitch>("openflow-meters", "Meters of an OpenFlow switch"),
    TableKind::with::<ShowSwitch>(
        "openflow-queues",
        "Queues of an OpenFlow switch with their rates",
    ),
];

/// Which switch a table is of.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShowSwitch {
    /// Name of the switch; needed if there are several
    #[arg(long, value_name = "NAME")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
}

/// Adds a flow: `flow_add`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowAdd {
    /// The flow: `priority=10,tcp,tp_dst=80,actions=output:2`
    #[arg(value_name = "FLOW")]
    pub flow: String,
    /// Name of the switch; needed if there are several
    #[arg(long, value_name = "NAME")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
}

/// Changes flows: `flow_mod`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowMod {
    /// Which flows, and their new actions: `tcp,actions=drop`
    #[arg(value_name = "FLOW")]
    pub flow: String,
    /// Only the flow with exactly this match and priority
    #[arg(long)]
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub strict: bool,
    /// Name of the switch; needed if there are several
    #[arg(long, value_name = "NAME")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
}

/// Removes flows: `flow_del`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowDel {
    /// Which flows: `table=1,tcp` (default: all)
    #[arg(value_name = "FLOW", default_value = "")]
    #[serde(default)]
    pub flow: String,
    /// Only the flow with exactly this match and priority
    #[arg(long)]
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub strict: bool,
    /// Name of the switch; needed if there are several
    #[arg(long, value_name = "NAME")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
}

/// Compares flows with those of a file, or replaces them: `flow_diff`, `flow_replace`. The client has read the file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowReplace {
    /// The file's name, for errors.
    pub file: String,
    /// What is in it.
    pub flows: String,
    /// Name of the switch; needed if there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
}

/// `flow replace`, `flow diff`.
#[derive(Debug, Args)]
struct FileArgs {
    /// Flows, groups and meters, one a line, in the syntax of ovs-ofctl; `-` is standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Name of the switch; needed if there are several
    #[arg(long, value_name = "NAME")]
    stage: Option<String>,
}

/// Bytes of a file that a request carries.
const FILE_MAX: u64 = 60 << 20;

impl Arguments for FileArgs {
    fn fields(self) -> Result<Map<String, Value>, String> {
        let file = ::files::input::name(&self.file).into_owned();
        let wrong = |reason: &dyn std::fmt::Display| format!("{file}: {reason}");
        let bytes = ::files::input::read_at_most(&self.file, FILE_MAX);
        let bytes = bytes.map_err(|error| wrong(&::files::output::reason(&error)))?;
        let flows = String::from_utf8(bytes).map_err(|_| wrong(&"is not text (UTF-8)"))?;
        fields_of(&FlowReplace { file, flows, stage: self.stage })
    }
}

/// Prints flows: `flow_dump`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowDump {
    /// Which flows: `table=1,tcp` (default: all)
    #[arg(value_name = "FLOW", default_value = "")]
    #[serde(default)]
    pub flow: String,
    /// Without duration and counters: what `--flows` reads
    #[arg(long)]
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_stats: bool,
    /// Name of the switch; needed if there are several
    #[arg(long, value_name = "NAME")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
}

/// Follows a packet: `flow_trace`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowTrace {
    /// The packet: `in_port=1,tcp,nw_src=10.0.0.1,tp_dst=80,nw_ttl=64`. What is left out is zero; without `nw_ttl`, TTLs are not
    /// followed.
    #[arg(value_name = "PACKET")]
    pub packet: String,
    /// Name of the switch; needed if there are several
    #[arg(long, value_name = "NAME")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
}
