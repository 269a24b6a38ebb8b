//! `requires`: rules for certain versions of Suricata, with certain features or keywords.
//!
//! What the version of Suricata has that this project follows counts as there. A rule whose requirements do not hold is not
//! evaluated, and what its other options say is not looked at, as they may be unknown here.

use super::arg::{Arg, Part};
use crate::Unsupported;
use crate::parse::Builder;
use crate::problem::Fault;

/// The version of Suricata whose language of rules is read here.
const VERSION: [u16; 3] = [7, 0, 10];

/// Features of Suricata's builds that are here as well.
const FEATURES: &[&str] = &["ja3", "ja4"];

pub(super) fn apply(builder: &mut Builder, name: &str, arg: &Arg<'_>) -> Result<bool, Fault> {
    if name != "requires" {
        return Ok(false);
    }
    builder.once("requires")?;
    for part in arg.parts()? {
        let (word, value) = part.pair();
        let holds = match word {
            "version" => version(&value)?,
            "feature" => FEATURES.contains(&value.text),
            "keyword" => super::keywords().any(|(known, is)| is && known == value.text),
            _ => return Err(part.unknown(&["version", "feature", "keyword"])),
        };
        if !holds {
            let value = Some(String::from_utf8_lossy(arg.bytes()?).into_owned());
            builder.rule.unsupported.push(Unsupported { keyword: "requires", value });
            builder.skips = true;
            break;
        }
    }
    Ok(true)
}

/// Alternatives between `|`, each of bounds one after the other: `>= 7.0.3 < 8 | >= 9`.
fn version(all: &Part<'_>) -> Result<bool, Fault> {
    let wrong = || all.fault("versions are written `>= 7.0.3 < 8 | >= 9`");
    let mut holds = false;
    for bounds in all.text.split('|') {
        let mut words = bounds.split_ascii_whitespace().peekable();
        words.peek().ok_or_else(wrong)?;
        let mut all_hold = true;
        while let Some(word) = words.next() {
            let digits = word.trim_start_matches(['<', '>', '=']);
            let sign = &word[..word.len() - digits.len()];
            let digits = if digits.is_empty() { words.next().ok_or_else(wrong)? } else { digits };
            let mut bound = [0; 3];
            let mut places = bound.iter_mut();
            for number in digits.split('.') {
                *places.next().ok_or_else(wrong)? = number.parse().map_err(|_| wrong())?;
            }
            all_hold &= match sign {
                "<" => VERSION < bound,
                "<=" => VERSION <= bound,
                ">" => VERSION > bound,
                ">=" => VERSION >= bound,
                "" | "=" | "==" => VERSION == bound,
                _ => return Err(wrong()),
            };
        }
        holds |= all_hold;
    }
    Ok(holds)
}
