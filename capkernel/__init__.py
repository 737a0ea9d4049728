"""capkernel: a Jupyter kernel in which every cell is a proposal, and secrets can be computed with but never seen.

The names a cell sees live in `capkernel.api`; the rest is the machinery behind them (see docs/design.md).
"""

__version__ = "0.1.0"
