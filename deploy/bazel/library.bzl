"""What a shared library for programs outside this tree is made of."""

def _installed_headers_impl(ctx):
    contexts = [dep[CcInfo].compilation_context for dep in ctx.attr.deps]
    own = [
        header
        for header in depset(transitive = [context.headers for context in contexts]).to_list()
        if not header.short_path.startswith("../")  # another repository's: Open MPI's
    ]
    directory = ctx.actions.declare_directory(ctx.label.name)
    arguments = ctx.actions.args()
    arguments.use_param_file("%s", use_always = True)
    arguments.set_param_file_format("multiline")
    arguments.add(directory.path)
    for context in contexts:
        arguments.add_all([header.short_path for header in context.direct_public_headers])
    arguments.add("--")
    for header in own:
        arguments.add(header.short_path)
        arguments.add(header)
    ctx.actions.run(
        executable = ctx.executable._collect,
        arguments = [arguments],
        inputs = own,
        outputs = [directory],
        mnemonic = "InstalledHeaders",
    )
    return [DefaultInfo(files = depset([directory]))]

installed_headers = rule(
    doc = "A directory with the public headers of libraries, and with those that they include, under the paths by which they do.",
    implementation = _installed_headers_impl,
    attrs = {
        "deps": attr.label_list(providers = [CcInfo]),
        "_collect": attr.label(default = "//deploy/bazel:collect_headers.py", allow_single_file = True, executable = True, cfg = "exec"),
    },
)

def _objects_impl(ctx):
    inputs = [dep[CcInfo].linking_context.linker_inputs for dep in ctx.attr.deps]
    return [DefaultInfo(files = depset([
        file
        for input in depset(transitive = inputs).to_list()
        for library in input.libraries
        for file in library.pic_objects or []
    ]))]

objects = rule(
    doc = "The position-independent objects of libraries and of all that they depend on.",
    implementation = _objects_impl,
    attrs = {"deps": attr.label_list(providers = [CcInfo])},
)
