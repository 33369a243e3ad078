"""The operators of `examples/python-extension/src/operators.rs`, which tests misuse."""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import ExtensionFileLoader

NAME = "misused_operators"


def library():
    """The path of the example extension's library."""
    return importlib.util.find_spec("dlbridge_example.dlbridge_example").origin


def load(name=NAME, path=None):
    """Another module of the example extension's library, or of a copy of it."""
    if name in sys.modules:
        return sys.modules[name]
    path = path or library()
    loader = ExtensionFileLoader(name, path)
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    loader.exec_module(module)
    return module
