"""Re-exports Bazel's native proto rules."""

proto_library = native.proto_library
