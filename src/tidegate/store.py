"""Pure: what a round hands to a store, and what a store may answer.

A store takes the effects of records in bulk. One that keeps the group's progress takes effects and marks as one:
both are there afterwards, or neither.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tidegate.errors import BrokerRefused
from tidegate.records import Commit, Partition


class Outgoing(NamedTuple):
    """A record to be written to Kafka. A tuple: one is made per record."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    """None: chosen by the key, by the client's own rule, which is not that of Java's client."""


@dataclass(eq=False)
class Effect:
    """What one record has come to. Its parts are written all together, or not at all."""

    outputs: Sequence[Any] = ()
    """What its sinks made of it, in order; empty where a filter dropped it, or the policy skips it."""
    copy: Outgoing | None = None
    """Its retry or dead-letter copy, where it failed."""
    pass_id: str | None = None
    """Names this pass of a record that came from a retry or redrive topic; None for any other record.

    Where copies may come twice, a pass that is known already has no effect again.
    """


class Store(ABC):
    """One per Python worker and pipeline, used by one thread at a time."""

    keeps_progress: bool
    """Whether marks are stored together with the effects: then effects must come in the order of their partition."""
    takes_copies: bool
    """Whether retry and dead-letter copies are effects like others."""
    is_stuck: bool = False
    """Whether a thread of its client never came back: the worker must go when the round is over."""
    refused: BaseException | None = None
    """Why the broker will never take a copy that the store holds; None while there is no such copy."""

    def follow(self, before: int | None, round_number: int) -> None:  # noqa: B027  # most stores bear no name
        """Hear, before it begins, which round this is, and which one bore the lane's name last."""

    @abstractmethod
    def begin(self, partitions: Sequence[Partition], membership: bytes) -> Mapping[Partition, Commit]:
        """Begin a round: shut out whoever worked on these partitions before, then read where they stand.

        Partitions about which it knows nothing are left out. Raises `Unavailable`, or what cannot be cured by waiting.
        """

    @abstractmethod
    def seal(self, effects: Sequence[Effect], commits: Mapping[Partition, Commit]) -> Mapping[int, BaseException]:
        """Write effects and marks as one. Return which effects were refused, by their place, where it can tell.

        Raises `Poisoned` if one of them is to blame and it cannot tell which (nothing is written then),
        `Unavailable` if nobody is to blame (nothing is written, or it is not known), `Overtaken` if this round no
        longer has the say.
        """

    @abstractmethod
    def end(self) -> None:
        """The round is over: finish what is left to do beside the effects. Nothing may be raised."""

    @abstractmethod
    def discard(self) -> None:
        """Something went wrong: let go of connections, so that the next `begin` makes them anew."""


def refused_copy(why: BaseException) -> BrokerRefused:
    """Return the error of a copy that the broker will never take: it is safe, and somebody must be told."""
    return BrokerRefused(
        f"a retry or dead-letter copy in the outbox cannot be written: {why}",
        "mend that (size, rights), and start again: it is sent then",
    )


class Poisoned(Exception):
    """One of several effects cannot be written, and with it none was. The cause says why.

    `suspect` is the place of the one that is probably to blame, where something is known.
    """

    def __init__(self, what: str, suspect: int | None = None) -> None:
        super().__init__(what)
        self.suspect = suspect


class Overtaken(Exception):
    """Another round or process has these partitions now, or the group has moved on: this round must end."""
