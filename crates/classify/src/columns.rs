//! Rule files and traces over any number of fields, where ClassBench's format has no columns for them.
//!
//! ```text
//! fields in_port:32:mask eth_dst:48:mask src:32:prefix dport:16:range     first line: name, bits, kind
//! 7  0x00005e000000/0xffffff000000  10.1.0.0/16  1024:65535               a column for each field
//! *  *                              10.0.0.0/8   80
//! ```
//!
//! | kind | a column says |
//! | --- | --- |
//! | prefix | `VALUE/LENGTH`, `VALUE` for all bits |
//! | range | `LOW:HIGH`, `VALUE` for one |
//! | mask | `VALUE/MASK`, `VALUE` for all bits |
//! | any | `*` |
//!
//! Numbers are decimal, or hexadecimal after `0x`; a value of 32 bits may be an IPv4 address, one of 128 bits an
//! IPv6 address. The first rule is the best one. A trace has one number for each field in a line, then columns as
//! in ClassBench: where there are more, the last one is the filter that the header was drawn from. Blanks, DOS line
//! ends, comments and problems are ClassBench's too ([`classbench`]).
//!
//! [`parse_rules`] and [`parse_trace`] read both forms: a file whose first line begins with `fields` is one of these.

use std::io::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::classbench::text::{Line, each_line, quote};
use crate::classbench::{self, NO_FILTER, ProblemKind, Problems, RulesFile, Trace};
use crate::rule::{Condition, RuleSet};
use crate::schema::{Field, Kind, Schema};

/// The first word of a file of this form.
const FIELDS: &[u8] = b"fields";

/// Reads a rule file of this form or ClassBench's.
///
/// # Errors
/// Every bad line, by number.
pub fn parse_rules(bytes: &[u8]) -> Result<RulesFile, Problems> {
    if !begins_with_fields(bytes) {
        return classbench::parse_rules(bytes);
    }
    let mut set: Option<RuleSet> = None;
    each_line(bytes, |line| {
        let words = words(&line);
        let Some(set) = &mut set else {
            let fields = words[1..].iter().map(|word| field(word)).collect::<Result<_, _>>()?;
            let schema = Schema::new(fields);
            let schema = schema.map_err(|e| ProblemKind::Fields { reason: e.to_string() })?;
            set = Some(RuleSet::new(schema));
            return Ok(());
        };
        let fields = set.schema().fields();
        if words.len() != fields.len() {
            let (expected, found) = (fields.len(), words.len());
            return Err(ProblemKind::FieldCount { expected, found });
        }
        let conditions = fields.iter().zip(&words).map(|(field, word)| condition(field, word));
        let conditions: Vec<Condition> = conditions.collect::<Result<_, _>>()?;
        let added = set.append(&conditions);
        added.map_err(|error| ProblemKind::Rule { reason: error.to_string() })
    })?;
    let set = set.unwrap_or_else(|| RuleSet::new(Schema::five_tuple()));
    Ok(RulesFile { flags: vec![None; set.len()], set, host_bits: 0 })
}

/// Reads a trace of headers of a schema; of the 5-tuple of IPv4 it is ClassBench's.
///
/// # Errors
/// Every bad line, by number.
pub fn parse_trace(bytes: &[u8], schema: &Schema) -> Result<Trace, Problems> {
    if *schema == Schema::five_tuple() {
        return classbench::parse_trace(bytes);
    }
    let mut trace = Trace::default();
    each_line(bytes, |line| {
        let words = words(&line);
        let expected = schema.fields().len();
        if words.len() < expected {
            return Err(ProblemKind::FieldCount { expected, found: words.len() });
        }
        let values = schema.fields().iter().zip(&words).map(|(field, word)| value(field, word));
        let values: Vec<u128> = values.collect::<Result<_, _>>()?;
        let filter = match words[expected..].last() {
            None => NO_FILTER,
            Some(word) => {
                let filter = word.parse().ok().filter(|filter| *filter != NO_FILTER);
                filter.ok_or_else(|| expected_here("the number of a filter", word))?
            }
        };
        trace.headers.extend(schema.header(&values));
        trace.filters.push(filter);
        Ok(())
    })?;
    Ok(trace)
}

/// Reads a header as a trace has it: its values in the order of the fields, parted by blanks or commas. A
/// protocol may be `icmp`, `tcp` or `udp`.
///
/// # Errors
/// Too few or too many values, or one that its field does not hold.
pub fn parse_header(text: &str, schema: &Schema) -> Result<Vec<u32>, ProblemKind> {
    let words = text.split(|c: char| c.is_whitespace() || c == ',').filter(|word| !word.is_empty());
    let words: Vec<&str> = words.collect();
    let (expected, found) = (schema.fields().len(), words.len());
    if expected != found {
        return Err(ProblemKind::FieldCount { expected, found });
    }
    let values =
        schema.fields().iter().zip(words).map(|(field, word)| match (field.name.as_ref(), word) {
            ("proto", "icmp") => Ok(1),
            ("proto", "tcp") => Ok(6),
            ("proto", "udp") => Ok(17),
            _ => value(field, word),
        });
    Ok(schema.header(&values.collect::<Result<Vec<u128>, _>>()?))
}

/// Writes the rules of a set, in the order in which they are in it.
///
/// # Errors
/// The writer's.
pub fn write_rules(mut out: impl Write, set: &RuleSet) -> io::Result<()> {
    let schema = set.schema();
    out.write_all(FIELDS)?;
    for field in schema.fields() {
        write!(out, " {}:{}:{}", field.name, field.bits, kind_name(field.kind))?;
    }
    out.write_all(b"\n")?;
    for rule in set.iter() {
        for at in 0..schema.fields().len() {
            let end = if at + 1 < schema.fields().len() { "\t" } else { "\n" };
            write!(out, "{}{end}", column(&schema.fields()[at], schema.condition(rule.words, at)))?;
        }
    }
    Ok(())
}

/// Writes headers of a schema; of the 5-tuple of IPv4 as ClassBench does.
///
/// # Errors
/// The writer's.
pub fn write_trace(mut out: impl Write, trace: &Trace, schema: &Schema) -> io::Result<()> {
    if *schema == Schema::five_tuple() {
        return classbench::write_trace(out, trace);
    }
    for (header, filter) in trace.headers.chunks_exact(schema.words()).zip(&trace.filters) {
        for at in 0..schema.fields().len() {
            let tab = if at > 0 { "\t" } else { "" };
            write!(out, "{tab}{}", number(&schema.fields()[at], schema.get(header, at)))?;
        }
        match *filter {
            NO_FILTER => out.write_all(b"\n")?,
            filter => writeln!(out, "\t{filter}")?,
        }
    }
    Ok(())
}

/// A rule's conditions as a file has them, for people.
pub fn rule_text(schema: &Schema, words: &[u32]) -> String {
    let fields = schema.fields().iter().enumerate();
    let columns = fields.map(|(at, field)| column(field, schema.condition(words, at)));
    columns.collect::<Vec<_>>().join(" ")
}

/// A header's values as a file has them, for people.
pub fn header_text(schema: &Schema, header: &[u32]) -> String {
    let fields = schema.fields().iter().enumerate();
    let values = fields.map(|(at, field)| number(field, schema.get(header, at)));
    values.collect::<Vec<_>>().join(" ")
}

fn begins_with_fields(bytes: &[u8]) -> bool {
    let mut lines = bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let first = lines.find(|line| !line.is_empty() && line[0] != b'#');
    let word = first.and_then(|line| line.split(u8::is_ascii_whitespace).next());
    word == Some(FIELDS)
}

fn words<'a>(line: &Line<'a>) -> Vec<&'a str> {
    let words = line.rest().split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    words.map(|word| std::str::from_utf8(word).unwrap_or("\u{fffd}")).collect()
}

fn expected_here(expected: &'static str, found: &str) -> ProblemKind {
    ProblemKind::Expected { expected, found: quote(found.as_bytes()) }
}

fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Prefix => "prefix",
        Kind::Range => "range",
        Kind::Mask => "mask",
    }
}

fn field(word: &str) -> Result<Field, ProblemKind> {
    let wrong = || expected_here("a field as NAME:BITS:KIND, such as dport:16:range", word);
    let mut parts = word.split(':');
    let (Some(name), Some(bits), Some(kind), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(wrong());
    };
    let kinds = [Kind::Prefix, Kind::Range, Kind::Mask];
    let kind = kinds.into_iter().find(|known| kind_name(*known) == kind).ok_or_else(wrong)?;
    let bits = bits.parse().map_err(|_| wrong())?;
    Ok(Field::new(name.to_owned(), bits, kind))
}

/// A number or an address that a field holds.
fn value(field: &Field, word: &str) -> Result<u128, ProblemKind> {
    let hex = word.strip_prefix("0x").or_else(|| word.strip_prefix("0X"));
    let number = match hex {
        Some(digits) => u128::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    };
    let number = number.or_else(|| match field.bits {
        32 => word.parse::<Ipv4Addr>().ok().map(|address| address.to_bits().into()),
        128 => word.parse::<Ipv6Addr>().ok().map(Ipv6Addr::to_bits),
        _ => None,
    });
    let number = number.ok_or_else(|| expected_here("a number", word))?;
    if number > field.max() {
        let (field, bits) = (field.name.to_string(), field.bits);
        let reason = crate::rule::RuleError::Value { field, bits, value: number }.to_string();
        return Err(ProblemKind::Rule { reason });
    }
    Ok(number)
}

fn condition(field: &Field, word: &str) -> Result<Condition, ProblemKind> {
    if word == "*" {
        return Ok(Condition::any(field));
    }
    let part = if field.kind == Kind::Range { ':' } else { '/' };
    let Some((first, second)) = word.split_once(part) else {
        return Ok(Condition::exact(field, value(field, word)?));
    };
    let first = value(field, first)?;
    Ok(match field.kind {
        Kind::Prefix => {
            let len = second.parse().map_err(|_| expected_here("a prefix length", second))?;
            Condition::Prefix { value: first, len }
        }
        Kind::Range => Condition::Range { low: first, high: value(field, second)? },
        Kind::Mask => Condition::Mask { value: first, mask: value(field, second)? },
    })
}

fn number(field: &Field, value: u128) -> String {
    match (field.kind, field.bits) {
        (Kind::Prefix, 32) => Ipv4Addr::from_bits(value as u32).to_string(),
        (Kind::Prefix, 128) => Ipv6Addr::from_bits(value).to_string(),
        (_, 48..) => format!("{value:#x}"),
        _ => value.to_string(),
    }
}

fn column(field: &Field, condition: Condition) -> String {
    if condition == Condition::any(field) {
        return "*".to_owned();
    }
    match condition {
        Condition::Prefix { value, len } => format!("{}/{len}", number(field, value)),
        Condition::Range { low, high } if low == high => number(field, low),
        Condition::Range { low, high } => format!("{low}:{high}"),
        Condition::Mask { value, mask } if mask == field.max() => number(field, value),
        Condition::Mask { value, mask } => format!("{value:#x}/{mask:#x}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# a comment\r\nfields in:32:mask mac:48:mask src:32:prefix dport:16:range v6:128:prefix\r\n\
        7 0x00005e000000/0xffffff000000 10.1.0.0/16 1024:65535 2001:db8::/32\r\n\
        * * 0x0a000001 80 *\n\n";

    #[test]
    fn reads_and_writes_the_same() {
        let file = parse_rules(FILE.as_bytes()).unwrap();
        let set = &file.set;
        assert_eq!((set.len(), set.schema().fields().len()), (2, 5));
        let condition = |rule: usize, at| set.schema().condition(set.rule(rule).words, at);
        assert_eq!(condition(0, 0), Condition::Mask { value: 7, mask: 0xffff_ffff });
        assert_eq!(condition(0, 3), Condition::Range { low: 1024, high: 65535 });
        assert_eq!(condition(0, 4), Condition::Prefix { value: 0x2001_0db8 << 96, len: 32 });
        assert_eq!(condition(1, 2), Condition::Prefix { value: 0x0a00_0001, len: 32 });
        assert_eq!(condition(1, 3), Condition::Range { low: 80, high: 80 });
        let mut text = Vec::new();
        write_rules(&mut text, set).unwrap();
        let again = parse_rules(&text).unwrap().set;
        assert!(again.iter().eq(set.iter()), "{}", String::from_utf8_lossy(&text));
        assert_eq!(again.schema(), set.schema());
    }

    #[test]
    fn headers_come_back() {
        let schema = parse_rules(FILE.as_bytes()).unwrap().set.schema().clone();
        let header = parse_header("7, 0x5e0001, 10.1.2.3, 80, ::1", &schema).unwrap();
        let trace =
            Trace { headers: [header.clone(), header].concat(), filters: vec![1, NO_FILTER] };
        let mut text = Vec::new();
        write_trace(&mut text, &trace, &schema).unwrap();
        assert_eq!(parse_trace(&text, &schema).unwrap(), trace);
        let five = Schema::five_tuple();
        let header = parse_header("10.0.0.1 10.0.0.2 1 80 tcp", &five).unwrap();
        assert_eq!(header, [0x0a00_0001, 0x0a00_0002, 0x1_0050, 6 << 24]);
        assert_eq!(header_text(&five, &header), "10.0.0.1 10.0.0.2 1 80 6");
    }

    #[test]
    fn says_what_is_wrong_and_where() {
        for (text, wanted) in [
            ("fields\n", "line 1: a schema has at least one field"),
            ("fields a:b:mask\n", "line 1: expected a field as NAME:BITS:KIND"),
            ("fields a:129:mask\n", "expected 1 to 128"),
            (
                "fields a:8:mask b:8:range\n1\n",
                "line 2: expected 2 columns, one for each field, found 1",
            ),
            ("fields a:8:range\n9:3\n", "line 2: the field a: the range 9 : 3 is reversed"),
            ("fields a:8:mask\n256\n", "the field a has 8 bits, 256 does not fit"),
            ("fields a:8:mask\nx\n", "expected a number, found `x`"),
            ("fields a:8:prefix\n1/9\n", "found a prefix of 9"),
        ] {
            let found = parse_rules(text.as_bytes()).unwrap_err().to_string();
            assert!(found.contains(wanted), "{text}: {found}");
        }
        let schema = Schema::new(vec![Field::new("a", 8, Kind::Mask)]).unwrap();
        let found = parse_trace(b"1\n2 x\n", &schema).unwrap_err().to_string();
        assert_eq!(found, "line 2: expected the number of a filter, found `x`");
        assert!(parse_header("1 2 3", &Schema::five_tuple()).is_err());
    }
}
