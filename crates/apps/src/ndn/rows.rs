//! What a named-data forwarder shows: rows of `show faces` and `show names`, its part of `show runtime`, its metrics.

use std::net::SocketAddr;

use control::api::table::{Row, counts, list, thousands};
use control::metrics::Metrics;
use serde::{Deserialize, Serialize};

use super::name_routes::Source;

/// One face of a named-data forwarder.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FaceRow {
    /// As in the configuration; `@N` of a face on demand.
    pub name: String,
    /// `ethernet`, `group` (of all forwarders on the link), `udp`, or `on-demand` (UDP, for who sent first).
    pub kind: String,
    /// Port's name.
    pub port: String,
    /// UDP: our end and the neighbour's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ends: Option<[SocketAddr; 2]>,
    /// Where its frames go; `None` while it is not known.
    pub mac: Option<String>,
    /// `up`, `down` (the port is), or `unresolved` (the MAC is not known).
    pub state: String,
    /// Interests that came in.
    pub in_interests: u64,
    /// Data that came in.
    pub in_data: u64,
    /// Interests that went out.
    pub out_interests: u64,
    /// Data that went out.
    pub out_data: u64,
}

impl Row for FaceRow {
    const COLUMNS: &'static [&'static str] = &[
        "face",
        "kind",
        "port",
        "state",
        "mac",
        "ends",
        ">rx interests",
        ">data",
        ">tx interests",
        ">data",
    ];
    const EMPTY: &'static str = "no faces";

    fn cells(&self) -> Vec<String> {
        let mut cells = vec![
            self.name.clone(),
            self.kind.clone(),
            self.port.clone(),
            self.state.clone(),
            self.mac.clone().unwrap_or_default(),
            self.ends.map(|[local, remote]| format!("{local} - {remote}")).unwrap_or_default(),
        ];
        let counters = [self.in_interests, self.in_data, self.out_interests, self.out_data];
        cells.extend(counters.map(thousands));
        cells
    }
}

/// One route for names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NameRow {
    /// What names begin with.
    pub prefix: String,
    /// Names of faces, best first.
    pub faces: Vec<String>,
    /// The kind of source that announced it.
    pub source: Source,
    /// It is the one in use among those of its prefix.
    pub active: bool,
}

impl Row for NameRow {
    const COLUMNS: &'static [&'static str] = &["", "prefix", "faces", "source"];
    const EMPTY: &'static str = "no routes for names";

    fn cells(&self) -> Vec<String> {
        vec![
            if self.active { "*" } else { "-" }.to_owned(),
            self.prefix.clone(),
            list(&self.faces),
            self.source.to_string(),
        ]
    }
}

/// What a named-data forwarder knows, and what it did beside the fates of the packets that it was given.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NdnTotals {
    /// Prefixes in the table.
    pub names: u64,
    /// Room for prefixes.
    pub names_max: u64,
    /// Faces.
    pub faces: u64,
    /// Of these, faces on demand.
    pub on_demand: u64,
    /// Interests that are pending now, over all workers.
    pub pending: u64,
    /// Room for them.
    pub pending_max: u64,
    /// Interests whose time ended without Data.
    pub expired: u64,
    /// Data in the content stores of all workers.
    pub stored: u64,
    /// Room for them.
    pub stored_max: u64,
    /// Bytes of them, each rounded up to a multiple of 256.
    pub stored_bytes: u64,
    /// Interests that the content store answered.
    pub store_hits: u64,
    /// Interests that it could not answer.
    pub store_misses: u64,
    /// Data removed to make room.
    pub store_evicted: u64,
    /// Interests that went out.
    pub interests: u64,
    /// Data that went out, copies among them.
    pub data: u64,
    /// Nacks sent.
    pub nacks: u64,
    /// Copies of Data and Nacks for which no cell was free.
    pub copies_lost: u64,
}

impl NdnTotals {
    /// Its lines of `show runtime`.
    pub fn lines(&self) -> Vec<[String; 2]> {
        let t = self;
        let of = |some: u64, all: u64| format!("{} of {}", thousands(some), thousands(all));
        let sent = [
            (t.interests, "interests"),
            (t.data, "data"),
            (t.nacks, "nacks"),
            (t.copies_lost, "copies lost"),
        ];
        let store = [
            (t.stored_bytes, "bytes"),
            (t.store_hits, "hits"),
            (t.store_misses, "misses"),
            (t.store_evicted, "evicted"),
        ];
        vec![
            [
                "faces".to_owned(),
                format!("{}, {} on demand", thousands(t.faces), thousands(t.on_demand)),
            ],
            ["names".to_owned(), of(t.names, t.names_max)],
            ["pending".to_owned(), of(t.pending, t.pending_max)],
            ["".to_owned(), counts(&[(t.expired, "expired")])],
            ["content store".to_owned(), of(t.stored, t.stored_max)],
            ["".to_owned(), counts(&store)],
            ["sent".to_owned(), counts(&sent)],
        ]
    }

    /// Its families.
    pub fn metrics(&self, out: &mut Metrics) {
        let t = self;
        out.gauge("ndn_faces", "Faces.").sample(&[], t.faces);
        out.gauge("ndn_faces_on_demand", "Faces on demand.").sample(&[], t.on_demand);
        out.gauge("ndn_names", "Prefixes of names in the table.").sample(&[], t.names);
        out.gauge("ndn_pending_interests", "Pending Interests.").sample(&[], t.pending);
        out.gauge("ndn_content_store_packets", "Data packets in the content store.")
            .sample(&[], t.stored);
        out.gauge("ndn_content_store_bytes", "Bytes of the Data packets in the content store.")
            .sample(&[], t.stored_bytes);
        let families = [
            (
                "ndn_content_store_hits_total",
                "Interests answered from the content store.",
                t.store_hits,
            ),
            (
                "ndn_content_store_misses_total",
                "Interests that the content store could not answer.",
                t.store_misses,
            ),
            (
                "ndn_content_store_evicted_total",
                "Data packets removed from the content store to make room.",
                t.store_evicted,
            ),
            ("ndn_expired_interests_total", "Interests that expired without Data.", t.expired),
            ("ndn_transmit_interests_total", "Interests sent.", t.interests),
            ("ndn_transmit_data_total", "Data packets sent, including copies.", t.data),
            ("ndn_transmit_nacks_total", "Nacks sent.", t.nacks),
            ("ndn_copies_lost_total", "Copies lost for lack of a cell.", t.copies_lost),
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
    fn faces_and_names_are_shown() {
        let face = FaceRow {
            name: "west".to_owned(),
            kind: "udp".to_owned(),
            port: "p0".to_owned(),
            ends: Some(["192.0.2.1:6363", "192.0.2.2:6363"].map(|end| end.parse().unwrap())),
            state: "unresolved".to_owned(),
            in_interests: 1200,
            ..FaceRow::default()
        };
        let text = table(&[face]);
        assert!(text.contains("192.0.2.1:6363 - 192.0.2.2:6363"), "{text}");
        assert!(text.contains("1,200"), "{text}");
        let name = NameRow {
            prefix: "/org".to_owned(),
            faces: vec!["west".to_owned(), "far".to_owned()],
            source: Source::Api,
            active: true,
        };
        assert_eq!(
            table(std::slice::from_ref(&name)),
            "   prefix  faces     source\n*  /org    west,far  api\n"
        );
        let json = r#"{"prefix":"/org","faces":["west","far"],"source":"api","active":true}"#;
        assert_eq!(serde_json::to_string(&name).unwrap(), json);
        assert_eq!(table::<FaceRow>(&[]), "no faces\n");
        assert_eq!(table::<NameRow>(&[]), "no routes for names\n");
    }

    #[test]
    fn totals_are_shown() {
        let totals =
            NdnTotals { faces: 2, names: 3, names_max: 1000, expired: 4, ..NdnTotals::default() };
        let lines: String =
            totals.lines().iter().map(|[title, text]| format!("{title}: {text}\n")).collect();
        assert_eq!(
            lines,
            "faces: 2, 0 on demand\nnames: 3 of 1,000\npending: 0 of 0\n: 4 expired\n\
             content store: 0 of 0\n: 0 bytes, 0 hits, 0 misses, 0 evicted\n\
             sent: 0 interests, 0 data, 0 nacks, 0 copies lost\n"
        );
        let text = encode(&Snapshot::default(), |out| totals.metrics(out));
        for line in ["shadeline_ndn_faces 2", "shadeline_ndn_expired_interests_total 4"] {
            assert!(text.lines().any(|other| other == line), "{line}\nnot in\n{text}");
        }
    }
}
