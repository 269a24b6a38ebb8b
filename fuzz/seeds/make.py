"""Writes the seeds: small inputs for each target, made of the same few packets."""

import gzip
import hashlib
import hmac
import lzma
import pathlib
import struct

HERE = pathlib.Path(__file__).parent
MACS = bytes.fromhex("020000000001020000000002")
A6 = bytes.fromhex("20010db8000000000000000000000001")
B6 = bytes.fromhex("20010db8000000000000000000000002")


def checksum(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def ipv4(protocol, payload, options=b"", fragment=0):
    head = struct.pack(
        ">BBHHHBBH4s4s", 0x45 + len(options) // 4, 0, 20 + len(options) + len(payload), 7, fragment,
        64, protocol, 0, bytes([10, 0, 0, 1]), bytes([192, 0, 2, 1]),
    ) + options
    return head[:10] + struct.pack(">H", checksum(head)) + head[12:] + payload


def ipv6(next_header, payload):
    return struct.pack(">IHBB", 6 << 28, len(payload), next_header, 64) + A6 + B6 + payload


def icmp6(message):
    pseudo = A6 + B6 + struct.pack(">II", len(message), 58)
    return message[:2] + struct.pack(">H", checksum(pseudo + message)) + message[4:]


def icmp4(message):
    return message[:2] + struct.pack(">H", checksum(message)) + message[4:]


UDP = struct.pack(">HHHH", 4000, 53, 16, 0) + b"shadelin"
TCP = struct.pack(">HHIIHHHH", 4000, 80, 1, 2, 0x6012, 8192, 0, 0) + bytes([2, 4, 5, 180]) + b"GET /"
ECHO4 = icmp4(struct.pack(">BBHHH", 8, 0, 0, 1, 2) + b"ping")
ECHO6 = icmp6(struct.pack(">BBHHH", 128, 0, 0, 1, 2) + b"ping")
ESP = struct.pack(">II", 0x12345678, 1) + bytes(range(32))
MAC_OPTION = bytes([1, 1]) + MACS[:6]
NS = icmp6(bytes([135, 0, 0, 0, 0, 0, 0, 0]) + B6 + MAC_OPTION)
NA = icmp6(bytes([136, 0, 0, 0, 0xE0, 0, 0, 0]) + B6 + b"\2" + MAC_OPTION[1:])
RS = icmp6(bytes([133, 0, 0, 0, 0, 0, 0, 0]) + MAC_OPTION)
RA = icmp6(struct.pack(">BBHBBHII", 134, 0, 0, 64, 0x80, 1800, 0, 0) + MAC_OPTION)
ARP = bytes.fromhex("0001080006040001") + MACS[6:] + bytes([10, 0, 0, 1]) + bytes(6) + bytes([10, 0, 0, 2])
HOP = bytes([60, 0, 5, 2, 0, 0, 1, 0])
OPTIONS = bytes([17, 0, 1, 4, 0, 0, 0, 0])
FRAGMENT = struct.pack(">BBHI", 17, 0, 1, 9)
AH = struct.pack(">BBHII", 17, 4, 0, 1, 1) + bytes(12)
V4 = {
    "udp": ipv4(17, UDP), "tcp": ipv4(6, TCP), "echo": ipv4(1, ECHO4), "esp": ipv4(50, ESP),
    "options": ipv4(17, UDP, bytes([148, 4, 0, 0, 7, 7, 4, 0, 0, 0, 0, 1])),
    "fragment": ipv4(17, UDP, fragment=0x2000), "later": ipv4(17, UDP, fragment=185),
    "error": ipv4(1, icmp4(bytes([11, 0, 0, 0, 0, 0, 0, 0]) + ipv4(17, UDP))),
}
V6 = {
    "udp": ipv6(17, UDP), "tcp": ipv6(6, TCP), "echo": ipv6(58, ECHO6), "ns": ipv6(58, NS),
    "options": ipv6(0, HOP + OPTIONS + UDP), "fragment": ipv6(44, FRAGMENT + UDP),
    "ah": ipv6(51, AH + UDP), "loop": ipv6(0, bytes(64)),
    "error": ipv6(58, icmp6(bytes([3, 0, 0, 0, 0, 0, 0, 0]) + ipv6(17, UDP))),
}
FRAMES = {f"v4-{k}": MACS + b"\x08\x00" + v for k, v in V4.items()}
FRAMES |= {f"v6-{k}": MACS + b"\x86\xdd" + v for k, v in V6.items()}
FRAMES |= {
    "arp": MACS + b"\x08\x06" + ARP,
    "vlan": MACS + b"\x81\x00\x00\x05\x08\x00" + V4["udp"],
    "qinq": MACS + b"\x88\xa8\x00\x05\x81\x00\x00\x06\x86\xdd" + V6["udp"],
}
TEXTS = [
    "tcp and dst port 80", "not (udp or icmp) and net 10.0.0.0/8", "ip6 src host 2001:db8::1",
    "vlan 5 or vlan", "arp || esp && !icmp6", "less 64 or greater 60",
    "ether host 02:00:00:00:00:01 or 2:0:0:0:0:2", "src portrange 1-1023 and not port (80 or https)",
    "net 10.1 or 10.0.0.0 mask 255.0.0.0 or 2001:db8::/32", "tcp[tcpflags] & (tcp-syn|tcp-fin) != 0 and ip[8] < 5",
    "icmp[icmptype] = icmp-echo or tcp[((tcp[12] & 0xf0) >> 2):4] = 0x47455420", "ip proto ospf or ether proto 0x88cc",
    "src or dst host 10.0.0.1 and ip multicast", "-1 % 2 - len / 3 * 4 >= ip6[0:2] << 1 ^ 5",
]
LINES = [
    '{"request":"show","what":"routes"}',
    '{"request":"route_add","prefix":"10.0.0.0/8","next_hop":"192.0.2.1*3,fe80::1%lan"}',
    '{"request":"trace","count":2,"filter":"icmp","duration_s":1.5}',
    '{"request":"capture","at":{"port":"lan"},"filter":"","count":6,"duration_s":null}',
    '{"request":"rule_add","rule":{"name":"ssh","conditions":{"in":"lan","src":"10.0.0.0/8","proto":"tcp",'
    '"dport":"22-23","tcp_flags":"syn/syn,ack"},"action":"mirror lan, mark 46, drop"},"place":{"before":"web"}}',
    '{"request":"rule_replace_all","rules":[{"name":"a","action":"reject"}]}',
    '{"request":"x","duration_s":0.000400000000000013247444445625808697}',
    '{"response":"drops","rows":[{"reason":"no_route","text":"why","packets":7}]}',
    '{"response":"error","kind":"not_found","message":"no"}',
]


def tlv(kind, value):
    number = lambda n: bytes([n]) if n < 253 else b"\xfd" + struct.pack(">H", n)
    return number(kind) + number(len(value)) + value


NAME = tlv(7, tlv(8, b"example") + tlv(8, b"a b") + tlv(54, b"\1"))
NONCE = tlv(10, bytes([1, 2, 3, 4]))
INTEREST = tlv(5, NAME + tlv(33, b"") + tlv(18, b"") + NONCE + tlv(12, b"\x0f\xa0") + tlv(34, b"\x40"))
NDN_DATA = tlv(6, NAME + tlv(20, tlv(25, b"\x0a")) + tlv(21, b"hello") + tlv(22, tlv(27, b"\0")) + tlv(23, bytes(32)))

# Commands as python-ndn 0.5.2 sends them: a signed Interest, and one that is signed in its name.
COMMAND = bytes.fromhex(
    "0599075008086c6f63616c686f7008036e6664080372696208087265676973746572080e680c070a08036f7267"
    "08036170700220fffd575c79ca3c8a6484cadeb5ae91a4d450cc54bc446b93de6a556e8c6739d00a0411223344"
    "0c0203e824002c171b01002608010203040506070828080000018bcfe568002e208f84604d786d6f77c2d855ad"
    "1e5d0eaa2c7575ecd24f4b17887d83a7169b2eda"
)
OLD_COMMAND = bytes.fromhex(
    "058b077f08086c6f63616c686f7008036e66640803726962080a756e7265676973746572081e681c070a08036f"
    "726708036170706901006f01006a01036c01016d02ea6008080000018bcfe56800080801020304050607080805"
    "16031b010008221720d7376f74cd37b5a2f1f5be1d11b29d06824d20ddbcf0038529c204a3fe2cb6c30a041122"
    "33440c0203e8"
)


def u32(value):
    return struct.pack("=I", value)


def nla(kind, value):
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


HELLO = b"hello\n" * 3
# `zstd --check` of HELLO
ZSTD = bytes.fromhex("28b52ffd04586500003068656c6c6f0a0100e14a11ef0812e1")

def piece(which, offset, more, payload, pause=1, kind=0):
    """A fragment, as target `defrag` reads it."""
    return struct.pack(">BBHBB", pause, which, offset, kind << 1 | more, len(payload)) + payload


def literals(patterns, cuts, stream):
    """Patterns, cuts and a stream, as target `literals` reads them."""
    return bytes([len(patterns)]) + b"".join(bytes([kind]) + text for kind, text in patterns) + bytes(cuts + [0]) + stream


def regexes(patterns, cuts, stream):
    """Patterns, cuts and a stream, as target `regexes` reads them."""
    texts = b"".join(bytes([kind, len(text)]) + text for kind, text in patterns)
    return bytes([len(patterns)]) + texts + bytes(cuts + [0]) + stream


def segment(flags, how=8, sequence=0, acknowledgment=0, length=0):
    """A segment, as target `tcp_stream` reads it."""
    return struct.pack(">BBHHB", flags, how, sequence, acknowledgment, length)


def at(frame, pause=2, flags=2):
    """A frame, as target `flows` reads it."""
    return struct.pack(">BBH", pause, flags, len(frame)) + frame


def tcp(from_client, sequence, acknowledgment, flags, payload=b""):
    a, b = bytes([10, 0, 0, 1]), bytes([192, 0, 2, 1])
    ports = (4000, 80)
    if not from_client:
        a, b, ports = b, a, ports[::-1]
    head = struct.pack(">HHIIHHHH", *ports, sequence, acknowledgment, 0x5000 | flags, 8192, 0, 0)
    pseudo = a + b + struct.pack(">HH", 6, len(head) + len(payload))
    head = head[:16] + struct.pack(">H", checksum(pseudo + head + payload)) + head[18:]
    packet = ipv4(6, head + payload)
    packet = packet[:10] + b"\0\0" + a + b + packet[20:]
    return MACS + b"\x08\x00" + packet[:10] + struct.pack(">H", checksum(packet[:20])) + packet[12:]


SYN, ACK, FIN, RST = 2, 16, 1, 4
OPENING = [tcp(True, 9, 0, SYN), tcp(False, 99, 10, SYN | ACK), tcp(True, 10, 100, ACK)]
CLOSING = [tcp(True, 15, 100, FIN | ACK), tcp(False, 100, 16, FIN | ACK), tcp(True, 16, 101, ACK)]
HANDSHAKE = segment(SYN, 0, 9) + segment(SYN | ACK, 1, 99, 10) + segment(ACK, 0, 10, 100)

def esp(number, payload):
    """An ESP packet as target `esp` knows it: NULL with HMAC-SHA1-96, keys that count."""
    padding = bytes(range(1, 1 + -(len(payload) + 2) % 4))
    body = struct.pack(">II", 0x1000, number) + payload + padding + bytes([len(padding), 4])
    return body + hmac.new(bytes(range(20)), body, hashlib.sha1).digest()[:12]


RULES = rb"""# rules of the project's own, for target `signatures`
alert tcp $EXTERNAL_NET any -> [$HOME_NET,!10.0.0.0/30] [80,8000:8080] (msg:"a\; \"b\""; flow:to_server,established; \
  content:"GET |2f|"; http_method; nocase; content:!"x"; http_uri; depth:9; pcre:"/^a[^]]b/Ri"; sid:1; rev:2;)
drop http any any <> any any (http.uri; to_lowercase; url_decode; content:"a"; startswith; fast_pattern; bsize:>3; sid:2;)
alert udp any any -> any 53 (byte_extract:2,0,n,relative,little; byte_test:1,!&,0x80,n,relative; byte_jump:4,n,align, \
  post_offset -3; byte_math:bytes 1, offset 2, oper *, rvalue n, result m; isdataat:!m,relative; sid:3;)
#alert icmp any any -> any any (itype:8; sid:4;)
rejectboth ip any any -> any any (flags:+SA,CE; ttl:<5; ip_proto:gre; flowbits:isset,a|b; xbits:set,c,track ip_src, \
  expire 9; threshold:type limit, track by_src, count 1, seconds 60; reference:url,example.org; metadata:a b, c; sid:5;)
alert tls any any -> any any (tls.sni; dataset:isset,names,type string,load n.lst; base64_decode:bytes 4,offset 2; \
  base64_data; content:"|00 ff|"; within:9; filestore; lua:a.lua; sid:6;)
alert tcp any any -> any any (contnet:"x"; sid:7;)
drop ip any any -> any any (fragbits:+MD; fragoffset:>0; sid:8;)
alert tcp any any -> any any (stream-event:pkt_retransmission; flow:to_client; noalert; sid:9;)
drop pkthdr any any -> any any (engine-event:stream.reassembly_seq_gap; engine-event:decoder.ipv4.trunc_pkt; sid:10;)
"""


def pieces(choice, *parts):
    """Pieces of a flow with their directions, as target `l7_label` reads them."""
    return bytes([choice]) + b"".join(bytes([len(data) | side << 7]) + data for side, data in parts)


def flow(choice, *parts):
    """Pieces of a flow as target `applayer` reads them: side, bytes, and whether they are a gap."""
    out = bytes([choice])
    for side, data, *gap in parts:
        for start in range(0, len(data), 63 + 255):
            part = data[start:start + 63 + 255]
            head = side << 7 | (0x40 if gap else 0)
            out += bytes([head | 63, len(part) - 63] if len(part) >= 63 else [head | len(part)]) + part
    return out


def hello(kind, body):
    """A hello of TLS in two records."""
    message = bytes([kind]) + struct.pack(">I", len(body))[1:] + body
    return b"".join(b"\x16\x03\x01" + struct.pack(">H", len(part)) + part for part in [message[:50], message[50:]])


def extension(kind, data):
    return struct.pack(">HH", kind, len(data)) + data


SERVER_NAME = extension(0, b"\0\x0e\0\0\x0bexample.com")
ALPN = extension(16, b"\0\x0c\x02h2\x08http/1.1")
LISTS = extension(10, b"\0\x04\0\x1d\0\x17") + extension(11, b"\x01\0") + extension(13, b"\0\x04\x04\x03\x08\x04")
VERSIONS = extension(43, b"\x06\x0a\x0a\x03\x04\x03\x03")
EXTENSIONS = SERVER_NAME + ALPN + LISTS + VERSIONS
CLIENT_HELLO = hello(1, b"\x03\x03" + bytes(32) + b"\0\0\x06\x13\x01\xc0\x2f\x0a\x0a\x01\0" + struct.pack(">H", len(EXTENSIONS)) + EXTENSIONS)
SERVER_HELLO = hello(2, b"\x03\x03" + bytes(32) + b"\0\x13\x01\0\0\x06" + extension(43, b"\x03\x04"))
HTTP = b"POST /a HTTP/1.1\r\nHost: example.com\r\nContent-Type: text/html\r\n\tfolded\r\nUpgrade: h2c\r\n\r\nbody"
DNS = bytes.fromhex("1234818000010001000000000377777707657861") + b"mple\0\0\x01\0\x01\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\x7f\0\0\x01"
# RFC 7541 C.4.1 and C.5.1, in two parts; a body.
H2_CLIENT = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes.fromhex(
    "000000040000000000" "000011010500000001828684418cf1e3c2e5f23a6ba0ab90f4ff"
)
H2_SERVER = bytes.fromhex(
    "000000040000000000" "000004010000000001" "48033330" "000001090400000001" "32" "000006000900000001" "016162636400"
)
QUIC = bytes.fromhex(
    # RFC 9001 A.3
    "cf000000010008f067a5502a4262b5004075c0d95a482cd0991cd25b0aac406a5816b6394100f37a1c69797554780bb38cc5a99f5ede4cf73c3ec2493a1839b3"
    "dbcba3f6ea46c5b7684df3548e7ddeb9c3bf9c73cc3f3bded74b562bfb19fb84022f8ef4cdd93795d77d06edbb7aaf2f58891850abbdca3d20398c276456cbc4"
    "2158407dd074ee"
)

SEEDS = {
    "ipsec": {
        "v4": bytes([0, 3, 4]) + V4["udp"],
        "v6": bytes([1, 1, 41]) + V6["udp"],
        "udp": bytes([2, 0, 4]) + V4["udp"],
        "genuine": bytes([0, 0, 4]) + ipv4(50, esp(7, V4["udp"])),
    },
    "esp": {
        "genuine": bytes([0, 8, 0, 9, 3]) + esp(7, V4["udp"]),
        "payload": bytes([12, 9, 1, 77, 0]) + V4["tcp"],
        "chained": bytes([9, 2, 0, 200, 255]) + ESP,
        "chacha": bytes([4, 255, 0, 1, 1]) + V6["udp"],
    },
    "defrag": {
        "two": b"\0" + piece(0, 0, 1, UDP) + piece(0, 16, 0, b"shadeline"),
        "six": b"\1" + piece(1, 32, 0, b"end", kind=1) + piece(1, 8, 1, bytes(24)) + piece(1, 0, 1, TCP[:24]),
        "late": b"\2" + piece(0, 0, 1, UDP) + piece(8, 0, 1, UDP, 100) + piece(0, 16, 0, b"late", 20),
        "overlap": b"\3" + piece(2, 8, 1, b"b" * 16) + piece(2, 0, 1, b"a" * 16) + piece(2, 24, 0, b"c"),
        "frame": b"\4" + struct.pack(">BBHBB", 0, 0, 0, 128, len(FRAMES["v4-fragment"])) + FRAMES["v4-fragment"],
    },
    "literals": {
        "boundary": literals([(4, b"GET "), (43, b"/etc/passwd"), (70, b"GET /x")], [3, 5, 1, 1], b"GET /ETC/Passwd GET /x" * 4),
        "overlap": literals([(n, b"a" * n) for n in range(1, 9)] + [(35, b"aAb")], [70], b"aaaaaaaAAab" * 12),
        "bytes": literals([(2, bytes([n, 255 - n])) for n in range(99)], [], bytes(range(256)) + bytes(range(255, -1, -1))),
    },
    "regexes": {
        "boundary": regexes([(0, rb"id=\d{1,3};"), (1, b"get /"), (2, b"GET|POST")], [3, 5, 1, 1], b"GET /?ID=12;id=7; post" * 3),
        "late": regexes([(8, rb"\bab$"), (0, rb"b\b"), (4, b"a.+b\\z"), (0, b"^ab")], [4, 4], b"ab\nab ba\n\nab"),
        "large": regexes([(4, b"a.{9}b"), (0, b"(a|b).{12}c"), (0, b"[^a]{3}a")], [70], b"abbabaaabbbabac" * 9),
    },
    "signatures": {
        "rules": RULES,
        "classes": b"config classification: a,First,1\nconfig classification: b,Second\n",
        "references": b"config reference: url http://\n# one without an address\nconfig reference: x\n",
        "thresholds": b"suppress gen_id 1, sig_id 2, track by_src, ip [10.0.0.0/8,!10.1.1.1]\n"
        b"threshold gen_id 1, sig_id 3, type both, track by_dst, count 5, \\\n seconds 60\n"
        b"rate_filter gen_id 1, sig_id 4, track by_rule, count 7, seconds 8, new_action drop, timeout 9\n",
    },
    "detect": {
        "contents": b'alert tcp any any -> any any (content:"ab"; content:"cd"; distance:0; within:9; sid:1;)\n'
        b'alert tcp any any -> any any (content:"ab"; content:!"zz"; sid:2;)\n\0xxabyycdzz' + b"." * 300,
        "numbers": b'alert tcp any any -> any any (content:"a"; byte_extract:1,0,n,relative; byte_jump:1,n,relative; isdataat:1,relative; sid:3;)\n'
        b"\0a\1\1a\0\0\0\0",
        "events": b"drop tcp any any -> any any (stream-event:pkt_retransmission; flags:PA; sid:5;)\n"
        b"alert ip any any -> any any (fragbits:!M; fragoffset:0; sid:6;)\n\0aa",
        "expressions": b'alert tcp any any -> any any (pcre:"/^(a+)[^\\x00-\\x7f]\\1(?!b)$/im"; sid:4;)\n\0aa\xffaac',
    },
    "l7_label": {
        "http": pieces(0x30, (0, HTTP), (1, b"HTTP/1.1 200 OK\r\n\r\n")),
        "tls": pieces(0x50, (0, CLIENT_HELLO[:100]), (1, SERVER_HELLO[:100])),
        "ftp": pieces(0x10, (1, b"220 ready\r\n"), (0, b"USER a\r\n")),
        "ssh": pieces(0, (0, b"GET / HTTP/1.1\r\n"), (1, b"SSH-2.0-x\r\n")),
        "dns": pieces(0x21, (0, DNS), (1, DNS)),
        "openvpn": pieces(1, (0, b"\x38" + bytes(41)), (1, b"\x40" + bytes(53))),
    },
    "l7_parsers": {
        "http": b"\x07" + HTTP,
        "response": b"\x09HTTP/1.0 404 Not Found\nserver: x\n\n",
        "client-hello": b"\x0b" + CLIENT_HELLO,
        "server-hello": b"\x0d" + SERVER_HELLO,
        "hello-body": b"\1" + CLIENT_HELLO[9:55] + CLIENT_HELLO[60:],
        "lines": b"\3SSH-2.0-a b\r\n220-a\r\n220 b\r\nUSER c\r\n",
        "dns": b"\xff" + DNS,
        "dns-loop": b"\xff" + DNS[:12] + b"\1a\xc0\x0c\0\1\0\1",
        "quic": b"\xff" + QUIC,
    },
    "l7_patterns": {
        "name": b"# Pattern attributes: great fast overmatch subset\nmine\n^\\x13bit[^a-z]+?(x|y){2,3}\\.$\n\0\x13bit..xy.",
        "userspace": b"a\n^b\nuserspace pattern=^[[:digit:]-]c*+\nuserspace flags=REG_NOSUB REG_EXTENDED\n\0-ccc",
        "mistake": b"a\n[b\n",
    },
    "applayer": {
        "http": flow(0, (0, HTTP), (1, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")),
        "gzip": flow(0, (0, HTTP), (1, b"HTTP/1.0 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + gzip.compress(b"text" * 30, mtime=0))),
        "form": flow(32, (0, b"POST / HTTP/1.0\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: 70\r\n\r\n"
                          b"--b\r\nContent-Disposition: form-data; filename=f\r\n\r\nfile\r\n--b--\r\n")),
        "tunnel": flow(7, (0, b"CONNECT a:22 HTTP/1.1\r\n\r\n"), (1, b"HTTP/1.1 200 OK\r\n\r\n"), (0, b"SSH-2.0-a\r\n")),
        "gap": flow(0, (0, HTTP), (1, b"HTTP/1.0 200 OK\r\nContent-Length: 9\r\n\r\na"), (1, b"bcd", True), (1, b"efghi")),
        "mail": flow(1, (1, b"220 a ESMTP\r\n"), (0, b"EHLO a\r\nMAIL FROM:<a>\r\nDATA\r\nSubject: b\r\n"
                         b"Content-Type: multipart/mixed; boundary=c\r\n\r\n--c\r\nContent-Transfer-Encoding: base64\r\n"
                         b"Content-Disposition: attachment; filename=d\r\n\r\nQUJD\r\n--c--\r\n.\r\n"), (1, b"250 a\r\n250 b\r\n")),
        "chunks": flow(33, (1, b"220 a ESMTP\r\n"), (0, b"EHLO a\r\nBDAT 5 LAST\r\nA: b\nQUIT\r\n")),
        "ftp": flow(2, (1, b"220 a\r\n"), (0, b"PASV\r\n"), (1, b"227 a (1,2,3,4,5,6)\r\n"), (0, b"AUTH TLS\r\n"), (1, b"234 a\r\n")),
        "ssh": flow(3, (0, b"SSH-2.0-a\r\n"), (1, b"SSH-2.0-b\r\n" + struct.pack(">IBB", 77, 4, 20) + bytes(16)
                       + b"\0\0\0\1a" * 10 + bytes(9))),
        "http2": flow(0, (0, H2_CLIENT), (1, H2_SERVER)),
        "upgrade": flow(0, (0, HTTP), (1, b"HTTP/1.1 101 S\r\nUpgrade: h2c\r\n\r\n" + H2_SERVER), (0, H2_CLIENT)),
        "tls": flow(5, (0, CLIENT_HELLO), (1, SERVER_HELLO), (1, b"\x14\3\3\0\1\1"), (0, b"\x17\3\3\0\1x")),
        "dns": flow(12, (0, DNS), (1, DNS)),
        "dns-stream": flow(4, (0, struct.pack(">H", len(DNS)) + DNS), (1, struct.pack(">H", len(DNS)) + DNS)),
    },
    "tcp_stream": {
        "order": b"\0\0" + HANDSHAKE + segment(ACK, length=50) * 3 + segment(ACK, 9, length=20) + segment(FIN | ACK) + segment(FIN | ACK, 9),
        "hole": b"\1\0" + HANDSHAKE + segment(ACK, 8, 40, 0, 50) + segment(ACK, 8, 20, 0, 50) + segment(ACK, 0, 10, 100, 40),
        "middle": b"\2\1" + segment(ACK, 0, 700, 500, 90) + segment(ACK, 9, 0, 0, 30) + segment(RST, 8),
        "reuse": b"\x23\0" + HANDSHAKE + segment(FIN | ACK) + segment(FIN | ACK, 9) + segment(ACK) + segment(SYN, 0, 5000, 0, 9),
    },
    "flows": {
        "mixed": b"\x3f" + b"".join(map(at, FRAMES.values())),
        "tcp": b"\x3f" + b"".join(map(at, OPENING + [tcp(True, 10, 100, ACK | 8, b"GET /")] + CLOSING)),
        "hole": b"\x3f" + b"".join(at(f, 2, 6) for f in OPENING + [tcp(True, 20, 100, ACK, b"behind")]),
        "reuse": b"\x3f" + b"".join(at(f, 0) for f in OPENING + [tcp(True, 10, 100, RST)] + OPENING),
        "pauses": b"\x80" + b"".join(at(FRAMES[n], 5, 10) for n in ["v4-udp", "vlan", "v4-udp", "qinq", "v6-echo"]),
    },
    "decode": FRAMES,
    "ipv4": V4,
    "ipv6": V6,
    "arp": {"request": ARP},
    "nd": {"ns": NS, "na": NA, "rs": RS, "ra": RA},
    "ndn": {
        "interest": INTEREST,
        "data": NDN_DATA,
        "command": COMMAND,
        "old_command": OLD_COMMAND,
        "selectors": tlv(5, NAME + tlv(9, tlv(14, b"\1")) + NONCE),
        "link": tlv(100, tlv(98, b"token") + tlv(832, b"\1") + tlv(80, INTEREST)),
        "nack": tlv(100, tlv(800, tlv(801, b"\x96")) + tlv(80, INTEREST)),
        "fragment": tlv(100, tlv(81, bytes(8)) + tlv(82, b"\0") + tlv(83, b"\2") + tlv(80, INTEREST[:20])),
        "old": tlv(80, tlv(81, bytes(8)) + tlv(84, INTEREST)),
        "uri": b"/example/a%20b/54=%01/.../sha256digest=00ff",
    },
    "transport": {"udp": UDP, "tcp": TCP, "echo4": ECHO4, "echo6": ECHO6, "esp": ESP},
    "icmp_error": {f"v4-{k}": v for k, v in V4.items()} | {f"v6-{k}": v for k, v in V6.items()},
    "filter": {
        f"{n}": struct.pack(">H", len(text)) + text.encode() + FRAMES["v4-tcp"]
        for n, text in enumerate(TEXTS)
    },
    "fragment": {
        "options": struct.pack(">H", 68) + ipv4(17, bytes(range(200)), bytes([148, 4, 0, 0, 7, 7, 4, 0, 0, 0, 0, 1])),
        "plain": struct.pack(">H", 100) + ipv4(17, bytes(range(256))),
        "again": struct.pack(">H", 60) + ipv4(17, bytes(200), fragment=0x2010),
    },
    "nexthop": {
        "gateway": bytes([2, 0, 4, 0]) + bytes(4) + nla(1, u32(7)) + nla(5, u32(3)) + nla(6, bytes([10, 0, 0, 2])),
        "group": bytes(8) + nla(1, u32(102)) + nla(3, bytes(2)) + nla(2, u32(1) + bytes(4) + u32(3) + bytes([1, 0, 0, 0])),
        "blackhole": bytes([10, 0, 4, 0]) + bytes(4) + nla(1, u32(9)) + nla(4, b""),
    },
    "compressed": {
        "plain": HELLO,
        "gzip": gzip.compress(HELLO, mtime=0),
        "xz": lzma.compress(HELLO),
        "zstd": ZSTD,
        "two-frames": ZSTD + bytes.fromhex("532a4d1803000000010203") + ZSTD,
    },
    "request": {f"{n}": line.encode() for n, line in enumerate(LINES)},
}


def recorded():
    """The longest recorded message of each type, as target `xfrm` reads them."""
    lines = (HERE.parent.parent / "crates/xfrm/tests/data/messages.txt").read_text().splitlines()
    messages = [bytes.fromhex(line.split()[1]) for line in lines if not line.startswith("#")]
    return {f"{m[4]:02x}": m[4:8] + m[16:] for m in sorted(messages, key=len) if m[4] >= 16}


SEEDS["xfrm"] = recorded()
# Every fifth message of os-ken, and the forms of flows that the tests read.
MESSAGES = (HERE / "../../tests/data/openflow/os-ken.txt").read_text().splitlines()[::5]
SEEDS["openflow"] = {
    line.split()[0].replace("/", "-"): bytes.fromhex(line.split()[1]) for line in MESSAGES
}
MONITORS = [
    line
    for name in ("monitors", "nicira")
    for line in (HERE / f"../../tests/data/openflow/{name}.txt").read_text().splitlines()[1:]
]
SEEDS["openflow"].update(
    (f"monitor-{line.split()[0].replace('/', '-')}", bytes.fromhex(line.split()[1])) for line in MONITORS
)
FORMS = (HERE / "../../crates/openflow/tests/all/flows.txt").read_text().splitlines()
SEEDS["flow_syntax"] = {
    **{f"{n}": "\n".join(FORMS[n : n + 6]).encode() for n in range(1, len(FORMS), 6)},
    "group": b"group_id=1,type=select,bucket=weight:2,output:1,bucket=watch_port:2,actions=group:3",
    "meter": b"meter=1,kbps,burst,stats,bands=type=drop,rate=1000,burst_size=50,type=dscp_remark,rate=9,prec_level=1",
}
# Steps of one byte each, and what they choose; and messages of os-ken that change a switch (types 14, 15, 29).
CHANGES = [bytes.fromhex(line.split()[1]) for line in MESSAGES if line.startswith("of13")]
CHANGES = [message for message in CHANGES if message[1] in (14, 15, 29)]
SEEDS["flowtable"] = {
    **{f"steps-{n}": bytes((i * i * (n + 3) + i * n) % 251 & 0xFE | (i > 0) for i in range(300 + 40 * n)) for n in range(1, 9)},
    "messages": b"\1\1" + b"".join(b"\xff" + len(m).to_bytes(2, "big") + m for m in CHANGES),
}
# Each byte chooses something of a record or an event; pieces of HTTP where an event has a transaction.
RECORDS = {f"{n}": bytes((i * i * (n + 5) + i * n) % 249 for i in range(120 * n)) for n in range(1, 7)}
SEEDS["ipfix"] = RECORDS
EXCHANGE = (b"GET /\xff\"x HTTP/1.1\r\nHost: a\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc")
SEEDS["eve"] = {
    **RECORDS,
    "http": bytes((1, 1, 9, 4)) + b"eth0" + bytes((3,)) + b'm"\n' + bytes((5,)) + bytes(57)
    + b"\0\0\0\2" + b"".join(bytes((end, len(text))) + text for end, text in enumerate(EXCHANGE)) + bytes(20),
}
for target, inputs in SEEDS.items():
    (HERE / target).mkdir(exist_ok=True)
    for name, data in inputs.items():
        (HERE / target / name).write_bytes(data)
