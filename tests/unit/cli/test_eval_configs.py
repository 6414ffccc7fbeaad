"""mace_eval_configs writes what the model computes, whole or not at all."""

import os
import subprocess
import sys

import ase
import ase.io
import numpy as np
import pytest
import torch

from mace.arguments.parsers import build_eval_arg_parser
from mace.cli.eval_configs import run
from mace.exceptions import InputError
from mace.tools.rebuild import rebuild
from mace.tools.saving import save_compiled, save_model
from tests import small_models


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    live = small_models.fermi()
    save_model(rebuild(live), folder / "fermi.model")
    assert save_compiled(rebuild(live), folder / "fermi_compiled.model")
    save_model(small_models.mace(), folder / "mace.model")
    return folder


@pytest.fixture
def frames():
    return [
        ase.Atoms(
            s.numbers, s.positions, cell=s.cell, pbc=s.pbc, info={"electron": s.electron, "name": "kept"}
        )
        for s in small_models.structures() * 2
    ]


@pytest.fixture
def evaluate(tmp_path, models, frames):
    def go(model, *flags, frames=frames):
        ase.io.write(tmp_path / "in.xyz", frames)
        arguments = [
            f"--configs={tmp_path}/in.xyz",
            f"--model={models / model}",
            f"--output={tmp_path}/out.xyz",
            *flags,
        ]
        run(build_eval_arg_parser().parse_args(arguments))
        return ase.io.read(tmp_path / "out.xyz", ":")

    return go


@pytest.mark.parametrize("model", ["fermi.model", "fermi_compiled.model"])
@pytest.mark.parametrize("batch_size", [1, 3, 64])
def test_g5_energy_forces_and_potential_are_written(evaluate, model, batch_size):
    out = evaluate(model, f"--batch_size={batch_size}")
    reference = small_models.fermi()(small_models.batch())
    forces = torch.split(reference["forces"], [3, 4])
    assert len(out) == 4 and all(atoms.info["name"] == "kept" for atoms in out)
    for index, atoms in enumerate(out):
        graph = index % 2
        assert atoms.info["MACE_energy"] == pytest.approx(reference["energy"][graph].item(), abs=1e-8)
        assert atoms.info["MACE_potential"] == pytest.approx(reference["potential"][graph].item(), abs=1e-8)
        assert np.allclose(atoms.arrays["MACE_forces"], forces[graph].numpy(), atol=1e-7)
        assert "MACE_stress" not in atoms.info


def test_what_was_written_is_said(evaluate, tmp_path, capsys):
    evaluate("fermi.model", "--compute_stress")
    names = "MACE_energy, MACE_forces, MACE_potential, MACE_stress"
    assert capsys.readouterr().out.splitlines() == [
        f"4 frames with {names} written to {tmp_path}/out.xyz",
        "no stress for the 2 frames whose cell has no volume",
    ]


def test_the_input_is_not_overwritten(evaluate, tmp_path):
    with pytest.raises(InputError, match="is the file of --configs"):
        evaluate("fermi.model", f"--output={tmp_path}/../{tmp_path.name}/in.xyz")


def test_stress_and_contributions_are_written_on_demand(evaluate):
    out = evaluate("mace.model", "--compute_stress", "--return_contributions", "--info_prefix=x_")
    reference = small_models.mace()(small_models.batch(), compute_stress=True)
    for index, atoms in enumerate(out):
        stress, parts = (reference[name][index % 2].detach() for name in ("stress", "contributions"))
        assert np.allclose(atoms.info["x_BO_contributions"], parts, atol=1e-7)
        if index % 2:
            assert np.allclose(atoms.info["x_stress"], stress, atol=1e-7)
        else:
            assert "x_stress" not in atoms.info  # a molecule has no volume
        assert "x_potential" not in atoms.info


@pytest.mark.parametrize("model", ["fermi.model", "fermi_compiled.model"])
def test_energies_and_descriptors_of_atoms_are_written_on_demand(evaluate, model):
    out = evaluate(model, "--return_node_energies", "--return_descriptors")
    reference = small_models.fermi()(small_models.batch())
    first, last = reference["node_feats"].detach().split([8, 2], dim=1)  # 2x0e + 2x1o, 2x0e
    invariants = torch.cat([first[:, :2], last], dim=1)
    atoms_of = [slice(0, 3), slice(3, 7)]
    for index, atoms in enumerate(out):
        rows = atoms_of[index % 2]
        assert np.allclose(
            atoms.arrays["MACE_node_energies"], reference["node_energy"].detach()[rows], atol=1e-7
        )
        assert np.allclose(atoms.arrays["MACE_descriptors"], invariants[rows], atol=1e-7)


def test_descriptors_of_the_first_layer_with_all_components(evaluate):
    flags = ["--return_descriptors", "--descriptor_num_layers=1", "--descriptor_invariants_only=False"]
    features = small_models.mace()(small_models.batch())["node_feats"].detach()
    assert np.allclose(
        evaluate("mace.model", *flags)[1].arrays["MACE_descriptors"], features[3:7, :8], atol=1e-7
    )


def test_descriptors_are_averaged_on_demand(evaluate):
    each = evaluate("mace.model", "--return_descriptors")
    mean = evaluate("mace.model", "--return_descriptors", "--descriptor_aggregation_method=mean")
    by_element = evaluate(
        "mace.model", "--return_descriptors", "--descriptor_aggregation_method=per_element_mean"
    )
    for atoms, averaged, of_elements in zip(each, mean, by_element, strict=True):
        values = atoms.arrays["MACE_descriptors"]
        assert "MACE_descriptors" not in averaged.arrays
        assert np.allclose(averaged.info["MACE_descriptors"], values.mean(axis=0), atol=1e-7)
        assert of_elements.info["MACE_descriptors"].keys() == {"H", "O"}
        for symbol, value in of_elements.info["MACE_descriptors"].items():
            assert np.allclose(value, values[atoms.symbols == symbol].mean(axis=0), atol=1e-7)


def test_a_setting_of_descriptors_alone_is_refused(evaluate):
    with pytest.raises(
        InputError, match="--descriptor_num_layers has no effect without --return_descriptors"
    ):
        evaluate("mace.model", "--descriptor_num_layers=1")


def test_cuequivariance_gives_the_same(evaluate):
    usual, accelerated = evaluate("fermi.model"), evaluate("fermi.model", "--enable_cueq")
    for a, b in zip(usual, accelerated, strict=True):
        assert np.allclose(a.arrays["MACE_forces"], b.arrays["MACE_forces"], atol=1e-7)


def test_g5_the_model_is_cast_to_the_dtype(evaluate):
    double, single = evaluate("fermi.model"), evaluate("fermi.model", "--default_dtype=float32")
    for a, b in zip(double, single, strict=True):
        assert a.info["MACE_energy"] != b.info["MACE_energy"]
        assert a.info["MACE_energy"] == pytest.approx(b.info["MACE_energy"], rel=1e-5)
    assert torch.get_default_dtype() == torch.float32


def test_a20_the_key_of_the_electron_number_can_be_chosen(evaluate, frames):
    usual = evaluate("fermi.model")
    for atoms in frames:
        atoms.info["n_e"] = atoms.info.pop("electron")
    assert (
        evaluate("fermi.model", "--electron_key=n_e")[0].info["MACE_energy"] == usual[0].info["MACE_energy"]
    )


def test_a8_a_frame_without_electron_number_is_named_and_nothing_written(evaluate, frames, tmp_path):
    del frames[2].info["electron"]
    with pytest.raises(InputError, match=r"frame 2 of .*in.xyz.*electron"):
        evaluate("fermi.model", "--batch_size=2")
    assert os.listdir(tmp_path) == ["in.xyz"]


def test_unknown_elements_heads_and_outputs_are_named(evaluate, frames, tmp_path):
    with pytest.raises(InputError, match="frame 1 .*26"):
        evaluate("fermi.model", frames=[frames[0], ase.Atoms("Fe", info={"electron": 0.0})])
    with pytest.raises(InputError, match="return_contributions"):
        evaluate("fermi.model", "--return_contributions")
    with pytest.raises(InputError, match="no_such.model"):
        evaluate("no_such.model")
    (tmp_path / "out.xyz").mkdir()
    with pytest.raises(InputError, match=r"out.xyz.*cannot be written"):
        evaluate("fermi.model")


@pytest.mark.parametrize("model", ["fermi.model", "fermi_compiled.model"])
def test_f2_a_head_that_the_model_lacks_is_refused(evaluate, model):
    with pytest.raises(InputError, match=r"head 'foo' of --head is not in this model, .* \['default'\]"):
        evaluate(model, "--head=foo")
    assert evaluate(model, "--head=default")


def test_a_malicious_file_is_refused_and_does_nothing(evaluate, tmp_path):
    class CreatesAFile:
        def __reduce__(self):
            return open, (str(tmp_path / "created"), "w")

    torch.save(CreatesAFile(), tmp_path / "evil.model")
    with pytest.raises(InputError, match=r"evil.model"):
        evaluate(tmp_path / "evil.model")
    assert sorted(os.listdir(tmp_path)) == ["evil.model", "in.xyz"]


def test_the_command_ends_with_one_line_for_bad_input(models, tmp_path):
    flags = [
        f"--configs={tmp_path}/none.xyz",
        f"--model={models}/fermi.model",
        f"--output={tmp_path}/out.xyz",
    ]
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "mace.cli.eval_configs", *flags],
        capture_output=True,
        text=True,
    )
    assert (
        result.returncode == 1
        and len(result.stderr.strip().splitlines()) == 1
        and "none.xyz" in result.stderr
    )
