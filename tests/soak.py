"""A long run on the scales: is the memory of driver, workers and JVM steady, and does nothing pile up?

`python -m tests.soak [--kind SINK] [--minutes M] [--rate RECORDS_PER_SECOND] [--warm-up MINUTES] [--json FILE]`

A real broker, `tidegate run` as a process, records at a steady rate into the sink that was asked for. Every few
seconds each process is weighed, and the folder for temporary files. What counts is the slope after the warm-up, in
megabytes per minute, and how many threads, descriptors, processes and files there are more at the end. Every record
has a number: those that the sink took, and those that were set aside, are counted one by one. The exit code is 1 where
something grows too much, or where a number is missing, repeated, or not where it belongs.
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
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import orjson
from confluent_kafka import Producer

from tests.acceptance.program import APPS, Ended, Program, tidegate
from tests.hygiene import temporary_place
from tests.soak_ids import Verdict, judge
from tests.soak_kinds import KINDS, Kind
from tests.soak_scales import ROLES, TEMPORARY, Sample, complaints, of_role, piled_up, slope, weigh
from tidegate.dev.broker import Broker
from tidegate.kafka.admin import Admin
from tidegate.kafka.connection import Kafka
from tidegate.names import dead_topic
from tidegate.ops.tail import tail
from tidegate.records import Partition

TOPIC, GROUP, PARTITIONS = "soak", "soak-group", 4
EVERY_SECONDS = 5.0
WEIGHED = (*ROLES, TEMPORARY)


@dataclass(frozen=True)
class Soaked:
    """What was weighed in a run, and what became of its records."""

    samples: list[Sample]
    verdict: Verdict
    minutes: float
    produced: int
    refused: int
    settled: int
    """As the run says itself."""
    exit_code: int

    def complaints(self, warm_up: float) -> list[str]:
        """Say in words what is no good; nothing where all is."""
        said = [] if self.exit_code == 0 else [f"it ended with {self.exit_code}"]
        if self.settled != self.verdict.taken:
            said.append(f"it says that {self.settled} records were settled, and its sink took {self.verdict.taken}")
        if not self.verdict.is_clean:
            said.append("records are missing, repeated, or not where they belong")
        return [*complaints(self.samples, warm_up), *said]

    def figures(self, warm_up: float) -> dict[str, object]:
        """All of it but the samples, by name."""
        own = {role: of_role(self.samples, role, warm_up) for role in WEIGHED}
        told = self.complaints(warm_up)
        return {
            "minutes": self.minutes,
            "produced": self.produced,
            "refused": self.refused,
            "settled": self.settled,
            **self.verdict.figures(),
            "exit_code": self.exit_code,
            "warm_up_minutes": warm_up,
            "slopes_mb_per_minute": {role: slope(samples) for role, samples in own.items()},
            "piled_up": {role: piled_up(samples) for role, samples in own.items()},
            "complaints": told,
            "is_good": not told,
        }


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
    words.add_argument("--kind", default="object", choices=KINDS, help="which sink is soaked")
    words.add_argument("--minutes", type=float, default=60.0)
    words.add_argument("--rate", type=float, default=3000.0)
    words.add_argument("--warm-up", type=float, default=5.0)
    words.add_argument("--json", type=Path)
    words.add_argument("--live", default="true", choices=["true", "false"])
    chosen = words.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidegate-soak-")))
        broker = stack.enter_context(Broker())
        kind = KINDS[chosen.kind](Kafka(broker.bootstrap), folder, stack)
        soaked = soak(broker, folder, kind, chosen.live, chosen.minutes, chosen.rate)
    figures = {"kind": chosen.kind, **soaked.figures(chosen.warm_up)}
    show(soaked.samples, figures)
    if chosen.json is not None:
        chosen.json.write_bytes(orjson.dumps({**figures, "samples": [asdict(one) for one in soaked.samples]}))
    return 0 if figures["is_good"] else 1


def soak(broker: Broker, folder: Path, kind: Kind, live: str, minutes: float, rate: float) -> Soaked:
    """Let a pipeline run for so long."""
    admin = Admin(Kafka(broker.bootstrap), 30.0)
    admin.create_topic(TOPIC, PARTITIONS)
    words = ("--bootstrap", broker.bootstrap, "--master", "local[2]", "--set", f"live={live}")
    command = tidegate("run", str(APPS / "soak.py"), *words)
    feeder = Feeder(broker.bootstrap, rate)
    began = time.monotonic()
    with temporary_place() as (temporary, _):
        known = {"TOPIC": TOPIC, "GROUP": GROUP, "TMPDIR": str(temporary)}
        program = Program(command, folder, {**known, **kind.environment})
        try:
            feeder.start()
            samples = watch(program, temporary, minutes)
            feeder.finish()
            ended = end(program, admin)
        finally:
            program.kill_all()
    dead = dead_numbers(broker) if kind.sets_aside else ()
    return Soaked(
        samples,
        judge(feeder.count, kind.taken(), dead, kind.bad(feeder.count)),
        (time.monotonic() - began) / 60,
        feeder.count,
        feeder.refused,
        settled_of(ended.out + ended.err),
        ended.code,
    )


def watch(program: Program, temporary: Path, minutes: float) -> list[Sample]:
    """Weigh it for so long, or until it ends."""
    samples: list[Sample] = []
    began = time.monotonic()
    while (passed := (time.monotonic() - began) / 60) < minutes and program.is_running:
        samples += weigh(program, temporary, passed)
        if len(samples) % (len(WEIGHED) * 12) == 0:
            say(" ".join(f"{one.role} {one.megabytes:.0f} MB" for one in samples[-len(WEIGHED) :]), passed)
        time.sleep(EVERY_SECONDS)  # the distance between two samples, not a wait for something
    return samples


def end(program: Program, admin: Admin) -> Ended:
    """Let it finish its work, and stop it."""
    partitions = [Partition(TOPIC, number) for number in range(PARTITIONS)]
    ends = admin.ends(partitions)
    program.wait_until(
        lambda: {at: one.mark for at, one in admin.committed(GROUP, partitions).items()} == ends,
        within=300,
        what="everything settled",
    )
    program.send(signal.SIGTERM)
    return program.wait(within=120)


def dead_numbers(broker: Broker) -> Iterator[int]:
    """Give the numbers that were set aside."""
    for letter in tail(dead_topic(GROUP), kafka=Kafka(broker.bootstrap)):
        yield orjson.loads(letter.value or b"")["id"]


def settled_of(words: str) -> int:
    """Return how many records the run says that it has settled."""
    found = re.search(r"([\d,]+) records? settled in this run", words)
    return 0 if found is None else int(found.group(1).replace(",", ""))


def show(samples: list[Sample], figures: dict[str, object]) -> None:
    """Print the figures, and every role at the start, in the middle, and at the end."""
    for role in WEIGHED:
        own = of_role(samples, role)
        for one in (own[len(own) // 4], own[len(own) // 2], own[-1]) if own else ():
            counts = f"{one.threads} threads, {one.descriptors} descriptors, {one.processes} processes"
            counted = f"{one.files} files" if role == TEMPORARY else counts
            say(f"{role}: {one.megabytes:.1f} MB, {counted}", one.minutes)
    for name, value in figures.items():
        say(f"{name}: {value}", None)


def say(words: str, minutes: float | None) -> None:
    """Print one line."""
    sys.stdout.write(f"{'' if minutes is None else f'{minutes:6.1f} min  '}{words}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
