"""`tidegate demo`: a real broker, a real Spark, an outage, a kill -9, and the audit.

Everything it says was read from the broker, the order service or the pipeline itself.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console

from tidegate.dev.broker import Broker
from tidegate.dev.demo_view import Figures, View
from tidegate.dev.jars import KAFKA_VERSION
from tidegate.dev.order_service import OrderService
from tidegate.errors import TidegateError
from tidegate.kafka.admin import Admin
from tidegate.kafka.connection import Kafka
from tidegate.names import dead_topic, retry_topic
from tidegate.ops.dead_letters import dead_letters
from tidegate.ops.produce import Message, produce
from tidegate.records import Partition, counted

TOPIC, GROUP, PARTITIONS = "orders", "delivery", 4
RETRY_SECONDS = 5.0
RECORDS = 8_000
RATE = 400
OUTAGE_SECONDS = 5.0
PATIENCE_SECONDS = 180.0


@dataclass(frozen=True)
class Audit:
    """What went in, what came out: by the ids of the orders."""

    produced: int
    taken: int
    dead: int
    lost: int
    both: int
    """Taken by the service, and among the dead letters too."""
    twice: int

    @property
    def holds(self) -> bool:
        """Whether the promise was kept."""
        return self.lost == 0 and self.both == 0 and self.taken + self.dead == self.produced


class DemoFailed(TidegateError):
    """The demo did not go as promised."""


class Demo:
    """The story, step by step."""

    def __init__(self, view: View, folder: Path, broker: Broker, records: int) -> None:
        self._view = view
        self._folder = folder
        self._records = records
        # Client settings of the user's own cluster, from the environment or the file, must not reach this one.
        self._kafka = Kafka(broker.bootstrap, {"security.protocol": "plaintext"})
        self._admin = Admin(self._kafka, 20.0)
        self._service = OrderService()
        self._produced = 0
        self._held = 0
        self._held_before = 0
        self._log = folder / "run.log"
        self._process: subprocess.Popen[bytes] | None = None

    def tell(self) -> Audit:
        """Tell it, and return the audit."""
        first = self._records // 8
        self._service.start(most=first)
        (self._folder / "order-service.txt").write_text(self._service.url, encoding="utf-8")
        shutil.copy(Path(__file__).with_name("demo_app.py"), self._folder)
        self._admin.create_topic(TOPIC, PARTITIONS)
        self._view.say(
            f"A producer writes {self._records:,} orders, {RATE} a second, into {PARTITIONS} partitions. Some have no "
            "address: the order service will refuse them. With some, the warehouse does not answer the first time."
        )
        producer = threading.Thread(target=self._produce, name="producer", daemon=True)
        producer.start()
        try:
            with self._view.figures() as show:
                process = self._start("The pipeline starts on local Spark: hold, retry later, dead letters.")
                self._watch(process, show, lambda now: now.taken >= first, "the first orders")
                self._outage(process, show)
                process = self._kill(process)
                self._watch(process, show, self._is_through, "everything that was produced")
                self._end(process)
            return self._audited()
        finally:
            self._clean_up()

    # --- the story

    def _outage(self, process: subprocess.Popen[bytes], show: Callable[[Figures], None]) -> None:
        self._service.stop()
        self._view.say(
            f"The order service goes away for {OUTAGE_SECONDS:g} s. The pipeline holds: no attempt is spent."
        )
        self._watch(process, show, lambda now: now.held > 0, "the outage")
        before, until = self._figures(), time.monotonic() + OUTAGE_SECONDS
        self._watch(process, show, lambda _: time.monotonic() > until, "the end of the outage")
        now = self._figures()
        self._view.say(
            f"It is back. {counted(now.held, 'attempt')} found it away; meanwhile {now.taken - before.taken} orders "
            f"were taken, {self._given_up()} were given up for it, and the group waited."
        )
        self._service.start()
        enough = now.taken + self._records // 4
        self._watch(process, show, lambda seen: seen.taken >= enough, "work after the outage")

    def _kill(self, process: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        self._held_before, self._held = self._held_before + self._held, 0
        now = self._figures()
        marks = ", ".join(f"{TOPIC}[{number}]={mark}" for number, (mark, _) in sorted(now.marks.items()))
        self._view.say(f"kill -9. The service has taken {now.taken:,} orders; the group stands at {marks}.")
        return self._start("A restart. The group waits for the dead member's session to end, then goes on from there.")

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        process.send_signal(signal.SIGTERM)
        code = process.wait(PATIENCE_SECONDS)
        if code != 0:
            raise self._went_wrong(f"the pipeline should have ended in good order, not with exit code {code}")

    def _is_through(self, now: Figures) -> bool:
        """Every partition is committed up to its end, and so is the retry topic.

        Counts alone would not do: a dead letter may be there twice after a kill.
        """
        is_written = now.produced == self._records
        return is_written and not now.waiting and all(mark == end for mark, end in now.marks.values())

    def _audited(self) -> Audit:
        """Compare ids: what was produced, what the service has taken, what lies among the dead letters."""
        produced = set(range(self._records))
        taken = self._service.taken
        dead = {order["id"] for order in self._dead_orders()}
        return Audit(
            len(produced),
            len(taken),
            len(dead),
            len(produced - taken.keys() - dead),
            len(taken.keys() & dead),
            sum(1 for times in taken.values() if times > 1),
        )

    # --- its parts

    def _given_up(self) -> int:
        """Dead letters that the service would take. Those that it refuses may be written while it is away."""
        return sum(order["address"] is not None for order in self._dead_orders())

    def _dead_orders(self) -> Iterator[dict[str, Any]]:
        """Read what lies among the dead letters."""
        for letter in dead_letters(GROUP, kafka=self._kafka):
            yield orjson.loads(letter.value or b"null")

    def _clean_up(self) -> None:
        self._service.stop()
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def _produce(self) -> None:
        def on_ack(ack: Any) -> None:
            self._produced += ack.error is None

        produce(TOPIC, map(_order, range(self._records)), kafka=self._kafka, every=1 / RATE, on_ack=on_ack)

    def _start(self, sentence: str) -> subprocess.Popen[bytes]:
        self._view.say(sentence)
        command = [sys.executable, "-m", "tidegate.cli", "run", str(self._folder / "demo_app.py"), "--serve", "0"]
        command += ["--bootstrap", self._kafka.bootstrap, "-X", "security.protocol=plaintext"]
        command += ["--set", "session_timeout=3s", "--set", "master=local[2]"]
        command += ["--set", f"history={self._folder / 'history.sqlite'}", "--set", "history_every=1s"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._folder
            )
        return self._process

    def _watch(
        self,
        process: subprocess.Popen[bytes],
        show: Callable[[Figures], None],
        check: Callable[[Figures], bool],
        what: str,
    ) -> None:
        """Show figures until the fact holds; the pipeline must not end before."""
        moved, last, deadline = time.monotonic(), Figures(), 0.0
        while True:
            now = self._figures()
            show(now)
            if check(now):
                return
            if process.poll() is not None:
                raise self._went_wrong(f"the pipeline ended by itself with exit code {process.returncode}")
            if now != last:
                moved, last = time.monotonic(), now
            deadline = moved + PATIENCE_SECONDS
            if time.monotonic() > deadline:
                raise self._went_wrong(f"nothing has moved for {PATIENCE_SECONDS:g} s, and {what} is missing")
            time.sleep(0.15)

    def _figures(self) -> Figures:
        # Marks before ends: what goes on between the two questions can only make the group look further behind.
        source = self._marks(Partition(TOPIC, number) for number in range(PARTITIONS))
        retries = self._marks(self._partitions(retry_topic(GROUP, RETRY_SECONDS)))
        status = self._status()
        if status is not None:
            self._held = int(status["counts"]["held"])
        return Figures(
            produced=self._produced,
            taken=len(self._service.taken),
            held=self._held_before + self._held,
            retried=sum(end for _, end in retries.values()),
            waiting=sum(end - mark for mark, end in retries.values()),
            dead=sum(end for _, end in self._marks(self._partitions(dead_topic(GROUP))).values()),
            marks={partition.number: both for partition, both in source.items()},
            service_is_up=self._service.is_up,
            pipeline="starting" if status is None else str(status["state"]),
        )

    def _partitions(self, topic: str) -> list[Partition]:
        info = self._admin.existing([topic]).get(topic)
        return [] if info is None else list(info.each_partition())

    def _marks(self, partitions: Iterable[Partition]) -> dict[Partition, tuple[int, int]]:
        """Mark and end of each, by the broker."""
        places = list(partitions)
        if not places:
            return {}
        marks = self._admin.committed(GROUP, places)
        ends = self._admin.ends(places)
        return {one: (marks[one].mark if one in marks else 0, ends[one]) for one in places}

    def _status(self) -> dict[str, Any] | None:
        """What the pipeline says about itself, over the address that it serves."""
        found = re.search(r"serving this run at (\S+)", self._log.read_text(encoding="utf-8", errors="replace"))
        if found is None:
            return None
        try:
            with urllib.request.urlopen(f"{found.group(1)}/api/v1/run", timeout=5) as answer:  # noqa: S310  # our own
                status: dict[str, Any] = orjson.loads(answer.read())
                return status
        except (urllib.error.URLError, OSError, ValueError):
            return None

    def _went_wrong(self, what: str) -> DemoFailed:
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines() if self._log.exists() else []
        for line in lines[-15:]:
            self._view.quote(line)
        return DemoFailed(what, "see the last lines of its log above")


def _order(number: int) -> Message:
    order: dict[str, object] = {"id": number, "address": None if number % 500 == 77 else f"{number} Harbour Street"}
    if number % 250 == 33:
        order["slow"] = True
    return Message(order, key=f"customer-{number % 97}", partition=number % PARTITIONS)


def run_demo(*, records: int = RECORDS, port: int = 0, stay_seconds: float | None = None) -> Audit:
    """Run the demo in a folder of its own; nothing of it stays.

    At the end the dashboard stays for so many seconds; None: until Ctrl-C on a terminal, not at all elsewhere.
    """
    console = Console(highlight=False, soft_wrap=not sys.stdout.isatty())
    console.print("Tidegate demo: a consumer group that moves past a record only when that record is settled.")
    view = View(console)
    folder = Path(tempfile.mkdtemp(prefix="tidegate-demo-"))
    try:
        with _broker(view, console) as broker, _dashboard(broker, folder, port) as address:
            view.say(f"Kafka {KAFKA_VERSION} runs at {broker.bootstrap}, and the dashboard at {address}")
            audit = Demo(view, folder, broker, records).tell()
            _show(console, audit)
            if not audit.holds:
                raise DemoFailed("the audit does not add up", "please report this, with the lines above")
            _stay(console, address, stay_seconds)
            return audit
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _broker(view: View, console: Console) -> Iterator[Broker]:
    with view.waiting("starting Kafka") as update:

        def progress(done: int, known: int) -> None:
            update(f"downloading Kafka, once: {done} of {known} jars")
            if not console.is_terminal and done % 15 == 0:
                console.print(f"   ... downloading Kafka, once: {done} of {known} jars")

        broker = Broker(progress=progress)
        broker.start()
    with broker:
        yield broker


@contextlib.contextmanager
def _dashboard(broker: Broker, folder: Path, port: int) -> Iterator[str]:
    """Serve the dashboard from a process of its own: the pipeline's is going to be killed."""
    out = folder / "serve.log"
    command = [sys.executable, "-m", "tidegate.cli", "serve", "--port", str(port), "--every", "1s"]
    command += ["--bootstrap", broker.bootstrap, "-X", "security.protocol=plaintext"]
    command += ["--history", str(folder / "history.sqlite")]
    with out.open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder)
    try:
        deadline = time.monotonic() + 60
        while (found := re.search(r" at (http://\S+)", out.read_text(encoding="utf-8", errors="replace"))) is None:
            if process.poll() is not None or time.monotonic() > deadline:
                said = out.read_text(encoding="utf-8", errors="replace").strip()
                raise DemoFailed(
                    f"the dashboard did not start: {said}", "install it: pip install 'tidegate[serve,http]'"
                )
            time.sleep(0.05)
        yield found.group(1)
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(15)
        process.kill()


def _show(console: Console, audit: Audit) -> None:
    console.print()
    console.print(f"  produced             {audit.produced:>7,}")
    console.print(f"  taken by the service {audit.taken:>7,}")
    console.print(f"  dead letters         {audit.dead:>7,}   (refused for good; kept with the reason)")
    console.print(f"  lost                 {audit.lost:>7,}")
    console.print(
        f"  taken twice          {audit.twice:>7,}   (in work at the kill -9; the same Idempotency-Key both times)"
    )
    console.print()


def _stay(console: Console, address: str, seconds: float | None) -> None:
    if seconds is None and not console.is_terminal:
        return
    console.print(f"The dashboard stays at {address} until Ctrl-C." if seconds is None else f"Look at {address}")
    with contextlib.suppress(KeyboardInterrupt):
        threading.Event().wait(seconds)
