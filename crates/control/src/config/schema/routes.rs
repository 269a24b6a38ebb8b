//! `[[route]]` and `[[routes]]`.

use std::net::IpAddr;
use std::ops::{Range, RangeInclusive};
use std::path::PathBuf;

use ipnet::IpNet;
use toml::de::DeValue;

use crate::config::kinds::{
    Custom, Kind, address, boolean, custom, file, integer, name_of, prefix,
};
use crate::config::next_hop::NextHop;
use crate::config::read::RouteSpans;
use crate::config::section::SectionValue;
use crate::config::values::{Value, Walk, string, wrong_kind};
use crate::config::walk::{Place, Section};

const METRIC: RangeInclusive<i128> = 0..=u32::MAX as i128;
const VIA: &str = "a next hop: an address, a port, `blackhole`, `unreachable`, or an array";

/// A next hop and its place.
type Hop = (NextHop, Range<usize>);

/// `[[route]]`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Route {
    /// No host bits set.
    pub prefix: IpNet,
    /// Where to.
    pub next_hop: NextHop,
    /// Among routes of the same prefix the smallest wins.
    pub metric: u32,
}

/// `[[routes]]`: a file with a prefix (and perhaps a next hop) a line.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RouteFile {
    /// Relative paths start at the configuration's folder once [`load`](crate::config::load) read it.
    pub file: PathBuf,
    /// Who gets a prefix.
    pub next_hops: FileNextHops,
    /// Of all its routes.
    pub metric: u32,
}

/// Next hops of a routes file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum FileNextHops {
    /// The file's own tokens, in [`NextHop`]'s text form.
    Tokens,
    /// One of these by hash of the prefix ([`FileNextHops::get`]). An empty family: its prefixes
    /// are skipped and counted.
    Spread {
        /// For IPv4 prefixes.
        v4: Vec<NextHop>,
        /// For IPv6 prefixes.
        v6: Vec<NextHop>,
    },
}

crate::section! {
    /// A static route.
    pub(in crate::config) struct RouteKeys("[[route]]") {
        /// Destinations. No bits may be set beyond the length.
        live prefix: Option<IpNet> = None, prefix().optional().needed("\"192.0.2.0/24\"");
        /// Next hop, see below.
        live via: Option<Vec<Hop>> = None, via().optional();
        /// Alone: destinations are neighbours on this port. With a `via` of one address: the port of that address.
        live port: Option<String> = None, name_of("a port").optional();
        /// Drop and count.
        live blackhole: bool = false, boolean();
        /// Drop, count, and send an ICMP error to the source.
        live unreachable: bool = false, boolean();
        /// The smallest wins among the routes of a prefix.
        live metric: u32 = 0, integer(METRIC);
    }
}

crate::section! {
    /// A member of a next hop that is an array.
    pub(in crate::config) struct Member("route.via") {
        /// Address of the neighbour.
        live via: Option<IpAddr> = None, address().optional();
        /// Alone: destinations are neighbours on this port. With `via`: the port of that address.
        live port: Option<String> = None, name_of("a port").optional();
        /// Share of the flows.
        live weight: u16 = 1, integer(1..=1024);
    }
}

crate::section! {
    /// A file of routes, one `PREFIX [NEXT_HOP]` per line.
    pub(in crate::config) struct RouteFileKeys("[[routes]]") {
        /// Path of the file. A relative path starts at the folder of the configuration.
        live file: Option<PathBuf> = None, file("a file with one prefix per line").optional().needed("\"table.txt.gz\"");
        /// Next hops: each prefix gets one by a hash of the prefix, IPv4 prefixes among those for IPv4, IPv6 prefixes
        /// among those for IPv6.
        live next_hops: Option<Vec<Hop>> = None, next_hops().optional().shown("those in the file");
        /// Number of next hops. Beyond the given ones: the addresses that follow each of them, in turn.
        live spread: Option<usize> = None, integer(1..=65_536).optional().shown("as many as given");
        /// Metric of all its routes.
        live metric: u32 = 0, integer(METRIC);
    }
}

pub(in crate::config) fn route(
    mut section: Section<'_, '_>,
    walk: &mut Walk<'_>,
) -> Option<(Route, RouteSpans)> {
    let keys = section.place();
    let mut raw = RouteKeys::default();
    raw.read(&mut section, walk);
    let (prefix, metric) = (raw.prefix, raw.metric);
    // `blackhole = false` is as if it were absent; a value that is wrong is there.
    let flag = |key, value| section.has(key) && (value || !section.is_right(key));
    let flags = (flag("blackhole", raw.blackhole), flag("unreachable", raw.unreachable));
    let hops = next_hop(raw, flags, &keys, walk);
    section.finish(walk);
    let (next_hop, next_hops) = hops?;
    Some((Route { prefix: prefix?, next_hop, metric }, RouteSpans { keys, next_hops }))
}

/// From `via`, `port`, `blackhole` and `unreachable`, of which only `via` and `port` go together.
fn next_hop(
    raw: RouteKeys,
    (has_blackhole, has_unreachable): (bool, bool),
    keys: &Place,
    walk: &mut Walk<'_>,
) -> Option<(NextHop, Vec<Hop>)> {
    let ways = [
        ("via", keys.has("via")),
        ("port", keys.has("port") && !keys.has("via")),
        ("blackhole", has_blackhole),
        ("unreachable", has_unreachable),
    ];
    let mut given = ways.iter().filter(|(_, is_given)| *is_given).map(|(key, _)| *key);
    let Some(first) = given.next() else {
        if walk.is_whole() {
            walk.error(keys.header(), "a route without a next hop")
                .expected("`via`, `port`, `blackhole = true` or `unreachable = true`");
        }
        return None;
    };
    if let Some(second) = given.next() {
        walk.error(keys.at(second), format!("`{second}` beside `{first}`"))
            .expected("one of `via`, `port`, `blackhole` and `unreachable`");
        return None;
    }

    let leaf = |hop: NextHop, span: Range<usize>| (hop.clone(), vec![(hop, span)]);
    if keys.has("via") {
        let hops = raw.via?;
        if !keys.has("port") {
            return Some((join(&hops), hops));
        }
        let port = raw.port?;
        return match hops.as_slice() {
            [(NextHop::Address { address, port: None }, _)] => {
                let hop = NextHop::Address { address: *address, port: Some(port) };
                Some(leaf(hop, keys.at("via")))
            }
            _ => {
                walk.error(keys.at("port"), "`port` together with a `via` that is not one address")
                    .expected("ports of single members: via = [{ via = \"…\", port = \"…\" }]");
                None
            }
        };
    }
    match first {
        "port" => Some(leaf(NextHop::Port(raw.port?), keys.at("port"))),
        "blackhole" => raw.blackhole.then(|| leaf(NextHop::Blackhole, keys.at("blackhole"))),
        _ => raw.unreachable.then(|| leaf(NextHop::Unreachable, keys.at("unreachable"))),
    }
}

/// A text or an array of members: every member with its place, weights as groups of one.
fn read_via(walk: &mut Walk<'_>, value: &Value<'_>) -> Option<Vec<Hop>> {
    match value.get_ref() {
        DeValue::String(_) => Some(vec![(text(walk, value)?, value.span())]),
        DeValue::Array(array) => {
            let members = walk.elements(array, member);
            if array.is_empty() {
                walk.error(value.span(), "a group without members").expected("at least one member");
            }
            if let Some((_, span)) = members
                .iter()
                .find(|(hop, _)| matches!(hop, NextHop::Blackhole | NextHop::Unreachable))
            {
                walk.error(span.clone(), "a member of a group that drops")
                    .expected("an address or a port");
                return None;
            }
            (!members.is_empty() && members.len() == array.len()).then_some(members)
        }
        _ => wrong_kind(walk, value, VIA),
    }
}

fn text(walk: &mut Walk<'_>, value: &Value<'_>) -> Option<NextHop> {
    let text = string(walk, value)?;
    text.parse().ok().or_else(|| {
        let message = format!("{} is `{text}`", walk.subject());
        walk.error(value.span(), message).expected(VIA);
        None
    })
}

/// A text, or `{ via, port, weight }`.
fn member(walk: &mut Walk<'_>, value: &Value<'_>) -> Option<NextHop> {
    if !matches!(value.get_ref(), DeValue::Table(_)) {
        return text(walk, value);
    }
    let mut section = Section::of(walk, value, "route.via")?;
    let mut raw = Member::default();
    raw.read(&mut section, walk);
    let empty = !section.has("via") && !section.has("port");
    section.finish(walk);
    let Member { via: address, port, weight } = raw;
    let hop = match (address, port) {
        (Some(address), port) => NextHop::Address { address, port },
        (None, Some(port)) => NextHop::Port(port),
        (None, None) if empty => {
            walk.error(value.span(), "a member without `via` and `port`")
                .expected("{ via = \"192.0.2.1\", weight = 2 }");
            return None;
        }
        (None, None) => return None,
    };
    Some(if weight == 1 { hop } else { NextHop::Group(vec![(hop, weight)]) })
}

/// One next hop of all members.
fn join(hops: &[Hop]) -> NextHop {
    if let [(hop, _)] = hops {
        return hop.clone();
    }
    let members = hops.iter().flat_map(|(hop, _)| hop.members());
    NextHop::Group(members.map(|(hop, weight)| (hop.clone(), weight)).collect())
}

fn via() -> Custom<Vec<Hop>> {
    custom("next hop", "a next hop, or an array of members", read_via, |hops| hops_text(hops))
}

fn next_hops() -> Custom<Vec<Hop>> {
    let read = |walk: &mut Walk<'_>, value: &Value<'_>| match value.get_ref() {
        DeValue::Array(array) if !array.is_empty() => {
            let hops = walk.elements(array, member);
            (hops.len() == array.len()).then_some(hops)
        }
        DeValue::String(_) => Some(vec![(text(walk, value)?, value.span())]),
        DeValue::Array(_) => {
            walk.error(value.span(), "`next_hops` is empty").expected("at least one next hop");
            None
        }
        _ => wrong_kind(walk, value, "an array of next hops"),
    };
    custom("array", "an array of next hops", read, |hops| hops_text(hops))
}

fn hops_text(hops: &[Hop]) -> String {
    hops.iter().map(|(hop, _)| hop.to_string()).collect::<Vec<_>>().join(",")
}

pub(in crate::config) fn route_file(
    mut section: Section<'_, '_>,
    walk: &mut Walk<'_>,
) -> Option<(RouteFile, RouteSpans)> {
    let keys = section.place();
    let mut raw = RouteFileKeys::default();
    raw.read(&mut section, walk);
    if keys.has("spread") && !keys.has("next_hops") && walk.is_whole() {
        walk.error(keys.at("spread"), "`spread` without `next_hops`")
            .expected("next_hops = [\"192.0.2.1\", …] with it");
    }
    section.finish(walk);
    let RouteFileKeys { file, next_hops, spread, metric } = raw;
    let mut next_hops = next_hops.unwrap_or_default();
    if let Some(spread) = spread
        && !next_hops.is_empty()
    {
        widen(walk, &mut next_hops, spread, keys.at("spread"))?;
    }
    let family = |v4| {
        let carriers = next_hops.iter().filter(|(hop, _)| hop.carries(v4));
        carriers.map(|(hop, _)| hop.clone()).collect()
    };
    let hops = if next_hops.is_empty() {
        FileNextHops::Tokens
    } else {
        FileNextHops::Spread { v4: family(true), v6: family(false) }
    };
    Some((RouteFile { file: file?, next_hops: hops, metric }, RouteSpans { keys, next_hops }))
}

/// Makes `count` next hops of the given ones: after them, in turn, the addresses that follow each.
fn widen(walk: &mut Walk<'_>, hops: &mut Vec<Hop>, count: usize, span: Range<usize>) -> Option<()> {
    let given = hops.len();
    if count < given {
        walk.error(span, format!("`spread` is {count}, but `next_hops` has {given}"))
            .expected(format!("at least {given}"));
        return None;
    }
    for i in given..count {
        let step = (i / given) as u32;
        let next = match &hops[i % given].0 {
            NextHop::Address { address, port } => {
                let address = match address {
                    IpAddr::V4(v4) => v4.to_bits().checked_add(step).map(|b| IpAddr::V4(b.into())),
                    IpAddr::V6(v6) => {
                        v6.to_bits().checked_add(step.into()).map(|b| IpAddr::V6(b.into()))
                    }
                };
                address.map(|address| NextHop::Address { address, port: port.clone() })
            }
            _ => None,
        };
        let Some(next) = next else {
            let message = format!("`spread` is {count}, but `next_hops` has {given}");
            walk.error(span, message)
                .expected(format!("{given}, or single addresses in `next_hops` to count on from"));
            return None;
        };
        hops.push((next, span.clone()));
    }
    Some(())
}
