"""Models without the couplings that add nothing, and models that take another number of them from a file."""

from __future__ import annotations

import pytest
import torch

from mace.cli.convert_cueq_e3nn import run as to_e3nn
from mace.cli.convert_e3nn_cueq import run as to_cueq
from mace.modules.symmetric_contraction import Contraction
from mace.tools.loading import load_from_json, load_model
from mace.tools.rebuild import rebuild
from mace.tools.same import same_bits
from mace.tools.saving import save_compiled, save_model
from tests import small_models
from tests.data.reference.load import max_rel_dev
from tests.reference import state_dict
from tests.reference_models import build as reference_model
from tests.tolerances import relative


def model(reduced: bool) -> torch.nn.Module:
    return small_models.scale_shift(max_ell=2, correlation=3, use_reduced_cg=reduced)


def contractions(model: torch.nn.Module) -> list[Contraction]:
    return [module for module in model.modules() if isinstance(module, Contraction)]


def weights(contraction: Contraction) -> list[torch.nn.Parameter]:
    """In the order of the rows of the form."""
    return [contraction.weights_max, *contraction.weights]


@pytest.fixture(params=["reduced", "reduced, with all couplings loaded"])
def reduced(request: pytest.FixtureRequest) -> torch.nn.Module:
    built = model(reduced=True)
    if request.param != "reduced":
        built.load_state_dict(model(reduced=False).state_dict())
    return built


def same_outputs(ours: torch.nn.Module, theirs: torch.nn.Module, quantity: str) -> bool:
    found, expected = ours(small_models.batch()), theirs(small_models.batch())
    return all(
        max_rel_dev(found[key].detach(), expected[key].detach()) < relative(quantity)
        for key in ("energy", "forces")
    )


def test_fewer_couplings_can_do_what_all_of_them_can() -> None:
    """Weights of a model with all couplings, expressed in the reduced ones, give the same numbers."""
    full, few = model(reduced=False), model(reduced=True)
    shared = {key: value for key, value in full.state_dict().items() if "contractions" not in key}
    few.load_state_dict({**few.state_dict(), **shared})
    for theirs, ours in zip(contractions(full), contractions(few), strict=True):
        given = torch.cat(weights(theirs), dim=1).detach()
        expressed = torch.einsum("zkc,kf,fj->zjc", given, theirs.form, torch.linalg.pinv(ours.form))
        sizes = [weight.shape[1] for weight in weights(ours)]
        for weight, part in zip(weights(ours), expressed.split(sizes, dim=1), strict=True):
            weight.data = part.clone()
    numbers = [
        sum(weight.numel() for part in contractions(m) for weight in weights(part)) for m in (full, few)
    ]
    assert numbers[1] < 0.5 * numbers[0]
    assert same_outputs(few, full, "reference")


def test_the_number_of_couplings_comes_from_the_state() -> None:
    full, other = model(reduced=False), model(reduced=True)
    held = list(other.parameters())
    other.load_state_dict(full.state_dict())
    assert same_outputs(other, full, "symmetry")
    assert all(a is b for a, b in zip(held, other.parameters(), strict=True))
    optimizer = torch.optim.Adam(held)
    other(small_models.batch(), training=True)["energy"].sum().backward()
    optimizer.step()
    assert not same_outputs(other, full, "symmetry")


def test_a_state_of_the_newer_program_is_read_whatever_it_was_built_with() -> None:
    stored = state_dict("m16_ssm_reduced_cg")
    for use_reduced_cg in (True, False):
        loaded = reference_model("m16_ssm_reduced_cg", use_reduced_cg=use_reduced_cg).state_dict()
        assert all(same_bits(loaded[key], value) for key, value in stored.items() if key in loaded)
        assert [key for key in stored if key not in loaded and not key.endswith("_zeroed")] == []


def test_a_state_with_other_features_is_refused() -> None:
    higher = small_models.scale_shift(max_ell=3, correlation=3, use_reduced_cg=True)
    with pytest.raises(RuntimeError, match="size mismatch"):
        model(reduced=True).load_state_dict(higher.state_dict(), strict=False)


def test_copies_files_and_back_ends_keep_it(reduced: torch.nn.Module, tmp_path) -> None:
    copy = rebuild(reduced)
    save_model(copy, tmp_path / "m.model", live=reduced, probe=small_models.batch())
    assert save_compiled(copy, tmp_path / "m_compiled.model", live=reduced, probe=small_models.batch())
    accelerated = to_cueq(reduced)
    for other in (
        copy,
        load_model(tmp_path / "m.model"),
        load_from_json(tmp_path / "m_compiled.model"),
        to_e3nn(accelerated),
    ):
        ours, theirs = reduced.state_dict(), other.state_dict()
        assert ours.keys() == theirs.keys() and all(same_bits(ours[key], theirs[key]) for key in ours)
        assert same_outputs(other, reduced, "symmetry")
    assert same_outputs(load_model(tmp_path / "m_compiled.model"), reduced, "symmetry")
    assert same_outputs(accelerated, reduced, "back end")
