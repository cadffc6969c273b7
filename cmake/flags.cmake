# Language level, warnings, hardening and sanitizers, carried by three interface targets:
#   agx_options    what every C file of ours is compiled with
#   agx_warnings   the warnings, as errors; agx_warnings_relaxed takes back a few where a
#                  foreign header's macros or slot tables cannot comply (list it last)
#   agx_hardened   link-time hardening for what we ship

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Build type" FORCE)
endif()
# Tests run optimised code with its assertions alive; only Release drops them.
set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O2 -g")
set(CMAKE_C_FLAGS_RELEASE "-O2 -DNDEBUG")
set(CMAKE_C_FLAGS_DEBUG "-O0 -g3")

include(CheckCCompilerFlag)

add_library(agx_options INTERFACE)
target_include_directories(agx_options INTERFACE "${CMAKE_CURRENT_SOURCE_DIR}/src")
target_compile_definitions(agx_options INTERFACE _GNU_SOURCE)
target_compile_options(agx_options INTERFACE
  -fstack-protector-strong
  -fno-strict-aliasing
  -fno-common
  "-ffile-prefix-map=${CMAKE_CURRENT_SOURCE_DIR}/=")
foreach(flag -fstack-clash-protection -fcf-protection)
  string(MAKE_C_IDENTIFIER "HAVE${flag}" have)
  check_c_compiler_flag(${flag} ${have})
  if(${have})
    target_compile_options(agx_options INTERFACE ${flag})
  endif()
endforeach()

add_library(agx_warnings INTERFACE)
target_compile_options(agx_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Werror
  -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition
  -Wvla -Walloca -Wundef -Wpointer-arith -Wwrite-strings -Wcast-qual -Wcast-align
  -Wformat=2 -Wimplicit-fallthrough -Wdouble-promotion
  -Wconversion -Wno-sign-conversion
  $<$<C_COMPILER_ID:GNU>:-Wlogical-op -Wduplicated-cond -Wduplicated-branches -Wjump-misses-init>)

add_library(agx_warnings_relaxed INTERFACE)
target_compile_options(agx_warnings_relaxed INTERFACE -Wno-pedantic -Wno-cast-qual -Wno-write-strings -Wno-conversion)

add_library(agx_hardened INTERFACE)
target_link_options(agx_hardened INTERFACE
  LINKER:-z,relro LINKER:-z,now LINKER:-z,noexecstack LINKER:--gc-sections)

if(AGENTIX_SANITIZE)
  set(sanitize "-fsanitize=${AGENTIX_SANITIZE}" -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_compile_options(${sanitize})
  add_link_options(${sanitize})
elseif(NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
  # -U first: distributions preset their own level, and a redefinition would be an error.
  target_compile_options(agx_options INTERFACE -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3)
endif()
if(AGENTIX_FUZZ)
  if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "AGENTIX_FUZZ needs clang: configure with -DCMAKE_C_COMPILER=clang")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

# Whole-program optimisation for what is shipped; never beside sanitizers.
if(CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT AGENTIX_SANITIZE)
  include(CheckIPOSupported)
  check_ipo_supported(RESULT AGENTIX_LTO LANGUAGES C OUTPUT ignored)
  if(AGENTIX_LTO)
    set(CMAKE_INTERPROCEDURAL_OPTIMIZATION ON)
  endif()
endif()
target_compile_options(agx_options INTERFACE -ffunction-sections -fdata-sections)

if(AGENTIX_ANALYSE)
  set(CMAKE_C_CLANG_TIDY "${AGENTIX_ANALYSE}")
endif()
