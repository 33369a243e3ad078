"""The tests that the README shows to authors of a framework."""

import numpy as mylib

from dlpack_doctor import check_consumer, check_producer


def test_arrays_can_be_exported():
    check_producer(lambda shape, dtype: mylib.zeros(shape, dtype)).raise_for_failures()


def test_arrays_can_be_imported():
    check_consumer(mylib.from_dlpack).raise_for_failures()
