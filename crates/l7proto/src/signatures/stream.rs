//! Signatures of streams: what the client's side begins with, and what the server's.
//!
//! A test sees the first bytes of one side, at most [`PREFIX`] of them, and says that they fit, that they do not, or that
//! more are wanted. More bytes may turn *more* into one of the others and change nothing else: on this stands that a
//! stream gets the same label however it is cut.

use super::SIGNATURES_MAX;
use super::datagram::is_openvpn_reset;
use crate::http1::is_blank;
use crate::protocol::Protocol::{self, *};

/// Bytes of each side that tests see.
pub(crate) const PREFIX: usize = 22;

/// What a test says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    No,
    More,
    Yes,
}

/// A test of one side.
#[derive(Clone, Copy)]
pub(crate) enum Test {
    /// Whatever it says.
    Any,
    /// One of these comes first.
    Literals(&'static [&'static [u8]]),
    /// One of these comes first; written in upper case here, in any case there.
    Words(&'static [&'static [u8]]),
    /// A small parser.
    Parser(fn(&[u8]) -> Fit),
}

/// A side of a signature.
pub(crate) struct Side {
    pub(crate) test: Test,
    /// Nothing else begins like this: the other side need not agree.
    pub(crate) alone: bool,
    /// While the other side has not spoken, or does not fit, this is a reason to think of the protocol. Else it only
    /// confirms what the other side says, or what the port does.
    pub(crate) speaks: bool,
}

/// A protocol's two sides.
pub(crate) struct Signature {
    pub(crate) protocol: Protocol,
    pub(crate) client: Side,
    pub(crate) server: Side,
}

const fn row(
    protocol: Protocol,
    client: (Test, bool, bool),
    server: (Test, bool, bool),
) -> Signature {
    let client = Side { test: client.0, alone: client.1, speaks: client.2 };
    let server = Side { test: server.0, alone: server.1, speaks: server.2 };
    Signature { protocol, client, server }
}

/// Each side is a sign, and both together are enough.
const fn both(protocol: Protocol, client: Test, server: Test) -> Signature {
    row(protocol, (client, false, true), (server, false, true))
}

/// Both together are enough, and one alone is nothing.
const fn pair(protocol: Protocol, client: Test, server: Test) -> Signature {
    row(protocol, (client, false, false), (server, false, false))
}

/// The client's side is enough.
const fn client(protocol: Protocol, client: Test) -> Signature {
    row(protocol, (client, true, true), (Any, false, false))
}

/// The server's side is enough.
const fn server(protocol: Protocol, server: Test) -> Signature {
    row(protocol, (Any, false, false), (server, true, true))
}

/// Either side is enough.
const fn either(protocol: Protocol, client: Test, server: Test) -> Signature {
    row(protocol, (client, true, true), (server, true, true))
}

use Test::{Any, Literals, Parser, Words};

/// The table, in the order in which its rows are believed.
pub(crate) const TABLE: &[Signature] = &[
    client(Http2, Literals(&[b"PRI * HTTP/2.0\r\n\r\nSM"])),
    server(Tls, Parser(server_hello)),
    both(Tls, Parser(client_hello), Parser(tls_record)),
    both(Tls, Parser(tls_record), Parser(tls_record)),
    either(Tls, Parser(ssl2_client_hello), Parser(ssl2_server_hello)),
    either(Ssh, SSH, SSH),
    either(BitTorrent, BITTORRENT, BITTORRENT),
    either(Rfb, Literals(&[b"RFB 00"]), Literals(&[b"RFB 00"])),
    server(MySql, Parser(mysql_greeting)),
    client(PostgreSql, Parser(postgresql_startup)),
    client(Rdp, Parser(rdp_request)),
    either(Smb, Parser(smb), Parser(smb)),
    client(Mqtt, Parser(mqtt_connect)),
    either(Stun, Parser(stun), Parser(stun)),
    either(Rtsp, Parser(rtsp_request), Literals(&[b"RTSP/1.0 ", b"RTSP/2.0 "])),
    either(Sip, Parser(sip_request), Literals(&[b"SIP/2.0 "])),
    both(Ldap, Parser(ldap_request), Parser(ldap_response)),
    both(Xmpp, XML, XML),
    client(Smtp, Words(&[b"EHLO ", b"HELO ", b"LHLO "])),
    both(Smtp, Words(&[b"HELP\r", b"NOOP\r", b"QUIT\r", b"RSET\r"]), GREETING),
    both(Ftp, Words(FTP), GREETING),
    both(Pop3, Words(POP3), Literals(&[b"+OK", b"-ERR"])),
    both(
        Imap,
        Parser(imap_command),
        Words(&[b"* OK", b"* PREAUTH", b"* BYE", b"* CAPABILITY", b"* ID"]),
    ),
    both(Irc, Words(IRC), Parser(irc_reply)),
    both(Http1, Parser(http_request), Words(&[b"HTTP/1.", b"HTTP/0.9"])),
    both(Redis, Parser(redis_command), Parser(redis_reply)),
    pair(Redis, Parser(redis_inline), Parser(redis_reply)),
    pair(Modbus, Parser(modbus_request), Parser(modbus_response)),
    both(Dns, Parser(dns_query), Parser(dns_response)),
    pair(Dns, Parser(odd_dns_query), Parser(odd_dns_response)),
    pair(OpenVpn, Parser(openvpn_client), Parser(openvpn_server)),
    both(Telnet, TELNET, TELNET),
];

const _: () = assert!(TABLE.len() <= SIGNATURES_MAX);

const SSH: Test = Literals(&[b"SSH-2.0-", b"SSH-1."]);
const BITTORRENT: Test = Literals(&[b"\x13BitTorrent protocol"]);
const XML: Test = Literals(&[b"<?xml version=", b"<stream:stream"]);
const GREETING: Test = Literals(&[b"220 ", b"220-", b"120 ", b"421 ", b"530 ", b"554 "]);
const TELNET: Test = Literals(&[b"\xff\xfb", b"\xff\xfc", b"\xff\xfd", b"\xff\xfe"]);
const FTP: &[&[u8]] = &[
    b"USER ",
    b"AUTH TLS",
    b"AUTH SSL",
    b"AUTH GSS",
    b"FEAT\r",
    b"SYST\r",
    b"OPTS ",
    b"HOST ",
    b"PASS ",
    b"QUIT\r",
    b"CLNT ",
    b"PBSZ ",
];
const POP3: &[&[u8]] = &[
    b"USER ", b"CAPA\r", b"CAPA\n", b"APOP ", b"AUTH", b"STLS\r", b"QUIT\r", b"UTF8", b"NOOP\r",
    b"STAT\r", b"LIST", b"PASS ",
];
const IRC: &[&[u8]] = &[
    b"NICK ",
    b"USER ",
    b"PASS ",
    b"CAP ",
    b"STARTTLS\r",
    b"JOIN ",
    b"PING ",
    b"PONG ",
    b"SERVER ",
];
const HTTP: &[&[u8]] = &[
    b"GET",
    b"POST",
    b"HEAD",
    b"PUT",
    b"DELETE",
    b"OPTIONS",
    b"CONNECT",
    b"PATCH",
    b"TRACE",
    b"PROPFIND",
];

impl Test {
    /// What it says of the first bytes of a side.
    pub(crate) fn fit(self, bytes: &[u8]) -> Fit {
        let bytes = &bytes[..bytes.len().min(PREFIX)];
        if bytes.is_empty() {
            return Fit::More;
        }
        let fit = match self {
            Self::Any => Fit::Yes,
            Self::Literals(literals) => one_of(literals, bytes, |literal, byte| literal == byte),
            Self::Words(words) => words_fit(words, bytes),
            Self::Parser(parser) => parser(bytes),
        };
        match fit {
            // More will not be shown.
            Fit::More if bytes.len() == PREFIX => Fit::No,
            fit => fit,
        }
    }
}

fn one_of(literals: &[&[u8]], bytes: &[u8], equal: impl Fn(u8, u8) -> bool) -> Fit {
    let mut fit = Fit::No;
    for literal in literals {
        // Nearly all differ in the first byte.
        if !literal.first().zip(bytes.first()).is_none_or(|(own, byte)| equal(*own, *byte)) {
            continue;
        }
        if literal.iter().zip(bytes).all(|(literal, byte)| equal(*literal, *byte)) {
            if literal.len() <= bytes.len() {
                return Fit::Yes;
            }
            fit = Fit::More;
        }
    }
    fit
}

fn words_fit(words: &[&[u8]], bytes: &[u8]) -> Fit {
    one_of(words, bytes, |literal, byte| literal == byte.to_ascii_uppercase())
}

/// Checks of single bytes, in order: the first that fails decides, and so does the first that is not there yet.
macro_rules! check {
    ($bytes:ident: $($at:literal => $test:expr),* $(,)?) => {
        $(
            match $bytes.get($at) {
                None => return Fit::More,
                Some(&byte) => {
                    let test: fn(u8) -> bool = $test;
                    if !test(byte) {
                        return Fit::No;
                    }
                }
            }
        )*
    };
}

fn yes(is: bool) -> Fit {
    if is { Fit::Yes } else { Fit::No }
}

/// The record of a handshake, up to the version in the message (RFC 8446 §5.1). Implementations take any minor version of the
/// record, and one whose length is too great is a hello all the same.
fn hello(bytes: &[u8], kind: u8) -> Fit {
    check!(bytes: 0 => |b| b == 0x16, 1 => |b| b == 3);
    let Some(found) = bytes.get(5) else { return Fit::More };
    if *found != kind {
        return Fit::No;
    }
    check!(bytes: 6 => |b| b <= 1, 9 => |b| b == 3 || b == 0x7f);
    Fit::Yes
}

fn client_hello(bytes: &[u8]) -> Fit {
    hello(bytes, 1)
}

fn server_hello(bytes: &[u8]) -> Fit {
    hello(bytes, 2)
}

/// Any record: an alert that answers a hello, or a flow that was seen from its middle.
fn tls_record(bytes: &[u8]) -> Fit {
    check!(bytes: 0 => |b| (20..=24).contains(&b), 1 => |b| b == 3, 2 => |b| b <= 4, 3 => |b| b <= 0x41,
        4 => |_| true);
    yes(bytes[3..5] != [0, 0])
}

/// The hello of SSL 2, also when it offers TLS (RFC 5246 Appendix E.2).
fn ssl2_client_hello(bytes: &[u8]) -> Fit {
    check!(bytes:
        0 => |b| b & 0x80 != 0, 2 => |b| b == 1, 3 => |b| b == 0 || b == 3, 4 => |b| b <= 4,
        5 => |b| b <= 1, 7 => |b| b == 0, 8 => |b| b == 0 || b == 16 || b == 32, 9 => |b| b == 0);
    let &[high, low, _, _, _, ciphers_high, ciphers_low, _, session, _, challenge, ..] = bytes
    else {
        return Fit::More;
    };
    let ciphers = u16::from_be_bytes([ciphers_high, ciphers_low]);
    let len = u16::from_be_bytes([high & 0x7f, low]);
    let fits = ciphers.is_multiple_of(3) && (16..=32).contains(&challenge);
    yes(fits && len == 9 + ciphers + u16::from(session) + u16::from(challenge))
}

fn ssl2_server_hello(bytes: &[u8]) -> Fit {
    check!(bytes:
        0 => |b| b & 0x80 != 0, 2 => |b| b == 4, 3 => |b| b <= 1, 4 => |b| b <= 1,
        5 => |b| b == 0, 6 => |b| b == 2);
    Fit::Yes
}

/// `Protocol::HandshakeV10`, or the error that a server sends instead of it.
fn mysql_greeting(bytes: &[u8]) -> Fit {
    check!(bytes:
        1 => |b| b <= 3, 2 => |b| b == 0, 3 => |b| b == 0, 4 => |b| b == 10 || b == 0xff);
    if bytes[4] == 0xff {
        // ER_HOST_IS_BLOCKED, ER_HOST_NOT_PRIVILEGED, ER_CON_COUNT_ERROR: 1129, 1130, 1040.
        check!(bytes: 6 => |b| b == 4);
        return yes([0x69, 0x6a, 0x10].contains(&bytes[5]));
    }
    check!(bytes: 5 => |b| b.is_ascii_digit(), 6 => |b| b.is_ascii_digit() || b == b'.',
        7 => |b| b.is_ascii_digit() || b == b'.');
    Fit::Yes
}

/// A start-up message of protocol 3, or one of the requests that look like it.
fn postgresql_startup(bytes: &[u8]) -> Fit {
    check!(bytes: 0 => |b| b == 0, 1 => |b| b == 0, 2 => |b| b <= 0x27);
    let Some(code) = bytes.get(4..8) else {
        // Both codes are excluded early, so that other protocols need not wait.
        return match bytes.get(4) {
            Some(0 | 4) | None => Fit::More,
            Some(_) => Fit::No,
        };
    };
    match code {
        // SSLRequest, GSSENCRequest; CancelRequest.
        [4, 0xd2, 0x16, 0x2f | 0x30] => yes(bytes[2..4] == [0, 8]),
        [4, 0xd2, 0x16, 0x2e] => yes(bytes[2..4] == [0, 16]),
        [0, 3, 0, 0] => {
            check!(bytes: 8 => |b| b.is_ascii_lowercase(), 9 => |b| b.is_ascii_lowercase());
            Fit::Yes
        }
        _ => Fit::No,
    }
}

/// An X.224 connection request over TPKT, with the cookie or the negotiation request of [MS-RDPBCGR] §2.2.1.1 behind it,
/// or nothing.
fn rdp_request(bytes: &[u8]) -> Fit {
    check!(bytes: 0 => |b| b == 3, 1 => |b| b == 0, 2 => |b| b <= 2, 5 => |b| b == 0xe0,
        6 => |b| b == 0, 7 => |b| b == 0, 10 => |b| b == 0);
    if bytes[2..4] == [0, 11] {
        return Fit::Yes;
    }
    match &bytes[11..] {
        [] => Fit::More,
        [b'C', ..] => one_of(&[b"Cookie:"], &bytes[11..], |a, b| a == b),
        [1, rest @ ..] => match rest {
            [] | [_] => Fit::More,
            [_, 8, ..] => Fit::Yes,
            _ => Fit::No,
        },
        _ => Fit::No,
    }
}

/// A NetBIOS session message (RFC 1002 §4.3.1) with a header of SMB 1 (`ff`), 2 (`fe`), 3 encrypted (`fd`) or
/// compressed (`fc`).
fn smb(bytes: &[u8]) -> Fit {
    check!(bytes: 0 => |b| b == 0, 4 => |b| b >= 0xfc, 5 => |b| b == b'S', 6 => |b| b == b'M', 7 => |b| b == b'B');
    Fit::Yes
}

/// CONNECT: the remaining length, the protocol's name, its level.
fn mqtt_connect(bytes: &[u8]) -> Fit {
    check!(bytes: 0 => |b| b == 0x10);
    let mut at = 1;
    loop {
        match bytes.get(at) {
            None => return Fit::More,
            Some(byte) if byte & 0x80 == 0 => break,
            Some(_) if at == 4 => return Fit::No,
            Some(_) => at += 1,
        }
    }
    one_of(&[b"\0\x04MQTT", b"\0\x06MQIsdp"], &bytes[at + 1..], |a, b| a == b)
        .or_more(&bytes[at + 1..])
}

impl Fit {
    /// No bytes are no answer.
    fn or_more(self, bytes: &[u8]) -> Self {
        if bytes.is_empty() { Self::More } else { self }
    }
}

/// A header with the magic cookie, behind the two bytes of length that TURN over TCP does not have (RFC 8489 §6.2.2).
fn stun(bytes: &[u8]) -> Fit {
    check!(bytes: 0 => |b| b <= 1, 1 => |b| b <= 0x1f, 3 => |b| b & 3 == 0, 4 => |b| b == 0x21,
        5 => |b| b == 0x12, 6 => |b| b == 0xa4, 7 => |b| b == 0x42);
    Fit::Yes
}

/// A method, a space, then one of the targets.
fn request_of(bytes: &[u8], methods: &[&[u8]], targets: &[&[u8]]) -> Fit {
    match one_of(methods, bytes, |a, b| a == b) {
        Fit::Yes => {
            let space = bytes.iter().position(|b| *b == b' ').unwrap_or(bytes.len());
            let target = &bytes[(space + 1).min(bytes.len())..];
            one_of(targets, target, |a, b| a == b.to_ascii_lowercase()).or_more(target)
        }
        fit => fit,
    }
}

fn rtsp_request(bytes: &[u8]) -> Fit {
    let methods: &[&[u8]] = &[
        b"OPTIONS ",
        b"DESCRIBE ",
        b"ANNOUNCE ",
        b"SETUP ",
        b"PLAY ",
        b"PAUSE ",
        b"TEARDOWN ",
        b"GET_PARAMETER ",
        b"SET_PARAMETER ",
        b"RECORD ",
        b"REDIRECT ",
    ];
    request_of(bytes, methods, &[b"rtsp:", b"* rtsp/"])
}

pub(super) const SIP_METHODS: &[&[u8]] = &[
    b"INVITE ",
    b"REGISTER ",
    b"OPTIONS ",
    b"ACK ",
    b"BYE ",
    b"CANCEL ",
    b"SUBSCRIBE ",
    b"NOTIFY ",
    b"MESSAGE ",
    b"PUBLISH ",
    b"PRACK ",
    b"REFER ",
    b"INFO ",
    b"UPDATE ",
];

fn sip_request(bytes: &[u8]) -> Fit {
    request_of(bytes, SIP_METHODS, &[b"sip:", b"sips:"])
}

/// An LDAPMessage (RFC 4511 §4.1.1): its length, its number, the operation.
fn ldap(bytes: &[u8], operations: &[u8]) -> Fit {
    check!(bytes: 0 => |b| b == 0x30);
    let Some(&len) = bytes.get(1) else { return Fit::More };
    let at = match len {
        0..=0x7f => 2,
        0x81..=0x84 => 2 + usize::from(len & 7),
        _ => return Fit::No,
    };
    match bytes.get(at) {
        None => return Fit::More,
        Some(2) => {}
        Some(_) => return Fit::No,
    }
    let number_len = match bytes.get(at + 1) {
        None => return Fit::More,
        Some(&len @ 1..=4) => usize::from(len),
        Some(_) => return Fit::No,
    };
    match bytes.get(at + 2 + number_len) {
        None => Fit::More,
        Some(operation) => yes(operations.contains(operation)),
    }
}

fn ldap_request(bytes: &[u8]) -> Fit {
    ldap(bytes, &[0x60, 0x42, 0x63, 0x66, 0x68, 0x4a, 0x6c, 0x6e, 0x50, 0x77])
}

fn ldap_response(bytes: &[u8]) -> Fit {
    ldap(bytes, &[0x61, 0x64, 0x65, 0x67, 0x69, 0x6b, 0x6d, 0x6f, 0x73, 0x78, 0x79])
}

/// A tag, then a command that may come first.
fn imap_command(bytes: &[u8]) -> Fit {
    let tag = bytes.iter().take_while(|b| b.is_ascii_alphanumeric() || b"._-".contains(b)).count();
    match bytes.get(tag) {
        None if tag <= 12 => Fit::More,
        Some(b' ') if (1..=12).contains(&tag) => {
            let commands: &[&[u8]] = &[
                b"CAPABIL", b"LOGIN ", b"AUTHENT", b"STARTTL", b"NOOP\r", b"LOGOUT", b"ID ",
                b"SELECT ", b"ENABLE ",
            ];
            words_fit(commands, &bytes[tag + 1..]).or_more(&bytes[tag + 1..])
        }
        _ => Fit::No,
    }
}

/// A prefix and a numeric or NOTICE, or a command of servers.
fn irc_reply(bytes: &[u8]) -> Fit {
    if bytes[0] != b':' {
        return words_fit(&[b"NOTICE ", b"ERROR :", b"PING :"], bytes);
    }
    match bytes.iter().find(|b| !(b.is_ascii_alphanumeric() || b":.-_!~@[]\\`^{}|".contains(b))) {
        // A long name of a server fills the prefix.
        None if bytes.len() == PREFIX => Fit::Yes,
        None => Fit::More,
        Some(b' ') => Fit::Yes,
        Some(_) => Fit::No,
    }
}

/// Digits up to CR LF, at least one.
fn number_line(bytes: &[u8]) -> Fit {
    let digits = bytes.iter().take_while(|b| b.is_ascii_digit()).count();
    match &bytes[digits..] {
        [] => Fit::More,
        [b'\r'] if digits > 0 => Fit::More,
        [b'\r', b'\n', ..] if digits > 0 => Fit::Yes,
        _ => Fit::No,
    }
}

/// A command in a line by itself: its words are those of any text, so an answer has to say the same.
fn redis_inline(bytes: &[u8]) -> Fit {
    let words: &[&[u8]] = &[
        b"PING\r",
        b"PING\n",
        b"AUTH ",
        b"HELLO\r",
        b"HELLO 2",
        b"HELLO 3",
        b"INFO\r",
        b"INFO\n",
        b"SET ",
        b"GET ",
        b"CLIENT ",
        b"SELECT 0",
        b"SELECT 1",
        b"CONFIG GET ",
        b"CONFIG SET ",
        b"MONITOR\r",
        b"COMMAND\r",
        b"COMMAND DOCS",
        b"COMMAND INFO",
        b"COMMAND COUNT",
        b"SUBSCRIBE ",
        b"QUIT\r",
    ];
    words_fit(words, bytes)
}

/// An array of strings.
fn redis_command(bytes: &[u8]) -> Fit {
    if bytes[0] != b'*' {
        return Fit::No;
    }
    match number_line(&bytes[1..]) {
        Fit::Yes => {
            let line = bytes.iter().position(|b| *b == b'\n').unwrap_or(0);
            match bytes.get(line + 1) {
                None => Fit::More,
                Some(byte) => yes(*byte == b'$'),
            }
        }
        fit => fit,
    }
}

/// A value of RESP 2 or 3.
fn redis_reply(bytes: &[u8]) -> Fit {
    match bytes[0] {
        b'+' => match bytes {
            // Not POP3's banner, which says more than OK.
            [_, b'O', b'K', b'\r', ..] | [_, b'P', b'O', b'N', ..] | [_, b'Q', b'U', b'E', ..] => {
                Fit::Yes
            }
            [_] | [_, b'O' | b'P' | b'Q'] => Fit::More,
            [_, b'O', b'K'] | [_, b'P', b'O'] | [_, b'Q', b'U'] => Fit::More,
            _ => Fit::No,
        },
        b'-' => words_fit(
            &[b"-ERR ", b"-NOAUTH", b"-WRONG", b"-DENIED", b"-MOVED", b"-LOADING", b"-NOPERM"],
            bytes,
        ),
        b'$' | b'*' | b'%' | b'~' | b'>' | b':' => match bytes.get(1) {
            Some(b'-') => number_line(&bytes[2..]),
            _ => number_line(&bytes[1..]),
        },
        _ => Fit::No,
    }
}

/// The header of MODBUS Messaging on TCP/IP §3.1.3 and a function. A server's begins in the same way.
fn modbus(bytes: &[u8]) -> Fit {
    check!(bytes: 2 => |b| b == 0, 3 => |b| b == 0, 4 => |b| b == 0, 5 => |b| (2..=254).contains(&b));
    Fit::Yes
}

fn modbus_request(bytes: &[u8]) -> Fit {
    match modbus(bytes) {
        Fit::Yes => {
            check!(bytes: 7 => |b| (1..0x80).contains(&b));
            Fit::Yes
        }
        fit => fit,
    }
}

fn modbus_response(bytes: &[u8]) -> Fit {
    match modbus(bytes) {
        Fit::Yes => {
            check!(bytes: 7 => |b| b & 0x7f != 0);
            Fit::Yes
        }
        fit => fit,
    }
}

/// What is behind lengths of 0, of messages that are none.
fn behind_nothing(mut bytes: &[u8]) -> &[u8] {
    while let [0, 0, rest @ ..] = bytes {
        bytes = rest;
    }
    bytes
}

/// A length (RFC 1035 §4.2.2), a header with one question, and the first label.
fn dns(bytes: &[u8], response: bool) -> Fit {
    let bytes = behind_nothing(bytes);
    // No message is shorter than its header and a question.
    if let [0, 0..17, ..] = bytes {
        return Fit::No;
    }
    let Some(flags) = bytes.get(4) else { return Fit::More };
    if (flags & 0x80 != 0) != response || flags & 0x78 > 0x28 {
        return Fit::No;
    }
    check!(bytes: 5 => |b| b & 0x40 == 0, 6 => |b| b == 0, 7 => |b| b == 1);
    if !response {
        check!(bytes: 8 => |b| b == 0, 9 => |b| b <= 1, 10 => |b| b == 0);
    }
    check!(bytes: 14 => |b| b < 64);
    Fit::Yes
}

fn dns_query(bytes: &[u8]) -> Fit {
    dns(bytes, false)
}

fn dns_response(bytes: &[u8]) -> Fit {
    dns(bytes, true)
}

/// The same with any operation, flags and counts. Alone it is DNS on its port only.
fn odd_dns(bytes: &[u8], response: bool) -> Fit {
    match odd_message(behind_nothing(bytes), response) {
        // The lengths of 0 have left too little to refute it.
        Fit::More if bytes.len() == PREFIX => Fit::Yes,
        fit => fit,
    }
}

fn odd_message(bytes: &[u8], response: bool) -> Fit {
    if let [0, 0..17, ..] = bytes {
        return Fit::No;
    }
    let Some(flags) = bytes.get(4) else { return Fit::More };
    if (flags & 0x80 != 0) != response {
        return Fit::No;
    }
    check!(bytes: 6 => |b| b == 0, 7 => |b| b != 0, 14 => |b| b < 64);
    Fit::Yes
}

fn odd_dns_query(bytes: &[u8]) -> Fit {
    odd_dns(bytes, false)
}

fn odd_dns_response(bytes: &[u8]) -> Fit {
    odd_dns(bytes, true)
}

/// A length and a reset.
fn openvpn(bytes: &[u8], kinds: [u8; 2]) -> Fit {
    let &[high, low, kind, ..] = bytes else { return Fit::More };
    let len = usize::from(u16::from_be_bytes([high, low]));
    yes(kinds.contains(&kind) && is_openvpn_reset(kind, len))
}

fn openvpn_client(bytes: &[u8]) -> Fit {
    openvpn(bytes, [0x38, 0x50])
}

fn openvpn_server(bytes: &[u8]) -> Fit {
    openvpn(bytes, [0x40; 2])
}

/// A known method, or another word in capitals before a path, and blanks as servers take them; a method in small letters, a
/// command elsewhere, only before a path.
fn http_request(bytes: &[u8]) -> Fit {
    let is_blank = |byte: &&u8| is_blank(**byte);
    let start = bytes.iter().take_while(|byte| is_blank(byte) || **byte == b'\n').count();
    let line = &bytes[start..];
    let method = line.iter().take_while(|b| b.is_ascii_alphabetic() || **b == b'-').count();
    let (word, rest) = line.split_at(method);
    let blanks = rest.iter().take_while(is_blank).count();
    let is_upper = word.iter().all(|b| !b.is_ascii_lowercase());
    match (&rest[blanks..], is_upper) {
        ([], _) if blanks == 0 || method >= 2 => Fit::More,
        (_, true) if blanks > 0 && HTTP.contains(&word) => Fit::Yes,
        ([b'/', ..], is_upper) if blanks > 0 && method >= 2 => {
            yes(is_upper || HTTP.contains(&&word.to_ascii_uppercase()[..]))
        }
        (target @ [b'h', ..], true) if blanks > 0 && method >= 2 => {
            one_of(&[b"http://", b"https://"], target, |a, b| a == b)
        }
        _ => Fit::No,
    }
}
