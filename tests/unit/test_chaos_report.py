"""What a run of chaos says of itself: counts, recoveries, and how to run a failing seed again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from tests.chaos.looks import settled_by_part, told_too_early
from tests.chaos.member import Member, Verdict
from tests.chaos.report import ChaosReport, PipelineReport, as_text, fault_reports, pipeline_report, recovery
from tests.chaos.tally import tables
from tests.chaos.work import met_work
from tidegate.kafka.commits import CommitSeen
from tidegate.records import Partition
from tidegate.testing import Breach, CutConnections, CutPower, Event, KillDriver, Stage, Struck, Subject, Trial


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
    assert as_text(good).endswith("100 records, 1 faults, 0 records lost\nall laws held")
    assert not lost.is_good
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

    assert "| 7 | 1 | 60 | function | 100 | 1 | 0 | 0 | 0 |" in page
    assert "| kill driver | 2 | 2 s | 2 s |" in page
    assert "| function | at least once | 200 | 206 | 6 | 2 | 8 | - | - |" in page


def test_a_report_of_before_and_one_that_counts_more_become_one_table() -> None:
    counted = replace(report([], []).pipelines[0], met_work=3, aborted=0)
    old, new = report([], []).as_json(), replace(report([], []), pipelines=[counted]).as_json()
    for name in ("met_work", "aborted"):
        old["pipelines"][0].pop(name)  # type: ignore[index]  # what JSON gives

    assert "| function | at least once | 200 | 206 | 6 | 2 | 8 | 3 | 0 |" in tables([old, new])


def test_lost_records_are_counted_one_by_one_whichever_part_of_them_was_lost(tmp_path: Path) -> None:
    lost = [("t", 0, 3), ("t", 0, 4)]
    parts = [Breach("L2", Partition("t", 0), "never settled", tuple(each)) for each in (lost, lost[:1])]
    late = Breach("L1", Partition("t", 0), "too early", (("t", 0, 9),))
    stage = Stage()
    trial = Trial(stage, Subject(app="app.py", topic="t", group="g"), tmp_path)
    stage.proxy.close()
    verdict = Verdict([*parts, late], 10, 9, aborted=2)
    told = pipeline_report(Member("function", trial, "at least once", lambda _: verdict), verdict)

    assert (told.lost, told.again, told.aborted, told.met_work) == (2, 1, 2, None)
    assert replace(report([], []), pipelines=[told, told]).lost == 4


def noted(kind: Literal["began", "settled"], at_ms: int, record_offset: int, driver: int = 1) -> Event:
    partition = Partition("t", 0)
    return Event(
        kind, partition, record_offset, f"t:{record_offset}", None, 1, at_ms, driver, f"p{driver}", driver, "r"
    )


WORK = [noted("began", 1000, 1), noted("settled", 1200, 1), noted("began", 2000, 2), noted("began", 3000, 3, driver=2)]
MET = [
    # from  to    whom  driver  met
    (900, 900, "g", None, 0, "nothing had begun"),
    (1100, 1100, "g", None, 1, "begun and not settled"),
    (1100, 1100, "", 1, 1, "it struck all, and this one's own program"),
    (1100, 1100, "g", 2, 0, "it struck the other copy"),
    (1100, 1100, "another", None, 0, "it struck another pipeline"),
    (900, 5000, "g", None, 1, "work began while it lasted"),
    (1201, 1999, "g", None, 0, "between two of them"),
    (2040, 2040, "g", 1, 1, "never settled: its work takes so long"),
    (2060, 2060, "g", 1, 0, "never settled, and it was over"),
]


@pytest.mark.parametrize(("at_ms", "ended_ms", "whom", "driver", "met", "because"), MET)
def test_a_fault_met_work_where_a_record_was_begun_and_not_settled(
    at_ms: int, ended_ms: int, whom: str, driver: int | None, met: int, because: str
) -> None:
    struck = Struck(KillDriver(), at_ms, whom, happened=True, ended_ms=ended_ms, driver=driver)
    missed = replace(struck, happened=False)

    assert met_work("g", [struck, missed], WORK) == met, because
    assert met_work("g", [struck], [one for one in WORK if one.kind == "settled"]) is None


def test_a_long_run_in_which_no_fault_met_work_or_no_transaction_was_aborted_is_no_good() -> None:
    pipes = [
        replace(report([], []).pipelines[0], kind=kind, met_work=met, aborted=aborted)
        for kind, met, aborted in (("frames", None, None), ("kafka-once", 0, 0), ("function", 3, None))
    ]
    struck = [Struck(KillDriver(), 0, "g", happened=True)]
    long = ChaosReport(7, 60.0, "again", pipes, fault_reports(struck * 2, {"g": []}), [])

    assert long.missed == ["a fault that met work of kafka-once", "an aborted transaction of kafka-once"]
    assert not long.is_good
    assert "NEVER an aborted transaction of kafka-once: " in as_text(long)
    assert replace(long, faults=fault_reports(struck, {"g": []})).is_good, "short"


def answer(at_ms: int, mark: int) -> CommitSeen:
    return CommitSeen("g", Partition("t", 0), mark, "", at_ms, at_ms)


def test_a_mark_that_was_told_before_its_records_were_settled_is_a_breach() -> None:
    produced = {("t", 0, at) for at in range(3)}
    settled = [noted("settled", 1000 + at, at) for at in range(3)]
    answers = [answer(900, 0), answer(1000, 1), answer(2000, 3), answer(2100, 1), answer(2200, 3)]
    assert told_too_early(produced, [settled], answers, []) == [], "marks that move back are judged elsewhere"

    late = [*settled[:2], noted("settled", 2001, 2)]
    [breach] = told_too_early(produced, [settled, late], answers, [])
    assert (breach.law, breach.records) == ("L1", (("t", 0, 2),))
    assert breach.sentence.startswith("whoever asked was told: offset 2 lay below the mark 3")


def test_where_the_sink_keeps_the_marks_a_record_must_have_begun_at_least() -> None:
    begun = [noted("began", 1000, 0), noted("settled", 1100, 0)]
    assert settled_by_part(Verdict([], 1, 1, parts=(begun[1:],)), begun) == [begun[1:]]
    assert settled_by_part(Verdict([], 1, 1), begun) == [[replace(begun[0], kind="settled")]]
    assert settled_by_part(Verdict([], 1, 1), begun[1:]) == [], "DataFrames note nothing"
