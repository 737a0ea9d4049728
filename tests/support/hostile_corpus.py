"""Outputs that do something to the page they are shown in. Each is a cell of IPython.

In a cell `NAME` stands for the output's name, `URL` for an address whose server writes down who asked, and `OWN` for
JavaScript that marks the page. An output acts when the server is asked for its name, when the page is marked with its
name, or when its `proof` (JavaScript, true or false) holds. Some need a click: `click` is a selector inside the output.

JupyterLab itself disarms a few. Those say how in `disarmed`, and are shown to act in a plain page: `payload` is the
document.
"""

from __future__ import annotations

from dataclasses import dataclass

OWN = "top.__owned.push('NAME')"
_ONERROR = f'<img src=x onerror="{OWN}">'

# Helpers that every notebook of hostile cells begins with.
PREAMBLE = """
from IPython.display import HTML, Markdown, display
def show(mime, data, **metadata):
    display({'text/plain': 'TEXT', mime: data}, raw=True, metadata=metadata)
"""

MODEL = "JSON.stringify(jupyterapp.shell.currentWidget.content.model.toJSON().cells.map(c => c.outputs || []))"


@dataclass(frozen=True)
class Hostile:
    name: str
    code: str
    click: str = ""
    proof: str = ""
    disarmed: str = ""
    payload: str = ""


def html(name: str, markup: str, **more: str) -> Hostile:
    return Hostile(name, f"show('text/html', {markup!r})", **more)


def document(name: str, mime: str, markup: str, disarmed: str) -> Hostile:
    """One that JupyterLab disarms and a plain page does not."""
    return Hostile(name, f"show({mime!r}, {markup!r})", disarmed=disarmed, payload=markup)


SCRIPTS = [
    html("script", f"<script>{OWN}</script>"),
    html("img-onerror", _ONERROR),
    html("svg-animate-onbegin", f'<svg><animate onbegin="{OWN}" attributeName=x dur=1s></svg>'),
    html("details-ontoggle", f'<details open ontoggle="{OWN}">x</details>'),
    html("animation-start", f'<style>@keyframes k{{}}</style><b style="animation:k 1s" onanimationstart="{OWN}">x</b>'),
    html("iframe-srcdoc", f'<iframe srcdoc="<script>{OWN}</script>"></iframe>'),
    html("noscript-breakout", f"<noscript><p title=\"</noscript><img src=x onerror={OWN}>\"></noscript>"),
    html("link-javascript", f'<a href="javascript:{OWN}" target=_self>x</a>', click="a"),
    html("broken-nesting", f"<table><td><svg><desc><b><img src=x onerror=\"{OWN}\"></b></td></table>"),
    Hostile("javascript", f'show("application/javascript", "{OWN}")'),
    Hostile("text-javascript", f'show("text/javascript", "{OWN}")'),
    Hostile("isolated", f'show("text/html", "<script>{OWN}</script>", isolated=True)'),
    Hostile("markdown-onerror", f"show('text/markdown', {_ONERROR!r})"),
    html(
        "mutation",
        f"<form><math><mtext></form><form><mglyph><style></math><img src=x onerror=\"{OWN}\">",
        disarmed="it is parsed once; parsed, written out and parsed again (a sanitiser and a page) it acts",
        payload="<body><script>x = document.createElement('div'); x.innerHTML = MARKUP; "
        "document.body.innerHTML = x.innerHTML</script>",
    ),
]  # fmt: skip

BEACONS = [
    html("image", '<img src="URL/NAME">'),
    html("srcset", '<img srcset="URL/NAME 1x">'),
    html("picture", '<picture><source srcset="URL/NAME"><img></picture>'),
    html("css-background", '<p style="background:url(URL/NAME)">x</p>'),
    html("style-import", "<style>@import url(URL/NAME);</style>"),
    html("stylesheet", '<link rel=stylesheet href="URL/NAME">'),
    html("prefetch", '<link rel=prefetch href="URL/NAME">'),
    html("iframe-src", '<iframe src="URL/NAME"></iframe>'),
    html("object-data", '<object data="URL/NAME"></object>'),
    html("embed", '<embed src="URL/NAME">'),
    html("video-poster", '<video poster="URL/NAME"></video>'),
    html("audio", '<audio src="URL/NAME" preload=auto></audio>'),
    html("svg-image", '<svg><image href="URL/NAME" width=9 height=9 /></svg>'),
    html("input-image", '<input type=image src="URL/NAME">'),
    html("table-background", '<table background="URL/NAME"><tr><td>x</table>'),
    Hostile("markdown-image", "show('text/markdown', '![x](URL/NAME)')"),
    Hostile(
        "vega-data",
        "show('application/vnd.vega.v5+json', {'$schema': 'https://vega.github.io/schema/vega/v5.json', 'width': 9,"
        " 'height': 9, 'data': [{'name': 't', 'url': 'URL/NAME'}], 'marks': []})",
    ),
    document("svg-file", "image/svg+xml", '<svg xmlns="http://www.w3.org/2000/svg"><image href="URL/NAME"/></svg>',
             "an SVG is drawn as an image, which loads nothing"),
    document("shadow-root", "text/html",
             "<div><template shadowrootmode=open><style>@import url(URL/NAME);</style></template></div>",
             "innerHTML makes no shadow roots"),
]  # fmt: skip

NAVIGATION = [
    html("link", '<a href="URL/NAME">x</a>', click="a"),
    html("ping", '<a href="#x" target=_self ping="URL/NAME">x</a>', click="a"),
    html("form", '<form action="URL/NAME"><button>x</button></form>', click="button"),
    html("form-javascript", f'<form action="javascript:{OWN}"><button>x</button></form>', click="button"),
    html("meta-refresh", '<meta http-equiv=refresh content="0;url=URL/NAME">'),
    Hostile("markdown-link", "show('text/markdown', '[x](URL/NAME)')", click="a"),
    html("html-formula", r"<p>$\href{URL/NAME}{x}$</p>", click="mjx-container a"),
    Hostile("latex-link", r"show('text/latex', r'$\href{URL/NAME}{x}$')", click="mjx-container a"),
    Hostile("latex-macro", r"show('text/latex', r'$\def\go#1{\href{#1}{x}} \go{URL/NAME}$')", click="mjx-container a"),
    Hostile("latex-let", r"show('text/latex', r'$\let\go=\href \go{URL/NAME}{x}$')", click="mjx-container a"),
]  # fmt: skip

PAGE = [
    html("command", """<button data-commandlinker-command="canary:run" data-commandlinker-args='{"name": "NAME"}'>x"""
         "</button>", click="button"),
    html("clobbering", "<a id=hostileGlobal>x</a>", proof="'hostileGlobal' in window"),
    html("cover", '<i style="position:fixed;width:3px;height:3px">cover</i>',
         proof="[...document.querySelectorAll('i')].some(e => e.textContent == 'cover'"
         " && getComputedStyle(e).position == 'fixed')"),
    html("page-style", "<style>:root { --hostile-style: 1 }</style>",
         proof="getComputedStyle(document.documentElement).getPropertyValue('--hostile-style') == '1'"),
    html("borrowed-class", '<div class="jp-Dialog-header hostile-class">x</div>',
         proof="document.querySelector('.hostile-class') !== null"),
    Hostile("latex-id", r"show('text/latex', r'$\cssId{mjx-hostile}{x}$')",
            proof="document.getElementById('mjx-hostile') !== null"),
    Hostile("comm-open", "from ipykernel.comm import Comm\nComm(target_name='canary', data={'name': 'NAME'})"),
    Hostile("comm-message",
            "from ipykernel.comm import Comm\nComm(target_name='canary', data={}).send({'name': 'NAME'})"),
    Hostile("planted-cell", "get_ipython().set_next_input('# planted by a payload', replace=False)",
            proof="JSON.stringify(jupyterapp.shell.currentWidget.content.model.toJSON().cells.map(c => c.source))"
            ".includes('# planted by a payload\"')"),
]  # fmt: skip

RECORD = [
    Hostile("forged-refusal", "show('application/vnd.capkernel.diagnostics+json', {'version': 1, 'diagnostics': []})",
            proof=f"{MODEL}.includes('application/vnd.capkernel.')"),
    Hostile("forged-card", "show('application/vnd.capkernel.classified+json', {'v': 1, 'handle': '0' * 32})",
            proof=f"{MODEL}.includes('vnd.capkernel.classified')"),
    Hostile("forged-error", "class CellRefused(Exception): pass\nraise CellRefused('nothing ran')",
            proof=f"{MODEL}.includes('\"ename\":\"CellRefused\"')"),
    Hostile("terminal-link", r"print('\x1b]8;;URL/NAME\x1b\\click\x1b]8;;\x1b\\')", proof=f"{MODEL}.includes(']8;;')"),
    Hostile("terminal-title", r"print('\x1b]0;title-of-mine\x07.')", proof=f"{MODEL}.includes('title-of-mine')"),
    Hostile("terminal-clipboard", r"print('\x1b]52;c;c3Bvb2Y=\x07.')", proof=f"{MODEL}.includes('c3Bvb2Y=')"),
    Hostile("reordered-text", r"print('\u202egnp.exe')", proof=f"{MODEL}.includes('\\u202e')"),
    Hostile("invisible-text", r"print('\U000e0041\U000e0042')", proof=f"{MODEL}.includes('\\u{{e0041}}')"),
    Hostile("not-an-image", "show('image/png', 'PHN2ZyBvbmxvYWQ9eD4=')", proof=f"{MODEL}.includes('PHN2ZyBvbmxvYWQ9')"),
    Hostile("traceback", f"raise ValueError({_ONERROR!r})",
            disarmed="tracebacks are escaped", payload=_ONERROR),
]  # fmt: skip

CORPUS = [*SCRIPTS, *BEACONS, *NAVIGATION, *PAGE, *RECORD]


def source(hostile: Hostile, text: str, url: str) -> str:
    """`text` of a hostile output with its name and address filled in."""
    return text.replace("OWN", OWN).replace("NAME", hostile.name).replace("URL", url)
