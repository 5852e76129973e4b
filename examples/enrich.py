"""Enrich each record from a database, over connections that a pool keeps.

`tg.resource` makes the pool once per Python worker; `parallel` calls the step from several threads, each with a
connection of its own. Any database that SQLAlchemy reads will do: "postgresql+psycopg://user@host/shop", for one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import sqlalchemy as sa

import tidegate as tg

DATABASE = f"sqlite:///{Path('customers.db').absolute()}"
CUSTOMER = sa.text("SELECT name FROM customers WHERE id = :id")

pool = tg.resource(lambda: sa.create_engine(DATABASE, pool_size=8), close=sa.Engine.dispose)


def with_customer(order: dict[str, Any]) -> dict[str, Any]:
    key = tg.current().key
    # The connection goes back to the pool at the end of the block.
    with pool.get().connect() as connection:
        name = connection.execute(CUSTOMER, {"id": key and key.decode()}).scalar_one_or_none()
    if name is None:
        raise tg.Reject(f"nobody knows the customer {key!r}")
    return order | {"customer": name}


def show(order: dict[str, Any]) -> None:
    print(f"order {order['id']} of {order['customer']}")


enriched = tg.from_kafka("orders", group="enrich").map(tg.json).map(with_customer).sink(show).parallel(8, order="key")
