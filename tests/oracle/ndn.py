#!/usr/bin/env python3
"""What a named-data forwarder must do with each packet of some captures, computed a second time and compared.

usage: ndn.py OUT ARGUMENTS…

ARGUMENTS are those of the program: `run CONFIG -r PORT=IN… -w OUT`. The script reads the same configuration and
captures, applies NDN Packet Format 0.3, NDNLPv2 and the forwarder's documented rules to one packet after another in
the plainest way, and compares, in order: OUT/PORT.pcapng with the frames that must leave by each port, and
OUT/dropped.pcapng with those that must be dropped, and why. Nothing of the program is used: captures are scapy's, and
so are the headers and checksums of the frames that are expected.

The order of several answers to one packet is free. So are IP's identification and TTL.
"""

import hashlib
import ipaddress
import json
import logging
import pathlib
import struct
import sys
import tomllib

logging.getLogger("scapy").setLevel(logging.ERROR)

from scapy.all import IP, UDP, Ether, IPv6, Raw  # noqa: E402
from scapy.utils import RawPcapNgReader, RawPcapReader  # noqa: E402

GROUP = "01:00:5e:00:17:aa"
CELL = 1900  # more than any packet of one cell
DEAD = 6.0  # seconds that a nonce is remembered at least; twice that at most


class Mismatch(Exception):
    """The program did something else."""


class Drop(Exception):
    """The packet goes nowhere; one of these reasons."""

    def __init__(self, *reasons):
        super().__init__(reasons)
        self.reasons = reasons


# --- elements -------------------------------------------------------------------------------------------------


def number(data):
    if not data:
        raise Drop("ndn_malformed")
    first, size = data[0], {253: 2, 254: 4, 255: 8}.get(data[0], 0)
    if size == 0:
        return first, data[1:]
    if len(data) < 1 + size:
        raise Drop("ndn_malformed")
    value = int.from_bytes(data[1 : 1 + size], "big")
    if value < {2: 253, 4: 1 << 16, 8: 1 << 32}[size]:
        raise Drop("ndn_malformed")
    return value, data[1 + size :]


def element(data):
    """Type, value, encoding, rest."""
    kind, rest = number(data)
    length, rest = number(rest)
    if not 0 < kind < 1 << 32 or length > len(rest):
        raise Drop("ndn_malformed")
    return kind, rest[:length], data[: len(data) - len(rest) + length], rest[length:]


def elements(data):
    while data:
        kind, value, encoded, data = element(data)
        yield kind, value, encoded


def integer(value):
    if len(value) not in (1, 2, 4, 8):
        raise Drop("ndn_malformed")
    return int.from_bytes(value, "big")


INTEREST_ORDER = [7, 9, 33, 18, 30, 10, 12, 34, 36, 44, 46]
DATA_ORDER = [7, 20, 21, 22, 23]


def fields(value, order):
    """Known elements in their order; others are skipped unless they are critical."""
    found, last = {}, -1
    for kind, inner, _ in elements(value):
        if kind in order and order.index(kind) > last:
            last = order.index(kind)
            found[kind] = inner
        elif kind <= 31 or kind % 2 == 1:
            raise Drop("ndn_malformed")
    return found


def components(value):
    parts = []
    for kind, _, encoded in elements(value):
        if kind > 0xFFFF:
            raise Drop("ndn_malformed")
        parts.append(encoded)
    return tuple(parts)


def link(data):
    """Token, whether it is a Nack, whether it may be kept, and the packet inside, of what may be a link packet."""
    kind, value, encoded, _ = element(data)
    if kind != 100:
        return b"", False, True, encoded
    token, is_nack, may_keep, fragment, index, count = b"", False, True, b"", 0, 1
    for kind, inner, _ in elements(value):
        if kind == 80 and not fragment:
            fragment = inner
        elif kind == 82:
            index = integer(inner)
        elif kind == 83:
            count = integer(inner)
        elif kind in (81, 832):
            integer(inner)
        elif kind == 98:
            if not 1 <= len(inner) <= 32:
                raise Drop("ndn_malformed")
            token = inner
        elif kind == 820:
            for policy, inner_value, _ in elements(inner):
                if policy == 821:
                    may_keep = integer(inner_value) != 1
        elif kind == 800:
            is_nack = True
            for reason, inner_value, _ in elements(inner):
                if reason == 801:
                    integer(inner_value)
        elif kind not in (84, 812, 816, 836, 840, 844, 848) and not (800 <= kind <= 959 and kind % 2 == 1):
            raise Drop("ndn_malformed")
    if (index, count) != (0, 1):
        raise Drop("ndn_fragment")
    if is_nack and not fragment:
        raise Drop("ndn_malformed")
    return token, is_nack, may_keep, fragment


def tlv(kind, value):
    def emit(n):
        return bytes([n]) if n < 253 else b"\xfd" + struct.pack("!H", n) if n < 65536 else b"\xfe" + struct.pack("!I", n)

    return emit(kind) + emit(len(value)) + value


def name_of(uri):
    return tuple(tlv(8, part.encode()) for part in uri.split("/")[1:] if part)


# --- configuration ---------------------------------------------------------------------------------------------


def derived(address):
    """Over captures a neighbour that nobody names has a MAC that is made from its address."""
    if address.version == 4:
        return "02:00:" + ":".join(f"{byte:02x}" for byte in address.packed)
    return None


class Stranger:
    """A face for who sent first."""

    def __init__(self, number, port, config, ends, mac):
        self.name, self.port, self.ends, self.mac = f"@{number}", port, ends, mac
        self.own_mac, self.mtu = config["port"][port]["mac"], config["port"][port].get("mtu", 1500)
        self.used = 0.0


class Store:
    """Data by name, the one that was used least recently first."""

    def __init__(self, packets, size):
        self.packets, self.size = packets, size
        self.kept = {}  # name: packet and the end of its freshness
        self.hits = self.misses = self.evicted = 0

    @staticmethod
    def cost(packet):
        return -(-len(packet) // 256) * 256

    def insert(self, name, packet, fresh_until):
        if not name or self.packets == 0 or self.cost(packet) > self.size:
            return
        self.kept.pop(name, None)
        while len(self.kept) >= self.packets or self.used() + self.cost(packet) > self.size:
            del self.kept[next(iter(self.kept))]
            self.evicted += 1
        self.kept[name] = (packet, fresh_until)

    def used(self):
        return sum(self.cost(packet) for packet, _ in self.kept.values())

    def lookup(self, name, is_prefix, is_fresh, now):
        """The first name in canonical order that answers."""
        digest = None
        if name and name[-1][:2] == b"\1\x20":
            name, digest = name[:-1], name[-1][2:]
        for other in sorted(self.kept, key=order):
            packet, fresh_until = self.kept[other]
            if is_fresh and fresh_until <= now:
                continue
            if digest is not None:
                is_it = other == name and hashlib.sha256(packet).digest() == digest
            else:
                is_it = other == name or (is_prefix and other[: len(name)] == name)
            if is_it:
                self.kept[other] = self.kept.pop(other)
                self.hits += 1
                return packet
        self.misses += 1
        return None


def order(name):
    """Canonical order (Packet Format §2.1): component by component, by type, length and value."""
    parts = [element(component) for component in name]
    return [(kind, len(value), value) for kind, value, _, _ in parts]


class Face:
    def __init__(self, name, table, config):
        self.name, self.port = name, table["port"]
        port = config["port"][self.port]
        self.own_mac, self.mtu = port["mac"], port.get("mtu", 1500)
        self.ends = None
        if "local" in table:
            self.ends = [end(table["local"]), end(table["remote"])]
            hop = ipaddress.ip_address(table["gateway"]) if "gateway" in table else self.ends[1][0]
            given = {(n["port"], ipaddress.ip_address(n["address"])): n["mac"] for n in config.get("neighbour", [])}
            self.mac = table.get("mac") or given.get((self.port, hop)) or derived(hop)
        else:
            self.mac = table.get("mac", GROUP)

    def frame(self, payload):
        """What leaves by it."""
        ether = Ether(src=self.own_mac, dst=self.mac)
        if self.ends is None:
            if len(payload) > self.mtu:
                raise Drop("too_big")
            ether.type = 0x8624
            return bytes(ether / Raw(payload))
        (src, sport), (dst, dport) = self.ends
        ip = IP(src=str(src), dst=str(dst), flags="DF") if src.version == 4 else IPv6(src=str(src), dst=str(dst))
        packet = ip / UDP(sport=sport, dport=dport) / Raw(payload)
        if len(packet) > self.mtu:
            raise Drop("too_big")
        return bytes(ether / packet)


def counted(kind, number):
    size = next(size for size in (1, 2, 4, 8) if number < 1 << 8 * size)
    return tlv(kind, number.to_bytes(size, "big"))


def seconds(text):
    units = {"ms": 0.001, "s": 1, "min": 60, "h": 3600}
    unit = text.lstrip("0123456789")
    return int(text[: -len(unit)]) * units[unit]


Stranger.frame = Face.frame


def end(text):
    if text.startswith("["):
        address, _, port = text[1:].partition("]")
        return ipaddress.ip_address(address), int(port[1:] or 6363)
    if text.count(":") == 1:
        address, port = text.split(":")
        return ipaddress.ip_address(address), int(port)
    return ipaddress.ip_address(text), 6363


class Forwarder:
    def __init__(self, path):
        config = tomllib.loads(path.read_text())
        ndn = config.get("ndn", {})
        self.nack = ndn.get("nack", True)
        self.faces = {name: Face(name, table, config) for name, table in ndn.get("face", {}).items()}
        self.routes = {}  # of files
        self.static = {}
        for file in config.get("names", []):
            for line in (path.parent / file["file"]).read_text().splitlines():
                words = line.split("#")[0].split()
                if words:
                    self.routes[name_of(words[0])] = words[1].split(",")
        for route in config.get("name", []):
            self.static[name_of(route["prefix"])] = route["faces"]
        self.ports = list(config["port"])
        self.pending = {}  # name and flags: face -> [nonce, end, token]
        self.sent = {}  # name and flags: when its Interest was sent last, how long none is sent again, who asked first
        entries = ndn.get("pit_entries", 1 << 16)
        self.room = (entries, max(256, 2 * entries), max(256, 2 * entries))  # entries, in-records, blocks of names
        self.lifetime_max = seconds(ndn.get("lifetime_max", "10s"))
        self.dead = {}  # name and nonce: when
        self.store = Store(ndn.get("content_store", 16384), ndn.get("content_store_mib", 32) << 20)
        self.config = config
        self.strangers_max = ndn.get("on_demand_faces", 1024)
        self.idle = seconds(ndn.get("idle_timeout", "10min"))
        self.made = 0
        self.numbers = list(self.faces)  # faces by number
        self.registered = {}  # name: face: cost and end
        self.answers = {}  # name of a command: packet and end
        self.lost = []  # reasons of what was made of the last packet and could not go

    # --- frames

    def arrival(self, port, frame):
        """The face of a frame, and its payload."""
        if len(frame) < 14:
            raise Drop("truncated")
        to, source, kind = frame[:6], frame[6:12], frame[12:14]
        self.source = source.hex(":")
        if kind == b"\x86\x24":
            if len(frame) > CELL:
                raise Drop("ndn_too_long")
            mac = source.hex(":")
            if to[0] & 1:
                if to.hex(":") != GROUP:
                    raise Drop("not_for_us")
                mac = GROUP
            for face in self.faces.values():
                if face.ends is None and (face.port, face.mac) == (port, mac):
                    return face, frame[14:]
            raise Drop("ndn_no_face")
        if kind in (b"\x81\x00", b"\x88\xa8"):
            raise Drop("vlan_unknown")
        if kind not in (b"\x08\x00", b"\x86\xdd"):
            raise Drop("ethertype_unknown")
        packet = frame[14:]
        if kind == b"\x08\x00":
            if packet[0] >> 4 != 4:
                raise Drop("ip_bad_version")
            length, header = struct.unpack("!H", packet[2:4])[0], (packet[0] & 15) * 4
            if length > len(packet):
                raise Drop("truncated")
            addresses = [ipaddress.ip_address(packet[16:20]), ipaddress.ip_address(packet[12:16])]
            protocol, is_fragment = packet[9], packet[6] & 0x3F or packet[7]
        else:
            length, header = 40 + struct.unpack("!H", packet[4:6])[0], 40
            addresses = [ipaddress.ip_address(packet[24:40]), ipaddress.ip_address(packet[8:24])]
            protocol, is_fragment = packet[6], 0
        if protocol != 17:
            raise Drop("ethertype_unknown")
        datagram = packet[header:length]
        sport, dport, size, checksum = struct.unpack("!4H", datagram[:8])
        ends = [(addresses[0], dport), (addresses[1], sport)]
        face = next((f for f in self.faces.values() if f.ends and (f.port, list(f.ends)) == (port, ends)), None)
        if face is None and 6363 not in (sport, dport):
            raise Drop("ethertype_unknown")
        if is_fragment:
            raise Drop("ndn_fragment")
        if not self.sum_is_right(addresses, datagram[:size], checksum):
            raise Drop("ndn_malformed")
        if face is None:
            own = [ipaddress.ip_interface(a).ip for a in self.config["port"][port].get("addresses", [])]
            wants = self.config["port"][port].get("faces", "on-demand") == "on-demand"
            if not (wants and dport == 6363 and addresses[0] in own):
                raise Drop("ndn_no_face")
            return (port, ends, source.hex(":")), datagram[8:size]
        return face, datagram[8:size]

    def welcome(self, sender):
        """The face of a stranger."""
        port, ends, mac = sender
        strangers = [face.port for face in self.faces.values() if isinstance(face, Stranger)]
        if strangers.count(port) >= self.strangers_max - len(strangers):
            raise Drop("ndn_faces_full")
        self.made += 1
        face = Stranger(self.made, port, self.config, ends, mac)
        self.faces[face.name] = face
        self.numbers.append(face.name)
        return face

    def end_what_is_over(self, now):
        for name, face in list(self.faces.items()):
            if isinstance(face, Stranger) and face.used + self.idle <= now:
                del self.faces[name]
                for routes in self.registered.values():
                    routes.pop(name, None)
        for routes in self.registered.values():
            for name in [name for name, (_, end) in routes.items() if end is not None and end <= now]:
                del routes[name]
        for name in [name for name, (_, end) in self.answers.items() if end <= now]:
            del self.answers[name]

    def ways(self, name):
        """The faces of the longest prefix: those of the file, else those that registered it."""
        for depth in range(min(len(name), 31), -1, -1):
            prefix = name[:depth]
            if prefix in self.static:
                return self.static[prefix]
            if self.registered.get(prefix):
                routes = self.registered[prefix]
                return sorted(routes, key=lambda face: (routes[face][0], self.numbers.index(face)))
            if prefix in self.routes:
                return self.routes[prefix]
        return []

    def command(self, face, name, encoded, now):
        """The answer to a command of NFD's management protocol."""
        if name not in self.answers:
            self.answers[name] = (self.answer(face, name, encoded, now), now + 10)
        return self.answers[name][0]

    def answer(self, face, name, encoded, now):
        code, text, body = self.execute(face, name, encoded, now)
        body = body or tlv(104, b"")  # python-ndn reads no answer without parameters
        content = tlv(101, tlv(102, code.to_bytes(1 if code < 256 else 2, "big")) + tlv(103, text.encode()) + body)
        signed = tlv(7, b"".join(name)) + tlv(20, tlv(25, b"\x03\xe8")) + tlv(21, content) + tlv(22, b"\x1b\1\0")
        return tlv(6, signed + tlv(23, hashlib.sha256(signed).digest()))

    def execute(self, face, name, encoded, now):
        if self.config["port"][face.port].get("register", "none") != "any":
            return 403, "registration is not permitted on this port", b""
        try:
            words = [element(part) for part in name[2:5]]
            if len(words) < 3 or any(kind != 8 for kind, *_ in words):
                raise Drop
            kind, value, _, rest = element(words[2][1])
            if kind != 104 or rest:
                raise Drop
            given = {kind: inner for kind, inner, _ in elements(value)}
            for kind in (105, 106, 108, 109, 111):
                if kind in given:
                    given[kind] = integer(given[kind])
            signature = self.signature(name, encoded)
        except Drop:
            return 400, "Malformed command", b""
        if signature:
            return 403, signature, b""
        module, verb = words[0][1], words[1][1]
        if module != b"rib" or verb not in (b"register", b"unregister"):
            return 501, "Unsupported command", b""
        if 7 not in given:
            return 400, "failed in validating parameters", b""
        number = self.numbers.index(face.name) + 256
        if given.get(105, 0) not in (0, number):
            return 403, "a face may register prefixes for itself alone", b""
        prefix = components(given[7])
        if len(prefix) > 31:
            return 414, "Route prefix cannot exceed 31 components", b""
        body = tlv(7, given[7]) + counted(105, number) + counted(111, given.get(111, 0))
        routes = self.registered.setdefault(prefix, {})
        if verb == b"register":
            end = now + given[109] / 1000 if 109 in given else None
            routes[face.name] = (given.get(106, 0), end)
            body += counted(106, given.get(106, 0)) + counted(108, given.get(108, 1))
            body += counted(109, given[109]) if 109 in given else b""
        else:
            routes.pop(face.name, None)
        return 200, "OK", tlv(104, body)

    @staticmethod
    def signature(name, encoded):
        """What is wrong with the digests of a command."""
        if name[-1][:1] == b"\2":
            packet = element(encoded)[1]
            parts = [(kind, inner, whole) for kind, inner, whole in elements(packet)]
            at = next((n for n, (kind, *_) in enumerate(parts) if kind == 36), len(parts))
            if hashlib.sha256(b"".join(whole for *_, whole in parts[at:])).digest() != element(name[-1])[1]:
                return "the digest of the command is wrong"
            found = {kind: inner for kind, inner, _ in parts}
            if 44 not in found or 46 not in found:
                return "the command is not signed"
            signed = b"".join(name[:-1]) + b"".join(whole for kind, _, whole in parts if kind in (36, 44))
            info, value = found[44], found[46]
        elif len(name) == 9:
            (kind, info, _, rest), (kind2, value, _, rest2) = (element(element(part)[1]) for part in name[7:])
            if (kind, kind2) != (22, 23) or rest or rest2:
                raise Drop
            signed = b"".join(name[:-1])
        else:
            return "the command is not signed"
        kinds = {kind: inner for kind, inner, _ in elements(info)}
        if 27 not in kinds:
            raise Drop
        if integer(kinds[27]) == 0 and hashlib.sha256(signed).digest() != value:
            return "the digest of the command is wrong"
        return None

    @staticmethod
    def sum_is_right(addresses, datagram, checksum):
        if checksum == 0:
            return addresses[0].version == 4
        pseudo = addresses[1].packed + addresses[0].packed + struct.pack("!2H", 17, len(datagram))
        data = pseudo + datagram + bytes(len(datagram) % 2)
        total = sum(struct.unpack(f"!{len(data) // 2}H", data))
        while total >> 16:
            total = (total & 0xFFFF) + (total >> 16)
        return total == 0xFFFF

    # --- packets

    def take(self, port, frame, now):
        """Frames that leave, as (port, bytes), and the reasons to drop the packet itself, if it is."""
        self.lost = []
        self.end_what_is_over(now)
        try:
            face, payload = self.arrival(port, frame)
            token, is_nack, may_keep, packet = link(payload)
            if not packet:
                raise Drop("ndn_idle")
            kind, value, encoded, rest = element(packet)
            if rest or len(packet) > 8800 or kind not in (5, 6):
                raise Drop("ndn_malformed")
            found = fields(value, INTEREST_ORDER if kind == 5 else DATA_ORDER)
            if value[:1] != b"\x07":
                raise Drop("ndn_malformed")
            name = components(found[7])
            self.expire(now)
            if isinstance(face, tuple) and kind == 6:
                raise Drop("ndn_malformed" if is_nack else "ndn_no_face")
            if kind == 6:
                if is_nack:
                    raise Drop("ndn_malformed")
                return self.data(face, name, found, encoded, may_keep, now)
            return self.interest(face, name, found, token, is_nack, encoded, now)
        except Drop as drop:
            return [], drop.reasons

    def interest(self, face, name, found, token, is_nack, encoded, now):
        flags = (33 in found, 18 in found)
        for kind, lengths in ((33, (0,)), (18, (0,)), (10, (4,)), (12, (1, 2, 4, 8)), (34, (1,))):
            if kind in found and len(found[kind]) not in lengths:
                raise Drop("ndn_malformed")
        if not name:
            raise Drop("ndn_malformed")
        if is_nack:
            raise Drop("ndn_nack")
        if 34 in found and found[34][0] == 0:
            raise Drop("ndn_hop_limit")
        if 10 not in found:
            raise Drop("ndn_no_nonce")
        nonce = found[10]
        if isinstance(face, tuple):
            face = self.welcome(face)
        if name[0] in (b"\x08\x08localhop", b"\x08\x09localhost"):
            if name[0][2:] == b"localhost" or name[1:2] != (b"\x08\x03nfd",):
                self.touch(face, now)
                raise Drop("ndn_scope")
            self.touch(face, now)
            packet = self.command(face, name, encoded, now)
            return [(face.port, face.frame(tlv(100, tlv(98, token) + tlv(80, packet)) if token else packet))], None
        self.touch(face, now)
        waiting = self.pending.get((name, flags))
        if waiting is None and self.store.packets and not self.is_dead(name, nonce, now):
            kept = self.store.lookup(name, *flags, now)
            if kept is not None:
                packet = tlv(100, tlv(98, token) + tlv(80, kept)) if token else kept
                return [(face.port, face.frame(packet))], None
        if 34 in found and found[34][0] == 1:
            raise Drop("ndn_hop_limit")
        ways = self.ways(name)
        way = next((self.faces[way] for way in ways if way != face.name), None)
        if way is None:
            return self.returned(face, token, encoded, b"\x96"), ("no_route",)
        if 34 in found:
            # Behind its type and length, wherever it stands in the packet.
            at = self.hop_limit_at(encoded)
            out = encoded[:at] + bytes([encoded[at] - 1]) + encoded[at + 1 :]
        else:
            out = encoded
        frame = way.frame(out)
        if self.is_dead(name, nonce, now):
            raise Drop("ndn_loop")
        lifetime = min(integer(found[12]) / 1000 if 12 in found else 4.0, self.lifetime_max)
        waiting = self.pending.get((name, flags))
        record = [nonce, now + lifetime, token]
        if waiting is None:
            if not self.may_hold(face, (1, 1, self.blocks(name))):
                return self.congested(face, token, encoded)
            self.pending[(name, flags)] = {face.name: record}
            self.sent[(name, flags)] = [now, 0.010, face.name]
            return [(way.port, frame)], None
        if any(other != face.name and kept[0] == nonce for other, kept in waiting.items()):
            raise Drop("ndn_loop")
        before = waiting.get(face.name)
        if before is None and not self.may_hold(face, (0, 1, 0)):
            return self.congested(face, token, encoded)
        waiting[face.name] = record
        if before is None or before[0] == nonce:
            raise Drop("ndn_aggregated")
        self.dead[(name, before[0])] = now
        last = self.sent[(name, flags)]
        if abs(now - last[0] - last[1]) < 0.000_1:
            raise SystemExit("the oracle cannot know whether the Interest is suppressed: change the case")
        if now - last[0] < last[1]:
            raise Drop("ndn_suppressed")
        last[:2] = now, min(0.250, 2 * last[1])
        return [(way.port, frame)], None

    @staticmethod
    def blocks(name):
        return -(-len(b"".join(name)) // 60)

    def may_hold(self, face, more):
        """Whether the face holds no more than its port may still have, which may hold as much as is free: entries,
        in-records, blocks of names."""

        def held(is_own):
            first = [key for key in self.pending if is_own(self.faces[self.sent[key][2]])]
            waiting = [other for key in self.pending for other in self.pending[key] if is_own(self.faces[other])]
            return len(first), len(waiting), sum(self.blocks(key[0]) for key in first)

        free = [room - all_held for room, all_held in zip(self.room, held(lambda _: True))]
        own, port = held(lambda other: other.name == face.name), held(lambda other: other.port == face.port)
        return all(not n or own[i] + n <= free[i] - port[i] for i, n in enumerate(more))

    def congested(self, face, token, encoded):
        return self.returned(face, token, encoded, b"\x32"), ("ndn_pit_share", "ndn_pit_full")

    def returned(self, face, token, encoded, reason):
        """The Interest with a Nack, if Nacks are sent."""
        if not self.nack:
            return []
        answer = tlv(100, (tlv(98, token) if token else b"") + tlv(800, tlv(801, reason)) + tlv(80, encoded))
        try:
            return [(face.port, face.frame(answer))]
        except Drop as drop:
            self.lost.append(drop.reasons)
            return []

    def is_dead(self, name, nonce, now):
        died = self.dead.get((name, nonce))
        if died is not None and DEAD <= now - died < 2 * DEAD:
            raise SystemExit("the oracle cannot know whether the nonce is still remembered: change the case")
        return died is not None and now - died < DEAD

    @staticmethod
    def hop_limit_at(encoded):
        value = element(encoded)[1]
        at = len(encoded) - len(value)
        for _, inner, whole in elements(value):
            if whole[0] == 34:
                return at + len(whole) - len(inner)
            at += len(whole)
        raise AssertionError("the packet has a hop limit")

    def touch(self, face, now):
        """A face on demand is in use, and goes where it was last heard from."""
        if isinstance(face, Stranger):
            face.used, face.mac = now, self.source

    def data(self, face, name, found, encoded, may_keep, now):
        self.touch(face, now)
        freshness = 0
        for kind, inner, _ in elements(found.get(20, b"")):
            if kind == 25:
                freshness = integer(inner) / 1000
        whole = (*name, b"\1\x20" + hashlib.sha256(encoded).digest())
        answered = [key for key in self.pending if key[0] in (name, whole) or (key[1][0] and key[0] == name[: len(key[0])])]
        answered = [key for key in answered if key[0]]
        if not answered:
            raise Drop("ndn_unsolicited")
        if may_keep:
            self.store.insert(name, encoded, now + freshness)
        out, refused = [], None
        waiting = [(other, kept) for key in answered for other, kept in self.pending[key].items()]
        waiting = [(other, kept) for other, kept in waiting if other != face.name and kept[1] > now]
        for key in answered:
            self.bury(key, now)
        if not waiting:
            raise Drop("ndn_satisfied")
        for other, (_, _, token) in waiting:
            to = self.faces[other]
            packet = tlv(100, tlv(98, token) + tlv(80, encoded)) if token else encoded
            try:
                out.append((to.port, to.frame(packet)))
            except Drop as drop:
                refused = drop.reasons
                if len(waiting) > 1:
                    raise SystemExit("the oracle does not know which copy is the packet itself: change the case") from drop
        return out, refused

    def bury(self, key, now):
        for nonce, _, _ in self.pending.pop(key).values():
            self.dead[(key[0], nonce)] = now
        del self.sent[key]

    def expire(self, now):
        for key in [key for key, waiting in self.pending.items() if all(end < now - 0.05 for _, end, _ in waiting.values())]:
            self.bury(key, now)
        for key, waiting in self.pending.items():
            if any(abs(end - now) <= 0.05 for _, end, _ in waiting.values()):
                raise SystemExit(f"the oracle cannot know whether {key} is still pending: change the case")


# --- comparison ------------------------------------------------------------------------------------------------


def frames(path):
    """Time in seconds and bytes."""
    for data, meta in RawPcapReader(str(path)):
        yield meta.sec + meta.usec / 1e6, data


def written(path):
    for data, meta in RawPcapNgReader(str(path)):
        comment = getattr(meta, "comments", None) or getattr(meta, "comment", None) or b""
        comment = comment[0] if isinstance(comment, list) else comment
        yield data, comment.decode() if isinstance(comment, bytes) else comment


def essence(frame):
    """Without what is free: identification, TTL and so the header checksum of IPv4, the hop limit of IPv6."""
    frame = bytearray(frame)
    if frame[12:14] == b"\x08\x00":
        frame[18:20], frame[22:23], frame[24:26] = b"\0\0", b"\0", b"\0\0"
    elif frame[12:14] == b"\x86\xdd":
        frame[21:22] = b"\0"
    return bytes(frame)


def balance(stats, store, came, forwarded, refused):
    """Every packet that came or was made has one fate, and the counters say which."""
    received = sum(port["rx_packets"] for port in stats["ports"])
    sent = sum(port["tx_packets"] for port in stats["ports"])
    dropped, made = stats["dropped_packets"], stats["made_packets"]
    if (received, sent, dropped) != (came, forwarded, refused):
        raise Mismatch(f"counted: {received} in, {sent} out, {dropped} dropped, not {came}, {forwarded}, {refused}")
    if received + made != sent + dropped + stats["host_packets"]:
        raise Mismatch(f"{received} in and {made} made are not {sent} out and {dropped} dropped")
    kept = (len(store.kept), store.used(), store.hits, store.misses, store.evicted)
    told = tuple(stats["ndn"][f"store{what}"] for what in ("d", "d_bytes", "_hits", "_misses", "_evicted"))
    if kept != told:
        raise Mismatch(f"content store: {told} packets, bytes, hits, misses, evicted, not {kept}")


def main():
    out, arguments = pathlib.Path(sys.argv[1]), sys.argv[2:]
    forwarder = Forwarder(pathlib.Path(arguments[1]))
    sent = {port: [frame for frame, _ in written(out / f"{port}.pcapng")] for port in forwarder.ports}
    dropped = list(written(out / "dropped.pcapng"))
    inputs = []
    for at, argument in enumerate(arguments):
        if argument == "-r":
            port, _, path = arguments[at + 1].rpartition("=")
            order = forwarder.ports.index(port)
            inputs += [(time, order, n, port, frame) for n, (time, frame) in enumerate(frames(path), 1)]
    forwarded = refused = 0
    for time, _, n, port, frame in sorted(inputs):
        origin = f"packet {n} of {port}"
        expected, reasons = forwarder.take(port, frame, time)
        for to in forwarder.ports:
            group = sorted(essence(f) for p, f in expected if p == to)
            found = sorted(essence(f) for f in sent[to][: len(group)])
            sent[to] = sent[to][len(group) :]
            if group != found:
                raise Mismatch(f"{origin}: {to} must send {[f.hex() for f in group]}, sent {[f.hex() for f in found]}")
            forwarded += len(group)
        # The packet itself, and behind it what was made of it.
        for reasons in ([reasons] if reasons else []) + forwarder.lost:
            refused += 1
            data, reason = dropped.pop(0) if dropped else (b"", "nothing")
            if reason not in reasons:
                raise Mismatch(f"{origin}: must be dropped as {' or '.join(reasons)}, was {reason} ({data[:60].hex()})")
    for to, rest in sent.items():
        if rest:
            raise Mismatch(f"{to}: {len(rest)} frames too many, the first {rest[0][:60].hex()}")
    if dropped:
        raise Mismatch(f"dropped: {len(dropped)} packets too many, the first for {dropped[0][1]}")
    balance(json.loads((out / "stats.json").read_text()), forwarder.store, len(inputs), forwarded, refused)
    print(f"{len(inputs)} packets: {forwarded} sent, {refused} dropped, all as they must be")


if __name__ == "__main__":
    try:
        main()
    except Mismatch as mismatch:
        sys.exit(f"oracle: {mismatch}")
