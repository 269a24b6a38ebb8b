//! What a router shows: rows of `show routes`, its part of `show runtime`, its metrics.

use control::api::table::{Row, counts, list, thousands};
use control::config::NextHop;
use control::metrics::Metrics;
use control::rib::{RibStats, RouteSource};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// One route.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RouteRow {
    /// Destinations.
    pub prefix: IpNet,
    /// Where to, as its source says.
    pub next_hop: NextHop,
    /// Ports that it resolves to, one per member of the next hop; empty: does not resolve.
    pub ports: Vec<String>,
    /// The kind of source that announced it.
    pub source: RouteSource,
    /// Smaller wins.
    pub metric: u32,
    /// It is the one in use among those of its prefix.
    pub active: bool,
}

impl Row for RouteRow {
    const COLUMNS: &'static [&'static str] =
        &["", "prefix", "next hop", "port", "source", ">metric"];

    fn cells(&self) -> Vec<String> {
        vec![
            if self.active { "*" } else { "-" }.to_owned(),
            self.prefix.to_string(),
            self.next_hop.to_string(),
            list(&self.ports),
            self.source.to_string(),
            self.metric.to_string(),
        ]
    }
}

/// What the router made beside the packets that it was given.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RouterTotals {
    /// ICMP and ICMPv6 errors sent.
    pub icmp_errors_sent: u64,
    /// ICMP and ICMPv6 errors withheld by the rate limit.
    pub icmp_errors_withheld: u64,
    /// Answers for its own addresses where there is no twin: ARP, neighbour discovery, echo.
    pub answers_sent: u64,
    /// Packets that were fragmented.
    pub fragmented: u64,
    /// Fragments made of them.
    pub fragments_made: u64,
}

impl RouterTotals {
    /// Its lines of `show runtime`.
    pub fn lines(&self) -> Vec<[String; 2]> {
        let errors = [(self.icmp_errors_sent, "sent"), (self.icmp_errors_withheld, "withheld")];
        let fragments = [(self.fragmented, "packets"), (self.fragments_made, "fragments")];
        vec![
            ["icmp errors".to_owned(), counts(&errors)],
            ["answers".to_owned(), thousands(self.answers_sent)],
            ["fragmented".to_owned(), counts(&fragments)],
        ]
    }

    /// Its families.
    pub fn metrics(&self, out: &mut Metrics) {
        let families = [
            ("icmp_errors_sent_total", "ICMP and ICMPv6 errors sent.", self.icmp_errors_sent),
            (
                "icmp_errors_withheld_total",
                "ICMP and ICMPv6 errors withheld by the rate limit.",
                self.icmp_errors_withheld,
            ),
            (
                "answers_sent_total",
                "ARP and neighbour discovery answers for own addresses without a twin.",
                self.answers_sent,
            ),
            ("fragmented_packets_total", "Packets that were fragmented.", self.fragmented),
            ("fragments_made_total", "Fragments made.", self.fragments_made),
        ];
        for (name, help, value) in families {
            out.counter(name, help).sample(&[], value);
        }
    }
}

/// What the router's control knows: fields of their own in `show runtime`, beside [`RouterTotals`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RouteTotals {
    /// Routes in the forwarding tables.
    pub routes_v4: u64,
    /// Routes in the forwarding tables.
    pub routes_v6: u64,
    /// Neighbours known.
    pub neighbours: u64,
    /// Known routes by source, in the order of [`RouteTotals::SOURCES`]: for the metrics alone.
    #[serde(skip)]
    pub known: [u64; 6],
}

impl RouteTotals {
    /// Sources in the order of the metrics.
    pub const SOURCES: [RouteSource; 6] = [
        RouteSource::Connected,
        RouteSource::Static,
        RouteSource::Api,
        RouteSource::Kernel,
        RouteSource::File,
        RouteSource::Advertised,
    ];

    /// Of a RIB and the number of known neighbours.
    pub fn new(rib: &RibStats, neighbours: usize) -> Self {
        let known = [rib.connected, rib.static_, rib.api, rib.kernel, rib.file, rib.advertised];
        Self {
            routes_v4: rib.installed_v4 as u64,
            routes_v6: rib.installed_v6 as u64,
            neighbours: neighbours as u64,
            known: known.map(|routes| routes as u64),
        }
    }

    /// Its lines of `show runtime`.
    pub fn lines(&self) -> Vec<[String; 2]> {
        let routes = [(self.routes_v4, "v4"), (self.routes_v6, "v6")];
        vec![
            ["routes".to_owned(), counts(&routes)],
            ["neighbours".to_owned(), thousands(self.neighbours)],
        ]
    }

    /// Its families.
    pub fn metrics(&self, out: &mut Metrics) {
        let mut family = out.gauge("routes", "Known routes, by source.");
        for (source, routes) in Self::SOURCES.into_iter().zip(self.known) {
            family.sample(&[("source", source.name())], routes);
        }
        let mut family = out.gauge("table_routes", "Routes in the forwarding tables.");
        family.sample(&[("family", "ipv4")], self.routes_v4);
        family.sample(&[("family", "ipv6")], self.routes_v6);
        out.gauge("neighbours", "Known neighbours.").sample(&[], self.neighbours);
    }
}

#[cfg(test)]
mod tests {
    use control::api::table::table;
    use control::metrics::{Snapshot, encode};

    use super::*;

    #[test]
    fn routes_are_shown() {
        let row = RouteRow {
            prefix: "10.0.0.0/8".parse().unwrap(),
            next_hop: "192.0.2.1,192.0.2.2".parse().unwrap(),
            ports: vec!["lan".into(), "lan".into()],
            source: RouteSource::Static,
            metric: 0,
            active: true,
        };
        let expected = "   prefix      next hop             port     source  metric
*  10.0.0.0/8  192.0.2.1,192.0.2.2  lan,lan  static       0
";
        assert_eq!(table(std::slice::from_ref(&row)), expected);
        let json = r#"{"prefix":"10.0.0.0/8","next_hop":"192.0.2.1,192.0.2.2","ports":["lan","lan"],"source":"static","metric":0,"active":true}"#;
        assert_eq!(serde_json::to_string(&row).unwrap(), json);
        assert_eq!(table::<RouteRow>(&[]).lines().count(), 1);
    }

    #[test]
    fn totals_are_shown() {
        let rib = RibStats { installed_v4: 1200, static_: 3, kernel: 9, ..RibStats::default() };
        let routes = RouteTotals::new(&rib, 4);
        let made = RouterTotals { icmp_errors_sent: 1, fragmented: 2, ..RouterTotals::default() };
        let lines = [routes.lines(), made.lines()].concat();
        let lines: String =
            lines.iter().map(|[title, text]| format!("{title}: {text}\n")).collect();
        assert_eq!(
            lines,
            "routes: 1,200 v4, 0 v6\nneighbours: 4\nicmp errors: 1 sent, 0 withheld\nanswers: 0\n\
             fragmented: 2 packets, 0 fragments\n"
        );
        let text = encode(&Snapshot::default(), |out| {
            routes.metrics(out);
            made.metrics(out);
        });
        for line in [
            "shadeline_routes{source=\"kernel\"} 9",
            "shadeline_table_routes{family=\"ipv4\"} 1200",
            "shadeline_neighbours 4",
            "shadeline_icmp_errors_sent_total 1",
            "shadeline_fragmented_packets_total 2",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}\nnot in\n{text}");
        }
        let json = serde_json::to_value(routes).unwrap();
        assert_eq!(json, serde_json::json!({"routes_v4": 1200, "routes_v6": 0, "neighbours": 4}));
    }
}
