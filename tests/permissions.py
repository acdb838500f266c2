"""Tests of files that may not be written."""

import os

import pytest

needs_permissions = pytest.mark.skipif(
    os.name == "nt" or not hasattr(os, "geteuid") or os.geteuid() == 0,
    reason="root may write everywhere, Windows has no modes",
)
