//! No function calls itself, also not by way of others: a device has no stack that grows.

use std::collections::{BTreeMap, BTreeSet};

use super::{At, Problem, Token};

/// A function or a macro: where the body of a function begins, and what it names.
#[derive(Default)]
struct Named<'a> {
    at: Option<&'a At>,
    names: BTreeSet<&'a str>,
}

/// Looks for a function that calls itself.
///
/// # Errors
/// There is one, or several that call each other.
pub(super) fn check(tokens: &[At]) -> Result<(), Problem> {
    let mut all: BTreeMap<&str, Named<'_>> = BTreeMap::new();
    let macros: Vec<&At> = tokens.iter().filter(|at| at.is_macro).collect();
    let mut calls_any = false;
    for one in macros.chunk_by(|a, b| a.line == b.line) {
        let [name, rest @ ..] = one else { continue };
        let Token::Word(name) = &name.token else { continue };
        let end = rest.iter().position(|at| at.is(')')).unwrap_or(0);
        // A macro that calls what it is given may call any function.
        calls_any |= calls(rest).any(|called| words(&rest[..end]).any(|given| given == called));
        // A macro is not replaced within itself.
        let names = words(rest).filter(|word| word != name);
        all.entry(name).or_default().names.extend(names);
    }
    let is_macro: BTreeSet<&str> = all.keys().copied().collect();
    let code: Vec<&At> = tokens.iter().filter(|at| !at.is_macro).collect();
    for (name, body) in functions(&code) {
        let own = all.entry(name).or_default();
        own.at = Some(body.at);
        let named: BTreeSet<&str> = match calls_any {
            true => words(body.tokens).collect(),
            false => words(body.tokens).filter(|word| is_macro.contains(word)).collect(),
        };
        own.names.extend(named);
        own.names.extend(calls(body.tokens));
    }
    match circle(&all) {
        None => Ok(()),
        Some(circle) => {
            let at = circle.iter().find_map(|name| all[name].at);
            let message = match circle[..] {
                [one] => format!("`{one}` calls itself: modules have no recursion"),
                _ => {
                    format!("`{}` call each other: modules have no recursion", circle.join("`, `"))
                }
            };
            Err(match at {
                Some(at) => at.problem(message),
                None => Problem { line: 1, column: 1, message },
            })
        }
    }
}

/// The body of a function, without its outer brackets.
pub(super) struct Body<'a, 'b> {
    /// The name of the function, or what is in its place.
    pub(super) at: &'a At,
    pub(super) tokens: &'b [&'a At],
}

/// Functions with a body, outside of brackets: a name, parameters, a body.
pub(super) fn functions<'a, 'b>(code: &'b [&'a At]) -> Vec<(&'a str, Body<'a, 'b>)> {
    let mut found = Vec::new();
    let (mut depth, mut name, mut begin, mut name_at) = (0usize, None, 0, 0);
    for (i, at) in code.iter().enumerate() {
        match &at.token {
            Token::Sign('(' | '{' | '[') => {
                let before = i.checked_sub(1).map(|before| &code[before].token);
                match (depth, before) {
                    (0, Some(Token::Word(word))) if at.is('(') => {
                        (name, name_at) = (Some(word.as_str()), i - 1);
                    }
                    (0, Some(Token::Sign(')'))) if at.is('{') => begin = i + 1,
                    (0, _) => name = None,
                    _ => {}
                }
                depth += 1;
            }
            Token::Sign(')' | '}' | ']') => {
                depth = depth.saturating_sub(1);
                if depth == 0
                    && at.is('}')
                    && let Some(name) = name.take()
                {
                    let tokens = &code[begin.min(i)..i];
                    found.push((name, Body { at: code[name_at], tokens }));
                }
            }
            _ => {}
        }
    }
    found
}

fn words<'a>(tokens: &[&'a At]) -> impl Iterator<Item = &'a str> {
    tokens.iter().filter_map(|at| match &at.token {
        Token::Word(word) => Some(word.as_str()),
        Token::Sign(_) => None,
    })
}

/// Words with a bracket behind.
fn calls<'a>(tokens: &[&'a At]) -> impl Iterator<Item = &'a str> {
    tokens.windows(2).filter_map(|pair| match &pair[0].token {
        Token::Word(word) if pair[1].is('(') => Some(word.as_str()),
        _ => None,
    })
}

/// Names that name each other in turn, if there are some.
fn circle<'a>(all: &BTreeMap<&'a str, Named<'a>>) -> Option<Vec<&'a str>> {
    // Whoever names nobody that is left goes, until all are gone or each names another.
    let mut namers: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut left: BTreeMap<&str, usize> = BTreeMap::new();
    for (name, own) in all {
        let known = own.names.iter().filter(|other| all.contains_key(*other));
        left.insert(name, known.clone().count());
        known.for_each(|other| namers.entry(other).or_default().push(name));
    }
    let mut free: Vec<&str> =
        left.iter().filter(|(_, count)| **count == 0).map(|(name, _)| *name).collect();
    while let Some(name) = free.pop() {
        left.remove(name);
        for namer in namers.get(name).into_iter().flatten() {
            let Some(count) = left.get_mut(namer) else { continue };
            *count -= 1;
            if *count == 0 {
                free.push(namer);
            }
        }
    }
    let mut way = vec![*left.keys().next()?];
    loop {
        let last = all.get(way.last()?)?;
        let next = *last.names.iter().find(|name| left.contains_key(*name))?;
        if let Some(at) = way.iter().position(|name| *name == next) {
            return Some(way.split_off(at));
        }
        way.push(next);
    }
}
