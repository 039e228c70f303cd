"""The one place that says where the site's scripts and extensions find what they import: `from harness import rungs`,
and the modules of harness/plots. Who imports one of these imports this first; conf.py does for the extensions."""
from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
SITE = DOCS / "site"
sys.path[:0] = [str(folder) for folder in (SITE, ROOT, ROOT / "harness" / "plots") if str(folder) not in sys.path]
