//! The value of an option, and what values are made of.

use crate::list::clip;
use crate::parse::{Builder, VALUE_PARTS_MAX};
use crate::problem::Fault;
use crate::{Compare, Number, Value};

/// The value of an option and its offset.
#[derive(Debug)]
pub(crate) struct Arg<'a> {
    pub(crate) at: usize,
    /// Without white space around it; none where the option has no `:`.
    pub(crate) raw: Option<&'a [u8]>,
}

impl<'a> Arg<'a> {
    pub(crate) fn new(at: usize, raw: Option<&'a [u8]>) -> Self {
        Self { at, raw }
    }

    pub(crate) fn fault(&self, reason: impl Into<String>) -> Fault {
        Fault::new(self.at, reason)
    }

    /// The option has no value.
    pub(crate) fn none(&self) -> Result<(), Fault> {
        match self.raw {
            None | Some(b"") => Ok(()),
            Some(_) => Err(self.fault("it takes no value")),
        }
    }

    pub(crate) fn bytes(&self) -> Result<&'a [u8], Fault> {
        self.raw.filter(|raw| !raw.is_empty()).ok_or_else(|| self.fault("it needs a value"))
    }

    /// Bytes without the `!` in front of them and without quotation marks; whether there were each.
    pub(crate) fn unquoted(&self) -> Result<Unquoted<'a>, Fault> {
        let mut bytes = self.bytes()?;
        let mut at = self.at;
        let negated = bytes.first() == Some(&b'!');
        if negated {
            let rest = bytes[1..].trim_ascii_start();
            at += bytes.len() - rest.len();
            bytes = rest;
        }
        let (bytes, quoted) = unquote(bytes, at)?;
        Ok(Unquoted { at: at + usize::from(quoted), bytes, negated, quoted })
    }

    /// The text, quotation marks around it and backslashes before `\`, `"`, `;` and `:` taken away.
    pub(crate) fn text(&self) -> Result<String, Fault> {
        let (bytes, _) = unquote(self.bytes()?, self.at)?;
        let text = unescape(&String::from_utf8_lossy(bytes));
        match text.is_empty() {
            true => Err(self.fault("it needs a value")),
            false => Ok(text),
        }
    }

    /// The same as it is, for values without text of people.
    pub(crate) fn plain(&self) -> Result<&'a str, Fault> {
        let (bytes, quoted) = unquote(self.bytes()?, self.at)?;
        let base = self.at + usize::from(quoted);
        let text = std::str::from_utf8(bytes)
            .map_err(|e| Fault::new(base + e.valid_up_to(), "not valid UTF-8"))?;
        Ok(text.trim_ascii())
    }

    /// Parts between commas, each with its offset.
    pub(crate) fn parts(&self) -> Result<Vec<Part<'a>>, Fault> {
        let text = self.plain()?;
        let raw = self.bytes()?;
        let base = self.at + usize::from(raw.first() == Some(&b'"'));
        let mut parts = Vec::new();
        let mut at = base;
        for piece in text.split(',') {
            if parts.len() == VALUE_PARTS_MAX {
                return Err(self.fault(format!("more than {VALUE_PARTS_MAX} parts")));
            }
            let lead = piece.len() - piece.trim_ascii_start().len();
            parts.push(Part { at: at + lead, text: piece.trim_ascii() });
            at += piece.len() + 1;
        }
        Ok(parts)
    }

    pub(crate) fn number(&self, max: u64) -> Result<u64, Fault> {
        Part { at: self.at, text: self.plain()? }.number(max)
    }

    pub(crate) fn compare(&self, max: u64) -> Result<Compare, Fault> {
        Part { at: self.at, text: self.plain()? }.compare(max)
    }

    /// `[!]n`
    pub(crate) fn negatable(&self, max: u64) -> Result<Number, Fault> {
        let text = self.plain()?;
        let (negated, text) = match text.strip_prefix('!') {
            Some(rest) => (true, rest.trim_ascii()),
            None => (false, text),
        };
        let number = Part { at: self.at, text }.number(max)? as u32;
        Ok(Number { negated, number })
    }
}

/// A value without its quotation marks.
pub(crate) struct Unquoted<'a> {
    pub(crate) at: usize,
    pub(crate) bytes: &'a [u8],
    pub(crate) negated: bool,
    pub(crate) quoted: bool,
}

fn unquote(bytes: &[u8], at: usize) -> Result<(&[u8], bool), Fault> {
    if bytes.starts_with("“".as_bytes()) || bytes.starts_with("”".as_bytes()) {
        return Err(Fault::new(at, "typographic quotation marks; a value has `\"`"));
    }
    let Some(rest) = bytes.strip_prefix(b"\"") else { return Ok((bytes, false)) };
    match rest.strip_suffix(b"\"") {
        Some(inner) => Ok((inner, true)),
        None if rest.contains(&b'"') => {
            let end = rest.iter().rposition(|b| *b == b'"').unwrap_or(0);
            let is_list = rest[end + 1..].trim_ascii_start().starts_with(b",");
            let reason = match is_list {
                true => {
                    "options of a content behind a `,` are those of Snort 3; here each is one by itself, as `nocase;`"
                }
                false => "`;` is missing after the closing `\"`",
            };
            Err(Fault::new(at + end + 2, reason))
        }
        None => Err(Fault::new(
            at,
            "the value has no closing `\"`; a `;` within it is written `\\;` or `|3B|`",
        )),
    }
}

fn unescape(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        match (char, chars.peek()) {
            ('\\', Some('\\' | '"' | ';' | ':')) => plain.extend(chars.next()),
            _ => plain.push(char),
        }
    }
    plain
}

/// A part of a value and its offset.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part<'a> {
    pub(crate) at: usize,
    pub(crate) text: &'a str,
}

impl<'a> Part<'a> {
    pub(crate) fn fault(&self, reason: impl Into<String>) -> Fault {
        Fault::new(self.at, reason)
    }

    pub(crate) fn unknown(&self, known: &'static [&'static str]) -> Fault {
        match self.text {
            "" => self.fault("a part of the value is missing"),
            text => {
                let reason = format!("unknown value `{}`", clip(text));
                Fault::unknown(self.at, reason, known, self.pair().0)
            }
        }
    }

    /// First word and the rest.
    pub(crate) fn pair(&self) -> (&'a str, Part<'a>) {
        let end = self.text.find(|c: char| c.is_ascii_whitespace()).unwrap_or(self.text.len());
        let rest = self.text[end..].trim_ascii();
        (&self.text[..end], Part { at: self.at + self.text.len() - rest.len(), text: rest })
    }

    pub(crate) fn number(&self, max: u64) -> Result<u64, Fault> {
        match number(self.text) {
            Some(number) if number <= max => Ok(number),
            Some(number) => Err(self.fault(format!("{number} is above {max}"))),
            None if self.text.is_empty() => Err(self.fault("a number is missing")),
            None => Err(self.fault(format!("`{}` is not a number", clip(self.text)))),
        }
    }

    /// A number that may be negative.
    pub(crate) fn signed(&self, low: i64, high: i64) -> Result<i64, Fault> {
        let (sign, digits) = match self.text.strip_prefix('-') {
            Some(digits) => (-1, digits),
            None => (1, self.text.strip_prefix('+').unwrap_or(self.text)),
        };
        let found = number(digits).and_then(|n| i64::try_from(n).ok()).map(|n| n * sign);
        match found {
            Some(n) if (low..=high).contains(&n) => Ok(n),
            Some(n) => Err(self.fault(format!("{n} is not between {low} and {high}"))),
            None if self.text.is_empty() => Err(self.fault("a number is missing")),
            None => Err(self.fault(format!("`{}` is not a number", clip(self.text)))),
        }
    }

    /// A number, or the name of one that was extracted.
    pub(crate) fn value(&self, builder: &Builder, low: i64, high: i64) -> Result<Value, Fault> {
        let first = self.text.as_bytes().first();
        if first.is_none_or(|b| b.is_ascii_digit() || matches!(b, b'-' | b'+')) {
            return self.signed(low, high).map(Value::Number);
        }
        match builder.is_defined(self.text) {
            true => Ok(Value::Name(self.text.to_owned())),
            false => Err(self.fault(format!(
                "`{}` is neither a number nor extracted earlier in the rule",
                clip(self.text)
            ))),
        }
    }

    pub(crate) fn compare(&self, max: u64) -> Result<Compare, Fault> {
        let text = self.text;
        let part = |text: &'a str| Part { at: self.at, text: text.trim_ascii() };
        if let Some((low, high)) = text.split_once("<>").or_else(|| text.split_once('-')) {
            let (low, high) = (part(low).number(max)?, part(high).number(max)?);
            if low >= high || high - low < 2 {
                return Err(self.fault(format!("no number is between {low} and {high}")));
            }
            return Ok(Compare::Between(low, high));
        }
        type Make = fn(u64) -> Compare;
        let prefixes: [(&str, Make); 7] = [
            ("<=", Compare::LessOrEqual),
            (">=", Compare::GreaterOrEqual),
            ("!=", Compare::NotEqual),
            ("<", Compare::Less),
            (">", Compare::Greater),
            ("!", Compare::NotEqual),
            ("=", Compare::Equal),
        ];
        for (prefix, make) in prefixes {
            if let Some(rest) = text.strip_prefix(prefix) {
                let compare = make(part(rest).number(max)?);
                return match compare {
                    Compare::Less(0) => Err(self.fault("no number is below 0")),
                    Compare::Greater(number) if number == max => {
                        Err(self.fault(format!("no number is above {max}")))
                    }
                    compare => Ok(compare),
                };
            }
        }
        self.number(max).map(Compare::Equal)
    }

    /// A name: letters, digits and a few signs.
    pub(crate) fn name(&self) -> Result<String, Fault> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "_-.:/@#+*~%&$()[]{}".contains(c);
        match self.text {
            "" => Err(self.fault("a name is missing")),
            text if text.len() > 256 => Err(self.fault("the name is longer than 256 bytes")),
            text if text.chars().all(plain) => Ok(text.to_owned()),
            text => Err(self.fault(format!("`{}` is not a name", clip(text)))),
        }
    }
}

/// Decimal, or hexadecimal behind `0x`.
pub(crate) fn number(text: &str) -> Option<u64> {
    let hex = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    // `from_str_radix` takes a sign, a rule has none here.
    if hex.unwrap_or(text).starts_with('+') {
        return None;
    }
    match hex {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}
