"""On a phone every page fits: nothing scrolls sideways, and what is a table elsewhere is a list of cards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.broker.graveyard import Graveyard, Letter
from tests.browser.support import SEEN_WITHIN_MS, Orders

if TYPE_CHECKING:
    from pathlib import Path

    from tests.browser.support import Visitor

expect.set_options(timeout=SEEN_WITHIN_MS)


def test_no_page_scrolls_sideways_on_a_phone(phone: Visitor, orders: Orders, tmp_path: Path) -> None:
    orders.group = f"{orders.group}-{'with-a-long-name' * 6}"
    orders.produce(3)
    orders.stand(1, 1)
    yard = Graveyard(orders.kafka, tmp_path)
    yard.group, yard.dead, yard.redrive = orders.group, f"{orders.group}.dead", f"{orders.group}.redrive"
    yard.bury(Letter(1, value=b"v" * 400, key=b"k" * 200, error=("ValueError", "e" * 500)))
    page = phone.page
    page.goto("/")
    page.get_by_label("Filter the groups").fill(orders.group)
    page.get_by_role("link", name=orders.group).click()
    expect(page.get_by_label("Lag, records")).to_have_text("4")
    expect(page.locator(".row-card").filter(has_text=f"{orders.topic}[0]")).to_be_visible()
    assert not phone.scrolls_sideways()
    page.get_by_role("link", name="Rewind", exact=True).click()
    page.get_by_role("button", name="Show the plan").click()
    expect(page.locator(".row-card").filter(has_text=f"{orders.topic}[0]")).to_be_visible()
    assert not phone.scrolls_sideways()
    page.goto(f"/dead?group={orders.group}")
    page.get_by_role("link", name="0:0").wait_for()
    assert not phone.scrolls_sideways()
    page.get_by_role("button", name="Redrive these").click()
    expect(page.get_by_role("button", name="Send 1 record")).to_be_visible()
    assert not phone.scrolls_sideways()
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("link", name="0:0").click()
    expect(page.get_by_text("Why it is here")).to_be_visible()
    assert not phone.scrolls_sideways()
    page.goto("/")
    page.get_by_label("Filter the groups").fill(orders.group)
    expect(page.get_by_role("link", name=orders.group)).to_be_visible()
    assert not phone.scrolls_sideways()
