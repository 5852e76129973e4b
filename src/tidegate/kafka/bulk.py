"""Many partitions in one question, where one that cannot be told does not cost the others their answer."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

from confluent_kafka import OFFSET_INVALID, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the client does not mark what it re-exports
    AdminClient,
    ListOffsetsResultInfo,
    OffsetSpec,
)

from tidegate.kafka.admin import NO_LEADER_YET, Admin
from tidegate.records import Partition

if TYPE_CHECKING:
    from collections.abc import Collection

T = TypeVar("T")

_NOT_TO_BE_ASKED = {*NO_LEADER_YET, KafkaError.TOPIC_AUTHORIZATION_FAILED}


def beginnings(admin: Admin, partitions: Collection[Partition]) -> dict[Partition, int]:
    """Return the first offset that is still retained; partitions that nobody answers for are left out."""
    return _offsets(admin, partitions, OffsetSpec.earliest(), IsolationLevel.READ_COMMITTED)  # type: ignore[no-untyped-call]  # the client leaves it bare


def ends(admin: Admin, partitions: Collection[Partition], *, committed_only: bool = True) -> dict[Partition, int]:
    """Return the end offsets, as `Admin.ends` does; partitions that nobody answers for are left out."""
    isolation = IsolationLevel.READ_COMMITTED if committed_only else IsolationLevel.READ_UNCOMMITTED
    return _offsets(admin, partitions, OffsetSpec.latest(), isolation)  # type: ignore[no-untyped-call]  # the client leaves it bare


def _offsets(
    admin: Admin, partitions: Collection[Partition], spec: OffsetSpec, isolation: IsolationLevel
) -> dict[Partition, int]:
    if not partitions:
        return {}
    wanted = {TopicPartition(topic, number): spec for topic, number in partitions}

    def ask(client: AdminClient, seconds: float) -> dict[TopicPartition, Future[ListOffsetsResultInfo | None]]:
        futures = client.list_offsets(wanted, isolation_level=isolation, request_timeout=seconds)
        return {at: unless(future, _NOT_TO_BE_ASKED) for at, future in futures.items()}

    answers = admin.ask("reading the bounds of logs", ask)
    return {
        Partition(at.topic, at.partition): one.offset
        for at, one in answers.items()
        if one is not None and one.offset != OFFSET_INVALID
    }


def unless(future: Future[T], codes: Collection[int]) -> Future[T | None]:
    """Turn these errors into no answer."""
    answer: Future[T | None] = Future()

    def settle(done: Future[T]) -> None:
        error = done.exception()
        if error is None:
            answer.set_result(done.result())
        elif isinstance(error, KafkaException) and error.args[0].code() in codes:
            answer.set_result(None)
        else:
            answer.set_exception(error)

    future.add_done_callback(settle)
    return answer
