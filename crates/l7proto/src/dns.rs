//! DNS messages (RFC 1035 §4): header, questions, records, names with compression.
//!
//! Nothing is copied. A pointer has to lead to before the labels that it follows, so no name loops; a name has at most 255
//! bytes (RFC 1035 §2.3.4) and [`POINTERS_MAX`] pointers, so the work for a message grows with its length, not faster.

use crate::bytes::Cursor;

/// Bytes of a name, in the form on the wire.
pub const NAME_MAX: usize = 255;

/// Pointers of a name: no name needs more than one for each of its labels.
pub const POINTERS_MAX: usize = 127;

/// A message, whose header is there; what is behind it is read when it is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    bytes: &'a [u8],
}

/// Where a name begins in a message.
#[derive(Clone, Copy, Debug)]
pub struct Name<'a> {
    message: &'a [u8],
    start: usize,
}

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// For which name.
    pub name: Name<'a>,
    /// For which type; 255 for all.
    pub kind: u16,
    /// In which class; the first bit has a meaning of its own in multicast DNS.
    pub class: u16,
}

/// What is known of a name.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Of which name.
    pub name: Name<'a>,
    /// Its type.
    pub kind: u16,
    /// Its class.
    pub class: u16,
    /// Seconds that it may be kept.
    pub ttl_s: u32,
    /// The data of the type.
    pub data: &'a [u8],
    /// The section: 0 for answers, 1 for authority, 2 for additional records.
    pub section: usize,
    /// Where the data begin in the message.
    start: usize,
}

impl<'a> Record<'a> {
    /// The name at this place of the data, and the place behind it. `None` where the name runs over the end of the data;
    /// what its pointers lead to may be broken still.
    pub fn name_at(&self, at: usize) -> Option<(Name<'a>, usize)> {
        let name = Name { message: self.name.message, start: self.start + at };
        let end = name.end()? - self.start;
        (end <= self.data.len()).then_some((name, end))
    }
}

impl<'a> Message<'a> {
    /// A message of at least a header; a datagram, or what [`tcp_message`] gives.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        (bytes.len() >= 12).then_some(Self { bytes })
    }

    fn word(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.bytes[2 * at], self.bytes[2 * at + 1]])
    }

    /// The number that joins a response to its query.
    pub fn id(&self) -> u16 {
        self.word(0)
    }

    /// Whether it is a response.
    pub fn is_response(&self) -> bool {
        self.word(1) & 0x8000 != 0
    }

    /// The operation: 0 for a query.
    pub fn opcode(&self) -> u8 {
        (self.word(1) >> 11 & 15) as u8
    }

    /// The response code without the part in an OPT record: 3 for a name that does not exist.
    pub fn rcode(&self) -> u8 {
        (self.word(1) & 15) as u8
    }

    /// Questions, answers, authority, additional.
    pub fn counts(&self) -> [u16; 4] {
        [2, 3, 4, 5].map(|at| self.word(at))
    }

    /// The header makes sense: an operation that exists, the reserved bit clear, and no more entries than fit.
    pub fn is_sane(&self) -> bool {
        let [questions, records @ ..] = self.counts().map(usize::from);
        let least = 5 * questions + 11 * records.iter().sum::<usize>();
        let exists = matches!(self.opcode(), 0..=2 | 4..=6);
        exists && self.word(1) & 0x40 == 0 && least <= self.bytes.len() - 12
    }

    /// The first question is whole, whatever the header says of the rest.
    pub fn has_question(&self) -> bool {
        self.counts()[0] > 0 && question(self.bytes, 12).is_some()
    }

    /// The questions, up to the first that is broken.
    pub fn questions(&self) -> impl Iterator<Item = Question<'a>> {
        let message = self.bytes;
        let mut at = 12;
        (0..self.counts()[0]).map_while(move |_| {
            let (question, next) = question(message, at)?;
            at = next;
            Some(question)
        })
    }

    /// The records of all sections, up to the first that is broken.
    pub fn records(&self) -> impl Iterator<Item = Record<'a>> {
        let message = self.bytes;
        let [questions, sections @ ..] = self.counts();
        let mut at =
            (0..questions).try_fold(12, |at, _| question(message, at).map(|(_, next)| next));
        let places = sections.into_iter().enumerate();
        places.flat_map(|(section, count)| (0..count).map(move |_| section)).map_while(
            move |section| {
                let (record, next) = record(message, at?, section)?;
                at = Some(next);
                Some(record)
            },
        )
    }

    /// Where the last record ends, if the counts, names and lengths are right.
    pub fn end(&self) -> Option<usize> {
        let [questions, sections @ ..] = self.counts();
        let mut at = 12;
        for _ in 0..questions {
            at = question(self.bytes, at)?.1;
        }
        for _ in 0..sections.iter().map(|count| u32::from(*count)).sum() {
            at = record(self.bytes, at, 0)?.1;
        }
        Some(at)
    }
}

fn question(message: &[u8], at: usize) -> Option<(Question<'_>, usize)> {
    let name = Name { message, start: at };
    let after = name.end()?;
    let mut cursor = Cursor::new(message.get(after..)?);
    let question = Question { name, kind: cursor.u16()?, class: cursor.u16()? };
    Some((question, after + 4))
}

fn record(message: &[u8], at: usize, section: usize) -> Option<(Record<'_>, usize)> {
    let name = Name { message, start: at };
    let after = name.end()?;
    let mut cursor = Cursor::new(message.get(after..)?);
    let (kind, class, ttl_s) = (cursor.u16()?, cursor.u16()?, cursor.u32()?);
    let data = cursor.vector16()?;
    let start = after + 10;
    Some((Record { name, kind, class, ttl_s, data, section, start }, start + data.len()))
}

impl<'a> Name<'a> {
    /// Where what follows the name begins, if the name is right as far as its pointer.
    fn end(&self) -> Option<usize> {
        let mut at = self.start;
        loop {
            match *self.message.get(at)? {
                0 => return (at + 1 - self.start <= NAME_MAX).then_some(at + 1),
                len @ 1..64 => at += 1 + usize::from(len),
                0xc0.. => return self.message.get(at + 1).map(|_| at + 2),
                _ => return None,
            }
            if at - self.start > NAME_MAX {
                return None;
            }
        }
    }

    /// The labels, pointers followed; `None` where the name is broken, as the last item.
    pub fn labels(&self) -> impl Iterator<Item = Option<&'a [u8]>> {
        let message = self.message;
        // Pointers lead to before here.
        let mut before = self.start;
        let mut at = Some(self.start);
        let (mut len, mut pointers) = (1, 0);
        std::iter::from_fn(move || {
            loop {
                let here = at?;
                match message.get(here) {
                    Some(0) => {
                        at = None;
                        return None;
                    }
                    Some(&size @ 1..64) => {
                        let size = usize::from(size);
                        let label = message.get(here + 1..here + 1 + size);
                        len += 1 + size;
                        at = Some(here + 1 + size);
                        if label.is_some() && len <= NAME_MAX {
                            return Some(label);
                        }
                    }
                    Some(&high @ 0xc0..) => {
                        if let Some(&low) = message.get(here + 1) {
                            let target = usize::from(high & 0x3f) << 8 | usize::from(low);
                            pointers += 1;
                            if target < before && pointers <= POINTERS_MAX {
                                before = target;
                                at = Some(target);
                                continue;
                            }
                        }
                    }
                    _ => {}
                }
                at = None;
                return Some(None);
            }
        })
    }

    /// Writes the bytes of the labels as they are, joined by dots, without the last one: what a label holds, dots among
    /// them, is not told from what joins. The root is empty. `None` where the name is broken or does not fit;
    /// [`NAME_MAX`] bytes are always enough.
    pub fn write_raw<'b>(&self, buffer: &'b mut [u8]) -> Option<&'b [u8]> {
        let mut len = 0;
        for (number, label) in self.labels().enumerate() {
            let dot: &[u8] = if number > 0 { b"." } else { b"" };
            for bytes in [dot, label?] {
                buffer.get_mut(len..len + bytes.len())?.copy_from_slice(bytes);
                len += bytes.len();
            }
        }
        Some(&buffer[..len])
    }

    /// Writes the name as text, labels joined by dots, without the last one; dots, backslashes and what does not print
    /// as `\DDD` (RFC 4343 §2.1). The root is empty. `None` where the name is broken or does not fit; four times
    /// [`NAME_MAX`] bytes are always enough.
    pub fn write<'b>(&self, buffer: &'b mut [u8]) -> Option<&'b str> {
        let mut len = 0;
        let mut put = |byte: u8| {
            *buffer.get_mut(len)? = byte;
            len += 1;
            Some(())
        };
        for (number, label) in self.labels().enumerate() {
            if number > 0 {
                put(b'.')?;
            }
            for byte in label? {
                match byte {
                    b'.' | b'\\' | 0..=0x20 | 0x7f.. => {
                        put(b'\\')?;
                        put(b'0' + byte / 100)?;
                        put(b'0' + byte / 10 % 10)?;
                        put(b'0' + byte % 10)?;
                    }
                    byte => put(*byte)?,
                }
            }
        }
        std::str::from_utf8(&buffer[..len]).ok()
    }
}

/// The first message of a TCP stream and what follows it, if all of it is there (RFC 1035 §4.2.2).
pub fn tcp_message(stream: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut cursor = Cursor::new(stream);
    let message = cursor.vector16()?;
    Some((message, cursor.rest()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(message: &[u8], start: usize) -> Option<String> {
        let mut buffer = [0; 4 * NAME_MAX];
        Name { message, start }.write(&mut buffer).map(str::to_owned)
    }

    #[test]
    fn the_example_of_rfc_1035_4_1_4() {
        let mut message = vec![0; 92];
        message[20..32].copy_from_slice(b"\x01F\x03ISI\x04ARPA\0");
        message[40..46].copy_from_slice(b"\x03FOO\xc0\x14");
        message[64..66].copy_from_slice(b"\xc0\x1a");
        assert_eq!(name(&message, 20).unwrap(), "F.ISI.ARPA");
        assert_eq!(name(&message, 40).unwrap(), "FOO.F.ISI.ARPA");
        assert_eq!(name(&message, 64).unwrap(), "ARPA");
        assert_eq!(name(&message, 91).unwrap(), "");
    }

    #[test]
    fn pointers_never_loop() {
        assert_eq!(name(b"\xc0\x00", 0), None);
        assert_eq!(name(b"\x01a\xc0\x00", 0), None);
        assert_eq!(name(b"\xc0\x02\xc0\x00", 0), None);
        assert_eq!(name(b"\x01a\xc0\x00", 2), None);
        assert_eq!(name(b"\x01a\0\xc0\x00\xc0\x03", 5).unwrap(), "a");
        assert_eq!(name(b"\xc0", 0), None);
        assert_eq!(name(b"\x05abc", 0), None);
        assert_eq!(name(b"\x40a\0", 0), None);
        // A ladder of pointers, each to the one before.
        let mut ladder = vec![0, 0];
        for step in 0..200_u16 {
            ladder.extend((0xc000 | if step == 0 { 0 } else { 2 * step }).to_be_bytes());
        }
        assert_eq!(name(&ladder, 2 * POINTERS_MAX).unwrap(), "");
        assert_eq!(name(&ladder, 2 * POINTERS_MAX + 2), None);
    }

    #[test]
    fn long_names_end() {
        let mut message = b"\x3f".iter().copied().chain([b'a'; 63]).collect::<Vec<_>>().repeat(4);
        message.push(0);
        assert_eq!(name(&message, 0), None);
        assert_eq!(name(&message, 64).unwrap().len(), 191);
        assert_eq!(Name { message: &message, start: 0 }.end(), None);
        assert_eq!(name(b"\x03a.\xff\0", 0).unwrap(), "a\\046\\255");
        let odd = Name { message: b"\x03a.\xff\x02\0\\\0", start: 0 };
        assert_eq!(odd.write_raw(&mut [0; NAME_MAX]), Some(&b"a.\xff.\0\\"[..]));
        assert_eq!(odd.write_raw(&mut [0; 5]), None);
        assert_eq!(Name { message: b"\0", start: 0 }.write_raw(&mut []), Some(&b""[..]));
    }

    #[test]
    fn a_query_and_its_answer() {
        let query = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x03www\x07example\0\0\x01\0\x01";
        let message = Message::parse(query).unwrap();
        assert_eq!((message.id(), message.is_response(), message.opcode()), (0x1234, false, 0));
        assert_eq!(message.end(), Some(query.len()));
        let question = message.questions().next().unwrap();
        assert_eq!((question.kind, question.class), (1, 1));
        assert_eq!(question.name.write(&mut [0; 99]), Some("www.example"));
        assert_eq!(question.name.write(&mut [0; 5]), None);

        let mut answer = query.to_vec();
        answer[2..4].copy_from_slice(&[0x81, 0x83]);
        answer[7] = 1;
        answer.extend(b"\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\x7f\0\0\x01");
        let message = Message::parse(&answer).unwrap();
        assert_eq!((message.is_response(), message.rcode()), (true, 3));
        let record = message.records().next().unwrap();
        assert_eq!((record.kind, record.ttl_s, record.data), (1, 60, [127, 0, 0, 1].as_slice()));
        assert_eq!(record.name.write(&mut [0; 99]), Some("www.example"));
        // Its data begin with a label of 127 bytes, which does not fit.
        assert!(record.name_at(0).is_none() && record.name_at(1).is_some_and(|(_, end)| end == 2));
        assert!(record.name_at(4).is_none());
        assert_eq!((message.records().count(), message.end()), (1, Some(answer.len())));
        answer.pop();
        let message = Message::parse(&answer).unwrap();
        assert_eq!((message.records().count(), message.end()), (0, None));
        let stream = [&[0, 2], b"ab".as_slice(), &[0, 1]].concat();
        assert_eq!(tcp_message(&stream), Some((b"ab".as_slice(), [0, 1].as_slice())));
        assert_eq!(tcp_message(&stream[4..]), None);
    }
}
