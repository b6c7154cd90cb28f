"""Pando for asyncio.

    async with pando.aio.Executor(client) as executor:
        await executor.put(tree, b"key", b"value")
        await executor.get(tree, b"key")

Operations never block the loop: Pando's worker threads run them and pass their answers to the loop that awaits them, many
at a time. Cancelling a task does not cancel its operation, which goes on unheard. Functions that open and close
(pando.connect, create_tree, close) block: call them with asyncio.to_thread().
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any, Callable, Dict, List, Optional, Tuple, TypeVar, Union

from . import _core
from . import executor as _executor

T = TypeVar("T")
Row = Tuple[bytes, bytes]


class _Mailbox:
    """What is to be done on a loop's thread, which is woken once for many."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lock = threading.Lock()
        self._waiting: List[Callable[[], None]] = []

    def post(self, job: Callable[[], None]) -> None:
        with self._lock:
            self._waiting.append(job)
            if len(self._waiting) > 1:
                return  # it has been woken already
        try:
            self._loop.call_soon_threadsafe(self._run)
        except RuntimeError:
            with self._lock:  # the loop has been closed, with all that waited there
                self._waiting.clear()

    def _run(self) -> None:
        with self._lock:
            jobs, self._waiting = self._waiting, []
        for job in jobs:
            job()


class Executor:
    """As pando.Executor, with coroutines. One may serve the loops of several threads."""

    def __init__(self, client: _core.Client, workers: int = 2, queue_max: int = 64 << 10) -> None:
        self._answers = _executor.Answers(client, workers, queue_max)
        self._mailboxes: Dict[asyncio.AbstractEventLoop, _Mailbox] = {}

    async def aclose(self) -> None:
        """Waits, without blocking the loop, until all operations have ended."""
        await asyncio.get_running_loop().run_in_executor(None, self._answers.close)

    async def __aenter__(self) -> "Executor":
        return self

    async def __aexit__(self, *args: object) -> None:
        await self.aclose()

    async def get(self, tree: _core.Tree, key: bytes, *, timeout: Optional[float] = None) -> Optional[bytes]:
        return await self._submit(_executor.value_or_none, _executor.GET, tree, key, timeout=timeout)

    async def put(self, tree: _core.Tree, key: bytes, value: bytes, *, timeout: Optional[float] = None) -> None:
        await self._submit(_executor.nothing, _executor.PUT, tree, key, value, timeout=timeout)

    async def insert(self, tree: _core.Tree, key: bytes, value: bytes, *, timeout: Optional[float] = None) -> None:
        await self._submit(_executor.nothing, _executor.INSERT, tree, key, value, timeout=timeout)

    async def update(self, tree: _core.Tree, key: bytes, value: bytes, *, timeout: Optional[float] = None) -> None:
        await self._submit(_executor.nothing, _executor.UPDATE, tree, key, value, timeout=timeout)

    async def erase(self, tree: _core.Tree, key: bytes, *, timeout: Optional[float] = None) -> None:
        await self._submit(_executor.nothing, _executor.ERASE, tree, key, timeout=timeout)

    async def replace(self, tree: _core.Tree, key: bytes, expected: bytes, desired: bytes, *,
                      timeout: Optional[float] = None) -> None:
        await self._submit(_executor.nothing, _executor.REPLACE, tree, key, desired, expected, timeout=timeout)

    async def erase_if(self, tree: _core.Tree, key: bytes, expected: bytes, *, timeout: Optional[float] = None) -> None:
        await self._submit(_executor.nothing, _executor.ERASE_IF, tree, key, b"", expected, timeout=timeout)

    async def upsert(self, tree: _core.Tree, key: bytes, function: Union[int, str], operand: bytes, *,
                     timeout: Optional[float] = None) -> bytes:
        return await self._submit(_executor.value_of, _executor.UPSERT, tree, key, operand, function=function,
                                  timeout=timeout)

    async def scan(self, tree: _core.Tree, start: bytes = b"", to: Optional[bytes] = None, *,
                   limit: Optional[int] = None, reverse: bool = False, timeout: Optional[float] = None) -> List[Row]:
        return await self._submit(_executor.rows_of, _executor.SCAN, tree, start, to=to, limit=limit, reverse=reverse,
                                  timeout=timeout)

    def _submit(self, outcome: Callable[[Optional[BaseException], bytes, List[Row]], T], *args: Any,
                **options: Any) -> "asyncio.Future[T]":
        loop = asyncio.get_running_loop()
        mailbox = self._mailboxes.get(loop)
        if mailbox is None:
            self._mailboxes = {known: box for known, box in list(self._mailboxes.items()) if not known.is_closed()}
            mailbox = self._mailboxes.setdefault(loop, _Mailbox(loop))
        future: "asyncio.Future[T]" = loop.create_future()

        def answer(error: Optional[BaseException], value: bytes, rows: List[Row]) -> None:
            if future.done():
                return  # it was cancelled
            try:
                result = outcome(error, value, rows)
            except BaseException as raised:
                future.set_exception(raised)
            else:
                future.set_result(result)

        box = mailbox
        self._answers.submit(lambda error, value, rows: box.post(lambda: answer(error, value, rows)), *args, **options)
        return future
