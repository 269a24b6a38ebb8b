//! Tables of address translation for `ctl`.

use clap::Args;
use controlplane::request::TableKind;
use serde::{Deserialize, Serialize};

/// Its tables.
pub const TABLES: &[TableKind] = &[
    TableKind::with::<ShowNat>("nat", "Sessions of address translation"),
    TableKind::new("nat-pools", "Outside addresses of address translation and their use"),
];

/// Sessions of address translation now.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShowNat {
    /// Only sessions with this address, or an address in this prefix, before or behind the translator
    #[arg(long, value_name = "PREFIX", value_parser = controlplane::request::address_or_prefix)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<ipnet::IpNet>,
    /// Only sessions with this port or identifier
    #[arg(long, value_name = "PORT")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}
