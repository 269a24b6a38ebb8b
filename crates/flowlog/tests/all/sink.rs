//! Where lines go, and what becomes of them where nothing takes them.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::{Duration, Instant};

use flowlog::sink::{Counters, Options, Sink, Target};
use testkit::{Scratch, wait_until};

const LONG: Duration = Duration::from_secs(20);

fn options() -> Options {
    Options { reconnect: Duration::from_millis(20), ..Default::default() }
}

fn file(path: &Path) -> Sink {
    Sink::start(Target::File(path.to_owned()), options()).unwrap()
}

fn wait(sink: &Sink, what: impl Fn(&Counters) -> bool) {
    let is_so = wait_until(LONG, || what(&sink.counters()));
    assert!(is_so, "{:?} {:?}", sink.counters(), sink.last_error());
}

#[test]
fn a_file_is_appended_to_and_rotated() {
    let scratch = Scratch::new();
    let path = scratch.write("eve.json", "0\n");
    let sink = file(&path);
    assert!(sink.push(b"1\n2\n"));
    wait(&sink, |c| c.written == 2);
    fs::rename(&path, scratch.join("eve.json.1")).unwrap();
    sink.push(b"3\n");
    sink.reopen();
    sink.push(b"4\n");
    let counters = sink.close();
    assert_eq!((counters.written, counters.opened, counters.errors), (4, 1, 0));
    assert_eq!(fs::read_to_string(scratch.join("eve.json.1")).unwrap(), "0\n1\n2\n3\n");
    assert_eq!(fs::read_to_string(&path).unwrap(), "4\n");
    assert!(!sink.push(b"5\n"));
    assert_eq!(sink.counters().lost_queue_full, 1);
}

#[test]
fn a_file_that_cannot_be_opened() {
    let scratch = Scratch::new();
    let path = scratch.join("missing/eve.json");
    assert!(Sink::start(Target::File(path), options()).is_err());
    // Root may write into a folder that is read-only, so the folder is one where nobody may.
    let result = Sink::start(Target::File("/proc/eve.json".into()), options());
    assert!(result.is_err());
}

/// The old file stays in use where the new one cannot be opened.
#[test]
fn a_file_that_cannot_be_opened_again() {
    let scratch = Scratch::new();
    let folder = scratch.join("log");
    fs::create_dir(&folder).unwrap();
    let path = folder.join("eve.json");
    let sink = file(&path);
    sink.push(b"1\n");
    wait(&sink, |c| c.written == 1);
    let moved = scratch.join("moved");
    fs::rename(&folder, &moved).unwrap();
    sink.reopen();
    sink.push(b"2\n");
    let counters = sink.close();
    assert_eq!((counters.written, counters.opened, counters.errors), (2, 0, 1));
    assert!(sink.last_error().unwrap().contains("eve.json"));
    assert_eq!(fs::read_to_string(moved.join("eve.json")).unwrap(), "1\n2\n");
}

#[test]
fn a_full_disk_loses_lines_and_counts_them() {
    let sink = file(Path::new("/dev/full"));
    sink.push(b"1\n2\n");
    wait(&sink, |c| c.lost_write == 2);
    sink.push(b"3\n");
    let counters = sink.close();
    assert_eq!((counters.written, counters.lost_write, counters.errors), (0, 3, 2));
}

/// A socket that nobody reads: the caller goes on, the end waits for the time that it is given.
#[test]
fn a_reader_that_stalls_never_blocks_the_caller() {
    let scratch = Scratch::new();
    let path = scratch.join("eve.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let linger = Duration::from_millis(400);
    let options = Options { capacity: 1 << 16, linger, ..options() };
    let sink = Sink::start(Target::Unix(path), options).unwrap();
    let (stalled, _) = listener.accept().unwrap();
    let line = [vec![b'x'; 999], vec![b'\n']].concat();
    let (mut pushed, mut room) = (0, Instant::now());
    // The socket and the queue are full when nothing was taken for a time.
    while room.elapsed() < Duration::from_millis(300) {
        let start = Instant::now();
        if sink.push(&line) {
            room = Instant::now();
        }
        pushed += 1;
        assert!(start.elapsed() < Duration::from_secs(5));
    }
    let start = Instant::now();
    let counters = sink.close();
    assert!(start.elapsed() < Duration::from_secs(5));
    let lost = counters.lost_queue_full + counters.lost_write + counters.lost_not_connected;
    assert!(counters.lost_queue_full > 0, "{counters:?}");
    assert!(counters.lost_write + counters.lost_not_connected > 0, "{counters:?}");
    assert_eq!(counters.written + lost, pushed);
    drop(stalled);
}

#[test]
fn a_socket_is_connected_again() {
    let scratch = Scratch::new();
    let path = scratch.join("eve.sock");
    let sink = Sink::start(Target::Unix(path.clone()), options()).unwrap();
    sink.push(b"nobody\nlistens\n");
    wait(&sink, |c| c.lost_not_connected == 2);

    let listener = UnixListener::bind(&path).unwrap();
    wait(&sink, |c| c.opened == 1);
    sink.push(b"1\n2\n");
    let (stream, _) = listener.accept().unwrap();
    let mut read = BufReader::new(stream);
    let mut line = String::new();
    read.read_line(&mut line).unwrap();
    read.read_line(&mut line).unwrap();
    assert_eq!(line, "1\n2\n");

    // The reader goes, and comes back.
    drop((read, listener));
    fs::remove_file(&path).unwrap();
    let is_lost = wait_until(LONG, || {
        sink.push(b"lost\n");
        sink.counters().lost_not_connected > 2
    });
    assert!(is_lost);
    let listener = UnixListener::bind(&path).unwrap();
    wait(&sink, |c| c.opened == 2);
    sink.push(b"3\n");
    let (mut stream, _) = listener.accept().unwrap();
    assert_eq!(sink.close().lost_write, 0);
    drop(sink);
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.ends_with("3\n") && text.lines().all(|l| l == "lost" || l == "3"), "{text}");
}

/// A reader that goes in the middle of a line: the next one gets whole lines.
#[test]
fn a_line_is_never_split_between_connections() {
    let scratch = Scratch::new();
    let path = scratch.join("eve.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let sink = Sink::start(Target::Unix(path.clone()), options()).unwrap();
    let (first, _) = listener.accept().unwrap();
    let line = [vec![b'x'; 99_999], vec![b'\n']].concat();
    for _ in 0..20 {
        assert!(sink.push(&line));
    }
    std::thread::sleep(Duration::from_millis(100));
    drop(first);
    let (mut second, _) = listener.accept().unwrap();
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        second.read_to_end(&mut bytes).unwrap();
        bytes
    });
    let counters = sink.close();
    drop(sink);
    let bytes = reader.join().unwrap();
    assert!(!bytes.is_empty() && bytes.chunks(line.len()).all(|chunk| chunk == line));
    assert_eq!(counters.written + counters.lost_not_connected + counters.lost_write, 20);
}

fn pipe(path: &Path) {
    let made = std::process::Command::new("mkfifo").arg(path).status().expect("mkfifo");
    assert!(made.success());
}

/// A named pipe without a reader holds nobody up: lines wait for it, and a later reader begins with a whole line.
#[test]
fn a_named_pipe_waits_for_its_reader() {
    let folder = Scratch::new();
    let path = folder.join("events");
    pipe(&path);
    let begin = Instant::now();
    let sink = Sink::start(Target::File(path.clone()), options()).unwrap();
    assert!(sink.is_waiting() && begin.elapsed() < Duration::from_secs(1));
    assert!(sink.push(b"one\ntwo\n"));
    std::thread::sleep(Duration::from_millis(100));
    assert!(sink.is_waiting() && sink.counters().written == 0 && sink.last_error().is_none());
    let read = |lines: usize| {
        let mut reader = BufReader::new(fs::File::open(&path).unwrap());
        let mut all = Vec::new();
        for _ in 0..lines {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            all.push(line);
        }
        all
    };
    assert_eq!(read(2), ["one\n", "two\n"]);
    wait(&sink, |counters| counters.written == 2);
    // That reader has gone: the write that finds out is done again for the next one.
    assert!(sink.push(b"three\n"));
    assert!(wait_until(LONG, || sink.is_waiting()));
    assert!(sink.push(b"four\n"));
    assert_eq!(read(2), ["three\n", "four\n"]);
    wait(&sink, |counters| counters.written == 4);
    let counters = sink.close();
    assert_eq!((counters.written, counters.opened), (4, 2));
    assert_eq!(counters.lost_not_connected + counters.lost_write + counters.lost_queue_full, 0);
}

#[test]
fn lines_for_a_named_pipe_that_nobody_reads_are_counted() {
    let folder = Scratch::new();
    let path = folder.join("events");
    pipe(&path);
    let options = Options { capacity: 64, linger: Duration::from_millis(400), ..options() };
    let sink = Sink::start(Target::File(path), options).unwrap();
    let pushed = (0..100).filter(|_| sink.push(b"a line\n")).count() as u64;
    assert!(pushed < 100);
    let counters = sink.close();
    assert_eq!((counters.written, counters.lost_not_connected), (0, pushed));
    assert_eq!(counters.lost_queue_full, 100 - pushed);
    assert!(sink.last_error().is_some_and(|error| error.contains("no reader")));
}
