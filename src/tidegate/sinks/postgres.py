"""PostgreSQL as a sink: each value becomes a row, and rows and marks are written in one transaction.

A sink object only makes rows, in the function's thread; the store of the round writes them (`postgres_store.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

from tidegate.context import collected
from tidegate.errors import Reject, SettingsError
from tidegate.secrets import Secret
from tidegate.sinks.postgres_values import fields_of, fitting, sequence_of

OnConflict = Literal["update", "ignore", "error"]
Dsn = str | Secret

_NAMED = re.compile(r"(?<!%)(?:%%)*%\((\w+)\)[sbt]")
_PLACED = re.compile(r"(?<!%)(?:%%)*%[sbt]")


@dataclass(frozen=True)
class Target:
    """Where rows go: a table and what to do about rows that are there, or a statement."""

    table: tuple[str, ...] = ()
    """Its name, in parts: the schema, where one was given, and the table."""
    sql: str = ""
    key: tuple[str, ...] = ()
    on_conflict: OnConflict = "error"
    columns: tuple[tuple[str, str], ...] = ()
    """With these it is made where it is missing: names, and types with whatever belongs to them."""

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """The names that the statement asks for; none where it goes by places."""
        return tuple(dict.fromkeys(_NAMED.findall(self.sql)))

    def __str__(self) -> str:
        return ".".join(self.table) if self.table else " ".join(self.sql.split())


class Row:
    """What one value has come to: columns by name, or what a statement takes, by name or by place."""

    __slots__ = ("target", "values")

    def __init__(self, target: Target, values: dict[str, Any] | tuple[Any, ...]) -> None:
        self.target = target
        self.values = values

    def __repr__(self) -> str:
        return f"Row({self.target}, {self.values!r})"


class PostgresSink:
    """A table or a statement as a sink: `tg.postgres(...)` makes it."""

    collects = True
    """It writes nothing itself: what it makes is written with the record's mark."""

    def __init__(self, dsn: Dsn, target: Target) -> None:
        self.dsn = dsn
        self.target = target

    @property
    def identity(self) -> str:
        """Tells this sink from others, in every run alike; it shows no password."""
        return f"postgres {shown_dsn(self.dsn)} {self.target}"

    def __repr__(self) -> str:
        return f"<{self.identity}>"

    def __call__(self, value: Any) -> None:
        """Make a row of the value, for the store to write."""
        collected().append(Row(self.target, self._values(value)))

    def _values(self, value: Any) -> dict[str, Any] | tuple[Any, ...]:
        target = self.target
        if target.table:
            return fitting(_with(target.key, fields_of(value), "the key is"))
        if not target.parameters:
            return tuple(fitting(dict(enumerate(sequence_of(value)))).values())
        fields = _with(target.parameters, fields_of(value), "the statement asks for")
        return fitting({name: fields[name] for name in target.parameters})


def _with(names: tuple[str, ...], fields: Mapping[str, Any], why: str) -> Mapping[str, Any]:
    missing = [name for name in names if name not in fields]
    if missing:
        raise Reject(f"{why} {', '.join(missing)}, which the value does not have")
    return fields


def postgres(
    dsn: Dsn,
    *,
    table: str | None = None,
    sql: str | None = None,
    key: str | tuple[str, ...] | None = None,
    on_conflict: OnConflict | None = None,
    columns: Mapping[str, str] | None = None,
) -> PostgresSink:
    """Write each value to PostgreSQL, exactly once: rows and the group's marks are one transaction.

    With `table` a value becomes a row: a mapping, dataclass, pydantic model or named tuple gives the columns by
    name; columns that it leaves out take their default. A dict or a list inside goes as JSON (a list into an array
    column as an array), anything else as psycopg adapts it; text is read by the server, so a date may come as text.
    `key` names the columns of a primary key or unique index, and `on_conflict` what happens to a row whose key is
    there: `"update"` sets the columns that the value has (the default with `key`), `"ignore"` keeps the old row,
    `"error"` fails the record (the default without). `columns={"id": "bigint primary key"}` makes the table where
    it is missing.

    With `sql` the statement runs once per value: `%(name)s` takes what the value has under that name, `%s` takes
    the items of a sequence.

    Sinks with the same `dsn` (text, or a `tg.secret`) share the transaction. What a value can never become is a
    `tg.Reject`; what the server refuses fails that record alone, with the server's error.
    """
    _check_extra()
    if isinstance(dsn, str):
        _parsed(dsn)  # a secret is read when a connection is made, not before
    elif not isinstance(dsn, Secret):
        raise SettingsError(f"postgres({type(dsn).__name__})", 'pass a dsn: text, or tg.secret("env:NAME")')
    if (table is None) == (sql is None):
        given = "neither table nor sql" if table is None else "both table and sql"
        raise SettingsError(f"postgres(...) got {given}", 'pass one of them: table="orders", or sql="insert ..."')
    if sql is not None:
        if key is not None or on_conflict is not None or columns is not None:
            raise SettingsError("key, on_conflict and columns are about a table", "write what is meant into the sql")
        return PostgresSink(dsn, Target(sql=_checked_sql(sql)))
    keys = () if key is None else (key,) if isinstance(key, str) else tuple(key)
    return PostgresSink(
        dsn,
        Target(
            table=_checked_table(table or ""),
            key=_checked_key(keys, columns),
            on_conflict=_checked_conflict(on_conflict, keys),
            columns=_checked_columns(columns),
        ),
    )


def shown_dsn(dsn: Dsn) -> str:
    """Return where a dsn leads, without who and by which password; a secret is shown by its source."""
    if isinstance(dsn, Secret):
        return repr(dsn)
    parts = _parsed(dsn)
    host = parts.get("host") or parts.get("hostaddr") or parts.get("service") or "localhost"
    return f"{host}:{parts.get('port', '5432')}/{parts.get('dbname', '')}"


def _check_extra() -> None:
    try:
        import psycopg  # noqa: F401, PLC0415  # only to see that it is there
    except ImportError:
        raise SettingsError("tg.postgres needs psycopg", "install it: pip install 'tidegate[postgres]'") from None


def _parsed(dsn: str) -> dict[str, Any]:
    from psycopg import ProgrammingError  # noqa: PLC0415  # an extra: only who uses this sink needs it
    from psycopg.conninfo import conninfo_to_dict  # noqa: PLC0415  # as above

    try:
        found = conninfo_to_dict(dsn)
    except ProgrammingError:  # its text repeats the dsn, password included
        found = {}
    if not found:
        raise SettingsError(
            "postgres(...) got a dsn that cannot be read",
            'write it like "postgresql://user@host:5432/database", and the password, if any, in a tg.secret',
        )
    return dict(found)


def _checked_sql(sql: str) -> str:
    if not sql.strip():
        raise SettingsError("postgres(sql=...) got no statement", 'write it like sql="insert into ... values (%(id)s)"')
    named, placed = _NAMED.search(sql), _PLACED.search(sql)
    if (named is None) == (placed is None):
        what = "no placeholder" if named is None else "both %s and %(name)s"
        raise SettingsError(f"postgres(sql=...) has {what}", "use %(name)s for values by name, or %s by place")
    return sql


def _checked_table(table: str) -> tuple[str, ...]:
    parts = tuple(table.split("."))
    if len(parts) > 2 or not all(part.strip() for part in parts):
        raise SettingsError(f"postgres(table={table!r}) is no table's name", 'write "orders" or "billing.orders"')
    return parts


def _checked_key(keys: tuple[str, ...], columns: Mapping[str, str] | None) -> tuple[str, ...]:
    if not all(keys) or any(not isinstance(name, str) for name in keys):
        raise SettingsError(f"postgres(key={keys!r}) does not name columns", 'write key="id" or key=("shop", "id")')
    unknown = [name for name in keys if columns and name not in columns]
    if unknown:
        raise SettingsError(f"the key {', '.join(unknown)} is not among the columns", "name it there too")
    return keys


def _checked_conflict(chosen: OnConflict | None, keys: tuple[str, ...]) -> OnConflict:
    if chosen is None:
        return "update" if keys else "error"
    if chosen not in get_args(OnConflict):
        raise SettingsError(f"postgres(on_conflict={chosen!r})", 'choose "update", "ignore" or "error"')
    if chosen == "update" and not keys:
        raise SettingsError('on_conflict="update" needs to know the key', 'name its columns: key="id"')
    return chosen


def _checked_columns(columns: Mapping[str, str] | None) -> tuple[tuple[str, str], ...]:
    if columns is None:
        return ()
    if not columns or not all(str(part).strip() for item in columns.items() for part in item):
        raise SettingsError(
            f"postgres(columns={dict(columns)!r}) makes no table", 'write it like {"id": "bigint primary key"}'
        )
    return tuple(columns.items())
