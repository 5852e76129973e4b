"""Asking the cluster, and waiting for its answer, while one of its nodes or the client itself may be gone."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from tidegate.errors import TidegateError
from tidegate.kafka.connection import NO_LINE, ClientLog, Kafka, translate

K = TypeVar("K")
T = TypeVar("T")

_NAP_SECONDS = 0.05
_LOOK_ANEW_SECONDS = 2.0
_PROBE_SECONDS = 2.0
_OVERDUE_SECONDS = 5.0
_NO_COORDINATOR_YET = {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
}


class Asker:
    """An admin client and the wait for its answers, at most `timeout_seconds` for each.

    A client that left a question without an answer is doubted: before the next question a new one is tried, and
    takes its place where it is answered. After connections had been cut, a client was seen that asked on and on
    and was never answered again, while every other client of its process was. Where the new one is not answered
    either, the old one stays: it may know nodes that the given address does not lead to any more.
    """

    def __init__(self, kafka: Kafka, timeout_seconds: float) -> None:
        self._kafka = kafka
        self._timeout = timeout_seconds
        self._is_doubted = False
        self._renewing = threading.Lock()
        try:
            self._client, self.log = self._connect()
        except KafkaException as error:
            raise translate(error.args[0], "connecting", kafka.bootstrap) from error

    @property
    def client(self) -> AdminClient:
        """The client for the next question."""
        if self._is_doubted and self._renewing.acquire(blocking=False):
            try:
                self._renew()
            finally:
                self._renewing.release()
        return self._client

    def ask(self, where: str, call: Callable[[], Mapping[K, Future[T]]]) -> dict[K, T]:
        """Ask, and return every answer; what goes wrong is one of our errors."""
        try:
            return self.patiently(lambda: self.answers(call()))
        except (KafkaException, ValueError) as error:
            raise self.ours(error, where) from error

    def patiently(self, call: Callable[[], T]) -> T:
        """Ask again while a group's coordinator is on its way: the first commit of a new cluster finds none."""
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                return call()
            except KafkaException as error:
                if error.args[0].code() not in _NO_COORDINATOR_YET or time.monotonic() > deadline:
                    raise
                time.sleep(_NAP_SECONDS)

    def until(self, where: str, check: Callable[[], bool]) -> None:
        """Ask again until it is so."""
        deadline = time.monotonic() + self._timeout
        while not check():
            if time.monotonic() > deadline:
                raise self.translate(KafkaError(KafkaError._TIMED_OUT), where)
            time.sleep(_NAP_SECONDS)

    def answers(self, futures: Mapping[K, Future[T]]) -> dict[K, T]:
        """Wait for all of them."""
        return {asked: self.answer(future) for asked, future in futures.items()}

    def answer(self, future: Future[T]) -> T:
        """Wait for an answer, or until it is clear that none will come: the client itself would try on and on."""
        client, log = self._client, self.log
        log.forget_refusal()
        began = time.monotonic()
        look_anew = began + _LOOK_ANEW_SECONDS
        while not wait([future], timeout=_NAP_SECONDS).done:
            client.poll(0)
            if (refusal := log.refusal) is not None:
                raise KafkaException(refusal)
            now = time.monotonic()
            if now > began + self._timeout + _OVERDUE_SECONDS:  # the client should have given up itself
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            if now > look_anew:
                # The client waits for the one node that it was told to ask, and asks nobody whether that has died
                # meanwhile. This brings it the cluster as it is now, and its question goes to another node.
                with contextlib.suppress(KafkaException):
                    client.list_topics(timeout=1.0)
                look_anew = time.monotonic() + _LOOK_ANEW_SECONDS
        answer = future.result()
        log.heard()
        return answer

    def ours(self, error: Exception, where: str) -> TidegateError:
        """Return our error for one of the client's, or for an argument that it does not take."""
        if isinstance(error, KafkaException):
            return self.translate(error.args[0], where)
        return self.translate(KafkaError(KafkaError._INVALID_ARG, str(error)), where)

    def translate(self, error: KafkaError, where: str) -> TidegateError:
        """Return our error for one of the client's; silence is held against this client."""
        self._client.poll(0)  # brings the log lines that say why no connection was made
        if error.code() in NO_LINE:
            self._is_doubted = True
        return translate(self.log.blame(error), where, self._kafka.bootstrap, reason=self.log.last_failure)

    def _connect(self) -> tuple[AdminClient, ClientLog]:
        settings = self._kafka.client()
        return AdminClient(settings), settings["logger"]

    def _renew(self) -> None:
        self._is_doubted = False
        fresh, log = self._connect()
        try:
            fresh.list_topics(timeout=min(_PROBE_SECONDS, self._timeout))
        except KafkaException:
            return
        left = [self._client]
        self._client, self.log = fresh, log
        # Its end waits for its own threads, and one that does not answer may not end either.
        threading.Thread(target=left.clear, name="tidegate-admin-end", daemon=True).start()
