"""Notebooks from outside the kernel, over jupyter_client and nbformat: run them, later serve them to agents."""
