"""The functions and contexts of poptorch.ops."""
