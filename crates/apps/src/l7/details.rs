//! What the first messages of a flow say: names and fingerprints, by the parsers of [`l7proto`].
//!
//! Bytes are kept until the protocol is known, and shown to its parser then. Each parser has a bound, and strings have one
//! ([`TEXT_MAX`]); nothing is kept when there is no more to be read.

use flowlog::json::Object;
use l7proto::dns::{self, NAME_MAX};
use l7proto::http1::{Field, Head, Progress as HeadProgress};
use l7proto::quic::{InitialReader, Progress as InitialProgress};
use l7proto::tls::hex;
use l7proto::tls::{
    ClientHello, HelloReader, Ja4Transport, Progress as HelloProgress, ServerHello,
};
use l7proto::{Direction, Protocol, Transport};

/// Bytes of a side that wait for a protocol.
const WAITING_MAX: usize = 2048;
/// Bytes of a head of HTTP, or of a message of DNS, that are kept.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// Bytes of a name.
pub const TEXT_MAX: usize = 255;
/// Protocols of ALPN that are kept.
const ALPN_MAX: usize = 16;

/// What was read; small, for each flow has it until it is reported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Host, program and query, one after the other, and where each of them ends: none is empty but where there is none.
    texts: Box<str>,
    ends: [u16; 3],
    /// Of the hellos of TLS, also in QUIC.
    pub tls: Option<Box<TlsFacts>>,
}

/// Each byte of a text becomes a letter of three bytes at most.
const _: () = assert!(3 * 3 * TEXT_MAX <= u16::MAX as usize);

/// What was read of hellos.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFacts {
    /// The server's name in a ClientHello (SNI).
    pub sni: Option<String>,
    /// Protocols that the client offers (ALPN).
    pub alpn: Vec<String>,
    /// The one that the server chose, where it says so in the clear.
    pub alpn_chosen: Option<String>,
    /// The version of TLS that the server chose.
    pub tls_version: Option<String>,
    /// Fingerprint of the client.
    pub ja3: Option<String>,
    /// Fingerprint of the server.
    pub ja3s: Option<String>,
    /// Fingerprint of the client.
    pub ja4: Option<String>,
}

impl Facts {
    /// `Host` of the first request of HTTP.
    pub fn host(&self) -> Option<&str> {
        self.text(0)
    }

    /// `User-Agent` of the first request of HTTP.
    pub fn user_agent(&self) -> Option<&str> {
        self.text(1)
    }

    /// The name of the first question of DNS.
    pub fn query(&self) -> Option<&str> {
        self.text(2)
    }

    fn text(&self, number: usize) -> Option<&str> {
        let start = if number == 0 { 0 } else { self.ends[number - 1] };
        let text = self.texts.get(start.into()..self.ends[number].into())?;
        Some(text).filter(|text| !text.is_empty())
    }

    /// Keeps these texts, in place of those before, as text that others have sent.
    fn set_texts(&mut self, texts: [&[u8]; 3]) {
        let mut all = String::with_capacity(texts.iter().map(|own| own.len().min(TEXT_MAX)).sum());
        for (text, end) in texts.into_iter().zip(&mut self.ends) {
            push_text(&mut all, text);
            *end = all.len() as u16; // see above
        }
        self.texts = all.into_boxed_str();
    }

    /// The name of what the flow is about.
    pub fn name(&self) -> Option<&str> {
        let sni = self.tls.as_ref().and_then(|tls| tls.sni.as_deref());
        sni.or(self.host()).or(self.query())
    }

    /// Adds the fields to an object; those that are not known are left out.
    pub fn write(&self, to: &mut Object<'_>) {
        fn text(to: &mut Object<'_>, name: &'static str, value: Option<&str>) {
            if let Some(value) = value {
                to.string(name, value);
            }
        }
        if let Some(tls) = &self.tls {
            text(to, "sni", tls.sni.as_deref());
            if !tls.alpn.is_empty() {
                to.list("alpn", tls.alpn.iter().map(|own| own.as_bytes()));
            }
            text(to, "alpn_chosen", tls.alpn_chosen.as_deref());
            text(to, "tls_version", tls.tls_version.as_deref());
            text(to, "ja3", tls.ja3.as_deref());
            text(to, "ja3s", tls.ja3s.as_deref());
            text(to, "ja4", tls.ja4.as_deref());
        }
        text(to, "host", self.host());
        text(to, "user_agent", self.user_agent());
        text(to, "query", self.query());
    }

    /// What a request says, whose bytes these are.
    fn request(&mut self, head: &Head, bytes: &[u8]) {
        let field = |field| head.field(field).map_or(&[][..], |span| span.of(bytes));
        self.set_texts([field(Field::Host), field(Field::UserAgent), &[]]);
    }

    /// Whether a hello of a client, of a server was read.
    fn hellos(&self) -> [bool; 2] {
        let tls = self.tls.as_ref();
        [tls.is_some_and(|tls| tls.ja3.is_some()), tls.is_some_and(|tls| tls.ja3s.is_some())]
    }
}

/// A parser at work.
enum Reader {
    /// The protocol is not known: what has come of each side, if anything has.
    Waiting(Option<Box<[Vec<u8>; 2]>>),
    Http(Box<[(Head, Vec<u8>); 2]>),
    Tls(Box<[HelloReader; 2]>),
    Quic(Box<[InitialReader; 2]>),
    /// DNS over TCP.
    Dns(Box<[Vec<u8>; 2]>),
    /// There is no more to be read.
    Over,
}

/// Reads the first messages of one flow.
pub struct Details {
    transport: Transport,
    reader: Reader,
    protocol: Option<Protocol>,
    facts: Facts,
}

impl std::fmt::Debug for Details {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Details").field("facts", &self.facts).finish_non_exhaustive()
    }
}

impl Details {
    /// Of a flow of which nothing is known.
    pub fn new(transport: Transport) -> Self {
        let reader = Reader::Waiting(None);
        Self { transport, reader, protocol: None, facts: Facts::default() }
    }

    /// What was read.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The same, of a flow whose details are no more read.
    pub fn into_facts(self) -> Facts {
        self.facts
    }

    /// Whether there is no more to be read.
    pub fn is_over(&self) -> bool {
        matches!(self.reader, Reader::Over)
    }

    /// Nothing more comes.
    pub fn finish(&mut self) {
        self.reader = Reader::Over;
    }

    /// Takes the next bytes of a side, or a datagram, of a flow whose protocol so far is this, settled or not.
    pub fn feed(
        &mut self,
        direction: Direction,
        bytes: &[u8],
        protocol: Option<Protocol>,
        is_settled: bool,
    ) {
        if self.is_over() {
            return;
        }
        if self.protocol != protocol && self.protocol.is_some() {
            // It looked like another one: what was read is of that.
            (self.facts, self.reader) = (Facts::default(), Reader::Over);
            return;
        }
        self.protocol = protocol;
        if let Reader::Waiting(waiting) = &mut self.reader {
            let Some(protocol) = protocol else {
                let own = &mut waiting.get_or_insert_default()[direction as usize];
                if self.transport == Transport::Stream {
                    own.extend_from_slice(&bytes[..bytes.len().min(WAITING_MAX - own.len())]);
                }
                // What is cut cannot be read later.
                if is_settled || own.len() == WAITING_MAX {
                    self.reader = Reader::Over;
                }
                return;
            };
            let waiting = waiting.take();
            if protocol == Protocol::Http1
                && self.transport == Transport::Stream
                && waiting.is_none()
            {
                // Nearly every request is in one segment: nothing of it is kept.
                let mut head = Head::new();
                if head.feed(bytes) != HeadProgress::More && head.method().is_some() {
                    let kept = &bytes[..bytes.len().min(HEAD_BYTES_MAX)];
                    self.facts.request(&head, kept);
                    self.reader = Reader::Over;
                    return;
                }
            }
            self.reader = self.reader_for(protocol);
            if let Some(waiting) = waiting.filter(|_| self.transport == Transport::Stream) {
                self.read(Direction::Opener, &waiting[0]);
                self.read(Direction::Responder, &waiting[1]);
            }
        }
        self.read(direction, bytes);
    }

    fn reader_for(&self, protocol: Protocol) -> Reader {
        match (protocol, self.transport) {
            (Protocol::Http1, Transport::Stream) => Reader::Http(Box::default()),
            (Protocol::Tls, Transport::Stream) => Reader::Tls(<_>::default()),
            (Protocol::Quic, Transport::Datagram) => Reader::Quic(Box::new([
                InitialReader::new(Direction::Opener),
                InitialReader::new(Direction::Responder),
            ])),
            (Protocol::Dns, Transport::Stream) => Reader::Dns(<_>::default()),
            (Protocol::Dns | Protocol::Mdns, Transport::Datagram) => Reader::Dns(<_>::default()),
            _ => Reader::Over,
        }
    }

    fn read(&mut self, direction: Direction, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let (at, facts) = (direction as usize, &mut self.facts);
        let is_over = match &mut self.reader {
            Reader::Http(heads) => {
                let (head, kept) = &mut heads[at];
                let is_full = kept.len() >= HEAD_BYTES_MAX;
                kept.extend_from_slice(&bytes[..bytes.len().min(HEAD_BYTES_MAX - kept.len())]);
                let is_read = head.feed(bytes) != HeadProgress::More || is_full;
                let is_request = head.method().is_some();
                if is_request {
                    facts.request(head, kept);
                }
                is_request && is_read
            }
            Reader::Tls(readers) => {
                let progress = readers[at].feed(bytes);
                if progress == HelloProgress::Done {
                    if let Some(hello) = readers[at].client_hello() {
                        client(&hello, Ja4Transport::Tcp, facts);
                    } else if let Some(hello) = readers[at].server_hello() {
                        server(&hello, facts);
                    }
                }
                let is_failed = matches!(progress, HelloProgress::Failed(_));
                is_failed || facts.hellos() == [true; 2]
            }
            Reader::Quic(readers) => {
                let mut are_over = true;
                for reader in readers.iter_mut() {
                    are_over &= reader.feed(direction, bytes) != InitialProgress::More;
                }
                if let Some(hello) = readers[0].client_hello().filter(|_| !facts.hellos()[0]) {
                    client(&hello, Ja4Transport::Quic, facts);
                }
                if let Some(hello) = readers[1].server_hello().filter(|_| !facts.hellos()[1]) {
                    server(&hello, facts);
                }
                are_over
            }
            Reader::Dns(kept) => {
                let message = match self.transport {
                    Transport::Datagram => Some(bytes),
                    Transport::Stream => {
                        let own = &mut kept[at];
                        own.extend_from_slice(
                            &bytes[..bytes.len().min(HEAD_BYTES_MAX - own.len())],
                        );
                        dns::tcp_message(own).map(|(message, _)| message)
                    }
                };
                if let Some(message) = message {
                    question(message, facts);
                }
                message.is_some() || kept[at].len() == HEAD_BYTES_MAX
            }
            Reader::Waiting(_) | Reader::Over => false,
        };
        if is_over {
            self.reader = Reader::Over;
        }
    }
}

/// A name that others have sent: cut, and with nothing in it that is not text.
fn text(bytes: &[u8]) -> Option<String> {
    let mut text = String::new();
    push_text(&mut text, bytes);
    (!text.is_empty()).then_some(text)
}

/// Appends such a name.
fn push_text(to: &mut String, bytes: &[u8]) {
    let bytes = bytes.trim_ascii();
    let cut = &bytes[..bytes.len().min(TEXT_MAX)];
    // Nearly always all of it is as it may stay.
    if let Some(text) =
        str::from_utf8(cut).ok().filter(|_| cut.iter().all(|b| matches!(b, b' '..=b'~')))
    {
        return to.push_str(text);
    }
    let text = String::from_utf8_lossy(cut);
    to.extend(text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }));
}

fn client(hello: &ClientHello<'_>, transport: Ja4Transport, facts: &mut Facts) {
    let facts = facts.tls.get_or_insert_default();
    facts.sni = hello.server_name().and_then(text);
    facts.alpn = hello.alpn().take(ALPN_MAX).filter_map(text).collect();
    facts.ja3 = Some(hex(&hello.ja3()));
    facts.ja4 = Some(hello.ja4(transport));
}

fn server(hello: &ServerHello<'_>, facts: &mut Facts) {
    let facts = facts.tls.get_or_insert_default();
    facts.ja3s = Some(hex(&hello.ja3s()));
    facts.alpn_chosen = hello.alpn().and_then(text);
    facts.tls_version = Some(match hello.version() {
        0x0002 => "SSL 2".to_owned(),
        0x0300 => "SSL 3".to_owned(),
        0x0301 => "TLS 1.0".to_owned(),
        0x0302 => "TLS 1.1".to_owned(),
        0x0303 => "TLS 1.2".to_owned(),
        0x0304 => "TLS 1.3".to_owned(),
        other => format!("{other:#06x}"),
    });
}

/// The name of the first question of a message, if there is one.
fn question(message: &[u8], facts: &mut Facts) {
    let mut buffer = [0; 4 * NAME_MAX];
    let message = dns::Message::parse(message);
    let question = message.and_then(|message| message.questions().next());
    let name = question.and_then(|question| question.name.write(&mut buffer));
    facts.set_texts([&[], &[], name.map_or(&[], str::as_bytes)]);
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        /// A request says the same in one segment, which goes the short way, as in two.
        #[test]
        fn requests_say_the_same_however_they_are_cut(
            text in "(GET|POST|G T) /[a-z ]{0,6}( HTTP/1\\.[01])?\r?\n((Host|user-agent|X): ?[a-z\u{e4}]{0,9}\r?\n){0,4}\r?\n.{0,5}",
            cut in proptest::prelude::any::<proptest::sample::Index>(),
        ) {
            let bytes = text.as_bytes();
            let read = |parts: &[&[u8]]| {
                let mut details = Details::new(Transport::Stream);
                for part in parts.iter().filter(|part| !part.is_empty()) {
                    details.feed(Direction::Opener, part, Some(Protocol::Http1), false);
                }
                (details.is_over(), details.into_facts())
            };
            let (a, b) = bytes.split_at(cut.index(bytes.len()));
            proptest::prop_assert_eq!(read(&[bytes]), read(&[a, b]));
        }
    }

    /// All fields, by their names and in their order.
    #[test]
    fn facts_are_written_as_fields() {
        let text = |text: &str| Some(text.to_owned());
        let tls = TlsFacts {
            sni: text("a.example"),
            alpn: vec!["h2".into(), "x\"y".into()],
            alpn_chosen: text("h2"),
            tls_version: text("TLS 1.3"),
            ja3: text("3"),
            ja3s: text("3s"),
            ja4: text("4"),
        };
        let mut facts = Facts { tls: Some(Box::new(tls)), ..Facts::default() };
        facts.set_texts([b"h", b"u", b"q"]);
        let written = |facts: &Facts| {
            let mut out = Vec::new();
            let mut line = Object::begin(&mut out);
            facts.write(&mut line);
            line.end();
            String::from_utf8(out).unwrap()
        };
        let expected = r#"{"sni":"a.example","alpn":["h2","x\"y"],"alpn_chosen":"h2","tls_version":"TLS 1.3","ja3":"3","ja3s":"3s","ja4":"4","host":"h","user_agent":"u","query":"q"}"#;
        assert_eq!(written(&facts), expected);
        assert_eq!(facts.name(), Some("a.example"));
        assert_eq!(written(&Facts::default()), "{}");
    }

    /// Texts are side by side, and none of them is as if there were none.
    #[test]
    fn texts_are_apart() {
        let mut facts = Facts::default();
        let long = [0xff; TEXT_MAX + 1];
        let letters = char::REPLACEMENT_CHARACTER.to_string().repeat(TEXT_MAX);
        facts.set_texts([&long, &long, &long]);
        let all = [facts.host(), facts.user_agent(), facts.query()];
        assert_eq!(all, [Some(letters.as_str()); 3]);
        facts.set_texts([b" ", b" x ", b""]);
        let all = [facts.host(), facts.user_agent(), facts.query()];
        assert_eq!((all, facts.name()), ([None, Some("x"), None], None));
    }

    /// What is printable goes the short way; the long one gives the same.
    #[test]
    fn names_are_text() {
        for (bytes, expected) in [
            (b"www.example.com".as_slice(), Some("www.example.com")),
            (b" a b\t", Some("a b")),
            (b"a\x01b\x7f", Some("a\u{fffd}b\u{fffd}")),
            (b"\xc3\xbc\xff", Some("\u{fc}\u{fffd}")),
            (b"  ", None),
            (b"", None),
        ] {
            assert_eq!(text(bytes).as_deref(), expected);
        }
        let long = [b'x'; TEXT_MAX + 1];
        assert_eq!(text(&long).unwrap().len(), TEXT_MAX);
    }
}
