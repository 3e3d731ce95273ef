# SPDX-License-Identifier: Apache-2.0
# find_package(limbeck) gives the target limbeck::sdk and the function limbeck_add_plugin().
# Plugins that share libtorch (NATIVE) also need LIMBECK_TORCH_DIR, the `torch` folder of the wheel
# that limbeck runs with.

get_filename_component(_limbeck_prefix ${CMAKE_CURRENT_LIST_DIR}/../../.. ABSOLUTE)
if(NOT TARGET limbeck::sdk)
  add_library(limbeck::sdk INTERFACE IMPORTED)
  set_target_properties(
    limbeck::sdk
    PROPERTIES INTERFACE_INCLUDE_DIRECTORIES ${_limbeck_prefix}/include)
endif()
list(APPEND CMAKE_MODULE_PATH ${CMAKE_CURRENT_LIST_DIR})
include(${CMAKE_CURRENT_LIST_DIR}/LimbeckPlugin.cmake)
