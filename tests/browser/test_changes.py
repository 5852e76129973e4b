"""What people change on the dashboard: rewinds and redrives, each with its plan before the button."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.broker.graveyard import Graveyard, Letter
from tests.browser.support import SEEN_WITHIN_MS, Orders

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Page

    from tests.browser.support import Visitor
    from tidegate.dev.broker import Broker

expect.set_options(timeout=SEEN_WITHIN_MS)

HOSTILE = b"<script>alert('payload')</script><img src=x onerror=alert(2)> {{ 7*7 }} \x1b[2J\x1b[31mred \xe2\x80\xaeback"


def choose(page: Page, field: str, option: str) -> None:
    page.get_by_role("combobox", name=field, exact=True).click()
    page.get_by_role("option", name=option, exact=True).click()


def cells(page: Page, row: str) -> list[str]:
    return page.get_by_role("row").filter(has_text=row).get_by_role("cell").all_inner_texts()


def test_a_rewind_shows_its_plan_does_it_and_reads_it_back(visitor: Visitor, orders: Orders) -> None:
    page = visitor.page
    orders.produce(30)
    orders.stand(20, 25)
    page.goto(f"/group?name={orders.group}")
    expect(page.get_by_label("Lag, records")).to_have_text("15")
    page.get_by_role("link", name="Rewind", exact=True).click()
    page.get_by_role("button", name="Show the plan").click()
    expect(page.get_by_text("45 records at most run again, 0 records at most are passed by for good.")).to_be_visible()
    choose(page, "To", "an offset")
    expect(page.get_by_role("button", name=f"Rewind {orders.group}")).to_have_count(0)
    page.get_by_label("An offset").fill("5")
    choose(page, "Topic", orders.topic)
    choose(page, "Partition", "1")
    page.get_by_role("button", name="Show the plan").click()
    expect(page.get_by_text("20 records at most run again")).to_be_visible()
    assert cells(page, f"{orders.topic}[1]") == [f"{orders.topic}[1]", "25", "5", "20", "0", "0"]
    assert orders.marks() == [20, 25], "a plan moves nothing"
    page.get_by_role("button", name=f"Rewind {orders.group}").click()
    expect(page.get_by_text("This was read back from the broker.")).to_be_visible()
    assert orders.marks() == [20, 5]
    page.get_by_role("link", name="Watch the group").click()
    expect(page.get_by_label("Lag, records")).to_have_text("35")
    expect(page.get_by_text("rewound", exact=True).first).to_be_visible()


def test_a_rewind_beyond_the_log_says_so_and_a_wrong_place_is_an_error_with_its_cure(
    visitor: Visitor, orders: Orders
) -> None:
    page = visitor.page
    orders.produce(10)
    orders.stand(5, 5)
    page.goto(f"/rewind?group={orders.group}")
    choose(page, "To", "so many records back or on")
    page.get_by_label("So many records back or on").fill("-1000")
    page.get_by_role("button", name="Show the plan").click()
    expect(page.get_by_text("Some of what was asked for is not in the log any more")).to_be_visible()
    choose(page, "To", "a time")
    page.get_by_label("A time").fill("yesterday <b>")
    page.get_by_role("button", name="Show the plan").click()
    error = page.get_by_role("alert").filter(has_text="'yesterday <b>' is no place in a log")
    expect(error).to_contain_text("What helps: say")
    assert orders.marks() == [5, 5]


def test_a_plan_that_is_no_longer_true_is_not_done(visitor: Visitor, orders: Orders) -> None:
    page = visitor.page
    orders.produce(10)
    orders.stand(5, 5)
    page.goto(f"/rewind?group={orders.group}")
    page.get_by_role("button", name="Show the plan").click()
    button = page.get_by_role("button", name=f"Rewind {orders.group}")
    expect(button).to_be_visible()
    orders.stand(9, 9)
    button.click()
    expect(page.get_by_role("alert").filter(has_text="has moved since the plan was shown")).to_be_visible()
    assert orders.marks() == [9, 9]


def test_one_dead_letter_is_redriven_after_its_plan(visitor: Visitor, broker: Broker, tmp_path: Path) -> None:
    page = visitor.page
    yard = Graveyard(Orders(broker.bootstrap).kafka, tmp_path)
    yard.bury(Letter(1), Letter(2, key=b"k2", error=("KeyError", "amount")), Letter(3))
    page.goto(f"/dead?group={yard.group}")
    expect(page.get_by_text("3 in all")).to_be_visible()
    page.get_by_label("Error: its type, or words of it").fill("KeyError")
    page.get_by_label("Error: its type, or words of it").press("Enter")
    expect(page.get_by_text("1 in all")).to_be_visible()
    page.get_by_role("link", name="0:1").click()
    expect(page.get_by_text(f"{yard.group}:orders:0:2")).to_be_visible()
    page.get_by_role("button", name="Redrive this one").click()
    expect(page.get_by_text(f"1 record to send to {yard.redrive}")).to_be_visible()
    assert yard.redriven_ids() == [], "a plan sends nothing"
    page.get_by_role("button", name="Send 1 record").click()
    expect(page.get_by_text("the broker has acknowledged every one")).to_be_visible()
    assert yard.redriven_ids() == yard.ids([2])
    page.get_by_role("button", name="Close").click()
    expect(page.get_by_text("this letter was redriven")).to_be_visible()
    page.get_by_role("link", name="Dead letters").click()
    page.get_by_role("button", name="Redrive these").click()
    expect(page.get_by_text("1, left out")).to_be_visible()
    page.get_by_role("button", name="Send 2 records").click()
    expect(page.get_by_text("Sent 2 records")).to_be_visible()
    assert sorted(yard.redriven_ids()) == sorted(yard.ids([1, 2, 3]))


def test_a_hostile_payload_is_shown_as_text(visitor: Visitor, broker: Broker, tmp_path: Path) -> None:
    page = visitor.page
    yard = Graveyard(Orders(broker.bootstrap).kafka, tmp_path)
    text = HOSTILE.decode()
    yard.bury(
        Letter(
            1,
            value=HOSTILE,
            key=HOSTILE,
            error=("<script>alert(3)</script>", text),
            own=((f"<script>alert(4)</script>{text}", HOSTILE),),
        )
    )
    page.goto(f"/dead?group={yard.group}")
    expect(page.get_by_text("<script>alert(3)</script>")).to_be_visible()
    page.get_by_role("link", name="0:0").click()
    shown = page.locator(".payload").first
    expect(shown).to_have_text(
        "<script>alert('payload')</script><img src=x onerror=alert(2)> {{ 7*7 }} \\x1b[2J\\x1b[31mred \\u202eback"
    )
    assert page.locator("main img").count() == 0
    assert page.locator("main script").count() == 0


def test_a_group_without_dead_letters_is_told_how_to_get_a_topic_for_them(visitor: Visitor) -> None:
    visitor.page.goto("/dead?group=never-used")
    expect(visitor.page.get_by_text("This group has no dead letters.")).to_be_visible()
    expect(visitor.page.get_by_text("tg.dead_letter()")).to_be_visible()
