"""Classes that change after their first import (patched, and put back), whose metaclass answers for
their attributes (none of its code runs in a lookup), or that are derived from types with a fast
import path (what they override decides, not their base)."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

import dlbridge
import test_exchange_api as api


def has_versions() -> bool:
    """Whether the version of a type is where the library looks for it."""
    base = type("Base", (), {"changed": 0})
    kind = type("Derived", (base,), {})
    offset = object.__basicsize__ + (1 + 45) * ctypes.sizeof(ctypes.c_void_p)
    tag = ctypes.c_uint.from_address(id(kind) + offset)
    assert kind.changed == 0
    before = tag.value
    base.changed = 1
    return before != 0 and tag.value != before


# Up to 3.14 it is known to be there.
HAS_VERSIONS = pytest.mark.skipif(
    sys.version_info >= (3, 15) and not has_versions(),
    reason="this Python has moved the version of a type",
)


def exported(number):
    """A `__dlpack__` that exports one number."""

    def export(self, **keywords):
        return np.array([number]).__dlpack__(**keywords)

    return export


def numbers_of(x):
    return dlbridge.from_dlpack(x).tolist()


def published():
    """A class with an exchange table, which makes a tensor of four numbers."""
    ours = api.Table.from_address(
        api.pointer(dlbridge.Tensor.__dlpack_c_exchange_api__, api.CAPSULE_NAME)
    )
    return api.producer(api.working(ours))


@HAS_VERSIONS
def test_a_patched_method_is_called_until_it_is_put_back():
    kind = published()
    x = kind()
    assert numbers_of(x) == [0, 1, 2, 3]
    for _ in range(3):
        with mock.patch.object(kind, "__dlpack__", exported(7.0)):
            assert numbers_of(x) == [7]
        assert numbers_of(x) == [0, 1, 2, 3]


CROWD = """
import numpy as np
import dlbridge, test_classes
from unittest import mock

kinds = [test_classes.published() for _ in range(8)]
for kind in kinds:
    assert test_classes.numbers_of(kind()) == [0, 1, 2, 3]
plain = {"__dlpack__": test_classes.exported(1.0), "__dlpack_device__": lambda self: (1, 0)}
crowd = [type("Plain", (), plain) for _ in range(2000)]
for kind in crowd:
    assert test_classes.numbers_of(kind()) == [1]

def notices(kind):
    with mock.patch.object(kind, "__dlpack__", test_classes.exported(7.0)):
        return test_classes.numbers_of(kind()) == [7]

print(sum(map(notices, kinds)))
"""


@HAS_VERSIONS
def test_a_patch_is_noticed_after_a_crowd_of_other_classes():
    words = [sys.executable, "-c", CROWD]
    tests = Path(__file__).parent
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, cwd=tests)
    # Of more than two classes with a table that share two places, one leaves.
    assert (done.stderr, int(done.stdout) >= 4) == ("", True)


@HAS_VERSIONS
def test_a_method_that_is_patched_in_a_base_is_called():
    base = published()
    x = type("Derived", (base,), {})()
    assert numbers_of(x) == [0, 1, 2, 3]
    with mock.patch.object(base, "__dlpack__", exported(7.0)):
        assert numbers_of(x) == [7]
    assert numbers_of(x) == [0, 1, 2, 3]


@HAS_VERSIONS
def test_a_method_that_a_derived_class_gets_later_is_called():
    kind = type("Derived", (published(),), {})
    x = kind()
    assert numbers_of(x) == [0, 1, 2, 3]
    kind.__dlpack__ = exported(7.0)
    assert numbers_of(x) == [7]
    del kind.__dlpack__
    assert numbers_of(x) == [0, 1, 2, 3]


@HAS_VERSIONS
def test_a_table_that_a_class_gets_later_is_used():
    kind = type("Later", (), {"__dlpack__": exported(7.0)})
    x = kind()
    assert numbers_of(x) == [7]
    other = published()
    kind.keep, kind.__dlpack_c_exchange_api__ = other.keep, other.__dlpack_c_exchange_api__
    # Either is right: the class had a method before.
    assert numbers_of(x) in ([7], [0, 1, 2, 3])


@HAS_VERSIONS
def test_a_class_that_counts_in_its_own_attributes_is_imported_as_before():
    kind = published()
    x = kind()
    for count in range(2000):
        kind.count = count
        # By the table, or by the method once Python has no more versions for the class.
        assert numbers_of(x) in ([0, 1, 2, 3], [0, 1, 2])


@HAS_VERSIONS
def test_a_tensor_of_pytorch_is_asked_by_a_patched_method():
    torch = pytest.importorskip("torch")
    x = torch.zeros(1)
    assert numbers_of(x) == [0]
    with mock.patch.object(torch.Tensor, "__dlpack__", exported(7.0)):
        assert numbers_of(x) == [7]
    assert numbers_of(x) == [0]


@HAS_VERSIONS
def test_a_mask_is_seen_without_its_module():
    class Masked(np.ma.MaskedArray):
        pass

    modules = {name: None for name in sys.modules if name.startswith("numpy.ma")}
    for kind in (Masked, np.ma.MaskedArray):
        x = np.ma.masked_array([1.0, 1e300], mask=[False, True]).view(kind)
        with mock.patch.dict(sys.modules):
            for name in modules:
                del sys.modules[name]
            with pytest.raises(BufferError, match="mask"):
                dlbridge.from_dlpack(x)


@HAS_VERSIONS
def test_classes_that_change_beside_imports_are_imported_by_what_they_have():
    class Method:
        __dlpack__ = exported(7.0)

    class Other:
        __dlpack__ = exported(7.0)

    table = type("Table", (published(),), {})
    moved = type("Moved", (Method,), {})
    failed, ended = [], threading.Event()

    def read():
        while not ended.is_set():
            by_table, by_method = numbers_of(table()), numbers_of(moved())
            if by_table not in ([7], [0, 1, 2, 3], [0, 1, 2]) or by_method != [7]:
                failed.append((by_table, by_method))

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for count in range(100):
        table.__dlpack__ = exported(7.0)
        time.sleep(0)
        del table.__dlpack__
        moved.__bases__ = (Other if count % 2 else Method,)
    ended.set()
    for thread in threads:
        thread.join()
    assert not failed


@HAS_VERSIONS
def test_an_object_that_changes_its_class_in_an_export_is_imported():
    class After:
        __dlpack__ = exported(8.0)

    class Before:
        def __dlpack__(self, **keywords):
            self.__class__ = After
            return exported(7.0)(self, **keywords)

    x = Before()
    assert numbers_of(x) == [7]
    assert numbers_of(x) == [8]


ASKED = None


def note(name):
    """Takes note of what is asked for while an import is watched, and is interrupted."""
    if ASKED is not None:
        ASKED.append(name)
        raise KeyboardInterrupt


class Answers(type):
    def __getattribute__(cls, name):
        note(name)
        return type.__getattribute__(cls, name)


def noted(name):
    descriptor = type.__dict__.get(name)

    def get(cls):
        note(name)
        if descriptor is None:
            raise AttributeError
        return descriptor.__get__(cls)

    return property(get)


NAMES = (
    *("__mro__", "__dict__", "__module__", "__dictoffset__"),
    *("__dlpack__", "__dlpack_c_exchange_api__", "__torch_function__"),
)
HasProperties = type("HasProperties", (type,), {name: noted(name) for name in NAMES})


def watched(x):
    """The numbers of an object, and what its metaclass was asked for in the import."""
    global ASKED
    ASKED = []
    try:
        tensor = dlbridge.from_dlpack(x)
        return tensor.tolist(), ASKED
    finally:
        ASKED = None


def attributes():
    kind = published()
    names = ("keep", "__dlpack_c_exchange_api__", "__dlpack__")
    return {name: kind.__dict__[name] for name in names if name in kind.__dict__}


@pytest.fixture(params=[Answers, HasProperties])
def metaclass(request):
    return request.param


def test_a_class_with_a_method_is_asked_by_it(metaclass):
    x = metaclass("WithMethod", (), {"__dlpack__": exported(7.0)})()
    for _ in range(2):
        assert watched(x) == ([7], [])


def test_a_class_with_a_table_goes_by_it(metaclass):
    x = metaclass("WithTable", (), attributes())()
    for _ in range(2):
        assert watched(x) == ([0, 1, 2, 3], [])


def test_a_class_of_arrays_is_asked_by_its_method(metaclass):
    x = np.arange(3.0).view(metaclass("Array", (np.ndarray,), {}))
    for _ in range(2):
        assert watched(x) == ([0, 1, 2], [])


def test_a_mask_is_seen(metaclass):
    kind = metaclass("Masked", (np.ma.MaskedArray,), {})
    x = np.ma.masked_array([1.0, 1e300], mask=[False, True]).view(kind)
    with pytest.raises(BufferError, match="mask"):
        watched(x)


def test_an_attribute_is_not_bound_to_its_class():
    class Bound:
        def __get__(self, instance, owner):
            if instance is None:
                note("__dlpack__")
            return lambda **keywords: exported(7.0)(instance, **keywords)

    x = type("HasBound", (), {**attributes(), "__dlpack__": Bound()})()
    # By the table: its class has the method that it had at first sight.
    assert watched(x) == ([0, 1, 2, 3], [])


def test_what_a_key_of_a_class_raises_passes_through():
    class Key(str):
        __hash__ = str.__hash__

        def __eq__(self, other):
            note(str(other))
            return str.__eq__(self, other)

    name = "__dlpack_c_exchange_api__"
    x = type("Keyed", (), {Key(name): None, "__dlpack__": exported(7.0)})()
    with pytest.raises(KeyboardInterrupt):
        watched(x)
    assert dlbridge.from_dlpack(x).tolist() == [7]


@pytest.mark.parametrize("name", ["ndarray", "MaskedArray", "ArrayImpl"])
def test_a_module_whose_name_is_no_utf_8_is_that_of_no_framework(name):
    kind = type(name, (bytearray,), {"__module__": "\ud800"})
    assert dlbridge.from_dlpack(kind(b"ab")).tolist() == [97, 98]


def run(program: str) -> None:
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True, timeout=240)


class TestTorch:
    @pytest.fixture(autouse=True)
    def torch(self):
        self.torch = pytest.importorskip("torch", reason="torch is not installed")

    def test_memory_that_moves_while_the_object_is_asked_is_imported_afterwards(self):
        """A PyTorch whose marks are not known is asked by `is_conj()`, which is Python code of a
        subclass. This one lacks a function by which they are looked for."""
        run(
            """
            import torch
            import dlbridge

            del torch._neg_view
            other = torch.zeros(5, dtype=torch.complex64)

            class Moving(torch.Tensor):
                def is_conj(self):
                    if move == "set_":
                        self.set_(other.untyped_storage(), 0, (5,), (1,))
                    else:
                        self.resize_(1 << 20)
                    return False

            class Silent(torch.Tensor):
                def is_conj(self):
                    raise AttributeError

            for move in ("set_", "resize_"):
                tensor = torch.ones(3, dtype=torch.complex64).as_subclass(Moving)
                before = tensor.data_ptr()
                facts = dlbridge.inspect(tensor)
                assert facts.data_ptr == tensor.data_ptr() != before
                assert tuple(facts.shape) == tuple(tensor.shape)

            complex_tensor = torch.ones(3, dtype=torch.complex64)
            for tensor, word in (
                (complex_tensor.conj(), "resolve_conj"),
                (complex_tensor.conj().imag, "resolve_neg"),
                (torch._efficientzerotensor((100_000,))[50_000:], "clone"),
            ):
                try:
                    dlbridge.inspect(tensor)
                except BufferError as error:
                    assert word in str(error), error
                else:
                    raise AssertionError(word)
            try:
                dlbridge.inspect(complex_tensor.as_subclass(Silent))
            except AttributeError:
                pass  # PyTorch's `__dlpack__` asks the same question.
            else:
                raise AssertionError("silent")
            """
        )

    def test_marks_are_read_without_methods_of_a_subclass(self):
        class Silent(self.torch.Tensor):
            def is_conj(self):
                raise AttributeError

        tensor = self.torch.ones(3, dtype=self.torch.complex64).as_subclass(Silent)
        assert dlbridge.from_dlpack(tensor).shape == (3,)
        with pytest.raises(BufferError, match="resolve_conj"):
            dlbridge.from_dlpack(tensor.conj())

    def test_a_subclass_that_overrides_dlpack_is_asked_by_its_own(self):
        torch = self.torch

        class Other(torch.Tensor):
            def __dlpack__(self, **keywords):
                return np.arange(7).__dlpack__(**keywords)

        class Refusing(torch.Tensor):
            def __dlpack__(self, **keywords):
                raise BufferError("mine alone")

        tensor = torch.ones(3)
        assert dlbridge.from_dlpack(tensor.as_subclass(Other)).shape == (7,)
        with pytest.raises(BufferError, match="mine alone"):
            dlbridge.from_dlpack(tensor.as_subclass(Refusing))

    def test_a_subclass_that_intercepts_calls_is_asked_by_them(self):
        torch = self.torch

        class Refusing(torch.Tensor):
            @classmethod
            def __torch_function__(cls, function, types, arguments=(), keywords=None):
                raise BufferError(f"no {function.__name__}")

        class Hiding(torch.Tensor):
            def __getattribute__(self, name):
                if name == "__dlpack__":
                    raise BufferError("no __dlpack__")
                return super().__getattribute__(name)

        for kind in (Refusing, Hiding):
            with pytest.raises(BufferError, match="no __dlpack__"):
                dlbridge.from_dlpack(torch.ones(3).as_subclass(kind))

    def test_a_subclass_that_overrides_nothing_of_it_goes_the_fast_path(self):
        torch = self.torch

        class Named(torch.Tensor):
            def name(self):
                return "mine"

        class Same(torch.Tensor):
            __dlpack__ = torch.Tensor.__dlpack__
            __torch_function__ = torch._C._disabled_torch_function_impl

        for kind in (Named, Same, torch.nn.Parameter):
            tensor = torch.ones(3).as_subclass(kind)
            assert dlbridge.inspect(tensor).protocol == "C exchange API"

    def test_an_uninitialised_parameter_is_refused_by_torch_itself(self):
        parameter = self.torch.nn.parameter.UninitializedParameter()
        with pytest.raises(ValueError, match="uninitialized parameter"):
            dlbridge.from_dlpack(parameter)


def test_a_subclass_of_numpys_array_is_asked_by_its_own_dlpack():
    class Refusing(np.ndarray):
        def __dlpack__(self, **keywords):
            raise RuntimeError("mine alone")

    with pytest.raises(RuntimeError, match="mine alone"):
        dlbridge.from_dlpack(np.ones(3).view(Refusing))


@pytest.mark.parametrize("mro", [KeyError, [1], None])
def test_a_metaclass_that_raises_for_its_mro_is_no_panic(mro):
    class Meta(type):
        @property
        def __mro__(cls):
            if mro is KeyError:
                raise mro
            return mro

    class Producer(metaclass=Meta):
        def __dlpack__(self, **keywords):
            return np.ones(2).__dlpack__(**keywords)

    assert dlbridge.from_dlpack(Producer()).tolist() == [1, 1]
