# Types of mccl._distributed; the docstrings of the module document the calls.
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any, Generic, Literal, Protocol, SupportsIndex, overload

from numpy.typing import ArrayLike, NDArray
from typing_extensions import Buffer, TypeVar

class _LendsDLPack(Protocol):
    def __dlpack__(self, /, *args: Any, **kwargs: Any) -> Any: ...

# Types of inputs, and the type of the result: that of `out`, or a NumPy array without `out`.
_Readable = ArrayLike | _LendsDLPack | Buffer
_Out = TypeVar("_Out", bound=NDArray[Any] | _LendsDLPack | Buffer, default=NDArray[Any])
_Result = TypeVar("_Result", covariant=True)
_Counts = Iterable[SupportsIndex]
_OpName = Literal["sum", "avg", "product", "min", "max", "band", "bor", "bxor"]
_Op = _OpName | tuple[Literal["premul_sum"], float]

class Work(Generic[_Result]):
    def wait(self, timeout: float | None = ...) -> _Result: ...
    def done(self) -> bool: ...
    def result(self) -> _Result: ...
    def error(self) -> Exception | None: ...
    @property
    def source(self) -> int | None: ...
    def on_done(self, callback: Callable[[], object]) -> None: ...
    def __await__(self) -> Generator[Any, Any, _Result]: ...

class Group:
    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def failure(self) -> str | None: ...
    @property
    def capsule(self) -> object: ...
    def split(self, color: int, key: int = ...) -> Group | None: ...
    def shrink(self, *, timeout: float | None = ...) -> Group: ...
    def abort(self, reason: str) -> None: ...
    @overload
    def all_reduce(
        self,
        x: _Readable,
        op: _Op = ...,
        out: _Out | None = ...,
        *,
        wait: Literal[True] = ...,
        timeout: float | None = ...,
        compression: str | tuple[str, float] | None = ...,
    ) -> _Out: ...
    @overload
    def all_reduce(
        self,
        x: _Readable,
        op: _Op = ...,
        out: _Out | None = ...,
        *,
        wait: Literal[False],
        timeout: float | None = ...,
        compression: str | tuple[str, float] | None = ...,
    ) -> Work[_Out]: ...
    @overload
    def broadcast(
        self,
        x: _Readable | None,
        root: int = ...,
        out: _Out | None = ...,
        *,
        wait: Literal[True] = ...,
        timeout: float | None = ...,
    ) -> _Out: ...
    @overload
    def broadcast(
        self,
        x: _Readable | None,
        root: int = ...,
        out: _Out | None = ...,
        *,
        wait: Literal[False],
        timeout: float | None = ...,
    ) -> Work[_Out]: ...
    @overload
    def reduce(
        self,
        x: _Readable,
        op: _Op = ...,
        root: int = ...,
        out: _Out | None = ...,
        *,
        wait: Literal[True] = ...,
        timeout: float | None = ...,
    ) -> _Out | None: ...
    @overload
    def reduce(
        self,
        x: _Readable,
        op: _Op = ...,
        root: int = ...,
        out: _Out | None = ...,
        *,
        wait: Literal[False],
        timeout: float | None = ...,
    ) -> Work[_Out | None]: ...
    @overload
    def all_gather(
        self,
        x: _Readable,
        out: _Out | None = ...,
        counts: _Counts | None = ...,
        *,
        wait: Literal[True] = ...,
        timeout: float | None = ...,
    ) -> _Out: ...
    @overload
    def all_gather(
        self,
        x: _Readable,
        out: _Out | None = ...,
        counts: _Counts | None = ...,
        *,
        wait: Literal[False],
        timeout: float | None = ...,
    ) -> Work[_Out]: ...
    @overload
    def gather(
        self,
        x: _Readable,
        root: int = ...,
        out: _Out | None = ...,
        counts: _Counts | None = ...,
        *,
        wait: Literal[True] = ...,
        timeout: float | None = ...,
    ) -> _Out | None: ...
    @overload
    def gather(
        self,
        x: _Readable,
        root: int = ...,
        out: _Out | None = ...,
        counts: _Counts | None = ...,
        *,
        wait: Literal[False],
        timeout: float | None = ...,
    ) -> Work[_Out | None]: ...
    @overload
    def reduce_scatter(
        self,
        x: _Readable,
        op: _Op = ...,
        out: _Out | None = ...,
        counts: _Counts | None = ...,
        *,
        wait: Literal[True] = ...,
        timeout: float | None = ...,
        compression: str | tuple[str, float] | None = ...,
    ) -> _Out: ...
    @overload
    def reduce_scatter(
        self,
        x: _Readable,
        op: _Op = ...,
        out: _Out | None = ...,
        counts: _Counts | None = ...,
        *,
        wait: Literal[False],
        timeout: float | None = ...,
        compression: str | tuple[str, float] | None = ...,
    ) -> Work[_Out]: ...
    @overload
    def scatter(
        self,
        x: _Readable | None,
        root: int = ...,
        out: _Out | None = ...,
        counts: _Counts | None = ...,
        *,
        wait: Literal[True] = ...,
        timeout: float | None = ...,
    ) -> _Out: ...
    @overload
    def scatter(
        self,
        x: _Readable | None,
        root: int = ...,
        out: _Out | None = ...,
        counts: _Counts | None = ...,
        *,
        wait: Literal[False],
        timeout: float | None = ...,
    ) -> Work[_Out]: ...
    @overload
    def all_to_all(
        self,
        x: _Readable,
        out: _Out | None = ...,
        in_counts: _Counts | None = ...,
        out_counts: _Counts | None = ...,
        *,
        wait: Literal[True] = ...,
        timeout: float | None = ...,
    ) -> _Out: ...
    @overload
    def all_to_all(
        self,
        x: _Readable,
        out: _Out | None = ...,
        in_counts: _Counts | None = ...,
        out_counts: _Counts | None = ...,
        *,
        wait: Literal[False],
        timeout: float | None = ...,
    ) -> Work[_Out]: ...
    @overload
    def barrier(self, *, wait: Literal[True] = ..., timeout: float | None = ...) -> None: ...
    @overload
    def barrier(self, *, wait: Literal[False], timeout: float | None = ...) -> Work[None]: ...
    @overload
    def send(
        self,
        x: _Readable,
        peer: int,
        tag: int = ...,
        *,
        wait: Literal[True] = ...,
        timeout: float | None = ...,
    ) -> None: ...
    @overload
    def send(
        self,
        x: _Readable,
        peer: int,
        tag: int = ...,
        *,
        wait: Literal[False],
        timeout: float | None = ...,
    ) -> Work[None]: ...
    @overload
    def recv(
        self,
        out: _Out,
        peer: int | None = ...,
        tag: int = ...,
        *,
        wait: Literal[True] = ...,
        timeout: float | None = ...,
    ) -> _Out: ...
    @overload
    def recv(
        self,
        out: _Out,
        peer: int | None = ...,
        tag: int = ...,
        *,
        wait: Literal[False],
        timeout: float | None = ...,
    ) -> Work[_Out]: ...

def start(settings: Mapping[str, str]) -> Group: ...
def world() -> Group | None: ...
def shutdown() -> None: ...
def before_fork() -> None: ...
def after_fork_in_parent() -> None: ...
def after_fork_in_child() -> None: ...
