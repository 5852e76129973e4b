"""Places where a group may start: chosen offsets (`tg.at`), or where a table says (`tg.from_table`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from tidegate.errors import SettingsError
from tidegate.records import Partition
from tidegate.secrets import Secret

Word = Literal["beginning", "end"]
Place = int | Word
_WORDS = get_args(Word)
Otherwise = Literal["earliest", "latest"]


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


@dataclass(frozen=True)
class FromTable:
    """Start where an offset table says. Made by `tg.from_table`."""

    group: str | None = None
    history: str | Secret | None = field(default=None, repr=False)
    otherwise: Otherwise | None = None


def from_table(
    group: str | None = None, history: str | Secret | None = None, otherwise: Otherwise | None = None
) -> FromTable:
    """Start where the offset table of a history says: for `starting` of `from_kafka`.

    Like every `starting` it is used only for a topic for which the group has no commit at all, once: the positions
    are committed before the first record is read. A request that was not applied yet counts before the settled
    offset. `group`: whose rows (default: the pipeline's own group). `history`: a path or a URL (default: the
    setting `history`). `otherwise`: where partitions start that the table does not know; without it they are an
    error. A table that cannot be read, or an offset that is not in the log, is an error in any case.
    """
    if otherwise not in (None, *get_args(Otherwise)):
        raise SettingsError(f"from_table: otherwise={otherwise!r} is unknown", 'choose "earliest" or "latest"')
    if group is not None and not group:
        raise SettingsError("from_table: the group has no name", "name it, or leave it out for the pipeline's own")
    return FromTable(group, history, otherwise)


def _checked(partition: Partition, place: object) -> Place:
    if place in _WORDS or _is_number(place):
        return place  # type: ignore[return-value]  # just checked
    raise SettingsError(f"at: {partition} cannot start at {place!r}", 'give an offset from 0 on, "beginning" or "end"')


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
