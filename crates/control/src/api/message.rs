//! Requests and responses, one JSON object a line.
//!
//! What every pipeline has is a variant here. A request of an application is its name and its fields, and a table is its
//! name and its rows: the application's folder says what they mean.

use std::fmt;
use std::time::Duration;

use serde::de::{self, DeserializeOwned, MapAccess, Visitor};
use serde::ser::{Error as _, SerializeMap};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use super::table::Row;

/// What a client asks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case", deny_unknown_fields, remote = "Self")]
pub enum Request {
    /// A table, in pieces.
    Show {
        /// Its name.
        what: String,
        /// Which rows: the fields of the arguments that the table declares. None: all rows.
        #[serde(default, skip_serializing_if = "Map::is_empty")]
        arguments: Map<String, Value>,
    },
    /// Starts counters at zero. Answer: `done`.
    ClearCounters,
    /// Reads the configuration file again. Answer: `done` with the differences.
    Reload,
    /// What has changed since the file was read, as a difference of the file. Answer: `diff` with the fields `file`, `diff`,
    /// `text` (of the whole file) and `left_out` (what a file cannot say).
    Diff,
    /// Writes that into the file. Answer: `done` with what a reload of the file then says.
    Save {
        /// Even if the file is another one by now.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        force: bool,
    },
    /// Follows the next `count` packets through the stages. Answer: `trace` for each.
    Trace {
        /// Packets.
        count: u32,
        /// In the syntax of `packet::filter`; empty: any packet.
        #[serde(default)]
        filter: String,
        /// Gives up after so long.
        #[serde(default, with = "seconds", skip_serializing_if = "Option::is_none")]
        duration_s: Option<Duration>,
    },
    /// Copies packets. Answer: `frame` for each, until a limit or until the client hangs up.
    Capture {
        /// Where.
        at: CaptureAt,
        /// In the syntax of `packet::filter`; empty: any packet.
        #[serde(default)]
        filter: String,
        /// Packets; `None`: no limit.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        count: Option<u64>,
        /// Time; `None`: no limit.
        #[serde(default, with = "seconds", skip_serializing_if = "Option::is_none")]
        duration_s: Option<Duration>,
    },
    /// Drains and ends the program. Answer: `done` once it has begun.
    Stop,
    /// A request that an application declares. The answer is the application's.
    #[serde(skip)]
    Call {
        /// Its words joined by `_`: `route_add`. None of [`CORE_REQUESTS`].
        name: String,
        /// Its fields. `request` and `text` are not among them.
        fields: Map<String, Value>,
    },
}

/// Names of requests that no application declares.
pub const CORE_REQUESTS: [&str; 8] =
    ["show", "clear_counters", "reload", "diff", "save", "trace", "capture", "stop"];

/// A request, and in which form its answer is to come.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    /// What is asked.
    pub request: Request,
    /// Tables as texts for people; else as rows for programs. `"text": true` in the object; absent: rows.
    pub text: bool,
}

impl Request {
    /// All rows of a table.
    pub fn show(what: &str) -> Request {
        Request::Show { what: what.to_owned(), arguments: Map::new() }
    }

    /// The same, with the form of its answer.
    pub fn asked(self, text: bool) -> Asked {
        Asked { request: self, text }
    }
}

impl Serialize for Request {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Request::Call { name, fields } = self else {
            return Request::serialize(self, serializer);
        };
        if CORE_REQUESTS.contains(&name.as_str()) {
            return Err(S::Error::custom(format!("`{name}` is not a request of an application")));
        }
        if let Some(taken) = ["request", "text"].into_iter().find(|key| fields.contains_key(*key)) {
            return Err(S::Error::custom(format!("`{taken}` is not a field of a request")));
        }
        tagged("request", name, fields, serializer)
    }
}

impl<'de> Deserialize<'de> for Request {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Request, D::Error> {
        let Object(mut fields) = Object::deserialize(deserializer)?;
        let name = tag("request", &fields).map_err(de::Error::custom)?;
        if !CORE_REQUESTS.contains(&name.as_str()) {
            fields.remove("request");
            if fields.contains_key("text") {
                return Err(de::Error::custom("`text` is not a field of a request"));
            }
            return Ok(Request::Call { name, fields });
        }
        // The derived code lets any field pass beside the name of a request that has none.
        let extra = fields.keys().find(|key| *key != "request").cloned();
        let request = Request::deserialize(Value::Object(fields)).map_err(de::Error::custom)?;
        match (&request, extra) {
            (
                Request::ClearCounters | Request::Reload | Request::Diff | Request::Stop,
                Some(extra),
            ) => Err(de::Error::custom(format!("unknown field `{extra}`, there are no fields"))),
            _ => Ok(request),
        }
    }
}

impl Serialize for Asked {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if !self.text {
            return Serialize::serialize(&self.request, serializer);
        }
        let mut object = fields_of(&self.request).map_err(S::Error::custom)?;
        object.insert("text".to_owned(), Value::Bool(true));
        object.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Asked {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Asked, D::Error> {
        let Object(mut object) = Object::deserialize(deserializer)?;
        let text = match object.remove("text") {
            None => false,
            Some(Value::Bool(text)) => text,
            Some(_) => return Err(de::Error::custom("`text`: expected true or false")),
        };
        let request = <Request as Deserialize>::deserialize(Value::Object(object));
        Ok(Asked { request: request.map_err(de::Error::custom)?, text })
    }
}

/// Where packets are copied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CaptureAt {
    /// At the stage of this name, or else at the port: the program knows what it has.
    Named(String),
    /// As a port receives and sends them.
    Port(String),
    /// As they come out of a stage.
    Stage(String),
    /// As they are dropped, the reason in the comment.
    Drops,
    /// Those that a stage gives to captures and nothing else.
    Dumps,
}

/// What the server answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "response", rename_all = "snake_case", remote = "Self")]
pub enum Response {
    /// Part of a table, for programs: `{"response": TABLE, "rows": […]}`.
    #[serde(skip)]
    Rows {
        /// Its name. None of [`CORE_RESPONSES`].
        table: String,
        /// Objects, as many as one piece has.
        rows: Vec<Value>,
    },
    /// A table that is one object, for programs: `{"response": TABLE, …}`.
    #[serde(skip)]
    Object {
        /// Its name. None of [`CORE_RESPONSES`].
        table: String,
        /// Its fields. `response` and `rows` are not among them.
        fields: Map<String, Value>,
    },
    /// Part of a table, for people; pieces with the same columns are one table.
    Table {
        /// Titles as in [`Row::COLUMNS`].
        columns: Vec<String>,
        /// One text for each column.
        rows: Vec<Vec<String>>,
        /// The text for no rows at all; empty: the titles alone.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        empty: String,
    },
    /// Finished text, for people.
    Text {
        /// With a newline at each line's end.
        text: String,
    },
    /// One packet's way.
    Trace {
        /// Stage by stage.
        steps: Vec<TraceStep>,
    },
    /// One packet.
    Frame(Frame),
    /// It was done.
    Done {
        /// What there is to say about it; may be empty.
        message: String,
    },
    /// It was not done. Ends the answer.
    Error {
        /// For programs.
        kind: ErrorKind,
        /// For people.
        message: String,
    },
    /// Ends the answer.
    End,
}

/// Names that no table has.
pub const CORE_RESPONSES: [&str; 7] = ["table", "text", "trace", "frame", "done", "error", "end"];

impl Serialize for Response {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let check = |table: &str| {
            let is_core = CORE_RESPONSES.contains(&table);
            let refusal = || S::Error::custom(format!("`{table}` is not a name of a table"));
            if is_core { Err(refusal()) } else { Ok(()) }
        };
        match self {
            Response::Rows { table, rows } => {
                check(table)?;
                let mut map = serializer.serialize_map(Some(2))?;
                map.serialize_entry("response", table)?;
                map.serialize_entry("rows", rows)?;
                map.end()
            }
            Response::Object { table, fields } => {
                check(table)?;
                let taken = ["response", "rows"].into_iter().find(|key| fields.contains_key(*key));
                if let Some(taken) = taken {
                    return Err(S::Error::custom(format!("`{taken}` is not a field of a table")));
                }
                tagged("response", table, fields, serializer)
            }
            _ => Response::serialize(self, serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Response {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Response, D::Error> {
        let Object(mut fields) = Object::deserialize(deserializer)?;
        let table = tag("response", &fields).map_err(de::Error::custom)?;
        if CORE_RESPONSES.contains(&table.as_str()) {
            return Response::deserialize(Value::Object(fields)).map_err(de::Error::custom);
        }
        fields.remove("response");
        match fields.remove("rows") {
            None => Ok(Response::Object { table, fields }),
            Some(Value::Array(rows)) if fields.is_empty() => Ok(Response::Rows { table, rows }),
            Some(_) => {
                Err(de::Error::custom(format!("`{table}`: expected an array of rows alone")))
            }
        }
    }
}

/// Why a request failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The line is not a request, or names what does not exist.
    BadRequest,
    /// There is no such route, port or stage.
    NotFound,
    /// There is one already.
    Exists,
    /// A table is full; it keeps what it holds.
    Full,
    /// Too many connections or captures.
    Busy,
    /// This build or mode cannot.
    Unsupported,
    /// The configuration has errors; the message shows them.
    Config,
    /// A defect or a failing system.
    Internal,
}

/// One step of a traced packet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceStep {
    /// `rx`, the stage's name, or `tx`.
    pub stage: String,
    /// Verdict after it, in words: `next`, `forward wan`, `drop ttl_exceeded`.
    pub verdict: String,
    /// What it saw and did: columns that it wrote, header fields.
    pub detail: String,
}

/// A captured frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// Since 1970.
    pub time_ns: u64,
    /// Port that received it (or sends it, where `sent`).
    pub port: String,
    /// Copied at transmit.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sent: bool,
    /// Bytes on the wire; `bytes` may hold fewer.
    pub original_len: u32,
    /// From the Ethernet header on; in hexadecimal on the socket.
    #[serde(with = "hex")]
    pub bytes: Vec<u8>,
    /// For the packet's comment in pcapng, such as the drop reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
}

impl Response {
    /// An error of `kind`.
    pub fn error(kind: ErrorKind, message: impl ToString) -> Response {
        Response::Error { kind, message: message.to_string() }
    }

    /// Nothing follows it.
    pub fn is_last(&self) -> bool {
        matches!(self, Response::Error { .. } | Response::End)
    }

    /// A piece of a table in the form that is asked: texts, or rows.
    pub fn piece<R: Row + Serialize>(table: &str, rows: &[R], text: bool) -> Response {
        if text {
            Response::Table {
                columns: R::COLUMNS.iter().map(|column| (*column).to_owned()).collect(),
                rows: rows.iter().map(Row::cells).collect(),
                empty: R::EMPTY.to_owned(),
            }
        } else {
            Response::rows(table, rows)
        }
    }

    /// A whole table in the form that is asked, in pieces of [`ROWS_PER_RESPONSE`](super::ROWS_PER_RESPONSE) rows; one
    /// piece where there are no rows.
    pub fn pieces<R: Row + Serialize>(
        table: &str,
        rows: &[R],
        text: bool,
    ) -> impl Iterator<Item = Response> {
        let first = rows.is_empty().then_some(rows);
        let pieces = first.into_iter().chain(rows.chunks(super::ROWS_PER_RESPONSE));
        pieces.map(move |rows| Response::piece(table, rows, text))
    }

    /// A piece of a table for programs. A row that JSON cannot hold, which no type here makes, is null.
    pub fn rows<R: Serialize>(table: &str, rows: &[R]) -> Response {
        let row = |row: &R| serde_json::to_value(row).unwrap_or_default();
        Response::Rows { table: table.to_owned(), rows: rows.iter().map(row).collect() }
    }

    /// A table that is one object, for programs. `object` is a struct or a map with texts as keys: another value has no
    /// fields.
    pub fn object(table: &str, object: &impl Serialize) -> Response {
        let fields = fields_of(object).unwrap_or_default();
        Response::Object { table: table.to_owned(), fields }
    }
}

/// Reads the fields of a [`Request::Call`] as the type that its application declares.
///
/// # Errors
/// An answer of [`ErrorKind::BadRequest`]: a field is missing, unknown, or has a wrong value.
pub fn decode<T: DeserializeOwned>(fields: Map<String, Value>) -> Result<T, Box<Response>> {
    let decoded = serde_json::from_value(Value::Object(fields));
    decoded.map_err(|error| Box::new(Response::error(ErrorKind::BadRequest, error)))
}

/// The fields of a value that is an object in JSON.
///
/// # Errors
/// It is something else.
pub fn fields_of(value: &impl Serialize) -> Result<Map<String, Value>, String> {
    match serde_json::to_value(value) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(other) => Err(format!("expected an object, found {other}")),
        Err(error) => Err(error.to_string()),
    }
}

/// Writes an object that begins with its tag.
fn tagged<S: Serializer>(
    tag: &'static str,
    name: &str,
    fields: &Map<String, Value>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(1 + fields.len()))?;
    map.serialize_entry(tag, name)?;
    for (key, value) in fields {
        map.serialize_entry(key, value)?;
    }
    map.end()
}

/// The text of an object's tag.
fn tag(tag: &'static str, fields: &Map<String, Value>) -> Result<String, String> {
    match fields.get(tag) {
        Some(Value::String(name)) => Ok(name.clone()),
        Some(_) => Err(format!("`{tag}`: expected a text")),
        None => Err(format!("missing field `{tag}`")),
    }
}

/// An object of which no key is there twice.
struct Object(Map<String, Value>);

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Object, D::Error> {
        struct Read;

        impl<'de> Visitor<'de> for Read {
            type Value = Object;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Object, A::Error> {
                let mut fields = Map::new();
                while let Some((key, value)) = access.next_entry::<String, Value>()? {
                    if fields.contains_key(&key) {
                        return Err(de::Error::custom(format!("duplicate field `{key}`")));
                    }
                    fields.insert(key, value);
                }
                Ok(Object(fields))
            }
        }

        deserializer.deserialize_map(Read)
    }
}

mod seconds {
    use super::*;
    use serde::{Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(
        duration: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        duration.map(|duration| duration.as_secs_f64()).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        Option::<f64>::deserialize(deserializer)?
            .map(|seconds| Duration::try_from_secs_f64(seconds).map_err(D::Error::custom))
            .transpose()
    }
}

mod hex {
    use super::*;
    use serde::{Deserializer, Serializer, de::Error};
    use std::borrow::Cow;

    const DIGITS: &[u8; 16] = b"0123456789abcdef";

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], s: S) -> Result<S::Ok, S::Error> {
        let mut text = String::with_capacity(bytes.len() * 2);
        for byte in bytes {
            text.push(DIGITS[usize::from(byte >> 4)] as char);
            text.push(DIGITS[usize::from(byte & 15)] as char);
        }
        s.serialize_str(&text)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<u8>, D::Error> {
        let text = Cow::<'de, str>::deserialize(d)?;
        let error = || D::Error::custom("expected an even number of hexadecimal digits");
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        let digit = |c: u8| char::from(c).to_digit(16).ok_or_else(error);
        if !rest.is_empty() {
            return Err(error());
        }
        pairs.iter().map(|[high, low]| Ok((digit(*high)? << 4 | digit(*low)?) as u8)).collect()
    }
}
