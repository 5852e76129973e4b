"""Durations and rates as people write them: `"200ms"`, `"10m"`, `"100/s"`."""

from __future__ import annotations

import re

from tidegate.errors import SettingsError

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)\s*")


def seconds(duration: str | float) -> float:
    """Turn a duration such as `"200ms"`, `"10m"` or `1.5` (seconds) into seconds."""
    if isinstance(duration, bool) or not isinstance(duration, str | int | float):
        raise SettingsError(f"{duration!r} is not a duration", 'write it like "200ms", "5s", "10m", or as seconds')
    if isinstance(duration, str):
        match = _DURATION.fullmatch(duration)
        if match is None:
            raise SettingsError(f"{duration!r} is not a duration", 'write it like "200ms", "5s", "10m", or as seconds')
        return float(match.group(1)) * _UNITS[match.group(2)]
    if not 0 <= duration < float("inf"):
        raise SettingsError(f"{duration!r} is not a duration", "it must be zero or more seconds")
    return float(duration)


_RATE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*/\s*(s|m|h|d)\s*")


def rate_per_second(rate: str | float) -> float:
    """Turn a rate such as `"100/s"`, `"6000/m"` or `0.5` (per second) into a number per second."""
    found = 0.0
    if isinstance(rate, str):
        if (match := _RATE.fullmatch(rate)) is not None:
            found = float(match.group(1)) / _UNITS[match.group(2)]
    elif not isinstance(rate, bool) and isinstance(rate, int | float):
        found = float(rate)
    if not 0 < found < float("inf"):
        raise SettingsError(f"{rate!r} is not a rate", 'write it like "100/s", "6000/m" or "50/h", and above zero')
    return found
