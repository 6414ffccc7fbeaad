"""Models of dipole moments: of the dipole alone, and of energy and dipole.

The dipole of a graph is that of the point charges of its atoms plus the dipoles of the atoms, which are read
from vectors. Units: Debye; everything else as in `mace.modules.models`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from e3nn import o3
from e3nn.util.jit import compile_mode
from torch import Tensor

from mace.exceptions import InputError
from mace.modules._architecture import Architecture
from mace.modules._interaction import InteractionBlock
from mace.modules._trunk import EnergyModel, Graph, Layers, ManyBodyLayers, graph_of
from mace.modules.blocks import LinearDipoleReadoutBlock, NonLinearDipoleReadoutBlock
from mace.modules.utils import compute_fixed_charge_dipole
from mace.tools.rebuild import records_config
from mace.tools.scatter import scatter_sum


@dataclass(frozen=True, kw_only=True)
class DipoleArchitecture(Architecture):
    """Readouts of a vector, or of an energy and a vector.

    The last of several layers keeps vectors, and the scalars that gate them in its readout.
    """

    dipole_only: bool
    upstream_readout: bool | None  # see `AtomicDipolesMACE`

    @property
    def drops_scalars(self) -> bool:
        """Whether the last layer keeps vectors only, so that its readout gives nothing."""
        if self.upstream_readout is None:
            return self.dipole_only and {str(ir) for _, ir in self.MLP_irreps} == {"1o"}
        return self.dipole_only and self.upstream_readout

    @property
    def last_irreps(self) -> o3.Irreps:
        """Vectors, and the scalars that gate them."""
        return self.hidden_irreps[1:2] if self.drops_scalars else self.hidden_irreps[:2]

    def _check_hidden(self) -> None:
        super()._check_hidden()
        if len(self.hidden_irreps) < 2 or str(self.hidden_irreps[1].ir) != "1o":
            raise InputError(
                f"hidden_irreps '{self.hidden_irreps}' must start with scalars and vectors, like "
                "32x0e + 32x1o: dipoles are read from the vectors"
            )

    def _check_readout(self) -> None:
        kinds = {str(ir) for _, ir in self.MLP_irreps}
        if kinds == {"0e", "1o"} or self.drops_scalars or self.upstream_readout:
            return
        raise InputError(
            f"MLP_irreps '{self.MLP_irreps}' must be scalars and vectors, like 16x0e + 16x1o: the last "
            "readout makes the dipole from the vectors, which the scalars gate"
        )

    def readout(self, layer: int) -> torch.nn.Module:
        """One vector, or one scalar and one vector."""
        irreps = self.layer_irreps(layer)
        if not self.ends(layer):
            return LinearDipoleReadoutBlock(irreps, self.dipole_only, cueq_config=self.cueq_config)
        return NonLinearDipoleReadoutBlock(
            irreps, self.MLP_irreps, self.gate, self.dipole_only, cueq_config=self.cueq_config
        )


class DipoleModel(ManyBodyLayers):
    """Dipoles of the readouts' vectors, which are the last three columns."""

    def dipoles(self, data: dict[str, Tensor], graph: Graph, layers: Layers) -> tuple[Tensor, Tensor]:
        """Of the graphs, [n_graphs, 3], and of the atoms, [n_atoms, 3]; only the first with the charges."""
        if "charges" not in data:
            raise ValueError("this model needs the charge of each atom, and the data has no 'charges'")
        dtype = graph.positions.dtype  # torch.autocast may have made the readouts bfloat16
        of_atoms = layers.readouts[0][:, -3:].to(dtype)
        for readout in layers.readouts[1:]:
            of_atoms = of_atoms + readout[:, -3:].to(dtype)
        of_charges = compute_fixed_charge_dipole(
            data["charges"], graph.positions, graph.batch, graph.num_graphs
        )
        return of_charges + scatter_sum(of_atoms, graph.batch, 0, None, graph.num_graphs), of_atoms


@records_config
@compile_mode("script")
class AtomicDipolesMACE(DipoleModel):
    """Dipole moments without energies.

    Args:
        r_max: this and the next 13 as in `MACE`; ``hidden_irreps`` starts with scalars and vectors.
        num_bessel: number of radial basis functions.
        num_polynomial_cutoff: p of the cutoff's envelope.
        max_ell: largest degree of the spherical harmonics.
        interaction_cls: class of the interactions, or its name.
        interaction_cls_first: the same for the first layer.
        num_interactions: number of layers.
        num_elements: number of elements.
        hidden_irreps: features of the layers.
        MLP_irreps: hidden scalars and vectors of the last readout, like "16x0e + 16x1o".
        avg_num_neighbors: average number of neighbours.
        atomic_numbers: atomic number of each element.
        correlation: order of the many-body messages.
        gate: activation of the last readout.
        atomic_energies: None: there is no energy.
        radial_type: "bessel", "gaussian", "chebyshev" or "chebyshev_raw".
        radial_MLP: hidden widths of the radial networks, [64, 64, 64] if None.
        cueq_config: back end, see `wrapper_ops`.
        upstream_readout: True for models of MACE and CP-MACE: the last layer keeps vectors only, which leaves
            the gates of the last readout without input, so that it gives zero. False: it keeps the scalars
            too. None: as upstream, with a warning, if ``MLP_irreps`` are vectors only, else False.

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
        avg_num_neighbors: float,
        atomic_numbers: Sequence[int],
        correlation: int | Sequence[int],
        gate: Callable[[Tensor], Tensor] | str | None,
        atomic_energies: None = None,
        radial_type: str = "bessel",
        radial_MLP: Sequence[int] | None = None,  # noqa: N803 (public name)
        cueq_config: Any | None = None,
        upstream_readout: bool | None = None,
    ) -> None:
        if atomic_energies is not None:
            raise InputError("AtomicDipolesMACE has no energy: atomic_energies must be None")
        architecture = DipoleArchitecture.parse(
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
            radial_type=radial_type,
            radial_MLP=radial_MLP,
            cueq_config=cueq_config,
            dipole_only=True,
            upstream_readout=upstream_readout,
        )
        if upstream_readout is None and architecture.drops_scalars:
            logging.warning(
                f"MLP_irreps '{architecture.MLP_irreps}' has no scalars: the last readout is as upstream's "
                "and gives zero; give 16x0e + 16x1o for one that gives dipoles"
            )
        super().__init__(architecture, None)
        self.heads = ["default"]

    def forward(
        self,
        data: dict[str, Tensor],
        training: bool = False,
        compute_force: bool = False,
        compute_virials: bool = False,
        compute_stress: bool = False,
        compute_displacement: bool = False,
        compute_hessian: bool = False,
        compute_potential: bool = False,
    ) -> dict[str, Tensor | None]:
        """Dipole moments of a batch of graphs.

        Args:
            data: as `MACE.forward`, and charges [n_atoms], e.
            training: without effect, as there are no derivatives.
            compute_force: this and the next four must be False: there is no energy.
            compute_virials: see above.
            compute_stress: see above.
            compute_displacement: see above.
            compute_hessian: see above.
            compute_potential: accepted, as all models do; there is no Fermi level.

        Returns:
            dipole [n_graphs, 3]; atomic_dipoles [n_atoms, 3], without the charges; node_feats [n_atoms,
            features of all layers].

        Raises:
            ValueError: derivatives of an energy are asked for, or charges are missing.
        """
        if compute_force or compute_virials or compute_stress or compute_displacement or compute_hessian:
            raise ValueError(
                "AtomicDipolesMACE has no energy, so no forces, virials, stress, displacement or Hessian"
            )
        graph = graph_of(data, False, False)
        layers = self.layers(data, graph)
        output: dict[str, Tensor | None] = {"node_feats": torch.cat(layers.node_feats, dim=-1)}
        output["dipole"], output["atomic_dipoles"] = self.dipoles(data, graph, layers)
        return output


@records_config
@compile_mode("script")
class EnergyDipolesMACE(DipoleModel, EnergyModel):
    """Energies with their derivatives, and dipole moments.

    Args:
        r_max: this and the next 13 as in `AtomicDipolesMACE`.
        num_bessel: number of radial basis functions.
        num_polynomial_cutoff: p of the cutoff's envelope.
        max_ell: largest degree of the spherical harmonics.
        interaction_cls: class of the interactions, or its name.
        interaction_cls_first: the same for the first layer.
        num_interactions: number of layers.
        num_elements: number of elements.
        hidden_irreps: features of the layers.
        MLP_irreps: hidden scalars and vectors of the last readout, like "16x0e + 16x1o".
        avg_num_neighbors: average number of neighbours.
        atomic_numbers: atomic number of each element.
        correlation: order of the many-body messages.
        gate: activation of the last readout.
        atomic_energies: E0 of the elements, eV, [n_elements] or [n_heads, n_elements]; heads differ in
            nothing else.
        radial_MLP: hidden widths of the radial networks, [64, 64, 64] if None.
        cueq_config: back end, see `wrapper_ops`.
        upstream_readout: True for models of MACE and CP-MACE with scalars only in ``MLP_irreps``, whose last
            readout gives no dipole.

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
        avg_num_neighbors: float,
        atomic_numbers: Sequence[int],
        correlation: int | Sequence[int],
        gate: Callable[[Tensor], Tensor] | str | None,
        atomic_energies: np.ndarray | Sequence,
        radial_MLP: Sequence[int] | None = None,  # noqa: N803 (public name)
        cueq_config: Any | None = None,
        upstream_readout: bool = False,
    ) -> None:
        num_heads = len(np.atleast_2d(np.asarray(atomic_energies)))
        architecture = DipoleArchitecture.parse(
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
            radial_MLP=radial_MLP,
            num_heads=num_heads,
            cueq_config=cueq_config,
            dipole_only=False,
            upstream_readout=upstream_readout,
        )
        super().__init__(architecture, architecture.checked_energies(atomic_energies))
        self.heads = ["default"] if num_heads == 1 else [f"head_{index}" for index in range(num_heads)]

    def layer_energies(self, layers: Layers, graph: Graph) -> list[Tensor]:
        """The first column of each readout, [n_atoms]."""
        return [readout[:, 0] for readout in layers.readouts]

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
        """Energies, derivatives and dipole moments of a batch of graphs.

        Args:
            data: as `MACE.forward`, and charges [n_atoms], e.
            training: this and the next five as `MACE.forward`.
            compute_force: give forces.
            compute_virials: give virials, and forces.
            compute_stress: give stress, virials and forces.
            compute_displacement: give the strain.
            compute_hessian: give the Hessian, and forces.
            compute_potential: accepted, as all models do; there is no Fermi level.

        Returns:
            As `MACE.forward`, contributions without pair repulsion; dipole [n_graphs, 3]; atomic_dipoles
            [n_atoms, 3], without the charges.

        Raises:
            ValueError: charges are missing.
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
        output["contributions"] = self.contributions(evaluation)
        output["dipole"], output["atomic_dipoles"] = self.dipoles(data, evaluation.graph, evaluation.layers)
        return output
