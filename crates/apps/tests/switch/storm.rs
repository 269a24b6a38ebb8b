//! Storm control: each kind has its own bucket, at each port.

use apps::switch::reasons;
use lookup::bridge::{BridgePort, MacLimits, StormLimits, StormRate};

use crate::bench::{Bench, frame, mac};

#[test]
fn what_is_flooded_is_limited_by_kind() {
    let limit = |packets_per_s, burst| Some(StormRate { packets_per_s, burst });
    let (broadcast, multicast, unknown) = (limit(100, 3), limit(100, 5), limit(0, 9));
    let storm = StormLimits { broadcast, multicast, unknown };
    let mut ports: Vec<_> = (0..3).map(|n| Some(BridgePort::access(format!("p{n}"), 1))).collect();
    ports[0] = Some(BridgePort { storm, ..BridgePort::access("p0", 1) });
    let mut bench = Bench::new(ports, MacLimits::default(), 100);
    let _ = bench.one(1, &frame([0xff; 6], mac(1), None));
    bench.control();
    let kinds = [([0xff; 6], 3), ([1, 0, 0x5e, 0, 0, 9], 5), (mac(99), 0), (mac(1), 10)];
    for (dst, passes) in kinds {
        let inputs: Vec<(u16, Vec<u8>)> = (0..10).map(|_| (0, frame(dst, mac(2), None))).collect();
        let sent = bench.run(&inputs);
        for (row, sent) in sent.iter().enumerate() {
            match row < passes {
                true => assert!(sent.is_ok(), "{dst:x?} {row}"),
                false => assert_eq!(*sent, Err(reasons::STORM_CONTROL), "{dst:x?} {row}"),
            }
        }
        // Other ports have no limit.
        let inputs: Vec<(u16, Vec<u8>)> = (0..10).map(|_| (2, frame(dst, mac(3), None))).collect();
        assert!(bench.run(&inputs).iter().all(Result::is_ok));
    }
    // After a second the bucket is full again, and no fuller.
    bench.now_ns += 1_000_000_000;
    let inputs: Vec<(u16, Vec<u8>)> =
        (0..10).map(|_| (0, frame([0xff; 6], mac(2), None))).collect();
    assert_eq!(bench.run(&inputs).iter().filter(|sent| sent.is_ok()).count(), 3);
    bench.finish();
}
