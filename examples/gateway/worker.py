"""A worker of the gateway: runs the model over the batches that arrive at its standard input.

That is one end of a channel. The worker reads the memory that the gateway filled, and the gateway
that of the answer.
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


def text(words: str) -> np.ndarray:
    return np.frombuffer(words.encode(), "uint8")


def answer(batch: dlbridge.Message, run: model.Model) -> dict[str, np.ndarray]:
    try:
        return run(np.from_dlpack(batch["x"]))  # no copy
    except Exception as error:  # noqa: BLE001
        # The worker can go on; the clients are told.
        return {"error": text(f"the model failed: {error}")}


def main() -> None:
    # Control-C reaches all processes of a terminal. The gateway answers what it has, then ends this.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(fileno=os.dup(0)) as stdin:
        gateway = dlbridge.Channel(stdin, by_bytes="--bytes" in sys.argv)
    runtime, run = model.load()
    gateway.send({"ready": text(runtime)})
    while True:
        batch = gateway.receive()
        outputs = answer(batch, run)
        gateway.send({"id": batch["id"], **outputs})
        # Its memory, before the next one arrives.
        del batch, outputs


if __name__ == "__main__":
    # The gateway has ended.
    with contextlib.suppress(EOFError, OSError):
        main()
