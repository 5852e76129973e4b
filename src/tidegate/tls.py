"""How to know a server and be known by it."""

from __future__ import annotations

import ssl
from dataclasses import dataclass

from tidegate.secrets import Secret


@dataclass(frozen=True)
class Tls:
    """How to know the server and be known by it, by files: `ca`, and for mutual TLS `certificate` and `key`."""

    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    password: Secret | None = None

    def context(self) -> ssl.SSLContext:
        """Return what the client needs, made in the worker."""
        made = ssl.create_default_context(cafile=self.ca)
        if self.certificate is not None:
            password = None if self.password is None else self.password.reveal()
            made.load_cert_chain(self.certificate, self.key, password)
        return made
