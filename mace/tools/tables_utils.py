"""The error tables at the end of a run."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from prettytable import PrettyTable
from torch import nn

from mace.tools.distributed import Ranks
from mace.tools.error_terms import TABLE_TERMS, terms_of
from mace.tools.evaluation import evaluate
from mace.tools.metrics import Metrics

_SET_ORDER = ("train", "valid")


def custom_key(key: str) -> tuple[int, str]:
    """Sorting key of the rows: training sets, validation sets, then all others, each by name."""
    kind = key.partition("_")[0]
    place = _SET_ORDER.index(kind) if kind in _SET_ORDER else len(_SET_ORDER)
    return place, key


def create_error_table(
    table_type: str,
    all_data_loaders: Mapping[str, Iterable[Any]],
    model: nn.Module,
    loss_fn: nn.Module,
    output_args: Mapping[str, bool],
    log_wandb: bool,
    device: torch.device | str,
    distributed: bool = False,
    ranks: Ranks | None = None,
) -> PrettyTable:
    """Evaluate a model on several sets and put the errors into a table, one row a set.

    With several processes all must call this; see :func:`mace.tools.evaluation.evaluate`. A quantity without
    a label or a prediction shows ``n/a``.

    Args:
        table_type: which errors: a key of ``TABLE_TERMS``.
        all_data_loaders: this process's share of every set, by name.
        model: what is evaluated.
        loss_fn: gives the mean loss of a batch.
        output_args: which outputs are asked for.
        log_wandb: record the errors as final results of the Weights & Biases run.
        device: where the model is.
        distributed: not used; ``ranks`` says it.
        ranks: the processes of the run; None for this process alone.

    Raises:
        InputError: there is no such type of table.
    """
    terms = terms_of(TABLE_TERMS, table_type)
    ranks = Ranks.single(device) if ranks is None else ranks
    table = PrettyTable()
    table.field_names = ["config_type", *(term.titles[0] for term in terms)]
    for name in sorted(all_data_loaders, key=custom_key):
        logging.info(f"Evaluating {name} ...")
        _, metrics = evaluate(model, loss_fn, all_data_loaders[name], output_args, ranks.device, ranks)
        logging.debug(f"Metrics of {name}: {json.dumps(metrics)}")  # with every digit
        table.add_row([name, *(term.show(metrics)[1] for term in terms)])
        if log_wandb and ranks.is_main:
            _record_final_errors(name, metrics)
    return table


def _record_final_errors(name: str, metrics: Metrics) -> None:
    import wandb

    factors = {"rmse_e_per_atom": 1e3, "rmse_f": 1e3, "rel_rmse_f": 1.0}  # meV, meV/A, percent
    wandb.log(
        {f"{name}_final_{key}": factor * metrics[key] for key, factor in factors.items() if key in metrics}
    )
