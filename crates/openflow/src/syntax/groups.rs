//! Groups and meters in text.

use std::fmt;

use super::actions::{ActionsText, parse_actions};
use super::{Parsed, Syntax, SyntaxError, Word};
use crate::flow::ANY_GROUP;
use crate::group::{
    ALL_GROUPS, ALL_METERS, Band, BandKind, Bucket, GROUP_MAX, GroupDesc, GroupMod, GroupType,
    METER_CONTROLLER, METER_MAX, METER_SLOWPATH, MeterConfig, MeterFlags, MeterMod, TableCommand,
};
use crate::port::PortNo;

const TYPES: &[(&str, GroupType)] = &[
    ("all", GroupType::All),
    ("select", GroupType::Select),
    ("indirect", GroupType::Indirect),
    ("ff", GroupType::FastFailover),
    ("fast_failover", GroupType::FastFailover),
];

/// Parts of the text that begin with `bucket=`, and what is before the first.
fn cut_buckets<'a>(text: &Word<'a>) -> (Word<'a>, Vec<Word<'a>>) {
    let keys = ["bucket=", "buckets="];
    let starts = text.text.char_indices().map(|(at, _)| at).filter(|at| {
        let is_start =
            *at == 0 || text.text[..*at].ends_with(|c: char| c == ',' || c.is_whitespace());
        is_start && keys.iter().any(|key| text.text[*at..].starts_with(key))
    });
    let starts: Vec<usize> = starts.collect();
    let head = text.to(starts.first().copied().unwrap_or(text.text.len()));
    let ends = starts.iter().skip(1).copied().chain([text.text.len()]);
    let buckets = starts.iter().zip(ends).map(|(start, end)| {
        let whole = text.to(end).from(*start);
        whole.split_at(&['=']).1.unwrap_or(whole)
    });
    (head, buckets.collect())
}

pub(super) fn parse_group(
    syntax: &Syntax<'_>,
    text: &Word<'_>,
    command: TableCommand,
) -> Parsed<GroupMod> {
    let (head, buckets) = cut_buckets(text);
    let mut group = None;
    let mut kind = None;
    for word in head.split() {
        let (name, value) = word.split_at(&['=']);
        match (name.text, value) {
            ("group_id", Some(value)) if value.text == "all" => group = Some(ALL_GROUPS),
            ("group_id", Some(value)) => {
                group = Some(value.number(u128::from(GROUP_MAX))? as u32);
            }
            ("type", Some(value)) => {
                let found = TYPES.iter().find(|(name, _)| *name == value.text);
                let found = found.ok_or_else(|| {
                    value.error("is not a type of groups (all, select, indirect, fast_failover)")
                })?;
                kind = Some(found.1);
            }
            _ => return Err(word.error("is not part of a group (group_id, type, bucket)")),
        }
    }
    let is_delete = command == TableCommand::Delete;
    let group = match (group, is_delete) {
        (Some(ALL_GROUPS), false) => {
            return Err(head.error("is about all groups, and one is needed"));
        }
        (Some(group), _) => group,
        (None, true) => ALL_GROUPS,
        (None, false) => return Err(SyntaxError::new(text.at, "there is no `group_id=`")),
    };
    let kind = match (kind, is_delete) {
        (Some(kind), _) => kind,
        (None, true) => GroupType::All,
        (None, false) => return Err(SyntaxError::new(text.at, "there is no `type=`")),
    };
    if let (true, Some(bucket)) = (is_delete, buckets.first()) {
        return Err(bucket.error("is a bucket, and the command takes none"));
    }
    let parse = |bucket: &Word<'_>| parse_bucket(syntax, bucket, kind);
    let buckets: Vec<Bucket> = buckets.iter().map(parse).collect::<Parsed<_>>()?;
    if !is_delete && kind == GroupType::Indirect && buckets.len() != 1 {
        return Err(SyntaxError::new(text.at, "an indirect group has exactly one bucket"));
    }
    Ok(GroupMod { command, kind, group, buckets })
}

fn parse_bucket(syntax: &Syntax<'_>, text: &Word<'_>, kind: GroupType) -> Parsed<Bucket> {
    let mut bucket = Bucket {
        weight: u16::from(kind == GroupType::Select),
        watch_port: PortNo::ANY,
        watch_group: ANY_GROUP,
        actions: Vec::new(),
    };
    for word in text.split() {
        let (name, value) = word.split_at(&[':', '=']);
        match (name.text, value) {
            ("weight", Some(value)) => bucket.weight = value.u16()?,
            ("watch_port", Some(value)) => bucket.watch_port = syntax.port(&value)?,
            ("watch_group", Some(value)) => bucket.watch_group = value.u32()?,
            // Numbers of buckets are of 1.5.
            ("bucket_id", Some(value)) => {
                value.u32()?;
            }
            ("actions" | "action", Some(first)) => {
                bucket.actions.extend(parse_actions(syntax, &first)?);
            }
            _ => bucket.actions.extend(parse_actions(syntax, &word)?),
        }
    }
    if kind == GroupType::FastFailover
        && (bucket.watch_port, bucket.watch_group) == (PortNo::ANY, ANY_GROUP)
    {
        return Err(text.error("watches neither a port nor a group"));
    }
    Ok(bucket)
}

/// Prints a group as `ovs-ofctl dump-groups` does.
#[derive(Clone, Copy, Debug)]
pub struct GroupText<'a>(pub &'a GroupDesc);

impl fmt::Display for GroupText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let group = self.0;
        let name = TYPES.iter().find(|(_, kind)| *kind == group.kind).map_or("all", |(n, _)| n);
        write!(f, "group_id={},type={name}", group.group)?;
        for bucket in &group.buckets {
            f.write_str(",bucket=")?;
            if bucket.weight != u16::from(group.kind == GroupType::Select)
                || group.kind == GroupType::Select
            {
                write!(f, "weight:{},", bucket.weight)?;
            }
            if bucket.watch_port != PortNo::ANY {
                write!(f, "watch_port:{},", bucket.watch_port)?;
            }
            if bucket.watch_group != ANY_GROUP {
                write!(f, "watch_group:{},", bucket.watch_group)?;
            }
            write!(f, "actions={}", ActionsText(&bucket.actions))?;
        }
        Ok(())
    }
}

pub(super) fn parse_meter(text: &Word<'_>, command: TableCommand) -> Parsed<MeterMod> {
    let is_delete = command == TableCommand::Delete;
    let mut meter = None;
    let mut flags = MeterFlags::empty();
    let mut bands: Vec<Band> = Vec::new();
    for word in text.split() {
        let (name, value) = word.split_at(&['=']);
        // `bands=type=drop`: the first band begins with both.
        let (name, value) = match (name.text, value) {
            ("bands", Some(inner)) if inner.text.is_empty() => continue,
            ("bands" | "band", Some(inner)) => inner.split_at(&['=']),
            _ => (name, value),
        };
        match (name.text, value) {
            ("meter", Some(value)) => {
                meter = Some(match value.text {
                    "all" => ALL_METERS,
                    "controller" => METER_CONTROLLER,
                    "slowpath" => METER_SLOWPATH,
                    _ => value.number(u128::from(METER_MAX))? as u32,
                });
            }
            ("type", Some(value)) => {
                let kind = match value.text {
                    "drop" => BandKind::Drop,
                    "dscp_remark" => BandKind::DscpRemark { prec_level: 0 },
                    _ => return Err(value.error("is not a type of bands (drop, dscp_remark)")),
                };
                bands.push(Band { kind, rate: 0, burst: 0 });
            }
            ("rate" | "burst_size" | "prec_level", Some(value)) => {
                let Some(band) = bands.last_mut() else {
                    return Err(word.error("is not in a band (bands=type=)"));
                };
                match (name.text, &mut band.kind) {
                    ("rate", _) => band.rate = value.u32()?,
                    ("burst_size", _) => band.burst = value.u32()?,
                    (_, BandKind::DscpRemark { prec_level }) => *prec_level = value.u8()?,
                    _ => return Err(word.error("is only in bands of type dscp_remark")),
                }
            }
            (name, None) => match MeterFlags::NAMES.iter().find(|(_, flag)| *flag == name) {
                Some((flag, _)) => flags |= *flag,
                None => {
                    return Err(word.error("is not part of a meter (kbps, pktps, burst, stats)"));
                }
            },
            _ => return Err(word.error("is not part of a meter (meter, bands)")),
        }
    }
    let meter = match (meter, is_delete) {
        (Some(ALL_METERS), false) => {
            return Err(text.error("is about all meters, and one is needed"));
        }
        (Some(meter), _) => meter,
        (None, true) => ALL_METERS,
        (None, false) => return Err(SyntaxError::new(text.at, "there is no `meter=`")),
    };
    let rates = MeterFlags::KBPS | MeterFlags::PKTPS;
    if !is_delete && flags.contains(rates) {
        return Err(SyntaxError::new(text.at, "a meter has one of `kbps` and `pktps`"));
    }
    // Kilobits where nothing is said, and a burst where a band has one: as ovs-ofctl.
    if !is_delete && flags.0 & rates.0 == 0 {
        flags |= MeterFlags::KBPS;
    }
    if bands.iter().any(|band| band.burst > 0) {
        flags |= MeterFlags::BURST;
    }
    Ok(MeterMod { command, flags, meter, bands })
}

/// Prints a meter as [`Syntax::meter`] reads it, in one line.
#[derive(Clone, Copy, Debug)]
pub struct MeterText<'a>(pub &'a MeterConfig);

impl fmt::Display for MeterText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let meter = self.0;
        match meter.meter {
            METER_CONTROLLER => f.write_str("meter=controller")?,
            METER_SLOWPATH => f.write_str("meter=slowpath")?,
            number => write!(f, "meter={number}")?,
        }
        meter.flags.names().try_for_each(|name| write!(f, " {name}"))?;
        f.write_str(" bands=")?;
        for (n, band) in meter.bands.iter().enumerate() {
            f.write_str(if n == 0 { "" } else { " " })?;
            match band.kind {
                BandKind::Drop => f.write_str("type=drop")?,
                BandKind::DscpRemark { .. } => f.write_str("type=dscp_remark")?,
                BandKind::Experimenter { id } => write!(f, "type=experimenter:{id:#x}")?,
            }
            write!(f, " rate={}", band.rate)?;
            if meter.flags.contains(MeterFlags::BURST) {
                write!(f, " burst_size={}", band.burst)?;
            }
            if let BandKind::DscpRemark { prec_level } = band.kind {
                write!(f, " prec_level={prec_level}")?;
            }
        }
        Ok(())
    }
}
