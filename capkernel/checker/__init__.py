"""Is this cell allowed to run? mypy on every cell, the safe subset, the capture checker, and the plan of its powers."""
