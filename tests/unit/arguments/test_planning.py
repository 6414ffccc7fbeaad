"""From arguments to plans: values, contradictions, flags that are not built yet."""

import importlib.util
import json
import logging
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest

from mace.arguments import TrainPlan, build_default_arg_parser
from mace.arguments.train_flags import TRAIN
from mace.exceptions import InputError
from mace.tools.checkpoint import CheckpointHandler

FERMI = ("--model=FermiMACE", "--loss=fermi_weighted", "--error_table=Fermi_PerAtomRMSE")


def plan_of(*given):
    args = build_default_arg_parser().parse_args(["--name=x", "--train_file=t.xyz", *given])
    before = dict(vars(args))
    plan = TrainPlan.from_namespace(args)
    assert vars(args) == before, "the namespace must be left as it is"
    return plan


def refused(*given):
    """The one line with which the arguments are refused."""
    with pytest.raises(InputError) as error:
        plan_of(*given)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_defaults():
    plan = plan_of()
    assert plan.model.hidden_irreps == "128x0e+128x1o"
    assert (plan.model.num_channels, plan.model.max_L) == (128, 1)
    assert plan.model.radial_MLP == (64, 64, 64)
    assert plan.data.head_names == ("default",)
    assert plan.stages is None and plan.wandb is None
    assert plan.optim.amsgrad is True
    assert plan.training.progress is None
    assert not plan.model.needs_electron and not plan.model.has_potential
    assert plan.messages == ()
    assert plan.log_level == logging.INFO


def test_plans_are_frozen():
    with pytest.raises(FrozenInstanceError):
        plan_of().optim.lr = 1.0


def test_a6_a_fermi_model_gives_the_fermi_level():
    plan = plan_of(*FERMI)
    assert plan.model.needs_electron and plan.model.has_potential and plan.model.compute_potential
    assert plan.loss.required_labels() == ("energy", "forces", "potential")


def test_a3_stage_two_keeps_the_fermi_level():
    plan = plan_of(*FERMI, "--swa", "--potential_weight=7")
    assert plan.loss.stage_two_loss == "fermi_weighted"
    assert plan.loss.stage_two_weights.potential == 7.0
    plan = plan_of(*FERMI, "--swa", "--stage_two_potential_weight=9", "--energy_weight=0")
    assert plan.loss.stage_two_weights.potential == 9.0
    assert plan.loss.required_labels() == ("forces", "potential")
    assert plan.loss.required_labels(stage_two=True) == ("forces", "potential", "energy")


@pytest.mark.parametrize(
    ("loss", "later"),
    [
        ("weighted", "weighted"),
        ("ef", "weighted"),
        ("huber", "weighted"),
        ("stress", "stress"),
        ("virials", "virials"),
        ("universal", "universal"),
    ],
)
def test_loss_of_stage_two(loss, later):
    assert plan_of(f"--loss={loss}", "--swa").loss.stage_two_loss == later


@pytest.mark.parametrize("loss", ["stress", "virials", "huber", "universal"])
def test_losses_with_stress_ask_for_it(loss):
    plan = plan_of(f"--loss={loss}", "--error_table=TotalRMSE")
    assert plan.model.compute_stress and plan.model.compute_virials
    assert plan.report.error_table == "PerAtomRMSEstressvirials"
    assert any("TotalRMSE" in text and level == logging.WARNING for text, level in plan.messages)


def test_errors_without_the_fermi_level_are_said_to_be():
    (said,) = messages(*FERMI, "--error_table=TotalRMSE")
    assert said.endswith("--error_table=Fermi_PerAtomRMSE shows it")
    assert messages(*FERMI) == messages() == []


def test_a_choice_that_is_not_built_names_those_that_are():
    message = refused("--model=MACELES")
    assert message.endswith(
        "FermiMACE_2, ScaleShiftMACE, ScaleShiftBOTNet, AtomicDipolesMACE, EnergyDipolesMACE"
    )


def test_d19_loss_ef_has_weights_of_1():
    weights = plan_of("--loss=ef").loss.weights
    assert (weights.energy, weights.forces) == (1.0, 1.0)
    assert "--forces_weight contradicts --loss=ef" in refused("--loss=ef", "--forces_weight=10")


@pytest.mark.parametrize(
    ("model", "given", "built"),
    [
        ("ScaleShiftMACE", None, "RealAgnosticResidualInteractionBlock"),
        ("MACE", None, "RealAgnosticInteractionBlock"),
        ("FermiMACE", "RealAgnosticResidualInteractionBlock", "RealAgnosticInteractionBlock"),
        ("MACE", "RealAgnosticDensityInteractionBlock", "RealAgnosticDensityInteractionBlock"),
    ],
)
def test_first_interaction(model, given, built):
    extra = [] if given is None else [f"--interaction_first={given}"]
    loss = "fermi_weighted" if model == "FermiMACE" else "weighted"
    plan = plan_of(f"--model={model}", f"--loss={loss}", *extra)
    assert plan.model.interaction_first == built
    assert not any("interaction_first" in text for text, _ in plan.messages)


def test_a_replaced_first_interaction_is_said():
    plan = plan_of("--interaction_first=RealAgnosticDensityResidualInteractionBlock")
    assert plan.model.interaction_first == "RealAgnosticInteractionBlock"
    assert any("RealAgnosticDensityResidualInteractionBlock" in text for text, _ in plan.messages)


def messages(*given):
    return [text for text, _ in plan_of(*given).messages]


def test_a_fermi_level_of_weight_zero_is_said():
    stays = "--potential_weight=0: the readout of the Fermi level of FermiMACE stays as it begins"
    assert messages(*FERMI, "--potential_weight=0") == [stays]
    assert messages(*FERMI, "--potential_weight=0", "--swa", "--swa_potential_weight=1") == []


def test_a_weight_without_effect_is_said():
    said = messages("--potential_weight=10")
    assert said == ["--potential_weight has no effect: --loss=weighted lacks it"]


NEEDED = {
    "--avg_num_neighbors=7": "--compute_avg_num_neighbors=False",
    "--mean=1": "--model=ScaleShiftMACE",
    "--ema_decay=0.9": "--ema",
    "--swa_lr=0.1": "--swa",
    "--lr_scheduler_gamma=0.9": "--scheduler=ExponentialLR",
    "--beta1_schedulefree=0.8": "--optimizer=schedulefree",
    "--huber_delta=0.5": "--loss=huber",
}


@pytest.mark.parametrize("flag", NEEDED)
def test_a_flag_without_effect_is_said(flag):
    (said,) = messages(flag)
    assert said.startswith(f"{flag.partition('=')[0]} has no effect: ")
    assert messages(flag, NEEDED[flag]) == []


def test_flags_that_other_flags_replace():
    (said,) = messages("--wandb_project=x")
    assert said == "--wandb_project has no effect: --wandb is not given"
    (said,) = messages("--valid_fraction=0.3", "--valid_file=v.xyz")
    assert said == "--valid_fraction has no effect: the validation set comes from a file"


@pytest.mark.parametrize("flag", ["--lr_factor=0.5", "--scheduler_patience=5"])
def test_flags_of_another_schedule(flag):
    (said,) = messages(flag, "--scheduler=ExponentialLR")
    assert said.startswith(f"{flag.partition('=')[0]} has no effect") and messages(flag) == []


def test_the_standard_deviation_has_an_effect_for_every_model():
    assert messages("--std=2") == []


def test_a_scale_contradicts_no_scaling():
    assert "--std contradicts --scaling=no_scaling" in refused("--std=2", "--scaling=no_scaling")


def test_settings_of_a_head_without_effect_name_the_head():
    heads = "--heads={'a': {'train_file': 'a.xyz', 'mean': 1.0}, 'b': {'train_file': 'b.xyz'}}"
    (said,) = messages(heads)
    assert said.startswith("mean of head 'a' has no effect: --model=MACE has no shift")


def test_the_key_of_the_head_has_no_effect_in_training():
    assert messages("--head_key=level") == [
        "--head_key has no effect: every frame belongs to the head whose file it is in"
    ]


def test_gate_none():
    assert plan_of("--gate=None").model.gate is None


def test_skip_evaluate_heads():
    heads = "--heads={'a': {'train_file': 'a.xyz'}, 'b': {'train_file': 'b.xyz'}}"
    assert plan_of(heads, "--skip_evaluate_heads=a, b").report.skip_evaluate_heads == ("a", "b")
    assert plan_of(heads).report.skip_evaluate_heads == ("pt_head",)
    assert refused(heads, "--skip_evaluate_heads=a,c") == (
        "--skip_evaluate_heads names 'c', which is no head: the heads are a, b"
    )


@pytest.mark.parametrize(
    ("text", "level"), [("debug", logging.DEBUG), ("WARNING", logging.WARNING), ("15", 15)]
)
def test_log_level(text, level):
    assert plan_of(f"--log_level={text}").log_level == level


@pytest.mark.parametrize(("text", "progress"), [("auto", None), ("no", False), ("True", True)])
def test_progress(text, progress):
    assert plan_of(f"--progress={text}").training.progress is progress


def test_a20_keys():
    keys = plan_of("--electron_key=ne", "--potential_key=mu", "--head_key=h").data.heads[0].keys
    assert (keys.electron, keys.potential, keys.head) == ("ne", "mu", "h")


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (["--r_max=0"], "--r_max is 0.0: it must be greater than 0"),
        (["--r_max=nan"], "--r_max is nan"),
        (["--valid_fraction=1"], "--valid_fraction is 1.0"),
        (["--valid_fraction=0"], "--valid_fraction is 0.0"),
        (["--valid_fraction=nan"], "--valid_fraction is nan: it must be a finite number"),
        (["--batch_size=0"], "--batch_size is 0"),
        (["--valid_batch_size=-1"], "--valid_batch_size is -1"),
        (["--num_interactions=0"], "--num_interactions is 0"),
        (["--correlation=0"], "--correlation is 0"),
        (["--max_num_epochs=-1"], "--max_num_epochs is -1"),
        (["--eval_interval=0"], "--eval_interval is 0"),
        (["--lr=-0.1"], "--lr is -0.1"),
        (["--ema_decay=1"], "--ema_decay is 1.0"),
        (["--seed=-1"], "--seed is -1"),
        (["--std=0"], "--std is 0.0"),
        (["--forces_weight=-1"], "--forces_weight is -1.0"),
        (["--clip_grad=0"], "--clip_grad is 0.0"),
        (["--start_swa=-1"], "--start_swa is -1"),
        (["--max_ell=12"], "--max_ell is 12: it must be from 0 to 11"),
        (["--max_ell=0"], "--max_ell=0 is less than the degree 1"),
        (["--hidden_irreps=8x0e+8x2e", "--max_ell=1"], "--max_ell=1 is less than the degree 2"),
        (["--hidden_irreps=8x1o"], "has no scalars"),
        (["--hidden_irreps=8x0e+4x1o"], "unequal multiplicities"),
        (["--hidden_irreps=8x0e;8x1o"], "is not a sum of irreps"),
        (["--hidden_irreps=8x0e", "--num_channels=16"], "--num_channels=16 contradicts --hidden_irreps"),
        (["--hidden_irreps=8x0e", "--max_L=1"], "--max_L=1 contradicts --hidden_irreps"),
        (["--MLP_irreps=16x1o"], "--MLP_irreps='16x1o' must be scalars only"),
        (["--radial_MLP=[64, x]"], "--radial_MLP is '[64, x]'"),
        (["--radial_MLP=64"], "--radial_MLP is '64'"),
        (["--scheduler=Nonsense"], "Unknown scheduler: 'Nonsense'"),
        (["--log_level=LOUD"], "--log_level='LOUD' is no level"),
        (["--name=a/b"], "--name='a/b' names files"),
        (["--name=" + "a" * 300], "has 300 bytes"),
        (
            ["--loss=fermi_weighted"],
            "--loss=fermi_weighted contradicts --model=MACE, which has no Fermi level",
        ),
        (
            ["--model=FermiMACE", "--loss=weighted"],
            "--loss=weighted does not train the Fermi level of --model=FermiMACE: use --loss=fermi_weighted",
        ),
        (["--compute_potential=True"], "--compute_potential=True contradicts --model=MACE"),
        ([*FERMI, "--compute_potential=False"], "--compute_potential=False contradicts --model=FermiMACE"),
        (["--compute_forces=False"], "--compute_forces=False contradicts --loss=weighted"),
        (["--energy_weight=0", "--forces_weight=0"], "every weight of energy, forces is 0"),
        (["--swa", "--loss=forces_only"], "--swa contradicts --loss=forces_only"),
        (["--distributed", "--launcher=none"], "--distributed contradicts --launcher=none"),
        (["--E0s={1: -13.6"], "--E0s is '{1: -13.6'"),
        (["--E0s={'H': -13.6}"], "--E0s is"),
        (["--E0s=[1, 2]"], "--E0s is '[1, 2]'"),
        (["--E0s=avrage"], "--E0s is 'avrage'"),
        (["--config_type_weights=[1]"], "--config_type_weights is '[1]'"),
        (["--atomic_numbers=[1, H]"], "--atomic_numbers is '[1, H]'"),
        (["--wandb_log_hypers", "nothing"], None),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(given, complaint):
    if complaint is None:  # without --wandb nobody reads the list
        plan_of(*given)
    else:
        assert complaint in refused(*given)


def test_no_training_file():
    args = build_default_arg_parser().parse_args(["--name=x"])
    with pytest.raises(InputError, match="no training data: give --train_file"):
        TrainPlan.from_namespace(args)


NOT_BUILT = [
    "--foundation_model=small",
    "--lora=True",
    "--pt_train_file=mp",
    "--freeze=1",
    "--model=PolarMACE",
    "--error_table=DipolePolarRMSE",
    "--loss=dipole_polar",
    "--interaction=RealAgnosticResidualNonLinearInteractionBlock",
    "--device=mps",
    "--plot=True",
    "--lbfgs",
    "--enable_oeq=True",
    "--only_cueq=True",
    "--dry_run",
    "--E0s=foundation",
    "--lr_params_factors={}",
    "--disallow_random_padding_pt",
    "--foundation_model_readout",
]


@pytest.mark.parametrize("given", NOT_BUILT)
def test_what_is_not_built_yet_is_refused_by_name(given):
    message = refused(given)
    assert "not built yet" in message
    name, _, value = given.partition("=")
    assert name in message and value in message


def test_every_later_flag_is_refused():
    for group in TRAIN:
        for flag in group.flags:
            if flag.later:
                with pytest.raises(InputError, match="is not built yet"):
                    flag.check("another value")
            flag.check(flag.default)


def test_plot_false_is_accepted():
    assert plan_of("--plot=False")


def test_schedulefree_is_an_optional_package(monkeypatch):
    plan = plan_of("--optimizer=schedulefree", "--beta2_schedulefree=0.9")
    assert plan.optim.beta2_schedulefree == 0.9
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "--optimizer=schedulefree needs the package schedulefree" in refused("--optimizer=schedulefree")


def test_wandb(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "--wandb needs the package wandb: run 'pip install wandb'" in refused("--wandb")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    plan = plan_of("--wandb", "--wandb_project=p", "--wandb_log_hypers", "lr", "num_channels")
    assert plan.wandb.project == "p"
    assert plan.wandb.hypers == {"lr": 0.01, "num_channels": 128}
    assert json.loads(json.dumps(plan.wandb.arguments))["name"] == "x"
    assert "--wandb_log_hypers names 'nothing'" in refused("--wandb", "--wandb_log_hypers", "nothing")


def test_start_at_epoch_0():
    """Stage two may be all there is."""
    plan = plan_of("--start_swa=0", "--max_num_epochs=3")
    assert plan.stages.start == 0 and plan.stages.lr == 0.001


def test_files_of_a_run():
    plan = plan_of("--work_dir=w", "--model_dir=m", "--seed=7")
    paths = plan.paths
    assert plan.tag == "x_run-7"
    assert paths.log_file == Path("w/logs/x_run-7.log")
    assert paths.debug_log == Path("w/logs/x_run-7_debug.log")
    assert paths.results_file == Path("w/results/x_run-7_train.txt")
    assert paths.checkpoint_file(3) == Path("w/checkpoints/x_run-7_epoch-3.pt")
    assert paths.checkpoint_file(3, stage_two=True) == Path("w/checkpoints/x_run-7_epoch-3_swa.pt")
    assert paths.tagged_model_file() == Path("w/checkpoints/x_run-7.model")
    assert paths.tagged_model_file(stage_two=True) == Path("w/checkpoints/x_run-7_stagetwo.model")
    assert paths.model_file(stage_two=True) == Path("m/x_stagetwo.model")
    assert paths.compiled_file() == Path("m/x_compiled.model")
    assert paths.compiled_file(stage_two=True) == Path("m/x_stagetwo_compiled.model")
    assert paths.valid_indices_file() == Path("w/valid_indices_7.txt")
    assert paths.valid_indices_file("pbe") == Path("w/valid_indices_pbe_7.txt")
    assert paths.folders() == tuple(Path(f) for f in ("w", "w/logs", "m", "w/checkpoints", "w/results"))
    assert paths.latest_checkpoint_file == Path("w/checkpoints/x_run-7_latest.pt")
    assert paths.latest_checkpoint_file == CheckpointHandler("w/checkpoints", plan.tag).io.latest_path


def test_the_list_of_what_a_run_writes():
    paths = plan_of("--seed=7").paths
    common = [
        "logs/x_run-7.log",
        "logs/x_run-7_debug.log",
        "results/x_run-7_train.txt",
        "checkpoints/x_run-7_epoch-<n>.pt",
        "checkpoints/x_run-7_latest.pt",
        "x.model",
        "checkpoints/x_run-7.model",
        "x_compiled.model",
    ]
    later = [
        "checkpoints/x_run-7_epoch-<n>_swa.pt",
        "x_stagetwo.model",
        "checkpoints/x_run-7_stagetwo.model",
        "x_stagetwo_compiled.model",
    ]
    assert sorted(str(path) for _, path in paths.writes()) == sorted(common)
    assert sorted(str(path) for _, path in paths.writes(stage_two=True)) == sorted(common + later)
    split = paths.writes(indices_names=["pbe", None])
    assert {path for _, path in split} - {path for _, path in paths.writes()} == {
        Path("valid_indices_pbe_7.txt"),
        Path("valid_indices_7.txt"),
    }


def test_heads_with_files_of_indices():
    heads = "--heads={'a': {'train_file': 'a', 'valid_file': 'v'}, 'b': {'train_file': 'b'}}"
    assert plan_of(heads).data.indices_names == ("b",)
    assert plan_of().data.indices_names == (None,)
    assert plan_of("--valid_file=v.xyz").data.indices_names == ()


# ---- what models and losses ask of each other

FERMI_LOSSES = {
    "FermiMACE": "fermi_weighted",
    "FermiMACE_2": "fermi_weighted",
    "FermiMACE_uncertainty": "fermi_weighted_uncertainty",
    "FermiMACE_evidential": "fermi_weighted_evidential",
}


@pytest.mark.parametrize("model", FERMI_LOSSES)
@pytest.mark.parametrize("loss", [*sorted(set(FERMI_LOSSES.values())), "weighted"])
def test_fermi_models_are_trained_by_the_loss_of_all_their_outputs(model, loss):
    given = (f"--model={model}", f"--loss={loss}")
    if loss == FERMI_LOSSES[model]:
        plan = plan_of(*given)
        assert plan.model.needs_electron and plan.model.compute_potential
        assert plan.loss.stage_two_loss == loss
    else:
        assert f"use --loss={FERMI_LOSSES[model]}" in refused(*given)


def test_models_of_dipoles_alone():
    plan = plan_of("--model=AtomicDipolesMACE", "--loss=dipole")
    assert plan.report.error_table == "DipoleRMSE" and not plan.model.compute_forces
    assert plan.model.MLP_irreps == "16x0e+16x1o" and plan.model.scaling == "no_scaling"
    assert plan.model.interaction_first == "RealAgnosticInteractionBlock"
    assert plan_of("--model=AtomicDipolesMACE", "--loss=dipole", "--error_table=DipoleMAE").report
    assert plan.loss.required_labels() == ("dipole",)


def test_models_of_energies_and_dipoles():
    plan = plan_of(
        "--model=EnergyDipolesMACE", "--loss=energy_forces_dipole", "--swa", "--MLP_irreps=4x1o+8x0e"
    )
    assert plan.report.error_table == "EnergyDipoleRMSE" and plan.model.MLP_irreps == "8x0e+4x1o"
    assert plan.loss.stage_two_loss == "energy_forces_dipole"


@pytest.mark.parametrize("model", ["BOTNet", "ScaleShiftBOTNet"])
def test_botnet_has_blocks_of_its_own(model):
    plan = plan_of(f"--model={model}")
    assert plan.model.interaction_first == "AgnosticNonlinearInteractionBlock"
    assert plan.model.interaction == "AgnosticResidualNonlinearInteractionBlock"
    other = "ResidualElementDependentInteractionBlock"
    plan = plan_of(f"--model={model}", f"--interaction={other}", f"--interaction_first={other}")
    assert plan.model.interaction == plan.model.interaction_first == other


DIPOLES = ("--model=AtomicDipolesMACE", "--loss=dipole")
BOTH = ("--model=EnergyDipolesMACE", "--loss=energy_forces_dipole")
TWO_HEADS = "--heads={'a': {'train_file': 't.xyz'}, 'b': {'train_file': 't.xyz'}}"


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (["--loss=dipole"], "--loss=dipole contradicts --model=MACE, which has no dipole"),
        (["--loss=energy_forces_dipole"], "contradicts --model=MACE, which has no dipole"),
        (
            ["--model=AtomicDipolesMACE"],
            "--loss=weighted contradicts --model=AtomicDipolesMACE, which has no en",
        ),
        (
            [BOTH[0]],
            "--loss=weighted does not fit --model=EnergyDipolesMACE: use --loss=energy_forces_dipole",
        ),
        ([BOTH[0], "--loss=dipole"], "--loss=dipole does not fit --model=EnergyDipolesMACE"),
        ([*DIPOLES, "--error_table=TotalMAE"], "use --error_table=DipoleRMSE or DipoleMAE"),
        (["--error_table=DipoleMAE"], "--error_table=DipoleMAE contradicts --model=MACE"),
        ([*DIPOLES, "--swa"], "--swa contradicts --loss=dipole"),
        ([*DIPOLES, "--compute_stress=True"], "--compute_stress=True contradicts --model=AtomicDipolesMACE"),
        (
            [*DIPOLES, "--MLP_irreps=8x0e"],
            "--MLP_irreps='8x0e' must be scalars and vectors: write e.g. 16x0e",
        ),
        ([*DIPOLES, "--max_L=0"], "has no vectors, from which --model=AtomicDipolesMACE reads dipoles"),
        ([*DIPOLES, "--dipole_weight=0"], "--loss=dipole has no term"),
        ([*BOTH, "--radial_type=gaussian"], "--radial_type=gaussian contradicts --model=EnergyDipolesMACE"),
        (["--model=BOTNet", "--pair_repulsion"], "--pair_repulsion=True contradicts --model=BOTNet"),
        (["--model=BOTNet", "--use_reduced_cg=True"], "--use_reduced_cg=True contradicts --model=BOTNet"),
        (
            ["--model=BOTNet", "--interaction=RealAgnosticInteractionBlock"],
            "--interaction=RealAgnosticInteractionBlock contradicts --model=BOTNet",
        ),
        (
            ["--interaction_first=AgnosticNonlinearInteractionBlock"],
            "--interaction_first=AgnosticNonlinearInteractionBlock contradicts --model=MACE",
        ),
        (["--model=BOTNet", TWO_HEADS], "--model=BOTNet has one head, and --heads names 2"),
    ],
)
def test_models_refuse_what_they_cannot_do(given, complaint):
    message = refused(*given)
    assert complaint in message and "\n" not in message


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (["--model=BOTNet", "--correlation=2"], "--correlation has no effect: BOTNet has no products"),
        (["--model=BOTNet", "--std=2"], "--std has no effect: --model=BOTNet has no scale"),
        (["--model=BOTNet", "--scaling=std_scaling"], "--scaling has no effect: the model has no scale"),
        (["--dipole_weight=2"], "--dipole_weight has no effect: --loss=weighted lacks it"),
    ],
)
def test_flags_that_a_model_does_not_use_are_named(given, text):
    assert text in [message for message, _ in plan_of(*given).messages]
