"""Fetching, with a stand-in for `java` that does to the file system what Ivy does."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from tidegate.dev.jars import BROKER, KAFKA_VERSION, JarsMissing, fetch

IVY = """#!{python}
import pathlib, sys, zipfile
home = pathlib.Path({home!r})
if sys.argv[1] == "-version":
    print('openjdk version "17.0.1"', file=sys.stderr)
    sys.exit(0)
with (home / "calls").open("a") as calls:
    calls.write(" ".join(sys.argv[1:]) + "\\n")
mode = (home / "mode").read_text()
if mode == "no network":
    print("Host repository.invalid not found. url=https://repository.invalid/x")
    sys.exit(1)
folder = pathlib.Path(sys.argv[sys.argv.index("-retrieve") + 1]).parent
names = ["kafka_2.13-{version}.jar", "other-1.0.jar"]
for name in names:
    print("\\tfound org#" + name)
for name in names[: 1 if mode == "in part" else 2]:
    if mode == "broken":
        (folder / name).write_text("<html>sign in first</html>")
    else:
        with zipfile.ZipFile(folder / name, "w") as jar:
            jar.writestr("a", "b")
    print("\\t[SUCCESSFUL ] " + name + " (5ms)")
print("\\t2 artifacts copied, 0 already retrieved (9kB/1ms)")
"""


class FakeIvy:
    """A JAVA_HOME whose java plays Ivy, and a cache of its own."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "java"
        self.cache = folder / "cache"
        java = self.home / "bin" / "java"
        java.parent.mkdir(parents=True)
        script = IVY.format(python=sys.executable, home=str(self.home), version=KAFKA_VERSION)
        java.write_text(script, encoding="utf-8")
        java.chmod(0o755)
        self.plays("well")

    def plays(self, mode: str) -> None:
        (self.home / "mode").write_text(mode, encoding="utf-8")

    @property
    def calls(self) -> list[str]:
        calls = self.home / "calls"
        return calls.read_text(encoding="utf-8").splitlines() if calls.exists() else []

    @property
    def sets(self) -> list[str]:
        """What lies in the cache that looks like a set of jars, whole or not."""
        return [path.name for path in self.cache.iterdir() if "kafka" in path.name]


@pytest.fixture
def ivy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeIvy:
    fake = FakeIvy(tmp_path)
    monkeypatch.setenv("JAVA_HOME", str(fake.home))
    monkeypatch.setenv("TIDEGATE_CACHE", str(fake.cache))
    return fake


def test_a_set_is_fetched_once_and_then_found(ivy: FakeIvy) -> None:
    first, second = fetch(BROKER), fetch(BROKER)
    assert first == second == ivy.cache / f"kafka-{KAFKA_VERSION}"
    assert sorted(jar.name for jar in first.iterdir()) == [f"kafka_2.13-{KAFKA_VERSION}.jar", "other-1.0.jar"]
    assert len(ivy.calls) == 1


def test_ivy_works_inside_our_cache_and_not_in_the_users_home(ivy: FakeIvy) -> None:
    fetch(BROKER)
    assert f"-Divy.default.ivy.user.dir={ivy.cache / 'ivy'}" in ivy.calls[0]
    assert f"-cache {ivy.cache / 'ivy' / 'cache'}" in ivy.calls[0]


def test_progress_tells_how_many_came_of_how_many_known(ivy: FakeIvy) -> None:
    seen: list[tuple[int, int]] = []
    fetch(BROKER, lambda done, known: seen.append((done, known)))
    assert seen == [(0, 1), (0, 2), (1, 2), (2, 2)]
    assert ivy.sets == [BROKER.folder]


FAILURES = [
    ("no network", r"could not be downloaded \(Host repository.invalid not found"),
    ("in part", "was downloaded only in part"),
    ("broken", "is not a jar"),
]


@pytest.mark.parametrize(("mode", "sentence"), FAILURES)
def test_a_failed_fetch_leaves_nothing_says_why_and_may_be_repeated(ivy: FakeIvy, mode: str, sentence: str) -> None:
    ivy.plays(mode)
    with pytest.raises(JarsMissing, match=sentence) as raised:
        fetch(BROKER)
    assert "check the network and start again" in str(raised.value)
    assert ivy.sets == []
    ivy.plays("well")
    assert fetch(BROKER).is_dir()


def test_what_a_killed_fetch_left_is_removed(ivy: FakeIvy) -> None:
    (ivy.cache / f".{BROKER.folder}-abc").mkdir(parents=True)
    fetch(BROKER)
    assert ivy.sets == [BROKER.folder]


def test_several_that_ask_at_once_fetch_once(ivy: FakeIvy) -> None:
    threads = [threading.Thread(target=fetch, args=(BROKER,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ivy.calls) == 1
    assert ivy.sets == [BROKER.folder]


def test_a_cache_that_cannot_be_written_names_the_variable(ivy: FakeIvy) -> None:
    ivy.cache.write_text("a file where the folder should be", encoding="utf-8")
    with pytest.raises(JarsMissing, match="TIDEGATE_CACHE"):
        fetch(BROKER)
