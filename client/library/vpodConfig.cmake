# find_package(vpod) gives the target vpod::vpod, wherever the files are, relative to this one.
include(CMakeFindDependencyMacro)
find_dependency(absl)
find_dependency(Protobuf)

if(NOT TARGET vpod::vpod)
  get_filename_component(_vpod_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
  add_library(vpod::vpod SHARED IMPORTED)
  set_target_properties(vpod::vpod PROPERTIES
    IMPORTED_LOCATION "${_vpod_prefix}/lib/libvpod.so.1"
    IMPORTED_SONAME libvpod.so.1
    INTERFACE_COMPILE_FEATURES cxx_std_20
    INTERFACE_INCLUDE_DIRECTORIES "${_vpod_prefix}/include/vpod"
    INTERFACE_LINK_LIBRARIES "absl::span;absl::status;absl::statusor;absl::strings;protobuf::libprotobuf")
  unset(_vpod_prefix)
endif()
