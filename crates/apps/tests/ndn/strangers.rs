//! Interests that wait for control: the first of a stranger, and commands.

use std::net::IpAddr;

use apps::ndn::{Ask, Face, NdnPatch, NdnPort, Question, UdpEnds, reasons};
use packet::ndn::InterestFields;

use crate::stages::{Bench, OURS, TAKEN, data, face, interest, interest_with, mac, uri};

/// A stranger's ends as we see them, ours first.
fn ends(sport: u16) -> UdpEnds {
    let addresses = ["10.0.0.1", "10.0.0.9"].map(|text| text.parse::<IpAddr>().unwrap());
    UdpEnds { addresses, ports: [6363, sport] }
}

/// A stranger's datagram on port 2.
fn stranger(sport: u16, ndn: &[u8]) -> (u16, Vec<u8>) {
    let frame = testkit::frames::Frame::new().macs(mac(9), OURS);
    (2, frame.ipv4("10.0.0.9", "10.0.0.1").udp(sport, 6363, ndn).bytes())
}

fn port(on_demand: bool) -> NdnPatch {
    let addresses = vec!["10.0.0.1".parse().unwrap()];
    NdnPatch::Port(
        2,
        Some(NdnPort { up: true, mac: OURS, addresses, on_demand, ..NdnPort::default() }),
    )
}

fn made(number: u16, sport: u16) -> NdnPatch {
    let neighbour_mac = Some(mac(9));
    let made = Face { udp: Some(ends(sport)), neighbour_mac, on_demand: true, ..face(2) };
    NdnPatch::Face(number, Some(made))
}

fn publish(bench: &mut Bench, patches: &[NdnPatch]) {
    use lookup::versions::Patchable;
    patches.iter().for_each(|patch| bench.tables.apply(patch));
}

#[test]
fn a_stranger_waits_for_its_face() {
    let (mut bench, questions) = Bench::asking();
    let refused =
        |bench: &mut Bench, frame: (u16, Vec<u8>)| bench.run(&[frame]).remove(0).own.unwrap_err();
    publish(&mut bench, &[port(false)]);
    assert_eq!(refused(&mut bench, stranger(5000, &interest("/a/x", 1))), reasons::NDN_NO_FACE);
    publish(&mut bench, &[port(true)]);
    assert_eq!(refused(&mut bench, stranger(5000, &data("/a/x"))), reasons::NDN_NO_FACE);
    assert_eq!(refused(&mut bench, stranger(5000, &[5, 9])), reasons::NDN_MALFORMED);
    // Two packets of one, and one of another, whom control has no room for.
    let frames = [(5000, "/a/x", 1), (5001, "/a/y", 2), (5000, "/nowhere", 3)];
    let frames = frames.map(|(sport, name, nonce)| stranger(sport, &interest(name, nonce)));
    for fate in bench.run(&frames) {
        assert_eq!(fate.own, Ok((TAKEN, Vec::new())));
    }
    assert_eq!(bench.held(), 3);
    let all: Vec<Question> = questions.try_iter().collect();
    let numbers: Vec<_> = all.iter().map(|question| (question.worker, question.number)).collect();
    assert_eq!(numbers, [(0, 1), (0, 2), (0, 3)]);
    assert!(
        matches!(all[0].ask, Ask::Face(2, found, from) if found == ends(5000) && from == mac(9))
    );
    assert_eq!(bench.tick(), (vec![], vec![]), "control has not settled anything");
    publish(&mut bench, &[made(7, 5000), NdnPatch::Full(vec![true; 4]), NdnPatch::Settled(0, 2)]);
    let (dropped, sent) = bench.tick();
    assert_eq!((dropped, sent.len(), sent[0].0), (vec![reasons::NDN_FACES_FULL], 1, 1));
    assert_eq!(bench.counters.face(7).unwrap().in_interests.get(), 1);
    // The third is settled: it has no route, and a Nack goes to the new face.
    publish(&mut bench, &[NdnPatch::Settled(0, 3)]);
    let (dropped, sent) = bench.tick();
    assert_eq!((dropped, sent.len(), sent[0].0), (vec![kernels::reasons::NO_ROUTE], 1, 2));
    assert_eq!(bench.held(), 0);
    // Data comes back to the port that it asked from.
    let (to, frame) = bench.one(1, &data("/a/x")).own.unwrap();
    assert_eq!((to, &frame[..6]), (2, &mac(9)[..]));
    let d = packet::decode(&frame, frame.len());
    assert_eq!((d.ports(), d.dst_ip()), (Some((6363, 5000)), Some(ends(0).addresses[1])));
    assert_eq!(refused(&mut bench, stranger(5001, &interest("/a/z", 4))), reasons::NDN_FACES_FULL);
    // From another MAC: control hears of it, once in a while, and the packet goes on.
    let mut moved = stranger(5000, &interest("/a/w", 5)).1;
    moved[6..12].copy_from_slice(&mac(8));
    for _ in 0..2 {
        assert!(bench.run(&[(2, moved.clone())])[0].own.is_ok());
        moved = stranger(5000, &interest("/a/v", 6)).1;
        moved[6..12].copy_from_slice(&mac(8));
    }
    let asked: Vec<Question> = questions.try_iter().collect();
    assert!(matches!(asked[..], [Question { ask: Ask::Mac(7, from), .. }] if from == mac(8)));
}

#[test]
fn nobody_waits_for_ever() {
    let (mut bench, questions) = Bench::asking();
    publish(&mut bench, &[port(true)]);
    let frames: Vec<_> =
        (0..6).map(|at| stranger(5000 + at, &interest("/a/x", at.into()))).collect();
    let fates: Vec<_> = bench.run(&frames).into_iter().map(|fate| fate.own).collect();
    assert_eq!(fates[3], Ok((TAKEN, Vec::new())));
    assert_eq!(fates[4], Err(reasons::NDN_CONTROL_BUSY), "the queue of questions is full");
    bench.now_ns += 1_999_999_999;
    assert_eq!(bench.tick(), (vec![], vec![]));
    bench.now_ns += 1;
    assert_eq!(bench.tick(), (vec![reasons::NDN_CONTROL_BUSY; 4], vec![]));
    assert_eq!((bench.held(), questions.try_iter().count()), (0, 4));
}

#[test]
fn a_command_waits_for_its_answer() {
    let (mut bench, questions) = Bench::asking();
    for (name, hop_limit) in
        [("/localhost/nfd/rib", Some(9)), ("/localhop/x", None), ("/localhop", None)]
    {
        let fields = InterestFields { nonce: Some(1), hop_limit, ..InterestFields::default() };
        let fate = bench.one(0, &interest_with(name, fields));
        assert_eq!(fate.own, Err(reasons::NDN_SCOPE), "{name}");
    }
    let name = "/localhop/nfd/rib/register/x";
    let last_hop =
        InterestFields { nonce: Some(1), hop_limit: Some(1), ..InterestFields::default() };
    let command = interest_with(name, last_hop);
    assert_eq!(bench.one(3, &command).own, Ok((TAKEN, Vec::new())));
    let asked = questions.try_recv().unwrap();
    assert!(matches!(&asked.ask, Ask::Command(3, packet) if packet[..] == command[..]));
    let answer = data(name);
    let key = uri(name).name().value().to_vec();
    let patch = NdnPatch::Answer(key.clone(), Some(answer.clone().into()));
    publish(&mut bench, &[patch, NdnPatch::Settled(0, 1)]);
    let (dropped, sent) = bench.tick();
    assert_eq!(dropped, []);
    assert_eq!(sent[0].0, 3);
    assert!(sent[0].1.ends_with(&answer));
    // The same again is answered at once, until the answer is gone.
    assert!(bench.one(0, &command).own.unwrap().1.ends_with(&answer));
    assert!(questions.try_recv().is_err());
    publish(&mut bench, &[NdnPatch::Answer(key, None)]);
    assert_eq!(bench.one(0, &command).own, Ok((TAKEN, Vec::new())));
    publish(&mut bench, &[NdnPatch::Settled(0, 2)]);
    assert_eq!(bench.tick(), (vec![reasons::NDN_CONTROL_BUSY], vec![]), "there is no answer");
}
