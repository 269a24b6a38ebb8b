#!/usr/bin/env python3
"""Makes routes.txt.gz and demo.pcap from the shared data, the same bytes each time.

routes.txt.gz: a prefix stays where the SHA-256 of its text, read as a fraction of one, lies below a share of
its family, so that the mix of lengths and regions is that of the full table. The longest match of each address
in demo.pcap stays too.

demo.pcap: the packets of several captures one after another. Times are shifted so that each capture begins a
millisecond after the last one ended and no gap is longer than a millisecond. The frames are untouched.
"""

import gzip
import hashlib
import ipaddress
import pathlib
import struct

HERE = pathlib.Path(__file__).resolve().parent
DATA = HERE.parents[2] / "shared" / "data"

SHARES = {4: 0.107, 6: 0.18}

CAPTURES = [
    "pcap-mixed/zeek/var-services-std-ports.pcap",
    "pcap-mixed/zeek/wikipedia.pcap",
    "pcap-mixed/zeek/web.pcap",
    "pcap-mixed/zeek/ip6_esp.pcap",
    "pcap-mixed/zeek/ipv6-fragmented-dns.pcap",
    "pcap-mixed/zeek/ntp.pcap",
    "pcap-mixed/zeek/workshop_2011_browse.pcap",
    "pcap-mixed/zeek/mixed-vlan-mpls.pcap",
    "pcap-mixed/zeek/smtp.pcap",
    "pcap-tcp/zeek/ssh-dups.pcap",
    "pcap-l7/zeek/ftp/bigtransfer.pcap",
    "pcap-l7/zeek/http/proxy.pcap",
]
STEP_US = 1000


def routes(addresses):
    kept = {4: set(), 6: set()}
    longest = {}
    with gzip.open(DATA / "bgp/bart-prefixes-v4v6.txt.gz", "rt") as lines:
        for line in lines:
            text = line.strip()
            version = 6 if ":" in text else 4
            share = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") / 2**32
            prefix = ipaddress.ip_network(text)
            if share < SHARES[version]:
                kept[version].add(prefix)
            for address in addresses[version].get(prefix_key(prefix), ()):
                if address in prefix and longest.get(address, prefix).prefixlen <= prefix.prefixlen:
                    longest[address] = prefix
    for prefix in longest.values():
        kept[prefix.version].add(prefix)
    text = "".join(f"{prefix}\n" for version in (4, 6) for prefix in sorted(kept[version]))
    (HERE / "routes.txt.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    print(f"routes.txt.gz: {len(kept[4])} IPv4, {len(kept[6])} IPv6")


def prefix_key(network_or_address):
    """The first byte, so that few addresses are compared with each prefix."""
    address = getattr(network_or_address, "network_address", network_or_address)
    return address.packed[0]


def addresses_of(frames):
    """Source and destination addresses of the untagged IP packets, by version and first byte."""
    found = {4: {}, 6: {}}
    for frame in frames:
        spans = {b"\x08\x00": ((26, 30), (30, 34)), b"\x86\xdd": ((22, 38), (38, 54))}.get(frame[12:14], ())
        for start, end in spans:
            address = ipaddress.ip_address(frame[start:end])
            found[address.version].setdefault(prefix_key(address), set()).add(address)
    return found


def packets(path):
    """Yields (microseconds, captured bytes, original length) of an Ethernet pcap."""
    data = path.read_bytes()
    order = {b"\xd4\xc3\xb2\xa1": "<", b"\xa1\xb2\xc3\xd4": ">"}[data[:4]]
    link = struct.unpack_from(order + "I", data, 20)[0]
    assert link == 1, f"{path}: link type {link}"
    at = 24
    while at < len(data):
        seconds, micros, captured, original = struct.unpack_from(order + "4I", data, at)
        yield seconds * 1_000_000 + micros, data[at + 16 : at + 16 + captured], original
        at += 16 + captured


def demo():
    frames = []
    now = 1_700_000_000_000_000
    out = [struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262144, 1)]
    for name in CAPTURES:
        before = None
        for time, frame, original in packets(DATA / name):
            gap = STEP_US if before is None else time - before
            now += max(0, min(gap, STEP_US))
            before = time
            out.append(struct.pack("<4I", now // 1_000_000, now % 1_000_000, len(frame), original))
            out.append(frame)
            frames.append(frame)
    (HERE / "demo.pcap").write_bytes(b"".join(out))
    print(f"demo.pcap: {len(frames)} packets")
    return frames


if __name__ == "__main__":
    routes(addresses_of(demo()))
