"""Pure: the headers of a message, as far as they can be read.

Kafka takes any bytes as a header's name. The client reads names as UTF-8: where one is not, it raises once, and from
then on hands out a pair with a hole in it, which ends the whole process when somebody touches it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from gc import get_referents
from operator import methodcaller
from typing import Any, Protocol

from tidegate.errors import Undecodable

Pairs = Sequence[tuple[str, bytes | None]]


class HasHeaders(Protocol):
    """A message of the client's."""

    def headers(self) -> Any: ...  # noqa: D102  # the client's own name


def readable_headers(message: HasHeaders) -> Pairs:
    """Return the headers whose names can be read."""
    found = _asked(message)
    if not found:
        return ()
    if isinstance(found, Mapping):
        return tuple(found.items())
    return found if all(map(_is_whole, found)) else [pair for pair in found if _is_whole(pair)]


def all_headers(message: HasHeaders) -> Pairs:
    """Return the headers; raise where one of them cannot be read."""
    found = readable_headers(message)
    if len(found) < len(_asked(message) or ()):
        raise Undecodable("the name of a header is no UTF-8 text")
    return found


# Not `message.headers()`: once Python has made such a call quicker, it no longer looks whether the client has left an
# error behind, which then comes up wherever somebody looks next. Called from C it always looks.
_headers = methodcaller("headers")


def _asked(message: HasHeaders) -> Any:
    try:
        return _headers(message)
    except SystemError:
        return _headers(message)  # the second time it gives what it has


def _is_whole(pair: tuple[str, bytes | None]) -> bool:
    """Whether nothing is missing in a pair; looking at its parts themselves would be too late."""
    return len(get_referents(pair)) == len(pair)
