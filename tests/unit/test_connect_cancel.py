"""Rounds over Spark Connect that are cancelled before the server has heard of them.

PySpark's session is the only part that is not real here: one whose requests arrive when a test says so.
"""

# ruff: noqa: N802  # the names of methods are PySpark's

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

from tests.support import wait_until
from tidegate.engine import spark_connect
from tidegate.engine.spark import RoundDied
from tidegate.engine.spark_connect import ConnectSpark

OVERTAKEN = "round-1"
WAIT_SECONDS = 20.0


class Client:
    """What the session says of its connection."""

    _use_reattachable_execute = True


class Session:
    """A session of PySpark's: it knows an operation from the moment on in which its request arrives."""

    version, is_stopped, client = "4", False, Client()

    def __init__(self, says: str = "[OPERATION_CANCELED] Operation has been canceled.") -> None:
        self.says = says
        self.sent: list[str] = []
        self.interrupts: list[list[str]] = []
        self.ran: list[str] = []
        self.may_arrive = threading.Event()
        self.is_sent = threading.Event()
        self._known: dict[str, threading.Event] = {}
        self._tag = threading.local()

    def addTag(self, tag: str) -> None:
        self._tag.name = tag

    def interruptTag(self, tag: str) -> list[str]:
        found = [name for name in self._known if name == tag]
        for name in found:
            self._known[name].set()
        self.interrupts.append(found)
        return found

    def execute(self) -> None:
        """Send a round and wait for its end; one that nobody interrupts runs."""
        name = self._tag.name
        self.sent.append(name)
        self.is_sent.set()
        assert self.may_arrive.wait(WAIT_SECONDS)
        interrupted = self._known[name] = threading.Event()
        if interrupted.wait(4 * spark_connect.INTERRUPT_AGAIN_SECONDS):
            raise RuntimeError(self.says)
        self.ran.append(name)

    # --- what else is asked of a session, and says nothing here

    def range(self, *_: object) -> Frame:
        return Frame(self)

    def clearTags(self) -> None:
        self._tag.name = ""

    def addArtifacts(self, *_: object, **_more: object) -> None:
        pass

    def registerProgressHandler(self, _handler: object) -> None:
        pass

    @property
    def conf(self) -> dict[str, str]:
        return {}


class Frame:
    """A DataFrame of it."""

    def __init__(self, session: Session, *, is_round: bool = False) -> None:
        self._session = session
        self._is_round = is_round

    def selectExpr(self, _what: str) -> Frame:
        return self

    def mapInArrow(self, _function: object, _schema: str) -> Frame:
        return Frame(self._session, is_round=True)

    def toArrow(self) -> pa.Table:
        if self._is_round:
            self._session.execute()
        return pa.table({"answer": [b"done" if self._is_round else 0]})


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_connect, "INTERRUPT_AGAIN_SECONDS", 0.05)


@pytest.fixture
def lane() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as made:
        yield made


def task(job: bytes, _attempt: int) -> tuple[bytes, bool]:
    return job, True


def begin(spark: ConnectSpark, lane: ThreadPoolExecutor, name: str) -> Future[bytes]:
    return lane.submit(spark.run_round, task, b"", name=name, description="a round")


def opened(session: Session) -> ConnectSpark:
    known: Any = session
    return ConnectSpark(known, owned=False)


def nobody_interrupts() -> bool:
    return not any(one.name == "cancel" for one in threading.enumerate())


ENDINGS = ["[OPERATION_CANCELED] Operation has been canceled.", "java.lang.InterruptedException"]


@pytest.mark.parametrize("says", ENDINGS)
def test_an_interrupt_that_overtakes_its_round_is_sent_again_until_the_round_is_back(
    lane: ThreadPoolExecutor, says: str
) -> None:
    session = Session(says)
    spark = opened(session)
    round_ = begin(spark, lane, OVERTAKEN)
    assert session.is_sent.wait(WAIT_SECONDS)
    spark.cancel(OVERTAKEN)
    wait_until(lambda: bool(session.interrupts), within=WAIT_SECONDS, what="an interrupt")
    assert session.interrupts == [[]], "the server knows nothing of the round yet"
    session.may_arrive.set()
    with pytest.raises(RoundDied, match="it was cancelled"):
        round_.result(WAIT_SECONDS)
    assert session.ran == []
    spark.forget(OVERTAKEN)
    wait_until(nobody_interrupts, within=WAIT_SECONDS, what="the end of the interrupts")


def test_a_round_that_is_cancelled_before_it_is_sent_is_not_sent_and_the_next_one_is(lane: ThreadPoolExecutor) -> None:
    session = Session()
    session.may_arrive.set()
    spark = opened(session)
    spark.cancel(OVERTAKEN)
    with pytest.raises(RoundDied, match="it was cancelled"):
        begin(spark, lane, OVERTAKEN).result(WAIT_SECONDS)
    assert session.sent == []
    spark.forget(OVERTAKEN)
    assert begin(spark, lane, "round-2").result(WAIT_SECONDS) == b"done"
    assert session.ran == ["round-2"]
    wait_until(nobody_interrupts, within=WAIT_SECONDS, what="the end of the interrupts")


def test_what_was_cancelled_is_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch, lane: ThreadPoolExecutor) -> None:
    monkeypatch.setattr(spark_connect, "INTERRUPTED_SECONDS", 0.1)
    session = Session()
    session.may_arrive.set()
    spark = opened(session)
    spark.cancel("never sent, and nobody says that it is back")
    wait_until(nobody_interrupts, within=WAIT_SECONDS, what="the end of the interrupts")
    again = begin(spark, lane, "never sent, and nobody says that it is back")
    assert again.result(WAIT_SECONDS) == b"done", "nothing is left of it"
