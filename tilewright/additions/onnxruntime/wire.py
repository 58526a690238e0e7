"""Messages between the provider and the compiler process, as `native/channel.h` writes and reads them.

On the line: u32 kind, u32 count, u64 size of each blob, then the blobs. A tensor is two blobs: element type of ONNX and
sizes as i64, then its bytes.
"""

from __future__ import annotations

import enum
import socket
import struct
from collections.abc import Sequence

import numpy as np
import onnx.helper

from tilewright.errors import InputError

#: Descriptor of the first line in the compiler process.
LINE = 3


class Request(enum.IntEnum):
    """Request codes of the provider, as in `native/channel.h`."""

    HELLO = 1
    CLAIM = 2
    COMPILE = 3
    LOAD = 4
    RUN = 5
    DROP = 6
    OPEN = 7
    PROFILE = 8


OK, ERROR = 0, 1

Blob = bytes | bytearray | memoryview


def receive(line: socket.socket) -> tuple[int, list[memoryview]] | None:
    """The next message: its kind and blobs. None where the other end is gone."""
    head = _read(line, 8)
    if head is None:
        return None
    kind, count = struct.unpack("<II", head)
    sizes = _read(line, 8 * count)
    if sizes is None:
        return None
    blobs = []
    for size in struct.unpack(f"<{count}Q", sizes):
        blob = _read(line, size)
        if blob is None:
            return None
        blobs.append(blob)
    return kind, blobs


def send(line: socket.socket, kind: int, blobs: Sequence[Blob]) -> None:
    """Sends a message. Raises OSError where the other end is gone."""
    sizes = [memoryview(blob).nbytes for blob in blobs]
    line.sendall(struct.pack(f"<II{len(sizes)}Q", kind, len(sizes), *sizes))
    for blob in blobs:
        line.sendall(blob)


def _read(line: socket.socket, size: int) -> memoryview | None:
    found = np.empty(size, np.uint8).data
    at = 0
    while at < size:
        got = line.recv_into(found[at:])
        if not got:
            return None
        at += got
    return found


def tensor(head: memoryview, data: memoryview) -> np.ndarray:
    """The array of a tensor on the line; it shares the memory of `data`. Raises `InputError` if it is none."""
    kind, *shape = np.frombuffer(head, np.int64).tolist()
    try:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind)
        return np.frombuffer(data, dtype).reshape(shape)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"a tensor of element type {kind} and shape {shape} cannot be read: {error}") from None


def blobs_of(array: np.ndarray) -> list[Blob]:
    """A tensor as it goes on the line."""
    head = np.array([onnx.helper.np_dtype_to_tensor_dtype(array.dtype), *array.shape], np.int64)
    return [head.tobytes(), np.ascontiguousarray(array).reshape(-1).view(np.uint8).data]
