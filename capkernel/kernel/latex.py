r"""TeX in outputs: which commands a formula may use.

Front ends typeset `text/latex`, and whatever stands between dollar signs in HTML. Some commands make links, set
classes, load extensions or define new commands, and what they are called differs with the renderer.

Rule 1: an allow-list. A control word or environment that is not here makes the formula pass as its text only.
Rule 2: the whole text is read, also what stands outside of dollar signs: where a formula begins is the renderer's word.
"""

from __future__ import annotations

import re

_DRAWING = """
    alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa varkappa lambda mu nu xi omicron pi
    varpi rho varrho sigma varsigma tau upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma
    Upsilon Phi Psi Omega digamma aleph beth gimel daleth ell hbar hslash imath jmath Re Im wp complement eth mho
    Finv Game frac dfrac tfrac cfrac binom dbinom tbinom sqrt root over atop choose sum prod coprod int iint iiint
    iiiint oint bigcup bigcap bigsqcup bigvee bigwedge bigodot bigoplus bigotimes biguplus limits nolimits substack
    sideset lim limsup liminf sup inf max min arg argmax argmin det dim gcd hom ker deg Pr exp ln log lg sin cos tan
    cot sec csc arcsin arccos arctan sinh cosh tanh coth operatorname mod bmod pmod pod injlim projlim varlimsup
    varliminf erf erfc pm mp times div cdot ast star circ bullet oplus ominus otimes oslash odot dagger ddagger
    amalg cap cup uplus sqcap sqcup vee wedge lor land lnot neg setminus smallsetminus wr diamond bigtriangleup
    bigtriangledown triangleleft triangleright bigcirc leq geq le ge ll gg lll ggg neq ne equiv sim simeq approx
    cong propto prec succ preceq succeq subset supset subseteq supseteq subsetneq supsetneq sqsubset sqsupset
    sqsubseteq sqsupseteq in ni notin not vdash dashv models perp mid nmid parallel nparallel asymp bowtie doteq
    smile frown leqslant geqslant lesssim gtrsim lessgtr gtrless triangleq coloneqq ltimes rtimes boxplus boxminus
    boxtimes boxdot Box Diamond square blacksquare lozenge therefore because forall exists nexists emptyset
    varnothing infty partial nabla angle measuredangle triangle top bot flat natural sharp clubsuit diamondsuit
    heartsuit spadesuit surd prime backprime checkmark degree to gets leftarrow rightarrow Leftarrow Rightarrow
    leftrightarrow Leftrightarrow longleftarrow longrightarrow Longleftarrow Longrightarrow longleftrightarrow
    Longleftrightarrow mapsto longmapsto hookleftarrow hookrightarrow leftharpoonup rightharpoonup leftharpoondown
    rightharpoondown rightleftharpoons leftrightharpoons uparrow downarrow updownarrow Uparrow Downarrow Updownarrow
    nearrow searrow swarrow nwarrow implies iff impliedby leadsto rightsquigarrow xrightarrow xleftarrow left right
    middle big Big bigg Bigg bigl bigr Bigl Bigr biggl biggr Biggl Biggr bigm Bigm langle rangle lbrace rbrace
    lbrack rbrack lvert rvert lVert rVert vert Vert lfloor rfloor lceil rceil ulcorner urcorner llcorner lrcorner
    backslash hat widehat tilde widetilde bar overline underline vec dot ddot dddot ddddot acute grave breve check
    mathring overbrace underbrace overset underset stackrel overrightarrow overleftarrow overleftrightarrow cancel
    bcancel xcancel boxed fbox phantom hphantom vphantom smash mathrm mathbf mathit mathsf mathtt mathcal mathscr
    mathfrak mathbb mathnormal boldsymbol bold bm pmb rm bf it sf tt cal text textrm textbf textit textsf texttt
    mbox displaystyle textstyle scriptstyle scriptscriptstyle tiny small normalsize large Large quad qquad thinspace
    medspace thickspace negthinspace enspace nobreakspace ldots cdots vdots ddots dots dotsb dotsc dotsi dotsm dotso
    colon nonumber notag hline hfill newline cr bra ket braket Bra Ket Braket set Set
"""
_BLOCKS = """
    math displaymath equation align aligned alignat alignedat gather gathered split multline eqnarray array matrix
    smallmatrix pmatrix bmatrix Bmatrix vmatrix Vmatrix cases rcases dcases subarray tabular
"""
_WORDS = frozenset(_DRAWING.split())
_ENVIRONMENTS = frozenset(_BLOCKS.split())
_COMMAND = re.compile(r"\\([A-Za-z]+|.|\Z)", re.DOTALL)
_OPENING = re.compile(r"\s{0,20}\{([A-Za-z]{1,20})\*?\}")
_MINUS_SPACE = re.compile(r"\s{0,20}\*?\s{0,20}\[\s{0,20}-")


def is_plain_math(tex: str) -> bool:
    """Whether `tex` uses only commands that draw."""
    return all(_draws(tex, found) for found in _COMMAND.finditer(tex))


def active_commands(text: str) -> list[int]:
    """Where in `text` the commands stand that do more than draw: the places of their backslashes."""
    return [found.start() for found in _COMMAND.finditer(text) if not _draws(text, found)]


def _draws(tex: str, found: re.Match[str]) -> bool:
    name = found[1]
    if name in ("begin", "end"):
        opened = _OPENING.match(tex, found.end())
        return opened is not None and opened[1] in _ENVIRONMENTS
    if name == "\\":  # a line break; a negative distance would draw over other lines
        return _MINUS_SPACE.match(tex, found.end()) is None
    return name in _WORDS if name.isascii() and name.isalpha() else name.isascii()
