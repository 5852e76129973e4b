"""Where a group stands when its commits and a table's marks are compared."""

from __future__ import annotations

import pytest

from tidegate.engine.lost import Log, Policy, Stood, find_loss
from tidegate.engine.truth import compare
from tidegate.ledger import Home, encode
from tidegate.records import Commit, Partition, Position

P = Partition("orders", 0)


def ours(mark: int, group: str = "billing", replay: int = 0) -> Commit:
    return Commit(mark, encode(Position(mark, replay=replay), Home(group, "an id", P.number, "sinks")))


def rewound(mark: int, group: str = "billing", replay: int = 0) -> Commit:
    home = Home(group, "an id", P.number, "sinks")
    return Commit(mark, encode(Position(mark, replay=replay), home, is_move=True))


def foreign(mark: int) -> Commit:
    return Commit(mark, "")


ROW = ours(100)

CASES = [
    ("neither knows anything", None, None, None, "agree"),
    ("the table is new", ours(40), None, 40, "agree"),
    ("both alike", ours(100), ROW, 100, "agree"),
    ("reset to where it stands anyway", foreign(100), ROW, 100, "agree"),
    ("a crash between row and commit", ours(60), ROW, 100, "behind"),
    ("the group was deleted, or has expired", None, ROW, 100, "behind"),
    ("reset to an earlier record", foreign(60), ROW, 100, "differ"),
    ("reset to a later record", foreign(140), ROW, 100, "differ"),
    ("the database was restored from a copy", ours(140), ROW, 100, "differ"),
    ("a commit of ours for another group", ours(60, "other"), ROW, 100, "differ"),
    ("rewound while it stood", rewound(60, replay=7), ROW, 100, "rewound"),
    ("rewound forward while it stood", rewound(140, replay=7), ROW, 100, "rewound"),
    ("rewound to where it stands anyway", rewound(100, replay=7), ROW, 100, "rewound"),
    ("killed in a rewind, after the row", ours(100), ours(60, replay=7), 60, "behind"),
    ("killed in the work after a rewind", ours(60, replay=7), ours(80, replay=7), 80, "behind"),
    ("rewound again while it stood", rewound(90, replay=8), ours(80, replay=7), 80, "rewound"),
    ("restored from a copy of before a rewind", ours(3000, replay=7), ROW, 100, "differ"),
    ("the same, and the group stands where the copy does", ours(100, replay=7), ROW, 100, "differ"),
    ("a rewind of another group", rewound(60, "other", replay=7), ROW, 100, "differ"),
]


@pytest.mark.parametrize(("commit", "row", "mark", "verdict"), [case[1:] for case in CASES], ids=[c[0] for c in CASES])
def test_the_table_is_the_truth_unless_somebody_moved_the_group(
    commit: Commit | None, row: Commit | None, mark: int | None, verdict: str
) -> None:
    found = compare("billing", {} if commit is None else {P: commit}, {} if row is None else {P: row})
    stands = found.commits.get(P)
    assert (None if stands is None else stands.mark) == mark
    verdicts = {"behind": P in found.behind, "differ": P in found.differ, "rewound": P in found.rewound}
    assert [name for name, is_so in verdicts.items() if is_so] == [verdict] * (verdict != "agree")


@pytest.mark.parametrize("topic_id", ["an id", "another id"])
@pytest.mark.parametrize("policy", ["earliest", "latest"])
@pytest.mark.parametrize("replay", [0, 7])
def test_a_group_follows_its_table_back_into_a_log_that_was_cut_off_though_its_commit_was_not_taken(
    topic_id: str, policy: Policy, replay: int
) -> None:
    """The table is moved before the group is: in between the broker refuses, or the process dies."""
    stood, log = Stood(Position(100, replay=replay), "an id", 100), Log(topic_id, 0, 40)
    loss = find_loss(P, stood, log, policy)
    assert loss is not None
    assert loss.resume is not None
    assert loss.resume.mark < 100
    home = Home("billing", topic_id, P.number, "sinks")
    row = Commit(loss.resume.mark, encode(loss.resume, home, left=loss.mark))
    for group_at in (90, 100):  # its last commit may have been on its way
        found = compare("billing", {P: ours(group_at, replay=replay)}, {P: row})
        assert found.commits[P] == row
        assert P in found.behind
        assert P not in found.differ + found.rewound
    found = compare("billing", {P: ours(101, replay=replay)}, {P: row})
    assert found.differ == (P,), "restored from a copy of just that moment"
