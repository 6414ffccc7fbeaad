"""Models as calculators of ASE."""

from .mace import MACECalculator

__all__ = ["MACECalculator"]
