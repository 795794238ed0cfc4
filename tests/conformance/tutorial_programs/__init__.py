"""Public PopTorch programs, and what tests/conformance/tutorials needs to run them unmodified."""
