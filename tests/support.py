"""What tests of every ring share."""

from __future__ import annotations

import os
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka import Consumer, KafkaError, TopicPartition

from tidegate.dev.broker import Broker
from tidegate.ops.tail import tail
from tidegate.testing import KafkaProxy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tidegate.kafka.admin import Admin
    from tidegate.kafka.connection import Kafka
    from tidegate.kafka.scan import SeenRecord
    from tidegate.records import Partition


One = TypeVar("One")

PROOF = bool(os.environ.get("PROOF_BOTH_WAYS"))
"""Whether proof is asked for: every way, however long it takes."""


def ways(ordinary: One, *others: One) -> list[One]:
    """Return the cases to run: ordinarily one, and the others too where proof is asked for."""
    return [ordinary, *others] if PROOF else [ordinary]


def wait_until(check: Callable[[], bool], *, within: float, what: str) -> None:
    """Return as soon as the fact holds; fail with its words where it never does."""
    deadline = time.monotonic() + within
    while not check():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {within}s, but never: {what}")
        time.sleep(0.05)


@contextmanager
def broker_behind_proxy() -> Iterator[KafkaProxy]:
    """A broker of its own; whoever asks it where it is, is told of the proxy."""
    with KafkaProxy() as proxy, Broker(settings={"advertised.listeners": f"PLAINTEXT://{proxy.bootstrap}"}) as broker:
        proxy.forward_to(broker.bootstrap)
        yield proxy


def visible(admin: Admin, kafka: Kafka, topic: str) -> list[SeenRecord]:
    """Return what readers with read_committed see, when every transaction has its marker: it comes a moment later."""
    settled_transactions(admin, topic)
    return list(tail(topic, kafka=kafka))


def settled_transactions(admin: Admin, topic: str) -> None:
    """Wait until no transaction is open in this topic."""
    partitions = list(admin.describe([topic])[topic].each_partition())
    wait_until(
        lambda: admin.ends(partitions, committed_only=True) == admin.ends(partitions, committed_only=False),
        within=30,
        what=f"the end of all transactions in {topic}",
    )


def read_uncommitted(kafka: Kafka, partitions: Sequence[Partition]) -> Iterator[bytes | None]:
    """Give all values of these partitions, those of aborted and open transactions too."""
    settings: dict[str, Any] = kafka.client(
        group_id="tests-uncommitted",
        isolation_level="read_uncommitted",
        auto_offset_reset="error",
        enable_auto_commit=False,
        enable_partition_eof=True,
    )
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, number, 0) for topic, number in partitions])
    left, deadline = len(partitions), time.monotonic() + 60
    while left:
        assert time.monotonic() < deadline, "the topic could not be read to its end"
        message = consumer.poll(0.5)
        if message is None:
            continue
        error = message.error()
        if error is None:
            yield message.value()
        else:
            assert error.code() == KafkaError._PARTITION_EOF, error
            left -= 1
    consumer.close()


def is_alive(pid: int) -> bool:
    """Whether a process runs. One that ended and waits for its parent to notice does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    if sys.platform != "linux":
        return True
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")
