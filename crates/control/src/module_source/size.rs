//! How long a source is once its macros are replaced and its functions are where they are called.
//!
//! A compiler puts functions where they are called, as it replaces macros: a few lines, each of which names the one before twice, are
//! more than it could ever compile, and run for as long. So the length is counted here, before a compiler sees the source; and a
//! round of a loop counts once for each [`ROUND`] words and signs of the loop.
//!
//! ```text
//!  #define A(x) x + x          a macro: its own words and signs, and how often it names each parameter   (1; 2)
//!  FN uint f(uint n) { … }     a function: that of its body
//!  f(A(n))                     3 + 1 + 2 · 1, and the length of f
//! ```
//!
//! Names lead in no circle (`calls`). A macro with parameters has its brackets behind its name, all of them in one place: else what it
//! becomes is known only when it is replaced.

use std::collections::BTreeMap;

use super::calls::functions;
use super::subscripts::closing;
use super::{At, FUNCTIONS, Problem, Token};

/// The length of a function of a layer, or of what is outside of functions, at most.
const FUNCTION_MAX: u64 = 1 << 15;
const OUTSIDE_MAX: u64 = 1 << 20;

/// The length of a loop that counts as one round.
const ROUND: u64 = 128;

/// Macros, functions and brackets within each other, at most.
const DEPTH_MAX: usize = 200;

/// Parameters of a macro, at most.
const PARAMETERS_MAX: usize = 32;

/// How many words and signs this one is worth: what functions of the system do for it.
fn weight(token: &Token) -> u64 {
    match token {
        Token::Sign('/' | '%') => 32,
        Token::Sign(_) => 1,
        Token::Word(word) => match word.as_str() {
            "aes_expand_own" | "aes_encrypt_own" | "aes_decrypt_own" => 2048,
            "match_next" => 512,
            "packet_change_byte" => 128,
            "packet_be16" | "packet_be32" | "packet_src4" | "packet_dst4" => 16,
            word if word.starts_with("table_") => 512,
            word if word.starts_with("aes_") => 16,
            _ => 1,
        },
    }
}

/// A length: of its own, and how often it has each parameter.
type Length = Vec<u64>;

fn add(to: &mut Length, other: &[u64], times: u64) {
    for (to, own) in to.iter_mut().zip(other) {
        *to = to.saturating_add(own.saturating_mul(times));
    }
}

struct Macro<'a> {
    parameters: Vec<&'a str>,
    body: Vec<&'a At>,
    length: Option<Length>,
}

struct Function<'a> {
    at: &'a At,
    body: Vec<&'a At>,
    length: Option<u64>,
}

/// The lengths of a source.
pub(super) struct Sizes<'a> {
    tokens: &'a [At],
    /// Those that are not in macros.
    code: Vec<&'a At>,
    macros: BTreeMap<&'a str, Macro<'a>>,
    functions: BTreeMap<&'a str, Function<'a>>,
    /// Macros and functions that are being counted: they are not within themselves.
    open: Vec<&'a str>,
    /// Brackets that are being counted.
    depth: usize,
    /// The longest function.
    longest: u64,
}

impl<'a> Sizes<'a> {
    /// Counts.
    ///
    /// # Errors
    /// A function of a layer is too long, or its length is not known.
    pub(super) fn of(text: &str, tokens: &'a [At]) -> Result<Self, Problem> {
        let code: Vec<&At> = tokens.iter().filter(|at| !at.is_macro).collect();
        let mut own = Self {
            tokens,
            macros: macros(text, tokens)?,
            functions: BTreeMap::new(),
            code,
            open: Vec::new(),
            depth: 0,
            longest: 0,
        };
        let code = own.code.clone();
        own.outside(&code)?;
        // There were no functions.
        own.macros.values_mut().for_each(|own| own.length = None);
        for (name, body) in functions(&code) {
            let (at, body) = (body.at, body.tokens.to_vec());
            own.functions.insert(name, Function { at, body, length: None });
        }
        let names: Vec<&str> = own.functions.keys().copied().collect();
        for name in names {
            let (length, at) = (own.function(name)?, own.functions[name].at);
            own.longest = own.longest.max(length);
            if FUNCTIONS.contains(&name) && length > FUNCTION_MAX {
                return Err(at.problem(format!(
                    "`{name}` has more than {FUNCTION_MAX} words and signs, with the functions and macros that it uses"
                )));
            }
        }
        Ok(own)
    }

    /// What is outside of functions: values of arrays.
    fn outside(&mut self, code: &[&'a At]) -> Result<(), Problem> {
        let (mut at, mut length) = (0, 0u64);
        while at < code.len() {
            let is_body = code[at].is('{') && at > 0 && code[at - 1].is(')');
            let end = if is_body { closing(code, at).unwrap_or(code.len() - 1) } else { at };
            let begin = at;
            at = end + 1;
            if is_body {
                continue;
            }
            // A macro with its brackets.
            let name = matches!(&code[begin].token, Token::Word(word) if self.macros.contains_key(word.as_str()));
            if name && code.get(at).is_some_and(|next| next.is('(')) {
                at = closing(code, at).map_or(code.len(), |end| end + 1);
            }
            length = length.saturating_add(self.length(&code[begin..at], &[])?[0]);
            if length > OUTSIDE_MAX {
                return Err(code[begin].problem(format!(
                    "more than {OUTSIDE_MAX} words and signs outside of functions, with macros"
                )));
            }
        }
        Ok(())
    }

    fn function(&mut self, name: &'a str) -> Result<u64, Problem> {
        let Some(own) = self.functions.get(name) else { return Ok(1) };
        if let Some(length) = own.length {
            return Ok(length);
        }
        let (at, body) = (own.at, own.body.clone());
        self.begin(name, at)?;
        let length = self.length(&body, &[])?[0];
        self.open.pop();
        if let Some(own) = self.functions.get_mut(name) {
            own.length = Some(length);
        }
        Ok(length)
    }

    fn macro_length(&mut self, name: &'a str, at: &At) -> Result<Length, Problem> {
        let Some(own) = self.macros.get(name) else { return Ok(vec![1]) };
        if let Some(length) = &own.length {
            return Ok(length.clone());
        }
        let (parameters, body) = (own.parameters.clone(), own.body.clone());
        self.begin(name, at)?;
        let length = self.length(&body, &parameters)?;
        self.open.pop();
        if let Some(own) = self.macros.get_mut(name) {
            own.length = Some(length.clone());
        }
        Ok(length)
    }

    fn begin(&mut self, name: &'a str, at: &At) -> Result<(), Problem> {
        self.open.push(name);
        self.is_deep(at)
    }

    fn is_deep(&self, at: &At) -> Result<(), Problem> {
        match self.open.len() + self.depth > DEPTH_MAX {
            true => Err(at.problem(format!(
                "macros, functions and brackets are more than {DEPTH_MAX} deep within each other"
            ))),
            false => Ok(()),
        }
    }

    /// The length of tokens in which `parameters` may be.
    fn length(&mut self, tokens: &[&'a At], parameters: &[&str]) -> Result<Length, Problem> {
        let mut made = vec![0; 1 + parameters.len()];
        let mut i = 0;
        while let Some(at) = tokens.get(i) {
            i += 1;
            let Token::Word(word) = &at.token else {
                add(&mut made, &[weight(&at.token)], 1);
                continue;
            };
            if let Some(parameter) = parameters.iter().position(|own| own == word) {
                made[1 + parameter] = made[1 + parameter].saturating_add(1);
                continue;
            }
            let is_open = |own: &&str| own == word;
            let known = self.macros.get_key_value(word.as_str());
            let count = known.map(|(_, own)| own.parameters.len());
            match (known.map(|(name, _)| *name), count) {
                (Some(name), Some(0)) if !self.open.iter().any(is_open) => {
                    let length = self.macro_length(name, at)?;
                    add(&mut made, &length[..1], 1);
                }
                (Some(name), Some(count)) if !self.open.iter().any(is_open) => {
                    let end = tokens.get(i).filter(|next| next.is('('));
                    let Some(end) = end.and_then(|_| closing(tokens, i)) else {
                        return Err(at.problem(format!(
                            "the macro `{word}` without its brackets directly behind it"
                        )));
                    };
                    let own = self.macro_length(name, at)?;
                    add(&mut made, &own[..1], 1);
                    self.depth += 1;
                    self.is_deep(at)?;
                    for (n, given) in arguments(&tokens[i + 1..end]).enumerate() {
                        let times = own[1 + n.min(count - 1)];
                        let given = self.length(given, parameters)?;
                        add(&mut made, &given, times);
                    }
                    self.depth -= 1;
                    i = end + 1;
                }
                _ => {
                    let name = self.functions.get_key_value(word.as_str()).map(|(name, _)| *name);
                    let length = match name.filter(|_| !self.open.iter().any(is_open)) {
                        Some(name) => self.function(name)?.saturating_add(1),
                        None => weight(&at.token),
                    };
                    add(&mut made, &[length], 1);
                }
            }
        }
        Ok(made)
    }

    /// As how many rounds one of the loop at a token counts.
    pub(super) fn rounds_of_loop(&mut self, at: usize) -> Result<u64, Problem> {
        let tokens = self.tokens;
        let own = &tokens[at];
        // What a loop of a macro has in it is known where the macro is used.
        let length = match own.is_macro {
            true => self.longest,
            false => {
                let code = self.code.clone();
                let place = code.partition_point(|other| other.byte < own.byte);
                let (first, end) = extent(&code, place);
                self.length(&code[first..end], &[])?[0]
            }
        };
        Ok(1 + length.min(FUNCTION_MAX) / ROUND)
    }
}

/// The macros of a source.
fn macros<'a>(text: &str, tokens: &'a [At]) -> Result<BTreeMap<&'a str, Macro<'a>>, Problem> {
    let all: Vec<&At> = tokens.iter().filter(|at| at.is_macro).collect();
    let mut made = BTreeMap::new();
    for one in all.chunk_by(|a, b| a.line == b.line) {
        let [first, rest @ ..] = one else { continue };
        let Token::Word(name) = &first.token else { continue };
        let mut parameters = Vec::new();
        let mut body = rest;
        // Brackets directly behind the name.
        if text[first.byte + name.len()..].starts_with('(') {
            let end = rest.iter().position(|at| at.is(')')).unwrap_or(rest.len());
            let (given, behind) = rest.split_at(end);
            for at in given {
                match &at.token {
                    Token::Word(word) => parameters.push(word.as_str()),
                    Token::Sign('.') => {
                        return Err(at.problem("a macro with any number of parameters"));
                    }
                    Token::Sign(_) => {}
                }
            }
            if parameters.len() > PARAMETERS_MAX {
                let message = format!("a macro with more than {PARAMETERS_MAX} parameters");
                return Err(first.problem(message));
            }
            // It has brackets all the same.
            if parameters.is_empty() {
                parameters.push("");
            }
            body = behind.get(1..).unwrap_or_default();
        }
        let own = Macro { parameters, body: body.to_vec(), length: None };
        if made.insert(name.as_str(), own).is_some() {
            return Err(first.problem(format!("the macro `{name}` is there twice")));
        }
    }
    Ok(made)
}

/// What stands between the commas of brackets.
fn arguments<'a, 'b>(tokens: &'b [&'a At]) -> impl Iterator<Item = &'b [&'a At]> {
    let mut depth = 0usize;
    tokens.split(move |at| {
        match at.token {
            Token::Sign('(') => depth += 1,
            Token::Sign(')') => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && at.is(',')
    })
}

/// Where the loop at a token begins and ends.
fn extent(code: &[&At], at: usize) -> (usize, usize) {
    let head = closing(code, at + 1).unwrap_or(code.len() - 1);
    let is = |place: Option<usize>, word: &str| {
        place.is_some_and(|place| code[place].token == Token::Word(word.into()))
    };
    let ends = code.get(head + 1).is_some_and(|next| next.is(';'));
    let before = at.checked_sub(1);
    if ends
        && is(Some(at), "while")
        && before.is_some_and(|at| code[at].is('}') || code[at].is(';'))
    {
        // The end of `do`, or a loop with nothing in it.
        let open = before.filter(|at| code[*at].is('}')).and_then(|at| opening_of(code, at));
        let first = match open.and_then(|open| open.checked_sub(1)) {
            Some(place) if is(Some(place), "do") => Some(place),
            _ => (0..at).rev().find(|place| is(Some(*place), "do")),
        };
        return (first.unwrap_or(at), head + 1);
    }
    (at, statement_end(code, head + 1))
}

fn opening_of(code: &[&At], at: usize) -> Option<usize> {
    super::subscripts::opening(code, at)
}

/// Behind the statement that begins at a token.
fn statement_end(code: &[&At], mut at: usize) -> usize {
    let word = |at: usize| match code.get(at).map(|at| &at.token) {
        Some(Token::Word(word)) => word.as_str(),
        _ => "",
    };
    let behind = |at: usize| closing(code, at).map_or(code.len(), |end| end + 1);
    loop {
        // Heads, one behind the other.
        while matches!(word(at), "if" | "for" | "while" | "switch" | "else" | "do") {
            at = match word(at) {
                "else" | "do" => at + 1,
                _ => behind(at + 1),
            };
        }
        // Its own end.
        loop {
            match code.get(at).map(|at| &at.token) {
                None => return code.len(),
                Some(Token::Sign('(' | '[')) => at = behind(at),
                Some(Token::Sign('{')) => {
                    at = behind(at);
                    break;
                }
                Some(Token::Sign(';')) => {
                    at += 1;
                    break;
                }
                // The end of what is around it.
                Some(Token::Sign('}')) => return at,
                Some(_) => at += 1,
            }
        }
        if word(at) != "else" && word(at) != "while" {
            return at;
        }
        // `while` behind a statement is the end of `do`, or another loop, which is counted along.
    }
}

#[cfg(test)]
mod tests {
    use super::super::read;

    fn error(text: &str) -> String {
        read(text).map(|_| String::new()).unwrap_or_else(|problem| problem.to_string())
    }

    /// Lines of which each names the one before twice.
    fn doubled(of: impl Fn(usize) -> String, levels: usize) -> String {
        (1..=levels).map(|level| of(level) + "\n").collect()
    }

    #[test]
    fn trees_of_calls_and_macros_have_a_bound() {
        let calls =
            |i: usize| format!("FN uint f{i}(uint n) {{ return f{0}(n) + f{0}(n); }}", i - 1);
        let leaf = "FN uint f0(uint n) { return n + 1u; }\n";
        let of_calls = |levels: usize| {
            leaf.to_owned()
                + &doubled(calls, levels)
                + &format!("MODULE_IP(p) {{ return f{levels}(1u); }}\n")
        };
        assert_eq!(error(&of_calls(9)), "");
        let place = "32:1: `MODULE_IP` has more than 32768 words and signs";
        assert!(error(&of_calls(30)).starts_with(place), "{}", error(&of_calls(30)));
        assert!(error(&of_calls(13)).contains("words and signs"));

        let macros = |i: usize| format!("#define M{i} M{0} M{0}", i - 1);
        let of_macros = |levels: usize| {
            format!("#define M0 n++;\n{}", doubled(macros, levels))
                + &format!("MODULE_IP(p) {{ uint n = 1u; M{levels} return n; }}\n")
        };
        assert_eq!(error(&of_macros(9)), "");
        assert!(error(&of_macros(40)).contains("words and signs"));

        let given = |levels: usize| {
            let many = "T(".repeat(levels) + "n++;" + &")".repeat(levels);
            format!("#define T(x) x x\nMODULE_IP(p) {{ uint n = 1u; {many} return n; }}\n")
        };
        assert_eq!(error(&given(9)), "");
        assert!(error(&given(30)).contains("words and signs"));
        assert!(error(&given(100_000)).contains("deep within each other"));

        let outside = |levels: usize| {
            let of_values = |i: usize| format!("#define M{i} M{0}, M{0}", i - 1);
            format!("#define M0 1u\n{}", doubled(of_values, levels))
                + &format!(
                    "CONSTANT uint A[] = {{ M{levels} }};\nMODULE_IP(p) {{ return PASS; }}\n"
                )
        };
        assert_eq!(error(&outside(9)), "");
        assert!(error(&outside(30)).contains("outside of functions"));
    }

    #[test]
    fn a_macro_has_its_brackets() {
        for (text, expected) in [
            (
                "#define T(x) x x\n#define U T\nMODULE_IP(p) { U (p); }\n",
                "2:11: the macro `T` without",
            ),
            (
                "#define C(f) f(1u)\n#define T(x) x x\nMODULE_IP(p) { C(T); }\n",
                "3:18: the macro `T` without",
            ),
            (
                "#define T(...) PASS\nMODULE_IP(p) { return T(1u); }\n",
                "1:11: a macro with any number",
            ),
            (
                "#define T 1u\n#define T 2u\nMODULE_IP(p) { return T; }\n",
                "2:9: the macro `T` is there twice",
            ),
        ] {
            assert!(error(text).starts_with(expected), "{text}: {}", error(text));
        }
        assert_eq!(error("#define N() PASS\nMODULE_IP(p) { return N(); }\n"), "");
    }

    #[test]
    fn long_loops_count_as_several_rounds() {
        let rounds = |loops: &str| {
            let body = "x = x * 3u + 1u; ".repeat(40);
            let text = loops.replace("BODY", &body);
            let text = format!(
                "FN uint f(uint x) {{ {body} return x; }}\n#define M {body}\nMODULE_IP(p)\n{{\n    uint x = 1u;\n{text}\n    return PASS;\n}}\n"
            );
            let made = read(&text).unwrap().bounded;
            let ticks = made.split("own_tick").skip(1).map(|rest| {
                let several =
                    rest.strip_prefix("s(own_budget, ").and_then(|rest| rest.split('u').next());
                several.map_or(1, |several| several.parse::<u64>().unwrap())
            });
            ticks.collect::<Vec<_>>()
        };
        for (loops, expected) in [
            ("while (x != 1u) x *= 3u;", vec![1]),
            ("while (x != 1u) { BODY }", vec![3]),
            ("while (x != 1u) { M }", vec![3]),
            ("while (x != 1u) x = f(x);", vec![3]),
            ("while (f(x) != 1u) { }", vec![3]),
            ("for (; x != 1u;) if (x == 2u) x++; else { BODY }", vec![3]),
            ("for (; x != 1u;) for (; x < 2u;) { BODY } x++;", vec![3, 3]),
            ("do { BODY } while (x != 1u);", vec![3]),
            ("do { x++; } while (x != 1u); BODY", vec![1]),
            ("while (x != 1u) x++; BODY", vec![1]),
            ("while (x != 1u) { x /= 3u; x /= 7u; x /= 9u; x %= 11u; }", vec![2]),
            ("while (x != 1u) table_add(p, x, 1u);", vec![5]),
            ("while (x != 1u) { aes_pair_t a; a = aes_encrypt_own(k, a); }", vec![17]),
        ] {
            assert_eq!(rounds(loops), expected, "{loops}");
        }
    }
}
