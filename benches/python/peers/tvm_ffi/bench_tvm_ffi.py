"""The paths of the benchmark through apache-tvm-ffi, as it is installed.

It has no compiled function here that reads an element, so these only take the array and drop it.
"""

import tvm_ffi

_nop = tvm_ffi.get_global_func("testing.nop")

nothing = _nop
# The cheapest call of a built-in function: `from_dlpack` has no empty sister in its module.
ignore = id
read = tvm_ffi.from_dlpack
