"""Redriving on a real broker: each letter goes back once, whatever is killed or refused."""

from __future__ import annotations

import json
import os
import pty
import random
import re
from collections import Counter
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

import pytest

import tidegate as tg
from tests.broker.graveyard import Graveyard, Letter
from tests.docs.pages import blocks
from tests.support import wait_until
from tidegate.copies import clock_note, is_note, read_headers, redriven_place
from tidegate.errors import DeliveryFailed, SettingsError, TopicMissing
from tidegate.kafka.configs import TopicConfigs
from tidegate.kafka.connection import Kafka

if TYPE_CHECKING:
    from pathlib import Path

    from tidegate.dev.broker import Broker

MANY = 10_000


@pytest.fixture
def yard(broker: Broker, tmp_path: Path) -> Graveyard:
    return Graveyard(Kafka(broker.bootstrap), tmp_path)


def test_a_redrive_sends_each_letter_back_once(yard: Graveyard) -> None:
    yard.bury(*(Letter(number, partition=number % 2, key=b"k", value=b"\x00\xff") for number in range(6)))
    heard: list[int] = []
    report = yard.send(on_progress=heard.append)

    assert (report.matched, report.to_send, report.sent, report.is_dry_run) == (6, 6, 6, False)
    assert report.to == yard.redrive
    assert heard[-1] == 6
    assert sorted(yard.redriven_ids()) == yard.ids(range(6))
    for record in yard.records(yard.redrive):
        copy = read_headers(record.headers)
        assert copy is not None
        assert (copy.redrives, copy.attempt, copy.delay, len(copy.history)) == (1, 0, None, 1)
        assert copy.redriven_from == (record.partition, record.offset), "the same partition, in the same order"
        assert copy.done == {(0, 0)}, "sinks that have it are not called again"
        assert (record.key, record.value) == (b"k", b"\x00\xff")

    second = yard.send()
    assert (second.matched, second.sent, second.already_redriven) == (6, 0, 6)
    assert all(letter.was_redriven for letter in tg.dead_letters(yard.group, kafka=yard.kafka))
    assert yard.send(again=True, limit=2).sent == 2
    assert Counter(yard.redriven_ids()) == Counter(yard.ids([0, 1, 2, 3, 4, 5, 0, 2]))


def test_only_what_is_meant_is_sent(yard: Graveyard) -> None:
    yard.bury(Letter(0), Letter(1, topic="refunds"), Letter(2, error=("TimedOut", "late")))
    report = yard.send(error="TimedOut")

    assert (report.matched, report.sent) == (1, 1)
    assert yard.redriven_ids() == yard.ids([2])
    assert yard.send(origin="orders").sent == 1
    assert sorted(yard.redriven_ids()) == yard.ids([0, 2])


def test_a_dry_run_changes_nothing_and_counts_all(yard: Graveyard) -> None:
    yard.bury(Letter(0), Letter(1), Letter(2, error=("TimedOut", "late")), Letter(3, redrives=3))
    report = yard.send(dry_run=True)

    assert (report.is_dry_run, report.matched, report.to_send, report.sent, report.held_back) == (True, 4, 3, 0, 1)
    assert [(kind.origin_topic, kind.error_type, kind.count) for kind in report.kinds] == [
        ("orders", "ValueError", 2),
        ("orders", "TimedOut", 1),
    ]
    assert yard.redrive not in yard.admin.existing([yard.redrive])


def test_the_topic_that_a_redrive_makes_keeps_what_it_remembers(yard: Graveyard) -> None:
    yard.bury(Letter(0), partitions=3, max_message_bytes="3000000")
    yard.send()
    config = TopicConfigs(yard.admin).read([yard.redrive])[yard.redrive]

    assert yard.admin.describe([yard.redrive])[yard.redrive].partitions == 3
    assert (config["message.timestamp.type"], config["cleanup.policy"]) == ("LogAppendTime", "delete")
    assert (config["retention.ms"], config["max.message.bytes"]) == ("-1", "3000000")


def test_a_redrive_topic_of_fewer_partitions_will_do(yard: Graveyard) -> None:
    yard.admin.create_topic(yard.redrive, 2)
    yard.bury(*(Letter(number, partition=number) for number in range(5)), partitions=5)

    assert yard.send().sent == 5
    assert {record.partition for record in yard.records(yard.redrive)} == {0, 1}
    assert yard.send().already_redriven == 5


def test_notes_and_strangers_in_the_redrive_topic_hide_no_letter(yard: Graveyard) -> None:
    yard.bury(Letter(0), Letter(1))
    yard.admin.create_topic(yard.redrive, 2)
    name = "tidegate-redriven-from"
    yard.write(
        yard.redrive,
        [
            Letter(0, headers=tuple(clock_note())),
            Letter(0, headers=()),
            Letter(0, headers=((name, b"\xff"),)),
            Letter(0, headers=((name, None),)),
        ],
    )

    assert yard.send().sent == 2


def test_a_letter_that_came_back_too_often_is_held_and_named(yard: Graveyard) -> None:
    yard.bury(Letter(0, redrives=2), Letter(1, redrives=3), Letter(2, redrives=9))
    report = yard.send()

    assert (report.sent, report.held_back, report.held) == (1, 2, ((0, 1), (0, 2)))
    assert yard.redriven_ids() == yard.ids([0])
    output, _ = yard.run("redrive", "--yes")
    assert "2 held back, redriven 3 times or more: 0:1, 0:2\n" in output
    assert "--most-redrives N" in output

    assert yard.send(most_redrives=4).sent == 1
    assert yard.redriven_ids() == yard.ids([0, 1])
    with pytest.raises(SettingsError, match="most_redrives=0 holds everything back"):
        yard.send(most_redrives=0)


def test_a_dead_letter_topic_made_anew_has_letters_that_nobody_redrove(
    yard: Graveyard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.ops.dead_letters._CLOCKS_APART_MS", 0)
    yard.bury(Letter(0), Letter(1))
    assert yard.send().sent == 2
    yard.admin.delete_topic(yard.dead)
    yard.bury(Letter(7))

    assert [letter.was_redriven for letter in tg.dead_letters(yard.group, kafka=yard.kafka)] == [False]
    assert yard.send().sent == 1
    assert yard.redriven_ids()[-1:] == yard.ids([7])


def test_another_topic_gets_the_record_as_a_new_one_and_the_group_a_note(yard: Graveyard) -> None:
    origin = f"orders-{yard.group}"
    yard.admin.create_topic(origin, 4)
    own = (("trace", b"1"),)
    yard.bury(Letter(0, topic=origin, key=b"k", value=b"v", own=own, partition=1), Letter(1, topic="gone", key=b"k"))
    output, errors = yard.run("redrive", "--to", origin, "--yes")

    assert f"every group that reads {origin} gets these records, as new ones; without --to only {yard.group}" in errors
    assert output.endswith(f"sent 2 records to {origin}\n")
    (home,) = (record for record in yard.records(origin) if record.value == b"v")
    assert home.partition == 0, "its own partition, since this is its own topic"
    assert home.headers == (
        ("trace", b"1"),
        ("tidegate-id", f"{yard.group}:{origin}:0:0".encode()),
        ("tidegate-redrives", b"1"),
    )
    notes = yard.records(yard.redrive)
    assert all(is_note(note.headers) and note.value is None for note in notes)
    assert {redriven_place(note.headers) for note in notes} == {(1, 0), (0, 0)}

    assert yard.send().already_redriven == 2, "sent elsewhere is sent"
    with pytest.raises(TopicMissing, match="the topic nowhere-at-all does not exist"):
        yard.send(to="nowhere-at-all")
    with pytest.raises(SettingsError, match="is a topic that Tidegate writes by itself"):
        yard.send(to=yard.dead)


def test_a_rate_is_kept_evenly(yard: Graveyard) -> None:
    yard.bury(*(Letter(number) for number in range(60)))
    assert yard.send(rate="100/s").sent == 60
    arrived = [record.timestamp.timestamp() for record in yard.records(yard.redrive) if record.timestamp]

    assert arrived[-1] - arrived[0] > 0.5
    assert 0.005 <= median(later - one for one, later in pairwise(arrived)) <= 0.02, "a hundredth apart, no bursts"


def test_letters_larger_than_the_clients_own_limit_are_sent(yard: Graveyard) -> None:
    yard.bury(Letter(0, value=b"x" * 2_000_000), max_message_bytes="3000000")

    assert yard.send().sent == 1
    assert [len(record.value or b"") for record in yard.records(yard.redrive)] == [2_000_000]


def test_no_batch_grows_past_what_the_topic_takes(yard: Graveyard) -> None:
    yard.admin.create_topic(yard.redrive, 1, {"max.message.bytes": "20000"})
    yard.bury(*(Letter(number, value=b"x" * 2_000) for number in range(500)))

    assert yard.send().sent == 500


def test_a_letter_that_is_refused_ends_the_redrive_and_the_next_one_goes_on(yard: Graveyard) -> None:
    yard.admin.create_topic(yard.redrive, 2, {"max.message.bytes": "50000"})
    # Bytes that nothing makes smaller: letters are compressed on their way.
    yard.bury(Letter(0), Letter(1, value=random.Random(7).randbytes(100_000)), Letter(2, partition=1))
    with pytest.raises(DeliveryFailed) as failed:
        yard.send()

    # The broker refuses it, not the client: what was on its way beside it may have arrived.
    assert re.match(
        rf"the redrive to {yard.redrive} ended after [12] records?, at the dead letter 0:1 of {yard.dead}: Kafka refus",
        failed.value.happened,
    )
    assert "raise max.message.bytes of the topic" in failed.value.cure
    assert "then run it again: what was sent is not sent twice" in failed.value.cure
    assert set(yard.ids([0])) <= set(yard.redriven_ids()) <= set(yard.ids([0, 2]))
    _, errors = yard.run("redrive", "--yes", code=1)
    assert errors.count("\n") == 1
    assert re.search(r"ended after [01] records?, at the dead letter 0:1 of", errors)

    yard.set_limit(yard.redrive, 200_000)
    assert yard.send().sent in (1, 2)
    assert sorted(yard.redriven_ids()) == yard.ids([0, 1, 2])


def test_a_redrive_to_another_topic_that_is_killed_repeats_only_what_was_on_its_way(yard: Graveyard) -> None:
    target, number_of_letters = f"elsewhere-{yard.group}", 5_000
    yard.admin.create_topic(target, 2)
    yard.bury(*(Letter(number, partition=number % 2) for number in range(number_of_letters)))

    def ids() -> Counter[str]:
        return Counter((dict(record.headers)["tidegate-id"] or b"").decode() for record in yard.records(target))

    with yard.command("redrive", "--to", target, "--yes", "--rate", "1500/s") as process:
        places = yard.admin.describe([target])[target].each_partition()
        wait_until(lambda: sum(yard.admin.ends(places).values()) > 1_000, within=60, what="a fifth has arrived")
        process.kill()
        process.communicate(timeout=30)
    before = ids()
    assert process.returncode == -9
    assert 1_000 < before.total() < number_of_letters, "the kill did not come in the middle"
    yard.run("redrive", "--to", target, "--yes")

    after = ids()
    assert set(after) == set(yard.ids(range(number_of_letters))), "every id"
    assert set(before.values()) == {1}
    repeated = {one for one, times in after.items() if times > 1}
    assert len(repeated) <= 1_000, "as many as may be open"
    assert repeated <= set(before), "only what had gone before the kill"


def test_what_went_elsewhere_but_could_not_be_noted_is_told(yard: Graveyard) -> None:
    target = f"elsewhere-{yard.group}"
    yard.admin.create_topic(target)
    yard.admin.create_topic(yard.redrive, 1, {"cleanup.policy": "compact"})  # takes no record without a key
    yard.bury(Letter(0))
    with pytest.raises(
        DeliveryFailed, match=rf"ended after 1 record, at .* \(writing to {yard.redrive}\).*noted as sent"
    ):
        yard.send(to=target)

    assert len(yard.records(target)) == 1


def test_ten_thousand_letters_are_all_sent_once_although_the_first_redrive_is_killed(yard: Graveyard) -> None:
    yard.bury(*(Letter(number, partition=number % 3, value=b"x" * 200) for number in range(MANY)), partitions=3)

    def arrived() -> int:
        found = yard.admin.existing([yard.redrive])
        return sum(yard.admin.ends(found[yard.redrive].each_partition()).values()) if found else 0

    with yard.command("redrive", "--yes", "--rate", "2500/s") as process:
        wait_until(lambda: arrived() > MANY // 4, within=60, what="a quarter has arrived")
        process.kill()
        process.communicate(timeout=30)
    assert process.returncode == -9
    before = yard.redriven_ids()
    assert MANY // 4 < len(before) < MANY, "the kill did not come in the middle"

    output, _ = yard.run("redrive", "--yes")
    assert f"  {len(before)} redriven already (--again sends them once more)\n" in output
    assert f"sent {MANY - len(before)} records to {yard.redrive}\n" in output
    after = yard.redriven_ids()
    assert sorted(after) == sorted(yard.ids(range(MANY))), "every id, and none of them twice"
    assert len({redriven_place(record.headers) for record in yard.records(yard.redrive)}) == MANY
    assert "  0 to send" in yard.run("redrive", "--yes")[0]


def test_without_a_terminal_and_without_yes_only_the_plan_is_shown(yard: Graveyard) -> None:
    yard.bury(Letter(0), Letter(1))
    for words, sentence in (((), "nothing was sent: add --yes"), (("--dry-run", "--yes"), "dry run: nothing was sent")):
        output, errors = yard.run("redrive", *words)
        assert f"2 dead letters of group {yard.group}\n  2 to send to {yard.redrive}\n" in output
        assert sentence in errors
    plan = json.loads(yard.run("redrive", "--json")[0])

    assert (plan["is_dry_run"], plan["to_send"], plan["sent"]) == (True, 2, 0)
    assert yard.redriven_ids() == []
    assert json.loads(yard.run("redrive", "--json", "--yes")[0])["sent"] == 2


@pytest.mark.parametrize(("answer", "expected"), [("n", []), ("", []), ("y", [0])])
def test_on_a_terminal_it_asks(yard: Graveyard, answer: str, expected: list[int]) -> None:
    yard.bury(Letter(0))
    ours, theirs = pty.openpty()
    try:
        os.write(ours, f"{answer}\n".encode())
        output, _ = yard.run("redrive", stdin=theirs)
    finally:
        os.close(ours)
        os.close(theirs)

    assert f"send 1 record to {yard.redrive}? [y/N]" in output
    assert ("nothing was sent" in output) == (not expected)
    assert yard.redriven_ids() == yard.ids(expected)


def test_the_example_of_the_page_runs(
    yard: Graveyard, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    yard.bury(Letter(0), Letter(1, error=("TimedOut", "late")))
    (example,) = blocks("docs/how-to/handle-dead-letters.md", "python")
    monkeypatch.setenv("TIDEGATE_BOOTSTRAP", yard.kafka.bootstrap)
    exec(compile(example.replace('"billing"', repr(yard.group)), "example", "exec"), {})  # noqa: S102  # our own page

    assert capsys.readouterr().out == f"0 0 {yard.group}:orders:0:0 no amount b'{{}}'\n1 0 0\n"
    assert yard.redriven_ids() == yard.ids([0])
