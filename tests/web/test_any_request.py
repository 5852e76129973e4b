"""Requests that nobody thought of, made from the OpenAPI document: whatever is asked, the answer is as described."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
import schemathesis
from hypothesis.strategies import sampled_from
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    ignored_auth,
    response_schema_conformance,
    status_code_conformance,
)

from tests.broker.graveyard import Graveyard, Letter
from tests.web.client import OPERATOR, READER
from tidegate.web.auth import Tokens

if TYPE_CHECKING:
    from pathlib import Path

    from tests.web.conftest import Scene, Start
    from tidegate.history.store import History
    from tidegate.kafka.connection import Kafka

EXAMPLES = int(os.environ.get("PROOF_REQUESTS", "8"))
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
SEED = 7


def ask_anything(operation: Any, mode: GenerationMode, known: list[str], address: str, statuses: set[int]) -> None:
    """Ask one address many things, most of them about groups that are there; note what it answers."""
    asked = {"Authorization": f"Bearer {OPERATOR}"}

    @hypothesis.seed(SEED)
    @hypothesis.settings(
        max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(hypothesis.HealthCheck)
    )
    @hypothesis.given(
        case=operation.as_strategy(generation_mode=mode),
        group=sampled_from([None, *known]),
        place=sampled_from([None, "end", "-3", "2026-01-01T00:00Z"]),
    )
    def ask(case: Any, group: str | None, place: str | None) -> None:
        if group is not None and "group" in case.path_parameters:
            case.path_parameters["group"] = group  # a name by chance would never be one of a group that is there
        if place is not None and isinstance(case.body, dict):
            case.body = {"to": place} if operation.path.endswith("/offsets") else {"origin": "orders"}
        response = case.call(base_url=address, headers=asked)
        statuses.add(response.status_code)
        case.validate_response(response, checks=CHECKS, headers=asked)

    ask()


@pytest.mark.timeout(900)
def test_no_request_breaks_the_server(
    start: Start, scene: Scene, history: History, kafka: Kafka, tmp_path: Path
) -> None:
    graveyard = Graveyard(kafka, tmp_path)
    graveyard.bury(Letter(1), Letter(2, 1, value=b"\xff"))
    client = start(tokens=Tokens(OPERATOR, READER), history=history)
    document = client.as_(OPERATOR).get("/api/v1/openapi.json").json
    schema = schemathesis.openapi.from_dict(document)
    known = [scene.group, graveyard.group]
    statuses: dict[str, set[int]] = {}

    for found in schema.get_all_operations():
        assert isinstance(found, Ok)
        operation = found.ok()
        seen = statuses.setdefault(f"{operation.method.upper()} {operation.path}", set())
        ask_anything(operation, GenerationMode.POSITIVE, known, client.address, seen)
        if "422" in operation.definition.raw["responses"] and "/run" not in operation.path:
            ask_anything(operation, GenerationMode.NEGATIVE, known, client.address, seen)

    assert len(statuses) == 18
    answered = {name for name, seen in statuses.items() if 200 in seen}
    steering = {
        f"{method} /api/v1/run{what}" for method, what in (("GET", ""), ("POST", "/pause"), ("POST", "/resume"))
    }
    never = set(statuses) - answered
    assert never <= {*steering, "GET /api/v1/groups/{group}/dead-letters/{partition}/{offset}"}, "or little was shown"
    assert scene.marks() == [4, 10], "only plans were asked for: a fingerprint cannot be guessed"
    assert graveyard.redriven_ids() == []


def test_every_address_of_the_document_asks_for_the_token(start: Start) -> None:
    client = start(tokens=Tokens(OPERATOR, READER))
    document = client.as_(READER).get("/api/v1/openapi.json").json
    for path, methods in document["paths"].items():
        for method in methods:
            found = client.send(method.upper(), path.replace("{", "").replace("}", ""), b"{}")
            assert found.status == (200 if path in ("/healthz", "/readyz") else 401), (method, path)


def test_the_checks_of_this_file_can_fail(start: Start) -> None:
    """A document that promises another shape than the server answers with is found out."""
    client = start(tokens=Tokens(OPERATOR))
    document = client.as_(OPERATOR).get("/api/v1/openapi.json").json
    document["components"]["schemas"]["Health"]["properties"]["status"]["type"] = "integer"
    operation = schemathesis.openapi.from_dict(document)["/healthz"]["get"]
    case = operation.Case()
    with pytest.raises(FailureGroup, match="schema"):
        case.call_and_validate(base_url=client.address, checks=CHECKS)
    assert ignored_auth not in CHECKS, "the test above does that for every address"
