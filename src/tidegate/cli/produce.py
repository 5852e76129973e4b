"""`tidegate produce`: put records into a topic from the shell."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli import avro as as_avro
from tidegate.cli.common import AsJson, Bootstrap, Client, chosen_cluster, examples, note, pairs, say, show_json
from tidegate.cli.completing import complete_topic
from tidegate.errors import DeliveryFailed, SettingsError
from tidegate.ops.produce import Delivery, Message, produce

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidegate.kafka.writer import Ack


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command(
        "produce",
        short_help="Write records to a topic.",
        epilog=examples(
            "produce orders '{\"id\": 1}' '{\"id\": 2}'",
            "produce orders --key-separator : < lines.txt",
            "produce orders tick --every 2s --count 10",
        ),
    )(produce_records)


def produce_records(
    topic: Annotated[
        str, typer.Argument(metavar="TOPIC", help="The topic; it must exist.", autocompletion=complete_topic)
    ],
    values: Annotated[
        list[str] | None, typer.Argument(metavar="VALUES", help="One record each; without any, lines of stdin.")
    ] = None,
    *,
    key: Annotated[str | None, typer.Option("--key", "-k", help="The key of every record.")] = None,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-K", help="Each text is KEY, this separator, VALUE.")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header. Repeat it for more.")
    ] = None,
    partition: Annotated[int | None, typer.Option(min=0, help="The partition. [default: chosen by key]")] = None,
    null: Annotated[bool, typer.Option("--null", help="One record with a null value (a tombstone).")] = False,
    every: Annotated[str | None, typer.Option(help='One record each, "2s" for example.')] = None,
    count: Annotated[
        int | None, typer.Option(min=1, help="Send this many records, starting over when the values run out.")
    ] = None,
    avro: Annotated[
        Path | None,
        typer.Option(metavar="SCHEMA", help="Values are JSON: encode them by this .avsc file."),
    ] = None,
    registry: as_avro.Address = None,
    subject: Annotated[str | None, typer.Option(help="The schema's subject. [default: TOPIC-value]")] = None,
    register: Annotated[bool, typer.Option("--register", help="Register the schema where it is not yet.")] = False,
    registry_user: as_avro.User = None,
    registry_password: as_avro.Password = None,
    registry_token: as_avro.Token = None,
    registry_ca: as_avro.Authority = None,
    bootstrap: Bootstrap = None,
    client: Client = None,
    as_json: AsJson = False,
) -> None:
    """Write records to a topic and say where each arrived."""
    if null and values:
        raise SettingsError("--null takes no values", "leave out one of the two")
    if key is not None and key_separator is not None:
        raise SettingsError("--key and --key-separator exclude each other", "leave out one of the two")
    headers = dict(pairs(header or (), "--header"))
    place = as_avro.chosen_registry(registry, registry_user, registry_password, registry_token, registry_ca)
    if avro is None and (place is not None or subject is not None or register):
        raise SettingsError("an option for Avro is given, but no schema", "add --avro SCHEMA")
    encode = None
    if avro is not None:
        encode = as_avro.encoder(avro, place, topic=topic, subject=subject, register=register)
    texts: Iterator[str | None] = _texts(values, null=null, count=count)
    messages = (_message(text, key, key_separator, headers, partition, encode) for text in texts)
    kafka = chosen_cluster(bootstrap, client).kafka
    try:
        delivery = produce(topic, messages, kafka=kafka, every=every, on_ack=None if every is None else _follow)
    except DeliveryFailed as error:
        if error.delivery is not None:
            _show(error.delivery, as_json=as_json)
        raise
    _show(delivery, as_json=as_json)


def _texts(values: list[str] | None, *, null: bool, count: int | None) -> Iterator[str | None]:
    given: Iterator[str | None]
    if null:
        given = iter([None])
    elif values:
        given = iter(values)
    else:
        given = (line.rstrip("\r\n") for line in sys.stdin)
    return given if count is None else itertools.islice(itertools.cycle(given), count)


def _message(
    text: str | None,
    key: str | None,
    separator: str | None,
    headers: dict[str, str],
    partition: int | None,
    encode: Callable[[str], bytes] | None,
) -> Message:
    if text is not None and separator is not None:
        key, found, text = text.partition(separator)
        if not found:
            raise SettingsError(f"{key!r} has no key: there is no {separator!r} in it", "write KEY, separator, VALUE")
    return Message(text if text is None or encode is None else encode(text), key, headers, partition)


def _follow(ack: Ack) -> None:
    """Tell of each record when they come slowly: beside the output, which is the report at the end."""
    if ack.error is None:
        note(f"{ack.partition} offset {ack.record_offset}")


def _show(delivery: Delivery, *, as_json: bool) -> None:
    if as_json:
        show_json(delivery)
        return
    for each in delivery.partitions:
        span = f"offset {each.first_offset}" if each.count == 1 else f"offsets {each.first_offset}-{each.last_offset}"
        say(f"{each.partition}  {span}  {each.count} delivered")
    if not delivery.partitions:
        say("nothing delivered")
