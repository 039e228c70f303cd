"""The site: `python3 -m sphinx -c tools/site . OUT` in the repository's root, which is the source, so that links work here as they do there. The built program says which rungs there are: tools/rungs.py."""
from sphinx.errors import ConfigError

from tools import paths, rungs

project = "flash-ladder"
extensions = ["myst_parser", *(f"tools.site.{name}_extension" for name in ("site", "lab", "player", "book", "course", "slides"))]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 2
root_doc = "docs/index"
try:
    chapters = [f"{rung.directory}/README.md" for rung in rungs.known()]
    part_pages = [f"{part.name}/README.md" for part in rungs.parts() if part.name and (paths.ROOT / part.name / "README.md").is_file()]
except rungs.RungsError as error:
    raise ConfigError(str(error)) from None
include_patterns = [*chapters, *part_pages, "README.md", "CONTRIBUTING.md", "harness/peers/README.md", "docs/**.md",
                    "course/*.md", "course/exercises/*/task.md"]
exclude_patterns = ["build*", ".*"]

html_theme = "basic"
html_title = project
html_permalinks_icon = "#"
html_static_path = ["static"]
html_additional_pages = {"index": "open.html"}  # OUT/index.html opens the first page, which is docs/index.html
templates_path = ["templates"]
html_sidebars = {"**": ["globaltoc.html", "searchbox.html"]}
html_copy_source = False  # the search would fetch it, which no browser allows from disk
html_show_search_summary = False
html_show_sphinx = False
html_show_copyright = False
html_use_index = False
html_math_renderer = "katex"
pygments_style = "tools.site.code_style.Light"
