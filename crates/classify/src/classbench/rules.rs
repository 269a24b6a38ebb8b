//! Rule files.

use std::io::{self, Write};

use super::text::{Line, each_line};
use super::{ProblemKind, Problems};
use crate::rule::{Condition, NO_ID, RuleRef, RuleSet};
use crate::schema::Schema;

/// The TCP flags of a rule: value and mask.
pub type Flags = (u16, u16);

/// A rule file, read.
#[derive(Debug, Clone)]
pub struct RulesFile {
    /// The rules, of [`Schema::five_tuple`]; priority and id of each are its index.
    pub set: RuleSet,
    /// The flags of each rule; `None` where the column is absent.
    pub flags: Vec<Option<Flags>>,
    /// Rules in whose prefixes bits were set below the length; these were cleared.
    pub host_bits: u64,
}

/// Reads the bytes of a rule file.
///
/// # Errors
/// Every bad line, by number.
pub fn parse_rules(bytes: &[u8]) -> Result<RulesFile, Problems> {
    let mut set = RuleSet::new(Schema::five_tuple());
    let (mut flags, mut host_bits) = (Vec::new(), 0);
    each_line(bytes, |line| {
        let number = u32::try_from(set.len()).ok().filter(|number| *number < NO_ID);
        let number = number.ok_or(ProblemKind::TooMany { max: u64::from(NO_ID) })?;
        let rule = parse_rule(line)?;
        set.push(RuleRef { words: &rule.words, priority: number, id: number })
            .map_err(|_| ProblemKind::TooMany { max: u64::from(NO_ID) })?;
        flags.push(rule.flags);
        host_bits += u64::from(rule.has_host_bits);
        Ok(())
    })?;
    Ok(RulesFile { set, flags, host_bits })
}

struct ParsedRule {
    /// As [`Schema::conditions`] of the 5-tuple packs them.
    words: [u32; 8],
    flags: Option<Flags>,
    has_host_bits: bool,
}

fn parse_rule(mut line: Line<'_>) -> Result<ParsedRule, ProblemKind> {
    if !line.take(b'@') {
        return Err(ProblemKind::At { found: line.quote() });
    }
    let (src, src_mask, src_host) = prefix(&mut line, "source address")?;
    let (dst, dst_mask, dst_host) = prefix(&mut line, "destination address")?;
    let sport = ports(&mut line, "source port")?;
    let dport = ports(&mut line, "destination port")?;
    let (proto, proto_mask) = pair(&mut line, "a protocol and its mask, such as 0x06/0xFF")?;
    limit("protocol", proto, 0xff)?;
    if proto_mask != 0 && proto_mask != 0xff {
        return Err(ProblemKind::ProtocolMask { found: proto_mask });
    }
    line.skip_blanks();
    let mut flags = None;
    if !line.is_empty() {
        let (value, mask) = pair(&mut line, "flags and their mask, such as 0x0000/0x0200")?;
        limit("flag word", value.max(mask), 0xffff)?;
        flags = Some((value as u16, mask as u16));
    }
    let protocol = |value: u64| (value as u32) << 24;
    let words = [
        src,
        dst,
        sport.0 << 16 | dport.0,
        protocol(proto & proto_mask),
        src_mask,
        dst_mask,
        sport.1 << 16 | dport.1,
        protocol(proto_mask),
    ];
    Ok(ParsedRule { words, flags, has_host_bits: src_host || dst_host })
}

/// An address under its mask, the mask, and whether bits were set outside of it.
fn prefix(line: &mut Line<'_>, column: &'static str) -> Result<(u32, u32, bool), ProblemKind> {
    const EXPECTED: &str = "an IPv4 prefix, such as 10.1.0.0/16";
    line.skip_blanks();
    let begin = *line;
    let mut address = 0;
    for at in 0..4 {
        let dotted = at == 0 || line.take(b'.');
        let byte = line.number().filter(|byte| dotted && *byte <= 255);
        address = address << 8 | byte.ok_or_else(|| begin.expected(EXPECTED))? as u32;
    }
    let length = if line.take(b'/') { line.number() } else { None };
    let length = length.ok_or_else(|| begin.expected(EXPECTED))?;
    if length > 32 {
        return Err(ProblemKind::Length { column, found: length });
    }
    let mask = u32::MAX.checked_shl(32 - length as u32).unwrap_or(0);
    Ok((address & mask, mask, address & !mask != 0))
}

/// `LOW : HIGH`, with or without blanks.
fn ports(line: &mut Line<'_>, column: &'static str) -> Result<(u32, u32), ProblemKind> {
    const EXPECTED: &str = "a range of ports, such as 0 : 65535";
    line.skip_blanks();
    let begin = *line;
    let low = line.number().ok_or_else(|| begin.expected(EXPECTED))?;
    line.skip_blanks();
    let parted = line.take(b':');
    line.skip_blanks();
    let high = line.number().filter(|_| parted).ok_or_else(|| begin.expected(EXPECTED))?;
    limit(column, low.max(high), 0xffff)?;
    if low > high {
        return Err(ProblemKind::Reversed { column, low, high });
    }
    Ok((low as u32, high as u32))
}

/// `VALUE/MASK`.
fn pair(line: &mut Line<'_>, expected: &'static str) -> Result<(u64, u64), ProblemKind> {
    line.skip_blanks();
    let begin = *line;
    let value = line.any_number().ok_or_else(|| begin.expected(expected))?;
    let mask = if line.take(b'/') { line.any_number() } else { None };
    Ok((value, mask.ok_or_else(|| begin.expected(expected))?))
}

fn limit(column: &'static str, found: u64, max: u64) -> Result<(), ProblemKind> {
    if found > max { Err(ProblemKind::Range { column, max, found }) } else { Ok(()) }
}

/// Writes rules of [`Schema::five_tuple`] as a rule file, in the order in which they are in the set.
///
/// `flags` are those of the rules by index; a rule without gets no column.
///
/// # Errors
/// The writer's, or a set of another schema ([`io::ErrorKind::InvalidInput`]), for the format has no other
/// fields.
pub fn write_rules(mut out: impl Write, set: &RuleSet, flags: &[Option<Flags>]) -> io::Result<()> {
    if **set.schema() != Schema::five_tuple() {
        let reason = "a ClassBench file holds rules over the 5-tuple of IPv4";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
    }
    for (index, rule) in set.iter().enumerate() {
        out.write_all(b"@")?;
        for field in 0..set.schema().fields().len() {
            match set.schema().condition(rule.words, field) {
                Condition::Prefix { value, len } => {
                    let [a, b, c, d] = (value as u32).to_be_bytes();
                    write!(out, "{a}.{b}.{c}.{d}/{len}\t")?;
                }
                Condition::Range { low, high } => write!(out, "{low} : {high}\t")?,
                Condition::Mask { value, mask } => write!(out, "0x{value:02x}/0x{mask:02X}\t")?,
            }
        }
        if let Some((value, mask)) = flags.get(index).copied().flatten() {
            write!(out, "0x{value:04x}/0x{mask:04x}\t")?;
        }
        out.write_all(b"\n")?;
    }
    Ok(())
}
