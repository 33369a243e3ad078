"""Producers of every age, and wrong ones: what is taken, what is refused, and how often asked."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
import pytest

import dlbridge
import hostile
from dlpack_doctor.abi import name_of
from hostile import Managed, Producer, producer_of, read
from support import fill

KINDS = pytest.mark.parametrize("legacy", [False, True], ids=["versioned", "legacy"])
ASKED = [{"max_version": dlbridge.DLPACK_VERSION}]


no_double_release = hostile.no_double_release


class TestAges:
    @KINDS
    def test_a_producer_without_keywords_is_asked_without(self, legacy):
        calls = []
        made = Managed(legacy=legacy)

        class Old:
            def __dlpack__(self):
                calls.append(1)
                return made.capsule()

        description = dlbridge.inspect(Old())
        assert description.protocol == "__dlpack__ without keywords"
        assert description.version == (None if legacy else (1, 3))
        assert (calls, made.releases) == ([1], 1)

    @KINDS
    def test_a_producer_with_a_stream_only_is_asked_without_keywords(self, legacy):
        calls = []
        made = Managed(legacy=legacy)

        class Older:
            def __dlpack__(self, stream=None):
                calls.append(stream)
                return made.capsule()

        assert dlbridge.from_dlpack(Older()).data_ptr == made.base
        assert (calls, made.releases) == ([None], 1)

    @pytest.mark.parametrize(
        "words",
        [
            "__dlpack__(): incompatible function arguments. The following types are supported:",
            "__dlpack__() got an unexpected keyword argument 'max_version'",
            "__dlpack__() takes no keyword arguments",
        ],
    )
    def test_a_binding_that_knows_no_keyword_says_so_in_its_own_words(self, words):
        made = Managed(legacy=True)

        def answer(**keywords):
            if keywords:
                raise TypeError(words)
            return made.capsule()

        producer = Producer(answer)
        assert dlbridge.inspect(producer).protocol == "__dlpack__ without keywords"
        assert (producer.calls, made.releases) == ([*ASKED, {}], 1)

    def test_a_producer_may_answer_legacy_to_any_version(self):
        made = Managed(legacy=True)
        producer = producer_of(made)
        description = dlbridge.inspect(producer)
        assert (description.protocol, description.version) == ("__dlpack__, legacy", None)
        assert (producer.calls, made.releases) == (ASKED, 1)

    def test_a_producer_of_today_is_asked_once_for_our_version(self):
        made = Managed()
        producer = producer_of(made)
        description = dlbridge.inspect(producer)
        assert (description.protocol, description.version) == ("__dlpack__, versioned", (1, 3))
        assert (producer.calls, made.releases) == (ASKED, 1)

    def test_a_producer_without_a_device_method_is_taken(self):
        made = Managed()

        class Half:
            def __dlpack__(self, **_keywords):
                return made.capsule()

        assert dlbridge.from_dlpack(Half()).device == "cpu"

    def test_a_legacy_tensor_is_read_only_and_goes_out_by_either_abi(self):
        """Nothing says that it may be written, which only the versioned descriptor can say."""
        made = Managed(legacy=True)
        tensor = dlbridge.from_dlpack(producer_of(made))
        for shared in (tensor, dlbridge.from_dlpack(tensor.__dlpack__())):
            assert shared.readonly
            raw = read(shared.__dlpack__(max_version=(1, 3)))
            assert (raw.flags, raw.tensor.data) == (1, made.base)
            assert name_of(shared.__dlpack__()) == b"dltensor"
        assert not np.from_dlpack(tensor).flags.writeable
        copy = dlbridge.from_dlpack(producer_of(Managed(legacy=True)), copy=True)
        assert not copy.readonly


class TestFailures:
    @pytest.mark.parametrize(
        "failure",
        [
            TypeError("unsupported operand type(s) for +: 'int' and 'str'"),
            TypeError("takes no such thing"),
            BufferError("not now"),
            RuntimeError("requires grad"),
            AttributeError("inside"),
            KeyboardInterrupt(),
            MemoryError(),
        ],
        ids=lambda failure: f"{type(failure).__name__}({failure})",
    )
    def test_an_exception_from_inside_comes_out_as_it_is_after_one_call(self, failure):
        def fail(**_keywords):
            raise failure

        producer = Producer(fail)
        with pytest.raises(type(failure)) as raised:
            dlbridge.from_dlpack(producer)
        assert raised.value is failure
        assert producer.calls == ASKED

    def test_an_old_producer_that_fails_when_asked_again_says_why(self):
        class Old:
            def __dlpack__(self):
                raise RuntimeError("requires grad")

        with pytest.raises(RuntimeError, match="requires grad"):
            dlbridge.from_dlpack(Old())

    def test_a_type_error_about_another_keyword_comes_out_after_one_call(self):
        def fail(**_keywords):
            return sorted([], nothing=1)

        producer = Producer(fail)
        with pytest.raises(TypeError, match="nothing"):
            dlbridge.from_dlpack(producer)
        assert producer.calls == ASKED

    @pytest.mark.parametrize("answer", [None, 42, "capsule", object, NotImplemented])
    def test_an_answer_that_is_no_capsule_is_a_type_error(self, answer):
        producer = Producer(lambda **_keywords: answer)
        with pytest.raises(TypeError, match=r"capsule: expected one named .*, found"):
            dlbridge.from_dlpack(producer)
        assert producer.calls == ASKED

    def test_the_same_capsule_twice_is_refused_the_second_time(self):
        made = Managed()
        capsule = made.capsule()
        producer = Producer(lambda **_keywords: capsule)
        tensor = dlbridge.from_dlpack(producer)
        with pytest.raises(BufferError, match="consumed already"):
            dlbridge.from_dlpack(producer)
        del tensor
        assert made.releases == 1

    @pytest.mark.parametrize(
        "failure", [ValueError("of the property"), AttributeError("of the property")]
    )
    def test_a_property_that_raises_is_heard(self, failure):
        class Moody:
            @property
            def __dlpack__(self):
                raise failure

        expected = TypeError if isinstance(failure, AttributeError) else ValueError
        with pytest.raises(expected):
            dlbridge.from_dlpack(Moody())

    def test_a_property_that_gives_the_method_works(self):
        made = Managed()

        class Odd:
            @property
            def __dlpack__(self):
                return lambda **_keywords: made.capsule()

        assert dlbridge.from_dlpack(Odd()).data_ptr == made.base

    @pytest.mark.parametrize("kind", [dlbridge.Tensor, Producer, type(None)])
    def test_a_class_is_no_instance(self, kind):
        with pytest.raises(TypeError):
            dlbridge.from_dlpack(kind)

    def test_a_method_that_cannot_be_called_is_a_type_error(self):
        class Odd:
            __dlpack__ = 3

        with pytest.raises(TypeError):
            dlbridge.from_dlpack(Odd())


class TestFields:
    @KINDS
    def test_a_wrong_field_is_named_and_the_tensor_released_once(self, legacy):
        """The target `gate` of the fuzz tests has each field."""
        made = Managed(legacy=legacy, shape=[2, -3])
        producer = producer_of(made)
        with pytest.raises(BufferError, match="shape: axis 1: expected extent 0 or more, found -3"):
            dlbridge.from_dlpack(producer)
        assert made.releases == 1
        assert len(producer.calls) == 1

    def test_a_newer_minor_version_is_taken(self):
        made = Managed(version=(1, 99))
        assert dlbridge.inspect(producer_of(made)).version == (1, 99)

    @pytest.mark.parametrize("major", [0, 2, 2**32 - 1])
    def test_another_major_version_is_refused_and_released_once(self, major):
        # Beyond the header nothing is known: only the deleter has its place for ever.
        made = Managed(version=(major, 5), ndim=-7)
        with pytest.raises(BufferError, match=rf"version: expected 1\.x, found {major}\.5"):
            dlbridge.from_dlpack(producer_of(made))
        assert made.releases == 1


class TestOddities:
    def take(self, **fields):
        self.made = Managed(**fields)
        return dlbridge.from_dlpack(producer_of(self.made))

    @KINDS
    def test_null_strides_mean_contiguous_ones(self, legacy):
        tensor = self.take(shape=[2, 3, 4], strides=None, legacy=legacy, version=(1, 0))
        assert tensor.strides == (12, 4, 1)
        assert tensor.contiguous
        assert read(tensor.__dlpack__()).tensor.strides[:3] == [12, 4, 1]

    @KINDS
    def test_a_byte_offset_is_folded_into_the_pointer(self, legacy):
        np = pytest.importorskip("numpy", reason="numpy is not installed")
        tensor = self.take(byte_offset=8, legacy=legacy)
        assert tensor.data_ptr == self.made.base + 8
        raw = read(tensor.__dlpack__()).tensor
        assert (raw.data, raw.byte_offset) == (self.made.base + 8, 0)
        assert np.from_dlpack(tensor).tolist() == [2, 3, 4]

    def test_unaligned_data_is_imported_and_can_be_written(self):
        tensor = self.take(skew=1)
        assert tensor.data_ptr == self.made.base + 1
        fill(tensor, 1.5)
        copy = dlbridge.from_dlpack(tensor, copy=True)
        assert copy.data_ptr % 64 == 0
        np = pytest.importorskip("numpy", reason="numpy is not installed")
        assert np.from_dlpack(copy).tolist() == [1.5, 1.5, 1.5]

    @pytest.mark.parametrize("data", [None, 1, 2**64 - 1])
    @pytest.mark.parametrize("shape", [[0], [2, 0, 3]])
    def test_where_nothing_is_stored_the_pointer_may_be_anything(self, data, shape):
        tensor = self.take(data=data, shape=shape, byte_offset=2**63)
        assert (tensor.size, tensor.nbytes) == (0, 0)
        assert dlbridge.from_dlpack(tensor, copy=True).shape == tuple(shape)

    def test_null_shape_and_strides_are_right_for_ndim_0(self):
        tensor = self.take(shape=None, strides=None, ndim=0)
        assert (tensor.shape, tensor.strides, tensor.size) == ((), (), 1)

    def test_the_most_axes_are_64(self):
        assert self.take(shape=[1] * 64).ndim == 64

    def test_an_unknown_type_code_is_carried(self):
        tensor = self.take(dtype=(200, 16, 3))
        assert (tensor.dtype, tensor.itemsize) == ("code200:16x3", 6)
        raw = read(tensor.__dlpack__()).tensor
        assert (raw.code, raw.bits, raw.lanes) == (200, 16, 3)

    def test_unknown_flags_are_carried(self):
        tensor = self.take(flags=1 << 40)
        assert read(tensor.__dlpack__(max_version=(1, 3))).flags == 1 << 40

    def test_negative_and_zero_strides_are_carried(self):
        np = pytest.importorskip("numpy", reason="numpy is not installed")
        backwards = self.take(skew=8, strides=[-1])
        assert backwards.strides == (-1,)
        assert not backwards.contiguous
        assert np.from_dlpack(backwards).tolist() == [2, 1, 0]
        spread = self.take(shape=[2, 3], strides=[0, 1])
        assert np.from_dlpack(spread).tolist() == [[0, 1, 2], [0, 1, 2]]

    @KINDS
    def test_a_tensor_without_a_deleter_is_taken(self, legacy):
        tensor = self.take(deleter=False, legacy=legacy)
        capsule = tensor.__dlpack__()
        assert read(capsule).deleter
        del tensor, capsule
        assert self.made.releases == 0

    def test_an_unknown_device_is_carried_but_not_touched(self):
        tensor = self.take(device=(99, 7), byte_offset=4)
        assert (tensor.device, tensor.__dlpack_device__()) == ("kind99:7", (99, 7))
        # What the pointer of an unknown device is, only its producer knows.
        raw = read(tensor.__dlpack__()).tensor
        assert (raw.data, raw.byte_offset) == (self.made.base, 4)
        self.refuse(tensor)

    def test_memory_of_a_gpu_is_carried_but_not_touched(self):
        tensor = self.take(device=(2, 1), byte_offset=4)
        assert (tensor.device, tensor.data_ptr) == ("cuda:1", self.made.base + 4)
        raw = read(tensor.__dlpack__(max_version=(1, 3), dl_device=(2, 1))).tensor
        assert (raw.device_type, raw.device_id, raw.data) == (2, 1, self.made.base + 4)
        self.refuse(tensor)

    def refuse(self, tensor):
        with pytest.raises(BufferError, match=r"device: expected .*, found"):
            tensor.__dlpack__(copy=True)
        with pytest.raises(BufferError):
            dlbridge.from_dlpack(tensor, copy=True)


def test_refused_imports_leave_nothing_behind():
    def refuse(times):
        for _ in range(times):
            with pytest.raises(BufferError):
                dlbridge.from_dlpack(producer_of(Managed(strides=None, shape=[2, 2], data=None)))

    refuse(500)
    before = hostile.resident_bytes()
    refuse(20_000)
    assert hostile.resident_bytes() - before < 2 << 20


def test_refused_imports_return_every_reference():
    made = Managed(data=None)
    capsule = made.capsule()
    producer = Producer(lambda **_keywords: capsule)
    before = sys.getrefcount(capsule), sys.getrefcount(producer)
    for _ in range(1000):
        with pytest.raises(BufferError):
            dlbridge.from_dlpack(producer)
        producer.calls.clear()
    assert (sys.getrefcount(capsule), sys.getrefcount(producer)) == before


def test_strides_that_claim_to_be_many_are_not_all_read():
    """Room for all of them ended the process."""

    class Strides(Sequence):
        def __len__(self):
            return 2**40

        def __getitem__(self, at):
            return (8, 7)[at]

    class Array:
        dtype, itemsize, strides = np.dtype("float64"), 8, Strides()

        def __dlpack__(self, **_keywords):
            raise BufferError("not now")

        def __dlpack_device__(self):
            return 1, 0

    with pytest.raises(BufferError, match=r"axis 1: expected a multiple of 8 bytes|not now"):
        dlbridge.from_dlpack(Array())
