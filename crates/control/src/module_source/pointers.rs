//! Pointers are those to whole things: nothing is added to one, and `*` reads by one that has a name.
//!
//! ```text
//!  refused:  *(p + n)   *p++   p += n   q = a + 1 (an array)   (&x + 1)->y   FLOW(packet) + 1   uint *p;   *f(x)   f(x)->y
//!  used:     *p   p->x   FLOW(packet)->x   &x   f(&x)   a[i]   PRIVATE uint *p = &x;
//! ```
//!
//! What is looked at are names that a function declares as pointers or arrays, `&` and `FLOW(packet)`. A pointer that a macro makes
//! of its arguments is not found.

use std::collections::BTreeSet;

use super::subscripts::{closing, opening};
use super::{At, Problem, Token};

/// Types that a declaration may begin with, beside those that end in `_t`, and structures.
const TYPES: [&str; 15] = [
    "uint", "int", "uchar", "char", "ushort", "short", "ulong", "long", "float", "double", "void",
    "bool", "unsigned", "signed", "size_t",
];

/// Words behind which an expression begins.
const BEFORE_VALUES: [&str; 4] = ["return", "else", "do", "case"];

/// Words before a bracket that is not that of a call.
const BEFORE_BRACKETS: [&str; 6] = ["return", "if", "while", "for", "switch", "case"];

/// Looks for pointers to something else.
///
/// # Errors
/// There is one.
pub(super) fn check(tokens: &[At]) -> Result<(), Problem> {
    let code: Vec<&At> = tokens.iter().filter(|at| !at.is_macro).collect();
    let mut all = Names::default();
    let mut functions = Vec::new();
    let (mut at, mut first) = (0, 0);
    while at < code.len() {
        if code[at].is(';') {
            all.declared(&code[first..at]);
            first = at + 1;
        } else if code[at].is('{') {
            let end = closing(&code, at).unwrap_or(code.len() - 1);
            if at > 0 && code[at - 1].is(')') {
                functions.push((first, at, end));
                // A function that returns a pointer.
                let head = code[first..at].iter().position(|at| at.is('('));
                all.declared(&code[first..head.map_or(at, |head| first + head)]);
                first = end + 1;
            } else {
                // A value, or members of a structure.
                all.declared(&code[first..at]);
                let mut own = Names::default();
                own.declared(&code[at..end]);
                all.members.extend(own.names);
                first = end + 1;
            }
            at = end;
        }
        at += 1;
    }
    for (first, open, end) in functions {
        let mut own = all.clone();
        own.declared(&code[first..open]);
        own.declared(&code[open..end]);
        let body = &code[open..=end];
        has_values(body)?;
        Uses { tokens: body, names: &own }.check()?;
    }
    let macros: Vec<&At> = tokens.iter().filter(|at| at.is_macro).collect();
    for one in macros.chunk_by(|a, b| a.line == b.line) {
        // What its arguments are is known to nobody here.
        Uses { tokens: one, names: &Names::default() }.check()?;
    }
    Ok(())
}

/// Names of pointers and arrays.
#[derive(Clone, Default)]
struct Names<'a> {
    names: BTreeSet<&'a str>,
    /// Those of members of structures.
    members: BTreeSet<&'a str>,
}

impl<'a> Names<'a> {
    fn declared(&mut self, tokens: &[&'a At]) {
        self.names.extend(pointers(tokens).map(|(_, name)| name));
        for (i, at) in tokens.iter().enumerate() {
            let is_array = tokens.get(i + 1).is_some_and(|next| next.is('['));
            if let Some(name) = word(at).filter(|_| is_array && !is_member(tokens, i)) {
                self.names.insert(name);
            }
        }
    }
}

fn word<'a>(at: &&'a At) -> Option<&'a str> {
    match &at.token {
        Token::Word(word) => Some(word),
        Token::Sign(_) => None,
    }
}

/// Whether the token at `at` is behind `.` or `->`.
fn is_member(tokens: &[&At], at: usize) -> bool {
    let is = |back: usize, sign| at.checked_sub(back).is_some_and(|at| tokens[at].is(sign));
    is(1, '.') || is(1, '>') && is(2, '-')
}

/// The pointers that are declared, with the places of their names: `uint *p`, and `*q` behind a comma.
fn pointers<'a>(tokens: &[&'a At]) -> impl Iterator<Item = (usize, &'a str)> {
    let mut is_declaration = false;
    tokens.iter().enumerate().filter_map(move |(i, at)| {
        if at.is(';') || at.is('{') || at.is('}') {
            is_declaration = false;
        }
        let name = word(at)?;
        let is_filler = |at: &&&At| {
            at.is('*')
                || word(at).is_some_and(|word| matches!(word, "const" | "volatile" | "PRIVATE"))
        };
        let behind = tokens[..i].iter().rev().take_while(is_filler).count();
        let has_star = tokens[i - behind..i].iter().any(|at| at.is('*'));
        let before = (i - behind).checked_sub(1).map(|at| tokens[at])?;
        let is_type = word(&before).is_some_and(|word| {
            let tag = (i - behind).checked_sub(2).map(|at| tokens[at]);
            TYPES.contains(&word)
                || word.ends_with("_t")
                || tag.and_then(|tag| self::word(&tag)).is_some_and(|tag| tag == "struct")
        });
        let is_pointer = has_star && (is_type || is_declaration && before.is(','));
        is_declaration |= is_pointer;
        is_pointer.then_some((i, name))
    })
}

/// Pointers of a body have values from the beginning on.
fn has_values(body: &[&At]) -> Result<(), Problem> {
    for (at, name) in pointers(body) {
        if body.get(at + 1).is_some_and(|next| next.is(';') || next.is(',')) {
            let message = format!("the pointer `{name}` has no value: write `{name} = &…`");
            return Err(body[at].problem(message));
        }
    }
    Ok(())
}

/// What is done with pointers in a body.
struct Uses<'a> {
    tokens: &'a [&'a At],
    names: &'a Names<'a>,
}

impl Uses<'_> {
    fn is(&self, at: usize, sign: char) -> bool {
        self.tokens.get(at).is_some_and(|at| at.is(sign))
    }

    fn is_behind(&self, at: usize, sign: char) -> bool {
        at.checked_sub(1).is_some_and(|before| self.is(before, sign))
    }

    fn is_arrow(&self, at: usize) -> bool {
        self.is(at, '-') && self.is(at + 1, '>')
    }

    /// Whether the token at `at` follows a value, so that it is an operator of two operands.
    fn is_behind_value(&self, at: usize) -> bool {
        match at.checked_sub(1).map(|before| &self.tokens[before].token) {
            Some(Token::Word(word)) => !BEFORE_VALUES.contains(&word.as_str()),
            Some(Token::Sign(sign)) => matches!(sign, ')' | ']'),
            None => false,
        }
    }

    /// Whether the bracket at `at` is that of a call.
    fn is_call(&self, at: usize) -> bool {
        let before = at.checked_sub(1).and_then(|before| word(&self.tokens[before]));
        before.is_some_and(|word| !BEFORE_BRACKETS.contains(&word))
    }

    fn check(&self) -> Result<(), Problem> {
        for (i, at) in self.tokens.iter().enumerate() {
            let refuse = |message: &str| {
                let message = format!("{message}: packets are reached by packet_byte and the like");
                Err(at.problem(message))
            };
            match &at.token {
                Token::Word(name) => {
                    let is_own = match is_member(self.tokens, i) {
                        true => self.names.members.contains(name.as_str()),
                        false => self.names.names.contains(name.as_str()),
                    };
                    let is_flow = name == "FLOW" && self.is(i + 1, '(');
                    if (is_own || is_flow) && self.is_computed(i) {
                        return refuse(&format!(
                            "arithmetic with `{name}`, which is a pointer or an array"
                        ));
                    }
                }
                Token::Sign('*') if !self.is_behind_value(i) => {
                    let next = self.tokens.get(i + 1);
                    let name = next.and_then(word);
                    let is_call = name.is_some_and(|name| name != "FLOW") && self.is(i + 2, '(');
                    let is_plain = name.is_some() || self.is(i + 1, '*') || self.is(i + 1, '&');
                    if !is_plain || is_call {
                        return refuse("`*` before something that is not the name of a pointer");
                    }
                }
                Token::Sign('&') if self.is_address(i) => {
                    if self.has_arithmetic(i, self.operand_end(i + 1)) {
                        return refuse("arithmetic with an address");
                    }
                }
                Token::Sign(')') if self.is_arrow(i + 1) => {
                    let open = opening(self.tokens, i).unwrap_or(i);
                    let called = open.checked_sub(1).and_then(|at| word(&self.tokens[at]));
                    if self.is_call(open) && called != Some("FLOW") {
                        return refuse("`->` behind a call");
                    }
                }
                Token::Sign(_) => {}
            }
        }
        Ok(())
    }

    /// Whether `&` at `at` takes an address.
    fn is_address(&self, at: usize) -> bool {
        !self.is(at + 1, '&') && !self.is_behind(at, '&') && !self.is_behind_value(at)
    }

    /// The last token of what begins at `at`: names, members, elements, calls, brackets.
    fn operand_end(&self, at: usize) -> usize {
        let mut end = match self.is(at, '(') {
            true => closing(self.tokens, at).unwrap_or(at),
            false => at,
        };
        loop {
            end = if self.is(end + 1, '[') || self.is(end + 1, '(') {
                match closing(self.tokens, end + 1) {
                    Some(close) => close,
                    None => return end,
                }
            } else if self.is(end + 1, '.') {
                end + 2
            } else if self.is_arrow(end + 1) {
                end + 3
            } else {
                return end;
            };
        }
    }

    /// Whether something is added to the pointer whose name is at `at`.
    fn is_computed(&self, at: usize) -> bool {
        let end = match self.is(at + 1, '(') {
            true => closing(self.tokens, at + 1).unwrap_or(at),
            false => at,
        };
        if self.is(end + 1, '[') || self.is_arrow(end + 1) || self.is(end + 1, '.') {
            return false;
        }
        // Where the whole begins, of a member.
        let mut first = at;
        while is_member(self.tokens, first) {
            let back = if self.is_behind(first, '.') { 2 } else { 3 };
            let Some(before) = first.checked_sub(back) else { break };
            first = match self.is(before, ')') || self.is(before, ']') {
                true => opening(self.tokens, before).map_or(before, |open| open.saturating_sub(1)),
                false => before,
            };
        }
        let steps = |sign| self.is(end + 1, sign) && self.is(end + 2, sign);
        if self.is_behind(first, '*') {
            return steps('+') || steps('-');
        }
        self.has_arithmetic(first, end)
    }

    /// Whether something is added to what is between these tokens, or to the brackets around it.
    fn has_arithmetic(&self, mut first: usize, mut end: usize) -> bool {
        loop {
            let is_last = self.is_behind(first, '(')
                || self.is_behind(first, ':')
                || self.is_behind(first, ',');
            let open = opening(self.tokens, end + 1).filter(|_| self.is(end + 1, ')') && is_last);
            match open {
                Some(open) if !self.is_call(open) => (first, end) = (open, end + 1),
                _ => break,
            }
        }
        let is_before = self.is_behind(first, '+') || self.is_behind(first, '-');
        let is_after = self.is(end + 1, '+') || self.is(end + 1, '-') && !self.is_arrow(end + 1);
        is_before || is_after
    }
}

#[cfg(test)]
mod tests {
    use super::super::read;

    fn error(body: &str) -> Option<String> {
        let text = format!(
            "CONSTANT uint TABLE[4] = {{ 1u, 2u, 3u, 4u }};\nSTATE {{ uint last[2]; uint n; }};\n\
             FN PRIVATE uint *same(PRIVATE uint *x) {{ return x; }}\n#define FIRST(s) ((s)->n)\n\
             FN uint f(PRIVATE uint *p, uint n)\n{{\n{body}\n    return PASS;\n}}\n\
             MODULE_IP(packet) {{ uint x = 1u; return f(&x, 2u); }}\n"
        );
        read(&text).err().map(|problem| format!("{}: {}", problem.line, problem.message))
    }

    #[test]
    fn computed_pointers_are_refused() {
        for body in [
            "*(p + n) = 1u;",
            "*p++ = 1u;",
            "p += n;",
            "++p;",
            "p--;",
            "PRIVATE uint *q = p + 1u;",
            "PRIVATE uint *q = n + p;",
            "uint a[4]; PRIVATE uint *q = a + n;",
            "uint a[4]; PRIVATE uint *q = &a[1] + n;",
            "uint x; PRIVATE uint *q = (&x) + n;",
            "uint x; *(&x + n) = 1u;",
            "uint q = *(TABLE + 9u);",
            "uint q = *same(p);",
            "uint q = same(p)->x;",
            "PRIVATE uint *q = same(p) + 1u;",
            "PRIVATE uint *q = (n ? p : p) + 1u;",
            "uint q = (FLOW(packet) + 1)->n;",
            "uint q = *(FLOW(packet)->last + 9u);",
            "PRIVATE uint *q; *q = 1u;",
            "PRIVATE uint *q = p, *r = p; r += 1;",
            "struct { PRIVATE uint *to; } s = { p }; s.to += 9;",
            "return *(p);",
            "uint q = n + (p - 1)->x;",
        ] {
            let error = error(body);
            assert!(
                error.as_ref().is_some_and(|error| error.starts_with("7: ")),
                "{body}: {error:?}"
            );
        }
        for text in [
            "#define AT(p, n) (*((p) + (n)))\nMODULE_IP(p) { return PASS; }\n",
            "#define AT(p) (FLOW(p) + 1)->x\nMODULE_IP(p) { return PASS; }\n",
        ] {
            assert!(read(text).unwrap_err().line == 1, "{text}");
        }
    }

    #[test]
    fn pointers_to_whole_things_are_used() {
        for body in [
            "*p = 1u + *p * n - 1u;",
            "n = *p + 1u; n = n - *p; (*p)++; ++*p; *p += 2u;",
            "uint a[4] = { n, *p }; a[1] = a[0] + n * a[2] - 1u;",
            "PRIVATE uint *q = n ? &n : p; *q = 1u;",
            "g(&n, n + 1u); g(p, -1); n = g(p, 1u) + n;",
            "FLOW(packet)->n = FLOW(packet)->last[1] + 1u; FLOW(packet)->n++;",
            "uint x = FIRST(FLOW(packet)) + n; n = n & x; n = n && x; n = (n) & (x + 1u);",
            "return (uint)*p + (n * *p);",
            "n = TABLE[n] + n; if (n) *p = 1u; else *p = 2u; return *p + n;",
            "uint last = 1u; last = last + 1u;",
            "PRIVATE uint *q = same(p); n = (p == q) + 1u;",
        ] {
            assert_eq!(error(body), None, "{body}");
        }
        // A number is called as a pointer is elsewhere.
        let text = "FN uint g(PRIVATE uint *n) { return *n; }\nMODULE_IP(p) { uint n = 1u; return g(&n) + n + 1u; }\n";
        assert!(read(text).is_ok(), "{:?}", read(text));
    }
}
