"""A long run on the scales: is the memory of driver, workers and JVM steady, and does nothing pile up?

`python -m tests.soak [--minutes M] [--rate RECORDS_PER_SECOND] [--warm-up MINUTES] [--json FILE]`

A real broker, `tidegate run` as a process, records at a steady rate. Every few seconds each process is weighed. What
counts is the slope after the warm-up, in megabytes per minute. Every record has a number: those that the sink took, and
those that were set aside, are counted one by one. The exit code is 1 where a slope is too steep, or where a number is
missing, repeated, or not where it belongs.
"""

from __future__ import annotations

import argparse
import itertools
import re
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import orjson
from confluent_kafka import Producer

from tests.acceptance.program import APPS, Program, tidegate
from tests.hygiene import descriptors_of, resident_bytes, thread_count
from tests.soak_ids import Verdict, judge, noted
from tidegate.dev.broker import Broker
from tidegate.kafka.admin import Admin
from tidegate.kafka.connection import Kafka
from tidegate.names import dead_topic
from tidegate.ops.tail import tail
from tidegate.records import Partition

TOPIC, GROUP, PARTITIONS = "soak", "soak-group", 4
EVERY_SECONDS = 5.0
STEEPEST = 1.0
"""Megabytes per minute."""
ROLES = ("driver", "jvm", "workers")
BAD_EVERY = 1000
"""One record of so many is set aside, the last: see `apps/soak.py`."""


@dataclass(frozen=True)
class Sample:
    """All processes of one role at a moment."""

    minutes: float
    role: str
    megabytes: float
    threads: int
    descriptors: int
    processes: int


class Feeder(threading.Thread):
    """Writes records at a steady rate until it is told to stop."""

    def __init__(self, bootstrap: str, rate: float) -> None:
        super().__init__(daemon=True)
        # Idempotent: a record that the producer itself sends twice is no repeat of the pipeline.
        known = {"bootstrap.servers": bootstrap, "linger.ms": 20, "enable.idempotence": True}
        self._producer = Producer({**known, "delivery.report.only.error": True})
        self._rate = rate
        self._is_over = threading.Event()
        self.count = 0
        self.refused = 0
        """Those that the broker has not taken: they will be missing, and the pipeline is not to blame."""

    def run(self) -> None:
        began = time.monotonic()
        for number in itertools.count():
            if self._is_over.is_set():
                break
            ahead = number / self._rate - (time.monotonic() - began)
            if ahead > 0.05:
                self._is_over.wait(ahead)
            value = orjson.dumps({"id": number, "customer": f"c{number % 1000}", "pad": "x" * 50})
            self._write(value, number % PARTITIONS)
            self._producer.poll(0)
            self.count = number + 1
        self._producer.flush(60)

    def _write(self, value: bytes, partition: int) -> None:
        while True:
            try:
                return self._producer.produce(TOPIC, value, partition=partition, on_delivery=self._note_refusal)
            except BufferError:  # a broker that is busy elsewhere: what is written later is written all the same
                self._producer.poll(0.1)

    def _note_refusal(self, error: object, _message: object) -> None:
        self.refused += error is not None

    def finish(self) -> None:
        self._is_over.set()
        self.join()


def main() -> int:
    """Run it, print what was seen, and say by the exit code whether it holds."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--minutes", type=float, default=60.0)
    words.add_argument("--rate", type=float, default=3000.0)
    words.add_argument("--warm-up", type=float, default=5.0)
    words.add_argument("--json", type=Path)
    words.add_argument("--live", default="true", choices=["true", "false"])
    chosen = words.parse_args()
    with tempfile.TemporaryDirectory(prefix="tidegate-soak-") as folder, Broker() as broker:
        samples, figures, verdict = soak(broker, Path(folder), chosen.minutes, chosen.rate, chosen.live)
    slopes = {role: slope([one for one in samples if one.role == role], chosen.warm_up) for role in ROLES}
    figures |= {"slopes_mb_per_minute": slopes, "warm_up_minutes": chosen.warm_up}
    show(samples, figures)
    if chosen.json is not None:
        chosen.json.write_bytes(orjson.dumps({**figures, "samples": [asdict(one) for one in samples]}))
    is_steady = all(one is not None and one < STEEPEST for one in slopes.values())
    is_whole = verdict.is_clean and figures["settled"] == verdict.taken and figures["exit_code"] == 0
    return 0 if is_steady and is_whole else 1


def soak(
    broker: Broker, folder: Path, minutes: float, rate: float, live: str
) -> tuple[list[Sample], dict[str, object], Verdict]:
    """Let a pipeline run for so long; return what was weighed and what became of the records."""
    admin = Admin(Kafka(broker.bootstrap), 30.0)
    admin.create_topic(TOPIC, PARTITIONS)
    numbers = folder / "numbers"
    environment = {"TOPIC": TOPIC, "GROUP": GROUP, "NUMBERS": str(numbers)}
    app = str(APPS / "soak.py")
    command = tidegate("run", app, "--bootstrap", broker.bootstrap, "--master", "local[2]", "--set", f"live={live}")
    program = Program(command, folder, environment)
    feeder = Feeder(broker.bootstrap, rate)
    samples: list[Sample] = []
    began = time.monotonic()
    try:
        feeder.start()
        while (passed := (time.monotonic() - began) / 60) < minutes and program.is_running:
            samples += weigh(program, passed)
            if len(samples) % (len(ROLES) * 12) == 0:
                say(" ".join(f"{one.role} {one.megabytes:.0f} MB" for one in samples[-len(ROLES) :]), passed)
            time.sleep(EVERY_SECONDS)  # the distance between two samples, not a wait for something
        feeder.finish()
        partitions = [Partition(TOPIC, number) for number in range(PARTITIONS)]
        ends = admin.ends(partitions)
        program.wait_until(
            lambda: {at: one.mark for at, one in admin.committed(GROUP, partitions).items()} == ends,
            within=300,
            what="everything settled",
        )
        program.send(signal.SIGTERM)
        ended = program.wait(within=120)
    finally:
        program.kill_all()
    verdict = judge(feeder.count, noted(numbers), dead_numbers(broker), range(BAD_EVERY - 1, feeder.count, BAD_EVERY))
    figures = {
        "minutes": (time.monotonic() - began) / 60,
        "produced": feeder.count,
        "refused": feeder.refused,
        "settled": settled_of(ended.out + ended.err),
        **verdict.figures(),
        "exit_code": ended.code,
    }
    return samples, figures, verdict


def dead_numbers(broker: Broker) -> Iterator[int]:
    """Give the numbers that were set aside."""
    for letter in tail(dead_topic(GROUP), kafka=Kafka(broker.bootstrap)):
        yield orjson.loads(letter.value or b"")["id"]


def settled_of(words: str) -> int:
    """Return how many records the run says that it has settled."""
    found = re.search(r"([\d,]+) records? settled in this run", words)
    return 0 if found is None else int(found.group(1).replace(",", ""))


def weigh(program: Program, minutes: float) -> list[Sample]:
    """Weigh every process of the program, by role."""
    roles: dict[str, list[int]] = {role: [] for role in ROLES}
    for pid in program.processes():
        roles["driver" if pid == program.pid else "jvm" if _is_java(pid) else "workers"].append(pid)
    return [
        Sample(
            minutes,
            role,
            sum(map(resident_bytes, pids)) / 1e6,
            sum(map(thread_count, pids)),
            sum(descriptors_of(pid).total() for pid in pids),
            len(pids),
        )
        for role, pids in roles.items()
    ]


def slope(samples: list[Sample], warm_up: float) -> float | None:
    """Pure: return the growth in megabytes per minute after the warm-up, by least squares."""
    counted = [(one.minutes, one.megabytes) for one in samples if one.minutes >= warm_up]
    if len(counted) < 2:
        return None
    middle = sum(at for at, _ in counted) / len(counted)
    level = sum(size for _, size in counted) / len(counted)
    spread = sum((at - middle) ** 2 for at, _ in counted)
    return sum((at - middle) * (size - level) for at, size in counted) / spread


def show(samples: list[Sample], figures: dict[str, object]) -> None:
    """Print the figures, and every role at the start, after the warm-up, and at the end."""
    for role in ROLES:
        own = [one for one in samples if one.role == role]
        for one in (own[len(own) // 4], own[len(own) // 2], own[-1]):
            say(f"{role}: {one.megabytes:.1f} MB, {one.threads} threads, {one.descriptors} descriptors", one.minutes)
    for name, value in figures.items():
        say(f"{name}: {value}", None)


def say(words: str, minutes: float | None) -> None:
    """Print one line."""
    sys.stdout.write(f"{'' if minutes is None else f'{minutes:6.1f} min  '}{words}\n")
    sys.stdout.flush()


def _is_java(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/exe").readlink().name == "java"
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(main())
