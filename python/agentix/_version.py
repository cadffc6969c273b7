"""The version of this distribution; `tests/python/test_exported_names.py` holds it equal to pyproject.toml."""

__version__ = "0.1.0"
