"""A hostile worker for `test_gateway`: `FAULT` names what is wrong with its answers."""

import os
import socket
import sys
import time

import numpy as np

import dlbridge

FAULT = os.environ["FAULT"]

gateway = socket.socket(fileno=0)


def send(file):
    descriptor = file if isinstance(file, int) else file.fileno()
    socket.send_fds(gateway, [b"."], [descriptor])


send(dlbridge.seal({}, metadata={"ready": "a fault"}))
while descriptors := socket.recv_fds(gateway, 1, 1)[1]:
    batch = dlbridge.open_sealed(descriptors[0])
    os.close(descriptors[0])
    count = len(batch["x"])
    outputs = {"scores": np.zeros((count, 10), "f4"), "labels": np.zeros(count, "i8")}
    metadata = {"id": batch.metadata["id"]}
    match FAULT:
        case "unsealed":
            send(os.memfd_create("x", os.MFD_ALLOW_SEALING))
        case "file":
            send(os.open(__file__, os.O_RDONLY))
        case "device":
            send(os.open("/dev/zero", os.O_RDONLY))
        case "header":
            import fcntl

            file = os.memfd_create("x", os.MFD_ALLOW_SEALING)
            os.write(file, b"\xff" * 4096)
            fcntl.fcntl(file, fcntl.F_ADD_SEALS, 15)
            send(file)
        case "none":
            gateway.send(b".")
        case "exit":
            sys.exit()
        case "silent":
            time.sleep(600)
        case "error":
            send(dlbridge.seal({}, metadata={**metadata, "error": "the model failed: why"}))
        case _:
            if FAULT == "dtype":
                outputs["scores"] = np.zeros((count, 10))
            elif FAULT == "shape":
                outputs["scores"] = np.zeros((count + 1, 10), "f4")
            elif FAULT == "missing":
                del outputs["labels"]
            elif FAULT == "id":
                metadata["id"] = "another"
            send(dlbridge.seal(outputs, metadata=metadata))
