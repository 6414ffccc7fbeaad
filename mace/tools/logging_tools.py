"""The lines and records that a run leaves about its evaluations."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from mace.exceptions import RunError
from mace.tools.error_terms import LOG_TERMS, terms_of


class RecordLogger(Protocol):
    """Whatever takes the records of a run, such as :class:`mace.tools.MetricsLogger`."""

    def log(self, d: Mapping[str, Any]) -> None:
        """Take one record."""


@dataclass
class PatientLogger:
    """Hands records on, and keeps the failure to write one until somebody asks for it.

    Raised at once, it would end the main process alone and leave the others in the middle of a step.
    """

    logger: RecordLogger
    failure: RunError | None = None

    def log(self, d: Mapping[str, Any]) -> None:
        """Hand one record on; after a failure they are dropped."""
        if self.failure is not None:
            return
        try:
            self.logger.log(d)
        except RunError as error:
            self.failure = error

    def raise_failure(self) -> None:
        """Raise the failure, if there was one."""
        if self.failure is not None:
            raise self.failure


def error_line(
    valid_loss: float, metrics: Mapping[str, Any], log_errors: str, epoch: int | None, head: str
) -> str:
    """One line about an evaluation, ``n/a`` where nothing could be compared.

    Raises:
        InputError: ``log_errors`` names no kind of error table.
    """
    phase = "Initial" if epoch is None else f"Epoch {epoch}"
    parts = [f"{phase}: head: {head}", f"loss={valid_loss:8.8f}"]
    for term in terms_of(LOG_TERMS, log_errors):
        if term.is_shown(metrics):
            title, value = term.show(metrics)
            name, _, unit = title.partition("|")
            parts.append(f"{name}={value} {unit}")
    return ", ".join(parts)


def valid_err_log(
    valid_loss: float,
    eval_metrics: Mapping[str, Any],
    logger: RecordLogger,
    log_errors: str,
    epoch: int | None = None,
    valid_loader_name: str = "Default",
) -> None:
    """Log an evaluation as a line, and give ``logger`` its record.

    Args:
        valid_loss: mean loss over the configurations.
        eval_metrics: the metrics.
        logger: takes the record.
        log_errors: which errors the line shows, the name of an error table.
        epoch: None for the evaluation before any training.
        valid_loader_name: the head.
    """
    logger.log({**eval_metrics, "mode": "eval", "epoch": epoch, "head": valid_loader_name})
    logging.info(error_line(valid_loss, eval_metrics, log_errors, epoch, valid_loader_name))
