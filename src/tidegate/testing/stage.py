"""A development Kafka behind a proxy, one node or several: what a trial needs to disturb both."""

from __future__ import annotations

import contextlib
from typing import Self

from tidegate.dev.cluster import Cluster
from tidegate.kafka.connection import Kafka
from tidegate.testing.proxy import KafkaProxy

_START_SECONDS = 180.0
"""It is started again while everything that it disturbed starts again, too."""


class Stage:
    """A real Kafka of its own, reached through a proxy by everybody; both end with the `with` block.

    `bootstrap` is the address for clients, each node of `cluster` can be killed and started, `proxy` delays, refuses
    and cuts what clients send. Nodes speak to each other without it.
    """

    def __init__(self, nodes: int = 1) -> None:
        self.proxy = KafkaProxy(nodes)
        self.cluster = Cluster(nodes=nodes, addresses=self.proxy.addresses, start_seconds=_START_SECONDS)

    @property
    def bootstrap(self) -> str:
        """The address for clients."""
        return self.proxy.bootstrap

    @property
    def kafka(self) -> Kafka:
        """How to reach it, for everything that takes `kafka=`."""
        return Kafka(self.bootstrap)

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as opened:
            opened.enter_context(self.proxy)
            self.cluster.start()
            self.proxy.forward_to(self.cluster.bootstrap)
            opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.cluster.stop()
        self.proxy.close()
