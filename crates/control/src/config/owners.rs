//! Which application reads what.

use super::types::App;

/// Names, and the applications that read them.
pub(super) type Owners = (&'static [App], &'static [&'static str]);

/// Sections.
pub(super) const SECTIONS: [Owners; 5] = [
    (&[App::Router], &["router", "route", "routes"]),
    (&[App::Router, App::Ndn], &["neighbour"]),
    (&[App::Router, App::Switch, App::Wire], &["firewall", "rule"]),
    (&[App::Switch], &["switch", "station"]),
    (&[App::Ndn], &["ndn", "name", "names"]),
];

/// Keys of a port.
pub(super) const PORT_KEYS: [Owners; 3] = [
    (&[App::Router, App::Ndn], &["addresses", "twin"]),
    (&[App::Router], &["rpf", "parent", "vlan"]),
    (&[App::Switch], &["access", "trunk", "native", "learning", "storm"]),
];

/// Names that an application does not read; none where nobody knows which application it is.
pub(super) fn foreign(owners: &[Owners], app: Option<App>) -> impl Iterator<Item = &'static str> {
    owners
        .iter()
        .filter(move |(owners, _)| app.is_some_and(|app| !owners.contains(&app)))
        .flat_map(|(_, names)| names.iter().copied())
}
