"""Finds the helpers of tests/python, and makes ranks on small machines share their cores."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))
os.environ.setdefault("OMP_NUM_THREADS", "1")
