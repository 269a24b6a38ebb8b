//! Sets of values that rules ask for and write: `dataset` and `datarep`.
//!
//! ```text
//!  rules ─ prepare ─▶ Datasets ─┬─ fixed: no rule writes it; read without a lock
//!             │                 └─ shared: behind a lock, all detectors of the process see the same
//!             └ files of values, one a line: text in Base64, digests in hex, addresses
//! ```
//!
//! Names and settings are Suricata's. A set is bounded by `memcap`; what has no room is not added, and counted.

use std::collections::{HashMap, HashSet};
use std::io::{self, BufRead};
use std::net::{IpAddr, Ipv6Addr};
use std::path::{Component, Path};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use signatures::{Base64Mode, Check, Rule, RuleSet, SetOperation};

use crate::transform::base64;

/// What the values of a set are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetKind {
    /// Any bytes; in files, their Base64.
    Text,
    /// A digest of 16 bytes, in hex.
    Md5,
    /// A digest of 32 bytes, in hex.
    Sha256,
    /// An IPv4 address.
    Ipv4,
    /// An address of either family.
    Ip,
}

impl SetKind {
    fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "string" => Self::Text,
            "md5" => Self::Md5,
            "sha256" => Self::Sha256,
            "ipv4" => Self::Ipv4,
            "ip" => Self::Ip,
            _ => return None,
        })
    }

    /// The value as sets keep it; none where bytes of this length are no value of this kind.
    fn key(self, bytes: &[u8]) -> Option<Key<'_>> {
        match (self, bytes.len()) {
            (Self::Text, _) | (Self::Md5, 16) | (Self::Sha256, 32) | (Self::Ipv4, 4) => {
                Some(Key::Own(bytes))
            }
            (Self::Ip, 4) => {
                let mut mapped = [0; 16];
                mapped[10..12].fill(0xff);
                mapped[12..].copy_from_slice(bytes);
                Some(Key::Mapped(mapped))
            }
            (Self::Ip, 16) => Some(Key::Own(bytes)),
            _ => None,
        }
    }

    /// A value as files have it.
    fn read(self, text: &str) -> Option<Vec<u8>> {
        let digest = |len: usize| {
            let digits = text.as_bytes();
            let pair = |pair: &[u8]| {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                Some((digit(pair[0])? << 4 | digit(pair[1])?) as u8)
            };
            (digits.len() == 2 * len).then(|| digits.chunks_exact(2).map(pair).collect())?
        };
        match self {
            // As Suricata writes it: with padding, and without anything else in the line.
            Self::Text if text.is_empty() => None,
            Self::Text => {
                Some(base64(text.as_bytes(), Base64Mode::Strict)).filter(|v| !v.is_empty())
            }
            Self::Md5 => digest(16),
            Self::Sha256 => digest(32),
            Self::Ipv4 => match text.parse().ok()? {
                IpAddr::V4(address) => Some(address.octets().to_vec()),
                IpAddr::V6(_) => None,
            },
            Self::Ip => match text.parse().ok()? {
                IpAddr::V4(address) => Some(address.to_ipv6_mapped().octets().to_vec()),
                IpAddr::V6(address) => Some(address.octets().to_vec()),
            },
        }
    }

    fn write(self, value: &[u8]) -> String {
        match self {
            Self::Text => base64_of(value),
            Self::Md5 | Self::Sha256 => value.iter().map(|byte| format!("{byte:02x}")).collect(),
            Self::Ipv4 => match <[u8; 4]>::try_from(value) {
                Ok(octets) => IpAddr::from(octets).to_string(),
                Err(_) => String::new(),
            },
            Self::Ip => match <[u8; 16]>::try_from(value) {
                Ok(octets) => Ipv6Addr::from(octets).to_canonical().to_string(),
                Err(_) => String::new(),
            },
        }
    }
}

enum Key<'a> {
    Own(&'a [u8]),
    Mapped([u8; 16]),
}

impl Key<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Mapped(bytes) => bytes,
        }
    }
}

/// Bytes that a value costs beside its own.
const ENTRY_BYTES: usize = 64;
/// What a set may hold where its rule has no `memcap`, in bytes.
const MEMORY: usize = 100 << 20;
/// The longest line of a file of values.
const LINE_MAX: u64 = 1 << 16;

type Values = HashMap<Box<[u8]>, u16>;

#[derive(Debug, Default)]
struct Kept {
    values: Values,
    bytes: usize,
}

impl Kept {
    /// Whether it is new and has room.
    fn add(&mut self, value: &[u8], number: u16, memory: usize) -> Result<bool, Full> {
        if let Some(own) = self.values.get_mut(value) {
            *own = number;
            return Ok(false);
        }
        let bytes = self.bytes + value.len() + ENTRY_BYTES;
        if bytes > memory {
            return Err(Full);
        }
        self.bytes = bytes;
        self.values.insert(value.into(), number);
        Ok(true)
    }
}

struct Full;

#[derive(Debug)]
enum Members {
    /// No rule writes it.
    Fixed(Kept),
    Shared(RwLock<Kept>),
}

/// A set of values, each with a number (its reputation, 0 without one).
#[derive(Debug)]
pub struct Dataset {
    name: String,
    kind: SetKind,
    /// Where it is kept when the program ends, below the folder of outputs.
    save: Option<String>,
    memory: usize,
    members: Members,
    refused: AtomicU64,
}

impl Dataset {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many values it has.
    pub fn len(&self) -> usize {
        self.look(|kept| kept.values.len())
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Values that had no room.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// The file that it is to be saved in, and its lines, sorted; none if it is not saved.
    pub fn saved(&self) -> Option<(&str, Vec<String>)> {
        let save = self.save.as_deref()?;
        let mut lines: Vec<String> = self.look(|kept| {
            let lines = kept.values.iter().map(|(value, number)| match number {
                0 => self.kind.write(value),
                number => format!("{},{number}", self.kind.write(value)),
            });
            lines.collect()
        });
        lines.sort_unstable();
        Some((save, lines))
    }

    /// Whether rules write it.
    pub(crate) fn is_written(&self) -> bool {
        matches!(self.members, Members::Shared(_))
    }

    fn look<T>(&self, look: impl FnOnce(&Kept) -> T) -> T {
        match &self.members {
            Members::Fixed(kept) => look(kept),
            Members::Shared(kept) => look(&kept.read().unwrap_or_else(PoisonError::into_inner)),
        }
    }

    /// The number of a value that is in the set.
    pub(crate) fn get(&self, bytes: &[u8]) -> Option<u16> {
        let key = self.kind.key(bytes)?;
        self.look(|kept| kept.values.get(key.bytes()).copied())
    }

    fn change(&self, bytes: &[u8], change: impl FnOnce(&mut Kept, &[u8]) -> bool) -> bool {
        let (Some(key), Members::Shared(kept)) = (self.kind.key(bytes), &self.members) else {
            return false;
        };
        change(&mut kept.write().unwrap_or_else(PoisonError::into_inner), key.bytes())
    }

    /// Adds a value; whether it was not there.
    pub(crate) fn add(&self, bytes: &[u8]) -> bool {
        self.change(bytes, |kept, value| match kept.add(value, 0, self.memory) {
            Ok(is_new) => is_new,
            Err(Full) => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                false
            }
        })
    }

    /// Takes a value out; whether it was there.
    pub(crate) fn remove(&self, bytes: &[u8]) -> bool {
        self.change(bytes, |kept, value| {
            let is_there = kept.values.remove(value).is_some();
            if is_there {
                kept.bytes -= value.len() + ENTRY_BYTES;
            }
            is_there
        })
    }
}

/// What a rule does with a set.
#[derive(Clone, Debug)]
pub(crate) enum Ask {
    Operation(SetOperation),
    Reputation(signatures::Compare),
}

impl Ask {
    /// Does the set fulfil it? Nothing is written.
    pub(crate) fn holds(&self, set: &Dataset, bytes: &[u8]) -> bool {
        let number = set.get(bytes);
        match self {
            Self::Operation(SetOperation::IsSet | SetOperation::Unset) => number.is_some(),
            Self::Operation(SetOperation::IsNotSet) => number.is_none(),
            Self::Operation(SetOperation::Set) => number.is_none() && set.kind.key(bytes).is_some(),
            Self::Reputation(value) => number.is_some_and(|own| value.holds(own.into())),
        }
    }

    /// Writes what it writes; false if another worker was faster, or there is no room.
    pub(crate) fn write(&self, set: &Dataset, bytes: &[u8]) -> bool {
        match self {
            Self::Operation(SetOperation::Set) => set.add(bytes),
            Self::Operation(SetOperation::Unset) => set.remove(bytes),
            _ => true,
        }
    }

    pub(crate) fn writes(&self) -> bool {
        matches!(self, Self::Operation(SetOperation::Set | SetOperation::Unset))
    }
}

/// The sets of a list of rules, by name; detectors share them.
#[derive(Clone, Debug, Default)]
pub struct Datasets(Arc<Sets>);

#[derive(Debug, Default)]
struct Sets {
    by_name: HashMap<String, Arc<Dataset>>,
    /// What is wrong in the settings of a rule, by its index.
    wrong: HashMap<usize, String>,
}

impl PartialEq for Datasets {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Datasets {}

/// What rules say of a set, together.
#[derive(Clone, Default)]
struct Wish {
    kind: Option<SetKind>,
    load: Option<(String, usize)>,
    save: Option<String>,
    memory: Option<usize>,
    is_written: bool,
    is_reputation: bool,
}

impl Datasets {
    /// Reads what the rules ask for. `open` gives the file of that name which a rule in the file of rules with that index
    /// names. Sets of `before` that rules write stay as they are. What is wrong comes back in words. A rule with wrong settings is
    /// refused then, and the others of its set are not; if the set itself cannot be made, they are too.
    pub fn prepare(
        rules: &RuleSet,
        before: &Self,
        open: impl FnMut(&str, usize) -> io::Result<Box<dyn BufRead>>,
    ) -> (Self, Vec<String>) {
        Self::prepare_without(rules, before, &HashSet::new(), open)
    }

    /// The same without the rules with these indices, which are refused for something else: no set is what they say.
    pub fn prepare_without(
        rules: &RuleSet,
        before: &Self,
        refused: &HashSet<usize>,
        mut open: impl FnMut(&str, usize) -> io::Result<Box<dyn BufRead>>,
    ) -> (Self, Vec<String>) {
        let mut problems = Vec::new();
        let mut wishes: HashMap<&str, Wish> = HashMap::new();
        let (mut order, mut wrong) = (Vec::new(), HashMap::new());
        for (index, loaded) in rules.rules.iter().enumerate() {
            if refused.contains(&index) {
                continue;
            }
            // All that a rule says holds, or nothing.
            let mut changed: Vec<(&str, Wish)> = Vec::new();
            let checks = loaded.rule.inspections.iter().flat_map(|own| &own.checks);
            for asked in checks.filter_map(Asked::of) {
                let at = changed.iter().position(|(name, _)| *name == asked.name);
                let at = at.unwrap_or_else(|| {
                    let wish = wishes.get(asked.name).cloned().unwrap_or_default();
                    changed.push((asked.name, wish));
                    changed.len() - 1
                });
                if let Err(reason) = changed[at].1.add(&asked, loaded.file) {
                    let reason = format!("dataset {}: {reason}", asked.name);
                    problems.push(reason.clone());
                    wrong.insert(index, reason);
                }
            }
            if wrong.contains_key(&index) {
                continue;
            }
            for (name, wish) in changed {
                if wishes.insert(name, wish).is_none() {
                    order.push(name);
                }
            }
        }
        let mut by_name = HashMap::new();
        for name in order {
            let wish = wishes.remove(name).unwrap_or_default();
            match wish.build(name, before, &mut open, &mut problems) {
                Ok(set) => _ = by_name.insert(name.to_owned(), set),
                Err(reason) => problems.push(format!("dataset {name}: {reason}")),
            }
        }
        (Self(Arc::new(Sets { by_name, wrong })), problems)
    }

    /// A set by its name.
    pub fn get(&self, name: &str) -> Option<&Arc<Dataset>> {
        self.0.by_name.get(name)
    }

    /// Whether the rule with this index asks for sets, and says nothing wrong of them, and all are there.
    pub fn has_all_of(&self, index: usize, rule: &Rule) -> bool {
        let checks = rule.inspections.iter().flat_map(|own| &own.checks);
        let mut names = checks.filter_map(Asked::of).map(|own| own.name).peekable();
        names.peek().is_some()
            && self.wrong(index).is_none()
            && names.all(|name| self.get(name).is_some())
    }

    /// What is wrong in what the rule with this index says of its sets.
    pub(crate) fn wrong(&self, rule: usize) -> Option<&str> {
        self.0.wrong.get(&rule).map(String::as_str)
    }

    /// All, in the order of their names.
    pub fn all(&self) -> Vec<&Dataset> {
        let mut all: Vec<&Dataset> = self.0.by_name.values().map(AsRef::as_ref).collect();
        all.sort_unstable_by_key(|set| set.name());
        all
    }
}

/// What a check says of a set.
struct Asked<'a> {
    name: &'a str,
    settings: &'a [(String, String)],
    writes: bool,
    is_reputation: bool,
}

impl<'a> Asked<'a> {
    fn of(check: &'a Check) -> Option<Self> {
        let (name, settings, writes, is_reputation) = match check {
            Check::Dataset(own) => {
                let writes = matches!(own.operation, SetOperation::Set | SetOperation::Unset);
                (&own.name, &own.settings, writes, false)
            }
            Check::Datarep(own) => (&own.name, &own.settings, false, true),
            _ => return None,
        };
        Some(Self { name, settings, writes, is_reputation })
    }
}

impl Wish {
    fn add(&mut self, asked: &Asked<'_>, file: usize) -> Result<(), String> {
        self.is_written |= asked.writes;
        self.is_reputation |= asked.is_reputation;
        for (name, value) in asked.settings {
            match name.as_str() {
                "type" => {
                    let kind = SetKind::from_name(value);
                    let kind = kind.ok_or_else(|| format!("`{value}` is not a type"))?;
                    if self.kind.is_some_and(|own| own != kind) {
                        return Err("two rules give it different types".to_owned());
                    }
                    self.kind = Some(kind);
                }
                "load" => self.loads(value, file)?,
                "save" => self.saves(value)?,
                "state" => {
                    self.loads(value, file)?;
                    self.saves(value)?;
                }
                "memcap" => {
                    let memory = size(value)
                        .ok_or_else(|| format!("`{value}` is not a size such as 16mb"))?;
                    self.memory = Some(memory);
                }
                _ => {}
            }
        }
        // Rules of others name files of theirs, not any that this program may read or write; as in Suricata.
        let is_below = |file: &str| {
            let mut parts = Path::new(file).components();
            parts.all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
        };
        match (&self.save, &self.load) {
            (Some(save), _) if !is_below(save) => {
                Err(format!("`{save}` is not a file below the folder of outputs"))
            }
            (_, Some((load, _))) if !is_below(load) => {
                Err(format!("`{load}` is not a file below the folder of the rules"))
            }
            _ => Ok(()),
        }
    }

    /// The first rule decides, as in Suricata.
    fn loads(&mut self, name: &str, file: usize) -> Result<(), String> {
        match &self.load {
            Some((own, _)) if own != name => {
                Err("two rules load it from different files".to_owned())
            }
            Some(_) => Ok(()),
            None => {
                self.load = Some((name.to_owned(), file));
                Ok(())
            }
        }
    }

    fn saves(&mut self, name: &str) -> Result<(), String> {
        match &self.save {
            Some(own) if own != name => Err("two rules save it to different files".to_owned()),
            _ => {
                self.save = Some(name.to_owned());
                Ok(())
            }
        }
    }

    fn build(
        self,
        name: &str,
        before: &Datasets,
        open: &mut impl FnMut(&str, usize) -> io::Result<Box<dyn BufRead>>,
        problems: &mut Vec<String>,
    ) -> Result<Arc<Dataset>, String> {
        let kind = self.kind.ok_or("no rule gives its type")?;
        if let Some(own) = before.get(name)
            && (own.kind, &own.save) == (kind, &self.save)
            && self.is_written
            && matches!(own.members, Members::Shared(_))
        {
            return Ok(own.clone());
        }
        let memory = self.memory.unwrap_or(MEMORY);
        let mut kept = Kept::default();
        if let Some((file, rules)) = &self.load {
            match open(file, *rules) {
                Ok(reader) => {
                    fill(reader, kind, self.is_reputation, memory, &mut kept, |line, reason| {
                        problems.push(format!("{file}:{line}: {reason}"));
                    })
                    .map_err(|error| format!("{file}: {error}"))?;
                }
                // A state that was never saved.
                Err(error)
                    if error.kind() == io::ErrorKind::NotFound
                        && self.save.as_ref() == Some(file) => {}
                Err(error) => return Err(format!("{file}: {error}")),
            }
        }
        let members = match self.is_written {
            true => Members::Shared(RwLock::new(kept)),
            false => Members::Fixed(kept),
        };
        let (name, refused) = (name.to_owned(), AtomicU64::new(0));
        Ok(Arc::new(Dataset { name, kind, save: self.save, memory, members, refused }))
    }
}

/// Wrong lines of a file that are named; more are not.
const NAMED_MAX: usize = 10;

fn fill(
    mut reader: Box<dyn BufRead>,
    kind: SetKind,
    has_numbers: bool,
    memory: usize,
    kept: &mut Kept,
    mut problem: impl FnMut(u64, &str),
) -> io::Result<()> {
    let (mut line, mut number, mut wrong) = (Vec::new(), 0, 0);
    loop {
        line.clear();
        let len = io::Read::take(&mut reader, LINE_MAX).read_until(b'\n', &mut line)?;
        if len == 0 {
            return Ok(());
        }
        number += 1;
        if len as u64 == LINE_MAX && line.last() != Some(&b'\n') {
            return Err(io::Error::other(format!("line {number} is longer than 64 KiB")));
        }
        let text = String::from_utf8_lossy(&line);
        let text = text.trim();
        if text.is_empty() {
            continue;
        }
        match entry(text, kind, has_numbers) {
            Ok((value, own)) => {
                if let Err(Full) = kept.add(&value, own, memory) {
                    return Err(io::Error::other("it has more values than memcap has room for"));
                }
            }
            Err(reason) => {
                wrong += 1;
                if wrong <= NAMED_MAX {
                    problem(number, reason);
                }
            }
        }
    }
}

/// A line: a value, and behind a comma its number. A file of reputations may serve as a set.
fn entry(text: &str, kind: SetKind, has_number: bool) -> Result<(Vec<u8>, u16), &'static str> {
    let (value, number) = match text.split_once(',') {
        Some((value, number)) => {
            let number = number.trim().parse();
            (value.trim_end(), number.map_err(|_| "the number after the comma is not 0 to 65535")?)
        }
        None if has_number => return Err("it is written VALUE,NUMBER"),
        None => (text, 0),
    };
    let wrong = match kind {
        SetKind::Text => "the value is not in Base64",
        SetKind::Md5 => "the value is not an MD5 digest in hex",
        SetKind::Sha256 => "the value is not a SHA-256 digest in hex",
        SetKind::Ipv4 => "the value is not an IPv4 address",
        SetKind::Ip => "the value is not an IP address",
    };
    Ok((kind.read(value).ok_or(wrong)?, number))
}

/// A number of bytes: `100mb`, `64 KiB`, `1024`.
fn size(text: &str) -> Option<usize> {
    let text = text.trim().to_ascii_lowercase();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: usize = text[..end].parse().ok()?;
    let shift = match text[end..].trim() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        _ => return None,
    };
    number.checked_mul(1 << shift)
}

/// RFC 4648 §4, with padding.
fn base64_of(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            let value = bits >> (18 - 6 * digit) & 63;
            text.push(if digit > group.len() { '=' } else { DIGITS[value as usize].into() });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_they_are_read() {
        let digest = "d41d8cd98f00b204e9800998ecf8427e";
        let cases = [
            (SetKind::Text, "TWFu", &b"Man"[..]),
            (SetKind::Text, "TWE=", b"Ma"),
            (SetKind::Text, "TQ==", b"M"),
            (SetKind::Ipv4, "192.0.2.1", &[192, 0, 2, 1]),
        ];
        for (kind, text, bytes) in cases {
            assert_eq!(kind.read(text).as_deref(), Some(bytes), "{text}");
            assert_eq!(kind.write(bytes), text);
        }
        for (kind, text) in
            [(SetKind::Md5, digest), (SetKind::Ip, "2001:db8::1"), (SetKind::Ip, "192.0.2.1")]
        {
            assert_eq!(kind.write(&kind.read(text).unwrap()), text);
        }
        for (kind, text) in [
            (SetKind::Text, "TWE"),
            (SetKind::Text, "T W E"),
            (SetKind::Md5, "d41d"),
            (SetKind::Sha256, digest),
            (SetKind::Md5, "z41d8cd98f00b204e9800998ecf8427e"),
            (SetKind::Ipv4, "2001:db8::1"),
            (SetKind::Ip, "host"),
        ] {
            assert_eq!(kind.read(text), None, "{text}");
        }
    }

    #[test]
    fn sizes() {
        assert_eq!(size("100mb"), Some(100 << 20));
        assert_eq!(size("1 GiB"), Some(1 << 30));
        assert_eq!(size("77"), Some(77));
        assert_eq!(size("x"), None);
        assert_eq!(size("9z"), None);
        assert_eq!(size("99999999999999999999"), None);
    }

    /// What has no room is not added, and what goes makes room.
    #[test]
    fn a_set_is_bounded() {
        let set = Dataset {
            name: "a".to_owned(),
            kind: SetKind::Text,
            save: None,
            memory: 2 * (ENTRY_BYTES + 1),
            members: Members::Shared(RwLock::default()),
            refused: AtomicU64::new(0),
        };
        assert!(set.add(b"a") && set.add(b"b"));
        assert!(!set.add(b"a"), "it is there");
        assert!(!set.add(b"c") && set.get(b"c").is_none());
        assert_eq!((set.refused(), set.len()), (1, 2));
        assert!(set.remove(b"a") && !set.remove(b"a"));
        assert!(set.add(b"c") && set.get(b"c").is_some());
    }
}
