import numpy as np
import pytest

from mace.data import Configuration, compute_average_E0s
from mace.exceptions import InputError
from mace.tools import AtomicNumberTable


def config(numbers, energy):
    return Configuration(np.array(numbers), np.zeros((len(numbers), 3)), energy=energy)


def test_exact_energies_are_found(caplog):
    table = AtomicNumberTable([8, 1])  # not sorted: the order of the table must not matter
    configs = [config([1, 1, 8], 2 * -1.5 - 4.0), config([8], -4.0), config([1, 8, 8, 8], -1.5 - 12.0)]
    assert compute_average_E0s(configs, table) == pytest.approx({8: -4.0, 1: -1.5})
    assert not caplog.messages


def test_fixed_composition_gives_the_shortest_solution_and_a_warning(caplog):
    energies = compute_average_E0s(
        [config([1, 1, 8], -6.0), config([1, 1, 8], -4.0)], AtomicNumberTable([1, 8])
    )
    assert energies == pytest.approx({1: -2.0, 8: -1.0})
    assert "1 independent compositions for 2 elements" in caplog.text
    assert "give energies of isolated atoms (--E0s, or IsolatedAtom frames)" in caplog.text


def test_d14_configurations_without_energy_are_left_out():
    table = AtomicNumberTable([1, 8])
    configs = [config([1], -1.0), config([8], 0.0), config([8, 1], None), config([1, 1], None)]
    assert compute_average_E0s(configs, table) == pytest.approx({1: -1.0, 8: 0.0})


def test_no_energy_at_all_is_refused():
    with pytest.raises(InputError, match="no training structure has an energy"):
        compute_average_E0s([config([1], None)], AtomicNumberTable([1]))
