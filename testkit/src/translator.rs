//! An address translator between two key-exchange daemons, whose ports change when a test says so.
//!
//! ```text
//!   inside ── UDP 500, 4500 ──▶ its address │ translator │ ports of its own ──▶ UDP 500, 4500 of the other end
//! ```
//!
//! It carries UDP on both ports of IKE, from one host inside. After [`Translator::rebind`] it sends from other ports, and what comes
//! to those before is lost, as with a router that has forgotten its mappings.

use std::fs::File;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::netns::Netns;

/// Ports of IKE and of ESP in UDP.
const PORTS: [u16; 2] = [500, 4500];
/// How often a thread looks whether ports have changed.
const LOOK: Duration = Duration::from_millis(10);

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    /// How often ports have changed.
    generation: AtomicU32,
}

/// A running translator; it ends with its value.
pub struct Translator {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    outside: Vec<Arc<Mutex<Arc<UdpSocket>>>>,
}

fn socket(at: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind(at).expect("a UDP socket");
    socket.set_read_timeout(Some(LOOK)).expect("a time limit");
    socket
}

/// A port of its own towards the other end.
fn outside(to: SocketAddr) -> Arc<UdpSocket> {
    let own = socket(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)));
    own.connect(to).expect("a connected socket");
    Arc::new(own)
}

impl Translator {
    /// In a namespace, for whoever speaks to `inside`; the other end is `to`.
    ///
    /// # Panics
    /// The namespace or the ports are not there.
    pub fn start(netns: &Netns, inside: Ipv4Addr, to: Ipv4Addr) -> Translator {
        let place = File::open(format!("/run/netns/{}", netns.name())).expect("a namespace");
        let shared = Arc::<Shared>::default();
        let (sender, receiver) = mpsc::channel();
        let own = shared.clone();
        // A thread, and those that it starts, are in the namespace.
        let starter = std::thread::spawn(move || {
            let network = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(place.as_fd(), network).expect("enter a namespace");
            for port in PORTS {
                let to = SocketAddr::from((to, port));
                let inner = Arc::new(socket(SocketAddr::from((inside, port))));
                let outer = Arc::new(Mutex::new(outside(to)));
                let host = Arc::new(Mutex::new(None));
                let there = (inner.clone(), outer.clone(), host.clone(), own.clone());
                let back = (inner, outer.clone(), host, own.clone());
                let there = std::thread::spawn(move || {
                    carry_out(&there.0, &there.1, &there.2, to, &there.3)
                });
                let back = std::thread::spawn(move || carry_in(&back.0, &back.1, &back.2, &back.3));
                sender.send((outer, [there, back])).expect("the test");
            }
        });
        starter.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let (mut threads, mut outside) = (Vec::new(), Vec::new());
        for (outer, pair) in receiver {
            threads.extend(pair);
            outside.push(outer);
        }
        Translator { shared, threads, outside }
    }

    /// From now on packets leave by other ports.
    pub fn rebind(&self) {
        let before = self.ports();
        self.shared.generation.fetch_add(1, Relaxed);
        let have_changed = crate::wait_until(Duration::from_secs(5), || {
            self.ports().iter().zip(&before).all(|(now, before)| now != before)
        });
        assert!(have_changed, "{before:?}");
    }

    /// The ports that it sends from in place of 500 and 4500.
    ///
    /// # Panics
    /// A socket is gone.
    pub fn ports(&self) -> Vec<u16> {
        let port = |own: &Arc<Mutex<Arc<UdpSocket>>>| {
            own.lock().unwrap().local_addr().expect("an address").port()
        };
        self.outside.iter().map(port).collect()
    }
}

impl Drop for Translator {
    fn drop(&mut self) {
        self.shared.stop.store(true, Relaxed);
        for own in self.threads.drain(..) {
            let _ = own.join();
        }
    }
}

fn is_nothing(kind: ErrorKind) -> bool {
    // Refused: an ICMP error about what was sent before.
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::ConnectionRefused)
}

/// From the inside to the outside; ports change here.
fn carry_out(
    inner: &UdpSocket,
    outer: &Mutex<Arc<UdpSocket>>,
    host: &Mutex<Option<SocketAddr>>,
    to: SocketAddr,
    shared: &Shared,
) {
    let (mut buffer, mut generation) = (vec![0; 1 << 16], 0);
    while !shared.stop.load(Relaxed) {
        let now = shared.generation.load(Relaxed);
        if now != generation {
            generation = now;
            *outer.lock().unwrap() = outside(to);
        }
        match inner.recv_from(&mut buffer) {
            Ok((len, from)) => {
                *host.lock().unwrap() = Some(from);
                let own = outer.lock().unwrap().clone();
                let _ = own.send(&buffer[..len]);
            }
            Err(error) => assert!(is_nothing(error.kind()), "{error}"),
        }
    }
}

/// From the outside to the inside.
fn carry_in(
    inner: &UdpSocket,
    outer: &Mutex<Arc<UdpSocket>>,
    host: &Mutex<Option<SocketAddr>>,
    shared: &Shared,
) {
    let mut buffer = vec![0; 1 << 16];
    while !shared.stop.load(Relaxed) {
        let own = outer.lock().unwrap().clone();
        match own.recv(&mut buffer) {
            Ok(len) => {
                let host = *host.lock().unwrap();
                if let Some(host) = host {
                    let _ = inner.send_to(&buffer[..len], host);
                }
            }
            Err(error) => assert!(is_nothing(error.kind()), "{error}"),
        }
    }
}
