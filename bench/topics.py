"""Records to read: written at once, or steadily. As a program: `python -m bench.topics BOOTSTRAP TOPIC RATE`."""

from __future__ import annotations

import signal
import sys
import time

from confluent_kafka import Producer

from tidegate.kafka.admin import Admin
from tidegate.kafka.connection import Kafka

PARTITIONS = 4


def create(bootstrap: str, topic: str, partitions: int = PARTITIONS) -> None:
    Admin(Kafka(bootstrap), 60.0).create_topic(topic, partitions)


def delete(bootstrap: str, topic: str) -> None:
    Admin(Kafka(bootstrap), 60.0).delete_topic(topic)


def fill(bootstrap: str, topic: str, ids: range, *, partitions: int = PARTITIONS, value_bytes: int = 100) -> None:
    """Write JSON records of about this size with these ids, evenly over the partitions."""
    settings = {"linger.ms": 50, "queue.buffering.max.messages": 1_000_000, "message.max.bytes": 1_000_000}
    producer = Producer({"bootstrap.servers": bootstrap, **settings})
    head = b'{"id": %d, "customer": "c%d", "pad": "'
    pad = b"x" * (value_bytes - 41) + b'"}'
    for number in ids:
        value = head % (number, number % 1000) + pad
        while True:
            try:
                producer.produce(topic, value, partition=number % partitions)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1000 == 0:
            producer.poll(0)
    if producer.flush(120):
        raise RuntimeError(f"the broker did not take all records of {topic}")


def uncommitted(bootstrap: str, topic: str, group: str) -> int:
    """Return how many records of the topic the group has not committed."""
    admin = Admin(Kafka(bootstrap), 60.0)
    [info] = admin.describe([topic]).values()
    ends = admin.ends(info.each_partition())
    marks = admin.committed(group, ends)
    return sum(end - (marks[one].mark if one in marks else 0) for one, end in ends.items())


def steadily(bootstrap: str, topic: str, rate: float) -> int:
    """Write so many records per second, each with its id and the time, until SIGTERM; return how many."""
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    began, sent = time.monotonic(), 0
    while not stopped:
        ahead = began + sent / rate - time.monotonic()
        if ahead > 0:
            time.sleep(ahead)
            continue
        producer.produce(topic, b'{"id": %d, "at": %r}' % (sent, time.time()), partition=sent % PARTITIONS)
        producer.poll(0)
        sent += 1
    if producer.flush(60):
        raise RuntimeError(f"the broker did not take all records of {topic}")
    return sent


if __name__ == "__main__":
    print(steadily(sys.argv[1], sys.argv[2], float(sys.argv[3])), flush=True)
