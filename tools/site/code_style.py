"""The colours of code: 4.5 to 1 and more on plain ground, on the tint of code and on that of added and removed lines,
which no style of Pygments keeps. The grounds are in static/site.css; tools/tests/site/browser_tests.py measures."""
from __future__ import annotations

from pygments.style import Style
from pygments.token import Comment, Keyword, Name, Number, Operator, String, Token


def colours(*, ink: str, comment: str, keyword: str, kind: str, literal: str, preprocessor: str) -> dict:
    return {
        Token: ink, Comment: comment, Comment.Preproc: preprocessor, Comment.PreprocFile: literal, Keyword: keyword,
        Keyword.Type: kind, Name.Builtin: kind, Operator.Word: keyword, String: literal, Number: literal,
    }


class Light(Style):
    background_color = "#f6f8fa"
    styles = colours(ink="#1b1f24", comment="#226b36", keyword="#0a3fa8", kind="#1a5c72", literal="#8f2a0a", preprocessor="#6f3096")


class Dark(Style):
    background_color = "#1d232b"
    styles = colours(ink="#e6edf3", comment="#a3cfa9", keyword="#9ecbff", kind="#86d9e0", literal="#ffc49c", preprocessor="#dcbcff")
