"""The border to the Kafka client: which settings it takes, and that its errors become ours."""

from __future__ import annotations

import logging

import pytest
from confluent_kafka import KafkaError, KafkaException

from tidegate.errors import (
    BrokerRefused,
    BrokerUnreachable,
    RecordsLost,
    SettingsError,
    TidegateError,
    TopicExists,
    TopicMissing,
)
from tidegate.kafka.admin import Admin
from tidegate.kafka.connection import ClientLog, Kafka, translate, translated
from tidegate.kafka.scan import Scan
from tidegate.kafka.writer import Ack, Writer
from tidegate.records import Partition

CODES = {name: code for name, code in vars(KafkaError).items() if isinstance(code, int) and code != 0}


@pytest.mark.parametrize("name", ["enable.auto.commit", "auto.commit.interval.ms", "enable.auto.offset.store"])
@pytest.mark.parametrize("value", [True, "true", "TRUE", 5000])
def test_auto_commit_is_refused_and_the_reason_given(name: str, value: str | int | bool) -> None:
    with pytest.raises(SettingsError, match=r"cannot work: (auto-commit moves|Tidegate stores).*; remove this setting"):
        Kafka("localhost:9092", {name: value})


@pytest.mark.parametrize("value", [False, "false", 0])
def test_auto_commit_that_is_switched_off_is_harmless_and_left_to_us(value: str | int | bool) -> None:
    kafka = Kafka("localhost:9092", {"enable.auto.commit": value})

    assert "enable.auto.commit" not in kafka.client()


@pytest.mark.parametrize(
    "name", ["group.id", "bootstrap.servers", "auto.offset.reset", "isolation.level", "acks", "session.timeout.ms"]
)
def test_a_setting_that_is_ours_is_refused_with_the_place_where_it_is_chosen(name: str) -> None:
    with pytest.raises(SettingsError, match=f"the client setting {name} is not yours to set; ."):
        Kafka("localhost:9092", {name: "x"})


def test_client_settings_reach_every_client() -> None:
    settings = Kafka("there:1", {"security.protocol": "ssl"}).client(group_id="billing")

    assert settings["bootstrap.servers"] == "there:1"
    assert settings["security.protocol"] == "ssl"
    assert settings["group.id"] == "billing"


def test_an_unknown_client_setting_is_named() -> None:
    with pytest.raises(SettingsError, match=r'No such configuration property: "foo.bar"; mend or remove that setting'):
        Admin(Kafka("localhost:9092", {"foo.bar": 1}))


@pytest.mark.parametrize("name", CODES)
def test_every_code_of_the_client_becomes_an_error_of_ours_with_a_cure(name: str) -> None:
    error = translate(KafkaError(CODES[name], "the broker's words."), "doing it", "there:1")

    assert "(doing it" in error.happened
    assert error.cure
    assert ".;" not in str(error)


GROUPS: list[tuple[str, type[TidegateError], str]] = [
    ("_TRANSPORT", BrokerUnreachable, "check the address"),
    ("_TIMED_OUT", BrokerUnreachable, "check the address"),
    ("_DESTROY_BROKER", BrokerUnreachable, "check the address"),
    ("COORDINATOR_NOT_AVAILABLE", BrokerUnreachable, "check the address"),
    ("_MSG_TIMED_OUT", BrokerUnreachable, "check the address"),
    ("UNKNOWN_TOPIC_OR_PART", TopicMissing, "tidegate topics create"),
    ("_INVALID_ARG", SettingsError, "mend or remove"),
    ("TOPIC_EXCEPTION", SettingsError, "a topic's name"),
    ("INVALID_REPLICATION_FACTOR", SettingsError, "brokers"),
    ("SASL_AUTHENTICATION_FAILED", BrokerRefused, "sasl"),
    ("_SSL", BrokerRefused, "ssl"),
    ("TOPIC_AUTHORIZATION_FAILED", BrokerRefused, "ACL"),
    ("GROUP_AUTHORIZATION_FAILED", BrokerRefused, "ACL"),
    ("TOPIC_ALREADY_EXISTS", TopicExists, "another name"),
    ("MSG_SIZE_TOO_LARGE", BrokerRefused, "max.message.bytes"),
    ("OFFSET_METADATA_TOO_LARGE", BrokerRefused, "offset.metadata.max.bytes"),
    ("NOT_ENOUGH_REPLICAS", BrokerUnreachable, "in-sync"),
    ("UNKNOWN_MEMBER_ID", BrokerRefused, "try again"),
    ("FENCED_INSTANCE_ID", BrokerRefused, "instance="),
    ("OFFSET_OUT_OF_RANGE", RecordsLost, "retained"),
    ("_AUTO_OFFSET_RESET", RecordsLost, "retained"),
    ("UNSUPPORTED_VERSION", BrokerRefused, "newer"),
    ("UNKNOWN", BrokerRefused, "look up UNKNOWN"),
]


@pytest.mark.parametrize(("name", "kind", "cure"), GROUPS)
def test_each_group_of_codes_has_its_error_and_cure(name: str, kind: type[TidegateError], cure: str) -> None:
    error = translate(KafkaError(CODES[name]), "doing it", "there:1")

    assert type(error) is kind
    assert cure in error.cure


def test_no_client_error_passes_the_border() -> None:
    with pytest.raises(BrokerUnreachable, match="there:1 does not answer") as caught, translated("asking", "there:1"):
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    assert isinstance(caught.value.__cause__, KafkaException)


NOWHERE = Kafka("127.0.0.1:1")
AT = Partition("orders", 0)


@pytest.mark.parametrize(
    "ask",
    [
        lambda admin: admin.topics(),
        lambda admin: admin.describe(["orders"]),
        lambda admin: admin.existing(["orders"]),
        lambda admin: admin.create_topic("orders"),
        lambda admin: admin.delete_topic("orders"),
        lambda admin: admin.beginnings([AT]),
        lambda admin: admin.ends([AT]),
        lambda admin: admin.offsets_at([AT], 5),
        lambda admin: admin.committed("billing"),
        lambda admin: admin.commit_for_empty_group("billing", {AT: (1, "")}),
        lambda admin: admin.group_members("billing"),
        lambda admin: admin.groups(),
    ],
    ids=[
        "topics",
        "describe",
        "existing",
        "create_topic",
        "delete_topic",
        "beginnings",
        "ends",
        "offsets_at",
        "committed",
        "commit_for_empty_group",
        "group_members",
        "groups",
    ],
)
def test_nobody_there_is_said_in_time_with_the_reason_and_without_noise(
    ask: object, capfd: pytest.CaptureFixture[str]
) -> None:
    assert callable(ask)
    with pytest.raises(BrokerUnreachable, match=r"127\.0\.0\.1:1 does not answer \(.*Connection refused\); check"):
        ask(Admin(NOWHERE, timeout_seconds=0.15))

    assert capfd.readouterr() == ("", "")


def test_a_scan_that_has_an_end_to_reach_does_not_wait_for_ever() -> None:
    with Scan(NOWHERE, {AT: 0}, until={AT: 5}, timeout_seconds=0.3) as scan:
        with pytest.raises(BrokerUnreachable, match="does not answer"):
            scan.read(60.0)
        assert not scan.is_done


def test_a_writer_gives_a_record_that_nobody_takes_an_error() -> None:
    acks: list[Ack] = []
    writer = Writer(NOWHERE, delivery_seconds=0.3)
    writer.send("orders", b"1", on_ack=acks.append)

    assert writer.flush(5.0) == 0
    assert [type(ack.error) for ack in acks] == [BrokerUnreachable]


def test_lines_of_the_client_go_to_logging_and_the_reason_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    log = ClientLog()
    with caplog.at_level(logging.DEBUG, logger="tidegate.kafka"):
        log.log(logging.ERROR, "%s [%s] %s", "FAIL", "c-1", "Connect to ipv4#1.2.3.4:9 failed: No route (after 3ms in)")
        log.log(logging.ERROR, "something else")

    assert log.last_failure == "No route"
    assert [record.levelno for record in caplog.records] == [logging.DEBUG, logging.DEBUG]


# --- refusals that belong to no call

LET_IN_NOWHERE = [
    # error               text                                                                 sentence
    ("_AUTHENTICATION", "ssl://a:1/bootstrap: SASL authentication error: bad (after 3ms in state X)", "SASL auth"),
    ("_SSL", "ssl://a:1/1: SSL handshake failed: certificate verify failed: see there", "verify failed"),
    ("_TRANSPORT", "ssl://a:1/1: Receive failed: alert bad certificate: SSL alert number 42", "bad certificate"),
    ("_SSL", "ssl://a:1/1: SSL handshake failed: Connection reset by peer", None),
    ("_TRANSPORT", "ssl://a:1/1: Disconnected: SSL connection closed by peer", None),
    ("_TRANSPORT", "a:1/1: Connect to ipv4#127.0.0.1:1 failed: Connection refused", None),
]


@pytest.mark.parametrize(("code", "text", "sentence"), LET_IN_NOWHERE)
def test_only_a_brokers_answer_is_a_refusal(code: str, text: str, sentence: str | None) -> None:
    log = ClientLog()

    log.note_error(KafkaError(CODES[code], text))
    one_of_several = log.refusal
    log.note_error(KafkaError(KafkaError._ALL_BROKERS_DOWN))

    assert one_of_several is None, "another broker may still take this client"
    if sentence is None:
        assert log.refusal is None
        return
    assert log.refusal is not None
    assert sentence in log.refusal.str()
    assert "a:1" not in log.refusal.str()
    assert "in state" not in log.refusal.str()
    assert isinstance(translate(log.refusal, "asking", "there:1"), BrokerRefused)


def test_one_broker_that_refuses_is_none_after_others_have_answered_again() -> None:
    log = ClientLog()
    log.note_error(KafkaError(KafkaError._ALL_BROKERS_DOWN, "3/3 brokers are down"))
    log.heard()
    log.note_error(KafkaError(KafkaError._SSL, "ssl://kafka-2:9093: handshake failed: certificate verify failed"))
    assert log.refusal is None
    log.note_error(KafkaError(KafkaError._ALL_BROKERS_DOWN, "3/3 brokers are down"))
    assert log.refusal is not None


def test_a_refusal_is_blamed_for_a_call_without_an_answer_and_for_no_other() -> None:
    log = ClientLog()
    log.note_error(KafkaError(KafkaError._AUTHENTICATION, "no"))

    assert log.blame(KafkaError(KafkaError._TIMED_OUT)).code() == KafkaError._AUTHENTICATION
    assert log.blame(KafkaError(KafkaError.TOPIC_ALREADY_EXISTS)).code() == KafkaError.TOPIC_ALREADY_EXISTS
    log.forget_refusal()
    assert log.blame(KafkaError(KafkaError._TIMED_OUT)).code() == KafkaError._TIMED_OUT


def test_a_token_source_may_fail_later_but_not_at_first() -> None:
    log = ClientLog()
    answers: list[object] = [RuntimeError("at first"), ("token", 1.0), RuntimeError("later")]

    def source(_config: str) -> object:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    fetch = log.token_source(source)
    assert fetch("")[0] == "none"
    log.note_error(KafkaError(KafkaError._AUTHENTICATION, "invalid token"))
    assert "oauth_cb failed: RuntimeError" in log.blame(KafkaError(KafkaError._TIMED_OUT)).str()
    assert fetch("") == ("token", 1.0)
    with pytest.raises(RuntimeError, match="later"):
        fetch("")


@pytest.mark.parametrize("name", ["compression.type", "compression.codec"])
def test_a_compression_that_was_chosen_is_not_taken_for_none(name: str) -> None:
    assert Kafka("localhost:9092", {name: "lz4"}).has_compression
    assert not Kafka("localhost:9092", {"linger.ms": 5}).has_compression
