//! Sets, reputations and what Base64 hides: rules as files have them, and what they match.

use std::io::{self, BufRead};
use std::sync::Arc;

use detect::{
    Alert, BufferPart, Datasets, Detector, FlowState, Options, Packet, Reputation, Ruleset, Sender,
};
use signatures::{Buffer, Loader, RuleSet, Variables};

use crate::packets::datagram;

fn rules(text: &str) -> RuleSet {
    let mut loader = Loader::new(Variables::with_defaults([], []).expect("defaults"));
    loader.read("rules", text.as_bytes()).expect("memory");
    let set = loader.finish();
    assert!(set.problems.is_empty(), "{:?}", set.problems);
    set
}

/// Files of values by name.
type Files = &'static [(&'static str, &'static str)];

fn prepare(set: &RuleSet, before: &Datasets, files: Files) -> (Datasets, Vec<String>) {
    Datasets::prepare(set, before, |name, rules| {
        assert_eq!(rules, 0, "the file of rules that names it");
        match files.iter().find(|(own, _)| *own == name) {
            Some((_, text)) => Ok(Box::new(text.as_bytes()) as Box<dyn BufRead>),
            None => Err(io::Error::from(io::ErrorKind::NotFound)),
        }
    })
}

/// Buffers and what is in them.
type Buffers<'a> = &'a [(Buffer, &'a str)];

struct Bench {
    detector: Detector,
    flow: FlowState,
    transaction: u64,
}

impl Bench {
    fn new(set: &RuleSet, options: &Options) -> Self {
        let variables = Variables::with_defaults([], []).expect("defaults");
        let (rules, refused) = Ruleset::compile(set, &variables, options);
        assert!(refused.is_empty(), "{refused:?}");
        let flow = FlowState::new(1);
        Self { detector: Detector::new(Arc::new(rules)), flow, transaction: 0 }
    }

    /// A step with a packet from 10.0.0.`host` and, of a transaction of its own, a buffer.
    fn give(&mut self, host: u8, payload: &[u8], buffer: Option<(Buffer, &[u8])>) -> Vec<u32> {
        let frame = datagram(([10, 0, 0, host], 4000), ([10, 0, 0, 200], 53), 64, payload);
        let decoded = packet::decode(&frame, frame.len());
        let packet = Packet { decoded: &decoded, frame: &frame, time_ns: 1_000_000_000 };
        let mut alerts: Vec<Alert> = Vec::new();
        self.detector.begin(&packet, &mut self.flow, Sender::Client);
        if let Some((buffer, bytes)) = buffer {
            self.transaction += 1;
            let part = BufferPart {
                buffer,
                sender: Sender::Client,
                transaction: self.transaction,
                number: 0,
                bytes,
                is_complete: true,
            };
            self.detector.buffer(&mut self.flow, &part);
        }
        self.detector.finish(&mut self.flow, &mut alerts);
        let rules = self.detector.rules();
        alerts.iter().map(|alert| rules.rule(alert.rule).sid).collect()
    }

    /// The same with buffers of one transaction.
    fn buffers(&mut self, payload: &[u8], buffers: Buffers<'_>) -> Vec<u32> {
        self.transaction += 1;
        let frame = datagram(([10, 0, 0, 1], 4000), ([10, 0, 0, 200], 53), 64, payload);
        let decoded = packet::decode(&frame, frame.len());
        let packet = Packet { decoded: &decoded, frame: &frame, time_ns: 1_000_000_000 };
        self.detector.begin(&packet, &mut self.flow, Sender::Client);
        for (buffer, text) in buffers {
            let part = BufferPart {
                buffer: *buffer,
                sender: Sender::Client,
                transaction: self.transaction,
                number: 0,
                bytes: text.as_bytes(),
                is_complete: true,
            };
            self.detector.buffer(&mut self.flow, &part);
        }
        let mut alerts: Vec<Alert> = Vec::new();
        self.detector.finish(&mut self.flow, &mut alerts);
        let rules = self.detector.rules();
        alerts.iter().map(|alert| rules.rule(alert.rule).sid).collect()
    }

    /// A step with a buffer of a transaction of its own, in so many pieces.
    fn pieces(&mut self, buffer: Buffer, bytes: &[u8], pieces: usize) -> Vec<u32> {
        self.transaction += 1;
        let frame = datagram(([10, 0, 0, 1], 4000), ([10, 0, 0, 200], 53), 64, b"x");
        let decoded = packet::decode(&frame, frame.len());
        let packet = Packet { decoded: &decoded, frame: &frame, time_ns: 1_000_000_000 };
        self.detector.begin(&packet, &mut self.flow, Sender::Client);
        let size = bytes.len().div_ceil(pieces);
        let mut left = bytes.len();
        for bytes in bytes.chunks(size) {
            left -= bytes.len();
            let (sender, transaction, is_complete) = (Sender::Client, self.transaction, left == 0);
            let part = BufferPart { buffer, sender, transaction, number: 0, bytes, is_complete };
            self.detector.buffer(&mut self.flow, &part);
        }
        let mut alerts: Vec<Alert> = Vec::new();
        self.detector.finish(&mut self.flow, &mut alerts);
        let rules = self.detector.rules();
        alerts.iter().map(|alert| rules.rule(alert.rule).sid).collect()
    }

    fn host(&mut self, name: &str) -> Vec<u32> {
        self.give(1, b"", Some((Buffer::HttpHost, name.as_bytes())))
    }
}

const HOSTS: &str = r#"
alert ip any any -> any any (http.host; dataset:isset,known,type string,load known.lst; sid:1;)
alert ip any any -> any any (http.host; dataset:isnotset,known; sid:2;)
alert ip any any -> any any (http.host; content:".test"; dataset:set,seen,type string,memcap 300b,save seen.lst; sid:3;)
alert ip any any -> any any (http.user_agent; dataset:unset,seen; sid:4;)
alert ip any any -> any any (http.host; to_md5; dataset:isset,digests,type md5,load md5.lst; sid:5;)
alert ip any any -> any any (http.host; datarep:rated,>,100,type string,load rated.lst; sid:6;)
"#;

/// `bad.example`, `other.example`; the MD5 digest of `bad.example`.
const FILES: Files = &[
    ("known.lst", "YmFkLmV4YW1wbGU=\nb3RoZXIuZXhhbXBsZQ==\n"),
    ("md5.lst", "88cb6f73f3bc1e6a04b3c0bfcbf8b5a6\n"),
    ("rated.lst", "YmFkLmV4YW1wbGU=,200\nb3RoZXIuZXhhbXBsZQ==,100\n"),
];

#[test]
fn datasets() {
    use md5::Digest;
    let digest: String =
        md5::Md5::digest(b"bad.example").iter().map(|byte| format!("{byte:02x}")).collect();
    let digests = Box::leak(format!("{digest}\n").into_boxed_str());
    let files = Box::leak(Box::new([FILES[0], ("md5.lst", digests), FILES[2]]));
    let set = rules(HOSTS);
    let (datasets, problems) = prepare(&set, &Datasets::default(), files);
    assert!(problems.is_empty(), "{problems:?}");
    let options = Options { datasets: datasets.clone(), ..Options::default() };
    let (mut one, mut two) = (Bench::new(&set, &options), Bench::new(&set, &options));
    assert_eq!(one.host("bad.example"), [1, 5, 6]);
    assert_eq!(one.host("other.example"), [1]);
    assert_eq!(one.host("good.example"), [2]);
    // A value is new once, whichever detector sees it.
    assert_eq!(one.host("gone.test"), [2, 3]);
    assert_eq!(two.give(1, b"", Some((Buffer::HttpUserAgent, b"gone.test"))), [4]);
    assert_eq!(two.give(1, b"", Some((Buffer::HttpUserAgent, b"gone.test"))), []);
    assert_eq!(two.host("a.test"), [2, 3]);
    assert_eq!(one.host("a.test"), [2]);
    // Four values of this length have room in 300 bytes with what each costs; a fifth has none.
    let names = ["b.test", "c.test", "d.test", "e.test"];
    let found: Vec<bool> = names.map(|name| one.host(name).contains(&3)).into();
    assert_eq!(found, [true, true, true, false]);
    let seen = datasets.get("seen").expect("a rule names it");
    assert_eq!((seen.len(), seen.refused()), (4, 1));
    let lines = ["YS50ZXN0", "Yi50ZXN0", "Yy50ZXN0", "ZC50ZXN0"].map(str::to_owned).to_vec();
    assert_eq!(seen.saved(), Some(("seen.lst", lines)));
    // Other rules: what was written stays, what was read is read again.
    let (later, problems) = prepare(&set, &datasets, &[("known.lst", "YS50ZXN0\n")]);
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert_eq!((later.get("seen").unwrap().len(), later.get("known").unwrap().len()), (4, 1));
}

/// Buffers of one transaction, and the rules that match. A rule writes only if all of it holds.
#[test]
fn sets_are_written_by_rules_that_hold() {
    let set = rules(
        "alert http any any -> any any (http.user_agent; content:\"Evil\"; http.host; dataset:set,c2,type string; sid:1;)\n\
         alert http any any -> any any (http.host; dataset:isset,c2; sid:2;)\n\
         alert http any any -> any any (http.host; dataset:set,bits,type string; flowbits:isset,never; sid:3;)\n\
         alert http2 any any -> any any (http.host; dataset:set,other,type string; sid:4;)\n\
         alert http any any -> any any (http.uri; content:\"/x\"; http.host; dataset:unset,c2; sid:5;)\n\
         alert http any any -> any any (http.host; dataset:set,both,type string; http.user_agent; dataset:set,agents,type string; sid:6;)\n\
         alert udp any any -> any any (content:\"key\"; ip.src; dataset:set,sources,type ip; flowbits:isset,never; sid:7;)\n",
    );
    let (datasets, problems) = prepare(&set, &Datasets::default(), &[]);
    assert!(problems.is_empty(), "{problems:?}");
    let mut bench = Bench::new(&set, &Options { datasets: datasets.clone(), ..Options::default() });
    bench.flow.set_application(Sender::Client, "http");
    let (host, agent, uri) = (Buffer::HttpHost, Buffer::HttpUserAgent, Buffer::HttpUri);
    let cases: [(Buffers, &[u32]); 8] = [
        (&[(host, "good.test"), (agent, "curl")], &[6]),
        (&[(agent, "curl"), (host, "good.test")], &[]),
        // The order of buffers does not count, and rules behind see what is written.
        (&[(host, "bad.test"), (agent, "Evil 1")], &[1, 2, 6]),
        (&[(host, "bad.test"), (agent, "Evil 2")], &[2]),
        (&[(host, "bad.test")], &[2]),
        (&[(host, "bad.test"), (uri, "/y")], &[2]),
        (&[(host, "bad.test"), (uri, "/x")], &[2, 5]),
        (&[(host, "bad.test")], &[]),
    ];
    for (at, (buffers, expected)) in cases.iter().enumerate() {
        assert_eq!(bench.buffers(b"key", buffers), *expected, "case {at}");
    }
    let names = |name: &str| datasets.get(name).expect("a rule names it").len();
    assert_eq!(["c2", "bits", "other", "both", "agents", "sources"].map(names), [0, 0, 0, 2, 2, 0]);
}

/// Values up to 64 KiB, whole and in pieces, with other checks and transforms.
#[test]
fn values_longer_than_a_window() {
    let set = rules(
        "alert http any any -> any any (http.request_body; content:\"01234\"; dataset:set,plain,type string; sid:1;)\n\
         alert http any any -> any any (http.request_body; to_uppercase; dataset:set,large,type string; sid:2;)\n\
         alert http any any -> any any (http.request_body; content:\"none\"; dataset:set,none,type string; sid:3;)\n\
         alert http any any -> any any (http.request_body; dataset:isset,plain; sid:4;)\n",
    );
    let (datasets, problems) = prepare(&set, &Datasets::default(), &[]);
    assert!(problems.is_empty(), "{problems:?}");
    let mut bench = Bench::new(&set, &Options { datasets: datasets.clone(), ..Options::default() });
    bench.flow.set_application(Sender::Client, "http");
    let mut give = |len: usize, pieces: usize| {
        let body = "0123456789a".repeat(len / 11 + 1);
        let text = &body[..len];
        bench.pieces(Buffer::HttpRequestBody, text.as_bytes(), pieces)
    };
    assert_eq!(give(50_000, 1), [1, 2, 4]);
    // What is in a set is not added again.
    assert_eq!(give(50_000, 7), [4]);
    assert_eq!(give(40_000, 7), [1, 2, 4]);
    assert_eq!(give(32_768, 3), [1, 2, 4]);
    assert_eq!(give(65_535, 3), [1, 2, 4]);
    assert_eq!(give(65_536, 3), [] as [u32; 0]);
    let names = |name: &str| datasets.get(name).expect("a rule names it").len();
    assert_eq!(["plain", "large", "none"].map(names), [4, 4, 0]);
}

/// What is wrong is said, and rules with it are refused.
#[test]
fn mistakes_in_sets() {
    let cases: &[(&str, &str)] = &[
        ("dataset:isset,a", "no rule gives its type"),
        ("dataset:isset,a,type string,load none.lst", "none.lst"),
        ("dataset:isset,a,type md5,load text.lst", "not an MD5 digest"),
        ("dataset:set,a,type string,save ../x", "not a file below"),
        ("dataset:set,a,type string,save /x", "not a file below"),
        ("dataset:isset,a,type string,load ../text.lst", "below the folder of the rules"),
        ("dataset:isset,a,type string,load /etc/shadow", "below the folder of the rules"),
        ("dataset:isset,a,type string,load text.lst,memcap 9q", "not a size such as"),
        ("dataset:isset,a,type string,load text.lst,memcap 10", "has room for"),
        ("datarep:a,>,1,type string,load text.lst", "VALUE,NUMBER"),
    ];
    for (check, reason) in cases {
        let text = format!("alert ip any any -> any any (http.host; {check}; sid:1;)");
        let (_, problems) = prepare(&rules(&text), &Datasets::default(), &[("text.lst", "YQ==\n")]);
        assert!(problems.iter().any(|own| own.contains(reason)), "{check}: {problems:?}");
    }
    let set = rules("alert ip any any -> any any (iprep:src,Bad,>,1; sid:1;)");
    let variables = Variables::with_defaults([], []).expect("defaults");
    let (_, refused) = Ruleset::compile(&set, &variables, &Options::default());
    assert_eq!(refused[0].reason, "iprep: no category Bad");
    // A state that was not saved yet is empty.
    let text =
        "alert ip any any -> any any (http.host; dataset:set,a,type string,state a.lst; sid:1;)";
    let (_, problems) = prepare(&rules(text), &Datasets::default(), &[]);
    assert!(problems.is_empty(), "{problems:?}");
}

/// A rule with wrong settings is refused alone, and nothing of what it says is kept.
#[test]
fn a_wrong_rule_does_not_spoil_the_set_of_others() {
    let right = "alert ip any any -> any any (http.host; dataset:isset,a,type string,load text.lst; sid:2;)\n";
    for wrong in [
        "dataset:set,a,type string,save ../x",
        "dataset:set,a,type md5,load text.lst",
        "dataset:set,a,type string,load other.lst",
        "dataset:set,a,save a.lst,memcap 9q",
        // What is right in it is not kept either.
        "dataset:set,b,type string,save b.lst; dataset:set,a,save /x",
    ] {
        let wrong = format!("alert ip any any -> any any (http.host; {wrong}; sid:1;)\n");
        let texts = [format!("{right}{wrong}"), format!("{wrong}{right}")];
        // The first of two that contradict each other is right.
        let conflict = wrong.contains("md5") || wrong.contains("other.lst");
        for text in &texts[..if conflict { 1 } else { 2 }] {
            let set = rules(text);
            let files: Files = &[("text.lst", "YQ==\n"), ("other.lst", "")];
            let (datasets, problems) = prepare(&set, &Datasets::default(), files);
            assert_eq!(problems.len(), 1, "{text}: {problems:?}");
            let own = datasets.get("a").expect("the right rule names it");
            assert_eq!((own.len(), own.saved()), (1, None), "{text}");
            assert!(datasets.get("b").is_none(), "{text}");
            let options = Options { datasets, ..Options::default() };
            let variables = Variables::with_defaults([], []).expect("defaults");
            let (_, refused) = Ruleset::compile(&set, &variables, &options);
            let refused: Vec<_> = refused.iter().map(|own| (own.sid, &own.reason)).collect();
            assert_eq!(refused, [(1, &problems[0])], "{text}");
        }
    }
}

/// Addresses are values of sets too.
#[test]
fn sets_of_addresses() {
    let set = rules(
        "alert udp any any -> any any (ip.src; dataset:isset,hosts,type ip,load hosts.lst; sid:1;)\n\
         alert udp any any -> any any (ip.src; dataset:set,sources,type ipv4; content:\"|0a|\"; startswith; sid:2;)",
    );
    let files: Files = &[("hosts.lst", "10.0.0.7\n2001:db8::1\n")];
    let (datasets, problems) = prepare(&set, &Datasets::default(), files);
    assert!(problems.is_empty(), "{problems:?}");
    let mut bench = Bench::new(&set, &Options { datasets, ..Options::default() });
    assert_eq!(bench.give(7, b"x", None), [1, 2]);
    assert_eq!(bench.give(7, b"x", None), [1]);
    assert_eq!(bench.give(8, b"x", None), [2]);
}

#[test]
fn reputations() {
    let set = rules(
        "alert ip any any -> any any (iprep:src,Bad,>,50; sid:1;)\n\
         alert ip any any -> any any (iprep:dst,Bad,>,50; sid:2;)\n\
         alert ip any any -> any any (iprep:any,Bad,<,20; sid:3;)\n\
         alert ip any any -> any any (iprep:both,Mail,isset; sid:4;)\n\
         alert ip any any -> any any (iprep:src,Mail,isnotset; sid:5;)\n\
         alert ip any any -> any any (iprep:any,Bad,isnotset; sid:6;)\n",
    );
    let scores = "10.0.0.0/24,1,10\n10.0.0.7,1,100\n10.0.0.7,2,1\n10.0.0.200,2,1\n";
    let (reputation, wrong) =
        Reputation::read(&b"1,Bad,x\n2,Mail,y\n"[..], [scores.as_bytes()]).expect("memory");
    assert!(wrong.is_empty(), "{wrong:?}");
    let mut bench = Bench::new(&set, &Options { reputation, ..Options::default() });
    assert_eq!(bench.give(7, b"x", None), [1, 3, 4]);
    // As all that is on addresses alone, once for each direction of a flow.
    assert_eq!(bench.give(8, b"x", None), [] as [u32; 0]);
    bench.flow = FlowState::new(2);
    assert_eq!(bench.give(8, b"x", None), [3, 5]);
}

#[test]
fn base64_in_payloads_and_buffers() {
    let cases: &[(&str, &str, bool)] = &[
        // "Hello world"
        ("base64_decode; base64_data; content:\"Hello\"; startswith", "SGVsbG8gd29ybGQ=", true),
        ("base64_decode; base64_data; content:\"other\"", "SGVsbG8gd29ybGQ=", false),
        (
            "base64_decode:offset 4; base64_data; content:\"lo wo\"; startswith",
            "SGVsbG8gd29ybGQ=",
            true,
        ),
        ("base64_decode:bytes 8; base64_data; content:\"world\"", "SGVsbG8gd29ybGQ=", false),
        (
            "content:\"Basic \"; base64_decode:relative; base64_data; content:\"a:b\"; endswith",
            "Authorization: Basic YTpi\r\n",
            true,
        ),
        // The second place does.
        (
            "content:\"x \"; base64_decode:relative; base64_data; content:\"a:b\"",
            "x !!! x YTpi",
            true,
        ),
        ("content:\"x \"; base64_decode:relative; base64_data; content:!\"a:b\"", "x YTpi", false),
        ("base64_decode:offset 99; base64_data; content:\"a\"", "YTpi", false),
        (
            "base64_decode; base64_data; pcre:\"/^a.b$/\"; content:\"a\"; content:\"b\"; distance:1; within:1",
            "YTpi",
            true,
        ),
    ];
    for (checks, payload, expected) in cases {
        let set = rules(&format!("alert udp any any -> any any ({checks}; sid:1;)"));
        let mut bench = Bench::new(&set, &Options::default());
        let found = bench.give(1, payload.as_bytes(), None) == [1];
        assert_eq!(found, *expected, "{checks} in {payload}");
    }
    let set = rules(
        "alert ip any any -> any any (http.header; content:\"Basic \"; base64_decode:relative; base64_data; content:\"admin:\"; sid:1;)",
    );
    let mut bench = Bench::new(&set, &Options::default());
    let header = (Buffer::HttpHeader, &b"Host: a\r\nAuthorization: Basic YWRtaW46MTIz\r\n"[..]);
    assert_eq!(bench.give(1, b"", Some(header)), [1]);
}

/// Rules come from others: a set whose file is not below the folder of outputs is not there, so that nothing is written.
#[test]
fn no_rule_writes_a_file_elsewhere() {
    for file in ["/etc/cron.d/x", "../x", "a/../../x", "./../x"] {
        for how in ["save", "state"] {
            let text = format!(
                "alert http any any -> any any (http.host; dataset:set,own,type string,{how} {file}; sid:1;)\n"
            );
            let (datasets, problems) = prepare(&rules(&text), &Datasets::default(), &[]);
            assert_eq!(problems.len(), 1, "{problems:?}");
            assert!(datasets.get("own").is_none(), "{how} {file}");
        }
    }
}
