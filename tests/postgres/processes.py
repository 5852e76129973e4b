"""What tests run in processes of their own, to be killed there; started from a server that has imported everything."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from tests.postgres.support import GROUP, P0, P1, Database, Placed, effect, made
from tidegate.records import Commit, Partition
from tidegate.sinks.postgres import postgres
from tidegate.sinks.postgres_progress import PostgresProgress
from tidegate.sinks.postgres_store import PostgresStore
from tidegate.store import Outgoing

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.postgres.processes"])

COPIED_EVERY = 7


def started(run: Callable[..., None], *words: Any) -> ForkServerProcess:
    """Start a function of this module in a process of its own."""
    process = _CONTEXT.Process(target=run, args=words, daemon=True)
    process.start()
    return process


def killed(process: ForkServerProcess) -> None:
    """End it as a crash does, and see that it was that."""
    process.kill()
    process.join(30)
    assert process.exitcode == -signal.SIGKILL
    process.close()


def writer_to(sent: Path) -> Callable[[Sequence[Outgoing]], Mapping[int, BaseException]]:
    """A broker that outlives the process: what it was sent is in a file."""

    def relay(copies: Sequence[Outgoing]) -> Mapping[int, BaseException]:
        with sent.open("ab") as file:
            file.write(b"".join((copy.value or b"") + b"\n" for copy in copies))
        return {}

    return relay


def read_sent(sent: Path) -> list[int]:
    return [int(line) for line in sent.read_text(encoding="utf-8").splitlines()] if sent.exists() else []


def seal_for_ever(dsn: str, seed: int, sent: Path) -> None:
    """Work on two partitions from where they stand: bulks of any size, some records as copies."""
    chance = random.Random(seed)
    database = Database(dsn)
    plain, latest = database.orders(), postgres(dsn, table="latest", key="partition")
    store = PostgresStore([plain, latest], GROUP, writer_to(sent))
    stored = store.begin([P0, P1], b"")
    marks = {one: stored[one].mark if one in stored else 0 for one in (P0, P1)}
    while True:
        effects: list[Placed] = []
        for one in chance.sample([P0, P1], chance.randint(1, 2)):
            end = marks[one] + chance.choice([1, 3, 50])
            effects += [_record(one, number, plain, latest) for number in range(marks[one], end)]
            marks[one] = end
        moved = {one.partition for one in effects}
        assert store.seal(effects, {one: Commit(marks[one], "") for one in moved}) == {}


def _record(partition: Partition, number: int, plain: Any, latest: Any) -> Placed:
    stable_id = partition.number * 10**9 + number
    if number % COPIED_EVERY == 0:
        return effect(number, at=partition, copy=Outgoing("dead", str(stable_id).encode()))
    last = made(latest, {"partition": partition.number, "seen": number})
    return effect(number, made(plain, {"id": stable_id}), last, at=partition)


def die_between_send_and_delete(dsn: str, sent: Path) -> None:
    """Send what is left in the outbox, and die before anybody hears of it."""
    send = writer_to(sent)

    def relay(copies: Sequence[Outgoing]) -> Mapping[int, BaseException]:
        send(copies)
        os.kill(os.getpid(), signal.SIGKILL)
        return {}

    PostgresStore([Database(dsn).orders()], GROUP, relay).begin([P0], b"")


def make_tables(dsn: str, ready: Any, answers: Any) -> None:
    """Make all tables at the same moment as others do."""
    store = PostgresStore([Database(dsn).orders()], GROUP, lambda _: {})
    progress = PostgresProgress(dsn, GROUP)
    ready.wait(30)
    try:
        store.begin([P0], b"")
        progress.read([P0])
    except BaseException as error:
        answers.put(repr(error))
        raise
    answers.put("made")


def queue_and_barrier(parties: int) -> tuple[Any, Any]:
    return _CONTEXT.Queue(), _CONTEXT.Barrier(parties)
