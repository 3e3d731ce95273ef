# SPDX-License-Identifier: Apache-2.0
#
# limbeck_add_plugin(<target> [NATIVE]
#                    ID <reverse domain> VERSION <semantic version> [LICENSE <SPDX>]
#                    SOURCES <file>... [LIBRARIES <target or file>...]
#                    [OUTPUT_DIRECTORY <dir>])
#
# Builds <target>.so, a plugin that exports limbeck_plugin_v1 and nothing else, with the note that
# the host reads first. Sources see LB_PLUGIN_ID, LB_PLUGIN_VERSION and LB_PLUGIN_LICENSE.
#
#   NATIVE            the plugin includes <limbeck/native.hpp> and shares libtorch with the host; it
#                     loads only into a host with the same libtorch. Needs LIMBECK_TORCH_DIR.
#   OUTPUT_DIRECTORY  where the library goes. Inside limbeck's own build the default is its plugin
#                     folder, elsewhere the build folder.

function(limbeck_add_plugin target)
  cmake_parse_arguments(
    PARSE_ARGV 1 arg "NATIVE" "ID;VERSION;LICENSE;OUTPUT_DIRECTORY" "SOURCES;LIBRARIES")
  foreach(needed ID VERSION SOURCES)
    if(NOT arg_${needed})
      message(FATAL_ERROR "limbeck_add_plugin(${target}) needs ${needed}")
    endif()
  endforeach()
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "limbeck_add_plugin(${target}): unknown ${arg_UNPARSED_ARGUMENTS}")
  endif()
  # The text of the note has 255 bytes, of which the torch tag takes up to 70.
  string(LENGTH "${arg_ID}${arg_VERSION}" length)
  if(length GREATER 140)
    message(FATAL_ERROR "limbeck_add_plugin(${target}): ID and VERSION are too long")
  endif()
  if(NOT arg_LICENSE)
    set(arg_LICENSE NOASSERTION)
    if(PROJECT_NAME STREQUAL "limbeck")
      set(arg_LICENSE Apache-2.0)
    endif()
  endif()

  get_property(languages GLOBAL PROPERTY ENABLED_LANGUAGES)
  set(note ${CMAKE_CURRENT_BINARY_DIR}/${target}_note.c)
  if("CXX" IN_LIST languages)
    set(note ${note}pp)
  endif()
  configure_file(${CMAKE_CURRENT_FUNCTION_LIST_DIR}/note.c.in ${note} COPYONLY)
  set_source_files_properties(${note} PROPERTIES SKIP_PRECOMPILE_HEADERS ON
                                                 SKIP_UNITY_BUILD_INCLUSION ON)

  add_library(${target} MODULE ${arg_SOURCES} ${note})
  set_target_properties(
    ${target}
    PROPERTIES PREFIX ""
               C_VISIBILITY_PRESET hidden
               CXX_VISIBILITY_PRESET hidden
               VISIBILITY_INLINES_HIDDEN ON
               POSITION_INDEPENDENT_CODE ON
               LINK_DEPENDS ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/plugin.map)
  if("CXX" IN_LIST languages)
    target_compile_features(${target} PRIVATE cxx_std_20)
  endif()
  target_compile_definitions(
    ${target} PRIVATE LB_PLUGIN_ID="${arg_ID}" LB_PLUGIN_VERSION="${arg_VERSION}"
                      LB_PLUGIN_LICENSE="${arg_LICENSE}")
  target_link_options(
    ${target}
    PRIVATE
    -Wl,--version-script=${CMAKE_CURRENT_FUNCTION_LIST_DIR}/plugin.map
    -Wl,-z,nodelete
    -Wl,-z,now
    -Wl,--no-undefined)
  target_link_libraries(${target} PRIVATE limbeck::sdk ${arg_LIBRARIES})
  if(TARGET limbeck_flags)
    target_link_libraries(${target} PRIVATE limbeck_flags)
  endif()

  if(arg_NATIVE)
    target_compile_definitions(${target} PRIVATE LB_PLUGIN_NATIVE)
    if(NOT TARGET LibTorch::cpu)
      find_package(LibTorch REQUIRED)
    endif()
    target_link_libraries(${target} PRIVATE LibTorch::cpu)
    # Without it at::parallel_for is serial in the plugin's own files.
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fopenmp>)
    target_link_options(${target} PRIVATE -fopenmp)
  endif()

  if(arg_OUTPUT_DIRECTORY)
    set_target_properties(${target} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${arg_OUTPUT_DIRECTORY})
  elseif(DEFINED LIMBECK_PLUGIN_DIR)
    set_target_properties(
      ${target} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/${LIMBECK_PLUGIN_DIR})
  endif()
endfunction()
