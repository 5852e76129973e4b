"""`python -m tests.chaos.tally REPORT.json...`: several reports as the tables of docs/long-runs.md."""

from __future__ import annotations

import statistics
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import orjson


def tables(reports: list[dict[str, Any]]) -> str:
    """Return the table of runs, that of faults and that of pipelines."""
    lines = [
        "| Seed | Nodes | Seconds of faults | Pipelines | Records | Faults | Breaches | Surprises | Lost |",
        "|" + "---|" * 9,
    ]
    for one in reports:
        pipes = one["pipelines"]
        figures = (
            one["seed"],
            one.get("nodes", 1),
            f"{one['seconds']:g}",
            ", ".join(pipe["kind"] for pipe in pipes),
            sum(pipe["records"] for pipe in pipes),
            sum(fault["happened"] for fault in one["faults"]),
            sum(len(pipe["breaches"]) for pipe in pipes),
            sum(len(pipe["surprises"]) for pipe in pipes),
            one["lost"],
        )
        lines.append(_row(*figures))
    return "\n".join([*lines, "", *_faults(reports), "", *_pipelines(reports)])


def _faults(reports: list[dict[str, Any]]) -> list[str]:
    happened: Counter[str] = Counter()
    took: dict[str, list[float]] = defaultdict(list)
    longest: dict[str, float] = defaultdict(float)
    for fault in (fault for one in reports for fault in one["faults"]):
        kind = fault["kind"]
        happened[kind] += fault["happened"]
        if fault["recovery_median_seconds"] is not None:
            took[kind].append(fault["recovery_median_seconds"])
            longest[kind] = max(longest[kind], fault["recovery_longest_seconds"])
    lines = ["| Fault | Struck | Committed again after, median | Longest |", "|---|---|---|---|"]
    for kind, count in sorted(happened.items()):
        known = took[kind]
        times = (f"{statistics.median(known):.0f} s", f"{longest[kind]:.0f} s") if known else ("-", "-")
        lines.append(_row(kind, count, *times))
    return [*lines, _row("all", happened.total(), "", "")]


def _pipelines(reports: list[dict[str, Any]]) -> list[str]:
    sums: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for pipe in (pipe for one in reports for pipe in one["pipelines"]):
        for name in _SUMMED:
            if pipe.get(name) is not None:
                sums[pipe["kind"], pipe["guarantee"]][name] += pipe[name]
    heads = "Pipeline | Guarantee | Records | Effects | Again | Rewinds | Starts | Met work | Aborted"
    lines = [f"| {heads} |", "|" + "---|" * 9]
    for (kind, guarantee), one in sums.items():
        # What no run of it has counted is no zero.
        figures = (one.get(name, "-") for name in _SUMMED)
        lines.append(_row(kind, guarantee, *figures))
    return lines


_SUMMED = ("records", "seen", "again", "rewinds", "lives", "met_work", "aborted")


def _row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    sys.stdout.write(tables([orjson.loads(Path(name).read_bytes()) for name in sys.argv[1:]]) + "\n")
