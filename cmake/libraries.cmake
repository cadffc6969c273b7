# Third-party libraries from the distribution, as imported static targets. Static, because the
# runtime must run in any image and the extension must bring no shared library along.

find_package(PkgConfig REQUIRED)

# agx_import_static(<target> <pkg-config name> <archive name>)
function(agx_import_static target package archive)
  pkg_check_modules(${target} QUIET ${package})
  if(NOT ${target}_FOUND)
    message(FATAL_ERROR "${package} not found; `make setup` installs what the build needs")
  endif()
  find_library(${target}_ARCHIVE NAMES ${archive} HINTS ${${target}_LIBRARY_DIRS} ${${target}_LIBDIR})
  if(NOT ${target}_ARCHIVE)
    message(FATAL_ERROR "${archive} (the static library of ${package}) not found")
  endif()
  add_library(${target} STATIC IMPORTED GLOBAL)
  set_target_properties(${target} PROPERTIES IMPORTED_LOCATION "${${target}_ARCHIVE}")
  if(${target}_INCLUDE_DIRS)
    target_include_directories(${target} SYSTEM INTERFACE ${${target}_INCLUDE_DIRS})
  endif()
endfunction()

find_package(Threads REQUIRED)
agx_import_static(nettle nettle libnettle.a)
agx_import_static(msgpackc msgpack libmsgpackc.a)
# Only what reads and writes tar and zstd of libarchive is used, so none of its other libraries is linked.
agx_import_static(zstd libzstd libzstd.a)
agx_import_static(archive libarchive libarchive.a)
target_link_libraries(archive INTERFACE zstd)

# Debian's libuv_a.a is not position independent enough for a shared object: executables only.
if(AGENTIX_RUNTIME OR AGENTIX_TESTS)
  agx_import_static(uv libuv libuv_a.a)
  target_link_libraries(uv INTERFACE Threads::Threads ${CMAKE_DL_LIBS} rt)
endif()
