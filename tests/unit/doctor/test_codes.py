"""Every code that a finding can have is explained on the page, and has a test."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SOURCES = [*sorted((ROOT / "mace" / "doctor").glob("*.py")), ROOT / "mace" / "cli" / "doctor.py"]
MAKERS = {"error", "warning", "note", "ok"}


def codes_in(source):
    """First arguments of what makes findings, and the codes that a table of cures is for."""
    tree = ast.parse(source.read_text())
    for node in ast.walk(tree):
        named = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in MAKERS
        if named and isinstance(node.args[0], ast.Constant):
            yield node.args[0].value
        if isinstance(node, ast.Assign) and [getattr(t, "id", "") for t in node.targets] == ["_CURES"]:
            yield from ast.literal_eval(node.value)


CODES = {code for source in SOURCES for code in codes_in(source)}


def test_every_code_is_on_the_page():
    page = (ROOT / "docs" / "doctor.md").read_text()
    explained = {
        code
        for row in re.findall(r"^\| (`.*?) \|", page, re.MULTILINE)
        for code in row.strip("`").split("`, `")
    }
    assert explained == CODES


def test_every_code_has_a_test():
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    assert not [code for code in CODES if f'"{code}"' not in tests]
