# Types of mccl._distributed; the docstrings of the module document the calls.
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any, Generic, Literal, Protocol, SupportsIndex, TypedDict, overload

from numpy.typing import ArrayLike, NDArray
from typing_extensions import Buffer, TypeVar, Unpack

class _LendsDLPack(Protocol):
    def __dlpack__(self, /, *args: Any, **kwargs: Any) -> Any: ...

# _In is the type of inputs. _Out is the type of `out` and of the result; without `out`, the result
# is a NumPy array.
_In = ArrayLike | _LendsDLPack | Buffer
_Out = TypeVar("_Out", bound=NDArray[Any] | _LendsDLPack | Buffer, default=NDArray[Any])
_Result = TypeVar("_Result", covariant=True)
_Counts = Iterable[SupportsIndex] | None
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

# Keywords of calls that block until they are complete (_Waits), and of calls that return a Work
# (_Starts). Reductions also accept `compression`.
class _Options(TypedDict, total=False):
    timeout: float | None

class _Waits(_Options, total=False):
    wait: Literal[True]

class _Starts(_Options):
    wait: Literal[False]

class _Compresses(TypedDict, total=False):
    compression: str | tuple[str, float] | None

class _SumWaits(_Waits, _Compresses): ...
class _SumStarts(_Starts, _Compresses): ...

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
        self, x: _In, op: _Op = ..., out: _Out | None = ..., **kw: Unpack[_SumWaits]
    ) -> _Out: ...
    @overload
    def all_reduce(
        self, x: _In, op: _Op = ..., out: _Out | None = ..., **kw: Unpack[_SumStarts]
    ) -> Work[_Out]: ...
    @overload
    def broadcast(
        self, x: _In | None, root: int = ..., out: _Out | None = ..., **kw: Unpack[_Waits]
    ) -> _Out: ...
    @overload
    def broadcast(
        self, x: _In | None, root: int = ..., out: _Out | None = ..., **kw: Unpack[_Starts]
    ) -> Work[_Out]: ...
    @overload
    def reduce(
        self, x: _In, op: _Op = ..., root: int = ..., out: _Out | None = ..., **kw: Unpack[_Waits]
    ) -> _Out | None: ...
    @overload
    def reduce(
        self, x: _In, op: _Op = ..., root: int = ..., out: _Out | None = ..., **kw: Unpack[_Starts]
    ) -> Work[_Out | None]: ...
    @overload
    def all_gather(
        self, x: _In, out: _Out | None = ..., counts: _Counts = ..., **kw: Unpack[_Waits]
    ) -> _Out: ...
    @overload
    def all_gather(
        self, x: _In, out: _Out | None = ..., counts: _Counts = ..., **kw: Unpack[_Starts]
    ) -> Work[_Out]: ...
    @overload
    def gather(
        self,
        x: _In,
        root: int = ...,
        out: _Out | None = ...,
        counts: _Counts = ...,
        **kw: Unpack[_Waits],
    ) -> _Out | None: ...
    @overload
    def gather(
        self,
        x: _In,
        root: int = ...,
        out: _Out | None = ...,
        counts: _Counts = ...,
        **kw: Unpack[_Starts],
    ) -> Work[_Out | None]: ...
    @overload
    def reduce_scatter(
        self,
        x: _In,
        op: _Op = ...,
        out: _Out | None = ...,
        counts: _Counts = ...,
        **kw: Unpack[_SumWaits],
    ) -> _Out: ...
    @overload
    def reduce_scatter(
        self,
        x: _In,
        op: _Op = ...,
        out: _Out | None = ...,
        counts: _Counts = ...,
        **kw: Unpack[_SumStarts],
    ) -> Work[_Out]: ...
    @overload
    def scatter(
        self,
        x: _In | None,
        root: int = ...,
        out: _Out | None = ...,
        counts: _Counts = ...,
        **kw: Unpack[_Waits],
    ) -> _Out: ...
    @overload
    def scatter(
        self,
        x: _In | None,
        root: int = ...,
        out: _Out | None = ...,
        counts: _Counts = ...,
        **kw: Unpack[_Starts],
    ) -> Work[_Out]: ...
    @overload
    def all_to_all(
        self,
        x: _In,
        out: _Out | None = ...,
        in_counts: _Counts = ...,
        out_counts: _Counts = ...,
        **kw: Unpack[_Waits],
    ) -> _Out: ...
    @overload
    def all_to_all(
        self,
        x: _In,
        out: _Out | None = ...,
        in_counts: _Counts = ...,
        out_counts: _Counts = ...,
        **kw: Unpack[_Starts],
    ) -> Work[_Out]: ...
    @overload
    def barrier(self, **kw: Unpack[_Waits]) -> None: ...
    @overload
    def barrier(self, **kw: Unpack[_Starts]) -> Work[None]: ...
    @overload
    def send(self, x: _In, peer: int, tag: int = ..., **kw: Unpack[_Waits]) -> None: ...
    @overload
    def send(self, x: _In, peer: int, tag: int = ..., **kw: Unpack[_Starts]) -> Work[None]: ...
    @overload
    def recv(
        self, out: _Out, peer: int | None = ..., tag: int = ..., **kw: Unpack[_Waits]
    ) -> _Out: ...
    @overload
    def recv(
        self, out: _Out, peer: int | None = ..., tag: int = ..., **kw: Unpack[_Starts]
    ) -> Work[_Out]: ...

def start(settings: Mapping[str, str]) -> Group: ...
def place_of(settings: Mapping[str, str]) -> tuple[int, int, str]: ...
def allocate(bytes: int) -> NDArray[Any]: ...
def world() -> Group | None: ...
def refuse_in_callback() -> None: ...
def shutdown() -> None: ...
def close_stores() -> None: ...
def before_fork() -> None: ...
def after_fork_in_parent() -> None: ...
def after_fork_in_child() -> None: ...
