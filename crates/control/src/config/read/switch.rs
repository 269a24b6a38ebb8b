//! `[switch]`, `[[station]]`, and what makes a `[port.NAME]` one of a switch.

use std::time::Duration;

use lookup::bridge::{PortMode, StormRate, VLAN_MAX, VlanSet};
use toml::de::DeValue;

use super::values::*;
use crate::config::defaults;
use crate::config::types::*;
use crate::config::walk::{Place, Section, Value, Walk, wrong_kind};

/// A VLAN of a tag (IEEE 802.1Q §9.6).
const VLANS: std::ops::RangeInclusive<i128> = 1..=VLAN_MAX as i128;

pub(super) fn switch(section: &mut Section<'_, '_>, walk: &mut Walk<'_>, switch: &mut Switch) {
    section.set(walk, "stations", &mut switch.stations, integer(16..=1 << 26));
    section.set(walk, "ageing", &mut switch.ageing, |walk, value| match value.get_ref() {
        DeValue::String(text) if text == "off" => Some(Duration::ZERO),
        // IEEE 802.1Q-2018 §8.8.3 has 10 s at least; less serves tests.
        _ => duration(walk, value, 1_000_000_000, 1_000_000_000_000_000),
    });
}

pub(super) fn station(mut section: Section<'_, '_>, walk: &mut Walk<'_>) -> (Station, Place) {
    let port = section.need(walk, "port", "\"lan\"", string);
    let mac = section.need(walk, "mac", "\"02:00:5e:10:00:07\"", unicast_mac);
    let vlan = section.take(walk, "vlan", integer(VLANS));
    let place = section.place();
    section.finish(walk);
    let port = port.unwrap_or_default().to_owned();
    (Station { port, vlan, mac: mac.unwrap_or_default() }, place)
}

/// `access`, `trunk`, `native`, `learning` and `storm` of a port.
pub(super) fn bridging(section: &mut Section<'_, '_>, walk: &mut Walk<'_>, name: &str) -> Bridging {
    let place = section.place();
    let mut bridging = defaults::bridging();
    let access = section.take(walk, "access", integer(VLANS));
    let trunk = section.take(walk, "trunk", vlans);
    let native = section.take(walk, "native", integer(VLANS));
    if place.has("access") && place.has("trunk") {
        walk.error(place.at("trunk"), "a port has either `access` or `trunk`")
            .expected("one of them: `native` is the VLAN of a trunk's frames without a tag");
    } else if place.has("native") && !place.has("trunk") {
        walk.error(place.at("native"), "`native` without `trunk`")
            .expected("`access = VLAN` for a port of one VLAN");
    }
    if let Some(vlan) = access {
        bridging.mode = PortMode::Access(vlan);
    } else if let Some(allowed) = trunk {
        bridging.mode = PortMode::Trunk { native, allowed };
    }
    section.set(walk, "learning", &mut bridging.learning, boolean);
    let storm = section
        .take(walk, "storm", |walk, value| Section::of(walk, value, &format!("port.{name}.storm")));
    if let Some(mut section) = storm {
        let rates = ["broadcast", "multicast", "unknown"]
            .map(|kind| section.take(walk, kind, rate::<u32>(0..=1_000_000_000)));
        let burst = section.take(walk, "burst", integer(1..=1_000_000));
        section.finish(walk);
        let [broadcast, multicast, unknown] = rates.map(|rate| {
            let packets_per_s = rate?;
            // A tenth of a second at once.
            let burst = burst.unwrap_or((packets_per_s / 10).clamp(1, 1_000_000));
            Some(StormRate { packets_per_s, burst })
        });
        bridging.storm = lookup::bridge::StormLimits { broadcast, multicast, unknown };
    }
    bridging
}

/// "all", or an array of VLANs and ranges of them.
fn vlans(walk: &mut Walk<'_>, value: &Value<'_>) -> Option<VlanSet> {
    const EXPECTED: &str = "\"all\" or an array of VLANs and ranges such as [10, \"20-29\"]";
    match value.get_ref() {
        DeValue::String(text) if text == "all" => Some(VlanSet::all()),
        DeValue::Array(array) => {
            let ranges = walk.elements(array, |walk, value| match value.get_ref() {
                DeValue::Integer(_) => integer(VLANS)(walk, value).map(|vlan: u16| vlan..=vlan),
                DeValue::String(text) => range(text).or_else(|| {
                    let message = format!("{} is `{text}`", walk.subject());
                    walk.error(value.span(), message).expected(format!(
                        "a range of VLANs from 1 to {VLAN_MAX} such as \"20-29\""
                    ));
                    None
                }),
                _ => wrong_kind(walk, value, "a VLAN or a range such as \"20-29\""),
            });
            Some(ranges.into_iter().flat_map(|(range, _)| range).collect())
        }
        _ => wrong_kind(walk, value, EXPECTED),
    }
}

fn range(text: &str) -> Option<std::ops::RangeInclusive<u16>> {
    let (first, last) = text.split_once('-')?;
    let number = |text: &str| text.trim().parse().ok().filter(|vlan| (1..=VLAN_MAX).contains(vlan));
    let (first, last) = (number(first)?, number(last)?);
    (first <= last).then_some(first..=last)
}
