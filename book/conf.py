"""Sphinx's settings: MyST Markdown in, static pages out that need neither a network nor a server."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "extensions"))

project = "tiny-llm: attention and serving, on the code that ships"
author = "the founders of tiny-llm"
language = "en"
extensions = [
    "myst_parser",
    "accessibility",
    "benchmarks",
    "mathml",
    "mistakes",
    "openapi",
    "pictures",
    "reference",
    "solutions",
    "support",
    "widgets",
]
exclude_patterns = ["tests", "widgets", "extensions"]
myst_enable_extensions = ["colon_fence", "dollarmath", "deflist"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "tiny-llm"
html_static_path = ["static"]
html_css_files = ["book.css"]
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False
html_show_search_summary = False  # would fetch each page, which a browser refuses for files
nitpicky = True
