//! Text into tokens, each with its column.
//!
//! As in pcap-filter(7), a hyphen within a word belongs to it (`icmp-echo`, `80-90`), so a subtraction of names needs
//! spaces. What has two colons is an address; with one colon less it is an offset and a size, as in `udp[4:2]`.

use std::net::Ipv6Addr;

/// A token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// A keyword, a name, an address of IPv4 or a part of one, a range of ports.
    Word(&'a str),
    /// Decimal, hexadecimal with `0x`, or octal with a leading 0.
    Number(u32),
    /// An IPv6 address.
    V6(Ipv6Addr),
    /// A MAC address with colons.
    Mac(u64),
    /// An operator or a bracket.
    Symbol(&'static str),
    /// Nothing that the language has.
    Junk,
    /// Behind the last one.
    End,
}

/// Longest first.
const SYMBOLS: &[&str] = &[
    "&&", "||", "==", "!=", "<=", ">=", "<<", ">>", "(", ")", "[", "]", "!", "&", "|", "^", "<",
    ">", "=", "+", "-", "*", "/", "%", ":",
];

/// All tokens with their columns, counted from 1 in characters; [`Token::End`] is the last.
pub(super) fn tokens(text: &str) -> Vec<(usize, Token<'_>)> {
    let mut tokens = Vec::new();
    let (mut rest, mut column) = (text, 1);
    loop {
        let trimmed = rest.trim_start();
        column += rest.chars().count() - trimmed.chars().count();
        let (token, len) = next(trimmed);
        tokens.push((column, token));
        if token == Token::End {
            return tokens;
        }
        column += trimmed[..len].chars().count();
        rest = &trimmed[len..];
    }
}

/// The first token of `text` and its bytes.
fn next(text: &str) -> (Token<'_>, usize) {
    let Some(first) = text.chars().next() else { return (Token::End, 0) };
    if first.is_ascii_hexdigit() || first == ':' {
        let is_part = |c: char| c.is_ascii_hexdigit() || c == ':' || c == '.';
        let len = text.find(|c| !is_part(c)).unwrap_or(text.len());
        let run = &text[..len];
        if run.matches(':').count() > 1 {
            let address = run.parse().map(Token::V6).ok();
            let token = address.or_else(|| mac(run).map(Token::Mac)).unwrap_or(Token::Junk);
            return (token, len);
        }
    }
    if let Some(symbol) = SYMBOLS.iter().find(|symbol| text.starts_with(**symbol)) {
        return (Token::Symbol(symbol), symbol.len());
    }
    let len = word_len(text);
    if len == 0 {
        return (Token::Junk, first.len_utf8());
    }
    let word = &text[..len];
    match (first.is_ascii_digit(), number(word)) {
        (true, Some(number)) => (Token::Number(number), len),
        _ => (Token::Word(word), len),
    }
}

/// Bytes of the word at the start: letters, digits, `_`, `.`, hyphens between these, and a backslash in front.
fn word_len(text: &str) -> usize {
    let is_inner = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
    let mut len = 0;
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let joins = c == '-' && at > 0 && chars.peek().is_some_and(|(_, next)| is_inner(*next));
        if !(is_inner(c) || joins || (c == '\\' && at == 0)) {
            break;
        }
        len = at + c.len_utf8();
    }
    len
}

fn number(word: &str) -> Option<u32> {
    let hexadecimal = word.strip_prefix("0x").or_else(|| word.strip_prefix("0X"));
    let (digits, radix) = match hexadecimal {
        Some(digits) => (digits, 16),
        None if word.len() > 1 && word.starts_with('0') => (&word[1..], 8),
        None => (word, 10),
    };
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    u32::from_str_radix(digits, radix).ok().filter(|_| is_plain)
}

/// A MAC address as a number: six parts of one or two hexadecimal digits, or three of four with points.
pub(super) fn mac(text: &str) -> Option<u64> {
    let (separator, count, bits) = match text {
        _ if text.contains(':') => (':', 6, 8),
        _ if text.contains('-') => ('-', 6, 8),
        _ => ('.', 3, 16),
    };
    let mut address = 0;
    let mut n = 0;
    for part in text.split(separator) {
        let is_part = (1..=bits / 4).contains(&part.len());
        let is_hexadecimal = part.bytes().all(|byte| byte.is_ascii_hexdigit());
        let value = u64::from_str_radix(part, 16).ok();
        address = address << bits | value.filter(|_| is_part && is_hexadecimal && n < count)?;
        n += 1;
    }
    (n == count).then_some(address)
}
