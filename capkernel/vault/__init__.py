"""The cleartext processes: the keeper holds values, the runner applies checked pure functions to them.

Imports nothing, because the processes of this package lock themselves down before any third party is imported.
"""
