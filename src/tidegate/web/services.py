"""What requests are answered from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidegate.ops.reach import Reach
from tidegate.web.answers import Refused
from tidegate.web.auth import Tokens

if TYPE_CHECKING:
    from tidegate.engine.control import Control
    from tidegate.history.store import History
    from tidegate.ops.cluster import Cluster
    from tidegate.ops.sampler import Sampler


@dataclass(frozen=True)
class Services:
    """A cluster and all that is known about it; `history` and `control` only where there is one."""

    cluster: Cluster
    sampler: Sampler
    history: History | None = None
    control: Control | None = None
    tokens: Tokens = field(default_factory=Tokens)

    @property
    def reach(self) -> Reach:
        """By what a group with members can be moved from here."""
        return Reach(self.control, self.history)

    def need_history(self) -> History:
        """Return the history; that there is none is an error."""
        if self.history is None:
            raise Refused(404, "no_history", "there is no history to look into", "start with the setting history")
        return self.history

    def need_control(self) -> Control:
        """Return the hold on the pipeline of this process; that there is none is an error."""
        if self.control is None:
            raise Refused(
                404,
                "no_run",
                "no pipeline runs in this process",
                "ask the one that was started with tidegate run --serve",
            )
        return self.control
