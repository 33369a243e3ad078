"""The example extension, `examples/python-extension`: results of the caller's kind, and a class."""

from __future__ import annotations

import contextlib
import gc
import sys
import weakref

import numpy as np
import pytest

import dlbridge
import hostile
from frameworks.cases import DTYPES, LAYOUTS, VERSIONED, WRITABLE, Case, Producer, aligned
from frameworks.kinds import FRAMEWORKS, KINDS, Watched, pointer, watched
from support import failures_in_threads

example = pytest.importorskip("dlbridge_example", reason="the example extension is not installed")

EVERY = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


class TestImage:
    """A user's own class, given to every framework."""

    @EVERY
    def test_every_framework_takes_it_over_the_same_memory(self, kind):
        if kind.ndim == 1:
            pytest.skip("an image has three axes")
        module, image = kind.load(), example.Image(2, 3)
        np.from_dlpack(image)[1, 2] = [1, 2, 3]
        array = kind.unwrap(kind.take(module, image))
        assert array.shape == (2, 3, 3)
        assert array[1, 2].tolist() == [1, 2, 3]
        assert kind.copies or pointer(array) == image.data_ptr

    @EVERY
    def test_the_array_keeps_the_memory_and_returns_it(self, kind):
        if kind.ndim == 1 or kind.copies:
            pytest.skip("it does not share an image's memory")
        module, pixels = kind.load(), aligned(bytes(18)).reshape(2, 3, 3).view(Watched)
        alive = weakref.ref(pixels)
        array = kind.take(module, example.Image.over_pixels(pixels))
        del pixels
        gc.collect()
        assert alive() is not None
        del array
        gc.collect()
        assert alive() is None

    def test_rust_sees_what_a_framework_writes(self):
        image = example.Image(2, 2)
        assert image.brightness() == 0
        np.from_dlpack(image)[...] = 255
        assert image.brightness() == 255
        assert image.inverted().brightness() == 0

    def test_it_goes_through_the_exchange_api(self):
        image = example.Image(2, 3)
        description = dlbridge.inspect(image)
        assert (description.protocol, description.data_ptr) == ("C exchange API", image.data_ptr)
        assert image.__dlpack_c_exchange_api__ is example.Image.__dlpack_c_exchange_api__

    def test_it_is_an_argument_of_a_function_of_tvm_ffi(self):
        tvm_ffi = pytest.importorskip("tvm_ffi", reason="tvm_ffi is not installed")
        image = example.Image(2, 3)
        result = tvm_ffi.get_global_func("testing.echo")(image)
        # A table's results are tensors, whatever class published it.
        assert type(result).__name__ == "Tensor"
        assert np.from_dlpack(result).ctypes.data == image.data_ptr

    def test_a_copy_is_a_copy(self):
        image = example.Image(2, 3)
        assert pointer(np.from_dlpack(image, copy=True)) != image.data_ptr
        assert pointer(np.from_dlpack(image, copy=False)) == image.data_ptr

    def test_each_request_returns_a_capsule(self):
        image = example.Image(2, 3)
        for keywords in (
            {},
            {"stream": None},
            {"stream": -1},
            {"max_version": (1, 0)},
            {"max_version": None, "dl_device": None, "copy": None, "stream": None},
            {"dl_device": (1, 0), "copy": False},
        ):
            assert dlbridge.from_dlpack(image.__dlpack__(**keywords)).data_ptr == image.data_ptr
        for refused in ({"stream": 2}, {"dl_device": (2, 0)}):
            with pytest.raises(BufferError):
                image.__dlpack__(**refused)
        with pytest.raises(TypeError):
            image.__dlpack__(-1)

    def test_read_only_pixels_stay_read_only(self):
        pixels = np.zeros((2, 3, 3), dtype="uint8")
        pixels.flags.writeable = False
        image = example.Image.over_pixels(pixels)
        assert not np.from_dlpack(image).flags.writeable
        with pytest.raises(BufferError, match="read-only"):
            image.__dlpack__()

    def test_an_array_that_is_no_picture_is_refused(self):
        with pytest.raises(TypeError, match=r"expected uint8\[\?, \?, 3\].*found float64"):
            example.Image.over_pixels(np.zeros((2, 3, 3)))
        with pytest.raises(TypeError, match="contiguous"):
            example.Image.over_pixels(np.zeros((3, 2, 3), dtype="uint8")[::2])
        with pytest.raises(TypeError, match=r"expected uint8\[\?, \?, 3\].*found uint8\[2, 3, 4\]"):
            example.Image.over_pixels(np.zeros((2, 3, 4), dtype="uint8"))
        with pytest.raises(BufferError, match="extent"):
            example.Image(-1, 3)

    def test_many_threads_export_one_object(self):
        image = example.Image(4, 4)
        wrong = []

        def work():
            for _ in range(2000):
                if pointer(np.from_dlpack(image)) != image.data_ptr:
                    wrong.append(image)

        assert failures_in_threads(8, work) == []
        assert wrong == []
        assert sys.getrefcount(image) == 2


class TestLike:
    """Results of the kind that the caller has."""

    @EVERY
    def test_memory_of_another_framework_becomes_the_callers_kind(self, kind):
        if kind.ndim == 1:
            source, alive = watched(range(16))
        else:
            source, alive = watched(np.arange(16).reshape(4, 4))
        address, numbers = pointer(source), source.tolist()
        like = kind.array(np.zeros(1))
        result = example.convert(like, source)
        assert type(result) is type(like)
        del source
        assert kind.unwrap(result).tolist() == numbers
        # JAX copies what does not lie on 64 bytes.
        may_copy = kind.copies or (kind.module == "jax" and address % 64)
        assert may_copy or pointer(kind.unwrap(result)) == address
        del result
        gc.collect()
        assert alive() is None

    @EVERY
    def test_a_result_in_memory_of_rust(self, kind):
        x = kind.array([1, 2, 3])
        scaled = example.scale(x, 2)
        assert type(scaled) is type(x)
        assert kind.unwrap(scaled).tolist() == [2, 4, 6]
        assert kind.unwrap(x).tolist() == [1, 2, 3]

    @EVERY
    def test_a_result_in_memory_of_the_framework(self, kind):
        if kind.ndim == 1:
            pytest.skip("a matrix has two axes")
        sums = example.row_sums(kind.array([[1, 2, 3], [4, 5, 6]]))
        assert type(sums) is type(kind.array([0]))
        assert kind.unwrap(sums).tolist() == [6, 15]
        assert kind.unwrap(example.row_sums(kind.array(np.zeros((0, 3))))).tolist() == []

    @EVERY
    def test_round_trips_end_where_they_began(self, kind):
        if kind.copies:
            pytest.skip("it copies")
        source = kind.array(np.arange(4))
        numbers = np.arange(4, dtype="float32")
        there = example.convert(numbers, source)
        try:
            back = example.convert(source, there)
        except BufferError as refusal:
            # Older releases of JAX export by the legacy ABI, which leaves the memory read-only, and
            # import by it, which cannot mark that.
            assert not there.flags.writeable
            assert "expected 1.0 or newer, which marks memory read-only" in str(refusal)
            return
        assert type(back) is type(source)
        assert pointer(kind.unwrap(back)) == pointer(kind.unwrap(source))

    @EVERY
    def test_read_only_memory_never_becomes_writable(self, kind):
        source, alive = watched([1, 2, 3])
        source.flags.writeable = False
        like = kind.array([0])
        # An old JAX asks for the old ABI, which cannot say read-only.
        old = kind.module == "jax" and not FRAMEWORKS["jax"].gives_versioned
        if kind.forgets or old:
            with pytest.raises(BufferError, match=r"read-only.*copy"):
                example.convert(like, source)
        else:
            result = example.convert(like, source)
            assert type(result) is type(like)
            assert kind.immutable or not kind.unwrap(result).flags.writeable
            del result
        del source
        gc.collect()
        assert alive() is None

    # The names are the same in each process: pytest-xdist compares them.
    @pytest.mark.parametrize(
        "like",
        [b"bytes", bytearray(1), memoryview(b"x"), [1.0], 3, None, {}, type],
        ids=lambda like: type(like).__name__,
    )
    def test_a_caller_without_from_dlpack_gets_a_numpy_array(self, like):
        source, alive = watched([1, 2])
        result = example.convert(like, source)
        assert (type(result), result.ctypes.data) == (np.ndarray, source.ctypes.data)
        del source, result
        assert alive() is None

    def test_a_module_is_no_array_but_its_from_dlpack_is_found(self):
        assert type(example.convert(np, np.ones(2))) is np.ndarray

    def test_a_subclass_of_a_known_kind_is_of_that_kind(self):
        torch = pytest.importorskip("torch", reason="torch is not installed")
        like = torch.nn.Parameter(torch.zeros(1))
        assert type(example.scale(like.detach(), 2)) is torch.Tensor
        assert type(example.convert(like, np.ones(2))) is torch.Tensor
        view, _ = watched([1, 2])
        assert type(example.convert(view, torch.ones(2))) is np.ndarray

    def test_a_namespace_of_ones_own_is_asked_each_time(self):
        class Wrapped:
            def __init__(self, name):
                self.from_dlpack = lambda x: (name, x.shape)

            def __array_namespace__(self):
                return self

        for name in ("one", "other"):
            assert example.convert(Wrapped(name), np.ones(3)) == (name, (3,))

    def test_a_type_derived_from_a_known_one_may_have_a_namespace_of_its_own(self):
        class Derived(np.ndarray):
            def __array_namespace__(self):
                return self

            def from_dlpack(self, x):
                return (int(self[0]), x.shape)

        read_only = np.ones(3)
        read_only.flags.writeable = False
        for number in (1, 2):
            like = np.array([number]).view(Derived)
            assert example.convert(like, np.ones(3)) == (number, (3,))
            with pytest.raises(BufferError, match="read-only"):
                example.convert(like, read_only)

    def test_a_refusal_of_the_framework_is_its_own_exception_and_released_once(self):
        torch = pytest.importorskip("torch", reason="torch is not installed")
        case = Case(DTYPES["float4_e2m1fn"], LAYOUTS["contiguous"], VERSIONED, WRITABLE)
        producer = Producer(case, aligned(bytes(64)))
        with pytest.raises((RuntimeError, BufferError), match=r"float4|lanes|17"):
            example.convert(torch.zeros(1), producer)
        assert producer.deletions == 1

    @pytest.mark.parametrize("module", ["torch", "paddle"])
    def test_negative_steps_are_refused_where_there_are_none(self, module):
        source, alive = watched([1, 2, 3])
        like = KINDS[module].array([0])
        with pytest.raises(BufferError, match=f"strides: expected 0 or more, as {module} needs"):
            example.convert(like, source[::-1])
        del source
        assert alive() is None

    @EVERY
    def test_memory_of_a_missing_device_is_no_crash(self, kind):
        made = hostile.Managed(device=(2, 99))
        like = kind.array([0])
        with contextlib.suppress(Exception):
            example.convert(like, hostile.producer_of(made))
        gc.collect()
        assert made.releases == 1
        assert hostile.strays == []

    def test_paddle_does_not_get_dtypes_that_it_reads_as_others(self):
        like = KINDS["paddle"].array([0])
        with pytest.raises(BufferError, match="bfloat16"):
            example.convert(like, np.ones(2, dtype="uint16"))

    def test_a_tensor_of_another_extension_is_a_kind_of_its_own(self):
        like = dlbridge.zeros(1)
        result = example.convert(like, np.ones(3))
        assert isinstance(result, dlbridge.Tensor)
        own = example.convert(example.Image(1, 1), np.ones(3))
        assert type(own).__name__ == "Tensor"
        assert not isinstance(own, dlbridge.Tensor)

    def test_nothing_is_left_behind(self):
        torch = pytest.importorskip("torch", reason="torch is not installed")
        kinds, source = (np.ones(1), torch.ones(1)), np.ones((16, 2), dtype="float32")
        reverse, read_only = source[::-1], source[:]
        read_only.flags.writeable = False

        def work(times):
            for _ in range(times):
                for kind in kinds:
                    example.convert(kind, source)
                    example.row_sums(example.convert(kind, source))
                for refused in (reverse, read_only):
                    with pytest.raises(BufferError):
                        example.convert(kinds[1], refused)

        work(500)
        before, references = hostile.resident_bytes(), sys.getrefcount(source)
        work(10_000)
        assert hostile.resident_bytes() - before < 4 << 20
        assert sys.getrefcount(source) == references


class TestAllocator:
    """Memory for results, from the caller's framework."""

    @EVERY
    def test_memory_beside_an_array_is_like_it(self, kind):
        x = kind.array(np.arange(1, 4))
        empty = example.empty_like(x)
        assert type(empty) is type(x)
        assert kind.unwrap(empty).tolist() == [0, 0, 0]
        assert kind.unwrap(x).tolist() == [1, 2, 3]

    @EVERY
    def test_rust_fills_memory_beside_an_array(self, kind):
        x = kind.array(np.ones(3, dtype="float32"))
        full = example.full_like(x, 2.5)
        assert type(full) is type(x)
        assert kind.unwrap(full).tolist() == [2.5, 2.5, 2.5]
        assert kind.unwrap(x).tolist() == [1, 1, 1]

    def test_a_replaced_empty_gives_no_memory_that_others_have(self, monkeypatch):
        """Memory of an allocator is written as exclusive: `numpy.empty` is not asked for it."""
        common = np.ones(3)
        monkeypatch.setattr(np, "empty", lambda *_arguments, **_keywords: common)
        made = [example.empty_like(np.ones(3)) for _ in range(2)]
        assert not np.shares_memory(*made)
        assert [array.tolist() for array in made] == [[0.0] * 3] * 2
        assert common.tolist() == [1.0] * 3

    def test_a_table_without_an_allocator_is_no_obstacle(self):
        tvm_ffi = pytest.importorskip("tvm_ffi", reason="tvm_ffi is not installed")
        source = np.ones(3, dtype="float32")
        wrapper = tvm_ffi.core.DLTensorTestWrapper(tvm_ffi.from_dlpack(source))
        empty = example.empty_like(wrapper)
        assert isinstance(empty, tvm_ffi.Tensor)
        assert np.from_dlpack(empty).tolist() == [0, 0, 0]

    def test_an_allocator_that_fails_says_what_it_could_not_make(self):
        torch = pytest.importorskip("torch", reason="torch is not installed")
        huge = torch.ones(1).expand(1 << 50)
        with pytest.raises(MemoryError, match="cannot allocate 4503599627370496 bytes"):
            example.empty_like(huge)

    def test_an_argument_of_another_type_is_refused_before_anything_is_made(self):
        for wrong in (np.ones(3, "float32"), np.ones((2, 2)), np.ones((2, 2), "int32")):
            with pytest.raises(TypeError, match=r"expected float32\[\?, \?\]"):
                example.row_sums(wrong)

    def test_results_are_separate(self):
        x = np.ones((3, 3), dtype="float32")
        first, second = example.row_sums(x), example.row_sums(x)
        first[...] = 7
        assert second.tolist() == [3, 3, 3]
        assert example.norm(np.array([3, 4], dtype="float32")) == 5

    @pytest.mark.parametrize("module", ["numpy", "torch"])
    def test_an_array_is_written_in_place(self, module):
        module = pytest.importorskip(module, reason=f"{module} is not installed")
        x = module.from_dlpack(np.array([3, 1, 4, 1], dtype="float32"))
        example.normalise(x[::2])
        assert x.tolist() == np.array([0.6, 1, 0.8, 1], "float32").tolist()


class TestTensor:
    """The class of a returned `PyTensor`, which is smaller than that of the package."""

    def test_it_describes_itself_and_crosses(self):
        planes = example.to_planes(example.Image(2, 3))
        assert (planes.shape, planes.dtype, planes.device) == ((3, 2, 3), "float32", "cpu")
        assert repr(planes) == "dlbridge.Tensor(shape=(3, 2, 3), dtype=float32, device=cpu)"
        for array in (planes.numpy(), np.asarray(planes), np.from_dlpack(planes)):
            assert array.ctypes.data == planes.data_ptr
        assert memoryview(planes).shape == (3, 2, 3)
        assert planes.copy().data_ptr != planes.data_ptr

    def test_the_package_has_the_other_methods(self):
        planes = example.to_planes(example.Image(2, 3))
        for name in ("__getitem__", "__iter__", "__index__", "__arrow_c_array__", "tolist", "item"):
            assert not hasattr(planes, name)
        for number in (bool, int, float, complex):
            with pytest.raises(TypeError, match=r"found the tensor of an extension; use x\.numpy"):
                number(planes)
        whole = dlbridge.from_dlpack(planes)
        assert whole.data_ptr == planes.data_ptr
        assert whole[0].tolist() == [[0] * 3] * 2


NAMES = pytest.mark.parametrize("name", ["numpy", "torch", "jax.numpy"])


def module(name):
    return pytest.importorskip(name, reason=f"{name} is not installed")


def picture() -> np.ndarray:
    return np.arange(24, dtype="uint8").reshape(2, 4, 3) * 10


@NAMES
def test_a_picture_becomes_a_normalised_array_of_its_type(name):
    source = picture()
    image = module(name).asarray(source)
    planes = example.to_planes(image)
    assert type(planes) is type(image)
    np.testing.assert_array_equal(
        np.asarray(planes), source.transpose(2, 0, 1).astype("float32") / np.float32(255)
    )


def test_a_picture_of_other_extents_is_refused():
    for wrong in (np.zeros((3, 2, 4), "uint8"), np.zeros((3,), "uint8")):
        for function in (example.to_planes, lambda image: example.brighten(image, 1)):
            with pytest.raises(TypeError, match=r"expected uint8\[\?, \?, 3\] on the host"):
                function(wrong)


@pytest.mark.parametrize("name", ["numpy", "torch"])
def test_a_picture_is_changed_in_place_if_it_may_be_written(name):
    source = picture()
    image = module(name).asarray(source)
    example.brighten(image[:, ::-1] if name == "numpy" else image, 100)
    expected = np.minimum(picture().astype(int) + 100, 255)
    np.testing.assert_array_equal(np.asarray(image), expected)
    fixed = picture()
    fixed.flags.writeable = False
    with pytest.raises(TypeError, match=r"writable, found .*read-only"):
        example.brighten(fixed, 1)


def test_rows_of_an_image_are_an_image_over_the_same_memory():
    image = example.Image(4, 2)
    rows = image.rows(1, 3)
    assert (rows.height, rows.width, rows.data_ptr) == (2, 2, image.data_ptr + 6)
    np.from_dlpack(rows)[...] = 255
    assert np.from_dlpack(image)[:, 0, 0].tolist() == [0, 255, 255, 0]
    with pytest.raises(ValueError, match=r"expected a range within 0\.\.4 on axis 0"):
        image.rows(1, 5)

    pixels = np.zeros((4, 2, 3), "uint8").view(type("Watched", (np.ndarray,), {}))
    alive = weakref.ref(pixels)
    part = example.Image.over_pixels(pixels).rows(0, 1)
    del pixels
    gc.collect()
    assert alive() is not None
    del part
    gc.collect()
    assert alive() is None


@NAMES
def test_rows_are_computed_with_on_all_cores(name):
    source = np.random.default_rng(3).normal(size=(300, 50)).astype("float32")
    array = module(name).asarray(source)
    result = example.softmax(array[::2, 1::3])
    assert type(result) is type(array)
    powers = np.exp(source[::2, 1::3].astype("float64"))
    np.testing.assert_allclose(np.asarray(result), powers / powers.sum(1, keepdims=True), rtol=1e-5)
