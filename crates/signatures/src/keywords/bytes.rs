//! Numbers out of bytes, lengths, Base64, sets.

use super::arg::{Arg, Part, number};
use crate::parse::Builder;
use crate::problem::Fault;
use crate::{
    Base, Base64Decode, ByteExtract, ByteJump, ByteMath, ByteTest, Check, Compare, Datarep,
    Dataset, Endian, Field, IsDataAt, JumpFrom, Operation, Relation, SetOperation, Value,
};

const OFFSET_MAX: i64 = 65_535;
const FIELD_WORDS: &[&str] = &[
    "relative",
    "little",
    "big",
    "string",
    "hex",
    "dec",
    "oct",
    "dce",
    "bitmask",
    "multiplier",
    "align",
    "from_beginning",
    "from_end",
    "post_offset",
];

pub(super) fn apply(builder: &mut Builder, name: &str, arg: &Arg<'_>) -> Result<bool, Fault> {
    let (check, relative) = match name {
        "isdataat" => is_data_at(builder, arg)?,
        "byte_test" => byte_test(builder, arg)?,
        "byte_jump" => byte_jump(builder, arg)?,
        "byte_extract" => byte_extract(builder, arg)?,
        "byte_math" => byte_math(builder, arg)?,
        "base64_decode" => base64_decode(builder, arg)?,
        "bsize" => {
            if !builder.has_selected() {
                return Err(builder.fault("it needs a sticky buffer before it"));
            }
            (Check::Bsize(arg.compare(u64::from(u32::MAX))?), false)
        }
        "absent" => {
            if !builder.has_selected() {
                return Err(builder.fault("it needs a sticky buffer before it"));
            }
            let or_else = match arg.raw {
                None | Some(b"") => false,
                Some(b"or_else") => true,
                Some(_) => return Err(arg.fault("it takes no value, or `or_else`")),
            };
            (Check::Absent { or_else }, false)
        }
        "dataset" => (Check::Dataset(dataset(builder, arg)?), false),
        "datarep" => (Check::Datarep(datarep(builder, arg)?), false),
        _ => return Ok(false),
    };
    builder.check(check, relative)?;
    Ok(true)
}

fn is_data_at(builder: &Builder, arg: &Arg<'_>) -> Result<(Check, bool), Fault> {
    let parts = arg.parts()?;
    let first = parts[0];
    let (negated, text) = match first.text.strip_prefix('!') {
        Some(rest) => (true, rest.trim_ascii()),
        None => (false, first.text),
    };
    let at = Part { at: first.at, text }.value(builder, 0, OFFSET_MAX)?;
    let mut is = IsDataAt { negated, at, relative: false, rawbytes: false };
    for part in &parts[1..] {
        match part.text {
            "relative" => is.relative = true,
            "rawbytes" => is.rawbytes = true,
            _ => return Err(part.unknown(&["relative", "rawbytes"])),
        }
    }
    let relative = is.relative;
    Ok((Check::IsDataAt(is), relative))
}

/// The options behind the places of a `byte_*`.
#[derive(Default)]
struct FieldOptions {
    field: Field,
    string: bool,
    base: Option<Base>,
    multiplier: Option<u16>,
    align: Option<u8>,
    from: JumpFrom,
    post_offset: Option<Value>,
}

impl FieldOptions {
    fn read(builder: &Builder, parts: &[Part<'_>], known: &[&str]) -> Result<Self, Fault> {
        let mut options = Self::default();
        for part in parts {
            let (word, value) = part.pair();
            if !known.contains(&word) && FIELD_WORDS[8..].contains(&word) {
                return Err(part.fault(format!("`{word}` does not belong to this option")));
            }
            let takes = matches!(word, "bitmask" | "multiplier" | "align" | "post_offset");
            if !takes && !value.text.is_empty() {
                return Err(value.fault(format!("`{word}` takes no value; `,` is missing")));
            }
            match word {
                "relative" => options.field.relative = true,
                "little" => options.field.endian = Endian::Little,
                "big" => options.field.endian = Endian::Big,
                "dce" => options.field.endian = Endian::Dce,
                "string" => options.string = true,
                "hex" => options.base = Some(Base::Hex),
                "dec" => options.base = Some(Base::Dec),
                "oct" => options.base = Some(Base::Oct),
                "bitmask" => options.field.bitmask = Some(bitmask(&value)?),
                "multiplier" => match value.number(65_535)? as u16 {
                    0 => return Err(value.fault("a multiplier is at least 1")),
                    times => options.multiplier = Some(times),
                },
                "align" => {
                    options.align = Some(match value.text {
                        "" | "4" => 4,
                        "2" => 2,
                        _ => return Err(value.fault("numbers are aligned to 2 or 4")),
                    });
                }
                "from_beginning" => options.from = JumpFrom::Beginning,
                "from_end" => options.from = JumpFrom::End,
                "post_offset" => {
                    options.post_offset = Some(value.value(builder, -OFFSET_MAX, OFFSET_MAX)?);
                }
                _ => return Err(part.unknown(FIELD_WORDS)),
            }
        }
        options.field.base = match (options.string, options.base) {
            (true, base) => base.unwrap_or(Base::Auto),
            (false, _) => Base::Bytes,
        };
        Ok(options)
    }
}

fn bitmask(part: &Part<'_>) -> Result<u32, Fault> {
    // Hexadecimal, with or without `0x`.
    let digits = part.text.trim_start_matches("0x").trim_start_matches("0X");
    let plain = !digits.is_empty() && digits.chars().all(|c| c.is_ascii_hexdigit());
    match u32::from_str_radix(digits, 16) {
        Ok(mask) if plain && mask != 0 => Ok(mask),
        _ => Err(part.fault("a bitmask is a hexadecimal number from 1 to 0xffffffff")),
    }
}

/// `low`: the fewest. No bytes at all are, in text, all digits that there are.
fn bytes_fault(part: &Part<'_>, bytes: i64, field: &Field, low: i64) -> Result<(), Fault> {
    let low = if field.base == Base::Bytes { low } else { 0 };
    let most = match field.base {
        Base::Bytes => 8,
        Base::Oct => 23,
        _ => 20,
    };
    match (low..=most).contains(&bytes) {
        true => Ok(()),
        false => Err(part.fault(format!("a number has {low} to {most} bytes here"))),
    }
}

fn value_fault(part: &Part<'_>, bytes: &Value, field: &Field, low: i64) -> Result<(), Fault> {
    match bytes {
        Value::Number(number) => bytes_fault(part, *number, field, low),
        Value::Name(_) => Ok(()),
    }
}

fn byte_test(builder: &Builder, arg: &Arg<'_>) -> Result<(Check, bool), Fault> {
    let parts = arg.parts()?;
    let [bytes, relation, value, offset, options @ ..] = parts.as_slice() else {
        return Err(arg.fault("it is written `BYTES,RELATION,VALUE,OFFSET[,…]`"));
    };
    let options = FieldOptions::read(builder, options, &["bitmask"])?;
    let (negated, sign) = match relation.text.strip_prefix('!') {
        Some(rest) => (true, rest.trim_ascii()),
        None => (false, relation.text),
    };
    let relation = match sign {
        "=" => Relation::Equal,
        "" if negated => Relation::Equal,
        "<" => Relation::Less,
        "<=" => Relation::LessOrEqual,
        ">" => Relation::Greater,
        ">=" => Relation::GreaterOrEqual,
        "&" => Relation::And,
        "^" => Relation::Xor,
        _ => return Err(relation.unknown(&[])),
    };
    let count = bytes.value(builder, 0, 64)?;
    value_fault(bytes, &count, &options.field, 1)?;
    let value = value.value(builder, 0, i64::MAX)?;
    let offset = offset.value(builder, -OFFSET_MAX, OFFSET_MAX)?;
    let field = options.field;
    let relative = field.relative;
    let test = ByteTest { bytes: count, negated, relation, value, offset, field };
    Ok((Check::ByteTest(test), relative))
}

fn byte_jump(builder: &Builder, arg: &Arg<'_>) -> Result<(Check, bool), Fault> {
    let parts = arg.parts()?;
    let [bytes, offset, options @ ..] = parts.as_slice() else {
        return Err(arg.fault("it is written `BYTES,OFFSET[,…]`"));
    };
    let known = ["bitmask", "multiplier", "align", "from_beginning", "from_end", "post_offset"];
    let options = FieldOptions::read(builder, options, &known)?;
    let count = bytes.value(builder, 0, 64)?;
    // No bytes at all are a jump by `post_offset`.
    value_fault(bytes, &count, &options.field, 0)?;
    if options.align == Some(2) {
        return Err(arg.fault("a jump is aligned to 4"));
    }
    let relative = options.field.relative;
    let jump = ByteJump {
        bytes: count,
        offset: offset.value(builder, -OFFSET_MAX, OFFSET_MAX)?,
        field: options.field,
        multiplier: options.multiplier,
        align: options.align.is_some(),
        from: options.from,
        post_offset: options.post_offset,
    };
    Ok((Check::ByteJump(jump), relative))
}

/// A name that is not a number.
fn new_name(builder: &mut Builder, part: &Part<'_>) -> Result<String, Fault> {
    let name = part.name()?;
    if name.starts_with(|c: char| c.is_ascii_digit() || "+-".contains(c)) {
        return Err(part.fault("a name begins with a letter"));
    }
    builder.define(&name)?;
    Ok(name)
}

fn byte_extract(builder: &mut Builder, arg: &Arg<'_>) -> Result<(Check, bool), Fault> {
    let parts = arg.parts()?;
    let [bytes, offset, name, options @ ..] = parts.as_slice() else {
        return Err(arg.fault("it is written `BYTES,OFFSET,NAME[,…]`"));
    };
    let options = FieldOptions::read(builder, options, &["bitmask", "multiplier", "align"])?;
    let count = bytes.number(64)?;
    bytes_fault(bytes, count as i64, &options.field, 1)?;
    let relative = options.field.relative;
    let extract = ByteExtract {
        bytes: count as u8,
        offset: offset.signed(-OFFSET_MAX, OFFSET_MAX)? as i32,
        name: new_name(builder, name)?,
        field: options.field,
        multiplier: options.multiplier,
        align: options.align,
    };
    Ok((Check::ByteExtract(extract), relative))
}

fn byte_math(builder: &mut Builder, arg: &Arg<'_>) -> Result<(Check, bool), Fault> {
    const WORDS: &[&str] = &[
        "bytes", "offset", "oper", "rvalue", "result", "relative", "endian", "string", "dce",
        "bitmask",
    ];
    let mut field = Field::default();
    let (mut bytes, mut offset, mut operation, mut value, mut result) =
        (None, None, None, None, None);
    for part in arg.parts()? {
        let (word, rest) = part.pair();
        match word {
            "bytes" => bytes = Some((rest, rest.value(builder, 0, 64)?)),
            "offset" => offset = Some(rest.signed(-OFFSET_MAX, OFFSET_MAX)? as i32),
            "oper" => {
                operation = Some(match rest.text {
                    "+" => Operation::Add,
                    "-" => Operation::Subtract,
                    "*" => Operation::Multiply,
                    "/" => Operation::Divide,
                    "<<" => Operation::ShiftLeft,
                    ">>" => Operation::ShiftRight,
                    _ => return Err(rest.unknown(&[])),
                });
            }
            "rvalue" => value = Some((rest, rest.value(builder, 0, i64::from(u32::MAX))?)),
            "result" => result = Some(rest),
            "relative" => field.relative = true,
            "endian" => {
                field.endian = match rest.text {
                    "big" => Endian::Big,
                    "little" => Endian::Little,
                    _ => return Err(rest.unknown(&["big", "little"])),
                };
            }
            "string" => {
                field.base = match rest.text {
                    "hex" => Base::Hex,
                    "dec" => Base::Dec,
                    "oct" => Base::Oct,
                    _ => return Err(rest.unknown(&["hex", "dec", "oct"])),
                };
            }
            "dce" => field.endian = Endian::Dce,
            "bitmask" => field.bitmask = Some(bitmask(&rest)?),
            _ => return Err(part.unknown(WORDS)),
        }
    }
    let missing = |name: &str| arg.fault(format!("`{name}` is missing"));
    let (at, bytes) = bytes.ok_or_else(|| missing("bytes"))?;
    value_fault(&at, &bytes, &field, 1)?;
    let offset = offset.ok_or_else(|| missing("offset"))?;
    let operation = operation.ok_or_else(|| missing("oper"))?;
    let (at, value) = value.ok_or_else(|| missing("rvalue"))?;
    if operation == Operation::Divide && value == Value::Number(0) {
        return Err(at.fault("division by 0"));
    }
    let result = new_name(builder, &result.ok_or_else(|| missing("result"))?)?;
    let relative = field.relative;
    let math = ByteMath { bytes, offset, operation, value, result, field };
    Ok((Check::ByteMath(math), relative))
}

fn base64_decode(builder: &Builder, arg: &Arg<'_>) -> Result<(Check, bool), Fault> {
    let mut decode = Base64Decode::default();
    if arg.none().is_err() {
        for part in arg.parts()? {
            let (word, value) = part.pair();
            match word {
                "bytes" => decode.bytes = Some(value.number(u64::from(u32::MAX))? as u32),
                "offset" => decode.offset = Some(value.value(builder, 0, OFFSET_MAX)?),
                "relative" if value.text.is_empty() => decode.relative = true,
                _ => return Err(part.unknown(&["bytes", "offset", "relative"])),
            }
        }
    }
    let relative = decode.relative;
    Ok((Check::Base64Decode(decode), relative))
}

const SETTINGS: &[&str] = &["type", "load", "save", "state", "memcap", "hashsize"];

fn settings(parts: &[Part<'_>]) -> Result<Vec<(String, String)>, Fault> {
    let mut settings: Vec<(String, String)> = Vec::new();
    for part in parts {
        let (word, value) = part.pair();
        if !SETTINGS.contains(&word) {
            return Err(part.unknown(SETTINGS));
        }
        if settings.iter().any(|(name, _)| name == word) {
            return Err(part.fault(format!("`{word}` is given twice")));
        }
        const TYPES: &[&str] = &["string", "md5", "sha256", "ipv4", "ip"];
        match word {
            "type" if !TYPES.contains(&value.text) => return Err(value.unknown(TYPES)),
            "hashsize" => {
                value.number(u64::from(u32::MAX))?;
            }
            _ => {}
        }
        settings.push((word.to_owned(), value.name()?));
    }
    Ok(settings)
}

fn dataset(builder: &Builder, arg: &Arg<'_>) -> Result<Dataset, Fault> {
    if !builder.has_selected() {
        return Err(builder.fault("it needs a sticky buffer before it"));
    }
    let parts = arg.parts()?;
    let [operation, name, rest @ ..] = parts.as_slice() else {
        return Err(arg.fault("it is written `OPERATION,NAME[,…]`"));
    };
    let operation = match operation.text {
        "isset" => SetOperation::IsSet,
        "isnotset" => SetOperation::IsNotSet,
        "set" => SetOperation::Set,
        "unset" => SetOperation::Unset,
        _ => return Err(operation.unknown(&["isset", "isnotset", "set", "unset"])),
    };
    Ok(Dataset { operation, name: name.name()?, settings: settings(rest)? })
}

fn datarep(builder: &Builder, arg: &Arg<'_>) -> Result<Datarep, Fault> {
    if !builder.has_selected() {
        return Err(builder.fault("it needs a sticky buffer before it"));
    }
    let parts = arg.parts()?;
    let [name, sign, value, rest @ ..] = parts.as_slice() else {
        return Err(arg.fault("it is written `NAME,RELATION,VALUE[,…]`"));
    };
    let number = value.number(65_535)?;
    let value = match sign.text {
        ">" => Compare::Greater(number),
        "<" => Compare::Less(number),
        "=" | "==" => Compare::Equal(number),
        _ => return Err(sign.unknown(&[])),
    };
    Ok(Datarep { name: name.name()?, value, settings: settings(rest)? })
}

/// For `flowint`: a number, not a name.
pub(super) fn is_number(text: &str) -> bool {
    number(text).is_some()
}
