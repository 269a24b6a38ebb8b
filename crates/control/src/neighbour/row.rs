//! A neighbour as clients see it: of every application that has neighbours.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::api::table::{Row, time};

/// One neighbour.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NeighbourRow {
    /// Its address.
    pub address: IpAddr,
    /// Port's name.
    pub port: String,
    /// `None` while unresolved.
    pub mac: Option<String>,
    /// RFC 4861's words (`incomplete`, `reachable`, `stale`, `probe`), `failed`, or `static`.
    pub state: String,
    /// Since it was last confirmed; `None`: never, or static.
    pub age_s: Option<f64>,
}

impl Row for NeighbourRow {
    const COLUMNS: &'static [&'static str] = &["address", "port", "mac", "state", ">age"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.address.to_string(),
            self.port.clone(),
            self.mac.clone().unwrap_or_default(),
            self.state.clone(),
            self.age_s.map(time).unwrap_or_default(),
        ]
    }
}
