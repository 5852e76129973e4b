"""When the records at marks and at ends were written, remembered from look to look."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.kafka.peek import Peeked, Peeker

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from tidegate.kafka.connection import Kafka
    from tidegate.records import Partition

_FRESH_SECONDS = 60.0
"""For so long a record at a mark is believed to be still there: compaction may take it."""
_FIRST_STEP, _STEP_FACTOR = 1, 16


@dataclass(frozen=True, slots=True)
class Span:
    """What a group has not settled of one partition: the offsets from `start` to the end."""

    partition: Partition
    start: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class SpanTimes:
    """The timestamps of the first and the last record of a span; None where the record has none, or was not read."""

    is_empty: bool
    """Whether no record can be read there: only transaction markers, aborted records or gaps."""
    first_ms: int | None = None
    last_ms: int | None = None


class RecordTimes:
    """Asks for what is not known yet, within a time; one consumer for all partitions, in no group."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._peeker: Peeker | None = None
        self._firsts: dict[tuple[Partition, int], tuple[Peeked, float]] = {}
        self._lasts: dict[Partition, tuple[int, Peeked]] = {}

    def read(self, spans: Collection[Span], budget_seconds: float) -> dict[Span, SpanTimes]:
        """Return the times of these spans, the first ones first; what could not be read in time is left out."""
        deadline = time.monotonic() + budget_seconds
        self._keep_only(spans)
        for wave in _waves([span for span in spans if self._first(span) is None]):
            if time.monotonic() >= deadline:
                break
            self._read_firsts(wave, deadline)
        self._read_lasts(spans, deadline)
        found = ((span, self._first(span)) for span in spans)
        return {span: self._times(span, first) for span, first in found if first is not None}

    def close(self) -> None:
        """End the connection."""
        if self._peeker is not None:
            self._peeker.close()
        self._peeker = None

    def _first(self, span: Span) -> Peeked | None:
        """Return the first record of the span, or that it has none, if that is known."""
        known = self._firsts.get((span.partition, span.start))
        if known is None or time.monotonic() - known[1] > _FRESH_SECONDS:
            return None
        return known[0] if known[0].record_offset is not None or known[0].reached >= span.end_offset else None

    def _times(self, span: Span, first: Peeked) -> SpanTimes:
        if first.record_offset is None:
            return SpanTimes(is_empty=True)
        end, last = self._lasts.get(span.partition, (-1, first))
        return SpanTimes(
            is_empty=False,
            first_ms=first.timestamp_ms,
            last_ms=last.timestamp_ms if end == span.end_offset else None,
        )

    def _read_firsts(self, wave: list[Span], deadline: float) -> None:
        wanted = {}
        for span in wave:
            known = self._firsts.get((span.partition, span.start))
            # What was empty stays so: go on behind it.
            start = known[0].reached if known is not None and known[0].record_offset is None else span.start
            wanted[span.partition] = (start, span.end_offset)
        found = self._look().first(wanted, deadline)
        now = time.monotonic()
        for span in wave:
            if span.partition in found:
                self._firsts[span.partition, span.start] = (found[span.partition], now)

    def _read_lasts(self, spans: Collection[Span], deadline: float) -> None:
        """Find the last record of each log by steps back from its end, each longer than the one before."""
        lowest: dict[Partition, tuple[int, int]] = {}
        for span in spans:
            first = self._first(span)
            if first is None or first.record_offset is None:
                continue
            if first.record_offset == span.end_offset - 1:
                self._lasts[span.partition] = (span.end_offset, first)
            elif self._lasts.get(span.partition, (-1, first))[0] != span.end_offset:
                start = min(first.record_offset, lowest.get(span.partition, (first.record_offset, 0))[0])
                lowest[span.partition] = (start, span.end_offset)
        step = _FIRST_STEP
        while lowest and time.monotonic() < deadline:
            wanted = {at: (max(start, end - step), end) for at, (start, end) in lowest.items()}
            for at, last in self._look().last(wanted, deadline).items():
                if last.record_offset is not None:
                    self._lasts[at] = (wanted[at][1], last)
            is_open = {at for at, (start, _) in wanted.items() if start > lowest[at][0]}
            lowest = {
                at: span for at, span in lowest.items() if at in is_open and self._lasts.get(at, (-1,))[0] != span[1]
            }
            step *= _STEP_FACTOR

    def _look(self) -> Peeker:
        if self._peeker is None:
            self._peeker = Peeker(self._kafka)
        return self._peeker

    def _keep_only(self, spans: Collection[Span]) -> None:
        """Forget what nobody asks for any more, so that this does not grow for ever."""
        starts = {(span.partition, span.start) for span in spans}
        partitions = {span.partition for span in spans}
        self._firsts = {key: known for key, known in self._firsts.items() if key in starts}
        self._lasts = {at: known for at, known in self._lasts.items() if at in partitions}


def _waves(spans: list[Span]) -> Iterator[list[Span]]:
    """Split the spans so that no partition comes twice in a wave: a consumer reads it from one place only."""
    waves: list[list[Span]] = []
    used: dict[Partition, int] = {}
    for span in spans:
        number = used.get(span.partition, 0)
        used[span.partition] = number + 1
        if number == len(waves):
            waves.append([])
        waves[number].append(span)
    return iter(waves)
