"""What can be wrong with a module is found in one of anybody's making, and not in ours."""

import copy

import pytest
import torch
from e3nn import o3
from torch import nn

from mace.doctor.findings import Severity
from mace.doctor.model import Lesson, examine_model
from mace.doctor.tensors import check_plain_attributes
from tests.small_models import MODELS, fermi


class Sound(nn.Module):
    """A module without faults; the functions below add one each."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 3)
        self.register_buffer("scale", torch.ones(3))

    def forward(self, data: dict[str, torch.Tensor], training: bool = False) -> dict[str, torch.Tensor]:
        return {"energy": self.layer(data["positions"]) * self.scale}


def codes(module, lesson=None):
    return {finding.code: finding for finding in examine_model(module, lesson)}


def altered(change):
    module = Sound()
    change(module)
    return module


def parameter_in_a_list(module):
    module.extra = [nn.Parameter(torch.ones(2))]


def parameter_in_a_dict(module):
    module.extra = {"a": (nn.Parameter(torch.ones(2)),)}


def module_in_a_list(module):
    module.layers = [nn.Linear(1, 1)]


def plain_tensor(module):
    module.constant = torch.ones(2, 3)


def stale_buffer_in_a_list(module):
    module.kept = [module.scale]


def another_device(module):
    module.register_buffer("far", torch.ones(2, device="meta"), persistent=False)


def whole_numbers(module):
    module.counts = nn.Parameter(torch.ones(2, dtype=torch.int64), requires_grad=False)


def two_precisions(module):
    module.register_buffer("fine", torch.ones(2, dtype=torch.float64))


def transposed(module):
    module.layer.weight = nn.Parameter(torch.ones(2, 3).T)


def transposed_buffer(module):
    module.scale = torch.ones(3, 3).T


def not_a_number(module):
    with torch.no_grad():
        module.layer.bias[1] = float("nan")


def infinite_buffer(module):
    module.scale[0] = float("inf")


def without_elements(module):
    module.empty = nn.Parameter(torch.ones(0))


@pytest.mark.parametrize(
    ("code", "change", "severity", "value"),
    [
        ("parameter-plain", parameter_in_a_list, "error", "extra[0]"),
        ("parameter-plain", parameter_in_a_dict, "error", "extra['a'][0]"),
        ("module-plain", module_in_a_list, "error", "layers[0]"),
        ("tensor-plain", plain_tensor, "warning", "constant (float32 (2, 3) on cpu)"),
        ("tensor-plain", stale_buffer_in_a_list, "warning", "kept[0]"),
        ("device-mixed", another_device, "error", "far (meta)"),
        ("parameter-not-float", whole_numbers, "error", "counts (int64"),
        ("dtype-mixed", two_precisions, "warning", "3 of float32, 1 of float64, fine"),
        ("parameter-strided", transposed, "warning", "layer.weight (stride (1, 3))"),
        ("buffer-strided", transposed_buffer, "note", "scale"),
        ("weights-not-finite", not_a_number, "error", "layer.bias"),
        ("weights-not-finite", infinite_buffer, "error", "scale"),
        ("parameter-empty", without_elements, "note", "empty"),
    ],
)
def test_a_fault_of_the_tensors_is_named(code, change, severity, value):
    assert code not in codes(Sound())
    finding = codes(altered(change))[code]
    assert finding.severity is Severity(severity)
    assert value in finding.found and finding.cure


def test_a_parameter_of_the_module_may_be_in_a_list_too():
    def shared(module):
        module.again = [module.layer.weight, {"it": module.layer}]

    assert not {"parameter-plain", "module-plain", "tensor-plain"} & codes(altered(shared)).keys()


def test_a_circle_of_attributes_ends():
    def circle(module):
        module.loop = []
        module.loop.append(module.loop)

    assert not list(check_plain_attributes(altered(circle)))


class Closed(Sound):
    """It cannot be copied, pickled or scripted, and its state is no data."""

    def __init__(self):
        super().__init__()
        self.function = lambda x: x
        self.lock = __import__("threading").Lock()

    def forward(self, *args: object) -> object:
        return self.function(args)

    def get_extra_state(self):
        return {"class": Closed}


@pytest.mark.parametrize(
    ("code", "severity"),
    [
        ("copy-deepcopy", "warning"),
        ("copy-pickle", "warning"),
        ("copy-script", "warning"),
        ("copy-state", "error"),
    ],
)
def test_a_module_that_cannot_be_copied(code, severity):
    assert codes(Sound())[code].severity is Severity.OK
    finding = codes(Closed())[code]
    assert finding.severity is Severity(severity) and finding.cure


def test_a_foreign_class_is_not_rebuilt_or_read_safely():
    found = codes(Sound())
    for code in ("copy-rebuild", "read-safely"):
        assert found[code].severity is Severity.WARNING and "records_config" in found[code].cure


def test_a_model_that_was_changed_cannot_be_saved():
    model = fermi()
    assert codes(model)["copy-rebuild"].severity is Severity.OK
    model.added = nn.Linear(1, 1)
    finding = codes(model)["copy-rebuild"]
    assert finding.severity is Severity.ERROR and "'added.bias'" in finding.found


def test_generated_code_of_e3nn_is_found_where_it_is(monkeypatch):
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.harmonics = o3.SphericalHarmonics("1o", normalize=True)
            self.weight = nn.Parameter(torch.ones(1))

    module = Own()
    holds = any(isinstance(v, torch.jit.ScriptFunction) for m in module.modules() for v in vars(m).values())
    assert (codes(module)["copy-deepcopy"].severity is Severity.WARNING) == holds


@pytest.mark.parametrize("name", MODELS)
def test_our_models_have_no_fault(name):
    found = codes(MODELS[name]())
    assert {finding.severity for code, finding in found.items() if code != "gradients-not-checked"} == {
        Severity.OK
    }
    assert {
        "copy-rebuild",
        "copy-deepcopy",
        "copy-pickle",
        "copy-state",
        "copy-script",
        "read-safely",
    } <= found.keys()


def test_a_model_stays_as_it_is():
    model = fermi()
    before = copy.deepcopy(model.state_dict())
    examine_model(model)
    after = model.state_dict()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())


class Data(dict):
    def to(self, device):
        return self

    def to_dict(self):
        return dict(self)


class SquaredEnergy(nn.Module):
    def forward(self, pred, ref):
        return pred["energy"].square().sum()


LESSON = Lesson(loss_fn=SquaredEnergy(), batch=Data(positions=torch.ones(4, 2)), output_args={"energy": True})


def test_parameters_that_no_gradient_reaches():
    def unused(module):
        module.idle = nn.Linear(1, 1, bias=False)

    assert codes(Sound(), LESSON)["gradients"].severity is Severity.OK
    assert "parameter-unused" not in codes(Sound(), LESSON)
    finding = codes(altered(unused), LESSON)["parameter-unused"]
    assert finding.severity is Severity.ERROR and "1 parameters that train: idle.weight" in finding.found
    assert "gradients" not in codes(altered(unused), LESSON)


def test_gradients_without_data_or_without_training():
    assert codes(Sound())["gradients-not-checked"].severity is Severity.NOTE
    assert "gradients-not-checked" not in codes(Sound(), LESSON)
    frozen = altered(lambda module: module.requires_grad_(False))
    assert codes(frozen, LESSON)["gradients-none"].severity is Severity.NOTE
    assert "gradients-none" not in codes(Sound(), LESSON)


def test_an_archive_is_said_to_be_one():
    found = codes(torch.jit.script(Sound()))
    assert found["model-archive"].severity is Severity.NOTE
    assert "copy-rebuild" not in found and "model-archive" not in codes(Sound())


def test_the_size_is_said():
    assert "9 weights, 9 of them train" in codes(Sound())["model-size"].found
