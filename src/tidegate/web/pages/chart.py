"""The lag of a group over time, as a chart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nicegui import ui

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidegate.ops.model import LagPoint

# Legible on light and on dark paper alike: a canvas does not follow the page's colours.
_GREY, _LINE, _RECORDS, _SECONDS = "#7c8d99", "rgba(124, 141, 153, 0.22)", "#0e8fb3", "#c77d1a"


class LagChart:
    """Records on the left axis, seconds on the right one."""

    def __init__(self) -> None:
        self._shown: tuple[int, object] = (0, None)
        self._chart = ui.echart(_options()).classes("chart").props('role="img" aria-label="Lag over time"')

    def show(self, points: Sequence[LagPoint]) -> None:
        """Draw these points, if there are others than before."""
        newest = (len(points), points[-1].at if points else None)
        if newest == self._shown:
            return
        self._shown = newest
        series = self._chart.options["series"]
        series[0]["data"] = [[int(point.at.timestamp() * 1000), point.lag] for point in points]
        series[1]["data"] = [
            [int(point.at.timestamp() * 1000), None if point.lag_seconds is None else round(point.lag_seconds, 1)]
            for point in points
        ]
        self._chart.update()


def _options() -> dict[str, Any]:
    return {
        "animation": False,
        "textStyle": {"fontFamily": "inherit"},
        "legend": {"top": 0, "left": 0, "icon": "roundRect", "itemWidth": 12, "textStyle": {"color": _GREY}},
        "grid": {"left": 8, "right": 8, "top": 38, "bottom": 4, "containLabel": True},
        "tooltip": {"trigger": "axis", "confine": True},
        "xAxis": {
            "type": "time",
            "axisLabel": {"color": _GREY, "hideOverlap": True},
            "axisLine": {"lineStyle": {"color": _LINE}},
            "splitNumber": 4,
        },
        "yAxis": [_axis(is_first=True), _axis(is_first=False)],
        "series": [_series("records", _RECORDS, 0), _series("seconds", _SECONDS, 1)],
    }


def _axis(*, is_first: bool) -> dict[str, Any]:
    return {
        "type": "value",
        "min": 0,
        "minInterval": 1,
        "axisLabel": {"color": _RECORDS if is_first else _SECONDS},
        "splitLine": {"show": is_first, "lineStyle": {"color": _LINE}},
    }


def _series(name: str, colour: str, axis: int) -> dict[str, Any]:
    return {
        "name": name,
        "type": "line",
        "yAxisIndex": axis,
        "showSymbol": False,
        "lineStyle": {"width": 2, "color": colour, "type": "solid" if axis == 0 else "dashed"},
        "itemStyle": {"color": colour},
        "areaStyle": {"opacity": 0.12} if axis == 0 else None,
        "data": [],
    }
