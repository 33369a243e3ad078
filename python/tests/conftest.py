"""Keeps collections of garbage quick in a process that has imported every framework."""

from __future__ import annotations

import gc


def pytest_runtest_teardown(item, nextitem):
    # Tests collect many thousands of times. A collection that looks at all objects of the imported
    # frameworks takes most of a second; those that were there before a file's tests are set aside.
    if nextitem is not None and nextitem.path != item.path:
        gc.collect()
        gc.freeze()
