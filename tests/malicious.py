"""Pickles that would create a file if anything in them ran, in every disguise that we know of."""

from __future__ import annotations

import contextlib
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path


def _text(value: str) -> bytes:
    raw = value.encode()
    return b"X" + len(raw).to_bytes(4, "little") + raw


def _call(name: str, argument: str) -> bytes:
    module, _, function = name.rpartition(".")
    return f"c{module}\n{function}\n".encode() + _text(argument) + b"\x85R"


def _system(bait: Path) -> bytes:
    return _call("posix.system", f"touch {bait}")


def _open(bait: Path) -> str:
    return f"open({str(bait)!r}, 'w').close()"


def _within(evil: bytes) -> bytes:
    """As a submodule of an allowed class."""
    model = b"cmace.modules.models\nScaleShiftMACE\n)\x81}X\x08\x00\x00\x00_modules}" + _text("products")
    return model + evil + b"ssb"


def _by_build(evil: bytes) -> bytes:
    """Set as the __setstate__ of an allowed object, which a second BUILD would call."""
    model = b"cmace.modules.models\nScaleShiftMACE\n)\x81}" + _text("__setstate__")
    return model + evil + b"sb" + _text("argument") + b"b"


def _memoised(bait: Path) -> bytes:
    """Module and function come out of the memo, behind strings that look harmless."""
    names = _text("posix") + b"q\x00" + _text("system") + b"q\x01" + _text("torch") + _text("Size") + b"0000"
    return names + b"h\x00h\x01\x93" + _text(f"touch {bait}") + b"\x85R"


def _by_getattr(bait: Path) -> bytes:
    """An attribute of something allowed, called."""
    owner = b"c__builtin__\ngetattr\nctorch._C\n_VariableFunctionsClass\n" + _text("__init__") + b"\x86R"
    return owner + _text(str(bait)) + b"\x85R"


def _whole(function: bytes) -> bytes:
    return b"\x80\x02" + function + b"."


PICKLES: dict[str, Callable[[Path], bytes]] = {
    "system": lambda bait: _whole(_system(bait)),
    "exec": lambda bait: _whole(_call("builtins.exec", _open(bait))),
    "exec by its old name": lambda bait: _whole(_call("__builtin__.eval", _open(bait))),
    "instance": lambda bait: _whole(b"(" + _text(f"touch {bait}") + b"iposix\nsystem\n"),
    "within a model": lambda bait: _whole(_within(_system(bait))),
    "as __setstate__": lambda bait: _whole(_by_build(b"cposix\nsystem\n")),
    "memoised": lambda bait: b"\x80\x04" + _memoised(bait) + b".",
    "memoised within a model": lambda bait: b"\x80\x04" + _within(_memoised(bait)) + b".",
    "getattr": lambda bait: _whole(_within(_by_getattr(bait))),
    "a loader of torch": lambda bait: _whole(_call("torch.serialization.load", str(bait))),
    "a loader within a model": lambda bait: _whole(
        _within(_call("torch.storage._load_from_bytes", _open(bait)))
    ),
    "a compiler": lambda bait: _whole(_within(_call("torch.fx.graph_module._exec_with_source", _open(bait)))),
    "beside our function": lambda bait: _whole(
        b"(cmace.tools.rebuild\nrestore_model\n0" + _system(bait) + b"t"
    ),
    "in a checkpoint": lambda bait: _whole(b"}" + _text("model") + _system(bait) + b"s"),
}


def write(path: Path, disguise: str, bait: Path, zipped: bool = True) -> None:
    """Write a malicious file: the archive that torch writes around a pickle, or the pickle alone."""
    contents = PICKLES[disguise](bait)
    if not zipped:
        path.write_bytes(contents)
        return
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", contents)
        archive.writestr("archive/byteorder", "little")
        archive.writestr("archive/version", "3\n")


def runs(disguise: str, bait: Path) -> bool:
    """Whether the pickle does create the file when Python's own reader takes it."""
    with contextlib.suppress(Exception):  # whatever happens once the file is there
        pickle.loads(PICKLES[disguise](bait))
    return bait.exists()
