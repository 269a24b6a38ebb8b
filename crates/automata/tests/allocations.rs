//! Once its buffers have grown, a thread scans without allocating.

use automata::{Automaton, Finder, Pattern, Patterns, Scratch, Segment};

#[test]
fn batches_allocate_nothing() {
    let mut patterns = Patterns::default();
    for number in 0..500_u32 {
        patterns.insert(Pattern::new(format!("number {number}").as_bytes()).nocase()).unwrap();
        patterns.insert(Pattern::new(format!("Number {number}").as_bytes())).unwrap();
    }
    let automaton = Automaton::new(&patterns).unwrap();
    let finder = Finder::new(&patterns).unwrap();
    let text = "a number 17, then a NUMBER 499 and a Number 3; ".repeat(40);
    let state = automaton.start();
    let mut segments: Vec<Segment<'_>> =
        text.as_bytes().chunks(60).map(|bytes| Segment { state, offset: 0, bytes }).collect();
    let (mut found, mut scratch) = (Vec::new(), Scratch::default());
    let mut round = || {
        found.clear();
        automaton.walk_many(&mut segments, &mut found);
        automaton.filter_many(&mut segments, &mut found, &mut scratch);
        automaton.scan_many(&mut segments, &mut found, &mut scratch);
        finder.find_many(&segments, &mut found, &mut scratch);
        for segment in &mut segments {
            segment.state = automaton.scan(segment.state, segment.bytes, 0, |_| ());
        }
        found.len()
    };
    assert!(round() > 300);
    let counted = allocation_counter::measure(|| assert!(round() > 300));
    assert_eq!(counted.count_total, 0);
    let control = allocation_counter::measure(|| drop(std::hint::black_box(vec![0u8; 100])));
    assert_eq!(control.count_total, 1);
}
