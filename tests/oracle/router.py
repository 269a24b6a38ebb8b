#!/usr/bin/env python3
"""What a router must do with each packet of a capture, computed a second time and compared.

usage: router.py OUT ARGUMENTS…

ARGUMENTS are those of the program: `run CONFIG -r [PORT=]IN… -w OUT`. The script reads the same configuration and
captures, applies RFC 1812 and RFC 8200 to one packet after another in the plainest way, and compares, in order:
OUT/PORT.pcapng with the frames that must leave by each port, and OUT/dropped.pcapng with those that must be dropped,
and why. Nothing of the program is used: captures and checksums are scapy's, addresses Python's.

Where the standards leave freedom the script accepts it: the MAC of a neighbour that the configuration does not name
(but one for each address), what exactly an ICMP error quotes beyond the minimum, which of several fitting reasons a
drop is counted under, and what follows the IP packet in the frame (nothing, zeros, or what followed it on arrival).
"""

import ipaddress
import logging
import pathlib
import struct
import sys
import tomllib

logging.getLogger("scapy").setLevel(logging.ERROR)

from scapy.utils import RawPcapNgReader, RawPcapReader, checksum  # noqa: E402

ETHER_IPV4, ETHER_ARP, ETHER_IPV6 = 0x0800, 0x0806, 0x86DD
TAGS = (0x8100, 0x88A8, 0x9100)
ICMP, ICMPV6 = 1, 58
# Extension headers that may stand before the transport header (RFC 8200 section 4), by number.
HOP_BY_HOP, ROUTING, FRAGMENT, DESTINATION = 0, 43, 44, 60


class Mismatch(Exception):
    """The program did something else."""


# --- configuration -----------------------------------------------------------------------------------------


class Port:
    """A port or a VLAN subinterface of one."""

    def __init__(self, name, table, ports):
        self.name = name
        vlan = table.get("vlan")
        self.tags = [] if vlan is None else (vlan if isinstance(vlan, list) else [vlan])
        self.parent = table.get("parent", name)
        self.mac = mac(table["mac"]) if "mac" in table else ports[self.parent].mac
        self.mtu = table.get("mtu", ports[self.parent].mtu if self.tags else 1500)
        self.addresses = [ipaddress.ip_interface(a) for a in table.get("addresses", [])]
        self.rpf = table.get("rpf", "off")
        self.ignores = table.get("checksums") == "ignore" if "vlan" not in table else ports[self.parent].ignores


class Router:
    """The configuration as far as forwarding depends on it."""

    def __init__(self, path):
        table = tomllib.loads(path.read_text())
        self.ports = {}
        for name, port in sorted(table["port"].items(), key=lambda item: "vlan" in item[1]):
            self.ports[name] = Port(name, port, self.ports)
        self.ttl = table.get("router", {}).get("ttl", 64)
        self.fragment = table.get("router", {}).get("fragment", True)
        self.neighbours = {
            (n["port"], ipaddress.ip_address(n["address"])): mac(n["mac"]) for n in table.get("neighbour", [])
        }
        self.routes = []
        for route in table.get("route", []):
            prefix = ipaddress.ip_network(route["prefix"])
            self.routes.append((prefix, self.next_hop(route)))
        for port in self.ports.values():
            for address in port.addresses:
                self.routes.append((address.network, ("port", port.name)))
        self.own = {a.ip for p in self.ports.values() for a in p.addresses}

    def next_hop(self, route):
        for word in ("blackhole", "unreachable"):
            if route.get(word) or route.get("via") == word:
                return (word,)
        if "via" not in route:
            return ("port", route["port"])
        via = route["via"]
        if isinstance(via, list):
            return ("group", [self.next_hop({"via": member}) for member in via])
        if via in self.ports:
            return ("port", via)
        address = ipaddress.ip_address(via)
        for port in self.ports.values():
            if any(address in a.network for a in port.addresses):
                return ("via", port.name, address)
        raise SystemExit(f"the oracle does not understand the next hop {via}")

    def look_up(self, address):
        """The next hop of the longest prefix that holds the address."""
        held = [(prefix.prefixlen, hop) for prefix, hop in self.routes if address in prefix]
        return max(held, key=lambda found: found[0])[1] if held else None

    def out_of(self, hop, destination):
        """Port and neighbour of a next hop."""
        return (self.ports[hop[1]], hop[2] if hop[0] == "via" else destination)

    def subinterface(self, port, tags):
        """The port or subinterface that a frame with these tags belongs to."""
        for candidate in self.ports.values():
            if candidate.parent == port.name and candidate.tags == tags:
                return candidate
        return None


def mac(text):
    return bytes.fromhex(text.replace(":", ""))


# --- what must happen --------------------------------------------------------------------------------------


class Drop:
    """Dropped for one of these reasons."""

    def __init__(self, *reasons):
        self.reasons = reasons


class Forward:
    """Leaves by a port towards a neighbour; `packet` is the IP packet, `trailer` what followed it on arrival."""

    def __init__(self, port, neighbour, packet, trailer=b""):
        self.port, self.neighbour, self.packet, self.trailer = port, neighbour, packet, trailer


class ForwardOnce:
    """Leaves by one member of an equal-cost group, the same for all packets of a flow."""

    def __init__(self, members, packet, trailer, flow):
        self.members, self.packet, self.trailer, self.flow = members, packet, trailer, flow


class Error:
    """An ICMP error about `packet` leaves towards its source, besides the drop."""

    def __init__(self, version, kind, code, packet, port, neighbour, mtu=None):
        self.version, self.kind, self.code, self.packet = version, kind, code, packet
        self.port, self.neighbour, self.mtu = port, neighbour, mtu


def decide(router, name, frame):
    """The list of things that must happen to a frame received by a port."""
    port = router.ports[name]
    if len(frame) < 14:
        return [Drop("truncated")]
    at, tags = 12, []
    ether_type = struct.unpack_from("!H", frame, at)[0]
    while ether_type in TAGS:
        if len(frame) < at + 6:
            return [Drop("vlan_truncated", "truncated")]
        tag, ether_type = struct.unpack_from("!HH", frame, at + 2)
        # VLAN 0 is a priority without a VLAN (802.1Q 9.6).
        if tag & 0xFFF:
            tags.append(tag & 0xFFF)
        at += 4
    packet = frame[at + 2 :]
    inner = router.subinterface(port, tags)
    if inner is None:
        return [Drop("vlan_unknown")]
    if frame[6] & 1:
        return [Drop("source_mac_group")]
    # Over captures a router takes the frames of all stations for its own.
    if ether_type == ETHER_ARP:
        return [Drop("not_mine", "consumed", "host_absent", "arp_malformed", "truncated")]
    if ether_type == ETHER_IPV4:
        return ipv4(router, inner, frame[:6], packet)
    if ether_type == ETHER_IPV6:
        return ipv6(router, inner, frame[:6], packet)
    return [Drop("ethertype_unknown", "host_absent")]


def ipv4(router, port, to, packet):
    if len(packet) < 20:
        return [Drop("truncated", "ip_bad_total_length")]
    if packet[0] >> 4 != 4:
        return [Drop("ip_bad_version")]
    header = (packet[0] & 15) * 4
    total = struct.unpack_from("!H", packet, 2)[0]
    if header < 20 or header > len(packet):
        return [Drop("ip_bad_header_length", "truncated")]
    if total < header or total > len(packet):
        return [Drop("ip_bad_total_length", "truncated", "ip_bad_header_length")]
    if checksum(packet[:header]) != 0 and not port.ignores:
        return [Drop("ip_bad_checksum")]
    packet, trailer = packet[:total], packet[total:]  # Ethernet's padding, perhaps a captured checksum.
    fragment = struct.unpack_from("!H", packet, 6)[0]
    offset, more = (fragment & 0x1FFF) * 8, bool(fragment & 0x2000)
    if (offset or more) and total == header:
        return [Drop("ip_zero_length_fragment")]
    if offset + total - header > 65535 - header:
        return [Drop("ip_overlong_fragment")]
    source, destination = ipaddress.ip_address(packet[12:16]), ipaddress.ip_address(packet[16:20])
    refused = martian4(source, destination)
    if refused:
        return [refused]
    if destination in router.own:
        return [Drop("own_source") if source in router.own else Drop("host_absent", "consumed")]
    if destination.is_multicast:
        return [Drop("multicast_not_forwarded", "broadcast_not_forwarded", "host_absent")]
    if to[0] & 1:
        return [Drop("broadcast_not_forwarded", "host_absent")]
    if destination.is_link_local or source.is_link_local:
        return [Drop("link_local_not_forwarded")]
    if has_source_route(packet[20:header]):
        # RFC 7126 section 4.3: dropped; the error of RFC 1812 section 5.2.4.1 is left out as an aid to scans.
        return [Drop("source_route")]
    if source in router.own:
        return [Drop("own_source")]
    hop = router.look_up(destination)
    if reverse_path_fails(router, port, source):
        return [Drop("reverse_path")]
    if packet[8] <= 1:
        return [Drop("ttl_expired")] + error(router, 4, 11, 0, packet, source)
    if hop is None:
        return [Drop("no_route")] + error(router, 4, 3, 0, packet, source)
    if hop[0] == "blackhole":
        return [Drop("blackhole")]
    if hop[0] == "unreachable":
        return [Drop("unreachable")] + error(router, 4, 3, 1, packet, source)
    if hop[0] == "group":
        members = [router.out_of(member, destination) for member in hop[1]]
        return [ForwardOnce(members, lower_ttl(packet), trailer, flow_of(packet))]
    out, neighbour = router.out_of(hop, destination)
    if is_directed_broadcast(out, destination):
        return [Drop("broadcast_not_forwarded")]
    if total > out.mtu:
        if fragment & 0x4000 or not router.fragment:
            return [Drop("fragmentation_needed")] + error(router, 4, 3, 4, packet, source, out.mtu)
        return [Forward(out, neighbour, piece) for piece in fragments(lower_ttl(packet), out.mtu)]
    return [Forward(out, neighbour, lower_ttl(packet), trailer)]


def flow_of(packet):
    """Addresses, protocol and ports of an unfragmented IPv4 packet."""
    header = (packet[0] & 15) * 4
    return packet[9:10] + packet[12:20] + packet[header : header + 4]


def ipv6(router, port, to, packet):
    if len(packet) < 40:
        return [Drop("truncated", "ip_bad_total_length")]
    if packet[0] >> 4 != 6:
        return [Drop("ip_bad_version")]
    total = 40 + struct.unpack_from("!H", packet, 4)[0]
    if total > len(packet):
        return [Drop("ip_bad_total_length", "truncated")]
    packet, trailer = packet[:total], packet[total:]
    refused = extension_headers(packet)
    if refused:
        return [refused]
    source, destination = ipaddress.ip_address(packet[8:24]), ipaddress.ip_address(packet[24:40])
    if source.is_multicast or source.is_loopback or is_mapped(source):
        return [Drop("ip_martian_source")]
    if destination.is_unspecified or destination.is_loopback or is_mapped(destination):
        return [Drop("ip_martian_destination")]
    if destination in router.own:
        return [Drop("own_source") if source in router.own else Drop("host_absent", "consumed")]
    if destination.is_multicast:
        return [Drop("multicast_not_forwarded", "broadcast_not_forwarded", "host_absent", "consumed", "not_mine")]
    if to[0] & 1:
        return [Drop("broadcast_not_forwarded")]
    if source.is_unspecified:
        return [Drop("ip_martian_source")]
    if destination.is_link_local or source.is_link_local:
        return [Drop("link_local_not_forwarded", "host_absent", "consumed", "not_mine")]
    if source in router.own:
        return [Drop("own_source")]
    hop = router.look_up(destination)
    if reverse_path_fails(router, port, source):
        return [Drop("reverse_path")]
    if packet[7] <= 1:
        return [Drop("ttl_expired")] + error(router, 6, 3, 0, packet, source)
    if hop is None:
        return [Drop("no_route")] + error(router, 6, 1, 0, packet, source)
    if hop[0] == "blackhole":
        return [Drop("blackhole")]
    if hop[0] == "unreachable":
        return [Drop("unreachable")] + error(router, 6, 1, None, packet, source)
    out, neighbour = router.out_of(hop, destination)
    if total > out.mtu:
        return [Drop("too_big")] + error(router, 6, 2, 0, packet, source, out.mtu)
    return [Forward(out, neighbour, packet[:7] + bytes([packet[7] - 1]) + packet[8:], trailer)]


def martian4(source, destination):
    """RFC 1812 section 5.3.7."""
    this_network = ipaddress.ip_network("0.0.0.0/8")
    reserved = ipaddress.ip_network("240.0.0.0/4")
    if source.is_multicast or source.is_loopback or source in this_network or source in reserved:
        return Drop("ip_martian_source")
    if int(destination) == 0xFFFFFFFF:
        return Drop("broadcast_not_forwarded", "host_absent", "ip_martian_destination")
    if destination.is_loopback or destination in this_network or destination in reserved:
        return Drop("ip_martian_destination")
    return None


def is_mapped(address):
    return address.ipv4_mapped is not None


def is_directed_broadcast(port, destination):
    """RFC 2644: not forwarded. A subnet of two or of one has none (RFC 3021)."""
    return any(
        a.version == 4 and a.network.prefixlen < 31 and destination == a.network.broadcast_address
        for a in port.addresses
    )


def has_source_route(options):
    at = 0
    while at < len(options) and options[at] != 0:
        if options[at] in (131, 137):
            return True
        if options[at] == 1:
            at += 1
        elif at + 1 < len(options) and options[at + 1] >= 2:
            at += options[at + 1]
        else:
            return False
    return False


def extension_headers(packet):
    """Malformed chains: one that runs out of the packet, or has hop-by-hop options where they must not be."""
    kind, at, first = packet[6], 40, True
    while kind in (HOP_BY_HOP, ROUTING, FRAGMENT, DESTINATION):
        if kind == HOP_BY_HOP and not first:
            return Drop("ip6_extension_headers", "ip6_extension_loop")
        if at + 8 > len(packet):
            return Drop("ip6_extension_headers", "truncated")
        if kind == FRAGMENT:
            field = struct.unpack_from("!H", packet, at + 2)[0]
            if at + 8 == len(packet) and (field & 1 or field >> 3):
                return Drop("ip_zero_length_fragment", "ip6_extension_headers")
            return None
        kind, at, first = packet[at], at + 8 + packet[at + 1] * 8, False
        if at > len(packet):
            return Drop("ip6_extension_headers", "truncated")
    return None


def reverse_path_fails(router, port, source):
    if port.rpf == "off":
        return False
    hop = router.look_up(source)
    if hop is None or hop[0] in ("blackhole", "unreachable"):
        return True
    return port.rpf == "strict" and hop[1] != port.name


def lower_ttl(packet):
    header = (packet[0] & 15) * 4
    head = bytearray(packet[:header])
    before, stored = struct.unpack_from("!H", head, 8)[0], struct.unpack_from("!H", head, 10)[0]
    head[8] -= 1
    # RFC 1624, equation 3: a wrong checksum stays as wrong as it is.
    total = (0xFFFF - stored) + (0xFFFF - before) + struct.unpack_from("!H", head, 8)[0]
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    struct.pack_into("!H", head, 10, 0xFFFF - total)
    return bytes(head) + packet[header:]


def fragments(packet, mtu):
    """RFC 791 section 3.2, "An Example Fragmentation Procedure"."""
    header = (packet[0] & 15) * 4
    flags = struct.unpack_from("!H", packet, 6)[0]
    start, more = flags & 0x1FFF, flags & 0x2000
    body = packet[header:]
    first, later = packet[:header], packet[:20] + copied_options(packet[20:header])
    at, pieces = 0, []
    while at < len(body):
        head = bytearray(first if at == 0 else later)
        room = (mtu - len(head)) // 8 * 8
        rest = len(body) - at
        part = body[at : at + (rest if rest <= mtu - len(head) else room)]
        last = at + len(part) == len(body)
        head[0] = 0x40 | len(head) // 4
        struct.pack_into("!H", head, 2, len(head) + len(part))
        struct.pack_into("!H", head, 6, start + at // 8 | (more if last else 0x2000))
        head[10:12] = b"\0\0"
        head[10:12] = struct.pack("!H", checksum(bytes(head)))
        pieces.append(bytes(head) + part)
        at += len(part)
    return pieces


def copied_options(options):
    kept, at = b"", 0
    while at < len(options) and options[at] != 0:
        size = 1 if options[at] == 1 else options[at + 1]
        if options[at] & 0x80:
            kept += options[at : at + size]
        at += size
    return kept + b"\0" * (-len(kept) % 4)


def error(router, version, kind, code, packet, source, mtu=None):
    """The ICMP error, where the standards allow one: RFC 1812 section 4.3.2.7, RFC 4443 section 2.4 (e)."""
    if version == 4:
        header = (packet[0] & 15) * 4
        if struct.unpack_from("!H", packet, 6)[0] & 0x1FFF:
            return []
        if packet[9] == ICMP and (len(packet) <= header or packet[header] in (3, 4, 5, 11, 12)):
            return []
    else:
        protocol, at = upper_layer(packet)
        if protocol == ICMPV6 and (at >= len(packet) or packet[at] < 128 or packet[at] == 137):
            return []
    hop = router.look_up(source)
    if hop is None or hop[0] in ("blackhole", "unreachable"):
        return []
    port, neighbour = router.out_of(hop, source)
    if not any(a.version == version for p in router.ports.values() for a in p.addresses):
        return []
    return [Error(version, kind, code, packet, port, neighbour, mtu)]


def upper_layer(packet):
    kind, at = packet[6], 40
    while kind in (HOP_BY_HOP, ROUTING, DESTINATION, FRAGMENT) and at + 8 <= len(packet):
        if kind == FRAGMENT and struct.unpack_from("!H", packet, at + 2)[0] >> 3:
            return (None, at)
        size = 8 if kind == FRAGMENT else 8 + packet[at + 1] * 8
        kind, at = packet[at], at + size
    return (kind, at)


# --- comparing ---------------------------------------------------------------------------------------------


class Judge:
    """Compares what must happen with what the program wrote."""

    def __init__(self, router, out):
        self.router = router
        self.macs = dict(router.neighbours)
        self.sent = {}
        for port in router.ports.values():
            path = out / f"{port.parent}.pcapng"
            self.sent[port.parent] = list(frames(path)) if path.exists() else []
        dropped = out / "dropped.pcapng"
        self.dropped = list(comments(dropped)) if dropped.exists() else []
        self.at = {name: 0 for name in self.sent}
        self.at_dropped = 0
        self.forwarded = self.errors = 0
        self.flows = {}

    def take(self, port, what):
        number = self.at[port.parent]
        self.at[port.parent] += 1
        if number >= len(self.sent[port.parent]):
            raise Mismatch(f"{port.parent}: frame {number + 1} is missing: {what}")
        return number, self.sent[port.parent][number]

    def payload(self, port, neighbour, number, frame):
        """Checks the link layer of a sent frame and returns the packet."""
        where = f"{port.parent}: frame {number + 1}"
        known = self.macs.setdefault((port.name, neighbour), frame[:6])
        if frame[:6] != known or frame[0] & 1:
            raise Mismatch(f"{where}: to {frame[:6].hex(':')}, the neighbour {neighbour} is {known.hex(':')}")
        if frame[6:12] != port.mac:
            raise Mismatch(f"{where}: from {frame[6:12].hex(':')}, the port is {port.mac.hex(':')}")
        at, tags = 12, []
        while struct.unpack_from("!H", frame, at)[0] in TAGS:
            tags.append(struct.unpack_from("!H", frame, at + 2)[0] & 0xFFF)
            at += 4
        if tags != port.tags:
            raise Mismatch(f"{where}: tags {tags}, {port.name} has {port.tags}")
        return struct.unpack_from("!H", frame, at)[0], frame[at + 2 :]

    def forward(self, event, origin):
        number, frame = self.take(event.port, f"{origin} forwarded to {event.neighbour}")
        ether_type, packet = self.payload(event.port, event.neighbour, number, frame)
        wanted = ETHER_IPV4 if event.packet[0] >> 4 == 4 else ETHER_IPV6
        # Anything else behind the packet would be somebody's memory.
        trailer = packet[len(event.packet) :]
        stray = any(trailer) and trailer != event.trailer
        if ether_type != wanted or packet[: len(event.packet)] != event.packet or stray:
            at = next((i for i, (a, b) in enumerate(zip(packet, event.packet)) if a != b), len(event.packet))
            raise Mismatch(
                f"{event.port.parent}: frame {number + 1} is not {origin} forwarded: differs at byte {at} of the "
                f"packet\n  expected {event.packet[:60].hex()}\n  written  {packet[:60].hex()}"
            )
        self.forwarded += 1

    def forward_once(self, event, origin):
        """The member is the one of the flow, or else the one whose next frame goes to it."""
        chosen = self.flows.get(event.flow)
        for port, neighbour in event.members if chosen is None else [chosen]:
            at, sent = self.at[port.parent], self.sent[port.parent]
            if at < len(sent) and sent[at][:6] == self.macs.get((port.name, neighbour)):
                chosen = (port, neighbour)
        if chosen is None:
            raise Mismatch(f"{origin} leaves by no member of its group")
        self.flows[event.flow] = chosen
        self.forward(Forward(*chosen, event.packet, event.trailer), origin)

    def error(self, event, origin):
        number, frame = self.take(event.port, f"an ICMP error {event.kind}/{event.code} about {origin}")
        where = f"{event.port.parent}: frame {number + 1} (ICMP error about {origin})"
        _, packet = self.payload(event.port, event.neighbour, number, frame)
        if event.version == 4:
            header = (packet[0] & 15) * 4
            total = struct.unpack_from("!H", packet, 2)[0]
            source, destination = packet[12:16], packet[16:20]
            message, protocol, ttl = packet[header:total], packet[9], packet[8]
            asked, limit = event.packet[12:16], 576
            pseudo = b""
            if checksum(packet[:header]) != 0:
                raise Mismatch(f"{where}: wrong IP checksum")
            least = (event.packet[0] & 15) * 4 + 8
            wanted_protocol = ICMP
        else:
            total = 40 + struct.unpack_from("!H", packet, 4)[0]
            source, destination = packet[8:24], packet[24:40]
            message, protocol, ttl = packet[40:total], packet[6], packet[7]
            asked, limit = event.packet[8:24], 1280
            pseudo = source + destination + struct.pack("!II", len(message), ICMPV6)
            least = min(len(event.packet), 1280 - 48)
            wanted_protocol = ICMPV6
        if protocol != wanted_protocol:
            raise Mismatch(f"{where}: protocol {protocol}")
        if message[0] != event.kind or (event.code is not None and message[1] != event.code):
            raise Mismatch(f"{where}: type {message[0]} code {message[1]}, not {event.kind}/{event.code}")
        if ipaddress.ip_address(source) not in self.router.own:
            raise Mismatch(f"{where}: from {ipaddress.ip_address(source)}, no address of the router")
        if destination != asked:
            raise Mismatch(f"{where}: to {ipaddress.ip_address(destination)}, not to the sender")
        if ttl != self.router.ttl:
            raise Mismatch(f"{where}: TTL {ttl}, not {self.router.ttl}")
        if checksum(pseudo + message) != 0:
            raise Mismatch(f"{where}: wrong ICMP checksum")
        if total > limit:
            raise Mismatch(f"{where}: {total} bytes, at most {limit}")
        if event.mtu is not None:
            given = struct.unpack_from("!H", message, 6)[0] if event.version == 4 else struct.unpack_from("!I", message, 4)[0]
            if given != event.mtu:
                raise Mismatch(f"{where}: has an MTU of {given}, not {event.mtu}")
        quoted = message[8:]
        if len(quoted) < min(least, len(event.packet)) or quoted != event.packet[: len(quoted)]:
            raise Mismatch(f"{where}: does not quote the packet\n  packet {event.packet[:48].hex()}\n  quote  {quoted[:48].hex()}")
        self.errors += 1

    def drop(self, event, origin, frame):
        if self.at_dropped >= len(self.dropped):
            raise Mismatch(f"dropped: {origin} is missing, dropped for {' or '.join(event.reasons)}")
        written, comment = self.dropped[self.at_dropped]
        self.at_dropped += 1
        if written != frame:
            raise Mismatch(
                f"dropped: packet {self.at_dropped} ({comment}) is not {origin}, to be dropped for "
                f"{' or '.join(event.reasons)}\n  expected {frame[:60].hex()}\n  written  {written[:60].hex()}"
            )
        if not any(reason in comment.replace(":", " ").split() for reason in event.reasons):
            raise Mismatch(f"dropped: {origin} for {comment!r}, not for {' or '.join(event.reasons)}")

    def finish(self):
        if len(self.flows) > 16 and len({neighbour for _, neighbour in self.flows.values()}) < 2:
            raise Mismatch(f"{len(self.flows)} flows of a group take one path")
        for name, sent in self.sent.items():
            if self.at[name] != len(sent):
                raise Mismatch(f"{name}: {len(sent) - self.at[name]} frames too many, the first {sent[self.at[name]][:60].hex()}")
        if self.at_dropped != len(self.dropped):
            raise Mismatch(f"dropped: {len(self.dropped) - self.at_dropped} packets too many")


def frames(path):
    with open(path, "rb") as file:
        ng = file.read(4) == b"\x0a\x0d\x0d\x0a"
    reader = RawPcapNgReader(str(path)) if ng else RawPcapReader(str(path))
    for data, meta in reader:
        # A record that claims more than the file holds is the end of what can be read.
        if not ng and len(data) < meta.caplen:
            return
        yield data


def comments(path):
    for data, meta in RawPcapNgReader(str(path)):
        comment = getattr(meta, "comments", None) or getattr(meta, "comment", None) or b""
        if isinstance(comment, list):
            comment = comment[0]
        yield data, comment.decode() if isinstance(comment, bytes) else comment


def inputs(router, arguments):
    """Port and path of each capture to read."""
    first = next(name for name, port in router.ports.items() if not port.tags)
    for at, argument in enumerate(arguments):
        if argument == "-r":
            name, equals, path = arguments[at + 1].rpartition("=")
            yield (name if equals else first), pathlib.Path(path)


def main():
    out, arguments = pathlib.Path(sys.argv[1]), sys.argv[2:]
    router = Router(pathlib.Path(arguments[1]))
    if "-k" in arguments:
        for port in router.ports.values():
            port.ignores = arguments[arguments.index("-k") + 1] == "none"
    judge = Judge(router, out)
    read = dropped = 0
    for name, path in inputs(router, arguments):
        for number, frame in enumerate(frames(path), 1):
            read += 1
            origin = f"packet {number} of {path.name}"
            for event in decide(router, name, frame):
                if isinstance(event, Forward):
                    judge.forward(event, origin)
                elif isinstance(event, ForwardOnce):
                    judge.forward_once(event, origin)
                elif isinstance(event, Error):
                    judge.error(event, origin)
                else:
                    judge.drop(event, origin, frame)
                    dropped += 1
    judge.finish()
    print(f"{read} packets: {judge.forwarded} forwarded, {dropped} dropped, {judge.errors} ICMP errors, all as they must be")


if __name__ == "__main__":
    try:
        main()
    except Mismatch as mismatch:
        sys.exit(f"oracle: {mismatch}")
