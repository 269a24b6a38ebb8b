#!/usr/bin/env python3
"""What a gateway must do with each packet, computed a second time with scapy's IPsec layer.

usage: ipsec.py OUT ARGUMENTS…

ARGUMENTS are those of the program: `run CONFIG -r PORT=IN… -w OUT`. Keys, associations and policies are those of the
configuration. Every ESP packet that leaves is opened by scapy and must hold the packet that came, byte for byte, with the
headers of RFC 4301, RFC 6040 and RFC 3948 around it and numbers that follow one another. Every ESP packet that came is opened by
scapy, passes a plain replay window and the policies, and must leave as what was inside.
"""

import ipaddress
import pathlib
import struct
import sys
import tomllib

import router as routing
from cryptography.hazmat.primitives.ciphers import algorithms, modes
from router import Mismatch
from scapy.all import IP, UDP, IPv6
from scapy.layers.ipsec import ESP, CryptAlgo, SecurityAssociation

CRYPT = {"cbc": "AES-CBC", "ctr": "AES-CTR", "gcm": "AES-GCM", "gmac": "AES-NULL-GMAC"}
AUTH = {
    "none": "NULL", "hmac-sha1-96": "HMAC-SHA1-96", "hmac-sha256-128": "SHA2-256-128", "hmac-sha384-192": "SHA2-384-192",
    "hmac-sha512-256": "SHA2-512-256",
}


def shortened(association, cipher):
    """The same with the check value of AES-GCM as short as `aes-…-gcm-8` says. scapy's own class cannot: it seals with 16 bytes always."""
    icv = cipher.rpartition("-gcm-")[2]
    if icv.isdigit():
        association.crypt_algo = CryptAlgo(
            "AES-GCM", algorithms.AES, modes.GCM, block_size=1, iv_size=8, key_size=(16, 24, 32), icv_size=int(icv), salt_size=4,
            format_mode_iv=lambda sa, iv, **_: sa.crypt_salt + iv,
        )
    return association


class Association:
    def __init__(self, folder, table):
        self.table = table
        self.spi, self.reqid = table["spi"], table["reqid"]
        self.source, self.destination = table["source"], table["destination"]
        self.is_tunnel = table.get("mode", "tunnel") == "tunnel"
        self.udp = table.get("udp", False)
        cipher, auth = table.get("encryption", "aes-128-gcm"), table.get("authentication", "none")
        lines = [bytes.fromhex(line) for line in (folder / table["key_file"]).read_text().split()]
        crypt = cipher.upper() if cipher in ("null", "chacha20-poly1305") else CRYPT[cipher.split("-")[2]]
        header = (IPv6 if ":" in self.source else IP)(src=self.source, dst=self.destination)
        self.scapy = shortened(SecurityAssociation(
            ESP, spi=self.spi, crypt_algo=crypt, crypt_key=None if cipher == "null" else lines[0], auth_algo=AUTH[auth],
            auth_key=None if auth == "none" else lines[-1], tunnel_header=header if self.is_tunnel else None,
            nat_t_header=UDP(sport=4500, dport=4500) if self.udp else None, esn_en=table.get("esn", False), esn=0,
        ), cipher)
        self.sent, self.seen = 0, set()

    def open(self, ip):
        """What is in an ESP packet: bytes of an IP packet."""
        opened = self.scapy.decrypt((IP if ip[0] >> 4 == 4 else IPv6)(ip))
        return trimmed(bytes(opened))

    def accepts(self, number):
        """A window of 64 numbers, as a set."""
        fresh = number > max(self.seen, default=0) - 64 and number not in self.seen
        if fresh:
            self.seen.add(number)
        return fresh


def trimmed(ip):
    return ip[: struct.unpack("!H", ip[2:4])[0]] if ip[0] >> 4 == 4 else ip[: 40 + struct.unpack("!H", ip[4:6])[0]]


def fields(ip):
    """Source, destination, protocol, ports, fragment."""
    if ip[0] >> 4 == 4:
        fragment = struct.unpack("!H", ip[6:8])[0] & 0x3FFF
        ends, protocol, upper = (ip[12:16], ip[16:20]), ip[9], ip[(ip[0] & 15) * 4 :]
    else:
        fragment, ends, protocol, upper = 0, (ip[8:24], ip[24:40]), ip[6], ip[40:]
        while protocol in (0, 60):
            protocol, upper = upper[0], upper[(upper[1] + 1) * 8 :]
    ports = struct.unpack("!HH", upper[:4]) if protocol in (6, 17) and not fragment else None
    return *map(ipaddress.ip_address, ends), protocol, ports, fragment


def tunnel(config, address):
    """`if_id` of the tunnel interface that the longest prefix of an address leads to, or None."""
    matches = [own for own in config.get("route", []) if address in ipaddress.ip_network(own["prefix"])]
    best = max(matches, key=lambda own: ipaddress.ip_network(own["prefix"]).prefixlen, default={})
    near = [port for port in config["port"].values() for own in port["addresses"] if address in ipaddress.ip_interface(own).network]
    return None if near else config["port"].get(best.get("via"), {}).get("if_id")


def policy(config, ip, incoming, if_id=None):
    for own in config.get("policy", []):
        direction = own.get("direction", "both")
        if own.get("if_id") != if_id or direction == ("out" if incoming else "in"):
            continue
        source, destination, protocol, ports, _ = fields(ip)
        if incoming and direction == "both":
            source, destination, ports = destination, source, ports and ports[::-1]
        holds = lambda key, address: key not in own or address in ipaddress.ip_network(own[key])
        if not holds("source", source) or not holds("destination", destination):
            continue
        if "protocol" in own and {"icmp": 1, "tcp": 6, "udp": 17}[own["protocol"]] != protocol:
            continue
        if "destination_port" in own and (not ports or ports[1] != own["destination_port"]):
            continue
        return own
    return None


def traffic_class(ip):
    return ip[1] if ip[0] >> 4 == 4 else struct.unpack("!H", ip[:2])[0] >> 4 & 0xFF


def lowered(ip):
    """TTL or hop limit down by one."""
    if ip[0] >> 4 == 6:
        return ip[:7] + bytes([ip[7] - 1]) + ip[8:]
    header = IP(ip[: (ip[0] & 15) * 4])
    header.ttl -= 1
    del header.chksum
    return bytes(header) + ip[(ip[0] & 15) * 4 :]


def congested(ip):
    """The inner packet behind an outer header that says CE (RFC 6040 figure 4)."""
    ecn = ip[1] & 3
    if ecn == 0:
        return None
    header = IP(ip[: (ip[0] & 15) * 4])
    header.tos |= 3
    del header.chksum
    return bytes(header) + ip[(ip[0] & 15) * 4 :]


def esp_of(ip):
    """Where ESP begins, and whether it is in UDP; None for other packets."""
    protocol, at = (ip[9], (ip[0] & 15) * 4) if ip[0] >> 4 == 4 else (ip[6], 40)
    while ip[0] >> 4 == 6 and protocol in (0, 60):
        protocol, at = ip[at], at + (ip[at + 1] + 1) * 8
    if protocol == 17 and ip[at + 2 : at + 4] == b"\x11\x94" and ip[at + 8 : at + 12] != bytes(4):
        return at + 8, True
    return (at, False) if protocol == 50 else None


def sent(config, associations, ip):
    """What becomes of a packet from inside: (port, kind, …)."""
    if_id = tunnel(config, fields(ip)[1])
    own = policy(config, ip, False, if_id)
    action = own["action"] if own else "bypass"
    has_policies = any(own.get("if_id") == if_id for own in config.get("policy", []))
    if if_id:
        own, action = (own or {}, action if has_policies else "protect")
        if action != "protect":
            return None
    ttl = ip[8] if ip[0] >> 4 == 4 else ip[7]
    if action == "discard":
        return None
    if action == "bypass":
        return "wan", "plain", lowered(ip)
    if ttl <= 1:
        return "lan", "error", 11, ip
    out = next(sa for sa in associations if sa.reqid == own.get("reqid", sa.reqid) and sa.table["direction"] == "out" and sa.table.get("if_id") == if_id)
    if fields(ip)[4] and not out.is_tunnel:
        return None
    may_not = ip[0] >> 4 == 6 or ip[6] & 0x40
    if len(ip) > 1400 and may_not:
        return "lan", "error", 3 if ip[0] >> 4 == 4 else 2, ip
    return "wan", "esp", out, lowered(ip)


def received(config, associations, addresses, ip):
    """What becomes of a packet from outside."""
    place = esp_of(ip)
    to = str(fields(ip)[1])
    if place is None or len(ip) - place[0] < 8:
        own = policy(config, ip, True)
        if to in addresses or place or (own and own["action"] != "bypass"):
            return None
        return "lan", "plain", lowered(ip)
    at, in_udp = place
    spi, number = struct.unpack("!II", ip[at : at + 8])
    sa = next((sa for sa in associations if sa.spi == spi and sa.destination == to), None)
    if sa is None:
        return None if to in addresses else ("lan", "plain", lowered(ip))
    if sa.udp != in_udp:
        return None
    try:
        inner = sa.open(ip)
    except Exception:  # noqa: BLE001 scapy raises several kinds
        return None
    if not sa.accepts(number):
        return None
    if sa.is_tunnel and traffic_class(ip) & 3 == 3:
        inner = congested(inner)
        if inner is None:
            return None
    if_id = sa.table.get("if_id")
    own = policy(config, inner, True, if_id)
    if if_id:
        interface = next((port for port in config["port"].values() if port.get("if_id") == if_id), None)
        has_policies = any(own.get("if_id") == if_id for own in config.get("policy", []))
        rules = [own for own in config.get("rule", []) if config["port"][own["in"]] is interface]
        if interface is None or tunnel(config, fields(inner)[0]) != if_id:
            return None
        if has_policies and (not own or own.get("reqid") != sa.reqid):
            return None
        if any(fields(inner)[3] and fields(inner)[3][1] == own["dport"] for own in rules):
            return None
        return sent(config, associations, inner) if tunnel(config, fields(inner)[1]) else ("lan", "plain", lowered(inner))
    if not own or own.get("reqid") != sa.reqid:
        return None
    return "lan", "plain", lowered(inner)


def whole(frames):
    """IP packets of frames; fragments that follow one another become their packet."""
    out, parts, six = [], [], {}
    for frame in frames:
        ip = trimmed(frame[14:])
        if ip[0] >> 4 == 6 and ip[6] == 44:
            out += joined_v6(six, ip)
            continue
        fragment = struct.unpack("!H", ip[6:8])[0] if ip[0] >> 4 == 4 else 0
        if not fragment & 0x3FFF:
            out.append(ip)
            continue
        parts.append(ip)
        offset = lambda own: struct.unpack("!H", own[6:8])[0] & 0x1FFF
        parts.sort(key=offset)
        ends = [offset(own) * 8 + len(own) - 20 for own in parts]
        joined = all(end == offset(own) * 8 for end, own in zip([0, *ends], parts))
        if joined and not struct.unpack("!H", parts[-1][6:8])[0] & 0x2000:
            header = IP(parts[0][:20])
            header.flags, header.frag, header.len = 0, 0, 20 + sum(len(own) - 20 for own in parts)
            del header.chksum
            out.append(bytes(header) + b"".join(own[20:] for own in parts))
            parts = []
    return out


def joined_v6(known, ip):
    """The packet of IPv6 that a fragment makes whole, if it does (RFC 8200 §4.5). `known`: parts by ends and identification; None: whole."""
    protocol, _, place, number = struct.unpack("!BBHI", ip[40:48])
    ends = ip[8:40], number
    parts = known.setdefault(ends, [])
    if parts is None:
        raise Mismatch(f"two packets with the identification {number:#x}")
    if len(ip) > 1280 or place & 1 and len(ip) % 8:
        raise Mismatch(f"a fragment of {len(ip)} bytes")
    parts.append((place & ~7, place & 1, ip[48:]))
    parts.sort()
    payload = b"".join(own for _, _, own in parts)
    if any(at + len(own) != after for (at, _, own), (after, _, _) in zip(parts, parts[1:])) or parts[0][0] or parts[-1][1]:
        return []
    known[ends] = None
    return [ip[:4] + struct.pack("!HB", len(payload), protocol) + ip[7:40] + payload]


def judge(number, port, expected, ip, counts):
    def wrong(what):
        raise Mismatch(f"{port}: packet {number}: {what}: {(IP if ip[0] >> 4 == 4 else IPv6)(ip).summary()}")

    kind, *rest = expected
    counts[kind] = counts.get(kind, 0) + 1
    if kind == "plain" and ip != rest[0]:
        wrong(f"not the packet that was expected, {rest[0].hex()}, but {ip.hex()}")
    if kind == "error":
        quoted = rest[1][:28]
        if quoted[12:20] not in ip or rest[0] not in (ip[20], ip[40]):
            wrong(f"not the error {rest[0]}")
    if kind == "esp":
        sa, inner = rest
        at, in_udp = esp_of(ip) or wrong("no ESP")
        spi, sequence = struct.unpack("!II", ip[at : at + 8])
        sa.sent += 1
        if (spi, sequence, in_udp) != (sa.spi, sa.sent, sa.udp):
            wrong(f"SPI {spi:#x} and number {sequence}, not {sa.spi:#x} and {sa.sent}")
        if (str(fields(ip)[0]), str(fields(ip)[1])) != (sa.source, sa.destination):
            wrong("not between the ends")
        opened = sa.open(ip)
        if sa.is_tunnel:
            if traffic_class(ip) != traffic_class(inner):
                wrong("another traffic class")
            if (ip[8] if ip[0] >> 4 == 4 else ip[7]) != 64:
                wrong("TTL is not 64")
            if len(ip) < sa.table.get("pad_to", 0):
                wrong("too short for its padding")
        if opened != inner:
            wrong(f"holds {opened.hex()}, not {inner.hex()}")


def main():
    out, arguments = pathlib.Path(sys.argv[1]), sys.argv[2:]
    path = pathlib.Path(arguments[1])
    config = tomllib.loads(path.read_text())
    associations = [Association(path.parent, table) for table in config["sa"]]
    addresses = [own.split("/")[0] for port in config["port"].values() for own in port["addresses"]]
    came = {}
    for at, argument in enumerate(arguments):
        if argument == "-r":
            name, _, capture = arguments[at + 1].rpartition("=")
            came[name] = [frame[14:] for frame in routing.frames(pathlib.Path(capture))]
    expected = {"lan": [], "wan": []}
    all = [sent(config, associations, trimmed(ip)) for ip in came["lan"]]
    all += [received(config, associations, addresses, ip) for ip in whole(bytes(14) + ip for ip in came["wan"])]
    errors = []
    for own in filter(None, all):
        (errors if own[1] == "error" else expected[own[0]]).append(own[1:])
    counts = {}
    for port, all in expected.items():
        left = whole(routing.frames(out / f"{port}.pcapng"))
        is_error = lambda ip: (ip[9] == 1 and ip[20] in (3, 11)) if ip[0] >> 4 == 4 else (ip[6] == 58 and ip[40] < 128)
        if port == "lan":
            told = [ip for ip in left if is_error(ip)]
            left = [ip for ip in left if not is_error(ip)]
            if len(told) != len(errors):
                raise Mismatch(f"{len(told)} errors, not {len(errors)}")
            for number, (own, ip) in enumerate(zip(errors, told), 1):
                judge(number, "errors", own, ip, counts)
        for number, (own, ip) in enumerate(zip(all, left), 1):
            judge(number, port, own, ip, counts)
        if len(left) != len(all):
            raise Mismatch(f"{port}: {len(left)} packets, not {len(all)}")
    print(", ".join(f"{count} {kind}" for kind, count in counts.items()), "packets, all as they must be")


if __name__ == "__main__":
    try:
        main()
    except Mismatch as mismatch:
        sys.exit(f"oracle: {mismatch}")
