"""Files of weights: opened, saved and sealed, beside the `safetensors` package.

The format's rules are tested in Rust; this is about what Python sees of a bad file.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import stat
import struct
import subprocess
import sys
from collections.abc import Mapping

import numpy as np
import pytest
from weight_files import OPENS, entry, header_of, refused

import dlbridge

if sys.platform != "linux":
    pytest.skip("FIFOs, modes and sealed memory are for Linux", allow_module_level=True)

# The format's types: DLPack's name, and the bytes of an element.
DTYPES = {
    "BOOL": ("bool", 1),
    "F4": ("float4_e2m1fn", 0.5),
    "F6_E2M3": ("float6_e2m3fn", 0.75),
    "F6_E3M2": ("float6_e3m2fn", 0.75),
    "U8": ("uint8", 1),
    "I8": ("int8", 1),
    "F8_E5M2": ("float8_e5m2", 1),
    "F8_E4M3": ("float8_e4m3fn", 1),
    "F8_E8M0": ("float8_e8m0fnu", 1),
    "F8_E4M3FNUZ": ("float8_e4m3fnuz", 1),
    "F8_E5M2FNUZ": ("float8_e5m2fnuz", 1),
    "I16": ("int16", 2),
    "U16": ("uint16", 2),
    "F16": ("float16", 2),
    "BF16": ("bfloat16", 2),
    "I32": ("int32", 4),
    "U32": ("uint32", 4),
    "F32": ("float32", 4),
    "C64": ("complex64", 8),
    "F64": ("float64", 8),
    "I64": ("int64", 8),
    "U64": ("uint64", 8),
}


@pytest.fixture
def model(tmp_path):
    """A file of two tensors."""
    path = tmp_path / "model.safetensors"
    tensors = {"weight": np.arange(6, dtype="float32").reshape(2, 3), "bias": np.int8([1, 2, 3])}
    dlbridge.save_safetensors(path, tensors, metadata={"format": "np"})
    return path


class TestOpen:
    def test_it_is_a_mapping(self, model):
        file = dlbridge.open_safetensors(model)
        assert isinstance(file, Mapping)
        assert list(file) == list(file.keys()) == ["weight", "bias"]
        assert (len(file), "bias" in file, "x" in file, file.get("x")) == (2, True, False, None)
        assert file.metadata == {"format": "np"}
        assert file.nbytes == model.stat().st_size
        assert file["weight"].tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
        assert {name: x.tolist() for name, x in file.tensors().items()}["bias"] == [1, 2, 3]
        assert repr(file) == f"dlbridge.SafetensorsFile(2 tensors, nbytes={file.nbytes})"
        with pytest.raises(KeyError, match="'x'"):
            file["x"]

    def test_arrays_outlive_the_file(self, model):
        with dlbridge.open_safetensors(model) as file:
            weight = np.from_dlpack(file["weight"])
        with pytest.raises(ValueError, match="`with` block closed"):
            file["weight"]
        assert repr(file).startswith("dlbridge.SafetensorsFile(closed")
        os.remove(model)
        assert weight.sum() == 15

    def test_a_file_that_another_thread_closes_meanwhile(self, model):
        class Closed(dlbridge.SafetensorsFile):
            seen = iter([{"x": 1}, None])
            _tensors = property(lambda self: next(self.seen), lambda self, tensors: None)

        assert Closed({}, {}, 0)["x"] == 1

    @pytest.mark.parametrize("name", DTYPES)
    def test_every_dtype_of_the_format(self, tmp_path, name):
        dtype, size = DTYPES[name]
        data = bytes(range(1, int(4 * size) + 1))
        path, again = tmp_path / "x.safetensors", tmp_path / "y.safetensors"
        path.write_bytes(header_of({"x": entry(name, [4], 0, len(data))}) + data)
        x = dlbridge.open_safetensors(path)["x"]
        assert (x.dtype, x.shape, x.readonly) == (dtype, (4,), True)
        assert x.tobytes() == data
        dlbridge.save_safetensors(again, {"x": x})
        x = dlbridge.open_safetensors(again)["x"]
        assert (x.dtype, x.shape, x.tobytes()) == (dtype, (4,), data)
        x = dlbridge.seal_safetensors(again)["x"]
        assert (x.dtype, x.shape, x.tobytes()) == (dtype, (4,), data)

    def test_writes_stay_in_pages_of_their_own(self, model):
        before = model.read_bytes()
        file = dlbridge.open_safetensors(model)
        array = np.from_dlpack(file["weight"])
        assert not array.flags.writeable
        torch = pytest.importorskip("torch", reason="torch is not installed")
        torch.from_dlpack(file["weight"])[0, 0] = 9
        private = dlbridge.open_safetensors(model, private=True)
        np.from_dlpack(private["bias"])[:] = 7
        assert private["bias"].tolist() == [7, 7, 7]
        assert dlbridge.open_safetensors(model)["weight"].tolist()[0][0] == 0
        assert model.read_bytes() == before

    def test_nothing_is_read_and_no_memory_is_its_own(self, tmp_path):
        path = tmp_path / "large.safetensors"
        dlbridge.save_safetensors(path, {"x": np.ones(16 << 20, "float32")})
        program = (
            "import dlbridge, numpy, re, sys\n"
            "def own(): return int(re.search(r'RssAnon:\\s+(\\d+)', "
            "open('/proc/self/status').read())[1])\n"
            "def all(): return int(re.search(r'VmRSS:\\s+(\\d+)', "
            "open('/proc/self/status').read())[1])\n"
            "first = own(), all()\n"
            "x = numpy.from_dlpack(dlbridge.open_safetensors(sys.argv[1])['x'])\n"
            "opened = own(), all()\n"
            "assert x.sum() == 16 << 20\n"
            "read = own(), all()\n"
            "assert opened[1] - first[1] < 8000, (first, opened)\n"
            "assert read[0] - first[0] < 8000, (first, read)\n"
            "assert read[1] - first[1] > 60000, (first, read)\n"
        )
        subprocess.run([sys.executable, "-c", program, path], check=True, timeout=60)


class TestTheirPackage:
    """Files of the `safetensors` package, and files for it."""

    def test_numpy(self, tmp_path):
        theirs = pytest.importorskip("safetensors.numpy", reason="safetensors is not installed")
        arrays = {
            str(dtype): np.arange(5).astype(dtype).reshape(5, 1)
            for dtype in ["?", "b", "B", "h", "H", "i", "I", "q", "Q", "e", "f", "d", "F"]
        }
        arrays |= {"empty": np.zeros((0, 3)), "scalar": np.array(2.5, "float32")}
        theirs.save_file(arrays, tmp_path / "theirs", metadata={"a": "b", "\u00e9\n": "\U0001f600"})
        file = dlbridge.open_safetensors(tmp_path / "theirs")
        dlbridge.save_safetensors(tmp_path / "ours", arrays, metadata=file.metadata)
        loaded = theirs.load_file(tmp_path / "ours")
        for name, array in arrays.items():
            for found in [np.from_dlpack(file[name]), loaded[name]]:
                np.testing.assert_array_equal(found, array, strict=True)
        again = dlbridge.open_safetensors(tmp_path / "ours")
        assert again.metadata == file.metadata == {"a": "b", "\u00e9\n": "\U0001f600"}

    def test_pytorch(self, tmp_path):
        torch = pytest.importorskip("torch", reason="torch is not installed")
        theirs = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")
        names = ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float16", "float32", "float64"]
        names += ["float8_e8m0fnu", "bool", "uint8", "int64", "complex64", "uint16"]
        base = torch.arange(6, dtype=torch.float32).reshape(2, 3)
        tensors = {name: base.to(getattr(torch, name)) for name in names}
        theirs.save_file(tensors, tmp_path / "theirs")
        file = dlbridge.open_safetensors(tmp_path / "theirs")
        strided = {name: x.t().contiguous().t() for name, x in tensors.items()}
        dlbridge.save_safetensors(tmp_path / "ours", strided)
        loaded = theirs.load_file(tmp_path / "ours")
        for name, x in tensors.items():
            for found in [torch.from_dlpack(file[name]), loaded[name]]:
                assert found.dtype == x.dtype
                assert torch.equal(found.contiguous().view(torch.uint8), x.view(torch.uint8)), name

    def test_parameters_of_a_module(self, tmp_path):
        torch = pytest.importorskip("torch", reason="torch is not installed")
        module = torch.nn.Linear(3, 2)
        dlbridge.save_safetensors(tmp_path / "x", module.state_dict())
        file = dlbridge.open_safetensors(tmp_path / "x")
        module.load_state_dict({name: torch.from_dlpack(x) for name, x in file.items()})
        assert torch.equal(torch.from_dlpack(file["weight"]), module.weight)

    def test_jax_shares_what_was_saved(self, tmp_path):
        jnp = pytest.importorskip("jax.numpy", reason="jax is not installed")
        arrays = {"odd": jnp.ones(3, "uint8"), "a": jnp.ones(3), "b": jnp.ones((16, 4), "bfloat16")}
        dlbridge.save_safetensors(tmp_path / "x", arrays)
        # JAX 0.10 asks for legacy capsules, which cannot say that memory is read-only.
        file = dlbridge.open_safetensors(tmp_path / "x", private=True)
        assert list(file) == ["b", "a", "odd"], "those of whole lines come first"
        for name, array in arrays.items():
            found = jnp.from_dlpack(file[name])
            assert found.dtype == array.dtype
            assert (found == array).all()
        shared = jnp.from_dlpack(file["b"])
        assert shared.unsafe_buffer_pointer() == file["b"].data_ptr


class TestSave:
    def test_it_replaces_a_file_that_is_open(self, model):
        file = dlbridge.open_safetensors(model)
        arrays = {name: np.from_dlpack(x) for name, x in file.items()}
        dlbridge.save_safetensors(model, {**arrays, "more": file["bias"]}, fsync=True)
        assert arrays["weight"].sum() == 15
        assert dlbridge.open_safetensors(model)["more"].tolist() == [1, 2, 3]
        assert os.listdir(model.parent) == [model.name]

    def test_the_mode_is_the_umasks_or_the_old_files(self, tmp_path):
        path = tmp_path / "x"
        old = os.umask(0o027)
        try:
            dlbridge.save_safetensors(path, {})
            assert stat.S_IMODE(path.stat().st_mode) == 0o640
            path.chmod(0o604)
            dlbridge.save_safetensors(path, {})
            assert stat.S_IMODE(path.stat().st_mode) == 0o604
        finally:
            os.umask(old)

    def test_what_cannot_be_written_is_refused_before(self, model):
        before = model.read_bytes()
        x = np.zeros(2)
        cases = [
            ({"x": np.zeros(1, "complex128")}, {}, ValueError, '"x": .*no type for complex128'),
            ({"__metadata__": x}, {}, ValueError, "reserved"),
            ({"x" * 10**8: x}, {}, ValueError, "header: expected at most 100000000 bytes"),
            ({"x": x}, {"metadata": {"a": 1}}, TypeError, "'int'"),
            ({1: x}, {}, TypeError, "expected a str, found 1"),
            ({"x": "text"}, {}, TypeError, "found str"),
            ([x], {}, TypeError, "expected a dict, found list"),
        ]
        for tensors, options, kind, message in cases:
            with pytest.raises(kind, match=message) as caught:
                dlbridge.save_safetensors(model, tensors, **options)
            assert "\n" not in str(caught.value)
        with pytest.raises(TypeError) as caught:
            dlbridge.save_safetensors(model, {"fine": x, "wrong": "text"})
        assert caught.value.__notes__ == ['This is about the tensor "wrong".']
        assert model.read_bytes() == before
        assert os.listdir(model.parent) == [model.name]

    def test_a_place_where_no_file_can_be(self, tmp_path):
        with pytest.raises(FileNotFoundError) as caught:
            dlbridge.save_safetensors(tmp_path / "none" / "x", {})
        assert caught.value.filename == str(tmp_path / "none" / "x")
        os.mkfifo(tmp_path / "fifo")
        for path in [tmp_path, tmp_path / "fifo", "/dev/full", "/dev/null"]:
            with pytest.raises(ValueError, match="expected a regular file, found a"):
                dlbridge.save_safetensors(path, {"x": np.zeros(1)})
        assert stat.S_ISFIFO((tmp_path / "fifo").stat().st_mode)
        assert os.listdir(tmp_path) == ["fifo"]

    def test_a_link_stays_and_its_file_is_written(self, model):
        folder = model.parent / "links"
        folder.mkdir()
        old, new = folder / "old", folder / "new"
        old.symlink_to("../" + model.name)
        new.symlink_to(model.parent / "not there yet")
        for link in (old, new):
            dlbridge.save_safetensors(link, {"x": np.arange(3)})
            assert link.is_symlink()
            assert dlbridge.open_safetensors(link.resolve())["x"].tolist() == [0, 1, 2]

    def test_a_process_that_is_killed_leaves_no_file(self, model):
        try:
            os.close(os.open(model.parent, os.O_TMPFILE | os.O_WRONLY))
        except OSError:
            pytest.skip("the file system has no files without names")
        # The kernel ends it amid its file.
        program = (
            "import dlbridge, numpy, resource, signal, sys; "
            "signal.signal(signal.SIGXFSZ, signal.SIG_DFL); "
            "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)); "
            "dlbridge.save_safetensors(sys.argv[1], {'x': numpy.zeros(1 << 16)})"
        )
        assert subprocess.call([sys.executable, "-c", program, model]) == -signal.SIGXFSZ
        assert os.listdir(model.parent) == [model.name]

    def test_a_folder_that_cannot_be_synced_is_an_error_before_the_file_is_replaced(self, model):
        before = model.read_bytes()
        model.chmod(0o666)
        model.parent.chmod(0o333)
        program = (
            "import dlbridge, errno, numpy, os, sys\n"
            "if os.getuid() == 0: os.setuid(65534)\n"
            "try: dlbridge.save_safetensors(sys.argv[1], {'x': numpy.zeros(1)}, fsync=True)\n"
            "except OSError as error: print(errno.errorcode[error.errno])\n"
        )
        command = [sys.executable, "-c", program, model.name]
        folder = model.parent
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)
        folder.chmod(0o700)
        assert (done.stdout, done.stderr) == ("EACCES\n", "")
        assert model.read_bytes() == before
        assert os.listdir(folder) == [model.name]

    def test_a_full_disk_leaves_the_old_file(self, model):
        before = model.read_bytes()

        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

        program = (
            "import dlbridge, numpy, errno, sys\n"
            "try: dlbridge.save_safetensors(sys.argv[1], {'x': numpy.zeros(1 << 18)})\n"
            "except OSError as error: print(errno.errorcode[error.errno], error.filename)\n"
        )
        command = [sys.executable, "-c", program, model]
        done = subprocess.run(command, capture_output=True, text=True, preexec_fn=limit, timeout=60)
        assert (done.stdout, done.stderr) == (f"EFBIG {model}\n", "")
        assert model.read_bytes() == before
        assert os.listdir(model.parent) == [model.name]

    def test_memory_of_a_file_that_became_shorter_is_an_error(self, tmp_path):
        path, other = tmp_path / "x", tmp_path / "y"
        dlbridge.save_safetensors(path, {"x": np.ones(1 << 18)})
        program = (
            "import dlbridge, errno, os, sys\n"
            "file = dlbridge.open_safetensors(sys.argv[1])\n"
            "os.truncate(sys.argv[1], 4096)\n"
            "try: dlbridge.save_safetensors(sys.argv[2], file)\n"
            "except OSError as error: print(errno.errorcode[error.errno])\n"
        )
        command = [sys.executable, "-c", program, path, other]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout, done.stderr) == (0, "EFAULT\n", "")
        assert os.listdir(tmp_path) == ["x"]


class TestBadFiles:
    """One line that names the file, and no crash."""

    def test_a_cut_at_every_length(self, model):
        whole = model.read_bytes()
        path = model.with_name("cut")
        for length in range(len(whole)):
            path.write_bytes(whole[:length])
            refused(path, "expected")
        path.write_bytes(whole + b"x")
        refused(path, "bytes of tensors after the header")

    def test_what_is_no_file(self, tmp_path):
        os.mkfifo(tmp_path / "fifo")
        os.symlink("fifo", tmp_path / "link")
        os.symlink("loop", tmp_path / "loop")
        refused(tmp_path / "fifo", "found a pipe")
        refused(tmp_path / "link", "found a pipe")
        refused(tmp_path, "found a directory")
        refused("/dev/zero", "a device")
        refused("/proc/self/status", "found 0 bytes")
        refused(tmp_path / "none", "No such file", FileNotFoundError)
        refused(tmp_path / "loop", "symbolic links", OSError)
        refused(tmp_path / ("x" * 300), "too long", OSError)
        for opens in OPENS:
            with pytest.raises(ValueError, match=r"NUL|null"):
                opens("a\0b")
            with pytest.raises(TypeError):
                opens(7)

    def test_headers(self, tmp_path):
        path = tmp_path / "x"
        large = 2**64
        for header, data, message in [
            ("", 0, "EOF"),
            ("{", 0, "EOF"),
            ("[]", 0, "a map of tensors"),
            ("{}x", 0, "trailing"),
            ("\xff", 0, "expected a header of safetensors"),
            ({"x": 1}, 0, '"x"'),
            ({"x": entry("F33", [1], 0, 1)}, 1, '"x": .*F33'),
            ({"x": entry("U8", [-1], 0, 1)}, 1, '"x"'),
            ({"x": entry("U8", [1.5], 0, 1)}, 1, '"x"'),
            ({"x": entry("U8", [large - 1], 0, large - 1)}, 0, '"x"'),
            ({"x": entry("U8", [large], 0, large)}, 0, '"x"'),
            ({"x": entry("F64", [2**61], 0, large - 8)}, 0, '"x"'),
            ({"x": entry("U8", [2**62, 8], 0, 0)}, 0, '"x"'),
            ({"x": entry("U8", [2**63, 0], 0, 0)}, 0, '"x"'),
            ({"x": entry("U8", [0, 2**62, 4], 0, 0)}, 0, '"x": '),
            ({"x": entry("U8", [1] * 65, 0, 1)}, 1, "at most 64 axes"),
            ({"x": entry("F4", [3], 0, 1)}, 1, "whole bytes"),
            ({"x": entry("U8", [1], 1, 2)}, 2, '"x": expected bytes from 0 on'),
            ({"x": entry("U8", [1], 1, 0)}, 1, '"x"'),
            ({"x": entry("U8", [2], 0, 2), "y": entry("U8", [2], 1, 3)}, 3, '"y"'),
            ({"x": entry("U8", [2], 0, 2), "y": entry("U8", [2], 4, 6)}, 6, '"y"'),
            ({"x": {"dtype": "U8", "shape": [1]}}, 1, "data_offsets"),
            ({"__metadata__": {"a": 1}}, 0, "a string"),
            ({"__metadata__": []}, 0, "invalid"),
            ('{"__metadata__":{"a":"1","a":"2"}}', 0, '"a" twice'),
            ('{"x":{},"x":{}}', 0, '"x"'),
            ('{"x":' + "[" * 100_000, 0, "sequence"),
        ]:
            path.write_bytes(header_of(header) + bytes(data))
            refused(path, message)
        twice = json.dumps(entry("U8", [0], 0, 0))
        path.write_bytes(header_of(f'{{"x":{twice},"x":{twice}}}'))
        refused(path, '"x" twice')
        for length in [10**8 + 1, 2**32, 2**63, 2**64 - 1]:
            path.write_bytes(struct.pack("<Q", length) + b"{}")
            refused(path, "header: expected at most 100000000 bytes")

    def test_an_error_shows_a_name_on_one_line(self, tmp_path):
        path = tmp_path / "x"
        path.write_bytes(header_of({"a\nb": entry("U8", [2], 0, 1)}) + b"1")
        refused(path, r'"a\\nb": expected 2 bytes for uint8\[2\], found 1')
