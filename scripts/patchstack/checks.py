"""What `verify` looks at; every check returns its findings, one line each."""

from __future__ import annotations

import ast
import datetime
import re
import warnings
from pathlib import Path

from patchstack.errors import Refused
from patchstack.fold import restack
from patchstack.position import locate
from patchstack.series import FIELDS, PATCHES, SERIES, UPSTREAM, Patch, Stack
from patchstack.trees import (
    FOLDER,
    File,
    Tree,
    changed_paths,
    is_work_tree,
    read_folder,
    read_walk,
    run_git,
    tree_hash,
)


def verify(root: Path) -> tuple[str, list[str]]:
    """Check the stack and the tree against each other; return a summary and the findings."""
    files = read_walk(root, PATCHES)
    try:
        stack = Stack.parse(files)
    except Refused as refusal:
        return "no readable stack", [str(refusal)]
    findings = [*check_series(stack, files), *untracked(root)]
    for patch in stack.patches:
        findings += [
            f"{patch.name}: {finding}" for finding in [*check_header(root, patch), *check_paths(patch)]
        ]
    findings += check_trees(root, stack, files)
    return f"{len(stack.patches)} patches on base {stack.upstream.tree[:19]}", findings


def check_series(stack: Stack, files: Tree) -> list[str]:
    """Series and folder name the same patches, in ascending order."""
    listed = [patch.path for patch in stack.patches]
    found = [path for path in files if path.endswith(".patch")]
    findings = [f"{path} is not in {SERIES}" for path in sorted(set(found) - set(listed))]
    numbers = [patch.name[:4] for patch in stack.patches]
    if numbers != sorted(set(numbers)):
        findings.append(f"{SERIES}: the numbers do not ascend: {' '.join(numbers)}")
    return findings


def check_header(root: Path, patch: Patch) -> list[str]:
    """Every field is filled in, the date is one, and the tests exist."""
    fields = patch.fields()
    findings = [f"header field {name} is missing or empty" for name in FIELDS if not fields.get(name)]
    date = fields.get("Last-Update", "")
    if date and not is_date(date):
        findings.append(f"Last-Update is not a date like 2026-01-31: {date!r}")
    findings += [
        f"Tests names {test}, which does not exist" for test in tests_of(patch) if not test_exists(root, test)
    ]
    return findings


def is_date(text: str) -> bool:
    """Whether the text is an ISO date."""
    try:
        datetime.date.fromisoformat(text)
    except ValueError:
        return False
    return True


def tests_of(patch: Patch) -> list[str]:
    """The pytest node ids of the header's Tests field, separated by blanks, commas or lines."""
    return (
        re.split(r"[\s,]+", patch.fields().get("Tests", "").strip(" ,"))
        if patch.fields().get("Tests")
        else []
    )


def test_exists(root: Path, node: str) -> bool:
    """Whether a pytest node id points to a file and, in it, to classes and functions of these names."""
    file, *names = node.partition("[")[0].split("::")
    if not names:
        return (root / file).exists()
    if not (root / file).is_file():
        return False
    body: list[ast.stmt] = ast.parse((root / file).read_bytes()).body
    for name in names:
        match = next((item for item in body if getattr(item, "name", None) == name), None)
        if match is None:
            return False
        body = getattr(match, "body", [])
    return True


def check_paths(patch: Patch) -> list[str]:
    """Patches change something, below mace/ only."""
    findings = [] if patch.diffs else ["changes nothing"]
    return findings + [
        f"touches {d.path}, outside {FOLDER}/" for d in patch.diffs if not d.path.startswith(f"{FOLDER}/")
    ]


def untracked(root: Path) -> list[str]:
    """Files that the stack counts and a commit would miss."""
    if not is_work_tree(root):
        return []
    listed = run_git(root, "ls-files", "-z", "--others", "--exclude-standard", "--", FOLDER, PATCHES)
    return [f"{path} is not in git yet (git add)" for path in listed.decode().split("\0") if path]


def check_trees(root: Path, stack: Stack, files: Tree) -> list[str]:
    """Both directions are exact, the base is the recorded one, and a refresh would change nothing."""
    tree = read_folder(root)
    try:
        base = stack.descend(tree, len(stack.patches))[0]
        levels = stack.levels(base)
        canonical = restack(stack, levels, stack.upstream.date)
    except Refused as refusal:
        return [str(refusal), *explain(root)]
    findings = []
    if tree_hash(base) != stack.upstream.tree:
        findings += [f"{UPSTREAM}: the base is {tree_hash(base)}, not {stack.upstream.tree}", *explain(root)]
    if changed_paths(levels[-1], tree):
        findings.append(
            f"the patches do not lead back to {FOLDER}/: {' '.join(changed_paths(levels[-1], tree))}"
        )
    stale = changed_paths({path: files.get(path, File(b"")) for path in canonical.files()}, canonical.files())
    if not findings:
        findings += [f"{path} is not as `scripts/patches refresh base` writes it" for path in stale]
    return findings + check_quilt_limits(stack, levels) + check_compiles(levels)


def explain(root: Path) -> list[str]:
    """Say how far the tree is from the stack, if the base can be found."""
    try:
        position = locate(root)
    except Refused:
        return []
    missing = len(position.stack.patches) - position.level
    hints = [f"{missing} patches are not applied: scripts/patches push -a"] if missing else []
    return hints + [
        f"{path} has edits that are in no patch: scripts/patches refresh" for path in position.edits
    ]


def check_quilt_limits(stack: Stack, levels: list[Tree]) -> list[str]:
    """For quilt an empty old version means that the patch adds the file: it would delete it on pop."""
    findings = []
    for patch, below, above in zip(stack.patches, levels[:-1], levels[1:], strict=True):
        empty = [path for path in changed_paths(below, above) if path in below and not below[path].data]
        findings += [f"{patch.name}: {path} is empty below it: quilt would delete it" for path in empty]
    return findings


def check_compiles(levels: list[Tree]) -> list[str]:
    """The Python files of every level compile."""
    findings = []
    seen: set[tuple[str, str]] = set()
    for number, tree in enumerate(levels):
        for path, file in tree.items():
            if path.endswith(".py") and (path, file.digest) not in seen:
                seen.add((path, file.digest))
                findings += [
                    f"{path} with {number} patches applied: {error}" for error in compile_errors(path, file)
                ]
    return findings


def compile_errors(path: str, file: File) -> list[str]:
    """What the compiler says against one file."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(file.data, path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        return [f"does not compile: {error}"]
    return []
