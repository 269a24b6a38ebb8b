//! `shadeline devices`, as a user calls it: with a device, without any, with one that fails.

use std::collections::BTreeSet;
use std::process::{Command, Output};

use serde_json::Value;
use testkit::Scratch;

/// Runs the command where no CUDA library loads, with caches of its own.
fn devices(scratch: &Scratch, options: &[&str], variables: &[(&str, &str)]) -> Output {
    for name in ["libcuda.so", "libcuda.so.1"] {
        scratch.write(name, "not a library");
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_shadeline"));
    testkit::set_caches(&mut command, scratch.path());
    command
        .arg("devices")
        .args(options)
        .env_remove("LD_PRELOAD")
        .env("LD_LIBRARY_PATH", scratch.join(""))
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// The entry of a backend.
fn entry<'a>(report: &'a Value, backend: &str) -> &'a Value {
    let entries = report["backends"].as_array().unwrap();
    entries.iter().find(|e| e["backend"] == backend).unwrap_or_else(|| panic!("{report:#}"))
}

#[test]
fn a_machine_without_devices_says_why_and_is_well() {
    let scratch = Scratch::new();
    let nowhere = [("OPENCL_DYLIB_PATH", "/no/such/library.so")];
    let output = devices(&scratch, &["--json"], &nowhere);
    assert!(output.status.success(), "{output:?}");
    let report = json(&output);
    assert_eq!(report["auto"]["backend"], "cpu");
    assert_eq!(report["backends"].as_array().unwrap().len(), 3);
    let cpu = entry(&report, "cpu");
    assert!(cpu["cores"].as_u64().unwrap() >= 1 && cpu["memory_bytes"].as_u64().unwrap() > 1 << 20);
    assert!(!cpu["simd"].as_str().unwrap().is_empty());
    for (backend, reason) in [("cuda", "libcuda.so.1"), ("opencl", "/no/such/library.so")] {
        let entry = entry(&report, backend);
        assert_eq!(entry["kind"], "absent");
        assert!(entry["reason"].as_str().unwrap().contains(reason), "{entry}");
    }

    let output = devices(&scratch, &[], &nowhere);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let starts = |start: &str| text.lines().any(|line| line.starts_with(start));
    for start in ["backend ", "cpu ", "cuda ", "opencl ", "auto takes cpu: "] {
        assert!(starts(start), "{start}: {text}");
    }
    assert!(text.contains("none: ") && text.contains("/no/such/library.so"), "{text}");
}

#[test]
fn a_device_is_tested_and_measured() {
    if !testkit::require_opencl() {
        return;
    }
    let scratch = Scratch::new();
    let output = devices(&scratch, &["--json"], &[]);
    assert!(output.status.success(), "{output:?}");
    let report = json(&output);
    let found = entry(&report, "opencl:0");
    assert_eq!(found["kind"], "device");
    assert!(found["memory_bytes"].as_u64().unwrap() > 1 << 20);
    for text in ["name", "driver", "target"] {
        assert!(!found[text].as_str().unwrap().is_empty(), "{text}");
    }
    let is_gpu = found["is_gpu"].as_bool().unwrap();
    assert_eq!(report["auto"]["backend"], if is_gpu { "opencl:0" } else { "cpu" });

    let test = &found["self_test"];
    assert_eq!(test["passed"], true);
    let kernels = test["kernels"].as_array().unwrap();
    assert!(kernels.iter().all(|kernel| kernel["passed"] == true));
    for name in ["lpm4", "lpm6", "route", "rpf", "decode", "rewrite", "sort_scatter"] {
        assert_eq!(kernels.iter().filter(|kernel| kernel["kernel"] == name).count(), 1, "{name}");
    }

    let costs = &found["costs"];
    assert_eq!(costs["problem"], Value::Null);
    let launches = costs["launches"].as_array().unwrap();
    let mut latencies: Vec<&Value> = launches.iter().collect();
    let copies = costs["copies"].as_array().unwrap();
    assert!(launches.len() > 1 && copies.len() > 1);
    let sizes: Vec<u64> = copies.iter().map(|copy| copy["bytes"].as_u64().unwrap()).collect();
    assert!(sizes.is_sorted());
    for way in copies.iter().flat_map(|copy| [&copy["up"], &copy["down"]]) {
        assert!(way["streamed_bytes_per_s"].as_f64().unwrap() > 0.0);
        latencies.push(way);
    }
    for latency in latencies {
        let ns = |name: &str| latency[name].as_u64().unwrap();
        assert!(ns("latency_ns_median") > 0);
        assert!(ns("latency_ns_p99") >= ns("latency_ns_median"), "{latency}");
    }

    let output = devices(&scratch, &["--quick"], &[]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    let line = text.lines().find(|line| line.starts_with("opencl:0 ")).unwrap();
    // One that is asked several times is one.
    let names: BTreeSet<_> = kernels.iter().map(|kernel| kernel["kernel"].as_str()).collect();
    assert!(line.contains(&format!("passed: {} kernels", names.len())), "{text}");
    assert!(text.contains("sort_scatter") && !text.contains("streamed"), "{text}");
}

/// PoCL with groups that are too small for the kernels stands for any device that fails.
#[test]
fn a_device_that_fails_is_named_and_fails_the_command() {
    if !testkit::require_opencl() {
        return;
    }
    let scratch = Scratch::new();
    let small = [("POCL_MAX_WORK_GROUP_SIZE", "8")];
    let output = devices(&scratch, &["--json"], &small);
    let report = json(&output);
    let found = entry(&report, "opencl:0");
    if found["group_items_max"] != 8 {
        testkit::skip("the OpenCL platform is not PoCL: its groups have their own size");
        return;
    }
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("opencl:0"), "{output:?}");
    assert_eq!(report["auto"]["backend"], "cpu");
    assert_eq!(found["self_test"]["passed"], false);
    assert_eq!(found["costs"], Value::Null, "what fails is not measured");
    for kernel in found["self_test"]["kernels"].as_array().unwrap() {
        assert_eq!(kernel["passed"], false);
        assert!(kernel["problem"].as_str().unwrap().contains("at most 8 work items"), "{kernel}");
    }

    let output = devices(&scratch, &["--quick"], &small);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("FAILED: ") && text.contains("at most 8 work items"), "{text}");
}

#[test]
fn benches_of_kernels_refuse_what_has_none() {
    for (bench, backend) in
        [("device", "cpu"), ("device", "sim"), ("update", "cpu"), ("update", "sim")]
    {
        let output = Command::new(env!("CARGO_BIN_EXE_shadeline"))
            .args(["bench", bench, "--backend", backend])
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{bench} {backend}: {errors}");
        assert!(errors.contains("expected auto, opencl, opencl:N, cuda or cuda:N"), "{errors}");
    }
}
