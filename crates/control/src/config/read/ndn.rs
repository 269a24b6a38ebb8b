//! `[ndn]`, `[ndn.face.NAME]`, `[[name]]` and `[[names]]`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;
use std::path::{Path, PathBuf};

use packet::ndn::{MULTICAST_MAC, UDP_PORT};
use toml::de::DeValue;

use super::NameSpans;
use super::values::*;
use crate::config::names::parse_prefix;
use crate::config::next_hop::is_port_name;
use crate::config::types::*;
use crate::config::walk::{Place, Section, Value, Walk};

/// Faces whose counters the forwarder makes at the start.
const FACES_MAX: usize = 1024;

pub(super) fn ndn(
    section: &mut Section<'_, '_>,
    walk: &mut Walk<'_>,
    ndn: &mut Ndn,
) -> Vec<(Face, Place)> {
    section.set(walk, "names", &mut ndn.names, integer(16..=1 << 26));
    section.set(walk, "pit_entries", &mut ndn.pit_entries, integer(16..=1 << 24));
    section.set(walk, "lifetime_max", &mut ndn.lifetime_max, |walk, value| {
        duration(walk, value, 1_000_000, 3_600_000_000_000)
    });
    section.set(walk, "nack", &mut ndn.nack, boolean);
    let faces = section.take(walk, "face", |walk, value| {
        Some((Section::of(walk, value, "ndn.face")?, value.span()))
    });
    let Some((faces, span)) = faces else { return Vec::new() };
    let entries = faces.entries();
    if entries.len() > FACES_MAX {
        walk.error(span, format!("{} faces", entries.len()))
            .expected(format!("at most {FACES_MAX}"));
    }
    let read = |(name, span, value)| face(walk, name, span, value);
    entries.into_iter().filter_map(read).collect()
}

/// `None` where the value is no table.
fn face(
    walk: &mut Walk<'_>,
    name: &str,
    name_span: Range<usize>,
    value: &Value<'_>,
) -> Option<(Face, Place)> {
    if !is_port_name(name) {
        walk.error(name_span, format!("`{name}` cannot name a face")).expected(
            "at most 32 letters, digits, `.`, `_` and `-`, one letter at least, not blackhole, \
             unreachable, drops, host or all",
        );
    }
    let mut section = Section::of(walk, value, &format!("ndn.face.{name}"))?;
    let port = section.need(walk, "port", "\"lan\"", string);
    let is_udp = section.has("local") || section.has("remote");
    let link = if is_udp {
        let local = section.need(walk, "local", "\"192.0.2.1\"", socket);
        let remote = section.need(walk, "remote", "\"192.0.2.2:6363\"", socket);
        let gateway = section.take(walk, "gateway", address);
        let mac = section.take(walk, "mac", unicast_mac);
        let (local, remote) =
            (local.unwrap_or_else(|| any_like(remote)), remote.unwrap_or_else(|| any_like(local)));
        FaceLink::Udp { local, remote, gateway, mac }
    } else {
        let mac = section.take(walk, "mac", |walk, value| match value.get_ref() {
            DeValue::String(text) if text.parse() == Ok(MULTICAST_MAC) => Some(MULTICAST_MAC),
            _ => unicast_mac(walk, value),
        });
        section.get(walk, "local");
        section.get(walk, "remote");
        if let Some(value) = section.get(walk, "gateway") {
            walk.error(value.span(), "`gateway` at a face over Ethernet")
                .expected("`local` and `remote` beside it, for a face over UDP");
        }
        FaceLink::Ethernet { mac: mac.unwrap_or(MULTICAST_MAC) }
    };
    let keys = section.place();
    section.finish(walk);
    let port = port.unwrap_or_default().to_owned();
    Some((Face { name: name.to_owned(), port, link }, keys))
}

/// Stands in for the end of a UDP face whose other end is known.
fn any_like(other: Option<SocketAddr>) -> SocketAddr {
    let is_v6 = other.is_some_and(|other| other.is_ipv6());
    let any: IpAddr =
        if is_v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    (any, 0).into()
}

/// An address with a UDP port, NDN's own if it is left out.
fn socket(walk: &mut Walk<'_>, value: &Value<'_>) -> Option<SocketAddr> {
    let text = string(walk, value)?;
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let whole = text.parse().ok().filter(|socket: &SocketAddr| socket.port() != 0);
    let found = whole.or_else(|| Some((bare.parse::<IpAddr>().ok()?, UDP_PORT).into()));
    // A scope says what `port` says.
    found.filter(|socket| !matches!(socket, SocketAddr::V6(v6) if v6.scope_id() != 0)).or_else(
        || {
            let message = format!("{} is `{text}`", walk.subject());
            walk.error(value.span(), message).expected(
                "ADDRESS or ADDRESS:PORT such as \"192.0.2.1:6363\" or \"[2001:db8::1]:6363\"",
            );
            None
        },
    )
}

pub(super) fn name(mut section: Section<'_, '_>, walk: &mut Walk<'_>) -> (NameRoute, NameSpans) {
    let prefix = section.need(walk, "prefix", "\"/org/example\"", |walk, value| {
        let text = string(walk, value)?;
        match parse_prefix(text) {
            Ok(prefix) => Some(prefix),
            Err(error) => {
                let message = format!("{} is no name: {error}", walk.subject());
                walk.error(value.span(), message).expected("a name such as \"/org/example\"");
                None
            }
        }
    });
    let faces = section.need(walk, "faces", "[\"west\"]", |walk, value| {
        let faces = array(walk, value, "an array of names of faces")?;
        if faces.is_empty() {
            walk.error(value.span(), "`faces` is empty").expected("at least one face");
            return None;
        }
        Some(walk.elements(faces, string))
    });
    let keys = section.place();
    section.finish(walk);
    let faces = faces.unwrap_or_default().into_iter();
    let (faces, spans) = faces.map(|(face, span)| (face.to_owned(), span)).unzip();
    (NameRoute { prefix: prefix.unwrap_or_default(), faces }, NameSpans { keys, faces: spans })
}

pub(super) fn names(
    mut section: Section<'_, '_>,
    walk: &mut Walk<'_>,
    folder: Option<&Path>,
) -> Option<PathBuf> {
    let file = section.need(walk, "file", "\"names.txt.gz\"", |walk, value| {
        file(walk, value, folder, "a file with NAME FACE[,FACE] a line")
    });
    section.finish(walk);
    file
}
