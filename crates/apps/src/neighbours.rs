//! `ctl show neighbours` of every application that has neighbours.

use std::net::IpAddr;

use clap::Args;
use control::neighbour::NeighbourRow;
use controlplane::request::{TableKind, address_or_prefix};
use controlplane::{Environment, Refusal, Rows};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// The table.
pub(crate) const NEIGHBOURS: TableKind =
    TableKind::with::<Shown>("neighbours", "Neighbours and their MAC addresses").keywords(&["dev"]);

/// Which neighbours are shown.
#[derive(Debug, Clone, Default, PartialEq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Shown {
    /// Only the neighbour with this address, or those within this prefix
    #[arg(value_parser = address_or_prefix, value_name = "ADDRESS")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    within: Option<IpNet>,
    /// Only neighbours on this port
    #[arg(long, value_name = "PORT")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dev: Option<String>,
}

impl Shown {
    /// The rows that are meant of all.
    pub(crate) fn rows(
        &self,
        as_text: bool,
        all: impl IntoIterator<Item = NeighbourRow>,
        env: &Environment<'_>,
    ) -> Result<Rows, Refusal> {
        self.dev.as_deref().map(|port| env.number(port)).transpose()?;
        let is_meant = |address: IpAddr, port: &str| {
            self.within.is_none_or(|net| net.contains(&address))
                && self.dev.as_deref().is_none_or(|own| own == port)
        };
        let rows = all.into_iter().filter(|row| is_meant(row.address, &row.port));
        Ok(Rows::of("neighbours", as_text, rows))
    }
}
