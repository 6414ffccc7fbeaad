"""Relative tolerances by (quantity, dtype), each with the reason for its size."""

from __future__ import annotations

import torch

_RELATIVE: dict[tuple[str, torch.dtype], float] = {
    # Stored numbers of another program: the same formula, summed in another order.
    ("reference", torch.float64): 1e-9,
    # The same sum of products in another order, a few thousand terms of either sign.
    ("contraction", torch.float64): 1e-12,
    ("contraction", torch.float32): 2e-5,
    # Coupling tensors are products of tabulated symbols, so only the last bits differ.
    ("coupling", torch.float64): 1e-14,
    # The same model on turned, moved or reordered atoms: last bits, a few thousand terms.
    ("symmetry", torch.float64): 1e-10,
    # Central differences with steps of 1e-4: the square of the step times a third derivative of order 10.
    ("finite differences", torch.float64): 1e-6,
    # A neighbour 1e-3 A before the cutoff: the envelope goes with the third power of that, its slope with the
    # second.
    ("cutoff", torch.float64): 1e-6,
    # Sums of up to a hundred products of numbers of order one.
    ("linear", torch.float64): 1e-13,
    # Scalars from a few elementwise operations.
    ("loss", torch.float64): 1e-13,
    ("loss", torch.float32): 1e-5,
    # Models on two back ends: same weights, other summation orders, sixfold products of features.
    ("back end", torch.float64): 1e-12,
    ("back end", torch.float32): 1e-4,
    # Energies and forces of one set of weights in another program: other orders of summation in every block.
    ("another program", torch.float64): 1e-12,
    # The same across processes, for models of released size: what the issue asks for.
    ("peer", torch.float64): 1e-10,
    # Means and least-squares fits of a few dozen labels, summed in another order.
    ("statistics", torch.float64): 1e-12,
    # The same of labels that are stored in single precision.
    ("statistics", torch.float32): 1e-6,
    # Losses of the first steps against another program: last bits, multiplied a little by every step of Adam.
    ("training steps", torch.float64): 1e-11,
    # Losses of some epochs from the same numbers in another kind of file.
    ("same data", torch.float64): 1e-12,
    # Losses of some epochs: gradients are averaged over ranks instead of over one batch, and Adam divides by
    # their size, so differences in the last bits grow by some orders of magnitude.
    ("training over ranks", torch.float64): 1e-9,
    # Losses after a restart against those of a run that was not disturbed: what the issue asks for. The state
    # comes back to the bit.
    ("restart", torch.float64): 1e-9,
    # bfloat16 keeps 8 bits, steps of 0.4 %; forces take the rounding of some ten products in a row.
    ("autocast", torch.bfloat16): 5e-2,
}


def relative(quantity: str, dtype: torch.dtype = torch.float64) -> float:
    """The relative tolerance of a quantity."""
    return _RELATIVE[quantity, dtype]
