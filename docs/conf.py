"""Settings of the documentation site: ``make docs`` builds it to docs/_build/html.

Pages that are written elsewhere in the repository, the command line's help and the page "which
method" are made at build time by `steps`, in docs/generated; nothing there is kept by hand.
"""

import os
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
sys.path[:0] = [str(DOCS), str(ROOT)]
os.environ.setdefault("MPLBACKEND", "agg")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # threads that wait for each other cost most of all
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from steps import examples  # noqa: E402

import dpeffects  # noqa: E402

project = "dpeffects"
author = "the dpeffects developers"
copyright = author
version = release = dpeffects.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_gallery.gen_gallery",
    "myst_nb",
    "steps",
]
exclude_patterns = ["_build", "gallery", "outputs", "steps", "generated/*/sg_execution_times*"]
exclude_patterns += ["sg_execution_times.rst"]
myst_heading_anchors = 3
nb_execution_mode = "off"  # what is shown was kept by `make notebook`
myst_enable_extensions = ["deflist"]

autodoc_typehints = "signature"
python_maximum_signature_line_length = 80
autodoc_member_order = "bysource"
python_use_unqualified_type_names = True
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_preprocess_types = False
add_module_names = False
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = f"dpeffects {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_search_scorer = str(DOCS / "_static" / "scorer.js")
html_math_renderer = "mathml"
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
pygments_style, pygments_dark_style = "tango", "native"

sphinx_gallery_conf = {
    "examples_dirs": ["../vignettes", "gallery"],
    "gallery_dirs": ["generated/vignettes", "generated/gallery"],
    "filename_pattern": r"\.py",
    "ignore_pattern": examples.left_out(),
    "within_subsection_order": "steps.examples.Order",
    "reset_argv": "steps.examples.arguments",
    "capture_repr": ("_repr_html_", "__str__"),
    "ignore_repr_types": r"matplotlib|tuple|list|NoneType",
    "image_scrapers": ("matplotlib",),
    "image_srcset": ["2x"],
    "default_thumb_file": str(DOCS / "_static" / "text.svg"),
    "download_all_examples": False,
    "notebook_extensions": set(),
    "show_signature": False,
    "min_reported_time": 10_000,
    "write_computation_times": False,
    "plot_gallery": "True",
    "run_stale_examples": bool(os.environ.get("FULL")),
    "abort_on_example_error": True,
    "log_level": {"backreference_missing": "debug"},
}
