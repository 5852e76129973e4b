"""Pure: the settings from which one node of Kafka starts, alone or in a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

HOST = "127.0.0.1"
PLAIN = "PLAINTEXT"
NODES = "NODES"
"""The listener on which nodes speak to each other, where clients are told another address than theirs."""

BASE: Mapping[str, str] = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "auto.create.topics.enable": "false",
    # One broker holds the only copy of everything.
    "default.replication.factor": "1",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    # Tests wait for these; a cluster would take its time.
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "1000",
    # After a kill the old registration must expire before the same broker may register again (9 s by default).
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "log.initial.task.delay.ms": "500",
    "log.retention.check.interval.ms": "500",
    "log.cleaner.backoff.ms": "200",
    # The default takes a quarter of the heap.
    "log.cleaner.dedupe.buffer.size": "4194304",
    "num.network.threads": "2",
    "num.io.threads": "4",
}

LOGGING = """\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %-5p %c{1} %m%n
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
# Hundreds of lines at every start.
logger.values.name = org.apache.kafka.common.config.AbstractConfig
logger.values.level = warn
"""


@dataclass(frozen=True)
class Seat:
    """The place of one node in a cluster of several."""

    node_id: int
    controllers: Mapping[int, int]
    """The ports on which the nodes speak to each other, by node id."""
    cluster_id: str
    address: str | None = None
    """What clients are told instead of the node's own address: a proxy's. The nodes speak to each other without it."""


def settings_of(
    seat: Seat, ports: Mapping[str, int], protocols: Mapping[str, str], data: Path, chosen: Mapping[str, str]
) -> str:
    """Return the settings file of a node with these ports, by listener. `protocols`: of those that are not plain."""
    addresses = {name: f"{HOST}:{port}" for name, port in ports.items()}
    told = addresses if seat.address is None else {**addresses, PLAIN: seat.address}
    spoken = dict.fromkeys((*ports, "CONTROLLER"), PLAIN) | dict(protocols)
    values = {
        **BASE,
        "listener.security.protocol.map": ",".join(f"{name}:{kind}" for name, kind in spoken.items()),
        "listeners": f"{_listed(addresses)},CONTROLLER://{HOST}:{seat.controllers[seat.node_id]}",
        "advertised.listeners": _listed(told),
        "inter.broker.listener.name": NODES if NODES in ports else PLAIN,
        "node.id": str(seat.node_id),
        "controller.quorum.voters": ",".join(f"{one}@{HOST}:{port}" for one, port in seat.controllers.items()),
        "log.dirs": str(data),
        **chosen,
    }
    return "".join(f"{name}={value}\n" for name, value in values.items())


def _listed(addresses: Mapping[str, str]) -> str:
    return ",".join(f"{name}://{address}" for name, address in addresses.items())
