//! Reads records of pcap and pcapng from a stream.
//!
//! The bytes go through one buffer that always holds the current record whole. `advance` parses the
//! next one and leaves a note of where its parts lie; `record` lends them out.

use std::io::{self, Read};
use std::ops::Range;

use super::{CaptureError, CaptureFault, LinkType, RECORD_BYTES_MAX};

/// How many bytes are asked for at a time.
const READ_BYTES: usize = 256 << 10;

/// The most interfaces of a section that are believed.
const INTERFACES_MAX: usize = 1 << 16;

/// One captured packet.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Time in nanoseconds since 1970; 0 where the capture gives none.
    pub time_ns: u64,
    /// The bytes that were captured.
    pub data: &'a [u8],
    /// Bytes that the frame had; more than `data` if the capture cut it.
    pub wire_len: u32,
    /// Its link layer.
    pub link_type: LinkType,
    /// Number of its interface in the section; 0 in pcap.
    pub interface: u32,
    /// The first comment (pcapng, UTF-8 if its writer kept to the format).
    pub comment: Option<&'a [u8]>,
}

/// The records of one capture, one after the other.
pub struct CaptureReader<R> {
    input: Input<R>,
    format: Format,
    current: Option<Parts>,
    failed: bool,
}

impl<R> std::fmt::Debug for CaptureReader<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CaptureReader({:?}, at byte {})", self.format, self.input.offset())
    }
}

#[derive(Debug)]
enum Format {
    Pcap { order: Order, ns_per_tick: u64, link_type: LinkType },
    PcapNg { order: Order, interfaces: Vec<Interface> },
}

/// Where the parts of the current record lie in the buffer.
#[derive(Clone, Debug)]
struct Parts {
    time_ns: u64,
    data: Range<usize>,
    wire_len: u32,
    link_type: LinkType,
    interface: u32,
    comment: Option<Range<usize>>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Order {
    Big,
    Little,
}

impl Order {
    fn u16(self, bytes: &[u8], at: usize) -> u16 {
        let bytes = [bytes[at], bytes[at + 1]];
        match self {
            Order::Big => u16::from_be_bytes(bytes),
            Order::Little => u16::from_le_bytes(bytes),
        }
    }

    fn u32(self, bytes: &[u8], at: usize) -> u32 {
        let bytes = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        match self {
            Order::Big => u32::from_be_bytes(bytes),
            Order::Little => u32::from_le_bytes(bytes),
        }
    }
}

/// An interface that a pcapng section describes.
#[derive(Clone, Copy, Debug)]
struct Interface {
    link_type: LinkType,
    snap_len: u32,
    /// `if_tsresol` as it stands in the file: a negative power of 10, or of 2 with the top bit.
    resolution: u8,
    /// `if_tsoffset`, seconds.
    offset_s: i64,
}

impl Interface {
    fn time_ns(&self, ticks: u64) -> u64 {
        let exponent = u32::from(self.resolution & 0x7f);
        let ticks = u128::from(ticks);
        let ns = if self.resolution & 0x80 != 0 {
            // Below 2^94 before the shift; beyond 2^-127 there is nothing.
            (ticks * 1_000_000_000) >> exponent
        } else if exponent <= 9 {
            ticks * 10u128.pow(9 - exponent)
        } else {
            ticks / 10u128.checked_pow(exponent - 9).unwrap_or(u128::MAX)
        };
        let ns = ns as i128 + i128::from(self.offset_s) * 1_000_000_000;
        ns.clamp(0, u64::MAX.into()) as u64
    }
}

const NG_SECTION: u32 = 0x0a0d_0d0a;
const NG_INTERFACE: u32 = 1;
const NG_PACKET_OBSOLETE: u32 = 2;
const NG_PACKET_SIMPLE: u32 = 3;
const NG_PACKET: u32 = 6;

impl<R: Read> CaptureReader<R> {
    /// Reads the header of the capture that `input` begins with. It need not be buffered.
    ///
    /// # Errors
    /// If it is not a capture of a known format, or cannot be read.
    pub fn new(input: R) -> Result<Self, CaptureError> {
        let mut input = Input {
            from: input,
            buffer: Vec::new(),
            start: 0,
            end: 0,
            before: 0,
            eof: false,
            current: 0,
        };
        let format = Self::header(&mut input).map_err(|fault| CaptureError {
            path: None,
            offset: input.offset(),
            fault,
        })?;
        Ok(Self { input, format, current: None, failed: false })
    }

    fn header(input: &mut Input<R>) -> Result<Format, CaptureFault> {
        let have = input.fill(24)?;
        let bytes = input.bytes();
        if have < 4 {
            return Err(CaptureFault::TooShort(have));
        }
        let magic = Order::Little.u32(bytes, 0);
        let (order, ns_per_tick) = match magic {
            0xa1b2_c3d4 => (Order::Little, 1000),
            0xd4c3_b2a1 => (Order::Big, 1000),
            0xa1b2_3c4d => (Order::Little, 1),
            0x4d3c_b2a1 => (Order::Big, 1),
            // The order does not matter for a section header; `advance` reads it.
            NG_SECTION => {
                return Ok(Format::PcapNg { order: Order::Little, interfaces: Vec::new() });
            }
            other => return Err(CaptureFault::NotACapture(other)),
        };
        if have < 24 {
            return Err(CaptureFault::Truncated { what: "the pcap header", have, need: 24 });
        }
        let (major, minor) = (order.u16(bytes, 4), order.u16(bytes, 6));
        if major != 2 {
            return Err(CaptureFault::Version(major, minor, "2.4"));
        }
        // The upper bits say whether frames end in a check sequence (they hardly ever do).
        let link_type = LinkType(order.u32(bytes, 20) & 0xffff);
        input.consume(24);
        Ok(Format::Pcap { order, ns_per_tick, link_type })
    }

    /// Goes to the next record. `false` at the end of the capture.
    ///
    /// # Errors
    /// If the capture is corrupt or truncated there, or cannot be read; it is at its end then.
    pub fn advance(&mut self) -> Result<bool, CaptureError> {
        self.current = None;
        if self.failed {
            return Ok(false);
        }
        let advanced = match &mut self.format {
            Format::Pcap { order, ns_per_tick, link_type } => {
                pcap_record(&mut self.input, *order, *ns_per_tick, *link_type)
            }
            Format::PcapNg { order, interfaces } => {
                pcapng_record(&mut self.input, order, interfaces)
            }
        };
        match advanced {
            Ok(parts) => {
                self.current = parts;
                Ok(self.current.is_some())
            }
            Err(fault) => {
                self.failed = true;
                Err(CaptureError { path: None, offset: self.input.offset(), fault })
            }
        }
    }

    /// The record that the last [`advance`](Self::advance) went to.
    pub fn record(&self) -> Option<Record<'_>> {
        let parts = self.current.as_ref()?;
        Some(Record {
            time_ns: parts.time_ns,
            data: &self.input.buffer[parts.data.clone()],
            wire_len: parts.wire_len,
            link_type: parts.link_type,
            interface: parts.interface,
            comment: parts.comment.clone().map(|range| &self.input.buffer[range]),
        })
    }

    /// The link type of the whole capture: pcap has one, pcapng one for each interface.
    pub fn link_type(&self) -> Option<LinkType> {
        match &self.format {
            Format::Pcap { link_type, .. } => Some(*link_type),
            Format::PcapNg { .. } => None,
        }
    }

    /// Bytes of the capture (decompressed) that were gone through.
    pub fn offset(&self) -> u64 {
        self.input.offset()
    }
}

/// The record at the front of the input; nothing at its end.
fn pcap_record<R: Read>(
    input: &mut Input<R>,
    order: Order,
    ns_per_tick: u64,
    link_type: LinkType,
) -> Result<Option<Parts>, CaptureFault> {
    input.consume_current();
    let have = input.fill(16)?;
    if have == 0 {
        return Ok(None);
    }
    if have < 16 {
        return Err(CaptureFault::Truncated { what: "a record header", have, need: 16 });
    }
    let bytes = input.bytes();
    let (seconds, fraction) = (order.u32(bytes, 0), order.u32(bytes, 4));
    let (len, wire_len) = (order.u32(bytes, 8) as usize, order.u32(bytes, 12));
    check_record_length("a record", len)?;
    let have = input.fill(16 + len)?;
    if have < 16 + len {
        return Err(CaptureFault::Truncated { what: "a record", have: have - 16, need: len });
    }
    let first = input.start + 16;
    input.current = 16 + len;
    Ok(Some(Parts {
        time_ns: u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * ns_per_tick,
        data: first..first + len,
        wire_len,
        link_type,
        interface: 0,
        comment: None,
    }))
}

fn check_record_length(what: &'static str, len: usize) -> Result<(), CaptureFault> {
    if len > RECORD_BYTES_MAX {
        let expected = "at most 64 MiB";
        return Err(CaptureFault::Length { what, value: len as u64, expected });
    }
    Ok(())
}

/// The next packet block; other blocks on the way are taken in or skipped.
fn pcapng_record<R: Read>(
    input: &mut Input<R>,
    order: &mut Order,
    interfaces: &mut Vec<Interface>,
) -> Result<Option<Parts>, CaptureFault> {
    loop {
        input.consume_current();
        let have = input.fill(12)?;
        if have == 0 {
            return Ok(None);
        }
        if have < 12 {
            return Err(CaptureFault::Truncated { what: "a block header", have, need: 12 });
        }
        let bytes = input.bytes();
        // A section header's type reads the same in both orders; its third word gives the order.
        if Order::Little.u32(bytes, 0) == NG_SECTION {
            *order = match Order::Little.u32(bytes, 8) {
                0x1a2b_3c4d => Order::Little,
                0x4d3c_2b1a => Order::Big,
                other => return Err(CaptureFault::ByteOrder(other)),
            };
        }
        let (kind, len) = (order.u32(bytes, 0), order.u32(bytes, 4));
        // Room for a packet of the greatest length, its headers and comments.
        check_record_length("a block", (len as usize).saturating_sub(1 << 16))?;
        let block = len as usize;
        if block < 12 || !block.is_multiple_of(4) {
            let expected = "a multiple of 4 from 12";
            return Err(CaptureFault::Length { what: "a block", value: len.into(), expected });
        }
        let have = input.fill(block)?;
        if have < block {
            return Err(CaptureFault::Truncated { what: "a block", have, need: block });
        }
        input.current = block;
        let bytes = &input.bytes()[..block];
        let behind = order.u32(bytes, block - 4);
        if behind != len {
            return Err(CaptureFault::BlockLengths(len, behind));
        }
        let body = &bytes[8..block - 4];
        let parts = match kind {
            NG_SECTION => {
                let (major, minor) = match body.len() {
                    16.. => (order.u16(body, 4), order.u16(body, 6)),
                    have => return Err(short("a section header block", have, 16)),
                };
                if major != 1 {
                    return Err(CaptureFault::Version(major, minor, "1.0"));
                }
                interfaces.clear();
                None
            }
            NG_INTERFACE if interfaces.len() < INTERFACES_MAX => {
                interfaces.push(interface(*order, body)?);
                None
            }
            NG_PACKET => Some(enhanced_packet(*order, body, interfaces)?),
            NG_PACKET_OBSOLETE => Some(obsolete_packet(*order, body, interfaces)?),
            NG_PACKET_SIMPLE => Some(simple_packet(*order, body, interfaces)?),
            _ => None,
        };
        if let Some(mut parts) = parts {
            let shift = input.start + 8;
            parts.data = parts.data.start + shift..parts.data.end + shift;
            parts.comment = parts.comment.map(|c| c.start + shift..c.end + shift);
            return Ok(Some(parts));
        }
    }
}

fn short(what: &'static str, have: usize, need: usize) -> CaptureFault {
    CaptureFault::Truncated { what, have, need }
}

fn interface(order: Order, body: &[u8]) -> Result<Interface, CaptureFault> {
    if body.len() < 8 {
        return Err(short("an interface description block", body.len(), 8));
    }
    let mut interface = Interface {
        link_type: LinkType(order.u16(body, 0).into()),
        snap_len: order.u32(body, 4),
        resolution: 6,
        offset_s: 0,
    };
    for (code, value) in options(order, body, 8) {
        let value = &body[value];
        match (code, value.len()) {
            (9, 1..) => interface.resolution = value[0],
            (14, 8..) => {
                // The two words of a 64-bit number are in the section's order as well.
                let (a, b) = (u64::from(order.u32(value, 0)), u64::from(order.u32(value, 4)));
                let offset = if order == Order::Big { a << 32 | b } else { b << 32 | a };
                interface.offset_s = offset as i64;
            }
            _ => {}
        }
    }
    Ok(interface)
}

/// The options from `at` in `body`: code and range of each. A malformed one ends them, as options
/// are extra and the block's own length has been checked.
fn options(
    order: Order,
    body: &[u8],
    mut at: usize,
) -> impl Iterator<Item = (u16, Range<usize>)> + '_ {
    std::iter::from_fn(move || {
        let header = body.get(at..at + 4)?;
        let (code, len) = (order.u16(header, 0), usize::from(order.u16(header, 2)));
        let value = at + 4..at + 4 + len;
        if code == 0 || value.end > body.len() {
            return None;
        }
        at = value.end.next_multiple_of(4);
        Some((code, value))
    })
}

fn comment(order: Order, body: &[u8], at: usize) -> Option<Range<usize>> {
    options(order, body, at).find(|(code, _)| *code == 1).map(|(_, value)| value)
}

fn described(interfaces: &[Interface], index: u32) -> Result<&Interface, CaptureFault> {
    interfaces.get(index as usize).ok_or(CaptureFault::Interface(index, interfaces.len()))
}

/// The packet of `len` bytes that begins at `at`, options behind it.
fn packet(
    order: Order,
    body: &[u8],
    at: usize,
    interface: (u32, &Interface),
    time_ns: u64,
    (len, wire_len): (u32, u32),
) -> Result<Parts, CaptureFault> {
    let len = len as usize;
    check_record_length("a packet", len)?;
    let end = at + len;
    if end > body.len() {
        return Err(short("a packet", body.len() - at, len));
    }
    Ok(Parts {
        time_ns,
        data: at..end,
        wire_len,
        link_type: interface.1.link_type,
        interface: interface.0,
        comment: comment(order, body, end.next_multiple_of(4)),
    })
}

fn enhanced_packet(
    order: Order,
    body: &[u8],
    interfaces: &[Interface],
) -> Result<Parts, CaptureFault> {
    if body.len() < 20 {
        return Err(short("an enhanced packet block", body.len(), 20));
    }
    let index = order.u32(body, 0);
    let interface = described(interfaces, index)?;
    let ticks = u64::from(order.u32(body, 4)) << 32 | u64::from(order.u32(body, 8));
    let lengths = (order.u32(body, 12), order.u32(body, 16));
    packet(order, body, 20, (index, interface), interface.time_ns(ticks), lengths)
}

fn obsolete_packet(
    order: Order,
    body: &[u8],
    interfaces: &[Interface],
) -> Result<Parts, CaptureFault> {
    if body.len() < 20 {
        return Err(short("a packet block", body.len(), 20));
    }
    let index = u32::from(order.u16(body, 0));
    let interface = described(interfaces, index)?;
    let ticks = u64::from(order.u32(body, 4)) << 32 | u64::from(order.u32(body, 8));
    let lengths = (order.u32(body, 12), order.u32(body, 16));
    packet(order, body, 20, (index, interface), interface.time_ns(ticks), lengths)
}

fn simple_packet(
    order: Order,
    body: &[u8],
    interfaces: &[Interface],
) -> Result<Parts, CaptureFault> {
    if body.len() < 4 {
        return Err(short("a simple packet block", body.len(), 4));
    }
    let interface = described(interfaces, 0)?;
    let wire_len = order.u32(body, 0);
    let len = match interface.snap_len {
        0 => wire_len,
        snap_len => wire_len.min(snap_len),
    };
    let mut parts = packet(order, body, 4, (0, interface), 0, (len, wire_len))?;
    parts.comment = None; // the block has no options; what follows is padding
    Ok(parts)
}

/// A stream with a window that holds as much as is asked for.
struct Input<R> {
    from: R,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Bytes that have left the front of the buffer.
    before: u64,
    eof: bool,
    /// Bytes at the front that the current record takes up.
    current: usize,
}

impl<R: Read> Input<R> {
    /// Makes the window at least `need` bytes long, less only at the end of the stream; returns how
    /// long it is, at most `need`.
    fn fill(&mut self, need: usize) -> io::Result<usize> {
        while self.end - self.start < need && !self.eof {
            if self.start > 0 {
                self.buffer.copy_within(self.start..self.end, 0);
                self.before += self.start as u64;
                self.end -= self.start;
                self.start = 0;
            }
            if self.end + READ_BYTES / 2 > self.buffer.len() {
                // By doubling, not by `need`: a lying length must not cost memory.
                self.buffer.resize((self.buffer.len() * 2).max(READ_BYTES), 0);
            }
            match self.from.read(&mut self.buffer[self.end..]) {
                Ok(0) => self.eof = true,
                Ok(n) => self.end += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(need.min(self.end - self.start))
    }

    fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }
}

impl<R> Input<R> {
    fn consume(&mut self, n: usize) {
        self.start += n;
    }

    fn consume_current(&mut self) {
        self.start += std::mem::take(&mut self.current);
    }

    /// Offset of the current record or, between records, of the next.
    fn offset(&self) -> u64 {
        self.before + self.start as u64
    }
}
