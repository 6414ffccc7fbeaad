"""The constructor arguments of a model, read and checked once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from e3nn import o3

from mace.exceptions import InputError
from mace.modules import blocks
from mace.modules._interaction import InteractionBlock
from mace.modules.irreps_tools import uniform_multiplicity

interaction_classes: dict[str, type[InteractionBlock]] = {
    cls.__name__: cls
    for cls in (
        blocks.RealAgnosticInteractionBlock,
        blocks.RealAgnosticResidualInteractionBlock,
        blocks.RealAgnosticDensityInteractionBlock,
        blocks.RealAgnosticDensityResidualInteractionBlock,
        blocks.RealAgnosticAttResidualInteractionBlock,
        blocks.ResidualElementDependentInteractionBlock,
        blocks.AgnosticNonlinearInteractionBlock,
        blocks.AgnosticResidualNonlinearInteractionBlock,
    )
}

gate_dict: dict[str, blocks.Gate | None] = {
    "abs": torch.abs,
    "tanh": torch.tanh,
    "silu": torch.nn.functional.silu,
    "None": None,
}


# Keywords of mace-torch and CP-MACE that this package does not need: the value at which they change nothing.
_NEUTRAL: dict[str, Any] = {
    "apply_cutoff": True,
    "use_so3": False,
    "use_agnostic_product": False,
    "use_last_readout_only": False,
    "use_embedding_readout": False,
    "edge_irreps": None,
    "use_edge_irreps_first": False,
    "embedding_specs": None,
    "oeq_config": None,
    "lammps_mliap": False,
    "readout_cls": "NonLinearReadoutBlock",
}
_WITHOUT_EFFECT = ("hidden_scalar_dim",)
LAST_LAYER = "keep_last_layer_irreps"
_LARGEST_DEGREE = 11  # of e3nn's spherical harmonics


def refuse_unknown(keywords: dict[str, Any]) -> None:
    """Let the keywords of other versions pass where they change nothing.

    Raises:
        TypeError: a keyword that no version has.
        InputError: a keyword of another version with a value that asks for something not built here.
    """
    for name, value in keywords.items():
        if name in _WITHOUT_EFFECT:
            continue
        if name not in _NEUTRAL:
            raise TypeError(f"unexpected keyword argument '{name}'")
        if value != _NEUTRAL[name]:
            raise InputError(f"{name}={value!r} is not supported: only {name}={_NEUTRAL[name]!r}")


def kept_irreps(
    hidden_irreps: o3.Irreps | str, num_interactions: int, keep_last: bool | None
) -> o3.Irreps | str:
    """Hidden irreps of a model for which mace-torch's ``keep_last_layer_irreps`` is given; None: it is not.

    There the last layer keeps scalars only, unless told otherwise; here and in CP-MACE the last of several
    does, and a single layer keeps all.

    Raises:
        InputError: the last of several layers should keep more.
    """
    if keep_last and num_interactions > 1:
        raise InputError(f"{LAST_LAYER}={keep_last} is not supported for several layers")
    if keep_last is False and num_interactions == 1:
        return _parsed(hidden_irreps, "hidden_irreps")[:1]
    return hidden_irreps


def _chosen(value: Any, known: dict[str, Any], what: str) -> Any:
    """``value`` itself, or what its name stands for."""
    if not isinstance(value, str):
        return value
    if value not in known:
        raise InputError(f"{what} '{value}' is not known; choose one of {', '.join(known)}")
    return known[value]


def _parsed(irreps: str | o3.Irreps, what: str) -> o3.Irreps:
    try:
        return o3.Irreps(irreps)
    except ValueError as error:
        raise InputError(
            f"{what} '{irreps}' cannot be read as irreps, like 32x0e + 32x1o: {error}"
        ) from error


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """Parsed arguments of the MACE family, and the blocks of a model's layers that follow from them.

    Irreps carry natural parity (0e, 1o, 2e ...). Other families differ in some of the methods.
    """

    has_products: ClassVar[bool] = True  # features are many-body: a product block follows each interaction

    r_max: float
    num_bessel: int
    num_polynomial_cutoff: int
    max_ell: int
    interaction_cls: type[InteractionBlock]
    interaction_cls_first: type[InteractionBlock]
    num_interactions: int
    num_elements: int
    hidden_irreps: o3.Irreps
    MLP_irreps: o3.Irreps
    avg_num_neighbors: float
    atomic_numbers: tuple[int, ...]
    gate: Callable[[torch.Tensor], torch.Tensor] | None
    cueq_config: Any | None
    correlation: tuple[int, ...]  # one per layer
    distance_transform: str = "None"
    radial_MLP: Sequence[int] | None = None  # noqa: N815 (public name)
    radial_type: str = "bessel"
    num_heads: int = 1
    use_reduced_cg: bool = False

    @classmethod
    def parse(cls, *, correlation: int | Sequence[int] = 1, **arguments: Any) -> Architecture:
        """From the arguments of a model's constructor.

        Raises:
            InputError: a name that does not exist, irreps that cannot be read or built, contradictory
                lengths.
        """
        layers = int(arguments["num_interactions"])
        if layers < 1:
            raise InputError(f"num_interactions is {layers}: a model needs at least one interaction")
        arguments["num_interactions"] = layers
        orders = [correlation] * layers if isinstance(correlation, int) else list(correlation)
        if len(orders) != layers:
            raise InputError(
                f"correlation {orders} has {len(orders)} entries for num_interactions {layers}: "
                "give one per layer"
            )
        for name in ("interaction_cls", "interaction_cls_first"):
            arguments[name] = _chosen(arguments[name], interaction_classes, name)
        arguments["gate"] = _chosen(arguments["gate"], gate_dict, "gate")
        for name in ("hidden_irreps", "MLP_irreps"):
            arguments[name] = _parsed(arguments[name], name)
        arguments["atomic_numbers"] = tuple(int(z) for z in arguments["atomic_numbers"])
        architecture = cls(correlation=tuple(orders), **arguments)
        architecture._check()
        return architecture

    def _check(self) -> None:
        """All that constructors check, in the order in which it is reported."""
        self._check_hidden()
        self._check_blocks()
        self._check_numbers()
        self._check_readout()

    def _check_hidden(self) -> None:
        hidden = self.hidden_irreps
        if len(hidden) == 0 or str(hidden[0].ir) != "0e":
            raise InputError(f"hidden_irreps '{hidden}' must start with scalars, like 32x0e + 32x1o")
        if self.has_products:
            uniform_multiplicity(hidden, "hidden_irreps")
        unreachable = [str(ir) for _, ir in hidden if ir.p != (-1) ** ir.l]
        if unreachable:
            raise InputError(
                f"hidden_irreps '{hidden}': {unreachable[0]} cannot be reached, "
                "use natural parity (0e, 1o, 2e ...)"
            )
        if self.max_ell > _LARGEST_DEGREE:
            raise InputError(
                f"max_ell is {self.max_ell}: e3nn has spherical harmonics up to {_LARGEST_DEGREE}"
            )
        if self.max_ell < hidden.lmax:
            raise InputError(
                f"max_ell {self.max_ell} is smaller than the largest degree {hidden.lmax} of "
                f"hidden_irreps '{hidden}': raise max_ell to {hidden.lmax} or drop the higher irreps"
            )

    def _check_blocks(self) -> None:
        for name in ("interaction_cls_first", "interaction_cls"):
            given = getattr(self, name)
            if not (isinstance(given, type) and issubclass(given, InteractionBlock)):
                raise InputError(f"{name} {given!r} is not an interaction block")
            if given.feeds_product != self.has_products:
                known = interaction_classes.items()
                fitting = [key for key, cls in known if cls.feeds_product == self.has_products]
                raise InputError(
                    f"{name} {given.__name__} is a block of {'MACE' if given.feeds_product else 'BOTNet'} "
                    f"models only; choose one of {', '.join(fitting)}"
                )

    def _check_numbers(self) -> None:
        if not self.r_max > 0.0:
            raise InputError(f"r_max is {self.r_max}: the cutoff radius must be positive")
        if len(self.atomic_numbers) != self.num_elements:
            raise InputError(
                f"num_elements is {self.num_elements}, but atomic_numbers has {len(self.atomic_numbers)}"
            )

    def _check_readout(self) -> None:
        if any(ir.l > 0 for _, ir in self.MLP_irreps) or self.MLP_irreps.dim == 0:
            raise InputError(f"MLP_irreps '{self.MLP_irreps}' must be scalars, like 16x0e")

    def checked_energies(self, atomic_energies: Any) -> np.ndarray:
        """E0 as an array, [n_elements] or [n_heads, n_elements].

        Raises:
            InputError: another shape.
        """
        if isinstance(atomic_energies, torch.Tensor):
            atomic_energies = atomic_energies.detach().cpu().numpy()
        energies = np.asarray(atomic_energies, dtype=np.float64)
        expected = (self.num_heads, self.num_elements)
        if np.atleast_2d(energies).shape != expected:
            raise InputError(
                f"atomic_energies has the shape {energies.shape}, but there are {expected[0]} heads and "
                f"{expected[1]} elements: give one energy per head and element"
            )
        return energies

    @property
    def num_channels(self) -> int:
        """Multiplicity of the scalars, and of every other block of many-body features."""
        return self.hidden_irreps[0].mul

    @property
    def scalars(self) -> o3.Irreps:
        return o3.Irreps([self.hidden_irreps[0]])

    @property
    def edge_irreps(self) -> o3.Irreps:
        """Spherical harmonics up to max_ell."""
        return o3.Irreps.spherical_harmonics(self.max_ell)

    @property
    def message_irreps(self) -> o3.Irreps:
        """All channels for every spherical harmonic."""
        return o3.Irreps([(self.num_channels, ir) for _, ir in self.edge_irreps])

    @property
    def last_irreps(self) -> o3.Irreps:
        """Irreps that the last of several layers keeps: scalars."""
        return self.scalars

    def ends(self, layer: int) -> bool:
        """Whether ``layer`` is the last of several: it may keep fewer irreps, its readout is not linear."""
        return layer == self.num_interactions - 1 and self.num_interactions > 1

    def layer_irreps(self, layer: int) -> o3.Irreps:
        """Irreps of the features after ``layer``."""
        return self.last_irreps if self.ends(layer) else self.hidden_irreps

    def interaction(self, layer: int) -> InteractionBlock:
        cls = self.interaction_cls_first if layer == 0 else self.interaction_cls
        return cls(
            node_attrs_irreps=o3.Irreps([(self.num_elements, (0, 1))]),
            node_feats_irreps=self.scalars if layer == 0 else self.layer_irreps(layer - 1),
            edge_attrs_irreps=self.edge_irreps,
            edge_feats_irreps=o3.Irreps([(self.num_bessel, (0, 1))]),
            target_irreps=self.message_irreps,
            hidden_irreps=self.layer_irreps(layer),
            avg_num_neighbors=self.avg_num_neighbors,
            radial_MLP=self.radial_MLP,
            cueq_config=self.cueq_config,
        )

    def product(self, layer: int) -> blocks.EquivariantProductBasisBlock:
        return blocks.EquivariantProductBasisBlock(
            node_feats_irreps=self.message_irreps,
            target_irreps=self.layer_irreps(layer),
            correlation=self.correlation[layer],
            use_sc=layer > 0 or self.interaction_cls_first.self_connection_is_returned,
            num_elements=self.num_elements,
            cueq_config=self.cueq_config,
            use_reduced_cg=self.use_reduced_cg,
        )

    def readout(self, layer: int) -> torch.nn.Module:
        """One scalar per head."""
        irrep_out = o3.Irreps([(self.num_heads, (0, 1))])
        if not self.ends(layer):
            return blocks.LinearReadoutBlock(
                self.layer_irreps(layer), irrep_out, cueq_config=self.cueq_config
            )
        return blocks.NonLinearReadoutBlock(
            self.layer_irreps(layer),
            (self.num_heads * self.MLP_irreps).simplify(),
            self.gate,
            irrep_out,
            self.num_heads,
            cueq_config=self.cueq_config,
        )
