//! A configuration file that is changed, with its comments and its layout: what `ctl save` writes.
//!
//! A [`Draft`] is the text as a tree of `toml_edit`, which remembers every space. Entries of arrays of tables, `[[route]]`
//! and the like, are added, changed and removed one by one ([`List`]); everything else stays as it is. A comment directly
//! above a removed entry goes with it; what a blank line separates from it stays.
//!
//! Pure functions, on any thread, but for [`replace`].

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use similar::TextDiff;
pub use toml_edit::Value;
use toml_edit::{ArrayOfTables, DocumentMut, InlineTable, Item, RawString, Table, TableLike};

/// Lines around a change that a difference shows.
const CONTEXT: usize = 3;

/// A configuration file that is being changed.
#[derive(Debug, Clone)]
pub struct Draft {
    document: DocumentMut,
    /// The text that was read, and how the document writes it: without a last newline, or with others, they differ.
    read: [String; 2],
}

/// The entries of an array of tables.
#[derive(Debug)]
pub struct List<'d> {
    document: &'d mut DocumentMut,
    path: &'d [&'d str],
    /// Where the last one was that is gone.
    place: Option<isize>,
}

/// Keys of an entry, in order.
pub type Keys = Vec<(String, Value)>;

impl Draft {
    /// Reads a text.
    ///
    /// # Errors
    /// It is not TOML.
    pub fn parse(text: &str) -> Result<Self, String> {
        let document: DocumentMut = text.parse().map_err(|error| format!("{error}"))?;
        let read = [text.to_owned(), document.to_string()];
        Ok(Self { document, read })
    }

    /// The text as it is now.
    pub fn text(&self) -> String {
        let text = self.document.to_string();
        match &self.read {
            [read, written] if *written == text => read.clone(),
            [read, _] if read.contains("\r\n") => text.replace("\r\n", "\n").replace('\n', "\r\n"),
            _ => text,
        }
    }

    /// The entries under a path: `["route"]`, `["stage", "edge", "rule"]`. There may be none yet.
    pub fn list<'d>(&'d mut self, path: &'d [&'d str]) -> List<'d> {
        List { document: &mut self.document, path, place: None }
    }

    /// Makes sure that the file has a section, be it empty.
    pub fn need_section(&mut self, name: &str) {
        if self.document.get(name).is_none() {
            let mut table = Table::new();
            table.set_position(Some(end(self.document.as_table()) + 1));
            table.decor_mut().set_prefix("\n");
            self.document.insert(name, Item::Table(table));
        }
    }
}

impl List<'_> {
    fn item(&mut self) -> Option<&mut Item> {
        let (last, path) = self.path.split_last()?;
        let mut table: &mut dyn TableLike = self.document.as_table_mut();
        for key in path {
            table = table.get_mut(key)?.as_table_like_mut()?;
        }
        table.get_mut(last)
    }

    fn entry(&mut self, at: usize) -> Option<&mut dyn TableLike> {
        match self.item()? {
            Item::ArrayOfTables(all) => all.get_mut(at).map(|own| own as &mut dyn TableLike),
            Item::Value(Value::Array(all)) => {
                all.get_mut(at)?.as_inline_table_mut().map(|own| own as &mut dyn TableLike)
            }
            _ => None,
        }
    }

    /// How many there are.
    pub fn len(&mut self) -> usize {
        match self.item() {
            Some(Item::ArrayOfTables(all)) => all.len(),
            Some(Item::Value(Value::Array(all))) => all.len(),
            _ => 0,
        }
    }

    /// Whether there is none.
    pub fn is_empty(&mut self) -> bool {
        self.len() == 0
    }

    /// Whether an entry has a key.
    pub fn has(&mut self, at: usize, key: &str) -> bool {
        self.entry(at).is_some_and(|own| own.contains_key(key))
    }

    /// Gives a key of an entry a value, or takes the key away. A comment behind the value stays.
    pub fn set(&mut self, at: usize, key: &str, value: Option<Value>) {
        let Some(entry) = self.entry(at) else { return };
        let Some(mut value) = value else {
            entry.remove(key);
            return;
        };
        match entry.get_mut(key).and_then(Item::as_value_mut) {
            Some(before) => {
                *value.decor_mut() = before.decor().clone();
                *before = value;
            }
            None => drop(entry.insert(key, Item::Value(value))),
        }
    }

    /// Inserts an entry before the one that is at `at`.
    pub fn insert(&mut self, at: usize, keys: Keys) {
        let place = self.place;
        let behind_all = end(self.document.as_table()) + 1;
        let has_keys = self.document.iter().any(|(_, item)| item.is_value());
        let begin = below(self.document.as_table()).filter_map(begin).min().filter(|_| !has_keys);
        match self.item() {
            Some(Item::Value(Value::Array(all))) => {
                let entry: InlineTable = keys.into_iter().collect();
                insert_inline(all, at.min(all.len()), Value::InlineTable(entry));
                return;
            }
            Some(Item::ArrayOfTables(_)) => {}
            _ => self.make(),
        }
        let Some(Item::ArrayOfTables(all)) = self.item() else { return };
        let mut entry = Table::new();
        for (key, value) in keys {
            entry.insert(&key, Item::Value(value));
        }
        let at = at.min(all.len());
        // Tables with the same number keep the order of the array.
        let neighbour = all.get(at.saturating_sub(1)).and_then(Table::position);
        entry.set_position(Some(neighbour.or(place).unwrap_or(behind_all)));
        entry.decor_mut().set_prefix("\n");
        if let (0, Some(next)) = (at, all.get_mut(0)) {
            // What is directly above the next one is about it. What is further up is about all that follows.
            let prefix = next.decor().prefix().and_then(|own| own.as_str()).unwrap_or_default();
            let (above, own) = prefix.split_at(prefix.rfind("\n\n").map_or(0, |at| at + 2));
            let (above, own) = (above.to_owned(), format!("\n{}", own.trim_start_matches('\n')));
            if above.contains('#') || next.position() == begin {
                entry.decor_mut().set_prefix(above);
            }
            next.decor_mut().set_prefix(own);
        }
        all.insert(at, entry);
    }

    /// Makes the array, with no entries.
    fn make(&mut self) {
        let Some((last, path)) = self.path.split_last() else { return };
        let mut table: &mut dyn TableLike = self.document.as_table_mut();
        for key in path {
            let mut implicit = Table::new();
            implicit.set_implicit(true);
            let below = table.entry(key).or_insert(Item::Table(implicit));
            let Some(below) = below.as_table_like_mut() else { return };
            table = below;
        }
        table.insert(last, Item::ArrayOfTables(ArrayOfTables::new()));
    }

    /// Removes an entry.
    pub fn remove(&mut self, at: usize) {
        let gone = match self.item() {
            Some(Item::Value(Value::Array(all))) if at < all.len() => return drop(all.remove(at)),
            Some(Item::ArrayOfTables(all)) if at < all.len() => all.remove(at),
            _ => return,
        };
        self.place = gone.position().or(self.place);
        let prefix = gone.decor().prefix().and_then(|prefix| prefix.as_str()).unwrap_or_default();
        let kept = prefix.rfind("\n\n").map_or("", |at| &prefix[..at + 2]);
        if !kept.contains('#') {
            return;
        }
        let behind = |own: &Table| own.position() > gone.position();
        match first(self.document.as_table_mut(), &behind) {
            Some(next) => {
                let own = next.decor().prefix().and_then(|own| own.as_str()).unwrap_or_default();
                let joined = kept.to_owned() + own.trim_start_matches('\n');
                next.decor_mut().set_prefix(joined);
            }
            None => {
                let own = self.document.trailing().as_str().unwrap_or_default();
                let joined = kept.trim_end().to_owned() + "\n" + own;
                self.document.set_trailing(joined);
            }
        }
    }
}

/// Inserts an element of an array, laid out as its neighbours are. A comment behind an element stays there, and so does
/// one above the next element.
fn insert_inline(all: &mut toml_edit::Array, at: usize, mut entry: Value) {
    let text =
        |own: Option<&RawString>| own.and_then(RawString::as_str).unwrap_or_default().to_owned();
    let neighbour = all.get(at.min(all.len().saturating_sub(1)));
    let decor = neighbour.map(|own| own.decor().clone()).unwrap_or_default();
    let before = text(decor.prefix());
    let indent = before.rfind('\n').map_or(before.as_str(), |at| &before[at..]);
    // Up to the end of the line it belongs to what is before.
    let behind = match all.get(at) {
        Some(_) => before.clone(),
        None => text(Some(all.trailing())),
    };
    let (line, rest) = behind.split_at(behind.find('\n').unwrap_or(0));
    let is_open = line.contains('#') && !indent.starts_with('\n');
    let indent = if is_open { format!("\n{indent}") } else { indent.to_owned() };
    // Before a closing bracket without a comma.
    let suffix = text(decor.suffix());
    let is_last = at > 0 && all.get(at).is_none() && !suffix.contains('#');
    entry.decor_mut().set_prefix(format!("{line}{indent}"));
    entry.decor_mut().set_suffix(if is_last { suffix.as_str() } else { "" });
    match all.get_mut(at) {
        Some(next) => next.decor_mut().set_prefix(if rest.is_empty() { " " } else { rest }),
        None => all.set_trailing(rest),
    }
    if let Some(before) = all.get_mut(at.wrapping_sub(1)).filter(|_| is_last) {
        before.decor_mut().set_suffix("");
    }
    all.insert_formatted(at, entry);
}

/// The tables directly below one, in arrays too.
fn below(table: &Table) -> impl Iterator<Item = &Table> {
    table.iter().flat_map(|(_, item)| {
        let arrays = item.as_array_of_tables().into_iter().flat_map(ArrayOfTables::iter);
        item.as_table().into_iter().chain(arrays)
    })
}

/// The number of the last table of the file.
fn end(table: &Table) -> isize {
    below(table).map(end).chain(table.position()).max().unwrap_or(0)
}

/// The number of the first table of the file, of these and those below.
fn begin(table: &Table) -> Option<isize> {
    below(table).filter_map(begin).chain(table.position()).min()
}

/// The first table of the file of which something holds.
fn first<'t>(table: &'t mut Table, is_it: &dyn Fn(&Table) -> bool) -> Option<&'t mut Table> {
    fn number(table: &Table, is_it: &dyn Fn(&Table) -> bool) -> Option<isize> {
        let own = table.position().filter(|_| is_it(table) && !table.is_implicit());
        below(table).filter_map(|own| number(own, is_it)).chain(own).min()
    }
    fn find(table: &mut Table, wanted: isize) -> Option<&mut Table> {
        if table.position() == Some(wanted) && !table.is_implicit() {
            return Some(table);
        }
        table.iter_mut().find_map(|(_, item)| match item {
            Item::Table(own) => find(own, wanted),
            Item::ArrayOfTables(all) => all.iter_mut().find_map(|own| find(own, wanted)),
            _ => None,
        })
    }
    let wanted = number(table, is_it)?;
    find(table, wanted)
}

/// The difference of two texts of a file, as `diff -u` prints it; empty where there is none.
pub fn unified(file: &str, before: &str, after: &str) -> String {
    if before == after {
        return String::new();
    }
    let diff = TextDiff::from_lines(before, after);
    let mut diff = diff.unified_diff();
    diff.context_radius(CONTEXT).header(file, &format!("{file} (running)")).to_string()
}

/// Replaces the text of a file at once: whoever reads it sees the old text or the new one. Permissions and owner stay; a
/// link is followed.
///
/// # Errors
/// The file, or one beside it, cannot be written; the file is as it was.
pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    let path = fs::canonicalize(path)?;
    let before = fs::metadata(&path)?;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let new = path.with_file_name(name);
    let write = || {
        // Nobody else's file is overwritten, and nobody reads it before it has the right permissions.
        let mut options = fs::OpenOptions::new();
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.write(true).create_new(true).open(&new)?;
        file.write_all(text.as_bytes())?;
        // Only root may give files away; another owner may then not read it, which is worse than an error.
        let own = file.metadata()?;
        if (own.uid(), own.gid()) != (before.uid(), before.gid()) {
            std::os::unix::fs::fchown(&file, Some(before.uid()), Some(before.gid()))?;
        }
        file.set_permissions(fs::Permissions::from_mode(before.mode() & 0o7777))?;
        file.sync_all()?;
        fs::rename(&new, &path)
    };
    write().inspect_err(|_| drop(fs::remove_file(&new)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FILE: &str = "# The lab.\nmode = \"router\" # of two\n\n# Ways out\n\n# To the left\n[[route]]\n\
                        prefix = \"10.0.0.0/8\" # ten\nvia   = '192.0.2.9'\n[port.left] # here\n\n\
                        [[route]]\nprefix = \"11.0.0.0/8\"\nvia = \"192.0.2.9\"\n# The end\n";

    fn keys(prefix: &str) -> Keys {
        vec![("prefix".to_owned(), prefix.into()), ("blackhole".to_owned(), true.into())]
    }

    /// What a change makes of the file, as a difference without its header.
    fn changed(text: &str, change: impl FnOnce(&mut List<'_>)) -> String {
        let mut draft = Draft::parse(text).unwrap();
        change(&mut draft.list(&["route"]));
        let diff = unified("f", text, &draft.text());
        let lines = diff.lines().skip(2).filter(|line| !line.starts_with([' ', '@']));
        lines.map(|line| line.to_owned() + "\n").collect()
    }

    #[test]
    fn nothing_changes_by_itself() {
        for text in [FILE, "", "a = 1", "\r\n[[route]]\r\nprefix = \"10.0.0.0/8\"\r\n"] {
            let mut draft = Draft::parse(text).unwrap();
            draft.list(&["route"]).len();
            assert_eq!(draft.text(), text);
            assert_eq!(unified("f", text, &draft.text()), "");
        }
        assert!(Draft::parse("a = = 1").is_err());
    }

    #[test]
    fn entries_come_and_go_where_they_are() {
        let added = "+\n+[[route]]\n+prefix = \"12.0.0.0/8\"\n+blackhole = true\n";
        for at in 0..3 {
            let mut draft = Draft::parse(FILE).unwrap();
            draft.list(&["route"]).insert(at, keys("12.0.0.0/8"));
            let text = draft.text();
            let order: Vec<_> = ["12.0.0.0/8", "10.0.0.0/8", "11.0.0.0/8"]
                .map(|prefix| text.find(prefix).unwrap())
                .into();
            let before = order[1..].iter().filter(|other| **other < order[0]).count();
            assert_eq!(before, at, "{text}");
            let diff = changed(FILE, |list| list.insert(at, keys("12.0.0.0/8")));
            assert_eq!(diff.lines().count(), 4, "{diff}");
            assert!(diff.lines().all(|line| added.contains(line)), "{diff}");
        }
        // A comment directly above stays there, with an empty line before it.
        for (text, expected) in [
            ("# it\n[[route]] #\n", "NEW\n# it\n[[route]] #\n"),
            ("# head\n\n# it\n[[route]] #\n", "# head\n\nNEW\n# it\n[[route]] #\n"),
            ("# head\n\n[[route]] #\n", "# head\n\nNEW\n[[route]] #\n"),
            ("[z]\na = 1\n# it\n[[route]] #\n", "[z]\na = 1\n\nNEW\n# it\n[[route]] #\n"),
            ("[z]\n\n# it\n[[route]] #\n", "[z]\n\nNEW\n# it\n[[route]] #\n"),
            ("a = 1\n[[route]] #\n", "a = 1\n\nNEW\n[[route]] #\n"),
        ] {
            let mut draft = Draft::parse(text).unwrap();
            draft.list(&["route"]).insert(0, keys("12.0.0.0/8"));
            let new = "[[route]]\nprefix = \"12.0.0.0/8\"\nblackhole = true\n";
            assert_eq!(draft.text().replace(new, "NEW"), expected, "{text}");
        }
        // A comment directly above goes, one further up stays.
        let diff = changed(FILE, |list| list.remove(0));
        assert!(!diff.contains("Ways out") && diff.contains("-# To the left"), "{diff}");
        let diff = changed(FILE, |list| list.set(0, "via", Some("192.0.2.8".into())));
        assert_eq!(diff, "-via   = '192.0.2.9'\n+via   = \"192.0.2.8\"\n");
        let diff = changed(FILE, |list| list.set(0, "prefix", Some("9.0.0.0/8".into())));
        assert!(diff.ends_with("+prefix = \"9.0.0.0/8\" # ten\n"), "{diff}");
        let diff = changed(FILE, |list| list.set(1, "via", None));
        assert_eq!(diff, "-via = \"192.0.2.9\"\n");
        // All of them, and a new one in their place.
        let mut draft = Draft::parse(FILE).unwrap();
        let mut list = draft.list(&["route"]);
        list.remove(1);
        list.remove(0);
        list.insert(0, keys("12.0.0.0/8"));
        assert!(list.has(0, "blackhole") && !list.has(0, "via") && list.len() == 1);
        let text = draft.text();
        assert!(text.find("12.0.0.0/8") < text.find("[port.left]"), "{text}");
    }

    #[test]
    fn the_first_entry_makes_the_list() {
        let mut draft = Draft::parse("a = 1\n[stage.edge]\nkind = \"firewall\"\n[z]\n").unwrap();
        draft.list(&["stage", "edge", "rule"]).insert(0, keys("10.0.0.0/8"));
        draft.list(&["route"]).insert(0, keys("11.0.0.0/8"));
        draft.need_section("firewall");
        draft.need_section("z");
        let text = draft.text();
        assert_eq!(
            text,
            "a = 1\n[stage.edge]\nkind = \"firewall\"\n[z]\n\n[[stage.edge.rule]]\nprefix = \"10.0.0.0/8\"\n\
             blackhole = true\n\n[[route]]\nprefix = \"11.0.0.0/8\"\nblackhole = true\n\n[firewall]\n"
        );
    }

    #[test]
    fn entries_may_be_inline() {
        let text = "route = [\n  { prefix = \"10.0.0.0/8\", via = \"192.0.2.9\" }, # ten\n]\n";
        let mut draft = Draft::parse(text).unwrap();
        let mut list = draft.list(&["route"]);
        list.insert(1, keys("11.0.0.0/8"));
        list.set(0, "via", Some("192.0.2.8".into()));
        assert_eq!(list.len(), 2);
        let text = draft.text();
        assert!(text.contains("{ prefix = \"11.0.0.0/8\", blackhole = true }"), "{text}");
        assert!(text.contains("}, # ten\n  { prefix"), "{text}");
        draft.list(&["route"]).remove(0);
        assert!(!draft.text().contains("10.0.0.0/8"));
        Draft::parse(&draft.text()).unwrap();
    }

    #[test]
    fn comments_of_inline_entries_stay_with_them() {
        let text = "route = [\n  # ten\n  { a = 1 }, # it\n  # eleven\n  { a = 2 }\n]\n";
        for (at, expected) in [
            (0, "route = [\n  NEW,\n  # ten\n  { a = 1 }, # it\n  # eleven\n  { a = 2 }\n]\n"),
            (1, "route = [\n  # ten\n  { a = 1 }, # it\n  NEW,\n  # eleven\n  { a = 2 }\n]\n"),
            (2, "route = [\n  # ten\n  { a = 1 }, # it\n  # eleven\n  { a = 2 },\n  NEW\n]\n"),
        ] {
            let mut draft = Draft::parse(text).unwrap();
            draft.list(&["route"]).insert(at, vec![("b".to_owned(), 3.into())]);
            assert_eq!(draft.text().replace("{ b = 3 }", "NEW"), expected);
        }
        for (text, expected) in [
            ("route = []\n", "route = [NEW]\n"),
            ("route = [{ a = 1 }]\n", "route = [NEW, { a = 1 }]\n"),
            ("route = [ # none\n]\n", "route = [ # none\nNEW\n]\n"),
        ] {
            let mut draft = Draft::parse(text).unwrap();
            draft.list(&["route"]).insert(0, vec![("b".to_owned(), 3.into())]);
            assert_eq!(draft.text().replace("{ b = 3 }", "NEW"), expected);
        }
    }

    /// A document with entries among other tables and comments.
    fn document(entries: &[(u8, u8)], is_inline: bool) -> String {
        let prefix = |own: u8| format!("prefix = \"{own}.0.0.0/8\"");
        if is_inline {
            let all: String = entries
                .iter()
                .map(|(own, _)| format!("  {{ {} }}, # it\n", prefix(*own)))
                .collect();
            return format!("# head\nroute = [\n{all}]\n[system]\nworkers = 1\n");
        }
        let entry = |(own, form): &(u8, u8)| {
            let before =
                ["", "\n# about it\n", "# one\n\n# two\n", "[port.p$]\nmtu = 1500 # long\n\n"];
            let before = before[usize::from(*form) % 4].replace('$', &form.to_string());
            format!("{before}[[route]] # {form}\n{} # it\n", prefix(*own))
        };
        let all: String = entries.iter().map(entry).collect();
        format!("# head\n[system]\nworkers = 1\n{all}# end\n")
    }

    /// The prefixes of a text's entries.
    fn prefixes(text: &str) -> Vec<u8> {
        let document: DocumentMut = text.parse().unwrap();
        let number = |own: &dyn TableLike| {
            let prefix = own.get("prefix").and_then(Item::as_str).unwrap();
            prefix.split('.').next().unwrap().parse().unwrap()
        };
        match document.get("route") {
            Some(Item::ArrayOfTables(all)) => all.iter().map(|own| number(own)).collect(),
            Some(Item::Value(Value::Array(all))) => {
                all.iter().map(|own| number(own.as_inline_table().unwrap())).collect()
            }
            _ => Vec::new(),
        }
    }

    proptest! {
        /// Whatever is done to entries: the text has those that a plain list has, and everything else.
        #[test]
        fn a_text_follows_a_plain_list(
            entries in prop::collection::vec((1..100_u8, 0..32_u8), 0..6),
            is_inline: bool,
            steps in prop::collection::vec((0..3_u8, 0..8_usize, 100..200_u8), 0..12),
        ) {
            let mut seen = std::collections::HashSet::new();
            let entries: Vec<_> = entries.into_iter().filter(|(_, form)| seen.insert(*form)).collect();
            let text = document(&entries, is_inline);
            let mut plain: Vec<u8> = entries.iter().map(|(own, _)| *own).collect();
            let mut draft = Draft::parse(&text).unwrap();
            let mut list = draft.list(&["route"]);
            for (step, at, new) in steps {
                let at = at % (plain.len() + 1);
                let value = || Value::from(format!("{new}.0.0.0/8"));
                match step {
                    0 => {
                        list.insert(at, vec![("prefix".to_owned(), value())]);
                        plain.insert(at, new);
                    }
                    1 if at < plain.len() => {
                        list.remove(at);
                        plain.remove(at);
                    }
                    2 if at < plain.len() => {
                        list.set(at, "prefix", Some(value()));
                        plain[at] = new;
                    }
                    _ => {}
                }
                prop_assert_eq!(list.len(), plain.len());
            }
            let changed = draft.text();
            prop_assert_eq!(prefixes(&changed), plain, "{}", changed);
            let other = |text: &str| text.lines().filter(|line| {
                ["# head", "workers", "[port", "mtu", "# end", "# one"].iter().any(|own| line.starts_with(own))
            }).map(str::to_owned).collect::<Vec<_>>();
            prop_assert_eq!(other(&changed), other(&text), "{}", changed);
        }
    }

    #[test]
    fn a_file_is_replaced_with_its_permissions() {
        let folder = testkit::Scratch::new();
        let file = folder.write("c.toml", "a = 1\n");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        let link = folder.join("link.toml");
        std::os::unix::fs::symlink("c.toml", &link).unwrap();
        replace(&link, "a = 2\n").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "a = 2\n");
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, 0o640);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert!(replace(&folder.join("none.toml"), "").is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}
