"""How Sphinx builds the site: ``make docs``."""

import re
import sys
from contextlib import suppress
from importlib import import_module

import placer

project = "placer"
release = placer.__version__
copyright = "the placer contributors, Apache-2.0"

extensions = ["myst_parser", "sphinx.ext.autodoc"]
source_suffix = {".md": "markdown"}
html_theme = "furo"
html_title = "placer"
html_copy_source = False

myst_heading_anchors = 3
nitpicky = False

autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}

_BEYOND = re.compile(r"\[([^]]+)\]\((?:\.\./)+([\w./-]*)\)")
"""Links that leave the documentation for the repository, which the site does not hold."""


def _name_beyond(_, docname, source):
    """Such a link becomes its text with the path in the repository."""

    def named(link):
        text, path = link.groups()
        return text if path.strip("/") in text else f"{text} (`{path}` in the repository)"

    if docname == "index":  # its links are the contents, by section
        for section in source[0].split("\n## ")[1:]:
            pages = "\n".join(re.findall(r"\]\((\w+)\.md\)", section))
            title = section.partition("\n")[0]
            source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n{pages}\n```\n"
    source[0] = _BEYOND.sub(named, source[0])


def _by_last_name(app, env, node, contnode):
    """References as docstrings write them: ``UsageError``, or a name with its inner module.

    What the reference does not hold stays a name, if there is such a thing; else Sphinx complains.
    """
    module, _, last = node["reftarget"].rpartition(".")
    domain = env.get_domain("py")
    known = [name for name in domain.objects if name.rpartition(".")[2] == last]
    if len(known) == 1:
        doc, builder = node["refdoc"], app.builder
        return domain.resolve_xref(env, doc, builder, "obj", known[0], node, contnode)
    with suppress(ImportError, ValueError):
        import_module(f"{module}.{last}" if node["reftype"] == "mod" else module)
    ours = [name for name in sys.modules if name.startswith(("placer", "cost_models"))]
    is_there = any(name == node["reftarget"] or hasattr(sys.modules[name], last) for name in ours)
    return contnode if is_there else None


def setup(app):
    """Sphinx's hook."""
    app.connect("source-read", _name_beyond)
    app.connect("missing-reference", _by_last_name)
