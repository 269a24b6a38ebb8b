//! Routes for names of `ctl` as `[[name]]` of the configuration file.

use control::config::Config;
use control::config::draft::{Draft, Value};

use super::rows::NameRow;

/// Gives the file the routes of `ctl`, which are used instead of those of the file with their prefixes; those that it cannot
/// have, in words.
pub(super) fn names(own: &[NameRow], config: &Config, draft: &mut Draft) -> Vec<String> {
    let mut list = draft.list(&["name"]);
    let mut left_out = Vec::new();
    for NameRow { prefix, faces, .. } in own {
        if let Some(face) = faces.iter().find(|face| config.face(face).is_none()) {
            left_out.push(format!("name {prefix}: the file has no face `{face}`"));
            continue;
        }
        let value: Value = faces.iter().map(String::as_str).collect();
        let is_same = |name: &control::config::NameRoute| name.prefix.to_string() == *prefix;
        match config.names.iter().position(is_same) {
            Some(at) if config.names[at].faces == *faces => {}
            Some(at) => list.set(at, "faces", Some(value)),
            None => {
                let end = list.len();
                let prefix = ("prefix".to_owned(), prefix.as_str().into());
                list.insert(end, vec![prefix, ("faces".to_owned(), value)]);
            }
        }
    }
    left_out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ndn::name_routes::Source;

    #[test]
    fn routes_for_names_are_saved() {
        let text = "mode = \"ndn\"\n[port.lan]\nbackend = \"memory\"\n[ndn.face.west]\nport = \"lan\"\n\
                    [ndn.face.east]\nport = \"lan\"\nmac = \"02:00:00:00:00:09\"\n\
                    # mine\n[[name]]\nprefix = \"/a\"\nfaces = [\"west\"] # for now\n";
        let row = |prefix: &str, faces: &[&str]| NameRow {
            prefix: prefix.to_owned(),
            faces: faces.iter().map(|face| (*face).to_owned()).collect(),
            source: Source::Api,
            active: true,
        };
        let known = crate::known_stages();
        let (config, _) = control::config::parse(text, &known).unwrap();
        let own = [row("/a", &["east", "west"]), row("/b%20c", &["west"]), row("/d", &["@2"])];
        let mut draft = Draft::parse(text).unwrap();
        let left_out = names(&own, &config, &mut draft);
        assert_eq!(left_out, ["name /d: the file has no face `@2`"]);
        let expected = text.replace("[\"west\"]", "[\"east\", \"west\"]")
            + "\n[[name]]\nprefix = \"/b%20c\"\nfaces = [\"west\"]\n";
        assert_eq!(draft.text(), expected);
        let (config, _) = control::config::parse(&expected, &known).unwrap();
        let mut again = Draft::parse(&expected).unwrap();
        names(&own, &config, &mut again);
        assert_eq!(again.text(), expected);
    }
}
