"""The transport of Ray, with a real Ray of two nodes on this machine."""

from __future__ import annotations

import dataclasses
import os
import sys
import time

import numpy as np
import pytest

import dlbridge

ray = pytest.importorskip("ray", reason="ray is not installed")
if sys.platform != "linux":
    pytest.skip("sealed memory is for Linux", allow_module_level=True)

pytestmark = pytest.mark.slow
SIZE = 100_000


def file_of(array):
    """The number of the file that is mapped at the data of an array."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            fields = line.split(maxsplit=5)
            start, end = (int(text, 16) for text in fields[0].split("-"))
            if start <= array.ctypes.data < end:
                return fields[4] if "memfd:dlbridge" in line else None


class Maker:
    def make(self, value):
        x = np.full(SIZE, value)
        self.sealed = dlbridge.seal({"x": x, "y": np.arange(3.0)}, metadata={"step": "7"})
        return {"batch": self.sealed, "value": value}

    def make_two(self):
        return [self.make(1)["batch"], self.make(2)["batch"]]

    def file(self):
        return file_of(np.from_dlpack(self.sealed["x"]))

    def descriptors(self):
        return len(os.listdir("/proc/self/fd"))


class Reader:
    def read(self, message):
        sealed = message["batch"]
        x = np.from_dlpack(sealed["x"])
        assert not x.flags.writeable and sealed.metadata == {"step": "7"}
        assert sealed["y"].tolist() == [0, 1, 2]
        return int(x[0]), int(x[-1]), message["value"], file_of(x)

    def read_two(self, both):
        return [int(np.from_dlpack(sealed["x"])[-1]) for sealed in both]


@pytest.fixture(scope="module")
def cluster():
    from ray.cluster_utils import Cluster

    import dlbridge.ray

    # The workers have no folder of tests.
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    cluster = Cluster(True, head_node_args={"num_cpus": 2, "resources": {"first": 20}})
    try:
        cluster.add_node(num_cpus=2, resources={"second": 20})
        ray.init(address=cluster.address, log_to_driver=False)
        dlbridge.ray.register()
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


def actor(made, node):
    options = {"num_cpus": 0, "resources": {node: 1}, "enable_tensor_transport": True}
    return ray.remote(**options)(made).remote()


def test_a_tensor_is_shared_on_one_node_and_copied_to_another(cluster):
    maker, near, far = actor(Maker, "first"), actor(Reader, "first"), actor(Reader, "second")
    for value in range(3):
        made = maker.make.options(tensor_transport="dlbridge").remote(value)
        assert ray.get(near.read.remote(made)) == (
            value,
            value,
            value,
            ray.get(maker.file.remote()),
        )
        *values, file = ray.get(far.read.remote(made))
        assert values == [value] * 3 and file != ray.get(maker.file.remote())
        # The driver is on the first node.
        assert file_of(np.from_dlpack(ray.get(made)["batch"]["x"])) == ray.get(maker.file.remote())


def test_several_objects_go_in_one_answer(cluster):
    maker, near, far = actor(Maker, "first"), actor(Reader, "first"), actor(Reader, "second")
    made = maker.make_two.options(tensor_transport="dlbridge").remote()
    assert ray.get([near.read_two.remote(made), far.read_two.remote(made)]) == [[1, 2]] * 2


@pytest.mark.long
def test_memory_is_freed_with_the_reference(cluster):
    maker, near = actor(Maker, "first"), actor(Reader, "first")
    ray.get(near.read.remote(maker.make.options(tensor_transport="dlbridge").remote(0)))
    before = ray.get(maker.descriptors.remote())
    for value in range(5):
        made = maker.make.options(tensor_transport="dlbridge").remote(value)
        ray.get(near.read.remote(made))
    del made
    for _ in range(100):
        if ray.get(maker.descriptors.remote()) <= before:
            break
        time.sleep(0.1)
    assert ray.get(maker.descriptors.remote()) <= before


@pytest.mark.long
def test_a_reader_of_an_actor_that_was_killed_has_an_error(cluster):
    maker, far = actor(Maker, "first"), actor(Reader, "second")
    made = maker.make.options(tensor_transport="dlbridge").remote(1)
    ray.wait([made])
    ray.kill(maker)
    with pytest.raises(Exception, match=r"refused|died|dead|closed|has ended"):
        ray.get(far.read.remote(made), timeout=60)


@pytest.mark.parametrize("package", ["numpy", "torch", "dlbridge"])
def test_arrays_of_a_framework_stay_such_arrays(cluster, package):
    from dlbridge.ray import Transport

    from_dlpack = pytest.importorskip(package).from_dlpack
    arrays = [from_dlpack(np.arange(6.0).reshape(2, 3).copy()), from_dlpack(np.ones(3))]
    transport = Transport()
    found = transport.extract_tensor_transport_metadata("object", arrays)
    assert transport.extract_tensor_transport_metadata("object", arrays) is found
    near = transport.recv_multiple_tensors("object", found, None)
    elsewhere = dataclasses.replace(found, node="another")
    far = transport.recv_multiple_tensors("object", elsewhere, None)
    for received in (near, far):
        assert [type(one) for one in received] == [type(one) for one in arrays]
        assert [one.tolist() for one in received] == [one.tolist() for one in arrays]
    assert file_of(np.from_dlpack(near[0])) and not file_of(np.from_dlpack(far[0]))
    stranger = dataclasses.replace(elsewhere, key=bytes(32))
    with pytest.raises(ValueError, match="has ended, or freed them"):
        transport.recv_multiple_tensors("object", stranger, None)
    with pytest.raises(ValueError, match="expected no target buffers"):
        transport.recv_multiple_tensors("object", found, None, arrays)
    transport.garbage_collect("object", found, arrays)
    for gone in (found, elsewhere):
        with pytest.raises((OSError, ValueError)):
            transport.recv_multiple_tensors("object", gone, None)
    assert near[1].tolist() == far[1].tolist() == [1, 1, 1]
