"""Names of subjects: frameworks of the table, modules, factories and classes."""

from __future__ import annotations

import difflib
import importlib
from typing import Any

from dlpack_doctor.frameworks import FRAMEWORKS, dlbridge, installed, is_there, namespace
from dlpack_doctor.subject import Subject, of_factory


class Unknown(Exception):
    """A name without a meaning."""


def expand(name: str) -> list[str]:
    """A name as the table has it: `pyarrow` stands for both of its types.

    `installed` stands for all that are, and a label may stand before it: `label=module:make`.
    A name that cannot mean anything is an `Unknown`, before anything is imported.
    """
    if name == "installed":
        return installed()
    label, equals, name = name.rpartition("=")
    found = [known for known in FRAMEWORKS if known.split(".")[0] == name or known == name]
    module = FRAMEWORKS[found[0]].module if found else name.partition(":")[0]
    if is_there(module):
        return [label + equals + one for one in found or [name]]
    if found:
        package = FRAMEWORKS[found[0]].package
        raise Unknown(f"{name} is not installed: pip install {package}")
    close = difflib.get_close_matches(name, [*FRAMEWORKS, "pyarrow", "dlbridge"], 1)
    raise Unknown(
        f"no module {module!r}" + (f"; did you mean {close[0]}?" if close else " can be imported")
    )


def resolve(name: str) -> Subject:
    """A framework of the table, `module:factory`, `module:Class`, or an array API namespace."""
    name = name.rpartition("=")[2]
    if name in FRAMEWORKS:
        return FRAMEWORKS[name].subject(name)
    if name == "dlbridge":
        return dlbridge()
    module_name, _, attribute = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise Unknown(f"{name}: {error}") from error
    if not attribute:
        return _namespace(module, name)
    thing: Any = module
    for part in attribute.split("."):
        thing = getattr(thing, part, None)
    if not callable(thing):
        close = difflib.get_close_matches(attribute, dir(module), 1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise Unknown(f"{module_name} has no callable {attribute}{hint}")
    version = str(getattr(module, "__version__", ""))
    if attribute.endswith("from_dlpack"):
        call = f"{module_name}.{attribute}({{}})"
        return Subject(name, version, take=thing, setup=f"import {module_name}", take_code=call)
    take = getattr(thing, "from_dlpack", None) or getattr(module, "from_dlpack", None)
    subject = of_factory(thing, name, take, module_name)
    subject.version = version
    return subject


def _namespace(space: Any, name: str) -> Subject:
    """A subject made of an array API namespace: `arange`, `reshape`, `astype`, `from_dlpack`."""
    take = getattr(space, "from_dlpack", None)
    if not hasattr(space, "arange") and take is None:
        raise Unknown(f"{name} has neither arange nor from_dlpack; name a module:factory")

    # What it lacks, it is not asked for.
    lacks = {} if hasattr(space, "arange") else {"row": ""}
    subject = namespace("", name, "xp", **lacks | ({} if take else {"take": ""})).subject(name)
    subject.version = str(getattr(space, "__version__", ""))
    return subject
