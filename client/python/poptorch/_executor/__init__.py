"""Compiles a captured model, attaches it to IPUs and runs it: docs/poptorch.md."""
