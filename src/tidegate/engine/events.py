"""What can happen to a run: lanes, helpers and signals put these into the driver's one queue."""

from __future__ import annotations

import queue
from dataclasses import dataclass

from tidegate.engine.backing import Backer, ShutOut
from tidegate.engine.bulletin import Bulletin
from tidegate.engine.clock import BrokerClock
from tidegate.engine.control import Asked
from tidegate.engine.finish import EndsFound, Finish
from tidegate.engine.lanes import RoundEnded
from tidegate.engine.lookout import Looked, Lookout
from tidegate.engine.marks import MarkFinder, MarksFound
from tidegate.engine.purse import Purse
from tidegate.engine.rewinder import MovesReady, MovesStored, Rewinder
from tidegate.records import Outcome


@dataclass(frozen=True)
class RoundReported:
    """A round that still runs told what it has settled."""

    report: Outcome


Event = RoundEnded | RoundReported | MarksFound | MovesReady | MovesStored | Looked | EndsFound | ShutOut | Asked
Events = queue.SimpleQueue[Event]


@dataclass(frozen=True)
class Helpers:
    """What the loop asks beside its own work, each in a thread of its own."""

    marks: MarkFinder
    lookout: Lookout
    finish: Finish
    rewinder: Rewinder
    bulletin: Bulletin
    clock: BrokerClock | None
    """None where no retry topic is read."""
    purse: Purse | None = None
    """None where no rate was chosen."""
    backer: Backer | None = None
    """None where the driver alone stores marks."""

    @property
    def turn_seconds(self) -> float:
        """How long a lane may have to wait until it may begin a record."""
        return 0.0 if self.purse is None else self.purse.turn_seconds

    def look_at_the_clock(self) -> None:
        """Ask for the broker's time, if it is time to."""
        if self.clock is not None:
            self.clock.look()

    def note_spent(self, round_number: int, spent: int | None, *, is_over: bool) -> None:
        """A round tells how many permits it has used; None: it is over, and did not tell."""
        if self.purse is None:
            return
        if is_over:
            self.purse.close(round_number, spent)
        elif spent is not None:
            self.purse.note_spent(round_number, spent)

    def close(self) -> None:
        """Ask no more."""
        for one in (self.marks, self.lookout, self.finish, self.rewinder, self.clock, self.backer):
            if one is not None:
                one.close()
