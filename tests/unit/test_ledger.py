"""The ledger is proved by a table and by random schedules; its coding by round trips and by damage."""

from __future__ import annotations

import os
import random
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.ledger import METADATA_BYTES, Home, Ledger, decode, encode
from tidegate.records import Partition, PlannedRound, Position

CASES = [
    # read         settled       mark  ahead                 because
    ([], [], 5, (), "nothing was read: the mark stands where it stood"),
    ([5, 6, 7], [], 5, (), "nothing is settled, so nothing moves"),
    ([5, 6, 7], [5], 6, (), "the first is settled: the mark is the second"),
    ([5, 6, 7], [6, 7], 5, ((6, 8),), "5 is open and holds the later ones back; they are ahead"),
    ([5, 6, 7], [5, 7], 6, ((7, 8),), "the mark stops at the first open one"),
    ([5, 6, 7], [5, 6, 7], 8, (), "all settled: the offset after the last"),
    ([5, 9], [5, 9], 10, (), "6 to 8 were compacted away; a gap is no hold"),
    ([5, 9], [5], 9, (), "the gap after 5 is passed, 9 is open"),
    ([7], [], 7, (), "5 and 6 are a gap before the first record"),
    ([5, 9, 12], [9, 12], 5, ((9, 13),), "a gap between two settled ones belongs to the stretch"),
    ([5, 6, 9, 12], [6, 12], 5, ((6, 9), (12, 13)), "an open one between two settled ones divides them"),
]

SCHEDULES = int(os.environ.get("PROOF_SCHEDULES", "2000"))


@pytest.mark.parametrize(("read", "settled", "mark", "ahead", "because"), CASES, ids=[case[4] for case in CASES])
def test_the_mark_is_the_first_offset_not_settled(
    read: list[int], settled: list[int], mark: int, ahead: tuple[tuple[int, int], ...], because: str
) -> None:
    ledger = Ledger(Position(5))
    for record_offset in read:
        assert ledger.read(record_offset)
    for record_offset in settled:
        ledger.settle(record_offset)
    assert ledger.mark == mark, because
    assert ledger.position.ahead == ahead, because


def test_the_end_of_the_log_moves_an_empty_ledger_past_markers() -> None:
    ledger = Ledger(Position(5))
    ledger.read(5)
    ledger.reach(9)
    assert ledger.mark == 5
    ledger.settle(5)
    assert ledger.mark == 9


def test_what_was_settled_ahead_is_not_run_again_and_is_carried_until_passed() -> None:
    ledger = Ledger(Position(5, ((7, 9), (20, 25))))
    assert ledger.read(5)
    assert ledger.read(6)
    assert not ledger.read(7)
    assert not ledger.read(8)
    assert ledger.position == Position(5, ((7, 9), (20, 25)))
    ledger.settle(5)
    ledger.settle(6)
    assert ledger.position == Position(9, ((20, 25),))


def test_settling_in_order_by_the_batch_agrees_with_settling_one_by_one() -> None:
    one_by_one, by_batch = Ledger(Position(3)), Ledger(Position(3))
    for record_offset in (3, 4, 8, 9):
        one_by_one.read(record_offset)
        one_by_one.settle(record_offset)
    by_batch.settle_through(10)
    assert one_by_one.position == by_batch.position


def test_an_offset_that_comes_twice_is_a_bug_and_said_so() -> None:
    ledger = Ledger(Position(5))
    ledger.read(6)
    with pytest.raises(ValueError, match="read twice"):
        ledger.read(6)


def test_what_of_a_half_finished_record_is_done_is_kept_until_it_is_settled() -> None:
    ledger = Ledger(Position(5))
    ledger.read(5)
    ledger.note_done(5, frozenset({(0, 0)}))
    assert ledger.position.done == {5: frozenset({(0, 0)})}
    ledger.settle(5)
    assert ledger.position == Position(6)


@settings(max_examples=SCHEDULES, deadline=None)
@given(st.integers(0, 2**32))
def test_no_random_schedule_moves_the_mark_past_open_work_or_runs_settled_work_again(seed: int) -> None:
    """Random gaps, completion orders, crashes: against a model that is too simple to be wrong."""
    chance = random.Random(seed)
    log = sorted(chance.sample(range(100, 200), chance.randrange(1, 60)))
    truly_settled: set[int] = set()
    position = Position(chance.randrange(95, 101))
    for _ in range(chance.randrange(1, 5)):
        ledger = Ledger(position)
        open_now: list[int] = []
        for record_offset in [one for one in log if one >= position.mark]:
            if chance.random() < 0.1:
                break  # a crash, or the end of the round
            if ledger.read(record_offset):
                assert record_offset not in truly_settled, "settled work would run again"
                open_now.append(record_offset)
            else:
                assert record_offset in truly_settled, "open work would be skipped"
            while open_now and chance.random() < 0.5:
                settled = open_now.pop(chance.randrange(len(open_now)))
                ledger.settle(settled)
                truly_settled.add(settled)
            assert all(one in truly_settled for one in log if one < ledger.mark)
        assert ledger.mark >= position.mark, "a mark never moves back"
        position = decode(ledger.mark, encode(ledger.position, HOME), HOME).position
        assert position == ledger.position
    ledger = Ledger(position)
    left = [one for one in log if one >= position.mark and ledger.read(one)]
    assert truly_settled | set(left) == set(log)
    assert not truly_settled & set(left)


# --- the coding

HOME = Home(group="billing", topic_id="Zm9v", partition=3, sinks="abc")


def test_a_position_survives_its_metadata() -> None:
    position = Position(1000, ((1001, 1005), (1010, 2000)), {1000: frozenset({(0, 0), (0, 1), (1, 0)})})
    stored = decode(1000, encode(position, HOME), HOME)
    assert stored.position == position
    assert stored.topic_id == HOME.topic_id


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), max_size=60))
def test_any_ahead_survives_its_metadata(steps: list[tuple[int, int]]) -> None:
    ranges, at = [], 50
    for skip, length in steps:
        ranges.append((at + skip, at + skip + length))
        at += skip + length
    position = Position(50, tuple(ranges))
    assert decode(50, encode(position, HOME), HOME).position == position


def test_a_stuck_record_with_fifty_thousand_done_after_it_takes_few_bytes() -> None:
    assert len(encode(Position(7, ((8, 50_008),)), HOME)) < 150


def test_of_ahead_that_does_not_fit_the_far_end_is_left_out_which_repeats_and_loses_nothing() -> None:
    chance = random.Random(1)
    scattered = tuple((one * 50, one * 50 + chance.randrange(1, 30)) for one in range(1, 20_000))
    text = encode(Position(0, scattered), HOME)
    assert len(text) <= METADATA_BYTES
    kept = decode(0, text, HOME).position.ahead
    assert kept == scattered[: len(kept)]
    assert len(kept) > 200


def test_a_ledger_is_full_before_one_more_batch_could_overflow_a_commit() -> None:
    ledger = Ledger(Position(0))
    record_offset = 0
    while not ledger.is_full:
        for _ in range(1000):  # a batch in which every second record fails, far apart
            ledger.read_once(record_offset)
            ledger.read_once(record_offset + 3)
            ledger.settle(record_offset + 3)
            record_offset += 7
    assert decode(0, encode(ledger.position, HOME), HOME).position == ledger.position
    assert record_offset > 1000


def test_a_record_is_taken_once_however_often_it_is_met() -> None:
    ledger = Ledger(Position(5))
    ledger.read_once(5)
    ledger.read_once(6)
    ledger.read_once(5)
    ledger.settle(6)
    assert ledger.position == Position(5, ((6, 7),))
    ledger.settle(5)
    assert ledger.position == Position(7)
    assert not ledger.has_open


def test_progress_that_does_not_fit_is_left_out_which_repeats_and_loses_nothing() -> None:
    position = Position(5, ((6, 7),), {5: frozenset((child, 0) for child in range(4000))})
    text = encode(position, HOME)
    assert len(text) <= METADATA_BYTES
    assert decode(5, text, HOME).position == Position(5, ((6, 7),))


FOREIGN = [
    "",
    None,
    "\0",
    "hello",
    "{}",
    "[]",
    "42",
    '{"tidegate":2}',
    '{"tidegate":1}',
    '{"tidegate":1,"topic":"Zm9v"}',
]


@pytest.mark.parametrize("metadata", FOREIGN)
def test_foreign_metadata_is_ignored(metadata: str | None) -> None:
    assert decode(5, metadata, HOME).position == Position(5)


@pytest.mark.parametrize(
    ("mark", "home"),
    [
        (6, HOME),
        (5, Home("other", HOME.topic_id, 3, "abc")),
        (5, Home("billing", HOME.topic_id, 4, "abc")),
    ],
    ids=["another mark", "another group", "another partition"],
)
def test_metadata_copied_from_elsewhere_is_ignored(mark: int, home: Home) -> None:
    text = encode(Position(5, ((7, 9),)), HOME)
    assert decode(mark, text, home).position == Position(mark)


def test_metadata_of_another_topic_of_the_same_name_says_so() -> None:
    text = encode(Position(5), HOME)
    assert decode(5, text, Home("billing", "YmFy", 3, "abc")).topic_id == HOME.topic_id


def test_progress_noted_for_other_sinks_is_not_believed() -> None:
    text = encode(Position(5, (), {5: frozenset({(0, 0)})}), HOME)
    assert decode(5, text, Home("billing", HOME.topic_id, 3, "other")).position == Position(5)


@settings(max_examples=500, deadline=None)
@given(st.integers(0, 2**32))
def test_damaged_metadata_never_skips_a_record(seed: int) -> None:
    chance = random.Random(seed)
    true_ahead = ((7, 9), (11, 15))
    text = list(encode(Position(5, true_ahead), HOME))
    for _ in range(chance.randrange(1, 4)):
        place = chance.randrange(len(text))
        match chance.randrange(3):
            case 0:
                text[place] = chance.choice(string.printable)
            case 1:
                del text[place]
            case _:
                text.insert(place, chance.choice(string.printable))
    assert decode(5, "".join(text), HOME).position.ahead in ((), true_ahead)


def test_the_prefix_is_what_is_through_without_a_hole_and_says_where_it_leads() -> None:
    for seed in range(200):
        chance = random.Random(seed)
        ahead = ((12, 15),) if seed % 2 else ()
        ledger = Ledger(Position(5, ahead))
        offsets = sorted(chance.sample(range(5, 40), 20))
        for one in offsets:
            ledger.read_once(one)
            if any(first <= one < end for first, end in ahead):
                ledger.settle(one)
        open_ones = [one for one in offsets if not ledger.is_settled(one)]
        through = set(chance.sample(open_ones, chance.randrange(len(open_ones) + 1)))
        most = chance.randrange(1, 30)
        before = ledger.position
        found, position = ledger.prefix(through, most)
        expected: list[int] = []
        for one in open_ones:
            if one not in through or len(expected) == most:
                break
            expected.append(one)
        assert found == expected
        assert ledger.position == before, "nothing is settled by asking"
        for one in found:
            ledger.settle(one)
        assert position == ledger.position


def test_the_number_of_a_rewind_stays_with_its_position_and_in_its_metadata() -> None:
    ledger = Ledger(Position(5, replay=1_763_000_000_123))
    for record_offset in range(5, 8):
        ledger.read(record_offset)
    ledger.settle(6)
    assert ledger.position == Position(5, ((6, 7),), replay=1_763_000_000_123)
    text = encode(ledger.position, HOME)
    assert decode(5, text, HOME).position == ledger.position
    other = text.replace("1763000000123", "1763000000124")
    assert decode(5, other, HOME).position == Position(5), "the checksum covers it"


PLANS = st.builds(
    PlannedRound,
    st.text(string.digits + string.ascii_letters + "-", min_size=1, max_size=30),
    st.integers(0, 2**62),
    st.sets(st.builds(Partition, st.sampled_from(["a", "b.c", "x-y_z"]), st.integers(0, 300)), max_size=40).map(
        lambda found: tuple(sorted(found))
    ),
)


@given(st.integers(0, 2**62), st.one_of(st.none(), PLANS), st.text(string.digits + "-", max_size=20))
def test_any_planned_round_survives_its_metadata(mark: int, planned: PlannedRound | None, finished: str) -> None:
    home = Home("g", "topic-id", 3, "s")
    position = Position(mark, replay=4, planned=planned, finished=finished)
    assert decode(mark, encode(position, home), home).position == position


def test_metadata_without_a_planned_round_is_written_as_it_always_was() -> None:
    home = Home("g", "topic-id", 3, "s")
    written = '{"tidegate":1,"topic":"topic-id","replay":4,"sum":"SUM"}'
    text = encode(Position(7, replay=4), home)
    assert text[:-18] + 'SUM"}' == written
    assert decode(7, text, home).position == Position(7, replay=4)


@pytest.mark.parametrize("seed", range(20))
def test_a_damaged_planned_round_is_never_believed(seed: int) -> None:
    chance = random.Random(seed)
    home = Home("g", "topic-id", 3, "s")
    position = Position(7, planned=PlannedRound("17-ab", 90, (Partition("a", 3), Partition("b", 4))), finished="16-c")
    text = list(encode(position, home))
    for _ in range(chance.randrange(1, 4)):
        text[chance.randrange(len(text))] = chance.choice(string.printable)
    found = decode(7, "".join(text), home).position
    assert found in (Position(7), position)
