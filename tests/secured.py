"""A broker with one secured listener of each kind, and what its clients need."""

from __future__ import annotations

import base64
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the client does not mark what it re-exports
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)

from tidegate.dev.broker import Broker
from tidegate.kafka.connection import Kafka

_LOGIN = "org.apache.kafka.common.security"
_SERVER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # Who comes by the plain listener is the broker itself, or a test that prepares something.
    "super.users": "User:ANONYMOUS",
    "listener.name.scram.sasl.enabled.mechanisms": "SCRAM-SHA-256",
    "listener.name.scram.scram-sha-256.sasl.jaas.config": f"{_LOGIN}.scram.ScramLoginModule required;",
    "listener.name.oauth.sasl.enabled.mechanisms": "OAUTHBEARER",
    "listener.name.oauth.oauthbearer.sasl.jaas.config": (
        f'{_LOGIN}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
    ),
    "listener.name.mutual.ssl.client.auth": "required",
    "ssl.keystore.type": "PEM",
    "ssl.truststore.type": "PEM",
}
LISTENERS = {"SCRAM": "SASL_PLAINTEXT", "TLS": "SSL", "MUTUAL": "SSL", "OAUTH": "SASL_PLAINTEXT"}

USER = "carol"
PASSWORD = "correct-horse-7261"  # noqa: S105  # of a broker that lives for one test module
KEY_PASSWORD = "battery-staple-9143"  # noqa: S105  # as above


@dataclass(frozen=True)
class Secured:
    """The broker, the folder of its certificates, and clients of each kind."""

    broker: Broker
    folder: Path

    @property
    def plain(self) -> Kafka:
        """The way in that needs no name and may do everything."""
        return Kafka(self.broker.bootstrap)

    def scram(self, password: object = PASSWORD, user: str = USER) -> Kafka:
        return Kafka(
            self.broker.address("SCRAM"),
            {
                "security.protocol": "sasl_plaintext",
                "sasl.mechanism": "SCRAM-SHA-256",
                "sasl.username": user,
                "sasl.password": password,  # type: ignore[dict-item]  # text or a secret
            },
        )

    def tls(self, authority: str = "ca") -> Kafka:
        return Kafka(
            self.broker.address("TLS"),
            {"security.protocol": "ssl", "ssl.ca.location": str(self.folder / f"{authority}.pem")},
        )

    def mutual(self, key_password: object = KEY_PASSWORD) -> Kafka:
        return Kafka(
            self.broker.address("MUTUAL"),
            {
                "security.protocol": "ssl",
                "ssl.ca.location": str(self.folder / "ca.pem"),
                "ssl.certificate.location": str(self.folder / "client.pem"),
                "ssl.key.location": str(self.folder / "client.key"),
                "ssl.key.password": key_password,  # type: ignore[dict-item]  # text or a secret
            },
        )

    def oauth(self, callback: Callable[[str], tuple[str, float]]) -> Kafka:
        return Kafka(
            self.broker.address("OAUTH"),
            {"security.protocol": "sasl_plaintext", "sasl.mechanism": "OAUTHBEARER", "oauth_cb": callback},
        )

    def allow(self, user: str, kind: str, name: str, *operations: str) -> None:
        """Give a user rights on a topic or a group."""
        bindings = [
            AclBinding(
                ResourceType[kind],
                name,
                ResourcePatternType.LITERAL,
                f"User:{user}",
                "*",
                AclOperation[operation],
                AclPermissionType.ALLOW,
            )
            for operation in operations
        ]
        client = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        for future in client.create_acls(bindings).values():
            future.result(20)

    def add_user(self, user: str, password: str = PASSWORD) -> None:
        """Make a user with a SCRAM password."""
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        asked: list[UserScramCredentialAlteration] = [UserScramCredentialUpsertion(user, info, password.encode())]
        client = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        client.alter_user_scram_credentials(asked)[user].result(20)


def unsecured_token(_config: str, subject: str = "oscar") -> tuple[str, float]:
    """Make a token that the broker's validator for tests believes."""
    expires = time.time() + 300
    parts = [{"alg": "none"}, {"sub": subject, "iat": int(time.time()) - 5, "exp": int(expires)}]
    coded = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
    return f"{'.'.join(coded)}.", expires


@contextmanager
def secured_broker(folder: Path) -> Iterator[Secured]:
    """Start the broker with its certificates, its users and the rights that every kind needs."""
    make_certificates(folder)
    files = {
        "ssl.keystore.location": str(folder / "server-both.pem"),
        "ssl.truststore.location": str(folder / "ca.pem"),
    }
    with Broker(listeners=LISTENERS, settings={**_SERVER, **files}) as broker:
        made = Secured(broker, folder)
        made.add_user(USER)
        for user in (USER, "oscar", "ANONYMOUS", "CN=client"):
            for kind in ("TOPIC", "GROUP"):
                made.allow(user, kind, "*", "ALL")
        yield made


def make_certificates(folder: Path) -> None:
    """Make an authority, a server and a client signed by it, and an authority that nobody should trust."""
    for name in ("ca", "stranger"):
        made = f"-subj /CN={name} -keyout {name}.key -out {name}.pem"
        _openssl(folder, "req -x509 -newkey rsa:2048 -nodes -days 2", made)
    for name, more in (("server", "-addext subjectAltName=IP:127.0.0.1"), ("client", "")):
        asked = f"-subj /CN={name} {more} -keyout {name}-open.key -out {name}.csr"
        _openssl(folder, "req -newkey rsa:2048 -nodes", asked)
        _openssl(
            folder,
            "x509 -req -CA ca.pem -CAkey ca.key -CAcreateserial -copy_extensions copy -days 2",
            f"-in {name}.csr -out {name}.pem",
        )
    both = (folder / "server-open.key").read_text() + (folder / "server.pem").read_text()
    (folder / "server-both.pem").write_text(both)
    _openssl(folder, "pkcs8 -topk8 -in client-open.key -out client.key", f"-passout pass:{KEY_PASSWORD}")


def _openssl(folder: Path, command: str, rest: str) -> None:
    subprocess.run(["openssl", *command.split(), *rest.split()], cwd=folder, check=True, capture_output=True)
