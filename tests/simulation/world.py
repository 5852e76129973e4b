"""Virtual time: what happens next is the earliest of what is to happen, and how long things take is chance."""

from __future__ import annotations

import heapq
import random
import traceback
from collections.abc import Callable
from typing import Any

from greenlet import getcurrent, greenlet

LATENCIES = (0.0, 0.001, 0.004, 0.02, 0.02, 0.1, 0.1, 0.4, 1.2)
"""From which the time of requests, answers and wake-ups is drawn."""


class World:
    """One schedule's time, chance and trace."""

    def __init__(self, seed: int, *, is_tracing: bool = False) -> None:
        self.now = 0.0
        self.chance = random.Random(seed)
        self.random = self.chance.random
        self.ticks = 0
        self.hub = getcurrent()
        self.running: Fiber | None = None
        self.crashes: list[str] = []
        self.trace: list[str] | None = [] if is_tracing else None
        self._heap: list[tuple[float, float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0

    def tell_time(self) -> float:
        return self.now

    def tick(self) -> int:
        """Number what the laws look at: no two of them at one moment."""
        self.ticks += 1
        return self.ticks

    def say(self, *words: object) -> None:
        if self.trace is not None:
            self.trace.append(f"{self.now:8.3f} {self.ticks:4d}  {' '.join(map(str, words))}")

    def pick(self, choices: tuple[float, ...]) -> float:
        return choices[int(self.random() * len(choices))]

    def soon(self) -> float:
        """A time that something takes."""
        return self.pick(LATENCIES) * (0.5 + self.random())

    def at(self, seconds: float, action: Callable[..., None], *args: object) -> None:
        """Let something happen later. What happens at one moment happens in any order."""
        self._count += 1
        heapq.heappush(self._heap, (self.now + seconds, self.random(), self._count, action, args))

    def step(self) -> bool:
        """Let the next thing happen; False if nothing is left to happen."""
        if not self._heap:
            return False
        moment, _, _, action, args = heapq.heappop(self._heap)
        self.now = max(self.now, moment)
        action(*args)
        return True


class Fiber:
    """One thread of a simulated process: runs real code, and gives way wherever that waits."""

    def __init__(self, world: World, name: str, function: Callable[[], None], frozen: Callable[[], float]) -> None:
        self._world = world
        self._name = name
        self._function = function
        self._frozen = frozen
        self._nap = 0
        self._is_waiting = False
        self.is_dead = False
        self.owner: Any = None
        """The process that it is of."""
        self._greenlet = greenlet(self._run, world.hub)
        self._sleep_until(world.soon())

    def _run(self) -> None:
        try:
            self._function()
        except Exception as error:  # noqa: BLE001  # whatever it is, it belongs into the verdict
            self._world.crashes.append(f"{self._name} crashed: {error!r}")
            if self._world.trace is not None:
                self._world.trace.append(traceback.format_exc())
        self.is_dead = True

    def sleep(self, seconds: float) -> None:
        """Give way for so long. Called by the fiber itself."""
        self._sleep_until(seconds)
        self._world.hub.switch()

    def _sleep_until(self, seconds: float) -> None:
        self._nap += 1
        self._is_waiting = True
        self._world.at(seconds, self._wake, self._nap)

    def rouse(self) -> None:
        """Something came that it may be waiting for."""
        if self._is_waiting:
            self._world.at(self._world.pick((0.0, 0.001, 0.01, 0.05)), self._wake, self._nap)

    def _wake(self, nap: int) -> None:
        if nap != self._nap or self.is_dead or not self._is_waiting:
            return
        if (frozen := self._frozen()) > 0:
            self._world.at(frozen + 0.001, self._wake, nap)
            return
        self._is_waiting = False
        self._world.running = self
        self._greenlet.switch()
        self._world.running = None

    def kill(self) -> None:
        """It does nothing more, as after kill -9."""
        self.is_dead = True

    def bury(self) -> None:
        """The schedule is over: let go of what it holds."""
        self.is_dead = True
        if self._greenlet and not self._greenlet.dead:
            self._greenlet.throw()
