#!/usr/bin/env python3
"""How long packets of a gateway may be, computed a second time, with scapy's IPsec layer.

usage: ipsec_mtu.py OUT ARGUMENTS…

ARGUMENTS are those of the program: `run CONFIG -r PORT=IN… -w OUT`. All associations have AES-128-GCM with 16 bytes of check value.
The MTU of a way is that of the port, or a smaller one by an ICMP error about an ESP packet that was sent (RFC 4301 §8.2.1), for ten
minutes. A packet that fits when it is sealed leaves whole; if nobody can send it shorter, in fragments; otherwise its sender learns the
longest length that fits, found here by trying all. What leaves is opened by scapy and must hold the packet that came.
"""

import pathlib
import struct
import sys
import tomllib

from ipsec import Association, esp_of, fields, lowered, policy, trimmed, tunnel, whole
from router import Mismatch, frames
from scapy.all import IP, ICMPv6PacketTooBig, IPv6
from scapy.utils import PcapReader

PLATEAUS = (32000, 17914, 8166, 4352, 2002, 1492, 1006, 508, 296, 68)
LEAST = 1280


def sealed_len(sa, ip, size):
    """Bytes of a packet of `size` bytes when it is sealed: header of ESP, vector, padding to words, check value."""
    kept = (ip[0] & 15) * 4 if ip[0] >> 4 == 4 else 40
    outer, inside = (20 if ":" not in sa.source else 40, size) if sa.is_tunnel else (kept, size - kept)
    return outer + (8 if sa.udp else 0) + 8 + 8 + (inside + 2 + 3) // 4 * 4 + 16


def longest(sa, ip, mtu):
    return max((size for size in range(40, mtu) if sealed_len(sa, ip, size) <= mtu), default=0)


class Gateway:
    def __init__(self, path):
        self.config = tomllib.loads(path.read_text())
        self.associations = [Association(path.parent, table) for table in self.config["sa"]]
        self.link = self.config["port"]["wan"].get("mtu", 1500)
        self.paths = {}

    def path(self, sa, now):
        mtu, since = self.paths.get(sa.spi, (65535, now))
        return mtu if 0 <= now - since < 600 else 65535

    def leave(self, ip, now):
        """What becomes of a packet from inside."""
        if_id = tunnel(self.config, fields(ip)[1])
        own = policy(self.config, ip, False, if_id)
        sa = next(sa for sa in self.associations if (sa.table.get("if_id") == if_id if if_id else sa.reqid == own["reqid"]))
        is_v6, size = ip[0] >> 4 == 6, len(ip)
        must_fit = is_v6 or bool(ip[6] & 0x40)
        mtu = min(self.link, self.path(sa, now))
        most = longest(sa, ip, mtu)
        interface = next((port["mtu"] for port in self.config["port"].values() if if_id and port.get("if_id") == if_id), 65535)
        most = min(most, max(interface, LEAST) if is_v6 else interface if must_fit else most)
        if size <= most:
            sa.sent += 1
            pads = size < sa.table.get("pad_to", 0)
            return "esp", sa, sa.sent, ip, sealed_len(sa, ip, longest(sa, ip, mtu) if pads else size), must_fit
        may_divide = sa.table.get("df") != "set" if sa.is_tunnel else not must_fit
        if may_divide and (not must_fit or is_v6 and size <= LEAST):
            sa.sent += 1
            return "esp", sa, sa.sent, ip, None, False
        most = max(most, LEAST) if is_v6 else most
        return ("told", most, ip) if must_fit and size > most else None

    def hear(self, ip, now):
        """An ICMP error; forwarded, if it is for somebody else."""
        own = policy(self.config, ip, True)
        if own and own["action"] == "discard":
            return None
        self.learn(ip, now)
        addresses = [own.split("/")[0] for port in self.config["port"].values() for own in port["addresses"]]
        return None if str(fields(ip)[1]) in addresses else ("plain", lowered(ip))

    def learn(self, ip, now):
        packet = (IP if ip[0] >> 4 == 4 else IPv6)(ip)
        message = bytes(packet.payload)
        again = packet.copy()
        if packet.version == 6:
            del again[ICMPv6PacketTooBig].cksum
        else:
            del again.payload.chksum
        if bytes(again.payload) != message:
            return
        quoted = message[8:]
        place = esp_of(quoted)
        if place is None or len(quoted) < place[0] + 8:
            return
        spi, number = struct.unpack("!2I", quoted[place[0] : place[0] + 8])
        ends = tuple(map(str, fields(quoted)[:2]))
        size = struct.unpack("!H", quoted[2:4])[0] if packet.version == 4 else struct.unpack("!H", quoted[4:6])[0] + 40
        mtu = struct.unpack("!H", message[6:8])[0] if packet.version == 4 else struct.unpack("!I", message[4:8])[0]
        if packet.version == 4 and mtu == 0:
            mtu = next(own for own in PLATEAUS if own < size)
        for sa in self.associations:
            is_own = (sa.spi, (sa.source, sa.destination), sa.udp) == (spi, ends, place[1]) and ends[0] == packet.dst
            if is_own and 1 <= number <= sa.sent and mtu < size and (packet.version == 4 or mtu >= LEAST):
                mtu = max(mtu, 576)
                if mtu <= self.path(sa, now):
                    self.paths[spi] = mtu, now


def check_esp(ip, lengths, expected, link):
    _, sa, number, inner, size, must_fit = expected
    what = f"packet {number} of {sa.spi:#x}"
    at, in_udp = esp_of(ip)
    if struct.unpack("!2I", ip[at : at + 8]) != (sa.spi, number) or in_udp != sa.udp:
        raise Mismatch(f"{what}: it has another index or number")
    if sa.open(ip) != lowered(inner):
        raise Mismatch(f"{what}: it holds {sa.open(ip).hex()}, not {lowered(inner).hex()}")
    # Over IPv4, routers on the way divide what the link itself takes.
    is_divided = size is None and (ip[0] >> 4 == 6 or len(ip) > link)
    if max(lengths) > link or is_divided != (len(lengths) > 1):
        raise Mismatch(f"{what}: it left in pieces of {lengths} bytes")
    if size is not None and len(ip) != size:
        raise Mismatch(f"{what}: {len(ip)} bytes, not {size}")
    if ip[0] >> 4 == 4:
        wanted = size is not None and (must_fit or sa.is_tunnel and sa.table.get("df") == "set")
        if bool(ip[6] & 0x40) != wanted:
            raise Mismatch(f"{what}: DF is not {wanted}")


def check_error(ip, expected):
    _, most, about = expected
    is_v4 = ip[0] >> 4 == 4
    kind, mtu, quoted = (ip[20:22], ip[26:28], ip[28:]) if is_v4 else (ip[40:42], ip[44:48], ip[48:])
    told = int.from_bytes(mtu, "big")
    place = slice(12, 28) if is_v4 else slice(8, 48)
    if kind != (b"\x03\x04" if is_v4 else b"\x02\x00") or told != most or quoted[place] != about[place]:
        raise Mismatch(f"an error that names {told} bytes, not {most}, about a packet of {len(about)}")
    if fields(ip)[1] != fields(about)[0]:
        raise Mismatch("an error to somebody else")


def main():
    out, arguments = pathlib.Path(sys.argv[1]), sys.argv[2:]
    gateway = Gateway(pathlib.Path(arguments[1]))
    came = []
    for at, argument in enumerate(arguments):
        if argument == "-r":
            name, _, capture = arguments[at + 1].rpartition("=")
            came += [(float(own.time), name, trimmed(bytes(own)[14:])) for own in PcapReader(capture)]
    came.sort(key=lambda own: own[0])
    all = [gateway.leave(ip, now) if port == "lan" else gateway.hear(ip, now) for now, port, ip in came]
    of = lambda kind: [own for own in all if own and own[0] == kind]
    left = list(frames(out / "wan.pcapng"))
    pieces = [len(trimmed(own[14:])) for own in left]
    for expected, ip in zip(of("esp"), (sealed := whole(left)), strict=False):
        mine = [pieces.pop(0)]
        while sum(mine) - 20 * (len(mine) - 1) < len(ip) and ip[0] >> 4 == 4:
            mine.append(pieces.pop(0))
        while ip[0] >> 4 == 6 and sum(own - 48 for own in mine) < len(ip) - 40 and mine != [len(ip)]:
            mine.append(pieces.pop(0))
        check_esp(ip, mine, expected, gateway.link)
    told = [trimmed(own[14:]) for own in frames(out / "lan.pcapng")]
    for _, ip in of("plain"):
        if ip not in told:
            raise Mismatch("an error for a host was not passed on")
        told.remove(ip)
    for expected, ip in zip(of("told"), told):
        check_error(ip, expected)
    counts = [len(of("esp")), len(sealed), len(of("told")), len(told)]
    if counts[0] != counts[1] or counts[2] != counts[3] or not counts[0] or not counts[2]:
        raise Mismatch(f"sealed, errors: {counts}, each expected and found")
    print(f"{counts[0]} packets sealed, {counts[2]} errors, {all.count(None)} lost or heard, all as they must be")


if __name__ == "__main__":
    try:
        main()
    except Mismatch as mismatch:
        sys.exit(f"oracle: {mismatch}")
