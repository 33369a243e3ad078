"""Sharded models by their index, and sealed copies of files of weights."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
from weight_files import OPENS, entry, header_of, refused

import dlbridge

if sys.platform != "linux":
    pytest.skip("FIFOs and sealed memory are for Linux", allow_module_level=True)


class TestShards:
    @pytest.fixture
    def shards(self, tmp_path):
        for number, name in [(1, "a"), (2, "b")]:
            path = tmp_path / f"model-0000{number}-of-00002.safetensors"
            dlbridge.save_safetensors(path, {name: np.full(3, number)}, metadata={"n": str(number)})

        def index(names, **more):
            path = tmp_path / "model.safetensors.index.json"
            path.write_text(
                json.dumps({"metadata": {"total_size": 48}, "weight_map": names, **more})
            )
            return path

        return index

    ONE = "model-00001-of-00002.safetensors"
    TWO = "model-00002-of-00002.safetensors"

    def test_an_index_opens_its_shards(self, shards):
        path = shards({"b": self.TWO, "a": self.ONE})
        file = dlbridge.open_safetensors(path)
        assert {name: x.tolist() for name, x in file.items()} == {"a": [1] * 3, "b": [2] * 3}
        assert list(file) == ["a", "b"]
        assert file.metadata == {"n": "1"}
        sizes = [path.with_name(shard).stat().st_size for shard in [self.ONE, self.TWO]]
        assert file.nbytes == sum(sizes)
        sealed = dlbridge.seal_safetensors(path)
        assert {name: sealed[name].tolist() for name in sealed} == {"a": [1] * 3, "b": [2] * 3}
        assert list(dlbridge.open_safetensors(shards({}))) == []

    def test_an_index_that_is_wrong(self, shards, tmp_path):
        bad = refused
        bad(shards({"a": self.ONE, "c": self.TWO}), '"c" in "model-00002')
        bad(shards({"a": self.TWO, "b": self.TWO}), '"a" in')
        for name in ["../x", "/etc/passwd", "a/b", "a\\b", "..", ".", "", "./" + self.ONE]:
            bad(shards({"a": name}), "expected a plain file name")
        bad(shards({"a": 1}), "a string")
        bad(shards([]), "a map of texts")
        path = shards({})
        path.write_text("{}")
        bad(path, "weight_map")
        path.write_text(f'{{"weight_map":{{"a":"{self.ONE}","a":"{self.TWO}"}}}}')
        bad(path, '"a" twice')
        path.unlink()
        os.mkfifo(path)
        bad(path, "found a pipe")
        path.unlink()
        for opens in OPENS:
            with pytest.raises(FileNotFoundError, match="model-3"):
                opens(shards({"a": "model-3"}))
        dlbridge.save_safetensors(tmp_path / self.TWO, {"a": np.zeros(1), "b": np.zeros(1)})
        bad(shards({"a": self.ONE, "b": self.TWO}), 'found "a" twice')
        os.mkfifo(tmp_path / "fifo")
        for opens in OPENS:
            with pytest.raises(ValueError, match=r"fifo.*found a pipe"):
                opens(shards({"a": "fifo"}))

    def test_the_index_of_a_mixture_of_experts(self, tmp_path):
        names = [
            f"model.language_model.layers.{layer}.block_sparse_moe.experts.{expert}.{part}.weight"
            for layer in range(135)
            for expert in range(512)
            for part in ("gate_proj", "down_proj", "up_proj")
        ]
        places = {name: entry("U8", [1], place, place + 1) for place, name in enumerate(names)}
        shard = "model-00001-of-00001.safetensors"
        (tmp_path / shard).write_bytes(header_of(places) + bytes(len(names)))
        index = tmp_path / "model.safetensors.index.json"
        index.write_text(json.dumps({"weight_map": dict.fromkeys(names, shard)}))
        assert len(names) == 207_360
        assert index.stat().st_size > 20_000_000
        file = dlbridge.open_safetensors(index)
        assert (len(file), file[names[-1]].shape) == (207_360, (1,))

    def test_an_index_that_is_too_long_is_no_header(self, shards):
        path = shards({})
        os.truncate(path, 10**8 + 1)
        refused(path, "index: expected at most 100000000 bytes")

    def test_two_hundred_shards_need_few_descriptors(self, tmp_path):
        names = {f"x{number}": f"model-{number:05}-of-00200.safetensors" for number in range(200)}
        for number, (name, shard) in enumerate(names.items()):
            header = header_of({name: entry("U8", [1], 0, 1)})
            (tmp_path / shard).write_bytes(header + bytes([number]))
        index = tmp_path / "model.safetensors.index.json"
        index.write_text(json.dumps({"weight_map": names}))
        program = (
            "import dlbridge, resource, sys\n"
            "resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))\n"
            "for opens in dlbridge.open_safetensors, dlbridge.seal_safetensors:\n"
            "    file = opens(sys.argv[1])\n"
            "    assert [file[f'x{number}'].tolist() for number in range(200)] == "
            "[[number] for number in range(200)]\n"
        )
        subprocess.run([sys.executable, "-c", program, index], check=True, timeout=60)


class TestSeal:
    def test_names_and_texts_of_sealed_files(self, tmp_path):
        arrays = {"__pad_0": np.ones(3, "int8"), "x": np.ones(2), "__pad_token": np.ones(1)}
        texts = {"dlbridge:x": "int4 3", "dlbridge-metadata:x": "y", "z": ""}
        dlbridge.save_safetensors(tmp_path / "x", arrays, metadata=texts)
        sealed = dlbridge.seal_safetensors(tmp_path / "x")
        again = dlbridge.open_sealed(sealed.fileno())
        assert again.metadata == sealed.metadata == texts
        assert {name: again[name].tolist() for name in again} == {
            name: array.tolist() for name, array in arrays.items()
        }

    @pytest.mark.parametrize("way", ["handle", "pickle"])
    def test_processes_share_one_copy_that_no_change_of_the_file_reaches(self, tmp_path, way):
        path = tmp_path / "x"
        size = 8 << 20
        dlbridge.save_safetensors(path, {"x": np.ones(size, "uint8")})
        sealed = dlbridge.seal_safetensors(path)
        os.truncate(path, 100)
        program = (
            "import dlbridge, numpy, pickle, re, sys\n"
            "data = sys.stdin.buffer.read()\n"
            "opens = dlbridge.open_handle if sys.argv[1] == 'handle' else pickle.loads\n"
            "sealed = opens(data)\n"
            "x = numpy.from_dlpack(sealed['x'])\n"
            "print(int(x.sum()), x.flags.writeable)\n"
            "sys.stdout.flush()\n"
        )
        workers = []
        for _ in range(4):
            command = [sys.executable, "-c", program, way]
            worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            workers.append(worker)
            data = sealed.handle() if way == "handle" else pickle.dumps(sealed)
            worker.stdin.write(data)
            worker.stdin.close()
        for worker in workers:
            assert worker.stdout.read() == f"{size} False\n".encode()
            assert worker.wait() == 0
