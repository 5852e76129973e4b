"""The threads of workers, and their way to the broker: requests and answers that take a while, or do not come."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

from confluent_kafka import KafkaError, KafkaException

from tests.simulation.coordinator import Refusal
from tests.simulation.world import Fiber
from tidegate.errors import TidegateError, Unavailable
from tidegate.kafka.patience import NeverReturned
from tidegate.store import Overtaken

if TYPE_CHECKING:
    from tests.simulation.once import OnceTask
    from tests.simulation.process import Process
    from tests.simulation.simulation import Simulation

T = TypeVar("T")
LOST, LATE, STUCK = 0.04, 0.04, 0.02
"""How often an answer is lost, a request comes late, a call of the client never returns, while times are rough."""
LATEST_REQUEST = 20.0
FOR_EVER = 10_000.0
NO_CODE = int(KafkaError._TIMED_OUT)


class WorkerFiber(Fiber):
    """A thread of a worker. It ends with its task."""

    def __init__(self, task: OnceTask, name: str, function: Callable[[], None]) -> None:
        world = task.owner.world
        super().__init__(world, f"{task} {name}", function, lambda: task.hangs_until - world.now)
        self.task, self.owner = task, task.owner
        task.fibers.append(self)
        task.owner.sim.worker_fibers.append(self)


class Line:
    """From where the running fiber is to the broker: requests and answers take a while, or do not come."""

    def __init__(self, sim: Simulation) -> None:
        self._sim, self._world = sim, sim.world

    @property
    def fiber(self) -> Fiber:
        assert self._world.running is not None
        return self._world.running

    def sleep(self, seconds: float) -> None:
        self.fiber.sleep(seconds)

    def meet_edge(self) -> None:
        """Between two steps of a transaction anything may happen to a worker."""
        if isinstance(self.fiber, WorkerFiber):
            self._sim.meet_edge(self.fiber.task)
            if self.fiber.is_dead or self.fiber.task.hangs_until > self._world.now:
                self.fiber.sleep(0.001)

    def ask(self, request: Callable[[], T], seconds: float) -> T:
        """Ask until there is an answer that is none of "not now"; the client does so by itself."""
        until = self._world.now + seconds
        while True:
            self.meet_edge()
            try:
                answer = self._ask_once(request, until - self._world.now)
            except Refusal as refusal:
                if not refusal.is_passing:
                    raise _failed(refusal.code, is_fatal=refusal.is_fatal, is_abortable=not refusal.is_fatal) from None
                if self._world.now >= until:
                    raise _failed(NO_CODE, is_retriable=True) from None
                self.fiber.sleep(0.1 + 0.2 * self._world.random())
                continue
            self.meet_edge()
            return answer

    def _ask_once(self, request: Callable[[], T], seconds: float) -> T:
        world, fiber, answers = self._world, self.fiber, list[T | Refusal]()
        is_rough = self._sim.is_rough
        is_lost = world.now < self.process.deaf_until or (is_rough and world.random() < LOST)

        def arrive() -> None:
            answer: T | Refusal
            try:
                answer = request()
            except Refusal as refusal:
                answer = refusal
            if not is_lost:
                world.at(world.soon(), come, answer)

        def come(answer: T | Refusal) -> None:
            answers.append(answer)
            fiber.rouse()

        late = LATEST_REQUEST * world.random() if is_rough and world.random() < LATE else 0.0
        world.at(world.soon() + late + self.process.cut_seconds, arrive)
        until = world.now + seconds
        while not answers and world.now < until:
            fiber.sleep(until - world.now)
        if not answers:
            raise _failed(NO_CODE, is_retriable=True)
        if isinstance(answers[0], Refusal):
            raise answers[0]
        return answers[0]

    @property
    def process(self) -> Process:
        owner: Process = self.fiber.owner
        return owner

    def within(self, seconds: float, name: str, call: Callable[[], T]) -> T:
        """Make a call that may never return; then nobody knows how far it has come."""
        if not self._sim.is_rough or self._world.random() >= STUCK:
            return call()
        if self._world.random() < 0.5:
            call()
        self.fiber.sleep(seconds)
        raise NeverReturned(name)


def _failed(
    code: int, *, is_fatal: bool = False, is_retriable: bool = False, is_abortable: bool = False
) -> KafkaException:
    return KafkaException(KafkaError(code, "simulated", is_fatal, is_retriable, is_abortable))


class FiberCondition:
    """A `threading.Condition` for fibers: only one of them runs, so that there is nothing to lock."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._waiting: list[Fiber] = []

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass

    def wait(self, seconds: float | None = None) -> None:
        fiber = self._line.fiber
        self._waiting.append(fiber)
        fiber.sleep(FOR_EVER if seconds is None else seconds)
        self._waiting.remove(fiber)

    def notify_all(self) -> None:
        for fiber in self._waiting:
            fiber.rouse()


class FiberThread:
    """A `threading.Thread` that is a fiber of the same task."""

    def __init__(self, line: Line, target: Callable[[], None], name: str) -> None:
        self._line, self._target, self._name = line, target, name
        self._fiber: WorkerFiber | None = None

    def start(self) -> None:
        fiber = self._line.fiber
        assert isinstance(fiber, WorkerFiber)
        self._fiber = WorkerFiber(fiber.task, self._name, self._target)

    def is_alive(self) -> bool:
        return self._fiber is not None and not self._fiber.is_dead

    def join(self) -> None:
        while self.is_alive():
            self._line.fiber.sleep(0.05)


class FiberAsker:
    """A `ThreadPoolExecutor` of the running process: whoever asks has a fiber of its own."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._is_closed = False

    def submit(self, fn: Callable[..., object], /, *args: object) -> Future[object]:
        future: Future[object] = Future()
        if not self._is_closed:
            self._process.begin("fence", lambda: self._answer(future, lambda: fn(*args)))
        return future

    @staticmethod
    def _answer(future: Future[object], ask: Callable[[], object]) -> None:
        try:
            future.set_result(ask())
        except (TidegateError, Unavailable, Overtaken) as error:
            future.set_exception(error)

    def shutdown(self, wait: bool = True) -> None:
        assert not wait
        self._is_closed = True
