"""A deterministic notebook of any length: the cells people write, each using names of earlier ones.

Kinds are drawn with fixed weights from a fixed seed: values and comprehensions, functions, classes, dataclasses,
generators, library imports, numpy, pandas, text, redefinitions, bare looks at a value.
"""

from __future__ import annotations

import random
from collections.abc import Callable

FIRST = """\
import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
count_0 = 3
text_0 = "the quick brown fox"
list_0 = [1, 2, 3, 5, 8]
"""

FIRST_LIBRARIES = """\
import numpy as np
import pandas as pd
array_1 = np.linspace(0.0, 1.0, 50)
frame_1 = pd.DataFrame({"a": [1, 2, 2, 3], "b": [0.5, 1.5, 2.5, 3.5]})
frame_1
"""


class Notebook:
    """Grows one cell at a time; `cells` are the texts so far."""

    def __init__(self, seed: int = 20, *, libraries: bool = True) -> None:
        self._random = random.Random(seed)
        self._names: dict[str, list[str]] = {
            "count": ["count_0"],
            "text": ["text_0"],
            "list": ["list_0"],
            "function": [],
            "record": [],
            "class": [],
            "array": ["array_1"],
            "frame": ["frame_1"],
        }
        self.cells = [FIRST]
        kinds: list[tuple[int, Callable[[int], str]]] = [
            (18, self._values),
            (18, self._function),
            (9, self._class),
            (12, self._record),
            (8, self._generator),
            (10, self._text),
            (6, self._again),
            (6, self._look),
        ]
        if libraries:
            self.cells.append(FIRST_LIBRARIES)
            kinds += [(8, self._numpy), (5, self._pandas)]
        self._kinds = kinds

    def grow(self, length: int) -> list[str]:
        weights = [weight for weight, _make in self._kinds]
        makers = [make for _weight, make in self._kinds]
        while len(self.cells) < length:
            self.cells.append(self._random.choices(makers, weights)[0](len(self.cells)))
        return self.cells[:length]

    def _pick(self, kind: str) -> str:
        names = self._names[kind]
        recent = names[-8:] if self._random.random() < 0.6 else names
        return self._random.choice(recent)

    def _new(self, kind: str, i: int) -> str:
        name = f"{kind}_{i}"
        self._names[kind].append(name)
        return name

    def _values(self, i: int) -> str:
        a, b, numbers, text = self._pick("count"), self._pick("count"), self._pick("list"), self._pick("text")
        new, pairs = self._new("count", i), self._new("list", i)
        return (
            f"{new} = {a} * 2 + {b} % 7\n"
            f"{pairs} = [n + {new} for n in {numbers} if n % 2]\n"
            f"by_letter_{i} = dict(zip({text}, {pairs}))\n"
            f"for letter, number in by_letter_{i}.items():\n"
            f"    if number > {i}:\n"
            f"        print(letter, number)\n"
            f"sum({pairs}) + {new}\n"
        )

    def _function(self, i: int) -> str:
        a, text = self._pick("count"), self._pick("text")
        inner = f"{self._pick('function')}(total, 1)" if self._names["function"] else "total"
        name, result = self._new("function", i), self._new("count", i)
        return (
            f"def {name}(n: int, step: int = {i % 9 + 1}) -> int:\n"
            f'    """Adds up."""\n'
            f"    total = {a}\n"
            f"    for k in range(n):\n"
            f"        total += k * step\n"
            f"    if total > 1000:\n"
            f"        return {inner}\n"
            f"    return total + len({text})\n"
            f"{result} = {name}(4)\n"
        )

    def _class(self, i: int) -> str:
        a, text = self._pick("count"), self._pick("text")
        base = f"({self._pick('class')})" if self._names["class"] and self._random.random() < 0.4 else ""
        name, result = self._new("class", i), self._new("count", i)
        return (
            f"class {name}{base}:\n"
            f"    def __init__(self, size: int = {i}) -> None:\n"
            f"        self.size = size\n"
            f"        self.seen: dict[str, int] = {{}}\n"
            f"    def add(self, key: str, value: int) -> None:\n"
            f"        self.seen[key] = value + self.size\n"
            f"item_{i} = {name}()\n"
            f"item_{i}.add({text}, {a})\n"
            f"{result} = len(item_{i}.seen)\n"
        )

    def _record(self, i: int) -> str:
        a, text = self._pick("count"), self._pick("text")
        parent = f"    parent: {self._pick('record')} | None = None\n" if self._names["record"] else ""
        name = self._new("record", i)
        return (
            f"@dataclass\n"
            f"class {name}:\n"
            f"    number: int\n"
            f"    label: str = 'x'\n"
            f"    tags: list[str] = field(default_factory=list)\n"
            f"{parent}"
            f"    def weight(self) -> int:\n"
            f"        return self.number + len(self.tags)\n"
            f"rec_{i} = {name}({a}, {text})\n"
            f"rec_{i}.weight()\n"
        )

    def _generator(self, i: int) -> str:
        numbers, a = self._pick("list"), self._pick("count")
        result = self._new("list", i)
        return (
            f"def steps_{i}(values: list[int], change: Callable[[int], int]) -> Iterator[int]:\n"
            f"    for value in values:\n"
            f"        changed = change(value)\n"
            f"        if changed:\n"
            f"            yield changed\n"
            f"{result} = sorted(steps_{i}({numbers}, lambda v: v + {a}), key=lambda v: -v)\n"
            f"max({result}, default=0)\n"
        )

    def _text(self, i: int) -> str:
        text = self._pick("text")
        module = self._random.choice(("re", "string", "textwrap", "itertools", "functools", "statistics", "datetime"))
        new, result = self._new("text", i), self._new("count", i)
        return (
            f"import {module}\n"
            f"letters_{i} = Counter({text})\n"
            f"groups_{i}: defaultdict[int, list[str]] = defaultdict(list)\n"
            f"for word in {text}.split():\n"
            f"    groups_{i}[len(word)].append(word.upper())\n"
            f"{new} = ' '.join(f'{{k}}:{{n}}' for k, n in letters_{i}.most_common(3))\n"
            f"{result} = len(groups_{i})\n"
        )

    def _again(self, i: int) -> str:
        text, count = self._pick("text"), self._pick("count")
        return (
            f"scratch = {count}\nscratch = str(scratch) + {text}\nif len(scratch) > {i}:\n    scratch = ''\nscratch\n"
        )

    def _look(self, _i: int) -> str:
        return f"{self._pick('count')}, {self._pick('text')}\n"

    def _numpy(self, i: int) -> str:
        array, a = self._pick("array"), self._pick("count")
        new = self._new("array", i)
        return (
            f"{new} = np.sqrt(np.abs({array}) + {a}) * 2.0\n"
            f"mask_{i} = {new} > {new}.mean()\n"
            f"chosen_{i} = {new}[mask_{i}]\n"
            f"grid_{i} = np.outer({array}, {new})\n"
            f"float(chosen_{i}.sum()) + grid_{i}.shape[0]\n"
        )

    def _pandas(self, i: int) -> str:
        frame = self._pick("frame")
        new = self._new("frame", i)
        return (
            f"{new} = {frame}.assign(c={frame}['a'] * 2)\n"
            f"means_{i} = {new}.groupby('a').mean()\n"
            f"top_{i} = {new}.sort_values('b', ascending=False).head(3)\n"
            f"column_{i} = {new}['b'].astype(float)\n"
            f"{new}.describe()\n"
        )


REFUSED = (
    "print(never_bound)\n",
    "x: int = 'text'\n",
    "def two(a: int, b: int) -> int:\n    return a + b\ntwo(1)\n",
    "class Holder:\n    def __init__(self) -> None:\n        self.value = 1\nHolder(1, 2)\n",
    "def broken(:\n",
    "Classified(1)\n",
    "for n in range(3):\n    print(n, missing_here)\n",
)
"""Cells that every profile but `relaxed` refuses."""
