"""Objects as sinks: `write(value)`, and if they have them `open()` and `close()`, plain or async.

One object serves one Python worker: opened there before its first value, closed when the worker ends in good
order (a killed worker cannot close anything).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from tidegate.async_steps import answer
from tidegate.context import close_at_end
from tidegate.errors import SettingsError
from tidegate.steps import is_async

CLOSE_SECONDS = 5.0


@runtime_checkable
class SinkObject(Protocol):
    """What an object needs to be a sink."""

    def write(self, value: Any) -> Any:
        """Take one value; returning settles, raising fails the record."""


def as_sink(sink: object) -> Callable[[Any], Any]:
    """Return a callable that opens the object once per worker and writes to it; a callable is one already."""
    if isinstance(sink, type) and callable(getattr(sink, "write", None)):
        raise SettingsError(
            f"sink({sink.__name__}) is a class, not an object of it", f"make one: sink({sink.__name__}(...))"
        )
    if callable(sink):
        return sink
    if not isinstance(sink, SinkObject) or not callable(sink.write):
        named = repr(sink) if sink is None or isinstance(sink, str | bytes | int | float) else type(sink).__name__
        raise SettingsError(f"sink({named}) is not callable", "pass a function, or an object with write(value)")
    return AsyncSink(sink) if is_async(sink.write) else PlainSink(sink)


class _Held:
    """An object that is opened where it is used, not where it was made."""

    def __init__(self, sink: SinkObject) -> None:
        self._sink = sink
        self._make_closed()

    def _make_closed(self) -> None:
        self._is_open = False
        self._opening: Any = None

    @property
    def identity(self) -> str:
        """Tells this sink from others, in every run alike."""
        own = getattr(self._sink, "identity", None)
        return str(own) if own else f"{type(self._sink).__module__}.{type(self._sink).__qualname__}"

    def __getstate__(self) -> dict[str, object]:
        return {"_sink": self._sink}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._sink = state["_sink"]
        self._make_closed()


class PlainSink(_Held):
    """An object whose `write` is a plain function."""

    def _make_closed(self) -> None:
        super()._make_closed()
        self._opening = threading.Lock()

    def __call__(self, value: Any) -> Any:
        """Write one value, or a list of them."""
        if not self._is_open:
            self._open()
        return self._sink.write(value)

    def _open(self) -> None:
        with self._opening:
            if self._is_open:
                return
            if callable(opening := getattr(self._sink, "open", None)):
                opening()
            if callable(close := getattr(self._sink, "close", None)):
                close_at_end(close)
            self._is_open = True


class AsyncSink(_Held):
    """An object whose `write` is an `async def`."""

    async def __call__(self, value: Any) -> Any:
        """Write one value, or a list of them."""
        if not self._is_open:
            await self._open()
        return await self._sink.write(value)

    async def _open(self) -> None:
        # Made here, on the loop that all its calls come from.
        if self._opening is None:
            self._opening = asyncio.Lock()
        async with self._opening:
            if self._is_open:
                return
            if callable(opening := getattr(self._sink, "open", None)):
                await answer(opening())
            if callable(close := getattr(self._sink, "close", None)):
                loop = asyncio.get_running_loop()
                close_at_end(lambda: _close_on(loop, close))
            self._is_open = True


def _close_on(loop: asyncio.AbstractEventLoop, close: Callable[[], Any]) -> None:
    async def closing() -> None:
        await answer(close())

    asyncio.run_coroutine_threadsafe(closing(), loop).result(CLOSE_SECONDS)
