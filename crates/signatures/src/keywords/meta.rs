//! What is said about a rule and what comes of a match.

use super::arg::{Arg, Part};
use crate::parse::Builder;
use crate::problem::Fault;
use crate::{
    DetectionFilter, Tag, TagScope, TagUnit, TargetSide, Threshold, ThresholdKind, Track, UniqueOn,
    Unsupported,
};

const U32: u64 = u32::MAX as u64;

pub(super) fn apply(builder: &mut Builder, name: &str, arg: &Arg<'_>) -> Result<bool, Fault> {
    match name {
        "msg" => {
            builder.once("msg")?;
            builder.rule.msg = Some(arg.text()?);
        }
        "sid" => {
            builder.once("sid")?;
            builder.rule.sid = arg.number(U32)? as u32;
            if builder.rule.sid == 0 {
                return Err(arg.fault("a sid is at least 1"));
            }
        }
        "gid" => {
            builder.once("gid")?;
            builder.rule.gid = arg.number(U32)? as u32;
        }
        "rev" => {
            builder.once("rev")?;
            builder.rule.rev = arg.number(U32)? as u32;
        }
        "classtype" => {
            builder.once("classtype")?;
            builder.rule.classtype = Some(Part { at: arg.at, text: arg.plain()? }.name()?);
        }
        "priority" => {
            builder.once("priority")?;
            builder.rule.priority = Some(arg.number(255)? as u8);
            if builder.rule.priority == Some(0) {
                return Err(arg.fault("a priority is 1 to 255"));
            }
        }
        "reference" => {
            let text = arg.text()?;
            let Some((system, id)) = text.split_once(',') else {
                return Err(arg.fault("it is written `SYSTEM,IDENTIFIER`"));
            };
            let (system, id) = (system.trim_ascii(), id.trim_ascii());
            if system.is_empty() || id.is_empty() {
                return Err(arg.fault("it is written `SYSTEM,IDENTIFIER`"));
            }
            builder.rule.references.push((system.to_owned(), id.to_owned()));
        }
        "metadata" => metadata(builder, arg)?,
        "target" => {
            builder.once("target")?;
            let part = Part { at: arg.at, text: arg.plain()? };
            builder.rule.target = Some(match part.text {
                "src_ip" => TargetSide::Source,
                "dest_ip" => TargetSide::Destination,
                _ => return Err(part.unknown(&["src_ip", "dest_ip"])),
            });
        }
        "noalert" => {
            arg.none()?;
            builder.rule.noalert = true;
        }
        "prefilter" => {
            arg.none()?;
            builder.rule.prefilter = true;
        }
        "bypass" => {
            arg.none()?;
            builder.rule.bypass = true;
        }
        "threshold" if arg.parts()?.iter().any(is_backoff) => {
            let value = Some(String::from_utf8_lossy(arg.bytes()?).into_owned());
            builder.rule.unsupported.push(Unsupported { keyword: "threshold", value });
        }
        "threshold" => {
            one_rate(builder)?;
            builder.rule.threshold = Some(threshold(&arg.parts()?, arg)?);
        }
        "detection_filter" => {
            one_rate(builder)?;
            builder.rule.detection_filter = Some(detection_filter(arg)?);
        }
        "tag" => {
            let tag = tag(arg)?;
            builder.rule.tags.push(tag);
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// Suricata 8's thresholds that grow.
fn is_backoff(part: &Part<'_>) -> bool {
    let (word, value) = part.pair();
    word == "type" && value.text == "backoff"
}

fn one_rate(builder: &Builder) -> Result<(), Fault> {
    match builder.rule.threshold.is_some() || builder.rule.detection_filter.is_some() {
        true => Err(builder.fault("the rule has a threshold or detection_filter already")),
        false => Ok(()),
    }
}

fn metadata(builder: &mut Builder, arg: &Arg<'_>) -> Result<(), Fault> {
    let text = arg.text()?;
    for entry in text.split(',') {
        let entry = entry.trim_ascii();
        if entry.is_empty() {
            // A comma at the end, as generators of rules write it.
            continue;
        }
        let (key, value) = match entry.split_once(|c: char| c.is_ascii_whitespace()) {
            Some((key, value)) => (key, value.trim_ascii()),
            None => (entry, ""),
        };
        builder.rule.metadata.push((key.to_owned(), value.to_owned()));
    }
    Ok(())
}

/// What thresholds, filters and their file have in common.
#[derive(Default)]
pub(crate) struct Rate {
    pub(crate) kind: Option<ThresholdKind>,
    pub(crate) track: Option<Track>,
    pub(crate) count: Option<u32>,
    pub(crate) seconds: Option<u32>,
    pub(crate) unique_on: Option<UniqueOn>,
}

const TRACKS: &[&str] = &["by_src", "by_dst", "by_both", "by_rule", "by_flow"];

pub(crate) fn track(value: &Part<'_>) -> Result<Track, Fault> {
    Ok(match value.text {
        "by_src" => Track::Source,
        "by_dst" => Track::Destination,
        "by_both" => Track::Pair,
        "by_rule" => Track::Rule,
        "by_flow" => Track::Flow,
        _ => return Err(value.unknown(TRACKS)),
    })
}

impl Rate {
    /// Takes a part; false where it is not one of these.
    pub(crate) fn take(&mut self, part: &Part<'_>) -> Result<bool, Fault> {
        let (word, value) = part.pair();
        let positive = || match value.number(U32)? as u32 {
            0 => Err(value.fault(format!("`{word}` is at least 1"))),
            number => Ok(number),
        };
        let twice = match word {
            "type" => {
                let kind = match value.text {
                    "limit" => ThresholdKind::Limit,
                    "threshold" => ThresholdKind::Threshold,
                    "both" => ThresholdKind::Both,
                    _ => return Err(value.unknown(&["limit", "threshold", "both"])),
                };
                self.kind.replace(kind).is_some()
            }
            "track" => self.track.replace(track(&value)?).is_some(),
            "count" => self.count.replace(positive()?).is_some(),
            "seconds" => self.seconds.replace(positive()?).is_some(),
            "unique_on" => {
                let port = match value.text {
                    "src_port" => UniqueOn::SourcePort,
                    "dst_port" => UniqueOn::DestinationPort,
                    _ => return Err(value.unknown(&["src_port", "dst_port"])),
                };
                self.unique_on.replace(port).is_some()
            }
            _ => return Ok(false),
        };
        match twice {
            true => Err(part.fault(format!("`{word}` is given twice"))),
            false => Ok(true),
        }
    }

    pub(crate) fn window(&self, arg: &Arg<'_>) -> Result<(Track, u32, u32), Fault> {
        let missing = |name: &str| arg.fault(format!("`{name}` is missing"));
        Ok((
            self.track.ok_or_else(|| missing("track"))?,
            self.count.ok_or_else(|| missing("count"))?,
            self.seconds.ok_or_else(|| missing("seconds"))?,
        ))
    }
}

const RATE_WORDS: &[&str] = &["type", "track", "count", "seconds"];

pub(crate) fn threshold(parts: &[Part<'_>], arg: &Arg<'_>) -> Result<Threshold, Fault> {
    let mut rate = Rate::default();
    for part in parts {
        if part.text.starts_with("unique_on") || !rate.take(part)? {
            return Err(part.unknown(RATE_WORDS));
        }
    }
    let (track, count, seconds) = rate.window(arg)?;
    let kind = rate.kind.ok_or_else(|| arg.fault("`type` is missing"))?;
    Ok(Threshold { kind, track, count, seconds })
}

fn detection_filter(arg: &Arg<'_>) -> Result<DetectionFilter, Fault> {
    let mut rate = Rate::default();
    for part in arg.parts()? {
        if part.text.starts_with("type") || !rate.take(&part)? {
            return Err(part.unknown(&["track", "count", "seconds", "unique_on"]));
        }
    }
    let (track, count, seconds) = rate.window(arg)?;
    Ok(DetectionFilter { track, count, seconds, unique_on: rate.unique_on })
}

/// `session|host[,NUMBER,UNIT][,src|dst]`.
fn tag(arg: &Arg<'_>) -> Result<Tag, Fault> {
    let parts = arg.parts()?;
    let unit = |part: &Part<'_>| match part.text {
        "packets" => Ok(TagUnit::Packets),
        "seconds" => Ok(TagUnit::Seconds),
        "bytes" => Ok(TagUnit::Bytes),
        _ => Err(part.unknown(&["packets", "seconds", "bytes"])),
    };
    let (side, middle) = match parts[1..].split_last() {
        Some((last, before)) if matches!(last.text, "src" | "dst") => (Some(last.text), before),
        _ => (None, &parts[1..]),
    };
    let amount = match middle {
        [] => None,
        [number, kind] => {
            let number = number.number(U32)? as u32;
            Some((number, unit(kind)?))
        }
        _ => return Err(arg.fault("it is written `SCOPE,NUMBER,UNIT[,src|dst]`")),
    };
    if amount.is_some_and(|(number, _)| number == 0) {
        return Err(arg.fault("a tag records at least 1"));
    }
    let scope = match (parts[0].text, side) {
        ("session", None) => TagScope::Session,
        ("session", Some(_)) => return Err(arg.fault("src and dst belong to `host`")),
        ("host", Some("src")) => TagScope::Source,
        ("host", _) => TagScope::Destination,
        _ => return Err(parts[0].unknown(&["session", "host"])),
    };
    Ok(Tag { scope, amount })
}
