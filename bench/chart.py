"""Pure: bars as SVG, written by hand: a picture needs no library."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

WIDTH, ROW, LEFT, RIGHT, TOP = 860, 24, 270, 110, 44
OURS, OTHERS = "#0b7285", "#adb5bd"


def bars(title: str, unit: str, values: Sequence[tuple[str, float]]) -> str:
    """Return horizontal bars, ours in another colour; the numbers stand beside them, so that none must be guessed."""
    most = max((value for _, value in values), default=0.0) or 1.0
    room = WIDTH - LEFT - RIGHT
    height = TOP + ROW * len(values) + 12
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="13">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="10" y="24" font-size="15" font-weight="bold" fill="#212529">{escape(title)} ({escape(unit)})</text>',
    ]
    for number, (name, value) in enumerate(values):
        y = TOP + number * ROW
        ours = name.startswith("Tidegate")
        weight = ' font-weight="bold"' if ours else ""
        length = max(1.0, room * value / most)
        parts += [
            f'<text x="{LEFT - 8}" y="{y + 15}" text-anchor="end" fill="#212529"{weight}>{escape(name)}</text>',
            f'<rect x="{LEFT}" y="{y + 3}" width="{length:.1f}" height="{ROW - 8}" fill="{OURS if ours else OTHERS}"/>',
            f'<text x="{LEFT + length + 6:.1f}" y="{y + 15}" fill="#212529"{weight}>{number_text(value)}</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])


def number_text(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:,.1f}"
