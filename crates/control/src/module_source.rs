//! Sources of modules: which functions one defines, what it keeps for a flow, and what it may not use.
//!
//! A source is C in the kernel dialect, and a compiler has the last word. What is looked at here is what the compiler cannot
//! say: the functions of layers by their names, the words of `STATE`, the names that it declares (which are made its own, so
//! that two modules may use one name), and whether it reaches for memory past the functions that check bounds.
//!
//! A device cannot be stopped, so no loop may run for ever. The head of each loop gets a second condition, and each function of a
//! layer a number of rounds for all of its loops and those of the functions that it calls (`budget`); lines stay what they are:
//!
//! ```text
//!  FN uint f(uint n)               FN uint f(PRIVATE uint *own_budget, uint n)
//!  {                               {
//!      while (n != 1u)                 while ((n != 1u) && own_tick(own_budget))
//!  …                               …
//!      return f(3u);                   return f(own_budget, 3u);
//! ```
//!
//! The number comes from outside, where it is seen whether it was too small. A round of a long loop counts as several, and a source
//! that is too long once its macros and functions are in their places is refused (`size`): so the rounds bound the time, too.
//!
//! An index of an array is compared with the number of its elements (`subscripts`): one that is too large becomes 0, and the
//! budget ends, which counts as an error. Arithmetic with pointers is refused (`pointers`).
//!
//! Recursion (`calls`) and large arrays are refused: a device has little memory for each packet, and a stack that is too small
//! ends the program.

mod budget;
mod calls;
mod pointers;
mod size;
mod subscripts;

use std::borrow::Cow;
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
    /// Whether it looks for patterns.
    pub uses_patterns: bool,
    /// Whether it uses functions of AES.
    pub uses_aes: bool,
    /// Whether it changes packets.
    pub changes_packets: bool,
    /// Whether it looks at the time.
    pub uses_time: bool,
    /// Whether it has later modules ignore flows.
    pub ignores: bool,
    /// Whether it uses flows: a state, streams, ignoring, or what a packet says of its flow.
    pub uses_flows: bool,
    /// Its text with a bound for each loop and index.
    pub bounded: String,
    /// What that has more than the text.
    pub inserted: Vec<Inserted>,
}

/// Line and column of a text where something was put in, and how many columns.
pub type Inserted = (usize, usize, usize);

/// The functions of layers, in their order.
pub const FUNCTIONS: [&str; 5] =
    ["MODULE_ETH", "MODULE_IP", "MODULE_UDP", "MODULE_TCP", "MODULE_STREAM"];

/// What is wrong with a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1.
    pub column: usize,
    /// Why, in words.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.message)
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

/// A token and where it is.
#[derive(Clone, Debug)]
struct At {
    line: usize,
    column: usize,
    token: Token,
    /// It is in what a macro stands for.
    is_macro: bool,
    /// Where it begins in the text.
    byte: usize,
}

impl At {
    fn is(&self, sign: char) -> bool {
        self.token == Token::Sign(sign)
    }

    fn problem(&self, message: impl Into<String>) -> Problem {
        Problem { line: self.line, column: self.column, message: message.into() }
    }
}

/// What is wrong at a place of a text.
fn problem(text: &str, byte: usize, message: impl Into<String>) -> Problem {
    let before = &text.as_bytes()[..byte.min(text.len())];
    let begin = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
    Problem { line, column: 1 + before.len() - begin, message: message.into() }
}

/// Reads a source.
///
/// # Errors
/// It has no function of a layer, a `STATE` that is none, uses what it may not, or does not end what it begins.
pub fn read(text: &str) -> Result<Source, Problem> {
    let mut source = Source::default();
    let tokens = tokens(text, &mut source)?;
    let mut depth = 0usize;
    // Brackets that are open outside of the structure whose members these are.
    let mut structure = None;
    for (i, own) in tokens.iter().enumerate() {
        let At { token, is_macro, .. } = own;
        let at = |message: String| Err(own.problem(message));
        let next = tokens.get(i + 1).map(|next| &next.token);
        match token {
            Token::Sign('(') if casts_to_pointer(&tokens, i) => {
                let message =
                    "a cast to a pointer: packets are reached by packet_byte and the like";
                return at(message.into());
            }
            Token::Sign('[') if structure.is_some() && elements(next) > ELEMENTS_MAX => {
                let message = format!("an array of more than {ELEMENTS_MAX} elements");
                return at(message);
            }
            Token::Sign('(' | '{' | '[') => {
                if structure.is_none() && opens_structure(&tokens, i) {
                    structure = Some(depth);
                }
                depth += 1;
            }
            Token::Sign(')' | '}' | ']') => match depth.checked_sub(1) {
                Some(less) => {
                    depth = less;
                    structure = structure.filter(|outside| depth > *outside);
                }
                None => return at("a bracket closes that was not opened".into()),
            },
            Token::Sign(_) => {}
            Token::Word(word) => {
                if FORBIDDEN.contains(&word.as_str()) || word.starts_with("own_") {
                    let message = format!("`{word}` is not available in modules");
                    return at(format!(
                        "{message}: packets are reached by packet_byte and the like"
                    ));
                }
                source.see(word);
                if depth > 0 || *is_macro {
                    continue;
                }
                if let Some(layer) = FUNCTIONS.iter().position(|name| name == word) {
                    if std::mem::replace(&mut source.layers[layer], true) {
                        return at(format!("`{word}` is there twice"));
                    }
                } else if word == "STATE" {
                    if source.state_words > 0 {
                        return at("`STATE` is there twice".into());
                    }
                    source.state_words = match state_words(&tokens[i + 1..]) {
                        Some(words @ 1..) => words,
                        _ => return at("`STATE` has `uint` members, such as STATE { uint packets; uint last[2]; };".into()),
                    };
                } else if !KEYWORDS.contains(&word.as_str()) {
                    let before = i.checked_sub(1).map(|i| &tokens[i].token);
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
    let end = text.strip_suffix('\n').unwrap_or(text).len();
    let at_end = |message: &str| Err(problem(text, end, message));
    if depth > 0 {
        return at_end("a bracket is not closed");
    }
    if !source.layers.contains(&true) {
        let message = "no function of a layer: expected MODULE_ETH, MODULE_IP, MODULE_UDP, MODULE_TCP or MODULE_STREAM";
        return at_end(message);
    }
    calls::check(&tokens)?;
    pointers::check(&tokens)?;
    (source.bounded, source.inserted) = bounded(text, &tokens, &source.macros)?;
    Ok(source)
}

/// What is wrong with a word of a source, where it is first.
pub fn problem_of(text: &str, is_word: impl Fn(&str) -> bool, message: String) -> Problem {
    let tokens = tokens(text, &mut Source::default()).unwrap_or_default();
    let found = tokens.iter().find(|at| matches!(&at.token, Token::Word(word) if is_word(word)));
    match found {
        Some(at) => at.problem(message),
        None => Problem { line: 1, column: 1, message },
    }
}

/// Whether the bracket at a token begins the members of a structure: `struct {`, `struct name {`.
fn opens_structure(tokens: &[At], at: usize) -> bool {
    let before = tokens[at.saturating_sub(2)..at].iter();
    let is_tag =
        |at: &At| matches!(&at.token, Token::Word(word) if word == "struct" || word == "union");
    tokens[at].is('{') && before.clone().any(is_tag) && !before.clone().any(|at| at.is(')'))
}

/// The elements of an array that a structure may have; those of functions are looked at by the compiler.
const ELEMENTS_MAX: u64 = 4096;

/// How many elements a number behind a bracket asks for.
fn elements(number: Option<&Token>) -> u64 {
    let Some(Token::Word(word)) = number else { return 0 };
    let digits = word.to_ascii_lowercase();
    let digits = digits.trim_end_matches(['u', 'l']);
    let (digits, radix) = match (digits.strip_prefix("0x"), digits.strip_prefix('0')) {
        (Some(hexadecimal), _) => (hexadecimal, 16),
        (None, Some(octal)) if !octal.is_empty() => (octal, 8),
        _ => (digits, 10),
    };
    match digits.chars().all(|c| c.is_digit(radix)) && !digits.is_empty() {
        true => u64::from_str_radix(digits, radix).unwrap_or(u64::MAX),
        false => 0,
    }
}

/// Whether the bracket at a token is a cast to a pointer: `(PRIVATE uchar *)` behind anything but a name.
fn casts_to_pointer(tokens: &[At], at: usize) -> bool {
    let is_value = match at.checked_sub(1).map(|before| &tokens[before].token) {
        Some(Token::Word(word)) => !matches!(word.as_str(), "return" | "else" | "do" | "case"),
        _ => false,
    };
    let inside = &tokens[at + 1..];
    let words = inside.iter().take_while(|at| matches!(at.token, Token::Word(_))).count();
    let mut behind = inside[words..].iter();
    let is_pointer = words > 0 && behind.next().is_some_and(|at| at.is('*'));
    let is_end = |at: &At| match &at.token {
        Token::Sign(sign) => *sign != '*',
        Token::Word(word) => word != "const" && word != "volatile" && word != "PRIVATE",
    };
    !is_value && is_pointer && behind.find(|at| is_end(at)).is_some_and(|at| at.is(')'))
}

/// The text with a bound for each loop and index: see the module.
fn bounded(
    text: &str,
    tokens: &[At],
    macros: &[String],
) -> Result<(String, Vec<Inserted>), Problem> {
    // What is put in, by its place; brackets of one place in the order in which they were found.
    let mut put: Vec<(usize, Cow<'_, str>)> = subscripts::checked(text, tokens, macros)?;
    let functions = budget::functions(tokens, macros);
    budget::have_bodies(tokens, &functions)?;
    let mut sizes = size::Sizes::of(text, tokens)?;
    put.extend(budget::passed(tokens, &functions));
    // Whether the function at hand gets a budget from outside.
    let (mut depth, mut has_budget) = (0usize, false);
    for (i, at) in tokens.iter().enumerate() {
        match &at.token {
            Token::Sign('{') if depth == 0 && !at.is_macro => {
                let is_body = i.checked_sub(1).is_some_and(|before| tokens[before].is(')'));
                if is_body && !has_budget {
                    let message = "a function whose head is made by a macro, or whose name is one: write it out, under another name";
                    return Err(at.problem(message));
                }
                depth += 1;
            }
            Token::Sign('{') if !at.is_macro => depth += 1,
            Token::Sign('}') if !at.is_macro => {
                depth = depth.saturating_sub(1);
                has_budget &= depth > 0;
            }
            Token::Word(word) if depth == 0 && !at.is_macro => {
                has_budget |=
                    FUNCTIONS.contains(&word.as_str()) || functions.contains(word.as_str());
            }
            Token::Word(word) if word == "for" || word == "while" => {
                let (first, last) = condition(tokens, i).ok_or_else(|| {
                    at.problem(format!("the head of a loop `{word}` is not whole"))
                })?;
                let tick = match sizes.rounds_of_loop(i)? {
                    1 => "own_tick(own_budget)".to_owned(),
                    rounds => format!("own_ticks(own_budget, {rounds}u)"),
                };
                if first == last {
                    put.push((last, tick.into()));
                } else {
                    put.push((first, "(".into()));
                    put.push((last, format!(") && {tick}").into()));
                }
            }
            _ => {}
        }
    }
    put.sort_by_key(|(byte, _)| *byte);
    let (mut made, mut from) = (String::with_capacity(text.len() + 64 * put.len()), 0);
    let (mut inserted, mut line, mut begin) = (Vec::with_capacity(put.len()), 1, 0);
    for (byte, what) in put {
        let between = &text[from..byte];
        line += between.matches('\n').count();
        begin = between.rfind('\n').map_or(begin, |end| from + end + 1);
        made.push_str(between);
        made.push_str(&what);
        inserted.push((line, 1 + byte - begin, what.len()));
        from = byte;
    }
    made.push_str(&text[from..]);
    Ok((made, inserted))
}

/// Where the condition of the loop at a token begins and ends; both are one place if it has none.
fn condition(tokens: &[At], at: usize) -> Option<(usize, usize)> {
    let own = &tokens[at];
    let is_for = own.token == Token::Word("for".into());
    let is_along =
        |next: &&At| next.is_macro == own.is_macro && (!own.is_macro || next.line == own.line);
    let open = tokens.get(at + 1).filter(is_along).filter(|next| next.is('('))?;
    let (mut depth, mut signs) = (0usize, Vec::new());
    for (place, next) in tokens.iter().enumerate().skip(at + 1) {
        if !is_along(&next) {
            return None;
        }
        match next.token {
            Token::Sign('(') => depth += 1,
            Token::Sign(')') => depth -= 1,
            Token::Sign(';') if depth == 1 => signs.push((place, next.byte)),
            _ => {}
        }
        if depth > 0 {
            continue;
        }
        return match (is_for, &signs[..]) {
            (false, []) if place > at + 2 => Some((open.byte + 1, next.byte)),
            (true, [(first, begin), (second, end)]) if second - first > 1 => {
                Some((begin + 1, *end))
            }
            (true, [_, (_, end)]) => Some((*end, *end)),
            _ => None,
        };
    }
    None
}

impl Source {
    /// The column of the text for one of the text with bounds.
    pub fn column(&self, line: usize, column: usize) -> usize {
        let mut own = column;
        let mut more = 0;
        for (_, at, len) in self.inserted.iter().filter(|(own, ..)| *own == line) {
            if at + more > column {
                break;
            }
            // Within what was inserted it is the place of that.
            more += len;
            own = column.saturating_sub(more).max(*at);
        }
        own
    }

    fn see(&mut self, word: &str) {
        self.has_table |= word.starts_with("table_");
        self.uses_patterns |= word.starts_with("match_");
        self.uses_aes |= word.starts_with("aes_");
        self.uses_time |= word == "time_ns";
        self.changes_packets |=
            word.starts_with("packet_set_") || word.starts_with("packet_change_");
        self.ignores |= word == "IGNORE";
        let of_flow = ["IGNORE", "STATE", "FLOW", "MODULE_STREAM", "has_flow", "is_reply"];
        self.uses_flows |= of_flow.contains(&word);
    }
}

/// Words of the members between the brackets of `STATE`; `None` if they are not what they should be.
fn state_words(tokens: &[At]) -> Option<usize> {
    let mut rest = tokens.iter().map(|at| &at.token);
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
fn tokens(text: &str, source: &mut Source) -> Result<Vec<At>, Problem> {
    if let Some(at) = text.bytes().position(|byte| !byte.is_ascii() || byte == 0)
        && !in_comment(text, at)
    {
        return Err(problem(text, at, "a character that is not ASCII"));
    }
    if let Some(at) = ["??", "%:"].iter().filter_map(|signs| text.find(signs)).min() {
        return Err(problem(text, at, "a digraph or trigraph"));
    }
    if let Some(at) = ["\\\n", "\\\r"].iter().filter_map(|end| text.find(end)).min() {
        return Err(problem(text, at, "a line that continues after `\\`"));
    }
    let mut all = Vec::new();
    let mut rest = text;
    let (mut line, mut begin) = (1, 0);
    let mut is_macro = false;
    while let Some(first) = rest.chars().next() {
        let byte = text.len() - rest.len();
        let (len, token) = match first {
            '\n' => {
                (line, begin) = (line + 1, byte + 1);
                is_macro = false;
                (1, None)
            }
            '/' if rest.starts_with("//") => (rest.find('\n').unwrap_or(rest.len()), None),
            '/' if rest.starts_with("/*") => {
                let Some(end) = rest[2..].find("*/") else {
                    return Err(problem(text, byte, "a comment is not closed"));
                };
                let comment = &rest[..end + 4];
                line += comment.matches('\n').count();
                begin = comment.rfind('\n').map_or(begin, |end| byte + end + 1);
                (comment.len(), None)
            }
            '"' | '\'' => {
                return Err(problem(text, byte, "a string: modules have numbers only"));
            }
            '#' => {
                let end = rest.find('\n').unwrap_or(rest.len());
                let name =
                    directive(&rest[..end]).map_err(|message| problem(text, byte, message))?;
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
        let column = 1 + byte - begin;
        all.extend(token.map(|token| At { line, column, token, is_macro, byte }));
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
        Some(other) => Err(format!("`#{other}` is not available in modules, only `#define`")),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        let of = |problem: Problem| format!("{}: {}", problem.line, problem.message);
        read(text).map(|source| format!("{source:?}")).unwrap_or_else(of)
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
        assert!(source.has_table && source.changes_packets && source.ignores && !source.uses_time);
        assert!(read("MODULE_IP(p)\n{\n    return (uint)p->time_ns;\n}\n").unwrap().uses_time);
        let source =
            read("MODULE_IP(p)\n{\n    match_t m = match_begin(0u, 0u);\n    return PASS;\n}\n");
        assert!(source.unwrap().uses_patterns);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (text, expected) in [
            ("\n\n", "2: no function of a layer: expected MODULE_ETH"),
            ("MODULE_IP(p)\n{\n    arena[0] = 1;\n}\n", "3: `arena` is not available in modules"),
            (
                "MODULE_IP(p)\n{\n    p->own_bytes[9] = 1;\n}\n",
                "3: `own_bytes` is not available in modules",
            ),
            (
                "#include <x>\nMODULE_IP(p) {}",
                "1: `#include` is not available in modules, only `#define`",
            ),
            ("STATE { float x; };\nMODULE_IP(p) {}", "1: `STATE` has `uint` members"),
            (
                "STATE { uint x; };\nSTATE { uint x; };\nMODULE_IP(p) {}",
                "2: `STATE` is there twice",
            ),
            ("MODULE_IP(p) {}\n}", "2: a bracket closes"),
            ("MODULE_IP(p) {\n", "1: a bracket is not closed"),
            ("/* MODULE_IP(p) {}\n", "1: a comment is not closed"),
            ("MODULE_IP(p) {}\nMODULE_IP(p) {}", "2: `MODULE_IP` is there twice"),
            ("#define A global\nMODULE_IP(p) {}", "1: `global` is not available in modules"),
            ("MODULE_IP(p) { glo\\\nbal; }", "1: a line that continues"),
            ("MODULE_IP(p) { \"x\"; }", "1: a string"),
            ("MODULE_IP(p)\n{\n    *(PRIVATE const uint *)p = 1u;\n}\n", "3: a cast to a pointer"),
            ("MODULE_IP(p) {\n    f(1u, (uchar *const)p);\n}\n", "2: a cast to a pointer"),
            ("#define AT(x) return (uint **)(x)\nMODULE_IP(p) {}", "1: a cast to a pointer"),
            ("MODULE_IP(ä) {}", "1: a character that is not ASCII"),
            (
                "FN uint f(uint n)\n{\n    return n == 0 ? 1 : f(n - 1);\n}\nMODULE_IP(p) { return f(3); }\n",
                "1: `f` calls itself: modules have no recursion",
            ),
            (
                "FN uint g(uint n);\nFN uint f(uint n) { return g(n); }\nFN uint g(uint n) { return f(n); }\nMODULE_IP(p) { return f(1); }",
                "2: `f`, `g` call each other",
            ),
            (
                "#define AGAIN(n) f(n)\nFN uint f(uint n) { return AGAIN(n); }\nMODULE_IP(p) {}",
                "2: `AGAIN`, `f` call each other",
            ),
            (
                "#define CALL(g) g(1)\nFN uint f(uint n) { return CALL(f); }\nMODULE_IP(p) {}",
                "2: `f` calls itself",
            ),
            ("MODULE_IP(p)\n{\n    MODULE_IP(p);\n}", "1: `MODULE_IP` calls itself"),
            (
                "struct big { uint a[4097]; };\nMODULE_IP(p) {}",
                "1: an array of more than 4096 elements",
            ),
            (
                "typedef struct {\n    uint a[2][0x10000u];\n} t;\nMODULE_IP(p) {}",
                "2: an array of more than 4096 elements",
            ),
        ] {
            assert!(error(text).starts_with(expected), "{text:?}: {}", error(text));
        }
    }

    #[test]
    fn what_looks_like_recursion_is_none() {
        for text in [
            "FN uint count(uint n) { uint count = n; return count; }\nMODULE_IP(p) { return count(1); }\n",
            "FN uint half(uint x) { return x / 2u; }\n#define twice(x) half((x) + 1u)\nMODULE_IP(p) { return twice(1u); }\n",
            "FN uint f(uint n) { return n; }\nFN uint g(uint n) { return f(f(n)); }\nMODULE_IP(p) { return g(f(1)); }\n",
            "CONSTANT uint A[8192] = { 1u };\nMODULE_IP(p) { return A[8191u]; }\n",
        ] {
            assert!(read(text).is_ok(), "{text}: {}", error(text));
        }
    }

    #[test]
    fn what_looks_like_a_cast_to_a_pointer_is_none() {
        for text in [
            "FN uint f(PRIVATE uint *);\nFN uint f(PRIVATE uint *p) { return *p; }\nMODULE_IP(p) { return PASS; }\n",
            "FN uint f(PRIVATE packet_t *p) { return (uint)p->len; }\nMODULE_IP(p) { return f(p); }\n",
            "MODULE_IP(p) { uint a = 2u; return (a * (3u)) > (p->len * a) ? DROP : PASS; }\n",
        ] {
            assert!(read(text).is_ok(), "{text}: {}", error(text));
        }
    }

    #[test]
    fn places_are_those_of_the_text() {
        let text = "FN uint f(uint n) { return n; }\nMODULE_IP(p)\n{\n    uint a[3];\n    while (f(1u) != a[2]) a[f(0u)] = zz;\n    return PASS;\n}\n";
        let source = read(text).unwrap();
        let (bounded, own): (Vec<&str>, Vec<&str>) =
            (source.bounded.lines().collect(), text.lines().collect());
        for (line, word) in
            [(1, "return"), (5, "while"), (5, "1u"), (5, "!="), (5, "0u"), (5, "zz")]
        {
            let column = |text: &str| 1 + text.rfind(word).unwrap();
            let made = column(bounded[line - 1]);
            assert_eq!(source.column(line, made), column(own[line - 1]), "{word}");
        }
        // Of what was put in, the place where that is.
        let at = 1 + bounded[4].find("own_tick").unwrap();
        assert_eq!(source.column(5, at), 1 + own[4].find(") a[").unwrap());
        assert_eq!(source.column(6, 5), 5);
        let problem = problem_of(text, |word| word == "a", "no".into());
        assert_eq!(problem.to_string(), "4:10: no");
        let missing = "FN uint f(uint n);\nMODULE_IP(p) { return f(1u); }\n";
        assert_eq!(read(missing).unwrap_err().to_string(), "1:9: `f` has no body");
    }

    #[test]
    fn loops_have_a_bound() {
        let bounded = |text: &str| read(text).map(|source| source.bounded);
        let text = "FN uint f(uint n)\n{\n    while (n > (1u))\n        n /= 2u;\n    for (;;) { }\n    return n;\n}\n\
                    MODULE_IP(p)\n{\n    for (uint i = 0u, j = f(2u); i < 3u, j; i++)\n        do { i++; } while (0);\n    return PASS;\n}\n\
                    FN uint g(void) { return 0; }\n";
        let expected = text
            .replace("f(uint n)", "f(PRIVATE uint *own_budget, uint n)")
            .replace("f(2u)", "f(own_budget, 2u)")
            .replace("while (n > (1u))", "while ((n > (1u)) && own_tick(own_budget))")
            .replace("for (;;)", "for (;own_tick(own_budget);)")
            .replace("; i < 3u, j; ", ";( i < 3u, j) && own_tick(own_budget); ")
            .replace("while (0)", "while ((0) && own_tick(own_budget))")
            .replace("g(void)", "g(PRIVATE uint *own_budget /*void*/)");
        assert_eq!(bounded(text).unwrap(), expected);
        let own_macro =
            "#define EACH for (uint i = 0u; i < 9u; i++)\nMODULE_IP(p) { EACH { } return PASS; }\n";
        let wanted = own_macro.replace("; i < 9u;", ";( i < 9u) && own_tick(own_budget);");
        assert_eq!(bounded(own_macro).unwrap(), wanted);
        assert!(
            bounded("#define LOOP while (\nMODULE_IP(p) { LOOP 1) { } return PASS; }\n").is_err()
        );
        assert!(
            bounded("#define W(a) wh##a\nMODULE_IP(p) { W(ile) (1) { } return PASS; }\n").is_err()
        );
        for text in [
            "#define LOOP while\nMODULE_IP(p) { LOOP (1) { } return PASS; }\n",
            "MODULE_IP(p) { for (uint i = 0u; i < 1u) { } return PASS; }\n",
        ] {
            let problem = bounded(text).unwrap_err();
            assert!(problem.message.contains("is not whole"), "{problem}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[ -~\n/*#\\\\ä]{0,200}") {
            let _ = read(&text);
        }
    }
}
