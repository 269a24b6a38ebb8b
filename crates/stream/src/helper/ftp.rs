//! FTP: what the control connection says of data connections.
//!
//! | said by | line | who opens the data connection, and to where |
//! | --- | --- | --- |
//! | client | `PORT h1,h2,h3,h4,p1,p2` (RFC 959 §4.1.2) | the server, to this address and port |
//! | client | `EPRT \|1\|192.0.2.1\|6446\|` (RFC 2428 §2) | the server, to this address and port |
//! | server | `227 Entering Passive Mode (h1,h2,h3,h4,p1,p2)` (RFC 959; RFC 1123 §4.1.2.6) | the client, to this address and port |
//! | server | `229 Entering Extended Passive Mode (\|\|\|6446\|)` (RFC 2428 §3) | the client, to this port of the server |
//!
//! Lines are taken from the bytes of a side in order, over any number of segments. So nobody makes a command of the middle of
//! a line, whatever the sizes of segments. Of a side whose beginning was not seen, or behind a gap, the next line is the
//! first one. Telnet commands in a line (RFC 959 §3.1) are passed over. Lines of more than [`LINE_MAX`] bytes say nothing.
//! In a reply of several lines only the last one counts (RFC 959 §4.2).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;

/// The longest line that is looked at, in bytes.
pub const LINE_MAX: usize = 160;

/// The command or reply that announces a data connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// `PORT`.
    Port,
    /// `EPRT`.
    Eprt,
    /// The reply 227 to `PASV`.
    Pasv,
    /// The reply 229 to `EPSV`.
    Epsv,
}

/// A data connection that one end announces, and the other one opens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Announcement {
    /// How it is announced; by the client, or by the server.
    pub form: Form,
    /// The address to which it is opened; `None`: that of the end that announces it.
    pub address: Option<IpAddr>,
    /// The port to which it is opened; never 0.
    pub port: u16,
    /// Where the line is in the stream of its side, without its end: who translates addresses writes another one there.
    pub line: Range<u64>,
}

/// Telnet's interpret-as-command (RFC 854).
const IAC: u8 = 255;

/// Where the parser is in a Telnet command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Telnet {
    #[default]
    Text,
    /// After IAC.
    Command,
    /// After WILL, WON'T, DO or DON'T: an option follows.
    Option,
}

/// Puts the lines of one side together.
#[derive(Clone, Debug)]
struct Lines {
    bytes: [u8; LINE_MAX],
    len: usize,
    /// Offset of the line in the stream.
    begin: u64,
    /// Offset of the next byte.
    next: u64,
    /// The line is not looked at: it is too long, or its beginning was not seen.
    is_lost: bool,
    telnet: Telnet,
}

impl Lines {
    fn new(is_from_start: bool) -> Self {
        Self {
            bytes: [0; LINE_MAX],
            len: 0,
            begin: 0,
            next: 0,
            is_lost: !is_from_start,
            telnet: Telnet::Text,
        }
    }

    fn restart(&mut self, at: u64, is_lost: bool) {
        (self.len, self.begin, self.is_lost) = (0, at, is_lost);
    }

    fn push(&mut self, byte: u8) {
        match self.bytes.get_mut(self.len) {
            Some(place) => (*place, self.len) = (byte, self.len + 1),
            None => self.is_lost = true,
        }
    }

    /// Calls `line` with each line that `bytes` at `offset` of the stream end.
    fn feed(&mut self, offset: u64, bytes: &[u8], mut line: impl FnMut(&[u8], Range<u64>)) {
        if offset != self.next {
            self.restart(offset, true);
            self.telnet = Telnet::Text;
        }
        self.next = offset + bytes.len() as u64;
        for (at, &byte) in (offset..).zip(bytes) {
            self.telnet = match (self.telnet, byte) {
                (Telnet::Text, IAC) => Telnet::Command,
                (Telnet::Command, 251..=254) => Telnet::Option,
                (Telnet::Command, IAC) => {
                    self.push(IAC);
                    Telnet::Text
                }
                (Telnet::Command | Telnet::Option, _) => Telnet::Text,
                (Telnet::Text, b'\n') => {
                    if !self.is_lost {
                        let all = &self.bytes[..self.len];
                        let text = all.strip_suffix(b"\r").unwrap_or(all);
                        let end = at - (all.len() - text.len()) as u64;
                        line(text, self.begin..end);
                    }
                    self.restart(at + 1, false);
                    Telnet::Text
                }
                (Telnet::Text, _) => {
                    self.push(byte);
                    Telnet::Text
                }
            };
        }
    }
}

/// A control connection.
#[derive(Clone, Debug)]
pub struct Control {
    client: Lines,
    server: Lines,
    /// Code of the reply of several lines that is under way.
    several: Option<[u8; 3]>,
}

impl Control {
    /// Of whose sides the bytes are seen from the first one on: the client's, the server's.
    pub fn new(client_from_start: bool, server_from_start: bool) -> Self {
        Self {
            client: Lines::new(client_from_start),
            server: Lines::new(server_from_start),
            several: None,
        }
    }

    /// The next bytes of a side, at `offset` of its stream. Bytes between those before and these are a gap.
    pub fn feed(
        &mut self,
        is_client: bool,
        offset: u64,
        bytes: &[u8],
        mut found: impl FnMut(Announcement),
    ) {
        let Self { client, server, several } = self;
        if is_client {
            return client
                .feed(offset, bytes, |line, place| found_in(command(line), place, &mut found));
        }
        if offset != server.next {
            *several = None;
        }
        server.feed(offset, bytes, |line, place| {
            if is_reply_end(line, several) {
                found_in(reply(line), place, &mut found);
            }
        });
    }
}

type Found = (Form, Option<IpAddr>, u16);

fn found_in(what: Option<Found>, line: Range<u64>, found: &mut impl FnMut(Announcement)) {
    if let Some((form, address, port)) = what.filter(|(.., port)| *port != 0) {
        found(Announcement { form, address, port, line });
    }
}

/// Whether a line of the server is the only or the last one of its reply.
fn is_reply_end(line: &[u8], several: &mut Option<[u8; 3]>) -> bool {
    let (code, mark) = match line {
        [a, b, c, rest @ ..] if [a, b, c].into_iter().all(u8::is_ascii_digit) => {
            (Some([*a, *b, *c]), rest.first().copied())
        }
        _ => (None, None),
    };
    match (*several, code, mark) {
        (Some(begun), Some(code), Some(b' ') | None) if begun == code => {
            *several = None;
            true
        }
        (Some(_), ..) => false,
        (None, Some(code), Some(b'-')) => {
            *several = Some(code);
            false
        }
        (None, code, _) => code.is_some(),
    }
}

/// What a line of the client announces.
fn command(line: &[u8]) -> Option<Found> {
    let (word, rest) = line.split_at_checked(5)?;
    let text = rest.trim_ascii();
    if word.eq_ignore_ascii_case(b"PORT ") {
        let (address, port, behind) = six_numbers(text)?;
        return behind.is_empty().then_some((Form::Port, Some(address.into()), port));
    }
    if !word.eq_ignore_ascii_case(b"EPRT ") {
        return None;
    }
    let (family, address, port, behind) = extended(text)?;
    let address = match family {
        b"1" => IpAddr::V4(address.parse::<Ipv4Addr>().ok()?),
        b"2" => IpAddr::V6(address.parse::<Ipv6Addr>().ok()?),
        _ => return None,
    };
    behind.is_empty().then_some((Form::Eprt, Some(address), port))
}

/// What a reply of the server announces.
fn reply(line: &[u8]) -> Option<Found> {
    let (code, text) = line.split_at_checked(4)?;
    match code {
        b"227 " => passive(text),
        b"229 " => {
            let begin = text.iter().position(|byte| *byte == b'(')?;
            let (family, address, port, behind) = extended(&text[begin + 1..])?;
            let is_right = family.is_empty() && address.is_empty() && behind.starts_with(b")");
            is_right.then_some((Form::Epsv, None, port))
        }
        _ => None,
    }
}

/// The first six numbers in a text: servers write it in many ways (RFC 1123 §4.1.2.6).
fn passive(text: &[u8]) -> Option<Found> {
    let is_inside = |byte: u8| byte.is_ascii_digit() || matches!(byte, b',' | b'.');
    let begins = |at: &usize| text[*at].is_ascii_digit() && (*at == 0 || !is_inside(text[*at - 1]));
    let mut all = (0..text.len()).filter(begins).filter_map(|at| six_numbers(&text[at..]));
    let (address, port, _) = all.find(|(.., behind)| behind.first() != Some(&b','))?;
    Some((Form::Pasv, Some(address.into()), port))
}

/// `h1,h2,h3,h4,p1,p2`, each up to 255, and what is behind it.
fn six_numbers(text: &[u8]) -> Option<(Ipv4Addr, u16, &[u8])> {
    let (mut numbers, mut rest) = ([0_u8; 6], text);
    for (at, number) in numbers.iter_mut().enumerate() {
        if at > 0 {
            rest = rest.strip_prefix(b",")?;
        }
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (own, behind) = rest.split_at(digits);
        *number = decimal(own)?.try_into().ok()?;
        rest = behind;
    }
    let [a, b, c, d, high, low] = numbers;
    Some((Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([high, low]), rest))
}

/// `|FAMILY|ADDRESS|PORT|` with any delimiter, and what is behind it.
fn extended(text: &[u8]) -> Option<(&[u8], &str, u16, &[u8])> {
    let (delimiter, rest) = text.split_first()?;
    if !delimiter.is_ascii_graphic() || delimiter.is_ascii_alphanumeric() {
        return None;
    }
    let mut parts = rest.splitn(4, |byte| byte == delimiter);
    let mut part = || parts.next();
    let (family, address, port, behind) = (part()?, part()?, part()?, part()?);
    let port = u16::try_from(decimal(port)?).ok()?;
    Some((family, std::str::from_utf8(address).ok()?, port, behind))
}

/// A number of one to five digits.
fn decimal(digits: &[u8]) -> Option<u32> {
    let is_number = (1..=5).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
    is_number.then(|| digits.iter().fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;

    /// What a line announces: form, address and port.
    type Said<'a> = (Form, &'a str, u16);

    /// All that both sides announce, each in one piece.
    fn announced(client: &[u8], server: &[u8]) -> Vec<Announcement> {
        let (mut control, mut all) = (Control::new(true, true), Vec::new());
        control.feed(true, 0, client, |own| all.push(own));
        control.feed(false, 0, server, |own| all.push(own));
        all
    }

    fn ends(text: &str, is_client: bool) -> Vec<(Form, String, u16)> {
        let text = text.as_bytes();
        let all = if is_client { announced(text, b"") } else { announced(b"", text) };
        let address = |own: &Announcement| own.address.map_or(String::new(), |a| a.to_string());
        all.iter().map(|own| (own.form, address(own), own.port)).collect()
    }

    #[test]
    fn commands() {
        use Form::{Eprt, Port};
        let cases: &[(&str, Option<Said<'_>>)] = &[
            ("PORT 192,0,2,1,4,1\r\n", Some((Port, "192.0.2.1", 1025))),
            ("port 192,0,2,1,4,1  \n", Some((Port, "192.0.2.1", 1025))),
            ("EPRT |1|192.0.2.1|6275|\r\n", Some((Eprt, "192.0.2.1", 6275))),
            (
                "eprt !2!2001:db8::8:800:200c:417a!5282!\r\n",
                Some((Eprt, "2001:db8::8:800:200c:417a", 5282)),
            ),
            ("PORT 192,0,2,256,4,1\r\n", None),
            ("PORT 192,0,2,1,4\r\n", None),
            ("PORT 192,0,2,1,4,1,5\r\n", None),
            ("PORT 192,0,2,1,0,0\r\n", None),
            ("PORT 192,0,2,1,4,1", None),
            ("XPORT 192,0,2,1,4,1\r\n", None),
            ("SITE PORT 192,0,2,1,4,1\r\n", None),
            ("PORT192,0,2,1,4,1\r\n", None),
            ("EPRT |1|2001:db8::1|6275|\r\n", None),
            ("EPRT |3|192.0.2.1|6275|\r\n", None),
            ("EPRT |1|192.0.2.1|6275\r\n", None),
            ("EPRT |1|192.0.2.1|65536|\r\n", None),
            ("EPRT 111192.0.2.11627511\r\n", None),
        ];
        for (text, expected) in cases {
            let expected: Vec<_> = expected
                .iter()
                .map(|(form, address, port)| (*form, (*address).to_owned(), *port))
                .collect();
            assert_eq!(ends(text, true), expected, "{text:?}");
        }
        // Telnet's interrupt and synch in front, as for an abort.
        let with_telnet =
            [&[255, 244, 255, 253, 1][..], b"PO\xff\xf1RT 192,0,2,1,4,1\r\n"].concat();
        assert_eq!(announced(&with_telnet, b"").len(), 1);
    }

    #[test]
    fn replies() {
        use Form::{Epsv, Pasv};
        let cases: &[(&str, &[Said<'_>])] = &[
            ("227 Entering Passive Mode (192,0,2,1,4,1).\r\n", &[(Pasv, "192.0.2.1", 1025)]),
            ("227 =192,0,2,1,4,1\r\n", &[(Pasv, "192.0.2.1", 1025)]),
            ("227 mode 4, 192,0,2,1,4,1\r\n", &[(Pasv, "192.0.2.1", 1025)]),
            ("227 (192,0,2,1,4,1,9)\r\n", &[]),
            ("227 (1.192,0,2,1,4,1)\r\n", &[]),
            ("229 Entering Extended Passive Mode (|||6446|)\r\n", &[(Epsv, "", 6446)]),
            ("229 ok (!!!6446!) bye\r\n", &[(Epsv, "", 6446)]),
            ("229 (|1|192.0.2.1|6446|)\r\n", &[]),
            ("229 |||6446|\r\n", &[]),
            ("500 what: 227 (192,0,2,1,4,1)\r\n", &[]),
            // Lines within a reply of several lines are its text.
            ("200-help\r\n227 (192,0,2,1,4,1)\r\n200 end\r\n", &[]),
            (
                "200-help\r\n200-227 x\r\n200 end\r\n227 (192,0,2,1,4,1)\r\n",
                &[(Pasv, "192.0.2.1", 1025)],
            ),
            (
                "227-passive\r\n (192,0,2,9,9,9)\r\n227 (192,0,2,1,4,1)\r\n",
                &[(Pasv, "192.0.2.1", 1025)],
            ),
        ];
        for (text, expected) in cases {
            let expected: Vec<_> = expected
                .iter()
                .map(|(form, address, port)| (*form, (*address).to_owned(), *port))
                .collect();
            assert_eq!(ends(text, false), expected, "{text:?}");
        }
    }

    /// Neither the middle of a line nor what is behind a gap is the beginning of a line.
    #[test]
    fn a_line_begins_behind_the_end_of_another_one() {
        let line = b"PORT 192,0,2,1,4,1\r\n";
        let (mut control, mut count) = (Control::new(false, true), 0);
        control.feed(true, 0, line, |_| count += 1);
        assert_eq!(count, 0, "joined in the middle");
        control.feed(true, 20, line, |own| {
            assert_eq!(own.line, 20..38);
            count += 1;
        });
        assert_eq!(count, 1);
        control.feed(true, 41, line, |_| count += 1);
        assert_eq!(count, 1, "behind a gap");
        let long = [&[b'x'; LINE_MAX - 10][..], line, line].concat();
        control.feed(true, 61, &long, |_| count += 1);
        assert_eq!(count, 2, "the first one is the end of a long line");
    }

    /// Seeds of the fuzz target `ftp` in segments, as it reads them: the first byte is the side and their size.
    #[test]
    fn seeds_of_the_fuzz_target() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/ftp");
        for (name, count) in [("client", 2), ("server", 2), ("telnet", 1)] {
            let bytes = std::fs::read(format!("{folder}/{name}")).unwrap();
            let (choice, text) = bytes.split_first().unwrap();
            let (is_client, size) = (choice & 1 != 0, 1 + usize::from(choice >> 1));
            let (mut control, mut all, mut offset) = (Control::new(true, true), Vec::new(), 0);
            for piece in text.chunks(size) {
                control.feed(is_client, offset, piece, |own| all.push(own));
                offset += piece.len() as u64;
            }
            assert_eq!(all.len(), count, "{name}");
            assert_eq!(all, twin_of_seed(text, is_client), "{name}");
        }
        assert_eq!(std::fs::read_dir(folder).unwrap().count(), 3);
    }

    /// The twin knows no Telnet commands, and no place of what they leave: forms, addresses and ports alone.
    fn twin_of_seed(text: &[u8], is_client: bool) -> Vec<Announcement> {
        let (mut whole, mut all) = (Control::new(true, true), Vec::new());
        whole.feed(is_client, 0, text, |own| all.push(own));
        if !text.contains(&0xff) {
            assert_eq!(all, twin(text, is_client));
        }
        all
    }

    /// By lines of text, as a reader of the RFC would: without any state over segments.
    fn twin(text: &[u8], is_client: bool) -> Vec<Announcement> {
        let (mut all, mut begin, mut code) = (Vec::new(), 0_u64, None::<String>);
        let mut lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
        lines.pop(); // not ended
        for whole in lines {
            let place = begin;
            begin += whole.len() as u64 + 1;
            let line = whole.strip_suffix(b"\r").unwrap_or(whole);
            let text = String::from_utf8_lossy(line).into_owned();
            if whole.len() > LINE_MAX {
                continue;
            }
            let what = if is_client {
                command(line)
            } else {
                let of_line = text.get(..3).filter(|code| code.bytes().all(|b| b.is_ascii_digit()));
                let mark = text.get(3..4);
                match (code.clone(), of_line) {
                    (Some(begun), own)
                        if own != Some(begun.as_str()) || mark.is_some_and(|m| m != " ") =>
                    {
                        continue;
                    }
                    (None, Some(own)) if mark == Some("-") => {
                        code = Some(own.to_owned());
                        continue;
                    }
                    _ => code = None,
                }
                reply(line)
            };
            let what = what.filter(|(.., port)| *port != 0);
            let end = place + line.len() as u64;
            all.extend(what.map(|(form, address, port)| Announcement {
                form,
                address,
                port,
                line: place..end,
            }));
        }
        all
    }

    fn text() -> impl Strategy<Value = Vec<u8>> {
        let line = select(vec![
            "PORT 192,0,2,1,4,1",
            "PORT 10,0,0,1,255,255",
            "EPRT |1|192.0.2.1|6275|",
            "EPRT |2|2001:db8::1|5282|",
            "227 Entering Passive Mode (192,0,2,1,4,1)",
            "229 ok (|||6446|)",
            "200-help",
            "200 end",
            "200",
            "227-x",
            "227",
            "USER x",
            "",
            "500 what: PORT 192,0,2,1,4,1",
            "PORT 1,2,3",
            "229 (|||0|)",
            "PASV",
            "\u{fc}",
        ]);
        let end = select(vec!["\r\n", "\n", "\r\n\r\n", "\r", ""]);
        let long = select(vec![0, 0, 0, 0, LINE_MAX - 1, LINE_MAX, LINE_MAX + 1]);
        let own = (long, line, end)
            .prop_map(|(long, line, end)| [" ".repeat(long).as_str(), line, end].concat());
        vec(own, 0..12).prop_map(|all| all.concat().into_bytes())
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

        /// Segments of any size say the same, and the same as the text.
        #[test]
        fn splits_do_not_matter(text in text(), sizes in vec(1_usize..40, 1..12), is_client in any::<bool>()) {
            let (mut control, mut all) = (Control::new(true, true), Vec::new());
            let (mut rest, mut offset) = (&text[..], 0);
            for size in sizes.iter().cycle() {
                let (piece, behind) = rest.split_at(rest.len().min(*size));
                control.feed(is_client, offset, piece, |own| all.push(own));
                (rest, offset) = (behind, offset + piece.len() as u64);
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(&all, &twin(&text, is_client));
        }
    }
}
