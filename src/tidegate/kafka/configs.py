"""The configuration of topics: read, and changed where it has to be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the client does not mark what it re-exports
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from tidegate.kafka.admin import Admin


class TopicConfigs:
    """Asks a cluster for the configuration of topics, and changes it."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    def read(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        """Return every setting of these topics that has a value, the broker's defaults included."""
        resources = {ConfigResource(ConfigResource.Type.TOPIC, name): name for name in topics}
        if not resources:
            return {}
        found = self._admin.ask(
            f"reading the settings of topic {', '.join(resources.values())}",
            lambda client, seconds: client.describe_configs(list(resources), request_timeout=seconds),
        )
        return {
            resources[resource]: {name: entry.value for name, entry in entries.items() if entry.value is not None}
            for resource, entries in found.items()
        }

    def change(self, topic: str, settings: Mapping[str, str]) -> None:
        """Set these settings of a topic; the others stay."""
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in settings.items()
        ]
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
        self._admin.ask(
            f"changing the settings of topic {topic}",
            lambda client, seconds: client.incremental_alter_configs([resource], request_timeout=seconds),
        )


def broker_setting(admin: Admin, name: str) -> str | None:
    """Return a setting of the cluster's brokers, as the first of them has it."""
    where = "reading the settings of the brokers"
    cluster = admin.ask(where, lambda client, seconds: {"": client.describe_cluster(request_timeout=seconds)})[""]
    resource = ConfigResource(ConfigResource.Type.BROKER, str(cluster.nodes[0].id))
    found = admin.ask(where, lambda client, seconds: client.describe_configs([resource], request_timeout=seconds))
    entry = next(iter(found.values())).get(name)
    return None if entry is None else entry.value
