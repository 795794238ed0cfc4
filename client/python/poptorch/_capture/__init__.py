"""Records a forward pass as a tape: docs/capture.md."""
