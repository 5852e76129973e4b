"""Values to a Kafka topic: exactly once, in one transaction with the marks, or at least once, which is faster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import orjson

from tidegate.context import in_hand, trace_headers
from tidegate.errors import Reject, SettingsError
from tidegate.headers import readable_headers
from tidegate.names import is_topic_name
from tidegate.steps import refuse_async
from tidegate.store import Outgoing

Topic = str | Callable[[Any], str]
Key = Callable[[Any], bytes | str | None]
HeaderValues = Mapping[str, str | bytes | None]
Headers = tuple[tuple[str, bytes | None], ...]
_OTHER_BYTES = (bytearray, memoryview)


@dataclass(frozen=True)
class KafkaSink:
    """One or several topics as a sink: `tg.kafka(...)` makes it. It only notes what is to be written."""

    topic: Topic
    key: Key | None = None
    headers: HeaderValues | Callable[[Any], HeaderValues] | None = None
    exactly_once: bool = False

    collects: ClassVar[bool] = True

    @property
    def identity(self) -> str:
        """Tells this sink from others, in every run alike."""
        topic = self.topic if isinstance(self.topic, str) else getattr(self.topic, "__qualname__", "topic")
        return f"kafka {topic}"

    def __call__(self, value: Any) -> None:
        """Note one value for its topic; what cannot be a record's value fails here."""
        hand = in_hand()
        message = hand.message
        own = None if message is None else message.key()
        topic = self.topic if isinstance(self.topic, str) else _checked_topic(self.topic(value))
        key = own if self.key is None else _encoded(self.key(value))
        headers: Headers = () if self.headers is None else self._headers(value)
        # Most records have no headers at all: they are not to pay for those that do.
        if message is not None and readable_headers(message) and (traces := trace_headers(hand)):
            headers = _with_traces(headers, traces) if headers else tuple(traces.items())
        hand.outputs.append(Outgoing(topic, _encoded(value), key, headers))

    def _headers(self, value: Any) -> Headers:
        given = self.headers(value) if callable(self.headers) else self.headers or {}
        return tuple((name, one.encode() if isinstance(one, str) else one) for name, one in given.items())


def kafka(
    topic: Topic,
    *,
    key: Key | None = None,
    headers: HeaderValues | Callable[[Any], HeaderValues] | None = None,
    exactly_once: bool = False,
) -> KafkaSink:
    """Write each value to a topic of the same cluster.

    `topic` is a name, or a function of the value. The value goes as it is if it is bytes or text, as JSON
    otherwise; None writes a null value. The key is the record's own, or what `key(value)` returns. `headers` is a
    mapping, or a function of the value that returns one.

    `exactly_once=True`: outputs, retry and dead-letter copies and the group's marks go in one transaction, so readers
    with `isolation.level=read_committed` see the effect of every record once, whatever is killed when. Otherwise at
    least once: a record is settled when all replicas have its outputs, and a crash may write some again.
    """
    if isinstance(topic, str) and not is_topic_name(topic):
        raise SettingsError(f"kafka: {topic!r} is no topic's name", "use letters, digits, dots, dashes and underscores")
    if not isinstance(topic, str) and not callable(topic):
        raise SettingsError(f"kafka({topic!r})", "name a topic, or give a function of the value that names it")
    if key is not None and not callable(key):
        raise SettingsError(f"kafka(key={key!r}) is not callable", "pass a function of the value: key=lambda v: v.id")
    for name, one in (("topic", topic), ("key", key), ("headers", headers)):
        refuse_async("kafka({})", name, one)
    return KafkaSink(topic, key, headers, exactly_once)


def _with_traces(own: Headers, traces: Mapping[str, bytes]) -> Headers:
    """Add trace headers to those of the user, who may have set some of them."""
    given = {name.lower() for name, _ in own}
    return (*own, *((name, value) for name, value in traces.items() if name not in given))


def _checked_topic(name: object) -> str:
    if isinstance(name, str) and is_topic_name(name):
        return name
    raise Reject(f"kafka: {name!r} is no topic's name")


def _encoded(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, _OTHER_BYTES):
        return bytes(value)
    try:
        return orjson.dumps(value)
    except TypeError as error:
        raise Reject(f"kafka: a {type(value).__name__} is neither bytes nor text nor JSON: {error}") from error
