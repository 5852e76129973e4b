"""A simulated record, and an attempt at it."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.records import Partition


@dataclass(frozen=True)
class Message:
    """A record as the books want it."""

    place: Partition
    at: int

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
