"""What a benchmark is made of: works with cases, contenders, runs, targets. Plain data."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from bench.stats import medians, ratio


class Flawed(Exception):
    """A contender did not do the work: records are missing, it ended, or it took too long. Its rate means nothing."""


@dataclass(frozen=True)
class Contender:
    """Something that can do works, and how it is run for each."""

    name: str
    program: str
    """The module under `bench.contenders`."""
    environment: str
    """The name of the environment that it runs in; `own` is Tidegate's."""
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Options by the letter of the work; a work that is not there is not done."""
    share: Mapping[str, float] = field(default_factory=dict)
    """The share of a work's records that it gets, where all of them would take minutes."""
    warm_up_seconds: float = 5.0
    """How long after its first record latencies do not count."""


@dataclass(frozen=True)
class Case:
    """One size of a work."""

    name: str
    facts: Mapping[str, Any]


def growth_name(records: int, partitions: int, value_bytes: int) -> str:
    """Return the name of a case of growth: works and targets both need it."""
    return f"{records:,} records, {partitions} partitions, {value_bytes:,} bytes"


@dataclass(frozen=True)
class Column:
    """A measure as the tables show it."""

    measure: str
    title: str
    form: str = "{:,.0f}"


@dataclass(frozen=True)
class Run:
    """What one contender did once."""

    work: str
    case: str
    contender: str
    round: int
    measures: Mapping[str, float]
    flaw: str = ""
    """Why it does not count; empty where it does."""


@dataclass(frozen=True)
class Target:
    """A measure of one contender compared with another's, or with a number, in the same run."""

    work: str
    case: str
    what: str
    contender: str
    measure: str
    sense: Literal["at least", "at most"]
    limit: float
    against: str = ""
    """The contender whose measure is multiplied with the limit; empty: the limit is the number itself.
    `best` is the best peer."""
    against_case: str | None = None
    """Where the other measure is taken from another case of the same work."""


@dataclass(frozen=True)
class Verdict:
    """What became of a target."""

    target: Target
    reached: float | None
    """The ratio, or the number; None where one of the two did not run."""

    @property
    def is_met(self) -> bool | None:
        if self.reached is None:
            return None
        return (
            self.reached >= self.target.limit if self.target.sense == "at least" else self.reached <= self.target.limit
        )


@dataclass
class Results:
    """Everything of one benchmark."""

    machine: Mapping[str, str]
    sizes: Mapping[str, Any]
    runs: list[Run] = field(default_factory=list)
    absent: dict[str, str] = field(default_factory=dict)
    """Contenders that could not be set up, and why."""

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return {**asdict(self), "runs": [asdict(run) for run in self.runs]}

    @staticmethod
    def read(plain: Mapping[str, Any]) -> Results:
        """Take back what `plain` gave."""
        runs = [Run(**run) for run in plain["runs"]]
        return Results(plain["machine"], plain["sizes"], runs, dict(plain["absent"]))

    @staticmethod
    def read_file(file: Path) -> Results:
        return Results.read(json.loads(file.read_text(encoding="utf-8")))

    def with_anew(self, fresh: Results) -> Results:
        """Return these results with the works of a later run in the place of their own."""
        works = {run.work for run in fresh.runs}
        sizes = {
            **self.sizes,
            "rounds": {**self.sizes["rounds"], **fresh.sizes["rounds"]},
            "anew": sorted({*self.sizes.get("anew", ()), *works}),
        }
        kept = [run for run in self.runs if run.work not in works]
        return Results(self.machine, sizes, kept + fresh.runs, {**self.absent, **fresh.absent})

    def contenders(self, work: str, case: str) -> list[str]:
        """The contenders of a case in the order in which they first ran."""
        return list(dict.fromkeys(run.contender for run in self.runs if (run.work, run.case) == (work, case)))

    def cases(self, work: str) -> list[str]:
        return list(dict.fromkeys(run.case for run in self.runs if run.work == work))

    def middle(self, work: str, case: str, contender: str) -> dict[str, float]:
        """Return the medians of a contender's good runs."""
        return medians(run.measures for run in self._of(work, case, contender) if not run.flaw)

    def flaws(self, work: str, case: str, contender: str) -> list[str]:
        return [run.flaw for run in self._of(work, case, contender) if run.flaw]

    def _of(self, work: str, case: str, contender: str) -> Sequence[Run]:
        return [run for run in self.runs if (run.work, run.case, run.contender) == (work, case, contender)]

    def judge(self, target: Target) -> Verdict:
        """Compare what was measured with a target. A contender with a flaw meets none."""
        if self.flaws(target.work, target.case, target.contender):
            return Verdict(target, None)
        value = self.middle(target.work, target.case, target.contender).get(target.measure)
        if not target.against:
            return Verdict(target, value)
        if target.against == "best":
            others = [
                self.middle(target.work, target.case, name).get(target.measure)
                for name in self.contenders(target.work, target.case)
                if not name.startswith(("Tidegate", "load generator"))
                and not self.flaws(target.work, target.case, name)
            ]
            known = [other for other in others if other is not None]
            return Verdict(target, ratio(value, max(known)) if known else None)
        case = target.case if target.against_case is None else target.against_case
        return Verdict(target, ratio(value, self.middle(target.work, case, target.against).get(target.measure)))
