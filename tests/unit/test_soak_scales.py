"""What a long run is judged by: what grows is named, and what only goes up and down is not."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.soak import Soaked
from tests.soak_ids import judge
from tests.soak_kinds import BAD_EVERY, KINDS, Kind
from tests.soak_scales import MOST, ROLES, STEEPEST, TEMPORARY, Sample, complaints, of_role, piled_up, slope, weigh
from tests.support import wait_until
from tidegate.testing import Program

MINUTES = [number / 2 for number in range(61)]
WARM_UP = 5.0
Change = Callable[[Sample], Sample]


def run(role: str = "", change: Change = lambda one: one) -> list[Sample]:
    """Half an hour in which everything stands still after the warm-up, but for what is changed of one role."""
    steady = [
        Sample(at, each, 100.0 if at >= WARM_UP else 20 * at, 30, 60, 2, 0 if each != TEMPORARY else 10)
        for at in MINUTES
        for each in (*ROLES, TEMPORARY)
    ]
    return [change(one) if one.role == role else one for one in steady]


def grown(by: int, name: str) -> Change:
    """Let a count grow evenly to this at the end."""
    return lambda one: replace(one, **{name: getattr(one, name) + round(by * one.minutes / MINUTES[-1])})


def heavier(per_minute: float) -> Change:
    return lambda one: replace(one, megabytes=one.megabytes + per_minute * one.minutes)


def test_what_stands_still_after_the_warm_up_is_no_complaint() -> None:
    assert complaints(run(), WARM_UP) == []
    assert complaints(run(), 0.0) != [], "the warm-up itself is steep"


@pytest.mark.parametrize("role", [*ROLES, TEMPORARY])
def test_memory_that_grows_is_named_with_its_slope(role: str) -> None:
    assert complaints(run(role, heavier(STEEPEST / 2)), WARM_UP) == []
    assert complaints(run(role, heavier(2.5)), WARM_UP) == [f"{role}: 2.50 MB more in each minute"]
    assert slope(of_role(run(role, heavier(-2.5)), role, WARM_UP)) == pytest.approx(-2.5)


@pytest.mark.parametrize(
    ("role", "name"),
    [("driver", "threads"), ("jvm", "descriptors"), ("workers", "processes"), (TEMPORARY, "files")],
)
def test_what_piles_up_is_named_and_what_comes_and_goes_is_not(role: str, name: str) -> None:
    def peak(one: Sample) -> Sample:
        return replace(one, **{name: 1000}) if one.minutes in MINUTES[-2:] else one  # type: ignore[arg-type]  # a count

    few, many = MOST[name], 3 * MOST[name] + 3
    assert complaints(run(role, grown(few, name)), WARM_UP) == []
    assert complaints(run(role, peak), WARM_UP) == [], "twice for a moment"
    [told] = complaints(run(role, grown(many, name)), WARM_UP)
    found = piled_up(of_role(run(role, grown(many, name)), role, WARM_UP))
    assert few < found[name] <= many
    assert told == f"{role}: {found[name]} {name} more"
    assert {count for other, count in found.items() if other != name} == {0}


def test_a_run_that_is_too_short_to_judge_is_not_good() -> None:
    short = [one for one in run() if one.minutes <= WARM_UP]
    told = complaints(short, WARM_UP)
    assert told == [
        f"{role}: weighed too seldom after 5 minutes of warm-up to say anything" for role in (*ROLES, TEMPORARY)
    ]
    assert complaints([], WARM_UP) == told


def soaked(
    taken: range = range(10), settled: int = 10, exit_code: int = 0, samples: list[Sample] | None = None
) -> Soaked:
    verdict = judge(10, taken, (), range(0))
    return Soaked(run() if samples is None else samples, verdict, 30.0, 10, 0, settled, exit_code)


BAD = [
    (soaked(range(9), 9), "records are missing, repeated, or not where they belong"),
    (soaked(settled=9), "it says that 9 records were settled, and its sink took 10"),
    (soaked(exit_code=1), "it ended with 1"),
    (soaked(samples=run("jvm", grown(60, "threads"))), "jvm: "),
]


def test_the_report_has_everything_and_says_whether_it_is_good() -> None:
    good = soaked().figures(WARM_UP)
    assert (good["complaints"], good["is_good"]) == ([], True)
    assert {"produced", "settled", "taken", "dead", "missing_ranges", "exit_code", "warm_up_minutes"} <= set(good)
    for name in ("slopes_mb_per_minute", "piled_up"):
        figures = good[name]
        assert isinstance(figures, dict)
        assert list(figures) == [*ROLES, TEMPORARY]


@pytest.mark.parametrize(("run_of", "sentence"), BAD, ids=[sentence for _, sentence in BAD])
def test_whatever_is_no_good_is_said_and_makes_the_run_no_good(run_of: Soaked, sentence: str) -> None:
    figures = run_of.figures(WARM_UP)
    assert figures["is_good"] is False
    [told] = run_of.complaints(WARM_UP)
    assert told.startswith(sentence)
    assert figures["complaints"] == [told]


def test_a_program_and_its_temporary_files_are_weighed_by_role(tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    (temporary / "deep").mkdir(parents=True)
    (temporary / "deep" / "file").write_bytes(b"x" * 3_000_000)
    child = "import sys, time; print('up', file=sys.stderr, flush=True); time.sleep(60)"
    code = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {child!r}]); time.sleep(60)"
    program = Program([sys.executable, "-c", code], tmp_path, dict(os.environ))
    wait_until(lambda: "up" in program.err, within=20, what="both are up")
    driver, jvm, workers, files = weigh(program, temporary, 1.5)
    program.kill_all()

    assert [one.role for one in (driver, jvm, workers, files)] == [*ROLES, TEMPORARY]
    assert (driver.processes, jvm.processes, workers.processes) == (1, 0, 1)
    assert min(driver.threads, workers.threads, driver.descriptors, workers.descriptors) >= 1
    assert min(driver.megabytes, workers.megabytes) > 1
    assert (jvm.megabytes, files.megabytes, files.files, files.minutes) == (0.0, 3.0, 1, 1.5)
    assert weigh(program, tmp_path / "gone", 2.0)[-1].files == 0


def test_one_record_of_a_thousand_is_set_aside_where_that_is_possible() -> None:
    plain = Kind(lambda: (), {})
    assert list(plain.bad(2 * BAD_EVERY)) == [999, 1999]
    assert list(replace(plain, sets_aside=False).bad(2 * BAD_EVERY)) == []
    assert set(KINDS) == {"object", "kafka", "postgres", "parquet"}
