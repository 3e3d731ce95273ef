# SPDX-License-Identifier: Apache-2.0
# Finds Arrow C++ and Parquet inside a pyarrow wheel and defines the target ArrowWheel::parquet.
#
#   LIMBECK_PYARROW_DIR  the `pyarrow` folder of a wheel; the default is the project's own
#                        environment that scripts/setup makes.

if(NOT LIMBECK_PYARROW_DIR)
  file(GLOB _candidates ${PROJECT_SOURCE_DIR}/.env/lib/python3*/site-packages/pyarrow)
  if(_candidates)
    list(GET _candidates 0 _first)
    set(LIMBECK_PYARROW_DIR ${_first} CACHE PATH "The pyarrow folder of a wheel" FORCE)
  endif()
endif()
file(GLOB _arrow ${LIMBECK_PYARROW_DIR}/libarrow.so.*)
file(GLOB _parquet ${LIMBECK_PYARROW_DIR}/libparquet.so.*)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  ArrowWheel
  REQUIRED_VARS _arrow _parquet
  REASON_FAILURE_MESSAGE
    "Run scripts/setup, or pass -DLIMBECK_PYARROW_DIR=<site-packages>/pyarrow of a pyarrow 26 wheel.")

if(ArrowWheel_FOUND AND NOT TARGET ArrowWheel::parquet)
  add_library(ArrowWheel::parquet INTERFACE IMPORTED)
  set_target_properties(
    ArrowWheel::parquet
    PROPERTIES INTERFACE_SYSTEM_INCLUDE_DIRECTORIES ${LIMBECK_PYARROW_DIR}/include
               INTERFACE_INCLUDE_DIRECTORIES ${LIMBECK_PYARROW_DIR}/include
               INTERFACE_LINK_OPTIONS
               "-Wl,--disable-new-dtags;-Wl,-rpath,${LIMBECK_PYARROW_DIR}"
               INTERFACE_LINK_LIBRARIES "${_parquet};${_arrow}")
endif()
