"""What REST answers with, and in which one shape it says what went wrong."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson
from starlette.responses import Response

from tidegate.errors import (
    BrokerRefused,
    BrokerUnreachable,
    DatabaseRefused,
    DatabaseUnreachable,
    DeliveryFailed,
    GroupHasMembers,
    GroupMissing,
    HistoryBroken,
    RewindRefused,
    SettingsError,
    TidegateError,
    TopicMissing,
)
from tidegate.ops.plain import plain

if TYPE_CHECKING:
    from collections.abc import Mapping

# The first that fits decides.
STATUS: tuple[tuple[type[TidegateError], int], ...] = (
    (GroupMissing, 404),
    (TopicMissing, 404),
    (GroupHasMembers, 409),
    (SettingsError, 422),
    (BrokerUnreachable, 503),
    (DatabaseUnreachable, 503),
    (HistoryBroken, 503),
    (RewindRefused, 409),
    (BrokerRefused, 502),
    (DatabaseRefused, 502),
    (DeliveryFailed, 502),
)


@dataclass(frozen=True, slots=True)
class Problem:
    """What went wrong, for programs and for people."""

    code: str
    """A word that does not change."""
    message: str
    cure: str


@dataclass(frozen=True, slots=True)
class ErrorAnswer:
    """The one shape of every error."""

    error: Problem


class Refused(TidegateError):
    """A request that is not answered as asked: with its status and its word."""

    def __init__(self, status: int, code: str, happened: str, cure: str) -> None:
        super().__init__(happened, cure)
        self.status = status
        self.code = code


def answer(thing: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a frozen object as JSON, with the field names of the command line's `--json`."""
    return Response(as_json(thing), status, headers=headers, media_type="application/json")


def as_json(thing: object) -> bytes:
    """Return a frozen object as JSON."""
    shown = plain(thing)
    try:
        return orjson.dumps(shown)
    except TypeError:  # half of a pair of UTF-16 is in some text: escaped it can be sent
        return json.dumps(shown).encode()


def refusal(error: TidegateError) -> Response:
    """Return an error of ours as an answer."""
    if isinstance(error, Refused):
        status, code = error.status, error.code
    else:
        status = next((status for kind, status in STATUS if isinstance(error, kind)), 500)
        code = word_of(type(error))
    headers = {"retry-after": "5"} if status in (429, 503) else None
    return answer(ErrorAnswer(Problem(code, error.happened, error.cure)), status, headers)


def word_of(kind: type[Any]) -> str:
    """Return the word of an error: its name in small letters."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()
