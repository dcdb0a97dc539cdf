"""Readers of LUKS for Python, compared: cryptline, pyluksde and dissect.fve over one LUKS1 image in memory.

`cargo xtask bench-python` builds and installs what it needs and runs it. The readers take turns; a figure is the median of
the ratios of the rounds. docs/bench-json.md describes the JSON.
"""

import argparse
import hashlib
import json
import os
import pathlib
import platform
import random
import statistics
import sys
import tempfile
import time

import cryptline
import pyluksde
from dissect.fve.luks import LUKS

PHRASE = "pass phrase"
MIB = 1 << 20
SIZE = 32 * MIB


class Cryptline:
    name = "cryptline"

    def __init__(self, path):
        self.disk = cryptline.open(path, passphrase=PHRASE, readonly=True)
        self.read = lambda size, offset: self.disk.pread(size, offset)


class Pyluksde:
    name = "pyluksde"

    def __init__(self, path):
        self.volume = pyluksde.volume()
        self.volume.set_password(PHRASE)
        self.volume.open(str(path))
        self.read = self.volume.read_buffer_at_offset


class Dissect:
    name = "dissect.fve"

    def __init__(self, path):
        luks = LUKS(open(path, "rb"))
        luks.unlock_with_passphrase(PHRASE)
        self.stream = luks.open()

    def read(self, size, offset):
        self.stream.seek(offset)
        return self.stream.read(size)


def measure(reader, block, offsets, seconds):
    """Bytes in a second; at least one read."""
    done, begin = 0, time.perf_counter()
    while True:
        done += len(reader.read(block, next(offsets)))
        elapsed = time.perf_counter() - begin
        if elapsed >= seconds:
            return done / elapsed


def sequential():
    while True:
        yield from range(0, SIZE, MIB)


def scattered():
    numbers = random.Random(1)
    while True:
        yield numbers.randrange(SIZE // 4096) * 4096


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def spread(samples):
    low, _, high = statistics.quantiles(samples, n=4)
    return (high - low) / statistics.median(samples)


def figure(name, rows, ours, theirs, goal):
    ratios = [a / b for a, b in zip(rows[ours]["samples"], rows[theirs]["samples"])]
    value = statistics.median(ratios)
    return {"name": name, "value": value, "unit": "ratio", "better": "higher", "goal": goal, "met": value >= goal,
            "note": None}


def compare(path, rounds, seconds):
    """Every row, by reader and block."""
    readers = [Cryptline(path), Pyluksde(path), Dissect(path)]
    sums = {reader.name: hashlib.sha256(reader.read(MIB, 4 * MIB)).hexdigest() for reader in readers}
    assert len(set(sums.values())) == 1, f"they read different bytes: {sums}"
    plans = [("sequential", MIB, sequential, readers), ("random", 4096, scattered, readers[:2])]
    rows = {}
    for _ in range(rounds):
        for pattern, block, offsets, some in plans:
            for reader in some:
                row = rows.setdefault((reader.name, block), {
                    "name": f"{reader.name}, {pattern} reads of {block} bytes", "server": reader.name, "generator": None,
                    "front": "in-process", "cipher": "aes-xts-plain64", "dispatch": None, "direction": "read",
                    "pattern": pattern, "block": block, "depth": 1, "streams": 1, "hogs": 0, "latency": None,
                    "sha256": sums[reader.name], "instructions": None, "allocations": None, "samples": []})
                row["samples"].append(measure(reader, block, offsets(), seconds))
    for row in rows.values():
        row["bytes_per_second"] = statistics.median(row["samples"])
        row["spread"] = spread(row["samples"])
    return rows


def report(rows, rounds, seconds):
    figures = [
        figure("python_over_pyluksde_1m", rows, ("cryptline", MIB), ("pyluksde", MIB), 8),
        figure("python_over_dissect_fve_1m", rows, ("cryptline", MIB), ("dissect.fve", MIB), 500),
        figure("python_4k_over_pyluksde", rows, ("cryptline", 4096), ("pyluksde", 4096), 2),
    ]
    machine = {"cpu": processor(), "cores": len(os.sched_getaffinity(0)),
               "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), "kernel": platform.release(),
               "backend": None, "cryptline": cryptline.__version__}
    return {"bench": "python", "title": "Readers of LUKS for Python", "medium": "memory", "machine": machine,
            "others": {"before": None, "during": None}, "commands": [" ".join(sys.argv)], "runs": rounds, "seconds": seconds,
            "spread": statistics.median(row["spread"] for row in rows.values()),
            "notes": ["one LUKS1 image, one thread, all readers in one process",
                      f"Python {platform.python_version()}, pyluksde {pyluksde.get_version()}"],
            "figures": figures, "rows": list(rows.values()), "warnings": []}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="write the report to FILE")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="how often each has its turn, 2 or more [5]")
    parser.add_argument("--seconds", type=float, default=0.5, metavar="S", help="how long each of them takes [0.5]")
    options = parser.parse_args()
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        path = pathlib.Path(folder) / "luks1.img"
        with cryptline.create(path, SIZE + 4 * MIB, passphrase=PHRASE, version=1, kdf="pbkdf2", iterations=1000) as disk:
            for offset in range(0, SIZE, MIB):
                disk.pwrite(random.Random(offset).randbytes(MIB), offset)
        rows = compare(path, options.rounds, options.seconds)
    result = report(rows, options.rounds, options.seconds)
    for row in result["rows"]:
        print(f"{row['name']:<46} {row['bytes_per_second'] / MIB:10.1f} MiB/s")
    for item in result["figures"]:
        print(f"{item['name']:<46} {item['value']:10.1f} (goal {item['goal']}{'' if item['met'] else ', NOT MET'})")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(result, file, indent=2)


if __name__ == "__main__":
    main()
