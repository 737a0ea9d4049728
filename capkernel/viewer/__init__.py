"""Where the person sees secrets: a page on an origin of its own, or the terminal. A process apart from the kernel.

Rule 1: what is shown is text; nothing in a value, a label or a piece of code is interpreted.
Rule 2: nothing is stored: no file, no log, no history holds a value.
"""
