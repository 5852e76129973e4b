"""What a run of chaos came to, as data and as text."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from tests.chaos.work import met_work
from tidegate.names import is_own

if TYPE_CHECKING:
    from tests.chaos.member import Member, Verdict
    from tidegate.kafka.commits import CommitSeen
    from tidegate.testing import Struck


ENOUGH = 2
"""Where each kind of fault was due so often, each should have happened: what never strikes proves nothing."""


@dataclass(frozen=True)
class PipelineReport:
    kind: str
    guarantee: str
    records: int
    seen: int
    """Effects in its sink."""
    again: int
    """Effects beyond the first of a record."""
    rewinds: int
    lives: int
    """How often a copy of it was started."""
    breaches: list[str]
    surprises: list[str]
    lost: int = 0
    """Records that were never settled."""
    met_work: int | None = None
    """Faults that struck while a record was begun and not settled; None: it does not note when one begins."""
    aborted: int | None = None
    """Outputs of transactions that were aborted; None: it has none."""
    marks_told: int = 0
    """How many marks of partitions were looked at while it ran."""


@dataclass(frozen=True)
class FaultReport:
    kind: str
    planned: int
    happened: int
    recovery_median_seconds: float | None
    """From its end until every partition that it struck was committed again."""
    recovery_longest_seconds: float | None
    is_possible: bool = True
    """Whether some pipeline of the run can have it."""


@dataclass(frozen=True)
class ChaosReport:
    seed: int | None
    """None: somebody chose the schedule by hand."""
    seconds: float
    again_with: str
    pipelines: list[PipelineReport]
    faults: list[FaultReport]
    notes: list[str]
    nodes: int = 1
    """Of Kafka."""

    @property
    def breaches(self) -> list[str]:
        return [f"{one.kind}: {breach}" for one in self.pipelines for breach in one.breaches]

    @property
    def surprises(self) -> list[str]:
        return [f"{one.kind}: {surprise}" for one in self.pipelines for surprise in one.surprises]

    @property
    def lost(self) -> int:
        """Records that were never settled."""
        return sum(one.lost for one in self.pipelines)

    @property
    def missed(self) -> list[str]:
        """What should have happened in a run of this length, and never did."""
        if not self.faults or not all(fault.planned >= ENOUGH for fault in self.faults):
            return []
        return [
            *(one.kind for one in self.faults if one.is_possible and not one.happened),
            *(f"a fault that met work of {one.kind}" for one in self.pipelines if one.met_work == 0),
            *(f"an aborted transaction of {one.kind}" for one in self.pipelines if one.aborted == 0),
        ]

    @property
    def is_good(self) -> bool:
        return not self.breaches and not self.surprises and not self.missed

    def as_json(self) -> dict[str, object]:
        return {**asdict(self), "lost": self.lost, "missed": self.missed, "is_good": self.is_good}


def pipeline_report(member: Member, verdict: Verdict, marks_told: int = 0) -> PipelineReport:
    trial = member.trial
    entries = trial.log.read()
    return PipelineReport(
        member.kind,
        member.guarantee,
        len(trial.produced),
        verdict.seen,
        verdict.seen - verdict.different,
        len(entries.rewinds),
        trial.lives,
        [str(one) for one in verdict.breaches],
        list(trial.surprises),
        len({record for one in verdict.breaches if one.law == "L2" for record in one.records}),
        met_work(trial.subject.group, [one for each in trial.attacks for one in each.struck], entries.events),
        verdict.aborted,
        marks_told,
    )


def fault_reports(struck: Iterable[Struck], commits: dict[str, list[CommitSeen]]) -> list[FaultReport]:
    """Count the faults by kind. `commits`: of each group."""
    planned: Counter[str] = Counter()
    possible: set[str] = set()
    happened: Counter[str] = Counter()
    took: dict[str, list[float]] = defaultdict(list)
    for one in struck:
        planned[one.fault.kind] += 1
        possible |= {one.fault.kind} if one.is_possible else set()
        if not one.happened:
            continue
        happened[one.fault.kind] += 1
        known = [commits[one.whom]] if one.whom else list(commits.values())
        times = [seconds for each in known if (seconds := recovery(one.ended_ms, each)) is not None]
        if times:
            took[one.fault.kind].append(max(times))
    return [
        FaultReport(
            kind,
            count,
            happened[kind],
            round(statistics.median(took[kind]), 1) if took[kind] else None,
            max(took[kind]) if took[kind] else None,
            kind in possible,
        )
        for kind, count in sorted(planned.items())
    ]


def recovery(after_ms: int, commits: list[CommitSeen]) -> float | None:
    """How long until every partition that went on at all was committed once more; None: none did."""
    first: dict[object, int] = {}
    for one in commits:
        if one.committed_at_ms > after_ms and one.mark is not None and not is_own(one.partition.topic):
            first.setdefault(one.partition, one.committed_at_ms)
    return round((max(first.values()) - after_ms) / 1000, 1) if first else None


def as_text(report: ChaosReport) -> str:
    name = "" if report.seed is None else f"seed {report.seed}, "
    name += "" if report.nodes == 1 else f"{report.nodes} nodes, "
    lines = [f"chaos: {name}{report.seconds:g} s of faults", "", _row("PIPELINE", "GUARANTEE", *_HEADS)]
    for one in report.pipelines:
        met, aborted = ("-" if count is None else count for count in (one.met_work, one.aborted))
        counts = (one.records, one.seen, one.again, one.rewinds, one.lives, met, aborted, one.lost)
        figures = (*counts, len(one.breaches), len(one.surprises))
        lines.append(_row(one.kind, one.guarantee, *map(str, figures)))
    lines += ["", f"{'FAULT':18} {'PLANNED':>8} {'STRUCK':>7} {'RECOVERY s, median':>19} {'longest':>8}"]
    for fault in report.faults:
        median = "-" if fault.recovery_median_seconds is None else f"{fault.recovery_median_seconds:.1f}"
        longest = "-" if fault.recovery_longest_seconds is None else f"{fault.recovery_longest_seconds:.1f}"
        lines.append(f"{fault.kind:18} {fault.planned:8} {fault.happened:7} {median:>19} {longest:>8}")
    struck = sum(fault.happened for fault in report.faults)
    records = sum(one.records for one in report.pipelines)
    lines += ["", f"{records} records, {struck} faults, {report.lost} records lost"]
    lines += [f"BREACH {one}" for one in report.breaches] + [f"SURPRISE {one}" for one in report.surprises]
    lines += [f"NEVER {what}: in a run of this length it was due, and did not happen once" for what in report.missed]
    lines.append("all laws held" if report.is_good else f"again: {report.again_with}")
    return "\n".join(lines)


_HEADS = ("RECORDS", "SEEN", "AGAIN", "REWINDS", "LIVES", "MET WORK", "ABORTED", "LOST", "BREACHES", "SURPRISES")


def _row(kind: str, guarantee: str, *figures: str) -> str:
    return f"{kind:14} {guarantee:14}" + "".join(f"{one:>10}" for one in figures)
