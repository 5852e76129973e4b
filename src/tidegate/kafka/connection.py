"""How to reach a Kafka cluster, and the one border where its errors become ours."""

from __future__ import annotations

import difflib
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, KafkaException, libversion

from tidegate.errors import (
    BrokerRefused,
    BrokerUnreachable,
    RecordsLost,
    SettingsError,
    TidegateError,
    TopicExists,
    TopicMissing,
)
from tidegate.secrets import Secret, shown
from tidegate.settings import ClientValue, Resolved

ClientSettings = Mapping[str, ClientValue]

logger = logging.getLogger("tidegate.kafka")

_REFUSED = {
    "enable.auto.commit": "auto-commit moves the group past records that nobody has settled",
    "auto.commit.interval.ms": "auto-commit moves the group past records that nobody has settled",
    "enable.auto.offset.store": "Tidegate stores no offset before its record is settled",
}
_OURS = {
    "group.id": "pass group= to from_kafka",
    "bootstrap.servers": "pass it as the first argument of Kafka(...)",
    "auto.offset.reset": "pass starting= to from_kafka",
    "isolation.level": "Tidegate always reads committed records only",
    "enable.partition.eof": "Tidegate needs it and sets it",
    "partition.assignment.strategy": "Tidegate always joins cooperatively",
    "session.timeout.ms": "use the setting session_timeout",
    "acks": "Tidegate always waits for all in-sync replicas",
    "enable.idempotence": "Tidegate always produces idempotently",
    "logger": "the client's lines come through logging, as tidegate.kafka",
    "error_cb": "Tidegate raises what matters and logs the rest",
}


class ClientLog:
    """Takes the client library's own log lines, so that they reach `logging` and never the terminal.

    They come as errors many times a second while a broker is away. Ours is the one sentence that is raised.
    """

    def __init__(self) -> None:
        self.last_failure = ""
        self._refusal: KafkaError | None = None
        self._are_all_down = False
        self._is_news = False
        self._has_token = False
        self._token_failure = ""

    def log(self, _level: int, message: str, *arguments: object) -> None:
        """Take one line: the client calls this whenever it is polled."""
        text = message % arguments if arguments else message
        if found := _CONNECT_FAILURE.search(text):
            self.last_failure = found.group(1)
        logger.debug("client_log %s", text)

    def note_error(self, error: KafkaError) -> None:
        """Take an error that belongs to no call: the client calls this whenever it is polled, and goes on trying."""
        code, text = error.code(), error.str()
        if code == KafkaError._ALL_BROKERS_DOWN:
            self._are_all_down = self._is_news = True
        elif code == KafkaError._AUTHENTICATION or (code in _TLS_CODES and _TLS_REFUSAL.search(text)):
            kind = KafkaError._AUTHENTICATION if code == KafkaError._AUTHENTICATION else KafkaError._SSL
            self._refusal = KafkaError(kind, self._token_failure or _CLIENT_NOISE.sub("", text))

    @property
    def refusal(self) -> KafkaError | None:
        """Why this client is let in nowhere; None while some broker may still take it."""
        return self._refusal if self._are_all_down else None

    def take_outage(self) -> bool:
        """Whether no broker could be reached since this was last asked."""
        is_news, self._is_news = self._is_news, False
        return is_news

    def blame(self, error: KafkaError) -> KafkaError:
        """Return the refusal behind a call that seemed to get no answer."""
        return self._refusal if self._refusal is not None and error.code() in _UNREACHABLE else error

    def forget_refusal(self) -> None:
        """Begin anew: what was refused before may be allowed now."""
        self._refusal = None

    def heard(self) -> None:
        """Some broker has answered. Otherwise: an hour later one of three has a bad certificate, and that counts."""
        self._are_all_down = False

    def token_source(self, callback: Callable[[str], Any]) -> Callable[[str], Any]:
        """Wrap an `oauth_cb`, so that its failure is told and does not end the process.

        Where the first token cannot be had, the client's constructor waits ten seconds and then raises what
        is no exception. A token that means nothing instead is refused by the broker at once. Later failures
        are the client's to repeat: the last token is still good. Only the failure's kind is told: its text may
        hold a secret.
        """

        def fetch(config: str) -> Any:
            try:
                token = callback(config)
            except Exception as error:
                if self._has_token:
                    raise
                self._token_failure = f"oauth_cb failed: {type(error).__name__}"
                return "none", time.time() + _NO_TOKEN_SECONDS
            self._has_token, self._token_failure = True, ""
            return token

        return fetch


_CONNECT_FAILURE = re.compile(r"(?:Connect to .* failed|Failed to resolve .*?|handshake failed): (.+?)(?: \(after|$)")


_TLS_CODES = {KafkaError._SSL, KafkaError._TRANSPORT}
# A handshake that a restarting broker cut off looks much the same; only these two are an answer.
_TLS_REFUSAL = re.compile(r"certificate verify failed|SSL alert number")
_CLIENT_NOISE = re.compile(r"^\S+://\S+: | \(after \d+ms in state.*$")
_NO_TOKEN_SECONDS = 5.0


@dataclass(frozen=True, repr=False)
class Kafka:
    """A cluster: its address, and any client settings that all connections need (security, mostly).

    A value may be a `tg.secret(...)`, and `oauth_cb` a callable; both reach the workers of a run.
    """

    bootstrap: str = "localhost:9092"
    settings: ClientSettings = field(default_factory=dict)

    def __post_init__(self) -> None:
        _refuse_address(self.bootstrap)
        for name, value in self.settings.items():
            if name in _REFUSED and str(value).lower() not in ("false", "0"):
                raise SettingsError(f"{name}={value} cannot work: {_REFUSED[name]}", "remove this setting")
            if name in _OURS:
                raise SettingsError(f"the client setting {name} is not yours to set", _OURS[name])
            if callable(value) and not name.endswith("_cb"):
                raise SettingsError(f"the client setting {name} is a function", "wrap it: tg.secret(function)")

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={shown(name, value)}" for name, value in self.settings.items())
        return f"Kafka({', '.join([self.bootstrap, settings]) if settings else self.bootstrap})"

    @property
    def has_compression(self) -> bool:
        """Whether somebody has chosen how what is written is compressed."""
        return bool({"compression.type", "compression.codec"} & self.settings.keys())

    def client(self, **more: str | int | float | bool) -> dict[str, Any]:
        """Return the settings for one client, secrets read; names in `more` use underscores for dots."""
        log = ClientLog()
        own = {
            name: value.reveal() if isinstance(value, Secret) else value
            for name, value in self.settings.items()
            if name not in _REFUSED
        }
        if callable(fetch := own.get("oauth_cb")):
            own["oauth_cb"] = log.token_source(fetch)
        return {
            "bootstrap.servers": self.bootstrap,
            "client.id": "tidegate",  # by which people know our members and requests in every other tool
            "log_level": 3,
            "logger": log,
            "error_cb": log.note_error,
            **own,
            **{name.replace("_", "."): value for name, value in more.items()},
        }


def client_version() -> str:
    """Return the version of the library below the client."""
    return str(libversion()[0])


def kafka_of(resolved: Resolved) -> Kafka:
    """Return the cluster that the settings name."""
    return Kafka(resolved.values.bootstrap, resolved.client)


_ADDRESS = re.compile(r"(?:\w+://)?(?:\[[0-9a-fA-F:%.]+\]|[^\s:/\[\]]+)(?::\d{1,5})?")


def _refuse_address(bootstrap: object) -> None:
    """Refuse what the client would only fail to find."""
    texts = bootstrap.split(",") if isinstance(bootstrap, str) else []
    if not texts or any(_ADDRESS.fullmatch(text.strip()) is None or text.strip().startswith("http") for text in texts):
        raise SettingsError(f"{bootstrap!r} is no address of Kafka", "write host:port, several with commas")


NO_LINE = frozenset(
    {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT, KafkaError._DESTROY_BROKER}
)
"""Nobody answers: a connection broke, or the client has just dropped a broker that it was asking."""
_UNREACHABLE = NO_LINE | {
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._MSG_TIMED_OUT,
    KafkaError._RESOLVE,
    KafkaError._WAIT_COORD,
    KafkaError._WAIT_CACHE,
    KafkaError._UNKNOWN_BROKER,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.NOT_CONTROLLER,
    KafkaError.NOT_COORDINATOR,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.REBOOTSTRAP_REQUIRED,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.UNKNOWN_LEADER_EPOCH,
}
_MISSING = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.UNKNOWN_TOPIC_ID,
    KafkaError.INCONSISTENT_TOPIC_ID,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
}
_SETTINGS = {
    KafkaError._INVALID_ARG: "mend or remove that setting",
    KafkaError._NOT_CONFIGURED: "add that setting",
    KafkaError.TOPIC_EXCEPTION: "a topic's name has at most 249 of the characters a-z A-Z 0-9 . _ -",
    KafkaError.INVALID_PARTITIONS: "ask for at least one partition, and for no fewer than the topic has",
    KafkaError.INVALID_REPLICATION_FACTOR: "ask for at most as many replicas as there are brokers",
    KafkaError.INVALID_CONFIG: "see Kafka's list of topic settings for the name and its values",
    KafkaError.INVALID_GROUP_ID: "give the group a name that is not empty",
    KafkaError.INVALID_SESSION_TIMEOUT: "choose a session_timeout between the broker's group.min and group.max",
}
_AUTHENTICATION = "check security.protocol, the sasl.* and the ssl.* settings passed to Kafka(...)"
_RIGHTS = "ask whoever runs the cluster for that right (an ACL) for your user"
_TOPIC_RIGHTS = "ask whoever runs the cluster for an ACL that lets your user describe and read (or write) the topic"
_GROUP_RIGHTS = "ask whoever runs the cluster for an ACL that lets your user read the group"
_TRANSACTION_RIGHTS = (
    "ask whoever runs the cluster for an ACL that lets your user write transactional ids that begin with tidegate.GROUP"
)
_MEMBERSHIP = "the group's members changed under the call: try again"
_SIZE = "send less at once, or raise max.message.bytes of the topic and message.max.bytes of the client"
_REPLICAS = "wait until the topic has enough in-sync replicas again (min.insync.replicas)"
_TOO_FEW = {
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    KafkaError._ISR_INSUFF,
}
"""Nothing is wrong with what was sent: it may be taken as soon as a broker is back."""
_PRODUCER = "another producer has taken this one's place: start again"
_VERSION = "use Kafka 3.0 or newer"
_BUSY = "the broker is busy with the same thing: try again in a moment"
_REFUSALS = {
    KafkaError._AUTHENTICATION: _AUTHENTICATION,
    KafkaError._SSL: _AUTHENTICATION,
    KafkaError.ILLEGAL_SASL_STATE: _AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED: _AUTHENTICATION,
    KafkaError.UNSUPPORTED_SASL_MECHANISM: _AUTHENTICATION,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: _RIGHTS,
    KafkaError.GROUP_AUTHORIZATION_FAILED: _GROUP_RIGHTS,
    KafkaError.TOPIC_AUTHORIZATION_FAILED: _TOPIC_RIGHTS,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: _TRANSACTION_RIGHTS,
    KafkaError.FENCED_INSTANCE_ID: "another process runs under the same instance= name: give each its own",
    KafkaError.FENCED_MEMBER_EPOCH: _MEMBERSHIP,
    KafkaError.ILLEGAL_GENERATION: _MEMBERSHIP,
    KafkaError.REBALANCE_IN_PROGRESS: _MEMBERSHIP,
    KafkaError.STALE_MEMBER_EPOCH: _MEMBERSHIP,
    KafkaError.UNKNOWN_MEMBER_ID: _MEMBERSHIP,
    KafkaError.NON_EMPTY_GROUP: "stop every process of the group first",
    KafkaError.UNRELEASED_INSTANCE_ID: "wait for the session timeout of the process that had this name",
    KafkaError.GROUP_MAX_SIZE_REACHED: "run fewer processes, or raise group.max.size on the broker",
    KafkaError.INCONSISTENT_GROUP_PROTOCOL: "the group is used by clients of another kind: choose another group",
    KafkaError.GROUP_ID_NOT_FOUND: "check the group's name: nobody has used it yet",
    KafkaError._UNKNOWN_GROUP: "check the group's name: nobody has used it yet",
    KafkaError.TOPIC_ALREADY_EXISTS: "choose another name, or look at it with: tidegate topics show NAME",
    KafkaError.TOPIC_DELETION_DISABLED: "set delete.topic.enable=true on the broker",
    KafkaError.POLICY_VIOLATION: "the cluster has a rule of its own about this: ask whoever runs it",
    KafkaError.MSG_SIZE_TOO_LARGE: _SIZE,
    KafkaError.RECORD_LIST_TOO_LARGE: _SIZE,
    KafkaError.INVALID_MSG_SIZE: _SIZE,
    KafkaError.OFFSET_METADATA_TOO_LARGE: "raise offset.metadata.max.bytes on the broker",
    KafkaError.INVALID_COMMIT_OFFSET_SIZE: "raise offset.metadata.max.bytes on the broker",
    KafkaError.INVALID_RECORD: "the topic's own rules refuse it (a compacted topic takes no record without a key)",
    KafkaError.INVALID_TIMESTAMP: "the topic takes only timestamps near the present (message.timestamp.*.max.ms)",
    KafkaError.KAFKA_STORAGE_ERROR: "look at the broker's disk",
    KafkaError.THROTTLING_QUOTA_EXCEEDED: "wait, or ask for a larger quota",
    KafkaError.PRODUCER_FENCED: _PRODUCER,
    KafkaError.INVALID_PRODUCER_EPOCH: _PRODUCER,
    KafkaError._FENCED: _PRODUCER,
    KafkaError._FATAL: "this client cannot go on: start again",
    KafkaError.CONCURRENT_TRANSACTIONS: _BUSY,
    KafkaError.UNSTABLE_OFFSET_COMMIT: "a transaction on this group is still open: try again when it has ended",
    KafkaError.UNSUPPORTED_VERSION: _VERSION,
    KafkaError._UNSUPPORTED_FEATURE: _VERSION,
    KafkaError._IN_PROGRESS: _BUSY,
    KafkaError._PREV_IN_PROGRESS: _BUSY,
    KafkaError._QUEUE_FULL: "the broker takes records more slowly than they come: send fewer at a time",
}
_GONE = {KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET}


def translate(error: KafkaError, where: str, bootstrap: str, *, reason: str = "") -> TidegateError:
    """Turn a client error into ours, with the cure.

    `where` says what was tried, `reason` why no connection could be made, if that is known.
    """
    code, text = error.code(), error.str().rstrip(".")
    if code in _UNREACHABLE:
        return BrokerUnreachable(
            f"Kafka at {bootstrap} does not answer ({where}{': ' if reason else ''}{reason})",
            "check the address and that it runs (tidegate broker starts one for development)",
        )
    if code in _TOO_FEW:
        return BrokerUnreachable(f"Kafka at {bootstrap} has too few replicas in sync ({where})", _REPLICAS)
    if code in _MISSING:
        return TopicMissing(f"the topic does not exist ({where})", "create it with: tidegate topics create NAME")
    if code in _SETTINGS:
        return SettingsError(f"Kafka cannot work with a setting ({where}): {text}", _meant(text) or _SETTINGS[code])
    if code in _GONE:
        return RecordsLost(f"the offset is not in the log ({where}): {text}", "only retained records can be read")
    kind = TopicExists if code == KafkaError.TOPIC_ALREADY_EXISTS else BrokerRefused
    return kind(f"Kafka refused ({where}): {text}", _REFUSALS.get(code, f"look up {error.name()} in its log"))


# The client does not list its settings. These are the ones that people write, by its own names.
_USUAL = (
    *("security.protocol", "sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password"),
    *("ssl.ca.location", "ssl.ca.pem", "ssl.certificate.location", "ssl.certificate.pem", "ssl.key.location"),
    *("ssl.key.pem", "ssl.key.password", "ssl.keystore.location", "ssl.keystore.password"),
    *("ssl.endpoint.identification.algorithm", "enable.ssl.certificate.verification"),
    *("sasl.kerberos.service.name", "sasl.kerberos.principal", "sasl.kerberos.keytab"),
    *("sasl.oauthbearer.method", "sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret"),
    *("sasl.oauthbearer.token.endpoint.url", "sasl.oauthbearer.scope", "sasl.oauthbearer.extensions"),
    *("client.id", "client.rack", "client.dns.lookup", "broker.address.family", "socket.timeout.ms"),
    *("socket.keepalive.enable", "request.timeout.ms", "metadata.max.age.ms", "reconnect.backoff.ms", "debug"),
    *("fetch.min.bytes", "fetch.max.bytes", "max.partition.fetch.bytes", "fetch.wait.max.ms", "check.crcs"),
    *("linger.ms", "batch.size", "compression.type", "message.max.bytes", "max.poll.interval.ms"),
)
_UNKNOWN_NAME = re.compile(r'No such configuration property: "([^"]+)"')


def _meant(text: str) -> str:
    """Name the setting that was probably meant."""
    found = _UNKNOWN_NAME.search(text)
    close = difflib.get_close_matches(found.group(1), _USUAL, n=1) if found else []
    return f"did you mean {close[0]}? See docs/client-settings.md" if close else ""


@contextmanager
def translated(where: str, bootstrap: str) -> Iterator[None]:
    """Let no client error through untranslated."""
    try:
        yield
    except KafkaException as error:
        raise translate(error.args[0], where, bootstrap) from error
