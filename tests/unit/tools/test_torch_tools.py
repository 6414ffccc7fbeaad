import sys

import numpy as np
import pytest
import torch
from e3nn import o3

from mace.exceptions import InputError
from mace.tools import (
    cartesian_to_spherical,
    count_parameters,
    default_dtype,
    dtype_dict,
    init_device,
    init_wandb,
    set_default_dtype,
    set_seeds,
    spherical_to_cartesian,
    tensor_dict_to_device,
    to_numpy,
    to_one_hot,
    voigt_to_matrix,
)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_hot(dtype):
    indices = torch.tensor([[0], [2]])
    assert to_one_hot(indices, 3, dtype).tolist() == [[1, 0, 0], [0, 0, 1]]
    assert to_one_hot(indices, 3, dtype).dtype == dtype
    with default_dtype(dtype):
        assert to_one_hot(indices, 3).dtype == dtype


def test_voigt_notations():
    matrix = [[0, 5, 4], [5, 1, 3], [4, 3, 2]]
    assert voigt_to_matrix(torch.arange(6.0)).tolist() == matrix
    assert voigt_to_matrix(torch.arange(9.0)).tolist() == torch.arange(9.0).reshape(3, 3).tolist()
    assert voigt_to_matrix(torch.tensor(matrix)).tolist() == matrix
    with pytest.raises(ValueError, match=r"got \(5,\)"):
        voigt_to_matrix(torch.arange(5.0))


def test_default_dtype_comes_back_also_after_exceptions():
    before = torch.get_default_dtype()
    other = torch.float64 if before == torch.float32 else torch.float32
    with pytest.raises(RuntimeError, match="inside"), default_dtype(other):
        assert torch.get_default_dtype() == other
        raise RuntimeError("inside")
    assert torch.get_default_dtype() == before
    with default_dtype(before):
        set_default_dtype("float64")
        assert torch.get_default_dtype() == dtype_dict["float64"]
    assert torch.get_default_dtype() == before


def test_unknown_dtypes_are_refused():
    with pytest.raises(InputError, match="unknown dtype 'float16'; known are float32, float64"):
        set_default_dtype("float16")


def test_small_helpers():
    assert count_parameters(torch.nn.Linear(2, 3)) == 9
    assert isinstance(to_numpy(torch.ones(2, requires_grad=True)), np.ndarray)
    moved = tensor_dict_to_device({"a": torch.ones(1), "b": None}, "meta")
    assert moved["a"].device.type == "meta"
    assert moved["b"] is None


def test_seeds_make_numpy_and_torch_repeat():
    with torch.random.fork_rng():
        state = np.random.get_state()
        draws = []
        for _ in range(2):
            set_seeds(7)
            draws.append((np.random.rand(), torch.rand(1).item()))
        np.random.set_state(state)
    assert draws[0] == draws[1]


def test_devices(caplog, monkeypatch):
    with caplog.at_level("INFO"):
        assert init_device("cpu") == torch.device("cpu")
    assert caplog.messages == ["Using CPU"]
    with pytest.raises(InputError, match="unknown device 'tpu'"):
        init_device("tpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match="device 'cuda' was asked for, .*use cpu"):
        init_device("cuda")


def test_symmetric_tensors_go_to_spherical_components_and_back():
    random = torch.randn(4, 3, 3, dtype=torch.float64)
    symmetric = random + random.transpose(1, 2)
    spherical = cartesian_to_spherical(symmetric)
    assert spherical.shape == (4, 6)
    torch.testing.assert_close(spherical_to_cartesian(spherical), symmetric)
    torch.testing.assert_close(spherical.norm(dim=1), symmetric.norm(dim=(1, 2)))


def test_spherical_components_are_those_of_e3nn():
    """x x^T of a unit vector is its spherical harmonics of degree 0 and 2 up to their norms."""
    x = torch.nn.functional.normalize(torch.randn(5, 3, dtype=torch.float64), dim=1)
    spherical = cartesian_to_spherical(x[:, :, None] * x[:, None, :])
    harmonics = o3.spherical_harmonics([0, 2], x, normalize=False, normalization="norm")
    norms = torch.tensor([1 / 3**0.5] + [(2 / 3) ** 0.5] * 5, dtype=torch.float64)
    torch.testing.assert_close(spherical, harmonics * norms)


def test_wandb_is_asked_for_by_name_when_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(InputError, match=r"--wandb needs the package wandb: pip install 'cp-mace\[wandb\]'"):
        init_wandb("p", "e", "n", {}, ".")
