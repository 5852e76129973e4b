"""Secured brokers: every client is let in with the right key, and turned away with a sentence."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

import pytest

import tidegate as tg
from tests.secured import KEY_PASSWORD, PASSWORD, USER, Secured, secured_broker, unsecured_token
from tests.support import wait_until
from tidegate.engine import backing
from tidegate.engine.backing import Backer, ShutOut
from tidegate.engine.spark import RoundDied
from tidegate.errors import BrokerRefused, SettingsError, TidegateError
from tidegate.kafka.admin import Admin
from tidegate.kafka.member import Callbacks, Joining, Member, open_member
from tidegate.ops.tail import tail
from tidegate.records import Lease, LeasedPartition, Limits, Partition, Position
from tidegate.settings import client_variable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SOON_SECONDS = 8.0
"""Well below the ten seconds that a client waits for an answer that does not come."""


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_broker(tmp_path_factory.mktemp("secured")) as running:
        yield running


@pytest.fixture
def topic(secured: Secured) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    Admin(secured.plain, 20.0).create_topic(name)
    return name


def broken_source(_config: str) -> tuple[str, float]:
    raise RuntimeError(PASSWORD)


RIGHT: dict[str, Callable[[Secured], tg.Kafka]] = {
    "scram": lambda it: it.scram(),
    "scram with a secret": lambda it: it.scram(tg.secret(lambda: PASSWORD)),
    "tls": lambda it: it.tls(),
    "mutual tls": lambda it: it.mutual(tg.secret(lambda: KEY_PASSWORD)),
    "oauth": lambda it: it.oauth(unsecured_token),
}
WRONG: dict[str, tuple[Callable[[Secured], tg.Kafka], type[TidegateError], str]] = {
    "a wrong password": (lambda it: it.scram("nonsense-5512"), BrokerRefused, "invalid credentials"),
    "an unknown user": (lambda it: it.scram(user="nobody"), BrokerRefused, "invalid credentials"),
    "a stranger's certificate": (lambda it: it.tls("stranger"), BrokerRefused, "certificate"),
    "no certificate of its own": (
        lambda it: tg.Kafka(it.broker.address("MUTUAL"), it.tls().settings),
        BrokerRefused,
        "certificate",
    ),
    "a wrong key password": (lambda it: it.mutual("nonsense-5512"), SettingsError, "ssl.key.location"),
    "a token that means nothing": (lambda it: it.oauth(lambda _: ("a.b.", time.time() + 60)), BrokerRefused, "token"),
    "a token source that fails": (lambda it: it.oauth(broken_source), BrokerRefused, "oauth_cb failed: RuntimeError"),
}


@pytest.mark.parametrize("kind", RIGHT)
def test_records_are_written_and_read_through_a_secured_listener(secured: Secured, topic: str, kind: str) -> None:
    kafka = RIGHT[kind](secured)

    tg.produce(topic, ["a", "b"], kafka=kafka)

    assert [record.value for record in tail(topic, kafka=kafka)] == [b"a", b"b"]
    assert Admin(kafka).ends([Partition(topic, 0)]) == {Partition(topic, 0): 2}


@pytest.mark.parametrize("kind", WRONG)
def test_who_may_not_come_in_is_told_so_soon_and_without_the_secret(secured: Secured, topic: str, kind: str) -> None:
    make, error, words = WRONG[kind]
    began = time.monotonic()

    with pytest.raises(error, match=words) as caught:
        Admin(make(secured), 10.0).describe([topic])

    assert time.monotonic() - began < SOON_SECONDS
    assert "check" in str(caught.value) or "mend" in str(caught.value)
    for secret in (PASSWORD, "nonsense-5512"):
        assert secret not in str(caught.value)


@pytest.mark.parametrize("kind", [kind for kind, row in WRONG.items() if row[1] is BrokerRefused])
def test_a_member_that_may_not_come_in_ends_with_the_same_sentence(secured: Secured, topic: str, kind: str) -> None:
    make, error, words = WRONG[kind]
    member = member_of(make(secured), "nobody-in")
    try:
        member.join([topic])
        with pytest.raises(error, match=words):
            poll_for(member, SOON_SECONDS)
    finally:
        member.leave()


def test_a_topic_that_may_not_be_described_is_named_with_the_cure(secured: Secured, topic: str) -> None:
    secured.add_user("dora")

    with pytest.raises(BrokerRefused, match=f"describing topic {topic}.*ACL"):
        Admin(secured.scram(user="dora")).describe([topic])


def test_a_group_that_may_not_be_read_is_named_with_the_cure(secured: Secured, topic: str) -> None:
    secured.add_user("emil")
    secured.allow("emil", "TOPIC", topic, "READ")
    kafka = secured.scram(user="emil")

    with pytest.raises(BrokerRefused, match=r"group closed.*ACL"):
        Admin(kafka).committed("closed")
    member = member_of(kafka, "closed")
    try:
        member.join([topic])
        with pytest.raises(BrokerRefused, match=r"group closed.*ACL"):
            poll_for(member, SOON_SECONDS)
    finally:
        member.leave()


def test_a_topic_that_may_not_be_written_is_told_with_the_cure(secured: Secured, topic: str) -> None:
    secured.add_user("fred")
    secured.allow("fred", "TOPIC", topic, "READ")

    with pytest.raises(tg.DeliveryFailed, match=f"writing to {topic}.*ACL"):
        tg.produce(topic, ["a"], kafka=secured.scram(user="fred"), timeout=10)


@pytest.mark.parametrize("kind", RIGHT)
def test_a_broker_that_restarts_is_no_refusal(secured: Secured, topic: str, kind: str) -> None:
    kafka = RIGHT[kind](secured)
    assigned: list[Partition] = []
    member = member_of(kafka, f"g-{topic}", assigned)
    admin = Admin(kafka, 20.0)
    try:
        member.join([topic])
        wait_until(lambda: polled(member) and bool(assigned), within=30, what="the member has its partition")
        with ThreadPoolExecutor(1) as beside:
            restarted = beside.submit(secured.broker.restart)
            wait_until(lambda: polled(member) and restarted.done(), within=60, what="the broker is back")
            restarted.result()
        wait_until(
            lambda: polled(member) and admin.group_members(f"g-{topic}").state == "stable",
            within=60,
            what="the member is back in its group",
        )
    finally:
        member.leave()


def test_client_settings_come_from_file_environment_and_shell(secured: Secured, topic: str, tmp_path: Path) -> None:
    (tmp_path / "password").write_text(PASSWORD + "\n", encoding="utf-8")
    (tmp_path / "tidegate.toml").write_text(
        f"""
        bootstrap = "{secured.broker.address("SCRAM")}"
        [client]
        security.protocol = "sasl_plaintext"
        "sasl.mechanism" = "PLAIN"
        sasl.password = {{ from = "file:{tmp_path / "password"}" }}
        """,
        encoding="utf-8",
    )
    call = partial(shell, tmp_path, TIDEGATE_CLIENT_SASL_USERNAME=USER)

    produced = call("produce", topic, "hello", "-X", "sasl.mechanism=SCRAM-SHA-256")
    checked = call("check", "-X", "sasl.mechanism=SCRAM-SHA-256")

    assert produced.returncode == 0, produced.stderr
    assert f"client sasl.username: {USER} (TIDEGATE_CLIENT_SASL_USERNAME)" in checked.stdout
    assert "client sasl.mechanism: SCRAM-SHA-256 (argument)" in checked.stdout
    assert f"client sasl.password: secret(file:{tmp_path / 'password'}) (tidegate.toml)" in checked.stdout
    assert "ok      broker" in checked.stdout
    assert PASSWORD not in produced.stdout + produced.stderr + checked.stdout + checked.stderr


def test_a_wrong_password_ends_a_command_with_one_sentence(secured: Secured, tmp_path: Path) -> None:
    ended = shell(
        tmp_path,
        "check",
        TIDEGATE_BOOTSTRAP=secured.broker.address("SCRAM"),
        TIDEGATE_CLIENT_SECURITY_PROTOCOL="sasl_plaintext",
        TIDEGATE_CLIENT_SASL_MECHANISM="SCRAM-SHA-256",
        TIDEGATE_CLIENT_SASL_USERNAME=USER,
        **{client_variable("sasl.password"): "nonsense-5512"},
    )

    assert ended.returncode == 1
    assert "failed  broker: Kafka refused" in ended.stdout
    assert "client sasl.password: *** (TIDEGATE_CLIENT_SASL_PASSWORD)" in ended.stdout
    assert "nonsense-5512" not in ended.stdout + ended.stderr


def test_a_wrong_password_ends_a_run_soon_and_without_spark(secured: Secured, topic: str, tmp_path: Path) -> None:
    app = f'import tidegate as tg\npipeline = tg.from_kafka("{topic}", group="g").sink(print)\n'
    (tmp_path / "app.py").write_text(app, encoding="utf-8")
    began = time.monotonic()

    ended = shell(
        tmp_path,
        "run",
        "app.py",
        "--bootstrap",
        secured.broker.address("SCRAM"),
        "-X",
        "security.protocol=sasl_plaintext",
        "-X",
        "sasl.mechanism=SCRAM-SHA-256",
        "-X",
        f"sasl.username={USER}",
        **{client_variable("sasl.password"): "nonsense-5512"},
    )

    assert ended.returncode == 1
    assert time.monotonic() - began < SOON_SECONDS
    assert ended.stderr.count("\n") == 1
    assert ended.stderr.startswith("tidegate: Kafka refused")
    assert "nonsense-5512" not in ended.stderr


def shell(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")}
    kept = {name: os.environ[name] for name in ("TIDEGATE_CACHE",) if name in os.environ}
    return subprocess.run(
        [sys.executable, "-m", "tidegate.cli", *words],
        cwd=folder,
        env={**clean, **kept, **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def member_of(kafka: tg.Kafka, group: str, assigned: list[Partition] | None = None) -> Member:
    gained = [] if assigned is None else assigned
    callbacks = Callbacks(gained.extend, lambda _: None, lambda _: None, lambda _taken, _refused: None)
    return open_member(kafka, Joining(group, 6.0), callbacks)


def polled(member: Member) -> bool:
    """Serve the member; always True."""
    member.poll(0.1)
    return True


def poll_for(member: Member, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        member.poll(0.1)


def test_lag_is_shown_as_far_as_the_users_rights_go(secured: Secured, topic: str) -> None:
    user = f"looker-{topic}"
    secured.add_user(user)
    secured.allow(user, "GROUP", topic, "DESCRIBE")
    secured.allow(user, "TOPIC", topic, "DESCRIBE")
    tg.produce(topic, ["a", "b", "c"], kafka=secured.plain)
    Admin(secured.plain, 20.0).commit_for_empty_group(topic, {Partition(topic, 0): (1, "")})

    looks = tg.lag(topic, kafka=secured.scram(user=user))
    assert (looks.lag, looks.verdict, looks.partitions[0].mark) == (2, "stopped", 1), "asked of the group itself"
    assert (looks.waiting_seconds, looks.partitions[0].retention_hours, looks.expiry_days) == (None, None, None)
    secured.allow(user, "TOPIC", topic, "READ")
    reads = tg.lag(topic, kafka=secured.scram(user=user))
    assert reads.lag_seconds is not None
    assert reads.waiting_seconds is not None
    everything = tg.lag(topic, kafka=secured.plain)
    assert everything.expiry_days is not None
    assert everything.partitions[0].retention_hours is not None


def test_a_round_that_may_not_be_shut_out_is_told_instead_of_being_tried_for_ever(
    secured: Secured, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The right to transactional ids was taken away while a run used them."""
    monkeypatch.setattr(backing, "AGAIN_SECONDS", 0.05)
    secured.add_user("theo")
    told: queue.SimpleQueue[ShutOut] = queue.SimpleQueue()
    kafka = secured.scram(user="theo")
    backer = Backer(kafka, "g", f"tidegate.{topic}", lambda _: "id", told.put, in_transactions=True)
    lease = Lease(0, 1, (LeasedPartition(Partition(topic, 0), 1, Position(0)),), Limits(5.0, 1.0, 3.0, 20.0))
    try:
        backer.shut_out(lease, RoundDied("killed"))
        answer = told.get(timeout=60.0)
    finally:
        backer.close()
    assert answer.lease is lease
    assert isinstance(answer.why, BrokerRefused)
    assert "transactional ids" in str(answer.why)
