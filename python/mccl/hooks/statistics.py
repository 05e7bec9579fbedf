"""Counts of the steps and bytes of a hook, and the share of elements that topk sends."""

from __future__ import annotations

from dataclasses import dataclass, field

from mccl.config import get_config
from mccl.ramp import check_ramp, ratio_at


@dataclass
class Statistics:
    """Counts since the hook was made, or since reset()."""

    #: Number of steps, including exact ones.
    steps: int = 0
    #: `given` counts the bytes of gradients after the warm-up, in their own type; `sent` counts the
    #: bytes of these gradients on the wire.
    given: int = 0
    sent: int = 0
    #: Norm of the part that the last step dropped, divided by the norm of its gradients with
    #: residuals. A step whose gradients were not finite does not change it.
    error: float = 0.0
    _left: float = field(default=0.0, repr=False)
    _wanted: float = field(default=0.0, repr=False)
    _compressed: bool = field(default=False, repr=False)

    @property
    def ratio(self) -> float:
        """Returns `given` divided by `sent`; 1 if nothing was sent."""
        return self.given / self.sent if self.sent else 1.0

    def reset(self) -> None:
        """Resets all counts to zero."""
        self.steps = self.given = self.sent = 0
        self.error = 0.0

    def add(self, given: int, sent: int, left: float, wanted: float) -> None:
        """Counts one reduction: its bytes, and the squared norms that `error` is computed from."""
        self.given += given
        self.sent += sent
        self._left += left
        self._wanted += wanted
        self._compressed |= sent < given

    def end_step(self, counts: bool) -> bool:
        """Ends a step. Returns whether any of its gradients was sent in fewer bytes than it has."""
        self.steps += 1
        if counts and self._wanted > 0:
            self.error = (self._left / self._wanted) ** 0.5
        compressed = self._compressed
        self._left = self._wanted = 0.0
        self._compressed = False
        return compressed

    def __str__(self) -> str:
        return (
            f"{self.steps} steps, {self.given / 1e6:.1f} MB of gradients sent as "
            f"{self.sent / 1e6:.1f} MB ({self.ratio:.1f} times fewer), last error {self.error:.3g}"
        )


class Share:
    """The share of a gradient's elements that topk sends in each step. Unused by other codecs.

    Args:
        codec: The codec's name.
        ratio: The share after the ramp; None: the setting topk_ratio.
        ramp: Number of steps in which the share falls to `ratio`.
    """

    def __init__(self, codec: str, ratio: float | None, ramp: int) -> None:
        if ratio is not None and not 0 < ratio <= 1:
            raise ValueError(
                f"ratio: expected a fraction of the elements, above 0 and at most 1; found {ratio}"
            )
        check_ramp(ramp, codec)
        self.ratio = ratio
        self.ramp = ramp
        self._last = get_config().topk_ratio if ratio is None else ratio

    def at(self, step: int) -> float | None:
        """Returns the share for a step after the warm-up; None: the ratio of the group applies."""
        if step >= self.ramp:
            return None
        return ratio_at(step, self._last, self.ramp)
