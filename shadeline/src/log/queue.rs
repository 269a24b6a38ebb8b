//! Lines on their way to standard error, for threads that must not wait for whoever reads it.
//!
//! ```text
//!  threads that log ─push─▶ queue, at most BYTES ─▶ thread `log` ─write, waiting─▶ standard error
//!                     └─ full: the line is lost, and counted
//! ```
//!
//! A pipe that nobody reads holds the thread `log` and nothing else. When lines flow again, one of them says how many are
//! lost.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes of lines that may wait.
const BYTES: usize = 1 << 20;

/// See the head of this file.
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    /// A line is being written.
    is_writing: bool,
    /// Lines that were written.
    written: u64,
    /// Lines that were lost: all of them, and those that a line of the log has told of.
    lost: u64,
    told: u64,
}

impl Queue {
    pub(super) const fn new() -> Self {
        let state = State {
            lines: VecDeque::new(),
            bytes: 0,
            is_writing: false,
            written: 0,
            lost: 0,
            told: 0,
        };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Adds lines that belong together; they are lost if there is no room.
    pub(super) fn push(&self, lines: &[u8]) {
        let mut state = self.lock();
        if state.bytes + lines.len() > BYTES {
            state.lost += 1;
            return;
        }
        state.bytes += lines.len();
        state.lines.push_back(lines.to_vec());
        drop(state);
        self.changed.notify_all();
    }

    /// Lines that were lost so far.
    pub(super) fn lost(&self) -> u64 {
        self.lock().lost
    }

    /// Writes lines as they come, for ever. After those that were in time `tell` is called with the number of lines that
    /// were lost, to log it.
    pub(super) fn write_to(&self, mut out: impl Write, tell: impl Fn(u64)) -> ! {
        loop {
            let mut state = self.lock();
            if state.lines.is_empty() && state.told < state.lost {
                let lost = state.lost - state.told;
                state.told = state.lost;
                drop(state);
                tell(lost);
                continue;
            }
            let Some(lines) = state.lines.pop_front() else {
                drop(self.changed.wait(state).unwrap_or_else(PoisonError::into_inner));
                continue;
            };
            state.is_writing = true;
            drop(state);
            // A log that cannot be written is no reason to end.
            let _ = out.write_all(&lines).and_then(|()| out.flush());
            let mut state = self.lock();
            state.bytes -= lines.len();
            state.is_writing = false;
            state.written += 1;
            drop(state);
            self.changed.notify_all();
        }
    }

    /// Waits until all is written, for `patience` at most after each line that was written.
    pub(super) fn flush(&self, patience: Duration) {
        let mut state = self.lock();
        let (mut written, mut deadline) = (state.written, Instant::now() + patience);
        while !state.lines.is_empty() || state.is_writing {
            if state.written != written {
                (written, deadline) = (state.written, Instant::now() + patience);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The writing end for one event of the log.
pub(super) struct Pushes(pub(super) &'static Queue);

impl Write for Pushes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.push(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    /// A queue whose thread writes to a pipe; what it lost comes as a line.
    fn running() -> (&'static Queue, io::PipeReader) {
        let queue: &'static Queue = Box::leak(Box::new(Queue::new()));
        let (reads, writes) = io::pipe().expect("a pipe");
        std::thread::spawn(move || {
            queue.write_to(writes, |lost| queue.push(format!("lost {lost}\n").as_bytes()))
        });
        (queue, reads)
    }

    fn read(from: &mut io::PipeReader, len: usize) -> String {
        let mut bytes = vec![0; len];
        from.read_exact(&mut bytes).expect("lines");
        String::from_utf8(bytes).expect("text")
    }

    #[test]
    fn lines_are_written_in_order_and_flushed() {
        let (queue, mut reads) = running();
        queue.push(b"one\n");
        Pushes(queue).write_all(b"two\n").unwrap();
        queue.flush(Duration::from_secs(20));
        assert_eq!(read(&mut reads, 8), "one\ntwo\n");
        assert_eq!(queue.lost(), 0);
    }

    #[test]
    fn nobody_waits_for_a_reader_and_lines_that_are_lost_are_counted() {
        let (queue, mut reads) = running();
        let line = [&[b'x'; 1023][..], b"\n"].concat();
        let total = 4 * BYTES / line.len();
        (0..total).for_each(|_| queue.push(&line));
        let lost = queue.lost();
        // What the pipe holds, and the queue.
        assert!(lost > total as u64 / 2 && lost < total as u64, "{lost} of {total}");
        let begin = Instant::now();
        queue.flush(Duration::from_millis(20));
        assert!(begin.elapsed() < Duration::from_secs(10));
        // It flows again: everything that was in time, then how much was not.
        for _ in 0..total as u64 - lost {
            assert_eq!(read(&mut reads, line.len()).as_bytes(), line);
        }
        let said = format!("lost {lost}\n");
        assert_eq!(read(&mut reads, said.len()), said);
        queue.push(b"next\n");
        assert_eq!(read(&mut reads, 5), "next\n");
        assert_eq!(queue.lost(), lost);
    }
}
