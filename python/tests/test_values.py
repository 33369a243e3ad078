"""What a `dlbridge.Tensor` says of its values: never a wrong one, silently."""

from __future__ import annotations

import gc
import operator
import tracemalloc

import numpy as np
import pytest

import dlbridge
from support import arange


class TestComparisons:
    @pytest.mark.parametrize("sign", ["==", "!=", "<", "<=", ">", ">="])
    def test_it_names_the_call_that_compares(self, sign):
        """`==` was `False` for tensors of the same values."""
        compare = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}[sign]
        tensor = arange(3.0)
        for other in (arange(3.0), tensor, 2.0, "text", None):
            with pytest.raises(TypeError, match=rf"use np\.asarray\(x\) {sign} y"):
                getattr(operator, compare)(tensor, other)
        assert getattr(operator, compare)(np.asarray(tensor), np.arange(3.0)).shape == (3,)

    def test_a_number_is_not_found_missing(self):
        tensor = arange(3.0)
        reflected = lambda: 2.0 == tensor[2]  # noqa: E731, SIM300
        for use in (lambda: 2.0 in tensor, lambda: tensor[2] == 2.0, reflected):
            with pytest.raises(TypeError, match=r"np\.asarray\(x\) == y"):
                use()
        assert 2.0 in np.asarray(tensor)

    def test_an_array_beside_it_compares(self):
        assert (np.arange(3.0) == arange(3.0)).all()

    def test_the_same_object_is_found_and_counted_by_its_identity(self):
        one, other = arange(3), arange(3)
        assert one in [one, other]
        assert [one, [other]] == [one, [other]]
        assert {one: 1, other: 2}[other] == 2
        assert len({one, other, one}) == 2
        assert hash(one) == object.__hash__(one)


class TestNumPyHasTheRest:
    @pytest.mark.parametrize(
        "use",
        [
            lambda x: x + 1,
            lambda x: x - x,
            lambda x: x * 2.0,
            lambda x: x / 1j,
            lambda x: x @ x,
            lambda x: x + [1, 2, 3],  # noqa: RUF005
            lambda x: operator.setitem(x, 0, 1),
        ],
    )
    def test_the_error_names_it(self, use):
        with pytest.raises(TypeError, match=r"found a dlbridge\.Tensor; use x\.numpy\(\)"):
            use(arange(3.0))

    def test_an_array_beside_it_computes(self):
        assert (arange(3.0) + np.ones(3)).tolist() == [1, 2, 3]
        assert (np.ones(3) + arange(3.0)).tolist() == [1, 2, 3]
        torch = pytest.importorskip("torch", reason="torch is not installed")
        with pytest.raises(TypeError):
            torch.ones(3) + arange(3.0)

    def test_a_scalar_is_formatted_as_its_number(self):
        value = dlbridge.from_dlpack(np.array(2.5, "float32"))
        assert (f"{value:.2f}", f"{value:8.1e}", f"{value}") == ("2.50", " 2.5e+00", str(value))
        assert f"{dlbridge.from_dlpack(np.array(7)):03d}" == "007"
        with pytest.raises(ValueError, match="Unknown format code"):
            f"{value:d}"
        with pytest.raises(TypeError, match=r"0-d tensor for \".2f\", found shape \[3\]; use"):
            f"{arange(3):.2f}"

    def test_it_is_iterated_backwards(self):
        assert [int(part) for part in reversed(arange(3))] == [2, 1, 0]
        assert list(reversed(dlbridge.zeros((0, 2)))) == []
        with pytest.raises(TypeError, match="0-d"):
            reversed(dlbridge.zeros(()))


class TestJax:
    def test_an_array_does_not_see_a_write_after_it(self):
        """Writes after `jnp.asarray(t)` changed JAX's constant arrays, 20 times of 20."""
        jnp = pytest.importorskip("jax.numpy", reason="jax is not installed")
        for _ in range(20):
            tensor = dlbridge.zeros(1000, dtype="float32")
            array = jnp.asarray(tensor)
            tensor.numpy()[:] = 1
            assert array.sum() == 0

    def test_constant_memory_is_shared(self):
        jnp = pytest.importorskip("jax.numpy", reason="jax is not installed")
        view = dlbridge.zeros(16, dtype="float32").numpy()
        view.setflags(write=False)
        constant = dlbridge.from_dlpack(view)
        array = jnp.asarray(constant)
        assert array.tolist() == constant.tolist()
        # JAX before 0.12 asks for a legacy capsule, which has no flag for constant memory.
        is_shared = array.unsafe_buffer_pointer() == constant.data_ptr
        assert is_shared == (pytest.importorskip("jax").__version_info__ >= (0, 12))


class TestLoops:
    @pytest.mark.parametrize(
        "step",
        [
            np.asarray,
            lambda tensor: np.asarray(tensor)[:],
            lambda tensor: np.asarray(memoryview(tensor)),
            memoryview,
            lambda tensor: memoryview(tensor)[::-1],
            lambda tensor: tensor.numpy(),
        ],
    )
    def test_crossing_to_numpy_and_back_keeps_no_chain(self, step):
        """Each crossing by a buffer kept 500 to 950 bytes."""

        def cross(times):
            tensor = arange(8.0)
            for _ in range(times):
                tensor = dlbridge.from_dlpack(step(tensor))
            return tensor

        cross(10)
        gc.collect()
        tracemalloc.start()
        try:
            tensor = cross(2000)
            used, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert sorted(tensor.tolist()) == list(range(8))
        assert used < 50_000

    def test_views_of_views_keep_no_chain(self):
        tensor = arange(8.0)
        first = tensor.data_ptr
        for _ in range(2000):
            tensor = tensor.view("uint8").view("float64")
        assert (tensor.data_ptr, tensor.tolist()) == (first, list(range(8)))


FLOATS = ["e3m4", "e4m3", "e4m3b11fnuz", "e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0fnu"]


class TestNarrowTypes:
    @pytest.mark.parametrize("name", FLOATS)
    def test_floats_of_8_bits_have_numbers(self, name):
        """They were a `TypeError`, where bfloat16 has numbers."""
        ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
        name = f"float8_{name}"
        every = np.arange(256, dtype="uint8")
        wanted = every.view(getattr(ml_dtypes, name)).astype("float64")
        tensor = dlbridge.from_bytes(every.tobytes(), dtype=name)
        np.testing.assert_array_equal(tensor.tolist(), wanted)
        numbers = ~np.isnan(wanted)
        signs = np.signbit(tensor.tolist())[numbers]
        np.testing.assert_array_equal(signs, np.signbit(wanted)[numbers])
        assert tensor.item(1) == wanted[1]
        assert float(tensor[0]) == wanted[0]
        first = repr(tensor[1:3]).partition("([")[2].partition(",")[0]
        assert np.float32(first) == np.float32(wanted[1])

    @pytest.mark.parametrize("name", ["complex32", "bcomplex32"])
    def test_narrow_complex_numbers_of_ml_dtypes_go_both_ways(self, name):
        ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
        kind = getattr(ml_dtypes, name, None)
        if kind is None:
            pytest.skip("this ml_dtypes has no such type")
        array = np.array([[1 + 2j, 3], [4j, -5]]).astype(kind)
        tensor = dlbridge.from_dlpack(array)
        assert (tensor.dtype, tensor.shape) == (name, (2, 2))
        assert tensor.data_ptr == array.ctypes.data
        back = tensor.T.numpy()
        assert back.dtype == kind
        assert back.astype("complex64").tolist() == array.T.astype("complex64").tolist()
        made = dlbridge.zeros(3, dtype=array.dtype)
        assert (made.dtype, made.numpy().dtype) == (name, array.dtype)

    @pytest.mark.parametrize("dtype", [">f2", ">i2", ">u4", ">f4", ">c8"])
    def test_bytes_of_the_other_order_are_refused(self, dtype):
        """Those of two bytes were read as integers of this machine's order."""
        with pytest.raises(BufferError, match="expected native byte order"):
            dlbridge.from_dlpack(np.array([1, 2], dtype))

    def test_floats_of_4_bits_of_a_file_reach_torch_and_come_back(self, tmp_path):
        torch = pytest.importorskip("torch", reason="torch is not installed")
        packed = bytes(range(6))
        tensor = dlbridge.from_bytes(packed, dtype="float4_e2m1fn", shape=(2, 6))
        path = tmp_path / "x.safetensors"
        dlbridge.save_safetensors(path, {"x": tensor})
        found = dlbridge.open_safetensors(path)["x"]
        assert (found.dtype, found.shape) == ("float4_e2m1fn", (2, 6))
        pairs = found.view(torch.float4_e2m1fn_x2)
        assert (pairs.dtype, pairs.shape) == ("float4_e2m1fnx2", (2, 3))
        array = torch.from_dlpack(pairs.copy())
        assert (array.dtype, tuple(array.shape)) == (torch.float4_e2m1fn_x2, (2, 3))
        assert array.view(torch.uint8).flatten().tolist() == list(packed)
        back = dlbridge.from_dlpack(array).view("float4_e2m1fn")
        assert (back.shape, back.tobytes()) == ((2, 6), packed)
        dlbridge.save_safetensors(path, {"x": back})
        assert dlbridge.open_safetensors(path)["x"].tobytes() == packed

    def test_dtypes_and_devices_say_what_they_are(self):
        class Kind:
            def __dlpack_data_type__(self):
                return (2, 16, 1)

        class Place:
            def __dlpack_device__(self):
                return (1, 0)

        assert dlbridge.zeros(2, dtype=Kind()).dtype == "float16"
        tensor = dlbridge.zeros(2)
        assert tensor.to_device(Place()) is tensor
        assert dlbridge.from_dlpack(tensor, device=np.ones(1)).device == "cpu"


class TestView:
    @pytest.mark.parametrize(
        ("old", "new"),
        [
            ("float32", "uint32"),
            ("float32", "uint8"),
            ("uint8", "float64"),
            ("int16", "complex128"),
            ("float64", "bool"),
        ],
    )
    def test_it_is_that_of_numpy(self, old, new):
        array = np.arange(2 * 3 * 16).reshape(2, 3, 16).astype(old)
        for part in (array, array[:, 1:], array[::-1], array[0], array[:0]):
            tensor, wanted = dlbridge.from_dlpack(part).view(new), part.view(new)
            assert (tensor.dtype, tensor.shape) == (new, wanted.shape)
            assert tensor.tobytes() == wanted.tobytes()
            assert tensor.data_ptr == wanted.ctypes.data

    def test_the_same_memory_is_written(self):
        tensor = dlbridge.zeros(2, dtype="float32")
        tensor.view("uint32").numpy()[0] = 0x3F800000
        assert tensor.tolist() == [1, 0]
        assert dlbridge.from_dlpack(bytes(8)).view("float32").readonly

    def test_bytes_that_are_no_elements_are_refused(self):
        for tensor, dtype, found in [
            (arange(3, dtype="uint8"), "int16", "shape: axis 0: expected whole elements of int16"),
            (arange(8, dtype="uint8")[::2], "int16", "a last axis without gaps"),
            (dlbridge.zeros((), dtype="int8"), "int16", "a last axis without gaps"),
            (
                dlbridge.from_dlpack(np.zeros((2, 9), "uint8")[:, :8]),
                "int16",
                "strides: axis 0: expected whole elements",
            ),
        ]:
            with pytest.raises(ValueError, match=found):
                tensor.view(dtype)
        with pytest.raises(TypeError, match="view: expected one dtype, found 0"):
            arange(3).view()
        with pytest.raises(ValueError, match="expected a known name"):
            arange(3).view("float99")
        with pytest.raises((ValueError, BufferError)):
            arange(3).view("code200:0")
        assert dlbridge.zeros((), dtype="int16").view("float16").item() == 0


@pytest.mark.parametrize("save", [np.savez, np.save])
def test_a_file_of_another_format_is_no_safetensors_file(save, tmp_path):
    """The message spoke of a header of 10 to the 17th bytes."""
    path = tmp_path / "a"
    with path.open("wb") as file:
        save(file, np.ones(3))
    kind = "a zip archive, as .npz and .pt are" if save is np.savez else "a .npy file"
    with pytest.raises(ValueError, match=f"expected a safetensors file, found {kind}"):
        dlbridge.open_safetensors(path)
