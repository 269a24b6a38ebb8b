//! The client's side of the control socket.

use std::io::{self, BufRead, BufReader, Write};
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::process::{PidfdFlags, pidfd_open};

use super::message::{Asked, ErrorKind, Response};

/// A connection to a running instance. One request at a time.
#[derive(Debug)]
pub struct Client {
    reader: BufReader<UnixStream>,
    path: PathBuf,
}

/// A request was not answered, or answered with an error.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum ClientError {
    #[error("{}: no instance listens there; is `shadeline run` running with this `system.socket`?", .0.display())]
    NotRunning(PathBuf),
    #[error("{}: belongs to user {owner}, ignored: expected a socket of this user; `--socket` names one", path.display())]
    OfAnother { path: PathBuf, owner: u32 },
    #[error("{}: permission denied: expected the socket's owner or a member of its group", .0.display())]
    Permission(PathBuf),
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{}: the instance closed the connection before its answer was complete", .0.display())]
    HungUp(PathBuf),
    #[error("{}: the instance gave no answer; see its log", .0.display())]
    NoAnswer(PathBuf),
    #[error("{}: invalid answer ({reason}): does the instance have another version?", path.display())]
    Protocol { path: PathBuf, reason: String },
    #[error("{message}")]
    Refused { kind: ErrorKind, message: String },
}

/// The process of an instance. Another one that gets its number later is not mistaken for it.
#[derive(Debug)]
pub struct Process {
    /// Its number.
    pub pid: i32,
    handle: OwnedFd,
}

impl Process {
    /// Waits until it has ended; whether it has in that time.
    pub fn wait(&self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).ok();
            match poll(&mut [PollFd::new(&self.handle, PollFlags::IN)], left.as_ref()) {
                Err(Errno::INTR) => {}
                ready => return ready.is_ok_and(|ready| ready > 0),
            }
        }
    }
}

impl Client {
    /// Connects to the socket at `path`.
    pub fn connect(path: impl AsRef<Path>) -> Result<Client, ClientError> {
        let path = path.as_ref().to_owned();
        let stream = UnixStream::connect(&path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                ClientError::NotRunning(path.clone())
            }
            io::ErrorKind::PermissionDenied => ClientError::Permission(path.clone()),
            _ => ClientError::Io { path: path.clone(), source },
        })?;
        Ok(Client { reader: BufReader::new(stream), path })
    }

    /// Longest silence of the server before [`ClientError::Io`]; `None` (the default): any.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.reader.get_ref().set_read_timeout(timeout)
    }

    /// A handle that ends [`Client::stream`] from another thread or a signal's thread:
    /// `handle.shutdown(Shutdown::Both)`.
    pub fn hang_up_handle(&self) -> io::Result<UnixStream> {
        self.reader.get_ref().try_clone()
    }

    /// The process that listens; `None` where it cannot be seen, as from another PID namespace.
    pub fn process(&self) -> Option<Process> {
        let peer = sockopt::socket_peercred(self.reader.get_ref()).ok()?;
        let handle = pidfd_open(peer.pid, PidfdFlags::empty()).ok()?;
        Some(Process { pid: peer.pid.as_raw_nonzero().get(), handle })
    }

    /// Sends a request and gives each response but the last to `each`. After
    /// [`ControlFlow::Break`] the connection is closed: that is how a capture ends.
    pub fn stream(
        mut self,
        asked: &Asked,
        mut each: impl FnMut(Response) -> ControlFlow<()>,
    ) -> Result<(), ClientError> {
        self.send(asked)?;
        while let Some(response) = self.receive()? {
            if each(response).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Sends a request and gives its responses, without the last; at least one. Not for captures without limits.
    pub fn call(&mut self, asked: &Asked) -> Result<Vec<Response>, ClientError> {
        self.send(asked)?;
        let mut responses = Vec::new();
        while let Some(response) = self.receive()? {
            responses.push(response);
        }
        if responses.is_empty() {
            return Err(ClientError::NoAnswer(self.path.clone()));
        }
        Ok(responses)
    }

    fn send(&mut self, asked: &Asked) -> Result<(), ClientError> {
        let mut line = serde_json::to_vec(asked).map_err(|error| self.protocol(error))?;
        line.push(b'\n');
        match self.reader.get_ref().write_all(&line) {
            // A busy server says so and hangs up before it reads: its line is still there.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
                ) =>
            {
                Ok(())
            }
            result => result.map_err(|error| self.io(error)),
        }
    }

    fn receive(&mut self) -> Result<Option<Response>, ClientError> {
        let mut line = String::new();
        match self.reader.read_line(&mut line) {
            Ok(_) if line.ends_with('\n') => {}
            Ok(_) => return Err(ClientError::HungUp(self.path.clone())),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                return Err(ClientError::HungUp(self.path.clone()));
            }
            Err(error) => return Err(self.io(error)),
        }
        match serde_json::from_str(&line).map_err(|error| self.protocol(error))? {
            Response::End => Ok(None),
            Response::Error { kind, message } => Err(ClientError::Refused { kind, message }),
            response => Ok(Some(response)),
        }
    }

    fn io(&self, source: io::Error) -> ClientError {
        ClientError::Io { path: self.path.clone(), source }
    }

    fn protocol(&self, error: serde_json::Error) -> ClientError {
        ClientError::Protocol { path: self.path.clone(), reason: error.to_string() }
    }
}
