"""Whole models that MACE or CP-MACE pickled, read without running anything that the file names.

Everything a pickle can call is replaced by an inert `Record`, a class of its own for each name and file, that
remembers what it was called with and set to. Names that no model of MACE has are refused. Tensors are read
from their storages afterwards, and generated code (graphs of torch.fx, TorchScript) is left where it is.
"""

from __future__ import annotations

import io
import pickle
import sys
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import torch

_MISSING = object()
_NAMES: dict[str, str] = {
    "mace.modules.models": "MACE ScaleShiftMACE AtomicDipolesMACE EnergyDipolesMACE MLP GatedMLP",
    "mace.modules.blocks": "AtomicEnergiesBlock EquivariantProductBasisBlock LinearDipoleReadoutBlock "
    "LinearNodeEmbeddingBlock LinearReadoutBlock NonLinearDipoleReadoutBlock NonLinearReadoutBlock "
    "RadialEmbeddingBlock ScaleShiftBlock "
    "RealAgnosticAttResidualInteractionBlock RealAgnosticDensityInteractionBlock "
    "RealAgnosticDensityResidualInteractionBlock RealAgnosticInteractionBlock "
    "RealAgnosticResidualInteractionBlock",
    "mace.modules.gate": "GatedEquivariantBlock",
    "mace.modules.radial": "AgnesiTransform BesselBasis ChebychevBasis GaussianBasis PolynomialCutoff "
    "SoftTransform ZBLBasis",
    "mace.modules.irreps_tools": "reshape_irreps",
    "mace.modules.symmetric_contraction": "Contraction SymmetricContraction",
    "e3nn.math._normalize_activation": "normalize2mom",
    "e3nn.nn._activation": "Activation",
    "e3nn.nn._extract": "Extract",
    "e3nn.nn._fc": "FullyConnectedNet _Layer",
    "e3nn.nn._gate": "Gate _Sortcut",
    "e3nn.o3._irreps": "Irrep Irreps _MulIr",
    "e3nn.o3._linear": "Instruction Linear LinearSlices",
    "e3nn.o3._spherical_harmonics": "SphericalHarmonics _spherical_harmonics",
    "e3nn.o3._tensor_product._instruction": "Instruction",
    "e3nn.o3._tensor_product._sub": "ElementwiseTensorProduct FullyConnectedTensorProduct",
    "e3nn.o3._tensor_product._tensor_product": "TensorProduct",
    "torch": "BFloat16Storage BoolStorage ByteStorage CharStorage DoubleStorage FloatStorage HalfStorage "
    "IntStorage LongStorage ShortStorage Size abs bfloat16 bool float16 float32 float64 int32 int64 tanh",
    "torch._C": "_VariableFunctionsClass",
    "torch._C._nn": "silu",
    "torch._utils": "_rebuild_parameter _rebuild_tensor_v2",
    "torch.fx._symbolic_trace": "Tracer",
    "torch.fx.graph": "CodeGen",
    "torch.fx.graph_module": "reduce_graph_module",
    "torch.nn.functional": "relu sigmoid silu tanh",
    "torch.nn.modules.activation": "ReLU SiLU Sigmoid",
    "torch.nn.modules.container": "ModuleList ParameterList Sequential",
    "torch.nn.modules.linear": "Identity Linear",
    "_codecs": "encode",
    "builtins": "getattr set slice",
    "collections": "OrderedDict",
    "numpy": "dtype ndarray",
    "numpy.core.multiarray": "_reconstruct scalar",
    "numpy._core.multiarray": "_reconstruct scalar",
}
_ALLOWED = frozenset(f"{module}.{name}" for module, names in _NAMES.items() for name in names.split())
_STORAGES = {
    "torch.DoubleStorage": torch.float64,
    "torch.FloatStorage": torch.float32,
    "torch.HalfStorage": torch.float16,
    "torch.BFloat16Storage": torch.bfloat16,
    "torch.LongStorage": torch.int64,
    "torch.IntStorage": torch.int32,
    "torch.ShortStorage": torch.int16,
    "torch.CharStorage": torch.int8,
    "torch.ByteStorage": torch.uint8,
    "torch.BoolStorage": torch.bool,
}
_GENERATED = "torch.fx."
_SCRIPTED = "__torch__."  # classes of TorchScript: the names of attributes, nothing else


class NoObject(pickle.UnpicklingError):
    """A pickle holds a dictionary, a list or the like, which may have objects in it."""


class Record:
    """One call or instance that a pickle describes: nothing but the notes of what was to be done.

    ``args`` are the arguments, ``state`` what was to be set, ``items`` what was to be put in.
    """

    __slots__ = ("args", "items", "state")
    name = ""

    def __new__(cls, *args: Any, **_: Any) -> Record:
        """Note the arguments; they may be anything, and do nothing."""
        record = super().__new__(cls)
        record.args, record.state, record.items = args, None, []
        return record

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __setitem__(self, key: Any, value: Any) -> None:
        self.items.append((key, value))


def _nothing_more(_: str) -> bool:
    return False


class _Unpickler(pickle.Unpickler):
    """Builds nothing but records, strings, numbers, lists, tuples, sets and dictionaries."""

    def __init__(self, contents: bytes, further: Callable[[str], bool] = _nothing_more) -> None:
        super().__init__(io.BytesIO(contents))
        self._further = further
        self._kinds: dict[str, type[Record]] = {}

    def find_class(self, module: str, name: str) -> type[Record]:
        """The stand-in for a name, or pickle.UnpicklingError."""
        module = "builtins" if module == "__builtin__" else module
        full = f"{module}.{name}"
        if module.startswith("cuequivariance") or full.endswith(".CuEquivarianceConfig"):
            raise pickle.UnpicklingError(
                "cuEquivariance evaluates it: convert it with the program that made it (mace_cueq_to_e3nn), "
                "then read the result"
            )
        if full not in _ALLOWED and not self._further(full):
            raise pickle.UnpicklingError(f"it names {full}, which is refused: no known model consists of it")
        return self._kind(full)

    def persistent_load(self, pid: Any) -> Record:
        """The note of a storage: dtype, key, number of elements."""
        match pid:
            case ("storage", type() as kind, str() as key, str(), int() as count) if issubclass(kind, Record):
                if kind.name in _STORAGES:
                    return self._kind("storage")(_STORAGES[kind.name], key, count)
        raise pickle.UnpicklingError("it refers to something that is not a storage of numbers")

    def _kind(self, full: str) -> type[Record]:
        # A class of its own per file: whatever a pickle does to it ends with the reading of that file.
        if full not in self._kinds:
            self._kinds[full] = type(Record)(full, (Record,), {"__slots__": (), "name": full})
        return self._kinds[full]


class _Tensors:
    """The tensors of one archive, each storage read once."""

    def __init__(self, archive: zipfile.ZipFile, prefix: str) -> None:
        self._archive, self._prefix = archive, prefix
        self._storages: dict[str, torch.Tensor] = {}
        order = f"{prefix}/byteorder"
        if order in archive.namelist() and archive.read(order).decode() != sys.byteorder:
            raise pickle.UnpicklingError("its numbers have another byte order than this machine's")

    def _storage(self, record: Record) -> torch.Tensor:
        dtype, key, count = record.args
        if key not in self._storages:
            raw = bytearray(self._archive.read(f"{self._prefix}/data/{key}"))
            if len(raw) != count * dtype.itemsize:
                raise pickle.UnpicklingError(f"its storage {key} holds {len(raw)} bytes, not {count} numbers")
            self._storages[key] = torch.frombuffer(raw, dtype=dtype) if raw else torch.empty(0, dtype=dtype)
        return self._storages[key]

    def read(self, record: Any) -> tuple[torch.Tensor, bool]:
        """A tensor or parameter, and whether it requires a gradient."""
        match _call(record):
            case "torch._utils._rebuild_parameter", (data, bool() as trains, *_):
                return self.read(data)[0], trains
            case "torch._utils._rebuild_tensor_v2", (Record() as store, int() as offset, size, stride, *_):
                if store.name == "storage":
                    size, stride = _sizes(size), _sizes(stride)
                    return torch.as_strided(self._storage(store), size, stride, offset).clone(), False
        raise pickle.UnpicklingError("one of its tensors is stored in a form that is not known")


def _sizes(value: Any) -> tuple[int, ...]:
    sizes = _call(value)[1][0] if isinstance(value, Record) and value.name == "torch.Size" else value
    if not isinstance(sizes, tuple) or not all(isinstance(size, int) for size in sizes):
        raise pickle.UnpicklingError("one of its tensors has sizes that are no numbers")
    return sizes


def _call(value: Any) -> tuple[str, tuple[Any, ...]]:
    return (value.name, value.args) if isinstance(value, Record) else ("", ())


def _as_dict(value: Any) -> dict[Any, Any]:
    if isinstance(value, Record) and value.name == "collections.OrderedDict":
        return dict(value.items)
    return value if isinstance(value, dict) else {}


class PickledModule:
    """A module of a pickled model: class, attributes, tensors, children.

    Args:
        record: what the pickle says of it.
        tensors: the numbers of the same file.
        path: its name in the model.
    """

    def __init__(self, record: Record, tensors: _Tensors, path: str = "") -> None:
        self._record, self._tensors, self.path = record, tensors, path
        self._state = _as_dict(record.state)
        self._children = _as_dict(self._state.get("_modules"))

    @property
    def kind(self) -> str:
        """The full name of the class, as ``mace.modules.blocks.ScaleShiftBlock``."""
        return self._record.name

    @property
    def class_name(self) -> str:
        """The last part of it."""
        return self.kind.rpartition(".")[2]

    @property
    def is_model(self) -> bool:
        """Whether it is a whole model of MACE or CP-MACE."""
        return self.kind.startswith("mace.modules.models.")

    def arguments(self) -> list[Any]:
        """What it was called with: texts, and dictionaries of tensors. Raises pickle.UnpicklingError."""
        return [
            argument
            if isinstance(argument, str)
            else {str(name): self._tensors.read(value)[0] for name, value in _as_dict(argument).items()}
            for argument in self._record.args
        ]

    def alone(self) -> PickledModule:
        """The same module, its tensors named from here on, not from the root of the file."""
        return PickledModule(self._record, self._tensors)

    def children(self) -> dict[str, PickledModule]:
        """Submodules by name, without generated code and empty places."""
        return {
            str(name): PickledModule(child, self._tensors, f"{self.path}{name}.")
            for name, child in self._children.items()
            if isinstance(child, Record) and not child.name.startswith(_GENERATED)
        }

    def __contains__(self, name: str) -> bool:
        return name in self._children

    def __getitem__(self, path: str) -> PickledModule:
        """The submodule at a dotted path. Raises pickle.UnpicklingError if there is none."""
        first, _, rest = path.partition(".")
        child = self.children().get(first)
        if child is None:
            raise pickle.UnpicklingError(f"its part {self.path}{first} is missing")
        return child[rest] if rest else child

    def attribute(self, name: str, default: Any = _MISSING) -> Any:
        """A plain attribute as `plain` gives it. Raises pickle.UnpicklingError where there is none."""
        value = self._state.get(name, default)
        if value is _MISSING:
            raise pickle.UnpicklingError(f"its part {self.path or 'model '}lacks the attribute {name}")
        return plain(value)

    def _own(self) -> Iterator[tuple[str, Any]]:
        hidden = plain(self._state.get("_non_persistent_buffers_set", ()))
        yield from _as_dict(self._state.get("_parameters")).items()
        for name, value in _as_dict(self._state.get("_buffers")).items():
            if name not in hidden:
                yield name, value

    def tensor(self, name: str) -> torch.Tensor:
        """A parameter or buffer of this module. Raises pickle.UnpicklingError if there is none."""
        found = dict(self._own()).get(name)
        if found is None:
            raise pickle.UnpicklingError(f"its tensor {self.path}{name} is missing")
        return self._tensors.read(found)[0]

    def _tensors_within(self) -> Iterator[tuple[str, torch.Tensor, bool]]:
        for name, value in self._own():
            if value is not None:
                yield f"{self.path}{name}", *self._tensors.read(value)
        for child in self.children().values():
            yield from child._tensors_within()
        for name, code in _as_dict(self._state.get("__codegen__")).items():
            yield from _constants(f"{self.path}{name}.", _as_bytes(code))

    def state(self) -> tuple[dict[str, torch.Tensor], list[str]]:
        """State dict of this module, generated code left out, and names of what needs no gradient."""
        found = list(self._tensors_within())
        return {name: tensor for name, tensor, _ in found}, [name for name, _, trains in found if not trains]


def _constants(path: str, code: bytes | None) -> Iterator[tuple[str, torch.Tensor, bool]]:
    """The tensors of a TorchScript module that is stored as the bytes of its archive; it is not compiled."""
    if code is None or not code.startswith(b"PK"):
        return
    with zipfile.ZipFile(io.BytesIO(code)) as archive:
        prefix = folder_in(archive)
        root = _loaded(archive, prefix, _is_scripted)
        tensors = _Tensors(archive, prefix)
        for name, value in _as_dict(root.state if isinstance(root, Record) else None).items():
            if _call(value)[0] == "torch._utils._rebuild_tensor_v2":
                yield f"{path}{name}", *tensors.read(value)


def _as_bytes(value: Any) -> bytes | None:
    """Bytes, which protocol 2 writes as text; None for what is no such thing."""
    match _call(value):
        case "_codecs.encode", (str() as text, *_):
            return text.encode("latin1", errors="replace")
    return value if isinstance(value, bytes) else None


def folder_in(archive: zipfile.ZipFile) -> str:
    """The name of the folder that torch puts everything of an archive into."""
    return next(iter(archive.namelist()), "").partition("/")[0]


def _is_scripted(full: str) -> bool:
    return full.startswith((_SCRIPTED, "torch.jit._pickle."))


def _loaded(archive: zipfile.ZipFile, prefix: str, further: Callable[[str], bool]) -> Any:
    try:
        return _Unpickler(archive.read(f"{prefix}/data.pkl"), further).load()
    except (TypeError, AttributeError, IndexError, ImportError) as error:  # of a malformed pickle
        raise pickle.UnpicklingError(f"its pickle is malformed ({error})") from error


def plain(value: Any) -> Any:
    """What an attribute says, as None, numbers, strings and lists.

    Irreps become text, functions and classes their full names, numpy's numbers Python's. Raises
    pickle.UnpicklingError for anything else.
    """
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, type) and issubclass(value, Record):
        return value.name
    match _call(value):
        case "e3nn.o3._irreps.Irreps", (blocks,):
            return "+".join(_block(block) for block in blocks)
        case "builtins.set", (items,):
            return plain(items)
        case "builtins.getattr", (type() as owner, str() as name):
            return f"{plain(owner)}.{name}"
        case (("numpy.core.multiarray.scalar" | "numpy._core.multiarray.scalar"), (dtype, raw)):
            return _number(dtype, raw)
    raise pickle.UnpicklingError("one of its attributes is of a kind that is not known")


def _block(block: Any) -> str:
    """``16x1o`` for the records of a multiplicity and an irrep."""
    match _call(block):
        case "e3nn.o3._irreps._MulIr", ((int() as mul, irrep),):
            match _call(irrep):
                case "e3nn.o3._irreps.Irrep", ((int() as degree, int() as parity),):
                    return f"{mul}x{degree}{'e' if parity == 1 else 'o'}"
    raise pickle.UnpicklingError("its irreps are of a form that is not known")


def _number(dtype: Any, raw: Any) -> float | int:
    """A scalar of numpy from its eight bytes or fewer."""
    name, arguments = _call(dtype)
    form = {"f8": torch.float64, "f4": torch.float32, "i8": torch.int64, "i4": torch.int32}.get(
        arguments[0] if name == "numpy.dtype" and arguments else ""
    )
    raw = _as_bytes(raw)
    if form is None or raw is None or len(raw) != form.itemsize:
        raise pickle.UnpicklingError("one of its numbers is of a kind that is not known")
    return torch.frombuffer(bytearray(raw), dtype=form).item()


def read_pickled_module(
    archive: zipfile.ZipFile, further: Callable[[str], bool] = _nothing_more
) -> PickledModule:
    """Whatever object is the whole of a zip archive of `torch.save`, as records.

    Args:
        archive: the open archive; tensors are read from it as they are asked for.
        further: full names that may stand in the pickle besides those of MACE's models.

    Raises:
        NoObject: the whole is a dictionary, a list or the like.
        pickle.UnpicklingError: the pickle names something foreign.
    """
    prefix = folder_in(archive)
    root = _loaded(archive, prefix, further)
    if not isinstance(root, Record):
        raise NoObject(f"it holds a {type(root).__name__}, not a model")
    return PickledModule(root, _Tensors(archive, prefix))


def read_pickled_model(archive: zipfile.ZipFile) -> PickledModule:
    """The model in a zip archive of `torch.save`, as records; see `read_pickled_module`.

    Raises:
        pickle.UnpicklingError: the pickle names something foreign, or does not hold a model.
    """
    found = read_pickled_module(archive)
    if not found.is_model:
        raise pickle.UnpicklingError(f"it holds a {found.kind}, not a model")
    return found
