"""The simulated clients of one process: a consumer below the real `Member`, and an `Admin`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tests.simulation.cluster import RETRY, RETRY_ID, SESSION_SECONDS, TOPIC, TOPIC_ID, Cluster
from tidegate.errors import BrokerUnreachable, GroupHasMembers
from tidegate.kafka.admin import Admin, TopicInfo
from tidegate.kafka.member import Member
from tidegate.records import Commit, Partition

if TYPE_CHECKING:
    from tests.simulation.process import Process

Positions = Mapping[Partition, Commit]
Reply = Callable[[KafkaError | None], None]
_MOST_RESENDS = 3
_MOST_POLLS = 50
_MOST_READS = 10


class SimConsumer:
    """What the client library does for a member: heartbeats, joins and commits beside the process's own thread."""

    def __init__(self, process: Process, settings: dict[str, Any]) -> None:
        self.process = process
        self._world = process.world
        self._cluster = process.cluster
        self._group = process.cluster.group
        self._on_commit = settings["on_commit"]
        self.member_id = ""
        self.session = process.sim.next_session()
        self.generation = -1
        self.owned: set[Partition] = set()
        self.joins = 0
        """Counts the requests to join: what answers an earlier one is of no use."""
        self._answered_joins = 0
        self._is_in_callback = False
        self._wants_to_join = False
        self._unknown = self._disowned = False
        self._pending: deque[tuple[str, Any]] = deque()
        self._last_arrival = 0.0
        self._polls, self._polled_at = 0, 0.0
        self._on: dict[str, Any] = {}

    # --- the group, beside the process's own thread

    def subscribe(self, _topics: list[str], **callbacks: Any) -> None:
        self._on = callbacks
        self._join()

    def become_member(self) -> None:
        self.member_id = f"{self.process}/{self.session}"

    def _join(self) -> None:
        self.joins += 1
        self._wants_to_join = False
        self._world.at(self._world.soon() + self.process.silent_seconds, self._group.join, self, self.joins)

    def hear_rebalance(self, name: str) -> None:
        """A heartbeat's answer: join again."""
        if self.process.is_dead or name != self.member_id:
            return
        if self.process.silent_seconds:
            self._world.at(self.process.silent_seconds, self.hear_rebalance, name)
        elif self._is_in_callback:
            self._wants_to_join = True
        else:
            self._join()

    def hear_unknown(self, name: str) -> None:
        """A heartbeat's answer: the session is over."""
        if self.process.is_dead or name != self.member_id or self._unknown:
            return
        if self.process.silent_seconds:
            self._world.at(self.process.silent_seconds, self.hear_unknown, name)
            return
        self._unknown = True
        if not self._is_in_callback:
            self._queue("lost", set(self.owned))

    def hear_old_generation(self, name: str, generation: int) -> None:
        """An answer: that is not the group's generation. What we have is lost, unless we are joining already."""
        is_joining = self.joins != self._answered_joins
        if self.process.is_dead or name != self.member_id or generation != self.generation or is_joining:
            return
        if self.process.silent_seconds or self._is_in_callback:
            self._world.at(max(0.3, self.process.silent_seconds), self.hear_old_generation, name, generation)
            return
        self._disowned = True
        self._queue("lost", set(self.owned))

    def take_assignment(self, joins: int, generation: int, partitions: set[Partition]) -> None:
        if joins != self.joins or self.process.is_dead or self._unknown:
            return
        if self.process.silent_seconds:
            self._world.at(self.process.silent_seconds, self.take_assignment, joins, generation, partitions)
            return
        self._answered_joins, self.generation = joins, generation
        revoked, added = self.owned - partitions, partitions - self.owned
        if revoked:
            self._wants_to_join = True
            self._queue("revoke", revoked)
        if added or not revoked:
            self._queue("assign", added)

    def _queue(self, kind: str, what: object) -> None:
        if kind != "commit":
            self._is_in_callback = True
        self._pending.append((kind, what))
        self.process.rouse()

    # --- for the member

    def poll(self, seconds: float) -> None:
        self._polls = self._polls + 1 if self._world.now == self._polled_at else 0
        self._polled_at = self._world.now
        if self._polls > _MOST_POLLS:
            raise AssertionError("the loop spins: it polls again and again, and waits nowhere")
        if not self._pending and seconds:
            self.process.nap(seconds)
        while self._pending:
            kind, what = self._pending.popleft()
            if kind == "commit":
                error, offsets = what
                self._on_commit(error, offsets)
                continue
            offsets = [TopicPartition(one.topic, one.number) for one in sorted(what)]
            self._on[f"on_{kind}"](self, offsets)
            if kind == "lost":
                self.process.sim.judge.lost(self.process, what)
            self._after_callback()

    def _after_callback(self) -> None:
        if any(kind != "commit" for kind, _ in self._pending):
            return
        if self._unknown and self.owned:
            self._queue("lost", set(self.owned))
            return
        self._is_in_callback = False
        if self._unknown or self._disowned:
            if self._unknown:
                self.member_id, self.generation = "", -1
            self._unknown = self._disowned = False
            self.session = self.process.sim.next_session()
            self._join()
        elif self._wants_to_join:
            self._join()

    def incremental_assign(self, offsets: list[TopicPartition]) -> None:
        self.owned |= {Partition(one.topic, one.partition) for one in offsets}

    def incremental_unassign(self, offsets: list[TopicPartition]) -> None:
        self.owned -= {Partition(one.topic, one.partition) for one in offsets}

    def pause(self, offsets: list[TopicPartition]) -> None:
        pass

    def memberid(self) -> str:
        return self.member_id

    def consumer_group_metadata(self) -> tuple[str, int]:
        return self.member_id, self.generation

    def close(self) -> None:
        self.joins += 1
        if not self.process.silent_seconds:
            self._world.at(self._world.soon(), self._group.leave, self.member_id)
        else:
            self._world.at(SESSION_SECONDS, self._group.expel, self.member_id)

    def committed(self, offsets: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        self.process.sleep(self._world.soon())
        if self.process.silent_seconds or self._cluster.is_loading:
            self.process.sleep(timeout)
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        found = self._cluster.offsets
        none = Commit(-1001, "")
        stored = [(one, found.get(Partition(one.topic, one.partition), none)) for one in offsets]
        return [TopicPartition(one.topic, one.partition, commit.mark, commit.metadata) for one, commit in stored]

    def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> list[TopicPartition]:
        commits = {Partition(one.topic, one.partition): Commit(one.offset, one.metadata or "") for one in offsets}
        answers: list[KafkaError | None] = []
        fiber = self._world.running

        def reply(error: KafkaError | None) -> None:
            if asynchronous:
                self._queue("commit", (error, offsets))
            else:
                answers.append(error)
                assert fiber is not None
                fiber.rouse()

        self._send(commits, reply)
        while not asynchronous and not answers:
            self.process.sleep(10.0)
        if answers and answers[0] is not None:
            if self._on and self._is_in_callback:
                self.process.sim.note_fault("the last commit before giving back was refused")
            raise KafkaException(answers[0])
        return offsets

    def _send(self, commits: Positions, reply: Reply) -> None:
        # One connection: what is sent later arrives later, but for what the client sends again by itself.
        self._last_arrival = max(self._last_arrival, self._world.now + self._world.soon())
        delay = self._last_arrival - self._world.now
        self._world.at(delay, self._arrive, self.member_id, self.generation, commits, reply, 0)

    def _arrive(self, name: str, generation: int, commits: Positions, reply: Reply, resends: int) -> None:
        if self.process.is_cut:
            self._answer(reply, KafkaError._TRANSPORT)
        elif self._cluster.is_loading and resends < _MOST_RESENDS:
            again = 0.1 + 0.1 * self._world.random()
            self._world.at(again, self._arrive, name, generation, commits, reply, resends + 1)
        elif self._cluster.is_loading:
            self._answer(reply, KafkaError.COORDINATOR_LOAD_IN_PROGRESS)
        elif (code := self._group.refusal(name, generation)) is not None:
            self._world.say(name, "commit refused", {str(tp): one.mark for tp, one in commits.items()}, code)
            self._answer(partial(self._take_refusal, name, generation, code, reply), code)
        else:
            self._cluster.store(commits, name)
            if self._world.now >= self.process.deaf_until:
                self._answer(reply, None)
            else:
                self._world.at(5.0, self._answer, reply, KafkaError._TIMED_OUT)

    def _take_refusal(self, name: str, generation: int, code: int, reply: Reply, error: KafkaError | None) -> None:
        if code == KafkaError.UNKNOWN_MEMBER_ID:
            self.hear_unknown(name)
        elif code == KafkaError.ILLEGAL_GENERATION:
            self.hear_old_generation(name, generation)
        reply(error)

    def _answer(self, reply: Reply, code: int | None) -> None:
        error = None if code is None else KafkaError(code)
        self._world.at(self._world.soon() + self.process.silent_seconds, reply, error)


class SimMember(Member):
    """The real member; it leaves without a thread."""

    def leave(self, within_seconds: float = 10.0) -> None:
        assert within_seconds
        self._is_leaving = True
        self._close()

    @staticmethod
    def _is_answered(consumer: Any) -> bool:
        return not consumer.process.silent_seconds

    @staticmethod
    def _drop(consumer: Any) -> None:
        consumer.close()


class SimAdmin(Admin):
    """Asks the simulated broker; every question takes a while, and others go on meanwhile."""

    def __init__(self, process: Process, cluster: Cluster) -> None:
        self._process = process
        self._cluster = cluster
        own = len(cluster.logs) - len(cluster.sources)
        self._infos = {TOPIC: TopicInfo(TOPIC, TOPIC_ID, len(cluster.sources), 1)}
        if own:
            self._infos[RETRY] = TopicInfo(RETRY, RETRY_ID, own, 1)

    def _wait(self) -> None:
        """Let the request arrive; the answer is read at once."""
        process = self._process
        process.sleep(process.world.soon() * process.slowness)
        if process.is_cut:
            process.sleep(1.0)
            raise BrokerUnreachable("cut off", "wait")

    def existing(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        return {name: self._infos[name] for name in names if name in self._infos}

    def beginnings(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        self._wait()
        return {tp: self._cluster.logs[tp].beginning for tp in partitions}

    def ends(self, partitions: Iterable[Partition], *, committed_only: bool = True) -> dict[Partition, int]:
        self._wait()
        logs = self._cluster.logs
        return {tp: logs[tp].readable_end if committed_only else logs[tp].end for tp in partitions}

    def committed(
        self, group: str, partitions: Iterable[Partition] | None = None, *, require_stable: bool = False
    ) -> dict[Partition, Commit]:
        assert group
        self._wait()
        tries = _MOST_READS
        while require_stable and self._process.sim.coordinator.holds_back(self._cluster.logs):
            if not (tries := tries - 1):
                raise BrokerUnreachable("a transaction holds the marks back", "wait")
            self._wait()
            self._process.sleep(1.0)
        found = self._cluster.offsets
        return {tp: found[tp] for tp in (found if partitions is None else partitions) if tp in found}

    def commit_for_empty_group(self, group: str, positions: Mapping[Partition, tuple[int, str]]) -> None:
        # It arrives at once: Kafka compares nothing here, so that nobody can rule out what comes in between.
        if not positions:
            return
        if self._cluster.group.seats:
            raise GroupHasMembers(f"group {group} has members", "stop them")
        self._cluster.store({tp: Commit(*one) for tp, one in positions.items()}, f"{self._process} from outside")
        self._wait()
