"""The only module that talks to Spark: sessions, rounds as jobs, and the entry inside the worker."""

from __future__ import annotations

import contextlib
import logging
import re
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.class_archives import start_sooner
from tidegate.engine.masters import refuse_silent_master, refuse_unknown_master
from tidegate.engine.scratch import cleared_after_a_kill, scratch_folder
from tidegate.engine.shipping import own_paths
from tidegate.engine.wording import lacking, last_line, no_worker, root_cause
from tidegate.errors import SettingsError, SparkFailed
from tidegate.frames import is_over_connect
from tidegate.java import find_java, small_options
from tidegate.machine import choose_worker_python, is_submitted, spark_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger("tidegate.spark")

Task = Callable[[bytes, int], tuple[bytes, bool]]
"""What a round runs in the worker: (job, attempt number) to (answer, whether the worker may live on)."""


class RoundDied(Exception):
    """The round ended without an outcome: its worker died or the job was cancelled."""


class NeverBegan(RoundDied):
    """Spark could not start a Python worker for the round: nothing of it ran, and no record is to blame."""


class RoundBroken(Exception):
    """The round could not even start in the worker: the same would happen again. `cure` says what helps, if known."""

    def __init__(self, why: str, cure: str = "") -> None:
        super().__init__(why)
        self.cure = cure


class Spark:
    """A Spark session that runs rounds. Safe to call from one thread per lane."""

    def __init__(self, session: SparkSession, *, owned: bool) -> None:
        _refuse_speculation(session)
        self._session = session
        self._owned = owned
        self._one = session.sparkContext.parallelize([0], 1)
        """One partition with one element: the input of every round's one task."""

    @property
    def slots(self) -> int:
        """How many tasks Spark runs at a time now: on a cluster executors come and go, and at the start there is none.

        `defaultParallelism` would say 2 where there is nothing yet.
        """
        try:
            context = self._session.sparkContext._jsc.sc()
            return int(context.maxNumConcurrentTasks(context.resourceProfileManager().defaultResourceProfile()))
        except Exception as error:
            raise self.cause(error) from error

    @property
    def asks_for_more(self) -> bool:
        """Whether Spark starts executors when tasks wait for them (dynamic allocation)."""
        asked: str = self._session.sparkContext.getConf().get("spark.dynamicAllocation.enabled", "false")
        return asked == "true" and self.is_cluster

    @property
    def is_cluster(self) -> bool:
        """Whether the workers are on other machines, which come and go and do not see the files of this one."""
        return not self.master.startswith("local") or self.master.startswith("local-cluster")

    def ship(self, archive: str) -> None:
        """Let every worker import the modules in this archive."""
        self._session.sparkContext.addPyFile(archive)

    @property
    def is_owned(self) -> bool:
        """Whether this run made the session, and ends it."""
        return self._owned

    @property
    def master(self) -> str:
        """Where it runs."""
        return str(self._session.sparkContext.master)

    @property
    def page(self) -> str | None:
        """Where Spark shows its jobs."""
        found: str | None = self._session.sparkContext.uiWebUrl
        return found

    @property
    def version(self) -> str:
        """Spark's version."""
        return str(self._session.version)

    @property
    def driver_address(self) -> tuple[str, str] | None:
        """Where this process can listen, and the name under which workers reach it; None: they cannot."""
        conf = self._session.sparkContext.getConf()
        host = conf.get("spark.driver.host", "127.0.0.1")
        if not self.is_cluster:
            return "127.0.0.1", "127.0.0.1"
        return conf.get("spark.driver.bindAddress", host), host

    @property
    def import_path(self) -> tuple[str, ...]:
        """Where workers find the modules beside the user's program: where this process does, or what was sent."""
        if self.is_cluster:
            return ()
        return tuple(str(Path(entry).absolute()) if entry else str(Path.cwd()) for entry in sys.path)

    def run_round(self, task: Task, job: bytes, *, name: str, description: str) -> bytes:
        """Run one task in one job of this name and return its answer. Blocks; call it from the lane's thread."""
        self._session.sparkContext.setJobGroup(name, description, interruptOnCancel=False)
        try:
            answers: list[bytes] = self._one.mapPartitions(partial(_enter, task, job)).collect()
        except Exception as error:
            raise self.cause(error) from error
        if len(answers) != 1:
            raise RoundDied("the round's task gave no answer")
        return answers[0]

    def describe(self, name: str, description: str) -> None:
        """Name the jobs of the calling thread, and describe them for people who look at Spark's pages."""
        self._session.sparkContext.setJobGroup(name, description, interruptOnCancel=False)

    @property
    def session(self) -> SparkSession:
        """The session itself: for DataFrames."""
        return self._session

    def progress(self, name: str) -> tuple[int, int] | None:
        """Return how many tasks of these jobs' running stages are done, of how many; None where nothing runs."""
        tracker = self._session.sparkContext.statusTracker()
        stages = [
            found
            for job in tracker.getJobIdsForGroup(name)
            if (info := tracker.getJobInfo(job)) is not None and info.status == "RUNNING"
            for stage in info.stageIds
            if (found := tracker.getStageInfo(stage)) is not None and found.numActiveTasks
        ]
        return (sum(one.numCompletedTasks for one in stages), sum(one.numTasks for one in stages)) if stages else None

    def is_waiting(self, name: str) -> bool:
        """Whether a job of this name is there and none of its tasks runs: Spark has no slot for it."""
        tracker = self._session.sparkContext.statusTracker()
        newest = max(tracker.getJobIdsForGroup(name), default=None)
        job = None if newest is None else tracker.getJobInfo(newest)
        if job is None or job.status != "RUNNING":
            return False
        stages = [tracker.getStageInfo(stage) for stage in job.stageIds]
        return not any(one is not None and (one.numActiveTasks or one.numCompletedTasks) for one in stages)

    def explain(self, error: Exception) -> str:
        """Return the one line of Spark's error that says most."""
        from pyspark.errors import PySparkException, PythonException  # noqa: PLC0415  # slow to import, needed on failure only

        text = str(error)
        if isinstance(error, PythonException):
            return last_line(text)  # what a UDF raised
        return text.splitlines()[0] if isinstance(error, PySparkException) and text else root_cause(text)

    def run_everywhere(self, task: Task, job: bytes) -> None:
        """Run a task once in about every idle worker. Best effort: for closing what they hold."""
        with contextlib.suppress(Exception):
            if not (count := self.slots):
                return  # the job would wait for ever
            self.describe("tidegate-closing", "tidegate: closing what the workers hold")
            self._session.sparkContext.parallelize(range(count), count).mapPartitions(
                partial(_enter, task, job)
            ).collect()

    def cancel(self, name: str) -> None:
        """Cancel the jobs of this name, also those that are still to come. A task lives on for up to four seconds.

        Otherwise: a busy machine's job reaches Spark seconds late, after it was cancelled, and repeats others' work.
        """
        with contextlib.suppress(Exception):
            self._session.sparkContext._jsc.sc().cancelJobGroupAndFutureJobs(name)

    def forget(self, name: str) -> None:
        """Nothing more comes under this name: its round has come back."""

    def stop(self) -> None:
        """End the session, if this run made it."""
        if self._owned:
            with contextlib.suppress(Exception):
                self._session.stop()

    def cause(self, error: Exception) -> Exception:
        """Tell a dead worker from a task that cannot start and from a Spark that is gone."""
        from pyspark.errors import PythonException  # noqa: PLC0415  # slow to import, needed on failure only

        text = str(error)
        if (missing := _NO_PYTHON.search(text)) is not None:
            return RoundBroken(f"there is no Python at {missing.group(1)}", _WORKER_PYTHON)
        if isinstance(error, PythonException):
            return RoundBroken(*lacking(text, last_line(text)))
        if not self._is_alive():
            return SparkFailed("Spark ended under the run", "start again; --debug shows Spark's own log")
        return RoundDied(root_cause(text)) if (why := no_worker(text)) is None else NeverBegan(why)

    def _is_alive(self) -> bool:
        try:
            return not self._session.sparkContext._jsc.sc().isStopped()
        except Exception:  # noqa: BLE001  # whatever it is: a session that cannot answer is not alive
            return False


def open_spark(session: SparkSession | None, *, master: str, app_name: str, debug: bool) -> Spark:
    """Use the given session, or the active one, or start an own one."""
    checked_pyspark()
    from pyspark import java_gateway  # noqa: PLC0415  # slow to import: only when a run begins
    from pyspark.sql import SparkSession  # noqa: PLC0415  # slow to import: only when a run begins

    from tidegate.engine import spark_connect  # noqa: PLC0415  # it is built on this module

    session = session or SparkSession.getActiveSession()
    if session is not None and is_over_connect(session):
        return spark_connect.ConnectSpark(session, owned=False)
    if session is not None:
        if not hasattr(session, "sparkContext"):
            raise SettingsError(
                f"spark={session!r} is no Spark session",
                'pass SparkSession.builder.getOrCreate(), or choose settings={"master": "local[4]"}',
            )
        return Spark(session, owned=False)
    if is_submitted():
        choose_worker_python(sys.executable)
        builder = _submitted(app_name, debug=debug)
    else:
        refuse_unknown_master(master)
        if master.startswith("sc://"):
            return spark_connect.open_connect(master)
        refuse_silent_master(master)
        _refuse_missing_python(master, choose_worker_python(sys.executable))
        sooner = start_sooner(find_java())
        builder = SparkSession.builder.master(master).appName(app_name)
        for name, value in _own_settings(master, sooner, debug=debug).items():
            builder = builder.config(name, value)
    # PySpark takes Ctrl-C for itself when a session starts; the run has its own way to stop.
    before = signal.getsignal(signal.SIGINT)
    try:
        with cleared_after_a_kill(java_gateway):  # the file by which it meets the Java that it starts
            session = builder.getOrCreate()
    except Exception as error:
        home = spark_home()
        theirs = f"SPARK_HOME={home} names the Spark to start: mend or unset it; " if home else ""
        raise SparkFailed(
            f"Spark could not start on {master}: {last_line(str(error))}", f"{theirs}--debug shows Spark's own log"
        ) from error
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)
    if not debug:
        _say_nothing_of_accumulators(session)
    return Spark(session, owned=True)


def _say_nothing_of_accumulators(session: SparkSession) -> None:
    """PySpark's server for accumulators, which no round uses, shows a trace where its Java is gone: the run says so."""
    if (server := getattr(session.sparkContext, "_accumulatorServer", None)) is not None:
        server.handle_error = lambda *_: None


def _submitted(app_name: str, *, debug: bool) -> SparkSession.Builder:
    """Take what spark-submit was told: its master, and everything else that it names, before what we would choose."""
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415  # as above
    from pyspark.sql import SparkSession  # noqa: PLC0415  # as above

    SparkContext._ensure_initialized()  # the Java that started us: it has the settings
    told = SparkConf()
    own = {"spark.app.name": app_name, **_own_settings(told.get("spark.master", "local"), [], debug=debug)}
    builder = SparkSession.builder
    for name, value in own.items():
        if not told.contains(name):
            builder = builder.config(name, value)
    return builder


def _own_settings(master: str, sooner: list[str], *, debug: bool) -> dict[str, str]:
    settings = {
        "spark.ui.showConsoleProgress": "false",
        # Rounds come and go for months: what Spark remembers of each is kept short.
        "spark.ui.retainedJobs": "50",
        "spark.ui.retainedStages": "50",
        "spark.ui.retainedTasks": "200",
        "spark.sql.ui.retainedExecutions": "20",
        # Without it every job waits about 40 ms for loopback TCP between the JVM and its Python worker.
        "spark.python.unix.domain.socket.enabled": "true",
    }
    if master.startswith("local"):
        settings |= {
            # A UDF of a DataFrame may come from a module beside the program, which a plain worker does not find.
            "spark.executorEnv.PYTHONPATH": ":".join(own_paths()),
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
        }
        if choose_worker_python(sys.executable) == sys.executable:
            settings["spark.python.daemon.module"] = "tidegate.engine.worker_daemon"
    java = sooner + (small_options() if master.startswith("local") else [])
    if master.startswith("local") and (scratch := scratch_folder()) is not None:
        java.append(f"-Djava.io.tmpdir={scratch}")
    if not debug:
        quiet = Path(__file__).with_name("quiet-log4j2.properties")
        java.append(f"-Dlog4j2.configurationFile={quiet.as_uri()}")
    if java:
        settings["spark.driver.extraJavaOptions"] = " ".join(java)
    return settings


_NO_PYTHON = re.compile(r'Cannot run program "([^"]+)"')
_WORKER_PYTHON = "set PYSPARK_PYTHON to a Python that the workers have, with Tidegate installed, or unset it"


def _refuse_missing_python(master: str, executable: str) -> None:
    """Without it every round would end at once: say so before Spark starts, where the workers are on this machine."""
    if master.startswith("local") and shutil.which(executable) is None:
        raise SettingsError(f"PYSPARK_PYTHON={executable} is no Python that runs", _WORKER_PYTHON)


def _refuse_speculation(session: SparkSession) -> None:
    if session.sparkContext.getConf().get("spark.speculation", "false") == "true":
        raise SettingsError(
            "spark.speculation=true would run records twice at a time", "switch it off in the Spark session"
        )


OLDEST_PYSPARK = (4, 1)


def checked_pyspark() -> str:
    """Return PySpark's version; say that it is missing or too old before what it lacks is missed deep inside."""
    needed = ".".join(map(str, OLDEST_PYSPARK))
    cure = f"install it: {sys.executable} -m pip install 'pyspark>={needed}'"
    try:
        from pyspark import __version__ as version  # noqa: PLC0415  # slow to import, and it may be missing
    except ModuleNotFoundError as error:
        if error.name != "pyspark":
            raise
        raise SparkFailed(f"PySpark is not installed for {sys.executable}", cure) from None
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if numbers < OLDEST_PYSPARK:
        raise SparkFailed(f"PySpark {version} is installed, and {needed} or newer is needed", cure)
    return str(version)


def pickle_by_value(module: object) -> None:
    """Send the functions of this module to the workers as they are, not as a name to import there."""
    checked_pyspark()
    from pyspark import cloudpickle  # noqa: PLC0415  # slow to import

    cloudpickle.register_pickle_by_value(module)


def pickled(thing: object) -> bytes:
    """Pickle as Spark would: functions of the main program and closures too."""
    from pyspark import cloudpickle  # noqa: PLC0415  # slow to import

    data: bytes = cloudpickle.dumps(thing)
    return data


# --- inside the worker ----------------------------------------------------------------------------


def _enter(task: Task, job: bytes, elements: Iterable[int]) -> Iterator[bytes]:
    """Run one round and give one answer.

    The input is drained only by a healthy round: Spark ends a worker whose task left input behind,
    which is how a worker with a stuck thread is got rid of without losing the answer.
    """
    from pyspark import TaskContext  # noqa: PLC0415  # only there inside a worker

    context = TaskContext.get()
    attempt = context.attemptNumber() if context is not None else 0
    answer, healthy = task(job, attempt)
    yield answer
    if healthy:
        for _ in elements:
            pass
