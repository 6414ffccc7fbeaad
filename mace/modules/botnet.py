"""BOTNet: message passing with two-body messages, and without product blocks.

Batatia et al., "The Design Space of E(3)-Equivariant Atom-Centered Interatomic Potentials", arXiv:2205.06643.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from e3nn import o3
from e3nn.util.jit import compile_mode
from torch import Tensor

from mace.exceptions import InputError
from mace.modules._architecture import Architecture
from mace.modules._interaction import InteractionBlock
from mace.modules._trunk import EnergyModel, Evaluation, Graph, Layers
from mace.modules.blocks import ScaleShiftBlock
from mace.tools.rebuild import records_config


@dataclass(frozen=True, kw_only=True)
class BotnetArchitecture(Architecture):
    """The features of a layer are its message, in all layers; blocks may differ in their multiplicity."""

    has_products: ClassVar[bool] = False

    @property
    def message_irreps(self) -> o3.Irreps:
        """Those of the features, in the order in which tensor products give them."""
        return self.hidden_irreps.sort().irreps.simplify()

    def layer_irreps(self, layer: int) -> o3.Irreps:
        """Those of the message."""
        return self.message_irreps


def _as_dictionary(data: Any) -> dict[str, Tensor]:
    """The tensors of a batch object; a dictionary is given back as it is."""
    if isinstance(data, dict):
        return data
    return {key: value for key, value in data.to_dict().items() if isinstance(value, Tensor)}


@records_config
@compile_mode("script")
class BOTNet(EnergyModel):
    """Message passing with two-body messages.

    Args:
        r_max: cutoff radius, Angstrom.
        num_bessel: number of Bessel functions.
        num_polynomial_cutoff: p of the cutoff's envelope.
        max_ell: largest degree of the spherical harmonics; at least that of ``hidden_irreps``.
        interaction_cls: class of the interactions, or its name in `interaction_classes`; one of
            ResidualElementDependentInteractionBlock, AgnosticNonlinearInteractionBlock and
            AgnosticResidualNonlinearInteractionBlock.
        interaction_cls_first: the same for the first layer.
        num_interactions: number of layers.
        num_elements: number of elements.
        hidden_irreps: features of all layers, like "32x0e + 16x1o": scalars first.
        MLP_irreps: hidden scalars of the last readout.
        atomic_energies: E0 of the elements, eV, [n_elements] or [1, n_elements].
        gate: activation of the last readout, or its name in `gate_dict`, or None.
        avg_num_neighbors: average number of neighbours; sums over neighbours are divided by it.
        atomic_numbers: atomic number of each element.
        cueq_config: back end, see `wrapper_ops`.
        radial_MLP: hidden widths of the radial networks, [64, 64, 64] if None.

    Raises:
        InputError: arguments that contradict each other or the class.
    """

    def __init__(
        self,
        r_max: float,
        num_bessel: int,
        num_polynomial_cutoff: int,
        max_ell: int,
        interaction_cls: type[InteractionBlock] | str,
        interaction_cls_first: type[InteractionBlock] | str,
        num_interactions: int,
        num_elements: int,
        hidden_irreps: o3.Irreps | str,
        MLP_irreps: o3.Irreps | str,  # noqa: N803 (public name)
        atomic_energies: np.ndarray | Sequence,
        gate: Callable[[Tensor], Tensor] | str | None,
        avg_num_neighbors: float,
        atomic_numbers: Sequence[int],
        cueq_config: Any | None = None,
        radial_MLP: Sequence[int] | None = None,  # noqa: N803 (public name)
    ) -> None:
        architecture = BotnetArchitecture.parse(
            r_max=r_max,
            num_bessel=num_bessel,
            num_polynomial_cutoff=num_polynomial_cutoff,
            max_ell=max_ell,
            interaction_cls=interaction_cls,
            interaction_cls_first=interaction_cls_first,
            num_interactions=num_interactions,
            num_elements=num_elements,
            hidden_irreps=hidden_irreps,
            MLP_irreps=MLP_irreps,
            avg_num_neighbors=avg_num_neighbors,
            atomic_numbers=atomic_numbers,
            gate=gate,
            radial_MLP=radial_MLP,
            cueq_config=cueq_config,
        )
        super().__init__(architecture, architecture.checked_energies(atomic_energies))
        self.heads = ["default"]

    def _describe(self, architecture: Architecture) -> None:
        """Elements, cutoff and number of layers as attributes; the state dict does not have them."""
        numbers = torch.tensor(architecture.atomic_numbers, dtype=torch.int64)
        self.register_buffer("atomic_numbers", numbers, persistent=False)
        self.r_max = float(architecture.r_max)
        self.num_interactions = architecture.num_interactions

    def propagated(
        self,
        data: dict[str, Tensor],
        graph: Graph,
        node_feats: Tensor,
        edge_attrs: Tensor,
        edge_feats: Tensor,
    ) -> Layers:
        """The layers, from the embedded nodes and edges on."""
        features: list[Tensor] = []
        readouts: list[Tensor] = []
        for interaction, readout in zip(self.interactions, self.readouts):  # noqa: B905 - TorchScript
            node_feats = interaction(graph.node_attrs, node_feats, edge_attrs, edge_feats, graph.edge_index)
            features.append(node_feats)
            readouts.append(readout(node_feats, graph.node_heads))
        return Layers(features, readouts, torch.empty_like(graph.node_attrs[:0]))

    def completed(self, evaluation: Evaluation) -> dict[str, Tensor | None]:
        """The output, with what this class adds to that of all energy models."""
        evaluation.output["contributions"] = self.contributions(evaluation)
        return evaluation.output

    def forward(
        self,
        data: dict[str, Tensor],
        training: bool = False,
        compute_force: bool = True,
        compute_virials: bool = False,
        compute_stress: bool = False,
        compute_displacement: bool = False,
        compute_hessian: bool = False,
        compute_potential: bool = False,
    ) -> dict[str, Tensor | None]:
        """Energies and derivatives of a batch of graphs.

        Args:
            data: as `MACE.forward`, or a batch object with these attributes.
            training: this and the next five as `MACE.forward`.
            compute_force: give forces.
            compute_virials: give virials, and forces.
            compute_stress: give stress, virials and forces.
            compute_displacement: give the strain.
            compute_hessian: give the Hessian, and forces.
            compute_potential: accepted, as all models do; there is no Fermi level.

        Returns:
            As `MACE.forward`; contributions [n_graphs, n_layers + 1]: E0, layers.
        """
        if not torch.jit.is_scripting():
            data = _as_dictionary(data)
        evaluation = self.evaluate(
            data,
            training,
            compute_force,
            compute_virials,
            compute_stress,
            compute_displacement,
            compute_hessian,
        )
        return self.completed(evaluation)


@records_config
@compile_mode("script")
class ScaleShiftBOTNet(BOTNet):
    """`BOTNet` with a scaled and shifted interaction energy.

    Args:
        atomic_inter_scale: scale of the interaction energy per atom, eV.
        atomic_inter_shift: shift, eV per atom; None for no shift.
        **kwargs: arguments of `BOTNet`.
    """

    def __init__(
        self,
        atomic_inter_scale: float | np.ndarray | Sequence[float],
        atomic_inter_shift: float | np.ndarray | Sequence[float] | None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        for name, value in (("scale", atomic_inter_scale), ("shift", atomic_inter_shift)):
            if value is not None and np.asarray(value).size != 1:
                raise InputError(f"atomic_inter_{name} {value}: give one number, BOTNet has one head")
        self.scale_shift = ScaleShiftBlock(scale=atomic_inter_scale, shift=atomic_inter_shift)

    def scaled(self, node_energies: Tensor, node_heads: Tensor) -> Tensor:
        """Interaction energies [n_atoms], eV, scaled and shifted."""
        return self.scale_shift(node_energies, node_heads)

    def completed(self, evaluation: Evaluation) -> dict[str, Tensor | None]:
        """The output, with what this class adds to that of all energy models."""
        evaluation.output["interaction_energy"] = evaluation.energies.interaction
        return evaluation.output
