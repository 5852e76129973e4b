"""An older commit never comes to lie over a newer one, although the client sends refused ones again by itself."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import KafkaError

from tests.support import broker_behind_proxy, wait_until
from tidegate.kafka.admin import Admin
from tidegate.kafka.commits import read_commits
from tidegate.kafka.connection import Kafka
from tidegate.kafka.member import Callbacks, Joining, Member, Refused
from tidegate.records import Commit, Partition
from tidegate.testing import KafkaProxy, RefuseCommits


class Copy:
    """A member that, asked for a partition, still has a refused commit of it on its way."""

    def __init__(self, kafka: Kafka, proxy: KafkaProxy) -> None:
        self._proxy = proxy
        self.owned: list[Partition] = []
        self.revoked: list[Partition] = []
        self.refusals = 0
        callbacks = Callbacks(self.owned.extend, self._give_back, self._lose, self._answered)
        self.member = Member(kafka, Joining("g", 6.0), callbacks)
        self.member.join(["t"])

    def _give_back(self, partitions: list[Partition]) -> None:
        self.revoked.extend(partitions)
        with self._proxy.under(RefuseCommits(KafkaError.COORDINATOR_LOAD_IN_PROGRESS)) as refusal:
            self.member.commit({one: Commit(100, "older") for one in partitions})
            wait_until(lambda: refusal.struck > 0, within=10, what="a refusal")
        self.refusals += refusal.struck
        assert self.member.commit_now({one: Commit(150, "newer") for one in partitions}) == {}

    def _lose(self, partitions: list[Partition]) -> None:
        raise AssertionError(f"lost {partitions}")

    def _answered(self, taken: Mapping[Partition, Commit], refused: Mapping[Partition, Refused]) -> None:
        pass


def test_the_commit_of_a_revoke_comes_after_the_one_that_was_on_its_way() -> None:
    with broker_behind_proxy() as proxy:
        kafka = Kafka(proxy.bootstrap)
        Admin(kafka, 20.0).create_topic("t", 2)
        copies = [Copy(kafka, proxy)]

        def turn() -> None:
            for copy in copies:
                copy.member.poll(0.02)

        def has_both() -> bool:
            turn()
            return len(copies[0].owned) == 2

        def has_one() -> bool:
            turn()
            return len(copies[1].owned) == 1 and not copies[0].member.is_committing

        wait_until(has_both, within=30, what="the first has both partitions")
        copies.append(Copy(kafka, proxy))
        wait_until(has_one, within=30, what="one goes to the second, and the first has all its answers")
        assert copies[0].refusals > 0
        marks = [one.mark for one in read_commits(kafka, "g") if one.partition in copies[0].revoked]
        for copy in copies:
            copy.member.leave()
    assert marks == [100, 150]
