"""Pure: which lane serves which partition."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import Protocol, TypeVar

from tidegate.records import Partition


class Placed(Protocol):
    """What is known here of a partition."""

    partition: Partition
    lane: int | None
    bound: int | None
    careful_records: int | None
    last_round: int

    @property
    def store_lane(self) -> int | None:
        """The lane by whose name its store is known."""


P = TypeVar("P", bound=Placed)


def spread(owned: Iterable[Placed], count: int, busy: Collection[Partition]) -> None:
    """Give every partition a lane, evenly; one that a round may be working on stays where it is.

    One that is bound to a lane goes there, and stays, while there is such a lane.
    """
    everyone = list(owned)
    members: dict[int, list[Placed]] = {lane: [] for lane in range(count)}
    loose = []
    for one in everyone:
        if one.bound is not None and one.bound < count and one.partition not in busy:
            one.lane = one.bound
        if one.lane is not None and one.lane < count:
            members[one.lane].append(one)
        elif one.partition not in busy:
            loose.append(one)
    for one in loose:
        _move(one, _fewest(members), members)
    for one in everyone:
        if one.lane is None or one.lane >= count or one.partition in busy or one.bound == one.lane:
            continue
        fewest = _fewest(members)
        if len(members[one.lane]) > len(members[fewest]) + 1:
            members[one.lane].remove(one)
            _move(one, fewest, members)


def next_turn(ready: Iterable[P], taken: Collection[int | None]) -> tuple[list[P], bool]:
    """Return what a lane serves next, and whether that is all that it could serve. Names that are taken must wait.

    A partition with a suspect record goes alone; the others go together, by the name of their store; all take turns.
    """
    turns: list[list[P]] = []
    together: dict[int | None, list[P]] = defaultdict(list)
    for one in ready:
        if one.store_lane in taken:
            continue
        if one.careful_records is not None:
            turns.append([one])
        else:
            together[one.store_lane].append(one)
    turns += together.values()
    if not turns:
        return [], True
    return min(turns, key=lambda turn: min(one.last_round for one in turn)), len(turns) == 1


def _fewest(members: dict[int, list[Placed]]) -> int:
    return min(members, key=lambda lane: len(members[lane]))


def _move(one: Placed, lane: int, members: dict[int, list[Placed]]) -> None:
    one.lane = lane
    members[lane].append(one)
