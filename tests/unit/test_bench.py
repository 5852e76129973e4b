"""The benchmark's own thinking: what it counts, compares and shows."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from bench.__main__ import in_turn, works_of
from bench.chart import bars
from bench.contenders.common import Tally
from bench.model import Flawed, Results, Run, Target
from bench.processes import Program
from bench.report import charts_of, page_of
from bench.roster import CONTENDERS, TARGETS
from bench.stats import interpolated, medians, percentile, ratio
from bench.tables import case_table, targets_table
from bench.works.growth import cases_of
from bench.works.throughput import Throughput, check_ids

from tests.support import is_alive, wait_until


def results(*runs: Run) -> Results:
    return Results({"cores": "2"}, {"rounds": {"A": 2}}, list(runs), {"absent peer": "pip could not install it"})


def run(contender: str, rate: float, *, number: int = 0, flaw: str = "") -> Run:
    return Run("A", "", contender, number, {} if flaw else {"rate": rate, "cpu": 1.0}, flaw)


def test_a_work_that_is_run_anew_takes_the_place_of_its_earlier_runs_and_of_no_other() -> None:
    other = Run("D", "", "plain loop", 0, {"first_new": 10.0})
    whole = results(run("plain loop", 100.0), other)
    fresh = Results({}, {"rounds": {"D": 3}}, [Run("D", "", "plain loop", 0, {"first_new": 9.0})])
    both = whole.with_anew(fresh)
    assert both.middle("D", "", "plain loop") == {"first_new": 9.0}
    assert both.middle("A", "", "plain loop") == whole.middle("A", "", "plain loop")
    assert (both.sizes["rounds"], both.sizes["anew"], both.machine) == ({"A": 2, "D": 3}, ["D"], whole.machine)
    assert "Run anew after the others, all contenders of a work in one run: D." in page_of(both, [], {})


@pytest.mark.parametrize(
    ("share", "value"),
    [(0.0, 1), (0.5, 51), (0.95, 96), (0.99, 100), (1.0, 100)],
)
def test_a_percentile_is_a_value_that_was_measured(share: float, value: float) -> None:
    assert percentile([float(number) for number in range(100, 0, -1)], share) == value


def test_there_is_no_percentile_of_nothing() -> None:
    with pytest.raises(ValueError, match="nothing"):
        percentile([], 0.5)


def test_medians_are_taken_per_measure_where_it_is() -> None:
    assert medians([{"rate": 1.0}, {"rate": 5.0, "lost": 2.0}, {"rate": 3.0}]) == {"rate": 3.0, "lost": 2.0}


def test_a_ratio_to_nothing_is_no_ratio() -> None:
    assert ratio(6.0, 2.0) == 3.0
    assert [ratio(6.0, 0.0), ratio(6.0, None), ratio(None, 2.0)] == [None, None, None]


@pytest.mark.parametrize(("when", "value"), [(0.0, 10.0), (1.0, 10.0), (1.5, 15.0), (2.0, 20.0), (9.0, 20.0)])
def test_a_counter_between_two_samples_is_on_the_line_between_them(when: float, value: float) -> None:
    assert interpolated([(1.0, 10.0), (2.0, 20.0)], when) == value


def test_ids_that_are_missing_doubled_or_others_are_a_flaw() -> None:
    check_ids(4, 0 + 1 + 2 + 3, 4)
    for count, total in ((3, 0 + 1 + 2), (5, 0 + 1 + 2 + 3 + 3), (4, 0 + 1 + 2 + 2)):
        with pytest.raises(Flawed):
            check_ids(count, total, 4)


def test_a_tally_is_in_its_file_at_once(tmp_path: Path) -> None:
    tally = Tally(str(tmp_path))
    for number in (5, 7):
        tally.see({"id": number})
    [file] = tmp_path.glob("*.tally")
    cells = file.read_bytes()
    assert [int.from_bytes(cells[:8], "little"), int.from_bytes(cells[8:], "little")] == [2, 12]


def test_a_target_is_judged_by_medians_of_the_same_results() -> None:
    found = results(run("Tidegate", 300), run("Tidegate", 100, number=1), run("loop", 100), run("best", 160))
    cases: list[tuple[float, str, float | None, bool | None]] = [
        (2.0, "loop", 2.0, True),
        (2.1, "loop", 2.0, False),
        (1.2, "best", 200 / 160, True),
        (150, "", 200.0, True),
        (1.0, "nobody", None, None),
    ]
    for limit, against, reached, met in cases:
        verdict = found.judge(Target("A", "", "x", "Tidegate", "rate", "at least", limit, against))
        assert (verdict.reached, verdict.is_met) == (reached, met), against


def test_a_contender_with_a_flaw_meets_no_target_and_is_not_the_best_peer() -> None:
    found = results(run("Tidegate", 300), run("quick liar", 900), run("quick liar", 0, number=1, flaw="saw 1 of 2"))
    found.runs.append(run("loop", 100))
    assert found.judge(Target("A", "", "x", "quick liar", "rate", "at least", 1)).is_met is None
    assert found.judge(Target("A", "", "x", "Tidegate", "rate", "at least", 2, "best")).reached == 3.0


def test_the_table_has_the_ratio_the_flaw_and_who_is_missing() -> None:
    found = results(run("loop", 1000), run("Tidegate", 2500), run("liar", 0, flaw="its sink saw 1 record of 2"))
    lines = case_table(found, "A", "", Throughput(2).columns[:1], "loop").splitlines()
    assert lines == [
        "|  | records/s | times loop |",
        "|---|---|---|",
        "| loop | 1,000 | 1.00 |",
        "| Tidegate | 2,500 | 2.50 |",
        "| liar: **its sink saw 1 record of 2** |  |  |",
        "| absent peer: pip could not install it |  |  |",
    ]


def test_a_missed_target_is_said_aloud() -> None:
    found = results(run("loop", 1000), run("Tidegate", 1200))
    target = Target("A", "", "the loop", "Tidegate", "rate", "at least", 1.3, "loop")
    assert "| A | the loop | at least 1.3 times | 1.20 times | **missed** |" in targets_table([found.judge(target)])


def test_the_chart_is_a_picture_with_a_bar_per_contender_in_proportion() -> None:
    root = ElementTree.fromstring(bars("A <b> & c", "records/s", [("loop", 50.0), ("Tidegate", 100.0)]))  # noqa: S314  # our own text
    found = root.findall("{http://www.w3.org/2000/svg}rect")[1:]
    assert len(found) == 2
    assert float(found[1].attrib["width"]) == pytest.approx(2 * float(found[0].attrib["width"]), rel=0.01)
    assert found[0].attrib["fill"] != found[1].attrib["fill"]


def test_results_survive_json_and_become_a_page_with_their_charts() -> None:
    found = results(run("plain loop, tuned", 1000), run("Tidegate, json.loads", 2500))
    again = Results.read(found.plain())
    assert again == found
    works = works_of(["A"], quick=True)
    charts = charts_of(again, works)
    page = page_of(again, works, charts)
    assert list(charts) == ["performance-a.svg"]
    assert "images/performance-a.svg" in page
    assert "| Tidegate, json.loads | 2,500 |" in page
    assert "absent peer is missing: pip could not install it." in page


def test_every_round_has_all_contenders_and_another_first() -> None:
    orders = [in_turn(CONTENDERS, number) for number in range(3)]
    assert len({order[0].name for order in orders}) == 3
    assert all(sorted(one.name for one in order) == sorted(one.name for one in CONTENDERS) for order in orders)


def test_targets_name_contenders_cases_and_measures_that_exist() -> None:
    works = {work.letter: work for work in works_of("ABCDE", quick=False)}
    names = {one.name: one for one in CONTENDERS}
    for target in TARGETS:
        work = works[target.work]
        assert {target.case, target.against_case or target.case} <= {case.name for case in work.cases()}
        assert target.measure in {column.measure for column in work.columns}
        for name in {target.contender, target.against} - {"", "best"}:
            assert target.work in names[name].options, name


def test_growth_varies_one_thing_at_a_time_and_bounds_the_bytes() -> None:
    sizes = [tuple(case.facts.values()) for case in cases_of((1000, 4000), (4, 8), (100, 10_000), 1)]
    assert sizes == [(1000, 4, 100), (4000, 4, 100), (1000, 8, 100), (100, 4, 10_000)]


def test_a_program_is_measured_and_killed_with_all_that_it_started(tmp_path: Path) -> None:
    code = (
        "import os, time\n"
        "child = os.fork()\n"
        "if child: print('child', child, flush=True)\n"
        "end = time.process_time() + 0.2\n"
        "while time.process_time() < end: pass\n"
        "print('ready', flush=True)\n"
        "time.sleep(600)\n"
    )
    program = Program([sys.executable, "-c", code], log=tmp_path / "log", environment=os.environ, folder=tmp_path)
    wait_until(lambda: program.last_words().count("ready") == 2, within=60, what="both have done their work")
    child = int(program.last_words().split()[1])
    # Each has burnt a fifth of a second; the kernel counts in hundredths.
    assert program.own_cpu_seconds() >= 0.18
    assert program.cpu_seconds() >= program.own_cpu_seconds() + 0.18
    assert program.memory_mb() > 1
    program.kill()
    assert not program.is_running
    wait_until(lambda: not is_alive(child), within=60, what="the child has ended, too")
