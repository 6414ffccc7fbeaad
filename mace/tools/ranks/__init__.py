"""The back rooms of ``mace.tools.distributed``: what is known about the processes of a run, one idea a file.

The modules of this folder lean on torch, numpy and the standard library alone.
"""
