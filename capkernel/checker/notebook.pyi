"""What IPython puts in every session. `get_ipython` is typed for the allowed magics; no cell may name it itself."""

from typing import Any

class _Shell:
    def run_line_magic(self, name: str, line: str) -> Any: ...
    def run_cell_magic(self, name: str, line: str, cell: str) -> Any: ...

def get_ipython() -> _Shell: ...
def display(
    *objs: object,
    include: Any = None,
    exclude: Any = None,
    metadata: Any = None,
    transient: Any = None,
    display_id: Any = None,
    raw: bool = False,
    clear: bool = False,
    **kwargs: Any,
) -> Any: ...

In: list[str]
Out: dict[int, Any]
_: Any
__: Any
___: Any
_i: str
_ii: str
_iii: str
_oh: dict[int, Any]
_ih: list[str]
