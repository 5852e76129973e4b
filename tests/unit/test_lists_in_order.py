"""Lists of which some records fail: none of a key or a partition overtakes one that is to be tried again."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.unit.test_lonely_rounds import PLACE, Written
from tests.unit.test_progress_is_true import Memory, a_round, came_back
from tidegate.records import Failure, Limits, Open, Tries

LIMITS = Limits(30.0, 20.0, 20.0, 20.0)


@dataclass(frozen=True)
class Keyed(Written):
    """A record with a key."""

    of: bytes | None = None

    def key(self) -> bytes | None:  # type: ignore[override]  # that one has none
        return self.of


class Keys(Memory):
    """A log of records with these keys."""

    def __init__(self, keys: Sequence[bytes | None]) -> None:
        super().__init__()
        self._log = [Keyed(at, of) for at, of in enumerate(keys)]


@dataclass
class Store:
    """Takes lists; each record fails as often as it is told to, for itself or with its whole list."""

    keys: Sequence[bytes | None]
    fails: dict[int, int]
    is_whole: bool
    whole_partition: bool
    taken: list[int] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def write(self, values: list[bytes]) -> list[Exception | None]:
        offsets = [int(value) for value in values]
        with self.lock:
            for place, at in enumerate(offsets):
                self._look(at, {*self.taken, *offsets[:place]})
            bad = [at for at in offsets if self.fails.get(at, 0) > 0]
            if bad and self.is_whole:
                if len(offsets) == 1:
                    self.fails[offsets[0]] -= 1
                raise ValueError("something in here")
            for at in bad:
                self.fails[at] -= 1
            self.taken += [at for at in offsets if at not in bad]
            return [ValueError("not this one") if at in bad else None for at in offsets]

    def _look(self, at: int, there: set[int]) -> None:
        if at in self.taken:
            self.wrong.append(f"{at} came again")
        if self.whole_partition or self.keys[at] is not None:
            before = [one for one in range(at) if self.whole_partition or self.keys[one] == self.keys[at]]
            self.wrong += [f"{at} before {one}" for one in before if one not in there]


def timed_out(at: int) -> Failure:
    return Failure(PLACE, at, "TimedOut", "too slow")


def run(keys: Sequence[bytes | None], store: Store, known: Sequence[Open], order: str, size: int, width: int) -> None:
    pipeline = tg.from_kafka("t", group="g").batch(size, "5ms").sink(store).parallel(width, order=order)  # type: ignore[arg-type]
    pipeline = pipeline.on_error(tg.retry(9, wait="4ms", limit="20ms"), tg.stop())
    one = a_round(pipeline, Keys(keys), 0, limits=LIMITS, known=known, until=len(keys))
    one.work_through()
    assert store.wrong == []
    assert sorted(store.taken) == list(range(len(keys)))
    assert came_back(one).position.mark == len(keys)


@pytest.mark.parametrize("order", ["key", "partition"])
def test_what_stands_behind_a_record_that_is_to_wait_for_longer_waits_with_it(order: str) -> None:
    keys = [b"k"] * 6
    store = Store(keys, {}, is_whole=False, whole_partition=order == "partition")
    known = [Open(0, Tries(1)), Open(1, Tries(1), wait=0.3), Open(4, Tries(1), wait=0.6)]
    run(keys, store, known, order, size=3, width=2)


opens = st.builds(
    lambda at, wait, is_late: Open(at, Tries(1), wait, failure=timed_out(at) if is_late else None),
    st.integers(0, 11),
    st.sampled_from([0.0, 0.01, 0.03, 0.06]),
    st.booleans(),
)


@settings(max_examples=100, deadline=None)
@given(
    keys=st.lists(st.sampled_from([b"a", b"b", None]), min_size=1, max_size=12),
    fails=st.dictionaries(st.integers(0, 11), st.integers(1, 3), max_size=5),
    known=st.lists(opens, max_size=4, unique_by=lambda one: one.record_offset),
    order=st.sampled_from(["key", "partition"]),
    size=st.integers(1, 5),
    width=st.integers(1, 3),
    is_whole=st.booleans(),
)
def test_lists_of_which_any_records_fail_keep_the_order(
    keys: list[bytes | None],
    fails: dict[int, int],
    known: list[Open],
    order: str,
    size: int,
    width: int,
    is_whole: bool,
) -> None:
    store = Store(
        keys, {at: one for at, one in fails.items() if at < len(keys)}, is_whole, whole_partition=order == "partition"
    )
    known = sorted((one for one in known if one.record_offset < len(keys)), key=lambda one: one.record_offset)
    run(keys, store, known, order, size, width)
