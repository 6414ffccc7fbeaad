"""The folder `patches/`: the series, the patches with their headers, and where the base tree comes from."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from patchstack.apply import Misfit, apply, unapply
from patchstack.errors import Misuse, Refused
from patchstack.hunks import FileDiff, parse_diff, split_lines, starts_diff
from patchstack.render import render
from patchstack.trees import File, Tree

PATCHES = "patches"
SERIES = f"{PATCHES}/series"
UPSTREAM = f"{PATCHES}/upstream.toml"
NAME = re.compile(r"(\d{4})-[a-z0-9]+(?:-[a-z0-9]+)*")
FIELDS = ("Description", "Origin", "Forwarded", "Last-Update", "Reports", "Tests")
FIELD_LINE = re.compile(r"([A-Z][A-Za-z-]*):(.*)")
TOML_LINE = re.compile(r'([a-z]+) *= *(?:"([^"\\]*)"|(\d+))')
FORMAT = "1"


@dataclass(frozen=True)
class Upstream:
    """Provenance of the base tree, as `patches/upstream.toml` records it."""

    source: str  # where the base comes from
    version: str
    tree: str  # hash of the base's files, see `trees.tree_hash`
    date: str  # when the base last changed, ISO
    format: str = FORMAT

    @classmethod
    def parse(cls, text: str) -> Upstream:
        """Read the file; it is TOML, of which it uses lines `key = "text"` and `key = number` only."""
        values = {}
        for number, line in enumerate(text.splitlines(), 1):
            if not line.strip() or line.startswith("#"):
                continue
            match = TOML_LINE.fullmatch(line.strip())
            if not match:
                raise Refused(f'{UPSTREAM}: line {number} is not `key = "text"` or `key = number`: {line!r}')
            values[match[1]] = match[3] if match[2] is None else match[2]
        missing = sorted({"source", "version", "tree", "date", "format"} - values.keys())
        if missing:
            raise Refused(f"{UPSTREAM}: {', '.join(missing)} missing")
        if values["format"] != FORMAT:
            raise Refused(
                f"{UPSTREAM}: format {values['format']} is not known to this tool, which writes {FORMAT}"
            )
        return cls(**{name: values[name] for name in ("source", "version", "tree", "date", "format")})

    def text(self) -> str:
        """Write the file."""
        return (
            "# The base: mace/ with every patch of the series taken back. Written by scripts/patches.\n"
            "# tree: sha256 over the lines `MODE SHA256-OF-THE-BYTES PATH` of all files, sorted by path.\n"
            f"format = {self.format}\n"
            f'source = "{self.source}"\n'
            f'version = "{self.version}"\n'
            f'tree = "{self.tree}"\n'
            f'date = "{self.date}"\n'
        )


@dataclass(frozen=True)
class Patch:
    """One patch: its name without `.patch`, the header as it stands, and the diff."""

    name: str
    header: str
    body: bytes
    diffs: tuple[FileDiff, ...]

    @classmethod
    def parse(cls, name: str, data: bytes) -> Patch:
        """Split a patch file where the diff of its first file begins."""
        lines = split_lines(data)
        at = next((at for at in range(len(lines)) if starts_diff(lines, at)), len(lines))
        body = b"".join(lines[at:])
        header = b"".join(lines[:at]).decode(errors="surrogateescape")
        return cls(name, header, body, parse_diff(body, f"{PATCHES}/{name}.patch"))

    @classmethod
    def empty(cls, name: str, date: str) -> Patch:
        """A patch that changes nothing yet."""
        return cls(name, empty_header(date), b"", ())

    @property
    def path(self) -> str:
        """Where the patch stands, relative to the root."""
        return f"{PATCHES}/{self.name}.patch"

    def fields(self) -> dict[str, str]:
        """The header's DEP-3 fields; lines that begin with a space continue the field above."""
        found: dict[str, str] = {}
        current = ""
        for line in self.header.splitlines():
            match = FIELD_LINE.match(line)
            if match:
                current = match[1]
                found[current] = match[2].strip()
            elif line[:1].isspace() and current:
                found[current] += "\n" + line.strip()
            else:
                current = ""
        return found

    def text(self) -> bytes:
        """The canonical file: header, one empty line, canonical diff."""
        return self.header.rstrip().encode(errors="surrogateescape") + b"\n\n" + render(self.diffs)

    def with_diffs(self, diffs: tuple[FileDiff, ...], date: str) -> Patch:
        """The patch with another diff; Last-Update moves if more than context and line numbers changed."""
        header = self.header if self.header.strip() else empty_header(date)
        if [diff.changes() for diff in diffs] != [diff.changes() for diff in self.diffs]:
            header = re.sub(r"(?m)^Last-Update:.*$", f"Last-Update: {date}", header)
        return replace(self, header=header, body=render(diffs), diffs=diffs)


def empty_header(date: str) -> str:
    """The fields of a header; `verify` asks for those that only the author can fill in."""
    return f"Description:\nOrigin: vendor\nForwarded: no\nLast-Update: {date}\nReports:\nTests:\n"


@dataclass(frozen=True)
class Stack:
    """The whole folder: patches in the order of the series, and the base they start from."""

    patches: tuple[Patch, ...]
    upstream: Upstream
    series: str  # the file's text, comments included
    source: Tree = field(default_factory=dict, repr=False)  # the files as they were read

    @classmethod
    def parse(cls, files: Tree) -> Stack:
        """Read the stack from the files of `patches/`."""
        for needed in (SERIES, UPSTREAM):
            if needed not in files:
                raise Refused(f"{needed} is missing: there is no stack here")
        series = files[SERIES].data.decode()
        patches = []
        for name in series_names(series):
            path = f"{PATCHES}/{name}.patch"
            if path not in files:
                raise Refused(f"{SERIES} names {name}.patch, which does not exist")
            patches.append(Patch.parse(name, files[path].data))
        return cls(tuple(patches), Upstream.parse(files[UPSTREAM].data.decode()), series, files)

    def files(self) -> Tree:
        """The files that the stack consists of, in their canonical form."""
        texts = {patch.path: patch.text() for patch in self.patches}
        texts |= {SERIES: self.series.encode(), UPSTREAM: self.upstream.text().encode()}
        return {path: File(text) for path, text in texts.items()}

    def index(self, name: str) -> int:
        """The place, from 1, of the patch called `name`, `name.patch` or by its four digits."""
        wanted = name.removeprefix(f"{PATCHES}/").removesuffix(".patch")
        for number, patch in enumerate(self.patches, 1):
            if wanted in (patch.name, patch.name[:4]):
                return number
        raise Misuse(f"no patch {name!r} in the series ({', '.join(patch.name for patch in self.patches)})")

    def levels(self, base: Tree, *, moved: bool = False) -> list[Tree]:
        """The trees with 0, 1, 2 ... patches applied."""
        trees = [base]
        for patch in self.patches:
            try:
                trees.append(apply(trees[-1], patch.diffs, moved=moved))
            except Misfit as misfit:
                raise Misfit(f"{patch.name} does not apply: {misfit}") from None
        return trees

    def descend(self, tree: Tree, level: int, *, moved: bool = False) -> list[Tree]:
        """The trees with 0, 1, 2 ... `level` patches, found by taking patches off `tree`, which has all."""
        trees = [tree]
        for patch in reversed(self.patches[:level]):
            try:
                trees.insert(0, unapply(trees[0], patch.diffs, moved=moved))
            except Misfit as misfit:
                raise Misfit(f"{patch.name} does not come off: {misfit}") from None
        return trees


def series_names(text: str) -> list[str]:
    """The names, without `.patch`, that a series file lists."""
    names = []
    for line in text.splitlines():
        entry = line.partition("#")[0].strip()
        name = entry.removesuffix(".patch")
        if not entry:
            continue
        if entry == name or not NAME.fullmatch(name):
            raise Refused(f"{SERIES}: {entry!r} is not NNNN-name.patch, four digits and small letters")
        names.append(name)
    return names


def insert_in_series(text: str, name: str, position: int) -> str:
    """Add a patch to a series file's text behind the first `position` ones."""
    lines = text.splitlines()
    entries = [at for at, line in enumerate(lines) if line.partition("#")[0].strip()]
    at = entries[position - 1] + 1 if position else (entries[0] if entries else len(lines))
    return "".join(line + "\n" for line in [*lines[:at], f"{name}.patch", *lines[at:]])
