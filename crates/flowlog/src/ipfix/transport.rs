//! How messages get to the collector: datagrams, or a connection that is made again when it breaks.
//!
//! *Sequence numbers* count records of one transport session (RFC 7011 §3.1). A TCP connection is a session. Over UDP the
//! session is the exporter's run, and records that the network did not take are counted all the same: the collector sees
//! that they are missing.

use std::io::{self, ErrorKind, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use rustix::net::RecvFlags;

use super::message::{self, Message};
use super::{Config, Protocol, Tally};
use crate::sink::Patience;

/// How long a connection may take to be made.
const CONNECT_WAIT: Duration = Duration::from_secs(1);
/// How long a write waits before the thread looks whether the exporter is closed.
const WRITE_WAIT: Duration = Duration::from_millis(100);
/// How long a collector may take nothing before the connection is given up.
const STALL_MAX: Duration = Duration::from_secs(5);

enum Link {
    Udp(UdpSocket),
    Tcp(TcpStream),
}

/// See the module. Run by the thread of the exporter.
pub(super) struct Transport<'a> {
    config: &'a Config,
    tally: &'a Tally,
    patience: Patience<'a>,
    link: Option<Link>,
    attempted: Option<Instant>,
    /// Records sent in this session, modulo 2^32.
    sequence: u32,
    /// When templates were sent last, and how many messages ago; `None` if the collector has none.
    templates: Option<(Instant, u32)>,
}

impl<'a> Transport<'a> {
    pub(super) fn new(
        config: &'a Config,
        tally: &'a Tally,
        closed_for: &'a dyn Fn() -> Option<Duration>,
    ) -> Self {
        let patience = Patience::new(closed_for, config.linger);
        let (link, attempted, templates) = (None, None, None);
        Self { config, tally, patience, link, attempted, sequence: 0, templates }
    }

    /// Sends a message and empties it, or counts its records as lost. Templates go before it where they are due.
    pub(super) fn send(&mut self, message: &mut Message) {
        let records = message.records();
        if records > 0 {
            let is_sent = self.ensure() && self.templates_sent() && {
                let bytes = message.finish(self.sequence);
                let is_sent = self.transmit(bytes);
                self.sequence = self.sequence.wrapping_add(records);
                is_sent
            };
            let counter = if is_sent { &self.tally.records } else { &self.tally.lost_unreachable };
            Tally::add(counter, records.into());
        }
        message.clear();
    }

    /// Sends templates if they are due; false if they could not be sent.
    fn templates_sent(&mut self) -> bool {
        let config = self.config;
        let is_due = match &mut self.templates {
            None => true,
            Some((at, messages)) => {
                *messages += 1;
                config.protocol == Protocol::Udp
                    && (*messages >= config.templates_every
                        || at.elapsed() >= config.templates_interval)
            }
        };
        if !is_due {
            return true;
        }
        let bytes = message::of_templates(self.sequence, config.observation_domain);
        let is_sent = self.transmit(&bytes);
        if is_sent {
            self.templates = Some((Instant::now(), 0));
        }
        is_sent
    }

    /// Whether there is a socket or a connection, perhaps after an attempt to make one.
    fn ensure(&mut self) -> bool {
        if let Some(Link::Tcp(stream)) = &self.link
            && is_ended(stream)
        {
            self.broken(&ErrorKind::ConnectionReset.into());
        }
        let is_early = self.attempted.is_some_and(|at| at.elapsed() < self.config.reconnect);
        if self.link.is_some() || is_early {
            return self.link.is_some();
        }
        self.attempted = Some(Instant::now());
        match connected(self.config) {
            Ok(link) => {
                Tally::add(&self.tally.connections, 1);
                self.link = Some(link);
                self.templates = None;
                if self.config.protocol == Protocol::Tcp {
                    self.sequence = 0;
                }
                true
            }
            Err(error) => {
                self.tally.failed(self.config.collector, &error);
                false
            }
        }
    }

    fn broken(&mut self, error: &io::Error) {
        self.tally.failed(self.config.collector, error);
        self.link = None;
    }

    /// Sends a message over whatever there is; says whether the network took it.
    fn transmit(&mut self, bytes: &[u8]) -> bool {
        let mut result = self.attempt(bytes);
        // An error that the network reports of an earlier message: that one was lost, this one was not sent. A collector
        // that was not there has no templates.
        if let Err(error) = &result
            && error.kind() == ErrorKind::ConnectionRefused
            && self.config.protocol == Protocol::Udp
        {
            self.tally.failed(self.config.collector, error);
            self.templates = None;
            let templates = message::of_templates(self.sequence, self.config.observation_domain);
            if bytes != templates && self.attempt(&templates).is_ok() {
                Tally::add(&self.tally.messages, 1);
            }
            result = self.attempt(bytes);
        }
        match &result {
            Ok(()) => Tally::add(&self.tally.messages, 1),
            // A datagram is lost, the socket stays.
            Err(error) if self.config.protocol == Protocol::Udp => {
                self.tally.failed(self.config.collector, error);
            }
            Err(error) => self.broken(error),
        }
        result.is_ok()
    }

    fn attempt(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.link {
            None => Err(ErrorKind::NotConnected.into()),
            Some(Link::Tcp(stream)) => write_all(stream, bytes, &self.patience),
            Some(Link::Udp(socket)) => socket.send(bytes).map(drop),
        }
    }
}

/// Whether the collector closed the connection. It never sends anything, so all that can be read is the end. A write
/// would succeed once more.
fn is_ended(stream: &TcpStream) -> bool {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    let read = rustix::net::recv(stream, &mut [0_u8; 1][..], flags);
    match read {
        Ok((count, _)) => count == 0,
        Err(error) => error != rustix::io::Errno::AGAIN && error != rustix::io::Errno::INTR,
    }
}

fn connected(config: &Config) -> io::Result<Link> {
    let collector = config.collector;
    match config.protocol {
        Protocol::Udp => {
            let any: SocketAddr = match collector {
                SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
                SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
            };
            let socket = UdpSocket::bind(any)?;
            socket.connect(collector)?;
            socket.set_nonblocking(true)?;
            Ok(Link::Udp(socket))
        }
        Protocol::Tcp => {
            let stream = TcpStream::connect_timeout(&collector, CONNECT_WAIT)?;
            stream.set_write_timeout(Some(WRITE_WAIT))?;
            stream.set_nodelay(true)?;
            Ok(Link::Tcp(stream))
        }
    }
}

/// Writes a whole message. A message that was written in part ends the connection, since the next one would be read as
/// its rest.
fn write_all(stream: &mut TcpStream, mut rest: &[u8], patience: &Patience<'_>) -> io::Result<()> {
    let mut progress = Instant::now();
    while !rest.is_empty() {
        match stream.write(rest) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => (rest, progress) = (&rest[count..], Instant::now()),
            Err(error) => match error.kind() {
                ErrorKind::Interrupted => {}
                ErrorKind::WouldBlock | ErrorKind::TimedOut
                    if progress.elapsed() < STALL_MAX && !patience.is_over() => {}
                _ => return Err(error),
            },
        }
    }
    Ok(())
}
