//! Random packets through the pipeline and through the plain twin: the same frames, verdicts and drop
//! reasons; no packet and no cell is lost.

use apps::router::PipelineOptions;
use apps::router::reference::{Fate, Outcome};
use chunk::VerdictKind;
use proptest::prelude::*;

use crate::bench::{Bench, Input, Seen};
use crate::random::{Random, input, reference};
use crate::scenario::fib;

pub fn outcome(seen: &Seen) -> Outcome {
    let frame = seen.frame.clone();
    let fate = match seen.verdict.kind() {
        VerdictKind::Forward => Fate::Forward(seen.verdict.port(), frame),
        VerdictKind::Host => Fate::Host(seen.verdict.port(), frame),
        VerdictKind::Drop => Fate::Drop(seen.verdict.reason()),
        VerdictKind::Taken if seen.emitted.is_empty() => Fate::Held,
        VerdictKind::Taken => Fate::Fragmented,
        kind => panic!("no such end: {kind:?}"),
    };
    Outcome { fate, emitted: seen.emitted.clone() }
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 0, ..ProptestConfig::default() })]

    #[test]
    fn the_router_does_what_the_plain_twin_does(seed: u64) {
        let mut random = Random(seed);
        let reference = reference(&mut random);
        let fib = fib(&reference);
        let mut bench = Bench::new(&PipelineOptions::default());
        let inputs: Vec<Input> = (0..1 + random.below(120)).map(|_| input(&mut random)).collect();
        let seen = bench.run(&fib, &inputs);
        let mut ends = std::collections::BTreeMap::<&str, usize>::new();
        for (input, seen) in inputs.iter().zip(&seen) {
            let expected = reference.outcomes(input.port, &input.frame, input.from_host);
            let found = outcome(seen);
            prop_assert!(
                expected.contains(&found),
                "port {} from_host {}: {:02x?}\nrouter: {:02x?}\ntwin: {:02x?}\nconfiguration: {:?}",
                input.port, input.from_host, &input.frame[..input.frame.len().min(200)], found, expected, reference
            );
            let end = match found.fate {
                Fate::Forward(..) => "forwarded",
                Fate::Host(..) => "host",
                Fate::Drop(_) => "dropped",
                Fate::Held => "held",
                Fate::Fragmented => "taken",
            };
            *ends.entry(end).or_default() += 1;
        }
        // Conservation: each packet has one end, and what is held is held.
        prop_assert_eq!(ends.values().sum::<usize>(), inputs.len());
        prop_assert_eq!(bench.held(), ends.get("held").copied().unwrap_or(0));
        let held = bench.held();
        bench.now_ns += reference.options.neighbour_wait_ns;
        bench.tick(&fib);
        prop_assert_eq!(bench.dropped.len(), held);
        bench.finish();
    }
}
