"""How a named tensor of one graph joins the same tensor of other graphs."""

from torch import Tensor


def holds_node_indices(key: str) -> bool:
    """Whether ``key`` names a tensor of node numbers, which batching moves by the nodes before it."""
    return "index" in key or "face" in key


def cat_dim(key: str) -> int:
    """The dimension along which tensors called ``key`` are joined: last for node numbers, else first."""
    return -1 if holds_node_indices(key) else 0


def as_plain(value: object) -> object:
    """``value`` as it is shown by ``repr``: tensors by their shape, everything else by itself."""
    if isinstance(value, Tensor):
        return list(value.shape) if value.dim() else value.item()
    return value
