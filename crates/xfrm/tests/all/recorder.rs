//! Answers for the kernel's XFRM: programs reach it by `testkit/shim/netlink_xfrm.c`.
//!
//! ```text
//!  ip, charon ─▶ shim ─▶ Unix socket ─▶ Recorder ─▶ reference::Kernel
//!                                          │ events
//!                                          ├─▶ programs that have joined the group
//!                                          └─▶ Listener of the test ─▶ Mirror
//! ```

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept, bind,
    listen, recv, send, socket_with,
};
use xfrm::reference::Kernel;
use xfrm::{Bounds, Message, Mirror, group};

struct Client {
    socket: OwnedFd,
    port: u32,
    groups: u32,
}

#[derive(Default)]
struct Shared {
    kernel: Kernel,
    clients: BTreeMap<u32, Client>,
    /// For the test.
    events: Vec<(u32, Vec<u8>)>,
    /// Types of requests, and how often they came.
    asked: BTreeMap<u16, usize>,
    /// What programs have announced themselves: groups, as a mask, and datagrams.
    announced: Vec<(u32, Vec<u8>)>,
}

impl Shared {
    fn ask(&mut self, port: u32, datagram: &[u8]) -> Vec<Vec<u8>> {
        let kind = datagram.get(4..6).map_or(0, |kind| u16::from_ne_bytes([kind[0], kind[1]]));
        *self.asked.entry(kind).or_default() += 1;
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        self.kernel.now = now.as_secs();
        let answer = self.kernel.ask(port, datagram);
        let answers = answer.datagrams().map(<[u8]>::to_vec).collect();
        for (group, event) in self.kernel.take_events() {
            let listens = |client: &&Client| client.groups & 1 << (group - 1) != 0;
            for client in self.clients.values().filter(listens) {
                let _ = send(&client.socket, event.expose(), SendFlags::DONTWAIT);
            }
            self.events.push((group, event.expose().to_vec()));
        }
        answers
    }
}

/// The kernel's stand-in, on a thread of its own.
pub(crate) struct Recorder {
    shared: Arc<Mutex<Shared>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    pub(crate) path: PathBuf,
}

impl Recorder {
    pub(crate) fn start(folder: &Path) -> Recorder {
        let path = folder.join("xfrm");
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let listener = socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap();
        bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        listen(&listener, 16).unwrap();
        let shared = Arc::new(Mutex::new(Shared { kernel: Kernel::new(), ..Shared::default() }));
        let stop = Arc::new(AtomicBool::new(false));
        let (own, ended) = (shared.clone(), stop.clone());
        let thread = std::thread::spawn(move || serve(&listener, &own, &ended));
        Recorder { shared, stop, thread: Some(thread), path }
    }

    /// As the gateway asks the kernel: 0, or an error number.
    pub(crate) fn ask(&self, (message, flags): &(Message, u16)) -> i32 {
        let request = message.to_datagram(5 | flags, 1, 0);
        let answers = self.shared.lock().unwrap().ask(0, request.expose());
        let last = answers.last().expect("an answer");
        i32::from_ne_bytes(last[16..20].try_into().unwrap())
    }

    /// Types of requests of programs and of the test, and how often they came.
    pub(crate) fn asked(&self) -> BTreeMap<u16, usize> {
        self.shared.lock().unwrap().asked.clone()
    }

    /// What programs have announced themselves: groups, as a mask, and messages.
    #[allow(dead_code, reason = "the tests of `shadeline` use it")]
    pub(crate) fn announced(&self) -> Vec<(u32, Message)> {
        let all = self.shared.lock().unwrap().announced.clone();
        let read = |(groups, datagram): (u32, Vec<u8>)| {
            let kind = u16::from_ne_bytes([datagram[4], datagram[5]]);
            (groups, Message::decode(kind, 0, &datagram[16..]).expect("an announcement"))
        };
        all.into_iter().map(read).collect()
    }

    /// Announces a message, as a program does that is not the kernel.
    pub(crate) fn announce(&self, group: u32, message: &Message) {
        let datagram = message.to_datagram(0, 0, 0);
        let shared = self.shared.lock().unwrap();
        let listens = |client: &&Client| client.groups & 1 << (group - 1) != 0;
        for client in shared.clients.values().filter(listens) {
            let _ = send(&client.socket, datagram.expose(), SendFlags::DONTWAIT);
        }
    }

    /// Whether a program has joined a group.
    pub(crate) fn has_listener(&self) -> bool {
        self.shared.lock().unwrap().clients.values().any(|own| own.groups != 0)
    }

    pub(crate) fn with<T>(&self, look: impl FnOnce(&mut Kernel) -> T) -> T {
        look(&mut self.shared.lock().unwrap().kernel)
    }

    /// A mirror of what there is now.
    pub(crate) fn mirror(&self) -> Mirror {
        let mut mirror = Mirror::new(Bounds::default());
        let mut shared = self.shared.lock().unwrap();
        shared.events.clear();
        mirror.begin();
        let (states, policies) =
            (shared.kernel.dump_states(0, usize::MAX), shared.kernel.dump_policies(0, usize::MAX));
        states.iter().chain(&policies).for_each(|(_, message)| mirror.dumped(message));
        mirror.end(false);
        mirror
    }

    /// Gives the mirror what was announced since.
    pub(crate) fn feed(&self, mirror: &mut Mirror) {
        let events = std::mem::take(&mut self.shared.lock().unwrap().events);
        for (group, event) in events {
            let half = |at: usize| u16::from_ne_bytes([event[at], event[at + 1]]);
            let message = Message::decode(half(4), half(6), &event[16..]).expect("an event");
            if [group::SA, group::POLICY, group::EXPIRE, group::MIGRATE].contains(&group) {
                mirror.event(&message);
            }
        }
        assert!(mirror.is_in_step());
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(listener: &OwnedFd, shared: &Mutex<Shared>, stop: &AtomicBool) {
    let mut buffer = vec![0; 1 << 17];
    let mut next = 1;
    while !stop.load(Ordering::Relaxed) {
        let (has_new, ready) = wait(listener, shared);
        if has_new && let Ok(socket) = accept(listener) {
            let client = Client { socket, port: 0, groups: 0 };
            shared.lock().unwrap().clients.insert(next, client);
            next += 1;
        }
        for id in ready {
            let mut shared = shared.lock().unwrap();
            let Some(client) = shared.clients.get_mut(&id) else { continue };
            let got = recv(&client.socket, &mut buffer[..], RecvFlags::DONTWAIT);
            let len = got.map_or(0, |(len, _)| len);
            match &buffer[..len] {
                [] => {
                    shared.clients.remove(&id);
                }
                [b'G', rest @ ..] => {
                    let word = |at: usize| {
                        u32::from_ne_bytes([rest[at], rest[at + 1], rest[at + 2], rest[at + 3]])
                    };
                    (client.port, client.groups) = (word(0), word(4));
                }
                // What a program announces itself, to all others who have joined the group. The kernel gets it, too, and passes
                // over what is no request.
                [b'E', a, b, c, d, datagram @ ..] => {
                    let groups = u32::from_ne_bytes([*a, *b, *c, *d]);
                    let others = shared.clients.iter().filter(|(other, _)| **other != id);
                    for (_, other) in others.filter(|(_, own)| own.groups & groups != 0) {
                        let _ = send(&other.socket, datagram, SendFlags::DONTWAIT);
                    }
                    let datagram = datagram.to_vec();
                    shared.announced.push((groups, datagram));
                }
                [_, datagram @ ..] => {
                    let port = client.port;
                    let answers = shared.ask(port, datagram);
                    if let Some(client) = shared.clients.get(&id) {
                        for answer in answers {
                            let _ = send(&client.socket, &answer, SendFlags::empty());
                        }
                    }
                }
            }
        }
    }
}

/// Whether a program connects, and which ones have said something. A few milliseconds at most.
fn wait(listener: &OwnedFd, shared: &Mutex<Shared>) -> (bool, Vec<u32>) {
    let limit = Timespec::try_from(Duration::from_millis(2)).unwrap();
    let shared = shared.lock().unwrap();
    let ids: Vec<u32> = shared.clients.keys().copied().collect();
    let mut all = vec![PollFd::new(listener, PollFlags::IN)];
    all.extend(shared.clients.values().map(|own| PollFd::new(&own.socket, PollFlags::IN)));
    let _ = poll(&mut all, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
    let is_ready = |own: &PollFd<'_>| !own.revents().is_empty();
    let ready: Vec<u32> =
        all[1..].iter().zip(ids).filter(|(own, _)| is_ready(own)).map(|(_, id)| id).collect();
    let has_new = is_ready(&all[0]);
    drop(all);
    drop(shared);
    if !has_new && ready.is_empty() {
        std::thread::sleep(Duration::try_from(limit).unwrap_or_default());
    }
    (has_new, ready)
}
