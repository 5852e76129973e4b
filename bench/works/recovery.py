"""Work D: a kill -9 under steady load, and an immediate restart."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence

from bench import topics
from bench.model import Case, Column, Contender
from bench.stage import READY, Attempt, Stage
from bench.works.steady import writing

START_SECONDS = 240.0
RECOVER_SECONDS = 240.0
CATCH_UP_SECONDS = 120.0


class Recovery:
    letter = "D"
    title = "After a kill -9"
    how = (
        "1,000 records per second are written. When the contender has worked for some seconds, all its processes are "
        "killed with SIGKILL, and it is started again at once. The session timeout is 10 s for all, Tidegate's default "
        "(the Kafka client's is 45 s). *Start* is from the kill until the new process, and its Spark, are up; *first "
        "new* from the kill until the sink sees a record that it had not seen; *repeated* is what it saw twice. "
        "Tidegate's Java reads the archive of its classes that `tidegate prepare` makes."
    )
    columns: Sequence[Column] = (
        Column("first_new", "s to the first new record", "{:,.1f}"),
        Column("start", "s of it to start", "{:,.1f}"),
        Column("repeated", "repeated"),
        Column("repeated_seconds", "s of work repeated", "{:,.2f}"),
        Column("lost", "lost"),
    )

    def __init__(self, before_seconds: float, rate: int = 1000) -> None:
        self.before_seconds = before_seconds
        self.rate = rate

    def cases(self) -> Sequence[Case]:
        return [Case("", {"rate": self.rate})]

    def run(self, stage: Stage, case: Case, contender: Contender) -> dict[str, float]:
        topic = f"recovery-{uuid.uuid4().hex[:8]}"
        topics.create(stage.bootstrap, topic)
        attempt = stage.attempt("D", contender, topic)
        with writing(stage, topic, case.facts["rate"]) as writer:
            with attempt as program:
                attempt.wait(lambda: bool(attempt.notes()), START_SECONDS, "seen a record", 0.05)
                until = attempt.notes()[0][1] + self.before_seconds
                attempt.wait(lambda: time.time() > until, START_SECONDS + self.before_seconds, "ended", 0.05)
                killed_at = time.time()
                program.kill()
            before = {note[0] for note in attempt.notes()}
            noted = len(attempt.notes())
            with attempt as program:
                attempt.wait(lambda: program.said(READY), RECOVER_SECONDS, "started again", 0.02)
                ready_at = time.time()
                first_new = self._first_new(attempt, noted, before)
                written = writer.end()
                deadline = time.monotonic() + CATCH_UP_SECONDS
                while len(seen := {note[0] for note in attempt.notes()}) < written and time.monotonic() < deadline:
                    time.sleep(0.25)
        topics.delete(stage.bootstrap, topic)
        repeated = len(attempt.notes()) - len(seen)
        return {
            "first_new": first_new - killed_at,
            "start": ready_at - killed_at,
            "repeated": repeated,
            "repeated_seconds": repeated / case.facts["rate"],
            "lost": written - len(seen),
        }

    def _first_new(self, attempt: Attempt, noted: int, before: set[int]) -> float:
        """Return when the first record was seen that had not been seen before the kill."""
        found: list[float] = []

        def look() -> bool:
            found.extend(when for number, when, _ in attempt.notes(noted) if number not in before)
            return bool(found)

        attempt.wait(look, RECOVER_SECONDS, "seen a new record", 0.02)
        return found[0]
