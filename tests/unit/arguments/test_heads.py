"""Heads from the global flags and from --heads."""

import pytest

from mace.arguments import TrainPlan, build_default_arg_parser
from mace.exceptions import InputError


def heads_of(heads, *given):
    args = build_default_arg_parser().parse_args(["--name=x", *given])
    args.heads = heads
    return TrainPlan.from_namespace(args).data.heads


def refused(heads, *given):
    with pytest.raises(InputError) as error:
        heads_of(heads, *given)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_one_head_from_the_global_flags():
    (head,) = heads_of(None, "--train_file=t.xyz", "--test_file=e.xyz", "--E0s=Average", "--mean=1")
    assert (head.name, head.train_file, head.test_file) == ("default", "t.xyz", "e.xyz")
    assert head.E0s == "average" and head.explicit_E0s() is None
    assert (head.mean, head.std) == (1.0, None)  # D17: a given value stays
    assert head.config_type_weights == {"Default": 1.0}


def test_heads_keep_their_order_and_fall_back_to_the_flags():
    text = (
        "{'b': {'train_file': 'b.xyz', 'energy_key': 'e', 'valid_fraction': 0.2, "
        "'E0s': '{1: -13.6, 8: -432}'},"
        " 'a': {'train_file': 'a.xyz', 'valid_file': 'v.xyz', 'test_file': 'e.xyz'}}"
    )
    b, a = heads_of(text, "--E0s=average", "--forces_key=f", "--potential_key=mu", "--std=2")
    assert (b.name, a.name) == ("b", "a")
    assert (b.keys.energy, b.keys.forces, b.keys.potential) == ("e", "f", "mu")
    assert (a.keys.energy, a.valid_file, a.test_file, b.test_file) == ("REF_energy", "v.xyz", "e.xyz", None)
    assert (b.valid_fraction, a.valid_fraction) == (0.2, 0.1)
    assert b.explicit_E0s() == {1: -13.6, 8: -432.0}
    assert a.E0s == "average"
    assert a.std == b.std == 2.0


def test_c11_native_types():
    settings = {
        "train_file": "a.xyz",
        "E0s": {1: -13.6},
        "atomic_numbers": [1, 8],
        "config_type_weights": {"Default": 2},
        "keep_isolated_atoms": True,
        "compute_avg_num_neighbors": "no",
        "avg_num_neighbors": 30,
        "mean": "1.5",
    }
    (head,) = heads_of({"a": settings})
    assert head.explicit_E0s() == {1: -13.6}
    assert head.atomic_numbers == (1, 8)
    assert head.config_type_weights == {"Default": 2.0}
    assert head.keep_isolated_atoms is True
    assert head.compute_avg_num_neighbors is False
    assert (head.avg_num_neighbors, head.mean) == (30.0, 1.5)


def test_a_json_file_of_energies_is_read_later():
    (head,) = heads_of({"a": {"train_file": "a.xyz", "E0s": "e0s.json"}})
    assert head.E0s == "e0s.json" and head.explicit_E0s() is None


A = {"train_file": "a.xyz"}


@pytest.mark.parametrize(
    ("heads", "complaint"),
    [
        ("{'a': ", "--heads is \"{'a': \", which is no Python literal"),
        ("[1]", "--heads is '[1]': give a dict"),
        ("{}", "--heads is '{}': give a dict"),
        ({"a": "a.xyz"}, "head 'a' is 'a.xyz': give a dict of its settings"),
        ({1: A}, "--heads has a head named 1"),
        ({"a/b": A}, "--heads has a head named 'a/b'"),
        ({"a": {}}, "head 'a' has no training data"),
        ({"a": {**A, "E0": 1}}, "head 'a' has the unknown setting 'E0'"),
        ({"a": {**A, "valid_fraction": 2}}, "valid_fraction of head 'a' is 2.0"),
        ({"a": {**A, "valid_fraction": "much"}}, "valid_fraction of head 'a' is 'much'"),
        ({"a": {**A, "train_file": ["a.xyz"]}}, "train_file of head 'a' is ['a.xyz']"),
        ({"a": {**A, "keep_isolated_atoms": 3}}, "keep_isolated_atoms of head 'a' is 3"),
        ({"a": {**A, "E0s": {"H": 1}}}, "E0s of head 'a' is"),
        ({"a": {**A, "E0s": "foundation"}}, "not built yet"),
        ({"a": {**A, "test_dir": 3}}, "test_dir of head 'a' is 3"),
        ({"a": {**A, "std": -1}}, "std of head 'a' is -1.0"),
        ({"a": {**A, "atomic_numbers": "[H]"}}, "atomic_numbers of head 'a' is '[H]'"),
        ({"a": {**A, "config_type_weights": {"x": "much"}}}, "config_type_weights of head 'a' is"),
    ],
)
def test_what_cannot_be_used_names_head_and_setting(heads, complaint):
    assert complaint in refused(heads)


def test_a_global_test_file_belongs_to_no_head():
    assert "--test_file belongs to no head" in refused({"a": A}, "--test_file=e.xyz")


def test_a_valid_file_makes_the_fraction_idle():
    (head,) = heads_of({"a": {**A, "valid_file": "v.xyz", "valid_fraction": 0}})
    assert head.valid_file == "v.xyz"
