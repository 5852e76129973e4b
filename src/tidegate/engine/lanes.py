"""Lanes: one thread each, which runs one Spark job of one task at a time."""

from __future__ import annotations

import queue
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tidegate.engine.cancelled import ZOMBIE_SECONDS
from tidegate.engine.channel import LiveDesk
from tidegate.engine.room import Room
from tidegate.engine.spark import Spark
from tidegate.engine.task import run_task
from tidegate.engine.wire import decode_outcome
from tidegate.records import Lease, Outcome

UNHEARD_SECONDS = 10.0
"""A round of which nothing was heard for this long may have no slot: Spark is asked."""


@dataclass(frozen=True)
class RoundEnded:
    """A round came back: with its outcome, or with why there is none."""

    lease: Lease
    outcome: Outcome | None
    error: Exception | None


class Lanes:
    """Runs leases on Spark and reports each to `ended`, from the lane's own thread."""

    def __init__(
        self,
        spark: Spark,
        group: str,
        job: Callable[[Lease], bytes],
        ended: Callable[[RoundEnded], None],
        desk: LiveDesk | None,
        room: Room | None = None,
    ) -> None:
        """`room`: keeps the lanes within Spark's slots, where those may change."""
        self._spark = spark
        self._group = group
        self._run_name = f"tidegate-{group}-{uuid.uuid4().hex[:8]}"
        """Of this run alone: the next one on the same session counts its rounds from one again."""
        self._job = job
        self._ended = ended
        self._desk = desk
        self._room = room
        self._rounds: dict[int, tuple[int, float]] = {}
        """By lane, the round that runs and when it was given to Spark."""
        self._given: dict[int, queue.SimpleQueue[Lease | None]] = {}

    def start(self, lease: Lease) -> None:
        """Begin a round on its lane. The lane's last round must have ended."""
        if lease.lane not in self._given:
            # One thread per lane for good: PySpark keeps a JVM thread and a connection for each.
            self._given[lease.lane] = queue.SimpleQueue()
            threading.Thread(target=self._serve, args=(lease.lane,), name=f"lane-{lease.lane}", daemon=True).start()
        self._rounds[lease.lane] = (lease.round, time.monotonic())
        self._given[lease.lane].put(lease)

    def tick(self, proofs: Callable[[int], Sequence[int]]) -> None:
        """Tell live rounds that the driver's loop turns, and what got through elsewhere (asked by round)."""
        if self._desk is not None:
            self._desk.tick(proofs)
        if self._room is not None:
            self._room.turn(self._unheard())

    def _unheard(self) -> list[tuple[int, str]]:
        """Return the lanes whose rounds should have been heard of by now, with their jobs: they may wait for a slot."""
        now, desk = time.monotonic(), self._desk
        return [
            (lane, self._name(lane, round_number))
            for lane, (round_number, began) in list(self._rounds.items())
            if now - began > UNHEARD_SECONDS and not (desk is not None and desk.hears(lane, round_number))
        ]

    @property
    def is_live(self) -> bool:
        """Whether rounds can be told anything while they run."""
        return self._desk is not None

    def grant(self, permits: Mapping[int, int]) -> None:
        """Let live rounds, by their numbers, begin more records."""
        if self._desk is not None:
            self._desk.grant(permits)

    def finish(self, lease: Lease) -> None:
        """Ask a round to begin no more records. A plain round cannot hear it and ends by its own limits."""
        if self._desk is not None:
            self._desk.finish(lease.lane, lease.round)

    def hears(self, lease: Lease) -> bool:
        """Whether a round can be told anything now: it is live, and its task has started."""
        return self._desk is not None and self._desk.hears(lease.lane, lease.round)

    def cancel(self, lane: int) -> None:
        """Cancel the lane's round; it is reported as ended without an outcome."""
        if (flying := self._rounds.get(lane)) is not None:
            self._spark.cancel(self._name(lane, flying[0]))

    def close(self) -> None:
        """Let the threads end when their rounds have."""
        for given in self._given.values():
            given.put(None)
        if self._desk is not None:
            self._desk.close()
        if self._room is not None:
            self._room.close()

    def _serve(self, lane: int) -> None:
        while (lease := self._given[lane].get()) is not None:
            ended = self._run(lease)
            self._rounds.pop(lane, None)
            self._spark.forget(self._name(lane, lease.round))
            if self._desk is not None:
                self._desk.forget(lease.lane, lease.round)
            if ended.outcome is not None and ended.outcome.is_repeat:
                # Spark gave its first attempt up: an executor that cannot be reached may still run it for a while.
                time.sleep(ZOMBIE_SECONDS)
            self._ended(ended)

    def _run(self, lease: Lease) -> RoundEnded:
        partitions = ", ".join(str(item.partition) for item in lease.partitions)
        try:
            answer = self._spark.run_round(
                run_task,
                self._job(lease),
                name=self._name(lease.lane, lease.round),
                description=f"tidegate {self._group}: round {lease.round} of lane {lease.lane}: {partitions}",
            )
            return RoundEnded(lease, decode_outcome(answer), None)
        except Exception as error:  # noqa: BLE001  # whatever it is, the driver must hear that the round ended
            return RoundEnded(lease, None, error)

    def _name(self, lane: int, round_number: int) -> str:
        """Name the jobs of one round, and of no other: what is cancelled early or late must not end the next one."""
        return f"{self._run_name}-lane-{lane}-round-{round_number}"
