# The module over pando.h. Times are seconds; None: the client's operation_timeout.
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple, TypedDict, Union
from types import TracebackType

from . import Write, WriteResult

Bytes = Union[bytes, bytearray, memoryview]
Row = Tuple[bytes, bytes]

version: str

def set_error_factory(factory: Callable[[str, str, Optional[bytes]], Exception]) -> None: ...
def connect(registry: str, **options: Any) -> Client: ...
def open_handles() -> int:
    """The number of open handles of pando.h in this process: for tests that look for leaks."""

class TreeInfo(TypedDict):
    name: str
    key_bytes_max: int
    value_bytes_max: int
    node_bytes: int
    mode: str
    inline_value_bytes_max: int  # value_bytes_max: no value lies outside the leaves

class ServerInfo(TypedDict):
    id: int
    available: bool
    is_catalog: bool
    region_bytes: int
    free_bytes: int
    used_bytes: int
    counters: Dict[str, int]

class OwnerInfo(TypedDict):
    compute_server: int
    incarnation: int  # 0: the key has no owner
    address: str

class RangeInfo(OwnerInfo):
    low: bytes
    high: bytes  # b"": to the end

class MemberInfo(TypedDict):
    compute_server: int
    incarnation: int
    address: str
    ended: bool
    recovering: bool
    ranges: int
    log_server: int
    log_bytes: int

class SizeEstimate(TypedDict):
    keys: int
    key_bytes: int
    value_bytes: int
    leaves: int
    nodes_bytes: int
    cells_bytes: int  # of values outside the leaves; not part of nodes_bytes
    relative_error: float

class CheckReport(TypedDict):
    problems: List[str]
    keys: int
    levels: int
    leaves: int
    key_bytes: int
    value_bytes: int
    nodes_bytes: int
    locks_held: int
    cells: int  # values outside the leaves
    cells_bytes: int
    cells_unused: int

class Tree:
    @property
    def name(self) -> str: ...
    @property
    def key_bytes_max(self) -> int: ...
    @property
    def value_bytes_max(self) -> int: ...
    @property
    def inline_value_bytes_max(self) -> int: ...
    @property
    def node_bytes(self) -> int: ...
    @property
    def mode(self) -> str: ...
    def close(self) -> None: ...
    def __enter__(self) -> Tree: ...
    def __exit__(self, kind: Any, error: Optional[BaseException], trace: Optional[TracebackType]) -> None: ...

class Client:
    @property
    def fenced(self) -> bool: ...
    @property
    def compute_server_id(self) -> int: ...
    def close(self) -> None: ...
    def __enter__(self) -> Client: ...
    def __exit__(self, kind: Any, error: Optional[BaseException], trace: Optional[TracebackType]) -> None: ...
    def _create_tree(self, name: str, key_bytes_max: int, value_bytes_max: int, node_bytes: int, owned: bool,
                     inline_value_bytes_max: int) -> Tree: ...
    def create_tree(self, name: str, *, key_bytes_max: int = 8, value_bytes_max: int = 8, node_bytes: int = 0,
                    mode: str = "shared", inline_value_bytes_max: int = 0) -> Tree: ...
    def open_tree(self, name: str) -> Tree: ...
    def drop_tree(self, name: str) -> None:
        """Its name is free at once. Open handles of a shared tree go on working until they are closed; those of an owned
        one raise FailedPreconditionError."""
    def tree_status(self, tree: Tree) -> None: ...
    def trees(self) -> List[TreeInfo]: ...
    def servers(self) -> List[ServerInfo]: ...
    def owner_of(self, tree: Tree, key: Bytes) -> OwnerInfo: ...
    def ranges(self, tree: Tree) -> List[RangeInfo]: ...
    def members(self) -> List[MemberInfo]: ...
    def stats(self) -> Dict[str, int]: ...
    def session(self) -> Session: ...

class Session:
    def close(self) -> None: ...
    def __enter__(self) -> Session: ...
    def __exit__(self, kind: Any, error: Optional[BaseException], trace: Optional[TracebackType]) -> None: ...
    def get(self, tree: Tree, key: Bytes, default: Any = None, *, timeout: Optional[float] = None) -> Any:
        """The value; `default` if there is no such key."""
    def put(self, tree: Tree, key: Bytes, value: Bytes, *, timeout: Optional[float] = None) -> None: ...
    def insert(self, tree: Tree, key: Bytes, value: Bytes, *, timeout: Optional[float] = None) -> None:
        """AlreadyExistsError."""
    def update(self, tree: Tree, key: Bytes, value: Bytes, *, timeout: Optional[float] = None) -> None:
        """NotFoundError."""
    def erase(self, tree: Tree, key: Bytes, *, timeout: Optional[float] = None) -> None:
        """NotFoundError."""
    def replace(self, tree: Tree, key: Bytes, expected: Bytes, desired: Bytes, *,
                timeout: Optional[float] = None) -> None:
        """NotFoundError, ConditionFailedError."""
    def erase_if(self, tree: Tree, key: Bytes, expected: Bytes, *, timeout: Optional[float] = None) -> None:
        """NotFoundError, ConditionFailedError."""
    def upsert(self, tree: Tree, key: Bytes, function: Union[int, str], operand: Bytes, *,
               timeout: Optional[float] = None) -> bytes:
        """The new value. function: "add", "min", "max", "append", or the number of one that C has registered."""
    def multi_get(self, tree: Tree, keys: Iterable[Bytes], *, timeout: Optional[float] = None) -> List[Optional[bytes]]:
        """A value for each key, None if it is absent. BatchError."""
    def multi_put(self, tree: Tree, rows: Union[Mapping[bytes, bytes], Iterable[Sequence[Bytes]]], *,
                  timeout: Optional[float] = None) -> None:
        """BatchError."""
    def multi_erase(self, tree: Tree, keys: Iterable[Bytes], *, timeout: Optional[float] = None) -> List[bool]:
        """For each key whether it existed. BatchError."""
    def _write_many(self, tree: Tree, writes: Iterable[Write], *,
                    timeout: Optional[float] = None) -> List[Tuple[Any, bytes]]: ...
    def write_many(self, tree: Tree, writes: Iterable[Write], *,
                   timeout: Optional[float] = None) -> List[WriteResult]: ...
    def scan(self, tree: Tree, start: Bytes = b"", to: Optional[Bytes] = None, *, start_exclusive: bool = False,
             to_inclusive: bool = False, prefix: Bytes = b"", reverse: bool = False, limit: Optional[int] = None,
             read_ahead: int = 0, timeout: Optional[float] = None) -> List[Row]:
        """The rows with start <= key < to, at most `limit`."""
    def cursor(self, tree: Tree, start: Bytes = b"", to: Optional[Bytes] = None, *, start_exclusive: bool = False,
               to_inclusive: bool = False, prefix: Bytes = b"", reverse: bool = False, limit: Optional[int] = None,
               read_ahead: int = 0, timeout: Optional[float] = None) -> Cursor:
        """The same row by row, in both directions."""
    def flush(self, tree: Tree, *, timeout: Optional[float] = None) -> None: ...
    def bulk_load(self, tree: Tree, rows: Iterable[Sequence[Bytes]]) -> None:
        """Fills an empty tree from ascending rows. Keeps all of them in this process's memory first."""
    def estimate_size(self, tree: Tree, *, reads_max: int = 0, timeout: Optional[float] = None) -> SizeEstimate: ...
    def check(self, tree: Tree, *, quiet_tree: bool = False, timeout: Optional[float] = None) -> CheckReport: ...

class Cursor:
    """Each move returns the row that it goes to, or None where there is none."""

    def close(self) -> None: ...
    def __enter__(self) -> Cursor: ...
    def __exit__(self, kind: Any, error: Optional[BaseException], trace: Optional[TracebackType]) -> None: ...
    def __iter__(self) -> Iterator[Row]: ...
    def __next__(self) -> Row: ...
    def next(self) -> Optional[Row]: ...
    def prev(self) -> Optional[Row]: ...
    def seek_to_first(self) -> Optional[Row]: ...
    def seek_to_last(self) -> Optional[Row]: ...
    def seek(self, key: Bytes) -> Optional[Row]: ...

class ExecutorCore:
    def __init__(self, client: Client, workers: int, queue_max: int) -> None: ...
    def end(self) -> None: ...
    def close(self) -> None: ...
    def submit(self, token: int, tree: Tree, kind: int, key: Bytes, value: Bytes, expected: Bytes,
               function: Union[int, str], limit: Optional[int], to: Optional[Bytes], reverse: bool,
               timeout: Optional[float]) -> None: ...
    def take(self) -> List[Tuple[int, Any, bytes, List[Row]]]: ...
