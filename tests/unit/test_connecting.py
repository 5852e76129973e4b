"""A name with several addresses is reached by whichever of them answers."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
import uvloop

from tidegate.sinks import connecting
from tidegate.sinks.connecting import connected, in_turn

Loop = Callable[[], asyncio.AbstractEventLoop]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def loop(request: pytest.FixtureRequest) -> Loop:
    made: Loop = request.param
    return made


def run(loop: Loop, work: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(work)


class Names:
    """Sockets on the loopback: one that listens, ports where nobody is, and one that never answers."""

    def __init__(self) -> None:
        self.open = socket.create_server(("127.0.0.1", 0))
        gone = socket.create_server(("127.0.0.1", 0))
        self.refusing = gone.getsockname()
        gone.close()
        # A queue of one, which is full: whoever comes next hears nothing.
        self.full = socket.socket()
        self.full.bind(("127.0.0.1", 0))
        self.full.listen(0)
        self.waiting = [socket.socket() for _ in range(3)]
        for one in self.waiting:
            one.setblocking(False)
            one.connect_ex(self.full.getsockname())

    def close(self) -> None:
        for one in (self.open, self.full, *self.waiting):
            one.close()


@pytest.fixture
def names() -> Iterator[Names]:
    made = Names()
    yield made
    made.close()


def known_as(monkeypatch: pytest.MonkeyPatch, *addresses: tuple[str, int]) -> None:
    infos = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", address) for address in addresses]
    monkeypatch.setattr(connecting, "in_turn", lambda _found: infos)


def test_one_that_is_silent_or_refuses_does_not_keep_the_others_from_answering(
    loop: Loop, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = names.open.getsockname()

    async def work() -> None:
        for addresses in ([there], [names.refusing, there], [names.full.getsockname(), there], [there, names.refusing]):
            known_as(monkeypatch, *addresses)
            reached = await asyncio.wait_for(connected("127.0.0.1", 1), 10)
            assert reached.getpeername() == there
            assert reached.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            reached.close()

    run(loop, work())


def test_where_all_refuse_the_first_one_says_why(loop: Loop, names: Names, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        for addresses in ([names.refusing], [names.refusing, names.refusing]):
            known_as(monkeypatch, *addresses)
            with pytest.raises(ConnectionRefusedError):
                await asyncio.wait_for(connected("127.0.0.1", 1), 10)

    run(loop, work())


def test_whoever_gives_up_waiting_leaves_no_socket_behind(
    loop: Loop, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    known_as(monkeypatch, names.full.getsockname(), names.full.getsockname())

    async def work() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(connected("127.0.0.1", 1), 0.6)
        await asyncio.sleep(0)

    run(loop, work())  # a socket that nobody closes is a warning, which is an error here


def test_the_kinds_of_the_internet_take_turns() -> None:
    infos = [(family, socket.SOCK_STREAM, 0, "", name) for family, name in [
        (socket.AF_INET6, "a"), (socket.AF_INET6, "b"), (socket.AF_INET, "c"), (socket.AF_INET6, "d"),
    ]]  # fmt: skip
    assert [info[4] for info in in_turn(infos)] == ["a", "c", "b", "d"]
