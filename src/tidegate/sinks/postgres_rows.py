"""Rows in bulk: straight into their table, or over a staging table where some may be there already.

Every function here works inside the caller's transaction.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from tidegate.errors import DatabaseRefused
from tidegate.sinks.postgres_values import JsonText, quoted, table_for

if TYPE_CHECKING:
    from tidegate.sinks.postgres import Target
    from tidegate.sinks.postgres_link import Connection

Values = Mapping[str, Any]


class Column(NamedTuple):
    """One column of the user's table, as the server knows it."""

    sql_type: str
    is_array: bool


class Shape(NamedTuple):
    """Rows that have the same columns, with the place of each in the bulk."""

    columns: tuple[str, ...]
    rows: list[tuple[int, Values]]


def full_name(target: Target) -> str:
    """Return the table's name as SQL writes it."""
    return ".".join(map(quoted, target.table))


def table_statement(target: Target) -> str:
    """Return what makes the table as `columns` describes it."""
    columns = ", ".join(f"{quoted(name)} {sql_type}" for name, sql_type in target.columns)
    return f"create table if not exists {full_name(target)} ({columns})"


def write_rows(connection: Connection, target: Target, rows: Sequence[Any]) -> None:
    """Write all rows of one target. Whatever is raised, the transaction is of no more use."""
    if target.sql:
        connection.cursor().executemany(target.sql.encode(), rows)
        return
    known = _columns(connection, target, rows[0])
    if target.on_conflict == "error":
        for shape in _shapes(enumerate(rows)):
            _copy(connection, full_name(target), known, shape)
    else:
        _merge(connection, target, known, rows)


def _columns(connection: Connection, target: Target, sample: Values) -> dict[str, Column]:
    """Ask each time: a table that is changed while the run goes on is seen as it is."""
    found = connection.execute(
        """
        select attname, format_type(atttypid, atttypmod), typcategory = 'A' from pg_attribute
        join pg_type on pg_type.oid = atttypid
        where attrelid = to_regclass(%s) and attnum > 0 and not attisdropped order by attnum
        """,
        [full_name(target)],
    )
    columns = {name: Column(sql_type, is_array) for name, sql_type, is_array in found}
    if not columns:
        raise DatabaseRefused(
            f"the table {target} does not exist",
            f"pass columns={{...}} and it is made, or make it: {table_for(target.table, sample, target.key)}",
        )
    return columns


def _shapes(rows: Iterable[tuple[int, Values]]) -> list[Shape]:
    found: dict[tuple[str, ...], Shape] = {}
    for place, values in rows:
        names = tuple(values)
        if names not in found:  # the same columns in another order are the same shape
            ordered = tuple(sorted(names))
            found[names] = found.setdefault(ordered, Shape(ordered, []))
        found[names].rows.append((place, values))
    return list({id(shape): shape for shape in found.values()}.values())


def _runs(rows: Iterable[tuple[int, Values]]) -> list[Shape]:
    """Rows one after the other that have the same columns."""
    return [Shape(columns, list(run)) for columns, run in groupby(rows, lambda row: tuple(sorted(row[1])))]


def _copy(
    connection: Connection, table: str, known: Mapping[str, Column], shape: Shape, number: int | None = None
) -> None:
    """Copy rows into a table, or into a staging table with the number of their shape and their place."""
    names = [*map(quoted, shape.columns), *([] if number is None else ["tidegate_shape", "tidegate_place"])]
    arrays = {name for name in shape.columns if name in known and known[name].is_array}
    with connection.cursor().copy(f"copy {table} ({', '.join(names)}) from stdin".encode()) as copy:
        for place, values in shape.rows:
            row = [values[name] for name in shape.columns]
            if arrays:
                row = [_listed(part) if name in arrays else part for name, part in zip(shape.columns, row, strict=True)]
            copy.write_row(row if number is None else [*row, number, place])


def _listed(part: Any) -> Any:
    return part.items if isinstance(part, JsonText) and part.items is not None else part


def _merge(connection: Connection, target: Target, known: Mapping[str, Column], rows: Sequence[Values]) -> None:
    """Write rows of which some may be there already, or several times in this bulk."""
    stage = _stage(connection, target, known)
    placed: Iterable[tuple[int, Values]] = enumerate(rows)
    if not target.key:
        shapes = _runs(placed)  # "the first wins" is then a matter of the order alone
    else:
        shapes = _shapes(placed)
        if len(shapes) > 1:
            shapes = _shapes(_one_per_key(connection, stage, target, known, rows))
    for number, shape in enumerate(shapes):
        _copy(connection, stage, known, shape, number)
        connection.execute(_insert(target, stage, shape.columns, number).encode())


def _stage(connection: Connection, target: Target, known: Mapping[str, Column]) -> str:
    """Return a table that lasts as long as the connection, empty in every transaction; made once for its columns.

    One per transaction would leave its traces in the server's catalogue several times a second.
    """
    columns = ", ".join(f"{quoted(name)} {column.sql_type}" for name, column in known.items())
    digest = hashlib.blake2b(f"{full_name(target)} {columns}".encode(), digest_size=8).hexdigest()
    name = f"pg_temp.tidegate_stage_{digest}"
    found = connection.execute("select to_regclass(%s) is not null", [name]).fetchone()
    if not (found and found[0]):
        made = f"create temp table tidegate_stage_{digest} ({columns}, tidegate_shape integer, tidegate_place bigint)"
        connection.execute(f"{made} on commit delete rows".encode())
    return name


def _one_per_key(
    connection: Connection, stage: str, target: Target, known: Mapping[str, Column], rows: Sequence[Values]
) -> list[tuple[int, Values]]:
    """Make one row of all that have a key in common, though they have different columns.

    What is the same key only the server can say: 7 and "7" are, in a column of numbers; two nulls are not.
    """
    _copy(connection, stage, known, Shape(target.key, list(enumerate(rows))), -1)
    keys = ", ".join(map(quoted, target.key))
    asked = (
        f"select tidegate_place, case when {_has_null(target)} then tidegate_place else "  # noqa: S608  # names are quoted
        f"min(tidegate_place) over (partition by {keys}) end from {stage} where tidegate_shape = -1"
    )
    firsts = connection.execute(asked.encode()).fetchall()
    made: dict[int, dict[str, Any]] = {}
    for place, first in sorted(firsts):
        if place == first or target.on_conflict == "update":
            made.setdefault(first, {}).update(rows[place])
    return list(made.items())


def _insert(target: Target, stage: str, columns: Sequence[str], number: int) -> str:
    names = ", ".join(map(quoted, columns))
    if not target.key:
        return (
            f"insert into {full_name(target)} ({names}) select {names} from {stage} "  # noqa: S608  # names are quoted
            f"where tidegate_shape = {number} order by tidegate_place on conflict do nothing"
        )
    keys = ", ".join(map(quoted, target.key))
    rest = [quoted(name) for name in columns if name not in target.key]
    updates = target.on_conflict == "update" and rest
    action = "update set " + ", ".join(f"{name} = excluded.{name}" for name in rest) if updates else "nothing"
    winner = "desc" if target.on_conflict == "update" else "asc"
    # In the order of the keys: two transactions that write the same rows take their locks in the same order.
    return (
        f"insert into {full_name(target)} ({names}) "  # noqa: S608  # names are quoted
        f"select {names} from (select *, row_number() over "
        f"(partition by {keys} order by tidegate_place {winner}) as tidegate_nth from {stage} "
        f"where tidegate_shape = {number}) as staged where tidegate_nth = 1 or {_has_null(target)} "
        f"order by {keys}, tidegate_place on conflict ({keys}) do {action}"
    )


def _has_null(target: Target) -> str:
    """Rows without a whole key never are in each other's way."""
    return "(" + " or ".join(f"{quoted(name)} is null" for name in target.key) + ")"
