//! `[port.NAME]`.

use std::ops::Range;

use toml::de::DeValue;

use super::PortSpans;
use super::values::*;
use crate::config::defaults;
use crate::config::next_hop::is_port_name;
use crate::config::stages::{Application, KnownStages};
use crate::config::types::*;
use crate::config::walk::{Section, Value, Walk, wrong_kind};

/// Longest name of a Linux interface, in bytes.
const INTERFACE_NAME_MAX: usize = 15;

/// Keys of ports with queues; a VLAN subinterface has its parent's.
const PHYSICAL_KEYS: [&str; 9] =
    ["interface", "backend", "xdp", "zero_copy", "queues", "promiscuous", "read", "write", "fault"];

/// `None` where the value is no table. `app`: what the file is about, where that is known. A port with mistakes is still there, so that what names it
/// is not wrong as well.
pub(super) fn port(
    walk: &mut Walk<'_>,
    name: &str,
    name_span: Range<usize>,
    value: &Value<'_>,
    app: Option<&Application>,
    known: &KnownStages,
) -> Option<(Port, PortSpans)> {
    if !is_port_name(name) {
        walk.error(name_span, format!("`{name}` cannot name a port")).expected(
            "at most 32 letters, digits, `.`, `_` and `-`, one letter at least, not blackhole, \
             unreachable, drops, host or all",
        );
    }
    let mut section = Section::of(walk, value, &format!("port.{name}"))?;
    section.hide(known.foreign_port_keys(app));
    let keys = section.place();
    let is_vlan = section.has("vlan") || section.has("parent");
    let (kind, twin_default) = if is_vlan {
        (vlan(&mut section, walk, name), false)
    } else {
        section.get(walk, "parent");
        section.get(walk, "vlan");
        let physical = physical(&mut section, walk, name);
        let twin = app.is_some_and(|app| defaults::has_twin(app, physical.backend));
        (PortKind::Physical(physical), twin)
    };
    let mtu = section.take(walk, "mtu", integer(68..=65_535));
    let mac = section.take(walk, "mac", unicast_mac);
    let addresses = section.take(walk, "addresses", |walk, value| {
        let addresses = array(walk, value, "an array such as [\"192.0.2.1/24\"]")?;
        Some(walk.elements(addresses, interface_address))
    });
    let (addresses, address_spans) = addresses.unwrap_or_default().into_iter().unzip();
    let rpf = section.take(walk, "rpf", word).unwrap_or(Rpf::Off);
    let default = defaults::twin(name);
    let twin = match section.take(walk, "twin", twin) {
        None if !keys.has("twin") => twin_default.then_some(default),
        None | Some(Twin::Off) => None,
        Some(Twin::On) => Some(default),
        Some(Twin::Named(name)) => Some(name),
    };
    if let Some(name) = &twin
        && name.len() > INTERFACE_NAME_MAX
    {
        walk.error(keys.at("twin"), format!("the twin's name `{name}` is too long"))
            .expected(format!("at most {INTERFACE_NAME_MAX} bytes"))
            .help("name it: twin = \"short\"");
    }
    let bridging = super::switch::bridging(&mut section, walk, name);
    section.finish(walk);
    let port = Port { name: name.to_owned(), kind, mtu, mac, addresses, rpf, twin, bridging };
    Some((port, PortSpans { keys, addresses: address_spans }))
}

enum Twin {
    On,
    Off,
    Named(String),
}

fn twin(walk: &mut Walk<'_>, value: &Value<'_>) -> Option<Twin> {
    match value.get_ref() {
        DeValue::Boolean(true) => Some(Twin::On),
        DeValue::Boolean(false) => Some(Twin::Off),
        DeValue::String(_) => interface(walk, value).map(Twin::Named),
        _ => wrong_kind(walk, value, "true, false or the twin's name"),
    }
}

fn physical(section: &mut Section<'_, '_>, walk: &mut Walk<'_>, name: &str) -> Physical {
    let mut physical = defaults::physical(name);
    section.set(walk, "interface", &mut physical.interface, interface);
    section.set(walk, "backend", &mut physical.backend, word);
    section.set(walk, "xdp", &mut physical.xdp, word);
    section.set(walk, "zero_copy", &mut physical.zero_copy, word);
    section.set(walk, "queues", &mut physical.queues, |walk, value| match value.get_ref() {
        DeValue::String(text) if text == "auto" => Some(None),
        DeValue::Integer(_) => integer(1..=256)(walk, value).map(Some),
        _ => {
            let message = format!("{} is no number of queues", walk.subject());
            walk.error(value.span(), message).expected("\"auto\" or an integer from 1 to 256");
            None
        }
    });
    section.set(walk, "promiscuous", &mut physical.promiscuous, boolean);
    physical.read = section.take(walk, "read", path);
    physical.write = section.take(walk, "write", path);
    let fault = section
        .take(walk, "fault", |walk, value| Section::of(walk, value, &format!("port.{name}.fault")));
    if let Some(mut section) = fault {
        let mut fault = defaults::fault();
        section.set(walk, "loss", &mut fault.loss, probability);
        section.set(walk, "duplicate", &mut fault.duplicate, probability);
        section.set(walk, "reorder", &mut fault.reorder, probability);
        section.set(walk, "corrupt", &mut fault.corrupt, probability);
        section.set(walk, "seed", &mut fault.seed, integer(0..=i128::from(u64::MAX)));
        section.finish(walk);
        physical.fault = Some(fault);
    }
    physical
}

fn vlan(section: &mut Section<'_, '_>, walk: &mut Walk<'_>, name: &str) -> PortKind {
    for key in PHYSICAL_KEYS {
        if let Some(value) = section.get(walk, key) {
            walk.error(value.span(), format!("`{key}` in a VLAN subinterface"))
                .expected(format!("`{key}` in the port that `parent` names"));
        }
    }
    let id = integer(1..=4094);
    let parent = section.need(walk, "parent", "\"lan\"", string);
    let tag = section.need(walk, "vlan", "100", |walk, value| match value.get_ref() {
        DeValue::Integer(_) => id(walk, value).map(VlanTag::Single),
        DeValue::Array(array) if array.len() == 2 => match walk.elements(array, &id).as_slice() {
            [(outer, _), (inner, _)] => Some(VlanTag::Double(*outer, *inner)),
            _ => None,
        },
        _ => {
            let message = format!("`vlan` of `{name}` is no VLAN");
            walk.error(value.span(), message)
                .expected("an integer from 1 to 4094, or two of them: [outer, inner]");
            None
        }
    });
    PortKind::Vlan {
        parent: parent.unwrap_or_default().to_owned(),
        // 0 is no VLAN: the checks pass it over.
        tag: tag.unwrap_or(VlanTag::Single(0)),
    }
}

/// A name that the kernel takes for an interface.
fn interface(walk: &mut Walk<'_>, value: &Value<'_>) -> Option<String> {
    let text = string(walk, value)?;
    if !is_interface_name(text) {
        let message = format!("{} `{text}` cannot name an interface", walk.subject());
        walk.error(value.span(), message)
            .expected(format!("1 to {INTERFACE_NAME_MAX} bytes without spaces, `/` and `:`"));
        return None;
    }
    Some(text.to_owned())
}

fn is_interface_name(name: &str) -> bool {
    let bad = |c: char| c.is_whitespace() || c.is_control() || c == '/' || c == ':';
    (1..=INTERFACE_NAME_MAX).contains(&name.len())
        && name != "."
        && name != ".."
        && !name.contains(bad)
}

fn path(walk: &mut Walk<'_>, value: &Value<'_>) -> Option<std::path::PathBuf> {
    let text = string(walk, value)?;
    if text.is_empty() || text.contains('\0') {
        let message = format!("{} is no path", walk.subject());
        walk.error(value.span(), message).expected("the path of a capture file");
        return None;
    }
    Some(text.into())
}
