//! Queues of ports: the setting, and what it makes.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use controlplane::Interfaces;
use flowtable::queues::{PortConfig, PortShape, QueueConfig, Rate};
use openflow::port::{QueueDesc, QueueStats};
use openflow::{ErrorCode, PortNo};

use super::stage::PortNumbers;

/// Packets that wait in a queue at most, where the setting does not say.
const PACKETS: usize = 256;

/// Queues of a switch at most.
const QUEUES_MAX: usize = 1024;

/// `port=wan,rate=100M`, or `port=wan,queue=1,min_rate=10M,max_rate=50M,packets=500`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueText {
    port: String,
    /// `None`: it is about the port.
    queue: Option<u32>,
    rate: Rate,
    min_rate: Rate,
    max_rate: Rate,
    packets: usize,
}

/// `10M`: bits a second.
fn rate(text: &str) -> Option<Rate> {
    let (number, unit) = match text.as_bytes().last()? {
        b'k' => (&text[..text.len() - 1], 1_000),
        b'M' => (&text[..text.len() - 1], 1_000_000),
        b'G' => (&text[..text.len() - 1], 1_000_000_000),
        _ => (text, 1),
    };
    let rate = number.parse::<Rate>().ok()?.checked_mul(unit)?;
    (8..=1_000_000_000_000).contains(&rate).then_some(rate)
}

fn rate_text(rate: Rate) -> String {
    for (unit, name) in [(1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")] {
        if rate > 0 && rate.is_multiple_of(unit) {
            return format!("{}{name}", rate / unit);
        }
    }
    rate.to_string()
}

impl FromStr for QueueText {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut own = Self {
            port: String::new(),
            queue: None,
            rate: 0,
            min_rate: 0,
            max_rate: 0,
            packets: PACKETS,
        };
        for word in text.split(',') {
            let (key, value) =
                word.trim().split_once('=').ok_or_else(|| format!("`{word}` is not KEY=VALUE"))?;
            let rate = || {
                let wrong = "is not a rate in bits a second, such as 10M, from 8 to 1000G";
                rate(value).ok_or_else(|| format!("`{value}` {wrong}"))
            };
            let number = |max: u32| {
                let number = value.parse::<u32>().ok().filter(|number| *number <= max);
                number.ok_or_else(|| format!("`{value}` is not a number up to {max}"))
            };
            match key {
                "port" => own.port = value.to_owned(),
                "queue" => own.queue = Some(number(u32::MAX - 1)?),
                "rate" => own.rate = rate()?,
                "min_rate" => own.min_rate = rate()?,
                "max_rate" => own.max_rate = rate()?,
                "packets" => own.packets = number(1 << 16)?.max(1) as usize,
                _ => {
                    return Err(format!(
                        "`{key}` is not known (port, rate, queue, min_rate, max_rate, packets)"
                    ));
                }
            }
        }
        let is_of_queue = own.min_rate > 0 || own.max_rate > 0 || own.packets != PACKETS;
        match own.queue {
            _ if own.port.is_empty() => Err("`port=` is missing".to_owned()),
            None if is_of_queue => Err("`queue=` is missing".to_owned()),
            None if own.rate == 0 => Err("`queue=` or `rate=` is missing".to_owned()),
            Some(_) if own.rate > 0 => Err("`rate` is of a port, not of a queue".to_owned()),
            Some(_) if own.max_rate > 0 && own.min_rate > own.max_rate => {
                Err("min_rate is above max_rate".to_owned())
            }
            _ => Ok(own),
        }
    }
}

impl fmt::Display for QueueText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "port={}", self.port)?;
        if let Some(queue) = self.queue {
            write!(f, ",queue={queue}")?;
        }
        for (key, rate) in
            [("rate", self.rate), ("min_rate", self.min_rate), ("max_rate", self.max_rate)]
        {
            if rate > 0 {
                write!(f, ",{key}={}", rate_text(rate))?;
            }
        }
        if self.packets != PACKETS {
            write!(f, ",packets={}", self.packets)?;
        }
        Ok(())
    }
}

/// The queues in front of each port, by its number in the program.
pub(super) type Shapes = Vec<Option<Arc<PortShape>>>;

/// Queues of the setting.
pub(super) fn shapes(texts: &[QueueText], interfaces: &Interfaces) -> Result<Shapes, String> {
    if texts.len() > QUEUES_MAX {
        return Err(format!("queues: more than {QUEUES_MAX}"));
    }
    let mut configs: Vec<Option<PortConfig>> = Vec::new();
    for text in texts {
        let port = interfaces.number(&text.port);
        let port = port.ok_or_else(|| format!("queues: `{text}`: there is no such port"))?;
        let at = usize::from(port);
        if configs.len() <= at {
            configs.resize(at + 1, None);
        }
        let config = configs[at].get_or_insert_default();
        match text.queue {
            Some(id) if config.queues.iter().any(|own| own.id == id) => {
                return Err(format!("queues: `{text}`: the queue exists already"));
            }
            Some(id) => config.queues.push(QueueConfig {
                id,
                min_rate: text.min_rate,
                max_rate: text.max_rate,
                packets: text.packets,
            }),
            None if config.rate > 0 => {
                return Err(format!("queues: `{text}`: the port has a rate already"));
            }
            None => config.rate = text.rate,
        }
    }
    for (port, config) in configs.iter().enumerate() {
        let Some(config) = config else { continue };
        let least: u128 = config.queues.iter().map(|own| u128::from(own.min_rate)).sum();
        if config.rate > 0 && least > u128::from(config.rate) {
            let name = texts.iter().find(|own| interfaces.number(&own.port) == Some(port as u16));
            let name = name.map_or("", |own| own.port.as_str());
            return Err(format!("queues: the least rates of port `{name}` exceed its rate"));
        }
    }
    Ok(configs.into_iter().map(|own| own.map(|own| Arc::new(PortShape::new(own)))).collect())
}

/// All queues: port, place, and what is in front of the port.
fn all(shapes: &Shapes, ports: PortNumbers) -> impl Iterator<Item = (PortNo, usize, &PortShape)> {
    let number = move |port| ports.number(port as u16);
    let shaped = shapes.iter().enumerate();
    let shaped = shaped.filter_map(move |(port, shape)| Some((number(port), shape.as_deref()?)));
    shaped
        .flat_map(|(port, shape)| (0..shape.config().queues.len()).map(move |at| (port, at, shape)))
}

/// Port and number of each queue: what flows may name.
pub(super) fn numbers(shapes: &Shapes, ports: PortNumbers) -> Vec<(PortNo, u32)> {
    all(shapes, ports).map(|(port, at, shape)| (port, shape.config().queues[at].id)).collect()
}

/// QUEUE statistics.
pub(super) fn stats(
    shapes: &Shapes,
    ports: PortNumbers,
    (port, queue): (PortNo, u32),
    duration: Duration,
) -> Result<Vec<QueueStats>, ErrorCode> {
    let wanted = all(shapes, ports).filter(|(own, at, shape)| {
        (port == PortNo::ANY || port == *own)
            && (queue == u32::MAX || queue == shape.config().queues[*at].id)
    });
    let stats = |(port, at, shape): (PortNo, usize, &PortShape)| {
        let counters = &shape.counters()[at];
        QueueStats {
            port,
            queue: shape.config().queues[at].id,
            tx_bytes: counters.bytes.load(Ordering::Relaxed),
            tx_packets: counters.packets.load(Ordering::Relaxed),
            tx_errors: counters.dropped.load(Ordering::Relaxed),
            duration,
        }
    };
    let found: Vec<QueueStats> = wanted.map(stats).collect();
    match found.is_empty() && queue != u32::MAX {
        true => Err(ErrorCode::QueueOpQueue),
        false => Ok(found),
    }
}

/// QUEUE_GET_CONFIG. Rates are in tenths of a percent of the port's; where that is not given they are not.
pub(super) fn descriptions(shapes: &Shapes, ports: PortNumbers, port: PortNo) -> Vec<QueueDesc> {
    let wanted = all(shapes, ports).filter(|(own, ..)| port == PortNo::ANY || port == *own);
    let desc = |(port, at, shape): (PortNo, usize, &PortShape)| {
        let (config, own) = (shape.config(), &shape.config().queues[at]);
        let part = |rate: Rate| {
            let part = u128::from(rate) * 1000 / u128::from(config.rate.max(1));
            (rate > 0 && config.rate > 0).then_some(part.min(1000) as u16)
        };
        QueueDesc {
            port,
            queue: own.id,
            min_rate: part(own.min_rate),
            max_rate: part(own.max_rate),
            others: Vec::new(),
        }
    };
    wanted.map(desc).collect()
}

/// Rows for `ctl show openflow-queues`.
pub(super) fn rows(shapes: &Shapes, ports: PortNumbers) -> Vec<(PortNo, QueueConfig, [u64; 3])> {
    let row = |(port, at, shape): (PortNo, usize, &PortShape)| {
        let counters = &shape.counters()[at];
        let of = [&counters.packets, &counters.bytes, &counters.dropped];
        (port, shape.config().queues[at], of.map(|own| own.load(Ordering::Relaxed)))
    };
    all(shapes, ports).map(row).collect()
}

/// A rate for people.
pub(super) fn shown(rate: Rate) -> String {
    if rate == 0 { "-".to_owned() } else { rate_text(rate) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_and_printed() {
        for text in [
            "port=wan,rate=100M",
            "port=wan,queue=1,min_rate=10M,max_rate=1G,packets=500",
            "port=wan,queue=0,max_rate=1500",
            "port=wan,queue=7",
        ] {
            assert_eq!(text.parse::<QueueText>().unwrap().to_string(), text);
        }
        for (text, error) in [
            ("queue=1", "`port=` is missing"),
            ("port=wan", "`queue=` or `rate=` is missing"),
            ("port=wan,min_rate=1M", "`queue=` is missing"),
            ("port=wan,queue=1,rate=1M", "`rate` is of a port, not of a queue"),
            ("port=wan,queue=1,min_rate=2M,max_rate=1M", "min_rate is above max_rate"),
            ("port=wan,queue=x", "`x` is not a number up to 4294967294"),
            (
                "port=wan,queue=1,min_rate=fast",
                "`fast` is not a rate in bits a second, such as 10M, from 8 to 1000G",
            ),
            (
                "port=wan,queue=1,weight=3",
                "`weight` is not known (port, rate, queue, min_rate, max_rate, packets)",
            ),
            ("wan", "`wan` is not KEY=VALUE"),
        ] {
            assert_eq!(text.parse::<QueueText>(), Err(error.to_owned()), "{text}");
        }
    }
}
