//! Requests and tables of a named-data forwarder for `ctl`.

use clap::Args;
use controlplane::request::{GroupKind, NameKind, RequestKind, TableKind};
use serde::{Deserialize, Serialize};

use crate::neighbours::NEIGHBOURS;

/// Its groups of requests.
pub const GROUPS: &[GroupKind] =
    &[GroupKind::new("name", "Change or look up a route for names").shows("names")];

/// Its requests. `name add` is an error where a route of `ctl` has the prefix; `name get` answers with `names` of one row.
pub const REQUESTS: &[RequestKind] = &[
    RequestKind::change::<NameAdd>(&["name", "add"], "Add a route for a name prefix"),
    RequestKind::change::<NameDel>(&["name", "del"], "Remove a route that was added with `ctl`"),
    RequestKind::query::<NameGet>(&["name", "get"], "Look up the route of an Interest for a name"),
];

/// Its tables.
pub const TABLES: &[TableKind] = &[
    TableKind::new("faces", "Faces of a named-data forwarder"),
    TableKind::new("names", "Name routes of a named-data forwarder"),
    NEIGHBOURS,
];

/// Its names.
pub const NAMES: &[NameKind] = &[
    NameKind { value: "FACE[,FACE]", table: "faces", arguments: &[], field: "name" },
    NameKind { value: "NAME_PREFIX", table: "names", arguments: &[], field: "prefix" },
];

/// Adds a route for names, of source `api`: `name_add`.
#[derive(Debug, Clone, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NameAdd {
    /// Name prefix, such as `/org/example`
    pub prefix: String,
    /// Names of faces, separated by `,`, best first
    #[arg(value_delimiter = ',', required = true, value_name = "FACE[,FACE]")]
    pub faces: Vec<String>,
}

/// Takes a route of source `api` away: `name_del`.
#[derive(Debug, Clone, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NameDel {
    /// Its prefix
    #[arg(value_name = "NAME_PREFIX")]
    pub prefix: String,
}

/// The route that Interests for a name take: `name_get`.
#[derive(Debug, Clone, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NameGet {
    /// The name
    pub name: String,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::requests::{error_of, request_of};

    #[test]
    fn arguments_are_requests() {
        let fields = json!({"prefix": "/org/a%20b", "faces": ["west", "far"]});
        for words in [&["/org/a%20b", "west,far"] as &[_], &["/org/a%20b", "west", "far"]] {
            request_of::<NameAdd>(&REQUESTS[0], words, "name_add", &fields);
        }
        request_of::<NameDel>(&REQUESTS[1], &["/"], "name_del", &json!({"prefix": "/"}));
        request_of::<NameGet>(&REQUESTS[2], &["/a/b"], "name_get", &json!({"name": "/a/b"}));
        assert!(error_of(&REQUESTS[0], &["/org"]).contains("<FACE[,FACE]>"));
        assert!(error_of(&REQUESTS[2], &[]).contains("<NAME>"));
    }
}
