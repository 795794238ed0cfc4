"""C++ libraries from .proto files, generated with the distribution's protoc and grpc_cpp_plugin."""

def cc_proto(name, src, deps = [], grpc = False, **kwargs):
    """Builds the messages of `src` (and, with `grpc`, its services) into the library `name`.

    Args:
      name: name of the library.
      src: one .proto file of this package.
      deps: cc_proto libraries that `src` imports.
      grpc: whether to generate service stubs.
      **kwargs: passed to the library.
    """
    stem = src[:-len(".proto")]
    outs = [stem + ".pb.h", stem + ".pb.cc"]
    plugin = ""
    if grpc:
        outs += [stem + ".grpc.pb.h", stem + ".grpc.pb.cc"]
        plugin = "--plugin=protoc-gen-grpc=/usr/bin/grpc_cpp_plugin --grpc_out=$(GENDIR) "
    native.filegroup(name = name + "_src", srcs = [src] + [dep + "_src" for dep in deps], visibility = ["//visibility:public"])
    native.genrule(
        name = name + "_gen",
        srcs = [":" + name + "_src"],
        outs = outs,
        cmd = "/usr/bin/protoc -I. --cpp_out=$(GENDIR) " + plugin + native.package_name() + "/" + src,
    )
    native.cc_library(
        name = name,
        srcs = [out for out in outs if out.endswith(".cc")],
        hdrs = [out for out in outs if out.endswith(".h")],
        copts = ["-w", "-O1", "-g0"],
        deps = deps + ["//deploy/bazel:grpc" if grpc else "//deploy/bazel:protobuf"],
        **kwargs
    )
