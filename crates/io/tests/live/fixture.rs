//! A veth pair whose one end is under test and whose other end is a plain packet socket.

use std::io::{Error, ErrorKind};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use chunk::{Depot, HugePages, Packet, Pool, Region};
use io::{RxQueue, TxQueue, af_packet, af_xdp};
use testkit::netns::{Netns, veth};

pub(crate) const MACS: [&str; 2] = ["02:00:00:00:00:01", "02:00:00:00:00:02"];
const CELLS: u32 = 16_384;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backend {
    AfPacket,
    XdpNative,
    XdpSkb,
}

pub(crate) const BACKENDS: &[Backend] = &[Backend::AfPacket, Backend::XdpNative, Backend::XdpSkb];

/// Waits, for at most ten seconds.
pub(crate) fn until(condition: impl FnMut() -> bool) {
    assert!(testkit::wait_until(Duration::from_secs(10), condition), "waited for ten seconds");
}

/// What `f` returns, run in `netns`: sockets stay in the namespace they were made in.
pub(crate) fn within<T: Send>(netns: &Netns, f: impl FnOnce() -> T + Send) -> T {
    let file = std::fs::File::open(format!("/run/netns/{}", netns.name())).unwrap();
    std::thread::scope(|scope| {
        let inside = scope.spawn(|| {
            // SAFETY: takes no pointers; it moves this thread only, which ends with `f`.
            assert_eq!(unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) }, 0);
            f()
        });
        inside.join().unwrap()
    })
}

/// Whether `fd` becomes readable in time.
pub(crate) fn poll(fd: BorrowedFd<'_>, timeout: Duration) -> bool {
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one `pollfd`, alive during the call.
    unsafe { libc::poll(&mut poll, 1, timeout.as_millis() as i32) == 1 }
}

/// A frame of an EtherType for experiments; `fill` tells frames of one length apart.
pub(crate) fn frame(len: usize, fill: u8) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5];
    bytes.extend((14..len).map(|i| fill.wrapping_add((i * 7) as u8)));
    bytes
}

pub(crate) fn pool(cells: u32) -> (Arc<Depot>, Pool) {
    let (_, depot) = Region::new(cells, HugePages::Off).unwrap();
    (depot.clone(), Pool::new(depot, 64))
}

/// A packet socket without any of what is under test.
#[derive(Clone)]
pub(crate) struct RawSocket(Arc<OwnedFd>);

impl RawSocket {
    pub(crate) fn open(interface: &str) -> Self {
        let index = io::link::index_of(interface).unwrap();
        let protocol = (libc::ETH_P_ALL as u16).to_be();
        // SAFETY: plain system calls; the address is a `sockaddr_ll` of the length that is given.
        let fd = unsafe {
            let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW, i32::from(protocol));
            assert!(fd >= 0, "{}", Error::last_os_error());
            let fd = OwnedFd::from_raw_fd(fd);
            let mut address: libc::sockaddr_ll = std::mem::zeroed();
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_protocol = protocol;
            address.sll_ifindex = index as i32;
            let len = size_of::<libc::sockaddr_ll>() as u32;
            let address = std::ptr::from_ref(&address).cast();
            assert_eq!(libc::bind(fd.as_raw_fd(), address, len), 0);
            let ignore = 1i32;
            let (name, value) = (libc::PACKET_IGNORE_OUTGOING, std::ptr::from_ref(&ignore).cast());
            assert_eq!(libc::setsockopt(fd.as_raw_fd(), libc::SOL_PACKET, name, value, 4), 0);
            let bytes = 16i32 << 20;
            let (name, value) = (libc::SO_RCVBUFFORCE, std::ptr::from_ref(&bytes).cast());
            assert_eq!(libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, name, value, 4), 0);
            let timeout = libc::timeval { tv_sec: 5, tv_usec: 0 };
            let value = std::ptr::from_ref(&timeout).cast();
            let (name, len) = (libc::SO_RCVTIMEO, size_of::<libc::timeval>() as u32);
            assert_eq!(libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, name, value, len), 0);
            fd
        };
        Self(Arc::new(fd))
    }

    pub(crate) fn send(&self, frame: &[u8]) {
        assert!(self.try_send(frame), "{}", Error::last_os_error());
    }

    pub(crate) fn try_send(&self, frame: &[u8]) -> bool {
        // SAFETY: `frame` is readable for its length.
        let sent = unsafe { libc::send(self.0.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        sent == frame.len() as isize
    }

    /// The next frame with the EtherType of [`frame`], in a tag or not.
    pub(crate) fn recv(&self) -> Option<Vec<u8>> {
        let mut buffer = vec![0u8; 70_000];
        let mut control = [0u64; 16];
        loop {
            let mut piece =
                libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
            // SAFETY: pointers to `buffer` and `control`, with their lengths, alive here.
            let (len, tag) = unsafe {
                let on = 1i32;
                let on = std::ptr::from_ref(&on).cast();
                let fd = self.0.as_raw_fd();
                libc::setsockopt(fd, libc::SOL_PACKET, libc::PACKET_AUXDATA, on, 4);
                let mut message: libc::msghdr = std::mem::zeroed();
                message.msg_iov = &mut piece;
                message.msg_iovlen = 1;
                message.msg_control = control.as_mut_ptr().cast();
                message.msg_controllen = size_of_val(&control);
                let len = libc::recvmsg(fd, &mut message, 0);
                let header = libc::CMSG_FIRSTHDR(&message);
                let mut tag = None;
                if len > 0 && !header.is_null() {
                    let data = libc::CMSG_DATA(header).cast::<libc::tpacket_auxdata>();
                    let data = data.read_unaligned();
                    tag = (data.tp_status & libc::TP_STATUS_VLAN_VALID != 0).then(|| {
                        [data.tp_vlan_tpid.to_be_bytes(), data.tp_vlan_tci.to_be_bytes()].concat()
                    });
                }
                (len, tag)
            };
            if len < 0 {
                let error = Error::last_os_error();
                match error.kind() {
                    ErrorKind::WouldBlock => return None,
                    _ => continue, // down for a moment
                }
            }
            let bytes = &buffer[..len as usize];
            let bytes = [&bytes[..12], &tag.unwrap_or_default(), &bytes[12..]].concat();
            if matches!(bytes[12..14], [0x88, 0xb5] | [0x81, 0] | [0x88, 0xa8]) {
                return Some(bytes);
            }
        }
    }
}

/// One interface under test, and its other end.
pub(crate) struct Bench {
    pub(crate) backend: Backend,
    pub(crate) rx: Box<dyn RxQueue>,
    pub(crate) tx: Box<dyn TxQueue>,
    pub(crate) pool: Pool,
    depot: Arc<Depot>,
    pub(crate) received: Vec<(u64, Vec<u8>)>,
    pub(crate) inside: Netns,
    outside_netns: Netns,
    pub(crate) outside: RawSocket,
}

pub(crate) fn set_up(purpose: &str, backend: Backend, mtu: u32) -> Option<Bench> {
    let (depot, pool) = pool(CELLS);
    set_up_with(purpose, backend, mtu, depot, pool)
}

fn set_up_with(
    purpose: &str,
    backend: Backend,
    mtu: u32,
    depot: Arc<Depot>,
    pool: Pool,
) -> Option<Bench> {
    let (inside, outside_netns) = (Netns::new(purpose), Netns::new(purpose));
    for netns in [&inside, &outside_netns] {
        // No router solicitations and the like among the frames of the test.
        netns.sysctl("net.ipv6.conf.default.disable_ipv6", "1");
    }
    veth((&inside, "eth0", MACS[0]), (&outside_netns, "eth0", MACS[1]), mtu);
    let (rx, tx): (Box<dyn RxQueue>, Box<dyn TxQueue>) = match backend {
        Backend::AfPacket => {
            let options = af_packet::Options::default();
            let mut pairs = within(&inside, || af_packet::open("eth0", 1, &options)).unwrap();
            let (rx, tx) = pairs.pop().unwrap();
            (Box::new(rx), Box::new(tx))
        }
        Backend::XdpNative | Backend::XdpSkb => {
            let native = backend == Backend::XdpNative;
            let mode = if native { af_xdp::Mode::Native } else { af_xdp::Mode::Skb };
            let options = af_xdp::Options { mode, ..af_xdp::Options::default() };
            let opened = within(&inside, || af_xdp::open("eth0", &depot, &options)).unwrap();
            assert_eq!((opened.mode, opened.queues.len()), (mode, 1));
            println!(
                "{backend:?}: zero copy {}, multi-buffer {}",
                opened.is_zero_copy, opened.is_multi_buffer
            );
            let (rx, tx) = opened.queues.into_iter().next().unwrap();
            (Box::new(rx), Box::new(tx))
        }
    };
    let outside = within(&outside_netns, || RawSocket::open("eth0"));
    let received = Vec::new();
    Some(Bench { backend, rx, tx, pool, depot, received, inside, outside_netns, outside })
}

impl Bench {
    /// Another interface over the same cells.
    pub(crate) fn second(&self, purpose: &str) -> Option<Bench> {
        let pool = Pool::new(self.depot.clone(), 64);
        set_up_with(purpose, self.backend, 1500, self.depot.clone(), pool)
    }

    pub(crate) fn outside_netns(&self) -> &Netns {
        &self.outside_netns
    }

    pub(crate) fn packet(&mut self, bytes: &[u8]) -> Packet {
        Packet::copy_from(&mut self.pool, bytes).expect("a free cell")
    }

    /// Receives what is there.
    pub(crate) fn receive(&mut self) {
        let mut out = Vec::new();
        self.rx.recv(&mut self.pool, &mut out, 64);
        let lost = |packet, reason| panic!("{packet:?}: {reason:?}");
        io::offload::finish(&mut self.pool, &mut out, |_| false, lost);
        for packet in out {
            let bytes = packet.segments().collect::<Vec<_>>().concat();
            self.received.push((packet.time_ns, bytes));
            packet.free(&mut self.pool);
        }
    }

    /// Receives until so many packets have come in all, waiting as a worker does.
    pub(crate) fn receive_until(&mut self, packets: u64) {
        let end = Instant::now() + Duration::from_secs(20);
        while self.rx.stats().packets < packets {
            let stats = self.rx.stats();
            assert!(Instant::now() < end, "{packets} packets expected: {stats:?}");
            self.receive();
            if self.rx.stats().packets < packets && self.rx.arm() {
                poll(self.rx.fd().unwrap(), Duration::from_millis(100));
            }
        }
    }

    pub(crate) fn send_all(&mut self, packets: &mut Vec<Packet>) {
        until(|| {
            self.tx.send(&mut self.pool, packets);
            self.tx.flush(&mut self.pool);
            packets.is_empty() && self.tx.is_drained()
        });
    }

    pub(crate) fn arm(&mut self) -> bool {
        self.rx.arm()
    }

    pub(crate) fn error(&mut self) -> Option<String> {
        self.rx.take_error().or_else(|| self.tx.take_error())
    }

    /// Closes the queues and counts the cells.
    pub(crate) fn finish(self) {
        let Bench { rx, tx, pool, depot, .. } = self;
        drop((rx, tx, pool));
        assert_eq!(depot.available(), CELLS as usize, "cells were lost");
    }

    pub(crate) fn finish_with(self, other: Bench) {
        let Bench { rx, tx, pool, .. } = other;
        drop((rx, tx, pool));
        self.finish();
    }
}
