"""Every rule of the checker, switched off in turn: do the golden sessions notice? `make mutate`.

Prints a line per rule and a JSON object last. Exit code 1 when a pair passes without the rule it is about.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import mutants


def main() -> int:
    everything = mutants.sections()
    with mutants.harness() as trace:
        found = mutants.rules(trace, everything)
        results = [mutants.kill(trace, rule, indices, everything) for rule, indices in sorted(found.items())]
        for one in results:
            print(f"{one.killed:4} of {one.pairs:4} pairs  {one.rule}")
            for name in one.survivors:
                print(f"      passes without it: {name}")
    survivors = sum(len(one.survivors) for one in results)
    print(
        json.dumps(
            {
                "rules": len(results),
                "pairs": sum(one.pairs for one in results),
                "killed": sum(one.killed for one in results),
            }
        )
    )
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
