//! Requests and tables of a switch for `ctl`.

use clap::Args;
use controlplane::request::{GroupKind, RequestKind, TableKind};
use serde::{Deserialize, Serialize};

/// Its groups of requests: `clear` is every pipeline's.
pub const GROUPS: &[GroupKind] = &[];

/// Its requests.
pub const REQUESTS: &[RequestKind] =
    &[RequestKind::change::<ClearMacs>(&["clear", "macs"], "Remove learned stations")];

/// Its tables.
pub const TABLES: &[TableKind] = &[TableKind::new("macs", "Stations of a switch")];

/// Forgets learned stations: of a port, of a VLAN, or all: `clear_macs`.
#[derive(Debug, Clone, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClearMacs {
    /// Only stations of this port
    #[arg(long, value_name = "PORT")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// Only stations of this VLAN
    #[arg(long, value_name = "VLAN", value_parser = clap::value_parser!(u16).range(1..=4094))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::requests::{error_of, request_of};

    #[test]
    fn arguments_are_requests() {
        let clear = &REQUESTS[0];
        request_of::<ClearMacs>(clear, &[], "clear_macs", &json!({}));
        let words = ["--vlan", "7", "--port", "p1"];
        let fields = json!({"port": "p1", "vlan": 7});
        request_of::<ClearMacs>(clear, &words, "clear_macs", &fields);
        let error = error_of(clear, &["--vlan", "4095"]);
        assert!(error.contains("4095 is not in 1..=4094"), "{error}");
        assert!(error_of(clear, &["--port"]).contains("<PORT>"));
    }
}
