"""Figures for Prometheus: lag of all groups from the sampler, and what the pipeline of this process does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidegate.engine.control import RunStatus
    from tidegate.ops.model import GroupLag, PartitionLag, View

MOST_GROUPS = 2_000
MOST_PARTITIONS = 20_000
"""Beyond these a scrape would cost more than it tells: what is left out is counted, the groups' sums stay true."""


def render(view: View, status: RunStatus | None) -> bytes:
    """Return all figures in Prometheus' text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Figures(view, status))
    return generate_latest(registry)


class _Figures(Collector):
    def __init__(self, view: View, status: RunStatus | None) -> None:
        self._view = view
        self._status = status

    def collect(self) -> Iterator[Metric]:
        """Give every figure once."""
        view = self._view
        up = GaugeMetricFamily("tidegate_broker_up", "1 where the last look at the cluster succeeded.")
        up.add_metric([], float(view.problem is None and view.at is not None))
        yield up
        if view.age_seconds is not None:
            age = GaugeMetricFamily("tidegate_figures_age_seconds", "How old the figures of groups are.")
            age.add_metric([], view.age_seconds)
            yield age
        groups = sorted(view.groups, key=lambda one: one.group)
        yield from _of_groups(groups[:MOST_GROUPS])
        partitions = [(group.group, one) for group in groups[:MOST_GROUPS] for one in group.partitions]
        yield from _of_partitions(partitions[:MOST_PARTITIONS])
        left_out = GaugeMetricFamily(
            "tidegate_series_left_out", "Groups and partitions too many to show.", labels=["of"]
        )
        left_out.add_metric(["groups"], max(0, len(groups) - MOST_GROUPS))
        left_out.add_metric(["partitions"], max(0, len(partitions) - MOST_PARTITIONS))
        yield left_out
        if self._status is not None:
            yield from _of_run(self._status)


def _of_groups(groups: list[GroupLag]) -> Iterator[Metric]:
    lag = GaugeMetricFamily("tidegate_group_lag", "Records between marks and ends, of a group.", labels=["group"])
    late = GaugeMetricFamily("tidegate_group_lag_seconds", "The largest of its partitions' lags.", labels=["group"])
    waiting = GaugeMetricFamily(
        "tidegate_group_waiting_seconds", "How long its first record that is not settled has waited.", labels=["group"]
    )
    members = GaugeMetricFamily("tidegate_group_members", "Processes in the group.", labels=["group"])
    verdict = GaugeMetricFamily("tidegate_group_verdict", "1 for the group's verdict.", labels=["group", "verdict"])
    for group in groups:
        lag.add_metric([group.group], group.lag)
        members.add_metric([group.group], len(group.members))
        verdict.add_metric([group.group, group.verdict], 1)
        if group.lag_seconds is not None:
            late.add_metric([group.group], group.lag_seconds)
        if group.waiting_seconds is not None:
            waiting.add_metric([group.group], group.waiting_seconds)
    yield from (lag, late, waiting, members, verdict)


def _of_partitions(partitions: list[tuple[str, PartitionLag]]) -> Iterator[Metric]:
    labels = ["group", "topic", "partition"]
    lag = GaugeMetricFamily("tidegate_lag", "Records between the mark and the end.", labels=labels)
    late = GaugeMetricFamily(
        "tidegate_lag_seconds", "From the first record that is not settled to the last one.", labels=labels
    )
    for group, one in partitions:
        names = [group, one.partition.topic, str(one.partition.number)]
        if one.lag is not None:
            lag.add_metric(names, one.lag)
        if one.lag_seconds is not None:
            late.add_metric(names, one.lag_seconds)
    yield from (lag, late)


def _of_run(status: RunStatus) -> Iterator[Metric]:
    counts = status.counts
    counters = {
        "settled": ("Records that reached their sinks, or that a filter dropped.", counts.settled),
        "retried": ("Records written to retry topics.", counts.retried),
        "dead": ("Records written to the dead letters.", counts.dead),
        "skipped": ("Records that failed and were passed by.", counts.skipped),
        "failed": (
            "Attempts that failed: followed by another one, by a copy for later or for the dead, or by nothing.",
            counts.again + counts.retried + counts.dead + counts.skipped,
        ),
        "held": ("Attempts that found a sink away.", counts.held),
        "lost": ("Records passed without being settled, because they are gone.", status.lost),
        "rounds": ("Rounds that came back.", status.rounds),
        "round_seconds": ("Time inside rounds, all lanes together.", status.round_seconds),
        "commits": ("Commits that were answered.", status.commits),
        "commit_seconds": ("From the sending of commits to their answers, all together.", status.commit_seconds),
    }
    for name, (what, number) in counters.items():
        counter = CounterMetricFamily(f"tidegate_run_{name}", what, labels=["group"])
        counter.add_metric([status.group], number)
        yield counter
    mine = status.partitions
    gauges = {
        "partitions": ("Partitions of this process.", len(mine)),
        "parked_partitions": (
            "Partitions for which nothing is to be done for a while.",
            sum(one.parked_seconds is not None for one in mine),
        ),
        "open_failures": ("Records that failed and will be tried again.", sum(one.open_failures for one in mine)),
        "stall_seconds": (
            "For how long records have waited while a mark stood still, at worst.",
            max((one.stalled_seconds for one in mine), default=0.0),
        ),
        "began_timestamp_seconds": ("When the run began.", status.began_at.timestamp()),
    }
    for name, (what, number) in gauges.items():
        gauge = GaugeMetricFamily(f"tidegate_run_{name}", what, labels=["group"])
        gauge.add_metric([status.group], number)
        yield gauge
    state = GaugeMetricFamily("tidegate_run_state", "1 for the state of the run.", labels=["group", "state"])
    state.add_metric([status.group, status.state], 1)
    yield state
