//! The live router with a device (PoCL): hosts reach each other, and routes change while packets flow
//! through it, not one of them lost.

mod common;

use std::time::Duration;

use common::{Live, ping};
use testkit::wait_until;

#[test]
fn packets_pass_a_device_while_routes_change() {
    if !testkit::require_opencl() {
        return;
    }
    let engine = "[engine]\nbackend = \"opencl\"\noffload = \"always\"\nmax_delay = \"300us\"\n";
    let Some(mut live) = Live::start("device", "af_packet", engine) else { return };
    let left = &live.net.left;
    for to in ["10.0.2.2", "fd00:2::2"] {
        // The first answer may wait for a neighbour, and for the device.
        assert!(wait_until(Duration::from_secs(60), || ping(left, to, 1) == 1), "{to}");
        assert_eq!(ping(left, to, 20), 20, "{to}");
    }
    live.count_udp();
    const COUNT: u64 = 60_000;
    let mut flood = live.flood("20kpps", COUNT);
    for i in 0..40 {
        live.ctl(&format!("route add 172.16.{i}.0/24 10.0.2.2"));
        live.ctl(&format!("route replace 172.16.{i}.0/24 blackhole"));
        live.ctl(&format!("route del 172.16.{i}.0/24"));
    }
    flood.wait(Duration::from_secs(60));
    assert!(
        wait_until(Duration::from_secs(10), || live.counted_udp() >= COUNT),
        "{} of {COUNT} arrived; drops: {:?}",
        live.counted_udp(),
        live.drops()
    );
    let runtime = live.ctl("show runtime");
    let device = runtime.lines().last().unwrap_or_default().to_owned();
    assert!(device.contains("  up  "), "the device is still in use: {runtime}");
    let end = live.stop();
    let totals = end.lines().find(|line| line.starts_with("device ")).unwrap_or_default();
    assert!(totals.contains(", 0 jobs repeated on the CPU"), "{end}");
    let jobs = totals.rsplit(": ").next().and_then(|rest| rest.split(' ').next());
    let jobs = jobs.map(|n| n.replace(',', "")).and_then(|n| n.parse::<u64>().ok());
    assert!(jobs.is_some_and(|n| n > 100), "{end}");
}
