"""Find the pipeline in a user's program."""

from __future__ import annotations

import difflib
import importlib.util
import inspect
import re
import sys
import traceback
from pathlib import Path
from types import ModuleType

import tidegate
from tidegate.engine.spark import pickle_by_value
from tidegate.errors import SettingsError
from tidegate.pipeline import Pipeline, is_loading

_PACKAGE = str(Path(tidegate.__file__).parent)
_TAKEN = ("tidegate", "pyspark", "confluent_kafka", "pyarrow", "pandas", "orjson", "httptools", "psycopg")
_EXAMPLE = "invoices = tg.from_kafka(...).sink(...)"
_UNEXPECTED = re.compile(r"(?:Pipeline\.)?(\w+)\(\) got an unexpected keyword argument '(\w+)'")
_CALLED = re.compile(r"(\w+)\(\) (?:missing|takes)")
_CALLS = {
    "from_kafka": 'write it like from_kafka("orders", group="billing")',
    "json": "hand it over without calling it: .map(tg.json)",
    "text": "hand it over without calling it: .map(tg.text)",
}


def load_app(reference: str) -> Pipeline:
    """Load `APP.py` or `APP.py:name` and return its pipeline."""
    path_text, _, name = reference.partition(":")
    path = Path(path_text)
    _refuse_what_is_no_file(path, path_text)
    module = _import_file(path.resolve())
    pipelines = {key: value for key, value in vars(module).items() if isinstance(value, Pipeline)}
    if name:
        if name not in pipelines:
            there = f", but a {type(vars(module)[name]).__name__}" if name in vars(module) else ""
            found = ", ".join(pipelines) or "none"
            raise SettingsError(f"{path_text} has no pipeline named {name!r}{there}", f"its pipelines are: {found}")
        return pipelines[name]
    distinct = {id(value): key for key, value in pipelines.items()}
    # A pipeline that was built on in several statements leaves its beginnings behind: they have no sink.
    complete = [key for key in distinct.values() if pipelines[key].sinks]
    if len(complete) == 1:
        return pipelines[complete[0]]
    if not complete:
        raise _without_sink(path, path_text, list(distinct.values()))
    raise SettingsError(
        f"{path_text} has {len(complete)} pipelines: {', '.join(complete)}",
        f"choose one: tidegate run {path_text}:{complete[0]}",
    )


def _refuse_what_is_no_file(path: Path, shown: str) -> None:
    if path.is_dir():
        raise SettingsError(
            f"{shown or 'what was named'} is a folder", "name the Python file in it: tidegate run app.py"
        )
    if not path.is_file():
        beside = [one.name for one in path.parent.glob("*.py")] if path.parent.is_dir() else []
        close = difflib.get_close_matches(path.name, beside, n=1)
        meant = f"did you mean {path.parent / close[0]}?" if close else "name a Python file: tidegate run app.py"
        raise SettingsError(f"there is no program {shown}", meant)


def _without_sink(path: Path, shown: str, unfinished: list[str]) -> SettingsError:
    """Say that there is nothing to run: no pipeline at all, or one whose records would come to nothing."""
    if unfinished:
        return SettingsError(
            f"{shown} has no pipeline with a sink: {', '.join(unfinished)} would do nothing with what its steps return",
            f"end it with .sink(a_function): {unfinished[0]} = tg.from_kafka(...).sink(print)",
        )
    if "__main__" in path.read_text(encoding="utf-8", errors="replace"):
        return SettingsError(
            f"{shown} has no pipeline with a sink at its top level",
            f"assign one to a name there: {_EXAMPLE}; or let the program run itself: python {shown}",
        )
    return SettingsError(f"{shown} has no pipeline with a sink at its top level", f"assign one to a name: {_EXAMPLE}")


def _import_file(path: Path) -> ModuleType:
    """Import a program under a name of its own, with its folder first on the import path, as Python would."""
    if path.stem in sys.stdlib_module_names or path.stem in _TAKEN:
        raise SettingsError(
            f"{path.name} would hide the module {path.stem}, which others import by this name", "rename it, app.py say"
        )
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(f"tidegate_app_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise SettingsError(f"{path.name} is not a Python program", "name a file that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    is_loading.set(True)
    try:
        spec.loader.exec_module(module)
    except SettingsError as error:
        where = _place(error, path)
        raise type(error)(f"{where}: {error.happened}" if where else error.happened, error.cure) from error
    except (Exception, SystemExit) as error:
        where = _place(error, path)
        what = error.msg if isinstance(error, SyntaxError) else error
        raise SettingsError(
            f"{path.name} failed while it was loaded: {type(error).__name__}: {what}"
            + (f" ({where})" if where else ""),
            _cure(error),
        ) from error
    finally:
        is_loading.set(False)
    # Workers cannot import a program by this name: its functions travel as they are.
    pickle_by_value(module)
    return module


def _place(error: BaseException, program: Path) -> str:
    """Return the user's line behind an error: the last one of the program and what lies beside it, else the last."""
    if isinstance(error, SyntaxError):
        return f"{Path(error.filename).name} line {error.lineno}" if error.filename and error.lineno else ""
    steps = traceback.extract_tb(error.__traceback__)
    theirs = [step for step in steps if not step.filename.startswith((_PACKAGE, "<frozen"))]
    beside = [step for step in theirs if Path(step.filename).is_relative_to(program.parent)]
    chosen = (beside or theirs)[-1:]
    return f"{Path(chosen[0].filename).name} line {chosen[0].lineno}" if chosen else ""


def _cure(error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"mend it there, or install the package that holds {error.name} for {sys.executable}"
    if isinstance(error, TypeError) and (called := _CALLED.match(str(error))) and called.group(1) in _CALLS:
        return f"mend it there: {_CALLS[called.group(1)]}"
    close = difflib.get_close_matches(*_meant(error), n=1)
    return f"mend it there{f' (did you mean {close[0]!r}?)' if close else ''}; --debug shows the trace"


def _meant(error: BaseException) -> tuple[str, list[str]]:
    """Return a name that is not known there, and those that are."""
    if isinstance(error, AttributeError) and error.name:
        return error.name, [name for name in dir(error.obj) if not name.startswith("_")]
    if isinstance(error, TypeError) and (found := _UNEXPECTED.search(str(error))):
        function = getattr(tidegate, found.group(1), None) or getattr(Pipeline, found.group(1), None)
        return found.group(2), list(inspect.signature(function).parameters) if callable(function) else []
    return "", []
