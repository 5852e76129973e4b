"""Dead letters of DataFrame rounds: refused by the broker, and redriven while the pipeline runs."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import tidegate as tg
from tests.spark.conftest import Beside, World
from tests.spark.test_frames import all_of, ids
from tests.spark.test_frames_again import stored
from tests.support import wait_until
from tidegate.kafka.configs import TopicConfigs


def test_a_dead_letter_that_the_broker_refuses_stops_the_run_and_the_round_is_repeated(
    world: World, tmp_path: Path
) -> None:
    # Bytes that compression does not make much smaller: letters are compressed on their way.
    large = b"bad" + random.Random(7).randbytes(5000).hex().encode()
    world.produce([b"good", large, b"good"])
    configs, dead = TopicConfigs(world.admin), f"{world.group}.dead"
    rounds: list[tg.FrameRound] = []

    def make_the_dead_letters_small(_df: Any, round_: tg.FrameRound) -> None:
        rounds.append(round_)
        if len(rounds) == 1:
            configs.change(dead, {"max.message.bytes": "1000"})

    pipeline = (
        world.pipeline()
        .dataframe(lambda df: tg.bad(df, "value like 'bad%'", "no good"), undecodable=tg.dead_letter())
        .sink(tg.parquet(str(tmp_path / "out")))
        .sink(tg.write(make_the_dead_letters_small))
    )
    report = world.run(pipeline)
    assert report.exit_code == 3
    assert report.failure is not None
    assert dead in report.failure.message
    assert "too large" in report.failure.message
    assert (stored(world).mark, world.copies("dead")) == (0, [])

    report = world.run(pipeline)  # the start sets the topic right
    assert (report.dead, report.settled, world.mark()) == (1, 2, 3)
    assert [one.is_repeat for one in rounds] == [False, True]
    assert rounds[0].id == rounds[1].id
    assert [copy.origin.offset for copy, _ in world.copies("dead")] == [1]
    assert ids(world, tmp_path / "out") == Counter([(0, 0), (0, 2)])


def test_a_letter_that_is_redriven_is_read_by_the_pipeline_that_wrote_the_first_one(
    world: World, tmp_path: Path
) -> None:
    world.produce(range(10))
    is_mended = tmp_path / "mended"

    def check(df: Any) -> Any:
        return df if is_mended.exists() else tg.bad(df, "cast(value as string) = '7'", "a seven")

    def redrive() -> None:
        wait_until(lambda: world.mark() == 10, within=60, what="the first round")
        is_mended.touch()
        assert tg.redrive(world.group, kafka=world.kafka).sent == 1
        wait_until(lambda: (0, 7) in ids(world, tmp_path / "out"), within=60, what="the letter again")

    beside = Beside(redrive)
    report = world.run(world.pipeline().dataframe(check).sink(tg.parquet(str(tmp_path / "out"))), until="stopped")
    beside.check()
    assert (report.exit_code, report.settled, report.dead) == (0, 10, 1)
    assert ids(world, tmp_path / "out") == all_of({0: 10})
