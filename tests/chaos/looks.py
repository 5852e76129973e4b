"""What whoever asks Kafka for a group's marks is told while faults strike: never more than what was settled by then.

The commits are judged at the end as Kafka keeps them, with their own times. This is another witness: what is answered.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tidegate.errors import TidegateError
from tidegate.kafka.commits import CommitSeen
from tidegate.testing import Breach, check_laws
from tidegate.testing.copies import CopySeen

if TYPE_CHECKING:
    from tests.chaos.member import Member, Verdict
    from tidegate.testing import Event
    from tidegate.testing.story import Produced

EVERY_SECONDS = 3.0


class Looks:
    """Asks for the marks of all pipelines now and then, until the `with` block ends."""

    def __init__(self, fleet: Sequence[Member]) -> None:
        self._fleet = fleet
        self.answers: dict[str, list[CommitSeen]] = defaultdict(list)
        """By pipeline: each mark, with the time at which its answer was there."""
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="looks", daemon=True)

    def __enter__(self) -> Looks:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._is_over.set()
        if kind is None:  # otherwise somebody pressed Ctrl-C, and nobody waits for it
            self._thread.join(120)
            assert not self._thread.is_alive(), "the looks did not end"

    def _look(self) -> None:
        while not self._is_over.wait(EVERY_SECONDS):
            for member in self._fleet:
                try:
                    marks = member.trial.marks()
                except TidegateError:
                    continue  # the broker is away, or has just come back
                at_ms, known = int(time.time() * 1000), self.answers[member.kind]
                group = member.trial.subject.group
                known += [CommitSeen(group, place, mark, "", at_ms, len(known)) for place, mark in marks.items()]


def settled_by_part(verdict: Verdict, noted: Iterable[Event]) -> list[Sequence[Event]]:
    """Return what was settled when, each part of the records by itself.

    Where the sink keeps the marks nobody notes that. A record has begun, then, before its mark can have passed it.
    """
    if verdict.parts:
        return list(verdict.parts)
    begun = [replace(one, kind="settled") for one in noted if one.kind == "began"]
    return [begun] if begun else []


def told_too_early(
    produced: Produced, parts: Iterable[Sequence[Event]], answers: Sequence[CommitSeen], copies: Sequence[CopySeen]
) -> list[Breach]:
    """Pure: return a breach of L1 for each record that lay below a mark before it was settled."""
    found = [one for part in parts for one in check_laws(produced, part, answers, copies=copies) if one.law == "L1"]
    return [replace(one, sentence=f"whoever asked was told: {one.sentence}") for one in found]
