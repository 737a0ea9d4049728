"""Questions about a text that is still being written: what could stand at the cursor, what something is.

Rule 1: nothing runs and nothing is kept: a text that is looked at is a cell that is forgotten.
Rule 2: names, types and texts of definitions; never a value.
"""
