"""Where a group stands: by its commits, or by the marks that a database keeps with the rows.

There the table is the truth, and the group's commits follow it. Where somebody has moved the group behind its
back, nobody can say which of the two is meant: the run refuses, and `trust` decides.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidegate.errors import OffsetsDiffer, RewindRefused
from tidegate.kafka.admin import Admin
from tidegate.ledger import decode_any
from tidegate.records import Commit, Partition
from tidegate.settings import Trust

if TYPE_CHECKING:
    from tidegate.sinks.postgres_progress import PostgresProgress

logger = logging.getLogger("tidegate.marks")

MOST_SHOWN = 5


@dataclass(frozen=True)
class Standing:
    """What is stored for the partitions of a group."""

    commits: Mapping[Partition, Commit]
    behind: frozenset[Partition] = frozenset()
    """Partitions whose commit is to follow what is stored elsewhere."""


@dataclass(frozen=True)
class Agreement:
    """Pure: what two stores of marks say together."""

    commits: Mapping[Partition, Commit]
    behind: frozenset[Partition]
    differ: tuple[Partition, ...] = field(default=())
    """The group was moved, and not by us."""
    rewound: tuple[Partition, ...] = field(default=())
    """The group was moved by a rewind of ours that the table knows nothing of."""


class Truth:
    """Reads and moves where the group stands. Blocks: never call it from a callback."""

    def __init__(self, admin: Admin, group: str, table: PostgresProgress | None, trust: Trust | None) -> None:
        self._admin = admin
        self._group = group
        self._table = table
        self._trust = trust

    def read(self, partitions: Iterable[Partition], *, require_stable: bool = False) -> Standing:
        """Return where the group stands; that it was moved behind the table's back is an error, or decided about."""
        wanted = list(partitions)
        committed = self._admin.committed(self._group, wanted, require_stable=require_stable)
        if self._table is None:
            return Standing(committed)
        stored = self._table.read(wanted)
        found = compare(self._group, committed, stored)
        if found.rewound:
            # Whether this was done or another copy was quicker: what is stored now says it.
            self._table.move({partition: committed[partition] for partition in found.rewound})
            return self.read(wanted, require_stable=require_stable)
        if not found.differ:
            return Standing(found.commits, found.behind)
        if self._trust is None:
            raise _differ(self._group, found.differ, committed, stored)
        logger.warning(
            "group and table differ for %s; the %s is trusted",
            ", ".join(map(str, found.differ)),
            self._trust,
            extra={"action": "trusted"},
        )
        if self._trust == "table":
            return Standing(found.commits, found.behind | set(found.differ))
        moved = {partition: committed[partition] for partition in found.differ}
        if not self._table.move(moved):
            return self.read(wanted, require_stable=require_stable)  # another copy that was told the same was quicker
        return Standing({**found.commits, **moved}, found.behind)

    def everything(self, partitions: Iterable[Partition]) -> tuple[Mapping[Partition, Commit], ...]:
        """Return what the group and the table say, each by itself and whether or not they agree."""
        wanted = list(partitions)
        committed = self._admin.committed(self._group, wanted)
        return (committed,) if self._table is None else (committed, self._table.read(wanted))

    @property
    def has_table(self) -> bool:
        """Whether a database keeps the marks too."""
        return self._table is not None

    def enter(self, commits: Mapping[Partition, Commit]) -> Mapping[Partition, Commit]:
        """Store where partitions are to begin that had no mark when they were read; return where they do begin.

        Not by overwriting. Otherwise: two copies find nothing; one chooses, joins and writes rows; the other, which
        was held up, sets the table back, and they are written again.
        """
        return commits if self._table is None or not commits else self._table.enter(commits)

    def move(self, commits: Mapping[Partition, Commit]) -> bool:
        """Go on elsewhere, unless somebody has moved these since they were read: a driver may freeze in between."""
        return self._table is None or not commits or self._table.move(commits)

    def rewind(self, commits: Mapping[Partition, Commit]) -> None:
        """Move what is stored beside the group, on which nobody works.

        Should a round of another process store something in between, these are no longer ours to move.
        """
        if self._table is not None and not self._table.overtake(commits):
            raise RewindRefused("somebody else moves the same partitions", "ask again")

    def close(self) -> None:
        """Ask no more."""
        if self._table is not None:
            self._table.close()


def compare(group: str, committed: Mapping[Partition, Commit], stored: Mapping[Partition, Commit]) -> Agreement:
    """Say where the group stands.

    After a crash the group is behind the table, by a commit of ours, or by a rewind that the table has seen already.
    A rewind while nothing ran moved the group alone: the table is to follow it. Anything else that differs was done by
    others: a commit that is not ours, or one of ours that is beyond the table (the database was restored from a copy).
    So it is with a later rewind that work has followed: the table had seen that, and has not any more.
    `lost` may move a table back, into a log that was cut off; the group, which it left there, is to follow.
    """
    commits = {**committed, **stored}
    differ, rewound = [], []
    behind = set()
    for partition, row in stored.items():
        commit = committed.get(partition)
        if commit is None:
            behind.add(partition)
            continue
        ours, table = (
            decode_any(group, partition, commit.mark, commit.metadata),
            decode_any(group, partition, row.mark, row.metadata),
        )
        newer = ours.position.replay - table.position.replay
        if ours.topic_id is not None and newer > 0 and ours.is_move:
            rewound.append(partition)
        elif newer > 0:
            differ.append(partition)
        elif commit.mark == row.mark:
            continue
        elif ours.topic_id is not None and (newer < 0 or commit.mark < max(row.mark, (table.left or 0) + 1)):
            behind.add(partition)
        else:
            differ.append(partition)
    return Agreement(commits, frozenset(behind), tuple(sorted(differ)), tuple(sorted(rewound)))


def _differ(
    group: str,
    partitions: Iterable[Partition],
    committed: Mapping[Partition, Commit],
    stored: Mapping[Partition, Commit],
) -> OffsetsDiffer:
    names = list(partitions)
    shown = [f"{one} (group {committed[one].mark}, table {stored[one].mark})" for one in names[:MOST_SHOWN]]
    more = f" and {len(names) - MOST_SHOWN} more" if len(names) > MOST_SHOWN else ""
    return OffsetsDiffer(
        f"group {group} was moved behind the back of its table: {', '.join(shown)}{more}",
        "start once with --trust table (go on where the rows end) or --trust group (rows may be written again)",
    )
