"""By what a group that has members can be moved: the broker takes commits from them alone, so they must do it.

Either its one member is a pipeline in this process, or all of its processes write one history, in which a request is
left for them.
"""

from __future__ import annotations

import getpass
import socket
import time
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.errors import GroupHasMembers, RewindRefused
from tidegate.history.chosen import chosen_history
from tidegate.settings import resolve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tidegate.engine.control import Control
    from tidegate.history.store import History
    from tidegate.kafka.admin import Admin, GroupMember
    from tidegate.records import Partition

WITHIN_SECONDS = 90.0
"""How long the members get: rounds in flight end first, and they finish what they began."""
SHOWS_UP_SECONDS = 12.0
"""A process writes into the history within seconds after it has joined."""
NAP_SECONDS = 0.2
_MONTH_SECONDS = 30 * 86_400.0


@dataclass(frozen=True)
class Reach:
    """What this process can ask to move a group."""

    control: Control | None = None
    """A pipeline in this process."""
    history: History | None = None

    def check(self, admin: Admin, group: str, members: tuple[GroupMember, ...]) -> None:
        """Raise unless every member can be asked, or there is none."""
        if not members or self._is_only_member(group, members):
            return
        strangers = self._strangers(admin, group, members)
        if not strangers:
            return
        names = ", ".join(f"{member.client_id} at {member.host}" for member in strangers[:3])
        raise GroupHasMembers(
            f"group {group} has {len(members)} members, the broker takes commits from them alone, and "
            f"{len(strangers)} of them cannot be asked from here ({names})",
            "stop every process of the group first; pipelines of Tidegate that share one `history` rewind themselves",
        )

    def move(
        self, admin: Admin, group: str, moves: Mapping[Partition, int], at_least: int, say: Callable[[str], None]
    ) -> None:
        """Let the members move, and wait until they have; `check` first."""
        members = admin.group_members(group).members
        if self._is_only_member(group, members):
            self._steer(moves, at_least)
        else:
            self._request(admin, group, moves, at_least, say)

    def _is_only_member(self, group: str, members: Iterable[GroupMember]) -> bool:
        status = None if self.control is None else self.control.status
        return status is not None and status.group == group and [one.member_id for one in members] == [status.member]

    def _strangers(self, admin: Admin, group: str, members: Iterable[GroupMember]) -> list[GroupMember]:
        """Return the members that do not write into the history, once they have had the time to."""
        if self.history is None:
            return list(members)
        cluster, deadline = admin.cluster_id(), time.monotonic() + SHOWS_UP_SECONDS
        while True:
            # Whether a member lives, the group knows: its id is all that has to be found.
            known = {run.member_id for run in self.history.live_runs(cluster, group, _MONTH_SECONDS)}
            strangers = [one for one in members if one.member_id not in known]
            ours = [one for one in strangers if one.client_id.startswith("tidegate")]
            if not ours or len(ours) < len(strangers) or time.monotonic() > deadline:
                return strangers
            time.sleep(NAP_SECONDS)  # between two looks

    def _steer(self, moves: Mapping[Partition, int], at_least: int) -> None:
        if self.control is None:
            raise RewindRefused("the run has ended", "rewind the stopped group")
        asked = self.control.rewind(moves, at_least)
        try:
            asked.result(WITHIN_SECONDS)
        except (TimeoutError, CancelledError):
            raise _late() from None

    def _request(
        self, admin: Admin, group: str, moves: Mapping[Partition, int], at_least: int, say: Callable[[str], None]
    ) -> None:
        if self.history is None:
            raise _late()
        cluster = admin.cluster_id()
        replay = self.history.ask(cluster, group, moves, by=_who(), at_least=at_least)
        say("the running pipeline is asked to rewind itself; it finishes what it has begun first")
        deadline = time.monotonic() + WITHIN_SECONDS
        while left := self._left(cluster, group, replay, moves):
            if time.monotonic() > deadline:
                self.history.withdraw(cluster, group, replay)
                left = self._left(cluster, group, replay, moves)
                if not left:
                    return
                names = ", ".join(map(str, sorted(left)))
                raise RewindRefused(
                    f"{names} were not moved within {WITHIN_SECONDS:g}s; the request for them was taken back, "
                    "unless they are just being moved",
                    f"look where the group stands: tidegate offsets {group}",
                )
            time.sleep(NAP_SECONDS)  # between two looks

    def _left(self, cluster: str, group: str, replay: int, moves: Mapping[Partition, int]) -> set[Partition]:
        if self.history is None:
            return set(moves)
        rows = {row.partition: row for row in self.history.offsets(cluster, group)}
        done = {tp for tp, row in rows.items() if row.replay == replay and row.applied_at is not None}
        # A later request has taken its place: that one is what counts now.
        overtaken = {tp for tp, row in rows.items() if (row.replay or 0) > replay}
        return set(moves) - done - overtaken


def chosen_reach() -> Reach:
    """Return what the settings let this process ask: those that write the same history."""
    return Reach(history=chosen_history(resolve({}).values.history))


def _late() -> RewindRefused:
    return RewindRefused(
        f"the pipeline has not moved within {WITHIN_SECONDS:g}s, and may still do so",
        "look where it stands, and ask again",
    )


def _who() -> str:
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (KeyError, OSError):  # a container whose user has no name
        return socket.gethostname()
