"""Look at what a long run needs before it starts: the command ``mace_doctor``.

From the shell ``mace_doctor [flags of mace_run_train]``, or as the run will be started:
``torchrun --nproc_per_node=2 --no-python mace_doctor ...``.
"""

from __future__ import annotations

import importlib
from argparse import Namespace

from mace.arguments.doctor_plan import DoctorPlan
from mace.cli.launch import doctor as main
from mace.doctor.findings import error, exit_status, one_line
from mace.doctor.installation import Installation, examine_installation
from mace.doctor.report import as_json, as_text

__all__ = ["main", "run"]


def run(args: Namespace) -> int:
    """Print the findings, and return the exit status: 0, 3 with warnings, 4 with errors.

    Of several processes the first one prints; the others return 0.

    Raises:
        InputError: flags that cannot be used.
    """
    plan = DoctorPlan.from_namespace(args)
    here = Installation.here(on_cuda=plan.device == "cuda", wants_cueq=plan.enable_cueq)
    findings = examine_installation(here)
    try:
        examination = importlib.import_module("mace.doctor.examination")
    except Exception as problem:  # packages that do not fit raise anything when they are imported
        cure = "install the packages that the errors above name, or cp-mace again"
        findings.append(error("import-failed", f"cp-mace cannot be imported: {one_line(problem)}", cure))
    else:
        found = examination.examine(plan)
        if found is None:
            return 0
        findings += found
    print(as_json(findings) if args.json else as_text(findings, args.verbose), flush=True)
    return exit_status(findings)


if __name__ == "__main__":
    main()
