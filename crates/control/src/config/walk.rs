//! A walk over a table with spans that collects diagnostics and never stops.
//!
//! A [`Section`] is a table under reading: every key that is asked for becomes a known key, so
//! that the list of keys for "did you mean" is the code that reads them. [`Section::finish`]
//! reports what is left.

use std::collections::HashSet;
use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue, Error};

use super::diagnostic::{Diagnostic, Severity, Topic};
use super::section::{Key, Kind};

/// A value of the file, and its place in the text.
pub type Value<'i> = Spanned<DeValue<'i>>;

/// An enum whose values are words in the file; [`words!`](crate::words) makes one.
pub trait Word: Copy + PartialEq + 'static {
    /// Every word with its value; the first of a value is the one written.
    const WORDS: &'static [(&'static str, Self)];

    /// The value's word.
    fn word(self) -> &'static str {
        Self::WORDS.iter().find(|(_, value)| *value == self).map_or("", |(word, _)| word)
    }
}

/// The text, and what was found in it so far.
#[derive(Debug)]
pub struct Walk<'a> {
    text: &'a str,
    /// Offset of each line's first byte.
    line_starts: Vec<usize>,
    found: Vec<(usize, Diagnostic)>,
    /// Lines with a syntax error: what else is wrong there follows from it.
    broken_lines: HashSet<usize>,
    /// No part of the text was lost to syntax errors.
    whole: bool,
    /// What the value at hand is called: "`mtu`", "element 2 of `addresses`".
    subject: String,
    /// The key at hand with its sections: "port.lan.mtu".
    path: String,
    /// Where relative paths start; `None`: files are not looked at.
    folder: Option<&'a Path>,
    /// Places of the elements that the last array of the value at hand kept.
    kept: Vec<Range<usize>>,
    /// Stands in for a diagnostic that is not kept.
    scratch: Diagnostic,
}

impl<'a> Walk<'a> {
    pub(super) fn new(text: &'a str, syntax: &[Error]) -> Walk<'a> {
        let newlines = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let line_starts = std::iter::once(0).chain(newlines.map(|(i, _)| i + 1)).collect();
        let scratch = Diagnostic {
            severity: Severity::Warning,
            line: 0,
            column: 0,
            len: 0,
            message: String::new(),
            expected: None,
            help: None,
            topic: Topic::default(),
            origin: None,
        };
        let mut walk = Walk {
            text,
            line_starts,
            found: Vec::new(),
            broken_lines: HashSet::new(),
            whole: true,
            subject: String::new(),
            path: String::new(),
            folder: None,
            kept: Vec::new(),
            scratch,
        };
        for error in syntax {
            walk.syntax_error(error);
        }
        walk.broken_lines = walk.found.iter().map(|(_, d)| d.line).collect();
        walk
    }

    /// With a folder where relative paths start, so that files that the text names are looked at.
    pub(super) fn in_folder(mut self, folder: Option<&'a Path>) -> Walk<'a> {
        self.folder = folder;
        self
    }

    /// Where relative paths start; `None`: files are not looked at.
    pub fn folder(&self) -> Option<&'a Path> {
        self.folder
    }

    /// The key at hand with its sections, `port.lan.mtu`.
    pub fn path(&self) -> &str {
        &self.path
    }

    fn syntax_error(&mut self, error: &Error) {
        let mut span = error.span().unwrap_or(0..0);
        let (message, expected) = match error.message().split_once(", expected ") {
            Some((message, expected)) => (message, Some(expected)),
            None => (error.message(), None),
        };
        // The parser seeks the `]` of a table's header over the lines that follow.
        if message.starts_with("unclosed table")
            && let Some(end) = self.unclosed_header(span.start)
        {
            span = end..end;
        }
        let duplicate = message.starts_with("duplicate key");
        self.whole &= duplicate;
        let message = if duplicate {
            format!("duplicate key `{}`", self.text.get(span.clone()).unwrap_or_default())
        } else {
            message.to_owned()
        };
        let diagnostic = self.error(span, message);
        if let Some(expected) = expected {
            diagnostic.expected(expected);
        }
    }

    /// End of the last line up to `offset` that opens a table's header and does not close it.
    fn unclosed_header(&self, offset: usize) -> Option<usize> {
        let last = self.line_of(offset.min(self.text.len()));
        (0..=last).rev().find_map(|line| {
            let start = self.line_starts[line];
            let line = self.text[start..].split('\n').next()?.trim_end();
            let open = line.trim_start().starts_with('[') && !line.contains(']');
            open.then_some(start + line.len())
        })
    }

    /// Whether names and missing keys can be judged: not after a syntax error, which may have
    /// hidden anything.
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    /// Whether anything is wrong so far.
    pub(super) fn has_errors(&self) -> bool {
        !self.whole || self.found.iter().any(|(_, d)| d.severity == Severity::Error)
    }

    /// What the value at hand is called in messages.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// Reads elements of an array one by one, under names of their own; gives those that could be read, each with its
    /// place.
    pub fn elements<'t, 'i, T>(
        &mut self,
        values: &'t toml::de::DeArray<'i>,
        mut read: impl FnMut(&mut Walk<'a>, &'t Value<'i>) -> Option<T>,
    ) -> Vec<(T, Range<usize>)> {
        let array = std::mem::take(&mut self.subject);
        let mut items = Vec::with_capacity(values.len());
        for (i, value) in values.iter().enumerate() {
            self.subject = format!("element {} of {array}", i + 1);
            if let Some(item) = read(self, value) {
                items.push((item, value.span()));
            }
        }
        self.subject = array;
        self.kept = items.iter().map(|(_, span)| span.clone()).collect();
        items
    }

    /// Reports an error at these bytes of the text.
    pub fn error(&mut self, span: Range<usize>, message: impl Into<String>) -> &mut Diagnostic {
        self.report(Severity::Error, span, message.into())
    }

    /// Reports a warning at these bytes of the text.
    pub fn warning(&mut self, span: Range<usize>, message: impl Into<String>) -> &mut Diagnostic {
        self.report(Severity::Warning, span, message.into())
    }

    fn report(
        &mut self,
        severity: Severity,
        span: Range<usize>,
        message: String,
    ) -> &mut Diagnostic {
        let start = self.floor_boundary(span.start);
        let index = self.line_of(start);
        let line_start = self.line_starts[index];
        let line_end = self.line_starts.get(index + 1).map_or(self.text.len(), |next| next - 1);
        let end = self.floor_boundary(span.end).clamp(start, line_end.max(start));
        let diagnostic = Diagnostic {
            severity,
            line: index + 1,
            column: 1 + self.text[line_start..start].chars().count(),
            len: self.text[start..end].trim_end().chars().count().max(1),
            message,
            expected: None,
            help: None,
            topic: Topic::default(),
            origin: None,
        };
        // A value that could not be parsed is replaced by one that is nowhere.
        let invented = !self.whole && span == (0..0);
        if invented || self.broken_lines.contains(&diagnostic.line) {
            self.scratch = diagnostic;
            return &mut self.scratch;
        }
        let at = self.found.len();
        self.found.push((start, diagnostic));
        &mut self.found[at].1
    }

    /// Line of an offset, from 1.
    pub fn line(&self, offset: usize) -> usize {
        self.line_of(offset) + 1
    }

    fn line_of(&self, offset: usize) -> usize {
        self.line_starts.partition_point(|start| *start <= offset).saturating_sub(1)
    }

    fn floor_boundary(&self, offset: usize) -> usize {
        self.text.floor_char_boundary(offset.min(self.text.len()))
    }

    /// In the text's order.
    pub(super) fn into_diagnostics(mut self) -> Vec<Diagnostic> {
        self.found.sort_by_key(|(offset, _)| *offset);
        self.found.into_iter().map(|(_, diagnostic)| diagnostic).collect()
    }
}

impl Diagnostic {
    /// Says what would be right.
    pub fn expected(&mut self, expected: impl Into<String>) -> &mut Diagnostic {
        self.expected = Some(expected.into());
        self
    }

    /// Says what it is about.
    pub fn about(&mut self, topic: Topic) -> &mut Diagnostic {
        self.topic = topic;
        self
    }

    /// Says a way out.
    pub fn help(&mut self, help: impl Into<String>) -> &mut Diagnostic {
        self.help = Some(help.into());
        self
    }

    /// Adds "did you mean" where one of `known` is near to `name`.
    pub fn nearest<'k>(
        &mut self,
        name: &str,
        known: impl IntoIterator<Item = &'k str>,
    ) -> &mut Diagnostic {
        if let Some(near) = nearest(name, known) {
            self.message.push_str(&format!(", did you mean `{near}`?"));
        }
        self
    }
}

/// Where a table and its keys' values are.
#[derive(Debug, Clone, Default)]
pub(super) struct Place {
    header: Range<usize>,
    values: Vec<(String, Range<usize>)>,
    /// Keys that are missing or wrong, as far as they were read; it was said.
    wrong: Vec<&'static str>,
}

impl Place {
    /// The value of `key`, or the table's header where it has none.
    pub(super) fn at(&self, key: &str) -> Range<usize> {
        let value = self.values.iter().find(|(name, _)| name == key);
        value.map_or_else(|| self.header.clone(), |(_, span)| span.clone())
    }

    /// The table's header.
    pub(super) fn header(&self) -> Range<usize> {
        self.header.clone()
    }

    /// Whether the file gives `key`.
    pub(super) fn has(&self, key: &str) -> bool {
        self.values.iter().any(|(name, _)| name == key)
    }

    /// What the file gives.
    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        self.values.iter().map(|(name, _)| name.as_str())
    }

    /// Whether nothing was wrong with `key` by itself: else its value is a placeholder.
    pub(super) fn is_right(&self, key: &str) -> bool {
        !self.wrong.contains(&key)
    }
}

/// A table under reading.
#[derive(Debug)]
pub struct Section<'t, 'i> {
    table: &'t DeTable<'i>,
    name: String,
    header: Range<usize>,
    asked: Vec<&'static str>,
    hidden: Vec<&'static str>,
    wrong: Vec<&'static str>,
    /// Of keys whose value is an array: the places of the elements that could be read.
    elements: Vec<(&'static str, Vec<Range<usize>>)>,
}

impl<'t, 'i> Section<'t, 'i> {
    /// `name` as in the file: `port.lan`; empty for the whole file.
    pub(super) fn new(table: &'t DeTable<'i>, name: &str, header: Range<usize>) -> Section<'t, 'i> {
        Section {
            table,
            name: name.to_owned(),
            header,
            asked: Vec::new(),
            hidden: Vec::new(),
            wrong: Vec::new(),
            elements: Vec::new(),
        }
    }

    /// The section of a value that should be a table, or a diagnostic. `name` as in the file: `port.lan`.
    pub fn of(walk: &mut Walk<'_>, value: &'t Value<'i>, name: &str) -> Option<Section<'t, 'i>> {
        match value.get_ref() {
            DeValue::Table(table) => Some(Section::new(table, name, value.span())),
            _ => wrong_kind(walk, value, "a table"),
        }
    }

    /// Where everything is, and what was wrong with the keys that were read so far.
    pub(super) fn place(&self) -> Place {
        let values = self.table.iter();
        Place {
            header: self.header.clone(),
            values: values.map(|(key, value)| (key.get_ref().to_string(), value.span())).collect(),
            wrong: self.wrong.clone(),
        }
    }

    /// Keys that are read but not shown: they have no effect here.
    pub(super) fn hide(&mut self, keys: impl IntoIterator<Item = &'static str>) {
        self.hidden.extend(keys);
    }

    /// The place of the table's header.
    pub fn header(&self) -> Range<usize> {
        self.header.clone()
    }

    /// Whether the file gives `key`.
    pub fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// The table of that name within this one.
    pub(super) fn table_of(&self, key: &str) -> Option<&'t DeTable<'i>> {
        self.table.get(key)?.get_ref().as_table()
    }

    /// Whether nothing was wrong with a key that was read: it was there if it has to be, and its value was right.
    pub fn is_right(&self, key: &str) -> bool {
        !self.wrong.contains(&key)
    }

    /// Places of the elements of an array that could be read, in order; none where `key` has no array.
    pub fn elements_of(&self, key: &str) -> Vec<Range<usize>> {
        let of_key = self.elements.iter().find(|(name, _)| *name == key);
        of_key.map(|(_, spans)| spans.clone()).unwrap_or_default()
    }

    /// Makes keys known that are not read here.
    pub fn know(&mut self, keys: &'static [Key]) {
        self.asked.extend(keys.iter().map(|key| key.name));
    }

    /// Reads a key of the kind that its declaration says; `target` keeps its value where the key is absent or wrong.
    pub fn key<K: Kind>(
        &mut self,
        walk: &mut Walk<'_>,
        key: &'static str,
        kind: &K,
        target: &mut K::Value,
    ) {
        let read = |walk: &mut Walk<'_>, value: &'t Value<'i>| kind.read(walk, value);
        let value = match kind.example() {
            Some(example) => self.need(walk, key, example, read),
            None => self.take(walk, key, read),
        };
        if let Some(value) = value {
            *target = value;
        }
    }

    /// The value of an optional key.
    pub fn get(&mut self, walk: &mut Walk<'_>, key: &'static str) -> Option<&'t Value<'i>> {
        self.asked.push(key);
        walk.subject = format!("`{key}`");
        walk.path = match self.name.as_str() {
            "" => key.to_owned(),
            name => format!("{name}.{key}"),
        };
        self.table.get(key)
    }

    /// The value of an optional key, read.
    pub fn take<'a, T>(
        &mut self,
        walk: &mut Walk<'a>,
        key: &'static str,
        read: impl FnOnce(&mut Walk<'a>, &'t Value<'i>) -> Option<T>,
    ) -> Option<T> {
        let value = self.get(walk, key)?;
        walk.kept.clear();
        let read = read(walk, value);
        match read {
            Some(_) => self.elements.push((key, std::mem::take(&mut walk.kept))),
            None => self.wrong.push(key),
        }
        read
    }

    /// The value of a key that must be there, read; `example` is a value for the message where it is not.
    pub fn need<'a, T>(
        &mut self,
        walk: &mut Walk<'a>,
        key: &'static str,
        example: &str,
        read: impl FnOnce(&mut Walk<'a>, &'t Value<'i>) -> Option<T>,
    ) -> Option<T> {
        if !self.has(key) {
            self.wrong.push(key);
        }
        if !self.has(key) && walk.is_whole() {
            let message = format!("missing key `{key}` in {}", self.title());
            walk.error(self.header.clone(), message).expected(format!("{key} = {example}"));
        }
        self.take(walk, key, read)
    }

    /// Entries of a table of named tables, in the file's order.
    pub(super) fn entries(&self) -> Vec<(&'t str, Range<usize>, &'t Value<'i>)> {
        let mut entries: Vec<_> = self
            .table
            .iter()
            .map(|(key, value)| (key.get_ref().as_ref(), key.span(), value))
            .collect();
        entries.sort_by_key(|(_, span, _)| span.start);
        entries
    }

    /// Reports keys that have other names now: old and new ones.
    pub fn renamed(&mut self, walk: &mut Walk<'_>, names: &[(&'static str, &str)]) {
        for (key, span, _) in self.entries() {
            let Some((old, new)) = names.iter().find(|(old, _)| *old == key) else { continue };
            self.asked.push(old);
            self.hidden.push(old);
            walk.error(span, format!("`{old}` in {} has another name now", self.title()))
                .expected(*new);
        }
    }

    /// Reports every key that was not asked for as unknown.
    pub fn finish(self, walk: &mut Walk<'_>) {
        for (key, span, _) in self.entries() {
            if self.asked.contains(&key) {
                continue;
            }
            let what = if self.name.is_empty() { "section or key" } else { "key" };
            let place =
                if self.name.is_empty() { String::new() } else { format!(" in {}", self.title()) };
            let shown = self.asked.iter().filter(|key| !self.hidden.contains(key));
            let mut known: Vec<_> = shown.copied().collect();
            known.sort_unstable();
            known.dedup();
            let expected = format!("one of {}", known.join(", "));
            walk.error(span, format!("unknown {what} `{key}`{place}"))
                .nearest(key, known.iter().copied())
                .expected(expected);
        }
    }

    fn title(&self) -> String {
        match self.name.as_str() {
            "" => "the file".to_owned(),
            // Elements of arrays come with their brackets.
            name if name.starts_with('[') => name.to_owned(),
            name => format!("[{name}]"),
        }
    }
}

/// Reports that a value has the wrong type.
pub fn wrong_kind<T>(walk: &mut Walk<'_>, value: &Value<'_>, expected: &str) -> Option<T> {
    let found = match value.get_ref() {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a float",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    };
    let message = format!("{} is {found}", walk.subject());
    walk.error(value.span(), message).expected(expected);
    None
}

/// The nearest of `known`, if it is near enough to be meant: by few edits, or because one is the beginning of the other, of four
/// characters at least.
pub fn nearest<'k>(name: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let most = (name.chars().count() / 3).clamp(1, 3);
    let all: Vec<&str> = known.into_iter().collect();
    let near = all.iter().map(|other| (distance(name, other), *other));
    let near = near.filter(|(distance, _)| *distance <= most).min_by_key(|(distance, _)| *distance);
    let begins = |other: &&str| {
        name.len().min(other.len()) >= 4 && (other.starts_with(name) || name.starts_with(*other))
    };
    let begun =
        || all.iter().copied().filter(begins).min_by_key(|other| other.len().abs_diff(name.len()));
    near.map(|(_, other)| other).or_else(begun)
}

/// Edits (insert, delete, change, swap of neighbours) from `a` to `b`; the largest number if their lengths differ too much.
pub(super) fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    if a.len().abs_diff(b.len()) > 3 {
        return usize::MAX;
    }
    let mut before = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 0..a.len() {
        let mut row = vec![i + 1];
        for j in 0..b.len() {
            let mut edits =
                (last[j] + usize::from(a[i] != b[j])).min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j] {
                edits = edits.min(before[j - 1] + 1);
            }
            row.push(edits);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}
