# The rooms and the one direction in which they may know each other. tools/check_layers.py checks
# the same rule on the include lines.

# agx_room(<room> <libraries it stands on>...)
#   agx_<room>     brains: position independent, may go into the extension
#   agx_<room>_uv  shells: *_uv.c, executables only
# A room without sources yet is an empty interface library, so that everything links all the same.
function(agx_room room)
  file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/src/${room}/*.c")
  set(shells ${sources})
  list(FILTER shells INCLUDE REGEX "_uv\\.c$")
  list(FILTER sources EXCLUDE REGEX "(_uv|/main)\\.c$")
  agx_room_library(agx_${room} "${sources}" ${ARGN})
  if(TARGET uv)
    set(below agx_io)
    foreach(library IN LISTS ARGN)
      if(TARGET ${library}_uv)
        list(APPEND below ${library}_uv)
      endif()
    endforeach()
    agx_room_library(agx_${room}_uv "${shells}" agx_${room} ${below})
  endif()
endfunction()

function(agx_room_library target sources)
  if(sources)
    add_library(${target} STATIC ${sources})
    target_link_libraries(${target} PUBLIC agx_options ${ARGN} PRIVATE agx_warnings)
  else()
    add_library(${target} INTERFACE)
    target_link_libraries(${target} INTERFACE agx_options ${ARGN})
  endif()
endfunction()

agx_room(base)
if(TARGET uv)
  file(GLOB io_sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/src/io/*.c")
  agx_room_library(agx_io "${io_sources}" agx_base uv)
endif()
agx_room(wire agx_base llhttp msgpackc nettle)
agx_room(proto agx_wire)
agx_room(worker agx_proto)
agx_room(server agx_worker)
agx_room(client agx_proto)
agx_room(provider agx_client)

# The runtime: one static, position independent executable that runs in any image. Sanitizers
# cannot be linked statically, so their build makes an ordinary executable.
if(AGENTIX_RUNTIME AND EXISTS "${CMAKE_CURRENT_SOURCE_DIR}/src/server/main.c")
  add_executable(agentix-runtime src/server/main.c)
  target_link_libraries(agentix-runtime PRIVATE agx_warnings agx_hardened agx_server_uv)
  target_compile_definitions(agentix-runtime PRIVATE AGX_VERSION="${PROJECT_VERSION}")
  if(NOT AGENTIX_SANITIZE AND NOT AGENTIX_FUZZ)
    # libuv mentions resolver functions that a static glibc warns about; the runtime calls none.
    target_link_options(agentix-runtime PRIVATE -static-pie LINKER:--no-warnings)
  endif()
  if(SKBUILD)
    install(TARGETS agentix-runtime RUNTIME DESTINATION "${SKBUILD_SCRIPTS_DIR}")
  else()
    include(GNUInstallDirs)
    install(TARGETS agentix-runtime)
  endif()
endif()
