"""One round inside a Python worker: (1) read, (2) run the steps, (3) settle, (4) return the outcome."""

from __future__ import annotations

import hashlib
import pickle
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tidegate.context import close_resources, holds_resources, pass_traces
from tidegate.engine.channel import LiveAddress, call_driver
from tidegate.engine.copying import Copier
from tidegate.engine.failure import reason
from tidegate.engine.fates import Tools
from tidegate.engine.round import Round
from tidegate.engine.stores import worker_store
from tidegate.engine.watch import watch, work_thread
from tidegate.engine.wire import encode_outcome
from tidegate.kafka.connection import Kafka
from tidegate.kafka.reader import worker_reader
from tidegate.kafka.writer import worker_writer
from tidegate.logs import WorkerLog
from tidegate.records import Lease, Outcome
from tidegate.steps import Plan

MOST_KEPT = 4
_INSTALL = "install it for the Python of Spark's workers, {} (PYSPARK_PYTHON names it)"
_SEND = "; a module of your own: import it at the top of the program, so that it is sent, or pass it with --py-files"


@dataclass(frozen=True)
class Job:
    """All that a round needs, sent with its task."""

    plan: bytes
    lease: Lease
    kafka: bytes = field(repr=False)
    """The cluster, pickled as functions are: it may hold a callback, and it holds secrets."""
    group: str
    import_path: tuple[str, ...]
    log: WorkerLog
    live: LiveAddress | None = None
    own_topics: Mapping[str, int] = field(default_factory=dict)
    """The group's own topics and how many partitions each has."""
    delays: Mapping[str, float] = field(default_factory=dict)
    """Those of them that are read: their delays, 0 for the redrive topic."""
    rate: float = 0.0
    trace_headers: bool = True


def run_task(job_bytes: bytes, attempt: int) -> tuple[bytes, bool]:
    """Run one round; answer with its outcome and whether the worker may live on."""
    started = time.monotonic()
    job: Job = pickle.loads(job_bytes)  # noqa: S301  # made by our own driver, sent with this very task
    lease = job.lease
    if attempt > 0:
        # The first attempt may have settled records that nobody reported: only the driver may plan them again.
        return encode_outcome(Outcome(lease.lane, lease.round, (), is_repeat=True)), True
    try:
        round_ = _begin(job)
    except Exception as error:  # noqa: BLE001  # any failure to start is told to the user in one sentence
        cure = _INSTALL.format(sys.executable) if isinstance(error, ImportError) else ""
        cure += _SEND if cure and not job.import_path else ""
        return encode_outcome(Outcome(lease.lane, lease.round, (), broken=reason(error), cure=cure)), True
    limits = None if job.live is None else job.live.limits
    healthy = watch(round_, lambda: call_driver(job.live, lease.lane, lease.round), limits)
    return encode_outcome(round_.outcome(time.monotonic() - started, has_resources=holds_resources())), healthy


def close_task(_job: bytes, _attempt: int) -> tuple[bytes, bool]:
    """Close this worker's resources, on the thread that made them, and let the worker end.

    A worker that is idle when its session stops prints a trace of its own about one time in ten.
    """
    thread = work_thread()
    thread.run(close_resources)
    thread.wait(5)
    time.sleep(0.2)  # hold this worker, so that the job's other tasks meet the other workers
    return b"", False


def _begin(job: Job) -> Round:
    job.log.begin()
    pass_traces(wanted=job.trace_headers)
    _extend_import_path(job.import_path)
    plan: Plan = _plans.load(job.plan)
    kafka: Kafka = _clusters.load(job.kafka)
    key = _digest(job.kafka) + job.group.encode()
    reader = worker_reader(kafka, job.group, key)
    copier = Copier(job.group, plan.fingerprint, job.own_topics, lambda: worker_writer(kafka, key))
    store = worker_store(plan, kafka, job.group, job.lease.backing, key)
    return Round(job.lease, Tools(plan, job.group, copier, job.delays, job.rate, store), reader)


def _extend_import_path(paths: tuple[str, ...]) -> None:
    """Find the modules beside the user's program: a plain Spark worker does not."""
    missing = [path for path in paths if path not in sys.path]
    sys.path[:0] = missing


class _Kept:
    """What was unpickled last, kept: its resources and closures live as long as the worker.

    More than one thing only where several pipelines share a Spark session, and with it this worker.
    """

    def __init__(self) -> None:
        self._things: dict[bytes, Any] = {}

    def load(self, pickled: bytes) -> Any:
        digest = _digest(pickled)
        if digest not in self._things:
            self._things[digest] = pickle.loads(pickled)  # noqa: S301  # the user's own functions, from our own driver
            while len(self._things) > MOST_KEPT:
                del self._things[next(iter(self._things))]
        return self._things[digest]


_plans, _clusters = _Kept(), _Kept()


def _digest(pickled: bytes) -> bytes:
    return hashlib.blake2b(pickled).digest()
