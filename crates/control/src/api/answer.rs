//! A whole answer, as a client prints it: the pieces of a long table become one.

use serde_json::Value;

use super::message::Response;
use super::table;

/// An answer for people; empty where there is nothing to print. Different tables have a blank line between them.
pub fn text(responses: Vec<Response>) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut responses = responses.into_iter().peekable();
    while let Some(response) = responses.next() {
        match response {
            Response::Table { columns, mut rows, empty } => {
                while let Some(Response::Table { rows: more, .. }) = responses.next_if(
                    |next| matches!(next, Response::Table { columns: c, .. } if *c == columns),
                ) {
                    rows.extend(more);
                }
                parts.push(if rows.is_empty() && !empty.is_empty() {
                    format!("{empty}\n")
                } else {
                    table::print(&columns, &rows)
                });
            }
            Response::Text { text } => parts.push(text),
            Response::Done { message } => parts.push(message),
            // What a program without texts for it answers.
            Response::Rows { rows, .. } => {
                parts.push(rows.iter().map(|row| format!("{row}\n")).collect());
            }
            Response::Object { fields, .. } => {
                parts.push(format!("{:#}\n", Value::Object(fields)));
            }
            _ => {}
        }
    }
    parts.retain(|part| !part.is_empty());
    parts.join("\n")
}

/// An answer for programs: the rows of a table as one array, else the last object; `None` where there is nothing. Which
/// table it is, they asked themselves.
pub fn json(responses: Vec<Response>) -> Option<Value> {
    let mut whole = None;
    for response in responses {
        whole = Some(match (response, whole) {
            (Response::Rows { rows: more, .. }, Some(Value::Array(mut rows))) => {
                rows.extend(more);
                Value::Array(rows)
            }
            (Response::Rows { rows, .. }, _) => Value::Array(rows),
            (Response::Object { fields, .. }, _) => Value::Object(fields),
            (other, _) => {
                let mut fields = super::fields_of(&other).unwrap_or_default();
                fields.remove("response");
                Value::Object(fields)
            }
        });
    }
    whole
}
