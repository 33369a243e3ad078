"""Arrays and tables that come through Arrow: the object's own axes are those of the tensor."""

from __future__ import annotations

import numpy as np
import pytest

import dlbridge

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")


class LabelledArray:
    """An array as that of xarray: its Arrow stream is a long table of its elements."""

    def __init__(self, values, coordinates=()):
        self.values, self.coordinates = values, coordinates

    ndim = property(lambda self: self.values.ndim)
    shape = property(lambda self: self.values.shape)

    def to_numpy(self):
        return self.values

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.values, dtype, copy=copy)

    def __arrow_c_stream__(self, requested_schema=None):
        places = np.indices(self.shape)
        columns = {name: places[axis].ravel() for axis, name in enumerate(self.coordinates)}
        return pa.table({**columns, "values": self.values.ravel()}).__arrow_c_stream__()


def labelled(values, coordinates=()):
    """The real class where it is installed, and the one above."""
    yield LabelledArray(values, coordinates)
    try:
        import xarray
    except ImportError:
        return
    coords = {name: np.arange(n) for name, n in zip(coordinates, values.shape, strict=False)}
    yield xarray.DataArray(values, coords=coords, dims=coordinates or None)


class TestAnArrayThatIsALongTable:
    @pytest.mark.parametrize("shape", [(2, 3), (), (1, 6), (2, 3, 1)])
    @pytest.mark.parametrize("options", [{}, {"copy": True}])
    def test_it_does_not_lose_its_axes(self, shape, options):
        """A `DataArray` of (2, 3) arrived as (6,), and a 0-d one as (1,)."""
        values = np.arange(np.prod(shape), dtype="float32").reshape(shape)
        for array in labelled(values):
            with pytest.raises(BufferError, match=r"shape \[.*found a table.*pass x\.to_numpy\(\)"):
                dlbridge.from_dlpack(array, **options)
            assert dlbridge.from_dlpack(array.to_numpy()).tolist() == values.tolist()

    def test_a_column_of_it_is_not_taken_for_a_vector(self):
        example = pytest.importorskip("dlbridge_example", reason="no example extension")
        for array in labelled(np.ones((2, 3), "float32")):
            with pytest.raises(BufferError, match="found a table"):
                example.norm(array)
            assert example.row_sums(array.to_numpy()).tolist() == [3, 3]

    def test_a_vector_is_one(self):
        for array in labelled(np.arange(3.0)):
            assert dlbridge.from_dlpack(array).tolist() == [0, 1, 2]

    def test_one_with_coordinates_is_converted(self):
        for array in labelled(np.ones((2, 3)), ("i", "j")):
            with pytest.raises(BufferError, match=r"one column, found 3; .*numpy\.asarray\(x\)"):
                dlbridge.from_dlpack(array)
            assert np.asarray(array).shape == (2, 3)

    def test_a_mapping_of_arrays_is_one_of_its_values(self):
        xarray = pytest.importorskip("xarray", reason="xarray is not installed")
        dataset = xarray.Dataset({"v": xarray.DataArray(np.ones(3))})
        with pytest.raises(TypeError, match="found Dataset; pass one of its values"):
            dlbridge.from_dlpack(dataset)
        assert dlbridge.from_dlpack(dataset["v"]).tolist() == [1, 1, 1]


def tables(names):
    """A table of float64 with these columns, of each library."""
    columns = {name: [1.5, 2.5] for name in names}
    yield pa.table(columns)
    yield pa.record_batch(columns)
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    yield pandas.DataFrame(columns)
    polars = pytest.importorskip("polars", reason="polars is not installed")
    yield polars.DataFrame(columns)
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    selected = ", ".join(f"x::double as {name}" for name in names)
    yield duckdb.sql(f"select {selected} from (values (1.5), (2.5)) t(x)")


class TestATable:
    def test_of_one_column_is_a_matrix(self):
        """It was a vector, so that a function of a matrix took two columns and refused one."""
        for table in tables(["x"]):
            for options in ({}, {"copy": True}):
                tensor = dlbridge.from_dlpack(table, **options)
                assert (tensor.shape, tensor.tolist()) == ((2, 1), [[1.5], [2.5]])

    def test_of_two_columns_is_refused_with_calls_that_help(self):
        for table in tables(["x", "y"]):
            with pytest.raises(BufferError, match=r"one column, found 2; select one.*x\.df\(\)"):
                dlbridge.from_dlpack(table)
            is_duckdb = hasattr(table, "df")
            matrix = np.asarray(table.df() if is_duckdb else table)
            assert dlbridge.from_dlpack(matrix).shape == (2, 2)
            if not isinstance(table, pa.RecordBatch):
                column = table["x"]
                assert np.ravel(dlbridge.from_dlpack(column).numpy()).tolist() == [1.5, 2.5]

    def test_a_query_of_duckdb_runs_once(self):
        duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
        calls = []

        def counted(x: int) -> int:
            calls.append(x)
            return x

        connection = duckdb.connect()
        kind = duckdb.sqltypes.BIGINT
        connection.create_function("counted", counted, [kind], kind, side_effects=True)
        query = connection.sql("select counted(i) as x from range(4) t(i)")
        assert dlbridge.from_dlpack(query).shape == (4, 1)
        assert len(calls) == 4

    def test_a_row_may_be_a_list(self):
        points = pa.table({"x": pa.array([[1, 2], [3, 4]], pa.list_(pa.int8(), 2))})
        pandas = pytest.importorskip("pandas", reason="pandas is not installed")
        frame = points.to_pandas(types_mapper=pandas.ArrowDtype)
        assert frame.shape == (2, 1)
        for table in (points, frame):
            assert dlbridge.from_dlpack(table).tolist() == [[1, 2], [3, 4]]


class TestAnArrayOfPyarrow:
    """Its `__dlpack__` raises `TypeError` for all but numbers, after which Arrow was not asked."""

    def test_of_lists_of_one_size_is_shared(self):
        for columns in ([[1, 2], [3, 4]], [[[1], [2]], [[3], [4]]]):
            kind = pa.list_(pa.int16(), 2) if columns[0][0] == 1 else None
            kind = kind or pa.list_(pa.list_(pa.int16(), 1), 2)
            array = pa.array(columns, kind)
            tensor = dlbridge.from_dlpack(array)
            assert (tensor.tolist(), tensor.readonly) == (columns, True)
            values = array.flatten()
            values = values if kind.value_type == pa.int16() else values.flatten()
            assert tensor.data_ptr == values.buffers()[1].address

    def test_the_cast_of_the_page_is_taken(self):
        lists = pa.array([[1, 2], [3, 4]])
        with pytest.raises(BufferError, match=r"lists of any size.*x\.cast\(pa\.list_") as refused:
            dlbridge.from_dlpack(lists)
        assert isinstance(refused.value.__cause__, pa.lib.ArrowTypeError)
        cast = lists.cast(pa.list_(pa.float32(), 2))
        assert dlbridge.from_dlpack(cast).tolist() == [[1, 2], [3, 4]]

    def test_a_refusal_names_the_cast_that_helps(self):
        for array, found, fixed in [
            (pa.array([True]), r'x\.cast\("uint8"\)', lambda x: x.cast("uint8")),
            (pa.array([1], pa.date32()), r'"int32" for dates', lambda x: x.cast("int32")),
            (pa.array([1], pa.date64()), r'x\.cast\("int64"\)', lambda x: x.cast("int64")),
            (pa.array([1], pa.timestamp("s")), r'x\.cast\("int64"\)', lambda x: x.cast("int64")),
            (
                pa.array([1], pa.decimal128(5, 2)),
                r'x\.cast\("float64"\)',
                lambda x: x.cast("float64"),
            ),
            (pa.array([1, None]), r"x\.fill_null\(0\)", lambda x: x.fill_null(0)),
            (
                pa.array([7, 8]).dictionary_encode(),
                r"dictionary_decode\(\)",
                lambda x: x.dictionary_decode(),
            ),
        ]:
            with pytest.raises(BufferError, match=found):
                dlbridge.from_dlpack(array)
            assert len(dlbridge.from_dlpack(fixed(array))) == len(array)

    def test_the_exception_of_another_producer_comes_out(self):
        class Broken:
            def __dlpack__(self, **_options):
                raise TypeError("its own")

        with pytest.raises(TypeError, match="its own"):
            dlbridge.from_dlpack(Broken())
