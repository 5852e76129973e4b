"""A simulated record, and an attempt at it."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.records import Partition


@dataclass(frozen=True)
class SimCopy:
    """What lies in the retry topic instead of a record that failed."""

    origin: Partition
    at: int
    """Its offset there."""
    replay: int
    """In which life of its partition it was read."""
    attempts: int
    """Made at it so far."""
    number: int
    """Of the copies that it has come to, one after the other."""
    parent: Partition
    parent_at: int
    """What was settled by this copy: the record itself, or an earlier copy."""
    written_at: float = 0.0


@dataclass(frozen=True)
class Message:
    """A record as the books want it."""

    place: Partition
    at: int
    copy: SimCopy | None = None
    """What it is a copy of, where it lies in the retry topic."""

    @property
    def origin(self) -> tuple[Partition, int]:
        """Where it lay first."""
        return (self.place, self.at) if self.copy is None else (self.copy.origin, self.copy.at)

    def topic(self) -> str:
        return self.place.topic

    def partition(self) -> int:
        return self.place.number

    def offset(self) -> int:
        return self.at

    def key(self) -> bytes | None:
        return None

    def value(self) -> bytes | None:
        return None

    def headers(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return 0, 0


@dataclass(eq=False)
class Attempt:
    message: Message
    number: int
    has_effect: bool = False
