"""Flags of ``mace_run_train`` about losses, the optimiser and the two stages."""

from mace.arguments.flags import ON, Flag, FlagGroup
from mace.arguments.limits import AT_LEAST_ONE, DECAY, FRACTION, NOT_NEGATIVE, POSITIVE
from mace.arguments.parsing import check_float_or_none, str2bool

_DIELECTRIC = "dielectric models"
_FACTORS = "learning rates by part of the model"
_LR_FACTORS = (
    '{"embedding_lr_factor": 1.0, "interactions_lr_factor": 1.0, "products_lr_factor": 1.0, '
    '"readouts_lr_factor": 1.0}'
)

LOSS = FlagGroup(
    "loss",
    (
        Flag(
            "--loss",
            str,
            "weighted",
            "loss; those of the Fermi level and of dipoles belong to the models that have them",
            choices=(
                "ef",
                "weighted",
                "fermi_weighted",
                "fermi_weighted_evidential",
                "fermi_weighted_uncertainty",
                "forces_only",
                "virials",
                "stress",
                "dipole",
                "huber",
                "universal",
                "energy_forces_dipole",
                "dipole_polar",
                "l1l2energyforces",
            ),
            later_values={"dipole_polar": _DIELECTRIC},
        ),
        Flag("--forces_weight", float, 100.0, "weight of the forces", limit=NOT_NEGATIVE),
        Flag(
            "--swa_forces_weight --stage_two_forces_weight",
            float,
            100.0,
            "the same in stage two",
            limit=NOT_NEGATIVE,
        ),
        Flag("--energy_weight", float, 1.0, "weight of the energy", limit=NOT_NEGATIVE),
        Flag(
            "--swa_energy_weight --stage_two_energy_weight",
            float,
            1000.0,
            "the same in stage two",
            limit=NOT_NEGATIVE,
        ),
        Flag("--potential_weight", float, 1.0, "weight of the Fermi level", limit=NOT_NEGATIVE),
        Flag(
            "--swa_potential_weight --stage_two_potential_weight",
            float,
            None,
            "the same in stage two; when not given: as in stage one",
            limit=NOT_NEGATIVE,
        ),
        Flag("--virials_weight", float, 1.0, "weight of the virials", limit=NOT_NEGATIVE),
        Flag(
            "--swa_virials_weight --stage_two_virials_weight",
            float,
            10.0,
            "the same in stage two",
            limit=NOT_NEGATIVE,
        ),
        Flag("--stress_weight", float, 1.0, "weight of the stress", limit=NOT_NEGATIVE),
        Flag(
            "--swa_stress_weight --stage_two_stress_weight",
            float,
            10.0,
            "the same in stage two",
            limit=NOT_NEGATIVE,
        ),
        Flag("--dipole_weight", float, 1.0, "weight of the dipole", limit=NOT_NEGATIVE),
        Flag(
            "--swa_dipole_weight --stage_two_dipole_weight",
            float,
            1.0,
            "the same in stage two",
            limit=NOT_NEGATIVE,
        ),
        Flag("--polarizability_weight", float, 1.0, "weight of the polarisability", later=_DIELECTRIC),
        Flag(
            "--swa_polarizability_weight --stage_two_polarizability_weight",
            float,
            1.0,
            "the same in stage two",
            later=_DIELECTRIC,
        ),
        Flag("--huber_delta", float, 0.01, "delta of the Huber losses", limit=POSITIVE),
    ),
)

OPTIMIZER = FlagGroup(
    "optimiser",
    (
        Flag("--optimizer", str, "adam", "optimiser", choices=("adam", "adamw", "schedulefree")),
        Flag("--beta", float, 0.9, "first beta of Adam", limit=DECAY),
        Flag("--beta1_schedulefree", float, 0.9, "first beta of schedulefree", limit=DECAY),
        Flag("--beta2_schedulefree", float, 0.98, "second beta of schedulefree", limit=DECAY),
        Flag("--batch_size", int, 10, "frames of a training step, on each rank", limit=AT_LEAST_ONE),
        Flag("--valid_batch_size", int, 10, "frames of an evaluation batch", limit=AT_LEAST_ONE),
        Flag("--lr", float, 0.01, "learning rate", limit=NOT_NEGATIVE),
        Flag("--lr_params_factors", str, _LR_FACTORS, "factors of the learning rate", later=_FACTORS),
        Flag(
            "--weight_decay", float, 5e-07, "weight decay of message and product weights", limit=NOT_NEGATIVE
        ),
        Flag("--amsgrad", str2bool, True, "AMSGrad; --amsgrad=False turns it off", nargs="?"),
        Flag("--scheduler", str, "ReduceLROnPlateau", "ReduceLROnPlateau or ExponentialLR"),
        Flag("--lr_factor", float, 0.8, "factor of ReduceLROnPlateau", limit=FRACTION),
        Flag("--scheduler_patience", int, 50, "patience of ReduceLROnPlateau", limit=NOT_NEGATIVE),
        Flag("--lr_scheduler_gamma", float, 0.9993, "factor of ExponentialLR, each epoch", limit=POSITIVE),
        Flag(
            "--clip_grad", check_float_or_none, 10.0, "largest norm of the gradient, or None", limit=POSITIVE
        ),
        Flag("--ema", ON, False, "average the weights exponentially"),
        Flag("--ema_decay", float, 0.99, "decay of the average", limit=DECAY),
        Flag("--max_num_epochs", int, 2048, "number of epochs", limit=AT_LEAST_ONE),
        Flag("--patience", int, 2048, "evaluations without improvement before stopping", limit=AT_LEAST_ONE),
        Flag("--lbfgs", ON, False, "switch to L-BFGS", later="L-BFGS"),
    ),
)

STAGE_TWO = FlagGroup(
    "stage two",
    (
        Flag("--swa --stage_two", ON, False, "end with stage two"),
        Flag(
            "--start_swa --start_stage_two",
            int,
            None,
            "first epoch of stage two; turns it on",
            limit=NOT_NEGATIVE,
        ),
        Flag("--swa_lr --stage_two_lr", float, 0.001, "learning rate in stage two", limit=NOT_NEGATIVE),
    ),
)

STEPS = FlagGroup(
    "steps: memory and precision",
    (
        Flag(
            "--gradient_accumulation_steps",
            int,
            1,
            "batches of each rank in one training step; only one of them is in memory",
            limit=AT_LEAST_ONE,
        ),
        Flag(
            "--activation_checkpointing",
            ON,
            False,
            "compute activations again in the backward pass: less memory, more time, same results",
        ),
        Flag("--shard_optimizer", ON, False, "share the optimiser's state out to the ranks (ZeRO, stage 1)"),
        Flag(
            "--autocast",
            str,
            None,
            "precision of the training steps of a float32 model where it can be lower",
            choices=("bfloat16",),
        ),
    ),
)
