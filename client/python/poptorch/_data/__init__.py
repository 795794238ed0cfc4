"""Loads data in other processes and cuts it into batches: docs/poptorch-data.md."""
