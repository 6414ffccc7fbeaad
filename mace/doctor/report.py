"""Findings as text for people and as JSON for programs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

import mace
from mace.doctor.findings import Finding, Severity, exit_status


def as_json(findings: Sequence[Finding]) -> str:
    """One object: ``version``, ``status`` (the exit status) and ``findings``."""
    content = {
        "version": mace.__version__,
        "status": exit_status(findings),
        "findings": [asdict(finding) for finding in findings],
    }
    return json.dumps(content, indent=1, allow_nan=False)


def as_text(findings: Sequence[Finding], verbose: bool) -> str:
    """The worst first, two lines each, and how many there are; what is in order only with ``verbose``."""
    order = list(Severity)
    lines = []
    for finding in sorted(findings, key=lambda finding: order.index(finding.severity)):
        if finding.severity is not Severity.OK or verbose:
            lines.append(f"{finding.severity.value.upper():8}{finding.code}: {finding.found}")
            lines += [f"{'':8}-> {finding.cure}"] if finding.cure else []
    counts = Counter(finding.severity for finding in findings)
    return "\n".join([*lines, ", ".join(f"{counts[severity]} {severity.value}" for severity in order)])
