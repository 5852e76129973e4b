"""What a worker has instead of a clock, of threads and of Kafka's clients, while the real store runs in it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tests.simulation.coordinator import Refusal
from tests.simulation.fibers import FiberAsker, FiberCondition, FiberThread, Line
from tidegate.engine import backing, vault
from tidegate.errors import BrokerUnreachable
from tidegate.kafka import transactions
from tidegate.records import Commit, Partition

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

T = TypeVar("T")


class SimProducer:
    """A transactional producer, as the client library has it."""

    def __init__(self, sim: Simulation, line: Line, settings: Mapping[str, Any]) -> None:
        self._coordinator, self._line = sim.coordinator, line
        self._name: str = settings["transactional.id"]
        self._epoch = -1
        self._number = 0
        self._outputs: list[int] = []
        self._fatal: KafkaException | None = None

    def _ask(self, request: Callable[[], T], seconds: float) -> T:
        if self._fatal is not None:
            raise self._fatal
        try:
            return self._line.ask(request, seconds)
        except KafkaException as error:
            if error.args[0].fatal():
                self._fatal = error
            raise

    def init_transactions(self, seconds: float) -> None:
        self._epoch = self._ask(lambda: self._coordinator.take_name(self._name), seconds)

    def begin_transaction(self) -> None:
        self._number += 1
        self._outputs = []

    def produce(self, _topic: str, value: bytes, *_more: object) -> None:
        self._outputs.append(int(value))

    def poll(self, _seconds: float) -> int:
        return 0

    def flush(self, _seconds: float) -> int:
        outputs, number = self._outputs, self._number
        if outputs:
            self._outputs = []
            self._ask(lambda: self._coordinator.write(self._name, self._epoch, number, outputs), 10.0)
        return 0

    def send_offsets_to_transaction(self, offsets: Sequence[TopicPartition], member: object, seconds: float) -> None:
        commits = {Partition(one.topic, one.partition): Commit(one.offset, one.metadata or "") for one in offsets}
        number, who = self._number, member
        assert isinstance(who, tuple)
        self._ask(lambda: self._coordinator.take_marks(self._name, self._epoch, number, commits, who), seconds)

    def commit_transaction(self, seconds: float) -> None:
        self._end(seconds, is_commit=True)

    def abort_transaction(self, seconds: float) -> None:
        self._end(seconds, is_commit=False)

    def _end(self, seconds: float, *, is_commit: bool) -> None:
        number = self._number
        self._ask(lambda: self._coordinator.end(self._name, self._epoch, number, is_commit=is_commit), seconds)


class SimCommittedReader:
    """Reads the group's marks; where asked to, not while a transaction holds them back."""

    def __init__(self, sim: Simulation, line: Line, *, is_stable: bool, seconds: float) -> None:
        self._sim, self._line, self._is_stable, self._seconds = sim, line, is_stable, seconds

    def read(self, partitions: Sequence[Partition]) -> dict[Partition, Commit]:
        try:
            return self._line.ask(lambda: self._found(partitions), self._seconds)
        except KafkaException:
            raise BrokerUnreachable("the marks cannot be read", "wait") from None

    def _found(self, partitions: Sequence[Partition]) -> dict[Partition, Commit]:
        cluster = self._sim.cluster
        if cluster.is_loading:
            raise Refusal(KafkaError.COORDINATOR_LOAD_IN_PROGRESS, is_passing=True)
        if self._is_stable and self._sim.coordinator.holds_back(partitions):
            raise Refusal(KafkaError.UNSTABLE_OFFSET_COMMIT, is_passing=True)
        return {tp: cluster.offsets[tp] for tp in partitions if tp in cluster.offsets}


@contextlib.contextmanager
def simulated_clients(sim: Simulation) -> Iterator[None]:
    """Let the worker's modules find simulated clients, threads and time where the real ones are."""
    line = Line(sim)
    clock = SimpleNamespace(monotonic=sim.world.tell_time, time=sim.world.tell_time, sleep=line.sleep)
    threads = SimpleNamespace(
        Condition=lambda: FiberCondition(line),
        Thread=lambda target, name, daemon: FiberThread(line, target, name) if daemon else None,
    )

    def reader(_kafka: object, _group: str, seconds: float, *, require_stable: bool) -> SimCommittedReader:
        return SimCommittedReader(sim, line, is_stable=require_stable, seconds=seconds)

    replaced: dict[ModuleType, dict[str, object]] = {
        vault: {"time": clock, "threading": threads},
        transactions: {
            "time": clock,
            "within": line.within,
            "Producer": lambda settings: SimProducer(sim, line, settings),
            "CommittedReader": reader,
        },
        backing: {"time": clock, "ThreadPoolExecutor": lambda _most, **_: FiberAsker(line.process)},
    }
    kept = {module: {name: vars(module)[name] for name in others} for module, others in replaced.items()}
    try:
        _put(replaced)
        yield
    finally:
        _put(kept)


def _put(things: Mapping[ModuleType, Mapping[str, object]]) -> None:
    for module, named in things.items():
        for name, thing in named.items():
            setattr(module, name, thing)
