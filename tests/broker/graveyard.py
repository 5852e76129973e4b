"""A group with dead letters, as tests write and read them."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the client does not mark what it re-exports
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

import tidegate as tg
from tidegate.copies import Copy, Origin, failed_again, read_headers, write_headers
from tidegate.kafka.admin import Admin
from tidegate.kafka.connection import Kafka
from tidegate.kafka.writer import Ack, Writer
from tidegate.ops.tail import tail

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime
    from pathlib import Path

    from tidegate.kafka.scan import SeenRecord

COMMAND = [sys.executable, "-m", "tidegate.cli", "dead"]
DEAD_CONFIG = {"message.timestamp.type": "LogAppendTime", "retention.ms": "-1"}


@dataclass(frozen=True)
class Letter:
    """A dead letter to write: as the pipeline would, or with headers that it never would write."""

    number: int
    partition: int = 0
    topic: str = "orders"
    error: tuple[str, str] = ("ValueError", "no amount")
    redrives: int = 0
    key: bytes | None = None
    value: bytes | None = b"{}"
    own: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: datetime | None = None
    headers: tuple[tuple[str, bytes | None], ...] | None = None

    def all_headers(self, group: str) -> Iterable[tuple[str, bytes | None]]:
        if self.headers is not None:
            return self.headers
        first = Copy(Origin(self.topic, 0, self.number, 1_000), f"{group}:{self.topic}:0:{self.number}")
        copy = failed_again(
            replace(first, redrives=self.redrives),
            at_ms=2_000,
            place=f"{self.topic}[0] offset {self.number}",
            attempts=4,
            error_type=self.error[0],
            message=self.error[1],
            traceback="Traceback: here",
            delay=None,
            done=frozenset({(0, 0)}),
            sinks="f00",
        )
        return write_headers(copy, self.own)


class Graveyard:
    """A group with dead letters."""

    def __init__(self, kafka: Kafka, folder: Path) -> None:
        self.kafka = kafka
        self.admin = Admin(kafka)
        self.group = f"group-{uuid.uuid4().hex[:10]}"
        self.dead, self.redrive = f"{self.group}.dead", f"{self.group}.redrive"
        self._folder = folder

    def bury(self, *letters: Letter, partitions: int = 2, **config: str) -> None:
        """Write letters; the first time this makes the topic."""
        if self.dead not in self.admin.existing([self.dead]):
            settings = {name.replace("_", "."): value for name, value in config.items()}
            self.admin.create_topic(self.dead, partitions, {**DEAD_CONFIG, **settings})
        self.write(self.dead, letters)

    def write(self, topic: str, letters: Iterable[Letter]) -> None:
        writer, failed = Writer(Kafka(self.kafka.bootstrap, {"message.max.bytes": 10_000_000})), list[Ack]()
        for letter in letters:
            writer.send(
                topic,
                letter.value,
                letter.key,
                list(letter.all_headers(self.group)),
                partition=letter.partition,
                timestamp_ms=None if letter.timestamp is None else int(letter.timestamp.timestamp() * 1000),
                on_ack=lambda ack: failed.append(ack) if ack.error else None,
            )
        assert writer.flush(30) == 0
        assert failed == []

    def records(self, topic: str) -> list[SeenRecord]:
        return list(tail(topic, kafka=self.kafka)) if topic in self.admin.existing([topic]) else []

    def redriven_ids(self) -> list[str]:
        copies = [read_headers(record.headers) for record in self.records(self.redrive)]
        return [copy.stable_id for copy in copies if copy is not None]

    def ids(self, numbers: Iterable[int], topic: str = "orders") -> list[str]:
        return [f"{self.group}:{topic}:0:{number}" for number in numbers]

    def numbers(self, **words: Any) -> list[int]:
        return [letter.origin_offset or 0 for letter in tg.dead_letters(self.group, kafka=self.kafka, **words)]

    def send(self, **words: Any) -> tg.RedriveReport:
        return tg.redrive(self.group, kafka=self.kafka, **words)

    def set_limit(self, topic: str, max_bytes: int) -> None:
        entry = ConfigEntry("max.message.bytes", str(max_bytes), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
        client = AdminClient({"bootstrap.servers": self.kafka.bootstrap})
        for future in client.incremental_alter_configs([resource]).values():
            future.result(10)

    def command(self, word: str, *words: str, stdin: int | None = subprocess.DEVNULL) -> subprocess.Popen[str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")}
        return subprocess.Popen(
            [*COMMAND, word, self.group, *words],
            cwd=self._folder,
            env={**environment, "TIDEGATE_BOOTSTRAP": self.kafka.bootstrap},
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str, code: int = 0, stdin: int | None = subprocess.DEVNULL) -> tuple[str, str]:
        """Return what a command wrote to stdout and to stderr."""
        with self.command(*words, stdin=stdin) as process:
            output, errors = process.communicate(timeout=90)
        assert process.returncode == code, errors
        return output, errors
