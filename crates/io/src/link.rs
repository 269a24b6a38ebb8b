//! Questions and orders to one network interface, by `ioctl`.
//!
//! Only what the queues need before they can open: index, addresses, MTU, up and down, how many
//! queues, and switching off what the kernel would do to frames behind our back. Everything else
//! about interfaces comes over rtnetlink, elsewhere.
//!
//! Threads: a [`Link`] acts in the network namespace of the thread that opened it.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::sys;

/// What could not be done with which interface.
#[derive(Debug, thiserror::Error)]
#[error("{interface}: {}", text(.what, .source, .needs))]
pub struct LinkError {
    /// The interface.
    pub interface: String,
    /// What was tried, as "setting the MTU".
    pub what: &'static str,
    /// The capability that it needs, if it needs one.
    pub needs: Option<&'static str>,
    /// Why it failed.
    pub source: io::Error,
}

/// What looking for an interface is called.
const LOOKUP: &str = "looking it up";

fn text(what: &str, source: &io::Error, needs: &Option<&'static str>) -> String {
    if what == LOOKUP && source.raw_os_error() == Some(libc::ENODEV) {
        return "this machine has no such interface; `ip link` lists its interfaces".to_owned();
    }
    let needs = needs.filter(|_| source.kind() == io::ErrorKind::PermissionDenied);
    let hint = needs.map_or_else(String::new, |needs| format!(" (needs {needs})"));
    format!("{what}: {source}{hint}")
}

/// One interface of the namespace.
#[derive(Debug)]
pub struct Link {
    name: String,
    socket: OwnedFd,
}

/// How many queues an interface uses. `combined` ones serve both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Channels {
    /// Receive queues.
    pub rx: u32,
    /// Transmit queues.
    pub tx: u32,
    /// Queues that do both.
    pub combined: u32,
}

const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GLINK: u32 = 0x0a;
const ETHTOOL_GCHANNELS: u32 = 0x3c;
const ETHTOOL_SCHANNELS: u32 = 0x3d;
const SIOCETHTOOL: u32 = 0x8946;

/// `struct ifreq`: a name and a union of 24 bytes, of which each request uses some.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Request {
    name: [u8; libc::IFNAMSIZ],
    data: [u8; 24],
}

const _: () = assert!(size_of::<Request>() == size_of::<libc::ifreq>());

/// `struct ethtool_channels`: the most and the current number of rx, tx, other and combined.
#[repr(C)]
#[derive(Default)]
struct EthtoolChannels {
    command: u32,
    max: [u32; 4],
    current: [u32; 4],
}

/// `struct ethtool_drvinfo`: the driver's name, version, firmware and bus, and numbers.
#[repr(C)]
struct EthtoolDriver {
    command: u32,
    name: [u8; 32],
    rest: [u8; 160],
}

const _: () = assert!(size_of::<EthtoolDriver>() == 196);

/// `struct ethtool_value`: a command that one number answers.
#[repr(C)]
struct EthtoolValue {
    command: u32,
    value: u32,
}

/// An interface that receives frames for every station, as long as this lives.
#[derive(Debug)]
pub struct Promiscuous {
    _socket: OwnedFd,
}

/// Makes an interface receive frames for every station, as long as the packet socket is open.
pub(crate) fn receive_all(socket: &OwnedFd, index: u32) -> io::Result<()> {
    let mut membership: libc::packet_mreq = sys::zeroed();
    membership.mr_ifindex = index as i32;
    membership.mr_type = libc::PACKET_MR_PROMISC as u16;
    sys::setsockopt(socket, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &membership)
}

impl Link {
    /// The interface `name`.
    ///
    /// # Errors
    /// If there is none of this name.
    pub fn open(name: &str) -> Result<Self, LinkError> {
        let error = |source| LinkError {
            interface: name.to_owned(),
            what: "opening the interface",
            needs: None,
            source,
        };
        if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.contains(['\0', '/']) {
            let text = "not an interface name: 1 to 15 bytes expected";
            return Err(error(io::Error::new(io::ErrorKind::InvalidInput, text)));
        }
        let socket = sys::socket(libc::AF_INET, libc::SOCK_DGRAM, 0).map_err(error)?;
        let link = Self { name: name.to_owned(), socket };
        link.index()?;
        Ok(link)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its index.
    ///
    /// # Errors
    /// If it is gone.
    pub fn index(&self) -> Result<u32, LinkError> {
        let data = self.get(libc::SIOCGIFINDEX as u32, LOOKUP)?;
        Ok(u32::from_ne_bytes([data[0], data[1], data[2], data[3]]))
    }

    /// Its MAC address.
    ///
    /// # Errors
    /// If it is gone.
    pub fn mac(&self) -> Result<[u8; 6], LinkError> {
        let data = self.get(libc::SIOCGIFHWADDR as u32, "reading the MAC address")?;
        Ok([data[2], data[3], data[4], data[5], data[6], data[7]])
    }

    /// Gives it a MAC address.
    ///
    /// # Errors
    /// Without CAP_NET_ADMIN, or for an address that it does not take.
    pub fn set_mac(&self, mac: [u8; 6]) -> Result<(), LinkError> {
        let mut data = [0; 24];
        data[..2].copy_from_slice(&libc::ARPHRD_ETHER.to_ne_bytes());
        data[2..8].copy_from_slice(&mac);
        self.set(libc::SIOCSIFHWADDR as u32, data, "setting the MAC address")
    }

    /// Its MTU in bytes: the longest frame without Ethernet header and tags.
    ///
    /// # Errors
    /// If it is gone.
    pub fn mtu(&self) -> Result<u32, LinkError> {
        let data = self.get(libc::SIOCGIFMTU as u32, "reading the MTU")?;
        Ok(u32::from_ne_bytes([data[0], data[1], data[2], data[3]]))
    }

    /// Gives it an MTU.
    ///
    /// # Errors
    /// Without CAP_NET_ADMIN, or for one that it does not take.
    pub fn set_mtu(&self, mtu: u32) -> Result<(), LinkError> {
        let mut data = [0; 24];
        data[..4].copy_from_slice(&mtu.to_ne_bytes());
        self.set(libc::SIOCSIFMTU as u32, data, "setting the MTU")
    }

    fn flags(&self) -> Result<i16, LinkError> {
        let data = self.get(libc::SIOCGIFFLAGS as u32, "reading its state")?;
        Ok(i16::from_ne_bytes([data[0], data[1]]))
    }

    /// Has it receive frames for every station, for all readers: AF_XDP sockets cannot ask for that.
    ///
    /// # Errors
    /// If it is gone, or without CAP_NET_RAW.
    pub fn promiscuous(&self) -> Result<Promiscuous, LinkError> {
        let what = "receiving promiscuously";
        let error = |source| LinkError { needs: Some("CAP_NET_RAW"), ..self.error(what, source) };
        let socket = sys::socket(libc::AF_PACKET, libc::SOCK_RAW, 0).map_err(error)?;
        receive_all(&socket, self.index()?).map_err(error)?;
        Ok(Promiscuous { _socket: socket })
    }

    /// Whether it is up (by the operator; the link itself may have no carrier).
    ///
    /// # Errors
    /// If it is gone.
    pub fn is_up(&self) -> Result<bool, LinkError> {
        Ok(i32::from(self.flags()?) & libc::IFF_UP != 0)
    }

    /// Whether it is the loopback interface.
    ///
    /// # Errors
    /// If it is gone.
    pub fn is_loopback(&self) -> Result<bool, LinkError> {
        Ok(i32::from(self.flags()?) & libc::IFF_LOOPBACK != 0)
    }

    /// Whether it is up and has a carrier.
    ///
    /// The carrier is the driver's own word. The flag `IFF_RUNNING` follows it up to a second late, so it is only
    /// for drivers that do not say.
    ///
    /// # Errors
    /// If it is gone.
    pub fn is_running(&self) -> Result<bool, LinkError> {
        let flags = i32::from(self.flags()?);
        let mut carrier = EthtoolValue { command: ETHTOOL_GLINK, value: 0 };
        let has_carrier = match self.ethtool(&mut carrier) {
            Ok(()) => carrier.value != 0,
            Err(_) => flags & libc::IFF_RUNNING != 0,
        };
        Ok(flags & libc::IFF_UP != 0 && has_carrier)
    }

    /// Takes it up or down.
    ///
    /// # Errors
    /// Without CAP_NET_ADMIN.
    pub fn set_up(&self, up: bool) -> Result<(), LinkError> {
        let flags = i32::from(self.flags()?) & !libc::IFF_UP | if up { libc::IFF_UP } else { 0 };
        let mut data = [0; 24];
        data[..2].copy_from_slice(&(flags as i16).to_ne_bytes());
        self.set(libc::SIOCSIFFLAGS as u32, data, "setting it up or down")
    }

    /// Has the kernel send to it without asking for the addresses of neighbours (`IFF_NOARP`).
    ///
    /// # Errors
    /// Without CAP_NET_ADMIN.
    pub fn set_noarp(&self) -> Result<(), LinkError> {
        let flags = i32::from(self.flags()?) | libc::IFF_NOARP;
        let mut data = [0; 24];
        data[..2].copy_from_slice(&(flags as i16).to_ne_bytes());
        self.set(libc::SIOCSIFFLAGS as u32, data, "setting IFF_NOARP")
    }

    /// How many queues it uses now. Interfaces that do not say have one.
    pub fn channels(&self) -> Channels {
        let mut channels =
            EthtoolChannels { command: ETHTOOL_GCHANNELS, ..EthtoolChannels::default() };
        let [rx, tx, _, combined] = match self.ethtool(&mut channels) {
            Ok(()) => channels.current,
            Err(_) => [1, 1, 0, 0],
        };
        Channels { rx, tx, combined }
    }

    /// The name of its driver; empty for one that does not say.
    pub fn driver(&self) -> String {
        let mut driver = EthtoolDriver { command: ETHTOOL_GDRVINFO, name: [0; 32], rest: [0; 160] };
        match self.ethtool(&mut driver) {
            Ok(()) => {
                let name = driver.name.split(|byte| *byte == 0).next().unwrap_or_default();
                String::from_utf8_lossy(name).into_owned()
            }
            Err(_) => String::new(),
        }
    }

    /// Number of its receive queues, at least one.
    pub fn rx_queues(&self) -> u32 {
        let channels = self.channels();
        (channels.rx + channels.combined).max(1)
    }

    /// Makes it use `n` receive and transmit queues.
    ///
    /// # Errors
    /// Without CAP_NET_ADMIN, or if it has not so many. EINVAL as long as a queue that is to go has an AF_XDP socket.
    pub fn set_queues(&self, n: u32) -> Result<(), LinkError> {
        self.change_channels(|max, current| {
            let of = if max[3] > 0 { 3..4 } else { 0..2 };
            let most = max[of.clone()].iter().copied().min().unwrap_or(0);
            if n > most {
                let text = format!("{n} of at most {most}");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
            current[of].fill(n);
            Ok(())
        })
    }

    /// Makes it use so many queues of each kind.
    ///
    /// # Errors
    /// As [`Link::set_queues`].
    pub fn set_channels(&self, channels: Channels) -> Result<(), LinkError> {
        self.change_channels(|_, current| {
            (current[0], current[1], current[3]) = (channels.rx, channels.tx, channels.combined);
            Ok(())
        })
    }

    /// `change` gets the most and the current number of rx, tx, other and combined.
    fn change_channels(
        &self,
        change: impl FnOnce(&[u32; 4], &mut [u32; 4]) -> io::Result<()>,
    ) -> Result<(), LinkError> {
        let mut channels =
            EthtoolChannels { command: ETHTOOL_GCHANNELS, ..EthtoolChannels::default() };
        let error = |source| self.error("setting the number of queues", source);
        self.ethtool(&mut channels).map_err(error)?;
        change(&channels.max, &mut channels.current).map_err(error)?;
        channels.command = ETHTOOL_SCHANNELS;
        self.ethtool(&mut channels).map_err(error)
    }

    pub(crate) fn error(&self, what: &'static str, source: io::Error) -> LinkError {
        let needs = Some("CAP_NET_ADMIN");
        LinkError { interface: self.name.clone(), what, needs, source }
    }

    fn request(&self) -> Request {
        let mut name = [0; libc::IFNAMSIZ];
        name[..self.name.len()].copy_from_slice(self.name.as_bytes());
        Request { name, data: [0; 24] }
    }

    fn get(&self, code: u32, what: &'static str) -> Result<[u8; 24], LinkError> {
        let mut request = self.request();
        self.ioctl(code, &mut request).map_err(|source| self.error(what, source))?;
        Ok(request.data)
    }

    fn set(&self, code: u32, data: [u8; 24], what: &'static str) -> Result<(), LinkError> {
        let mut request = Request { data, ..self.request() };
        self.ioctl(code, &mut request).map_err(|source| self.error(what, source))
    }

    /// An `ioctl` that reads and writes the request itself; none with a pointer in its data.
    fn ioctl(&self, code: u32, request: &mut Request) -> io::Result<()> {
        debug_assert_ne!(code, SIOCETHTOOL);
        // SAFETY: interface requests take a `struct ifreq`, which `Request` is laid out as.
        sys::check(unsafe {
            libc::ioctl(self.socket.as_raw_fd(), code as _, std::ptr::from_mut(request))
        })
        .map(drop)
    }

    /// An ethtool request; `T` is the structure that its command, the first word, stands for.
    fn ethtool<T: EthtoolRequest>(&self, value: &mut T) -> io::Result<()> {
        let mut request = self.request();
        let address = std::ptr::from_mut(value) as usize;
        request.data[..size_of::<usize>()].copy_from_slice(&address.to_ne_bytes());
        // SAFETY: SIOCETHTOOL takes a `struct ifreq` whose data is a pointer to the command's own
        // structure (`EthtoolRequest`), here `value`, alive and ours for the whole call.
        sys::check(unsafe {
            libc::ioctl(self.socket.as_raw_fd(), SIOCETHTOOL as _, std::ptr::from_mut(&mut request))
        })
        .map(drop)
    }
}

/// Structures that the kernel reads and writes whole for the commands they are used with here.
trait EthtoolRequest {}
impl EthtoolRequest for EthtoolChannels {}
impl EthtoolRequest for EthtoolDriver {}
impl EthtoolRequest for EthtoolValue {}

/// Index of the interface `name`, if there is one.
pub fn index_of(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    // SAFETY: a string that ends in NUL, alive during the call.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    (index != 0).then_some(index)
}

/// `SO_NETNS_COOKIE` of Linux 5.14.
const NAMESPACE: libc::c_int = 71;

/// A number of the network namespace that no other one gets until the machine is started again; `None` where the kernel
/// has none.
pub fn namespace() -> Option<u64> {
    let socket = sys::socket(libc::AF_INET, libc::SOCK_DGRAM, 0).ok()?;
    sys::getsockopt(&socket, libc::SOL_SOCKET, NAMESPACE).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_interface_is_named_in_the_error() {
        let error = Link::open("sl-none0").unwrap_err();
        assert_eq!(
            error.to_string(),
            "sl-none0: this machine has no such interface; `ip link` lists its interfaces"
        );
        for name in ["", "a-name-that-is-too-long", "a/b", "a\0b"] {
            assert!(Link::open(name).unwrap_err().to_string().contains("not an interface name"));
        }
        assert_eq!(index_of("sl-none0"), None);
    }

    #[test]
    fn loopback_says_what_it_is() {
        let Some(index) = index_of("lo") else {
            testkit::skip("no loopback interface");
            return;
        };
        let link = Link::open("lo").unwrap();
        assert_eq!(link.index().unwrap(), index);
        assert_eq!(link.mac().unwrap(), [0; 6]);
        assert!(link.mtu().unwrap() >= 1280);
        assert_eq!(link.rx_queues(), 1);
    }
}
