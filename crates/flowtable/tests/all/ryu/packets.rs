//! Packets as Ryu's cases write them: calls of constructors, one for each header, with the values that its library takes where a case
//! gives none. Lengths and checksums are computed.

use std::net::{Ipv4Addr, Ipv6Addr};

use packet::IpProtocol;
use packet::checksum::{
    finish, internet_checksum, partial_sum, pseudo_header_v4, pseudo_header_v6,
};
use serde_json::Value;

use crate::random::Random;

/// The bytes of a frame.
pub fn frame(layers: &Value, random: &mut Random) -> Result<Vec<u8>, String> {
    let layers = layers.as_array().ok_or("no list of headers")?;
    let parse = |layer: &Value| {
        let text = layer.as_str().ok_or("no text")?;
        let mut parser = Parser { rest: text, random };
        parser.expression(0)
    };
    let mut parse = parse;
    let layers: Vec<Expr> = layers.iter().map(&mut parse).collect::<Result<_, String>>()?;
    let mut payload = Vec::new();
    for at in (0..layers.len()).rev() {
        let ip = layers[..at].iter().rev().find(|layer| layer.is_ip());
        payload = header(&layers[at], payload, ip);
    }
    Ok(payload)
}

#[derive(Debug, Clone)]
enum Expr {
    Number(u128),
    Text(String),
    Bytes(Vec<u8>),
    List(Vec<Expr>),
    Call(String, Vec<(String, Expr)>),
}

impl Expr {
    fn is_ip(&self) -> bool {
        matches!(self, Self::Call(name, _) if name == "ipv4" || name == "ipv6")
    }

    fn arg(&self, name: &str) -> Option<&Expr> {
        match self {
            Self::Call(_, args) => args.iter().find(|(own, _)| own == name).map(|(_, value)| value),
            _ => None,
        }
    }

    fn number(&self, name: &str, default: u128) -> u128 {
        match self.arg(name) {
            Some(Self::Number(number)) => *number,
            Some(Self::Text(text)) => address(text),
            _ => default,
        }
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        match self.arg(name) {
            Some(Self::Bytes(bytes)) => bytes.clone(),
            _ => Vec::new(),
        }
    }
}

pub fn mac(text: &str) -> u128 {
    text.split(':').fold(0, |mac, byte| mac << 8 | u128::from_str_radix(byte, 16).unwrap())
}

pub fn ipv4(text: &str) -> u128 {
    text.parse::<Ipv4Addr>().unwrap().to_bits().into()
}

pub fn ipv6(text: &str) -> u128 {
    text.parse::<Ipv6Addr>().unwrap().to_bits()
}

fn address(text: &str) -> u128 {
    let v4 = text.parse::<Ipv4Addr>().map(|a| a.to_bits().into());
    v4.or_else(|_| text.parse::<Ipv6Addr>().map(|a| a.to_bits())).unwrap_or_else(|_| mac(text))
}

struct Parser<'a, 'r> {
    rest: &'a str,
    random: &'r mut Random,
}

impl Parser<'_, '_> {
    fn blank(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn eat(&mut self, token: &str) -> bool {
        self.blank();
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// Python's order: `**` before `*` before `+` and `-` before `&`.
    fn expression(&mut self, level: u8) -> Result<Expr, String> {
        let mut left = self.term()?;
        loop {
            self.blank();
            let (token, own) = match self.rest.as_bytes() {
                [b'*', b'*', ..] => ("**", 4),
                [b'*', ..] => ("*", 3),
                [b'-', ..] => ("-", 2),
                [b'&', ..] => ("&", 1),
                _ => return Ok(left),
            };
            if own <= level {
                return Ok(left);
            }
            self.rest = &self.rest[token.len()..];
            let right = self.expression(own)?;
            left = match (left, token, right) {
                // What is one too many to hold is one less again right away.
                (Expr::Number(2), "**", Expr::Number(128)) => Expr::Number(u128::MAX),
                (Expr::Number(u128::MAX), "-", Expr::Number(1)) => Expr::Number(u128::MAX),
                (Expr::Number(a), "**", Expr::Number(b)) => Expr::Number(a.pow(b as u32)),
                (Expr::Number(a), "-", Expr::Number(b)) => Expr::Number(a - b),
                (Expr::Number(a), "&", Expr::Number(b)) => Expr::Number(a & b),
                (Expr::Bytes(a), "*", Expr::Number(b)) => Expr::Bytes(a.repeat(b as usize)),
                (a, token, b) => return Err(format!("{a:?} {token} {b:?}")),
            };
        }
    }

    fn term(&mut self) -> Result<Expr, String> {
        self.blank();
        if self.eat("(") {
            let inner = self.expression(0)?;
            return if self.eat(")") { Ok(inner) } else { Err("no `)`".into()) };
        }
        if self.eat("[") {
            let mut list = Vec::new();
            while !self.eat("]") {
                list.push(self.expression(0)?);
                self.eat(",");
            }
            return Ok(Expr::List(list));
        }
        if self.rest.starts_with("b'") || self.rest.starts_with('\'') {
            let is_bytes = self.rest.starts_with('b');
            self.rest = &self.rest[1 + usize::from(is_bytes)..];
            let bytes = self.quoted()?;
            return Ok(match is_bytes {
                true => Expr::Bytes(bytes),
                false => Expr::Text(String::from_utf8(bytes).map_err(|e| e.to_string())?),
            });
        }
        let is_of_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
        let end = self.rest.find(|c| !is_of_word(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            let hex = word.strip_prefix("0x");
            let number =
                hex.map_or_else(|| word.parse().ok(), |hex| u128::from_str_radix(hex, 16).ok());
            return number.map(Expr::Number).ok_or_else(|| format!("number {word}"));
        }
        if !self.eat("(") {
            return Err(format!("`{word}` is not a call: {}", self.rest));
        }
        let mut args = Vec::new();
        while !self.eat(")") {
            let named = self.rest.trim_start().find('=').filter(|at| {
                self.rest.trim_start()[..*at].chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            });
            let mut name = String::new();
            if let Some(at) = named {
                self.blank();
                name = self.rest[..at].to_owned();
                self.rest = &self.rest[at + 1..];
            }
            args.push((name, self.expression(0)?));
            self.eat(",");
        }
        Ok(match word {
            "bytes" | "netaddr.IPAddress" | "netaddr.EUI" => args.remove(0).1,
            "randint" => {
                let Expr::Number(most) = args[1].1 else { return Err("randint".into()) };
                let random = u128::from(self.random.next()) << 64 | u128::from(self.random.next());
                Expr::Number(if most == u128::MAX { random } else { random % (most + 1) })
            }
            word => Expr::Call(word.to_owned(), args),
        })
    }

    /// A string behind its first quote, with the escapes that Python's `repr` writes.
    fn quoted(&mut self) -> Result<Vec<u8>, String> {
        let mut out = Vec::new();
        let mut chars = self.rest.char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '\'' => {
                    self.rest = &self.rest[at + 1..];
                    return Ok(out);
                }
                '\\' => out.push(match chars.next().map(|(_, c)| c) {
                    Some('x') => {
                        let digits: String = chars.by_ref().take(2).map(|(_, c)| c).collect();
                        u8::from_str_radix(&digits, 16).map_err(|e| e.to_string())?
                    }
                    Some('t') => b'\t',
                    Some('n') => b'\n',
                    Some('r') => b'\r',
                    Some(c) => c as u8,
                    None => return Err("a string ends in a backslash".into()),
                }),
                c => out.push(c as u8),
            }
        }
        Err("a string does not end".into())
    }
}

/// The last `n` bytes of numbers, one after the other.
fn pack(parts: &[(usize, u128)]) -> Vec<u8> {
    let parts = parts.iter().flat_map(|(n, value)| value.to_be_bytes()[16 - n..].to_vec());
    parts.collect()
}

/// A header in front of its payload. `ip`: the IP header before it.
fn header(own: &Expr, payload: Vec<u8>, ip: Option<&Expr>) -> Vec<u8> {
    let Expr::Call(name, _) = own else {
        return match own {
            Expr::Bytes(bytes) => [&bytes[..], &payload].concat(),
            other => panic!("{other:?}"),
        };
    };
    let n = |name: &str, default: u128| own.number(name, default);
    let mut out = match name.as_str() {
        "ethernet" => {
            pack(&[(6, n("dst", 0xffff_ffff_ffff)), (6, n("src", 0)), (2, n("ethertype", 0x0800))])
        }
        "vlan" | "svlan" => {
            let tci = n("pcp", 0) << 13 | n("cfi", 0) << 12 | n("vid", 0);
            pack(&[(2, tci), (2, n("ethertype", 0x0800))])
        }
        "itag" => pack(&[(4, n("pcp", 0) << 29 | n("sid", 0))]),
        "mpls" => {
            let class = n("exp", 0) << 9 | n("bsb", 1) << 8;
            pack(&[(4, n("label", 0) << 12 | class | n("ttl", 255))])
        }
        "ipv4" => {
            let total = 20 + payload.len() as u128;
            let mut out = pack(&[
                (1, 0x45),
                (1, n("tos", 0)),
                (2, total),
                (4, 0),
                (1, n("ttl", 255)),
                (1, n("proto", 0)),
                (2, 0),
                (4, n("src", 0x0a00_0001)),
                (4, n("dst", 0x0a00_0002)),
            ]);
            let sum = internet_checksum(&out);
            out[10..12].copy_from_slice(&sum.to_be_bytes());
            out
        }
        "ipv6" => {
            let extensions: Vec<u8> = match own.arg("ext_hdrs") {
                Some(Expr::List(list)) => list.iter().flat_map(extension).collect(),
                _ => Vec::new(),
            };
            let word = 6 << 28 | n("traffic_class", 0) << 20 | n("flow_label", 0);
            let len = (extensions.len() + payload.len()) as u128;
            let mut out = pack(&[
                (4, word),
                (2, len),
                (1, n("nxt", 6)),
                (1, n("hop_limit", 255)),
                (16, n("src", 0x10 << 112 | 0x10)),
                (16, n("dst", 0x20 << 112 | 0x20)),
            ]);
            out.extend(extensions);
            out
        }
        "arp" => pack(&[
            (8, 0x0001_0800_0604_0000 | n("opcode", 1)),
            (6, n("src_mac", 0xffff_ffff_ffff)),
            (4, n("src_ip", 0)),
            (6, n("dst_mac", 0xffff_ffff_ffff)),
            (4, n("dst_ip", 0)),
        ]),
        "tcp" => {
            let option = own.bytes("option");
            let offset = (20 + option.len() as u128) / 4;
            let mut out = pack(&[
                (2, n("src_port", 1)),
                (2, n("dst_port", 1)),
                (8, 0),
                (1, offset << 4),
                (7, 0),
            ]);
            out.extend(option);
            return summed(out, payload, 16, ip);
        }
        "udp" => {
            let len = 8 + payload.len() as u128;
            let out = pack(&[(2, n("src_port", 1)), (2, n("dst_port", 1)), (2, len), (2, 0)]);
            return summed(out, payload, 6, ip);
        }
        "sctp" => {
            let mut out = pack(&[(2, n("src_port", 1)), (2, n("dst_port", 1)), (8, 0)]);
            if let Some(Expr::List(chunks)) = own.arg("chunks") {
                for chunk in chunks {
                    let data = chunk.bytes("payload_data");
                    out.extend(pack(&[(2, 0), (2, 16 + data.len() as u128), (12, 0)]));
                    out.extend(data);
                }
            }
            out.extend(payload);
            let sum = packet::sctp::checksum(&out);
            out[8..12].copy_from_slice(&sum.to_le_bytes());
            return out;
        }
        "icmp" => {
            let mut out = pack(&[(1, n("type_", 8)), (1, n("code", 0)), (2, 0), (4, 0)]);
            out.extend(own.arg("data").map(|data| data.bytes("data")).unwrap_or_default());
            out.extend(payload);
            let sum = internet_checksum(&out);
            out[2..4].copy_from_slice(&sum.to_be_bytes());
            return out;
        }
        "icmpv6" => {
            let mut out = pack(&[(1, n("type_", 0)), (1, n("code", 0)), (2, 0), (4, 0)]);
            match own.arg("data") {
                Some(data @ Expr::Call(name, _)) if name == "nd_neighbor" => {
                    out.extend(pack(&[(16, data.number("dst", 0))]));
                    if let Some(option @ Expr::Call(name, _)) = data.arg("option") {
                        let kind = if name == "nd_option_sla" { 1 } else { 2 };
                        out.extend(pack(&[(1, kind), (1, 1), (6, option.number("hw_src", 0))]));
                    }
                }
                Some(data) => out.extend(data.bytes("data")),
                None => {}
            }
            return summed(out, payload, 2, ip);
        }
        other => panic!("header {other}"),
    };
    out.extend(payload);
    out
}

fn extension(own: &Expr) -> Vec<u8> {
    let Expr::Call(name, _) = own else { panic!("{own:?}") };
    let next = own.number("nxt", 6);
    match name.as_str() {
        "hop_opts" => pack(&[(1, next), (1, 0), (6, 0x0104_0000_0000)]),
        "auth" => pack(&[(1, next), (1, 2), (14, 0)]),
        other => panic!("extension {other}"),
    }
}

/// Puts the checksum over header, payload and pseudo header at `at`.
fn summed(mut out: Vec<u8>, payload: Vec<u8>, at: usize, ip: Option<&Expr>) -> Vec<u8> {
    out.extend(payload);
    let Some(ip @ Expr::Call(name, _)) = ip else { return out };
    let len = out.len();
    let pseudo = if name == "ipv4" {
        let addresses = [ip.number("src", 0x0a00_0001), ip.number("dst", 0x0a00_0002)];
        let [src, dst] = addresses.map(|a| Ipv4Addr::from_bits(a as u32));
        pseudo_header_v4(src, dst, IpProtocol(ip.number("proto", 0) as u8), len as u16)
    } else {
        let src = Ipv6Addr::from_bits(ip.number("src", 0x10 << 112 | 0x10));
        let dst = Ipv6Addr::from_bits(ip.number("dst", 0x20 << 112 | 0x20));
        let mut protocol = ip.number("nxt", 6);
        if let Some(Expr::List(list)) = ip.arg("ext_hdrs") {
            protocol = list.last().map_or(protocol, |last| last.number("nxt", 6));
        }
        pseudo_header_v6(src, dst, IpProtocol(protocol as u8), len as u32)
    };
    let sum = finish(pseudo + partial_sum(&out));
    out[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    out
}
