# llhttp, built from its generated C source. tools/fetch_llhttp.py finds it in a cache outside the
# tree, or downloads the pinned source distribution that carries it; it prints the directory.

if(NOT Python_EXECUTABLE)
  if(PYTHON_EXECUTABLE)
    set(Python_EXECUTABLE "${PYTHON_EXECUTABLE}")
  else()
    find_program(Python_EXECUTABLE NAMES python3 python REQUIRED)
  endif()
endif()

execute_process(
  COMMAND "${Python_EXECUTABLE}" "${CMAKE_CURRENT_SOURCE_DIR}/tools/fetch_llhttp.py"
  OUTPUT_VARIABLE LLHTTP_DIR OUTPUT_STRIP_TRAILING_WHITESPACE
  RESULT_VARIABLE status)
if(NOT status EQUAL 0 OR NOT EXISTS "${LLHTTP_DIR}/include/llhttp.h")
  message(FATAL_ERROR "tools/fetch_llhttp.py could not provide llhttp (see its message above)")
endif()
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS tools/fetch_llhttp.py)

add_library(llhttp STATIC
  "${LLHTTP_DIR}/src/api.c" "${LLHTTP_DIR}/src/http.c" "${LLHTTP_DIR}/src/llhttp.c")
target_include_directories(llhttp SYSTEM PUBLIC "${LLHTTP_DIR}/include")
target_compile_options(llhttp PRIVATE -w)
target_link_libraries(llhttp PRIVATE agx_options)
set_target_properties(llhttp PROPERTIES C_CLANG_TIDY "")
