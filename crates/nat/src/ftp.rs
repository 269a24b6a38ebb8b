//! FTP's control connection through a translator: the addresses and ports that its lines announce become those of the outside.
//!
//! ```text
//!  inside host                       translator                        remote end
//!  PORT 192,168,1,7,156,64  ──▶  PORT 203,0,113,1,156,64  ──▶  opens 203.0.113.1:40000
//! ```
//!
//! Which lines announce a data connection says [`stream::helper::ftp`]. A [`Stream`] is what one side of a connection sends. It
//! takes segments in the order of their numbers:
//!
//! | a segment | |
//! | --- | --- |
//! | is the next one | its lines are read, and addresses in them [edited](crate::edits) |
//! | comes again, in whatever pieces | has the same text in the same places; if it has a part of an edited address, it is not let through |
//! | comes before others that precede it | is not let through: an edit in those would move its number |
//! | would be too long for the way out, or announces very many | is let through up to the end of a line |
//! | ends within what may become an announcement | is let through up to there, and not at all if that is nothing; if the sender cuts in the same place again, it passes as it is, and is no announcement |
//!
//! What is not let through is sent again, by the rules of TCP. Of edits that the receiver has acknowledged only the last ones are
//! known: what comes again before those has the right numbers behind it, and its receiver has no use for its bytes. Linux (`nf_conntrack_ftp`) drops the segment that ends within an
//! announcement, too, and each time; it lets pass what comes too early, and its numbers may then be wrong.

use std::net::Ipv4Addr;

use stream::helper::ftp::{Announcement, Control, Form};

use crate::edits::{Edit, Edits, TEXT_MAX, distance};

/// Announcements of a segment that are looked at.
const FOUND_MAX: usize = 4;

/// Flags of TCP.
pub(crate) mod flags {
    pub(crate) const FIN: u8 = 1;
    pub(crate) const SYN: u8 = 2;
    pub(crate) const RST: u8 = 4;
}

/// A segment of a control connection.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    /// Its sequence number.
    pub seq: u32,
    /// Its flags (RFC 9293 §3.1).
    pub flags: u8,
    /// Its bytes.
    pub payload: &'a [u8],
    /// As many bytes as the way out takes.
    pub room: usize,
}

/// What of a segment goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passed {
    /// Its sequence number.
    pub seq: u32,
    /// Its own bytes that go on; those behind them are cut off, and a FIN with them.
    pub kept: usize,
    /// Bytes that were written to take their place; `None`: they stay as they are.
    pub len: Option<usize>,
    /// Announcements that stay as they are, because they cannot be edited.
    pub left: u32,
}

/// Why a segment does not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop<E> {
    /// It comes too early, or has a part of an announcement: the sender sends it again.
    Wait,
    /// What it announces cannot be had.
    Refused(E),
}

/// What one side of a control connection sends.
#[derive(Clone, Debug)]
pub struct Stream {
    /// Number of its SYN, if that was seen.
    first: Option<u32>,
    /// Number of the next byte, once there was a segment.
    next: Option<u32>,
    /// What the other side has acknowledged, as this side counts.
    acked: u32,
    edits: Edits,
    lines: Control,
    /// Bytes that were read.
    offset: u64,
    /// The next byte begins a line.
    is_line_begin: bool,
    /// Where an end was cut off, and its bytes.
    cut: Option<(u32, usize)>,
}

impl Stream {
    /// Of which nothing was seen.
    pub fn new() -> Self {
        Self {
            first: None,
            next: None,
            acked: 0,
            edits: Edits::default(),
            lines: Control::new(false, false),
            offset: 0,
            is_line_begin: false,
            cut: None,
        }
    }

    fn from_syn(seq: u32) -> Self {
        let next = seq.wrapping_add(1);
        Self {
            first: Some(seq),
            next: Some(next),
            acked: next,
            lines: Control::new(true, true),
            is_line_begin: true,
            ..Self::new()
        }
    }

    /// Its edits.
    pub fn edits(&self) -> &Edits {
        &self.edits
    }

    /// The other side's acknowledgement as this side counts.
    pub fn acknowledged(&mut self, ack: u32) -> u32 {
        let own = self.edits.back(ack);
        let is_sent = self.next.is_some_and(|next| distance(own, next) <= 0);
        if is_sent && distance(own, self.acked) > 0 {
            self.acked = own;
        }
        own
    }

    /// What of a segment goes on; bytes that take the place of its own are written to `out`, which should have room for
    /// [`Segment::room`] bytes. `decide` says which end takes the place of one that a line announces, if one does.
    ///
    /// # Errors
    /// It does not go on. Nothing has changed.
    pub fn pass<E>(
        &mut self,
        segment: &Segment<'_>,
        is_client: bool,
        out: &mut [u8],
        mut decide: impl FnMut(&Announcement) -> Result<Option<(Ipv4Addr, u16)>, E>,
    ) -> Result<Passed, Stop<E>> {
        let Segment { mut seq, flags, mut payload, room } = *segment;
        if flags & flags::SYN != 0 {
            if self.first != Some(seq) {
                *self = Self::from_syn(seq);
            }
            if payload.is_empty() {
                return Ok(self.as_it_is(seq, 0));
            }
            seq = seq.wrapping_add(1);
        }
        let next = *self.next.get_or_insert_with(|| {
            self.acked = seq;
            seq
        });
        let ahead = distance(seq, next);
        if flags & flags::RST != 0 || payload.is_empty() && flags & flags::FIN == 0 {
            return Ok(self.as_it_is(seq, payload.len()));
        }
        if ahead > 0 {
            return Err(Stop::Wait);
        }
        let mut again = (ahead.unsigned_abs() as usize).min(payload.len());
        if self.cuts_an_edit(seq, payload.len()) {
            return Err(Stop::Wait);
        }
        // An announcement that is not whole yet.
        let part = part_of_announcement(&payload[again..], is_client, self.is_line_begin);
        if part > 0 {
            let begin = seq.wrapping_add((payload.len() - part) as u32);
            if self.cut != Some((begin, part)) {
                self.cut = Some((begin, part));
                payload = &payload[..payload.len() - part];
                if payload.is_empty() {
                    return Err(Stop::Wait);
                }
            }
        }
        let mut found = Found::default();
        let read = |new: &[u8], found: &mut Found| {
            *found = Found::default();
            let mut lines = self.lines.clone();
            lines.feed(is_client, self.offset, new, |own| found.push(own));
            lines
        };
        let mut lines = read(&payload[again..], &mut found);
        // What announces more than is looked at ends with the last of those lines.
        if found.has_more {
            let last = found.iter().last().map_or(0, |own| (own.line.end - self.offset) as usize);
            let end = payload[again + last..].iter().position(|byte| *byte == b'\n');
            payload = &payload[..again + last + end.map_or(0, |at| at + 1)];
            lines = read(&payload[again..], &mut found);
        }
        // What is too long by its edits ends with a line before.
        let room = room.min(out.len());
        let mut may_edit = true;
        let begins =
            |own: &Announcement| again + own.line.start.saturating_sub(self.offset) as usize;
        let edits = |end: usize| {
            let known = self.edits_in(seq, payload.len()).filter(|edit| edit.0.start < end);
            known.count() + found.iter().filter(|own| begins(own) < end).count()
        };
        let fits = |end: usize| edits(end) == 0 || end + edits(end) * TEXT_MAX <= room;
        if !fits(payload.len()) {
            let ends = |at: &usize| payload[*at - 1] == b'\n' && fits(*at);
            match (1..payload.len()).rev().find(ends) {
                Some(end) => {
                    payload = &payload[..end];
                    again = again.min(end);
                    lines = read(&payload[again..], &mut found);
                }
                None if self.edits_in(seq, payload.len()).next().is_some() => {
                    return Err(Stop::Wait);
                }
                None => may_edit = false,
            }
        }
        let mut edits = self.edits.clone();
        let mut left = 0;
        for own in found.iter() {
            let begin = own.line.start.checked_sub(self.offset).filter(|_| may_edit);
            let place = begin.and_then(|begin| {
                let line = begin as usize..(own.line.end - self.offset) as usize;
                let place = place_of(own, payload[again..].get(line)?)?;
                let from = again + begin as usize;
                Some((
                    from + place.start..from + place.end,
                    payload[from..][place].first().copied()?,
                ))
            });
            let Some((place, delimiter)) = place else {
                left += 1;
                continue;
            };
            if !edits.has_room(self.acked) {
                return Err(Stop::Wait);
            }
            let Some((address, port)) = decide(own).map_err(Stop::Refused)? else { continue };
            let mut text = [0; TEXT_MAX];
            let text = text_of(own.form, (address, port), delimiter, &mut text);
            if payload[place.clone()] == *text {
                continue;
            }
            let at = seq.wrapping_add(place.start as u32);
            let edit = Edit::new(at, place.len(), text);
            if !edit.is_some_and(|edit| edits.push(edit, self.acked)) {
                left += 1;
            }
        }
        self.edits = edits;
        let is_cut = payload.len() < segment.payload.len();
        let len = self.write(seq, payload, out);
        let fin = u32::from(flags & flags::FIN != 0 && !is_cut);
        let end = seq.wrapping_add(payload.len() as u32).wrapping_add(fin);
        let new = &payload[again..];
        if distance(end, next) > 0 {
            self.next = Some(end);
            self.edits.forget_far(end);
        }
        (self.lines, self.offset) = (lines, self.offset + new.len() as u64);
        self.is_line_begin = new.last().map_or(self.is_line_begin, |byte| *byte == b'\n');
        let seq = if flags & flags::SYN != 0 { segment.seq } else { self.edits.there(seq) };
        Ok(Passed { seq, kept: payload.len(), len, left })
    }

    fn as_it_is(&self, seq: u32, kept: usize) -> Passed {
        Passed { seq: self.edits.there(seq), kept, len: None, left: 0 }
    }

    /// Edits of the `len` bytes from `seq` on: where the bytes are that were there, and what is there.
    fn edits_in(
        &self,
        seq: u32,
        len: usize,
    ) -> impl Iterator<Item = (std::ops::Range<usize>, &[u8])> {
        self.edits.kept().iter().filter_map(move |edit| {
            let at = usize::try_from(distance(edit.at(), seq)).ok()?;
            let end = at + edit.old_len();
            (end <= len).then(|| (at..end, edit.text()))
        })
    }

    /// Whether the `len` bytes from `seq` on begin or end within what was edited.
    fn cuts_an_edit(&self, seq: u32, len: usize) -> bool {
        self.edits.kept().iter().any(|edit| {
            let (at, end) = (distance(edit.at(), seq), distance(edit.end(), seq));
            let len = len as i32;
            at < len && end > 0 && (at < 0 || end > len)
        })
    }

    /// Writes the bytes from `seq` on with their edits; how many. `None`: they have none.
    fn write(&self, seq: u32, payload: &[u8], out: &mut [u8]) -> Option<usize> {
        let (mut from, mut to) = (0, 0);
        for (place, text) in self.edits_in(seq, payload.len()) {
            for part in [&payload[from..place.start], text] {
                out.get_mut(to..to + part.len())?.copy_from_slice(part);
                to += part.len();
            }
            from = place.end;
        }
        if from == 0 {
            return None;
        }
        let rest = &payload[from..];
        out.get_mut(to..to + rest.len())?.copy_from_slice(rest);
        Some(to + rest.len())
    }
}

impl Default for Stream {
    fn default() -> Self {
        Self::new()
    }
}

/// Announcements of a segment.
#[derive(Default)]
struct Found {
    all: [Option<Announcement>; FOUND_MAX],
    /// There are others.
    has_more: bool,
}

impl Found {
    fn push(&mut self, own: Announcement) {
        match self.all.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(own),
            None => self.has_more = true,
        }
    }

    fn iter(&self) -> impl Iterator<Item = &Announcement> {
        self.all.iter().flatten()
    }
}

/// Bytes at the end of a segment that may become an announcement: the line that has not ended, if it begins there.
fn part_of_announcement(bytes: &[u8], is_client: bool, is_line_begin: bool) -> usize {
    let begin = bytes.iter().rposition(|byte| *byte == b'\n').map(|at| at + 1);
    let Some(begin) = begin.or_else(|| is_line_begin.then_some(0)) else { return 0 };
    let line = &bytes[begin..];
    let words: [&[u8]; 2] = if is_client { [b"PORT ", b"EPRT "] } else { [b"227 ", b"229 "] };
    let begins = |word: &[u8]| {
        let len = word.len().min(line.len());
        line[..len].eq_ignore_ascii_case(&word[..len])
    };
    let is_part = line.len() < stream::helper::ftp::LINE_MAX && words.into_iter().any(begins);
    if is_part { line.len() } else { 0 }
}

/// Where in a line the address and port are that it announces; `None` where they are not in one piece.
fn place_of(own: &Announcement, line: &[u8]) -> Option<std::ops::Range<usize>> {
    let is_digit = |at: usize| line.get(at).is_some_and(u8::is_ascii_digit);
    match own.form {
        Form::Port | Form::Pasv => {
            let is_inside = |at: usize| is_digit(at) || matches!(line.get(at), Some(b',' | b'.'));
            let begins = |at: &usize| is_digit(*at) && (*at == 0 || !is_inside(*at - 1));
            (0..line.len()).filter(begins).find_map(|at| {
                let end = at
                    + line[at..]
                        .iter()
                        .take_while(|byte| byte.is_ascii_digit() || **byte == b',')
                        .count();
                let mut numbers = [0; 6];
                let mut count = 0;
                for text in line[at..end].split(|byte| *byte == b',') {
                    let text = std::str::from_utf8(text).ok()?;
                    *numbers.get_mut(count)? = text.parse::<u8>().ok()?;
                    count += 1;
                }
                let [a, b, c, d, high, low] = numbers;
                let address = Ipv4Addr::new(a, b, c, d);
                let is_it = own.address == Some(address.into())
                    && own.port == u16::from_be_bytes([high, low]);
                (count == 6 && is_it).then_some(at..end)
            })
        }
        Form::Eprt => {
            let begin = line.iter().position(|byte| *byte == b' ')? + 1;
            let text = line.get(begin..)?;
            let blanks = text.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
            let len = text.trim_ascii().len();
            (len > 8 && !text.contains(&255)).then_some(begin + blanks..begin + blanks + len)
        }
        Form::Epsv => {
            let begin = line.iter().position(|byte| *byte == b'(')? + 4;
            let len = line.get(begin..)?.iter().take_while(|byte| byte.is_ascii_digit()).count();
            let text = std::str::from_utf8(&line[begin..begin + len]).ok()?;
            (text.parse::<u16>().ok()? == own.port).then_some(begin..begin + len)
        }
    }
}

/// How an end is written. `delimiter`: that of the line, for `EPRT`.
fn text_of(
    form: Form,
    (address, port): (Ipv4Addr, u16),
    delimiter: u8,
    out: &mut [u8; TEXT_MAX],
) -> &[u8] {
    use std::io::Write;
    let [a, b, c, d] = address.octets();
    let [high, low] = port.to_be_bytes();
    let mut rest = &mut out[..];
    // TEXT_MAX is the longest of them.
    let _ = match form {
        Form::Port | Form::Pasv => write!(rest, "{a},{b},{c},{d},{high},{low}"),
        Form::Eprt => {
            let mark = char::from(delimiter);
            write!(rest, "{mark}1{mark}{address}{mark}{port}{mark}")
        }
        Form::Epsv => write!(rest, "{port}"),
    };
    let len = TEXT_MAX - rest.len();
    &out[..len]
}

#[cfg(test)]
mod tests;
