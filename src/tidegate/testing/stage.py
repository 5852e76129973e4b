"""A development broker behind a proxy: what a trial needs to disturb both."""

from __future__ import annotations

import contextlib
from typing import Self

from tidegate.dev.broker import Broker
from tidegate.kafka.connection import Kafka
from tidegate.testing.proxy import KafkaProxy

_START_SECONDS = 180.0
"""It is started again while everything that it disturbed starts again, too."""


class Stage:
    """A real Kafka of its own, reached through a proxy by everybody; both end with the `with` block.

    `bootstrap` is the address for clients, `broker` can be killed and started, `proxy` delays, refuses and cuts.
    """

    def __init__(self) -> None:
        self.proxy = KafkaProxy()
        self.broker = Broker(
            settings={"advertised.listeners": f"PLAINTEXT://{self.proxy.bootstrap}"}, start_seconds=_START_SECONDS
        )

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
            self.broker.start()
            self.proxy.forward_to(self.broker.bootstrap)
            opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.broker.stop()
        self.proxy.close()
