//! The connections of the HTTP port, of which there are a bounded number for a bounded time.
//!
//! A process has a limited number of descriptors, and the ports need them, too. At most [`Limits::connections`] clients
//! are connected. One more takes the place of another: of the address with the most connections, the one to which
//! nothing has been sent for the longest time. A client that is receiving an answer keeps its place; where all are, a new
//! one is refused with status 503. The same happens where the process has no descriptor left.
//!
//! A client must send a request within [`Limits::header`] of its first byte, or of the start, and one to which nothing
//! has been sent for [`Limits::silence`] is disconnected: it sends no request, or does not read the answer. The dashboard
//! and Prometheus connect again by themselves.
//!
//! Threads: all of it belongs to the runtime's one thread; the lock is for the types alone.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use axum::serve::Listener;
use rustix::io::Errno;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::yield_now;
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use super::text::Metrics;

/// How long [`Connections`] waits for a descriptor after an error of `accept`.
const RETRY: Duration = Duration::from_millis(200);

/// What a client gets for which there is no place.
const REFUSED: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\n\
    Content-Type: text/plain\r\nContent-Length: 21\r\n\r\ntoo many connections\n";

/// How many connections, and for how long.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Connections at the same time.
    pub(super) connections: usize,
    /// Time from the first byte of a request, or from the start, to the answer.
    pub(super) header: Duration,
    /// Time since the last byte that was sent, or since the start.
    pub(super) silence: Duration,
    /// A client that has not read for so long is not receiving an answer.
    pub(super) stalled: Duration,
    /// The listener panics where this is true, once.
    #[cfg(test)]
    pub(super) fails: &'static std::sync::atomic::AtomicBool,
}

#[cfg(test)]
static NEVER: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

impl Default for Limits {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            connections: 64,
            header: seconds(5),
            silence: seconds(10),
            stalled: seconds(1),
            #[cfg(test)]
            fails: &NEVER,
        }
    }
}

/// Who is connected, and what became of others.
#[derive(Debug, Default)]
pub(super) struct Clients(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    seats: Vec<Seat>,
    next: u64,
    /// Disconnected to make room, after a time limit, and refused.
    replaced: u64,
    timed_out: u64,
    refused: u64,
}

/// A connection.
#[derive(Debug)]
struct Seat {
    number: u64,
    from: IpAddr,
    /// When it began, or something was sent.
    sent: Instant,
    /// It does not read as fast as it is sent.
    is_sending: bool,
    waker: Option<Waker>,
}

impl Clients {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new connection, which has a place.
    fn add(&self, from: IpAddr) -> u64 {
        let mut table = self.table();
        table.next += 1;
        let number = table.next;
        let sent = Instant::now();
        table.seats.push(Seat { number, from, sent, is_sending: false, waker: None });
        number
    }

    /// Does something with a connection; `None` if it gave way to another one.
    fn with<T>(&self, number: u64, change: impl FnOnce(&mut Seat) -> T) -> Option<T> {
        let mut table = self.table();
        table.seats.iter_mut().find(|seat| seat.number == number).map(change)
    }

    fn remove(&self, number: u64) {
        self.table().seats.retain(|seat| seat.number != number);
    }

    fn is_full(&self, limits: Limits) -> bool {
        self.table().seats.len() >= limits.connections
    }

    /// Ends a connection to make room; `false` where all are receiving answers.
    fn replace(&self, limits: Limits) -> bool {
        let mut table = self.table();
        let now = Instant::now();
        let of = |from: IpAddr| table.seats.iter().filter(|seat| seat.from == from).count();
        let gives_way = |seat: &&Seat| {
            !seat.is_sending || now.saturating_duration_since(seat.sent) >= limits.stalled
        };
        let oldest_first =
            |seat: &&Seat| (std::cmp::Reverse(of(seat.from)), seat.sent, seat.number);
        let found = table.seats.iter().filter(gives_way).min_by_key(oldest_first);
        let Some(number) = found.map(|seat| seat.number) else { return false };
        let at = table.seats.iter().position(|seat| seat.number == number);
        let waker = at.and_then(|at| table.seats.swap_remove(at).waker);
        table.replaced += 1;
        drop(table);
        waker.into_iter().for_each(Waker::wake);
        true
    }

    /// Its families.
    pub(super) fn metrics(&self, out: &mut Metrics) {
        let table = self.table();
        out.gauge("metrics_connections", "Connections to the metrics server.")
            .sample(&[], table.seats.len());
        let mut family = out.counter(
            "metrics_connections_ended_total",
            "Connections that the metrics server ended: to make room, after a time limit, or refused.",
        );
        family.sample(&[("reason", "replaced")], table.replaced);
        family.sample(&[("reason", "timeout")], table.timed_out);
        family.sample(&[("reason", "refused")], table.refused);
    }
}

/// A listener with [`Limits`].
pub(super) struct Connections {
    listener: TcpListener,
    clients: Arc<Clients>,
    limits: Limits,
}

impl Connections {
    pub(super) fn new(listener: TcpListener, clients: Arc<Clients>, limits: Limits) -> Self {
        Self { listener, clients, limits }
    }
}

impl Listener for Connections {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        loop {
            match self.listener.accept().await {
                Ok((stream, from)) => {
                    #[cfg(test)]
                    assert!(!self.limits.fails.swap(false, std::sync::atomic::Ordering::Relaxed));
                    if self.clients.is_full(self.limits) && !self.clients.replace(self.limits) {
                        self.clients.table().refused += 1;
                        refuse(&stream);
                        continue;
                    }
                    let connection = Connection::new(stream, from, &self.clients, self.limits);
                    // Those that are connected read their requests before another one takes their place.
                    yield_now().await;
                    return (connection, from);
                }
                Err(error) => {
                    let errno = Errno::from_io_error(&error);
                    let is_short = matches!(errno, Some(Errno::MFILE | Errno::NFILE));
                    if is_short && self.clients.replace(self.limits) {
                        yield_now().await; // its descriptor is closed
                    } else {
                        // The client is gone, or others have all descriptors.
                        sleep(RETRY).await;
                    }
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// Says that there is no place, if the client takes it at once.
fn refuse(stream: &TcpStream) {
    // What was received and not read would reset the connection before the client has the answer.
    let _ = stream.try_read(&mut [0; 4096]);
    let _ = stream.try_write(REFUSED);
}

/// One of the [`Connections`].
pub(super) struct Connection {
    stream: TcpStream,
    number: u64,
    clients: Arc<Clients>,
    limits: Limits,
    /// When the request must be there.
    header_end: Option<Instant>,
    /// When something must have been sent.
    silence_end: Instant,
    /// The earlier of both.
    end: Pin<Box<Sleep>>,
}

impl Connection {
    fn new(stream: TcpStream, from: SocketAddr, clients: &Arc<Clients>, limits: Limits) -> Self {
        let (now, number) = (Instant::now(), clients.add(from.ip()));
        let (header_end, silence_end) = (now + limits.header, now + limits.silence);
        Self {
            stream,
            number,
            clients: clients.clone(),
            limits,
            header_end: Some(header_end),
            silence_end,
            end: Box::pin(sleep_until(header_end.min(silence_end))),
        }
    }

    /// Pending until the connection ends, then an error.
    fn poll_end<T>(&mut self, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        let waits = |seat: &mut Seat| seat.waker = Some(context.waker().clone());
        if self.clients.with(self.number, waits).is_none() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        ready!(self.end.as_mut().poll(context));
        self.clients.table().timed_out += 1;
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    fn set_end(&mut self) {
        let end = self.header_end.map_or(self.silence_end, |end| end.min(self.silence_end));
        self.end.as_mut().reset(end);
    }

    /// What became of an attempt to send.
    fn sent(
        &mut self,
        done: Poll<io::Result<usize>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let (now, is_sending) = (Instant::now(), done.is_pending());
        self.clients.with(self.number, |seat| {
            seat.is_sending = is_sending;
            if !is_sending {
                seat.sent = now;
            }
        });
        self.header_end = None;
        if is_sending {
            self.set_end();
            return self.poll_end(context);
        }
        self.silence_end = now + self.limits.silence;
        self.set_end();
        done
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.clients.remove(self.number);
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        match Pin::new(&mut self.stream).poll_read(context, buffer) {
            Poll::Pending => self.poll_end(context),
            done => {
                if buffer.filled().len() > before && self.header_end.is_none() {
                    self.header_end = Some(Instant::now() + self.limits.header);
                    self.set_end();
                }
                done
            }
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.sent(done, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.sent(done, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Write};
    use std::net::TcpStream;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use std::time::{Duration, Instant};

    use super::Limits;
    use crate::metrics::serve::{Serving, Sources, serve_within};

    const SILENCE: Duration = Duration::from_millis(600);
    const HEADER: Duration = Duration::from_millis(300);
    const STALLED: Duration = Duration::from_millis(200);
    const REQUEST: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";

    fn limits(connections: usize) -> Limits {
        let limits = Limits::default();
        Limits { connections, header: HEADER, silence: SILENCE, stalled: STALLED, ..limits }
    }

    fn served(metrics: &str) -> Serving {
        let text = metrics.to_owned();
        served_by(move || text.clone(), limits(3))
    }

    fn served_by(metrics: impl Fn() -> String + Send + Sync + 'static, limits: Limits) -> Serving {
        let sources = Sources {
            metrics: Arc::new(metrics),
            snapshot: Arc::new(|| None),
            failed: Arc::new(|why| assert!(why.contains("panicked"), "{why}")),
        };
        serve_within(limits, "127.0.0.1:0".parse().expect("an address"), &[], sources)
            .expect("a free port")
    }

    fn connected(serving: &Serving) -> TcpStream {
        let stream = TcpStream::connect(serving.address()).expect("a connection");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        stream
    }

    /// Whether the families of the connections are there, the last of which counts those refused.
    fn ends_with_own(answer: &[u8]) -> bool {
        let text = String::from_utf8_lossy(answer);
        text.ends_with('\n') && text.lines().last().is_some_and(|line| line.contains("refused"))
    }

    /// One request on a connection, and its answer.
    fn get(stream: &mut TcpStream) -> String {
        stream.write_all(REQUEST).expect("a request");
        let (mut answer, mut part) = (Vec::new(), [0; 4096]);
        while !answer.ends_with(b"the text") && !ends_with_own(&answer) {
            match stream.read(&mut part).expect("an answer") {
                0 => break,
                n => answer.extend_from_slice(&part[..n]),
            }
        }
        String::from_utf8(answer).expect("a text")
    }

    /// Whether the other end has closed.
    fn is_closed(client: &mut TcpStream) -> bool {
        let ended = client.read_to_end(&mut Vec::new());
        ended.is_ok() || ended.is_err_and(|e| e.kind() == ErrorKind::ConnectionReset)
    }

    /// Clients that are silent or slow give way at once; those that do not read after a moment, and until then a new one
    /// is refused.
    #[test]
    fn silent_clients_give_way() {
        let long = "x".repeat(32 << 20);
        for (kind, first) in
            [("silent", &b""[..]), ("slow", b"GET / HT"), ("does not read", REQUEST)]
        {
            let serving = served(if kind == "does not read" { &long } else { "the text" });
            let mut clients: Vec<_> = (0..3).map(|_| connected(&serving)).collect();
            for client in &mut clients {
                client.write_all(first).expect("what it sends");
            }
            // The one that is refused is the first one where nobody gives way yet.
            let begin = Instant::now();
            let status = loop {
                let mut next = connected(&serving);
                let (mut status, asked) = ([0; 12], next.write_all(REQUEST));
                let read = asked.and_then(|()| next.read_exact(&mut status));
                if read.is_ok() && status == *b"HTTP/1.1 200" {
                    break String::from_utf8_lossy(&status).into_owned();
                }
                let is_refused = read.is_err() || status == *b"HTTP/1.1 503";
                assert!(kind == "does not read" && is_refused, "{kind}: {status:?}");
                assert!(begin.elapsed() < Duration::from_secs(20), "{kind}");
            };
            assert_eq!(status, "HTTP/1.1 200", "{kind}");
            assert!(clients.iter_mut().all(is_closed), "{kind}");
        }
    }

    /// A request must be complete in time, however its bytes come.
    #[test]
    fn unfinished_headers_end() {
        let serving = served("the text");
        let mut clients = [connected(&serving), connected(&serving), connected(&serving)];
        // One that had an answer before has the same time.
        assert!(get(&mut clients[2]).starts_with("HTTP/1.1 200"));
        let begin = Instant::now();
        let mut is_open = true;
        clients[1].write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX: ").expect("a part");
        while is_open {
            // An error of sending follows the end.
            is_open =
                clients[2].write_all(b"G").is_ok() && begin.elapsed() < Duration::from_secs(20);
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
        assert!(clients.iter_mut().all(is_closed));
        let answer = get(&mut connected(&serving));
        assert!(
            answer.contains("shadeline_metrics_connections_ended_total{reason=\"timeout\"} 3"),
            "{answer}"
        );
    }

    /// Many connections of one address take no place of another one.
    #[test]
    fn the_address_with_the_most_connections_gives_way() {
        let serving = served("the text");
        let at = serving.address();
        let mut other = connected(&serving);
        assert!(get(&mut other).starts_with("HTTP/1.1 200"));
        let from = |address: [u8; 4]| {
            let socket = rustix::net::socket(
                rustix::net::AddressFamily::INET,
                rustix::net::SocketType::STREAM,
                None,
            );
            let socket = socket.expect("a socket");
            rustix::net::bind(&socket, &std::net::SocketAddr::from((address, 0)))
                .expect("an address");
            rustix::net::connect(&socket, &at).expect("a connection");
            TcpStream::from(socket)
        };
        let _crowd: Vec<_> = (0..100).map(|_| from([127, 0, 0, 2])).collect();
        assert!(get(&mut other).starts_with("HTTP/1.1 200"), "it is still connected");
    }

    /// A connection lasts as long as it is used.
    #[test]
    fn clients_that_ask_stay() {
        let serving = served("the text");
        let mut client = connected(&serving);
        let begin = Instant::now();
        while begin.elapsed() < 3 * SILENCE {
            let answer = get(&mut client);
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer:?}");
            std::thread::sleep(SILENCE / 4);
        }
    }

    /// A panic ends a connection, or the server until it starts again on the same port.
    #[test]
    fn panics_do_not_end_it() {
        static FAILS: AtomicBool = AtomicBool::new(false);
        let scrapes = AtomicU32::new(0);
        let metrics = move || match scrapes.fetch_add(1, Ordering::Relaxed) {
            0 => panic!("as it should"),
            _ => "the text".to_owned(),
        };
        let serving = served_by(metrics, Limits { fails: &FAILS, ..Limits::default() });
        assert_eq!(get(&mut connected(&serving)), "", "the scrape that panics");
        assert!(get(&mut connected(&serving)).contains("the text"));
        FAILS.store(true, Ordering::Relaxed);
        // The connection that the panic meets is lost.
        let mut lost = connected(&serving);
        let _ = lost.read(&mut [0]);
        assert!(!FAILS.load(Ordering::Relaxed));
        assert!(get(&mut connected(&serving)).contains("the text"));
    }

    #[test]
    fn other_hosts_are_told_why() {
        let serving = served("the text");
        let mut client = connected(&serving);
        client
            .write_all(b"GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n")
            .expect("a request");
        let mut answer = String::new();
        client.read_to_string(&mut answer).expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 421 "), "{answer}");
        assert!(answer.contains("The host `evil.example` is not known here"), "{answer}");
    }
}
