"""The page of REST names every address, every metric and every word of an error, and no other."""

from __future__ import annotations

import re

from prometheus_client.parser import text_string_to_metric_families

from tests.docs.pages import ROOT, text
from tests.web.test_watching import NOW, RUN, group
from tidegate.kafka.connection import Kafka
from tidegate.ops.cluster import Cluster
from tidegate.ops.model import View
from tidegate.ops.sampler import Sampler
from tidegate.web import answers
from tidegate.web.app import make_app
from tidegate.web.metrics import render
from tidegate.web.services import Services

PAGE = "docs/rest.md"


def test_every_address_is_described_and_no_other() -> None:
    nowhere = Cluster(Kafka("localhost:1"), 1.0)
    document = make_app(Services(nowhere, Sampler(nowhere))).openapi()
    known = {f"{method.upper()} {path}" for path, methods in document["paths"].items() for method in methods}
    named = set(re.findall(r"`((?:GET|PUT|POST|DELETE) /[^`]*)`", text(PAGE)))
    assert named == known


def test_every_metric_is_described_and_no_other() -> None:
    figures = render(View(NOW, 1.0, (group("billing", 1),), None), RUN).decode()
    known = {sample.name for family in text_string_to_metric_families(figures) for sample in family.samples}
    named = set(re.findall(r"`(tidegate_\w+)`", text(PAGE)))
    assert named == known


def test_every_word_of_an_error_is_described() -> None:
    sources = [page.read_text(encoding="utf-8") for page in (ROOT / "src" / "tidegate" / "web").glob("*.py")]
    said = {word for source in sources for word in re.findall(r'Refused\(\s*\d+,\s*"(\w+)"', source)} - {"refused"}
    of_errors = {answers.word_of(kind) for kind, _ in answers.STATUS}
    table = set(re.findall(r"`(\w+)`", text(PAGE).partition("## Errors")[2].partition("## Probes")[0]))
    assert len(said) > 15
    assert said | of_errors <= table
