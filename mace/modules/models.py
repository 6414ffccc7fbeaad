"""The models. Input is a dictionary of tensors, output one of energies, derivatives and Fermi levels.

Units: eV, Angstrom; forces -dE/dr, virials -dE/d(strain), stress +dE/d(strain)/volume; Fermi level
    (potential) in V; electron numbers are counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from e3nn import o3
from e3nn.util.jit import compile_mode
from torch import Tensor

from mace.exceptions import InputError
from mace.modules._architecture import LAST_LAYER, Architecture, kept_irreps, refuse_unknown
from mace.modules._fermi import (
    MLP,
    STATE_WIDTH,
    EvidentialRegressionOutput,
    GatedMLP,
    evidential_positive_outputs,
    scalar_readout,
)
from mace.modules._interaction import InteractionBlock
from mace.modules._trunk import EnergyModel, Evaluation, Graph, Layers, ManyBodyLayers, mean_of_atoms
from mace.modules.blocks import ScaleShiftBlock
from mace.modules.botnet import BOTNet, ScaleShiftBOTNet
from mace.modules.dipoles import AtomicDipolesMACE, EnergyDipolesMACE
from mace.tools.rebuild import records_config

__all__ = [
    "MACE",
    "MLP",
    "AtomicDipolesMACE",
    "BOTNet",
    "EnergyDipolesMACE",
    "EvidentialRegressionOutput",
    "GatedMLP",
    "ScaleShiftBOTNet",
    "ScaleShiftMACE",
    "evidential_positive_outputs",
]


@records_config
@compile_mode("script")
class MACE(ManyBodyLayers, EnergyModel):
    """Equivariant message passing with many-body messages (Batatia et al., arXiv:2206.07697).

    Args:
        r_max: cutoff radius, Angstrom.
        num_bessel: number of radial basis functions.
        num_polynomial_cutoff: p of the cutoff's envelope.
        max_ell: largest degree of the spherical harmonics; at least that of ``hidden_irreps``.
        interaction_cls: class of the interactions, or its name in `interaction_classes`.
        interaction_cls_first: the same for the first layer.
        num_interactions: number of layers.
        num_elements: number of elements.
        hidden_irreps: features of the layers, like "32x0e + 32x1o": same multiplicity for all, scalars first.
        MLP_irreps: hidden scalars of the last readout, per head.
        atomic_energies: E0 of the elements, eV, [n_elements] or [n_heads, n_elements].
        avg_num_neighbors: average number of neighbours; sums over neighbours are divided by it.
        atomic_numbers: atomic number of each element.
        correlation: order of the many-body messages, one for all layers or one each.
        gate: activation of the last readout, or its name in `gate_dict`, or None.
        pair_repulsion: add the ZBL energy of close pairs.
        distance_transform: "None", "Agnesi", "Soft" or "SoftLegacy".
        radial_MLP: hidden widths of the radial networks, [64, 64, 64] if None.
        radial_type: "bessel", "gaussian", "chebyshev" or "chebyshev_raw".
        heads: names of the heads, ["default"] if None.
        cueq_config: back end, see `wrapper_ops`.
        electron_input: the node embedding also sees the number of electrons; this and the next four only
            in `ScaleShiftMACE`.
        use_global_state: a state of each graph, started from its number of electrons, is carried along
            the layers.
        potential_output: predict the Fermi level.
        pred_uncertainty: predict log variances of energy and Fermi level.
        pred_evidential: predict evidential parameters of energy and Fermi level.
        use_reduced_cg: couplings of the products without those that add nothing (the default of newer
            mace-torch): as expressive, with fewer weights.
        **others: keywords of other versions, accepted only where they change nothing.

    Raises:
        InputError: arguments that contradict each other or the class.
    """

    takes_electrons = False

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
        avg_num_neighbors: float,
        atomic_numbers: Sequence[int],
        correlation: int | Sequence[int],
        gate: Callable[[Tensor], Tensor] | str | None,
        pair_repulsion: bool = False,
        distance_transform: str = "None",
        radial_MLP: Sequence[int] | None = None,  # noqa: N803 (public name)
        radial_type: str = "bessel",
        heads: Sequence[str] | None = None,
        cueq_config: Any | None = None,
        electron_input: bool = False,
        use_global_state: bool = False,
        potential_output: bool = False,
        pred_uncertainty: bool = False,
        pred_evidential: bool = False,
        use_reduced_cg: bool = False,
        **others: Any,
    ) -> None:
        hidden_irreps = kept_irreps(hidden_irreps, num_interactions, others.pop(LAST_LAYER, None))
        refuse_unknown(others)
        heads = ["default"] if heads is None else list(heads)
        if not all(isinstance(head, str) for head in heads):
            raise InputError(f"heads are {heads}: the name of a head is text")
        architecture = Architecture.parse(
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
            correlation=correlation,
            gate=gate,
            distance_transform=distance_transform,
            radial_MLP=radial_MLP,
            radial_type=radial_type,
            num_heads=len(heads),
            cueq_config=cueq_config,
            use_reduced_cg=use_reduced_cg,
        )
        energies = architecture.checked_energies(atomic_energies)
        super().__init__(architecture, energies, pair_repulsion, num_extra_inputs=int(electron_input))
        self.heads = heads
        self.num_channels = architecture.num_channels
        self.electron_input = electron_input
        self.use_global_state = use_global_state
        self.potential_output = potential_output
        self.pred_uncertainty = pred_uncertainty
        self.pred_evidential = pred_evidential
        self._check_fermi_options()

    def _check_fermi_options(self) -> None:
        options = (
            "electron_input",
            "use_global_state",
            "potential_output",
            "pred_uncertainty",
            "pred_evidential",
        )
        chosen = [name for name in options if getattr(self, name)]
        if chosen and not self.takes_electrons:
            raise InputError(f"{chosen[0]} is not an option of {type(self).__name__}: use ScaleShiftMACE")
        for name in ("pred_uncertainty", "pred_evidential"):
            if name in chosen and (not self.potential_output or self.use_global_state):
                raise InputError(
                    f"{name} needs potential_output and cannot be combined with use_global_state"
                )
        if self.pred_uncertainty and self.pred_evidential:
            raise InputError("pred_uncertainty and pred_evidential exclude each other")

    def added_energies(self, layers: Layers, graph: Graph) -> list[Tensor]:
        """The ZBL energy, zeros in models without it, and the readouts of the layers, [n_atoms] each."""
        if self.has_pair_repulsion:
            pairs = self.pair_repulsion_fn(
                graph.lengths, graph.node_attrs, graph.edge_index, self.atomic_numbers
            )
        else:
            pairs = torch.zeros_like(graph.node_attrs[:, 0])
        return [pairs] + self.layer_energies(layers, graph)

    def forward(
        self,
        data: dict[str, Tensor],
        training: bool = False,
        compute_force: bool = True,
        compute_virials: bool = False,
        compute_stress: bool = False,
        compute_displacement: bool = False,
        compute_hessian: bool = False,
    ) -> dict[str, Tensor | None]:
        """Energies and derivatives of a batch of graphs.

        Args:
            data: positions [n_atoms, 3]; node_attrs [n_atoms, n_elements], one-hot; edge_index int64 [2,
                n_edges], sender and receiver; shifts [n_edges, 3]; cell [3 n_graphs, 3]; batch int64
                [n_atoms]; ptr int64 [n_graphs + 1]; head int64 [n_graphs] with several heads; unit_shifts
                [n_edges, 3] for virials and stress.
            training: keep the graph of the derivatives, to train on them.
            compute_force: give forces.
            compute_virials: give virials, and forces.
            compute_stress: give stress, virials and forces.
            compute_displacement: give the strain, so that the caller can differentiate by it.
            compute_hessian: give the Hessian, and forces.

        Returns:
            energy [n_graphs]; node_energy [n_atoms]; contributions [n_graphs, n_layers + 2]: E0, pair
            repulsion, layers; forces [n_atoms, 3]; virials, stress, displacement [n_graphs, 3, 3];
            hessian [3 n_atoms, n_atoms, 3]; node_feats [n_atoms, features of all layers]. None for what
            was not computed.
        """
        evaluation = self.evaluate(
            data,
            training,
            compute_force,
            compute_virials,
            compute_stress,
            compute_displacement,
            compute_hessian,
        )
        evaluation.output["contributions"] = self.contributions(evaluation)
        return evaluation.output


@records_config
@compile_mode("script")
class ScaleShiftMACE(MACE):
    """`MACE` with a scaled and shifted interaction energy; with electron numbers a constant-potential model.

    With q = electron - mean_electron of each graph: ``electron_input`` makes q a node attribute,
    ``use_global_state`` starts a 64-component state of each graph from it that conditions the features
    before each layer and is updated after it. The Fermi level is read from the mean over atoms of the
    scalars after the first and the last layer, or from the final state; it is independent of dE/dq.

    Args:
        atomic_inter_scale: scale of the interaction energy per atom, eV, a number or one per head.
        atomic_inter_shift: shift, eV per atom, the same; None for no shift.
        mean_potential: mean Fermi level of the training set, V: where the output's last bias starts.
            Never added.
        mean_electron: mean number of electrons of the training set, subtracted from the input.
        **kwargs: arguments of `MACE`.
    """

    takes_electrons = True
    __constants__ = [
        *MACE.__constants__,
        "electron_input",
        "use_global_state",
        "potential_output",
        "pred_uncertainty",
        "pred_evidential",
    ]

    def __init__(
        self,
        atomic_inter_scale: float | np.ndarray | Sequence[float],
        atomic_inter_shift: float | np.ndarray | Sequence[float] | None,
        mean_potential: float = 0.0,
        mean_electron: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        for name, value in (("scale", atomic_inter_scale), ("shift", atomic_inter_shift)):
            if value is not None and np.asarray(value).size != len(self.heads):
                raise InputError(f"atomic_inter_{name} {value}: give one number for each of {self.heads}")
        dtype = torch.get_default_dtype()
        self.register_buffer("mean_potential", torch.tensor([float(mean_potential)], dtype=dtype))
        self.register_buffer("mean_electron", torch.tensor([float(mean_electron)], dtype=dtype))
        self.scale_shift = ScaleShiftBlock(scale=atomic_inter_scale, shift=atomic_inter_shift)
        width = 2 * self.num_channels
        if self.pred_uncertainty:
            self.potential_logvar_output_layer = scalar_readout(width)
            self.energy_logvar_output_layer = scalar_readout(width)
        if self.pred_evidential:
            self.potential_evidential_output_layer = EvidentialRegressionOutput(width)
            self.energy_evidential_output_layer = EvidentialRegressionOutput(width)
        if self.use_global_state:
            self.global_state_embedding = torch.nn.Linear(1, STATE_WIDTH)
        if self.potential_output:
            self.potential_output_layer = scalar_readout(
                STATE_WIDTH if self.use_global_state else width, float(mean_potential)
            )
        if self.use_global_state:
            self.node_updates = GatedMLP(self.num_channels, STATE_WIDTH, self.num_channels)
            self.state_updates = torch.nn.ModuleList([MLP(STATE_WIDTH, self.num_channels, STATE_WIDTH)])

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        if not (self.electron_input or self.use_global_state or self.potential_output):
            for name in ("mean_potential", "mean_electron"):  # without use here, and unknown to MACE
                state_dict.setdefault(prefix + name, getattr(self, name))
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)

    def excess_electrons(self, data: dict[str, Tensor]) -> Tensor:
        """Numbers of electrons minus the mean of the training set, [n_graphs]."""
        if "electron" not in data:
            raise ValueError(
                "this model needs the number of electrons of each graph, and the data has no 'electron'"
            )
        return data["electron"] - self.mean_electron

    def embedding_input(self, data: dict[str, Tensor], graph: Graph) -> Tensor:
        """One-hot elements, and with ``electron_input`` the excess electrons of the graph."""
        if self.electron_input:
            excess = self.excess_electrons(data)[graph.batch]
            return torch.cat([graph.node_attrs, excess.unsqueeze(-1)], dim=-1)
        return graph.node_attrs

    def first_state(self, data: dict[str, Tensor], graph: Graph) -> Tensor:
        """State of each graph before the layers, [n_graphs, 64], from its excess electrons."""
        if self.use_global_state:
            return self.global_state_embedding(self.excess_electrons(data).unsqueeze(-1))
        return torch.empty_like(graph.node_attrs[:0])

    def conditioned(self, node_feats: Tensor, state: Tensor, graph: Graph) -> Tensor:
        """Features that enter a layer: the scalars see the state of their graph."""
        if self.use_global_state:
            scalars = self.node_updates(node_feats[:, : self.num_channels], state[graph.batch])
            return torch.cat([scalars, node_feats[:, self.num_channels :]], dim=-1)
        return node_feats

    def next_state(self, state: Tensor, node_feats: Tensor, graph: Graph) -> Tensor:
        """State after a layer: it sees the mean of the scalars."""
        if self.use_global_state:
            return self.state_updates[0](state, mean_of_atoms(node_feats[:, : self.num_channels], graph))
        return state

    def scaled(self, node_energies: Tensor, node_heads: Tensor) -> Tensor:
        """Interaction energies [n_atoms], eV, scaled and shifted."""
        return self.scale_shift(node_energies, node_heads)

    def fermi_outputs(self, evaluation: Evaluation, compute_potential: bool) -> dict[str, Tensor | None]:
        """Fermi level and uncertainties, each [n_graphs]; the potential is None if not computed."""
        output: dict[str, Tensor | None] = {"potential": None}
        if not (self.potential_output and compute_potential):
            return output
        if self.use_global_state:
            state = evaluation.layers.state.to(evaluation.graph.positions.dtype)
            output["potential"] = self.potential_output_layer(state).squeeze(-1)
            return output
        first, last = evaluation.layers.node_feats[0], evaluation.layers.node_feats[-1]
        scalars = torch.cat([first[:, : self.num_channels], last[:, : self.num_channels]], dim=-1)
        readout_input = mean_of_atoms(scalars, evaluation.graph)
        output["potential"] = self.potential_output_layer(readout_input).squeeze(-1)
        if self.pred_uncertainty:
            output["potential_logvar"] = self.potential_logvar_output_layer(readout_input).squeeze(-1)
            output["energy_logvar"] = self.energy_logvar_output_layer(readout_input).squeeze(-1)
        if self.pred_evidential:
            nu, alpha, beta = evidential_positive_outputs(
                self.potential_evidential_output_layer(readout_input)
            )
            output["potential_nu"], output["potential_alpha"], output["potential_beta"] = nu, alpha, beta
            nu, alpha, beta = evidential_positive_outputs(self.energy_evidential_output_layer(readout_input))
            output["energy_nu"], output["energy_alpha"], output["energy_beta"] = nu, alpha, beta
        return output

    def forward(
        self,
        data: dict[str, Tensor],
        training: bool = False,
        compute_force: bool = True,
        compute_virials: bool = False,
        compute_stress: bool = False,
        compute_displacement: bool = False,
        compute_hessian: bool = False,
        compute_potential: bool = True,
    ) -> dict[str, Tensor | None]:
        """Energies, derivatives and Fermi levels of a batch of graphs.

        Args:
            data: as `MACE.forward`; electron [n_graphs] where the model takes electron numbers.
            training: this and the next five as `MACE.forward`.
            compute_force: give forces.
            compute_virials: give virials, and forces.
            compute_stress: give stress, virials and forces.
            compute_displacement: give the strain.
            compute_hessian: give the Hessian, and forces.
            compute_potential: give the Fermi level, where the model predicts one.

        Returns:
            As `MACE.forward` without contributions; interaction_energy [n_graphs]; potential [n_graphs],
            V, or None; with ``pred_uncertainty`` potential_logvar and energy_logvar, with
            ``pred_evidential`` potential_nu, _alpha, _beta and energy_nu, _alpha, _beta, all [n_graphs].
        """
        evaluation = self.evaluate(
            data,
            training,
            compute_force,
            compute_virials,
            compute_stress,
            compute_displacement,
            compute_hessian,
        )
        output = evaluation.output
        output["interaction_energy"] = evaluation.energies.interaction
        if torch.jit.is_scripting():
            fermi = self.fermi_outputs(evaluation, compute_potential)
        else:  # a Fermi level of -10 V is rounded to 0.06 V in bfloat16, so torch.autocast ends here
            with torch.autocast(output["energy"].device.type, enabled=False):
                fermi = self.fermi_outputs(evaluation, compute_potential)
        for name, value in fermi.items():
            output[name] = value
        return output
