//! Requests and tables of a router for `ctl`.
//!
//! A route is given as the configuration has it, `PREFIX NEXT_HOP`, or in the words of `ip route`:
//!
//! ```text
//! route add 203.0.113.0/24 198.51.100.2%wan
//! route add 203.0.113.0/24 via 198.51.100.2 dev wan metric 10
//! route add default nexthop via 192.0.2.1 weight 3 nexthop dev wan
//! route add blackhole 203.0.113.0/24
//! ```

use std::net::IpAddr;
use std::str::FromStr;

use clap::Args;
use clap::builder::PossibleValuesParser;
use control::api::fields_of;
use control::config::{NextHop, is_port_name};
use control::rib::RouteSource;
use controlplane::request::{Arguments, Destination, GroupKind, NameKind, RequestKind, TableKind};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::neighbours::NEIGHBOURS;

/// Its groups of requests.
pub const GROUPS: &[GroupKind] =
    &[GroupKind::new("route", "Change or look up a route").shows("routes")];

/// Words of `ip route` for options.
const WORDS: &[&str] =
    &["via", "dev", "nexthop", "blackhole", "unreachable", "metric", "preference"];

/// Other words of `ip route`, which mean nothing here.
const UNSUPPORTED: &[&str] = &[
    "proto",
    "protocol",
    "scope",
    "src",
    "table",
    "onlink",
    "pervasive",
    "type",
    "tos",
    "dsfield",
    "pref",
    "mtu",
    "advmss",
    "window",
    "rtt",
    "hoplimit",
    "initcwnd",
    "initrwnd",
    "congctl",
    "quickack",
    "realm",
    "realms",
    "encap",
    "vrf",
    "nhid",
    "expires",
    "weight",
];

/// Its requests. `route add` is an error where a route of `ctl` has the prefix; `route get` answers with `routes` of one
/// row.
pub const REQUESTS: &[RequestKind] = &[
    RequestKind::change::<SetArgs>(&["route", "add"], "Add a route").keywords(WORDS),
    RequestKind::change::<SetArgs>(
        &["route", "replace"],
        "Add a route, or replace an existing one",
    )
    .keywords(WORDS),
    RequestKind::change::<DelArgs>(&["route", "del"], "Remove a route that was added with `ctl`")
        .keywords(WORDS),
    RequestKind::query::<RouteGet>(&["route", "get"], "Look up the route of an address"),
];

/// Its tables.
pub const TABLES: &[TableKind] = &[
    TableKind::with::<ShowArgs>("routes", "Routes of all sources; `*`: in use").keywords(&[
        "longer-prefixes",
        "longer",
        "source",
        "proto",
    ]),
    NEIGHBOURS,
];

/// Its names: not of all routes, which may be a million.
pub const NAMES: &[NameKind] = &[
    NameKind {
        value: "PREFIX",
        table: "routes",
        arguments: &["source", "api,static,connected"],
        field: "prefix",
    },
    // What `route del` can remove.
    NameKind { value: "ROUTE", table: "routes", arguments: &["source", "api"], field: "prefix" },
    NameKind { value: "NEXT_HOP", table: "interfaces", arguments: &[], field: "name" },
];

/// Adds or replaces a route of source `api`: `route_add`, `route_replace`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteSet {
    /// Its prefix.
    pub prefix: IpNet,
    /// Where to.
    pub next_hop: NextHop,
    /// Among static routes and those of `ctl` the smallest wins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<u32>,
}

/// Takes a route of source `api` away: `route_del`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteDel {
    /// Its prefix.
    pub prefix: IpNet,
    /// Only if it leads there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_hop: Option<NextHop>,
    /// Only if it has this metric.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<u32>,
}

/// The route that packets to an address take: `route_get`.
#[derive(Debug, Clone, PartialEq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteGet {
    /// The address
    pub address: IpAddr,
}

/// Which routes the table `routes` shows.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoutesShown {
    /// Those of this prefix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<IpNet>,
    /// Those of the longest prefix in use that has this address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// Also those of all prefixes within the prefix.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub longer_prefixes: bool,
    /// Those of these sources; none: of all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<RouteSource>,
}

/// A route on the command line.
#[derive(Debug, Args)]
struct SetArgs {
    /// Destination: a prefix, an address, or `default`
    #[arg(value_name = "PREFIX")]
    prefix: Destination,
    /// An address, `ADDRESS%PORT`, a port, several of them separated by `,`, `blackhole` or `unreachable`
    next_hop: Option<NextHop>,
    #[command(flatten)]
    words: HopArgs,
}

/// A route to be removed, on the command line.
#[derive(Debug, Args)]
struct DelArgs {
    /// Destination: a prefix, an address, or `default`
    #[arg(value_name = "ROUTE")]
    prefix: Destination,
    /// Only if this is its next hop
    next_hop: Option<NextHop>,
    #[command(flatten)]
    words: HopArgs,
}

/// A next hop in the words of `ip route`; they may be given without dashes.
#[derive(Debug, Args)]
struct HopArgs {
    /// Address of the next hop
    #[arg(long, value_name = "ADDRESS")]
    via: Option<IpAddr>,
    /// Port of the next hop; without an address, destinations are neighbours on this port
    #[arg(long, value_name = "PORT", value_parser = port)]
    dev: Option<String>,
    /// One of several next hops; flows are shared by weight
    #[arg(long, value_name = "via ADDRESS dev PORT weight N", conflicts_with_all = ["via", "dev"])]
    nexthop: Vec<Member>,
    /// Drop packets and count them
    #[arg(long, conflicts_with_all = ["via", "dev", "nexthop"])]
    blackhole: bool,
    /// Drop packets, count them, and send an ICMP error to the source
    #[arg(long, conflicts_with_all = ["via", "dev", "nexthop", "blackhole"])]
    unreachable: bool,
    /// Among static routes and those of `ctl` the smallest wins [default: 0]
    #[arg(long, visible_alias = "preference", value_name = "N")]
    metric: Option<u32>,
    /// `default` is all of IPv4
    #[arg(short = '4', long = "ipv4", conflicts_with = "v6")]
    v4: bool,
    /// `default` is all of IPv6
    #[arg(short = '6', long = "ipv6")]
    v6: bool,
    /// What is no word of a route
    #[arg(hide = true)]
    more: Vec<String>,
}

/// Which routes are shown, on the command line.
#[derive(Debug, Args)]
struct ShowArgs {
    /// Only routes of this prefix, or of the longest prefix that has this address
    #[arg(value_name = "PREFIX")]
    prefix: Option<Shown>,
    /// Also routes of all prefixes within the prefix
    #[arg(long, alias = "longer", requires = "prefix")]
    longer_prefixes: bool,
    /// Only routes of these sources
    #[arg(
        long,
        visible_alias = "proto",
        value_name = "SOURCE",
        value_delimiter = ',',
        value_parser = PossibleValuesParser::new(RouteSource::ALL.map(RouteSource::name))
    )]
    source: Vec<String>,
    /// `default` is all of IPv6
    #[arg(short = '6', long = "ipv6")]
    v6: bool,
}

/// A port.
fn port(text: &str) -> Result<String, String> {
    match is_port_name(text) {
        true => Ok(text.to_owned()),
        false => Err("expected the name of a port".to_owned()),
    }
}

/// A prefix, or an address alone.
#[derive(Debug, Clone, Copy)]
enum Shown {
    Of(Destination),
    Address(IpAddr),
}

impl FromStr for Shown {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map_or_else(|_| text.parse().map(Self::Of), |own| Ok(Self::Address(own)))
    }
}

/// A member of a next hop: the words behind `nexthop`.
#[derive(Debug, Clone)]
struct Member(NextHop, u16);

impl FromStr for Member {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const FORM: &str = "expected `via ADDRESS`, `dev PORT` or both, and perhaps `weight N`";
        let (mut address, mut port_name, mut weight) = (None, None, None);
        let mut words = text.split_whitespace();
        while let Some(word) = words.next() {
            let value = words.next().ok_or_else(|| format!("`{word}` without a value: {FORM}"))?;
            let wrong = |what: &str| format!("`{word} {value}`: expected {what}");
            let twice = match word {
                "via" => {
                    let read: IpAddr = value.parse().map_err(|_| wrong("an address"))?;
                    address.replace(read).is_some()
                }
                "dev" => port_name.replace(port(value)?).is_some(),
                "weight" => {
                    let read: Option<u16> = value.parse().ok().filter(|n| (1..=1024).contains(n));
                    weight.replace(read.ok_or_else(|| wrong("1 to 1024"))?).is_some()
                }
                _ => return Err(format!("`{word}`: {FORM}")),
            };
            if twice {
                return Err(format!("`{word}` twice: {FORM}"));
            }
        }
        let hop = hop(address, port_name).ok_or_else(|| FORM.to_owned())?;
        Ok(Self(hop, weight.unwrap_or(1)))
    }
}

fn hop(address: Option<IpAddr>, port: Option<String>) -> Option<NextHop> {
    match (address, port) {
        (Some(address), port) => Some(NextHop::Address { address, port }),
        (None, Some(port)) => Some(NextHop::Port(port)),
        (None, None) => None,
    }
}

impl HopArgs {
    /// Refuses words that are neither a next hop nor its options, by their names.
    fn check(&self, given: Option<&NextHop>) -> Result<(), String> {
        let given = match given {
            Some(NextHop::Port(name)) => Some(name.as_str()),
            _ => None,
        };
        let value = match given {
            Some("via") => Some("an address"),
            Some("dev") => Some("the name of a port"),
            Some("nexthop") => Some("`via ADDRESS`, `dev PORT` or both"),
            Some("metric" | "preference") => Some("a number"),
            _ => None,
        };
        if let (Some(word), Some(value), []) = (given, value, self.more.as_slice()) {
            return Err(format!("expected {value} after `{word}`"));
        }
        let is_whole = self.via.is_some() || self.dev.is_some() || !self.nexthop.is_empty();
        let word = given.filter(|word| UNSUPPORTED.contains(word));
        let word = word.filter(|_| is_whole || !self.more.is_empty());
        match word.or(self.more.first().map(String::as_str)) {
            Some(word @ ("metric" | "preference")) => {
                Err(format!("expected a number after `{word}`"))
            }
            Some(word) => Err(format!(
                "`{word}` is not supported: expected via, dev, metric, nexthop, blackhole or unreachable"
            )),
            None => Ok(()),
        }
    }

    /// The next hop of these words, and whether the route is one of IPv6.
    fn read(self, given: Option<NextHop>) -> Result<(Option<NextHop>, bool), String> {
        self.check(given.as_ref())?;
        let words = match self {
            Self { blackhole: true, .. } => Some(NextHop::Blackhole),
            Self { unreachable: true, .. } => Some(NextHop::Unreachable),
            Self { via, dev, nexthop, .. } => match nexthop.as_slice() {
                [] => hop(via, dev),
                [Member(hop, 1)] => Some(hop.clone()),
                all => Some(NextHop::Group(
                    all.iter().map(|Member(hop, weight)| (hop.clone(), *weight)).collect(),
                )),
            },
        };
        let next_hop = match (given, words) {
            (Some(given), Some(_)) => {
                return Err(format!(
                    "two next hops: `{given}`, and another one by `via`, `dev`, `nexthop`, `blackhole` or `unreachable`"
                ));
            }
            (given, words) => given.or(words),
        };
        // An address says the family, where nothing else does.
        let is_v6 = next_hop.as_ref().is_some_and(|hop| !hop.carries(true));
        Ok((next_hop, self.v6 || (is_v6 && !self.v4)))
    }
}

impl Arguments for SetArgs {
    fn fields(self) -> Result<Map<String, Value>, String> {
        let metric = self.words.metric;
        let (next_hop, is_v6) = self.words.read(self.next_hop)?;
        let next_hop = next_hop.ok_or(
            "a route needs a next hop: `via ADDRESS`, `dev PORT`, `nexthop …`, `blackhole` or `unreachable`",
        )?;
        fields_of(&RouteSet { prefix: self.prefix.net(is_v6), next_hop, metric })
    }
}

impl Arguments for DelArgs {
    fn fields(self) -> Result<Map<String, Value>, String> {
        let metric = self.words.metric;
        let (next_hop, is_v6) = self.words.read(self.next_hop)?;
        fields_of(&RouteDel { prefix: self.prefix.net(is_v6), next_hop, metric })
    }
}

impl Arguments for ShowArgs {
    fn fields(self) -> Result<Map<String, Value>, String> {
        let (prefix, address) = match self.prefix {
            None => (None, None),
            Some(Shown::Of(destination)) => (Some(destination.net(self.v6)), None),
            Some(Shown::Address(address)) if self.longer_prefixes => (Some(address.into()), None),
            Some(Shown::Address(address)) => (None, Some(address)),
        };
        let sources = self.source.iter().map(|name| {
            let mut all = RouteSource::ALL.into_iter();
            all.find(|own| own.name() == name).ok_or_else(|| name.clone())
        });
        let sources = sources.collect::<Result<_, _>>()?;
        let longer_prefixes = self.longer_prefixes;
        fields_of(&RoutesShown { prefix, address, longer_prefixes, sources })
    }
}

#[cfg(test)]
mod tests {
    use control::api::Request;
    use serde_json::json;

    use super::*;
    use crate::requests::{error_of, request_of, table_of};

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

    /// What people type for `ip route add`, and the same in our own words.
    #[test]
    fn words_of_ip_are_requests() {
        for (words, prefix, next_hop, metric) in [
            ("203.0.113.0/24 via 198.51.100.2 dev wan", "203.0.113.0/24", "198.51.100.2%wan", None),
            ("203.0.113.0/24 dev wan via 198.51.100.2", "203.0.113.0/24", "198.51.100.2%wan", None),
            ("203.0.113.0/24 --via 198.51.100.2", "203.0.113.0/24", "198.51.100.2", None),
            ("203.0.113.0/24 dev wan metric 10", "203.0.113.0/24", "wan", Some(10)),
            ("203.0.113.9 via 198.51.100.2", "203.0.113.9/32", "198.51.100.2", None),
            ("default via 198.51.100.2", "0.0.0.0/0", "198.51.100.2", None),
            ("default via fe80::1 dev wan", "::/0", "fe80::1%wan", None),
            ("-6 default dev wan", "::/0", "wan", None),
            ("default dev wan", "0.0.0.0/0", "wan", None),
            ("default blackhole -6", "::/0", "blackhole", None),
            ("blackhole 10.0.0.0/8", "10.0.0.0/8", "blackhole", None),
            ("unreachable 10.0.0.0/8 metric 7", "10.0.0.0/8", "unreachable", Some(7)),
            ("10.0.0.0/8 unreachable", "10.0.0.0/8", "unreachable", None),
            (
                "default nexthop via 192.0.2.1 weight 3 nexthop via 192.0.2.2 dev wan nexthop dev lan",
                "0.0.0.0/0",
                "192.0.2.1*3,192.0.2.2%wan,lan",
                None,
            ),
            ("default nexthop via 2001:db8::1 nexthop dev lan", "::/0", "2001:db8::1,lan", None),
            // A port may be called as a word of `ip`.
            ("10.0.0.0/8 proto", "10.0.0.0/8", "proto", None),
            ("10.0.0.0/8 dev dev", "10.0.0.0/8", "dev", None),
            ("10.0.0.0/8 dev via", "10.0.0.0/8", "via", None),
        ] {
            let words: Vec<_> = words.split_whitespace().collect();
            let mut route = json!({"prefix": prefix, "next_hop": next_hop});
            if let Some(metric) = metric {
                route["metric"] = metric.into();
            }
            request_of::<RouteSet>(&REQUESTS[0], &words, "route_add", &route);
            request_of::<RouteDel>(&REQUESTS[2], &words, "route_del", &route);
        }
    }

    #[test]
    fn arguments_of_tables_are_requests() {
        for (words, fields) in [
            ("", json!({})),
            ("10.0.0.0/8", json!({"prefix": "10.0.0.0/8"})),
            ("10.0.0.1", json!({"address": "10.0.0.1"})),
            ("default", json!({"prefix": "0.0.0.0/0"})),
            ("-6 default", json!({"prefix": "::/0"})),
            (
                "10.0.0.0/8 longer-prefixes",
                json!({"prefix": "10.0.0.0/8", "longer_prefixes": true}),
            ),
            ("10.0.0.0/8 longer", json!({"prefix": "10.0.0.0/8", "longer_prefixes": true})),
            ("source api,static", json!({"sources": ["api", "static"]})),
            ("proto kernel", json!({"sources": ["kernel"]})),
        ] {
            let words: Vec<_> = words.split_whitespace().collect();
            let Request::Show { what, arguments } = table_of(&TABLES[0], &words).unwrap() else {
                panic!("{words:?}");
            };
            assert_eq!(what, "routes");
            let read: RoutesShown = control::api::decode(arguments.clone()).unwrap();
            assert_eq!(fields_of(&read).unwrap(), arguments);
            assert_eq!(arguments, fields_of(&fields).unwrap(), "{words:?}");
        }
        for (words, expected) in [
            (&["longer-prefixes"] as &[_], "<PREFIX>"),
            (&["10.0.0.1/8"], "expected 10.0.0.0/8"),
            (&["source", "rip"], "possible values"),
        ] {
            let error = table_of(&TABLES[0], words).unwrap_err();
            assert!(error.contains(expected), "{words:?}: {error}");
        }
    }

    #[test]
    fn bad_arguments_are_refused() {
        for (kind, words, expected) in [
            (0, "38.0.0.1/8 lan", "expected 38.0.0.0/8"),
            (0, "10.0.0.0/8", "a route needs a next hop"),
            (1, "10.0.0.0/8 a%b%c", "is not a next hop"),
            (2, "10.0.0.0/33", "prefix length of 0 to 32"),
            (3, "10.0.0.0/8", "invalid IP address"),
            (3, "", "<ADDRESS>"),
            (0, "10.0.0.0/8 via lan", "invalid IP address"),
            (0, "10.0.0.0/8 dev 192.0.2.1", "expected the name of a port"),
            (0, "10.0.0.0/8 192.0.2.1 via 192.0.2.2", "two next hops"),
            (0, "10.0.0.0/8 via 192.0.2.1 blackhole", "cannot be used with"),
            (0, "10.0.0.0/8 via 192.0.2.1 nexthop via 192.0.2.2", "cannot be used with"),
            (0, "10.0.0.0/8 nexthop weight 2", "expected `via ADDRESS`"),
            (0, "10.0.0.0/8 nexthop via 192.0.2.1 weight 0", "1 to 1024"),
            (0, "10.0.0.0/8 nexthop via 192.0.2.1 onlink", "`onlink` without a value"),
            (0, "10.0.0.0/8 nexthop dev a dev b", "`dev` twice"),
            (0, "10.0.0.0/8 via", "expected an address after `via`"),
            (0, "10.0.0.0/8 dev", "expected the name of a port after `dev`"),
            (2, "10.0.0.0/8 via", "expected an address after `via`"),
            (0, "10.0.0.0/8 192.0.2.1 metric", "expected a number after `metric`"),
            (0, "10.0.0.0/8 via 192.0.2.1 metric", "expected a number after `metric`"),
            (0, "10.0.0.0/8 nexthop", "expected `via ADDRESS`, `dev PORT` or both after `nexthop`"),
            (
                0,
                "10.0.0.0/8 via 192.0.2.1 proto static",
                "`proto` is not supported: expected via, dev, metric, nexthop",
            ),
            (0, "10.0.0.0/8 proto static via 192.0.2.1", "`proto` is not supported"),
            (0, "10.0.0.0/8 proto static", "`proto` is not supported"),
            (0, "10.0.0.0/8 dev lan onlink", "`onlink` is not supported"),
            (0, "10.0.0.0/8 192.0.2.1 table 5", "`table` is not supported"),
            (0, "10.0.0.0/8 lan wan", "`wan` is not supported"),
            (0, "-4 -6 default dev lan", "cannot be used with"),
        ] {
            let words: Vec<_> = words.split_whitespace().collect();
            let error = error_of(&REQUESTS[kind], &words);
            assert!(error.contains(expected), "{words:?}: {error}");
        }
    }
}
