"""What a cluster may do as well: bring executors only when they are needed, and end spark-submit under its program."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING

import pytest

from tests.acceptance.conftest import Scene, evenly, scene  # noqa: F401  # a fixture
from tests.acceptance.program import APPS
from tests.support import is_alive, wait_until
from tidegate.class_archives import pyspark_home

if TYPE_CHECKING:
    from tests.spark_cluster import SparkCluster

PARTITIONS = 4


@pytest.mark.timeout(900)
def test_where_executors_come_on_demand_there_is_a_lane_for_every_partition(
    scene: Scene,  # noqa: F811  # as above
    cluster: SparkCluster,
) -> None:
    scene.fill(PARTITIONS, evenly(4000, PARTITIONS))
    conf = {"enabled": "true", "minExecutors": "0", "initialExecutors": "0", "maxExecutors": "2"}
    words = [f"--conf spark.dynamicAllocation.{name}={value}" for name, value in conf.items()]
    submit = " ".join([*words, "--conf spark.executor.cores=2", "pyspark-shell"])
    program = scene.start(
        "slow.py", "--master", cluster.url, "--until", "caught-up", SECONDS_EACH="0.02", PYSPARK_SUBMIT_ARGS=submit
    )
    ended = program.wait(within=400)

    assert ended.code == 0, ended.err
    assert scene.breaches() == []
    assert scene.marks() == scene.ends
    assert len({event.pid for event in scene.log.read().settled}) >= PARTITIONS, ended.err


@pytest.mark.timeout(900)
def test_spark_submit_that_is_ended_takes_its_run_with_it_and_loses_nothing(
    scene: Scene,  # noqa: F811  # as above
    cluster: SparkCluster,
) -> None:
    scene.fill(PARTITIONS, evenly(2000, PARTITIONS))
    program = scene.folder / "program.py"
    code = (APPS / "slow.py").read_text(encoding="utf-8")
    program.write_text(code + '\nif __name__ == "__main__":\n    pipeline.run()\n', encoding="utf-8")
    submit = [str(pyspark_home() / "bin" / "spark-submit"), "--master", cluster.url, str(program)]
    submitted = scene.start_command(
        submit, TIDEGATE_BOOTSTRAP=scene.bootstrap, PYSPARK_PYTHON=sys.executable, SECONDS_EACH="0.05"
    )
    submitted.wait_until(lambda: scene.log.count() > 50, within=240, what="records at work")
    driver = scene.log.read().events[-1].driver
    scene.log.fault("spark_submit_ended", driver=driver)
    submitted.send(signal.SIGTERM)
    wait_until(lambda: not is_alive(driver), within=60, what="the end of the program that spark-submit had started")
    submitted.check_gone()
    assert scene.marks() != scene.ends, "the signal came after the work"

    ended = scene.start("slow.py", "--master", cluster.url, "--until", "caught-up").wait(within=240)

    assert ended.code == 0, ended.err
    assert scene.breaches() == []
    assert scene.marks() == scene.ends
