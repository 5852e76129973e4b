"""Find the pipeline in a user's program."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType

from tidegate.engine.spark import pickle_by_value
from tidegate.errors import SettingsError, TidegateError
from tidegate.pipeline import Pipeline


def load_app(reference: str) -> Pipeline:
    """Load `APP.py` or `APP.py:name` and return its pipeline."""
    path_text, _, name = reference.partition(":")
    path = Path(path_text)
    if not path.is_file():
        raise SettingsError(f"there is no program {path_text}", "name a Python file: tidegate run app.py")
    module = _import_file(path.resolve())
    pipelines = {key: value for key, value in vars(module).items() if isinstance(value, Pipeline)}
    if name:
        if name not in pipelines:
            found = ", ".join(pipelines) or "none"
            raise SettingsError(f"{path_text} has no pipeline named {name!r}", f"its pipelines are: {found}")
        return pipelines[name]
    distinct = {id(value): key for key, value in pipelines.items()}
    # A pipeline that was built on in several statements leaves its beginnings behind: they have no sink.
    complete = [key for key in distinct.values() if pipelines[key].sinks]
    if len(complete) == 1:
        return pipelines[complete[0]]
    if not complete:
        raise SettingsError(
            f"{path_text} has no pipeline with a sink at its top level",
            "assign one to a name: invoices = tg.from_kafka(...).sink(...)",
        )
    raise SettingsError(
        f"{path_text} has {len(complete)} pipelines: {', '.join(complete)}",
        f"choose one: tidegate run {path_text}:{complete[0]}",
    )


def _import_file(path: Path) -> ModuleType:
    """Import a program under a name of its own, with its folder first on the import path, as Python would."""
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(f"tidegate_app_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise SettingsError(f"{path.name} is not a Python program", "name a file that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except TidegateError:
        raise
    except (Exception, SystemExit) as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        raise SettingsError(
            f"{path.name} failed while it was loaded: {type(error).__name__}: {error} "
            f"({Path(where.filename).name} line {where.lineno})",
            "mend it there; --debug shows the trace",
        ) from error
    # Workers cannot import a program by this name: its functions travel as they are.
    pickle_by_value(module)
    return module
