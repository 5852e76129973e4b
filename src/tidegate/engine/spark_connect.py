"""Spark behind a Connect server (`sc://`): the same rounds, as DataFrame jobs, for there are no others.

A round is one job of one task here as well, and its answer comes back as one row. Whatever the client sends again, the
server knows the operation by the id that the client gave it and takes it up instead of running it twice; another
server, or the same one started again, knows the session not at all and refuses it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import re
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.engine.shipping import own_files, own_paths, pack, tidegate_files
from tidegate.engine.spark import NeverBegan, RoundBroken, RoundDied, Spark, Task
from tidegate.engine.wording import last_line, no_worker, root_cause
from tidegate.errors import SettingsError, SparkFailed
from tidegate.machine import debug_asked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger("tidegate.spark")

MOST_SLOTS = 1024
"""So many numbers are spread over the tasks that Spark makes by itself: one for each slot, as it is usually set."""
GONE_AFTER = {"max_retries": 8, "initial_backoff": 50, "backoff_multiplier": 4.0, "max_backoff": 5000}
"""How long a session of our own calls a server that does not answer: about half a minute (the client's default: ten
minutes). In milliseconds."""
INTERRUPT_AGAIN_SECONDS = 0.5
INTERRUPTED_SECONDS = 600.0
"""So long a client may go on sending a round to a server that does not answer; then it gives up, too."""
_NEEDED = {
    "grpc": "grpcio",
    "grpc_status": "grpcio-status",
    "google.rpc": "googleapis-common-protos",
    "zstandard": "zstandard",
}
_ADDRESS = re.compile(r"(sc://[^/;]+)/?(;.*)?")
_LOST = (
    (re.compile(r"SESSION_(CHANGED|CLOSED|NOT_FOUND)|NO_ACTIVE_SESSION|RESPONSE_ALREADY"), "has lost this session"),
    (re.compile(r"StatusCode\.UNAVAILABLE|failed to connect to all addresses"), "does not answer"),
)
_CANCELLED = re.compile(r"OPERATION_CANCELED|OPERATION_ABANDONED")
_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '([^']+)'")
_NO_PYTHON = re.compile(r'Cannot run program "([^"]+)"')
_START_AGAIN = "start again when the server is there: the group stands where it was committed"


class ConnectSpark(Spark):
    """A session on a Connect server that runs rounds. Safe to call from one thread per lane."""

    def __init__(self, session: SparkSession, *, owned: bool) -> None:
        self._session = session
        self._owned = owned
        self._is_gone = False
        self._lanes = threading.local()
        self._tasks: dict[str, tuple[int, int]] = {}
        self._cancelled: set[str] = set()
        """Names of rounds that were cancelled and have not come back."""
        if owned:
            self._be_patient()
        self._address = f"sc://{_told(lambda: session.client._builder.endpoint, 'unknown')}"
        try:
            # The first answer also tells the client which session of which server it has: from now on no other one
            # takes its requests, however often they are sent.
            self._version = str(session.version)
            _refuse_what_would_run_twice(session)
            self._slots = self._count_slots()
            self._send_modules()
        except SettingsError:
            raise
        except Exception as error:
            why = self.cause(error)
            if isinstance(why, SparkFailed):
                raise why from error
            raise SparkFailed(f"{self._address} cannot be used: {self.explain(error)}", "look at its log") from error
        session.registerProgressHandler(self._note_progress)

    @property
    def is_cluster(self) -> bool:
        """What is behind the server is the server's: nothing of it is seen from here."""
        return False

    @property
    def asks_for_more(self) -> bool:
        """As above."""
        return False

    @property
    def page(self) -> None:
        """The server has it, and does not say where."""
        return None

    @property
    def slots(self) -> int:
        """How many tasks Spark runs at a time, when nobody else uses the server."""
        return self._slots

    @property
    def master(self) -> str:
        """Where the server is."""
        return self._address

    @property
    def version(self) -> str:
        """The server's version."""
        return self._version

    @property
    def driver_address(self) -> None:
        """Workers are on the server's side: they know no way to this process."""
        return None

    @property
    def import_path(self) -> tuple[str, ...]:
        """The user's modules were sent: folders of this machine mean nothing there."""
        return ()

    def run_round(self, task: Task, job: bytes, *, name: str, description: str) -> bytes:
        """Run one task in one job of this name and return its answer. Blocks; call it from the lane's thread."""
        self.describe(name, description)
        try:
            answers: list[bytes] = self._run(task, job, 1)
        except Exception as error:
            cause = self.cause(error)
            # How an interrupted operation ends depends on how far it was: not always does it say so.
            is_cancelled = name in self._cancelled and not isinstance(cause, SparkFailed)
            raise (RoundDied("it was cancelled") if is_cancelled else cause) from error
        if len(answers) != 1:
            raise RoundDied("the round's task gave no answer")
        return answers[0]

    def describe(self, name: str, description: str) -> None:
        """Name the jobs of the calling thread: Spark's pages show the tag, and not the description.

        Of a round that was cancelled nothing more is begun.
        """
        if name in self._cancelled:
            raise RoundDied("it was cancelled")
        self._tasks.pop(getattr(self._lanes, "name", ""), None)
        self._lanes.name = name
        self._session.clearTags()
        self._session.addTag(_tag(name))
        logger.debug("%s", description)

    def progress(self, name: str) -> tuple[int, int] | None:
        """Return how many tasks of these jobs' running stages are done, of how many; None where nothing runs."""
        return self._tasks.get(name)

    def explain(self, error: Exception) -> str:
        """Return the one line of Spark's error that says most."""
        text = _pythons(error)
        return last_line(text) if _is_python(error) else text.splitlines()[0]

    def run_everywhere(self, task: Task, job: bytes) -> None:
        """Run a task once in about every idle worker of this session. Best effort: for closing what they hold."""
        if not self._is_gone:
            with contextlib.suppress(Exception):
                self._run(task, job, self._slots)

    def cancel(self, name: str) -> None:
        """Cancel the jobs of this name, also those that are still to come. A task lives on for up to four seconds."""
        self._cancelled.add(name)
        # In a thread: a server that is away must not hold the caller.
        threading.Thread(target=self._interrupt, args=(name,), name="cancel", daemon=True).start()

    def forget(self, name: str) -> None:
        """The round of this name has come back."""
        self._cancelled.discard(name)

    def stop(self) -> None:
        """End the session, if this run made it; a server that is gone is not asked to."""
        with contextlib.suppress(Exception):
            self._session.removeProgressHandler(self._note_progress)
        if self._owned:
            with contextlib.suppress(Exception):
                self._session.client.close() if self._is_gone else self._session.stop()

    def _interrupt(self, name: str) -> None:
        """Interrupt a round until it has come back.

        The server forgets what it is told of an operation that it does not know. Otherwise: a lane is about to send its
        round, the interrupt overtakes it, and the round runs from a mark that others have left behind.
        """
        until = time.monotonic() + INTERRUPTED_SECONDS
        while name in self._cancelled and time.monotonic() < until:
            with contextlib.suppress(Exception):
                self._session.interruptTag(_tag(name))
            time.sleep(INTERRUPT_AGAIN_SECONDS)
        self._cancelled.discard(name)

    def _be_patient(self) -> None:
        """Call a server that does not answer for a while; no longer when one lane has found that it is gone."""
        from pyspark.sql.connect.client.retries import DefaultPolicy  # noqa: PLC0415  # only there with the extra

        def can_retry(error: BaseException) -> bool:
            return not self._is_gone and bool(DefaultPolicy.can_retry(policy, error))

        policy = DefaultPolicy(**GONE_AFTER)
        policy.can_retry = can_retry
        self._session.client.set_retry_policies([policy])

    def _run(self, task: Task, job: bytes, tasks: int) -> list[bytes]:
        frame = self._session.range(0, tasks, 1, tasks).mapInArrow(partial(_enter, task, job), "answer binary")
        answers: list[bytes] = frame.toArrow().column(0).to_pylist()
        return answers

    def _count_slots(self) -> int:
        numbers = self._session.range(MOST_SLOTS).selectExpr("spark_partition_id() as part").toArrow()
        parts: list[int] = numbers.column(0).to_pylist()
        return 1 + max(parts)

    def _send_modules(self) -> None:
        """Give the session Tidegate as it is here, and the modules beside the program."""
        with tempfile.TemporaryDirectory(prefix="tidegate-modules-") as folder:
            files = {**own_files(sys.modules, own_paths()), **tidegate_files()}
            self._session.addArtifacts(str(pack(files, Path(folder))), pyfile=True)

    def _note_progress(self, stages: Iterable[Any] | None, inflight_tasks: int, *_: object, **_more: object) -> None:
        """Take what the client tells of the calling thread's operation."""
        lane, known = getattr(self._lanes, "name", None), list(stages or ())
        if lane is not None and inflight_tasks and known:
            self._tasks[lane] = sum(one.num_completed_tasks for one in known), sum(one.num_tasks for one in known)

    def cause(self, error: Exception) -> Exception:
        """Tell a dead worker from a task that cannot start, from a cancelled one and from a server that is gone."""
        cause = told_apart(error, self._address)
        self._is_gone = self._is_gone or isinstance(cause, SparkFailed)
        return cause


def told_apart(error: Exception, address: str) -> Exception:
    """Return what an error of a round over Connect means."""
    text = str(error)
    lost = next((why for known, why in _LOST if known.search(text)), None)
    if lost is not None and not _is_python(error):  # what a function raised came from a server that is there
        return SparkFailed(f"the Spark Connect server {address} {lost}", _START_AGAIN)
    if _CANCELLED.search(text):
        return RoundDied("it was cancelled")
    if missing := _NO_MODULE.search(text):
        return RoundBroken(f"Spark's workers have no module {missing.group(1)}", _cure(missing.group(1)))
    if missing := _NO_PYTHON.search(text):
        return RoundBroken(f"there is no Python at {missing.group(1)}", "set spark.pyspark.python on the server")
    if _is_python(error):
        return RoundBroken(last_line(_pythons(error)))
    return RoundDied(root_cause(text)) if (why := no_worker(text)) is None else NeverBegan(why)


def check_connect(address: str) -> str:
    """Refuse what can be refused before a server is called; return its address as it may be shown."""
    shown = _checked(address)
    _refuse_missing_packages()
    return shown


def open_connect(address: str) -> Spark:
    """Begin a session of this run's own on a server."""
    shown = check_connect(address)
    from pyspark.sql import SparkSession  # noqa: PLC0415  # slow to import: only when a run begins

    try:
        session = SparkSession.builder.remote(address).create()
    except Exception as error:
        raise SparkFailed(f"no session on {shown}: {last_line(_pythons(error))}", "check the address") from error
    if not debug_asked():
        # Whole stack traces of Java's, as JSON, for every round that is cancelled.
        logging.getLogger("SQLQueryContextLogger").disabled = True
        warnings.filterwarnings("ignore", r"\[RETRIES_EXCEEDED\]")  # what follows from it is said in a sentence
    return ConnectSpark(session, owned=True)


def _checked(address: str) -> str:
    """Return the address as it may be shown."""
    found = _ADDRESS.fullmatch(address)
    if found is None:
        raise SettingsError(f"master={address!r} is no Connect server", "write sc://host:port")
    if "token=" in (found.group(2) or ""):
        raise SettingsError(
            f"master={found.group(1)}/;token=... would show the token wherever settings are shown",
            "set SPARK_CONNECT_AUTHENTICATE_TOKEN instead, or pass a session: run(spark=session)",
        )
    return found.group(1)


def _refuse_missing_packages() -> None:
    for module, package in _NEEDED.items():
        with contextlib.suppress(ModuleNotFoundError):  # of the package around it
            if importlib.util.find_spec(module) is not None:
                continue
        raise SettingsError(
            f"Spark Connect needs {package}, which is not installed", "install it: pip install 'tidegate[connect]'"
        )


def _refuse_what_would_run_twice(session: Any) -> None:
    if session.is_stopped:
        raise SettingsError("the Spark session was stopped", "make a new one: SparkSession.builder.remote(...)")
    if _told(lambda: session.conf.get("spark.speculation", "false"), "false") == "true":
        raise SettingsError("spark.speculation=true would run records twice at a time", "switch it off on the server")
    # The client has no question for it. Without, it sends a whole round again when a connection breaks.
    if not getattr(session.client, "_use_reattachable_execute", True):
        raise SettingsError(
            "a session without reattachable execution would run rounds twice at a time",
            "call spark.client.enable_reattachable_execute()",
        )


def _tag(name: str) -> str:
    return name.replace(",", ".")  # Spark parts tags by commas


def _told(ask: Any, otherwise: str) -> str:
    """Return what a server says that may not want to say it."""
    try:
        return str(ask())
    except Exception:  # noqa: BLE001  # some servers keep such settings to themselves
        return otherwise


def _is_python(error: Exception) -> bool:
    from pyspark.errors import PythonException  # noqa: PLC0415  # slow to import, needed on failure only

    return isinstance(error, PythonException)


def _pythons(error: Exception) -> str:
    """Return an error's text without Java's stack, and without the code that Spark puts behind it."""
    text = str(error).partition("\n\nJVM stacktrace:")[0]
    return re.sub(r"\s*SQLSTATE: \w+\s*$", "", text) or type(error).__name__


def _cure(module: str) -> str:
    return (
        f"install {module} for the Python of the server's workers; a module of your own is sent to them if the program "
        "has imported it before the run begins"
    )


# --- inside the worker ----------------------------------------------------------------------------


def _enter(task: Task, job: bytes, batches: Iterator[Any]) -> Iterator[Any]:
    """Run one round and give one answer, as one row. The input is drained only by a healthy round: see `spark.py`."""
    import pyarrow as pa  # noqa: PLC0415  # slow to import: only in workers
    from pyspark import TaskContext  # noqa: PLC0415  # only there inside a worker

    context = TaskContext.get()
    attempt = context.attemptNumber() if context is not None else 0
    answer, healthy = task(job, attempt)
    if healthy:
        for _ in batches:
            pass
    yield pa.record_batch([pa.array([answer], pa.binary())], names=["answer"])
