"""Partitions that wait for long, for a sink or for their turn, and a run that knows why they stand still."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import tidegate as tg
from tests.spark.conftest import Beside, World, channel
from tests.support import wait_until


@channel("live")
def test_an_outage_longer_than_two_stalls_is_waited_out_by_all_partitions_of_a_lane(
    make_world: Callable[..., World], tmp_path: Path, live: bool
) -> None:
    world = make_world(2)
    stall_seconds = 5.0
    world.settings = {"live": live, "lanes": 1, "commit_every": 1.0, "timeout": 2.0, "stall_after": stall_seconds}
    away, tries, trail = tmp_path / "away", tmp_path / "tries", world.trail
    away.touch()
    world.produce(range(20), 0)

    def sink(value: bytes) -> None:
        if away.exists():
            with tries.open("a", encoding="utf-8") as file:
                file.write(f"{time.monotonic()}\n")
            raise tg.Unavailable("the sink is away")
        trail(value)

    def lasts() -> float:
        moments = [float(one) for one in tries.read_text(encoding="utf-8").splitlines()] if tries.exists() else []
        return moments[-1] - moments[0] if moments else 0.0

    def come_back() -> None:
        wait_until(tries.exists, within=60, what="the first try")
        world.produce(range(20), 1)  # nobody reads them, for as long as the lane looks for the sink
        wait_until(lambda: lasts() > 3 * stall_seconds, within=120, what="tries for long enough")
        away.unlink()
        wait_until(lambda: len(trail.lines()) == 40, within=60, what="all of both partitions")

    beside = Beside(come_back)
    report = world.run(world.pipeline().sink(sink).on_error(tg.hold("1s", "1s"), tg.dead_letter()), "stopped")
    beside.check()
    assert Counter(trail.ids()) == Counter((partition, at) for partition in range(2) for at in range(20))
    assert (report.dead, report.exit_code) == (0, 0)


@channel("live")
def test_two_lanes_under_a_slow_rate_take_turns(make_world: Callable[..., World], live: bool) -> None:
    world = make_world(2)
    world.settings = {"live": live, "lanes": 2}
    for partition in range(2):
        world.produce(range(8), partition)
    report = world.run(world.pipeline().sink(world.trail).rate("2/s"))
    ids = world.trail.ids()
    assert Counter(ids) == Counter((partition, at) for partition in range(2) for at in range(8))
    leads = [abs(sum(1 if partition else -1 for partition, _ in ids[:end])) for end in range(len(ids))]
    assert max(leads) <= 4, "none of the two has it all while the other stands"
    assert report.exit_code == 0
