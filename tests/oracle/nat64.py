#!/usr/bin/env python3
"""Whether IPv6 hosts reach each other by outside addresses as RFC 6146 §3.8 demands, checked with scapy.

usage: nat64.py OUT ARGUMENTS…

ARGUMENTS are those of the program: `run CONFIG -r lan=IN -r wan=IN -w OUT`. Packets are known again by their payload. Every
checksum of what leaves is computed anew. What leaves towards IPv4 says which outside end each inside end has. A packet of one
inside host to the outside end of another one must reach that one, from the sender's outside end in the prefix that it wrote to,
with a hop limit less by one, and nobody else may get one. Errors quote what their receiver has sent; echo replies of the router
are the requests turned round.
"""

import ipaddress
import pathlib
import sys
import tomllib

from scapy.all import (
    ICMP, IP, TCP, UDP, Ether, ICMPv6DestUnreach, ICMPv6EchoReply, ICMPv6EchoRequest, ICMPv6PacketTooBig,
    ICMPv6TimeExceeded, IPv6,
)

import router as routing
from router import Mismatch

ERRORS = (ICMPv6DestUnreach, ICMPv6PacketTooBig, ICMPv6TimeExceeded)


def packets(path, reader=routing.frames):
    frames = [Ether(frame) for frame in reader(path)]
    return [frame[layer] for frame in frames for layer in (IP, IPv6) if isinstance(frame.payload, layer)]


def check(ip):
    """The checksum of the upper layer, computed anew."""
    fresh = ip.__class__(bytes(ip))
    for field in ("chksum", "cksum"):
        old = fresh.payload.getfieldval(field) if hasattr(fresh.payload, field) else None
        if old is None:
            continue
        delattr(fresh.payload, field)
        new = getattr(fresh.__class__(bytes(fresh)).payload, field)
        if new != old:
            raise Mismatch(f"{ip.summary()}: checksum {old:#x}, must be {new:#x}")
        return
    raise Mismatch(f"{ip.summary()} has no checksum")


def known(ip):
    """Source and destination with ports or identifier, and the payload."""
    for layer in (TCP, UDP):
        if isinstance(ip.payload, layer):
            return (ip.src, ip[layer].sport), (ip.dst, ip[layer].dport), bytes(ip[layer].payload)
    if isinstance(ip.payload, (ICMPv6EchoRequest, ICMPv6EchoReply)):
        return (ip.src, ip.payload.id), (ip.dst, ip.payload.id), bytes(ip.payload.data)
    if isinstance(ip.payload, ICMP):
        return (ip.src, ip[ICMP].id), (ip.dst, ip[ICMP].id), bytes(ip[ICMP].payload)
    return None


def main():
    out, arguments = pathlib.Path(sys.argv[1]), sys.argv[2:]
    text = tomllib.loads(pathlib.Path(arguments[1]).read_text())
    prefixes = [ipaddress.ip_network(rule.get("prefix", "64:ff9b::/96")) for rule in text["nat"]]
    own = {str(ipaddress.ip_interface(a).ip) for port in text["port"].values() for a in port["addresses"]}
    held = lambda address: next((p for p in prefixes if ipaddress.ip_address(address) in p), None)
    four = lambda address: str(ipaddress.IPv4Address(int(ipaddress.ip_address(address)) & 0xFFFFFFFF))
    came = {}
    for at, argument in enumerate(arguments):
        if argument == "-r":
            name, _, path = arguments[at + 1].rpartition("=")
            came[name] = packets(pathlib.Path(path))
    left = {name: packets(out / f"{name}.pcapng") for name in came}
    for ip in left["lan"] + left["wan"]:
        check(ip)
    sent = {known(ip)[2]: ip for ip in came["lan"] if known(ip)}
    ends = {}
    for ip in left["wan"]:
        src, dst, payload = known(ip)
        was = known(sent[payload])
        ends[was[0], was[1][0].startswith("64:")] = src
        if dst[0] != four(was[1][0]) or (UDP in ip or TCP in ip) and dst[1] != was[1][1]:
            raise Mismatch(f"{ip.summary()} goes elsewhere than {sent[payload].summary()}")
    inside = {end: host for (host, _), end in ends.items()}
    turned, answers, errors = {}, 0, 0
    for ip in left["lan"]:
        if any(isinstance(ip.payload, layer) for layer in ERRORS):
            quoted = IPv6(bytes(ip.payload)[8:])
            if quoted.src != ip.dst or not any((x.src, x.dst) == (quoted.src, quoted.dst) and known(x)[:2] == known(quoted)[:2] for x in came["lan"] if known(x)):
                raise Mismatch(f"{ip.summary()} quotes {quoted.summary()}, which {ip.dst} has not sent")
            errors += 1
            continue
        src, dst, payload = known(ip)
        was = sent.get(payload)
        if was is None:
            continue  # from the outside
        was_src, was_dst, _ = known(was)
        if isinstance(ip.payload, ICMPv6EchoReply):
            if four(was_dst[0]) not in own or (src, dst) != (was_dst, was_src) or ip.payload.seq != was.payload.seq:
                raise Mismatch(f"{ip.summary()} does not answer {was.summary()}")
            answers += 1
            continue
        prefix = held(was_dst[0])
        end = (four(was_dst[0]), was_dst[1])
        host = inside.get(end) or next((h for h, e in turned.items() if e == end), None)
        if prefix is None or host is None or dst[0] != host[0] or (ICMPv6EchoRequest not in ip and dst[1] != host[1]):
            raise Mismatch(f"{ip.summary()} is not for whom {was.summary()} was")
        if held(src[0]) != prefix or ip.hlim != was.hlim - 1:
            raise Mismatch(f"{ip.summary()} does not come from an outside end in {prefix}, or has a wrong hop limit")
        own_end = (four(src[0]), src[1])
        expected = ends.get((was_src, was_dst[0].startswith("64:")), own_end)
        if own_end != expected or turned.setdefault(was_src, own_end) != own_end:
            raise Mismatch(f"{ip.summary()}: the outside end of {was_src} is {expected}")
    if not turned or not answers or not errors:
        raise Mismatch(f"{len(turned)} inside ends, {answers} answers, {errors} errors: each must be there")
    print(f"{len(turned)} inside ends reached others, {answers} answers, {errors} errors, all as they must be")


if __name__ == "__main__":
    try:
        main()
    except Mismatch as mismatch:
        sys.exit(f"oracle: {mismatch}")
