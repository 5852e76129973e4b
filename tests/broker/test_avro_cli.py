"""Avro from the shell: JSON lines in, values out, and nothing that ends a look at a topic."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.broker.test_cli import Shell, assert_one_sentence, kafka, shell, topic
from tidegate.ops.produce import Message, produce

if TYPE_CHECKING:
    from tests.registry_server import RegistryServer
    from tidegate.kafka.connection import Kafka

__all__ = ["kafka", "shell", "topic"]  # fixtures

SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}], "default": None},
        {"name": "raw", "type": "bytes", "default": ""},
    ],
}
LINE = '{"id": 7, "price": "12.50", "at": "2026-01-31T12:00:00Z", "raw": {"base64": "/w=="}}'
SHOWN = {"id": 7, "price": "12.50", "at": "2026-01-31T12:00:00+00:00", "raw": {"base64": "/w=="}}
ENCODED = b"\x0e\x04\x04\xe2\x02\x80\xf8\xe4\xbe\x82g\x02\xff"


@pytest.fixture(autouse=True)
def _schema_file(shell: Shell) -> None:
    (shell.folder / "order.avsc").write_text(json.dumps(SCHEMA), encoding="utf-8")


def seen(shell: Shell, topic: str, *words: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in shell.shown("tail", topic, "--json", *words).splitlines()]


def test_lines_are_encoded_by_a_schema_and_shown_by_it(shell: Shell, topic: str) -> None:
    shell.shown("produce", topic, "--avro", "order.avsc", "--key", "k", "--partition", "0", given=LINE + "\n")
    shell.shown("produce", topic, "--avro", "order.avsc", "--null", "--partition", "0")

    first, second = seen(shell, topic, "--avro", "order.avsc")
    assert (first["value"], first["key"], first["error"]) == (SHOWN, "k", None)
    assert (second["value"], second["error"]) == (None, None)
    [line, null] = shell.shown("tail", topic, "--avro", "order.avsc").splitlines()
    assert json.loads(line.split("  ")[-1]) == SHOWN
    assert null.endswith("null")


def test_with_a_registry_the_wire_format_is_written_and_shown(
    shell: Shell, topic: str, schema_registry: RegistryServer
) -> None:
    words = ["--avro", "order.avsc", "--registry", schema_registry.url]
    refused = shell.run("produce", topic, *words, LINE)
    assert_one_sentence(refused, rf".* does not have the schema under {topic}-value .*register.*; check --registry .*")
    shell.shown("produce", topic, *words, "--register", "--partition", "0", LINE)
    shell.shown("produce", topic, *words, "--partition", "0", LINE)
    shell.shown("produce", topic, *words, "--subject", f"{topic}-other", "--register", "--partition", "0", LINE)

    assert [one["value"] for one in seen(shell, topic, "--registry", schema_registry.url)] == [SHOWN] * 3
    (shell.folder / "id.avsc").write_text(json.dumps({**SCHEMA, "fields": SCHEMA["fields"][:1]}), encoding="utf-8")
    read_as = seen(shell, topic, "--registry", schema_registry.url, "--avro", "id.avsc")
    assert [one["value"] for one in read_as] == [{"id": 7}] * 3


def test_records_that_are_not_avro_are_shown_as_such(
    shell: Shell, topic: str, kafka: Kafka, schema_registry: RegistryServer
) -> None:
    words = ["--avro", "order.avsc", "--registry", schema_registry.url, "--register", "--partition", "0"]
    shell.shown("produce", topic, *words, LINE)
    broken = [b"old text", b"\0\x7f\xff\xff\xff123", b"", None]
    produce(topic, [Message(one, key=b"plain", partition=0) for one in broken], kafka=kafka)
    shell.shown("produce", topic, *words, LINE)

    shown = seen(shell, topic, "--registry", schema_registry.url, "--avro-keys")
    assert [one["value"] for one in shown] == [SHOWN, "old text", {"base64": "AH////8xMjM="}, "", None, SHOWN]
    reasons = [one["error"] or "" for one in shown]
    assert "value: the first byte is 111" in reasons[1]
    assert "value: the registry" in reasons[2]
    assert "does not have schema 2147483647" in reasons[2]
    assert "value: 0 bytes are too few" in reasons[3]
    assert reasons[4] == "key: the first byte is 112: not the wire format of a schema registry"
    assert reasons[0] == reasons[5] == ""
    lines = shell.shown("tail", topic, "--registry", schema_registry.url).splitlines()
    reason = "the first byte is 111: not the wire format of a schema registry"
    assert lines[1].endswith(f"key=plain  old text  (not decoded: value: {reason})")
    assert len(lines) == 6


def test_a_registry_that_is_away_does_not_end_a_tail(shell: Shell, topic: str, kafka: Kafka) -> None:
    produce(topic, [Message(b"\0\0\0\0\1x", partition=0), Message(b"old text", partition=0)], kafka=kafka)
    first, second = seen(shell, topic, "--registry", "http://127.0.0.1:1")
    assert "value: the registry http://127.0.0.1:1 cannot be reached" in first["error"]
    assert "the first byte is 111" in second["error"]


REFUSED = [
    # words, what is typed, what is said
    (["--avro", "order.avsc"], '{"id": "7"}', r".*id is '7', expected long; mend the value or the schema"),
    (["--avro", "order.avsc"], '{"id": 7}', r".*it lacks price, which Order needs; mend .*"),
    (["--avro", "order.avsc"], '{"id": 7, "price": "1.005"}', r".*Scale .*; mend .*"),
    (["--avro", "order.avsc"], "not JSON", r"'not JSON' is no JSON: .*; with --avro each value is JSON"),
    (["--avro", "nowhere.avsc"], "{}", r"the schema nowhere.avsc cannot be read: .*; mend its path"),
    (["--registry", "http://127.0.0.1:1"], "{}", r"an option for Avro is given, but no schema; add --avro SCHEMA"),
    (["--register"], "{}", r"an option for Avro is given, but no schema; add --avro SCHEMA"),
    (["--registry-user", "carol"], "{}", r"an option for a registry is given, but no registry; add --registry URL"),
    (["--avro", "order.avsc", "--registry", "localhost"], LINE, r"registry\(url\) is no address; write it like .*"),
    (["--avro", "order.avsc", "--registry", "http://127.0.0.1:1"], LINE, r"the registry .* cannot be reached: .*"),
]


@pytest.mark.parametrize(("words", "typed", "said"), REFUSED)
def test_what_cannot_be_produced_is_one_sentence(
    shell: Shell, topic: str, words: list[str], typed: str, said: str
) -> None:
    assert_one_sentence(shell.run("produce", topic, *words, typed), said)


def test_keys_are_decoded_only_by_a_registry(shell: Shell, topic: str) -> None:
    assert_one_sentence(shell.run("tail", topic, "--avro-keys"), r"--avro-keys needs a registry; add --registry URL")


def test_a_password_is_named_and_not_written(shell: Shell, topic: str) -> None:
    words = ["--registry", "http://127.0.0.1:1", "--registry-user", "carol", "--registry-password", "hunter2"]
    done = shell.run("tail", topic, *words)
    assert_one_sentence(done, r"secret\(\.\.\.\) got neither a source nor a callable; .*")
    assert not re.search("hunter2", done.stderr)


def test_plain_avro_is_what_other_programs_write(shell: Shell, topic: str, kafka: Kafka) -> None:
    produce(topic, [Message(ENCODED, partition=0)], kafka=kafka)
    assert [one["value"] for one in seen(shell, topic, "--avro", "order.avsc")] == [SHOWN]


def test_bytes_that_would_end_the_command_are_shown_with_the_reason(shell: Shell, topic: str, kafka: Kafka) -> None:
    node = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
    (shell.folder / "node.avsc").write_text(json.dumps(node), encoding="utf-8")
    far_too_deep, too_deep_for_json, good = b"\x02" * 500_000, b"\x02" * 500 + b"\0", b"\x02\0"
    produce(topic, [Message(one, partition=0) for one in (far_too_deep, too_deep_for_json, good)], kafka=kafka)

    first, second, third = seen(shell, topic, "--avro", "node.avsc")
    assert first["value"].encode() == far_too_deep
    assert "nested deeper than 1000 levels" in first["error"]
    assert second["value"].encode() == too_deep_for_json
    assert "too deep to be shown" in second["error"]
    assert (third["value"], third["error"]) == ({"next": {"next": None}}, None)
    assert len(shell.shown("tail", topic, "--avro", "node.avsc").splitlines()) == 3
