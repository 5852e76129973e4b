"""Pure: what to do after a failure. A row of steps per kind of error, read from left to right.

No client, no clock, no chance: callers pass what happened and a number for the jitter.
Proved by a table in `tests/unit/test_policy.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import pairwise
from typing import Literal, TypeVar

from tidegate.durations import seconds
from tidegate.errors import Reject, SettingsError, Unavailable, Undecodable, WorkerDied
from tidegate.names import duration_name
from tidegate.records import Tries

LONGEST_ASKED = 86_400.0
"""Nobody is left alone for longer than a day, whatever a `retry_after` says: endless would be for ever, in silence."""
TIMES_ALONE = 3
"""So often a record may stay `Unavailable` while others get through its sink; then it goes on along the row."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Wait for a sink that is away; see `hold`."""

    wait: float
    limit: float


@dataclass(frozen=True, slots=True)
class Retry:
    """Try again in place; see `retry`."""

    times: int
    wait: float
    factor: float
    limit: float


@dataclass(frozen=True, slots=True)
class RetryLater:
    """Try again by way of retry topics; see `retry_later`."""

    delays: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Terminal:
    """The end of a row; see `stop`, `dead_letter`, `skip`."""

    kind: Literal["stop", "dead_letter", "skip"]

    @property
    def fate(self) -> str:
        """What this means for a record, in a word."""
        return self.kind


Step = Hold | Retry | RetryLater | Terminal


def hold(wait: str | float = "500ms", limit: str | float = "4s") -> Hold:
    """On `tg.Unavailable`: wait for the sink and try with one record now and then, for as long as it takes.

    No attempts are spent and nothing goes to the dead letters. The waits grow from `wait` to `limit`;
    a `retry_after` of the error may ask for longer.
    """
    first, longest = seconds(wait), seconds(limit)
    if not 0 < first <= longest:
        raise SettingsError(f"hold(wait={wait!r}, limit={limit!r})", "wait must be more than 0 and at most limit")
    return Hold(first, longest)


def retry(times: int, wait: str | float = "200ms", factor: float = 2, limit: str | float = "30s") -> Retry:
    """Try the record again in place, up to `times` more; the waits grow by `factor` up to `limit`, with jitter."""
    if type(times) is not int or times < 1:
        raise SettingsError(f"retry({times!r})", "say how often to try again: 1 or more")
    first, longest = seconds(wait), seconds(limit)
    if factor < 1 or first > longest:
        raise SettingsError(
            f"retry(wait={wait!r}, factor={factor!r}, limit={limit!r})", "factor is 1 or more, wait at most limit"
        )
    return Retry(times, first, factor, longest)


def retry_later(*delays: str | float) -> RetryLater:
    """Write the record to a retry topic and try again after the first delay, then the next, and so on.

    Each delay has a topic of its own (`GROUP.retry.1m`), which the same pipeline reads. The record loses its
    place in the order.
    """
    if not delays:
        raise SettingsError("retry_later() names no delay", 'name at least one: retry_later("1m", "10m")')
    chosen = tuple(seconds(delay) for delay in delays)
    if chosen[0] <= 0 or any(one >= other for one, other in pairwise(chosen)):
        raise SettingsError(
            f"retry_later({', '.join(map(repr, delays))})",
            "each delay must be longer than the one before: a record walks from one to the next",
        )
    for delay in chosen:
        if round(delay * 1000) != delay * 1000:
            raise SettingsError(f"retry_later: {delay!r} s is no whole number of milliseconds", "round it")
    return RetryLater(chosen)


def stop() -> Terminal:
    """End the run at the failed record: the group stays there. The default."""
    return Terminal("stop")


def dead_letter() -> Terminal:
    """Write the failed record to `GROUP.dead` with the reason, and go on."""
    return Terminal("dead_letter")


def skip() -> Terminal:
    """Count the failed record, and go on without it."""
    return Terminal("skip")


@dataclass(frozen=True)
class Row:
    """What to do with some kinds of errors; no kinds: with all."""

    kinds: tuple[type[BaseException], ...] = ()
    hold: Hold | None = None
    retry: Retry | None = None
    later: RetryLater | None = None
    terminal: Terminal = field(default_factory=stop)

    def takes(self, kind: type[BaseException]) -> bool:
        """Whether an error of this kind is for this row."""
        return not self.kinds or issubclass(kind, self.kinds)

    def sentence(self) -> str:
        """Say what this row does."""
        parts = []
        if self.hold is not None:
            parts.append("waits while a sink is away")
        if self.retry is not None:
            parts.append(f"is tried again in place {'once' if self.retry.times == 1 else f'{self.retry.times} times'}")
        if self.later is not None:
            parts.append(f"is tried again after {', '.join(map(duration_name, self.later.delays))}")
        parts.append(_ENDS[self.terminal.kind])
        return ", then ".join(parts)


_ENDS = {"stop": "ends the run", "dead_letter": "goes to the dead letters", "skip": "is skipped and counted"}


@dataclass(frozen=True)
class Policy:
    """All rows of a pipeline: the first that takes an error decides."""

    rows: tuple[Row, ...] = ()

    def row_for(self, kind: type[BaseException]) -> Row:
        """Return the row that decides about this kind of error."""
        return next((row for row in self.rows if row.takes(kind)), _STOP)

    @property
    def _all(self) -> tuple[Row, ...]:
        return self.rows or (_STOP,)

    @property
    def delays(self) -> tuple[float, ...]:
        """Every delay that any row names."""
        return tuple(sorted({delay for row in self._all if row.later is not None for delay in row.later.delays}))

    @property
    def has_dead_letters(self) -> bool:
        """Whether a row ends in the dead letters."""
        return any(row.terminal.kind == "dead_letter" for row in self._all)

    @property
    def holds(self) -> bool:
        """Whether a row waits for sinks that are away."""
        return any(row.hold is not None for row in self._all)

    @property
    def gives_up_order(self) -> bool:
        """Whether a failed record may be passed by others."""
        return any(row.later is not None or row.terminal.kind != "stop" for row in self._all)

    def sentence(self) -> str:
        """Say what happens to a record that fails."""
        general = [row for row in self._all if not row.kinds] or [_STOP]
        chosen = [row for row in self.rows if row.kinds]
        parts = [f"a record that fails {general[0].sentence()}"]
        parts += [f"on {' or '.join(kind.__name__ for kind in row.kinds)} it {row.sentence()}" for row in chosen]
        return "; ".join(parts)

    def with_row(self, given: Iterable[object]) -> Policy:
        """Add a row as written in `on_error`; what makes no sense is refused."""
        row = _row(tuple(given))
        if self.rows and not self.rows[-1].kinds:
            raise SettingsError(
                "on_error stands after an on_error for all errors, which would take everything before it",
                "put the rows for chosen error types first, and keep one for the rest"
                if row.kinds
                else "keep one of the two",
            )
        return Policy((*self.rows, row))


_STOP = Row()


def _row(given: tuple[object, ...]) -> Row:
    count = next((at for at, one in enumerate(given) if not _is_error_type(one)), len(given))
    kinds, steps = given[:count], given[count:]
    for step in steps:
        if not isinstance(step, Step):
            name = getattr(step, "__name__", "stop") if callable(step) else ""
            hint = f"call it: tg.{name}(...)" if name else "use tg.hold, tg.retry, tg.retry_later and an end"
            raise SettingsError(f"on_error: {name or repr(step)} is no step of a row", hint)
    if not steps:
        raise SettingsError("on_error is empty", "say what to do: on_error(tg.retry(3), tg.dead_letter())")
    places = [_PLACES[type(step)] for step in steps]
    if places != sorted(places):
        raise SettingsError(
            "on_error: the steps are in the wrong order", "write hold, then retry, then retry_later, then the end"
        )
    if len(set(places)) != len(places):
        raise SettingsError("on_error: a row has two steps of one kind", "keep one of each")
    row = Row(
        tuple(kind for kind in kinds if isinstance(kind, type)),
        _one(steps, Hold),
        _one(steps, Retry),
        _one(steps, RetryLater),
        _one(steps, Terminal) or stop(),
    )
    if row.hold is not None and row.kinds and not any(issubclass(kind, Unavailable) for kind in row.kinds):
        raise SettingsError(
            "on_error: hold() waits for tg.Unavailable, which is none of the types of this row",
            "raise tg.Unavailable where the sink is away, or leave hold() out of this row",
        )
    return row


_PLACES: dict[type, int] = {Hold: 0, Retry: 1, RetryLater: 2, Terminal: 3}
S = TypeVar("S")


def _one(steps: tuple[object, ...], kind: type[S]) -> S | None:
    return next((step for step in steps if isinstance(step, kind)), None)


def _is_error_type(one: object) -> bool:
    return isinstance(one, type) and issubclass(one, BaseException)


# --- deciding -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Again:
    """Try again in place after a wait."""

    wait: float
    tries: Tries
    is_hold: bool = False

    @property
    def fate(self) -> str:
        """What this means for a record, in a word."""
        return "hold" if self.is_hold else "retry"


@dataclass(frozen=True, slots=True)
class Later:
    """Write a copy to the retry topic of this delay."""

    delay: float

    @property
    def fate(self) -> str:
        """What this means for a record, in two words."""
        return f"retry_later {duration_name(self.delay)}"


Verdict = Again | Later | Terminal


def decide(
    row: Row, error: BaseException, tries: Tries, *, waited: float, others_go_on: bool, jitter: float
) -> Verdict:
    """Return what comes next for a record that has just failed.

    `tries`: what came before this failure. `waited`: the delay of the retry topic that it was read from, 0 for
    any other. `others_go_on`: other records got through since its last failure. `jitter`: from 0 to 1.
    """
    if isinstance(error, Reject):
        return row.terminal
    if isinstance(error, Unavailable) and row.hold is not None:
        alone = tries.alone + others_go_on
        if alone < TIMES_ALONE:
            wait = max(_grown(row.hold.wait, 2, row.hold.limit, tries.unavailable), _asked_for(error))
            return Again(wait, Tries(tries.failed, tries.unavailable + 1, alone), is_hold=True)
    # The same bytes decode no better a second time, and a worker that died twice would die again.
    in_place = row.retry is not None and not isinstance(error, Undecodable | WorkerDied)
    if row.retry is not None and in_place and tries.failed < row.retry.times:
        wait = _grown(row.retry.wait, row.retry.factor, row.retry.limit, tries.failed)
        return Again(wait * (1 - jitter / 2), Tries(tries.failed + 1, tries.unavailable, tries.alone))
    for delay in row.later.delays if row.later is not None else ():
        if delay > waited:
            return Later(delay)
    return row.terminal


def _asked_for(away: Unavailable) -> float:
    """Return what a sink asks for in seconds; 0 where that is no time, as the text of a header may be none."""
    try:
        wait: object = away.retry_after
        asked = wait.total_seconds() if isinstance(wait, timedelta) else float(wait)  # type: ignore[arg-type]  # anything
    except Exception:  # noqa: BLE001  # users set it, to whatever they have, or do not set it in a class of their own
        return 0.0
    return min(asked, LONGEST_ASKED) if asked > 0 else 0.0


def _grown(first: float, factor: float, limit: float, times: int) -> float:
    wait = first
    for _ in range(min(times, 64)):
        wait = min(wait * factor, limit)
    return wait
