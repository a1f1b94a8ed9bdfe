"""A Sphinx extension that writes formulas as MathML, which browsers show without scripts, fonts or a network."""

import re
from typing import Any

from docutils import nodes
from docutils.utils.math import latex2mathml
from sphinx.application import Sphinx

_SIZES = re.compile(r"\\[bB]igg?[lr]?(?![a-zA-Z])")
_TEXT = re.compile(r"\\text\{[^}]*\}")


def to_mathml(formula: str, as_block: bool) -> str:
    """Return a formula of LaTeX as MathML; commands that docutils does not know are replaced by those it knows."""
    known = _SIZES.sub("", formula).replace(r"\texttt", r"\text")
    known = _TEXT.sub(lambda text: text[0].replace(r"\_", "_"), known)
    return latex2mathml.tex2mathml(known, as_block=as_block)  # type: ignore[no-any-return]


def visit_inline(self: Any, node: nodes.math) -> None:
    """Write a formula in a line."""
    self.body.append(to_mathml(node.astext(), as_block=False))
    raise nodes.SkipNode


def visit_block(self: Any, node: nodes.math_block) -> None:
    """Write a formula in a paragraph of its own."""
    self.body.append(f'<div class="math">{to_mathml(node.astext(), as_block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
