//! The measurements, as far as they do not depend on the machine's speed.

use std::time::Duration;

use device::measure::{Plan, measure};

use crate::fixture::opencl;

#[test]
fn everything_that_is_planned_is_measured() {
    let Some(mut driver) = opencl() else { return };
    let plan = Plan {
        launches: 5,
        items: vec![1, 300],
        copies: 3,
        bytes: vec![256, 1 << 20],
        streamed_bytes: 4 << 20,
        patience: Duration::from_secs(60),
        ..Plan::default()
    };
    let costs = measure(&mut *driver, &plan).unwrap();
    assert_eq!(costs.launches.iter().map(|l| l.items).collect::<Vec<_>>(), plan.items);
    assert_eq!(costs.copies.iter().map(|c| c.bytes).collect::<Vec<_>>(), plan.bytes);
    for launch in &costs.launches {
        assert!(0 < launch.latency_ns_median && launch.latency_ns_median <= launch.latency_ns_p99);
    }
    for way in costs.copies.iter().flat_map(|c| [c.up, c.down]) {
        assert!(0 < way.latency_ns_median && way.latency_ns_median <= way.latency_ns_p99);
        assert!(way.streamed_bytes_per_s.is_finite() && way.streamed_bytes_per_s > 0.0);
    }
    assert_eq!(costs.unregistered, None);
}
