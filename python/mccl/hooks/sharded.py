"""Gradients of fully_shard (FSDP2), which are reduced and scattered module by module."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist

from .state import Share, State, energy, group_like


class Unit:
    """How the gradients of one module of fully_shard are reduced: torch's ReduceScatter."""

    def __init__(self, state: Sharded, parameters: Any) -> None:
        self.state = state
        self.parameters = parameters  # torch's FSDPParamGroup
        self.calls = 0

    def allocate(
        self, size: Iterable[int], *, dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        """Memory for what is reduced, and for the result."""
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> dist.Work | None:
        """Reduces and waits: on a CPU nothing is left to be awaited."""
        self.state.reduce_scatter(self, output_tensor, input_tensor, op)
        return None

    def columns(self, numel: int, ranks: int) -> list[tuple[str, torch.Size, slice]] | None:
        """Where each parameter lies in the rows, one of each rank, that are reduced.

        None where a step did not use all of them, or some are not divided along their first axis.
        """
        found: list[tuple[str, torch.Size, slice]] = []
        at = 0
        for each in self.parameters.fsdp_params:
            shape = each._orig_size
            if each.fsdp_placement.dim != 0:
                return None
            width = -(-shape[0] // ranks) * (shape.numel() // max(1, shape[0]))
            found.append((each._param_fqn, shape, slice(at, at + width)))
            at += width
        return found if at * ranks == numel else None


class Sharded(State):
    """Of fully_shard, whose gradients are reduced module by module."""

    def __init__(self, model: torch.nn.Module, codec: str, share: Share, **rest: Any) -> None:
        groups = [
            (module, parameters)
            for module in model.modules()
            if hasattr(module, "set_custom_reduce_scatter")
            and (parameters := module._get_fsdp_state()._fsdp_param_group) is not None
        ]
        if not groups:
            raise ValueError(
                "compress takes a DistributedDataParallel, or a module after fully_shard; found "
                f"{type(model).__name__}"
            )
        # What the first has left out would never be sent.
        if any(isinstance(hook_of(parameters), Unit) for _, parameters in groups):
            raise RuntimeError("this model has a hook already; compress can only be called once")
        meshes = {parameters._reduce_scatter_process_group for _, parameters in groups}
        if len(meshes) > 1:
            raise ValueError(
                f"compress takes modules that one process group shards; found {len(meshes)} groups"
            )
        super().__init__(meshes.pop(), model, **rest)
        self.rounding = group_like(self.group, codec, share.ratio)
        self._backend = self.rounding._get_backend(torch.device("cpu"))
        self._share = share
        self._units = [Unit(self, parameters) for _, parameters in groups]
        for (module, _), unit in zip(groups, self._units, strict=True):
            module.set_custom_reduce_scatter(unit)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See State."""
        super().load_state_dict(state)
        for unit in self._units:
            unit.calls = self.step

    def reduce_scatter(
        self, unit: Unit, output: torch.Tensor, given: torch.Tensor, op: Any
    ) -> None:
        """Reduces a module's gradients; the units begin a step together."""
        unit.calls += 1
        if unit.calls > self.step + 1:
            self.step += 1
            self._end_step()
        columns = unit.columns(given.numel(), self.size)
        if unit.calls <= self.warm_up or columns is None:
            dist.reduce_scatter_tensor(output, given, op, group=self.group)
            return
        rows = given.view(self.size, -1)
        rounded = [column for column in columns if column[0] not in self._exact]
        exact = [column[2] for column in columns if column[0] in self._exact]
        for name, shape, place in rounded:
            if name in self.residuals:
                rows[:, place].add_(rows_of(self.residuals[name], shape, self.size))
        self._reduce_columns(output, rows, exact, op)
        if not rounded:
            return
        some = torch.cat([rows[:, place] for _, _, place in rounded], 1).view(-1)
        # In host memory, where what rounding leaves out is kept.
        summed = some.cpu()
        part, left = summed.new_empty(some.numel() // self.size), torch.empty_like(summed)
        ratio = self._share.at(unit.calls - 1 - self.warm_up)
        self._backend.reduce_scatter_keeping(part, summed, left, op, ratio).wait()
        left = left.to(some.device)
        self._note(some.nbytes, self._backend.bytes_to_sum(some, ratio), energy(left), energy(some))
        at = 0
        for name, shape, place in rounded:
            width = place.stop - place.start
            output[place].copy_(part[at : at + width])
            kept = left.view(self.size, -1)[:, at : at + width].reshape(-1)
            self.residuals[name] = kept[: shape.numel()].view(shape)
            at += width

    def _reduce_columns(
        self, output: torch.Tensor, rows: torch.Tensor, places: list[slice], op: Any
    ) -> None:
        """Exactly."""
        if not places:
            return
        some = torch.cat([rows[:, place] for place in places], 1).view(-1)
        part = some.new_empty(some.numel() // self.size)
        dist.reduce_scatter_tensor(part, some, op, group=self.group)
        self._note(some.nbytes, some.nbytes, 0.0, 0.0)
        at = 0
        for place in places:
            width = place.stop - place.start
            output[place].copy_(part[at : at + width])
            at += width


def hook_of(parameters: Any) -> object:
    """What reduces the gradients of one of torch's FSDPParamGroup."""
    return getattr(parameters, "_reduce_scatter_comm", None)


def rows_of(tensor: torch.Tensor, shape: torch.Size, ranks: int) -> torch.Tensor:
    """As fully_shard divides it: along the first axis, with zeros after the end."""
    width = -(-shape[0] // ranks) * (shape.numel() // max(1, shape[0]))
    rows = tensor.new_zeros(ranks * width)
    rows[: shape.numel()] = tensor.reshape(-1)
    return rows.view(ranks, width)
