"""A dashboard as people start it, a group to look at, and a browser that notes what must not happen."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import threading
import uuid
from typing import TYPE_CHECKING, Self

from confluent_kafka import Producer

from tests.support import wait_until
from tidegate.kafka.admin import Admin
from tidegate.kafka.connection import Kafka
from tidegate.records import Partition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from types import TracebackType

    from playwright.sync_api import Browser, BrowserContext, Page

SEEN_WITHIN_MS = 20_000
"""How long a fact may take from the broker to the page, on a machine that does other things as well."""
_SERVING = re.compile(r"serving \S+ at (http://\S+)")


class Dashboard:
    """`tidegate serve` as a process."""

    def __init__(self, bootstrap: str, folder: Path, *words: str, environment: Mapping[str, str] | None = None) -> None:
        self._bootstrap = bootstrap
        self._folder = folder
        self._words = words
        self._environment = environment or {}
        self.output: list[str] = []
        self.address = ""

    def __enter__(self) -> Self:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tidegate.cli", "serve", "--port", "0", "--every", "500ms", *self._words],
            cwd=self._folder,
            env={
                **clean,
                "TIDEGATE_BOOTSTRAP": self._bootstrap,
                "TIDEGATE_HISTORY": "off",
                "TIDEGATE_BROKER_TIMEOUT": "3s",
                **self._environment,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        wait_until(lambda: bool(self.address) or not self._reader.is_alive(), within=60, what="the dashboard serves")
        assert self.address, "".join(self.output)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait(20)
        self._reader.join(5)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.output.append(line)
            if found := _SERVING.search(line):
                self.address = found[1]
        self._process.stdout.close()


class Visitor:
    """A browser's window on a dashboard. What must never happen on any page is noted, and checked at the end."""

    def __init__(self, browser: Browser, address: str, *, width: int = 1280, colours: str = "light") -> None:
        self.address = address
        self.context: BrowserContext = browser.new_context(
            base_url=address,
            viewport={"width": width, "height": 800},
            color_scheme="dark" if colours == "dark" else "light",
        )
        self.context.set_default_timeout(SEEN_WITHIN_MS)
        self.errors: list[str] = []
        self.foreign: list[str] = []
        self.context.on("request", lambda request: self._note(request.url))
        self.page = self.open_page()

    def open_page(self) -> Page:
        page = self.context.new_page()
        page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("websocket", lambda socket: self._note(socket.url.replace("ws://", "http://", 1)))
        # A script of somebody's payload that ran would ask something, or say something.
        page.on("dialog", lambda dialog: self.errors.append(f"a dialog of the page: {dialog.message}"))
        return page

    def check(self) -> None:
        """Nothing went wrong in the browser, and it talked to nobody else."""
        assert self.foreign == []
        assert self.errors == []

    def scrolls_sideways(self) -> bool:
        found: bool = self.page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
        return found

    def _note(self, url: str) -> None:
        if not url.startswith((self.address, "data:", "blob:")):
            self.foreign.append(url)


class Orders:
    """A topic with records, and a group that stands somewhere in it."""

    def __init__(self, bootstrap: str, partitions: int = 2) -> None:
        self.kafka = Kafka(bootstrap)
        self.admin = Admin(self.kafka, 20.0)
        self.group = f"group-{uuid.uuid4().hex[:10]}"
        self.topic = f"{self.group}-orders"
        self.admin.create_topic(self.topic, partitions, {"retention.ms": "-1"})
        self.places = [Partition(self.topic, number) for number in range(partitions)]

    def produce(self, count: int) -> None:
        """Write so many records to each partition."""
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap})
        for place in self.places:
            for number in range(count):
                producer.produce(place.topic, f"{number}", partition=place.number)
        assert producer.flush(30) == 0

    def stand(self, *marks: int) -> None:
        """Put the group there, one mark for each partition."""
        positions = {place: (mark, "") for place, mark in zip(self.places, marks, strict=True)}
        self.admin.commit_for_empty_group(self.group, positions)

    def marks(self) -> list[int]:
        found = self.admin.committed(self.group, self.places)
        return [found[place].mark for place in self.places]


@contextlib.contextmanager
def opened(browser: Browser, address: str, **words: int | str) -> Iterator[Visitor]:
    """Give a visitor, and check at the end what holds on every page."""
    visitor = Visitor(browser, address, **words)  # type: ignore[arg-type]  # the words are those of its constructor
    yield visitor
    visitor.context.close()
    visitor.check()
