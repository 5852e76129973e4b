"""A function beside a sink that writes in bulk: what it has taken it does not get again when the store refuses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest

import tidegate as tg
from tests.unit.test_lonely_rounds import PLACE
from tests.unit.test_progress_is_true import Memory
from tidegate.engine.copying import Copier
from tidegate.engine.fates import Tools
from tidegate.engine.round import Round
from tidegate.pipeline import Pipeline
from tidegate.records import Commit, Lease, LeasedPartition, Limits, Partition, Position
from tidegate.store import Effect, Store

LIMITS = Limits(30.0, 20.0, 20.0, 20.0)
"""It ends at the end of the log, not by silence: a busy machine is silent, too."""


class Picky(Store):
    """Takes everything, but for one value at the first time."""

    keeps_progress = False
    takes_copies = False

    def __init__(self, bad: bytes) -> None:
        self._bad = {bad}
        self.taken: list[bytes] = []

    def begin(self, _partitions: Sequence[Partition], _membership: bytes) -> Mapping[Partition, Commit]:
        return {}

    def seal(self, effects: Sequence[Effect], _commits: Mapping[Partition, Commit]) -> Mapping[int, BaseException]:
        refused: dict[int, BaseException] = {}
        for number, effect in enumerate(effects):
            (output,) = effect.outputs
            if output.value in self._bad:
                self._bad.remove(output.value)
                refused[number] = ValueError("not yet")
            else:
                self.taken.append(output.value)
        return refused

    def end(self) -> None:
        """There is nothing left to do."""

    def discard(self) -> None:
        """There is nothing to make anew."""


async def passed(value: bytes) -> bytes:
    return value


@pytest.mark.parametrize("bad", [b"0", b"3"])
@pytest.mark.parametrize(
    "how",
    [lambda one: one, lambda one: one.parallel(3, order="none"), lambda one: one.map(passed).parallel(3, order="none")],
    ids=["one by one", "in threads", "on a loop"],
)
def test_a_function_beside_a_store_that_refuses_gets_each_value_once(
    how: Callable[[Pipeline], Pipeline], bad: bytes
) -> None:
    got: list[bytes] = []
    source = how(tg.from_kafka("t", group="g"))
    pipeline = source.sink(got.append).sink(tg.kafka("out")).on_error(tg.retry(2, wait="10ms"))
    plan, store = pipeline.plan(), Picky(bad)
    lease = Lease(0, 1, (LeasedPartition(PLACE, 1, Position(0), 5),), LIMITS)
    copier = Copier("g", plan.fingerprint, {}, lambda: pytest.fail("no copy is due"))
    round_ = Round(lease, Tools(plan, "g", copier, {}, 1000.0, store), Memory(0, 1, 2, 3, 4))  # type: ignore[arg-type]  # as there
    round_.work_through()
    outcome = round_.outcome(0.0, has_resources=False)
    assert (outcome.broken, outcome.partitions[0].position.mark) == (None, 5)
    assert sorted(store.taken) == sorted(got) == [str(at).encode() for at in range(5)]
