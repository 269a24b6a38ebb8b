#!/usr/bin/env python3
"""Makes the crafted input captures of the golden cases: CASE/in.pcap, the same bytes each time.

Run with the interpreter of .venv, which has scapy. Real captures stand in tests/data instead.
"""

import logging
import pathlib
import struct

logging.getLogger("scapy").setLevel(logging.ERROR)

from scapy.all import (  # noqa: E402
    ARP, ICMP, IP, TCP, UDP, Dot1AD, Dot1Q, Ether, ICMPv6EchoRequest, ICMPv6TimeExceeded, IPOption_LSRR,
    IPOption_NOP, IPOption_RR, IPv6, IPv6ExtHdrDestOpt, IPv6ExtHdrFragment, IPv6ExtHdrHopByHop, Raw,
)
from scapy.utils import checksum  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
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
    yield raw + bytes(20)  # padding is no error, and is not forwarded
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


CASES = [
    bad_ipv4, bad_ttl, bad_addresses, routes, fragmentation, extension_headers, vlans, reverse_path, icmp_rate, arp,
    ecmp, corrupt_capture, not_ethernet,
]


def main():
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
