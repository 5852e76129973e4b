"""Several Kafka nodes on this machine, for development and tests: each can be stopped, killed or lost by itself."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Self

from tidegate.dev.broker import Broker, free_port, new_cluster_id
from tidegate.dev.node_settings import HOST, Seat
from tidegate.errors import SettingsError
from tidegate.kafka.connection import Kafka
from tidegate.kafka.leaders import coordinating_partition, read_all_replicas, read_replicas

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from tidegate.dev.jars import Progress
    from tidegate.kafka.leaders import Replicas
    from tidegate.records import Partition

OFFSETS = "__consumer_offsets"
TRANSACTIONS = "__transaction_state"
_MOST_REPLICAS = 3
_INTERNAL_PARTITIONS = 3
"""More than one, so that coordinators are spread over the nodes."""


class Cluster:
    """Kafka on several nodes, each a broker and a controller in a JVM of its own, numbered from 1.

    A partition goes back to the node that was meant to lead it some seconds after that has returned.
    Topics have three replicas, or as many as there are nodes, and with three a record counts as written when two
    have it (`min.insync.replicas`). No node outlives this process. Without a folder nothing is kept.
    `addresses`: what clients are told of each node, in order, where that is not its own address but a proxy's.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        nodes: int = 3,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
        addresses: Sequence[str] = (),
        start_seconds: float = 120.0,
        progress: Progress | None = None,
    ) -> None:
        if nodes < 1:
            raise SettingsError(f"a cluster of {nodes} nodes cannot be", "choose at least one")
        numbers = range(1, nodes + 1)
        ports = _choose_ports(nodes, port)
        controllers = _choose_ports(nodes, None, besides=ports)
        folders = {} if folder is None else node_folders(folder, nodes)
        told: Sequence[str | None] = addresses or [None] * nodes
        # A node that has lost its folder comes back into the cluster that the others know.
        cluster_id = next(filter(None, map(_known_cluster, folders.values())), None) or new_cluster_id()
        self._folder = folder
        self._nodes = {
            number: Broker(
                folders.get(number),
                port=ports[number - 1],
                settings={**_shared_settings(nodes), **(settings or {})},
                start_seconds=start_seconds,
                progress=progress if number == 1 else None,
                seat=Seat(number, dict(zip(numbers, controllers, strict=True)), cluster_id, address),
            )
            for number, address in zip(numbers, told, strict=True)
        }
        self.bootstrap = ",".join(f"{HOST}:{one}" for one in ports)
        """The addresses of all nodes, for clients."""

    @property
    def nodes(self) -> Sequence[int]:
        """The numbers of all nodes, whether they run or not."""
        return list(self._nodes)

    @property
    def running(self) -> Sequence[int]:
        """The numbers of the nodes whose process lives."""
        return [number for number, one in self._nodes.items() if one.is_running]

    def node(self, number: int) -> Broker:
        """Return one node: it can be killed, shut down and started by itself."""
        return self._nodes[number]

    @property
    def is_running(self) -> bool:
        """Whether every node lives."""
        return len(self.running) == len(self._nodes)

    def log_tail(self, lines: int = 40) -> str:
        """Return the last lines of each node's log."""
        return "\n".join(f"--- node {number}\n{one.log_tail(lines)}" for number, one in self._nodes.items())

    def start(self) -> Self:
        """Start every node that does not run, all at once: none comes up before most of them are there."""
        try:
            with ThreadPoolExecutor(len(self._nodes)) as threads:
                for _ in threads.map(Broker.start, self._nodes.values()):
                    pass
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End every node."""
        with ThreadPoolExecutor(len(self._nodes)) as threads:
            for _ in threads.map(Broker.stop, self._nodes.values()):
                pass

    def lose(self, number: int) -> None:
        """End a node for good, with all it has. Started again, it comes back empty and copies from the others."""
        node = self._nodes[number]
        node.kill()
        node.stop()
        if self._folder is not None:
            shutil.rmtree(node.folder / "data", ignore_errors=True)

    def replicas(self, partition: Partition) -> Replicas:
        """Return which nodes have this partition, which of them are in sync, and which leads."""
        return read_replicas(self._kafka, partition.topic)[partition.number]

    def leader_of(self, partition: Partition) -> int | None:
        """Return the node that leads this partition; None while there is none."""
        return self.replicas(partition).leader

    def coordinator_of(self, group: str) -> int | None:
        """Return the node that takes a group's commits; None while there is none."""
        return self._coordinator(group, OFFSETS)

    def transactions_of(self, transactional_id: str) -> int | None:
        """Return the node that keeps the transactions of a producer of this name; None while there is none."""
        return self._coordinator(transactional_id, TRANSACTIONS)

    def is_whole(self, topic: str | None = None) -> bool:
        """Whether every replica of this topic is in sync; of all topics, where none is named."""
        found = read_all_replicas(self._kafka) if topic is None else {topic: read_replicas(self._kafka, topic)}
        return all(set(one.in_sync) == set(one.nodes) for each in found.values() for one in each.values())

    def _coordinator(self, name: str, topic: str) -> int | None:
        found = read_replicas(self._kafka, topic)
        return found[coordinating_partition(name, len(found))].leader

    @property
    def _kafka(self) -> Kafka:
        return Kafka(self.bootstrap)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


def node_folders(folder: Path, nodes: int) -> dict[int, Path]:
    """Return where each node keeps its data, by number."""
    return {number: folder / f"node-{number}" for number in range(1, nodes + 1)}


def _known_cluster(folder: Path) -> str | None:
    """Return the id of the cluster that a node's folder was prepared for."""
    try:
        lines = (folder / "data" / "meta.properties").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next((line.partition("=")[2] for line in lines if line.startswith("cluster.id=")), None)


def _shared_settings(nodes: int) -> dict[str, str]:
    replicas = min(nodes, _MOST_REPLICAS)
    enough = "2" if replicas >= _MOST_REPLICAS else "1"
    settings = {
        "default.replication.factor": str(replicas),
        "min.insync.replicas": enough,
        # A cluster lets minutes pass before leaders go home; tests wait for it.
        "leader.imbalance.check.interval.seconds": "3",
    }
    for name in ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic"):
        settings[f"{name}.replication.factor"] = str(replicas)
        settings[f"{name}.num.partitions"] = str(_INTERNAL_PARTITIONS)
    settings |= {f"{name}.min.isr": enough for name in ("transaction.state.log", "share.coordinator.state.topic")}
    return settings


def _choose_ports(count: int, first: int | None, besides: Sequence[int] = ()) -> list[int]:
    if first is not None:
        return list(range(first, first + count))
    chosen: list[int] = []
    for _ in range(count):
        chosen.append(free_port(besides=[*besides, *chosen]))
    return chosen
