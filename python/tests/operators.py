"""The operators of `examples/python-extension/src/operators.rs`, which tests misuse."""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import ExtensionFileLoader

NAME = "misused_operators"


def load():
    """A second module of the example extension's library."""
    if NAME in sys.modules:
        return sys.modules[NAME]
    library = importlib.util.find_spec("dlbridge_example.dlbridge_example").origin
    loader = ExtensionFileLoader(NAME, library)
    spec = importlib.util.spec_from_file_location(NAME, library, loader=loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules[NAME] = module
    loader.exec_module(module)
    return module
