"""Columns of Polars, pandas, DuckDB and pyarrow, imported and made through Arrow's C interface."""

from __future__ import annotations

import datetime
import gc
import threading

import numpy as np
import pytest

import dlbridge
from support import arange


@pytest.fixture
def pa():
    return pytest.importorskip("pyarrow", reason="pyarrow is not installed")


@pytest.fixture
def pl():
    return pytest.importorskip("polars", reason="polars is not installed")


@pytest.fixture
def pd():
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    return pytest.importorskip("pandas", "3", reason="pandas 3 is not installed")


@pytest.fixture
def duckdb():
    return pytest.importorskip("duckdb", reason="duckdb is not installed")


def values(column, **options):
    return np.from_dlpack(dlbridge.from_dlpack(column, **options)).tolist()


NUMBERS = ["Int8", "UInt8", "Int16", "UInt16", "Int32", "UInt32", "Int64", "UInt64"]
NUMBERS += ["Float32", "Float64"]


class TestPolars:
    @pytest.mark.parametrize("name", NUMBERS)
    def test_a_series_is_shared(self, pl, name):
        series = pl.Series(range(5), dtype=getattr(pl, name))
        tensor = dlbridge.from_dlpack(series)
        assert (tensor.dtype, tensor.shape, tensor.readonly) == (name.lower(), (5,), True)
        assert tensor.data_ptr == series.to_numpy().ctypes.data
        assert values(series[2:4]) == [2, 3]
        assert dlbridge.inspect(series).protocol == "__arrow_c_stream__"

    def test_the_memory_outlives_the_series(self, pl):
        tensor = dlbridge.from_dlpack(pl.Series(np.arange(100_000)) + 1)
        gc.collect()
        assert np.from_dlpack(tensor).sum() == 5_000_050_000

    def test_arrays_of_one_size_are_axes(self, pl):
        series = pl.Series(np.arange(24, dtype="int16").reshape(2, 3, 4))
        tensor = dlbridge.from_dlpack(series[1:])
        assert tensor.shape == (1, 3, 4)
        assert np.array_equal(tensor.numpy(), np.arange(12, 24).reshape(1, 3, 4))

    def test_chunks_are_copied_where_a_copy_is_asked_for(self, pl):
        part = pl.Series([1, 2], dtype=pl.Int32)
        chunked = pl.concat([part, part.clear(), part], rechunk=False)
        with pytest.raises(BufferError, match=r"one chunk, found several; .*x\.rechunk\(\)"):
            dlbridge.from_dlpack(chunked)
        assert values(chunked.rechunk()) == [1, 2, 1, 2]
        copy = dlbridge.from_dlpack(chunked, copy=True)
        assert (copy.tolist(), copy.readonly) == ([1, 2, 1, 2], False)
        assert dlbridge.from_dlpack(chunked, copy=True, device="cpu").tolist() == [1, 2, 1, 2]

    def test_a_frame_of_one_column_is_a_matrix(self, pl):
        frame = pl.DataFrame({"x": [1.5, 2.5], "y": [1, 2]})
        assert values(frame.select("x")) == [[1.5], [2.5]]
        with pytest.raises(BufferError, match=r'one column, found 2; select one: x\["name"\]'):
            dlbridge.from_dlpack(frame)

    def test_an_empty_series_is_an_empty_tensor(self, pl):
        tensor = dlbridge.from_dlpack(pl.Series([], dtype=pl.Float32))
        assert (tensor.shape, tensor.dtype) == ((0,), "float32")

    def test_what_is_no_number_is_named_with_the_cast_that_helps(self, pl):
        day = datetime.date(2026, 11, 22)
        for series, found, fixed in [
            (pl.Series([1, None]), r"nulls, found 1; .*fill_null", lambda x: x.fill_null(0)),
            (pl.Series([True]), r"booleans.*pl\.UInt8", lambda x: x.cast(pl.UInt8)),
            (pl.Series(["a"]), "strings", None),
            (pl.Series([b"a"]), "byte strings", None),
            (pl.Series([day]), r"dates.*x\.to_physical", lambda x: x.to_physical()),
            (pl.Series([datetime.time(1)]), r"times.*to_phys", lambda x: x.to_physical()),
            (pl.Series([1]).cast(pl.Datetime), "timestamps", lambda x: x.to_physical()),
            (pl.Series([1]).cast(pl.Duration("ms")), "durations", lambda x: x.to_physical()),
            (pl.Series([1]).cast(pl.Decimal(9, 2)), "decimals", lambda x: x.cast(pl.Float64)),
            (pl.Series(["a"], dtype=pl.Categorical), "dictionary", lambda x: x.to_physical()),
            (pl.Series([[1], [2]]), r"lists.*to_array", lambda x: x.list.to_array(1)),
            (pl.Series([{"a": 1, "b": 2}]), "one column, found 2", lambda x: x.struct.field("a")),
        ]:
            with pytest.raises(BufferError, match=found):
                dlbridge.from_dlpack(series)
            if fixed:
                assert len(dlbridge.from_dlpack(fixed(series))) == len(series)


class TestPandas:
    @pytest.mark.parametrize("dtype", ["float32[pyarrow]", "int64[pyarrow]", "float32", "uint8"])
    def test_a_series_is_shared(self, pd, dtype):
        series = pd.Series([1, 2, 3], dtype=dtype)
        tensor = dlbridge.from_dlpack(series)
        assert (tensor.dtype, tensor.tolist()) == (dtype.split("[")[0], [1, 2, 3])
        assert tensor.data_ptr == series.to_numpy().ctypes.data

    def test_missing_values_are_refused(self, pd):
        for series in [pd.Series([1, None], dtype="int32[pyarrow]"), pd.Series([1.0, np.nan])]:
            with pytest.raises(BufferError, match=r"without nulls, found 1; .*fillna\(0\)"):
                dlbridge.from_dlpack(series)
            assert values(series.fillna(0)) == [1, 0]
            assert np.isnan(values(np.asarray(series, "float64"))[1])

    def test_without_pyarrow_it_is_no_array(self, pd, monkeypatch):
        def missing(_self, requested_schema=None):
            raise ImportError("no pyarrow")

        monkeypatch.setattr(pd.Series, "__arrow_c_stream__", missing)
        with pytest.raises(TypeError, match=r"found Series; pass x\.to_numpy\(\)"):
            dlbridge.from_dlpack(pd.Series([1]))


class TestDuckDb:
    def test_a_result_of_one_column_is_shared(self, duckdb):
        result = duckdb.sql("select i::float as x from range(1000) t(i)")
        tensor = dlbridge.from_dlpack(result)
        assert (tensor.shape, tensor.dtype, tensor.readonly) == ((1000, 1), "float32", True)
        assert np.from_dlpack(tensor).sum() == 499_500

    def test_arrays_are_axes(self, duckdb):
        result = duckdb.sql("select [i, -i]::int[2] from range(3) t(i)")
        assert values(result) == [[0, 0], [1, -1], [2, -2]]

    def test_a_large_result_comes_in_chunks(self, duckdb):
        result = duckdb.sql("select i from range(3_000_000) t(i)")
        with pytest.raises(BufferError, match="found several"):
            dlbridge.from_dlpack(result)
        copy = dlbridge.from_dlpack(result, copy=True)
        assert np.array_equal(copy.numpy(), np.arange(3_000_000).reshape(-1, 1))

    def test_a_query_that_fails_says_why(self, duckdb):
        result = duckdb.sql("select error('no such luck')::int as x from range(3)")
        with pytest.raises(Exception, match="no such luck"):
            dlbridge.from_dlpack(result)

    def test_a_query_that_calls_python_does_not_wait_for_us(self, duckdb):
        connection = duckdb.connect()
        threads = set()

        def twice(x: int) -> int:
            threads.add(threading.get_ident())
            return 2 * x

        connection.create_function("twice", twice, [duckdb.sqltypes.BIGINT], duckdb.sqltypes.BIGINT)
        assert values(connection.sql("select twice(i) from range(4) t(i)")) == [[0], [2], [4], [6]]
        assert threads


class TestPyarrow:
    def test_a_chunked_array_of_one_chunk_is_shared(self, pa):
        array = pa.array([1, 2, 3])
        tensor = dlbridge.from_dlpack(pa.chunked_array([array]))
        assert tensor.data_ptr == array.buffers()[1].address

    def test_chunks_are_joined_by_a_copy(self, pa):
        chunked = pa.chunked_array([[1, 2], [], [3]])
        with pytest.raises(BufferError, match=r"x\.combine_chunks\(\) in pyarrow"):
            dlbridge.from_dlpack(chunked)
        assert values(chunked.combine_chunks()) == values(chunked, copy=True) == [1, 2, 3]
        assert dlbridge.from_dlpack(pa.chunked_array([], pa.int8())).shape == (0,)
        assert dlbridge.from_dlpack(pa.chunked_array([], pa.int8()), copy=True).shape == (0,)

    def test_tables_and_batches_of_one_column(self, pa):
        batch = pa.record_batch({"x": [1.5, 2.5, 3.5]})
        assert values(batch) == [[1.5], [2.5], [3.5]]
        assert values(batch.slice(1, 1)) == [[2.5]]
        assert values(pa.table({"x": [1, 2, 3]}).slice(2)) == [[3]]

    def test_tensors_keep_their_axes(self, pa):
        array = np.arange(24, dtype="float32").reshape(2, 3, 4)
        for axes in [(0, 1, 2), (0, 2, 1)]:
            rows = array.transpose(axes)
            column = pa.FixedShapeTensorArray.from_numpy_ndarray(rows)
            # By its own __dlpack__, and by Arrow's C interface.
            for source in (column, pa.chunked_array([column])):
                tensor = dlbridge.from_dlpack(source)
                assert tensor.data_ptr == column.storage.flatten().buffers()[1].address
                assert np.array_equal(tensor.numpy(), rows)
            chunks = pa.chunked_array([column, column])
            if axes == (0, 1, 2):
                assert dlbridge.from_dlpack(chunks, copy=True).shape == (4, 3, 4)
            else:
                with pytest.raises(BufferError, match="in the order of their memory"):
                    dlbridge.from_dlpack(chunks, copy=True)

    def test_other_extension_types_are_named(self, pa):
        column = pa.chunked_array([pa.array([b"0123456789abcdef"], pa.uuid())])
        with pytest.raises(BufferError, match=r"extension type arrow\.uuid.*cast to its storage"):
            dlbridge.from_dlpack(column)

    def test_a_null_in_a_list_is_a_null(self, pa):
        kind = pa.list_(pa.int8(), 2)
        for rows in [[[1, 2], None], [[1, None], [3, 4]]]:
            with pytest.raises(BufferError, match="without nulls"):
                dlbridge.from_dlpack(pa.chunked_array([pa.array(rows, kind)]))
        column = pa.array([None, [1, None], [3, 4]], kind)[2:]
        assert values(pa.chunked_array([column])) == [[3, 4]]


class TestExport:
    def test_polars_makes_a_series(self, pl):
        tensor = arange(6, dtype="float32")
        series = pl.Series("x", tensor)
        assert (series.dtype, series.to_list()) == (pl.Float32, [0, 1, 2, 3, 4, 5])
        assert dlbridge.from_dlpack(series).data_ptr == tensor.data_ptr
        matrix = pl.DataFrame({"m": tensor.reshape(2, 3)})
        assert matrix.schema == {"m": pl.Array(pl.Float32, 3)}
        assert pl.Series(arange(2)).name == ""

    def test_pyarrow_makes_an_array(self, pa):
        tensor = arange(24, dtype="int16").reshape(2, 3, 4)
        array = pa.array(tensor)
        assert array.type == pa.list_(pa.list_(pa.int16(), 4), 3)
        assert array.to_pylist() == tensor.tolist()
        assert array.flatten().flatten().buffers()[1].address == tensor.data_ptr
        assert pa.array(tensor[0, 0], pa.float64()).to_pylist() == [0.0, 1.0, 2.0, 3.0]
        assert pa.table({"x": arange(2)}).schema.field("x").type == pa.int64()

    def test_duckdb_takes_a_column(self, duckdb, pa):
        measured = pa.table({"x": arange(5, dtype="float64")})
        assert measured.num_rows == 5
        assert duckdb.sql("select sum(x) from measured").fetchall() == [(10.0,)]

    def test_other_layouts_are_copied(self, pa):
        matrix = arange(6).reshape(2, 3)
        assert pa.array(matrix.T).to_pylist() == matrix.T.tolist()
        assert pa.array(matrix[0][::-1]).to_pylist() == [2, 1, 0]
        misaligned = dlbridge.from_dlpack(np.frombuffer(bytes(9), "uint8")[1:].view("int32"))
        array = pa.array(misaligned)
        assert (array.to_pylist(), array.buffers()[1].address % 4) == ([0, 0], 0)

    def test_truth_values_are_packed(self, pa):
        truth = np.arange(19) % 3 == 0
        assert pa.array(dlbridge.from_dlpack(truth)).to_pylist() == truth.tolist()

    @pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 4)])
    def test_nothing_is_exported_as_nothing(self, pa, shape):
        tensor = dlbridge.zeros(shape, dtype="float32")
        array = pa.array(tensor)
        array.validate(full=True)
        assert array.to_pylist() == tensor.tolist()

    def test_dtypes_that_arrow_lacks_are_refused(self, pa):
        for tensor, found in [
            (dlbridge.zeros(2, dtype="complex64"), "found complex64; cast to float32"),
            (dlbridge.zeros(2, dtype="bfloat16"), "found bfloat16"),
            (dlbridge.zeros(()), r"found a scalar; use x\.reshape\(1\)"),
        ]:
            with pytest.raises(BufferError, match=found):
                pa.array(tensor)

    def test_the_memory_lives_as_long_as_an_array(self, pa):
        before = pa.total_allocated_bytes()
        tensor = dlbridge.from_dlpack(pa.array(list(range(1, 1001))))
        array = pa.array(tensor.reshape(10, 100))
        part = array.flatten()[500:501]
        del tensor, array
        gc.collect()
        assert (part.to_pylist(), pa.total_allocated_bytes() > before) == ([501], True)
        del part
        gc.collect()
        assert pa.total_allocated_bytes() == before

    def test_capsules_that_are_not_used_free_their_structs(self, pa):
        before = pa.total_allocated_bytes()
        for _ in range(100):
            tensor = dlbridge.from_dlpack(pa.array(list(range(1, 1001)))).reshape(10, 10, 10)
            assert len(tensor.__arrow_c_array__(requested_schema=None)) == 2
        del tensor
        gc.collect()
        assert pa.total_allocated_bytes() == before
