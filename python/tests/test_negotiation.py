"""Every way in which consumers call `__dlpack__`, and what they get."""

from __future__ import annotations

import ctypes
import enum
import inspect
import itertools
import sys

import numpy as np
import pytest

import dlbridge
import hostile
from hostile import IS_COPIED, LEGACY, READ_ONLY, VERSIONED, Managed, name_of, read


@pytest.fixture
def tensor():
    return dlbridge.from_bytes(bytes(range(24)), dtype="int32", shape=(2, 3))


@pytest.fixture
def readonly():
    return dlbridge.from_dlpack(Managed(flags=READ_ONLY).capsule())


def check(capsule, tensor, name, *, flags=0, copied=False):
    """Everything that a well-made capsule says about a contiguous tensor in host memory."""
    assert name_of(capsule) == name
    raw = read(capsule)
    if name == VERSIONED:
        assert (raw.major, raw.minor) == dlbridge.DLPACK_VERSION
        assert raw.flags == flags
    assert raw.deleter
    described = raw.tensor
    assert described.byte_offset == 0
    assert (described.device_type, described.device_id) == (1, 0)
    assert described.ndim == tensor.ndim
    assert described.shape[: tensor.ndim] == list(tensor.shape)
    assert described.strides
    assert described.strides[: tensor.ndim] == list(tensor.strides)
    if copied:
        assert described.data != tensor.data_ptr
        assert described.data % 64 == 0
    else:
        assert described.data == tensor.data_ptr
    there = ctypes.string_at(described.data, tensor.nbytes)
    assert there == ctypes.string_at(tensor.data_ptr, tensor.nbytes)


VERSIONS = {
    None: LEGACY,
    (0, 8): LEGACY,
    (0, 0): LEGACY,
    (1, 0): VERSIONED,
    (1, 3): VERSIONED,
    (1, 99): VERSIONED,
    (2, 0): VERSIONED,
}


@pytest.mark.parametrize(("max_version", "name"), VERSIONS.items())
def test_the_version_asked_for_chooses_the_descriptor(tensor, max_version, name):
    check(tensor.__dlpack__(max_version=max_version), tensor, name)


@pytest.mark.parametrize(
    "keywords",
    [
        {},
        {"stream": None},
        {"stream": -1},
        {"dl_device": None},
        {"dl_device": (1, 0)},
        {"dl_device": (1, None)},
        {"copy": None},
        {"copy": False},
        {"max_version": None},
        {"stream": None, "max_version": None, "dl_device": None, "copy": None},
    ],
)
def test_without_a_version_the_legacy_descriptor_has_the_same_memory(tensor, keywords):
    check(tensor.__dlpack__(**keywords), tensor, LEGACY)


@pytest.mark.parametrize("max_version", VERSIONS)
def test_all_keywords_go_together(tensor, max_version):
    for stream, device, copy in itertools.product(
        (None, -1), (None, (1, 0), (1, None)), (None, False, True)
    ):
        capsule = tensor.__dlpack__(
            stream=stream, max_version=max_version, dl_device=device, copy=copy
        )
        flags, copied = (IS_COPIED, True) if copy else (0, False)
        check(capsule, tensor, VERSIONS[max_version], flags=flags, copied=copied)


@pytest.mark.parametrize("stream", [0, 1, 2, 12345, -2, 1.5, "x", object(), 2**80])
@pytest.mark.parametrize("max_version", [None, (1, 3)])
def test_a_stream_for_host_memory_is_refused(tensor, stream, max_version):
    with pytest.raises(BufferError, match=r"stream: expected None or -1 for cpu, found"):
        tensor.__dlpack__(stream=stream, max_version=max_version)


@pytest.mark.parametrize("copy", [None, False, True])
@pytest.mark.parametrize("max_version", [None, (1, 3)])
@pytest.mark.parametrize(
    ("device", "name"), [((2, 0), "cuda:0"), ((1, 1), "cpu:1"), ((99, 3), "kind99:3")]
)
def test_another_device_is_refused(tensor, device, name, max_version, copy):
    with pytest.raises(BufferError, match=f"dl_device: expected cpu, .* found {name}"):
        tensor.__dlpack__(dl_device=device, max_version=max_version, copy=copy)


def test_a_device_of_an_enumeration_is_understood(tensor):
    class Kind(enum.IntEnum):
        CPU = 1
        CUDA = 2

    check(tensor.__dlpack__(dl_device=(Kind.CPU, 0)), tensor, LEGACY)
    with pytest.raises(BufferError, match="cuda:0"):
        tensor.__dlpack__(dl_device=(Kind.CUDA, 0))


def test_the_device_method_gives_plain_numbers(tensor):
    assert tensor.__dlpack_device__() == (1, 0)


@pytest.mark.parametrize("arguments", [(None,), (-1,), (None, (1, 0))])
def test_positional_arguments_are_a_type_error(tensor, arguments):
    with pytest.raises(TypeError, match="positional"):
        tensor.__dlpack__(*arguments)


def test_an_unknown_keyword_is_a_type_error(tensor):
    with pytest.raises(TypeError, match="keyword"):
        tensor.__dlpack__(read_only=True)


@pytest.mark.parametrize(
    "keywords", [{"max_version": "1.0"}, {"max_version": 1}, {"copy": "yes"}, {"dl_device": "cpu"}]
)
def test_a_value_of_the_wrong_type_names_its_argument(tensor, keywords):
    with pytest.raises(TypeError, match=f"^{next(iter(keywords))}: expected "):
        tensor.__dlpack__(**keywords)


@pytest.mark.parametrize("max_version", [None, (1, 0)])
def test_repeated_calls_share_the_memory(tensor, max_version):
    capsules = [tensor.__dlpack__(max_version=max_version) for _ in range(5)]
    assert {read(capsule).tensor.data for capsule in capsules} == {tensor.data_ptr}
    assert len({ctypes.addressof(read(capsule)) for capsule in capsules}) == 5
    first, second = (np.from_dlpack(tensor) for _ in range(2))
    if first.flags.writeable:
        first[0, 0] = -7
    assert second[0, 0] == first[0, 0]


def test_numpy_may_write_to_our_tensor(tensor):
    array = np.from_dlpack(tensor)
    array[1, 2] = 99
    assert np.from_dlpack(tensor)[1, 2] == 99


class TestCopies:
    def test_a_copy_says_so_and_is_other_memory(self, tensor):
        capsule = tensor.__dlpack__(max_version=(1, 0), copy=True)
        check(capsule, tensor, VERSIONED, flags=IS_COPIED, copied=True)

    def test_a_legacy_copy_is_other_memory(self, tensor):
        check(tensor.__dlpack__(copy=True), tensor, LEGACY, copied=True)

    def test_each_copy_is_its_own(self, tensor):
        capsules = [tensor.__dlpack__(max_version=(1, 0), copy=True) for _ in range(4)]
        assert len({read(capsule).tensor.data for capsule in capsules}) == 4

    def test_a_copy_of_readonly_memory_is_writable(self, readonly):
        assert readonly.readonly
        capsule = readonly.__dlpack__(max_version=(1, 0), copy=True)
        check(capsule, readonly, VERSIONED, flags=IS_COPIED, copied=True)
        array = np.from_dlpack(readonly, copy=True)
        array[0] = 5
        assert array.flags.writeable

    def test_a_copy_of_a_strided_tensor_is_contiguous(self):
        source = np.arange(24, dtype="int16").reshape(4, 6)[::-2, 1::2]
        tensor = dlbridge.from_dlpack(source)
        capsule = tensor.__dlpack__(max_version=(1, 3), copy=True)
        described = read(capsule).tensor
        assert described.strides[:2] == [3, 1]
        assert described.data % 64 == 0
        assert np.from_dlpack(tensor, copy=True).tolist() == source.tolist()

    @pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (1, 1)])
    def test_a_copy_of_little_or_nothing_works(self, shape):
        tensor = dlbridge.zeros(shape, dtype="float32")
        capsule = tensor.__dlpack__(max_version=(1, 3), copy=True)
        raw = read(capsule)
        assert (raw.flags, raw.tensor.ndim) == (IS_COPIED, len(shape))
        assert np.from_dlpack(tensor, copy=True).shape == shape


class TestReadonly:
    def test_the_flag_is_carried(self, readonly):
        check(readonly.__dlpack__(max_version=(1, 0)), readonly, VERSIONED, flags=READ_ONLY)
        assert not np.from_dlpack(readonly).flags.writeable

    @pytest.mark.parametrize("keywords", [{}, {"max_version": (0, 8)}, {"copy": False}])
    def test_the_old_descriptor_cannot_say_it_and_is_refused(self, readonly, keywords):
        with pytest.raises(
            BufferError,
            match=r"expected 1\.0 or newer, which marks memory read-only.*max_version=\(1, 0\)",
        ):
            readonly.__dlpack__(**keywords)

    def test_the_legacy_descriptor_of_a_copy_is_exported(self, readonly):
        check(readonly.__dlpack__(copy=True), readonly, LEGACY, copied=True)


def test_narrow_elements_with_a_byte_each_cannot_be_told_to_an_old_consumer():
    made = Managed(dtype=(17, 4, 1), flags=hostile.SUBBYTE_PADDED)
    tensor = dlbridge.from_dlpack(made.capsule())
    assert (tensor.dtype, tensor.nbytes) == ("float4_e2m1fn", 3)
    raw = read(tensor.__dlpack__(max_version=(1, 3)))
    assert raw.flags & hostile.SUBBYTE_PADDED
    with pytest.raises(
        BufferError, match=r"expected 1.1 or newer, which marks padded float4_e2m1fn"
    ):
        tensor.__dlpack__()


def test_a_refusal_leaves_no_reference_behind(readonly):
    before = sys.getrefcount(readonly)
    for _ in range(1000):
        with pytest.raises(BufferError):
            readonly.__dlpack__()
    assert sys.getrefcount(readonly) == before


def test_memory_of_another_device_goes_to_the_host_only_where_the_host_reads_it():
    pinned = dlbridge.from_dlpack(Managed(device=(3, 0)).capsule())
    assert pinned.__dlpack_device__() == (3, 0)
    raw = read(pinned.__dlpack__(max_version=(1, 3), dl_device=(1, 0)))
    assert (raw.tensor.device_type, raw.flags) == (1, IS_COPIED)
    assert raw.tensor.data != pinned.data_ptr
    with pytest.raises(BufferError, match="dl_device"):
        pinned.__dlpack__(max_version=(1, 3), dl_device=(1, 0), copy=False)
    same = read(pinned.__dlpack__(max_version=(1, 3), dl_device=(3, 0), copy=False))
    assert (same.tensor.device_type, same.tensor.data) == (3, pinned.data_ptr)


def test_calls_in_any_form_have_one_meaning():
    """Usual calls are parsed by dlbridge, others by PyO3."""
    tensor = dlbridge.zeros(3)

    def is_a_copy(capsule):
        return dlbridge.from_dlpack(capsule).data_ptr != tensor.data_ptr

    made = {"".join(name): value for name, value in ((("co", "py"), True), (("str", "eam"), None))}
    assert is_a_copy(tensor.__dlpack__(**made, max_version=(1, 0)))
    assert is_a_copy(tensor.__dlpack__(copy=True, dl_device=(1, 0), max_version=(1, 3)))
    assert not is_a_copy(tensor.__dlpack__(copy=False, dl_device=None, max_version=(1, 3)))
    assert not is_a_copy(dlbridge.Tensor.__dlpack__(tensor))
    assert not is_a_copy(tensor.__dlpack__(max_version=(1, 2**32 - 1), stream=-1))
    assert '"dltensor_versioned"' in repr(tensor.__dlpack__(max_version=(True, 0)))
    for wrong in (
        {"max_version": (1, 2**70)},
        {"max_version": (-1, 0)},
        {"max_version": (1,)},
        {"max_version": "1"},
        {"copy": 1},
        {"dl_device": 1},
        {"other": None},
    ):
        with pytest.raises((TypeError, OverflowError, ValueError)):
            tensor.__dlpack__(**wrong)
    with pytest.raises(TypeError, match="positional"):
        tensor.__dlpack__(None)
    with pytest.raises(TypeError):
        dlbridge.Tensor.__dlpack__(3)
    signature = "(self, /, *, stream=None, max_version=None, dl_device=None, copy=None)"
    assert str(inspect.signature(dlbridge.Tensor.__dlpack__)) == signature


def test_a_version_is_read_again_unless_it_is_constant():
    class Version:
        number = 0

        def __index__(self):
            return self.number

    tensor, version = dlbridge.zeros(2), Version()
    constant, changing = (1, 0), (version, 0)
    for _ in range(3):
        version.number = 0
        assert '"dltensor"' in repr(tensor.__dlpack__(max_version=changing))
        version.number = 1
        assert "versioned" in repr(tensor.__dlpack__(max_version=changing))
        assert "versioned" in repr(tensor.__dlpack__(max_version=constant))
        assert '"dltensor"' in repr(tensor.__dlpack__(max_version=tuple([0, 8])))
        with pytest.raises(TypeError, match="max_version: expected"):
            tensor.__dlpack__(max_version=("1", "0"))
