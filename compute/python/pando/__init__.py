"""Pando: an ordered index over the memory of memory servers.

    import pando

    with pando.connect("/run/user/1000/pando") as client:
        tree = client.create_tree("words", key_bytes_max=64, value_bytes_max=8)
        with client.session() as session:  # one a thread
            session.put(tree, b"key", b"value")
            session.get(tree, b"key")  # b"value"; None where there is no such key

Keys and values are bytes (and what has a buffer of bytes). Times are seconds. Errors are exceptions: see
pando.errors. What blocks lets other threads run. A session and its cursors serve one thread at a time:
FailedPreconditionError, if another is inside; clients, trees and executors serve all. Whatever is closed says
ClosedError from then on; a client closes all that came of it. pando.Executor gives futures, pando.aio is for asyncio.
"""

from __future__ import annotations

import atexit
import struct
import weakref
from typing import Any, Iterable, List, NamedTuple, Optional, Union

from . import _core
from ._core import Client, Cursor, Session, Tree, open_handles
from .errors import (
    AlreadyExistsError,
    BatchError,
    CancelledError,
    ClosedError,
    ConditionFailedError,
    DataLossError,
    DeadlineExceededError,
    Error,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    OutcomeUnknownError,
    ResourceExhaustedError,
    UnavailableError,
    make_error,
)
from .executor import Executor

__version__: str = _core.version

__all__ = [
    "AlreadyExistsError", "BatchError", "CancelledError", "Client", "ClosedError", "ConditionFailedError", "Cursor",
    "DataLossError", "DeadlineExceededError", "Error", "Executor", "FailedPreconditionError", "InvalidArgumentError",
    "NotFoundError", "OutcomeUnknownError", "ResourceExhaustedError", "Session", "Tree", "UnavailableError", "Write",
    "WriteResult", "connect", "int64", "open_handles", "parse_int64",
]

_core.set_error_factory(make_error)
_clients: "weakref.WeakSet[Client]" = weakref.WeakSet()


@atexit.register
def _close_clients() -> None:
    """Ends the threads of clients that are still open before the interpreter ends."""
    for client in list(_clients):
        client.close()


def connect(registry: str, **options: Any) -> Client:
    """Joins the cluster whose memory servers are found in `registry`: a directory, or memcached://HOST:PORT/CLUSTER.

    Options, with defaults: fabric="shm", secret_file=None, connect_timeout=5.0, operation_timeout=10.0,
    memory_servers_min=1, index_cache_bytes=64 << 20, value_places_bytes=32 << 20, coroutines_per_session=64,
    techniques=0, owner=False, spread_ranges=True, hot_bytes=64 << 20, log_bytes=16 << 20, service_threads=1,
    flush_threads=1, ranges_min=1, dirty_percent=50, lend_after_ms=250, service_address=None, rdma_device=None,
    rdma_port=0, rdma_gid_index=-1.
    pando_c/client.h says what they are. TypeError: another option.
    """
    client = _core.connect(registry, **options)
    _clients.add(client)
    return client


def _create_tree(self: Client, name: str, *, key_bytes_max: int = 8, value_bytes_max: int = 8, node_bytes: int = 0,
                 mode: str = "shared", inline_value_bytes_max: int = 0) -> Tree:
    """Creates the tree if there is none of that name. FailedPreconditionError: it exists with other options.

    Keys have 1 to 255 bytes. Values have up to 65,536; those above inline_value_bytes_max (1 to 254)
    lie outside the leaves, which costs a get one more round trip. 0: if value_bytes_max is above 255, those above 20.
    """
    if mode not in ("shared", "owned"):
        raise ValueError(f"mode is 'shared' or 'owned', not {mode!r}")
    return self._create_tree(name, key_bytes_max, value_bytes_max, node_bytes, mode == "owned", inline_value_bytes_max)


class Write(NamedTuple):
    """One write of Session.write_many(). kind: put, insert, update, erase, replace, erase_if or upsert."""

    kind: str
    key: bytes
    value: bytes = b""  # replace: what is desired; upsert: the operand
    expected: bytes = b""  # replace, erase_if
    function: Union[int, str] = "add"  # upsert


class WriteResult(NamedTuple):
    """The result of one write. value: an upsert's new one; with ConditionFailedError the present one; else b''."""

    error: Optional[Error]
    value: bytes


def _write_many(self: Session, tree: Tree, writes: Iterable[Write], *,
                timeout: Optional[float] = None) -> List[WriteResult]:
    """Many writes, each an operation with its own result, in order; those to one leaf are executed together."""
    return [WriteResult(*result) for result in self._write_many(tree, writes, timeout=timeout)]


# _core.pyi declares them as methods like the others.
setattr(Client, "create_tree", _create_tree)
setattr(Session, "write_many", _write_many)


def int64(number: int) -> bytes:
    """A number as the upsert functions add, min and max store it: 8 bytes, little-endian."""
    return struct.pack("<q", number)


def parse_int64(value: bytes) -> int:
    """The number back from its bytes. struct.error: they are not 8."""
    return int(struct.unpack("<q", value)[0])
