//! What a switch shows: rows of `show macs`, its part of `show runtime`, its metrics.

use control::api::table::{Row, counts, thousands, time};
use control::metrics::Metrics;
use serde::{Deserialize, Serialize};

/// One station of a switch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MacRow {
    /// Its VLAN.
    pub vlan: u16,
    /// `aa:bb:cc:dd:ee:ff`.
    pub mac: String,
    /// Port's name.
    pub port: String,
    /// Whether it is configured; else it was learned.
    #[serde(rename = "static")]
    pub is_static: bool,
    /// Since it was last seen, to the second; `None`: static.
    pub age_s: Option<u32>,
}

impl Row for MacRow {
    const COLUMNS: &'static [&'static str] = &[">vlan", "mac", "port", "kind", ">age"];
    const EMPTY: &'static str = "no stations";

    fn cells(&self) -> Vec<String> {
        vec![
            self.vlan.to_string(),
            self.mac.clone(),
            self.port.clone(),
            if self.is_static { "static" } else { "learned" }.to_owned(),
            self.age_s.map(|age_s| time(age_s.into())).unwrap_or_default(),
        ]
    }
}

/// What a switch knows, and what it did beside the fates of the frames that it was given.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SwitchTotals {
    /// Stations known, static ones among them.
    pub stations: u64,
    /// Room for stations.
    pub stations_max: u64,
    /// Stations learned.
    pub learned: u64,
    /// Stations that changed their port.
    pub moved: u64,
    /// Stations forgotten because they were not seen.
    pub aged: u64,
    /// Stations forgotten by command, or because their port went down.
    pub flushed: u64,
    /// Stations that gave way to others in a full table, or to a smaller limit of their port.
    pub evicted: u64,
    /// Stations for which there was no room.
    pub refused: u64,
    /// Frames of unknown stations in a full table that were not learned.
    pub table_full: u64,
    /// Frames of unknown stations on ports with their maximum number of stations.
    pub port_full: u64,
    /// Station events lost because the channel to control was full; the next frame repeats them.
    pub events_lost: u64,
    /// Frames that were flooded.
    pub flooded: u64,
    /// Copies made of them, beside the frame itself.
    pub copies: u64,
    /// Copies for which no cell was free.
    pub copies_lost: u64,
}

impl SwitchTotals {
    /// Its lines of `show runtime`.
    pub fn lines(&self) -> Vec<[String; 2]> {
        let t = self;
        let stations = format!("{} of {}", thousands(t.stations), thousands(t.stations_max));
        let learned =
            [(t.learned, "learned"), (t.moved, "moved"), (t.aged, "aged"), (t.flushed, "flushed")];
        let refused = t.refused + t.table_full + t.port_full;
        let refused =
            [(t.evicted, "replaced"), (refused, "refused"), (t.events_lost, "events lost")];
        let flooded = [(t.flooded, "frames"), (t.copies, "copies"), (t.copies_lost, "copies lost")];
        vec![
            ["stations".to_owned(), stations],
            ["".to_owned(), counts(&learned)],
            ["".to_owned(), counts(&refused)],
            ["flooded".to_owned(), counts(&flooded)],
        ]
    }

    /// Its families.
    pub fn metrics(&self, out: &mut Metrics) {
        let totals = self;
        out.gauge("stations", "Known stations.").sample(&[], totals.stations);
        out.gauge("stations_max", "Maximum number of stations.").sample(&[], totals.stations_max);
        let families = [
            ("stations_learned_total", "Stations learned.", totals.learned),
            ("stations_moved_total", "Stations that moved to another port.", totals.moved),
            ("stations_aged_total", "Stations removed after the ageing time.", totals.aged),
            (
                "stations_flushed_total",
                "Stations removed by a command or a link failure.",
                totals.flushed,
            ),
            (
                "stations_evicted_total",
                "Stations replaced by others in a full table or removed by a smaller limit of their port.",
                totals.evicted,
            ),
            (
                "stations_refused_total",
                "Stations not learned because of their port's limit or a table full of static stations.",
                totals.refused,
            ),
            ("station_events_lost_total", "Station events lost (queue full).", totals.events_lost),
            ("flooded_packets_total", "Frames flooded.", totals.flooded),
            ("flood_copies_total", "Copies of flooded frames.", totals.copies),
            ("flood_copies_lost_total", "Copies lost for lack of a cell.", totals.copies_lost),
        ];
        for (name, help, value) in families {
            out.counter(name, help).sample(&[], value);
        }
    }
}

#[cfg(test)]
mod tests {
    use control::api::table::table;
    use control::metrics::{Snapshot, encode};

    use super::*;

    #[test]
    fn stations_are_shown() {
        let row = MacRow {
            vlan: 7,
            mac: "02:00:00:00:00:01".to_owned(),
            port: "p1".to_owned(),
            is_static: false,
            age_s: Some(12),
        };
        let expected = "vlan  mac                port  kind        age\n   7  02:00:00:00:00:01  p1    learned  12.0 s\n";
        assert_eq!(table(std::slice::from_ref(&row)), expected);
        let json = r#"{"vlan":7,"mac":"02:00:00:00:00:01","port":"p1","static":false,"age_s":12}"#;
        assert_eq!(serde_json::to_string(&row).unwrap(), json);
        assert_eq!(table::<MacRow>(&[]), "no stations\n");
    }

    #[test]
    fn totals_are_shown() {
        let totals = SwitchTotals {
            stations: 12,
            stations_max: 4096,
            moved: 5,
            evicted: 4,
            refused: 1,
            table_full: 2,
            ..SwitchTotals::default()
        };
        let lines: String =
            totals.lines().iter().map(|[title, text]| format!("{title}: {text}\n")).collect();
        assert_eq!(
            lines,
            "stations: 12 of 4,096\n: 0 learned, 5 moved, 0 aged, 0 flushed\n\
             : 4 replaced, 3 refused, 0 events lost\nflooded: 0 frames, 0 copies, 0 copies lost\n"
        );
        let text = encode(&Snapshot::default(), |out| totals.metrics(out));
        for line in ["shadeline_stations 12", "shadeline_stations_moved_total 5"] {
            assert!(text.lines().any(|other| other == line), "{line}\nnot in\n{text}");
        }
    }
}
