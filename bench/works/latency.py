"""Work C: how old a record is when the sink sees it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence

from bench import topics
from bench.model import Case, Column, Contender, Flawed
from bench.stage import READY, Stage
from bench.stats import percentile
from bench.works.steady import writing

START_SECONDS = 240.0
CATCH_UP_SECONDS = 90.0


class Latency:
    letter = "C"
    title = "Latency"
    how = (
        "A producer writes 20, then 1,000 records per second with the time in them; the sink notes how old each is. "
        "The first seconds after the first record do not count: 20 where there is a Java, 5 elsewhere. All records "
        "that were written must have been seen."
    )
    columns: Sequence[Column] = (
        Column("p50", "p50 ms", "{:,.1f}"),
        Column("p95", "p95 ms", "{:,.1f}"),
        Column("p99", "p99 ms", "{:,.1f}"),
        Column("records", "records"),
    )

    def __init__(self, seconds: float, rates: Sequence[int] = (20, 1000)) -> None:
        self.seconds = seconds
        self.rates = rates

    def cases(self) -> Sequence[Case]:
        return [Case(f"{rate:,} per second", {"rate": rate}) for rate in self.rates]

    def run(self, stage: Stage, case: Case, contender: Contender) -> dict[str, float]:
        topic = f"latency-{uuid.uuid4().hex[:8]}"
        topics.create(stage.bootstrap, topic)
        attempt = stage.attempt("C", contender, topic)
        with attempt as program:
            attempt.wait(lambda: program.said(READY), START_SECONDS, "started", 0.1)
            with writing(stage, topic, case.facts["rate"]) as writer:
                attempt.wait(lambda: bool(attempt.notes()), START_SECONDS, "seen a record", 0.1)
                begin = attempt.notes()[0][1] + contender.warm_up_seconds
                attempt.wait(lambda: time.time() > begin + self.seconds, START_SECONDS + self.seconds, "ended", 0.2)
                written = writer.end()
            attempt.wait(
                lambda: len({note[0] for note in attempt.notes()}) >= written,
                CATCH_UP_SECONDS,
                f"seen all {written:,} records",
                0.5,
            )
        ages = [age * 1000 for _, when, age in attempt.notes() if when >= begin]
        if not ages:
            raise Flawed("it saw no record after the warm-up")
        topics.delete(stage.bootstrap, topic)
        shares = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
        return {**{name: percentile(ages, share) for name, share in shares.items()}, "records": len(ages)}
