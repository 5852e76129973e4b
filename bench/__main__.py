"""Run works: `python -m bench [A B C D E F]`, and `--help` for the rest."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench import host, report
from bench.model import Case, Contender, Flawed, Results, Run
from bench.roster import CONTENDERS
from bench.stage import Stage
from bench.works.growth import Growth, cases_of
from bench.works.latency import Latency
from bench.works.recovery import Recovery
from bench.works.slow_sink import SlowSink
from bench.works.throughput import Throughput
from bench.works.work import Work
from tidegate.dev.broker import Broker

ROUNDS = {"A": 3, "B": 2, "C": 1, "D": 1, "E": 1}


def works_of(letters: Sequence[str], *, quick: bool) -> list[Work]:
    """Return the works with their sizes. F is A's other columns."""
    wanted = {"A" if letter == "F" else letter for letter in letters}
    if quick:
        growth = cases_of((50_000, 100_000), (4, 16), (100, 10_000), 20)
        works: list[Work] = [Throughput(50_000), SlowSink(2_000), Latency(4.0), Recovery(4.0), Growth(growth)]
    else:
        growth = cases_of((1_000_000, 4_000_000, 16_000_000), (4, 32, 256), (100, 1_000, 10_000, 100_000), 500)
        works = [Throughput(1_000_000), SlowSink(60_000), Latency(20.0), Recovery(10.0), Growth(growth)]
    return [work for work in works if work.letter in wanted]


def in_turn(contenders: Sequence[Contender], number: int) -> list[Contender]:
    """Return them in the order of a round: each round begins with another, so that nobody always runs first."""
    start = number * len(contenders) // 3 % max(1, len(contenders))
    return [*contenders[start:], *contenders[:start]]


def run_once(stage: Stage, work: Work, case: Case, contender: Contender, number: int) -> Run:
    began = time.monotonic()
    try:
        measures, flaw = work.run(stage, case, contender), ""
    except Flawed as error:
        measures, flaw = {}, str(error)
    figures = ", ".join(
        f"{column.title} {measures[column.measure]:,.1f}" for column in work.columns if column.measure in measures
    )
    took = time.monotonic() - began
    print(
        f"{work.letter} {case.name} [{number + 1}] {contender.name}: {flaw or figures} ({took:.0f} s in all)",
        flush=True,
    )
    return Run(work.letter, case.name, contender.name, number, measures, flaw)


def run_work(stage: Stage, work: Work, contenders: Sequence[Contender], rounds: int, results: Results) -> None:
    taking_part = [one for one in contenders if work.letter in one.options and stage.invite(one)]
    for case in work.cases():
        for number in range(rounds):
            for contender in in_turn(taking_part, number):
                results.runs.append(run_once(stage, work, case, contender, number))
        if work.letter == "E":
            stage.forget_all()  # what comes next is larger, and the disk is not endless


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("works", nargs="*", type=str.upper, choices=[*"ABCDEF", []], help="default: all")
    parser.add_argument("--quick", action="store_true", help="small sizes, one round: to see that it works")
    parser.add_argument("--rounds", type=int, help="how often each contender runs")
    parser.add_argument("--only", default="", help="contenders whose name holds one of these words, with commas")
    parser.add_argument("--out", type=Path, default=report.OUT, help="where results go; a whole run writes docs, too")
    parser.add_argument("--onto", type=Path, help="a whole run's results: put these works in the place of theirs")
    parser.add_argument("--page", type=Path, help="write the documentation anew from these results, and run nothing")
    return parser.parse_args()


def main() -> None:
    options = parse()
    letters = options.works or list("ABCDE")
    works = works_of(letters, quick=options.quick)
    if options.page:
        results = Results.read_file(options.page)
        report.save(results, [one for one in works if results.cases(one.letter)], options.out, into_docs=True)
        return
    words = [word for word in options.only.lower().split(",") if word]
    contenders = [one for one in CONTENDERS if not words or any(word in one.name.lower() for word in words)]
    rounds = {work.letter: options.rounds or (1 if options.quick else ROUNDS[work.letter]) for work in works}
    results = Results(host.describe(), {"quick": options.quick, "rounds": rounds})
    # Contenders live in sessions of their own: they must be ended also where the run is.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    began = time.monotonic()
    is_whole = not options.quick and not words and len(works) == 5
    with Broker() as broker, tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        stage = Stage(broker.bootstrap, Path(folder), results.absent)
        for number, work in enumerate(works):
            run_work(stage, work, contenders, rounds[work.letter], results)
            # After each work: an hour's figures are not lost because the last work fails.
            is_last = number == len(works) - 1
            written = report.save(results, works[: number + 1], options.out, into_docs=is_whole and is_last)
    if options.onto and not words and not options.quick:
        whole = Results.read_file(options.onto).with_anew(results)
        written = report.save(whole, works_of("ABCDE", quick=False), options.out, into_docs=True)
    print((options.out / "performance.md").read_text(encoding="utf-8"))
    print(f"\n{(time.monotonic() - began) / 60:.1f} minutes; written: {', '.join(map(str, written))}")


if __name__ == "__main__":
    main()
