"""From arguments to the plan of the model: what its name, its flags and its loss ask of each other."""

from __future__ import annotations

import logging
from argparse import Namespace

from mace.arguments.irreps import gated_irreps, scalar_irreps
from mace.arguments.model_flags import TWO_BODY_BLOCKS
from mace.arguments.model_plan import MODEL_KINDS, ModelKind, ModelPlan
from mace.arguments.parsing import integers
from mace.arguments.reconcile import Message
from mace.arguments.train_flags import DEFAULTS
from mace.exceptions import InputError

_NO_RESIDUAL = ("RealAgnosticInteractionBlock", "RealAgnosticDensityInteractionBlock")
_TWO_BODY_DEFAULTS = {
    "interaction_first": "AgnosticNonlinearInteractionBlock",
    "interaction": "AgnosticResidualNonlinearInteractionBlock",
}
_GATED = "16x0e+16x1o"  # of dipole models, in place of the default MLP_irreps


def plan_model(args: Namespace, messages: list[Message]) -> ModelPlan:
    """The plan of the model; what is changed without being asked for is said in ``messages``.

    Raises:
        InputError: flags contradict each other or the model.
    """
    kind = MODEL_KINDS[args.model]
    _require_degrees(args, kind)
    _refuse_fixed(args, kind)
    return ModelPlan(
        model=args.model,
        r_max=args.r_max,
        radial_type=args.radial_type,
        num_radial_basis=args.num_radial_basis,
        num_cutoff_basis=args.num_cutoff_basis,
        pair_repulsion=args.pair_repulsion,
        distance_transform=args.distance_transform,
        interaction=_interaction(args, "interaction", kind, messages),
        interaction_first=_first_interaction(args, kind, messages),
        max_ell=args.max_ell,
        correlation=args.correlation,
        num_interactions=args.num_interactions,
        hidden_irreps=args.hidden_irreps,
        num_channels=args.num_channels,
        max_L=args.max_L,
        MLP_irreps=_readout_irreps(args, kind, messages),
        radial_MLP=integers(args.radial_MLP, "--radial_MLP"),
        gate=None if args.gate == "None" else args.gate,
        use_reduced_cg=args.use_reduced_cg,
        scaling=args.scaling if kind.has_scale else "no_scaling",
        compute_forces=args.compute_forces and kind.has_energy,
        compute_stress=args.compute_stress,
        compute_virials=args.compute_virials,
        compute_potential=args.compute_potential,
        enable_cueq=args.enable_cueq,
    )


def _require_degrees(args: Namespace, kind: ModelKind) -> None:
    if args.max_ell < args.max_L:
        raise InputError(
            f"--max_ell={args.max_ell} is less than the degree {args.max_L} of the node features "
            f"{args.hidden_irreps}: raise max_ell or leave out irreps"
        )
    if kind.has_dipole and args.max_L < 1:
        raise InputError(
            f"--hidden_irreps={args.hidden_irreps!r} has no vectors, from which --model={args.model} reads "
            "dipoles: give e.g. 128x0e+128x1o, or --max_L=1"
        )


def _refuse_fixed(args: Namespace, kind: ModelKind) -> None:
    """Flags that ask for what the model does not have."""
    asked = [name for name in kind.fixed if getattr(args, name) != DEFAULTS[name]]
    if args.compute_stress and not kind.has_energy:
        asked.append("compute_stress")
    if asked:
        raise InputError(
            f"--{asked[0]}={getattr(args, asked[0])} contradicts --model={args.model}, which has no such "
            "option: leave it out, or use --model=MACE"
        )


def _interaction(args: Namespace, flag: str, kind: ModelKind, messages: list[Message]) -> str:
    """A block that fits the kind of the model: the one given, or the model's own default."""
    given: str = getattr(args, flag)
    if (given in TWO_BODY_BLOCKS) == kind.two_body:
        return given
    if given != DEFAULTS[flag]:
        fitting = "BOTNet and ScaleShiftBOTNet" if given in TWO_BODY_BLOCKS else "MACE and its relatives"
        raise InputError(f"--{flag}={given} contradicts --model={args.model}: it is a block of {fitting}")
    messages.append((f"--{flag} is {_TWO_BODY_DEFAULTS[flag]} for --model={args.model}", logging.INFO))
    return _TWO_BODY_DEFAULTS[flag]


def _first_interaction(args: Namespace, kind: ModelKind, messages: list[Message]) -> str:
    """Interaction of the first layer; MACE, FermiMACE and the dipole models have no residual there."""
    given = _interaction(args, "interaction_first", kind, messages)
    if kind.two_body or kind.residual_first or given in _NO_RESIDUAL:
        return given
    if given != DEFAULTS["interaction_first"]:
        text = f"--model={args.model} begins with {_NO_RESIDUAL[0]}, in place of --interaction_first={given}"
        messages.append((text, logging.WARNING))
    return _NO_RESIDUAL[0]


def _readout_irreps(args: Namespace, kind: ModelKind, messages: list[Message]) -> str:
    """Hidden irreps of the last readout: scalars, and in dipole models the vectors that they gate."""
    if not kind.has_dipole:
        return scalar_irreps(args.MLP_irreps, "--MLP_irreps")
    if args.MLP_irreps == DEFAULTS["MLP_irreps"]:
        messages.append((f"--MLP_irreps is {_GATED} for --model={args.model}", logging.INFO))
        return _GATED
    return gated_irreps(args.MLP_irreps, "--MLP_irreps")
