//! Waiting until routing daemons have read what the kernel announced.
//!
//! zebra up to FRR 9.0 reads links on one thread and addresses on another. If a new interface gets an address
//! before the first thread has read about the interface, zebra looks for the interface, does not find it and
//! discards the address for good: the twin of a restarted router has no address there, and BGP stays down
//! (FRRouting/frr#13288, #13630). So twins are made first, then this module waits until every process that
//! listens to links has read its socket, and only then the twins get their addresses.
//!
//! The kernel says in `/proc/net/netlink` how many bytes wait in each socket:
//!
//! ```text
//! sk               Eth Pid        Groups   Rmem     Wmem     Dump  Locks    Drops    Inode
//! 00000000c3bd5ba3 0   2871       000405d1 768      0        0     2        0        24242
//!                  │              │        └ bytes that wait to be read
//!                  │              └ groups that it listens to, bit 0: links
//!                  └ protocol, 0: routing
//! ```
//!
//! A socket that was empty once has been read up to that moment: what comes later does not matter, so a daemon
//! under a flood of routes is not waited for longer than needed. A process that is stopped never reads. So the
//! wait has a limit, and [`Unread`] remembers who is left.
//!
//! Threads: reads the sockets of the calling thread's network namespace.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::time::{Duration, Instant};

const ROUTING: &str = "0";
/// `RTNLGRP_LINK`.
const LINKS: u32 = 1;
/// Between two looks.
const STEP: Duration = Duration::from_millis(1);

/// Sockets that have not been read since a moment in the past: by inode, the port that each has in netlink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unread(BTreeMap<u64, u32>);

impl Unread {
    /// The sockets with unread messages about links, as of now.
    ///
    /// # Errors
    ///
    /// Where `/proc` is not mounted.
    pub fn now() -> io::Result<Unread> {
        Ok(Unread(sockets(&read()?)))
    }

    /// Looks again; whether all have been read.
    ///
    /// # Errors
    ///
    /// As [`Self::now`].
    pub fn is_read(&mut self) -> io::Result<bool> {
        if !self.0.is_empty() {
            let unread = sockets(&read()?);
            self.0.retain(|inode, _| unread.contains_key(inode));
        }
        Ok(self.0.is_empty())
    }

    /// The sockets of several; `None` if there are none.
    pub fn join(all: impl IntoIterator<Item = Unread>) -> Option<Unread> {
        let all: BTreeMap<_, _> = all.into_iter().flat_map(|unread| unread.0).collect();
        (!all.is_empty()).then_some(Unread(all))
    }

    /// The processes that have not read, for the log.
    ///
    /// A socket has the number of its process as its port, if it is the first of the process and the process left
    /// the choice to the kernel.
    pub fn names(&self) -> Vec<String> {
        let name = |port: &u32| match fs::read_to_string(format!("/proc/{port}/comm")) {
            Ok(name) => format!("{} (process {port})", name.trim()),
            Err(_) => format!("a process (netlink port {port})"),
        };
        self.0.values().map(name).collect()
    }

    /// Waits until all have been read, for so long at most; whether they have been.
    ///
    /// # Errors
    ///
    /// As [`Self::now`].
    pub fn wait(&mut self, limit: Duration) -> io::Result<bool> {
        let deadline = Instant::now() + limit;
        loop {
            if self.is_read()? {
                return Ok(true);
            }
            if Instant::now() >= deadline {
                return Ok(false);
            }
            std::thread::sleep(STEP);
        }
    }
}

/// Each thread may have a network namespace of its own.
fn read() -> io::Result<String> {
    fs::read_to_string("/proc/thread-self/net/netlink")
}

/// The inodes and ports of the sockets that listen to links and hold something unread.
fn sockets(table: &str) -> BTreeMap<u64, u32> {
    let socket = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        let protocol = fields.next()?;
        let port = fields.next()?.parse().ok()?;
        let groups = u32::from_str_radix(fields.next()?, 16).ok()?;
        let waiting: u64 = fields.next()?.parse().ok()?;
        let inode = fields.nth(4)?.parse().ok()?;
        (protocol == ROUTING && groups & LINKS != 0 && waiting > 0).then_some((inode, port))
    };
    table.lines().skip(1).filter_map(socket).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sockets_that_listen_to_links_and_hold_something_count() {
        let table = "\
            sk               Eth Pid        Groups   Rmem     Wmem     Dump  Locks    Drops    Inode\n\
            00000000c3bd5ba3 0   2871       000405d1 768      0        0     2        0        24242\n\
            0000000000000000 0   2872       00000111 0        0        0     2        0        24243\n\
            0000000000000000 0   2873       00000110 512      0        0     2        0        24244\n\
            0000000000000000 15  2874       00000001 512      0        0     2        0        24245\n\
            0000000000000000 0   0          00000000 0        0        0     2        0        6\n\
            0000000000000000 0\n";
        assert_eq!(sockets(table), BTreeMap::from([(24242, 2871)]));
        assert_eq!(sockets(""), BTreeMap::new());
    }
}
