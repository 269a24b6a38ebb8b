//! Protocols of lines: what SSH, SMTP, FTP, POP3 and others begin with.

/// Bytes that are kept of a line; more are counted as part of it and not kept.
pub const LINE_MAX: usize = 512;

/// Cuts a stream into lines, however it came in segments: a fixed size, without allocations.
#[derive(Clone, Debug)]
pub struct Lines {
    buffer: [u8; LINE_MAX],
    len: usize,
    is_cut: bool,
}

impl Default for Lines {
    fn default() -> Self {
        Self { buffer: [0; LINE_MAX], len: 0, is_cut: false }
    }
}

impl Lines {
    /// Takes the next bytes and hands on each line that ends in them, without CR LF or LF, and whether more than
    /// [`LINE_MAX`] bytes of it were left out.
    pub fn feed(&mut self, bytes: &[u8], mut line: impl FnMut(&[u8], bool)) {
        for byte in bytes {
            if *byte == b'\n' {
                let text = &self.buffer[..self.len];
                line(text.strip_suffix(b"\r").unwrap_or(text), self.is_cut);
                (self.len, self.is_cut) = (0, false);
            } else if let Some(place) = self.buffer.get_mut(self.len) {
                *place = *byte;
                self.len += 1;
            } else {
                self.is_cut = true;
            }
        }
    }
}

/// The identification of one side of SSH (RFC 4253 §4.2): `SSH-protoversion-softwareversion SP comments`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SshBanner<'a> {
    /// `2.0`, or `1.99` of servers that speak both.
    pub protocol: &'a [u8],
    /// Name and version of the program.
    pub software: &'a [u8],
    /// What is behind the first space.
    pub comments: &'a [u8],
}

impl<'a> SshBanner<'a> {
    /// Reads a line; servers may send others before it, which are no banner.
    pub fn parse(line: &'a [u8]) -> Option<Self> {
        let rest = line.strip_prefix(b"SSH-")?;
        let hyphen = rest.iter().position(|byte| *byte == b'-')?;
        let (protocol, rest) = (&rest[..hyphen], &rest[hyphen + 1..]);
        let space = rest.iter().position(|byte| *byte == b' ');
        let software = &rest[..space.unwrap_or(rest.len())];
        let comments = space.map_or(&[][..], |at| &rest[at + 1..]);
        Some(Self { protocol, software, comments })
    }
}

/// A line of a reply of SMTP (RFC 5321 §4.2) or FTP (RFC 959 §4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply<'a> {
    /// Three digits.
    pub code: u16,
    /// Other lines follow.
    pub continues: bool,
    /// What the line says.
    pub text: &'a [u8],
}

impl<'a> Reply<'a> {
    /// Reads a line; lines in the middle of a reply of FTP need no code and are none.
    pub fn parse(line: &'a [u8]) -> Option<Self> {
        let (digits, rest) = line.split_at_checked(3)?;
        if !digits.iter().all(u8::is_ascii_digit) {
            return None;
        }
        let code = digits.iter().fold(0, |code, digit| code * 10 + u16::from(digit - b'0'));
        let (continues, text) = match rest {
            [] => (false, rest),
            [b' ', text @ ..] => (false, text),
            [b'-', text @ ..] => (true, text),
            _ => return None,
        };
        Some(Self { code, continues, text })
    }
}

/// A command: a word, then what is behind spaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command<'a> {
    /// As it was sent; case means nothing.
    pub verb: &'a [u8],
    /// Without spaces around it.
    pub argument: &'a [u8],
}

impl<'a> Command<'a> {
    /// Reads a line that begins with a word of letters.
    pub fn parse(line: &'a [u8]) -> Option<Self> {
        let end = line.iter().position(|byte| *byte == b' ').unwrap_or(line.len());
        let (verb, argument) = line.split_at(end);
        let is_word = !verb.is_empty() && verb.iter().all(u8::is_ascii_alphabetic);
        is_word.then_some(Self { verb, argument: argument.trim_ascii() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_any_segments() {
        let stream = [b"220-a\r\n\n220 b\n".as_slice(), &[b'x'; 600], b"\r\nrest"].concat();
        for size in [1, 2, 3, 7, 2000] {
            let mut lines = Lines::default();
            let mut found = Vec::new();
            for segment in stream.chunks(size) {
                lines.feed(segment, |line, cut| found.push((line.to_vec(), cut)));
            }
            let long = (vec![b'x'; LINE_MAX], true);
            let short = |text: &[u8]| (text.to_vec(), false);
            assert_eq!(found, [short(b"220-a"), short(b""), short(b"220 b"), long]);
        }
    }

    #[test]
    fn banners_replies_and_commands() {
        let banner = SshBanner::parse(b"SSH-2.0-OpenSSH_9.6p1 Ubuntu-3ubuntu13.8").unwrap();
        assert_eq!(banner.protocol, b"2.0");
        assert_eq!(banner.software, b"OpenSSH_9.6p1");
        assert_eq!(banner.comments, b"Ubuntu-3ubuntu13.8");
        assert_eq!(SshBanner::parse(b"SSH-2.0"), None);
        let reply = |line| Reply::parse(line).map(|r| (r.code, r.continues, r.text));
        assert_eq!(reply(b"220 mail ESMTP"), Some((220, false, b"mail ESMTP".as_slice())));
        assert_eq!(reply(b"250-SIZE"), Some((250, true, b"SIZE".as_slice())));
        assert_eq!(reply(b"221"), Some((221, false, b"".as_slice())));
        assert_eq!((reply(b"22"), reply(b"2200"), reply(b" 22 x")), (None, None, None));
        let command = Command::parse(b"User  anonymous ").unwrap();
        assert_eq!((command.verb, command.argument), (b"User".as_slice(), b"anonymous".as_slice()));
        assert_eq!(Command::parse(b" x"), None);
    }
}
