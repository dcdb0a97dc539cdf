#!/usr/bin/env python3
"""Writes xts-edges.txt: AES-XTS where implementations go wrong.

An implementation of its own over the AES-ECB of python3-cryptography (OpenSSL), straight from
IEEE 1619-2007, 5.3; where OpenSSL's own XTS takes the key (not AES-192, not equal halves), the
two must agree.
"""

import hashlib

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

HEAD = """\
# Written by xts_edges.py beside this file; do not edit.
#
# The plaintext of every entry is the SplitMix64 outputs for seed 1 as little-endian 64-bit words.
#
# request KEY SECTOR_SIZE FIRST SECTORS SHA256   IV plain64, so many cipher sectors from 512-byte sector FIRST; SHA-256 of
#                                                the ciphertext
# sector KEY FIRST CIPHERTEXT                    IV plain64, one cipher sector of 4096 bytes, every part of it alone too
# ieee KEY FIRST PLAINTEXT CIPHERTEXT            IEEE 1619-2007, annex B: the beginning of a sector
"""


def ecb(key, data):
    encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    return encryptor.update(data) + encryptor.finalize()


def xts(key, number, data):
    half = len(key) // 2
    tweak = int.from_bytes(ecb(key[half:], number.to_bytes(16, "little")), "little")
    out = b""
    tweaks = []
    for _ in range(0, len(data), 16):
        tweaks.append(tweak.to_bytes(16, "little"))
        tweak <<= 1
        if tweak >> 128:
            tweak ^= (1 << 128) | 0x87
    mask = b"".join(tweaks)
    masked = bytes(a ^ b for a, b in zip(data, mask))
    out = bytes(a ^ b for a, b in zip(ecb(key[:half], masked), mask))
    if len(key) != 48 and key[:half] != key[half:]:
        iv = number.to_bytes(16, "little")
        other = Cipher(algorithms.AES(key), modes.XTS(iv)).encryptor()
        assert other.update(data) + other.finalize() == out
    return out


def split_mix(length):
    state, out = 1, b""
    mask = (1 << 64) - 1
    words = []
    for _ in range(length // 8):
        state = (state + 0x9E3779B97F4A7C15) & mask
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        words.append((z ^ (z >> 31)).to_bytes(8, "little"))
    return b"".join(words)


PLAINTEXT = split_mix(256 * 1024)


def request(key, size, first, sectors):
    out = b""
    for at in range(sectors):
        number = (first + at * (size // 512)) % 2**64
        out += xts(key, number, PLAINTEXT[at * size : (at + 1) * size])
    return f"request {key.hex()} {size} {first} {sectors} {hashlib.sha256(out).hexdigest()}"


def widest_carries(key, step):
    """Numbers whose first tweak has the longest runs of ones at the top of its halves."""
    half = len(key) // 2
    numbers = range(0, 2**21 * step, step)
    tweaks = ecb(key[half:], b"".join(n.to_bytes(16, "little") for n in numbers))

    def run(at, end):
        return int.from_bytes(tweaks[at * 16 + end - 8 : at * 16 + end], "little")

    top = max(range(len(numbers)), key=lambda at: run(at, 16))
    middle = max(range(len(numbers)), key=lambda at: run(at, 8))
    both = max(range(len(numbers)), key=lambda at: min(run(at, 8), run(at, 16)))
    return [numbers[at] for at in (top, middle, both)]


def main():
    keys = [bytes((7 * i + n) % 256 for i in range(n)) for n in (32, 48, 64)]
    equal = [bytes(range(n)) * 2 for n in (16, 24, 32)] + [b"\xff" * 64, b"\0" * 32]
    lines = []
    for key in keys:
        for sectors in (1, 2, 3, 7, 8, 9, 15, 16, 17, 24, 25, 31, 33, 40, 41, 48, 72, 73, 105):
            lines.append(request(key, 512, 0, sectors))
        for size in (1024, 2048, 4096):
            for sectors in (1, 2, 8, 9, 17, 41):
                lines.append(request(key, size, 0, sectors))
        for size in (512, 4096):
            for first in (2**32 - 8, 2**63 - 8, 2**64 - 8, 2**64 - 8 * 4, 2**64 - 8 * 9):
                lines.append(request(key, size, first, 12))
    lines += [request(key, size, 0, 9) for key in equal for size in (512, 4096)]
    for key in keys:
        for first in widest_carries(key, 8):
            lines.append(request(key, 512, first, 1))
            lines.append(f"sector {key.hex()} {first} {xts(key, first, PLAINTEXT[:4096]).hex()}")
    for key, first, plain, ciphertext in [
        ("00" * 32, 0, "00" * 32, "917cf69ebd68b2ec9b9fe9a3eadda692cd43d2f59598ed858c02c2652fbf922e"),
        ("11" * 16 + "22" * 16, 0x3333333333, "44" * 32, "c454185e6a16936e39334038acef838bfb186fff7480adc4289382ecd6d394f0"),
        ("fffefdfcfbfaf9f8f7f6f5f4f3f2f1f0" + "22" * 16, 0x3333333333, "44" * 32, "af85336b597afc1a900b2eb21ec949d292df4c047e0b21532186a5971a227a89"),
    ]:
        assert xts(bytes.fromhex(key), first, bytes.fromhex(plain)).hex() == ciphertext
        lines.append(f"ieee {key} {first} {plain} {ciphertext}")
    with open("xts-edges.txt", "w") as file:
        file.write(HEAD + "\n" + "\n".join(lines) + "\n")


main()
