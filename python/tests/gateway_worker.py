"""A hostile worker for `test_gateway`: `FAULT` names what is wrong with its answers."""

import os
import socket
import sys
import time

import numpy as np

import dlbridge

FAULT = os.environ["FAULT"]

stdin = socket.socket(fileno=0)
gateway = dlbridge.Channel(stdin)


def text(words):
    return np.frombuffer(words.encode(), "uint8")


gateway.send({"ready": text("a fault")})
while True:
    batch = gateway.receive()
    count = len(batch["x"])
    outputs = {"scores": np.zeros((count, 10), "f4"), "labels": np.zeros(count, "i8")}
    outputs["id"] = batch["id"]
    match FAULT:
        case "bytes":
            stdin.send(b"\xff" * 4096)
        case "file":
            # A frame of a new slot, whose descriptor is no memory file.
            head = b"".join(number.to_bytes(4, "little") for number in (3, 0, 0, 1)) + bytes(16)
            socket.send_fds(stdin, [head], [os.open(__file__, os.O_RDONLY)])
        case "exit":
            sys.exit()
        case "silent":
            time.sleep(600)
        case "dtype":
            outputs["scores"] = np.zeros((count, 10))
        case "shape":
            outputs["scores"] = np.zeros((count + 1, 10), "f4")
        case "missing":
            del outputs["labels"]
        case "id":
            outputs["id"] = np.zeros(1, "i8")
        case "error":
            outputs = {"id": batch["id"], "error": text("the model failed: why")}
    if FAULT not in ("bytes", "file"):
        gateway.send(outputs)
