"""The command `tidegate`: one file per family of commands."""

from __future__ import annotations

from tidegate.cli.entry import app, main

__all__ = ["app", "main"]
