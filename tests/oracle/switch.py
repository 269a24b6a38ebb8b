#!/usr/bin/env python3
"""What a switch must do with each frame of a capture, computed a second time and compared.

usage: switch.py OUT ARGUMENTS…

ARGUMENTS are those of the program: `run CONFIG -r [PORT=]IN… -w OUT`. The script reads the same configuration and
captures, takes the frames in the order of their times, learns and forwards one after another after IEEE 802.1Q in the
plainest way, and compares OUT/PORT.pcapng with the frames that must leave by each port, byte for byte and in order,
and OUT/dropped.pcapng with those that must be dropped, and why; and the counts of `switch` in OUT/stats.json. Nothing of
the program is used.
"""

import json
import logging
import pathlib
import sys
import tomllib
from fractions import Fraction

logging.getLogger("scapy").setLevel(logging.ERROR)

from scapy.utils import RawPcapNgReader, RawPcapReader  # noqa: E402

TAG = b"\x81\x00"
SECOND = 1_000_000_000
UNITS = {"s": 1, "min": 60, "h": 3600}


class Mismatch(Exception):
    """The program did something else."""


class Drop(Exception):
    """The frame goes nowhere, for this reason."""


class Port:
    """A port: the VLANs that it carries with a tag, and the one without."""

    def __init__(self, name, table):
        self.name = name
        if "trunk" in table:
            self.tagged = set(vlans(table["trunk"])) - {table.get("native")}
            self.untagged = table.get("native")
            self.takes_tags = set(vlans(table["trunk"]))
        else:
            self.tagged, self.takes_tags = set(), set()
            self.untagged = table.get("access", 1)
        self.learning = table.get("learning", True)
        self.room = table.get("stations")
        self.drops_extra = table.get("extra_stations") == "drop"
        storm = dict(table.get("storm", {}))
        burst = storm.pop("burst", None)
        self.buckets = {kind: Bucket(rate, burst) for kind, rate in storm.items()}

    def ingress(self, tag):
        """The VLAN of a frame with this identifier in its tag, `None` without one."""
        if not tag:  # none, or a priority tag
            vlan = self.untagged
        else:
            vlan = tag if tag in self.takes_tags else None
        if vlan is None:
            raise Drop("vlan_not_allowed")
        return vlan

    def carries(self, vlan):
        return vlan == self.untagged or vlan in self.tagged


class Bucket:
    """Tokens that come at a rate, as many as `burst` at most."""

    def __init__(self, rate, burst):
        self.rate = Fraction(int(rate))
        self.burst = Fraction(burst if burst is not None else max(1, int(rate) // 10))
        self.tokens, self.at = self.burst, None

    def take(self, now):
        if self.rate == 0:
            return False
        if self.at is not None:
            self.tokens = min(self.burst, self.tokens + Fraction(now - self.at, SECOND) * self.rate)
        self.at = now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True


class Switch:
    def __init__(self, path):
        table = tomllib.loads(path.read_text())
        self.ports = {name: Port(name, port) for name, port in table["port"].items()}
        settings = table.get("switch", {})
        self.room = settings.get("stations", 1 << 20)
        ageing = settings.get("ageing", "5min")
        number = ageing.rstrip("smihn")
        self.ageing = 0 if ageing == "off" else int(number) * UNITS[ageing[len(number) :]]
        # (VLAN, address): [port, static, when it was seen, in seconds]. The first one of a port gives way first.
        self.stations = {}
        self.looked = {}  # when they had been seen, the last time that they were looked at for that
        for station in table.get("station", []):
            port = self.ports[station["port"]]
            address = bytes.fromhex(station["mac"].replace(":", ""))
            self.stations[station.get("vlan", port.untagged), address] = [port.name, True, 0]
        names = ["learned", "moved", "aged", "evicted", "refused_packets", "flooded_packets", "copies", "copies_lost"]
        self.counts = dict.fromkeys(names, 0)

    def age(self, now):
        for other, (_, static, seen) in list(self.stations.items()):
            if self.ageing and not static and now - seen > self.ageing:
                del self.stations[other]
                self.counts["aged"] += 1

    def learned(self, port):
        return [key for key, (at, static, _) in self.stations.items() if at == port and not static]

    def is_full(self, port):
        return self.ports[port].room is not None and len(self.learned(port)) >= self.ports[port].room

    def learn(self, key, port, now):
        known = self.stations.get(key)
        if known and known[1]:
            return
        if known and known[0] == port:
            known[2] = now
            return
        if self.is_full(port) or not (known or self.make_room(port)):
            self.counts["refused_packets"] += 1
            return
        self.counts["moved" if known else "learned"] += 1
        self.stations.pop(key, None)
        self.stations[key] = [port, False, now]
        self.looked[key] = now

    def make_room(self, learner):
        """Whether there is a place, if need be that of the oldest station of the port with the most."""
        if len(self.stations) < self.room:
            return True
        counts = {name: len(self.learned(name)) for name in self.ports}
        most = max(counts.values())
        if most == 0:
            return False
        largest = learner if counts[learner] == most else next(name for name in counts if counts[name] == most)
        for chance in range(65):
            key = self.learned(largest)[0]
            station = self.stations.pop(key)
            if chance == 64 or station[2] == self.looked[key]:
                break
            self.stations[key] = station  # it was used: the last one now
            self.looked[key] = station[2]
        self.counts["evicted"] += 1
        return True

    def filter(self, name, frame, now):
        """The frame as it goes on; a firewall does more."""
        return frame

    def frame(self, name, frame, now):
        """(port, frame) of everything that leaves."""
        port = self.ports[name]
        self.age(now // SECOND)
        if len(frame) < 14:
            raise Drop("truncated")
        to, by = frame[:6], frame[6:12]
        if by[0] & 1:
            raise Drop("source_mac_group")
        if by == bytes(6):
            raise Drop("source_mac_zero")
        if to[:5] == bytes.fromhex("0180c20000") and to[5] < 16:
            raise Drop("bridge_reserved")
        tci, rest = None, frame[12:]
        if rest[:2] == TAG:
            if len(rest) < 6:
                raise Drop("vlan_truncated")
            tci, rest = int.from_bytes(rest[2:4]), rest[4:]
        vlan = port.ingress(None if tci is None else tci & 0xFFF)
        filtered = self.filter(name, frame, now)
        rest = filtered[len(frame) - len(rest) :]
        if port.learning:
            self.learn((vlan, by), name, now // SECOND)
        if port.drops_extra and self.is_full(name) and self.stations.get((vlan, by), [None])[0] != name:
            raise Drop("station_limit")
        known = None if to[0] & 1 else self.stations.get((vlan, to))
        if known:
            if known[0] == name:
                raise Drop("same_port")
            out = [known[0]]
            if not self.ports[known[0]].carries(vlan):
                raise Drop("vlan_not_allowed")
        else:
            kind = "broadcast" if to == b"\xff" * 6 else "multicast" if to[0] & 1 else "unknown"
            bucket = port.buckets.get(kind)
            if bucket and not bucket.take(now):
                raise Drop("storm_control")
            out = [p.name for p in self.ports.values() if p.name != name and p.carries(vlan)]
            if not out:
                raise Drop("flood_nowhere")
            self.counts["flooded_packets"] += 1
            self.counts["copies"] += len(out) - 1
        priority = (tci or 0) & 0xF000
        tagged = to + by + TAG + (priority | vlan).to_bytes(2) + rest
        return [(p, to + by + rest if self.ports[p].untagged == vlan else tagged) for p in out]


def vlans(listed):
    if listed == "all":
        yield from range(1, 4095)
        return
    for entry in listed:
        first, _, last = str(entry).partition("-")
        yield from range(int(first), int(last or first) + 1)


def records(path):
    """Time in nanoseconds and bytes of each frame."""
    with open(path, "rb") as file:
        magic = file.read(4)
    if magic == b"\x0a\x0d\x0d\x0a":
        for data, meta in RawPcapNgReader(str(path)):
            yield ((meta.tshigh << 32) + meta.tslow) * SECOND // meta.tsresol, data
    else:
        scale = 1 if magic in (b"\x4d\x3c\xb2\xa1", b"\xa1\xb2\x3c\x4d") else 1000
        for data, meta in RawPcapReader(str(path)):
            yield meta.sec * SECOND + meta.usec * scale, data


def written(path):
    for data, meta in RawPcapNgReader(str(path)):
        comment = getattr(meta, "comments", None) or getattr(meta, "comment", None) or b""
        comment = comment[0] if isinstance(comment, list) else comment
        yield data, comment.decode() if isinstance(comment, bytes) else comment


def main():
    out, arguments = pathlib.Path(sys.argv[1]), sys.argv[2:]
    switch = Switch(pathlib.Path(arguments[1]))
    names = list(switch.ports)
    frames = []
    for at, argument in enumerate(arguments):
        if argument == "-r":
            name, equals, path = arguments[at + 1].rpartition("=")
            port = names.index(name) if equals else 0
            frames += [(time, port, number, data) for number, (time, data) in enumerate(records(path), 1)]
    # By time; of one time by port; of one port as they stand in the file, whatever their times say.
    queues = {port: [frame for frame in frames if frame[1] == port] for port in range(len(names))}
    expected, dropped = {name: [] for name in names}, []
    while any(queues.values()):
        time, port, number, data = min((queue[0] for queue in queues.values() if queue), key=lambda f: f[:2])
        queues[port].pop(0)
        origin = f"frame {number} of port {names[port]}"
        try:
            for to, frame in switch.frame(names[port], data, time):
                expected[to].append((frame, origin))
        except Drop as drop:
            dropped.append((data, origin, str(drop)))
    for name in names:
        compare(name, expected[name], [data for data, _ in written(out / f"{name}.pcapng")])
    captured = list(written(out / "dropped.pcapng"))
    compare("dropped", [(data, origin) for data, origin, _ in dropped], [data for data, _ in captured])
    for (_, origin, reason), (_, comment) in zip(dropped, captured):
        if reason not in comment.replace(":", " ").split():
            raise Mismatch(f"dropped: {origin} for {comment!r}, not for {reason}")
    stations = {"stations": len(switch.stations), "stations_max": switch.room}
    stated = json.loads((out / "stats.json").read_text())["switch"]
    if stated != switch.counts | stations:
        raise Mismatch(f"stats.json: {stated}, not {switch.counts | stations}")
    sent = sum(map(len, expected.values()))
    print(f"{len(frames)} frames: {sent} sent, {len(dropped)} dropped, all as they must be")


def compare(name, expected, found):
    for number, (frame, origin) in enumerate(expected):
        if number >= len(found):
            raise Mismatch(f"{name}: {origin} is missing")
        if found[number] != frame:
            raise Mismatch(
                f"{name}: frame {number + 1} is not {origin}\n  expected {frame[:40].hex()}\n  written  {found[number][:40].hex()}"
            )
    if len(found) > len(expected):
        raise Mismatch(f"{name}: {len(found) - len(expected)} frames too many, the first {found[len(expected)][:40].hex()}")


if __name__ == "__main__":
    try:
        main()
    except Mismatch as mismatch:
        sys.exit(f"oracle: {mismatch}")
