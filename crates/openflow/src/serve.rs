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

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use crate::agent::{Agent, ChannelId, ChannelKind, Closed, Connector, Settings, Switch};

/// Connections of tools at a time; more are closed at once.
const CONNECTIONS_MAX: usize = 64;
/// Bytes read or written at a time.
const PIECE: usize = 64 << 10;
/// An attempt to reach a controller takes this long at most.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Pauses between attempts (Open vSwitch: 1 s to 8 s).
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(8)];
/// Bytes of the stack of a thread.
const STACK: usize = 128 << 10;

/// What a thread has to say; only for [`Channels::event`].
#[derive(Debug)]
pub struct SocketEvent(Happened);

#[derive(Debug)]
enum Happened {
    Accepted(TcpStream),
    Connected(usize, io::Result<TcpStream>),
    /// Bytes came; none: the connection has ended.
    Read(u64, Vec<u8>),
    /// What was handed over is sent; `false`: the connection has ended.
    Wrote(u64, bool),
}

/// Puts an event into the queue, waiting for a place; `false`: nobody reads it any more.
pub type Sink = Arc<dyn Fn(SocketEvent) -> bool + Send + Sync>;

#[derive(Debug)]
struct Connection {
    channel: ChannelId,
    stream: TcpStream,
    /// Lets the reading thread go on.
    go: Sender<()>,
    waits_to_read: bool,
    /// To the writing thread.
    write: Sender<Vec<u8>>,
    /// Bytes that it has.
    writing: usize,
    controller: Option<usize>,
}

#[derive(Debug)]
struct Controller {
    /// `HOST:PORT`.
    address: String,
    link: Connector,
    is_open: bool,
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
        }
    }

    /// Listens for tools such as ovs-ofctl. Returns the address, of which the port is that of the system where 0 was given.
    ///
    /// # Errors
    /// The address cannot be had.
    pub fn listen(&mut self, address: SocketAddr) -> io::Result<SocketAddr> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let (sink, stopped) = (self.sink.clone(), stop.clone());
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
                if !sink(SocketEvent(Happened::Accepted(stream))) {
                    return;
                }
            }
        })?;
        self.listeners.push(Listener { address, stop });
        Ok(address)
    }

    /// Keeps a connection to a controller at `HOST:PORT`; the first attempt is in the next [`Channels::tick`].
    pub fn add_controller(&mut self, address: &str) {
        self.controllers.push(Controller {
            address: address.to_owned(),
            link: Connector::new(PAUSES[0], PAUSES[1]),
            is_open: false,
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

    /// Something came from a thread.
    pub fn event(&mut self, event: SocketEvent, switch: &mut dyn Switch, now: Duration) {
        match event.0 {
            Happened::Accepted(stream) => {
                if self.connections.len() < CONNECTIONS_MAX + self.controllers.len() {
                    self.open(stream, None, now);
                }
            }
            Happened::Connected(controller, Ok(stream)) => self.open(stream, Some(controller), now),
            Happened::Connected(controller, Err(_)) => {
                if let Some(own) = self.controllers.get_mut(controller) {
                    own.link.failed(now);
                }
            }
            Happened::Read(id, bytes) => {
                let Some(own) = self.connections.get_mut(&id) else { return };
                if bytes.is_empty() {
                    return self.close(id, now);
                }
                own.waits_to_read = true;
                let channel = own.channel;
                self.agent.receive(channel, &bytes, switch, now);
                self.pump(id, now);
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
                self.pump(id, now);
            }
        }
    }

    /// Time has passed: attempts, probes, channels that ended.
    pub fn tick(&mut self, now: Duration) {
        for (number, own) in self.controllers.iter_mut().enumerate() {
            if own.link.due().is_some_and(|at| at <= now) {
                own.link.connecting();
                let (address, sink) = (own.address.clone(), self.sink.clone());
                let attempt = spawn("of-connect", move || {
                    sink(SocketEvent(Happened::Connected(number, connect(&address))));
                });
                if attempt.is_err() {
                    own.link.failed(now);
                }
            }
        }
        self.agent.tick(now);
        self.flush(now);
    }

    /// When [`Channels::tick`] has something to do.
    pub fn deadline(&self) -> Option<Duration> {
        let attempts = self.controllers.iter().filter_map(|own| own.link.due());
        attempts.chain(self.agent.deadline()).min()
    }

    /// Sends what the agent has for its channels.
    pub fn flush(&mut self, now: Duration) {
        let ids: Vec<u64> = self.connections.keys().copied().collect();
        ids.into_iter().for_each(|id| self.pump(id, now));
    }

    fn open(&mut self, stream: TcpStream, controller: Option<usize>, now: Duration) {
        let id = self.next;
        self.next += 1;
        let Ok((go, write)) = self.start(id, &stream) else {
            if let Some(own) = controller.and_then(|number| self.controllers.get_mut(number)) {
                own.link.failed(now);
            }
            return;
        };
        let kind = match controller {
            Some(_) => ChannelKind::Controller,
            None => ChannelKind::Service,
        };
        let channel = self.agent.open(kind, now);
        let own =
            Connection { channel, stream, go, waits_to_read: false, write, writing: 0, controller };
        self.connections.insert(id, own);
        self.pump(id, now);
    }

    /// The threads of a connection.
    fn start(&self, id: u64, stream: &TcpStream) -> io::Result<(Sender<()>, Sender<Vec<u8>>)> {
        stream.set_nodelay(true)?;
        let (go, may_read) = channel();
        let (write, to_write) = channel();
        let (from, to) = (stream.try_clone()?, stream.try_clone()?);
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
            if !outgoing.is_empty() {
                let piece = &outgoing[..outgoing.len().min(PIECE)];
                own.writing = piece.len();
                // The thread is gone only with its connection, which it reports.
                let _ = own.write.send(piece.to_vec());
            } else if self.agent.closed(own.channel).is_some() {
                return self.close(id, now);
            }
        }
        if let Some(link) = own.controller.and_then(|number| self.controllers.get_mut(number))
            && !link.is_open
            && self.agent.version(own.channel).is_some()
        {
            link.is_open = true;
            link.link.connected(now);
        }
        if own.waits_to_read && self.agent.wants_input(own.channel) {
            own.waits_to_read = false;
            let _ = own.go.send(());
        }
    }

    fn close(&mut self, id: u64, now: Duration) {
        let Some(own) = self.connections.remove(&id) else { return };
        let _ = own.stream.shutdown(Shutdown::Both);
        self.agent.remove(own.channel);
        if let Some(link) = own.controller.and_then(|number| self.controllers.get_mut(number)) {
            link.is_open = false;
            link.link.failed(now);
        }
    }
}

impl Drop for Channels {
    fn drop(&mut self) {
        for own in self.connections.values() {
            let _ = own.stream.shutdown(Shutdown::Both);
        }
        for own in &self.listeners {
            own.stop.store(true, Ordering::Release);
            // Wakes the thread, which then sees that it is to end.
            let _ = TcpStream::connect_timeout(&own.address, Duration::from_millis(100));
        }
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name.to_owned()).stack_size(STACK).spawn(run).map(|_| ())
}

/// Tries each address of a host.
fn connect(address: &str) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Reads a piece at a time, and waits until it has been handled.
fn read(id: u64, mut from: TcpStream, may_read: &Receiver<()>, sink: &Sink) {
    let mut piece = vec![0; PIECE];
    loop {
        let len = match from.read(&mut piece) {
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => 0,
        };
        let goes_on = sink(SocketEvent(Happened::Read(id, piece[..len].to_vec())));
        if len == 0 || !goes_on || may_read.recv().is_err() {
            return;
        }
    }
}

fn write_all(id: u64, mut to: TcpStream, pieces: &Receiver<Vec<u8>>, sink: &Sink) {
    while let Ok(piece) = pieces.recv() {
        let is_sent = to.write_all(&piece).is_ok();
        if !sink(SocketEvent(Happened::Wrote(id, is_sent))) || !is_sent {
            return;
        }
    }
}
