"""The reference of the REST API as one plain page, made from the OpenAPI document; it loads nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

from fastapi import APIRouter, FastAPI, Response
from starlette.responses import HTMLResponse

PAGE = "/api/v1"
STYLE = "/style.css"

_CSS = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
code { font: 0.9em ui-monospace, monospace; }
h2 { border-top: 1px solid #8888; padding-top: 1rem; font-size: 1.1rem; }
table { border-collapse: collapse; margin: 0.5rem 0; }
td, th { text-align: left; vertical-align: top; padding: 0.15rem 1rem 0.15rem 0; }
th { font-weight: 600; }
input, button { font: inherit; padding: 0.3rem 0.6rem; }
.login { max-width: 21rem; margin: 12vh auto 0; padding: 1.5rem 1.75rem; border: 1px solid #8885; border-radius: 10px; }
.login h1 { margin: 0; font-size: 1.5rem; }
.login label { display: block; font-weight: 600; }
.login input { display: block; width: 100%; box-sizing: border-box; margin-top: 0.25rem; border: 1px solid #888a;
  border-radius: 6px; padding: 0.55rem 0.7rem; }
.login button { width: 100%; padding: 0.6rem; border: 0; border-radius: 6px; color: #fff; background: #0b6b86;
  font-weight: 600; cursor: pointer; }
.login :focus-visible { outline: 2px solid #2a9dbb; outline-offset: 2px; }
.wrong { color: #fff; background: #b3261e; border-radius: 6px; padding: 0.5rem 0.75rem; }
"""


def router(app: FastAPI) -> APIRouter:
    """Return the page and its style."""
    routes = APIRouter(include_in_schema=False)

    @routes.get(PAGE)
    async def page() -> Response:
        """Show every address."""
        return HTMLResponse("\n".join(_lines(app.openapi())))

    @routes.get(STYLE)
    async def style() -> Response:
        """Give the style of plain pages."""
        return Response(_CSS, media_type="text/css")

    return routes


def _lines(document: dict[str, Any]) -> Iterator[str]:
    schemas = document.get("components", {}).get("schemas", {})
    yield '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f'<title>Tidegate REST</title><link rel="stylesheet" href="{STYLE}"></head><body>'
    yield f"<h1>Tidegate {escape(document['info']['version'])}: REST</h1>"
    yield '<p>For programs: <a href="/api/v1/openapi.json">openapi.json</a>. '
    yield "Every error is " + escape('{"error": {"code", "message", "cure"}}') + ".</p>"
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"<h2><code>{method.upper()} {escape(path)}</code></h2>"
            yield f"<p>{escape(operation.get('description', ''))}</p>"
            asked = [_row(one["name"], one, one["schema"]) for one in operation.get("parameters", [])]
            yield from _table("Asked", asked)
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
            yield from _table("Body", _members(body, schemas))
            given = operation["responses"].get("200", {}).get("content", {}).get("application/json", {}).get("schema")
            yield from _table("Answer", _members(given, schemas))
    named = sorted(schemas)
    yield "<h2>Objects</h2>"
    for name in named:
        yield f'<h3 id="{escape(name)}">{escape(name)}</h3><p>{escape(schemas[name].get("description", ""))}</p>'
        yield from _table("Field", _members(schemas[name], schemas))
    yield "</body></html>"


def _table(heading: str, rows: list[str]) -> Iterator[str]:
    if rows:
        yield f"<table><tr><th>{heading}</th><th></th><th></th></tr>{''.join(rows)}</table>"


def _members(schema: dict[str, Any] | None, schemas: dict[str, Any]) -> list[str]:
    if schema is None:
        return []
    if "$ref" in schema:
        schema = schemas[schema["$ref"].rpartition("/")[2]]
    return [_row(name, one, one) for name, one in schema.get("properties", {}).items()]


def _row(name: str, told: dict[str, Any], schema: dict[str, Any]) -> str:
    text = told.get("description") or schema.get("description") or ""
    return f"<tr><td><code>{escape(name)}</code></td><td>{_kind(schema)}</td><td>{escape(text)}</td></tr>"


def _kind(schema: dict[str, Any]) -> str:
    """Say what a value is, in a word or a link."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(_kind(one) for one in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(f"<code>{escape(str(one))}</code>" for one in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    default = f", else <code>{escape(str(schema['default']))}</code>" if schema.get("default") is not None else ""
    return escape(str(schema.get("format") or schema.get("type", "any"))) + default
