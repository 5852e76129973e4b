"""Where `run --serve` listens, read from one word."""

from __future__ import annotations

import pytest

from tidegate.cli.serve import address_of
from tidegate.errors import SettingsError


@pytest.mark.parametrize(
    ("place", "host", "port"),
    [
        ("8642", "127.0.0.1", 8642),
        ("0", "127.0.0.1", 0),
        ("0.0.0.0:8642", "0.0.0.0", 8642),  # noqa: S104  # what a user may write
        (":8642", "127.0.0.1", 8642),
        ("[::1]:8642", "::1", 8642),
    ],
)
def test_an_address_is_a_port_or_a_host_and_a_port(place: str, host: str, port: int) -> None:
    assert address_of(place) == (host, port)


@pytest.mark.parametrize("place", ["", "host", "host:", "65536", "-1", "host:http"])
def test_what_names_no_port_is_refused_with_an_example(place: str) -> None:
    with pytest.raises(SettingsError, match="--serve 8642"):
        address_of(place)
