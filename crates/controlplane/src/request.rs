//! What an application declares for `ctl`: its requests, its tables, and the words under which requests are grouped.
//!
//! A request is one struct. It derives [`clap::Args`] for the command line, [`serde::Serialize`] for the client and
//! [`serde::Deserialize`] for the program that answers, which reads it by [`control::api::decode`]:
//!
//! ```
//! use controlplane::request::{GroupKind, RequestKind, TableKind};
//! use serde::{Deserialize, Serialize};
//!
//! /// Forgets flows.
//! #[derive(Debug, clap::Args, Serialize, Deserialize)]
//! #[serde(deny_unknown_fields)]
//! pub struct FlowDel {
//!     /// Only flows of this port
//!     #[arg(long)]
//!     #[serde(default, skip_serializing_if = "Option::is_none")]
//!     pub port: Option<String>,
//! }
//!
//! pub const GROUPS: &[GroupKind] = &[GroupKind::new("flow", "Look up or remove flows")];
//! pub const TABLES: &[TableKind] = &[TableKind::new("flows", "Flows, the newest first")];
//! pub const REQUESTS: &[RequestKind] =
//!     &[RequestKind::change::<FlowDel>(&["flow", "del"], "Remove flows")];
//! # let matches = REQUESTS[0].named("del").get_matches_from(["del", "--port", "lan"]);
//! # let control::api::Request::Call { name, fields } = REQUESTS[0].request(&matches).unwrap() else { panic!() };
//! # assert_eq!((name.as_str(), &fields["port"]), ("flow_del", &"lan".into()));
//! # assert_eq!(control::api::decode::<FlowDel>(fields).unwrap().port.as_deref(), Some("lan"));
//! ```
//!
//! Where the fields on the socket have another form than the arguments, the type of the arguments implements
//! [`Arguments`] itself. A table may have arguments, too ([`TableKind::with`]): which of its rows are wanted.
//!
//! Options that are **keywords** may be given without dashes, as people know them from `ip`: with the keywords `via` and
//! `dev`, `route add 10.0.0.0/8 via 192.0.2.1 dev lan` is `route add 10.0.0.0/8 --via 192.0.2.1 --dev lan`
//! ([`keywords`]). Pure functions, on any thread.

use std::net::IpAddr;

use clap::{ArgMatches, Args, Command};
use control::api::Request;
use ipnet::IpNet;
use serde::Serialize;
use serde_json::{Map, Value};

/// A request of `ctl`, declared by an application.
#[derive(Debug, Clone, Copy)]
pub struct RequestKind {
    /// As on the command line: `["route", "add"]`. Joined by `_` they are its name on the socket.
    pub words: &'static [&'static str],
    /// What it does, for the help: a phrase without a full stop.
    pub about: &'static str,
    /// Its arguments, with help; the caller sets the command's name and what it is about.
    pub command: fn() -> Command,
    /// The fields of the request from the arguments. A field `request` is not one of them: it names another request of
    /// the same application that these arguments make.
    ///
    /// # Errors
    /// A text for who gave the arguments: they contradict each other, or one is missing.
    pub fields: fn(&ArgMatches) -> Result<Map<String, Value>, String>,
    /// Whether it changes tables: such a request waits while tables of its part are being built.
    pub changes: bool,
    /// Where no pipeline has a stage of its application: whether the application joins the shipped pipelines for it, as it
    /// does for a section of the file.
    pub begins: bool,
    /// Long options that may be given without dashes.
    pub keywords: &'static [&'static str],
}

/// A table of `ctl show`.
#[derive(Debug, Clone, Copy)]
pub struct TableKind {
    /// Its name: `ctl show NAME`, and the responses' name.
    pub name: &'static str,
    /// What its rows are, for the help.
    pub about: &'static str,
    /// Which rows are wanted: its arguments, with help. The caller sets the command's name and what it is about.
    pub command: fn() -> Command,
    /// The fields of the request from the arguments: none where all rows are wanted.
    ///
    /// # Errors
    /// A text for who gave the arguments.
    pub fields: fn(&ArgMatches) -> Result<Map<String, Value>, String>,
    /// Long options that may be given without dashes.
    pub keywords: &'static [&'static str],
}

/// Where the names come from that a value of the command line may be, so that a shell completes them: in a field of the
/// rows of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NameKind {
    /// How the help calls such a value: `PORT`.
    pub value: &'static str,
    /// The table.
    pub table: &'static str,
    /// Its arguments, as on the command line.
    pub arguments: &'static [&'static str],
    /// The field.
    pub field: &'static str,
}

/// A word under which requests are grouped, and its help: `route`, `Change or look up a route`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupKind {
    /// The word.
    pub name: &'static str,
    /// For the help: a phrase without a full stop.
    pub about: &'static str,
    /// The table that `show` and `list` below this word print, as `ip route show` does.
    pub table: Option<&'static str>,
}

impl GroupKind {
    /// A group without a table.
    pub const fn new(name: &'static str, about: &'static str) -> Self {
        Self { name, about, table: None }
    }

    /// The same with a table.
    pub const fn shows(self, table: &'static str) -> Self {
        Self { table: Some(table), ..self }
    }
}

/// Arguments of the command line that make the fields of a request. Every type that has arguments and a form in JSON
/// does: its fields are those of the request.
pub trait Arguments: Args {
    /// The fields; see [`RequestKind::fields`].
    ///
    /// # Errors
    /// A text for who gave the arguments.
    fn fields(self) -> Result<Map<String, Value>, String>;
}

impl<T: Args + Serialize> Arguments for T {
    fn fields(self) -> Result<Map<String, Value>, String> {
        control::api::fields_of(&self)
    }
}

impl RequestKind {
    /// A request with the arguments `T` that only looks.
    pub const fn query<T: Arguments>(words: &'static [&'static str], about: &'static str) -> Self {
        let (command, fields) = (command::<T>, fields::<T>);
        Self { words, about, command, fields, changes: false, begins: false, keywords: &[] }
    }

    /// A request with the arguments `T` that changes tables.
    pub const fn change<T: Arguments>(words: &'static [&'static str], about: &'static str) -> Self {
        Self { changes: true, ..Self::query::<T>(words, about) }
    }

    /// The same, for a request with which its application may begin.
    pub const fn begins(self) -> Self {
        Self { begins: true, ..self }
    }

    /// The same, with options that may be given without dashes.
    pub const fn keywords(self, keywords: &'static [&'static str]) -> Self {
        Self { keywords, ..self }
    }

    /// Its name on the socket: `route_add`.
    pub fn name(&self) -> String {
        self.words.join("_")
    }

    /// Whether `name` is its name on the socket.
    pub fn is_named(&self, name: &str) -> bool {
        let mut words = name.split('_');
        let mut own = self.words.iter().flat_map(|word| word.split('_'));
        own.by_ref().all(|own| words.next() == Some(own)) && words.next().is_none()
    }

    /// Its command, by the last of its words or another one.
    pub fn named(&self, word: &'static str) -> Command {
        (self.command)().name(word).about(self.about)
    }

    /// The request that arguments of its command make.
    ///
    /// # Errors
    /// See [`RequestKind::fields`].
    pub fn request(&self, matches: &ArgMatches) -> Result<Request, String> {
        let mut fields = (self.fields)(matches)?;
        let name = match fields.remove("request") {
            Some(Value::String(name)) => name,
            _ => self.name(),
        };
        Ok(Request::Call { name, fields })
    }
}

/// No arguments.
#[derive(Debug, Args, Serialize)]
struct Nothing {}

impl TableKind {
    /// A table whose rows are always wanted all.
    pub const fn new(name: &'static str, about: &'static str) -> Self {
        Self::with::<Nothing>(name, about)
    }

    /// A table with the arguments `T`.
    pub const fn with<T: Arguments>(name: &'static str, about: &'static str) -> Self {
        Self { name, about, command: command::<T>, fields: fields::<T>, keywords: &[] }
    }

    /// The same, with options that may be given without dashes.
    pub const fn keywords(self, keywords: &'static [&'static str]) -> Self {
        Self { keywords, ..self }
    }

    /// Its command.
    pub fn named(&self) -> Command {
        (self.command)().name(self.name).about(self.about)
    }

    /// Whether it has arguments.
    pub fn has_arguments(&self) -> bool {
        (self.command)().get_arguments().next().is_some()
    }

    /// Whether it has an argument of this name.
    pub fn has_argument(&self, name: &str) -> bool {
        (self.command)().get_arguments().any(|argument| argument.get_id() == name)
    }

    /// The request that arguments of its command make.
    ///
    /// # Errors
    /// See [`TableKind::fields`].
    pub fn request(&self, matches: &ArgMatches) -> Result<Request, String> {
        Ok(Request::Show { what: self.name.to_owned(), arguments: (self.fields)(matches)? })
    }
}

/// Arguments with the dashes that keywords lack: `via 192.0.2.1` is `--via 192.0.2.1`, where `via` is a keyword and an
/// option of `command`.
///
/// A keyword with a value must be followed by one, else the word is an argument like others. The value of an option with several words in its value's name
/// (`<via ADDRESS dev PORT>`) is a phrase: all words up to the same keyword, another option or the end are its value.
pub fn keywords(
    command: &Command,
    keywords: &[&str],
    arguments: impl IntoIterator<Item = String>,
) -> Vec<String> {
    let option = |word: &str| {
        let is_it = |arg: &&clap::Arg| {
            arg.get_long() == Some(word)
                || arg.get_all_aliases().is_some_and(|all| all.contains(&word))
        };
        keywords.contains(&word).then(|| command.get_arguments().find(is_it)).flatten()
    };
    let mut words = arguments.into_iter().peekable();
    let mut out = Vec::new();
    while let Some(word) = words.next() {
        let Some(found) = option(&word) else {
            // The value of an option is none of the keywords.
            let takes = |arg: &clap::Arg| {
                let long = arg.get_long().is_some_and(|long| word.strip_prefix("--") == Some(long));
                let short = arg.get_short().is_some_and(|short| word == format!("-{short}"));
                (long || short) && arg.get_action().takes_values()
            };
            let value = command.get_arguments().any(takes).then(|| words.next()).flatten();
            out.push(word);
            out.extend(value);
            continue;
        };
        let is_phrase =
            found.get_value_names().is_some_and(|names| names.iter().any(|n| n.contains(' ')));
        if !found.get_action().takes_values() {
            out.push(format!("--{word}"));
        } else if words.peek().is_none_or(|next| next.starts_with("--")) {
            out.push(word);
        } else if is_phrase {
            let mut phrase = Vec::new();
            while let Some(next) = words.next_if(|next| !next.starts_with("--") && *next != word) {
                phrase.push(next);
            }
            out.push(format!("--{word}={}", phrase.join(" ")));
        } else {
            out.push(format!("--{word}"));
            out.extend(words.next());
        }
    }
    out
}

fn command<T: Arguments>() -> Command {
    T::augment_args(Command::new("request"))
}

fn fields<T: Arguments>(matches: &ArgMatches) -> Result<Map<String, Value>, String> {
    T::from_arg_matches(matches).map_err(|error| error.to_string())?.fields()
}

/// A prefix without host bits, as the configuration wants it.
///
/// # Errors
/// What is wrong, and what is expected.
pub fn prefix(text: &str) -> Result<IpNet, String> {
    let form = || "expected a prefix such as 192.0.2.0/24 or 2001:db8::/32".to_owned();
    let (address, length) = text.split_once('/').ok_or_else(form)?;
    let address: IpAddr = address.parse().map_err(|_| form())?;
    let max = if address.is_ipv4() { 32 } else { 128 };
    let length = length.parse().ok().filter(|&length| length <= max);
    let length = length.ok_or_else(|| format!("expected a prefix length of 0 to {max}"))?;
    let net = IpNet::new(address, length).map_err(|_| form())?;
    if net == net.trunc() {
        Ok(net)
    } else {
        Err(format!("bits are set beyond the length, expected {}", net.trunc()))
    }
}

/// Destinations on the command line: a prefix, an address, or the word `default`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Destination {
    /// Everything, in a family that the other arguments say.
    Default,
    /// The prefix; of an address, all its bits.
    Net(IpNet),
}

impl Destination {
    /// The prefix; `is_v6`: what the other arguments say of the family.
    pub fn net(self, is_v6: bool) -> IpNet {
        match (self, is_v6) {
            (Self::Default, false) => IpNet::V4(ipnet::Ipv4Net::default()),
            (Self::Default, true) => IpNet::V6(ipnet::Ipv6Net::default()),
            (Self::Net(net), _) => net,
        }
    }
}

impl std::str::FromStr for Destination {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "default" => Ok(Self::Default),
            text => address_or_prefix(text).map(Self::Net),
        }
    }
}

/// An address, or a prefix without host bits.
///
/// # Errors
/// As of [`prefix`].
pub fn address_or_prefix(text: &str) -> Result<IpNet, String> {
    text.parse::<IpAddr>().map_or_else(|_| prefix(text), |address| Ok(address.into()))
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    /// What it does is said by its kind.
    #[derive(Debug, PartialEq, Args, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Set {
        /// Which
        #[arg(value_parser = prefix)]
        prefix: IpNet,
        /// How
        #[arg(long, value_name = "N")]
        #[serde(default, skip_serializing_if = "Option::is_none")]
        weight: Option<u8>,
    }

    /// Arguments whose fields have another form.
    #[derive(Debug, Args)]
    struct Load {
        name: Option<String>,
        #[arg(long)]
        file: Option<String>,
    }

    impl Arguments for Load {
        fn fields(self) -> Result<Map<String, Value>, String> {
            let fields = match (self.name, self.file) {
                (_, Some(file)) => json!({"request": "set_load_all", "from": {"file": file}}),
                (Some(name), None) => json!({"from": {"name": name}}),
                (None, None) => return Err("a set needs a name".to_owned()),
            };
            control::api::fields_of(&fields)
        }
    }

    const SET: RequestKind =
        RequestKind::change::<Set>(&["set", "add"], "Add a set").keywords(&["weight"]);
    const LOAD: RequestKind = RequestKind::query::<Load>(&["set", "load"], "Load a set");

    fn request(kind: &RequestKind, arguments: &[&str]) -> Result<Request, String> {
        let command = kind.named("it").no_binary_name(true);
        let matches = command.try_get_matches_from(arguments).map_err(|error| error.to_string())?;
        kind.request(&matches)
    }

    fn call(name: &str, fields: Value) -> Request {
        Request::Call { name: name.to_owned(), fields: control::api::fields_of(&fields).unwrap() }
    }

    #[test]
    fn arguments_are_fields() {
        let asked = request(&SET, &["10.0.0.0/8", "--weight", "3"]).unwrap();
        assert_eq!(asked, call("set_add", json!({"prefix": "10.0.0.0/8", "weight": 3})));
        let Request::Call { fields, .. } = asked else { panic!() };
        let read = control::api::decode::<Set>(fields).unwrap();
        assert_eq!(read, Set { prefix: "10.0.0.0/8".parse().unwrap(), weight: Some(3) });
        assert_eq!(
            request(&SET, &["10.0.0.0/8"]).unwrap(),
            call("set_add", json!({"prefix": "10.0.0.0/8"}))
        );
        let error = request(&SET, &["10.0.0.1/8"]).unwrap_err();
        assert!(error.contains("bits are set beyond the length, expected 10.0.0.0/8"), "{error}");
        let help = SET.named("add").render_help().to_string();
        assert!(help.starts_with("Add a set\n") && help.contains("Which"), "{help}");
        assert_eq!([SET, LOAD].map(|kind| kind.changes), [true, false]);
    }

    #[test]
    fn fields_may_have_another_form_than_arguments() {
        assert_eq!(
            request(&LOAD, &["a"]).unwrap(),
            call("set_load", json!({"from": {"name": "a"}}))
        );
        let all = call("set_load_all", json!({"from": {"file": "f"}}));
        assert_eq!(request(&LOAD, &["--file", "f"]).unwrap(), all);
        assert_eq!(request(&LOAD, &[]).unwrap_err(), "a set needs a name");
    }

    #[test]
    fn bad_fields_are_answered() {
        let read =
            |fields: Value| control::api::decode::<Set>(control::api::fields_of(&fields).unwrap());
        for (fields, expected) in [
            (json!({}), "missing field `prefix`"),
            (json!({"prefix": 3}), "invalid type"),
            (json!({"prefix": "10.0.0.0/8", "more": 1}), "unknown field `more`"),
        ] {
            let control::api::Response::Error { kind, message } = *read(fields).unwrap_err() else {
                panic!("expected an error");
            };
            assert_eq!(kind, control::api::ErrorKind::BadRequest);
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn names_are_words() {
        let kind = |words| RequestKind { words, ..SET };
        for (words, name) in [
            (&["set", "add"] as &[_], "set_add"),
            (&["set", "add_all"], "set_add_all"),
            (&["set"], "set"),
        ] {
            assert_eq!(kind(words).name(), name);
            for other in ["set", "set_add", "set_add_all", "set_", "", "set_addall"] {
                assert_eq!(kind(words).is_named(other), other == name, "{words:?} {other}");
            }
        }
    }

    #[test]
    fn prefixes_are_judged_as_the_configuration_does() {
        assert_eq!(prefix("10.0.0.0/8"), Ok("10.0.0.0/8".parse().unwrap()));
        for (text, expected) in [
            ("38.0.0.1/8", "expected 38.0.0.0/8"),
            ("39.0.0.0/33", "prefix length of 0 to 32"),
            ("2001:db8::/129", "prefix length of 0 to 128"),
            ("2001:db8::1/64", "expected 2001:db8::/64"),
            ("10.0.0.0", "expected a prefix such as"),
            ("ten/8", "expected a prefix such as"),
        ] {
            let error = prefix(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
            let is_address = text == "10.0.0.0";
            assert_eq!(address_or_prefix(text).is_ok(), is_address, "{text}");
        }
        assert_eq!(address_or_prefix("10.0.0.0"), Ok("10.0.0.0/32".parse().unwrap()));
    }
}
