"""How a flag is declared: one row of a table, from which the parser, the help and the checks are made."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mace.arguments.limits import Limit
from mace.arguments.parsing import is_number, str2bool
from mace.exceptions import InputError

REQUIRED = object()  # in place of a default
ON = "store_true"  # in place of a type: the flag takes no value and turns something on
OFF = "store_false"


@dataclass(frozen=True)
class Flag:
    """One flag of a command.

    ``names`` are separated by blanks; the first one names the attribute unless ``dest`` does. ``limit`` is
    the range of a number. ``later`` says which part of the package, not built yet, the flag belongs to: any
    value but the default is then refused. ``later_values`` does the same for single values.
    """

    names: str
    kind: Callable[[str], Any] | str
    default: Any
    help: str
    choices: tuple[str, ...] | None = None
    limit: Limit | None = None
    dest: str | None = None
    nargs: str | None = None
    later: str | None = None
    later_values: Mapping[str, str] | None = None

    @property
    def name(self) -> str:
        """The flag as users write it."""
        return self.names.split()[0]

    @property
    def attribute(self) -> str:
        """Name of the value in the parsed namespace."""
        return self.dest or self.name.removeprefix("--")

    def add_to(self, group: argparse._ArgumentGroup) -> None:
        """Declare the flag in a group of a parser."""
        text = self.help.replace("%", "%%") + (" [not built yet]" if self.later else "")
        if self.later_values:
            text += f" [not built yet: {', '.join(self.later_values)}]"
        options: dict[str, Any] = {"help": text, "dest": self.attribute}
        if self.default is REQUIRED:
            options["required"] = True
        else:
            options["default"] = self.default
        if isinstance(self.kind, str):
            options["action"] = self.kind
        else:
            options |= {"type": self.kind, "choices": self.choices, "nargs": self.nargs}
            if self.kind is str2bool:
                options["metavar"] = "BOOL"
            if self.nargs == "?":
                options["const"] = True
        group.add_argument(*self.names.split(), **options)

    def read(self, value: Any, where: str) -> Any:
        """Convert and check a value that did not pass the parser, e.g. one of a mapping of heads.

        ``where`` says where it stands, for the ``InputError``.
        """
        if value is None and self.default is None:
            return None
        assert not isinstance(self.kind, str)
        if isinstance(value, str):
            try:
                value = self.kind(value)
            except (ValueError, argparse.ArgumentTypeError):
                raise InputError(f"{where} is {value!r}: {self._wanted()}") from None
        elif self.kind is float and is_number(value):
            value = float(value)
        elif not (self.kind is str2bool and isinstance(value, bool)):
            raise InputError(f"{where} is {value!r}: {self._wanted()}")
        self.check(value, where)
        return value

    def _wanted(self) -> str:
        if self.kind is float:
            return "it must be a finite number"
        return f"give a value as for {self.name}"

    def check(self, value: Any, where: str | None = None) -> None:
        """Raise ``InputError`` for a number out of range and for what is not built yet."""
        shown = where or self.name
        if self.limit and value is not None and not self.limit.admits(value):
            raise InputError(f"{shown} is {value}: it must be {self.limit.text}")
        reason = self.later if self.later and value != self.default else None
        if reason is not None:
            default = "" if self.default in (None, REQUIRED, value) else f" (default {self.default!r})"
            raise InputError(f"{shown}={value} is not built yet ({reason}): leave it out{default}")
        later = self.later_values or {}
        if isinstance(value, str) and value in later:
            built = [choice for choice in self.choices or () if choice not in later]
            advice = f"choose one of {', '.join(built)}" if built else "leave it out"
            raise InputError(f"{shown}={value} is not built yet ({later[value]}): {advice}")


@dataclass(frozen=True)
class FlagGroup:
    """Flags under one heading of the help."""

    title: str
    flags: tuple[Flag, ...]


def add_groups(parser: argparse.ArgumentParser, groups: Iterable[FlagGroup]) -> None:
    """Declare every flag of the groups in the parser."""
    for table in groups:
        group = parser.add_argument_group(table.title)
        for flag in table.flags:
            flag.add_to(group)


def check_values(args: argparse.Namespace, groups: Iterable[FlagGroup]) -> None:
    """Raise ``InputError`` for the first value out of range or not built yet."""
    for table in groups:
        for flag in table.flags:
            flag.check(getattr(args, flag.attribute))
