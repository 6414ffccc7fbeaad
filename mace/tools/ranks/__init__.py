"""Launch anywhere: who started the processes, what device each has, and how they find each other.

The modules of this folder lean on torch and the standard library alone.
"""
