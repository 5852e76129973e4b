"""Pure: the names of a group's own topics, and what a name says."""

from __future__ import annotations

import re

from tidegate.durations import seconds

_MOST_NAME = 249
_NAME_CHARACTERS = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def is_topic_name(name: str) -> bool:
    """Whether Kafka would take this as a topic's name."""
    return 0 < len(name) <= _MOST_NAME and not set(name) - _NAME_CHARACTERS and bool(name.strip("."))


_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000))


def duration_name(delay: float) -> str:
    """Return a delay as it stands in a topic's name: in the largest unit that fits evenly."""
    milliseconds = round(delay * 1000)
    for unit, size in _UNITS:
        if milliseconds % size == 0:
            return f"{milliseconds // size}{unit}"
    return f"{milliseconds}ms"


_OWN = re.compile(r"(.+)\.(?:(dead|redrive)|retry\.(\d+(?:\.\d+)?(?:ms|s|m|h|d)))")


def retry_topic(group: str, delay: float) -> str:
    """Return the name of a group's retry topic for this delay."""
    return f"{group}.retry.{duration_name(delay)}"


def redrive_topic(group: str) -> str:
    """Return the name of the topic by which dead letters come back to a group."""
    return f"{group}.redrive"


def dead_topic(group: str) -> str:
    """Return the name of a group's dead letters."""
    return f"{group}.dead"


def is_own(name: str) -> bool:
    """Whether this is a topic that Tidegate itself writes, for any group: retry, redrive, dead letters."""
    return _OWN.fullmatch(name) is not None


def belongs_to(name: str, group: str) -> bool:
    """Whether this is one of the topics that Tidegate writes for this group."""
    match = _OWN.fullmatch(name)
    return match is not None and match.group(1) == group


def delay_of(topic: str, group: str) -> float | None:
    """Return the delay of a retry topic of this group; 0 for its redrive topic; None for any other topic."""
    match = _OWN.fullmatch(topic)
    if match is None or match.group(1) != group or match.group(2) == "dead":
        return None
    return seconds(match.group(3)) if match.group(3) else 0.0
