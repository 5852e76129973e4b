"""Who asks, and what they may do: two tokens, and a signed cookie for browsers."""

from __future__ import annotations

import hashlib
import hmac
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from tidegate.errors import SettingsError
from tidegate.secrets import Secret

if TYPE_CHECKING:
    from collections.abc import MutableMapping
    from typing import Any

Role = Literal["read", "operator"]

SESSION_SECONDS = 12 * 3600
SHORTEST_TOKEN = 16
_ROLE_KEY = "tidegate.role"


@dataclass(frozen=True)
class Tokens:
    """The operator's token and the one that may only read. Without either, everybody on this machine is operator."""

    operator: str | None = field(default=None, repr=False)
    read: str | None = field(default=None, repr=False)

    @property
    def are_set(self) -> bool:
        """Whether anybody has to show one."""
        return self.operator is not None or self.read is not None

    def role_of(self, token: str) -> Role | None:
        """Return what a token allows. Takes as long for a wrong one as for a right one."""
        as_operator, as_reader = _is_same(token, self.operator), _is_same(token, self.read)
        return "operator" if as_operator else "read" if as_reader else None

    def session(self, role: Role, *, now: float | None = None) -> str:
        """Return the content of a cookie: a role and its end, signed with that role's own token.

        It outlives a restart, and ends when its token is changed.
        """
        until = int((time.time() if now is None else now) + SESSION_SECONDS)
        return f"{role}.{until}.{self._signature(role, until)}"

    def role_of_session(self, cookie: str, *, now: float | None = None) -> Role | None:
        """Return what a cookie allows; None for one that is forged, or over."""
        role, _, rest = cookie.partition(".")
        until, _, signature = rest.partition(".")
        if role not in ("operator", "read") or not (until.isascii() and until.isdigit() and len(until) < 12):
            return None
        if not _is_same(signature, self._signature(role, int(until))):  # type: ignore[arg-type]  # one of the two
            return None
        is_over = int(until) < (time.time() if now is None else now)
        return None if is_over else role  # type: ignore[return-value]  # one of the two

    def _signature(self, role: Role, until: int) -> str | None:
        key = self.operator if role == "operator" else self.read
        if key is None:
            return None
        return hmac.new(key.encode(), f"tidegate session {role} {until}".encode(), hashlib.sha256).hexdigest()


def tokens_of(token: str | Secret | None, read_token: str | Secret | None) -> Tokens:
    """Read the tokens once; one that could be guessed is refused."""
    operator, read = _revealed("token", token), _revealed("read_token", read_token)
    if operator is not None and operator == read:
        raise SettingsError("token and read_token are the same", "make them two: the second may only read")
    return Tokens(operator, read)


def cookie_name(host: str) -> str:
    """Return the cookie's name for the address that the browser uses: browsers mix up the ports of a host."""
    port = host.rpartition("]")[2].rpartition(":")[2]
    return f"tidegate_{port}" if port.isascii() and port.isdigit() else "tidegate"


def remember_role(scope: MutableMapping[str, Any], role: Role) -> None:
    """Note in a request what its sender may do."""
    scope[_ROLE_KEY] = role


def role_in(scope: MutableMapping[str, Any]) -> Role | None:
    """Return what the sender of a request may do, as the guard has found: `role_in(request.scope)`."""
    role: Role | None = scope.get(_ROLE_KEY)
    return role


def _is_same(given: str, wanted: str | None) -> bool:
    """Compare in constant time; of equal length by hashing, and never the same as what is not there."""
    digests = [hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest() for text in (given, wanted or "")]
    return hmac.compare_digest(*digests) and wanted is not None


def _revealed(name: str, given: str | Secret | None) -> str | None:
    if given is None:
        return None
    found = given.reveal() if isinstance(given, Secret) else given
    if len(found) < SHORTEST_TOKEN or not found.isascii() or not found.isprintable() or " " in found:
        raise SettingsError(
            f"the {name} has fewer than {SHORTEST_TOKEN} characters, or others than plain letters, digits and signs",
            "make one: python3 -c 'import secrets; print(secrets.token_urlsafe(24))'",
        )
    return found
