"""The model: two dense layers, run by onnxruntime, or by NumPy where onnxruntime is not installed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

FEATURES, HIDDEN, CLASSES = 256, 32, 10

Model = Callable[[np.ndarray], dict[str, np.ndarray]]
"""From rows of features to `scores` and `labels`."""


def weights() -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    shapes = {
        "w": (FEATURES, HIDDEN),
        "b": HIDDEN,
        "v": (HIDDEN, CLASSES),
        "c": CLASSES,
    }
    return {
        name: random.normal(0, 0.1, shape).astype("f4")
        for name, shape in shapes.items()
    }


def numpy_model() -> Model:
    w, b, v, c = weights().values()

    def run(x: np.ndarray) -> dict[str, np.ndarray]:
        scores = np.maximum(x @ w + b, 0) @ v + c
        return {"scores": scores, "labels": scores.argmax(axis=1)}

    return run


def onnx_model() -> Model:
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Gemm", ["r", "v", "c"], ["scores"]),
        helper.make_node("ArgMax", ["scores"], ["labels"], axis=1, keepdims=0),
    ]
    of = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "classifier",
        [of("x", TensorProto.FLOAT, ["rows", FEATURES])],
        [
            of("scores", TensorProto.FLOAT, ["rows", CLASSES]),
            of("labels", TensorProto.INT64, ["rows"]),
        ],
        [numpy_helper.from_array(array, name) for name, array in weights().items()],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10
    )
    onnx.checker.check_model(model)
    options = onnxruntime.SessionOptions()
    # The gateway has a worker for each core.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = ["scores", "labels"]
    return lambda x: dict(zip(names, session.run(names, {"x": x}), strict=True))


def load() -> tuple[str, Model]:
    """What runs the model, and the model."""
    try:
        return "onnxruntime", onnx_model()
    except ImportError:
        return "NumPy", numpy_model()
