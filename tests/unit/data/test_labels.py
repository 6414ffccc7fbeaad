import numpy as np
import pytest

from mace.arguments import build_default_arg_parser
from mace.data.configuration import Configuration
from mace.data.labels import ENERGY, FORCES, LABELS, LABELS_BY_NAME, POTENTIAL, STRESS, is_sentinel


def test_every_label_is_a_field_of_configurations_with_its_weight():
    config = Configuration(np.array([1]), np.zeros((1, 3)))
    for label in LABELS:
        assert getattr(config, label.name) is None
        assert label.weight is None or getattr(config, label.weight) == 1.0
    assert len(LABELS_BY_NAME) == len(LABELS)


@pytest.mark.parametrize("label", LABELS, ids=lambda label: label.name)
def test_a20_every_label_has_a_flag_with_its_key_as_default(label):
    parser = build_default_arg_parser()
    assert parser.get_default(label.flag.removeprefix("--")) == label.key


@pytest.mark.parametrize("value", [1, 1.0, np.float32(1), "1.0", [1.0], np.array(1.0)])
def test_scalars_are_accepted_in_every_form(value):
    assert ENERGY.parse(value, n_atoms=3) == 1.0
    assert ENERGY.parse(value, n_atoms=3).shape == ()


@pytest.mark.parametrize("shape", [(6,), (9,), (3, 3)])
def test_stress_is_accepted_in_three_notations(shape):
    assert STRESS.parse(np.ones(shape), n_atoms=3).shape == shape


@pytest.mark.parametrize(
    ("label", "value", "reason"),
    [
        (ENERGY, "none", "is 'none', which is no number"),
        (ENERGY, [1.0, 2.0], r"is of shape \(2,\), expected \(\)"),
        (ENERGY, float("nan"), "is nan, which is not finite"),
        (FORCES, np.zeros((2, 3)), r"is of shape \(2, 3\), expected \(3, 3\)"),
        (FORCES, np.full((3, 3), np.inf), "is not finite"),
        (STRESS, np.zeros(5), r"is of shape \(5,\), expected \(6,\) or \(9,\) or \(3, 3\)"),
    ],
)
def test_unusable_values_are_refused_with_the_reason(label, value, reason):
    with pytest.raises(ValueError, match=reason):
        label.parse(value, n_atoms=3)


def test_a19_the_sentinel_is_known_through_float32_and_printed_digits():
    assert is_sentinel(-10000.0, -10000.0)
    assert is_sentinel(float(np.float32(-10000.1)), -10000.1)
    assert is_sentinel(-9999.9999, -10000.0)
    assert not is_sentinel(-9999.0, -10000.0)
    assert not is_sentinel(-4.0, -10000.0)
    assert not is_sentinel(-10000.0, None)
    assert is_sentinel(0.0, 0.0)
    assert POTENTIAL.unit == "V"
