//! Captures for tests, read and written with `pcap-file`: the oracle for the project's own reader and writer.

use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::path::Path;
use std::time::Duration;

use pcap_file::pcap::{PcapHeader, PcapPacket, PcapReader, PcapWriter};
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::{Block, PcapNgReader, PcapNgWriter};
use pcap_file::{DataLink, TsResolution};

/// A captured packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// What was captured of the frame.
    pub data: Vec<u8>,
    /// The frame's length on the wire, in bytes.
    pub original_len: u32,
    /// Number of the interface in the file; 0 in a pcap.
    pub interface: u32,
    /// The first comment, in a pcapng.
    pub comment: Option<String>,
}

impl Record {
    /// A whole frame on interface 0.
    pub fn new(time_ns: u64, data: Vec<u8>) -> Record {
        let original_len = data.len() as u32;
        Record { time_ns, data, original_len, interface: 0, comment: None }
    }
}

/// Reads a pcap or pcapng.
///
/// # Panics
/// Where the file is missing or broken.
pub fn read(path: &Path) -> Vec<Record> {
    let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    match bytes.starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]) {
        true => read_pcapng(path),
        false => read_pcap(path),
    }
}

fn open(path: &Path) -> BufReader<File> {
    BufReader::new(File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
}

fn read_pcap(path: &Path) -> Vec<Record> {
    let mut reader =
        PcapReader::new(open(path)).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut records = Vec::new();
    while let Some(packet) = reader.next_packet() {
        let packet = packet.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        records.push(Record {
            time_ns: packet.timestamp.as_nanos() as u64,
            data: packet.data.to_vec(),
            original_len: packet.orig_len,
            interface: 0,
            comment: None,
        });
    }
    records
}

fn read_pcapng(path: &Path) -> Vec<Record> {
    let mut reader =
        PcapNgReader::new(open(path)).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut records = Vec::new();
    // Nanoseconds a unit, as fractions, by interface. The library hands out raw units as if they were
    // nanoseconds.
    let mut units: Vec<(u128, u128)> = Vec::new();
    while let Some(block) = reader.next_block() {
        match block.unwrap_or_else(|e| panic!("{}: {e}", path.display())) {
            Block::SectionHeader(_) => units.clear(),
            Block::InterfaceDescription(interface) => units.push(unit(&interface)),
            Block::EnhancedPacket(packet) => {
                let (numerator, denominator) = units[packet.interface_id as usize];
                let comment = packet.options.iter().find_map(|option| match option {
                    EnhancedPacketOption::Comment(text) => Some(text.to_string()),
                    _ => None,
                });
                records.push(Record {
                    time_ns: (packet.timestamp.as_nanos() * numerator / denominator) as u64,
                    data: packet.data.to_vec(),
                    original_len: packet.original_len,
                    interface: packet.interface_id,
                    comment,
                });
            }
            _ => {}
        }
    }
    records
}

fn unit(interface: &InterfaceDescriptionBlock) -> (u128, u128) {
    let resolution = interface.options.iter().find_map(|option| match option {
        InterfaceDescriptionOption::IfTsResol(value) => Some(*value),
        _ => None,
    });
    // draft-ietf-opsawg-pcapng, if_tsresol: the high bit chooses powers of two; microseconds by default.
    let resolution = resolution.unwrap_or(6);
    let base: u128 = if resolution & 0x80 == 0 { 10 } else { 2 };
    (1_000_000_000, base.pow(u32::from(resolution & 0x7f)))
}

/// Writes an Ethernet pcap with nanosecond times.
///
/// # Panics
/// Where it cannot be written.
pub fn write_pcap(path: &Path, records: &[Record]) {
    let file =
        BufWriter::new(File::create(path).unwrap_or_else(|e| panic!("{}: {e}", path.display())));
    let header = PcapHeader {
        datalink: DataLink::ETHERNET,
        ts_resolution: TsResolution::NanoSecond,
        snaplen: 0x10_0000,
        ..PcapHeader::default()
    };
    let mut writer = PcapWriter::with_header(file, header).expect("a capture's header");
    for record in records {
        let time = Duration::from_nanos(record.time_ns);
        let packet = PcapPacket::new(time, record.original_len, &record.data);
        writer.write_packet(&packet).expect("a capture's packet");
    }
}

/// Writes an Ethernet pcapng with nanosecond times, one interface for each name.
///
/// # Panics
/// Where it cannot be written.
pub fn write_pcapng(path: &Path, interfaces: &[&str], records: &[Record]) {
    let file =
        BufWriter::new(File::create(path).unwrap_or_else(|e| panic!("{}: {e}", path.display())));
    let mut writer = PcapNgWriter::new(file).expect("a capture's header");
    for name in interfaces {
        let options = vec![
            InterfaceDescriptionOption::IfName((*name).into()),
            InterfaceDescriptionOption::IfTsResol(9),
        ];
        let interface =
            InterfaceDescriptionBlock { linktype: DataLink::ETHERNET, snaplen: 0, options };
        writer.write_pcapng_block(interface).expect("a capture's interface");
    }
    for record in records {
        let comment =
            record.comment.iter().map(|c| EnhancedPacketOption::Comment(c.as_str().into()));
        let packet = EnhancedPacketBlock {
            interface_id: record.interface,
            timestamp: Duration::from_nanos(record.time_ns),
            original_len: record.original_len,
            data: (&record.data).into(),
            options: comment.collect(),
        };
        writer.write_pcapng_block(packet).expect("a capture's packet");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scratch;

    #[test]
    fn both_formats_keep_all() {
        let scratch = Scratch::new();
        let mut records = vec![
            Record::new(1_700_000_000_123_456_789, vec![1; 60]),
            Record::new(1_700_000_001_000_000_001, vec![2; 16_450]),
        ];
        let path = scratch.join("a.pcap");
        write_pcap(&path, &records);
        assert_eq!(read(&path), records);
        records[1].interface = 1;
        records[1].comment = Some("no route".to_string());
        let path = scratch.join("a.pcapng");
        write_pcapng(&path, &["a", "b"], &records);
        assert_eq!(read(&path), records);
    }
}
