"""Many schedules, on all cores; and one that shows a breach, made as small as it will go."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from multiprocessing import get_context

from tests.simulation.plan import KINDS, Kind, Plan, Store, plan_of
from tests.simulation.simulation import Made, Ran, Simulation

LOT = 2_000
"""Schedules that a worker runs at a time."""
COLLECTED_EVERY = 50
HONEST = Made()


@dataclass
class Summary:
    """What came of many schedules."""

    schedules: int = 0
    breaches: dict[int, list[str]] = field(default_factory=dict)
    """By seed."""
    counts: Counter[str] = field(default_factory=Counter)
    endings: Counter[str] = field(default_factory=Counter)

    def add(self, other: Summary) -> None:
        self.schedules += other.schedules
        self.breaches |= other.breaches
        self.counts += other.counts
        self.endings += other.endings


def run_one(plan: Plan, made: Made = HONEST, *, is_tracing: bool = False) -> Ran:
    """Run one schedule, without a word of the driver's on the terminal."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        return Simulation(plan, made, is_tracing=is_tracing).run()
    finally:
        logging.disable(before)


def run_lot(
    first: int,
    count: int,
    made: Made = HONEST,
    kinds: tuple[Kind, ...] = KINDS,
    *,
    is_frames: bool = False,
    store: Store = "none",
    most_breaches: int = 5,
) -> Summary:
    """Run the schedules of so many seeds; stop where enough of them show a breach."""
    found = Summary()
    with seldom_collected() as collect:
        for seed in range(first, first + count):
            ran = run_one(plan_of(seed, kinds, is_frames=is_frames, store=store), made)
            found.schedules += 1
            found.counts.update(ran.counts)
            found.endings.update(ran.endings)
            if found.schedules % COLLECTED_EVERY == 0:
                collect()
            if ran.breaches:
                found.breaches[seed] = ran.breaches
                if len(found.breaches) >= most_breaches:
                    break
    return found


@contextlib.contextmanager
def seldom_collected() -> Iterator[Callable[[], int]]:
    """Let nothing be collected but where it is asked for: a schedule is over before that would be worth it."""
    was_on = gc.isenabled()
    gc.collect()
    gc.freeze()  # what is there already need not be looked through again and again
    gc.disable()
    try:
        yield gc.collect
    finally:
        gc.unfreeze()
        if was_on:
            gc.enable()


def run_many(
    first: int, count: int, workers: int | None = None, *, is_frames: bool = False, store: Store = "none"
) -> Iterator[Summary]:
    """Run schedules on so many cores; what each lot brought comes as it comes."""
    lots = [(at, min(LOT, first + count - at)) for at in range(first, first + count, LOT)]
    with ProcessPoolExecutor(workers or os.cpu_count() or 1, mp_context=get_context("spawn")) as pool:
        for done in as_completed([pool.submit(run_lot, *lot, is_frames=is_frames, store=store) for lot in lots]):
            yield done.result()


def shrink(plan: Plan, made: Made = HONEST, patience: int = 400) -> Plan:
    """Return a smaller schedule that shows a breach as well."""
    tries = 0
    while True:
        for smaller in _smaller(plan):
            tries += 1
            # Another seed for what is left to chance: fewer faults need another accident.
            for seed in (plan.seed, *range(10)):
                candidate = replace(smaller, seed=seed)
                if run_one(candidate, made).breaches:
                    plan = candidate
                    break
            else:
                continue
            break
        else:
            return plan
        if tries > patience:
            return plan


def _smaller(plan: Plan) -> Iterator[Plan]:
    for at in range(len(plan.faults)):
        yield replace(plan, faults=plan.faults[:at] + plan.faults[at + 1 :])
    for place in plan.bad:
        yield replace(plan, bad={one: what for one, what in plan.bad.items() if one != place})
    if plan.gaps:
        yield replace(plan, gaps=frozenset())
    if plan.delay is not None:
        yield replace(plan, delay=None, retry_partitions=0)
    if plan.processes > 1:
        yield replace(plan, processes=plan.processes - 1)
    if plan.lanes > 1:
        yield replace(plan, lanes=1)
    if len(plan.records) > 1:
        yield replace(plan, records=plan.records[:-1])
    for at, count in enumerate(plan.records):
        if count > 1:
            yield replace(plan, records=(*plan.records[:at], count - 1, *plan.records[at + 1 :]))


def story(plan: Plan, made: Made = HONEST) -> str:
    """Tell what happens in a schedule, event by event, and how it is judged."""
    ran = run_one(plan, made, is_tracing=True)
    faults = "".join(f"\n  {one}" for one in plan.faults)
    verdict = "\n".join(ran.breaches) or "lawful"
    head = f"{replace(plan, faults=())}\nfaults:{faults or ' none'}\n\n seconds tick  what happened"
    return "\n".join([head, *ran.trace, "", verdict])
