//! Traces.

use std::io::{self, Write};

use super::text::{Line, each_line};
use super::{ProblemKind, Problems};

/// The filter of a header that has none.
pub const NO_FILTER: u32 = u32::MAX;

/// The words of a header of [`Schema::five_tuple`](crate::Schema::five_tuple).
const WORDS: usize = 4;

/// A trace, read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Trace {
    /// The headers, one after the other, as their schema packs them; of
    /// [`Schema::five_tuple`](crate::Schema::five_tuple), as files of this format are, four words each.
    pub headers: Vec<u32>,
    /// The filter that each was drawn from, from 0; [`NO_FILTER`] where the line has no such column. Not always
    /// the best match.
    pub filters: Vec<u32>,
}

impl Trace {
    /// Headers.
    pub fn len(&self) -> usize {
        self.filters.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.filters.is_empty()
    }
}

/// Reads the bytes of a trace.
///
/// # Errors
/// Every bad line, by number.
pub fn parse_trace(bytes: &[u8]) -> Result<Trace, Problems> {
    let mut trace = Trace::default();
    each_line(bytes, |line| {
        let (header, filter) = parse_header(line)?;
        trace.headers.extend_from_slice(&header);
        trace.filters.push(filter);
        Ok(())
    })?;
    Ok(trace)
}

/// The columns of a header, and their largest values.
const COLUMNS: [(&str, u64); 5] = [
    ("source address", u32::MAX as u64),
    ("destination address", u32::MAX as u64),
    ("source port", 0xffff),
    ("destination port", 0xffff),
    ("protocol", 0xff),
];

fn parse_header(mut line: Line<'_>) -> Result<([u32; WORDS], u32), ProblemKind> {
    let mut values = [0; COLUMNS.len()];
    let (mut count, mut last) = (0, 0);
    loop {
        line.skip_blanks();
        if line.is_empty() {
            break;
        }
        let begin = line;
        last = line.number().ok_or_else(|| begin.expected("a number"))?;
        if !line.is_at_end() {
            return Err(begin.expected("a number"));
        }
        if let Some((column, max)) = COLUMNS.get(count) {
            if last > *max {
                return Err(ProblemKind::Range { column, max: *max, found: last });
            }
            values[count] = last as u32;
        }
        count += 1;
    }
    if count < COLUMNS.len() {
        return Err(ProblemKind::Columns { expected: COLUMNS.len(), found: count });
    }
    let mut filter = NO_FILTER;
    if count > COLUMNS.len() {
        let max = u64::from(NO_FILTER) - 1;
        let range = ProblemKind::Range { column: "filter number", max, found: last };
        filter = u32::try_from(last).ok().filter(|filter| *filter < NO_FILTER).ok_or(range)?;
    }
    let [src, dst, sport, dport, proto] = values;
    Ok(([src, dst, sport << 16 | dport, proto << 24], filter))
}

/// Writes a trace: seven columns, as the generator has it, or five where no header has a filter. The flags
/// are 0.
///
/// # Errors
/// The writer's.
pub fn write_trace(mut out: impl Write, trace: &Trace) -> io::Result<()> {
    let (headers, _) = trace.headers.as_chunks::<WORDS>();
    for ([src, dst, ports, proto], filter) in headers.iter().zip(&trace.filters) {
        let (sport, dport, proto) = (ports >> 16, ports & 0xffff, proto >> 24);
        write!(out, "{src}\t{dst}\t{sport}\t{dport}\t{proto}")?;
        match *filter {
            NO_FILTER => out.write_all(b"\n")?,
            filter => writeln!(out, "\t0\t{filter}")?,
        }
    }
    Ok(())
}
