"""Constructor arguments as plain JSON, and back again from an allow-list.

Plain means data only: numbers, strings, lists, and small tagged objects for irreps, classes, gates, arrays
and settings. Reading it never imports or calls what a text names, unless it is a class of this package or one
of the listed functions.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from e3nn import o3

_PACKAGE = __name__.partition(".")[0]
# The classes that a recorded configuration may build, by module.qualified_name; their decorator adds them.
MODEL_CLASSES: dict[str, type] = {}

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    f"{module.__name__}.{name}": getattr(module, name)
    for module, names in (
        (torch, ("abs", "tanh", "sigmoid", "relu")),
        (
            torch.nn.functional,
            (
                "silu",
                "tanh",
                "sigmoid",
                "relu",
                "gelu",
                "elu",
                "selu",
                "celu",
                "softplus",
                "mish",
                "leaky_relu",
            ),
        ),
    )
    for name in names
}


class RebuildError(RuntimeError):
    """A model cannot be rebuilt from its recorded configuration; one line says what stands in the way."""


def model_class(name: str) -> type:
    """The decorated class called ``name`` (module.qualified_name), imported only if it is in this package."""
    name = str(name)
    if name not in MODEL_CLASSES:
        _import_own(name)
    if name not in MODEL_CLASSES:
        raise RebuildError(f"{name!r} is not a model class of this package")
    return MODEL_CLASSES[name]


def model_class_called(name: str) -> str:
    """The full name of the model class whose last part is ``name``: classes move between modules."""
    importlib.import_module(f"{_PACKAGE}.modules")
    found = [full for full in MODEL_CLASSES if full.startswith(f"{_PACKAGE}.") and full.endswith(f".{name}")]
    if len(found) != 1:
        raise RebuildError(f"{name!r} is not a model class of this package")
    return found[0]


def name_of(cls: type) -> str:
    """Module and qualified name."""
    return f"{cls.__module__}.{cls.__qualname__}"


def _import_own(name: str) -> Any:
    """The class *defined* as ``name`` in this package; names that lead elsewhere by an import are refused."""
    module_name, _, attribute = name.rpartition(".")
    if module_name.partition(".")[0] != _PACKAGE:
        raise RebuildError(f"{name!r} lies outside the package {_PACKAGE!r}")
    try:
        found = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError):
        raise RebuildError(f"{name!r} does not exist in this version of {_PACKAGE}") from None
    if not isinstance(found, type) or name_of(found) != name:
        raise RebuildError(f"{name!r} is not a class of this package")
    return found


def encode(value: Any) -> Any:
    """``value`` as plain JSON. Raises `RebuildError` for a kind of value that has no plain form."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, np.generic):
        return {"$scalar": _encode_array(np.asarray(value))}
    if isinstance(value, (int, float)):
        return _encode_number(value)
    if isinstance(value, (o3.Irreps, o3.Irrep)):
        return {"$irreps" if isinstance(value, o3.Irreps) else "$irrep": str(value)}
    if isinstance(value, torch.Tensor):
        return {
            "$tensor": {
                "dtype": dtype_name(value.dtype),
                "shape": list(value.shape),
                "data": _encode_list(value.flatten().tolist()),
            }
        }
    if isinstance(value, np.ndarray):
        return {"$array": _encode_array(value)}
    if isinstance(value, torch.dtype):
        return {"$dtype": dtype_name(value)}
    if isinstance(value, (list, tuple)):
        return _encode_list(value) if isinstance(value, list) else {"$tuple": _encode_list(value)}
    if isinstance(value, dict):
        return _encode_dict(value)
    return _encode_named(value)


def _encode_number(value: int | float) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": repr(float(value))}
    return int(value) if isinstance(value, int) else float(value)


def _encode_list(values: Any) -> list[Any]:
    return [encode(value) for value in values]


def _encode_array(value: np.ndarray) -> dict[str, Any]:
    if value.dtype.kind not in "biuf":
        raise RebuildError(f"an array of {value.dtype}")
    return {
        "dtype": value.dtype.name,
        "shape": list(value.shape),
        "data": _encode_list(value.ravel().tolist()),
    }


def _encode_dict(value: dict[Any, Any]) -> Any:
    if all(isinstance(key, str) and not key.startswith("$") for key in value):
        return {key: encode(item) for key, item in value.items()}
    return {"$dict": [[encode(key), encode(item)] for key, item in value.items()]}


def _encode_named(value: Any) -> Any:
    for name, function in _FUNCTIONS.items():
        if value is function:
            return {"$function": name}
    if isinstance(value, type) and _is_own(value):
        return {"$class": name_of(value)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type) and _is_own(type(value)):
        fields = {field.name: encode(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {"$settings": name_of(type(value)), "fields": fields}
    raise RebuildError(f"{value!r:.80} ({name_of(type(value))})")


def _is_own(cls: type) -> bool:
    return (
        name_of(cls) in MODEL_CLASSES
        or cls.__module__.partition(".")[0] == _PACKAGE
        and "<locals>" not in cls.__qualname__
    )


def dtype_name(dtype: torch.dtype) -> str:
    """``float64`` for torch.float64."""
    return str(dtype).removeprefix("torch.")


def decode(value: Any) -> Any:
    """The value that `encode` wrote down. Raises `RebuildError` for anything that it cannot have written."""
    if isinstance(value, list):
        return [decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    tags = [key for key in value if key.startswith("$")]
    if not tags:
        return {key: decode(item) for key, item in value.items()}
    try:
        return _DECODERS[tags[0]](value[tags[0]], value)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RebuildError(
            f"{json.dumps(value):.80} is not a value that this version writes ({error})"
        ) from None


def readable(value: Any) -> Any:
    """Encoded ``value`` for other programs' eyes: names and nested lists in place of the tagged objects."""
    if isinstance(value, list):
        return [readable(item) for item in value]
    if not isinstance(value, dict):
        return value
    for tag in ("$float", "$irreps", "$irrep", "$dtype", "$function", "$class"):
        if tag in value:
            return value[tag]
    for tag in ("$scalar", "$tensor", "$array"):
        if tag in value:
            return np.array(readable(value[tag]["data"]), dtype=object).reshape(value[tag]["shape"]).tolist()
    if "$tuple" in value:
        return readable(value["$tuple"])
    if "$settings" in value:
        return readable(value["fields"])
    if "$dict" in value:
        return {str(readable(key)): readable(item) for key, item in value["$dict"]}
    return {key: readable(item) for key, item in value.items()}


def _decode_tensor(plain: dict[str, Any]) -> torch.Tensor:
    return torch.tensor(decode(plain["data"]), dtype=_decode_dtype(plain["dtype"])).reshape(plain["shape"])


def _decode_array(plain: dict[str, Any]) -> np.ndarray:
    dtype = np.dtype(plain["dtype"])
    if dtype.kind not in "biuf":
        raise ValueError(f"dtype {dtype}")
    return np.array(decode(plain["data"]), dtype=dtype).reshape(plain["shape"])


def _decode_dtype(name: str) -> torch.dtype:
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"no dtype {name!r}")
    return dtype


def _decode_class(name: str) -> type:
    cls = MODEL_CLASSES.get(str(name)) or _import_own(str(name))
    if not issubclass(cls, torch.nn.Module):
        raise ValueError("not a module class")
    return cls


def _decode_settings(name: str, plain: dict[str, Any]) -> Any:
    cls = _import_own(str(name))
    if not dataclasses.is_dataclass(cls):
        raise ValueError("not a settings class")
    return cls(**{field: decode(item) for field, item in plain["fields"].items()})


_DECODERS: dict[str, Callable[[Any, dict[str, Any]], Any]] = {
    "$float": lambda text, _: float(text),
    "$scalar": lambda plain, _: _decode_array(plain)[()],
    "$irreps": lambda text, _: o3.Irreps(text),
    "$irrep": lambda text, _: o3.Irrep(text),
    "$tensor": lambda plain, _: _decode_tensor(plain),
    "$array": lambda plain, _: _decode_array(plain),
    "$dtype": lambda name, _: _decode_dtype(name),
    "$tuple": lambda items, _: tuple(decode(items)),
    "$dict": lambda items, _: {decode(key): decode(item) for key, item in items},
    "$function": lambda name, _: _FUNCTIONS[name],
    "$class": lambda name, _: _decode_class(name),
    "$settings": _decode_settings,
}
