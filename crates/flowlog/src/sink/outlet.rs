//! The ends of a sink: a file, a named pipe, and a connection to a Unix socket. Run by the thread of the sink.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use super::{Patience, Tally};

/// How long a write to a socket waits before the thread looks whether the sink is closed.
const WRITE_WAIT: Duration = Duration::from_millis(100);

/// Where the thread of a sink writes.
pub(super) trait Outlet {
    /// Writes lines, or counts them as lost.
    fn write(&mut self, lines: &[u8], patience: &Patience<'_>, tally: &Tally);
    /// Opens again by the name.
    fn reopen(&mut self, tally: &Tally);
    /// Nothing was pushed for a time.
    fn idle(&mut self, tally: &Tally);
}

/// Lines end with a newline, which nothing else in them is.
pub(super) fn count_lines(lines: &[u8]) -> u64 {
    lines.iter().filter(|byte| **byte == b'\n').count() as u64
}

/// A file or standard output.
pub(super) struct FileOutlet {
    path: PathBuf,
    file: File,
    /// The last write ended within a line, or the file did when it was opened.
    is_torn: bool,
}

impl FileOutlet {
    pub(super) fn open(path: PathBuf) -> io::Result<Self> {
        let file = open(&path)?;
        let is_torn = ends_within_line(&path);
        Ok(Self { path, file, is_torn })
    }

    /// Writes lines; on an error `lines` are those that were not written as a whole, the first one perhaps in part.
    fn write_all(&mut self, lines: &mut &[u8]) -> io::Result<()> {
        // The rest of a line that a full disk cut is lost; what follows is lines again.
        if self.is_torn {
            self.file.write_all(b"\n")?;
            self.is_torn = false;
        }
        while !lines.is_empty() {
            match self.file.write(lines) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => {
                    self.is_torn = lines[count - 1] != b'\n';
                    *lines = &lines[count..];
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<File> {
    match files::is_standard(path) {
        true => files::output::create(path),
        false => files::output::append(path),
    }
}

/// Whether an earlier run left half a line at the end of a file, on a full disk or when it was killed. What is no regular
/// file, or may not be read, has no such end.
fn ends_within_line(path: &Path) -> bool {
    let is_regular = |path: &Path| std::fs::metadata(path).is_ok_and(|data| data.is_file());
    if files::is_standard(path) || !is_regular(path) {
        return false;
    }
    let last = || -> io::Result<u8> {
        let file = File::open(path)?;
        let mut byte = [b'\n'];
        if let Some(at) = file.metadata()?.len().checked_sub(1) {
            file.read_exact_at(&mut byte, at)?;
        }
        Ok(byte[0])
    };
    last().is_ok_and(|byte| byte != b'\n')
}

impl Outlet for FileOutlet {
    fn write(&mut self, lines: &[u8], _: &Patience<'_>, tally: &Tally) {
        if lines.is_empty() {
            return;
        }
        let mut rest = lines;
        if let Err(error) = self.write_all(&mut rest) {
            tally.failed(&files::output::name(&self.path), &error);
        }
        let lost = count_lines(rest);
        Tally::add(&tally.lost_write, lost);
        Tally::add(&tally.written, count_lines(lines) - lost);
    }

    fn reopen(&mut self, tally: &Tally) {
        match open(&self.path) {
            Ok(file) => {
                (self.file, self.is_torn) = (file, ends_within_line(&self.path));
                Tally::add(&tally.opened, 1);
            }
            Err(error) => tally.failed(&files::output::name(&self.path), &error),
        }
    }

    fn idle(&mut self, _: &Tally) {}
}

/// A named pipe. Nothing waits for its reader but this thread: it is opened without blocking (`open(2)` fails with `ENXIO` as
/// long as there is none), again and again, and meanwhile lines wait in the queue.
pub(super) struct PipeOutlet {
    path: PathBuf,
    pipe: Option<Pipe>,
}

/// How often a pipe is opened again.
const PIPE_WAIT: Duration = Duration::from_millis(20);

impl PipeOutlet {
    /// Whether a path is one of a named pipe.
    pub(super) fn is_pipe(path: &Path) -> bool {
        let is_fifo = |data: std::fs::Metadata| data.file_type().is_fifo();
        !files::is_standard(path) && std::fs::metadata(path).is_ok_and(is_fifo)
    }

    /// # Errors
    /// It cannot be opened for another reason than that there is no reader.
    pub(super) fn open(path: PathBuf, tally: &Tally) -> io::Result<Self> {
        let pipe = Pipe::open(&path)?;
        let own = Self { path, pipe };
        own.note(tally);
        Ok(own)
    }

    /// Says whether it waits.
    fn note(&self, tally: &Tally) {
        tally.waits.store(self.pipe.is_none(), Ordering::Relaxed);
    }

    fn ensure(&mut self, tally: &Tally) {
        if self.pipe.is_some() {
            return;
        }
        match Pipe::open(&self.path) {
            Ok(pipe) => {
                Tally::add(&tally.opened, pipe.is_some().into());
                self.pipe = pipe;
            }
            Err(error) => tally.failed(&files::output::name(&self.path), &error),
        }
        self.note(tally);
    }
}

impl Outlet for PipeOutlet {
    fn write(&mut self, lines: &[u8], patience: &Patience<'_>, tally: &Tally) {
        let mut done = 0;
        while done < lines.len() {
            self.ensure(tally);
            let is_over = patience.is_over();
            let Some(pipe) = self.pipe.as_mut().filter(|_| !is_over) else {
                if is_over {
                    let lost = count_lines(&lines[done..]);
                    let counter = match self.pipe {
                        Some(_) => &tally.lost_write,
                        None => &tally.lost_not_connected,
                    };
                    tally.failed(&files::output::name(&self.path), &no_reader());
                    return Tally::add(counter, lost);
                }
                std::thread::sleep(PIPE_WAIT);
                continue;
            };
            match write_all(pipe, &lines[done..], patience) {
                Ok(()) => return Tally::add(&tally.written, count_lines(&lines[done..])),
                Err((count, error)) => {
                    // The next reader begins with a whole line.
                    let start = lines[done..done + count].iter().rposition(|byte| *byte == b'\n');
                    let whole = start.map_or(0, |at| at + 1);
                    Tally::add(&tally.written, count_lines(&lines[done..done + whole]));
                    done += whole;
                    match error.kind() {
                        // Its reader has gone: it waits for the next one.
                        ErrorKind::BrokenPipe => {}
                        _ => tally.failed(&files::output::name(&self.path), &error),
                    }
                    self.pipe = None;
                    self.note(tally);
                }
            }
        }
    }

    fn reopen(&mut self, tally: &Tally) {
        self.pipe = None;
        self.ensure(tally);
    }

    fn idle(&mut self, tally: &Tally) {
        self.ensure(tally);
    }
}

fn no_reader() -> io::Error {
    io::Error::new(ErrorKind::NotConnected, "the named pipe has no reader, or a slow one")
}

/// The end of a named pipe that has a reader.
struct Pipe(File);

impl Pipe {
    /// `None` without a reader.
    fn open(path: &Path) -> io::Result<Option<Self>> {
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(file) => Ok(Some(Self(File::from(file)))),
            Err(rustix::io::Errno::NXIO) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl Write for Pipe {
    /// Waits for room, but not for long.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.write(bytes) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            done => return done,
        }
        let wait = Timespec::try_from(WRITE_WAIT).map_err(io::Error::other)?;
        poll(&mut [PollFd::new(&self.0, PollFlags::OUT)], Some(&wait))?;
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// A connection to a Unix socket, while there is one.
pub(super) struct UnixOutlet {
    path: PathBuf,
    reconnect: Duration,
    stream: Option<UnixStream>,
    attempted: Option<Instant>,
}

impl UnixOutlet {
    pub(super) fn new(path: PathBuf, reconnect: Duration) -> Self {
        Self { path, reconnect, stream: None, attempted: None }
    }

    /// Connects unless there is a connection or an attempt was made a moment ago.
    fn ensure(&mut self, tally: &Tally) {
        let is_early = self.attempted.is_some_and(|at| at.elapsed() < self.reconnect);
        if self.stream.is_some() || is_early {
            return;
        }
        self.attempted = Some(Instant::now());
        match connected(&self.path) {
            Ok(stream) => {
                self.stream = Some(stream);
                Tally::add(&tally.opened, 1);
            }
            Err(error) => tally.failed(&self.path.to_string_lossy(), &error),
        }
    }
}

/// Connects at once or not at all: a listener whose queue of connections is full is an error, too.
fn connected(path: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(WRITE_WAIT))?;
    Ok(stream)
}

impl Outlet for UnixOutlet {
    fn write(&mut self, lines: &[u8], patience: &Patience<'_>, tally: &Tally) {
        let mut done = 0;
        while done < lines.len() {
            if patience.is_over() {
                Tally::add(&tally.lost_write, count_lines(&lines[done..]));
                return;
            }
            self.ensure(tally);
            let Some(stream) = self.stream.as_mut() else {
                Tally::add(&tally.lost_not_connected, count_lines(&lines[done..]));
                return;
            };
            match write_all(stream, &lines[done..], patience) {
                Ok(()) => {
                    Tally::add(&tally.written, count_lines(&lines[done..]));
                    return;
                }
                Err((count, error)) => {
                    // The next connection begins with a whole line.
                    let start = lines[done..done + count].iter().rposition(|byte| *byte == b'\n');
                    let whole = start.map_or(0, |at| at + 1);
                    Tally::add(&tally.written, count_lines(&lines[done..done + whole]));
                    done += whole;
                    tally.failed(&self.path.to_string_lossy(), &error);
                    self.stream = None;
                }
            }
        }
    }

    fn reopen(&mut self, tally: &Tally) {
        (self.stream, self.attempted) = (None, None);
        self.ensure(tally);
    }

    fn idle(&mut self, tally: &Tally) {
        self.ensure(tally);
    }
}

/// Writes everything, however long the reader takes, unless the end has waited long enough. On an error the number of
/// bytes that were written.
fn write_all(
    stream: &mut impl Write,
    bytes: &[u8],
    patience: &Patience<'_>,
) -> Result<(), (usize, io::Error)> {
    let mut done = 0;
    while done < bytes.len() {
        match stream.write(&bytes[done..]) {
            Ok(0) => return Err((done, ErrorKind::WriteZero.into())),
            Ok(count) => done += count,
            Err(error) => match error.kind() {
                ErrorKind::Interrupted => {}
                ErrorKind::WouldBlock | ErrorKind::TimedOut if !patience.is_over() => {}
                _ => return Err((done, error)),
            },
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::OwnedFd;

    use super::*;

    /// A file that takes a part and then nothing for a time, as a full disk does: a socket that does not wait.
    #[test]
    fn a_line_that_was_cut_does_not_spoil_the_next_one() {
        let (socket, mut other) = UnixStream::pair().unwrap();
        socket.set_nonblocking(true).unwrap();
        other.set_nonblocking(true).unwrap();
        let file = File::from(OwnedFd::from(socket));
        let mut outlet = FileOutlet { path: "eve.json".into(), file, is_torn: false };
        let patience = Patience::new(&|| None, Duration::ZERO);
        let tally = Tally::default();
        let count = 3000;
        let lines: Vec<u8> =
            (0..count).flat_map(|at| format!("{at:0>998}\n").into_bytes()).collect();
        outlet.write(&lines, &patience, &tally);
        assert!(outlet.is_torn);
        // Still full.
        outlet.write(b"lost\n", &patience, &tally);
        let mut text = String::new();
        let mut bytes = Vec::new();
        assert!(other.read_to_end(&mut bytes).is_err());
        outlet.write(b"next\n", &patience, &tally);
        drop(outlet);
        other.read_to_end(&mut bytes).unwrap();
        bytes.as_slice().read_to_string(&mut text).unwrap();
        let whole = text.lines().filter(|line| line.len() == 998).count() as u64;
        let rest: Vec<_> = text.lines().filter(|line| line.len() != 998).collect();
        assert!(matches!(rest[..], [_, "next"]), "{rest:?}");
        assert_eq!(tally.written.load(Ordering::Relaxed), whole + 1);
        assert_eq!(tally.lost_write.load(Ordering::Relaxed), count - whole + 1);
        assert_eq!(tally.errors.load(Ordering::Relaxed), 2);
    }

    /// What a run that ended within a line leaves behind costs the next one nothing, also after a rotation.
    #[test]
    fn half_a_line_of_an_earlier_run_does_not_take_the_first_one() {
        let scratch = testkit::Scratch::new();
        let path = scratch.join("eve.json");
        let patience = Patience::new(&|| None, Duration::ZERO);
        let tally = Tally::default();
        std::fs::write(&path, "whole\nha").unwrap();
        let mut outlet = FileOutlet::open(path.clone()).unwrap();
        outlet.write(b"first\n", &patience, &tally);
        outlet.write(b"second\n", &patience, &tally);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "whole\nha\nfirst\nsecond\n");
        std::fs::write(&path, "cut").unwrap();
        outlet.reopen(&tally);
        outlet.write(b"third\n", &patience, &tally);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "cut\nthird\n");
        for whole in ["", "line\n"] {
            std::fs::write(&path, whole).unwrap();
            let mut outlet = FileOutlet::open(path.clone()).unwrap();
            outlet.write(b"next\n", &patience, &tally);
            assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{whole}next\n"));
        }
    }
}
