"""What the peers' environments hold, pinned, and what must be mended in them."""

from __future__ import annotations

from pathlib import Path

from bench.environments import Environment, replace

STORE = '''"""Stands in for a module that the published package lacks: it does what the one in its repository does.

Per partition the offsets that were emitted, each with its time, under a lock; ten times a second a thread looks at
every one of them and forgets those that are older than an hour.
"""
import threading
import time
from collections import defaultdict


class Offsets(dict):
    def __init__(self, most, seconds):
        super().__init__()
        self.most, self.seconds, self.lock = most, seconds, threading.RLock()
        threading.Thread(target=self.sweep, daemon=True).start()

    def sweep(self):
        while True:
            for offset in list(self.keys()):
                self.get(offset)
            time.sleep(0.1)

    def __getitem__(self, offset):
        with self.lock:
            value, when = super().__getitem__(offset)
            if time.time() - when < self.seconds:
                return value
            del self[offset]
            raise KeyError(offset)

    def get(self, offset, default=None):
        try:
            return self[offset]
        except KeyError:
            return default

    def __setitem__(self, offset, value):
        with self.lock:
            if len(self) == self.most:
                del self[next(iter(self))]
            super().__setitem__(offset, (value, time.time()))

    def pop(self, offset, default=None):
        with self.lock:
            return super().pop(offset, (default, 0.0))[0]


class Database:
    def __init__(self, maxlen_memory=10_000_000, maxage_memory=3600, **_):
        self.maxlen_memory, self.maxage_memory = maxlen_memory, maxage_memory
        self.db = defaultdict(lambda: Offsets(maxlen_memory, maxage_memory))

    def __contains__(self, partition):
        return partition in self.db

    def __getitem__(self, partition):
        return self.db[partition]

    def get(self, partition, default=None):
        return self.db.get(partition, default)

    def keys(self):
        return self.db.keys()
'''


def mend_water_healer(packages: Path) -> None:
    """Its wheel lacks the package `db`, and both it and its streamz import what Python 3.10 has moved."""
    database = packages / "waterhealer" / "db"
    database.mkdir(exist_ok=True)
    (database / "__init__.py").touch()
    (database / "expiringdict.py").write_text(STORE, encoding="utf-8")
    moved = ("from collections import Iterable", "from collections.abc import Iterable")
    replace(packages / "waterhealer" / "core.py", *moved)
    replace(packages / "streamz" / "core.py", *moved)
    replace(packages / "streamz" / "orderedweakset.py", "collections.MutableSet", "collections.abc.MutableSet")
    replace(packages / "streamz" / "orderedweakset.py", "import collections\n", "import collections.abc\n")


def mend_retriable(packages: Path) -> None:
    """One module of it evaluates an annotation when it is imported that only Python 3.13 can."""
    module = packages / "retriable_kafka_client" / "producer.py"
    text, line = module.read_text(encoding="utf-8"), "from __future__ import annotations\n"
    if not text.startswith(line):
        module.write_text(line + text, encoding="utf-8")


ENVIRONMENTS = {
    "quix": Environment(("quixstreams==3.28.1",)),
    "faststream": Environment(("faststream[confluent]==0.7.8", "confluent-kafka==2.16.1", "aiohttp==3.14.5")),
    "streamz": Environment(("streamz==0.6.6", "confluent-kafka==2.16.1", "pandas==2.3.3")),
    "water-healer": Environment(
        ("water-healer==0.1.8", "distributed==2026.8.0", "json-logging==1.3.0", "confluent-kafka==2.16.1"),
        mend_water_healer,
    ),
    "retriable": Environment(("retriable-kafka-client==0.7.0", "confluent-kafka==2.15.1"), mend_retriable),
    "spark": Environment(("pyspark==4.2.1", "pyarrow==26.0.1", "pandas==2.3.3")),
}
