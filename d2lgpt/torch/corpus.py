"""The Time Machine in batches, ready for training."""

import torch

from d2lgpt.corpus import Batches, TimeMachineWindows


class TimeMachine(TimeMachineWindows):
    """The Time Machine in batches (X, Y) of windows, Y one token ahead of X.

    See `d2lgpt.corpus.TimeMachineWindows` for the arguments and errors. X and Y have the shape
    (batch_size, num_steps). `vocab` encodes and decodes; `source` says which text it is.
    """

    def train_dataloader(self) -> Batches:
        """The training windows, in a new order at each pass; the last batch may be smaller."""
        return Batches(self.train_windows, self.batch_size, torch.from_numpy, self._rng)

    def val_dataloader(self) -> Batches:
        """The validation windows, in order; the last batch may be smaller."""
        return Batches(self.val_windows, self.batch_size, torch.from_numpy)
