"""A worker of the gateway: runs the model over the batches that arrive at its standard input.

That is one end of a Unix socket. A batch is a sealed file with the tensor `x`; the answer is another
one with the tensors `scores` and `labels`. The worker reads the pages that the gateway wrote, and
the gateway those of the answer.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys

import dlbridge
import model
import numpy as np


def receive(gateway: socket.socket) -> dlbridge.SealedTensors | None:
    """The next batch; none when the gateway has ended."""
    _, descriptors, _, _ = socket.recv_fds(gateway, 1, 1)
    if not descriptors:
        return None
    try:
        return dlbridge.open_sealed(descriptors[0])
    finally:
        os.close(descriptors[0])


def send(gateway: socket.socket, sealed: dlbridge.SealedTensors) -> None:
    # From here on the kernel keeps the file for the gateway.
    socket.send_fds(gateway, [b"."], [sealed.fileno()])


def answer(batch: dlbridge.SealedTensors, run: model.Model) -> dlbridge.SealedTensors:
    metadata = {"id": batch.metadata["id"]}
    try:
        outputs = run(np.from_dlpack(batch["x"]))  # no copy
    except Exception as error:  # noqa: BLE001
        # The worker can go on; the clients are told.
        return dlbridge.seal(
            {}, metadata={**metadata, "error": f"the model failed: {error}"}
        )
    return dlbridge.seal(outputs, metadata=metadata)


def main() -> None:
    # Control-C reaches all processes of a terminal. The gateway answers what it has, then ends this.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gateway = socket.socket(fileno=os.dup(0))
    runtime, run = model.load()
    send(gateway, dlbridge.seal({}, metadata={"ready": runtime}))
    if "--bytes" in sys.argv:
        return by_bytes(gateway, run)
    while (batch := receive(gateway)) is not None:
        send(gateway, answer(batch, run))
        # Its memory, before the next one arrives.
        del batch


def by_bytes(gateway: socket.socket, run: model.Model) -> None:
    """The same without shared memory, to compare."""
    stream = gateway.makefile("rb")
    while size := stream.read(8):
        x = bytearray(int.from_bytes(size, "little"))
        stream.readinto(x)
        outputs = run(np.frombuffer(x, "f4").reshape(-1, model.FEATURES))
        for array in outputs.values():
            gateway.sendall(array.nbytes.to_bytes(8, "little"))
            gateway.sendall(np.ascontiguousarray(array).data)


if __name__ == "__main__":
    # The gateway has ended, in the middle of a batch.
    with contextlib.suppress(ConnectionError):
        main()
