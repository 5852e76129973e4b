"""Decoders and encoders: plain functions, and objects that are called like them, between bytes and values."""

from __future__ import annotations

from tidegate.formats.avro import avro, to_avro
from tidegate.formats.json import json
from tidegate.formats.registry import Registry, registry
from tidegate.formats.text import text

__all__ = ["Registry", "avro", "json", "registry", "text", "to_avro"]
