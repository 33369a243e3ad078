"""Calls Rust functions in the worker processes of Dask, and checks that they copy no block.

Dask creates the matrix in blocks of rows, each in a worker, so no process holds all of it. Rust
reads a block and returns its result without a copy. Data that moves between processes is pickled,
as always in Dask.
"""

import os

import dask
import dask.array as da
import dlbridge
import dlbridge_example as example
import numpy as np
from dask.distributed import LocalCluster

ROWS, COLUMNS = 4_000, 256
CHUNKS = ((500,) * 8, (COLUMNS,))


def make_block(block_info=None):
    """Some rows of the matrix, created in the worker that needs them."""
    (first, last), _ = block_info[None]["array-location"]
    numbers = np.arange(first * COLUMNS, last * COLUMNS, dtype="float32")
    return (numbers % 1000).reshape(last - first, COLUMNS)


def scaled_sums(block):
    """The part of the work that is done in Rust: two calls, over NumPy's memory."""
    return example.row_sums(example.scale(block, 0.5))


def whose_memory(block):
    """What Rust sees of a block: the process, and whether it is NumPy's own memory."""
    tensor = dlbridge.from_dlpack(block)
    converted = example.convert(block, tensor)  # as an array again
    same = block.ctypes.data == tensor.data_ptr == converted.ctypes.data
    return os.getpid(), same, block.nbytes


def main():
    cluster = LocalCluster(n_workers=2, dashboard_address=None)
    with cluster, cluster.get_client() as client:
        # The blocks stay in the workers.
        matrix = da.map_blocks(make_block, chunks=CHUNKS, dtype="float32").persist()

        looks = [
            dask.delayed(whose_memory)(block) for block in matrix.to_delayed().flat
        ]
        seen = client.compute(looks, sync=True)
        workers = {process for process, _, _ in seen}
        assert os.getpid() not in workers
        assert all(same for _, same, _ in seen)
        total = sum(nbytes for _, _, nbytes in seen)
        print(f"{len(seen)} blocks in {len(workers)} workers, {total:,} bytes in all:")
        print("    each went into Rust and out again over NumPy's own memory")

        sums = matrix.map_blocks(scaled_sums, drop_axis=1, dtype="float32").compute()
        print(f"{sums.nbytes:,} bytes of results came to this process, pickled")

    everything = np.arange(ROWS * COLUMNS, dtype="float32") % 1000
    expected = 0.5 * everything.reshape(ROWS, COLUMNS).sum(axis=1)
    np.testing.assert_array_equal(sums, expected)
    print("the sums are NumPy's")


if __name__ == "__main__":
    main()
