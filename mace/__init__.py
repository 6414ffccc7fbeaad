"""CP-MACE: MACE force fields with the electron number as input and the Fermi level as output."""

__version__ = "0.3.10.post1"
