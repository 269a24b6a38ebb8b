//! Which names the server answers to.
//!
//! DNS rebinding: a page of another site whose name leads to 127.0.0.1 is, for a browser, of the same origin as this
//! server, so its script could read the counters and the names of ports and rules. Its requests have the name of that
//! site as `Host`. An address is nobody's name, and `localhost` and the name of this machine are not the site's.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use axum::http::header::HOST;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Uri};

/// The names that are accepted, in lower case; addresses always are.
#[derive(Debug, Clone)]
pub(super) struct Hosts(Arc<[String]>);

impl Hosts {
    /// `localhost`, the name of this machine, and those of the configuration.
    pub(super) fn with(more: &[String]) -> Self {
        let uname = rustix::system::uname();
        let own = uname.nodename().to_str().unwrap_or_default();
        let names = ["localhost", own].into_iter().chain(more.iter().map(String::as_str));
        Self(names.filter(|name| !name.is_empty()).map(str::to_lowercase).collect())
    }

    /// Refuses a request to another host.
    ///
    /// # Errors
    /// Why, in a line for the user.
    pub(super) fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), String> {
        let of_uri = uri.authority().map(|authority| Some(authority.clone()));
        let hosts = headers.get_all(HOST).into_iter();
        let parsed = hosts.map(|host| Authority::try_from(host.as_bytes()).ok());
        // A browser always sends `Host`. Without, it is a client of HTTP/1.0.
        for host in of_uri.into_iter().chain(parsed) {
            let name = host.as_ref().map_or("", Authority::host);
            if !self.has(name) {
                return Err(format!(
                    "The host `{name}` is not known here, so that pages of other sites cannot read this port (DNS \
                     rebinding). Use the address of this machine, or add the name to `system.metrics_hosts`.\n"
                ));
            }
        }
        Ok(())
    }

    fn has(&self, name: &str) -> bool {
        let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
        match bare {
            Some(address) => address.parse::<Ipv6Addr>().is_ok(),
            None => {
                let name = name.strip_suffix('.').unwrap_or(name);
                name.parse::<Ipv4Addr>().is_ok()
                    || self.0.iter().any(|own| own.eq_ignore_ascii_case(name))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_others_are_refused() {
        let uname = rustix::system::uname();
        let own = uname.nodename().to_str().expect("a name").to_owned();
        let hosts = Hosts::with(&["Router.example.net".to_owned()]);
        let check = |uri: &'static str, host: &str| {
            let headers = [(HOST, host.parse().expect("a value"))].into_iter().collect();
            hosts.check(&Uri::from_static(uri), &headers)
        };
        for good in
            ["127.0.0.1:9101", "192.0.2.1", "[::1]:9101", "[2001:db8::1]", "localhost:9101", &own]
        {
            assert_eq!(check("/", good), Ok(()), "{good}");
        }
        for good in ["LOCALHOST", "localhost.", "router.example.net:80", "ROUTER.example.NET"] {
            assert_eq!(check("/", good), Ok(()), "{good}");
        }
        for bad in [
            "evil.example",
            "127.0.0.1.evil.example:9101",
            "localhost.evil.example",
            "",
            "[evil]",
            "a b",
        ] {
            let why = check("/", bad).expect_err(bad);
            assert!(why.contains("metrics_hosts") && why.lines().count() == 1, "{why}");
        }
        assert!(check("http://evil.example/", "127.0.0.1").is_err());
        assert_eq!(hosts.check(&Uri::from_static("/"), &HeaderMap::new()), Ok(()));
    }
}
