"""Sealed tensors within one process: making, reading, opening, and attempts to change them."""

from __future__ import annotations

import copy
import fcntl
import os
import pickle
import re
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import dlbridge
from frameworks.kinds import KINDS, pointer
from support import arange
from test_matrix import REFUSED

if sys.platform != "linux":
    pytest.skip("sealed memory is for Linux", allow_module_level=True)

READ_ONLY = "assignment destination is read-only"


def contents(sealed):
    """The bytes of the file."""
    return os.pread(sealed.fileno(), sealed.nbytes, 0)


def mapping_of(address):
    """What the kernel says of the mapping that an address is in."""
    found = None
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if head := re.match(r"(\w+)-(\w+) (\S+)", line):
            start, end, rights = head.groups()
            inside = int(start, 16) <= address < int(end, 16)
            found = {"rights": rights} if inside else found
            current = inside
        elif current:
            name, _, value = line.partition(":")
            found[name] = value.strip()
    return found


@pytest.fixture
def sealed():
    return dlbridge.seal({"x": np.arange(5000, dtype="float32"), "y": np.ones((2, 3), "int8")})


class TestMaking:
    def test_one_array_is_named_tensor(self):
        sealed = dlbridge.seal(np.arange(6.0).reshape(2, 3).T)
        assert sealed.keys() == ["tensor"]
        np.testing.assert_array_equal(sealed["tensor"].numpy(), np.arange(6.0).reshape(2, 3).T)

    def test_a_dict_gives_names_in_its_order(self, sealed):
        assert sealed.keys() == list(sealed) == ["x", "y"]
        assert len(sealed) == 2
        assert [tensor.shape for tensor in sealed.tensors().values()] == [(5000,), (2, 3)]
        assert {name: tensor.dtype for name, tensor in dict(sealed).items()} == {
            "x": "float32",
            "y": "int8",
        }

    @pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "int4", "complex128", "bool"])
    def test_every_dtype_keeps_its_bits(self, dtype):
        size = 6 * {"int4": 0.5, "complex128": 16, "bfloat16": 2}.get(dtype, 1)
        data = bytes(range(int(size)))
        sealed = dlbridge.seal(dlbridge.from_bytes(data, dtype=dtype, shape=(2, 3)))
        tensor = sealed["tensor"]
        assert (tensor.dtype, tensor.shape) == (dtype, (2, 3))
        assert pickle.loads(pickle.dumps(tensor, 4)).dtype == dtype
        assert data in contents(sealed)

    def test_metadata_travels_with_the_tensors(self):
        sealed = dlbridge.seal({"x": np.zeros(1)}, metadata={"epoch": "3"})
        assert dlbridge.open_sealed(sealed.fileno()).metadata == {"epoch": "3"}

    def test_its_repr_names_the_tensors(self, sealed):
        expected = 'dlbridge.SealedTensors({"x": float32[5000], "y": int8[2, 3]}, nbytes='
        assert repr(sealed).startswith(expected)

    def test_values_written_in_place_are_the_sealed_ones(self):
        batch = dlbridge.empty_sealed(
            {"images": ((4, 8), "uint8"), "labels": (4, np.int64)}, metadata={"step": "1"}
        )
        np.from_dlpack(batch.tensors()["labels"])[:] = [3, 1, 4, 1]
        address = batch.tensors()["labels"].data_ptr
        assert mapping_of(address)["rights"] == "rw-s"
        sealed = batch.seal()
        assert sealed["labels"].tolist() == [3, 1, 4, 1]
        assert not sealed["images"].numpy().any()
        assert sealed.metadata == {"step": "1"}

    def test_a_shape_makes_one_tensor(self):
        batch = dlbridge.empty_sealed((2, 3), dtype="float32")
        assert batch.tensors()["tensor"].shape == (2, 3)
        assert batch.seal()["tensor"].dtype == "float32"
        assert dlbridge.empty_sealed(3).seal()["tensor"].dtype == "float64"

    def test_an_array_that_is_left_prevents_sealing(self):
        batch = dlbridge.empty_sealed({"x": (3, "int32"), "y": (3, "int32")})
        array = np.from_dlpack(batch.tensors()["x"])
        with pytest.raises(BufferError, match=r"found 1: delete them .* \(del x\)"):
            batch.seal()
        array[:] = 7
        with pytest.raises(BufferError):
            batch.seal()
        del array
        assert batch.seal()["x"].tolist() == [7, 7, 7]
        with pytest.raises(ValueError, match="found them sealed"):
            batch.seal()
        with pytest.raises(ValueError, match="neither taken out nor sealed"):
            batch.tensors()

    def test_a_framework_can_fill_it(self):
        torch = pytest.importorskip("torch", reason="torch is not installed")
        batch = dlbridge.empty_sealed({"x": ((2, 2), "float32")})
        torch.from_dlpack(batch.tensors()["x"]).copy_(torch.tensor([[1.0, 2], [3, 4]]))
        assert batch.seal()["x"].tolist() == [[1, 2], [3, 4]]

    @pytest.mark.parametrize(
        ("make", "error", "message"),
        [
            (lambda: dlbridge.seal({1: np.zeros(1)}), TypeError, "expected a str, found 1"),
            (lambda: dlbridge.empty_sealed({b"x": 3}), TypeError, "expected a str, found b'x'"),
            (lambda: dlbridge.seal({"x": "text"}), TypeError, "expected an array"),
            (lambda: dlbridge.seal(3.5), TypeError, "expected an array"),
            (lambda: dlbridge.empty_sealed({"x": 3}), TypeError, "x: expected a pair of a shape"),
            (lambda: dlbridge.empty_sealed(-1), ValueError, "found -1"),
            (lambda: dlbridge.empty_sealed(1 << 62), ValueError, "byte size"),
            (lambda: dlbridge.empty_sealed(1 << 50), MemoryError, "allocate"),
            (lambda: dlbridge.empty_sealed(3, dtype="floaty"), ValueError, "floaty"),
        ],
    )
    def test_memory_that_cannot_be_sealed_is_an_error(self, make, error, message):
        with pytest.raises(error, match=message):
            make()


class TestReading:
    def test_a_missing_name_is_a_key_error(self, sealed):
        with pytest.raises(KeyError, match="z"):
            sealed["z"]

    def test_numpy_reads_without_a_copy(self, sealed):
        tensor = sealed["x"]
        array = np.from_dlpack(tensor)
        assert (array.ctypes.data, tensor.readonly) == (tensor.data_ptr, True)
        assert array.ctypes.data % 64 == 0
        with pytest.raises(ValueError, match=READ_ONLY):
            array[0] = 1

    def test_jax_reads_a_private_tensor_without_a_copy(self, sealed):
        jax = pytest.importorskip("jax", reason="jax is not installed")
        tensor = sealed.private()["x"]
        assert jax.numpy.from_dlpack(tensor).unsafe_buffer_pointer() == tensor.data_ptr

    def test_reading_adds_no_memory_and_a_write_one_page(self, sealed):
        tensors = [sealed["x"], sealed.private()["x"]]
        for tensor in tensors:
            assert int(np.from_dlpack(tensor).sum()) == 5000 * 4999 // 2
            mapping = mapping_of(tensor.data_ptr)
            assert (mapping["rights"], mapping["Anonymous"]) == ("rw-p", "0 kB")
        np.from_dlpack(tensors[1])[0] = 1
        assert mapping_of(tensors[1].data_ptr)["Anonymous"] == "4 kB"

    @pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
    def test_a_framework_that_ignores_read_only_writes_to_a_copy(self, kind, sealed):
        module, before = kind.load(), contents(sealed)
        if kind.module in REFUSED:
            with pytest.raises(BufferError, match="marks memory read-only"):
                kind.take(module, sealed["x"])
            return
        tensor = sealed["x"]
        array = kind.unwrap(kind.take(module, tensor))
        if not kind.copies:
            assert pointer(array) == tensor.data_ptr
        if kind.forgets:
            array[:] = -1
        else:
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 7
        assert contents(sealed) == before
        assert sealed["x"].tolist()[:3] == dlbridge.open_sealed(sealed)["x"].tolist()[:3]
        assert sealed["x"].tolist()[4999] == 4999

    @pytest.mark.filterwarnings("ignore:The given .* is not writable")
    def test_pytorch_changes_no_sealed_page_by_a_buffer_either(self, sealed):
        torch = pytest.importorskip("torch", reason="torch is not installed")
        before = contents(sealed)
        tensor = sealed["x"]
        for take in (
            lambda: torch.frombuffer(tensor, dtype=torch.float32),
            lambda: torch.from_numpy(np.asarray(tensor)),
            lambda: torch.from_dlpack(tensor[10:]),
            lambda: torch.from_dlpack(tensor.reshape(50, 100).T),
        ):
            take()[:] = -1
        assert contents(sealed) == before
        assert sealed["x"].tolist()[4999] == 4999

    def test_a_private_tensor_is_writable_and_its_own(self, sealed):
        private = sealed.private()
        np.from_dlpack(private["x"])[:] = 9
        assert not private["x"].readonly
        assert sealed["x"].tolist()[:2] == sealed.private()["x"].tolist()[:2] == [0, 1]
        assert private["x"].tolist()[:2] == [9, 9]

    @pytest.mark.slow
    def test_more_tensors_than_a_process_has_mappings_are_read_and_written(self):
        shapes = {str(number): ((), "int64") for number in range(100_000)}
        batch = dlbridge.empty_sealed(shapes)
        for number, tensor in enumerate(batch.tensors().values()):
            memoryview(tensor)[()] = number
        del tensor
        sealed = batch.seal()
        tensors, private = sealed.tensors(), sealed.private()
        assert list(tensors) == list(private) == list(shapes)
        np.from_dlpack(private["7"])[...] = -1
        both = zip(tensors.values(), private.values(), strict=True)
        for number, (tensor, mine) in enumerate(both):
            assert tensor.readonly and not mine.readonly
            assert (tensor.item(), mine.item()) == (number, -1 if number == 7 else number)

    def test_a_write_to_one_of_all_tensors_changes_no_other_one(self, sealed):
        torch = pytest.importorskip("torch", reason="torch is not installed")
        tensors = sealed.tensors()
        torch.from_dlpack(tensors["x"])[:] = -1
        # It begins in the page in which `x` ends.
        assert tensors["y"].tolist() == [[1, 1, 1]] * 2
        assert sealed.tensors()["x"].tolist()[4999] == 4999

    def test_a_tensor_outlives_the_object_and_its_descriptor(self, sealed):
        tensor = sealed["x"]
        del sealed
        assert tensor.tolist()[4999] == 4999


class TestOpening:
    def test_the_descriptor_stays_the_callers(self, sealed):
        number = os.dup(sealed.fileno())
        opened = dlbridge.open_sealed(number)
        assert os.fstat(opened.fileno()).st_ino == os.fstat(number).st_ino
        os.close(number)
        del sealed
        assert opened["y"].tolist() == [[1, 1, 1]] * 2

    def test_another_file_at_the_number_of_the_descriptor_is_not_mapped(self, sealed, tmp_path):
        kept = dlbridge.open_sealed(sealed.fileno())
        with (tmp_path / "short").open("wb") as file:
            os.dup2(file.fileno(), sealed.fileno())
        for read in (lambda: sealed["x"], sealed.tensors, sealed.private):
            with pytest.raises(ValueError, match="found another file: the descriptor was closed"):
                read()
        np.testing.assert_array_equal(kept["x"].numpy(), np.arange(5000))

    def test_a_descriptor_is_not_inherited(self, sealed):
        assert not os.get_inheritable(sealed.fileno())
        assert not os.get_inheritable(dlbridge.open_sealed(sealed).fileno())

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: os.open("/dev/zero", os.O_RDWR), "found a device"),
            (lambda: os.open("/", os.O_RDONLY), "found a directory"),
            (lambda: os.pipe()[0], "found a pipe"),
            (lambda: os.open(__file__, os.O_RDONLY), "found a file on disk"),
            (lambda: os.memfd_create("x"), "without the seals"),
        ],
    )
    def test_a_file_without_seals_is_refused(self, make, message):
        number = make()
        try:
            with pytest.raises(ValueError, match=message):
                dlbridge.open_sealed(number)
        finally:
            os.close(number)

    def test_a_sealed_file_without_tensors_is_refused(self):
        import fcntl

        number = os.memfd_create("x", os.MFD_ALLOW_SEALING)
        os.write(number, b"\xff" * 4096)
        fcntl.fcntl(number, fcntl.F_ADD_SEALS, 0xF)
        with pytest.raises(ValueError, match="header: expected at most"):
            dlbridge.open_sealed(number)
        os.close(number)

    @pytest.mark.parametrize(
        ("number", "error"),
        [
            (-1, ValueError),
            (1 << 20, OSError),
            (1 << 40, OverflowError),
            ("x", TypeError),
            (None, TypeError),
            (1.5, TypeError),
        ],
    )
    def test_what_is_no_descriptor_is_told(self, number, error):
        with pytest.raises(error):
            dlbridge.open_sealed(number)


class TestCopies:
    def test_a_copy_is_the_same_object(self, sealed):
        assert copy.copy(sealed) is sealed
        assert copy.deepcopy({"x": sealed})["x"] is sealed

    @pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
    def test_a_pickle_has_a_handle_of_the_same_memory(self, sealed, protocol):
        data = pickle.dumps(sealed, protocol)
        assert len(data) < 300
        # As often as wanted while the object exists; a pickle of it again is the same one.
        loaded = [pickle.loads(data) for _ in range(3)]
        assert {os.fstat(x.fileno()).st_ino for x in loaded} == {os.fstat(sealed.fileno()).st_ino}
        assert pickle.dumps(sealed, protocol) == data

    def test_a_pickle_of_an_object_that_is_gone_loads_once(self):
        data = pickle.dumps(dlbridge.seal(arange(3)))
        assert pickle.loads(data)["tensor"].tolist() == [0, 1, 2]
        with pytest.raises(OSError, match="revoked, used"):
            pickle.loads(data)


def test_a_large_header_is_parsed_without_the_gil():
    names = ",".join(
        f'"{i}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}' for i in range(20_000)
    )
    header = f"{{{names}}}".encode()
    header += b" " * (-(8 + len(header)) % 64)
    fd = os.memfd_create("header", os.MFD_ALLOW_SEALING)
    os.write(fd, len(header).to_bytes(8, "little") + header)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, 0xF)
    try:
        assert len(dlbridge.open_sealed(fd)) == 20_000
        assert any(lets_another_thread_run(lambda: dlbridge.open_sealed(fd)) for _ in TRIES)
    finally:
        os.close(fd)


# A short call may end before the other thread wakes up, and other processes may stop this one. A
# call that never releases the GIL fails every try.
TRIES = range(100)


def lets_another_thread_run(work):
    return len(beside_another_thread(work)[0]) > 1


def beside_another_thread(work):
    """The start of a call, the times at which another thread ran during it, and its end."""
    times, done = [], False

    def step():
        while not done:
            times.append(time.perf_counter())
            time.sleep(0)

    thread = threading.Thread(target=step)
    interval = sys.getswitchinterval()
    # No thread is interrupted: another one runs only where the GIL is released.
    sys.setswitchinterval(1000)
    try:
        thread.start()
        time.sleep(0.01)
        times.clear()
        start = time.perf_counter()
        work()
        end = time.perf_counter()
    finally:
        done = True
        sys.setswitchinterval(interval)
        thread.join()
    return [start, *(moment for moment in times if start < moment < end)], end


def test_sealing_holds_the_gil_for_a_small_part_of_its_time():
    x = np.ones(48 << 20, "uint8")
    assert any(longest_without_the_gil(lambda: dlbridge.seal({"x": x})) < 0.4 for _ in TRIES)
    maker, reader = dlbridge.channel()
    assert any(longest_without_the_gil(lambda: send(maker, reader, x)) < 0.4 for _ in TRIES)


def test_what_was_filled_is_sealed_without_the_gil():
    assert any(lets_another_thread_run(filled().seal) for _ in TRIES)
    assert filled().seal()["x"].numpy()[0] == 1


def filled():
    batch = dlbridge.empty_sealed({"x": ((48 << 20,), "uint8")})
    batch.tensors()["x"].numpy()[:] = 1
    return batch


def send(maker, reader, x):
    maker.send({"x": x})
    reader.receive()


def longest_without_the_gil(work):
    """The longest time in which a call lets no other thread run, as a part of all its time."""
    times, end = beside_another_thread(work)
    gaps = [later - earlier for earlier, later in zip(times, [*times[1:], end], strict=True)]
    return max(gaps) / (end - times[0])
