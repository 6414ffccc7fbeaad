"""Flags of ``mace_doctor``: those of ``mace_run_train``, and a few of its own."""

from __future__ import annotations

from dataclasses import replace

from mace.arguments.flags import ON, Flag, FlagGroup
from mace.arguments.limits import AT_LEAST_ONE, POSITIVE
from mace.arguments.train_flags import TRAIN

_CHANGED = {
    "--name": {"default": "doctor", "help": "name of the run to come"},
    "--model": {
        "choices": None,
        "later_values": None,
        "help": "architecture of the run to come, or a model file of any kind to look at",
    },
}
OWN = FlagGroup(
    "examination",
    (
        Flag("--model_file", str, None, "model file to look at, where --model names the architecture"),
        Flag("--json", ON, False, "findings as JSON on stdout"),
        Flag("--verbose", ON, False, "also say what is in order"),
        Flag("--group_patience", int, 30, "seconds for processes to find each other", limit=AT_LEAST_ONE),
        Flag("--model_megabytes", float, None, "size of the model to come, for the disk", limit=POSITIVE),
    ),
)


def _own(flag: Flag) -> Flag:
    return replace(flag, **_CHANGED.get(flag.name, {}))  # type: ignore[arg-type]


DOCTOR = (OWN, *(FlagGroup(group.title, tuple(map(_own, group.flags))) for group in TRAIN))
