"""A pipeline that is served beside its run: seen at work, paused, resumed, rewound, all on the page."""

from __future__ import annotations

import re
import signal
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.acceptance.program import Program, tidegate
from tests.browser.support import Orders, opened
from tests.support import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser

    from tidegate.dev.broker import Broker

WITHIN_MS = 60_000
APP = """
import os
import tidegate as tg


def write(value):
    if value == b"7":
        raise ValueError("<b>no sevens</b>")
    with open(os.environ["OUTPUT"], "ab") as output:
        output.write(value + b"\\n")


pipeline = tg.from_kafka(os.environ["TOPIC"], group=os.environ["GROUP"]).sink(write).on_error(tg.dead_letter())
"""


@pytest.mark.timeout(240)
def test_a_run_is_seen_paused_resumed_and_rewound_on_its_own_page(
    browser: Browser, broker: Broker, tmp_path: Path
) -> None:
    orders = Orders(broker.bootstrap, partitions=1)
    orders.produce(10)
    output = tmp_path / "output"
    (tmp_path / "app.py").write_text(APP, encoding="utf-8")
    program = Program(
        tidegate("run", "app.py", "--bootstrap", broker.bootstrap, "--master", "local[2]", "--serve", "0"),
        tmp_path,
        {
            "TOPIC": orders.topic,
            "GROUP": orders.group,
            "OUTPUT": str(output),
            "TIDEGATE_HISTORY": str(tmp_path / "history.sqlite"),
            "TIDEGATE_HISTORY_EVERY": "500ms",
        },
    )

    once = Counter({str(number): 2 if number < 5 else 1 for number in range(10) if number != 7})

    def written() -> Counter[str]:
        return Counter(output.read_text().split()) if output.exists() else Counter()

    def serving() -> re.Match[str] | None:
        return re.search(r"serving this run at (http://\S+)", program.err)

    try:
        program.wait_until(lambda: serving() is not None, within=90, what="an address")
        found = serving()
        assert found is not None
        with opened(browser, found[1]) as visitor:
            page = visitor.page
            page.goto(f"/group?name={orders.group}")
            lag = page.get_by_label("Lag, records")
            expect(page.get_by_text("The run in this process")).to_be_visible(timeout=WITHIN_MS)
            expect(page.get_by_text("9 records", exact=True)).to_be_visible(timeout=WITHIN_MS)
            expect(page.get_by_text("0 to retry topics, 1 to the dead letters, 0 skipped")).to_be_visible()
            failures = page.get_by_label("Failures", exact=True)
            expect(failures.get_by_text("ValueError: <b>no sevens</b>")).to_be_visible(timeout=WITHIN_MS)
            expect(failures.get_by_text(f"{orders.topic}[0] 7")).to_be_visible()

            page.get_by_role("button", name="Pause").click()
            expect(page.get_by_text("paused, since")).to_be_visible(timeout=WITHIN_MS)
            orders.produce(5)
            expect(lag).to_have_text("5", timeout=WITHIN_MS)
            assert written().total() == 9, "a paused run writes nothing"
            page.get_by_role("button", name="Resume").click()
            expect(lag).to_have_text("0", timeout=WITHIN_MS)
            assert written() == once

            page.get_by_role("link", name="Rewind", exact=True).click()
            page.get_by_role("button", name="Show the plan").click()
            expect(page.get_by_text("15 records at most run again")).to_be_visible(timeout=WITHIN_MS)
            page.get_by_role("button", name=f"Rewind {orders.group}").click()
            expect(page.get_by_role("heading", name="Done")).to_be_visible(timeout=WITHIN_MS)
            wait_until(lambda: written() == once + once, within=60, what="the records come again")
        program.send(signal.SIGTERM)
        assert program.wait(within=60).code == 0
    finally:
        program.kill_all()
