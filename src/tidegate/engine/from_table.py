"""Where a group begins that starts by an offset table: read once, checked against the logs."""

from __future__ import annotations

from collections.abc import Mapping

from tidegate.errors import NoStartingOffset, SettingsError
from tidegate.history.chosen import chosen_history
from tidegate.history.rows import OffsetRow
from tidegate.kafka.admin import Admin, TopicInfo
from tidegate.places import FromTable
from tidegate.records import Partition, Position
from tidegate.secrets import Secret
from tidegate.settings import resolve

_MOST_NAMED = 5


def positions_by_table(
    admin: Admin,
    table: FromTable,
    own_group: str,
    infos: Mapping[str, TopicInfo],
    history: str | Secret | None = None,
) -> dict[Partition, Position]:
    """Return where the table lets each partition of these topics start.

    `history`: the run's own setting, where the table does not name one. A request of the group's own is applied by
    starting there, so its number goes along: the run would rewind to it once more otherwise.
    """
    group = table.group or own_group
    rows = _rows(admin, table, group, history)
    partitions = [tp for info in infos.values() for tp in info.each_partition()]
    beginnings = admin.beginnings(partitions)
    ends = admin.ends(partitions)
    unknown = [tp for tp in partitions if tp not in rows]
    if unknown and table.otherwise is None:
        raise NoStartingOffset(
            f"from_table: the offset table of group {group} does not know {_named(unknown)}",
            'check the group, or say where such partitions start: from_table(otherwise="earliest") or "latest"',
        )
    found = {tp: Position(beginnings[tp] if table.otherwise == "earliest" else ends[tp]) for tp in unknown}
    for tp, row in rows.items():
        if tp in beginnings:
            mark = _checked(row, infos[tp.topic].topic_id, beginnings[tp], ends[tp])
            found[tp] = Position(mark, replay=_replay(row) if group == own_group else 0)
    return found


def _rows(admin: Admin, table: FromTable, group: str, setting: str | Secret | None) -> dict[Partition, OffsetRow]:
    where = table.history if table.history is not None else setting if setting is not None else resolve().values.history
    history = chosen_history(where)
    if history is None:
        raise SettingsError(
            "from_table needs a history, and the setting history is off", "name one: from_table(history=...)"
        )
    with history:
        return {row.partition: row for row in history.offsets(admin.cluster_id(), group) if _place(row) is not None}


def _place(row: OffsetRow) -> int | None:
    return row.requested if row.is_requested else row.mark


def _replay(row: OffsetRow) -> int:
    return row.replay or 0 if row.is_requested else row.settled_replay


def _checked(row: OffsetRow, topic_id: str, beginning: int, end_offset: int) -> int:
    """Return the row's place; one that means other records, or none, is an error."""
    mark = _place(row)
    if not row.is_requested and row.topic_id and row.topic_id != topic_id:
        raise SettingsError(
            f"from_table: {row.partition} was made anew since the table noted its offset {mark}",
            "those records are gone: choose another starting, or commit a position for the group first",
        )
    if mark is None or not beginning <= mark <= end_offset:
        raise SettingsError(
            f"from_table: {row.partition} cannot start at {mark}: its log goes from {beginning} to {end_offset}",
            "choose another starting, or commit a position for the group first",
        )
    return mark


def _named(partitions: list[Partition]) -> str:
    more = len(partitions) - _MOST_NAMED
    return ", ".join(map(str, partitions[:_MOST_NAMED])) + (f" and {more} more" if more > 0 else "")
