"""Readers of file formats: each returns arrays, and each error names the file."""
