//! Files of ClassBench: all that are there, what a file may have wrong, and what is written is read again.

use crate::common::{SETS, TRACES, classify, rules, shared};
use classify::classbench::{
    NO_FILTER, ProblemKind, Problems, parse_rules, parse_trace, read_rules, write_rules,
    write_trace,
};
use classify::{Condition, Match, Schema};
use proptest::prelude::*;

#[test]
fn every_shared_set_is_read() {
    for (name, count) in SETS {
        let Some(bytes) = shared(name) else { return };
        let file = parse_rules(&bytes).unwrap();
        assert_eq!((file.set.len(), file.host_bits), (count, 0), "{name}");
        let mut written = Vec::new();
        write_rules(&mut written, &file.set, &file.flags).unwrap();
        let again = parse_rules(&written).unwrap();
        assert_eq!(again.flags, file.flags);
        assert!(again.set.iter().eq(file.set.iter()), "{name}");
    }
}

#[test]
fn every_header_of_a_shared_trace_is_in_its_filter() {
    for (name, count) in [(TRACES[0], 10160), (TRACES[1], 10070)] {
        let Some(set) = rules(name) else { return };
        let trace = parse_trace(&shared(&format!("{name}_trace")).unwrap()).unwrap();
        assert_eq!(trace.len(), count);
        for (header, filter) in trace.headers.chunks(4).zip(&trace.filters) {
            assert!(set.schema().matches(set.rule(*filter as usize).words, header));
        }
        let mut written = Vec::new();
        write_trace(&mut written, &trace).unwrap();
        assert_eq!(parse_trace(&written).unwrap(), trace);
    }
}

#[test]
fn blanks_line_ends_and_comments_do_no_harm() {
    let text = b"# a comment\r\n@10.1.2.3/16\t0.0.0.0/0 0:65535  80 : 90 \t0x06/0xff\r\n\r\n  @1.2.3.4/32 5.6.7.8/24 1 : 1 2 : 2 17/0xFF 0x1000/0x0200 99\t\n@0.0.0.0/0 0.0.0.0/0 0 : 65535 0 : 65535 0x06/0x00 0x0000/0x0000";
    let file = parse_rules(text).unwrap();
    assert_eq!(file.flags, [None, Some((0x1000, 0x200)), Some((0, 0))]);
    assert_eq!(file.host_bits, 2);
    let (set, schema) = (&file.set, Schema::five_tuple());
    let condition = |rule: usize, field| schema.condition(set.rule(rule).words, field);
    assert_eq!(condition(0, 0), Condition::Prefix { value: 0x0a01_0000, len: 16 });
    assert_eq!(condition(0, 1), Condition::Prefix { value: 0, len: 0 });
    assert_eq!(condition(0, 3), Condition::Range { low: 80, high: 90 });
    assert_eq!(condition(1, 1), Condition::Prefix { value: 0x0506_0700, len: 24 });
    assert_eq!(condition(1, 4), Condition::Mask { value: 17, mask: 255 });
    assert_eq!(condition(2, 4), Condition::Mask { value: 0, mask: 0 });
    assert_eq!(set.rule(2).place(), Match::new(2, 2));
    let reference = classify::reference::Reference::new(set).unwrap();
    let header = schema.header(&[0x0a01_0909, 4, 5, 85, 6]);
    assert_eq!(classify(&reference, &header), [Match::new(0, 0)]);
}

#[test]
fn each_wrong_rule_has_line_and_reason() {
    let good = "@1.2.3.4/32\t5.6.7.8/32\t0 : 65535\t80 : 80\t0x06/0xFF\t0x0000/0x0000\t\n";
    let cases = [
        (
            "1.2.3.4/32 5.6.7.8/32 0 : 1 80 : 80 0x06/0xFF",
            "expected `@` at the beginning of a rule, found `1.2.3.4/32`",
        ),
        (
            "@1.2.3.4/33 5.6.7.8/32 0 : 1 80 : 80 0x06/0xFF",
            "expected a prefix length of 0 to 32 in the source address, found 33",
        ),
        (
            "@1.2.3.4/3 5.6.7.8/99 0 : 1 80 : 80 0x06/0xFF",
            "expected a prefix length of 0 to 32 in the destination address, found 99",
        ),
        (
            "@1.2.3.4/32 5.6.7.8/32 9 : 1 80 : 80 0x06/0xFF",
            "the range of the source port is reversed: 9 : 1",
        ),
        (
            "@1.2.3.4/32 5.6.7.8/32 0 : 1 80 : 79 0x06/0xFF",
            "the range of the destination port is reversed: 80 : 79",
        ),
        (
            "@1.2.3.4/32 5.6.7.8/32 0 : 65536 80 : 80 0x06/0xFF",
            "expected a source port of 0 to 65535, found 65536",
        ),
        (
            "@1.2.3.4/32 5.6.7.8/32 0 : 1 80 : 80 0x06/0xF0",
            "expected a protocol mask of 0xFF (this protocol) or 0x00 (any), found 0xF0",
        ),
        (
            "@1.2.3.4/32 5.6.7.8/32 0 : 1 80 : 80 0x106/0xFF",
            "expected a protocol of 0 to 255, found 262",
        ),
        (
            "@1.2.3/32 5.6.7.8/32 0 : 1 80 : 80 0x06/0xFF",
            "expected an IPv4 prefix, such as 10.1.0.0/16, found `1.2.3/32`",
        ),
        (
            "@1.2.3.256/32 5.6.7.8/32 0 : 1 80 : 80 0x06/0xFF",
            "expected an IPv4 prefix, such as 10.1.0.0/16, found `1.2.3.256/32`",
        ),
        (
            "@1.2.3.4/32 5.6.7.8/32 0 1 80 : 80 0x06/0xFF",
            "expected a range of ports, such as 0 : 65535, found `0`",
        ),
        (
            "@1.2.3.4/32 5.6.7.8/32 0 : 1 80 : 80",
            "expected a protocol and its mask, such as 0x06/0xFF, found `the end of the line`",
        ),
        (
            "@1.2.3.4/32 5.6.7.8/32 0 : 1 80 : 80 0x06/0xFF x",
            "expected flags and their mask, such as 0x0000/0x0200, found `x`",
        ),
    ];
    for (line, reason) in cases {
        let problems = parse_rules(format!("{good}{line}\r\n{good}").as_bytes()).unwrap_err();
        assert_eq!(problems.to_string(), format!("line 2: {reason}"));
    }
    let many = "1\n".repeat(150);
    let problems = parse_rules(many.as_bytes()).unwrap_err();
    assert_eq!((problems.first.len(), problems.count), (Problems::KEPT, 150));
    assert!(problems.to_string().ends_with("\nand 50 more"));
    let problems = read_rules(std::path::Path::new("no such file")).unwrap_err();
    assert!(problems.to_string().starts_with("no such file, cannot be read: "), "{problems}");
}

#[test]
fn traces_have_five_columns_or_more() {
    let trace =
        parse_trace(b"1\t2\t3\t4\t5\r\n1 2 3 4 5 9\n4294967295 2 65535 4 255 512 7\n").unwrap();
    assert_eq!(trace.filters, [NO_FILTER, 9, 7]);
    assert_eq!(trace.headers[..4], [1, 2, 3 << 16 | 4, 5 << 24]);
    let wrong = |line: &str| {
        let problems = parse_trace(format!("1 2 3 4 5\n{line}\n").as_bytes()).unwrap_err();
        assert_eq!(problems.first[0].line, 2);
        problems.first[0].kind.clone()
    };
    assert_eq!(wrong("1 2 3 4"), ProblemKind::Columns { expected: 5, found: 4 });
    assert!(matches!(wrong("1 2 3 4x 5"), ProblemKind::Expected { found, .. } if found == "4x"));
    assert!(matches!(wrong("1 2 65536 4 5"), ProblemKind::Range { found: 65536, .. }));
    assert!(matches!(wrong("1 2 3 4 256"), ProblemKind::Range { max: 255, .. }));
    assert!(matches!(wrong("1 2 3 4 5 0 4294967295"), ProblemKind::Range { .. }));
    assert!(matches!(wrong("-1 2 3 4 5"), ProblemKind::Expected { .. }));
}

/// Another schema has no file.
#[test]
fn only_the_five_tuple_is_written() {
    let set = classify::RuleSet::new(Schema::five_tuple_v6());
    assert!(write_rules(Vec::new(), &set, &[]).is_err());
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = (parse_rules(&bytes), parse_trace(&bytes));
    }

    /// A good line with one byte changed.
    #[test]
    fn a_changed_byte_is_read_or_refused(at in 0..60_usize, byte in any::<u8>()) {
        let mut line = *b"@1.2.3.4/32\t5.6.7.8/32\t0 : 65535\t80 : 80\t0x06/0xFF\t0x00/0x00";
        line[at] = byte;
        if let Ok(file) = parse_rules(&line) {
            let mut written = Vec::new();
            write_rules(&mut written, &file.set, &file.flags).unwrap();
            prop_assert!(parse_rules(&written).unwrap().set.iter().eq(file.set.iter()));
        }
    }
}
