"""The broker goes away and comes back: an open page says so, keeps the last figures, and recovers by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser.support import Dashboard, Orders, opened
from tidegate.dev.broker import Broker

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser

WITHIN_MS = 60_000


@pytest.mark.timeout(240)
def test_a_page_says_that_the_broker_is_gone_and_recovers(browser: Browser, tmp_path: Path) -> None:
    with Broker() as own, Dashboard(own.bootstrap, tmp_path) as dashboard:
        orders = Orders(own.bootstrap)
        orders.produce(5)
        orders.stand(2, 3)
        with opened(browser, dashboard.address) as visitor:
            page = visitor.page
            page.goto(f"/group?name={orders.group}")
            lag, banner = page.get_by_label("Lag, records"), page.get_by_role("alert")
            expect(lag).to_have_text("5", timeout=WITHIN_MS)
            expect(banner).to_be_hidden()
            own.kill()
            expect(banner).to_contain_text("The broker does not answer.", timeout=WITHIN_MS)
            expect(banner).to_contain_text(own.bootstrap)
            expect(lag).to_have_text("5")
            other = visitor.open_page()
            other.goto(f"/rewind?group={orders.group}")
            other.get_by_role("button", name="Show the plan").click()
            expect(other.get_by_role("alert").filter(has_text="What helps")).to_be_visible(timeout=WITHIN_MS)
            other.close()
            own.start()
            expect(banner).to_be_hidden(timeout=WITHIN_MS)
            orders.produce(1)
            expect(lag).to_have_text("7", timeout=WITHIN_MS)
            page.goto(f"/rewind?group={orders.group}")
            page.get_by_role("button", name="Show the plan").click()
            expect(page.get_by_text("5 records at most run again")).to_be_visible(timeout=WITHIN_MS)
