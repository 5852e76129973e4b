"""Runs on a real Spark cluster: executors, Python workers, machines and drivers are killed, and the laws hold."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import sqlite3
import sys
import urllib.request
import venv
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from tests.acceptance.conftest import Scene, evenly
from tests.docs.pages import ROOT
from tests.spark_cluster import SparkCluster, descendants
from tests.support import is_alive, visible, wait_until
from tidegate.class_archives import pyspark_home
from tidegate.ops.produce import Message

if TYPE_CHECKING:
    from tests.acceptance.program import Program

PARTITIONS = 4
KILLS = max(1, int(os.environ.get("PROOF_KILLS", "1")))
UP_SECONDS = 240.0
"""A program, its driver and its executors start: on a busy machine that takes long."""


def ui_of(program: Program) -> str:
    """Where Spark's own page of this program is."""
    marker = "Spark's page: "
    program.wait_until(lambda: marker in program.err, within=UP_SECONDS, what="the address of Spark's page")
    return program.err.partition(marker)[2].split()[0]


def descriptions(program: Program) -> dict[str, str]:
    """What Spark's REST interface says of the program's jobs: description by job group, the newest first."""
    page = f"{ui_of(program)}/api/v1/applications"
    [app] = asked(page)
    jobs = asked(f"{page}/{app['id']}/jobs")
    return {job["description"]: job["jobGroup"] for job in jobs if "description" in job}


def asked(address: str) -> list[dict[str, Any]]:
    with urllib.request.urlopen(address, timeout=30) as answer:  # noqa: S310  # Spark's own page
        found: list[dict[str, Any]] = json.load(answer)
        return found


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(pid), within=10, what=f"the death of {pid}")


def note_end_of(workers: list[int], scene: Scene) -> None:
    """They live on for some milliseconds, until they notice that their executor is gone: a fault of each of them."""
    for worker in workers:
        scene.log.fault("executor_killed", worker=worker)


def check_ended(workers: list[int]) -> None:
    """Whoever has lost its executor works no more: soon enough, and by itself."""
    wait_until(lambda: not any(map(is_alive, workers)), within=20, what="the end of the Python workers")


def at_work(scene: Scene, among: list[int]) -> int | None:
    """The worker that settled a record last, if it is one of these."""
    last = scene.log.read().events[-1].pid
    return last if last in among else None


@pytest.mark.timeout(900 + 120 * KILLS)
def test_executors_and_python_workers_that_are_killed_cost_repeats_and_nothing_else(
    scene: Scene, cluster: SparkCluster
) -> None:
    chance = random.Random(f"cluster {KILLS}")
    scene.fill(PARTITIONS, evenly(2000 * (2 * KILLS + 1), PARTITIONS))
    program = scene.start("slow.py", "--master", cluster.url, "--until", "caught-up", SECONDS_EACH="0.002")
    for number in range(2 * KILLS):
        scene.wait_for_records(2000 * number + chance.randrange(500, 1500), program, within=UP_SECONDS)
        kill_one_at_work(scene, cluster, whole_executor=number % 2 == 0)
    lanes = descriptions(program)
    ended = program.wait(within=UP_SECONDS)

    assert ended.code == 0, ended.err
    assert scene.breaches() == []
    assert scene.marks() == scene.ends
    assert ended.err.count("Spark had to run its task a second time") >= 2 * KILLS, ended.err
    assert scene.log.count() > len(scene.produced), "no kill made anything run again, so nothing was proved"
    rounds = [one for one in lanes if one.startswith(f"tidegate {scene.group}: round ")]
    for number in range(PARTITIONS):
        assert any(f"{scene.topic}[{number}]" in one for one in rounds), lanes
    named = {one: re.fullmatch(rf"tidegate-{scene.group}-\w{{8}}-lane-(\d+)-round-(\d+)", lanes[one]) for one in rounds}
    assert {name and int(name[1]) for name in named.values()} == set(range(PARTITIONS)), lanes
    assert all(name and f": round {name[2]} of lane {name[1]}: " in one for one, name in named.items()), lanes


def kill_one_at_work(scene: Scene, cluster: SparkCluster, *, whole_executor: bool) -> None:
    """Kill the executor, or the Python worker, that settled a record last."""

    def hits() -> bool:
        for executor in cluster.executors():
            workers = cluster.python_workers(executor)
            worker = at_work(scene, workers)
            if worker is None:
                continue
            if whole_executor:
                note_end_of(workers, scene)
                kill(executor)
                check_ended(workers)
            else:
                scene.log.fault("worker_killed", worker=worker)
                kill(worker)
            return True
        return False

    wait_until(hits, within=60, what="somebody at work to kill")


@pytest.mark.proof
@pytest.mark.timeout(900)
def test_a_machine_that_is_gone_leaves_fewer_lanes_and_one_that_comes_is_used(
    scene: Scene, cluster: SparkCluster
) -> None:
    scene.fill(PARTITIONS, evenly(4000, PARTITIONS))
    program = scene.start("slow.py", "--master", cluster.url, SECONDS_EACH="0.004")
    scene.wait_for_records(1000, program, within=UP_SECONDS)
    machine = cluster.workers[0]
    note_end_of(descendants(machine.pid), scene)
    cluster.kill_worker(machine)
    program.wait_until(lambda: "Spark has 2 slots, before it was 4" in program.err, within=60, what="fewer lanes")
    assert scene.marks() != scene.ends, "the machine went after the work"
    program.wait_until(lambda: scene.marks() == scene.ends, within=UP_SECONDS, what="the work of four lanes in two")
    cluster.add_worker(wait=False)
    program.wait_until(lambda: "Spark has 4 slots, before it was 2" in program.err, within=90, what="more lanes")
    before = len(scene.log.read().settled)

    def all_slots_are_used() -> bool:
        scene.produce(evenly(20, PARTITIONS))
        return len({event.pid for event in scene.log.read().settled[before:]}) >= PARTITIONS

    program.wait_until(all_slots_are_used, within=UP_SECONDS, what="records on all four slots")
    program.wait_until(lambda: scene.marks() == scene.ends, within=UP_SECONDS, what="all records of both times")
    program.send(signal.SIGTERM)
    ended = program.wait(within=UP_SECONDS)

    assert ended.code == 0, ended.err
    assert scene.breaches() == []


@pytest.mark.timeout(900)
def test_a_killed_driver_leaves_no_task_behind_and_the_next_one_waits_for_its_slots(
    scene: Scene, cluster: SparkCluster
) -> None:
    scene.fill(PARTITIONS, evenly(4000, PARTITIONS))
    # So slow that it is at work when the second one is there; its session is short: somebody waits for its end.
    first = scene.start("slow.py", "--master", cluster.url, "--set", "session_timeout=6s", SECONDS_EACH="0.2")
    first.wait_until(lambda: len(cluster.executors()) == 2, within=UP_SECONDS, what="its executors")
    second = scene.start("slow.py", "--master", cluster.url, "--until", "caught-up", SECONDS_EACH="0.001")
    second.wait_until(lambda: "Spark has no free slot" in second.err, within=UP_SECONDS, what="a word about slots")
    scene.wait_for_records(20, first)
    workers = [pid for executor in cluster.executors() for pid in cluster.python_workers(executor)]
    assert set(workers) >= {event.pid for event in scene.log.read().events}
    scene.log.fault("driver_killed", driver=first.pid)
    first.kill()
    check_ended(workers)
    assert scene.marks() != scene.ends, "the kill came after the work"
    ended = second.wait(within=UP_SECONDS)

    assert ended.code == 0, ended.err
    assert "partitions gained" not in second.err.partition("Spark has no free slot")[0], "it joined without a slot"
    assert scene.breaches() == []
    assert scene.marks() == scene.ends
    first.check_gone()


@pytest.mark.proof
@pytest.mark.timeout(900)
def test_a_dataframe_round_whose_executor_dies_is_read_again_and_written_once(
    scene: Scene, cluster: SparkCluster
) -> None:
    scene.fill(3, evenly(1200, 3))
    out = scene.folder / "out"
    paths = {"OUT": str(out), "ROUNDS": str(scene.folder / "rounds"), "HOLD": str(scene.folder / "held")}
    program = scene.start("cluster_frames.py", "--master", cluster.url, "--until", "caught-up", **paths)
    held = scene.folder / "held"
    program.wait_until(lambda: len(list(scene.folder.glob("held.*"))) > 0, within=UP_SECONDS, what="a task that writes")
    told = descriptions(program)
    worker = int(next(scene.folder.glob("held.*")).suffix[1:])
    [executor] = [one for one in cluster.executors() if worker in cluster.python_workers(one)]
    kill(executor)
    held.touch()
    ended = program.wait(within=UP_SECONDS)

    assert ended.code == 0, ended.err
    rows: Counter[tuple[int, int]] = Counter()
    for path in out.glob("tidegate_round=*/*.parquet"):
        rows.update((row["partition"], row["offset"]) for row in pq.ParquetFile(path).read().to_pylist())
    assert rows == Counter({(number, at): 1 for _, number, at in scene.produced})
    assert scene.marks() == scene.ends
    ours = [one for one in told if one.startswith(f"tidegate {scene.group}: ")]
    assert any(": read, round " in one for one in ours), told
    assert any(": write(write), round " in one and f"{scene.topic}[0]" in one for one in ours), told


@pytest.mark.proof
@pytest.mark.timeout(900 + 60 * KILLS)
def test_killed_executors_leave_every_output_there_once(scene: Scene, cluster: SparkCluster) -> None:
    count = 1500 * (KILLS + 1)
    scene.fill(PARTITIONS, evenly(count, PARTITIONS))
    out = f"{scene.topic}-out"
    scene.admin.create_topic(out, partitions=2)
    words = ("--master", cluster.url, "--until", "caught-up")
    program = scene.start("cluster_exactly.py", *words, SECONDS_EACH="0.002", OUT=out)
    for number in range(KILLS):
        wait_for_work(scene, program, 1500 * number + 700)
        kill_one_at_work(scene, cluster, whole_executor=True)
    ended = program.wait(within=UP_SECONDS + 30 * KILLS)

    assert ended.code == 0, ended.err
    assert began(scene) > count, "no kill made anything run again, so nothing was proved"
    seen = Counter(int(one.value or b"-1") for one in visible(scene.admin, scene.kafka, out))
    assert seen == Counter(range(count))
    assert scene.marks() == scene.ends


def began(scene: Scene) -> int:
    return scene.log.count("began")


def wait_for_work(scene: Scene, program: Program, count: int) -> None:
    program.wait_until(lambda: began(scene) >= count, within=UP_SECONDS, what=f"{count} records at work")


@pytest.mark.timeout(600)
def test_spark_submit_brings_its_master_its_modules_and_its_settings(scene: Scene, cluster: SparkCluster) -> None:
    scene.fill(2, evenly(20, 2))
    folder = scene.folder / "elsewhere"
    folder.mkdir()
    (folder / "tariffs.py").write_text("def with_tax(value):\n    return b'taxed ' + value\n", encoding="utf-8")
    program = scene.folder / "program.py"
    program.write_text(SUBMITTED, encoding="utf-8")
    words = ["--master", cluster.url, "--py-files", str(folder / "tariffs.py"), "--conf", "spark.cores.max=2"]
    submit = [str(pyspark_home() / "bin" / "spark-submit"), "--name", "mine", *words, str(program)]
    started = scene.start_command(submit, TIDEGATE_BOOTSTRAP=scene.bootstrap, PYSPARK_PYTHON=sys.executable)
    ended = started.wait(within=UP_SECONDS)

    assert ended.code == 0, ended.err
    assert f"{cluster.url} 2 mine" in ended.out
    assert "b'taxed 0' in tariffs.py" in (scene.folder / "records.seen").read_text(encoding="utf-8")
    assert scene.breaches() == []
    assert scene.marks() == scene.ends


SUBMITTED = """
import os
from pathlib import Path

import tariffs

import tidegate as tg
from tidegate.testing import RecordLog

log = RecordLog(os.environ["LOG"])


def write(value):
    import tariffs

    with open(log.path + ".seen", "a") as seen:
        seen.write(f"{value} in {Path(tariffs.__file__).name}\\n")
    log.settled(value)


pipeline = tg.from_kafka(os.environ["TOPIC"], group=os.environ["GROUP"]).map(tariffs.with_tax).sink(write)


class Look(tg.Control):
    def publish(self, status):
        from pyspark.sql import SparkSession

        super().publish(status)
        context = SparkSession.getActiveSession().sparkContext
        conf = context.getConf()
        print(context.master, conf.get("spark.cores.max"), conf.get("spark.app.name"))


if __name__ == "__main__":
    pipeline.run(until="caught-up", control=Look())
"""


@pytest.mark.proof
@pytest.mark.timeout(900)
def test_examples_do_on_a_cluster_what_they_do_on_this_machine(scene: Scene, cluster: SparkCluster) -> None:
    orders = [{"id": number, "amount": 10 * number} for number in range(1, 41)] + [{"id": 41}]
    scene.fill(2, [Message(json.dumps(order), partition=order["id"] % 2) for order in orders])
    paths = []
    for name in ("sqlite_resource.py", "custom_sink.py", "to_parquet.py"):
        code = (ROOT / "examples" / name).read_text(encoding="utf-8").replace('"orders"', f'"{scene.topic}"')
        # Of this run alone, as the topic is.
        code = re.sub(r'group="([\w-]+)"', rf'group="{scene.topic}-\1"', code).replace(
            'order["amount"]', 'order.get("amount")'
        )
        paths.append(scene.folder / name)
        paths[-1].write_text(code, encoding="utf-8")
    words = [sys.executable, "-c", ON_ONE_SESSION, cluster.url, *map(str, paths)]
    started = scene.start_command(words, TIDEGATE_BOOTSTRAP=scene.bootstrap, PYSPARK_PYTHON=sys.executable)
    ended = started.wait(within=2 * UP_SECONDS)

    assert ended.code == 0, ended.err
    assert ended.out.splitlines() == ["sqlite_resource.py 41 0", "custom_sink.py 41 0", "to_parquet.py 40 1"]
    folder = scene.folder / "run-1"
    with contextlib.closing(sqlite3.connect(folder / "orders.db")) as database:
        assert database.execute("select count(*), sum(amount) from orders").fetchall() == [(41, 8200.0)]
    lines = [json.loads(line) for path in (folder / "lines").iterdir() for line in path.read_text().splitlines()]
    assert sorted(line["id"] for line in lines) == list(range(1, 42))
    bills = [row for path in (folder / "bills").glob("*/*.parquet") for row in pq.ParquetFile(path).read().to_pylist()]
    assert sorted(bill["id"] for bill in bills) == list(range(1, 41))


ON_ONE_SESSION = """
import pathlib, sys
from pyspark.sql import SparkSession
from tidegate.cli.apps import load_app

SparkSession.builder.master(sys.argv[1]).getOrCreate()
for path in sys.argv[2:]:
    report = load_app(path).run(until="caught-up")
    print(pathlib.Path(path).name, report.settled, report.dead)
"""


@pytest.mark.proof
@pytest.mark.timeout(600)
def test_modules_beside_the_program_reach_the_machines_of_a_cluster(scene: Scene, cluster: SparkCluster) -> None:
    scene.fill(2, evenly(20, 2))
    ended = scene.start("with_module/app.py", "--master", cluster.url, "--until", "caught-up").wait(within=UP_SECONDS)

    assert ended.code == 0, ended.err
    assert "sent to Spark's workers: 1 file from beside the program (prices)" in ended.err
    assert scene.breaches() == []


@pytest.mark.proof
@pytest.mark.timeout(900)
def test_workers_without_tidegate_are_named_with_the_cure(scene: Scene, cluster: SparkCluster) -> None:
    scene.fill(1, evenly(5, 1))
    bare = scene.folder / "bare"
    venv.create(bare, with_pip=False, symlinks=True)
    words = ("slow.py", "--master", cluster.url, "--until", "caught-up")
    program = scene.start(*words, PYSPARK_PYTHON=str(bare / "bin" / "python"))
    ended = program.wait(within=UP_SECONDS)

    assert ended.code == 1, ended.err
    assert "the workers cannot run this pipeline: their Python has no module" in ended.err
    assert "install Tidegate for it, on every machine of the cluster" in ended.err
    assert scene.marks() == {0: 0}


PACKAGES = ("confluent_kafka", "orjson", "pydantic", "pydantic_core", "annotated_types", "typing_inspection")
