"""Pure: which lane serves which partition."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol

from tidegate.records import Partition


class Placed(Protocol):
    """What is known here of a partition."""

    partition: Partition
    lane: int | None


def spread(owned: Iterable[Placed], count: int, busy: Collection[Partition]) -> None:
    """Give every partition a lane, evenly; one that a round may be working on stays where it is."""
    everyone = list(owned)
    members: dict[int, list[Placed]] = {lane: [] for lane in range(count)}
    loose = []
    for one in everyone:
        if one.lane is not None and one.lane < count:
            members[one.lane].append(one)
        elif one.partition not in busy:
            loose.append(one)
    for one in loose:
        _move(one, _fewest(members), members)
    for one in everyone:
        if one.lane is None or one.lane >= count or one.partition in busy:
            continue
        fewest = _fewest(members)
        if len(members[one.lane]) > len(members[fewest]) + 1:
            members[one.lane].remove(one)
            _move(one, fewest, members)


def _fewest(members: dict[int, list[Placed]]) -> int:
    return min(members, key=lambda lane: len(members[lane]))


def _move(one: Placed, lane: int, members: dict[int, list[Placed]]) -> None:
    one.lane = lane
    members[lane].append(one)
