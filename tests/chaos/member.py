"""One pipeline of the fleet: its trial, and how it is judged."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tidegate.ops.produce import Message
from tidegate.testing import Breach, Event, FillMetadata, Stage, Subject, Trial
from tidegate.testing.faults import PlannedFault
from tidegate.testing.laws import Order

APP = Path(__file__).parent / "apps" / "pipelines.py"
PARTITIONS = 4
KEYS = 20
WORK_SECONDS = 0.05
"""How long the work on a record takes, but for those that need thousands at once: so that faults meet it."""
FIRST_OF_BACKLOG = 10_000_000
"""Numbers that the feed does not reach."""
Guarantee = Literal["at least once", "exactly once"]


@dataclass(frozen=True)
class Verdict:
    """What the checker and the sink say of one pipeline."""

    breaches: list[Breach]
    seen: int
    """Effects, repeats included."""
    different: int
    """Records that have one at least."""
    aborted: int | None = None
    """Outputs that were written and never became visible; None: it has no transactions in Kafka."""
    parts: tuple[Sequence[Event], ...] = ()
    """What was settled when, by parts of the records; none where the sink keeps the marks."""


@dataclass(frozen=True)
class Member:
    """One pipeline of the fleet."""

    kind: str
    trial: Trial
    guarantee: Guarantee
    judge: Callable[[Trial], Verdict]


class Backlog:
    """Many records of one partition at once, of each in turn."""

    def __init__(self) -> None:
        self._given = 0

    def __call__(self, count: int) -> list[Message]:
        first = FIRST_OF_BACKLOG + self._given
        partition = self._given // count % PARTITIONS
        self._given += count
        return [Message(str(number), key=str(number), partition=partition) for number in range(first, first + count)]


@dataclass(frozen=True)
class Maker:
    """What every pipeline is made from."""

    kind: str
    stage: Stage
    folder: Path
    copies: int
    stack: contextlib.ExitStack

    def trial(
        self,
        order: Order = "partition",
        spared: tuple[type[PlannedFault], ...] = (),
        sink_away: Callable[[bool], None] | None = None,
        words: tuple[str, ...] = (),
        copies: int | None = None,
        **environment: str,
    ) -> Trial:
        subject = Subject(
            app=APP,
            topic=f"chaos-{self.kind}",
            group=f"chaos-{self.kind}-group",
            copies=self.copies if copies is None else copies,
            order=order,
            words=words,
            spared=(*spared, *(() if self.kind == "ragged" else (FillMetadata,))),
            sink_away=sink_away,
            backlog=Backlog() if self.kind == "ragged" else None,
            environment={"KIND": self.kind, "WORK_SECONDS": str(WORK_SECONDS), **environment},
        )
        trial = Trial(self.stage, subject, self.folder)
        trial.create_topic(PARTITIONS)
        return trial
