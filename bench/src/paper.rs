//! `bench paper`: figures and tables of the papers, on this machine.
//!
//! | name | what the paper shows | where |
//! | --- | --- | --- |
//! | `gswitch-6c`, `gswitch-7a`, `gswitch-hash` | GSwitch, Figures 6(c) and 7(a), §4.2: searches by rules and classes, hashes | `classify/figures.rs` |
//! | `tic-5`, `tic-7` | TIC, Tables 5 and 7: memory, rate by threads | `classify/figures.rs` |
//! | `gaspp-table-1` | GASPP, Table 1: rate of copies by size of the buffer | `transfers.rs` |
//! | `gaspp-table-2` | GASPP, Table 2: packets copied back to back against slots sent as they are | `transfers.rs` |
//! | `gaspp-8` | GASPP, Figure 8: forwarding with and without a device on the way, no computation | `transfers.rs` |
//! | `gaspp-9a` | GASPP, Figure 9(a): decoding by packets of a batch | `flows.rs` |
//! | `gaspp-9b` | GASPP, Figure 9(b): state and reassembly by number of connections, beside libnids | `flows.rs` |
//! | `gaspp-9c` | GASPP, Figure 9(c): applications, each by itself | `applications.rs` |
//! | `gaspp-table-3` | GASPP, Table 3: time of a sweep by size of the table and flows in it | `flows.rs` |
//! | `gaspp-10a`, `gaspp-10b` | GASPP, Figure 10: gain by packet scheduling, by packets of a batch and by modules | `scheduling.rs` |
//! | `gaspp-11` | GASPP, Figure 11(a): the same by packets of a chunk | `applications.rs` |
//! | `gaspp-12` | GASPP, Figure 12: applications in one program, against a program for each | `applications.rs` |
//! | `packetshader-11d` | PacketShader, Figure 11(d): the IPsec gateway by size of frames | `ipsec.rs` |
//! | `gswitch-9` | GSwitch, Figure 9: an OpenFlow switch under a bound of the delay | `openflow/delay.rs` |
//! | `gswitch-10` | GSwitch, Figure 10: the same by search, transmit by a worker of its own | `openflow/apart.rs` |
//! | `packetshader-11c` | PacketShader, Figure 11(c): an OpenFlow switch by size of its tables | `openflow.rs` |
//!
//! The papers' machines are not here: what can be compared is how a figure runs, not how high.

mod applications;
mod flows;
mod scheduling;
mod transfers;

use std::path::PathBuf;

use device::Backend;

use crate::classify::{DEFAULT_SETS, HEADERS_MAX, figures, hashes};
use crate::limits::up_to;
use crate::streams::{CONNECTIONS_MAX, DEFAULT_CAPTURES};
use crate::{Args, FLOWS_MAX, Report, openflow};

pub(crate) use scheduling::program as scheduling;
pub(crate) use transfers::programs as transfers;

/// A figure or table of a paper.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Figure {
    /// GSwitch, Figure 6(c): rate of linear, tuple and Bloom search by number of rules
    #[value(name = "gswitch-6c")]
    Gswitch6c,
    /// GSwitch, Figure 7(a): the same by number of classes
    #[value(name = "gswitch-7a")]
    Gswitch7a,
    /// GSwitch §4.2: universal hashing and Murmur3 compared
    #[value(name = "gswitch-hash")]
    GswitchHash,
    /// TIC, Table 5: memory of rule sets
    #[value(name = "tic-5")]
    Tic5,
    /// TIC, Table 7: rate by number of threads
    #[value(name = "tic-7")]
    Tic7,
    /// GASPP, Table 1: rate of copies to and from a device by size of the buffer
    #[value(name = "gaspp-table-1")]
    GasppTable1,
    /// GASPP, Table 2: packets copied back to back compared with slots sent as they are
    #[value(name = "gaspp-table-2")]
    GasppTable2,
    /// GASPP, Table 3: time to sweep the flow table by its size and number of flows
    #[value(name = "gaspp-table-3")]
    GasppTable3,
    /// GASPP, Figure 8: forwarding with and without a device, by packet size
    #[value(name = "gaspp-8")]
    Gaspp8,
    /// GASPP, Figure 9(a): decoding, by packets per batch
    #[value(name = "gaspp-9a")]
    Gaspp9a,
    /// GASPP, Figure 9(b): flow state and reassembly by number of connections, compared with libnids
    #[value(name = "gaspp-9b")]
    Gaspp9b,
    /// GASPP, Figure 9(c): rate of each application, as a module on a device
    #[value(name = "gaspp-9c")]
    Gaspp9c,
    /// GASPP, Figure 11(a): throughput of each application by packets of a chunk
    #[value(name = "gaspp-11")]
    Gaspp11,
    /// GASPP, Figure 12: throughput of applications in one program, compared with a program for each
    #[value(name = "gaspp-12")]
    Gaspp12,
    /// GASPP, Figure 10(a): gain by packet scheduling, by packets per batch
    #[value(name = "gaspp-10a")]
    Gaspp10a,
    /// GASPP, Figure 10(b): gain by packet scheduling, by number of modules
    #[value(name = "gaspp-10b")]
    Gaspp10b,
    /// PacketShader, Figure 11(d): input throughput of the IPsec gateway by size of frames
    #[value(name = "packetshader-11d")]
    Packetshader11d,
    /// PacketShader, Figure 11(c): rate of an OpenFlow switch by exact and wildcard flows
    #[value(name = "packetshader-11c")]
    PacketShader11c,
    /// GSwitch, Figure 9: throughput of an OpenFlow switch under a bound of the delay
    #[value(name = "gswitch-9")]
    Gswitch9,
    /// GSwitch, Figure 10: the same by search, with receive and transmit on workers of their own
    #[value(name = "gswitch-10")]
    Gswitch10,
}

/// Which figure, and on what.
#[derive(Debug, Clone, clap::Args)]
pub struct PaperArgs {
    /// The figure or table
    #[arg(value_enum)]
    pub figure: Figure,
    /// Device: auto (a GPU if there is one, else the first OpenCL device), opencl, opencl:N, cuda or cuda:N; figures of GSwitch
    /// have a device only if it is named
    #[arg(long, value_name = "BACKEND")]
    pub backend: Option<Backend>,
    /// Seconds per case and round, of figures that run for a time
    #[arg(long, default_value_t = 0.5)]
    pub seconds: f64,
    /// Folder with rule sets, of figures of TIC and of Figure 10 of GSwitch
    #[arg(long, value_name = "FOLDER", default_value = DEFAULT_SETS)]
    pub sets: PathBuf,
    /// Headers per trace, of figures of GSwitch and TIC
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = up_to::<HEADERS_MAX>)]
    pub headers: usize,
    /// Folder with captures, of Figure 9(b) of GASPP
    #[arg(long, value_name = "FOLDER", default_value = DEFAULT_CAPTURES)]
    pub captures: PathBuf,
    /// Connections of the largest case of Figure 9(b) of GASPP, 1 MB each
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = up_to::<CONNECTIONS_MAX>)]
    pub connections: usize,
    /// Flow records of the largest table of Table 3 of GASPP
    #[arg(long, value_name = "N", default_value_t = 16 << 20, value_parser = up_to::<FLOWS_MAX>)]
    pub records: usize,
}

impl PaperArgs {
    /// The device of figures that need one.
    fn device(&self) -> Backend {
        self.backend.unwrap_or(Backend::Auto)
    }
}

pub(crate) fn run(args: &Args, options: &PaperArgs) -> Result<Report, String> {
    match options.figure {
        Figure::Gswitch6c => figures::by_rules(args, options),
        Figure::Gswitch7a => figures::by_classes(args, options),
        Figure::GswitchHash => hashes::run(args, options),
        Figure::Tic5 => figures::memory(&options.sets),
        Figure::Tic7 => figures::threads(args, &options.sets, options.headers),
        Figure::GasppTable1 => transfers::copies(args, options.device()),
        Figure::GasppTable2 => transfers::packing(args, options.device(), options.seconds),
        Figure::GasppTable3 => flows::sweeps(args, options.records),
        Figure::Gaspp8 => transfers::forwarding(args, options.device(), options.seconds),
        Figure::Gaspp9a => flows::decoding(args),
        Figure::Gaspp9b => flows::reassembly(args, options.connections, &options.captures),
        Figure::Gaspp9c => applications::each(args, options.device()),
        Figure::Gaspp11 => applications::by_batch(args, options.device()),
        Figure::Gaspp12 => applications::consolidated(args, options.device()),
        Figure::Gaspp10a => scheduling::by_batch(args, options.device(), &scheduling::BATCHES),
        Figure::Gaspp10b => scheduling::by_modules(args, options.device(), scheduling::BATCH),
        Figure::Packetshader11d => crate::ipsec::packetshader(args, 1 << 17),
        Figure::PacketShader11c => openflow::figure(args, options.seconds, options.records),
        Figure::Gswitch9 => openflow::delay::figure(args, options.seconds),
        Figure::Gswitch10 => openflow::apart::figure(args, options.seconds, &options.sets),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{PaperArgs, Row, What};

    fn args() -> Args {
        let options = PaperArgs {
            figure: Figure::Gaspp9a,
            backend: None,
            seconds: 0.05,
            sets: PathBuf::new(),
            headers: 0,
            captures: PathBuf::new(),
            connections: 0,
            records: 0,
        };
        Args { what: What::Paper(options), rounds: 1, json: false, against: None, plot: None }
    }

    fn measured(report: &Report) -> Vec<&Row> {
        assert!(report.wrong.is_empty(), "{:?}", report.wrong);
        report.rows.iter().filter(|row| !row.rounds.is_empty()).collect()
    }

    #[test]
    fn decoding_state_and_sweeps_give_figures() {
        let report = flows::decoding(&args()).unwrap();
        assert_eq!(measured(&report).len(), 12);
        let report = flows::reassembly(&args(), 20, Path::new("none")).unwrap();
        let rates = measured(&report).into_iter().filter(|row| row.unit == "Mpps");
        // Two loads; the peer is there or not.
        assert!(rates.clone().count() >= 4 && rates.clone().all(|row| row.median > 0.0));
        let report = flows::sweeps(&args(), 1 << 20).unwrap();
        assert_eq!(measured(&report).len(), 2);
        let left_out = report.rows.iter().filter(|row| row.note.contains("--records"));
        assert_eq!(left_out.count(), 5 + 6);
    }

    #[test]
    fn scheduling_gives_the_sums_of_the_cpu() {
        // The suite asks for PoCL; a user's machine may have no device.
        let Err(why) = scheduling::by_batch(&args(), Backend::Auto, &[100, 700]) else {
            let report = scheduling::by_modules(&args(), Backend::Auto, 300).unwrap();
            assert_eq!(measured(&report).len(), 7);
            return;
        };
        testkit::skip(&why);
    }
}
