"""The settings from which a node of Kafka starts: who is told which address."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.dev.node_settings import NODES, PLAIN, Seat, settings_of

CONTROLLERS = {1: 20_001, 2: 20_002}


def values_of(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines())


@pytest.mark.parametrize(
    ("address", "ports", "told", "among_nodes"),
    [
        (None, {PLAIN: 9}, "PLAINTEXT://127.0.0.1:9", PLAIN),
        (None, {PLAIN: 9, "TLS": 8}, "PLAINTEXT://127.0.0.1:9,TLS://127.0.0.1:8", PLAIN),
        # Behind a proxy: clients hear of the proxy, nodes of each other's own address.
        ("127.0.0.1:5", {PLAIN: 9, NODES: 7}, "PLAINTEXT://127.0.0.1:5,NODES://127.0.0.1:7", NODES),
    ],
)
def test_clients_are_told_of_the_proxy_and_nodes_of_each_other(
    address: str | None, ports: dict[str, int], told: str, among_nodes: str
) -> None:
    seat = Seat(2, CONTROLLERS, "A", address)
    found = values_of(settings_of(seat, ports, {"TLS": "SSL"}, Path("data"), {"log.dirs": "chosen"}))

    own = ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())
    assert found["listeners"] == f"{own},CONTROLLER://127.0.0.1:20002"
    assert (found["advertised.listeners"], found["inter.broker.listener.name"]) == (told, among_nodes)
    protocols = dict(pair.split(":") for pair in found["listener.security.protocol.map"].split(","))
    assert protocols == {**dict.fromkeys((*ports, "CONTROLLER"), "PLAINTEXT"), "TLS": "SSL"}
    assert found["controller.quorum.voters"] == "1@127.0.0.1:20001,2@127.0.0.1:20002"
    assert found["log.dirs"] == "chosen", "what was chosen comes last"
