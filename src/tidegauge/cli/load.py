"""Finding the flow that a command is about: `shop.py`, or `shop.py:flow` where a file makes several.

The file is ordinary Python that its user wrote and asked to run; nothing else is ever executed. It is compiled each
time: Python takes what it compiled earlier for current by the file's size and the second of its last change, and a
script may change one letter twice within a second.
"""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import tidegauge as tg
from tidegauge.cli import STOPPED
from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.command import FlowFileBroken, FlowFileMissing, NoFlowInFile, NoSuchFlow, SeveralFlows

__all__ = ["flow_maker", "load_flow", "load_module", "own_modules", "parse_target", "send_by_value"]

_PREFIX = "flow_file_"


def load_module(path: Path) -> ModuleType:
    """Execute a Python file as a module of its own name; modules beside it can be imported from it."""
    path = path.absolute()
    if not path.is_file():
        raise FlowFileMissing(path=str(path))
    name = path.stem
    if name in sys.modules or name in sys.stdlib_module_names:
        name = f"{_PREFIX}{name}"  # nobody else's module is to be replaced
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or not isinstance(spec.loader, SourceFileLoader):
        raise FlowFileMissing(path=str(path))
    module = importlib.util.module_from_spec(spec)
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    sys.modules[name] = module
    try:
        code = spec.loader.source_to_code(spec.loader.get_data(str(path)), str(path))
        exec(code, module.__dict__)  # noqa: S102 - as its import would
    except TidegaugeError:
        del sys.modules[name]
        raise
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
        line = frames[-1].lineno if frames else getattr(error, "lineno", None)
        where = path.name if line is None else f"{path.name}, line {line},"
        raise FlowFileBroken(path=where, error=type(error).__name__, detail=str(error)) from error
    return module


def own_modules(folder: Path) -> list[ModuleType]:
    """Return the modules that were imported from a folder itself: `shop.py` or a package `shop` there."""
    own = []
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and Path(file).resolve().is_relative_to(folder):
            top = Path(file).resolve().relative_to(folder).parts[0]
            if top in (f"{name}.py", name.partition(".")[0], f"{name.removeprefix(_PREFIX)}.py"):
                own.append(module)
    return own


def send_by_value(folder: Path) -> None:
    """Let Spark's tasks get the functions of a flow's file, and of modules beside it, as code.

    The tasks cannot import them: their processes know nothing of the folder, and may be on other machines.
    """
    from pyspark import cloudpickle

    register: Callable[[ModuleType], None] = cloudpickle.register_pickle_by_value
    for module in own_modules(folder.resolve()):
        register(module)


def parse_target(target: str | Path) -> tuple[Path, str]:
    """Return the file and the variable ("" for none) that a target names.

    >>> parse_target("shop.py:flow"), parse_target("a:b/shop.py")
    ((PosixPath('shop.py'), 'flow'), (PosixPath('a:b/shop.py'), ''))
    """
    head, _, variable = str(target).rpartition(".py:")
    return (Path(head + ".py"), variable) if head and variable else (Path(target), "")


def load_flow(target: str | Path) -> tg.Dataflow:
    """Return the flow of `path` or `path:variable`. What it is made of is loaded with it, and may be interrupted."""
    path, variable = parse_target(target)
    try:
        module = load_module(path)
    except KeyboardInterrupt:
        sys.exit(STOPPED)
    return _flow_of(module, path, variable)


def flow_maker(target: str | Path) -> Callable[[], tg.Dataflow]:
    """Return a function that loads the file anew and returns its flow, as each process has it.

    Where the target names no variable and the file has a function `make_flow`, it is that function's.
    """
    path, variable = parse_target(target)

    def make_flow() -> tg.Dataflow:
        module = load_module(path)
        make = None if variable else getattr(module, "make_flow", None)
        flow: tg.Dataflow = _flow_of(module, path, variable) if make is None else make()
        return flow

    make_flow.__qualname__ = str(target)  # what errors call it
    return make_flow


def _flow_of(module: ModuleType, path: Path, variable: str) -> tg.Dataflow:
    flows = {name: value for name, value in vars(module).items() if isinstance(value, tg.Dataflow)}
    if not flows:
        raise NoFlowInFile(path=str(path))
    if variable:
        if variable not in flows:
            raise NoSuchFlow(path=str(path), variable=variable, known=sorted(flows))
        return flows[variable]
    distinct = {id(flow): name for name, flow in reversed(flows.items())}
    if len(distinct) > 1:
        names = sorted(distinct.values())
        raise SeveralFlows(path=str(path), names=names, first=names[0])
    return next(iter(flows.values()))
