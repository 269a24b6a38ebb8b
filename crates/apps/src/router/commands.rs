//! Requests and tables of a router for `ctl`.

use std::net::IpAddr;

use clap::Args;
use control::config::NextHop;
use controlplane::request::{GroupKind, RequestKind, TableKind, prefix};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// Its groups of requests.
pub const GROUPS: &[GroupKind] = &[GroupKind { name: "route", about: "Change or look up a route" }];

/// Its requests. `route add` is an error where a route of `ctl` has the prefix; `route get` answers with `routes` of one
/// row.
pub const REQUESTS: &[RequestKind] = &[
    RequestKind::change::<RouteSet>(&["route", "add"], "Add a route"),
    RequestKind::change::<RouteSet>(
        &["route", "replace"],
        "Add a route, or replace an existing one",
    ),
    RequestKind::change::<RouteDel>(&["route", "del"], "Remove a route that was added with `ctl`"),
    RequestKind::query::<RouteGet>(&["route", "get"], "Look up the route of an address"),
];

/// Its tables.
pub const TABLES: &[TableKind] = &[
    TableKind { name: "routes", about: "Routes of all sources; `*`: in use" },
    TableKind { name: "neighbours", about: "Neighbours and their MAC addresses" },
];

/// Adds or replaces a route of source `api`: `route_add`, `route_replace`.
#[derive(Debug, Clone, PartialEq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteSet {
    /// Its prefix
    #[arg(value_parser = prefix)]
    pub prefix: IpNet,
    /// An address, `ADDRESS%PORT`, a port, several of them separated by `,`, `blackhole` or `unreachable`
    pub next_hop: NextHop,
}

/// Takes a route of source `api` away: `route_del`.
#[derive(Debug, Clone, PartialEq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteDel {
    /// Its prefix
    #[arg(value_parser = prefix)]
    pub prefix: IpNet,
}

/// The route that packets to an address take: `route_get`.
#[derive(Debug, Clone, PartialEq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteGet {
    /// The address
    pub address: IpAddr,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::requests::{error_of, request_of};

    #[test]
    fn arguments_are_requests() {
        let route = json!({"prefix": "10.0.0.0/8", "next_hop": "192.0.2.1*3,192.0.2.2%lan"});
        let words = ["10.0.0.0/8", "192.0.2.1*3,192.0.2.2%lan"];
        for (i, name) in ["route_add", "route_replace"].into_iter().enumerate() {
            let read: RouteSet = request_of(&REQUESTS[i], &words, name, &route);
            assert_eq!(read.prefix, "10.0.0.0/8".parse().unwrap());
        }
        let prefix = json!({"prefix": "2001:db8::/32"});
        request_of::<RouteDel>(&REQUESTS[2], &["2001:db8::/32"], "route_del", &prefix);
        let address = json!({"address": "192.0.2.1"});
        request_of::<RouteGet>(&REQUESTS[3], &["192.0.2.1"], "route_get", &address);
    }

    #[test]
    fn bad_arguments_are_refused() {
        for (kind, words, expected) in [
            (0, &["38.0.0.1/8", "lan"] as &[_], "expected 38.0.0.0/8"),
            (0, &["10.0.0.0/8"], "<NEXT_HOP>"),
            (1, &["10.0.0.0/8", "a b"], "is not a next hop"),
            (2, &["10.0.0.0/33"], "prefix length of 0 to 32"),
            (3, &["10.0.0.0/8"], "invalid IP address"),
            (3, &[], "<ADDRESS>"),
        ] {
            let error = error_of(&REQUESTS[kind], words);
            assert!(error.contains(expected), "{words:?}: {error}");
        }
    }
}
