"""Effects of records on their way into a store, sealed in a thread of its own while the work goes on.

A record that ran through its functions is not settled yet: what its sinks made of it lies here until the store
has it. Where the store keeps the marks too, effects leave in the order of their partition, so that a mark never
passes a record whose effect is still open.
"""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tidegate.context import Message
from tidegate.engine.books import Books
from tidegate.engine.failure import say_where
from tidegate.errors import BrokerUnreachable, Unavailable
from tidegate.ledger import Home, decode, encode
from tidegate.records import Commit, Done, Lease, LeasedPartition, Partition, Position
from tidegate.store import Effect, Overtaken, Poisoned, Store, refused_copy

if TYPE_CHECKING:
    from tidegate.engine.attempts import Attempt
    from tidegate.engine.copying import Failed

logger = logging.getLogger("tidegate.store")

SEAL_SECONDS = 0.1
"""What is through waits at most this long for others to go with it."""
AGAIN_SECONDS = 1.0
GAP_SECONDS = 2.0
"""Marks that move without an effect (a record that was skipped, one that was aborted) are sealed within this time."""
MOST_WAITING = 50_000
MOST_BYTES = 64_000_000
"""So much may wait for the store before nothing more is read."""
GARBAGE_AFTER = 10_000
"""Python looks for garbage each time that so many objects were made. What waits here are many small ones without a
circle, and with the usual number (700) to look at them took a quarter of a record's time."""
NO_LIMIT = 1_000_000_000
NOWHERE = Position(-1)


class Pending(Effect):
    """A record that is through its functions, and what it has come to.

    One is made per record, and most are ordinary: what others have besides is set where they are made.
    """

    kind: int = 0
    """Its place in `Counts`."""
    attempt: Attempt | None = None
    """None: an ordinary first attempt."""
    failed: Failed | None = None
    """Where it is on its way to another topic."""
    done: Done = frozenset()

    def __init__(self, outputs: Sequence[Any], message: Message) -> None:
        self.outputs = outputs
        self.message = message


class Vault:
    """The effects of one round. `put`, `take_refused`, `drain` and `close` are for the work thread."""

    def __init__(self, store: Store, books: Books, homes: Mapping[Partition, Home]) -> None:
        self.store = store
        self._books = books
        self._homes = homes
        self._sealed: dict[Partition, Position] = {}
        """The marks that the store has, where it keeps them."""
        # By topic and number, which is a `Partition` too: to make one per record takes longer than all the rest.
        self._through: defaultdict[tuple[str, int], dict[int, Pending]] = defaultdict(dict)
        self._waiting = 0
        self._bytes = 0
        self._first_at = 0.0
        self._not_before = 0.0
        self._most = NO_LIMIT
        """Most effects of one seal, while one that the store refuses is being looked for."""
        self._is_blocked = False
        """All effects that wait lie behind records that are open."""
        self._look_for_gaps_at = 0.0
        self._is_sealing = self._is_hurried = self._is_closing = False
        self._refused: list[tuple[Pending, BaseException]] = []
        self.taken = 0
        """Records whose outputs the store has taken."""
        self.overtaken: str | None = None
        self.broken: BaseException | None = None
        self._garbage_after: tuple[int, int, int] | None = None
        """What was set before this round."""
        self._changed = threading.Condition()
        self._sealer = threading.Thread(target=self._serve, name="tidegate-seal", daemon=True)

    # --- for the work thread

    def begin(self, lease: Lease) -> None:
        """Shut out whoever worked on these partitions before, and let the work begin where the store stands."""
        membership = b"" if lease.backing is None else lease.backing.membership
        self.store.follow(None if lease.backing is None else lease.backing.before, lease.round)
        found = self.store.begin([item.partition for item in lease.partitions], membership)
        self._check_copies()
        if self.store.keeps_progress:
            stood = {item.partition: self._stored(item, found.get(item.partition)) for item in lease.partitions}
            begins = {
                item.partition: position
                for item in lease.partitions
                if (position := _begins(item.position, stood[item.partition], in_group=bool(membership))) is not None
            }
            self._books.restart(begins)
            self._sealed = {partition: position or NOWHERE for partition, position in stood.items()}
        self._garbage_after = gc.get_threshold()
        first, *others = self._garbage_after
        if first:  # 0: somebody has switched it off
            gc.set_threshold(max(first, GARBAGE_AFTER), *others)
        self._sealer.start()

    def _stored(self, item: LeasedPartition, commit: Commit | None) -> Position | None:
        """Where the store stands; None if it knows nothing of this topic, which may have been made anew."""
        home = self._homes[item.partition]
        if commit is None:
            return None
        stored = decode(commit.mark, commit.metadata, home)
        return stored.position if stored.topic_id in (None, home.topic_id) else None

    def put(self, pendings: list[Pending]) -> None:
        """These records are through, each partition's in order as far as they were run in order."""
        with self._changed:
            for pending in pendings:
                message = pending.message
                self._through[message.topic(), message.partition()][message.offset()] = pending
            self._bytes += _size(pendings)
            if not self._waiting:
                self._first_at = time.monotonic()
            self._waiting += len(pendings)
            self._is_blocked = False
            self._not_before = 0.0
            self._changed.notify_all()

    def take_refused(self) -> list[tuple[Pending, BaseException]]:
        """Return the records that the store did not take: their failure is decided about like any other."""
        with self._changed:
            refused, self._refused = self._refused, []
            return refused

    @property
    def is_full(self) -> bool:
        """Whether so much waits that nothing more should be read."""
        return self._waiting >= MOST_WAITING or self._bytes >= MOST_BYTES

    @property
    def is_held_up(self) -> bool:
        """Whether all that waits lies behind records that are open: only what becomes of these makes room."""
        return self._waiting > 0 and self._is_blocked and not self._is_sealing

    @property
    def is_busy(self) -> bool:
        """Whether the store is to take something now, or is just taking it."""
        return self._is_sealing or (self._waiting > 0 and not self._is_blocked)

    def wait(self, seconds: float) -> None:
        """Wait until something has changed, or so long."""
        with self._changed:
            self._changed.wait(seconds)

    def hurry(self) -> bool:
        """The round ends: seal all that can be sealed. True once nothing more can be."""
        with self._changed:
            self._is_hurried = True
            self._changed.notify_all()
            if self.overtaken is not None or self.broken is not None or not self._sealer.is_alive():
                return True
            waits = self._not_before > time.monotonic()
            return not self._is_sealing and (waits or not (self._has_effects or self._has_marks))

    def close(self) -> None:
        """End the sealing; what is being sealed is waited for: the store serves the next round too."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        if self._sealer.is_alive():
            self._sealer.join()
            self.store.end()
        if self._garbage_after is not None:
            gc.set_threshold(*self._garbage_after)

    # --- inside: the sealing thread

    def _serve(self) -> None:
        while self._next():
            try:
                self._seal()
            except BaseException as error:  # noqa: BLE001  # told to the work thread, which ends the round with it
                self.broken = error
            with self._changed:
                self._is_sealing = False
                self._changed.notify_all()

    def _next(self) -> bool:
        """Wait until there is something to seal; False: the round is over."""
        with self._changed:
            while not self._is_closing and self.overtaken is None and self.broken is None:
                now, due = time.monotonic(), self._due()
                if due is not None and now >= due:
                    self._is_sealing = True
                    return True
                self._changed.wait(self._wait_seconds(now, due))
            return False

    def _due(self) -> float | None:
        """When there is something to seal; None: nothing yet."""
        if self._has_effects:
            return max(0.0 if self._is_hurried else self._first_at + SEAL_SECONDS, self._not_before)
        now = time.monotonic()
        if not self._is_hurried and now < self._look_for_gaps_at:
            return None
        self._look_for_gaps_at = now + GAP_SECONDS
        return self._not_before if self._has_marks else None

    def _wait_seconds(self, now: float, due: float | None) -> float | None:
        if due is not None:
            return due - now
        return self._look_for_gaps_at - now if self._sealed else None

    @property
    def _has_effects(self) -> bool:
        return self._waiting > 0 and not self._is_blocked

    @property
    def _has_marks(self) -> bool:
        """Whether marks have moved that the store does not have."""
        return any(self._books.prefix(partition, (), 0)[1] != sealed for partition, sealed in self._sealed.items())

    def _seal(self) -> None:
        chosen, positions = self._choose()
        if not chosen and not positions:
            return
        commits = {tp: Commit(one.mark, encode(one, self._homes[tp])) for tp, one in positions.items()}
        try:
            refused = self.store.seal(chosen, commits)
        except Poisoned as error:
            # Those before the suspect first. Where there is none, the half of them, until the culprit stands alone:
            # one bad record must not cost a transaction per good one.
            self._most = max(1, len(chosen) // 2 if error.suspect is None else error.suspect)
        except BrokerUnreachable as error:
            self._try_later(error)
        except Unavailable as error:
            self._find_away(chosen, error)
        except Overtaken as error:
            logger.info("a round ends early: %s", error, extra={"action": "overtaken"})
            self.overtaken = str(error)
        else:
            # It is found, or not among these.
            self._most = NO_LIMIT if refused or self._most >= MOST_WAITING else self._most * 2
            self._book(chosen, positions, refused)
            self._check_copies()

    def _check_copies(self) -> None:
        """A copy that the broker refuses is safe in the store, and somebody must be told."""
        if self.store.refused is not None:
            raise refused_copy(self.store.refused)

    def _choose(self) -> tuple[list[Pending], dict[Partition, Position]]:
        """Return what may be sealed now, and where that leads, for partitions whose mark moves by it."""
        chosen: list[Pending] = []
        positions: dict[Partition, Position] = {}
        with self._changed:
            if not self.store.keeps_progress:
                waiting = [pending for through in self._through.values() for pending in through.values()]
                return waiting[: self._most], {}
            for partition, sealed in self._sealed.items():
                through = self._through[partition]
                offsets, position = self._books.prefix(partition, through, self._most - len(chosen))
                chosen += [through[record_offset] for record_offset in offsets]
                if position != sealed:
                    positions[partition] = position
            # Here, where nothing can be put meanwhile: it would be taken for blocked, too.
            self._is_blocked = not chosen and not positions
        return chosen, positions

    def _book(
        self, chosen: list[Pending], positions: Mapping[Partition, Position], refused: Mapping[int, BaseException]
    ) -> None:
        """The store has taken these, but for the refused ones."""
        taken = [pending for number, pending in enumerate(chosen) if number not in refused] if refused else chosen
        for pending in taken:
            if pending.failed is not None:
                say_where(pending.failed.failure, f"is written to {pending.failed.topic}")
        kinds = Counter(pending.kind for pending in taken)
        if not self.store.keeps_progress:
            self._books.settle_each([pending.message for pending in taken], kinds)
        elif taken or not refused:
            self._books.settle_through(positions, kinds)
            self._sealed |= positions
        self.taken += sum(1 for pending in taken if pending.outputs)
        self._remove(taken)
        for number, error in refused.items():
            self._refuse(chosen[number], error)

    def _refuse(self, pending: Pending, error: BaseException) -> None:
        if isinstance(error, BrokerUnreachable):
            self._try_later(error)
            return
        self._remove([pending])
        with self._changed:
            self._refused.append((pending, error))

    def _find_away(self, chosen: list[Pending], error: Unavailable) -> None:
        """The store is away: the first record finds that out for all. Where its copy waits, there is only waiting."""
        if chosen and chosen[0].copy is None:
            self._refuse(chosen[0], error)
        else:
            self._try_later(error)

    def _try_later(self, error: Exception) -> None:
        logger.warning("the store does not answer; it is tried again: %s", error, extra={"action": "store_away"})
        with self._changed:
            self._not_before = time.monotonic() + AGAIN_SECONDS

    def _remove(self, pendings: list[Pending]) -> None:
        with self._changed:
            for pending in pendings:
                message = pending.message
                del self._through[message.topic(), message.partition()][message.offset()]
            self._bytes -= _size(pendings)
            self._waiting -= len(pendings)
            self._first_at = time.monotonic()


def _size(pendings: list[Pending]) -> int:
    return sum(len(pending.message.value() or b"") for pending in pendings)


def _begins(leased: Position, stored: Position | None, *, in_group: bool) -> Position | None:
    """Return where the work begins: where the store stands, but for a rewind that somebody has taken back.

    Its task began only after it was shut out, and before the group was rewound; then it committed on top of that. It is
    shut out now. A table that knows less of rewinds than the lease is another matter: it was restored.
    """
    if in_group and stored is not None and stored.replay < leased.replay:
        return leased
    return stored
