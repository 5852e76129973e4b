"""So much waits for a store, behind one record that is to be tried again, that nothing more is read."""

from __future__ import annotations

import pytest

import tidegate as tg
from tests.unit.test_full import InBatches
from tests.unit.test_lonely_rounds import PLACE
from tests.unit.test_progress_is_true import came_back
from tests.unit.test_vault import Shelf
from tidegate.engine import vault
from tidegate.engine.copying import Copier
from tidegate.engine.fates import Tools
from tidegate.engine.round import Round
from tidegate.records import Backing, Lease, LeasedPartition, Limits, Position

COUNT = 2000
FULL = 600


def a_round(wait: str, store: Shelf, limits: Limits, tried: list[bytes]) -> Round:
    def look(value: bytes) -> bytes:
        tried.append(value)
        if value == b"0" and tried.count(value) < 3:
            raise ValueError("not yet")
        return value

    source = tg.from_kafka("t", group="g").map(look).sink(tg.kafka("out", exactly_once=True))
    plan = source.parallel(2, order="none").on_error(tg.retry(5, wait=wait, limit=wait)).plan()
    leased = LeasedPartition(PLACE, 1, Position(0), COUNT)
    lease = Lease(0, 1, (leased,), limits, backing=Backing({PLACE: "id"}))
    copier = Copier("g", plan.fingerprint, {}, lambda: pytest.fail("no copy is due"))
    return Round(lease, Tools(plan, "g", copier, {}, 1000.0, store), InBatches(*range(COUNT)))  # type: ignore[arg-type]  # all that it asks for


def test_a_record_for_which_a_full_store_waits_is_tried_again_when_it_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise: it waits for the store, which waits for it, until the round is over; then all is run again."""
    monkeypatch.setattr(vault, "MOST_WAITING", FULL)
    tried: list[bytes] = []
    store = Shelf()
    one = a_round("1s", store, Limits(20.0, 15.0, 15.0, 20.0), tried)
    one.work_through()
    assert came_back(one).position.mark == COUNT
    assert (len(tried), len(store.written)) == (COUNT + 2, COUNT), "each was run once, but for the one that failed"


def test_a_partition_whose_records_fill_the_store_is_not_read_again_before_the_first_is_due(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(vault, "MOST_WAITING", FULL)
    tried: list[bytes] = []
    one = a_round("60s", Shelf(), Limits(2.0, 1.0, 1.0, 20.0), tried)
    one.work_through()
    found = came_back(one)
    assert found.position.mark == 0
    assert FULL <= len(tried) < COUNT, "it was not read to its end"
    assert found.parked is not None
    assert 20 < found.parked <= 60
