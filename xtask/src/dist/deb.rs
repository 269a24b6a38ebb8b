//! The Debian package: `deb(5)`, an ar archive of `debian-binary`, `control.tar.xz` and `data.tar.xz`.

use std::fmt::Write;
use std::fs;
use std::io;
use std::path::Path;

use super::contents::{CONFIGURATION, Release};
use super::files::{Files, ar};
use super::tools::{md5, needed, xz};

/// The Debian packages of the libraries that the program may name, each with the oldest version that will do; glibc's
/// is measured.
const LIBRARIES: &[(&str, &str, Option<&str>)] = &[
    ("libc.so.6", "libc6", None),
    ("libm.so.6", "libc6", None),
    ("libdl.so.2", "libc6", None),
    ("libpthread.so.0", "libc6", None),
    ("ld-linux-x86-64.so.2", "libc6", None),
    ("ld-linux-aarch64.so.1", "libc6", None),
    ("libgcc_s.so.1", "libgcc-s1", Some("4.2")),
];

const CONFFILE: &str = "etc/shadeline/shadeline.toml";

/// `amd64` and the like.
pub(crate) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// What the libraries that a program names are called as packages.
pub(crate) fn depends(needed: &[String], glibc_minor: u32) -> io::Result<String> {
    let mut packages: Vec<String> = Vec::new();
    for library in needed {
        let known = LIBRARIES.iter().find(|(name, ..)| name == library);
        let (_, package, version) = known
            .ok_or_else(|| io::Error::other(format!("no Debian package is known for {library}")))?;
        let version = version.map_or_else(|| format!("2.{glibc_minor}"), str::to_owned);
        let entry = format!("{package} (>= {version})");
        if !packages.contains(&entry) {
            packages.push(entry);
        }
    }
    packages.sort();
    // `useradd` and `userdel`, where systemd-sysusers is missing; `deb-systemd-helper`.
    packages.extend(["passwd".into(), "init-system-helpers (>= 1.52)".into()]);
    Ok(packages.join(", "))
}

/// What is in a package beside `/usr`.
pub(crate) struct Parts {
    pub(crate) version: String,
    pub(crate) time: u64,
    pub(crate) configuration: Vec<u8>,
    /// Of the program: see [`depends`].
    pub(crate) depends: String,
}

impl Parts {
    pub(crate) fn read(root: &Path, release: &Release, glibc_minor: u32) -> io::Result<Parts> {
        Ok(Parts {
            version: release.version.clone(),
            time: release.time,
            configuration: fs::read(root.join(CONFIGURATION))?,
            depends: depends(&needed(&release.program)?, glibc_minor)?,
        })
    }
}

/// The package, compressed at this level of [`xz`].
pub(crate) fn package(root: &Path, parts: Parts, usr: Files, level: &str) -> io::Result<Vec<u8>> {
    let time = parts.time;
    let mut data = Files::default();
    data.join("usr", usr);
    data.file(CONFFILE, parts.configuration);
    let mut sums = String::new();
    let mut bytes = 0;
    for (path, content) in data.contents() {
        bytes += content.len();
        // dpkg keeps the sums of conffiles itself.
        if path != CONFFILE {
            let _ = writeln!(sums, "{}  {path}", md5(content)?);
        }
    }
    let mut control = Files::default();
    let about = control_file(&parts.version, &parts.depends, bytes.div_ceil(1024));
    control.file("control", about);
    control.file("conffiles", format!("/{CONFFILE}\n"));
    control.file("md5sums", sums);
    for name in ["postinst", "prerm", "postrm"] {
        control.program(name, fs::read(root.join("packaging/debian").join(name))?);
    }
    let control = xz(&control.tar("./", time)?, level)?;
    let data = xz(&data.tar("./", time)?, level)?;
    let members: [(&str, &[u8]); 3] =
        [("debian-binary", b"2.0\n"), ("control.tar.xz", &control), ("data.tar.xz", &data)];
    Ok(ar(&members, time))
}

fn control_file(version: &str, depends: &str, kib: usize) -> String {
    format!(
        "Package: shadeline\n\
         Version: {version}\n\
         Architecture: {}\n\
         Maintainer: The Shadeline maintainers <maintainers@shadeline.invalid>\n\
         Installed-Size: {kib}\n\
         Depends: {depends}\n\
         Suggests: ocl-icd-libopencl1, libcuda1, bash-completion\n\
         Section: net\n\
         Priority: optional\n\
         Description: software router, switch, firewall, NAT and flow monitor\n\
         \x20Forwards IPv4 and IPv6 with full Internet tables, Ethernet frames by MAC\n\
         \x20address, and NDN packets by name, on CPU cores or on a GPU. Filters packets\n\
         \x20by rules and states of connections, translates addresses (NAT44, NAT64), and\n\
         \x20reports flows and TCP streams as EVE events, IPFIX and Parquet. Addresses are\n\
         \x20shared with Linux, so routing daemons such as FRR and BIRD work without\n\
         \x20changes.\n",
        architecture()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_follow_from_the_libraries() {
        let needed = ["libgcc_s.so.1", "libm.so.6", "libc.so.6"].map(str::to_owned);
        let expected = "libc6 (>= 2.34), libgcc-s1 (>= 4.2), passwd, init-system-helpers (>= 1.52)";
        assert_eq!(depends(&needed, 34).unwrap(), expected);
        let error = depends(&["libodd.so.3".into()], 34).unwrap_err().to_string();
        assert_eq!(error, "no Debian package is known for libodd.so.3");
    }
}
