"""Pure: medians, percentiles and ratios of what was measured."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that this share of the values does not exceed (nearest rank)."""
    if not values:
        raise ValueError("there is no percentile of nothing")
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def medians(measured: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the median of each measure over several runs; a measure that some runs lack counts where it is."""
    gathered: dict[str, list[float]] = {}
    for measures in measured:
        for name, value in measures.items():
            gathered.setdefault(name, []).append(value)
    return {name: statistics.median(values) for name, values in gathered.items()}


def ratio(value: float | None, reference: float | None) -> float | None:
    """Return value / reference; None where one of the two is missing or the reference is nothing."""
    return None if value is None or not reference else value / reference


def interpolated(samples: Sequence[tuple[float, float]], when: float) -> float:
    """Return what a counter stood at at a moment, from samples (time, counter) in order; outside, the nearest."""
    if not samples:
        return 0.0
    before = samples[0]
    for sample in samples:
        if sample[0] >= when:
            span = sample[0] - before[0]
            share = (when - before[0]) / span if span > 0 else 1.0
            return before[1] + max(0.0, min(1.0, share)) * (sample[1] - before[1])
        before = sample
    return before[1]
