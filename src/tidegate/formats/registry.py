"""Where a schema registry is, and how to be let in."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tidegate.durations import seconds
from tidegate.errors import SettingsError
from tidegate.secrets import Secret
from tidegate.tls import Tls

if TYPE_CHECKING:
    from tidegate.formats.registry_client import RegistryClient

NEEDS_EXTRA = "install it: pip install 'tidegate[avro]'"
_making = threading.Lock()


@dataclass
class Registry:
    """A schema registry: `tg.registry(...)` makes it. Its client is made in the worker, when first needed."""

    url: str
    user: str | None = None
    password: Secret | None = None
    token: Secret | Callable[[], str] | None = None
    tls: Tls | None = None
    timeout: float = 5.0
    _client: RegistryClient | None = field(default=None, init=False, repr=False, compare=False)

    def client(self) -> RegistryClient:
        """Return this worker's client, with the schemas that it knows."""
        if self._client is None:
            from tidegate.formats.registry_client import RegistryClient  # noqa: PLC0415  # an extra

            with _making:
                if self._client is None:
                    self._client = RegistryClient(self)
        return self._client

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None}


def registry(
    url: str,
    *,
    user: str | None = None,
    password: Secret | None = None,
    token: Secret | Callable[[], str] | None = None,
    tls: Tls | None = None,
    timeout: str | float = "5s",
) -> Registry:
    """Name a schema registry that speaks Confluent's REST API, for `tg.avro` and `tg.to_avro`.

    `url`: one address, or several with commas between them. `user` with `password`, or `token` (a function is
    asked for every request). `timeout` bounds each request; one that failed is sent once more.
    """
    for one in str(url).split(","):
        _check_address(one.strip())
    if (user is None) != (password is None):
        raise SettingsError("registry(...) has only one of user and password", "give both, or a token")
    if user is not None and token is not None:
        raise SettingsError("registry(...) has a user and a token", "keep one of the two")
    if password is not None and not isinstance(password, Secret):
        raise SettingsError("registry(password=...) is no secret", 'name it: tg.secret("env:NAME") or "file:/path"')
    if token is not None and not isinstance(token, Secret) and not callable(token):
        raise SettingsError("registry(token=...) is no secret", "pass a tg.secret, or a function that returns it")
    return Registry(str(url), user, password, token, tls, seconds(timeout))


def as_registry(given: Registry | str) -> Registry:
    """Take an address for a registry that lets everybody in."""
    return given if isinstance(given, Registry) else registry(given)


def _check_address(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        # Not repeated: what is no address may be a key that was put in the wrong place.
        raise SettingsError("registry(url) is no address", 'write it like "http://localhost:8081"')
    if parts.username is not None:
        raise SettingsError(
            f"the address of the registry at {parts.hostname} holds a user", "pass user= and password=tg.secret(...)"
        )
