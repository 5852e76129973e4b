"""Work E: more records, more partitions, larger values."""

from __future__ import annotations

import time
from collections.abc import Sequence

from bench import topics
from bench.meter import Meter
from bench.model import Case, Column, Contender, growth_name
from bench.stage import Stage
from bench.works.throughput import check_ids, watch

LIMIT_SECONDS = 600.0
IDLE_SECONDS = 5.0


def cases_of(records: Sequence[int], partitions: Sequence[int], value_bytes: Sequence[int], most_mb: int) -> list[Case]:
    """Vary one thing at a time; what large values come to stays below so many megabytes."""
    few = records[0]
    sizes = [(count, topics.PARTITIONS, 100) for count in records]
    sizes += [(few, count, 100) for count in partitions]
    sizes += [(min(few, most_mb * 1_000_000 // size), topics.PARTITIONS, size) for size in value_bytes]
    found = {}
    for count, number, size in sizes:
        name = growth_name(count, number, size)
        found[name] = Case(name, {"records": count, "partitions": number, "bytes": size})
    return list(found.values())


class Growth:
    letter = "E"
    title = "Growth"
    how = (
        "The work of A with one thing varied at a time. Memory is that of all processes when a quarter of the records "
        "was read, and at the end. *Driver* is the processor time of the first process alone (Tidegate's driver), "
        "*idle* what all of them take when everything is read, in percent of a core."
    )
    columns: Sequence[Column] = (
        Column("rate", "records/s"),
        Column("megabytes", "MB/s", "{:,.1f}"),
        Column("cpu", "CPU s per million", "{:,.1f}"),
        Column("driver", "driver CPU s per million", "{:,.2f}"),
        Column("idle", "idle %", "{:,.1f}"),
        Column("early", "MB early"),
        Column("late", "MB late"),
    )

    def __init__(self, cases: Sequence[Case]) -> None:
        self._cases = cases

    def cases(self) -> Sequence[Case]:
        return self._cases

    def run(self, stage: Stage, case: Case, contender: Contender) -> dict[str, float]:
        wanted, size = case.facts["records"], case.facts["bytes"]
        attempt = stage.attempt("E", contender, stage.topic(wanted, case.facts["partitions"], size))
        with attempt as program, Meter(program) as meter:
            began, first, ended = watch(attempt, wanted, LIMIT_SECONDS)
            quiet = ended + 1.0  # what is in flight is committed
            time.sleep(1.0 + IDLE_SECONDS + 0.5)
        check_ids(*attempt.tally(), wanted)
        per_million = 1e6 / (wanted - first)
        rate = (wanted - first) / (ended - began)
        return {
            "rate": rate,
            "megabytes": rate * size / 1e6,
            "cpu": meter.cpu_between(began, ended) * per_million,
            "driver": meter.own_cpu_between(began, ended) * per_million,
            "idle": meter.cpu_between(quiet, quiet + IDLE_SECONDS) / IDLE_SECONDS * 100,
            "early": meter.memory_at(began + (ended - began) / 4),
            "late": meter.memory_at(ended),
        }
