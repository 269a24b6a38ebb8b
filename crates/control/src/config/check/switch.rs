//! What a switch has.

use std::collections::HashSet;

use lookup::bridge::PortMode;

use super::addresses::unknown_port;
use crate::config::read::Spans;
use crate::config::types::*;
use crate::config::walk::Walk;

/// Static stations.
pub(super) fn check(config: &Config, spans: &Spans, walk: &mut Walk<'_>) {
    let mut known = HashSet::new();
    for (station, place) in config.stations.iter().zip(&spans.stations) {
        if !place.is_right("port") {
            continue;
        }
        let Some(port) = config.port(&station.port) else {
            unknown_port(config, &station.port, place.at("port"), walk);
            continue;
        };
        if !config.pipeline_of(&port.name).uses("switch") {
            walk.error(place.at("port"), format!("`{}` is not a port of a switch", port.name))
                .expected("a port whose pipeline has the stages of a switch");
            continue;
        }
        if !place.is_right("vlan") {
            continue;
        }
        let untagged = match &port.bridging.mode {
            PortMode::Access(vlan) => Some(*vlan),
            PortMode::Trunk { native, .. } => *native,
        };
        let Some(vlan) = station.vlan.or(untagged) else {
            walk.error(
                place.at("port"),
                format!("`{}` has no VLAN for untagged frames", port.name),
            )
            .expected("the station's VLAN: vlan = 10");
            continue;
        };
        let carries = match &port.bridging.mode {
            PortMode::Access(own) => *own == vlan,
            PortMode::Trunk { native, allowed } => *native == Some(vlan) || allowed.has(vlan),
        };
        if !carries {
            walk.error(
                place.at("vlan"),
                format!("port `{}` does not carry VLAN {vlan}", port.name),
            )
            .expected("a VLAN of the port");
        } else if place.is_right("mac") && !known.insert((vlan, station.mac)) {
            walk.error(
                place.at("mac"),
                format!("station {} of VLAN {vlan} is listed twice", station.mac),
            )
            .expected("each station of a VLAN once");
        }
    }
    if config.stations.len() > config.switch.stations as usize {
        walk.error(
            spans.switch.at("stations"),
            format!("room for {} stations", config.switch.stations),
        )
        .expected(format!("room for the {} of [[station]] at least", config.stations.len()));
    }
}
