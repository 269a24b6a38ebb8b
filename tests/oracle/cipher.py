#!/usr/bin/env python3
"""What an encryption stage must do with each packet, computed a second time with Python's `cryptography`.

usage: cipher.py OUT ARGUMENTS…

ARGUMENTS are those of the program: `run CONFIG -r PORT=IN… -w OUT`. A pipeline has one stage that encrypts, and then perhaps
one that decrypts. Keys, initialisation vectors and payload are computed anew, byte for byte. A checksum that was right must be
right, and one that was wrong must be wrong by as much: the one's complement sum of what it covers stays.
"""

import hmac
import pathlib
import struct
import sys
import tomllib

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

import router as routing
from router import Mismatch

try:
    from cryptography.hazmat.decrepit.ciphers.modes import CFB, OFB
except ImportError:
    CFB, OFB = modes.CFB, modes.OFB

TAGS = (0x8100, 0x88A8, 0x9100)


def ecb(key, block):
    encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    return encryptor.update(block) + encryptor.finalize()


def expand(master, info, length):
    """HKDF with SHA-256 (RFC 5869), by its definition."""
    key = hmac.digest(b"shadeline cipher", master, "sha256")
    out, last = b"", b""
    while len(out) < length:
        last = hmac.digest(key, last + info + bytes([len(out) // 32 + 1]), "sha256")
        out += last
    return out[:length]


def ghash(key, beside, text):
    """Galois' hash: a tag of AES-GCM whose ciphertext is `text`, without its mask."""
    nonce, gcm = bytes(12), AESGCM(key)
    stream = gcm.encrypt(nonce, bytes(len(text)), b"")[: len(text)]
    plain = bytes(a ^ b for a, b in zip(text, stream))
    tag = gcm.encrypt(nonce, plain, beside)[-16:]
    mask = ecb(key, nonce + struct.pack("!I", 1))
    return bytes(a ^ b for a, b in zip(tag, mask))


class Stage:
    def __init__(self, folder, table):
        _, bits, self.mode = table.get("algorithm", "aes-128-gcm").split("-")
        self.key_len = int(bits) // 8
        self.label = f"AES-{bits}-{self.mode.upper()}".encode()
        self.key = bytes.fromhex((folder / table["key_file"]).read_text().strip())
        self.is_static = table.get("keys") == "static"
        self.is_carried = table.get("iv", "carried") == "carried" and self.mode != "ecb"
        self.is_padded = self.mode in ("ecb", "cbc") and table.get("padding", "pkcs7") == "pkcs7"
        self.iv_len = {"ecb": 0, "gcm": 12}.get(self.mode, 16)
        self.mtu = table.get("mtu", 1500)

    def encrypt(self, name, number, text):
        made = expand(self.key, self.label + b"\0" + (b"static" if self.is_static else name), 64)
        key, vector, hashing = self.key if self.is_static else made[: self.key_len], made[32:48], made[48:]
        if self.is_carried:
            iv = ecb(vector, ghash(hashing, name, text))[: self.iv_len]
        else:
            iv = ecb(vector, ghash(hashing, name + struct.pack("!Q", number), b""))[: self.iv_len]
        front = iv if self.is_carried else b""
        if self.is_padded:
            count = 16 - len(text) % 16
            text += bytes([count]) * count
        if self.mode == "gcm":
            return front + AESGCM(key).encrypt(iv, text, b"")
        mode = {"ecb": lambda _: modes.ECB(), "cbc": modes.CBC, "ctr": modes.CTR, "cfb": CFB, "ofb": OFB}[self.mode](iv)
        encryptor = Cipher(algorithms.AES(key), mode).encryptor()
        return front + encryptor.update(text) + encryptor.finalize()


def u16(data, at):
    return struct.unpack_from("!H", data, at)[0]


class Parsed:
    """The payload of a frame, if it is TCP or UDP."""

    def __init__(self, frame):
        self.frame, self.payload, self.is_fragment, self.proto = frame, None, False, None
        at = 12
        while u16(frame, at) in TAGS:
            at += 4
        kind, self.l3 = u16(frame, at), at + 2
        l3 = self.l3
        if kind == 0x0800:
            self.version, self.l4 = 4, l3 + (frame[l3] & 15) * 4
            self.l3_end, self.proto = l3 + u16(frame, l3 + 2), frame[l3 + 9]
            self.is_fragment = u16(frame, l3 + 6) & 0x3FFF != 0
            self.src, self.dst = frame[l3 + 12 : l3 + 16], frame[l3 + 16 : l3 + 20]
        elif kind == 0x86DD:
            self.version, self.l4, self.l3_end = 6, l3 + 40, l3 + 40 + u16(frame, l3 + 4)
            self.proto = frame[l3 + 6]
            self.src, self.dst = frame[l3 + 8 : l3 + 24], frame[l3 + 24 : l3 + 40]
            while self.proto in (0, 43, 60, 44):
                if self.proto == 44:
                    self.is_fragment = u16(frame, self.l4 + 2) & 0xFFF9 != 0
                step = 8 if self.proto == 44 else 8 * (frame[self.l4 + 1] + 1)
                self.proto, self.l4 = frame[self.l4], self.l4 + step
        if self.proto not in (6, 17) or self.is_fragment:
            return
        self.at = self.l4 + (8 if self.proto == 17 else (frame[self.l4 + 12] >> 4) * 4)
        self.end = self.l4 + u16(frame, self.l4 + 4) if self.proto == 17 else self.l3_end
        self.payload = frame[self.at : self.end]

    def name(self):
        addresses = b"".join(bytes(12) + a if len(a) == 4 else a for a in (self.src, self.dst))
        return bytes([self.version, self.proto]) + addresses + self.frame[self.l4 : self.l4 + 4]

    def number(self):
        if self.proto == 6:
            return 1 << 32 | struct.unpack_from("!I", self.frame, self.l4 + 4)[0]
        return 2 << 32 | u16(self.frame, self.l3 + 4) if self.version == 4 else 3 << 32

    def checksum_at(self):
        return self.l4 + (16 if self.proto == 6 else 6)

    def sums(self):
        """One's complement sums of what the checksums cover, modulo 65,535."""

        def total(data):
            data += bytes(len(data) % 2)
            return sum(struct.unpack(f"!{len(data) // 2}H", data)) % 0xFFFF

        header = total(self.frame[self.l3 : self.l3 + (self.frame[self.l3] & 15) * 4]) if self.version == 4 else 0
        whole = self.frame[self.l4 : self.end]
        return header, (total(self.src + self.dst) + self.proto + len(whole) + total(whole)) % 0xFFFF

    def without_checksums(self):
        data = bytearray(self.frame)
        if self.version == 4:
            data[self.l3 + 10 : self.l3 + 12] = b"\0\0"
        data[self.checksum_at() : self.checksum_at() + 2] = b"\0\0"
        return bytes(data)


def with_payload(packet, payload):
    """The frame with another payload and its lengths; checksums as they were."""
    data = bytearray(packet.frame[: packet.at] + payload + packet.frame[packet.end :])
    longer = len(payload) - len(packet.payload)
    fields = [packet.l3 + (2 if packet.version == 4 else 4)] + ([packet.l4 + 4] if packet.proto == 17 else [])
    for field in fields:
        struct.pack_into("!H", data, field, u16(data, field) + longer)
    return bytes(data)


def expected(stages, frame):
    """The frame that must leave, or the reason why it is dropped; and whether its payload is another one."""
    packet = Parsed(frame)
    if packet.proto in (6, 17) and packet.is_fragment:
        return None, "cipher_fragment", packet
    if not packet.payload:
        return frame, None, packet
    first = stages[0]
    if first.mode in ("ecb", "cbc") and not first.is_padded and len(packet.payload) % 16:
        return None, "cipher_not_whole", packet
    made = first.encrypt(packet.name(), packet.number(), packet.payload)
    if len(made) > len(packet.payload) and packet.l3_end - packet.l3 + len(made) - len(packet.payload) > first.mtu:
        return None, "cipher_mtu", packet
    if len(stages) > 1:
        return (frame, None, packet) if stages[1].key == first.key else (None, "cipher_not_genuine", packet)
    return with_payload(packet, made), None, packet


def main():
    out, arguments = pathlib.Path(sys.argv[1]), sys.argv[2:]
    config = pathlib.Path(arguments[1])
    table = tomllib.loads(config.read_text())
    ports = list(table["port"])
    came = {}
    for at, argument in enumerate(arguments):
        if argument == "-r":
            port, _, path = arguments[at + 1].rpartition("=")
            came.setdefault(port, []).append(pathlib.Path(path))
    dropped = sorted((comment.split(":")[0].split()[0], frame) for frame, comment in routing.comments(out / "dropped.pcapng"))
    wanted_drops, encrypted = [], 0
    for port, paths in came.items():
        pipeline = table["pipeline"][table["port"][port].get("pipeline", table["mode"])]
        stages = [Stage(config.parent, table["stage"][name]) for name in pipeline["stages"] if name != "wire"]
        left = sorted(routing.frames(out / f"{ports[ports.index(port) ^ 1]}.pcapng"))
        wanted = []
        for frame in (frame for path in paths for frame in routing.frames(path)):
            made, reason, packet = expected(stages, frame)
            if reason:
                wanted_drops.append(reason)
            else:
                wanted.append((made, packet))
        if len(left) != len(wanted):
            raise Mismatch(f"{port}: {len(left)} packets left, {len(wanted)} must")
        by_bytes = {}
        for frame in left:
            key = Parsed(frame)
            by_bytes.setdefault(frame if not key.payload else key.without_checksums(), []).append(frame)
        for made, packet in wanted:
            key = made if not packet.payload else Parsed(made).without_checksums()
            if not by_bytes.get(key):
                raise Mismatch(f"{port}: no packet {made.hex()} left")
            frame = by_bytes[key].pop()
            if packet.payload:
                encrypted += frame != packet.frame
                found = Parsed(frame)
                at, was = found.checksum_at(), packet.checksum_at()
                if packet.proto == 17 and packet.frame[was : was + 2] == b"\0\0":
                    if frame[at : at + 2] != b"\0\0":
                        raise Mismatch(f"{port}: a checksum where none was")
                    if found.sums()[0] != packet.sums()[0]:
                        raise Mismatch(f"{port}: checksum of the IP header of {frame.hex()}")
                elif found.sums() != packet.sums():
                    raise Mismatch(f"{port}: checksums of {frame.hex()}")
    if sorted(wanted_drops) != [reason for reason, _ in dropped]:
        raise Mismatch(f"dropped for {[reason for reason, _ in dropped]}, must be {sorted(wanted_drops)}")
    print(f"{encrypted} packets encrypted, {len(dropped)} dropped, all as they must be")


if __name__ == "__main__":
    try:
        main()
    except Mismatch as mismatch:
        sys.exit(f"oracle: {mismatch}")
