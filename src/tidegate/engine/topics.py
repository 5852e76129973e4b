"""Pure: the topics of a run as last seen: which are read, under which id, and what has changed.

No client, no clock: callers tell what they saw and when.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidegate.kafka.admin import TopicInfo
from tidegate.names import is_own

GONE_SECONDS = 10.0
"""A topic that is made anew is missing for a moment: only one that stays away for this long is gone."""


def expand(pattern: re.Pattern[str], known: Iterable[TopicInfo]) -> dict[str, TopicInfo]:
    """Return the topics that a pattern means: the whole name matches; no internal topic, none of Tidegate's own."""
    return {
        info.name: info
        for info in known
        if pattern.fullmatch(info.name) and not info.is_internal and not is_own(info.name)
    }


@dataclass(frozen=True)
class Change:
    """What is different from the last look."""

    anew: tuple[str, ...] = ()
    """Topics that have another id now."""
    gone: tuple[str, ...] = ()
    """Topics that have been missing for so long that they are not coming back."""
    found: tuple[str, ...] = ()
    """Topics that are new on the list."""


class Topics:
    """The topics a run reads, as last seen."""

    def __init__(self, infos: Mapping[str, TopicInfo], own: Mapping[str, TopicInfo] | None = None) -> None:
        self._own = dict(own or {})
        self._infos = {**infos, **self._own}
        self._expected: set[str] = set()
        self._missing_since: dict[str, float] = {}
        # Whatever `starting` says: what lies in a retry topic was promised to be tried again.
        self._later: set[str] = set(self._own)

    def is_own(self, name: str) -> bool:
        """Whether this is a retry or redrive topic of the group itself."""
        return name in self._own

    def expect(self, name: str) -> None:
        """A topic of the group's own was made while the run is there: it is read, too, once it is seen. Any thread."""
        self._expected.add(name)

    @property
    def looked_for(self) -> list[str]:
        """The topics to look at: those that are read, and those that are expected."""
        return sorted({*self._infos, *self._expected})

    @property
    def names(self) -> list[str]:
        """What the member subscribes to."""
        return sorted(self._infos)

    @property
    def infos(self) -> Mapping[str, TopicInfo]:
        """Every topic as last seen."""
        return self._infos

    def begins_at_its_beginning(self, name: str) -> bool:
        """Whether the topic came while the run was there: none of its records may be skipped."""
        return name in self._later

    def came_later(self, names: Iterable[str]) -> None:
        """These were found while the group was at work."""
        self._later |= set(names)

    def see(self, infos: Mapping[str, TopicInfo], now: float) -> Change:
        """Take what exists now of the topics on the list, and what else belongs on it."""
        anew = [
            name for name, info in infos.items() if name in self._infos and info.topic_id != self._infos[name].topic_id
        ]
        found = [name for name in infos if name not in self._infos]
        self._missing_since = {name: self._missing_since.get(name, now) for name in self._infos if name not in infos}
        gone = [name for name, since in self._missing_since.items() if now - since >= GONE_SECONDS]
        self._infos |= infos
        self._own |= {name: infos[name] for name in found if name in self._expected}
        self.came_later(found)
        for name in gone:
            del self._infos[name]
            del self._missing_since[name]
        return Change(tuple(sorted(anew)), tuple(sorted(gone)), tuple(sorted(found)))
