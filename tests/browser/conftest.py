"""One real Chromium for this folder, and a dashboard over the run's broker."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from tests.browser.support import Dashboard, Orders, Visitor, opened

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser

    from tidegate.dev.broker import Broker

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def found_browser() -> str:
    """Return the path of a Chromium. Where none is, a developer's run skips; a run that must show everything fails."""
    path = next((path for name in _NAMES if (path := shutil.which(name)) is not None), None)
    if path is None:
        sentence = "no Chromium was found: install it with scripts/need-chromium (Debian: apt-get install chromium)"
        if os.environ.get("NO_SKIPS"):
            pytest.fail(sentence)
        pytest.skip(sentence)
    return path


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """The browser. It ends with this folder: Playwright keeps an event loop in this thread, which others need free."""
    path = found_browser()
    from playwright.sync_api import sync_playwright  # noqa: PLC0415  # only where there is a browser to drive

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture(scope="package")
def dashboard(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    """A dashboard without a token, as it is on a developer's machine."""
    folder: Path = tmp_path_factory.mktemp("dashboard")
    with Dashboard(broker.bootstrap, folder) as running:
        yield running
    assert list(folder.iterdir()) == [], "the dashboard left something in the folder it was started in"


@pytest.fixture
def visitor(browser: Browser, dashboard: Dashboard) -> Iterator[Visitor]:
    with opened(browser, dashboard.address) as opened_here:
        yield opened_here


@pytest.fixture
def phone(browser: Browser, dashboard: Dashboard) -> Iterator[Visitor]:
    with opened(browser, dashboard.address, width=375) as opened_here:
        yield opened_here


@pytest.fixture
def orders(broker: Broker) -> Orders:
    return Orders(broker.bootstrap)
