"""Exceptions: one class for each code of pando.h that a program may want to distinguish."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple, Type


class Error(Exception):
    """An operation failed. code: its name in pando.h, without PANDO_."""

    code: str = "INTERNAL"

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else self.code


class InvalidArgumentError(Error, ValueError):
    """An invalid key, value or option."""


class NotFoundError(Error, KeyError):
    """No such key, or no such tree."""


class AlreadyExistsError(Error):
    """The key of an insert exists."""


class DeadlineExceededError(Error, TimeoutError):
    """The timeout passed; the operation had no effect."""


class OutcomeUnknownError(Error):
    """The operation may or may not have had its effect."""


class ResourceExhaustedError(Error):
    """Memory servers are full, or an executor's queue."""


class FailedPreconditionError(Error):
    """Another use of this session, other options of a tree, one that was dropped, or a client that was fenced."""


class ClosedError(FailedPreconditionError):
    """It has been closed, or its client has."""


class ConditionFailedError(FailedPreconditionError):
    """The key does not have the expected value: nothing was changed. actual: its value."""

    actual: Optional[bytes] = None


class UnavailableError(Error, ConnectionError):
    """A memory server is gone, or none answers."""


class DataLossError(Error):
    """Damaged memory, or a memory server that restarted without its data."""


class CancelledError(Error):
    """A load that ended early: nothing was loaded."""


class BatchError(Error):
    """Some operations of a call of many have failed. results: for each what the call would have returned, or its Error."""

    code = "BATCH"

    def __init__(self, results: List[Any]) -> None:
        self.results = results
        self.errors = [result for result in results if isinstance(result, Error)]
        super().__init__(f"{len(self.errors)} of {len(results)} operations failed; the first: {self.errors[0]}")

    def __reduce__(self) -> Tuple[Type["BatchError"], Tuple[List[Any]]]:
        return BatchError, (self.results,)  # so that it can go to another process


_CLASSES: Dict[str, Type[Error]] = {
    "INVALID_ARGUMENT": InvalidArgumentError,
    "NOT_FOUND": NotFoundError,
    "ALREADY_EXISTS": AlreadyExistsError,
    "DEADLINE_EXCEEDED": DeadlineExceededError,
    "OUTCOME_UNKNOWN": OutcomeUnknownError,
    "RESOURCE_EXHAUSTED": ResourceExhaustedError,
    "FAILED_PRECONDITION": FailedPreconditionError,
    "CLOSED": ClosedError,
    "CONDITION_FAILED": ConditionFailedError,
    "UNAVAILABLE": UnavailableError,
    "DATA_LOSS": DataLossError,
    "CANCELLED": CancelledError,
}


def make_error(code: str, message: str, actual: Optional[bytes]) -> Error:
    """The exception for a code of pando.h."""
    error = _CLASSES.get(code, Error)(message)
    error.code = code
    if isinstance(error, ConditionFailedError):
        error.actual = actual
    return error
