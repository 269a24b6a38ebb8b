//! Groups and meters on the wire (1.3 only).

use super::bytes::{Put, Reader, close};
use super::{Unencodable, action};
use crate::error::{ErrorCode, Version};
use crate::group::{
    Band, BandKind, Bucket, BucketCounters, GroupCapabilities, GroupDesc, GroupFeatures, GroupMod,
    GroupStats, GroupType, MeterConfig, MeterFeatures, MeterFlags, MeterMod, MeterStats,
    TableCommand,
};
use crate::matches::Match;
use crate::port::PortNo;

type Write = Result<(), Unencodable>;

fn command(number: u16, error: ErrorCode) -> Result<TableCommand, ErrorCode> {
    match number {
        0 => Ok(TableCommand::Add),
        1 => Ok(TableCommand::Modify),
        2 => Ok(TableCommand::Delete),
        _ => Err(error),
    }
}

const fn command_out(command: TableCommand) -> u16 {
    match command {
        TableCommand::Add => 0,
        TableCommand::Modify => 1,
        TableCommand::Delete => 2,
    }
}

fn kind(number: u8) -> Result<GroupType, ErrorCode> {
    match number {
        0 => Ok(GroupType::All),
        1 => Ok(GroupType::Select),
        2 => Ok(GroupType::Indirect),
        3 => Ok(GroupType::FastFailover),
        _ => Err(ErrorCode::GroupModType),
    }
}

const fn kind_out(kind: GroupType) -> u8 {
    match kind {
        GroupType::All => 0,
        GroupType::Select => 1,
        GroupType::Indirect => 2,
        GroupType::FastFailover => 3,
    }
}

fn read_buckets(mut reader: Reader<'_>) -> Result<Vec<Bucket>, ErrorCode> {
    let bad = ErrorCode::GroupModBucket;
    let mut buckets = Vec::new();
    while !reader.is_empty() {
        let mut head = reader;
        let len = usize::from(head.u16().map_err(|_| bad)?);
        if len < 16 || !len.is_multiple_of(8) {
            return Err(bad);
        }
        let mut body = reader.part(len, bad)?;
        body.skip(2)?;
        let weight = body.u16()?;
        let (watch_port, watch_group) = (PortNo(body.u32()?), body.u32()?);
        body.skip(4)?;
        let actions = action::read_actions(Version::V13, body)?;
        buckets.push(Bucket { weight, watch_port, watch_group, actions });
    }
    Ok(buckets)
}

fn write_buckets(out: &mut Vec<u8>, buckets: &[Bucket]) -> Write {
    for bucket in buckets {
        let start = out.len();
        out.u16(0);
        out.u16(bucket.weight);
        out.u32(bucket.watch_port.0);
        out.u32(bucket.watch_group);
        out.zeros(4);
        action::write_actions(out, Version::V13, &bucket.actions, &Match::new())?;
        close(out, start, start)?;
    }
    Ok(())
}

pub(super) fn read_group_mod(reader: &mut Reader<'_>) -> Result<GroupMod, ErrorCode> {
    let command = command(reader.u16()?, ErrorCode::GroupModCommand)?;
    let kind = kind(reader.u8()?)?;
    reader.skip(1)?;
    let group = reader.u32()?;
    let buckets = read_buckets(Reader::new(reader.all()))?;
    Ok(GroupMod { command, kind, group, buckets })
}

pub(super) fn write_group_mod(out: &mut Vec<u8>, change: &GroupMod) -> Write {
    out.u16(command_out(change.command));
    out.u8(kind_out(change.kind));
    out.u8(0);
    out.u32(change.group);
    write_buckets(out, &change.buckets)
}

/// The next entry of a reply that begins with its length.
fn entry<'a>(reader: &mut Reader<'a>) -> Result<Reader<'a>, ErrorCode> {
    let bad = ErrorCode::BadRequestLen;
    let mut head = *reader;
    let len = usize::from(head.u16()?);
    let mut body = reader.part(len, bad)?;
    body.skip(2)?;
    Ok(body)
}

fn read_counters(mut reader: Reader<'_>) -> Result<Vec<BucketCounters>, ErrorCode> {
    let mut all = Vec::new();
    while !reader.is_empty() {
        all.push(BucketCounters { packets: reader.u64()?, bytes: reader.u64()? });
    }
    Ok(all)
}

fn write_counters(out: &mut Vec<u8>, all: &[BucketCounters]) {
    for counters in all {
        out.u64(counters.packets);
        out.u64(counters.bytes);
    }
}

pub(super) fn read_group_stats(reader: &mut Reader<'_>) -> Result<GroupStats, ErrorCode> {
    let mut body = entry(reader)?;
    body.skip(2)?;
    let (group, references) = (body.u32()?, body.u32()?);
    body.skip(4)?;
    let (packets, bytes, duration) = (body.u64()?, body.u64()?, body.duration()?);
    Ok(GroupStats { group, references, packets, bytes, duration, buckets: read_counters(body)? })
}

pub(super) fn write_group_stats(out: &mut Vec<u8>, stats: &GroupStats) -> Write {
    let start = out.len();
    out.zeros(4);
    out.u32(stats.group);
    out.u32(stats.references);
    out.zeros(4);
    out.u64(stats.packets);
    out.u64(stats.bytes);
    out.duration(stats.duration);
    write_counters(out, &stats.buckets);
    close(out, start, start)
}

pub(super) fn read_group_desc(reader: &mut Reader<'_>) -> Result<GroupDesc, ErrorCode> {
    let mut body = entry(reader)?;
    let kind = kind(body.u8()?)?;
    body.skip(1)?;
    let group = body.u32()?;
    Ok(GroupDesc { kind, group, buckets: read_buckets(body)? })
}

pub(super) fn write_group_desc(out: &mut Vec<u8>, desc: &GroupDesc) -> Write {
    let start = out.len();
    out.zeros(2);
    out.u8(kind_out(desc.kind));
    out.u8(0);
    out.u32(desc.group);
    write_buckets(out, &desc.buckets)?;
    close(out, start, start)
}

pub(super) fn read_group_features(reader: &mut Reader<'_>) -> Result<GroupFeatures, ErrorCode> {
    let (types, capabilities) = (reader.u32()?, GroupCapabilities(reader.u32()?));
    let mut four =
        || Ok::<_, ErrorCode>([reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?]);
    Ok(GroupFeatures { types, capabilities, max_groups: four()?, actions: four()? })
}

pub(super) fn write_group_features(out: &mut Vec<u8>, features: &GroupFeatures) {
    out.u32(features.types);
    out.u32(features.capabilities.0);
    features.max_groups.into_iter().chain(features.actions).for_each(|n| out.u32(n));
}

fn read_bands(mut reader: Reader<'_>) -> Result<Vec<Band>, ErrorCode> {
    let bad = ErrorCode::BadRequestLen;
    let mut bands = Vec::new();
    while !reader.is_empty() {
        let (kind, len) = (reader.u16()?, reader.u16()?);
        if len != 16 {
            return Err(bad);
        }
        let (rate, burst) = (reader.u32()?, reader.u32()?);
        let mut rest = reader.part(4, bad)?;
        let kind = match kind {
            1 => BandKind::Drop,
            2 => BandKind::DscpRemark { prec_level: rest.u8()? },
            0xffff => BandKind::Experimenter { id: rest.u32()? },
            _ => return Err(ErrorCode::MeterModBand),
        };
        bands.push(Band { kind, rate, burst });
    }
    Ok(bands)
}

fn write_bands(out: &mut Vec<u8>, bands: &[Band]) {
    for band in bands {
        let (kind, rest) = match band.kind {
            BandKind::Drop => (1, 0),
            BandKind::DscpRemark { prec_level } => (2, u32::from(prec_level) << 24),
            BandKind::Experimenter { id } => (0xffff, id),
        };
        out.u16(kind);
        out.u16(16);
        out.u32(band.rate);
        out.u32(band.burst);
        out.u32(rest);
    }
}

pub(super) fn read_meter_mod(reader: &mut Reader<'_>) -> Result<MeterMod, ErrorCode> {
    let command = command(reader.u16()?, ErrorCode::MeterModCommand)?;
    let (flags, meter) = (MeterFlags(reader.u16()?), reader.u32()?);
    let bands = read_bands(Reader::new(reader.all()))?;
    Ok(MeterMod { command, flags, meter, bands })
}

pub(super) fn write_meter_mod(out: &mut Vec<u8>, change: &MeterMod) {
    out.u16(command_out(change.command));
    out.u16(change.flags.0);
    out.u32(change.meter);
    write_bands(out, &change.bands);
}

pub(super) fn read_meter_stats(reader: &mut Reader<'_>) -> Result<MeterStats, ErrorCode> {
    let bad = ErrorCode::BadRequestLen;
    let (meter, len) = (reader.u32()?, usize::from(reader.u16()?));
    let mut body = reader.part(len.checked_sub(6).ok_or(bad)?, bad)?;
    body.skip(6)?;
    let flows = body.u32()?;
    let (packets, bytes, duration) = (body.u64()?, body.u64()?, body.duration()?);
    Ok(MeterStats { meter, flows, packets, bytes, duration, bands: read_counters(body)? })
}

pub(super) fn write_meter_stats(out: &mut Vec<u8>, stats: &MeterStats) -> Write {
    let start = out.len();
    out.u32(stats.meter);
    out.zeros(8);
    out.u32(stats.flows);
    out.u64(stats.packets);
    out.u64(stats.bytes);
    out.duration(stats.duration);
    write_counters(out, &stats.bands);
    close(out, start, start + 4)
}

pub(super) fn read_meter_config(reader: &mut Reader<'_>) -> Result<MeterConfig, ErrorCode> {
    let mut body = entry(reader)?;
    let (flags, meter) = (MeterFlags(body.u16()?), body.u32()?);
    Ok(MeterConfig { flags, meter, bands: read_bands(body)? })
}

pub(super) fn write_meter_config(out: &mut Vec<u8>, config: &MeterConfig) -> Write {
    let start = out.len();
    out.zeros(2);
    out.u16(config.flags.0);
    out.u32(config.meter);
    write_bands(out, &config.bands);
    close(out, start, start)
}

pub(super) fn read_meter_features(reader: &mut Reader<'_>) -> Result<MeterFeatures, ErrorCode> {
    let (max_meters, band_types, capabilities) = (reader.u32()?, reader.u32()?, reader.u32()?);
    let (max_bands, max_color) = (reader.u8()?, reader.u8()?);
    reader.skip(2)?;
    Ok(MeterFeatures { max_meters, band_types, capabilities, max_bands, max_color })
}

pub(super) fn write_meter_features(out: &mut Vec<u8>, features: &MeterFeatures) {
    out.u32(features.max_meters);
    out.u32(features.band_types);
    out.u32(features.capabilities);
    out.u8(features.max_bands);
    out.u8(features.max_color);
    out.zeros(2);
}
