//! `[[route]]` and `[[routes]]`.

use std::net::IpAddr;
use std::ops::Range;
use std::path::Path;

use toml::de::DeValue;

use super::RouteSpans;
use super::values::*;
use crate::config::next_hop::NextHop;
use crate::config::types::*;
use crate::config::walk::{Section, Value, Walk, wrong_kind};

const METRIC: std::ops::RangeInclusive<i128> = 0..=u32::MAX as i128;
const VIA: &str = "a next hop: an address, a port, `blackhole`, `unreachable`, or an array";

type Hop = (NextHop, Range<usize>);

pub(super) fn route(
    mut section: Section<'_, '_>,
    walk: &mut Walk<'_>,
) -> Option<(Route, RouteSpans)> {
    let keys = section.place();
    let prefix = section.need(walk, "prefix", "\"192.0.2.0/24\"", prefix);
    let metric = section.take(walk, "metric", integer(METRIC)).unwrap_or(0);
    let hops = next_hop(&mut section, walk);
    section.finish(walk);
    let (next_hop, next_hops) = hops?;
    Some((Route { prefix: prefix?, next_hop, metric }, RouteSpans { keys, next_hops }))
}

/// From `via`, `port`, `blackhole` and `unreachable`, of which only `via` and `port` go together.
fn next_hop(section: &mut Section<'_, '_>, walk: &mut Walk<'_>) -> Option<(NextHop, Vec<Hop>)> {
    let header = section.header();
    let via = section.take(walk, "via", |walk, value| Some((via(walk, value), value.span())));
    let port = section.take(walk, "port", |walk, value| Some((string(walk, value), value.span())));
    let mut flag = |key, hop: NextHop| {
        section.take(walk, key, |walk, value| {
            let on = boolean(walk, value);
            (on != Some(false)).then(|| (on.map(|_| hop), value.span()))
        })
    };
    let blackhole = flag("blackhole", NextHop::Blackhole);
    let unreachable = flag("unreachable", NextHop::Unreachable);

    let ways = [
        ("via", via.as_ref().map(|(_, span)| span)),
        ("port", port.as_ref().map(|(_, span)| span).filter(|_| via.is_none())),
        ("blackhole", blackhole.as_ref().map(|(_, span)| span)),
        ("unreachable", unreachable.as_ref().map(|(_, span)| span)),
    ];
    let mut given = ways.iter().filter_map(|(key, span)| span.map(|span| (*key, span)));
    let Some((first, _)) = given.next() else {
        if walk.is_whole() {
            walk.error(header, "a route without a next hop")
                .expected("`via`, `port`, `blackhole = true` or `unreachable = true`");
        }
        return None;
    };
    if let Some((second, span)) = given.next() {
        walk.error(span.clone(), format!("`{second}` beside `{first}`"))
            .expected("one of `via`, `port`, `blackhole` and `unreachable`");
        return None;
    }

    let leaf = |hop: NextHop, span: Range<usize>| (hop.clone(), vec![(hop, span)]);
    if let Some((hops, span)) = via {
        let hops = hops?;
        let Some((port, port_span)) = port else { return Some((join(&hops), hops)) };
        let port = port?.to_owned();
        return match hops.as_slice() {
            [(NextHop::Address { address, port: None }, _)] => {
                let hop = NextHop::Address { address: *address, port: Some(port) };
                Some(leaf(hop, span))
            }
            _ => {
                walk.error(port_span, "`port` beside a `via` that is not one address")
                    .expected("ports of single members: via = [{ via = \"…\", port = \"…\" }]");
                None
            }
        };
    }
    if let Some((port, span)) = port {
        return Some(leaf(NextHop::Port(port?.to_owned()), span));
    }
    let (hop, span) = blackhole.or(unreachable)?;
    Some(leaf(hop?, span))
}

/// A text or an array of members: every member with its place, weights as groups of one.
fn via(walk: &mut Walk<'_>, value: &Value<'_>) -> Option<Vec<Hop>> {
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
    let address = section.take(walk, "via", address);
    let port = section.take(walk, "port", string).map(str::to_owned);
    let weight = section.take(walk, "weight", integer(1..=1024)).unwrap_or(1);
    let empty = !section.has("via") && !section.has("port");
    section.finish(walk);
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

pub(super) fn route_file(
    mut section: Section<'_, '_>,
    walk: &mut Walk<'_>,
    folder: Option<&Path>,
) -> Option<(RouteFile, RouteSpans)> {
    let keys = section.place();
    let file = section.need(walk, "file", "\"table.txt.gz\"", |walk, value| {
        file(walk, value, folder, "a file with a prefix a line")
    });
    let metric = section.take(walk, "metric", integer(METRIC)).unwrap_or(0);
    let hops = section.take(walk, "next_hops", |walk, value| match value.get_ref() {
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
    });
    let spread = section.take(walk, "spread", |walk, value| {
        integer::<usize>(1..=65_536)(walk, value).map(|spread| (spread, value.span()))
    });
    if keys.has("spread") && !keys.has("next_hops") && walk.is_whole() {
        walk.error(keys.at("spread"), "`spread` without `next_hops`")
            .expected("next_hops = [\"192.0.2.1\", …] beside it");
    }
    section.finish(walk);
    let mut next_hops = hops.unwrap_or_default();
    if let Some((spread, span)) = spread
        && !next_hops.is_empty()
    {
        widen(walk, &mut next_hops, spread, span)?;
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
