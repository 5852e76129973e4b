"""Lists of values into sinks: per-value answers, and a list that fails as a whole halved down to the culprit.

Pure but for the sinks it calls: the same for plain and for async ones, which differ in who waits for the answer.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidegate.errors import BatchFailed, NeverAwaited, Unavailable
from tidegate.records import Done


@dataclass
class Part:
    """One record of a list: its values, and what became of it."""

    queue: Hashable
    """Records of one queue must not overtake each other."""
    values: list[tuple[int, Any]] = field(default_factory=list)
    """Child number and value."""
    before: Done = frozenset()
    """Children and sinks that have it already."""
    done: set[tuple[int, int]] = field(default_factory=set)
    error: BaseException | None = None
    sink: int = -1
    stable_id: str = ""
    is_begun: bool = True
    """False: one before it in its queue failed, so it was not handed on."""

    @property
    def is_open(self) -> bool:
        """Whether it may go on to the next sink."""
        return self.error is None and self.is_begun


Item = tuple[Part, int, Any]
"""A record, the number of one of its children, and that child's value."""


def write_lists(parts: Sequence[Part], sinks: int) -> Generator[tuple[int, list[Item]], object, None]:
    """Hand the parts' values to each sink in turn, in their order.

    Yields (sink number, items) for each call to be made; is sent the sink's answer, or the exception it raised.
    """
    for number in range(sinks):
        _leave_behind_failures(parts)
        items = [
            (part, child, value)
            for part in parts
            if part.is_open
            for child, value in part.values
            if (child, number) not in part.before
        ]
        if items:
            yield from _write(number, items)


def _leave_behind_failures(parts: Sequence[Part]) -> None:
    """What stands behind a failed record of its queue goes to no further sink before that is decided."""
    failed: set[Hashable] = set()
    for part in parts:
        if not part.is_open:
            failed.add(part.queue)
        elif part.queue in failed:
            part.is_begun = False


def _write(number: int, items: list[Item]) -> Generator[tuple[int, list[Item]], object, None]:
    answer = yield number, items
    failures = _failures(answer, items)
    if failures is not None:
        _note(number, items, failures)
        return
    half = _middle(items)
    yield from _write(number, items[:half])
    rest = _not_behind_failures(items[:half], items[half:])
    if rest:
        yield from _write(number, rest)


def _note(number: int, items: list[Item], failures: Mapping[int, BaseException]) -> None:
    for place, (part, child, _) in enumerate(items):
        if place not in failures:
            part.done.add((child, number))
        elif part.error is None:
            part.error, part.sink = failures[place], number


def _not_behind_failures(first: list[Item], others: list[Item]) -> list[Item]:
    """Return those of the others that overtake no failed record of their queue; the rest is left alone."""
    failed = {part.queue for part, _, _ in first if part.error is not None}
    for part, _, _ in others:
        if part.queue in failed and part.error is None:
            part.is_begun = False
    return [item for item in others if item[0].is_open]


def _middle(items: list[Item]) -> int:
    """Return a place in the middle that does not part the children of one record."""
    half = len(items) // 2
    while half < len(items) and items[half][0] is items[half - 1][0]:
        half += 1
    if half == len(items):
        half = next(place for place, item in enumerate(items) if item[0] is items[-1][0])
    return half


def _failures(answer: object, items: list[Item]) -> dict[int, BaseException] | None:
    """Return which values a sink did not take, by place; None if it failed as a whole and must be halved."""
    count = len(items)
    if isinstance(answer, BatchFailed) and isinstance(answer.failures, Mapping):
        return _by_place(answer.failures, count)
    if isinstance(answer, BaseException):
        # A sink that is away, or never works, is so for all of them; a record that stands alone is the culprit.
        is_known = isinstance(answer, Unavailable | NeverAwaited) or len({id(part) for part, _, _ in items}) == 1
        return dict.fromkeys(range(count), answer) if is_known else None
    if isinstance(answer, list | tuple):
        return _by_place(
            {place: one for place, one in enumerate(answer) if isinstance(one, BaseException)}, count, answer
        )
    return {}


def _by_place(
    failures: Mapping[int, BaseException], count: int, answer: Sequence[object] | None = None
) -> dict[int, BaseException]:
    """Return failures by place; where it is not clear which values they mean, all have failed: none is lost."""
    is_clear = all(
        type(place) is int and 0 <= place < count and isinstance(error, BaseException)
        for place, error in failures.items()
    )
    if failures and (not is_clear or (answer is not None and len(answer) != count)):
        told = {place: type(error).__name__ for place, error in failures.items()}
        wrong = ValueError(f"the sink's answer does not fit its list of {count} values: {told!r}"[:500])
        return dict.fromkeys(range(count), wrong)
    return dict(failures)
