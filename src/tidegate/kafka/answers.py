"""Waiting for the cluster's answer to a question, while one of its nodes may be gone."""

from __future__ import annotations

import contextlib
import time
from concurrent.futures import Future, wait
from typing import TypeVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tidegate.kafka.connection import ClientLog

T = TypeVar("T")

_NAP_SECONDS = 0.05
_LOOK_ANEW_SECONDS = 2.0


def wait_for_answer(future: Future[T], client: AdminClient, log: ClientLog) -> T:
    """Wait for an answer, or until it is clear that none will come: the client itself would try on and on."""
    log.forget_refusal()
    look_anew = time.monotonic() + _LOOK_ANEW_SECONDS
    while not wait([future], timeout=_NAP_SECONDS).done:
        client.poll(0)
        if (refusal := log.refusal) is not None:
            raise KafkaException(refusal)
        if time.monotonic() > look_anew:
            # The client waits for the one node that it was told to ask, and asks nobody whether that has died
            # meanwhile. This brings it the cluster as it is now, and its question goes to another node.
            with contextlib.suppress(KafkaException):
                client.list_topics(timeout=1.0)
            look_anew = time.monotonic() + _LOOK_ANEW_SECONDS
    return future.result()
