"""Works A and F: as many records as it can, with a sink that only counts; and what they cost."""

from __future__ import annotations

import time
from collections.abc import Sequence

from bench.meter import Meter
from bench.model import Case, Column, Contender, Flawed
from bench.stage import Attempt, Stage

LIMIT_SECONDS = 300.0


def check_ids(count: int, total: int, wanted: int) -> None:
    """See that the ids 0 to wanted - 1 were seen once each, by their number and their sum."""
    if count != wanted:
        raise Flawed(f"its sink saw {count:,} records of {wanted:,}")
    if total != wanted * (wanted - 1) // 2:
        raise Flawed(f"its sink saw {wanted:,} records, and they are not the ones that were written")


def watch(attempt: Attempt, wanted: int, limit_seconds: float) -> tuple[float, int, float]:
    """Return when the first records were seen, how many these were, and when all were."""
    attempt.wait(lambda: attempt.tally()[0] > 0, limit_seconds, "seen a record")
    began, first = time.monotonic(), attempt.tally()[0]
    attempt.wait(lambda: attempt.tally()[0] >= wanted, limit_seconds, f"seen {wanted:,} records")
    return began, first, time.monotonic()


class Throughput:
    letter = "A"
    title = "Throughput, and what it costs (F)"
    how = (
        "JSON records of 100 bytes in 4 partitions, `json.loads`, a sink that only counts them, offsets committed. "
        "Timed from the first record that the sink sees to the last, so that nobody's start counts. Processor time is "
        "of all processes over the same time, Java too; memory the most that all had together."
    )
    columns: Sequence[Column] = (
        Column("rate", "records/s"),
        Column("cpu", "CPU s per million", "{:,.1f}"),
        Column("memory", "memory MB"),
        Column("to_first", "s to the first record", "{:,.1f}"),
        Column("uncommitted", "left uncommitted"),
    )

    def __init__(self, records: int) -> None:
        self.records = records

    def cases(self) -> Sequence[Case]:
        return [Case("", {"records": self.records})]

    def run(self, stage: Stage, case: Case, contender: Contender) -> dict[str, float]:
        wanted = max(1000, int(case.facts["records"] * contender.share.get("A", 1.0)))
        attempt = stage.attempt("A", contender, stage.topic(wanted))
        started = time.monotonic()
        with attempt as program, Meter(program) as meter:
            began, first, ended = watch(attempt, wanted, LIMIT_SECONDS)
            time.sleep(0.3)  # for the last sample, and for what comes twice
        check_ids(*attempt.tally(), wanted)
        measures = {
            "rate": (wanted - first) / (ended - began),
            "cpu": meter.cpu_between(began, ended) / (wanted - first) * 1e6,
            "memory": meter.most_memory_mb,
            "to_first": began - started,
        }
        # Structured Streaming has a checkpoint of its own instead of a group.
        return measures if contender.environment == "spark" else {**measures, "uncommitted": attempt.uncommitted()}
