//! Sockets for an [`Agent`]: listeners, connections to controllers, and the threads that wait for them.
//!
//! ```text
//!   socket ──▶ reading thread ──┐                          ┌──▶ writing thread ──▶ socket
//!   listener ─▶ accepting one ──┼─▶ SocketEvent ─▶ Channels┤
//!   controller ▶ connecting one ┘        (your queue)      └──▶ Switch
//! ```
//!
//! [`Channels`] belongs to the thread that has the switch. The others only wait: what they have goes into a queue of yours as a
//! [`SocketEvent`], and from it to [`Channels::event`]. A connection has two threads; the reading one goes on when its
//! bytes have been handled and their answers have place, so that a connection holds one piece of input and one of output.
//! Nothing is sent but by [`Channels::flush`]: so whoever carries out requests makes them visible first, and their answers, that of a
//! BARRIER among them, leave behind.
//! Who snoops need not answer ECHO, and `ovs-ofctl snoop` does not: such a connection is probed by TCP, and ends when the host at the
//! other end is gone.
//! With TLS ([`tls`]) the handshake is the business of the connecting thread, or of one for each connection that comes in.

pub mod tls;

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use rustix::net::{SendFlags, sockopt};

use self::tls::{Reader, Stream};
pub use self::tls::{Tls, TlsFiles};
use crate::agent::{Agent, ChannelId, ChannelKind, Closed, Connector, Settings, Switch};
use crate::error::Version;
use crate::message::Role;

/// Connections of tools at a time; more are closed at once.
const CONNECTIONS_MAX: usize = 64;
/// Bytes read or written at a time.
const PIECE: usize = 64 << 10;
/// Bytes that are sent at once, if the socket has room.
const SHORT: usize = 4 << 10;
/// An attempt to reach a controller takes this long at most.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Unanswered probes of TCP that end the connection of who snoops.
const PROBES: u32 = 3;
/// Pauses between attempts (Open vSwitch: 1 s to 8 s).
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(8)];
/// Bytes of the stack of a thread, and of one with a TLS handshake.
const STACK: usize = 128 << 10;
/// See [`STACK`].
const STACK_TLS: usize = 1 << 20;

/// What a thread has to say; only for [`Channels::event`].
#[derive(Debug)]
pub struct SocketEvent(Happened);

#[derive(Debug)]
enum Happened {
    Accepted(Stream, ChannelKind),
    /// The handshake with who connected failed.
    Refused(SocketAddr, io::Error),
    Connected(usize, io::Result<Stream>),
    /// Bytes came; none: the connection has ended.
    Read(u64, Vec<u8>),
    /// What came is not TLS as it should be: the connection ends.
    Broken(u64, io::Error),
    /// What was handed over is sent; `false`: the connection has ended.
    Wrote(u64, bool),
}

/// Puts an event into the queue, waiting for a place; `false`: nobody reads it any more.
pub type Sink = Arc<dyn Fn(SocketEvent) -> bool + Send + Sync>;

#[derive(Debug)]
struct Connection {
    channel: ChannelId,
    stream: Stream,
    /// Lets the reading thread go on.
    go: Sender<()>,
    waits_to_read: bool,
    /// To the writing thread.
    write: Sender<Vec<u8>>,
    /// Bytes that it has.
    writing: usize,
    controller: Option<usize>,
    /// When it was accepted or connected.
    since: Duration,
}

#[derive(Debug)]
struct Controller {
    /// `HOST:PORT`.
    address: String,
    tls: Option<Tls>,
    link: Connector,
    is_open: bool,
    /// When `is_open` changed last.
    since: Duration,
    /// Why it was lost, or not reached, last.
    error: Option<String>,
}

/// A controller, or a tool that is connected, as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerState {
    /// Which of them.
    pub kind: ChannelKind,
    /// `HOST:PORT`.
    pub address: String,
    /// The connection has TLS.
    pub is_tls: bool,
    /// The version agreed on; `None`: it is not connected.
    pub version: Option<Version>,
    /// Its role.
    pub role: Option<Role>,
    /// When it was connected or lost; zero: it has not been connected yet.
    pub since: Duration,
    /// Why the connection was lost, or not made, last.
    pub last_error: Option<String>,
    /// Messages received and sent by this connection.
    pub messages: [u64; 2],
    /// Messages that it did not get because it reads too slowly.
    pub lost: u64,
}

/// What happened to a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// It is connected, and has said HELLO.
    Connected(String, Version),
    /// It is lost, and why.
    Lost(String, String),
    /// It is not reached, and why; said again only when the reason changes.
    Unreachable(String, String),
    /// A tool's connection came to nothing, and why; of many in a second one is reported.
    Refused(SocketAddr, String),
}

impl fmt::Display for News {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connected(who, version) => {
                write!(f, "controller {who}: connected, {version}")
            }
            Self::Lost(who, why) => write!(f, "controller {who}: disconnected: {why}"),
            Self::Unreachable(who, why) => write!(f, "controller {who}: cannot be reached: {why}"),
            Self::Refused(who, why) => write!(f, "connection from {who} refused: {why}"),
        }
    }
}

struct Listener {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
}

/// The connections of a switch.
pub struct Channels {
    agent: Agent,
    sink: Sink,
    connections: BTreeMap<u64, Connection>,
    next: u64,
    controllers: Vec<Controller>,
    listeners: Vec<Listener>,
    news: Vec<News>,
    /// Refused connections since the last one that was reported, and when that was.
    refused: (u64, Option<Duration>),
}

impl std::fmt::Debug for Channels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut all = f.debug_struct("Channels");
        all.field("agent", &self.agent).field("connections", &self.connections);
        all.field("controllers", &self.controllers).finish_non_exhaustive()
    }
}

impl Channels {
    /// Without connections. Threads put what they have into `sink`.
    pub fn new(settings: Settings, sink: Sink) -> Self {
        Self {
            agent: Agent::new(settings),
            sink,
            connections: BTreeMap::new(),
            next: 0,
            controllers: Vec::new(),
            listeners: Vec::new(),
            news: Vec::new(),
            refused: (0, None),
        }
    }

    /// Listens for tools such as ovs-ofctl. Returns the address, of which the port is that of the system where 0 was given.
    ///
    /// # Errors
    /// The address cannot be had.
    pub fn listen(&mut self, address: SocketAddr) -> io::Result<SocketAddr> {
        self.listen_with(address, None)
    }

    /// The same, with TLS where it is given.
    ///
    /// # Errors
    /// As [`Channels::listen`].
    pub fn listen_with(&mut self, address: SocketAddr, tls: Option<Tls>) -> io::Result<SocketAddr> {
        self.listen_for(ChannelKind::Service, address, tls)
    }

    /// The same for connections of a kind: [`ChannelKind::Snoop`] is for `ovs-ofctl snoop`.
    ///
    /// # Errors
    /// As [`Channels::listen`].
    pub fn listen_for(
        &mut self,
        kind: ChannelKind,
        address: SocketAddr,
        tls: Option<Tls>,
    ) -> io::Result<SocketAddr> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let (sink, stopped) = (self.sink.clone(), stop.clone());
        let handshakes = Arc::new(AtomicUsize::new(0));
        spawn("of-listen", move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::Acquire) {
                    return;
                }
                // A connection that is gone before it is accepted; too many files: a pause, then others.
                let Ok(stream) = stream else {
                    thread::sleep(Duration::from_millis(50));
                    continue;
                };
                let goes_on = match &tls {
                    None => {
                        let stream = Stream::Tcp(Arc::new(stream));
                        sink(SocketEvent(Happened::Accepted(stream, kind)))
                    }
                    Some(tls) => {
                        accept((stream, kind), tls.clone(), &sink, &handshakes);
                        true
                    }
                };
                if !goes_on {
                    return;
                }
            }
        })?;
        self.listeners.push(Listener { address, stop });
        Ok(address)
    }

    /// Keeps a connection to a controller at `HOST:PORT`; the first attempt is in the next [`Channels::tick`].
    pub fn add_controller(&mut self, address: &str) {
        self.add_controller_with(address, None);
    }

    /// The same, with TLS where it is given: the controller's certificate has to name the host.
    pub fn add_controller_with(&mut self, address: &str, tls: Option<Tls>) {
        self.controllers.push(Controller {
            address: address.to_owned(),
            tls,
            link: Connector::new(PAUSES[0], PAUSES[1]),
            is_open: false,
            since: Duration::ZERO,
            error: None,
        });
    }

    /// The agent: for packets, ports and flows that left. [`Channels::flush`] sends what it then has to say.
    pub fn agent(&mut self) -> &mut Agent {
        &mut self.agent
    }

    /// A controller is there and has said HELLO.
    pub fn has_controller(&self) -> bool {
        self.agent.has_controller()
    }

    /// The controllers, in the order in which they were added.
    pub fn controllers(&self) -> impl Iterator<Item = ControllerState> {
        self.controllers.iter().enumerate().map(|(number, own)| {
            let mut all = self.connections.values();
            let channel = all.find(|c| c.controller == Some(number)).map(|c| c.channel);
            let channel = channel.filter(|_| own.is_open);
            ControllerState {
                kind: ChannelKind::Controller,
                address: own.address.clone(),
                is_tls: own.tls.is_some(),
                version: channel.and_then(|channel| self.agent.version(channel)),
                role: channel.and_then(|channel| self.agent.role(channel)),
                since: own.since,
                last_error: own.error.clone(),
                messages: channel.map_or([0; 2], |channel| self.agent.messages(channel)),
                lost: channel.map_or(0, |channel| self.agent.lost(channel)),
            }
        })
    }

    /// Connections of tools, in the order in which they came.
    pub fn tools(&self) -> impl Iterator<Item = ControllerState> {
        let all = self.connections.values().filter(|own| own.controller.is_none());
        all.map(|own| ControllerState {
            kind: self.agent.kind(own.channel).unwrap_or(ChannelKind::Service),
            address: own
                .stream
                .socket()
                .peer_addr()
                .map_or_else(|_| String::new(), |a| a.to_string()),
            is_tls: !matches!(own.stream, Stream::Tcp(_)),
            version: self.agent.version(own.channel),
            role: self.agent.role(own.channel),
            since: own.since,
            last_error: None,
            messages: self.agent.messages(own.channel),
            lost: self.agent.lost(own.channel),
        })
    }

    /// What happened to controllers since the last call.
    pub fn take_news(&mut self) -> Vec<News> {
        std::mem::take(&mut self.news)
    }

    /// A controller was lost, or not reached.
    fn lost(&mut self, controller: usize, why: String, now: Duration) {
        let Some(own) = self.controllers.get_mut(controller) else { return };
        own.link.failed(now);
        let address = own.address.clone();
        if std::mem::take(&mut own.is_open) {
            own.since = now;
            self.news.push(News::Lost(address, why.clone()));
        } else if own.error.as_ref() != Some(&why) {
            self.news.push(News::Unreachable(address, why.clone()));
        }
        own.error = Some(why);
    }

    /// Some controller or tool gets packets.
    pub fn wants_packets(&self) -> bool {
        self.agent.wants_packets()
    }

    /// Something came from a thread. What is to be answered waits for [`Channels::flush`].
    pub fn event(&mut self, event: SocketEvent, switch: &mut dyn Switch, now: Duration) {
        match event.0 {
            Happened::Accepted(stream, kind) => {
                if self.connections.len() < CONNECTIONS_MAX + self.controllers.len() {
                    self.open(stream, (kind, None), now);
                }
            }
            Happened::Connected(controller, Ok(stream)) => {
                self.open(stream, (ChannelKind::Controller, Some(controller)), now);
            }
            Happened::Refused(peer, error) => self.report_refused(peer, &error, now),
            Happened::Connected(controller, Err(error)) => {
                self.lost(controller, error.to_string(), now);
            }
            Happened::Broken(id, error) => {
                let Some(own) = self.connections.get(&id) else { return };
                if let (None, Ok(peer)) = (own.controller, own.stream.socket().peer_addr()) {
                    self.report_refused(peer, &error, now);
                }
                self.close_because(id, Some(error.to_string()), now);
            }
            Happened::Read(id, bytes) => {
                let Some(own) = self.connections.get_mut(&id) else { return };
                if bytes.is_empty() {
                    return self.close(id, now);
                }
                own.waits_to_read = true;
                let channel = own.channel;
                self.agent.receive(channel, &bytes, switch, now);
                self.notice(id, now);
            }
            Happened::Wrote(id, is_sent) => {
                let Some(own) = self.connections.get_mut(&id) else { return };
                if !is_sent {
                    return self.close(id, now);
                }
                let (channel, len) = (own.channel, std::mem::take(&mut own.writing));
                self.agent.sent(channel, len);
                // What waited for place goes on.
                self.agent.receive(channel, &[], switch, now);
                self.notice(id, now);
            }
        }
    }

    /// Reports a connection that came to nothing; of many in a second one.
    fn report_refused(&mut self, peer: SocketAddr, error: &io::Error, now: Duration) {
        let (missed, last) = self.refused;
        if last.is_some_and(|last| now < last + Duration::from_secs(1)) {
            self.refused.0 += 1;
            return;
        }
        let more = match missed {
            0 => String::new(),
            1 => " (and 1 other connection)".to_owned(),
            n => format!(" (and {n} other connections)"),
        };
        self.news.push(News::Refused(peer, format!("{error}{more}")));
        self.refused = (0, Some(now));
    }

    /// Time has passed: attempts, probes. Channels that ended are closed by [`Channels::flush`].
    pub fn tick(&mut self, now: Duration) {
        for (number, own) in self.controllers.iter_mut().enumerate() {
            if own.link.due().is_some_and(|at| at <= now) {
                own.link.connecting();
                let (address, sink) = (own.address.clone(), self.sink.clone());
                let tls = own.tls.clone();
                let attempt = spawn_with("of-connect", STACK_TLS, move || {
                    sink(SocketEvent(Happened::Connected(number, connect(&address, tls.as_ref()))));
                });
                if attempt.is_err() {
                    own.link.failed(now);
                }
            }
        }
        self.agent.tick(now);
    }

    /// When [`Channels::tick`] has something to do.
    pub fn deadline(&self) -> Option<Duration> {
        let attempts = self.controllers.iter().filter_map(|own| own.link.due());
        attempts.chain(self.agent.deadline()).min()
    }

    /// Sends what the agent has for its channels, and lets those go on reading that may. To be called when what they have asked for
    /// can be seen.
    pub fn flush(&mut self, now: Duration) {
        self.agent.snoop();
        let ids: Vec<u64> = self.connections.keys().copied().collect();
        ids.into_iter().for_each(|id| self.pump(id, now));
    }

    fn open(
        &mut self,
        stream: Stream,
        (kind, controller): (ChannelKind, Option<usize>),
        now: Duration,
    ) {
        let id = self.next;
        self.next += 1;
        if kind == ChannelKind::Snoop {
            keep_alive(stream.socket(), self.agent.probe_interval());
        }
        let Ok((go, write)) = self.start(id, &stream) else {
            if let Some(own) = controller.and_then(|number| self.controllers.get_mut(number)) {
                own.link.failed(now);
            }
            return;
        };
        let channel = self.agent.open(kind, now);
        let (waits_to_read, writing, since) = (false, 0, now);
        let own =
            Connection { channel, stream, go, waits_to_read, write, writing, controller, since };
        self.connections.insert(id, own);
    }

    /// The threads of a connection.
    fn start(&self, id: u64, stream: &Stream) -> io::Result<(Sender<()>, Sender<Vec<u8>>)> {
        stream.socket().set_nodelay(true)?;
        let (go, may_read) = channel();
        let (write, to_write) = channel();
        let (from, to) = (Reader::new(stream.clone()), stream.clone());
        let sink = self.sink.clone();
        spawn("of-read", move || read(id, from, &may_read, &sink))?;
        let sink = self.sink.clone();
        spawn("of-write", move || {
            write_all(id, to, &to_write, &sink);
        })?;
        Ok((go, write))
    }

    /// Hands output over, lets input go on, ends what is to end.
    fn pump(&mut self, id: u64, now: Duration) {
        let Some(own) = self.connections.get_mut(&id) else { return };
        // Who does not read or answer does not read what is left either.
        if let Some(Closed::Silent | Closed::SlowReader) = self.agent.closed(own.channel) {
            return self.close(id, now);
        }
        if own.writing == 0 {
            let outgoing = self.agent.outgoing(own.channel);
            // A short answer, such as that of a BARRIER, need not wait for a thread to wake, where nothing waits for place behind it.
            if let Stream::Tcp(socket) = &own.stream
                && (1..=SHORT).contains(&outgoing.len())
                && self.agent.wants_input(own.channel)
            {
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                // What did not go, goes by the thread, which reports errors.
                let sent = rustix::net::send(&**socket, outgoing, flags).unwrap_or(0);
                self.agent.sent(own.channel, sent);
            }
            let outgoing = self.agent.outgoing(own.channel);
            if !outgoing.is_empty() {
                let piece = &outgoing[..outgoing.len().min(PIECE)];
                own.writing = piece.len();
                // The thread is gone only with its connection, which it reports.
                let _ = own.write.send(piece.to_vec());
            } else if self.agent.closed(own.channel).is_some() {
                return self.close(id, now);
            }
        }
        if own.waits_to_read && self.agent.wants_input(own.channel) {
            own.waits_to_read = false;
            let _ = own.go.send(());
        }
    }

    /// Whether a controller is connected now.
    fn notice(&mut self, id: u64, now: Duration) {
        let Some(own) = self.connections.get(&id) else { return };
        if let Some(link) = own.controller.and_then(|number| self.controllers.get_mut(number))
            && !link.is_open
            && self.agent.version(own.channel).is_some()
        {
            link.is_open = true;
            link.since = now;
            link.link.connected(now);
            if let Some(version) = self.agent.version(own.channel) {
                self.news.push(News::Connected(link.address.clone(), version));
            }
        }
    }

    fn close(&mut self, id: u64, now: Duration) {
        self.close_because(id, None, now);
    }

    /// `why`: where the channel does not say it.
    fn close_because(&mut self, id: u64, why: Option<String>, now: Duration) {
        let Some(own) = self.connections.remove(&id) else { return };
        own.stream.shutdown();
        let why = why.or_else(|| self.agent.closed(own.channel).map(ToString::to_string));
        self.agent.remove(own.channel);
        if let Some(number) = own.controller {
            let why = why.unwrap_or_else(|| "the connection was closed".to_owned());
            self.lost(number, why, now);
        }
    }
}

impl Drop for Channels {
    fn drop(&mut self) {
        for own in self.connections.values() {
            own.stream.shutdown();
        }
        for own in &self.listeners {
            own.stop.store(true, Ordering::Release);
            // Wakes the thread, which then sees that it is to end.
            let _ = TcpStream::connect_timeout(&own.address, Duration::from_millis(100));
        }
    }
}

/// Lets TCP probe a connection after each silence of this length, and end it after [`PROBES`] without an answer. A system that cannot
/// do that has its own times.
fn keep_alive(socket: &TcpStream, silence: Duration) {
    if silence.is_zero() {
        return;
    }
    // The kernel counts whole seconds.
    let silence = silence.max(Duration::from_secs(1));
    // No time-out of TCP's user (RFC 5482): on Linux it would end a connection whose peer only does not read.
    let _ = sockopt::set_socket_keepalive(socket, true)
        .and_then(|()| sockopt::set_tcp_keepidle(socket, silence))
        .and_then(|()| sockopt::set_tcp_keepintvl(socket, silence))
        .and_then(|()| sockopt::set_tcp_keepcnt(socket, PROBES));
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    spawn_with(name, STACK, run)
}

fn spawn_with(name: &str, stack: usize, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name.to_owned()).stack_size(stack).spawn(run).map(|_| ())
}

fn connect(address: &str, tls: Option<&Tls>) -> io::Result<Stream> {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    connect_first(host, address.to_socket_addrs()?, tls)
}

/// Connects to the first of a host's addresses that answers; with TLS, to the first whose certificate is accepted. Blocks for up to
/// 5 s for each address that does not answer.
///
/// # Errors
/// That of the last address, or [`io::ErrorKind::NotFound`] without any.
pub fn connect_first(
    host: &str,
    addresses: impl IntoIterator<Item = SocketAddr>,
    tls: Option<&Tls>,
) -> io::Result<Stream> {
    let mut last = None;
    for address in addresses {
        let stream = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT);
        let connected = stream.and_then(|stream| match tls {
            None => Ok(Stream::Tcp(Arc::new(stream))),
            Some(tls) => tls.connect(stream, host),
        });
        match connected {
            Ok(stream) => return Ok(stream),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| io::ErrorKind::NotFound.into()))
}

/// The handshake with who connected, on a thread of its own: a slow one keeps nobody waiting.
fn accept(
    (stream, kind): (TcpStream, ChannelKind),
    tls: Tls,
    sink: &Sink,
    handshakes: &Arc<AtomicUsize>,
) {
    let Ok(peer) = stream.peer_addr() else { return };
    if handshakes.fetch_add(1, Ordering::AcqRel) >= CONNECTIONS_MAX {
        handshakes.fetch_sub(1, Ordering::AcqRel);
        return; // as with connections above the bound: closed at once
    }
    let (sink, own) = (sink.clone(), handshakes.clone());
    let spawned = spawn_with("of-accept", STACK_TLS, move || {
        let done = tls.accept(stream);
        own.fetch_sub(1, Ordering::AcqRel);
        sink(SocketEvent(match done {
            Ok(stream) => Happened::Accepted(stream, kind),
            Err(error) => Happened::Refused(peer, error),
        }));
    });
    if spawned.is_err() {
        handshakes.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Reads a piece at a time, and waits until it has been handled.
fn read(id: u64, mut from: Reader, may_read: &Receiver<()>, sink: &Sink) {
    let mut piece = vec![0; PIECE];
    loop {
        let len = match from.read(&mut piece) {
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                sink(SocketEvent(Happened::Broken(id, error)));
                return;
            }
            Err(_) => 0,
        };
        let goes_on = sink(SocketEvent(Happened::Read(id, piece[..len].to_vec())));
        if len == 0 || !goes_on || may_read.recv().is_err() {
            return;
        }
    }
}

fn write_all(id: u64, to: Stream, pieces: &Receiver<Vec<u8>>, sink: &Sink) {
    while let Ok(piece) = pieces.recv() {
        let is_sent = tls::write(&to, &piece).is_ok();
        if !sink(SocketEvent(Happened::Wrote(id, is_sent))) || !is_sent {
            return;
        }
    }
}
