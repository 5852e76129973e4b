"""The HTTP client against servers that say exactly what a test wants, byte by byte."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
import uvloop

from tidegate.sinks.http_client import Answer, HttpClient, Lost, NoConnection, _Room
from tidegate.sinks.http_requests import NoHttp, NotSendable, place_of, written

loops: list[Callable[[], asyncio.AbstractEventLoop]] = [asyncio.new_event_loop]


@pytest.fixture(autouse=True, params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def chosen_loop(request: pytest.FixtureRequest) -> None:
    """Every test here runs on both loops."""
    loops[0] = request.param


def run_on_loop(work: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=loops[0]) as runner:
        runner.run(work)


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Script:
    """A server: for each request of each connection a part of the script, None hangs up."""

    def __init__(self, *connections: list[bytes | None]) -> None:
        self._connections = list(connections)
        self.requests: list[tuple[int, bytes]] = []
        """Number of the connection, and the request."""
        self.made = 0
        self.at_once = self.most_at_once = 0
        self.delay = 0.0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = self.made
        self.made += 1
        say = self._connections[min(number, len(self._connections) - 1)]
        try:
            for words in say:
                if words is None:
                    break
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
                body = await reader.readexactly(length)
                self.requests.append((number, head + body))
                self.at_once += 1
                self.most_at_once = max(self.most_at_once, self.at_once)
                await asyncio.sleep(self.delay)
                self.at_once -= 1
                writer.write(words)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def against(script: Script, use: Callable[[HttpClient, str], Awaitable[None]], *, connections: int = 10) -> None:
    """Run a server and a client for it on one loop."""

    async def run() -> None:
        server = await asyncio.start_server(script.serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        client = HttpClient(connections=connections, tls=None, connect_seconds=5.0)
        try:
            async with asyncio.timeout(20):
                await use(client, f"http://127.0.0.1:{port}/x")
        finally:
            await client.close()
            server.close()

    run_on_loop(run())


def test_a_connection_is_used_again() -> None:
    script = Script([OK] * 3)

    async def use(client: HttpClient, url: str) -> None:
        for number in range(3):
            answer = await client.request("POST", url, b"%d" % number, {"Idempotency-Key": "k"})
            assert (answer.status, answer.content) == (200, b"ok")

    against(script, use)
    assert [number for number, _ in script.requests] == [0, 0, 0]
    assert [request[-1:] for _, request in script.requests] == [b"0", b"1", b"2"]
    assert b"\r\nIdempotency-Key: k\r\n" in script.requests[0][1]
    assert script.requests[0][1].startswith(b"POST /x HTTP/1.1\r\n")


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
PACKED = gzip.compress(b"abcde", mtime=0)


@pytest.mark.parametrize(
    ("words", "status", "content", "kept"),
    [
        (CHUNKED, 200, b"abcde", True),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 5\r\n\r\nabcde", 201, b"abcde", True),
        (b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n", 204, b"", True),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nabcde", 200, b"abcde", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nabcde", 200, b"abcde", False),
        (
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%b" % (len(PACKED), PACKED),
            200,
            b"abcde",
            True,
        ),
        (b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nxyz", 101, b"", False),
        (b"HTTP/1.1 301 Moved\r\nLocation: /y\r\nContent-Length: 0\r\n\r\n", 301, b"", True),
    ],
)
def test_every_shape_of_an_answer_is_read_and_ends_where_it_ends(
    words: bytes, status: int, content: bytes, kept: bool
) -> None:
    script = Script([words, OK])

    async def use(client: HttpClient, url: str) -> None:
        answer = await client.request("POST", url, b"", {})
        assert (answer.status, answer.content) == (status, content)
        assert (await client.request("POST", url, b"", {})).status == (200 if kept else status)

    against(script, use)
    assert [number for number, _ in script.requests] == ([0, 0] if kept else [0, 1])


def test_an_answer_without_a_length_ends_with_its_connection() -> None:
    script = Script([b"HTTP/1.1 200 OK\r\n\r\nall of it", None])

    async def use(client: HttpClient, url: str) -> None:
        assert (await client.request("GET", url, None, {})).content == b"all of it"

    against(script, use)


def test_a_head_has_no_content_whatever_its_length_says() -> None:
    script = Script([b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n", OK])

    async def use(client: HttpClient, url: str) -> None:
        assert (await client.request("HEAD", url, None, {})).content == b""

    against(script, use)


@pytest.mark.parametrize("at", [1, 9, 20, 38, len(OK) - 1])
def test_an_answer_that_breaks_off_is_lost_and_not_asked_for_again(at: int) -> None:
    script = Script([OK[:at], None])

    async def use(client: HttpClient, url: str) -> None:
        with pytest.raises(Lost) as lost:
            await client.request("POST", url, b"", {})
        assert lost.value.has_begun

    against(script, use)
    assert len(script.requests) == 1


def test_a_kept_connection_that_its_server_has_closed_meanwhile_is_replaced() -> None:
    """It answers once per connection and hangs up without a word, so the second request meets a closing one."""
    script = Script([OK, None])

    async def use(client: HttpClient, url: str) -> None:
        for _ in range(50):
            assert (await client.request("POST", url, b"", {})).content == b"ok"

    against(script, use)
    assert len(script.requests) == 50


def test_a_new_connection_that_is_closed_without_an_answer_is_lost() -> None:
    script = Script([None])

    async def use(client: HttpClient, url: str) -> None:
        with pytest.raises(Lost) as lost:
            await client.request("POST", url, b"", {})
        assert not lost.value.has_begun

    against(script, use)


@pytest.mark.parametrize(
    "words",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\nok",
        b"\x16\x03\x01\x02\x00",
    ],
)
def test_what_is_no_http_is_said_and_its_connection_is_not_used_again(words: bytes) -> None:
    script = Script([words, OK], [OK])

    async def use(client: HttpClient, url: str) -> None:
        with pytest.raises(NoHttp):
            await client.request("POST", url, b"", {})
        await client.request("POST", url, b"", {})

    against(script, use)
    assert len(script.requests) == 2


def test_a_second_answer_to_one_request_never_becomes_the_answer_to_the_next() -> None:
    wrong = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwrong"
    script = Script([OK + wrong, wrong], [OK])

    async def use(client: HttpClient, url: str) -> None:
        assert (await client.request("POST", url, b"", {})).content == b"ok"
        assert (await client.request("POST", url, b"", {})).content == b"ok"

    against(script, use)


def test_an_answer_that_comes_after_its_time_is_given_to_nobody() -> None:
    script = Script([OK], [b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnext"])
    script.delay = 0.2

    async def use(client: HttpClient, url: str) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await client.request("POST", url, b"", {})
        assert (await client.request("POST", url, b"", {})).content == b"next"

    against(script, use)
    assert script.made == 2


def test_no_more_requests_are_on_their_way_than_there_may_be_connections() -> None:
    script = Script([OK] * 40)
    script.delay = 0.01

    async def use(client: HttpClient, url: str) -> None:
        answers = await asyncio.gather(*(client.request("POST", url, b"", {}) for _ in range(40)))
        assert {answer.content for answer in answers} == {b"ok"}

    against(script, use, connections=4)
    assert (script.most_at_once, script.made) == (4, 4)


def test_a_request_that_is_given_up_while_it_waits_keeps_nobody_elses_place() -> None:
    script = Script([OK] * 9)
    script.delay = 0.05

    async def use(client: HttpClient, url: str) -> None:
        first, second, third = (asyncio.ensure_future(client.request("POST", url, b"", {})) for _ in range(3))
        await asyncio.sleep(0)
        second.cancel()
        assert (await first).status == 200
        with pytest.raises(asyncio.CancelledError):
            await second
        assert (await third).status == 200
        assert (await client.request("POST", url, b"", {})).status == 200

    against(script, use, connections=1)
    assert (script.most_at_once, len(script.requests)) == (1, 3)


def test_a_place_that_is_given_to_somebody_who_gives_up_in_that_moment_goes_on() -> None:
    async def use() -> None:
        room = _Room(1)
        assert room.take()
        waiting = [asyncio.ensure_future(room.wait()) for _ in range(2)]
        await asyncio.sleep(0)
        room.leave()
        waiting[0].cancel()
        await waiting[1]
        assert waiting[0].cancelled()
        assert not room.take()
        room.leave()
        assert room.take()

    run_on_loop(use())


def test_a_large_body_arrives_whole() -> None:
    body = bytes(range(256)) * 40_000
    script = Script([OK])

    async def use(client: HttpClient, url: str) -> None:
        await client.request("POST", url, body, {})

    async def run() -> None:
        server = await asyncio.start_server(script.serve, "127.0.0.1", 0, limit=1 << 24)
        client = HttpClient(connections=1, tls=None, connect_seconds=5.0)
        await use(client, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
        await client.close()
        server.close()

    run_on_loop(run())
    assert script.requests[0][1].endswith(body)


async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Take a connection and what comes, also a greeting by TLS, without a word."""
    await reader.read()
    writer.close()


def test_nobody_there_is_an_error_of_the_system_and_a_silent_host_has_a_time_limit() -> None:
    async def run() -> None:
        server = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        server.close()
        await server.wait_closed()
        client = HttpClient(connections=1, tls=None, connect_seconds=5.0)
        with pytest.raises(ConnectionRefusedError):
            await client.request("GET", f"http://127.0.0.1:{port}/", None, {})
        silent = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
        client = HttpClient(connections=1, tls=None, connect_seconds=0.1)
        with pytest.raises(NoConnection):
            await client.request("GET", f"https://127.0.0.1:{silent.sockets[0].getsockname()[1]}/", None, {})
        silent.close()
        await asyncio.sleep(0.05)  # the server's side sees the end of its connection

    run_on_loop(run())


@pytest.mark.parametrize(
    ("url", "host", "port", "target", "name"),
    [
        ("http://a", "a", 80, "/", "a"),
        ("https://a:8443/x?y=1#z", "a", 8443, "/x?y=1", "a:8443"),
        ("http://[::1]:90/x", "::1", 90, "/x", "[::1]:90"),
        ("http://a/b c/ü?q=ä b", "a", 80, "/b%20c/%C3%BC?q=%C3%A4%20b", "a"),
        ("http://a/%20/100%/%zz", "a", 80, "/%20/100%25/%25zz", "a"),
        ("http://bücher.example/", "xn--bcher-kva.example", 80, "/", "xn--bcher-kva.example"),
    ],
)
def test_an_address_is_understood_and_quoted_where_it_must_be(
    url: str, host: str, port: int, target: str, name: str
) -> None:
    place = place_of(url)
    assert (place.host, place.port, place.target, place.name) == (host, port, target, name)


@pytest.mark.parametrize("url", ["", "a/b", "ftp://a", "http://", "http://a:port/", "http://[::1/", "http://a:99999/"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(NotSendable, match="is no address"):
        place_of(url)


def test_a_password_in_the_address_becomes_a_header_unless_there_is_one() -> None:
    place = place_of("http://me:p%40ss@a/")
    assert b"\r\nAuthorization: Basic bWU6cEBzcw==\r\n" in written("GET", place, None, {}) + b"\r\n"
    assert b"Basic" not in written("GET", place, None, {"authorization": "Bearer x"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X-A", "a\r\nX-B: b"),
        ("X-A", "a\nb"),
        ("X-A", "a\rb"),
        ("X-A", "a\0b"),
        ("X A", "a"),
        ("X-A:", "a"),
        ("", "a"),
        ("Content-Length", "7"),
        ("transfer-encoding", "chunked"),
    ],
)
def test_a_header_that_would_be_another_request_is_refused(name: str, value: str) -> None:
    with pytest.raises(NotSendable):
        written("POST", place_of("http://a/"), b"", {name: value})


def test_a_header_of_the_users_replaces_ours() -> None:
    sent = written("POST", place_of("http://a/"), b"", {"host": "b", "User-Agent": "c"})
    assert sent.count(b"ost: ") == 1
    assert b"\r\nhost: b\r\n" in sent
    assert b"tidegate" not in sent


def test_headers_are_found_whatever_their_letters() -> None:
    answer = Answer(200, [(b"Content-Type", b"Application/JSON; charset=utf-8"), (b"RETRY-AFTER", b"3")], b"")
    assert answer.content_type == "application/json"
    assert answer.header(b"retry-after") == "3"
    assert answer.header(b"location") is None
