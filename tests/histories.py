"""Rows for tests of the history, on whichever database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from tidegate.history.rows import Batch, FailureRow, MarkRow, RunRow
from tidegate.records import Counts, Partition

CLUSTER, GROUP = "cluster-1", "billing"
P0, P1, P2 = (Partition("orders", number) for number in range(3))
NOON = datetime(2026, 1, 31, 12, 0, 30, 250_000, tzinfo=UTC)


def after(**words: float) -> datetime:
    """Return a moment after noon."""
    return NOON + timedelta(**words)


def run_row(run_id: str = "run-1", **words: Any) -> RunRow:
    known: dict[str, Any] = {
        "cluster": CLUSTER,
        "group": GROUP,
        "began_at": NOON,
        "seen_at": NOON,
        "host": "here",
        "pid": 4711,
        "topics": ("orders", "refunds"),
        "counts": Counts(1, 2, 3, 4, 5, 6),
    }
    return RunRow(run_id, **{**known, **words})


def marks(*of_each: int, at: datetime = NOON, **words: Any) -> dict[Partition, MarkRow]:
    return {Partition("orders", number): MarkRow(mark, at, **words) for number, mark in enumerate(of_each)}


def failure(failure_id: str, record_offset: int = 7, at: datetime = NOON) -> FailureRow:
    return FailureRow(P0, record_offset, "ValueError", "no amount", at, failure_id=failure_id)


def batch(
    *of_each: int, at: datetime = NOON, run: RunRow | None = None, failures: tuple[FailureRow, ...] = ()
) -> Batch:
    return Batch(run or run_row(), marks(*of_each, at=at), failures)
