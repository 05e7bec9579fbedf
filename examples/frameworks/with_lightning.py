"""Trains on the CPU with Lightning, which starts the two processes itself."""

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

import mccl  # noqa: F401


class Line(lightning.LightningModule):
    """Learns the sum of its inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch: list, _: int) -> torch.Tensor:
        """Returns the loss of a batch."""
        return (self.layer(batch[0]) - batch[1]).square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Returns plain gradient descent."""
        return torch.optim.SGD(self.parameters(), lr=0.05)

    def on_train_end(self) -> None:
        """Prints whether the ranks have the same weights."""
        weights = self.all_gather(self.layer.weight.detach())
        if self.global_rank == 0:
            same = bool((weights == weights[0]).all())
            print(f"{len(weights)} ranks on {torch.distributed.get_backend()}: the same {same}")


torch.manual_seed(0)
x = torch.randn(256, 8)
data = DataLoader(TensorDataset(x, x.sum(dim=1, keepdim=True)), batch_size=16)
trainer = lightning.Trainer(
    strategy="ddp_mccl",
    accelerator="cpu",
    devices=2,
    max_epochs=2,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Line(), data)
