"""What options hold and how they are checked, read and written: docs/poptorch-options.md."""
