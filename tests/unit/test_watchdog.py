"""When a partition counts as stalled."""

from __future__ import annotations

import pytest

from tidegate.engine.watchdog import Watchdog
from tidegate.records import Partition

A = Partition("t", 0)

# (time, mark, end) as seen by the driver, stall_after being 60; then what is said at the last look
CASES = [
    ([(0, 5, 5), (600, 5, 5)], "nothing", "no record beyond the mark: idle is not stalled"),
    ([(0, 5, 9), (59, 5, 9)], "nothing", "not long enough"),
    ([(0, 5, 9), (60, 5, 9)], "replace", "records, and the mark has not moved for 60 s"),
    ([(0, 5, 5), (300, 5, 9)], "nothing", "the record came only now"),
    ([(0, 5, 9), (50, 6, 9), (100, 6, 9)], "nothing", "the mark moved in between"),
    ([(0, 5, 9), (60, 5, 9), (61, 5, 9)], "nothing", "its lane is being replaced"),
    ([(0, 5, 9), (60, 5, 9), (120, 5, 9)], "hopeless", "the new lane stands still as well"),
    ([(0, 5, 9), (60, 5, 9), (90, 6, 9), (149, 6, 9)], "nothing", "the new lane helped"),
    ([(0, 5, 9), (60, 5, 9), (90, 6, 9), (150, 6, 9)], "replace", "another stall is a new one"),
]


@pytest.mark.parametrize(("looks", "said", "because"), CASES, ids=[case[2] for case in CASES])
def test_a_partition_is_stalled_when_there_is_work_and_its_mark_stands_still(
    looks: list[tuple[int, int, int]], said: str, because: str
) -> None:
    watchdog = Watchdog(60)
    for now, mark, end in looks:
        verdicts = watchdog.look({A: mark}, {A: end}, now)
    found = "replace" if verdicts.replace else "hopeless" if verdicts.hopeless else "nothing"
    assert found == said, because


def test_a_partition_that_left_and_came_back_begins_anew() -> None:
    watchdog = Watchdog(60)
    watchdog.look({A: 5}, {A: 9}, 0)
    watchdog.look({}, {}, 30)
    watchdog.look({A: 5}, {A: 9}, 40)
    assert watchdog.look({A: 5}, {A: 9}, 70).replace == ()
