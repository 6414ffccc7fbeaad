"""The back rooms of ``mace.tools.distributed``: what is known about the processes of a run."""
