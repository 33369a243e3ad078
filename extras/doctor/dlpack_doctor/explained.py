"""For each check: the effect of a violation on a user, and the lines that show it.

Lines are for the programs of `reproduce`. A check without lines shows its last call.
"""

from __future__ import annotations

# Checks with the same effect, then those with one of their own.
_SHARED = {
    "Code that follows the standard's wording fails here, and only here.": """
        producer.keyword-only consumer.no-methods""",
    "Consumers of the legacy ABI cannot import the array.": """
        producer.version-unasked producer.version-0.8""",
    "A consumer reads wrong numbers, without an error.": """
        producer.shape producer.values producer.dtypes producer.0-d producer.view-offset
        producer.view-every-second producer.view-transposed producer.view-reversed
        producer.view-flipped producer.shapes producer.view-broadcast consumer.dtypes
        consumer.unknown-dtype consumer.lanes""",
    "The memory of each exchange stays allocated until the process ends.": """
        producer.unconsumed producer.released producer.refusal-leak consumer.releases
        consumer.null-context consumer.refused-released consumer.refused-gpu-released""",
    "Memory is freed twice, which corrupts the heap.": """
        producer.consumed consumer.releases-once consumer.used-capsule""",
    "A consumer reads memory that was freed or reused.": """
        producer.owner-kept producer.copy-kept producer.two-exports consumer.keeps""",
    "The caller requested its own memory, and writes to the producer's array.": """
        producer.copy-true producer.copy-true-old consumer.copy-true""",
    "The caller asked for no copy, and its writes are lost.": """
        producer.copy-false consumer.copy-false""",
    "Each exchange costs a copy, and writes are not seen.": """
        producer.zero-copy consumer.zero-copy""",
    "A consumer that asks for this gets an exception and cannot import the array.": """
        producer.own-device producer.stream-none""",
    "Compiled consumers that use the exchange table see other tensors than Python does.": """
        producer.table-agrees producer.table-borrow""",
    "A consumer reads or writes memory that is not the array's, and may crash.": """
        producer.table-major consumer.other-major consumer.unknown-device consumer.absent-gpu
        consumer.wrong-name consumer.no-capsule""",
    "Arrays of older frameworks cannot be imported.": """
        consumer.old-producer consumer.old-answer""",
    "A legal array is refused, or its numbers are wrong; the caller has to copy it first.": """
        consumer.transposed consumer.gaps consumer.negative consumer.zero consumer.size-1
        consumer.many-axes consumer.0-d consumer.0-d-null consumer.empty
        consumer.large-extents consumer.unaligned""",
}
MEANS = {check: text for text, checks in _SHARED.items() for check in checks.split()} | {
    "producer.factory": "Nothing was checked: the doctor had no array.",
    "producer.methods": "No consumer can import the array.",
    "producer.keywords": "Consumers that pass the keyword get a TypeError, or must call twice.",
    "producer.device": "Consumers that compare device tuples reject the array.",
    "producer.device-agrees": "A consumer chooses its device by the method, and reads the other's.",
    "producer.host-id": "Consumers that compare with (1, 0) reject the array.",
    "producer.version-1": "READ_ONLY and IS_COPIED are lost: consumers may write by mistake.",
    "producer.header": "Consumers reject the tensor, or read fields that are not there.",
    "producer.capsule-name": "A consumer casts the pointer to the wrong struct, and crashes.",
    "producer.abis-agree": "Consumers of one ABI see another tensor than those of the other.",
    "producer.strides": "Consumers that follow the strides crash, or read wrong numbers.",
    "producer.alignment": "Vectorised loads of a consumer crash.",
    "producer.flags": "Consumers misread the tensor, or reject it.",
    "producer.copied-alias": "A consumer writes in place, and changes the producer's array.",
    "producer.empty": "Shapes of empty arrays change on the way.",
    "producer.empty-data": "Consumers that test for NULL do not see that the array is empty.",
    "producer.torch-asarray": "PyTorch reads the buffer before DLPack, and (2, 3) becomes (6,).",
    "producer.byte-offset": "Paddle, ONNX Runtime and others ignore it, and read wrong numbers.",
    "producer.refusal": "Callers that catch BufferError see another exception, or wrong numbers.",
    "producer.read-only": "A consumer writes to memory that must not change, or crashes.",
    "producer.read-only-old": "A consumer of the legacy ABI writes to memory that must not change.",
    "producer.writable": "In-place operations fail on an array that may be written.",
    "producer.deleter": "JAX and ONNX Runtime abort when they release the tensor.",
    "producer.fresh-capsule": "The second consumer is rejected, or frees the first one's memory.",
    "producer.small-leak": "A long-running process grows with every exchange.",
    "producer.exception": "The caller sees another error than the one that was raised.",
    "producer.deleter-thread": "Consumers that release on threads of their own crash.",
    "producer.copied-flag": "Consumers that trust the flag copy a second time, or refuse to write.",
    "producer.other-device": "The caller believes that the memory is on the device it named.",
    "producer.stream-number": "A wrong stream passes without an error.",
    "producer.table": "Compiled consumers call a NULL function, and crash.",
    "producer.table-refusal": "Compiled consumers get arrays that __dlpack__ refuses to export.",
    "producer.table-import": "Arrays made by compiled code leak, or free memory twice.",
    "producer.table-stream": "Compiled consumers queue work on a stream that was never set.",
    "producer.table-allocator": "Compiled code cannot allocate the framework's arrays.",
    "producer.speed": "The price of an export.",
    "consumer.takes": "from_dlpack(x) refuses the arrays of other frameworks.",
    "consumer.keywords": "Producers raise TypeError, or export other memory than expected.",
    "consumer.asks-versioned": "Read-only memory arrives as writable, or is refused.",
    "consumer.new-answer": "Arrays of frameworks without the legacy ABI cannot be imported.",
    "consumer.newer-minor": "The next release of any producer is rejected.",
    "consumer.read-only": "An in-place operation changes, or crashes on, read-only memory.",
    "consumer.leaves-tensor": "The producer's own array changes when it is imported.",
    "consumer.comes-back": "An array that is imported and exported again is a copy.",
    "consumer.null-strides": "Arrays of older frameworks crash the consumer, or are misread.",
    "consumer.byte-offset": "Views of producers that use the field are read from the wrong place.",
    "consumer.deleter-argument": "The producer's deleter frees another object, and crashes.",
    "consumer.renames": "The capsule's destructor can release the tensor a second time.",
    "consumer.null-deleter": "Importing an array of such a producer ends the process.",
    "consumer.twice": "A second import breaks the first.",
    "consumer.refusal": "The caller goes on with None, and fails far from the cause.",
    "consumer.producer-error": "The caller cannot distinguish a refusal from a defect.",
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
    "producer.0-d": "values",
    "producer.refusal": "values",
    "producer.empty": "shape",
    **dict.fromkeys((check for check in MEANS if "view-" in check), "strides"),
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
