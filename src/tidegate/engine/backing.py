"""What rounds need that store marks themselves, and how a round that did not end well is shut out."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from tidegate.errors import BrokerRefused, TidegateError
from tidegate.kafka.connection import Kafka
from tidegate.kafka.member import Member
from tidegate.kafka.transactions import Transactions, fence
from tidegate.ledger import decode_any
from tidegate.records import Backing, Commit, Lease, Partition

logger = logging.getLogger("tidegate.transactions")

AGAIN_SECONDS = 1.0
REFUSALS = 5
"""So often in a row the broker may refuse before that is its answer: rights that were just given take a moment."""


@dataclass(frozen=True)
class ShutOut:
    """A round that did not end well can commit nothing more."""

    lease: Lease
    why: Exception | None
    """Why it had not ended well. `BrokerRefused`: it cannot be shut out, and nothing may go on beside it."""


class Backer:
    """Gives leases their backing. Shutting out asks the broker, in a thread of its own."""

    def __init__(
        self,
        kafka: Kafka,
        group: str,
        family: str,
        topic_id: Callable[[Partition], str],
        post: Callable[[ShutOut], None],
        *,
        in_transactions: bool,
        batch_bytes: int | None = None,
    ) -> None:
        """`family`: begins the names of all lanes of this process, and of no other."""
        self._kafka, self._group = kafka, group
        self._family = family
        self._topic_id = topic_id
        self._post = post
        self._batch_bytes = batch_bytes
        self.in_transactions = in_transactions
        """Whether rounds commit to the group themselves."""
        self._bearers: dict[str, int] = {}
        """Which round bears a lane's name, as far as we know."""
        self._asker = ThreadPoolExecutor(1, thread_name_prefix="fence")
        self._is_closed = False

    def backing(self, lease: Lease, member: Member) -> Backing:
        """Return what a round needs to store its marks."""
        ids = {item.partition: self._topic_id(item.partition) for item in lease.partitions}
        membership = member.membership if self.in_transactions else b""
        name = self._name(lease.store_lane)
        before, self._bearers[name] = self._bearers.get(name), lease.round
        return Backing(ids, membership, name, self._batch_bytes, before)

    def rewind(self, member: Member, lane: int, commits: Mapping[Partition, Commit]) -> Future[None]:
        """Store where a rewind leads by the name of a lane, so that no round which bears it stores older marks on top.

        Otherwise: a round that was shut out begins late, and takes its name; the group is rewound; the round commits.
        As a transaction of that name it is one or the other: the round is shut out, or we are; or it begins behind
        us, and reads where the group stands now.
        """
        name = self._name(lane)
        self._bearers.pop(name, None)
        return self._asker.submit(self._rewind, name, member.membership, commits)

    def shut_out(self, lease: Lease, why: Exception | None) -> None:
        """See to it that a round that may still run commits nothing more; say so when it is certain.

        Otherwise: its partitions go to another lane, which reads where they stand; then the old round commits, and
        what it did is done twice.
        """
        self._bearers.pop(self._name(lease.store_lane), None)
        self._asker.submit(self._shut_out, lease, why)

    def close(self) -> None:
        """Ask no more."""
        self._is_closed = True
        self._asker.shutdown(wait=False)

    def _shut_out(self, lease: Lease, why: Exception | None) -> None:
        refusals = 0
        while not self._is_closed:
            try:
                fence(self._kafka, self._name(lease.store_lane))
            except TidegateError as error:
                refusals = refusals + 1 if isinstance(error, BrokerRefused) else 0
                if refusals >= REFUSALS:
                    self._post(ShutOut(lease, error))
                    return
                logger.warning("round %d cannot be shut out yet: %s", lease.round, error, extra={"action": "unfenced"})
                time.sleep(AGAIN_SECONDS)  # between two tries
            else:
                self._post(ShutOut(lease, why))
                return

    def _rewind(self, name: str, membership: bytes, commits: Mapping[Partition, Commit]) -> None:
        store = Transactions(self._kafka, self._group, name)
        try:
            found = store.begin(list(commits), membership)
            # An earlier try may have done it, unheard; then a round may have gone on from there.
            missing = {
                tp: one for tp, one in commits.items() if self._replay(tp, found.get(tp)) < self._replay(tp, one)
            }
            if missing:
                store.seal((), missing)
                store.begin(list(commits), membership)  # read again, as soon as they are there for everybody
        finally:
            store.discard()

    def _replay(self, partition: Partition, commit: Commit | None) -> int:
        if commit is None:
            return -1
        return decode_any(self._group, partition, commit.mark, commit.metadata).position.replay

    def _name(self, lane: int) -> str:
        return f"{self._family}.{lane}"
