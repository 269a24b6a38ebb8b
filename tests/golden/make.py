#!/usr/bin/env python3
"""Makes the crafted input captures of the golden cases: CASE/in.pcap, the same bytes each time.

Run with the interpreter of .venv, which has scapy. Real captures stand in tests/data instead.
"""

import gzip
import hashlib
import logging
import pathlib
import socket
import struct
import sys

logging.getLogger("scapy").setLevel(logging.ERROR)

from scapy.all import (  # noqa: E402
    ARP, ICMP, IP, TCP, UDP, Dot1AD, Dot1Q, Ether, ICMPv6DestUnreach, ICMPv6EchoRequest, ICMPv6ND_NS,
    ICMPv6NDOptSrcLLAddr, ICMPv6PacketTooBig, ICMPv6TimeExceeded, IPOption_LSRR, IPOption_NOP, IPOption_RR, IPv6,
    IPv6ExtHdrDestOpt, IPv6ExtHdrFragment, IPv6ExtHdrHopByHop, Raw, fragment, fragment6,
)
from scapy.contrib.http2 import HPackHdrTable  # noqa: E402
from scapy.layers.ipsec import ESP, SecurityAssociation  # noqa: E402
from scapy.utils import checksum  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "oracle"))
from ipsec import shortened  # noqa: E402

HOST, ROUTER = "02:00:00:00:01:02", "02:00:00:00:01:01"
BROADCAST = "ff:ff:ff:ff:ff:ff"


def ether(to=ROUTER):
    return Ether(src=HOST, dst=to)


def v4(to="10.0.2.2", **fields):
    return IP(src=fields.pop("src", "10.0.1.2"), dst=to, **fields)


def v6(to="fd00:2::2", **fields):
    return IPv6(src=fields.pop("src", "fd00:1::2"), dst=to, **fields)


def udp(size=18):
    return UDP(sport=4000, dport=4001) / Raw(bytes(i & 0xFF for i in range(size)))


def edited(packet, *edits):
    """The frame's bytes with some replaced: (offset, bytes)."""
    data = bytearray(bytes(packet))
    for at, new in edits:
        data[at : at + len(new)] = new
    return bytes(data)


def with_checksum(frame):
    """Corrects the IPv4 header checksum of an edited frame."""
    data = bytearray(frame)
    header = (data[14] & 15) * 4
    data[24:26] = b"\0\0"
    data[24:26] = struct.pack("!H", checksum(bytes(data[14 : 14 + header])))
    return bytes(data)


def bad_ipv4():
    good = ether() / v4() / udp()
    raw = bytes(good)
    yield good
    yield raw[:10]  # not even an Ethernet header
    yield raw[:14]
    yield raw[:33]  # the header's last byte is missing
    yield with_checksum(edited(good, (14, b"\x65")))  # version 6
    yield edited(good, (14, b"\x44"))  # header of 16 bytes
    yield edited(good, (14, b"\x4f"))  # header of 60 bytes, beyond the packet
    yield with_checksum(edited(good, (16, b"\x00\x13")))  # total length 19
    yield with_checksum(edited(good, (16, b"\x01\x00")))  # total length beyond the frame
    yield edited(good, (24, b"\xde\xad"))  # wrong checksum
    yield raw + bytes(20)  # padding is not an error, and is not forwarded
    yield ether() / v4(flags="MF") / b""  # fragments without payload
    yield ether() / v4(frag=100) / b""
    yield ether() / v4(frag=0x1FFF, proto=17) / Raw(bytes(64))  # ends beyond 65,535
    yield good


def bad_ttl():
    for ttl in (0, 1, 2, 255):
        yield ether() / v4(ttl=ttl) / udp()
        yield ether() / v6(hlim=ttl) / udp()
    # No error about errors, about later fragments, to multicast or without a way back.
    yield ether() / v4(ttl=1) / ICMP(type=3, code=1) / bytes(v4() / udp())
    yield ether() / v4(ttl=1) / ICMP(type=8, id=7, seq=1) / b"echo"
    yield ether() / v4(ttl=1, frag=3, proto=17) / Raw(bytes(32))
    yield ether() / v4(ttl=1, flags="MF", proto=17) / Raw(bytes(32))
    yield ether() / v4("224.1.2.3", ttl=1) / udp()
    yield ether() / v4(ttl=1, src="192.0.2.77") / udp()
    yield ether() / v6(hlim=1) / ICMPv6TimeExceeded() / bytes(v6() / udp())
    yield ether() / v6(hlim=1) / ICMPv6EchoRequest(id=7, seq=1)
    yield ether() / v4(ttl=1) / udp(1400)  # what is quoted has a limit
    yield ether() / v6(hlim=1) / udp(1400)


def bad_addresses():
    for source in ("0.0.0.0", "127.0.0.1", "224.0.0.5", "255.255.255.255", "240.0.0.1", "169.254.1.1"):
        yield ether() / v4(src=source) / udp()
    for destination in ("0.0.0.0", "127.0.0.1", "255.255.255.255", "240.0.0.1", "169.254.1.1", "239.1.1.1"):
        yield ether() / v4(destination) / udp()
    for source in ("::", "::1", "ff02::1", "fe80::1", "::ffff:10.0.1.2"):
        yield ether() / v6(src=source) / udp()
    for destination in ("::", "::1", "ff05::1", "fe80::1", "::ffff:10.0.2.2"):
        yield ether() / v6(destination) / udp()
    yield ether(BROADCAST) / v4() / udp()
    yield ether("01:00:5e:00:00:01") / v4() / udp()
    yield ether() / v4("10.0.2.255") / udp()  # a directed broadcast
    yield ether("02:00:00:00:09:09") / v4() / udp()  # another station's frame, for a capture's router its own
    yield ether() / v4() / udp()


def routes():
    for last, _ in enumerate(("default", "/8", "/16", "/24", "/32", "blackhole", "unreachable", "none")):
        yield ether() / v4(f"198.51.{100 + last}.1") / udp()
    for destination in ("198.18.0.1", "198.18.64.1", "198.18.64.64", "198.18.64.65", "198.18.128.1"):
        yield ether() / v4(destination) / udp()
    for destination in ("2001:db8::1", "2001:db8:1::1", "2001:db8:1:1::1", "2001:db8:1:1::2", "2001:db8:2::1"):
        yield ether() / v6(destination) / udp()
    yield ether() / v4("203.0.113.1") / udp()
    yield ether() / v4("203.0.113.129") / udp()
    yield ether() / v6("2001:db8:dead::1") / udp()
    yield ether() / v6("2001:db8:beef::1") / udp()
    yield ether() / v6("3fff::1") / udp()
    yield ether() / v4("10.0.2.77") / udp()  # connected; no neighbour is named
    yield ether() / v6("fd00:2::77") / udp()


def fragmentation():
    yield ether() / v4(id=1) / udp(1400)
    yield ether() / v4(id=2) / udp(3000)
    yield ether() / v4(id=3, flags="DF") / udp(3000)
    yield ether() / v4(id=4) / udp(1400)
    yield ether() / v4("10.0.3.2", id=5) / udp(1400)
    yield ether() / v4("10.0.3.2", id=6, flags="DF") / udp(1400)
    # A fragment is fragmented: the offsets add up and the last keeps "more".
    yield ether() / v4("10.0.3.2", id=7, flags="MF", frag=185, proto=17) / Raw(bytes(range(200)) * 6)
    # Options: record route stays in the first, loose source route would be copied but is refused.
    yield ether() / v4("10.0.3.2", id=8, options=[IPOption_RR(length=11, pointer=4, routers=["0.0.0.0"] * 2), IPOption_NOP()]) / udp(1200)
    yield ether() / v4("10.0.3.2", id=9, options=[IPOption_LSRR(pointer=4, routers=["10.0.9.9"]), IPOption_NOP()]) / udp()
    yield ether() / v6() / udp(3000)
    yield ether() / v6("fd00:3::2") / udp(1400)
    yield ether() / v6("fd00:3::2") / udp(1100)
    # As large as it goes, and jumbo frames.
    yield ether() / v4(id=10) / udp(9000)
    yield ether() / v4(id=11) / udp(16000)
    yield ether() / v4(id=12, flags="DF") / udp(1472)  # 1,500 bytes fit
    yield ether() / v4(id=13, flags="DF") / udp(1473)


def extension_headers():
    yield ether() / v6() / IPv6ExtHdrHopByHop() / udp()
    yield ether() / v6() / IPv6ExtHdrDestOpt() / udp()
    yield ether() / v6() / IPv6ExtHdrHopByHop() / IPv6ExtHdrDestOpt() / udp()
    yield ether() / v6() / IPv6ExtHdrFragment(id=9, offset=0, m=1) / Raw(bytes(64))
    yield ether() / v6() / IPv6ExtHdrFragment(id=9, offset=8, m=0, nh=17) / Raw(bytes(64))
    yield ether() / v6() / IPv6ExtHdrFragment(id=9, offset=8, m=1, nh=17)  # no payload
    yield ether() / v6() / IPv6ExtHdrDestOpt() / IPv6ExtHdrHopByHop() / udp()  # hop-by-hop must be first
    yield ether() / v6(nh=60) / Raw(b"\x11\xff" + bytes(30))  # longer than the packet
    yield ether() / v6(nh=60) / Raw(b"\x3c")  # ends within the header
    yield ether() / v6(nh=59)  # nothing follows, and nothing is wrong
    short = ether() / v6() / udp()
    yield edited(short, (18, b"\x01\x00"))  # payload length beyond the frame
    yield bytes(short)[:40]
    yield edited(short, (14, b"\x40"))  # version 4
    yield ether() / v6() / udp()


def vlans():
    yield ether() / v4() / udp()
    yield ether() / Dot1Q(vlan=10) / v4(src="10.0.10.2") / udp()
    yield ether() / Dot1Q(vlan=10, prio=5) / v6(src="fd00:10::2") / udp()
    yield ether() / Dot1Q(vlan=11) / v4() / udp()  # nobody's tag
    yield ether() / Dot1AD(vlan=100) / Dot1Q(vlan=200) / v4(src="10.0.20.2") / udp()
    yield ether() / v4("10.0.10.2") / udp()
    yield ether() / v4("10.0.20.2") / udp()
    yield ether() / Dot1Q(vlan=10) / v4("10.0.20.2", src="10.0.10.2") / udp()
    yield ether() / Dot1Q(vlan=0, prio=3) / v4() / udp()  # a priority, no VLAN
    yield bytes(ether() / Dot1Q(vlan=10))[:16]  # ends within the tag
    yield ether() / Dot1Q(vlan=10) / v4(src="10.0.10.2", ttl=1) / udp()


def reverse_path():
    for source in ("10.0.1.2", "10.0.2.9", "192.0.2.1", "198.51.100.7"):
        yield ether() / v4(src=source) / udp()
    for source in ("fd00:1::2", "fd00:2::9", "2001:db8:99::1"):
        yield ether() / v6(src=source) / udp()


def own_source():
    # Of this port and of the other one; to a host, to the router, and beside the subnets.
    for source in ("10.0.1.1", "10.0.2.1"):
        for destination in ("10.0.2.2", "10.0.1.1", "198.51.100.7"):
            yield ether() / v4(destination, src=source) / udp()
    for source in ("fd00:1::1", "fd00:2::1"):
        for destination in ("fd00:2::2", "fd00:1::1"):
            yield ether() / v6(destination, src=source) / udp()
    yield ether() / v4() / udp()
    yield ether() / v6() / udp()


def icmp_rate():
    for number in range(40):
        yield ether() / v4(ttl=1, id=number) / udp()


def arp():
    yield ether(BROADCAST) / ARP(op=1, hwsrc=HOST, psrc="10.0.1.2", pdst="10.0.1.99")
    yield bytes(ether(BROADCAST) / ARP(op=1, hwsrc=HOST, psrc="10.0.1.2", pdst="10.0.1.99"))[:30]
    yield Ether(src=HOST, dst=ROUTER, type=0x88CC) / Raw(bytes(46))
    yield ether() / v4() / TCP(sport=1, dport=2, flags="S")


def ecmp():
    for flow in range(32):
        for _ in range(3):
            yield ether() / v4("10.9.0.1") / UDP(sport=5000 + flow, dport=53) / b"a flow stays on its path"


def not_ethernet():
    yield bytes(64)


def corrupt_capture():
    yield from bad_ipv4()


def station(number):
    return f"02:00:00:00:00:{number:02x}"


def frame(by, to, tag=None, prio=0):
    """A frame from one station to another, numbers or addresses."""
    named = [station(who) if isinstance(who, int) else who for who in (by, to)]
    link = Ether(src=named[0], dst=named[1], type=0x88B5 if tag is None else 0x8100)
    tags = b"" if tag is None else struct.pack("!HH", prio << 13 | tag, 0x88B5)
    return bytes(link) + tags + bytes(46)


def switch():
    """(port, frame); what the configuration says of ports stands in switch/config.toml."""
    yield "a", frame(1, 2)  # 2 is not known: to all of VLAN 1
    yield "b", frame(2, 1)  # 1 was learned
    yield "a", frame(1, 2)  # and so was 2
    yield "t", frame(3, 1, tag=1)  # the native VLAN does not come with a tag
    yield "t", frame(3, 1)
    yield "a", frame(1, 3)
    yield "a", frame(4, 1)  # behind the same port
    yield "c", frame(1, 5)  # the same address in another VLAN is another station
    yield "t", frame(5, 1, tag=2, prio=6)
    yield "c", frame(1, 5)
    yield "t", frame(6, BROADCAST, tag=30)  # nobody else carries it
    yield "t", frame(6, BROADCAST, tag=31)  # and this one not even the trunk
    yield "a", frame(1, BROADCAST)
    yield "t", frame(7, "01:00:5e:00:00:fb", tag=2)
    yield "t", frame(7, 1, tag=0, prio=5)  # a priority and no VLAN: the native one
    yield "a", frame(1, 7, tag=0, prio=3)
    yield "a", frame(1, 7, tag=1)  # an access port takes no tags
    yield "b", frame(1, 2)  # 1 moves, and is behind the same port as 2
    yield "t", frame(3, 1)
    yield "a", frame(9, 0x99)  # a static station
    yield "a", frame(0x99, 9)  # that does not move
    yield "c", frame(0x99, 2)  # and is not the one of VLAN 2
    yield "d", frame(0x44, 1)  # a port that does not learn
    yield "a", frame(9, 0x44)
    yield "a", frame("03:00:00:00:00:01", 1)
    yield "a", frame("00:00:00:00:00:00", 1)
    for last in (0x00, 0x01, 0x0E, 0x0F, 0x10):
        yield "a", frame(9, f"01:80:c2:00:00:{last:02x}")
    yield "a", frame(9, 1)[:13]
    yield "t", frame(9, 1, tag=2)[:16]
    yield "t", bytes(Ether(src=station(0x20), dst=station(1)) / Dot1AD(vlan=2) / Raw(bytes(46)))  # no tag of ours
    yield "t", bytes(Ether(src=station(0x21), dst=station(5)) / Dot1Q(vlan=2) / Dot1Q(vlan=9) / Raw(bytes(46)))
    for number in range(300):  # more than a chunk: each answer finds the station that asked
        yield "a", frame(f"02:00:00:01:{number >> 8:02x}:{number & 255:02x}", 2)
        yield "b", frame(2, f"02:00:00:01:{number >> 8:02x}:{number & 255:02x}")


def switch_pipelines():
    """(port, seconds, frame): stations of two pipelines in turn, of which one moves later."""
    for number in range(40):
        yield "a", number * 0.002, frame(1, 2)
        yield "b", number * 0.002 + 0.001, frame(2, 1)
    yield "a", 5, frame(2, BROADCAST)


def switch_time():
    """(port, seconds, frame): what is forgotten, and what is flooded too often."""
    for number in range(12):  # 10 a second, 4 at once
        yield "a", number * 0.04, frame(1, BROADCAST)
    yield "a", 1, frame(1, 2)
    yield "b", 1, frame(2, 1)
    yield "b", 9, frame(2, 1)  # young again
    yield "a", 11.5, frame(1, 2)  # 10 s and a half: still there
    yield "b", 20, frame(3, 1)
    yield "b", 22, frame(3, 1)  # 1 was seen 10 s ago and some
    yield "b", 33, frame(3, 1)  # and is forgotten
    yield "a", 33.1, frame(1, 2)  # as is 2
    yield "b", 33.2, frame(0x55, 1)
    yield "a", 500, frame(1, 0x99)  # a static station is not
    yield "a", 501, frame(1, 2)  # no unknown ones are flooded from here at most twice a second
    yield "a", 501.1, frame(1, 2)
    yield "a", 501.2, frame(1, 2)
    yield "b", 501.3, frame(3, 4)  # another port is not limited
    for number in range(5):  # the table has room for 16
        for low in range(8):
            yield "c", 510 + number, frame(f"02:00:00:02:{number:02x}:{low:02x}", BROADCAST)
    yield "b", 515, frame(3, "02:00:00:02:00:01")
    yield "b", 515, frame(3, "02:00:00:02:04:07")  # found no room
    yield "b", 600, frame(3, "02:00:00:02:00:01")
    yield "a", 601, frame("02:00:00:02:04:07", 3)  # there is room again


def switch_stations():
    """(port, seconds, frame): who gives way in a table with room for 16, and ports with limits of their own."""
    second = 0
    for number in range(4):
        yield "b", second, frame(number, BROADCAST)
    for number in range(40):  # a port that floods: the stations of the other one stay
        second += 0.01
        yield "a", second, frame(f"02:00:00:02:00:{number:02x}", BROADCAST)
    for number in range(4):
        yield "d", 1, frame(0x40, number)
    yield "b", 1.1, frame(1, "02:00:00:02:00:00")  # gave way
    yield "b", 1.2, frame(1, "02:00:00:02:00:27")  # the last one
    for number in range(5):  # another port finds room
        yield "b", 2 + number / 10, frame(0x10 + number, BROADCAST)
    for number in range(5):
        yield "d", 3, frame(0x40, 0x10 + number)
    second = 4
    for number in range(60):  # one that is used stays among those of a flood
        second += 0.5
        yield "a", second, frame("02:00:00:02:00:27", 1)
        yield "a", second + 0.1, frame(f"02:00:00:03:00:{number:02x}", BROADCAST)
    yield "b", 40, frame(1, "02:00:00:02:00:27")
    yield "b", 40.1, frame(1, "02:00:00:03:00:3b")
    for number in range(6):  # two stations and the static one; others are dropped
        yield "c", 41 + number / 10, frame(0x60 + number, 1)
    yield "c", 42, frame(0x98, 1)
    yield "c", 42.1, frame(0x61, 1)
    yield "c", 42.2, frame(1, 2)  # one of another port does not move here
    yield "c", 42.3, frame(0x99, 2)
    yield "b", 42.4, frame(2, 0x62)
    yield "a", 43, frame(0x60, 1)  # a station leaves the port
    yield "c", 43.1, frame(0x62, 1)  # and another one takes its place
    yield "c", 43.2, frame(0x60, 1)
    for number in range(3):  # a port that forwards all and learns one
        yield "d", 44 + number / 10, frame(0x40 + number, 1)
        yield "b", 45 + number / 10, frame(1, 0x40 + number)
    yield "c", 146, frame(0x63, 1)  # the others have aged
    yield "d", 146, frame(0x41, 1)
    yield "b", 147, frame(1, 0x41)


# --- named data ---------------------------------------------------------------------------------------------

GROUP = "01:00:5e:00:17:aa"


def timed(case):
    """The (port, frame)s of a case a millisecond apart, as (port, seconds, bytes); a number is a pause in seconds."""

    def events():
        micros = 0
        for event in case():
            if isinstance(event, float):
                micros += int(event * 1_000_000)
                continue
            port, packet = event
            yield port, micros / 1_000_000, bytes(packet)
            micros += 1000

    events.__name__ = case.__name__
    return events


def number(n):
    """A type or a length of an element."""
    return bytes([n]) if n < 253 else b"\xfd" + struct.pack("!H", n) if n < 65536 else b"\xfe" + struct.pack("!I", n)


def tlv(kind, *parts):
    value = b"".join(parts)
    return number(kind) + number(len(value)) + value


def name(uri):
    return tlv(7, *(tlv(8, part.encode()) for part in uri.split("/")[1:] if part))


def interest(uri, nonce, lifetime=None, hops=None, prefix=False, fresh=False):
    fields = [tlv(33)] * prefix + [tlv(18)] * fresh
    fields += [tlv(10, struct.pack("!I", nonce))] if nonce is not None else []
    fields += [tlv(12, struct.pack("!H", lifetime))] if lifetime is not None else []
    fields += [tlv(34, bytes([hops]))] if hops is not None else []
    return tlv(5, name(uri), *fields)


def data(uri, content=b"content", fresh=None):
    meta = [tlv(25, struct.pack("!H", fresh))] if fresh is not None else []
    return tlv(6, name(uri), tlv(20, *meta), tlv(21, content), tlv(22, tlv(27, b"\0")), tlv(23, bytes(32)))


def link(packet, *fields):
    return tlv(100, *fields, tlv(80, packet))


def token(text):
    return tlv(98, text)


def nack(reason):
    return tlv(800, tlv(801, bytes([reason])))


def named(port, packet, to=None):
    """From the neighbour of a port to our MAC there, or to the group."""
    frame = Ether(src=f"02:00:00:00:0{port}:02", dst=to or f"02:00:00:00:0{port}:01", type=0x8624)
    return f"p{port}", frame / Raw(packet)


@timed
def ndn_forwarding():
    yield named(1, link(interest("/org/a", 1), token(b"\1\2\3")))
    yield named(2, data("/org/a"))  # and the token comes back
    yield named(2, data("/org/a"))  # once
    # Two faces wait for one name; one of them asks again, by the same nonce and by a new one.
    yield named(1, interest("/org/b", 10))
    yield named(3, link(interest("/org/b", 11), token(b"c")), GROUP)
    yield named(1, interest("/org/b", 10))
    yield named(1, interest("/org/b", 12))
    yield named(2, data("/org/b"))
    # A loop: the nonce is back by another face, while the Interest is pending and when it is gone.
    yield named(1, interest("/org/c", 20))
    yield named(3, interest("/org/c", 20), GROUP)
    yield named(2, data("/org/c"))
    yield named(3, interest("/org/c", 20), GROUP)
    for hops in (0, 1, 2, 255):
        yield named(1, interest(f"/org/hops/{hops}", 30 + hops, hops=hops))
    yield named(1, interest("/org/nonce", None))
    # No route; only back where it came from; the second best face; the longest prefix; all names.
    yield named(1, link(interest("/com/a", 40), token(b"n")))
    yield named(2, interest("/org/back", 41))
    yield named(2, interest("/org/two/x", 42))
    yield named(1, interest("/org/two/x", 43))
    yield named(1, interest("/org/two", 44))
    yield named(1, interest("/orgy", 45))
    # What answers what: prefixes, flags, and the face that waits alone.
    yield named(1, interest("/org/p", 50, prefix=True))
    yield named(1, interest("/org/p", 51))
    yield named(1, interest("/org/p", 52, prefix=True, fresh=True))
    yield named(2, data("/org/p/q"))
    yield named(2, data("/org/p"))
    yield named(2, data("/org"))
    yield named(1, interest("/org/own", 53))
    yield named(1, data("/org/own"))
    # A short lifetime ends; its nonce is remembered.
    yield named(1, interest("/org/late", 60, lifetime=500))
    yield 1.0
    yield named(2, data("/org/late"))
    yield named(3, interest("/org/late", 60, lifetime=500), GROUP)
    yield named(1, interest("/org/late", 61, lifetime=500))
    yield 20.0
    yield named(3, interest("/org/late", 60), GROUP)
    # Padding behind a packet is not part of it; an acknowledgement, a Nack, a piece of a packet.
    yield named(1, interest("/org/pad", 70) + bytes(20))
    yield named(1, link(b""))
    yield named(2, link(interest("/org/pad", 70), nack(150)))
    yield named(1, tlv(100, tlv(82, b"\0"), tlv(83, b"\2"), tlv(80, interest("/org/f", 71))))
    # Neighbours that are not faces, a station that is not us, a group that is not ours, a tag.
    yield "p1", Ether(src="02:00:00:00:09:09", dst="02:00:00:00:01:01", type=0x8624) / Raw(interest("/org/s", 80))
    yield named(3, interest("/org/s", 81))
    yield named(1, interest("/org/s", 82), "01:00:5e:00:17:ab")
    yield "p1", Ether(src="02:00:00:00:01:02", dst=BROADCAST) / ARP(op=1, psrc="10.0.1.2", pdst="10.0.1.1")
    yield "p1", Ether(src="02:00:00:00:01:02", dst="02:00:00:00:01:01") / Dot1Q(vlan=5, type=0x8624) / Raw(interest("/org/s", 83))
    # Data that is too long for the face that waits, and one that is not.
    yield named(1, interest("/org/long", 90))
    yield named(2, data("/org/long", bytes(1500)))
    yield named(1, interest("/org/fits", 91))
    yield named(2, data("/org/fits", bytes(1000)))


def datagram(port, packet, to=None, sport=6363, dport=6363, v=4, **fields):
    ether = Ether(src=f"02:00:00:00:0{port}:02", dst=f"02:00:00:00:0{port}:01")
    if v == 4:
        ip = IP(src=fields.pop("src", f"10.0.{port}.2"), dst=to or f"10.0.{port}.1", **fields)
    else:
        ip = IPv6(src=fields.pop("src", f"fd00:{port}::2"), dst=to or f"fd00:{port}::1", **fields)
    return f"p{port}", ether / ip / UDP(sport=sport, dport=dport) / Raw(packet)


@timed
def ndn_udp():
    # From IPv4 to IPv6, to a neighbour behind a gateway, to another UDP port, to Ethernet, and back.
    for at, uri in enumerate(("/six/a", "/far/a", "/other/a", "/ether/a")):
        yield datagram(1, link(interest(uri, at + 1, hops=9), token(b"t%d" % at)))
    yield datagram(2, data("/six/a"), v=6)
    yield datagram(2, data("/far/a"), src="192.0.2.9")
    yield datagram(2, data("/other/a"), sport=7000)
    yield named(3, data("/ether/a"))
    # The other way round, and two that wait on one port.
    yield named(3, interest("/four/b", 10))
    yield datagram(2, interest("/four/b", 11), v=6)
    yield datagram(2, interest("/four/b", 12), sport=7000)
    yield datagram(1, data("/four/b"))
    yield named(3, interest("/nowhere", 13))
    yield datagram(2, interest("/nowhere", 14), v=6)
    # A wrong checksum, none at all (IPv4 alone), strangers, other ports, pieces of a datagram, an old TTL.
    frame = bytes(datagram(1, interest("/six/c", 20))[1])
    yield "p1", edited(frame, (40, b"\xde\xad"))
    yield "p1", edited(frame, (40, b"\0\0"))
    frame6 = bytes(datagram(2, interest("/four/c", 21), v=6)[1])
    yield "p2", edited(frame6, (60, b"\0\0"))
    yield datagram(1, interest("/six/d", 22), src="10.0.1.77")
    yield datagram(1, interest("/six/d", 23), sport=6364)
    yield datagram(1, interest("/six/d", 24), dport=53, sport=53)
    yield datagram(1, interest("/six/d", 25), flags="MF")
    yield datagram(1, interest("/six/d", 26), ttl=1)
    yield with_wrong_version(datagram(1, interest("/six/d", 27)))
    yield "p1", bytes(datagram(1, interest("/six/d", 28))[1])[:50]
    # Larger than the link to the gateway takes.
    yield datagram(1, interest("/far/" + "x" * 1250, 30))
    yield datagram(1, interest("/far/" + "x" * 1200, 31))


def with_wrong_version(event):
    port, frame = event
    return port, with_checksum(edited(frame, (14, b"\x65")))


@timed
def ndn_nack():
    # A Nack adds 17 bytes to an Interest of so many, and its token two more. The link takes 1200.
    def of(size, nonce):
        return interest("/com/" + "x" * (size - len(interest("/com/" + "x" * 1000, 1)) + 1000), nonce)

    for at, size in enumerate((100, 1182, 1183, 1184, 1200, 1400)):
        yield named(1, of(size, at + 1))
    yield named(1, link(of(1180, 10), token(b"1")))
    yield named(1, link(of(1181, 11), token(b"1")))
    # Over UDP, 28 bytes of headers.
    yield datagram(2, of(1155, 20))
    yield datagram(2, of(1156, 21))
    # Where there is a way nothing is made.
    yield named(1, interest("/org/" + "x" * 1100, 30))
    yield datagram(2, data("/org/" + "x" * 1100, b""))


@timed
def ndn_pending():
    # Room for 16: one neighbour has half of it, the other one half of the rest; each hears of congestion.
    for number in range(12):
        yield named(1, link(interest(f"/org/{number}", number + 1, lifetime=60_000), token(b"t")))
    for number in range(6):
        yield datagram(3, interest(f"/org/of-three/{number}", 100 + number))
    # Who waits with others takes no entry.
    yield datagram(3, interest("/org/1", 200))
    # What is answered makes room.
    for number in range(8):
        yield named(2, data(f"/org/{number}"))
    yield named(1, interest("/org/20", 300))
    yield 5.0
    # Long names count by their length: there are 256 blocks of 60 bytes, of which one neighbour has half.
    for number in range(14):
        yield named(1, interest(f"/org/{number}" + "/" + "x" * 1200, 400 + number))
    # No lifetime is longer than two seconds here.
    yield 2.5
    yield named(2, data("/org/1/" + "x" * 1200))
    # Asking again: not before 10 ms are over, then 20 ms, 40 ms.
    for number in range(60):
        yield named(1, interest("/org/again", 500 + number))
        yield 0.0007
    yield named(3, interest("/org/again", 600), GROUP)
    yield named(2, data("/org/again"))


@timed
def ndn_store():
    # Kept, with its token, for whoever asks: by Ethernet and by UDP, with one hop left too.
    yield named(1, interest("/org/a", 1))
    yield named(2, data("/org/a", fresh=2000))
    yield named(1, link(interest("/org/a", 2), token(b"abc")))
    yield datagram(3, interest("/org/a", 3, hops=1))
    yield named(1, interest("/org/a", 4, hops=0))
    yield named(1, interest("/org/b", 5, hops=1))
    # Fresh for two seconds.
    yield named(1, interest("/org/a", 6, fresh=True))
    yield 2.0
    yield named(1, interest("/org/a", 7, fresh=True))
    yield named(1, interest("/org/a", 8))
    yield named(2, data("/org/a", b"newer", fresh=1000))
    yield named(1, interest("/org/a", 9, fresh=True))
    # Without a period it is stale from the start.
    yield named(1, interest("/org/stale", 10))
    yield named(2, data("/org/stale"))
    yield named(1, interest("/org/stale", 11, fresh=True))
    yield named(1, interest("/org/stale", 12))
    # What begins with a name: the first in canonical order, which puts short components first, and fresh where that is asked.
    for at, (uri, fresh) in enumerate((("/org/p/zz", 9000), ("/org/p/b", 0), ("/org/p/c/d", 9000))):
        yield named(1, interest(uri, 20 + at))
        yield named(2, data(uri, fresh=fresh))
    yield named(1, interest("/org/p", 30, prefix=True))
    yield named(1, interest("/org/p", 31, prefix=True, fresh=True))
    yield named(1, interest("/org/p", 32))
    yield named(1, interest("/org/p/z", 33, prefix=True))
    # The digest of a packet, and of another one.
    whole = data("/org/p/b", fresh=0)
    for nonce, packet in ((40, whole), (41, whole + b"x")):
        digest = tlv(1, hashlib.sha256(packet).digest())
        asked = tlv(7, *(tlv(8, part) for part in (b"org", b"p", b"b")), digest)
        yield named(1, tlv(5, asked, tlv(10, struct.pack("!I", nonce))))
    # One packet of several with a name.
    digest = tlv(1, hashlib.sha256(data("/org/q", b"right")).digest())
    yield named(1, tlv(5, tlv(7, tlv(8, b"org"), tlv(8, b"q"), digest), tlv(10, struct.pack("!I", 42))))
    yield named(2, data("/org/q", b"wrong"))
    yield named(2, data("/org/q", b"right"))
    # Room for six: what was used least recently goes.
    for at in range(4):
        yield named(1, interest(f"/org/n/{at}", 50 + at))
        yield named(2, data(f"/org/n/{at}"))
    yield named(1, interest("/org/a", 60))
    yield named(2, data("/org/a"))
    for at, uri in enumerate(("/org/p/b", "/org/n/0", "/org/p/zz", "/org/n/3")):
        yield named(1, interest(uri, 70 + at))
    # What nobody asked for, what is not to be kept, and a loop: as without a store.
    yield named(2, data("/org/nobody"))
    yield named(1, interest("/org/nobody", 80))
    yield named(1, interest("/org/once", 81))
    yield named(2, link(data("/org/once"), tlv(820, tlv(821, b"\1"))))
    yield named(1, interest("/org/once", 82))
    yield named(2, link(data("/org/once"), tlv(820, tlv(821, b"\2"))))
    yield named(1, interest("/org/once", 83))
    yield datagram(3, interest("/org/once", 81))
    # Too long for one of the faces that ask.
    yield named(1, interest("/org/long", 91))
    yield named(2, data("/org/long", bytes(1300)))
    yield named(1, interest("/org/long", 92))
    yield datagram(3, interest("/org/long", 93))


def command(nonce, verb, *parameters, module=b"rib", kind=b"\0", change=None):
    """A command of NFD's management protocol, as a signed Interest of format 0.3."""
    words = [b"localhop", b"nfd", module, verb, tlv(104, *parameters)]
    parts = b"".join(tlv(8, word) for word in words)
    rest = tlv(36) + tlv(44, tlv(27, kind), tlv(38, struct.pack("!Q", nonce)))
    signature = hashlib.sha256(parts + rest).digest()
    rest += tlv(46, signature if change != "signature" else bytes(32))
    digest = hashlib.sha256(rest if change != "parameters" else b"").digest()
    return tlv(5, tlv(7, parts, tlv(2, digest)), tlv(10, struct.pack("!I", nonce)), rest)


def old_command(nonce, verb, *parameters, change=0):
    """The same as older programs send it: the signature is in the name."""
    words = [b"localhop", b"nfd", b"rib", verb, tlv(104, *parameters), bytes(8), struct.pack("!Q", nonce)]
    words.append(tlv(22, tlv(27, b"\0")))
    parts = b"".join(tlv(8, word) for word in words)
    value = tlv(23, hashlib.sha256(parts + bytes(change)).digest())
    return tlv(5, tlv(7, parts, tlv(8, value)), tlv(10, struct.pack("!I", nonce)))


@timed
def ndn_demand():
    def stranger(host, sport, packet, **fields):
        return datagram(1, packet, sport=sport, src=f"10.0.1.{host}", **fields)

    # Who sends first from any port gets a face, and the answer.
    yield stranger(9, 40000, interest("/org/a", 1))
    yield named(3, data("/org/a"))
    yield stranger(9, 40000, link(interest("/org/b", 2), token(b"tt")))
    yield named(3, data("/org/b"))
    yield datagram(1, interest("/org/c", 3), sport=50000, v=6)
    yield named(3, data("/org/c"))
    # Two are enough. Data, what is no packet, and what is not for us make no face.
    yield stranger(9, 40001, interest("/org/d", 4))
    yield stranger(9, 40001, data("/org/d"))
    yield stranger(9, 40001, b"\5\1")
    yield stranger(9, 40001, interest("/org/d", 5), dport=6364)
    yield stranger(9, 40001, interest("/org/d", 6), to="10.0.1.77")
    yield stranger(9, 40001, interest("/org/d", 7, hops=0))
    # Where strangers are not let in.
    yield datagram(2, interest("/org/d", 8), sport=40000)
    # The neighbour of a face is behind another router now.
    port, frame = stranger(9, 40000, interest("/org/e", 9))
    yield port, edited(bytes(frame), (6, bytes.fromhex("020000000177")))
    yield named(3, data("/org/e"))
    # It registers a prefix, and Interests go there.
    app = (name("/app"),)
    register = command(100, b"register", *app)
    yield stranger(9, 40000, register)
    yield stranger(9, 40000, link(register, token(b"again")))
    yield named(3, interest("/app/1", 10))
    yield stranger(9, 40000, data("/app/1"))
    # Another face is better; both are faces of the prefix.
    yield datagram(1, command(101, b"register", *app, tlv(106, b"\0"), tlv(105, b"\0")), sport=50000, v=6)
    yield stranger(9, 40000, old_command(102, b"register", *app, tlv(106, b"\7"), tlv(108, b"\3"), tlv(111, b"\xff")))
    yield named(3, interest("/app/2", 11))
    yield datagram(1, interest("/app/3", 12), sport=50000, v=6)
    yield datagram(1, command(103, b"unregister", *app), sport=50000, v=6)
    yield named(3, interest("/app/4", 13))
    # For a while.
    yield stranger(9, 40000, command(104, b"register", name("/app/while"), tlv(109, b"\x03\xe8")))
    yield datagram(1, interest("/app/while/1", 14), sport=50000, v=6)
    yield stranger(9, 40000, command(105, b"unregister", *app))
    yield datagram(1, interest("/app/5", 15), sport=50000, v=6)
    yield datagram(1, interest("/app/while/2", 16), sport=50000, v=6)
    yield 1.0
    yield datagram(1, interest("/app/while/3", 17), sport=50000, v=6)
    # What is wrong with commands.
    for at, packet in enumerate((
        command(110, b"register", *app, change="signature"),
        command(111, b"register", *app, change="parameters"),
        command(112, b"register", *app, kind=b"\3", change="signature"),  # by a key that nobody knows
        old_command(113, b"register", *app, change=1),
        old_command(114, b"unregister", *app),
        command(115, b"list"),
        command(116, b"register", *app, module=b"faces"),
        command(117, b"register"),
        command(118, b"register", *app, tlv(105, b"\1")),
        command(119, b"register", name("/a" * 32)),
        command(120, b"register", *app, tlv(106, b"\0\0\0")),
        interest("/localhop/nfd/rib/register", 121),
        interest("/localhop/nfd", 122),
        interest("/localhop/other", 123),
        interest("/localhost/nfd/rib/register", 124),
    )):
        yield stranger(9, 40000, packet)
    # By a face of the file: where it may, and where it may not.
    yield named(3, command(130, b"register", name("/three")))
    yield named(2, command(131, b"register", name("/two")))
    yield stranger(9, 40000, interest("/three/1", 18))
    yield stranger(9, 40000, interest("/two/1", 19))
    # A prefix of the file stays where it leads.
    yield stranger(9, 40000, command(132, b"register", name("/org")))
    yield datagram(1, interest("/org/f", 20), sport=50000, v=6)
    # Faces go after five seconds without a packet, and their prefixes with them: one now, the other later.
    yield 4.5
    yield stranger(9, 40000, interest("/org/g", 21))
    yield stranger(9, 40000, command(133, b"register", name("/late")))
    yield 0.6
    yield stranger(9, 40002, interest("/org/h", 22))
    yield named(3, data("/org/h"))
    yield datagram(1, interest("/org/i", 23), sport=50000, v=6)
    yield named(3, interest("/late/1", 24))
    yield 4.5
    yield named(3, interest("/late/2", 25))
    yield datagram(1, interest("/org/j", 26), sport=50000, v=6)
    yield named(3, data("/org/j"))


@timed
def ndn_malformed():
    good = interest("/org/a", 1)
    yield named(1, b"")
    for cut in (1, 2, 3, 10, len(good) - 1):
        yield named(1, good[:cut])
    yield named(1, bytes([5, 200]) + good[2:])  # a length that lies, outside
    yield named(1, good[:3] + b"\xf0" + good[4:])  # and inside
    yield named(1, b"\x05\xfd\x00" + good[1:])  # not the shortest form
    yield named(1, b"\x05\xff" + b"\xff" * 8 + good[2:])  # 2^64 - 1 bytes
    yield named(1, tlv(9, good[2:]))  # no packet of this type
    yield named(1, tlv(5, tlv(10, b"\0\0\0\1")))  # no name
    yield named(1, interest("/", 2))  # of no components
    yield named(1, tlv(6, tlv(7), tlv(21, b"x"), tlv(22, tlv(27, b"\0")), tlv(23, bytes(32))))
    yield named(1, tlv(5, name("/org/a"), tlv(10, b"\1\2\3")))  # a nonce of three bytes
    yield named(1, tlv(5, name("/org/a"), tlv(10, bytes(4)), tlv(34, b"")))  # a hop limit of none
    yield named(1, tlv(5, name("/org/a"), tlv(10, b"\0\0\0\3"), tlv(41, b"")))  # critical and unknown
    yield named(1, tlv(5, name("/org/a"), tlv(10, b"\0\0\0\4"), tlv(254, b"x")))  # unknown, to be skipped
    yield named(1, tlv(5, tlv(7, tlv(8, b"org"), tlv(0, b"")), tlv(10, bytes(4))))  # a component of type 0
    yield named(1, link(good, token(bytes(33))))  # too long a token
    yield named(1, link(good, tlv(99, b"")))  # an unknown field
    yield named(1, link(good, tlv(801, b"")))  # one that is ignored
    yield named(1, link(interest("/org/b", 5) + b"\0"))  # more in the fragment
    yield named(1, link(link(good)))
    yield named(2, link(data("/org/a"), nack(50)))  # a Nack of Data
    yield named(2, tlv(100, nack(50)))  # of nothing
    # Many components and long ones, as far as a frame holds them.
    yield named(1, tlv(5, tlv(7, *[tlv(8, b"")] * 700), tlv(10, b"\0\0\0\6")))
    yield named(1, tlv(5, tlv(7, tlv(8, b"org"), *[tlv(8, b"")] * 700), tlv(10, b"\0\0\0\7")))
    yield named(2, tlv(6, tlv(7, tlv(8, b"org"), *[tlv(8, b"")] * 700), tlv(20), tlv(22, tlv(27, b"\0")), tlv(23)))
    yield named(1, tlv(5, tlv(7, tlv(8, b"org"), tlv(8, b"x" * 1400)), tlv(10, b"\0\0\0\x08")))
    yield named(1, tlv(5, tlv(7, tlv(8, b"org"), *[tlv(8, b"")] * 10_000), tlv(10, b"\0\0\0\x09")))
    yield named(1, tlv(5, tlv(7, tlv(8, b"org"), tlv(8, b"x" * 8000)), tlv(10, b"\0\0\0\x0a")))
    yield named(1, interest("/org/z", 11))
    yield named(2, data("/org/z"))


def sender_checksums():
    """As captured on the sender, whose network card fills in checksums: zeros in IPv4's, the pseudo-header's in TCP's."""

    def unfinished(packet):
        return edited(packet, (24, b"\0\0"), (50 if packet.haslayer(TCP) else 40, b"\x12\x34"))

    yield unfinished(ether() / v4() / udp())
    yield unfinished(ether() / v4() / TCP(sport=4000, dport=80, flags="S"))
    yield ether() / v4() / udp()  # a right one among them
    yield edited(ether() / v4() / udp(), (24, b"\xde\xad"))
    yield edited(ether() / v4() / udp(), (24, b"\xff\xff"))
    yield unfinished(ether() / v4(ttl=1) / udp())  # an error about it, as about any other
    yield unfinished(ether() / v4(ttl=2) / udp())
    yield unfinished(ether() / v4("192.0.2.1") / udp())  # no route
    yield unfinished(ether() / v4(id=7) / udp(1400))  # fragments are new packets: theirs are right
    yield unfinished(ether() / v4(id=7, flags="DF") / udp(1400))
    yield edited(ether() / v4(options=[IPOption_NOP()]) / udp(), (24, b"\0\0"))
    yield unfinished(ether() / v4(src="127.0.0.1") / udp())  # what else is wrong is still found
    yield unfinished(ether() / v4("240.0.0.1") / udp())
    yield edited(ether() / v4(frag=0x1FFF, proto=17) / Raw(bytes(64)), (24, b"\0\0"))
    yield edited(ether() / v4(frag=100) / b"", (24, b"\0\0"))
    yield edited(ether() / v4() / udp(), (14, b"\x44"), (24, b"\0\0"))
    tagged = bytes(ether() / Dot1Q(vlan=7) / v4(src="10.0.7.2") / udp())
    yield edited(tagged, (28, b"\0\0"))
    yield ether() / v6() / udp()
    yield edited(ether() / v6() / udp(), (60, b"\x12\x34"))  # nobody on the way looks at it


CASES = [
    bad_ipv4, bad_ttl, bad_addresses, routes, fragmentation, extension_headers, vlans, reverse_path, own_source, icmp_rate,
    arp, ecmp, corrupt_capture, not_ethernet, sender_checksums,
]


# --- firewall -------------------------------------------------------------------------------------------------


def tcp(dport, sport=4000, flags="S", **fields):
    return TCP(dport=dport, sport=sport, flags=flags, **fields)


def filtered():
    """Packets for the rules of firewall/config.toml, of either family, by what a rule may look at."""
    for ip in (v4, v6):
        yield ip() / tcp(22)  # rejected by a reset
        yield ip() / tcp(22, flags="A", seq=7, ack=9) / b"data"
        yield ip() / tcp(22, flags="R")  # never a reset about a reset
        yield ip() / UDP(sport=4000, dport=22) / b"other protocol"
        yield ip() / UDP(sport=4000, dport=53) / b"rejected by an error"
        yield ip() / UDP(sport=53, dport=4000) / b"from and to are two things"
        for port in (0, 1, 1023, 1024, 8079, 8080, 8090, 8091, 65535):
            yield ip() / tcp(port)
            yield ip() / UDP(sport=port, dport=5060) / b"call"
        for flags in ("S", "SA", "A", "FA", "R", "", "SECP"):
            yield ip() / tcp(443, flags=flags)
        yield ip() / tcp(9100, sport=9100) / b"sent to a port as it is"
        yield ip() / UDP(sport=1, dport=7000) / b"marked"
        yield ip() / UDP(sport=1, dport=7001) / b"marked and copied"
        yield ip() / UDP(sport=1, dport=7002) / b"copied and dropped"
    yield v4(tos=0xB9) / UDP(sport=1, dport=7000) / b"keeps its congestion bits"
    yield v6(tc=0xB9, fl=0x12345) / UDP(sport=1, dport=7000) / b"and its label"
    for kind, code in ((8, 0), (0, 0), (3, 1), (3, 4), (10, 0)):
        yield v4() / ICMP(type=kind, code=code) / bytes(8 + 28)
    for kind, code in ((128, 0), (129, 0), (1, 4), (1, 3)):
        yield v6() / ICMPv6EchoRequest(type=kind, code=code, data=bytes(48))
    # Addresses: the longest prefix is not the best rule, the first one is.
    for last in (1, 2, 3, 200):
        yield v4(f"10.0.2.{last}", src="10.0.1.66") / UDP(sport=9, dport=9) / b"x"
        yield v6(f"fd00:2::{last:x}", src="fd00:1::66") / UDP(sport=9, dport=9) / b"x"
    # Fragments: the first has ports, the others match rules that ask for none.
    yield v4(flags="MF", id=1) / tcp(8080) / bytes(4)
    yield v4(frag=3, id=1, proto=6) / bytes(40)
    yield v4(frag=3, id=2, proto=17) / Raw(b"\0\x35\0\x35" + bytes(28))  # what looks like ports is none
    yield v4(flags="MF", frag=1, proto=6) / bytes(40)  # could write over the flags of a first one
    yield v4(flags="MF", frag=2, proto=6) / bytes(40)
    yield v4(frag=1, proto=17) / bytes(40)
    yield v4(flags="MF", proto=6) / Raw(bytes(tcp(8080))[:16])  # ends within the header
    yield v4(proto=6) / Raw(bytes(tcp(8080))[:19])
    yield v4(proto=17) / Raw(b"\0\x35\0\x35")
    yield v4(proto=1) / Raw(b"\x08\0")
    yield v4(proto=50) / Raw(b"\0\0\0\1")  # ESP has no ports, whatever is missing
    yield v4(proto=132) / Raw(struct.pack("!HHII", 9, 5060, 0, 0) + bytes(4))
    yield v4(proto=47) / Raw(bytes(12))
    yield v6() / IPv6ExtHdrFragment(id=9, m=1) / Raw(bytes(tcp(8080)) + bytes(4))
    yield v6() / IPv6ExtHdrFragment(id=9, offset=4, nh=17) / Raw(b"\0\x35\0\x35" + bytes(28))
    yield v6() / IPv6ExtHdrFragment(id=9, offset=1, m=1, nh=6) / Raw(bytes(40))
    yield v6() / IPv6ExtHdrFragment(id=9) / tcp(22)  # fragments nothing
    yield v6() / IPv6ExtHdrHopByHop() / IPv6ExtHdrDestOpt() / tcp(22)
    yield v6() / IPv6ExtHdrDestOpt() / UDP(sport=1, dport=53) / b"x"
    yield v4(options=[IPOption_NOP()] * 4) / tcp(22)
    yield v4(ttl=1) / tcp(22)  # the firewall comes before the TTL
    yield v4(ttl=1) / tcp(443)
    yield v4("10.0.1.1") / UDP(sport=1, dport=9) / b"for the router itself"
    yield v4("10.0.1.1") / UDP(sport=1, dport=53) / b"and rejected there"
    yield v4("192.0.2.1") / UDP(sport=1, dport=5555) / b"no route, and no rule"
    yield v4(src="10.0.1.2") / UDP(sport=1, dport=53) / bytes(1400)  # what is quoted has a limit


def firewall():
    """(port, frame): a router with rules of both families."""
    for packet in filtered():
        yield "lan", bytes(ether() / packet)
    yield "lan", bytes(ether() / Dot1Q(vlan=10) / v4(src="10.0.10.2") / tcp(8443))  # by the interface
    yield "lan", bytes(ether() / v4() / tcp(8443))
    yield "lan", bytes(ether() / Dot1Q(vlan=10) / v4(src="10.0.10.2") / UDP(sport=1, dport=53) / b"x")
    yield "lan", bytes(ether() / Dot1Q(vlan=10) / v4(src="10.0.10.2") / tcp(9100, sport=9100))
    yield "wan", bytes(ether("02:00:00:00:02:01") / v4("10.0.1.2", src="10.0.2.2") / tcp(4000, sport=22, flags="SA"))
    yield "wan", bytes(ether("02:00:00:00:02:01") / v4("10.0.1.2", src="10.0.2.2") / tcp(8443))
    yield "lan", bytes(ether(BROADCAST) / ARP(op=1, hwsrc=HOST, psrc="10.0.1.2", pdst="10.0.1.99"))  # not judged
    broken = bytes(ether() / v4() / tcp(22))
    yield "lan", edited(broken, (24, b"\xde\xad"))
    for number in range(600):  # more than a chunk, of many rules in turn
        yield "lan", bytes(ether() / v4(src=f"10.0.1.{2 + number % 90}") / tcp(8080 + number % 16))


def firewall_switch():
    """(port, frame): the same rules in a switch."""
    to_b, to_a = Ether(src=station(1), dst=station(2)), Ether(src=station(2), dst=station(1))
    yield "a", bytes(to_b / v4() / UDP(sport=9, dport=9) / b"1 is learned")
    yield "b", bytes(to_a / v4("10.0.1.2", src="10.0.2.2") / UDP(sport=9, dport=9) / b"and 2")
    yield "a", bytes(Ether(src=station(7), dst=station(2)) / v4() / UDP(sport=1, dport=7002) / b"7 is not: dropped")
    yield "b", bytes(Ether(src=station(2), dst=station(7)) / v4() / UDP(sport=9, dport=9) / b"flooded")
    for packet in filtered():
        yield "a", bytes(to_b / packet)
    yield "t", bytes(Ether(src=station(3), dst=station(2)) / Dot1Q(vlan=1, prio=3) / v4() / tcp(22))
    yield "t", bytes(Ether(src=station(3), dst=station(2)) / Dot1Q(vlan=1, prio=3) / v4() / UDP(sport=1, dport=53))
    yield "t", bytes(Ether(src=station(3), dst=station(2)) / Dot1Q(vlan=1, prio=3) / v4() / UDP(sport=1, dport=7001))
    yield "t", bytes(Ether(src=station(3), dst=station(2)) / Dot1Q(vlan=1) / v4() / UDP(sport=9, dport=9) / b"x")
    yield "t", bytes(Ether(src=station(3), dst=BROADCAST) / Dot1Q(vlan=1) / v4("255.255.255.255") / UDP(sport=68, dport=53))
    yield "b", bytes(to_a / v4("10.0.1.2", src="10.0.2.2") / tcp(8443))  # another interface
    yield "a", bytes(to_b / v4() / tcp(8443))
    yield "a", bytes(Ether(src=station(1), dst=BROADCAST) / v4("255.255.255.255", src="0.0.0.0") / UDP(sport=68, dport=67))
    yield "a", bytes(Ether(src=station(1), dst=BROADCAST) / ARP(op=1, psrc="10.0.1.2", pdst="10.0.2.2"))
    yield "a", frame(1, 2)  # not IP
    broken = bytes(to_b / v4() / tcp(443))
    yield "a", edited(broken, (24, b"\xde\xad"))
    yield "a", broken[:30]
    yield "a", edited(broken, (14, b"\x65"))
    yield "a", bytes(to_b / Dot1AD(vlan=2) / Dot1AD(vlan=3) / Dot1AD(vlan=4) / v4() / tcp(443))  # nobody looks so deep
    yield "a", bytes(to_b / Dot1AD(vlan=2) / v4() / tcp(22))
    for number in range(40):  # errors have a limit, resets have none
        yield "a", bytes(to_b / v4() / UDP(sport=1, dport=53) / b"x")
        yield "a", bytes(to_b / v4() / tcp(22))


def firewall_wire():
    """(port, frame): the same between two ports, and what no switch would forward."""
    yield from (event for event in firewall_switch() if event[0] in "ab")
    yield "a", frame(1, "01:80:c2:00:00:0e")
    yield "b", frame("03:00:00:00:00:01", 1)
    yield "b", frame(2, 2, tag=7)


def whole(sport, first=1_000, second=500_000, end="fin", request=b"request", answer=b"answer"):
    """(whether it is of the client, TCP): the segments of a connection, which `end`s by FIN, by a reset, or not at all."""
    def segment(is_client, flags, seq, ack, data=b""):
        ends = (80, sport) if is_client else (sport, 80)
        return is_client, tcp(*ends, flags=flags, seq=seq, ack=ack) / data
    sent, said = first + 1 + len(request), second + 1 + len(answer)
    yield segment(True, "S", first, 0)
    yield segment(False, "SA", second, first + 1)
    yield segment(True, "A", first + 1, second + 1)
    yield segment(True, "PA", first + 1, second + 1, request)
    yield segment(False, "PA", second + 1, sent, answer)
    if end == "fin":
        yield segment(True, "FA", sent, said)
        yield segment(False, "FA", said, sent + 1)
        yield segment(True, "A", sent + 1, said + 1)
    elif end == "reset":
        yield segment(False, "R", said, 0)


def many_closed():
    """(whether it is of the client, IP payload): an open connection, then many that end, queries with answers, and the first one again."""
    yield from whole(3999, end="")
    for number in range(60):
        yield from whole(4000 + number, first=1_000 + number, end="fin" if number % 3 else "reset")
    for number in range(60):
        yield True, UDP(sport=5000 + number, dport=53) / b"query"
        yield False, UDP(sport=53, dport=5000 + number) / b"answer"
    yield from whole(4100)
    yield True, tcp(80, 3999, flags="PA", seq=1_008, ack=500_007) / b"more"
    yield False, tcp(3999, 80, flags="A", seq=500_007, ack=1_012)


def ids_full():
    """(port, frame): more open connections than the flow table has places, and datagrams."""
    for number in range(20):
        for is_client, upper in whole(4000 + number, end=""):
            yield "a" if is_client else "b", bytes(ether() / (v4() if is_client else v4("10.0.1.2", src="10.0.2.2")) / upper)
    yield "a", bytes(ether() / v4() / UDP(sport=5000, dport=53) / b"query")


def ids_full_drop():
    """(port, frame): the same."""
    yield from ids_full()


def firewall_full():
    """(port, frame): more connections than the table has places, nearly all of which are closed."""
    for is_client, upper in many_closed():
        ip = v4() if is_client else v4("10.0.1.2", src="10.0.2.2")
        yield "a" if is_client else "b", bytes(ether() / ip / upper)


def nat_full():
    """(port, frame): the same through a masquerade."""
    wan_ether = Ether(src="02:00:00:00:02:fe", dst="02:00:00:00:02:01")
    for is_client, upper in many_closed():
        if is_client:
            yield "lan", bytes(ether() / v4("198.51.100.9", src="192.168.1.7") / upper)
        else:
            yield "wan", bytes(wan_ether / v4("203.0.113.1", src="198.51.100.9") / upper)


def reused():
    """(whether it is of the client, TCP): connections that stay open, and new ones of the same ports: ahead, within the window, behind, challenged."""
    for number, (first, second) in enumerate(((5_000_000, 9_000_000), (1_500, 500_100), (4_000_000_000, 400_000_000), (900, 499_000))):
        sport = 4000 + number
        yield from whole(sport, end="")
        if number == 3:  # the other end still has the connection, and challenges SYN
            yield True, tcp(80, sport, flags="S", seq=first)
            yield False, tcp(sport, 80, flags="A", seq=500_007, ack=1_008)
            yield True, tcp(80, sport, flags="R", seq=1_008)
        yield from whole(sport, first=first, second=second, request=b"request after a restart", answer=b"other answer")
    # A SYN that nobody answers, and the connection goes on.
    yield from whole(4100, end="")
    yield True, tcp(80, 4100, flags="S", seq=7_000_000)
    yield False, tcp(4100, 80, flags="A", seq=500_007, ack=1_008)
    yield True, tcp(80, 4100, flags="PA", seq=1_008, ack=500_007) / b" goes on"
    yield False, tcp(4100, 80, flags="A", seq=500_007, ack=1_016)


def streams_reuse():
    """(port, frame): ports that are used again while the connection before is open."""
    for is_client, upper in reused():
        yield "in", bytes(ether() / (v4() if is_client else v4("10.0.1.2", src="10.0.2.2")) / upper)


def modules_waiting():
    """(port, frame): many flows that begin, for chunks that are divided, of one datagram each."""
    for number in range(400):
        yield "a", bytes(ether() / v4() / UDP(sport=1000 + number % 50, dport=2000) / bytes(20))


def modules_stream_drop():
    """(port, frame): segments with bytes that modules drop (X: the first, Y: the second), and what is sent again of them."""
    def frame(side, flags, at, data=b""):
        ends = (ether(), v4()) if side == "c" else (Ether(src=ROUTER, dst=HOST), v4("10.0.1.2", src="10.0.2.2"))
        sport, dport, first, ack = (4000, 80, 0xFFFFFFF8, 1000) if side == "c" else (80, 4000, 1000, 0xFFFFFFF8)
        seq = (first + at) & 0xFFFFFFFF
        upper = TCP(sport=sport, dport=dport, seq=seq, ack=0 if flags == "S" else ack, flags=flags)
        return ("a" if side == "c" else "b"), bytes(ends[0] / ends[1] / upper / data)

    yield frame("c", "S", -1)
    yield frame("s", "SA", -1)
    yield frame("c", "A", 0)
    for side, at, data in [
        ("c", 0, b"aaaa"), ("c", 4, b"bbXb"), ("c", 4, b"bbXb"), ("c", 2, b"aabbXb"), ("c", 8, b"cccc"), ("c", 6, b"Xbcccc"),
        ("c", 8, b"cccc"), ("c", 0, b"aaaa"), ("c", 12, b"dYdd"), ("c", 12, b"dYdd"), ("c", 10, b"ccdYddee"), ("c", 16, b"ee"),
        ("c", 20, b"gg"), ("c", 18, b"fX"), ("c", 20, b"gg"), ("c", 22, b"hh"), ("c", 18, b"f"),
        ("s", 0, b"ssXs"), ("s", 0, b"ss"), ("s", 4, b"tt"), ("s", 4, b"tt"),
    ]:
        yield frame(side, "PA", at, data)


def streams_one_sided():
    """(port, frame): ports that are used four times, in a capture of the client only, of the server only, and without SYN-ACKs."""
    for number in range(4):
        for kind in range(3):
            sport = 4000 + 100 * kind
            for is_client, upper in whole(sport, first=1_000_000_007 * number + 5, second=2_500_000_001 * number % 2**32 + 77,
                                          end="" if number % 2 else "fin", request=b"request %d" % number):
                if kind == (1 if is_client else 0) or kind == 2 and upper.flags == "SA":
                    continue
                yield "in", bytes(ether() / (v4() if is_client else v4("10.0.1.2", src="10.0.2.2")) / upper)


def firewall_reuse():
    """(port, frame): the same through a firewall, and a SYN of the server."""
    for is_client, upper in reused():
        ip = v4() if is_client else v4("10.0.1.2", src="10.0.2.2")
        yield "a" if is_client else "b", bytes(ether() / ip / upper)
    yield "b", bytes(ether() / v4("10.0.1.2", src="10.0.2.2") / tcp(4100, 80, flags="S", seq=3_000_000))


def firewall_classbench():
    """(port, frame): headers of classify/trace.txt, for the rules beside it."""
    for line in (HERE / "classify" / "trace.txt").read_text().splitlines():
        src, dst, sport, dport, proto = map(int, line.split()[:5])
        ip = IP(src=socket.inet_ntoa(struct.pack("!I", src)), dst=socket.inet_ntoa(struct.pack("!I", dst)), proto=proto)
        ports = struct.pack("!HH", sport, dport)
        upper = ports + struct.pack("!IIBBHHH", 0, 0, 0x50, 2, 0, 0, 0) if proto == 6 else ports + bytes(16)
        yield "lan", bytes(ether() / ip / Raw(upper))


def nat():
    """(port, frame): a home router: masquerade, a port forward, a static address, hairpin, fragments, ICMP errors."""
    outside, server = "203.0.113.1", "198.51.100.9"
    lan = lambda ip, host=7, **f: ("lan", bytes(ether() / v4(server, src=f"192.168.1.{host}", **f) / ip))
    wan_ether = lambda: Ether(src="02:00:00:00:02:fe", dst="02:00:00:00:02:01")
    wan = lambda ip, to=outside, src=server, **f: ("wan", bytes(wan_ether() / v4(to, src=src, **f) / ip))
    numbers = iter(range(1, 1000))
    tcp = lambda sport, dport, flags="A": TCP(sport=sport, dport=dport, seq=next(numbers), flags=flags)
    yield lan(tcp(40000, 80, "S"))
    yield wan(tcp(80, 40000, "SA"))
    yield lan(tcp(40000, 80) / b"GET / HTTP/1.0\r\n\r\n")
    yield lan(tcp(40000, 80, "S"), host=8)  # the same port of another host
    yield lan(tcp(40000, 443, "S"), host=8)  # which keeps its new port for another remote end
    yield lan(tcp(80, 25, "S"))  # below the range
    yield lan(UDP(sport=5000, dport=53) / b"query")
    yield wan(UDP(sport=53, dport=5000) / b"answer")
    yield wan(UDP(sport=53, dport=5001) / b"nobody asked")
    yield wan(UDP(sport=54, dport=5000) / b"another port")
    yield lan(UDP(sport=5002, dport=53, chksum=0) / b"no checksum")
    yield wan(UDP(sport=53, dport=5002, chksum=0) / b"no checksum")
    yield lan(ICMP(id=77, seq=1) / bytes(56))
    yield wan(ICMP(type=0, id=77, seq=1) / bytes(56))
    yield lan(ICMP(id=77, seq=2) / bytes(56), host=8)
    yield lan(ICMP(type=13, id=9) / b"")
    # Errors of a router outside, about what it saw; with and without a full header of TCP.
    seen = lambda ip, src=outside: IP(bytes(v4(server, src=src, ttl=1) / ip))
    yield wan(ICMP(type=11) / seen(UDP(sport=5000, dport=53) / b"query"), src="192.0.2.1")
    yield wan(ICMP(type=3, code=4, nexthopmtu=1400) / Raw(bytes(seen(tcp(40000, 80) / bytes(600)))[:28]), src="192.0.2.1")
    yield wan(ICMP(type=3, code=3) / seen(ICMP(id=77, seq=1) / bytes(56)))
    yield wan(ICMP(type=11) / seen(UDP(sport=6666, dport=53) / b"no session"), src="192.0.2.1")
    # An error of an inside host about an answer.
    back = lambda ip: IP(bytes(v4("192.168.1.7", src=server) / ip))
    yield lan(ICMP(type=3, code=3) / back(UDP(sport=53, dport=5000) / b"answer"))
    # The port forward, and its server by the outside address from the inside.
    yield wan(tcp(5555, 8080, "S"))
    yield lan(tcp(80, 5555, "SA"), host=9)
    yield wan(tcp(5555, 8080))
    yield wan(tcp(5556, 8081, "S"))  # another port
    hairpin = v4(outside, src="192.168.1.7")
    yield "lan", bytes(ether() / hairpin / tcp(41000, 8080, "S"))
    yield "lan", bytes(ether() / v4(outside, src="192.168.1.9") / tcp(80, 41000, "SA"))
    yield "lan", bytes(ether() / hairpin / tcp(41000, 8080))
    # The static address, both ways, ports as they are.
    yield wan(tcp(6000, 22, "S"), to="203.0.113.20")
    yield lan(tcp(22, 6000, "SA"), host=20)
    yield lan(tcp(300, 80, "S"), host=20)
    yield wan(tcp(80, 300, "SA"), to="203.0.113.20")
    # Other protocols have addresses alone.
    yield lan(Raw(bytes(8)), proto=47)
    yield wan(Raw(bytes(8)), proto=47)
    # Fragments, the last one first; what comes back is fragmented, too.
    whole = bytes(UDP(sport=5000, dport=53) / bytes(i & 255 for i in range(2000)))
    pseudo = socket.inet_aton("192.168.1.7") + socket.inet_aton(server) + struct.pack("!HH", 17, len(whole))
    whole = whole[:6] + struct.pack("!H", checksum(pseudo + whole[:6] + b"\0\0" + whole[8:])) + whole[8:]
    yield lan(Raw(whole[1480:]), proto=17, frag=185, id=7)
    yield lan(Raw(whole[:1480]), proto=17, flags="MF", id=7)
    # Errors that the router sends: TTL, and a link that is too narrow, inside and outside.
    yield lan(UDP(sport=5000, dport=53) / b"query", ttl=1)
    yield wan(UDP(sport=53, dport=5000) / b"answer", ttl=1)
    yield wan(UDP(sport=53, dport=5000) / bytes(1400), flags="DF")
    yield wan(tcp(5555, 8080) / bytes(1400), flags="DF")
    # To the router itself, and between subnets of the inside: as they are.
    yield "lan", bytes(ether() / v4("192.168.2.5", src="192.168.1.7") / UDP(sport=1, dport=2) / b"inside")
    yield "lan", bytes(ether() / v4("192.168.1.1", src="192.168.1.7") / ICMP(id=3))
    # After the time of UDP, an answer is late.
    yield "wan", 400, wan(UDP(sport=53, dport=5000) / b"late")[1]


def nat64_firewall():
    """(port, frame): IPv6 hosts and IPv4 servers through a firewall on states: one flow has one family in both directions."""
    server, server64, pool, host = "198.51.100.9", "64:ff9b::c633:6409", "203.0.113.64", "2001:db8:1::7"
    lan = lambda ip, to=server64, **f: ("lan", bytes(ether() / v6(to, src=host, **f) / ip))
    wan_ether = lambda: Ether(src="02:00:00:00:02:fe", dst="02:00:00:00:02:01")
    wan = lambda ip, src=server, **f: ("wan", bytes(wan_ether() / v4(pool, src=src, **f) / ip))
    bytes_of = lambda count: bytes(i & 255 for i in range(count))
    # Before anything: nobody asked for these.
    yield wan(UDP(sport=53, dport=5000) / b"unasked")
    yield wan(TCP(sport=80, dport=5001, seq=1, ack=2, flags="SA"))
    # Sessions of UDP, TCP and ICMP, and their answers; those of UDP without a checksum, too.
    yield lan(UDP(sport=5000, dport=53) / b"query")
    yield lan(UDP(sport=5000, dport=53) / b"query again")
    yield wan(UDP(sport=53, dport=5000) / b"answer")
    yield wan(UDP(sport=53, dport=5000, chksum=0) / b"no checksum")
    yield lan(UDP(sport=5000, dport=53) / b"third query")
    yield lan(TCP(sport=5001, dport=80, seq=1, flags="S"), tc=0xB8)
    yield wan(TCP(sport=80, dport=5001, seq=1, ack=2, flags="SA"), tos=0xB8)
    yield lan(TCP(sport=5001, dport=80, seq=2, ack=2, flags="A"))
    yield lan(TCP(sport=5001, dport=80, seq=2, ack=2, flags="PA") / b"GET / HTTP/1.0\r\n\r\n")
    yield wan(TCP(sport=80, dport=5001, seq=2, ack=20, flags="PA") / b"HTTP/1.0 200 OK\r\n\r\n")
    yield lan(TCP(sport=5001, dport=80, seq=20, ack=21, flags="FA"))
    yield wan(TCP(sport=80, dport=5001, seq=21, ack=21, flags="FA"))
    yield lan(TCP(sport=5001, dport=80, seq=21, ack=22, flags="A"))
    yield lan(ICMPv6EchoRequest(id=77, seq=1, data=bytes_of(16)))
    yield wan(ICMP(type=0, id=77, seq=1) / bytes_of(16))
    # Errors about packets of a flow, from outside and from the host; from another one about what nobody sent.
    sent = v4(server, src=pool) / UDP(sport=5000, dport=53) / b"query"
    yield wan(ICMP(type=3, code=3) / bytes(sent), src="198.51.100.1")
    got = v6(host, src=server64) / UDP(sport=53, dport=5000) / b"answer"
    yield lan(ICMPv6DestUnreach(code=4) / bytes(got))
    other = v4(server, src=pool) / UDP(sport=5999, dport=53) / b"query"
    yield wan(ICMP(type=3, code=3) / bytes(other), src="198.51.100.1")
    # Fragments both ways, the last one first.
    for port, (src, dst) in (("lan", (5000, 53)), ("wan", (53, 5000))):
        body = bytes_of(2000)
        if port == "lan":
            whole = bytes(v6(server64, src=host) / UDP(sport=src, dport=dst) / body)[40:]
            for at in (1200, 0):
                piece = whole[at : at + 1200]
                yield lan(IPv6ExtHdrFragment(nh=17, offset=at // 8, m=int(at == 0), id=9) / piece, nh=44)
        else:
            whole = bytes(v4(pool, src=server) / UDP(sport=src, dport=dst) / body)[20:]
            for at in (1200, 0):
                more = {"flags": "MF"} if at == 0 else {}
                yield wan(Raw(whole[at : at + 1200]), proto=17, frag=at // 8, id=7, **more)
    # What the rules reject and drop begins no session: its ports are free for others.
    yield lan(TCP(sport=5002, dport=23, seq=1, flags="S"))
    yield lan(UDP(sport=5002, dport=23) / b"rejected")
    yield lan(UDP(sport=5003, dport=69) / b"dropped")
    yield wan(UDP(sport=69, dport=5003) / b"no session")
    # TTLs that run out, of a session and before there is one; nowhere to go.
    yield lan(UDP(sport=5000, dport=53) / b"near", hlim=1)
    yield lan(UDP(sport=5004, dport=53) / b"near", hlim=1)
    yield lan(UDP(sport=5005, dport=53) / b"no route", to="64:ff9b::c000:201")
    # Too long for the way out.
    yield lan(UDP(sport=5000, dport=53) / bytes_of(1440))
    # IPv6 that no rule translates goes its own way.
    yield lan(UDP(sport=5006, dport=53) / b"native", to="2001:db8:2::9")
    # To no IPv4 host, to the router itself, from a translated address; a reset of no session.
    yield lan(UDP(sport=5007, dport=53) / b"loopback", to="64:ff9b::7f00:1")
    yield lan(UDP(sport=5007, dport=53) / b"private", to="64:ff9b::a00:1")
    yield lan(UDP(sport=5007, dport=53) / b"own", to="64:ff9b::cb00:7101")
    yield lan(UDP(sport=5007, dport=53) / b"pool", to="64:ff9b::cb00:7140")
    yield "lan", bytes(ether() / v6(server64, src="64:ff9b::c633:6407") / UDP(sport=5007, dport=53) / b"loop")
    yield lan(TCP(sport=5008, dport=80, seq=1, ack=2, flags="RA"))


def nat_strangers():
    """(port, frame): what translation refuses. Outside addresses are in no prefix of a port."""
    wan_ether = lambda: Ether(src="02:00:00:00:02:fe", dst="02:00:00:00:02:01")
    wan = lambda ip, to, src="198.51.100.1": ("wan", bytes(wan_ether() / v4(to, src=src) / ip))
    # Errors about what nobody sent, and such whose quoted packet cannot be read; those of other addresses go on.
    for pool in ("192.0.2.1", "192.0.2.17", "192.0.2.32", "192.0.2.40", "192.0.2.48", "198.51.100.77", "198.51.100.78"):
        sent = v4("198.51.100.9", src=pool) / UDP(sport=5999, dport=53) / b"query"
        yield wan(ICMP(type=11, code=0) / bytes(sent), pool)
        yield wan(ICMP(type=3, code=3) / bytes(sent)[:24], pool)
        yield wan(ICMP(type=3, code=1) / b"no packet", pool)
        # A redirect is no error, and no query.
        yield wan(ICMP(type=5, gw="203.0.113.9") / bytes(sent), pool)
    # IPv6 errors about answers that no session brought.
    host, server64 = "2001:db8:1::7", "64:ff9b::c633:6409"
    lan = lambda ip, to=server64, src=host: ("lan", bytes(ether() / v6(to, src=src) / ip))
    got = v6(host, src=server64) / UDP(sport=53, dport=5999) / b"answer"
    yield lan(ICMPv6DestUnreach(code=4) / bytes(got))
    yield lan(ICMPv6TimeExceeded() / bytes(got)[:44])
    # An error about a packet of a session comes through.
    yield lan(UDP(sport=5000, dport=53) / b"query")
    sent = v4("198.51.100.9", src="192.0.2.1") / UDP(sport=5000, dport=53) / b"query"
    yield wan(ICMP(type=3, code=3) / bytes(sent), "192.0.2.1")
    # NAT64 to no host: this network, loopback, link-local, multicast, reserved, broadcast; and to what is not global.
    inside = lambda prefix, address: prefix + socket.inet_aton(address).hex(":", 2)
    hosts = ("0.0.0.0", "0.1.2.3", "127.0.0.1", "169.254.1.1", "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255")
    private = ("10.0.0.1", "100.64.0.1", "172.31.0.1", "192.0.0.8", "192.168.2.1", "198.19.0.1")
    for address in hosts + private + ("9.255.255.255", "11.0.0.1", "100.128.0.1", "172.32.0.1", "223.255.255.255"):
        for prefix in ("64:ff9b::", "2001:db8:64::"):
            yield lan(UDP(sport=6000, dport=53) / b"query", to=inside(prefix, address))
    # To the router's own addresses and to the translator's.
    for address in ("192.168.1.1", "192.168.3.1", "203.0.113.1", "192.0.2.1", "192.0.2.17", "192.0.2.32", "192.0.2.40", "192.0.2.48"):
        yield lan(UDP(sport=6001, dport=53) / b"query", to=inside("2001:db8:64::", address))
        yield lan(ICMPv6EchoRequest(id=6001, seq=1), to=inside("2001:db8:64::", address))
    # From a translated address.
    yield lan(UDP(sport=6002, dport=53) / b"query", src="64:ff9b::c633:6407")
    yield lan(UDP(sport=6002, dport=53) / b"query", src="2001:db8:64::c633:6407")
    # Segments that begin no session: resets, and such without flags; the others do, and are reset later.
    four = lambda ip, src: ("lan", bytes(ether() / v4("198.51.100.9", src=src) / ip))
    for number, flags in enumerate(("R", "RA", "", "P", "F", "S", "A", "SA", "FA", "PA")):
        for src in ("192.168.1.7", "192.168.1.70", "192.168.1.20"):
            yield four(TCP(sport=7000 + number, dport=80, flags=flags), src)
        yield lan(TCP(sport=7000 + number, dport=80, flags=flags))
        yield wan(TCP(sport=7000 + number, dport=80, flags=flags), "192.0.2.48")
    yield four(TCP(sport=7005, dport=80, flags="R"), "192.168.1.7")
    yield lan(TCP(sport=7005, dport=80, flags="R"))


def nat64_hairpin():
    """(port, frame): IPv6 hosts that reach each other by outside addresses, and the router by its IPv4 addresses."""
    one, two = "2001:db8:1::a", "2001:db8:1::b"
    prefix, other = "64:ff9b::", "2001:db8:64::"
    inside = lambda address, prefix=prefix: prefix + socket.inet_aton(address).hex(":", 2)
    pool, own, server = "192.0.2.1", "203.0.113.1", "198.51.100.9"
    lan = lambda ip, src, to, **f: ("lan", bytes(ether() / v6(to, src=src, **f) / ip))
    wan_ether = lambda: Ether(src="02:00:00:00:02:fe", dst="02:00:00:00:02:01")
    # Nobody has the port yet; then the other host gets it.
    yield lan(UDP(sport=4000, dport=5000) / b"too early", one, inside(pool))
    yield lan(UDP(sport=5000, dport=53) / b"query of two", two, inside(server))
    yield lan(UDP(sport=4000, dport=5000) / b"one to two", one, inside(pool))
    yield lan(UDP(sport=5000, dport=4000) / b"two to one", two, inside(pool))
    yield lan(UDP(sport=4000, dport=5000) / b"one to two again", one, inside(pool))
    yield lan(UDP(sport=5000, dport=4000) / b"two to one again", two, inside(pool))
    # The mapping is that of packets to the outside, too.
    yield lan(UDP(sport=4000, dport=53) / b"query of one", one, inside(server))
    yield "wan", bytes(wan_ether() / v4(pool, src=server) / UDP(sport=53, dport=4000) / b"answer to one")
    # From the outside nobody comes who was not asked.
    yield "wan", bytes(wan_ether() / v4(pool, src="198.51.100.66") / UDP(sport=99, dport=5000) / b"stranger")
    # TCP to a port that a connection to the outside has; the answer of two; a reset of no session.
    yield lan(TCP(sport=5001, dport=80, seq=1, flags="S") / b"syn of two", two, inside(server))
    yield lan(TCP(sport=4001, dport=5001, seq=1, flags="S") / b"syn of one", one, inside(pool))
    yield lan(TCP(sport=5001, dport=4001, seq=9, ack=2, flags="SA") / b"answer of two", two, inside(pool))
    yield lan(TCP(sport=4002, dport=5001, seq=1, flags="R") / b"reset", one, inside(pool))
    # Queries of ICMP by the identifier.
    yield lan(ICMPv6EchoRequest(id=7, seq=1, data=b"ping of two"), two, inside(server))
    yield lan(ICMPv6EchoRequest(id=7, seq=2, data=b"ping of one"), one, inside(pool))
    # Errors of two about a packet of one, and of the router about one of a session and about the first one.
    got = v6(two, src=inside(pool)) / UDP(sport=4000, dport=5000) / b"one to two"
    yield lan(ICMPv6DestUnreach(code=4) / bytes(got), two, inside(pool))
    yield lan(UDP(sport=4000, dport=5000) / b"hop limit", one, inside(pool), hlim=1)
    yield lan(UDP(sport=4003, dport=5000) / b"hop limit of another", one, inside(pool), hlim=1)
    # By the other prefix, whose rule has another outside address; to itself.
    yield lan(UDP(sport=4004, dport=5000) / b"by the other prefix", one, inside(pool, other))
    yield lan(UDP(sport=5000, dport=5000) / b"to itself", two, inside(pool))
    # From a translated address, which would go round.
    yield lan(UDP(sport=4000, dport=5000) / b"loop", inside("198.51.100.7"), inside(pool))
    # The router itself answers echo requests, and nothing else.
    yield lan(ICMPv6EchoRequest(id=8, seq=1, data=b"who is there"), one, inside(own))
    yield lan(ICMPv6EchoRequest(id=8, seq=2, data=b"by the other"), one, inside(own, other))
    yield lan(UDP(sport=4000, dport=22) / b"own", one, inside(own))
    yield lan(ICMPv6EchoRequest(id=8, seq=3, data=b"loop"), inside("198.51.100.7"), inside(own))


def nat64():
    """(port, frame): IPv6 hosts and IPv4 servers: fragments, path MTU discovery, errors; outside addresses on the link."""
    server, server64, pool, host = "198.51.100.9", "64:ff9b::c633:6409", "203.0.113.64", "2001:db8:1::7"
    lan = lambda ip, to=server64, **f: ("lan", bytes(ether() / v6(to, src=host, **f) / ip))
    wan_ether = lambda: Ether(src="02:00:00:00:02:fe", dst="02:00:00:00:02:01")
    wan = lambda ip, src=server, **f: ("wan", bytes(wan_ether() / v4(pool, src=src, **f) / ip))
    bytes_of = lambda count: bytes(i & 255 for i in range(count))
    # Who has outside addresses: two rules', the port's own, another one, and one that is in no prefix of the port.
    for address in (pool, "203.0.113.65", "203.0.113.1", "203.0.113.66", "192.0.2.1"):
        asks = ARP(op=1, hwsrc="02:00:00:00:02:fe", psrc="203.0.113.254", pdst=address)
        yield "wan", bytes(Ether(src="02:00:00:00:02:fe", dst=BROADCAST) / asks)
    probe = ARP(op=1, hwsrc="02:00:00:00:02:fd", psrc="0.0.0.0", pdst=pool)
    yield "wan", bytes(Ether(src="02:00:00:00:02:fd", dst=BROADCAST) / probe)
    # The same of IPv6: the second rule's prefix is part of the link's.
    for target in ("2001:db8:1:0:64::c633:6409", "2001:db8:1::1", "2001:db8:1::99", "64:ff9b::c633:6409"):
        last = socket.inet_pton(socket.AF_INET6, target)[13:]
        group = "ff02::1:ff%02x:%02x%02x" % tuple(last)
        asks = ICMPv6ND_NS(tgt=target) / ICMPv6NDOptSrcLLAddr(lladdr=HOST)
        yield "lan", bytes(ether("33:33:ff:%02x:%02x:%02x" % tuple(last)) / v6(group, src=host, hlim=255) / asks)
    # Sessions of UDP, TCP and ICMP, and their answers.
    yield lan(UDP(sport=5000, dport=53) / b"query")
    yield wan(UDP(sport=53, dport=5000) / b"answer")
    yield wan(UDP(sport=53, dport=5000, chksum=0) / b"no checksum")
    yield lan(TCP(sport=5001, dport=80, seq=1, flags="S"), tc=0xB8)
    yield wan(TCP(sport=80, dport=5001, seq=1, ack=2, flags="SA"), tos=0xB8)
    yield lan(ICMPv6EchoRequest(id=77, seq=1, data=bytes_of(16)))
    yield wan(ICMP(type=0, id=77, seq=1) / bytes_of(16))
    yield lan(UDP(sport=5000, dport=53) / b"another rule", to="2001:db8:1:0:64::c633:6409")
    # As long as IPv6 takes whole, and longer; with DF, without, and in fragments, the last one first.
    for size in (1232, 1233, 1400):
        yield wan(UDP(sport=53, dport=5000) / bytes_of(size), id=size)
    yield wan(UDP(sport=53, dport=5000) / bytes_of(1400), flags="DF")
    yield wan(UDP(sport=53, dport=5000) / bytes_of(1472), flags="DF")
    whole = bytes(UDP(sport=53, dport=5000) / bytes_of(3000))
    pseudo = socket.inet_aton(server) + socket.inet_aton(pool) + struct.pack("!HH", 17, len(whole))
    whole = whole[:6] + struct.pack("!H", checksum(pseudo + whole[:6] + b"\0\0" + whole[8:])) + whole[8:]
    for at in (2960, 1480, 0):
        more = {} if at == 2960 else {"flags": "MF"}
        yield wan(Raw(whole[at : at + 1480]), proto=17, frag=at // 8, id=7, **more)
    # Towards IPv4: what may be fragmented, and what may not; fragments.
    for size in (1232, 1233, 1440):
        yield lan(UDP(sport=5000, dport=53) / bytes_of(size))
    yield lan(IPv6ExtHdrFragment(nh=17, id=0x12345678) / UDP(sport=5000, dport=53) / b"a fragment that is all")
    # Errors about what was sent: of routers outside, with an MTU, with a small one, and from before RFC 1191.
    sent = bytes(v4(server, src=pool, len=1488) / UDP(sport=5000, dport=53, len=1468) / bytes_of(40))
    for mtu in (1400, 700, 0):
        yield wan(ICMP(type=3, code=4, nexthopmtu=mtu) / Raw(sent), src="192.0.2.1")
    yield wan(ICMP(type=3, code=3) / Raw(sent))
    yield wan(ICMP(type=11) / Raw(sent), src="192.0.2.1")
    # And of hosts inside: about a packet, and about its first fragment.
    got = bytes(v6(host, src=server64, plen=1408) / UDP(sport=53, dport=5000, len=1408) / bytes_of(40))
    cut = bytes(
        v6(host, src=server64, plen=1240) / IPv6ExtHdrFragment(nh=17, m=1, id=1400)
        / UDP(sport=53, dport=5000, len=1408) / bytes_of(40)
    )
    yield lan(ICMPv6PacketTooBig(mtu=1400) / Raw(got))
    yield lan(ICMPv6PacketTooBig(mtu=1300) / Raw(cut))
    yield lan(ICMPv6DestUnreach(code=4) / Raw(cut))
    yield lan(ICMPv6TimeExceeded(code=1) / Raw(got))


def nat_ftp():
    """(port, frame): control connections of FTP behind a masquerade and to a port forward: edited lines and their numbers."""
    outside, server, host = "203.0.113.1", "198.51.100.9", "10.0.0.7"
    wan_ether = Ether(src="02:00:00:00:02:fe", dst="02:00:00:00:02:01")
    lan = lambda tcp, to=server, src=host: ("lan", bytes(ether() / v4(to, src=src) / tcp))
    wan = lambda ip, src=server: ("wan", bytes(wan_ether / v4(outside, src=src) / ip))
    # The inside counts its own bytes, the outside those of edited lines.
    client = lambda seq, ack, flags="A": TCP(sport=40000, dport=21, seq=seq, ack=ack, flags=flags)
    reply = lambda seq, ack, flags="A", **f: TCP(sport=21, dport=40000, seq=seq, ack=ack, flags=flags, **f)
    yield lan(client(1000, 0, "S"))
    yield wan(reply(9000, 1001, "SA"))
    yield lan(client(1001, 9001))
    yield wan(reply(9001, 1001, "PA") / b"220 ready\r\n")
    yield lan(client(1001, 9012, "PA") / b"PORT 10,0,0,7,156,65\r\n")  # grows by three bytes
    yield lan(client(1001, 9012, "PA") / b"PORT 10,0,0,7,156,65\r\n")  # again
    yield lan(client(1001, 9012, "PA") / b"PORT 10,0,0")  # not again in pieces
    yield wan(reply(9012, 1026, "PA") / b"200 ok\r\n")
    yield wan(TCP(sport=20, dport=40001, seq=1, flags="S"), src="198.51.100.8")  # a stranger
    yield wan(TCP(sport=20, dport=40001, seq=1, flags="S"))
    yield lan(TCP(sport=40001, dport=20, seq=5, ack=2, flags="SA"))
    yield wan(TCP(sport=20, dport=40001, seq=2, ack=6, flags="PA") / b"data")
    yield wan(TCP(sport=20, dport=40001, seq=1, flags="S"), src="198.51.100.8")
    yield lan(client(1023, 9020, "PA") / b"RETR x\r\n")
    yield wan(reply(9020, 1034, "PA") / b"226 done\r\n")
    # A line in pieces, then whole; what comes too early, then in order; a part of it is acknowledged.
    yield lan(client(1031, 9030, "PA") / b"PORT 10,0,0")
    yield lan(client(1031, 9030, "PA") / b"PORT 10,0,0,7,156,66\r\n")
    yield lan(client(1078, 9030, "PA") / b"NOOP\r\n")
    yield lan(client(1053, 9030, "PA") / b"EPRT |1|10.0.0.7|40003|\r")  # its end comes with the next one
    yield lan(client(1053, 9030, "PA") / b"EPRT |1|10.0.0.7|40003|\r\nNOOP\r\n")
    yield wan(reply(9030, 1059, options=[("NOP", None), ("NOP", None), ("SAck", (1087, 1093))]))
    yield wan(reply(9030, 1070))  # within the address
    yield wan(ICMP(type=11) / IP(bytes(v4(server, src=outside, ttl=1) / client(1087, 9030, "PA") / b"NOOP\r\n")), src="192.0.2.1")
    yield wan(reply(9030, 1093, "PA") / b"200 ok\r\n200 ok\r\n200 ok\r\n")
    # Another host's address, a low port, several lines at once, and the end.
    yield lan(client(1084, 9054, "PA") / b"PORT 10,0,0,99,156,65\r\n")
    yield lan(client(1107, 9054, "PA") / b"PORT 10,0,0,7,3,231\r\n")
    yield lan(client(1128, 9054, "PA") / b"NOOP\r\nPORT 10,0,0,7,156,68\r\nRETR y\r\n")
    yield wan(TCP(sport=20, dport=40003, seq=1, flags="S"))  # no longer expected: another one was announced
    yield wan(TCP(sport=20, dport=40004, seq=1, flags="S"))
    yield lan(client(1164, 9054, "FA"))
    yield wan(reply(9054, 1177, "FA"))
    # A server behind the port forward.
    remote = "198.51.100.7"
    ask = lambda seq, ack, flags="A": TCP(sport=50000, dport=2121, seq=seq, ack=ack, flags=flags)
    say = lambda seq, ack, flags="A": TCP(sport=21, dport=50000, seq=seq, ack=ack, flags=flags)
    yield wan(ask(1, 0, "S"), src=remote)
    yield lan(say(0xFFFFFFF0, 2, "SA"), to=remote, src="10.0.0.9")  # its numbers wrap around
    yield wan(ask(2, 0xFFFFFFF1, "PA") / b"PASV\r\n", src=remote)
    yield lan(say(0xFFFFFFF1, 8, "PA") / b"227 Entering Passive Mode (10,0,0,9,160,39).\r\n", to=remote, src="10.0.0.9")
    yield wan(ask(8, 34, "PA") / b"EPSV\r\n", src=remote)
    yield wan(TCP(sport=50001, dport=40999, seq=1, flags="S"), src=remote)
    yield lan(TCP(sport=40999, dport=50001, seq=1, ack=2, flags="SA"), to=remote, src="10.0.0.9")
    yield lan(say(31, 14, "PA") / b"229 Entering Extended Passive Mode (|||40998|)\r\n", to=remote, src="10.0.0.9")
    yield wan(ask(14, 82), src=remote)
    # Nobody comes for five minutes.
    yield "wan", 400, wan(TCP(sport=50002, dport=40998, seq=1, flags="S"), src=remote)[1]


def in_pieces(packet, size, order=None):
    """The fragments of a packet over IPv4 or IPv6, in this order."""
    if IPv6 in packet:
        parts = fragment6(ether() / packet, size)
    else:
        parts = [ether() / part for part in packet.fragment(fragsize=size)]
    for at in order or range(len(parts)):
        yield parts[at]


def ids_fragments():
    """(port, frame): what rules look for lies across fragments; a datagram goes on with all of its fragments, or none does."""
    text = b"." * 190 + b"a forbidden word" + b"." * 300

    def sent(packet, size=200, order=None):
        for piece in in_pieces(packet, size, order):
            yield "a", bytes(piece)

    yield from sent(v4(id=1) / UDP(sport=4000, dport=9) / text, order=(0, 2, 1))
    # The one that was missing comes again, and other fragments of that flow.
    yield from sent(v4(id=1) / UDP(sport=4000, dport=9) / text, order=(2,))
    yield from sent(v4(id=2) / UDP(sport=4000, dport=9) / (b"." * 500))
    yield from sent(v4(id=12) / UDP(sport=4000, dport=9) / b"in one piece")
    yield from sent(v4(id=3) / UDP(sport=4001, dport=9) / (b"." * 500))
    yield from sent(v4(id=4) / UDP(sport=4002, dport=9) / text, order=(1, 2))  # never whole
    yield from sent(v6() / IPv6ExtHdrFragment(id=5) / UDP(sport=4003, dport=9) / text, 300)
    # A segment in fragments is part of its stream, and rules see both of its packets.
    client = lambda seq, flags, ack=0: TCP(sport=4004, dport=80, seq=seq, ack=ack, flags=flags)
    server = lambda seq, flags, ack: TCP(sport=80, dport=4004, seq=seq, ack=ack, flags=flags)
    yield "a", bytes(ether() / v4(id=6) / client(0, "S"))
    yield "b", bytes(Ether(src=ROUTER, dst=HOST) / v4("10.0.1.2", src="10.0.2.2") / server(0, "SA", 1))
    yield "a", bytes(ether() / v4(id=7) / client(1, "A", 1))
    yield from sent(v4(id=8) / client(1, "PA", 1) / b"GET /forb")
    yield from sent(v4(id=9) / client(10, "PA", 1) / (b"idden HTTP/1.1\r\nhost: " + b"a" * 300 + b"\r\n\r\n"))
    yield from sent(v4(id=10) / client(337, "PA", 1) / b"GET / HTTP/1.1\r\n")


def ids_limit():
    """(port, frame): of two mail connections one has a command that is longer than any may be; both have the same word behind it."""
    at = {}

    def sent(port, number, flags, data=b""):
        # Where each side is: a SYN takes a number.
        own, other = at.setdefault((number, port), 100), at.setdefault((number, "b" if port == "a" else "a"), 100)
        ack = 0 if flags == "S" else other
        at[number, port] = own + len(data) + (flags in ("S", "SA"))
        ports = {"sport": number, "dport": 25} if port == "a" else {"sport": 25, "dport": number}
        ip = v4(id=len(at)) if port == "a" else v4("10.0.1.2", src="10.0.2.2", id=len(at))
        link = ether() if port == "a" else Ether(src=ROUTER, dst=HOST)
        yield port, bytes(link / ip / TCP(seq=own, ack=ack, flags=flags, **ports) / data)

    for number, command in ((4000, b"NOOP " + b"." * 5000 + b"\r\n"), (4001, b"NOOP\r\n")):
        yield from sent("a", number, "S")
        yield from sent("b", number, "SA")
        yield from sent("a", number, "A")
        yield from sent("b", number, "PA", b"220 mail.example ESMTP\r\n")
        yield from sent("a", number, "PA", b"EHLO client.example\r\n")
        yield from sent("b", number, "PA", b"250 mail.example\r\n")
        for begin in range(0, len(command), 1400):
            yield from sent("a", number, "PA", command[begin:begin + 1400])
        yield from sent("b", number, "PA", b"250 OK\r\n")
        yield from sent("a", number, "PA", b"VRFY a-word-that-rules-look-for\r\n")
        yield from sent("b", number, "PA", b"252 maybe\r\n")


def conversation(sport, dport, steps):
    """(port, frame): a TCP connection in which client ("c") and server ("s") say these things, a segment each."""
    seq = {"c": 0, "s": 1000}

    def frame(side, flags, data=b""):
        ends = (ether(), v4()) if side == "c" else (Ether(src=ROUTER, dst=HOST), v4("10.0.1.2", src="10.0.2.2"))
        ports = {"sport": sport, "dport": dport} if side == "c" else {"sport": dport, "dport": sport}
        acked = 0 if flags == "S" else seq["s" if side == "c" else "c"]
        out = bytes(ends[0] / ends[1] / TCP(seq=seq[side], ack=acked, flags=flags, **ports) / data)
        seq[side] += len(data) + ("S" in flags) + ("F" in flags)
        return "in", out

    yield frame("c", "S")
    yield frame("s", "SA")
    yield frame("c", "A")
    for side, data in steps:
        yield frame(side, "PA", data)
    yield frame("c", "FA")
    yield frame("s", "FA")
    yield frame("c", "A")


def ids_dns():
    """(port, frame): lookups whose header is not as it should be, over UDP and TCP, each with a usual one behind it."""
    def message(number, name, flags=0x0100, counts=(1, 0, 0, 0), rest=b""):
        labels = b"".join(bytes([len(label)]) + label for label in name.split(b".")) + b"\0"
        return struct.pack(">6H", number, flags, *counts) + labels + struct.pack(">2H", 1, 1) + rest

    answer = b"\xc0\x0c" + struct.pack(">2HIH", 1, 1, 60, 4) + bytes([192, 0, 2, 1])
    odd = [
        message(1, b"z.example", flags=0x0140),
        message(2, b"answers.example", counts=(1, 5, 0, 0)),
        message(3, b"questions.example", counts=(700, 0, 0, 0)),
        message(4, b"opcode.example", flags=0x7900),
        message(5, b"usual.example"),
    ]
    for number, query in enumerate(odd):
        after = message(100 + number, b"after%d.example" % number)
        reply = message(100 + number, b"after%d.example" % number, 0x8180, (1, 1, 0, 0), answer)
        to = {"sport": 5000 + number, "dport": 53}
        yield "in", bytes(ether() / v4() / UDP(**to) / query)
        yield "in", bytes(ether() / v4() / UDP(**to) / after)
        yield "in", bytes(Ether(src=ROUTER, dst=HOST) / v4("10.0.1.2", src="10.0.2.2") / UDP(sport=53, dport=5000 + number) / reply)
        framed = [struct.pack(">H", len(own)) + own for own in (query, after, reply)]
        yield from conversation(6000 + number, 53, zip("ccs", framed))
    # The name service of NetBIOS is no DNS.
    name = b"\x20" + b"CK" + b"A" * 30 + b"\0" + struct.pack(">2H", 33, 1)
    yield "in", bytes(ether() / v4() / UDP(sport=137, dport=137) / (struct.pack(">6H", 9, 0x0110, 1, 0, 0, 0) + name))


def ids_http1():
    """(port, frame): requests for one file in ways that servers accept, a connection each."""
    lines = [
        b"GET\t/etc/passwd HTTP/1.1", b" GET /etc/passwd HTTP/1.1", b"\t \x0bGET /etc/passwd HTTP/1.1", b"GET  /etc/passwd HTTP/1.1",
        b"GET \t /etc/passwd \t HTTP/1.1", b"GET /etc/passwd\x0cHTTP/1.1", b"GET\r/etc/passwd HTTP/1.1",
        b"GET /%u0065tc/passwd HTTP/1.1", b"GET /%uff0fetc%u2215passwd HTTP/1.1", b"GET /a/..%c0%af..%c0%afetc/passwd HTTP/1.1",
        b"GET /%c1%a5tc/passwd HTTP/1.1", b"GET /%e0%81%a5tc/passwd HTTP/1.1", b"GET /caf%c3%a9/%e4%b8%80 HTTP/1.1",
    ]
    for number, line in enumerate(lines):
        request = line + b"\r\nHost: shop.example\r\n\r\n"
        yield from conversation(5000 + number, 80, [("c", request), ("s", b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")])


def ids_forms():
    """(port, frame): heads, trailers and bodies of HTTP that are seldom, a connection each."""
    ok = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
    chunked = b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Trailer: evil\r\n\r\n"
    long = b"0123456789" * 4000
    plain = b"GET /a HTTP/1.1\r\nHost: shop.example\r\n\r\n"
    cases = [
        [("c", b"GET http://Other.Example:8080/p HTTP/1.1\r\nHost: shop.example\r\n\r\n"), ("s", ok)],
        [("c", b"CONNECT Mail.Example:25 HTTP/1.1\r\n\r\n"), ("s", b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n")],
        [("c", b"GET   /start HTTP/1.1\r\nHost:   shop.example  \r\nA: 1\r\nCookie: q\r\nA: 2\r\n\r\n"), ("s", ok)],
        [("c", b"POST /f HTTP/1.1\r\nHost: shop.example\r\n" + chunked), ("s", ok)],
        [("c", plain), ("s", b"HTTP/1.1 200 OK\r\nServer: s\r\n" + chunked)],
        [("c", b"GET /nohost HTTP/1.1\r\n\r\n"), ("s", b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 3-4/9\r\nContent-Length: 2\r\n\r\nhi")],
        [("c", plain), ("s", b"HTTP/1.1 200 OK\r\nContent-Length: 40000\r\n\r\n" + long[:1000])]
        + [("s", long[at:at + 1000]) for at in range(1000, 40000, 1000)],
    ]
    for number, steps in enumerate(cases):
        yield from conversation(5000 + number, 80, steps)


def ids_lines():
    """(port, frame): first lines of HTTP that are none of HTTP/1, and lengths that are seldom, a connection each, with a
    request behind them."""
    def request(line, length="9"):
        head = f"{line}\r\nHost: shop.example\r\nUser-Agent: evil\r\nContent-Length: {length}\r\n\r\n"
        return head.encode() + b"body evil"

    ok = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
    second = b"GET /second HTTP/1.1\r\nHost: shop.example\r\n\r\n"
    versions = ["HTTP/1.1", "HTTP/01.1", "HTTP/1.20", "HTTP/2.0", "HTTP/1", "JUNK/1.1", "HTTP /1.1", "HTTP/1.1 foo", ""]
    sent = [request(f"POST /{number} {own}".rstrip()) for number, own in enumerate(versions)]
    sent += [request("POST /length HTTP/1.1", own) for own in ("+9", "9, 5")]
    sent += [request("POST /dot HTTP/1.1").replace(b"shop.example", b"shop.example.")]
    for number, own in enumerate(sent):
        yield from conversation(5000 + number, 80, [("c", own), ("s", ok), ("c", second), ("s", ok)])
    lines = ["HTTP/1.1 0200 OK", "HTTP/9.1 200 OK", "HTTP/1.1 +200 OK", "HTTP/1.1", "http/01.1 200"]
    for number, line in enumerate(lines):
        answer = f"{line}\r\nContent-Length: 9\r\n\r\nbody evil".encode()
        yield from conversation(6000 + number, 80, [("c", second), ("s", answer), ("c", second), ("s", ok)])


def ids_names():
    """(port, frame): lookups of names whose labels are no text, and an answer with such names."""
    def labels(*own):
        return b"".join(bytes([len(label)]) + label for label in own) + b"\0"

    names = [
        labels(b"\x01\x02\xff\0x", b"evil", b"example"),
        labels(b"a.b", b"evil", b"example"),
        labels(b'a\\b"c', b"evil", b"example"),
        labels(b"\xc3\xa9", b"evil", b"example"),
    ]
    for number, name in enumerate(names):
        asked = name + struct.pack(">2H", 5, 1)
        to = {"sport": 5000 + number, "dport": 53}
        yield "in", bytes(ether() / v4() / UDP(**to) / (struct.pack(">6H", number, 0x0100, 1, 0, 0, 0) + asked))
        data = b"\x03\xffx.\xc0\x0c"
        reply = struct.pack(">6H", number, 0x8180, 1, 1, 0, 0) + asked + b"\xc0\x0c" + struct.pack(">2HIH", 5, 1, 60, len(data)) + data
        yield "in", bytes(Ether(src=ROUTER, dst=HOST) / v4("10.0.1.2", src="10.0.2.2") / UDP(sport=53, dport=5000 + number) / reply)


def ids_tag():
    """(port, frame): connections in which rules tag what follows, and a host whose packets of any flow are tagged."""
    said = [("c", b"word %d" % number) if number % 2 else ("s", b"answer %d" % number) for number in range(2, 10)]
    for number, first in enumerate([b"count packets", b"count bytes", b"nothing", b"by default"]):
        yield from conversation(5000 + number, 4321, [("c", first), *said])
    guest = {"src": "10.0.1.77"}
    yield "in", bytes(ether() / v4(**guest) / UDP(sport=4000, dport=53) / b"tag this host")
    yield "in", bytes(ether() / v4() / UDP(sport=4000, dport=53) / b"another host")
    yield "in", bytes(ether() / v4(**guest) / TCP(sport=4001, dport=80, flags="S"))
    yield "in", bytes(Ether(src=ROUTER, dst=HOST) / v4("10.0.1.77", src="10.0.2.2") / UDP(sport=53, dport=4002) / b"to it")
    refused = bytes(v4(**guest) / UDP(sport=4000, dport=53) / b"tag this host")
    yield "in", bytes(Ether(src=ROUTER, dst=HOST) / v4("10.0.1.77", src="10.0.2.2") / ICMP(type=3, code=3) / refused)
    yield "in", bytes(ether() / v4(**guest) / UDP(sport=4000, dport=53) / b"too late")


def ids_odd():
    """(port, frame): packets that cannot be decoded, of a protocol without flows, and fragments: with each one that rules drop,
    another one that goes on."""
    def sent(packet, size=200):
        for piece in in_pieces(packet, size):
            yield "a", bytes(piece)

    good = ether() / v4(id=1) / udp()
    yield "a", bytes(good)
    yield "a", with_checksum(edited(good, (16, b"\x01\x00")))  # the length is beyond the frame
    yield "a", edited(good, (24, b"\xde\xad"))  # the checksum of IPv4
    for port in (80, 81):
        segment = ether() / v4(id=3) / TCP(sport=4000, dport=port, flags="S")
        yield "a", edited(segment, (50, b"\xde\xad"))
    yield "a", bytes(ether() / v4(id=4, proto=47) / (b"." * 20))
    yield "a", bytes(ether() / v4("10.0.2.9", id=5, proto=47) / (b"." * 20))
    # The fragments with more behind them are dropped, and those of the other hosts go on.
    text = b"." * 500
    yield from sent(v4("10.0.2.9", id=6) / UDP(sport=4000, dport=9) / text)
    yield from sent(v4(id=7) / UDP(sport=4000, dport=9) / text)
    # Fragments that overlap with the same bytes.
    for to, number in (("10.0.2.8", 8), ("10.0.2.2", 9)):
        whole = v4(to, id=number) / UDP(sport=4000, dport=9) / text
        first, _, third = in_pieces(whole, 200)
        second = ether() / v4(to, id=number, proto=17, flags="MF", frag=24) / bytes(whole)[20 + 192:20 + 400]
        yield from (("a", bytes(own)) for own in (first, second, third))


def evasions():
    """(whether it is of the client, TCP): connections in which segments that the other end does not take are to hide what it reads, and
    usual ones: segments sent again, keep-alives, probes of a closed window, challenges."""
    evil = b"evilpayload evilpayload"
    harmless = b"harmless bytes! harmless"[:len(evil)]

    class Connection:
        def __init__(self, sport):
            self.sport, self.c, self.s = sport, 1001, 9001

        def client(self, flags, seq=None, ack=None, data=b"", **fields):
            seq, ack = self.c if seq is None else seq, self.s if ack is None else ack
            return True, TCP(sport=self.sport, dport=80, flags=flags, seq=seq % 2**32, ack=ack % 2**32, **fields) / data

        def server(self, flags, seq=None, ack=None, data=b"", **fields):
            seq, ack = self.s if seq is None else seq, self.c if ack is None else ack
            return False, TCP(sport=80, dport=self.sport, flags=flags, seq=seq % 2**32, ack=ack % 2**32, **fields) / data

        def opened(self):
            yield self.client("S", seq=1000, ack=0)
            yield self.server("SA", seq=9000)
            yield self.client("A")

        def sent(self, data):
            yield self.client("PA", data=data)
            self.c += len(data)
            yield self.server("A")

        def ended(self):
            yield self.client("FA")
            yield self.server("FA", ack=self.c + 1)
            yield self.client("A", seq=self.c + 1, ack=self.s + 1)

    numbers = iter(range(6000, 6100))

    def case(steps):
        own = Connection(next(numbers))
        yield from own.opened()
        yield from steps(own)
        yield from own.sent(evil)
        yield from own.ended()

    def reset_before_the_last_data(own):
        yield own.client("PA", data=b"hello")
        yield own.client("R", ack=0)
        own.c += 5
        yield own.server("A")

    def reset_that_does_not_arrive(own):
        yield own.client("R", ack=0)

    def reset_of_the_server_that_does_not_arrive(own):
        yield own.server("R", ack=0)

    def fin_that_does_not_arrive(own):
        yield own.client("FA")
        yield own.server("A")

    def old_acknowledgment(own):
        yield own.client("PA", ack=own.s - 500_000, data=harmless)
        yield own.server("A")

    def acknowledgment_of_what_was_not_sent(own):
        yield own.client("PA", ack=own.s + 100, data=harmless)
        yield own.server("A")

    def syn_and_data_behind_it(own):
        yield own.client("S", seq=500_000_000, ack=0)
        yield own.server("A")
        yield own.client("PA", seq=500_000_001, data=b"junkjunk")
        yield own.server("A")

    def syn_of_the_server_and_data_behind_it(own):
        yield own.server("S", seq=500_000_000, ack=0)
        yield own.client("A")
        yield own.server("PA", seq=500_000_001, data=b"x")
        yield own.client("A")

    def without_ack(own):
        yield own.client("P", ack=0, data=harmless)
        yield own.server("A")

    def usual(own):
        yield own.client("A", seq=own.c - 1)  # keep-alive
        yield own.server("A")
        yield own.client("PA", data=b"request")
        yield own.client("PA", data=b"request")
        own.c += 7
        yield own.server("A", window=0)
        yield own.client("A", seq=own.c - 1)  # probes of a closed window
        yield own.client("A", data=b"e")
        yield own.server("A", window=0)
        yield own.server("A")
        yield own.client("S", seq=300, ack=0)  # challenged
        yield own.server("A")
        yield own.client("R", seq=own.c + 100, ack=0)  # in the window: challenged
        yield own.server("A")
        yield own.client("S", seq=1000, ack=0)

    for steps in (reset_before_the_last_data, reset_that_does_not_arrive, reset_of_the_server_that_does_not_arrive, fin_that_does_not_arrive,
                  old_acknowledgment, acknowledgment_of_what_was_not_sent, syn_and_data_behind_it, syn_of_the_server_and_data_behind_it,
                  without_ack, usual):
        yield from case(steps)
    # Two SYNs; the answer is to the first one, or to the second one.
    for answered in (1000, 77_000_000):
        own = Connection(next(numbers))
        yield own.client("S", seq=1000, ack=0)
        yield own.client("S", seq=77_000_000, ack=0)
        own.c = answered + 1
        yield own.server("SA", seq=9000)
        yield own.client("A")
        yield from own.sent(evil)
        yield from own.ended()
    # SYN before the handshake is over.
    own = Connection(next(numbers))
    yield own.client("S", seq=1000, ack=0)
    yield own.server("SA", seq=9000)
    yield own.client("S", seq=400_000, ack=0)
    yield own.server("A")
    yield own.client("A", seq=400_001)
    yield own.client("A")
    yield from own.sent(evil)
    yield from own.ended()
    # The server has died, and resets what still comes, again and again.
    own = Connection(next(numbers))
    yield from own.opened()
    yield own.client("PA", data=b"hello")
    for _ in range(3):
        yield own.server("R", ack=0)
    # The server has another connection of these ports: it challenges SYN, and the client resets it.
    own = Connection(next(numbers))
    yield own.client("S", seq=1000, ack=0)
    yield own.server("A", seq=70_000, ack=50_000)
    yield own.client("R", seq=50_000, ack=0)
    yield from own.opened()
    yield from own.sent(b"request")
    yield from own.ended()


def ids_evasions():
    """(port, frame): those of evasions, as a capture."""
    for is_client, upper in evasions():
        yield "in", bytes(ether() / (v4() if is_client else v4("10.0.1.2", src="10.0.2.2")) / upper)


def ids_inline_evasions():
    """(port, frame): the same through a wire."""
    for is_client, upper in evasions():
        ip = v4() if is_client else v4("10.0.1.2", src="10.0.2.2")
        yield "a" if is_client else "b", bytes(ether() / ip / upper)


def ids_stream_events():
    """(port, frame): connections in which each of the events of streams happens that rules may ask for."""
    def client(port, seq, flags="A", data=b"", ack=1001, **fields):
        return ether() / v4() / TCP(sport=port, dport=80, seq=seq, ack=ack, flags=flags, **fields) / data

    def server(port, seq, flags="A", data=b"", ack=1):
        return Ether(src=ROUTER, dst=HOST) / v4("10.0.1.2", src="10.0.2.2") / TCP(sport=80, dport=port, seq=seq, ack=ack, flags=flags) / data

    def opened(port):
        yield "in", bytes(client(port, 0, "S", ack=0))
        yield "in", bytes(server(port, 1000, "SA"))
        yield "in", bytes(client(port, 1))

    yield from opened(5000)
    yield "in", bytes(client(5000, 1, "PA", b"first words, "))
    yield "in", bytes(client(5000, 1, "PA", b"first words, "))  # again
    yield "in", bytes(client(5000, 20, "PA", b"later"))
    yield "in", bytes(client(5000, 20, "PA", b"other"))  # other bytes for the same place
    yield "in", bytes(client(5000, 25, "PA", b"behind a gap that stays"))
    yield from opened(5001)
    yield "in", bytes(client(5001, 50_000_000, "PA", b"far away"))
    yield "in", bytes(client(5001, 1, "PA", b"x", ack=50_000_000))
    yield "in", bytes(client(5001, 77, "S", ack=0))
    yield "in", bytes(client(5001, 1, "", b"no flags", ack=0))
    yield "in", bytes(server(5001, 50_000_000, "R", ack=0))
    yield "in", bytes(server(5001, 1100, "R", ack=0))  # in the window
    yield from opened(5002)
    yield "in", bytes(client(5002, 1, "FPA", b"the end"))
    yield "in", bytes(client(5002, 8, "PA", b"and more"))
    yield "in", bytes(client(5002, 30, "FA"))
    yield "in", bytes(ether() / v4() / TCP(sport=5003, dport=80, seq=0, flags="S") / b"early")


def bounded(number, told, first, ahead, again, end):
    """(port, frame): a connection whose client (or server) sends segments (offset, bytes) in this order: those of `ahead`, then `first`,
    which is acknowledged to `told`, then `again`, all of which are acknowledged to `end`."""
    client = number < 5000
    port, other = ("a", "b") if client else ("b", "a")

    def sent(port, flags, offset, acked, data=b""):
        ports = {"sport": number, "dport": 80} if port == "a" else {"sport": 80, "dport": number}
        ip = v4() if port == "a" else v4("10.0.1.2", src="10.0.2.2")
        link = ether() if port == "a" else Ether(src=ROUTER, dst=HOST)
        seq = 1000 + (offset if "S" in flags else offset + 1)
        return port, bytes(link / ip / TCP(seq=seq, ack=0 if flags == "S" else acked + 1001, flags=flags, **ports) / data)

    yield sent("a", "S", 0, 0)
    yield sent("b", "SA", 0, 0)
    yield sent("a", "A", 0, 0)
    for offset, data in ahead + first:
        yield sent(port, "PA", offset, 0, data)
    yield sent(other, "A", 0, told)
    for offset, data in again:
        yield sent(port, "PA", offset, 0, data)
    yield sent(other, "A", 0, end)
    yield sent(port, "FA", end, 0)
    yield sent(other, "FA", 0, end + 1)
    yield sent(port, "A", end + 1, 1)


def ids_share():
    """(port, frame): sixty segments of a byte before those that precede them, more than have room, as attackers send them to hide what
    comes next; the same with harmless words, where the segments without room come again."""
    for number, words in ((4000, b"the word that rules look for, in order"), (4001, b"other words")):
        ahead = [(len(words) + 1 + 2 * at, b".") for at in reversed(range(60))]
        missing = [(len(words) + 2 * at, b"_") for at in range(60)]
        yield from bounded(number, len(words), [(0, words)], ahead, sorted(missing + ahead), len(words) + 120)


def streams_share():
    """(port, frame): downloads with a lost segment, of which more waits than has room: the sender repeats what was not kept; and
    the receiver had kept it all."""
    segment = [(100 * at, bytes((at + i) & 0xFF for i in range(100))) for at in range(22)]
    yield from bounded(5000, 1600, segment[:1], segment[1:], segment[16:], 2200)
    yield from bounded(5001, 2200, segment[:1], segment[1:], [], 2200)


def ids_answers():
    """(port, frame): connections in which the other end answers within what rules look for, each segment acknowledged."""
    def connection(port, steps):
        ends = [(ether(), v4(), {"sport": port, "dport": 2323}),
                (Ether(src=ROUTER, dst=HOST), v4("10.0.1.2", src="10.0.2.2"), {"sport": 2323, "dport": port})]
        seq = [0, 1000]
        def frame(side, flags, data=b""):
            link, ip, ports = ends[side]
            acked = 0 if flags == "S" else seq[1 - side]
            out = bytes(link / ip / TCP(seq=seq[side], ack=acked, flags=flags, **ports) / data)
            seq[side] += len(data) + ("S" in flags) + ("F" in flags)
            return "in", out
        yield frame(0, "S")
        yield frame(1, "SA")
        yield frame(0, "A")
        for side, data in steps:
            side = "cs".index(side)
            yield frame(side, "PA", data)
            yield frame(1 - side, "A")
        yield frame(0, "FA")
        yield frame(1, "FA")
        yield frame(0, "A")

    # A terminal: the server sends each letter back.
    letters = lambda text: [(side, bytes([letter])) for letter in text for side in "cs"]  # noqa: E731
    yield from connection(5000, [("s", b"login: "), *letters(b"root\r\n"), ("s", b"Password: "), *letters(b"secret\r\n"), ("s", b"Welcome")])
    yield from connection(5001, [("c", b"xx ro"), ("s", b"ok"), ("c", b"ot yy")])
    # The words are at the end of long data and at the beginning of more.
    long = [("c", b"A" * 1400)] * 4
    yield from connection(5002, [*long, ("c", b"xx ro"), ("s", b"ok"), ("c", b"ot yy"), *long])
    # Messages without an answer, a segment each.
    yield from connection(5003, [("c", b"AAAA"), ("c", b"BEACON01"), ("c", b"BEACON02")])
    # The letters are of both ends.
    yield from connection(5004, [("c", b"xx ro"), ("s", b"ot yy"), ("c", b"....")])


def ids_datasets():
    """(port, frame): requests, of which a rule remembers the hosts that a certain program asks for."""
    def request(port, host, agent, path="/"):
        ends = [(ether(), v4(), {"sport": port, "dport": 80}),
                (Ether(src=ROUTER, dst=HOST), v4("10.0.1.2", src="10.0.2.2"), {"sport": 80, "dport": port})]
        text = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: {agent}\r\n\r\n".encode()
        seq = [0, 1000]
        for side, flags, data in [(0, "S", b""), (1, "SA", b""), (0, "A", b""), (0, "PA", text), (1, "A", b""),
                                  (1, "PA", b"HTTP/1.1 204 No Content\r\n\r\n"), (0, "A", b""), (0, "FA", b""), (1, "FA", b""), (0, "A", b"")]:
            link, ip, ports = ends[side]
            acked = 0 if flags == "S" else seq[1 - side]
            yield "in", bytes(link / ip / TCP(seq=seq[side], ack=acked, flags=flags, **ports) / data)
            seq[side] += len(data) + ("S" in flags) + ("F" in flags)

    for number, own in enumerate([("good.example", "browser"), ("good.example", "browser"), ("bad.example", "EvilBot"),
                                  ("bad.example", "EvilBot"), ("bad.example", "browser"), ("good.example", "browser"),
                                  ("bad.example", "browser", "/forget"), ("bad.example", "browser")]):
        yield from request(5000 + number, *own)


def ids_http2():
    """(port, frame): connections of HTTP/2 in the clear, with the header blocks of scapy: Huffman's code, fields of the table."""
    def segments(port, steps):
        seq = {"c": 0, "s": 1000}
        def frame(side, flags, data=b""):
            other = "s" if side == "c" else "c"
            ends = (ether(), v4()) if side == "c" else (Ether(src=ROUTER, dst=HOST), v4("10.0.1.2", src="10.0.2.2"))
            ports = {"sport": port, "dport": 80} if side == "c" else {"sport": 80, "dport": port}
            acked = 0 if flags == "S" else seq[other]
            out = bytes(ends[0] / ends[1] / TCP(seq=seq[side], ack=acked, flags=flags, **ports) / data)
            seq[side] += len(data) + ("S" in flags) + ("F" in flags)
            return "in", out
        yield frame("c", "S")
        yield frame("s", "SA")
        yield frame("c", "A")
        for side, data in steps:
            # Segments end within frames.
            for at in range(0, len(data), 100):
                yield frame(side, "PA", data[at : at + 100])
        yield frame("c", "FA")
        yield frame("s", "FA")

    def side():
        table = HPackHdrTable()
        index = lambda name: True  # noqa: E731
        def message(stream, lines, body=None):
            return bytes(table.parse_txt_hdrs("\n".join(lines).encode(), stream_id=stream, body=body, should_index=index))
        return message

    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
    settings = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
    client, server = side(), side()
    def request(path, method="GET", *more):
        return [f":method {method}", f":path {path}", ":scheme http", ":authority Shop.example:80", "user-agent: weird agent/1.0", *more]
    body = gzip.compress(b"a file with the word treasure in it", mtime=0)
    # Two streams at the same time: the second request has its agent from the table, the first response comes last.
    answers = server(3, [":status 404", "server: s"], b"nothing"), server(1, [":status 200", "content-encoding: gzip"], body)
    yield from segments(5000, [
        ("c", preface), ("s", settings),
        ("c", client(1, request("/list%2fall?of=%41", "GET", "cookie: a=1", "cookie: b=2"))),
        ("c", client(3, request("/upload", "POST"), b"name=secret")),
        ("s", answers[0]), ("s", answers[1]),
    ])
    # HTTP/1 is left for HTTP/2, and the server begins.
    client, server = side(), side()
    upgrade = b"GET /old HTTP/1.1\r\nHost: shop.example\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    yield from segments(5001, [
        ("c", upgrade), ("s", b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n" + settings),
        ("s", server(1, [":status 200"], b"as before")), ("c", preface), ("c", client(3, request("/new"))),
        ("s", server(3, [":status 302", "location: http://other.example/"])),
    ])
    # A block with a field that no table has, and one that promises more bytes than it has.
    broken = bytes([0, 0, 2, 1, 5, 0, 0, 0, 1]) + bytes([0x82, 0xFF])
    yield from segments(5002, [("c", preface + broken)])


# --- IPsec ----------------------------------------------------------------------------------------------------

# Cipher and authentication of the configuration, those of scapy, bytes of their keys, with the salt.
SUITES = [
    ("aes-128-cbc", "hmac-sha1-96", "AES-CBC", "HMAC-SHA1-96", 16, 20),
    ("aes-192-cbc", "hmac-sha256-128", "AES-CBC", "SHA2-256-128", 24, 32),
    ("aes-256-cbc", "hmac-sha512-256", "AES-CBC", "SHA2-512-256", 32, 64),
    ("aes-128-ctr", "hmac-sha1-96", "AES-CTR", "HMAC-SHA1-96", 20, 20),
    ("aes-192-ctr", "hmac-sha384-192", "AES-CTR", "SHA2-384-192", 28, 48),
    ("aes-256-ctr", "hmac-sha256-128", "AES-CTR", "SHA2-256-128", 36, 32),
    ("aes-128-gcm", "none", "AES-GCM", "NULL", 20, 0),
    ("aes-192-gcm", "none", "AES-GCM", "NULL", 28, 0),
    ("aes-256-gcm", "none", "AES-GCM", "NULL", 36, 0),
    ("chacha20-poly1305", "none", "CHACHA20-POLY1305", "NULL", 36, 0),
    ("aes-128-gmac", "none", "AES-NULL-GMAC", "NULL", 20, 0),
    ("aes-256-gmac", "none", "AES-NULL-GMAC", "NULL", 36, 0),
    ("null", "hmac-sha1-96", "NULL", "HMAC-SHA1-96", 0, 20),
    ("null", "hmac-sha384-192", "NULL", "SHA2-384-192", 0, 48),
]
# With shorter check values, and the middle key of GMAC.
SHORT = [
    ("aes-128-gcm-8", "none", "AES-GCM", "NULL", 20, 0),
    ("aes-256-gcm-12", "none", "AES-GCM", "NULL", 36, 0),
    ("aes-192-gmac", "none", "AES-NULL-GMAC", "NULL", 28, 0),
]
GATEWAYS = {4: "192.0.2.1", 6: "2001:db8:ffff::1"}


def tunnels():
    """One table for each pair of associations: every suite in each mode and family, plain and in UDP in turn."""
    number = 0
    ways = [(mode, suites) for suites in (SUITES, SHORT) for mode in ("tunnel", "transport")]
    for mode, suites in ways:
        for at, suite in enumerate(suites):
            for outer in (4, 6):
                number += 1
                inner = outer if mode == "transport" else (4, 6)[at // 2 % 2]
                peer = f"198.51.100.{number}" if outer == 4 else f"2001:db8:1::{number}"
                local = GATEWAYS[outer]
                if mode == "transport":
                    local = "10.0.0.7" if outer == 4 else "fd00:1::7"
                host = f"10.{100 + number}.0.9" if inner == 4 else f"fd00:{100 + number}::9"
                host = peer if mode == "transport" else host
                yield {
                    "number": number, "mode": mode, "suite": suite, "outer": outer, "inner": inner, "local": local,
                    "peer": peer, "udp": outer == 4 and at % 3 == 1, "esn": at in (1, 6, 9) and suites is SUITES,
                    "host": host,
                }


def key_of(tunnel):
    """The keys of a suite, for all associations: of the cipher, and for the authentication."""
    seed = " ".join(tunnel["suite"][:2]).encode()
    whole = hashlib.shake_256(seed).digest(tunnel["suite"][4] + tunnel["suite"][5])
    return whole[: tunnel["suite"][4]], whole[tunnel["suite"][4] :]


def scapy_of(tunnel, direction):
    """The same association of scapy, for packets that leave the gateway or come to it."""
    *_, crypt, auth, _, _ = tunnel["suite"]
    ends = (tunnel["local"], tunnel["peer"])
    src, dst = ends if direction == "out" else ends[::-1]
    key, mac = key_of(tunnel)
    header = IP(src=src, dst=dst) if tunnel["outer"] == 4 else IPv6(src=src, dst=dst)
    made = SecurityAssociation(
        ESP, spi=(0x1000 if direction == "out" else 0x2000) + tunnel["number"], seq_num=1,
        crypt_algo=crypt, crypt_key=key, auth_algo=auth, auth_key=mac or None,
        tunnel_header=header if tunnel["mode"] == "tunnel" else None,
        nat_t_header=UDP(sport=4500, dport=4500) if tunnel["udp"] else None,
        esn_en=tunnel["esn"], esn=0,
    )
    return shortened(made, tunnel["suite"][0])


def ipsec_files(folder):
    out = [
        'mode = "router"\n\n[router]\nkernel = false\n',
        '[port.lan]\nmac = "02:00:00:00:01:01"\nmtu = 9000\naddresses = ["10.0.0.1/24", "fd00:1::1/64"]\n',
        '[port.wan]\nmac = "02:00:00:00:02:01"\nmtu = 1500\naddresses = ["192.0.2.1/24", "2001:db8:ffff::1/64"]\n',
        '[[route]]\nprefix = "0.0.0.0/0"\nvia = "192.0.2.254"\n',
        '[[route]]\nprefix = "::/0"\nvia = "2001:db8:ffff::fe"\n',
        '[[policy]]\naction = "discard"\ndestination = "10.66.0.0/16"\n',
        '[[policy]]\naction = "bypass"\nprotocol = "tcp"\ndestination = "10.101.0.0/16"\ndestination_port = 179\n',
    ]
    for tunnel in tunnels():
        number, suite = tunnel["number"], tunnel["suite"]
        for direction in ("out", "in"):
            name = f"{suite[0]}-{suite[1]}.key"
            (folder / name).write_text("".join(key.hex() + "\n" for key in key_of(tunnel) if key))
            ends = (tunnel["local"], tunnel["peer"])
            source, destination = ends if direction == "out" else ends[::-1]
            spi = (0x1000 if direction == "out" else 0x2000) + number
            lines = [
                f'[[sa]]\ndirection = "{direction}"\nspi = {spi:#x}\nsource = "{source}"\ndestination = "{destination}"',
                f'reqid = {number}\nencryption = "{suite[0]}"\nkey_file = "{name}"',
            ]
            lines += [f'authentication = "{suite[1]}"'] * (suite[1] != "none")
            lines += ['mode = "transport"'] * (tunnel["mode"] == "transport")
            lines += ["udp = true"] * tunnel["udp"] + ["esn = true"] * tunnel["esn"]
            lines += ["pad_to = 300"] * (number == 3 and direction == "out")
            out.append("\n".join(lines) + "\n")
        net = f"{tunnel['host']}/{32 if tunnel['inner'] == 4 else 128}" if tunnel["mode"] == "transport" else (
            f"10.{100 + number}.0.0/16" if tunnel["inner"] == 4 else f"fd00:{100 + number}::/32"
        )
        out.append(f'[[policy]]\naction = "protect"\nreqid = {number}\ndestination = "{net}"\n')
    (folder / "config.toml").write_text("\n".join(out))


def ipsec():
    """(port, frame): a gateway with an association for every suite, family and mode, in both directions."""
    folder = HERE / "ipsec"
    folder.mkdir(exist_ok=True)
    ipsec_files(folder)
    lan_ether = lambda: Ether(src="02:00:00:00:01:07", dst="02:00:00:00:01:01")
    wan_ether = lambda: Ether(src="02:00:00:00:02:fe", dst="02:00:00:00:02:01")

    def inside(to, size, family, **fields):
        ip = IP(src="10.0.0.7", dst=to, **fields) if family == 4 else IPv6(src="fd00:1::7", dst=to, **fields)
        return ip / UDP(sport=5000, dport=6000) / bytes(i & 255 for i in range(size))

    def outside(to, size, family, **fields):
        ip = IP(src=to, dst="10.0.0.7", **fields) if family == 4 else IPv6(src=to, dst="fd00:1::7", **fields)
        return ip / UDP(sport=6000, dport=5000) / bytes(i & 255 for i in range(size))

    def sealed(tunnel, packet, seq=1):
        sa = scapy_of(tunnel, "in")
        # scapy draws vectors at random.
        size = sa.crypt_algo.iv_size or 0
        iv = hashlib.sha256(f"{tunnel['number']} {seq}".encode()).digest()[:size]
        packet = IP(bytes(packet)) if packet.version == 4 else IPv6(bytes(packet))
        out = sa.encrypt(packet, seq_num=seq, iv=iv)
        if tunnel["udp"]:
            out[UDP].chksum = 0  # RFC 3948
        return bytes(wan_ether() / out)

    all = list(tunnels())
    for tunnel in all:
        for size in (0, 18, 100):
            marked = {"tos": 0xB9} if size == 18 and tunnel["inner"] == 4 else {}
            yield "lan", bytes(lan_ether() / inside(tunnel["host"], size, tunnel["inner"], **marked))
    for tunnel in all:
        for seq, size in ((1, 0), (2, 18), (4, 100)):
            yield "wan", sealed(tunnel, outside(tunnel["host"], size, tunnel["inner"]), seq)
    first = all[0]
    peer = first["host"]
    data = sealed(first, outside(peer, 50, first["inner"]), 5)
    yield "wan", data
    yield "wan", data  # a replay
    yield "wan", sealed(first, outside(peer, 51, first["inner"]), 3)  # late, within the window
    yield "wan", sealed(first, outside(peer, 52, first["inner"]), 100)
    yield "wan", sealed(first, outside(peer, 53, first["inner"]), 7)  # behind the window
    forged = bytearray(sealed(first, outside(peer, 54, first["inner"]), 101))
    forged[60] ^= 1
    yield "wan", bytes(forged)
    yield "wan", sealed(first, outside("10.250.0.9", 55, 4), 102)  # a source that no policy has
    yield "wan", bytes(wan_ether() / outside(peer, 56, first["inner"]))  # unprotected
    odd = lambda to, spi, size: bytes(wan_ether() / IP(src=first["peer"], dst=to) / ESP(spi=spi, seq=103, data=bytes(size)))
    yield "wan", odd(first["local"], 0x9999, 64)
    yield "wan", odd("10.0.0.99", 0x9999, 64)  # transit
    yield "wan", odd(first["local"], 0x2001, 7)
    udp = next(own for own in all if own["udp"])
    ports = UDP(sport=4500, dport=4500, chksum=0)
    nat = lambda load: bytes(wan_ether() / IP(src=udp["peer"], dst=udp["local"]) / ports / load)
    yield "wan", nat(b"\xff")  # keep-alive
    yield "wan", nat(bytes(4) + b"a message of key agreement")
    spi = 0x2000 + udp["number"]
    plain = sealed(udp, outside(udp["host"], 20, udp["inner"]), 9)
    yield "wan", plain[:23] + b"\x32" + plain[24:]  # as plain ESP: its header checksum is wrong
    header = IP(src=udp["peer"], dst=udp["local"], proto=50)
    yield "wan", bytes(wan_ether() / header / Raw(struct.pack("!II", spi, 9) + bytes(60)))
    # Marks: the outer header says that the way is congested.
    for ecn in (0, 1, 2):
        packet = outside(peer, 60 + ecn, 4, tos=ecn)
        marked = bytearray(sealed(first, packet, 110 + ecn))
        header = IP(bytes(marked[14:34]))
        header.tos, header.chksum = 3, None
        marked[14:34] = bytes(header)[:20]
        yield "wan", bytes(marked)
    # What leaves: discarded, passed, without a policy; too long with DF; TTL.
    yield "lan", bytes(lan_ether() / inside("10.66.0.1", 10, 4))
    yield "lan", bytes(lan_ether() / IP(src="10.0.0.7", dst="10.101.0.9") / TCP(sport=5000, dport=179))
    yield "lan", bytes(lan_ether() / inside("203.0.113.5", 10, 4))
    yield "lan", bytes(lan_ether() / inside(peer, 1450, 4, flags="DF"))
    yield "lan", bytes(lan_ether() / inside(peer, 1450, 4))
    yield "lan", bytes(lan_ether() / inside(peer, 10, 4, ttl=1))
    # Over several cells.
    yield "lan", bytes(lan_ether() / inside(peer, 4000, 4))
    yield "wan", sealed(first, outside(peer, 4000, 4), 120)
    yield "wan", sealed(udp, outside(udp["host"], 1900, udp["inner"]), 10)
    # In fragments, the last one first; plain and in UDP.
    for own, seq in ((first, 121), (udp, 11)):
        whole = IP(sealed(own, outside(own["host"], 2000, own["inner"]), seq)[14:])
        for part in reversed(fragment(whole, 1400)):
            yield "wan", bytes(wan_ether() / part)
    six = next(own for own in all if own["inner"] == 6 and own["mode"] == "tunnel")
    yield "lan", bytes(lan_ether() / inside(six["host"], 1440, 6))
    # Headers of IPv6 in transport mode: before and behind ESP.
    own = next(own for own in all if own["inner"] == 6 and own["mode"] == "transport")
    ip = IPv6(src="fd00:1::7", dst=own["host"])
    yield "lan", bytes(lan_ether() / ip / IPv6ExtHdrHopByHop() / UDP(sport=5000, dport=6000) / b"behind hop-by-hop")
    yield "lan", bytes(lan_ether() / ip / IPv6ExtHdrDestOpt() / UDP(sport=5000, dport=6000) / b"behind destination options")
    # Fragments are not for transport mode.
    own = next(own for own in all if own["inner"] == 4 and own["mode"] == "transport")
    yield "lan", bytes(lan_ether() / IP(src="10.0.0.7", dst=own["host"], flags="MF", proto=17) / Raw(bytes(64)))


def ipsec_routes():
    """(port, frame): route-based tunnels: routes choose the association, and what comes is received on the tunnel interface."""
    folder = HERE / "ipsec_routes"
    folder.mkdir(exist_ok=True)
    local = "192.0.2.1"
    # if_id, its interface, the peer, and whether in UDP; the last one has no interface.
    all = [(7, "first", "198.51.100.7", False), (8, "second", "198.51.100.8", True), (9, None, "198.51.100.9", False)]
    key = lambda if_id, way: hashlib.sha256(f"route {if_id} {way}".encode()).digest()[:20]
    out = [
        'mode = "router"\n\n[router]\nkernel = false\n',
        '[port.lan]\nmac = "02:00:00:00:01:01"\naddresses = ["10.1.0.1/16", "fd00:1::1/64"]\n',
        '[port.wan]\nmac = "02:00:00:00:02:01"\naddresses = ["192.0.2.1/24"]\n',
        '[[route]]\nprefix = "0.0.0.0/0"\nvia = "192.0.2.254"\n',
        '[[route]]\nprefix = "10.2.0.0/16"\nvia = "first"\n',
        '[[route]]\nprefix = "fd00:2::/32"\nvia = "first"\n',
        '[[route]]\nprefix = "10.3.0.0/16"\nvia = "second"\n',
        '[[route]]\nprefix = "10.3.9.0/24"\nvia = "first"\n',
        "# The interface `second` has policies.\n"
        '[[policy]]\naction = "protect"\nreqid = 8\nif_id = 8\nsource = "10.0.0.0/8"\ndestination = "10.3.0.0/16"\nprotocol = "udp"\n',
        "# Policies without `if_id` are not for tunnel interfaces.\n"
        '[[policy]]\naction = "discard"\ndestination = "10.0.0.0/8"\ndirection = "out"\nprotocol = "tcp"\n',
        '[[rule]]\nname = "no-telnet"\naction = "drop"\nin = "first"\nproto = "udp"\ndport = 23\n',
    ]
    for if_id, name, peer, udp in all:
        if name:
            out.append(f'[port.{name}]\nbackend = "ipsec"\nif_id = {if_id}\naddresses = ["10.9.{if_id}.1/30"]\nrpf = "strict"\n')
        for way in ("out", "in"):
            (folder / f"{if_id}-{way}.key").write_text(key(if_id, way).hex() + "\n")
            source, destination = (local, peer) if way == "out" else (peer, local)
            spi = (0x1000 if way == "out" else 0x2000) + if_id
            out.append(
                f'[[sa]]\ndirection = "{way}"\nspi = {spi:#x}\nsource = "{source}"\ndestination = "{destination}"\n'
                f'reqid = {if_id}\nif_id = {if_id}\nkey_file = "{if_id}-{way}.key"\n' + "udp = true\n" * udp
            )
    (folder / "config.toml").write_text("\n".join(out))
    lan_ether = lambda: Ether(src="02:00:00:00:01:07", dst="02:00:00:00:01:01")
    wan_ether = lambda: Ether(src="02:00:00:00:02:fe", dst="02:00:00:00:02:01")

    def udp_packet(source, to, size=20, port=6000, **fields):
        ip = (IPv6 if ":" in to else IP)(src=source, dst=to, **fields)
        return ip / UDP(sport=5000, dport=port) / bytes(i & 255 for i in range(size))

    def sealed(if_id, packet, seq):
        _, _, peer, udp = next(own for own in all if own[0] == if_id)
        sa = SecurityAssociation(
            ESP, spi=0x2000 + if_id, crypt_algo="AES-GCM", crypt_key=key(if_id, "in"), auth_algo="NULL", auth_key=None,
            tunnel_header=IP(src=peer, dst=local), nat_t_header=UDP(sport=4500, dport=4500) if udp else None,
        )
        iv = hashlib.sha256(f"route {if_id} {seq}".encode()).digest()[:8]
        esp = sa.encrypt((IPv6 if packet.version == 6 else IP)(bytes(packet)), seq_num=seq, iv=iv)
        if udp:
            esp[UDP].chksum = 0  # RFC 3948
        return bytes(wan_ether() / esp)

    lan = lambda *own, **fields: ("lan", bytes(lan_ether() / udp_packet("10.1.0.7", *own, **fields)))
    yield lan("10.2.0.5")
    yield lan("10.3.0.5")
    yield lan("10.3.9.5")  # a longer prefix, another tunnel
    yield "lan", bytes(lan_ether() / udp_packet("fd00:1::7", "fd00:2::5"))
    yield lan("203.0.113.5")  # no tunnel
    yield lan("10.2.0.6", 1000)
    yield lan("10.2.0.5", 1400, flags="DF")  # longer than the interface takes
    yield lan("10.2.0.5", ttl=1)
    yield "lan", bytes(lan_ether() / IP(src="10.1.0.7", dst="10.2.0.5") / TCP(sport=5000, dport=80))
    yield "lan", bytes(lan_ether() / IP(src="10.1.0.7", dst="10.3.0.5") / TCP(sport=5000, dport=80))  # no policy of `second`
    yield lan("10.4.0.5")  # no tunnel either
    yield "wan", sealed(7, udp_packet("10.2.0.5", "10.1.0.7"), 1)
    yield "wan", sealed(8, udp_packet("10.3.0.5", "10.1.0.7"), 1)
    yield "wan", sealed(7, udp_packet("fd00:2::5", "fd00:1::7"), 2)
    yield "wan", sealed(7, udp_packet("10.3.0.5", "10.1.0.7"), 3)  # the way back is another tunnel
    yield "wan", sealed(8, udp_packet("10.3.9.5", "10.1.0.7"), 2)  # likewise
    yield "wan", sealed(7, udp_packet("10.2.0.5", "10.3.0.5"), 4)  # from tunnel to tunnel
    yield "wan", sealed(8, udp_packet("10.3.0.5", "10.2.0.5"), 3)  # likewise
    yield "wan", sealed(8, IP(src="10.3.0.5", dst="10.1.0.7") / TCP(sport=80, dport=5000), 5)  # no policy lets it in
    yield "wan", sealed(7, udp_packet("10.2.0.5", "10.1.0.7", port=23), 5)  # a firewall rule of the interface
    yield "wan", sealed(8, udp_packet("10.3.0.5", "10.1.0.7", port=23), 4)
    yield "wan", sealed(9, udp_packet("10.4.0.5", "10.1.0.7"), 1)  # no interface
    yield "wan", bytes(wan_ether() / udp_packet("10.2.0.5", "10.1.0.7"))  # unprotected, and the port has no check


def ipsec_answers():
    """(port, frame): what a gateway sends itself, errors and echo replies, is looked up in the policies."""
    folder = HERE / "ipsec_answers"
    folder.mkdir(exist_ok=True)
    local, peer = "192.0.2.1", "198.51.100.1"
    key = lambda way: hashlib.sha256(f"answers {way}".encode()).digest()[:20]
    out = [
        'mode = "router"\n\n[router]\nkernel = false\n',
        '[port.lan]\nmac = "02:00:00:00:01:01"\naddresses = ["10.1.0.1/16", "fd00:1::1/64"]\n',
        '[port.narrow]\nmac = "02:00:00:00:03:01"\nmtu = 1280\naddresses = ["10.5.0.1/16"]\n',
        f'[port.wan]\nmac = "02:00:00:00:02:01"\naddresses = ["{local}/24"]\n',
        '[[route]]\nprefix = "0.0.0.0/0"\nvia = "192.0.2.254"\n',
        '[[route]]\nprefix = "10.3.0.0/16"\nvia = "10.1.0.7"\n',
        '[[route]]\nprefix = "10.66.0.0/16"\nvia = "10.1.0.7"\n',
        '[[route]]\nprefix = "fd00:2::/32"\nvia = "fd00:1::7"\n',
        '[[policy]]\naction = "protect"\nreqid = 1\nsource = "10.1.0.0/16"\ndestination = "10.2.0.0/16"\n',
        '[[policy]]\naction = "protect"\nreqid = 1\nsource = "10.5.0.0/16"\ndestination = "10.2.0.0/16"\n',
        '[[policy]]\naction = "protect"\nreqid = 1\nsource = "fd00:1::/64"\ndestination = "fd00:2::/32"\n',
        "# One way only: what came otherwise is answered by the tunnel, not at all, or not in the clear.\n"
        '[[policy]]\naction = "protect"\ndirection = "out"\nreqid = 1\ndestination = "10.3.0.0/16"\n',
        '[[policy]]\naction = "discard"\ndirection = "out"\ndestination = "10.66.0.0/16"\n',
        '[[policy]]\naction = "protect"\ndirection = "in"\nreqid = 1\nsource = "10.4.0.0/16"\ndestination = "10.1.0.0/16"\n',
    ]
    for way in ("out", "in"):
        (folder / f"{way}.key").write_text(key(way).hex() + "\n")
        source, destination = (local, peer) if way == "out" else (peer, local)
        spi = 0x1001 if way == "out" else 0x2001
        out.append(
            f'[[sa]]\ndirection = "{way}"\nspi = {spi:#x}\nsource = "{source}"\ndestination = "{destination}"\n'
            f'reqid = 1\nkey_file = "{way}.key"\n'
        )
    (folder / "config.toml").write_text("\n".join(out))
    numbers = iter(range(1, 100))

    def sealed(packet):
        number = next(numbers)
        sa = SecurityAssociation(
            ESP, spi=0x2001, crypt_algo="AES-GCM", crypt_key=key("in"), auth_algo="NULL", auth_key=None,
            tunnel_header=IP(src=peer, dst=local),
        )
        iv = hashlib.sha256(f"answers {number}".encode()).digest()[:8]
        esp = sa.encrypt((IPv6 if packet.version == 6 else IP)(bytes(packet)), seq_num=number, iv=iv)
        return "wan", bytes(Ether(src="02:00:00:00:02:fe", dst="02:00:00:00:02:01") / esp)

    def plain(packet):
        return "lan", bytes(Ether(src="02:00:00:00:01:07", dst="02:00:00:00:01:01") / packet)

    def udp(source, to, size=20, **fields):
        ip = (IPv6 if ":" in to else IP)(src=source, dst=to, **fields)
        return ip / UDP(sport=5000, dport=6000) / bytes(i & 255 for i in range(size))

    # About what came by the tunnel: too long for the way, without TTL, for nobody; an echo request for the router.
    yield sealed(udp("10.2.0.9", "10.5.0.7", 1300, flags="DF"))
    yield sealed(udp("10.2.0.9", "10.1.0.7", ttl=1))
    yield sealed(udp("fd00:2::9", "fd00:1::7", hlim=1))
    yield sealed(IP(src="10.2.0.9", dst="10.1.0.1") / ICMP(id=7, seq=1) / b"who is there")
    yield sealed(udp("10.4.0.9", "10.1.0.7", ttl=1))
    # About what came unprotected.
    yield plain(udp("10.3.0.5", "203.0.113.5", ttl=1))
    yield plain(udp("10.66.0.5", "203.0.113.5", ttl=1))
    yield plain(udp("10.1.0.7", "203.0.113.5", ttl=1))
    yield plain(udp("10.1.0.7", "10.2.0.9", ttl=1))
    yield plain(IP(src="10.1.0.7", dst="10.1.0.1") / ICMP(id=8, seq=1) / b"who is there")
    # Errors of the other end: about what this side has sent by the tunnel, and about something else.
    about = lambda packet: IP(src=peer, dst="10.1.0.7") / ICMP(type=3, code=4, nexthopmtu=1300) / packet
    yield sealed(about(udp("10.1.0.7", "10.2.0.9", flags="DF")))
    yield sealed(about(udp("10.1.0.7", "203.0.113.5", flags="DF")))
    yield sealed(IP(src=peer, dst="10.1.0.7") / ICMP(type=5, code=1, gw="10.1.0.66") / udp("10.1.0.7", "10.2.0.9"))


def ipsec_narrow():
    """(port, frame): tunnels over a link that takes 1,300 bytes, and packets about as long."""
    folder = HERE / "ipsec_narrow"
    folder.mkdir(exist_ok=True)
    (folder / "out.key").write_text(hashlib.sha256(b"narrow").digest()[:20].hex() + "\n")
    sa = '[[sa]]\ndirection = "out"\nspi = {}\nsource = "{}"\ndestination = "{}"\nreqid = {}\nkey_file = "out.key"\n{}\n'
    ends = "192.0.2.1", "198.51.100.1"
    policy = '[[policy]]\naction = "protect"\nreqid = {}\nsource = "{}"\ndestination = "{}"\n'
    out = [
        'mode = "router"\n\n[router]\nkernel = false\n',
        '[port.lan]\nmac = "02:00:00:00:01:01"\naddresses = ["10.1.0.1/16", "fd00:1::1/64"]\n',
        '[port.wan]\nmac = "02:00:00:00:02:01"\nmtu = 1300\naddresses = ["192.0.2.1/24", "fd00:9::1/64"]\n',
        '[port.branch]\nbackend = "ipsec"\nif_id = 7\nmtu = 1200\naddresses = ["10.9.7.1/30"]\n',
        '[[route]]\nprefix = "0.0.0.0/0"\nvia = "192.0.2.254"\n',
        '[[route]]\nprefix = "::/0"\nvia = "fd00:9::fe"\n',
        '[[route]]\nprefix = "10.7.0.0/16"\nvia = "branch"\n',
        '[[route]]\nprefix = "fd00:7::/32"\nvia = "branch"\n',
        sa.format("0x1001", *ends, 1, ""),
        sa.format("0x2001", *ends, 2, "pad_to = 9000"),
        sa.format("0x3001", "10.1.0.7", "10.3.0.9", 3, 'mode = "transport"'),
        sa.format("0x4001", *ends, 4, 'df = "set"'),
        sa.format("0x5001", "fd00:1::7", "fd00:5::9", 5, 'mode = "transport"'),
        sa.format("0x7001", *ends, 7, "if_id = 7"),
        policy.format(1, "fd00:1::/64", "fd00:2::/32"),
        policy.format(2, "10.1.0.0/16", "10.2.0.0/16"),
        policy.format(3, "10.1.0.7/32", "10.3.0.9/32"),
        policy.format(4, "10.1.0.0/16", "10.4.0.0/16"),
        policy.format(4, "fd00:1::/64", "fd00:4::/32"),
        policy.format(5, "fd00:1::7/128", "fd00:5::9/128"),
    ]
    (folder / "config.toml").write_text("\n".join(out))

    def sent(source, to, size, **more):
        ip = (IPv6 if ":" in to else IP)(src=source, dst=to, **more) / UDP(sport=5000, dport=6000)
        ip = ip / bytes(i & 255 for i in range(size - len(ip)))
        return "lan", bytes(Ether(src="02:00:00:00:01:07", dst="02:00:00:00:01:01") / ip)

    # What every link of IPv6 takes passes in fragments; what is longer is answered.
    for size in (1240, 1280, 1281):
        yield sent("fd00:1::7", "fd00:2::9", size)
    # Padding ends where the link does.
    for size, flags in ((50, "DF"), (50, 0), (1246, "DF"), (1247, "DF"), (1247, 0)):
        yield sent("10.1.0.7", "10.2.0.9", size, flags=flags)
    # Transport mode: the longest that fits, and one more.
    for size in (1266, 1267):
        yield sent("10.1.0.7", "10.3.0.9", size, flags="DF")
    # Always DF outside: who can send shorter packets is answered, and what others send is lost.
    for size, flags in ((1246, 0), (1246, "DF"), (1247, 0), (1247, "DF")):
        yield sent("10.1.0.7", "10.4.0.9", size, flags=flags)
    for size in (1246, 1247, 1280, 1281):
        yield sent("fd00:1::7", "fd00:4::9", size)
    # Transport mode over IPv6: nobody may divide the packet, and the host sends none that is shorter than 1,280.
    for size in (1266, 1267, 1280, 1281):
        yield sent("fd00:1::7", "fd00:5::9", size)
    # A tunnel interface with an MTU of 1,200 bytes: one of IPv6 takes 1,280.
    for size, flags in ((1200, "DF"), (1201, "DF"), (1201, 0)):
        yield sent("10.1.0.7", "10.7.0.9", size, flags=flags)
    for size in (1200, 1280, 1281):
        yield sent("fd00:1::7", "fd00:7::9", size)


def ipsec_fragments():
    """(port, frame): tunnels over IPv6 and a link of 1,300 bytes: packets that leave and arrive in fragments."""
    folder = HERE / "ipsec_fragments"
    folder.mkdir(exist_ok=True)
    local, peer = "fd00:9::1", "fd00:9::2"
    key = lambda name: hashlib.sha256(f"fragments {name}".encode()).digest()[:20]
    inside = {1: ("10.1.0.0/16", "10.2.0.0/16"), 2: ("fd00:1::/64", "fd00:2::/64"), 3: ("10.1.0.0/16", "10.3.0.0/16")}
    out = [
        'mode = "router"\n\n[router]\nkernel = false\n',
        '[port.lan]\nmac = "02:00:00:00:01:01"\naddresses = ["10.1.0.1/16", "fd00:1::1/64"]\n',
        f'[port.wan]\nmac = "02:00:00:00:02:01"\nmtu = 1300\naddresses = ["{local}/64"]\n',
        '[[route]]\nprefix = "0.0.0.0/0"\nvia = "10.1.0.7"\n',
        '[[route]]\nprefix = "::/0"\nvia = "fd00:1::7"\n',
    ]
    for reqid, (source, destination) in inside.items():
        for way, spi in ("out", 0x1000 + reqid), ("in", 0x2000 + reqid):
            (folder / f"{way}{reqid}.key").write_text(key(f"{way}{reqid}").hex() + "\n")
            ends = (local, peer) if way == "out" else (peer, local)
            out.append(
                f'[[sa]]\ndirection = "{way}"\nspi = {spi:#x}\nsource = "{ends[0]}"\ndestination = "{ends[1]}"\n'
                f'reqid = {reqid}\nkey_file = "{way}{reqid}.key"\n' + "udp = true\n" * (reqid == 3)
            )
        out.append(f'[[policy]]\naction = "protect"\nreqid = {reqid}\nsource = "{source}"\ndestination = "{destination}"\n')
    (folder / "config.toml").write_text("\n".join(out))

    def packet(source, to, size, **more):
        ip = (IPv6 if ":" in to else IP)(src=source, dst=to, **more) / UDP(sport=5000, dport=6000)
        return ip / bytes(i & 255 for i in range(size - len(ip)))

    def sent(to, size):
        source = "fd00:1::7" if ":" in to else "10.1.0.7"
        return "lan", bytes(Ether(src="02:00:00:00:01:07", dst="02:00:00:00:01:01") / packet(source, to, size))

    def received(reqid, number, source, size):
        sa = SecurityAssociation(
            ESP, spi=0x2000 + reqid, crypt_algo="AES-GCM", crypt_key=key(f"in{reqid}"), auth_algo="NULL", auth_key=None,
            tunnel_header=IPv6(src=peer, dst=local), nat_t_header=UDP(sport=4500, dport=4500) if reqid == 3 else None,
        )
        to = "fd00:1::7" if ":" in source else "10.1.0.7"
        iv = hashlib.sha256(f"fragments {reqid} {number}".encode()).digest()[:8]
        esp = bytes(sa.encrypt((IPv6 if ":" in source else IP)(bytes(packet(source, to, size))), seq_num=number, iv=iv))
        fields = struct.pack("!BBHI", esp[6], 0, 0, 0x10_0000 * reqid + number)
        whole = IPv6(esp[:40]) / IPv6ExtHdrFragment(fields) / Raw(esp[40:])
        whole.nh, whole.plen = 44, len(esp) - 40 + 8
        for part in fragment6(whole, 1280):
            yield "wan", bytes(Ether(src="02:00:00:00:02:fe", dst="02:00:00:00:02:01") / part)

    # Over IPv6: the longest that leave whole, one more, and what hosts send that are asked for no shorter packets.
    for size in (1226, 1227, 1500, 3000):
        yield sent("10.2.0.9", size)
    for size in (1226, 1227, 1280):
        yield sent("fd00:2::9", size)
    # In UDP, whose checksum is that of the whole.
    for size in (1218, 1219, 1500):
        yield sent("10.3.0.9", size)
    # The same the other way, in order and not.
    for reqid, source in (1, "10.2.0.9"), (2, "fd00:2::9"), (3, "10.3.0.9"):
        yield from received(reqid, 1, source, 1280)
        yield from reversed(list(received(reqid, 2, source, 1250)))


def ipsec_path():
    """(port, time, frame): links beyond the port that are narrower, by ICMP errors about ESP packets."""
    folder = HERE / "ipsec_path"
    folder.mkdir(exist_ok=True)
    (folder / "out.key").write_text(hashlib.sha256(b"path").digest()[:20].hex() + "\n")
    sa = '[[sa]]\ndirection = "out"\nspi = {}\nsource = "{}"\ndestination = "{}"\nreqid = {}\nkey_file = "out.key"\n{}\n'
    v4, v6 = ("192.0.2.1", "198.51.100.1"), ("fd00:2::1", "fd00:9::1")
    policy = '[[policy]]\naction = "protect"\nreqid = {}\nsource = "10.1.0.0/16"\ndestination = "{}"\n'
    out = [
        'mode = "router"\n\n[router]\nkernel = false\n',
        '[port.lan]\nmac = "02:00:00:00:01:01"\naddresses = ["10.1.0.1/16"]\n',
        '[port.wan]\nmac = "02:00:00:00:02:01"\naddresses = ["192.0.2.1/24", "fd00:2::1/64"]\n',
        '[[route]]\nprefix = "0.0.0.0/0"\nvia = "192.0.2.254"\n',
        '[[route]]\nprefix = "::/0"\nvia = "fd00:2::fe"\n',
        sa.format("0x1001", *v4, 1, ""),
        sa.format("0x2001", *v6, 2, ""),
        sa.format("0x3001", *v4, 3, "udp = true"),
        sa.format("0x4001", "10.1.0.7", "10.5.0.9", 4, 'mode = "transport"'),
        sa.format("0x5001", *v4, 5, "pad_to = 9000"),
        '[[policy]]\naction = "discard"\ndirection = "in"\nprotocol = "icmp"\nsource = "203.0.113.66/32"\n',
        policy.format(1, "10.2.0.0/16"),
        policy.format(2, "10.3.0.0/16"),
        policy.format(3, "10.4.0.0/16"),
        policy.format(4, "10.5.0.9/32"),
        policy.format(5, "10.6.0.0/16"),
    ]
    (folder / "config.toml").write_text("\n".join(out))
    milliseconds = iter(range(0, 10_000, 10))

    def sent(to, size, flags="DF", at=0):
        ip = IP(src="10.1.0.7", dst=to, flags=flags) / UDP(sport=5000, dport=6000)
        ip = ip / bytes(i & 255 for i in range(size - len(ip)))
        ether = Ether(src="02:00:00:00:01:07", dst="02:00:00:00:01:01")
        return "lan", at + next(milliseconds) / 1000, bytes(ether / ip)

    def error(ends, spi, number, mtu, size=1500, udp=None, quoted=64, of="203.0.113.7", at=0, **icmp):
        esp = struct.pack("!2I", spi, number) + bytes(120)
        if udp:
            esp = struct.pack("!4H", *udp, size - 20, 0) + esp
        ether = Ether(src="02:00:00:00:02:fe", dst="02:00:00:00:02:01")
        if ":" in ends[0]:
            about = IPv6(src=ends[0], dst=ends[1], nh=50, plen=size - 40) / esp[:quoted]
            answer = IPv6(src="fd00:7::7", dst=ends[0]) / ICMPv6PacketTooBig(mtu=mtu) / bytes(about)
        else:
            about = IP(src=ends[0], dst=ends[1], proto=17 if udp else 50, flags="DF", len=size) / esp[:quoted]
            answer = IP(src=of, dst=ends[0]) / ICMP(type=3, code=4, nexthopmtu=mtu, **icmp) / bytes(about)
        return "wan", at + next(milliseconds) / 1000, bytes(ether / answer)

    # Who sends nothing can have no error.
    yield error(v4, 0x1001, 1, 1300)
    yield sent("10.2.0.9", 1400)
    # Not plausible: another index, ends, numbers; longer than the packet; a wrong checksum; no number; in UDP; what policies discard.
    yield error(v4, 0x1002, 1, 1300)
    yield error((v4[0], "198.51.100.2"), 0x1001, 1, 1300)
    yield error(v4, 0x1001, 2, 1300)
    yield error(v4, 0x1001, 1, 1500)
    yield error(v4, 0x1001, 1, 1300, chksum=7)
    yield error(v4, 0x1001, 1, 1300, quoted=7)
    yield error(v4, 0x1001, 1, 1300, udp=(4500, 4500))
    yield error(v4, 0x1001, 1, 1300, of="203.0.113.66")
    yield sent("10.2.0.9", 1400)
    # The first that is, then a longer and a shorter MTU.
    yield error(v4, 0x1001, 1, 1400, quoted=8)
    yield sent("10.2.0.9", 1400)
    yield error(v4, 0x1001, 2, 1450)
    yield error(v4, 0x1001, 2, 1300)
    for size in (1246, 1247):
        yield sent("10.2.0.9", size)
    yield sent("10.2.0.9", 1400, 0)
    # A router of old, without an MTU, and one that lies: 576 is the least.
    yield error(v4, 0x1001, 3, 0, 1296)
    yield sent("10.2.0.9", 1200)
    yield error(v4, 0x1001, 3, 68)
    for size in (518, 519):
        yield sent("10.2.0.9", size)
    # IPv6 outside: 1,280 at least.
    yield sent("10.3.0.9", 1300)
    yield error(v6, 0x2001, 1, 1000)
    yield sent("10.3.0.9", 1300)
    yield error(v6, 0x2001, 1, 1280)
    yield sent("10.3.0.9", 1300)
    # In UDP: eight bytes say nothing of ESP.
    yield sent("10.4.0.9", 1400)
    yield error(v4, 0x3001, 1, 1300, udp=(4500, 4500), quoted=8)
    yield sent("10.4.0.9", 1400)
    yield error(v4, 0x3001, 1, 1300, udp=(4500, 4500))
    yield sent("10.4.0.9", 1400)
    # Transport mode: the error is to the host.
    yield sent("10.5.0.9", 1400)
    yield error(("10.1.0.7", "10.5.0.9"), 0x4001, 1, 1300)
    yield sent("10.5.0.9", 1400)
    # Padding ends where the path does.
    yield sent("10.6.0.9", 50)
    yield error(v4, 0x5001, 1, 1300)
    yield sent("10.6.0.9", 50)
    # Ten minutes later all is forgotten.
    for to in ("10.2.0.9", "10.3.0.9", "10.4.0.9", "10.5.0.9"):
        yield sent(to, 1400, at=599)
    for to in ("10.2.0.9", "10.3.0.9", "10.4.0.9", "10.5.0.9"):
        yield sent(to, 1400, at=601)


QUERIES = ((8, 0), (13, 14), (15, 16), (17, 18))  # types of queries, and of their answers


def query(kind, id=5):
    """A query or an answer of ICMP with an identifier."""
    return Raw(bytes([kind, 0, 0, 0]) + struct.pack("!HH", id, 1) + bytes(12))


def icmp(src, dst, kind, id=5):
    message = bytearray(bytes(query(kind, id)))
    message[2:4] = struct.pack("!H", checksum(bytes(message)))
    return v4(dst, src=src, proto=1) / Raw(bytes(message))


def icmp_events():
    """ICMP errors: about flows that are there, each by a router of its own, and about what nobody sent here."""
    a, b = "10.0.1.2", "10.0.2.2"
    frame = lambda packet: ("in", bytes(ether() / packet))
    ask = lambda to, port: v4(to, src=a) / UDP(sport=4000, dport=port) / b"query"
    yield frame(ask(b, 53))
    yield frame(v4(a, src=b) / UDP(sport=53, dport=4000) / b"answer")
    # A traceroute to several hosts: the probes of the first three are here.
    for number in range(12):
        to = f"10.0.2.{100 + number}"
        if number < 3:
            yield frame(ask(to, 33434))
        for router in ("10.7.0.1", "10.7.0.2"):
            yield frame(v4(a, src=router) / ICMP(type=11) / bytes(ask(to, 33434)))
    # Another port, a packet of the answering side, a ping; the same again, after the flow is over.
    yield frame(v4(a, src="10.7.0.3") / ICMP(type=3, code=3) / bytes(ask(b, 54)))
    yield frame(v4(b, src="10.7.0.3") / ICMP(type=3, code=10) / bytes(v4(a, src=b) / UDP(sport=53, dport=4000) / b"answer"))
    yield frame(icmp(a, b, 8))
    yield frame(v4(a, src="10.7.0.4") / ICMP(type=3, code=1) / bytes(icmp(a, b, 8)))
    yield frame(v4(a, src="10.7.0.4") / ICMP(type=3, code=1) / bytes(icmp(a, b, 13)))
    yield ("in", 300, bytes(ether() / v4(a, src="10.7.0.1") / ICMP(type=11) / bytes(ask(b, 53))))
    # IPv6: behind an extension header, and in fragments, which are known by their own addresses alone.
    a, b = "fd00:1::2", "fd00:2::2"
    ask = lambda to: v6(to, src=a) / UDP(sport=4000, dport=53) / Raw(bytes(1200))
    late = lambda packet: ("in", 300, bytes(ether() / packet))
    yield late(ask(b))
    for number, to in enumerate((b, b, "fd00:2::3", "fd00:2::4", "fd00:2::5")):
        error = ICMPv6PacketTooBig(mtu=1300) / bytes(ask(to))[:200]
        options = IPv6ExtHdrDestOpt() if number % 2 else IPv6ExtHdrHopByHop() / IPv6ExtHdrDestOpt()
        yield late(v6(a, src="fd00:7::1") / options / error)
    whole = v6(a, src="fd00:7::1") / IPv6ExtHdrFragment(id=7) / ICMPv6PacketTooBig(mtu=1280) / bytes(ask(b))
    for piece in fragment6(whole, 700):
        yield late(piece)


def icmp_queries():
    """Queries of all kinds by one identifier, their answers, and those of the other side."""
    frame = lambda packet: ("in", bytes(ether() / packet))
    for asked, _ in QUERIES:
        # Hosts of their own for each kind: one query, then all answers, then all queries of the other side, and answers to them.
        a, b = f"10.0.1.{asked}", f"10.0.2.{asked}"
        yield frame(icmp(a, b, asked))
        for _, other in QUERIES:
            yield frame(icmp(b, a, other))
        for other, _ in QUERIES:
            yield frame(icmp(b, a, other))
        for _, other in QUERIES:
            yield frame(icmp(a, b, other))
    # What is no query opens nothing, and a router's advertisement is no answer to its solicitation.
    for kind in (3, 5, 9, 10, 11, 30, 42, 43):
        yield frame(icmp("10.0.1.99", "10.0.2.99", kind))
        yield frame(icmp("10.0.2.99", "10.0.1.99", kind))
    a, b = "fd00:1::2", "fd00:2::2"
    for src, dst, kind in ((a, b, 128), (b, a, 128), (b, a, 129), (a, b, 129), (b, a, 139), (a, b, 140)):
        message = v6(dst, src=src) / ICMPv6EchoRequest(type=kind, id=5, seq=1)
        yield frame(message)


def nat_queries():
    """A host inside asks; the host outside answers, and asks itself by the same identifier."""
    wan_ether = Ether(src="02:00:00:00:02:fe", dst="02:00:00:00:02:01")
    inside, outside, pool = "192.168.1.7", "198.51.100.9", "192.0.2.16"
    for asked, answer in QUERIES:
        yield "lan", bytes(ether() / icmp(inside, outside, asked))
        for kind in (0, 8, 13, 14, 15, 16, 17, 18):
            yield "wan", bytes(wan_ether / icmp(outside, pool, kind))
            # Of another host.
            yield "wan", bytes(wan_ether / icmp("198.51.100.10", pool, kind))
    # The host that is reached by an address of its own: it is asked, answers, and asks by the same identifier.
    for kind, answer in QUERIES:
        yield "wan", bytes(wan_ether / icmp(outside, "192.0.2.40", kind))
        yield "lan", bytes(ether() / icmp("192.168.1.20", outside, answer))
        yield "lan", bytes(ether() / icmp("192.168.1.20", outside, kind))
        yield "wan", bytes(wan_ether / icmp(outside, "192.0.2.40", answer))


def connection(sport, start):
    """(seconds, frame): a whole TCP connection of six segments of data."""
    answers = v4("10.0.1.2", src="10.0.2.2")
    steps = [("S", 1_000, 0, b"", 1), ("SA", 5_000, 1_001, b"", 0), ("A", 1_001, 5_001, b"", 1)]
    steps += [("PA", 1_001 + 5 * n, 5_001, b"hello", 1) for n in range(6)]
    steps += [("A", 5_001, 1_031, b"", 0), ("FA", 1_031, 5_001, b"", 1), ("FA", 5_001, 1_032, b"", 0), ("A", 1_032, 5_002, b"", 1)]
    for number, (flags, seq, ack, data, is_client) in enumerate(steps):
        ports = (80, sport) if is_client else (sport, 80)
        upper = tcp(*ports, flags=flags, seq=seq, ack=ack) / data
        yield start + number * 0.01, bytes(ether() / (v4() if is_client else answers) / upper)


def streams_filter():
    """(port, seconds, frame): a connection."""
    for when, packet in connection(4000, 0):
        yield "in", when, packet


def streams_future():
    """(port, seconds, frame): five connections, and in the middle of them a packet of the year 2096."""
    packets = sorted(packet for n in range(5) for packet in connection(4000 + n, n * 0.001))
    packets.insert(len(packets) // 2, (2_300_000_000, bytes(ether() / v4(src="10.0.1.9") / udp())))
    for when, packet in packets:
        yield "in", when, packet


def events_timestamp():
    """(port, frame): a segment with an old timestamp in front of the right one, then two that are swapped on the way."""
    def segment(is_client, flags, seq, ack, own, echo, data=b""):
        ip = v4() if is_client else v4("10.0.1.2", src="10.0.2.2")
        ports = (80, 4000) if is_client else (4000, 80)
        options = [("NOP", None), ("NOP", None), ("Timestamp", (own, echo))]
        return "in", bytes(ether() / ip / tcp(*ports, flags=flags, seq=seq, ack=ack, options=options) / data)

    yield segment(True, "S", 1_000, 0, 1_000, 0)
    yield segment(False, "SA", 5_000, 1_001, 77, 1_000)
    yield segment(True, "A", 1_001, 5_001, 1_000, 77)
    yield segment(True, "PA", 1_001, 5_001, 2_000, 77, b"abc")
    yield segment(True, "PA", 1_004, 5_001, 1, 77, b"OLD")
    yield segment(True, "PA", 1_004, 5_001, 2_001, 77, b"new")
    yield segment(False, "A", 5_001, 1_007, 78, 2_001)
    yield segment(True, "PA", 1_010, 5_001, 2_003, 78, b"def")
    yield segment(True, "PA", 1_007, 5_001, 2_002, 78, b"abc")
    yield segment(False, "A", 5_001, 1_013, 79, 2_003)
    yield segment(True, "FA", 1_013, 5_001, 2_004, 79)
    yield segment(False, "FA", 5_001, 1_014, 80, 2_004)
    yield segment(True, "A", 1_014, 5_002, 2_005, 80)


def nat64_errors():
    """(port, frame): long datagrams without a checksum, errors with labels of MPLS and with wrong checksums, an authentication header."""
    host, server, router = "2001:db8:1::7", "64:ff9b::198.51.100.9", "2001:db8:1::fe"
    lan = Ether(src="02:00:00:00:00:aa", dst="02:00:00:00:01:01")
    wan = Ether(src="02:00:00:00:00:bb", dst="02:00:00:00:02:01")
    labels = b"\x00\x08\x01\x01\x06\x40\x11\x01"
    labels = struct.pack(">BBH", 0x20, 0, checksum(b"\x20\0\0\0" + labels)) + labels

    def padded(data, unit):
        return data.ljust(max(128, -(-len(data) // unit) * unit), b"\0")

    yield "lan", bytes(lan / IPv6(src=host, dst=server, hlim=64) / UDP(sport=40_000, dport=53) / b"q")
    for size in (600, 1_400, 1_900, 2_200, 2_201):
        payload = bytes(i * 7 % 251 for i in range(size))
        ip = IP(src="198.51.100.9", dst="192.0.2.1", ttl=60, id=100 + size)
        for piece in fragment(ip / UDP(sport=53, dport=40_000, chksum=0) / payload, 400):
            yield "wan", bytes(wan / piece)
    hidden = bytes(UDP(sport=40_000, dport=53, len=8, chksum=0x1234))
    yield "lan", bytes(lan / IPv6(src=host, dst=server, nh=51) / Raw(b"\x11\x01\0\0\0\0\0\x01\0\0\0\x01" + hidden))
    for wrong in (None, 0x1234):
        answer = IPv6(src=server, dst=host, hlim=50) / UDP(sport=53, dport=40_000) / b"hello"
        yield "lan", bytes(lan / IPv6(src=router, dst=server) / ICMPv6TimeExceeded(cksum=wrong) / answer)
    for body in (b"hello", b"z" * 400, b"y" * 1_000):
        quoted = padded(bytes(IPv6(src=server, dst=host, hlim=50) / UDP(sport=53, dport=40_000) / body)[:1_000], 8)
        for kind in (ICMPv6DestUnreach, ICMPv6TimeExceeded):
            message = bytearray(bytes(IPv6(src=router, dst=server) / kind() / Raw(quoted + labels)))
            message[44] = len(quoted) // 8
            message[42:44] = b"\0\0"
            pseudo = bytes(message[8:40]) + struct.pack(">IHBB", len(message) - 40, 0, 0, 58)
            message[42:44] = struct.pack(">H", checksum(pseudo + bytes(message[40:])))
            yield "lan", bytes(lan)[:12] + b"\x86\xdd" + bytes(message)
    for body in (b"q", b"x" * 90, b"x" * 500):
        sent = IP(src="192.0.2.1", dst="198.51.100.9", ttl=3, id=5) / UDP(sport=40_000, dport=53) / body
        quoted = padded(bytes(sent)[:528], 4)
        for kind, code, mtu in ((3, 1, 0), (11, 0, 0), (12, 0, 0), (3, 4, 1_400)):
            message = struct.pack(">BBHBBH", kind, code, 0, 0, len(quoted) // 4, mtu) + quoted + labels
            sums = [checksum(message)] + ([0xDEAD] if kind == 11 else [])
            for sum in sums:
                error = message[:2] + struct.pack(">H", sum) + message[4:]
                yield "wan", bytes(wan / IP(src="203.0.113.77", dst="192.0.2.1", proto=1, ttl=60) / Raw(error))


def talk(conversations):
    """(port, seconds, frame): TCP conversations one after the other: ports, then what the client ("c") and the server ("s") say."""
    number = 0
    for sport, dport, steps in conversations:
        at = {"c": 1_000, "s": 9_000}

        def frame(who, flags, data=b""):
            nonlocal number
            other = "s" if who == "c" else "c"
            ends, ports = (("10.0.1.2", "10.0.2.2"), (sport, dport)) if who == "c" else (("10.0.2.2", "10.0.1.2"), (dport, sport))
            ack = at[other] if "A" in flags else 0
            upper = tcp(ports[1], sport=ports[0], flags=flags, seq=at[who], ack=ack) / data
            at[who] += len(data) + ("S" in flags or "F" in flags)
            number += 1
            return "in", number * 0.01, bytes(ether() / v4(ends[1], src=ends[0]) / upper)

        yield frame("c", "S")
        yield frame("s", "SA")
        yield frame("c", "A")
        for who, data in steps:
            yield frame(who, "PA", data)
            yield frame("s" if who == "c" else "c", "A")
        yield frame("c", "FA")
        yield frame("s", "FA")
        yield frame("c", "A")


def ids_absent():
    """Commands of which the first packet is complete, alone or with more behind it."""
    folder, other, ok = b"SET dir /data/.ssh\r\n", b"SET file keys and more behind it\r\n", b"+OK\r\n"
    return talk([
        (20001, 6379, [("c", folder), ("c", other), ("s", ok + ok)]),
        (20002, 6379, [("c", folder), ("s", ok), ("c", other), ("s", ok)]),
        (20003, 6379, [("c", b"SET dir /data/.ssh/authorized_keys\r\n"), ("s", ok)]),
        (20004, 7000, [("c", b"CMD one"), ("c", b" A two"), ("s", b"done")]),
        (20005, 7000, [("c", b"CMD A"), ("c", b" two"), ("s", b"done")]),
    ])


def ids_early():
    """What rules that drop look for, with more behind it, and over an answer."""
    upload = b"a line of a long upload, nothing to see\n" * 35
    return talk([
        (20001, 9001, [("c", upload), ("c", upload), ("c", b"id=4711x;"), ("c", b"more"), ("c", b"end")]),
        (20002, 9002, [("c", upload), ("c", upload), ("c", b"q=1234x;"), ("c", b"more")]),
        (20003, 9003, [("c", b"hello abc"), ("s", b"x" * 333), ("c", b"more")]),
        (20004, 9004, [("c", b"key"), ("s", b"x" * 333), ("c", b"word"), ("s", b"y" * 222), ("c", b"more")]),
    ])


# Several ports, a capture each: yields the port, perhaps the time in seconds, and the frame.
PORTS = [
    switch, switch_time, switch_pipelines, switch_stations, ndn_forwarding, ndn_store, ndn_demand, ndn_udp, ndn_nack, ndn_pending, ndn_malformed, firewall,
    firewall_switch, firewall_wire, firewall_full, firewall_reuse, nat_full, ids_full, ids_full_drop, streams_reuse, streams_one_sided, modules_stream_drop, modules_waiting, streams_filter, streams_future,
    events_timestamp, nat64_errors, firewall_classbench, nat, nat64, nat64_firewall, nat64_hairpin, nat_strangers, nat_ftp, ids_answers,
    ids_datasets, ids_dns, ids_forms, ids_fragments, ids_http1, ids_http2, ids_limit, ids_odd, ids_stream_events, ipsec, streams_share,
    ids_share, ids_absent, ids_early, ids_evasions, ids_inline_evasions, ids_lines, ids_names, ids_tag, ipsec_routes, ipsec_answers, ipsec_narrow, ipsec_fragments,
    ipsec_path, icmp_events, icmp_queries, nat_queries,
]


def write(path, records):
    out = [struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262144, 1)]
    for micros, data in records:
        at = 1_700_000_000 + micros // 1_000_000, micros % 1_000_000
        out.append(struct.pack("<4I", *at, len(data), len(data)) + data)
    path.write_bytes(b"".join(out))


def streams_cut():
    """A real capture as a snap length of 96 bytes cuts it: headers, and a little of what they carry."""
    data = (HERE.parent / "data" / "http-proxy.pcap").read_bytes()
    out, at = [data[:16] + struct.pack("<I", 96) + data[20:24]], 24
    while at < len(data):
        seconds, fraction, size, whole = struct.unpack_from("<4I", data, at)
        kept = min(size, 96)
        out.append(struct.pack("<4I", seconds, fraction, kept, whole) + data[at + 16 : at + 16 + kept])
        at += 16 + size
    folder = HERE / "streams_cut"
    folder.mkdir(exist_ok=True)
    (folder / "in.pcap").write_bytes(b"".join(out))
    print(f"streams_cut: {len(out) - 1} packets")


def by_port():
    for case in PORTS:
        folder = HERE / case.__name__
        folder.mkdir(exist_ok=True)
        ports = {}
        for number, (port, *when, data) in enumerate(case()):
            micros = round(when[0] * 1_000_000) if when else number * 1000
            ports.setdefault(port, []).append((micros, data))
        for port, records in ports.items():
            write(folder / f"{port}.pcap", records)
        print(f"{case.__name__}: {sum(map(len, ports.values()))} frames at {len(ports)} ports")


def main():
    streams_cut()
    by_port()
    for case in CASES:
        frames = [bytes(packet) for packet in case()]
        link = 105 if case is not_ethernet else 1
        out = [struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262144, link)]
        for number, frame in enumerate(frames):
            out.append(struct.pack("<4I", 1_700_000_000, number * 1000, len(frame), len(frame)) + frame)
        if case is corrupt_capture:
            # The eleventh record claims four gigabytes, and the file goes on.
            out[11] = out[11][:8] + b"\xff\xff\xff\xff" + out[11][12:]
        folder = HERE / case.__name__
        folder.mkdir(exist_ok=True)
        (folder / "in.pcap").write_bytes(b"".join(out))
        print(f"{case.__name__}: {len(frames)} packets")


if __name__ == "__main__":
    main()
