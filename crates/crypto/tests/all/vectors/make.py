"""Writes what another implementation (pyca/cryptography, which is OpenSSL) makes of packets and texts.

`packets.txt`: suite | key of the encryption with salt | key of the authentication | header | upper half of the sequence
number or - | initialisation vector | text | initialisation vector, encrypted text and check value, as sent.
`texts.txt`: mode | key | initialisation vector | text | encrypted text.
"""

import hashlib
import hmac
import pathlib
import warnings

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

warnings.simplefilter("ignore")  # CFB and OFB have moved
try:
    from cryptography.hazmat.decrepit.ciphers.modes import CFB, OFB
except ImportError:
    CFB, OFB = modes.CFB, modes.OFB

HERE = pathlib.Path(__file__).parent
HMACS = {
    "HMAC-SHA1-96": (hashlib.sha1, 20, 12), "HMAC-SHA-256-128": (hashlib.sha256, 32, 16),
    "HMAC-SHA-384-192": (hashlib.sha384, 48, 24), "HMAC-SHA-512-256": (hashlib.sha512, 64, 32),
}
LENGTHS = [0, 1, 60, 180]


def made(seed, count):
    """Bytes that look random and are the same each time."""
    return hashlib.shake_128(seed.encode()).digest(count)


def run(algorithm, mode, text):
    encryptor = Cipher(algorithm, mode).encryptor()
    return encryptor.update(text) + encryptor.finalize()


def gcm(key, nonce, text, aad, length):
    encryptor = Cipher(algorithms.AES(key), modes.GCM(nonce)).encryptor()
    encryptor.authenticate_additional_data(aad)
    sealed = encryptor.update(text) + encryptor.finalize()
    return sealed + encryptor.tag[:length]


def packets():
    suites = [("ChaCha20-Poly1305", "", 36, 8)]
    for bits in 128, 192, 256:
        suites += [(f"AES-{bits}-GCM-{n}", "", bits // 8 + 4, 8) for n in (8, 12, 16)]
        suites += [(f"AES-{bits}-GMAC", "", bits // 8 + 4, 8)]
        suites += [(f"AES-{bits}-CBC", auth, bits // 8, 16) for auth in HMACS]
        suites += [(f"AES-{bits}-CTR", auth, bits // 8 + 4, 8) for auth in HMACS]
    suites += [("NULL", auth, 0, 0) for auth in HMACS]
    for name, auth, key_len, iv_len in suites:
        for number, length in enumerate(LENGTHS):
            if "CBC" in name:
                length = (length + 15) // 16 * 16
            seed = f"{name} {auth} {length}"
            key, auth_key = made(seed + "key", key_len), made(seed + "auth", HMACS[auth][1] if auth else 0)
            iv, text, header = made(seed + "iv", iv_len), made(seed + "text", length), made(seed + "header", 8)
            high = made(seed + "high", 4) if number % 2 else b""
            aad = header[:4] + high + header[4:]
            nonce = key[-4:] + iv
            if name == "NULL":
                body = text
            elif "CBC" in name:
                body = iv + run(algorithms.AES(key), modes.CBC(iv), text)
            elif "CTR" in name:
                body = iv + run(algorithms.AES(key[:-4]), modes.CTR(nonce + bytes([0, 0, 0, 1])), text)
            elif "GCM" in name:
                body = iv + gcm(key[:-4], nonce, text, aad, int(name.rsplit("-", 1)[1]))
            elif "GMAC" in name:
                body = iv + text + AESGCM(key[:-4]).encrypt(nonce, b"", aad + iv + text)
            else:
                body = iv + ChaCha20Poly1305(key[:-4]).encrypt(nonce, text, aad)
            if auth:
                hash_, _, icv = HMACS[auth]
                body += hmac.new(auth_key, header + body + high, hash_).digest()[:icv]
            suite = f"{name} with {auth}" if auth else name
            yield [suite, key.hex(), auth_key.hex(), header.hex(), high.hex() or "-", iv.hex(), text.hex(), body.hex()]


def texts():
    for bits in 128, 192, 256:
        for name in "ECB", "CBC", "CTR", "CFB", "OFB", "GCM":
            for length in 0, 1, 16, 33, 180:
                seed = f"{name} {bits} {length}"
                if name in ("ECB", "CBC"):
                    length = (length + 15) // 16 * 16
                key, text = made(seed + "key", bits // 8), made(seed + "text", length)
                iv = made(seed + "iv", {"ECB": 0, "GCM": 12}.get(name, 16))
                if name == "CTR":
                    iv = b"\xff" * 15 + iv[15:]  # the carry goes through the whole block
                if name == "GCM":
                    sealed = AESGCM(key).encrypt(iv, text, None)
                else:
                    mode = {"ECB": modes.ECB, "CBC": modes.CBC, "CTR": modes.CTR, "CFB": CFB, "OFB": OFB}[name]
                    sealed = run(algorithms.AES(key), mode(iv) if iv else mode(), text)
                yield [name, key.hex(), iv.hex(), text.hex(), sealed.hex()]


for name, lines in ("packets.txt", packets()), ("texts.txt", texts()):
    text = "# Written by make.py.\n" + "".join(" | ".join(line) + "\n" for line in lines)
    (HERE / name).write_text(text)
