//! Indices of arrays with a bound.
//!
//! ```text
//!  sizes[i] = 1u;       sizes[own_at((i), OWN_COUNT(sizes), own_budget)] = 1u;
//!  uint sizes[4];       uint sizes[4]; OWN_AT_MOST_4096_BYTES(sizes);      it declares an array; a large one does not compile
//! ```
//!
//! A compiler knows the number of elements, but not what is a declaration before it has seen the text; that is found here, by the
//! first tokens of a statement. What cannot be told apart is refused. Within a macro an index is one of an expression, unless
//! the macro begins with a declaration.

use std::borrow::Cow;

use super::{At, Problem, Token};

/// Words that begin statements and no declarations.
const STATEMENTS: [&str; 11] = [
    "return", "else", "do", "case", "default", "if", "while", "for", "switch", "break", "continue",
];

/// What to put into the text, by its place.
///
/// # Errors
/// An index of something that is no array, or whose array cannot be written twice.
pub(super) fn checked(
    text: &str,
    tokens: &[At],
    macros: &[String],
) -> Result<Vec<(usize, Cow<'static, str>)>, Problem> {
    let mut scan = Scan { text, macros, put: Vec::new() };
    let code: Vec<&At> = tokens.iter().filter(|at| !at.is_macro).collect();
    scan.code(&code)?;
    let of_macros: Vec<&At> = tokens.iter().filter(|at| at.is_macro).collect();
    for one in of_macros.chunk_by(|a, b| a.line == b.line) {
        scan.statements(body(text, one), true)?;
    }
    Ok(scan.put)
}

/// What a macro stands for: its tokens behind its name, and behind its parameters where a bracket follows the name at once.
fn body<'a, 'b>(text: &str, tokens: &'b [&'a At]) -> &'b [&'a At] {
    let [name, rest @ ..] = tokens else { return tokens };
    let len = match &name.token {
        Token::Word(word) => word.len(),
        Token::Sign(_) => 1,
    };
    if text[name.byte + len..].starts_with('(') {
        let end = rest.iter().position(|at| at.is(')')).map_or(rest.len(), |end| end + 1);
        return &rest[end..];
    }
    rest
}

struct Scan<'a> {
    text: &'a str,
    macros: &'a [String],
    put: Vec<(usize, Cow<'static, str>)>,
}

impl Scan<'_> {
    /// The bodies of functions, the first brackets behind parameters.
    fn code(&mut self, tokens: &[&At]) -> Result<(), Problem> {
        let mut at = 0;
        while at < tokens.len() {
            let is_body = tokens[at].is('{') && at > 0 && tokens[at - 1].is(')');
            let end = match tokens[at].token {
                Token::Sign('{') => closing(tokens, at).unwrap_or(tokens.len() - 1),
                _ => at,
            };
            if is_body {
                self.statements(&tokens[at + 1..end], false)?;
            }
            at = end + 1;
        }
        Ok(())
    }

    fn statements(&mut self, tokens: &[&At], is_macro: bool) -> Result<(), Problem> {
        let mut own = Statement::begin(tokens, 0, is_macro);
        // Arrays of the statement, and brackets of structures that are open.
        let (mut declared, mut structures): (Vec<&str>, usize) = (Vec::new(), 0);
        for (i, at) in tokens.iter().enumerate() {
            let Token::Sign(sign) = at.token else {
                // The head of a loop begins with a statement of its own.
                if at.token == Token::Word("for".into())
                    && tokens.get(i + 1).is_some_and(|next| next.is('('))
                {
                    own = Statement { opens: Some(i + 1), ..own };
                }
                continue;
            };
            match sign {
                '(' if own.opens == Some(i) => {
                    own = Statement { in_head: true, ..Statement::begin(tokens, i + 1, is_macro) };
                }
                ';' => {
                    if !own.in_head && !is_macro && structures == 0 {
                        let small =
                            declared.iter().map(|name| format!(" OWN_AT_MOST_4096_BYTES({name});"));
                        self.put.push((at.byte + 1, small.collect::<String>().into()));
                    }
                    declared.clear();
                    let in_head = own.in_head;
                    own = Statement::begin(tokens, i + 1, is_macro);
                    (own.in_head, own.is_declaration) = (in_head, own.is_declaration && !in_head);
                }
                '{' | '}' if !(own.is_declaration && own.is_value) => {
                    structures = match (sign, structures) {
                        ('{', 0) if !is_structure(&tokens[own.first.min(i)..i]) => 0,
                        ('{', open) => open + 1,
                        (_, open) => open.saturating_sub(1),
                    };
                    own = Statement::begin(tokens, i + 1, is_macro);
                }
                '=' if own.nest == 0 => own.is_value = true,
                ',' if own.nest == 0 => own.is_value = false,
                '[' => {
                    let is_declarator = own.is_declaration && !own.is_value && own.nest == 0;
                    if is_declarator {
                        self.declares(tokens[i], &tokens[own.first].token)?;
                        if let Some(Token::Word(name)) = i.checked_sub(1).map(|i| &tokens[i].token)
                        {
                            declared.push(name);
                        }
                    } else if !own.names_element(tokens, i) {
                        self.index(tokens, i)?;
                    }
                    own.nest += 1;
                }
                '(' | '{' => own.nest += 1,
                ')' if own.nest == 0 => own = Statement::begin(tokens, i + 1, is_macro),
                ')' | ']' | '}' => own.nest = own.nest.saturating_sub(1),
                _ => {}
            }
        }
        Ok(())
    }

    /// A macro may stand for anything: what follows it is no declaration then.
    fn declares(&self, at: &At, first: &Token) -> Result<(), Problem> {
        match first {
            Token::Word(word) if self.macros.contains(word) => {
                Err(at
                    .problem(format!("brackets after `{word}`, which is a macro: write the type")))
            }
            _ => Ok(()),
        }
    }

    /// Gives the index behind the bracket at `at` a bound.
    fn index(&mut self, tokens: &[&At], at: usize) -> Result<(), Problem> {
        let refuse = |message: &str| Err(tokens[at].problem(format!("an index {message}")));
        let Some(first) = base(tokens, at) else {
            return refuse("of something that is not a named array");
        };
        let Some(end) = closing(tokens, at) else { return refuse("whose bracket is not closed") };
        let (from, open) = (tokens[first].byte, tokens[at].byte);
        let array = &self.text[from..open];
        if array.contains("++") || array.contains("--") || array.contains('=') {
            return refuse("of an array that is chosen by `++`, `--` or `=`: do that before");
        }
        let array = array.split('\n').map(|line| line.split("//").next().unwrap_or_default());
        let array: String = array.collect::<Vec<_>>().join(" ");
        self.put.push((open + 1, "own_at((".into()));
        let close = format!("), OWN_COUNT({}), own_budget)", array.trim());
        self.put.push((tokens[end].byte, close.into()));
        Ok(())
    }
}

/// Whether a bracket behind these tokens of a statement begins the members of a structure.
fn is_structure(tokens: &[&At]) -> bool {
    let word =
        |at: &&&At| matches!(&at.token, Token::Word(word) if word == "struct" || word == "union");
    tokens.iter().any(|at| word(&at)) && !tokens.iter().any(|at| at.is('('))
}

/// What is known of a statement.
struct Statement {
    /// Its first token.
    first: usize,
    is_declaration: bool,
    /// What a variable begins with: between `=` and `,`.
    is_value: bool,
    /// Brackets that are open.
    nest: usize,
    /// It is in the head of `for`.
    in_head: bool,
    /// The bracket of such a head.
    opens: Option<usize>,
}

impl Statement {
    fn begin(tokens: &[&At], first: usize, is_macro: bool) -> Self {
        let word = |at: usize| match tokens.get(at).map(|at| &at.token) {
            Some(Token::Word(word)) => Some(word.as_str()),
            _ => None,
        };
        let is_type = word(first).is_some_and(|word| !STATEMENTS.contains(&word));
        let is_pointer = !is_macro && tokens.get(first + 1).is_some_and(|next| next.is('*'));
        let is_declaration = is_type && (word(first + 1).is_some() || is_pointer);
        let (is_value, nest, in_head, opens) = (false, 0, false, None);
        Self { first, is_declaration, is_value, nest, in_head, opens }
    }

    /// Whether the bracket at `at` says which element a value is of: `{ [3] = 1u }`.
    fn names_element(&self, tokens: &[&At], at: usize) -> bool {
        let before = at.checked_sub(1).map(|before| tokens[before]);
        self.is_value && self.nest > 0 && before.is_some_and(|own| own.is('{') || own.is(','))
    }
}

/// The first token of what a bracket at `at` is an index of: names, members, elements, `FLOW(packet)`, or brackets.
fn base(tokens: &[&At], at: usize) -> Option<usize> {
    let mut last = at.checked_sub(1)?;
    loop {
        match &tokens[last].token {
            Token::Word(word) if word.starts_with(|c: char| c.is_ascii_digit()) => return None,
            Token::Word(_) => {}
            Token::Sign(']') => {
                last = opening(tokens, last)?.checked_sub(1)?;
                continue;
            }
            Token::Sign(')') => {
                last = opening(tokens, last)?;
                match last.checked_sub(1).map(|before| &tokens[before].token) {
                    Some(Token::Word(word)) if word == "FLOW" => last -= 1,
                    // Of what is in a condition or behind a `return`, not of what a function returns.
                    Some(Token::Word(word)) if STATEMENTS.contains(&word.as_str()) => {
                        return Some(last);
                    }
                    Some(Token::Word(_)) => return None,
                    _ => return Some(last),
                }
            }
            Token::Sign(_) => return None,
        }
        let is = |back: usize, sign| last.checked_sub(back).is_some_and(|at| tokens[at].is(sign));
        last = match (is(1, '.'), is(1, '>') && is(2, '-')) {
            (true, _) => last.checked_sub(2)?,
            (_, true) => last.checked_sub(3)?,
            _ => return Some(last),
        };
    }
}

/// The bracket that closes the one at `at`.
pub(super) fn closing(tokens: &[&At], at: usize) -> Option<usize> {
    matching(tokens.iter().enumerate().skip(at), ['(', '[', '{'])
}

/// The bracket that opens what the one at `at` closes.
pub(super) fn opening(tokens: &[&At], at: usize) -> Option<usize> {
    matching(tokens.iter().enumerate().take(at + 1).rev(), [')', ']', '}'])
}

/// Where as many brackets have ended as begin, from a bracket on.
fn matching<'a>(
    tokens: impl Iterator<Item = (usize, &'a &'a At)>,
    begin: [char; 3],
) -> Option<usize> {
    let mut depth = 0usize;
    for (place, at) in tokens {
        let Token::Sign(sign @ ('(' | '[' | '{' | ')' | ']' | '}')) = at.token else { continue };
        depth = if begin.contains(&sign) { depth + 1 } else { depth.checked_sub(1)? };
        if depth == 0 {
            return Some(place);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::read;

    /// The body of a function of a layer, and what it becomes.
    fn bounded(body: &str) -> Result<String, String> {
        let text = format!("MODULE_IP(p)\n{{\n{body}\n    return PASS;\n}}\n");
        let made = read(&text).map_err(|problem| problem.to_string())?.bounded;
        Ok(made.trim_start_matches("MODULE_IP(p)\n{\n").replace("\n    return PASS;\n}\n", ""))
    }

    fn at(array: &str, index: &str) -> String {
        format!("{array}[own_at(({index}), OWN_COUNT({array}), own_budget)]")
    }

    #[test]
    fn indices_of_expressions_have_a_bound() {
        for (array, index) in
            [("a", "i"), ("FLOW(p)->last", "p->is_reply"), ("s.of.it", "3u"), ("(a)", "i, j")]
        {
            let (own, checked) = (format!("{array}[{index}]"), at(array, index));
            for around in [
                "X = 1u;",
                "uint b = X;",
                "b = f(1u, X) * X;",
                "return X;",
                "if (b) X += 1u; else X = 2u;",
                "uint b[2] = { X, 1u }, c = X;",
                "do X++; while (b);",
                "b = c ? X : -X;",
                "case 1u: X = 2u;",
                "f(&X);",
            ] {
                let made = bounded(&around.replace('X', &own)).unwrap();
                let made = made.replace("(b) && own_tick(own_budget)", "b");
                let made = made.replace(" OWN_AT_MOST_4096_BYTES(b);", "");
                assert_eq!(made, around.replace('X', &checked), "{own}");
            }
        }
        let made = bounded("for (uint i = a[1]; a[i] * b[i]; c[i]++) d[i] = 1u;").unwrap();
        let [one, two, three, four, five] =
            [("a", "1"), ("a", "i"), ("b", "i"), ("c", "i"), ("d", "i")].map(|(a, i)| at(a, i));
        assert_eq!(
            made,
            format!(
                "for (uint i = {one};( {two} * {three}) && own_tick(own_budget); {four}++) {five} = 1u;"
            )
        );
        assert_eq!(
            bounded("a[b[i]] = 1u;").unwrap(),
            format!(
                "a[own_at((b[own_at((i), OWN_COUNT(b), own_budget)]), OWN_COUNT(a), own_budget)] = 1u;"
            )
        );
    }

    #[test]
    fn declarations_stay() {
        for body in [
            "uint a[4];",
            "uint a[4], b[N] = { 1u };",
            "PRIVATE uint *a[2];",
            "typedef struct { uint a[4]; } t;",
            "uint b[2] = { [1] = 2u, [0] = 3u };",
            "for (uint a[2] = { 1u }; p; ) { uint c[3]; }",
        ] {
            let made = bounded(body).unwrap();
            assert!(!made.contains("own_at"), "{made}");
            let small = made.contains("OWN_AT_MOST_4096_BYTES");
            assert_eq!(small, !body.starts_with("typedef"), "{made}");
        }
        for (body, expected) in [
            (
                "uint a[4], b[N] = { 1u };",
                "uint a[4], b[N] = { 1u }; OWN_AT_MOST_4096_BYTES(a); OWN_AT_MOST_4096_BYTES(b);",
            ),
            (
                "struct { uint a[4]; } s; uint b[2][3];",
                "struct { uint a[4]; } s; uint b[2][3]; OWN_AT_MOST_4096_BYTES(b);",
            ),
            ("{ uint a[4]; }", "{ uint a[4]; OWN_AT_MOST_4096_BYTES(a); }"),
        ] {
            assert_eq!(bounded(body).unwrap(), expected);
        }
        let text = "CONSTANT uint A[2] = { 1u, 2u };\nSTATE { uint last[2]; };\nMODULE_IP(p) { return PASS; }\n";
        assert_eq!(read(text).unwrap().bounded, text);
    }

    #[test]
    fn macros_have_bounds() {
        let text = "#define LAST(p) FLOW(p)->last[p->port]\n#define TWO uint b[2]\nMODULE_IP(p) { TWO; return LAST(p); }\n";
        let expected = text.replace("FLOW(p)->last[p->port]", &at("FLOW(p)->last", "p->port"));
        assert_eq!(read(text).unwrap().bounded, expected);
    }

    #[test]
    fn what_cannot_be_told_apart_is_refused() {
        for (body, expected) in [
            ("f(p)[i] = 1u;", "not a named array"),
            ("3u[a] = 1u;", "not a named array"),
            ("a[i++][j] = 1u;", "do that before"),
        ] {
            let error = bounded(body).unwrap_err();
            assert!(error.contains(expected), "{body}: {error}");
        }
        for (text, expected) in [
            ("#define T return\nMODULE_IP(p) { T a[9]; }\n", "2: brackets after `T`"),
            ("#define I [9]\nMODULE_IP(p) { return a I; }\n", "1: an index of something"),
        ] {
            let problem = read(text).unwrap_err();
            let error = format!("{}: {}", problem.line, problem.message);
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }
}
