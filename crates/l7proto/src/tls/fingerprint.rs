//! JA3 and JA3S (Salesforce, BSD 3-clause: `salesforce/ja3`), JA4 (FoxIO, the client's part under BSD 3-clause:
//! `FoxIO-LLC/ja4`, `technical_details/JA4.md`).

use std::fmt::Write;

use md5::Md5;
use sha2::{Digest, Sha256};

use super::hello::{ClientHello, ServerHello};

/// What carries the hello, JA4's first letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ja4Transport {
    /// TLS over TCP.
    Tcp,
    /// QUIC.
    Quic,
    /// DTLS.
    Dtls,
}

/// Values that clients sprinkle in to keep servers tolerant (RFC 8701).
pub const fn is_grease(value: u16) -> bool {
    value & 0x0f0f == 0x0a0a && value >> 8 == value & 0xff
}

/// Bytes as lower-case digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // a string takes everything
        text
    })
}

fn joined(
    values: impl Iterator<Item = u16>,
    text: &mut String,
    separator: char,
    form: fn(u16) -> String,
) {
    for (number, value) in values.filter(|value| !is_grease(*value)).enumerate() {
        if number > 0 {
            text.push(separator);
        }
        text.push_str(&form(value));
    }
}

fn decimal(value: u16) -> String {
    value.to_string()
}

fn four_digits(value: u16) -> String {
    format!("{value:04x}")
}

/// The first 12 digits of SHA-256, or zeros for an empty list.
fn truncated(list: &str) -> String {
    match list.is_empty() {
        true => "0".repeat(12),
        false => hex(&Sha256::digest(list.as_bytes())[..6]),
    }
}

impl ClientHello<'_> {
    /// The text of which JA3 is the digest: version, cipher suites, extensions, groups, point formats, in decimal.
    pub fn ja3_text(&self) -> String {
        let mut text = format!("{},", self.legacy_version);
        joined(self.ciphers(), &mut text, '-', decimal);
        text.push(',');
        joined(self.extensions().map(|(kind, _)| kind), &mut text, '-', decimal);
        text.push(',');
        joined(self.groups(), &mut text, '-', decimal);
        text.push(',');
        joined(
            self.point_formats().iter().map(|format| u16::from(*format)),
            &mut text,
            '-',
            decimal,
        );
        text
    }

    /// JA3; [`hex`] gives its usual form.
    pub fn ja3(&self) -> [u8; 16] {
        Md5::digest(self.ja3_text()).into()
    }

    /// JA4 with its lists instead of their digests (`JA4_r`).
    pub fn ja4_text(&self, transport: Ja4Transport) -> String {
        let (ciphers, extensions) = self.ja4_lists();
        format!("{}_{ciphers}_{extensions}", self.ja4_head(transport))
    }

    /// JA4, 36 characters.
    pub fn ja4(&self, transport: Ja4Transport) -> String {
        let (ciphers, extensions) = self.ja4_lists();
        format!("{}_{}_{}", self.ja4_head(transport), truncated(&ciphers), truncated(&extensions))
    }

    fn ja4_head(&self, transport: Ja4Transport) -> String {
        let letter = match transport {
            Ja4Transport::Tcp => 't',
            Ja4Transport::Quic => 'q',
            Ja4Transport::Dtls => 'd',
        };
        // Numbers of DTLS go down as versions go up.
        let offered = self.supported_versions().filter(|version| !is_grease(*version));
        let highest = match transport {
            Ja4Transport::Dtls => offered.min(),
            _ => offered.max(),
        };
        let version = match highest.unwrap_or(self.legacy_version) {
            0x0304 => "13",
            0x0303 => "12",
            0x0302 => "11",
            0x0301 => "10",
            0x0300 => "s3",
            0x0002 => "s2",
            0xfeff => "d1",
            0xfefd => "d2",
            0xfefc => "d3",
            _ => "00",
        };
        let name = if self.extension(0).is_some() { 'd' } else { 'i' };
        let count = |values: usize| values.min(99);
        let ciphers = count(self.ciphers().filter(|cipher| !is_grease(*cipher)).count());
        let extensions = count(self.extensions().filter(|(kind, _)| !is_grease(*kind)).count());
        let alpn = alpn_letters(self.alpn().next().unwrap_or_default());
        format!("{letter}{version}{name}{ciphers:02}{extensions:02}{alpn}")
    }

    fn ja4_lists(&self) -> (String, String) {
        let mut ciphers: Vec<u16> = self.ciphers().collect();
        ciphers.sort_unstable();
        // The name and ALPN are in the first part.
        let mut extensions: Vec<u16> = self
            .extensions()
            .map(|(kind, _)| kind)
            .filter(|kind| *kind != 0 && *kind != 16)
            .collect();
        extensions.sort_unstable();
        let (mut first, mut second) = (String::new(), String::new());
        joined(ciphers.into_iter(), &mut first, ',', four_digits);
        joined(extensions.into_iter(), &mut second, ',', four_digits);
        if self.signature_algorithms().next().is_some() {
            second.push('_');
            joined(self.signature_algorithms(), &mut second, ',', four_digits);
        }
        (first, second)
    }
}

/// The first and the last character of the first protocol; of its digits where one is no letter or digit.
fn alpn_letters(protocol: &[u8]) -> String {
    match protocol {
        [] => "00".to_owned(),
        [first, ..] => {
            let last = protocol.last().unwrap_or(first);
            if first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric() {
                return [*first, *last].map(char::from).iter().collect();
            }
            let digits = hex(protocol);
            [&digits[..1], &digits[digits.len() - 1..]].concat()
        }
    }
}

impl ServerHello<'_> {
    /// The text of which JA3S is the digest: version, cipher suite, extensions, in decimal.
    pub fn ja3s_text(&self) -> String {
        let mut text = format!("{},{},", self.legacy_version, self.cipher);
        for (number, (kind, _)) in self.extensions().enumerate() {
            if number > 0 {
                text.push('-');
            }
            text.push_str(&decimal(kind));
        }
        text
    }

    /// JA3S.
    pub fn ja3s(&self) -> [u8; 16] {
        Md5::digest(self.ja3s_text()).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector16(bytes: &[u8]) -> Vec<u8> {
        [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat()
    }

    fn words(values: &[u16]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_be_bytes()).collect()
    }

    fn client_hello(version: u16, ciphers: &[u16], extensions: &[(u16, Vec<u8>)]) -> Vec<u8> {
        let list: Vec<u8> = extensions
            .iter()
            .flat_map(|(kind, data)| [kind.to_be_bytes().to_vec(), vector16(data)].concat())
            .collect();
        let list = if extensions.is_empty() { Vec::new() } else { vector16(&list) };
        let body = [
            &version.to_be_bytes()[..],
            &[7; 32],
            &[0],
            &vector16(&words(ciphers)),
            &[1, 0],
            &list,
        ]
        .concat();
        [&[1][..], &(body.len() as u32).to_be_bytes()[1..], &body].concat()
    }

    /// The two examples of the README of `salesforce/ja3`.
    #[test]
    fn published_ja3() {
        let ciphers = [47, 53, 5, 10, 49161, 49162, 49171, 49172, 50, 56, 19, 4];
        let name = vector16(&[&[0][..], &vector16(b"example.com")].concat());
        let extensions = [(0, name), (10, vector16(&words(&[23, 24, 25]))), (11, vec![1, 0])];
        let message = client_hello(769, &ciphers, &extensions);
        let hello = ClientHello::parse(&message).unwrap();
        assert_eq!(
            hello.ja3_text(),
            "769,47-53-5-10-49161-49162-49171-49172-50-56-19-4,0-10-11,23-24-25,0"
        );
        assert_eq!(hex(&hello.ja3()), "ada70206e40642a3e4461f35503241d5");
        assert_eq!(hello.server_name(), Some(b"example.com".as_slice()));

        let message = client_hello(769, &[4, 5, 10, 9, 100, 98, 3, 6, 19, 18, 99], &[]);
        let hello = ClientHello::parse(&message).unwrap();
        assert_eq!(hello.ja3_text(), "769,4-5-10-9-100-98-3-6-19-18-99,,,");
        assert_eq!(hex(&hello.ja3()), "de350869b8c85de67a350c8d186f11e6");
    }

    /// The example of `FoxIO-LLC/ja4`, `technical_details/JA4.md`: Chrome, with GREASE in each list.
    #[test]
    fn published_ja4() {
        let ciphers = [
            0x2a2a, 0x1301, 0x1302, 0x1303, 0xc02b, 0xc02f, 0xc02c, 0xc030, 0xcca9, 0xcca8, 0xc013,
            0xc014, 0x009c, 0x009d, 0x002f, 0x0035,
        ];
        let algorithms = [0x0403, 0x0804, 0x0401, 0x0503, 0x0805, 0x0501, 0x0806, 0x0601];
        let alpn = [&[2][..], b"h2", &[8], b"http/1.1"].concat();
        let mut extensions: Vec<(u16, Vec<u8>)> = [
            0xdada, 0x001b, 0x0000, 0x0033, 0x0010, 0x4469, 0x0017, 0x002d, 0x000d, 0x0005, 0x0023,
            0x0012, 0x002b, 0xff01, 0x000b, 0x000a, 0x0015, 0x3a3a,
        ]
        .map(|kind| (kind, Vec::new()))
        .to_vec();
        for (kind, data) in &mut extensions {
            match kind {
                0x10 => *data = vector16(&alpn),
                0x0d => *data = vector16(&words(&algorithms)),
                0x2b => *data = [&[6][..], &words(&[0x8a8a, 0x0304, 0x0303])].concat(),
                _ => {}
            }
        }
        let message = client_hello(0x0303, &ciphers, &extensions);
        let hello = ClientHello::parse(&message).unwrap();
        assert_eq!(hello.ja4(Ja4Transport::Tcp), "t13d1516h2_8daaf6152771_e5627efa2ab1");
        assert_eq!(
            hello.ja4_text(Ja4Transport::Tcp),
            "t13d1516h2_002f,0035,009c,009d,1301,1302,1303,c013,c014,c02b,c02c,c02f,c030,cca8,cca9_\
             0005,000a,000b,000d,0012,0015,0017,001b,0023,002b,002d,0033,4469,ff01_\
             0403,0804,0401,0503,0805,0501,0806,0601"
        );
        assert_eq!(&hello.ja4(Ja4Transport::Quic)[..1], "q");
    }

    #[test]
    fn ja4_of_little() {
        let message = client_hello(0x0300, &[], &[]);
        let hello = ClientHello::parse(&message).unwrap();
        assert_eq!(hello.ja4(Ja4Transport::Tcp), "ts3i000000_000000000000_000000000000");
        assert_eq!(alpn_letters(b"h"), "hh");
        // The examples of JA4.md for values that are no text.
        assert_eq!(alpn_letters(&[0xab]), "ab");
        assert_eq!(alpn_letters(&[0xab, 0xcd]), "ad");
        assert_eq!(alpn_letters(&[0x30, 0xab]), "3b");
        assert_eq!(alpn_letters(&[0x30, 0x31, 0xab, 0xcd]), "3d");
        assert_eq!(alpn_letters(&[0x30, 0xab, 0xcd, 0x31]), "01");
    }

    #[test]
    fn truncations_and_lies_are_no_hello() {
        let message = client_hello(771, &[1, 2], &[(10, vector16(&words(&[29])))]);
        assert!(ClientHello::parse(&message).is_some());
        for len in 0..message.len() {
            assert_eq!(ClientHello::parse(&message[..len]), None);
        }
        for at in 0..message.len() {
            let mut changed = message.clone();
            changed[at] ^= 0xff;
            if let Some(hello) = ClientHello::parse(&changed) {
                let _ = (hello.ja3(), hello.ja4(Ja4Transport::Tcp), hello.server_name());
            }
        }
        let mut longer = message;
        longer.push(0);
        assert_eq!(ClientHello::parse(&longer), None);
    }

    #[test]
    fn grease() {
        let values: Vec<u16> = (0..=u16::MAX).filter(|value| is_grease(*value)).collect();
        let expected: Vec<u16> = (0..16).map(|high| (high << 4 | 0xa) * 0x0101).collect();
        assert_eq!(values, expected);
    }
}
