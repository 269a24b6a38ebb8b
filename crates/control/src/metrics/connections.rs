//! The connections of the HTTP port, of which there are a bounded number for a bounded time.
//!
//! A process has a limited number of descriptors, and the ports need them, too. At most [`Limits::connections`] clients
//! are connected; others wait in the kernel's queue of the listener. A client to which nothing has been sent for
//! [`Limits::silence`] is disconnected, whether it sends no request, one that is slow, or does not read the answer.
//! The dashboard and Prometheus connect again by themselves.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep};

/// How long [`Connections`] waits for a descriptor after an error of `accept`.
const RETRY: Duration = Duration::from_millis(200);

/// How many connections, and for how long.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Connections at the same time.
    pub(super) connections: usize,
    /// Time since the last byte that was sent, or since the start.
    pub(super) silence: Duration,
    /// The listener panics where this is true, once.
    #[cfg(test)]
    pub(super) fails: &'static std::sync::atomic::AtomicBool,
}

#[cfg(test)]
static NEVER: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 64,
            silence: Duration::from_secs(10),
            #[cfg(test)]
            fails: &NEVER,
        }
    }
}

/// A listener with [`Limits`].
pub(super) struct Connections {
    listener: TcpListener,
    free: Arc<Semaphore>,
    limits: Limits,
}

impl Connections {
    pub(super) fn new(listener: TcpListener, limits: Limits) -> Self {
        let free = Arc::new(Semaphore::new(limits.connections));
        Self { listener, free, limits }
    }
}

impl Listener for Connections {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        loop {
            // The semaphore is never closed.
            let Ok(place) = self.free.clone().acquire_owned().await else {
                return std::future::pending().await;
            };
            match self.listener.accept().await {
                Ok((stream, from)) => {
                    #[cfg(test)]
                    assert!(!self.limits.fails.swap(false, std::sync::atomic::Ordering::Relaxed));
                    let silence = self.limits.silence;
                    let end = Box::pin(sleep(silence));
                    let connection = Connection { stream, end, silence, _place: place };
                    return (connection, from);
                }
                // The client is gone, or the process has no descriptor left.
                Err(_) => sleep(RETRY).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// One of the [`Connections`].
pub(super) struct Connection {
    stream: TcpStream,
    /// When it ends.
    end: Pin<Box<Sleep>>,
    silence: Duration,
    _place: OwnedSemaphorePermit,
}

impl Connection {
    /// Pending until the connection ends, then an error.
    fn poll_end<T>(&mut self, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        ready!(self.end.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// What became of an attempt to send.
    fn sent(
        &mut self,
        done: Poll<io::Result<usize>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        match done {
            Poll::Pending => self.poll_end(context),
            done => {
                let end = Instant::now() + self.silence;
                self.end.as_mut().reset(end);
                done
            }
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_read(context, buffer) {
            Poll::Pending => self.poll_end(context),
            done => done,
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

    const SILENCE: Duration = Duration::from_millis(400);
    const REQUEST: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";

    fn served(metrics: &str) -> Serving {
        let (text, limits) = (metrics.to_owned(), Limits::default());
        served_by(move || text.clone(), Limits { connections: 3, silence: SILENCE, ..limits })
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

    /// One request on a connection, and its answer.
    fn get(stream: &mut TcpStream) -> String {
        stream.write_all(REQUEST).expect("a request");
        let (mut answer, mut part) = (Vec::new(), [0; 4096]);
        while !answer.ends_with(b"the text") {
            match stream.read(&mut part).expect("an answer") {
                0 => break,
                n => answer.extend_from_slice(&part[..n]),
            }
        }
        String::from_utf8(answer).expect("a text")
    }

    /// Clients that are silent, slow, or do not read, keep others waiting for a bounded time.
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
            let mut next = connected(&serving);
            let begin = Instant::now();
            next.write_all(REQUEST).expect("a request");
            let mut byte = [0];
            next.read_exact(&mut byte).expect(kind);
            assert!(begin.elapsed() > SILENCE / 2, "{kind}: {:?}", begin.elapsed());
            for client in &mut clients {
                let ended = client.read_to_end(&mut Vec::new());
                let is_reset = |e: &std::io::Error| e.kind() == ErrorKind::ConnectionReset;
                assert!(ended.as_ref().is_ok() || ended.as_ref().is_err_and(is_reset), "{ended:?}");
            }
        }
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
        assert!(get(&mut connected(&serving)).ends_with("the text"));
        FAILS.store(true, Ordering::Relaxed);
        // The connection that the panic meets is lost.
        let mut lost = connected(&serving);
        let _ = lost.read(&mut [0]);
        assert!(!FAILS.load(Ordering::Relaxed));
        assert!(get(&mut connected(&serving)).ends_with("the text"));
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
