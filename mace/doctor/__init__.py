"""What ``mace_doctor`` looks at before a long run: installation, machine, processes, data, model, disk.

Importing this package imports nothing heavy: it must work where torch or e3nn do not. For a model of your own
class use ``mace.doctor.model.examine_model``.
"""
