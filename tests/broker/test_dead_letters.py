"""Dead letters on a real broker: found by every filter, and shown so that nothing disturbs a terminal."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

import tidegate as tg
from tests.broker.graveyard import Graveyard, Letter
from tidegate.copies import Copy, Origin, write_headers
from tidegate.errors import SettingsError, TopicMissing
from tidegate.kafka.connection import Kafka

if TYPE_CHECKING:
    from pathlib import Path

    from tidegate.dev.broker import Broker


@pytest.fixture
def yard(broker: Broker, tmp_path: Path) -> Graveyard:
    return Graveyard(Kafka(broker.bootstrap), tmp_path)


def test_a_dead_letter_says_all_that_is_known(yard: Graveyard) -> None:
    own = (("trace", b"\xff"), ("tidegate-id", b"of another group"))
    yard.bury(Letter(7, partition=1, key=b"k", value=b"\x00", own=own, redrives=1))
    (letter,) = tg.dead_letters(yard.group, kafka=yard.kafka)

    assert (letter.group, letter.partition, letter.offset) == (yard.group, 1, 0)
    assert (letter.is_copy, letter.was_redriven, letter.redrives, letter.attempt) == (True, False, 1, 4)
    assert letter.stable_id == f"{yard.group}:orders:0:7"
    assert (letter.origin_topic, letter.origin_partition, letter.origin_offset) == ("orders", 0, 7)
    assert letter.origin_timestamp == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert letter.first_failed_at == datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC)
    assert (letter.error_type, letter.error_message, letter.traceback) == ("ValueError", "no amount", "Traceback: here")
    assert [past.place for past in letter.history] == ["orders[0] offset 7"]
    assert (letter.key, letter.value, letter.headers) == (b"k", b"\x00", own)
    assert letter.written_at is not None
    assert datetime.now(UTC) - letter.written_at < timedelta(minutes=1)


def test_letters_are_chosen_by_origin_error_key_and_number(yard: Graveyard) -> None:
    yard.bury(
        Letter(0, key=b"a"),
        Letter(1, topic="refunds"),
        Letter(2, error=("TimedOut", "took longer than 20s"), key=b"a"),
        Letter(3, partition=1),
    )

    assert yard.numbers() == [0, 1, 2, 3], "by partition, the oldest first"
    assert yard.numbers(origin="refunds") == [1]
    assert yard.numbers(error="TimedOut") == yard.numbers(error="LONGER than") == [2]
    assert yard.numbers(key="a") == [0, 2]
    assert yard.numbers(key="a", error="ValueError") == [0]
    assert yard.numbers(limit=3) == [0, 1, 2]
    assert yard.numbers(origin="nothing") == []


def test_letters_are_chosen_by_time(yard: Graveyard) -> None:
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    at = [Letter(hour, partition=hour % 2, timestamp=noon + timedelta(hours=hour)) for hour in range(6)]
    yard.bury(*at, message_timestamp_type="CreateTime")

    assert sorted(yard.numbers(since=noon + timedelta(hours=4))) == [4, 5]
    assert sorted(yard.numbers(since="2026-01-31T13:00", until="2026-01-31T15:00Z")) == [1, 2]
    assert sorted(yard.numbers(until="2026-01-31T13:00:00.001")) == [0, 1]
    assert yard.numbers(since="2026-02-01") == []
    assert sorted(yard.numbers(since="1969-12-31T23:59:59.999")) == [0, 1, 2, 3, 4, 5]


def test_a_group_without_dead_letters_is_told_from_one_that_has_none_left(yard: Graveyard) -> None:
    sentence = f"group {yard.group}x has no dead letters: the topic {yard.dead[:-5]}x.dead does not exist"
    with pytest.raises(TopicMissing, match=re.escape(sentence)):
        tg.dead_letters(f"{yard.group}x", kafka=yard.kafka)
    yard.bury()

    assert yard.numbers() == []
    with pytest.raises(TopicMissing, match=rf"did you mean {yard.group}\?"):
        tg.dead_letters(f"{yard.group}x", kafka=yard.kafka)
    with pytest.raises(SettingsError, match="limit=0 leaves nothing"):
        tg.dead_letters(yard.group, kafka=yard.kafka, limit=0)


# Headers that anybody might write: none of them is a copy, none may end a command.
HOSTILE: list[tuple[tuple[str, bytes | None], ...]] = [
    (),
    (("tidegate-topic", b"\xff\xfe"), ("tidegate-partition", b"0"), ("tidegate-offset", b"0"), ("tidegate-id", b"x")),
    (("tidegate-topic", None), ("tidegate-\x1b[2J", b"\x9b")),
    *(
        tuple({**dict(write_headers(Copy(Origin("orders", 0, 0), "id"), ())), name: value}.items())
        for name, value in (
            ("tidegate-offset", b"-5"),
            ("tidegate-partition", b"1" + b"0" * 30),
            ("tidegate-attempt", b"1" * 5000),
            ("tidegate-redrives", b"-3"),
            ("tidegate-history", b"[" * 5000),
            ("tidegate-history", b'[{"at_ms":1e300,"place":"","attempt":1,"error_type":"","message":""}]'),
            ("tidegate-done", b"{}[]"),
            ("tidegate-redriven-from", b"x"),
        )
    ),
]


def test_records_that_are_no_copies_are_shown_as_such_and_left_alone(yard: Graveyard) -> None:
    yard.bury(*(Letter(0, headers=headers) for headers in HOSTILE), Letter(1))
    letters = list(tg.dead_letters(yard.group, kafka=yard.kafka))

    assert [letter.is_copy for letter in letters] == [False] * len(HOSTILE) + [True]
    report = yard.send()
    assert (report.matched, report.sent, report.foreign) == (len(HOSTILE) + 1, 1, len(HOSTILE))
    assert yard.run("list")[0].count("(not written by Tidegate)") == len(HOSTILE)
    for letter in letters:
        if letter.offset in (0, 3, 8):
            assert "cannot be redriven" in yard.run("show", f"{letter.partition}:{letter.offset}")[0]


def test_hostile_bytes_never_reach_the_terminal(yard: Graveyard) -> None:
    evil = "\x1b[2J\x07\x9b31m\r\u202e\u2066\U000e0001\nline two"
    yard.bury(
        Letter(
            1,
            error=(f"E{evil}", evil),
            key=evil.encode(),
            value=evil.encode(),
            own=((f"h{evil}", evil.encode()), ("b", b"\x00\xff")),
        ),
        Letter(2, value=b"\x00\xff" * 6, key=b"\xfe"),
        Letter(3, topic=f"t{evil}", error=(f"E{evil}", evil)),  # no copy of ours: no topic has such a name
    )
    letters = [("show", place, *form) for place in ("0:0", "0:2") for form in ((), ("--json",))]
    shown = [yard.run(*words) for words in (("list",), ("list", "--json"), *letters, ("redrive",))]
    shown.append(yard.run("show", f"no such \x1b[2J {evil}", code=1))

    for output, errors in shown:
        lines = (output + errors).split("\n")
        assert all(line.isprintable() for line in lines), [line for line in lines if not line.isprintable()]
    assert "<12 bytes: 00ff00ff00ff00ff00ff00ff>" in yard.run("show", "0:1")[0]
    assert json.loads(shown[3][0])["error_message"] == evil


def test_the_list_is_a_table_of_one_line_each(yard: Graveyard) -> None:
    yard.bury(Letter(1, key=b"lind"), Letter(2, redrives=1, error=("TimedOut", "x" * 500)))
    yard.send(limit=1)
    heading, first, second = yard.run("list")[0].splitlines()

    assert heading.split() == ["PLACE", "WRITTEN", "(UTC)", "ORIGIN", "KEY", "REDRIVEN", "ERROR"]
    assert re.fullmatch(
        r"0:0    \d{4}-\d\d-\d\d \d\d:\d\d  orders\[0\] 1  lind  yes       ValueError: no amount *", first
    )
    assert re.fullmatch(r"0:1 .* null  no \(1\)    TimedOut: x+…", second)
    assert len(second) <= 120

    output, errors = yard.run("list", "--limit", "1")
    assert len(output.splitlines()) == 2
    assert "there are more: these are the first 1; choose with --limit" in errors
    assert [json.loads(line)["origin_offset"] for line in yard.run("list", "--json")[0].splitlines()] == [1, 2]
    assert yard.run("list", "--key", "nobody")[0] == f"no dead letters of group {yard.group} match\n"


def test_one_letter_is_shown_by_its_place_or_its_id(yard: Graveyard) -> None:
    yard.bury(Letter(1, value=b"line one\nline two", own=(("trace", b"1"),)), Letter(2), Letter(1, redrives=1))
    page, _ = yard.run("show", "0:0")

    for line in (
        f"  id         {yard.group}:orders:0:1",
        "  error      ValueError: no amount",
        "  header     trace = 1",
        "  traceback\n    Traceback: here",
        "  value (17 bytes)\n    line one\n    line two",
    ):
        assert line in page
    by_id = yard.run("show", f"{yard.group}:orders:0:1", "--json")[0].splitlines()
    assert [json.loads(line)["offset"] for line in by_id] == [0, 2], "it failed again after its redrive"
    for wrong in ("0:9", "7:0", "some:id"):
        assert yard.run("show", wrong, code=1)[1].count("\n") == 1
