"""Groups on the dashboard: they appear, their lag grows and falls, the worst is on top, without a reload."""

from __future__ import annotations

import json
import re
import subprocess
from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.acceptance.program import tidegate
from tests.browser.support import SEEN_WITHIN_MS, Orders

if TYPE_CHECKING:
    from tests.browser.support import Visitor
    from tidegate.dev.broker import Broker

expect.set_options(timeout=SEEN_WITHIN_MS)


def test_lag_grows_and_falls_on_an_open_page(visitor: Visitor, orders: Orders) -> None:
    page = visitor.page
    orders.produce(10)
    orders.stand(4, 7)
    page.goto(f"/group?name={orders.group}")
    lag = page.get_by_label("Lag, records")
    expect(lag).to_have_text("9")
    expect(page).to_have_title(f"{orders.group} · Tidegate")
    row = page.get_by_role("row").filter(has_text=f"{orders.topic}[1]")
    expect(row.get_by_role("cell").nth(2)).to_have_text("7")
    expect(row.get_by_role("cell").nth(3)).to_have_text("10")
    orders.produce(5)
    expect(lag).to_have_text("19")
    orders.stand(15, 14)
    expect(lag).to_have_text("1")
    expect(row.get_by_role("cell").nth(2)).to_have_text("14")
    commits = page.get_by_role("log", name="Commits")
    expect(commits.get_by_text("mark 15")).to_be_visible()
    expect(commits.get_by_text("+11")).to_be_visible()
    expect(page.get_by_role("img", name="Lag over time").locator("canvas")).to_be_visible()


def test_page_rest_and_command_line_show_the_same(visitor: Visitor, orders: Orders) -> None:
    orders.produce(10)
    orders.stand(4, 7)
    page = visitor.page
    page.goto(f"/group?name={orders.group}")
    expect(page.get_by_label("Lag, records")).to_have_text("9")
    by_rest = page.context.request.get(f"/api/v1/groups/{orders.group}").json()
    command = tidegate("lag", orders.group, "--bootstrap", orders.kafka.bootstrap, "--json")
    printed = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stdout
    by_command = json.loads(printed.splitlines()[0])
    for found in (by_rest, by_command):
        expect(page.get_by_label("Lag, records")).to_have_text(str(found["lag"]))
        expect(page.locator(".heading .verdict")).to_have_text(found["verdict"])
        for one in found["partitions"]:
            row = page.get_by_role("row").filter(has_text=f"{one['topic']}[{one['partition']}]").get_by_role("cell")
            assert row.all_inner_texts()[1:5] == [
                one["verdict"],
                str(one["mark"]),
                str(one["end_offset"]),
                str(one["lag"]),
            ]


def test_a_new_group_appears_and_the_filter_finds_it(visitor: Visitor, orders: Orders) -> None:
    page = visitor.page
    page.goto("/")
    expect(page.get_by_role("heading", name="Consumer groups")).to_be_visible()
    expect(page.get_by_role("link", name=orders.group)).to_have_count(0)
    orders.produce(3)
    orders.stand(1, 1)
    page.get_by_label("Filter the groups").fill(orders.group)
    row = page.get_by_role("row").filter(has_text=orders.group)
    expect(row.get_by_text("stopped", exact=True)).to_be_visible()
    expect(row).to_contain_text("nobody works on it")
    page.get_by_label("Filter the groups").fill("no group has such a name")
    expect(page.get_by_text("No group matches the filter.")).to_be_visible()
    page.get_by_label("Filter the groups").fill(orders.group)
    page.get_by_role("link", name=orders.group).press("Enter")
    expect(page.get_by_role("heading", name=orders.group)).to_be_visible()


def test_the_worst_group_is_on_top(visitor: Visitor, orders: Orders, broker: Broker) -> None:
    small = Orders(broker.bootstrap, partitions=1)
    small.group = f"{orders.group}-small"
    small.produce(3)
    small.stand(2)
    orders.produce(40_000)
    orders.stand(0, 0)
    page = visitor.page
    page.goto("/")
    page.get_by_label("Filter the groups").fill(orders.group)
    expect(page.locator("td.name")).to_have_text([orders.group, small.group])


def test_a_group_that_nobody_knows_is_said_to_be_unknown(visitor: Visitor) -> None:
    visitor.page.goto("/group?name=nobody-has-this-name")
    expect(visitor.page.get_by_text("Nobody has seen a group nobody-has-this-name yet.")).to_be_visible()


def test_a_hostile_name_of_a_group_is_text(visitor: Visitor, orders: Orders) -> None:
    orders.group = f"{orders.group} <img src=x onerror=alert(1)> ${{1}} `{{{{ 7*7 }}}}`"
    orders.produce(1)
    orders.stand(0, 0)
    page = visitor.page
    page.goto("/")
    page.get_by_label("Filter the groups").fill(orders.group)
    page.get_by_role("link", name=orders.group).click()
    expect(page.get_by_role("heading", name=orders.group)).to_be_visible()
    expect(page.get_by_label("Lag, records")).to_have_text("2")
    assert page.locator("img").count() == 0
    page.get_by_role("link", name="Dead letters", exact=True).click()
    expect(page.get_by_role("heading", name=f"Dead letters of {orders.group}")).to_be_visible()
    expect(page.get_by_role("alert").filter(has_text="What helps: a topic's name")).to_be_visible()


def test_colours_follow_the_system_until_they_are_chosen(visitor: Visitor) -> None:
    page = visitor.page
    body = page.locator("body")
    page.goto("/")
    expect(body).to_have_class(re.compile("body--light"))
    page.emulate_media(color_scheme="dark")
    expect(body).to_have_class(re.compile("body--dark"))
    page.get_by_role("button", name=re.compile("Press for dark")).click()
    page.get_by_role("button", name=re.compile("Press for light")).click()
    expect(body).to_have_class(re.compile("body--light"))
    page.reload()
    expect(body).to_have_class(re.compile("body--light"))


def test_an_address_with_nothing_behind_it_leads_back_to_the_groups(visitor: Visitor) -> None:
    page = visitor.page
    answer = page.goto("/no/such/page")
    assert answer is not None
    assert answer.status == 404
    visitor.errors.clear()  # the browser tells of the 404
    page.get_by_role("link", name="Consumer groups").click()
    expect(page.get_by_role("heading", name="Consumer groups")).to_be_visible()
