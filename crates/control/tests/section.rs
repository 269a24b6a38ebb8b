//! A section that another crate declares: reading, mistakes, the difference at a reload, and the documentation.

use std::time::Duration;

use control::config::kinds::{
    Custom, Kind, address, boolean, custom, duration, integer, list, name_of, or_word, rate, table,
    words,
};
use control::config::manual;
use control::config::section::{
    self, Changes, KeyDefault, Reload, SectionValue, Severity, Value, Walk,
};
use control::config::values;
use proptest::prelude::*;

control::words! {
    /// What happens to packets beyond the rate.
    pub enum Beyond {
        /// They are dropped.
        Drop = "drop",
        /// They get another DSCP class.
        Mark = "mark" | "remark",
    }
}

control::section! {
    /// Limits of DSCP classes.
    pub struct Limit("stage.limit") {
        /// DSCP class that is limited.
        restart class: u8 = 0, integer(0..=63);
        /// Packets of the class that pass.
        live rate: u32 = 1000, rate(1..=1_000_000);
        /// Time over which the rate is measured.
        live window: Duration = Duration::from_secs(1),
            or_word("off", Duration::ZERO, duration(Duration::from_millis(1)..=Duration::from_mins(1)));
        /// Packets beyond the rate: `drop` or `mark`.
        live beyond: Beyond = Beyond::Drop, words();
        /// Ports that are limited.
        live ports["in"]: Vec<String> = Vec::new(),
            list(name_of("a port"), "an array of ports").joined_by(" ");
        /// Even number.
        live even: u64 = 2, even().shown("two");
        /// Where reports go.
        restart report: Report = Report::default(), table();
    }
    also {
        /// Not a key.
        reads: usize = 0;
    }
}

control::section! {
    /// Reports.
    pub struct Report("stage.limit.report") {
        /// Address of the receiver.
        restart to: Option<std::net::IpAddr> = None, address().optional();
        /// Report packets that pass, too.
        live all: bool = false, boolean();
    }
}

/// A kind of its own.
fn even() -> Custom<u64> {
    let read = |walk: &mut Walk<'_>, value: &Value<'_>| {
        let number = values::integer::<u64>(0..=100)(walk, value)?;
        if number % 2 == 1 {
            let message = format!("{} is {number}", walk.subject());
            walk.error(value.span(), message).expected("an even number").help("add 1");
            return None;
        }
        Some(number)
    };
    custom("integer", "even numbers from 0 to 100", read, u64::to_string).bare()
}

/// Diagnostics as `line:column message | expected`.
fn found(keys: &str) -> Vec<String> {
    let text = format!("mode = \"router\"\n[stage.limit]\n{keys}");
    let diagnostics = section::read(&text, Limit::NAME, &mut Limit::default());
    assert!(diagnostics.iter().all(|d| d.severity == Severity::Error));
    let line = |d: &section::Diagnostic| {
        let expected = d.expected.as_deref().unwrap_or("-");
        format!("{}:{} {} | {expected}", d.line, d.column, d.message)
    };
    diagnostics.iter().map(line).collect()
}

fn good(keys: &str) -> Limit {
    let mut limit = Limit::default();
    let text = format!("[stage.limit]\n{keys}");
    assert_eq!(section::read(&text, Limit::NAME, &mut limit), []);
    limit
}

#[test]
fn values_are_read() {
    assert_eq!(good(""), Limit::default());
    let limit = good(
        "class = 10\nrate = \"2kpps\"\nwindow = \"off\"\nbeyond = \"remark\"\nin = [\"lan\", \"wan\"]\n\
         even = 4\nreport = { to = \"192.0.2.1\" }\n",
    );
    let wanted = Limit {
        class: 10,
        rate: 2000,
        window: Duration::ZERO,
        beyond: Beyond::Mark,
        ports: vec!["lan".into(), "wan".into()],
        even: 4,
        report: Report { to: Some("192.0.2.1".parse().unwrap()), all: false },
        reads: 0,
    };
    assert_eq!(limit, wanted);
}

#[test]
fn every_mistake_is_found() {
    assert_eq!(
        found(
            "clas = 1\nrate = true\nclass = 64\nwindow = \"1h\"\nbeyond = \"dorp\"\nin = [1, \"lan\"]\n\
             even = 3\n[stage.limit.report]\nto = \"x\"\nto_all = 1\n"
        ),
        [
            "3:1 unknown key `clas` in [stage.limit], did you mean `class`? | one of beyond, class, even, \
             in, rate, report, window",
            "4:8 `rate` is a boolean | an integer from 1 to 1000000",
            "5:9 `class` is 64 | an integer from 0 to 63",
            "6:10 `window` is `1h` | a duration from \"1ms\" to \"1min\" (ns, us, ms, s, min, h)",
            "7:10 `beyond` is `dorp`, did you mean `drop`? | one of drop, mark, remark",
            "8:7 element 1 of `in` is an integer | a string",
            "9:8 `even` is 3 | an even number",
            "11:6 `to` is `x` | an IPv4 or IPv6 address",
            "12:1 unknown key `to_all` in [stage.limit.report] | one of all, to",
        ]
    );
    let text = "stage = 3\n";
    let said = section::read(text, Limit::NAME, &mut Limit::default());
    assert_eq!(said[0].message, "`stage.limit` is not a table");
}

#[test]
fn a_reload_knows_what_it_may_change() {
    let (old, new) = (
        good("rate = 5\nreport.all = true\n"),
        good("class = 3\nrate = 6\nwindow = \"off\"\nin = [\"a\", \"b\"]\nreport.to = \"::1\"\n"),
    );
    let (old, new): (Box<dyn SectionValue>, Box<dyn SectionValue>) = (Box::new(old), Box::new(new));
    let mut changes = Changes::default();
    old.diff(&*new, "stage.edge", &mut changes);
    let texts = |changes: &[control::config::Change]| {
        changes.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(
        texts(&changes.live),
        [
            "stage.edge.rate: 5 -> 6",
            "stage.edge.window: 1s -> off",
            "stage.edge.in:  -> a b",
            "stage.edge.report.all: true -> false",
        ]
    );
    assert_eq!(
        texts(&changes.restart),
        ["stage.edge.class: 0 -> 3", "stage.edge.report.to: - -> ::1"]
    );
    assert_eq!((*old.clone() == *old, *old == *new), (true, false));
    assert_eq!(new.get::<Limit>().map(|limit| limit.class), Some(3));
    assert_eq!(new.get::<Report>(), None);
    let mut none = Changes::default();
    new.diff(&*new.clone(), "stage.edge", &mut none);
    assert!(none.is_empty());

    // Another kind of stage under the same name: keys come and go, but for those without a value.
    let other: Box<dyn SectionValue> = Box::new(Report::default());
    let mut changes = Changes::default();
    other.diff(&*old, "s", &mut changes);
    assert_eq!(changes.live, []);
    let keys: Vec<_> = changes.restart.iter().map(|change| change.key.as_str()).collect();
    assert_eq!(
        keys,
        ["s.all", "s.class", "s.rate", "s.window", "s.beyond", "s.in", "s.even", "s.report.all"]
    );
}

#[test]
fn the_documentation_is_made_from_the_declaration() {
    let limit = Limit::default();
    assert_eq!((limit.name(), limit.text().as_str()), ("stage.limit", "Limits of DSCP classes."));
    assert_eq!(limit.keys().len(), 7);
    let rate = &Limit::KEYS[1];
    assert_eq!((rate.name, rate.reload), ("rate", Reload::Live));
    assert_eq!(rate.about().default, KeyDefault::Value("1000".into()));
    assert_eq!(rate.about().allowed, "1 to 1,000,000 per second");
    let lines: Vec<_> = manual::table(Limit::KEYS).lines().skip(2).map(str::to_owned).collect();
    assert_eq!(
        lines,
        [
            "| `class` | `0` | 0 to 63 | restart | DSCP class that is limited. |",
            "| `rate` | `1000` | 1 to 1,000,000 per second | live | Packets of the class that pass. |",
            "| `window` | `\"1s\"` | `\"1ms\"` to `\"1min\"`, or `\"off\"` | live | Time over which the rate \
             is measured. |",
            "| `beyond` | `\"drop\"` | `\"drop\"`, `\"mark\"`, `\"remark\"` | live | Packets beyond the rate: \
             `drop` or `mark`. |",
            "| `in` | `[]` | an array; each a port | live | Ports that are limited. |",
            "| `even` | two | even numbers from 0 to 100 | live | Even number. |",
            "| `report` | the defaults of its keys | a table: `to`, `all` | restart | Where reports go. |",
        ]
    );
}

/// A key that a value differs in, its text as a reload shows it, and the value as the file has it.
type Plain = (&'static str, String, String);

fn any_limit() -> impl Strategy<Value = (Limit, Vec<Plain>)> {
    let ports = prop::collection::vec("[a-c]{1,2}", 0..3);
    let report = (any::<Option<u32>>(), any::<bool>());
    let words = prop::sample::select(vec![Beyond::Drop, Beyond::Mark]);
    let parts = (0..64_u8, 1..4_u32, 0..3_u64, words, ports, 0..3_u64, report);
    parts.prop_map(|(class, rate, ms, beyond, ports, half, (to, all))| {
        let to = to.map(|bits| std::net::Ipv4Addr::from_bits(bits % 3));
        let window = if ms == 0 { "off".to_owned() } else { format!("{ms}ms") };
        let word = if beyond == Beyond::Drop { "drop" } else { "mark" };
        let quoted = |text: &str| format!("\"{text}\"");
        let list = ports.iter().map(|port| quoted(port)).collect::<Vec<_>>().join(", ");
        let bare = |key, text: String| (key, text.clone(), text);
        let mut plain = vec![
            bare("class", class.to_string()),
            bare("rate", rate.to_string()),
            ("window", window.clone(), quoted(&window)),
            ("beyond", word.to_owned(), quoted(word)),
            ("in", ports.join(" "), format!("[{list}]")),
            bare("even", (2 * half).to_string()),
            bare("report.all", all.to_string()),
        ];
        let address = to.map_or("-".to_owned(), |to| to.to_string());
        plain.push(("report.to", address.clone(), to.map_or(String::new(), |_| quoted(&address))));
        let limit = Limit {
            class,
            rate,
            window: Duration::from_millis(ms),
            beyond,
            ports,
            even: 2 * half,
            report: Report { to: to.map(Into::into), all },
            reads: 0,
        };
        (limit, plain)
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read((limit, plain) in any_limit()) {
        let given = plain.iter().filter(|(.., toml)| !toml.is_empty());
        let keys: String = given.map(|(key, _, toml)| format!("{key} = {toml}\n")).collect();
        prop_assert_eq!(good(&keys), limit);
    }

    #[test]
    fn what_differs_is_in_the_difference((old, before) in any_limit(), (new, after) in any_limit()) {
        let mut changes = Changes::default();
        old.diff(&new, "s", &mut changes);
        for (reload, changes) in [("live", changes.live), ("restart", changes.restart)] {
            let is_such = |key: &str| (["class", "report.to"].contains(&key)) == (reload == "restart");
            let pairs = before.iter().zip(&after).filter(|((key, ..), _)| is_such(key));
            let differing = pairs.filter(|((_, old, _), (_, new, _))| old != new);
            let mut wanted: Vec<_> = differing
                .map(|((key, old, _), (_, new, _))| format!("s.{key}: {old} -> {new}"))
                .collect();
            let mut found: Vec<_> = changes.iter().map(ToString::to_string).collect();
            wanted.sort_unstable();
            found.sort_unstable();
            prop_assert_eq!(found, wanted);
        }
    }

    #[test]
    fn a_number_is_read_if_it_is_in_range(number in -200_i64..200) {
        let found = found(&format!("class = {number}\n"));
        let wanted = format!("3:9 `class` is {number} | an integer from 0 to 63");
        prop_assert_eq!(found, if (0..64).contains(&number) { vec![] } else { vec![wanted] });
    }
}
