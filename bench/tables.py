"""Pure: results as Markdown tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bench.model import Column, Results, Target, Verdict
from bench.stats import ratio


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def shown(column: Column, measures: dict[str, float]) -> str:
    value = measures.get(column.measure)
    return "" if value is None else column.form.format(value)


def case_table(results: Results, work: str, case: str, columns: Sequence[Column], reference: str) -> str:
    """One row per contender in the order of the first column's ratio to a reference; flaws are told, not hidden."""
    leading = columns[0].measure
    base = results.middle(work, case, reference).get(leading)
    rows = []
    for name in results.contenders(work, case):
        measures, flaws = results.middle(work, case, name), results.flaws(work, case, name)
        cells = [shown(column, measures) for column in columns]
        times = ratio(measures.get(leading), base)
        said = f"{name}: **{flaws[0]}**" if flaws else name
        rows.append((measures.get(leading, 0.0), [said, *cells, "" if times is None else f"{times:.2f}"]))
    rows += [(-1.0, [f"{name}: {why}", *[""] * (len(columns) + 1)]) for name, why in results.absent.items()]
    return table(["", *(column.title for column in columns), f"times {reference}"], [cells for _, cells in rows])


def growth_table(results: Results, work: str, columns: Sequence[Column]) -> str:
    """One row per case and contender."""
    rows = []
    for case in results.cases(work):
        for name in results.contenders(work, case):
            measures, flaws = results.middle(work, case, name), results.flaws(work, case, name)
            said = f"{name}: **{flaws[0]}**" if flaws else name
            rows.append([case, said, *(shown(column, measures) for column in columns)])
    return table(["", "", *(column.title for column in columns)], rows)


def targets_table(verdicts: Sequence[Verdict]) -> str:
    return table(["Work", "Tidegate compared with", "Target", "Reached", ""], map(_row, verdicts))


def _row(verdict: Verdict) -> list[str]:
    target, met = verdict.target, verdict.is_met
    reached = "not measured" if verdict.reached is None else f"{verdict.reached:.2f}{_times(target)}"
    word = "" if met is None else "met" if met else "**missed**"
    return [target.work, target.what, f"{target.sense} {target.limit:g}{_times(target)}", reached, word]


def _times(target: Target) -> str:
    return " times" if target.against else ""
