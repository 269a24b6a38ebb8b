//! Machines with and without the libraries: each in a process of its own, since a library is loaded once.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use device::DeviceError;
use device::driver::Api;
use device::probe::{devices, open};

/// What a process sees: runs as a test of its own, and in the processes that the others start. The marked
/// lines are what they read.
#[test]
fn every_library_tells_its_devices_or_why_there_are_none() {
    let probes = devices();
    for api in [Api::Cuda, Api::OpenCl] {
        let of_api: Vec<_> = probes.iter().filter(|p| p.api == api).collect();
        assert!(!of_api.is_empty(), "{api:?}");
        for (number, probe) in (0..).zip(&of_api) {
            match &probe.found {
                Ok(info) => {
                    assert_eq!((info.api, info.number), (api, number));
                    assert!(!info.name.is_empty() && !info.target.is_empty(), "{info:?}");
                    assert!(!info.driver.is_empty() && info.group_items_max > 0, "{info:?}");
                    assert!(info.memory_bytes > 0 && info.units > 0 && info.group_bytes > 0);
                    println!("\nfound {api:?} {}", info.name);
                }
                Err(DeviceError::Absent(reason)) => {
                    assert_eq!(of_api.len(), 1, "the reason is the only entry");
                    assert!(open(api, 0).is_err());
                    println!("\nabsent {api:?} {reason}");
                }
                Err(error) => panic!("{error:?}"),
            }
        }
        let beyond = open(api, 1_000_000).map(|driver| driver.info().clone());
        assert!(matches!(beyond, Err(DeviceError::Absent(_))), "{beyond:?}");
    }
    assert_eq!(devices(), probes, "looking changes nothing");
}

/// The marked lines of a process with these variables.
fn seen(variables: &[(&str, &Path)]) -> Vec<String> {
    let name = "every_library_tells_its_devices_or_why_there_are_none";
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture", "--test-threads=1"]);
    command.env_remove("OPENCL_DYLIB_PATH").envs(variables.iter().copied());
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{variables:?}: {}\n{text}\n{errors}", output.status);
    let marked = |line: &&str| line.starts_with("found ") || line.starts_with("absent ");
    text.lines().filter(marked).map(str::to_owned).collect()
}

fn assert_absent(seen: &[String], api: &str, reason: &str) {
    let start = format!("absent {api} ");
    let line = seen.iter().find(|line| line.starts_with(&start));
    assert!(line.is_some_and(|line| line.contains(reason)), "{api} {reason}: {seen:?}");
}

#[test]
fn a_library_that_is_named_and_missing_is_absent() {
    let seen = seen(&[("OPENCL_DYLIB_PATH", Path::new("/no/such/library.so"))]);
    assert_absent(&seen, "OpenCl", "/no/such/library.so");
}

#[test]
fn a_library_without_the_functions_is_absent() {
    let seen = seen(&[("OPENCL_DYLIB_PATH", Path::new("libc.so.6"))]);
    assert_absent(&seen, "OpenCl", "clGetPlatformIDs");
}

#[test]
fn a_library_without_platforms_is_absent() {
    if !has_opencl() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let seen = seen(&[("OCL_ICD_VENDORS", folder.path())]);
    assert_absent(&seen, "OpenCl", "no OpenCL platform");
}

#[test]
fn broken_libraries_in_the_loaders_way_are_absent() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["libOpenCL.so.1", "libOpenCL.so", "libcuda.so", "libcuda.so.1"] {
        fs::write(folder.path().join(name), b"not a library").unwrap();
    }
    let seen = seen(&[("LD_LIBRARY_PATH", folder.path())]);
    assert_absent(&seen, "OpenCl", "libOpenCL.so");
    assert_absent(&seen, "Cuda", "libcuda.so.1");
}

#[test]
fn a_cuda_library_that_lacks_functions_is_absent() {
    let Some(other) = loaded("libc.so.6") else {
        testkit::skip("the C library is not where /proc says");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    symlink(other, folder.path().join("libcuda.so")).unwrap();
    let seen = seen(&[("LD_LIBRARY_PATH", folder.path())]);
    assert_absent(&seen, "Cuda", "has no cuInit");
}

#[test]
fn a_machine_with_a_platform_shows_its_devices() {
    if has_opencl() {
        assert!(seen(&[]).iter().any(|line| line.starts_with("found OpenCl ")));
    }
}

fn has_opencl() -> bool {
    let folders = ["/etc/OpenCL/vendors", "/usr/share/OpenCL/vendors"];
    let entries = folders.iter().filter_map(|f| fs::read_dir(f).ok()).flatten().count();
    if entries == 0 {
        testkit::skip("no OpenCL platform");
    }
    entries > 0
}

/// The file of a library of this process.
fn loaded(name: &str) -> Option<PathBuf> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let file =
        maps.lines().filter_map(|line| line.split_whitespace().nth(5)).find(|f| f.ends_with(name));
    file.map(PathBuf::from)
}
