//! Patterns of a user: a folder of `.pat` files as l7-filter has them.
//!
//! ```text
//!  # a comment                                   lines that begin with #, and empty ones
//!  # Pattern attributes: good fast overmatch     how good the pattern is
//!  name                                          the first line that is neither: the name of the application
//!  ^\x13bittorrent protocol|azver\x01$           the second one: a regular expression
//!  userspace pattern=…                           instead of the second, if `userspace flags=` has REG_EXTENDED
//! ```
//!
//! The expression is an extended one of POSIX: `\xHH` is a byte, `\` before anything else means that character itself, in
//! brackets too, and `.` is any byte. It is searched, without regard to case, in the first bytes of both sides in the order in
//! which they came, without those that are zero ([`BYTES_MAX`], [`PACKETS_MAX`]). All patterns are one automaton, which is bounded
//! in memory; a search takes time linear in its bytes.
//!
//! Of several that match, the first counts: those with the attribute `subset` come first, those with `superset` last, in each
//! group the better ones, then by name. Ones that `overmatch` are only asked where nothing else is known.
//!
//! Threads: shared, never changed.
//!
//! The fuzz target `l7_patterns` compiles this file by itself, so it uses nothing of its crate.

use std::fs;
use std::path::{Path, PathBuf};

use control::config::kept;
use regex_automata::meta::Regex;
use regex_automata::util::syntax;
use regex_automata::{Input, MatchKind, PatternSet};

/// Bytes of a flow that are searched.
pub const BYTES_MAX: usize = 2048;
/// Packets with payload of which they may be.
pub const PACKETS_MAX: u8 = 10;
/// Files of a folder.
const FILES_MAX: usize = 4096;
/// Bytes of a file.
const FILE_BYTES_MAX: u64 = 64 << 10;
/// Memory of the automaton of one pattern, and of that of all.
const PATTERN_BYTES_MAX: usize = 1 << 20;
const ALL_BYTES_MAX: usize = 64 << 20;

/// Quantifiers that follow each other.
const QUANTIFIERS_MAX: usize = 16;

/// POSIX's classes of characters.
const CLASSES: [&str; 12] = [
    "alnum", "alpha", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space",
    "upper", "xdigit",
];

/// Names that stand for no application: l7-filter's for what it does not know.
const DUMMIES: [&str; 2] = ["unknown", "unset"];

/// How good a pattern is, by its attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// It matches flows of other applications, too.
    pub overmatches: bool,
    /// 0: its application is a part of another one; 2: it has others as parts.
    scope: u8,
    /// 0, great, to 4, poor.
    quality: u8,
}

impl Rank {
    /// The attribute says `great` or `good`.
    pub fn is_good(self) -> bool {
        self.quality <= 1
    }
}

/// A pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// Its application.
    pub name: &'static str,
    /// How good it is.
    pub rank: Rank,
    expression: String,
    file: PathBuf,
    line: usize,
}

/// All patterns of a folder.
#[derive(Debug)]
pub struct Patterns {
    all: Vec<Pattern>,
    regex: Regex,
}

impl Patterns {
    /// Reads the files of a folder, and of the folders in it.
    ///
    /// # Errors
    /// A line for each file that cannot be read, with its name and the line.
    pub fn read(folder: &Path) -> Result<Self, String> {
        let mut files = Vec::new();
        find(folder, 1, &mut files)?;
        if files.is_empty() {
            return Err(format!("{}: no files with the extension .pat", folder.display()));
        }
        files.sort();
        let (mut all, mut errors): (Vec<Pattern>, Vec<String>) = (Vec::new(), Vec::new());
        for file in files {
            match read_file(&file) {
                Ok(Some(own)) => match all.iter().find(|other| other.name == own.name) {
                    Some(other) => errors.push(format!(
                        "{}: `{}` is also the name in {}",
                        file.display(),
                        own.name,
                        other.file.display()
                    )),
                    None => all.push(own),
                },
                Ok(None) => {}
                Err(error) => errors.push(error),
            }
        }
        if !errors.is_empty() {
            return Err(errors.join("\n"));
        }
        Self::of(all).map_err(|error| format!("{}: {error}", folder.display()))
    }

    /// One automaton of all.
    ///
    /// # Errors
    /// It needs more memory than it may.
    pub fn of(mut all: Vec<Pattern>) -> Result<Self, String> {
        all.sort_by_key(|own| (own.rank, own.name));
        let expressions: Vec<&str> = all.iter().map(|own| &*own.expression).collect();
        let regex = compile(&expressions, ALL_BYTES_MAX)?;
        Ok(Self { all, regex })
    }

    /// The patterns in the order in which they count.
    pub fn all(&self) -> &[Pattern] {
        &self.all
    }

    /// The first pattern that is in the bytes.
    pub fn search(&self, bytes: &[u8]) -> Option<&Pattern> {
        let mut found = PatternSet::new(self.all.len());
        self.regex.which_overlapping_matches(&Input::new(bytes), &mut found);
        found.iter().next().and_then(|first| self.all.get(first.as_usize()))
    }
}

/// The files of a folder, and of folders in it down to a depth.
fn find(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            if depth > 0 {
                find(&path, depth - 1, files)?;
            }
        } else if path.extension().is_some_and(|ending| ending == "pat") {
            files.push(path);
        }
        if files.len() > FILES_MAX {
            return Err(format!("{}: more than {FILES_MAX} files", folder.display()));
        }
    }
    Ok(())
}

fn read_file(file: &Path) -> Result<Option<Pattern>, String> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
    let bytes = files::read_regular(file, FILE_BYTES_MAX).map_err(|error| failed(&error))?;
    parse(&bytes, file)
}

/// The pattern of a file; `None` for one of the dummies.
///
/// # Errors
/// File, line and what is wrong there.
pub fn parse(bytes: &[u8], file: &Path) -> Result<Option<Pattern>, String> {
    let at = |line: usize, what: &str| format!("{}:{line}: {what}", file.display());
    let mut rank = Rank { overmatches: false, scope: 1, quality: 2 };
    let (mut name, mut plain, mut userspace, mut is_extended) = (None, None, None, false);
    let mut last = 1;
    for (number, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let (number, line) = (number + 1, line.strip_suffix(b"\r").unwrap_or(line));
        let text = line.trim_ascii();
        if let Some(comment) = text.strip_prefix(b"#") {
            if let Some(words) = after(comment.trim_ascii(), b"pattern attributes:") {
                rank = rank_of(words);
            }
        } else if !text.is_empty() {
            last = number;
            if let Some(own) = after(text, b"userspace pattern=") {
                userspace = Some((number, own));
            } else if let Some(flags) = after(text, b"userspace flags=") {
                is_extended = flags.split(|byte| *byte == b' ').any(|flag| flag == b"REG_EXTENDED");
            } else if name.is_none() {
                name = Some((number, text));
            } else if plain.is_none() {
                // A space at the end of the expression is part of it.
                plain = Some((number, line.trim_ascii_start()));
            } else {
                return Err(at(number, "expected a comment: the file has its name and pattern"));
            }
        }
    }
    let (number, name) = name.ok_or_else(|| at(last, "no name of an application"))?;
    let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.+".contains(byte);
    if name.len() > 64 || !name.iter().all(is_letter) {
        return Err(at(
            number,
            "expected the name of an application: up to 64 letters, digits or `-`, `_`, `.`, `+`",
        ));
    }
    let name = kept(&String::from_utf8_lossy(name).to_lowercase());
    let (line, own) = userspace
        .filter(|_| is_extended)
        .or(plain)
        .ok_or_else(|| at(last, "no regular expression after the name"))?;
    let expression = translate(own).map_err(|error| at(line, &error))?;
    compile(&[&expression], PATTERN_BYTES_MAX).map_err(|error| at(line, &error))?;
    if DUMMIES.contains(&name) {
        return Ok(None);
    }
    Ok(Some(Pattern { name, rank, expression, file: file.to_owned(), line }))
}

/// What is behind a beginning, which may have letters of either case.
fn after<'a>(text: &'a [u8], begin: &[u8]) -> Option<&'a [u8]> {
    let (own, rest) = text.split_at_checked(begin.len())?;
    own.eq_ignore_ascii_case(begin).then_some(rest)
}

fn rank_of(words: &[u8]) -> Rank {
    let words: Vec<&[u8]> = words.split(|byte| byte.is_ascii_whitespace()).collect();
    let has = |word: &str| words.contains(&word.as_bytes());
    let qualities = ["great", "good", "ok", "marginal", "poor"];
    Rank {
        overmatches: has("overmatch"),
        scope: if has("subset") {
            0
        } else if has("superset") {
            2
        } else {
            1
        },
        quality: qualities.iter().position(|word| has(word)).unwrap_or(2) as u8,
    }
}

/// The expression in the syntax of the crate `regex`.
///
/// There, a `?` or `+` behind a quantifier changes how much it prefers to match; here it applies to what is quantified, as in
/// `(?:x+)?` for `x+?`.
fn translate(bytes: &[u8]) -> Result<String, String> {
    let mut out = String::with_capacity(bytes.len() + 8);
    // Where open groups begin; where that begins to which a quantifier would apply, and how many quantifiers that has.
    let (mut groups, mut begin, mut quantifiers) = (Vec::new(), 0, 0);
    let mut at = 0;
    while let Some(byte) = bytes.get(at).copied() {
        at += 1;
        let count = if byte == b'{' { counts(&bytes[at..]) } else { None };
        if matches!(byte, b'*' | b'+' | b'?') || count.is_some() {
            // `(?` has a meaning in that syntax and none here.
            if byte == b'?' && bytes[..at - 1].last() == Some(&b'(') {
                return Err("nothing to repeat before `?`".to_owned());
            }
            if quantifiers > 0 {
                out.insert_str(begin, "(?:");
                out.push(')');
            }
            quantifiers += 1;
            if quantifiers > QUANTIFIERS_MAX {
                return Err(format!("more than {QUANTIFIERS_MAX} quantifiers in a row"));
            }
            let end = at + count.map_or(0, |end| end + 1);
            out.extend(bytes[at - 1..end].iter().map(|byte| char::from(*byte)));
            at = end;
            continue;
        }
        quantifiers = 0;
        begin = out.len();
        match byte {
            b'\\' => {
                let (own, len) = escaped(&bytes[at..])?;
                literal(own, &mut out);
                at += len;
            }
            b'[' => at += class(&bytes[at..], &mut out)?,
            b'(' => {
                groups.push(begin);
                out.push('(');
            }
            b')' => {
                begin = groups.pop().unwrap_or(begin);
                out.push(')');
            }
            b'^' | b'$' | b'.' | b'|' => out.push(byte.into()),
            _ => literal(byte, &mut out),
        }
    }
    Ok(out)
}

/// The byte behind a backslash, and how many characters say it.
fn escaped(rest: &[u8]) -> Result<(u8, usize), String> {
    let hex = |at: usize| rest.get(at).and_then(|byte| (*byte as char).to_digit(16));
    match (rest.first(), hex(1), hex(2)) {
        (Some(b'x'), Some(high), Some(low)) => Ok(((high << 4 | low) as u8, 3)),
        (Some(byte), ..) => Ok((*byte, 1)),
        (None, ..) => Err("the expression ends with a backslash".to_owned()),
    }
}

/// The length of a count in braces, behind the opening one.
fn counts(rest: &[u8]) -> Option<usize> {
    let end = rest.iter().position(|byte| *byte == b'}')?;
    let (low, high) = match rest[..end].iter().position(|byte| *byte == b',') {
        Some(comma) => (&rest[..comma], &rest[comma + 1..end]),
        None => (&rest[..end], &rest[..0]),
    };
    let is_number = |digits: &[u8]| digits.iter().all(u8::is_ascii_digit) && digits.len() <= 3;
    (!low.is_empty() && is_number(low) && is_number(high)).then_some(end)
}

/// A byte as itself.
fn literal(byte: u8, out: &mut String) {
    match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b' ' | b'_' => out.push(byte.into()),
        _ => {
            let digit = |value: u8| char::from_digit(value.into(), 16).unwrap_or('0');
            out.extend(['\\', 'x', digit(byte >> 4), digit(byte & 15)]);
        }
    }
}

/// A bracket expression, behind the opening bracket; how many characters it has.
fn class(rest: &[u8], out: &mut String) -> Result<usize, String> {
    let open = || "a bracket `[` without its `]`".to_owned();
    out.push('[');
    let mut at = 0;
    if rest.first() == Some(&b'^') {
        out.push('^');
        at = 1;
    }
    let begin = at;
    loop {
        let byte = *rest.get(at).ok_or_else(open)?;
        at += 1;
        match byte {
            b']' if at > begin + 1 => break,
            b'[' if rest.get(at) == Some(&b':') => {
                let end = rest[at..].windows(2).position(|two| two == b":]").ok_or_else(open)?;
                let name = &rest[at + 1..at + end.max(1)];
                if !CLASSES.iter().any(|own| own.as_bytes() == name) {
                    return Err("unknown character class".to_owned());
                }
                out.push_str("[:");
                out.extend(name.iter().map(|byte| *byte as char));
                out.push_str(":]");
                at += end + 2;
            }
            // Between two characters a range; else itself.
            b'-' if at > begin + 1 && rest.get(at).is_some_and(|next| *next != b']') => {
                out.push('-');
            }
            b'\\' => {
                let (own, len) = escaped(&rest[at..])?;
                literal(own, out);
                at += len;
            }
            _ => literal(byte, out),
        }
    }
    out.push(']');
    Ok(at)
}

/// An automaton of at most so many bytes.
fn compile(expressions: &[&str], bytes_max: usize) -> Result<Regex, String> {
    let config = Regex::config()
        .match_kind(MatchKind::All)
        .utf8_empty(false)
        .nfa_size_limit(Some(bytes_max))
        .onepass_size_limit(Some(bytes_max))
        .dfa_size_limit(Some(bytes_max))
        .hybrid_cache_capacity(bytes_max.min(8 << 20));
    let syntax = syntax::Config::new()
        .unicode(false)
        .utf8(false)
        .case_insensitive(true)
        .dot_matches_new_line(true)
        .nest_limit(100);
    let made = Regex::builder().configure(config).syntax(syntax).build_many(expressions);
    made.map_err(|error| match (error.size_limit(), error.syntax_error()) {
        (Some(_), _) => format!("the pattern needs more than {bytes_max} bytes of memory"),
        (None, Some(error)) => {
            let text = error.to_string();
            let reason = text.lines().last().unwrap_or_default();
            format!("not a regular expression: {}", reason.trim_start_matches("error: "))
        }
        (None, None) => format!("not a regular expression: {error}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Result<Option<Pattern>, String> {
        parse(text.as_bytes(), Path::new("p.pat"))
    }

    fn matches(expression: &str, bytes: &[u8]) -> bool {
        let expression = translate(expression.as_bytes()).unwrap();
        compile(&[&expression], PATTERN_BYTES_MAX).unwrap().is_match(bytes)
    }

    #[test]
    fn files_have_a_name_and_an_expression() {
        let text = "# Mine\n# Pattern attributes: great fast overmatch subset\r\n\nMine-1\n# why\n  ^hello \n";
        let own = read(text).unwrap().unwrap();
        let rank = Rank { overmatches: true, scope: 0, quality: 0 };
        assert_eq!((own.name, own.rank, own.line), ("mine-1", rank, 6));
        assert!(own.rank.is_good());
        // The space at the end is part of it, those before are not.
        assert_eq!(own.expression, "^hello ");
        let text = "a\n^b\nuserspace pattern=^c\nuserspace flags=REG_NOSUB REG_EXTENDED\n";
        assert_eq!(read(text).unwrap().unwrap().expression, "^c");
        let text = "a\n^b\nuserspace pattern=^c\nuserspace flags=REG_NOSUB\n";
        assert_eq!(read(text).unwrap().unwrap().expression, "^b");
        assert_eq!(read("unknown\n.\n"), Ok(None));
    }

    #[test]
    fn mistakes_have_a_line() {
        for (text, expected) in [
            ("", "p.pat:1: no name of an application"),
            ("# only\n#\n", "p.pat:1: no name of an application"),
            ("\nmine\n", "p.pat:2: no regular expression after the name"),
            ("two words\nx\n", "p.pat:1: expected the name of an application: up to 64"),
            ("a\nb\n\nc\n", "p.pat:4: expected a comment: the file has its name and pattern"),
            ("a\n(b\n", "p.pat:2: not a regular expression: unclosed group"),
            ("a\n[b\n", "p.pat:2: a bracket `[` without its `]`"),
            ("a\nb\\\n", "p.pat:2: the expression ends with a backslash"),
            ("a\n(?i)b\n", "p.pat:2: nothing to repeat before `?`"),
            ("a\n[[:nope:]]\n", "p.pat:2: unknown character class"),
            ("a\nb?????????????????\n", "p.pat:2: more than 16 quantifiers in a row"),
            ("a\n(*+b)\n", "p.pat:2: not a regular expression"),
            ("a\n(.{0,999}x){0,999}\n", "p.pat:2: the pattern needs more than"),
        ] {
            let said = read(text).unwrap_err();
            assert!(said.starts_with(expected), "{text:?}: {said}");
        }
    }

    #[test]
    fn expressions_are_those_of_posix() {
        for (expression, yes, no) in [
            (r"^\x13bit", &b"\x13BitT"[..], &b"x\x13bit"[..]),
            (r"a.c", b"A\ncd", b"ac"),
            (r"^get (/a|/b)$", b"GET /b", b"get /b "),
            (r"[\x01-\x03x]\.", b"\x02.", b"\x04."),
            (r"[^]a]b", b"xb", b"]b"),
            (r"[]a]b", b"]b", b"xb"),
            (r"[a\-z]x", b"-x", b"bx"),
            (r"[[&&~]x", b"&x", b"ax"),
            (r"[[:digit:]-]x", b"-x", b"ax"),
            (r"a{2}b", b"aab", b"ab"),
            (r"^a{2,3}b", b"aaab", b"aaaab"),
            (r"^a{2,}b", b"aaaab", b"ab"),
            (r"a{b}", b"a{b}", b"ab"),
            // A second quantifier is one of what the first one made.
            (r"^GEx+?T ", b"GET ", b"GEyT "),
            (r"^GEx+?T ", b"GExxT ", b"GE T "),
            (r"^a{2}?b", b"b", b"ab"),
            (r"^a|b*+c", b"c", b"b"),
            (r"^(a|(b)+?c)+{2}d", b"aacd", b"ad"),
            (r"^(ab|c){2}*d$", b"abcccd", b"abccd"),
            (r"^[ab]+?{2}*c", b"abac", b"dc"),
            (r"^x\++?y", b"xy", b"x-y"),
            (r"\{\\rtf", b"{\\rtf", b"rtf"),
            (r"x\x2ay", b"x*y", b"xxy"),
            ("\u{e9}#", &[0xc3, 0xa9, b'#'], b"e#"),
            ("a b#c", b"a b#c", b"abc"),
        ] {
            assert!(matches(expression, yes), "{expression}");
            assert!(!matches(expression, no), "{expression}");
        }
    }

    /// A pipe without a writer, and a device without an end.
    #[test]
    fn only_regular_files_are_read() {
        let folder = testkit::Scratch::new();
        let pipe = folder.join("pipe.pat");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        std::os::unix::fs::symlink("/dev/zero", folder.join("zero.pat")).unwrap();
        let said = Patterns::read(folder.path()).unwrap_err();
        let lines: Vec<&str> = said.lines().collect();
        assert!(lines[0].ends_with("pipe.pat: not a regular file"), "{said}");
        assert!(lines[1].ends_with("zero.pat: not a regular file"), "{said}");
    }

    #[test]
    fn the_first_pattern_counts() {
        let file = |text: &str| read(text).unwrap().unwrap();
        let patterns = Patterns::of(vec![
            file("# pattern attributes: overmatch\nany\n.\n"),
            file("# pattern attributes: superset\nweb\n^get \n"),
            file("video\n^get .*video\n"),
            file("# pattern attributes: subset\nlive\n^get .*live\n"),
        ])
        .unwrap();
        let found = |bytes: &[u8]| patterns.search(bytes).map(|own| own.name);
        assert_eq!(found(b"GET /live/video"), Some("live"));
        assert_eq!(found(b"GET /video"), Some("video"));
        assert_eq!(found(b"GET /"), Some("web"));
        assert_eq!((found(b"x"), found(b"")), (Some("any"), None));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

        /// Whatever a file has: a pattern or an error with a line, never a panic.
        #[test]
        fn files_of_any_bytes_are_read(
            words in prop::collection::vec(
                prop_oneof![
                    prop::sample::select(vec![
                        "\n", "#", "a", "[", "]", "^", "(", ")", "{", "}", "1,2", "\\", "\\x0", "x41", "*", "?", "|", "-", "[:", ":]",
                        "userspace pattern=", "userspace flags=REG_EXTENDED", "# Pattern attributes: ",
                    ]).prop_map(|word| word.as_bytes().to_vec()),
                    prop::collection::vec(any::<u8>(), 0..4),
                ],
                0..24,
            ),
        ) {
            if let Err(said) = parse(&words.concat(), Path::new("p.pat")) {
                let line = said.strip_prefix("p.pat:").and_then(|rest| rest.split(':').next());
                prop_assert!(line.is_some_and(|line| line.parse::<usize>().is_ok()), "{}", said);
            }
        }

        /// A literal is found as `contains` finds it, whatever the case of its letters is.
        #[test]
        fn literals_are_found(
            literal in prop::collection::vec(any::<u8>(), 1..6),
            bytes in prop::collection::vec(prop_oneof![any::<u8>(), 97_u8..100, 65_u8..68], 0..64),
            at in any::<prop::sample::Index>(),
            is_put: bool,
        ) {
            let mut expression = String::new();
            literal.iter().for_each(|byte| expression += &format!("\\x{byte:02x}"));
            let mut bytes = bytes;
            if is_put {
                let at = at.index(bytes.len() + 1);
                bytes.splice(at..at, literal.to_ascii_uppercase());
            }
            let lower = bytes.to_ascii_lowercase();
            let expected = lower.windows(literal.len()).any(|own| own == literal.to_ascii_lowercase());
            prop_assert_eq!(matches(&expression, &bytes), expected);
        }
    }

    /// The files of l7-filter, with what they were made for.
    #[test]
    fn files_of_l7_filter_load_and_match_their_samples() {
        let Some(folder) = testdata::path("restricted/l7filter") else { return };
        for (name, most) in [("protocols", 113), ("extra", 10), ("file_types", 15)] {
            let patterns = Patterns::read(&folder.join(name)).unwrap();
            assert!(patterns.all().len() >= most, "{name}: {}", patterns.all().len());
        }
        let patterns = Patterns::read(&folder.join("protocols")).unwrap();
        let mut files: Vec<_> = fs::read_dir(folder.join("testing-data")).unwrap().collect();
        files.sort_by_key(|file| file.as_ref().unwrap().path());
        // The samples of a flow are its first packets, one, two and so on.
        let mut found: std::collections::BTreeMap<String, Vec<&str>> = <_>::default();
        for file in files {
            let path = file.unwrap().path();
            let bytes: Vec<u8> =
                fs::read(&path).unwrap().into_iter().filter(|byte| *byte != 0).collect();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let of = name.split('-').next().unwrap().to_owned();
            let own = patterns.search(&bytes[..bytes.len().min(BYTES_MAX)]);
            found.entry(of).or_default().extend(own.map(|own| own.name));
        }
        println!("{found:?}");
        for name in ["dns", "edonkey", "gnutella", "imap", "ssdp", "ssh"] {
            assert!(found[name].contains(&name), "{name}: {:?}", found[name]);
        }
    }
}
