//! `[switch]`, `[[station]]`, and the keys of a port of a switch.

use std::ops::RangeInclusive;
use std::time::Duration;

use lookup::bridge::{PortMode, StormLimits, StormRate, VLAN_MAX, VlanSet};
use packet::MacAddr;
use toml::de::DeValue;

use crate::config::kinds::{
    Custom, Kind, boolean, custom, duration, integer, name_of, or_word, rate, table, unicast_mac,
    words,
};
use crate::config::section::SectionValue;
use crate::config::values::{self, Value, Walk, wrong_kind};
use crate::config::walk::{Place, Section};

/// A VLAN of a tag (IEEE 802.1Q §9.6).
const VLANS: RangeInclusive<i128> = 1..=VLAN_MAX as i128;

crate::section! {
    /// Forwarding by MAC address.
    #[derive(Eq)]
    pub struct Switch("switch") {
        /// Maximum number of stations, including static ones. In a full table a new station replaces the oldest one of the
        /// port with the most learned stations.
        restart stations: u32 = 1 << 20, integer(16..=1 << 26);
        /// A station that has not been seen for this long is removed (IEEE 802.1Q-2018 table 8-6). `"off"`: stations
        /// are never removed.
        // §8.8.3 has 10 s at least; less serves tests.
        live ageing: Duration = Duration::from_secs(300),
            or_word("off", Duration::ZERO, duration(Duration::from_secs(1)..=Duration::from_secs(1_000_000)));
    }
}

crate::section! {
    /// A station that is known from the start, does not age and does not move.
    #[derive(Eq, Hash)]
    pub struct Station("[[station]]") {
        /// Port that the station is on.
        live port: String = String::new(), name_of("a port").needed("\"lan\"");
        /// MAC address of the station.
        live mac: MacAddr = MacAddr::default(), unicast_mac().needed("\"02:00:5e:10:00:07\"");
        /// VLAN of the station, one that the port carries.
        live vlan: Option<u16> = None, integer(VLANS).optional().shown("that of the port's untagged frames");
    }
}

crate::section! {
    /// VLANs of a port of a switch.
    #[derive(Eq)]
    pub(in crate::config) struct PortVlans("port.NAME") {
        /// The only VLAN of the port. Its frames are untagged.
        // IEEE 802.1Q-2018 table 9-2.
        live access: Option<u16> = None, integer(VLANS).optional().shown("`1`");
        /// Instead of `access`: the VLANs whose frames are tagged, `"all"` or an array of VLANs and ranges such as
        /// `[10, "20-29"]`.
        live trunk: Option<VlanSet> = None, vlans().optional();
        /// With `trunk`: the VLAN of untagged frames. Untagged frames are dropped without this key.
        live native: Option<u16> = None, integer(VLANS).optional();
    }
}

crate::section! {
    /// What a port of a switch carries.
    #[derive(Eq)]
    pub struct Bridging("port.NAME") {
        /// Learn the stations of received frames.
        live learning: bool = true, boolean();
        /// Maximum number of learned stations on the port. Those of `[[station]]` do not count. 0: no station is learned.
        live stations: Option<u32> = None, integer(0..=1 << 26).optional().shown("no limit");
        /// With `stations`: frames from stations beyond the limit. `ignore`: they are forwarded, and their senders are
        /// not learned. `drop`: they are dropped as `station_limit`.
        live extra_stations: ExtraStations = ExtraStations::Ignore, words();
        /// Limits for flooded frames that the port receives, see below.
        live storm: StormLimits = StormLimits::default(), Storms;
    }
    also {
        /// `access`, or `trunk` and `native`.
        mode: PortMode = PortMode::Access(1);
    }
}

crate::words! {
    /// `port.extra_stations`.
    pub enum ExtraStations {
        /// They are forwarded and not learned.
        Ignore = "ignore",
        /// They are dropped.
        Drop = "drop",
    }
}

crate::section! {
    /// Limits of flooded frames that a port of a switch receives.
    pub(in crate::config) struct Storm("port.NAME.storm") {
        /// Broadcast frames. 0: none.
        live broadcast: Option<u32> = None, rate(0..=1_000_000_000).optional().shown("no limit");
        /// Multicast frames. 0: none.
        live multicast: Option<u32> = None, rate(0..=1_000_000_000).optional().shown("no limit");
        /// Frames to stations that are in no table. 0: none.
        live unknown: Option<u32> = None, rate(0..=1_000_000_000).optional().shown("no limit");
        /// Frames of each kind that may arrive at once.
        live burst: Option<u32> = None, integer(1..=1_000_000).optional().shown("frames of 0.1 s");
    }
}

/// `storm`: a table that becomes limits.
struct Storms;

impl Kind for Storms {
    type Value = StormLimits;

    fn read(&self, walk: &mut Walk<'_>, value: &Value<'_>) -> Option<StormLimits> {
        let Storm { broadcast, multicast, unknown, burst } = table().read(walk, value)?;
        let [broadcast, multicast, unknown] = [broadcast, multicast, unknown].map(|rate| {
            let packets_per_s = rate?;
            // A tenth of a second at once.
            let burst = burst.unwrap_or((packets_per_s / 10).clamp(1, 1_000_000));
            Some(StormRate { packets_per_s, burst })
        });
        Some(StormLimits { broadcast, multicast, unknown })
    }

    fn text(&self, limits: &StormLimits) -> String {
        let kinds = [limits.broadcast, limits.multicast, limits.unknown];
        let rates = kinds.map(|limit| match limit {
            None => "-".to_owned(),
            Some(StormRate { packets_per_s, burst }) => format!("{packets_per_s}/s burst {burst}"),
        });
        rates.join(", ")
    }

    fn name(&self) -> &'static str {
        "table"
    }

    fn allowed(&self) -> String {
        table::<Storm>().allowed()
    }

    fn default_words(&self) -> Option<&'static str> {
        Some("no limits")
    }
}

/// The keys of a port of a switch.
pub(super) fn bridging(section: &mut Section<'_, '_>, walk: &mut Walk<'_>) -> Bridging {
    let place = section.place();
    let mut vlans = PortVlans::default();
    vlans.read(section, walk);
    if place.has("access") && place.has("trunk") {
        walk.error(place.at("trunk"), "a port has either `access` or `trunk`")
            .expected("one of them: `native` is the VLAN of untagged frames of a trunk");
    } else if place.has("native") && !place.has("trunk") {
        walk.error(place.at("native"), "`native` without `trunk`")
            .expected("`access = VLAN` for a port of one VLAN");
    }
    if place.has("extra_stations") && !place.has("stations") {
        walk.error(place.at("extra_stations"), "`extra_stations` without `stations`")
            .expected("the limit of the port: stations = 4");
    }
    let mut bridging = Bridging::default();
    if let Some(vlan) = vlans.access {
        bridging.mode = PortMode::Access(vlan);
    } else if let Some(allowed) = vlans.trunk {
        bridging.mode = PortMode::Trunk { native: vlans.native, allowed };
    }
    bridging.read(section, walk);
    bridging
}

/// `access 10`, `trunk 10,20-29 native 1`.
pub(in crate::config) fn mode_text(mode: &PortMode) -> String {
    match mode {
        PortMode::Access(vlan) => format!("access {vlan}"),
        PortMode::Trunk { native, allowed } => {
            let native = native.map_or_else(String::new, |vlan| format!(" native {vlan}"));
            format!("trunk {allowed}{native}")
        }
    }
}

pub(in crate::config) fn station(
    mut section: Section<'_, '_>,
    walk: &mut Walk<'_>,
) -> (Station, Place) {
    let mut station = Station::default();
    station.read(&mut section, walk);
    let place = section.place();
    section.finish(walk);
    (station, place)
}

/// "all", or an array of VLANs and ranges of them.
fn vlans() -> Custom<VlanSet> {
    let allowed = "`\"all\"`, or an array of VLANs and ranges";
    custom("VLANs", allowed, read_vlans, VlanSet::to_string)
}

fn read_vlans(walk: &mut Walk<'_>, value: &Value<'_>) -> Option<VlanSet> {
    const EXPECTED: &str = "\"all\" or an array of VLANs and ranges such as [10, \"20-29\"]";
    match value.get_ref() {
        DeValue::String(text) if text == "all" => Some(VlanSet::all()),
        DeValue::Array(array) => {
            let ranges = walk.elements(array, |walk, value| match value.get_ref() {
                DeValue::Integer(_) => {
                    values::integer(VLANS)(walk, value).map(|vlan: u16| vlan..=vlan)
                }
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

fn range(text: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-')?;
    let number = |text: &str| text.trim().parse().ok().filter(|vlan| (1..=VLAN_MAX).contains(vlan));
    let (first, last) = (number(first)?, number(last)?);
    (first <= last).then_some(first..=last)
}
