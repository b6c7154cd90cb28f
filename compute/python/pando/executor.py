"""Operations from any thread, with futures for their answers.

    with pando.Executor(client) as executor:
        future = executor.get(tree, b"key")  # a concurrent.futures.Future
        future.result()

Answers arrive on one thread of the executor's; callbacks of futures (add_done_callback) run there. One that raises is
logged by concurrent.futures, and nothing else happens. A future cannot be cancelled: its operation is under way.
"""

from __future__ import annotations

import atexit
import itertools
import logging
import threading
import weakref
from concurrent.futures import Future
from typing import Any, Callable, Dict, List, Optional, Tuple, TypeVar, Union

from . import _core
from .errors import NotFoundError

T = TypeVar("T")
Row = Tuple[bytes, bytes]
# What is called with (error or None, value, rows), on the thread of answers.
Sink = Callable[[Optional[BaseException], bytes, List[Row]], None]

GET, PUT, INSERT, UPDATE, ERASE, SCAN, REPLACE, ERASE_IF, UPSERT = range(9)

# Threads of answers that have not ended, with what they take them from.
_running: Dict[threading.Thread, _core.ExecutorCore] = {}


@atexit.register
def _close_all() -> None:
    """Before the interpreter ends: then no thread is left inside of Pando."""
    for thread, core in list(_running.items()):
        _close(core, thread)


class Answers:
    """Submits operations, and hands each answer to its sink. What asyncio and futures have in common.

    Thread-safe. Each accepted operation's sink is called once. close() waits for all of them."""

    def __init__(self, client: _core.Client, workers: int, queue_max: int) -> None:
        self._core = _core.ExecutorCore(client, workers, queue_max)
        self._sinks: Dict[int, Sink] = {}
        self._tokens = itertools.count()
        self._thread = threading.Thread(target=_answer, args=(self._core, self._sinks), name="pando-answers",
                                        daemon=True)
        self._thread.start()
        _running[self._thread] = self._core
        # When it is forgotten the thread of answers closes it behind the last. Nobody waits for that: any thread may
        # collect garbage, also one that holds what a callback waits for.
        weakref.finalize(self, self._core.end).atexit = False

    def close(self) -> None:
        _close(self._core, self._thread)  # the thread ends also where another thread, or the client, closes it

    def submit(self, sink: Sink, kind: int, tree: _core.Tree, key: bytes, value: bytes = b"", expected: bytes = b"",
               function: Union[int, str] = "add", limit: Optional[int] = None, to: Optional[bytes] = None,
               reverse: bool = False, timeout: Optional[float] = None) -> None:
        token = next(self._tokens)
        self._sinks[token] = sink
        try:
            self._core.submit(token, tree, kind, key, value, expected, function, limit, to, reverse, timeout)
        except BaseException:
            self._sinks.pop(token, None)
            raise


def _answer(core: _core.ExecutorCore, sinks: Dict[int, Sink]) -> None:
    while True:
        answers = core.take()
        if not answers:
            break
        for token, error, value, rows in answers:
            try:
                sinks.pop(token)(error, value, rows)
            except BaseException:  # such as SystemExit out of a callback: others still wait for their answers
                logging.getLogger("pando").exception("what an answer was given to has raised")
        del answers, error, value, rows  # not kept until the next ones come
    core.close()
    _running.pop(threading.current_thread(), None)


def _close(core: _core.ExecutorCore, thread: threading.Thread) -> None:
    core.close()
    _join(thread)


def _join(thread: threading.Thread) -> None:
    if thread is not threading.current_thread():
        thread.join()


def value_or_none(error: Optional[BaseException], value: bytes, rows: List[Row]) -> Optional[bytes]:
    if isinstance(error, NotFoundError):
        return None
    if error is not None:
        raise error
    return value


def value_of(error: Optional[BaseException], value: bytes, rows: List[Row]) -> bytes:
    if error is not None:
        raise error
    return value


def rows_of(error: Optional[BaseException], value: bytes, rows: List[Row]) -> List[Row]:
    if error is not None:
        raise error
    return rows


def nothing(error: Optional[BaseException], value: bytes, rows: List[Row]) -> None:
    if error is not None:
        raise error


class Executor:
    """Thread-safe. workers: threads of Pando's with a session each; queue_max: operations that have not ended, more are
    ResourceExhaustedError. Times count from the call. One that is forgotten ends when all has been answered."""

    def __init__(self, client: _core.Client, workers: int = 2, queue_max: int = 64 << 10) -> None:
        self._answers = Answers(client, workers, queue_max)

    def close(self) -> None:
        """Waits until all has been answered."""
        self._answers.close()

    def __enter__(self) -> "Executor":
        return self

    def __exit__(self, *args: object) -> None:
        self.close()

    def get(self, tree: _core.Tree, key: bytes, *, timeout: Optional[float] = None) -> "Future[Optional[bytes]]":
        return self._submit(value_or_none, GET, tree, key, timeout=timeout)

    def put(self, tree: _core.Tree, key: bytes, value: bytes, *, timeout: Optional[float] = None) -> "Future[None]":
        return self._submit(nothing, PUT, tree, key, value, timeout=timeout)

    def insert(self, tree: _core.Tree, key: bytes, value: bytes, *, timeout: Optional[float] = None) -> "Future[None]":
        return self._submit(nothing, INSERT, tree, key, value, timeout=timeout)

    def update(self, tree: _core.Tree, key: bytes, value: bytes, *, timeout: Optional[float] = None) -> "Future[None]":
        return self._submit(nothing, UPDATE, tree, key, value, timeout=timeout)

    def erase(self, tree: _core.Tree, key: bytes, *, timeout: Optional[float] = None) -> "Future[None]":
        return self._submit(nothing, ERASE, tree, key, timeout=timeout)

    def replace(self, tree: _core.Tree, key: bytes, expected: bytes, desired: bytes, *,
                timeout: Optional[float] = None) -> "Future[None]":
        return self._submit(nothing, REPLACE, tree, key, desired, expected, timeout=timeout)

    def erase_if(self, tree: _core.Tree, key: bytes, expected: bytes, *,
                 timeout: Optional[float] = None) -> "Future[None]":
        return self._submit(nothing, ERASE_IF, tree, key, b"", expected, timeout=timeout)

    def upsert(self, tree: _core.Tree, key: bytes, function: Union[int, str], operand: bytes, *,
               timeout: Optional[float] = None) -> "Future[bytes]":
        return self._submit(value_of, UPSERT, tree, key, operand, function=function, timeout=timeout)

    def scan(self, tree: _core.Tree, start: bytes = b"", to: Optional[bytes] = None, *, limit: Optional[int] = None,
             reverse: bool = False, timeout: Optional[float] = None) -> "Future[List[Row]]":
        return self._submit(rows_of, SCAN, tree, start, to=to, limit=limit, reverse=reverse, timeout=timeout)

    def _submit(self, outcome: Callable[[Optional[BaseException], bytes, List[Row]], T], *args: Any,
                **options: Any) -> "Future[T]":
        future: "Future[T]" = Future()
        future.set_running_or_notify_cancel()

        def sink(error: Optional[BaseException], value: bytes, rows: List[Row]) -> None:
            try:
                result = outcome(error, value, rows)
            except BaseException as raised:
                future.set_exception(raised)
            else:
                future.set_result(result)

        self._answers.submit(sink, *args, **options)
        return future
