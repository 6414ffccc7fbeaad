"""Constructor arguments as plain JSON: exact both ways, and never a way to reach anything else."""

import json
import math

import numpy as np
import pytest
import torch
from e3nn import o3

from mace.modules.blocks import RealAgnosticInteractionBlock
from mace.modules.wrapper_ops import CuEquivarianceConfig
from mace.tools import plain
from mace.tools.plain import RebuildError, decode, encode


def through_json(value):
    return decode(json.loads(json.dumps(encode(value), allow_nan=False)))


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        3,
        0.1,
        1e-300,
        -0.0,
        math.inf,
        "16x0e",
        o3.Irreps("4x0e+3x1o"),
        o3.Irrep("2e"),
        torch.float32,
        [1, [2.5, None]],
        (1, 2),
        {"a": 1, "b": [o3.Irreps("1x0e")]},
        {1: -3.5, 8: {"$odd": 2}},
        torch.nn.functional.silu,
        torch.tanh,
        torch.abs,
        RealAgnosticInteractionBlock,
        CuEquivarianceConfig(enabled=False, optimize_all=True),
    ],
)
def test_values_come_back_equal_and_of_the_same_type(value):
    back = through_json(value)
    assert back == value and type(back) is type(value)


def test_nan_comes_back():
    assert math.isnan(through_json(math.nan))


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, bool])
def test_arrays_come_back_to_the_bit(dtype):
    value = (np.random.default_rng(0).normal(size=(2, 3)) * 10).astype(dtype)
    back = through_json(value)
    assert back.dtype == value.dtype and back.tobytes() == value.tobytes() and back.shape == value.shape
    scalar = through_json(value[0, 0])
    assert type(scalar) is type(value[0, 0]) and scalar == value[0, 0]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.int32])
def test_tensors_come_back_to_the_bit(dtype):
    value = (torch.linspace(-3, 7, 6) / 3).to(dtype).reshape(2, 3)
    back = through_json(value)
    assert back.dtype == dtype and torch.equal(back, value)


@pytest.mark.parametrize("value", [lambda x: x, object(), torch.nn.Linear, {1, 2}, np.array(["a"]), open])
def test_what_has_no_plain_form_is_named(value):
    with pytest.raises(RebuildError):
        encode(value)


@pytest.mark.parametrize(
    "text",
    [
        '{"$function": "os.system"}',
        '{"$function": "torch.from_file"}',
        '{"$class": "os.system"}',
        '{"$class": "subprocess.Popen"}',
        '{"$class": "torch.nn.Linear"}',
        '{"$class": "mace.tools.files.os"}',
        '{"$class": "mace.tools.plain.RebuildError"}',
        '{"$class": "mace.tools.no_such.Thing"}',
        '{"$class": "mace.modules.models.torch.nn.Linear"}',
        '{"$class": ["mace.modules.models", "MACE"]}',
        '{"$settings": "mace.tools.plain.RebuildError", "fields": {}}',
        '{"$settings": "mace.modules.wrapper_ops.CuEquivarianceConfig", "fields": {"no_such": 1}}',
        '{"$array": {"dtype": "object", "shape": [1], "data": [1]}}',
        '{"$dtype": "load"}',
        '{"$unknown": 1}',
    ],
)
def test_a_text_reaches_only_what_is_allowed(text):
    with pytest.raises(RebuildError):
        decode(json.loads(text))


def test_only_decorated_classes_are_models():
    assert plain.model_class("mace.modules.models.MACE").__name__ == "MACE"
    for name in ("mace.modules.blocks.RealAgnosticInteractionBlock", "torch.nn.Linear", "MACE", ""):
        with pytest.raises(RebuildError):
            plain.model_class(name)


def test_readable_form_is_for_other_programs():
    arguments = {
        "irreps": o3.Irreps("4x0e"),
        "e0": np.array([[1.0, 2.0]]),
        "cls": RealAgnosticInteractionBlock,
        "pair": (1, "a"),
    }
    plain_arguments = {key: plain.readable(encode(value)) for key, value in arguments.items()}
    assert plain_arguments == {
        "irreps": "4x0e",
        "e0": [[1.0, 2.0]],
        "cls": "mace.modules.blocks.RealAgnosticInteractionBlock",
        "pair": [1, "a"],
    }
