"""The class Compression: rounds the gradients of `average_gradients`, with error feedback."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx

from mccl import config
from mccl.ramp import check_ramp, ratio_at


def one_dimensional(name: str, gradient: mx.array) -> bool:
    """Selects biases and norms, which have few elements and suffer most from rounding."""
    return gradient.ndim < 2


class Compression:
    """A codec, and each gradient's residual: the part that rounding has dropped so far.

    ::

        compression = mccl.mlx.Compression("int8")
        gradients = mccl.mlx.average_gradients(gradients, compression=compression)

    Each step adds the residual to the next gradient of the same name before it rounds that gradient
    (error feedback; see docs/compression.md), so nothing is lost permanently. Residuals are
    float32, or float64 for gradients of float64. A step whose gradients are not finite does not
    change residuals. Make one Compression for each model, with the same arguments on every rank,
    and keep it while the model trains.
    """

    def __init__(
        self,
        codec: str,
        *,
        ratio: float = 0.01,
        warm_up: int = 0,
        ramp: int = 0,
        exact: Callable[[str, mx.array], bool] = one_dimensional,
    ) -> None:
        """Takes arguments like those of mccl.hooks.compress.

        Args:
            codec: auto, fp16, bf16, int8, fp8, fp8_e5m2, int4 or topk.
            ratio: topk: the share of the elements that each rank sends; above 0, at most 1.
            warm_up: Number of steps without rounding at the start.
            ramp: topk: number of steps after the warm-up in which the share falls to the ratio,
                starting from a quarter of the elements.
            exact: Function of a gradient's name and the gradient; returns True if the gradient
                must never be rounded. By default, that holds for gradients of one dimension.

        Raises:
            ValueError: An unknown codec (with the nearest name), a ratio or a count out of range.
        """
        config.texts_of({"compression": codec})  # Raises for an unknown codec.
        if not 0 < ratio <= 1:
            raise ValueError(
                f"ratio: expected a fraction of the elements, above 0 and at most 1; found {ratio}"
            )
        if warm_up < 0:
            raise ValueError(f"warm_up: expected a number of steps, at least 0; found {warm_up}")
        check_ramp(ramp, codec)
        self.codec = codec
        self.ratio = ratio
        self.warm_up = warm_up
        self.ramp = ramp
        self.exact = exact
        self.step = 0
        #: Residuals of this rank, by name.
        self.residuals: dict[str, mx.array] = {}

    @property
    def share(self) -> float:
        """The share of elements that topk sends in the current step."""
        return ratio_at(max(0, self.step - self.warm_up), self.ratio, self.ramp)

    def rounds(self, name: str, gradient: mx.array) -> bool:
        """True if the current step rounds this gradient."""
        return (
            self.step >= self.warm_up
            and mx.issubdtype(gradient.dtype, mx.floating)
            and not self.exact(name, gradient)
        )

    def with_residual(self, name: str, gradient: mx.array) -> mx.array:
        """Returns the gradient plus its residual, as float32 or float64.

        A sum in 16 bits would lose the small residual.
        """
        wide = gradient if gradient.dtype == mx.float64 else gradient.astype(mx.float32)
        left = self.residuals.get(name)
        return wide if left is None else wide + left

    def keep(self, left_out: dict[str, mx.array], finite: mx.array) -> None:
        """Replaces residuals after a step; keeps the old ones if `finite` is false.

        The optimizer skips a step whose gradients are not finite.
        """
        for name, left in left_out.items():
            self.residuals[name] = mx.where(finite, left, self.residuals.get(name, 0))

    def state_dict(self) -> dict[str, Any]:
        """The state of this rank. Each rank must save and load its own state."""
        return {"step": self.step, "residuals": dict(self.residuals)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Loads the state of a job with gradients of the same names and any number of ranks."""
        self.step = state["step"]
        self.residuals = dict(state["residuals"])
