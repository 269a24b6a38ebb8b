//! The server's side of the control socket.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::message::{Asked, ErrorKind, Response};

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
    /// Connections at once; a further one gets an error and is closed.
    pub connections: usize,
    /// Bytes of a request's line.
    pub request_bytes: usize,
    /// A connection without a request for so long is closed.
    pub idle_timeout: Duration,
    /// A client that does not read for so long is hung up.
    pub write_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 16,
            request_bytes: 64 * 1024,
            idle_timeout: Duration::from_secs(60),
            write_timeout: Duration::from_secs(5),
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
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
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
    /// A handle of each open connection, to hang it up at stop.
    connections: Mutex<Vec<(u64, UnixStream)>>,
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
            connections: Mutex::new(Vec::new()),
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
        self.shutdown(std::net::Shutdown::Read);
        let deadline = Instant::now() + LAST_ANSWERS;
        while !self.shared.lock().is_empty() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.shutdown(std::net::Shutdown::Both);
        if let Some(acceptor) = self.acceptor.take().filter(|_| ours) {
            let _ = acceptor.join();
        }
    }
}

impl Server {
    fn shutdown(&self, how: std::net::Shutdown) {
        for (_, stream) in self.shared.lock().iter() {
            let _ = stream.shutdown(how);
        }
    }
}

/// How long a server that ends waits for answers that are under way.
const LAST_ANSWERS: Duration = Duration::from_millis(500);

type Handler = dyn Fn(Asked, &mut dyn Responder) + Send + Sync;

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<(u64, UnixStream)>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

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
        let _ = stream.set_write_timeout(Some(shared.limits.write_timeout));
        if shared.lock().len() >= shared.limits.connections {
            let message = format!("all {} connections are in use", shared.limits.connections);
            let _ = write_line(&stream, &Response::error(ErrorKind::Busy, message));
            continue;
        }
        let Ok(handle) = stream.try_clone() else { continue };
        let id = shared.next_id.fetch_add(1, Ordering::Relaxed);
        shared.lock().push((id, handle));
        let (thread_shared, handler) = (shared.clone(), handler.clone());
        let spawned = thread::Builder::new().name(format!("api-{id}")).spawn(move || {
            let _ = converse(stream, &thread_shared, &*handler);
            thread_shared.lock().retain(|(other, _)| *other != id);
        });
        if spawned.is_err() {
            shared.lock().retain(|(other, _)| *other != id);
        }
    }
}

fn converse(stream: UnixStream, shared: &Shared, handler: &Handler) -> io::Result<()> {
    stream.set_read_timeout(Some(shared.limits.idle_timeout))?;
    let mut connection =
        Connection { reader: BufReader::new(stream), shared, ended: false, failed: false };
    let mut line = Vec::new();
    while !shared.stop.load(Ordering::Acquire) {
        line.clear();
        let most = shared.limits.request_bytes as u64 + 1;
        if (&mut connection.reader).take(most).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        if line.len() as u64 == most && line.last() != Some(&b'\n') {
            let message = format!("a request has at most {} bytes", shared.limits.request_bytes);
            return connection.send(Response::error(ErrorKind::BadRequest, message));
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        connection.ended = false;
        match serde_json::from_slice(&line) {
            Ok(asked) => {
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
        let sent = write_line(self.reader.get_ref(), &response);
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

fn write_line(mut stream: &UnixStream, response: &Response) -> io::Result<()> {
    let mut line = serde_json::to_vec(response)?;
    line.push(b'\n');
    stream.write_all(&line)
}
