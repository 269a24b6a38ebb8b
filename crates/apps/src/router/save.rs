//! Routes of `ctl` as `[[route]]` of the configuration file.
//!
//! A route of `ctl` is used instead of the static one with its prefix and metric, so it takes the place of that entry.

use control::config::draft::{Draft, Keys, List, Value};
use control::config::{Config, NextHop};
use ipnet::IpNet;

/// A route of `ctl`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Own {
    pub(super) prefix: IpNet,
    pub(super) metric: u32,
    pub(super) next_hop: NextHop,
    /// It is the one in use.
    pub(super) is_active: bool,
}

/// Keys that say where a route leads.
const HOPS: [&str; 4] = ["via", "port", "blackhole", "unreachable"];

/// Gives the file the routes of `ctl`; those that it cannot have, in words.
pub(super) fn routes(own: &[Own], config: &Config, draft: &mut Draft) -> Vec<String> {
    let mut list = draft.list(&["route"]);
    let mut left_out = Vec::new();
    for route in own {
        let Own { prefix, next_hop, .. } = route;
        let mut others = config.routes.iter();
        let same = others.position(|o| (o.prefix, o.metric) == (route.prefix, route.metric));
        match same {
            Some(at) if config.routes[at].next_hop == *next_hop => {}
            _ if !next_hop.carries(prefix.addr().is_ipv4()) => {
                left_out.push(format!(
                    "route {prefix} via {next_hop}: [[route]] has no next hops of the other family"
                ));
            }
            Some(_) if !route.is_active => {
                left_out.push(format!(
                    "route {prefix} via {next_hop}: [[route]] has another one, which is in use"
                ));
            }
            Some(at) => set_hop(&mut list, at, route),
            None => {
                let end = list.len();
                list.insert(end, keys(route));
            }
        }
    }
    left_out
}

/// The keys of a next hop.
fn hop(next_hop: &NextHop) -> Keys {
    let key = |key: &str, value: Value| (key.to_owned(), value);
    match next_hop {
        NextHop::Address { address, port } => {
            let port = port.as_ref().map(|port| key("port", port.as_str().into()));
            std::iter::once(key("via", address.to_string().into())).chain(port).collect()
        }
        NextHop::Port(port) => vec![key("port", port.as_str().into())],
        NextHop::Group(_) => vec![key("via", next_hop.to_string().into())],
        NextHop::Blackhole => vec![key("blackhole", true.into())],
        NextHop::Unreachable => vec![key("unreachable", true.into())],
    }
}

fn keys(route: &Own) -> Keys {
    let mut keys = vec![("prefix".to_owned(), route.prefix.to_string().into())];
    keys.extend(hop(&route.next_hop));
    if route.metric != 0 {
        keys.push(("metric".to_owned(), i64::from(route.metric).into()));
    }
    keys
}

/// Makes the next hop of an entry that of a route.
fn set_hop(list: &mut List<'_>, at: usize, route: &Own) {
    let keys = hop(&route.next_hop);
    for key in HOPS.iter().filter(|key| keys.iter().all(|(own, _)| own != *key)) {
        list.set(at, key, None);
    }
    for (key, value) in keys {
        list.set(at, &key, Some(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str =
        "mode = \"router\"\n[port.lan]\nbackend = \"memory\"\n[port.wan]\nbackend = \"memory\"\n";

    /// Routes of the file after routes of `ctl` were saved, and what could not be.
    fn saved(file: &str, own: &[(&str, u32, &str, bool)]) -> (String, Vec<String>) {
        let text = format!("{HEAD}{file}");
        let (config, _) = control::config::parse(&text, &crate::known_stages()).unwrap();
        let own: Vec<_> = own
            .iter()
            .map(|(prefix, metric, hop, is_active)| Own {
                prefix: prefix.parse().unwrap(),
                metric: *metric,
                next_hop: hop.parse().unwrap(),
                is_active: *is_active,
            })
            .collect();
        let mut draft = Draft::parse(&text).unwrap();
        let left_out = routes(&own, &config, &mut draft);
        // What is written is read as what was meant, and saved once.
        let (config, _) = control::config::parse(&draft.text(), &crate::known_stages()).unwrap();
        for route in own.iter().filter(|own| own.is_active) {
            let read = config
                .routes
                .iter()
                .filter(|read| (read.prefix, read.metric) == (route.prefix, route.metric));
            let read: Vec<_> = read.map(|read| &read.next_hop).collect();
            assert_eq!(read, [&route.next_hop]);
        }
        let text = draft.text();
        let mut again = Draft::parse(&text).unwrap();
        assert_eq!(routes(&own, &config, &mut again), left_out);
        assert_eq!(again.text(), text);
        (text.strip_prefix(HEAD).unwrap().to_owned(), left_out)
    }

    #[test]
    fn every_next_hop_has_its_keys() {
        let (text, left_out) = saved(
            "",
            &[
                ("10.0.0.0/8", 0, "192.0.2.1", true),
                ("2001:db8::/32", 7, "fe80::1%lan", true),
                ("10.2.0.0/16", 0, "wan", true),
                ("10.3.0.0/16", 0, "192.0.2.1*3,192.0.2.2%lan,wan", false),
                ("10.4.0.0/16", 0, "blackhole", true),
                ("::/0", 0, "unreachable", true),
            ],
        );
        assert_eq!(
            text,
            "\n[[route]]\nprefix = \"10.0.0.0/8\"\nvia = \"192.0.2.1\"\n\
             \n[[route]]\nprefix = \"2001:db8::/32\"\nvia = \"fe80::1\"\nport = \"lan\"\nmetric = 7\n\
             \n[[route]]\nprefix = \"10.2.0.0/16\"\nport = \"wan\"\n\
             \n[[route]]\nprefix = \"10.3.0.0/16\"\nvia = \"192.0.2.1*3,192.0.2.2%lan,wan\"\n\
             \n[[route]]\nprefix = \"10.4.0.0/16\"\nblackhole = true\n\
             \n[[route]]\nprefix = \"::/0\"\nunreachable = true\n"
        );
        assert!(left_out.is_empty(), "{left_out:?}");
    }

    #[test]
    fn a_route_takes_the_place_of_the_one_that_it_replaced() {
        let file = "# ten\n[[route]]\nprefix = \"10.0.0.0/8\" # all of it\nvia = \"192.0.2.1\" # west\n\
                    [[route]]\nprefix = \"10.0.0.0/8\"\nmetric = 5\nport = \"lan\"\n";
        let (text, _) = saved(file, &[("10.0.0.0/8", 0, "192.0.2.2", true)]);
        assert_eq!(
            text,
            "# ten\n[[route]]\nprefix = \"10.0.0.0/8\" # all of it\nvia = \"192.0.2.2\" # west\n\
             [[route]]\nprefix = \"10.0.0.0/8\"\nmetric = 5\nport = \"lan\"\n"
        );
        let (text, _) = saved(file, &[("10.0.0.0/8", 5, "blackhole", true)]);
        assert!(text.ends_with("metric = 5\nblackhole = true\n"), "{text}");
        let (text, left_out) = saved(file, &[("10.0.0.0/8", 5, "blackhole", false)]);
        assert_eq!(text, file);
        assert!(left_out[0].contains("route 10.0.0.0/8 via blackhole"), "{left_out:?}");
        let (text, left_out) = saved(file, &[("11.0.0.0/8", 0, "fe80::1%lan", false)]);
        assert_eq!(text, file);
        assert!(left_out[0].contains("of the other family"), "{left_out:?}");
    }
}
