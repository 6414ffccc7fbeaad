"""Writing models: checked against the trained model, read back, and only then given their final name.

A run ends with files that are whole and compute what was trained, or with an error that every rank hears.
"""

from __future__ import annotations

import io
import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

import e3nn.util.jit
import torch
from torch.jit.frontend import FrontendError

from mace.exceptions import InputError, RunError
from mace.tools.files import atomic_save, atomic_write
from mace.tools.plain import readable
from mace.tools.rebuild import describe, rebuild, recorded_config, unwrap
from mace.tools.same import differences, same_bits

_Result = TypeVar("_Result")
_Batch = Mapping[str, torch.Tensor]

# Largest deviation of an output, relative to its magnitude or to 1 eV, 1 eV/Angstrom, 1 V, 1 Debye where that
# is larger. The same arithmetic in another order of summation moves float64 by 1e-14 and float32 by 3e-7;
# other kernels move float32 further.
_TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}
_TOLERANCE_CONVERTED = {torch.float64: 1e-10, torch.float32: 1e-4}
_COMPARED = ("energy", "forces", "potential", "dipole")


class SaveError(RunError):
    """A file could not be written as it should be: one line with file, cause and largest deviation."""


class _Ranks(Protocol):
    @property
    def is_main(self) -> bool: ...

    def broadcast(self, obj: Any) -> Any: ...


def told_to_all(ranks: _Ranks, action: Callable[[], _Result]) -> _Result | None:
    """Run ``action`` on the main rank while the others wait; what it could not write is everybody's failure.

    Returns the result on the main rank and None elsewhere, after all ranks have met once. Raises `SaveError`
    with the same line on every rank if the action raised an error that one line explains: of the system, of
    the run or of the user's. Any other ends the main rank at once, with its traceback: the others lose
    contact.
    """
    result, failure = None, None
    if ranks.is_main:
        try:
            result = action()
        except (OSError, RunError, InputError) as error:
            failure = error
    told = ranks.broadcast(None if failure is None else _one_line(failure))
    if told is not None:
        raise SaveError(told) from failure
    return result


def save_model(
    copy: torch.nn.Module,
    path: str | os.PathLike[str],
    *,
    live: torch.nn.Module | None = None,
    probe: _Batch | None = None,
    device: str | torch.device = "cpu",
) -> None:
    """Write ``copy`` as a ``.model`` file, for the CPU unless told otherwise, whatever device it is on.

    The file is read back before it gets its final name and must be ``copy`` to the bit. With ``live``, the
    trained model, it must also be that model: to the bit, or by its outputs alone if ``copy`` is a
    conversion; with ``probe``, a batch as a dictionary of tensors, energy, forces, Fermi level and dipole
    must agree. Raises `SaveError`.
    """
    with _errors_name(path):
        place = torch.device(device)
        stored = copy if _device(copy).type == place.type else rebuild(copy).to(place)

        def check(temporary: Path) -> None:
            written = torch.load(temporary, map_location=place, weights_only=False)
            found = differences(stored, written)
            if found:
                raise SaveError(f"reading it back gives another model: {'; '.join(found[:3])}")
            check_copy(copy if live is None else live, written, probe)

        atomic_save(stored, path, check)


def save_compiled(
    copy: torch.nn.Module,
    path: str | os.PathLike[str],
    *,
    live: torch.nn.Module | None = None,
    probe: _Batch | None = None,
    extra_files: Mapping[str, str] | None = None,
) -> bool:
    """Write ``copy`` as a TorchScript archive for the CPU.

    It must compute what ``live`` (or ``copy``) computes on ``probe``. Beside ``extra_files`` the archive
    holds ``config.yaml``, the constructor keywords as readable JSON, and ``config.json``, the exact record
    that a model can be rebuilt from. Returns whether it was written: a model that cannot be exported costs
    one warning that names file and reason, never the run. A file that cannot be written is a `SaveError`.
    """
    reference = unwrap(copy if live is None else live)

    def check(temporary: Path) -> None:
        if probe is not None:
            exported = torch.jit.load(str(temporary), map_location="cpu")
            _check_outputs(reference, exported, probe, _tolerance(reference, copy))

    with _errors_name(path):
        try:
            archive = _archive(copy, extra_files or {})
            atomic_write(path, lambda file: file.write(archive.getbuffer()), check)
        except (RuntimeError, torch.jit.Error) as error:
            logging.warning("TorchScript export failed: %s was not written: %s", path, _one_line(error))
            return False
    return True


def _archive_record(copy: torch.nn.Module) -> str:
    """The description of ``copy`` and the names of its state: archives hold derived tensors as well."""
    return json.dumps({**json.loads(describe(copy)), "state": list(copy.state_dict())}, allow_nan=False)


def check_copy(live: torch.nn.Module, copy: torch.nn.Module, probe: _Batch | None) -> float:
    """Largest relative deviation of ``copy``'s outputs from those of ``live`` on ``probe`` (0 without one).

    Raises `SaveError` if they are not the same model. Models of one configuration must also have the same
    state to the bit; a conversion between kernels lays its weights out differently and is compared by its
    outputs.
    """
    live = unwrap(live)
    if not _converted(live, copy):
        ours, theirs = copy.state_dict(), live.state_dict()
        changed = sorted(
            n
            for n in ours.keys() | theirs.keys()
            if n not in ours or n not in theirs or not same_bits(ours[n], theirs[n])
        )
        if changed:
            raise SaveError(
                f"the copy is not the trained model: {len(changed)} tensors differ, {changed[:3]} among them"
            )
    if probe is None:
        return 0.0
    return _check_outputs(live, copy, probe, _tolerance(live, copy))


def _converted(live: torch.nn.Module, copy: torch.nn.Module) -> bool:
    """Whether ``copy`` is ``live`` for other kernels."""
    return recorded_config(live)["arguments"] != recorded_config(copy)["arguments"]


def _tolerance(live: torch.nn.Module, copy: torch.nn.Module) -> Mapping[torch.dtype, float]:
    return _TOLERANCE_CONVERTED if _converted(live, copy) else _TOLERANCE


def _check_outputs(
    reference: torch.nn.Module,
    candidate: torch.nn.Module,
    probe: _Batch,
    tolerance: Mapping[torch.dtype, float],
) -> float:
    expected, found = _outputs(reference, probe), _outputs(candidate, probe)
    allowed = tolerance[_dtype(reference)]
    deviations = {
        name: _deviation(found.get(name), expected[name])
        for name in _COMPARED
        if isinstance(expected.get(name), torch.Tensor)
    }
    worst = max(deviations, key=lambda name: deviations[name])
    if not deviations[worst] <= allowed:
        raise SaveError(
            "the copy does not compute what the trained model computes: the largest deviation is "
            f"{deviations[worst]:.1e} in the {worst}, {allowed:.0e} is allowed"
        )
    return deviations[worst]


def _outputs(model: torch.nn.Module, probe: _Batch) -> dict[str, torch.Tensor]:
    """What ``model`` makes of ``probe``, which stays untouched; its floats are given the model's dtype."""
    device, dtype = _device(model), _dtype(model)
    batch = {
        name: tensor.detach().to(device, dtype if tensor.is_floating_point() else None, copy=True)
        for name, tensor in probe.items()
        if isinstance(tensor, torch.Tensor)
    }
    with torch.enable_grad():
        return model(batch)


def _deviation(found: torch.Tensor | None, expected: torch.Tensor) -> float:
    if not isinstance(found, torch.Tensor) or found.shape != expected.shape:
        return float("inf")
    a, b = found.detach().cpu().double(), expected.detach().cpu().double()
    apart = torch.where((a == b) | (a.isnan() & b.isnan()), torch.zeros_like(a), (a - b).abs()).nan_to_num(
        nan=float("inf")
    )
    scale = b[b.isfinite()].abs().max().clamp(min=1.0) if b.isfinite().any() else 1.0
    return float(apart.max() / scale) if apart.numel() else 0.0


def _archive(copy: torch.nn.Module, extra_files: Mapping[str, str]) -> io.BytesIO:
    """The bytes of the TorchScript archive."""
    keywords = readable(recorded_config(copy)["arguments"])
    extra = {
        **extra_files,
        "config.yaml": json.dumps(keywords, allow_nan=False),
        "config.json": _archive_record(copy),
    }
    buffer = io.BytesIO()
    torch.jit.save(scripted(copy), buffer, _extra_files=extra)
    return buffer


def scripted(copy: torch.nn.Module) -> torch.nn.Module:
    """TorchScript of a rebuilt copy: e3nn's compiler replaces the submodules of what it is given."""
    try:
        return e3nn.util.jit.compile(rebuild(copy).to("cpu"))
    except (
        FrontendError,
        AttributeError,
        TypeError,
    ) as error:  # what the scripting of unfit Python raises, beside RuntimeError
        raise SaveError(f"{type(copy).__name__} cannot be scripted: {_one_line(error)}") from error


def _device(model: torch.nn.Module) -> torch.device:
    return next(iter([*model.parameters(), *model.buffers()])).device


def _dtype(model: torch.nn.Module) -> torch.dtype:
    return next(
        tensor.dtype for tensor in [*model.parameters(), *model.buffers()] if tensor.is_floating_point()
    )


@contextmanager
def _errors_name(path: str | os.PathLike[str]) -> Iterator[None]:
    try:
        yield
    except (RuntimeError, OSError, torch.jit.Error) as error:
        raise SaveError(f"{os.fspath(path)} was not written: {_one_line(error)}") from error


def _one_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else "no reason given"
    return text if isinstance(error, (InputError, RunError)) else f"{type(error).__name__}: {text}"
