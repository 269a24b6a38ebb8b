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

/// A pipeline with a stage for each limit.
fn stages(limits: &[Limit]) -> Stages<u64> {
    let mut stages: Stages<u64> = vec![Box::new(Around("decode"))];
    for (name, limit) in ["edge", "inner"].iter().zip(limits) {
        let counters = Arc::new(Counters::new(&DscpLimit::COUNTERS));
        stages.push(Box::new(ByRow::<DscpLimit>::new(name, limit.clone(), counters)));
    }
    stages.push(Box::new(Around("end")));
    stages
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

/// What the stages say they do, one after the other, frame by frame.
fn reference(limits: &[Limit], frames: &[Vec<u8>]) -> Answer {
    let mut answer = Answer { ports: vec![frames.to_vec()], ..Answer::default() };
    for limit in limits {
        let frames = std::mem::take(&mut answer.ports[0]);
        apply(limit, frames, &mut answer);
    }
    answer
}

fn apply(limit: &Limit, frames: Vec<Vec<u8>>, answer: &mut Answer) {
    let mut others = 0;
    for mut frame in frames {
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
}

#[test]
fn the_kernel_is_what_its_file_declares() {
    assert_eq!(kernels::problems(&[&KERNEL]), Vec::<String>::new());
}

fn program(args: &[&str]) -> String {
    let own = std::process::Command::new(env!("CARGO_BIN_EXE_own-stage"))
        .args(args)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("the program starts");
    let said = String::from_utf8_lossy(&own.stdout).into_owned();
    assert!(own.status.success(), "{args:?}: {said}{}", String::from_utf8_lossy(&own.stderr));
    said
}

/// Behind a firewall that marks some packets and rejects others: the stage sees the marks, and the errors quote packets
/// that it has not touched. The bytes are the same on every backend, for every size of chunks and number of workers.
#[test]
fn it_works_behind_a_firewall() {
    let folder = testkit::Scratch::new();
    let own = |chunk: u16, workers: u16| {
        format!(
            "mode = \"own\"\n[pipeline.own]\n\
             stages = [\"decode\", \"firewall\", \"edge\", \"route\", \"rewrite\"]\n\
             [system]\nworkers = {workers}\n[engine]\nchunk = {chunk}\n\
             [stage.edge]\nkind = \"dscp_limit\"\ntrust = [5]\nremark = 10\n\
             [port.lan]\naddresses = [\"192.0.2.1/24\"]\n[port.wan]\naddresses = [\"198.51.100.1/24\"]\n\
             [[route]]\nprefix = \"0.0.0.0/0\"\nvia = \"198.51.100.2\"\n\
             [[rule]]\nproto = \"udp\"\ndport = 53\naction = \"reject\"\n\
             [[rule]]\nproto = \"udp\"\naction = \"mark 46, accept\"\n"
        )
    };
    let mut frames = Vec::new();
    for i in 0..2000u32 {
        let frame = testkit::frames::Frame::new().ipv4(&format!("192.0.2.{}", 2 + i % 7), "10.1.2.3");
        let frame = frame.udp(1000, [53, 80, 5000][(i * i % 3) as usize], &i.to_be_bytes());
        frames.push(testkit::pcap::Record::new(1_700_000_000_000_000_000 + u64::from(i) * 1_000_000, frame.bytes()));
    }
    let capture = folder.path().join("in.pcap");
    testkit::pcap::write_pcap(&capture, &frames);
    let mut seen = Vec::new();
    for (backend, chunk, workers) in [("cpu", 256, 1), ("cpu", 16, 3), ("sim", 256, 1), ("sim", 16, 3), ("sim", 256, 1)]
    {
        let config = folder.path().join("own.toml");
        std::fs::write(&config, own(chunk, workers)).expect("a configuration");
        let out = folder.path().join("out");
        let _ = std::fs::remove_dir_all(&out);
        let read = format!("lan={}", capture.display());
        let (config, out) = (config.to_str().unwrap(), out.to_str().unwrap());
        program(&["run", config, "-r", &read, "-w", out, "--backend", backend]);
        let files = ["lan.pcapng", "wan.pcapng", "dropped.pcapng"];
        seen.push(files.map(|name| std::fs::read(format!("{out}/{name}")).expect(name)));
    }
    for other in &seen[1..] {
        assert!(seen[0] == *other, "backends, chunks or workers change bytes");
    }
    let marked = seen[0][1].windows(2).filter(|two| *two == [0x45, 46 << 2]).count();
    let quoted = seen[0][0].windows(2).filter(|two| *two == [0x45, 10 << 2]).count();
    assert!(marked > 1000 && quoted == 0, "{marked} packets with the mark, {quoted} quoted with another one");
}

/// The program over a capture, as its page shows it.
#[test]
fn the_program_has_the_stage() {
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
        limits in prop::collection::vec((prop::collection::vec(0..8u8, 0..5), 0..64u8), 1..=2),
        frames in prop::collection::vec(frame(), 1..600),
        seed: u64,
    ) {
        let limits = limits.into_iter().map(|(trust, remark)| Limit { trust, remark, rate: 0 });
        let limits: Vec<_> = limits.collect();
        let answer = reference(&limits, &frames);
        let subject = |workers: usize| {
            let workers = (0..workers).map(|_| stages(&limits)).collect();
            Subject { workers, state: Box::new(Vec::new) }
        };
        Case::new("dscp_limit", frames, &subject).check_random(seed, 2, Some(&answer));
    }

    #[test]
    fn what_is_over_the_limit_is_dropped(
        rate in 1..200u32,
        frames in prop::collection::vec(frame(), 1..600),
    ) {
        let limits = [Limit { trust: vec![1], remark: 0, rate }];
        let answer = reference(&limits, &frames);
        let subject = |_| Subject {
            workers: vec![stages(&limits)],
            state: Box::new(Vec::new),
        };
        // A run that two seconds share lets more pass; the next one does not.
        let case = Case::new("dscp_limit", frames, &subject);
        let is_right = (0..3).any(|_| case.run(&Setup::cpu()).0 == answer);
        prop_assert!(is_right);
    }
}
