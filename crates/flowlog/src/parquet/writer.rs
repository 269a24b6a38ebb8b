//! A table that a thread of its own writes, for callers that never wait for a disk.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use stream::FlowRecord;

use super::{Options, Table};
use crate::queue::{Queue, Turn};

/// Records that may wait for the thread: about 3 MB.
const CAPACITY: usize = 8192;
/// How long the end waits for the last rows and the index.
const LINGER: Duration = Duration::from_secs(60);
/// How long the thread sleeps while nothing comes.
const WAIT: Duration = Duration::from_secs(60);

/// What became of records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Rows in row groups that were written.
    pub written: u64,
    /// Records lost because the queue was full, or the writer was closed.
    pub lost_queue_full: u64,
    /// Records lost because the file could not be written.
    pub lost_write: u64,
}

struct Shared {
    queue: Queue<FlowRecord>,
    written: AtomicU64,
    lost_queue_full: AtomicU64,
    lost_write: AtomicU64,
    is_broken: AtomicBool,
    last_error: Mutex<Option<String>>,
}

impl Shared {
    fn failed(&self, error: &io::Error) {
        self.is_broken.store(true, Ordering::Relaxed);
        let mut last = self.last_error.lock().unwrap_or_else(PoisonError::into_inner);
        // The first one is the cause.
        last.get_or_insert_with(|| error.to_string());
    }
}

/// Takes records and writes them on a thread of its own. When it is dropped, it waits as [`Writer::close`] does.
pub struct Writer {
    shared: Arc<Shared>,
    /// Disconnected when the thread has ended.
    ended: Mutex<Receiver<()>>,
}

impl Writer {
    /// Makes the file and starts the thread.
    ///
    /// # Errors
    /// As of [`Table::create`], or there is no further thread.
    pub fn start(path: &Path, options: Options) -> io::Result<Writer> {
        let table = Table::create(path, options)?;
        let shared = Arc::new(Shared {
            queue: Queue::new(CAPACITY),
            written: AtomicU64::new(0),
            lost_queue_full: AtomicU64::new(0),
            lost_write: AtomicU64::new(0),
            is_broken: AtomicBool::new(false),
            last_error: Mutex::default(),
        });
        let (alive, ended) = sync_channel::<()>(0);
        let of_thread = Arc::clone(&shared);
        let body = move || {
            run(&of_thread, table);
            drop(alive);
        };
        thread::Builder::new().name("parquet".into()).spawn(body)?;
        Ok(Writer { shared, ended: Mutex::new(ended) })
    }

    /// Hands over a record. Never waits; false if it is lost because there is no room.
    pub fn push(&self, record: &FlowRecord) -> bool {
        let is_taken = self.shared.queue.push(std::slice::from_ref(record));
        if !is_taken {
            self.shared.lost_queue_full.fetch_add(1, Ordering::Relaxed);
        }
        is_taken
    }

    /// The same, and waits for room.
    pub fn push_in_time(&self, record: &FlowRecord) -> bool {
        let is_taken = self.shared.queue.push_in_time(std::slice::from_ref(record), || false);
        if !is_taken {
            self.shared.lost_queue_full.fetch_add(1, Ordering::Relaxed);
        }
        is_taken
    }

    /// What became of records so far.
    pub fn counters(&self) -> Counters {
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counters {
            written: value(&self.shared.written),
            lost_queue_full: value(&self.shared.lost_queue_full),
            lost_write: value(&self.shared.lost_write),
        }
    }

    /// The error that ended the writing.
    pub fn last_error(&self) -> Option<String> {
        let last = self.shared.last_error.lock();
        last.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes no further records, and waits up to a minute until all rows and the index of the file are written. The file
    /// can be read then.
    pub fn close(&self) -> Counters {
        self.shared.queue.close();
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if ended.recv_timeout(LINGER) == Err(RecvTimeoutError::Timeout) {
            self.shared.failed(&io::ErrorKind::TimedOut.into());
        }
        self.counters()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.close();
    }
}

fn run(shared: &Shared, mut table: Table) {
    let mut records = Vec::new();
    let mut taken = 0;
    loop {
        if shared.queue.take(&mut records, WAIT) == Turn::End {
            break;
        }
        for record in &records {
            taken += 1;
            if let Err(error) = table.write(record) {
                shared.failed(&error);
            }
        }
        shared.written.store(table.rows_written(), Ordering::Relaxed);
        if shared.is_broken.load(Ordering::Relaxed) {
            shared.lost_write.store(taken, Ordering::Relaxed);
        }
    }
    // A file without its index is nothing.
    match table.close() {
        Ok(rows) => shared.written.store(rows, Ordering::Relaxed),
        Err(error) => {
            shared.failed(&error);
            shared.written.store(0, Ordering::Relaxed);
            shared.lost_write.store(taken, Ordering::Relaxed);
        }
    }
}
