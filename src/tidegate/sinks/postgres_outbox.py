"""Copies whose transaction is through, on their way from the outbox to Kafka: they may repeat, they are never lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from tidegate.errors import BrokerUnreachable
from tidegate.sinks import postgres_tables as tables
from tidegate.sinks.postgres_link import Link
from tidegate.store import Outgoing

Relay = Callable[[Sequence[Outgoing]], Mapping[int, BaseException]]
"""Writes copies to Kafka, waits for the acknowledgements, and returns which failed, by place."""

_SENT_AT_ONCE = 100
_SEND_SECONDS = 5.0
"""After this no more copies are taken from the outbox: a long outage's rest must not hold up the round."""


class Outbox:
    """The copies of one group that wait to be sent."""

    def __init__(self, link: Link, group: str, relay: Relay) -> None:
        self._link = link
        self._group = group
        self._relay = relay
        self.may_have_unsent = False
        """Whether there may be copies that nobody has sent."""
        self.refused: BaseException | None = None
        """Why the broker will never take a copy that waits here; None while there is no such copy."""

    def send(self) -> None:
        """Send what is there, oldest first, and delete what was acknowledged.

        If we die between the two, or the delete fails, copies are sent again: they may repeat, they are never lost.
        """
        self.refused, self.may_have_unsent = None, True
        last, is_reachable, until = 0, True, time.monotonic() + _SEND_SECONDS
        while is_reachable and time.monotonic() < until:
            with self._link.transaction() as connection:
                posted = tables.take_posted(connection, self._group, last, _SENT_AT_ONCE)
                if not posted:
                    self.may_have_unsent = self.refused is not None
                    return
                failed = self._sent([copy for _, copy in posted])
                tables.delete_posted(connection, [id_ for at, (id_, _) in enumerate(posted) if at not in failed])
                connection.commit()
            last = posted[-1][0]
            is_reachable = not any(isinstance(error, BrokerUnreachable) for error in failed.values())

    def _sent(self, copies: Sequence[Outgoing]) -> Mapping[int, BaseException]:
        try:
            failed = self._relay(copies)
        except Exception as error:  # noqa: BLE001  # whatever it is, no copy is known to be written
            failed = dict.fromkeys(range(len(copies)), error)
        refusals = [error for error in failed.values() if not isinstance(error, BrokerUnreachable)]
        self.refused = self.refused or (refusals[0] if refusals else None)
        return failed
