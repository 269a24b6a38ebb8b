//! What a live start needs of the machine, as far as it can be seen without changing anything.

use std::fs::Metadata;
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use control::config::{Backend, Config, PortKind};
use control::kernel::Link;
use control::kernel::links;
use control::netlink::Client;
use controlplane::Findings;
use rustix::fs::{Access, access};

use crate::earlier;
use crate::privileges::{self, Account};

/// Capabilities by their number in `capability.h`.
const NET_ADMIN: (u32, &str) = (12, "CAP_NET_ADMIN");
const NET_RAW: (u32, &str) = (13, "CAP_NET_RAW");
const SYS_ADMIN: u32 = 21;
const BPF: (u32, &str) = (39, "CAP_BPF");

/// The interfaces of the machine, or why they are unknown.
pub(super) fn interfaces() -> Result<Vec<Link>, String> {
    let all = Client::route().and_then(|mut client| links::all(&mut client));
    all.map_err(|error| error.to_string())
}

/// Adds what is missing for a live start. Interfaces that do not exist were found with the configuration.
pub(super) fn check(
    config: &Config,
    file: &Path,
    interfaces: Result<&[Link], &String>,
    findings: &mut Findings,
) {
    let socket = &config.system.socket;
    let is_running = UnixStream::connect(socket).is_ok();
    let mut needs = Vec::new();
    let mut need = |capability| {
        if !needs.contains(&capability) {
            needs.push(capability);
        }
    };
    let with_xdp = Client::route().and_then(|mut client| links::with_xdp(&mut client));
    let with_xdp = with_xdp.unwrap_or_default();
    // Interfaces of the program's own.
    let mut taps: Vec<(&str, &str)> = Vec::new();
    for port in &config.ports {
        if let Some(twin) = &port.twin {
            taps.push((&port.name, twin));
            need(NET_ADMIN);
        }
        let PortKind::Physical(physical) = &port.kind else { continue };
        match physical.backend {
            Backend::Memory | Backend::Pcap | Backend::Ipsec => continue,
            Backend::Tap => {
                taps.push((&port.name, &physical.interface));
                need(NET_ADMIN);
                continue;
            }
            Backend::AfXdp => need(BPF),
            Backend::Auto | Backend::AfPacket => {}
        }
        need(NET_RAW);
        need(NET_ADMIN);
        let name = &physical.interface;
        let link = interfaces.map(|all| all.iter().find(|link| link.name == *name));
        // Those of the instance that runs with this socket are its own.
        if let Ok(Some(link)) = link
            && !is_running
            && let Some(other) = earlier::in_use(link.ifindex)
        {
            findings.error_of_all(format_args!("port {}: `{name}`: {other}", port.name));
        }
        match link {
            Ok(Some(link)) if link.mac == [0; 6] => {
                findings.error_of_all(format_args!(
                    "port {}: interface `{name}` is not an Ethernet interface",
                    port.name
                ));
            }
            Ok(Some(link))
                if physical.backend == Backend::AfXdp
                    && with_xdp.contains(&link.ifindex)
                    && !is_running =>
            {
                findings.error_of_all(format_args!(
                    "port {}: interface `{name}` is in use: another XDP program is attached to it",
                    port.name
                ));
            }
            Ok(Some(link)) if !link.carrier && link.up => {
                findings.warn_of_all(format_args!(
                    "port {}: interface `{name}` has no carrier: the port is down until it has one",
                    port.name
                ));
            }
            _ => {}
        }
    }
    for (port, name) in taps.iter().filter(|_| !is_running) {
        if interfaces.is_ok_and(|all| all.iter().any(|link| link.name == *name)) {
            findings.error_of_all(format_args!("port {port}: `{name}`: {}", io::tap::taken(name)));
        }
    }
    if let Err(error) = interfaces {
        findings.error_of_all(format_args!("interfaces of this machine: {error}"));
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    for (_, name) in missing(&status, &needs) {
        findings.error_of_all(format_args!(
            "{name} is missing: run it as root, as the service of the package, or in `unshare -Urn`"
        ));
    }
    let account = privileges::of_run(config, file);
    for (key, path) in outputs(config) {
        if let Some(why) = unwritable(path, account.as_ref().ok().and_then(Option::as_ref)) {
            findings.error_of_all(format_args!("{key}: {}: {why}", path.display()));
        }
    }
    match account {
        Err(why) => findings.error_of_all(format_args!("{why}")),
        Ok(Some(account)) => {
            let named = config.route_files.iter().map(|own| own.file.as_path());
            let named = named.chain(config.name_files.iter().map(PathBuf::as_path));
            let keys = config.associations.iter().map(|own| own.key_file.as_path());
            let all = std::iter::once(file).filter(|file| !files::is_standard(file));
            let all = all.chain(named).chain(keys);
            for path in all.filter(|path| !account.may_read(path)) {
                findings.error_of_all(format_args!(
                    "user `{}`, which the run changes to, cannot read {}: a reload reads it again; let the user read it, or set \
                     `user` under `[system]`",
                    account.name,
                    path.display()
                ));
            }
        }
        Ok(None) => {}
    }
    if !taps.is_empty()
        && let Err(error) = io::tap::device()
    {
        findings
            .error_of_all(format_args!("/dev/net/tun, which twins and TAP ports need: {error}"));
    }
    if is_running {
        // It is no error of the file, which may be checked for the restart of that instance.
        findings.warn_of_all(format_args!(
            "an instance is running at {}: stop it before a start, or use another `socket`",
            socket.display()
        ));
    } else if let Some(address) = config.system.metrics {
        let low = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
        let low = low.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(1024);
        let why = match (1..low).contains(&address.port()) {
            true => Some(format!("a run has no right to ports below {low}")),
            false => TcpListener::bind(address).err().map(|error| error.to_string()),
        };
        if let Some(why) = why {
            findings
                .error_of_all(format_args!("metrics on {address}: {why}; change `system.metrics`"));
        }
    }
}

/// The files that a run writes, with their keys.
fn outputs(config: &Config) -> Vec<(String, &Path)> {
    let dumps = config.dumps.iter().map(|own| (format!("dump.{}.file", own.name), &*own.file));
    let is_flow = config.flow.is_on;
    let of_flow = [("flow.events", &config.flow.events), ("flow.parquet", &config.flow.parquet)];
    let is_socket = |path: &Path| path.as_os_str().as_encoded_bytes().starts_with(b"unix:");
    let is_file = |path: &&Path| !files::is_standard(path) && !is_socket(path);
    let of_flow = of_flow.into_iter().filter_map(|(key, path)| {
        Some((key.to_owned(), path.as_deref().filter(|_| is_flow).filter(is_file)?))
    });
    dumps.chain(of_flow).collect()
}

/// Why the user of a run cannot write a file.
fn unwritable(path: &Path, account: Option<&Account>) -> Option<String> {
    let there = std::fs::metadata(path);
    if there.as_ref().is_ok_and(Metadata::is_dir) {
        return Some("it is a folder".to_owned());
    }
    let folder = privileges::folder_of(path);
    if there.is_err() && !folder.is_dir() {
        return Some(format!("there is no folder {}", folder.display()));
    }
    let may = match account {
        Some(account) => account.may_write(path),
        None if there.is_ok() => access(path, Access::WRITE_OK).is_ok(),
        None => access(folder, Access::WRITE_OK | Access::EXEC_OK).is_ok(),
    };
    let user = account.map_or_else(|| "this user".to_owned(), |own| format!("user `{}`", own.name));
    (!may).then(|| format!("{user}, which the run has, cannot write it"))
}

/// Those of `needs` that a process with this `/proc/PID/status` lacks. What cannot be read is not missing.
fn missing<'n>(status: &str, needs: &'n [(u32, &'n str)]) -> Vec<(u32, &'n str)> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let Some(own) = line.and_then(|line| u64::from_str_radix(line.trim(), 16).ok()) else {
        return Vec::new();
    };
    let has = |bit: u32| own & (1 << bit) != 0;
    // Before CAP_BPF there was CAP_SYS_ADMIN, and it still stands for it.
    let has = |bit: u32| has(bit) || (bit == BPF.0 && has(SYS_ADMIN));
    needs.iter().copied().filter(|(bit, _)| !has(*bit)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_read_from_the_status() {
        let all = [NET_RAW, NET_ADMIN, BPF];
        let names = |line: &str| {
            let status = format!("Name:\tx\n{line}\n");
            missing(&status, &all).iter().map(|(_, name)| *name).collect::<Vec<_>>()
        };
        assert_eq!(names("CapEff:\t000001ffffffffff"), [""; 0]);
        assert_eq!(names("CapEff:\t0000000000000000"), ["CAP_NET_RAW", "CAP_NET_ADMIN", "CAP_BPF"]);
        assert_eq!(names("CapEff:\t0000000000003000"), ["CAP_BPF"]);
        assert_eq!(names("CapEff:\t0000000000203000"), [""; 0]);
        assert_eq!(names("CapEff:\todd"), [""; 0]);
        assert_eq!(names(""), [""; 0]);
    }
}
