"""The paths of the benchmark through apache-tvm-ffi, as it is installed.

It has no compiled function here that reads an element, so these only take the array and drop it.
"""

import tvm_ffi

_nop = tvm_ffi.get_global_func("testing.nop")

nothing = _nop
# The cheapest call of a built-in function: `from_dlpack` has no empty sister in its module.
ignore = id
read = tvm_ffi.from_dlpack
# Arguments of a registered function are borrowed for the call.
read_borrowed = _nop

# What is subtracted where `ignore` would not do: a function and its arguments.
EMPTY = {"read_borrowed": (_nop, (1.5,))}
