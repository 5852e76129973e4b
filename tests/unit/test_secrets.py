"""Secrets: named, read late, carried by pickle, and never shown."""

from __future__ import annotations

import pickle
import traceback
from typing import TYPE_CHECKING, Any

import pytest

import tidegate as tg
from tidegate.engine.spark import pickled
from tidegate.engine.task import Job
from tidegate.errors import SettingsError
from tidegate.logs import WorkerLog
from tidegate.records import Lease, Limits
from tidegate.secrets import is_secret_name, shown, shown_address

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HIDDEN = "correct-horse-7261"


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    path.write_text(HIDDEN + "\n", encoding="utf-8")
    return path


def test_a_secret_is_read_from_its_variable_when_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    made = tg.secret("env:SOME_KEY")
    monkeypatch.setenv("SOME_KEY", HIDDEN)

    assert made.reveal() == HIDDEN
    assert repr(made) == str(made) == f"{made}" == "secret(env:SOME_KEY)"


def test_a_secret_is_read_from_its_file_without_the_line_end(key_file: Path) -> None:
    made = tg.secret(f"file:{key_file}")

    assert made.reveal() == HIDDEN
    assert HIDDEN not in repr(made)


def test_a_secret_is_asked_of_a_function_each_time() -> None:
    given = iter(["one", "two"])
    made = tg.secret(lambda: next(given))

    assert [made.reveal(), made.reveal()] == ["one", "two"]


def test_a_secret_takes_its_value_along_to_where_its_source_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", HIDDEN)
    data = pickled(tg.Kafka("there:1", {"sasl.password": tg.secret("env:SOME_KEY")}))
    monkeypatch.delenv("SOME_KEY")

    back = pickle.loads(data)  # noqa: S301  # our own bytes

    assert back.client()["sasl.password"] == HIDDEN
    assert HIDDEN not in repr(back)


def failing() -> str:
    raise RuntimeError(HIDDEN)


UNREADABLE: list[tuple[str, Callable[[], tg.Secret], str]] = [
    ("a variable that is not set", lambda: tg.secret("env:NOT_SET_ANYWHERE"), "NOT_SET_ANYWHERE"),
    ("a file that is not there", lambda: tg.secret("file:/nowhere/key"), "/nowhere/key"),
    ("a function that fails", lambda: tg.secret(failing), "failing failed: RuntimeError"),
    ("a function that gives no text", lambda: tg.secret(lambda: 5), "is a int"),  # type: ignore[arg-type, return-value]
]


@pytest.mark.parametrize(("what", "make", "words"), UNREADABLE, ids=[row[0] for row in UNREADABLE])
def test_what_cannot_be_read_is_named_with_the_cure(what: str, make: Callable[[], tg.Secret], words: str) -> None:
    del what
    with pytest.raises(SettingsError, match=words) as caught:
        tg.Kafka("there:1", {"sasl.password": make()}).client()

    assert HIDDEN not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("given", [HIDDEN, "env:", "file:", "", 5, None])
def test_what_is_no_source_is_refused_and_not_repeated(given: Any) -> None:
    with pytest.raises(SettingsError) as caught:
        tg.secret(given)

    assert HIDDEN not in str(caught.value)


SECRET_NAMES = [
    # name                                    secret
    ("sasl.password", True),
    ("ssl.key.password", True),
    ("ssl.keystore.password", True),
    ("ssl.key.pem", True),
    ("sasl.oauthbearer.client.secret", True),
    ("sasl.oauthbearer.config", True),
    ("sasl.oauthbearer.assertion.private.key.passphrase", True),
    ("sasl.username", False),
    ("ssl.key.location", False),
    ("security.protocol", False),
]


@pytest.mark.parametrize(("name", "is_secret"), SECRET_NAMES)
def test_plain_text_under_a_secret_name_is_masked(name: str, is_secret: bool) -> None:
    assert is_secret_name(name) is is_secret
    assert (shown(name, HIDDEN) == "***") is is_secret
    assert (HIDDEN in repr(tg.Kafka("there:1", {name: HIDDEN}))) is not is_secret


def test_a_pipeline_and_a_job_show_no_secret() -> None:
    kafka = tg.Kafka("there:1", {"sasl.password": HIDDEN, "oauth_cb": failing})
    pipeline = tg.from_kafka("orders", group="billing", kafka=kafka).sink(print)
    job = Job(b"", Lease(0, 0, (), Limits(1, 1, 1, 1)), pickled(kafka), "billing", (), WorkerLog(0))

    assert "oauth_cb=<failing>" in repr(pipeline)
    for text in (repr(pipeline), repr(job), repr(pipeline.resolved())):
        assert HIDDEN not in text


@pytest.mark.parametrize("name", ["sasl.password", "sasl.username"])
def test_a_bare_function_as_a_setting_is_refused_with_the_cure(name: str) -> None:
    with pytest.raises(SettingsError, match=r"tg\.secret\(function\)"):
        tg.Kafka("there:1", {name: failing})


ADDRESSES = [
    ("/var/lib/history.sqlite", "/var/lib/history.sqlite", "a path"),
    ("postgresql://db/x", "postgresql://db/x", "nothing to hide"),
    ("postgresql://anna@db/x", "postgresql://anna@db/x", "a user alone"),
    (f"postgresql://anna:{HIDDEN}@db/x", "postgresql://anna:***@db/x", "a password"),
    (f"postgresql://anna:{HIDDEN}@{HIDDEN}@db/x", "postgresql://anna:***@db/x", "one with a sign that ends it"),
    (f"postgresql://db/x?user=a&password={HIDDEN}&b=1", "postgresql://db/x?user=a&password=***&b=1", "in the query"),
    (f"postgresql://db/x?sslpassword={HIDDEN}", "postgresql://db/x?sslpassword=***", "that of a key"),
]


@pytest.mark.parametrize(("address", "expected", "because"), ADDRESSES, ids=[row[2] for row in ADDRESSES])
def test_an_address_is_shown_without_its_password(address: str, expected: str, because: str) -> None:
    assert shown_address(address) == expected, because


def test_a_secret_address_is_shown_as_its_source() -> None:
    assert shown_address(tg.secret("env:HISTORY")) == "secret(env:HISTORY)"
    assert HIDDEN not in repr(tg.from_table(history=f"postgresql://anna:{HIDDEN}@db/x"))
