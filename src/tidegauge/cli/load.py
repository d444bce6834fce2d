"""Finding the flow that a command is about: `shop.py`, or `shop.py:flow` where a file makes several.

The file is ordinary Python that its user wrote and asked to run; nothing else is ever executed.
"""

from __future__ import annotations

import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType

from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.command import FlowFileBroken, FlowFileMissing, NoFlowInFile, SeveralFlows
from tidegauge.pipeline.flow import Dataflow

__all__ = ["load_flow", "load_module"]


def load_module(path: Path) -> ModuleType:
    """Execute a Python file as a module of its own name; modules beside it can be imported from it."""
    if not path.is_file():
        raise FlowFileMissing(path=str(path))
    name = path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise FlowFileMissing(path=str(path))
    module = importlib.util.module_from_spec(spec)
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except TidegaugeError:
        raise
    except Exception as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
        line = frames[-1].lineno if frames else getattr(error, "lineno", None)
        raise FlowFileBroken(path=str(path), error=type(error).__name__, line=line, detail=str(error)) from error
    return module


def load_flow(target: str | Path) -> Dataflow:
    """Return the flow of `path` or `path:variable`."""
    text = str(target)
    path_text, _, variable = text.partition(".py:")
    path = Path(path_text + ".py" if variable else text)
    module = load_module(path)
    flows = {name: value for name, value in vars(module).items() if isinstance(value, Dataflow)}
    if variable:
        if variable not in flows:
            raise NoFlowInFile(path=str(path), wanted=f"flow in a variable named {variable!r}")
        return flows[variable]
    distinct = {id(flow): name for name, flow in reversed(flows.items())}
    if not distinct:
        raise NoFlowInFile(path=str(path), wanted="flow")
    if len(distinct) > 1:
        names = sorted(distinct.values())
        raise SeveralFlows(path=str(path), names=names, first=names[0])
    return next(iter(flows.values()))
