"""A second model from the first: rebuilt from its recorded configuration, filled with its state, and checked.

Everything that needs a copy of a model comes here: saving, conversion, export, pickling. A live model cannot
simply be deep-copied, because e3nn's code generation may have left TorchScript functions in it; the copy is
built with code generation off.
"""

from __future__ import annotations

import functools
import inspect
import json
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

import e3nn
import torch
from e3nn import o3
from torch.nn.parallel import DistributedDataParallel

from mace.tools.plain import MODEL_CLASSES, RebuildError, decode, dtype_name, encode, model_class, name_of
from mace.tools.same import differences, own_modules

__all__ = [
    "RebuildError",
    "adopt",
    "disable_e3nn_codegen",
    "extract_config_mace_model",
    "extract_model",
    "rebuild",
    "recorded_config",
    "records_config",
    "restore_model",
    "unwrap",
]

_Class = TypeVar("_Class", bound=type)
_RECORD = "_recorded_config"
_FORMAT = 1
# e3nn's optimisation defaults, torch's default dtype and its random state belong to the whole process: one
# model is built at a time.
_ONE_AT_A_TIME = threading.RLock()


def records_config(cls: _Class) -> _Class:
    """Class decorator: every instance carries the arguments it was built with.

    It goes above all other decorators. The outermost constructor records. Arguments that it hands on as
    keywords to a recording base class are completed with that class's defaults. An argument that has no plain
    form does not disturb the construction; it is named when the record is asked for.
    """
    build = cls.__init__
    signature = inspect.signature(build)

    @functools.wraps(build)
    def __init__(self: torch.nn.Module, *args: Any, **kwargs: Any) -> None:
        bound = signature.bind(self, *args, **kwargs)
        given = set(bound.arguments)
        bound.apply_defaults()
        arguments = dict(list(bound.arguments.items())[1:])
        if type(self) is cls:
            keywords, unnamed = _as_keywords(signature, arguments)
            self.__dict__[_RECORD] = _Record(cls, keywords, unnamed)
        elif isinstance(record := self.__dict__.get(_RECORD), _Record):
            record.complete(
                {name: value for name, value in arguments.items() if name not in given}, signature
            )
        build(self, *args, **kwargs)
        if type(self) is cls:
            self.__dict__[_RECORD] = self.__dict__[_RECORD].text()

    cls.__init__ = __init__
    cls.__reduce__ = _reduce
    MODEL_CLASSES[name_of(cls)] = cls
    return cls


def _reduce(model: torch.nn.Module) -> tuple[Any, tuple[str, dict[str, torch.Tensor]]]:
    """How a model is pickled and deep-copied: as configuration and state, taken from a faithful copy."""
    return restore_model, (describe(model), dict(rebuild(model).state_dict()))


class _Record:
    """The arguments of a running constructor; encoded at once, since it may change what it is given."""

    def __init__(self, cls: type, keywords: dict[str, Any], unnamed: tuple[Any, ...]) -> None:
        self.name = name_of(cls)
        self.arguments: dict[str, Any] = {}
        self.obstacle = "it was built with unnamed extra arguments" if unnamed else None
        self._add(keywords)

    def complete(self, defaults: dict[str, Any], signature: inspect.Signature) -> None:
        """Add the defaults of a base class, for what the outermost constructor could have been given."""
        keywords, _ = _as_keywords(signature, defaults)
        self._add({name: value for name, value in keywords.items() if name not in self.arguments})

    def _add(self, keywords: dict[str, Any]) -> None:
        for name, value in keywords.items():
            try:
                self.arguments[name] = encode(value)
            except RebuildError as error:
                self.obstacle = f"its argument {name!r} has no plain form: {error}"

    def text(self) -> str:
        if self.obstacle is not None:
            return json.dumps({"class": self.name, "obstacle": self.obstacle})
        return json.dumps(
            {"class": self.name, "arguments": self.arguments, "built_with": _built_with()}, allow_nan=False
        )


def _as_keywords(
    signature: inspect.Signature, arguments: dict[str, Any]
) -> tuple[dict[str, Any], tuple[Any, ...]]:
    keywords: dict[str, Any] = {}
    unnamed: tuple[Any, ...] = ()
    for name, value in arguments.items():
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_KEYWORD:
            keywords.update(value)
        elif kind is inspect.Parameter.VAR_POSITIONAL:
            unnamed = value
        else:
            keywords[name] = value
    return keywords, unnamed


def _built_with() -> dict[str, Any]:
    """The facts about the installation that a model's numbers may depend on."""
    return {
        "torch": torch.__version__,
        "e3nn": e3nn.__version__,
        # Its sign differs between e3nn 0.4 and later; coupling tensors computed with one do not fit weights
        # trained with the other.
        "sign_of_wigner_3j_1_2_2": int(
            torch.sign(o3.wigner_3j(1, 2, 2, dtype=torch.float64)[0, 1, 0]).item()
        ),
        "default_dtype": dtype_name(torch.get_default_dtype()),
    }


def _recorded_text(model: torch.nn.Module) -> str:
    """The record of ``model`` as JSON text; `RebuildError` without a usable one."""
    text = getattr(model, "__dict__", {}).get(_RECORD)
    if not isinstance(text, str) or json.loads(text)["class"] != name_of(type(model)):
        raise RebuildError(
            f"{type(model).__name__} carries no record of its configuration; "
            "its class needs the decorator records_config"
        )
    obstacle = json.loads(text).get("obstacle")
    if obstacle is not None:
        raise RebuildError(
            f"{type(model).__name__} carries no usable record of its configuration: {obstacle}"
        )
    return text


@contextmanager
def disable_e3nn_codegen() -> Iterator[None]:
    """Modules built inside carry no generated TorchScript; the former defaults come back in any case."""
    with _ONE_AT_A_TIME:
        before = e3nn.get_optimization_defaults()
        off = {
            name: value for name, value in (("jit_script_fx", False), ("jit_mode", "eager")) if name in before
        }
        e3nn.set_optimization_defaults(**off)
        try:
            yield
        finally:
            e3nn.set_optimization_defaults(**{name: before[name] for name in off})


def unwrap(model: torch.nn.Module) -> torch.nn.Module:
    """The model itself, without the wrapper that distributed training puts around it."""
    return model.module if isinstance(model, DistributedDataParallel) else model


def recorded_config(model: torch.nn.Module) -> dict[str, Any]:
    """What ``model`` was built with, as plain JSON: ``class``, ``arguments`` and ``built_with`` (versions).

    Raises `RebuildError` if the class does not record or an argument has no plain form.
    """
    return json.loads(_recorded_text(unwrap(model)))


def extract_config_mace_model(model: torch.nn.Module) -> dict[str, Any]:
    """All constructor keywords: ``type(model)(**keywords)`` has the architecture of ``model``."""
    return decode(recorded_config(model)["arguments"])


def rebuild(model: torch.nn.Module) -> torch.nn.Module:
    """A copy of ``model``, from its configuration and its state.

    No data, no statistics, no draw from the caller's random state. Same keys, bits, dtypes, device, training
    flag of every module and requires_grad of every parameter; no generated code. Raises `RebuildError` if the
    live model holds something that its configuration does not know: submodules, forward hooks, changed
    attributes. A model wrapped for distributed training is unwrapped first.
    """
    model = unwrap(model)
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    copy = _restored(json.loads(describe(model)), state)
    found = differences(model, copy)
    if found:
        shown = "; ".join(found[:5]) + (f"; and {len(found) - 5} more" if len(found) > 5 else "")
        raise RebuildError(
            f"{type(model).__name__} has changed since it was built, a copy would lose it: {shown}"
        )
    return copy


def extract_model(model: torch.nn.Module, map_location: str | torch.device = "cpu") -> torch.nn.Module:
    """A copy of ``model`` on another device; errors as for `rebuild`."""
    return rebuild(model).to(map_location)


def describe(model: torch.nn.Module) -> str:
    """All of ``model`` but its tensors, as JSON text: the record, what trains, what is frozen."""
    description = json.loads(_recorded_text(model))
    description["format"] = _FORMAT
    description["training"] = model.training
    description["training_differs"] = [
        name for name, part in own_modules(model) if part.training != model.training
    ]
    description["frozen"] = [
        name for name, parameter in model.named_parameters() if not parameter.requires_grad
    ]
    return json.dumps(description, allow_nan=False)


def restore_model(text: str, state: Mapping[str, torch.Tensor]) -> torch.nn.Module:
    """The model that ``text`` describes with the tensors of ``state``, on their device.

    The one function that a ``.model`` file names. Reads data only: classes and functions come from this
    package's allow-list. Raises `RebuildError` for anything unfit. Another e3nn version than the one that
    built the model is reported as a warning, before any number is computed.
    """
    description = _checked_description(text)
    if not isinstance(state, Mapping) or not all(
        isinstance(tensor, torch.Tensor) for tensor in state.values()
    ):
        raise RebuildError("a model's state is a dictionary of tensors, this file holds something else")
    _report_versions(description["built_with"])
    return _restored(description, dict(state))


def _checked_description(text: str) -> dict[str, Any]:
    try:
        description = json.loads(text)
        version = description["format"]
    except (TypeError, ValueError, KeyError):
        raise RebuildError("this is not the configuration of a model") from None
    if version != _FORMAT:
        raise RebuildError(
            f"the model has format {version}, this version reads format {_FORMAT}: please upgrade"
        )
    absent = {
        "class",
        "arguments",
        "built_with",
        "training",
        "training_differs",
        "frozen",
    } - description.keys()
    if absent:
        raise RebuildError(f"the configuration of the model lacks {sorted(absent)}")
    if not isinstance(description["arguments"], dict) or not isinstance(description["built_with"], dict):
        raise RebuildError("the arguments in the configuration of the model have no names")
    for key in ("training_differs", "frozen"):
        names = description[key]
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise RebuildError(f"{key} in the configuration of the model is not a list of names")
    return description


def _report_versions(recorded: dict[str, Any]) -> None:
    here = _built_with()
    for name in ("e3nn", "sign_of_wigner_3j_1_2_2"):
        if name in recorded and recorded[name] != here[name]:
            warnings.warn(
                f"the model was built with {name} {recorded[name]}, this is {here[name]}: "
                "its coupling tensors are taken from the file, so its results stay as they were",
                stacklevel=3,
            )


def adopt(
    class_name: str,
    arguments: Mapping[str, Any],
    state: Mapping[str, torch.Tensor],
    frozen: Sequence[str] = (),
) -> torch.nn.Module:
    """The model of another program: its class in this package, plain arguments, and weights.

    Constants that ``state`` lacks (coupling coefficients of e3nn, masks and empty tensors) are computed; what
    other versions write without need is left out. Weights come in ``state``'s dtypes and on its device;
    parameters named ``frozen`` do not train. Raises `RebuildError` if configuration and state do not belong
    together.
    """
    description = {
        "class": class_name,
        "arguments": encode(dict(arguments)),
        "built_with": {**_built_with(), "default_dtype": dtype_name(_float_dtype(state))},
        "training": False,
        "training_differs": [],
        "frozen": list(frozen),
    }
    model = _built(description, state, computes_constants=True)
    own = model.state_dict()
    constants = {name: tensor for name, tensor in own.items() if _is_constant(name, tensor)}
    _load(model, {**constants, **state}, strict_names=False)
    _set_flags(model, description)
    return model


def _float_dtype(state: Mapping[str, torch.Tensor]) -> torch.dtype:
    """The dtype of the first floating-point tensor; without any, torch's default."""
    floats = (tensor.dtype for tensor in state.values() if tensor.is_floating_point())
    return next(floats, torch.get_default_dtype())


def _is_constant(name: str, tensor: torch.Tensor) -> bool:
    """Whether a tensor of a state dict follows from the architecture alone."""
    last = name.rpartition(".")[2]
    return last.startswith("_w3j_") or last == "output_mask" or tensor.numel() == 0


def _restored(description: dict[str, Any], state: dict[str, torch.Tensor]) -> torch.nn.Module:
    model = _built(description, state)
    _load(model, state)
    _set_flags(model, description)
    return model


def _built(
    description: dict[str, Any], state: Mapping[str, torch.Tensor], computes_constants: bool = False
) -> torch.nn.Module:
    """A model with the described arguments, still without ``state``, and its record."""
    cls, arguments = model_class(description["class"]), decode(description["arguments"])
    with _undisturbed(description, computes_constants):
        try:
            _require_couplings(arguments.get("correlation"), state)
            model = cls(**arguments)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            # they come from a file: anything may stand in it
            raise RebuildError(
                f"{cls.__name__} cannot be built from its recorded arguments: {error}"
            ) from error
    record = {key: description[key] for key in ("class", "arguments", "built_with")}
    model.__dict__[_RECORD] = json.dumps(record, allow_nan=False)
    return model


def _require_couplings(correlation: Any, state: Mapping[str, torch.Tensor]) -> None:
    """Find a wrong order before its couplings are computed, which for a high one never ends: a ValueError."""
    for order in correlation if isinstance(correlation, (list, tuple)) else [correlation]:
        if isinstance(order, int) and not any(name.endswith(f".U_matrix_{order}") for name in state):
            raise ValueError(
                f"correlation is {correlation}, but the weights have no couplings of order {order}"
            )


@contextmanager
def _undisturbed(description: dict[str, Any], computes_constants: bool) -> Iterator[None]:
    """Build on the CPU without generated code and leave the process as it was.

    torch's default dtype is only touched for accelerated kernels, which fix the precision of their arithmetic
    when they are built, and where constants are computed that the state lacks; everything else gets its dtype
    from the state, so that other threads never see another default.
    """
    wanted = decode({"$dtype": description["built_with"]["default_dtype"]})
    kernels = description["arguments"].get("cueq_config") is not None
    with ExitStack() as stack:
        stack.enter_context(disable_e3nn_codegen())
        stack.enter_context(torch.random.fork_rng(devices=[]))
        stack.enter_context(torch.device("cpu"))
        if (kernels or computes_constants) and torch.get_default_dtype() != wanted:
            stack.callback(torch.set_default_dtype, torch.get_default_dtype())
            torch.set_default_dtype(wanted)
        yield


def _load(model: torch.nn.Module, state: dict[str, torch.Tensor], strict_names: bool = True) -> None:
    """Move ``model`` to the state's device and dtypes and load it, strictly.

    Without ``strict_names`` the model may drop what it knows to be of no use.
    """
    own = model.state_dict()
    if strict_names and own.keys() != state.keys():
        raise RebuildError(_unlike(own, state))
    devices = [tensor.device for tensor in state.values()]
    model.to(device=devices[0] if devices else None, dtype=_float_dtype(state))
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if name in state and tensor.dtype != state[name].dtype:
            tensor.data = tensor.data.to(state[name].dtype)
    try:
        model.load_state_dict(state, strict=True)
    except RuntimeError as error:
        raise RebuildError(_unlike(own, state)) from error


def _unlike(own: Mapping[str, torch.Tensor], state: Mapping[str, torch.Tensor]) -> str:
    missing, unknown = sorted(own.keys() - state.keys()), sorted(state.keys() - own.keys())
    reshaped = sorted(name for name in own.keys() & state.keys() if own[name].shape != state[name].shape)
    return (
        f"configuration and state do not belong together: {len(missing)} tensors missing {missing[:3]}, "
        f"{len(unknown)} unknown {unknown[:3]}, {len(reshaped)} of another shape {reshaped[:3]}"
    )


def _set_flags(model: torch.nn.Module, description: dict[str, Any]) -> None:
    model.train(description["training"])
    differs, frozen = set(description["training_differs"]), set(description["frozen"])
    for name, part in own_modules(model):
        if name in differs:
            part.training = not description["training"]
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name not in frozen)
