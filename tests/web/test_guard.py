"""Who may do what, from where: each row is one request, and what becomes of it."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from tests.web.client import OPERATOR, READER, Client
from tidegate.errors import SettingsError
from tidegate.ops.cluster import Cluster
from tidegate.ops.sampler import Sampler
from tidegate.web.app import make_app
from tidegate.web.auth import Tokens, cookie_name
from tidegate.web.server import start_in_thread
from tidegate.web.services import Services

if TYPE_CHECKING:
    from tests.web.conftest import Scene, Start
    from tidegate.kafka.connection import Kafka

LOOK = "/api/v1/groups"


@pytest.fixture(scope="module")
def locked(start: Start) -> Client:
    """A server with both tokens."""
    return start(tokens=Tokens(OPERATOR, READER))


def change(group: str) -> str:
    return f"/api/v1/groups/{group}/offsets"


BODY = {"to": "beginning"}
EVERYWHERE = "0.0.0.0"  # noqa: S104  # all addresses of this machine, as is tested here


# --- tokens


@pytest.mark.parametrize(
    ("token", "look", "changes", "because"),
    [
        (None, 401, 401, "nobody is known without a token"),
        ("", 401, 401, "an empty one is none"),
        ("wrong-token-for-tests", 401, 401, "a wrong one is none"),
        (f"{OPERATOR}x", 401, 401, "the right one and more is a wrong one"),
        (OPERATOR[:-1], 401, 401, "a part of it is a wrong one"),
        (READER, 200, 403, "who may look may not change"),
        (OPERATOR, 200, 200, "the operator may"),
    ],
)
def test_tokens(locked: Client, scene: Scene, token: str | None, look: int, changes: int, because: str) -> None:
    client = locked if token is None else locked.as_(token)

    assert client.get(LOOK).status == look, because
    assert client.get("/metrics").status == look, because
    assert client.put(change(scene.group), BODY).status == changes, because
    assert client.post("/api/v1/run/pause").status == (404 if changes == 200 else changes), because


def test_an_answer_without_a_token_says_how_to_send_one(locked: Client) -> None:
    found = locked.get(LOOK)
    assert (found.error, found.headers["www-authenticate"]) == ("token_missing", 'Bearer realm="tidegate"')
    assert locked.as_(READER).put(change("x"), BODY).error == "read_only"


@pytest.mark.parametrize("header", ["Basic b3BlcmF0b3I6", OPERATOR, f"Token {OPERATOR}", "Bearer"])
def test_only_a_bearer_is_heard(locked: Client, header: str) -> None:
    assert locked.with_headers(authorization=header).get(LOOK).status == 401


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/login", "/style.css"])
def test_probes_and_the_login_need_no_token(locked: Client, path: str) -> None:
    assert locked.get(path).status == 200


def test_unknown_addresses_are_hidden_from_strangers_too(locked: Client) -> None:
    assert locked.get("/nothing").status == 401
    assert locked.get("/api/v1/openapi.json").status == 401
    assert locked.get("/_nicegui/anything").status == 401


# --- the cookie


def log_in(client: Client, token: str, path: str = "/") -> tuple[int, str, str]:
    """Send the form of the login page; return status, where to go, and the cookie."""
    found = client.send(
        "POST",
        "/login",
        f"token={token}&next={path}".encode(),
        {"content-type": "application/x-www-form-urlencoded", "origin": client.address},
    )
    return found.status, found.headers.get("location", ""), found.headers.get("set-cookie", "")


def test_a_login_sets_a_cookie_that_scripts_and_other_sites_cannot_use(locked: Client) -> None:
    status, where, cookie = log_in(locked, READER, "/api/v1")

    assert (status, where) == (303, "/api/v1")
    name = cookie_name(locked.host)
    assert cookie.startswith(f"{name}=read.")
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= {part.strip() for part in cookie.split(";")}
    assert READER not in cookie


@pytest.mark.parametrize(("token", "changes"), [(READER, 403), (OPERATOR, 200)])
def test_a_cookie_may_what_its_token_may(locked: Client, scene: Scene, token: str, changes: int) -> None:
    client = locked.with_headers(cookie=log_in(locked, token)[2].partition(";")[0])

    assert client.get(LOOK).status == 200
    assert client.put(change(scene.group), BODY).status == changes


def test_a_wrong_token_logs_nobody_in(locked: Client) -> None:
    assert log_in(locked, "wrong", "/some/page") == (303, "/login?wrong=1&next=/some/page", "")
    found = locked.post("/login", {"token": "wrong"})
    assert (found.status, found.error) == (401, "token_wrong")
    assert b"no token of this server" in locked.get("/login?wrong=1").body


@pytest.mark.parametrize("where", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)"])
def test_a_login_leads_to_no_other_site(locked: Client, where: str) -> None:
    assert log_in(locked, READER, where)[1] == "/"


def test_what_the_login_page_is_asked_for_is_text_and_no_markup(locked: Client) -> None:
    page = locked.get("/login?next=/%22%3E%3Cscript%3Ealert(1)%3C/script%3E").body.decode()
    assert "<script" not in page
    assert "&quot;&gt;&lt;script&gt;" in page


def test_a_cookie_that_was_changed_is_worth_nothing(locked: Client) -> None:
    cookie = log_in(locked, READER)[2].partition(";")[0]
    name, _, content = cookie.partition("=")
    _, until, signature = content.split(".")
    for forged in (
        f"operator.{until}.{signature}",
        f"read.{int(until) + 1}.{signature}",
        f"read.{until}.{'0' * 64}",
        "read",
    ):
        assert locked.with_headers(cookie=f"{name}={forged}").get(LOOK).status == 401


def test_a_logout_takes_the_cookie_away(locked: Client) -> None:
    found = locked.with_headers(cookie=log_in(locked, READER)[2].partition(";")[0]).post("/logout")
    assert (found.status, found.json) == (200, {"role": None})
    assert "Max-Age=0" in found.headers["set-cookie"]


def test_a_browser_without_a_cookie_is_sent_to_the_login(locked: Client) -> None:
    browser = locked.with_headers(accept="text/html,application/xhtml+xml")
    found = browser.get("/some/page?group=a%20b")
    assert (found.status, found.headers["location"]) == (303, "/login?next=/some/page%3Fgroup%3Da%2520b")
    assert browser.get("/api/v1/groups").status == 401


# --- other sites


@pytest.mark.parametrize(
    ("headers", "status", "because"),
    [
        ({}, 200, "a program sends neither header"),
        ({"origin": "SELF"}, 200, "our own page"),
        ({"origin": "SELF", "sec-fetch-site": "same-origin"}, 200, "our own page"),
        ({"origin": "https://evil.example"}, 403, "a page of another site"),
        ({"origin": "null"}, 403, "a page that hides its site"),
        ({"origin": "http://127.0.0.1:1"}, 403, "another server on this machine is another site"),
        ({"sec-fetch-site": "cross-site"}, 403, "the browser says so"),
        ({"sec-fetch-site": "same-site"}, 403, "a neighbour is not us"),
        ({"origin": "SELF", "sec-fetch-site": "cross-site"}, 403, "both must be right"),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, 403, "a form of another site"),
    ],
)
@pytest.mark.parametrize("is_locked", [False, True])
def test_changes_from_other_sites_are_refused(  # a row of the table
    client: Client, locked: Client, scene: Scene, headers: dict[str, str], status: int, because: str, is_locked: bool
) -> None:
    asked = locked.as_(OPERATOR) if is_locked else client
    named = {name: asked.address if value == "SELF" else value for name, value in headers.items()}
    found = Client(asked.address, {**asked.headers, **named}).put(change(scene.group), BODY)

    assert found.status == status, because
    assert status == 200 or found.error == "cross_site"
    assert scene.marks() == [4, 10], "it was only a dry run"


def test_a_link_from_another_site_opens_a_page_but_its_scripts_get_nothing(client: Client) -> None:
    link = client.with_headers(sec_fetch_site="cross-site", sec_fetch_mode="navigate")
    script = client.with_headers(sec_fetch_site="cross-site", sec_fetch_mode="no-cors")
    assert link.get("/api/v1").status == 200
    assert script.get("/api/v1").error == "cross_site"


@pytest.mark.parametrize(
    ("host", "status", "because"),
    [
        ("127.0.0.1:PORT", 200, "as it is"),
        ("localhost:PORT", 200, "a name of this machine"),
        ("LOCALHOST", 200, "whatever the port and the case"),
        ("[::1]:PORT", 200, "as it is"),
        ("127.0.0.2", 200, "this machine too"),
        ("evil.example:PORT", 421, "a name that somebody made to lead here"),
        ("localhost.evil.example", 421, "as above"),
        ("127.0.0.1.evil.example", 421, "as above"),
        ("192.168.0.1", 421, "not this machine alone"),
        ("", 421, "no name at all"),
        ("[::1", 421, "no name either"),
    ],
)
def test_without_a_token_only_names_of_this_machine_are_answered(
    client: Client, host: str, status: int, because: str
) -> None:
    named = client.with_headers(host=host.replace("PORT", client.host.partition(":")[2]))
    assert named.get(LOOK).status == status, because
    assert named.get("/healthz").status == status, because
    assert named.put(change("x"), BODY).status in ((404,) if status == 200 else (421,)), because


def test_with_a_token_any_name_will_do(locked: Client) -> None:
    """Another site's page has neither the token nor, under its own name, the cookie."""
    named = locked.with_headers(host="tidegate.example")
    assert named.get(LOOK).status == 401
    assert named.as_(READER).get(LOOK).status == 200


# --- what is sent


def test_a_change_must_be_json(client: Client, scene: Scene) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        found = client.send("PUT", change(scene.group), b'{"to": "end"}', {"content-type": kind} if kind else {})
        assert (found.status, found.error) == (415, "not_json")
    found = client.send("PUT", change(scene.group), b"{", {"content-type": "application/json"})
    assert (found.status, found.error) == (422, "invalid")


def test_looking_changes_nothing(client: Client, scene: Scene) -> None:
    assert client.get(f"/api/v1/groups/{scene.group}/redrive").status == 404
    assert client.get("/api/v1/run/pause").status == 405
    assert client.send("DELETE", change(scene.group), b"", {"content-type": "application/json"}).status == 405


def test_a_body_is_bounded(client: Client, scene: Scene) -> None:
    large = b'{"to": "' + b"x" * 70_000 + b'"}'
    found = client.send("PUT", change(scene.group), large, {"content-type": "application/json"})
    assert (found.status, found.error) == (413, "too_large")


def test_a_body_of_unknown_length_is_bounded_too(client: Client) -> None:
    with socket.create_connection(("127.0.0.1", int(client.host.partition(":")[2])), timeout=30) as line:
        line.sendall(
            b"PUT /api/v1/groups/x/offsets HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        for _ in range(10):
            line.sendall(b"2710\r\n" + b" " * 10_000 + b"\r\n")
        assert line.recv(1000).startswith(b"HTTP/1.1 413")


def test_a_sentence_never_repeats_what_was_sent(client: Client) -> None:
    found = client.put(change("x"), {"to": "end", "token": "something secret", "partition": "something secret"})
    assert found.status == 422
    assert b"something secret" not in found.body


@pytest.mark.parametrize("path", [LOOK, "/api/v1", "/login", "/metrics", "/nothing", "/healthz", "/api/v1/groups/none"])
def test_every_answer_carries_the_headers_that_make_browsers_careful(client: Client, path: str) -> None:
    headers = client.get(path).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert headers["referrer-policy"] == "same-origin"
    assert "access-control-allow-origin" not in headers
    assert "server" not in headers
    if path != "/nothing":
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["cache-control"] == "no-store"


# --- sockets


@pytest.mark.parametrize(
    ("headers", "status"),
    [({}, b"403"), ({"Origin": "http://evil.example"}, b"403"), ({"Authorization": f"Bearer {READER}"}, b"403")],
)
def test_a_socket_is_guarded_like_a_request(locked: Client, headers: dict[str, str], status: bytes) -> None:
    """No page of ours is behind this address, so even the one who may is told 403; nobody else gets that far."""
    port = int(locked.host.partition(":")[2])
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    with socket.create_connection(("127.0.0.1", port), timeout=30) as line:
        line.sendall(
            f"GET /_nicegui_ws/socket.io HTTP/1.1\r\nHost: {locked.host}\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            f"{lines}\r\n".encode()
        )
        assert line.recv(100).split(b" ")[1] == status


# --- where it listens


def test_beyond_this_machine_a_token_is_required(kafka: Kafka) -> None:
    cluster = Cluster(kafka, 10.0)
    app = make_app(Services(cluster, Sampler(cluster)))
    with pytest.raises(SettingsError, match="there is no token; set token"):
        start_in_thread(app, EVERYWHERE)


def test_with_a_token_it_may_listen_anywhere(kafka: Kafka) -> None:
    cluster = Cluster(kafka, 10.0)
    running = start_in_thread(make_app(Services(cluster, Sampler(cluster), tokens=Tokens(OPERATOR))), EVERYWHERE)
    try:
        client = Client(f"http://127.0.0.1:{running.port}")
        assert client.get(LOOK).status == 401
        assert client.as_(OPERATOR).get(LOOK).status == 200
    finally:
        running.stop()


def test_a_port_that_is_taken_is_an_error_that_names_it(client: Client, kafka: Kafka) -> None:
    cluster = Cluster(kafka, 10.0)
    port = int(client.host.partition(":")[2])
    with pytest.raises(SettingsError, match=f"port {port} of 127.0.0.1 is taken; choose another"):
        start_in_thread(make_app(Services(cluster, Sampler(cluster))), port=port)
