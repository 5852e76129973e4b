"""Pickled values, for topics that hold them already. WARNING: unpickling runs code that the writer of a record chose.

Whoever may write to the topic may then do on your machines whatever this program may do. So this decoder takes plain
data alone (numbers, text, lists, dicts) and refuses every class and function; such a record becomes a dead letter. Do
not widen it without need, and write new topics as JSON or Avro.
"""

from __future__ import annotations

import io
import pickle
from typing import Any, NoReturn

import tidegate as tg


class PlainData(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> NoReturn:
        raise tg.Undecodable(f"a pickle that wants {module}.{name}")


def unpickle(value: bytes | None) -> Any:
    if value is None:
        return None
    try:
        return PlainData(io.BytesIO(value)).load()  # plain data alone, see above
    except tg.Undecodable:
        raise
    except Exception as error:  # bytes that are no pickle can raise almost anything
        raise tg.Undecodable(f"no pickle: {error}") from error


def show(order: dict[str, Any]) -> None:
    print(f"pickled order {order['id']}")


orders = tg.from_kafka("orders-pickled", group="pickled").map(unpickle).sink(show).on_error(tg.dead_letter())
