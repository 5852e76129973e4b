"""Which store a plan's sinks need, and the one of this worker."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

from tidegate.context import close_at_end
from tidegate.kafka.connection import Kafka
from tidegate.kafka.outputs import Outputs
from tidegate.kafka.transactions import Transactions
from tidegate.kafka.writer import copy_writer, worker_writer, write_all
from tidegate.records import Backing
from tidegate.sinks.kafka import KafkaSink
from tidegate.sinks.postgres import PostgresSink
from tidegate.steps import Plan
from tidegate.store import Store

if TYPE_CHECKING:
    from tidegate.sinks.postgres_progress import PostgresProgress

MOST_STORES = 8
"""Stores that one worker keeps: one per lane that it has served."""

_stores: dict[bytes, Store] = {}


def kafka_sinks(plan: Plan) -> list[KafkaSink]:
    """Return the sinks that write to Kafka."""
    return [sink.write for sink in plan.sinks if isinstance(sink.write, KafkaSink)]


def postgres_sinks(plan: Plan) -> list[PostgresSink]:
    """Return the sinks that write to PostgreSQL."""
    return [sink.write for sink in plan.sinks if isinstance(sink.write, PostgresSink)]


def table_of(plan: Plan, group: str) -> PostgresProgress | None:
    """Return the table that keeps the group's marks, where rows go to PostgreSQL."""
    sinks = postgres_sinks(plan)
    if not sinks:
        return None
    from tidegate.sinks.postgres_progress import PostgresProgress  # noqa: PLC0415  # an extra: it imports psycopg

    return PostgresProgress(sinks[0].dsn, group)


def deliverer(table: PostgresProgress | None, kafka: Kafka) -> Callable[[], int] | None:
    """Return what sends the copies that wait in the table's outbox and tells how many are left; None without one."""
    if table is None:
        return None

    def deliver() -> int:
        writer = functools.cache(lambda: copy_writer(kafka))  # made if there is something to send, for this time alone
        return table.deliver(lambda copies: write_all(writer(), copies))

    return deliver


def rounds_commit(plan: Plan) -> bool:
    """Whether the group's marks are committed by the rounds, in the transactions of their outputs."""
    return any(sink.exactly_once for sink in kafka_sinks(plan))


def keeps_progress(plan: Plan) -> bool:
    """Whether marks are stored with the effects, so that these are there exactly once."""
    return rounds_commit(plan) or bool(postgres_sinks(plan))


def worker_store(plan: Plan, kafka: Kafka, group: str, backing: Backing | None, key: bytes) -> Store | None:
    """Return this worker's store for a plan and a lane, made after the fork and kept between rounds."""
    if not plan.collecting:
        return None
    name = "" if backing is None else backing.name
    at = key + name.encode()
    if at not in _stores:
        while len(_stores) >= MOST_STORES:
            _stores.pop(next(iter(_stores))).discard()
        batch_bytes = None if backing is None else backing.batch_bytes
        _stores[at] = store = _made(plan, kafka, group, name, batch_bytes, key)
        close_at_end(store.discard)
    return _stores[at]


def _made(plan: Plan, kafka: Kafka, group: str, name: str, batch_bytes: int | None, key: bytes) -> Store:
    if sinks := postgres_sinks(plan):
        from tidegate.sinks.postgres_store import PostgresStore  # noqa: PLC0415  # as above

        return PostgresStore(sinks, group, lambda copies: write_all(worker_writer(kafka, key), copies))
    if rounds_commit(plan):
        writes_copies = plan.policy.has_dead_letters or bool(plan.policy.delays)
        return Transactions(kafka, group, name, batch_bytes, is_packed=writes_copies)
    return Outputs(kafka, batch_bytes)
