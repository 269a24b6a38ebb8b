//! TAP: an interface of the kernel whose wire is this process.
//!
//! The Linux twin of a port: what is written appears to the kernel as received on the interface, what
//! the kernel sends comes out of a read. The interface goes when the last of its queues is dropped,
//! also after a crash.
//!
//! One frame costs one system call; a twin carries control traffic only. Frames pass with an offload header
//! (IFF_VNET_HDR): the kernel leaves checksums and segmentation of what it sends to us, and finishes what it gets.
//!
//! See Linux, Documentation/networking/tuntap.rst.
//!
//! Threads: [`Tap::rx`] belongs to one thread; each worker that writes takes a [`Tx`] of its own.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::{fs, io};

use chunk::{CELL_BYTES, HEADROOM_BYTES, Packet, Pool, reasons};

use crate::link::{Link, LinkError};
use crate::{Losses, QueueStats, RxQueue, TxQueue, sys, vnet};

const ROOM: usize = CELL_BYTES - HEADROOM_BYTES;

/// The longest frame: the greatest MTU with Ethernet header and two tags.
const FRAME_BYTES_MAX: usize = 65_535 + 22;

/// How to make the interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Its name; with `%d` in it, the kernel puts the first free number there.
    pub name: String,
    /// Its MAC address; the kernel chooses one if there is none.
    pub mac: Option<[u8; 6]>,
    /// Its MTU in bytes; 1500 if there is none.
    pub mtu: Option<u32>,
    /// Leaves it down, for [`Tap::set_up`] later.
    pub is_down: bool,
}

/// A TAP interface and its receiving queue.
#[derive(Debug)]
pub struct Tap {
    /// The name that it got.
    pub name: String,
    /// What the kernel sends.
    pub rx: Rx,
    file: Arc<OwnedFd>,
}

impl Tap {
    /// Makes the interface and takes it up, unless it is to stay down.
    ///
    /// # Errors
    /// Without `/dev/net/tun` or CAP_NET_ADMIN, if the name is taken, or for an address or MTU that
    /// cannot be.
    pub fn open(options: &Options) -> Result<Self, LinkError> {
        let error = |what| {
            let interface = options.name.clone();
            move |source| LinkError { interface, what, needs: Some("CAP_NET_ADMIN"), source }
        };
        // A capability does not open the device: its mode or the container's rules do.
        let closed = |error: LinkError| LinkError { needs: None, ..error };
        let file = device().map_err(error("opening /dev/net/tun")).map_err(closed)?;
        let name = create(&file, &options.name).map_err(error("making the interface"))?;
        // Old kernels (before 6.2) cannot leave the segmentation of UDP.
        for offloads in [OFFLOADS | UDP_SEGMENTATION, OFFLOADS] {
            // SAFETY: takes a number.
            let set = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETOFFLOAD as _, offloads) };
            if set == 0 {
                break;
            }
        }
        let link = Link::open(&name)?;
        if let Some(mac) = options.mac {
            link.set_mac(mac)?;
        }
        if let Some(mtu) = options.mtu {
            link.set_mtu(mtu)?;
        }
        if !options.is_down {
            link.set_up(true)?;
        }
        let file = Arc::new(file);
        let rx = Rx {
            file: file.clone(),
            name: name.clone(),
            header: [0; vnet::HEADER_LEN],
            overflow: vec![0; FRAME_BYTES_MAX - ROOM],
            is_gone: false,
            error: None,
            stats: QueueStats::default(),
            losses: Arc::default(),
        };
        Ok(Self { name, rx, file })
    }

    /// Takes the interface up.
    ///
    /// # Errors
    /// If it is gone, or without CAP_NET_ADMIN.
    pub fn set_up(&self) -> Result<(), LinkError> {
        Link::open(&self.name)?.set_up(true)
    }

    /// Has the kernel send without asking for the addresses of neighbours: there is nobody to answer.
    ///
    /// # Errors
    /// If it is gone, or without CAP_NET_ADMIN.
    pub fn set_noarp(&self) -> Result<(), LinkError> {
        Link::open(&self.name)?.set_noarp()
    }

    /// A queue to the kernel; several may be used at once.
    pub fn tx(&self) -> Tx {
        Tx {
            file: self.file.clone(),
            name: self.name.clone(),
            is_gone: false,
            error: None,
            stats: QueueStats::default(),
            losses: Arc::default(),
        }
    }

    /// Takes the receiving queue out.
    pub fn into_rx(self) -> Rx {
        self.rx
    }
}

/// Opens the device that makes TAP interfaces.
///
/// # Errors
/// It is missing, or this user may not open it; the text says what helps.
pub fn device() -> io::Result<OwnedFd> {
    let flags = libc::O_RDWR | libc::O_NONBLOCK | libc::O_CLOEXEC;
    // SAFETY: a string that ends in NUL.
    let fd = sys::check(unsafe { libc::open(c"/dev/net/tun".as_ptr(), flags) }).map_err(|error| {
        let remedy = match error.raw_os_error() {
            Some(libc::EACCES) => {
                "its mode must let this user open it (`chmod 666 /dev/net/tun`; see `shadeline help lab`)"
            }
            Some(libc::EPERM) => "the container must be allowed to use the device",
            Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => "load its module with `modprobe tun`",
            _ => return error,
        };
        io::Error::new(error.kind(), format!("{error}; {remedy}"))
    })?;
    // SAFETY: the kernel just gave us this descriptor, and it has no other user.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Makes the interface of `file`; returns the name that the kernel gave it.
fn create(file: &OwnedFd, name: &str) -> io::Result<String> {
    if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.contains(['\0', '/']) {
        let text = "not an interface name: 1 to 15 bytes expected";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    // SAFETY: zero is a value of every field.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR | IFF_TUN_EXCL;
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes a `struct ifreq`.
    sys::check(unsafe {
        libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, std::ptr::from_mut(&mut request))
    })
    .map_err(|error| match error.raw_os_error() {
        Some(libc::EBUSY) => io::Error::new(error.kind(), taken(name)),
        _ => error,
    })?;
    let name = request.ifr_name.iter().take_while(|&&byte| byte != 0).map(|&byte| byte as u8);
    Ok(String::from_utf8_lossy(&name.collect::<Vec<_>>()).into_owned())
}

/// Why an interface of this name, which is there, cannot be made.
pub fn taken(name: &str) -> String {
    match holder(name) {
        Some((pid, program)) => {
            format!("an interface of this name exists; the process {pid} (`{program}`) uses it")
        }
        None => "an interface of this name exists".to_owned(),
    }
}

/// The process that holds the TAP interface `name` of this network namespace: its number and its name. `None` where no
/// process that this user may look into does.
fn holder(name: &str) -> Option<(u32, String)> {
    let namespace = |process: &Path| fs::read_link(process.join("ns/net")).ok();
    let own = namespace(Path::new("/proc/thread-self"));
    let line = format!("iff:\t{name}\n");
    let holds = |process: &Path| {
        let files = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
        let mut taps = files.filter(|file| {
            fs::read_link(file.path()).is_ok_and(|to| to.as_os_str() == "/dev/net/tun")
        });
        taps.any(|file| {
            let info = fs::read_to_string(process.join("fdinfo").join(file.file_name()));
            info.is_ok_and(|info| info.contains(&line))
        })
    };
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let mut pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let pid = pids.find(|pid| {
        let process = Path::new("/proc").join(pid.to_string());
        namespace(&process) == own && holds(&process)
    })?;
    let program = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    Some((pid, program.trim_end().to_owned()))
}

/// What the kernel may leave to us: TUN_F_CSUM, TUN_F_TSO4, TUN_F_TSO6 and TUN_F_TSO_ECN.
const OFFLOADS: libc::c_uint = 0x0f;

/// TUN_F_USO4 and TUN_F_USO6.
const UDP_SEGMENTATION: libc::c_uint = 0x60;

/// Refuses to attach to an interface that is there.
const IFF_TUN_EXCL: libc::c_int = 0x8000;

/// Receives what the kernel sends on the interface.
#[derive(Debug)]
pub struct Rx {
    file: Arc<OwnedFd>,
    name: String,
    /// What the kernel says of a frame.
    header: [u8; vnet::HEADER_LEN],
    /// What of a frame does not fit in a cell.
    overflow: Vec<u8>,
    is_gone: bool,
    error: Option<String>,
    stats: QueueStats,
    losses: Arc<Losses>,
}

impl Rx {
    /// Reads one frame into `cell` and what follows; returns its length.
    fn read(&mut self, cell: &mut chunk::Cell) -> io::Result<usize> {
        let first = &mut cell.bytes_mut()[HEADROOM_BYTES..];
        let pieces = [
            libc::iovec { iov_base: self.header.as_mut_ptr().cast(), iov_len: vnet::HEADER_LEN },
            libc::iovec { iov_base: first.as_mut_ptr().cast(), iov_len: first.len() },
            libc::iovec {
                iov_base: self.overflow.as_mut_ptr().cast(),
                iov_len: self.overflow.len(),
            },
        ];
        // SAFETY: the pieces are ours alone and writable for their lengths.
        let n = unsafe { libc::readv(self.file.as_raw_fd(), pieces.as_ptr(), 3) };
        let n = usize::try_from(n).map_err(|_| io::Error::last_os_error())?;
        Ok(n.saturating_sub(vnet::HEADER_LEN))
    }
}

impl RxQueue for Rx {
    fn recv(&mut self, pool: &mut Pool, out: &mut Vec<Packet>, max: usize) -> usize {
        for n in 0..max {
            if self.is_gone {
                return n;
            }
            let Some(mut cell) = pool.get() else { return n };
            let len = match self.read(&mut cell) {
                Ok(len) => len,
                Err(error) => {
                    pool.put(cell);
                    if !sys::is_busy(&error) {
                        self.stats.errors += 1;
                        self.is_gone = true;
                        self.error = Some(format!("{}: reading: {error}", self.name));
                    }
                    return n;
                }
            };
            let packet = if len <= ROOM {
                Some(Packet::from_cell(cell, HEADROOM_BYTES, len))
            } else {
                let rest = &self.overflow[..len - ROOM];
                let whole = [&cell.bytes()[HEADROOM_BYTES..], rest].concat();
                pool.put(cell);
                Packet::copy_from(pool, &whole)
            };
            let Some(mut packet) = packet else {
                self.losses.count(&mut self.stats, reasons::RX_NO_CELLS, 1);
                return n;
            };
            if !vnet::read(&self.header, false, &mut packet) {
                packet.free(pool);
                self.losses.count(&mut self.stats, reasons::RX_OFFLOAD, 1);
                return n;
            }
            self.stats.count(len as u64);
            out.push(packet);
        }
        max
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        // A descriptor whose interface is gone is readable for ever.
        (!self.is_gone).then(|| self.file.as_fd())
    }

    fn take_error(&mut self) -> Option<String> {
        self.error.take()
    }

    fn stats(&self) -> QueueStats {
        self.stats
    }

    fn losses(&self) -> Vec<Arc<Losses>> {
        vec![self.losses.clone()]
    }
}

/// Sends to the kernel.
#[derive(Debug)]
pub struct Tx {
    file: Arc<OwnedFd>,
    name: String,
    is_gone: bool,
    error: Option<String>,
    stats: QueueStats,
    losses: Arc<Losses>,
}

impl Tx {
    fn write(&self, packet: &Packet) -> io::Result<usize> {
        const PIECES: usize = FRAME_BYTES_MAX / ROOM + 3;
        let mut header = vnet::write(packet).ok_or(io::ErrorKind::InvalidInput)?;
        let empty = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let mut pieces = [empty; PIECES];
        if packet.cells() + 1 > PIECES {
            return Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
        }
        pieces[0] = libc::iovec { iov_base: header.as_mut_ptr().cast(), iov_len: header.len() };
        for (piece, segment) in pieces[1..].iter_mut().zip(packet.segments()) {
            *piece = libc::iovec {
                iov_base: segment.as_ptr().cast_mut().cast(),
                iov_len: segment.len(),
            };
        }
        let n = packet.cells() as libc::c_int + 1;
        // SAFETY: the first `n` pieces point to the header and into cells that `packet` holds; they are only read.
        let written = unsafe { libc::writev(self.file.as_raw_fd(), pieces.as_ptr(), n) };
        usize::try_from(written).map_err(|_| io::Error::last_os_error())
    }
}

impl TxQueue for Tx {
    fn send(&mut self, pool: &mut Pool, packets: &mut Vec<Packet>) {
        let mut done = 0;
        for packet in packets.iter() {
            match self.write(packet) {
                Ok(_) => {
                    self.is_gone = false;
                    self.stats.count(packet.frame_len() as u64);
                }
                Err(error) if sys::is_busy(&error) => break,
                Err(error) => {
                    self.stats.errors += 1;
                    // EIO: the interface is down. EINVAL: this frame is not an Ethernet frame.
                    let is_gone = sys::is_gone(&error) || error.raw_os_error() == Some(libc::EIO);
                    let reason = if is_gone { reasons::TX_PORT_DOWN } else { sys::refusal(&error) };
                    self.losses.count(&mut self.stats, reason, 1);
                    if is_gone && !std::mem::replace(&mut self.is_gone, true) {
                        self.error = Some(format!("{}: writing: {error}", self.name));
                    }
                }
            }
            done += 1;
        }
        packets.drain(..done).for_each(|packet| packet.free(pool));
    }

    fn carries(&self, packet: &Packet) -> bool {
        vnet::write(packet).is_some()
    }

    fn flush(&mut self, _pool: &mut Pool) {}

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }

    fn take_error(&mut self) -> Option<String> {
        self.error.take()
    }

    fn stats(&self) -> QueueStats {
        self.stats
    }

    fn losses(&self) -> Vec<Arc<Losses>> {
        vec![self.losses.clone()]
    }
}
