"""pip's way into this folder: the build backend of the one above."""

import os

os.chdir(os.pardir)

from scikit_build_core.build import *  # noqa: E402, F403
