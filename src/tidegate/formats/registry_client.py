"""A worker's line to a schema registry: schemas by number, numbers by schema, and what its answers mean.

Import it only where the extra is known to be installed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka.schema_registry import RegisteredSchema, Schema, SchemaRegistryClient, SchemaRegistryError

from tidegate.context import close_at_end
from tidegate.errors import Unavailable, Undecodable
from tidegate.formats.avro_schemas import SHOWN_CHARACTERS, Parsed, Written, schema_from, written_by
from tidegate.secrets import Secret

if TYPE_CHECKING:
    from tidegate.formats.registry import Registry

T = TypeVar("T")

_AVRO = "AVRO"
_NOT_THERE = {40401, 40402, 40403}
"""The registry's own words for: no such subject, version, schema. A 404 without them is another server's."""
_REFUSED = {401, 403}
# One more try, at once: a kept connection may have been closed at the very moment of a request.
_TRIES_AGAIN = 1
_WAIT_MS = 100


class NotRegistered(Exception):
    """The registry answered that it has no such thing."""


class RegistryClient:
    """Asks each question once: a number means one schema for ever. Threads may share it."""

    def __init__(self, registry: Registry) -> None:
        self._url = registry.url
        self._not_like_one = f"{self._url} answers, but not like a schema registry: check its address"
        self._who = registry.user or ("the token" if registry.token is not None else "a request without a user")
        try:
            self._client = SchemaRegistryClient(_settings(registry))
        except (OSError, ValueError) as error:  # a certificate that is not here, a key that is no key
            raise Unavailable(f"no client for the registry {self._url} can be made: {error}") from error
        close_at_end(self._client.close)
        self._schemas: dict[int, Written] = {}
        self._numbers: dict[tuple[str, str], int] = {}
        self._latest: dict[str, tuple[int, Parsed]] = {}

    def schema(self, number: int) -> Written:
        """Return the schema of this number; one that the registry does not know is `Undecodable`."""
        found = self._schemas.get(number)
        if found is None:
            try:
                asked = self._ask(lambda: self._client.get_schema(number))
                found = written_by(self._prepared(asked, f"schema {number}"))
            except NotRegistered as error:
                raise Undecodable(f"the registry {self._url} does not have schema {number}: {error}") from error
            # Threads that miss it together all ask: waiting in line for a registry that hangs would be worse.
            self._schemas[number] = found
        return found

    def number_of(self, subject: str, text: str, *, register: bool) -> int:
        """Return the number of this schema under its subject, registering it there if that is wanted."""
        known = self._numbers.get((subject, text))
        if known is None:
            ask = self._client.register_schema_full_response if register else self._client.lookup_schema
            known = self._number(self._of_subject(subject, lambda: ask(subject, Schema(text, _AVRO))))
            self._numbers[subject, text] = known
        return known

    def latest(self, subject: str) -> tuple[int, Parsed]:
        """Return the newest schema of a subject, as it was when first asked for, and its number."""
        found = self._latest.get(subject)
        if found is None:
            newest = self._of_subject(subject, lambda: self._client.get_latest_version(subject))
            try:
                found = (self._number(newest), self._prepared(newest.schema, f"the newest schema of {subject}"))
            except (NotRegistered, Undecodable) as error:
                raise Unavailable(f"nothing can be written for {subject}: {error}") from error
            self._latest[subject] = found
        return found

    def _of_subject(self, subject: str, call: Callable[[], T]) -> T:
        try:
            return self._ask(call)
        except NotRegistered as error:
            # No record is to blame, and none goes to the dead letters for it: `hold` waits until it is there.
            raise Unavailable(
                f"the registry {self._url} does not have the schema under {subject} ({error}): register it, "
                "or pass register=True"
            ) from error

    def _prepared(self, schema: Schema, named: str) -> Parsed:
        text = schema.schema_str
        if not text:
            raise Unavailable(self._not_like_one)
        if (schema.schema_type or _AVRO) != _AVRO:
            raise Undecodable(f"{named} is {schema.schema_type}, not Avro")
        places = _places(schema)

        def load(name: str) -> str | None:
            if name not in places:
                return None
            subject, version = places[name]
            # What refers to a version keeps it, though it was deleted.
            found = self._ask(lambda: self._client.get_version(subject, version, deleted=True)).schema
            places.update(_places(found))
            return found.schema_str

        try:
            return schema_from(text, load)
        except (Unavailable, NotRegistered):
            raise
        except Exception as error:  # what fastavro stumbles over is the schema's fault
            raise Undecodable(f"{named} of the registry {self._url} is no Avro schema: {error}") from error

    def _number(self, found: RegisteredSchema) -> int:
        if found.schema_id is None:
            raise Unavailable(self._not_like_one)
        return found.schema_id

    def _ask(self, call: Callable[[], T]) -> T:
        """Ask the registry; whatever keeps it from answering the question is `Unavailable`."""
        try:
            return call()
        except SchemaRegistryError as error:
            raise self._meaning(error) from error
        except Unavailable:
            raise
        except Exception as error:  # whatever its HTTP client raises; a redirected page is no JSON
            what = str(error) or type(error).__name__
            raise Unavailable(f"the registry {self._url} cannot be reached: {what[:SHOWN_CHARACTERS]}") from error

    def _meaning(self, error: SchemaRegistryError) -> Exception:
        status, said = error.http_status_code, str(error.error_message)[:SHOWN_CHARACTERS]
        if error.error_code in _NOT_THERE:
            return NotRegistered(said)
        if status in _REFUSED:
            return Unavailable(f"the registry {self._url} refuses {self._who} ({status}): {said}")
        if status == 404:
            return Unavailable(self._not_like_one)
        return Unavailable(f"the registry {self._url} answered {status}: {said}")


def _places(schema: Schema) -> dict[str, tuple[str, int]]:
    """Return where the schemas are that this one names."""
    return {
        one.name: (one.subject, one.version)
        for one in schema.references or ()
        if one.name is not None and one.subject is not None and one.version is not None
    }


def _settings(registry: Registry) -> dict[str, Any]:
    made: dict[str, Any] = {
        "url": registry.url,
        "timeout": registry.timeout,
        "max.retries": _TRIES_AGAIN,
        "retries.wait.ms": _WAIT_MS,
    }
    if registry.user is not None and registry.password is not None:
        made["basic.auth.user.info"] = f"{registry.user}:{registry.password.reveal()}"
    if registry.token is not None:
        made["bearer.auth.credentials.source"] = "CUSTOM"
        made["bearer.auth.custom.provider.function"] = lambda _: _bearer(registry)
        made["bearer.auth.custom.provider.config"] = {}
    if registry.tls is not None:
        tls = registry.tls
        password = None if tls.password is None else tls.password.reveal()
        made |= {
            "ssl.ca.location": tls.ca,
            "ssl.certificate.location": tls.certificate,
            "ssl.key.location": tls.key,
            "ssl.key.password": password,
        }
    return {name: value for name, value in made.items() if value is not None}


def _bearer(registry: Registry) -> dict[str, str]:
    token = registry.token
    try:
        text = token.reveal() if isinstance(token, Secret) else "" if token is None else token()
    except Exception as error:  # noqa: BLE001  # its text may hold the secret: only its kind is told
        raise Unavailable(f"the token for {registry.url} failed: {type(error).__name__}") from None
    # The client insists on the second; it names a part of a vendor's cloud, and other servers do not look at it.
    return {"bearer.auth.token": text, "bearer.auth.logical.cluster": ""}
