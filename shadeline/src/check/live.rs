//! What a live start needs of the machine, as far as it can be seen without changing anything.

use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use control::config::{Backend, Config, PortKind};
use control::kernel::Link;
use control::kernel::links;
use control::netlink::Client;
use controlplane::Findings;

use crate::privileges;

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
    let mut needs = Vec::new();
    let mut need = |capability| {
        if !needs.contains(&capability) {
            needs.push(capability);
        }
    };
    let mut has_tap = false;
    for port in &config.ports {
        if port.twin.is_some() {
            (has_tap, _) = (true, need(NET_ADMIN));
        }
        let PortKind::Physical(physical) = &port.kind else { continue };
        match physical.backend {
            Backend::Memory | Backend::Pcap => continue,
            Backend::Tap => {
                (has_tap, _) = (true, need(NET_ADMIN));
                continue;
            }
            Backend::AfXdp => need(BPF),
            Backend::Auto | Backend::AfPacket => {}
        }
        need(NET_RAW);
        need(NET_ADMIN);
        let name = &physical.interface;
        match interfaces.map(|all| all.iter().find(|link| link.name == *name)) {
            Ok(Some(link)) if link.mac == [0; 6] => {
                findings.error_of_all(format_args!(
                    "port {}: interface `{name}` is not an Ethernet interface",
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
    if let Err(error) = interfaces {
        findings.error_of_all(format_args!("interfaces of this machine: {error}"));
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    for (_, name) in missing(&status, &needs) {
        findings.error_of_all(format_args!(
            "{name} is missing: run it as root, as the service of the package, or in `unshare -Urn`"
        ));
    }
    match privileges::of_run(config, file) {
        Err(why) => findings.error_of_all(format_args!("{why}")),
        Ok(Some(account)) => {
            let named = config.route_files.iter().map(|own| own.file.as_path());
            let named = named.chain(config.name_files.iter().map(PathBuf::as_path));
            let all = std::iter::once(file).filter(|file| !files::is_standard(file)).chain(named);
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
    if has_tap && let Err(error) = io::tap::device() {
        findings
            .error_of_all(format_args!("/dev/net/tun, which twins and TAP ports need: {error}"));
    }
    let socket = &config.system.socket;
    if UnixStream::connect(socket).is_ok() {
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
