# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Sphinx: the manual as HTML and as man pages (``make docs``)."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import docutils.nodes
from sphinx import addnodes

DOC = Path(__file__).parent
sys.path.insert(0, str(DOC))

from manpages import AUTHOR, MAN_PAGES  # noqa: E402

FLUX_CORE = "https://flux-framework.readthedocs.io/projects/flux-core/en/latest"

project = "flux-dws"
author = AUTHOR
copyright = "2026 the flux-dws developers. SPDX-License-Identifier: LGPL-3.0-only"

# The newest release. The man pages are in the repository, so they carry no date.
release = re.findall(r"^## (.*)$", (DOC.parent / "NEWS.md").read_text(), re.M)[0]
version = release
today = " "

extensions = ["myst_parser"]
source_suffix = {".rst": "restructuredtext", ".md": "markdown"}
exclude_patterns = ["common", "man"]
# With smart quotes, "--" becomes a dash.
smartquotes = False
nitpicky = True
# The anchors of headings that links in the .md files name.
myst_heading_anchors = 3

html_theme = "sphinx_rtd_theme"
man_make_section_directory = True
man_pages = [
    (f"man{section}/{name}", name, description, [AUTHOR], section)
    for name, section, description in MAN_PAGES
]


def man_role(
    name: str, rawtext: str, text: str, lineno: int, inliner: Any, *_: Any, **__: Any
) -> tuple[list[docutils.nodes.Node], list[Any]]:
    """``:man1:`flux-jobs```: a page of this manual, or else of flux-core's."""
    section = name[-1]
    shown = docutils.nodes.inline(rawtext, f"{text}({section})")
    if (text, int(section)) not in {page[:2] for page in MAN_PAGES}:
        uri = f"{FLUX_CORE}/man{section}/{text}.html"
        return [docutils.nodes.reference(rawtext, "", shown, refuri=uri)], []
    page = addnodes.pending_xref(
        rawtext,
        shown,
        refdomain="std",
        reftype="doc",
        refdoc=inliner.document.settings.env.docname,
        reftarget=f"/man{section}/{text}",
        refexplicit=True,
        refwarn=True,
    )
    return [page], []


def setup(app: Any) -> None:
    """Register the roles of man pages."""
    for section in (1, 5, 7):
        app.add_role(f"man{section}", man_role)
