"""Radial functions of the interatomic distance: bases, cutoff, distance transforms and the ZBL pair energy.

Distances x are [n_edges, 1] in Angstrom, edges run from sender u = edge_index[0] to receiver v =
edge_index[1].
"""

from __future__ import annotations

import math
import warnings

import ase.data
import torch
from e3nn.util.jit import compile_mode
from torch import Tensor

from mace.tools.scatter import scatter_sum


def _constants(module: torch.nn.Module, trainable: bool, **values: Tensor) -> None:
    """Register ``values`` under their names: parameters if ``trainable``, buffers otherwise."""
    for name, value in values.items():
        if trainable:
            module.register_parameter(name, torch.nn.Parameter(value))
        else:
            module.register_buffer(name, value)


def _scalar(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.get_default_dtype())


def _covalent_radii() -> Tensor:
    """Covalent radii [119] of ASE by atomic number, Angstrom."""
    return torch.tensor(ase.data.covalent_radii, dtype=torch.get_default_dtype())


def _edge_atomic_numbers(
    node_attrs: Tensor, edge_index: Tensor, atomic_numbers: Tensor
) -> tuple[Tensor, Tensor]:
    """Atomic numbers of senders and receivers, both [n_edges, 1]."""
    node_numbers = atomic_numbers[torch.argmax(node_attrs, dim=1)].unsqueeze(-1)
    return node_numbers[edge_index[0]], node_numbers[edge_index[1]]


@compile_mode("script")
class BesselBasis(torch.nn.Module):
    """sqrt(2/r_max) sin(n pi x / r_max) / x for n = 1 .. num_basis.

    Gasteiger et al., arXiv:2003.03123, equation 7.
    """

    def __init__(self, r_max: float, num_basis: int = 8, trainable: bool = False) -> None:
        super().__init__()
        dtype = torch.get_default_dtype()
        frequencies = math.pi / r_max * torch.arange(1, num_basis + 1, dtype=torch.float64)
        _constants(self, trainable, bessel_weights=frequencies.to(dtype))
        self.register_buffer("r_max", _scalar(r_max))
        self.register_buffer("prefactor", _scalar(math.sqrt(2.0 / r_max)))

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}(r_max={self.r_max}, num_basis={len(self.bessel_weights)})"

    def forward(self, x: Tensor) -> Tensor:
        """[n_edges, 1] -> [n_edges, num_basis]."""
        return self.prefactor * (torch.sin(self.bessel_weights * x) / x)


@compile_mode("script")
class ChebychevBasis(torch.nn.Module):
    """Chebyshev polynomials of the first kind T_1 .. T_num_basis of 2 x / r_max - 1, which lies in [-1, 1].

    With ``rescale=False`` the basis of MACE and CP-MACE, for models made by them: T_n of the distance in
    Angstrom, where values beyond 1 A grow like (2x)^n, and a constant as far as derivatives go. Forces
    are then not quite the derivative of the energy, but they are those that such a model was trained to
    give.
    """

    def __init__(self, r_max: float, num_basis: int = 8, rescale: bool = True) -> None:
        super().__init__()
        self.register_buffer(
            "n", torch.arange(1, num_basis + 1, dtype=torch.get_default_dtype()).unsqueeze(0)
        )
        self.num_basis = num_basis
        self.r_max = r_max
        self.rescale = rescale

    def __repr__(self) -> str:
        size = f"r_max={self.r_max}, num_basis={self.num_basis}"
        return f"{self.__class__.__name__}({size}, rescale={self.rescale})"

    def forward(self, x: Tensor) -> Tensor:
        """[n_edges, 1] -> [n_edges, num_basis]."""
        u = 2.0 * x / self.r_max - 1.0 if self.rescale else x.detach()
        polynomials = [torch.ones_like(u), u]  # T_0, T_1; T_n+1 = 2 u T_n - T_n-1
        for _ in range(1, self.num_basis):
            polynomials.append(2.0 * u * polynomials[-1] - polynomials[-2])
        return torch.cat(polynomials[1:], dim=-1)


@compile_mode("script")
class GaussianBasis(torch.nn.Module):
    """exp(-(x - c_n)^2 / (2 d^2)) with num_basis centres c_n from 0 to r_max, a distance d apart."""

    def __init__(self, r_max: float, num_basis: int = 128, trainable: bool = False) -> None:
        super().__init__()
        centres = torch.linspace(0.0, r_max, num_basis, dtype=torch.get_default_dtype())
        _constants(self, trainable, gaussian_weights=centres)
        self.coeff = -0.5 / (r_max / (num_basis - 1)) ** 2

    def forward(self, x: Tensor) -> Tensor:
        """[n_edges, 1] -> [n_edges, num_basis]."""
        x = x - self.gaussian_weights
        return torch.exp(self.coeff * (x * x))


# A function, since TorchScript finds static methods only of classes it has compiled before.
def _envelope(x: Tensor, r_max: Tensor, p: Tensor) -> Tensor:
    u = x / r_max
    u_p = torch.pow(u, p)
    polynomial = (p + 1.0) * (p + 2.0) / 2.0 - u * (p * (p + 2.0) - u * (p * (p + 1.0) / 2.0))
    return (1.0 - u_p * polynomial) * (x < r_max)


@compile_mode("script")
class PolynomialCutoff(torch.nn.Module):
    """Envelope 1 - O(x^p) that vanishes at r_max together with its first two derivatives.

    Gasteiger et al., arXiv:2003.03123, equation 8.
    """

    def __init__(self, r_max: float, p: int = 6) -> None:
        super().__init__()
        self.register_buffer("p", torch.tensor(p, dtype=torch.int))
        self.register_buffer("r_max", _scalar(r_max))

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}(p={self.p}, r_max={self.r_max})"

    def forward(self, x: Tensor) -> Tensor:
        """Values of the envelope at the distances ``x``."""
        return _envelope(x, self.r_max, self.p.to(torch.int))

    @staticmethod
    def calculate_envelope(x: Tensor, r_max: Tensor, p: Tensor) -> Tensor:
        """Values of the envelope at the distances ``x``; ``r_max`` may differ from edge to edge."""
        return _envelope(x, r_max, p)


@compile_mode("script")
class ZBLBasis(torch.nn.Module):
    """Screened nuclear repulsion of Ziegler, Biersack and Littmark, cut off at the sum of the covalent radii.

    V(x) = 1/2 14.3996 Z_u Z_v / x phi(x / a_uv) envelope(x; R_u + R_v, p) in eV, with a_uv = 0.529
    a_prefactor / (Z_u^a_exp + Z_v^a_exp) in Angstrom; the factor 1/2 because each pair is there as two
    edges.
    """

    def __init__(self, p: int = 6, trainable: bool = False, r_max: float | None = None) -> None:
        super().__init__()
        if r_max is not None:
            warnings.warn(
                "ZBLBasis takes its cutoff from the covalent radii: r_max is ignored",
                DeprecationWarning,
                stacklevel=2,
            )
        coefficients = torch.tensor([0.1818, 0.5099, 0.2802, 0.02817], dtype=torch.get_default_dtype())
        self.register_buffer("c", coefficients)
        self.register_buffer("p", torch.tensor(p, dtype=torch.int))
        self.register_buffer("covalent_radii", _covalent_radii())
        _constants(self, trainable, a_exp=_scalar(0.300), a_prefactor=_scalar(0.4543))

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}(c={self.c})"

    def forward(self, x: Tensor, node_attrs: Tensor, edge_index: Tensor, atomic_numbers: Tensor) -> Tensor:
        """Pair energy of every atom, [n_atoms], eV.

        Args:
            x: distances [n_edges, 1], Angstrom.
            node_attrs: one-hot elements [n_atoms, n_elements].
            edge_index: [2, n_edges].
            atomic_numbers: [n_elements].
        """
        z_u, z_v = _edge_atomic_numbers(node_attrs, edge_index, atomic_numbers)
        charge_u, charge_v = z_u.to(x.dtype), z_v.to(x.dtype)
        screening_length = (
            self.a_prefactor * 0.529 / (torch.pow(charge_u, self.a_exp) + torch.pow(charge_v, self.a_exp))
        )
        t = x / screening_length
        phi = (
            self.c[0] * torch.exp(-3.2 * t)
            + self.c[1] * torch.exp(-0.9423 * t)
            + self.c[2] * torch.exp(-0.4028 * t)
            + self.c[3] * torch.exp(-0.2016 * t)
        )
        contact = self.covalent_radii[z_u] + self.covalent_radii[z_v]
        envelope = _envelope(x, contact, self.p)
        v_edges = 0.5 * 14.3996 * charge_u * charge_v / x * phi * envelope
        return scatter_sum(v_edges, edge_index[1], 0, None, node_attrs.shape[0]).squeeze(-1)


@compile_mode("script")
class AgnesiTransform(torch.nn.Module):
    """1 / (1 + a s^q / (1 + s^(q-p))) of s = x / r0, r0 the mean covalent radius of the pair.

    Witt et al., J. Chem. Phys. 159, 164101 (2023).
    """

    def __init__(
        self, q: float = 0.9183, p: float = 4.5791, a: float = 1.0805, trainable: bool = False
    ) -> None:
        super().__init__()
        _constants(self, trainable, q=_scalar(q), p=_scalar(p), a=_scalar(a))
        self.register_buffer("covalent_radii", _covalent_radii())

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}(a={self.a:.4f}, q={self.q:.4f}, p={self.p:.4f})"

    def forward(self, x: Tensor, node_attrs: Tensor, edge_index: Tensor, atomic_numbers: Tensor) -> Tensor:
        """Transformed distances [n_edges, 1], without unit. Arguments as `ZBLBasis.forward`."""
        z_u, z_v = _edge_atomic_numbers(node_attrs, edge_index, atomic_numbers)
        s = x / (0.5 * (self.covalent_radii[z_u] + self.covalent_radii[z_v]))
        return 1.0 / (1.0 + self.a * torch.pow(s, self.q) / (1.0 + torch.pow(s, self.q - self.p)))


@compile_mode("script")
class SoftTransform(torch.nn.Module):
    """Distances below the bond length, pushed up to p0 = 3/4 r0, r0 the sum of the pair's covalent radii.

    p0 + (x - p0) (1 + tanh(k (x - m))) / 2 with p1 = 4/3 r0, m = (p0 + p1)/2 and k = alpha / (p1 - p0).
    """

    def __init__(self, alpha: float = 4.0, trainable: bool = False) -> None:
        super().__init__()
        _constants(self, trainable, alpha=_scalar(alpha))
        self.register_buffer("covalent_radii", _covalent_radii())

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}(alpha={self.alpha:.4f})"

    def compute_r_0(self, node_attrs: Tensor, edge_index: Tensor, atomic_numbers: Tensor) -> Tensor:
        """Sum of the covalent radii of each pair, [n_edges, 1], Angstrom."""
        z_u, z_v = _edge_atomic_numbers(node_attrs, edge_index, atomic_numbers)
        return self.covalent_radii[z_u] + self.covalent_radii[z_v]

    def forward(self, x: Tensor, node_attrs: Tensor, edge_index: Tensor, atomic_numbers: Tensor) -> Tensor:
        """Transformed distances [n_edges, 1], Angstrom. Arguments as `ZBLBasis.forward`."""
        r_0 = self.compute_r_0(node_attrs, edge_index, atomic_numbers)
        p_0 = 0.75 * r_0
        p_1 = 4.0 / 3.0 * r_0
        steepness = self.alpha / (p_1 - p_0)
        switch = 0.5 * (1.0 + torch.tanh(steepness * (x - 0.5 * (p_0 + p_1))))
        return p_0 + (x - p_0) * switch


@compile_mode("script")
class LegacySoftTransform(torch.nn.Module):
    """The Soft transform of MACE before 0.3.10: x + tanh(-s - a s^b) / 2 + 1/2 with s = 4 x / (R_u + R_v)."""

    def __init__(self, a: float = 0.2, b: float = 3.0, trainable: bool = False) -> None:
        super().__init__()
        self.register_buffer("covalent_radii", _covalent_radii())
        _constants(self, trainable, a=_scalar(a), b=_scalar(b))

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}(a={self.a:.4f}, b={self.b:.4f})"

    def forward(self, x: Tensor, node_attrs: Tensor, edge_index: Tensor, atomic_numbers: Tensor) -> Tensor:
        """Transformed distances [n_edges, 1], Angstrom. Arguments as `ZBLBasis.forward`."""
        z_u, z_v = _edge_atomic_numbers(node_attrs, edge_index, atomic_numbers)
        s = x / (0.25 * (self.covalent_radii[z_u] + self.covalent_radii[z_v]))
        return x + 0.5 * torch.tanh(-s - self.a * torch.pow(s, self.b)) + 0.5
