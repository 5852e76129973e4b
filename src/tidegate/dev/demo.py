"""`tidegate demo`: a real broker, a real Spark, a failed record, a kill -9, and the tally."""

from __future__ import annotations

import collections
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from tidegate.dev.broker import Broker
from tidegate.errors import TidegateError
from tidegate.kafka.admin import Admin
from tidegate.kafka.connection import Kafka
from tidegate.ops.offsets import offsets
from tidegate.ops.produce import Message, produce
from tidegate.records import Partition

TOPIC, GROUP, PARTITIONS = "orders", "delivery", 4
RECORDS = 12_000
BAD_PARTITION, BAD_OFFSET = 2, 300


@dataclass(frozen=True)
class Tally:
    """What went in, what came out."""

    produced: int
    delivered: int
    lost: int
    twice: int

    @property
    def holds(self) -> bool:
        """Whether the promise was kept."""
        return self.lost == 0 and self.delivered == self.produced


class DemoFailed(TidegateError):
    """The demo did not go as promised."""


class Demo:
    """The story, step by step. Everything it says was read from the broker or the deliveries."""

    def __init__(self, console: Console, folder: Path) -> None:
        self._console = console
        self._folder = folder
        self._app = folder / "demo_app.py"
        self._deliveries = folder / "deliveries"
        self._log = folder / "run.log"
        self._step = 0
        self._began = time.monotonic()

    def tell(self, broker: Broker) -> Tally:
        """Tell it, and return the tally."""
        # Client settings of the user's own cluster, from the environment or the file, must not reach this one.
        kafka = Kafka(broker.bootstrap, {"security.protocol": "plaintext"})
        shutil.copy(Path(__file__).with_name("demo_app.py"), self._app)
        self._say(f"Kafka 4.3.1 runs at {broker.bootstrap}.")
        ids = self._produce(kafka)
        self._fail_in_the_middle(kafka)
        self._kill_and_restart(kafka)
        tally = self._tally(ids)
        self._show(tally, kafka)
        return tally

    def _produce(self, kafka: Kafka) -> list[int]:
        Admin(kafka, 20.0).create_topic(TOPIC, PARTITIONS)
        delivery = produce(TOPIC, map(_order, range(RECORDS)), kafka=kafka)
        self._say(
            f"Produced {delivery.count:,} orders into {PARTITIONS} partitions. "
            f"One has no address: {TOPIC}\\[{BAD_PARTITION}] offset {BAD_OFFSET}."
        )
        return list(range(RECORDS))

    def _fail_in_the_middle(self, kafka: Kafka) -> None:
        self._say("Start the pipeline on local Spark. Its sink refuses an order without an address.")
        process = self._start(kafka)
        code = self._wait(process, until=lambda: False)
        if code != 3:
            raise self._went_wrong(f"the pipeline should have stopped with exit code 3, not {code}")
        self._quote("tidegate: stopped at")
        marks = self._marks(kafka)
        self._say(f"The group stands at {_shown(marks)}.")
        if marks.get(BAD_PARTITION) != BAD_OFFSET:
            raise self._went_wrong(f"the group should stand at offset {BAD_OFFSET} of partition {BAD_PARTITION}")
        self._say(
            f"Partition {BAD_PARTITION} stands exactly at the failed order, offset {BAD_OFFSET}; "
            "nothing before it will run again, nothing behind it was skipped."
        )

    def _kill_and_restart(self, kafka: Kafka) -> None:
        (self._folder / "mended").touch()
        before = len(self._delivered())
        self._say("The address is mended. Start again, and kill -9 the pipeline in the middle.")
        process = self._start(kafka)
        enough = before + (RECORDS - before) // 2
        stood = self._marks(kafka)
        code = self._wait(process, until=lambda: len(self._delivered()) >= enough and self._marks(kafka) != stood)
        if code is not None:
            raise self._went_wrong(f"the pipeline ended by itself with exit code {code} before it could be killed")
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        marks = self._marks(kafka)
        self._say(f"Killed with {len(self._delivered()):,} deliveries made; the group stands at {_shown(marks)}.")
        self._say("Restart. The group waits for the dead member's session to end, then hands out its partitions.")
        process = self._start(kafka)
        code = self._wait(process, until=lambda: False)
        if code != 0:
            raise self._went_wrong(f"the pipeline should have caught up, but ended with exit code {code}")

    def _tally(self, ids: Iterable[int]) -> Tally:
        counts = collections.Counter(self._delivered())
        produced = set(ids)
        twice = sum(1 for number in counts.values() if number > 1)
        return Tally(len(produced), len(produced & counts.keys()), len(produced - counts.keys()), twice)

    def _show(self, tally: Tally, kafka: Kafka) -> None:
        lag = sum(one.lag or 0 for one in offsets(GROUP, kafka=kafka).partitions)
        self._console.print()
        self._console.print(f"  produced         {tally.produced:>6,}")
        self._console.print(f"  delivered        {tally.delivered:>6,}")
        self._console.print(f"  lost             {tally.lost:>6,}")
        self._console.print(f"  delivered twice  {tally.twice:>6,}   (after the kill -9: done, but not yet committed)")
        self._console.print(f"  lag              {lag:>6,}")
        self._console.print()
        if not tally.holds or lag:
            raise self._went_wrong("the tally does not add up")

    # --- the pipeline's process

    def _start(self, kafka: Kafka) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tidegate.cli", "run", str(self._app), "--until", "caught-up"]
        command += ["--bootstrap", kafka.bootstrap, "-X", "security.protocol=plaintext"]
        command += ["--set", "session_timeout=3s", "--set", "master=local[2]"]
        with self._log.open("wb") as log:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def _wait(self, process: subprocess.Popen[bytes], until: Callable[[], bool]) -> int | None:
        """Show progress until the process ends (its exit code) or the fact holds (None)."""
        told, before = 0.0, len(set(self._delivered()))
        with self._console.status("starting Spark") as status:
            while process.poll() is None:
                if until():
                    return None
                delivered = len(set(self._delivered()))
                words = f"{delivered:,} of {RECORDS:,} delivered" if delivered != before else "starting Spark"
                status.update(words)
                if not self._console.is_terminal and time.monotonic() - told > 5:
                    told = time.monotonic()
                    self._console.print(f"   ... {words}")
                time.sleep(0.1)
        return process.returncode

    def _quote(self, beginning: str) -> None:
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        for line in [one for one in lines if one.startswith(beginning)][-1:]:
            self._console.print(f"   {line}", style="yellow", markup=False)

    def _went_wrong(self, what: str) -> DemoFailed:
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines() if self._log.exists() else []
        for line in lines[-15:]:
            self._console.print(f"   {line}", markup=False)
        return DemoFailed(what, "see the last lines of its log above")

    # --- facts

    def _delivered(self) -> list[int]:
        if not self._deliveries.exists():
            return []
        # A line is written whole or not at all, but the file may be read in the middle of one.
        text = self._deliveries.read_text(encoding="utf-8")
        return [int(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    def _marks(self, kafka: Kafka) -> dict[int, int]:
        partitions = [Partition(TOPIC, number) for number in range(PARTITIONS)]
        return {tp.number: one.mark for tp, one in Admin(kafka, 20.0).committed(GROUP, partitions).items()}

    def _say(self, sentence: str) -> None:
        self._step += 1
        self._console.print(f"[bold]{self._step}.[/bold] {sentence}", highlight=False)


def _order(number: int) -> Message:
    partition, place = number % PARTITIONS, number // PARTITIONS
    bad = (partition, place) == (BAD_PARTITION, BAD_OFFSET)
    return Message({"id": number, "address": None if bad else f"{number} Harbour Street"}, partition=partition)


def _shown(marks: dict[int, int]) -> str:
    return ", ".join(f"{TOPIC}\\[{number}]={mark}" for number, mark in sorted(marks.items()))


def run_demo() -> Tally:
    """Run the demo in a folder of its own; nothing of it stays."""
    console = Console(highlight=False, soft_wrap=not sys.stdout.isatty())
    console.print("Tidegate demo: a consumer group that moves past a record only when that record is settled.")
    folder = Path(tempfile.mkdtemp(prefix="tidegate-demo-"))
    try:
        with console.status("starting Kafka") as status:

            def progress(done: int, known: int) -> None:
                status.update(f"downloading Kafka, once: {done} of {known} jars")
                if not console.is_terminal and done % 15 == 0:
                    console.print(f"   ... downloading Kafka, once: {done} of {known} jars")

            broker = Broker(progress=progress)
            broker.start()
        with broker:
            return Demo(console, folder).tell(broker)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
