"""The configuration of topics: read, and changed where it has to be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import TypeVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the client does not mark what it re-exports
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from tidegate.kafka.connection import ClientLog, Kafka, translate

T = TypeVar("T")


class TopicConfigs:
    """Asks a cluster for the configuration of topics, and changes it."""

    def __init__(self, kafka: Kafka, timeout_seconds: float = 10.0) -> None:
        settings = kafka.client()
        self._log: ClientLog = settings["logger"]
        self._bootstrap = kafka.bootstrap
        self._timeout = timeout_seconds
        self._client = AdminClient(settings)

    def read(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        """Return every setting of these topics that has a value."""
        resources = {ConfigResource(ConfigResource.Type.TOPIC, name): name for name in topics}
        if not resources:
            return {}
        answers = self._client.describe_configs(list(resources), request_timeout=self._timeout)
        found: dict[str, dict[str, str]] = {}
        for resource, future in answers.items():
            entries = self._result(future, f"reading the settings of topic {resources[resource]}")
            found[resources[resource]] = {
                name: entry.value for name, entry in entries.items() if entry.value is not None
            }
        return found

    def change(self, topic: str, settings: Mapping[str, str]) -> None:
        """Set these settings of a topic; the others stay."""
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in settings.items()
        ]
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
        answers = self._client.incremental_alter_configs([resource], request_timeout=self._timeout)
        for future in answers.values():
            self._result(future, f"changing the settings of topic {topic}")

    def _result(self, future: Future[T], where: str) -> T:
        try:
            return future.result(self._timeout * 2)
        except KafkaException as error:
            blamed = self._log.blame(error.args[0])
            raise translate(blamed, where, self._bootstrap, reason=self._log.last_failure) from error
