"""Which history the settings name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.machine import state_folder
from tidegate.secrets import Secret

if TYPE_CHECKING:
    from tidegate.history.store import History

OFF = "off"
_DEFAULT = "sqlite"
_FILE = "history.sqlite"


def chosen_history(setting: str | Secret) -> History | None:
    """Return the history that the setting `history` names; None where it is off.

    Nothing is opened yet, but what never can work is refused: a URL that names no database we know, a missing driver.
    A secret is not read before it is needed.
    """
    if setting == OFF:
        return None
    # SQLAlchemy is slow to import: no worker needs it, and few commands.
    from tidegate.history.link import check_address  # noqa: PLC0415
    from tidegate.history.store import History  # noqa: PLC0415

    if isinstance(setting, Secret):
        return History(setting)
    place = str(state_folder() / _FILE) if setting == _DEFAULT else setting
    check_address(place)
    return History(place)
