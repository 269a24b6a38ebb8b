//! FTP (RFC 959): commands with their replies.

use std::collections::VecDeque;

use l7proto::Protocol;
use l7proto::lines::{Command, Reply};

use crate::anomaly::AnomalyKind;
use crate::buffer::Buffer;
use crate::line::Line;
use crate::output::Output;
use crate::parser::{Next, Parser};
use crate::sink::{Direction, Progress};
use crate::transaction::{self, Data, Ftp, Transaction};

/// A flow of FTP's control connection.
#[derive(Debug, Default)]
pub(crate) struct FtpFlow {
    open: VecDeque<Transaction>,
    /// What the commands of these cost to keep, in bytes; and the replies of the first one.
    cost: usize,
    replies_cost: usize,
    lines: [Line; 2],
    /// The code of a reply of several lines.
    within: Option<u16>,
    /// Behind a gap the rest of a line is skipped.
    is_cut: [bool; 2],
}

impl FtpFlow {
    fn begin(&mut self, out: &mut Output<'_>, ftp: Ftp) -> u64 {
        let cost = cost_of(&ftp);
        // Half is for commands, half for replies.
        while self.open.len() >= out.limits.open_transactions
            || self.cost + cost > out.limits.session_bytes / 2
        {
            let Some(mut oldest) = self.first() else { break };
            out.progress(&mut oldest, Progress::Finished);
        }
        self.cost += cost;
        let transaction = out.begin(Data::Ftp(Box::new(ftp)));
        let id = transaction.id;
        self.open.push_back(transaction);
        id
    }

    /// Takes the first of the open ones.
    fn first(&mut self) -> Option<Transaction> {
        let transaction = self.open.pop_front()?;
        if let Data::Ftp(ftp) = &transaction.data {
            self.cost -= cost_of(ftp);
        }
        self.replies_cost = 0;
        Some(transaction)
    }

    fn command(&mut self, out: &mut Output<'_>, text: &[u8], is_cut: bool) {
        let direction = Direction::ToServer;
        // What is no word is kept as it is: a client may send anything.
        let space = text.iter().position(|byte| *byte == b' ').unwrap_or(text.len());
        let command = Command::parse(text)
            .unwrap_or(Command { verb: &text[..space], argument: text[space..].trim_ascii() });
        if command.verb.is_empty() {
            return;
        }
        let data_port = match command.verb.to_ascii_uppercase().as_slice() {
            b"PORT" => port(command.argument),
            b"EPRT" => extended_port(command.argument, 3),
            _ => None,
        };
        let (verb, argument) = (command.verb.to_vec(), command.argument.to_vec());
        let ftp = Ftp { command: verb, argument, data_port, ..Ftp::default() };
        let id = self.begin(out, ftp);
        out.buffer(id, direction, Buffer::FtpCommand, 0, command.verb);
        if !command.argument.is_empty() {
            out.buffer(id, direction, Buffer::FtpCommandData, 0, command.argument);
        }
        if is_cut {
            out.anomaly(AnomalyKind::FtpLongCommand, Some(id), Some(direction));
        }
        if let Some(transaction) = self.open.back_mut() {
            out.progress(transaction, Progress::Done(direction));
        }
    }

    /// TLS follows: `true`.
    fn reply(&mut self, out: &mut Output<'_>, text: &[u8], is_cut: bool) -> bool {
        let direction = Direction::ToClient;
        let reply = Reply::parse(text);
        let (code, text, is_last) = match (self.within, reply) {
            (None, None) => (0, text, true),
            (None, Some(reply)) => (reply.code, reply.text, !reply.continues),
            // A line within goes on, whatever it begins with, but with the code and a space.
            (Some(code), Some(reply)) if reply.code == code => (code, reply.text, !reply.continues),
            (Some(code), _) => (code, text, false),
        };
        self.within = (!is_last).then_some(code);
        if self.open.is_empty() {
            let id = self.begin(out, Ftp::default());
            // There is no command.
            if let Some(transaction) = self.open.iter_mut().find(|transaction| transaction.id == id)
            {
                transaction.done[Direction::ToServer as usize] = true;
            }
        }
        let (limit, room) = (out.limits.entries, out.limits.session_bytes / 2);
        let cost = self.replies_cost + transaction::cost_of(text);
        let Some(transaction) = self.open.front_mut() else { return false };
        let id = transaction.id;
        let Data::Ftp(ftp) = &mut transaction.data else { return false };
        let number = ftp.replies.len();
        if number < limit && cost <= room {
            self.replies_cost = cost;
            out.buffer(id, direction, Buffer::FtpReply, number, text);
            if code != 0 && ftp.replies.last().is_none_or(|(last, _)| *last != code) {
                let digits = format!("{code:03}");
                out.buffer(id, direction, Buffer::FtpCompletionCode, number, digits.as_bytes());
            }
            ftp.replies.push((code, text.to_vec()));
        }
        match code {
            227 => ftp.data_port = port(text).or(ftp.data_port),
            229 => ftp.data_port = extended_port(text, 3).or(ftp.data_port),
            _ => {}
        }
        if is_cut {
            out.anomaly(AnomalyKind::FtpLongReply, Some(id), Some(direction));
        }
        let is_tls = code == 234 && ftp.command.eq_ignore_ascii_case(b"AUTH");
        // Another reply follows a preliminary one (RFC 959 §4.2).
        let is_preliminary = (100..200).contains(&code);
        if is_last
            && !is_preliminary
            && let Some(mut transaction) = self.first()
        {
            out.progress(&mut transaction, Progress::Done(direction));
            out.progress(&mut transaction, Progress::Finished);
            return is_tls;
        }
        false
    }
}

fn cost_of(ftp: &Ftp) -> usize {
    size_of::<Ftp>() + transaction::cost_of(&ftp.command) + transaction::cost_of(&ftp.argument)
}

/// The port of `h1,h2,h3,h4,p1,p2`, wherever it is in the text.
fn port(text: &[u8]) -> Option<u16> {
    let text = std::str::from_utf8(text).ok()?;
    let is_part = |c: char| c.is_ascii_digit() || c == ',';
    text.split(|c| !is_part(c)).find_map(|numbers| {
        let numbers: Vec<u8> = numbers.split(',').map(str::parse).collect::<Result<_, _>>().ok()?;
        match numbers[..] {
            [_, _, _, _, high, low] => Some(u16::from_be_bytes([high, low])),
            _ => None,
        }
    })
}

/// The port of `|2|address|port|` (RFC 2428), of which it is the n-th part.
fn extended_port(text: &[u8], part: usize) -> Option<u16> {
    let text = std::str::from_utf8(text).ok()?;
    let text = match text.split_once('(') {
        Some((_, inner)) => inner,
        None => text,
    };
    let separator = text.chars().next()?;
    text.split(separator).nth(part)?.parse().ok()
}

impl Parser for FtpFlow {
    fn held(&self) -> usize {
        let lines: usize = self.lines.iter().map(Line::held).sum();
        let open = self.open.capacity() * size_of::<Transaction>();
        size_of::<Self>() + open + self.cost + self.replies_cost + lines
    }

    fn data(&mut self, out: &mut Output<'_>, direction: Direction, mut bytes: &[u8]) -> Next {
        let side = direction as usize;
        while !bytes.is_empty() {
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

    fn gap(&mut self, _: &mut Output<'_>, direction: Direction, _: u64) -> Next {
        self.lines[direction as usize].clear();
        self.is_cut[direction as usize] = true;
        Next::More
    }

    fn end_of_side(&mut self, out: &mut Output<'_>, direction: Direction) {
        // A last line without its end counts.
        if !self.lines[direction as usize].rest().is_empty() {
            self.data(out, direction, b"\n");
        }
    }

    fn finish(&mut self, out: &mut Output<'_>) {
        for mut transaction in std::mem::take(&mut self.open) {
            out.progress(&mut transaction, Progress::Finished);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports() {
        assert_eq!(port(b"10,0,0,1,4,1"), Some(1025));
        assert_eq!(port(b"Entering Passive Mode (10,0,0,1,195,80)."), Some(50000));
        assert_eq!(port(b"Entering Passive Mode (10,0,0,1,195)."), None);
        assert_eq!(extended_port(b"|1|10.0.0.1|6275|", 3), Some(6275));
        assert_eq!(extended_port(b"Entering Extended Passive Mode (|||6446|)", 3), Some(6446));
    }
}
