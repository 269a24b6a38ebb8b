//! Tables of flows for `ctl`.

use clap::Args;
use controlplane::request::TableKind;
use serde::{Deserialize, Serialize};

/// Its tables.
pub const TABLES: &[TableKind] = &[
    TableKind::with::<ShowFlows>("flows", "Flows that are followed"),
    TableKind::with::<ShowConnections>("connections", "Connections that the firewall tracks"),
];

/// Flows that are followed now; the newest packets and bytes of each.
#[derive(Debug, Clone, Default, PartialEq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShowFlows {
    /// Only flows with this address, or an address in this prefix
    #[arg(long, value_name = "PREFIX", value_parser = controlplane::request::address_or_prefix)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<ipnet::IpNet>,
    /// Only flows with this port of TCP, UDP or SCTP at one end
    #[arg(long, value_name = "PORT")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Only flows of this protocol: a name or a number
    #[arg(long, value_name = "PROTO", value_parser = super::rows::protocol_word)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proto: Option<String>,
    /// Only flows in this state: one of flows, or of TCP connections
    #[arg(long, value_name = "STATE", value_parser = super::rows::STATES)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Only flows with packets within this time
    #[arg(long = "within", value_name = "TIME", value_parser = seconds)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within_s: Option<f64>,
    /// How many flows there are of each protocol and state, with their packets and bytes
    #[arg(long, conflicts_with = "top")]
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub summary: bool,
    /// The flows with the most bytes, at most so many
    #[arg(long, value_name = "N")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top: Option<u32>,
}

/// Connections as the firewall knows them: by the names of Linux's conntrack.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShowConnections {
    /// Only connections with this address, or an address in this prefix
    #[arg(long, value_name = "PREFIX", value_parser = controlplane::request::address_or_prefix)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<ipnet::IpNet>,
    /// Only connections with this port of TCP, UDP or SCTP at one end
    #[arg(long, value_name = "PORT")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Only connections of this protocol: a name or a number
    #[arg(long, value_name = "PROTO", value_parser = super::rows::protocol_word)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proto: Option<String>,
    /// Only connections in this state, such as ESTABLISHED or UNREPLIED
    #[arg(long, value_name = "STATE", value_parser = super::rows::CONNECTION_STATES)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
}

/// A time, in seconds.
fn seconds(text: &str) -> Result<f64, String> {
    let time = control::config::units::parse_duration(text);
    let expected = || "expected a time with its unit, such as 10s or 200ms".to_owned();
    time.map(|time| time.as_secs_f64()).ok_or_else(expected)
}
