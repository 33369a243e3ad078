"""Producers that lie, change their minds, or answer with what is not theirs to give.

`docs/hostile.md` lists all faults; wrong fields are in `test_producers`, capsules in
`test_capsules`, exchange tables in the tests of `dlbridge-pyo3`.
"""

from __future__ import annotations

import gc
import threading

import pytest

import dlbridge
import hostile
from hostile import IS_COPIED, READ_ONLY, SUBBYTE_PADDED, Managed, Producer, name_of, read
from threads import failures_in_threads

KINDS = pytest.mark.parametrize("legacy", [False, True], ids=["versioned", "legacy"])
GPU, HOST = (2, 0), (1, 0)


no_double_release = hostile.no_double_release


class TestFieldsThatMayBeAnything:
    @KINDS
    def test_the_context_is_the_producers_business(self, legacy):
        made = Managed(legacy=legacy)
        made.raw.manager_ctx = 1
        tensor = dlbridge.from_dlpack(made.capsule())
        assert tensor.data_ptr == made.base
        del tensor
        assert made.releases == 1

    @pytest.mark.parametrize("device", [(1, -1), (1, 2**31 - 1), (-1, 0), (2**31 - 1, -(2**31))])
    def test_a_device_is_two_numbers(self, device):
        made = Managed(device=device)
        tensor = dlbridge.from_dlpack(made.capsule())
        assert tensor.__dlpack_device__() == device
        del tensor
        assert made.releases == 1

    def test_all_flags_at_once_are_carried(self):
        made = Managed(flags=2**64 - 1)
        tensor = dlbridge.from_dlpack(made.capsule())
        assert tensor.readonly
        raw = read(tensor.__dlpack__(max_version=(1, 3)))
        # The share is no copy made for its consumer, whatever the first one was.
        assert raw.flags == 2**64 - 1 - IS_COPIED
        assert raw.flags & (READ_ONLY | SUBBYTE_PADDED)
        del tensor, raw
        gc.collect()
        assert made.releases == 1


class TestDevice:
    """What `__dlpack_device__` says is believed only where a stream is to be named."""

    LIES = ((2, 0), (99, 7), (1, None), None, "cpu", (1,), (1, 0, 0), ("cpu", 0))

    @pytest.mark.parametrize("lie", LIES, ids=str)
    def test_a_lie_changes_nothing(self, lie):
        made = Managed()
        producer = Producer(lambda **_keywords: made.capsule(), device=lie)
        tensor = dlbridge.from_dlpack(producer)
        assert (tensor.device, tensor.data_ptr) == ("cpu", made.base)
        del tensor
        assert made.releases == 1
        made = Managed()
        assert dlbridge.from_dlpack(producer, device="cpu", copy=False).device == "cpu"
        assert made.releases == 1

    def test_one_that_raises_is_not_asked(self):
        made = Managed()

        class Raises(Producer):
            def __dlpack_device__(self):
                raise RuntimeError("of the device")

        producer = Raises(lambda **_keywords: made.capsule())
        assert dlbridge.from_dlpack(producer).data_ptr == made.base
        with pytest.raises(RuntimeError, match="of the device"):
            dlbridge.from_dlpack(producer, stream=1)
        assert made.releases == 1

    def test_a_host_tensor_said_to_be_on_a_gpu_is_a_host_tensor(self):
        made = Managed()
        producer = Producer(lambda **_keywords: made.capsule(), device=GPU)
        tensor = dlbridge.from_dlpack(producer, stream=1)
        assert (tensor.device, producer.calls[0]["stream"]) == ("cpu", 1)
        del tensor
        assert made.releases == 1

    def test_a_gpu_tensor_said_to_be_on_the_host_is_not_touched(self):
        made = Managed(device=GPU)
        producer = Producer(lambda **_keywords: made.capsule(), device=HOST)
        tensor = dlbridge.from_dlpack(producer)
        assert tensor.device == "cuda:0"
        with pytest.raises(BufferError, match="found memory on cuda:0"):
            memoryview(tensor)
        del tensor
        assert made.releases == 1


class TestChangedMinds:
    """A first answer on a GPU; the second, for the host, is whatever it is."""

    def ask(self, second):
        first = Managed(device=GPU)

        def answer(**keywords):
            return second() if "dl_device" in keywords else first.capsule()

        producer = Producer(answer, device=GPU)
        try:
            return first, dlbridge.from_dlpack(producer, device="cpu")
        finally:
            gc.collect()
            assert first.releases == 1
            assert len(producer.calls) == 2

    def test_another_shape_and_type_are_what_they_say(self):
        second = Managed(shape=[2, 2], dtype=(0, 16, 1))
        _, tensor = self.ask(second.capsule)
        assert (tensor.shape, tensor.dtype, tensor.data_ptr) == ((2, 2), "int16", second.base)
        assert second.releases == 0
        del tensor
        assert second.releases == 1

    def test_another_abi_is_taken(self):
        second = Managed(legacy=True)
        self.ask(second.capsule)
        assert second.releases == 1

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"device": GPU}, "device: expected cpu, found cuda:0 from the producer"),
            ({"ndim": -1}, "ndim: expected .*, found -1"),
            ({"version": (2, 0)}, r"version: expected .*, found 2\.0"),
            ({"data": None}, "data: expected .* elements, found a null pointer"),
        ],
        ids=lambda value: str(value) if isinstance(value, dict) else "",
    )
    def test_a_second_answer_is_checked_like_the_first(self, fields, message):
        second = Managed(**fields)
        with pytest.raises(BufferError, match=message):
            self.ask(second.capsule)
        gc.collect()
        assert second.releases == 1

    def test_a_second_answer_that_is_no_capsule_is_a_type_error(self):
        with pytest.raises(TypeError, match="capsule: expected"):
            self.ask(lambda: 42)

    def test_a_second_answer_that_raises_is_the_cause(self):
        def fail():
            raise ZeroDivisionError("not again")

        with pytest.raises(
            BufferError, match=r"expected cpu, found .*, and the producer refused"
        ) as raised:
            self.ask(fail)
        assert isinstance(raised.value.__cause__, ZeroDivisionError)

    def test_each_of_two_imports_gets_what_it_is_told_then(self):
        answers = [Managed(shape=[2]), Managed(shape=[3], dtype=(0, 32, 1))]
        left = iter(answers)
        producer = Producer(lambda **_keywords: next(left).capsule())
        first, second = dlbridge.from_dlpack(producer), dlbridge.from_dlpack(producer)
        assert (first.shape, first.dtype) == ((2,), "float32")
        assert (second.shape, second.dtype) == ((3,), "int32")
        del first, second
        assert [made.releases for made in answers] == [1, 1]


class TestConsumedTwice:
    @KINDS
    def test_a_producer_that_consumed_its_own_capsule_is_refused(self, legacy):
        made = Managed(legacy=legacy)
        kept = []

        def answer(**_keywords):
            capsule = made.capsule()
            kept.append(dlbridge.from_dlpack(capsule))
            return capsule

        with pytest.raises(BufferError, match="consumed already"):
            dlbridge.from_dlpack(Producer(answer))
        assert made.releases == 0
        kept.clear()
        assert made.releases == 1

    def test_a_capsule_that_is_consumed_while_it_is_passed_is_consumed_once(self):
        made = Managed()
        capsule = made.capsule()
        taken = []

        class Greedy(Producer):
            @property
            def __dlpack__(self):
                taken.append(dlbridge.from_dlpack(capsule))
                return lambda **_keywords: capsule

        with pytest.raises(BufferError, match="consumed already"):
            dlbridge.from_dlpack(Greedy(None))
        assert name_of(capsule) == b"used_dltensor_versioned"
        taken.clear()
        assert made.releases == 1


class TestDeleters:
    @KINDS
    def test_one_that_raises_is_called_once_and_disturbs_nothing(self, legacy, monkeypatch):
        unraisable = []
        monkeypatch.setattr("sys.unraisablehook", unraisable.append)

        def fail():
            raise ValueError("of the deleter")

        made = Managed(legacy=legacy, on_release=fail)
        tensor = dlbridge.from_dlpack(made.capsule())
        del tensor
        assert made.releases == 1
        assert [type(entry.exc_value) for entry in unraisable] == [ValueError]

    @KINDS
    def test_one_written_in_python_sees_no_exception_that_is_on_its_way(self, legacy):
        seen = []
        # An index of -1 is looked at twice: it is also how C says that there is an exception.
        made = Managed(legacy=legacy, on_release=lambda: seen.append([1, 2, 3][-1]))
        with pytest.raises(ZeroDivisionError, match="division"):
            # The tensor waits on the interpreter's stack for an argument that fails.
            print(dlbridge.from_dlpack(made.capsule()), 1 / 0)
        assert (made.releases, seen) == (1, [3])

    def test_nor_does_it_behind_a_share_of_a_share(self):
        seen = []
        made = Managed(on_release=lambda: seen.append([1, 2, 3][-1]))
        first = [dlbridge.from_dlpack(made.capsule())]
        shares = [dlbridge.from_dlpack(dlbridge.from_dlpack(first.pop()))]
        with pytest.raises(ZeroDivisionError, match="division"):
            print(shares.pop(), 1 / 0)
        assert (made.releases, seen) == (1, [3])

    @KINDS
    def test_one_that_runs_on_another_thread_runs_once(self, legacy):
        threads = []
        made = Managed(legacy=legacy, on_release=lambda: threads.append(threading.get_ident()))
        capsule = made.capsule()
        # Taken there, too: without the global lock, an object dies on the thread that made it.
        assert failures_in_threads(1, lambda: dlbridge.from_dlpack(capsule)) == []
        assert made.releases == 1
        assert threads != [threading.get_ident()]

    def test_none_is_called_where_nothing_was_consumed(self):
        made = Managed()
        capsule = made.capsule()
        for wrong in ({"device": "cuda:x"}, {"copy": "no"}, {"stream": object()}):
            with pytest.raises((TypeError, ValueError, BufferError)):
                dlbridge.from_dlpack(capsule, **wrong)
        assert (made.releases, name_of(capsule)) == (0, b"dltensor_versioned")
        del capsule
        assert made.releases == 1
