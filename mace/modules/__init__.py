"""Equations: radial functions, blocks, models, losses and the statistics they are built from."""

from __future__ import annotations

from collections.abc import Callable

from mace.modules._architecture import gate_dict, interaction_classes
from mace.modules.blocks import (
    AgnosticNonlinearInteractionBlock,
    AgnosticResidualNonlinearInteractionBlock,
    AtomicEnergiesBlock,
    EquivariantProductBasisBlock,
    InteractionBlock,
    LinearDipoleReadoutBlock,
    LinearNodeEmbeddingBlock,
    LinearReadoutBlock,
    NonLinearDipoleReadoutBlock,
    NonLinearReadoutBlock,
    RadialEmbeddingBlock,
    RealAgnosticAttResidualInteractionBlock,
    RealAgnosticDensityInteractionBlock,
    RealAgnosticDensityResidualInteractionBlock,
    RealAgnosticInteractionBlock,
    RealAgnosticResidualInteractionBlock,
    ResidualElementDependentInteractionBlock,
    ScaleShiftBlock,
    TensorProductWeightsBlock,
)
from mace.modules.loss import (
    DipoleSingleLoss,
    FermiWeightedEnergyForcesLoss,
    FermiWeightedEnergyForcesLossEvidential,
    FermiWeightedEnergyForcesLossUncertainty,
    UniversalLoss,
    WeightedEnergyForcesDipoleLoss,
    WeightedEnergyForcesLoss,
    WeightedEnergyForcesStressLoss,
    WeightedEnergyForcesVirialsLoss,
    WeightedForcesLoss,
    WeightedHuberEnergyForcesStressLoss,
)
from mace.modules.models import (
    MACE,
    AtomicDipolesMACE,
    BOTNet,
    EnergyDipolesMACE,
    ScaleShiftBOTNet,
    ScaleShiftMACE,
)
from mace.modules.radial import BesselBasis, GaussianBasis, PolynomialCutoff, ZBLBasis
from mace.modules.symmetric_contraction import SymmetricContraction
from mace.modules.utils import (
    compute_avg_num_neighbors,
    compute_fixed_charge_dipole,
    compute_mean_rms_energy_forces,
    compute_mean_std_atomic_inter_energy,
    compute_rms_dipoles,
    compute_statistics,
)

scaling_classes: dict[str, Callable] = {
    "std_scaling": compute_mean_std_atomic_inter_energy,
    "rms_forces_scaling": compute_mean_rms_energy_forces,
    "rms_dipoles_scaling": compute_rms_dipoles,
}

__all__ = [
    "MACE",
    "AgnosticNonlinearInteractionBlock",
    "AgnosticResidualNonlinearInteractionBlock",
    "AtomicDipolesMACE",
    "AtomicEnergiesBlock",
    "BOTNet",
    "BesselBasis",
    "DipoleSingleLoss",
    "EnergyDipolesMACE",
    "EquivariantProductBasisBlock",
    "FermiWeightedEnergyForcesLoss",
    "FermiWeightedEnergyForcesLossEvidential",
    "FermiWeightedEnergyForcesLossUncertainty",
    "GaussianBasis",
    "InteractionBlock",
    "LinearDipoleReadoutBlock",
    "LinearNodeEmbeddingBlock",
    "LinearReadoutBlock",
    "NonLinearDipoleReadoutBlock",
    "NonLinearReadoutBlock",
    "PolynomialCutoff",
    "RadialEmbeddingBlock",
    "RealAgnosticAttResidualInteractionBlock",
    "RealAgnosticDensityInteractionBlock",
    "RealAgnosticDensityResidualInteractionBlock",
    "RealAgnosticInteractionBlock",
    "RealAgnosticResidualInteractionBlock",
    "ResidualElementDependentInteractionBlock",
    "ScaleShiftBOTNet",
    "ScaleShiftBlock",
    "ScaleShiftMACE",
    "SymmetricContraction",
    "TensorProductWeightsBlock",
    "UniversalLoss",
    "WeightedEnergyForcesDipoleLoss",
    "WeightedEnergyForcesLoss",
    "WeightedEnergyForcesStressLoss",
    "WeightedEnergyForcesVirialsLoss",
    "WeightedForcesLoss",
    "WeightedHuberEnergyForcesStressLoss",
    "ZBLBasis",
    "compute_avg_num_neighbors",
    "compute_fixed_charge_dipole",
    "compute_mean_rms_energy_forces",
    "compute_mean_std_atomic_inter_energy",
    "compute_rms_dipoles",
    "compute_statistics",
    "gate_dict",
    "interaction_classes",
    "scaling_classes",
]
