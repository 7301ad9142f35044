"""Python libraries behind the protocol of lab/peers/README.md.

    python peer.py ENGINE 4|6 TABLEFILE

Both are tries in C with a Python interface, which takes one address a call: as text or an integer.
Keys are made when they arrive; a batch is a loop. What is measured is what a Python program gets.
"""

import array
import ctypes
import json
import signal
import socket
import sys
import time
from importlib.metadata import version

CHUNK = 1024


class PyTricia:
    """An address is its bytes in network order, the fastest form that it takes."""

    package = "pytricia"

    def __init__(self, family):
        import pytricia

        af = socket.AF_INET if family == 4 else socket.AF_INET6
        self.trie = pytricia.PyTricia(32 if family == 4 else 128, af)

    def insert(self, prefix, hop):
        self.trie.insert(prefix, hop)

    def remove(self, prefix):
        self.trie.delete(prefix)

    def batch(self, keys):
        get = self.trie.get
        return [get(key, 0) for key in keys]


class PyRadix:
    """An address is text or bytes; a node carries a dictionary."""

    package = "py-radix"

    def __init__(self, _family):
        import radix

        self.trie = radix.Radix()

    def insert(self, prefix, hop):
        self.trie.add(prefix).data["hop"] = hop

    def remove(self, prefix):
        self.trie.delete(prefix)

    def batch(self, keys):
        best = self.trie.search_best
        nodes = [best(packed=key) for key in keys]
        return [node.data["hop"] if node else 0 for node in nodes]


ENGINES = {"pytricia": PyTricia, "py-radix": PyRadix}


def read(file):
    with open(file, encoding="ascii") as lines:
        return [(prefix, int(hop)) for prefix, hop in (line.split() for line in lines)]


class Peer:
    def __init__(self, name, family, file):
        self.family = family
        self.routes = read(file)
        self.keys = []
        self.at = 0
        self.changes = []
        self.change_at = 0
        start = time.perf_counter_ns()
        self.engine = ENGINES[name](family)
        for prefix, hop in self.routes:
            self.engine.insert(prefix, hop)
        self.build_ms = (time.perf_counter_ns() - start) / 1e6

    def hello(self):
        package = self.engine.package
        python = sys.version.split()[0]
        return {
            "name": package,
            "version": f"{package} {version(package)}, Python {python}",
            "routes": len(self.routes),
            "refused": 0,
            "build_ms": self.build_ms,
            "bytes": None,
            "note": "one by one, from Python",
        }

    def set_keys(self, file):
        with open(file, "rb") as data:
            raw = data.read()
        if self.family == 4:
            words = array.array("I", raw)
            if sys.byteorder == "big":
                words.byteswap()
            self.keys = [word.to_bytes(4, "big") for word in words]
        else:
            self.keys = [raw[at : at + 16] for at in range(0, len(raw), 16)]
        self.at = 0
        if not self.keys:
            raise ValueError("no keys in the file")
        return {"ok": True, "keys": len(self.keys)}

    def answers(self, file):
        if not self.keys:
            raise ValueError("no keys")
        hops = array.array("I", self.engine.batch(self.keys))
        if sys.byteorder == "big":
            hops.byteswap()
        with open(file, "wb") as data:
            hops.tofile(data)
        return {"ok": True}

    def turn(self, mode, limit):
        # The interpreter does one thing after the other, so all modes are one.
        if mode not in ("batch", "single", "dependent"):
            raise ValueError("no such mode")
        if not self.keys:
            raise ValueError("no keys")
        lookups = elapsed = 0
        cpu, start = time.thread_time_ns(), time.perf_counter_ns()
        while elapsed < limit:
            keys = self.keys[self.at : self.at + CHUNK]
            self.engine.batch(keys)
            lookups += len(keys)
            self.at = self.at + len(keys) if self.at + len(keys) < len(self.keys) else 0
            elapsed = time.perf_counter_ns() - start
        return {"lookups": lookups, "ns": elapsed, "cpu_ns": time.thread_time_ns() - cpu}

    def set_changes(self, file):
        self.changes, self.change_at = read(file), 0
        if not self.changes:
            raise ValueError("no changes in the file")
        return {"ok": True, "changes": len(self.changes)}

    def change(self):
        """The next one; hop 0 withdraws, and a route that is not there is withdrawn already."""
        prefix, hop = self.changes[self.change_at]
        self.change_at = (self.change_at + 1) % len(self.changes)
        if hop:
            self.engine.insert(prefix, hop)
            return
        try:
            self.engine.remove(prefix)
        except KeyError:
            pass

    def update(self, limit, file):
        """Half of the time without a look at single changes, the other half with each timed."""
        if not self.changes:
            raise ValueError("no changes")
        updates = elapsed = 0
        cpu, start = time.thread_time_ns(), time.perf_counter_ns()
        while elapsed < limit // 2:
            for _ in range(16):
                self.change()
            updates += 16
            elapsed = time.perf_counter_ns() - start
        cpu = time.thread_time_ns() - cpu
        each = array.array("I")
        start = last = time.perf_counter_ns()
        while last - start < limit // 2:
            self.change()
            now = time.perf_counter_ns()
            each.append(min(now - last, 0xFFFFFFFF))
            last = now
        if sys.byteorder == "big":
            each.byteswap()
        with open(file, "wb") as data:
            each.tofile(data)
        return {
            "updates": updates,
            "ns": elapsed,
            "cpu_ns": cpu,
            "timed": len(each),
            "failed": 0,
        }

    def rest(self):
        while self.change_at:
            self.change()
        return {"ok": True, "failed": 0}

    def do(self, words):
        match words:
            case ["keys", file]:
                return self.set_keys(file)
            case ["answers", file]:
                return self.answers(file)
            case ["turn", mode, ms]:
                return self.turn(mode, int(ms) * 1_000_000)
            case ["changes", file]:
                return self.set_changes(file)
            case ["update", ms, file]:
                return self.update(int(ms) * 1_000_000, file)
            case ["rest"]:
                return self.rest()
            case ["bytes"]:
                return {"bytes": None}
        raise ValueError("no such command")


def say(reply):
    print(json.dumps(reply), flush=True)


def die_with_starter():
    """Nobody is left to answer when whoever started us is gone."""
    set_death_signal = 1
    ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL)


def main():
    die_with_starter()
    try:
        name, family, file = sys.argv[1:]
        peer = Peer(name, int(family), file)
    except (ImportError, KeyError, OSError, ValueError) as error:
        say({"error": f"{type(error).__name__}: {error}"})
        sys.exit(1)
    say(peer.hello())
    for line in sys.stdin:
        words = line.split()
        if words == ["quit"]:
            break
        try:
            say(peer.do(words))
        except (KeyError, OSError, ValueError) as error:
            say({"error": f"{type(error).__name__}: {error}"})


if __name__ == "__main__":
    main()
