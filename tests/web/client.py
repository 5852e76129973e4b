"""Real HTTP, with every header in the test's own hand."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

OPERATOR = "operator-token-for-tests"
READER = "reader-token-for-tests"


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """The word of an error; every error has the one shape, and says what helps."""
        found = self.json
        assert set(found) == {"error"}, found
        assert set(found["error"]) == {"code", "message", "cure"}
        assert all(isinstance(text, str) and text for text in found["error"].values()), found
        return str(found["error"]["code"])


@dataclass(frozen=True)
class Client:
    """Asks one server."""

    address: str
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def host(self) -> str:
        return urlsplit(self.address).netloc

    def with_headers(self, **headers: str) -> Client:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return Client(self.address, {**self.headers, **named})

    def as_(self, token: str) -> Client:
        return self.with_headers(authorization=f"Bearer {token}")

    def get(self, path: str) -> Answer:
        return self.send("GET", path)

    def put(self, path: str, body: object) -> Answer:
        return self.send("PUT", path, json.dumps(body).encode(), {"content-type": "application/json"})

    def post(self, path: str, body: object = None) -> Answer:
        return self.send("POST", path, json.dumps(body or {}).encode(), {"content-type": "application/json"})

    def send(self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None) -> Answer:
        connection = http.client.HTTPConnection(self.host, timeout=60)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in ({"host": self.host} | self.headers | (headers or {})).items():
                connection.putheader(name, value)
            if body or method in ("POST", "PUT"):
                connection.putheader("content-length", str(len(body)))
            connection.endheaders(body)
            found = connection.getresponse()
            names = {name.lower(): value for name, value in found.getheaders()}
            return Answer(found.status, names, found.read())
        finally:
            connection.close()
