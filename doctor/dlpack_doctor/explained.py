"""For each check: the effect of a violation on a user, and the lines that show it.

Lines are for the programs of `reproduce`. A check without lines shows its last call.
"""

from __future__ import annotations

WRONG = "A consumer reads wrong numbers, without an error."
CRASH = "A consumer reads or writes memory that is not the array's, and may crash."
LEAK = "The memory of each exchange stays allocated until the process ends."
FREED = "A consumer reads memory that was freed or reused."
TWICE = "Memory is freed twice, which corrupts the heap."
STALE = "A consumer that asks for this gets an exception and cannot import the array."
COPY = "The caller requested its own memory, and writes to the producer's array."
LOST = "A legal array is refused, or its numbers are wrong; the caller has to copy it first."
TABLE = "Compiled consumers that use the exchange table see other tensors than Python does."
RULES = "Code that follows the standard's wording fails here, and only here."

MEANS = {
    "producer.factory": "Nothing was checked: the doctor had no array.",
    "producer.methods": "No consumer can import the array.",
    "producer.keywords": "Consumers that pass the keyword get a TypeError, or must call twice.",
    "producer.keyword-only": RULES,
    "producer.device": "Consumers that compare device tuples reject the array.",
    "producer.device-agrees": "A consumer chooses its device by the method, and reads the other's.",
    "producer.host-id": "Consumers that compare with (1, 0) reject the array.",
    "producer.version-unasked": "Consumers of the legacy ABI cannot import the array.",
    "producer.version-0.8": "Consumers of the legacy ABI cannot import the array.",
    "producer.version-1": "READ_ONLY and IS_COPIED are lost: consumers may write by mistake.",
    "producer.header": "Consumers reject the tensor, or read fields that are not there.",
    "producer.capsule-name": "A consumer casts the pointer to the wrong struct, and crashes.",
    "producer.shape": WRONG,
    "producer.values": WRONG,
    "producer.abis-agree": "Consumers of one ABI see another tensor than those of the other.",
    "producer.strides": "Consumers that follow the strides crash, or read wrong numbers.",
    "producer.dtypes": WRONG,
    "producer.alignment": "Vectorised loads of a consumer crash.",
    "producer.flags": "Consumers misread the tensor, or reject it.",
    "producer.copied-alias": "A consumer writes in place, and changes the producer's array.",
    "producer.rank-0": WRONG,
    "producer.empty": "Shapes of empty arrays change on the way.",
    "producer.empty-data": "Consumers that test for NULL do not see that the array is empty.",
    "producer.view-offset": WRONG,
    "producer.view-every-second": WRONG,
    "producer.view-transposed": WRONG,
    "producer.view-reversed": WRONG,
    "producer.view-broadcast": WRONG,
    "producer.byte-offset": "Paddle, ONNX Runtime and others ignore it, and read wrong numbers.",
    "producer.refusal": "Callers that catch BufferError see another exception, or wrong numbers.",
    "producer.read-only": "A consumer writes to memory that must not change, or crashes.",
    "producer.read-only-old": "A consumer of the legacy ABI writes to memory that must not change.",
    "producer.writable": "In-place operations fail on an array that may be written.",
    "producer.deleter": "JAX and ONNX Runtime abort when they release the tensor.",
    "producer.unconsumed": LEAK,
    "producer.consumed": TWICE,
    "producer.owner-kept": FREED,
    "producer.copy-kept": FREED,
    "producer.fresh-capsule": "The second consumer is rejected, or frees the first one's memory.",
    "producer.released": LEAK,
    "producer.small-leak": "A long-running process grows with every exchange.",
    "producer.refusal-leak": LEAK,
    "producer.two-exports": FREED,
    "producer.deleter-thread": "Consumers that release on threads of their own crash.",
    "producer.copy-true": COPY,
    "producer.copied-flag": "Consumers that trust the flag copy a second time, or refuse to write.",
    "producer.copy-true-old": COPY,
    "producer.copy-false": "The caller asked for no copy, and its writes are lost.",
    "producer.zero-copy": "Each exchange costs a copy, and writes are not seen.",
    "producer.own-device": STALE,
    "producer.other-device": "The caller believes that the memory is on the device it named.",
    "producer.stream-none": STALE,
    "producer.stream-number": "A wrong stream passes without an error.",
    "producer.table": "Compiled consumers call a NULL function, and crash.",
    "producer.table-agrees": TABLE,
    "producer.table-borrow": TABLE,
    "producer.table-refusal": "Compiled consumers get arrays that __dlpack__ refuses to export.",
    "producer.table-import": "Arrays made by compiled code leak, or free memory twice.",
    "producer.table-major": CRASH,
    "producer.table-stream": "Compiled consumers queue work on a stream that was never set.",
    "producer.table-allocator": "Compiled code cannot allocate the framework's arrays.",
    "producer.speed": "The price of an export.",
    "consumer.takes": "from_dlpack(x) refuses the arrays of other frameworks.",
    "consumer.keywords": "Producers raise TypeError, or export other memory than expected.",
    "consumer.asks-versioned": "Read-only memory arrives as writable, or is refused.",
    "consumer.old-producer": "Arrays of older frameworks cannot be imported.",
    "consumer.old-answer": "Arrays of older frameworks cannot be imported.",
    "consumer.new-answer": "Arrays of frameworks without the legacy ABI cannot be imported.",
    "consumer.newer-minor": "The next release of any producer is rejected.",
    "consumer.read-only": "An in-place operation changes, or crashes on, read-only memory.",
    "consumer.zero-copy": "Each exchange costs a copy, and writes are not seen.",
    "consumer.copy-true": COPY,
    "consumer.leaves-tensor": "The producer's own array changes when it is imported.",
    "consumer.comes-back": "An array that is imported and exported again is a copy.",
    "consumer.transposed": LOST,
    "consumer.gaps": LOST,
    "consumer.negative": LOST,
    "consumer.zero": LOST,
    "consumer.size-1": LOST,
    "consumer.many-axes": LOST,
    "consumer.rank-0": LOST,
    "consumer.rank-0-null": LOST,
    "consumer.empty": LOST,
    "consumer.null-strides": "Arrays of older frameworks crash the consumer, or are misread.",
    "consumer.byte-offset": "Views of producers that use the field are read from the wrong place.",
    "consumer.unaligned": LOST,
    "consumer.dtypes": WRONG,
    "consumer.unknown-dtype": WRONG,
    "consumer.lanes": WRONG,
    "consumer.releases": LEAK,
    "consumer.deleter-argument": "The producer's deleter frees another object, and crashes.",
    "consumer.releases-once": TWICE,
    "consumer.null-context": LEAK,
    "consumer.keeps": FREED,
    "consumer.renames": "The capsule's destructor can release the tensor a second time.",
    "consumer.used-capsule": TWICE,
    "consumer.null-deleter": "Importing an array of such a producer ends the process.",
    "consumer.twice": "A second import breaks the first.",
    "consumer.other-major": CRASH,
    "consumer.unknown-device": CRASH,
    "consumer.absent-gpu": CRASH,
    "consumer.refused-released": LEAK,
    "consumer.refused-gpu-released": LEAK,
    "consumer.producer-error": "The caller cannot distinguish a refusal from a defect.",
    "consumer.no-methods": RULES,
    "consumer.wrong-name": CRASH,
    "consumer.no-capsule": CRASH,
    "consumer.speed": "The price of an import.",
}

_COUNT = "import sys; before = sys.getrefcount(x)\n{call}\nprint(sys.getrefcount(x) - before)"
_SLOTS = (
    "at = c.PYFUNCTYPE(c.c_void_p, c.py_object, c.c_char_p)(('PyCapsule_GetPointer', c.pythonapi))"
    "(type(x).__dlpack_c_exchange_api__, b'dlpack_exchange_api')\n"
    "slots = struct.unpack('IIQQQQQQ', c.string_at(at, 56))  # version, prev, allocator, from_py, "
    "to_py, borrow, stream\n"
)
_RAW = (
    "data, free = c.create_string_buffer(64), c.CFUNCTYPE(None, c.c_void_p)(print)\n"
    "raw = c.create_string_buffer(struct.pack('IIQQQQiiiBBHQQQ', {major}, 0, 0, "
    "c.cast(free, c.c_void_p).value, 0, c.addressof(data), 1, 0, 0, 2, 32, 1, 0, 0, 0))\n"
    "out = c.py_object(); print(c.PYFUNCTYPE(c.c_int, c.c_void_p, c.c_void_p)(slots[5])"
    "(c.addressof(raw), c.addressof(out)), out)"
)
_STUB = (
    "class P: __dlpack_device__ = lambda s: (1, 0); __dlpack__ = lambda s, {parameters}: {answer}"
)

SHOWS = {
    "producer.factory": "print(x)",
    "producer.methods": "print(hasattr(x, '__dlpack__'), hasattr(x, '__dlpack_device__'))",
    "producer.keyword-only": "print(x.__dlpack__(None))",
    "producer.device": "print(x.__dlpack_device__())",
    "producer.shape": "shape",
    "producer.strides": "strides",
    "producer.values": "values",
    "producer.rank-0": "values",
    "producer.refusal": "values",
    "producer.empty": "shape",
    "producer.view-offset": "strides",
    "producer.view-every-second": "strides",
    "producer.view-transposed": "strides",
    "producer.view-reversed": "strides",
    "producer.view-broadcast": "strides",
    "producer.unconsumed": _COUNT,
    "producer.refusal-leak": "import sys; before = sys.getrefcount(x)\n"
    "try: x.__dlpack__(dl_device=(9, 0))\n"
    "except BufferError: print(sys.getrefcount(x) - before)",
    "producer.fresh-capsule": "a, b = x.__dlpack__(), x.__dlpack__()\nprint(a is b)",
    "producer.table": _SLOTS + "print(slots)",
    "producer.table-agrees": _SLOTS + "print(slots)",
    "producer.table-import": _SLOTS + _RAW.replace("{major}", "1"),
    "producer.table-major": _SLOTS + _RAW.replace("{major}", "2"),
    "producer.table-stream": _SLOTS + "out = c.c_void_p(1); "
    "print(c.PYFUNCTYPE(c.c_int, c.c_int, c.c_int, c.c_void_p)(slots[7])"
    "(1, 0, c.addressof(out)), out)",
    "consumer.old-producer": "import numpy as np\n"
    + _STUB.format(parameters="stream=None", answer="np.arange(3.0).__dlpack__()"),
    "consumer.producer-error": "def refuse(): raise BufferError('refused')\n"
    + _STUB.format(parameters="**k", answer="refuse()"),
    "consumer.no-methods": "class P: pass",
    "consumer.no-capsule": _STUB.format(parameters="**k", answer="42"),
}
