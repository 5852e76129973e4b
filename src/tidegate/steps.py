"""Pure: one record through the steps and into its sinks. This is the hot path."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import PurePath
from types import CodeType, FunctionType, MethodType
from typing import Any, Literal

from tidegate.context import Hand
from tidegate.errors import NeverAwaited, SettingsError
from tidegate.policy import Policy
from tidegate.records import Done

Order = Literal["partition", "key", "none"]

Value = Any
"""What flows between users' functions: theirs to choose."""
Chain = Callable[[Value], None]


@dataclass(frozen=True)
class Step:
    """One step before the sinks."""

    kind: Literal["map", "filter", "flat_map"]
    function: Callable[[Value], Value]


@dataclass(frozen=True)
class Sink:
    """One sink, and the condition under which it gets a value."""

    write: Callable[..., object]
    when: Callable[[Value], object] | None = None

    @functools.cached_property
    def is_async(self) -> bool:
        """Whether its answer has to be waited for. Asked for every record: looking is slow."""
        return is_async(self.write)

    @functools.cached_property
    def collects(self) -> bool:
        """Whether it only notes what is to be written: a store takes that later, in bulk."""
        return bool(getattr(self.write, "collects", False))


@dataclass(frozen=True)
class Batch:
    """Values are handed to the sinks as lists."""

    size: int
    within: float
    with_records: bool = False


@dataclass(frozen=True)
class Plan:
    """The work for one record: what a pipeline sends to the workers."""

    steps: tuple[Step, ...]
    sinks: tuple[Sink, ...]
    policy: Policy = field(default_factory=Policy)
    order: Order = "partition"
    width: int = 1
    """How many records of a lane may be in work at a time; where there are lists, how many lists."""
    batch: Batch | None = None

    @property
    def is_async(self) -> bool:
        """Whether any function of it is an `async def`: then all of it runs on an event loop."""
        whens = [sink.when for sink in self.sinks if sink.when is not None]
        functions = [*(step.function for step in self.steps), *(sink.write for sink in self.sinks), *whens]
        return any(map(is_async, functions))

    @functools.cached_property
    def collecting(self) -> tuple[int, ...]:
        """The numbers of the sinks whose outputs a store takes."""
        return tuple(number for number, sink in enumerate(self.sinks) if sink.collects)

    @functools.cached_property
    def has_children(self) -> bool:
        """Whether one record may become several values."""
        return any(step.kind == "flat_map" for step in self.steps)

    @property
    def is_parallel(self) -> bool:
        """Whether records run beside the work thread."""
        return self.width > 1 or self.is_async or self.batch is not None

    @functools.cached_property
    def fingerprint(self) -> str:
        """Tells these sinks from others, so that progress noted for others is never believed.

        A function is known by its name, so that mending it does not repeat the other sinks. What has
        no name of its own (a lambda, an object) is known by its content, as it is before it is used.
        """
        kinds = [step.kind for step in self.steps if step.kind == "flat_map"]
        names = [f"{_identity(sink.write)}/{sink.when is not None}" for sink in self.sinks]
        return hashlib.blake2b(repr((kinds, names)).encode(), digest_size=6).hexdigest()


def name_of(function: Callable[..., object]) -> str:
    """Return what a person would call this function."""
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    return str(name)


def is_async(function: Callable[..., object]) -> bool:
    """Whether calling this gives something to wait for: an `async def`, or an object whose call is one."""
    inner = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    call = type(inner).__call__
    return any(map(inspect.iscoroutinefunction, (inner, call))) or any(map(inspect.isasyncgenfunction, (inner, call)))


def refuse_coroutine(thing: object) -> None:
    """A coroutine that nobody waits for would be lost in silence, and with it the record."""
    if isinstance(thing, Coroutine):
        thing.close()
        name = getattr(thing, "__qualname__", "")
        raise NeverAwaited(
            f"a plain function returned the coroutine {name}, which would never be awaited",
            "pass the async function itself, or an async def that awaits it",
        )


_GENERATORS = (Generator, AsyncGenerator)


def refuse_unrun(answer: object) -> None:
    """A sink's answer that is its own work, which nobody would do: a coroutine, or a generator."""
    refuse_coroutine(answer)
    if isinstance(answer, _GENERATORS):
        raise NeverAwaited(
            f"a sink returned the generator {getattr(answer, '__qualname__', '')}, whose work nobody would do",
            "let the sink run it, for example: list(...)",
        )


_SEVERAL = (list, tuple, Iterable)


def refuse_single(function: Callable[..., object], answer: object) -> None:
    """Say whose answer is one value where several are wanted: Python would only name its type."""
    if not isinstance(answer, _SEVERAL) and not hasattr(answer, "__getitem__"):
        raise TypeError(f"flat_map({name_of(function)}) returned {type(answer).__name__}: return a list")


def refuse_async(where: str, option: str, function: object) -> None:
    """Refuse an option of a sink that is called where nobody can wait for it; `where` holds its place, "http({})"."""
    if callable(function) and is_async(function):
        named = where.format(f"{option}={name_of(function)}")
        raise SettingsError(
            f"{named} is an async def, and is called without waiting",
            "make it a plain function; await what it needs in a map before",
        )


def suffix_of(plan: Plan, child: int, sink: int) -> str:
    """Return the part of the stable id that tells children and sinks apart."""
    return (f"/{child}" if plan.has_children else "") + (f"/{sink}" if len(plan.sinks) > 1 else "")


def _identity(function: Callable[..., object]) -> str:
    own = getattr(function, "identity", None)
    if isinstance(own, str):
        return own
    if isinstance(function, functools.partial):
        bound = [*map(_content, function.args), *(f"{name}={_content(one)}" for name, one in function.keywords.items())]
        return f"partial {_identity(function.func)} {bound!r}"
    if isinstance(function, MethodType):
        return f"{_identity(function.__func__)} of {_object_identity(function.__self__)}"
    code = getattr(function, "__code__", None)
    if code is None:
        return _object_identity(function)
    name = _full_name(function)
    made_with = _made_with(function)
    if "<lambda>" in name:
        return f"{name} {_constant(code)} {made_with!r}"
    return f"{name} {made_with!r}" if made_with else name


def _object_identity(thing: object) -> str:
    """Return what tells an object, or a class, from others of its kind."""
    if hasattr(thing, "__qualname__"):  # a class, or a function that is not written in Python
        return _full_name(thing)
    held = {key: _content(one) for key, one in getattr(thing, "__dict__", {}).items()}
    return f"{_full_name(type(thing))} {held!r}"


def _full_name(thing: Any) -> str:
    return f"{getattr(thing, '__module__', '')}.{thing.__qualname__}"


def _made_with(function: Callable[..., object]) -> list[str]:
    """Return what tells functions apart that one line makes: their defaults, and the names that they close over.

    Of the latter, text only: anything else may change while the function is used.
    """
    defaults = [*(getattr(function, "__defaults__", None) or ())]
    defaults += (getattr(function, "__kwdefaults__", None) or {}).values()
    kept: list[object] = []
    for cell in getattr(function, "__closure__", None) or ():
        with contextlib.suppress(ValueError):  # not filled yet
            kept.append(cell.cell_contents)
    return [*map(_content, defaults), *(repr(one) for one in kept if isinstance(one, str | bytes))]


def _constant(thing: object) -> str:
    """Return what a constant of a function's code is, in every process alike: sets and code print differently."""
    if isinstance(thing, CodeType):
        return f"{thing.co_code!r} {_constant(thing.co_consts)} {thing.co_names!r}"
    if isinstance(thing, tuple | frozenset):
        held = map(_constant, thing)
        return f"({', '.join(held if isinstance(thing, tuple) else sorted(held))})"
    return repr(thing)


_SAME_EVERYWHERE = (str, bytes, int, float, bool, type(None), PurePath)


def _content(thing: object) -> str:
    """Return what a value holds; of what may have another text in every process, or in time, its type alone."""
    if isinstance(thing, Enum):
        return f"{_full_name(type(thing))}.{thing.name}"
    if type(thing) is tuple:
        return f"({', '.join(map(_content, thing))})"
    if isinstance(thing, _SAME_EVERYWHERE):
        return repr(thing)
    if isinstance(thing, FunctionType | functools.partial):
        return _identity(thing)
    return _full_name(thing if hasattr(thing, "__qualname__") else type(thing))


class Runner:
    """Runs a plan, one record at a time. `done` tells after a failure what already has its effect."""

    def __init__(self, plan: Plan, hand: Hand, taken: list[int] | None = None) -> None:
        self._plan = plan
        self._hand = hand
        self._child = 0
        self._before: Done = frozenset()
        self._done: set[tuple[int, int]] = set()
        self.tracks_progress = len(plan.sinks) > 1 or plan.has_children
        """Whether a record can be half done at all; where it cannot, nothing is noted per record."""
        self.has_others = self.tracks_progress and len(plan.collecting) < len(plan.sinks)
        """Whether sinks that have their effect at once stand beside what a store takes."""
        self.at_sink = -1
        """The number of the sink that has the record in hand; -1: a step before."""
        self.taken = [0] * len(plan.sinks) if taken is None else taken
        """How many values each sink has taken; counted where the policy holds, and in every noting run."""
        self.taken_by_me = 0
        """The same of this runner alone, in noting runs: several may share the other count."""
        self._collected: list[tuple[int, Value]] = []
        self._collecting_chain = self._compile(self._into_list)
        self._noting_chain = self._compile(self._into_sinks)
        self._plain_chain = self.run_noting if self.tracks_progress else self._compile(self._into_one_sink())
        self.run: Chain = self.run_noting if self.tracks_progress else self._compile(self._into_one_looking)
        """The whole chain for one value; raises what a user's function raised."""

    @property
    def done(self) -> Done:
        """What of the record in hand has its effect by now."""
        return self._before | self._done

    def progress(self) -> Callable[[], Done]:
        """Return what tells, for the record that was resumed, and never for the next, what has its effect by now."""
        before, noted = self._before, self._done
        return lambda: before | noted

    def resume(self, done: Done) -> None:
        """Skip these sinks of these children in the next record: an earlier attempt did them.

        What the record before has come to is forgotten: a run that notes nothing would leave it standing for its own.
        """
        self._before = done
        self._done = set()

    def run_noting(self, value: Value) -> None:
        """Run the whole chain for one value, noting where it is and which sinks took it."""
        self._child = 0
        self.at_sink = -1
        if self._done:
            self._done = set()
        self._noting_chain(value)
        self._before = frozenset()
        self._hand.suffix = ""

    def collect(self, value: Value) -> list[tuple[int, Value]]:
        """Run the steps alone; return what would go to the sinks, each with its child's number."""
        self._child, self._collected = 0, []
        self._collecting_chain(value)
        self._hand.suffix = ""
        return self._collected

    def _into_list(self, value: Value) -> None:
        self._collected.append((self._child, value))
        self._child += 1

    def _compile(self, chain: Chain) -> Chain:
        for step in reversed(self._plan.steps):
            chain = self._before_chain(step, chain)
        return chain

    def _into_one_looking(self, value: Value) -> None:
        """The first value that reaches the sink shows what a plain run does not look for: work that nobody would do."""
        sink = self._plan.sinks[0]
        if sink.when is not None and not sink.when(value):
            return
        refuse_coroutine(value)
        answer = sink.write(value)
        if answer is not None:
            refuse_unrun(answer)
        if not sink.collects:
            self.taken[0] += 1
        self.run = self._plain_chain

    def _into_one_sink(self) -> Chain:
        sink = self._plan.sinks[0]
        write, when, taken = sink.write, sink.when, self.taken

        def write_counting(value: Value) -> None:
            write(value)
            taken[0] += 1

        # Whether a sink is there must be known only where it may be waited for; one that only notes proves nothing.
        chosen = write_counting if self._plan.policy.holds and not sink.collects else write
        if when is None:
            return chosen  # type: ignore[return-value]  # a sink's answer is not used

        def write_when(value: Value) -> None:
            if when(value):
                chosen(value)

        return write_when

    def _into_sinks(self, value: Value) -> None:
        """Sinks are called in the order written; one is called only when those before it have the value."""
        child = self._child
        self._child += 1
        for number, sink in enumerate(self._plan.sinks):
            if (child, number) in self._before:
                continue
            self.at_sink = number
            self._hand.suffix = suffix_of(self._plan, child, number)
            if sink.when is None or sink.when(value):
                refuse_coroutine(value)
                answer = sink.write(value)
                if answer is not None:
                    refuse_unrun(answer)
                if sink.collects:
                    continue  # it has its effect when the store has it, and all of the record's at once
                self.taken[number] += 1
                self.taken_by_me += 1
            self._done.add((child, number))
        self.at_sink = -1

    def _before_chain(self, step: Step, rest: Chain) -> Chain:
        function = step.function
        if step.kind == "map":

            def run_map(value: Value) -> None:
                rest(function(value))

            return run_map
        if step.kind == "filter":

            def run_filter(value: Value) -> None:
                if function(value):
                    rest(value)
                else:
                    self._child += 1  # a dropped child keeps its number, so its brothers keep theirs

            return run_filter

        def run_flat_map(value: Value) -> None:
            children: Iterable[Value] = function(value)
            refuse_single(function, children)
            for child in children:
                self._hand.suffix = f"/{self._child}"  # the steps behind, too, may ask whose work this is
                rest(child)

        return run_flat_map
