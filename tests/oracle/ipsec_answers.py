#!/usr/bin/env python3
"""What a gateway must send itself, and by which way, computed a second time with scapy's IPsec layer.

usage: ipsec_answers.py OUT ARGUMENTS…

ARGUMENTS are those of the program: `run CONFIG -r PORT=IN… -w OUT`. Each packet that came has TTL 1, is too long for its way, or is
an echo request for the router: its answer leaves sealed, plain or not at all, as the policies say of the answer, or, where none is
for an error, of a packet in answer to what it quotes (RFC 4301 §6.2). What the other end has sent is let in by the same rule.
"""

import pathlib
import sys
import tomllib

import router as routing
from ipsec import Association, fields, policy, trimmed
from router import Mismatch
from scapy.all import ICMP, IP, UDP, IPv6


def packet(source, to, upper):
    ip = (IPv6 if ":" in str(source) else IP)(src=str(source), dst=str(to))
    return bytes(ip / upper)


def action_of(config, source, to, quoted, incoming, is_error=True):
    """The policy of an ICMP message about a packet."""
    own = policy(config, packet(source, to, ICMP()), incoming)
    if own or not is_error:
        return own
    src, dst, _, ports, _ = fields(quoted)
    own = policy(config, packet(dst, src, UDP(sport=ports[1], dport=ports[0])), incoming)
    return own if own and own["action"] == "protect" else None


def answer(config, port, ip, is_opened):
    """(source, destination, type, whether sealed) of the answer to a packet; None: there is none."""
    source, to, protocol, _, _ = fields(ip)
    ttl = ip[8] if ip[0] >> 4 == 4 else ip[7]
    addresses = [own.split("/")[0] for own in config["port"][port]["addresses"]]
    every = [own.split("/")[0] for own in sum((own["addresses"] for own in config["port"].values()), [])]
    of_family = [own for own in addresses + every if (":" in own) == (":" in str(source))]
    if str(to) in every and protocol == 1:
        kind, own = 0, to
    elif ttl <= 1:
        kind, own = 11 if ip[0] >> 4 == 4 else 3, of_family[0]
    elif len(ip) > 1280:
        kind, own = 3, of_family[0]
    else:
        return None
    found = action_of(config, own, source, ip, False, kind != 0)
    if found is None and is_opened or found and found["action"] == "discard":
        return None
    return str(own), str(source), kind, bool(found)


def main():
    out, arguments = pathlib.Path(sys.argv[1]), sys.argv[2:]
    path = pathlib.Path(arguments[1])
    config = tomllib.loads(path.read_text())
    associations = {own["direction"]: Association(path.parent, own) for own in config["sa"]}
    expected, let_in = [], []
    for name in ("wan", "lan"):
        for frame in routing.frames(path.parent / f"{name}.pcap"):
            ip = trimmed(frame[14:])
            is_opened = ip[9] == 50
            ip = associations["in"].open(ip) if is_opened else ip
            found = answer(config, name, ip, is_opened)
            expected += [found] * (found is not None)
            if is_opened and ip[9] == 1 and ip[20] == 3:
                source, to, *_ = fields(ip)
                let_in += [ip] * (action_of(config, source, to, ip[28:], True) is not None)
    seen, passed = [], []
    for name in ("wan", "narrow", "lan"):
        for frame in routing.frames(out / f"{name}.pcapng"):
            ip = trimmed(frame[14:])
            is_sealed = ip[9] == 50
            ip = associations["out"].open(ip) if is_sealed else ip
            source, to, *_ = map(str, fields(ip))
            if not any(source == own.split("/")[0] for port in config["port"].values() for own in port["addresses"]):
                passed.append(ip)
                continue
            if (ip[8] if ip[0] >> 4 == 4 else ip[7]) != 64:
                raise Mismatch(f"an answer to {to} does not have the TTL of the router's own packets")
            seen.append((source, to, ip[20] if ip[0] >> 4 == 4 else ip[40], is_sealed))
    if seen != expected:
        raise Mismatch(f"answers are {seen}, not {expected}")
    if [own[12:20] + own[20:] for own in passed] != [own[12:20] + own[20:] for own in let_in]:
        raise Mismatch(f"{len(passed)} errors of the other end were let in, not {len(let_in)}, or others")
    print(f"{len(seen)} answers, {sum(own[3] for own in seen)} of them sealed; {len(passed)} errors let in")


if __name__ == "__main__":
    try:
        main()
    except Mismatch as mismatch:
        sys.exit(f"oracle: {mismatch}")
