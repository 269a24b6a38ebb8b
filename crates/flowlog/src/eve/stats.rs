//! Counters, as an event.

use super::{Eve, application};
use crate::json::{self, Object};

/// Counters by names with dots: `decoder.pkts`. Names with a common beginning follow one another.
#[derive(Clone, Copy, Debug)]
pub struct Stats<'a> {
    /// Seconds since the start.
    pub uptime_s: u64,
    /// Names and values.
    pub counters: &'a [(&'a str, u64)],
}

impl Eve {
    /// Appends the line of event type `stats`.
    pub fn stats(&self, at_ns: u64, stats: &Stats<'_>, out: &mut Vec<u8>) {
        let mut line = Object::begin(out);
        application::time(&mut line, "timestamp", at_ns);
        line.string("event_type", "stats");
        let mut object = line.object("stats");
        object.number("uptime", stats.uptime_s);
        let rows: Vec<(Vec<&str>, u64)> = { stats.counters.iter() }
            .map(|(name, value)| (name.split('.').collect(), *value))
            .collect();
        level(&mut object, &rows, 0);
        object.end();
        line.end();
        out.push(b'\n');
    }
}

/// The fields of one level: an object for each run of names that are the same there.
fn level(object: &mut Object<'_>, rows: &[(Vec<&str>, u64)], depth: usize) {
    let same = |a: &(Vec<&str>, u64), b: &(Vec<&str>, u64)| a.0[depth] == b.0[depth];
    for run in rows.chunk_by(same) {
        let (name, value) = &run[0];
        let out = object.named(name[depth]);
        if name.len() == depth + 1 {
            json::number(*value, out);
        } else {
            let mut inner = Object::begin(out);
            level(&mut inner, run, depth + 1);
            inner.end();
        }
    }
}
