"""A tensor transport of Ray: by handle within a node, as bytes over TCP between nodes.

>>> import dlbridge.ray  # doctest: +SKIP
>>> dlbridge.ray.register()  # doctest: +SKIP

Methods of actors that are created later take `@ray.method(tensor_transport="dlbridge")`. The
interface of Ray that this module implements is alpha.
"""

from __future__ import annotations

import dataclasses
import importlib
import secrets
import socket
import threading
from typing import Any

import ray
from ray.experimental import register_tensor_transport
from ray.experimental.rdt.tensor_transport_manager import (
    CommunicatorMetadata,
    TensorTransportManager,
    TensorTransportMetadata,
)

from dlbridge._native import Channel, SealedTensors, Tensor, open_handle, seal

NAME = "DLBRIDGE"
KEY = 32
# A peer that says nothing.
PATIENCE = 30.0


def register(data_type: type = SealedTensors) -> None:
    """Register the transport in this process, before it creates the actors that use it.

    `data_type` is the class of what methods return: `SealedTensors`, which are not copied, or an
    array (`dlbridge.Tensor`, `numpy.ndarray`, `torch.Tensor`), which is copied into sealed memory
    once. A receiver on the same node reads that memory, one on another node a copy of its own.
    """
    register_tensor_transport(NAME, ["cpu"], Transport, data_type)


@dataclasses.dataclass
class Metadata(TensorTransportMetadata):  # type: ignore[misc]
    """Where the tensors of an object are."""

    node: str = ""
    # One for each `SealedTensors`, or one for all arrays.
    handles: list[bytes] = dataclasses.field(default_factory=list)
    # The names and texts of each, for a reader on another node.
    contents: list[tuple[list[str], dict[str, str]]] = dataclasses.field(default_factory=list)
    largest: int = 0
    address: tuple[str, int] = ("", 0)
    key: bytes = b""
    # The package whose `from_dlpack` makes the arrays; none for `SealedTensors`.
    package: str = ""


class Transport(TensorTransportManager):  # type: ignore[misc]
    """What Ray asks of a transport. Only the receiver acts."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: dict[str, tuple[list[SealedTensors], Metadata]] = {}
        self._server: _Server | None = None

    def tensor_transport_backend(self) -> str:
        return NAME

    @staticmethod
    def is_one_sided() -> bool:
        return True

    @staticmethod
    def can_abort_transport() -> bool:
        return True

    def actor_has_tensor_transport(self, actor: object) -> bool:
        return True

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> Metadata:
        """Seal what a method returned, unless it is sealed."""
        with self._lock:
            # Ray asks again where an answer was lost.
            if obj_id not in self._made:
                self._made[obj_id] = self._make(rdt_object)
            return self._made[obj_id][1]

    def _make(self, values: list[Any]) -> tuple[list[SealedTensors], Metadata]:
        package = ""
        if values and not isinstance(values[0], SealedTensors):
            package = type(values[0]).__module__.partition(".")[0]
            sealed = [seal({str(i): value for i, value in enumerate(values)})]
            meta = [(value.shape, value.dtype) for value in values]
        else:
            sealed = values
            meta = [((value.nbytes,), "uint8") for value in values]
        if self._server is None:
            self._server = _Server()
        metadata = Metadata(
            tensor_meta=meta,
            tensor_device="cpu",
            node=ray.get_runtime_context().get_node_id(),
            handles=[one.handle() for one in sealed],
            contents=[(one.keys(), one.metadata) for one in sealed],
            largest=max((one.nbytes for one in sealed), default=0),
            address=self._server.address,
            key=self._server.add(sealed),
            package=package,
        )
        return sealed, metadata

    def get_communicator_metadata(
        self, src_actor: object, dst_actor: object, backend: str | None = None
    ) -> CommunicatorMetadata:
        return CommunicatorMetadata()

    def recv_multiple_tensors(
        self,
        obj_id: str,
        tensor_transport_metadata: Metadata,
        communicator_metadata: CommunicatorMetadata,
        target_buffers: list[Any] | None = None,
    ) -> list[Any]:
        """Open the handles on the same node, receive bytes on another one."""
        found = tensor_transport_metadata
        if target_buffers:
            message = "expected no target buffers, since tensors are read where they are"
            raise ValueError(f"{message}; copy them: buffer.copy_(tensor)")
        if not found.tensor_meta:
            return []
        if found.node == ray.get_runtime_context().get_node_id():
            sealed = [open_handle(handle) for handle in found.handles]
            if not found.package:
                return sealed
            tensors = list(sealed[0].tensors().values())
        else:
            received = _receive(found)
            if not found.package:
                return [seal(named, metadata=texts) for named, texts in received]
            tensors = list(received[0][0].values())
        from_dlpack = importlib.import_module(found.package).from_dlpack
        return [from_dlpack(tensor) for tensor in tensors]

    def send_multiple_tensors(self, *_: object) -> None:
        raise NotImplementedError("the receiver opens handles, and no sender acts")

    def garbage_collect(self, obj_id: str, *_: object) -> None:
        """Revoke the handles: tensors that were received stay valid."""
        with self._lock:
            made = self._made.pop(obj_id, None)
            if made is not None and self._server is not None:
                self._server.remove(made[1].key)

    def abort_transport(self, *_: object) -> None:
        """Nothing waits: a receiver has an error when its sender is gone."""


class _Server:
    """Sends the tensors of this process as bytes to those that have their key."""

    def __init__(self) -> None:
        self._made: dict[bytes, list[SealedTensors]] = {}
        self._listener = socket.create_server((ray.util.get_node_ip_address(), 0))
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        threading.Thread(target=self._serve, daemon=True).start()

    def add(self, sealed: list[SealedTensors]) -> bytes:
        key = secrets.token_bytes(KEY)
        self._made[key] = sealed
        return key

    def remove(self, key: bytes) -> None:
        self._made.pop(key, None)

    def _serve(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            connection.settimeout(PATIENCE)
            with connection.makefile("rb") as stream:
                key = stream.read(KEY)
            made = self._made.get(key)
            if made:
                channel = Channel(connection, limit=max(sealed.nbytes for sealed in made))
                for sealed in made:
                    for name, tensor in sealed.tensors().items():
                        channel.send({name: tensor})


def _receive(found: Metadata) -> list[tuple[dict[str, Tensor], dict[str, str]]]:
    """The tensors of another node, each in a message of its own."""
    with socket.create_connection(found.address, PATIENCE) as connection:
        connection.sendall(found.key)
        channel = Channel(connection, limit=found.largest)
    try:
        return [
            ({name: channel.receive()[name] for name in names}, texts)
            for names, texts in found.contents
        ]
    except EOFError:
        message = (
            "expected tensors of an actor that is alive, found none: it has ended, or freed them"
        )
        raise ValueError(message) from None
