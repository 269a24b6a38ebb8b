//! Tables and the switch on the wire.

use super::Unencodable;
use super::bytes::{Put, Reader, close};
use crate::error::{ErrorCode, Version};
use crate::table::{
    Capabilities, Description, Features, Fragments, OxmId, SwitchConfig, TableFeatures,
    TableProperty, TableStats,
};

use super::ports;

pub(super) fn read_features(
    reader: &mut Reader<'_>,
    version: Version,
) -> Result<Features, ErrorCode> {
    let (datapath_id, buffers, tables) = (reader.u64()?, reader.u32()?, reader.u8()?);
    let auxiliary_id = match version {
        Version::V10 => {
            reader.skip(3)?;
            0
        }
        Version::V13 => {
            let id = reader.u8()?;
            reader.skip(2)?;
            id
        }
    };
    let (capabilities, actions) = (Capabilities(reader.u32()?), reader.u32()?);
    let mut all = Vec::new();
    while version == Version::V10 && !reader.is_empty() {
        all.push(ports::read_desc(reader, version)?);
    }
    Ok(Features { datapath_id, buffers, tables, auxiliary_id, capabilities, actions, ports: all })
}

pub(super) fn write_features(
    out: &mut Vec<u8>,
    version: Version,
    features: &Features,
) -> Result<(), Unencodable> {
    out.u64(features.datapath_id);
    out.u32(features.buffers);
    out.u8(features.tables);
    match version {
        Version::V10 => out.zeros(3),
        Version::V13 => {
            out.u8(features.auxiliary_id);
            out.zeros(2);
        }
    }
    out.u32(features.capabilities.0);
    out.u32(features.actions);
    match version {
        Version::V10 => {
            features.ports.iter().try_for_each(|port| ports::write_desc(out, version, port))
        }
        Version::V13 => Ok(()),
    }
}

pub(super) fn read_config(reader: &mut Reader<'_>) -> Result<SwitchConfig, ErrorCode> {
    let fragments = match reader.u16()? {
        0 => Fragments::Normal,
        1 => Fragments::Drop,
        2 => Fragments::Reassemble,
        _ => return Err(ErrorCode::SwitchConfigFlags),
    };
    Ok(SwitchConfig { fragments, miss_send_len: reader.u16()? })
}

pub(super) fn write_config(out: &mut Vec<u8>, config: SwitchConfig) {
    out.u16(match config.fragments {
        Fragments::Normal => 0,
        Fragments::Drop => 1,
        Fragments::Reassemble => 2,
    });
    out.u16(config.miss_send_len);
}

pub(super) fn read_desc(reader: &mut Reader<'_>) -> Result<Description, ErrorCode> {
    Ok(Description {
        manufacturer: reader.text(256)?,
        hardware: reader.text(256)?,
        software: reader.text(256)?,
        serial: reader.text(32)?,
        datapath: reader.text(256)?,
    })
}

pub(super) fn write_desc(out: &mut Vec<u8>, desc: &Description) {
    out.text(&desc.manufacturer, 256);
    out.text(&desc.hardware, 256);
    out.text(&desc.software, 256);
    out.text(&desc.serial, 32);
    out.text(&desc.datapath, 256);
}

pub(super) fn read_stats(
    reader: &mut Reader<'_>,
    version: Version,
) -> Result<TableStats, ErrorCode> {
    let table = reader.u8()?;
    reader.skip(3)?;
    let (name, wildcards, max_flows) = match version {
        Version::V10 => (reader.text(32)?, reader.u32()?, reader.u32()?),
        Version::V13 => (String::new(), 0, 0),
    };
    let (active, lookups, matched) = (reader.u32()?, reader.u64()?, reader.u64()?);
    Ok(TableStats { table, name, wildcards, max_flows, active, lookups, matched })
}

pub(super) fn write_stats(out: &mut Vec<u8>, version: Version, stats: &TableStats) {
    out.u8(stats.table);
    out.zeros(3);
    if version == Version::V10 {
        out.text(&stats.name, 32);
        out.u32(stats.wildcards);
        out.u32(stats.max_flows);
    }
    out.u32(stats.active);
    out.u64(stats.lookups);
    out.u64(stats.matched);
}

pub(super) fn read_table_features(reader: &mut Reader<'_>) -> Result<TableFeatures, ErrorCode> {
    let bad = ErrorCode::TableFeaturesLen;
    let mut head = *reader;
    let len = usize::from(head.u16()?);
    let mut body = reader.part(len, bad)?;
    body.skip(2)?;
    let short = |_| bad;
    let table = body.u8().map_err(short)?;
    body.skip(5).map_err(short)?;
    let name = body.text(32).map_err(short)?;
    let metadata_match = body.u64().map_err(short)?;
    let metadata_write = body.u64().map_err(short)?;
    let config = body.u32().map_err(short)?;
    let max_flows = body.u32().map_err(short)?;
    let mut properties = Vec::new();
    while !body.is_empty() {
        properties.push(read_property(&mut body).map_err(short)?);
    }
    Ok(TableFeatures { table, name, metadata_match, metadata_write, config, max_flows, properties })
}

fn read_property(reader: &mut Reader<'_>) -> Result<TableProperty, ErrorCode> {
    let bad = ErrorCode::TableFeaturesLen;
    let (kind, len) = (reader.u16()?, usize::from(reader.u16()?));
    let mut body = reader.part(len.checked_sub(4).ok_or(bad)?, bad)?;
    reader.skip(len.next_multiple_of(8) - len)?;
    let miss = kind & 1 != 0;
    Ok(match kind {
        0 | 1 => TableProperty::Instructions { miss, ids: read_ids(body)? },
        2 | 3 => TableProperty::NextTables { miss, tables: body.all().to_vec() },
        4 | 5 => TableProperty::WriteActions { miss, ids: read_ids(body)? },
        6 | 7 => TableProperty::ApplyActions { miss, ids: read_ids(body)? },
        8 => TableProperty::Match(read_oxms(body)?),
        10 => TableProperty::Wildcards(read_oxms(body)?),
        12 | 13 => TableProperty::WriteSetField { miss, ids: read_oxms(body)? },
        14 | 15 => TableProperty::ApplySetField { miss, ids: read_oxms(body)? },
        _ => TableProperty::Other { kind, data: body.all().to_vec() },
    })
}

/// Numbers of instructions or actions, each with its length (four).
fn read_ids(mut reader: Reader<'_>) -> Result<Vec<u16>, ErrorCode> {
    let mut ids = Vec::new();
    while !reader.is_empty() {
        ids.push(reader.u16()?);
        if reader.u16()? != 4 {
            return Err(ErrorCode::TableFeaturesLen);
        }
    }
    Ok(ids)
}

fn read_oxms(mut reader: Reader<'_>) -> Result<Vec<OxmId>, ErrorCode> {
    let mut ids = Vec::new();
    while !reader.is_empty() {
        ids.push(OxmId(reader.u32()?));
    }
    Ok(ids)
}

pub(super) fn write_table_features(
    out: &mut Vec<u8>,
    features: &TableFeatures,
) -> Result<(), Unencodable> {
    let start = out.len();
    out.u16(0);
    out.u8(features.table);
    out.zeros(5);
    out.text(&features.name, 32);
    out.u64(features.metadata_match);
    out.u64(features.metadata_write);
    out.u32(features.config);
    out.u32(features.max_flows);
    for property in &features.properties {
        write_property(out, property)?;
    }
    close(out, start, start)
}

fn write_property(out: &mut Vec<u8>, property: &TableProperty) -> Result<(), Unencodable> {
    let start = out.len();
    let mut head = |kind: u16, miss: bool| {
        out.u16(kind | u16::from(miss));
        out.u16(0);
    };
    let numbers = |out: &mut Vec<u8>, ids: &[u16]| {
        for id in ids {
            out.u16(*id);
            out.u16(4);
        }
    };
    let oxms = |out: &mut Vec<u8>, ids: &[OxmId]| ids.iter().for_each(|id| out.u32(id.0));
    match property {
        TableProperty::Instructions { miss, ids } => {
            head(0, *miss);
            numbers(out, ids);
        }
        TableProperty::NextTables { miss, tables } => {
            head(2, *miss);
            out.bytes(tables);
        }
        TableProperty::WriteActions { miss, ids } => {
            head(4, *miss);
            numbers(out, ids);
        }
        TableProperty::ApplyActions { miss, ids } => {
            head(6, *miss);
            numbers(out, ids);
        }
        TableProperty::Match(ids) => {
            head(8, false);
            oxms(out, ids);
        }
        TableProperty::Wildcards(ids) => {
            head(10, false);
            oxms(out, ids);
        }
        TableProperty::WriteSetField { miss, ids } => {
            head(12, *miss);
            oxms(out, ids);
        }
        TableProperty::ApplySetField { miss, ids } => {
            head(14, *miss);
            oxms(out, ids);
        }
        TableProperty::Other { kind, data } => {
            head(*kind, false);
            out.bytes(data);
        }
    }
    close(out, start, start + 2)?;
    out.pad8(start);
    Ok(())
}
