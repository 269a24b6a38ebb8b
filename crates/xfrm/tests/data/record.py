"""Records messages of NETLINK_XFRM: what `ip xfrm` sends, and what the kernel answers and announces.

    unshare -n python3 record.py SHIM.so > messages.txt

SHIM.so is testkit/shim/netlink_xfrm.c. A line is `# COMMAND`, or a message with its header: `request HEX` (from ip),
`answer HEX` (to ip) or `event HEX` (multicast). The kernel that this was recorded with has no ESP: it refuses associations
with keys, so their requests are here and no answers about them.
"""

import os
import select
import socket
import struct
import subprocess
import sys
import tempfile

NETLINK_XFRM = 6
A, B = "192.0.2.1", "198.51.100.2"
K = {n: "0x" + bytes(range(1, n + 1)).hex() for n in (16, 20, 24, 28, 32, 36, 48, 64)}
SA = f"src {A} dst {B} proto esp spi"
SEL = "src 10.1.0.0/16 dst 10.2.0.0/16"
TMPL = f"tmpl src {A} dst {B} proto esp reqid 7 mode tunnel"
COMMANDS = [
    # Associations
    f"state add {SA} 0x101 reqid 7 mode tunnel enc cbc(aes) {K[16]} auth-trunc hmac(sha256) {K[32]} 128",
    f"state add {SA} 0x102 reqid 7 mode transport enc rfc3686(ctr(aes)) {K[20]} auth hmac(sha1) {K[20]}",
    f"state add {SA} 0x103 mode tunnel aead rfc4106(gcm(aes)) {K[36]} 128 flag esn replay-window 128",
    f"state add {SA} 0x104 mode tunnel aead rfc4106(gcm(aes)) {K[20]} 64 replay-window 32 flag noecn decap-dscp nopmtudisc",
    f"state add {SA} 0x105 mode tunnel aead rfc7539esp(chacha20,poly1305) {K[36]} 128",
    f"state add {SA} 0x106 mode tunnel aead rfc4543(gcm(aes)) {K[28]} 128",
    f"state add {SA} 0x107 mode tunnel enc ecb(cipher_null) - auth-trunc hmac(sha512) {K[64]} 256",
    f"state add {SA} 0x108 mode tunnel enc cbc(aes) {K[32]} auth-trunc hmac(sha384) {K[48]} 192 "
    "encap espinudp 4500 4501 203.0.113.9",
    f"state add {SA} 0x109 mode tunnel enc cbc(des3_ede) {K[24]} auth hmac(md5) {K[16]}",
    f"state add {SA} 0x10a mode tunnel aead rfc4106(gcm(aes)) {K[20]} 128 if_id 0x2a output-mark 0x5 mask 0xff "
    "mark 0x3 mask 0xf extra-flag dont-encap-dscp oseq-may-wrap",
    f"state add {SA} 0x10b mode tunnel aead rfc4106(gcm(aes)) {K[20]} 128 sel {SEL} proto tcp sport 80 dport 443 "
    "limit time-soft 100 limit time-hard 200 limit byte-soft 1000 limit byte-hard 2000 limit packet-soft 10 "
    "limit packet-hard 20 limit time-use-soft 5 limit time-use-hard 6 replay-seq 9 replay-oseq 8 replay-window 8",
    f"state add {SA} 0x10c mode tunnel aead rfc4106(gcm(aes)) {K[20]} 128 flag esn replay-window 64 replay-seq 9 "
    "replay-oseq 8 replay-seq-hi 1 replay-oseq-hi 2",
    f"state add src 2001:db8::1 dst 2001:db8::2 proto esp spi 0x10d mode tunnel aead rfc4106(gcm(aes)) {K[20]} 128",
    f"state update {SA} 0x101 reqid 7 mode tunnel enc cbc(aes) {K[16]} auth-trunc hmac(sha256) {K[32]} 128",
    f"state add src {A} dst {B} proto ah spi 0x10e mode transport auth hmac(sha1) {K[20]}",
    f"state add src {A} dst {B} proto comp spi 0x10f mode transport comp deflate",
    f"state allocspi src {A} dst {B} proto esp reqid 9 mode tunnel min 0x300 max 0x310",
    f"state allocspi src 2001:db8::1 dst 2001:db8::2 proto esp mode transport mark 0x7",
    f"state get {SA} 0x300",
    "state list", f"state list src {A}", "state count",
    f"state delete {SA} 0x300", f"state delete {SA} 0x999",
    "state flush proto ah", "state flush",
    # Policies
    f"policy add {SEL} dir out priority 100 {TMPL}",
    f"policy add {SEL} dir out priority 100 {TMPL}",
    f"policy update {SEL} dir out priority 90 {TMPL}",
    f"policy add {SEL} proto tcp dport 80 dir in action block priority 5 mark 0x1 mask 0xff if_id 0x2a",
    f"policy add {SEL} proto icmp type 8 code 0 dir fwd priority 6 flag icmp limit packet-hard 50",
    f"policy add src 2001:db8:1::/48 dst 2001:db8:2::/48 dir out priority 7 "
    "tmpl src 2001:db8::1 dst 2001:db8::2 proto comp level use mode tunnel "
    "tmpl src 2001:db8::1 dst 2001:db8::2 proto esp spi 0x77 mode tunnel",
    f"policy add {SEL} dir out ptype sub priority 3 {TMPL}",
    f"policy get {SEL} dir out",
    "policy list", "policy count",
    f"policy delete {SEL} dir out",
    f"policy delete {SEL} dir out",
    "policy set hthresh4 24 32 hthresh6 64 128", "policy count",
    "policy setdefault in block", "policy getdefault", "policy setdefault in accept",
    "policy flush ptype sub", "policy flush",
]


def messages(datagram):
    while len(datagram) >= 16:
        length = max(16, struct.unpack_from("=I", datagram)[0])
        yield datagram[:length]
        datagram = datagram[(length + 3) & ~3:]


def kernel(groups=0):
    end = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_XFRM)
    if groups:
        end.bind((0, groups))
    return end


def show(word, datagram):
    for message in messages(datagram):
        print(word, message.hex(), flush=True)


def relay(server, child):
    """Between the program's sockets and the kernel's, until the program ends."""
    pairs = {}
    while child.poll() is None or any(select.select(list(pairs), [], [], 0)[0] for _ in [0] if pairs):
        for end in select.select([server, *pairs], [], [], 0.02)[0]:
            if end is server:
                client, _ = server.accept()
                own = kernel()
                pairs[client], pairs[own] = ("request", own), ("answer", client)
                continue
            word, other = pairs[end]
            packet = end.recv(1 << 17)
            if not packet:
                del pairs[end], pairs[other]
                end.close(), other.close()
                break
            if word == "request":
                if packet[:1] == b"M":
                    show(word, packet[1:])
                    other.send(packet[1:])
                else:
                    other.bind((struct.unpack_from("=I", packet, 1)[0], 0))
                continue
            show(word, packet)
            other.send(packet)


def drain(listener):
    while select.select([listener], [], [], 0.05)[0]:
        show("event", listener.recv(1 << 17))


def address(text):
    return socket.inet_aton(text) + bytes(12)


def selector(dst="10.2.0.0", src="10.1.0.0", bits=16):
    return address(dst) + address(src) + bytes(8) + struct.pack("=HBBB3xiI", 2, bits, bits, 0, 0, 0)


def policy(index=0, priority=50, direction=1):
    limits = struct.pack("=8Q", *[2**64 - 1] * 4, 0, 0, 0, 0)
    return selector() + limits + bytes(32) + struct.pack("=IIBBBB4x", priority, index, direction, 0, 0, 0)


def attribute(number, value):
    return struct.pack("=HH", 4 + len(value), number) + value + bytes(-len(value) % 4)


def template():
    end = address(B) + struct.pack(">IB3x", 0, 50)
    return end + struct.pack("=H2x", 2) + address(A) + struct.pack("=IBBBx3I", 7, 1, 0, 0, *[2**32 - 1] * 3)


def ask(kind, body, flags=5):
    end = kernel()
    request = struct.pack("=IHHII", 16 + len(body), kind, flags, 1, 0) + body
    show("request", request)
    end.send(request)
    show("answer", end.recv(1 << 17))


def main():
    shim = os.path.abspath(sys.argv[1])
    path = os.path.join(tempfile.mkdtemp(), "socket")
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    server.bind(path)
    server.listen(8)
    listener = kernel(0xFF)
    environment = dict(os.environ, LD_PRELOAD=shim, NETLINK_XFRM_SOCKET=path)
    for command in COMMANDS:
        print(f"# ip xfrm {command}", flush=True)
        words = ["" if word == "-" else word for word in command.split()]  # an empty key
        child = subprocess.Popen(["ip", "xfrm", *words], env=environment, stderr=subprocess.STDOUT,
                                 stdout=subprocess.DEVNULL)
        relay(server, child)
        drain(listener)
    print("# acquire")
    head = address(B) + struct.pack(">IB3x", 0, 50) + address(A)
    body = head + selector("10.2.0.9", "10.1.0.9", 32) + policy(9) + struct.pack("=4I", *[2**32 - 1] * 3, 0)
    ask(0x17, body + attribute(5, template()))
    drain(listener)
    print("# policy and polexpire, soft and hard")
    ask(0x13, policy() + attribute(5, template()))
    drain(listener)
    for hard in (0, 1):
        ask(0x1B, policy() + struct.pack("=B7x", hard))
        drain(listener)
    print("# migrate a policy")
    ask(0x13, policy() + attribute(5, template()))
    drain(listener)
    ends = b"".join(map(address, (B, A, "198.51.100.3", "192.0.2.3")))
    move = ends + struct.pack("=BBHIHH", 50, 1, 0, 7, 2, 2)
    ask(0x21, selector() + struct.pack("=IB3x", 0, 1) + attribute(17, move)
        + attribute(19, address(A) + address("198.51.100.3") + struct.pack("=IH2x", 0, 2)))
    drain(listener)
    ask(0x15, b"", flags=0x301)
    server.close()


main()
