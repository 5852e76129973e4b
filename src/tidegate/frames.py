"""What a DataFrame pipeline is made of: the function, its decoder, its writers, and the round that they are told of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidegate.errors import SettingsError
from tidegate.policy import Policy, Terminal, stop
from tidegate.steps import Batch, Step, name_of

DataFrame = Any
"""Spark's own, classic or Connect's: this module must not load Spark."""


@dataclass(frozen=True, slots=True)
class RoundRange:
    """One partition's share of a round: the offsets from `start` up to, without, `end`."""

    topic: str
    partition: int
    start: int
    end: int
    replay: int = 0
    """The number of the rewind that moved the partition last; 0: none did."""


@dataclass(frozen=True, slots=True)
class FrameRound:
    """One round of a DataFrame pipeline, as its writers see it. After a crash the same comes again, to the letter."""

    id: str
    """Unique for the group, the same whenever the same round is repeated. A rewind makes rounds with other ids."""
    number: int
    """Grows from round to round of the group: for writers that remember the last one."""
    group: str
    ranges: tuple[RoundRange, ...]
    records: int
    """How many records were read; offsets that hold none (markers, compacted) are not counted."""
    is_repeat: bool
    """Whether an earlier attempt, here or in a process that died, may have written it, or a part of it."""

    @property
    def replay(self) -> int:
        """The number of the newest rewind among its partitions; 0: none."""
        return max((one.replay for one in self.ranges), default=0)


@dataclass(frozen=True)
class FrameWriter:
    """Writes the DataFrame of a round; see `write`."""

    function: Callable[[DataFrame, FrameRound], object]
    name: str
    guarantee: str = "reaches its writer at least once"
    """What is promised of every record, in words for the start-up sentence."""
    not_over_connect: str = ""
    """Why it does not work over Spark Connect; nothing: it does."""

    @property
    def identity(self) -> str:
        """Tells this writer from others."""
        return self.name

    def refuse_connect(self) -> None:
        """Say why it cannot write over Spark Connect, if so."""
        if self.not_over_connect:
            raise SettingsError(
                f"{self.name} needs a classic Spark session: over Connect it {self.not_over_connect}",
                "write with tg.delta or with tg.write(lambda df, round: ...) there, or choose another master",
            )

    def __call__(self, frame: DataFrame, round_: FrameRound) -> None:
        """Write; returning means that everything is written."""
        if is_over_connect(frame):
            self.refuse_connect()
        self.function(frame, round_)


def is_over_connect(thing: object) -> bool:
    """Whether a session, or a DataFrame, is one of a Spark Connect server."""
    return type(thing).__module__.startswith("pyspark.sql.connect.")


def write(function: Callable[[DataFrame, FrameRound], object]) -> FrameWriter:
    """Write a DataFrame round with any of Spark's writers: `sink(tg.write(lambda df, round: ...))`.

    It is called once per round with the DataFrame that `dataframe(fn)` returned, and settles the round by returning.
    A round that is repeated, after a crash or a failure, has the same `round.id` and the same records: a writer that
    keeps ids, or overwrites what an id has written, has every record once.
    """
    if isinstance(function, FrameWriter) or not callable(function):
        raise SettingsError(f"write({function!r}) is no function", "pass one: tg.write(lambda df, round: ...)")
    return FrameWriter(function, f"write({name_of(function)})")


@dataclass(frozen=True)
class FrameStep:
    """The work of a DataFrame pipeline before its writers."""

    function: Callable[[DataFrame], DataFrame]
    decoder: Any | None = None
    """Turns values into columns; it has a `frame_schema`."""
    undecodable: Terminal = field(default_factory=stop)
    """What becomes of records that it cannot decode: `stop` or `dead_letter`."""


def decoder_before(steps: tuple[Step, ...]) -> Any | None:
    """Return the one decoder that may stand before `dataframe`."""
    for step in steps:
        if step.kind != "map" or getattr(step.function, "frame_schema", None) is None:
            raise SettingsError(
                f"{step.kind}({name_of(step.function)}) stands before dataframe",
                "only a decoder with a schema may: map(tg.json(schema=...)), map(tg.avro(schema)) or with reader=",
            )
    if len(steps) > 1:
        raise SettingsError("two decoders stand before dataframe", "keep one")
    return steps[0].function if steps else None


def refuse_for_frames(policy: Policy, lists: Batch | None, chosen: Mapping[str, object], *, is_parallel: bool) -> None:
    """Refuse what is meant for single records."""
    if is_parallel or "timeout" in chosen:
        raise SettingsError(
            "parallel is for single records, and this pipeline makes DataFrames", "leave it out: Spark's tasks do it"
        )
    if lists is not None:
        raise SettingsError("batch is for single records, and this pipeline makes DataFrames", "leave it out")
    for name in ("rate", "lanes", "commit_every", "commit_records"):
        if name in chosen:
            raise SettingsError(
                f"{name} is for single records, and this pipeline makes DataFrames",
                "bound its rounds with dataframe(fn, every=..., records=...)",
            )
    if policy.delays or policy.gives_up_order:
        raise SettingsError(
            "on_error of a DataFrame pipeline is about whole rounds: hold, retry and stop",
            "send single rows to the dead letters with tg.bad(df, condition, reason)",
        )
