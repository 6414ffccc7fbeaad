"""Irreps as text: ``8x0e+8x1o`` read, sorted and simplified without e3nn."""

from __future__ import annotations

import re
from dataclasses import dataclass

from mace.exceptions import InputError

_TERM = re.compile(r"(?:(\d+)x)?(\d+)([eoy])")


@dataclass(frozen=True)
class Term:
    """So many copies of the irrep of degree ``l`` and parity ``p`` (1 even, -1 odd)."""

    multiplicity: int
    l: int  # noqa: E741  # the name of the degree everywhere in the field
    p: int

    def __str__(self) -> str:
        return f"{self.multiplicity}x{self.l}{'e' if self.p == 1 else 'o'}"


def parse_irreps(text: str, what: str) -> tuple[Term, ...]:
    """Read irreps, sorted with scalars first (0e 0o 1o 1e 2e 2o ...) and with equal irreps merged.

    ``what`` names the argument in the ``InputError`` for text that is no sum of irreps.
    """
    copies: dict[tuple[int, int], int] = {}
    for part in re.sub(r"\s", "", text).split("+"):
        match = _TERM.fullmatch(part)
        if match is None:
            raise InputError(f"{what}={text!r} is not a sum of irreps: write e.g. 128x0e+128x1o")
        degree = int(match[2])
        parity = {"e": 1, "o": -1, "y": (-1) ** degree}[match[3]]
        copies[degree, parity] = copies.get((degree, parity), 0) + int(match[1] or 1)
    terms = [Term(count, degree, parity) for (degree, parity), count in copies.items() if count > 0]
    # The order of e3nn's Irrep.iterator. Irreps.sort puts 0o before 0e, but models slice scalars in front.
    return tuple(sorted(terms, key=lambda term: (term.l, -term.p * (-1) ** term.l)))


def format_irreps(terms: tuple[Term, ...]) -> str:
    """Write irreps as e3nn does."""
    return "+".join(str(term) for term in terms)


def spherical_irreps(num_channels: int, max_L: int) -> str:
    """So many copies of the spherical harmonics of every degree up to ``max_L``."""
    return format_irreps(tuple(Term(num_channels, degree, (-1) ** degree) for degree in range(max_L + 1)))


def feature_irreps(text: str, what: str) -> tuple[Term, ...]:
    """Irreps of node features: scalars and the same number of copies of other spherical harmonics."""
    terms = parse_irreps(text, what)
    unnatural = [term for term in terms if term.p != (-1) ** term.l]
    if unnatural:
        raise InputError(f"{what}={text!r} has {unnatural[0]}, which no layer gives: use 0e, 1o, 2e, 3o ...")
    if not any(term.l == 0 for term in terms):
        raise InputError(f"{what}={text!r} has no scalars: add as many copies of 0e as of the others")
    if len({term.multiplicity for term in terms}) > 1:
        raise InputError(
            f"{what}={text!r} has unequal multiplicities: give each irrep the same number of copies"
        )
    return terms


def gated_irreps(text: str, what: str) -> str:
    """Irreps that are scalars (0e) and vectors (1o), some of both."""
    terms = parse_irreps(text, what)
    if [(term.l, term.p) for term in terms] != [(0, 1), (1, -1)]:
        raise InputError(f"{what}={text!r} must be scalars and vectors: write e.g. 16x0e+16x1o")
    return format_irreps(terms)


def scalar_irreps(text: str, what: str) -> str:
    """Irreps that are scalars (0e) and nothing else."""
    terms = parse_irreps(text, what)
    if [(term.l, term.p) for term in terms] != [(0, 1)]:
        raise InputError(f"{what}={text!r} must be scalars only: write e.g. 16x0e")
    return format_irreps(terms)
