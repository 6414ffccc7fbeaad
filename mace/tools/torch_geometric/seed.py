"""One seed for every generator of random numbers."""

import random

import numpy as np
import torch


def seed_everything(seed: int) -> None:
    """Seed Python's, numpy's and torch's (all devices) global generators."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
