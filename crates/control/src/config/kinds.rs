//! What values of keys may be: for [`section!`](crate::section).

use std::fmt::{Debug, Display, LowerHex};
use std::marker::PhantomData;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use ipnet::IpNet;
use packet::MacAddr;
use toml::de::DeValue;

pub use super::section::Kind;
use super::section::{Reload, Section, SectionValue, Setting, Value, Walk, Word};
use super::units::format_duration;
use super::values;

/// [`integer`].
#[derive(Debug, Clone)]
pub struct Integer<T> {
    range: RangeInclusive<i128>,
    is_hex: bool,
    of: PhantomData<T>,
}

/// An integer in a range.
pub fn integer<T>(range: RangeInclusive<i128>) -> Integer<T> {
    Integer { range, is_hex: false, of: PhantomData }
}

impl<T> Integer<T> {
    /// The same, written with eight hexadecimal digits.
    pub fn hexadecimal(self) -> Self {
        Self { is_hex: true, ..self }
    }
}

impl<T: TryFrom<i128> + Display + LowerHex> Kind for Integer<T> {
    type Value = T;

    fn read(&self, walk: &mut Walk<'_>, value: &Value<'_>) -> Option<T> {
        values::integer(self.range.clone())(walk, value)
    }

    fn text(&self, value: &T) -> String {
        match self.is_hex {
            true => format!("{value:#010x}"),
            false => value.to_string(),
        }
    }

    fn toml(&self, value: &T) -> Option<String> {
        Some(self.text(value))
    }

    fn name(&self) -> &'static str {
        "integer"
    }

    fn allowed(&self) -> String {
        range(&self.range)
    }
}

/// `1 to 65,535`.
fn range(range: &RangeInclusive<i128>) -> String {
    format!("{} to {}", grouped(*range.start()), grouped(*range.end()))
}

/// With a comma before every third digit from the right, from five digits on.
fn grouped(number: i128) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut text = if number < 0 { "-".to_owned() } else { String::new() };
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && digits.len() > 4 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// [`rate`].
#[derive(Debug, Clone)]
pub struct Rate<T> {
    range: RangeInclusive<i128>,
    of: PhantomData<T>,
}

/// Packets or events per second in a range: an integer, or a text with a unit.
pub fn rate<T>(range: RangeInclusive<i128>) -> Rate<T> {
    Rate { range, of: PhantomData }
}

impl<T: TryFrom<i128> + Display> Kind for Rate<T> {
    type Value = T;

    fn read(&self, walk: &mut Walk<'_>, value: &Value<'_>) -> Option<T> {
        values::rate(self.range.clone())(walk, value)
    }

    fn text(&self, value: &T) -> String {
        value.to_string()
    }

    fn toml(&self, value: &T) -> Option<String> {
        Some(value.to_string())
    }

    fn name(&self) -> &'static str {
        "rate"
    }

    fn allowed(&self) -> String {
        range(&self.range)
    }

    fn unit_name(&self) -> &'static str {
        "per second"
    }
}

/// [`duration`].
#[derive(Debug, Clone)]
pub struct Time {
    range: RangeInclusive<Duration>,
}

/// A duration in a range.
pub fn duration(range: RangeInclusive<Duration>) -> Time {
    Time { range }
}

impl Kind for Time {
    type Value = Duration;

    fn read(&self, walk: &mut Walk<'_>, value: &Value<'_>) -> Option<Duration> {
        let [from, to] = [self.range.start(), self.range.end()]
            .map(|end| u64::try_from(end.as_nanos()).unwrap_or(u64::MAX));
        values::duration(walk, value, from, to)
    }

    fn text(&self, value: &Duration) -> String {
        format_duration(*value)
    }

    fn name(&self) -> &'static str {
        "duration"
    }

    fn allowed(&self) -> String {
        let [from, to] = [self.range.start(), self.range.end()].map(|end| format_duration(*end));
        format!("`\"{from}\"` to `\"{to}\"`")
    }
}

/// [`words`].
#[derive(Debug, Clone)]
pub struct Words<W>(PhantomData<W>);

/// One of the words of an enum, which [`words!`](crate::words) declares.
pub fn words<W: Word>() -> Words<W> {
    Words(PhantomData)
}

impl<W: Word> Kind for Words<W> {
    type Value = W;

    fn read(&self, walk: &mut Walk<'_>, value: &Value<'_>) -> Option<W> {
        values::word(walk, value)
    }

    fn text(&self, value: &W) -> String {
        value.word().to_owned()
    }

    fn name(&self) -> &'static str {
        "word"
    }

    fn allowed(&self) -> String {
        let words: Vec<_> = W::WORDS.iter().map(|(word, _)| format!("`\"{word}\"`")).collect();
        words.join(", ")
    }
}

/// [`boolean`].
#[derive(Debug, Clone)]
pub struct Boolean;

/// `true` or `false`.
pub fn boolean() -> Boolean {
    Boolean
}

impl Kind for Boolean {
    type Value = bool;

    fn read(&self, walk: &mut Walk<'_>, value: &Value<'_>) -> Option<bool> {
        values::boolean(walk, value)
    }

    fn text(&self, value: &bool) -> String {
        value.to_string()
    }

    fn toml(&self, value: &bool) -> Option<String> {
        Some(value.to_string())
    }

    fn name(&self) -> &'static str {
        "boolean"
    }

    fn allowed(&self) -> String {
        "`true`, `false`".to_owned()
    }
}

/// [`probability`].
#[derive(Debug, Clone)]
pub struct Probability;

/// A number from 0 to 1.
pub fn probability() -> Probability {
    Probability
}

impl Kind for Probability {
    type Value = f64;

    fn read(&self, walk: &mut Walk<'_>, value: &Value<'_>) -> Option<f64> {
        values::probability(walk, value)
    }

    fn text(&self, value: &f64) -> String {
        value.to_string()
    }

    fn toml(&self, value: &f64) -> Option<String> {
        Some(value.to_string())
    }

    fn name(&self) -> &'static str {
        "probability"
    }

    fn allowed(&self) -> String {
        "0 to 1".to_owned()
    }
}

/// A value with functions of its own: [`custom`] and those that it makes.
#[derive(Debug, Clone)]
pub struct Custom<T> {
    name: &'static str,
    allowed: String,
    read: fn(&mut Walk<'_>, &Value<'_>) -> Option<T>,
    text: fn(&T) -> String,
    is_quoted: bool,
}

/// A value of another kind, which is a text in the file. `name`: the kind in a word or two; `allowed`: its values, as
/// Markdown; `read`: the value or a diagnostic ([`values`] has parts); `text`: the value as text.
pub fn custom<T>(
    name: &'static str,
    allowed: impl Into<String>,
    read: fn(&mut Walk<'_>, &Value<'_>) -> Option<T>,
    text: fn(&T) -> String,
) -> Custom<T> {
    Custom { name, allowed: allowed.into(), read, text, is_quoted: true }
}

impl<T> Custom<T> {
    /// The same for a value that has no quotes in the file.
    pub fn bare(self) -> Custom<T> {
        Custom { is_quoted: false, ..self }
    }
}

impl<T> Kind for Custom<T> {
    type Value = T;

    fn read(&self, walk: &mut Walk<'_>, value: &Value<'_>) -> Option<T> {
        (self.read)(walk, value)
    }

    fn text(&self, value: &T) -> String {
        (self.text)(value)
    }

    fn toml(&self, value: &T) -> Option<String> {
        let text = (self.text)(value);
        Some(if self.is_quoted { format!("\"{text}\"") } else { text })
    }

    fn name(&self) -> &'static str {
        self.name
    }

    fn allowed(&self) -> String {
        self.allowed.clone()
    }
}

/// Any text.
pub fn text() -> Custom<String> {
    let read =
        |walk: &mut Walk<'_>, value: &Value<'_>| values::string(walk, value).map(str::to_owned);
    custom("text", "any text", read, String::clone)
}

/// The name of something that another section declares; `allowed` says what.
pub fn name_of(allowed: &'static str) -> Custom<String> {
    Custom { name: "name", allowed: allowed.to_owned(), ..text() }
}

/// An IPv4 or IPv6 address.
pub fn address() -> Custom<IpAddr> {
    custom("address", "an IPv4 or IPv6 address", values::address, IpAddr::to_string)
}

/// A prefix without host bits.
pub fn prefix() -> Custom<IpNet> {
    custom("prefix", "an IPv4 or IPv6 prefix", values::prefix, IpNet::to_string)
}

/// The address of an interface with the length of its subnet; host bits are kept.
pub fn interface_address() -> Custom<IpNet> {
    let allowed = "an IPv4 or IPv6 address with the length of its subnet";
    custom("address", allowed, values::interface_address, IpNet::to_string)
}

/// The MAC address of a station: neither a group nor zero.
pub fn unicast_mac() -> Custom<MacAddr> {
    custom("MAC address", "a station's MAC address", values::unicast_mac, MacAddr::to_string)
}

/// The path of a file that can be read. A relative one starts at the configuration's folder. `expected` is for the
/// message where it cannot be read.
pub fn file(expected: &'static str) -> Readable {
    Readable { expected }
}

/// [`file()`].
#[derive(Debug, Clone)]
pub struct Readable {
    expected: &'static str,
}

impl Kind for Readable {
    type Value = PathBuf;

    fn read(&self, walk: &mut Walk<'_>, value: &Value<'_>) -> Option<PathBuf> {
        values::file(walk, value, self.expected)
    }

    fn text(&self, value: &PathBuf) -> String {
        value.display().to_string()
    }

    fn name(&self) -> &'static str {
        "path"
    }

    fn allowed(&self) -> String {
        "a path".to_owned()
    }
}

/// A text that its type reads; an error's text may end in `: expected …`. `expected`: for the message where the value
/// is not text, and for the documentation.
pub fn parsed<T: FromStr<Err: Display> + Display>(expected: &'static str) -> Parsed<T> {
    Parsed { name: "text", expected, allowed: expected, takes_number: false, of: PhantomData }
}

/// The same, or a number that says the same.
pub fn number_or_parsed<T: FromStr<Err: Display> + Display>(expected: &'static str) -> Parsed<T> {
    Parsed { takes_number: true, ..parsed(expected) }
}

/// [`parsed`] and [`number_or_parsed`].
#[derive(Debug, Clone)]
pub struct Parsed<T> {
    name: &'static str,
    expected: &'static str,
    allowed: &'static str,
    takes_number: bool,
    of: PhantomData<T>,
}

impl<T> Parsed<T> {
    /// The same with other words for the documentation: the kind, and the values as Markdown.
    pub fn named(self, name: &'static str, allowed: &'static str) -> Parsed<T> {
        Parsed { name, allowed, ..self }
    }
}

impl<T: FromStr<Err: Display> + Display> Kind for Parsed<T> {
    type Value = T;

    fn read(&self, walk: &mut Walk<'_>, value: &Value<'_>) -> Option<T> {
        match value.get_ref() {
            DeValue::String(text) => values::parsed(walk, value, text),
            DeValue::Integer(number) if self.takes_number && number.radix() == 10 => {
                values::parsed(walk, value, &number.as_str().replace('_', ""))
            }
            _ => values::wrong_kind(walk, value, self.expected),
        }
    }

    fn text(&self, value: &T) -> String {
        value.to_string()
    }

    fn name(&self) -> &'static str {
        self.name
    }

    fn allowed(&self) -> String {
        self.allowed.to_owned()
    }
}

/// A word that means one value, beside those of another kind.
pub fn or_word<K: Kind<Value: PartialEq>>(
    word: &'static str,
    means: K::Value,
    kind: K,
) -> OrWord<K> {
    OrWord { word, means, kind }
}

/// [`or_word`].
#[derive(Debug, Clone)]
pub struct OrWord<K: Kind> {
    word: &'static str,
    means: K::Value,
    kind: K,
}

impl<K: Kind<Value: PartialEq + Clone>> Kind for OrWord<K> {
    type Value = K::Value;

    fn read(&self, walk: &mut Walk<'_>, value: &Value<'_>) -> Option<K::Value> {
        match value.get_ref() {
            DeValue::String(text) if text == self.word => Some(self.means.clone()),
            _ => self.kind.read(walk, value),
        }
    }

    fn text(&self, value: &K::Value) -> String {
        if *value == self.means { self.word.to_owned() } else { self.kind.text(value) }
    }

    fn toml(&self, value: &K::Value) -> Option<String> {
        if *value == self.means {
            Some(format!("\"{}\"", self.word))
        } else {
            self.kind.toml(value)
        }
    }

    fn name(&self) -> &'static str {
        self.kind.name()
    }

    fn allowed(&self) -> String {
        format!("{}, or `\"{}\"`", self.kind.allowed(), self.word)
    }

    fn unit_name(&self) -> &'static str {
        self.kind.unit_name()
    }
}

/// Names of contexts that the stage of the section sets, for stages behind it with `context = ["NAME"]`.
pub fn contexts() -> Contexts {
    Contexts(list(context(), "an array such as [\"web\"]"))
}

/// The name of a context: one that an action can have too.
pub fn context() -> Custom<String> {
    let read = |walk: &mut Walk<'_>, value: &Value<'_>| {
        let text = values::string(walk, value)?;
        if text.is_empty() || text.contains(|c: char| c.is_whitespace() || c == ',') {
            let message = format!("`{text}` is not a context");
            walk.error(value.span(), message).expected("a name without spaces and commas");
            return None;
        }
        Some(text.to_owned())
    };
    custom("name", "a context", read, String::clone)
}

/// [`contexts`].
#[derive(Debug, Clone)]
pub struct Contexts(List<Custom<String>>);

impl Kind for Contexts {
    type Value = Vec<String>;

    fn read(&self, walk: &mut Walk<'_>, value: &Value<'_>) -> Option<Vec<String>> {
        self.0.read(walk, value)
    }

    fn text(&self, value: &Vec<String>) -> String {
        self.0.text(value)
    }

    fn toml(&self, value: &Vec<String>) -> Option<String> {
        self.0.toml(value)
    }

    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn allowed(&self) -> String {
        self.0.allowed()
    }

    fn settings(&self, value: &Vec<String>, key: String, reload: Reload, out: &mut Vec<Setting>) {
        out.push(Setting { text: self.text(value), key, reload, contexts: value.clone() });
    }
}

/// An array. Elements that cannot be read are reported and left out; [`Section::elements_of`] has the places of the
/// others. `expected`: for the message where the value is not an array.
pub fn list<K: Kind>(kind: K, expected: &'static str) -> List<K> {
    List { kind, expected, empty: None, separator: None }
}

/// [`list`].
#[derive(Debug, Clone)]
pub struct List<K> {
    kind: K,
    expected: &'static str,
    empty: Option<&'static str>,
    separator: Option<&'static str>,
}

impl<K> List<K> {
    /// An array with one element at least; `expected`: for the message where it has none.
    pub fn not_empty(self, expected: &'static str) -> List<K> {
        List { empty: Some(expected), ..self }
    }

    /// As text, the elements with this between them; otherwise as the file has them, `[0, 1]`.
    pub fn joined_by(self, separator: &'static str) -> List<K> {
        List { separator: Some(separator), ..self }
    }
}

impl<K: Kind> Kind for List<K> {
    type Value = Vec<K::Value>;

    fn read(&self, walk: &mut Walk<'_>, value: &Value<'_>) -> Option<Vec<K::Value>> {
        let array = values::array(walk, value, self.expected)?;
        if let Some(expected) = self.empty.filter(|_| array.is_empty()) {
            let message = format!("{} is empty", walk.subject());
            walk.error(value.span(), message).expected(expected);
            return None;
        }
        let elements = walk.elements(array, |walk, value| self.kind.read(walk, value));
        Some(elements.into_iter().map(|(element, _)| element).collect())
    }

    fn text(&self, value: &Vec<K::Value>) -> String {
        match self.separator {
            Some(separator) => {
                let texts: Vec<_> = value.iter().map(|element| self.kind.text(element)).collect();
                texts.join(separator)
            }
            None => self.toml(value).unwrap_or_default(),
        }
    }

    fn toml(&self, value: &Vec<K::Value>) -> Option<String> {
        let texts: Vec<_> = value.iter().filter_map(|element| self.kind.toml(element)).collect();
        Some(format!("[{}]", texts.join(", ")))
    }

    fn name(&self) -> &'static str {
        "array"
    }

    fn allowed(&self) -> String {
        format!("an array; each {}", self.kind.allowed())
    }

    fn unit_name(&self) -> &'static str {
        self.kind.unit_name()
    }
}

/// A table with keys of its own, `[engine.sim]`: a section in a section. Its keys say themselves whether a reload
/// applies them.
pub fn table<S: SectionValue + Default>() -> Table<S> {
    Table { is_one: false, of: PhantomData }
}

/// The same for a table that a reload shows as one value: `loss 0.01 seed 1`.
pub fn table_in_one<S: SectionValue + Default>() -> Table<S> {
    Table { is_one: true, of: PhantomData }
}

/// [`table`] and [`table_in_one`].
#[derive(Debug, Clone)]
pub struct Table<S> {
    is_one: bool,
    of: PhantomData<S>,
}

impl<S: SectionValue + Default> Kind for Table<S> {
    type Value = S;

    fn read(&self, walk: &mut Walk<'_>, value: &Value<'_>) -> Option<S> {
        let path = walk.path().to_owned();
        let mut section = Section::of(walk, value, &path)?;
        let mut table = S::default();
        table.read(&mut section, walk);
        section.finish(walk);
        Some(table)
    }

    fn text(&self, value: &S) -> String {
        let mut settings = Vec::new();
        value.settings("", &mut settings);
        let texts = settings
            .iter()
            .map(|Setting { key, text, .. }| format!("{} {text}", key.trim_start_matches('.')));
        texts.collect::<Vec<_>>().join(" ")
    }

    fn toml(&self, _: &S) -> Option<String> {
        None
    }

    fn name(&self) -> &'static str {
        "table"
    }

    fn allowed(&self) -> String {
        let keys = S::default().keys();
        let names: Vec<_> = keys.iter().map(|key| format!("`{}`", key.name)).collect();
        format!("a table: {}", names.join(", "))
    }

    fn default_words(&self) -> Option<&'static str> {
        (!self.is_one).then_some("the defaults of its keys")
    }

    fn settings(&self, value: &S, key: String, reload: Reload, out: &mut Vec<Setting>) {
        if self.is_one {
            let mut of_keys = Vec::new();
            value.settings(&key, &mut of_keys);
            let contexts = of_keys.into_iter().flat_map(|setting| setting.contexts).collect();
            out.push(Setting { text: self.text(value), key, reload, contexts });
        } else {
            value.settings(&key, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_come_in_groups() {
        for (number, text) in [
            (0, "0"),
            (-1, "-1"),
            (9999, "9999"),
            (10_000, "10,000"),
            (-123_456, "-123,456"),
            (1 << 26, "67,108,864"),
        ] {
            assert_eq!(grouped(number), text);
        }
    }
    #[test]
    fn integers_may_be_hexadecimal() {
        for number in [0, 0x1002, u32::MAX] {
            let (plain, hex) = (integer::<u32>(0..=9), integer::<u32>(0..=9).hexadecimal());
            assert_eq!(plain.toml(&number), Some(number.to_string()));
            let text = hex.toml(&number).unwrap();
            let digits = text.strip_prefix("0x").unwrap();
            assert_eq!((digits.len(), u32::from_str_radix(digits, 16)), (8, Ok(number)));
        }
    }
}
