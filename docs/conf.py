"""Configuration of Sphinx; `make docs` builds the site with it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "docs/_ext")]

import compiled_modules  # noqa: E402

compiled_modules.core_module()
compiled_modules.distributed_module()
compiled_modules.mlx_loader()

project = "MCCL"
author = "The MCCL developers"
copyright = "the MCCL developers, MIT licence"
[version] = re.findall(
    r"project\(\s*mccl\s+VERSION\s+([\d.]+)", (ROOT / "CMakeLists.txt").read_text()
)
release = version

extensions = [
    "breathe",
    "mermaid_graph",
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.graphviz",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
exclude_patterns = ["_ext", "_static"]

myst_enable_extensions = ["attrs_block", "colon_fence", "deflist"]
myst_heading_anchors = 4
myst_fence_as_directive = ["mermaid"]

autodoc_mock_imports = ["mlx", "torch"]
napoleon_custom_sections = [
    ("Common arguments", "params_style"),
    ("Common errors", "params_style"),
]
autodoc_typehints = "none"
autodoc_member_order = "bysource"

DOXYGEN = ROOT / "build/docs/doxygen"
breathe_projects = {"mccl": str(DOXYGEN / "xml")}
breathe_default_project = "mccl"
breathe_show_include = False
breathe_domain_by_extension = {"h": "cpp"}
breathe_domain_by_file_pattern = {"*/c.h": "c", "*/c_calls.h": "c"}

# `typedef struct x {} x;` declares x twice for Sphinx.
suppress_warnings = ["duplicate_declaration.c"]

# Names outside MCCL, which no page here describes.
nitpick_ignore_regex = [
    (
        r"cpp:identifier",
        r"std(::.*)?|chrono|mccl|rendezvous(::.*)?|Callback|Costs|Given|Metrics|SecretBytes|size_t|u?int(8|16|32|64)_t|nullptr_t",
    ),
    (r"py:class", r".* .*"),  # Sentences of `Returns:`.
    (r"c:identifier", r"u?int(32|64)_t|size_t"),
]

graphviz_output_format = "svg"
pygments_style = "friendly"
pygments_dark_style = "native"
html_theme = "furo"
html_title = f"MCCL {version}"
html_static_path = ["_static"]
html_css_files = ["mccl.css"]
html_show_sourcelink = False
html_copy_source = False
copybutton_exclude = ".linenos, .gp, .go"


def run_doxygen(_app: object) -> None:
    """Reads the headers."""
    DOXYGEN.mkdir(parents=True, exist_ok=True)
    configuration = (ROOT / "docs/Doxyfile").read_text() + f"\nOUTPUT_DIRECTORY = {DOXYGEN}\n"
    subprocess.run(["doxygen", "-"], input=configuration, text=True, cwd=ROOT, check=True)


def setup(app: object) -> None:
    """Hooks into the build."""
    app.connect("builder-inited", run_doxygen)  # type: ignore[attr-defined]
