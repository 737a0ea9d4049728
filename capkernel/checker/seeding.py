"""Names of earlier cells, put into the module of a new cell; and the statements that ask for its own types.

The new module has a variable of its own for every name it binds. What it reads of the session stands beside that, under
the same name if there is no other, and under a hidden one if there is.
"""

from __future__ import annotations

from collections.abc import Callable

import mypy.build  # noqa: F401  (must be the first mypy module: the others import each other in a circle)
from mypy.nodes import AssignmentStmt, ExpressionStmt, MypyFile, NameExpr, Var

from capkernel.checker.conversion import Became
from capkernel.checker.scan import NEW, OLD, Names
from capkernel.checker.symbols import Binding, anything, assignment, put, type_of, variable
from capkernel.checker.typed_cell import Resolved

HIDDEN = "·"


def seed(tree: MypyFile, names: Names, became: Became, lookup: Callable[[str], Binding | None]) -> dict[str, Resolved]:
    """Put what the cell uses of the session into its symbol table. Returns those names."""
    seeded: dict[str, Resolved] = {}
    first: list[AssignmentStmt] = []
    for name in sorted(names.used | names.carried | names.set_in_functions):
        binding = lookup(name)
        if binding is None:
            if name in names.set_in_functions and name not in names.bound:
                put(tree, name, variable(tree.fullname, name, anything()))
            continue
        seeded[name] = Resolved(type_of(binding.node), binding.node, binding.node.fullname or "")
        hidden = HIDDEN + name
        if name not in names.bound:
            _seed_read(tree, name, binding, names, first)
        elif name in names.carried and names.kinds[name] == {"value"}:
            put(tree, hidden, variable(tree.fullname, hidden, type_of(binding.node)))
            first.append(assignment(name, hidden))
        else:
            put(tree, hidden, binding.node)
            for read in names.reads:
                expression = became.get(read.node)
                if read.name == name and not read.states & NEW and isinstance(expression, NameExpr):
                    expression.name = hidden
    tree.defs[:0] = first
    return seeded


def _seed_read(tree: MypyFile, name: str, binding: Binding, names: Names, first: list[AssignmentStmt]) -> None:
    """A name the cell's top level does not bind."""
    wide = binding.wide or type_of(binding.node)
    if name in names.set_in_functions:
        put(tree, name, variable(tree.fullname, name, wide))
    elif name in names.deferred and isinstance(binding.node, Var) and wide != binding.node.type:
        # Its type now is for now; a function body runs at another time.
        hidden = HIDDEN + name
        put(tree, name, variable(tree.fullname, name, wide))
        put(tree, hidden, binding.node)
        first.append(assignment(name, hidden))
    else:
        put(tree, name, binding.node)


def append_probes(tree: MypyFile, names: Names) -> dict[str, NameExpr]:
    """One expression per name the cell leaves bound: mypy reports its type at the end of the cell."""
    probes: dict[str, NameExpr] = {}
    for name in names.bound:
        if "value" in names.kinds[name] and names.end.get(name, OLD) & NEW:
            probes[name] = NameExpr(name)
            tree.defs.append(ExpressionStmt(probes[name]))
    return probes
