//! The container image: an OCI image layout (image-spec 1.0) in a tar archive, with one layer, made without a daemon.
//!
//! The program loads the libraries of GPUs at run time, so it is not linked statically: the layer has the libraries that
//! it names, where the dynamic loader of this machine finds them, and the loader itself. `docker load` of versions before
//! 25 reads `manifest.json` instead of the layout.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::contents::{self, CONFIGURATION, Release};
use super::files::Files;
use super::tools::{gzip, sha256};
use super::{deb, licences};

/// The user of the image, as in other images that have one.
const USER: u32 = 65_532;

/// The archive.
pub(crate) fn image(root: &Path, release: &Release) -> io::Result<Vec<u8>> {
    let layer = layer(root, release)?.tar("", release.time)?;
    let packed = gzip(&layer)?;
    let created = date(release.time);
    let config = config(release, &created, &sha256(&layer)?);
    let (config_digest, layer_digest) = (sha256(config.as_bytes())?, sha256(&packed)?);
    let manifest = format!(
        "{{\"schemaVersion\":2,\"mediaType\":\"application/vnd.oci.image.manifest.v1+json\",\
         \"config\":{{\"mediaType\":\"application/vnd.oci.image.config.v1+json\",\
         \"digest\":\"sha256:{config_digest}\",\"size\":{}}},\
         \"layers\":[{{\"mediaType\":\"application/vnd.oci.image.layer.v1.tar+gzip\",\
         \"digest\":\"sha256:{layer_digest}\",\"size\":{}}}]}}",
        config.len(),
        packed.len()
    );
    let manifest_digest = sha256(manifest.as_bytes())?;
    let version = &release.version;
    let index = format!(
        "{{\"schemaVersion\":2,\"mediaType\":\"application/vnd.oci.image.index.v1+json\",\
         \"manifests\":[{{\"mediaType\":\"application/vnd.oci.image.manifest.v1+json\",\
         \"digest\":\"sha256:{manifest_digest}\",\"size\":{},\
         \"platform\":{{\"architecture\":\"{}\",\"os\":\"linux\"}},\
         \"annotations\":{{\"org.opencontainers.image.ref.name\":\"{version}\",\
         \"io.containerd.image.name\":\"docker.io/library/shadeline:{version}\"}}}}]}}",
        manifest.len(),
        deb::architecture()
    );
    let old = format!(
        "[{{\"Config\":\"blobs/sha256/{config_digest}\",\"RepoTags\":[\"shadeline:{version}\"],\
         \"Layers\":[\"blobs/sha256/{layer_digest}\"]}}]"
    );
    let mut files = Files::default();
    files.file("oci-layout", "{\"imageLayoutVersion\":\"1.0.0\"}");
    files.file("index.json", index);
    files.file("manifest.json", old);
    files.file(&format!("blobs/sha256/{config_digest}"), config);
    files.file(&format!("blobs/sha256/{layer_digest}"), packed);
    files.file(&format!("blobs/sha256/{manifest_digest}"), manifest);
    files.tar("", release.time)
}

/// How a container of the image runs.
fn config(release: &Release, created: &str, layer: &str) -> String {
    let Release { version, commit, .. } = release;
    format!(
        "{{\"created\":\"{created}\",\"architecture\":\"{}\",\"os\":\"linux\",\
         \"config\":{{\"User\":\"{USER}:{USER}\",\
         \"Env\":[\"PATH=/usr/bin\",\"XDG_CACHE_HOME=/var/cache\",\"NVIDIA_VISIBLE_DEVICES=all\",\
         \"NVIDIA_DRIVER_CAPABILITIES=compute,utility\"],\
         \"Entrypoint\":[\"/usr/bin/shadeline\"],\
         \"Cmd\":[\"run\",\"/etc/shadeline/shadeline.toml\"],\
         \"WorkingDir\":\"/var/lib/shadeline\",\"StopSignal\":\"SIGTERM\",\
         \"Labels\":{{\"org.opencontainers.image.title\":\"shadeline\",\
         \"org.opencontainers.image.description\":\"A software router, switch, firewall, NAT, flow monitor and named-data forwarder\",\
         \"org.opencontainers.image.licenses\":\"MIT OR Apache-2.0\",\
         \"org.opencontainers.image.version\":\"{version}\",\
         \"org.opencontainers.image.revision\":\"{commit}\",\
         \"org.opencontainers.image.created\":\"{created}\"}}}},\
         \"rootfs\":{{\"type\":\"layers\",\"diff_ids\":[\"sha256:{layer}\"]}},\
         \"history\":[{{\"created\":\"{created}\",\"created_by\":\"cargo xtask dist\"}}]}}",
        deb::architecture()
    )
}

fn layer(root: &Path, release: &Release) -> io::Result<Files> {
    let mut files = Files::default();
    files.program("usr/bin/shadeline", fs::read(&release.program)?);
    for library in libraries(&release.program)? {
        let path = library.to_string_lossy();
        files.program(path.trim_start_matches('/'), fs::read(&library)?);
        if let Some((package, copyright)) = copyright_of(&library) {
            files.copy(&format!("usr/share/doc/{package}/copyright"), &copyright)?;
        }
    }
    files.copy("etc/shadeline/shadeline.toml", &root.join(CONFIGURATION))?;
    let nologin = "/nonexistent:/usr/sbin/nologin";
    files.file(
        "etc/passwd",
        format!("root:x:0:0:root:/:\nshadeline:x:{USER}:{USER}:Shadeline router:{nologin}\n"),
    );
    files.file("etc/group", format!("root:x:0:\nshadeline:x:{USER}:\n"));
    for own in ["run/shadeline", "var/lib/shadeline", "var/cache/shadeline"] {
        files.folder(own, 0o755, USER);
    }
    files.folder("tmp", 0o1777, 0);
    let doc = "usr/share/doc/shadeline";
    contents::licence_files(root, doc, &mut files)?;
    files.file(&format!("{doc}/THIRD-PARTY"), licences::text(root)?);
    Ok(files)
}

/// The libraries that the dynamic loader finds for a program, and the loader.
fn libraries(program: &Path) -> io::Result<BTreeSet<PathBuf>> {
    let output = Command::new("ldd").arg(program).env("LC_ALL", "C").output();
    let output = output.map_err(|error| io::Error::other(format!("ldd: {error}")))?;
    libraries_of(&String::from_utf8_lossy(&output.stdout))
}

fn libraries_of(ldd: &str) -> io::Result<BTreeSet<PathBuf>> {
    if let Some(line) = ldd.lines().find(|line| line.contains("not found")) {
        return Err(io::Error::other(format!("ldd: {}", line.trim())));
    }
    let path =
        |line: &str| line.split_whitespace().find(|word| word.starts_with('/')).map(PathBuf::from);
    let found: BTreeSet<PathBuf> = ldd.lines().filter_map(path).collect();
    match found.is_empty() {
        true => Err(io::Error::other("ldd names no library")),
        false => Ok(found),
    }
}

/// The package that a library comes from, and its copyright file, where dpkg knows them.
fn copyright_of(library: &Path) -> Option<(String, PathBuf)> {
    // dpkg records the path below /usr or the one without, whichever the package has.
    let whole = format!("/usr{}", library.display());
    let output = Command::new("dpkg").arg("-S").arg(library).output().ok()?;
    let output = if output.status.success() {
        output
    } else {
        Command::new("dpkg").args(["-S", &whole]).output().ok()?
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let package = text.split(':').next().filter(|name| !name.is_empty())?.to_owned();
    let file = Path::new("/usr/share/doc").join(&package).join("copyright");
    file.is_file().then_some((package, file))
}

/// Seconds since 1970 as RFC 3339 has them (days to dates: Hinnant, "chrono-Compatible Low-Level Date Algorithms").
fn date(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let z = days + 719_468;
    let (era, of_era) = (z / 146_097, z % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = year + era * 400 + next;
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Json;

    #[test]
    fn dates() {
        assert_eq!(date(0), "1970-01-01T00:00:00Z");
        assert_eq!(date(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(date(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(date(1_735_689_599), "2024-12-31T23:59:59Z");
    }

    #[test]
    fn what_ldd_prints() {
        let text = "\tlinux-vdso.so.1 (0x1)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x2)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x3)\n";
        let found: Vec<PathBuf> = libraries_of(text).unwrap().into_iter().collect();
        let expected = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"];
        assert_eq!(found, expected.map(PathBuf::from));
        assert!(libraries_of("\tlibodd.so => not found\n").is_err());
        assert!(libraries_of("\tstatically linked\n").is_err());
    }

    #[test]
    fn the_configuration_is_json() {
        let release =
            Release { version: "1.2".into(), time: 0, commit: "c".into(), program: PathBuf::new() };
        let json = Json::parse(&config(&release, "now", "digest")).unwrap();
        let run = json.get("config").unwrap();
        assert_eq!(run.get("User").and_then(Json::text), Some("65532:65532"));
        assert_eq!(run.get("Entrypoint").unwrap().list().len(), 1);
    }
}
