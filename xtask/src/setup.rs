//! What the tests need from outside, and how it gets there.
//!
//! One table names each component, how it is found, where it comes from and which suites want it. As root what
//! is missing is installed; anyone else reads the very commands and the tests that want it say `skipped`.
//!
//! No service is started: the package manager asks `/usr/sbin/policy-rc.d` first, and while it runs that says
//! no. FRR, BIRD or Prometheus coming up would change the machine's network or open its ports.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::exec::{self, Log};
use crate::tree;

/// A thing that tests use and the repository does not hold.
struct Component {
    name: &'static str,
    found: Found,
    source: Source,
    suites: &'static [&'static str],
}

/// How one sees that a component is there.
enum Found {
    /// A program on the search path of tests.
    Program(&'static str),
    /// A file at this place.
    File(&'static str),
    /// A library that `pkg-config` knows.
    Library(&'static str),
    /// Python with the modules that make a virtual environment.
    PythonVenv,
    /// A Python package of this version in `.venv`.
    Python(&'static str, &'static str),
    /// Miri in the nightly toolchain.
    Miri,
}

/// Where a component comes from.
enum Source {
    /// A Debian package, installed.
    Debian(&'static str),
    /// A Debian package whose dependencies and services are not wanted: one file out of it.
    DebianFile { package: &'static str, file: &'static str },
    /// The Python package registry, the version pinned in `Found::Python`.
    PyPi,
    /// A component of the nightly toolchain, which `rustup` brings.
    Rustup,
}

use Found::{File, Library, Miri, Program, Python, PythonVenv};
use Source::{Debian, DebianFile, PyPi, Rustup};

const DEVICE: &[&str] = &["unit", "asan", "golden", "gpu", "soak"];
const NET: &[&str] = &["unit", "asan", "net", "abuse"];

const COMPONENTS: &[Component] = &[
    Component { name: "ip", found: Program("ip"), source: Debian("iproute2"), suites: NET },
    Component {
        name: "ethtool",
        found: Program("ethtool"),
        source: Debian("ethtool"),
        suites: NET,
    },
    Component { name: "nft", found: Program("nft"), source: Debian("nftables"), suites: NET },
    Component { name: "ping", found: Program("ping"), source: Debian("iputils-ping"), suites: NET },
    Component {
        name: "traceroute",
        found: Program("traceroute"),
        source: Debian("traceroute"),
        suites: &["net"],
    },
    Component {
        name: "iperf3",
        found: Program("iperf3"),
        source: Debian("iperf3"),
        suites: &["net"],
    },
    Component {
        name: "tcpdump",
        found: Program("tcpdump"),
        source: Debian("tcpdump"),
        suites: NET,
    },
    Component {
        name: "tshark",
        found: Program("tshark"),
        source: Debian("tshark"),
        suites: &["unit", "golden", "net"],
    },
    Component {
        name: "tcpflow",
        found: Program("tcpflow"),
        source: Debian("tcpflow"),
        suites: &["unit"],
    },
    Component {
        name: "nfdump",
        found: Program("nfcapd"),
        source: Debian("nfdump"),
        suites: &["unit", "net"],
    },
    Component { name: "jq", found: Program("jq"), source: Debian("jq"), suites: &["unit"] },
    Component {
        name: "FRR (zebra)",
        found: Program("zebra"),
        source: Debian("frr"),
        suites: &["net"],
    },
    Component {
        name: "FRR (bgpd)",
        found: Program("bgpd"),
        source: Debian("frr"),
        suites: &["net"],
    },
    Component { name: "BIRD", found: Program("bird"), source: Debian("bird2"), suites: &["net"] },
    Component {
        name: "promtool",
        found: Program("promtool"),
        source: DebianFile { package: "prometheus", file: "usr/bin/promtool" },
        suites: &["unit", "net"],
    },
    Component {
        name: "Chromium",
        found: Program("chromium"),
        source: Debian("chromium"),
        suites: &["unit"],
    },
    Component {
        name: "valgrind",
        found: Program("valgrind"),
        source: Debian("valgrind"),
        suites: &["unit", "valgrind"],
    },
    Component {
        name: "gcc",
        found: Program("gcc"),
        source: Debian("gcc"),
        suites: &["unit", "peers"],
    },
    Component {
        name: "ovs-ofctl",
        found: Program("ovs-ofctl"),
        source: Debian("openvswitch-common"),
        suites: &["unit", "net"],
    },
    Component {
        name: "Open vSwitch",
        found: Program("ovs-vswitchd"),
        source: Debian("openvswitch-switch"),
        suites: &["unit", "peers"],
    },
    Component {
        name: "Open vSwitch with DPDK",
        found: File("/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk"),
        source: Debian("openvswitch-switch-dpdk"),
        suites: &["peers"],
    },
    Component {
        name: "ovs-testcontroller",
        found: Program("ovs-testcontroller"),
        source: Debian("openvswitch-testcontroller"),
        suites: &["unit", "net"],
    },
    Component {
        name: "strongSwan (charon)",
        found: Program("charon-systemd"),
        source: Debian("charon-systemd"),
        suites: &["unit"],
    },
    Component {
        name: "strongSwan (swanctl)",
        found: Program("swanctl"),
        source: Debian("strongswan-swanctl"),
        suites: &["unit"],
    },
    Component {
        name: "strongSwan (pki)",
        found: Program("pki"),
        source: Debian("strongswan-pki"),
        suites: &["unit"],
    },
    Component {
        name: "strongSwan (OpenSSL)",
        found: File("/usr/lib/ipsec/plugins/libstrongswan-openssl.so"),
        source: Debian("libstrongswan-standard-plugins"),
        suites: &["unit"],
    },
    Component {
        name: "strongSwan (libipsec)",
        found: File("/usr/lib/ipsec/plugins/libstrongswan-kernel-libipsec.so"),
        source: Debian("libcharon-extra-plugins"),
        suites: &["unit"],
    },
    Component {
        name: "pkg-config",
        found: Program("pkg-config"),
        source: Debian("pkg-config"),
        suites: &["peers"],
    },
    Component {
        name: "DPDK",
        found: Library("libdpdk"),
        source: Debian("libdpdk-dev"),
        suites: &["peers"],
    },
    Component {
        name: "libnids",
        found: File("/usr/include/nids.h"),
        source: Debian("libnids-dev"),
        suites: &["peers"],
    },
    Component {
        name: "Vectorscan",
        found: Library("libhs"),
        source: Debian("libvectorscan-dev"),
        suites: &["peers"],
    },
    Component {
        name: "libpcap",
        found: File("/usr/include/pcap.h"),
        source: Debian("libpcap-dev"),
        suites: &["peers"],
    },
    Component {
        name: "intel-ipsec-mb",
        found: File("/usr/include/intel-ipsec-mb.h"),
        source: Debian("libipsec-mb-dev"),
        suites: &["peers"],
    },
    Component {
        name: "OpenCL",
        found: File("/usr/lib/x86_64-linux-gnu/libOpenCL.so.1"),
        source: Debian("ocl-icd-libopencl1"),
        suites: DEVICE,
    },
    Component {
        name: "PoCL",
        found: File("/etc/OpenCL/vendors/pocl.icd"),
        source: Debian("pocl-opencl-icd"),
        suites: DEVICE,
    },
    Component {
        name: "Oclgrind",
        found: Program("oclgrind"),
        source: Debian("oclgrind"),
        suites: &["unit"],
    },
    Component {
        name: "NVRTC",
        found: Python("nvidia-cuda-nvrtc", "13.0.88"),
        source: PyPi,
        suites: &["unit", "dist", "gpu"],
    },
    Component { name: "g++", found: Program("g++"), source: Debian("g++"), suites: &["fuzz"] },
    Component {
        name: "Python",
        found: PythonVenv,
        source: Debian("python3-venv"),
        suites: &["unit", "golden", "net", "dist", "gpu"],
    },
    Component {
        name: "umoci",
        found: Program("umoci"),
        source: Debian("umoci"),
        suites: &["dist"],
    },
    Component { name: "xz", found: Program("xz"), source: Debian("xz-utils"), suites: &["dist"] },
    Component { name: "Miri", found: Miri, source: Rustup, suites: &["miri"] },
    Component { name: "scapy", found: Python("scapy", "2.6.1"), source: PyPi, suites: &["golden"] },
    Component {
        name: "cryptography",
        found: Python("cryptography", "48.0.0"),
        source: PyPi,
        suites: &["golden"],
    },
    Component { name: "DuckDB", found: Python("duckdb", "2.0.1"), source: PyPi, suites: &["unit"] },
    Component { name: "pandas", found: Python("pandas", "3.1.1"), source: PyPi, suites: &["unit"] },
    Component {
        name: "pyarrow",
        found: Python("pyarrow", "26.0.1"),
        source: PyPi,
        suites: &["unit"],
    },
    Component {
        name: "pyftpdlib",
        found: Python("pyftpdlib", "2.2.0"),
        source: PyPi,
        suites: &["net"],
    },
    Component { name: "curl", found: Program("curl"), source: Debian("curl"), suites: &["net"] },
    Component { name: "os-ken", found: Python("os-ken", "4.2.2"), source: PyPi, suites: &["net"] },
    Component {
        name: "python-ndn",
        found: Python("python-ndn", "0.5.2"),
        source: PyPi,
        suites: &["unit", "net"],
    },
];

const APT_INSTALL: &[&str] =
    &["-o", "DPkg::Lock::Timeout=300", "install", "-y", "--no-install-recommends"];
const APT_LIMIT: Duration = Duration::from_secs(1200);
const PIP_LIMIT: Duration = Duration::from_secs(600);
const POLICY: &str = "/usr/sbin/policy-rc.d";

/// Installs what the suites lack, or names it. False where something stays missing.
pub(crate) fn ensure(root: &Path, suites: &[&str]) -> bool {
    let missing = missing(root, suites);
    if missing.is_empty() {
        return true;
    }
    let names: Vec<&str> = missing.iter().map(|c| c.name).collect();
    println!("missing: {}", names.join(", "));
    if !is_root() || tree::find_program(root, "apt-get").is_none() {
        println!("not root, so nothing is installed; these commands would do it:");
        for command in commands(root, &missing) {
            println!("    {}", exec::line_of(&command));
        }
        return false;
    }
    let log = Log::create(root, "setup");
    // Put back when it goes out of scope.
    let _policy = ServicePolicy::deny();
    for mut command in commands(root, &missing) {
        println!("setup: {}", exec::line_of(&command));
        let limit = if command.get_program() == "apt-get" { APT_LIMIT } else { PIP_LIMIT };
        let outcome = log.run(&mut command, limit);
        if !outcome.ok {
            println!("{}setup: failed: {}", outcome.output, outcome.end);
        }
    }
    let still: Vec<&str> = self::missing(root, suites).iter().map(|c| c.name).collect();
    if !still.is_empty() {
        println!("setup: still missing: {}", still.join(", "));
    }
    still.is_empty()
}

fn is_root() -> bool {
    let output = Command::new("id").arg("-u").output();
    output.is_ok_and(|o| o.stdout.trim_ascii() == b"0")
}

fn missing<'a>(root: &Path, suites: &[&str]) -> Vec<&'a Component> {
    let wanted = |c: &&Component| c.suites.iter().any(|s| suites.contains(s));
    COMPONENTS.iter().filter(wanted).filter(|c| !is_there(root, &c.found)).collect()
}

fn is_there(root: &Path, found: &Found) -> bool {
    let succeeds = |program: &Path, args: &[&str]| {
        let output = Command::new(program).args(args).env("PATH", tree::search_path(root)).output();
        output.is_ok_and(|o| o.status.success())
    };
    match found {
        Program(name) => tree::find_program(root, name).is_some(),
        File(path) => Path::new(path).exists(),
        Miri => has_miri(),
        Library(name) => succeeds(Path::new("pkg-config"), &["--exists", name]),
        PythonVenv => {
            succeeds(&venv_python(root), &["-c", ""])
                || succeeds(Path::new("python3"), &["-c", "import venv, ensurepip"])
        }
        Python(package, version) => {
            let check = format!(
                "import importlib.metadata as m, sys; sys.exit(m.version('{package}') != '{version}')"
            );
            succeeds(&venv_python(root), &["-c", &check])
        }
    }
}

/// Whether the nightly toolchain can run tests under Miri.
pub(crate) fn has_miri() -> bool {
    let output = Command::new("cargo").args(["+nightly", "miri", "--version"]).output();
    output.is_ok_and(|o| o.status.success())
}

fn venv_python(root: &Path) -> PathBuf {
    root.join(".venv/bin/python")
}

/// NVIDIA's compiler: `SHADELINE_NVRTC`, else the library of the package in `.venv`.
pub(crate) fn nvrtc(root: &Path) -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("SHADELINE_NVRTC") {
        return Some(named.into());
    }
    let versions = fs::read_dir(root.join(".venv/lib")).ok()?;
    let file = "site-packages/nvidia/cu13/lib/libnvrtc.so.13";
    versions.flatten().map(|version| version.path().join(file)).find(|path| path.is_file())
}

/// The commands that bring the components, in order.
fn commands(root: &Path, missing: &[&Component]) -> Vec<Command> {
    let mut commands = Vec::new();
    let mut installed: BTreeSet<&str> = BTreeSet::new();
    let mut unpacked: BTreeSet<(&str, &str)> = BTreeSet::new();
    let mut python: BTreeSet<String> = BTreeSet::new();
    let mut needs_miri = false;
    for component in missing {
        match (&component.source, &component.found) {
            (Debian(package), _) => {
                installed.insert(package);
            }
            (DebianFile { package, file }, _) => {
                unpacked.insert((package, file));
            }
            (PyPi, Python(package, version)) => {
                python.insert(format!("{package}=={version}"));
            }
            (PyPi, _) => {}
            (Rustup, _) => needs_miri = true,
        }
    }
    if !installed.is_empty() || !unpacked.is_empty() {
        commands.push(command("apt-get", &["update", "-q"]));
    }
    if !installed.is_empty() {
        let mut install = command("apt-get", APT_INSTALL);
        install.args(&installed).env("DEBIAN_FRONTEND", "noninteractive");
        commands.push(install);
    }
    let tools = tree::tools_dir(root);
    for (package, file) in unpacked {
        let name = file.rsplit('/').next().unwrap_or(file);
        let script = format!(
            "set -e; mkdir -p {package} bin; cd {package}; apt-get download {package}; \
             dpkg -x {package}_*.deb .; ln -sf ../{package}/{file} ../bin/{name}"
        );
        // The sandboxed download user of apt cannot write here; root downloads itself, with a warning.
        let mut unpack = command("sh", &["-c", &script]);
        unpack.current_dir(&tools);
        // Unreadable only where nothing could be unpacked either, which the command then reports.
        let _ = fs::create_dir_all(&tools);
        commands.push(unpack);
    }
    if needs_miri {
        // A nightly that is there stays the one it is.
        let script = "rustup run nightly rustc --version || rustup toolchain install nightly --profile minimal; \
                      rustup component add miri rust-src --toolchain nightly";
        commands.push(command("sh", &["-c", script]));
    }
    if !python.is_empty() {
        let venv = root.join(".venv");
        if !venv_python(root).exists() {
            commands.push(command("python3", &["-m", "venv", &venv.to_string_lossy()]));
        }
        let interpreter = venv_python(root);
        let mut pip = command(&interpreter.to_string_lossy(), &["-m", "pip", "install", "--quiet"]);
        pip.args(python);
        commands.push(pip);
    }
    commands
}

fn command(program: &str, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args);
    command
}

/// Holds services back while packages are installed.
struct ServicePolicy {
    ours: bool,
    saved: Option<PathBuf>,
}

impl ServicePolicy {
    fn deny() -> ServicePolicy {
        let path = Path::new(POLICY);
        let mut policy = ServicePolicy { ours: false, saved: None };
        if path.exists() {
            let answer = Command::new(path).args(["frr", "start"]).output();
            if answer.is_ok_and(|o| o.status.code() == Some(101)) {
                return policy; // It says no already.
            }
            let saved = path.with_extension("d.saved-by-xtask");
            if fs::rename(path, &saved).is_ok() {
                policy.saved = Some(saved);
            }
        }
        let written = fs::write(path, "#!/bin/sh\nexit 101\n")
            .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o755)));
        match written {
            Ok(()) => policy.ours = true,
            Err(error) => println!("setup: {POLICY}: {error}; installed services may start"),
        }
        policy
    }
}

impl Drop for ServicePolicy {
    fn drop(&mut self) {
        let restored = match (&self.saved, self.ours) {
            (Some(saved), _) => fs::rename(saved, POLICY),
            (None, true) => fs::remove_file(POLICY),
            (None, false) => Ok(()),
        };
        if let Err(error) = restored {
            println!("setup: {POLICY} could not be put back: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers;

    #[test]
    fn every_component_names_suites_that_exist() {
        for component in COMPONENTS {
            for suite in component.suites {
                assert!(
                    crate::suites::SUITES.iter().any(|s| s.name == *suite),
                    "{}: {suite}",
                    component.name
                );
            }
        }
    }

    #[test]
    fn the_commands_are_whole_lines_one_install_for_all_packages() {
        let all: Vec<&Component> = COMPONENTS.iter().collect();
        let root = std::env::temp_dir().join(format!("xtask-setup-{}", std::process::id()));
        let lines: Vec<String> = commands(&root, &all).iter().map(exec::line_of).collect();
        assert_eq!(lines[0], "apt-get update -q");
        assert!(lines[1].starts_with(
            "DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y"
        ));
        assert_eq!(lines[1].matches("frr").count(), 1);
        assert!(!lines[1].contains("prometheus"));
        assert!(lines[2].contains("dpkg -x prometheus_*.deb"));
        let packages = "pip install --quiet cryptography==48.0.0 duckdb==2.0.1 nvidia-cuda-nvrtc==13.0.88 os-ken==4.2.2 pandas==3.1.1 \
                        pyarrow==26.0.1 pyftpdlib==2.2.0 python-ndn==0.5.2 scapy==2.6.1";
        assert!(lines.last().is_some_and(|l| l.ends_with(packages)), "{lines:?}");
        std::fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn every_library_of_a_peer_is_installed() {
        let sources = tree::walk(&tree::root().join("bench/peers"));
        let mut seen = 0;
        for source in sources.iter().filter(|path| path.extension().is_some_and(|e| e == "c")) {
            for library in peers::needs(&fs::read_to_string(source).unwrap()) {
                let name = library.trim_start_matches("-l").trim_start_matches("lib");
                // As Debian writes names of packages.
                let package = format!("lib{}-dev", name.to_lowercase().replace('_', "-"));
                // Where it writes another name, the component says by what pkg-config knows it.
                let is_known = |c: &Component| matches!(c.found, Library(own) if own == library);
                let installs = |c: &&Component| match c.source {
                    Debian(own) => c.suites.contains(&"peers") && (own == package || is_known(c)),
                    _ => false,
                };
                assert!(COMPONENTS.iter().any(|c| installs(&c)), "{}: {package}", source.display());
                seen += 1;
            }
        }
        assert!(seen >= 4, "{seen} libraries");
    }

    #[test]
    fn what_is_there_is_not_missing() {
        let root = tree::root();
        assert!(is_there(&root, &Program("sh")));
        assert!(!is_there(&root, &Program("no-such-program")));
        assert!(!is_there(&root, &Python("no-such-package", "1")));
    }
}
