"""Outcomes as plain JSON: what crosses from a worker to the driver is data, never code."""

from __future__ import annotations

import orjson
from pydantic import TypeAdapter

from tidegate.records import Outcome

_outcomes = TypeAdapter(Outcome)


def encode_outcome(outcome: Outcome) -> bytes:
    """Write an outcome."""
    return orjson.dumps(outcome, default=list, option=orjson.OPT_NON_STR_KEYS)


def decode_outcome(text: bytes) -> Outcome:
    """Read an outcome, checking every field."""
    return _outcomes.validate_json(text)
