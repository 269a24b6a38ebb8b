//! SMTP (RFC 5321): commands, replies, mails and what is in them.
//!
//! ```text
//!  EHLO ─▶ MAIL ─▶ RCPT … ─▶ DATA ─▶ lines up to "." ─▶ the transaction is done when the reply comes
//!                            BDAT n … BDAT n LAST
//! ```
//!
//! The client's bytes are a mail from `DATA` on, whether the reply has come or not, so that the order of the sides does not
//! matter; a reply that refuses takes it back.

use std::collections::VecDeque;

use l7proto::Protocol;
use l7proto::lines::{Command, Reply};

use crate::anomaly::AnomalyKind;
use crate::buffer::Buffer;
use crate::file::FileState;
use crate::line::Line;
use crate::mime::Mime;
use crate::output::Output;
use crate::parser::{Next, Parser};
use crate::sink::{Direction, Progress};
use crate::transaction::{Data, Smtp, Transaction, cost_of};

/// What a reply is to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Greeting,
    /// `MAIL`, `RCPT`, `BDAT` without `LAST`.
    Mail,
    Data,
    /// The end of a mail.
    End,
    StartTls,
    Other,
}

/// Where in the client's bytes.
#[derive(Debug)]
enum Place {
    Command,
    /// In a mail behind `DATA`: where in the line.
    Mail(Dot),
    /// In a chunk of `BDAT`: bytes left, whether it is the last.
    Chunk(u64, bool),
}

/// Where in a line of a mail (RFC 5321 §4.5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dot {
    /// At its start.
    Start,
    /// Behind a dot at its start.
    Behind,
    /// Behind a dot and a carriage return.
    Return,
    Within,
}

/// A flow of SMTP.
#[derive(Debug)]
pub(crate) struct SmtpFlow {
    transaction: Option<Transaction>,
    helo: Option<Vec<u8>>,
    lines: [Line; 2],
    is_cut: [bool; 2],
    place: Place,
    mail: Option<Box<Mime>>,
    has_data: bool,
    /// Of the transaction: how often the client said its name, whether it began a mail.
    helos: usize,
    has_mail: bool,
    asked: VecDeque<Asked>,
}

impl SmtpFlow {
    pub(crate) fn new(is_midstream: bool) -> Self {
        let asked = if is_midstream { VecDeque::new() } else { [Asked::Greeting].into() };
        Self {
            transaction: None,
            helo: None,
            lines: Default::default(),
            is_cut: [false; 2],
            place: Place::Command,
            mail: None,
            has_data: false,
            helos: 0,
            has_mail: false,
            asked,
        }
    }

    /// The open transaction; another one begins if there is none.
    fn smtp<'a>(&'a mut self, out: &mut Output<'_>) -> (u64, &'a mut Smtp) {
        if self.transaction.is_none() {
            let helo = self.helo.clone();
            let transaction = out.begin(Data::Smtp(Box::new(Smtp { helo, ..Smtp::default() })));
            if let Some(helo) = &self.helo {
                out.buffer(transaction.id, Direction::ToServer, Buffer::SmtpHelo, 0, helo);
            }
            self.transaction = Some(transaction);
            (self.helos, self.has_mail) = (usize::from(self.helo.is_some()), false);
        }
        match self.transaction.as_mut().map(|transaction| (transaction.id, &mut transaction.data)) {
            Some((id, Data::Smtp(smtp))) => (id, smtp),
            _ => unreachable!("the transaction was made here"),
        }
    }

    fn odd(&self, out: &mut Output<'_>, kind: AnomalyKind, direction: Direction) {
        let id = self.transaction.as_ref().map(|transaction| transaction.id);
        out.anomaly(kind, id, Some(direction));
    }

    /// The transaction is over, its mail too.
    fn close(&mut self, out: &mut Output<'_>) {
        self.end_mail(out, FileState::Truncated);
        if let Some(mut transaction) = self.transaction.take() {
            out.progress(&mut transaction, Progress::Finished);
        }
    }

    fn end_mail(&mut self, out: &mut Output<'_>, state: FileState) {
        let Some(mail) = self.mail.take() else { return };
        let email = mail.end(out, state);
        if let Some(transaction) = &mut self.transaction
            && let Data::Smtp(smtp) = &mut transaction.data
        {
            smtp.email = email;
        }
    }

    /// The mail came to its end.
    fn whole_mail(&mut self, out: &mut Output<'_>) {
        self.end_mail(out, FileState::Closed);
        self.ask(out, Asked::End);
        if let Some(transaction) = &mut self.transaction {
            out.progress(transaction, Progress::Done(Direction::ToServer));
        }
    }

    fn ask(&mut self, out: &Output<'_>, asked: Asked) {
        if self.asked.len() >= out.limits.entries {
            self.asked.pop_front();
        }
        self.asked.push_back(asked);
    }

    fn command(&mut self, out: &mut Output<'_>, text: &[u8], is_long: bool) {
        let direction = Direction::ToServer;
        if is_long {
            self.odd(out, AnomalyKind::SmtpLongCommand, direction);
        }
        let command = Command::parse(text);
        let (verb, argument) = command.map_or((&[][..], text), |c| (c.verb, c.argument));
        let is_open = self.transaction.as_ref().is_some_and(|transaction| {
            let Data::Smtp(smtp) = &transaction.data else { return false };
            smtp.mail_from.is_some()
        });
        let asked = match verb.to_ascii_uppercase().as_slice() {
            b"HELO" | b"EHLO" | b"LHLO" => {
                if is_open {
                    self.close(out);
                }
                self.helo = Some(argument.to_vec());
                match &mut self.transaction {
                    Some(transaction) => {
                        if let Data::Smtp(smtp) = &mut transaction.data {
                            smtp.helo.clone_from(&self.helo);
                        }
                        let id = transaction.id;
                        out.buffer(id, direction, Buffer::SmtpHelo, self.helos, argument);
                        self.helos += 1;
                    }
                    None => {
                        self.smtp(out);
                    }
                }
                Asked::Other
            }
            b"MAIL" => {
                if is_open {
                    self.close(out);
                }
                let from = path(argument, b"FROM:");
                let (id, smtp) = self.smtp(out);
                smtp.mail_from = Some(from.clone());
                out.buffer(id, direction, Buffer::SmtpMailFrom, 0, &from);
                Asked::Mail
            }
            b"RCPT" => {
                let to = path(argument, b"TO:");
                // Half is for recipients, half for what is in the mail.
                let (limit, room) = (out.limits.entries, out.limits.session_bytes / 2);
                let (id, smtp) = self.smtp(out);
                let number = smtp.rcpt_to.len();
                let cost = smtp.rcpt_to.iter().chain([&to]).map(|to| cost_of(to)).sum::<usize>();
                if number < limit && cost <= room {
                    smtp.rcpt_to.push(to.clone());
                    out.buffer(id, direction, Buffer::SmtpRcptTo, number, &to);
                }
                Asked::Mail
            }
            b"DATA" => {
                self.begin_mail(out);
                self.place = Place::Mail(Dot::Start);
                self.has_data = false;
                Asked::Data
            }
            b"BDAT" => return self.chunk(out, argument),
            b"RSET" => {
                if is_open {
                    self.close(out);
                }
                Asked::Other
            }
            b"STARTTLS" => Asked::StartTls,
            _ => Asked::Other,
        };
        self.ask(out, asked);
    }

    fn begin_mail(&mut self, out: &mut Output<'_>) {
        if self.transaction.is_some() && self.has_mail {
            // A second mail without `MAIL`.
            self.close(out);
        }
        let (id, _) = self.smtp(out);
        if let Some(transaction) = &mut self.transaction {
            out.progress(transaction, Progress::Head(Direction::ToServer));
        }
        self.has_mail = true;
        self.mail = Some(Box::new(Mime::mail(id, Direction::ToServer)));
    }

    /// `BDAT size [LAST]` (RFC 3030 §2).
    fn chunk(&mut self, out: &mut Output<'_>, argument: &[u8]) {
        let mut words = argument.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
        let digits = words.next().unwrap_or_default();
        let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
        let size =
            std::str::from_utf8(digits).ok().and_then(|d| d.parse().ok()).filter(|_| is_number);
        let Some(size) = size else {
            self.odd(out, AnomalyKind::SmtpChunk, Direction::ToServer);
            self.ask(out, Asked::Other);
            return;
        };
        let is_last = words.next().is_some_and(|word| word.eq_ignore_ascii_case(b"LAST"));
        if self.mail.is_none() {
            self.begin_mail(out);
        }
        if size > 0 {
            self.place = Place::Chunk(size, is_last);
        } else {
            self.end_chunk(out, is_last);
        }
    }

    fn end_chunk(&mut self, out: &mut Output<'_>, is_last: bool) {
        self.place = Place::Command;
        match is_last {
            true => self.whole_mail(out),
            false => self.ask(out, Asked::Mail),
        }
    }

    /// Bytes of a mail behind `DATA`; how many belong to it.
    fn mail(&mut self, out: &mut Output<'_>, bytes: &[u8], mut dot: Dot) -> usize {
        self.has_data = true;
        let mut text = Vec::with_capacity(bytes.len() + 2);
        for (number, byte) in bytes.iter().enumerate() {
            dot = match (dot, byte) {
                (Dot::Start, b'.') => Dot::Behind,
                (Dot::Behind, b'\r') => Dot::Return,
                (Dot::Behind | Dot::Return, b'\n') => {
                    self.feed(out, &text);
                    self.place = Place::Command;
                    self.whole_mail(out);
                    return number + 1;
                }
                (before, byte) => {
                    if before == Dot::Return {
                        text.push(b'\r');
                    }
                    text.push(*byte);
                    if *byte == b'\n' { Dot::Start } else { Dot::Within }
                }
            };
        }
        self.feed(out, &text);
        self.place = Place::Mail(dot);
        bytes.len()
    }

    fn feed(&mut self, out: &mut Output<'_>, bytes: &[u8]) {
        if let Some(mail) = &mut self.mail {
            mail.feed(out, bytes);
        }
    }

    /// TLS follows: `true`.
    fn reply(&mut self, out: &mut Output<'_>, text: &[u8], is_long: bool) -> bool {
        let direction = Direction::ToClient;
        if is_long {
            self.odd(out, AnomalyKind::SmtpLongReply, direction);
        }
        let Some(reply) = Reply::parse(text) else {
            self.odd(out, AnomalyKind::SmtpReply, direction);
            return false;
        };
        if reply.continues {
            return false;
        }
        let Some(asked) = self.asked.pop_front() else {
            self.odd(out, AnomalyKind::SmtpUnmatchedReply, direction);
            return false;
        };
        let limit = out.limits.entries;
        if matches!(asked, Asked::Mail | Asked::Data | Asked::End)
            && let Some(transaction) = &mut self.transaction
            && let Data::Smtp(smtp) = &mut transaction.data
            && smtp.replies.len() < limit
        {
            smtp.replies.push(reply.code);
        }
        match asked {
            Asked::Greeting if reply.code != 220 => {
                self.odd(out, AnomalyKind::SmtpNoWelcome, direction);
            }
            Asked::StartTls if reply.code == 220 => return true,
            Asked::StartTls => self.odd(out, AnomalyKind::SmtpTlsRejected, direction),
            Asked::Data if reply.code < 400 && self.has_data => {
                self.odd(out, AnomalyKind::SmtpPipelined, Direction::ToServer);
            }
            Asked::Data if reply.code >= 400 => {
                if self.has_data {
                    self.odd(out, AnomalyKind::SmtpDataRejected, direction);
                } else if matches!(self.place, Place::Mail(_)) {
                    self.place = Place::Command;
                    self.mail = None;
                }
            }
            Asked::End => {
                let is_done = self
                    .transaction
                    .as_ref()
                    .is_some_and(|transaction| transaction.is_done(Direction::ToServer));
                if is_done && let Some(mut transaction) = self.transaction.take() {
                    out.progress(&mut transaction, Progress::Done(direction));
                    out.progress(&mut transaction, Progress::Finished);
                }
            }
            _ => {}
        }
        false
    }
}

/// The path of `FROM:<path> parameters` with its brackets.
fn path(argument: &[u8], word: &[u8]) -> Vec<u8> {
    let is_named = argument.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
    let rest = if is_named { argument[word.len()..].trim_ascii() } else { argument };
    let end = match rest.first() {
        Some(b'<') => rest.iter().position(|byte| *byte == b'>').map(|at| at + 1),
        _ => rest.iter().position(|byte| *byte == b' '),
    };
    rest[..end.unwrap_or(rest.len())].to_vec()
}

impl Parser for SmtpFlow {
    fn held(&self) -> usize {
        let lines: usize = self.lines.iter().map(Line::held).sum();
        let open = self.transaction.as_ref().and_then(Transaction::cost).unwrap_or(0);
        let mail = self.mail.as_ref().map_or(0, |mail| mail.held());
        let helo = self.helo.as_ref().map_or(0, Vec::capacity);
        size_of::<Self>() + lines + open + mail + helo + self.asked.capacity() * size_of::<Asked>()
    }

    fn data(&mut self, out: &mut Output<'_>, direction: Direction, mut bytes: &[u8]) -> Next {
        let side = direction as usize;
        while !bytes.is_empty() {
            if direction == Direction::ToServer {
                match self.place {
                    Place::Command => {}
                    Place::Mail(dot) => {
                        let taken = self.mail(out, bytes, dot);
                        bytes = &bytes[taken..];
                        continue;
                    }
                    Place::Chunk(left, is_last) => {
                        let len = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                        self.feed(out, &bytes[..len]);
                        bytes = &bytes[len..];
                        self.place = Place::Chunk(left - len as u64, is_last);
                        if left == len as u64 {
                            self.end_chunk(out, is_last);
                        }
                        continue;
                    }
                }
            }
            let mut line = std::mem::take(&mut self.lines[side]);
            bytes = &bytes[line.feed(bytes, out.limits.line_bytes)..];
            let mut is_tls = false;
            if let Some((text, is_long)) = line.whole() {
                let is_rest = std::mem::take(&mut self.is_cut[side]);
                match direction {
                    _ if is_rest => {}
                    Direction::ToServer => self.command(out, text, is_long),
                    Direction::ToClient => is_tls = self.reply(out, text, is_long),
                }
            }
            self.lines[side] = line;
            if is_tls {
                let unread = bytes.len();
                return Next::Change { to: Some(Protocol::Tls), unread, held: Vec::new() };
            }
        }
        Next::More
    }

    fn gap(&mut self, out: &mut Output<'_>, direction: Direction, bytes: u64) -> Next {
        match (direction, &mut self.place) {
            (Direction::ToServer, Place::Chunk(left, _)) if *left > bytes => {
                *left -= bytes;
                self.end_mail(out, FileState::Truncated);
            }
            (Direction::ToServer, Place::Mail(dot)) => {
                *dot = Dot::Within;
                self.end_mail(out, FileState::Truncated);
            }
            (_, place) => {
                if direction == Direction::ToServer {
                    *place = Place::Command;
                    self.end_mail(out, FileState::Truncated);
                }
                self.lines[direction as usize].clear();
                self.is_cut[direction as usize] = true;
            }
        }
        Next::More
    }

    fn end_of_side(&mut self, out: &mut Output<'_>, direction: Direction) {
        if direction == Direction::ToServer {
            self.end_mail(out, FileState::Truncated);
        }
    }

    fn finish(&mut self, out: &mut Output<'_>) {
        self.close(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        assert_eq!(path(b"FROM:<a@b> SIZE=1", b"FROM:"), b"<a@b>");
        assert_eq!(path(b"from: <>", b"FROM:"), b"<>");
        assert_eq!(path(b"TO:a@b x", b"TO:"), b"a@b");
        assert_eq!(path(b"x", b"TO:"), b"x");
    }
}
