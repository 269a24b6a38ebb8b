//! One declaration per key of the configuration file.
//!
//! Problem: a key has a name, a type, a default, a range, a text, and a reload that may or may not apply it. Written
//! where each is needed (the struct, its default, the reader, the difference, the documentation), they drift apart.
//!
//! So a section of the file is declared once with [`section!`](crate::section), and everything else follows:
//!
//! - the struct with its fields and their docstrings, and its [`Default`];
//! - [`SectionValue::read`]: a [`Section`] of the file becomes values, mistakes become diagnostics;
//! - [`SectionValue::diff`]: what a reload changes, and what of that needs a restart;
//! - `KEYS`: the rows of `docs/configuration.md` and of the manual page ([`super::manual`]).
//!
//! What a value may be is a [`Kind`]; [`super::kinds`] has those of the shipped sections. Other crates declare sections
//! in the same way; [`read`] reads one alone, which is what their tests need.

use std::any::Any;
use std::fmt::{self, Debug};

use toml::de::{DeTable, DeValue};

pub use super::diagnostic::{Diagnostic, Severity};
use super::diff::Change;
pub use super::walk::{Section, Value, Walk, Word, wrong_kind};

/// What a value of a key may be: its reading, and its texts.
pub trait Kind {
    /// The type of the value.
    type Value;

    /// The value, or a diagnostic and `None`.
    fn read(&self, walk: &mut Walk<'_>, value: &Value<'_>) -> Option<Self::Value>;

    /// The value as the message of a reload shows it.
    fn text(&self, value: &Self::Value) -> String;

    /// The value as the file has it; `None` where the key is absent then.
    fn toml(&self, value: &Self::Value) -> Option<String> {
        Some(format!("\"{}\"", self.text(value)))
    }

    /// The kind in a word or two: `integer`, `duration`.
    fn name(&self) -> &'static str;

    /// The values that are allowed, as Markdown: a range, or words in backquotes.
    fn allowed(&self) -> String;

    /// The unit of a number: `bytes`; empty for none.
    fn unit_name(&self) -> &'static str {
        ""
    }

    /// The default in words, where it is not a fixed value.
    fn default_words(&self) -> Option<&'static str> {
        None
    }

    /// An example if the key must be there; `None`: it may be absent.
    fn example(&self) -> Option<&'static str> {
        None
    }

    /// The settings of a value: one, or those of a table's keys. `key` is the whole key, `port.lan.mtu`.
    fn settings(&self, value: &Self::Value, key: String, reload: Reload, out: &mut Vec<Setting>) {
        out.push(Setting { key, reload, text: self.text(value), contexts: Vec::new() });
    }

    /// The same kind for a number in this unit.
    fn unit(self, unit: &'static str) -> Described<Self>
    where
        Self: Sized,
    {
        Described { unit: Some(unit), ..Described::new(self) }
    }

    /// The same kind for a key that must be there; `example` is a value as the file has it.
    fn needed(self, example: &'static str) -> Described<Self>
    where
        Self: Sized,
    {
        Described { example: Some(example), ..Described::new(self) }
    }

    /// The same kind for a key whose default is best said in words.
    fn shown(self, default: &'static str) -> Described<Self>
    where
        Self: Sized,
    {
        Described { default: Some(default), ..Described::new(self) }
    }

    /// The same kind for a key that may be absent and has no default then.
    fn optional(self) -> Optional<Self>
    where
        Self: Sized,
    {
        Optional { kind: self }
    }
}

/// A kind with more words for the documentation: [`Kind::unit`], [`Kind::needed`], [`Kind::shown`].
#[derive(Debug, Clone)]
pub struct Described<K> {
    kind: K,
    unit: Option<&'static str>,
    example: Option<&'static str>,
    default: Option<&'static str>,
}

impl<K> Described<K> {
    fn new(kind: K) -> Self {
        Self { kind, unit: None, example: None, default: None }
    }
}

impl<K: Kind> Kind for Described<K> {
    type Value = K::Value;

    fn read(&self, walk: &mut Walk<'_>, value: &Value<'_>) -> Option<K::Value> {
        self.kind.read(walk, value)
    }

    fn text(&self, value: &K::Value) -> String {
        self.kind.text(value)
    }

    fn toml(&self, value: &K::Value) -> Option<String> {
        self.kind.toml(value)
    }

    fn name(&self) -> &'static str {
        self.kind.name()
    }

    fn allowed(&self) -> String {
        self.kind.allowed()
    }

    fn unit_name(&self) -> &'static str {
        self.unit.unwrap_or_else(|| self.kind.unit_name())
    }

    fn default_words(&self) -> Option<&'static str> {
        self.default.or_else(|| self.kind.default_words())
    }

    fn example(&self) -> Option<&'static str> {
        self.example.or_else(|| self.kind.example())
    }

    fn settings(&self, value: &K::Value, key: String, reload: Reload, out: &mut Vec<Setting>) {
        self.kind.settings(value, key, reload, out);
    }
}

/// A value that may be absent: [`Kind::optional`].
#[derive(Debug, Clone)]
pub struct Optional<K> {
    kind: K,
}

impl<K: Kind> Kind for Optional<K> {
    type Value = Option<K::Value>;

    fn read(&self, walk: &mut Walk<'_>, value: &Value<'_>) -> Option<Option<K::Value>> {
        self.kind.read(walk, value).map(Some)
    }

    /// `-` where it is absent.
    fn text(&self, value: &Option<K::Value>) -> String {
        value.as_ref().map_or_else(|| "-".to_owned(), |value| self.kind.text(value))
    }

    fn toml(&self, value: &Option<K::Value>) -> Option<String> {
        value.as_ref().and_then(|value| self.kind.toml(value))
    }

    fn name(&self) -> &'static str {
        self.kind.name()
    }

    fn allowed(&self) -> String {
        self.kind.allowed()
    }

    fn unit_name(&self) -> &'static str {
        self.kind.unit_name()
    }

    fn default_words(&self) -> Option<&'static str> {
        self.kind.default_words()
    }

    fn example(&self) -> Option<&'static str> {
        self.kind.example()
    }

    fn settings(&self, value: &Self::Value, key: String, reload: Reload, out: &mut Vec<Setting>) {
        let mut within = Vec::new();
        if let Some(value) = value {
            self.kind.settings(value, key.clone(), reload, &mut within);
        }
        let contexts = within.into_iter().flat_map(|setting| setting.contexts).collect();
        out.push(Setting { key, reload, text: self.text(value), contexts });
    }
}

/// Whether a reload applies a change of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reload {
    /// It does, while packets flow.
    Live,
    /// It does, with other stages or with ports opened anew; packets of other ports flow on.
    Rebuild,
    /// Only a restart does; the key keeps its old value until then.
    Restart,
}

/// `live` or `restart`: for users, what is rebuilt is live.
impl fmt::Display for Reload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Live | Self::Rebuild => "live",
            Self::Restart => "restart",
        })
    }
}

/// One key of a section, as it was declared.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// Its name in the file.
    pub name: &'static str,
    /// Whether a reload applies a change.
    pub reload: Reload,
    /// The lines of its docstring.
    lines: &'static [&'static str],
    about: fn() -> About,
}

/// What a key's kind and default say about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    /// The kind in a word or two: `integer`, `duration`.
    pub kind: &'static str,
    /// The values that are allowed, as Markdown: a range with its unit, or words in backquotes.
    pub allowed: String,
    /// The unit of a number; empty for none.
    pub unit: &'static str,
    /// What happens where the key is absent.
    pub default: KeyDefault,
}

/// What happens where a key is absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyDefault {
    /// It has this value, as the file has it.
    Value(String),
    /// It has the value that these words describe.
    Words(&'static str),
    /// It has none.
    Absent,
    /// The file is refused: the key must be there. This is an example of a value.
    Needed(&'static str),
}

impl About {
    /// Of a key of this kind and default.
    pub fn of<K: Kind>(kind: &K, default: &K::Value) -> About {
        let unit = kind.unit_name();
        let mut allowed = kind.allowed();
        if !unit.is_empty() {
            allowed = format!("{allowed} {unit}");
        }
        let default = match (kind.example(), kind.default_words()) {
            (Some(example), _) => KeyDefault::Needed(example),
            (None, Some(words)) => KeyDefault::Words(words),
            (None, None) => kind.toml(default).map_or(KeyDefault::Absent, KeyDefault::Value),
        };
        About { kind: kind.name(), allowed, unit, default }
    }
}

impl Key {
    /// For [`section!`](crate::section). `lines` are those of a docstring.
    pub const fn new(
        name: &'static str,
        lines: &'static [&'static str],
        reload: Reload,
        about: fn() -> About,
    ) -> Key {
        Key { name, reload, lines, about }
    }

    /// What the key is for: its docstring, as one line of Markdown.
    pub fn text(&self) -> String {
        join_lines(self.lines)
    }

    /// Its kind and default in words.
    pub fn about(&self) -> About {
        (self.about)()
    }
}

/// The lines of a docstring as one; for [`section!`](crate::section).
#[doc(hidden)]
pub fn join_lines(lines: &[&str]) -> String {
    lines
        .iter()
        .map(|line| line.trim())
        .filter(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

/// The value of one key, as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// The whole key: `port.lan.mtu`.
    pub key: String,
    /// Whether a reload applies a change.
    pub reload: Reload,
    /// The value as the message of a reload shows it.
    pub text: String,
    /// Contexts that the value lets the stage set ([`kinds::contexts`](super::kinds::contexts)).
    pub contexts: Vec<String>,
}

/// What differs between two configurations, key by key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// What a reload applies.
    pub live: Vec<Change>,
    /// What a reload applies by other stages, or by opening ports anew.
    pub rebuild: Vec<Change>,
    /// What only a restart applies.
    pub restart: Vec<Change>,
}

impl Changes {
    /// Notes the key if the texts of its values differ.
    pub fn compare(&mut self, reload: Reload, key: &str, old: impl ToString, new: impl ToString) {
        let (old, new) = (old.to_string(), new.to_string());
        if old != new {
            let changes = match reload {
                Reload::Live => &mut self.live,
                Reload::Rebuild => &mut self.rebuild,
                Reload::Restart => &mut self.restart,
            };
            changes.push(Change { key: key.to_owned(), old, new });
        }
    }

    /// Nothing differs.
    pub fn is_empty(&self) -> bool {
        self.live.is_empty() && self.rebuild.is_empty() && self.restart.is_empty()
    }
}

/// A section of the file with its values; [`section!`](crate::section) implements it.
pub trait SectionValue: Any + Debug + Send + Sync {
    /// The name of the section in the file, without brackets.
    fn name(&self) -> &'static str;

    /// What the section is for: its docstring, as one line of Markdown.
    fn text(&self) -> String;

    /// Its keys, in the order of the documentation.
    fn keys(&self) -> &'static [Key];

    /// Reads the keys that the section has. A key that is absent or wrong keeps its value. Further keys of `section`
    /// may be read before or after; [`Section::finish`] then reports those that were not requested.
    fn read(&mut self, section: &mut Section<'_, '_>, walk: &mut Walk<'_>);

    /// Appends the value of every key. `prefix`: what is before the key, `router`.
    fn settings(&self, prefix: &str, out: &mut Vec<Setting>);

    /// A copy.
    fn clone_box(&self) -> Box<dyn SectionValue>;

    /// Whether the other one is of the same type and has the same values.
    fn is_equal(&self, other: &dyn SectionValue) -> bool;

    /// Appends what changes from this section to `new`. A key that only one of them has is `-` in the other one, and
    /// needs a restart.
    fn diff(&self, new: &dyn SectionValue, prefix: &str, changes: &mut Changes) {
        let (mut before, mut after) = (Vec::new(), Vec::new());
        self.settings(prefix, &mut before);
        new.settings(prefix, &mut after);
        for Setting { key, reload, text, .. } in &before {
            match after.iter().find(|setting| setting.key == *key) {
                Some(new) => changes.compare(*reload, key, text, &new.text),
                None => changes.compare(Reload::Restart, key, text, "-"),
            }
        }
        for Setting { key, text, .. } in &after {
            if !before.iter().any(|setting| setting.key == *key) {
                changes.compare(Reload::Restart, key, "-", text);
            }
        }
    }
}

impl dyn SectionValue {
    /// The values, if the section is of this type.
    pub fn get<S: SectionValue>(&self) -> Option<&S> {
        let any: &dyn Any = self;
        any.downcast_ref()
    }
}

impl Clone for Box<dyn SectionValue> {
    fn clone(&self) -> Self {
        (**self).clone_box()
    }
}

impl PartialEq for dyn SectionValue {
    fn eq(&self, other: &Self) -> bool {
        self.is_equal(other)
    }
}

/// Reads one section of a text, which may hold others: `name` is `stage.limit` for `[stage.limit]`. Unknown keys are
/// errors. Gives all diagnostics in the order of the text; a section that is not there is as if it were empty.
///
/// A whole configuration is read by [`parse`](super::parse) and [`load`](super::load); this is for the tests of a
/// section.
pub fn read(text: &str, name: &str, section: &mut dyn SectionValue) -> Vec<Diagnostic> {
    let (file, syntax) = DeTable::parse_recoverable(text);
    let mut walk = Walk::new(text, &syntax);
    let empty = DeTable::new();
    let (mut table, mut header) = (file.get_ref(), 0..0);
    for part in name.split('.') {
        let Some(value) = table.get(part) else {
            (table, header) = (&empty, 0..0);
            break;
        };
        let DeValue::Table(inner) = value.get_ref() else {
            walk.error(value.span(), format!("`{name}` is not a table")).expected("a table");
            return walk.into_diagnostics();
        };
        (table, header) = (inner, value.span());
    }
    let mut values = Section::new(table, name, header);
    section.read(&mut values, &mut walk);
    values.finish(&mut walk);
    walk.into_diagnostics()
}

/// Declares a section of the configuration file: a struct whose fields are keys.
///
/// A key is `live` (a reload applies a change), `rebuild` (it does so by other stages or ports opened anew) or `restart`
/// (only a restart does), then the field's name and type, its
/// default, and its [`Kind`]. Its docstring is the text of the documentation: one paragraph. A key that cannot be a
/// field's name has its name in brackets behind the field: `live interface["in"]: …`. Fields behind `also` are not
/// keys. The struct has `Debug`, `Clone`, `PartialEq`, `Default`, the constants `NAME` and `KEYS`, and is a
/// [`SectionValue`].
///
/// ```
/// use std::time::Duration;
///
/// use control::config::kinds::{duration, integer, words};
/// use control::config::section::{self, SectionValue};
///
/// control::words! {
///     /// What happens to packets beyond the rate.
///     pub enum Beyond {
///         /// They are dropped.
///         Drop = "drop",
///         /// They get another DSCP class.
///         Mark = "mark",
///     }
/// }
///
/// control::section! {
///     /// `[stage.limit]`: limits of DSCP classes.
///     pub struct Limit("stage.limit") {
///         /// DSCP class that is limited.
///         restart class: u8 = 0, integer(0..=63);
///         /// Time over which the rate is measured.
///         live window: Duration = Duration::from_secs(1),
///             duration(Duration::from_millis(1)..=Duration::from_mins(1));
///         /// Packets beyond the rate: `drop` or `mark`.
///         live beyond: Beyond = Beyond::Drop, words();
///     }
/// }
///
/// let mut limit = Limit::default();
/// assert_eq!(section::read("[stage.limit]\nclass = 10", "stage.limit", &mut limit), []);
/// assert_eq!((limit.class, Limit::KEYS[1].name), (10, "window"));
/// let wrong = section::read("[stage.limit]\nclass = 64", "stage.limit", &mut limit);
/// assert_eq!(wrong[0].message, "`class` is 64");
/// ```
#[macro_export]
macro_rules! section {
    (
        $(#[doc = $about:literal])*
        $(#[derive($($derive:path),* $(,)?)])?
        $vis:vis struct $struct:ident($title:literal) {
            $(
                $(#[doc = $doc:literal])*
                $reload:ident $field:ident $([$name:literal])? : $type:ty = $default:expr, $kind:expr;
            )*
        }
        $(also {
            $(
                $(#[doc = $also_doc:literal])*
                $also:ident: $also_type:ty = $also_default:expr;
            )*
        })?
    ) => {
        $(#[doc = $about])*
        #[derive(Debug, Clone, PartialEq $(, $($derive),*)?)]
        $vis struct $struct {
            $(
                $(#[doc = $doc])*
                $vis $field: $type,
            )*
            $($(
                $(#[doc = $also_doc])*
                $vis $also: $also_type,
            )*)?
        }

        #[allow(dead_code, reason = "a section may need some of them only")]
        impl $struct {
            /// The section's name in the file, without brackets.
            $vis const NAME: &'static str = $title;
            /// Every key, in the order of the documentation.
            $vis const KEYS: &'static [$crate::config::section::Key] = &[$(
                $crate::config::section::Key::new(
                    $crate::section!(@name $field $($name)?),
                    &[$($doc),*],
                    $crate::section!(@reload $reload),
                    || {
                        let default: $type = $default;
                        $crate::config::section::About::of(&$kind, &default)
                    },
                ),
            )*];
        }

        impl ::core::default::Default for $struct {
            fn default() -> Self {
                Self { $($field: $default,)* $($($also: $also_default,)*)? }
            }
        }

        impl $crate::config::section::SectionValue for $struct {
            fn name(&self) -> &'static str {
                $title
            }

            fn text(&self) -> ::std::string::String {
                $crate::config::section::join_lines(&[$($about),*])
            }

            fn keys(&self) -> &'static [$crate::config::section::Key] {
                Self::KEYS
            }

            fn read(
                &mut self,
                section: &mut $crate::config::section::Section<'_, '_>,
                walk: &mut $crate::config::section::Walk<'_>,
            ) {
                $(section.key(walk, $crate::section!(@name $field $($name)?), &$kind, &mut self.$field);)*
            }

            fn settings(
                &self,
                prefix: &str,
                out: &mut ::std::vec::Vec<$crate::config::section::Setting>,
            ) {
                $(
                    let key = ::std::format!("{prefix}.{}", $crate::section!(@name $field $($name)?));
                    let reload = $crate::section!(@reload $reload);
                    $crate::config::section::Kind::settings(&$kind, &self.$field, key, reload, out);
                )*
            }

            fn clone_box(&self) -> ::std::boxed::Box<dyn $crate::config::section::SectionValue> {
                ::std::boxed::Box::new(::core::clone::Clone::clone(self))
            }

            fn is_equal(&self, other: &dyn $crate::config::section::SectionValue) -> bool {
                other.get::<Self>().is_some_and(|other| other == self)
            }
        }
    };
    (@name $field:ident) => { ::core::stringify!($field) };
    (@name $field:ident $name:literal) => { $name };
    (@reload live) => { $crate::config::section::Reload::Live };
    (@reload rebuild) => { $crate::config::section::Reload::Rebuild };
    (@reload restart) => { $crate::config::section::Reload::Restart };
}

/// Declares an enum whose values are words in the file, for [`kinds::words`](crate::config::kinds::words). Several
/// words may mean the same value; the first is the one that is written.
#[macro_export]
macro_rules! words {
    (
        $(#[doc = $about:literal])*
        $vis:vis enum $enum:ident {
            $($(#[doc = $doc:literal])* $value:ident = $($word:literal)|+),* $(,)?
        }
    ) => {
        $(#[doc = $about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $vis enum $enum {
            $($(#[doc = $doc])* $value,)*
        }

        impl $crate::config::section::Word for $enum {
            const WORDS: &'static [(&'static str, Self)] = &[$($(($word, $enum::$value),)+)*];
        }
    };
}
