//! Which packets to make: the options that `gen packets` and `measure` share.
//!
//! ```text
//!  options ─▶ values (rate, sizes, addresses, ports) ─▶ templates ─▶ io::generator ─▶ send
//! ```
//!
//! Whole frames are built once for each size and family; addresses and ports vary from packet to
//! packet, with the checksums corrected. The same options give the same packets.

mod frames;
mod send;
mod templates;
mod values;

use std::path::{Path, PathBuf};
use std::time::Duration;

use io::generator::{Generator, Options, Pace, Template, wire_bits};
use packet::MacAddr;

use crate::cli::duration;
use crate::failure::Failure;

pub(crate) use send::{Sent, send, source_mac};
pub(crate) use values::Rate;
use values::{Addresses, Ports, Protocol, Sizes, Tags};

/// Which packets to make.
#[derive(Debug, clap::Args)]
pub(crate) struct TrafficArgs {
    /// Rate: `10kpps`, `1Mpps`; `100Mbps`, `10Gbps` (including 24 bytes of check sequence, preamble and
    /// gap per frame); or `max`
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: Option<Rate>,
    /// Stop after this number of packets
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,
    /// Stop after this time
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub(crate) duration: Option<Duration>,
    /// Ethernet frame sizes, including the check sequence of 4 bytes: one, several in turn
    /// (`64,512,1518`), or `imix` (7 × 64, 4 × 594, 1 × 1518)
    ///
    /// In memory and in a capture a frame is 4 bytes shorter. PacketShader's sizes are those in
    /// memory: its 64-byte packets are `--size 68`. Default: 64, or the size of the headers.
    #[arg(long, value_name = "SIZES")]
    pub(crate) size: Option<Sizes>,
    /// Source addresses: one, a PREFIX to choose from at random, `random`, or @FILE with one address or
    /// prefix per line (may be gzip, xz or zstd)
    ///
    /// `random` is any unicast address. Default: addresses reserved for benchmarks, 198.18.0.0/16
    /// (RFC 2544) or 2001:2:0:1::/64 (RFC 5180).
    #[arg(long, value_name = "ADDRESSES")]
    pub(crate) src: Option<Addresses>,
    /// Destination addresses, in the same form; default: 198.19.0.0/16 or 2001:2:0:2::/64
    #[arg(long, value_name = "ADDRESSES")]
    pub(crate) dst: Option<Addresses>,
    /// Use IPv6 if the addresses leave it open, and the IPv6 addresses of files with both families
    #[arg(long)]
    pub(crate) ipv6: bool,
    /// Source ports: one, `FIRST-LAST` in turn, or `random`
    #[arg(long, value_name = "PORTS", default_value = "random")]
    pub(crate) sport: Ports,
    /// Destination ports, in the same form
    #[arg(long, value_name = "PORTS", default_value = "random")]
    pub(crate) dport: Ports,
    /// Upper layer
    #[arg(long, value_enum, default_value_t = Protocol::Udp)]
    pub(crate) protocol: Protocol,
    /// VLAN identifier, or outer and inner identifiers (802.1ad)
    #[arg(long, value_name = "ID[,INNER]")]
    pub(crate) vlan: Option<Tags>,
    /// Source MAC; default: the interface's, or 02:00:00:00:00:01
    #[arg(long, value_name = "MAC")]
    pub(crate) src_mac: Option<MacAddr>,
    /// Destination MAC: that of the device under test
    #[arg(long, value_name = "MAC", default_value = "02:00:00:00:00:02")]
    pub(crate) dst_mac: MacAddr,
    /// TTL or hop limit
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub(crate) ttl: u8,
    /// Seed of the random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
}

/// The packets that options ask for.
#[derive(Debug)]
pub(crate) struct Traffic {
    templates: Vec<Template>,
    seed: u64,
    /// Mean of a frame on the wire, overhead included.
    wire_bits_mean: f64,
}

impl TrafficArgs {
    /// Builds the frames. `stamped` puts a stamp in each payload.
    pub(crate) fn traffic(&self, src_mac: MacAddr, stamped: bool) -> Result<Traffic, Failure> {
        Ok(Traffic::of(templates::build(self, src_mac, stamped)?, self.seed))
    }
    /// Files that the addresses come from.
    fn file(addresses: Option<&Addresses>) -> Option<&PathBuf> {
        match addresses {
            Some(Addresses::File(path)) => Some(path),
            _ => None,
        }
    }
}

impl Traffic {
    /// Of these templates.
    fn of(templates: Vec<Template>, seed: u64) -> Self {
        let total: f64 = templates.iter().map(|t| f64::from(t.weight)).sum();
        let bits = |t: &Template| wire_bits(t.frame.len()) as f64 * f64::from(t.weight);
        let wire_bits_mean = templates.iter().map(bits).sum::<f64>() / total;
        Self { templates, seed, wire_bits_mean }
    }

    /// The frames of a capture, each as it is, in turn.
    ///
    /// # Errors
    /// If the capture cannot be read, or has no frame or too many.
    pub(crate) fn of_capture(path: &Path) -> Result<Self, Failure> {
        Ok(Self::of(frames::read(path)?, 0))
    }

    /// Packets per second; `None` for as fast as possible.
    pub(crate) fn pps(&self, rate: Rate) -> Option<f64> {
        match rate {
            Rate::Packets(pps) => Some(pps),
            Rate::Bits(bps) => Some(bps / self.wire_bits_mean),
            Rate::Max => None,
        }
    }

    /// A generator of this traffic from its beginning.
    pub(crate) fn generator(&self, pace: Pace, count: Option<u64>) -> Result<Generator, Failure> {
        let templates = self.templates.clone();
        Generator::new(Options { templates, seed: self.seed, count, pace }).map_err(Failure::other)
    }
}

/// Bits per second on the wire, overhead included, of so many packets and bytes in memory.
pub(crate) fn wire_bps(packets: u64, bytes: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        (bytes + packets * io::generator::WIRE_OVERHEAD_BYTES as u64) as f64 * 8.0 / seconds
    } else {
        0.0
    }
}
