"""Who may see and change what: with tokens nothing is shown before the login, and a reader changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.broker.graveyard import Graveyard, Letter
from tests.browser.support import SEEN_WITHIN_MS, Dashboard, Orders, Visitor, opened

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser

    from tidegate.dev.broker import Broker

expect.set_options(timeout=SEEN_WITHIN_MS)

OPERATOR = "operators-token-of-this-test"
READER = "readers-token-of-this-test"
SOCKET = """
path => new Promise(resolve => {
    const socket = new WebSocket(`ws://${location.host}${path}`);
    socket.onopen = () => resolve("open");
    socket.onerror = () => resolve("refused");
})
"""


@pytest.fixture(scope="module")
def guarded(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    words = ("--token", "env:OPERATOR_TOKEN", "--read-token", "env:READER_TOKEN")
    environment = {"OPERATOR_TOKEN": OPERATOR, "READER_TOKEN": READER}
    folder = tmp_path_factory.mktemp("guarded")
    with Dashboard(broker.bootstrap, folder, *words, environment=environment) as running:
        yield running
    assert OPERATOR not in "".join(running.output)


@pytest.fixture
def stranger(browser: Browser, guarded: Dashboard) -> Iterator[Visitor]:
    with opened(browser, guarded.address) as visitor:
        yield visitor


def log_in(visitor: Visitor, token: str) -> None:
    visitor.page.goto("/")
    visitor.page.get_by_label("Token").fill(token)
    visitor.page.get_by_role("button", name="Log in").click()
    expect(visitor.page.get_by_role("heading", name="Consumer groups")).to_be_visible()


def test_without_the_token_nothing_is_shown_and_no_socket_opens(stranger: Visitor, orders: Orders) -> None:
    orders.produce(1)
    orders.stand(0, 0)
    page = stranger.page
    page.goto(f"/group?name={orders.group}")
    expect(page.get_by_label("Token")).to_be_visible()
    assert orders.topic not in page.content()
    assert page.context.request.get("/_nicegui_ws/socket.io/?EIO=4&transport=polling").status == 401
    assert page.evaluate(SOCKET, "/_nicegui_ws/socket.io/?EIO=4&transport=websocket") == "refused"
    stranger.errors.clear()  # the refused socket, which the browser tells of
    page.get_by_label("Token").fill("a token that nobody has given")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_text("no token of this server")).to_be_visible()
    assert page.context.cookies() == []
    page.get_by_label("Token").fill(READER)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", name=orders.group)).to_be_visible()


def test_the_operator_logs_in_looks_and_logs_out(stranger: Visitor, orders: Orders) -> None:
    orders.produce(3)
    orders.stand(1, 1)
    page = stranger.page
    log_in(stranger, OPERATOR)
    cookie = page.context.cookies()[0]
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    assert OPERATOR not in cookie["value"]
    page.goto(f"/rewind?group={orders.group}")
    page.get_by_role("button", name="Show the plan").click()
    expect(page.get_by_role("button", name=f"Rewind {orders.group}")).to_be_visible()
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("Token")).to_be_visible()
    page.goto("/")
    expect(page.get_by_label("Token")).to_be_visible()


def test_a_reader_sees_plans_and_no_button_that_changes_anything(
    stranger: Visitor, orders: Orders, tmp_path: Path
) -> None:
    orders.produce(3)
    orders.stand(2, 2)
    yard = Graveyard(orders.kafka, tmp_path)
    yard.bury(Letter(1))
    page = stranger.page
    log_in(stranger, READER)
    expect(page.get_by_text("read only", exact=True)).to_be_visible()
    page.goto(f"/rewind?group={orders.group}")
    page.get_by_role("button", name="Show the plan").click()
    expect(page.get_by_text("4 records at most run again")).to_be_visible()
    expect(page.get_by_text("This token may only read")).to_be_visible()
    expect(page.get_by_role("button", name=f"Rewind {orders.group}")).to_have_count(0)
    page.goto(f"/letter?group={yard.group}&partition=0&offset=0")
    expect(page.get_by_text(f"{yard.group}:orders:0:1")).to_be_visible()
    expect(page.get_by_role("button", name="Redrive")).to_have_count(0)
    body = {"to": "beginning", "dry_run": False}
    assert page.context.request.put(f"/api/v1/groups/{orders.group}/offsets", data=body).status == 403
    assert orders.marks() == [2, 2]
