"""What a server may say of when to come again."""

from __future__ import annotations

import pytest

from tidegate.sinks.http import _retry_after

DAY = 86_400.0


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ("2", 2.0),
        ("9" * 400, DAY),
        ("Fri, 31 Dec 9999 23:59:59 GMT", DAY),
        ("Fri, 31 Dec 1999 23:59:59 GMT", 0.0),
        ("²", None),
        ("soon", None),
    ],
)
def test_what_a_server_asks_for_is_bounded_and_nonsense_is_passed_over(given: str, seconds: float | None) -> None:
    assert _retry_after(given) == seconds
