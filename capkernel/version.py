"""The version, in a module of its own: whoever needs only this imports nothing else."""

__version__ = "0.1.0"
