//! `bench streams`: tracking and reassembly on one core, from memory to memory, decoding included.
//!
//! ```text
//!  frames in memory ─▶ decode, 256 at a time ─▶ Tracker: flow table, TCP ─▶ a module that counts bytes
//! ```
//!
//! | file | rows |
//! | --- | --- |
//! | `nids` | whole connections (GASPP's HTTP, captures) beside libnids; packets out of order |
//! | `live` | small packets by the number of flows that live; new flows; sweeps |
//! | `firewall` | a firewall behind the tracker: rules that are kept, and new flows |
//! | `follow` | decoding and tracking, as the stage does |
//! | `headers` | what a second stage pays for headers: decoding again, or columns |
//! | `frames` | what is in memory |
//!
//! Time is the thread's own, except that pieces of sweeps are timed by the clock. Rounds alternate over all cases of a
//! file. What was delivered is checked in each.

mod firewall;
pub(crate) mod follow;
pub(crate) mod frames;
mod headers;
pub(crate) mod live;
pub(crate) mod nids;

use std::path::PathBuf;
use std::time::Duration;

use crate::limits::{has_room, up_to};
use crate::{Args, FLOWS_MAX, KEYS_MAX, Report};

/// Where captures are.
pub(crate) const DEFAULT_CAPTURES: &str = "../shared/data/pcap-mixed/zeek";

/// Connections of the HTTP mix at most: its frames are in memory on both sides.
pub(crate) const CONNECTIONS_MAX: usize = 1 << 16;

/// How much is followed.
#[derive(Debug, Clone, clap::Args)]
pub struct StreamsArgs {
    /// Connections of the HTTP mix at once, 1 MB each; their frames are in memory here and in the peer
    #[arg(long, default_value_t = 512, value_parser = up_to::<CONNECTIONS_MAX>)]
    pub connections: usize,
    /// Flows that live in the largest table, about 0.5 KB each
    #[arg(long, default_value_t = 10_000_000, value_parser = up_to::<FLOWS_MAX>)]
    pub flows: usize,
    /// Packets of 64 bytes per pass
    #[arg(long, default_value_t = 1 << 21, value_parser = up_to::<KEYS_MAX>)]
    pub packets: usize,
    /// Records of the table that is swept
    #[arg(long, default_value_t = 16_000_000, value_parser = up_to::<FLOWS_MAX>)]
    pub records: usize,
    /// Seconds of each measurement of new flows before a firewall
    #[arg(long, default_value_t = 1.0)]
    pub seconds: f64,
    /// Folder with captures
    #[arg(long, value_name = "FOLDER", default_value = DEFAULT_CAPTURES)]
    pub captures: PathBuf,
}

pub(crate) fn run(args: &Args, options: &StreamsArgs) -> Result<Report, String> {
    let StreamsArgs { connections, flows, packets, records, captures, seconds } = options;
    // On both sides, and half as much for packets out of order.
    has_room(&format!("{connections} connections"), connections.saturating_mul(5 << 19))?;
    let data = format!(
        "GASPP's HTTP ({} packets a connection), {connections} connections at once; {packets} packets of 64 bytes of up to \
         {flows} flows; one core, decoding included, {} packets at a time",
        frames::PACKETS,
        follow::BATCH
    );
    let mut report = Report::new("streams", data);
    headers::run(args, &mut report);
    nids::run(args, *connections, captures, &mut report)?;
    live::run(args, *flows, *packets, &mut report)?;
    live::sweeps(args, *records, &mut report)?;
    firewall::run(args, Duration::from_secs_f64(seconds.clamp(0.01, 3600.0)), &mut report)?;
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_delivered() {
        let options = StreamsArgs {
            connections: 5,
            flows: 12_000,
            packets: 3_000,
            records: 9_000,
            captures: PathBuf::from("none"),
            seconds: 0.2,
        };
        let args = crate::Args {
            what: crate::What::Streams(options.clone()),
            rounds: 2,
            json: false,
            against: None,
            plot: None,
        };
        let report = run(&args, &options).unwrap();
        assert!(report.wrong.is_empty(), "{:?}", report.wrong);
        let names: std::collections::BTreeSet<_> =
            report.rows.iter().map(|row| &row.name).collect();
        assert_eq!(names.len(), report.rows.len());
        // What a second stage costs is a difference of two times, which may be none in so short a run.
        let is_time = |name: &str| !name.contains("second stage") && !name.ends_with(" saves");
        let measured =
            report.rows.iter().filter(|row| !row.rounds.is_empty() && is_time(&row.name));
        assert!(measured.clone().count() > 20 && measured.clone().all(|row| row.median > 0.0));
    }
}
