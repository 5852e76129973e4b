"""How safe a group's own topics are: as safe as what they hold copies of."""

from __future__ import annotations

import pytest

from tidegate.engine.own_topics import as_safe
from tidegate.kafka.admin import TopicInfo

CASES = [
    # chosen, replicas and min.insync.replicas of the sources, replicas and min.insync.replicas, because
    (-1, [(3, "2")], 3, "2", "a copy is as safe as its record"),
    (-1, [(1, "1"), (3, "2")], 3, "2", "the safest of the sources counts"),
    (-1, [(1, "1")], 1, None, "one broker can have one copy"),
    (-1, [(1, "2")], 1, None, "a source that takes nothing must not make topics that take nothing"),
    (2, [(3, "2")], 2, "2", "a chosen number is taken"),
    (1, [(3, "2")], 1, None, "and one replica cannot be two"),
    (-1, [], -1, None, "a pattern that fits nothing yet: the broker's default"),
    (-1, [(3, None)], 3, None, "no right to read the sources' settings"),
]


@pytest.mark.parametrize(
    ("chosen", "sources", "replication", "insync", "because"), CASES, ids=[row[-1] for row in CASES]
)
def test_own_topics_are_as_safe_as_their_sources(
    chosen: int, sources: list[tuple[int, str | None]], replication: int, insync: str | None, because: str
) -> None:
    infos = [TopicInfo("t", "id", 1, number) for number, _ in sources]
    configs = [{"min.insync.replicas": least} for _, least in sources if least is not None]
    expected = (replication, {} if insync is None else {"min.insync.replicas": insync})
    assert as_safe(chosen, infos, configs) == expected, because
