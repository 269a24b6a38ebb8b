//! Tables of routers as text: Cisco's of Stanford (`show ip cef`, `show ip arp`, configurations), Juniper's of Internet2 (`show
//! route forwarding-table`).

use std::collections::HashMap;

use super::router::{Masked, Router, Rule, To, mask};

/// Ports of one line, at most: each is a flow of its own.
const PORTS_MAX: usize = 64;

/// A router of Stanford. `None` where its files are missing.
pub fn stanford(name: &str) -> Option<Router> {
    let text = |kind: &str| {
        let bytes = testdata::bytes(&format!("openflow/stanford-backbone/{name}_rtr_{kind}.txt"))?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    };
    let mut router = Router::default();
    configuration(&mut router, &text("config")?);
    let arp = arp(&text("arp_table")?);
    routes(&mut router, &text("route")?, &arp);
    Some(router)
}

/// A router whose configuration and routes are these.
pub fn of_text(config: &str, routes: &str) -> Router {
    let mut router = Router::default();
    configuration(&mut router, config);
    self::routes(&mut router, routes, &HashMap::new());
    router
}

/// MACs by address.
fn arp(text: &str) -> HashMap<u32, u64> {
    let station = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let ["Internet", address, _, mac, ..] = words[..] else { return None };
        let mac = u64::from_str_radix(&mac.replace('.', ""), 16).ok()?;
        Some((self::address(address)?, mac))
    };
    text.lines().filter_map(station).collect()
}

fn address(text: &str) -> Option<u32> {
    text.parse::<std::net::Ipv4Addr>().ok().map(std::net::Ipv4Addr::to_bits)
}

fn prefix(text: &str) -> Option<(u32, u8)> {
    let (value, len) = text.split_once('/')?;
    let len = len.parse().ok().filter(|len| *len <= 32)?;
    Some((address(value)? & mask(len), len))
}

fn routes(router: &mut Router, text: &str, arp: &HashMap<u32, u64>) {
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let Some(own) = words.first().and_then(|word| prefix(word)) else { continue };
        let to = match words[1..] {
            [next, interface] if interface != "Null0" => match (next, address(next)) {
                (_, Some(next)) => {
                    // A next hop that is in no ARP table has an address made of its own.
                    let mac = arp.get(&next).copied().unwrap_or(0x0200_0000_0000 | u64::from(next));
                    To::Out(router.interface(interface), mac)
                }
                ("attached", _) => match arp.get(&own.0).filter(|_| own.1 == 32) {
                    Some(mac) => To::Out(router.interface(interface), *mac),
                    None => To::Host,
                },
                _ => To::Host,
            },
            ["receive", ..] => To::Host,
            _ => To::Nowhere,
        };
        router.routes.entry(own).or_insert(to);
    }
}

fn configuration(router: &mut Router, text: &str) {
    let (mut list, mut is_extended, mut interface) = (None, false, None);
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if !line.starts_with(' ') {
            (list, interface) = (None, None);
        }
        let (name, extended, rule) = match words[..] {
            ["access-list", name, ref rule @ ..] => {
                let number: u32 = name.parse().unwrap_or(100);
                (name.to_owned(), !matches!(number, 1..=99 | 1300..=1999), rule)
            }
            ["ip", "access-list", kind, name] => {
                (list, is_extended) = (Some(name.to_owned()), kind == "extended");
                router.lists.entry(name.to_owned()).or_default();
                continue;
            }
            ["interface", name] => {
                interface = Some(router.interface(name));
                continue;
            }
            ["ip", "access-group", name, way] => {
                if let Some(at) = interface {
                    let own = &mut router.interfaces[at];
                    let place = if way == "in" { &mut own.list_in } else { &mut own.list_out };
                    *place = Some(name.to_owned());
                }
                continue;
            }
            ref rule => match &list {
                Some(name) => (name.clone(), is_extended, rule),
                None => continue,
            },
        };
        if !matches!(rule.first(), Some(&("permit" | "deny"))) {
            continue; // a remark
        }
        match self::rule(rule, extended) {
            Some(rule) => router.lists.entry(name).or_default().push(rule),
            None => router.left_out += 1,
        }
    }
}

/// A line of a list; `None` where OpenFlow 1.3 cannot say it: wide ranges of ports, flags of TCP.
fn rule(words: &[&str], is_extended: bool) -> Option<Rule> {
    let permits = words[0] == "permit";
    let mut rest = &words[1..];
    if !is_extended {
        let src = masked(&mut rest)?;
        let (protocol, none) = (None, Vec::new());
        return Some(Rule {
            permits,
            protocol,
            src,
            dst: (0, 0),
            src_ports: none.clone(),
            dst_ports: none,
        });
    }
    let protocol = match *rest.first()? {
        "ip" => None,
        "tcp" => Some(6),
        "udp" => Some(17),
        "icmp" => Some(1),
        other => Some(other.parse().ok()?),
    };
    rest = &rest[1..];
    let src = masked(&mut rest)?;
    let src_ports = ports(&mut rest)?;
    let dst = masked(&mut rest)?;
    let dst_ports = ports(&mut rest)?;
    let is_whole = rest.iter().all(|word| word.starts_with("log"));
    is_whole.then_some(Rule { permits, protocol, src, dst, src_ports, dst_ports })
}

fn masked(rest: &mut &[&str]) -> Option<Masked> {
    let (own, left) = match **rest {
        ["any", ref left @ ..] => ((0, 0), left),
        ["host", own, ref left @ ..] => ((address(own)?, u32::MAX), left),
        [own, wildcard, ref left @ ..] if address(wildcard).is_some() => {
            ((address(own)?, !address(wildcard)?), left)
        }
        [own, ref left @ ..] => ((address(own)?, u32::MAX), left),
        [] => return None,
    };
    *rest = left;
    Some((own.0 & own.1, own.1))
}

fn ports(rest: &mut &[&str]) -> Option<Vec<u16>> {
    let (range, left) = match **rest {
        ["eq", own, ref left @ ..] => (port(own)?..=port(own)?, left),
        ["range", from, to, ref left @ ..] => (port(from)?..=port(to)?, left),
        ["gt", own, ref left @ ..] => (port(own)?.checked_add(1)?..=u16::MAX, left),
        ["lt", own, ref left @ ..] => (0..=port(own)?.checked_sub(1)?, left),
        _ => return Some(Vec::new()),
    };
    *rest = left;
    (range.len() <= PORTS_MAX).then(|| range.collect())
}

fn port(text: &str) -> Option<u16> {
    let known = [
        ("ftp-data", 20),
        ("ftp", 21),
        ("telnet", 23),
        ("smtp", 25),
        ("time", 37),
        ("whois", 43),
        ("domain", 53),
        ("tftp", 69),
        ("finger", 79),
        ("www", 80),
        ("sunrpc", 111),
        ("ident", 113),
        ("nntp", 119),
        ("netbios-ns", 137),
        ("netbios-dgm", 138),
        ("netbios-ss", 139),
        ("snmp", 161),
        ("snmptrap", 162),
        ("cmd", 514),
        ("syslog", 514),
        ("lpd", 515),
    ];
    let found = known.iter().find(|(name, _)| *name == text).map(|(_, port)| *port);
    found.or_else(|| text.parse().ok())
}

/// A router of Internet2. `None` where its file is missing. Of several next hops the first one counts.
pub fn internet2(name: &str) -> Option<Router> {
    let file = format!("openflow/internet2/{name}-forwarding-table.txt");
    let text = String::from_utf8_lossy(&testdata::bytes(&file)?).into_owned();
    let mut router = Router::default();
    let mut open = None;
    for line in text.lines().skip_while(|line| !line.contains("default.inet")).skip(1) {
        if line.starts_with("Routing table") {
            break;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_new = !line.starts_with(' ');
        if is_new {
            let own = match words.first() {
                Some(&"default") => Some((0, 0)),
                Some(word) => prefix(word),
                None => None,
            };
            open = own.filter(|own| !router.routes.contains_key(own));
        }
        let Some(own) = open else { continue };
        let end = |kind: &str| words.contains(&kind);
        let to = match words[..] {
            // … NEXT HOP, "ucst", two numbers, INTERFACE
            [.., next, "ucst", _, _, interface] => {
                // On a link between two routers there is no address.
                let next = address(next).unwrap_or_default();
                To::Out(router.interface(interface), 0x0200_0000_0000 | u64::from(next))
            }
            _ if end("dscd") || end("bcst") => To::Nowhere,
            _ if ["rjct", "recv", "locl", "rslv", "mcst", "mdsc"].into_iter().any(end) => To::Host,
            _ => continue, // its next hop is in the next line
        };
        router.routes.insert(own, to);
        open = None;
    }
    Some(router)
}
