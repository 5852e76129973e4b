"""Pure: how many faults met work in progress. One that strikes while nothing runs proves little."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tests.chaos.member import WORK_SECONDS

if TYPE_CHECKING:
    from tidegate.records import Partition
    from tidegate.testing import Event, Struck

Run = tuple[int, int, int]
"""Of a record that was begun: its program, and from when until when it was not settled."""


def met_work(group: str, struck: Iterable[Struck], events: Sequence[Event]) -> int | None:
    """Count the faults that struck this group while a record was begun and not settled, in the copy that was struck.

    None where the pipeline does not note when a record begins: it has no Python, or did nothing at all.
    """
    runs = list(_runs(events))
    if not runs:
        return None
    faults = [one for one in struck if one.happened and one.whom in ("", group)]
    return sum(_is_met(one, runs) for one in faults)


def _is_met(fault: Struck, runs: Iterable[Run]) -> bool:
    return any(
        began <= fault.ended_ms and fault.at_ms <= ended and fault.driver in (None, driver)
        for driver, began, ended in runs
    )


def _runs(events: Sequence[Event]) -> Iterable[Run]:
    """A record that its process never settles, or whose sink notes nothing, is at work for the time that work takes."""
    settled: dict[tuple[str, Partition, int], int] = {}
    for event in reversed(events):
        which = (event.process, event.partition, event.record_offset)
        if event.kind == "settled":
            settled[which] = event.at_ms
        else:
            yield event.driver, event.at_ms, settled.get(which, event.at_ms + round(WORK_SECONDS * 1000))
