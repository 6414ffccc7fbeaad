"""Reconciliation of arguments, under upstream's path."""

from mace.arguments.reconcile import check_args

__all__ = ["check_args"]
