"""The results as a page, charts and JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from bench.chart import bars
from bench.model import Results
from bench.roster import PLAIN, TARGETS, TUNED
from bench.tables import case_table, growth_table, targets_table
from bench.works.work import Work

ROOT = Path(__file__).parent.parent
OUT = ROOT / "build" / "bench"

HEAD = (
    "# Performance\n\nTidegate beside what people use today: the same records, one broker, one machine, one after the "
    "other in turns. {rounds} **Only ratios within one run mean anything:** machines differ. "
    "Written by `make bench` ([how](../CONTRIBUTING.md#check)). Every contender's ids are counted and added up; one "
    "that leaves records out is marked instead of praised.\n"
)


def save(results: Results, works: Sequence[Work], out: Path, *, into_docs: bool) -> list[Path]:
    """Write everything into a folder, and into the documentation where the run was a whole one."""
    written = _write(results, works, out / "results.json", out / "performance.md", out / "images")
    if into_docs:
        docs = ROOT / "docs"
        written += _write(results, works, docs / "performance.json", docs / "performance.md", docs / "images")
    return written


def _write(results: Results, works: Sequence[Work], data: Path, page: Path, images: Path) -> list[Path]:
    images.mkdir(parents=True, exist_ok=True)
    charts = charts_of(results, works)
    for name, text in charts.items():
        (images / name).write_text(text, encoding="utf-8")
    data.write_text(json.dumps(results.plain(), indent=1) + "\n", encoding="utf-8")
    page.write_text(page_of(results, works, charts), encoding="utf-8")
    return [data, page, *(images / name for name in charts)]


def charts_of(results: Results, works: Sequence[Work]) -> dict[str, str]:
    """Return one chart per case by file name, but for growth, which is read as a table."""
    found = {}
    for work in works:
        for case in results.cases(work.letter) if work.letter != "E" else []:
            values = [
                (name, measures[work.columns[0].measure])
                for name in results.contenders(work.letter, case)
                if work.columns[0].measure in (measures := results.middle(work.letter, case, name))
                and not results.flaws(work.letter, case, name)
            ]
            title = f"{work.title}, {case}" if case else work.title
            found[chart_name(work, case)] = bars(title, work.columns[0].title, values)
    return found


def chart_name(work: Work, case: str) -> str:
    words = "-".join([work.letter.lower(), *case.replace(",", "").split()])
    return f"performance-{words}.svg"


def page_of(results: Results, works: Sequence[Work], charts: dict[str, str]) -> str:
    parts = [HEAD.format(rounds=_rounds(results)), f"{_machine(results)}\n"]
    verdicts = [results.judge(target) for target in TARGETS]
    known = [verdict for verdict in verdicts if verdict.target.work in {work.letter for work in works}]
    parts += ["## Targets\n", targets_table(known), ""]
    for work in works:
        parts += [f"## {work.letter}: {work.title[0].lower()}{work.title[1:]}\n", work.how, ""]
        if work.letter == "E" and results.cases("E"):
            parts += [growth_table(results, "E", work.columns), ""]
            continue
        for case in results.cases(work.letter):
            name = chart_name(work, case)
            if case:
                parts += [f"### {case}\n"]
            if name in charts:
                parts += [f"![{work.title}: {work.columns[0].title}](images/{name})\n"]
            parts += [case_table(results, work.letter, case, work.columns, _reference(results, work, case)), ""]
    return "\n".join(parts)


def _reference(results: Results, work: Work, case: str) -> str:
    there = results.contenders(work.letter, case)
    wanted = {"A": TUNED, "B": "plain loop, 32 threads by hand"}.get(work.letter, PLAIN)
    return wanted if wanted in there else there[0]


def _rounds(results: Results) -> str:
    if not results.runs:
        return "No whole run has been recorded here yet."
    counts = results.sizes.get("rounds", {})
    medians = f"Medians of so many runs: {', '.join(f'{count} ({letter})' for letter, count in counts.items())}."
    if not (anew := results.sizes.get("anew")):
        return medians
    return f"{medians} Run anew after the others, all contenders of a work in one run: {', '.join(anew)}."


def _machine(results: Results) -> str:
    if not results.runs:
        return "What is compared, and how, stands below; `make bench` fills in the figures."
    facts = "; ".join(f"{name} {value}" for name, value in results.machine.items())
    absent = [f"{name} is missing: {why}." for name, why in results.absent.items()]
    return " ".join([f"The machine: {facts}.", *absent])
