"""Upstream's helpers of training scripts: they give what the rooms behind them give."""

import subprocess

import numpy as np
import pytest
import torch

from mace.exceptions import InputError
from mace.modules.loss import FermiWeightedEnergyForcesLoss, WeightedEnergyForcesLoss
from mace.tools import multihead_tools, scripts_utils
from mace.tools.datasets import load_heads
from mace.tools.distributed import Ranks
from mace.tools.graphs import build_graphs
from mace.tools.loaders import build_loaders
from mace.tools.model_script_utils import configure_model
from mace.tools.statistics import measure
from mace.tools.utils import AtomicNumberTable
from tests.tiny_run import FERMI, make_plan, parse, write_frames
from tests.tolerances import relative


@pytest.fixture
def folder(tmp_path):
    write_frames(tmp_path / "train.xyz", 20)
    write_frames(tmp_path / "valid.xyz", 4, seed=2)
    return tmp_path


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.node_embedding = torch.nn.Linear(2, 2)
        self.products = torch.nn.Linear(2, 2)
        self.potential_output_layer = torch.nn.Linear(2, 1)


def test_a_data_set_from_files(folder):
    write_frames(folder / "train.xyz", 20, isolated=1)
    arguments = {"train_path": str(folder / "train.xyz"), "valid_fraction": 0.25, "config_type_weights": {}}
    subsets, isolated = scripts_utils.get_dataset_from_xyz(
        work_dir=str(folder), valid_path=None, test_path=str(folder / "valid.xyz"), seed=3, **arguments
    )
    assert (len(subsets.train), len(subsets.valid)) == (15, 5)
    assert [(name, len(group)) for name, group in subsets.tests] == [("Default_Default", 4)]
    assert isolated == {1: -1.0, 8: -2.0}
    assert all(c.electron is not None and c.potential is not None for c in subsets.train)
    fixed, _ = scripts_utils.get_dataset_from_xyz(
        work_dir=str(folder), valid_path=str(folder / "valid.xyz"), **arguments
    )
    assert (len(fixed.train), len(fixed.valid)) == (20, 4)


def test_paths_that_ase_reads(folder):
    assert scripts_utils.check_path_ase_read("data.xyz")
    assert not scripts_utils.check_path_ase_read("data.h5")
    with pytest.raises(InputError, match="no .h5/.hdf5 files"):
        scripts_utils.check_path_ase_read(str(folder))
    (folder / "data.hdf5").touch()
    assert not scripts_utils.check_path_ase_read(str(folder))


def test_energies_of_isolated_atoms(folder):
    table = AtomicNumberTable([1, 8])
    (head,) = load_heads(make_plan(folder), Ranks.single())
    average = scripts_utils.get_atomic_energies("average", head.train, table)
    assert sorted(average) == [1, 8]
    assert scripts_utils.get_atomic_energies("{1: -1.5, 8: -2.5}", None, table) == {1: -1.5, 8: -2.5}
    path = folder / "e0s.json"
    path.write_text('{"1": -1.25}')
    assert scripts_utils.get_atomic_energies(str(path), None, table) == {1: -1.25}
    with pytest.raises(InputError, match="E0s not found"):
        scripts_utils.get_atomic_energies(None, head.train, table)


def test_energies_as_an_array():
    energies = {"a": {1: -1.0, 8: -2.0}, "b": {8: -3.0, 29: -4.0}}
    array = scripts_utils.dict_to_array(energies, ["a", "b"])
    assert array.tolist() == [[-1.0, -2.0, 0.0], [0.0, -3.0, -4.0]]


def test_weights_by_config_type():
    assert scripts_utils.get_config_type_weights('{"bulk": 2.0}') == {"bulk": 2.0}


def test_losses_and_stage_two(folder):
    args = parse(folder, **FERMI, swa=True, swa_potential_weight=7.0)
    assert isinstance(scripts_utils.get_loss_fn(args, False, False), FermiWeightedEnergyForcesLoss)
    optimizer = torch.optim.Adam(Model().parameters())
    stage_two, stages = scripts_utils.get_swa(args, Model(), optimizer, [False])
    assert stages == [False, True]
    assert stage_two.loss_fn.potential_weight.item() == 7.0
    assert isinstance(scripts_utils.get_loss_fn(parse(folder), False, False), WeightedEnergyForcesLoss)
    assert scripts_utils.get_swa(parse(folder), Model(), optimizer, [False]) == (None, [False])
    with pytest.raises(InputError, match="dipole"):
        scripts_utils.get_loss_fn(args, True, False)


def test_a1_the_optimiser_holds_every_parameter(folder):
    args, model = parse(folder, lr=0.125, amsgrad=True), Model()
    options = scripts_utils.get_params_options(args, model)
    optimizer = scripts_utils.get_optimizer(args, options)
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    assert held == {id(p) for p in model.parameters()}
    assert {group["lr"] for group in optimizer.param_groups} == {0.125}
    assert options["lr"] == 0.125 and options["betas"] == (0.9, 0.999)


def test_heads_from_arguments(folder):
    args = parse(folder, test_file=folder / "valid.xyz", energy_key="E")
    (name, settings), *rest = multihead_tools.prepare_default_head(args).items()
    assert name == "default" and not rest
    head = multihead_tools.dict_head_to_dataclass(settings, name, args)
    assert (head.head_name, head.energy_key, head.test_file) == ("default", "E", str(folder / "valid.xyz"))
    other = multihead_tools.dict_head_to_dataclass({"E0s": "average"}, "other", args)
    assert (other.E0s, other.train_file, other.test_file) == ("average", str(folder / "train.xyz"), None)


@pytest.mark.filterwarnings("ignore:The TorchScript type system:UserWarning")
def test_a_model_from_arguments_is_that_of_the_run(folder):
    plan, args = (
        make_plan(folder, **FERMI, scaling="std_scaling"),
        parse(folder, **FERMI, scaling="std_scaling"),
    )
    ranks = Ranks.single()
    heads = load_heads(plan, ranks)
    graphs = build_graphs(heads, plan, ranks)
    statistics = measure(heads, graphs, plan, ranks)
    train = build_loaders(graphs, plan, ranks).train_evaluation["train_default"]
    with pytest.raises(InputError, match=r"args\.mean_electron"):
        configure_model(args, train, statistics.atomic_energies, z_table=statistics.z_table)
    head = multihead_tools.HeadConfig("default", compute_avg_num_neighbors=True)
    args.avg_num_neighbors = scripts_utils.get_avg_num_neighbors([head], args, train, ranks.device)
    args.mean_electron, args.mean_potential = statistics.mean_electron, statistics.mean_potential
    model, outputs = configure_model(args, train, statistics.atomic_energies, z_table=statistics.z_table)
    assert args.avg_num_neighbors == statistics.avg_num_neighbors
    assert outputs["potential"] and model.potential_output
    np.testing.assert_allclose(model.scale_shift.scale, statistics.std, rtol=relative("statistics"))
    assert model.mean_potential.item() == statistics.mean_potential
    assert model.mean_potential.dtype == torch.float64
    with pytest.raises(InputError, match="foundation"):
        configure_model(args, train, statistics.atomic_energies, model_foundation=model)


def test_a_given_number_of_neighbours_is_the_largest_of_the_heads():
    heads = [
        multihead_tools.HeadConfig("a", compute_avg_num_neighbors=True),
        multihead_tools.HeadConfig("b", compute_avg_num_neighbors=False, avg_num_neighbors=12.0),
    ]
    assert scripts_utils.get_avg_num_neighbors(heads, None, None, torch.device("cpu")) == 12.0


def test_the_commit_of_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert scripts_utils.print_git_commit() == "None"
    identity = ("-c", "user.name=n", "-c", "user.email=e")
    subprocess.run(["git", "init", "-q"], check=True)
    subprocess.run(["git", *identity, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    assert len(scripts_utils.print_git_commit()) == 40


def test_no_tracking_unless_it_is_asked_for(folder):
    assert scripts_utils.setup_wandb(parse(folder)) is None
