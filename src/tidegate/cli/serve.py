"""`tidegate serve`: REST, metrics and the dashboard of a cluster."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli.common import Bootstrap, Client, LogFormat, examples, pairs, say
from tidegate.durations import seconds
from tidegate.errors import SettingsError
from tidegate.kafka.connection import kafka_of
from tidegate.logs import log_to_stderr
from tidegate.ops.cluster import Cluster
from tidegate.ops.sampler import Sampler
from tidegate.secrets import Secret, secret
from tidegate.settings import CLIENT, early_setting, resolve

if TYPE_CHECKING:
    from types import FrameType

    from tidegate.engine.control import Control
    from tidegate.settings import Resolved
    from tidegate.web.server import Running

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8642
HIGHEST_PORT = 65535
_NEEDS_EXTRA = "install them: pip install 'tidegate[serve]'"


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command(
        "serve",
        short_help="Dashboard, REST and metrics over HTTP.",
        epilog=examples(
            "serve",
            "serve --host 0.0.0.0 --token env:TIDEGATE_OPERATOR",
        ),
    )(serve)


def serve(
    host: Annotated[str, typer.Option(help="Where to listen. Beyond this machine a token is required.")] = DEFAULT_HOST,
    port: Annotated[int, typer.Option(min=0, max=HIGHEST_PORT, help="The port; 0: any that is free.")] = DEFAULT_PORT,
    token: Annotated[
        str | None, typer.Option(metavar="SOURCE", help="The operator's token: env:NAME or file:PATH.")
    ] = None,
    read_token: Annotated[
        str | None, typer.Option(metavar="SOURCE", help="One that may only look: env:NAME or file:PATH.")
    ] = None,
    history: Annotated[
        str | None, typer.Option(metavar="PLACE", help="The history to show: sqlite, off, a path or a URL.")
    ] = None,
    every: Annotated[str, typer.Option(help="How often to look at the cluster.")] = "5s",
    bootstrap: Bootstrap = None,
    client: Client = None,
    log_format: LogFormat = None,
) -> None:
    """Show a cluster's groups over HTTP: the dashboard, REST below /api/v1, /metrics. Until Ctrl-C or SIGTERM."""
    log_to_stderr(early_setting("log_format", log_format))
    resolved = resolve(
        {
            "log_format": log_format,
            "bootstrap": bootstrap,
            CLIENT: dict(pairs(client or (), "--client")),
            "history": history,
            "token": _source(token, "--token"),
            "read_token": _source(read_token, "--read-token"),
        }
    )
    ending = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        ending.set()

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        with Sampler(Cluster(kafka_of(resolved), resolved.values.broker_timeout), every=seconds(every)) as sampler:
            running = start(resolved, sampler, host, port)
            say(f"serving {resolved.values.bootstrap} at {running.address}")
            ending.wait()
            running.stop()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def start(resolved: Resolved, sampler: Sampler, host: str, port: int, control: Control | None = None) -> Running:
    """Serve a cluster, and the run in this process where there is one; return when it answers."""
    from tidegate.history.chosen import chosen_history  # noqa: PLC0415  # no other command waits for the database's client

    try:
        from tidegate.web.app import make_app  # noqa: PLC0415  # the extra may be missing
        from tidegate.web.auth import tokens_of  # noqa: PLC0415  # as above
        from tidegate.web.pages.mount import add_pages  # noqa: PLC0415  # as above
        from tidegate.web.server import start_in_thread  # noqa: PLC0415  # as above
        from tidegate.web.services import Services  # noqa: PLC0415  # as above
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("tidegate"):
            raise
        raise SettingsError(f"serving needs packages that are not installed ({error.name})", _NEEDS_EXTRA) from None
    values = resolved.values
    services = Services(
        cluster=Cluster(kafka_of(resolved), values.broker_timeout),
        sampler=sampler,
        history=chosen_history(values.history),
        control=control,
        tokens=tokens_of(values.token, values.read_token),
    )
    app = make_app(services)
    add_pages(app)
    return start_in_thread(app, host, port)


def address_of(place: str) -> tuple[str, int]:
    """Read `PORT` or `HOST:PORT`; an IPv6 address stands in brackets."""
    host, _, port = place.rpartition(":")
    if not port.isascii() or not port.isdigit() or int(port) > HIGHEST_PORT:
        raise SettingsError(f"--serve {place} names no port", "write --serve 8642, or --serve 0.0.0.0:8642")
    return host.removeprefix("[").removesuffix("]") or DEFAULT_HOST, int(port)


def _source(text: str | None, option: str) -> Secret | None:
    """Read where a token is: on the command line itself everybody on the machine would see it."""
    if text is None:
        return None
    if not text.startswith(("env:", "file:")):
        raise SettingsError(f"{option} is not the token itself", f"write {option} env:NAME or {option} file:PATH")
    return secret(text)
