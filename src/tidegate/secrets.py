"""Values that must appear nowhere: named in the program, read when they are needed, masked whenever shown."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

from tidegate.errors import SettingsError

MASK = "***"

_SECRET_NAME = re.compile(r"password|passphrase|secret|private\.key|key\.pem|credentials|oauthbearer\.config")

_SECRET_IN_QUERY = re.compile(r"([?&][^=&]*(?:password|secret|key)[^=&]*=)[^&]*", re.IGNORECASE)


class Secret:
    """A value that is shown as its source and never as itself.

    Pickled, it takes its value along: that is how it reaches Spark's workers, which may have neither the
    variable nor the file.
    """

    __slots__ = ("_read", "_source")

    def __init__(self, source: str, read: Callable[[], str]) -> None:
        self._source = source
        self._read = read

    def reveal(self) -> str:
        """Return the value itself."""
        return self._read()

    def __repr__(self) -> str:
        return f"secret({self._source})"

    def __reduce__(self) -> tuple[Callable[[str, str], Secret], tuple[str, str]]:
        """Leave this process with the value."""
        return (_carried, (self._source, self.reveal()))


def secret(source: str | Callable[[], str]) -> Secret:
    """Name a secret: `"env:NAME"`, `"file:/path"`, or a callable that returns it.

    It is read when a client is made, not before. Where a run sends it to its workers it is read once, at
    the start of the run.
    """
    if callable(source):
        return Secret(f"from {getattr(source, '__name__', type(source).__name__)}", lambda: _checked(source))
    kind, _, name = str(source).partition(":")
    if kind == "env" and name:
        return Secret(source, lambda: _from_environment(name))
    if kind == "file" and name:
        return Secret(source, lambda: _from_file(Path(name)))
    # What was passed may be the secret itself: it is not repeated here.
    raise SettingsError("secret(...) got neither a source nor a callable", 'write secret("env:NAME") or "file:/path"')


def text_or_secret(given: object) -> str | Secret:
    """Check a setting that should be hidden: text, a secret, or `{ from = "env:NAME" }` in a file."""
    if isinstance(given, dict) and set(given) == {"from"}:
        return secret(given["from"])
    if isinstance(given, Secret) or (isinstance(given, str) and given.strip()):
        return given
    raise ValueError('it must be text, secret("env:NAME"), or { from = "env:NAME" } in the file')


def is_secret_name(name: str) -> bool:
    """Whether a client setting of this name holds something that must not be shown."""
    return _SECRET_NAME.search(name) is not None


def shown(name: str, value: object) -> str:
    """Return a client setting's value as it may be shown."""
    if isinstance(value, Secret):
        return repr(value)
    if callable(value):
        return f"<{getattr(value, '__name__', type(value).__name__)}>"
    return MASK if is_secret_name(name) else str(value)


def shown_address(address: str | Secret) -> str:
    """Return a URL as it may be shown: without its password, wherever in it that stands."""
    if isinstance(address, Secret):
        return repr(address)
    scheme, separator, rest = address.partition("://")
    if not separator:
        return address
    credentials, at, host = rest.rpartition("@")  # a password may hold an @ itself
    user, colon, _ = credentials.partition(":")
    place = _SECRET_IN_QUERY.sub(rf"\1{MASK}", host)
    return f"{scheme}://{user}{colon and ':' + MASK}{at}{place}"


def _carried(source: str, value: str) -> Secret:
    return Secret(source, lambda: value)


def _from_environment(name: str) -> str:
    # The one variable that is read outside of settings.py: its name is the program's.
    value = os.environ.get(name)  # noqa: TID251  # as said above
    if value is None:
        raise SettingsError(f"the secret's variable {name} is not set", f"set {name} where the run is started")
    return value


def _from_file(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise SettingsError(
            f"the secret's file {path} cannot be read: {reason}", "mount it, or mend its path"
        ) from None


def _checked(read: Callable[[], str]) -> str:
    name = getattr(read, "__name__", type(read).__name__)
    try:
        value = read()
    except SettingsError:
        raise
    except Exception as error:  # noqa: BLE001  # its text may hold the secret: only its kind is told
        kind = type(error).__name__
        raise SettingsError(f"the secret from {name} failed: {kind}", f"call {name} to see why") from None
    if not isinstance(value, str):
        raise SettingsError(f"the secret from {name} is a {type(value).__name__}", "return text")
    return value
