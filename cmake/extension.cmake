# agentix._core: the host brains and the worker's parts behind CPython's limited API (3.11 and up).

if(CMAKE_VERSION VERSION_LESS 3.26)
  message(FATAL_ERROR "the extension needs CMake 3.26 (limited API); build it with `uv sync`")
endif()
find_package(Python 3.11 REQUIRED COMPONENTS Interpreter Development.SABIModule)

file(GLOB ext_sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/python/ext/*.c")
python_add_library(_core MODULE USE_SABI 3.11 WITH_SOABI ${ext_sources})
target_link_libraries(_core PRIVATE agx_options agx_warnings agx_warnings_relaxed agx_hardened agx_provider)
# Most of what it calls is the interpreter's, small things a million times: without a jump on the way there.
target_compile_options(_core PRIVATE -fno-plt)
target_compile_definitions(_core PRIVATE AGX_VERSION="${PROJECT_VERSION}")
# Nothing of ours or of the archives inside is visible to other extensions in the process.
target_link_options(_core PRIVATE LINKER:--exclude-libs,ALL LINKER:--no-undefined-version)
install(TARGETS _core LIBRARY DESTINATION agentix)
if(SKBUILD_METADATA_DIR)
  install(FILES "${LLHTTP_DIR}/LICENSE-MIT" DESTINATION "${SKBUILD_METADATA_DIR}/licenses" RENAME LICENSE-llhttp)
endif()
