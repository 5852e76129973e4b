"""Which cluster an operation talks to, when the caller names none."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tidegate.kafka.admin import Admin
from tidegate.kafka.connection import Kafka, kafka_of
from tidegate.settings import CLIENT, resolve


@dataclass(frozen=True)
class Cluster:
    """A cluster, and how long to wait for its answers."""

    kafka: Kafka
    timeout_seconds: float

    @cached_property
    def admin(self) -> Admin:
        """The one admin connection of an operation."""
        return Admin(self.kafka, self.timeout_seconds)

    @cached_property
    def cluster_id(self) -> str:
        """Kafka's own name for the cluster, the same through every address."""
        return self.admin.cluster_id()


def chosen_cluster(kafka: Kafka | None = None) -> Cluster:
    """Return the caller's cluster, or the one that the settings name; client settings come from both."""
    own = {} if kafka is None else {"bootstrap": kafka.bootstrap, CLIENT: dict(kafka.settings)}
    resolved = resolve(own)
    return Cluster(kafka_of(resolved), resolved.values.broker_timeout)
