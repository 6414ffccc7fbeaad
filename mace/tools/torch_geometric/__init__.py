"""Graphs, batches of graphs and their loader: the small part of a graph library that MACE needs."""

from .batch import Batch
from .data import Data
from .dataloader import DataLoader
from .dataset import Dataset
from .seed import seed_everything

__all__ = ["Batch", "Data", "DataLoader", "Dataset", "seed_everything"]
