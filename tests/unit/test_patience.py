"""A call that never returns does not hold up whoever made it."""

from __future__ import annotations

import threading

import pytest

from tidegate.kafka.patience import NeverReturned, within


def test_an_answer_is_an_answer_and_an_error_an_error() -> None:
    assert within(10.0, "asked", lambda: 7) == 7
    with pytest.raises(ValueError, match="no good"):
        within(10.0, "asked", lambda: int("no good"))


def test_a_call_that_never_returns_is_left_behind() -> None:
    released = threading.Event()
    with pytest.raises(NeverReturned, match=r"asked did not return within 0\.05 s"):
        within(0.05, "asked", released.wait)
    released.set()
