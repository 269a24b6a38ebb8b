//! Ports and queues on the wire.

use super::Unencodable;
use super::bytes::{Put, Reader, close};
use crate::error::{ErrorCode, Version};
use crate::port::{
    PortConfig, PortCounters, PortDesc, PortFeatures, PortMod, PortNo, PortState, PortStats,
    QueueDesc, QueueStats,
};

pub(super) fn read_no(reader: &mut Reader<'_>, version: Version) -> Result<PortNo, ErrorCode> {
    Ok(match version {
        Version::V10 => PortNo::from_v10(reader.u16()?),
        Version::V13 => PortNo(reader.u32()?),
    })
}

/// # Errors
/// `Version` where the number does not fit into 1.0's 16 bits.
pub(super) fn write_no(
    out: &mut Vec<u8>,
    version: Version,
    port: PortNo,
) -> Result<(), Unencodable> {
    match version {
        Version::V10 => out.u16(port.to_v10().ok_or(Unencodable::Version)?),
        Version::V13 => out.u32(port.0),
    }
    Ok(())
}

/// 1.0 has no rates of 40 Gb/s and more: the bits behind them are four places lower.
fn features(version: Version, bits: u32) -> PortFeatures {
    match version {
        Version::V10 => PortFeatures(bits & 0x7f | (bits & 0xf80) << 4),
        Version::V13 => PortFeatures(bits),
    }
}

fn features_out(version: Version, features: PortFeatures) -> u32 {
    match version {
        Version::V10 => features.0 & 0x7f | features.0 >> 4 & 0xf80,
        Version::V13 => features.0,
    }
}

pub(super) fn read_desc(reader: &mut Reader<'_>, version: Version) -> Result<PortDesc, ErrorCode> {
    let port = read_no(reader, version)?;
    if version == Version::V13 {
        reader.skip(4)?;
    }
    let hw_addr = reader.array()?;
    if version == Version::V13 {
        reader.skip(2)?;
    }
    let name = reader.text(16)?;
    let (config, state) = (PortConfig(reader.u32()?), PortState(reader.u32()?));
    let mut next = || Ok(features(version, reader.u32()?));
    let (current, advertised, supported, peer) = (next()?, next()?, next()?, next()?);
    let (current_kbps, max_kbps) = match version {
        Version::V10 => (0, 0),
        Version::V13 => (reader.u32()?, reader.u32()?),
    };
    Ok(PortDesc {
        port,
        hw_addr,
        name,
        config,
        state,
        current,
        advertised,
        supported,
        peer,
        current_kbps,
        max_kbps,
    })
}

pub(super) fn write_desc(
    out: &mut Vec<u8>,
    version: Version,
    port: &PortDesc,
) -> Result<(), Unencodable> {
    write_no(out, version, port.port)?;
    if version == Version::V13 {
        out.zeros(4);
    }
    out.bytes(&port.hw_addr);
    if version == Version::V13 {
        out.zeros(2);
    }
    out.text(&port.name, 16);
    out.u32(port.config.0);
    out.u32(port.state.0);
    for each in [port.current, port.advertised, port.supported, port.peer] {
        out.u32(features_out(version, each));
    }
    if version == Version::V13 {
        out.u32(port.current_kbps);
        out.u32(port.max_kbps);
    }
    Ok(())
}

pub(super) fn read_mod(reader: &mut Reader<'_>, version: Version) -> Result<PortMod, ErrorCode> {
    let port = read_no(reader, version)?;
    if version == Version::V13 {
        reader.skip(4)?;
    }
    let hw_addr = reader.array()?;
    if version == Version::V13 {
        reader.skip(2)?;
    }
    let (config, mask) = (PortConfig(reader.u32()?), PortConfig(reader.u32()?));
    let advertise = features(version, reader.u32()?);
    reader.skip(4)?;
    Ok(PortMod { port, hw_addr, config, mask, advertise })
}

pub(super) fn write_mod(
    out: &mut Vec<u8>,
    version: Version,
    change: &PortMod,
) -> Result<(), Unencodable> {
    write_no(out, version, change.port)?;
    if version == Version::V13 {
        out.zeros(4);
    }
    out.bytes(&change.hw_addr);
    if version == Version::V13 {
        out.zeros(2);
    }
    out.u32(change.config.0);
    out.u32(change.mask.0);
    out.u32(features_out(version, change.advertise));
    out.zeros(4);
    Ok(())
}

/// A port in a field of eight bytes.
pub(super) fn read_padded(reader: &mut Reader<'_>, version: Version) -> Result<PortNo, ErrorCode> {
    let port = read_no(reader, version)?;
    reader.skip(if version == Version::V10 { 6 } else { 4 })?;
    Ok(port)
}

pub(super) fn write_padded(
    out: &mut Vec<u8>,
    version: Version,
    port: PortNo,
) -> Result<(), Unencodable> {
    write_no(out, version, port)?;
    out.zeros(if version == Version::V10 { 6 } else { 4 });
    Ok(())
}

pub(super) fn read_stats(
    reader: &mut Reader<'_>,
    version: Version,
) -> Result<PortStats, ErrorCode> {
    let port = read_padded(reader, version)?;
    let mut next = || reader.u64();
    let counters = PortCounters {
        rx_packets: next()?,
        tx_packets: next()?,
        rx_bytes: next()?,
        tx_bytes: next()?,
        rx_dropped: next()?,
        tx_dropped: next()?,
        rx_errors: next()?,
        tx_errors: next()?,
        rx_frame_errors: next()?,
        rx_over_errors: next()?,
        rx_crc_errors: next()?,
        collisions: next()?,
    };
    let duration = match version {
        Version::V10 => Default::default(),
        Version::V13 => reader.duration()?,
    };
    Ok(PortStats { port, counters, duration })
}

pub(super) fn write_stats(
    out: &mut Vec<u8>,
    version: Version,
    stats: &PortStats,
) -> Result<(), Unencodable> {
    write_padded(out, version, stats.port)?;
    let c = &stats.counters;
    let all = [
        c.rx_packets,
        c.tx_packets,
        c.rx_bytes,
        c.tx_bytes,
        c.rx_dropped,
        c.tx_dropped,
        c.rx_errors,
        c.tx_errors,
        c.rx_frame_errors,
        c.rx_over_errors,
        c.rx_crc_errors,
        c.collisions,
    ];
    all.into_iter().for_each(|counter| out.u64(counter));
    if version == Version::V13 {
        out.duration(stats.duration);
    }
    Ok(())
}

/// A queue of a port, as requests and statistics name it.
pub(super) fn read_queue_id(
    reader: &mut Reader<'_>,
    version: Version,
) -> Result<(PortNo, u32), ErrorCode> {
    let port = read_no(reader, version)?;
    if version == Version::V10 {
        reader.skip(2)?;
    }
    Ok((port, reader.u32()?))
}

pub(super) fn write_queue_id(
    out: &mut Vec<u8>,
    version: Version,
    port: PortNo,
    queue: u32,
) -> Result<(), Unencodable> {
    write_no(out, version, port)?;
    if version == Version::V10 {
        out.zeros(2);
    }
    out.u32(queue);
    Ok(())
}

pub(super) fn read_queue_stats(
    reader: &mut Reader<'_>,
    version: Version,
) -> Result<QueueStats, ErrorCode> {
    let (port, queue) = read_queue_id(reader, version)?;
    let (tx_bytes, tx_packets, tx_errors) = (reader.u64()?, reader.u64()?, reader.u64()?);
    let duration = match version {
        Version::V10 => Default::default(),
        Version::V13 => reader.duration()?,
    };
    Ok(QueueStats { port, queue, tx_bytes, tx_packets, tx_errors, duration })
}

pub(super) fn write_queue_stats(
    out: &mut Vec<u8>,
    version: Version,
    stats: &QueueStats,
) -> Result<(), Unencodable> {
    write_queue_id(out, version, stats.port, stats.queue)?;
    [stats.tx_bytes, stats.tx_packets, stats.tx_errors].into_iter().for_each(|c| out.u64(c));
    if version == Version::V13 {
        out.duration(stats.duration);
    }
    Ok(())
}

const MIN_RATE: u16 = 1;
const MAX_RATE: u16 = 2;

/// Queues of QUEUE_GET_CONFIG_REPLY: all of `reader`. Of 1.0 they are of port `of`.
pub(super) fn read_queues(
    reader: &mut Reader<'_>,
    version: Version,
    of: PortNo,
) -> Result<Vec<QueueDesc>, ErrorCode> {
    let bad = ErrorCode::BadRequestLen;
    let mut queues = Vec::new();
    while !reader.is_empty() {
        let queue = reader.u32()?;
        let (port, head) = match version {
            Version::V10 => (of, 8),
            Version::V13 => (PortNo(reader.u32()?), 16),
        };
        let len = usize::from(reader.u16()?);
        reader.skip(if version == Version::V10 { 2 } else { 6 })?;
        let mut properties = reader.part(len.checked_sub(head).ok_or(bad)?, bad)?;
        let mut desc =
            QueueDesc { port, queue, min_rate: None, max_rate: None, others: Vec::new() };
        while !properties.is_empty() {
            let (kind, len) = (properties.u16()?, usize::from(properties.u16()?));
            let mut body = properties.part(len.checked_sub(4).ok_or(bad)?, bad)?;
            body.skip(4)?;
            match kind {
                MIN_RATE => desc.min_rate = Some(body.u16()?),
                MAX_RATE => desc.max_rate = Some(body.u16()?),
                other => desc.others.push((other, body.all().to_vec())),
            }
        }
        queues.push(desc);
    }
    Ok(queues)
}

pub(super) fn write_queues(
    out: &mut Vec<u8>,
    version: Version,
    queues: &[QueueDesc],
) -> Result<(), Unencodable> {
    for queue in queues {
        let start = out.len();
        out.u32(queue.queue);
        if version == Version::V13 {
            out.u32(queue.port.0);
        }
        let at = out.len();
        out.u16(0);
        out.zeros(if version == Version::V10 { 2 } else { 6 });
        for (kind, rate) in [(MIN_RATE, queue.min_rate), (MAX_RATE, queue.max_rate)] {
            let Some(rate) = rate else { continue };
            out.u16(kind);
            out.u16(16);
            out.zeros(4);
            out.u16(rate);
            out.zeros(6);
        }
        for (kind, data) in &queue.others {
            let start = out.len();
            out.u16(*kind);
            out.u16(0);
            out.zeros(4);
            out.bytes(data);
            close(out, start, start + 2)?;
        }
        close(out, start, at)?;
    }
    Ok(())
}
