"""The site: sphinx-build -c docs/site . OUT, with the repository's root as the source, so that links work here as they
do there. The built program says which rungs there are: harness/rungs.py."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import paths  # noqa: E402
from harness import rungs  # noqa: E402
from sphinx.errors import ConfigError  # noqa: E402

project = "flash-ladder"
extensions = ["myst_parser", "site_extension", "lab_extension", "player_extension", "traffic_extension", "book_extension", "course_extension",
              "slides_extension"]
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
pygments_style = "code_style.Light"
