"""A round that cannot be shut out ends the run: from then on nothing is leased beside it, wherever that is heard."""

from __future__ import annotations

import pytest

from tests.simulation.campaign import run_one
from tests.simulation.plan import Kind, plan_of
from tests.simulation.simulation import Made
from tidegate.engine.backing import Backer, ShutOut
from tidegate.engine.driver import Driver
from tidegate.errors import BrokerRefused
from tidegate.records import Lease, Partition

KINDS: tuple[Kind, ...] = ("die", "die", "stop", "kill", "hang")
SCHEDULES = 100


class MayShutNobodyOut(Backer):
    """What the backer becomes when the right to the names of lanes is taken away."""

    def _shut_out(self, lease: Lease, why: Exception | None) -> None:
        self._post(ShutOut(lease, BrokerRefused(f"not allowed to shut out a round that ended: {why}", "allow it")))


@pytest.mark.timeout(120)
def test_nothing_is_leased_beside_a_round_that_cannot_be_shut_out_though_partitions_are_just_given_back() -> None:
    heard_while_giving_back: list[frozenset[Partition]] = []
    leased_after: list[Lease] = []

    class Watched(Driver):
        """The driver, and what it leases after it has heard."""

        _is_giving_back = False

        def _revoked(self, partitions: list[Partition]) -> None:
            self._is_giving_back = True
            super()._revoked(partitions)
            self._is_giving_back = False

        def _bury(self, lease: Lease, error: Exception | None, *, is_shut_out: bool) -> None:
            super()._bury(lease, error, is_shut_out=is_shut_out)
            kept = {item.partition for item in lease.partitions if item.partition in self._board.owned}
            kept = {one for one in kept if not self._board.owned[one].is_closing}
            if self._is_giving_back and isinstance(error, BrokerRefused) and kept:
                heard_while_giving_back.append(frozenset(kept))

        def _lease(self) -> None:
            before = {lease.round for lease in self._board.flying()}
            super()._lease()
            if self._fatal is not None:
                leased_after.extend(lease for lease in self._board.flying() if lease.round not in before)

    made = Made(backer=MayShutNobodyOut, driver=Watched)
    for seed in range(SCHEDULES):
        run_one(plan_of(seed, KINDS, store="kafka"), made)
        assert not leased_after, f"in the schedule of seed {seed}"
    assert heard_while_giving_back, "else nothing is proved"
