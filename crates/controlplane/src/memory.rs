//! Memory for what is about to be built: asked for first, so that a reload is refused where it would end the program.
//!
//! Allocations cannot fail in Rust without ending the process, or the thread that makes them. What knows how much it needs
//! asks here before it begins. Compared are the limits that the system enforces: `RLIMIT_AS` (address space, which a table
//! reserves and does not use), the memory of the machine, and `memory.max` of the control group and those above it. Nothing
//! is reserved, and others take memory, too: the answer is no promise.

use std::fs;
use std::path::Path;

/// What something needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Need {
    /// Memory that is written.
    pub bytes: u64,
    /// Address space beside it.
    pub reserved_bytes: u64,
}

/// What is left of a limit.
#[derive(Debug, PartialEq, Eq)]
struct Room {
    /// The limit in words.
    limit: &'static str,
    bytes: u64,
    /// Whether address space counts.
    of_addresses: bool,
}

/// Whether there is memory for `what`.
///
/// # Errors
/// There is not; in words: for what, how much, and which limit is in the way.
pub fn ask_for(need: Need, what: &str) -> Result<(), String> {
    compare(need, what, &rooms(Path::new("/")))
}

fn compare(need: Need, what: &str, rooms: &[Room]) -> Result<(), String> {
    for room in rooms {
        let bytes = need.bytes + if room.of_addresses { need.reserved_bytes } else { 0 };
        if bytes > room.bytes {
            return Err(format!(
                "not enough memory for {what}: about {} MB needed, {} MB left of {}",
                bytes.div_ceil(1 << 20),
                room.bytes >> 20,
                room.limit
            ));
        }
    }
    Ok(())
}

/// What is left of each limit that can be read; `root` has `/proc` and `/sys`.
fn rooms(root: &Path) -> Vec<Room> {
    let text = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
    let mut rooms = Vec::new();
    let addresses = address_space(&text("proc/self/limits"), &text("proc/self/status"));
    let limit = "the address space limit (`ulimit -v`, `LimitAS=`)";
    rooms.extend(addresses.map(|bytes| Room { limit, bytes, of_addresses: true }));
    let machine = kilobytes(&text("proc/meminfo"), "MemAvailable:");
    let limit = "the memory of this machine";
    rooms.extend(machine.map(|bytes| Room { limit, bytes, of_addresses: false }));
    let group = text("proc/self/cgroup");
    let group = group.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let mut group = Some(Path::new(group));
    while let Some(path) = group {
        let folder = root.join("sys/fs/cgroup").join(path);
        let file = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_default();
        let left = of_group(&file("memory.max"), &file("memory.current"), &file("memory.stat"));
        let limit = "the control group's `memory.max` (`MemoryMax=`)";
        rooms.extend(left.map(|bytes| Room { limit, bytes, of_addresses: false }));
        group = path.parent();
    }
    rooms
}

/// What is left of `RLIMIT_AS`; `None` without one.
fn address_space(limits: &str, status: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max address space"))?;
    let limit: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(limit.saturating_sub(kilobytes(status, "VmSize:")?))
}

/// What is left of a group's limit: pages of files that are not in use make room.
fn of_group(max: &str, current: &str, stat: &str) -> Option<u64> {
    let max: u64 = max.trim().parse().ok()?;
    let current: u64 = current.trim().parse().ok()?;
    let files = |name: &str| {
        let line = stat.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|n| n.trim().parse::<u64>().ok()).unwrap_or(0)
    };
    let idle = files("inactive_file ") + files("active_file ");
    Some(max.saturating_sub(current.saturating_sub(idle)))
}

/// The number of a line `NAME: 123 kB`, in bytes.
fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_of_each_limit() {
        let root = std::env::temp_dir().join(format!("sl-memory-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        assert_eq!(rooms(&root), []);
        write(
            "proc/self/limits",
            "Limit                     Soft Limit           Hard Limit           Units     \n\
             Max cpu time              unlimited            unlimited            seconds   \n\
             Max address space         41943040             unlimited            bytes     \n",
        );
        write("proc/self/status", "Name:\tx\nVmPeak:\t 30000 kB\nVmSize:\t   30720 kB\n");
        write("proc/meminfo", "MemTotal: 65536 kB\nMemFree: 1 kB\nMemAvailable:   20480 kB\n");
        write("proc/self/cgroup", "1:name=x:/other\n0::/a/b\n");
        write("sys/fs/cgroup/a/b/memory.max", "max\n");
        write("sys/fs/cgroup/a/memory.max", "33554432\n");
        write("sys/fs/cgroup/a/memory.current", "31457280\n");
        write(
            "sys/fs/cgroup/a/memory.stat",
            "anon 5\ninactive_file 1048576\nactive_file 2097152\n",
        );
        let rooms = rooms(&root);
        let bytes: Vec<_> = rooms.iter().map(|r| (r.bytes >> 20, r.of_addresses)).collect();
        assert_eq!(bytes, [(10, true), (20, false), (5, false)]);

        let need =
            |mb: u64, reserved: u64| Need { bytes: mb << 20, reserved_bytes: reserved << 20 };
        assert_eq!(compare(need(5, 5), "it", &rooms), Ok(()));
        let text = compare(need(5, 6), "it", &rooms).unwrap_err();
        assert!(text.contains("for it: about 11 MB needed, 10 MB left") && text.contains("ulimit"));
        let text = compare(need(6, 0), "it", &rooms).unwrap_err();
        assert!(text.contains("5 MB left") && text.contains("memory.max"), "{text}");
        assert_eq!(compare(need(1 << 20, 0), "it", &[]), Ok(()));
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn this_machine_has_memory() {
        assert!(rooms(Path::new("/")).iter().any(|room| room.bytes > 1 << 20));
    }
}
