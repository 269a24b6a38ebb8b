//! The server's side of the control socket.

mod places;

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::SendFlags;

use super::message::{Asked, ErrorKind, Request, Response};
use places::{Places, State};

/// Where a handler puts its answer.
pub trait Responder {
    /// Sends one response. The handler sends no [`Response::End`]; the server does when the
    /// handler returns without an [`Response::Error`].
    ///
    /// # Errors
    /// The client is gone or does not read: the handler should return.
    fn send(&mut self, response: Response) -> io::Result<()>;

    /// The client hung up or the server stops: a handler that streams asks now and then.
    fn is_closed(&mut self) -> bool;
}

/// Bounds of a server.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Connections at once. A further one gets the place of one that waits for its client, or else an error.
    pub connections: usize,
    /// Connections beside these that root and the server's own user may have.
    pub reserved: usize,
    /// A connection may wait for its client so long before another one gets its place.
    pub grace: Duration,
    /// Who root and the server's own user are, by the connection.
    pub is_root: fn(&UnixStream) -> bool,
    /// Bytes of a request's line.
    pub request_bytes: usize,
    /// Bytes of a long request's line, of which there is one at a time, and one more of root.
    pub long_request_bytes: usize,
    /// A connection without a request for so long is closed.
    pub idle_timeout: Duration,
    /// So is one whose request is not whole so long after its first byte.
    pub request_timeout: Duration,
    /// A client that does not read one response in so long is hung up.
    pub write_timeout: Duration,
    /// So is one that does not read a whole answer in so long, unless it is a stream.
    pub answer_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 16,
            reserved: 4,
            grace: Duration::from_secs(1),
            is_root: places::is_root,
            request_bytes: 64 * 1024,
            long_request_bytes: 64 << 20,
            idle_timeout: Duration::from_secs(60),
            request_timeout: Duration::from_secs(10),
            write_timeout: Duration::from_secs(5),
            answer_timeout: Duration::from_secs(30),
        }
    }
}

/// The socket cannot be opened.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum BindError {
    #[error("{}: another instance uses this socket: stop it, or set another `system.socket`", .0.display())]
    InUse(PathBuf),
    #[error("{}: expected a socket or no file at all; remove it, or change `system.socket`", .0.display())]
    NotASocket(PathBuf),
    #[error("{}: {source}{}", path.display(), hint(source))]
    Io { path: PathBuf, source: io::Error },
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "; the run's user (`system.user`) must be able to write into the folder of the socket"
        }
        _ => "",
    }
}

/// A listening socket with its threads; dropping it stops them and removes the socket.
#[derive(Debug)]
pub struct Server {
    path: PathBuf,
    /// Device and inode of our socket: another process may have replaced it.
    identity: (u64, u64),
    /// The folder of the socket, if it was made for it.
    folder: Option<PathBuf>,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    stop: AtomicBool,
    next_id: AtomicU64,
    limits: Limits,
    places: Places,
}

impl Server {
    /// Opens the socket at `path` and answers requests by `handler` until dropped.
    ///
    /// The socket of a dead process is replaced; that of a live one is [`BindError::InUse`].
    pub fn bind(
        path: impl AsRef<Path>,
        handler: impl Fn(Asked, &mut dyn Responder) + Send + Sync + 'static,
    ) -> Result<Server, BindError> {
        Server::bind_with(path, Limits::default(), handler)
    }

    /// As [`Server::bind`], with bounds of your own.
    pub fn bind_with(
        path: impl AsRef<Path>,
        limits: Limits,
        handler: impl Fn(Asked, &mut dyn Responder) + Send + Sync + 'static,
    ) -> Result<Server, BindError> {
        let path = path.as_ref().to_owned();
        let io = |source| BindError::Io { path: path.clone(), source };
        let folder = make_folder(&path);
        let listener = listen(&path)?;
        let metadata = fs::symlink_metadata(&path).map_err(io)?;
        let shared = Arc::new(Shared {
            stop: AtomicBool::new(false),
            next_id: AtomicU64::new(0),
            limits,
            places: Places::new(limits),
        });
        let handler: Arc<Handler> = Arc::new(handler);
        let acceptor = thread::Builder::new()
            .name("api".into())
            .spawn({
                let shared = shared.clone();
                move || {
                    // Without it nobody could ask any more. Nothing is held over from one connection to the next.
                    let accept = || accept(&listener, &shared, &handler);
                    while catch_unwind(AssertUnwindSafe(accept)).is_err() {
                        thread::sleep(Duration::from_millis(100));
                    }
                }
            })
            .map_err(io)?;
        let identity = (metadata.dev(), metadata.ino());
        Ok(Server { path, identity, folder, shared, acceptor: Some(acceptor) })
    }

    /// Where it listens.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        let ours = fs::symlink_metadata(&self.path)
            .is_ok_and(|metadata| (metadata.dev(), metadata.ino()) == self.identity);
        if ours {
            // The acceptor waits in accept: one last connection wakes it.
            let _ = UnixStream::connect(&self.path);
            let _ = fs::remove_file(&self.path);
            // Another instance may have its socket there.
            let _ = self.folder.as_ref().map(fs::remove_dir);
        }
        // No more requests; answers that are under way have their end.
        self.shared.places.shutdown(std::net::Shutdown::Read);
        let deadline = Instant::now() + LAST_ANSWERS;
        while !self.shared.places.is_empty() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.shared.places.shutdown(std::net::Shutdown::Both);
        if let Some(acceptor) = self.acceptor.take().filter(|_| ours) {
            let _ = acceptor.join();
        }
    }
}

/// How long a server that ends waits for answers that are under way.
const LAST_ANSWERS: Duration = Duration::from_millis(500);

type Handler = dyn Fn(Asked, &mut dyn Responder) + Send + Sync;

/// Makes the folder of the socket if it is missing and the one above is there, as for `/run/shadeline` after a boot
/// without a service manager. If it cannot be made, binding says why.
fn make_folder(path: &Path) -> Option<PathBuf> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty())?;
    fs::create_dir(folder).is_ok().then(|| folder.to_owned())
}

/// Binds under a name of its own, sets the mode, then links the socket to `path`: no client can
/// connect before the mode holds, and of two starters only one gets the name.
fn listen(path: &Path) -> Result<UnixListener, BindError> {
    let io = |source| BindError::Io { path: path.to_owned(), source };
    let mut own = path.as_os_str().to_owned();
    own.push(format!(".{}", std::process::id()));
    let own = PathBuf::from(own);
    let _ = fs::remove_file(&own);
    let listener = UnixListener::bind(&own).map_err(io)?;
    let linked = fs::set_permissions(&own, fs::Permissions::from_mode(0o660))
        .map_err(io)
        .and_then(|()| link(&own, path));
    let _ = fs::remove_file(&own);
    linked.map(|()| listener)
}

fn link(own: &Path, path: &Path) -> Result<(), BindError> {
    let io = |source| BindError::Io { path: path.to_owned(), source };
    for _ in 0..3 {
        match fs::hard_link(own, path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            result => return result.map_err(io),
        }
        match fs::symlink_metadata(path) {
            Ok(metadata) if !metadata.file_type().is_socket() => {
                return Err(BindError::NotASocket(path.to_owned()));
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io(error)),
            _ => {}
        }
        match UnixStream::connect(path) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                fs::remove_file(path).map_err(io)?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(io(error)),
            Ok(_) => return Err(BindError::InUse(path.to_owned())),
        }
    }
    Err(BindError::InUse(path.to_owned()))
}

fn accept(listener: &UnixListener, shared: &Arc<Shared>, handler: &Arc<Handler>) {
    for stream in listener.incoming() {
        if shared.stop.load(Ordering::Acquire) {
            return;
        }
        let Ok(stream) = stream else {
            // Out of descriptors: let the others finish.
            thread::sleep(Duration::from_millis(100));
            continue;
        };
        let is_root = (shared.limits.is_root)(&stream);
        let id = shared.next_id.fetch_add(1, Ordering::Relaxed);
        let Some(state) = shared.places.take(id, &stream, is_root) else {
            let message = format!(
                "all {} connections are in use, and those reserved for root and the instance's user",
                shared.limits.connections
            );
            // It is short: a new connection has room for it.
            let _ = stream.set_nonblocking(true);
            let _ = write_line(&stream, &Response::error(ErrorKind::Busy, message), Instant::now());
            continue;
        };
        let (thread_shared, handler) = (shared.clone(), handler.clone());
        let spawned = thread::Builder::new().name(format!("api-{id}")).spawn(move || {
            let _place = thread_shared.places.until_dropped(id);
            let _ = converse(stream, is_root, &state, &thread_shared, &*handler);
        });
        if spawned.is_err() {
            shared.places.give_back(id);
        }
    }
}

/// Answers the requests of a connection until the client hangs up, or is hung up.
fn converse(
    stream: UnixStream,
    is_root: bool,
    state: &State,
    shared: &Shared,
    handler: &Handler,
) -> io::Result<()> {
    let mut connection = Connection {
        reader: BufReader::new(stream),
        shared,
        ended: false,
        failed: false,
        writing: None,
        long: None,
    };
    let mut line = Vec::new();
    while !shared.stop.load(Ordering::Acquire) {
        // After a long one.
        line = if line.capacity() > shared.limits.request_bytes { Vec::new() } else { line };
        line.clear();
        match connection.read_request(is_root, &mut line)? {
            Line::None => return Ok(()),
            Line::Refused(why) => return connection.send(why),
            Line::Whole => {}
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        if !state.begin_answer() {
            return Ok(());
        }
        connection.ended = false;
        match serde_json::from_slice(&line) {
            Ok(asked) => {
                connection.begin_answer(&asked);
                let answered = catch_unwind(AssertUnwindSafe(|| handler(asked, &mut connection)));
                if answered.is_err() {
                    let message = "the request failed inside the program; see its log";
                    connection.send(Response::error(ErrorKind::Internal, message))?;
                }
            }
            Err(error) => {
                connection.send(Response::error(ErrorKind::BadRequest, error))?;
            }
        }
        if !connection.ended {
            connection.send(Response::End)?;
        }
        state.end_answer();
    }
    Ok(())
}

struct Connection<'a> {
    reader: BufReader<UnixStream>,
    shared: &'a Shared,
    /// An error ended this request's answer.
    ended: bool,
    /// A write failed: the stream may hold half a line.
    failed: bool,
    /// How long writing this answer has taken; `None`: it is a stream, which takes its time.
    writing: Option<Duration>,
    /// The place of a long request, until the last of its answer: whoever has that may ask again.
    long: Option<places::Long<'a>>,
}

/// What came of reading a request.
enum Line {
    /// The client hung up.
    None,
    /// It is too long: what to say before hanging up.
    Refused(Response),
    /// It is there.
    Whole,
}

impl Connection<'_> {
    /// Reads a line, in the time and the length that a request may have.
    fn read_request(&mut self, is_root: bool, line: &mut Vec<u8>) -> io::Result<Line> {
        let Shared { limits, places, .. } = self.shared;
        let refused = |kind, message| Ok(Line::Refused(Response::error(kind, message)));
        self.long = None;
        let mut deadline = Instant::now() + limits.idle_timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.reader.get_ref().set_read_timeout(Some(left))?;
            let bytes = match self.reader.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                bytes => bytes?,
            };
            if bytes.is_empty() {
                return Ok(Line::None);
            }
            if line.is_empty() {
                deadline = Instant::now() + limits.request_timeout;
            }
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let n = end.map_or(bytes.len(), |end| end + 1);
            line.extend_from_slice(&bytes[..n]);
            self.reader.consume(n);
            // The end of the line is not the request's.
            let len = line.len() - usize::from(end.is_some());
            let longest = limits.long_request_bytes.max(limits.request_bytes);
            if len > longest {
                let message = format!("a request has at most {longest} bytes");
                return refused(ErrorKind::BadRequest, message);
            }
            if len > limits.request_bytes && self.long.is_none() {
                self.long = places.long(is_root);
                if self.long.is_none() {
                    let message = "another long request is under way: try again".to_owned();
                    return refused(ErrorKind::Busy, message);
                }
            }
            if end.is_some() {
                return Ok(Line::Whole);
            }
        }
    }

    fn begin_answer(&mut self, asked: &Asked) {
        let is_stream = matches!(asked.request, Request::Capture { .. } | Request::Trace { .. });
        self.writing = (!is_stream).then_some(Duration::ZERO);
    }
}

impl Responder for Connection<'_> {
    fn send(&mut self, response: Response) -> io::Result<()> {
        if self.failed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if self.ended {
            return Ok(());
        }
        self.ended = response.is_last();
        if self.ended {
            self.long = None;
        }
        let limits = &self.shared.limits;
        let left = self.writing.map(|spent| limits.answer_timeout.saturating_sub(spent));
        let begin = Instant::now();
        let deadline = begin + left.unwrap_or(limits.write_timeout).min(limits.write_timeout);
        let sent = write_line(self.reader.get_ref(), &response, deadline);
        self.writing = self.writing.map(|spent| spent + begin.elapsed());
        self.failed = sent.is_err();
        sent
    }

    fn is_closed(&mut self) -> bool {
        if self.failed || self.shared.stop.load(Ordering::Acquire) {
            return true;
        }
        if !self.reader.buffer().is_empty() {
            return false;
        }
        // A look without waiting. What the client sent meanwhile stays in the buffer.
        let _ = self.reader.get_ref().set_nonblocking(true);
        let closed = match self.reader.fill_buf() {
            Ok(bytes) => bytes.is_empty(),
            Err(error) => {
                !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
            }
        };
        let _ = self.reader.get_ref().set_nonblocking(false);
        closed
    }
}

/// Writes a line; the system is asked to wait only where the client has not made room.
fn write_line(stream: &UnixStream, response: &Response, deadline: Instant) -> io::Result<()> {
    let mut line = serde_json::to_vec(response)?;
    line.push(b'\n');
    let mut rest = &line[..];
    while !rest.is_empty() {
        match rustix::net::send(stream, rest, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(n) => rest = &rest[n..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => wait_for_room(stream, deadline)?,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Waits until the client has read something.
fn wait_for_room(stream: &UnixStream, deadline: Instant) -> io::Result<()> {
    let left = deadline.saturating_duration_since(Instant::now());
    let time = Timespec::try_from(left).map_err(io::Error::other)?;
    match poll(&mut [PollFd::new(stream, PollFlags::OUT)], Some(&time)) {
        Ok(0) => Err(io::ErrorKind::TimedOut.into()),
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
