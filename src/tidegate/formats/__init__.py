"""Decoders: plain functions from bytes to a value."""

from __future__ import annotations

from tidegate.formats.json import json
from tidegate.formats.text import text

__all__ = ["json", "text"]
