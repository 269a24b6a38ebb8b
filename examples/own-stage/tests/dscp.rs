//! The stage against a plain reference, on the CPU, the simulated device and PoCL.

use std::sync::Arc;

use chunk::{Chunk, Columns, Declaration, Verdict};
use controlplane::{ByRow, Counters, RowStage};
use engine::{Context, Stage};
use own_stage::{DSCP_LIMITED, DscpColumns, DscpLimit, DscpView, KERNEL, Limit};
use proptest::prelude::*;
use teststages::harness::{Answer, Case, Setup, Stages, Subject};

/// What stands around the stage: a `decode` that says where the IP header is, and an end.
struct Around(&'static str);

impl Stage<u64> for Around {
    fn name(&self) -> &'static str {
        self.0
    }
    fn columns(&self) -> &'static [Declaration] {
        &[DscpColumns::COLUMNS]
    }
    fn pre_shade(&mut self, chunk: &mut Chunk, _: &mut Context<'_, u64>) {
        if self.0 == "decode" {
            DscpColumns::view(&mut chunk.rows).l3.fill(14);
        }
    }
    fn post_shade(&mut self, chunk: &mut Chunk, _: &mut Context<'_, u64>) {
        let DscpView { verdict, .. } = DscpColumns::view(&mut chunk.rows);
        for verdict in verdict.iter_mut().filter(|v| self.0 == "end" && Verdict(**v).is_next()) {
            *verdict = Verdict::forward(0).0;
        }
    }
}

fn stages(limit: &Limit) -> Stages<u64> {
    let counters = Arc::new(Counters::new(&DscpLimit::COUNTERS));
    let own = ByRow::<DscpLimit>::new("edge", limit.clone(), counters);
    vec![Box::new(Around("decode")), Box::new(own), Box::new(Around("end"))]
}

/// A frame of a flow: IPv4, IPv6 or neither, with any DSCP.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    (0..40u8, prop::sample::select(vec![4u8, 6, 0]), 0..64u8).prop_map(|(flow, version, dscp)| {
        let mut frame = vec![flow; 60];
        frame[14] = version << 4 | 5;
        packet::ipv4::fill_checksum(&mut frame[14..]);
        packet::set_dscp(&mut frame[14..], dscp);
        frame
    })
}

/// What the stage says it does, frame by frame.
fn reference(limit: &Limit, frames: &[Vec<u8>]) -> Answer {
    let mut others = 0;
    let mut answer = Answer { ports: vec![Vec::new()], ..Answer::default() };
    for frame in frames {
        let mut frame = frame.clone();
        if let Some(dscp) = packet::dscp(&frame[14..])
            && !limit.trust.contains(&(dscp / 8))
        {
            others += 1;
            if limit.rate > 0 && others > limit.rate {
                *answer.drops.entry(DSCP_LIMITED.code()).or_default() += 1;
                continue;
            }
            packet::set_dscp(&mut frame[14..], limit.remark);
        }
        answer.ports[0].push(frame);
    }
    answer
}

#[test]
fn the_kernel_is_what_its_file_declares() {
    assert_eq!(kernels::problems(&[&KERNEL]), Vec::<String>::new());
}

/// The program over a capture, as its page shows it.
#[test]
fn the_program_has_the_stage() {
    let program = |args: &[&str]| {
        let own = std::process::Command::new(env!("CARGO_BIN_EXE_own-stage"))
            .args(args)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .expect("the program starts");
        let said = String::from_utf8_lossy(&own.stdout).into_owned();
        assert!(own.status.success(), "{args:?}: {said}{}", String::from_utf8_lossy(&own.stderr));
        said
    };
    let said = program(&["stages", "dscp_limit"]);
    assert!(said.contains("dscp_limited") && said.contains("trust"), "{said}");
    let out = testkit::Scratch::new();
    let out = out.path().join("out");
    program(&["run", "dscp.toml", "-r", "../../shadeline/data/demo.pcap", "-w", out.to_str().unwrap()]);
    let statistics = std::fs::read_to_string(out.join("stats.json")).expect("statistics");
    let statistics: serde_json::Value = serde_json::from_str(&statistics).expect("JSON");
    let stages = statistics["stages"].as_array().expect("stages");
    let own = stages.iter().find(|row| row["stage"] == "edge").expect("the stage by its name");
    assert!(own["packets"].as_u64() > Some(0), "{own}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 0, ..ProptestConfig::default() })]

    #[test]
    fn packets_are_remarked_as_the_reference_says(
        trust in prop::collection::vec(0..8u8, 0..5),
        remark in 0..64u8,
        frames in prop::collection::vec(frame(), 1..600),
        seed: u64,
    ) {
        let trust: std::collections::BTreeSet<u8> = trust.into_iter().collect();
        let limit = Limit { trust: trust.into_iter().collect(), remark, rate: 0 };
        let answer = reference(&limit, &frames);
        let subject = |workers: usize| {
            let workers = (0..workers).map(|_| stages(&limit)).collect();
            Subject { workers, state: Box::new(Vec::new) }
        };
        Case::new("dscp_limit", frames, &subject).check_random(seed, 2, Some(&answer));
    }

    #[test]
    fn what_is_over_the_limit_is_dropped(
        rate in 1..200u32,
        frames in prop::collection::vec(frame(), 1..600),
    ) {
        let limit = Limit { trust: vec![1], remark: 0, rate };
        let answer = reference(&limit, &frames);
        let subject = |_| Subject {
            workers: vec![stages(&limit)],
            state: Box::new(Vec::new),
        };
        // A run that two seconds share lets more pass; the next one does not.
        let case = Case::new("dscp_limit", frames, &subject);
        let is_right = (0..3).any(|_| case.run(&Setup::cpu()).0 == answer);
        prop_assert!(is_right);
    }
}
