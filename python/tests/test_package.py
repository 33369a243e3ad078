"""The package itself: its stubs name what the native module has, and type checkers understand them;
what its documentation shows is what happens; `python -m dlbridge`, its programs and the demo."""

from __future__ import annotations

import ast
import dataclasses
import doctest
import inspect
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import dlbridge
import dlbridge._inspect
from dlbridge import __main__ as programs
from dlbridge import _native, demo

STUB = Path(dlbridge.__file__).parent / "_native.pyi"
MODULE = ast.parse(STUB.read_text())
CLASSES = {node.name: node for node in MODULE.body if isinstance(node, ast.ClassDef)}
TENSOR = CLASSES["Tensor"]
FUNCTIONS = {node.name: node for node in MODULE.body if isinstance(node, ast.FunctionDef)}
METHODS = {node.name: node for node in TENSOR.body if isinstance(node, ast.FunctionDef)}
# Every type of Rust has these, and a stub says nothing new about them.
# The last one is made by Python of a class whose buffer functions PyO3 makes.
INHERITED = {
    *("__doc__", "__module__", "__repr__", "__new__", "__hash__", "__eq__"),
    "__release_buffer__",
}
# Methods of a tensor for an error, which a type checker finds without them.
FOR_ERRORS = {f"__{name}__" for name in ("ne", "lt", "le", "gt", "ge", "setitem", "delitem")}
FOR_ERRORS |= {
    f"__{side}{name}__" for name in ("add", "sub", "mul", "truediv", "matmul") for side in ("", "r")
}


def names(body):
    """The names that a stub's body defines, without type aliases and protocols."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            if not getattr(node, "bases", []):
                yield node.name
        elif isinstance(node, ast.AnnAssign) and node.value is None:
            yield node.target.id


def test_the_stub_names_exactly_what_the_module_has():
    dunders = {"__version__"}
    there = {name for name in vars(_native) if not name.startswith("_") or name in dunders}
    assert set(names(MODULE.body)) == there


@pytest.mark.parametrize("name", ["Tensor", "SealedTensors", "UnsealedTensors"])
def test_the_stub_names_exactly_the_attributes_of_a_class(name):
    there = set(vars(getattr(dlbridge, name))) - INHERITED
    if name == "Tensor":
        assert there >= FOR_ERRORS
        there -= FOR_ERRORS
    if sys.platform == "win32":
        there.add("fileno")
    assert set(names(CLASSES[name].body)) == there


def test_what_the_stub_calls_a_property_is_one():
    for name, node in METHODS.items():
        decorated = any(getattr(mark, "id", "") == "property" for mark in node.decorator_list)
        assert inspect.isgetsetdescriptor(vars(dlbridge.Tensor)[name]) is decorated, name


def parameters(node):
    """Name and kind of each parameter that a stub gives."""
    arguments = node.args
    kinds = inspect.Parameter
    rows = [(a.arg, kinds.POSITIONAL_ONLY) for a in arguments.posonlyargs]
    rows += [(a.arg, kinds.POSITIONAL_OR_KEYWORD) for a in arguments.args]
    rows += [(a.arg, kinds.KEYWORD_ONLY) for a in arguments.kwonlyargs]
    return [row for row in rows if row[0] != "self"]


CALLABLE = [*sorted(FUNCTIONS), "__buffer__", "__dlpack__", "__dlpack_device__"]


@pytest.mark.parametrize("name", CALLABLE)
def test_signatures_are_those_of_the_stub(name):
    function = getattr(_native, name, None) or getattr(dlbridge.Tensor, name)
    node = FUNCTIONS.get(name) or METHODS[name]
    there = inspect.signature(function).parameters.values()
    rows = [(p.name, p.kind) for p in there if p.name != "self"]
    assert rows == parameters(node)
    optional = [p.default is not inspect.Parameter.empty for p in there if p.name != "self"]
    arguments = node.args
    plain = len(arguments.posonlyargs + arguments.args) - (node in METHODS.values())
    given = [False] * (plain - len(arguments.defaults)) + [True] * len(arguments.defaults)
    given += [default is not None for default in arguments.kw_defaults]
    assert optional == given


def test_the_guide_names_what_dlpack_class_adds_to_a_class():
    example = pytest.importorskip(
        "dlbridge_example", reason="the example extension is not installed"
    )
    page = (Path(__file__).parents[2] / "docs/guide/extension.md").read_text()
    _, block = page.split("Write them into its stub:\n\n```python\n")
    (image,) = [
        node for node in ast.parse(block.split("```")[0]).body if isinstance(node, ast.ClassDef)
    ]
    stub = {node.name: node.args for node in image.body if isinstance(node, ast.FunctionDef)}
    # What the class itself declares, and what Python makes of its buffer functions.
    others = {"__module__", "__dlpack_c_exchange_api__", "__release_buffer__"}
    there = {name for name in vars(example.Image) if name.startswith("__")} - others
    there -= set(dir(object))
    assert set(stub) - {"__buffer__"} == there - {"__buffer__"}
    for name in there - {"__buffer__"}:
        arguments = [*stub[name].args, *stub[name].kwonlyargs]
        found = list(inspect.signature(getattr(example.Image, name)).parameters)
        assert [one.arg for one in arguments] == found, name


def test_the_values_of_a_tensor_have_the_types_of_the_stub():
    # An array or a dtype of NumPy, which the stubs do not name.
    kinds = {
        "Any": np.dtype,
        "dict": dict,
        "int": int,
        "bool": bool,
        "str": str,
        "tuple": tuple,
        "Tensor": dlbridge.Tensor,
    }
    tensor = dlbridge.zeros((2, 3))
    for name, node in METHODS.items():
        # Only memory of CUDA has that interface.
        if node.decorator_list and name != "__cuda_array_interface__":
            first = re.match(r"\w+", ast.unparse(node.returns))[0]
            assert isinstance(getattr(tensor, name), kinds[first]), name


SAMPLE = """
from typing_extensions import assert_type

import numpy as np

import dlbridge

tensor = dlbridge.zeros((2, 3), dtype="bfloat16")
arrays: list[dlbridge.SupportsDLPack] = [tensor, np.ones(2)]
assert_type(tensor, dlbridge.Tensor)
assert_type(dlbridge.zeros(3), dlbridge.Tensor)
assert_type(dlbridge.from_bytes(bytearray(4), shape=[2, 2]), dlbridge.Tensor)
assert_type(dlbridge.from_dlpack(tensor, device="cpu", copy=False), dlbridge.Tensor)
assert_type(tensor.shape, tuple[int, ...])
assert_type(tensor.itemsize, int | None)
assert_type(tensor.dtype, str)
assert_type(len(tensor), int)
assert_type(tensor[0, ..., ::2], dlbridge.Tensor)
assert_type([row for row in tensor], list[dlbridge.Tensor])
assert_type(tensor.reshape(3, -1).T.copy(), dlbridge.Tensor)
assert_type(float(dlbridge.zeros((), dtype=float)), float)
assert_type(tensor.__dlpack_device__(), tuple[int, int])
assert_type(dlbridge.inspect(tensor), dlbridge.Description)
assert_type(dlbridge.inspect(tensor).version, tuple[int, int] | None)
assert_type(dlbridge.DLPACK_VERSION, tuple[int, int])
dlbridge.from_dlpack(bytes(3))
dlbridge.from_dlpack(memoryview(b"abc"))
assert_type(tensor.view("uint8"), dlbridge.Tensor)
capsule = tensor.__dlpack__(max_version=(1, 3), dl_device=(1, None), stream=None, copy=True)
dlbridge.from_dlpack(capsule)
batch = dlbridge.empty_sealed({"x": ((2, 3), "float32"), "y": (3, "int64")})
assert_type(batch.tensors(), dict[str, dlbridge.Tensor])
sealed = batch.seal()
assert_type(sealed, dlbridge.SealedTensors)
assert_type(dlbridge.seal({"x": [1.0]}, metadata={"a": "b"})["x"], dlbridge.Tensor)
assert_type(dict(sealed), dict[str, dlbridge.Tensor])
assert_type(dlbridge.open_sealed(sealed.fileno()), dlbridge.SealedTensors)
assert_type(dlbridge.open_sealed(sealed).private()["x"], dlbridge.Tensor)
"""

MISTAKES = """
import dlbridge

dlbridge.zeros("3")
dlbridge.zeros(3, "float32")
dlbridge.from_dlpack(x=3)
dlbridge.from_dlpack(3, copy="yes")
dlbridge.from_dlpack([1, 2])
dlbridge.zeros(3) + 1
dlbridge.zeros(3)[0] = 1
dlbridge.zeros(3).shape = ()
dlbridge.zeros(3).nothing
dlbridge.zeros(3)["x"]
class Derived(dlbridge.Tensor): pass
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("mypy")


def mypy(text, tmp_path, cache):
    pytest.importorskip("mypy", reason="mypy is not installed")
    sample = tmp_path / "sample.py"
    sample.write_text(text)
    options = ["--strict", "--no-error-summary", "--cache-dir", str(cache), "--config-file", ""]
    result = subprocess.run(
        [sys.executable, "-m", "mypy", *options, str(sample)],
        capture_output=True,
        text=True,
        check=False,
    )
    return result.stdout + result.stderr


def test_right_uses_pass_a_strict_type_checker(tmp_path, cache):
    assert mypy(SAMPLE, tmp_path, cache) == ""


def test_wrong_uses_are_found_by_a_type_checker(tmp_path, cache):
    found = mypy(MISTAKES, tmp_path, cache)
    lines = {int(line) for line in re.findall(r"sample\.py:(\d+): error", found)}
    wrong = [i for i, line in enumerate(MISTAKES.splitlines(), 1) if i > 3 and line]
    assert sorted(lines) == wrong


def test_the_package_says_that_it_is_typed():
    assert (STUB.parent / "py.typed").is_file()


@pytest.mark.parametrize("module", [dlbridge, dlbridge._inspect], ids=lambda m: m.__name__)
def test_the_examples_of_a_module_work(module):
    results = doctest.testmod(module)
    assert results.attempted > 0
    assert results.failed == 0


def test_the_examples_of_native_functions_work():
    names = [name for name in dlbridge.__all__ if ">>>" in (getattr(dlbridge, name).__doc__ or "")]
    assert {"empty_sealed", "open_sealed", "seal"} <= set(names)
    if sys.platform != "linux":
        pytest.skip("sealed memory is for Linux")
    runner = doctest.DocTestRunner()
    for name in names:
        text = getattr(dlbridge, name).__doc__
        runner.run(doctest.DocTestParser().get_doctest(text, {}, name, None, 0))
    assert runner.summarize().failed == 0


def test_help_names_arguments_errors_and_an_example():
    for name in ("from_dlpack", "zeros", "from_bytes"):
        text = getattr(dlbridge, name).__doc__
        for argument in inspect.signature(getattr(dlbridge, name)).parameters:
            assert f"`{argument}" in text, (name, argument)
        assert ">>>" in text
        assert "Raises `" in text


def test_dir_has_the_public_names_alone():
    assert dir(dlbridge) == sorted(dlbridge.__all__)
    assert "from_dlpack" in dir(dlbridge)


def test_an_array_is_an_instance_of_the_protocol():
    assert isinstance(np.ones(1), dlbridge.SupportsDLPack)
    assert isinstance(dlbridge.zeros(1), dlbridge.SupportsDLPack)
    assert not isinstance([1.0], dlbridge.SupportsDLPack)


def test_a_list_of_arrays_is_not_sealed_without_names():
    if sys.platform != "linux":
        pytest.skip("sealed memory is for Linux")
    for arrays in ([np.ones(1)], (np.ones(1), np.ones(2))):
        with pytest.raises(TypeError, match=r"a dict of arrays, found .*; pass {\"name\": x"):
            dlbridge.seal(arrays)


def test_everything_public_is_documented():
    for name in dlbridge.__all__:
        thing = getattr(dlbridge, name)
        if callable(thing):
            assert (thing.__doc__ or "").strip(), name


@pytest.mark.parametrize(
    "kind", [dlbridge.Tensor, dlbridge.SealedTensors, dlbridge.UnsealedTensors]
)
def test_every_attribute_of_a_class_is_documented(kind):
    for name, thing in vars(kind).items():
        if not name.startswith("_"):
            assert (thing.__doc__ or "").strip(), name


def test_all_public_names_exist_once():
    assert all(hasattr(dlbridge, name) for name in dlbridge.__all__)
    assert len(dlbridge.__all__) == len(set(dlbridge.__all__))


DOCTOR = Path(__file__).parents[2] / "extras/doctor"


def test_the_package_tells_its_programs():
    command = [sys.executable, "-m", "dlbridge"]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 2
    assert "doctor" in ran.stderr
    ran = subprocess.run([*command, "--help"], capture_output=True, text=True)
    assert ran.returncode == 0
    assert "demo" in ran.stdout


def test_the_doctor_is_run_where_it_is_installed(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(DOCTOR))
    assert programs.main(["doctor", "--version"]) == 0


def test_without_the_doctor_one_line_says_how_to_get_it(monkeypatch, capsys):
    monkeypatch.setattr(programs.importlib.util, "find_spec", lambda _name: None)
    assert programs.main(["doctor"]) == 2
    assert capsys.readouterr().err.endswith("pip install dlpack-doctor\n")


def test_the_demo_passes_on_real_frameworks(capsys):
    assert demo.main([]) == 0
    out = capsys.readouterr().out
    assert "numpy.ndarray" in out
    assert "nothing was copied" in out


LIES = {
    "an address": ({"pointer": lambda array: 1}, "expected the array's memory and values in Rust"),
    "a value": (
        {"make": lambda values: np.array([0, *values[:-1]], "float32")},
        "expected the array's memory and values in Rust",
    ),
    "a copy comes back": (
        {"back": lambda tensor: np.array(np.from_dlpack(tensor))},
        "expected the same memory and values in the exported array",
    ),
    "a write unseen": ({"values": lambda array: demo.VALUES}, "expected the write to show"),
    "read-only memory that can be written": ({"freeze": lambda array: array}, "read-only"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_framework_that_does_otherwise_makes_the_demo_fail(lie, capsys):
    fields, reason = LIES[lie]
    assert demo.report([demo.check(dataclasses.replace(demo.numpy(), **fields))]) == 1
    assert reason in capsys.readouterr().out


def test_an_import_loads_no_module_that_the_first_call_does_not_need():
    """`dataclasses` and `typing` were 28 of 37 ms."""
    code = "import sys; old = {*sys.modules}; import dlbridge; print(*sorted({*sys.modules} - old))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["dlbridge", "dlbridge._native"]
