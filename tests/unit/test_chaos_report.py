"""What a run of chaos says of itself: counts, recoveries, and how to run a failing seed again."""

from __future__ import annotations

from tests.chaos.report import ChaosReport, PipelineReport, as_text, fault_reports, recovery
from tests.chaos.tally import tables
from tidegate.kafka.commits import CommitSeen
from tidegate.records import Partition
from tidegate.testing import CutConnections, CutPower, KillDriver, Struck


def commit(at_ms: int, number: int = 0, topic: str = "t") -> CommitSeen:
    return CommitSeen("g", Partition(topic, number), at_ms, "", at_ms, at_ms)


def report(breaches: list[str], surprises: list[str]) -> ChaosReport:
    pipeline = PipelineReport("function", "at least once", 100, 103, 3, 1, 4, breaches, surprises)
    faults = fault_reports([Struck(KillDriver(), 1000, "g", happened=True, ended_ms=1000)], {"g": [commit(3500)]})
    return ChaosReport(7, 60.0, "make chaos SECONDS=60 SEED=7", [pipeline], faults, [])


def test_a_recovery_ends_when_the_last_partition_is_committed_again() -> None:
    commits = [commit(500, 0), commit(900, 1), commit(1500, 0), commit(4000, 1), commit(9000, 0), commit(9000, 1)]

    assert recovery(1000, commits) == 3.0
    assert recovery(9500, commits) is None
    assert recovery(1000, [commit(1200), commit(8000, topic="g.retry.1s")]) == 0.2, "retries come when they are due"


def test_faults_are_counted_as_planned_and_as_struck() -> None:
    struck = [
        Struck(KillDriver(), 1000, "g", happened=True, ended_ms=1000),
        Struck(KillDriver(), 5000, "g", happened=False),
        Struck(CutConnections(), 1000, "", happened=True, ended_ms=1000),
    ]
    cut, kill = fault_reports(struck, {"g": [commit(2000)], "h": [commit(3000)]})

    assert (kill.kind, kill.planned, kill.happened, kill.recovery_longest_seconds) == ("kill driver", 2, 1, 1.0)
    assert (cut.kind, cut.planned, cut.happened, cut.recovery_longest_seconds) == ("cut connections", 1, 1, 2.0)


def test_a_good_report_says_so_and_a_bad_one_how_to_run_it_again() -> None:
    good, lost = report([], []), report(["L2: t[0] never settled: offsets 3"], ["process 1 ended with 1"])

    assert (good.is_good, good.lost) == (True, 0)
    assert as_text(good).endswith("100 records, 1 faults, partitions with lost records: 0\nall laws held")
    assert (lost.is_good, lost.lost) == (False, 1)
    assert "BREACH function: L2: t[0] never settled: offsets 3\nSURPRISE function: process 1" in as_text(lost)
    assert as_text(lost).endswith("again: make chaos SECONDS=60 SEED=7")


def test_a_fault_that_was_due_in_a_long_run_and_never_struck_makes_its_report_no_good() -> None:
    def told(struck: list[Struck]) -> ChaosReport:
        return ChaosReport(7, 60.0, "again", [], fault_reports(struck, {"g": []}), [])

    impossible = [Struck(CutPower(), 0, "", is_possible=False)] * 2
    never, once = [Struck(KillDriver(), 0, "g")] * 2, [Struck(CutConnections(), 0, "g", happened=True)]
    long = told([*never, *once, *once, *impossible])

    assert (long.missed, long.is_good, long.as_json()["missed"]) == (["kill driver"], False, ["kill driver"])
    assert "NEVER kill driver" in as_text(long)
    assert told([*never, *once, *impossible]).is_good, "short: not every kind was due twice"
    assert told([*never, *once, *once, Struck(KillDriver(), 0, "g", happened=True)]).is_good


def test_several_reports_become_one_table() -> None:
    page = tables([report([], []).as_json(), report([], []).as_json()])

    assert "| 7 | 60 | function | 100 | 1 | 0 | 0 | 0 |" in page
    assert "| kill driver | 2 | 2 s | 2 s |" in page
    assert "| function | at least once | 200 | 206 | 6 | 2 | 8 |" in page
