"""The hook for fully_shard (FSDP2), which reduce-scatters the gradients of one module at a time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from .state import UNCODED, State, group_like
from .statistics import Share
from .tensors import add_residual, energy, is_finite, real, real_shape, wide


@dataclass
class Column:
    """The columns of one gradient in the reduce-scattered matrix, which has one row per rank."""

    name: str
    #: Shape of the real view of the whole gradient.
    shape: torch.Size
    #: The axis along which fully_shard divides the gradient.
    dim: int
    place: slice

    @property
    def width(self) -> int:
        """Returns the number of elements in each row."""
        return self.place.stop - self.place.start

    def rows(self, whole: torch.Tensor, ranks: int) -> torch.Tensor:
        """Returns one row per rank, divided and padded with zeros as fully_shard does."""
        if self.dim:
            return torch.cat(whole.chunk(ranks, self.dim)).view(ranks, self.width)
        rows = whole.new_zeros(ranks * self.width)
        rows[: whole.numel()] = whole.reshape(-1)
        return rows.view(ranks, self.width)

    def whole(self, rows: torch.Tensor) -> torch.Tensor:
        """Returns the tensor from which rows() made `rows`."""
        if not self.dim:
            return rows.reshape(-1)[: self.shape.numel()].view(self.shape)
        shape = list(self.shape)
        shape[self.dim] //= len(rows)
        return torch.cat([row.view(shape) for row in rows], self.dim)


class Unit:
    """Implements torch's ReduceScatter for the gradients of one module of fully_shard."""

    def __init__(self, state: Sharded, parameters: Any) -> None:
        self.state = state
        self.parameters = parameters  # torch's FSDPParamGroup

    def allocate(
        self, size: Iterable[int], *, dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        """Allocates a tensor for the gradients or for the result."""
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> dist.Work | None:
        """Reduces on the current stream, and returns None: there is no work to wait for."""
        self.state.reduce_scatter(self, output_tensor, input_tensor, op)
        return None

    def columns(self, numel: int, ranks: int) -> list[Column] | None:
        """Returns each gradient's columns in a matrix of `ranks` rows and `numel` real elements.

        torch does not report which parameters have a gradient; frozen parameters have none. If the
        elements of the other parameters do not add up to `numel`, the step used only some of them,
        and the result is None.
        """
        found: list[Column] = []
        at = 0
        for each in self.parameters.fsdp_params:
            if not each.sharded_param.requires_grad:
                continue
            shape = real_shape(each._orig_size, each.sharded_param.dtype)
            dim = each.fsdp_placement.dim
            padded = -(-shape[dim] // ranks) * (shape.numel() // max(1, shape[dim]))
            found.append(Column(self.state.name_of(each), shape, dim, slice(at, at + padded)))
            at += padded
        return found if at * ranks == numel else None


class Sharded(State):
    """Rounds the gradients that modules of fully_shard reduce, in host memory."""

    def __init__(self, model: torch.nn.Module, codec: str, share: Share, **rest: Any) -> None:
        groups = [
            (module, parameters)
            for module in model.modules()
            if hasattr(module, "set_custom_reduce_scatter")
            and (parameters := module._get_fsdp_state()._fsdp_param_group) is not None
        ]
        if not groups:
            raise ValueError(
                "compress: expected a DistributedDataParallel, or a module after fully_shard; "
                f"found {type(model).__name__}"
            )
        # A second hook would not send the residuals of the first.
        if any(isinstance(hook_of(parameters), Unit) for _, parameters in groups):
            raise RuntimeError("this model already has a hook; compress can only be called once")
        meshes = {parameters._reduce_scatter_process_group for _, parameters in groups}
        if len(meshes) > 1:
            raise ValueError(
                "compress: expected modules that are sharded by one process group; found modules "
                f"of {len(meshes)} process groups"
            )
        super().__init__(meshes.pop(), model, **rest)
        self.rounding = group_like(self.group, codec, share.ratio)
        self._backend = self.rounding._get_backend(torch.device("cpu"))
        self._say_if_nothing_is_gained(self._backend, codec)
        self._share = share
        self._in_step = False
        self._is_finite = True
        for module, parameters in groups:
            module.set_custom_reduce_scatter(Unit(self, parameters))

    def name_of(self, parameter: Any) -> str:
        """Returns the name of torch's FSDPParam in the model."""
        return self._names.get(parameter.sharded_param, parameter._param_fqn)

    def reduce_scatter(
        self, unit: Unit, output: torch.Tensor, given: torch.Tensor, op: Any
    ) -> None:
        """Reduces the gradients of a module."""
        self._begin_step()
        if self.step < self.warm_up:
            dist.reduce_scatter_tensor(output, given, op, group=self.group)
            return
        columns = self._columns(unit, given, op)
        rounded = [column for column in columns if column.name not in self._exact]
        rows = real(given).view(self.size, -1)
        if not self._reduce_rounded(output, rows, rounded, op):
            self._reduce_exactly(output, given, rounded, op)
        elif len(rounded) < len(columns):
            exact = [column for column in columns if column.name in self._exact]
            self._reduce_some_exactly(output, rows, exact, op)
        self._is_finite &= is_finite(real(output))

    def _begin_step(self) -> None:
        """Makes the step end with the backward pass, after all gradients are reduced."""
        if self._in_step:
            return
        self._in_step = True
        queue = torch.autograd.Variable._execution_engine.queue_callback
        # Queues a second callback from the first, because fully_shard may reduce gradients in
        # callbacks that were queued before.
        queue(lambda: queue(self._end_backward))

    def _end_backward(self) -> None:
        self._in_step = False
        counts = True
        if self.step >= self.warm_up:
            # Each rank has checked only its own share of the gradients.
            flag = torch.tensor([self._is_finite], dtype=torch.uint8)
            dist.all_reduce(flag, dist.ReduceOp.MIN, group=self.group)
            counts = bool(flag)
        self._is_finite = True
        self._end_step(counts)

    def _columns(self, unit: Unit, given: torch.Tensor, op: Any) -> list[Column]:
        """Returns the gradients' columns; if no codec applies, records why and returns none."""
        columns = unit.columns(real(given).numel(), self.size)
        if op not in (dist.ReduceOp.SUM, dist.ReduceOp.AVG):
            why = "set_gradient_divide_factor requires a kind of sum that no codec supports"
        elif columns is None:
            why = "the step used only some parameters of a module, and fully_shard hides which ones"
        else:
            return columns
        self._note_reason(given.nbytes, why)
        return []

    def _reduce_rounded(
        self, output: torch.Tensor, rows: torch.Tensor, columns: list[Column], op: Any
    ) -> bool:
        """Reduces some columns with the codec. If that would not save bytes, returns False."""
        width = sum(column.width for column in columns)
        packed = torch.empty(self.size, width, dtype=wide(rows.dtype))
        ratio = self._share.at(self.step - self.warm_up)
        coded = self._backend.bytes_to_sum(packed, ratio)
        given_bytes = packed.numel() * rows.element_size()
        if coded >= given_bytes:
            return False
        host = rows.cpu()
        torch.cat([host[:, column.place] for column in columns], 1, out=packed)
        places = packed.split([column.width for column in columns], 1)
        for column, place in zip(columns, places, strict=True):
            residual = self._residuals.get(column.name)
            if residual is not None:
                place.add_(column.rows(residual, self.size))
        part, left = packed.new_empty(width), torch.empty_like(packed)
        self._backend.reduce_scatter_keeping(part, packed, left, op, ratio).wait()
        self._note(given_bytes, coded, energy(left), energy(packed))
        for column, kept in zip(columns, left.split([c.width for c in columns], 1), strict=True):
            self._residuals.put(column.name, column.whole(kept))
        write_columns(output, part.to(rows.dtype), columns)
        return True

    def _reduce_exactly(
        self, output: torch.Tensor, given: torch.Tensor, columns: list[Column], op: Any
    ) -> None:
        """Reduces a module's gradients in their own type, with the residuals of `columns` added."""
        rows = real(given).view(self.size, -1)
        for column in columns:
            residual = self._residuals.get(column.name)
            if residual is not None:
                place = rows[:, column.place]
                left = add_residual(place, column.rows(residual, self.size))
                self._residuals.put(column.name, column.whole(left))
        if columns:
            unasked = sum(column.width for column in columns) * self.size * rows.element_size()
            self._note_reason(unasked, UNCODED)
        dist.reduce_scatter_tensor(output, given, op, group=self.group)
        self._note(given.nbytes, given.nbytes)

    def _reduce_some_exactly(
        self, output: torch.Tensor, rows: torch.Tensor, columns: list[Column], op: Any
    ) -> None:
        """Reduces some columns in their own type."""
        some = torch.cat([rows[:, column.place] for column in columns], 1).view(-1)
        part = some.new_empty(some.numel() // self.size)
        dist.reduce_scatter_tensor(part, some, op, group=self.group)
        self._note(some.nbytes, some.nbytes)
        write_columns(output, part, columns)


def write_columns(output: torch.Tensor, part: torch.Tensor, columns: list[Column]) -> None:
    """Writes this rank's row of some columns to their places in `output`."""
    row = real(output).view(-1)
    part = part.to(row.device)
    pieces = part.split([column.width for column in columns])
    for column, piece in zip(columns, pieces, strict=True):
        row[column.place].copy_(piece)


def hook_of(parameters: Any) -> object:
    """Returns the object that reduces the gradients of one FSDPParamGroup of torch."""
    return getattr(parameters, "_reduce_scatter_comm", None)
