//! `$NAME`: the table of variables, as suricata.yaml's `vars` has it.

use std::collections::HashMap;

use crate::ResolveError;
use crate::list::{AddressItem, Intervals, Item, LIST_DEPTH_MAX, List, PortRange, RANGES_MAX};
use crate::problem::nearest;

/// Why a table of variables is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VariableError {
    /// The text of one is not a list.
    #[error("variable {name}, column {column}: {reason}")]
    Text {
        /// Its name.
        name: String,
        /// Byte of its text, from 1.
        column: usize,
        /// Why.
        reason: String,
    },
    /// One does not resolve.
    #[error("variable {0}: {1}")]
    Resolve(String, ResolveError),
}

/// Addresses and ports by name, resolved once.
#[derive(Clone, Debug, Default)]
pub struct Variables {
    addresses: HashMap<String, Intervals>,
    ports: HashMap<String, Intervals>,
}

impl Variables {
    /// A table of pairs of a name, without `$`, and a list, which may name others of the same kind in any order. A later
    /// pair of the same name is the one that applies.
    ///
    /// # Errors
    /// The first that is not a list, leads back to itself, names one that is not there or excludes everything.
    pub fn new<'a>(
        addresses: impl IntoIterator<Item = (&'a str, &'a str)>,
        ports: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, VariableError> {
        Ok(Self {
            addresses: resolve::<AddressItem>(addresses.into_iter())?,
            ports: resolve::<PortRange>(ports.into_iter())?,
        })
    }

    /// The names and values that suricata.yaml comes with, with other values (or more names) for some.
    ///
    /// # Errors
    /// As [`Variables::new`].
    pub fn with_defaults<'a>(
        addresses: impl IntoIterator<Item = (&'a str, &'a str)>,
        ports: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, VariableError> {
        Self::new(ADDRESSES.iter().copied().chain(addresses), PORTS.iter().copied().chain(ports))
    }

    /// Whether suricata.yaml has a variable of this name, without `$`.
    pub fn is_default(name: &str) -> bool {
        default_names().any(|own| own == name)
    }

    /// The addresses of a name without `$`.
    pub fn address(&self, name: &str) -> Option<&Intervals> {
        self.addresses.get(name)
    }

    /// The ports of a name without `$`.
    pub fn port(&self, name: &str) -> Option<&Intervals> {
        self.ports.get(name)
    }
}

fn default_names() -> impl Iterator<Item = &'static str> {
    ADDRESSES.iter().chain(PORTS).map(|(name, _)| *name)
}

/// The name of a variable of suricata.yaml that is nearest to another one, where one is near.
pub fn nearest_variable(name: &str) -> Option<&'static str> {
    nearest(&default_names().collect::<Vec<_>>(), name)
}

const ADDRESSES: &[(&str, &str)] = &[
    ("HOME_NET", "[192.168.0.0/16,10.0.0.0/8,172.16.0.0/12]"),
    ("EXTERNAL_NET", "!$HOME_NET"),
    ("HTTP_SERVERS", "$HOME_NET"),
    ("SMTP_SERVERS", "$HOME_NET"),
    ("SQL_SERVERS", "$HOME_NET"),
    ("DNS_SERVERS", "$HOME_NET"),
    ("TELNET_SERVERS", "$HOME_NET"),
    ("AIM_SERVERS", "$EXTERNAL_NET"),
    ("DC_SERVERS", "$HOME_NET"),
    ("DNP3_SERVER", "$HOME_NET"),
    ("DNP3_CLIENT", "$HOME_NET"),
    ("MODBUS_CLIENT", "$HOME_NET"),
    ("MODBUS_SERVER", "$HOME_NET"),
    ("ENIP_CLIENT", "$HOME_NET"),
    ("ENIP_SERVER", "$HOME_NET"),
];

const PORTS: &[(&str, &str)] = &[
    ("HTTP_PORTS", "80"),
    ("SHELLCODE_PORTS", "!80"),
    ("ORACLE_PORTS", "1521"),
    ("SSH_PORTS", "22"),
    ("DNP3_PORTS", "20000"),
    ("MODBUS_PORTS", "502"),
    ("FILE_DATA_PORTS", "[$HTTP_PORTS,110,143]"),
    ("FTP_PORTS", "21"),
    ("GENEVE_PORTS", "6081"),
    ("VXLAN_PORTS", "4789"),
    ("TEREDO_PORTS", "3544"),
    ("SIP_PORTS", "[5060,5061]"),
];

fn resolve<'a, T: Item>(
    pairs: impl Iterator<Item = (&'a str, &'a str)>,
) -> Result<HashMap<String, Intervals>, VariableError> {
    let mut lists: HashMap<&str, List<T>> = HashMap::new();
    let mut order = Vec::new();
    for (name, text) in pairs {
        let list = List::parse_at(text.as_bytes(), 0).map_err(|fault| VariableError::Text {
            name: name.to_owned(),
            column: fault.at + 1,
            reason: fault.reason,
        })?;
        lists.insert(name, list);
        order.push(name);
    }
    let mut work = Work { lists, done: HashMap::new() };
    for name in order {
        let found = work.resolve(name, &mut Vec::new());
        let found = found.and_then(|set| match set.is_empty() {
            true => Err(ResolveError::Empty),
            false => Ok(()),
        });
        found.map_err(|error| VariableError::Resolve(name.to_owned(), error))?;
    }
    Ok(work.done)
}

struct Work<'a, T> {
    lists: HashMap<&'a str, List<T>>,
    /// Each is resolved once, so that a chain of doublings takes no more than its length.
    done: HashMap<String, Intervals>,
}

impl<T: Item> Work<'_, T> {
    fn resolve(&mut self, name: &str, path: &mut Vec<String>) -> Result<Intervals, ResolveError> {
        if let Some(set) = self.done.get(name) {
            return Ok(set.clone());
        }
        if path.iter().any(|above| above == name) {
            return Err(ResolveError::Cycle(name.to_owned()));
        }
        if path.len() >= LIST_DEPTH_MAX {
            return Err(ResolveError::Depth(name.to_owned()));
        }
        let list = self.lists.get(name).cloned();
        let list = list.ok_or_else(|| ResolveError::Undefined(name.to_owned()))?;
        path.push(name.to_owned());
        let set = list.resolve_with(&mut |inner| self.resolve(inner, path))?;
        path.pop();
        if set.len() > RANGES_MAX {
            return Err(ResolveError::Ranges);
        }
        self.done.insert(name.to_owned(), set.clone());
        Ok(set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names() {
        assert_eq!(nearest_variable("HOME_NETS"), Some("HOME_NET"));
        assert_eq!(nearest_variable("home_net"), Some("HOME_NET"));
        assert_eq!(nearest_variable("PRINTERS"), None);
        assert!(Variables::is_default("HTTP_PORTS") && !Variables::is_default("HTTP_PORT"));
    }

    #[test]
    fn defaults_resolve_and_yield() {
        let variables = Variables::with_defaults([("HOME_NET", "10.1.0.0/16")], []).unwrap();
        let outside = variables.address("EXTERNAL_NET").unwrap();
        assert!(outside.has_address([10, 2, 0, 1].into()));
        assert!(!outside.has_address([10, 1, 0, 1].into()));
        assert!(variables.port("FILE_DATA_PORTS").unwrap().has_port(80));
    }

    #[test]
    fn what_is_refused() {
        let refused = |pairs: &[(&str, &str)]| {
            Variables::new(pairs.iter().copied(), []).unwrap_err().to_string()
        };
        assert_eq!(
            refused(&[("A", "$B"), ("B", "!$A")]),
            "variable A: variable $A refers to itself"
        );
        assert_eq!(refused(&[("A", "$C")]), "variable A: variable $C is not defined");
        assert_eq!(refused(&[("A", "!any")]), "variable A: the list excludes everything");
        assert_eq!(
            refused(&[("A", "[1.2.3.4,x]")]),
            "variable A, column 10: `x` is not an address, network or range"
        );
    }

    #[test]
    fn chains_of_doublings_take_no_time() {
        let names: Vec<String> = (0..30).map(|n| format!("V{n}")).collect();
        let texts: Vec<String> = (1..30).map(|n| format!("[$V{n},$V{n},!$V{n}]")).collect();
        let mut pairs: Vec<(&str, &str)> =
            names.iter().zip(&texts).map(|(n, t)| (n.as_str(), t.as_str())).collect();
        pairs.push(("V29", "10.0.0.0/8"));
        let error = Variables::new(pairs, []).unwrap_err();
        assert!(matches!(error, VariableError::Resolve(_, ResolveError::Empty)));
    }
}
