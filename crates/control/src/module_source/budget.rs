//! One number of rounds for a function of a layer and all that it calls: a parameter goes from call to call.
//!
//! A loop in a loop that calls a function with a loop would otherwise go through the product of their bounds.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::{At, FUNCTIONS, KEYWORDS, Problem, Token, calls};

/// Functions of the system whose loops are as long as what they are given.
const OF_SYSTEM: [&str; 1] = ["match_next"];

const PARAMETER: &str = "PRIVATE uint *own_budget";

fn word(at: Option<&At>) -> Option<&str> {
    match at.map(|at| &at.token) {
        Some(Token::Word(word)) => Some(word),
        _ => None,
    }
}

/// Whether the token at `at` is a name with a bracket behind it.
fn is_call(tokens: &[At], at: usize) -> bool {
    let own = &tokens[at];
    let is_along = |next: &&At| next.is_macro == own.is_macro;
    tokens.get(at + 1).filter(is_along).is_some_and(|next| next.is('('))
}

/// The functions that a source declares, other than by a macro and those of layers.
pub(super) fn functions<'a>(tokens: &'a [At], macros: &[String]) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    for (i, name) in outside(tokens) {
        let is_own = !FUNCTIONS.contains(&name)
            && !KEYWORDS.contains(&name)
            && !name.starts_with("__")
            && !macros.iter().any(|own| own == name);
        // Behind its type.
        let before = i.checked_sub(1).map(|before| &tokens[before]);
        let is_behind_type = before
            .is_some_and(|at| at.is('*') || word(Some(at)).is_some_and(|word| word != "typedef"));
        if is_own && is_behind_type && is_call(tokens, i) {
            found.insert(name);
        }
    }
    found
}

/// Each function that is declared has a body.
///
/// # Errors
/// One has none.
pub(super) fn have_bodies(tokens: &[At], functions: &BTreeSet<&str>) -> Result<(), Problem> {
    let code: Vec<&At> = tokens.iter().filter(|at| !at.is_macro).collect();
    let bodies: BTreeSet<&str> =
        calls::functions(&code).into_iter().map(|(name, _)| name).collect();
    let mut missing = outside(tokens).filter(|(_, name)| functions.contains(name));
    match missing.find(|(_, name)| !bodies.contains(name)) {
        Some((i, name)) => Err(tokens[i].problem(format!("`{name}` has no body"))),
        None => Ok(()),
    }
}

/// Words outside of brackets, with their places.
fn outside(tokens: &[At]) -> impl Iterator<Item = (usize, &str)> {
    let mut depth = 0usize;
    tokens.iter().enumerate().filter(|(_, at)| !at.is_macro).filter_map(move |(i, at)| {
        match &at.token {
            Token::Sign('(' | '{' | '[') => depth += 1,
            Token::Sign(')' | '}' | ']') => depth = depth.saturating_sub(1),
            Token::Word(word) if depth == 0 => return Some((i, word.as_str())),
            _ => {}
        }
        None
    })
}

/// What to put into the text, by its place: the parameter of these functions, and what their calls give.
pub(super) fn passed(tokens: &[At], functions: &BTreeSet<&str>) -> Vec<(usize, Cow<'static, str>)> {
    let mut put: Vec<(usize, Cow<'static, str>)> = Vec::new();
    let heads: BTreeSet<usize> = outside(tokens).map(|(i, _)| i).collect();
    for i in 0..tokens.len() {
        let Some(name) = word(tokens.get(i)) else { continue };
        let is_head = heads.contains(&i) && functions.contains(name);
        let is_called = functions.contains(name) || OF_SYSTEM.contains(&name);
        if !is_called || !is_call(tokens, i) {
            continue;
        }
        let place = tokens[i + 1].byte + 1;
        let is_empty = |at: usize| tokens.get(at).is_some_and(|at| at.is(')'));
        match (is_head, is_empty(i + 2)) {
            (false, true) => put.push((place, "own_budget".into())),
            (false, false) => put.push((place, "own_budget, ".into())),
            (true, true) => put.push((place, PARAMETER.into())),
            (true, false) if word(tokens.get(i + 2)) == Some("void") && is_empty(i + 3) => {
                let void = tokens[i + 2].byte;
                put.push((void, format!("{PARAMETER} /*").into()));
                put.push((void + "void".len(), "*/".into()));
            }
            (true, false) => put.push((place, format!("{PARAMETER}, ").into())),
        }
    }
    put
}

#[cfg(test)]
mod tests {
    use super::super::read;

    #[test]
    fn calls_hand_the_budget_on() {
        let text = "#define TWICE(n) (f(n) + g())\nFN uint f(uint n);\nFN uint f(uint n) { return n; }\nFN uint g() { return 1u; }\n\
                    MODULE_UDP(p)\n{\n    match_t m = match_begin(0u, 0u);\n    const piece_t a = packet_payload(p);\n\
                    return match_next(p, &a, &m) + TWICE(f(1u));\n}\n";
        let expected = text
            .replace("f(uint n)", "f(PRIVATE uint *own_budget, uint n)")
            .replace("uint g()", "uint g(PRIVATE uint *own_budget)")
            .replace("f(n)", "f(own_budget, n)")
            .replace("f(1u)", "f(own_budget, 1u)")
            .replace("+ g()", "+ g(own_budget)")
            .replace("match_next(", "match_next(own_budget, ");
        assert_eq!(read(text).unwrap().bounded, expected);
    }

    /// Its budget would be one of its own: the rounds of those who call it times its own ones.
    #[test]
    fn a_function_by_a_macro_is_refused() {
        let text = "#define MADE(name) FN uint name(uint n)\nMADE(f) { while (n) n--; return n; }\nMODULE_IP(p) { return f(1u); }\n";
        let problem = read(text).unwrap_err().to_string();
        assert!(problem.starts_with("2:9: a function whose head is made by a macro"), "{problem}");
        let named = "FN uint half(uint x) { return x / 2u; }\n#define half(x) half((x) + 1u)\nMODULE_IP(p) { return half(1u); }\n";
        let problem = read(named).unwrap_err().to_string();
        assert!(problem.starts_with("1:22: a function whose head"), "{problem}");
    }
}
