"""Looking at a topic's records, from any place on, without a group and without a trace."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from tidegate.errors import SettingsError
from tidegate.kafka.scan import Scan
from tidegate.ops.cluster import chosen_cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tidegate.kafka.admin import Admin
    from tidegate.kafka.connection import Kafka
    from tidegate.kafka.scan import SeenRecord
    from tidegate.records import Partition

_POLL_SECONDS = 0.25
_NOTICE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Start:
    """Where to begin, in every partition."""

    kind: Literal["beginning", "end", "offset", "last", "time"]
    number: int = 0
    """An offset, a count of records before the end, or milliseconds since 1970."""


def parse_start(text: str) -> Start:
    """Turn `beginning`, `end`, `42` (an offset), `-10` (the last ten) or an ISO time into a start."""
    if text == "beginning":
        return Start("beginning")
    if text == "end":
        return Start("end")
    if text.removeprefix("-").isdecimal():
        number = int(text)
        return Start("last", -number) if text.startswith("-") else Start("offset", number)
    try:
        moment = parse_time(text)
    except ValueError:
        raise SettingsError(
            f"{text!r} is no place to start from",
            "write beginning, end, an offset, -N for the last N of each partition, or a time like 2026-01-31T12:00Z",
        ) from None
    return Start("time", int(moment.timestamp() * 1000))


def parse_time(text: str) -> datetime:
    """Read an ISO time; one without a zone is UTC. Raises `ValueError` for what is none."""
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def tail(
    topic: str,
    *,
    start: str | int = "beginning",
    follow: bool = False,
    partitions: Sequence[int] | None = None,
    kafka: Kafka | None = None,
    on_notice: Callable[[str], None] | None = None,
) -> Iterator[SeenRecord]:
    """Give the committed records of a topic, from a start on, up to its present end or for ever.

    `start` is what `parse_start` takes; times without a zone are UTC, offsets and `-N` count in each
    partition. It never joins a group and never commits. Order holds within a partition only. `on_notice`
    hears what a reader should know: records no longer retained, and that nothing has come for long.
    """
    cluster = chosen_cluster(kafka)
    places = _places(cluster.admin, topic, partitions)
    notice = on_notice or _ignore
    starts, ends = _starts(cluster.admin, places, parse_start(str(start)), notice)
    until = None if follow else ends
    with Scan(cluster.kafka, starts, until=until, timeout_seconds=cluster.timeout_seconds) as scan:
        quiet_since = noticed = time.monotonic()
        while not scan.is_done:
            record = scan.read(_POLL_SECONDS)
            now = time.monotonic()
            if record is not None:
                yield record
                quiet_since = noticed = time.monotonic()
            elif now - noticed >= _NOTICE_SECONDS:
                noticed = now
                notice(f"nothing has come for {now - quiet_since:.0f}s")


def _places(admin: Admin, topic: str, partitions: Sequence[int] | None) -> tuple[Partition, ...]:
    found = admin.describe([topic])[topic]
    if partitions is None:
        return found.each_partition()
    return tuple(found.partition(number) for number in dict.fromkeys(partitions))


def _starts(
    admin: Admin, places: tuple[Partition, ...], start: Start, notice: Callable[[str], None]
) -> tuple[dict[Partition, int], dict[Partition, int]]:
    beginnings, ends = admin.beginnings(places), admin.ends(places)
    match start.kind:
        case "beginning":
            wanted = beginnings
        case "end":
            wanted = ends
        case "offset":
            wanted = dict.fromkeys(places, start.number)
        case "last":
            wanted = {at: ends[at] - start.number for at in places}
        case "time":
            wanted = admin.offsets_at(places, start.number)
    if start.kind == "offset":
        for at in places:
            if wanted[at] < beginnings[at]:
                notice(f"{at}: records before offset {beginnings[at]} are no longer retained")
            elif wanted[at] > ends[at]:
                notice(f"{at}: there is no offset {wanted[at]} yet, the end is {ends[at]}")
    return {at: min(max(wanted[at], beginnings[at]), ends[at]) for at in places}, ends


def _ignore(_: str) -> None:
    """Take a notice that nobody wants to hear."""
