"""--statistics_file fills in what the user did not give, and says what it does not use."""

import json
import logging

import pytest

from mace.arguments.parsers import build_default_arg_parser
from mace.arguments.plans import TrainPlan
from mace.exceptions import InputError

CONTENT = {
    "atomic_energies": "{1: -1.5, 8: -2.5}",
    "avg_num_neighbors": 11.5,
    "mean": -0.25,
    "std": 0.75,
    "atomic_numbers": "[1, 8]",
    "r_max": 4.0,
}


def plan_with(path, content, *given):
    text = content if isinstance(content, str) else json.dumps(content)
    (path / "statistics.json").write_text(text)
    words = [
        "--name=x",
        "--train_file=t.xyz",
        "--r_max=4.0",
        f"--statistics_file={path}/statistics.json",
        *given,
    ]
    return TrainPlan.from_namespace(build_default_arg_parser().parse_args(words))


def head_with(*arguments):
    (head,) = plan_with(*arguments).data.heads
    return head


def test_d16_every_number_is_used(tmp_path):
    head = head_with(tmp_path, CONTENT, "--model=ScaleShiftMACE")
    assert head.explicit_E0s() == {1: -1.5, 8: -2.5}
    assert head.atomic_numbers == (1, 8)
    assert (head.avg_num_neighbors, head.compute_avg_num_neighbors) == (11.5, False)
    assert (head.mean, head.std) == (-0.25, 0.75)


def test_a_model_without_shift_takes_the_scale_alone(tmp_path):
    plan = plan_with(tmp_path, CONTENT, "--model=MACE")
    assert (plan.data.heads[0].mean, plan.data.heads[0].std) == (None, 0.75)
    assert not any("has no effect" in text for text, _ in plan.messages)


@pytest.mark.parametrize(
    ("model", "used"),
    [("ScaleShiftBOTNet", (-0.25, 0.75)), ("BOTNet", (None, None)), ("MACE", (None, 0.75))],
)
def test_what_a_model_takes_follows_from_its_kind(tmp_path, model, used):
    plan = plan_with(tmp_path, CONTENT, f"--model={model}")
    assert (plan.data.heads[0].mean, plan.data.heads[0].std) == used
    assert not any("has no effect" in text for text, _ in plan.messages)
    other = plan_with(tmp_path, {**CONTENT, "scaling": "std_scaling"}, f"--model={model}")
    told = any("its scale is not used" in text for text, _ in other.messages)
    assert told is (model != "BOTNet")


def test_what_the_user_gives_wins(tmp_path):
    given = ["--E0s={1: 3.0, 8: 4.0}", "--atomic_numbers=[1, 8, 29]", "--mean=1.0", "--std=2.0"]
    given += ["--compute_avg_num_neighbors=False", "--avg_num_neighbors=7", "--model=ScaleShiftMACE"]
    head = head_with(tmp_path, CONTENT, *given)
    assert head.explicit_E0s() == {1: 3.0, 8: 4.0} and head.atomic_numbers == (1, 8, 29)
    assert (head.mean, head.std, head.avg_num_neighbors) == (1.0, 2.0, 7.0)


@pytest.mark.parametrize(
    "energies",
    ["{1: np.float64(-1.5), 8: np.float64(-2.5)}", "{np.int64(1): -1.5, 8: -2.5}", {"1": -1.5, "8": -2.5}],
)
def test_d16_upstreams_numpy_texts_are_numbers(tmp_path, energies):
    head = head_with(tmp_path, {**CONTENT, "atomic_energies": energies, "atomic_numbers": [1, 8]})
    assert head.explicit_E0s() == {1: -1.5, 8: -2.5}


def test_energies_in_a_json_file_and_keys_that_are_not_there(tmp_path):
    head = head_with(tmp_path, {"atomic_energies": "e0s.json"})
    assert head.E0s == "e0s.json" and head.atomic_numbers is None and head.std is None
    assert head.compute_avg_num_neighbors


def test_another_cutoff_is_named_and_neighbours_are_counted(tmp_path):
    plan = plan_with(tmp_path, CONTENT, "--r_max=5")
    assert plan.data.heads[0].compute_avg_num_neighbors and plan.data.heads[0].std == 0.75
    (text,) = [text for text, level in plan.messages if "r_max" in text and level == logging.WARNING]
    assert text.endswith("statistics.json has r_max=4, this run --r_max=5: neighbours are counted anew")


@pytest.mark.parametrize(
    ("content", "scaling"),
    [(CONTENT, "std_scaling"), ({**CONTENT, "scaling": "std_scaling"}, "rms_forces_scaling")],
)
def test_another_scaling_is_named_and_measured(tmp_path, content, scaling):
    plan = plan_with(tmp_path, content, f"--scaling={scaling}")
    assert plan.data.heads[0].std is None
    assert any(f"this run has {scaling}: its scale is not used" in text for text, _ in plan.messages)


def test_no_scaling_needs_no_scale(tmp_path):
    assert head_with(tmp_path, {**CONTENT, "scaling": "no_scaling"}, "--scaling=no_scaling").std is None


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("{", "is no JSON file"),
        ("[1]", "is no JSON object: give the statistics.json of mace_prepare_data"),
        ({"atomic_numbers": "[H]"}, "atomic_numbers of --statistics_file="),
        ({"atomic_energies": "{1: __import__('os')}"}, "atomic_energies of --statistics_file="),
        ({"avg_num_neighbors": "many"}, "avg_num_neighbors of --statistics_file="),
        ({"std": 0.0}, "it must be greater than 0"),
    ],
)
def test_what_cannot_be_used_names_file_and_key(tmp_path, content, complaint):
    with pytest.raises(InputError, match="statistics.json") as error:
        plan_with(tmp_path, content)
    assert complaint in str(error.value) and "\n" not in str(error.value)


def test_a_file_that_is_not_there(tmp_path):
    words = ["--name=x", "--train_file=t.xyz", f"--statistics_file={tmp_path}/no.json"]
    with pytest.raises(InputError, match="no.json cannot be read: No such file"):
        TrainPlan.from_namespace(build_default_arg_parser().parse_args(words))


def test_settings_that_were_chosen_when_the_data_were_prepared_are_named():
    words = ["--name=x", "--train_file=t.h5", "--valid_file=v.hdf5", "--energy_key=e"]
    words += ["--config_type_weights={'slab': 2.0}"]
    plan = TrainPlan.from_namespace(build_default_arg_parser().parse_args(words))
    told = [text.split(" ")[0] for text, _ in plan.messages if "chosen when the HDF5 data" in text]
    assert told == ["--energy_key", "--config_type_weights"]
