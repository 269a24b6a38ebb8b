//! What is known of a transaction, for logs and for keywords that are no buffers.

use std::net::{Ipv4Addr, Ipv6Addr};

use l7proto::Protocol;

use crate::sink::Direction;

/// A request and its response, or what a protocol has instead.
#[derive(Clone, Debug, PartialEq)]
pub struct Transaction {
    /// Its number within the session, from 0.
    pub id: u64,
    /// When its first bytes came, in nanoseconds since 1970.
    pub start_ns: u64,
    /// When it last went on.
    pub last_ns: u64,
    /// Which sides are done: to the server, to the client.
    pub done: [bool; 2],
    /// It is the response to a request that was given up as too many were open: that one was reported as a transaction.
    pub is_late: bool,
    /// What it says.
    pub data: Data,
}

impl Transaction {
    /// Is this side's message complete?
    pub const fn is_done(&self, direction: Direction) -> bool {
        self.done[direction as usize]
    }

    /// The protocol.
    pub fn protocol(&self) -> Protocol {
        match &self.data {
            Data::Http(http) if http.is_http2() => Protocol::Http2,
            Data::Http(_) => Protocol::Http1,
            Data::Dns(_) => Protocol::Dns,
            Data::Tls(_) => Protocol::Tls,
            Data::Ssh(_) => Protocol::Ssh,
            Data::Smtp(_) => Protocol::Smtp,
            Data::Ftp(_) => Protocol::Ftp,
        }
    }

    /// What it costs to keep a request of HTTP or a mail, in bytes; `None` for other protocols.
    pub fn cost(&self) -> Option<usize> {
        match &self.data {
            Data::Http(own) => Some(own.cost()),
            Data::Smtp(own) => Some(own.cost()),
            _ => None,
        }
    }
}

/// What it costs to keep a text, beside its bytes: a vector in another one, and the allocator's share.
const TEXT_COST: usize = 40;

/// What a text costs.
pub(crate) const fn cost_of(text: &[u8]) -> usize {
    text.len() + TEXT_COST
}

/// By protocol.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Data {
    /// A request and its response.
    Http(Box<Http>),
    /// One message, a query or a response.
    Dns(Box<Dns>),
    /// The connection.
    Tls(Box<Tls>),
    /// The connection.
    Ssh(Box<Ssh>),
    /// A mail, or a session in which none was sent.
    Smtp(Box<Smtp>),
    /// A command and its replies.
    Ftp(Box<Ftp>),
}

impl Data {
    /// Bytes of memory that a transaction of TLS or SSH holds; of others, parsers know it.
    pub(crate) fn held(&self) -> usize {
        match self {
            Self::Tls(tls) => {
                let ja3 =
                    [&tls.ja3, &tls.ja3s].map(|own| own.as_ref().map_or(0, |own| own.0.len()));
                let texts = tls.sni.iter().chain(&tls.alpn_offered).chain(&tls.alpn);
                let certificates = tls.certificates.iter().flatten().map(|own| {
                    let texts = [&own.subject, &own.issuer, &own.serial, &own.fingerprint];
                    let texts = texts.into_iter().chain(&own.names);
                    let texts = texts.map(|text| cost_of(text.as_bytes())).sum::<usize>();
                    size_of::<Certificate>() + texts + own.der.len()
                });
                let texts = texts.map(|text| cost_of(text)).chain(ja3).chain(certificates);
                size_of::<Tls>() + texts.sum::<usize>()
            }
            Self::Ssh(ssh) => {
                let sides = ssh.sides.iter().flatten().map(|side| {
                    let texts = [&side.protocol, &side.software, &side.comments];
                    let lists = side.hassh_string.as_ref().map_or(0, String::len);
                    texts.map(|text| cost_of(text)).iter().sum::<usize>() + lists
                });
                size_of::<Ssh>() + sides.sum::<usize>()
            }
            _ => 0,
        }
    }
}

/// HTTP/1 and HTTP/2.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Http {
    /// Of the request; empty if that was not seen.
    pub method: Vec<u8>,
    /// The target as sent.
    pub uri_raw: Vec<u8>,
    /// Path and query, normalised (`http.uri`).
    pub uri: Vec<u8>,
    /// `HTTP/1.1`, as the request has it; empty in HTTP/0.9.
    pub request_protocol: Vec<u8>,
    /// The name of the server in lower case, without port: of the target, or of the field `Host`.
    pub host: Option<Vec<u8>>,
    /// The port behind it.
    pub port: Option<u16>,
    /// Fields of the request as sent, without spaces around values.
    pub request_headers: Vec<(Vec<u8>, Vec<u8>)>,
    /// `HTTP/1.1`, as the response has it.
    pub response_protocol: Vec<u8>,
    /// The status of the last response that is not `1xx` (or `101`).
    pub status: Option<u16>,
    /// Behind the status.
    pub reason: Vec<u8>,
    /// Fields of the response.
    pub response_headers: Vec<(Vec<u8>, Vec<u8>)>,
    /// Bytes of the bodies as sent, with the lines of chunks: request, response.
    pub body_bytes: [u64; 2],
    /// Bytes of the bodies, codings undone.
    pub decoded_bytes: [u64; 2],
}

impl Http {
    /// What it costs to keep it, in bytes.
    pub(crate) fn cost(&self) -> usize {
        let fields = self.request_headers.iter().chain(&self.response_headers);
        let fields = fields.map(|(name, value)| cost_of(name) + cost_of(value));
        let texts = [
            &self.method,
            &self.uri_raw,
            &self.uri,
            &self.request_protocol,
            self.host.as_ref().unwrap_or(&self.method),
            &self.response_protocol,
            &self.reason,
        ];
        let texts = texts.into_iter().map(|text| cost_of(text));
        size_of::<Self>() + fields.sum::<usize>() + texts.sum::<usize>()
    }

    /// Is it of HTTP/2?
    pub fn is_http2(&self) -> bool {
        [&self.request_protocol, &self.response_protocol].iter().any(|own| *own == b"HTTP/2")
    }

    /// The first field of this name, in any case.
    pub fn header(&self, direction: Direction, name: &str) -> Option<&[u8]> {
        let headers = match direction {
            Direction::ToServer => &self.request_headers,
            Direction::ToClient => &self.response_headers,
        };
        let found = headers.iter().find(|(found, _)| found.eq_ignore_ascii_case(name.as_bytes()));
        found.map(|(_, value)| &value[..])
    }
}

/// DNS (RFC 1035).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Dns {
    /// Joins query and response.
    pub id: u16,
    /// Its second word: QR, opcode, AA, TC, RD, RA, AD, CD, rcode.
    pub flags: u16,
    /// The response code, with the part in an OPT record.
    pub rcode: u16,
    /// What is asked.
    pub questions: Vec<DnsQuestion>,
    /// First section.
    pub answers: Vec<DnsRecord>,
    /// Second section.
    pub authorities: Vec<DnsRecord>,
    /// Third section, with OPT.
    pub additionals: Vec<DnsRecord>,
    /// Sections are cut short: a record is broken, or there are more than the limit.
    pub is_cut: bool,
}

impl Dns {
    /// Is it a response?
    pub const fn is_response(&self) -> bool {
        self.flags & 0x8000 != 0
    }

    /// The operation; 0 for a query.
    pub const fn opcode(&self) -> u8 {
        (self.flags >> 11 & 15) as u8
    }
}

/// A question.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DnsQuestion {
    /// The bytes of the labels, joined by dots, without the last one.
    pub name: Vec<u8>,
    /// Type.
    pub kind: u16,
    /// Class.
    pub class: u16,
}

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsRecord {
    /// As in a question.
    pub name: Vec<u8>,
    /// Type.
    pub kind: u16,
    /// Class.
    pub class: u16,
    /// Seconds that it may be kept.
    pub ttl_s: u32,
    /// What it says.
    pub data: DnsData,
}

/// Data of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DnsData {
    /// A.
    A(Ipv4Addr),
    /// AAAA.
    Aaaa(Ipv6Addr),
    /// NS, CNAME, PTR, DNAME, MB, MG, MR, MD, MF.
    Name(Vec<u8>),
    /// MX.
    Mx {
        /// The lowest is tried first.
        preference: u16,
        /// The mail server.
        name: Vec<u8>,
    },
    /// TXT, SPF: its strings.
    Txt(Vec<Vec<u8>>),
    /// SOA.
    Soa {
        /// The first server.
        mname: Vec<u8>,
        /// The mailbox.
        rname: Vec<u8>,
        /// Serial, refresh, retry, expire, minimum.
        numbers: [u32; 5],
    },
    /// SRV (RFC 2782).
    Srv {
        /// The lowest is tried first.
        priority: u16,
        /// Among those of one priority.
        weight: u16,
        /// Where it listens.
        port: u16,
        /// The server.
        name: Vec<u8>,
    },
    /// SSHFP (RFC 4255).
    Sshfp {
        /// Of the key.
        algorithm: u8,
        /// Of the digest.
        kind: u8,
        /// The digest.
        fingerprint: Vec<u8>,
    },
    /// CAA (RFC 8659).
    Caa {
        /// 128: critical.
        flags: u8,
        /// `issue`, …
        tag: Vec<u8>,
        /// What it is.
        value: Vec<u8>,
    },
    /// HTTPS and SVCB (RFC 9460).
    Svcb {
        /// 0: an alias.
        priority: u16,
        /// The target.
        name: Vec<u8>,
        /// Its parameters, as sent.
        parameters: Vec<u8>,
    },
    /// All else, or what is broken: the bytes.
    Other(Vec<u8>),
}

/// TLS, SSL 3.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// The version in force: that of the server's hello; of the client's while there is none.
    pub version: u16,
    /// The name that the client wants.
    pub sni: Option<Vec<u8>>,
    /// Protocols that the client offers.
    pub alpn_offered: Vec<Vec<u8>>,
    /// The one that the server chose, where it says so in the clear.
    pub alpn: Option<Vec<u8>>,
    /// The cipher suite that the server chose.
    pub cipher: Option<u16>,
    /// Random values of the hellos: client, server.
    pub random: [Option<[u8; 32]>; 2],
    /// Text and digest of JA3.
    pub ja3: Option<(String, [u8; 16])>,
    /// Text and digest of JA3S.
    pub ja3s: Option<(String, [u8; 16])>,
    /// JA4 of the client.
    pub ja4: Option<String>,
    /// Certificates of client and server, the own one first.
    pub certificates: [Vec<Certificate>; 2],
    /// The client offered a session or a ticket, and the server went on with it.
    pub is_resumed: bool,
    /// Encrypted records of both sides have come: the handshake is over.
    pub is_established: bool,
}

/// A certificate (RFC 5280).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Certificate {
    /// `C=…, O=…, CN=…`, in the order of the certificate.
    pub subject: String,
    /// Of who signed it.
    pub issuer: String,
    /// `0A:BC:…`
    pub serial: String,
    /// Seconds since 1970 from which it is valid.
    pub not_before: i64,
    /// Seconds since 1970 to which it is valid.
    pub not_after: i64,
    /// Alternative names of DNS.
    pub names: Vec<String>,
    /// SHA-1 of all of it: `aa:bb:…`
    pub fingerprint: String,
    /// Its bytes in DER.
    pub der: Vec<u8>,
    /// Its structure could be read.
    pub is_read: bool,
}

/// SSH.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ssh {
    /// Client and server.
    pub sides: [Option<SshSide>; 2],
}

/// One side of SSH.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SshSide {
    /// `2.0`
    pub protocol: Vec<u8>,
    /// Name and version of the program.
    pub software: Vec<u8>,
    /// Behind it.
    pub comments: Vec<u8>,
    /// The lists of which hassh (client) or hasshServer is the digest: `kex;encryption;mac;compression`.
    pub hassh_string: Option<String>,
    /// Hex digits of its MD5.
    pub hassh: Option<String>,
}

/// SMTP: a mail.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Smtp {
    /// The argument of `HELO` or `EHLO`.
    pub helo: Option<Vec<u8>>,
    /// The argument of `MAIL FROM:`, as sent, with its brackets.
    pub mail_from: Option<Vec<u8>>,
    /// Those of `RCPT TO:`.
    pub rcpt_to: Vec<Vec<u8>>,
    /// The header of the mail.
    pub email: Email,
    /// Codes of the replies: to `MAIL`, each `RCPT`, `DATA`, the end.
    pub replies: Vec<u16>,
}

impl Smtp {
    fn cost(&self) -> usize {
        let Self { helo, mail_from, rcpt_to, email, replies } = self;
        let texts = helo.iter().chain(mail_from).chain(rcpt_to).map(|text| cost_of(text));
        size_of::<Self>() + 2 * replies.len() + email.cost() + texts.sum::<usize>()
    }
}

/// The header of a mail (RFC 5322).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Email {
    /// All fields, unfolded, in order.
    pub fields: Vec<(Vec<u8>, Vec<u8>)>,
    /// Names of its attachments.
    pub attachments: Vec<Vec<u8>>,
    /// URLs in its text.
    pub urls: Vec<Vec<u8>>,
    /// The mail came to its end.
    pub is_complete: bool,
}

impl Email {
    /// What it costs to keep it, in bytes.
    pub fn cost(&self) -> usize {
        let fields = self.fields.iter().map(|(name, value)| cost_of(name) + cost_of(value));
        let texts = self.attachments.iter().chain(&self.urls).map(|text| cost_of(text));
        fields.sum::<usize>() + texts.sum::<usize>()
    }

    /// The first field of this name, in any case.
    pub fn field(&self, name: &str) -> Option<&[u8]> {
        let found = self.fields.iter().find(|(f, _)| f.eq_ignore_ascii_case(name.as_bytes()));
        found.map(|(_, value)| &value[..])
    }
}

/// FTP: a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ftp {
    /// As sent; empty for a reply without a command, such as the greeting.
    pub command: Vec<u8>,
    /// Its argument.
    pub argument: Vec<u8>,
    /// Code and text of each line of the replies; lines without a code have that of the line before.
    pub replies: Vec<(u16, Vec<u8>)>,
    /// The port of the data connection that `PORT`, `EPRT` or the reply to `PASV`, `EPSV` names.
    pub data_port: Option<u16>,
}
