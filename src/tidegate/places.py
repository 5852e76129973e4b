"""Chosen partitions at chosen offsets: what `tg.at` describes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from tidegate.errors import SettingsError
from tidegate.records import Partition

Word = Literal["beginning", "end"]
Place = int | Word
_WORDS = get_args(Word)


@dataclass(frozen=True)
class At:
    """Where chosen partitions start. Made by `tg.at`."""

    places: Mapping[Partition, Place]
    always: bool = False

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that have a partition here."""
        return tuple(dict.fromkeys(partition.topic for partition in self.places))


def at(places: Mapping[str, Mapping[int, Place]], *, always: bool = False) -> At:
    """Read chosen partitions only, each from a chosen place: an offset, `"beginning"` or `"end"`.

    `tg.from_kafka(tg.at({"orders": {0: 42, 1: "beginning"}}), group="billing")`. The place is used
    where the group has no commit for the partition. With `always` it is used at every start of a
    run, as a rewind before joining: what was settled from there on runs again, and the run is refused
    while the group has members. Other partitions of these topics are neither read nor given a start.
    """
    found: dict[Partition, Place] = {}
    for topic, partitions in places.items():
        for number, place in partitions.items():
            if not _is_number(number):
                raise SettingsError(f"at: {number!r} is no partition of {topic}", "number partitions from 0")
            found[Partition(topic, number)] = _checked(Partition(topic, number), place)
    if not found or not all(partition.topic for partition in found):
        raise SettingsError("at names no partition", 'write it like at({"orders": {0: 42, 1: "beginning"}})')
    return At(found, always)


def _checked(partition: Partition, place: object) -> Place:
    if place in _WORDS or _is_number(place):
        return place  # type: ignore[return-value]  # just checked
    raise SettingsError(f"at: {partition} cannot start at {place!r}", 'give an offset from 0 on, "beginning" or "end"')


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
