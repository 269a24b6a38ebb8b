#!/usr/bin/env python3
"""What a firewall must do with each packet of a capture, computed a second time and compared.

usage: firewall.py OUT ARGUMENTS…

ARGUMENTS are those of the program: `run CONFIG -r [PORT=]IN… -w OUT`. The script reads the same configuration with its
rules, takes each packet apart by itself, goes through the rules one after the other, and compares what leaves, what is
dropped and why, and how often each rule was hit and when last (OUT/stats.json). What becomes of accepted packets say
`router.py` and `switch.py` beside it. Nothing of the program is used.
"""

import ipaddress
import json
import pathlib
import struct
import sys
import tomllib

import router
import switch
from router import Mismatch, checksum

PROTOCOLS = {
    "icmp": 1, "igmp": 2, "tcp": 6, "udp": 17, "dccp": 33, "gre": 47, "esp": 50, "icmpv6": 58, "ospf": 89,
    "sctp": 132, "udplite": 136,
}
FLAGS = ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr"]
# Bytes of the fixed header, of the protocols that begin with ports.
PORTS = {6: 20, 17: 8, 33: 12, 132: 12, 136: 8}


class Short(Exception):
    """The packet ends before something that rules may ask for."""


class Seen:
    """What of a packet rules may look at; `None` for what it does not have."""

    def __init__(self, packet, interface):
        """`packet` from its IP header on, without padding."""
        self.interface = interface
        self.sport = self.dport = self.flags = self.icmp = None
        if packet[0] >> 4 == 4:
            self.source, self.destination = (ipaddress.ip_address(packet[at : at + 4]) for at in (12, 16))
            self.proto, at = packet[9], (packet[0] & 15) * 4
            field = struct.unpack_from("!H", packet, 6)[0]
            offset, self.fragment = (field & 0x1FFF) * 8, bool(field & 0x3FFF)
        else:
            self.source, self.destination = (ipaddress.ip_address(packet[at : at + 16]) for at in (8, 24))
            self.proto, at = packet[6], 40
            offset, self.fragment = 0, False
            while self.proto in (0, 43, 44, 51, 60) and not offset:
                size = 8 if self.proto == 44 else (packet[at + 1] + 2) * 4 if self.proto == 51 else (packet[at + 1] + 1) * 8
                if self.proto == 44:
                    field = struct.unpack_from("!H", packet, at + 2)[0]
                    offset, self.fragment = field & 0xFFF8, bool(field & 0xFFF9)
                self.proto, at = packet[at], at + size
        self.upper = packet[at:]
        if offset:
            if self.proto == 6 and offset == 8:
                raise Short
            return
        icmp = 1 if self.source.version == 4 else 58
        if self.proto in PORTS:
            if len(self.upper) < PORTS[self.proto]:
                raise Short
            self.sport, self.dport = struct.unpack_from("!HH", self.upper)
            if self.proto == 6:
                self.flags = self.upper[13]
        elif self.proto == icmp:
            if len(self.upper) < (8 if icmp == 1 else 4):
                raise Short
            self.icmp = self.upper[0], self.upper[1]


class Rule:
    """One rule: what it asks, and what it does."""

    def __init__(self, name, table):
        self.name = name
        self.table = table
        self.nets = {key: ipaddress.ip_network(table[key]) for key in ("src", "dst") if key in table}
        proto = table.get("proto")
        self.proto = PROTOCOLS.get(proto, proto)
        self.ports = {key: ports(table[key]) for key in ("sport", "dport") if key in table}
        self.flags = None
        if "tcp_flags" in table:
            some, _, all_ = table["tcp_flags"].partition("/")
            bits = [sum(1 << FLAGS.index(flag) for flag in text.split(",") if flag != "none") for text in (some, all_ or some)]
            self.flags = tuple(bits)
        self.action = Action(table["action"])

    def matches(self, seen):
        for key, address in (("src", seen.source), ("dst", seen.destination)):
            if key in self.nets and (address.version != self.nets[key].version or address not in self.nets[key]):
                return False
        if self.proto is not None and seen.proto != self.proto:
            return False
        for key, port in (("sport", seen.sport), ("dport", seen.dport)):
            if key in self.ports and (port is None or not self.ports[key][0] <= port <= self.ports[key][1]):
                return False
        if self.flags and (seen.flags is None or seen.flags & self.flags[1] != self.flags[0]):
            return False
        for key, at in (("icmp_type", 0), ("icmp_code", 1)):
            if key in self.table and (seen.icmp is None or seen.icmp[at] != self.table[key]):
                return False
        if "fragment" in self.table and seen.fragment != self.table["fragment"]:
            return False
        return self.table.get("in", seen.interface) == seen.interface


class Action:
    def __init__(self, text):
        self.mirror = self.mark = self.send = None
        self.ending = "accept"
        for part in text.split(","):
            word, *rest = part.split()
            if word == "mirror":
                self.mirror = rest[0]
            elif word == "mark":
                self.mark = int(rest[0])
            else:
                self.ending = word
                self.send = rest[0] if rest else None


def ports(value):
    first, _, last = str(value).partition("-")
    return int(first), int(last or first)


def classbench(path, name, action):
    """The rules of a file, one a line."""
    lines = [line for line in path.read_text().splitlines() if line.strip() and not line.startswith("#")]
    for number, line in enumerate(lines):
        fields = line.lstrip("@").split()
        table = {"src": fields[0], "dst": fields[1], "action": action}
        value, mask = (int(part, 16) for part in fields[8].split("/"))
        if mask:
            table["proto"] = value
        for key, low, high in (("sport", fields[2], fields[4]), ("dport", fields[5], fields[7])):
            has_none = mask and value not in PORTS and int(low) == 0
            if (low, high) != ("0", "65535") and not has_none:
                table[key] = f"{low}-{high}"
        for key in ("src", "dst"):
            table[key] = str(ipaddress.ip_network(table[key], strict=False))
        yield Rule(f"{name}:{number}", table)


class Firewall:
    def __init__(self, path):
        table = tomllib.loads(path.read_text())
        self.rules = []
        for number, rule in enumerate(table.get("rule", []), 1):
            name = rule.get("name", f"#{number}")
            if "file" in rule:
                self.rules += classbench(path.parent / rule["file"], name, rule["action"])
            else:
                self.rules.append(Rule(name, rule))
        self.default = Rule("default", {"action": table.get("firewall", {}).get("default", "accept")})
        self.hits = {}

    def judge(self, packet, interface, length, time):
        """The action for an IP packet in a frame of `length` bytes, and what was seen."""
        seen = Seen(packet, interface)
        rule = next((rule for rule in self.rules if rule.matches(seen)), self.default)
        hit = self.hits.setdefault(rule.name, [0, 0, 0])
        hit[0] += 1
        hit[1] += length
        hit[2] = time
        return rule.action, seen

    def compare_hits(self, out):
        listed = json.loads((out / "stats.json").read_text()).get("rules", [])
        listed = {row["rule"]: [row["packets"], row["bytes"], row["last_hit"]] for row in listed}
        # All rules are listed in order, those without a packet too.
        mine = {rule.name: [0, 0, None] for rule in [*self.rules, self.default]}
        for name, (packets, size, last) in self.hits.items():
            mine[name] = [packets, size, f"{last // switch.SECOND}.{last % switch.SECOND:09}"]
        if list(listed) != list(mine):
            raise Mismatch(f"the rules listed: {list(listed)}, not {list(mine)}")
        if listed != mine:
            name = next(name for name in {**listed, **mine} if listed.get(name) != mine.get(name))
            raise Mismatch(f"rule {name}: counted {listed.get(name)}, not {mine.get(name)}")


def l3(frame):
    """Where the IP header begins and its length with the packet, or `None` for what is not IP."""
    at = 12
    tags = 0
    while struct.unpack_from("!H", frame, at)[0] in router.TAGS and len(frame) >= at + 6:
        at, tags = at + 4, tags + 1
    kind = struct.unpack_from("!H", frame, at)[0]
    return (at + 2, kind, tags)


def marked(frame, at, dscp):
    """The frame with a new code point in its IP header at `at`."""
    frame = bytearray(frame)
    if frame[at] >> 4 == 4:
        frame[at + 1] = dscp << 2 | frame[at + 1] & 3
        size = (frame[at] & 15) * 4
        frame[at + 10 : at + 12] = b"\0\0"
        frame[at + 10 : at + 12] = struct.pack("!H", checksum(bytes(frame[at : at + size])))
    else:
        word = struct.unpack_from("!H", frame, at)[0]
        struct.pack_into("!H", frame, at, word & 0xF03F | dscp << 6)
    return bytes(frame)


def reset_fields(seen):
    """Ports, sequence number, acknowledgment number and flags of the reset that answers a segment; `None`: none does."""
    if seen.proto != 6 or seen.fragment or seen.flags & 4:
        return None
    sequence, acknowledgment = struct.unpack_from("!II", seen.upper, 4)
    if seen.flags & 16:
        return seen.dport, seen.sport, acknowledgment, 0, 4
    length = len(seen.upper) - (seen.upper[12] >> 4) * 4 + bool(seen.flags & 2) + bool(seen.flags & 1)
    return seen.dport, seen.sport, 0, (sequence + length) & 0xFFFFFFFF, 4 | 16


def check_reset(packet, seen, where):
    """Whether an IP packet is the reset that answers what was seen."""
    if packet[0] >> 4 == 4:
        total = struct.unpack_from("!H", packet, 2)[0]
        source, destination, proto, segment = packet[12:16], packet[16:20], packet[9], packet[20:total]
        if checksum(packet[:20]) != 0:
            raise Mismatch(f"{where}: wrong IP checksum")
        pseudo = source + destination + struct.pack("!HH", 6, len(segment))
    else:
        total = 40 + struct.unpack_from("!H", packet, 4)[0]
        source, destination, proto, segment = packet[8:24], packet[24:40], packet[6], packet[40:total]
        pseudo = source + destination + struct.pack("!II", len(segment), 6)
    if (source, destination, proto) != (seen.destination.packed, seen.source.packed, 6):
        raise Mismatch(f"{where}: not from who was meant to who sent")
    if len(segment) != 20 or checksum(pseudo + segment) != 0:
        raise Mismatch(f"{where}: wrong length or TCP checksum")
    fields = (*struct.unpack_from("!HHII", segment), segment[13])
    if fields != reset_fields(seen):
        raise Mismatch(f"{where}: {fields}, not {reset_fields(seen)}")


# --- in a router -------------------------------------------------------------------------------------------


class Raw:
    """Leaves by a port as it is."""

    def __init__(self, port, frame):
        self.port, self.frame = port, frame


class Reset:
    """A reset leaves towards the sender."""

    def __init__(self, port, neighbour, seen):
        self.port, self.neighbour, self.seen = port, neighbour, seen


# What the router settles before the firewall.
BEFORE = {
    "truncated", "vlan_truncated", "vlan_unknown", "source_mac_group", "not_mine", "ethertype_unknown", "ip_bad_version",
    "ip_bad_header_length", "ip_bad_total_length", "ip_bad_checksum", "ip_zero_length_fragment", "ip_overlong_fragment",
    "ip_martian_source", "ip_martian_destination", "multicast_not_forwarded", "broadcast_not_forwarded", "source_route",
}


def of_router(firewall, world, name, frame, time):
    """The list of things that must happen to a frame, and the frame as it is then."""
    events = router.decide(world, name, frame)
    if isinstance(events[0], router.Drop) and BEFORE & set(events[0].reasons):
        return events, frame
    at, kind, tags = l3(frame)
    total = struct.unpack_from("!H", frame, at + 2)[0] if kind == 0x0800 else 40 + struct.unpack_from("!H", frame, at + 4)[0]
    ids = [struct.unpack_from("!H", frame, 14 + 4 * tag)[0] & 0xFFF for tag in range(tags)]
    port = world.subinterface(world.ports[name], [tag for tag in ids if tag])
    packet = frame[at : at + total]
    try:
        action, seen = firewall.judge(packet, port.name, len(frame), time)
    except Short:
        return [router.Drop("firewall_short")], frame
    copies = [Raw(world.ports[action.mirror], frame)] if action.mirror else []
    if action.mark is not None:
        frame = marked(frame, at, action.mark)
        packet = frame[at : at + total]
    if action.ending == "drop":
        return [router.Drop("firewall_drop")] + copies, frame
    if action.ending == "send":
        return [Raw(world.ports[action.send], frame)] + copies, frame
    if action.ending == "accept":
        return router.decide(world, name, frame) + copies, frame
    drop = [router.Drop("firewall_reject")] + copies
    version = seen.source.version
    if seen.proto == 6 and not seen.fragment:
        hop = world.look_up(seen.source)
        if not reset_fields(seen) or hop is None:
            return drop, frame
        return drop + [Reset(*world.out_of(hop, seen.source), seen)], frame
    kind, code = (3, 13) if version == 4 else (1, 1)
    return drop + router.error(world, version, kind, code, packet, seen.source), frame


class Judge(router.Judge):
    def raw(self, event, origin):
        number, frame = self.take(event.port, f"{origin} as it is")
        if frame != event.frame:
            raise Mismatch(f"{event.port.parent}: frame {number + 1} is not {origin} as it came")
        self.forwarded += 1

    def reset(self, event, origin):
        number, frame = self.take(event.port, f"a reset about {origin}")
        where = f"{event.port.parent}: frame {number + 1} (reset about {origin})"
        _, packet = self.payload(event.port, event.neighbour, number, frame)
        check_reset(packet, event.seen, where)
        if packet[8 if packet[0] >> 4 == 4 else 7] != self.router.ttl:
            raise Mismatch(f"{where}: another TTL than {self.router.ttl}")
        self.errors += 1


def judge_router(firewall, out, arguments):
    world = router.Router(pathlib.Path(arguments[1]))
    judge = Judge(world, out)
    names = [name for name, port in world.ports.items() if not port.tags]
    packets = []
    for name, path in router.inputs(world, arguments):
        for number, (time, frame) in enumerate(switch.records(path), 1):
            packets.append((time, names.index(name), number, name, frame))
    for time, _, number, name, frame in sorted(packets, key=lambda packet: packet[:3]):
        origin = f"packet {number} of {name}"
        events, now = of_router(firewall, world, name, frame, time)
        for event in events:
            if isinstance(event, router.Forward):
                judge.forward(event, origin)
            elif isinstance(event, router.Error):
                judge.error(event, origin)
            elif isinstance(event, Raw):
                judge.raw(event, origin)
            elif isinstance(event, Reset):
                judge.reset(event, origin)
            else:
                judge.drop(event, origin, now)
    judge.finish()
    return len(packets)


# --- in a switch -------------------------------------------------------------------------------------------


class Sent(Exception):
    """The frame leaves by a port as it is."""


class Answered(Exception):
    """The frame is dropped, and an answer goes back."""


class Filtering(switch.Switch):
    """A switch that asks the firewall before it learns."""

    def __init__(self, path, firewall):
        super().__init__(path)
        self.firewall = firewall
        settings = tomllib.loads(path.read_text())["firewall"]
        self.limit = settings["icmp_rate"], settings["icmp_burst"]
        self.errors = {}  # by port
        self.copies = []

    def filter(self, name, frame, now):
        self.now = frame
        at, kind, tags = l3(frame)
        if tags > 2:
            raise switch.Drop("firewall_malformed")
        if kind not in (0x0800, 0x86DD):
            return frame
        packet = whole(frame[at:], kind)
        if packet is None:
            raise switch.Drop("firewall_malformed")
        try:
            action, seen = self.firewall.judge(packet, name, len(frame), now)
        except Short:
            raise switch.Drop("firewall_short") from None
        if action.mirror:
            self.copies.append((action.mirror, frame))
        if action.mark is not None:
            frame = self.now = marked(frame, at, action.mark)
            packet = frame[at : at + len(packet)]
        if action.ending == "drop":
            raise switch.Drop("firewall_drop")
        if action.ending == "send":
            raise Sent(action.send, frame)
        if action.ending == "reject":
            answer = self.answer(name, frame, at, packet, seen, now)
            raise Answered(name, answer) if answer else switch.Drop("firewall_reject")
        return frame

    def answer(self, name, frame, at, packet, seen, now):
        """What must be found in the answer: link header, and the packet or what was seen of a segment."""
        link = frame[6:12] + frame[:6] + frame[12:at]
        if frame[0] & 1 or seen.destination.is_multicast or int(seen.destination) == 0xFFFFFFFF:
            return None
        if seen.source.is_unspecified:
            return None
        if seen.proto == 6 and not seen.fragment:
            return (link, None, seen) if reset_fields(seen) else None
        if seen.source.version == 4 and struct.unpack_from("!H", packet, 6)[0] & 0x1FFF:
            return None
        if seen.icmp and (seen.icmp[0] in (3, 4, 5, 11, 12) if seen.source.version == 4 else seen.icmp[0] < 128):
            return None
        errors = self.errors.setdefault(name, switch.Bucket(*self.limit))
        return (link, packet, seen) if errors.take(now) else None


class Joined(Filtering):
    """Ports in pairs: what the firewall lets pass leaves by the other one."""

    def frame(self, name, frame, now):
        frame = self.filter(name, frame, now)
        names = list(self.ports)
        return [(names[names.index(name) ^ 1], frame)]


def whole(packet, kind):
    """An IP packet without padding; `None` for one whose header is broken."""
    if kind == 0x86DD:
        if len(packet) < 40 or packet[0] >> 4 != 6:
            return None
        total = 40 + struct.unpack_from("!H", packet, 4)[0]
        return packet[:total] if total <= len(packet) else None
    if len(packet) < 20 or packet[0] >> 4 != 4:
        return None
    size, total = (packet[0] & 15) * 4, struct.unpack_from("!H", packet, 2)[0]
    if size < 20 or total < size or total > len(packet) or checksum(packet[:size]) != 0:
        return None
    return packet[:total]


def check_answer(frame, answer, where):
    link, packet, seen = answer
    if frame[: len(link)] != link:
        raise Mismatch(f"{where}: link header {frame[: len(link)].hex()}, not {link.hex()}")
    found = frame[len(link) :]
    if packet is None:
        return check_reset(found, seen, where)
    if seen.source.version == 4:
        total = struct.unpack_from("!H", found, 2)[0]
        source, destination, message, proto = found[12:16], found[16:20], found[20:total], found[9]
        pseudo, wanted = b"", (1, 3, 13)
        if checksum(found[:20]) != 0:
            raise Mismatch(f"{where}: wrong IP checksum")
    else:
        total = 40 + struct.unpack_from("!H", found, 4)[0]
        source, destination, message, proto = found[8:24], found[24:40], found[40:total], found[6]
        pseudo, wanted = source + destination + struct.pack("!II", len(message), 58), (58, 1, 1)
    if (proto, message[0], message[1]) != wanted or checksum(pseudo + message) != 0:
        raise Mismatch(f"{where}: not ICMP {wanted}, or a wrong checksum")
    if (source, destination) != (seen.destination.packed, seen.source.packed):
        raise Mismatch(f"{where}: not from who was meant to who sent")
    quoted = message[8:]
    if len(quoted) < min(len(packet), 28) or quoted != packet[: len(quoted)]:
        raise Mismatch(f"{where}: does not quote the packet")


def judge_switch(firewall, out, arguments, kind):
    world = kind(pathlib.Path(arguments[1]), firewall)
    names = list(world.ports)
    frames = []
    for at, argument in enumerate(arguments):
        if argument == "-r":
            name, _, path = arguments[at + 1].rpartition("=")
            frames += [(time, names.index(name), number, data) for number, (time, data) in enumerate(switch.records(path), 1)]
    expected, dropped = {name: [] for name in names}, []
    for time, port, number, data in sorted(frames, key=lambda frame: frame[:3]):
        name, origin = names[port], f"frame {number} of port {names[port]}"
        world.copies, world.now = [], data
        after = []
        try:
            for to, frame in world.frame(name, data, time):
                expected[to].append((frame, origin))
        except switch.Drop as drop:
            dropped.append((world.now, origin, str(drop)))
        except Sent as sent:
            to, frame = sent.args
            expected[to].append((frame, origin))
        except Answered as answered:
            to, answer = answered.args
            dropped.append((world.now, origin, "firewall_reject"))
            after = [(to, answer)]
        for to, what in world.copies + after:
            expected[to].append((what, origin))
    for name in names:
        found = [data for data, _ in switch.written(out / f"{name}.pcapng")]
        for number, (frame, origin) in enumerate(expected[name]):
            if number < len(found) and isinstance(frame, tuple):
                check_answer(found[number], frame, f"{name}: frame {number + 1} (answer to {origin})")
                expected[name][number] = (found[number], origin)
        switch.compare(name, expected[name], found)
    captured = list(switch.written(out / "dropped.pcapng"))
    switch.compare("dropped", [(data, origin) for data, origin, _ in dropped], [data for data, _ in captured])
    for (_, origin, reason), (_, comment) in zip(dropped, captured):
        if reason not in comment.replace(":", " ").split():
            raise Mismatch(f"dropped: {origin} for {comment!r}, not for {reason}")
    return len(frames)


def main():
    out, arguments = pathlib.Path(sys.argv[1]), sys.argv[2:]
    config = pathlib.Path(arguments[1])
    firewall = Firewall(config)
    kind = {"switch": Filtering, "wire": Joined}.get(tomllib.loads(config.read_text()).get("mode"))
    count = judge_switch(firewall, out, arguments, kind) if kind else judge_router(firewall, out, arguments)
    firewall.compare_hits(out)
    print(f"{count} packets, {len(firewall.hits)} of {len(firewall.rules) + 1} rules hit, all as they must be")


if __name__ == "__main__":
    try:
        main()
    except (Mismatch, switch.Mismatch) as mismatch:
        sys.exit(f"oracle: {mismatch}")
