//! Bytes as an IP packet that a gateway receives, as what is inside a genuine ESP packet, and as a packet that it sends.
//!
//! Mode, UDP, congestion mark and next header; then bytes.
#![no_main]

use std::net::IpAddr;

use crypto::esp;
use crypto::{Authentication, Encryption, Key, Secret, Suite};
use ipsec::inbound::{self, Found};
use ipsec::path::{self, Learned};
use ipsec::{Association, Direction, Mode, Parameters, Udp, outbound};
use libfuzzer_sys::fuzz_target;
use packet::Anomaly;

const ENDS: (IpAddr, IpAddr) = (
    IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1)),
    IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2)),
);

fn association(direction: Direction, mode: Mode, is_in_udp: bool) -> Association {
    let suite = Suite::new(Encryption::Null, Authentication::HmacSha1_96).expect("a suite");
    let key = Key::new(suite, &Secret::none(), &Secret::new((0..20).collect())).expect("a key");
    let udp = is_in_udp.then_some(Udp { source: 4500, destination: 4500 });
    let parameters = Parameters { mode, udp, ..Parameters::new(direction, 0x1000, ENDS, 1) };
    Association::new(parameters, key, 0).expect("an association")
}

/// Opens what `found` found; a packet of transport mode must be right again.
fn open(own: &Association, ip: &mut [u8]) -> Option<Vec<u8>> {
    let d = packet::decode::decode_ip(ip, ip.len());
    let Found::Esp { at, end, port, .. } = inbound::found(ip, &d) else { return None };
    // A length that is wrong is an anomaly, which routers drop before.
    let mut opens = [own.opener()?.open(ip.get_mut(at..end)?)];
    esp::open_batch(&mut opens);
    let opened = opens[0].result().ok()?;
    let place = at + opened.payload.start..at + opened.payload.end;
    if inbound::is_tunnel(own) {
        let payload = &mut ip[place];
        let inner = inbound::inner(own, payload, opened.next_header, d.traffic_class & 3).ok()?;
        assert!(inner.len <= payload.len());
        return Some(payload[..inner.len].to_vec());
    }
    let udp = port.is_some() && own.parameters().udp.is_some();
    let rest =
        inbound::transport_back(ip, &d, (at, opened.payload), opened.next_header, udp).ok()?;
    let start = rest.kept + rest.gone;
    Some([&ip[..rest.kept], &ip[start..start + rest.len]].concat())
}

fuzz_target!(|data: &[u8]| {
    let Some((&[choice, mark, next], bytes)) = data.split_first_chunk::<3>() else { return };
    let mode = if choice & 1 == 0 { Mode::Tunnel } else { Mode::Transport };
    let is_in_udp = choice & 2 != 0;
    let receiving = association(Direction::In, mode, is_in_udp);
    // As it comes. A seed may be genuine.
    open(&receiving, &mut bytes.to_vec());

    // As an ICMP error about a packet that an association sent.
    let sending = association(Direction::Out, mode, is_in_udp);
    let _ = sending.sealer().map(|own| own.take(1 << 21));
    let d = packet::decode::decode_ip(bytes, bytes.len());
    if let Some(error) = path::too_big(bytes, &d)
        && let Learned::Lowered(mtu) = error.learn(&sending, 0)
    {
        assert!(error.spi == 0x1000 && u32::from(mtu) < error.len.max(577) && mtu >= 576);
        assert_eq!(sending.path_mtu(0), Some(mtu));
    }

    // As what is inside: whatever it says of itself.
    let len = bytes.len();
    if let Ok(inner) = inbound::inner(&receiving, &mut bytes.to_vec(), next, mark & 3) {
        assert!(inner.len <= len);
    }

    // As a packet that leaves.
    let sending = association(Direction::Out, mode, is_in_udp);
    let d = packet::decode::decode_ip(bytes, len);
    if d.anomaly != Anomaly::None || d.ip_total_len as usize != len || d.ttl < 2 {
        return;
    }
    let Ok(plan) = outbound::plan(&sending, bytes, &d, 1500) else { return };
    if plan.next_header == esp::NO_NEXT_HEADER {
        return; // for its looks only
    }
    let (kept, rest) = bytes.split_at(plan.kept as usize);
    let room = |len: u32| vec![0; len as usize];
    let mut sealed = [kept, &room(plan.front), rest, &room(plan.back)].concat();
    let Some(number) = sending.sealer().and_then(|own| own.take(1).next()) else { return };
    plan.write_headers(&sending, &mut sealed, number.value());
    {
        let padding = plan.padding as usize;
        let mut seals = [number.seal(&mut sealed, plan.payload_range(), plan.next_header, padding)];
        esp::seal_batch(&mut seals);
        seals[0].result().expect("there is room");
    }
    outbound::finish(&sending, &plan, &mut sealed);
    let d = packet::decode::decode_ip(&sealed, sealed.len());
    assert_eq!(d.anomaly, Anomaly::None);
    let opened = open(&association(Direction::In, mode, is_in_udp), &mut sealed);
    if mode == Mode::Transport {
        // The checksum of the header is computed anew; what was wrong in it was an anomaly.
        assert_eq!(opened.as_deref(), Some(bytes), "another packet came back");
    } else {
        assert!(opened.is_some_and(|own| own.len() == len));
    }
});
