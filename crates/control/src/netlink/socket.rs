//! The two sockets: one that asks, one that listens.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use netlink_packet_core::{
    Emitable, NLM_F_ACK, NLM_F_ACK_TLVS, NLM_F_CAPPED, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST,
    NLMSG_DONE, NLMSG_ERROR,
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use zeroize::Zeroize;

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::sockopt,
};

use super::{Error, attributes};

/// `nlmsghdr`: length, type, flags, sequence number, port.
const HEADER: usize = 16;
/// Largest datagram that the kernel builds for a dump is 32 KiB; one notification can be longer.
const DATAGRAM: usize = 1 << 17;
/// `MSG_DONTWAIT`, `MSG_TRUNC` of the Linux ABI; the same on every architecture Rust runs on.
const MSG_DONTWAIT: i32 = 0x40;
const MSG_TRUNC: i32 = 0x20;
const NLMSGERR_ATTR_MSG: u16 = 1;

/// Encodes a message body.
pub fn emit(body: &impl Emitable) -> Vec<u8> {
    let mut bytes = vec![0; body.buffer_len()];
    body.emit(&mut bytes);
    bytes
}

/// One netlink message within a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    /// Message type.
    pub kind: u16,
    /// Header flags (`NLM_F_…`).
    pub flags: u16,
    /// Sequence number of the request that it answers; 0 in most notifications.
    pub sequence: u32,
    /// What follows the header.
    pub payload: &'a [u8],
}

/// The messages of one datagram; reading stops at the first whose length lies.
#[derive(Debug, Clone)]
pub struct Messages<'a>(&'a [u8]);

impl<'a> Messages<'a> {
    /// Over a datagram's bytes.
    pub fn new(datagram: &'a [u8]) -> Self {
        Messages(datagram)
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = Message<'a>;

    fn next(&mut self) -> Option<Message<'a>> {
        let header = self.0.first_chunk::<HEADER>()?;
        let u16_at = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
        let u32_at = |at: usize| {
            u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let length = u32_at(0) as usize;
        let payload = self.0.get(HEADER..length)?;
        let message = Message { kind: u16_at(4), flags: u16_at(6), sequence: u32_at(8), payload };
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        Some(message)
    }
}

fn push_message(out: &mut Vec<u8>, kind: u16, flags: u16, sequence: u32, body: &[u8]) {
    let length = (HEADER + body.len()) as u32;
    out.extend_from_slice(&length.to_ne_bytes());
    out.extend_from_slice(&kind.to_ne_bytes());
    out.extend_from_slice(&flags.to_ne_bytes());
    out.extend_from_slice(&sequence.to_ne_bytes());
    out.extend_from_slice(&0u32.to_ne_bytes());
    out.extend_from_slice(body);
    out.resize(out.len().next_multiple_of(4), 0);
}

/// The verdict in an `NLMSG_ERROR` or `NLMSG_DONE` payload: `None` for success.
fn refusal(message: &Message<'_>, what: &str) -> Option<Error> {
    let code = message.payload.first_chunk::<4>().map_or(0, |bytes| i32::from_ne_bytes(*bytes));
    if code >= 0 {
        return None;
    }
    let tlvs = if message.flags & NLM_F_ACK_TLVS == 0 {
        &[][..]
    } else if message.kind == NLMSG_DONE {
        message.payload.get(4..).unwrap_or(&[])
    } else {
        // error code, then the request's header, then its body unless the kernel left it out.
        let request = message.payload.get(4..).unwrap_or(&[]);
        let echoed = if message.flags & NLM_F_CAPPED != 0 {
            HEADER
        } else {
            request.first_chunk::<4>().map_or(HEADER, |b| u32::from_ne_bytes(*b) as usize)
        };
        request.get(echoed.next_multiple_of(4)..).unwrap_or(&[])
    };
    let message = attributes(tlvs)
        .find(|(kind, _)| *kind == NLMSGERR_ATTR_MSG)
        .map(|(_, text)| String::from_utf8_lossy(text).trim_end_matches('\0').to_owned());
    let source = io::Error::from_raw_os_error(code.checked_neg().unwrap_or(0));
    Some(Error::Refused { what: what.to_owned(), message, source })
}

/// Waits until one of `fds` is readable. `Ok(false)`: the time passed.
fn wait(fds: &[BorrowedFd<'_>], limit: Duration) -> io::Result<bool> {
    let deadline = Instant::now() + limit;
    let mut set: Vec<PollFd<'_>> =
        fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: left.as_secs().min(i32::MAX as u64) as i64,
            tv_nsec: left.subsec_nanos().into(),
        };
        match poll(&mut set, Some(&timeout)) {
            Ok(0) => return Ok(false),
            Ok(_) => return Ok(true),
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
    }
}

/// How a dump ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DumpEnd {
    /// The kernel says that the dumped set changed meanwhile: the picture may be torn.
    pub interrupted: bool,
}

/// Memory for a datagram. If it is secret, what is in it is wiped before the next one and at the end.
struct Buffer {
    bytes: Vec<u8>,
    is_secret: bool,
}

impl Buffer {
    fn new(is_secret: bool) -> Self {
        Self { bytes: Vec::with_capacity(DATAGRAM), is_secret }
    }

    /// Empty, with all of its room.
    fn empty(&mut self) -> &mut Vec<u8> {
        if self.is_secret {
            self.bytes.as_mut_slice().zeroize();
        }
        self.bytes.clear();
        &mut self.bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.empty();
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({} bytes)", self.bytes.len())
    }
}

/// A socket for requests.
#[derive(Debug)]
pub struct Client {
    socket: Socket,
    sequence: u32,
    buffer: Buffer,
    limit: Duration,
}

impl Client {
    /// A client for rtnetlink.
    pub fn route() -> Result<Client, Error> {
        Client::new(NETLINK_ROUTE)
    }

    /// A client for any netlink family (`NETLINK_…`).
    pub fn new(protocol: isize) -> Result<Client, Error> {
        Client::with_buffer(protocol, Buffer::new(false))
    }

    /// A client whose answers have keys in them: it wipes them.
    pub fn secret(protocol: isize) -> Result<Client, Error> {
        Client::with_buffer(protocol, Buffer::new(true))
    }

    fn with_buffer(protocol: isize, buffer: Buffer) -> Result<Client, Error> {
        let failed = |error: io::Error| Error::socket("opening a netlink socket", error);
        let mut socket = Socket::new(protocol).map_err(failed)?;
        socket.bind_auto().map_err(failed)?;
        socket.connect(&SocketAddr::new(0, 0)).map_err(failed)?;
        // Kernels without one of these options serve us as well, only with fewer words
        // or without filtering a dump; the readers check again.
        let _ = socket.set_ext_ack(true);
        let _ = socket.set_cap_ack(true);
        let _ = socket.set_netlink_get_strict_chk(true);
        Ok(Client { socket, sequence: 1, buffer, limit: Duration::from_secs(5) })
    }

    /// How long to wait for each datagram of an answer. Five seconds at first.
    pub fn set_limit(&mut self, limit: Duration) {
        self.limit = limit;
    }

    /// Sends a request and waits for its acknowledgement.
    pub fn change(&mut self, what: &str, kind: u16, flags: u16, body: &[u8]) -> Result<(), Error> {
        let sequence = self.send(what, kind, NLM_F_REQUEST | NLM_F_ACK | flags, body)?;
        self.collect(what, sequence, |_| {})
    }

    /// Sends a request that has an answer, hands the answer's messages to `each`, and waits for
    /// the acknowledgement.
    pub fn get(
        &mut self,
        what: &str,
        kind: u16,
        body: &[u8],
        each: impl FnMut(Message<'_>),
    ) -> Result<(), Error> {
        let sequence = self.send(what, kind, NLM_F_REQUEST | NLM_F_ACK, body)?;
        self.collect(what, sequence, each)
    }

    /// Sends a message to those who have joined a multicast group, as the kernel announces changes. They see the port of this
    /// socket as its sender, where the kernel's messages have 0, and need not believe it. Nobody need listen. It takes
    /// `CAP_NET_ADMIN`.
    pub fn announce(
        &mut self,
        what: &str,
        kind: u16,
        group: u32,
        body: &[u8],
    ) -> Result<(), Error> {
        let mut bytes = Vec::with_capacity(HEADER + body.len());
        // Without `NLM_F_REQUEST`: the kernel gets it, too, and passes over it.
        push_message(&mut bytes, kind, 0, 0, body);
        let groups = group.checked_sub(1).and_then(|bit| 1u32.checked_shl(bit)).unwrap_or(0);
        let sent = self.socket.send_to(&bytes, &SocketAddr::new(0, groups), 0);
        sent.map_err(|error| Error::socket(what, error)).map(drop)
    }

    /// Asks for all objects of a kind and hands them to `each` in the kernel's order.
    pub fn dump(
        &mut self,
        what: &str,
        kind: u16,
        body: &[u8],
        mut each: impl FnMut(Message<'_>),
    ) -> Result<DumpEnd, Error> {
        let sequence = self.send(what, kind, NLM_F_REQUEST | NLM_F_DUMP, body)?;
        let mut interrupted = false;
        loop {
            let datagram = receive(&self.socket, &mut self.buffer, what, self.limit)?;
            for message in Messages::new(datagram).filter(|m| m.sequence == sequence) {
                interrupted |= message.flags & NLM_F_DUMP_INTR != 0;
                match message.kind {
                    NLMSG_ERROR | NLMSG_DONE => {
                        return refusal(&message, what).map_or(Ok(DumpEnd { interrupted }), Err);
                    }
                    _ => each(message),
                }
            }
        }
    }

    /// Sends several messages as one datagram (an nfnetlink transaction) and waits for the
    /// acknowledgement of each that asks for one. Each entry: (type, flags, body).
    ///
    /// Returns the first refusal.
    pub fn transaction(&mut self, what: &str, parts: &[(u16, u16, &[u8])]) -> Result<(), Error> {
        let mut bytes = Vec::new();
        let mut waiting = Vec::new();
        for (kind, flags, body) in parts {
            self.sequence = self.sequence.wrapping_add(1).max(1);
            push_message(&mut bytes, *kind, NLM_F_REQUEST | flags, self.sequence, body);
            if flags & NLM_F_ACK != 0 {
                waiting.push(self.sequence);
            }
        }
        let first = self.sequence.wrapping_sub(parts.len() as u32 - 1);
        self.socket.send(&bytes, 0).map_err(|error| Error::socket(what, error))?;
        let mut refused = None;
        while !waiting.is_empty() {
            let datagram = receive(&self.socket, &mut self.buffer, what, self.limit)?;
            for message in Messages::new(datagram) {
                let ours = message.sequence.wrapping_sub(first) < parts.len() as u32;
                if !ours || message.kind != NLMSG_ERROR {
                    continue;
                }
                waiting.retain(|sequence| *sequence != message.sequence);
                if let Some(error) = refusal(&message, what) {
                    refused.get_or_insert(error);
                }
            }
            if refused.is_some() {
                break; // the transaction was undone; its other parts may stay unanswered
            }
        }
        refused.map_or(Ok(()), Err)
    }

    fn send(&mut self, what: &str, kind: u16, flags: u16, body: &[u8]) -> Result<u32, Error> {
        self.sequence = self.sequence.wrapping_add(1).max(1);
        let mut bytes = Vec::with_capacity(HEADER + body.len());
        push_message(&mut bytes, kind, flags, self.sequence, body);
        self.socket.send(&bytes, 0).map_err(|error| Error::socket(what, error))?;
        Ok(self.sequence)
    }

    fn collect(
        &mut self,
        what: &str,
        sequence: u32,
        mut each: impl FnMut(Message<'_>),
    ) -> Result<(), Error> {
        loop {
            let datagram = receive(&self.socket, &mut self.buffer, what, self.limit)?;
            for message in Messages::new(datagram).filter(|m| m.sequence == sequence) {
                match message.kind {
                    NLMSG_ERROR => return refusal(&message, what).map_or(Ok(()), Err),
                    _ => each(message),
                }
            }
        }
    }
}

fn receive<'b>(
    socket: &Socket,
    buffer: &'b mut Buffer,
    what: &str,
    limit: Duration,
) -> Result<&'b [u8], Error> {
    let failed = |error: io::Error| Error::socket(what, error);
    loop {
        let bytes = buffer.empty();
        match socket.recv_from(bytes, MSG_DONTWAIT | MSG_TRUNC) {
            Ok((length, _)) if length > bytes.capacity() => {
                return Err(Error::malformed(what, format!("a datagram of {length} bytes")));
            }
            Ok((_, from)) if from.port_number() != 0 => continue, // only the kernel is believed
            Ok(_) => return Ok(&buffer.bytes),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if !wait(&[socket.as_fd()], limit).map_err(failed)? {
                    let limit_ms = limit.as_millis() as u64;
                    return Err(Error::Timeout { what: what.to_owned(), limit_ms });
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(failed(error)),
        }
    }
}

/// What a [`Listener`] got.
#[derive(Debug)]
pub enum Received<'b> {
    /// Messages of one datagram.
    Messages(Messages<'b>),
    /// The kernel dropped notifications (`ENOBUFS`), or one was too long to read: what the
    /// listener knows is out of date.
    Overrun,
    /// Nothing is waiting.
    Nothing,
}

/// A socket that joined multicast groups.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    buffer: Buffer,
    buffer_bytes: usize,
}

impl Listener {
    /// Joins `groups` of rtnetlink with a receive buffer of `buffer_bytes`
    /// (by `SO_RCVBUFFORCE`; without the capability `CAP_NET_ADMIN` by `SO_RCVBUF`, which
    /// `net.core.rmem_max` bounds).
    pub fn route(groups: &[u32], buffer_bytes: usize) -> Result<Listener, Error> {
        Listener::with_buffer(NETLINK_ROUTE, groups, buffer_bytes, Buffer::new(false))
    }

    /// Joins `groups` of another netlink family, whose notifications have keys in them: it wipes them.
    pub fn secret(protocol: isize, groups: &[u32], buffer_bytes: usize) -> Result<Listener, Error> {
        Listener::with_buffer(protocol, groups, buffer_bytes, Buffer::new(true))
    }

    fn with_buffer(
        protocol: isize,
        groups: &[u32],
        buffer_bytes: usize,
        buffer: Buffer,
    ) -> Result<Listener, Error> {
        let failed = |error: io::Error| Error::socket("listening to the kernel's changes", error);
        let mut socket = Socket::new(protocol).map_err(failed)?;
        if sockopt::set_socket_recv_buffer_size_force(&socket, buffer_bytes).is_err() {
            sockopt::set_socket_recv_buffer_size(&socket, buffer_bytes)
                .map_err(|error| failed(error.into()))?;
        }
        let buffer_bytes = socket.get_rx_buf_sz().map_err(failed)?;
        socket.bind_auto().map_err(failed)?;
        for group in groups {
            socket
                .add_membership(*group)
                .map_err(|error| Error::socket(format!("joining netlink group {group}"), error))?;
        }
        Ok(Listener { socket, buffer, buffer_bytes })
    }

    /// The receive buffer that the kernel granted, in its own count (twice the request).
    pub fn buffer_bytes(&self) -> usize {
        self.buffer_bytes
    }

    /// Takes one datagram without waiting.
    pub fn take(&mut self) -> Result<Received<'_>, Error> {
        loop {
            let bytes = self.buffer.empty();
            match self.socket.recv_from(bytes, MSG_DONTWAIT | MSG_TRUNC) {
                Ok((_, from)) if from.port_number() != 0 => continue,
                Ok((length, _)) if length > bytes.capacity() => {
                    return Ok(Received::Overrun);
                }
                Ok(_) => break,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(Received::Nothing);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.raw_os_error() == Some(Errno::NOBUFS.raw_os_error()) => {
                    return Ok(Received::Overrun);
                }
                Err(error) => return Err(Error::socket("reading the kernel's changes", error)),
            }
        }
        Ok(Received::Messages(Messages::new(&self.buffer.bytes)))
    }

    /// Waits until a notification or `wake` is readable. `false`: the time passed.
    pub fn wait(&self, wake: BorrowedFd<'_>, limit: Duration) -> Result<bool, Error> {
        wait(&[self.socket.as_fd(), wake], limit)
            .map_err(|error| Error::socket("waiting for the kernel's changes", error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::Attributes;

    #[test]
    fn a_refusal_carries_the_kernels_words() {
        let mut body = (-22i32).to_ne_bytes().to_vec();
        let mut request = Vec::new();
        push_message(&mut request, 24, 0, 5, &[]);
        body.extend_from_slice(&request);
        body.extend_from_slice(Attributes::new().text(NLMSGERR_ATTR_MSG, "bad gateway").as_bytes());
        let mut datagram = Vec::new();
        push_message(&mut datagram, NLMSG_ERROR, NLM_F_CAPPED | NLM_F_ACK_TLVS, 5, &body);
        let message = Messages::new(&datagram).next().unwrap();
        let error = refusal(&message, "adding a route").unwrap();
        assert_eq!(error.errno(), Some(22));
        assert!(error.to_string().starts_with("adding a route: bad gateway: "), "{error}");
    }

    #[test]
    fn a_lying_message_length_ends_the_datagram() {
        let mut datagram = Vec::new();
        push_message(&mut datagram, 24, 0, 5, &[1, 2, 3, 4]);
        push_message(&mut datagram, 25, 0, 6, &[]);
        assert_eq!(Messages::new(&datagram).count(), 2);
        for length in [0u32, 3, 15, 10_000, u32::MAX] {
            datagram[..4].copy_from_slice(&length.to_ne_bytes());
            assert_eq!(Messages::new(&datagram).count(), 0, "{length}");
        }
        assert_eq!(Messages::new(&[]).count(), 0);
    }
}
