"""An engine that starts without the big libraries says the same of cells, before and after it has loaded them."""

from __future__ import annotations

from capkernel.checker.cache import build_cache
from capkernel.checker.captures import CaptureSession
from capkernel.checker.engine import Engine
from capkernel.checker.profiles import STANDARD
from capkernel.checker.protocol import Accepted, Rejected
from capkernel.checker.session import CheckerSession
from capkernel.checker.subset import check_subset

CELLS = (
    "import numpy as np\na = np.arange(3)\na.sum()",
    "import pandas as pd\npd.DataFrame({'a': [1]}).groupby('a').sum()",
    "import matplotlib.pyplot as plt\nplt.plot([1])",
    "import pandas as pd\nx: int = pd.DataFrame()",
    "s = classify('a')\nimport numpy as np\ns.map(lambda t: np.array([len(t)]))",
)


def said(engine: Engine) -> list[object]:
    session = CheckerSession(engine, STANDARD, check_subset, CaptureSession())
    verdicts = []
    for number, text in enumerate(CELLS, 1):
        verdict = session.check(number, text)
        session.discard(number)
        if isinstance(verdict, Rejected):
            verdicts.append([diagnostic.code for diagnostic in verdict.diagnostics])
        else:
            assert isinstance(verdict, Accepted)
            verdicts.append((verdict.names, verdict.last_type, verdict.plan.masks))
    return verdicts


def test_the_same_verdicts_with_libraries_loaded_before_by_cells_and_in_idle_time() -> None:
    place = build_cache(lambda _: None)
    expected = said(Engine(place, STANDARD))
    assert expected[3] == ["assignment"]

    lean = Engine(place, STANDARD, libraries=())
    assert "numpy" not in lean._manager.modules
    assert said(lean) == expected

    idle = Engine(place, STANDARD, libraries=())
    while idle.preload():
        pass
    assert {"numpy", "pandas", "matplotlib.pyplot"} <= idle._manager.modules.keys()
    assert said(idle) == expected
    assert idle.preload() == ""
