"""Sinks: ready-made ones, and what makes an object of a user's own one."""

from __future__ import annotations

from tidegate.sinks.http import call_http, http
from tidegate.sinks.objects import as_sink

__all__ = ["as_sink", "call_http", "http"]
