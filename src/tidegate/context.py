"""What a user's function can ask about the record it works on, and what it may keep per worker."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, Generic, Protocol, TypeVar

from tidegate.copies import Copy, record_headers
from tidegate.errors import SettingsError
from tidegate.headers import all_headers, readable_headers
from tidegate.records import Record, moment

T = TypeVar("T")


class Message(Protocol):
    """The part of the client's message that a round needs."""

    def topic(self) -> str: ...  # noqa: D102  # the client's own names
    def partition(self) -> int: ...  # noqa: D102
    def offset(self) -> int: ...  # noqa: D102
    def key(self) -> bytes | None: ...  # noqa: D102
    def value(self) -> bytes | None: ...  # noqa: D102
    def headers(self) -> Sequence[tuple[str, bytes | None]] | None: ...  # noqa: D102
    def timestamp(self) -> tuple[int, int]: ...  # noqa: D102


class Hand:
    """The record in hand.

    A round stores the client's message here and nothing else: the `Record` is made only when asked for.
    """

    __slots__ = ("attempt", "copy", "group", "ids", "message", "outputs", "suffix")

    def __init__(self, group: str) -> None:
        self.group = group
        self.message: Message | None = None
        self.copy: Copy | None = None
        """What its headers say, where it comes from a topic of Tidegate's own: users see the origin."""
        self.attempt = 1
        self.ids: tuple[str, ...] = ()
        """What tells the values of the list in hand apart, where a sink has a list."""
        self.outputs: list[Any] = []
        """What sinks that write in bulk made of the record in hand."""
        self.suffix = ""
        """The part of the stable id that tells children and sinks apart."""


# A context variable: it is a thread's own, and on an event loop a task's own.
_hand: ContextVar[Hand | None] = ContextVar("hand", default=None)


def take_in_hand(hand: Hand | None) -> None:
    """Let `current()` in this thread, or in this task of an event loop, answer from this hand."""
    _hand.set(hand)


_NO_TIMESTAMP = 0


def current() -> Record:
    """Return the record that the calling function works on."""
    hand = _hand.get()
    message = None if hand is None else hand.message
    if hand is None or message is None:
        raise SettingsError(
            "tg.current() was called outside of a record's work",
            "call it inside a function that the pipeline runs for a record",
        )
    kind, milliseconds = message.timestamp()
    own = tuple(all_headers(message))
    if hand.copy is None:
        topic, partition, record_offset = message.topic(), message.partition(), message.offset()
        stable_id, headers = f"{hand.group}:{topic}:{partition}:{record_offset}", own
        timestamp = None if kind == _NO_TIMESTAMP else moment(milliseconds)
    else:
        origin = hand.copy.origin
        topic, partition, record_offset = origin.topic, origin.partition, origin.offset
        stable_id, headers = hand.copy.stable_id, record_headers(own)
        timestamp = moment(origin.timestamp_ms)
    return Record(
        topic=topic,
        partition=partition,
        offset=record_offset,
        key=message.key(),
        value=message.value(),
        headers=headers,
        timestamp=timestamp,
        attempt=hand.attempt,
        stable_id=stable_id + hand.suffix,
    )


def current_id() -> str:
    """Return the stable id of the record in hand, without making all of the record."""
    hand = _hand.get()
    if hand is None or hand.message is None or hand.copy is not None:
        return current().stable_id
    message = hand.message
    return f"{hand.group}:{message.topic()}:{message.partition()}:{message.offset()}{hand.suffix}"


def in_hand() -> Hand:
    """Return the hand itself, for sinks of ours that add to its outputs."""
    hand = _hand.get()
    if hand is None:
        raise SettingsError(
            "a sink of a pipeline was called outside of a record's work", "hand it to .sink(), do not call it yourself"
        )
    return hand


def collected() -> list[Any]:
    """Return what sinks that write in bulk have made of the record in hand; they add to it."""
    return in_hand().outputs


def current_ids() -> tuple[str, ...]:
    """Return the ids of the values of the list that a sink has in hand; none where it has a single value."""
    hand = _hand.get()
    return () if hand is None else hand.ids


_made: dict[str, object] = {}
_closers: dict[str, Callable[[], None]] = {}
_making = threading.Lock()


class Resource(Generic[T]):
    """Something costly that each Python worker makes once, after the fork: a client, a pool, a model."""

    def __init__(self, make: Callable[[], T], close: Callable[[T], None] | None) -> None:
        self._make = make
        self._close = close
        self._name = uuid.uuid4().hex

    def get(self) -> T:
        """Return this worker's one, made on first use."""
        with _making:
            if self._name not in _made:
                _made[self._name] = self._make()
                if self._close is not None:
                    close = self._close
                    _closers[self._name] = lambda: close(self._take())
            return _made[self._name]  # type: ignore[return-value]  # stored by this very resource

    def _take(self) -> T:
        return _made.pop(self._name)  # type: ignore[return-value]  # stored by this very resource


def resource(make: Callable[[], T], close: Callable[[T], None] | None = None) -> Resource[T]:
    """Declare something that every Python worker makes once for itself.

    Connections and pools must not cross a fork or be pickled; `.get()` inside a function makes
    one in the worker on first use and returns the same one from then on. `close` is called when
    the worker ends in an orderly way; a killed worker cannot call anything.
    """
    return Resource(make, close)


def close_at_end(close: Callable[[], None]) -> None:
    """Let this worker call this when it ends in good order."""
    _closers[uuid.uuid4().hex] = close


def holds_resources() -> bool:
    """Whether this worker made something that wants to be closed."""
    return bool(_closers)


def close_resources() -> None:
    """Close what this worker made, newest first; one failure does not keep the others open."""
    while _closers:
        _, close = _closers.popitem()
        try:
            close()
        except Exception:  # noqa: BLE001, S112  # nothing can be done for a dying worker's connection
            continue


TRACE_HEADERS = frozenset({"traceparent", "tracestate", "baggage"})
"""By these names a record says which trace it belongs to: W3C Trace Context and Baggage."""
_passes_traces = True


def pass_traces(*, wanted: bool) -> None:
    """Choose for this worker whether sinks pass trace headers on. It works for one run at a time."""
    global _passes_traces  # noqa: PLW0603  # one choice per worker, read by every thread of it
    _passes_traces = wanted


def trace_headers(hand: Hand | None = None) -> dict[str, bytes]:
    """Return the trace headers of the record in hand, for what is made of it. A copy has those of its record."""
    hand = hand or _hand.get()
    if not _passes_traces or hand is None or hand.message is None or hand.ids:
        return {}
    headers = readable_headers(hand.message)
    return {name: value for name, value in headers if name in TRACE_HEADERS and value} if headers else {}


def current_place() -> tuple[str, int, int] | None:
    """Return topic, partition and offset of the record in hand, if there is one."""
    hand = _hand.get()
    message = None if hand is None else hand.message
    return None if message is None else (message.topic(), message.partition(), message.offset())
