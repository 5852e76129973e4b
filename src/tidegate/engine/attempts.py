"""Pure: one attempt at a record, and what it has been through before."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from tidegate.context import Message
from tidegate.copies import Copy
from tidegate.engine.books import Note
from tidegate.engine.failure import failure_of
from tidegate.errors import TimedOut
from tidegate.records import Done, Tries

LONGEST_PASS_ID = 600


@dataclass(frozen=True, slots=True)
class Attempt:
    """A record that may run now."""

    message: Message
    copy: Copy | None = None
    """What its headers say, where it comes from a topic of the group's own."""
    done: Done = frozenset()
    """Children and sinks that have it already."""
    note: Note | None = None

    @property
    def tries(self) -> Tries:
        """What it has been through in this place."""
        return Tries() if self.note is None else self.note.tries

    @property
    def pass_id(self) -> str | None:
        """Names this pass of a record that comes from a topic of the group's own, in every repeat of it alike.

        When it failed first tells it from another record in that place (the topic was made anew), and from the same
        one that runs again since somebody moved the group with other tools.
        """
        copy = self.copy
        if copy is None:
            return None
        named = f"{copy.stable_id}#{copy.attempt}.{copy.redrives}.{copy.replay}.{copy.first_failed_at_ms}"
        named = named.replace("\0", "\\0")  # anybody may write to the topic, and no database takes that in a text
        # Nor one of any length into an index. What we write ourselves is shorter.
        return named if len(named) <= LONGEST_PASS_ID else hashlib.blake2b(named.encode("utf-8", "replace")).hexdigest()

    @property
    def number(self) -> int:
        """Which attempt this is, all passes together."""
        return 1 + self.tries.failed + (0 if self.copy is None else self.copy.attempt)


def timed_out(attempt: Attempt, attempt_seconds: float) -> Note:
    """Return what is noted of a record whose attempt takes too long: the next round decides about it."""
    error = TimedOut(f"one attempt took longer than timeout={attempt_seconds:g}s")
    return Note(attempt.tries, 0.0, failure=failure_of(attempt.message, error, attempt.tries.failed + 1))
