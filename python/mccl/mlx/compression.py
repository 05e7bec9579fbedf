"""How the gradients of `average_gradients` travel, and what that has left out of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx

from mccl import config
from mccl.ramp import check_ramp, ratio_at


def one_dimensional(name: str, gradient: mx.array) -> bool:
    """Biases and norms: few, and hurt most by rounding."""
    return gradient.ndim < 2


class Compression:
    """A codec, and what rounding by it has left out of each gradient so far, by name.

    ::

        compression = mccl.mlx.Compression("int8")
        gradients = mccl.mlx.average_gradients(gradients, compression=compression)

    What was left out of a gradient is added to the next one of its name before that is rounded
    (error feedback; see docs/compression.md), so nothing is lost for good. It is kept in float32
    (float64 for gradients of float64), and a step whose gradients are not finite leaves it as it
    was. Make one for each model,
    on every rank with the same arguments, and keep it while the model trains.
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
        """Args as those of mccl.hooks.compress.

        Args:
            codec: auto, fp16, bf16, int8, fp8, fp8_e5m2, int4 or topk.
            ratio: topk: the share of the elements that each rank sends.
            warm_up: So many steps are exact.
            ramp: topk: so many steps after those send more, from a quarter of the elements down.
            exact: Whether a gradient, by its name, is never rounded; by default those of one
                dimension.

        Raises:
            ValueError: An unknown codec (with the nearest name), a ratio or a count out of range.
        """
        config.texts_of({"compression": codec})  # raises for what is no codec
        if not 0 < ratio <= 1:
            raise ValueError(
                f"ratio is a share of the elements, above 0 and at most 1; found {ratio}"
            )
        if warm_up < 0:
            raise ValueError(f"warm_up counts steps; found {warm_up}")
        check_ramp(ramp, codec)
        self.codec = codec
        self.ratio = ratio
        self.warm_up = warm_up
        self.ramp = ramp
        self.exact = exact
        self.step = 0
        #: What has been left out on this rank so far.
        self.residuals: dict[str, mx.array] = {}

    @property
    def share(self) -> float:
        """The ratio of this step."""
        return ratio_at(max(0, self.step - self.warm_up), self.ratio, self.ramp)

    def rounds(self, name: str, gradient: mx.array) -> bool:
        """Whether this step rounds it."""
        return (
            self.step >= self.warm_up
            and mx.issubdtype(gradient.dtype, mx.floating)
            and not self.exact(name, gradient)
        )

    def with_residual(self, name: str, gradient: mx.array) -> mx.array:
        """Returns the gradient and what earlier steps left out of it, as float32 or float64.

        A residual of 16 bits would lose what is small beside it.
        """
        wide = gradient if gradient.dtype == mx.float64 else gradient.astype(mx.float32)
        left = self.residuals.get(name)
        return wide if left is None else wide + left

    def keep(self, left_out: dict[str, mx.array], finite: mx.array) -> None:
        """Replaces residuals after a step, or leaves them as they were where it was not finite.

        The optimizer skips a step that is not finite.
        """
        for name, left in left_out.items():
            self.residuals[name] = mx.where(finite, left, self.residuals.get(name, 0))

    def state_dict(self) -> dict[str, Any]:
        """Of this rank: every rank saves and loads its own."""
        return {"step": self.step, "residuals": dict(self.residuals)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Of any job with gradients of the same names, of as many ranks or not."""
        self.step = state["step"]
        self.residuals = dict(state["residuals"])
