r"""Formulas draw, and do nothing else."""

from __future__ import annotations

import pytest

from capkernel.kernel.latex import active_commands, is_plain_math

PLAIN = [
    r"$\displaystyle \frac{x}{2} + \hat{y}\delta\left(x\right)$",
    r"$\displaystyle \left[\begin{matrix}1 & x\\\pi & \sqrt{2}\end{matrix}\right]$",
    r"$$\begin{cases} x & \text{for}\: x > 0 \\0 & \text{otherwise} \end{cases}$$",
    r"$\int\limits_{0}^{\infty} \frac{e^{- x^{2}}}{\sqrt{x}}\, dx$",
    r"\begin{align*} a &= b \\ c &= \mathbb{R} \end{align*}",
    r"$\operatorname{Mod}_{\mathtt{\text{n}}} \% \$ \{ \} \| \, \; \! \#$",
    r"a \\[1em] b",
    "no commands at all: 5 $ and a \\",
]

ACTIVE = [
    r"\href{javascript:alert(1)}{x}", r"\class{a}{b}", r"\cssId{a}{b}", r"\style{a}{b}", r"\require{html}",
    r"\unicode{65}", r"\includegraphics{http://h/x}", r"\data{a=b}{c}", r"\htmlClass{a}{b}", r"\let\x=y",
    r"\def\x#1{y}", r"\url{x}", r"\newcommand{\x}{y}", r"\renewenvironment{a}{b}{c}", r"\DeclareMathOperator{a}{b}",
    r"\csname href\endcsname", r"\char65", r"\symbol{65}", r"\verb|x|", r"\bbox[url(x)]{y}", r"\toggle{a}{b}\endtoggle",
    r"\mathtip{a}{b}", r"\texttip{a}{b}", r"\enclose{a}[b]{c}", r"\color{red}{x}", r"\textcolor{red}{x}",
    r"\colorbox{red}{x}", r"\label{x}", r"\ref{x}", r"\tag{x}", r"\rule{9em}{9em}", r"\Rule{1em}{1em}{1em}",
    r"\hspace{-99em}", r"\kern-99em", r"\raise99em{x}", r"\llap{x}", r"\mmlToken{mi}[href=x]{y}", r"\input{x}",
    r"\write18{x}", r"\catcode1", r"\begin{html}", r"\begin{document}", r"\begin {html}", r"\begin{\x}", r"\begin",
    r"\end{x}", r"a \\[-99em] b", r"a \\ [ -99em] b", "\\\u00e9", "%\\\n\\href{x}{y}", r"\\\href{x}{y}",
    r"\alpha\href{x}{y}",
    r"\text{$\href{x}{y}$}", r"\alphahref", r"\Href", "\\hr\u202eef",
]  # fmt: skip


@pytest.mark.parametrize("tex", PLAIN)
def test_plain(tex: str) -> None:
    assert is_plain_math(tex)
    assert active_commands(tex) == []


@pytest.mark.parametrize("tex", ACTIVE)
def test_active(tex: str) -> None:
    assert not is_plain_math(f"$x {tex}$")
    assert active_commands(tex)


def test_a_line_break_before_a_word_is_no_command() -> None:
    assert is_plain_math(r"1 \\href 2")


def test_what_sympy_writes_passes() -> None:
    sympy = pytest.importorskip("sympy")
    x, n = sympy.symbols("x n")
    written = [
        sympy.Integral(sympy.exp(-(x**2)) / sympy.sqrt(x), (x, 0, sympy.oo)), sympy.Matrix([[1, x], [sympy.pi, 2]]),
        sympy.Piecewise((x, x > 0), (0, True)), sympy.Sum(1 / n**2, (n, 1, sympy.oo)),
        sympy.Limit(sympy.sin(x) / x, x, 0),
        sympy.Derivative(sympy.Function("f")(x), x), sympy.ImageSet(sympy.Lambda(x, x**2), sympy.S.Reals),
        sympy.hyper([1], [2], x), sympy.MatrixSymbol("A", 2, 2).T, sympy.Mod(x, 2), sympy.Abs(x), sympy.binomial(n, 2),
        sympy.solveset(sympy.sin(x), x), sympy.Symbol("alpha_hat"), sympy.meijerg([[1], [2]], [[3], [4]], x),
    ]  # fmt: skip
    assert [sympy.latex(one) for one in written if not is_plain_math(sympy.latex(one))] == []


def test_a_long_text_takes_no_time() -> None:
    import time

    for tex in ("\\" * 100_000, r"\begin{" * 20_000, r"\\ [" * 30_000, "\\begin" + " " * 100_000, "\\" + "a" * 100_000):
        began = time.process_time()
        is_plain_math(tex)
        active_commands(tex)
        assert time.process_time() - began < 1.0, tex[:8]
