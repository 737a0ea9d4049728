"""What the worker reads of its objects for completion."""

from __future__ import annotations

import pandas as pd

from capkernel.worker.looking import keys_of, root_modules


def test_columns_and_keys_of_the_first_name_that_has_any() -> None:
    frame = pd.DataFrame({"count": [1], "colour": ["a"], 5: [1]})
    namespace = {"df": frame, "d": {"key": 1, 5: 2}, "n": 5, "empty": {}}
    assert keys_of(("unknown", "n", "empty", "df", "d"), namespace) == ["count", "colour"]
    assert keys_of(("d",), namespace) == ["key"]
    assert keys_of((), namespace) == []


def test_no_object_of_the_session_is_asked() -> None:
    class DataFrame:
        @property
        def columns(self) -> list[str]:
            raise AssertionError("asked")

    class Keys(dict):  # type: ignore[type-arg]
        def __iter__(self) -> None:  # type: ignore[override]
            raise AssertionError("asked")

    assert keys_of(("a", "b"), {"a": DataFrame(), "b": Keys(key=1)}) == []


def test_modules_that_import_can_name() -> None:
    found = root_modules()
    assert {"json", "sys", "pandas"} <= set(found)
    assert not [name for name in found if name.startswith("_")]
