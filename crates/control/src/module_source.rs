//! Sources of modules: which functions one defines, what it keeps for a flow, and what it may not use.
//!
//! A source is C in the kernel dialect, and a compiler has the last word. What is looked at here is what the compiler cannot
//! say: the functions of layers by their names, the words of `STATE`, the names that it declares (which are made its own, so
//! that two modules may use one name), and whether it reaches for memory past the functions that check bounds.

use std::fmt;

/// What a source has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// Which of the functions of layers it defines: `ETH`, `IP`, `UDP`, `TCP`, `STREAM`.
    pub layers: [bool; 5],
    /// Words of `STATE`; 0 without it.
    pub state_words: usize,
    /// Names that it declares outside of functions.
    pub names: Vec<String>,
    /// Macros that it defines.
    pub macros: Vec<String>,
    /// Whether it uses the hash table.
    pub has_table: bool,
    /// Whether it changes packets.
    pub changes_packets: bool,
    /// Whether it has later modules ignore flows.
    pub ignores: bool,
}

/// The functions of layers, in their order.
pub const FUNCTIONS: [&str; 5] =
    ["MODULE_ETH", "MODULE_IP", "MODULE_UDP", "MODULE_TCP", "MODULE_STREAM"];

/// What is wrong with a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The line, from 1.
    pub line: usize,
    /// Why, in words.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.line, self.message)
    }
}

/// Words by which a source would reach memory that nobody checks, or that only compilers and this system use.
const FORBIDDEN: [&str; 19] = [
    "GLOBAL", "__global", "global", "LOCAL", "__local", "local", "arena", "payload", "tables",
    "state", "asm", "__asm", "__asm__", "KERNEL", "__kernel", "kernel", "BARRIER", "barrier",
    "goto",
];

/// Words before a declaration that are not its name.
const KEYWORDS: [&str; 12] = [
    "FN", "CONSTANT", "PRIVATE", "STATE", "if", "for", "while", "return", "switch", "sizeof",
    "struct", "typedef",
];

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Sign(char),
}

/// Reads a source.
///
/// # Errors
/// It has no function of a layer, a `STATE` that is none, uses what it may not, or does not end what it begins.
pub fn read(text: &str) -> Result<Source, Problem> {
    let mut source = Source::default();
    let tokens = tokens(text, &mut source)?;
    let at = |line, message: String| Err(Problem { line, message });
    let mut depth = 0usize;
    for (i, (line, token, is_macro)) in tokens.iter().enumerate() {
        let next = tokens.get(i + 1).map(|(_, token, _)| token);
        match token {
            Token::Sign('(' | '{' | '[') => depth += 1,
            Token::Sign(')' | '}' | ']') => match depth.checked_sub(1) {
                Some(less) => depth = less,
                None => return at(*line, "a bracket closes that was not opened".into()),
            },
            Token::Sign(_) => {}
            Token::Word(word) => {
                if FORBIDDEN.contains(&word.as_str()) || word.starts_with("own_") {
                    let message = format!("`{word}` is not for modules");
                    return at(
                        *line,
                        format!("{message}: packets are reached by packet_byte and the like"),
                    );
                }
                source.see(word);
                if depth > 0 || *is_macro {
                    continue;
                }
                if let Some(layer) = FUNCTIONS.iter().position(|name| name == word) {
                    if std::mem::replace(&mut source.layers[layer], true) {
                        return at(*line, format!("`{word}` is there twice"));
                    }
                } else if word == "STATE" {
                    if source.state_words > 0 {
                        return at(*line, "`STATE` is there twice".into());
                    }
                    source.state_words = match state_words(&tokens[i + 1..]) {
                        Some(words @ 1..) => words,
                        _ => return at(*line, "`STATE` has `uint` members, such as STATE { uint packets; uint last[2]; };".into()),
                    };
                } else if !KEYWORDS.contains(&word.as_str()) {
                    let before = i.checked_sub(1).map(|i| &tokens[i].1);
                    let is_tag = matches!(before, Some(Token::Word(word)) if word == "struct");
                    let is_name = matches!(next, Some(Token::Sign('(' | '[' | '=' | ';')));
                    let is_number = word.starts_with(|c: char| c.is_ascii_digit());
                    if !is_number && (is_name || is_tag) && !source.names.contains(word) {
                        source.names.push(word.clone());
                    }
                }
            }
        }
    }
    let last = text.lines().count().max(1);
    if depth > 0 {
        return at(last, "a bracket is not closed".into());
    }
    if !source.layers.contains(&true) {
        let message = "no function of a layer: expected MODULE_ETH, MODULE_IP, MODULE_UDP, MODULE_TCP or MODULE_STREAM";
        return at(last, message.into());
    }
    Ok(source)
}

impl Source {
    fn see(&mut self, word: &str) {
        self.has_table |= word.starts_with("table_");
        self.changes_packets |=
            word.starts_with("packet_set_") || word.starts_with("packet_change_");
        self.ignores |= word == "IGNORE";
    }
}

/// Words of the members between the brackets of `STATE`; `None` if they are not what they should be.
fn state_words(tokens: &[(usize, Token, bool)]) -> Option<usize> {
    let mut rest = tokens.iter().map(|(_, token, _)| token);
    let mut words = 0usize;
    (rest.next()? == &Token::Sign('{')).then_some(())?;
    loop {
        match rest.next()? {
            Token::Sign('}') => return Some(words),
            Token::Word(word) if word == "uint" => {}
            _ => return None,
        }
        loop {
            matches!(rest.next()?, Token::Word(_)).then_some(())?;
            let mut sign = rest.next()?;
            let mut own = 1;
            if *sign == Token::Sign('[') {
                let Token::Word(number) = rest.next()? else { return None };
                own = number.trim_end_matches('u').parse::<u8>().ok()?.into();
                (rest.next()? == &Token::Sign(']')).then_some(())?;
                sign = rest.next()?;
            }
            words += own;
            match sign {
                Token::Sign(',') => {}
                Token::Sign(';') => break,
                _ => return None,
            }
        }
    }
}

/// The words and signs of a text with their lines, without comments and strings; macros go to `source`.
fn tokens(text: &str, source: &mut Source) -> Result<Vec<(usize, Token, bool)>, Problem> {
    if let Some(at) = text.bytes().position(|byte| !byte.is_ascii() || byte == 0) {
        let line = 1 + text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count();
        if !in_comment(text, at) {
            return Err(Problem { line, message: "a character that is not ASCII".into() });
        }
    }
    if text.contains("??") || text.contains("%:") {
        let line = 1 + text.lines().take_while(|l| !l.contains("??") && !l.contains("%:")).count();
        return Err(Problem { line, message: "a digraph or trigraph".into() });
    }
    if let Some(at) = ["\\\n", "\\\r"].iter().filter_map(|end| text.find(end)).min() {
        let message = "a line that goes on behind `\\`".into();
        let line = 1 + text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count();
        return Err(Problem { line, message });
    }
    let mut all = Vec::new();
    let mut rest = text;
    let mut line = 1;
    let mut is_macro = false;
    while let Some(first) = rest.chars().next() {
        let (len, token) = match first {
            '\n' => {
                line += 1;
                is_macro = false;
                (1, None)
            }
            '/' if rest.starts_with("//") => (rest.find('\n').unwrap_or(rest.len()), None),
            '/' if rest.starts_with("/*") => {
                let Some(end) = rest[2..].find("*/") else {
                    return Err(Problem { line, message: "a comment is not closed".into() });
                };
                line += rest[..end + 4].matches('\n').count();
                (end + 4, None)
            }
            '"' | '\'' => {
                return Err(Problem { line, message: "a text: modules have numbers only".into() });
            }
            '#' => {
                let end = rest.find('\n').unwrap_or(rest.len());
                let name = directive(&rest[..end]).map_err(|message| Problem { line, message })?;
                source.macros.extend(name);
                is_macro = true;
                // What a macro stands for is looked at like the rest.
                let skip = rest[..end].find("define").map_or(end, |at| at + "define".len());
                (skip, None)
            }
            c if c.is_ascii_alphanumeric() || c == '_' => {
                let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
                let len = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
                (len, Some(Token::Word(rest[..len].to_owned())))
            }
            c if c.is_whitespace() => (c.len_utf8(), None),
            c => (c.len_utf8(), Some(Token::Sign(c))),
        };
        all.extend(token.map(|token| (line, token, is_macro)));
        rest = &rest[len..];
    }
    Ok(all)
}

/// Whether a place of a text is in a comment, by what is before it.
fn in_comment(text: &str, at: usize) -> bool {
    let before = &text[..at];
    let line = &before[before.rfind('\n').map_or(0, |end| end + 1)..];
    line.contains("//") || before.rfind("/*") > before.rfind("*/")
}

/// The name that a `#define` gives; other directives are for whole files of the system.
fn directive(line: &str) -> Result<Option<String>, String> {
    let mut words = line[1..].split_whitespace();
    match words.next() {
        Some("define") => {
            let name = words.next().unwrap_or_default();
            let end = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let name = &name[..end.unwrap_or(name.len())];
            match name.is_empty() {
                true => Err("a macro without a name".into()),
                false => Ok(Some(name.to_owned())),
            }
        }
        Some(other) => Err(format!("`#{other}` is not for modules: they have `#define` only")),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        read(text).map(|source| format!("{source:?}")).unwrap_or_else(|problem| problem.to_string())
    }

    #[test]
    fn a_source_says_what_it_has() {
        let source = read(
            "// ü\n#define LIMIT 5u\nSTATE { uint packets, bytes; uint last[2]; };\nCONSTANT uint SIZES[2] = { 1u, 2u };\n\
             FN uint half(uint x)\n{\n    return x / 2u;\n}\nMODULE_IP(packet)\n{\n    packet_set_byte(packet, 3u, 0u);\n\
             return half(table_add(packet, 7u, 1u)) > LIMIT ? IGNORE : PASS;\n}\n",
        );
        let source = source.unwrap();
        assert_eq!(source.layers, [false, true, false, false, false]);
        assert_eq!(source.state_words, 4);
        assert_eq!(
            (source.names, source.macros),
            (vec!["SIZES".into(), "half".into()], vec!["LIMIT".into()])
        );
        assert!(source.has_table && source.changes_packets && source.ignores);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (text, expected) in [
            ("\n\n", "2: no function of a layer: expected MODULE_ETH"),
            ("MODULE_IP(p)\n{\n    arena[0] = 1;\n}\n", "3: `arena` is not for modules"),
            ("MODULE_IP(p)\n{\n    p->own_bytes[9] = 1;\n}\n", "3: `own_bytes` is not for modules"),
            ("#include <x>\nMODULE_IP(p) {}", "1: `#include` is not for modules"),
            ("STATE { float x; };\nMODULE_IP(p) {}", "1: `STATE` has `uint` members"),
            (
                "STATE { uint x; };\nSTATE { uint x; };\nMODULE_IP(p) {}",
                "2: `STATE` is there twice",
            ),
            ("MODULE_IP(p) {}\n}", "2: a bracket closes"),
            ("MODULE_IP(p) {\n", "1: a bracket is not closed"),
            ("/* MODULE_IP(p) {}\n", "1: a comment is not closed"),
            ("MODULE_IP(p) {}\nMODULE_IP(p) {}", "2: `MODULE_IP` is there twice"),
            ("#define A global\nMODULE_IP(p) {}", "1: `global` is not for modules"),
            ("MODULE_IP(p) { glo\\\nbal; }", "1: a line that goes on"),
            ("MODULE_IP(p) { \"x\"; }", "1: a text"),
            ("MODULE_IP(ä) {}", "1: a character that is not ASCII"),
        ] {
            assert!(error(text).starts_with(expected), "{text:?}: {}", error(text));
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[ -~\n/*#\\\\ä]{0,200}") {
            let _ = read(&text);
        }
    }
}
